package bot_test

import (
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/bot"
	"github.com/countersign/countersign/bot/slacksim"
)

func TestCardIsPostedAsSlackWantsIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.run()
	r := w.ask()
	card := w.card(r, "Approval needed")
	if card.Metadata.EventType != "countersign_card" {
		t.Errorf("the metadata is %+v", card.Metadata)
	}
	if card.UnfurlLinks == nil || *card.UnfurlLinks || card.UnfurlMedia == nil || *card.UnfurlMedia {
		t.Error("links in the card are unfurled")
	}
	w.ready()
}

// However posting goes wrong, there is one card in the end, and it is up to
// date.
func TestFaultsWhilePosting(t *testing.T) {
	t.Parallel()
	tests := map[string]slacksim.Fault{
		"limited":                {Status: 429, RetryAfter: time.Second},
		"refused by the server":  {Status: 500},
		"a gateway's error":      {Status: 503},
		"a page":                 {HTML: true},
		"never arrived":          {Drop: slacksim.DropUnhandled},
		"arrived, answer lost":   {Drop: slacksim.DropDelivered},
		"Slack's internal error": {Error: "internal_error"},
		"some other error":       {Error: "team_quota_exceeded"},
	}
	for name, fault := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.slack.Fail("chat.postMessage", fault, 2)
			w.run()
			r := w.ask()
			w.card(r, "Approval needed")
			w.click("U0ADA", r, "approve")
			w.card(r, "Approved")
			if n := len(w.cards(r)); n != 1 {
				t.Errorf("there are %d cards", n)
			}
		})
	}
}

func TestFaultsWhileUpdating(t *testing.T) {
	t.Parallel()
	tests := map[string]slacksim.Fault{
		"limited":              {Status: 429, RetryAfter: time.Second},
		"a server's error":     {Status: 502},
		"never arrived":        {Drop: slacksim.DropUnhandled},
		"arrived, answer lost": {Drop: slacksim.DropDelivered},
	}
	for name, fault := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.run()
			r := w.ask()
			w.card(r, "Approval needed")
			w.slack.Fail("chat.update", fault, 2)
			w.click("U0ADA", r, "approve")
			w.card(r, "Approved")
		})
	}
}

// Slack says how long to wait, and until then nothing is sent to the channel.
func TestRetryAfterIsHonoured(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.slack.Fail("chat.postMessage", slacksim.Fault{Status: 429, RetryAfter: 2 * time.Second}, 1)
	w.run()
	first, second := w.ask(), w.ask()
	w.card(first, "Approval needed")
	w.card(second, "Approval needed")
	calls := w.slack.Calls("chat.postMessage")
	if len(calls) != 3 {
		t.Fatalf("there were %d calls: %+v", len(calls), calls)
	}
	if waited := calls[1].At.Sub(calls[0].At); waited < 2*time.Second {
		t.Errorf("the next message was sent after %s", waited)
	}
}

// A limit that Slack gives no time for isn't run into again and again at the
// fastest pace, and durations in the log can be read in any format.
func TestLimitWithoutRetryAfter(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(w *world) { w.options.Logger = slog.New(slog.NewJSONHandler(w.log, nil)) })
	w.slack.Fail("chat.postMessage", slacksim.Fault{Error: "message_limit_exceeded"}, 5)
	w.run()
	w.card(w.ask(), "Approval needed")
	var waits []string
	for line := range strings.Lines(w.log.String()) {
		var entry struct {
			Wait string `json:"next_attempt_in"`
		}
		if err := json.Unmarshal([]byte(line), &entry); err != nil {
			t.Errorf("reading %s: %v", line, err)
		}
		if entry.Wait != "" {
			waits = append(waits, entry.Wait)
		}
	}
	if diff := cmp.Diff([]string{"5ms", "10ms", "20ms", "40ms", "40ms"}, waits); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// A process that ends between posting and recording it doesn't post again: the
