package bot_test

import (
	"strings"
	"testing"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/bot"
	"github.com/countersign/countersign/bot/slacksim"
)

func says(t *testing.T, r *approval.Request, want string) {
	t.Helper()
	if said := strings.Join(parts(t, bot.Card(r).Blocks).texts, "\n"); !strings.Contains(said, want) {
		t.Errorf("the card doesn't say %q: %s", want, said)
	}
}

// Where somebody may approve what their own agent asks, the card says so before
// and after.
func TestOwnApprovalIsSaid(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(w *world) { w.policy.oncall = "{users: [U0ALAN], self_approval: true}" })
	w.run()
	r := w.ask()
	card := w.card(r, "Approval needed")
	if said := strings.Join(parts(t, card.Blocks).texts, "\n"); !strings.Contains(said, "Needs 1 of oncall, who may approve their own agent's request") {
		t.Errorf("the card doesn't say who may: %s", said)
	}
	w.click("U0ALAN", r, "approve")
	card = w.card(r, "Approved")
	if said := strings.Join(parts(t, card.Blocks).texts, "\n"); !strings.Contains(said, "Approved by <@U0ALAN>, whose own agent asked, ") {
		t.Errorf("the card doesn't say whose agent it was: %s", said)
	}
	if !w.now(r.ID).Decisions[0].Own {
		t.Error("the decision isn't recorded as one's own")
	}
	// Who comes later is told, too.
	w.slack.SetUser(slacksim.User{ID: "U0LATE", Name: "late"})
	late := w.altered(w.payload("U0LATE", card, "why"), func(payload map[string]any) {
		payload["actions"].([]any)[0].(map[string]any)["action_id"] = "approve"
	})
	if _, err := w.slack.Deliver(w.context(), late); err != nil {
		t.Fatal(err)
	}
	w.told("U0LATE", "It was approved by <@U0ALAN>, whose own agent asked, ")
}

func TestOwnDecisionsOnTheCard(t *testing.T) {
	t.Parallel()
	says(t, deletion(twoOf, ownAllowed), "Needs 1 of finance and 1 of oncall. People of finance may approve their own agent's request")
	says(t, deletion(twoOf, vote(ada, approval.Approve, "oncall", ""), vote(alan, approval.Approve, "finance", ""), own),
		"Approved by <@U0ADA> and <@U0ALAN>, whose own agent asked, ")
	says(t, deletion(twoOf, vote(alan, approval.Approve, "finance", ""), own, vote(ada, approval.Approve, "oncall", "")),
		"Approved by <@U0ALAN>, whose own agent asked, and <@U0ADA>, ")
	says(t, deletion(func(r *approval.Request) { r.Ruling.Requirement.Owner = "U0GRACE" }, vote(grace, approval.Approve, "oncall", ""), own),
		"Approved by <@U0GRACE>, whose own agent asked, ")
	says(t, deletion(func(r *approval.Request) { r.Editors = []approval.Approver{grace} }, vote(grace, approval.Approve, "oncall", ""), own),
		"Approved by <@U0GRACE>, who edited it, ")
}

// Who can't approve their own agent's request is told what to do.
func TestOwnRefusalSaysWhatToDo(t *testing.T) {
	t.Parallel()
	text, _ := bot.Answer(approval.Approve, deletion(), approval.ErrSelf)
	if want := "This doesn't count: the agent acts for you, so somebody else must approve. 1 more of oncall is needed. " +
		"Ask somebody of oncall to look at the card. If there is nobody else, the policy can let a role approve its own requests: self_approval."; text != want {
		t.Errorf("got  %q\nwant %q", text, want)
	}
	text, _ = bot.Answer(approval.Approve, deletion(twoOf), approval.ErrSelf)
	if want := "1 more of finance and 1 more of oncall are needed. Ask somebody of finance or oncall to look at the card."; !strings.HasSuffix(text, want) {
		t.Errorf("got %q", text)
	}
}

// A policy that became stricter ends a request when somebody approves it, and
// says so to them and on the card.
func TestPolicyBecameStricter(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ change, says string }{
		"denied":      {"block: [{id: audit, actions: ['crm.*'], why: 'Nobody deletes during the <audit>.'}]\n", "Nobody deletes during the <audit>."},
		"more people": {"tiers: {4: {requires: [{role: oncall, count: 2}]}, 5: {requires: [{role: oncall, count: 2}]}}\n", "The policy now asks for 2 of oncall"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.run()
			r := w.ask()
			w.card(r, "Approval needed")
			stricter := w.policy
			stricter.more = test.change
			if err := w.service.SetPolicy(w.context(), stricter.parse(t)); err != nil {
				t.Fatal(err)
			}
			if reply := w.click("U0ADA", r, "approve"); !reply.OK() {
				t.Errorf("Slack shows %q", reply.Shown)
			}
			w.told("U0ADA", "the policy became stricter since the agent asked. The policy now")
			w.told("U0ADA", "Nothing runs. If it is still wanted, the agent must ask again.")
			card := w.card(r, "Superseded, will not run")
			said := strings.Join(parts(t, card.Blocks).texts, "\n")
			for _, want := range []string{test.says, "If it is still wanted, the agent must ask again"} {
				if !strings.Contains(said, want) {
					t.Errorf("the card doesn't say %q: %s", want, said)
				}
			}
			w.is(r, approval.Rejected)
		})
	}
}

// What policy allows or denies by itself is no card.
func TestNoCardOfWhatPolicyDecides(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(w *world) {
		w.policy.more = "integrations: {crm: {tools: {get: {tier: 1}}}}\nblock: [{id: never, actions: [crm.drop], why: Never.}]\n"
	})
	w.run()
	ask := func(action string) error {
		_, err := w.service.Request(w.context(), w.agent, approval.Proposal{Purpose: "p", Action: action, Payload: []byte(`{}`)})
		return err
	}
	if err := ask("crm.get"); err != nil {
		t.Error(err)
	}
	if err := ask("crm.drop"); err == nil {
		t.Error("nothing denied it")
	}
	w.card(w.ask(), "Approval needed")
	if n := len(w.slack.Messages(channel)); n != 1 {
		t.Errorf("there are %d messages: %s", n, indentedText(w.slack.Messages(channel)))
	}
}

// What a role is that only an escalation names is looked at, too.
func TestCheckOfEscalation(t *testing.T) {
	t.Parallel()
	w := checked(t, reminds, func(w *world) { w.policy.finance = "{users: [U0ADA, U0NOBODY]}" })
	for _, f := range bot.Check(w.context(), w.options, w.policy.parse(t)) {
		if !f.OK && f.Subject == "role finance" && strings.Contains(f.Text, "U0NOBODY") {
			return
		}
	}
	t.Error("nothing is said about whom the policy calls")
}
