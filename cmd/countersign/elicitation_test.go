package main

import (
	"context"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/bot/slacksim"
	"github.com/countersign/countersign/policy"
	"github.com/countersign/countersign/web"
)

// A protocol in which a server may ask, and one in which it only answers.
const (
	legacy = "2025-11-25"
	modern = "2026-07-28"
)

// What hosts can say that they show.
var (
	showsLinks = &sdk.ElicitationCapabilities{URL: &sdk.URLElicitationCapabilities{}}
	showsForms = &sdk.ElicitationCapabilities{Form: &sdk.FormElicitationCapabilities{}}
)

// host is what an agent runs in, an MCP client, with what the server had it show.
type host struct {
	*sdk.ClientSession
	shown     chan *sdk.ElicitParams
	completed chan string
	held      chan struct{} // gets a value when a call that waits shows progress
	pushed    atomic.Int32  // what the server sent about prompts, wanted or not
}

// newHost connects a host, which answers a prompt as answer says.
func newHost(t *testing.T, transport sdk.Transport, version string, can *sdk.ElicitationCapabilities, answer func(*sdk.ElicitParams) string) *host {
	t.Helper()
	h := &host{shown: make(chan *sdk.ElicitParams, 10), completed: make(chan string, 10), held: make(chan struct{}, 100)}
	options := &sdk.ClientOptions{
		Capabilities:                &sdk.ClientCapabilities{Elicitation: can},
		ProgressNotificationHandler: func(context.Context, *sdk.ProgressNotificationClientRequest) { h.held <- struct{}{} },
	}
	if can != nil {
		options.ElicitationHandler = func(_ context.Context, r *sdk.ElicitRequest) (*sdk.ElicitResult, error) {
			h.shown <- r.Params
			return &sdk.ElicitResult{Action: answer(r.Params)}, nil
		}
		options.ElicitationCompleteHandler = func(_ context.Context, n *sdk.ElicitationCompleteNotificationRequest) {
			h.completed <- n.Params.ElicitationID
		}
	}
	client := sdk.NewClient(&sdk.Implementation{Name: "host", Version: "1"}, options)
	client.AddReceivingMiddleware(func(next sdk.MethodHandler) sdk.MethodHandler {
		return func(ctx context.Context, method string, request sdk.Request) (sdk.Result, error) {
			if strings.Contains(method, "elicitation") {
				h.pushed.Add(1)
			}
			return next(ctx, method, request)
		}
	})
	session, err := client.Connect(t.Context(), transport, &sdk.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = session.Close() })
	if got := session.InitializeResult().ProtocolVersion; got != version {
		t.Fatalf("negotiated %s, want %s", got, version)
	}
	h.ClientSession = session
	return h
}

func says(action string) func(*sdk.ElicitParams) string {
	return func(*sdk.ElicitParams) string { return action }
}

// askedFor is what the agent gets that asks.
type askedFor struct {
	ElicitationID, Status, ReviewURL string
	ElicitationDelivered             bool

	words string
}

func (h *host) ask(t *testing.T, request map[string]any) askedFor {
	t.Helper()
	result, err := h.CallTool(t.Context(), &sdk.CallToolParams{Name: "request_approval", Arguments: request})
	if err != nil {
		t.Fatal(err)
	}
	structured, err := json.Marshal(result.StructuredContent)
	if err != nil {
		t.Fatal(err)
	}
	got := askedFor{words: textOf(result)}
	if err := json.Unmarshal(structured, &got); err != nil || got.Status != "pending" {
		t.Fatalf("asked and got %s (%v)", got.words, err)
	}
	return got
}

// prompt is the link that the host was sent.
func (h *host) prompt(t *testing.T) *sdk.ElicitParams {
	t.Helper()
	return receive(t, h.shown, "the prompt")
}

// requireCompleted checks that the host was told once that a prompt is over.
func (h *host) requireCompleted(t *testing.T, id string) {
	t.Helper()
	if got := receive(t, h.completed, "that the prompt is over"); got != id {
		t.Errorf("%s is over, want %s", got, id)
	}
	h.requireNoMore(t)
}

