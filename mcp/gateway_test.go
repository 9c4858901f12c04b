package mcp_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"pgregory.net/rapid"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/approval/approvaltest"
	"github.com/countersign/countersign/internal/strictjson"
	"github.com/countersign/countersign/mcp"
)

// mirror is a gateway with one tool, "mirror", which says what the door told of
// the caller.
type mirror struct {
	removed atomic.Int32
	ended   chan error    // gets why the context of a call of "hang" ended
	hanging chan string   // gets a value when such a call begins
	over    chan struct{} // closed when no call of it may last any longer
}

func newMirror() *mirror {
	return &mirror{ended: make(chan error, 10), hanging: make(chan string, 10), over: make(chan struct{})}
}

func (m *mirror) Install(
	to *sdk.Server,
	caller func(sdk.Request) (approval.Agent, string, json.RawMessage, error),
	prompt func(context.Context, *sdk.CallToolRequest, approval.ID, string, time.Time) bool,
) func() {
	schema := json.RawMessage(`{"type":"object"}`)
	to.AddTool(&sdk.Tool{Name: "mirror", InputSchema: schema}, func(_ context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		agent, session, params, err := caller(r)
		if err != nil {
			return nil, err
		}
		return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: agent.Name}, &sdk.TextContent{Text: session}, &sdk.TextContent{Text: string(params)}}}, nil
	})
	to.AddTool(&sdk.Tool{Name: "link", InputSchema: schema}, func(ctx context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		var id struct{ ID approval.ID }
		if err := json.Unmarshal(r.Params.Arguments, &id); err != nil {
			return nil, err
		}
		sent := prompt(ctx, r, id.ID, reviewURL(id.ID), approvaltest.Start.Add(time.Hour))
		return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: strconv.FormatBool(sent)}}}, nil
	})
	to.AddTool(&sdk.Tool{Name: "hang", InputSchema: schema}, func(ctx context.Context, _ *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		m.hanging <- ""
		select {
		case <-ctx.Done():
			m.ended <- context.Cause(ctx)
			return nil, ctx.Err()
		case <-m.over:
			return nil, errors.New("nobody ended the call")
		}
	})
	return func() { m.removed.Add(1) }
}

// mirrored are the ways to a mirror.
var mirrored = map[string]func(testing.TB, *approvaltest.Fixture, *mirror) sdk.Transport{
	"stdio": func(t testing.TB, f *approvaltest.Fixture, m *mirror) sdk.Transport {
		return serveStdio(t, newLocal(t, f, 0), f.Agent, mcp.Options{Now: f.Clock.Now, Gateway: m}).transport()
	},
	"http": func(t testing.TB, f *approvaltest.Fixture, m *mirror) sdk.Transport {
		s := serveHTTP(t, f, newLocal(t, f, 0), mcp.HandlerOptions{Options: mcp.Options{Gateway: m}})
		return s.transport(t, s.token(t, f.Agent.Name))
	},
}

// A gateway is told who calls and in which session, and nothing else is served
// beside it than what goes with it.
func TestGatewayKnowsItsCallers(t *testing.T) {
	t.Parallel()
	for kind, reach := range mirrored {
		for _, version := range []string{legacy, modern} {
			t.Run(kind+"/"+version, func(t *testing.T) {
				t.Parallel()
				f, m := approvaltest.New(t), newMirror()
				session := connect(t, reach(t, f, m), version, nil)
				first, second := call(t, session, "mirror", `{}`), call(t, session, "mirror", `{"a":1}`)
				if got := textOf(t, first, 0); got != f.Agent.Name {
					t.Errorf("the caller is %q", got)
				}
				if got := textOf(t, second, 2); !strings.Contains(got, `"arguments":{"a":1}`) || !strings.Contains(got, `"name":"mirror"`) {
					t.Errorf("the parameters are %s", got)
				}
				name := textOf(t, first, 1)
				if name != textOf(t, second, 1) {
					t.Errorf("the session is called %q and %q", name, textOf(t, second, 1))
				}
				if has := kind == "stdio" || version < modern; (name != "") != has {
					t.Errorf("the session is called %q", name)
				}
				if id := session.ID(); id != "" && strings.Contains(name, id) {
					t.Errorf("the session's name %q tells its id", name)
				}
				tools, err := session.ListTools(t.Context(), nil)
				if err != nil {
					t.Fatal(err)
				}
				var names []string
				for _, tool := range tools.Tools {
					names = append(names, tool.Name)
				}
				slices.Sort(names)
				if diff := cmp.Diff([]string{"await_approval", "check_status", "hang", "link", "mirror"}, names); diff != "" {
					t.Errorf("tools (-want +got):\n%s", diff)
				}
				initialized := session.InitializeResult()
				can := initialized.Capabilities
				if can.Resources == nil || !can.Resources.ListChanged || can.Prompts == nil || !can.Prompts.ListChanged || !can.Tools.ListChanged || can.Completions == nil {
					t.Errorf("it says that it can %+v", can)
				}
				if !strings.Contains(initialized.Instructions, "await_result") || strings.Contains(initialized.Instructions, "request_approval") {
					t.Errorf("it says %s", initialized.Instructions)
				}
			})
		}
	}
}

