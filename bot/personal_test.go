package bot_test

import (
	"strings"
	"testing"
	"time"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/bot/slacksim"
)

// enrol gives somebody a passkey.
func (w *world) enrol(user, id, name string) {
	w.t.Helper()
	who := approval.Approver{Workspace: "T0DEMO", User: user}
	one := approval.Passkey{ID: []byte(id), Name: name, Credential: []byte("key")}
	if _, err := w.service.EnrolPasskey(w.context(), who, w.clock.Now(), one); err != nil {
		w.t.Fatal(err)
	}
}

// direct waits until somebody got so many direct messages, and returns them.
func (w *world) direct(user string, count int) []slacksim.Message {
	w.t.Helper()
	var all []slacksim.Message
	w.wait(user+" to be told", func() bool {
		all = w.slack.Messages(user)
		return len(all) >= count
	})
	return all
}

// settled waits until nobody has to be told anything.
func (w *world) settled() {
	w.t.Helper()
	w.wait("everybody to be told", func() bool {
		_, due, err := w.store.NextPersonalNotice(w.context(), "T0DEMO", time.Now())
		return err == nil && !due
	})
}

func TestPeopleAreToldOfTheirPasskeys(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.run()
	ada := approval.Approver{Workspace: "T0DEMO", User: "U0ADA"}
	w.enrol("U0ADA", "1", "*Phone* <!here>\u202e")
	w.direct("U0ADA", 1)
	if err := w.service.UsePasskey(w.context(), ada, []byte("1"), 5, "req_1"); err != nil {
		t.Fatal(err)
	}
	if err := w.service.UsePasskey(w.context(), ada, []byte("1"), 5, "req_1"); err == nil {
		t.Fatal("a passkey that seems copied was taken")
	}
	w.direct("U0ADA", 2)
	if err := w.service.RemovePasskey(w.context(), ada, w.clock.Now(), []byte("1")); err != nil {
		t.Fatal(err)
	}
	told := w.direct("U0ADA", 3)
	for i, want := range []string{"You have a new passkey: ", "A passkey of yours was refused: ", "A passkey of yours was removed: "} {
		if !strings.HasPrefix(told[i].Text, want) || !strings.Contains(told[i].Text, `*Phone* &lt;!here&gt;\u{202e}, `) {
			t.Errorf("Ada reads %q, want %q", told[i].Text, want)
		}
		if blocks := string(told[i].Blocks); !strings.Contains(blocks, `"rich_text"`) || strings.Contains(blocks, "mrkdwn") {
			t.Errorf("a name might be parsed: %s", blocks)
		}
	}
	w.settled()
	if n := len(w.slack.Messages("U0ADA")) + len(w.slack.Messages(channel)); n != 3 {
		t.Errorf("there are %d messages, want Ada's 3", n)
	}
}

// However it goes wrong, people are told in the end, also after a restart.
func TestPeopleAreToldAfterFaults(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]slacksim.Fault{
		"limited":              {Status: 429, RetryAfter: time.Second},
		"a server's error":     {Status: 503},
		"never arrived":        {Drop: slacksim.DropUnhandled},
		"arrived, answer lost": {Drop: slacksim.DropDelivered},
		"no Messages tab":      {Error: "messages_tab_disabled"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.slack.Fail("chat.postMessage", fault, 2)
			w.enrol("U0ADA", "1", "Phone")
			w.run()
			w.waitLog("telling a person of their account")
			w.stop()
			w.install()
			w.run()
			w.direct("U0ADA", 1)
			w.settled()
		})
	}
}

// Who can't be told doesn't keep others from being told.
func TestNobodyIsThereToBeTold(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.slack.Fail("chat.postMessage", slacksim.Fault{Error: "user_disabled"}, 1)
	w.enrol("U0GRACE", "1", "Phone")
	w.run()
	w.waitLog("there is nobody to tell")
	w.enrol("U0ADA", "2", "Phone")
	w.direct("U0ADA", 1)
	w.settled()
	if n := len(w.slack.Messages("U0GRACE")); n != 0 {
		t.Errorf("Grace was told %d times", n)
	}
}
