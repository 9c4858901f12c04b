package bot_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/bot"
	"github.com/countersign/countersign/bot/slacksim"
)

// reminds has the policy remind twice, and call finance after that.
func reminds(w *world) {
	w.policy.approval = `
  remind_after: [10m, 30m]
  escalate: {after: 45m, to: finance}`
}

// due moves the clock and waits until the request is as it is to be then.
func (w *world) due(r *approval.Request, by time.Duration, so func(*approval.Request) bool) {
	w.t.Helper()
	rung, stop := w.service.Bell().Listen(r.ID)
	defer stop()
	w.clock.Advance(by)
	w.sweep(func() {
		ctx := w.context()
		for !so(w.now(r.ID)) {
			select {
			case <-rung:
			case <-ctx.Done():
				w.t.Fatalf("the request isn't due: %+v", w.now(r.ID))
			}
		}
	})
}

func reminded(times int) func(*approval.Request) bool {
	return func(r *approval.Request) bool { return r.Reminders == times }
}

func called(r *approval.Request) bool { return r.Escalated }

// reminderSays waits for the request's newest reminder, which must be the nth.
func (w *world) reminderSays(r *approval.Request, n int, says string) slacksim.Message {
	w.t.Helper()
	var last slacksim.Message
	w.wait("a reminder that says "+says, func() bool {
		all := w.reminders(r)
		if len(all) == 0 {
			return false
		}
		last = all[len(all)-1]
		return strings.Contains(last.Text, says)
	})
	if got := len(w.reminders(r)); got != n {
		w.t.Fatalf("there are %d reminders, want %d: %s", got, n, indentedText(w.reminders(r)))
	}
	return last
}

// While nobody decides, people are reminded below the card, and then others are
// called; each once, and no more once somebody has decided.
func TestReminders(t *testing.T) {
	t.Parallel()
	w := newWorld(t, reminds)
	w.run()
	r := w.ask()
	card := w.card(r, "Approval needed")

	w.due(r, 11*time.Minute, reminded(1))
	first := w.reminderSays(r, 1, "No decision after 10 minutes (production): crm.delete_records on 3 records.")
	w.due(r, 20*time.Minute, reminded(2))
	second := w.reminderSays(r, 2, "No decision after 30 minutes")
	for _, m := range []slacksim.Message{first, second} {
		if strings.Contains(m.Text+string(m.Blocks), "<@") || strings.Contains(string(m.Blocks), `"user_id"`) {
			t.Errorf("a reminder mentions somebody: %s %s", m.Text, m.Blocks)
		}
	}
	w.due(r, 15*time.Minute, called)
	third := w.reminderSays(r, 3, "<!subteam^S0FINANCE> No decision after 45 minutes")
	said := strings.Join(parts(t, third.Blocks).texts, "\n")
	for _, want := range []string{"<!subteam^S0FINANCE> this needs your attention.", "Needs 1 of oncall", "Expires ", "crm.delete_records"} {
		if !strings.Contains(said, want) {
			t.Errorf("the call doesn't say %q: %s", want, said)
		}
	}
	for _, m := range []slacksim.Message{first, second, third} {
		if m.ThreadTS != card.TS || !m.Broadcast {
			t.Errorf("the reminder is in the thread %q, not of the card %q, or not in the channel: %v", m.ThreadTS, card.TS, m.Broadcast)
		}
		if p := parts(t, m.Blocks); len(p.actions) > 0 {
			t.Errorf("the reminder has the buttons %v", p.actions)
		}
	}

	w.stop()
	w.install()
	w.run()
	w.click("U0ADA", r, "approve")
	w.card(r, "Approved")
	if got := len(w.reminders(r)); got != 3 {
		t.Errorf("there are %d reminders", got)
	}
}

// A reminder is for what is due and not for other changes, after a restart too.
func TestOtherChangesDoNotRemindAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, reminds, needsTwo)
	w.run()
	r := w.ask()
	w.card(r, "Approval needed")
	w.due(r, 11*time.Minute, reminded(1))
	w.reminderSays(r, 1, "No decision after 10 minutes")
	w.click("U0ADA", r, "approve")
	w.card(r, "1 of 2 approved")
	w.due(r, 35*time.Minute, called)
	call := w.reminderSays(r, 2, "<!subteam^S0FINANCE> No decision after 45 minutes")
	if said := strings.Join(parts(t, call.Blocks).texts, "\n"); !strings.Contains(said, "Still needs 1 of finance") {
		t.Errorf("the call doesn't say who is missing: %s", said)
	}
	w.stop()
	w.install()
	w.run()
	w.edit(r)
	w.card(r, "on 1 record.")
	w.reminderSays(r, 2, "45 minutes")
}

