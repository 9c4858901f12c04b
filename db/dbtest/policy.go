package dbtest

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/policy"
)

// backlogs checks what Insert tells of what an agent asked before.
func backlogs(t *testing.T, open func(testing.TB) Store) {
	store := open(t)
	now := start
	service := newService(t, store, func() time.Time { return now }, "slack:C1")
	first := propose(t, service)
	propose(t, service)
	rejected := propose(t, service)
	now = now.Add(time.Minute)
	decide(t, service, rejected, approval.Reject)

	refusal := errors.New("no")
	told := func(change func(*approval.Request)) approval.Backlog {
		t.Helper()
		next := *first
		next.ID, next.CreatedAt = approval.ID(newID("req")), now
		change(&next)
		var got approval.Backlog
		err := store.Insert(t.Context(), &next, []string{"slack:C1"}, func(b approval.Backlog) error {
			got = b
			return refusal
		})
		if !errors.Is(err, refusal) {
			t.Errorf("got the error %v, want admit's own", err)
		}
		if _, err := store.Request(t.Context(), next.ID); !errors.Is(err, approval.ErrNotFound) {
			t.Errorf("what wasn't admitted is stored (%v)", err)
		}
		return got
	}
	for _, test := range []struct {
		name   string
		change func(*approval.Request)
		want   approval.Backlog
	}{
		{"the same", func(*approval.Request) {}, approval.Backlog{Pending: 2, Twin: first.ID}},
		{"of another target", func(r *approval.Request) { r.Target = "another" }, approval.Backlog{Pending: 2}},
		{"another payload", func(r *approval.Request) { r.Asked[0]++ }, approval.Backlog{Pending: 2}},
		{"of another agent", func(r *approval.Request) { r.Agent = "another" }, approval.Backlog{}},
		{"for another person", func(r *approval.Request) { r.ActsFor = person("U0BOB") }, approval.Backlog{}},
		{"after the first expired", func(r *approval.Request) { r.CreatedAt = first.ExpiresAt }, approval.Backlog{}},
		{"what was rejected", func(r *approval.Request) { r.Asked = rejected.Asked }, approval.Backlog{Pending: 2, RejectedAt: now}},
		{"what was rejected to another", func(r *approval.Request) {
			r.Asked, r.Agent = rejected.Asked, "another"
		}, approval.Backlog{}},
	} {
		if diff := cmp.Diff(test.want, told(test.change)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.name, diff)
		}
	}
}

// lastUses checks what is kept of what agents applied.
func lastUses(t *testing.T, open func(testing.TB) Store) {
	store := open(t)
	now := start
	service := newService(t, store, func() time.Time { return now }, "slack:C1")
	use := func(action string) time.Time {
		t.Helper()
		now = now.Add(time.Minute)
		r, err := service.Request(t.Context(), agent, approval.Proposal{Purpose: "Look", Action: action, Payload: []byte(`{}`)})
		if err != nil {
			t.Fatal(err)
		}
		decide(t, service, r, approval.Approve)
		if _, err := service.Claim(t.Context(), agent, r.ID); err != nil {
			t.Fatal(err)
		}
		return now
	}
	propose(t, service) // asking isn't using
	use("crm.get")
	again := use("crm.get")
	last := use("crm.list")
	for _, test := range []struct {
		agent approval.Agent
		place approval.Place
		want  approval.LastUse
	}{
		{agent, approval.Place{Environment: "production", Integration: "crm", Tool: "get"}, approval.LastUse{Tool: again, Integration: last, Agent: last}},
		{agent, approval.Place{Environment: "production", Integration: "crm", Tool: "put"}, approval.LastUse{Integration: last, Agent: last}},
		{agent, approval.Place{Environment: "production", Integration: "git", Tool: "get"}, approval.LastUse{Agent: last}},
		{agent, approval.Place{Environment: "staging", Integration: "crm", Tool: "get"}, approval.LastUse{}},
		{approval.Agent{Name: "another"}, approval.Place{Environment: "production", Integration: "crm", Tool: "get"}, approval.LastUse{}},
		{approval.Agent{Name: agent.Name, Owner: person("U0BOB")}, approval.Place{Environment: "production", Integration: "crm", Tool: "get"}, approval.LastUse{}},
	} {
		got, err := store.LastUse(t.Context(), test.agent, test.place)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%v at %v (-want +got):\n%s", test.agent, test.place, diff)
		}
	}
}

// recorded checks what is told of requests that were made before.
func recorded(t *testing.T, open func(testing.TB) Store) {
	store := open(t)
	now := start
	service := newService(t, store, func() time.Time { return now })
	var want []*approval.Request
	for range 3 {
		now = now.Add(time.Second)
		want = append([]*approval.Request{propose(t, service)}, want...)
	}
	if _, err := service.Edit(t.Context(), person("U0ANN"), want[0].ID, 1, []byte(`{"amount":-1}`), approval.Slack); err != nil {
		t.Fatal(err)
	}
	got, err := store.Recorded(t.Context(), 2)
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 2 {
		t.Fatalf("got %d requests, want the last 2", len(got))
	}
	// What was ruled before the edit isn't kept, so nothing is said of it.
	want[0].Digest, want[0].Ruling, want[0].Explanation = approval.Digest{}, policy.Ruling{}, ""
	for i, r := range got {
		want[i].Status, want[i].UpdatedAt, want[i].Revision = "", time.Time{}, 0
		if diff := cmp.Diff(want[i], r, stored); diff != "" {
			t.Errorf("request %d as it was asked (-want +got):\n%s", i, diff)
		}
	}
}

// decide has a person decide on a request as it is.
func decide(t testing.TB, service *approval.Service, r *approval.Request, verdict approval.Verdict) {
	t.Helper()
	_, err := service.Decide(t.Context(), person("U0ANN"), approval.Ballot{
		Request: r.ID, Version: r.Version, Digest: r.Digest, Verdict: verdict, Surface: approval.Slack,
	})
	if err != nil {
		t.Fatal(err)
	}
}