// requireNoMore checks that nothing else about prompts has come by now.
func (h *host) requireNoMore(t *testing.T) {
	t.Helper()
	if err := h.Ping(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if len(h.shown)+len(h.completed) > 0 {
		t.Errorf("the host was sent %d more prompts and told %d more times that one is over", len(h.shown), len(h.completed))
	}
}

func receive[T any](t *testing.T, from <-chan T, what string) T {
	t.Helper()
	select {
	case value := <-from:
		return value
	case <-time.After(patience):
		t.Fatalf("waited in vain for %s", what)
		panic("unreachable")
	}
}

// reader is somebody who reads the pages, in a browser without scripts.
type reader struct {
	t      *testing.T
	slack  *slacksim.Server
	user   string
	client *http.Client
}

func (w *world) reader(t *testing.T, user string) *reader {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	return &reader{t, w.slack, user, &http.Client{Jar: jar, Timeout: patience}}
}

// get does what a browser does with a request and returns what it shows.
func (r *reader) get(method, address string, form url.Values) (*http.Response, string) {
	r.t.Helper()
	request, err := http.NewRequest(method, address, strings.NewReader(form.Encode()))
	if err != nil {
		r.t.Fatal(err)
	}
	request.Header.Set("Sec-Fetch-Site", "same-origin")
	if form != nil {
		request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	response, err := r.client.Do(request)
	if err != nil {
		r.t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return response, string(text)
}

// open opens an address, and signs in where the page asks for it.
func (r *reader) open(address string) string {
	r.t.Helper()
	response, text := r.get(http.MethodGet, address, nil)
	if strings.Contains(text, "Sign in to review") {
		left, _ := r.get(http.MethodPost, address, url.Values{"with": {"Slack"}})
		back, err := r.slack.Authorize(r.user, strings.TrimPrefix(left.Header.Get("Refresh"), "0; url="))
		if err != nil {
			r.t.Fatal(err)
		}
		if response, text = r.get(http.MethodGet, back, nil); response.Request.URL.String() != address {
			r.t.Fatalf("signing in led to %s, want %s", response.Request.URL, address)
		}
	}
	if response.StatusCode != http.StatusOK {
		r.t.Fatalf("%s: %s\n%s", address, response.Status, text)
	}
	return text
}

var (
	pageForm    = regexp.MustCompile(`(?s)<form method="post" action="(/review/[^"]+)"[^>]*>(.*?)</form>`)
	hiddenInput = regexp.MustCompile(`<input type="hidden" name="(\w+)" value="([^"]*)">`)
)

// send fills in and sends the form with a button on the page at an address, and
// returns what is shown then.
func (r *reader) send(address, button string, typed url.Values) string {
	r.t.Helper()
	page := r.open(address)
	for _, form := range pageForm.FindAllStringSubmatch(page, -1) {
		if !strings.Contains(form[2], ">"+button+"</button>") {
			continue
		}
		values := url.Values{}
		for _, input := range hiddenInput.FindAllStringSubmatch(form[2], -1) {
			values.Set(input[1], html.UnescapeString(input[2]))
		}
		for name := range typed {
			values.Set(name, typed.Get(name))
		}
		at, err := url.Parse(address)
		if err != nil {
			r.t.Fatal(err)
		}
		response, text := r.get(http.MethodPost, at.ResolveReference(&url.URL{Path: form[1]}).String(), values)
		if response.StatusCode != http.StatusOK {
			r.t.Fatalf("%s: %s\n%s", button, response.Status, text)
		}
		return text
	}
	r.t.Fatalf("no form has a button %q on\n%s", button, page)
	return ""
}

// overHTTP is a host's way to a path of the server.
func (w *world) overHTTP(token, path string, stream bool) sdk.Transport {
	return &sdk.StreamableClientTransport{
		Endpoint:             w.options.config.URL + path,
		HTTPClient:           &http.Client{Transport: bearer(token)},
		DisableStandaloneSSE: !stream,
	}
}

// withSignIn has people sign in to the program with the simulated Slack.
func (p *program) withSignIn(t *testing.T) *program {
	t.Helper()
	slack := p.slack.Options()
	p.edit(t, "countersign.yaml", "slack: {", fmt.Sprintf("slack: {client_id: %q, issuer: %q, ", slack.ClientID, p.slack.URL))
	p.edit(t, "countersign.yaml", "mcp: {await_bound: 1s}", "")
	p.environment = append(p.environment, clientSecretVariable+"="+slack.ClientSecret)
	p.slack.SetRedirectURLs(p.world().options.config.URL + web.CallbackPath)
	return p
}

// doors are the ways of a host to the tools to ask with.
var doors = map[string]func(*testing.T) (*world, sdk.Transport){
	"http": func(t *testing.T) (*world, sdk.Transport) {
		w := newWorld(t)
		return w, w.overHTTP(w.token(t, "crm-agent"), flowPath, true)
	},
	"http without an event stream": func(t *testing.T) (*world, sdk.Transport) {
		w := newWorld(t)
		return w, w.overHTTP(w.token(t, "crm-agent"), flowPath, false)
	},
	"stdio": func(t *testing.T) (*world, sdk.Transport) {
		p := newProgram(t).withSignIn(t)
		return p.world(), &sdk.CommandTransport{Command: p.command(t, nil, "mcp", "--agent", "crm-agent")}
	},
	"stdio to a server": func(t *testing.T) (*world, sdk.Transport) {
		w := newWorld(t)
		return w, &sdk.CommandTransport{Command: w.bridge(t)}
	},
}

// A host that shows links is sent the review page's. Its person opens it, signs in
// and approves there; the agent that waits wakes, and the host is told once that
// the prompt is over.
func TestPromptLeadsToThePage(t *testing.T) {
	t.Parallel()
	for name, reach := range doors {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, transport := reach(t)
			h := newHost(t, transport, legacy, showsLinks, says("accept"))
			asked := h.ask(t, demoDelete)
			prompt := h.prompt(t)
			if prompt.Mode != "url" || prompt.ElicitationID != asked.ElicitationID || prompt.URL != asked.ReviewURL || !asked.ElicitationDelivered {
				t.Errorf("the host was sent %+v for %+v", prompt, asked)
			}
			if want := "people can also decide at " + asked.ReviewURL; !strings.Contains(asked.words, want) {
				t.Errorf("the agent isn't told that %s: %s", want, asked.words)
			}
			woken := awaitHeld(t, h.ClientSession, h.held, asked.ElicitationID)
			w.reader(t, "U0ADA").send(prompt.URL, "Approve", nil)
			if got := receive(t, woken, "the agent to wake"); got != "approved" {
				t.Errorf("the agent woke with %s", got)
			}
			h.requireCompleted(t, asked.ElicitationID)
			if payload, err := apply(t, h.ClientSession, asked.ElicitationID); err != nil || !strings.Contains(string(payload), `"expected_count":214`) {
				t.Errorf("applied %s (%v)", payload, err)
			}
			h.requireNoMore(t)
		})
	}
}

// What the host's person answers to the prompt decides nothing, and the page still
// does.
func TestAnswersToPromptsDecideNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	token := w.token(t, "crm-agent")
	for _, answer := range []string{"accept", "decline", "cancel"} {
		t.Run(answer, func(t *testing.T) {
			t.Parallel()
			h := newHost(t, w.overHTTP(token, flowPath, true), legacy, showsLinks, says(answer))
			asked := h.ask(t, purposed("What the host says: "+answer))
			link := h.prompt(t).URL
			for range 2 {
				if got := status(t, h.ClientSession, "check_status", asked.ElicitationID); got != "pending" {
					t.Errorf("once the host said %s the request is %s", answer, got)
				}
			}
			h.requireNoMore(t)
			w.reader(t, "U0ADA").send(link, "Approve", nil)
			h.requireCompleted(t, asked.ElicitationID)
		})
	}
}

