package policy_test

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/countersign/countersign/policy"
)

func TestStricterThan(t *testing.T) {
	t.Parallel()
	ops := policy.RoleCount{Role: "ops", Count: 1}
	asks := func(change func(*policy.Ruling)) policy.Ruling {
		r := policy.Ruling{Effect: policy.RequireApproval, Tier: policy.TierExternal, Requirement: requires(ops)}
		if change != nil {
			change(&r)
		}
		return r
	}
	denies := policy.Ruling{Effect: policy.Deny, Tier: policy.TierDestructive, Rules: []policy.FiredRule{
		{ID: "crm.purge", Why: "crm.purge is tier 4, destructive."},
		{ID: "night", Why: "It's night.", RaiseTo: policy.TierDestructive},
		{ID: "no-purge", Why: "Nothing is purged.", Effect: policy.Deny},
	}}
	allows := policy.Ruling{Effect: policy.Allow, Tier: policy.TierRead}
	tests := []struct {
		name          string
		before, after policy.Ruling
		want          string // empty if it isn't stricter
	}{
		{"asks instead of allows", allows, asks(nil), "The policy now has people decide on this action."},
		{"denies instead of asks", asks(nil), denies, "The policy now denies this action. Nothing is purged."},
		{"denies instead of allows", allows, denies, "The policy now denies this action. Nothing is purged."},
		{"denies without a reason", allows, policy.Ruling{Effect: policy.Deny}, "The policy now denies this action."},
		{"an effect that isn't known denies", asks(nil), policy.Ruling{Effect: "ask"}, "The policy now denies this action."},
		{"allows instead of asks", asks(nil), allows, ""},
		{"asks instead of denies", denies, asks(nil), ""},
		{"a higher tier", asks(nil), asks(func(r *policy.Ruling) { r.Tier = 5 }),
			"The policy now sorts this action as tier 5, irreversible or high value; it was tier 3, external-facing."},
		{"a lower tier", asks(func(r *policy.Ruling) { r.Tier = 5 }), asks(nil), ""},
		{"a higher tier that is allowed too", allows, policy.Ruling{Effect: policy.Allow, Tier: policy.TierInternalWrite}, ""},
		{"more people", asks(nil), asks(func(r *policy.Ruling) { r.Requirement = requires(policy.RoleCount{Role: "ops", Count: 2}) }),
			"The policy now asks for 2 of ops; it was 1 of ops."},
		{"another role as well", asks(nil), asks(func(r *policy.Ruling) { r.Requirement = requires(ops, policy.RoleCount{Role: "sre", Count: 1}) }),
			"The policy now asks for 1 of ops and 1 of sre; it was 1 of ops."},
		{"another role instead", asks(nil), asks(func(r *policy.Ruling) { r.Requirement = requires(policy.RoleCount{Role: "sre", Count: 1}) }),
			"The policy now asks for 1 of sre; it was 1 of ops."},
		{"one role fewer", asks(func(r *policy.Ruling) { r.Requirement = requires(ops, policy.RoleCount{Role: "sre", Count: 1}) }), asks(nil), ""},
		{"no self-approval any more", asks(func(r *policy.Ruling) { r.Requirement.Roles[0].AllowSelf = true }), asks(func(r *policy.Ruling) {
			r.Requirement = requires(policy.RoleCount{Role: "ops", Count: 1})
		}), "The policy doesn't let people of ops approve what is their own any more."},
		{"self-approval", asks(func(r *policy.Ruling) { r.Requirement = requires(policy.RoleCount{Role: "ops", Count: 1}) }), asks(func(r *policy.Ruling) {
			r.Requirement = requires(policy.RoleCount{Role: "ops", Count: 1, AllowSelf: true})
		}), ""},
		{"a reason", asks(nil), asks(func(r *policy.Ruling) { r.Requirement.ReasonRequired = true }), "The policy now asks approvers for a reason."},
		{"no reason any more", asks(func(r *policy.Ruling) { r.Requirement.ReasonRequired = true }), asks(nil), ""},
		{"somebody behind the agent", asks(nil), asks(func(r *policy.Ruling) { r.Requirement.Owner = "U0ADA" }), "The policy now names another person behind the agent."},
		{"somebody else behind the agent", asks(func(r *policy.Ruling) { r.Requirement.Owner = "U0GRACE" }), asks(func(r *policy.Ruling) { r.Requirement.Owner = "U0ADA" }), "The policy now names another person behind the agent."},
		{"nobody behind the agent any more", asks(func(r *policy.Ruling) { r.Requirement.Owner = "U0GRACE" }), asks(nil), ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if got := test.after.StricterThan(test.before); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func drawRuling(t *rapid.T, label string) policy.Ruling {
	r := policy.Ruling{
		Effect: rapid.SampledFrom([]policy.Effect{policy.Allow, policy.RequireApproval, policy.RequireApproval, policy.Deny}).Draw(t, label),
		Tier:   policy.Tier(rapid.IntRange(1, 5).Draw(t, "tier")),
	}
	if r.Effect == policy.RequireApproval {
		r.Requirement = drawRequirement(t, "requires")
	}
	return r
}

func TestNothingIsStricterThanItself(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		if r := drawRuling(t, "effect"); r.StricterThan(r) != "" {
			t.Fatalf("%+v: %s", r, r.StricterThan(r))
		}
	})
}

// What isn't stricter asks for nothing more: whoever met the requirement before
// still meets it.
func TestWhatIsNotStricterIsStillMet(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		before, after := drawRuling(t, "before"), drawRuling(t, "after")
		if chance(t, "alike") {
			after = changed(t, before)
		}
		if after.StricterThan(before) != "" {
			return
		}
		if strictness(after.Effect) > strictness(before.Effect) {
			t.Fatalf("%s isn't stricter than %s", after.Effect, before.Effect)
		}
		if after.Effect != policy.RequireApproval || before.Effect != policy.RequireApproval {
			return
		}
		if after.Tier > before.Tier || after.Requirement.ReasonRequired && !before.Requirement.ReasonRequired {
			t.Fatalf("%+v isn't stricter than %+v", after, before)
		}
		for range calls {
			votes := drawVotes(t)
			if len(before.Requirement.Missing(votes)) == 0 && len(after.Requirement.Missing(votes)) > 0 {
				t.Fatalf("%v meet %v and not %v, which isn't stricter", votes, before.Requirement, after.Requirement)
			}
		}
	})
}

