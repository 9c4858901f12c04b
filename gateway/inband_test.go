package gateway

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/approval/approvaltest"
	"github.com/countersign/countersign/internal/seal"
)

// destination is told of what people decide on.
const destination = "slack:C1"

// tellingWorld is a world with a destination, of which a test sees whether it is
// told.
func tellingWorld(t testing.TB, o worldOptions) *world {
	t.Helper()
	o.fixture = approvaltest.New(t, func(settings *approval.Options) {
		settings.Policy, settings.Destinations = approvaltest.ParsePolicy(t, worldPolicy), []string{destination}
	})
	return newWorld(t, o)
}

// toldOf reports whether a destination has to be told of anything.
func (w *world) told(t testing.TB) bool {
	t.Helper()
	_, due, err := w.Store.NextNotice(t.Context(), destination, w.Clock.Now())
	if err != nil {
		t.Fatal(err)
	}
	return due
}

// clients are the ways in which a client can be asked.
var clients = map[string]func(testing.TB, *world, *sdk.ClientOptions) *sdk.ClientSession{
	"http/legacy": func(t testing.TB, w *world, o *sdk.ClientOptions) *sdk.ClientSession {
		return connect(t, w.listen(t).transport(t, w.Agent.Name), legacy, o)
	},
	"http/modern": func(t testing.TB, w *world, o *sdk.ClientOptions) *sdk.ClientSession {
		return connect(t, w.listen(t).transport(t, w.Agent.Name), modern, o)
	},
	"stdio/legacy": func(t testing.TB, w *world, o *sdk.ClientOptions) *sdk.ClientSession {
		return connect(t, w.stdio(t), legacy, o)
	},
	"stdio/modern": func(t testing.TB, w *world, o *sdk.ClientOptions) *sdk.ClientSession {
		return connect(t, w.stdio(t), modern, o)
	},
}

// Where policy lets the client's word be enough, the client is asked and nobody
// else, and only a plain yes is one.
func TestConfirmedInTheClient(t *testing.T) {
	t.Parallel()
	for kind, reach := range clients {
		for _, test := range []struct {
			name, action string
			content      map[string]any
			runs         bool
		}{
			{"yes", "accept", map[string]any{"approve": true}, true},
			{"no", "accept", map[string]any{"approve": false}, false},
			{"nothing", "accept", nil, false},
			{"text", "accept", map[string]any{"approve": "true"}, false},
			{"a number", "accept", map[string]any{"approve": 1.0}, false},
			{"something else", "accept", map[string]any{"yes": true}, false},
			{"declined", "decline", nil, false},
			{"declined with a yes", "decline", map[string]any{"approve": true}, false},
			{"cancelled", "cancel", nil, false},
			{"an unknown action", "", map[string]any{"approve": true}, false},
		} {
			t.Run(kind+"/"+test.name, func(t *testing.T) {
				t.Parallel()
				w := tellingWorld(t, worldOptions{servers: []string{"soft"}})
				var asked []*sdk.ElicitParams
				session := reach(t, w, answering(test.action, test.content, &asked))
				const arguments = `{"id":"a\u202e","n":1}`
				result, err := session.CallTool(t.Context(), &sdk.CallToolParams{Name: "echo", Arguments: json.RawMessage(arguments)})
				if err != nil {
					// The SDK's client refuses to send an answer that isn't one.
					if test.runs {
						t.Fatal(err)
					}
					w.requireCalls(t)
					return
				}
				switch test.name {
				case "text", "a number", "something else":
					// It is no answer, and silence is no refusal: people decide.
					if r := w.requirePending(t, result); len(r.Decisions) > 0 || !w.told(t) {
						t.Errorf("decided by %+v, or people weren't told", r.Decisions)
					}
					w.requireCalls(t)
					return
				}
				if len(asked) != 1 {
					t.Fatalf("asked %d times", len(asked))
				}
				requireText(t, asked[0].Message, "Action: soft.echo", `Target: a\u{202e}`, "Environment: staging", `Arguments: {"id":"a\u202e","n":1}`)
				r := w.only(t)
				if w.told(t) {
					t.Error("people were told")
				}
				if test.runs {
					if got := firstText(t, result); got != arguments {
						t.Errorf("ran with %s", got)
					}
					requireOutcome(t, r, approval.Succeeded, "")
				} else {
					requireText(t, firstText(t, result), "Nothing ran", "was asked to confirm", "Don't retry")
					if r.Status != approval.Rejected || !result.IsError {
						t.Errorf("the request is %s", r.Status)
					}
					w.requireCalls(t)
				}
				if len(r.Decisions) != 1 || r.Decisions[0].Surface != approval.InBand || !r.Decisions[0].Approver.IsZero() {
					t.Errorf("decided by %+v", r.Decisions)
				}
			})
		}
	}
}

