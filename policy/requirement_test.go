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

// The matching is compared with trying every way to give places to people.
func TestMissingIsMinimal(t *testing.T) {
	t.Parallel()
	roles := []string{"a", "b", "c"}
	rapid.Check(t, func(t *rapid.T) {
		var requirement policy.Requirement
		var places []string
		for _, role := range roles {
			if n := rapid.IntRange(0, 2).Draw(t, "count of "+role); n > 0 {
				requirement.Roles = append(requirement.Roles, policy.RoleCount{Role: role, Count: n})
				for range n {
					places = append(places, role)
				}
			}
		}
		if len(places) == 0 {
			t.Skip("nothing required")
		}
		var votes []policy.Vote
		for i := range rapid.IntRange(0, 6).Draw(t, "people") {
			votes = append(votes, policy.Vote{
				Person: fmt.Sprint("person ", i),
				Roles:  rapid.SliceOfNDistinct(rapid.SampledFrom(roles), 0, 3, rapid.ID).Draw(t, "roles"),
			})
		}
		open := 0
		for _, missing := range requirement.Missing(votes) {
			open += missing.Count
		}
		if want := len(places) - mostSeated(places, votes); open != want {
			t.Fatalf("%v with votes %v: %d places open, want %d", requirement, votes, open, want)
		}
	})
}

// mostSeated tries every assignment of votes to places.
func mostSeated(places []string, votes []policy.Vote) int {
	if len(places) == 0 {
		return 0
	}
	best := mostSeated(places[1:], votes)
	for i, vote := range votes {
		for _, role := range vote.Roles {
			if role == places[0] {
				rest := append(append([]policy.Vote(nil), votes[:i]...), votes[i+1:]...)
				best = max(best, 1+mostSeated(places[1:], rest))
			}
		}
	}
	return best
}

func TestWords(t *testing.T) {
	t.Parallel()
	got := requires(policy.RoleCount{Role: "finance", Count: 1}, policy.RoleCount{Role: "sre", Count: 2}).String()
	if want := "1 of finance and 2 of sre"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
