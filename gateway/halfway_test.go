package gateway

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/approval/approvaltest"
)

// requireHalfWay checks a text of a call whose server was called before.
func requireHalfWay(t testing.TB, text string, parts ...string) {
	t.Helper()
	requireText(t, text, append(parts, "may have done something")...)
	for _, untrue := range []string{"Nothing ran", "nothing ran", "NOT RUN YET", "nothing has happened"} {
		if strings.Contains(text, untrue) {
			t.Errorf("something may have run, but: %s", text)
		}
	}
}

// A server that asks for input may have done something before. If the answer
// isn't sent on, neither the agent nor the record is told that nothing ran.
func TestHalfWay(t *testing.T) {
	t.Parallel()
	// The client is asked by the gateway, at once.
	for name, test := range map[string]struct {
		// asked is what happens at the nth question, before its answer.
		asked func(w *world, n int) error
		says  string
		// recorded is what is recorded of the rounds, in the order of the words.
		recorded []string
	}{
		"asked again, and not answered": {
			func(_ *world, n int) error {
				if n == 2 {
					return errors.New("nobody is there")
				}
				return nil
			},
			"doesn't support", slices.Repeat([]string{detailNeedsInput}, 2),
		},
		"asked again, and then out of reach": {
			func(w *world, n int) error {
				w.wire.isCut.Store(n == 2)
				return nil
			},
			"wasn't reached", []string{detailNeedsInput, detailNeedsInput, detailNotSent},
		},
		"asked without an end": {
			func(*world, int) error { return nil },
			"doesn't support", slices.Repeat([]string{detailNeedsInput}, maxRounds),
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, worldOptions{servers: []string{"free"}})
			n := 0
			session := connect(t, w.stdio(t), legacy, &sdk.ClientOptions{
				Capabilities: &sdk.ClientCapabilities{Elicitation: &sdk.ElicitationCapabilities{Form: &sdk.FormElicitationCapabilities{}}},
				ElicitationHandler: func(context.Context, *sdk.ElicitRequest) (*sdk.ElicitResult, error) {
					n++
					return &sdk.ElicitResult{Action: "accept", Content: map[string]any{"n": 1}}, test.asked(w, n)
				},
			})
			result := ask(t, session, "input", `{}`)
			requireHalfWay(t, firstText(t, result), test.says)
			if !result.IsError {
				t.Error("it is no error")
			}
			var recorded []string
			for _, r := range w.all(t) {
				r = w.settled(t, r.ID)
				requireOutcome(t, r, approval.Failed, "")
				recorded = append(recorded, r.Execution.Detail)
			}
			slices.Sort(recorded)
			if diff := cmp.Diff(test.recorded, recorded); diff != "" {
				t.Errorf("recorded (-want +got):\n%s", diff)
			}
		})
	}

	// The client asks for itself and comes back with the answer. Then the policy,
	// or the person whom it asks, has the call go no further.
	const answers = `,"requestState":"its own","inputResponses":{"q":{"action":"accept","content":{}}}`
	t.Run("denied", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, worldOptions{servers: []string{"blocked"}})
		h := w.listen(t).byHand(t, w.Agent.Name, modern, `{"elicitation":{}}`)
		requireHalfWay(t, texts(t, string(h.must("echo", `{}`, answers)))[0], "Nothing more ran", "the policy denies")
	})
	t.Run("waiting, and approved", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, worldOptions{servers: []string{"hard"}, configure: func(s *Server) { s.Run = AtReturn }})
		h := w.listen(t).byHand(t, w.Agent.Name, modern, `{"elicitation":{}}`)
		requireHalfWay(t, texts(t, string(h.must("echo", `{}`, answers)))[0], "NOT FINISHED", "no refusal and no approval", "from its beginning")
		r := w.only(t)
		w.wire.cut()
		w.gateway.downstreams.connections["hard"].outdated()
		w.logs.await(t, 1, downText)
		requireHalfWay(t, texts(t, string(h.must("echo", `{}`, answers)))[0], "isn't available now")
		w.wire.mend()
		w.logs.await(t, 2, upText)
		w.Decide(t, approvaltest.Alice, r, approval.Approve)
		if got := texts(t, string(h.must("echo", `{}`, answers)))[0]; got != keyed(`{}`, r) {
			t.Errorf("approved, it says %s", got)
		}
	})
	t.Run("declined", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, worldOptions{servers: []string{"soft"}})
		h := w.listen(t).byHand(t, w.Agent.Name, modern, `{"elicitation":{}}`)
		state := state1(stateIn(t, h.must("echo", confirmedArguments, answers)))
		no := `,"inputResponses":{"approval":{"action":"decline"}}`
		requireHalfWay(t, texts(t, string(h.must("echo", confirmedArguments, state+no)))[0], "was asked to confirm")
		w.requireCalls(t)
	})
	t.Run("not called before", func(t *testing.T) {
		t.Parallel()
		r := startRounds(t)
		no := `,"inputResponses":{"approval":{"action":"decline"}}`
		requireText(t, texts(t, string(r.must("echo", confirmedArguments, state1(r.state)+no)))[0], "Nothing ran: the user was asked")
	})
}

// What was sent is not said to be half-way: nobody knows more of it.
func TestHalfWayTexts(t *testing.T) {
	t.Parallel()
	for _, text := range []string{whenCutOff, whenDone, whenFoundRan, whenFoundNot, whenNeedsInput, whenCantAsk, internalError, notHere} {
		if got := halfWay(text); got != text {
			t.Errorf("%s became %s", text, got)
		}
	}
	for _, text := range []string{whenNotSent, whenUnverified, whenUnavailable, whenStopping, whenForged, whenStateExpired, whenDown("one"),
		whenPending(new(approval.Request), "link", true), whenApproved(new(approval.Request))} {
		requireHalfWay(t, halfWay(text))
	}
}