// purposed is a request like the demo's, for something else.
func purposed(purpose string) map[string]any {
	request := map[string]any{}
	for name, value := range demoDelete {
		request[name] = value
	}
	request["purpose"], request["target"] = purpose, purpose
	return request
}

// However the decision lands, the prompt is over once.
func TestPromptsEndWithTheDecision(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		lands  func(*testing.T, *landing)
		status string
	}{
		"rejected on the page": {func(t *testing.T, l *landing) {
			l.reader(t, "U0ADA").send(l.link, "Reject", url.Values{"reason": {"Not on a Friday."}})
		}, "rejected"},
		"approved in Slack": {func(t *testing.T, l *landing) {
			l.click(t, "U0ADA", l.card(t, mentions("Approval needed")).TS, "approve")
		}, "approved"},
		"rejected in Slack": {func(t *testing.T, l *landing) {
			l.click(t, "U0ADA", l.card(t, mentions("Approval needed")).TS, "reject")
			view, _ := l.slack.OpenView("U0ADA")
			if reply, err := l.slack.Submit(t.Context(), "U0ADA", view.ID, map[string]string{"reason": "Not on a Friday."}); err != nil || !reply.OK() {
				t.Fatalf("%v, %+v", err, reply)
			}
		}, "rejected"},
		"edited on the page, and then approved": {func(t *testing.T, l *landing) {
			l.reader(t, "U0GRACE").send(strings.Replace(l.link, "/review?", "/review/edit?", 1), "Save as the next version", url.Values{"payload": {`{"expected_count":3}`}})
			l.requireNoMore(t)
			if got := status(t, l.ClientSession, "check_status", l.id); got != "pending" {
				t.Errorf("edited it is %s", got)
			}
			l.reader(t, "U0ADA").send(l.link, "Approve", nil)
		}, "approved"},
		"superseded": {func(t *testing.T, l *landing) {
			stricter, err := policy.Parse([]byte(strings.Replace(string(demoPolicy), "requires: [{role: oncall}]", "requires: [{role: oncall, count: 2}]", 1)))
			if err != nil {
				t.Fatal(err)
			}
			if err := l.server.rule(t.Context(), stricter); err != nil {
				t.Fatal(err)
			}
			l.click(t, "U0ADA", l.card(t, mentions("Approval needed")).TS, "approve")
		}, "rejected"},
		"expired": {func(_ *testing.T, l *landing) { l.ahead.Store(int64(2 * time.Hour)) }, "expired"},
		"approved and then revoked": {func(t *testing.T, l *landing) {
			ada := l.reader(t, "U0ADA")
			ada.send(l.link, "Approve", nil)
			if got := status(t, l.ClientSession, "await_approval", l.id); got != "approved" {
				t.Errorf("it is %s", got)
			}
			ada.send(l.link, "Revoke approval", nil)
		}, "rejected"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := &landing{world: unstartedWorld(t)}
			// A clock that is set forward rings nothing, so each wait is short.
			l.options.config.MCP.AwaitBound = time.Second
			l.options.now = func() time.Time { return time.Now().Add(time.Duration(l.ahead.Load())) }
			l.start(t)
			l.host = newHost(t, l.overHTTP(l.token(t, "crm-agent"), flowPath, true), legacy, showsLinks, says("accept"))
			l.id = l.ask(t, demoDelete).ElicitationID
			l.link = l.prompt(t).URL
			test.lands(t, l)
			// The host is told without asking.
			l.requireCompleted(t, l.id)
			for _, tool := range []string{"await_approval", "check_status"} {
				if got := status(t, l.ClientSession, tool, l.id); got != test.status {
					t.Errorf("%s says %s, want %s", tool, got, test.status)
				}
			}
			l.requireNoMore(t)
		})
	}
}