// Progress rises from the first thing that a client is told to the last.
func TestProgressRises(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{servers: []string{"soft"}})
	told := make(chan float64, 100)
	options := accepting(nil)
	options.ProgressNotificationHandler = func(_ context.Context, r *sdk.ProgressNotificationClientRequest) {
		told <- r.Params.Progress
	}
	session := clients["http/legacy"](t, w, options)
	params := &sdk.CallToolParams{Name: "count", Arguments: json.RawMessage(`{"id":"a"}`)}
	params.SetProgressToken("p")
	if _, err := session.CallTool(t.Context(), params); err != nil {
		t.Fatal(err)
	}
	last := -1.0
	for range 4 { // it is confirmed, it runs, and it counts to 5, of which the last may be late
		next := receive(t, told)
		if next <= last {
			t.Errorf("progress goes from %v to %v", last, next)
		}
		last = next
	}
}

// A client that says yes to all that it is asked gets no further with what is
// left to people.
func TestYesToAll(t *testing.T) {
	t.Parallel()
	for kind, reach := range clients {
		for _, answer := range []Approval{Pending, Hold} {
			for _, prompt := range []string{"", PromptURL} {
				t.Run(kind+"/"+string(answer)+"/"+prompt, func(t *testing.T) {
					t.Parallel()
					w := tellingWorld(t, worldOptions{servers: []string{"hard", "worst", "blocked"}, options: func(o *Options) {
						o.Approval, o.Prompt = answer, prompt
					}})
					w.Service.Drain() // so that nothing is held for long
					var asked []*sdk.ElicitParams
					session := reach(t, w, accepting(&asked))
					for _, tool := range []string{"hard__echo", "worst__echo"} {
						w.requirePending(t, ask(t, session, tool, `{}`))
						w.requirePending(t, ask(t, session, tool, `{}`))
					}
					if result := ask(t, session, "blocked__echo", `{}`); !result.IsError {
						t.Error("a blocked call isn't refused")
					}
					for _, question := range asked {
						if question.Mode != "url" || !strings.HasPrefix(question.URL, reviewURL("")) {
							t.Errorf("asked %+v", question)
						}
					}
					for _, r := range w.all(t) {
						for _, d := range r.Decisions {
							if d.Surface != approval.Policy {
								t.Errorf("%s was decided by %+v", r.Action, d)
							}
						}
					}
					if !w.told(t) {
						t.Error("nobody was told")
					}
					w.requireCalls(t)
				})
			}
		}
	}
}

// Clients that can't show a form, and calls that don't fit into one, are left to
// people.
func TestNotConfirmedInTheClient(t *testing.T) {
	t.Parallel()
	w := tellingWorld(t, worldOptions{servers: []string{"soft"}})
	able := connect(t, w.stdio(t), legacy, accepting(nil))
	w.requirePending(t, ask(t, able, "echo", `{"id":"`+strings.Repeat("x", maxForm)+`"}`))
	w.requirePending(t, ask(t, able, "echo", `{"id":"`+strings.Repeat("\u202e", maxForm/6)+`"}`))
	if !w.told(t) {
		t.Error("nobody was told")
	}
	for name, can := range map[string]string{"nothing": `{}`, "links": `{"elicitation":{"url":{}}}`} {
		for _, version := range []string{legacy, modern} {
			h := w.listen(t).byHand(t, w.Agent.Name, version, can)
			if result := h.must("echo", fmt.Sprintf(`{"id":%q}`, name+version), ""); !strings.Contains(string(result), "pending_approval") {
				t.Errorf("a client with %s gets %s", name, result)
			}
		}
	}
	w.requireCalls(t)
}

// twoRounds is a client by hand that was asked to confirm a call.
type twoRounds struct {
	*world
	*hand
	state string
}

const confirmedArguments = `{"id":"a","n":9007199254740993}`

const yes = `,"inputResponses":{"approval":{"action":"accept","content":{"approve":true}}}`

func startRounds(t testing.TB) *twoRounds {
	t.Helper()
	w := tellingWorld(t, worldOptions{servers: []string{"soft"}})
	r := &twoRounds{world: w, hand: w.listen(t).byHand(t, w.Agent.Name, modern, `{"elicitation":{}}`)}
	r.state = stateIn(t, r.must("echo", confirmedArguments, ""))
	return r
}

