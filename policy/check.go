package policy

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// Check says what isn't wrong with the policy and its author should know:
// rules and stanzas without effect, names that nobody uses, reminders that
// never come, people who are asked and can't act, and secrets in the file. Each
// finding says where it is and what to do. A policy that means what it says has
// none.
func (p *Policy) Check() Findings {
	c := checker{Policy: p, tools: p.stanzas()}
	c.listRules()
	c.findLowest()
	c.checkRules()
	c.checkStanzas()
	c.checkThresholds()
	c.checkNames()
	c.checkUnverifiedPlaces(c.inBand, c.source.InBand)
	c.checkUnverifiedPlaces(c.inView, c.source.InView)
	c.checkApprovals()
	c.checkSecrets()
	slices.SortFunc(c.found, Finding.compare)
	return slices.Compact(c.found)
}

// checker looks at a policy and collects what it finds.
type checker struct {
	*Policy
	tools  []*toolRules
	rules  []writtenRule       // blocks first
	lowest map[*toolRules]Tier // that a call may have before something raises it
	found  Findings
}

func (c *checker) finding(at place, format string, args ...any) {
	c.found = append(c.found, finding(c.file, at, format, args...))
}

// checkStanzas finds tools whose stanza changes nothing, numbers that show what
// is redacted, and targets that would.
func (c *checker) checkStanzas() {
	for _, tool := range c.tools {
		at := place{"integrations", tool.integration(), "tools", string(tool.pattern)}
		if other := c.makesPointless(tool); other != nil {
			c.finding(at, "has no effect: %s says tier %d for all of it; take it out", other.id, other.tier)
		}
		hidden := c.redactions.with(Redactions{Paths: tool.redact})
		c.checkShown(at.of("amount"), tool.amount, hidden, true)
		// How many there are of what is redacted may be shown.
		c.checkShown(at.of("count"), tool.count, hidden, false)
		c.checkTarget(at.of("target"), tool, hidden)
	}
}

// checkShown finds a number for cards and logs that is worked out from what is
// redacted there, or may be, since it reads what that is a part of.
func (c *checker) checkShown(at place, number *expression, hidden Redactions, parts bool) {
	if number == nil {
		return
	}
	for _, path := range payloadReads(number.checked, number.checked.NativeRep().Expr()) {
		key := at[len(at)-1]
		switch {
		case len(path) == 0:
		case hidden.Hide(path):
			c.finding(at, "shows %s, which is redacted, as the %s; redact it no longer, or leave %s out", pointerTo(path), key, key)
		case parts && hidden.below(path):
			c.finding(at, "reads %s, of which a part is redacted, and may show that as the %s; name the part that it reads", pointerTo(path), key)
		}
	}
}

// checkTarget finds a target that reads what is redacted, so that calls have
// none.
func (c *checker) checkTarget(at place, tool *toolRules, hidden Redactions) {
	for _, path := range tool.targetReads {
		switch {
		case hidden.IsZero():
		case len(path) == 0:
			c.finding(at, "reads arguments that it doesn't name, so a call in which something is redacted has no target; name the arguments")
		case hidden.Hide(path):
			c.finding(at, "reads %s, which is redacted, so no call has a target; redact it no longer, or leave target out", pointerTo(path))
		case hidden.below(path):
			c.finding(at, "reads %s, of which a part is redacted, so no call has a target; name the part that it reads", pointerTo(path))
		}
	}
}

// makesPointless finds a stanza without which another would mean the same.
func (c *checker) makesPointless(tool *toolRules) *toolRules {
	if !tool.isBare() {
		return nil
	}
	var others []*toolRules
	for _, other := range c.integrations[tool.integration()].patterns {
		if other != tool && other.pattern.covers(tool.pattern) {
			others = append(others, other)
		}
	}
	if len(others) == 0 {
		return nil
	}
	highest := slices.MaxFunc(others, func(a, b *toolRules) int { return cmp.Compare(a.tier, b.tier) })
	switch {
	case !tool.pattern.isExact() && highest.tier >= tool.tier:
		return highest // of all patterns, the highest tier counts
	case tool.pattern.isExact() && highest.tier == tool.tier && !slices.ContainsFunc(others, func(other *toolRules) bool { return !other.isBare() }):
		return highest
	default:
		return nil
	}
}

// isBare reports whether the stanza says nothing but a tier.
func (t *toolRules) isBare() bool {
	return t.count == nil && t.amount == nil && t.target == nil && t.idempotency == "" && len(t.bulk) == 0 && len(t.highValue) == 0 && len(t.redact) == 0
}

