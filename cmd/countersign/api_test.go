package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/countersign/countersign/bot/slacksim"
	"github.com/countersign/countersign/gate"
)

// job is what a background job asks in these tests.
var job = gate.Action{
	Purpose: "Delete 214 inactive customer records",
	Name:    "crm.delete_records",
	Target:  "customers not seen since 2024-12-01",
	Count:   new(int64(214)),
	Payload: json.RawMessage("{\"table\":\"customers\", \"id\":9007199254740993,\n \"expected_count\":214}"),
}

func (w *world) gate(t *testing.T, token string, options gate.Options) *gate.Gate {
	t.Helper()
	transport := new(http.Transport)
	t.Cleanup(transport.CloseIdleConnections)
	options.Transport = transport
	g, err := gate.New(w.options.config.URL, token, options)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// A job asks over HTTP, a person clicks in Slack, the job runs once with what was
// asked, and the card says what came of it. The server stops and starts again
// while it waits.
func TestJob(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	asked := make(chan gate.Request, 1)
	g := w.gate(t, w.token(t, "nightly-job"), gate.Options{Waiting: func(r gate.Request) { asked <- r }})
	ran := 0
	done := make(chan error, 1)
	go func() {
		done <- g.Do(t.Context(), job, func(_ context.Context, payload json.RawMessage) (string, error) {
			ran++
			if string(payload) != string(job.Payload) {
				return "", fmt.Errorf("got %s", payload)
			}
			return "214 deleted", nil
		})
	}()
	r := <-asked
	if r.WaitingFor != "1 of oncall" || r.ReviewURL != w.options.config.URL+"/review?elicitationId="+r.ID {
		t.Errorf("the job was told %+v", r)
	}
	posted := w.card(t, mentions("Approval needed"))
	w.stop()
	w.start(t)
	if reply := w.click(t, "U0ADA", posted.TS, "approve"); !reply.OK() {
		t.Fatalf("the click: %+v", reply)
	}
	if err := <-done; err != nil || ran != 1 {
		t.Errorf("%v, ran %d times", err, ran)
	}
	w.card(t, func(m slacksim.Message) bool {
		return m.TS == posted.TS && strings.Contains(m.Text, "Applied, succeeded")
	})
}

// Eight jobs that ask for the same over HTTP: people see one card, and one runs.
func TestJobsRunOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	g := w.gate(t, w.token(t, "nightly-job"), gate.Options{})
	var ran, used atomic.Int64
	var contenders sync.WaitGroup
	for range 8 {
		contenders.Go(func() {
			err := g.Do(t.Context(), job, func(context.Context, json.RawMessage) (string, error) {
				ran.Add(1)
				return "", nil
			})
			switch {
			case errors.Is(err, gate.ErrUsed):
				used.Add(1)
			case err != nil:
				t.Error(err)
			}
		})
	}
	// Whoever asks only after the decision asks for another one.
	decided, cancel := context.WithCancel(t.Context())
	approving := make(chan struct{})
	go func() {
		defer close(approving)
		seen := map[string]bool{}
		for decided.Err() == nil {
			changed := w.slack.Changed()
			for _, m := range w.slack.Messages(demoChannel) {
				if !seen[m.TS] && strings.Contains(m.Text, "Approval needed") {
					seen[m.TS] = true
					if _, err := w.slack.Click(decided, "U0ADA", demoChannel, m.TS, "approve"); err != nil && decided.Err() == nil {
						t.Error(err)
					}
				}
			}
			select {
			case <-changed:
			case <-decided.Done():
			}
		}
	}()
	contenders.Wait()
	cancel()
	<-approving
	if cards := len(w.slack.Messages(demoChannel)); int(ran.Load()) != cards || ran.Load()+used.Load() != 8 {
		t.Errorf("%d ran and %d didn't, by %d approvals", ran.Load(), used.Load(), cards)
	}
}

// The API stands behind the same guards as everything else.
func TestAPIIsGuarded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	token := w.token(t, "nightly-job")
	for name, test := range map[string]struct {
		change func(*http.Request)
		status int
		says   string
	}{
		"well":            {func(*http.Request) {}, http.StatusNotFound, `{"error":{"code":"not_found",`},
		"no token":        {func(r *http.Request) { r.Header.Del("Authorization") }, http.StatusUnauthorized, `{"error":{"code":"token",`},
		"another host":    {func(r *http.Request) { r.Host = "evil.example" }, http.StatusMisdirectedRequest, "doesn't answer for that host name"},
		"no such version": {func(r *http.Request) { r.URL.Path = "/api/v2/requests" }, http.StatusNotFound, ""},
	} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.options.config.URL+"/api/v1/requests/req_0123456789abcdef0123456789abcdef", nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Authorization", "Bearer "+token)
		test.change(request)
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if err != nil || response.StatusCode != test.status || !strings.Contains(string(body), test.says) {
			t.Errorf("%s: %d %s (%v)", name, response.StatusCode, body, err)
		}
		if response.Header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: the headers are %v", name, response.Header)
		}
	}
}
