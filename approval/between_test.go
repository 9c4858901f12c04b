package approval_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/approval/approvaltest"
	"github.com/countersign/countersign/audit"
	"github.com/countersign/countersign/policy"
)

// slowDirectory lets something happen during its next look-up, which is after a
// request was read and before it is changed.
type slowDirectory struct {
	approval.Directory
	meanwhile func()
}

func (d *slowDirectory) Standing(ctx context.Context, who approval.Approver, roles []policy.Role) (approval.Standing, error) {
	standing, err := d.Directory.Standing(ctx, who, roles)
	if happen := d.meanwhile; happen != nil {
		d.meanwhile = nil
		happen()
	}
	return standing, err
}

// slowed is a service beside the fixture's own, on the same store.
func slowed(t *testing.T, f *approvaltest.Fixture) (*approval.Service, *slowDirectory) {
	t.Helper()
	directory := &slowDirectory{Directory: f.People}
	service, err := approval.New(f.Store, directory, approval.Options{Policy: approvaltest.Policy(t, 1), Now: f.Clock.Now})
	if err != nil {
		t.Fatal(err)
	}
	return service, directory
}

func TestDeadlinePassesDuringADecision(t *testing.T) {
	t.Parallel()
	f := approvaltest.New(t)
	service, directory := slowed(t, f)
	r := f.Propose(t)
	directory.meanwhile = func() { f.Clock.Set(r.ExpiresAt) }
	got, err := service.Decide(t.Context(), approvaltest.Alice, approvaltest.Ballot(r, approval.Approve))
	if !errors.Is(err, approval.ErrExpired) || got.Status != approval.Expired {
		t.Errorf("got %v (%v)", got.Status, err)
	}
	if stored, err := f.Store.Request(t.Context(), r.ID); err != nil || stored.Status != approval.Expired || len(stored.Decisions) != 0 {
		t.Errorf("stored is %v with %d decisions (%v)", stored.Status, len(stored.Decisions), err)
	}
}

func TestDeadlinePassesDuringAClaim(t *testing.T) {
	t.Parallel()
	f := approvaltest.New(t)
	service, directory := slowed(t, f)
	r := f.Decide(t, approvaltest.Alice, f.Propose(t), approval.Approve)
	directory.meanwhile = func() { f.Clock.Set(r.ApplyBy) }
	got, err := service.Claim(t.Context(), f.Agent, r.ID)
	if !errors.Is(err, approval.ErrExpired) || got.Status != approval.Expired {
		t.Errorf("got %v (%v)", got.Status, err)
	}
}

// A claim that finds a role gone doesn't undo one that was made meanwhile.
func TestClaimDuringAClaim(t *testing.T) {
	t.Parallel()
	f := approvaltest.New(t)
	service, directory := slowed(t, f)
	r := f.Decide(t, approvaltest.Alice, f.Propose(t), approval.Approve)
	f.People.Take("finance", approvaltest.Alice)
	directory.meanwhile = func() {
		f.People.Give("finance", approvaltest.Alice)
		if _, err := f.Service.Claim(t.Context(), f.Agent, r.ID); err != nil {
			t.Error(err)
		}
	}
	got, err := service.Claim(t.Context(), f.Agent, r.ID)
	if !errors.Is(err, approval.ErrApplied) || got.Status != approval.Applied {
		t.Errorf("got %v (%v)", got.Status, err)
	}
}

// slowStore lets something happen right after its next read.
type slowStore struct {
	approval.Store
	meanwhile func()
}

func (s *slowStore) Request(ctx context.Context, id approval.ID) (*approval.Request, error) {
	r, err := s.Store.Request(ctx, id)
	if happen := s.meanwhile; happen != nil {
		s.meanwhile = nil
		happen()
	}
	return r, err
}

