package dbtest

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/policy"
)

const (
	channel      = "slack:C1"
	otherChannel = "slack:C2"
)

// lease leases what must be due.
func lease(t testing.TB, store Store, destination string, now time.Time) (approval.Notice, *approval.Request) {
	t.Helper()
	notice, r, ok, err := store.LeaseNotice(t.Context(), destination, now, now.Add(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	if !ok {
		t.Fatalf("no notice is due for %s at %s", destination, now)
	}
	return notice, r
}

// nothingDue checks that nothing can be leased.
func nothingDue(t testing.TB, store Store, destination string, now time.Time) {
	t.Helper()
	notice, _, ok, err := store.LeaseNotice(t.Context(), destination, now, now.Add(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	if ok {
		t.Fatalf("leased %+v at %s, want nothing", notice, now)
	}
}

func settle(t testing.TB, store Store, n approval.Notice, s approval.Settlement, now time.Time) {
	t.Helper()
	if err := store.SettleNotice(t.Context(), n, s, now); err != nil {
		t.Fatal(err)
	}
}

// delivered is the settlement of a delivery that arrived.
func delivered(r *approval.Request) approval.Settlement {
	return approval.Settlement{Reference: "ts-" + string(r.ID), SentRevision: r.Revision}
}

// deliver leases and settles the next notice, and returns its request.
func deliver(t testing.TB, store Store, destination string, now time.Time) *approval.Request {
	t.Helper()
	n, r := lease(t, store, destination, now)
	settle(t, store, n, delivered(r), now)
	return r
}

func next(t testing.TB, store Store, destination string, now time.Time) (time.Time, bool) {
	t.Helper()
	at, due, err := store.NextNotice(t.Context(), destination, now)
	if err != nil {
		t.Fatal(err)
	}
	return at, due
}

func noticesDue(t *testing.T, open func(testing.TB) Store) {
	store := open(t)
	now := start
	service := newService(t, store, func() time.Time { return now }, channel, otherChannel)
	nothingDue(t, store, channel, now)
	if _, due := next(t, store, channel, now); due {
		t.Error("an empty store has a notice due")
	}
	r := propose(t, service)
	now = now.Add(time.Second)
	second := propose(t, service)
	if at, due := next(t, store, channel, now); !due || !at.IsZero() {
		t.Errorf("got next %s %v, want at once", at, due)
	}

	// The one that has waited longest comes first, to each destination.
	notice, got := lease(t, store, channel, now)
	want := approval.Notice{Request: r.ID, Destination: channel, Attempts: 1, LeasedUntil: now.Add(time.Minute)}
	if diff := cmp.Diff(want, notice); diff != "" {
		t.Errorf("the first notice (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(r, got, stored); diff != "" {
		t.Errorf("its request (-want +got):\n%s", diff)
	}
	if n, _ := lease(t, store, otherChannel, now); n.Request != r.ID {
		t.Errorf("the other channel got %s first, want %s", n.Request, r.ID)
	}
	if n, _ := lease(t, store, channel, now); n.Request != second.ID {
		t.Errorf("got %s second, want %s", n.Request, second.ID)
	}
	nothingDue(t, store, channel, now)
	if at, due := next(t, store, channel, now); !due || !at.Equal(now.Add(time.Minute)) {
		t.Errorf("got next %s %v, want when the leases end", at, due)
	}

	// A change during the delivery is told after it, and two changes at once.
	r, err := service.Edit(t.Context(), person("U0ANN"), r.ID, 1, []byte(`{"amount":2}`), approval.Slack)
	if err != nil {
		t.Fatal(err)
	}
	settle(t, store, notice, delivered(got), now)
	if r, err = service.Decide(t.Context(), person("U0BEN"), ballot(r, approval.Approve)); err != nil {
		t.Fatal(err)
	}
	notice, got = lease(t, store, channel, now)
	want = approval.Notice{
		Request: r.ID, Destination: channel, Attempts: 1, LeasedUntil: now.Add(time.Minute),
		Reference: "ts-" + string(r.ID), SentRevision: 1,
	}
	if diff := cmp.Diff(want, notice); diff != "" {
		t.Errorf("the notice of two changes (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(r, got, stored); diff != "" {
		t.Errorf("its request (-want +got):\n%s", diff)
	}
	settle(t, store, notice, delivered(got), now)
	nothingDue(t, store, channel, now)

	// A change makes it due again, behind what waits longer, which keeps its
	// place when it changes too.
	third := propose(t, service)
	now = now.Add(time.Second)
	if _, err := service.Claim(t.Context(), agent, r.ID); err != nil {
		t.Fatal(err)
	}
	now = now.Add(time.Second)
	if _, err := service.Decide(t.Context(), person("U0BEN"), ballot(third, approval.Reject)); err != nil {
		t.Fatal(err)
	}
	if n, _ := lease(t, store, channel, now); n.Request != third.ID {
		t.Errorf("got %s, want the older %s", n.Request, third.ID)
	}
	if n, got := lease(t, store, channel, now); n.Request != r.ID || got.Status != approval.Applied {
		t.Errorf("got %s (%s), want %s, applied", n.Request, got.Status, r.ID)
	}
}

// laterNotices tells destinations of a request that they weren't told of at first.
func laterNotices(t *testing.T, open func(testing.TB) Store) {
	store := open(t)
	rules, err := policy.Parse([]byte(`
version: 1
mode: cautious
roles: {finance: {groups: [S0FINANCE]}}
approval: {requires: [{role: finance}]}
in_band: {tiers: [3], environments: [production]}
integrations: {crm: {tools: {send: {tier: 3}}}}
`))
	if err != nil {
		t.Fatal(err)
	}
	service, err := approval.New(store, everyone{}, approval.Options{Policy: rules, Now: at(start), Destinations: []string{channel, otherChannel}})
	if err != nil {
		t.Fatal(err)
	}
	r, err := service.Request(t.Context(), agent, approval.Proposal{Purpose: "Send", Action: "crm.send", Payload: []byte(`{}`), AskClient: true})
	if err != nil {
		t.Fatal(err)
	}
	nothingDue(t, store, channel, start)
	both := []string{channel, otherChannel}
	tell := func() {
		t.Helper()
		if r, err = service.TellPeople(t.Context(), agent, r.ID); err != nil {
			t.Fatal(err)
		}
	}
	tell()
	for _, destination := range both {
		if got := deliver(t, store, destination, start); got.ID != r.ID || got.Revision != r.Revision {
			t.Errorf("%s is told of %s at revision %d, want %s at %d", destination, got.ID, got.Revision, r.ID, r.Revision)
		}
	}
	tell()
	for _, destination := range both {
		nothingDue(t, store, destination, start) // they know of it
	}
	// From then on they are told of each change.
	decide(t, service, r, approval.Reject)
	for _, destination := range both {
		if got := deliver(t, store, destination, start); got.Status != approval.Rejected {
			t.Errorf("%s is told that it is %s", destination, got.Status)
		}
	}
}

func leasedOnce(t *testing.T, open func(testing.TB) Store) {
	store := open(t)
	service := newService(t, store, at(start), channel)
	const notices, workers = 150, 6
	want := make(map[approval.ID]int)
	for range notices {
		want[propose(t, service).ID] = 1
	}
	got := make(map[approval.ID]int)
	var mu sync.Mutex
	var running sync.WaitGroup
	for range workers {
		running.Go(func() {
			for {
				n, r, ok, err := store.LeaseNotice(t.Context(), channel, start, start.Add(time.Minute))
				if err != nil || !ok {
					if err != nil {
						t.Error(err)
					}
					return
				}
				mu.Lock()
				got[n.Request]++
				mu.Unlock()
				if err := store.SettleNotice(t.Context(), n, delivered(r), start); err != nil {
					t.Error(err)
				}
			}
		})
	}
	running.Wait()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("how often each was leased (-want +got):\n%s", diff)
	}
	if _, due := next(t, store, channel, start); due {
		t.Error("something is due after everything was delivered")
	}
}

func failingNotices(t *testing.T, open func(testing.TB) Store) {
	store := open(t)
	service := newService(t, store, at(start), channel)
	now := start
	r := propose(t, service)
	for attempt := 1; attempt <= 3; attempt++ {
		n, _ := lease(t, store, channel, now)
		if n.Attempts != attempt || n.Uncertain {
			t.Errorf("got attempt %d, uncertain %v, want attempt %d", n.Attempts, n.Uncertain, attempt)
		}
		retry := now.Add(10 * time.Second)
		settle(t, store, n, approval.Settlement{NextAttempt: retry, Failure: fmt.Sprintf("outage %d", attempt)}, now)
		nothingDue(t, store, channel, retry.Add(-time.Millisecond))
		if at, due := next(t, store, channel, now); !due || !at.Equal(retry) {
			t.Errorf("got next %s %v, want %s", at, due, retry)
		}
		now = retry
	}

	// A change while it waits keeps it waiting.
	n, _ := lease(t, store, channel, now)
	settle(t, store, n, approval.Settlement{NextAttempt: now.Add(20 * time.Minute), Failure: "slow down"}, now)
	if _, err := service.Decide(t.Context(), person("U0ANN"), ballot(r, approval.Reject)); err != nil {
		t.Fatal(err)
	}
	nothingDue(t, store, channel, now.Add(20*time.Minute-time.Millisecond))
	now = now.Add(20 * time.Minute)

	// One that failed goes behind the others, and success starts over.
	other := propose(t, service)
	n, _ = lease(t, store, channel, now)
	if n.Request != other.ID {
		t.Errorf("got %s, want the one that hasn't failed", n.Request)
	}
	n, r = lease(t, store, channel, now)
	if n.Attempts != 5 {
		t.Errorf("got attempt %d, want 5", n.Attempts)
	}
	settle(t, store, n, delivered(r), now)
	service = newService(t, store, at(now), channel)
	if _, err := service.Decide(t.Context(), person("U0ANN"), ballot(other, approval.Approve)); err != nil {
		t.Fatal(err)
	}
	now = now.Add(2 * time.Minute)
	if n, _ = lease(t, store, channel, now); n.Request != other.ID || n.Attempts != 2 {
		t.Errorf("got %+v, want the second attempt of %s", n, other.ID)
	}
}

func crashedNotices(t *testing.T, open func(testing.TB) Store) {
	store := open(t)
	service := newService(t, store, at(start), channel)
	now := start
	r := propose(t, service)

	// A worker that leased and was never heard of again may have delivered.
	lost, _ := lease(t, store, channel, now)
	nothingDue(t, store, channel, lost.LeasedUntil.Add(-time.Millisecond))
	now = lost.LeasedUntil
	n, _ := lease(t, store, channel, now)
	if !n.Uncertain || n.Attempts != 2 {
		t.Errorf("got uncertain %v, attempt %d after a crash", n.Uncertain, n.Attempts)
	}

	// What the lost worker says late doesn't count.
	settle(t, store, lost, delivered(r), now)
	nothingDue(t, store, channel, now)
	if at, due := next(t, store, channel, now); !due || !at.Equal(n.LeasedUntil) {
		t.Errorf("got next %s %v, want the end of the second lease %s", at, due, n.LeasedUntil)
	}

	// Once a worker has looked and knows that nothing arrived, it is certain.
	settle(t, store, n, approval.Settlement{Failure: "not there"}, now)
	if n, _ = lease(t, store, channel, now); n.Uncertain {
		t.Error("still uncertain after a settlement")
	}
	// A worker may say itself that it doesn't know.
	settle(t, store, n, approval.Settlement{Failure: "no answer", Uncertain: true}, now)
	if n, _ = lease(t, store, channel, now); !n.Uncertain {
		t.Error("not uncertain after a settlement that was")
	}
	// A worker that settled has no lease any more, even if another one's ends at
	// the same time.
	settle(t, store, n, approval.Settlement{Failure: "again"}, now)
	again, _ := lease(t, store, channel, now)
	settle(t, store, n, approval.Settlement{Failure: "late"}, now)
	nothingDue(t, store, channel, now)
	settle(t, store, again, delivered(r), now)
	settle(t, store, again, approval.Settlement{}, now)
	nothingDue(t, store, channel, now)

	// An update of something that arrived is only repeated: nothing to look for.
	if _, err := service.Decide(t.Context(), person("U0ANN"), ballot(r, approval.Approve)); err != nil {
		t.Fatal(err)
	}
	n, _ = lease(t, store, channel, now)
	// Nor does the first lost worker count, though this is a first attempt too.
	settle(t, store, lost, delivered(r), now)
	nothingDue(t, store, channel, now)
	now = n.LeasedUntil
	if n, _ = lease(t, store, channel, now); n.Uncertain || n.Attempts != 2 {
		t.Errorf("got uncertain %v, attempt %d for an update after a crash", n.Uncertain, n.Attempts)
	}
}

func abandonedNotices(t *testing.T, open func(testing.TB) Store) {
	store := open(t)
	service := newService(t, store, at(start), channel)
	r := propose(t, service)
	n, _ := lease(t, store, channel, start)
	settle(t, store, n, approval.Settlement{Failure: "the channel is gone", Abandon: true}, start)
	nothingDue(t, store, channel, start.Add(24*time.Hour))
	if _, err := service.Decide(t.Context(), person("U0ANN"), ballot(r, approval.Approve)); err != nil {
		t.Fatal(err)
	}
	nothingDue(t, store, channel, start.Add(24*time.Hour))
	if _, due := next(t, store, channel, start); due {
		t.Error("an abandoned notice is due")
	}
}

// noticesOfAWrongClock corrects a clock that was ahead: what a worker left for a
// time that no worker means is due at once.
func noticesOfAWrongClock(t *testing.T, open func(testing.TB) Store) {
	store := open(t)
	now := start
	ahead := now.Add(24 * time.Hour)
	r := propose(t, newService(t, store, at(start), channel))
	atOnce := func() {
		t.Helper()
		if at, due := next(t, store, channel, now); !due || !at.IsZero() {
			t.Errorf("got next %s %v, want at once", at, due)
		}
	}
	waitsUntil := func(want time.Time) {
		t.Helper()
		nothingDue(t, store, channel, now)
		if at, due := next(t, store, channel, now); !due || !at.Equal(want) {
			t.Errorf("got next %s %v, want %s", at, due, want)
		}
	}

	// One that was being delivered, of which nobody heard again.
	lost, _ := lease(t, store, channel, ahead)
	atOnce()
	n, _ := lease(t, store, channel, now)
	if n.Request != r.ID || !n.Uncertain || n.Attempts != 2 {
		t.Errorf("got %+v, want the second and uncertain attempt of %s", n, r.ID)
	}
	waitsUntil(n.LeasedUntil)
	settle(t, store, lost, delivered(r), now)
	waitsUntil(n.LeasedUntil)

	// One that failed.
	settle(t, store, n, approval.Settlement{NextAttempt: ahead, Failure: "an outage"}, now)
	atOnce()
	n, _ = lease(t, store, channel, now)

	// An hour is a wait that somebody may mean, and a longer one is none.
	hour := now.Add(time.Hour)
	settle(t, store, n, approval.Settlement{NextAttempt: hour, Failure: "slow down"}, now)
	waitsUntil(hour)
	now = now.Add(-time.Millisecond)
	atOnce()
	n, _ = lease(t, store, channel, now)
	settle(t, store, n, approval.Settlement{Failure: "an outage"}, now)
	now = now.Add(time.Millisecond)
	if _, _, ok, err := store.LeaseNotice(t.Context(), channel, now, hour); err != nil || !ok {
		t.Fatalf("got no lease (%v)", err)
	}
	waitsUntil(hour)
	now = now.Add(-time.Millisecond)
	atOnce()
	lease(t, store, channel, now)
}