// checkThresholds finds thresholds that others make pointless.
func (c *checker) checkThresholds() {
	c.checkDominated(place{"bulk"}, c.bulk, nil)
	for i, t := range c.bulk {
		changing := slices.ContainsFunc(c.tools, func(tool *toolRules) bool { return tool.tier >= TierInternalWrite })
		raises := slices.ContainsFunc(c.tools, func(tool *toolRules) bool { return tool.tier >= TierInternalWrite && c.lowest[tool] < t.raiseTo })
		if changing && !raises {
			c.finding(place{"bulk", i}, "raises nothing: all tools that change something are tier %d or higher; take it out", t.raiseTo)
		}
	}
	for _, tool := range c.tools {
		at := place{"integrations", tool.integration(), "tools", string(tool.pattern)}
		var general []threshold
		if tool.tier >= TierInternalWrite {
			general = c.bulk
		}
		c.checkDominated(at.of("bulk"), tool.bulk, general)
		c.checkDominated(at.of("high_value"), tool.highValue, nil)
	}
}

// checkDominated finds thresholds that aren't passed unless another is that
// raises at least as much: one of the same list, or a general one.
func (c *checker) checkDominated(at place, thresholds, general []threshold) {
	for i, t := range thresholds {
		passes := func(other threshold) bool { return other.over <= t.over && other.raiseTo >= t.raiseTo }
		if j := slices.IndexFunc(general, passes); j >= 0 {
			c.finding(at.of(i), "has no effect: bulk raises to tier %d over %s already; take it out", general[j].raiseTo, grouped(general[j].over))
			continue
		}
		for j, other := range thresholds {
			if passes(other) && i != j && (other != t || j < i) {
				c.finding(at.of(i), "has no effect: over %s it is tier %d already; take it out", grouped(other.over), other.raiseTo)
				break
			}
		}
	}
}

// checkNames finds environments, modes, roles and hours that nothing uses.
func (c *checker) checkNames() {
	if !c.usesEnvironments() {
		for _, name := range slices.Sorted(maps.Keys(c.source.Environments)) {
			if name != production {
				c.finding(place{"environments", name}, "nothing in the policy depends on the environment; give it a mode or take it out")
			}
		}
	}
	modes := c.modesWritten()
	for _, name := range slices.Sorted(maps.Keys(c.source.Modes)) {
		if !slices.Contains(modes, name) {
			c.finding(place{"modes", name}, "is used nowhere; name it as the mode of the policy, an environment or an integration, or take it out")
		}
	}
	asked := c.rolesWritten()
	for _, role := range c.roles {
		if !slices.Contains(asked, role.Name) {
			c.finding(place{"roles", role.Name}, "is asked for nowhere; name it under requires, or take it out")
		}
	}
	if c.source.Hours != nil && !slices.ContainsFunc(c.expressions(), func(e *expression) bool {
		return e.uses("in_hours") || e.uses("hour") || e.uses("weekday")
	}) {
		c.finding(place{"hours"}, "no condition uses in_hours, hour or weekday; take it out")
	}
}

// usesEnvironments reports whether something depends on a call's environment.
func (c *checker) usesEnvironments() bool {
	for _, environment := range c.environments {
		if environment.mode != nil {
			return true
		}
	}
	for _, integration := range c.integrations {
		if len(integration.environments) > 0 {
			return true
		}
	}
	inView := c.source.InView != nil && len(c.source.InView.Environments)+len(c.source.InView.Modes) > 0
	return c.firstUse != nil || c.inBand != nil || inView ||
		slices.ContainsFunc(c.rules, func(r writtenRule) bool { return r.environments != nil }) ||
		slices.ContainsFunc(c.expressions(), func(e *expression) bool { return e.uses("environment") })
}

// modesWritten are the names of modes that something is to be ruled by.
func (c *checker) modesWritten() []string {
	names := []string{c.source.Mode}
	for _, environment := range c.source.Environments {
		names = append(names, environment.Mode)
	}
	for _, integration := range c.source.Integrations {
		names = append(names, integration.Mode)
		names = slices.AppendSeq(names, maps.Values(integration.Environments))
	}
	return names
}

