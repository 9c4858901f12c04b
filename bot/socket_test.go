package bot_test

import (
	"strings"
	"testing"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/bot/slacksim"
)

// The bot is ready when Slack has greeted the connection, and not before or
// after.
func TestReadyIsTiedToTheConnection(t *testing.T) {
	t.Parallel()
	w := newWorld(t, overSocket)
	if err := w.bot.Ready(); err == nil || !strings.Contains(err.Error(), "no call to Slack") || !strings.Contains(err.Error(), "Socket Mode") {
		t.Errorf("before it runs, ready: %v", err)
	}
	w.run()
	w.slack.Fail("apps.connections.open", slacksim.Fault{Status: 503}, 0)
	w.slack.Disconnect("refresh_requested")
	w.waitLog("level=WARN msg=\"connecting to Slack over Socket Mode\"")
	if err := w.bot.Ready(); err == nil || !strings.Contains(err.Error(), "Socket Mode") {
		t.Errorf("without a connection, ready: %v", err)
	}
	w.slack.Recover("apps.connections.open")
	w.ready()
	r := w.ask()
	w.card(r, "Approval needed")
	if reply := w.click("U0ADA", r, "approve"); !reply.OK() {
		t.Errorf("Slack shows %q", reply.Shown)
	}
}

// A second process with the same app takes clicks away, so it is named.
func TestSecondConnectionIsNamed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, overSocket)
	w.run()
	if strings.Contains(w.log.String(), "another process") {
		t.Error("a single connection is warned of")
	}
	second := newWorld(t, func(other *world) {
		overSocket(other)
		other.options.APIURL = w.slack.APIURL()
	})
	second.slack = w.slack
	second.run()
	second.waitLog("another process is connected with the same app")
}

func TestAppTokenIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(w *world) { w.options.AppToken = "xapp-wrong" })
	w.runWithoutWaiting()
	w.waitLog("make a new app-level token")
	r := w.ask()
	w.card(r, "Approval needed")
	if err := w.bot.Ready(); err == nil || !strings.Contains(err.Error(), "Socket Mode") {
		t.Errorf("ready: %v", err)
	}
}

// The library decodes more of an interaction than is needed; what it can't
// decode is decided on all the same.
func TestInteractionThatTheLibraryRefuses(t *testing.T) {
	t.Parallel()
	w := newWorld(t, overSocket)
	w.run()
	r := w.ask()
	card := w.card(r, "Approval needed")
	payload := w.payload("U0ADA", card, "approve")
	data := w.altered(payload, func(value map[string]any) {
		value["message"] = map[string]any{"blocks": []any{map[string]any{"type": "section", "text": 7}}}
	})
	if reply, err := w.slack.Deliver(w.context(), data); err != nil || reply.Shown != "" {
		t.Errorf("delivering: %+v, %v", reply, err)
	}
	w.is(r, approval.Approved)
}

// An app of another id isn't ours, even on our connection.
func TestInteractionOfAnotherApp(t *testing.T) {
	t.Parallel()
	w := newWorld(t, overSocket)
	w.run()
	r := w.ask()
	card := w.card(r, "Approval needed")
	payload := w.payload("U0ADA", card, "approve")
	data := w.altered(payload, func(value map[string]any) {
		value["api_app_id"] = "A0OTHER"
	})
	done := make(chan slacksim.Reply, 1)
	go func() {
		reply, err := w.slack.Deliver(w.context(), data)
		if err != nil {
			t.Error(err)
		}
		done <- reply
	}()
	w.waitLog("refusing an interaction")
	w.slack.PassAckDeadline()
	if reply := <-done; reply.Shown == "" {
		t.Errorf("it was acknowledged: %+v", reply)
	}
	w.is(r, approval.Pending)
}

// A click that is being handled when the bot is told to end is stored and
// acknowledged: Slack must not show an error for a decision that counts. The
// library only queues acknowledgements, so once may be luck.
func TestStopAcknowledgesWhatIsInHand(t *testing.T) {
	t.Parallel()
	for range 5 {
		w := newWorld(t, overSocket)
		w.run()
		r := w.ask()
		card := w.card(r, "Approval needed")
		hold := make(chan struct{})
		before := len(w.slack.Calls("users.info"))
		w.slack.Fail("users.info", slacksim.Fault{Hold: hold}, 1)
		replied := make(chan slacksim.Reply, 1)
		go func() {
			reply, err := w.slack.Click(w.context(), "U0ADA", channel, card.TS, "approve")
			if err != nil {
				t.Error(err)
			}
			replied <- reply
		}()
		w.wait("the click to be looked into", func() bool { return len(w.slack.Calls("users.info")) > before })
		w.end()
		close(hold)
		w.stop()
		w.is(r, approval.Approved)
		if reply := <-replied; reply.Shown != "" {
			t.Fatalf("Slack shows %q", reply.Shown)
		}
	}
}
