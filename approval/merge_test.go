package approval

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/countersign/countersign/policy"
)

// anyRequirementRuling is a ruling that leaves a call to people of some roles.
func anyRequirementRuling(t *rapid.T, label string) policy.Ruling {
	r := policy.Ruling{
		Effect:      policy.RequireApproval,
		Tier:        policy.Tier(rapid.IntRange(1, 5).Draw(t, label+" tier")),
		Rules:       []policy.FiredRule{{ID: label, Why: "It is " + label + "."}},
		ApplyWithin: time.Duration(rapid.IntRange(1, 60).Draw(t, label+" minutes")) * time.Minute,
		Count:       policy.Quantity{Value: float64(rapid.IntRange(0, 9).Draw(t, label+" count")), Known: true},
		Redactions:  policy.Redactions{Keys: rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "c"}), 0, 3).Draw(t, label+" keys")},
	}
	if r.Scopes = []string{"once"}; r.Tier < policy.TierDestructive {
		r.Scopes = []string{"once", "session"}
	}
	for _, role := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"oncall", "finance", "sre"}), 1, 3, rapid.ID[string]).Draw(t, label+" roles") {
		r.Requirement.Roles = append(r.Requirement.Roles, policy.RoleCount{
			Role:      role,
			Count:     rapid.IntRange(1, 3).Draw(t, label+" people"),
			AllowSelf: rapid.Bool().Draw(t, label+" allows self"),
		})
	}
	r.Requirement.ReasonRequired = rapid.Bool().Draw(t, label+" takes a reason")
	return r
}

// Whatever an edit does, what it takes afterwards is no less than what it took
// and no less than what policy says of the edited payload.
func TestEditNeverWeakens(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		before, next := anyRequirementRuling(t, "before"), anyRequirementRuling(t, "next")
		owner := rapid.SampledFrom([]string{"", "U0OWNER"})
		before.Requirement.Owner, next.Requirement.Owner = owner.Draw(t, "owner before"), owner.Draw(t, "next owner")
		if rapid.Bool().Draw(t, "allowed after the edit") {
			next.Effect, next.Requirement = policy.Allow, policy.Requirement{}
		}
		p := Proposal{Purpose: "Clean up", Payload: []byte(`{}`)}
		r, err := propose(crmAgent, p, policy.Explanation{Ruling: before}, start, source(), nil)
		if err != nil {
			t.Fatal(err)
		}
		unchanged := policy.Requirement{Roles: slices.Clone(before.Requirement.Roles)}.String()
		if err := r.edit(grace, 1, Payload(`[]`), policy.Explanation{Ruling: next}, Slack, start); err != nil {
			t.Fatal(err)
		}
		if before.Requirement.String() != unchanged {
			t.Fatal("the ruling of before was changed")
		}
		if why := before.StricterThan(r.Ruling); why != "" {
			t.Fatalf("it took more: %s\n%+v", why, r.Ruling)
		}
		if why := next.StricterThan(r.Ruling); why != "" {
			t.Fatalf("it should take more: %s\n%+v", why, r.Ruling)
		}
		if r.Ruling.Count != next.Count {
			t.Fatalf("the count is %v of the edited payload, which has %v", r.Ruling.Count, next.Count)
		}
		if next.StricterThan(before) != "" && r.Ruling.ApplyWithin > next.ApplyWithin {
			t.Fatalf("it may be applied within %s, and policy gives %s now", r.Ruling.ApplyWithin, next.ApplyWithin)
		}
		if next.Tier > before.Tier && next.Effect == policy.RequireApproval && !slices.Equal(r.Ruling.Scopes, next.Scopes) {
			t.Fatalf("it offers %v at %s", r.Ruling.Scopes, r.Ruling.Tier)
		}
		if before.StricterThan(next) != "" {
			for _, key := range slices.Concat(before.Redactions.Keys, next.Redactions.Keys) {
				if !slices.Contains(r.Ruling.Redactions.Keys, key) {
					t.Fatalf("%s isn't redacted any more", key)
				}
			}
		}
		for _, rule := range []string{"before", "next"} {
			took := rule == "before" && before.StricterThan(next) != "" || rule == "next" && next.StricterThan(before) != ""
			fired := slices.ContainsFunc(r.Ruling.Rules, func(f policy.FiredRule) bool { return f.ID == rule })
			if took && !fired {
				t.Fatalf("%s asks for what it takes and isn't among %v", rule, r.Ruling.Rules)
			}
		}
	})
}
