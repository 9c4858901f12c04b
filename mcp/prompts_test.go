package mcp_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/approval/approvaltest"
	"github.com/countersign/countersign/mcp"
)

// host is a client that shows prompts.
type host struct {
	shown     chan *sdk.ElicitParams
	completed chan string
	answer    func(context.Context) (*sdk.ElicitResult, error)
}

func newHost() *host {
	return &host{
		shown:     make(chan *sdk.ElicitParams, 10),
		completed: make(chan string, 10),
		answer:    func(context.Context) (*sdk.ElicitResult, error) { return &sdk.ElicitResult{Action: "accept"}, nil },
	}
}

func (h *host) options(capability *sdk.ElicitationCapabilities) *sdk.ClientOptions {
	return &sdk.ClientOptions{
		Capabilities: &sdk.ClientCapabilities{Elicitation: capability},
		ElicitationHandler: func(ctx context.Context, r *sdk.ElicitRequest) (*sdk.ElicitResult, error) {
			h.shown <- r.Params
			return h.answer(ctx)
		},
		ElicitationCompleteHandler: func(_ context.Context, n *sdk.ElicitationCompleteNotificationRequest) {
			h.completed <- n.Params.ElicitationID
		},
	}
}

var (
	showsURLs = &sdk.ElicitationCapabilities{URL: &sdk.URLElicitationCapabilities{}}
	showsBoth = &sdk.ElicitationCapabilities{URL: &sdk.URLElicitationCapabilities{}, Form: &sdk.FormElicitationCapabilities{}}
	showsForm = &sdk.ElicitationCapabilities{Form: &sdk.FormElicitationCapabilities{}}
)

// askedWith asks and returns the id and whether a prompt was delivered.
func askedWith(t testing.TB, session *sdk.ClientSession) (approval.ID, bool) {
	t.Helper()
	text := succeed(t, session, "request_approval", `{"purpose":"p","payload":{}}`)
	var out struct{ ElicitationDelivered bool }
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		t.Fatal(err)
	}
	return idIn(t, text), out.ElicitationDelivered
}

// A host that shows links is sent one, on each way to the tools, and told when
// the request is no longer pending. What it answers decides nothing.
func TestPromptIsPushedAndCompleted(t *testing.T) {
	t.Parallel()
	for kind, reach := range kinds {
		for name, capability := range map[string]*sdk.ElicitationCapabilities{"links": showsURLs, "links and forms": showsBoth} {
			for _, action := range []string{"accept", "decline", "cancel"} {
				t.Run(kind+"/"+name+"/"+action, func(t *testing.T) {
					t.Parallel()
					f := approvaltest.New(t)
					h := newHost()
					h.answer = func(context.Context) (*sdk.ElicitResult, error) { return &sdk.ElicitResult{Action: action}, nil }
					session := connect(t, reach(t, f, newLocal(t, f, 0)), legacy, h.options(capability))
					id, delivered := askedWith(t, session)
					if !delivered {
						t.Error("elicitationDelivered is false")
					}
					prompt := receive(t, h.shown, "the prompt")
					if prompt.Mode != "url" || prompt.URL != reviewURL(id) || prompt.ElicitationID != string(id) || prompt.Message == "" {
						t.Errorf("the host was sent %+v", prompt)
					}
					if got := succeed(t, session, "check_status", byID(id)); got != `{"status":"pending"}` {
						t.Errorf("after the host's answer: %s", got)
					}
					decide(t, f, id, approval.Approve, "")
					if got := receive(t, h.completed, "the completion"); got != string(id) {
						t.Errorf("completed %s, want %s", got, id)
					}
				})
			}
		}
	}
}

// The watcher and the calls that wait learn of a decision at the same moment. The
// host is told once all the same.
func TestPromptIsCompletedOnce(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"stdio", "http"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			f := approvaltest.New(t)
			h := newHost()
			h.completed = make(chan string, 1000)
			session := connect(t, kinds[kind](t, f, newLocal(t, f, 0)), legacy, h.options(showsURLs))
			want, got := map[string]int{}, map[string]int{}
			for range 20 {
				id, _ := askedWith(t, session)
				want[string(id)] = 1
				<-h.shown
				var waiting sync.WaitGroup
				for range 4 {
					waiting.Go(func() {
						_, _ = session.CallTool(t.Context(), &sdk.CallToolParams{Name: "await_approval", Arguments: json.RawMessage(byID(id))})
					})
				}
				decide(t, f, id, approval.Approve, "")
				waiting.Wait()
				got[receive(t, h.completed, "the completion")]++
			}
			if err := session.Ping(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
			for len(h.completed) > 0 {
				got[<-h.completed]++
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("completions (-want +got):\n%s", diff)
			}
		})
	}
}

