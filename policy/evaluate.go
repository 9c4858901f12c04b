package policy

import (
	"fmt"
	"iter"
	"slices"
	"strings"
	"unicode/utf8"
)

// Rule answers for one call.
func (p *Policy) Rule(c Call) Ruling { return p.evaluate(c, nil) }

// class is how the policy classifies an action.
type class struct {
	id    string
	known bool // a stanza classifies it
	tier  Tier
	// tools are the stanzas that match. Of an action that isn't known they are
	// those that match it in another spelling: it isn't classified by them, but
	// it must not get around what they ask.
	tools []*toolRules
}

const unclassified = "unclassified"

// The ids of what the policy does by itself, beside its rules.
const (
	bulkID        = "bulk"
	highValueID   = "high-value"
	firstUseID    = "first-use"
	destructiveID = "hint-destructive"
	notReadOnlyID = "hint-not-read-only"
	modePrefix    = "mode-"
)

// classify finds the stanza that names the action, or else all whose pattern
// matches it; the highest tier of them counts. folded is the action in lower
// case: a stanza of another spelling limits an action and doesn't classify it.
func (p *Policy) classify(action, folded string) class {
	if !isActionName(action) {
		return class{id: unclassified, tier: TierDestructive}
	}
	if tool, ok := p.exact[action]; ok {
		return class{id: tool.id, known: true, tier: tool.tier, tools: []*toolRules{tool}}
	}
	found := class{known: true}
	integration, tool := integrationOf(action)
	if within := p.integrations[integration]; within != nil {
		for _, candidate := range within.patterns {
			if candidate.pattern.matches(tool) {
				found.add(candidate)
			}
		}
	}
	if len(found.tools) == 0 {
		found = class{id: unclassified, tier: TierDestructive}
	}
	for _, candidate := range p.folded.exact[folded] {
		found.limit(candidate)
	}
	if len(found.tools) == 0 {
		integration, tool = integrationOf(folded)
		for _, candidate := range p.folded.patterns[integration] {
			if pattern(strings.ToLower(string(candidate.pattern))).matches(tool) {
				found.limit(candidate)
			}
		}
	}
	return found
}

// unpinned is the class of an action whose tool isn't what was accepted: nothing
// is known of it, and it must not get around what was asked of it before.
func (c class) unpinned() class {
	changed := class{id: unclassified, tier: TierDestructive}
	for _, tool := range c.tools {
		changed.limit(tool)
	}
	return changed
}

func (c *class) add(tool *toolRules) {
	if c.id != "" {
		c.id += " + "
	}
	c.id += tool.id
	c.limit(tool)
}

// limit has a stanza count that doesn't classify the action.
func (c *class) limit(tool *toolRules) {
	c.tier = max(c.tier, tool.tier)
	c.tools = append(c.tools, tool)
}

// evaluation is one call on its way to its ruling.
type evaluation struct {
	policy *Policy
	call   Call
	class  class
	facts  facts
	trace  *Explanation // nil unless somebody wants to know

	accepted    Tier   // of the class before the tool changed
	target      string // what the policy says that the call acts on
	count       Quantity
	countProven bool // an expression of the policy says the count, not only the agent
	amount      Quantity
	fired       []FiredRule
	raised      Tier // the highest tier that something raised to
	lowered     Tier // the lowest tier that something lowered to
}

