package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/approval/approvaltest"
)

// by are the arguments of the tools that take a request's id.
func by(id approval.ID) string { return fmt.Sprintf(`{"requestId":%q}`, id) }

// requireText checks that a text has all the parts.
func requireText(t testing.TB, got string, want ...string) {
	t.Helper()
	for _, part := range want {
		if !strings.Contains(got, part) {
			t.Errorf("the text lacks %q: %s", part, got)
		}
	}
}

// What policy allows is forwarded at once, and what came of it is on record.
func TestAllowed(t *testing.T) {
	t.Parallel()
	everyDoor(t, worldOptions{servers: []string{"free"}, prepare: withBroken}, func(t *testing.T, w *world, reach func(*sdk.ClientOptions) *sdk.ClientSession) {
		session := reach(nil)
		if got := firstText(t, ask(t, session, "echo", `{"n":9007199254740993}`)); got != `{"n":9007199254740993}` {
			t.Errorf("echoed %s", got)
		}
		broken := ask(t, session, "broken", `{}`)
		if !broken.IsError || firstText(t, broken) != "it broke" {
			t.Errorf("broken: %+v", broken)
		}
		_, err := session.CallTool(t.Context(), &sdk.CallToolParams{Name: "fail", Arguments: json.RawMessage(`{"code":-32042,"message":"no","data":{"z":1,"a":2}}`)})
		wire, ok := errors.AsType[*jsonrpc.Error](err)
		if !ok || wire.Code != -32042 || wire.Message != "no" || string(wire.Data) != `{"z":1,"a":2}` {
			t.Errorf("failing: %v", err)
		}
		r := w.find(t, "free.echo", `{"n":9007199254740993}`)
		requireOutcome(t, r, approval.Succeeded, `{"n":9007199254740993}`)
		requireOutcome(t, w.find(t, "free.broken", `{}`), approval.Failed, "it broke")
		requireOutcome(t, w.find(t, "free.fail", `{"code":-32042,"message":"no","data":{"z":1,"a":2}}`), approval.Failed, "no")
		if r.Executor != approval.ByGateway || r.Action != "free.echo" || r.Purpose != "Call echo of free" || r.Environment != "staging" ||
			string(r.Payload) != `{"n":9007199254740993}` || r.ToolPin == "" || r.Unpinned || r.Session == "" && session.InitializeResult().ProtocolVersion < modern {
			t.Errorf("recorded as %s of %q in %q, pin %q, unpinned %v, in session %q", r.Action, r.Purpose, r.Environment, r.ToolPin, r.Unpinned, r.Session)
		}
		if r.Execution.ResultSize != 0 || r.Execution.ReturnedAt.IsZero() {
			t.Errorf("what the agent got at once is kept: %+v", r.Execution)
		}
		// Without arguments, what runs is the empty object.
		if _, err := session.CallTool(t.Context(), &sdk.CallToolParams{Name: "echo"}); err != nil {
			t.Fatal(err)
		}
		requireOutcome(t, w.find(t, "free.echo", `{}`), approval.Succeeded, "")
	})
}

// withBroken adds tools to a server: one that fails, and one with an output schema.
func withBroken(s *testServer) {
	plain := json.RawMessage(`{"type":"object"}`)
	s.AddTool(&sdk.Tool{Name: "broken", InputSchema: plain}, func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		result := textResult("it broke")
		result.IsError = true
		return result, nil
	})
	s.AddTool(&sdk.Tool{Name: "typed", InputSchema: plain, OutputSchema: json.RawMessage(`{"type":"object","required":["n"]}`)}, func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		return &sdk.CallToolResult{StructuredContent: json.RawMessage(`{"n":1}`)}, nil
	})
}

func TestDenied(t *testing.T) {
	t.Parallel()
	everyDoor(t, worldOptions{servers: []string{"blocked"}}, func(t *testing.T, w *world, reach func(*sdk.ClientOptions) *sdk.ClientSession) {
		result := ask(t, reach(accepting(nil)), "echo", `{}`)
		if !result.IsError {
			t.Error("a denied call is no error")
		}
		requireText(t, firstText(t, result), "Nothing ran", "the policy denies", "Agents don't do this.", "Don't reach the same effect another way")
		w.requireCalls(t)
	})
}

