package bot_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/bot"
	"github.com/countersign/countersign/policy"
)

// Hidden values are replaced by what they are, and the card says how many.
func TestRedactedArguments(t *testing.T) {
	t.Parallel()
	want := `{
  "login": "ada",
  "password": ‹hidden text, 16 characters›,
  "customers": [
    {
      "name": "Grace",
      "card": ‹hidden object, 2 members›
    },
    {
      "name": "Alan",
      "card": ‹hidden null›
    }
  ],
  "pin": ‹hidden number›,
  "urgent": ‹hidden true or false›,
  "keys": ‹hidden list, 2 elements›
}`
	r := deletion(redacted)
	card := parts(t, bot.Card(r).Blocks)
	details, _ := bot.Details(r)
	for name, p := range map[string]blockParts{"card": card, "details": parts(t, viewBlocks(t, details))} {
		if diff := cmp.Diff(want, p.preformatted); diff != "" {
			t.Errorf("the %s: -want +got:\n%s", name, diff)
		}
		if said := strings.Join(p.texts, ""); !strings.Contains(said, "6 values hidden by the policy") {
			t.Errorf("the %s doesn't say how many values are hidden: %s", name, said)
		}
	}
	if !card.has("approve") {
		t.Error("what has hidden values can't be approved")
	}
}

func TestRedactionByPath(t *testing.T) {
	t.Parallel()
	tests := []struct {
		payload, want string
		hidden        policy.Redactions
	}{
		{`"hunter2"`, `‹hidden text, 7 characters›`, policy.Redactions{Paths: []string{""}}},
		{`{"secret_name": [1]}`, `‹hidden object, 1 member›`, policy.Redactions{Paths: []string{""}}},
		{`["a", "b"]`, `["a", ‹hidden text, 1 character›]`, policy.Redactions{Paths: []string{"/1"}}},
		{`{"PassWord": "a"}`, `{"PassWord": ‹hidden text, 1 character›}`, policy.Redactions{Keys: []string{"password"}}},
		{`{"p\u0061ssword": "a"}`, `{"p\u0061ssword": ‹hidden text, 1 character›}`, policy.Redactions{Keys: []string{"password"}}},
		{`{"a/b": {"~": "\u0061é😀"}}`, `{"a/b": {"~": ‹hidden text, 3 characters›}}`, policy.Redactions{Paths: []string{"/a~1b/~0"}}},
		{`{"a": "b"}`, `{"a": "b"}`, policy.Redactions{Keys: []string{"b"}, Paths: []string{"/b"}}},
		{`{"a": "‹hidden number›"}`, `{"a": "‹hidden number›"}`, policy.Redactions{Keys: []string{"b"}}},
	}
	for _, test := range tests {
		r := deletion(payload(test.payload), func(r *approval.Request) { r.Ruling.Redactions = test.hidden })
		if got := parts(t, bot.Card(r).Blocks).preformatted; unspaced(got) != unspaced(test.want) {
			t.Errorf("%s with %+v hidden is shown as %s, want %s", test.payload, test.hidden, got, test.want)
		}
		checkMessage(t, r, bot.Card(r))
	}
}

// The badges give examples of what isn't what it looks like, but not of what is
// hidden.
func TestBadgesGiveNothingAway(t *testing.T) {
	t.Parallel()
	r := deletion(payload(`{"password": "hunt\u0065r\u202eр\u0430ypal", "note": "\u200bx"}`), func(r *approval.Request) {
		r.Payload = approval.Payload("{\"password\": \"hunt\\u0065r\u202eраypal\", \"note\": \"\u200bx\"}")
		r.Ruling.Redactions = policy.Redactions{Keys: []string{"password"}}
	})
	said := strings.Join(parts(t, bot.Card(r).Blocks).texts, "")
	for _, never := range []string{"ypal", `\u0065`, "202e"} {
		if strings.Contains(said, never) {
			t.Errorf("the card says %q: %s", never, said)
		}
	}
	if !strings.Contains(said, "Hidden characters in arguments") {
		t.Errorf("the card doesn't warn of what isn't hidden: %s", said)
	}
}

const (
	secretText   = "xyzzyMARKERplugh"
	secretNumber = "31415926535897"
)

// secretive is a payload with marked values, and redactions that hide them all.
type secretive struct {
	text    string
	hidden  policy.Redactions
	secrets int
}

