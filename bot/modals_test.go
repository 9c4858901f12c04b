package bot_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/bot/slacksim"
)

func TestRejectWithReason(t *testing.T) {
	bothWays(t, func(t *testing.T, how ...func(*world)) {
		w := newWorld(t, how...)
		w.run()
		r := w.ask()
		w.card(r, "Approval needed")
		if reply := w.click("U0GRACE", r, "reject"); !reply.OK() {
			t.Errorf("Slack shows %q", reply.Shown)
		}
		view := w.modal("U0GRACE", "crm.delete_records")
		if w.now(r.ID).Status != approval.Pending {
			t.Error("opening the window rejected the request")
		}
		reply, err := w.slack.Submit(w.context(), "U0GRACE", view.ID, map[string]string{"reason": "Legal hold <!here>"})
		if err != nil || !reply.OK() {
			t.Fatalf("submitting: %+v, %v", reply, err)
		}
		if _, open := w.slack.OpenView("U0GRACE"); open {
			t.Error("the window is still open")
		}
		if decided := w.now(r.ID); decided.Status != approval.Rejected || decided.Reason != "Legal hold <!here>" {
			t.Errorf("the request is %s: %q", decided.Status, decided.Reason)
		}
		card := w.card(r, "Rejected (production)")
		if p := parts(t, card.Blocks); !strings.Contains(strings.Join(p.texts, "\n"), "Legal hold <!here>") {
			t.Errorf("the card doesn't show the reason: %s", card.Blocks)
		}
	})
}

func TestDetailsApprove(t *testing.T) {
	bothWays(t, func(t *testing.T, how ...func(*world)) {
		w := newWorld(t, how...)
		w.run()
		r := w.ask(big)
		card := w.card(r, "Approval needed")
		if p := parts(t, card.Blocks); p.has("approve") {
			t.Error("Approve is on a card that doesn't show everything")
		}
		if reply := w.click("U0ADA", r, "details"); !reply.OK() {
			t.Errorf("Slack shows %q", reply.Shown)
		}
		view := w.modal("U0ADA", r.Digest.String())
		if view.SubmitLabel != "Approve" {
			t.Fatalf("the window's button is %q", view.SubmitLabel)
		}
		reply, err := w.slack.Submit(w.context(), "U0ADA", view.ID, nil)
		if err != nil || !reply.OK() {
			t.Fatalf("submitting: %+v, %v", reply, err)
		}
		w.is(r, approval.Approved)
		w.card(r, "Approved")
	})
}

// The largest modal that is offered for approval comes back whole with its
// submission.
func TestLargestDetailsApprove(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.run()
	r := w.ask(func(p *approval.Proposal) { p.Payload = []byte(`["` + strings.Repeat(`\"`, 45_000) + `"]`) })
	w.card(r, "Approval needed")
	w.click("U0ADA", r, "details")
	view := w.modal("U0ADA", r.Digest.String())
	if view.SubmitLabel != "Approve" {
		t.Fatalf("the window's button is %q", view.SubmitLabel)
	}
	if reply, err := w.slack.Submit(w.context(), "U0ADA", view.ID, nil); err != nil || !reply.OK() {
		t.Fatalf("submitting: %d %s, %v", reply.Status, reply.Shown, err)
	}
	w.is(r, approval.Approved)
}

func TestTooLargeIsNotApprovable(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.run()
	r := w.ask(huge)
	card := w.card(r, "Approval needed")
	if p := parts(t, card.Blocks); p.has("approve") || !strings.Contains(strings.Join(p.texts, "\n"), "too large to review in Slack") {
		t.Errorf("the card has the buttons %v and doesn't say why", p.actions)
	}
	w.click("U0ADA", r, "details")
	view := w.modal("U0ADA", "too large to review in Slack")
	if view.SubmitLabel != "" {
		t.Errorf("the window's button is %q", view.SubmitLabel)
	}
}

// A request that changes while somebody types a reason isn't rejected by it.
func TestModalsAnswer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.run()
	r := w.ask()
	w.card(r, "Approval needed")
	w.click("U0GRACE", r, "reject")
	view := w.modal("U0GRACE", "crm.delete_records")
	w.click("U0ADA", r, "approve")
	w.card(r, "Approved")
	if reply, err := w.slack.Submit(w.context(), "U0GRACE", view.ID, map[string]string{"reason": "no"}); err != nil || !reply.OK() {
		t.Fatalf("submitting: %+v, %v", reply, err)
	}
	w.modal("U0GRACE", "It was approved by <@U0ADA>")
}

