package dbtest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/policy"
)

// waiting checks which pending requests are found, in which order, and where a
// list goes on.
func waiting(t *testing.T, open func(testing.TB) Store) {
	store := open(t)
	expires := []int{7, 3, 3, 9, 3, 1}
	var want []*approval.Request
	for i, minutes := range expires {
		r := made(start.Add(time.Duration(i) * time.Second))
		r.ExpiresAt = start.Add(time.Duration(minutes) * time.Minute)
		insert(t, store, r)
		want = append(want, r)
	}
	for _, change := range []func(*approval.Request){
		func(r *approval.Request) { r.ClientOnly = true },
		func(r *approval.Request) { r.Status, r.ClosedAt = approval.Rejected, start },
	} {
		r := made(start)
		change(r)
		insert(t, store, r)
	}
	slices.SortFunc(want, func(a, b *approval.Request) int {
		if order := a.ExpiresAt.Compare(b.ExpiresAt); order != 0 {
			return order
		}
		return strings.Compare(string(a.ID), string(b.ID))
	})
	for size := 1; size <= len(want)+1; size++ {
		var after approval.QueueKey
		for from := 0; from <= len(want); from += size {
			page := want[from:min(from+size, len(want))]
			got, err := store.Pending(t.Context(), after, size)
			listed(t, fmt.Sprintf("%d from %d on", size, from), got, err, idsOf(page)...)
			if len(page) > 0 {
				last := page[len(page)-1]
				after = approval.QueueKey{ExpiresAt: last.ExpiresAt, ID: last.ID}
			}
		}
	}
}

// made is a pending request as the domain makes it at a time, apart from what
// doesn't matter to a list.
func made(at time.Time) *approval.Request {
	return &approval.Request{
		ID:        approval.ID(string(approval.FirstID(at)[:16]) + fmt.Sprintf("%020x", lastID.Add(1))),
		Agent:     "deployer",
		Purpose:   "Pay",
		Payload:   approval.Payload(`{}`),
		Executor:  approval.ByAgent,
		Ruling:    policy.Ruling{Effect: policy.RequireApproval, Tier: 3},
		Status:    approval.Pending,
		CreatedAt: at,
		ExpiresAt: at.Add(time.Hour),
		UpdatedAt: at,
		Version:   1,
		Revision:  1,
	}
}

func insert(t testing.TB, store Store, requests ...*approval.Request) {
	t.Helper()
	for _, r := range requests {
		if err := store.Insert(t.Context(), r, nil, nil); err != nil {
			t.Fatal(err)
		}
	}
}

func idsOf(requests []*approval.Request) []approval.ID {
	var ids []approval.ID
	for _, r := range requests {
		ids = append(ids, r.ID)
	}
	return ids
}