// A decision between a waiter's first read and its wait wakes it: it listened
// before it read.
func TestNoWakeIsLost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := approvaltest.New(t, func(o *approval.Options) { o.Now = nil })
		store := &slowStore{Store: f.Store}
		service, err := approval.New(store, f.People, approval.Options{Policy: approvaltest.Policy(t, 1)})
		if err != nil {
			t.Fatal(err)
		}
		r := f.Propose(t)
		store.meanwhile = func() {
			if _, err := service.Decide(t.Context(), approvaltest.Alice, approvaltest.Ballot(r, approval.Approve)); err != nil {
				t.Error(err)
			}
		}
		began := time.Now()
		got, err := service.Await(t.Context(), f.Agent, r.ID, time.Minute)
		if err != nil || got.Status != approval.Approved || time.Since(began) != 0 {
			t.Errorf("got %v (%v) after %s", got.Status, err, time.Since(began))
		}
	})
}

// brokenStore can't change one request.
type brokenStore struct {
	approval.Store
	broken approval.ID
}

func (s *brokenStore) Update(ctx context.Context, id approval.ID, change func(*approval.Request) error) (*approval.Request, error) {
	if id == s.broken {
		return nil, errors.New("this row is damaged")
	}
	return s.Store.Update(ctx, id, change)
}

// One request that can't be expired doesn't keep the others from it.
func TestSweepGoesOnPastABrokenRequest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := approvaltest.New(t, func(o *approval.Options) { o.Now = nil })
		short := func(p *approval.Proposal) { p.TTL = time.Minute }
		broken, whole := f.Propose(t, short), f.Propose(t, short)
		service, err := approval.New(&brokenStore{f.Store, broken.ID}, f.People, approval.Options{Policy: approvaltest.Policy(t, 1)})
		if err != nil {
			t.Fatal(err)
		}
		go service.Sweep(t.Context())
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if stored, err := f.Store.Request(t.Context(), whole.ID); err != nil || stored.Status != approval.Expired {
			t.Errorf("the other request is %v (%v)", stored.Status, err)
		}
		// It counts as expired even while that can't be recorded.
		if r, err := service.Status(t.Context(), f.Agent, broken.ID); err != nil || r.Status != approval.Expired {
			t.Errorf("the broken request is %v (%v)", r, err)
		}
	})
}

// A clock that jumped ahead and was set back revives nothing that was reported
// as expired.
func TestNothingIsRevived(t *testing.T) {
	t.Parallel()
	f := approvaltest.New(t)
	r := f.Propose(t)
	f.Clock.Advance(2 * time.Hour)
	if got, err := f.Service.Status(t.Context(), f.Agent, r.ID); err != nil || got.Status != approval.Expired {
		t.Fatalf("got %v (%v)", got, err)
	}
	f.Clock.Advance(-2 * time.Hour)
	if _, err := f.Service.Decide(t.Context(), approvaltest.Alice, approvaltest.Ballot(r, approval.Approve)); !errors.Is(err, approval.ErrExpired) {
		t.Errorf("after the clock was set back: %v", err)
	}
}

// An event is never dated before the one that it follows.
func TestTimeNeverRunsBackwards(t *testing.T) {
	t.Parallel()
	f := approvaltest.New(t)
	r := f.Decide(t, approvaltest.Alice, f.Propose(t), approval.Approve)
	f.Clock.Advance(-time.Hour)
	applied, err := f.Service.Claim(t.Context(), f.Agent, r.ID)
	if err != nil || applied.Execution.StartedAt.Before(r.DecidedAt) {
		t.Errorf("applied at %v, decided at %v (%v)", applied.Execution.StartedAt, r.DecidedAt, err)
	}
}