// card is found in the channel, among messages of others.
func TestRestartWhilePosting(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.slack.Fail("chat.postMessage", slacksim.Fault{Drop: slacksim.DropDelivered}, 1)
	w.slack.Fail("conversations.history", slacksim.Fault{Status: 500}, 0)
	w.run()
	r := w.ask()
	w.wait("the card to arrive", func() bool { return len(w.cards(r)) == 1 })
	w.waitLog("looking for a card that may have arrived")
	w.stop()
	w.slack.Recover("conversations.history")
	w.install()
	w.run()
	w.click("U0ADA", r, "approve")
	w.card(r, "Approved")
	if n := len(w.slack.Calls("chat.postMessage")); n != 1 {
		t.Errorf("the card was posted %d times", n)
	}
}

// Where the history can't be read, a card is rather posted twice than not at
// all, and both work.
func TestNoHistoryScope(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.slack.Fail("conversations.history", slacksim.Fault{Error: "missing_scope"}, 0)
	w.slack.Fail("chat.postMessage", slacksim.Fault{Drop: slacksim.DropDelivered}, 1)
	w.run()
	r := w.ask()
	w.wait("a second card", func() bool { return len(w.cards(r)) == 2 })
	w.click("U0ADA", r, "approve")
	w.is(r, approval.Approved)
}

// Slack is down when an agent asks and comes back later; nothing is lost.
func TestSlackDownThenUp(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, method := range []string{"auth.test", "conversations.info", "chat.postMessage"} {
		w.slack.Fail(method, slacksim.Fault{Drop: slacksim.DropUnhandled}, 0)
	}
	w.run()
	r := w.ask()
	w.waitLog("asking Slack who we are")
	if w.bot.Ready() == nil {
		t.Error("ready while Slack is down")
	}
	w.is(r, approval.Pending)
	w.slack.Recover("auth.test")
	w.waitLog("checking who sees the channel")
	w.slack.Recover("conversations.info")
	w.waitLog("posting a card")
	w.slack.Recover("chat.postMessage")
	w.card(r, "Approval needed")
	w.ready()
}

// A card that Slack refuses is sent in a smaller form, which still can be
// decided on.
func TestMinimalCard(t *testing.T) {
	t.Parallel()
	for _, code := range []string{"invalid_blocks", "msg_blocks_too_long", "msg_too_long"} {
		t.Run(code, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.slack.Fail("chat.postMessage", slacksim.Fault{Error: code}, 1)
			w.run()
			r := w.ask()
			card := w.card(r, "Approval needed")
			p := parts(t, card.Blocks)
			text := strings.Join(p.texts, "\n")
			for _, part := range []string{"crm.delete_records", "Count: 3", r.Digest.Short()} {
				if !strings.Contains(text, part) {
					t.Errorf("the minimal card doesn't say %q: %s", part, text)
				}
			}
			if p.has("approve") {
				t.Error("the minimal card offers Approve without the arguments")
			}
			w.waitLog("Slack refuses a card")
			w.click("U0ADA", r, "details")
			view := w.modal("U0ADA", r.Digest.String())
			w.slack.Fail("chat.update", slacksim.Fault{Error: code}, 1)
			if _, err := w.slack.Submit(w.context(), "U0ADA", view.ID, nil); err != nil {
				t.Fatal(err)
			}
			w.card(r, "Approved")
		})
	}
}

// Somebody deleted the card: an open request gets a new one, a decided one
// doesn't come back.
func TestCardIsGone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, needsTwo)
	w.run()
	r := w.ask()
	w.card(r, "Approval needed")
	w.slack.Fail("chat.update", slacksim.Fault{Error: "message_not_found"}, 1)
	w.click("U0ADA", r, "approve")
	w.wait("a new card", func() bool { return len(w.cards(r)) == 2 })
	if now := w.cards(r)[1]; !strings.Contains(now.Text, "1 of 2 approved") {
		t.Errorf("the new card says %q", now.Text)
	}
	w.slack.Fail("chat.update", slacksim.Fault{Error: "cant_update_message"}, 1)
	w.click("U0FRANK", r, "approve")
	w.waitLog("cant_update_message")
	again := w.ask()
	w.card(again, "Approval needed")
	if n := len(w.cards(r)); n != 2 {
		t.Errorf("a decided request has %d cards", n)
	}
}

