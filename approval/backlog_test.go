package approval_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/approval/approvaltest"
)

// limitedTo is a fixture whose policy is tiered, with limits.
func limitedTo(t *testing.T, limits string) *approvaltest.Fixture {
	t.Helper()
	return ruledBy(t, "limits: {"+limits+"}")
}

// wantLimit checks that an error is a LimitError with the time to ask again.
func wantLimit(t *testing.T, what string, err error, retryAt time.Time) {
	t.Helper()
	var limit *approval.LimitError
	if !errors.As(err, &limit) {
		t.Errorf("%s: got %v, want a LimitError", what, err)
		return
	}
	if limit.Problem == "" || !limit.RetryAt.Equal(retryAt) {
		t.Errorf("%s: it says %q and may be asked again at %s, want %s", what, limit.Problem, limit.RetryAt, retryAt)
	}
}

// An identical request that waits is the same request: there is one card.
func TestIdenticalRequestsShareOne(t *testing.T) {
	t.Parallel()
	f := limitedTo(t, "pending: 2, cooldown: 0s, per_minute: 1000")
	first, err := ask(f, "crm.send", `{"to": "a", "n": 1}`)
	if err != nil {
		t.Fatal(err)
	}
	proposal := func(change func(*approval.Proposal)) approval.Proposal {
		p := approval.Proposal{Purpose: "Do it", Action: "crm.send", Environment: "production", Payload: []byte(`{"to": "a", "n": 1}`)}
		change(&p)
		return p
	}
	same := func(when string, change func(*approval.Proposal), want bool) *approval.Request {
		t.Helper()
		r, err := f.Service.Request(t.Context(), f.Agent, proposal(change))
		if err != nil {
			t.Fatalf("%s: %v", when, err)
		}
		if got := r.ID == first.ID; got != want {
			t.Errorf("%s: it is the same request: %t, want %t", when, got, want)
		}
		return r
	}
	same("again", func(*approval.Proposal) {}, true)
	same("for another purpose", func(p *approval.Proposal) { p.Purpose = "Please" }, true)
	same("with the payload's members in another order", func(p *approval.Proposal) { p.Payload = []byte(`{"n":1,"to":"a"}`) }, true)
	if types, _ := eventsOf(t, f, first.ID); types != "request.created" {
		t.Errorf("the events are %s", types)
	}
	other := same("on another target", func(p *approval.Proposal) { p.Target = "b" }, false)
	// At the limit of pending requests too.
	same("again at the limit", func(*approval.Proposal) {}, true)
	f.Decide(t, approvaltest.Alice, other, approval.Reject)

	// A person's edit doesn't make it another.
	if _, err := f.Service.Edit(t.Context(), approvaltest.Bob, first.ID, 1, []byte(`{"to":"b"}`), approval.Slack); err != nil {
		t.Fatal(err)
	}
	if r := same("after an edit", func(*approval.Proposal) {}, true); r.Version != 2 {
		t.Errorf("it is at version %d", r.Version)
	}
	f.Agent.Owner = approvaltest.Carol
	same("for another person", func(*approval.Proposal) {}, false)
	f.Agent.Owner = approval.Approver{}
	if r, err := f.Store.Request(t.Context(), first.ID); err != nil {
		t.Fatal(err)
	} else {
		f.Decide(t, approvaltest.Alice, r, approval.Approve)
	}
	again := same("once it was approved", func(*approval.Proposal) {}, false)
	f.Clock.Set(again.ExpiresAt)
	if r := same("once it expired, though nobody recorded that", func(*approval.Proposal) {}, false); r.ID == again.ID {
		t.Error("an expired request was taken for a pending one")
	}
}

func TestWhatCountsAsPending(t *testing.T) {
	t.Parallel()
	f := limitedTo(t, "pending: 2, cooldown: 0s, per_minute: 1000")
	var asked []*approval.Request
	for i := range 2 {
		r, err := ask(f, "crm.send", fmt.Sprintf(`{"n":%d}`, i))
		if err != nil {
			t.Fatal(err)
		}
		asked = append(asked, r)
	}
	_, err := ask(f, "crm.send", `{"n":"third"}`)
	wantLimit(t, "a third", err, time.Time{})
	if err != nil && !strings.Contains(err.Error(), "have: 2.") {
		t.Errorf("the agent is told %q", err)
	}
	// What policy decides by itself waits for nobody.
	if r, err := ask(f, "crm.get", `{}`); err != nil || r.Status != approval.Approved {
		t.Errorf("what policy allows: %v", err)
	}
	if _, err := ask(f, "crm.drop", `{}`); !errors.Is(err, approval.ErrDenied) {
		t.Errorf("what policy denies: %v", err)
	}
	f.Agent.Name = "another"
	if _, err := ask(f, "crm.send", `{"n":"third"}`); err != nil {
		t.Errorf("another agent: %v", err)
	}
	f.Agent.Name = "deployer"
	f.Decide(t, approvaltest.Alice, asked[0], approval.Approve)
	if _, err := ask(f, "crm.send", `{"n":"third"}`); err != nil {
		t.Errorf("once one is decided: %v", err)
	}
	f.Clock.Set(asked[1].ExpiresAt)
	if _, err := ask(f, "crm.send", `{"n":"fourth"}`); err != nil {
		t.Errorf("once one has expired: %v", err)
	}
}