// landing is a decision that a host waits for.
type landing struct {
	*world
	*host
	id, link string
	ahead    atomic.Int64 // of the clock
}

// Who can't show links, or speaks a protocol in which nothing can be asked, is sent
// nothing. The result has the address, where people decide all the same.
func TestOthersAreNotPrompted(t *testing.T) {
	t.Parallel()
	for name, reach := range doors {
		for can, test := range map[string]struct {
			version string
			can     *sdk.ElicitationCapabilities
		}{
			"says nothing":          {legacy, nil},
			"forms only":            {legacy, showsForms},
			"a protocol of answers": {modern, showsLinks},
		} {
			t.Run(name+"/"+can, func(t *testing.T) {
				t.Parallel()
				w, transport := reach(t)
				h := newHost(t, transport, test.version, test.can, says("accept"))
				asked := h.ask(t, demoDelete)
				if want := "people can also decide at " + asked.ReviewURL; asked.ElicitationDelivered || !strings.Contains(asked.words, want) {
					t.Errorf("the agent is told %+v", asked)
				}
				woken := awaitHeld(t, h.ClientSession, h.held, asked.ElicitationID)
				w.reader(t, "U0ADA").send(asked.ReviewURL, "Approve", nil)
				if got := receive(t, woken, "the agent to wake"); got != "approved" {
					t.Errorf("the agent woke with %s", got)
				}
				if _, err := apply(t, h.ClientSession, asked.ElicitationID); err != nil {
					t.Error(err)
				}
				if got := h.pushed.Load(); got != 0 {
					t.Errorf("the host was sent %d messages about prompts", got)
				}
			})
		}
	}
}

