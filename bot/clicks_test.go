package bot_test

import (
	"net/http"
	"sync"
	"testing"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/bot/slacksim"
)

// bothWays runs a test with clicks over HTTP and over Socket Mode: one handler
// is behind both.
func bothWays(t *testing.T, test func(*testing.T, ...func(*world))) {
	t.Parallel()
	t.Run("http", func(t *testing.T) {
		t.Parallel()
		test(t)
	})
	t.Run("socket", func(t *testing.T) {
		t.Parallel()
		test(t, overSocket)
	})
}

func TestApprove(t *testing.T) {
	bothWays(t, func(t *testing.T, how ...func(*world)) {
		w := newWorld(t, how...)
		w.run()
		r := w.ask()
		w.card(r, "Approval needed (production): crm.delete_records on 3 records.")
		if reply := w.click("U0ADA", r, "approve"); !reply.OK() {
			t.Errorf("Slack shows %q", reply.Shown)
		}
		// Acknowledged means stored.
		decided := w.now(r.ID)
		if decided.Status != approval.Approved {
			t.Fatalf("the request is %s", decided.Status)
		}
		want := approval.Approver{Workspace: "T0DEMO", User: "U0ADA"}
		if d := decided.Decisions[0]; d.Approver != want || d.Surface != approval.Slack || d.Roles[0].Via != "user" {
			t.Errorf("the decision is %+v", d)
		}
		card := w.card(r, "Approved, waiting to be applied")
		if p := parts(t, card.Blocks); p.decides() {
			t.Errorf("the decided card has the buttons %v", p.actions)
		}
		if len(w.slack.Ephemerals("U0ADA")) > 0 {
			t.Error("an approval that the card shows was answered too")
		}
		claimed, err := w.service.Claim(w.context(), w.agent, r.ID)
		if err != nil {
			t.Fatal(err)
		}
		if string(claimed.Payload) != `{"ids": [9007199254740993, 2, 3]}` {
			t.Errorf("the payload to run is %s", claimed.Payload)
		}
		w.card(r, "Applied (production)")
	})
}

func TestMoreApprovalsAreNeeded(t *testing.T) {
	t.Parallel()
	w := newWorld(t, needsTwo)
	w.run()
	r := w.ask()
	w.card(r, "Approval needed")
	w.click("U0ADA", r, "approve")
	w.told("U0ADA", "Recorded. 1 more of finance is needed.")
	w.card(r, "1 of 2 approved")
	w.click("U0ADA", r, "approve")
	w.told("U0ADA", "Your approval is recorded already. 1 more of finance is needed.")
	w.click("U0GRACE", r, "approve")
	w.click("U0FRANK", r, "approve")
	w.card(r, "Approved")
}

func TestDoubleClicksAndReplays(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.run()
	r := w.ask()
	card := w.card(r, "Approval needed")
	payload := w.payload("U0ADA", card, "approve")
	var clicks sync.WaitGroup
	for range 8 {
		clicks.Go(func() {
			if reply, err := w.slack.Deliver(w.context(), payload); err != nil || reply.Status != http.StatusOK {
				t.Errorf("delivering: %+v, %v", reply, err)
			}
		})
	}
	clicks.Wait()
	if now := w.now(r.ID); now.Status != approval.Approved || len(now.Decisions) != 1 || now.Revision != 2 {
		t.Errorf("after 8 clicks the request is %s at revision %d with %d decisions", now.Status, now.Revision, len(now.Decisions))
	}
	w.told("U0ADA", "recorded already")
	w.slack.SetUser(slacksim.User{ID: "U0ADA", Name: "ada", Deleted: true})
	if reply, err := w.slack.Deliver(w.context(), payload); err != nil || reply.Status != http.StatusOK {
		t.Errorf("replaying: %+v, %v", reply, err)
	}
	if now := w.now(r.ID); now.Revision != 2 {
		t.Errorf("a replay made revision %d", now.Revision)
	}
}

// A click that can't be stored isn't acknowledged: Slack shows its error, and
// pressing again works.
func TestStoreUnavailable(t *testing.T) {
	bothWays(t, func(t *testing.T, how ...func(*world)) {
		w := newWorld(t, how...)
		w.run()
		r := w.ask()
		card := w.card(r, "Approval needed")
		w.store.full.Store(true)
		if w.options.AppToken == "" {
			if reply := w.click("U0ADA", r, "approve"); reply.Status == http.StatusOK || reply.Shown == "" {
				t.Errorf("Slack got %d and shows %q", reply.Status, reply.Shown)
			}
		} else {
			// Without an acknowledgement, Slack waits for three seconds.
			replied := make(chan slacksim.Reply, 1)
			go func() {
				reply, err := w.slack.Click(w.context(), "U0ADA", channel, card.TS, "approve")
				if err != nil {
					t.Error(err)
				}
				replied <- reply
			}()
			w.waitLog("an interaction was not acknowledged")
			w.slack.PassAckDeadline()
			if reply := <-replied; reply.Shown == "" {
				t.Errorf("Slack shows nothing: %+v", reply)
			}
		}
		w.store.full.Store(false)
		if now := w.now(r.ID); now.Status != approval.Pending {
			t.Fatalf("the request is %s", now.Status)
		}
		if reply := w.click("U0ADA", r, "approve"); !reply.OK() {
			t.Errorf("Slack shows %q", reply.Shown)
		}
		w.card(r, "Approved")
	})
}

func TestRestartBetweenCardAndClick(t *testing.T) {
	bothWays(t, func(t *testing.T, how ...func(*world)) {
		w := newWorld(t, how...)
		w.run()
		r := w.ask()
		w.card(r, "Approval needed")
		w.stop()
		w.install()
		w.run()
		if reply := w.click("U0ADA", r, "approve"); !reply.OK() {
			t.Errorf("Slack shows %q", reply.Shown)
		}
		w.card(r, "Approved")
		w.is(r, approval.Approved)
	})
}

// What goes on behind an answer that Slack already has doesn't hold up the end
// for as long as Slack hangs.
func TestStopWhileSlackHangs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.run()
	r := w.ask()
	w.card(r, "Approval needed")
	hold := make(chan struct{})
	t.Cleanup(func() { close(hold) })
	w.slack.Fail("views.update", slacksim.Fault{Hold: hold}, 0)
	w.click("U0ADA", r, "details")
	w.wait("the window to be filled", func() bool { return len(w.slack.Calls("views.update")) > 0 })
	w.stop()
	// Not "context deadline exceeded", which is its own time.
	w.waitLog("context canceled")
}
