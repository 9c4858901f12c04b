package mcp_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/approval/approvaltest"
	"github.com/countersign/countersign/mcp"
)

// checkWithdrawn waits until a request is decided, which must be by a call that was
// cancelled.
func checkWithdrawn(t *testing.T, f *approvaltest.Fixture, id approval.ID) {
	t.Helper()
	r, err := f.Service.Await(context.Background(), f.Agent, id, 20*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if r.Status != approval.Rejected || r.Reason != "The call that asked was cancelled." {
		t.Fatalf("the request is %s: %q", r.Status, r.Reason)
	}
	if d := r.Decisions[0]; d.Surface != approval.InBand || d.Receipt == "" || d.Verdict != approval.Reject {
		t.Errorf("recorded is %+v", d)
	}
}

func TestGateCancelledCallIsDenied(t *testing.T) {
	t.Parallel()
	everyGate(t, func(t *testing.T, h *gateHost) {
		ctx, cancel := context.WithCancel(t.Context())
		done := h.ask(ctx, updateCall)
		v := h.see(`{}`)
		cancel()
		if got := receive(t, done, "the end of the call"); got.err == nil {
			t.Errorf("the call ended with %+v", got.result)
		}
		checkWithdrawn(t, h.f, v.RequestID)
		h.refuses("approval_decide", v.about(`"outcome":"granted"`), "decided")
		if h.see(`{}`) != nil {
			t.Error("the call is still held")
		}
	})
}

// The end of one of two calls that are held for the same isn't the other's.
func TestGateCancelsOnlyWhatNobodyWaitsFor(t *testing.T) {
	t.Parallel()
	everyGate(t, func(t *testing.T, h *gateHost) {
		ctx, cancel := context.WithCancel(t.Context())
		first, second := h.ask(ctx, updateCall), h.ask(t.Context(), updateCall)
		v := h.see(`{}`)
		if v == nil {
			t.Fatal("the same request of two calls isn't found")
		}
		cancel()
		receive(t, first, "the end of the first call")
		succeed(t, h.session, "approval_decide", v.about(`"outcome":"granted"`))
		if decision, _ := h.told(second); decision.Outcome != "granted" || decision.RequestID != v.RequestID {
			t.Errorf("the second was told %s", decision.text)
		}
	})
}

// A host that hangs up has cancelled its calls, before the server ends.
func TestGateHostHangsUp(t *testing.T) {
	t.Parallel()
	for _, version := range []string{legacy, modern} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			f := newGateFixture(t)
			h := &gateHost{t: t, f: f, held: make(chan string, 100)}
			s := serveStdio(t, nil, f.Agent, mcp.Options{Gate: newGate(t, f, mcp.GateOptions{})})
			h.session = connect(t, s.transport(), version, h.client(true))
			h.ask(t.Context(), updateCall)
			v := h.see(`{}`)
			_ = s.in.PipeWriter.Close()
			_ = s.out.PipeReader.Close()
			ended := receive(t, s.ended, "the end of the server")
			s.ended <- ended
			r, err := f.Service.Status(t.Context(), f.Agent, v.RequestID)
			if err != nil || r.Status != approval.Rejected {
				t.Errorf("once the server has ended, the request is %+v (%v)", r, err)
			}
		})
	}
}

// A server that stops lets its calls go undecided, and the same call again goes on
// waiting for the same request.
func TestGateStops(t *testing.T) {
	t.Parallel()
	for name, stop := range map[string]func(*gateHost){
		"drain": func(h *gateHost) { h.f.Service.Drain() },
		"stop":  func(h *gateHost) { h.stop() },
	} {
		for _, kind := range gateKinds {
			for _, version := range []string{legacy, modern} {
				t.Run(name+"/"+kind+"/"+version, func(t *testing.T) {
					t.Parallel()
					f := newGateFixture(t)
					h := atGate(t, f, kind, version, true, mcp.GateOptions{})
					done := h.ask(t.Context(), updateCall)
					v := h.see(`{}`)
					stop(h)
					got := receive(t, done, "the end of the call")
					if got.err != nil || !got.result.IsError || !strings.Contains(textOf(t, got.result, 0), "goes on waiting") || !strings.Contains(textOf(t, got.result, 0), "not a refusal") {
						t.Fatalf("the call ended with %+v, %v", got.result, got.err)
					}
					checkUntouched(t, f, v.RequestID)
					if name == "drain" {
						return // it lasts as long as the service
					}
					again := atGate(t, f, kind, version, true, mcp.GateOptions{})
					done = again.ask(t.Context(), updateCall)
					seen := again.see(`{}`)
					if seen.RequestID != v.RequestID || !seen.DecidesHere {
						t.Fatalf("the same again is %s", seen.text)
					}
					succeed(t, again.session, "approval_decide", seen.about(`"outcome":"granted"`))
					if decision, _ := again.told(done); decision.Outcome != "granted" {
						t.Errorf("told %s", decision.text)
					}
				})
			}
		}
	}
}

