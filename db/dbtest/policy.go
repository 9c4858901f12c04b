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
		{"what policy decides by itself", func(r *approval.Request) { r.Ruling.Effect = policy.Allow }, approval.Backlog{}},
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
	agent := approval.Agent{Name: rejected.Agent, Owner: rejected.ActsFor}
	for _, test := range []struct {
		name  string
		agent approval.Agent
		asked approval.Digest
		want  time.Time
	}{
		{"what was rejected", agent, rejected.Asked, now},
		{"what waits", agent, first.Asked, time.Time{}},
		{"what another agent had rejected", approval.Agent{Name: "another", Owner: agent.Owner}, rejected.Asked, time.Time{}},
		{"what was rejected for another person", approval.Agent{Name: agent.Name, Owner: person("U0BOB")}, rejected.Asked, time.Time{}},
	} {
		if at, err := store.RejectedAt(t.Context(), test.agent, test.asked); err != nil || !at.Equal(test.want) {
			t.Errorf("%s: %v (%v)", test.name, at, err)
		}
	}
}

// twins checks which request an agent's call is told to be the same as.
func twins(t *testing.T, open func(testing.TB) Store) {
	store := open(t)
	now := start
	service := newService(t, store, func() time.Time { return now })
	refusal := errors.New("no")
	told := func(r *approval.Request, change func(*approval.Request)) approval.ID {
		t.Helper()
		next := *r
		next.ID, next.CreatedAt, next.GrantedBy = approval.ID(newID("req")), now, ""
		change(&next)
		var got approval.Backlog
		err := store.Insert(t.Context(), &next, nil, func(b approval.Backlog) error {
			got = b
			return refusal
		})
		if !errors.Is(err, refusal) {
			t.Errorf("got the error %v, want admit's own", err)
		}
		return got.Twin
	}
	same := func(*approval.Request) {}
	byAgent := func(r *approval.Request) { r.Executor = approval.ByAgent }
	check := func(when string, r *approval.Request, change func(*approval.Request), want approval.ID) {
		t.Helper()
		if got := told(r, change); got != want {
			t.Errorf("%s: got %q, want %q", when, got, want)
		}
	}
	own := propose(t, service)
	check("the agent's own while it is pending", own, same, own.ID)
	check("the agent's own, of another target", own, func(r *approval.Request) { r.Target = "another" }, "")
	check("a call like the agent's own", own, func(r *approval.Request) { r.Executor = approval.ByGateway }, "")
	decide(t, service, own, approval.Approve)
	check("the agent's own once it is approved", own, same, "")

	r := proposeRun(t, service)
	others := map[string]func(*approval.Request){
		"another":            func(r *approval.Request) { r.Asked[0]++ },
		"of another agent":   func(r *approval.Request) { r.Agent = "another" },
		"for another person": func(r *approval.Request) { r.ActsFor = person("U0BOB") },
		"by the agent":       byAgent,
	}
	always := func(when string, want approval.ID) {
		t.Helper()
		check(when, r, same, want)
		check(when+", with what people made of its target", r, func(r *approval.Request) { r.Target = "another" }, want)
		for name, change := range others {
			check(when+": "+name, r, change, "")
		}
	}
	always("pending", r.ID)
	decide(t, service, r, approval.Approve)
	always("approved", r.ID)
	claimRun(t, service, r)
	always("running", r.ID)
	if _, err := service.FinishRun(t.Context(), r.ID, approval.Report{Outcome: approval.Succeeded, Result: []byte("1")}); err != nil {
		t.Fatal(err)
	}
	always("has run", r.ID)
	ran, err := store.Request(t.Context(), r.ID)
	if err != nil {
		t.Fatal(err)
	}
	now = ran.ApplyBy.Add(-time.Millisecond)
	always("just before its deadline", r.ID)
	now = ran.ApplyBy
	always("at its deadline", "")
	now = start
	if _, _, err := service.ReturnResult(t.Context(), agent, r.ID); err != nil {
		t.Fatal(err)
	}
	always("returned", "")

	// Of several, the one that was approved last.
	for range 3 {
		again := *r
		again.ID, again.Revision = approval.ID(newID("req")), 1
		now = now.Add(time.Second)
		again.Status, again.DecidedAt, again.ApplyBy = approval.Approved, now, now.Add(time.Minute)
		if err := store.Insert(t.Context(), &again, nil, nil); err != nil {
			t.Fatal(err)
		}
		always("approved again", again.ID)
	}
	// What a grant or the policy approved is nobody's twin.
	for name, change := range map[string]func(*approval.Request){
		"granted": func(r *approval.Request) { r.GrantedBy = own.ID },
		"allowed": func(r *approval.Request) { r.Ruling.Effect = policy.Allow },
	} {
		another := proposeRun(t, service)
		again := *another
		again.ID, again.Revision = approval.ID(newID("req")), 1
		again.Status, again.DecidedAt, again.ApplyBy = approval.Approved, now, now.Add(time.Minute)
		decide(t, service, another, approval.Reject)
		change(&again)
		if err := store.Insert(t.Context(), &again, nil, nil); err != nil {
			t.Fatal(err)
		}
		check(name, another, same, "")
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