// gatewayDoors are the ways of a host to the tools of the downstream server.
var gatewayDoors = map[string]func(*testing.T, *program) sdk.Transport{
	"http": func(t *testing.T, p *program) sdk.Transport {
		p.serve(t)
		return p.world().overHTTP(p.output(t, "token", "create", "crm-agent"), gatewayPath, true)
	},
	"http without an event stream": func(t *testing.T, p *program) sdk.Transport {
		p.serve(t)
		return p.world().overHTTP(p.output(t, "token", "create", "crm-agent"), gatewayPath, false)
	},
	"stdio": func(t *testing.T, p *program) sdk.Transport {
		return &sdk.CommandTransport{Command: p.command(t, nil, "mcp", "--gateway", "--agent", "crm-agent")}
	},
}

const deleteArguments = `{"id":"c-42"}`

// A host of the gateway that shows links is sent the page's of a call that waits.
func TestGatewayPromptLeadsToThePage(t *testing.T) {
	t.Parallel()
	for name, reach := range gatewayDoors {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newFrontedProgram(t).withSignIn(t)
			h := newHost(t, reach(t, p), legacy, showsLinks, says("accept"))
			offers(t, h.ClientSession, crmTools...)
			waits := toolCall(t, h.ClientSession, "delete_customer", deleteArguments)
			id, prompt := waitingID(t, waits), h.prompt(t)
			if prompt.Mode != "url" || prompt.ElicitationID != id || !strings.HasSuffix(prompt.URL, "/review?elicitationId="+id) {
				t.Errorf("the host was sent %+v for %s", prompt, id)
			}
			if want := "people can also decide at " + prompt.URL; !strings.Contains(textOf(waits), want) {
				t.Errorf("the agent isn't told that %s: %s", want, textOf(waits))
			}
			w := p.world()
			w.reader(t, "U0ADA").send(prompt.URL, "Approve", nil)
			if got := result(t, h.ClientSession, id); textOf(got) != "deleted c-42" {
				t.Errorf("the result is %s", encoded(t, got))
			}
			h.requireCompleted(t, id)
			if got := p.deleted(t); got != "c-42\n" {
				t.Errorf("deleted %q", got)
			}
		})
	}
}

