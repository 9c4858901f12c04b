package policy

import "time"

// Call is what policy may know of an action. Nothing in it is authority: it
// comes from the agent, except Agent and Owner, which were authenticated,
// Hints, which come from the tool's server, and Unpinned, FirstUse and At.
type Call struct {
	Agent       string
	Owner       string // the Slack user id of whom the agent acts for; empty if nobody
	Action      string // INTEGRATION.TOOL; empty if not stated
	Target      string // what the policy says counts instead
	Environment string // empty means unknown, which is treated as production
	Count       *int64 // what the agent states; nil if it doesn't
	Reversible  *bool  // nil if not stated
	Payload     []byte // strict JSON, as it would run
	Hints       Hints
	Unpinned    bool // the tool's definition isn't the one that was accepted
	FirstUse    FirstUse
	At          time.Time // when the call is ruled
}

// Hints are the annotations of a tool's definition. They are the word of the
// tool's server: they can raise a tier and never lower one.
type Hints struct {
	ReadOnly    *bool `json:"read_only,omitempty"` // nil if not annotated
	Destructive *bool `json:"destructive,omitempty"`
	Idempotent  *bool `json:"idempotent,omitempty"`
	OpenWorld   *bool `json:"open_world,omitempty"`
}

// FirstUse says what has never run before in the call's environment.
type FirstUse struct {
	Tool        bool `json:"tool,omitempty"`        // the agent never used the tool
	Integration bool `json:"integration,omitempty"` // the agent never used a tool of the integration
	Agent       bool `json:"agent,omitempty"`       // the agent never ran anything
}

// isTrue reports whether a stated fact is true; what isn't stated isn't.
func isTrue(stated *bool) bool { return stated != nil && *stated }

// isFalse reports whether a stated fact is false; what isn't stated isn't.
func isFalse(stated *bool) bool { return stated != nil && !*stated }