// What was missed while the bot was away is one reminder.
func TestMissedRemindersAreOne(t *testing.T) {
	t.Parallel()
	w := newWorld(t, reminds)
	w.run()
	r := w.ask()
	w.card(r, "Approval needed")
	w.stop()
	w.due(r, 11*time.Minute, reminded(1))
	w.due(r, 20*time.Minute, reminded(2))
	w.install()
	w.run()
	w.reminderSays(r, 1, "No decision after 30 minutes")
	w.due(r, 15*time.Minute, called)
	w.reminderSays(r, 2, "<!subteam^S0FINANCE>")
}

// A card that arrives late reminds by itself. A call isn't left out.
func TestLateCardIsNoReminder(t *testing.T) {
	t.Parallel()
	w := newWorld(t, reminds)
	r := w.ask()
	w.due(r, 31*time.Minute, reminded(2))
	w.run()
	w.card(r, "Approval needed")
	w.due(r, 15*time.Minute, called)
	w.reminderSays(r, 1, "<!subteam^S0FINANCE>")
}

// Nobody is reminded of what was decided or has expired meanwhile.
func TestNoReminderOfWhatIsOver(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*world, *approval.Request){
		"decided": func(w *world, r *approval.Request) {
			if _, err := w.service.Decide(w.context(), ada, approval.Ballot{
				Request: r.ID, Version: r.Version, Digest: r.Digest, Verdict: approval.Reject, Surface: approval.Slack,
			}); err != nil {
				w.t.Fatal(err)
			}
		},
		"expired": func(w *world, r *approval.Request) {
			w.due(r, time.Hour, func(r *approval.Request) bool { return r.Status == approval.Expired })
		},
		"expired by the clock": func(w *world, _ *approval.Request) {
			w.options.Now = func() time.Time { return time.Now().Add(2 * time.Hour) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, reminds)
			w.run()
			r := w.ask()
			w.card(r, "Approval needed")
			w.stop()
			w.due(r, 46*time.Minute, called)
			end(w, r)
			w.install()
			w.run()
			next := w.ask()
			w.card(next, "Approval needed")
			if got := w.reminders(r); len(got) > 0 {
				t.Errorf("people were reminded: %s", indentedText(got))
			}
		})
	}
}

// However a reminder goes wrong, it is there once in the end, and the card is up
// to date.
func TestFaultsWhileReminding(t *testing.T) {
	t.Parallel()
	tests := map[string]slacksim.Fault{
		"limited":                {Status: 429, RetryAfter: time.Second},
		"a gateway's error":      {Status: 503},
		"a page":                 {HTML: true},
		"never arrived":          {Drop: slacksim.DropUnhandled},
		"arrived, answer lost":   {Drop: slacksim.DropDelivered},
		"Slack's internal error": {Error: "internal_error"},
		"not in the channel":     {Error: "not_in_channel"},
	}
	for name, fault := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, reminds)
			w.run()
			r := w.ask()
			w.card(r, "Approval needed")
			w.slack.Fail("chat.postMessage", fault, 2)
			w.due(r, 11*time.Minute, reminded(1))
			w.reminderSays(r, 1, "No decision after 10 minutes")
			w.click("U0ADA", r, "approve")
			w.card(r, "Approved")
			if got := len(w.reminders(r)); got != 1 {
				t.Errorf("there are %d reminders", got)
			}
		})
	}
}

// A process that ends between posting a reminder and recording it doesn't post
// it again.
func TestRestartWhileReminding(t *testing.T) {
	t.Parallel()
	w := newWorld(t, reminds)
	w.run()
	r := w.ask()
	w.card(r, "Approval needed")
	w.slack.Fail("chat.postMessage", slacksim.Fault{Drop: slacksim.DropDelivered}, 1)
	w.slack.Fail("conversations.history", slacksim.Fault{Status: 500}, 0)
	w.due(r, 11*time.Minute, reminded(1))
	w.reminderSays(r, 1, "No decision")
	w.waitLog("reminding people of a request")
	w.stop()
	w.slack.Recover("conversations.history")
	w.install()
	w.run()
	w.click("U0ADA", r, "approve")
	w.card(r, "Approved")
	if got := len(w.reminders(r)); got != 1 {
		t.Errorf("there are %d reminders", got)
	}
}

// Where the history can't be read, people are rather reminded twice than not at
// all.
func TestRemindingWithoutHistory(t *testing.T) {
	t.Parallel()
	w := newWorld(t, reminds)
	w.slack.Fail("conversations.history", slacksim.Fault{Error: "missing_scope"}, 0)
	w.run()
	r := w.ask()
	w.card(r, "Approval needed")
	w.slack.Fail("chat.postMessage", slacksim.Fault{Drop: slacksim.DropDelivered}, 1)
	w.due(r, 11*time.Minute, reminded(1))
	w.wait("a second reminder", func() bool { return len(w.reminders(r)) == 2 })
	w.click("U0ADA", r, "approve")
	w.card(r, "Approved")
}