// In the protocol of answers a call that waits is answered by asking to open the
// page, where the configuration says so and the host shows links. What the host
// says decides nothing; once a person has decided on the page, the repeated call
// gets the result.
func TestGatewayAsksToOpenThePage(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"http", "stdio"} {
		for how, test := range map[string]struct {
			answer  string
			decides bool // before the host answers
		}{
			"the page is open until it is decided": {"accept", true},
			"the page is opened":                   {"accept", false},
			"the page isn't opened":                {"decline", false},
			"the prompt is closed":                 {"cancel", false},
		} {
			t.Run(name+"/"+how, func(t *testing.T) {
				t.Parallel()
				p := newFrontedProgram(t).withSignIn(t)
				p.appendTo(t, "countersign.yaml", "  review_prompt: url\n")
				ada := p.world().reader(t, "U0ADA")
				h := newHost(t, gatewayDoors[name](t, p), modern, showsLinks, func(asked *sdk.ElicitParams) string {
					if test.decides {
						ada.send(asked.URL, "Approve", nil)
					}
					return test.answer
				})
				offers(t, h.ClientSession, crmTools...)
				first := toolCall(t, h.ClientSession, "delete_customer", deleteArguments)
				prompt := h.prompt(t)
				if prompt.Mode != "url" || prompt.ElicitationID != "" {
					t.Errorf("the host was asked %+v", prompt)
				}
				if !test.decides {
					if id := waitingID(t, first); id == "" || !strings.HasSuffix(prompt.URL, "/review?elicitationId="+id) || !strings.Contains(textOf(first), "people can also decide at "+prompt.URL) {
						t.Errorf("asked to open %s and then told %s", prompt.URL, encoded(t, first))
					}
					if got := p.deleted(t); got != "" {
						t.Fatalf("deleted %q before anybody decided", got)
					}
					ada.send(prompt.URL, "Approve", nil)
					first = toolCall(t, h.ClientSession, "delete_customer", deleteArguments)
				}
				if textOf(first) != "deleted c-42" {
					t.Errorf("the repeated call gets %s", encoded(t, first))
				}
				if got := p.deleted(t); got != "c-42\n" {
					t.Errorf("deleted %q", got)
				}
				if len(h.shown)+len(h.completed) > 0 {
					t.Errorf("the host was asked %d more times and told %d times that it is over", len(h.shown), len(h.completed))
				}
			})
		}
	}
}

// A host of that protocol that doesn't show links is asked nothing.
func TestGatewayAsksNobodyElseToOpenThePage(t *testing.T) {
	t.Parallel()
	p := newFrontedProgram(t).withSignIn(t)
	p.appendTo(t, "countersign.yaml", "  review_prompt: url\n")
	p.serve(t)
	token := p.output(t, "token", "create", "crm-agent")
	for name, can := range map[string]*sdk.ElicitationCapabilities{"says nothing": nil, "forms only": showsForms} {
		h := newHost(t, p.world().overHTTP(token, gatewayPath, true), modern, can, says("accept"))
		offers(t, h.ClientSession, crmTools...)
		if got := toolCall(t, h.ClientSession, "delete_customer", deleteArguments); waitingID(t, got) == "" || h.pushed.Load() > 0 || len(h.shown) > 0 {
			t.Errorf("%s: got %s, and %d prompts", name, encoded(t, got), len(h.shown))
		}
	}
}