// Who doesn't say that it shows links is sent nothing, and the result says so.
func TestNoPromptForOthers(t *testing.T) {
	t.Parallel()
	for kind, reach := range kinds {
		for name, test := range map[string]struct {
			version    string
			capability *sdk.ElicitationCapabilities
		}{
			"says nothing":            {legacy, nil},
			"forms only":              {legacy, showsForm},
			"neither":                 {legacy, &sdk.ElicitationCapabilities{}},
			"a protocol that forbids": {modern, showsURLs},
		} {
			t.Run(kind+"/"+name, func(t *testing.T) {
				t.Parallel()
				f := approvaltest.New(t)
				h := newHost()
				options := h.options(test.capability)
				if test.capability == nil {
					options.ElicitationHandler = nil
				}
				session := connect(t, reach(t, f, newLocal(t, f, 0)), test.version, options)
				id, delivered := askedWith(t, session)
				if delivered {
					t.Error("elicitationDelivered is true")
				}
				decide(t, f, id, approval.Approve, "")
				if got := succeed(t, session, "await_approval", byID(id)); got != `{"status":"approved"}` {
					t.Errorf("await_approval: %s", got)
				}
				succeed(t, session, "apply", byID(id))
				if len(h.shown)+len(h.completed) != 0 {
					t.Errorf("the host was sent %d prompts and %d completions", len(h.shown), len(h.completed))
				}
			})
		}
	}
}

// A protocol that has no way to say that a prompt is over isn't told so.
func TestNoCompletionWhereThereIsNone(t *testing.T) {
	t.Parallel()
	f := approvaltest.New(t)
	h := newHost()
	session := connect(t, kinds["http"](t, f, newLocal(t, f, 0)), "2025-06-18", h.options(showsURLs))
	id, delivered := askedWith(t, session)
	if !delivered {
		t.Error("elicitationDelivered is false")
	}
	receive(t, h.shown, "the prompt")
	decide(t, f, id, approval.Approve, "")
	succeed(t, session, "await_approval", byID(id))
	succeed(t, session, "apply", byID(id))
	if len(h.completed) != 0 {
		t.Error("the host was sent a completion")
	}
}

// A host that refuses the prompt was not reached, whatever it said before.
func TestRefusedPromptWasNotDelivered(t *testing.T) {
	t.Parallel()
	// On a bubble's clock the host's refusal is always in time.
	synctest.Test(t, func(t *testing.T) {
		f := approvaltest.New(t, func(o *approval.Options) { o.Now = nil })
		local, err := mcp.NewLocal(f.Service, mcp.LocalOptions{ReviewURL: reviewURL})
		if err != nil {
			t.Fatal(err)
		}
		h := newHost()
		h.answer = func(context.Context) (*sdk.ElicitResult, error) { return nil, errors.New("not now") }
		session := connect(t, serveStdio(t, local, f.Agent, mcp.Options{}).transport(), legacy, h.options(showsURLs))
		id, delivered := askedWith(t, session)
		if delivered {
			t.Error("elicitationDelivered is true")
		}
		decide(t, f, id, approval.Reject, "no")
		succeed(t, session, "await_approval", byID(id))
		time.Sleep(time.Minute)
		if len(h.completed) != 0 {
			t.Error("a prompt that was not delivered was completed")
		}
	})
}

