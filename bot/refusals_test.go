package bot_test

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/bot/slacksim"
)

// Who may not decide is told why, and nothing changes.
func TestWhoMayNotDecide(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, user, says string }{
		{"no role", "U0EVE", "This needs 1 of oncall. You are not in it"},
		{"a member of another role's group", "U0FRANK", "You are not in it"},
		{"whom the agent acts for", "U0ALAN", "the agent acts for you"},
		{"a guest", "U0GUEST", "guests can't decide"},
		{"a guest of one channel", "U0SINGLE", "guests can't decide"},
		{"a deactivated account", "U0GONE", "deactivated"},
		{"a bot", "U0ROBOT", "bots can't decide"},
		{"a workflow", "U0FLOW", "bots can't decide"},
		{"somebody of another workspace", "U0OTHER", "other workspaces"},
		{"a stranger", "U0STRANGER", "other workspaces"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.run()
			r := w.ask()
			w.card(r, "Approval needed")
			if reply := w.click(test.user, r, "approve"); !reply.OK() {
				t.Errorf("Slack shows %q", reply.Shown)
			}
			w.told(test.user, test.says)
			if now := w.now(r.ID); now.Status != approval.Pending || len(now.Decisions) > 0 {
				t.Errorf("the request is %s with the decisions %+v", now.Status, now.Decisions)
			}
		})
	}
}

// A name proves nothing: the id counts.
func TestRenamedToAnApprover(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.run()
	w.slack.SetUser(slacksim.User{ID: "U0EVE", Name: "ada", RealName: "Ada Lovelace"})
	r := w.ask()
	w.card(r, "Approval needed")
	w.click("U0EVE", r, "approve")
	w.told("U0EVE", "You are not in it")
	w.is(r, approval.Pending)
}

// Whoever loses what it takes between the card and the click can't decide.
func TestLookedUpAfresh(t *testing.T) {
	t.Parallel()
	w := newWorld(t, needsFinance)
	w.run()
	first, second := w.ask(), w.ask()
	w.card(first, "Approval needed")
	w.card(second, "Approval needed")
	if reply := w.click("U0FRANK", first, "approve"); !reply.OK() {
		t.Errorf("Slack shows %q", reply.Shown)
	}
	if d := w.now(first.ID).Decisions; len(d) != 1 || d[0].Roles[0].Via != "S0FINANCE" {
		t.Fatalf("the decisions are %+v", d)
	}
	w.slack.SetGroup(slacksim.Group{ID: "S0FINANCE", Handle: "finance", Users: []string{"U0EVE"}})
	w.click("U0FRANK", second, "approve")
	w.told("U0FRANK", "You are not in it")
	w.is(second, approval.Pending)
}

func TestGroupsFailClosed(t *testing.T) {
	t.Parallel()
	tests := map[string]func(*world){
		"an error": func(w *world) {
			w.slack.Fail("usergroups.users.list", slacksim.Fault{Error: "plan_upgrade_required"}, 0)
		},
		"a limit": func(w *world) {
			w.slack.Fail("usergroups.users.list", slacksim.Fault{Status: 429, RetryAfter: time.Minute}, 0)
		},
		"a page":       func(w *world) { w.slack.Fail("usergroups.users.list", slacksim.Fault{HTML: true}, 0) },
		"no answer":    func(w *world) { w.slack.Fail("usergroups.users.list", slacksim.Fault{Drop: slacksim.DropUnhandled}, 0) },
		"a hang":       func(w *world) { w.slack.Fail("usergroups.users.list", slacksim.Fault{Hold: make(chan struct{})}, 0) },
		"no such user": func(w *world) { w.slack.Fail("users.info", slacksim.Fault{Error: "fatal_error"}, 0) },
		"disabled": func(w *world) {
			w.slack.SetGroup(slacksim.Group{ID: "S0FINANCE", Handle: "finance", Users: []string{"U0FRANK"}, Disabled: true})
		},
	}
	for name, fault := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, needsFinance)
			w.run()
			r := w.ask()
			w.card(r, "Approval needed")
			fault(w)
			if reply := w.click("U0FRANK", r, "approve"); !reply.OK() {
				t.Errorf("Slack shows %q", reply.Shown)
			}
			w.told("U0FRANK", "couldn't confirm your account or your groups")
			if status := w.now(r.ID).Status; status != approval.Pending {
				t.Fatalf("the request is %s", status)
			}
		})
	}
}

// Later clicks say what happened.
func TestTooLate(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.run()
	r := w.ask()
	card := w.card(r, "Approval needed")
	late := func(user string) json.RawMessage {
		payload, err := w.slack.ClickPayload(user, channel, card.TS, "approve")
		if err != nil {
			t.Fatal(err)
		}
		return payload
	}
	grace, eve := late("U0GRACE"), late("U0EVE")
	w.click("U0ADA", r, "approve")
	w.card(r, "Approved")
	if _, err := w.slack.Deliver(w.context(), grace); err != nil {
		t.Fatal(err)
	}
	w.told("U0GRACE", "It was approved by <@U0ADA>")
	if _, err := w.service.Claim(w.context(), w.agent, r.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := w.slack.Deliver(w.context(), eve); err != nil {
		t.Fatal(err)
	}
	w.told("U0EVE", "and then applied")
}

// A decision is about what was shown.
func TestEditedSinceShown(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.run()
	r := w.ask()
	card := w.card(r, "Approval needed")
	old := w.payload("U0ADA", card, "approve")
	w.edit(r)
	if _, err := w.slack.Deliver(w.context(), old); err != nil {
		t.Fatal(err)
	}
	w.told("U0ADA", "The arguments changed; look at the card as it is now.")
	w.card(r, "on 1 record.")
	if now := w.now(r.ID); now.Status != approval.Pending {
		t.Errorf("the request is %s", now.Status)
	}
	w.click("U0ADA", r, "approve")
	w.card(r, "Approved")
}

// A button that names what was never shown decides nothing.
func TestForeignDigest(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.run()
	r := w.ask()
	card := w.card(r, "Approval needed")
	click := w.payload("U0ADA", card, "approve")
	foreign := bytes.ReplaceAll(click, []byte(r.Digest.String()), []byte(someDigest))
	if bytes.Equal(foreign, click) {
		t.Fatal("the click names no digest")
	}
	if _, err := w.slack.Deliver(w.context(), foreign); err != nil {
		t.Fatal(err)
	}
	w.told("U0ADA", "changed")
	if now := w.now(r.ID); now.Status != approval.Pending || len(now.Decisions) > 0 {
		t.Errorf("the request is %s with %+v", now.Status, now.Decisions)
	}
	if _, err := w.slack.Deliver(w.context(), click); err != nil {
		t.Fatal(err)
	}
	if status := w.now(r.ID).Status; status != approval.Approved {
		t.Errorf("the true click left the request %s", status)
	}
}