// rolesWritten are the names of roles that are asked, or mentioned at least.
func (c *checker) rolesWritten() []string {
	var names []string
	for _, terms := range slices.Concat([]approvalDocument{c.source.Approval}, slices.Collect(maps.Values(c.source.Tiers))) {
		for _, want := range terms.Requires {
			names = append(names, want.Role)
		}
		if terms.Escalate != nil {
			names = append(names, terms.Escalate.To)
		}
	}
	return names
}

// expressions are all expressions of the policy.
func (c *checker) expressions() []*expression {
	var all []*expression
	for _, r := range c.rules {
		all = append(all, r.when)
	}
	for _, tool := range c.tools {
		all = append(all, tool.count, tool.amount, tool.target)
	}
	return slices.DeleteFunc(all, func(e *expression) bool { return e == nil })
}

// checkApprovals finds what approving takes and can't come about.
func (c *checker) checkApprovals() {
	selfAllowed := make(map[string]bool)
	for tier := TierRead; tier <= TierIrreversible; tier++ {
		terms := c.approvals[tier]
		for _, want := range terms.requirement.Roles {
			selfAllowed[want.Role] = selfAllowed[want.Role] || want.AllowSelf
		}
		if !c.asks(tier) {
			continue
		}
		written := c.source.Tiers[tier]
		c.checkSpare(c.termsAt(tier, "requires", written.Requires != nil), terms.requirement)
		c.checkReminders(tier, terms)
		if terms.escalation.To != "" {
			c.checkEscalation(tier, terms)
		}
	}
	for _, role := range c.roles {
		if allowed, asked := selfAllowed[role.Name]; role.SelfApproval && asked && !allowed {
			c.finding(place{"roles", role.Name, "self_approval"}, "has no effect: wherever the role is asked for, self_approval is false; take one of them out")
		}
	}
}

// termsAt is the place of a key of what approving takes at a tier.
func (c *checker) termsAt(tier Tier, key string, own bool) place {
	if own {
		return place{"tiers", tier, key}
	}
	return place{"approval", key}
}

// checkSpare finds a requirement of several people of a role that has no more.
func (c *checker) checkSpare(at place, r Requirement) {
	for i, want := range r.Roles {
		role, _ := c.role(want.Role)
		if len(role.Groups) == 0 && want.Count > 1 && want.Count == len(role.Users) {
			c.finding(at.of(i), "asks for all %d people of %s, so nothing is approved while one is away; add somebody to the role or ask for fewer", want.Count, want.Role)
		}
	}
}

// checkReminders finds reminders that come too late to be sent.
func (c *checker) checkReminders(tier Tier, terms approvalRules) {
	written := c.source.Tiers[tier]
	own := written.RemindAfter != nil
	late := func(after time.Duration) bool { return after >= terms.decideWithin }
	first := slices.IndexFunc(terms.remindAfter, late)
	switch {
	case first < 0:
	case own || written.DecideWithin == nil:
		c.finding(c.termsAt(tier, "remind_after", own).of(first), "never comes: a request expires after %s; remind earlier", spell(terms.decideWithin))
	case first == 0:
		c.finding(place{"tiers", tier, "decide_within"}, "ends before the first reminder of approval, after %s; give the tier its own remind_after", spell(terms.remindAfter[0]))
	}
}

// checkEscalation finds one that comes too late, and one to people who can't
// decide.
func (c *checker) checkEscalation(tier Tier, terms approvalRules) {
	written := c.source.Tiers[tier]
	own := written.Escalate != nil
	switch {
	case terms.escalation.After < terms.decideWithin:
	case own || written.DecideWithin == nil:
		c.finding(c.termsAt(tier, "escalate", own).of("after"), "never comes: a request expires after %s; escalate earlier", spell(terms.decideWithin))
	default:
		c.finding(place{"tiers", tier, "decide_within"}, "ends before approval escalates, after %s; give the tier its own escalate", spell(terms.escalation.After))
	}
	for _, want := range terms.requirement.Roles {
		role, _ := c.role(want.Role)
		if intersect(role.Users, terms.escalation.Users) || intersect(role.Groups, terms.escalation.Groups) {
			return
		}
	}
	if own || written.Requires == nil {
		c.finding(c.termsAt(tier, "escalate", own).of("to"), "mentions %s, whose people can't decide; escalate to a role that is asked for", terms.escalation.To)
	} else {
		c.finding(place{"tiers", tier, "requires"}, "doesn't ask for %s, whom approval escalates to; give the tier its own escalate", terms.escalation.To)
	}
}

func intersect(a, b []string) bool {
	return slices.ContainsFunc(a, func(one string) bool { return slices.Contains(b, one) })
}
