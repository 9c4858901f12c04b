package bot_test

import (
	"errors"
	"net/url"
	"strings"
	"testing"

	"github.com/countersign/countersign/bot"
)

const (
	someRequest = "req_0190a0b0c0d0e0f00102030405060708"
	someDigest  = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"
	someValue   = "v1." + someRequest + ".1." + someDigest
)

func form(payload string) []byte { return []byte(url.Values{"payload": {payload}}.Encode()) }

func clickJSON(actions string) string {
	return `{"type":"block_actions","api_app_id":"A0DEMO","team":{"id":"T0DEMO"},"user":{"id":"U0ADA","team_id":"T0DEMO"},
		"trigger_id":"1.2.3","response_url":"https://hooks.slack.com/x","channel":{"id":"C0A"},
		"message":{"text":"a broken \ud83d character","blocks":[{"type":"a_new_kind"}]},"actions":[` + actions + `]}`
}

func action(id, value string) string {
	return `{"type":"button","action_id":"` + id + `","block_id":"b","value":"` + value + `","action_ts":"1"}`
}

func TestInteractionsAreRead(t *testing.T) {
	t.Parallel()
	for name, payload := range map[string]string{
		"approve":               clickJSON(action("approve", someValue)),
		"reject":                clickJSON(action("reject", someValue)),
		"details":               clickJSON(action("details", someValue)),
		"why":                   clickJSON(action("why", someValue)),
		"approve for":           clickJSON(action("approve_for", someValue)),
		"revoke":                clickJSON(action("revoke", someValue)),
		"it ran":                clickJSON(action("it_ran", someValue)),
		"it did not run":        clickJSON(action("it_did_not_run", someValue)),
		"approve with a reason": clickJSON(action("approve_with_reason", someValue)),
		"submitted": `{"type":"view_submission","team":{"id":"T0DEMO"},"user":{"id":"U0ADA"},
			"view":{"id":"V1","callback_id":"reject","private_metadata":"` + someValue + `","state":{"values":{}}}}`,
	} {
		got, err := bot.ParsePayload(form(payload))
		if err != nil || got != someValue {
			t.Errorf("%s: got %q, %v", name, got, err)
		}
	}
}

func TestInteractionsAreRefused(t *testing.T) {
	t.Parallel()
	good := clickJSON(action("approve", someValue))
	tests := map[string][]byte{
		"no payload":              []byte("token=1"),
		"two payloads":            append(append(form(good), '&'), form(good)...),
		"two payloads, one empty": append(form(good), "&payload="...),
		"not a form":              []byte("payload=%zz"),
		"a semicolon":             append(form(good), ";payload=x"...),
		"no JSON":                 form("approve"),
		"JSON and more":           form(good + "{}"),
		"a list":                  form("[]"),
		"no actions":              form(clickJSON("")),
		"two actions":             form(clickJSON(action("approve", someValue) + "," + action("reject", someValue))),
		"an unknown action":       form(clickJSON(action("approve_all", someValue))),
		"no value":                form(clickJSON(action("approve", ""))),
		"a shortcut":              form(strings.Replace(good, "block_actions", "shortcut", 1)),
		"no user":                 form(strings.Replace(good, "U0ADA", "", 1)),
		"a name for a user":       form(strings.Replace(good, "U0ADA", "ada", 1)),
		"two users":               form(strings.Replace(good, `"team":`, `"user":{"id":"U0EVE"},"team":`, 1)),
		"an unknown view":         form(`{"type":"view_submission","user":{"id":"U0ADA"},"view":{"callback_id":"x","private_metadata":"` + someValue + `"}}`),
		"no view":                 form(`{"type":"view_submission","user":{"id":"U0ADA"}}`),
	}
	for name, body := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got, err := bot.ParsePayload(body); !errors.Is(err, bot.ErrMalformed) {
				t.Errorf("got %q, %v; want %v", got, err, bot.ErrMalformed)
			}
		})
	}
}

func TestValuesAreRead(t *testing.T) {
	t.Parallel()
	if got, ok := bot.ParseValue(someValue); !ok || got != someValue {
		t.Errorf("got %q, %v", got, ok)
	}
	for name, value := range map[string]string{
		"empty":                 "",
		"another version":       strings.Replace(someValue, "v1", "v2", 1),
		"no digest":             "v1." + someRequest + ".1",
		"a short digest":        "v1." + someRequest + ".1." + someDigest[:62],
		"capitals":              "v1." + someRequest + ".1." + strings.ToUpper(someDigest),
		"another kind of id":    strings.Replace(someValue, "req_", "tok_", 1),
		"a path for an id":      "v1.../../1." + someDigest,
		"version 0":             "v1." + someRequest + ".0." + someDigest,
		"version with a sign":   "v1." + someRequest + ".+1." + someDigest,
		"version with a zero":   "v1." + someRequest + ".01." + someDigest,
		"something at the end":  someValue + ".x",
		"something before":      " " + someValue,
		"a version beyond int":  "v1." + someRequest + ".99999999999999999999." + someDigest,
		"payload in the digest": "v1." + someRequest + `.1.{"amount":1}`,
	} {
		if got, ok := bot.ParseValue(value); ok {
			t.Errorf("%s: %q was read as %q", name, value, got)
		}
	}
}

// No body makes the decoder panic or read something that isn't about exactly
// one request.
func FuzzInteraction(f *testing.F) {
	f.Add(form(clickJSON(action("approve", someValue))))
	f.Add(form(`{"type":"view_submission","user":{"id":"U0ADA"},"view":{"callback_id":"reject","private_metadata":"` + someValue + `"}}`))
	f.Add([]byte("payload=%7B%7D&payload=%7B%7D"))
	f.Fuzz(func(t *testing.T, body []byte) {
		value, err := bot.ParsePayload(body)
		if err != nil {
			if !errors.Is(err, bot.ErrMalformed) {
				t.Errorf("%q: %v is no refusal", body, err)
			}
			return
		}
		if again, ok := bot.ParseValue(value); value != "v1..0."+strings.Repeat("0", 64) && (!ok || again != value) {
			t.Errorf("%q is about %q, which is no value", body, value)
		}
	})
}