// The address of a request is worth nothing to the agent that is told it, nor to
// what fetches links that people are sent: they get the page to sign in, the same
// as for a request that doesn't exist, and nothing is changed.
func TestReviewAddressIsWorthNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	token := w.token(t, "crm-agent")
	h := newHost(t, w.overHTTP(token, flowPath, true), legacy, nil, nil)
	asked := h.ask(t, demoDelete)
	w.card(t, mentions("Approval needed"))
	id := approval.ID(asked.ElicitationID)
	before, err := w.server.store.Request(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	form := url.Values{
		"elicitationId": {asked.ElicitationID}, "version": {"1"}, "digest": {before.Digest.String()},
		"verdict": {"approve"}, "token": {strings.Repeat("0", 64)}, "reason": {"x"}, "payload": {"{}"},
	}
	unknown := strings.Replace(asked.ReviewURL, asked.ElicitationID, "req_"+strings.Repeat("0", 32), 1)
	authorization := []string{"Authorization", "Bearer " + token}
	for name, test := range map[string]struct {
		method, path string
		form         url.Values
		headers      []string
	}{
		"the agent opens it":          {http.MethodGet, "/review", nil, authorization},
		"the agent asks for its size": {http.MethodHead, "/review", nil, authorization},
		"a link preview":              {http.MethodGet, "/review", nil, []string{"User-Agent", "Slackbot-LinkExpanding 1.0 (+https://api.slack.com/robots)"}},
		"a browser fetches ahead":     {http.MethodGet, "/review", nil, []string{"Sec-Purpose", "prefetch", "Sec-Fetch-Site", "cross-site"}},
		"the agent edits it":          {http.MethodGet, "/review/edit", nil, authorization},
		"the agent approves it":       {http.MethodPost, "/review/decide", form, authorization},
		"the agent saves an edit":     {http.MethodPost, "/review/edit", form, authorization},
		"the agent revokes it":        {http.MethodPost, "/review/revoke", form, authorization},
		"the agent signs a passkey":   {http.MethodPost, "/passkeys/sign", form, authorization},
	} {
		for range 3 {
			var got [2]string
			for i, address := range []string{asked.ReviewURL, unknown} {
				address = strings.Replace(address, "/review", test.path, 1)
				request, err := http.NewRequestWithContext(t.Context(), test.method, address, strings.NewReader(test.form.Encode()))
				if err != nil {
					t.Fatal(err)
				}
				if test.form != nil {
					request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
				}
				for at := 0; at < len(test.headers); at += 2 {
					request.Header.Set(test.headers[at], test.headers[at+1])
				}
				response, err := http.DefaultClient.Do(request)
				if err != nil {
					t.Fatal(err)
				}
				text, err := io.ReadAll(response.Body)
				_ = response.Body.Close()
				if err != nil || test.method == http.MethodGet && !strings.Contains(string(text), "Sign in to review") || len(response.Cookies()) > 0 {
					t.Errorf("%s: %s %v %s (%v)", name, response.Status, response.Header, text, err)
				}
				got[i] = response.Status + string(text)
			}
			if test.form == nil && got[0] != got[1] {
				t.Errorf("%s: an address that there is is told from one that there isn't (-there is, +there isn't)\n%s", name, cmp.Diff(got[0], got[1]))
			}
		}
	}
	after, err := w.server.store.Request(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, after, cmpopts.IgnoreUnexported(approval.Request{})); diff != "" {
		t.Errorf("something has changed (-before +after)\n%s", diff)
	}
	events, err := w.server.store.EventsOf(t.Context(), id, 100)
	if err != nil || len(events) != 1 {
		t.Errorf("the request has %d events (%v)", len(events), err)
	}
	if _, err := apply(t, h.ClientSession, asked.ElicitationID); err == nil {
		t.Error("applied what nobody approved")
	}
}

// Where nobody can sign in, agents are told that people decide in Slack.
func TestWordsWithoutSigningIn(t *testing.T) {
	t.Parallel()
	p := newFrontedProgram(t)
	p.serve(t)
	w, token := p.world(), p.output(t, "token", "create", "crm-agent")
	asking := newHost(t, w.overHTTP(token, flowPath, true), legacy, showsLinks, says("accept"))
	asked := asking.ask(t, demoDelete)
	if want := "Whoever may decide is asked in Slack; to look at the request, people can open " + asked.ReviewURL + " (opening it decides nothing)."; !strings.Contains(asked.words, want) {
		t.Errorf("the agent isn't told %q: %s", want, asked.words)
	}
	calling := newHost(t, w.overHTTP(token, gatewayPath, true), legacy, showsLinks, says("accept"))
	offers(t, calling.ClientSession, crmTools...)
	waits := toolCall(t, calling.ClientSession, "delete_customer", deleteArguments)
	if want := "people can look at the request at " + calling.prompt(t).URL + " (opening it decides nothing)."; !strings.Contains(textOf(waits), want) {
		t.Errorf("the agent isn't told %q: %s", want, textOf(waits))
	}
}