// gateBody is a call of request_approval by hand, of a host that shows views.
func gateBody(version, arguments string) string {
	meta := ""
	if version == modern {
		meta = `,"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":` + viewCapabilities + `}`
	}
	return `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"request_approval","arguments":` + arguments + meta + `}}`
}

const viewCapabilities = `{"extensions":{"io.modelcontextprotocol/ui":{"mimeTypes":["text/html;profile=mcp-app"]}}}`

// gateHeaders are those of a call of a tool; where there are sessions, it begins one.
func gateHeaders(t testing.TB, s *httpServer, version, token, tool string) map[string]string {
	t.Helper()
	if version == modern {
		return modernHeaders(token, "tools/call", tool)
	}
	begun := post(t, s, strings.Replace(initializeBody, `"capabilities":{}`, `"capabilities":`+viewCapabilities, 1), map[string]string{"Authorization": "Bearer " + token})
	_ = bodyOf(t, begun)
	return map[string]string{"Authorization": "Bearer " + token, "Mcp-Session-Id": begun.Header.Get("Mcp-Session-Id"), "Mcp-Protocol-Version": legacy}
}

// A connection that breaks is a cancelled call where there are no sessions. Where
// there are, it says nothing, and the request stays.
func TestGateConnectionBreaks(t *testing.T) {
	t.Parallel()
	for _, version := range []string{legacy, modern} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			f := newGateFixture(t)
			logger, messages := logged()
			s := serveHTTP(t, f, newLocal(t, f, 0), mcp.HandlerOptions{Options: mcp.Options{Gate: newGate(t, f, mcp.GateOptions{}), Logger: logger}})
			token := s.token(t, f.Agent.Name)
			viewer := &gateHost{t: t, f: f}
			viewer.session = connect(t, s.transport(t, token), modern, viewer.client(true))
			response := post(t, s, gateBody(version, updateCall), gateHeaders(t, s, version, token, "request_approval"))
			// The answer begins while nobody has decided.
			if line, err := bufio.NewReader(response.Body).ReadString('\n'); err != nil || line != ": waiting\n" {
				t.Fatalf("%q, %v", line, err)
			}
			v := viewer.find()
			_ = response.Body.Close()
			if version == modern {
				checkWithdrawn(t, f, v.RequestID)
				return
			}
			receiveMessage(t, messages, "a caller went away")
			checkUntouched(t, f, v.RequestID)
			if viewer.see(`{}`) != nil {
				t.Error("the call is still held")
			}
			// The same again, in another session, is the same request.
			response = post(t, s, gateBody(version, updateCall), gateHeaders(t, s, version, token, "request_approval"))
			again := viewer.find()
			if again.RequestID != v.RequestID {
				t.Errorf("asked again as %s, before as %s", again.RequestID, v.RequestID)
			}
			succeed(t, viewer.session, "approval_decide", again.about(`"outcome":"granted"`))
			if text := bodyOf(t, response); !strings.Contains(text, `"outcome":"granted"`) {
				t.Errorf("told %s", text)
			}
		})
	}
}