// What policy asks is asked again when the approval is used: stricter ends it,
// looser doesn't help.
func TestClaimUnderAnotherPolicy(t *testing.T) {
	t.Parallel()
	self := approvaltest.ParsePolicy(t, fmt.Sprintf(`
version: 1
mode: cautious
roles: {finance: {users: [%s, %s], self_approval: true}}
approval: {requires: [{role: finance}]}
`, approvaltest.Alice.User, approvaltest.Bob.User))
	denied := approvaltest.ParsePolicy(t, fmt.Sprintf(`
version: 1
mode: cautious
unclassified: deny
roles: {finance: {users: [%s, %s]}}
approval: {requires: [{role: finance}]}
`, approvaltest.Alice.User, approvaltest.Bob.User))
	one, two := approvaltest.Policy(t, 1), approvaltest.Policy(t, 2)
	tests := []struct {
		name         string
		asked, later *policy.Policy
		approvers    int
		change       func(*approvaltest.Fixture)
		want         error
		why          string
	}{
		{name: "the same", asked: one, later: one, approvers: 1},
		{name: "more people", asked: one, later: two, approvers: 1, want: approval.ErrRejected, why: "The policy now asks for 2 of finance"},
		{name: "denied", asked: one, later: denied, approvers: 1, want: approval.ErrRejected, why: "The policy now denies this action."},
		{name: "fewer people, and one has left", asked: two, later: one, approvers: 2,
			change: func(f *approvaltest.Fixture) { f.People.Take("finance", approvaltest.Bob) },
			want:   approval.ErrRejected, why: "no longer counts"},
		{name: "no self-approval any more", asked: self, later: one, approvers: 1, want: approval.ErrRejected, why: "approve what is their own"},
		{name: "self-approval as before", asked: self, later: self, approvers: 1},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			f := approvaltest.New(t, func(o *approval.Options) { o.Policy = test.asked })
			f.Agent.Owner = approvaltest.Alice
			if test.asked != self {
				f.Agent.Owner = approvaltest.Carol
			}
			r := f.Propose(t)
			for _, who := range []approval.Approver{approvaltest.Alice, approvaltest.Bob}[:test.approvers] {
				r = f.Decide(t, who, r, approval.Approve)
			}
			if test.change != nil {
				test.change(f)
			}
			later, err := approval.New(f.Store, f.People, approval.Options{Policy: test.later, Now: f.Clock.Now})
			if err != nil {
				t.Fatal(err)
			}
			got, err := later.Claim(t.Context(), f.Agent, r.ID)
			if !errors.Is(err, test.want) || !strings.Contains(got.Reason, test.why) {
				t.Errorf("got %v, %q (%v)", got.Status, got.Reason, err)
			}
		})
	}
}

// tamperedStore gives out another payload than it was given.
type tamperedStore struct{ approval.Store }

func (s tamperedStore) Update(ctx context.Context, id approval.ID, change func(*approval.Request) error) (*approval.Request, error) {
	return s.Store.Update(ctx, id, func(r *approval.Request) error {
		r.Payload = []byte(`{"amount":1000000}`)
		err := change(r)
		r.Payload = []byte(`{"amount": 1200, "currency": "EUR"}`)
		return err
	})
}

// What is handed out is checked against what was approved, not only against
// what the store says was approved.
func TestClaimChecksThePayload(t *testing.T) {
	t.Parallel()
	f := approvaltest.New(t)
	r := f.Decide(t, approvaltest.Alice, f.Propose(t), approval.Approve)
	service, err := approval.New(tamperedStore{f.Store}, f.People, approval.Options{Policy: approvaltest.Policy(t, 1), Now: f.Clock.Now})
	if err != nil {
		t.Fatal(err)
	}
	got, err := service.Claim(t.Context(), f.Agent, r.ID)
	if !errors.Is(err, approval.ErrRejected) || !strings.Contains(got.Reason, "not those that were approved") {
		t.Errorf("got %v, %q (%v)", got.Status, got.Reason, err)
	}
}

// Who approved an earlier version doesn't help when the approval is used.
func TestClaimCountsOnlyTheLastVersion(t *testing.T) {
	t.Parallel()
	f := approvaltest.New(t, func(o *approval.Options) { o.Policy = approvaltest.Policy(t, 2) })
	people := crowd(f)
	r := f.Decide(t, people[0], f.Propose(t), approval.Approve)
	r, err := f.Service.Edit(t.Context(), people[1], r.ID, 1, []byte(`{"amount":1}`), approval.Slack)
	if err != nil {
		t.Fatal(err)
	}
	r = f.Decide(t, people[2], r, approval.Approve)
	r = f.Decide(t, people[3], r, approval.Approve)
	f.People.Take("finance", people[3])
	if got, err := f.Service.Claim(t.Context(), f.Agent, r.ID); !errors.Is(err, approval.ErrRejected) {
		t.Errorf("got %v (%v)", got.Status, err)
	}
}

