package approval_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/approval/approvaltest"
	"github.com/countersign/countersign/policy"
)

// underPolicy makes a fixture whose policy is the given lines beside roles that
// Alice and Bob hold.
func underPolicy(t *testing.T, lines string) *approvaltest.Fixture {
	t.Helper()
	return approvaltest.New(t, func(o *approval.Options) { o.Policy = finance(t, lines) })
}

func finance(t *testing.T, lines string) *policy.Policy {
	t.Helper()
	return approvaltest.ParsePolicy(t, fmt.Sprintf(`
version: 1
mode: cautious
roles: {finance: {users: [%s, %s]}}
%s`, approvaltest.Alice.User, approvaltest.Bob.User, lines))
}

const (
	asksFinance = "approval: {requires: [{role: finance}]}\n"
	payouts     = "integrations: {payouts: {tools: {get_*: {tier: 1}, create: {tier: 4}, drop: {tier: 5}}}}\n" +
		"block: [{id: no-drop, actions: [payouts.drop], why: Nothing is dropped here.}]\n"
)

func action(name string) func(*approval.Proposal) {
	return func(p *approval.Proposal) { p.Action = name }
}

// proposal is what Propose would ask, for tests of what is refused.
func proposal(change ...func(*approval.Proposal)) approval.Proposal {
	p := approval.Proposal{Purpose: "Pay the invoices of March", Action: "payouts.create", Payload: []byte(`{"amount": 1200}`)}
	for _, c := range change {
		c(&p)
	}
	return p
}

// The same request shares one card, and only while it waits.
func TestTwins(t *testing.T) {
	t.Parallel()
	f := underPolicy(t, asksFinance+"limits: {cooldown: 0s}\n")
	ask := func() *approval.Request {
		t.Helper()
		r, err := f.Service.Request(t.Context(), f.Agent, proposal())
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	first := ask()
	var together sync.WaitGroup
	for range 8 {
		together.Go(func() {
			if r, err := f.Service.Request(t.Context(), f.Agent, proposal()); err != nil || r.ID != first.ID {
				t.Errorf("got %v (%v), want the first request", r, err)
			}
		})
	}
	together.Wait()
	f.Decide(t, approvaltest.Alice, first, approval.Approve)
	if next := ask(); next.ID == first.ID {
		t.Error("a request that was decided is shared")
	}
}

func TestPendingLimit(t *testing.T) {
	t.Parallel()
	f := underPolicy(t, asksFinance+"limits: {pending: 2}\n")
	var mu sync.Mutex
	var stored []*approval.Request
	refused := 0
	var together sync.WaitGroup
	for i := range 8 {
		together.Go(func() {
			r, err := f.Service.Request(t.Context(), f.Agent, proposal(func(p *approval.Proposal) { p.Target = fmt.Sprint(i) }))
			mu.Lock()
			defer mu.Unlock()
			switch _, limited := errors.AsType[*approval.LimitError](err); {
			case limited:
				refused++
			case err != nil:
				t.Error(err)
			default:
				stored = append(stored, r)
			}
		})
	}
	together.Wait()
	if len(stored) != 2 || refused != 6 {
		t.Fatalf("%d were stored and %d refused, want 2 and 6", len(stored), refused)
	}
	other := approval.Agent{Name: "another"}
	if _, err := f.Service.Request(t.Context(), other, proposal()); err != nil {
		t.Errorf("another agent is refused: %v", err)
	}
	f.Decide(t, approvaltest.Alice, stored[0], approval.Approve)
	if _, err := f.Service.Request(t.Context(), f.Agent, proposal()); err != nil {
		t.Errorf("after a decision: %v", err)
	}
}

func TestCooldown(t *testing.T) {
	t.Parallel()
	f := underPolicy(t, asksFinance+"limits: {cooldown: 30m}\n")
	r := f.Propose(t)
	f.Decide(t, approvaltest.Alice, r, approval.Reject)
	ask := func(change ...func(*approval.Proposal)) error {
		p := proposal(append([]func(*approval.Proposal){func(p *approval.Proposal) { p.Environment, p.Payload = r.Environment, r.Payload }}, change...)...)
		_, err := f.Service.Request(t.Context(), f.Agent, p)
		return err
	}
	err := ask()
	limit, ok := errors.AsType[*approval.LimitError](err)
	if want := f.Clock.Now().Add(30 * time.Minute); !ok || !limit.RetryAt.Equal(want) {
		t.Fatalf("got %v, want it refused until %v", err, want)
	}
	if err := ask(func(p *approval.Proposal) { p.Purpose = "Pay them now" }); err == nil {
		t.Error("other words for it were accepted")
	}
	if err := ask(func(p *approval.Proposal) { p.Payload = []byte(`{"amount": 1}`) }); err != nil {
		t.Errorf("another payload: %v", err)
	}
	f.Clock.Advance(30 * time.Minute)
	if err := ask(); err != nil {
		t.Errorf("after the cool-down: %v", err)
	}
}

func TestPace(t *testing.T) {
	t.Parallel()
	f := underPolicy(t, asksFinance+payouts+"limits: {per_minute: 3}\n")
	ask := func(agent approval.Agent) error {
		_, err := f.Service.Request(t.Context(), agent, proposal(action("payouts.drop")))
		return err
	}
	for range 3 {
		if err := ask(f.Agent); !errors.Is(err, approval.ErrDenied) {
			t.Fatal(err)
		}
	}
	limit, ok := errors.AsType[*approval.LimitError](ask(f.Agent))
	if !ok || limit.RetryAt.Before(f.Clock.Now().Add(19*time.Second)) {
		t.Fatalf("the fourth in a minute: %v", limit)
	}
	if err := ask(approval.Agent{Name: "another"}); !errors.Is(err, approval.ErrDenied) {
		t.Errorf("another agent: %v", err)
	}
	f.Clock.Advance(20 * time.Second)
	if err := ask(f.Agent); !errors.Is(err, approval.ErrDenied) {
		t.Errorf("20 seconds later: %v", err)
	}
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
