package approval_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/approval/approvaltest"
)

// ruled has a rule about each action that is about it alone.
const ruled = `
version: 1
mode: cautious
roles: {finance: {users: [U0ALICE, U0BOB]}}
approval: {requires: [{role: finance}]}
limits: {pending: 1000000, per_minute: 1000000, cooldown: 0s}
rules:
- {id: pay, actions: [payouts.create], raise_to: 4, why: Money leaves.}
- {id: drop, actions: [payouts.drop], raise_to: 5, why: Nothing comes back.}
`

func TestInsights(t *testing.T) {
	t.Parallel()
	f := approvaltest.New(t, func(o *approval.Options) { o.Policy = approvaltest.ParsePolicy(t, ruled) })
	ask := func(action string, took time.Duration, verdict approval.Verdict) *approval.Request {
		t.Helper()
		r := f.Propose(t, func(p *approval.Proposal) { p.Action = action })
		f.Clock.Advance(took)
		if verdict != "" {
			r = f.Decide(t, approvaltest.Alice, r, verdict)
		}
		return r
	}
	f.Clock.Set(time.Date(2026, 3, 1, 23, 59, 59, 0, time.UTC))
	ask("payouts.drop", time.Second, approval.Reject) // the day before
	f.Clock.Set(time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC))
	for i := range 10 { // 1 to 10 seconds
		ask("payouts.create", time.Duration(i+1)*time.Second, approval.Approve)
	}
	ask("payouts.create", time.Minute, approval.Reject)
	expired := ask("payouts.create", 2*time.Hour, "")
	applied := ask("payouts.drop", 2999*time.Millisecond, approval.Approve)
	if _, err := f.Service.Claim(t.Context(), f.Agent, applied.ID); err != nil {
		t.Fatal(err)
	}
	f.Clock.Set(time.Date(2026, 3, 3, 12, 0, 0, 0, time.UTC))
	approved := ask("payouts.drop", 3*time.Second, approval.Approve)
	f.Clock.Set(approved.ApplyBy)                              // approved in time, whatever comes of it
	for _, r := range []*approval.Request{expired, approved} { // which records that they are over
		if _, err := f.Service.Status(t.Context(), f.Agent, r.ID); err != nil {
			t.Fatal(err)
		}
	}
	ask("payouts.drop", time.Second, "")

	got, err := f.Service.Insights(t.Context(), approvaltest.Bob, 2)
	if err != nil {
		t.Fatal(err)
	}
	pay := approval.Figures{Name: "payouts.create", Asked: 12, Approved: 10, Rejected: 1, Expired: 1, Median: 6 * time.Second, Late: 10 * time.Second, HastyCount: 2, RejectedHigh: 1}
	drop := approval.Figures{Name: "payouts.drop", Asked: 3, Approved: 2, Waiting: 1, Median: 2999 * time.Millisecond, Late: 3 * time.Second, HastyCount: 1}
	want := approval.Insights{
		Since:   time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC),
		All:     approval.Figures{Asked: 15, Approved: 12, Rejected: 1, Expired: 1, Waiting: 1, Median: 5 * time.Second, Late: 10 * time.Second, HastyCount: 3, RejectedHigh: 1},
		Actions: []approval.Figures{pay, drop},
		Days: []approval.Day{
			{Date: time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC), Approved: 11, Rejected: 1, Expired: 1},
			{Date: time.Date(2026, 3, 3, 0, 0, 0, 0, time.UTC), Approved: 1, Waiting: 1},
		},
	}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(approval.Insights{}, "Until", "Rules", "Took")); diff != "" {
		t.Errorf("insights (-want +got):\n%s", diff)
	}
	rules := make(map[string]approval.Figures)
	for _, rule := range got.Rules {
		rules[rule.Name] = rule
	}
	for name, want := range map[string]approval.Figures{"pay": pay, "drop": drop} {
		want.Name = name
		if diff := cmp.Diff(want, rules[name]); diff != "" {
			t.Errorf("rule %s (-want +got):\n%s", name, diff)
		}
	}
	if len(got.Took) != 13 || got.Took[0] != time.Second || got.Took[12] != time.Minute {
		t.Errorf("they took %v", got.Took)
	}
	for _, days := range []int{0, -1, 367} {
		var refused *approval.InputError
		if _, err := f.Service.Insights(t.Context(), approvaltest.Bob, days); !errors.As(err, &refused) {
			t.Errorf("%d days: got %v", days, err)
		}
	}
}

func TestCandidates(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name          string
		figures       approval.Figures
		loosen, block bool
	}{
		{"nothing", approval.Figures{}, false, false},
		{"20 of 20", approval.Figures{Approved: 20}, true, false},
		{"19 of 19", approval.Figures{Approved: 19, Waiting: 9}, false, false},
		{"19 of 20", approval.Figures{Approved: 19, Rejected: 1}, true, false},
		{"19 of 20, one of a high tier", approval.Figures{Approved: 19, Rejected: 1, RejectedHigh: 1}, false, false},
		{"18 of 20", approval.Figures{Approved: 18, Rejected: 2}, false, false},
		{"19 of 21, nobody answered twice", approval.Figures{Approved: 19, Expired: 2}, false, false},
		{"none of 10", approval.Figures{Rejected: 10, RejectedHigh: 10}, false, true},
		{"none of 9", approval.Figures{Rejected: 9, Superseded: 9}, false, false},
		{"1 of 10", approval.Figures{Rejected: 9, Approved: 1}, false, true},
		{"2 of 11", approval.Figures{Rejected: 9, Approved: 2}, false, false},
		{"nobody answered", approval.Figures{Expired: 40}, false, false},
	} {
		if loosen, block := test.figures.Loosen(), test.figures.Block(); loosen != test.loosen || block != test.block {
			t.Errorf("%s: loosen %v, block %v", test.name, loosen, block)
		}
	}
}