// stateIn is the state in an answer that asks for input.
func stateIn(t testing.TB, result json.RawMessage) string {
	t.Helper()
	var asked struct {
		ResultType    string
		RequestState  string
		InputRequests map[string]struct{ Method string }
	}
	if err := json.Unmarshal(result, &asked); err != nil || asked.ResultType != inputRequired || asked.InputRequests["approval"].Method != "elicitation/create" {
		t.Fatalf("nothing is asked in %s (%v)", result, err)
	}
	return asked.RequestState
}

func state1(state string) string { return fmt.Sprintf(`,"requestState":%q`, state) }

func TestRequestState(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		// try makes the second round in some other way.
		try  func(t *testing.T, r *twoRounds) json.RawMessage
		want string // in the text
	}{
		{"forged", func(t *testing.T, r *twoRounds) json.RawMessage {
			other, err := seal.New(bytes.Repeat([]byte{8}, 32), seal.Options{})
			if err != nil {
				t.Fatal(err)
			}
			request := r.only(t)
			c := &call{installation: &installation{Gateway: r.gateway}, agent: r.Agent, tool: r.gateway.downstreams.catalog().tool("echo")}
			binding, err := c.binding(json.RawMessage(confirmedArguments))
			if err != nil {
				t.Fatal(err)
			}
			forged, err := other.Seal(r.Clock.Now(), r.Clock.Now().Add(time.Minute), binding, mustEncode(state{stateForm, request.ID, request.Digest.String(), false}))
			if err != nil {
				t.Fatal(err)
			}
			return r.must("echo", confirmedArguments, state1(forged)+yes)
		}, "wasn't made for it"},
		{"changed", func(t *testing.T, r *twoRounds) json.RawMessage {
			head, body, _ := strings.Cut(r.state, ".")
			sealed, err := base64.RawURLEncoding.DecodeString(body)
			if err != nil {
				t.Fatal(err)
			}
			sealed[len(sealed)-1] ^= 1
			return r.must("echo", confirmedArguments, state1(head+"."+base64.RawURLEncoding.EncodeToString(sealed))+yes)
		}, "wasn't made for it"},
		{"cut", func(_ *testing.T, r *twoRounds) json.RawMessage {
			return r.must("echo", confirmedArguments, state1(r.state[:len(r.state)-4])+yes)
		}, "wasn't made for it"},
		{"another agent's", func(t *testing.T, r *twoRounds) json.RawMessage {
			spy := r.listen(t).byHand(t, "spy", modern, `{"elicitation":{}}`)
			return spy.must("echo", confirmedArguments, state1(r.state)+yes)
		}, "wasn't made for it"},
		{"another tool's", func(_ *testing.T, r *twoRounds) json.RawMessage {
			return r.must("count", confirmedArguments, state1(r.state)+yes)
		}, "wasn't made for it"},
		{"other arguments", func(_ *testing.T, r *twoRounds) json.RawMessage {
			return r.must("echo", `{"id":"a","n":9007199254740992}`, state1(r.state)+yes)
		}, "wasn't made for it"},
		{"arguments spelled otherwise", func(_ *testing.T, r *twoRounds) json.RawMessage {
			return r.must("echo", `{"id":"a","n":9007199254740993.0}`, state1(r.state)+yes)
		}, "wasn't made for it"},
		{"expired", func(_ *testing.T, r *twoRounds) json.RawMessage {
			r.Clock.Advance(confirmWithin)
			return r.must("echo", confirmedArguments, state1(r.state)+yes)
		}, "came back too late"},
		{"long expired", func(_ *testing.T, r *twoRounds) json.RawMessage {
			r.Clock.Advance(24 * time.Hour)
			return r.must("echo", confirmedArguments, state1(r.state)+yes)
		}, "wasn't made for it"},
		{"of a changed tool", func(t *testing.T, r *twoRounds) json.RawMessage {
			r.downstream.AddTool(&sdk.Tool{Name: "echo", Description: "Something else", InputSchema: json.RawMessage(`{"type":"object"}`)}, r.downstream.echo)
			r.logs.await(t, 1, "isn't what was pinned")
			return r.must("echo", confirmedArguments, state1(r.state)+yes)
		}, "wasn't made for it"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			r := startRounds(t)
			result := test.try(t, r)
			requireText(t, string(result), "Nothing ran and nothing was decided", test.want, `"isError":true`)
			r.requireCalls(t)
			for _, request := range r.all(t) {
				if len(request.Decisions) > 0 && request.Status != approval.Rejected {
					t.Errorf("%s is %s by %+v", request.ID, request.Status, request.Decisions)
				}
			}
		})
	}
	t.Run("as it was made", func(t *testing.T) {
		t.Parallel()
		r := startRounds(t)
		r.Clock.Advance(confirmWithin - time.Millisecond)
		result := r.must("echo", `{ "n":9007199254740993, "id":"a" }`, state1(r.state)+yes)
		if got := texts(t, string(result))[0]; got != confirmedArguments {
			t.Errorf("ran with %s", got)
		}
	})
	t.Run("without an answer", func(t *testing.T) {
		t.Parallel()
		r := startRounds(t)
		requireText(t, string(r.must("echo", confirmedArguments, state1(r.state))), "NOT RUN YET", "Whoever may decide is asked")
		if r.only(t).Status != approval.Pending || !r.told(t) {
			t.Error("silence is taken for a refusal, or people weren't told")
		}
		r.requireCalls(t)
	})
	t.Run("twice", func(t *testing.T) {
		t.Parallel()
		r := startRounds(t)
		r.must("echo", confirmedArguments, state1(r.state)+yes)
		requireText(t, string(r.must("echo", confirmedArguments, state1(r.state)+yes)), "Nothing more ran", "used before")
		// Nor can what was made for the same request at another time be used.
		r.requireCalls(t, arrived{"echo", confirmedArguments})
	})
	t.Run("after a refusal", func(t *testing.T) {
		t.Parallel()
		r := startRounds(t)
		again := stateIn(t, r.must("echo", confirmedArguments, ""))
		r.must("echo", confirmedArguments, state1(r.state)+`,"inputResponses":{"approval":{"action":"decline"}}`)
		requireText(t, string(r.must("echo", confirmedArguments, state1(again)+yes)), "Nothing more ran", "used before")
		r.requireCalls(t)
	})
	t.Run("by many at once", func(t *testing.T) {
		t.Parallel()
		r := startRounds(t)
		d := r.listen(t)
		var racing sync.WaitGroup
		results := make([]string, 8)
		for i := range results {
			h := d.byHand(t, r.Agent.Name, modern, `{"elicitation":{}}`)
			racing.Go(func() {
				result, err := h.tool("echo", confirmedArguments, state1(r.state)+yes)
				results[i] = fmt.Sprint(string(result), err)
			})
		}
		racing.Wait()
		r.requireCalls(t, arrived{"echo", confirmedArguments})
		ran := slices.DeleteFunc(results, func(result string) bool { return strings.Contains(result, "used before") })
		if len(ran) != 1 {
			t.Errorf("%d confirmations counted: %q", len(ran), ran)
		}
	})
	t.Run("when policy wants people", func(t *testing.T) {
		t.Parallel()
		r := startRounds(t)
		stricter := approvaltest.ParsePolicy(t, strings.Replace(worldPolicy, "in_band: {tiers: [3]", "in_band: {tiers: [2]", 1))
		if err := r.Service.SetPolicy(t.Context(), stricter); err != nil {
			t.Fatal(err)
		}
		requireText(t, string(r.must("echo", confirmedArguments, state1(r.state)+yes)), "NOT RUN YET", "Whoever may decide is asked")
		if !r.told(t) {
			t.Error("people weren't told")
		}
		r.requireCalls(t)
	})
}

