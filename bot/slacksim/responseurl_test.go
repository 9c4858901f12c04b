package slacksim_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/countersign/countersign/bot/slacksim"
)

func TestResponseURL(t *testing.T) {
	t.Parallel()
	now := newClock()
	server := start(t, slacksim.Options{Now: now.Now})
	a := answering(t, server, nil)
	ts := post(t, server)
	respond := func(address, body string) (int, result) {
		t.Helper()
		response, err := http.Post(address, "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		return response.StatusCode, read(t, response)
	}
	_, seen := a.click(t, "U0ADA", ts, "approve")
	for n := range 6 {
		status, r := respond(seen.ResponseURL, fmt.Sprintf(`{"text":"answer %d","blocks":null,"replace_original":false,"response_type":"ephemeral","metadata":{"event_type":"","event_payload":null}}`, n))
		if n == 5 {
			if status != 404 || r.Error != "used_url" {
				t.Errorf("a sixth time: %d %+v", status, r)
			}
		} else if !r.OK {
			t.Errorf("use %d: %+v", n, r)
		}
	}
	if got := server.Ephemerals("U0ADA"); len(got) != 5 || got[4].Text != "answer 4" {
		t.Errorf("Ada was shown %+v", got)
	}

	_, seen = a.click(t, "U0ADA", ts, "approve")
	if _, r := respond(seen.ResponseURL, `{"text":"to all","response_type":"in_channel"}`); !r.OK {
		t.Error(r.Error)
	}
	if _, r := respond(seen.ResponseURL, `{"text":"replaced","replace_original":true}`); !r.OK {
		t.Error(r.Error)
	}
	got := server.Messages(approvals)
	if len(got) != 2 || got[0].Text != "replaced" || got[0].TS != ts || len(got[0].Earlier) != 1 || got[1].Text != "to all" {
		t.Errorf("the channel has %+v", got)
	}
	for body, want := range map[string]string{
		`{}`:                                    "no_text",
		`{"text":"x","response_type":"public"}`: "invalid_payload",
		`{"text":"x","blocks":[{"type":"x"}]}`:  "invalid_blocks",
	} {
		if _, r := respond(seen.ResponseURL, body); r.Error != want {
			t.Errorf("%s: %+v, want %s", body, r, want)
		}
	}

	_, seen = a.click(t, "U0ADA", whisper(t, server, "U0ADA"), "again")
	if _, r := respond(seen.ResponseURL, `{"delete_original":true}`); !r.OK {
		t.Error(r.Error)
	}
	if all := server.Ephemerals("U0ADA"); len(all) != 5 {
		t.Errorf("after deleting, Ada sees %d", len(all))
	}
	now.Advance(30 * time.Minute)
	if _, r := respond(seen.ResponseURL, `{"text":"x"}`); !r.OK {
		t.Errorf("after 30 minutes: %s", r.Error)
	}
	now.Advance(time.Second)
	if status, r := respond(seen.ResponseURL, `{"text":"x"}`); status != 404 || r.Error != "expired_url" {
		t.Errorf("later: %d %+v", status, r)
	}
	if calls := server.Calls("response_url"); len(calls) != 14 {
		t.Errorf("there were %d calls", len(calls))
	}
}