// A reminder that Slack won't take doesn't hold up the card, or is sent without
// its blocks if it is those.
func TestRefusedReminder(t *testing.T) {
	t.Parallel()
	for code, reminders := range map[string]int{"thread_not_found": 0, "cannot_reply_to_message": 0, "invalid_blocks": 1} {
		t.Run(code, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, reminds)
			w.run()
			r := w.ask()
			w.card(r, "Approval needed")
			w.slack.Fail("chat.postMessage", slacksim.Fault{Error: code}, 1)
			w.due(r, 11*time.Minute, reminded(1))
			w.waitLog("Slack refuses a reminder")
			w.click("U0ADA", r, "approve")
			w.card(r, "Approved")
			if got := w.reminders(r); len(got) != reminders || reminders > 0 && len(got[0].Blocks) > 0 {
				t.Errorf("the reminders are %s", indentedText(got))
			}
		})
	}
}

// Nothing is said where another organisation reads it by now.
func TestRemindingInASharedChannel(t *testing.T) {
	t.Parallel()
	w := newWorld(t, reminds)
	w.run()
	r := w.ask()
	w.card(r, "Approval needed")
	w.stop()
	w.slack.SetChannel(slacksim.Channel{ID: channel, Name: "approvals", ExtShared: true})
	w.due(r, 11*time.Minute, reminded(1))
	w.install()
	w.run()
	w.waitLog("channel_is_shared")
	if got := len(w.reminders(r)); got != 0 {
		t.Errorf("there are %d reminders", got)
	}
	w.slack.SetChannel(slacksim.Channel{ID: channel, Name: "approvals"})
	w.reminderSays(r, 1, "No decision")
}

// Others are called below the card that is there.
func TestCallBelowANewCard(t *testing.T) {
	t.Parallel()
	w := newWorld(t, reminds)
	w.run()
	r := w.ask()
	w.card(r, "Approval needed")
	w.slack.Fail("chat.update", slacksim.Fault{Error: "message_not_found"}, 1)
	w.due(r, 46*time.Minute, called)
	reminder := w.reminderSays(r, 1, "<!subteam^S0FINANCE>")
	if cards := w.cards(r); len(cards) != 2 || reminder.ThreadTS != cards[1].TS {
		t.Errorf("the call is in the thread %s: %s", reminder.ThreadTS, indentedText(cards))
	}
}

// A policy may call more people than one message can mention.
func TestManyAreCalled(t *testing.T) {
	t.Parallel()
	r := deletion(func(r *approval.Request) {
		r.Ruling.Escalation.After = 45 * time.Minute
		for range 100 {
			r.Ruling.Escalation.Users = append(r.Ruling.Escalation.Users, "U0ADA", "nobody's <id>")
		}
	})
	m := bot.Reminder(r, true, asked)
	if n := strings.Count(m.Text, "<@U0ADA>"); n != 40 || !strings.Contains(m.Text, "and 60 more No decision after 45 minutes") {
		t.Errorf("%d people are mentioned: %s", n, m.Text)
	}
}

// The reminder says how long it really was if that is longer than planned.
func TestReminderSaysHowLong(t *testing.T) {
	t.Parallel()
	r := deletion(func(r *approval.Request) {
		r.Reminders, r.Ruling.RemindAfter = 1, []time.Duration{10 * time.Minute}
	})
	for after, want := range map[time.Duration]string{
		0:                   "after 10 minutes",
		10*time.Minute + 59: "after 10 minutes",
		11 * time.Minute:    "after 11 minutes",
		time.Hour:           "after 1 hour",
		61 * time.Minute:    "after 1 hour 1 minute",
		23*time.Hour + 1:    "after 23 hours",
		2*time.Hour - 1:     "after 1 hour 59 minutes",
	} {
		if got := bot.Reminder(r, false, asked.Add(after)).Text; !strings.Contains(got, "No decision "+want+" (") {
			t.Errorf("after %s it says %q", after, got)
		}
	}
}

// What isn't a place that we wrote says that nobody was told anything.
func TestPlaces(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"C0A/1.5":             "C0A/1.5",
		"C0A/1.5/1":           "C0A/1.5/1",
		"C0A/1.5/12/called":   "C0A/1.5/12/called",
		"C0A/1.5/0/called":    "C0A/1.5/0/called",
		"C0A/1.5/x/called":    "C0A/1.5/0/called",
		"C0A/1.5/1/something": "C0A/1.5/1",
		"C0A/1.5/":            "C0A/1.5",
		"C0A":                 "C0A/",
		"":                    "/",
	} {
		if got := bot.ParsePlace(text); got != want {
			t.Errorf("%q is read as %q, want %q", text, got, want)
		}
	}
}

// What is posted says to a program which reminder it is.
func TestReminderMetadata(t *testing.T) {
	t.Parallel()
	w := newWorld(t, reminds)
	w.run()
	r := w.ask()
	w.card(r, "Approval needed")
	w.due(r, 31*time.Minute, reminded(2))
	m := w.reminderSays(r, 1, "No decision")
	var got map[string]any
	if err := json.Unmarshal(m.Metadata.EventPayload, &got); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{"request_id": string(r.ID), "reminders": 2.0, "called": false}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
