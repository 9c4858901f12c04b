package approval_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/approval/approvaltest"
)

// lateStore lets something happen right before its next insertion.
type lateStore struct {
	approval.Store
	meanwhile func()
}

func (s *lateStore) Insert(ctx context.Context, r *approval.Request, destinations []string, admit func(approval.Backlog) error) error {
	if happen := s.meanwhile; happen != nil {
		s.meanwhile = nil
		happen()
	}
	return s.Store.Insert(ctx, r, destinations, admit)
}

// What policy allows runs at once, so the policy that allows it must be the one
// in force when that is stored.
func TestPolicyChangesDuringAnAllowedCall(t *testing.T) {
	t.Parallel()
	f := approvaltest.NewRuns(t)
	store := &lateStore{Store: f.Store}
	service, err := approval.New(store, f.People, approval.Options{Policy: approvaltest.RunPolicy(t), Now: f.Clock.Now})
	if err != nil {
		t.Fatal(err)
	}
	get := approvaltest.Call("acct_1", action("payouts.get"))
	store.meanwhile = func() {
		if err := service.SetPolicy(t.Context(), approvaltest.RunPolicy(t, `rules: [{id: up, actions: [payouts.get], raise_to: 3, why: "Up."}]`)); err != nil {
			t.Error(err)
		}
	}
	r, err := service.Request(t.Context(), f.Agent, get)
	if err != nil || r.Status != approval.Pending {
		t.Errorf("got %+v (%v), want people to be asked", r, err)
	}
	store.meanwhile = func() {
		if err := service.SetPolicy(t.Context(), approvaltest.RunPolicy(t, `rules: []`)); err != nil {
			t.Error(err)
		}
	}
	if r, err = service.Request(t.Context(), f.Agent, approvaltest.Call("acct_2", action("payouts.get"))); err != nil || r.Status != approval.Applied {
		t.Errorf("got %+v (%v), want it allowed", r, err)
	}
}

// What policy allows of the gateway's calls is claimed with the request, so that
// nothing comes between, and nobody is told.
func TestAllowedCall(t *testing.T) {
	t.Parallel()
	f := approvaltest.NewRuns(t, func(o *approval.Options) { o.Destinations = []string{"slack:C1"} })
	get := approvaltest.Call("acct_1", action("payouts.get"))
	r := again(t, f, get)
	if r.Status != approval.Applied || r.Execution == nil || !r.Execution.FinishedAt.IsZero() || r.Execution.Outcome != approval.Unknown || r.Target != "acct_1" {
		t.Fatalf("got %+v", r)
	}
	stored, err := f.Service.Status(t.Context(), f.Agent, r.ID)
	if err != nil || stored.Status != approval.Applied || stored.Execution == nil || *stored.Execution != *r.Execution {
		t.Errorf("stored is %+v (%v)", stored, err)
	}
	if types, last := eventsOf(t, f, r.ID); types != "request.created request.approved request.applied" || last.Actor != "countersign" {
		t.Errorf("the events are %s, the last by %s", types, last.Actor)
	}
	nothingToTell(t, f)
	if _, err := f.Service.ClaimToRun(t.Context(), r.ID, r.ToolPin); !errors.Is(err, approval.ErrApplied) {
		t.Errorf("claiming it again: %v", err)
	}
	if next := again(t, f, get); next.ID == r.ID {
		t.Error("the same call again is the same request, so its result would be another's")
	}
	if ids, err := f.Service.Unfinished(t.Context(), 10); err != nil || len(ids) != 2 {
		t.Errorf("unfinished are %v (%v)", ids, err)
	}
	// It is a use, as a claim is.
	last, err := f.Store.LastUse(t.Context(), f.Agent, approval.Place{Environment: "production", Integration: "payouts", Tool: "get"})
	if err != nil || !last.Tool.Equal(f.Clock.Now()) {
		t.Errorf("it was used %+v (%v)", last, err)
	}
	// What the agent runs itself is only approved.
	own := again(t, f, approvaltest.Call("acct_1", action("payouts.get"), func(p *approval.Proposal) { p.Executor = approval.ByAgent }))
	if own.Status != approval.Approved || own.Execution != nil {
		t.Errorf("the agent's own is %s", own.Status)
	}
}

// What policy denies of the gateway's calls is on record and never runs.
func TestDeniedCall(t *testing.T) {
	t.Parallel()
	f := approvaltest.NewRuns(t)
	r, err := f.Service.Request(t.Context(), f.Agent, approvaltest.Call("acct_1", action("payouts.wipe")))
	if !errors.Is(err, approval.ErrDenied) || r.Status != approval.Rejected {
		t.Fatalf("got %+v (%v)", r, err)
	}
	if _, err := f.Service.ClaimToRun(t.Context(), r.ID, r.ToolPin); !errors.Is(err, approval.ErrRejected) {
		t.Errorf("claiming it: %v", err)
	}
	if _, err := f.Service.Confirm(t.Context(), f.Agent, approvaltest.Answer(r, true)); !errors.Is(err, approval.ErrDecided) {
		t.Errorf("confirming it: %v", err)
	}
}

// Calls that bother nobody don't count for the rate; all others do.
func TestRateOfCalls(t *testing.T) {
	t.Parallel()
	f := approvaltest.NewRuns(t, func(o *approval.Options) {
		o.Policy = approvaltest.ParsePolicy(t, `
version: 1
mode: cautious
roles: {finance: {users: [`+approvaltest.Alice.User+`]}}
approval: {requires: [{role: finance}], scopes: [once, 15m]}
block: [{id: no-wipe, actions: [payouts.wipe], why: "Nothing is wiped."}]
integrations: {payouts: {tools: {get: {tier: 1}, create: {tier: 3, target: args.account}, wipe: {tier: 5}}}}
limits: {pending: 10, per_minute: 3, cooldown: 0s}
`)
	})
	ask := func(p approval.Proposal) error {
		_, err := f.Service.Request(t.Context(), f.Agent, p)
		return err
	}
	first := granted(t, f, "15m") // one of three
	for i := range 20 {
		if err := ask(payout("acct_1", i, action("payouts.get"))); err != nil {
			t.Fatalf("allowed call %d: %v", i, err)
		}
		if err := ask(payout("acct_1", i+1)); err != nil {
			t.Fatalf("granted call %d: %v", i, err)
		}
	}
	if _, err := f.Service.ClaimToRun(t.Context(), first.ID, first.ToolPin); err != nil {
		t.Fatal(err)
	}
	if err := ask(payout("acct_2", 0)); err != nil { // two of three
		t.Fatal(err)
	}
	if err := ask(approvaltest.Call("acct_1", action("payouts.wipe"))); !errors.Is(err, approval.ErrDenied) { // three of three
		t.Fatal(err)
	}
	for name, p := range map[string]approval.Proposal{
		"one that people decide":    payout("acct_3", 0),
		"one that waits for people": payout("acct_2", 0),
		"one that is denied":        approvaltest.Call("acct_1", action("payouts.wipe")),
		"one that the agent runs":   payout("acct_1", 0, action("payouts.get"), func(p *approval.Proposal) { p.Executor = approval.ByAgent }),
	} {
		wantLimit(t, name, ask(p), f.Clock.Now().Add(20*time.Second+time.Millisecond))
	}
	// Those that bother nobody still come through.
	if err := errors.Join(ask(payout("acct_1", 0, action("payouts.get"))), ask(payout("acct_1", 99))); err != nil {
		t.Error(err)
	}
}
