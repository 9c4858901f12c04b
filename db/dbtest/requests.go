package dbtest

import (
	"errors"
	"fmt"
	"reflect"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/countersign/countersign/approval"
)

// stored compares requests by what is kept of them.
var stored = cmp.Options{
	cmpopts.IgnoreUnexported(approval.Request{}),
	cmpopts.EquateEmpty(),
}

// admitted lets every request in.
func admitted(approval.Backlog) error { return nil }

func everyField(t *testing.T, open func(testing.TB) Store) {
	store := open(t)
	set := make(map[string]bool)
	var granted []*approval.Request
	rapid.Check(t, func(rt *rapid.T) {
		want := anyRequest(rt)
		if len(granted) > 0 && rapid.Bool().Draw(rt, "granted by another") {
			by := rapid.SampledFrom(granted).Draw(rt, "by")
			want.GrantedBy, want.Under = by.ID, by.Grant
		}
		noteFields(set, reflect.ValueOf(*want))
		if err := store.Insert(t.Context(), want, []string{"slack:C1"}, admitted); err != nil {
			rt.Fatal(err)
		}
		got, err := store.Request(t.Context(), want.ID)
		if err != nil {
			rt.Fatal(err)
		}
		if diff := cmp.Diff(want, got, stored); diff != "" {
			rt.Fatalf("inserted and loaded (-want +got):\n%s", diff)
		}
		change(rt, want)
		got, err = store.Update(t.Context(), want.ID, func(r *approval.Request) error {
			*r = *want
			return nil
		})
		if err != nil {
			rt.Fatal(err)
		}
		if diff := cmp.Diff(want, got, stored); diff != "" {
			rt.Fatalf("what Update returns (-want +got):\n%s", diff)
		}
		if got, err = store.Request(t.Context(), want.ID); err != nil {
			rt.Fatal(err)
		}
		if diff := cmp.Diff(want, got, stored); diff != "" {
			rt.Fatalf("updated and loaded (-want +got):\n%s", diff)
		}
		if got.Grant != nil {
			granted = append(granted, got)
		}
	})
	for field := range reflect.TypeFor[approval.Request]().Fields() {
		if field.IsExported() && !set[field.Name] {
			t.Errorf("the field %s was never set, so it wasn't tested", field.Name)
		}
	}
}

func noteFields(set map[string]bool, value reflect.Value) {
	for field, v := range value.Fields() {
		if !v.IsZero() {
			set[field.Name] = true
		}
	}
}

func failedChange(t *testing.T, open func(testing.TB) Store) {
	store := open(t)
	service := newService(t, store, at(start), "slack:C1")
	want := propose(t, service)
	before := eventCount(t, store)
	refusal := errors.New("no")
	got, err := store.Update(t.Context(), want.ID, func(r *approval.Request) error {
		r.Status = approval.Approved
		r.Payload[0] = '!'
		r.Ruling.Rules[0].Why = "changed"
		r.Revision++
		return refusal
	})
	if !errors.Is(err, refusal) {
		t.Errorf("got the error %v, want the change's own", err)
	}
	if diff := cmp.Diff(want, got, stored); diff != "" {
		t.Errorf("Update returned the request not as loaded (-want +got):\n%s", diff)
	}
	if got, err = store.Request(t.Context(), want.ID); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, stored); diff != "" {
		t.Errorf("something was saved (-want +got):\n%s", diff)
	}
	// What the database refuses undoes what was written before it.
	for name, change := range map[string]func(*approval.Request){
		"applied without an execution": func(r *approval.Request) {
			r.Version++
			r.Status = approval.Applied
		},
		"a decision of nobody": func(r *approval.Request) {
			r.Decisions = append(r.Decisions, approval.Decision{Receipt: "rcpt_nobody", Verdict: approval.Approve, Surface: approval.Slack, Version: 1, At: start})
		},
		"a decision of the policy that names a person": func(r *approval.Request) {
			r.Decisions = append(r.Decisions, approval.Decision{Receipt: "rcpt_policy", Approver: person("U0ANN"), Verdict: approval.Approve, Surface: approval.Policy, Version: 1, At: start})
		},
		"another payload of the same version": func(r *approval.Request) {
			r.Payload = approval.Payload(`{"amount":9}`)
		},
	} {
		_, err = store.Update(t.Context(), want.ID, func(r *approval.Request) error {
			change(r)
			r.Revision++
			return nil
		})
		if err == nil || errors.Is(err, approval.ErrUnavailable) {
			t.Errorf("%s: got %v, want it refused", name, err)
		}
	}
	if got, err = store.Request(t.Context(), want.ID); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, stored); diff != "" {
		t.Errorf("half of a change was saved (-want +got):\n%s", diff)
	}
	if after := eventCount(t, store); after != before {
		t.Errorf("got %d events after failed changes, want %d", after, before)
	}
	if err := store.Insert(t.Context(), want, nil, admitted); err == nil {
		t.Error("a request was inserted twice")
	}

	const unknown = approval.ID("req_00000000000000000000000000000000")
	if _, err := store.Request(t.Context(), unknown); !errors.Is(err, approval.ErrNotFound) {
		t.Errorf("loading an unknown request: got %v", err)
	}
	_, err = store.Update(t.Context(), unknown, func(*approval.Request) error {
		t.Error("change was called for an unknown request")
		return nil
	})
	if !errors.Is(err, approval.ErrNotFound) {
		t.Errorf("updating an unknown request: got %v", err)
	}
}

