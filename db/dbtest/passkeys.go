package dbtest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/countersign/countersign/approval"
)

func passkey(id, name string) approval.Passkey {
	return approval.Passkey{ID: []byte(id), Name: name, Credential: []byte{0, 0xff, '"'}}
}

func passkeys(t *testing.T, open func(testing.TB) Store) {
	store := open(t)
	now := start
	service := newService(t, store, func() time.Time { return now })
	ann, ben := person("U0ANN"), person("U0BEN")
	enrol := func(who approval.Approver, one approval.Passkey) approval.Passkey {
		t.Helper()
		now = now.Add(time.Second)
		enrolled, err := service.EnrolPasskey(t.Context(), who, now, one)
		if err != nil {
			t.Fatal(err)
		}
		return enrolled
	}
	check := func(who approval.Approver, want ...approval.Passkey) {
		t.Helper()
		got, err := store.Passkeys(t.Context(), who)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(append([]approval.Passkey{}, want...), got); diff != "" {
			t.Errorf("passkeys of %s (-want +got):\n%s", who, diff)
		}
	}
	check(ann)
	first := enrol(ann, passkey("\x00\x01", "Laptop 🔑"))
	counting := passkey("b", "Phone")
	counting.SignCount = math.MaxUint32 - 1
	second := enrol(ann, counting)
	other := enrol(ben, passkey("c", "Phone"))
	check(ann, first, second)
	check(ben, other)

	events := eventCount(t, store)
	for name, err := range map[string]error{
		"one of their own again": func() error {
			_, err := service.EnrolPasskey(t.Context(), ann, now, passkey("b", "Copy"))
			return err
		}(),
		"somebody else's": func() error {
			_, err := service.EnrolPasskey(t.Context(), ann, now, passkey("c", "Copy"))
			return err
		}(),
	} {
		if !errors.Is(err, approval.ErrPasskeyKnown) {
			t.Errorf("enrolling %s: got %v, want ErrPasskeyKnown", name, err)
		}
	}
	refusal := errors.New("no")
	if err := store.UpdatePasskeys(t.Context(), ann, func(ring *approval.Keyring) error {
		ring.Passkeys = nil
		return refusal
	}); !errors.Is(err, refusal) {
		t.Errorf("a change that fails: got %v", err)
	}
	check(ann, first, second)
	if n := eventCount(t, store); n != events {
		t.Errorf("what was refused left %d events", n-events)
	}

	now = now.Add(time.Second)
	if err := service.UsePasskey(t.Context(), ann, []byte("b"), math.MaxUint32, "req_1"); err != nil {
		t.Fatal(err)
	}
	second.SignCount, second.UsedAt = math.MaxUint32, now
	check(ann, first, second)
	if err := service.RemovePasskey(t.Context(), ann, now, []byte("c")); !errors.Is(err, approval.ErrNoPasskey) {
		t.Errorf("removing somebody else's: got %v", err)
	}
	if err := service.RemovePasskey(t.Context(), ann, now, first.ID); err != nil {
		t.Fatal(err)
	}
	check(ann, second)
	check(ben, other)
	if n := eventCount(t, store); n != events+2 || events != 3 {
		t.Errorf("got %d and then %d events, want 3 enrolled, then one used and one removed", events, n)
	}
}

func racedPasskeys(t *testing.T, open func(testing.TB) Store) {
	store := open(t)
	service := newService(t, store, at(start))
	ann := person("U0ANN")
	// Nobody gets more than they may have, however they ask.
	errs := race(approval.MaxPasskeys+5, func(i int) error {
		_, err := service.EnrolPasskey(context.Background(), ann, start, passkey(fmt.Sprint(i), "Phone"))
		return err
	})
	refused := 0
	for _, err := range errs {
		if errors.Is(err, approval.ErrTooManyPasskeys) {
			refused++
		} else if err != nil {
			t.Error(err)
		}
	}
	all, err := store.Passkeys(t.Context(), ann)
	if err != nil || len(all) != approval.MaxPasskeys || refused != 5 {
		t.Fatalf("%d passkeys, %d refused (%v)", len(all), refused, err)
	}
	// A signature counts once.
	winner(t, "using", race(racers, func(int) error {
		return service.UsePasskey(context.Background(), ann, all[0].ID, 7, "req_1")
	}), approval.ErrPasskeyCopied)
	winner(t, "removing", race(racers, func(int) error {
		return service.RemovePasskey(context.Background(), ann, start, all[0].ID)
	}), approval.ErrNoPasskey)
}

