package policy_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/countersign/countersign/policy"
)

func requires(counts ...policy.RoleCount) policy.Requirement {
	return policy.Requirement{Roles: counts}
}

func TestMissing(t *testing.T) {
	t.Parallel()
	financeAndOps := requires(policy.RoleCount{Role: "finance", Count: 1}, policy.RoleCount{Role: "ops", Count: 1})
	selfOrOps := requires(policy.RoleCount{Role: "me", Count: 1, AllowSelf: true}, policy.RoleCount{Role: "ops", Count: 1})
	tests := []struct {
		name        string
		requirement policy.Requirement
		votes       []policy.Vote
		want        []policy.RoleCount
	}{
		{
			name: "nothing required can never be met",
			want: []policy.RoleCount{{Count: 1}},
		},
		{
			name:        "nothing required isn't met by votes either",
			requirement: requires(policy.RoleCount{Role: "ops", Count: 0}),
			votes:       []policy.Vote{{Person: "ada", Roles: []string{"ops"}}},
			want:        []policy.RoleCount{{Count: 1}},
		},
		{
			name:        "no votes",
			requirement: financeAndOps,
			want:        []policy.RoleCount{{Role: "finance", Count: 1}, {Role: "ops", Count: 1}},
		},
		{
			name:        "one person in two roles fills one place",
			requirement: financeAndOps,
			votes:       []policy.Vote{{Person: "ada", Roles: []string{"finance", "ops"}}},
			want:        []policy.RoleCount{{Role: "ops", Count: 1}},
		},
		{
			name:        "the person in two roles moves over for the one in one",
			requirement: financeAndOps,
			votes: []policy.Vote{
				{Person: "ada", Roles: []string{"finance", "ops"}},
				{Person: "grace", Roles: []string{"finance"}},
			},
		},
		{
			name:        "a person who votes twice is one person",
			requirement: requires(policy.RoleCount{Role: "ops", Count: 2}),
			votes: []policy.Vote{
				{Person: "ada", Roles: []string{"ops"}},
				{Person: "ada", Roles: []string{"ops"}},
			},
			want: []policy.RoleCount{{Role: "ops", Count: 1}},
		},
		{
			name:        "distinct people without the role are no quorum",
			requirement: requires(policy.RoleCount{Role: "ops", Count: 2}),
			votes: []policy.Vote{
				{Person: "mallory", Roles: []string{"sales"}},
				{Person: "trudy"},
			},
			want: []policy.RoleCount{{Role: "ops", Count: 2}},
		},
		{
			name:        "an own vote doesn't fill a place that forbids it",
			requirement: financeAndOps,
			votes:       []policy.Vote{{Person: "ada", Roles: []string{"finance", "ops"}, Own: true}},
			want:        []policy.RoleCount{{Role: "finance", Count: 1}, {Role: "ops", Count: 1}},
		},
		{
			name:        "an own vote fills a place that allows it",
			requirement: selfOrOps,
			votes:       []policy.Vote{{Person: "ada", Roles: []string{"me"}, Own: true}},
			want:        []policy.RoleCount{{Role: "ops", Count: 1}},
		},
		{
			name:        "that one role allows it opens no other",
			requirement: selfOrOps,
			votes:       []policy.Vote{{Person: "ada", Roles: []string{"ops"}, Own: true}},
			want:        []policy.RoleCount{{Role: "me", Count: 1, AllowSelf: true}, {Role: "ops", Count: 1}},
		},
		{
			name:        "others move over for an own vote",
			requirement: selfOrOps,
			votes: []policy.Vote{
				{Person: "grace", Roles: []string{"me", "ops"}},
				{Person: "ada", Roles: []string{"me", "ops"}, Own: true},
			},
		},
		{
			name:        "a vote that is once one's own stays so",
			requirement: financeAndOps,
			votes: []policy.Vote{
				{Person: "ada", Roles: []string{"ops"}, Own: true},
				{Person: "ada", Roles: []string{"finance"}},
			},
			want: []policy.RoleCount{{Role: "finance", Count: 1}, {Role: "ops", Count: 1}},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			got := test.requirement.Missing(test.votes)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("Missing (-want +got):\n%s", diff)
			}
		})
	}
}

