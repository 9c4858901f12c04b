package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/approval/approvaltest"
)

// pending has the fixture's agent call a tool that waits for people.
func (w *world) pending(t testing.TB, session *sdk.ClientSession, tool, arguments string) *approval.Request {
	t.Helper()
	return w.requirePending(t, ask(t, session, tool, arguments))
}

// What was approved while the gateway was stopped, or while the server was down,
// runs when both are back.
func TestRunsWhenItCan(t *testing.T) {
	t.Parallel()
	t.Run("after a start", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, worldOptions{servers: []string{"hard"}})
		r := w.pending(t, connect(t, w.stdio(t), modern, nil), "echo", `{"a":1}`)
		w.stop()
		w.Decide(t, approvaltest.Alice, r, approval.Approve)
		w.requireCalls(t)
		next := newWorld(t, worldOptions{servers: []string{"hard"}, fixture: w.Fixture})
		requireOutcome(t, next.settled(t, r.ID), approval.Succeeded, "")
		next.requireCalls(t, arrived{"echo", keyed(`{"a":1}`, r)})
	})
	t.Run("after a cut", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, worldOptions{servers: []string{"hard"}})
		session := connect(t, w.stdio(t), modern, nil)
		r := w.pending(t, session, "echo", `{"a":1}`)
		w.wire.cut()
		w.gateway.downstreams.connections["hard"].outdated()
		w.logs.await(t, 1, downText)
		requireText(t, firstText(t, ask(t, session, "echo", `{"a":2}`)), "Nothing ran", "hard isn't available now")
		w.Decide(t, approvaltest.Alice, r, approval.Approve)
		if got := w.load(t, r.ID); got.Status != approval.Approved {
			t.Errorf("what can't run is %s", got.Status)
		}
		w.wire.mend()
		requireText(t, firstText(t, ask(t, session, "await_result", by(r.ID))), `{"a":1`)
		w.requireCalls(t, arrived{"echo", keyed(`{"a":1}`, r)})
	})
	t.Run("not after its deadline", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, worldOptions{servers: []string{"hard"}})
		session := connect(t, w.stdio(t), modern, nil)
		r := w.pending(t, session, "echo", `{}`)
		w.wire.cut()
		w.gateway.downstreams.connections["hard"].outdated()
		w.logs.await(t, 1, downText)
		w.Decide(t, approvaltest.Alice, r, approval.Approve)
		w.Clock.Advance(15 * time.Minute)
		requireText(t, firstText(t, ask(t, session, "await_result", by(r.ID))), "Nothing ran", "couldn't run before the deadline")
		w.wire.mend()
		w.logs.await(t, 2, upText)
		w.requireCalls(t)
	})
}

// Where it is configured so, what is approved waits for the agent.
func TestRunsAtTheReturn(t *testing.T) {
	t.Parallel()
	atReturn := func(s *Server) { s.Tools = map[string]RunAt{"echo": AtReturn} }
	for _, back := range []string{"echo", "await_result"} {
		t.Run(back, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, worldOptions{servers: []string{"hard"}, configure: atReturn})
			session := connect(t, w.stdio(t), modern, nil)
			r := w.pending(t, session, "echo", `{}`)
			w.Decide(t, approvaltest.Alice, r, approval.Approve)
			// Another one that doesn't wait runs after it would have.
			other := w.pending(t, session, "count", `{}`)
			w.Decide(t, approvaltest.Alice, other, approval.Approve)
			w.settled(t, other.ID)
			if got := w.load(t, r.ID); got.Status != approval.Approved {
				t.Fatalf("it is %s before the agent is back", got.Status)
			}
			requireText(t, lastText(t, ask(t, session, "check_status", by(r.ID))), "Approved. The server runs the call itself", "await_result")
			arguments := `{}`
			if back == "await_result" {
				arguments = by(r.ID)
			}
			if got := firstText(t, ask(t, session, back, arguments)); got != keyed(`{}`, r) {
				t.Errorf("got %s", got)
			}
		})
	}
}