// What policy leaves to people waits, runs once when it is approved, and the
// agent gets the true result.
func TestApprovedByPeople(t *testing.T) {
	t.Parallel()
	everyDoor(t, worldOptions{servers: []string{"hard"}}, func(t *testing.T, w *world, reach func(*sdk.ClientOptions) *sdk.ClientSession) {
		session := reach(nil)
		result := ask(t, session, "echo", `{"b":1,"a":0.10}`)
		r := w.requirePending(t, result)
		if result.IsError {
			t.Error("waiting is an error")
		}
		requireText(t, firstText(t, result), "NOT RUN YET", string(r.ID), reviewURL(r.ID), "await_result", "2026-01-02T04:04:05.678Z")
		structured, _ := json.Marshal(result.StructuredContent)
		if want := fmt.Sprintf(`{"expiresAt":"2026-01-02T04:04:05.678Z","requestId":%q,"reviewUrl":%q,"status":"pending_approval"}`, r.ID, reviewURL(r.ID)); string(structured) != want {
			t.Errorf("structured as %s, want %s", structured, want)
		}
		w.requireCalls(t)
		if again := w.requirePending(t, ask(t, session, "echo", `{ "a":0.10, "b":1 }`)); again.ID != r.ID {
			t.Errorf("the same call waits as %s and as %s", r.ID, again.ID)
		}
		requireText(t, lastText(t, ask(t, session, "check_status", by(r.ID))), "Nobody has decided yet", "await_result", "Don't call the tool again")

		w.Decide(t, approvaltest.Alice, r, approval.Approve)
		done := w.settled(t, r.ID)
		requireOutcome(t, done, approval.Succeeded, `{"b":1,"a":0.10,"key":"req_`)
		if got := keyed(`{"b":1,"a":0.10}`, r); firstText(t, ask(t, session, "await_result", by(r.ID))) != got {
			t.Errorf("the result isn't %s", got)
		}
		for _, tool := range []string{"check_status", "await_approval"} {
			requireText(t, lastText(t, ask(t, session, tool, by(r.ID))), "has run", "await_result")
			requireText(t, lastText(t, ask(t, session, tool, fmt.Sprintf(`{"elicitationId":%q}`, r.ID))), "has run")
		}
		w.requireCalls(t, arrived{"echo", keyed(`{"b":1,"a":0.10}`, r)})
		// It was taken, so the same call is another one.
		if next := w.requirePending(t, ask(t, session, "echo", `{"b":1,"a":0.10}`)); next.ID == r.ID {
			t.Error("a call whose result was taken is the same one still")
		}
		// And its result stays there for who lost it.
		if got := firstText(t, ask(t, session, "await_result", by(r.ID))); got != keyed(`{"b":1,"a":0.10}`, r) {
			t.Errorf("the second time, the result is %s", got)
		}
	})
}

// lastText is the last text of a result.
func lastText(t testing.TB, result *sdk.CallToolResult) string {
	t.Helper()
	content, ok := result.Content[len(result.Content)-1].(*sdk.TextContent)
	if !ok {
		t.Fatalf("the content is a %T", result.Content[len(result.Content)-1])
	}
	return content.Text
}

// An agent that comes back with the same call gets what came of it, once.
func TestSameCallGetsTheResult(t *testing.T) {
	t.Parallel()
	everyDoor(t, worldOptions{servers: []string{"hard"}}, func(t *testing.T, w *world, reach func(*sdk.ClientOptions) *sdk.ClientSession) {
		session := reach(nil)
		r := w.requirePending(t, ask(t, session, "echo", `{"a":1}`))
		w.Decide(t, approvaltest.Alice, r, approval.Approve)
		if got := firstText(t, ask(t, session, "echo", `{"a":1}`)); got != keyed(`{"a":1}`, r) {
			t.Errorf("the same call gets %s", got)
		}
		w.requireCalls(t, arrived{"echo", keyed(`{"a":1}`, r)})
		w.requirePending(t, ask(t, session, "echo", `{"a":1}`))
	})
}