// What a person rejected can't be put before people again for a while, in no
// other words and by no detour over an edit.
func TestCooldownHasNoDetour(t *testing.T) {
	t.Parallel()
	f := limitedTo(t, "pending: 10, cooldown: 30m, per_minute: 1000")
	r, err := ask(f, "crm.send", `{"n": 1}`)
	if err != nil {
		t.Fatal(err)
	}
	if r, err = f.Service.Edit(t.Context(), approvaltest.Bob, r.ID, 1, []byte(`{"n":0}`), approval.Slack); err != nil {
		t.Fatal(err)
	}
	f.Clock.Advance(time.Minute)
	f.Decide(t, approvaltest.Alice, r, approval.Reject)
	again := f.Clock.Now().Add(30 * time.Minute).Truncate(time.Millisecond)
	f.Clock.Advance(10 * time.Minute)
	for name, p := range map[string]approval.Proposal{
		"the same":            {Purpose: "Do it", Payload: []byte(`{"n": 1}`)},
		"for another purpose": {Purpose: "It is really needed", Payload: []byte(`{"n": 1}`)},
		"written otherwise":   {Purpose: "Do it", Payload: []byte(`{"n":1}`)},
		"of another target":   {Purpose: "Do it", Target: "elsewhere", Payload: []byte(`{"n":1}`)},
	} {
		p.Action, p.Environment = "crm.send", "production"
		_, err := f.Service.Request(t.Context(), f.Agent, p)
		wantLimit(t, name, err, again)
	}
	if _, err := ask(f, "crm.send", `{"n":2}`); err != nil {
		t.Errorf("another payload: %v", err)
	}
	if _, err := ask(f, "crm.send", `{"n":0}`); err != nil {
		t.Errorf("what the person had made of it: %v", err)
	}
	f.Agent.Name = "another"
	if _, err := ask(f, "crm.send", `{"n":1}`); err != nil {
		t.Errorf("another agent: %v", err)
	}
	f.Agent.Name = "deployer"
	f.Clock.Set(again.Add(-time.Millisecond))
	_, err = ask(f, "crm.send", `{"n":1}`)
	wantLimit(t, "a millisecond before the end", err, again)
	f.Clock.Set(again)
	if _, err := ask(f, "crm.send", `{"n":1}`); err != nil {
		t.Errorf("at the end: %v", err)
	}
}

// Only people's rejections count: not expiry, not policy's denial, and not that
// policy became stricter.
func TestCooldownIsOfPeople(t *testing.T) {
	t.Parallel()
	f := limitedTo(t, "pending: 10, cooldown: 30m, per_minute: 1000")
	expired, err := ask(f, "crm.send", `{"n":1}`)
	if err != nil {
		t.Fatal(err)
	}
	f.Clock.Set(expired.ExpiresAt)
	superseded, err := ask(f, "crm.send", `{"n":1}`)
	if err != nil {
		t.Fatalf("after it expired: %v", err)
	}
	before := f.Service.Policy()
	if err := f.Service.SetPolicy(t.Context(), tiered(t, `limits: {pending: 10, cooldown: 30m, per_minute: 1000}
rules: [{id: more, actions: [crm.send], raise_to: 5, why: "More."}]`)); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Service.Decide(t.Context(), approvaltest.Alice, approvaltest.Ballot(superseded, approval.Approve)); !errors.Is(err, approval.ErrSuperseded) {
		t.Fatal(err)
	}
	if _, err := ask(f, "crm.send", `{"n":1}`); err != nil {
		t.Errorf("after it was superseded: %v", err)
	}
	if err := f.Service.SetPolicy(t.Context(), before); err != nil {
		t.Fatal(err)
	}
	approved, err := ask(f, "crm.send", `{"n":2}`)
	if err != nil {
		t.Fatal(err)
	}
	f.Decide(t, approvaltest.Alice, approved, approval.Approve)
	f.People.Take("finance", approvaltest.Alice)
	if _, err := f.Service.Claim(t.Context(), f.Agent, approved.ID); !errors.Is(err, approval.ErrSuperseded) {
		t.Fatal(err)
	}
	if _, err := ask(f, "crm.send", `{"n":2}`); err != nil {
		t.Errorf("after an approver left: %v", err)
	}
	if err := f.Service.SetPolicy(t.Context(), tiered(t, `limits: {pending: 10, cooldown: 30m, per_minute: 1000}
rules: [{id: none, actions: [crm.send], raise_to: 3, why: "x"}]
environments: {production: {mode: readonly}}`)); err != nil {
		t.Fatal(err)
	}
	if _, err := ask(f, "crm.send", `{"n":7}`); !errors.Is(err, approval.ErrDenied) {
		t.Fatal(err)
	}
	if err := f.Service.SetPolicy(t.Context(), before); err != nil {
		t.Fatal(err)
	}
	if _, err := ask(f, "crm.send", `{"n":7}`); err != nil {
		t.Errorf("after policy denied it: %v", err)
	}
}