// changed is a ruling that differs in one thing that it asks for.
func changed(t *rapid.T, r policy.Ruling) policy.Ruling {
	if r.Effect != policy.RequireApproval {
		return r
	}
	r.Requirement.Roles = slices.Clone(r.Requirement.Roles)
	role := &r.Requirement.Roles[rapid.IntRange(0, len(r.Requirement.Roles)-1).Draw(t, "role")]
	switch sample(t, "change", "count", "self", "name", "reason", "tier") {
	case "count":
		role.Count = rapid.IntRange(1, 2).Draw(t, "count")
	case "self":
		role.AllowSelf = !role.AllowSelf
	case "name":
		role.Role = "d"
	case "reason":
		r.Requirement.ReasonRequired = !r.Requirement.ReasonRequired
	case "tier":
		r.Tier = policy.Tier(rapid.IntRange(1, 5).Draw(t, "tier"))
	}
	return r
}

// Stricter rulings in a row end in one that is stricter than the first, so that
// asking after each change of the policy misses nothing.
func TestNotStricterIsTransitive(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		first, second, third := drawRuling(t, "first"), drawRuling(t, "second"), drawRuling(t, "third")
		if first.Effect != policy.RequireApproval || second.Effect != policy.RequireApproval {
			t.Skip("only between rulings that ask people")
		}
		if second.StricterThan(first) == "" && third.StricterThan(second) == "" && second.Requirement.Owner == first.Requirement.Owner && third.StricterThan(first) != "" {
			t.Fatalf("%+v\n%+v\n%+v: %s", first, second, third, third.StricterThan(first))
		}
	})
}

func TestReason(t *testing.T) {
	t.Parallel()
	class := policy.FiredRule{ID: "crm.purge", Why: "crm.purge is tier 4, destructive."}
	raise := policy.FiredRule{ID: "night", Why: "It's night.", RaiseTo: policy.TierDestructive}
	block := policy.FiredRule{ID: "no-purge", Why: "Nothing is purged.", Effect: policy.Deny}
	denied := policy.FiredRule{ID: "unclassified", Why: "It isn't classified.", Effect: policy.Deny}
	tests := []struct {
		name            string
		ruling          policy.Ruling
		reason, decider string
	}{
		{"allowed", policy.Ruling{Effect: policy.Allow, Rules: []policy.FiredRule{class}}, "crm.purge is tier 4, destructive.", "crm.purge"},
		{"asked", policy.Ruling{Effect: policy.RequireApproval, Rules: []policy.FiredRule{class, raise}}, "crm.purge is tier 4, destructive. It's night.", "crm.purge"},
		{"denied by a rule", policy.Ruling{Effect: policy.Deny, Rules: []policy.FiredRule{class, raise, block}}, "Nothing is purged.", "no-purge"},
		{"denied by its class and a rule", policy.Ruling{Effect: policy.Deny, Rules: []policy.FiredRule{denied, block}}, "It isn't classified. Nothing is purged.", "unclassified"},
		{"no rules", policy.Ruling{Effect: policy.Deny}, "", ""},
	}
	for _, test := range tests {
		if got := test.ruling.Reason(); got != test.reason {
			t.Errorf("%s: reason %q, want %q", test.name, got, test.reason)
		}
		if got := test.ruling.Decider(); got != test.decider {
			t.Errorf("%s: decider %q, want %q", test.name, got, test.decider)
		}
	}
}

func TestQuantityInWords(t *testing.T) {
	t.Parallel()
	for want, q := range map[string]policy.Quantity{
		"unknown":                         {},
		"unbounded":                       {Known: true, Unbounded: true},
		"0":                               {Known: true},
		"1":                               {Known: true, Value: 1},
		"999":                             {Known: true, Value: 999},
		"1,000":                           {Known: true, Value: 1000},
		"1,180.5":                         {Known: true, Value: 1180.5},
		"12,345,678.25":                   {Known: true, Value: 12345678.25},
		"100,000":                         {Known: true, Value: 100000},
		"-1,000":                          {Known: true, Value: -1000},
		"-100":                            {Known: true, Value: -100},
		"0.0001":                          {Known: true, Value: 0.0001},
		"100,000,000,000,000,000,000,000": {Known: true, Value: 1e23},
	} {
		if got := q.String(); got != want {
			t.Errorf("%+v is %q, want %q", q, got, want)
		}
	}
}

func TestTierInWords(t *testing.T) {
	t.Parallel()
	for tier, want := range map[policy.Tier]string{
		1: "tier 1, read", 2: "tier 2, internal write", 3: "tier 3, external-facing",
		4: "tier 4, destructive", 5: "tier 5, irreversible or high value",
		0: "tier 0", -1: "tier -1", 6: "tier 6",
	} {
		if got := tier.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