func TestRejectModalKeepsTheReasonWhenSlackCantSay(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.run()
	r := w.ask()
	w.card(r, "Approval needed")
	w.click("U0GRACE", r, "reject")
	view := w.modal("U0GRACE", "crm.delete_records")
	w.slack.Fail("users.info", slacksim.Fault{Status: 503}, 0)
	reply, err := w.slack.Submit(w.context(), "U0GRACE", view.ID, map[string]string{"reason": "no"})
	if err != nil || !strings.Contains(reply.FieldErrors["reason"], "couldn't confirm your account") {
		t.Fatalf("submitting: %+v, %v", reply, err)
	}
	w.slack.Recover("users.info")
	if reply, err = w.slack.Submit(w.context(), "U0GRACE", view.ID, map[string]string{"reason": "no"}); err != nil || !reply.OK() {
		t.Fatalf("submitting again: %+v, %v", reply, err)
	}
	w.is(r, approval.Rejected)
}

func TestGuestsReadNoDetails(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.run()
	r := w.ask()
	w.card(r, "Approval needed")
	for _, action := range []string{"details", "reject"} {
		w.click("U0GUEST", r, action)
		view := w.modal("U0GUEST", "guests can't decide")
		if strings.Contains(string(view.Blocks), "crm.delete_records") {
			t.Errorf("%s shows the request to a guest", action)
		}
		if _, err := w.slack.CloseView(w.context(), "U0GUEST", view.ID); err != nil {
			t.Fatal(err)
		}
	}
}

// A modal that can't be filled doesn't go on saying that it loads.
func TestModalThatCannotBeFilled(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		fault slacksim.Fault
		says  string
	}{
		"refused":  {slacksim.Fault{Error: "view_too_large"}, "Slack refused to show this request"},
		"lost":     {slacksim.Fault{Drop: slacksim.DropUnhandled}, "press the button again"},
		"a server": {slacksim.Fault{Status: 503}, "press the button again"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.run()
			r := w.ask()
			w.card(r, "Approval needed")
			w.slack.Fail("views.update", test.fault, 1)
			w.click("U0ADA", r, "details")
			if view := w.modal("U0ADA", test.says); view.SubmitLabel != "" {
				t.Errorf("the window offers %q", view.SubmitLabel)
			}
			w.waitLog("filling a modal")
		})
	}
}

func TestExpiredTrigger(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.run()
	r := w.ask()
	w.card(r, "Approval needed")
	for _, action := range []string{"details", "reject"} {
		w.slack.Fail("views.open", slacksim.Fault{Error: "expired_trigger_id"}, 1)
		if reply := w.click("U0ADA", r, action); !reply.OK() {
			t.Errorf("Slack shows %q", reply.Shown)
		}
		w.wait("an answer", func() bool { return len(w.slack.Ephemerals("U0ADA")) > 0 })
		w.told("U0ADA", "press the button again")
	}
}

// A reason that is typed for an earlier version is not asked for.
func TestRejectOfAnEarlierVersion(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.run()
	r := w.ask()
	card := w.card(r, "Approval needed")
	old := w.payload("U0ADA", card, "reject")
	w.edit(r)
	if _, err := w.slack.Deliver(w.context(), old); err != nil {
		t.Fatal(err)
	}
	if view := w.modal("U0ADA", "The arguments changed"); view.SubmitLabel != "" {
		t.Errorf("the window still offers %q", view.SubmitLabel)
	}
}

// A submission that can't be stored isn't acknowledged, and the window stays.
func TestStoreUnavailableForModals(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		action, says string
		want         approval.Status
	}{
		{"details", "Digest", approval.Approved},
		{"reject", "crm.delete_records", approval.Rejected},
	} {
		t.Run(test.action, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.run()
			r := w.ask()
			w.card(r, "Approval needed")
			w.click("U0ADA", r, test.action)
			view := w.modal("U0ADA", test.says)
			w.store.full.Store(true)
			reply, err := w.slack.Submit(w.context(), "U0ADA", view.ID, nil)
			if err != nil || reply.Status == http.StatusOK || reply.Shown == "" {
				t.Errorf("submitting: %+v, %v", reply, err)
			}
			w.store.full.Store(false)
			if status := w.now(r.ID).Status; status != approval.Pending {
				t.Fatalf("the request is %s", status)
			}
			if reply, err = w.slack.Submit(w.context(), "U0ADA", view.ID, nil); err != nil || !reply.OK() {
				t.Errorf("submitting again: %+v, %v", reply, err)
			}
			if status := w.now(r.ID).Status; status != test.want {
				t.Errorf("the request is %s", status)
			}
		})
	}
}
