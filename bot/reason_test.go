package bot_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/bot"
	"github.com/countersign/countersign/bot/slacksim"
	"github.com/countersign/countersign/policy"
)

func needsReason(w *world) { w.policy.approval = "\n  reason_required: true" }

// Where the policy wants a reason, Approve asks for one in a modal that says
// what is approved, and nothing is decided without.
func TestApproveWithReason(t *testing.T) {
	bothWays(t, func(t *testing.T, how ...func(*world)) {
		w := newWorld(t, append(how, needsReason)...)
		w.run()
		r := w.ask()
		w.card(r, "Approval needed")
		if reply := w.click("U0ADA", r, "approve_with_reason"); !reply.OK() {
			t.Errorf("Slack shows %q", reply.Shown)
		}
		view := w.modal("U0ADA", "crm.delete_records")
		said := strings.Join(parts(t, view.Blocks).texts, "\n")
		for _, want := range []string{"crm / customers", "production", "3", r.Digest.Short(), "If you approve, crm-agent may run exactly this once, within 15 minutes."} {
			if !strings.Contains(said, want) {
				t.Errorf("the window doesn't say %q: %s", want, said)
			}
		}
		if view.PrivateMetadata != bot.Value(r) {
			t.Errorf("the window is about %q", view.PrivateMetadata)
		}
		if reply := w.submit("U0ADA", view, ""); reply.OK() || reply.Sent {
			t.Errorf("without a reason: %+v", reply)
		}
		if reply := w.submit("U0ADA", view, " \n "); !strings.Contains(reply.FieldErrors["reason"], "asks whoever approves this for a reason") {
			t.Errorf("with white space for a reason: %+v", reply)
		}
		w.is(r, approval.Pending)
		if reply := w.submit("U0ADA", view, "Agreed with <@U0EVE>"); !reply.OK() {
			t.Errorf("with a reason: %+v", reply)
		}
		if _, open := w.slack.OpenView("U0ADA"); open {
			t.Error("the window is still open")
		}
		decided := w.now(r.ID)
		if decided.Status != approval.Approved || decided.Decisions[0].Reason != "Agreed with <@U0EVE>" {
			t.Errorf("the request is %s by %+v", decided.Status, decided.Decisions)
		}
		card := w.card(r, "Approved")
		if said := strings.Join(parts(t, card.Blocks).texts, "\n"); !strings.Contains(said, "Agreed with <@U0EVE>") {
			t.Errorf("the card doesn't show the reason: %s", said)
		}
	})
}

func TestDetailsApproveWithReason(t *testing.T) {
	t.Parallel()
	w := newWorld(t, needsReason)
	w.run()
	r := w.ask(big)
	card := w.card(r, "Approval needed")
	if p := parts(t, card.Blocks); p.has("approve") || p.has("approve_with_reason") {
		t.Errorf("a card that doesn't show everything has the buttons %v", p.actions)
	}
	w.click("U0ADA", r, "details")
	view := w.modal("U0ADA", r.Digest.String())
	if reply := w.submit("U0ADA", view, " "); !strings.Contains(reply.FieldErrors["reason"], "for a reason") {
		t.Errorf("with white space for a reason: %+v", reply)
	}
	if reply := w.submit("U0ADA", view, "Looked at all of them."); !reply.OK() {
		t.Errorf("with a reason: %+v", reply)
	}
	if decided := w.now(r.ID); decided.Status != approval.Approved || decided.Decisions[0].Reason != "Looked at all of them." {
		t.Errorf("the request is %s by %+v", decided.Status, decided.Decisions)
	}
}

// A click that doesn't go through the modal decides nothing.
func TestApproveWithoutTheModal(t *testing.T) {
	t.Parallel()
	w := newWorld(t, needsReason)
	w.run()
	r := w.ask()
	card := w.card(r, "Approval needed")
	forged := w.altered(w.payload("U0ADA", card, "approve_with_reason"), func(payload map[string]any) {
		payload["actions"].([]any)[0].(map[string]any)["action_id"] = "approve"
	})
	if _, err := w.slack.Deliver(w.context(), forged); err != nil {
		t.Fatal(err)
	}
	w.told("U0ADA", "asks whoever approves this for a reason")
	w.is(r, approval.Pending)
}

