package approval_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/approval/approvaltest"
)

// again has the fixture's agent make a call once more.
func again(t *testing.T, f *approvaltest.Fixture, p approval.Proposal) *approval.Request {
	t.Helper()
	r, err := f.Service.Request(t.Context(), f.Agent, p)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// The same call is the same request while it waits, while it runs, and until the
// agent has its result. Then it is a new one.
func TestSameCall(t *testing.T) {
	t.Parallel()
	steps := []struct {
		name string
		step func(*testing.T, *approvaltest.Fixture, *approval.Request)
		same bool
	}{
		{"pending", func(*testing.T, *approvaltest.Fixture, *approval.Request) {}, true},
		{"approved", func(t *testing.T, f *approvaltest.Fixture, r *approval.Request) {
			f.Decide(t, approvaltest.Alice, r, approval.Approve)
		}, true},
		{"running", func(t *testing.T, f *approvaltest.Fixture, r *approval.Request) {
			if _, err := f.Service.ClaimToRun(t.Context(), r.ID, r.ToolPin); err != nil {
				t.Fatal(err)
			}
		}, true},
		{"has run", func(t *testing.T, f *approvaltest.Fixture, r *approval.Request) {
			if _, err := f.Service.FinishRun(t.Context(), r.ID, approval.Report{Outcome: approval.Succeeded, Result: []byte(`1`)}); err != nil {
				t.Fatal(err)
			}
		}, true},
		{"returned", func(t *testing.T, f *approvaltest.Fixture, r *approval.Request) {
			if _, _, err := f.Service.ReturnResult(t.Context(), f.Agent, r.ID); err != nil {
				t.Fatal(err)
			}
		}, false},
	}
	f := approvaltest.NewRuns(t)
	call := approvaltest.Call("acct_1")
	first := again(t, f, call)
	for _, step := range steps {
		step.step(t, f, first)
		// Spelled otherwise it is the same.
		call.Payload = []byte(`{"amount":1200,"account":"acct_1"}`)
		if got := again(t, f, call); (got.ID == first.ID) != step.same {
			t.Errorf("once it is %s: got %s, which is %s, and the first is %s", step.name, got.ID, got.Status, first.ID)
		}
	}
}

// Calls that differ in what runs, or in who asks, are no twins.
func TestDifferentCalls(t *testing.T) {
	t.Parallel()
	f := approvaltest.NewRuns(t)
	first := again(t, f, approvaltest.Call("acct_1"))
	f.Decide(t, approvaltest.Alice, first, approval.Approve)
	for name, change := range map[string]func(*approval.Proposal){
		"another tool":        func(p *approval.Proposal) { p.Action = "payouts.drop" },
		"another environment": func(p *approval.Proposal) { p.Environment = "staging" },
		"another definition":  func(p *approval.Proposal) { p.ToolPin = "pin-2" },
		"another number":      func(p *approval.Proposal) { p.Payload = []byte(`{"account":"acct_1","amount":1200.0}`) },
		"run by the agent": func(p *approval.Proposal) {
			p.Executor, p.Target = approval.ByAgent, "acct_1"
		},
	} {
		if got := again(t, f, approvaltest.Call("acct_1", change)); got.ID == first.ID {
			t.Errorf("%s: got the same request", name)
		}
	}
	for name, agent := range map[string]approval.Agent{
		"another agent": {Name: "another"},
		"for another":   {Name: f.Agent.Name, Owner: approvaltest.Carol},
	} {
		if got, err := f.Service.Request(t.Context(), agent, approvaltest.Call("acct_1")); err != nil || got.ID == first.ID {
			t.Errorf("%s: got %v (%v)", name, got, err)
		}
	}
}

// The request that an agent asked to run itself isn't the one for the gateway,
// even if nothing but that tells them apart.
func TestWhoRunsTellsCallsApart(t *testing.T) {
	t.Parallel()
	f := approvaltest.NewRuns(t)
	byAgent := func(p *approval.Proposal) { p.Executor, p.ToolPin, p.Target = approval.ByAgent, "", "acct_1" }
	unpinned := func(p *approval.Proposal) { p.ToolPin = "" }
	own := again(t, f, approvaltest.Call("acct_1", byAgent))
	if got := again(t, f, approvaltest.Call("acct_1", unpinned)); got.ID == own.ID || got.Executor != approval.ByGateway {
		t.Errorf("the gateway got the agent's request %+v", got)
	}
}

// What a person changed is still what the agent asked: it gets the result of
// that, and people aren't asked again.
func TestSameCallAfterAnEdit(t *testing.T) {
	t.Parallel()
	f := approvaltest.NewRuns(t)
	call := approvaltest.Call("acct_1")
	first := again(t, f, call)
	edited, err := f.Service.Edit(t.Context(), approvaltest.Bob, first.ID, 1, []byte(`{"account": "acct_2", "amount": 1}`), approval.Slack)
	if err != nil || edited.Target != "acct_2" {
		t.Fatalf("got %+v (%v), want another target", edited, err)
	}
	if got := again(t, f, call); got.ID != first.ID {
		t.Errorf("while it is pending: got %s, want %s", got.ID, first.ID)
	}
	f.Decide(t, approvaltest.Alice, edited, approval.Approve)
	if got := again(t, f, call); got.ID != first.ID || got.Status != approval.Approved {
		t.Errorf("once it is approved: got %s, which is %s, want %s", got.ID, got.Status, first.ID)
	}
	// What it became isn't what the agent asked.
	if got := again(t, f, approvaltest.Call("acct_2", func(p *approval.Proposal) {
		p.Payload = []byte(`{"account": "acct_2", "amount": 1}`)
	})); got.ID == first.ID {
		t.Error("a call that the agent didn't make got the request")
	}
}

// A twin is one only as long as its approval could be used.
func TestDeadlineOfATwin(t *testing.T) {
	t.Parallel()
	for _, ran := range []bool{false, true} {
		t.Run(fmt.Sprintf("ran %t", ran), func(t *testing.T) {
			t.Parallel()
			f := approvaltest.NewRuns(t)
			call := approvaltest.Call("acct_1")
			first := f.Decide(t, approvaltest.Alice, again(t, f, call), approval.Approve)
			if ran {
				f.Run(t, first, `1`)
			}
			f.Clock.Set(first.ApplyBy.Add(-time.Millisecond))
			if got := again(t, f, call); got.ID != first.ID {
				t.Errorf("a millisecond before the deadline: got %s, which is %s", got.ID, got.Status)
			}
			f.Clock.Set(first.ApplyBy)
			if got := again(t, f, call); got.ID == first.ID || got.Status != approval.Pending {
				t.Errorf("at the deadline: got %s, which is %s", got.ID, got.Status)
			}
		})
	}
}

// An agent that repeats a call to get its result doesn't have it run once more,
// not even if the approval was for more than once.
func TestSameCallUnderItsOwnGrant(t *testing.T) {
	t.Parallel()
	f := approvaltest.NewRuns(t)
	call := approvaltest.Call("acct_1")
	first := f.Grant(t, approvaltest.Alice, again(t, f, call), "15m")
	if first.Grant == nil {
		t.Fatal("nothing was granted")
	}
	if got := again(t, f, call); got.ID != first.ID {
		t.Errorf("before it ran: got %s by the grant %q, want %s", got.ID, got.GrantedBy, first.ID)
	}
	f.Run(t, first, `1`)
	if got := again(t, f, call); got.ID != first.ID {
		t.Errorf("before its result was returned: got %s by the grant %q, want %s", got.ID, got.GrantedBy, first.ID)
	}
	if _, _, err := f.Service.ReturnResult(t.Context(), f.Agent, first.ID); err != nil {
		t.Fatal(err)
	}
	next := again(t, f, call)
	if next.ID == first.ID || next.GrantedBy != first.ID || next.Status != approval.Approved {
		t.Errorf("after it: got %+v, want a new one by the grant", next)
	}
	// What a grant approved is run by the call that asked: the same call again is
	// another one.
	if got := again(t, f, call); got.ID == next.ID || got.GrantedBy != first.ID {
		t.Errorf("once more: got %s, want another one than %s", got.ID, next.ID)
	}
}

// A call that waits for people goes on waiting for them when the same comes
// under a grant: it would run twice once they approve it.
func TestSameCallPendingUnderAGrant(t *testing.T) {
	t.Parallel()
	f := approvaltest.NewRuns(t)
	other := approvaltest.Call("acct_1", func(p *approval.Proposal) { p.Payload = []byte(`{"account":"acct_1","amount":1}`) })
	waiting := again(t, f, approvaltest.Call("acct_1"))
	f.Grant(t, approvaltest.Alice, again(t, f, other), "15m")
	if got := again(t, f, approvaltest.Call("acct_1")); got.ID != waiting.ID {
		t.Errorf("got %s by the grant %q, want %s", got.ID, got.GrantedBy, waiting.ID)
	}
}