// What an earlier process was running is unknown, and stays so until a person
// says what became of it. It never runs again.
func TestCutOffByACrash(t *testing.T) {
	t.Parallel()
	for _, ran := range []bool{true, false} {
		t.Run(strconv.FormatBool(ran), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, worldOptions{servers: []string{"hard"}})
			r := w.pending(t, connect(t, w.stdio(t), modern, nil), "echo", `{}`)
			w.stop()
			w.Decide(t, approvaltest.Alice, r, approval.Approve)
			if _, err := w.Service.ClaimToRun(t.Context(), r.ID, r.ToolPin); err != nil {
				t.Fatal(err)
			}
			next := newWorld(t, worldOptions{servers: []string{"hard"}, fixture: w.Fixture})
			session := connect(t, next.stdio(t), modern, nil)
			for _, result := range []*sdk.CallToolResult{
				ask(t, session, "await_result", by(r.ID)), ask(t, session, "echo", `{}`), ask(t, session, "await_result", by(r.ID)),
			} {
				requireText(t, firstText(t, result), "nobody knows what came of it", "Don't call the tool again")
				if !result.IsError {
					t.Error("it is no error")
				}
			}
			requireText(t, lastText(t, ask(t, session, "check_status", by(r.ID))), "nobody knows how it ended", "A person has to look")
			requireOutcome(t, next.load(t, r.ID), approval.Unknown, "The server stopped while it ran.")
			if _, err := w.Service.Settle(t.Context(), approvaltest.Alice, r.ID, ran, approval.Slack); err != nil {
				t.Fatal(err)
			}
			want := "did run"
			if !ran {
				want = "did not run"
			}
			requireText(t, firstText(t, ask(t, session, "await_result", by(r.ID))), want)
			next.requireCalls(t)
			w.requireCalls(t)
		})
	}
}

// Until what was cut off is recorded, no call is made: it would be taken for cut
// off too.
func TestNoCallBeforeCutOffsAreRecorded(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{servers: []string{"free"}})
	idle, err := New(w.Service, []Server{{Name: "free", URL: w.wire.URL}}, w.gateway.options)
	if err != nil {
		t.Fatal(err)
	}
	w.gateway = idle
	session := connect(t, w.stdio(t), modern, nil)
	idle.downstreams.current.Store(newCatalog([]string{"free"}, map[string]lists{"free": {tools: []tool{{server: "free", name: "echo", shown: json.RawMessage(`{}`)}}}}, ownTools, w.logs.logger()))
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := session.CallTool(ctx, &sdk.CallToolParams{Name: "echo"}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}

func TestNotSent(t *testing.T) {
	t.Parallel()
	for _, tool := range []string{"free__echo", "hard__echo"} {
		t.Run(tool, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, worldOptions{servers: []string{"free", "hard"}})
			session := connect(t, w.stdio(t), modern, nil)
			result, id := (*sdk.CallToolResult)(nil), approval.ID("")
			if tool == "free__echo" {
				w.wire.isCut.Store(true)
				result = ask(t, session, tool, `{}`)
				id = w.only(t).ID
			} else {
				r := w.pending(t, session, tool, `{}`)
				w.wire.isCut.Store(true)
				w.Decide(t, approvaltest.Alice, r, approval.Approve)
				result, id = ask(t, session, "await_result", by(r.ID)), r.ID
			}
			requireText(t, firstText(t, result), "Nothing ran", "wasn't reached")
			requireOutcome(t, w.load(t, id), approval.Failed, "It wasn't sent")
			w.requireCalls(t)
			w.wire.mend()
			if tool == "hard__echo" {
				w.logs.await(t, 2, upText, "server=hard")
				if next := w.pending(t, session, tool, `{}`); next.ID == id {
					t.Error("what wasn't sent is the same request still")
				}
			}
		})
	}
}

// A connection that breaks leaves a call of which nobody knows what came of it.
func TestCutOff(t *testing.T) {
	t.Parallel()
	for _, tool := range []string{"free__wait", "hard__wait"} {
		t.Run(tool, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, worldOptions{servers: []string{"free", "hard"}})
			session := connect(t, w.stdio(t), modern, nil)
			results := make(chan *sdk.CallToolResult, 1)
			const arguments = `{"id":"x"}`
			id := approval.ID("")
			if tool == "free__wait" {
				go func() { results <- ask(t, session, tool, arguments) }()
				receive(t, w.downstream.waiting)
				id = w.only(t).ID
			} else {
				r := w.pending(t, session, tool, arguments)
				w.Decide(t, approvaltest.Alice, r, approval.Approve)
				receive(t, w.downstream.waiting)
				id = r.ID
				requireText(t, lastText(t, ask(t, session, "check_status", by(id))), "runs now", "await_result")
				go func() { results <- ask(t, session, "await_result", by(id)) }()
			}
			w.wire.cut()
			requireText(t, firstText(t, receive(t, results)), "nobody knows what came of it", "may have taken effect")
			requireOutcome(t, w.settled(t, id), approval.Unknown, "The connection ended")
		})
	}
}

// What runs when the gateway stops may end, for a moment.
func TestStops(t *testing.T) {
	t.Parallel()
	for _, ends := range []bool{true, false} {
		t.Run(strconv.FormatBool(ends), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, worldOptions{servers: []string{"hard"}, gateway: func(g *Gateway) {
				if ends {
					g.grace = patience
				}
			}})
			r := w.pending(t, connect(t, w.stdio(t), modern, nil), "wait", `{"id":"x"}`)
			w.Decide(t, approvaltest.Alice, r, approval.Approve)
			receive(t, w.downstream.waiting)
			if ends {
				time.AfterFunc(50*time.Millisecond, func() { close(w.downstream.release) })
			}
			w.stop()
			if ends {
				requireOutcome(t, w.load(t, r.ID), approval.Succeeded, "released x")
			} else {
				requireOutcome(t, w.load(t, r.ID), approval.Unknown, "The server stopped while it ran.")
			}
		})
	}
}