// The prompt rides before the result on the call's own stream, and its end on
// the next call's, for a host without a stream of its own.
func TestPromptsWithoutAnEventStream(t *testing.T) {
	t.Parallel()
	f := approvaltest.New(t)
	s := serveHTTP(t, f, newLocal(t, f, 0), mcp.HandlerOptions{})
	h := newHost()
	transport := s.transport(t, s.token(t, f.Agent.Name))
	transport.DisableStandaloneSSE = true
	session := connect(t, transport, legacy, h.options(showsURLs))
	id, delivered := askedWith(t, session)
	if !delivered {
		t.Error("elicitationDelivered is false")
	}
	receive(t, h.shown, "the prompt")
	decide(t, f, id, approval.Approve, "")
	if got := succeed(t, session, "await_approval", byID(id)); got != `{"status":"approved"}` {
		t.Errorf("await_approval: %s", got)
	}
	if got := receive(t, h.completed, "the completion"); got != string(id) {
		t.Errorf("completed %s", got)
	}
}

// A person who looks at the prompt for long holds nobody up, and nothing of it
// is left when the request, the session or the server ends.
func TestPromptHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	type end struct {
		do       func(*testing.T, *approvaltest.Fixture, *sdk.ClientSession, *stdio, approval.ID)
		complete bool
	}
	for name, test := range map[string]end{
		"decision": {func(t *testing.T, f *approvaltest.Fixture, _ *sdk.ClientSession, _ *stdio, id approval.ID) {
			decide(t, f, id, approval.Approve, "")
		}, true},
		"expiry": {func(*testing.T, *approvaltest.Fixture, *sdk.ClientSession, *stdio, approval.ID) {
			time.Sleep(approval.DefaultTTL)
		}, true},
		"session": {func(t *testing.T, _ *approvaltest.Fixture, _ *sdk.ClientSession, s *stdio, _ approval.ID) {
			_ = s.in.PipeWriter.Close()
			if err := <-s.ended; err != nil {
				t.Error(err)
			}
			s.ended <- nil // for the cleanup
		}, false},
		"server": {func(t *testing.T, _ *approvaltest.Fixture, _ *sdk.ClientSession, s *stdio, _ approval.ID) {
			s.stop()
			if err := <-s.ended; err != nil {
				t.Error(err)
			}
			s.ended <- nil
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := approvaltest.New(t, func(o *approval.Options) { o.Now = nil })
				local, err := mcp.NewLocal(f.Service, mcp.LocalOptions{ReviewURL: reviewURL})
				if err != nil {
					t.Fatal(err)
				}
				s := serveStdio(t, local, f.Agent, mcp.Options{})
				h := newHost()
				dismissed := make(chan struct{})
				h.answer = func(ctx context.Context) (*sdk.ElicitResult, error) {
					<-ctx.Done()
					close(dismissed)
					return nil, ctx.Err()
				}
				session := connect(t, s.transport(), legacy, h.options(showsURLs))
				began := time.Now()
				id, delivered := askedWith(t, session)
				if took := time.Since(began); !delivered || took > 50*time.Millisecond {
					t.Errorf("delivered: %v, after %v", delivered, took)
				}
				test.do(t, f, session, s, id)
				time.Sleep(time.Minute)
				<-dismissed
				var completed []string
				for len(h.completed) > 0 {
					completed = append(completed, <-h.completed)
				}
				var want []string
				if test.complete {
					want = []string{string(id)}
				}
				if diff := cmp.Diff(want, completed); diff != "" {
					t.Errorf("completions (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// Sessions that end leave no prompt behind, over HTTP too.
func TestPromptsEndWithTheirSession(t *testing.T) {
	t.Parallel()
	f := approvaltest.New(t)
	s := serveHTTP(t, f, newLocal(t, f, 0), mcp.HandlerOptions{})
	h := newHost()
	dismissed := make(chan struct{})
	h.answer = func(ctx context.Context) (*sdk.ElicitResult, error) {
		<-ctx.Done()
		close(dismissed)
		return nil, ctx.Err()
	}
	token := s.token(t, f.Agent.Name)
	session := connect(t, s.transport(t, token), legacy, h.options(showsURLs))
	if _, delivered := askedWith(t, session); !delivered {
		t.Error("elicitationDelivered is false")
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodDelete, s.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+token)
	request.Header.Set("Mcp-Session-Id", session.ID())
	ended := make(chan error, 1)
	go func() {
		response, err := s.Client().Do(request)
		if err == nil {
			_ = response.Body.Close()
		}
		ended <- err
	}()
	if err := receive(t, ended, "the session's end"); err != nil {
		t.Error(err)
	}
	_ = session.Close()
	<-dismissed
}