func TestRejected(t *testing.T) {
	t.Parallel()
	everyDoor(t, worldOptions{servers: []string{"hard"}}, func(t *testing.T, w *world, reach func(*sdk.ClientOptions) *sdk.ClientSession) {
		session := reach(nil)
		r := w.requirePending(t, ask(t, session, "echo", `{}`))
		ballot := approvaltest.Ballot(r, approval.Reject)
		ballot.Reason = `Not "now"`
		if _, err := w.Service.Decide(t.Context(), approvaltest.Alice, ballot); err != nil {
			t.Fatal(err)
		}
		result := ask(t, session, "await_result", by(r.ID))
		if !result.IsError {
			t.Error("a rejection is no error")
		}
		for _, text := range []string{firstText(t, result), lastText(t, ask(t, session, "check_status", by(r.ID)))} {
			requireText(t, text, "person said no", `Not \"now\"`, "Don't retry, rephrase")
		}
		w.requireCalls(t)
	})
}

func TestExpired(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{servers: []string{"hard"}})
	session := connect(t, w.stdio(t), modern, nil)
	r := w.requirePending(t, ask(t, session, "echo", `{}`))
	w.Clock.Advance(2 * time.Hour)
	for _, text := range []string{firstText(t, ask(t, session, "await_result", by(r.ID))), lastText(t, ask(t, session, "check_status", by(r.ID)))} {
		requireText(t, text, "obody decided in time", "Silence is not consent", "nobody refused")
	}
	w.requireCalls(t)
}

// An agent sees its own requests only.
func TestOthersRequests(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{servers: []string{"hard"}})
	d := w.listen(t)
	mine := connect(t, d.transport(t, w.Agent.Name), modern, nil)
	other := connect(t, d.transport(t, "spy"), legacy, nil)
	r := w.requirePending(t, ask(t, mine, "echo", `{}`))
	w.Decide(t, approvaltest.Alice, r, approval.Approve)
	w.settled(t, r.ID)
	for _, tool := range []string{"await_result", "await_approval", "check_status"} {
		result := ask(t, other, tool, by(r.ID))
		if !result.IsError {
			t.Errorf("%s tells another agent", tool)
		}
		requireText(t, firstText(t, result), "no such request of yours")
	}
	// The same call of another agent is another request.
	if next := w.requirePending(t, ask(t, other, "echo", `{}`)); next.ID == r.ID || next.Agent != "spy" {
		t.Errorf("another agent's call is %+v", next)
	}
}

func TestBadInput(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{servers: []string{"free"}})
	d := w.listen(t)
	for _, version := range []string{legacy, modern} {
		h := d.byHand(t, w.Agent.Name, version, "{}")
		for _, test := range []struct{ tool, arguments, want string }{
			{"echo", `{"a":1,"a":2}`, "duplicate key"},
			{"echo", `{"a":1,"\u0061":2}`, "duplicate key"},
			{"echo", `{"a":"\ud800"}`, "surrogate"},
			{"echo", `[1]`, "JSON object"},
			{"echo", `"x"`, "JSON object"},
			{"echo", `{"a":"` + strings.Repeat("x", approval.DefaultPayloadLimit) + `"}`, "at most"},
			{"await_result", `{}`, "requestId"},
			{"await_result", `{"requestId":7}`, "requestId"},
			{"await_result", `{"requestId":"req_1","more":1}`, "requestId"},
			{"await_result", `{"requestId":"req_1"}`, "no such request"},
			{"await_approval", `{}`, "requestId"},
			{"check_status", `{"requestId":7}`, "is a number"},
		} {
			result, err := h.tool(test.tool, test.arguments, "")
			if err != nil || !strings.Contains(string(result), `"isError":true`) || !strings.Contains(string(result), test.want) {
				t.Errorf("%s: %s %.60s: %.300s (%v), want %q", version, test.tool, test.arguments, result, err, test.want)
			}
		}
	}
	w.requireCalls(t)
	if n := len(w.all(t)); n != 0 {
		t.Errorf("%d requests are stored", n)
	}
}