// At most so many approved calls run at a server at once.
func TestAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{servers: []string{"hard"}})
	session := connect(t, w.stdio(t), modern, nil)
	var all []*approval.Request
	for i := range maxAtOnce + 2 {
		r := w.pending(t, session, "wait", fmt.Sprintf(`{"id":"%d"}`, i))
		w.Decide(t, approvaltest.Alice, r, approval.Approve)
		all = append(all, r)
	}
	for range maxAtOnce {
		receive(t, w.downstream.waiting)
	}
	w.Service.Bell().Ring(all[0].ID)
	running := 0
	for _, r := range all {
		if runsNow(w.load(t, r.ID)) {
			running++
		}
	}
	if running != maxAtOnce {
		t.Errorf("%d run at once", running)
	}
	close(w.downstream.release)
	for _, r := range all {
		requireOutcome(t, w.settled(t, r.ID), approval.Succeeded, "released")
	}
}

// What can't be checked isn't run, and isn't used up.
func TestNotVerified(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{servers: []string{"hard"}})
	session := connect(t, w.stdio(t), modern, nil)
	second := w.pending(t, session, "echo", `{"a":1}`)
	w.stop()
	w.Decide(t, approvaltest.Alice, second, approval.Approve)
	w.People.Fail(errors.New("Slack is down"))
	next := newWorld(t, worldOptions{servers: []string{"hard"}, fixture: w.Fixture})
	next.logs.await(t, 1, "claiming what to run", "Slack is down")
	session = connect(t, next.stdio(t), modern, nil)
	requireText(t, firstText(t, ask(t, session, "await_result", by(second.ID))), "Nothing ran", "Nothing was used up")
	w.People.Fail(nil)
	requireText(t, firstText(t, ask(t, session, "await_result", by(second.ID))), `{"a":1`)
	next.requireCalls(t, arrived{"echo", keyed(`{"a":1}`, second)})
}

// Who lost the role since doesn't count any more when it runs.
func TestRoleLost(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{servers: []string{"hard"}, configure: func(s *Server) { s.Run = AtReturn }})
	session := connect(t, w.stdio(t), modern, nil)
	r := w.pending(t, session, "echo", `{}`)
	w.Decide(t, approvaltest.Alice, r, approval.Approve)
	w.People.Take("finance", approvaltest.Alice)
	requireText(t, firstText(t, ask(t, session, "await_result", by(r.ID))), "Nothing ran", "no longer counts")
	w.requireCalls(t)
}

// racesVariable is how many races TestRaces runs, for a longer look.
const racesVariable = "GATEWAY_RACES"

// An approved call runs once, however many want to run it: two executors, three
// agents that wait for the result, three that make the same call again.
func TestRaces(t *testing.T) {
	t.Parallel()
	races := 50
	if given, err := strconv.Atoi(os.Getenv(racesVariable)); err == nil {
		races = given
	}
	w := newWorld(t, worldOptions{servers: []string{"hard"}})
	d := w.listen(t)
	var sessions []*sdk.ClientSession
	for i := range 6 {
		sessions = append(sessions, connect(t, d.transport(t, w.Agent.Name), []string{legacy, modern}[i%2], nil))
	}
	for race := range races {
		arguments := fmt.Sprintf(`{"race":%d}`, race)
		r := w.pending(t, sessions[0], "echo", arguments)
		want := keyed(arguments, r)
		start := make(chan struct{})
		var racing sync.WaitGroup
		for i, session := range sessions {
			tool, with := "await_result", by(r.ID)
			if i >= 3 {
				tool, with = "echo", arguments
			}
			racing.Go(func() {
				<-start
				got := firstText(t, ask(t, session, tool, with))
				// The same call is another one once the result was taken, and waits
				// if it was made before the decision.
				if got != want && (tool != "echo" || !strings.HasPrefix(got, "NOT RUN YET")) {
					t.Errorf("race %d: %s got %s", race, tool, got)
				}
			})
		}
		racing.Go(func() {
			<-start
			w.Decide(t, approvaltest.Alice, r, approval.Approve)
			w.gateway.runApproved(t.Context(), make(map[approval.ID]time.Time))
		})
		close(start)
		racing.Wait()
	}
	times := make(map[string]int)
	for _, call := range w.got() {
		times[call.arguments]++
	}
	if len(times) != races {
		t.Errorf("%d of %d calls ran", len(times), races)
	}
	for arguments, n := range times {
		if n != 1 {
			t.Errorf("%s ran %d times", arguments, n)
		}
	}
}