// Nothing is posted where another organisation reads it.
func TestSharedChannel(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.slack.SetChannel(slacksim.Channel{ID: channel, Name: "approvals", ExtShared: true})
	w.run()
	r := w.ask()
	w.waitLog("channel_is_shared")
	if err := w.bot.Ready(); err == nil || !strings.Contains(err.Error(), "allow_shared_channel") {
		t.Errorf("ready: %v", err)
	}
	if n := len(w.slack.Calls("chat.postMessage")); n != 0 {
		t.Errorf("%d messages were sent to a shared channel", n)
	}
	w.slack.SetChannel(slacksim.Channel{ID: channel, Name: "approvals"})
	w.card(r, "Approval needed")
}

func TestSharedChannelIsAllowed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(w *world) { w.options.AllowSharedChannel = true })
	w.slack.SetChannel(slacksim.Channel{ID: channel, Name: "approvals", ExtShared: true})
	w.run()
	w.card(w.ask(), "Approval needed")
}

// What needs somebody to do something is said with what to do, and works once
// it is done.
func TestMisconfigured(t *testing.T) {
	t.Parallel()
	tests := map[string]string{
		"not_in_channel":    "invite the app",
		"channel_not_found": "check slack.channel",
		"is_archived":       "unarchive the channel",
		"token_revoked":     "install the Slack app again",
		"account_inactive":  "install the Slack app again",
		"invalid_auth":      "install the Slack app again",
		"missing_scope":     "add the scopes",
	}
	for code, todo := range tests {
		t.Run(code, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.slack.Fail("chat.postMessage", slacksim.Fault{Error: code}, 0)
			w.run()
			r := w.ask()
			w.waitLog(todo)
			if err := w.bot.Ready(); err == nil || !strings.Contains(err.Error(), todo) {
				t.Errorf("ready: %v", err)
			}
			w.slack.Recover("chat.postMessage")
			w.card(r, "Approval needed")
		})
	}
}

func TestTokenOfAnotherWorkspace(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(w *world) { w.options.Workspace = "T0ELSEWHERE" })
	w.ask()
	if err := w.bot.Run(w.context()); err == nil || !strings.Contains(err.Error(), "T0DEMO") {
		t.Errorf("running: %v", err)
	}
	if n := len(w.slack.Calls("chat.postMessage")); n != 0 {
		t.Errorf("%d messages were posted", n)
	}
}

// What was left for tomorrow, while the clock was a day ahead, isn't waited for.
func TestClockThatWasAhead(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := w.ask()
	ahead := time.Now().Add(24 * time.Hour)
	if _, _, ok, err := w.store.LeaseNotice(w.context(), bot.Destination(channel), ahead, ahead.Add(time.Minute)); err != nil || !ok {
		t.Fatalf("nothing is due (%v)", err)
	}
	w.run()
	w.card(r, "Approval needed")
}

// An expired request says so, without anybody clicking, and a click on the old
// card is told.
func TestExpiryIsShown(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.run()
	r := w.ask()
	card := w.card(r, "Approval needed")
	late := w.payload("U0ADA", card, "approve")
	w.clock.Advance(2 * time.Hour)
	w.sweep(func() { card = w.card(r, "Expired before a decision") })
	if p := parts(t, card.Blocks); p.decides() {
		t.Errorf("the expired card has the buttons %v", p.actions)
	}
	if _, err := w.slack.Deliver(w.context(), late); err != nil {
		t.Fatal(err)
	}
	w.told("U0ADA", "before it was decided")
}
