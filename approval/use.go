package approval

import (
	"time"

	"github.com/countersign/countersign/policy"
)

// Place is where an agent uses a tool, in the policy's words.
type Place struct {
	Environment string
	Integration string
	Tool        string
}

// LastUse is when an agent last applied a request in an environment; a zero
// time is never. A use is a claim: that somebody asked doesn't count.
type LastUse struct {
	Tool        time.Time // of this tool
	Integration time.Time // of any tool of the integration
	Agent       time.Time // of anything
}

// first says what hasn't been used since a time.
func (u LastUse) first(since time.Time) policy.FirstUse {
	return policy.FirstUse{
		Tool:        u.Tool.Before(since),
		Integration: u.Integration.Before(since),
		Agent:       u.Agent.Before(since),
	}
}