func (p *Policy) evaluate(c Call, trace *Explanation) Ruling {
	folded := strings.ToLower(c.Action)
	e := evaluation{policy: p, call: c, class: p.classify(c.Action, folded), trace: trace}
	e.accepted = e.class.tier
	if c.Unpinned {
		e.class = e.class.unpinned()
	}
	integration, tool := integrationOf(c.Action)
	e.facts = facts{
		call:        c,
		integration: integration,
		tool:        tool,
		environment: p.environmentOf(c.Environment),
		owner:       c.Owner,
		tier:        e.class.tier,
		clock:       p.clock,
	}
	if e.facts.owner == "" {
		e.facts.owner = p.owners[c.Agent]
	}
	e.trace.classified(e.class)

	e.aim()
	e.measure()
	e.lowered = e.class.tier
	e.hints()
	p.lowers.each(c.Action, e.apply)
	p.raises.each(folded, e.apply)
	e.thresholds()
	tier := max(e.lowered, e.raised)

	m := p.modeOf(integration, e.facts.environment, tier)
	effect := m.effects[tier]
	e.trace.sorted(tier, m, effect)
	if effect == Deny {
		e.fire(FiredRule{ID: modePrefix + m.name, Effect: Deny, Why: fmt.Sprintf("Mode %s denies %s.", m.name, tier)})
	}
	if first := e.firstUse(); first != "" {
		// It asks for a person and never denies: what may not run before it
		// has run could never run.
		effect = stricter(effect, RequireApproval)
		tier = max(tier, p.firstUse.raiseTo)
		e.fire(FiredRule{ID: firstUseID, RaiseTo: p.firstUse.raiseTo, Why: first})
	}
	if !e.class.known {
		effect = stricter(effect, p.unclassified)
	}
	p.blocks.each(folded, e.apply)
	if slices.ContainsFunc(e.fired, func(rule FiredRule) bool { return rule.Effect == Deny }) {
		effect = Deny
	}
	return e.ruling(effect, tier, m)
}

// ruling puts the answer together.
func (e *evaluation) ruling(effect Effect, tier Tier, m mode) Ruling {
	p := e.policy
	sortFired(e.fired)
	terms := p.approvals[tier]
	r := Ruling{
		Revision:     p.revision,
		Effect:       effect,
		Tier:         tier,
		Rules:        slices.Concat([]FiredRule{e.reason(effect, tier, m)}, e.fired),
		Integration:  e.facts.integration,
		Tool:         e.facts.tool,
		Environment:  e.facts.environment,
		Mode:         m.name,
		Classified:   e.class.known,
		Count:        e.count,
		Amount:       e.amount,
		FirstUse:     e.call.FirstUse,
		Redactions:   e.redactions(),
		Target:       e.target,
		Idempotency:  e.idempotency(),
		DecideWithin: terms.decideWithin,
		ApplyWithin:  terms.applyWithin,
	}
	if effect == RequireApproval {
		r.Requirement = terms.requirement
		r.Requirement.Owner = p.owners[e.call.Agent]
		r.Scopes = terms.scopes
		r.InBand = e.isEnough(p.inBand, tier)
		r.InView = e.isEnough(p.inView, tier)
		r.RemindAfter = terms.remindAfter
		r.Escalation = terms.escalation
	}
	return r
}

// reason is the action's class with what it leads to, in words.
func (e *evaluation) reason(effect Effect, tier Tier, m mode) FiredRule {
	first := FiredRule{ID: e.class.id}
	switch {
	case e.call.Unpinned && e.policy.unclassified == Deny:
		first.Effect = Deny
		first.Why = "The tool's definition has changed since it was pinned, and the policy denies what isn't classified."
	case e.call.Unpinned:
		first.Why = "The tool's definition has changed since it was pinned, so a person decides."
	case !e.class.known && e.policy.unclassified == Deny:
		first.Effect = Deny
		first.Why = "No rule classifies this action, and the policy denies what isn't classified."
	case !e.class.known:
		first.Why = "No rule classifies this action, so a person decides."
	case effect == Allow:
		first.Why = e.class.id + " is " + tier.String() + ", which mode " + m.name + " allows."
	case effect == RequireApproval && tier == e.class.tier:
		first.Why = e.class.id + " is " + tier.String() + ", which mode " + m.name + " leaves to a person."
	default:
		first.Why = e.class.id + " is " + e.class.tier.String() + "."
	}
	return first
}

func (e *evaluation) redactions() Redactions {
	hidden := e.policy.redactions
	for _, tool := range e.class.tools {
		hidden = hidden.with(Redactions{Paths: tool.redact})
	}
	return hidden
}