// history checks each filter by itself and all of them together against what
// they mean.
func history(t *testing.T, open func(testing.TB) Store) {
	store := open(t)
	var all []*approval.Request
	rules := []string{"payouts", "payouts-large", "large"}
	for i := range 60 {
		r := made(start.Add(time.Duration(i) * 7 * time.Minute))
		r.Agent = []string{"deployer", "Mailer"}[i%2]
		r.Purpose = []string{"Pay the invoices", "100% of A_B", "100 of AxB!", "ÜBERWEISUNG"}[i%4]
		r.Action = []string{"", "payouts.create", "crm.delete"}[i%3]
		r.Target = []string{"", "acct_1032"}[i/7%2]
		r.Environment = []string{"", "production", "staging"}[i/5%3]
		r.Ruling.Tier = policy.Tier(1 + i%5)
		for at, rule := range rules {
			if i>>at&1 == 1 {
				r.Ruling.Rules = append(r.Ruling.Rules, policy.FiredRule{ID: rule})
			}
		}
		if i%6 == 5 {
			r.Decisions = []approval.Decision{{Receipt: newID("rcpt"), Approver: person([]string{"U0ANN", "U0BEN"}[i/6%2]), Verdict: approval.Reject, Surface: approval.Slack, Version: 1, At: r.CreatedAt}}
			r.Status, r.DecidedAt, r.ClosedAt = approval.Rejected, r.CreatedAt, r.CreatedAt
		}
		insert(t, store, r)
		all = append(all, r)
	}
	slices.Reverse(all)
	edited, err := store.Update(t.Context(), all[0].ID, func(r *approval.Request) error {
		r.Ruling.Rules = []policy.FiredRule{{ID: "edited"}}
		r.Revision++
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	all[0] = edited

	one := func(options ...string) *rapid.Generator[string] {
		return rapid.SampledFrom(append(options, "", "", "", ""))
	}
	rapid.Check(t, func(rt *rapid.T) {
		filter := approval.Filter{
			Status:      approval.Status(one("pending", "rejected", "expired").Draw(rt, "status")),
			Tier:        policy.Tier(rapid.SampledFrom([]int{0, 0, 0, 0, 1, 3, 5}).Draw(rt, "tier")),
			Agent:       one("deployer", "mailer", "Mailer").Draw(rt, "agent"),
			Action:      one("payouts.create", "crm.delete", "crm").Draw(rt, "action"),
			Environment: one("production", "staging").Draw(rt, "environment"),
			Rule:        one("payouts", "payouts-large", "large", "edited", "lar").Draw(rt, "rule"),
			DecidedBy:   one("U0ANN", "U0BEN").Draw(rt, "decided by"),
			Text:        one("INVOICES", "100%", "a_b", "B!", "maIL", "acct", "Create", "ÜBER", string(all[7].ID)).Draw(rt, "text"),
		}
		if rapid.Bool().Draw(rt, "since") {
			filter.Since = rapid.SampledFrom(all).Draw(rt, "since which").CreatedAt
		}
		if rapid.Bool().Draw(rt, "until") {
			filter.Until = rapid.SampledFrom(all).Draw(rt, "until which").CreatedAt
		}
		var want []*approval.Request
		for _, r := range all {
			if matches(filter, r) {
				want = append(want, r)
			}
		}
		limit := rapid.IntRange(5, 70).Draw(rt, "limit")
		lookedThrough := rapid.IntRange(5, 70).Draw(rt, "looked through")
		var got []approval.ID
		for before := approval.ID(""); ; {
			ids, lookedAt, err := store.History(t.Context(), filter, before, limit, lookedThrough)
			if err != nil {
				rt.Fatal(err)
			}
			got = append(got, ids...)
			switch {
			case len(ids) == limit:
				before = ids[limit-1]
				continue
			case lookedAt != "":
				before = lookedAt
				continue
			}
			break
		}
		if diff := cmp.Diff(idsOf(want), got, cmpopts.EquateEmpty()); diff != "" {
			rt.Fatalf("%+v (-want +got):\n%s", filter, diff)
		}
	})
}

// matches is what a filter means.
func matches(f approval.Filter, r *approval.Request) bool {
	is := func(want, got string) bool { return want == "" || want == got }
	within := func(text string) bool { return strings.Contains(strings.ToLower(text), strings.ToLower(f.Text)) }
	return is(string(f.Status), string(r.Status)) && is(f.Agent, r.Agent) && is(f.Action, r.Action) && is(f.Environment, r.Environment) &&
		(f.Tier == 0 || f.Tier == r.Ruling.Tier) &&
		(f.Rule == "" || slices.ContainsFunc(r.Ruling.Rules, func(rule policy.FiredRule) bool { return rule.ID == f.Rule })) &&
		(f.DecidedBy == "" || slices.ContainsFunc(r.Decisions, func(d approval.Decision) bool { return d.Approver.User == f.DecidedBy })) &&
		(f.Since.IsZero() || !r.CreatedAt.Before(f.Since)) && (f.Until.IsZero() || r.CreatedAt.Before(f.Until)) &&
		(within(string(r.ID)) || within(r.Purpose) || within(r.Action) || within(r.Target) || within(r.Agent))
}

// ownDecisions checks what is found of one person's decisions.
func ownDecisions(t *testing.T, open func(testing.TB) Store) {
	store := open(t)
	now := start
	service := newService(t, store, func() time.Time { return now })
	var want []approval.Decided
	for range 4 {
		now = now.Add(time.Second)
		r := propose(t, service)
		decide(t, service, propose(t, service), approval.Approve)
		decided, err := service.Decide(t.Context(), person("U0LOOKS"), ballot(r, approval.Approve))
		if err != nil {
			t.Fatal(err)
		}
		want = slices.Insert(want, 0, approval.Decided{Request: r.ID, Receipt: decided.Decisions[0].Receipt})
	}
	for limit := range 6 {
		got, err := store.DecidedBy(t.Context(), person("U0LOOKS"), limit)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want[:min(limit, len(want))], got, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("the last %d (-want +got):\n%s", limit, diff)
		}
	}
	for _, nobody := range []approval.Approver{{}, person("U0NONE"), {Workspace: "T0OTHER", User: "U0LOOKS"}} {
		if got, err := store.DecidedBy(t.Context(), nobody, 10); err != nil || len(got) != 0 {
			t.Errorf("of %q: got %v (%v)", nobody, got, err)
		}
	}
}

// askedOfPeople checks what insights are made of.
func askedOfPeople(t *testing.T, open func(testing.TB) Store) {
	store := open(t)
	var requests []*approval.Request
	for i := range 6 {
		r := made(start.Add(time.Duration(i) * time.Hour))
		r.Action = fmt.Sprintf("action %d", i)
		r.Ruling.Rules = []policy.FiredRule{{ID: "first"}, {ID: fmt.Sprintf("rule-%d", i)}}
		requests = append(requests, r)
	}
	approved := requests[2]
	approved.Status, approved.DecidedAt, approved.ApplyBy = approval.Approved, approved.CreatedAt.Add(1500*time.Millisecond), approved.CreatedAt.Add(time.Hour)
	rejected := requests[3]
	rejected.Status, rejected.DecidedAt, rejected.ClosedAt = approval.Rejected, rejected.CreatedAt.Add(time.Minute), rejected.CreatedAt.Add(time.Minute)
	// Its host took back what people approved.
	approved.Decisions = []approval.Decision{{Receipt: newID("rcpt"), Verdict: approval.Reject, Surface: approval.App, Version: approved.Version, Digest: approved.Digest, At: approved.DecidedAt}}
	insert(t, store, requests...)
	for _, change := range []func(*approval.Request){
		func(r *approval.Request) { r.Ruling.Effect = policy.Allow },
		func(r *approval.Request) { r.Ruling.Effect = policy.Deny },
		func(r *approval.Request) { r.ClientOnly = true },
		func(r *approval.Request) { r.GrantedBy = requests[0].ID },
		decidedFrom(approval.App, approval.Approve),
		decidedFrom(approval.App, approval.Reject),
		decidedFrom(approval.InBand, approval.Approve),
	} {
		r := made(start.Add(90 * time.Minute))
		change(r)
		insert(t, store, r)
	}
	got, err := store.Asked(t.Context(), start.Add(time.Hour), start.Add(4*time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	var want []approval.Asked
	for i, r := range requests[1:4] {
		want = append(want, approval.Asked{
			Action:    r.Action,
			Tier:      3,
			Rules:     []string{"first", fmt.Sprintf("rule-%d", i+1)},
			Status:    r.Status,
			CreatedAt: r.CreatedAt,
			DecidedAt: r.DecidedAt,
			Approved:  r == approved,
		})
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("what was asked (-want +got):\n%s", diff)
	}
}

// decidedFrom has the agent's client decide, which is no person.
func decidedFrom(surface approval.Surface, verdict approval.Verdict) func(*approval.Request) {
	return func(r *approval.Request) {
		r.Status, r.DecidedAt, r.ApplyBy = approval.Approved, r.CreatedAt.Add(time.Second), r.CreatedAt.Add(time.Hour)
		if verdict == approval.Reject {
			r.Status, r.ClosedAt, r.ApplyBy = approval.Rejected, r.DecidedAt, time.Time{}
		}
		r.Decisions = append(r.Decisions, approval.Decision{Receipt: newID("rcpt"), Verdict: verdict, Surface: surface, Version: r.Version, Digest: r.Digest, At: r.DecidedAt})
	}
}

// eventsOf checks that a request's own events are found, and no others.
func eventsOf(t *testing.T, open func(testing.TB) Store) {
	store := open(t)
	service := newService(t, store, at(start))
	r, other := propose(t, service), propose(t, service)
	decide(t, service, other, approval.Approve)
	decide(t, service, r, approval.Approve)
	if _, _, err := service.CreateToken(t.Context(), approval.Operator{Name: "root"}, "ci", approval.Approver{}); err != nil {
		t.Fatal(err)
	}
	want := []string{"request.created", "decision.recorded", "request.approved"}
	for limit := range 5 {
		events, err := store.EventsOf(t.Context(), r.ID, limit)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, event := range events {
			got = append(got, event.Type)
			if event.RequestID != string(r.ID) {
				t.Errorf("an event of %q", event.RequestID)
			}
		}
		if diff := cmp.Diff(want[:min(limit, len(want))], got, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("the first %d (-want +got):\n%s", limit, diff)
		}
	}
	if events, err := store.EventsOf(t.Context(), "", 10); err != nil || len(events) != 0 {
		t.Errorf("of no request: %d events (%v)", len(events), err)
	}
}

// payloadOf checks that each version keeps its payload.
func payloadOf(t *testing.T, open func(testing.TB) Store) {
	store := open(t)
	service := newService(t, store, at(start))
	r := propose(t, service)
	edited := approval.Payload(`{"z":1e400,"a":0.10}`)
	if _, err := service.Edit(t.Context(), person("U0ANN"), r.ID, 1, edited, approval.Web); err != nil {
		t.Fatal(err)
	}
	for version, want := range []approval.Payload{nil, r.Payload, edited, nil} {
		got, err := store.PayloadOf(t.Context(), r.ID, version)
		if string(got) != string(want) || (err == nil) == (want == nil) || err != nil && !errors.Is(err, approval.ErrNotFound) {
			t.Errorf("version %d: got %s (%v), want %s", version, got, err, want)
		}
	}
}