// Every call counts for the rate, whatever becomes of it.
func TestEveryCallCountsForTheRate(t *testing.T) {
	t.Parallel()
	f := limitedTo(t, "pending: 10, cooldown: 0s, per_minute: 4")
	if _, err := ask(f, "crm.get", `{}`); err != nil {
		t.Fatal(err)
	}
	if _, err := ask(f, "crm.drop", `{}`); !errors.Is(err, approval.ErrDenied) {
		t.Fatal(err)
	}
	if _, err := ask(f, "crm.send", `{}`); err != nil {
		t.Fatal(err)
	}
	var input *approval.InputError
	if _, err := ask(f, "crm.send", `{`); !errors.As(err, &input) {
		t.Fatal(err)
	}
	var limit *approval.LimitError
	for _, action := range []string{"crm.get", "crm.drop", "crm.send"} {
		if _, err := ask(f, action, `{}`); !errors.As(err, &limit) || !strings.Contains(limit.Problem, "4 times a minute") {
			t.Errorf("%s: got %v, want a LimitError", action, err)
		}
	}
	f.Clock.Set(limit.RetryAt)
	if _, err := ask(f, "crm.get", `{}`); err != nil {
		t.Errorf("at the time that it was told: %v", err)
	}
	f.Agent.Name = "another"
	if _, err := ask(f, "crm.get", `{}`); err != nil {
		t.Errorf("another agent: %v", err)
	}
}

// Requests at the same moment can't slip past the limits.
func TestLimitsAtTheSameMoment(t *testing.T) {
	t.Parallel()
	f := limitedTo(t, "pending: 3, cooldown: 30m, per_minute: 60000")
	at := func(n int, do func(i int) error) (won int, refused int) {
		t.Helper()
		results := make([]error, n)
		var all sync.WaitGroup
		gate := make(chan struct{})
		for i := range n {
			all.Go(func() {
				<-gate
				results[i] = do(i)
			})
		}
		close(gate)
		all.Wait()
		for _, err := range results {
			var limit *approval.LimitError
			switch {
			case err == nil:
				won++
			case errors.As(err, &limit):
				refused++
			default:
				t.Errorf("got %v", err)
			}
		}
		return won, refused
	}
	const asking = 48
	ids := make([]approval.ID, asking)
	if won, _ := at(asking, func(i int) error {
		r, err := ask(f, "crm.send", `{"n":"same"}`)
		if err == nil {
			ids[i] = r.ID
		}
		return err
	}); won != asking {
		t.Errorf("%d of %d got the one request", won, asking)
	}
	for _, id := range ids {
		if id != ids[0] {
			t.Fatal("the same was asked twice")
		}
	}
	if won, refused := at(asking, func(i int) error {
		_, err := ask(f, "crm.send", fmt.Sprintf(`{"n":%d}`, i))
		return err
	}); won != 2 || refused != asking-2 {
		t.Errorf("%d more were let in and %d refused, and the limit is 3", won, refused)
	}
	// A rejection and the same asked again: either the pending one is the
	// answer, or it is refused.
	r, err := f.Store.Request(t.Context(), ids[0])
	if err != nil {
		t.Fatal(err)
	}
	at(asking, func(i int) error {
		if i == asking/2 {
			_, err := f.Service.Decide(context.Background(), approvaltest.Alice, approvaltest.Ballot(r, approval.Reject))
			return err
		}
		got, err := ask(f, "crm.send", `{"n":"same"}`)
		if err == nil && got.ID != r.ID {
			t.Error("what was rejected was put before people again")
		}
		return err
	})
}