// modeOf is the mode that counts for a tier: the integration's for the
// environment, or else the stricter of the integration's and the environment's,
// or else the policy's. An integration that isn't known, but is in another
// spelling, gets the strictest of all that this could be.
func (p *Policy) modeOf(integration, environment string, tier Tier) mode {
	var chosen *mode
	for first, second := range p.modesAbout(integration, environment) {
		if second != nil && second.effects[tier].strictness() > first.effects[tier].strictness() {
			first = second
		}
		if chosen == nil {
			chosen = first
			continue
		}
		if more := first.effects[tier].strictness() - chosen.effects[tier].strictness(); more > 0 || more == 0 && first.name < chosen.name {
			chosen = first
		}
	}
	return *chosen
}

// modesAbout are the pairs of modes of which the strictest counts, by tier, as
// modesWithin gives them: one for an integration that is known, and else one for
// each that it could be.
func (p *Policy) modesAbout(integration, environment string) iter.Seq2[*mode, *mode] {
	return func(yield func(first, second *mode) bool) {
		known := p.integrations[integration]
		if !yield(p.modesWithin(known, environment)) || known != nil {
			return
		}
		for name, within := range p.integrations {
			if strings.EqualFold(name, integration) && !yield(p.modesWithin(within, environment)) {
				return
			}
		}
	}
}

// modesWithin are the modes of which the stricter counts, by tier; second is nil
// where there is only one.
func (p *Policy) modesWithin(within *integrationRules, environment string) (first, second *mode) {
	own := p.environments[environment].mode
	switch {
	case within != nil && within.environments[environment] != nil:
		return within.environments[environment], nil
	case within != nil && within.mode != nil:
		return within.mode, own
	case own != nil:
		return own, nil
	default:
		return &p.mode, nil
	}
}

// maxTarget is how long a target may be, in characters.
const maxTarget = 500

// aim works out what the call acts on, if the policy says so. That counts
// instead of what the agent says. Where it can't be told, or where stanzas
// differ, the call has no target, and no condition can read it: an agent must
// not get around a condition with arguments that can't be told.
func (e *evaluation) aim() {
	says := 0
	for _, tool := range e.class.tools {
		if tool.target == nil {
			continue
		}
		text, why := e.targetOf(tool)
		e.trace.aimed(tool.target, text, why)
		e.facts.noTarget = e.facts.noTarget || why != "" || says > 0 && text != e.target
		e.target = text
		says++
	}
	if says == 0 {
		return
	}
	if e.facts.noTarget {
		e.target = ""
	}
	e.facts.call.Target = e.target
}

// targetOf is what a stanza gives as a target, or why it can't be told.
func (e *evaluation) targetOf(tool *toolRules) (text, why string) {
	if e.readsHidden(tool.targetReads) {
		return "", valueRedacted
	}
	value, err := tool.target.value(&e.facts)
	if err != nil {
		return "", valueFailed
	}
	given, isText := value.Value().(string)
	switch {
	case !isText:
		return "", "gives no text"
	case utf8.RuneCountInString(given) > maxTarget:
		return "", fmt.Sprintf("gives more than %d characters", maxTarget)
	case !utf8.ValidString(given) || strings.ContainsRune(given, 0):
		return "", "gives what is no text"
	case strings.TrimSpace(given) == "":
		return "", ""
	default:
		return given, ""
	}
}

// readsHidden reports whether something at one of these paths of the payload is
// redacted, or may be by what the policy says of the path.
func (e *evaluation) readsHidden(paths [][]string) bool {
	hidden := e.redactions()
	if hidden.IsZero() || len(paths) == 0 {
		return false
	}
	payload := e.facts.payload().Value() // an error holds nothing to hide
	return slices.ContainsFunc(paths, func(path []string) bool {
		return len(path) > 0 && hidden.below(path) || hidden.holds(path, valueAt(payload, path))
	})
}

