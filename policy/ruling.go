package policy

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Tier is how much a mistake would cost, from 1 (read) to 5 (irreversible or
// high value).
type Tier int

// The tiers, in rising order of harm.
const (
	TierRead          Tier = 1
	TierInternalWrite Tier = 2
	TierExternal      Tier = 3
	TierDestructive   Tier = 4
	TierIrreversible  Tier = 5
)

var tierNames = [...]string{
	TierRead:          "read",
	TierInternalWrite: "internal write",
	TierExternal:      "external-facing",
	TierDestructive:   "destructive",
	TierIrreversible:  "irreversible or high value",
}

func (t Tier) valid() bool { return t >= TierRead && t <= TierIrreversible }

// String names the tier as people read it, with its number: "tier 4,
// destructive".
func (t Tier) String() string {
	if !t.valid() {
		return fmt.Sprintf("tier %d", int(t))
	}
	return "tier " + strconv.Itoa(int(t)) + ", " + tierNames[t]
}

// Effect is what a ruling does with a call.
type Effect string

// The effects, in rising order of strictness. Every other value counts as Deny.
const (
	Allow           Effect = "allow"
	RequireApproval Effect = "require_approval"
	Deny            Effect = "deny"
)

func (e Effect) strictness() int {
	switch e {
	case Allow:
		return 0
	case RequireApproval:
		return 1
	default:
		return 2
	}
}

func stricter(a, b Effect) Effect {
	if b.strictness() > a.strictness() {
		return b
	}
	return a
}

// Ruling is policy's answer for one call. It is stored with the request that it
// was made for.
type Ruling struct {
	// Revision names the policy that ruled.
	Revision string `json:"revision"`
	Effect   Effect `json:"effect"`
	Tier     Tier   `json:"tier"`
	// Requirement is what approving takes. It is empty unless the effect is
	// RequireApproval.
	Requirement Requirement `json:"requirement,omitzero"`
	// Rules are what led to the ruling: the class of the action first, then
	// what fired, by id.
	Rules []FiredRule `json:"rules"`

	Integration string `json:"integration"` // empty for an action that has none
	Tool        string `json:"tool"`
	Environment string `json:"environment"` // as the policy names it
	Mode        string `json:"mode"`
	Classified  bool   `json:"classified"`
	// Target is what the policy says that the call acts on, in at most 500
	// characters; empty if it says nothing, if it can't be worked out, and if it
	// would show what is redacted.
	Target string `json:"target,omitempty"`
	// Idempotency is the name of the argument in which a tool takes a key that
	// is the same for one request; empty if it takes none.
	Idempotency string `json:"idempotency,omitempty"`
	// InBand means that an answer of the agent's own client is enough to approve.
	// It is never so above tier 3, nor for what isn't classified.
	InBand bool `json:"in_band,omitempty"`
	// InView means that a decision made in the view that the agent's own host
	// shows is enough. It is never so for a first use.
	InView bool `json:"in_view,omitempty"`

	// Count is on how many things the call acts, Amount what it is worth.
	Count  Quantity `json:"count,omitzero"`
	Amount Quantity `json:"amount,omitzero"`
	// FirstUse is what the ruling was told.
	FirstUse FirstUse `json:"first_use,omitzero"`
	// Redactions are what of the payload isn't shown.
	Redactions Redactions `json:"redactions,omitzero"`

	DecideWithin time.Duration   `json:"decide_within,omitempty"` // at most this long
	ApplyWithin  time.Duration   `json:"apply_within"`
	Scopes       []string        `json:"scopes,omitempty"`       // what an approver may be offered
	RemindAfter  []time.Duration `json:"remind_after,omitempty"` // rising
	Escalation   Escalation      `json:"escalation,omitzero"`
}

// FiredRule is a rule that took part in a ruling, with its reason in words for
// the approver.
type FiredRule struct {
	ID  string `json:"id"`
	Why string `json:"why"`
	// Effect is Deny for what denied the call by itself, else empty.
	Effect Effect `json:"effect,omitempty"`
	// RaiseTo and LowerTo are the tiers that the rule asked for, else zero.
	RaiseTo Tier `json:"raise_to,omitempty"`
	LowerTo Tier `json:"lower_to,omitempty"`
	// Failed means that the rule's condition couldn't be worked out, so that
	// the rule counts as fired.
	Failed bool `json:"failed,omitempty"`
}

// Escalation mentions the people of a role once nobody has decided for a while.
// It gives them no authority.
type Escalation struct {
	After time.Duration `json:"after"`
	To    string        `json:"to"` // a role
	// Users and Groups hold the role, as Slack ids.
	Users  []string `json:"users,omitempty"`
	Groups []string `json:"groups,omitempty"`
}

// Quantity is a number worked out from a call.
type Quantity struct {
	Value float64 `json:"value"`
	// Known is false if nothing says the number.
	Known bool `json:"known"`
	// Unbounded means that working it out failed, so that it passes every
	// threshold.
	Unbounded bool `json:"unbounded,omitempty"`
}

// over reports whether the quantity is more than the threshold.
func (q Quantity) over(threshold float64) bool {
	return q.Unbounded || q.Known && q.Value > threshold
}

// atMost reports whether the quantity is known to be no more than the
// threshold.
func (q Quantity) atMost(threshold float64) bool {
	return q.Known && !q.Unbounded && q.Value <= threshold
}

// String is the number as people read it: "1,180.5".
func (q Quantity) String() string {
	switch {
	case q.Unbounded:
		return "unbounded"
	case !q.Known:
		return "unknown"
	default:
		return grouped(q.Value)
	}
}

// grouped writes a number in digits, with commas between thousands.
func grouped(value float64) string {
	text := strconv.FormatFloat(value, 'f', -1, 64)
	sign := ""
	if strings.HasPrefix(text, "-") {
		sign, text = "-", text[1:]
	}
	whole, fraction, broken := strings.Cut(text, ".")
	for i := len(whole) - 3; i > 0; i -= 3 {
		whole = whole[:i] + "," + whole[i:]
	}
	if broken {
		fraction = "." + fraction
	}
	return sign + whole + fraction
}

// Reason is why the ruling is as it is, in one text for people: for a denied
// call what denied it, else everything that took part.
func (r Ruling) Reason() string {
	var why []string
	for _, rule := range r.Rules {
		if rule.Why != "" && (r.Effect != Deny || rule.Effect == Deny) {
			why = append(why, rule.Why)
		}
	}
	return strings.Join(why, " ")
}

// Decider is the id of the rule that a call is allowed or denied by.
func (r Ruling) Decider() string {
	for _, rule := range r.Rules {
		if r.Effect == Deny && rule.Effect == Deny {
			return rule.ID
		}
	}
	if len(r.Rules) == 0 {
		return ""
	}
	return r.Rules[0].ID
}

// StricterThan says in words in what the ruling asks for more than one that was
// made before; empty if in nothing. What it loosens doesn't matter.
func (r Ruling) StricterThan(before Ruling) string {
	switch {
	case r.Effect.strictness() > before.Effect.strictness() && r.Effect == RequireApproval:
		return "The policy now has people decide on this action."
	case r.Effect.strictness() > before.Effect.strictness():
		return strings.TrimSpace("The policy now denies this action. " + r.Reason())
	case r.Effect != RequireApproval || before.Effect != RequireApproval:
		return ""
	case r.Tier > before.Tier:
		return fmt.Sprintf("The policy now sorts this action as %s; it was %s.", r.Tier, before.Tier)
	case before.InBand && !r.InBand, before.InView && !r.InView:
		return "The policy now has people of a role decide on this action."
	default:
		return r.Requirement.stricterThan(before.Requirement)
	}
}

// sortFired puts the rules that fired in the order of their ids.
func sortFired(rules []FiredRule) {
	slices.SortFunc(rules, func(a, b FiredRule) int { return strings.Compare(a.ID, b.ID) })
}