func TestGatewaySessionsDiffer(t *testing.T) {
	t.Parallel()
	f, m := approvaltest.New(t), newMirror()
	s := serveHTTP(t, f, newLocal(t, f, 0), mcp.HandlerOptions{Options: mcp.Options{Gateway: m}})
	token := s.token(t, f.Agent.Name)
	seen := make(map[string]bool)
	for range 3 {
		seen[textOf(t, call(t, connect(t, s.transport(t, token), legacy, nil), "mirror", `{}`), 1)] = true
	}
	for range 2 {
		seen[textOf(t, call(t, connect(t, serveStdio(t, newLocal(t, f, 0), f.Agent, mcp.Options{Gateway: m}).transport(), modern, nil), "mirror", `{}`), 1)] = true
	}
	if len(seen) != 5 || seen[""] {
		t.Errorf("five sessions are called %v", seen)
	}
}

// Parameters reach the gateway as they were written, also those that the SDK
// can't read.
func TestGatewayGetsParametersAsWritten(t *testing.T) {
	t.Parallel()
	const arguments = `{ "z":1e400, "a":"\u003c\ud83d\ude00", "n":9007199254740993.10, "list":[ -0.0,1E+999 ] }`
	for _, kind := range []string{"stdio", "http"} {
		for _, version := range []string{legacy, modern} {
			t.Run(kind+"/"+version, func(t *testing.T) {
				t.Parallel()
				f, m := approvaltest.New(t), newMirror()
				var client raw
				if kind == "stdio" {
					client = newRawStdio(t, serveStdio(t, newLocal(t, f, 0), f.Agent, mcp.Options{Gateway: m}), version)
				} else {
					s := serveHTTP(t, f, newLocal(t, f, 0), mcp.HandlerOptions{Options: mcp.Options{Gateway: m}})
					client = newRawHTTP(t, s, s.token(t, f.Agent.Name), version)
				}
				got := client.call("mirror", arguments).text(t, 2)
				if !strings.HasPrefix(got, `{"name":"mirror","arguments":`+arguments) {
					t.Errorf("got %s", got)
				}
			})
		}
	}
}

// A caller that goes away ends what is done for it.
func TestGatewayLearnsThatACallerIsGone(t *testing.T) {
	t.Parallel()
	for kind, reach := range mirrored {
		for _, version := range []string{legacy, modern} {
			t.Run(kind+"/"+version, func(t *testing.T) {
				t.Parallel()
				f, m := approvaltest.New(t), newMirror()
				session := connect(t, reach(t, f, m), version, nil)
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				go func() {
					_, err := session.CallTool(ctx, &sdk.CallToolParams{Name: "hang"})
					ended <- err
				}()
				receive(t, m.hanging, "the call")
				cancel()
				if err := receive(t, m.ended, "the end of the call"); err == nil {
					t.Error("there is no cause")
				}
				receive(t, ended, "the call's end")
			})
		}
	}
}

// A client that hangs up says nothing, and the SDK doesn't notice it over the
// protocols with sessions.
func TestGatewayLearnsThatAClientHungUp(t *testing.T) {
	t.Parallel()
	f, m := approvaltest.New(t), newMirror()
	s := serveHTTP(t, f, newLocal(t, f, 0), mcp.HandlerOptions{Options: mcp.Options{Gateway: m}})
	token := s.token(t, f.Agent.Name)
	session := connect(t, s.transport(t, token), legacy, nil)
	ctx, hangUp := context.WithCancel(t.Context())
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL, strings.NewReader(`{"jsonrpc":"2.0","id":700,"method":"tools/call","params":{"name":"hang"}}`))
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{
		"Content-Type": "application/json", "Accept": "application/json, text/event-stream", "Authorization": "Bearer " + token,
		"Mcp-Protocol-Version": legacy, "Mcp-Session-Id": session.ID(),
	} {
		request.Header.Set(name, value)
	}
	client := &http.Client{Transport: s.Client().Transport.(*http.Transport).Clone()}
	t.Cleanup(client.CloseIdleConnections)
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		if response, err := client.Do(request); err == nil {
			_, _ = io.Copy(io.Discard, response.Body)
			_ = response.Body.Close()
		}
	}()
	t.Cleanup(func() { close(m.over) })
	receive(t, m.hanging, "the call")
	hangUp()
	if err := receive(t, m.ended, "the end of the call"); err == nil {
		t.Error("there is no cause")
	}
	<-answered
}