func panics(t *testing.T, open func(testing.TB) Store) {
	store := open(t)
	service := newService(t, store, at(start))
	want := propose(t, service)
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the caller saw no panic")
			}
		}()
		_, _ = store.Update(t.Context(), want.ID, func(r *approval.Request) error {
			r.Status = approval.Approved
			panic("a bug")
		})
	}()
	got, err := store.Request(t.Context(), want.ID)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, stored); diff != "" {
		t.Errorf("something was saved (-want +got):\n%s", diff)
	}
	propose(t, service)
}

func eventOnly(t *testing.T, open func(testing.TB) Store) {
	store := open(t)
	service := newService(t, store, at(start), "slack:C1")
	r := propose(t, service)
	deliver(t, store, "slack:C1", start)
	stale := ballot(r, approval.Approve)
	stale.Version = 7
	before := eventCount(t, store)
	if _, err := service.Decide(t.Context(), person("U0ANN"), stale); !errors.Is(err, approval.ErrStale) {
		t.Fatalf("got %v", err)
	}
	if after := eventCount(t, store); after != before+1 {
		t.Errorf("got %d events, want the refusal after %d", after, before)
	}
	if _, due, err := store.NextNotice(t.Context(), "slack:C1", start); err != nil || due {
		t.Errorf("an event that changed nothing made a notice due (%v)", err)
	}
}

const racers = 8

// race runs n calls at once and returns their errors.
func race(n int, call func(i int) error) []error {
	errs := make([]error, n)
	var ready, done sync.WaitGroup
	gate := make(chan struct{})
	for i := range n {
		ready.Add(1)
		done.Go(func() {
			ready.Done()
			<-gate
			errs[i] = call(i)
		})
	}
	ready.Wait()
	close(gate)
	done.Wait()
	return errs
}

// winner is the only call that had no error; the others must have had one of
// the given ones.
func winner(t *testing.T, what string, errs []error, lost ...error) int {
	t.Helper()
	won := -1
	for i, err := range errs {
		known := false
		for _, want := range lost {
			known = known || errors.Is(err, want)
		}
		switch {
		case err == nil && won >= 0:
			t.Fatalf("%s: %d and %d both won", what, won, i)
		case err == nil:
			won = i
		case !known:
			t.Fatalf("%s: %d lost with %v", what, i, err)
		}
	}
	if won < 0 {
		t.Fatalf("%s: nobody won: %v", what, errors.Join(errs...))
	}
	return won
}

func oneWinner(t *testing.T, open func(testing.TB) Store) {
	store := open(t)
	service := newService(t, store, at(start))
	for range 25 {
		r := propose(t, service)
		verdict := func(i int) approval.Verdict {
			return []approval.Verdict{approval.Approve, approval.Reject}[i%2]
		}
		won := winner(t, "deciding", race(racers, func(i int) error {
			_, err := service.Decide(t.Context(), person(fmt.Sprintf("U%d", i)), ballot(r, verdict(i)))
			return err
		}), approval.ErrDecided)
		decided, err := store.Request(t.Context(), r.ID)
		if err != nil {
			t.Fatal(err)
		}
		if len(decided.Decisions) != 1 || decided.Decisions[0].Approver != person(fmt.Sprintf("U%d", won)) {
			t.Fatalf("%d won and these are recorded: %+v", won, decided.Decisions)
		}
		if verdict(won) == approval.Reject {
			continue
		}
		winner(t, "claiming", race(racers, func(int) error {
			_, err := service.Claim(t.Context(), agent, r.ID)
			return err
		}), approval.ErrApplied)
		winner(t, "finishing", race(racers, func(int) error {
			_, err := service.Finish(t.Context(), agent, r.ID, approval.Succeeded, "")
			return err
		}), approval.ErrFinished)
	}
}