func personalNotices(t *testing.T, open func(testing.TB) Store) {
	store := open(t)
	now := start
	service := newService(t, store, func() time.Time { return now })
	const workspace = "T0TEST"
	next := func() (time.Time, bool) {
		t.Helper()
		at, due, err := store.NextPersonalNotice(t.Context(), workspace, now)
		if err != nil {
			t.Fatal(err)
		}
		return at, due
	}
	lease := func() (approval.PersonalNotice, bool) {
		t.Helper()
		notice, ok, err := store.LeasePersonalNotice(t.Context(), workspace, now, now.Add(time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		return notice, ok
	}
	settle := func(n approval.PersonalNotice, s approval.Settlement) {
		t.Helper()
		if err := store.SettlePersonalNotice(t.Context(), n, s); err != nil {
			t.Fatal(err)
		}
	}
	nothing := func(when string) {
		t.Helper()
		if notice, ok := lease(); ok {
			t.Errorf("%s: leased %+v, want nothing", when, notice)
		}
	}
	nothing("at first")
	if _, due := next(); due {
		t.Error("an empty store has a notice due")
	}
	stranger := approval.Approver{Workspace: "T0OTHER", User: "U0ANN"}
	for _, who := range []approval.Approver{stranger, person("U0ANN"), person("U0BEN")} {
		if _, err := service.EnrolPasskey(t.Context(), who, now, passkey(who.String(), "Phone")); err != nil {
			t.Fatal(err)
		}
		now = now.Add(time.Second)
	}
	if at, due := next(); !due || !at.IsZero() {
		t.Errorf("got next %s %v, want at once", at, due)
	}
	first, ok := lease()
	want := approval.PersonalNotice{
		ID: first.ID, Person: person("U0ANN"), Kind: approval.PasskeyEnrolled, Passkey: "Phone", At: start.Add(time.Second),
		Attempts: 1, LeasedUntil: now.Add(time.Minute),
	}
	if diff := cmp.Diff(want, first); diff != "" || !ok || first.ID == "" {
		t.Errorf("the first notice (-want +got):\n%s", diff)
	}
	second, _ := lease()
	if second.Person != person("U0BEN") {
		t.Errorf("the second is %+v", second)
	}
	nothing("while both are leased")
	if at, due := next(); !due || !at.Equal(now.Add(time.Minute)) {
		t.Errorf("got next %s %v, want when the leases end", at, due)
	}

	// The second one's worker is gone; another takes over, and only it counts.
	settle(first, approval.Settlement{Reference: "D1/1"})
	now = now.Add(time.Minute)
	again, ok := lease()
	if !ok || again.ID != second.ID || again.Attempts != 2 {
		t.Fatalf("after the lease: %+v", again)
	}
	settle(second, approval.Settlement{Reference: "D2/1"})
	settle(again, approval.Settlement{Failure: "outage", NextAttempt: now.Add(time.Second)})
	nothing("before the next attempt")
	if at, due := next(); !due || !at.Equal(now.Add(time.Second)) {
		t.Errorf("got next %s %v, want the next attempt", at, due)
	}
	now = now.Add(-2 * time.Hour) // what was ahead of the clock has come
	if at, due := next(); !due || !at.IsZero() {
		t.Errorf("after the clock went back: next %s %v, want at once", at, due)
	}
	last, ok := lease()
	if !ok || last.Attempts != 3 {
		t.Fatalf("after the clock went back: %+v", last)
	}
	settle(last, approval.Settlement{Abandon: true, Failure: "account_inactive"})
	nothing("after one was told and one given up")
	if _, due := next(); due {
		t.Error("something is due in the end")
	}
}
