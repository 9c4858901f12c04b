package bot_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/countersign/countersign/bot"
	"github.com/countersign/countersign/bot/slacksim"
)

func TestManifest(t *testing.T) {
	t.Parallel()
	for name, options := range map[string]bot.ManifestOptions{
		"socket": {},
		"http":   {URL: "https://approvals.example.com/", PrivateChannel: true, UserGroups: true, SignInURL: "https://approvals.example.com/sign-in/callback"},
	} {
		manifest, err := bot.Manifest(options)
		if err != nil {
			t.Fatal(err)
		}
		golden(t, "manifest/"+name, jsonValue(t, manifest))
	}
	for _, address := range []string{"http://approvals.example.com", "approvals.example.com", "https://", "https://x.example/?a=b", "::"} {
		if got, err := bot.Manifest(bot.ManifestOptions{URL: address}); err == nil {
			t.Errorf("%q was accepted: %s", address, got)
		}
		if got, err := bot.Manifest(bot.ManifestOptions{SignInURL: address}); err == nil {
			t.Errorf("%q was accepted to come back to: %s", address, got)
		}
	}
}

func jsonValue(t *testing.T, text string) json.RawMessage {
	t.Helper()
	if !json.Valid([]byte(text)) {
		t.Fatalf("this is no JSON: %s", text)
	}
	return json.RawMessage(text)
}

// checked is a world whose policy Slack has nothing against.
func checked(t *testing.T, change ...func(*world)) *world {
	t.Helper()
	all := append([]func(*world){func(w *world) {
		w.policy.oncall = "{users: [U0ADA, U0GRACE]}"
	}}, change...)
	return newWorld(t, all...)
}

func TestCheckFindsNothing(t *testing.T) {
	t.Parallel()
	w := checked(t, func(w *world) { w.options.AppToken = w.slack.Options().AppToken })
	findings := bot.Check(w.context(), w.options, w.policy.parse(t))
	subjects := make(map[string]bool)
	for _, f := range findings {
		subjects[f.Subject] = true
		if !f.OK {
			t.Errorf("%s: %s", f.Subject, f.Text)
		}
	}
	for _, subject := range []string{"Slack token", "clock", "Slack channel", "scope chat:write", "role oncall", "role finance", "Socket Mode", "signing secret"} {
		if !subjects[subject] {
			t.Errorf("nothing was said about the %s: %+v", subject, findings)
		}
	}
	for _, method := range []string{"chat.postMessage", "views.open"} {
		if n := len(w.slack.Calls(method)); n != 0 {
			t.Errorf("the check called %s", method)
		}
	}
}

func TestCheckFinds(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		change  func(*world)
		subject string
		says    string
	}{
		{"a wrong token", func(w *world) { w.options.Token = "xoxb-wrong" }, "Slack token", "configure its new bot token"},
		{"no network", func(w *world) { w.slack.Fail("auth.test", slacksim.Fault{Drop: slacksim.DropUnhandled}, 0) }, "Slack token", "can reach"},
		{"another workspace", func(w *world) { w.options.Workspace = "T0ELSEWHERE" }, "Slack token", "T0DEMO"},
		{"a slow clock", func(w *world) { w.options.Now = func() time.Time { return time.Now().Add(-10 * time.Minute) } }, "clock", "set the clock"},
		{"no such channel", func(w *world) { w.options.Channel = "C0NOWHERE" }, "Slack channel", "check slack.channel"},
		{"not in the channel", func(w *world) {
			w.slack.SetChannel(slacksim.Channel{ID: channel, Name: "approvals", WithoutBot: true})
		}, "Slack channel", "invite the app"},
		{"an archived channel", func(w *world) {
			w.slack.SetChannel(slacksim.Channel{ID: channel, Name: "approvals", Archived: true})
		}, "Slack channel", "unarchive"},
		{"a shared channel", func(w *world) {
			w.slack.SetChannel(slacksim.Channel{ID: channel, Name: "approvals", ExtShared: true})
		}, "Slack channel", "another organisation"},
		{"a guest on call", func(w *world) { w.policy.oncall = "{users: [U0ADA, U0GRACE, U0GUEST]}" }, "role oncall", "U0GUEST: guests"},
		{"nobody's id", func(w *world) { w.policy.oncall = "{users: [U0NOBODY]}" }, "role oncall", "U0NOBODY"},
		{"no such group", func(w *world) { w.policy.finance = "{groups: [S0NOTHING]}" }, "role finance, S0NOTHING", "no_such_subteam"},
		{"an empty group", func(w *world) {
			w.slack.SetGroup(slacksim.Group{ID: "S0FINANCE", Handle: "finance"})
		}, "role finance", "no members"},
		{"a wrong app token", func(w *world) { w.options.AppToken = "xapp-wrong" }, "Socket Mode", "connections:write"},
		{"no network for Socket Mode", func(w *world) {
			w.options.AppToken = w.slack.Options().AppToken
			w.slack.Fail("apps.connections.open", slacksim.Fault{Drop: slacksim.DropUnhandled}, 0)
		}, "Socket Mode", "can reach"},
		{"no way for clicks", func(w *world) { w.options.SigningSecrets = nil }, "signing secret", "no click"},
		{"no workspace", func(w *world) { w.options.Workspace = "" }, "Slack options", "not a workspace id"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			w := checked(t)
			test.change(w)
			findings := bot.Check(w.context(), w.options, w.policy.parse(t))
			for _, f := range findings {
				if !f.OK && f.Subject == test.subject && strings.Contains(f.Text, test.says) {
					return
				}
			}
			t.Errorf("nothing says %q about the %s: %+v", test.says, test.subject, findings)
		})
	}
}
