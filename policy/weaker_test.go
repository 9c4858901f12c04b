package policy_test

import (
	"fmt"

	"github.com/countersign/countersign/policy"
)

// strictness orders effects.
func strictness(effect policy.Effect) int {
	switch effect {
	case policy.Allow:
		return 0
	case policy.RequireApproval:
		return 1
	default:
		return 2
	}
}

// weaker says in what a ruling asks for less than another; empty if in nothing.
// It is what the properties mean by "never weaker": the effect, the tier, the
// number of people who approve, whether they say why, and whether a client's own
// answer or a decision in the host's view is enough.
func weaker(before, after policy.Ruling) string {
	switch {
	case strictness(after.Effect) < strictness(before.Effect):
		return fmt.Sprintf("%s instead of %s", after.Effect, before.Effect)
	case after.Tier < before.Tier:
		return fmt.Sprintf("%s instead of %s", after.Tier, before.Tier)
	case after.Effect != policy.RequireApproval || before.Effect != policy.RequireApproval:
		return ""
	case open(after.Requirement.Missing(nil)) < open(before.Requirement.Missing(nil)):
		return fmt.Sprintf("%s instead of %s", after.Requirement, before.Requirement)
	case before.Requirement.ReasonRequired && !after.Requirement.ReasonRequired:
		return "no reason is required any more"
	case after.InBand && !before.InBand:
		return "the client's own answer is enough now"
	case after.InView && !before.InView:
		return "a decision in the host's view is enough now"
	default:
		return ""
	}
}