// idempotency is the argument in which the tool takes a key; empty if no stanza
// names one, or if they differ.
func (e *evaluation) idempotency() string {
	var name string
	for _, tool := range e.class.tools {
		switch {
		case tool.idempotency == "" || tool.idempotency == name:
		case name != "":
			return ""
		default:
			name = tool.idempotency
		}
	}
	return name
}

// measure works out on how many things the call acts and what it is worth.
func (e *evaluation) measure() {
	var counted []Quantity
	for _, tool := range e.class.tools {
		if tool.count != nil {
			counted = append(counted, e.quantity("count", tool.count))
		}
		if tool.amount != nil {
			e.amount = larger(e.amount, e.quantity("amount", tool.amount))
		}
	}
	e.countProven = len(counted) > 0
	if len(counted) == 0 {
		length, ok, err := longestList(e.facts.payload())
		switch {
		case err != nil:
			counted = []Quantity{{Unbounded: true}}
		case ok:
			counted = []Quantity{{Value: float64(length), Known: true}}
		}
		e.trace.listed(length, ok, err)
	}
	for _, one := range counted {
		e.count = larger(e.count, one)
	}
	e.trace.stated(e.call.Count)
	if e.call.Count != nil {
		e.count = larger(e.count, Quantity{Value: float64(*e.call.Count), Known: true})
	}
}

func (e *evaluation) quantity(what string, expression *expression) Quantity {
	value := expression.quantity(&e.facts)
	e.trace.quantity(what, expression, value)
	return value
}

// larger is the larger of two quantities; an unbounded one is the largest.
func larger(a, b Quantity) Quantity {
	switch {
	case a.Unbounded || b.Unbounded:
		return Quantity{Unbounded: true}
	case !a.Known || b.Known && b.Value > a.Value:
		return b
	default:
		return a
	}
}

// thresholds raises the tier of what touches many things or is worth much.
func (e *evaluation) thresholds() {
	var bulk, highValue threshold
	// What only reads may read much. What isn't classified may do anything.
	if max(e.class.tier, e.raised) >= TierInternalWrite {
		bulk = passed(e.count, bulk, e.policy.bulk)
	}
	for _, tool := range e.class.tools {
		bulk = passed(e.count, bulk, tool.bulk)
		highValue = passed(e.amount, highValue, tool.highValue)
	}
	e.pass(bulkID, "The count", e.count, bulk)
	e.pass(highValueID, "The amount", e.amount, highValue)
}

// passed is the highest threshold that the quantity passes, or highest if it
// passes none that is higher.
func passed(q Quantity, highest threshold, thresholds []threshold) threshold {
	for _, t := range thresholds {
		if q.over(t.over) && (t.raiseTo > highest.raiseTo || t.raiseTo == highest.raiseTo && t.over > highest.over) {
			highest = t
		}
	}
	return highest
}

// pass fires the threshold that the quantity passes, if it is one.
func (e *evaluation) pass(id, what string, q Quantity, highest threshold) {
	if highest.raiseTo == 0 {
		return
	}
	why := fmt.Sprintf("%s, %s, is more than %s.", what, q, grouped(highest.over))
	if q.Unbounded {
		why = fmt.Sprintf("%s couldn't be worked out, so it counts as more than %s.", what, grouped(highest.over))
	}
	e.fire(FiredRule{ID: id, RaiseTo: highest.raiseTo, Why: why, Failed: q.Unbounded})
}

// hints raises the tier of a tool whose server says that it is dangerous. That
// it says a tool is harmless changes nothing.
func (e *evaluation) hints() {
	hints := e.call.Hints
	if isTrue(hints.Destructive) {
		e.fire(FiredRule{ID: destructiveID, RaiseTo: TierDestructive, Why: "The tool's server says that it is destructive."})
	}
	if isFalse(hints.ReadOnly) {
		e.fire(FiredRule{ID: notReadOnlyID, RaiseTo: TierInternalWrite, Why: "The tool's server says that it changes something."})
	}
}