// wholeReads reads requests while they change: each must be as one of its
// revisions was, not half of one and half of the next.
func wholeReads(t *testing.T, open func(testing.TB) Store) {
	store := open(t)
	service := newService(t, store, at(start))
	var current atomic.Pointer[approval.Request]
	current.Store(propose(t, service))
	changed := make(chan struct{})
	var readers sync.WaitGroup
	for range 3 {
		readers.Go(func() {
			for {
				select {
				case <-changed:
					return
				default:
				}
				r, err := store.Request(t.Context(), current.Load().ID)
				if err != nil {
					t.Error(err)
					return
				}
				decisions, executed, finished := 0, false, false
				switch r.Revision {
				case 2:
					decisions = 1
				case 3:
					decisions, executed = 1, true
				case 4:
					decisions, executed, finished = 1, true, true
				}
				if len(r.Decisions) != decisions || (r.Execution != nil) != executed ||
					executed && r.Execution.FinishedAt.IsZero() == finished {
					t.Errorf("revision %d was read with %d decisions and the execution %+v", r.Revision, len(r.Decisions), r.Execution)
					return
				}
			}
		})
	}
	for range 30 {
		r := current.Load()
		if _, err := service.Decide(t.Context(), person("U0ANN"), ballot(r, approval.Approve)); err != nil {
			t.Fatal(err)
		}
		if _, err := service.Claim(t.Context(), agent, r.ID); err != nil {
			t.Fatal(err)
		}
		if _, err := service.Finish(t.Context(), agent, r.ID, approval.Succeeded, ""); err != nil {
			t.Fatal(err)
		}
		current.Store(propose(t, service))
	}
	close(changed)
	readers.Wait()
}

func deadlines(t *testing.T, open func(testing.TB) Store) {
	store := open(t)
	if next, err := store.NextDue(t.Context()); err != nil || !next.IsZero() {
		t.Errorf("an empty store has the deadline %s (%v)", next, err)
	}
	var ids []approval.ID
	for _, minutes := range []int{2, 1, 3} { // not in the order of their deadlines
		service := newService(t, store, at(start.Add(time.Duration(minutes)*time.Minute)))
		ids = append(ids, propose(t, service).ID)
	}
	deadline := func(minutes int) time.Time {
		return start.Add(approval.DefaultTTL + time.Duration(minutes)*time.Minute)
	}
	for _, test := range []struct {
		now   time.Time
		limit int
		want  []approval.ID
	}{
		{deadline(1).Add(-time.Millisecond), 9, nil},
		{deadline(1), 9, []approval.ID{ids[1]}},
		{deadline(3), 9, []approval.ID{ids[1], ids[0], ids[2]}},
		{deadline(3), 2, []approval.ID{ids[1], ids[0]}},
	} {
		got, err := store.Due(t.Context(), test.now, test.limit)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(test.want, got, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("overdue at %s, at most %d (-want +got):\n%s", test.now, test.limit, diff)
		}
	}
	service := newService(t, store, at(start.Add(10*time.Minute)))
	r, err := store.Request(t.Context(), ids[1])
	if err != nil {
		t.Fatal(err)
	}
	if r, err = service.Decide(t.Context(), person("U0ANN"), ballot(r, approval.Approve)); err != nil {
		t.Fatal(err)
	}
	if next, err := store.NextDue(t.Context()); err != nil || !next.Equal(r.ApplyBy) {
		t.Errorf("got the next deadline %s (%v), want the one for applying %s", next, err, r.ApplyBy)
	}
	if _, err := service.Claim(t.Context(), agent, r.ID); err != nil {
		t.Fatal(err)
	}
	if next, err := store.NextDue(t.Context()); err != nil || !next.Equal(deadline(2)) {
		t.Errorf("got the next deadline %s (%v) once one is applied, want %s", next, err, deadline(2))
	}
}
