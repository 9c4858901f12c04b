package policy

import (
	"regexp"
	"slices"
	"strings"

	"cel.dev/cel-go/cel"
)

// kind is what a rule does when it fires.
type kind string

const (
	blocks kind = "block"
	raises kind = "raise"
	lowers kind = "lower"
)

// rule is one of the policy's rules or blocks.
type rule struct {
	kind         kind
	id           string
	why          string
	patterns     []pattern       // in lower case unless the rule lowers; none means every action
	environments map[string]bool // nil means all
	agents       []string        // none means all
	when         *expression     // nil means always
	countOver    *float64
	countAtMost  *float64
	amountOver   *float64
	amountAtMost *float64
	tier         Tier
}

// name is an action as the rule's patterns are compared with it. A rule that
// lowers takes it as written, so that no other spelling gets its ease.
func (r *rule) name(action string) string {
	if r.kind == lowers {
		return action
	}
	return strings.ToLower(action)
}

func (r *rule) about(name string) bool {
	return len(r.patterns) == 0 || slices.ContainsFunc(r.patterns, func(p pattern) bool { return p.matches(name) })
}

// index finds the rules of one kind that may be about an action without
// looking at the others.
type index struct {
	exact        map[string][]*rule // by action
	integrations map[string][]*rule
	rest         []*rule
}

func (i *index) add(r *rule) {
	exact, within := len(r.patterns) > 0, len(r.patterns) > 0
	for _, p := range r.patterns {
		exact = exact && p.isExact()
		integration, _ := integrationOf(string(p))
		within = within && integration != "" && pattern(integration).isExact()
	}
	switch {
	case exact:
		i.exact = file(i.exact, r, func(p pattern) string { return string(p) })
	case within:
		i.integrations = file(i.integrations, r, func(p pattern) string {
			integration, _ := integrationOf(string(p))
			return integration
		})
	default:
		i.rest = append(i.rest, r)
	}
}

// file puts a rule under the key of each of its patterns, once.
func file(under map[string][]*rule, r *rule, key func(pattern) string) map[string][]*rule {
	if under == nil {
		under = make(map[string][]*rule)
	}
	for _, p := range r.patterns {
		if at := under[key(p)]; len(at) == 0 || at[len(at)-1] != r {
			under[key(p)] = append(at, r)
		}
	}
	return under
}

// each calls do for the rules that are about an action, given as the rules'
// patterns are.
func (i *index) each(name string, do func(*rule)) {
	integration, _ := integrationOf(name)
	for _, r := range i.exact[name] {
		do(r)
	}
	for _, r := range i.integrations[integration] {
		if r.about(name) {
			do(r)
		}
	}
	for _, r := range i.rest {
		if r.about(name) {
			do(r)
		}
	}
}

func (b *builder) buildRule(at place, written ruleDocument, block bool) {
	r := &rule{
		id:           written.ID,
		why:          strings.TrimSpace(written.Why),
		agents:       written.Agents,
		environments: b.environmentSet(at.of("environments"), written.Environments),
		when:         b.expression(at.of("when"), written.When, cel.BoolType),
		countOver:    written.CountOver,
		countAtMost:  written.CountAtMost,
		amountOver:   written.AmountOver,
		amountAtMost: written.AmountAtMost,
	}
	b.checkID(at, r.id)
	if r.why == "" {
		b.problem(at, "why is missing; approvers and agents are told it")
	}
	switch {
	case block && (written.RaiseTo != 0 || written.LowerTo != 0):
		b.problem(at, "a block denies; it raises and lowers nothing")
		return
	case block:
		r.kind = blocks
	case (written.RaiseTo != 0) == (written.LowerTo != 0):
		b.problem(at, "a rule has one of raise_to and lower_to")
		return
	case written.RaiseTo != 0:
		r.kind, r.tier = raises, written.RaiseTo
	default:
		r.kind, r.tier = lowers, written.LowerTo
	}
	if r.kind != blocks && !r.tier.valid() {
		b.problem(at, "the tier is %d; tiers are 1 to 5", r.tier)
	}
	b.checkFacts(at, r)
	b.checkNotEmpty(at.of("actions"), written.Actions)
	b.checkNotEmpty(at.of("agents"), written.Agents)
	for i, agent := range written.Agents {
		b.checkAgent(at.of("agents", i), agent)
	}
	for i, action := range written.Actions {
		if !patternName.MatchString(action) {
			b.problem(at.of("actions", i), "an action is INTEGRATION.TOOL with * for any characters")
		}
		r.patterns = append(r.patterns, pattern(r.name(action)))
	}
	switch r.kind {
	case blocks:
		if len(r.patterns) == 0 && r.when == nil && r.countOver == nil && r.amountOver == nil {
			b.problem(at, "blocks everything; name actions or a condition")
		}
		b.blocks.add(r)
	case raises:
		b.raises.add(r)
	case lowers:
		b.lowers.add(r)
	}
}

// checkFacts refuses a rule that could be turned around: more must never be
// weaker, and what the agent or the tool's server says must never lower.
func (b *builder) checkFacts(at place, r *rule) {
	for _, bound := range []struct {
		key   string
		value *float64
		fits  bool
	}{
		{"count_over", r.countOver, r.kind != lowers},
		{"amount_over", r.amountOver, r.kind != lowers},
		{"count_at_most", r.countAtMost, r.kind == lowers},
		{"amount_at_most", r.amountAtMost, r.kind == lowers},
	} {
		switch {
		case bound.value == nil:
		case !bound.fits:
			b.problem(at.of(bound.key), "doesn't fit a rule to %s: over is for raising and blocking, at_most for lowering", r.kind)
		case !(*bound.value >= 0 && *bound.value <= maxOver):
			b.problem(at.of(bound.key), "is %v; 0 to 1e15 are accepted", *bound.value)
		}
	}
	for _, fact := range []string{"first_use_of_tool", "first_use_of_integration", "first_use_of_agent"} {
		b.readsFirstUse = b.readsFirstUse || r.when != nil && r.when.uses(fact)
	}
	if r.when != nil && r.when.uses("in_hours") && b.clock.zone == nil {
		b.problem(at.of("when"), "in_hours needs hours, which say when people are at work")
	}
	if r.kind != lowers {
		return
	}
	if len(b.actions(at)) == 0 {
		b.problem(at, "a rule that lowers names its actions")
	}
	if r.when != nil {
		for _, said := range []string{"target", "irreversible"} {
			if r.when.uses(said) {
				b.problem(at.of("when"), "%s is what the agent says, which can't lower a tier", said)
			}
		}
	}
}

// actions are the actions that the rule at a place names.
func (b *builder) actions(at place) []string {
	return b.source.Rules[at[1].(int)].Actions
}

var ruleID = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,63}$`)

func (b *builder) checkID(at place, id string) {
	reserved := []string{unclassified, bulkID, highValueID, firstUseID, destructiveID, notReadOnlyID}
	switch {
	case id == "":
		b.problem(at, "id is missing; cards, logs and tests name the rule by it")
	case !ruleID.MatchString(id):
		b.problem(at.of("id"), "%q; an id is 1 to 64 lower-case letters, digits and -", id)
	case slices.Contains(reserved, id) || strings.HasPrefix(id, modePrefix):
		b.problem(at.of("id"), "%q is what countersign calls a rule of its own; choose another", id)
	case slices.Contains(b.ids, id):
		b.problem(at.of("id"), "%q is used twice", id)
	}
	b.ids = append(b.ids, id)
}