// A click on a card that an edit has replaced is told so, even by somebody who
// had approved that version.
func TestClickOnAReplacedVersion(t *testing.T) {
	t.Parallel()
	f := approvaltest.New(t, func(o *approval.Options) { o.Policy = approvaltest.Policy(t, 2) })
	first := f.Propose(t)
	f.Decide(t, approvaltest.Alice, first, approval.Approve)
	if _, err := f.Service.Edit(t.Context(), approvaltest.Bob, first.ID, 1, []byte(`{"amount":1}`), approval.Slack); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Service.Decide(t.Context(), approvaltest.Alice, approvaltest.Ballot(first, approval.Approve)); !errors.Is(err, approval.ErrStale) {
		t.Errorf("got %v", err)
	}
	last := lastEvent(t, f)
	if last.Type != "decision.refused" || !strings.Contains(string(last.Detail), `"shown_version":1`) || !strings.Contains(string(last.Detail), first.Digest.String()) {
		t.Errorf("the last event is %s %s", last.Type, last.Detail)
	}
}

func lastEvent(t *testing.T, f *approvaltest.Fixture) audit.Event {
	t.Helper()
	var last audit.Event
	for event, err := range f.Store.Events(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		last = event
	}
	return last
}

func TestFinish(t *testing.T) {
	t.Parallel()
	f := approvaltest.New(t)
	r := f.Decide(t, approvaltest.Alice, f.Propose(t), approval.Approve)
	if _, err := f.Service.Claim(t.Context(), f.Agent, r.ID); err != nil {
		t.Fatal(err)
	}
	var input *approval.InputError
	if _, err := f.Service.Finish(t.Context(), f.Agent, r.ID, approval.Unknown, ""); !errors.As(err, &input) {
		t.Errorf("an unknown outcome was taken for a report: %v", err)
	}
	if _, err := f.Service.Finish(t.Context(), approval.Agent{Name: "another"}, r.ID, approval.Failed, ""); !errors.Is(err, approval.ErrNotFound) {
		t.Errorf("another agent reported: %v", err)
	}
	if got, err := f.Service.Finish(t.Context(), f.Agent, r.ID, approval.Succeeded, "paid"); err != nil || got.Execution.Outcome != approval.Succeeded {
		t.Errorf("got %v (%v)", got, err)
	}
	if _, err := f.Service.Finish(t.Context(), f.Agent, r.ID, approval.Failed, ""); !errors.Is(err, approval.ErrFinished) {
		t.Errorf("reported twice: %v", err)
	}
}

// Every event's detail is a JSON object.
func TestDetailsAreObjects(t *testing.T) {
	t.Parallel()
	f := approvaltest.New(t)
	f.Decide(t, approvaltest.Alice, f.Propose(t), approval.Reject)
	for event, err := range f.Store.Events(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(string(event.Detail), "{") {
			t.Errorf("%s has the detail %s", event.Type, event.Detail)
		}
	}
}

// A payload of exactly the limit is accepted, one byte more isn't.
func TestPayloadLimit(t *testing.T) {
	t.Parallel()
	f := approvaltest.New(t, func(o *approval.Options) { o.PayloadLimit = 20 })
	for size, want := range map[int]bool{20: true, 21: false} {
		payload := `{"a":"` + strings.Repeat("x", size-8) + `"}`
		_, err := f.Service.Request(t.Context(), f.Agent, approval.Proposal{Purpose: "Try", Payload: []byte(payload)})
		if (err == nil) != want {
			t.Errorf("%d bytes: %v", len(payload), err)
		}
	}
}
