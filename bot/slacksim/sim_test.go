package slacksim_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/slack-go/slack"

	"github.com/countersign/countersign/bot/slacksim"
)

const approvals = "C0APPROVALS"

// clock is a workspace's clock that a test sets.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

// newClock starts now: clients compare the signatures' time with their own.
func newClock() *clock { return &clock{now: time.Now().Truncate(time.Second)} }

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// start serves a workspace with Ada, Bob, a group and a channel.
func start(t testing.TB, options slacksim.Options) *slacksim.Server {
	t.Helper()
	server, err := slacksim.Start(options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	server.SetUser(slacksim.User{ID: "U0ADA", Name: "ada", RealName: "Ada Moreau"})
	server.SetUser(slacksim.User{ID: "U0BOB", Name: "bob", RealName: "Bob Okafor"})
	server.SetGroup(slacksim.Group{ID: "S0ONCALL", Handle: "ops-oncall", Name: "On call", Users: []string{"U0ADA"}})
	server.SetChannel(slacksim.Channel{ID: approvals, Name: "approvals"})
	return server
}

// client is a real client of the workspace.
func client(server *slacksim.Server) *slack.Client {
	options := server.Options()
	return slack.New(options.BotToken, slack.OptionAPIURL(server.APIURL()), slack.OptionAppLevelToken(options.AppToken))
}

// deadline is how long a test waits for what must happen.
func deadline(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// result is a Web API answer.
type result struct {
	OK       bool   `json:"ok"`
	Error    string `json:"error"`
	Needed   string `json:"needed"`
	Provided string `json:"provided"`
	TS       string `json:"ts"`
	Warning  string `json:"warning"`
	View     struct {
		ID   string `json:"id"`
		Hash string `json:"hash"`
	} `json:"view"`
	Errors   []string `json:"errors"`
	Metadata struct {
		Messages []string `json:"messages"`
	} `json:"response_metadata"`
}

// call makes a Web API call as a form, with the bot's token unless another is
// given. Arguments alternate names and values.
func call(t testing.TB, server *slacksim.Server, method string, arguments ...string) result {
	t.Helper()
	form := url.Values{"token": {server.Options().BotToken}}
	for i := 0; i < len(arguments); i += 2 {
		form.Set(arguments[i], arguments[i+1])
	}
	response, err := http.PostForm(server.APIURL()+method, form)
	if err != nil {
		t.Fatal(err)
	}
	return read(t, response)
}

func read(t testing.TB, response *http.Response) result {
	t.Helper()
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	var r result
	if err := json.Unmarshal(data, &r); err != nil {
		t.Fatalf("%d %q: %v", response.StatusCode, data, err)
	}
	return r
}

// twoButtons are blocks with the buttons approve and reject.
const twoButtons = `[{"type":"section","block_id":"s","text":{"type":"mrkdwn","text":"Approve?"}},
	{"type":"actions","block_id":"act","elements":[
	{"type":"button","action_id":"approve","value":"v1","style":"primary","text":{"type":"plain_text","text":"Approve"}},
	{"type":"button","action_id":"reject","value":"v1","text":{"type":"plain_text","text":"Reject"}}]}]`

// post posts a message with two buttons and returns its timestamp.
func post(t testing.TB, server *slacksim.Server) string {
	t.Helper()
	r := call(t, server, "chat.postMessage", "channel", approvals, "text", "Approve?", "blocks", twoButtons)
	if !r.OK {
		t.Fatalf("posting: %s %v", r.Error, r.Errors)
	}
	return r.TS
}

// codeOf is Slack's error name in a client's error.
func codeOf(err error) string {
	if failed, ok := errors.AsType[slack.SlackErrorResponse](err); ok {
		return failed.Err
	}
	return fmt.Sprint(err)
}

func longText(characters int) string { return strings.Repeat("x", characters) }