// A link is shown to clients that can show it, and what they answer decides
// nothing.
func TestLinks(t *testing.T) {
	t.Parallel()
	t.Run("pushed", func(t *testing.T) {
		t.Parallel()
		for _, kind := range []string{"http/legacy", "stdio/legacy"} {
			w := newWorld(t, worldOptions{servers: []string{"hard"}})
			var asked []*sdk.ElicitParams
			session := clients[kind](t, w, accepting(&asked))
			r := w.requirePending(t, ask(t, session, "echo", `{}`))
			w.requirePending(t, ask(t, session, "echo", `{}`))
			if len(asked) != 1 || asked[0].Mode != "url" || asked[0].URL != reviewURL(r.ID) {
				t.Errorf("%s: asked %+v", kind, asked)
			}
			w.requireCalls(t)
		}
	})
	t.Run("in an answer", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, worldOptions{servers: []string{"hard"}, options: func(o *Options) { o.Prompt = PromptURL }})
		h := w.listen(t).byHand(t, w.Agent.Name, modern, `{"elicitation":{"url":{}}}`)
		first := h.must("echo", `{}`, "")
		state := stateIn(t, first)
		r := w.only(t)
		if !strings.Contains(string(first), fmt.Sprintf(`"url":%q`, reviewURL(r.ID))) || strings.Contains(string(first), "elicitationId\":\"\"") {
			t.Errorf("asked %s", first)
		}
		for _, answer := range []string{"", yes, `,"inputResponses":{"approval":{"action":"decline"}}`} {
			if result := h.must("echo", `{}`, state1(state)+answer); !strings.Contains(string(result), "pending_approval") {
				t.Errorf("the second round gets %s", result)
			}
		}
		w.Decide(t, approvaltest.Alice, r, approval.Approve)
		if got := texts(t, string(h.must("echo", `{}`, state1(state)))); got[0] != keyed(`{}`, r) {
			t.Errorf("once approved it gets %s", got)
		}
	})
	t.Run("for as long as somebody reads", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, worldOptions{servers: []string{"hard"}, options: func(o *Options) { o.Prompt = PromptURL }})
		h := w.listen(t).byHand(t, w.Agent.Name, modern, `{"elicitation":{"url":{}}}`)
		state := stateIn(t, h.must("echo", `{}`, ""))
		w.Clock.Advance(50 * time.Minute)
		r := w.only(t)
		w.Decide(t, approvaltest.Alice, r, approval.Approve)
		if got := texts(t, string(h.must("echo", `{}`, state1(state)+yes))); got[0] != keyed(`{}`, r) {
			t.Errorf("once approved it gets %s", got)
		}
		// Even later the call has run, so that isn't denied.
		w.Clock.Advance(30 * time.Minute)
		requireText(t, texts(t, string(h.must("echo", `{}`, state1(state)+yes)))[0], "Nothing ran and nothing was decided by this call", "told what came of it")
	})
	t.Run("not unless it is wanted", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, worldOptions{servers: []string{"hard"}})
		h := w.listen(t).byHand(t, w.Agent.Name, modern, `{"elicitation":{"url":{}}}`)
		if result := h.must("echo", `{}`, ""); !strings.Contains(string(result), "pending_approval") {
			t.Errorf("got %s", result)
		}
	})
}