// A cancellation that comes after the connection broke still is one.
func TestGateCancelledAfterTheConnectionBroke(t *testing.T) {
	t.Parallel()
	f := newGateFixture(t)
	s := serveHTTP(t, f, newLocal(t, f, 0), mcp.HandlerOptions{Options: mcp.Options{Gate: newGate(t, f, mcp.GateOptions{})}})
	token := s.token(t, f.Agent.Name)
	viewer := &gateHost{t: t, f: f}
	viewer.session = connect(t, s.transport(t, token), modern, viewer.client(true))
	headers := gateHeaders(t, s, legacy, token, "request_approval")
	response := post(t, s, gateBody(legacy, updateCall), headers)
	v := viewer.find()
	_ = response.Body.Close()
	cancelled := post(t, s, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}`, headers)
	if cancelled.StatusCode != http.StatusAccepted {
		t.Fatalf("cancelling: %s", cancelled.Status)
	}
	checkWithdrawn(t, f, v.RequestID)
}

// gateBubble runs a test at a gate over stdio on a bubble's clock, in both eras.
func gateBubble(t *testing.T, run func(t *testing.T, h *gateHost)) {
	for _, version := range []string{legacy, modern} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := approvaltest.New(t, func(o *approval.Options) { o.Now, o.Policy = nil, gatePolicy(t, "") })
				gate, err := mcp.NewGate(f.Service, mcp.GateOptions{})
				if err != nil {
					t.Fatal(err)
				}
				h := &gateHost{t: t, f: f, held: make(chan string, 1000)}
				h.session = connect(t, serveStdio(t, nil, f.Agent, mcp.Options{Gate: gate}).transport(), version, h.client(true))
				run(t, h)
			})
		})
	}
}

// An unanswered call expires after five minutes, and says every ten seconds that it
// still waits.
func TestGateHoldsForItsTimeout(t *testing.T) {
	t.Parallel()
	gateBubble(t, func(t *testing.T, h *gateHost) {
		began := time.Now()
		decision, _ := h.told1(h.send(t.Context(), updateCall))
		if waited := time.Since(began); decision.Outcome != "expired" || waited != mcp.DefaultGateTimeout {
			t.Errorf("%s after %s", decision.text, waited)
		}
		if n := len(h.held); n < 30 || n > 31 {
			t.Errorf("progress was told %d times in five minutes", n)
		}
	})
}

// What was asked elsewhere before, for longer, is held no longer than the gate holds.
func TestGateHoldsOthersRequestsForItsTimeout(t *testing.T) {
	t.Parallel()
	gateBubble(t, func(t *testing.T, h *gateHost) {
		before, err := h.f.Service.Request(t.Context(), h.f.Agent, approval.Proposal{
			Purpose: "p", Action: "crm.drop", Target: "deals", Reversible: new(false), Payload: []byte(`{"n":1}`)})
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		got := <-h.send(t.Context(), dropCall(1))
		if waited := time.Since(began); got.err != nil || !got.result.IsError || waited != mcp.DefaultGateTimeout {
			t.Errorf("%+v, %v after %s", got.result, got.err, waited)
		}
		checkUntouched(t, h.f, before.ID)
	})
}

// A view that waits for a change is answered at the bound.
func TestGateWatchesForItsBound(t *testing.T) {
	t.Parallel()
	gateBubble(t, func(t *testing.T, h *gateHost) {
		done := h.ask(t.Context(), updateCall)
		v := h.see(`{}`)
		began := time.Now()
		seen := h.see(fmt.Sprintf(`{"requestId":%q,"knownRevision":%d}`, v.RequestID, v.Revision))
		if waited := time.Since(began); waited != 20*time.Second || seen.Revision != v.Revision {
			t.Errorf("%s after %s", seen.text, waited)
		}
		began = time.Now()
		if h.see(fmt.Sprintf(`{"requestId":%q,"knownRevision":%d}`, v.RequestID, v.Revision+1)); time.Since(began) != 0 {
			t.Errorf("another revision came after %s", time.Since(began))
		}
		succeed(t, h.session, "approval_decide", v.about(`"outcome":"denied"`))
		h.told1(done)
	})
}

// told1 is told on a bubble's clock, where waiting has no bound of its own.
func (h *gateHost) told1(done <-chan heldResult) (gateDecision, string) {
	h.t.Helper()
	got := <-done
	passed := make(chan heldResult, 1)
	passed <- got
	return h.told(passed)
}

// Hosts round numbers, and can't read some. Views find their requests even so.
func TestGateFindsRoundedInput(t *testing.T) {
	t.Parallel()
	for _, version := range []string{legacy, modern} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			f := newGateFixture(t)
			s := serveHTTP(t, f, newLocal(t, f, 0), mcp.HandlerOptions{Options: mcp.Options{Gate: newGate(t, f, mcp.GateOptions{})}})
			token := s.token(t, f.Agent.Name)
			viewer := &gateHost{t: t, f: f, held: make(chan string, 100)}
			viewer.session = connect(t, s.transport(t, token), modern, viewer.client(true))
			other := viewer.ask(t.Context(), dropCall(1))
			const asks = `{"action":"crm.update","target":"t","reversible":true,"arguments":`
			const exact = `{"id":9007199254740993,"limit":1e400,"rate":0.10,"neg":-0.0}`
			response := post(t, s, gateBody(version, asks+exact+`}`), gateHeaders(t, s, version, token, "request_approval"))
			var v *viewed
			for v == nil {
				v = viewer.see(`{"asked":` + asks + `{"rate":0.1,"id":9007199254740992,"limit":null,"neg":0}}}`)
			}
			if v.Editable == nil || *v.Editable != exact {
				t.Errorf("the view sees %s", v.text)
			}
			succeed(t, viewer.session, "approval_decide", v.at(2, `"outcome":"granted","editedArgs":"{\"id\":9007199254740995,\"rate\":0.10}"`))
			if text := bodyOf(t, response); !strings.Contains(text, `"editedArgs":{"id":9007199254740995,"rate":0.10}`) {
				t.Errorf("told %s", text)
			}
			decide(t, f, viewer.see(`{}`).RequestID, approval.Reject, "")
			viewer.told(other)
		})
	}
}

// Whatever a caller sends as a view's answer, it is answered in words and changes
// nothing unless it is right.
func FuzzGateDecide(f *testing.F) {
	for _, seed := range []string{
		`{}`, `null`, `[]`, `{"requestId":"R","requestVersion":1,"digest":"D","outcome":"denied"}`,
		`{"requestId":"R","requestVersion":2,"digest":"D","outcome":"granted","editedArgs":"{\"a\":1}","scope":"once","reason":"r"}`,
		`{"requestId":"R","requestVersion":1e0,"digest":"D","outcome":"granted","scope":"15m"}`,
		`{"requestId":"R","requestVersion":-1,"digest":"D","outcome":"granted"}`,
		`{"requestId":"R","requestVersion":9223372036854775808,"digest":"D","outcome":"granted"}`,
		`{"requestId":"R","requestVersion":1,"digest":"D","outcome":"granted","outcome":"denied"}`,
		`{"requestId":1,"requestVersion":"1","digest":null,"outcome":{}}`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, arguments string) {
		if !json.Valid([]byte(arguments)) {
			t.Skip()
		}
		fixture := newGateFixture(t)
		h := atGate(t, fixture, "stdio", modern, true, mcp.GateOptions{})
		r := fixture.Propose(t, func(p *approval.Proposal) { p.HostView, p.Action = true, "crm.update" })
		arguments = strings.NewReplacer(`"R"`, `"`+string(r.ID)+`"`, `"D"`, `"`+r.Digest.String()+`"`).Replace(arguments)
		result, err := h.session.CallTool(t.Context(), &sdk.CallToolParams{Name: "approval_decide", Arguments: json.RawMessage(arguments)})
		if err != nil {
			t.Skip() // the SDK refuses what isn't an object
		}
		if result.IsError {
			said, _ := result.StructuredContent.(map[string]any)
			if said["error"] == "" || said["error"] == nil || said["message"] == "" {
				t.Errorf("refused with %+v", result.StructuredContent)
			}
			checkUntouched(t, fixture, r.ID)
			return
		}
		now, err := fixture.Service.Status(t.Context(), fixture.Agent, r.ID)
		if err != nil || now.Status != approval.Approved && now.Status != approval.Rejected {
			t.Errorf("%s made it %+v (%v)", arguments, now, err)
		}
	})
}
