package slacksim_test

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/slack-go/slack"

	"github.com/countersign/countersign/bot/slacksim"
)

// Each fault, as a real client sees it, and whether the call took effect.
func TestFaults(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name      string
		fault     slacksim.Fault
		is        func(error) bool
		delivered bool
	}{
		{"429", slacksim.Fault{Status: 429, RetryAfter: 1500 * time.Millisecond}, func(err error) bool {
			limited, ok := errors.AsType[*slack.RateLimitedError](err)
			return ok && limited.RetryAfter == 2*time.Second // whole seconds, rounded up
		}, false},
		{"503", slacksim.Fault{Status: 503}, func(err error) bool {
			failed, ok := errors.AsType[slack.StatusCodeError](err)
			return ok && failed.Code == 503
		}, false},
		{"an error", slacksim.Fault{Error: "fatal_error"}, func(err error) bool { return codeOf(err) == "fatal_error" }, false},
		{"a page", slacksim.Fault{HTML: true}, func(err error) bool { return strings.Contains(err.Error(), "invalid character '<'") }, false},
		{"dropped", slacksim.Fault{Drop: slacksim.DropUnhandled}, func(err error) bool { return strings.Contains(err.Error(), "EOF") }, false},
		{"delivered and dropped", slacksim.Fault{Drop: slacksim.DropDelivered}, func(err error) bool { return strings.Contains(err.Error(), "EOF") }, true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			server := start(t, slacksim.Options{})
			server.Fail("chat.postMessage", test.fault, 1)
			send := func() error {
				_, _, err := client(server).PostMessageContext(deadline(t), approvals, slack.MsgOptionText("x", false))
				return err
			}
			if err := send(); err == nil || !test.is(err) {
				t.Errorf("the error is %v", err)
			}
			if got := len(server.Messages(approvals)); (got == 1) != test.delivered {
				t.Errorf("there are %d messages", got)
			}
			if err := send(); err != nil {
				t.Errorf("the second call: %v", err)
			}
			calls := server.Calls("chat.postMessage")
			if len(calls) != 2 || calls[1].Status != 200 || calls[1].TS == "" || calls[0].Status == 200 && calls[0].Error == "" && test.fault.HTML == false {
				t.Errorf("the calls are %+v", calls)
			}
		})
	}
}

func TestFaultsQueue(t *testing.T) {
	t.Parallel()
	server := start(t, slacksim.Options{})
	server.Fail("auth.test", slacksim.Fault{Error: "one"}, 2)
	server.Fail("auth.test", slacksim.Fault{Error: "forever"}, 0)
	for n, want := range []string{"one", "one", "forever", "forever", "forever"} {
		if got := call(t, server, "auth.test"); got.Error != want {
			t.Errorf("call %d: %+v, want %s", n, got, want)
		}
	}
	if got := call(t, server, "users.info", "user", "U0ADA"); !got.OK {
		t.Errorf("another method: %+v", got)
	}
	server.Recover("auth.test")
	if got := call(t, server, "auth.test"); !got.OK {
		t.Errorf("recovered: %+v", got)
	}
}

// A held call waits for its test, and goes on as if nothing had been.
func TestHold(t *testing.T) {
	t.Parallel()
	server := start(t, slacksim.Options{})
	release := make(chan struct{})
	server.Fail("chat.postMessage", slacksim.Fault{Hold: release}, 1)
	posted := make(chan result, 1)
	go func() {
		posted <- call(t, server, "chat.postMessage", "channel", approvals, "text", "x")
	}()
	if err := server.Wait(deadline(t), func() bool { return len(server.Calls("chat.postMessage")) == 1 }); err != nil {
		t.Fatal(err)
	}
	if got := server.Calls("chat.postMessage")[0]; got.Status != 0 || len(server.Messages(approvals)) != 0 {
		t.Errorf("while it is held: %+v", got)
	}
	close(release)
	if r := <-posted; !r.OK {
		t.Errorf("the answer is %+v", r)
	}

	// One that isn't released ends with its client.
	server.Fail("chat.postMessage", slacksim.Fault{Hold: make(chan struct{})}, 1)
	ctx, cancel := context.WithCancel(deadline(t))
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, server.APIURL()+"chat.postMessage",
		strings.NewReader(url.Values{"token": {"xoxb-demo"}, "channel": {approvals}, "text": {"y"}}.Encode()))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	go func() {
		_ = server.Wait(ctx, func() bool { return len(server.Calls("chat.postMessage")) == 2 })
		cancel()
	}()
	if _, err := http.DefaultClient.Do(request); !errors.Is(err, context.Canceled) {
		t.Errorf("the error is %v", err)
	}
	if got := server.Messages(approvals); len(got) != 1 {
		t.Errorf("the channel has %+v", got)
	}
}

func TestRateLimits(t *testing.T) {
	t.Parallel()
	now := newClock()
	server := start(t, slacksim.Options{RateLimits: true, Now: now.Now})
	server.SetChannel(slacksim.Channel{ID: "C0OTHER", Name: "other"})
	posts := func(channel string) result {
		return call(t, server, "chat.postMessage", "channel", channel, "text", "x")
	}
	for n := range 3 {
		if r := posts(approvals); !r.OK {
			t.Errorf("message %d of a burst: %s", n, r.Error)
		}
	}
	_, _, err := client(server).PostMessageContext(deadline(t), approvals, slack.MsgOptionText("x", false))
	if limited, ok := errors.AsType[*slack.RateLimitedError](err); !ok || limited.RetryAfter != time.Second {
		t.Errorf("the fourth: %v", err)
	}
	if r := posts("C0OTHER"); !r.OK {
		t.Errorf("another channel: %s", r.Error)
	}
	now.Advance(time.Second)
	if r := posts(approvals); !r.OK {
		t.Errorf("a second later: %s", r.Error)
	}
	if r := posts(approvals); r.Error != "ratelimited" {
		t.Errorf("at once after that: %+v", r)
	}
	for _, test := range []struct {
		method    string
		perMinute int
	}{{"usergroups.list", 20}, {"conversations.info", 50}, {"users.info", 100}} {
		for n := range test.perMinute {
			if r := call(t, server, test.method, "channel", approvals, "user", "U0ADA"); !r.OK {
				t.Fatalf("%s call %d: %s", test.method, n, r.Error)
			}
		}
		if r := call(t, server, test.method, "channel", approvals, "user", "U0ADA"); r.Error != "ratelimited" {
			t.Errorf("%s call %d: %+v", test.method, test.perMinute, r)
		}
	}
}