// anySecretive draws objects and lists in which some values are secret: by
// their key, by their path, or because they stand in something that is.
func anySecretive() *rapid.Generator[secretive] {
	return rapid.Custom(func(t *rapid.T) secretive {
		var s secretive
		marked := func() string {
			return rapid.SampledFrom([]string{
				quoted(secretText), quoted("<@U0ADA> `" + secretText + "` \u202e"), secretNumber, "-" + secretNumber + ".5e1",
				`{"a": ` + quoted(secretText) + `}`, `{` + quoted(secretText) + `: [1, 2]}`, `[` + secretNumber + `, [` + quoted(secretText) + `]]`,
				`"` + strings.Repeat(secretText, 400) + `"`,
				`"\u0078\u0079` + secretText + `"`,
			}).Draw(t, "secret")
		}
		var value func(path string, depth int) string
		member := func(path, key string, depth int) string {
			pointer := path + "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(key)
			switch rapid.IntRange(0, 5).Draw(t, "member") {
			case 0:
				s.secrets++
				s.hidden.Paths = append(s.hidden.Paths, pointer)
				return marked()
			case 1:
				if key != strings.ToLower(key) || !strings.HasPrefix(key, "k") {
					return value(pointer, depth-1)
				}
				s.secrets++
				s.hidden.Keys = append(s.hidden.Keys, key)
				return marked()
			default:
				return value(pointer, depth-1)
			}
		}
		value = func(path string, depth int) string {
			kind := rapid.IntRange(0, 2).Draw(t, "kind")
			if depth == 0 || kind == 0 {
				return rapid.SampledFrom([]string{`"public"`, "1", "null", "true", "{}", "[]"}).Draw(t, "leaf")
			}
			var items []string
			for i := range rapid.IntRange(0, 6).Draw(t, "n") {
				if kind == 1 {
					items = append(items, member(path, fmt.Sprint(i), depth))
					continue
				}
				key := fmt.Sprintf("%s%d", rapid.SampledFrom([]string{"k", "a/b~", "<!here>", "é"}).Draw(t, "key"), len(s.hidden.Keys)*100+i)
				items = append(items, quoted(key)+":"+member(path, key, depth))
			}
			if kind == 1 {
				return "[" + strings.Join(items, ",") + "]"
			}
			return "{" + strings.Join(items, ",") + "}"
		}
		if rapid.IntRange(0, 20).Draw(t, "all of it") == 0 {
			s.secrets, s.hidden.Paths, s.text = 1, []string{""}, marked()
			return s
		}
		s.text = value("", 4)
		return s
	})
}

// What the policy hides is nowhere in what is rendered, whatever state the
// request is in, and the explanation that a policy writes doesn't hold it
// either.
func TestSecretsAreNowhere(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := anySecretive().Draw(t, "payload")
		r := anyRequest(t)
		r.Payload, r.Ruling.Redactions = approval.Payload(s.text), s.hidden
		if r.Execution != nil {
			r.Execution.Detail = "can't do this: " + s.text
		}
		details, _ := bot.Details(r)
		shown := map[string]any{
			"card":         bot.Card(r),
			"minimal card": bot.Minimal(r),
			"details":      details,
			"reason":       bot.ReasonView(r),
			"why":          bot.WhyView(r),
			"reject":       bot.RejectView(r, true),
			"reminder":     bot.Reminder(r, false, asked.Add(time.Hour)),
			"call":         bot.Reminder(r, true, asked.Add(time.Hour)),
		}
		for name, what := range shown {
			data, err := json.Marshal(what)
			if err != nil {
				t.Fatal(err)
			}
			for _, secret := range []string{secretText, secretNumber, "MARKER", `\\u0078`} {
				if strings.Contains(string(data), secret) {
					t.Errorf("the %s of %s with %+v hidden gives it away: %s", name, s.text, s.hidden, data)
				}
			}
		}
		said := strings.Join(parts(t, bot.Card(r).Blocks).texts, "")
		if s.secrets > 0 && !strings.Contains(said, " hidden by the policy") {
			t.Errorf("the card of %s doesn't say that something is hidden: %s", s.text, said)
		}
	})
}

// The whole way: what a policy file redacts never gets to Slack.
func TestSecretsDoNotReachSlack(t *testing.T) {
	t.Parallel()
	w := newWorld(t, reminds, func(w *world) {
		w.policy.more = `
integrations: {crm: {tools: {login: {tier: 4, redact: [/customers/*/card]}}}}
rules: [{id: pins, actions: [crm.login], when: 'args.password.startsWith("xyz") || args.customers[0].card == 1', raise_to: 4, why: Pins are sensitive.}]
redact: {keys: [password], paths: [/nested/list]}
`
		w.policy.approval += "\n  reason_required: true"
	})
	w.run()
	r := w.ask(func(p *approval.Proposal) {
		p.Action = "crm.login"
		p.Payload = []byte(`{"password": "` + secretText + `", "customers": [{"card": ` + secretNumber + `}], "nested": {"list": ["` + secretText + `"]}, "seen": "public"}`)
	})
	card := w.card(r, "Approval needed")
	if !strings.Contains(string(card.Blocks), "public") || !strings.Contains(string(card.Blocks), "3 values hidden by the policy") {
		t.Errorf("the card is %s", card.Blocks)
	}
	for action, says := range map[string]string{"why": "has to approve this", "details": "Digest", "approve_with_reason": "If you approve", "reject": "crm.login"} {
		w.click("U0GRACE", r, action)
		view := w.modal("U0GRACE", says)
		if _, err := w.slack.CloseView(w.context(), "U0GRACE", view.ID); err != nil {
			t.Fatal(err)
		}
	}
	w.due(r, 46*time.Minute, called)
	w.reminderSays(r, 1, "No decision")
	for _, method := range []string{"chat.postMessage", "chat.update", "views.open", "views.update"} {
		calls := w.slack.Calls(method)
		if len(calls) == 0 {
			t.Errorf("%s wasn't called", method)
		}
		for _, call := range calls {
			for name, values := range call.Arguments {
				if text := strings.Join(values, ""); strings.Contains(text, secretText) || strings.Contains(text, secretNumber) {
					t.Errorf("%s gives it away in %s: %s", method, name, text)
				}
			}
		}
	}
	if strings.Contains(w.log.String(), secretText) {
		t.Error("the log gives it away")
	}
}
