package dbtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/audit"
	"github.com/countersign/countersign/policy"
)

// pin names the definition of the tool that proposeRun calls.
const pin = "a pin"

// proposeRun has the agent ask for what the gateway would run.
func proposeRun(t testing.TB, service *approval.Service) *approval.Request {
	t.Helper()
	r, err := service.Request(t.Context(), agent, approval.Proposal{
		Purpose:  "Call delete of crm",
		Action:   "crm.delete",
		Payload:  fmt.Appendf(nil, `{"id":%d}`, proposed.Add(1)),
		Executor: approval.ByGateway,
		ToolPin:  pin,
		Session:  "a session",
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// claimRun has the gateway claim what is approved.
func claimRun(t testing.TB, service *approval.Service, r *approval.Request) *approval.Request {
	t.Helper()
	claimed, err := service.ClaimToRun(t.Context(), r.ID, pin)
	if err != nil {
		t.Fatal(err)
	}
	return claimed
}

// listed checks what a list of ids has.
func listed(t testing.TB, what string, got []approval.ID, err error, want ...approval.ID) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// runs checks what the gateway finds to do, from the request to the end of its
// run.
func runs(t *testing.T, open func(testing.TB) Store) {
	store := open(t)
	ctx := t.Context()
	now := start
	service := newService(t, store, func() time.Time { return now })
	check := func(when string, runnable, unfinished, openRuns []approval.ID) {
		t.Helper()
		got, err := store.Runnable(ctx, 10)
		listed(t, when+": runnable", got, err, runnable...)
		got, err = store.Unfinished(ctx, 10)
		listed(t, when+": unfinished", got, err, unfinished...)
		got, err = store.OpenRuns(ctx, "crm.delete")
		slices.Sort(openRuns)
		listed(t, when+": open", got, err, openRuns...)
		got, err = store.OpenRuns(ctx, "crm.get")
		listed(t, when+": open of another tool", got, err)
	}
	ids := func(requests ...*approval.Request) []approval.ID {
		var ids []approval.ID
		for _, r := range requests {
			ids = append(ids, r.ID)
		}
		return ids
	}
	check("at first", nil, nil, nil)
	own := propose(t, service)
	first, second, third := proposeRun(t, service), proposeRun(t, service), proposeRun(t, service)
	check("while people decide", nil, nil, ids(first, second, third))
	for _, r := range []*approval.Request{own, second, first} { // not in the order of asking
		now = now.Add(time.Second)
		decide(t, service, r, approval.Approve)
	}
	decide(t, service, third, approval.Reject)
	check("once they have", ids(second, first), nil, ids(first, second))
	got, err := store.Runnable(ctx, 1)
	listed(t, "one to run", got, err, second.ID)

	if _, err := service.Claim(ctx, agent, own.ID); err != nil {
		t.Fatal(err)
	}
	for _, r := range []*approval.Request{first, second} {
		now = now.Add(time.Second)
		claimRun(t, service, r)
	}
	check("while they run", nil, ids(first, second), nil)
	got, err = store.Unfinished(ctx, 1)
	listed(t, "one unfinished", got, err, first.ID)
	if _, err := service.FinishRun(ctx, first.ID, approval.Report{Outcome: approval.Unknown}); err != nil {
		t.Fatal(err)
	}
	check("once one has ended", nil, ids(second), nil)
}

// results checks what is kept of a run.
func results(t *testing.T, open func(testing.TB) Store) {
	store := open(t)
	ctx := t.Context()
	now := start
	service := newService(t, store, func() time.Time { return now })
	if _, err := store.Result(ctx, "exec_unknown"); !errors.Is(err, approval.ErrNoResult) {
		t.Errorf("of an unknown execution: got %v", err)
	}
	for name, want := range map[string][]byte{
		"nothing":             nil,
		"an empty result":     {},
		"digits and spaces":   []byte(`{ "n": 9007199254740993, "m": 1e400 }`),
		"what isn't text":     {0, 0xff, 0, 1},
		"as much as there is": bytes.Repeat([]byte("x"), 1<<20),
	} {
		r := proposeRun(t, service)
		decide(t, service, r, approval.Approve)
		id := claimRun(t, service, r).Execution.ID
		if _, err := store.Result(ctx, id); !errors.Is(err, approval.ErrNoResult) {
			t.Errorf("%s, before there is one: got %v", name, err)
		}
		finished, err := service.FinishRun(ctx, r.ID, approval.Report{Outcome: approval.Succeeded, Detail: "3 deleted", Result: want})
		if err != nil {
			t.Fatal(err)
		}
		if finished.Execution.ResultSize != len(want) {
			t.Errorf("%s: the size is %d, want %d", name, finished.Execution.ResultSize, len(want))
		}
		got, err := store.Result(ctx, id)
		if len(want) == 0 {
			if !errors.Is(err, approval.ErrNoResult) {
				t.Errorf("%s: got %q (%v)", name, got, err)
			}
			continue
		}
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: got %d bytes (%v), want %d", name, len(got), err, len(want))
		}
		// What happens to the request later leaves it as it is.
		now = now.Add(time.Second)
		if _, r, err = service.ReturnResult(ctx, agent, r.ID); err != nil || !r.Execution.ReturnedAt.Equal(now) {
			t.Errorf("%s: returned as %+v (%v), want at %s", name, r, err, now)
		}
		if got, err = store.Result(ctx, id); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s, once it was returned: got %d bytes (%v)", name, len(got), err)
		}
	}
}

// grantTo gives a request a grant, whatever it is.
func grantTo(t testing.TB, store Store, r *approval.Request, g approval.Grant) {
	t.Helper()
	_, err := store.Update(t.Context(), r.ID, func(r *approval.Request) error {
		r.Grant = &g
		r.Revision++
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// grants checks which grants are found, and for which requests.
func grants(t *testing.T, open func(testing.TB) Store) {
	store := open(t)
	ctx := t.Context()
	service := newService(t, store, at(start))
	until := func(minutes int) approval.Grant {
		return approval.Grant{Scope: "1h", Session: "a session", GrantedAt: start, ExpiresAt: start.Add(time.Duration(minutes) * time.Minute)}
	}
	long, short, revoked, none := propose(t, service), propose(t, service), propose(t, service), propose(t, service)
	grantTo(t, store, short, until(1))
	grantTo(t, store, long, until(60))
	ended := until(60)
	ended.RevokedAt, ended.RevokedBy = start, "operator:root"
	grantTo(t, store, revoked, ended)
	for _, test := range []struct {
		when time.Time
		want []approval.ID
	}{
		{start, []approval.ID{long.ID, short.ID}},
		{start.Add(time.Minute - time.Millisecond), []approval.ID{long.ID, short.ID}},
		{start.Add(time.Minute), []approval.ID{long.ID}},
		{start.Add(time.Hour), nil},
	} {
		slices.Sort(test.want)
		got, err := store.Grants(ctx, test.when)
		listed(t, "in force at "+test.when.String(), got, err, test.want...)
		slices.Reverse(test.want)
		got, err = store.GrantsFor(ctx, none, test.when)
		listed(t, "for the same at "+test.when.String(), got, err, test.want...)
	}
	for name, change := range map[string]func(*approval.Request){
		"another agent":  func(r *approval.Request) { r.Agent = "another" },
		"another person": func(r *approval.Request) { r.ActsFor = person("U0BOB") },
		"another action": func(r *approval.Request) { r.Action = "crm.get" },
		"another target": func(r *approval.Request) { r.Target = "another" },
	} {
		like := *none
		change(&like)
		got, err := store.GrantsFor(ctx, &like, start)
		listed(t, "for "+name, got, err)
	}

	// A request knows the grant that approved it as that is now, and the grant
	// how often it was used.
	under := func(status approval.Status) *approval.Request {
		t.Helper()
		next := *none
		next.ID, next.GrantedBy, next.Revision = approval.ID(newID("req")), long.ID, 1
		next.Status, next.DecidedAt, next.ApplyBy = status, start, start.Add(time.Minute)
		if status == approval.Applied {
			next.ClosedAt, next.Execution = start, &approval.Execution{ID: newID("exec"), Version: 1, StartedAt: start, Outcome: approval.Unknown}
		}
		if err := store.Insert(ctx, &next, nil, nil); err != nil {
			t.Fatal(err)
		}
		return &next
	}
	approved := under(approval.Approved)
	under(approval.Applied)
	under(approval.Applied)
	want := until(60)
	check := func(when string) {
		t.Helper()
		got, err := store.Request(ctx, approved.ID)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(&want, got.Under); diff != "" || got.Grant != nil {
			t.Errorf("%s: under (-want +got):\n%s", when, diff)
		}
		used := want
		used.Uses = 2
		if got, err = store.Request(ctx, long.ID); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(&used, got.Grant); diff != "" || got.Under != nil {
			t.Errorf("%s: the grant (-want +got):\n%s", when, diff)
		}
	}
	check("in force")
	want.RevokedAt, want.RevokedBy = start.Add(time.Second), "slack:T0TEST/U0ANN"
	grantTo(t, store, long, want)
	check("revoked")
	if got, err := store.Request(ctx, none.ID); err != nil || got.Grant != nil || got.Under != nil {
		t.Errorf("one that has to do with no grant: %+v (%v)", got, err)
	}
}

// revokedFirst claims what a grant approved while the grant is revoked: what is
// claimed after it was revoked doesn't run.
func revokedFirst(t *testing.T, open func(testing.TB) Store) {
	store := open(t)
	service := newService(t, store, at(start))
	for range 25 {
		granted := propose(t, service)
		decide(t, service, granted, approval.Approve)
		grantTo(t, store, granted, approval.Grant{Scope: "1h", GrantedAt: start, ExpiresAt: start.Add(time.Hour)})
		next := *granted
		next.ID, next.GrantedBy, next.Executor, next.ToolPin = approval.ID(newID("req")), granted.ID, approval.ByGateway, pin
		next.Status, next.DecidedAt, next.ApplyBy, next.Revision = approval.Approved, start, start.Add(time.Hour), 1
		if err := store.Insert(t.Context(), &next, nil, nil); err != nil {
			t.Fatal(err)
		}
		// Inside the change it is known whether the grant was revoked by then.
		var active, claimed bool
		errs := race(2, func(i int) error {
			var err error
			if i == 0 {
				_, err = service.RevokeGrantAs(t.Context(), approval.Operator{Name: "root"}, granted.ID)
				return err
			}
			_, err = store.Update(t.Context(), next.ID, func(r *approval.Request) error {
				active = r.Under.Active(start)
				claimed = true
				return nil
			})
			return err
		})
		if err := errors.Join(errs...); err != nil || !claimed {
			t.Fatal(err)
		}
		after, err := store.Request(t.Context(), next.ID)
		if err != nil || after.Under.Active(start) {
			t.Fatalf("the grant is still in force (%v), and was so before: %t", err, active)
		}
	}
}

// tools checks that tools are kept with their events, and that a change that
// fails leaves them as they were.
func tools(t *testing.T, open func(testing.TB) Store) {
	store := open(t)
	ctx := t.Context()
	if _, err := store.Tool(ctx, "crm", "delete"); !errors.Is(err, approval.ErrNoTool) {
		t.Errorf("one that nobody has seen: got %v", err)
	}
	if got, err := store.Tools(ctx); err != nil || len(got) != 0 {
		t.Errorf("before any was seen: got %v (%v)", got, err)
	}
	now := start
	service := newService(t, store, func() time.Time { return now })
	first := approval.ToolDefinition{Pin: "1", JSON: []byte("{\"name\":\"delete\",\"big\":1e400}")}
	second := approval.ToolDefinition{Pin: "2", JSON: []byte(`{"name":"delete","title":"Harmless"}`)}
	see := func(server, name string, definition approval.ToolDefinition) time.Time {
		t.Helper()
		now = now.Add(time.Second)
		if _, err := service.SeeTool(ctx, server, name, definition); err != nil {
			t.Fatal(err)
		}
		return now
	}
	wantDelete := approval.Tool{Server: "crm", Name: "delete", Seen: first, Pinned: first, PinnedBy: "countersign"}
	wantDelete.SeenAt = see("crm", "delete", first)
	wantDelete.PinnedAt = wantDelete.SeenAt
	wantGet, wantOther := wantDelete, wantDelete
	wantGet.Name, wantOther.Server = "get", "billing"
	wantGet.SeenAt = see("crm", "get", first)
	wantOther.SeenAt = see("billing", "delete", first)
	wantGet.PinnedAt, wantOther.PinnedAt = wantGet.SeenAt, wantOther.SeenAt
	see("crm", "delete", first)
	wantDelete.Seen, wantDelete.SeenAt = second, see("crm", "delete", second)
	check := func(when string, events int64) {
		t.Helper()
		got, err := store.Tools(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]approval.Tool{wantOther, wantDelete, wantGet}, got, cmpopts.IgnoreUnexported(approval.Tool{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", when, diff)
		}
		if n := eventCount(t, store); n != events {
			t.Errorf("%s: %d events, want %d", when, n, events)
		}
	}
	check("seen", 4) // three pinned, one changed

	refusal := errors.New("no")
	got, err := store.UpdateTool(ctx, "crm", "delete", func(tool *approval.Tool) error {
		tool.PinnedBy = "somebody"
		return refusal
	})
	if diff := cmp.Diff(wantDelete, got, cmpopts.IgnoreUnexported(approval.Tool{})); diff != "" || !errors.Is(err, refusal) {
		t.Errorf("a refused change gave %v (-want +got):\n%s", err, diff)
	}
	if _, err := store.UpdateTool(ctx, "crm", "new", func(tool *approval.Tool) error {
		if diff := cmp.Diff(approval.Tool{Server: "crm", Name: "new"}, *tool, cmpopts.IgnoreUnexported(approval.Tool{})); diff != "" {
			t.Errorf("one that nobody has seen (-want +got):\n%s", diff)
		}
		return refusal
	}); !errors.Is(err, refusal) {
		t.Errorf("got %v", err)
	}
	check("after refused changes", 4)

	wantDelete.Pinned, wantDelete.PinnedAt, wantDelete.PinnedBy = second, now, "operator:root"
	if _, err := service.PinTool(ctx, approval.Operator{Name: "root"}, "crm", "delete", "2"); err != nil {
		t.Fatal(err)
	}
	check("pinned", 5)
	if got, err := store.Tool(ctx, "crm", "delete"); err != nil || got.Changed() || got.PinnedBy != "operator:root" {
		t.Errorf("got %+v (%v)", got, err)
	}
	won := winner(t, "seeing", race(racers, func(i int) error {
		tool, err := store.UpdateTool(context.Background(), "crm", "raced", func(tool *approval.Tool) error {
			if !tool.SeenAt.IsZero() {
				return refusal
			}
			tool.Seen = approval.ToolDefinition{Pin: fmt.Sprint(i), JSON: []byte(`{}`)}
			tool.SeenAt, tool.Pinned, tool.PinnedAt = start, tool.Seen, start
			return nil
		})
		if err == nil && tool.Seen.Pin != fmt.Sprint(i) {
			t.Errorf("%d got %+v", i, tool)
		}
		return err
	}), refusal)
	if got, err := store.Tool(ctx, "crm", "raced"); err != nil || got.Seen.Pin != fmt.Sprint(won) {
		t.Errorf("%d saw it first and it is %+v (%v)", won, got, err)
	}
	if _, _, err := audit.Verify(store.Events(ctx)); err != nil {
		t.Error(err)
	}
}

// usedGrant checks that whoever was told of a grant is told of each use, and of
// its end.
func usedGrant(t *testing.T, open func(testing.TB) Store) {
	store, now := open(t), start
	service := newService(t, store, func() time.Time { return now }, channel)
	rules, err := policy.Parse([]byte(`
version: 1
mode: cautious
roles: {finance: {groups: [S0FINANCE]}}
approval: {requires: [{role: finance}], scopes: [1h], apply_within: 10m}
integrations: {crm: {tools: {pay: {tier: 3, target: args.to}}}}
`))
	if err != nil {
		t.Fatal(err)
	}
	if err := service.SetPolicy(t.Context(), rules); err != nil {
		t.Fatal(err)
	}
	pay := func(amount int) *approval.Request {
		t.Helper()
		r, err := service.Request(t.Context(), agent, approval.Proposal{Purpose: "Pay", Action: "crm.pay", Payload: fmt.Appendf(nil, `{"to":"acct_1","amount":%d}`, amount)})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	told := func(uses int) {
		t.Helper()
		if r := deliver(t, store, channel, now); r.Grant == nil || r.Grant.Uses != uses || !r.UpdatedAt.Equal(now) {
			t.Errorf("told of %+v at %s, want %d uses at %s", r.Grant, r.UpdatedAt, uses, now)
		}
		nothingDue(t, store, channel, now)
	}
	granting := pay(0)
	if granting, err = service.Decide(t.Context(), person("U0ANN"), approval.Ballot{
		Request: granting.ID, Version: granting.Version, Digest: granting.Digest, Verdict: approval.Approve, Surface: approval.Slack, Scope: "1h",
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := service.Claim(t.Context(), agent, granting.ID); err != nil {
		t.Fatal(err)
	}
	told(0)
	for use := range 2 {
		now = now.Add(time.Minute)
		next := pay(1 + use)
		if next.GrantedBy != granting.ID {
			t.Fatalf("got %s by %q", next.Status, next.GrantedBy)
		}
		nothingDue(t, store, channel, now)
		if _, err := service.Claim(t.Context(), agent, next.ID); err != nil {
			t.Fatal(err)
		}
		told(use + 1)
	}
	pay(3) // which nobody claims
	for end := start.Add(time.Hour); now.Before(end); {
		if now, err = store.NextDue(t.Context()); err != nil || now.IsZero() || now.After(end) {
			t.Fatalf("the end at %s: next due at %s (%v)", end, now, err)
		}
		due, err := store.Due(t.Context(), now, 1)
		if err != nil || len(due) != 1 {
			t.Fatalf("due at %s: %v (%v)", now, due, err)
		}
		if _, err := service.RevokeGrantAs(t.Context(), approval.Operator{Name: "root"}, due[0]); !errors.Is(err, approval.ErrNoGrant) {
			t.Fatalf("looking after %s: %v", due[0], err)
		}
	}
	told(2)
	if next, err := store.NextDue(t.Context()); err != nil || !next.IsZero() {
		t.Errorf("once it has ended, something is due at %s (%v)", next, err)
	}
}