// FuzzRequestState looks for a state that lets a call through which nobody
// confirmed.
func FuzzRequestState(f *testing.F) {
	w := newWorld(f, worldOptions{servers: []string{"soft"}})
	h := w.listen(f).byHand(f, w.Agent.Name, modern, `{"elicitation":{}}`)
	sealed := stateIn(f, h.must("echo", confirmedArguments, ""))
	id := w.only(f).ID
	w.gateway.logger = slog.New(slog.DiscardHandler) // there are a million refusals
	bound, err := (&call{agent: w.Agent, tool: w.gateway.downstreams.catalog().tool("echo")}).binding(json.RawMessage(confirmedArguments))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(sealed, "spy", "echo", confirmedArguments)
	f.Add(sealed, w.Agent.Name, "count", confirmedArguments)
	f.Add(sealed, w.Agent.Name, "echo", `{"id":"b"}`)
	f.Add(sealed[:len(sealed)-1], w.Agent.Name, "echo", confirmedArguments)
	f.Add(strings.ToUpper(sealed), w.Agent.Name, "echo", confirmedArguments)
	f.Add("countersign1.", w.Agent.Name, "echo", `{}`)
	f.Add("", w.Agent.Name, "echo", confirmedArguments)
	f.Fuzz(func(t *testing.T, tried, agent, tool, arguments string) {
		c := &call{
			installation: &installation{Gateway: w.gateway},
			agent:        approval.Agent{Name: agent},
			tool:         w.gateway.downstreams.catalog().tool(tool),
			asker:        &asker{ctx: t.Context(), modern: true, logger: w.gateway.logger},
			request: &sdk.CallToolRequest{Params: &sdk.CallToolParamsRaw{InputResponses: sdk.InputResponseMap{
				question: &sdk.ElicitResult{Action: "accept", Content: map[string]any{"approve": true}},
			}}},
		}
		if c.tool == nil {
			return
		}
		if same, err := c.binding(json.RawMessage(arguments)); tried == sealed && err == nil && slices.EqualFunc(same, bound, bytes.Equal) {
			return // it is the very call that the state was made for
		}
		_, err := c.answered(tried, json.RawMessage(arguments))
		if _, refused := errors.AsType[*notRun](err); !refused {
			t.Errorf("%q of %s for %s %s: %v", tried, agent, tool, arguments, err)
		}
		if r := w.load(t, id); r.Status != approval.Pending || len(r.Decisions) > 0 {
			t.Errorf("the request is %s", r.Status)
		}
	})
}