func TestGatewayPrompts(t *testing.T) {
	t.Parallel()
	for kind, reach := range mirrored {
		for _, version := range []string{legacy, modern} {
			t.Run(kind+"/"+version, func(t *testing.T) {
				t.Parallel()
				f, h := approvaltest.New(t), newHost()
				r := f.Propose(t)
				session := connect(t, reach(t, f, newMirror()), version, h.options(showsURLs))
				arguments := `{"id":"` + string(r.ID) + `"}`
				for range 2 {
					if got, want := textOf(t, call(t, session, "link", arguments), 0), strconv.FormatBool(version < modern); got != want {
						t.Errorf("sent: %s, want %s", got, want)
					}
				}
				if version >= modern {
					if len(h.shown) > 0 {
						t.Error("the link is shown where nothing can be asked")
					}
					return
				}
				if shown := receive(t, h.shown, "the link"); shown.Mode != "url" || shown.URL != reviewURL(r.ID) {
					t.Errorf("shown %+v", shown)
				}
				if len(h.shown) > 0 {
					t.Error("it is shown twice")
				}
				f.Decide(t, approvaltest.Alice, r, approval.Approve)
				if got := receive(t, h.completed, "that it is over"); got != string(r.ID) {
					t.Errorf("%s is over", got)
				}
			})
		}
	}
}

// A host without an event stream of its own is told that a prompt is over before
// the result of its next call, whichever tool that is of, and once.
func TestGatewayCompletesWithoutAnEventStream(t *testing.T) {
	t.Parallel()
	f, h := approvaltest.New(t), newHost()
	s := serveHTTP(t, f, newLocal(t, f, 0), mcp.HandlerOptions{Options: mcp.Options{Gateway: newMirror()}})
	transport := s.transport(t, s.token(t, f.Agent.Name))
	transport.DisableStandaloneSSE = true
	session := connect(t, transport, legacy, h.options(showsURLs))
	first, second := f.Propose(t), f.Propose(t)
	for _, r := range []*approval.Request{first, second} {
		if got := textOf(t, call(t, session, "link", `{"id":"`+string(r.ID)+`"}`), 0); got != "true" {
			t.Fatalf("the link of %s is sent: %s", r.ID, got)
		}
		receive(t, h.shown, "the link")
	}
	f.Decide(t, approvaltest.Alice, first, approval.Approve)
	for range 2 {
		call(t, session, "mirror", `{}`)
	}
	if got := receive(t, h.completed, "that it is over"); got != string(first.ID) {
		t.Errorf("%s is over", got)
	}
	if len(h.completed) > 0 {
		t.Errorf("then %s is over", <-h.completed)
	}
	f.Decide(t, approvaltest.Alice, second, approval.Reject)
	call(t, session, "mirror", `{}`)
	if got := receive(t, h.completed, "that the second is over"); got != string(second.ID) {
		t.Errorf("%s is over", got)
	}
}

func TestGatewayIsTakenOff(t *testing.T) {
	t.Parallel()
	f, m := approvaltest.New(t), newMirror()
	handler := mcp.NewHandler(newLocal(t, f, 0), mcp.HandlerOptions{Options: mcp.Options{Gateway: m}})
	handler.Close()
	in, out := newPipe(), newPipe()
	_ = in.PipeWriter.Close()
	if err := mcp.ServeStdio(t.Context(), newLocal(t, f, 0), f.Agent, in.PipeReader, out.PipeWriter, mcp.Options{Gateway: m}); err != nil {
		t.Fatal(err)
	}
	if got := m.removed.Load(); got != 2 {
		t.Errorf("taken off %d times, want 2", got)
	}
}