// What policy rules on makes two requests of one: they need two cards.
func TestNoTwinOfAnotherStatement(t *testing.T) {
	t.Parallel()
	f := underPolicy(t, asksFinance)
	ask := func(change ...func(*approval.Proposal)) approval.ID {
		t.Helper()
		r, err := f.Service.Request(t.Context(), f.Agent, proposal(change...))
		if err != nil {
			t.Fatal(err)
		}
		return r.ID
	}
	first := ask()
	for name, change := range map[string]func(*approval.Proposal){
		"a count":      func(p *approval.Proposal) { p.Count = new(int64(5000)) },
		"no count":     func(p *approval.Proposal) { p.Count = new(int64(0)) },
		"irreversible": func(p *approval.Proposal) { p.Reversible = new(false) },
	} {
		if ask(change) == first {
			t.Errorf("with %s it is shared", name)
		}
	}
	if ask() != first {
		t.Error("the same isn't shared")
	}
}

// Another spelling of the environment or the action is no other request.
func TestRespelledIsTheSame(t *testing.T) {
	t.Parallel()
	f := underPolicy(t, asksFinance+"limits: {cooldown: 30m}\n")
	r, err := f.Service.Request(t.Context(), f.Agent, proposal())
	if err != nil {
		t.Fatal(err)
	}
	f.Decide(t, approvaltest.Alice, r, approval.Reject)
	for name, change := range map[string]func(*approval.Proposal){
		"the environment":   func(p *approval.Proposal) { p.Environment = "Production" },
		"an unknown one":    func(p *approval.Proposal) { p.Environment = "whatever" },
		"the action":        func(p *approval.Proposal) { p.Action = "Payouts.Create" },
		"the white space":   func(p *approval.Proposal) { p.Payload = []byte(` { "amount":1200 } `) },
		"the other purpose": func(p *approval.Proposal) { p.Purpose = "Pay now" },
	} {
		_, err := f.Service.Request(t.Context(), f.Agent, proposal(change))
		if _, limited := errors.AsType[*approval.LimitError](err); !limited {
			t.Errorf("%s: got %v, want it refused", name, err)
		}
	}
}

// What people have before them isn't run a second time by the gateway because the
// policy asks nobody any more: if they have decided, that counts, and else the new
// call takes its place.
func TestAllowedTwin(t *testing.T) {
	t.Parallel()
	f := approvaltest.NewRuns(t)
	waiting, approved, edited := f.ProposeRun(t), f.ProposeRun(t), f.ProposeRun(t)
	f.Decide(t, approvaltest.Alice, approved, approval.Approve)
	if _, err := f.Service.Edit(t.Context(), approvaltest.Alice, edited.ID, 1, []byte(`{"account": "acct_9", "amount": 1}`), approval.Slack); err != nil {
		t.Fatal(err)
	}
	if err := f.Service.SetPolicy(t.Context(), approvaltest.RunPolicy(t, `rules: [{id: down, actions: [payouts.create], lower_to: 1, why: "Down."}]`)); err != nil {
		t.Fatal(err)
	}
	repeat := func(r *approval.Request) *approval.Request {
		t.Helper()
		r, err := f.Service.Request(t.Context(), f.Agent, approvaltest.Call(r.Target))
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	if r := repeat(waiting); r.ID == waiting.ID || r.Status != approval.Applied {
		t.Errorf("while the first waits: got %s, which is %s", r.ID, r.Status)
	}
	b := approvaltest.Ballot(waiting, approval.Approve)
	if r, err := f.Service.Decide(t.Context(), approvaltest.Alice, b); !errors.Is(err, approval.ErrDecided) || r.Status != approval.Rejected || !strings.Contains(r.Reason, "asks nobody") {
		t.Errorf("approving the first as well: %s, %q (%v)", r.Status, r.Reason, err)
	}

	if r := repeat(edited); r.ID != edited.ID || r.Status != approval.Pending {
		t.Errorf("edited: got %s, which is %s", r.ID, r.Status)
	}
	if r := repeat(approved); r.ID != approved.ID {
		t.Errorf("approved: got %s, which is %s", r.ID, r.Status)
	}
	f.Run(t, approved, "{}")
	if r := repeat(approved); r.ID != approved.ID {
		t.Errorf("before the agent has its result: got %s, which is %s", r.ID, r.Status)
	}
	if _, _, err := f.Service.ReturnResult(t.Context(), f.Agent, approved.ID); err != nil {
		t.Fatal(err)
	}
	if r := repeat(approved); r.ID == approved.ID || r.Status != approval.Applied {
		t.Errorf("once it has it: got %s, which is %s", r.ID, r.Status)
	}
}