// Clients refuse structured content that a tool's output schema doesn't have, and
// none at all, unless the result is an error.
func TestWaitingOfATypedTool(t *testing.T) {
	t.Parallel()
	everyDoor(t, worldOptions{servers: []string{"hard"}, prepare: withBroken}, func(t *testing.T, w *world, reach func(*sdk.ClientOptions) *sdk.ClientSession) {
		session := reach(nil)
		result := ask(t, session, "typed", `{}`)
		r := w.requirePending(t, result)
		if !result.IsError || result.StructuredContent != nil {
			t.Errorf("waiting is %+v", result)
		}
		requireText(t, firstText(t, result), "NOT RUN YET", "no refusal")
		w.Decide(t, approvaltest.Alice, r, approval.Approve)
		result = ask(t, session, "await_result", by(r.ID))
		if got, _ := json.Marshal(result.StructuredContent); result.IsError || string(got) != `{"n":1}` {
			t.Errorf("the result is %+v", result)
		}
	})
}

// Agents are told where people decide, and that the address alone decides nothing.
func TestWhereToDecide(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		decides bool
		want    string
	}{
		"in Slack only": {false, "Whoever may decide is asked; people can look at the request at URL (opening it decides nothing). It expires"},
		"on the page":   {true, "Whoever may decide is asked in Slack; people can also decide at URL, where they sign in (opening it decides nothing). It expires"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, worldOptions{servers: []string{"hard"}, options: func(o *Options) { o.ReviewDecides = test.decides }})
			result := ask(t, clients["stdio/legacy"](t, w, nil), "echo", `{}`)
			r := w.requirePending(t, result)
			requireText(t, firstText(t, result), strings.ReplaceAll(test.want, "URL", reviewURL(r.ID)))
		})
	}
}

// A call can be held until it has run.
func TestHeld(t *testing.T) {
	t.Parallel()
	hold := func(o *Options) { o.Approval = Hold }
	everyDoor(t, worldOptions{servers: []string{"hard"}, options: hold}, func(t *testing.T, w *world, reach func(*sdk.ClientOptions) *sdk.ClientSession) {
		told := make(chan *sdk.ProgressNotificationParams, 100)
		session := reach(&sdk.ClientOptions{ProgressNotificationHandler: func(_ context.Context, r *sdk.ProgressNotificationClientRequest) {
			told <- r.Params
		}})
		answers := make(chan *sdk.CallToolResult, 1)
		go func() {
			params := &sdk.CallToolParams{Name: "count", Arguments: json.RawMessage(`{}`)}
			params.SetProgressToken("p")
			result, err := session.CallTool(t.Context(), params)
			if err != nil {
				t.Error(err)
			}
			answers <- result
		}()
		first := receive(t, told)
		requireText(t, first.Message, "Waiting for a person: 1 of finance", "1 h 0 min left")
		r := w.only(t)
		w.Decide(t, approvaltest.Alice, r, approval.Approve)
		if got := firstText(t, receive(t, answers)); got != "counted" {
			t.Errorf("the held call gets %s", got)
		}
		last := first.Progress
		for len(told) > 0 {
			next := <-told
			if next.Progress <= last {
				t.Errorf("progress goes from %v to %v", last, next.Progress)
			}
			last = next.Progress
		}
		requireOutcome(t, w.load(t, r.ID), approval.Succeeded, "counted")
	})
}

// A call that was held for as long as it may be waits on without the agent.
func TestHeldForTooLong(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{servers: []string{"hard"}, options: func(o *Options) { o.Approval, o.HoldBound, o.AwaitBound = Hold, time.Second, time.Second }})
	session := connect(t, w.stdio(t), modern, nil)
	r := w.requirePending(t, ask(t, session, "echo", `{}`))
	if again := w.requirePending(t, ask(t, session, "await_result", by(r.ID))); again.ID != r.ID {
		t.Errorf("waiting for %s", again.ID)
	}
	w.Service.Drain()
	began := time.Now()
	w.requirePending(t, ask(t, session, "echo", `{}`))
	if took := time.Since(began); took > 900*time.Millisecond {
		t.Errorf("a draining server holds a call for %s", took)
	}
}

