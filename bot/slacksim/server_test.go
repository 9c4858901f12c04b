package slacksim_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/countersign/countersign/bot/slacksim"
)

func TestOnlyLoopback(t *testing.T) {
	t.Parallel()
	for _, address := range []string{":0", "0.0.0.0:0", "[::]:0", "192.0.2.1:0", "example.com:0", "127.0.0.1", "127.0.0.1.example.com:0", ""} {
		server, err := slacksim.Start(slacksim.Options{Addr: address})
		if address == "" {
			if err != nil || !strings.HasPrefix(server.URL, "http://127.0.0.1:") {
				t.Errorf("by default: %v", err)
			}
		} else if err == nil {
			t.Errorf("%q was taken", address)
		}
		if err == nil {
			if err := server.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	server, err := slacksim.Start(slacksim.Options{Addr: "localhost:0"})
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Close(); err != nil {
		t.Error(err)
	}
	if _, err := http.Get(server.URL); err == nil {
		t.Error("it answers after it was closed")
	}
}

// A name that resolves to loopback doesn't get in, whatever it resolves to.
func TestHost(t *testing.T) {
	t.Parallel()
	handler := slacksim.New(slacksim.Options{}).Handler()
	for host, want := range map[string]int{
		"127.0.0.1:4000":            200,
		"127.0.0.1":                 200,
		"localhost:4000":            200,
		"[::1]:4000":                200,
		"[::1]":                     200,
		"evil.example:4000":         421,
		"evil.example":              421,
		"127.0.0.1.evil.example":    421,
		"localhost.evil.example:80": 421,
		"192.0.2.1:4000":            421,
		"":                          421,
		"127.0.0.1:80@evil.example": 421,
	} {
		request := httptest.NewRequest(http.MethodGet, "/", nil)
		request.Host = host
		recorder := httptest.NewRecorder()
		handler.ServeHTTP(recorder, request)
		if recorder.Code != want {
			t.Errorf("%q: %d, want %d", host, recorder.Code, want)
		}
	}
}

// Another site's page can't act here through the person's browser.
func TestCrossOrigin(t *testing.T) {
	t.Parallel()
	server := start(t, slacksim.Options{})
	ts := post(t, server)
	before := len(server.Messages(approvals))
	for _, path := range []string{"/page/click", "/page/submit", "/page/close", "/api/chat.postMessage", "/response/R000001"} {
		for name, header := range map[string]http.Header{
			"fetch metadata": {"Sec-Fetch-Site": {"cross-site"}},
			"same site":      {"Sec-Fetch-Site": {"same-site"}},
			"origin":         {"Origin": {"https://evil.example"}},
		} {
			body := url.Values{"token": {"xoxb-demo"}, "channel": {approvals}, "text": {"x"}, "ts": {ts}}.Encode()
			request, err := http.NewRequestWithContext(deadline(t), http.MethodPost, server.URL+path, strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			request.Header = header.Clone()
			request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			response, err := http.DefaultClient.Do(request)
			if err != nil {
				t.Fatal(err)
			}
			_ = response.Body.Close()
			if response.StatusCode != http.StatusForbidden {
				t.Errorf("%s by %s: %d", path, name, response.StatusCode)
			}
		}
	}
	if got := len(server.Messages(approvals)); got != before {
		t.Errorf("there are %d messages", got)
	}
	for _, path := range []string{"/page/click", "/page/submit", "/page/close"} {
		response, err := http.Get(server.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if response.StatusCode != http.StatusMethodNotAllowed {
			t.Errorf("GET %s: %d", path, response.StatusCode)
		}
	}
}

// A workspace that something else serves is told where it is.
func TestHandler(t *testing.T) {
	t.Parallel()
	workspace := slacksim.New(slacksim.Options{BotToken: "xoxb-mine", TeamID: "T0MINE"})
	web := httptest.NewServer(workspace.Handler())
	t.Cleanup(web.Close)
	workspace.SetURL(web.URL + "/")
	if got := workspace.APIURL(); got != web.URL+"/api/" {
		t.Errorf("the API is at %s", got)
	}
	response, err := http.PostForm(workspace.APIURL()+"auth.test", url.Values{"token": {"xoxb-mine"}})
	if err != nil {
		t.Fatal(err)
	}
	if r := read(t, response); !r.OK {
		t.Error(r.Error)
	}
	if got := workspace.Options(); got.TeamID != "T0MINE" || got.AppID != "A0DEMO" || got.SigningSecret == "" || len(got.Scopes) == 0 {
		t.Errorf("the options are %+v", got)
	}
}

func TestWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		workspace := slacksim.New(slacksim.Options{})
		changed := workspace.Changed()
		woken := make(chan error, 1)
		go func() {
			woken <- workspace.Wait(t.Context(), func() bool { _, ok := workspace.User("U0ADA"); return ok })
		}()
		synctest.Wait()
		select {
		case <-changed:
			t.Error("something changed by itself")
		case <-woken:
			t.Error("the wait ended early")
		default:
		}
		workspace.SetUser(slacksim.User{ID: "U0ADA"})
		<-changed
		if err := <-woken; err != nil {
			t.Error(err)
		}
		// What the workspace can't see is looked at too.
		elsewhere := false
		go func() { elsewhere = true }()
		synctest.Wait()
		if err := workspace.Wait(t.Context(), func() bool { return elsewhere }); err != nil {
			t.Error(err)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errors.New("enough"))
		if err := workspace.Wait(ctx, func() bool { return false }); err == nil || !strings.Contains(err.Error(), "enough") {
			t.Errorf("the error is %v", err)
		}
	})
}

// Timestamps are unique and in order even when the clock stands still or goes
// back.
func TestTimestamps(t *testing.T) {
	t.Parallel()
	now := newClock()
	server := start(t, slacksim.Options{Now: now.Now})
	last := ""
	for range 5 {
		ts := post(t, server)
		if ts <= last {
			t.Errorf("%s follows %s", ts, last)
		}
		last = ts
		now.Advance(-1e9)
	}
}