// Refusals are shown in the modal; what was typed stays where another try may
// help.
func TestApproveWithReasonIsRefused(t *testing.T) {
	t.Parallel()
	open := func(t *testing.T, user string) (*world, *approval.Request, slacksim.View) {
		w := newWorld(t, needsReason)
		w.run()
		r := w.ask()
		w.card(r, "Approval needed")
		w.click(user, r, "approve_with_reason")
		return w, r, w.modal(user, "crm.delete_records")
	}
	t.Run("no role", func(t *testing.T) {
		t.Parallel()
		w, r, view := open(t, "U0EVE")
		w.submit("U0EVE", view, "because")
		w.modal("U0EVE", "This needs 1 of oncall. You are not in it")
		w.is(r, approval.Pending)
	})
	t.Run("their own agent's", func(t *testing.T) {
		t.Parallel()
		w, r, view := open(t, "U0ALAN")
		w.submit("U0ALAN", view, "because")
		w.modal("U0ALAN", "the agent acts for you")
		w.is(r, approval.Pending)
	})
	t.Run("edited meanwhile", func(t *testing.T) {
		t.Parallel()
		w, r, view := open(t, "U0ADA")
		w.edit(r)
		w.submit("U0ADA", view, "because")
		w.modal("U0ADA", "The arguments changed")
		w.is(r, approval.Pending)
	})
	t.Run("decided meanwhile", func(t *testing.T) {
		t.Parallel()
		w, r, view := open(t, "U0ADA")
		w.click("U0GRACE", r, "reject")
		w.submit("U0GRACE", w.modal("U0GRACE", "crm.delete_records"), "no")
		w.submit("U0ADA", view, "because")
		w.modal("U0ADA", "It was rejected by <@U0GRACE>")
	})
	t.Run("Slack can't say who they are", func(t *testing.T) {
		t.Parallel()
		w, r, view := open(t, "U0ADA")
		w.slack.Fail("users.info", slacksim.Fault{Status: 503}, 0)
		if reply := w.submit("U0ADA", view, "because"); !strings.Contains(reply.FieldErrors["reason"], "couldn't confirm your account") {
			t.Errorf("submitting: %+v", reply)
		}
		w.slack.Recover("users.info")
		if reply := w.submit("U0ADA", view, "because"); !reply.OK() {
			t.Errorf("submitting again: %+v", reply)
		}
		w.is(r, approval.Approved)
	})
	t.Run("the store is full", func(t *testing.T) {
		t.Parallel()
		w, r, view := open(t, "U0ADA")
		w.store.full.Store(true)
		if reply := w.submit("U0ADA", view, "because"); reply.Status == http.StatusOK || reply.Shown == "" {
			t.Errorf("submitting: %+v", reply)
		}
		w.store.full.Store(false)
		w.is(r, approval.Pending)
		if reply := w.submit("U0ADA", view, "because"); !reply.OK() {
			t.Errorf("submitting again: %+v", reply)
		}
		w.is(r, approval.Approved)
	})
}

// The modal isn't offered for what there is nothing to decide about.
func TestReasonIsNotAskedForInVain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, needsReason)
	w.run()
	edited, decided := w.ask(), w.ask()
	first := w.payload("U0ADA", w.card(edited, "Approval needed"), "approve_with_reason")
	second := w.payload("U0ADA", w.card(decided, "Approval needed"), "approve_with_reason")
	w.edit(edited)
	w.click("U0GRACE", decided, "reject")
	w.submit("U0GRACE", w.modal("U0GRACE", "crm.delete_records"), "no")
	for says, click := range map[string][]byte{"The arguments changed": first, "It was rejected by <@U0GRACE>": second} {
		if _, err := w.slack.Deliver(w.context(), click); err != nil {
			t.Fatal(err)
		}
		view := w.modal("U0ADA", says)
		if view.SubmitLabel != "" {
			t.Errorf("the window offers %q", view.SubmitLabel)
		}
		if _, err := w.slack.CloseView(w.context(), "U0ADA", view.ID); err != nil {
			t.Fatal(err)
		}
	}
}

// Approve asks once more only where a mistake costs much.
func TestConfirmationFromTierFour(t *testing.T) {
	t.Parallel()
	for number := policy.TierRead; number <= policy.TierIrreversible; number++ {
		said := strings.Join(parts(t, bot.Card(deletion(tier(number, "strict"))).Blocks).texts, "\n")
		if got, want := strings.Contains(said, "Approve this?"), number >= policy.TierDestructive; got != want {
			t.Errorf("%s: it asks once more: %v", number, got)
		}
	}
	for want, change := range map[string]func(*approval.Request){
		"crm.delete_records on 214 records · production. If you approve, crm-agent may run it once, within 15 minutes. The agent says that it can't be undone.": func(*approval.Request) {},
		"Your approval is number 1 of 2 that this needs. Then crm-agent may run it once, within 15 minutes.":                                                    twoOf,
		"production. If you approve, crm-agent may run it once, within 15 minutes.": func(r *approval.Request) {
			twoOf(r)
			r.Reversible = nil
			vote(ada, approval.Approve, "oncall", "")(r)
		},
	} {
		if said := strings.Join(parts(t, bot.Card(deletion(change)).Blocks).texts, "\n"); !strings.Contains(said, want) {
			t.Errorf("the confirmation doesn't say %q: %s", want, said)
		}
	}
}