// A person's grant lets the same call of the same target run at once, in its
// session, until it is revoked.
func TestGranted(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{servers: []string{"soft"}})
	d := w.listen(t)
	session := connect(t, d.transport(t, w.Agent.Name), legacy, nil)
	r := w.requirePending(t, ask(t, session, "echo", `{"id":"a","n":1}`))
	ballot := approvaltest.Ballot(r, approval.Approve)
	ballot.Scope = approval.ScopeSession
	if _, err := w.Service.Decide(t.Context(), approvaltest.Alice, ballot); err != nil {
		t.Fatal(err)
	}
	w.settled(t, r.ID)
	if got := firstText(t, ask(t, session, "echo", `{"id":"a","n":2}`)); got != `{"id":"a","n":2}` {
		t.Errorf("a granted call says %s", got)
	}
	granted := w.find(t, "soft.echo", `{"id":"a","n":2}`)
	if granted.GrantedBy != r.ID || granted.Execution.ReturnedAt.IsZero() || granted.Execution.ResultSize != 0 {
		t.Errorf("granted by %q, returned at %s, kept %d bytes", granted.GrantedBy, granted.Execution.ReturnedAt, granted.Execution.ResultSize)
	}
	requireOutcome(t, granted, approval.Succeeded, "")
	w.requirePending(t, ask(t, session, "echo", `{"id":"b"}`))
	elsewhere := connect(t, d.transport(t, w.Agent.Name), legacy, nil)
	w.requirePending(t, ask(t, elsewhere, "echo", `{"id":"a","n":3}`))
	if _, err := w.Service.RevokeGrant(t.Context(), approvaltest.Alice, r.ID, approval.Slack); err != nil {
		t.Fatal(err)
	}
	w.requirePending(t, ask(t, session, "echo", `{"id":"a","n":4}`))
}

// A tool that isn't what was pinned is unclassified, and what waits for it is
// asked again.
func TestChangedTool(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{servers: []string{"free", "hard"}, prepare: withBroken})
	session := connect(t, w.stdio(t), legacy, nil)
	if got := firstText(t, ask(t, session, "free__broken", `{}`)); got != "it broke" {
		t.Fatalf("broken says %s", got)
	}
	waiting := w.requirePending(t, ask(t, session, "hard__broken", `{}`))
	w.downstream.AddTool(&sdk.Tool{Name: "broken", Description: "Now it does something else", InputSchema: json.RawMessage(`{"type":"object"}`)}, w.downstream.echo)
	w.logs.await(t, 1, "isn't what was pinned", "tool=free.broken")
	w.logs.await(t, 1, "isn't what was pinned", "tool=hard.broken")
	r := w.requirePending(t, ask(t, session, "free__broken", `{}`))
	if !r.Unpinned || r.Ruling.Classified {
		t.Errorf("unpinned %v, classified %v", r.Unpinned, r.Ruling.Classified)
	}
	result := ask(t, session, "await_result", by(waiting.ID))
	requireText(t, firstText(t, result), "Nothing ran", "The tool's definition has changed")
	tool, err := w.Service.Tool(t.Context(), "free", "broken")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Service.PinTool(t.Context(), approval.Operator{Name: "test"}, "free", "broken", tool.Seen.Pin); err != nil {
		t.Fatal(err)
	}
	if got := firstText(t, ask(t, session, "free__broken", `{"a":1}`)); got != `{"a":1}` {
		t.Errorf("the pinned tool says %s", got)
	}
}

