package bot_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"time"

	"github.com/slack-go/slack"

	"github.com/countersign/countersign/bot"
)

// channelOf serves the pages of a channel's history, as other apps fill it too.
func channelOf(t *testing.T, pages ...string) bot.Options {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.FormValue("channel") != channel || r.FormValue("include_all_metadata") != "true" || r.Header.Get("Authorization") != "Bearer xoxb-1" {
			t.Errorf("the call was %v with %v", r.Form, r.Header)
		}
		oldest, err := strconv.ParseFloat(r.FormValue("oldest"), 64)
		if since := asked.Sub(time.Unix(int64(oldest), 0)); err != nil || since < time.Minute || since > time.Hour {
			t.Errorf("the search begins at %q", r.FormValue("oldest"))
		}
		page, _ := strconv.Atoi(r.FormValue("cursor"))
		next := ""
		if page+1 < len(pages) {
			next = strconv.Itoa(page + 1)
		}
		fmt.Fprintf(w, `{"ok":true,"messages":[%s],"has_more":%t,"response_metadata":{"next_cursor":%q}}`, pages[page], next != "", next)
	}))
	t.Cleanup(server.Close)
	return bot.Options{Token: "xoxb-1", Workspace: "T0DEMO", Channel: channel, APIURL: server.URL + "/api/"}
}

func historyMessage(ts, author, event, id string) string {
	return fmt.Sprintf(`{"type":"message","ts":%q,%s,"blocks":[{"type":"section","text":7}],"metadata":{"event_type":%q,"event_payload":{"request_id":%q}}}`,
		ts, author, event, id)
}

func TestFindCard(t *testing.T) {
	t.Parallel()
	const (
		event = "countersign_card"
		us    = `"user":"U0BOT","bot_id":"B0BOT"`
		them  = `"user":"U0OTHERBOT","bot_id":"B0OTHER"`
		noise = `{"type":"message","ts":"3.0","user":"U0ADA","text":"hi"},{"type":"message","subtype":"bot_message","bot_id":"B0OTHER","ts":"2.5","metadata":{"event_type":"x","event_payload":{"request_id":{"a":1}}}}`
	)
	ours := historyMessage("5.000001", us, event, someRequest)
	tests := []struct {
		name  string
		pages []string
		want  string
	}{
		{"nothing there", []string{""}, ""},
		{"ours", []string{ours}, channel + "/5.000001"},
		{"on the third page, among blocks that nobody can decode", []string{historyMessage("9.0", them, event, "x"), historyMessage("8.0", us, event, "req_y"), ours}, channel + "/5.000001"},
		{"another app's with our metadata", []string{historyMessage("6.0", them, event, someRequest)}, ""},
		{"a person's", []string{historyMessage("6.0", `"user":"U0ADA"`, event, someRequest)}, ""},
		{"ours about another request", []string{historyMessage("6.0", us, event, "req_other")}, ""},
		{"ours of another kind", []string{historyMessage("6.0", us, "reminder", someRequest)}, ""},
		{"without an author", []string{historyMessage("6.0", `"text":""`, event, someRequest)}, ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			got, err := bot.FindCard(t.Context(), channelOf(t, test.pages...), deletion())
			if err != nil || got != test.want {
				t.Errorf("got %q, %v; want %q", got, err, test.want)
			}
		})
	}
	t.Run("odd metadata of others", func(t *testing.T) {
		t.Parallel()
		got, err := bot.FindCard(t.Context(), channelOf(t, noise+","+ours), deletion())
		if err != nil || got != channel+"/5.000001" {
			t.Errorf("got %q, %v", got, err)
		}
	})
}

// A search that fails says how: what is unclear must not count as "not there".
func TestFindCardFails(t *testing.T) {
	t.Parallel()
	answers := map[string]http.HandlerFunc{
		"limited": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "7")
			w.WriteHeader(http.StatusTooManyRequests)
		},
		"down":      func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) },
		"no JSON":   func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>") },
		"an error":  func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"ok":false,"error":"missing_scope"}`) },
		"a nothing": func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{}`) },
	}
	for name, answer := range answers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(answer)
			t.Cleanup(server.Close)
			options := bot.Options{Token: "xoxb-1", Workspace: "T0DEMO", Channel: channel, APIURL: server.URL + "/api/"}
			got, err := bot.FindCard(t.Context(), options, deletion())
			if err == nil || got != "" {
				t.Errorf("got %q, %v", got, err)
			}
			var limit *slack.RateLimitedError
			if name == "limited" && (!errors.As(err, &limit) || limit.RetryAfter != 7*time.Second) {
				t.Errorf("got %v", err)
			}
		})
	}
}
