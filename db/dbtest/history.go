package dbtest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/audit"
)

func eventCount(t testing.TB, store Store) int64 {
	t.Helper()
	n, _, err := audit.Verify(store.Events(t.Context()))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// randomWork has several goroutines do anything to a few requests and checks
// that the events account for what the requests have become.
func randomWork(t *testing.T, open func(testing.TB) Store) {
	store := open(t)
	var elapsed atomic.Int64
	service := newService(t, store, func() time.Time { return start.Add(time.Duration(elapsed.Load())) }, "slack:C1")
	var mu sync.Mutex
	var known []*approval.Request
	var workers sync.WaitGroup
	for worker := range 4 {
		workers.Go(func() {
			random := rand.New(rand.NewPCG(uint64(worker), 7))
			for range 120 {
				elapsed.Add(int64(random.IntN(int(20 * time.Second))))
				mu.Lock()
				if len(known) < 20 {
					known = append(known, propose(t, service))
				}
				r := known[random.IntN(len(known))]
				mu.Unlock()
				if err := anything(t, service, random, r); errors.Is(err, approval.ErrUnavailable) {
					t.Error(err)
				}
			}
		})
	}
	workers.Wait()

	changes := make(map[approval.ID]int64)
	for event, err := range store.Events(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		switch event.Type {
		case "request.created", "decision.recorded", "request.edited", "request.applied", "request.superseded", "execution.finished", "request.expired":
			changes[approval.ID(event.RequestID)]++
		}
	}
	eventCount(t, store)
	for _, r := range known {
		r, err := store.Request(t.Context(), r.ID)
		if err != nil {
			t.Fatal(err)
		}
		if r.Revision != changes[r.ID] {
			t.Errorf("request %s is at revision %d and has %d events of a change", r.ID, r.Revision, changes[r.ID])
		}
		if (r.Execution != nil) != (r.Status == approval.Applied) {
			t.Errorf("request %s is %s with the execution %+v", r.ID, r.Status, r.Execution)
		}
	}
}

func anything(t *testing.T, service *approval.Service, random *rand.Rand, r *approval.Request) error {
	who := person(fmt.Sprintf("U%d", random.IntN(3)))
	var err error
	switch random.IntN(8) {
	case 0, 1:
		_, err = service.Decide(t.Context(), who, ballot(r, approval.Approve))
	case 2:
		_, err = service.Decide(t.Context(), who, ballot(r, approval.Reject))
	case 3, 4:
		_, err = service.Edit(t.Context(), who, r.ID, 1+random.IntN(2), fmt.Appendf(nil, `{"amount":%d}`, random.Int()), approval.Slack)
	case 5, 6:
		_, err = service.Claim(t.Context(), agent, r.ID)
	default:
		_, err = service.Finish(t.Context(), agent, r.ID, approval.Failed, "a detail")
	}
	return err
}

func tokens(t *testing.T, open func(testing.TB) Store) {
	store := open(t)
	service := newService(t, store, at(start))
	later := newService(t, store, at(start.Add(time.Minute)))
	operator := approval.Operator{Name: "root"}
	second, _, err := later.CreateToken(t.Context(), operator, "ci", approval.Approver{})
	if err != nil {
		t.Fatal(err)
	}
	first, secret, err := service.CreateToken(t.Context(), operator, "deployer", person("U0ANN"))
	if err != nil {
		t.Fatal(err)
	}
	check := func(want ...approval.Token) {
		t.Helper()
		got, err := store.Tokens(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("tokens (-want +got):\n%s", diff)
		}
	}
	check(first, second)
	got, err := service.Authenticate(t.Context(), secret)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(first, got); diff != "" {
		t.Errorf("the token of the secret (-want +got):\n%s", diff)
	}
	if err := store.RevokeToken(t.Context(), first.ID, operator, start.Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	first.RevokedAt = start.Add(time.Hour)
	check(first, second)
	before := eventCount(t, store)
	for name, err := range map[string]error{
		"revoking again":                  store.RevokeToken(t.Context(), first.ID, operator, start.Add(2*time.Hour)),
		"revoking an unknown one":         store.RevokeToken(t.Context(), "tok_unknown", operator, start),
		"authenticating by a revoked one": func() error { _, err := service.Authenticate(t.Context(), secret); return err }(),
		"authenticating by an unknown one": func() error {
			_, err := store.TokenByHash(t.Context(), approval.TokenHash{})
			return err
		}(),
	} {
		if !errors.Is(err, approval.ErrToken) {
			t.Errorf("%s: got %v, want ErrToken", name, err)
		}
	}
	if after := eventCount(t, store); after != before || before != 3 {
		t.Errorf("got %d and then %d events, want 3: two created, one revoked", before, after)
	}
	var same approval.TokenHash
	if err := store.InsertToken(t.Context(), approval.Token{ID: "tok_a", CreatedAt: start}, same); err != nil {
		t.Fatal(err)
	}
	if err := store.InsertToken(t.Context(), approval.Token{ID: "tok_b", CreatedAt: start}, same); err == nil {
		t.Error("two tokens have the same secret")
	}
}