// What a downstream server asks reaches the agent's client, and the call goes on
// with the answer.
func TestInputPasses(t *testing.T) {
	t.Parallel()
	t.Run("to who can be asked in answers", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, worldOptions{servers: []string{"free"}})
		h := w.listen(t).byHand(t, w.Agent.Name, modern, `{"elicitation":{}}`)
		result := h.must("input", `{}`, "")
		want := strings.TrimSuffix(inputNeeded, "}")
		if !strings.HasPrefix(string(result), want) {
			t.Errorf("got %s, want %s", result, want)
		}
		// A state that isn't ours goes on to the server.
		result = h.must("echo", `{"a":1}`, `,"requestState":"sealed","inputResponses":{"q":{"action":"accept","content":{"n":9007199254740993}}}`)
		if got := texts(t, string(result))[0]; got != `{"a":1}` {
			t.Errorf("echoed %s", got)
		}
		// If it doesn't go on, the server was called all the same.
		for _, test := range []struct{ more, says string }{
			{`,"requestState":"sealed","inputResponses":{"q":{"action":"decline"}}`, "may have done something"},
			{"", "Nothing ran"},
		} {
			text := string(h.must("echo", `{"a":1,"A":1}`, test.more))
			requireText(t, text, test.says, "in different case. Use one.")
			if test.more != "" && strings.Contains(text, "Nothing ran") {
				t.Errorf("something may have run, but: %s", text)
			}
		}
	})
	t.Run("to who can be asked at once", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, worldOptions{servers: []string{"free"}, prepare: func(s *testServer) {
			s.AddTool(&sdk.Tool{Name: "twice", InputSchema: json.RawMessage(`{"type":"object"}`)}, func(_ context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
				if answer, ok := r.Params.InputResponses["q"].(*sdk.ElicitResult); ok {
					return textResult(fmt.Sprint(r.Params.RequestState, " ", answer.Action, " ", answer.Content["approve"])), nil
				}
				return &sdk.CallToolResult{RequestState: "state", InputRequests: sdk.InputRequestMap{"q": &sdk.ElicitParams{Message: "Sure?", RequestedSchema: json.RawMessage(`{"type":"object"}`)}}}, nil
			})
		}})
		var asked []*sdk.ElicitParams
		session := connect(t, w.listen(t).transport(t, w.Agent.Name), legacy, accepting(&asked))
		if got := firstText(t, ask(t, session, "twice", `{}`)); got != "state accept true" || len(asked) != 1 || asked[0].Message != "Sure?" {
			t.Errorf("got %s after %d questions", got, len(asked))
		}
		if n := len(w.all(t)); n != 2 {
			t.Errorf("%d calls were gated, want both", n)
		}
		unable := connect(t, w.stdio(t), legacy, nil)
		requireText(t, firstText(t, ask(t, unable, "twice", `{}`)), "asks for input", "doesn't support")
	})
	t.Run("during a call", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, worldOptions{servers: []string{"free"}, version: legacy})
		session := connect(t, w.listen(t).transport(t, w.Agent.Name), legacy, answering("accept", map[string]any{"zeta": 7, "alpha": "a"}, nil))
		if got := firstText(t, ask(t, session, "ask", `{}`)); !strings.Contains(got, `"zeta":7`) || !strings.Contains(got, "accept") {
			t.Errorf("the server was told %s", got)
		}
		unable := connect(t, w.stdio(t), legacy, nil)
		if got := firstText(t, ask(t, unable, "ask", `{}`)); !strings.Contains(got, "cancel") {
			t.Errorf("the server was told %s", got)
		}
	})
	t.Run("to nobody", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, worldOptions{servers: []string{"hard"}})
		session := connect(t, w.stdio(t), modern, accepting(nil))
		r := w.requirePending(t, ask(t, session, "input", `{}`))
		w.Decide(t, approvaltest.Alice, r, approval.Approve)
		requireText(t, firstText(t, ask(t, session, "await_result", by(r.ID))), "asked for input", "nobody could be asked")
		requireOutcome(t, w.load(t, r.ID), approval.Failed, "It asked for input")
	})
}

// A caller that goes away ends its call downstream, and nobody knows what came of
// it.
func TestCancelled(t *testing.T) {
	t.Parallel()
	everyDoor(t, worldOptions{servers: []string{"free"}}, func(t *testing.T, w *world, reach func(*sdk.ClientOptions) *sdk.ClientSession) {
		session := reach(nil)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			_, err := session.CallTool(ctx, &sdk.CallToolParams{Name: "wait", Arguments: json.RawMessage(`{"id":"x"}`)})
			ended <- err
		}()
		receive(t, w.downstream.waiting)
		cancel()
		if err := receive(t, ended); err == nil {
			t.Error("a cancelled call succeeds")
		}
		receive(t, w.downstream.cancelled)
		requireOutcome(t, w.settled(t, w.only(t).ID), approval.Unknown, "cancelled the call")
	})
}
