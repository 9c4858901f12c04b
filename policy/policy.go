// Package policy says which calls run, which wait for whom, and which never
// run. It is pure: it reads no clock, opens no file and calls no service, so
// that one call under one policy always gets one ruling.
//
// A policy is a YAML file that [Parse] reads and checks. It sorts actions into
// tiers, says by mode, integration and environment what each tier does, and
// what approving takes. [Policy.Rule] answers for one call and [Policy.Explain]
// says how it came to the answer; both are one evaluation. What can't be worked
// out makes the answer stricter, and what the policy doesn't classify is never
// allowed.
package policy

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"
)

// Policy is a checked policy. It doesn't change, and all of its methods are
// safe for concurrent use.
type Policy struct {
	revision string
	file     *ast.File
	source   document

	mode          mode
	environments  map[string]environmentRules // by name
	named         map[string]string           // what agents say, in lower case, to the environment's name
	integrations  map[string]*integrationRules
	exact         map[string]*toolRules // by action
	folded        foldedTools
	unclassified  Effect
	bulk          []threshold
	inBand        *unverifiedRules
	inView        *unverifiedRules
	firstUse      *firstUseRules
	readsFirstUse bool // a condition does
	blocks        index
	raises        index
	lowers        index
	approvals     [TierIrreversible + 1]approvalRules
	roles         []Role            // by name
	owners        map[string]string // by agent
	redactions    Redactions
	limits        Limits
	clock         clock
}

// Role is a named set of approvers. Users are Slack user ids of the configured
// workspace; Groups are Slack user groups whose members hold the role too.
// Whoever may edit such a group in Slack decides who holds the role.
type Role struct {
	Name   string   `json:"name"`
	Users  []string `json:"users,omitempty"`
	Groups []string `json:"groups,omitempty"`
	// SelfApproval lets the role's people fill its places for what their own
	// agent asks.
	SelfApproval bool `json:"self_approval,omitempty"`
}

// Limits bound what one agent may ask of people.
type Limits struct {
	Pending   int           // requests that wait at the same time
	PerMinute int           // requests in a minute, whatever becomes of them
	Cooldown  time.Duration // after a rejection, before the same may be asked again
}

// production is the environment of calls whose environment isn't known.
const production = "production"

// mode says what each tier does.
type mode struct {
	name    string
	effects [TierIrreversible + 1]Effect
}

// The modes in which no answer of the agent's own side is enough unless they are
// listed.
const (
	modeStrict   = "strict"
	modeReadonly = "readonly"
)

// builtInModes are the modes that every policy has.
var builtInModes = []mode{
	{"open", effects(Allow, Allow, Allow, Allow, Allow)},
	{"cautious", effects(Allow, Allow, RequireApproval, RequireApproval, RequireApproval)},
	{modeStrict, effects(Allow, RequireApproval, RequireApproval, Deny, Deny)},
	{modeReadonly, effects(Allow, Deny, Deny, Deny, Deny)},
}

func effects(byTier ...Effect) (all [TierIrreversible + 1]Effect) {
	copy(all[TierRead:], byTier)
	return all
}

type environmentRules struct{ mode *mode }

type integrationRules struct {
	mode         *mode
	environments map[string]*mode
	patterns     []*toolRules
}

// toolRules are one stanza of an integration's tools.
type toolRules struct {
	id        string // INTEGRATION.PATTERN
	pattern   pattern
	tier      Tier
	count     *expression
	bulk      []threshold
	amount    *expression
	highValue []threshold
	redact    []string
	target    *expression
	// targetReads are the paths at which target reads the payload.
	targetReads [][]string
	// idempotency is the argument for a key; empty for none.
	idempotency string
}

// foldedTools are the stanzas by what they are called in lower case: those of
// one tool by its action, those of patterns by their integration.
type foldedTools struct {
	exact    map[string][]*toolRules
	patterns map[string][]*toolRules
}

type threshold struct {
	over    float64
	raiseTo Tier
}

type firstUseRules struct {
	of           FirstUse
	environments map[string]bool
	raiseTo      Tier
	within       time.Duration
}

// approvalRules are what approving takes at one tier.
type approvalRules struct {
	requirement  Requirement
	decideWithin time.Duration
	applyWithin  time.Duration
	remindAfter  []time.Duration
	escalation   Escalation
	scopes       []string
}

// Revision names the policy by its source, as 64 hexadecimal digits: two files
// that differ in one byte have two revisions.
func (p *Policy) Revision() string { return p.revision }

// Limits are what one agent may ask of people.
func (p *Policy) Limits() Limits { return p.limits }

// Roles are the policy's roles, by name.
func (p *Policy) Roles() []Role { return slices.Clone(p.roles) }

// Named returns the roles that the requirement names, in its order. A name
// that the policy doesn't know is left out: nobody holds it.
func (p *Policy) Named(r Requirement) []Role {
	var named []Role
	for _, want := range r.Roles {
		if role, ok := p.role(want.Role); ok {
			named = append(named, role)
		}
	}
	return named
}

func (p *Policy) role(name string) (Role, bool) {
	at, ok := slices.BinarySearchFunc(p.roles, name, func(role Role, name string) int { return cmp.Compare(role.Name, name) })
	if !ok {
		return Role{}, false
	}
	return p.roles[at], true
}

// FirstUseWithin is how long ago a use may be to count, so that the next isn't
// the first; zero if the policy doesn't ask about first uses.
func (p *Policy) FirstUseWithin() time.Duration {
	switch {
	case p.firstUse != nil:
		return p.firstUse.within
	case p.readsFirstUse:
		return defaultFirstUseWithin
	default:
		return 0
	}
}

// environmentOf is the policy's name for an environment that an agent states.
// One that isn't known is production.
func (p *Policy) environmentOf(stated string) string {
	if name, ok := p.named[strings.ToLower(stated)]; ok {
		return name
	}
	return production
}

// Place is what a call is about, in the policy's words: the integration and
// the tool of its action, and its environment.
func (p *Policy) Place(action, environment string) (integration, tool, resolved string) {
	integration, tool = integrationOf(action)
	return integration, tool, p.environmentOf(environment)
}