// firstUse says in words what is used for the first time, if the policy asks
// people about that.
func (e *evaluation) firstUse() string {
	asked := e.policy.firstUse
	if asked == nil || !asked.environments[e.facts.environment] {
		return ""
	}
	in := " in " + e.facts.environment + "."
	switch first := e.call.FirstUse; {
	case asked.of.Agent && first.Agent:
		return "The agent " + e.call.Agent + " is used for the first time" + in
	case asked.of.Integration && first.Integration:
		return "The agent uses " + e.facts.integration + " for the first time" + in
	case asked.of.Tool && first.Tool:
		return "The agent uses " + e.call.Action + " for the first time" + in
	default:
		return ""
	}
}

// apply fires a rule that is about the action if the rest of it holds too.
func (e *evaluation) apply(r *rule) {
	holds, why, err := e.holds(r)
	if !holds && r.kind != lowers && e.accepted != e.class.tier {
		// A tool that has changed is of a higher tier, and must not get around
		// what the policy says of the one that it had.
		e.facts.tier = e.accepted
		defer func() { e.facts.tier = e.class.tier }()
		if before, _, failure := e.holds(r); before {
			holds, why, err = true, "", failure
		} else {
			e.facts.tier = e.class.tier
		}
	}
	e.trace.considered(r, holds, why, err, e)
	if !holds {
		return
	}
	fired := FiredRule{ID: r.id, Why: r.why, Failed: err != nil}
	switch r.kind {
	case blocks:
		fired.Effect = Deny
	case raises:
		fired.RaiseTo = r.tier
	case lowers:
		fired.LowerTo = r.tier
	}
	e.fire(fired)
}

// conditionNotMet is why a rule doesn't hold whose condition says so.
const conditionNotMet = "its condition isn't met"

// holds reports whether everything that the rule asks for is so, and if not,
// what isn't. A condition that fails holds, unless the rule lowers.
func (e *evaluation) holds(r *rule) (holds bool, why string, err error) {
	switch {
	case r.environments != nil && !r.environments[e.facts.environment]:
		return false, "another environment", nil
	case len(r.agents) > 0 && !slices.Contains(r.agents, e.call.Agent):
		return false, "another agent", nil
	case r.countOver != nil && !e.count.over(*r.countOver):
		return false, "the count, " + e.count.String() + ", isn't more than " + grouped(*r.countOver), nil
	case r.amountOver != nil && !e.amount.over(*r.amountOver):
		return false, "the amount, " + e.amount.String() + ", isn't more than " + grouped(*r.amountOver), nil
	case r.countAtMost != nil && !e.countProven:
		return false, "no count expression says how many", nil
	case r.countAtMost != nil && !e.count.atMost(*r.countAtMost):
		return false, "the count, " + e.count.String() + ", is more than " + grouped(*r.countAtMost), nil
	case r.amountAtMost != nil && !e.amount.atMost(*r.amountAtMost):
		return false, "the amount, " + e.amount.String() + ", isn't at most " + grouped(*r.amountAtMost), nil
	case r.kind == lowers && !e.class.known:
		return false, "what isn't classified is never lowered", nil
	case r.kind == lowers && r.tier >= e.class.tier:
		return false, "the tier isn't higher", nil
	case r.when == nil:
		return true, "", nil
	}
	met, err := r.when.condition(&e.facts)
	switch {
	case err != nil && r.kind == lowers:
		return false, "its condition can't be worked out", err
	case err != nil:
		return true, "", err
	case !met:
		return false, conditionNotMet, nil
	default:
		return true, "", nil
	}
}

func (e *evaluation) fire(fired FiredRule) {
	e.fired = append(e.fired, fired)
	e.raised = max(e.raised, fired.RaiseTo)
	if fired.LowerTo != 0 {
		e.lowered = min(e.lowered, fired.LowerTo)
	}
}