// The words on a request that the server runs never send the agent to apply.
func TestGatewayGuidance(t *testing.T) {
	t.Parallel()
	f := approvaltest.New(t)
	session := connect(t, mirrored["stdio"](t, f, newMirror()), legacy, nil)
	flow := connect(t, serveStdio(t, newLocal(t, f, 0), f.Agent, mcp.Options{Now: f.Clock.Now}).transport(), legacy, nil)
	if _, err := f.Service.SeeTool(t.Context(), "files", "delete", approval.ToolDefinition{Pin: "p", JSON: []byte(`{}`)}); err != nil {
		t.Fatal(err)
	}
	propose := func() *approval.Request {
		return f.Propose(t, func(p *approval.Proposal) {
			p.Action, p.Executor, p.ToolPin = "files.delete", approval.ByGateway, "p"
			p.Payload = []byte(`{"at":"` + p.Target + `"}`)
		})
	}
	says := func(r *approval.Request, want ...string) {
		t.Helper()
		text := textOf(t, call(t, session, "check_status", `{"requestId":"`+string(r.ID)+`"}`), 1)
		for _, part := range want {
			if !strings.Contains(text, part) {
				t.Errorf("lacks %q: %s", part, text)
			}
		}
		if strings.Contains(text, "apply") || strings.Contains(text, "request_approval") {
			t.Errorf("sends the agent elsewhere: %s", text)
		}
	}
	r := propose()
	says(r, "Nobody has decided yet", "await_result")
	if got := refused(t, flow, "apply", byID(r.ID)); !strings.Contains(got, "The server runs this itself") {
		t.Errorf("apply: %s", got)
	}
	f.Decide(t, approvaltest.Alice, r, approval.Approve)
	says(r, "Approved.", "The server runs the call itself", "await_result")
	if _, err := f.Service.ClaimToRun(t.Context(), r.ID, "p"); err != nil {
		t.Fatal(err)
	}
	says(r, "runs now", "await_result")
	if _, err := f.Service.FinishRun(t.Context(), r.ID, approval.Report{Outcome: approval.Succeeded, Result: []byte(`{}`)}); err != nil {
		t.Fatal(err)
	}
	says(r, "has run", "await_result")

	r = propose()
	f.Decide(t, approvaltest.Alice, r, approval.Reject)
	says(r, "person said no", "Don't retry, rephrase")
	if err := f.Service.SetPolicy(t.Context(), approvaltest.ParsePolicy(t, `
version: 1
mode: cautious
roles: {finance: {users: [U0ALICE]}}
approval: {requires: [{role: finance}]}
in_band: {tiers: [3], environments: [production]}
integrations: {files: {tools: {delete: {tier: 3}}}}
`)); err != nil {
		t.Fatal(err)
	}
	r = propose()
	if _, err := f.Service.Confirm(t.Context(), f.Agent, approvaltest.Answer(r, false)); err != nil {
		t.Fatal(err)
	}
	says(r, "The agent's client declined.", "Nothing ran")
	r = propose()
	if _, err := f.Service.SeeTool(t.Context(), "files", "delete", approval.ToolDefinition{Pin: "q", JSON: []byte(`{"x":1}`)}); err != nil {
		t.Fatal(err)
	}
	says(r, "no longer counts", "The tool's definition has changed", "Nothing ran")
	r = f.Propose(t, func(p *approval.Proposal) {
		p.Action, p.Executor, p.ToolPin = "files.delete", approval.ByGateway, "q"
	})
	f.Clock.Advance(2 * time.Hour)
	says(r, "Nobody decided in time", "Silence is not consent")
}

// A text that the SDK can read differs from what was written in the numbers that
// no float64 holds, and in nothing else.
func TestReadable(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"a":1e400}`:                           `{"a":0}`,
		`[-1E+999,1.5e308,1e309]`:               `[0,1.5e308,0]`,
		`{"1e400":"1e400 \" 1e400","\\":1e400}`: `{"1e400":"1e400 \" 1e400","\\":0}`,
		`1e-999`:                                `1e-999`,
		`{"a":[true,null,"e"]}`:                 `{"a":[true,null,"e"]}`,
		strings.Repeat("9", 400):                "0",
		`"`:                                     `"`,
	} {
		if got := string(mcp.Readable([]byte(text))); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		text := value(t, 3)
		if err := strictjson.Check([]byte(text)); err != nil {
			t.Fatalf("the test writes %s: %v", text, err)
		}
		got := mcp.Readable([]byte(text))
		var decoded any
		if err := json.Unmarshal(got, &decoded); err != nil {
			t.Fatalf("%s can't be read: %v", got, err)
		}
		if json.Unmarshal([]byte(text), &decoded) == nil && string(got) != text {
			t.Fatalf("%s was changed to %s", text, got)
		}
	})
}

// value is some JSON value without keys that are there twice.
func value(t *rapid.T, depth int) string {
	if depth == 0 || rapid.Bool().Draw(t, "leaf") {
		return rapid.SampledFrom([]string{"0", "-0.0", "1e400", "-1e400", "1e308", "17.5E-3", `"1e400"`, `"\\\" 1e400"`, `"\u0031"`, "true", "null", `""`}).Draw(t, "value")
	}
	var parts []string
	list := rapid.Bool().Draw(t, "list")
	for i := range rapid.IntRange(0, 3).Draw(t, "length") {
		part := value(t, depth-1)
		if !list {
			part = `"` + strconv.Itoa(i) + ` e9" : ` + part
		}
		parts = append(parts, part)
	}
	if list {
		return "[" + strings.Join(parts, " ,\n") + "]"
	}
	return "{" + strings.Join(parts, ",") + "}"
}