// A count from outside that is beyond every bound costs no memory and is met by
// nobody.
func TestMissingOfManyPeople(t *testing.T) {
	t.Parallel()
	got := requires(policy.RoleCount{Role: "ops", Count: 1 << 40}).Missing(nil)
	if diff := cmp.Diff([]policy.RoleCount{{Role: "ops", Count: policy.MaxPeople}}, got); diff != "" {
		t.Errorf("Missing (-want +got):\n%s", diff)
	}
}

var testRoles = []string{"a", "b", "c"}

func drawRequirement(t *rapid.T, label string) policy.Requirement {
	var r policy.Requirement
	for _, role := range rapid.SliceOfNDistinct(rapid.SampledFrom(testRoles), 1, 3, rapid.ID).Draw(t, label) {
		r.Roles = append(r.Roles, policy.RoleCount{
			Role:      role,
			Count:     rapid.IntRange(1, 2).Draw(t, "count"),
			AllowSelf: rapid.Bool().Draw(t, "allow self"),
		})
	}
	r.ReasonRequired = rapid.Bool().Draw(t, "reason required")
	r.Owner = rapid.SampledFrom([]string{"", "", "U0ADA", "U0GRACE"}).Draw(t, "owner")
	return r
}

func drawVotes(t *rapid.T) []policy.Vote {
	var votes []policy.Vote
	for i := range rapid.IntRange(0, 6).Draw(t, "people") {
		votes = append(votes, policy.Vote{
			Person: fmt.Sprint("person ", i),
			Roles:  rapid.SliceOfNDistinct(rapid.SampledFrom(testRoles), 0, 3, rapid.ID).Draw(t, "roles"),
			Own:    rapid.Bool().Draw(t, "own"),
		})
	}
	return votes
}

func open(missing []policy.RoleCount) int {
	total := 0
	for _, want := range missing {
		total += want.Count
	}
	return total
}

// The matching is compared with trying every way to give places to people.
func TestMissingIsMinimal(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		requirement, votes := drawRequirement(t, "roles"), drawVotes(t)
		var places []policy.RoleCount
		for _, want := range requirement.Roles {
			for range want.Count {
				places = append(places, want)
			}
		}
		if want, got := len(places)-mostSeated(places, votes), open(requirement.Missing(votes)); got != want {
			t.Fatalf("%v with votes %v: %d places open, want %d", requirement, votes, got, want)
		}
	})
}

// mostSeated tries every assignment of votes to places.
func mostSeated(places []policy.RoleCount, votes []policy.Vote) int {
	if len(places) == 0 {
		return 0
	}
	best := mostSeated(places[1:], votes)
	for i, vote := range votes {
		for _, role := range vote.Roles {
			if role == places[0].Role && (!vote.Own || places[0].AllowSelf) {
				rest := append(append([]policy.Vote(nil), votes[:i]...), votes[i+1:]...)
				best = max(best, 1+mostSeated(places[1:], rest))
			}
		}
	}
	return best
}

// One more vote never opens a place.
func TestVotesNeverHarm(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		requirement, votes := drawRequirement(t, "roles"), drawVotes(t)
		before := open(requirement.Missing(votes))
		another := policy.Vote{Person: "another", Roles: []string{rapid.SampledFrom(testRoles).Draw(t, "role")}}
		if after := open(requirement.Missing(append(votes, another))); after > before || before-after > 1 {
			t.Fatalf("%v with votes %v: %d open, %d with %v", requirement, votes, before, after, another)
		}
	})
}

func TestAllowsSelf(t *testing.T) {
	t.Parallel()
	if requires(policy.RoleCount{Role: "ops", Count: 1}).AllowsSelf() {
		t.Error("a role that doesn't say so allows it")
	}
	if !requires(policy.RoleCount{Role: "ops", Count: 1}, policy.RoleCount{Role: "me", Count: 1, AllowSelf: true}).AllowsSelf() {
		t.Error("a role that says so doesn't allow it")
	}
}

func TestWords(t *testing.T) {
	t.Parallel()
	got := requires(policy.RoleCount{Role: "finance", Count: 1}, policy.RoleCount{Role: "sre", Count: 2}).String()
	if want := "1 of finance and 2 of sre"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
