package db_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/db"
	"github.com/countersign/countersign/db/dbtest"
	"github.com/countersign/countersign/policy"
)

// limited is a service that lets an agent have three requests waiting.
func limited(t *testing.T, store approval.Store) *approval.Service {
	t.Helper()
	rules, err := policy.Parse([]byte(`
version: 1
mode: cautious
roles: {finance: {groups: [S0FINANCE]}}
approval: {requires: [{role: finance}]}
limits: {pending: 3, per_minute: 60000, cooldown: 1h}
`))
	if err != nil {
		t.Fatal(err)
	}
	service, err := approval.New(store, anyone{}, approval.Options{Policy: rules, Destinations: []string{"slack:C1"}})
	if err != nil {
		t.Fatal(err)
	}
	return service
}

// Requests that share one transaction see each other: no more come through
// together than would one after the other.
func TestLimitsWithinOneTransaction(t *testing.T) {
	t.Parallel()
	var commits atomic.Int32
	d := dbtest.OpenIn(t, newFolder(t), db.Options{Trace: func(statement string) {
		if statement == "COMMIT" {
			commits.Add(1)
		}
	}})
	service := limited(t, d)
	ask := func(number int) (*approval.Request, error) {
		return service.Request(context.Background(), agent, approval.Proposal{Purpose: "Pay", Payload: fmt.Appendf(nil, `{"amount":%d}`, number)})
	}
	release := hold(t, d)
	const callers = 40
	ids, errs := make([]approval.ID, callers), make([]error, callers)
	var calling sync.WaitGroup
	for i := range callers {
		calling.Go(func() {
			r, err := ask(i / 2) // each is asked twice
			if errs[i] = err; err == nil {
				ids[i] = r.ID
			}
		})
	}
	untilWaiting(t, d, callers)
	before := commits.Load()
	release()
	calling.Wait()
	if got := commits.Load() - before; got != 2 {
		t.Errorf("it took %d transactions, want 2: the one that was held, and one for all that waited", got)
	}
	different := make(map[approval.ID]bool)
	for i, err := range errs {
		var limit *approval.LimitError
		if err != nil && !errors.As(err, &limit) {
			t.Errorf("caller %d got %v", i, err)
		}
		if err == nil {
			different[ids[i]] = true
		}
		if twin := i ^ 1; ids[i] != ids[twin] {
			t.Errorf("callers %d and %d asked the same and got %q and %q", i, twin, ids[i], ids[twin])
		}
	}
	if len(different) != 3 {
		t.Errorf("%d requests wait, want 3", len(different))
	}
	for id := range different {
		if r, err := d.Request(t.Context(), id); err != nil || r.Status != approval.Pending {
			t.Errorf("%s is %v (%v)", id, r, err)
		}
	}
}

// A use is recorded with the claim or not at all.
func TestUseIsLostWithItsClaim(t *testing.T) {
	t.Parallel()
	d := dbtest.Open(t)
	service := limited(t, d)
	r, err := service.Request(t.Context(), agent, approval.Proposal{Purpose: "Pay", Action: "crm.get", Payload: []byte(`{}`)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := service.Decide(t.Context(), person, approval.Ballot{
		Request: r.ID, Version: r.Version, Digest: r.Digest, Verdict: approval.Approve, Surface: approval.Slack,
	}); err != nil {
		t.Fatal(err)
	}
	place := approval.Place{Environment: "production", Integration: "crm", Tool: "get"}
	release := hold(t, d)
	claimed, broken := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := service.Claim(context.Background(), agent, r.ID)
		claimed <- err
	}()
	untilWaiting(t, d, 1)
	go func() { broken <- d.Do(context.Background(), failCommit) }()
	untilWaiting(t, d, 2)
	release()
	if err := errors.Join(<-claimed, <-broken); !errors.Is(err, approval.ErrUnavailable) {
		t.Fatalf("got %v, want the transaction lost", err)
	}
	if got, err := d.LastUse(t.Context(), agent, place); err != nil || got != (approval.LastUse{}) {
		t.Errorf("a claim that was lost is a use: %v (%v)", got, err)
	}
	applied, err := service.Claim(t.Context(), agent, r.ID)
	if err != nil {
		t.Fatal(err)
	}
	at := applied.Execution.StartedAt
	if got, err := d.LastUse(t.Context(), agent, place); err != nil || got != (approval.LastUse{Tool: at, Integration: at, Agent: at}) {
		t.Errorf("got the use %v (%v), want at %s", got, err, at)
	}
}
