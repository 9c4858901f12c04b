package policy

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"
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

// writtenRule is a rule with its place in the file.
type writtenRule struct {
	*rule
	at place
}

func (c *checker) finding(at place, format string, args ...any) {
	c.found = append(c.found, finding(c.file, at, format, args...))
}

func (c *checker) listRules() {
	byID := make(map[string]*rule)
	for _, index := range []*index{&c.blocks, &c.raises, &c.lowers} {
		for _, r := range index.all() {
			byID[r.id] = r
		}
	}
	for i, written := range c.source.Block {
		c.rules = append(c.rules, writtenRule{byID[written.ID], place{"block", i}})
	}
	for i, written := range c.source.Rules {
		c.rules = append(c.rules, writtenRule{byID[written.ID], place{"rules", i}})
	}
}

func (c *checker) findLowest() {
	c.lowest = make(map[*toolRules]Tier)
	for _, tool := range c.tools {
		c.lowest[tool] = tool.tier
	}
	for _, r := range c.rules {
		if r.kind != lowers {
			continue
		}
		for _, tool := range c.met(r.rule, r.patterns) {
			c.lowest[tool] = min(c.lowest[tool], r.tier)
		}
	}
}

// all are the rules of the index; some may be there more than once.
func (i *index) all() []*rule {
	all := slices.Clone(i.rest)
	for _, rules := range i.exact {
		all = append(all, rules...)
	}
	for _, rules := range i.integrations {
		all = append(all, rules...)
	}
	return all
}

func (c *checker) checkRules() {
	for i, r := range c.rules {
		switch r.kind {
		case raises:
			c.checkRaising(r)
		case lowers:
			c.checkLowering(r)
		}
		c.checkMeasured(r)
		c.checkAgents(r)
		if r.when != nil {
			c.checkCondition(r.at.of("when"), r.when)
		}
		c.checkShadowed(i, r)
	}
}

// checkRaising finds a rule that raises to no higher tier than there is.
func (c *checker) checkRaising(r writtenRule) {
	met := c.met(r.rule, r.patterns)
	unlisted := c.mayBeUnlisted(r.rule)
	switch {
	case slices.ContainsFunc(met, func(tool *toolRules) bool { return c.lowest[tool] < r.tier }):
	case unlisted && r.tier > TierDestructive && c.unclassified != Deny:
	case len(met) > 0:
		c.finding(r.at, "%s raises nothing: all that it is about is tier %d or higher; raise it further or take the rule out", r.id, r.tier)
	case slices.ContainsFunc(r.patterns, func(p pattern) bool { return !p.isExact() }) || len(r.patterns) == 0:
		// It waits for tools that aren't there yet.
	case c.unclassified == Deny:
		c.finding(r.at, "%s raises nothing: the policy doesn't list these actions, so it denies them; check their names or list them", r.id)
	default:
		c.finding(r.at, "%s raises nothing: the policy doesn't list these actions, so they are tier %d; check their names or list them", r.id, TierDestructive)
	}
}

// checkLowering finds a rule that lowers nothing.
func (c *checker) checkLowering(r writtenRule) {
	lists := false
	highest := Tier(0)
	for i, p := range r.patterns {
		met := c.met(r.rule, []pattern{p})
		if len(met) == 0 {
			c.finding(r.at.of("actions", i), "the policy lists no tool that %s is about, and what isn't listed is never lowered; check the name", p)
		}
		for _, tool := range met {
			lists = true
			highest = max(highest, tool.tier)
		}
	}
	if lists && highest <= r.tier {
		c.finding(r.at, "%s lowers nothing: all that it is about is tier %d or lower; take the rule out", r.id, highest)
	}
}

// checkMeasured finds a bound on what no expression works out, so that it never
// holds.
func (c *checker) checkMeasured(r writtenRule) {
	for _, bound := range []struct {
		key      string
		is       bool
		what     string
		measures func(*toolRules) bool
	}{
		{"amount_over", r.amountOver != nil, "amount", func(tool *toolRules) bool { return tool.amount != nil }},
		{"amount_at_most", r.amountAtMost != nil, "amount", func(tool *toolRules) bool { return tool.amount != nil }},
		{"count_at_most", r.countAtMost != nil, "count", func(tool *toolRules) bool { return tool.count != nil }},
	} {
		if !bound.is {
			continue
		}
		if len(r.patterns) == 0 && !slices.ContainsFunc(c.tools, bound.measures) {
			c.finding(r.at.of(bound.key), "no tool has an expression for its %s, so %s never holds; add one", bound.what, r.id)
		}
		for i, p := range r.patterns {
			met := c.met(r.rule, []pattern{p})
			if len(met) == 0 && r.kind == lowers || slices.ContainsFunc(met, bound.measures) {
				continue
			}
			c.finding(r.at.of("actions", i), "no tool that %s is about has an expression for its %s, so %s never holds for it; add one", p, bound.what, r.id)
		}
	}
}

func (c *checker) checkAgents(r writtenRule) {
	if len(c.owners) == 0 {
		return
	}
	for i, agent := range r.agents {
		if _, ok := c.owners[agent]; !ok {
			c.finding(r.at.of("agents", i), "%q isn't under agents; check the name or add it there", agent)
		}
	}
}

// checkShadowed finds a rule that holds only where another does that does at
// least as much.
func (c *checker) checkShadowed(i int, r writtenRule) {
	for j, other := range c.rules {
		if i == j || !does(other.rule, r.rule) || !c.asksNoMore(other.rule, r.rule) {
			continue
		}
		if j > i && does(r.rule, other.rule) && c.asksNoMore(r.rule, other.rule) {
			continue // they are the same, which is said of the second
		}
		switch other.kind {
		case blocks:
			c.finding(r.at, "%s has no effect: %s denies all that it is about; take one of them out", r.id, other.id)
		case raises:
			c.finding(r.at, "%s has no effect: %s raises all that it is about to tier %d; take one of them out", r.id, other.id, other.tier)
		case lowers:
			c.finding(r.at, "%s has no effect: %s lowers all that it is about to tier %d; take one of them out", r.id, other.id, other.tier)
		}
		return
	}
}

// does reports whether what one rule does makes what another does pointless.
func does(one, other *rule) bool {
	switch {
	case one.kind == blocks:
		return true
	case one.kind != other.kind:
		return false
	case one.kind == raises:
		return one.tier >= other.tier
	default:
		return one.tier <= other.tier
	}
}

// asksNoMore reports whether one rule holds certainly wherever another does.
func (c *checker) asksNoMore(one, other *rule) bool {
	if one.when != nil && (other.when == nil || one.when.source != other.when.source) {
		return false
	}
	return c.covers(one, other) && c.holdsIn(one, other) && saidBy(one.agents, other.agents) &&
		passedWith(one.countOver, other.countOver, -1) && passedWith(one.amountOver, other.amountOver, -1) &&
		passedWith(one.countAtMost, other.countAtMost, 1) && passedWith(one.amountAtMost, other.amountAtMost, 1)
}

// covers reports whether one rule is about all that another is about.
func (c *checker) covers(one, other *rule) bool {
	if len(one.patterns) == 0 || len(other.patterns) == 0 {
		return len(one.patterns) == 0
	}
	return !slices.ContainsFunc(other.patterns, func(p pattern) bool {
		p = pattern(one.name(string(p)))
		return !slices.ContainsFunc(one.patterns, func(covering pattern) bool { return covering.covers(p) })
	})
}

// holdsIn reports whether one rule holds in all environments in which another
// does.
func (c *checker) holdsIn(one, other *rule) bool {
	if one.environments == nil {
		return true
	}
	for name := range c.environments {
		if !one.environments[name] && (other.environments == nil || other.environments[name]) {
			return false
		}
	}
	return true
}

// saidBy reports whether the agents of one rule, where none are all, include
// those of another.
func saidBy(one, other []string) bool {
	if len(one) == 0 || len(other) == 0 {
		return len(one) == 0
	}
	return !slices.ContainsFunc(other, func(agent string) bool { return !slices.Contains(one, agent) })
}

// passedWith reports whether what passes a bound passes another one, too. The
// looser bounds are the lower ones if direction is -1 and the higher ones if it
// is 1; none is looser than any.
func passedWith(bound, other *float64, direction int) bool {
	return bound == nil || other != nil && cmp.Compare(*bound, *other)*direction >= 0
}

// met are the tools that a rule may be about by some of its patterns, or by
// none for all.
func (c *checker) met(r *rule, patterns []pattern) []*toolRules {
	if len(patterns) == 0 {
		return c.tools
	}
	var met []*toolRules
	for _, p := range patterns {
		if tool, ok := c.exact[string(p)]; ok && p.isExact() {
			met = append(met, tool)
			continue
		}
		for _, tool := range c.tools {
			if overlap(string(p), r.name(tool.id)) {
				met = append(met, tool)
			}
		}
	}
	return met
}

// mayBeUnlisted reports whether a rule may be about an action that no stanza
// lists.
func (c *checker) mayBeUnlisted(r *rule) bool {
	if len(r.patterns) == 0 {
		return true
	}
	return slices.ContainsFunc(r.patterns, func(p pattern) bool {
		return !slices.ContainsFunc(c.tools, func(tool *toolRules) bool { return pattern(r.name(tool.id)).covers(p) })
	})
}

// overlap reports whether some name fits both patterns.
func overlap(a, b string) bool {
	for len(a) > 0 && len(b) > 0 && a[0] != '*' && b[0] != '*' {
		if a[0] != b[0] {
			return false
		}
		a, b = a[1:], b[1:]
	}
	// reach[j] says whether what is left of a from i on and of b from j on
	// overlap.
	reach := make([]bool, len(b)+1)
	for i := len(a); i >= 0; i-- {
		next := slices.Clone(reach)
		for j := len(b); j >= 0; j-- {
			switch {
			case i == len(a) && j == len(b):
				reach[j] = true
			case i < len(a) && a[i] == '*':
				reach[j] = next[j] || j < len(b) && reach[j+1]
			case j < len(b) && b[j] == '*':
				reach[j] = reach[j+1] || i < len(a) && next[j]
			default:
				reach[j] = i < len(a) && j < len(b) && a[i] == b[j] && next[j+1]
			}
		}
	}
	return reach[0]
}

// checkCondition finds a condition that doesn't depend on the call, and
// comparisons with what a variable never is.
func (c *checker) checkCondition(at place, when *expression) {
	if always, err := when.condition(cel.NoVars()); err == nil && always {
		c.finding(at, "is always true; leave it out")
	} else if err == nil {
		c.finding(at, "is never true, so the rule has no effect; take the rule out")
	}
	root := ast.NavigateAST(when.checked.NativeRep())
	for _, call := range ast.MatchDescendants(root, ast.KindMatcher(ast.CallKind)) {
		switch call.AsCall().FunctionName() {
		case operators.Equals, operators.NotEquals, operators.In:
		default:
			continue
		}
		sides := call.AsCall().Args()
		c.checkCompared(at, sides[0], sides[1])
		c.checkCompared(at, sides[1], sides[0])
	}
}

// checkCompared finds what a variable is compared with and never is.
func (c *checker) checkCompared(at place, variable, with ast.Expr) {
	if variable.Kind() != ast.IdentKind {
		return
	}
	for _, text := range texts(with) {
		switch _, known := c.environments[text]; {
		case variable.AsIdent() == "environment" && !known:
			there := strings.Join(slices.Sorted(maps.Keys(c.environments)), ", ")
			if name, ok := c.named[strings.ToLower(text)]; ok {
				c.finding(at, "environment is never %q, which is called %s here; there are %s", text, name, there)
			} else {
				c.finding(at, "environment is never %q; there are %s", text, there)
			}
		case variable.AsIdent() == "weekday" && !slices.Contains(weekdays[:], text):
			c.finding(at, "weekday is never %q; it is one of mon, tue, wed, thu, fri, sat and sun", text)
		case variable.AsIdent() == "agent" && len(c.owners) > 0 && c.owners[text] == "":
			c.finding(at, "agent %q isn't under agents; check the name or add it there", text)
		}
	}
}

// texts are the strings of a literal, or of a list of them.
func texts(expr ast.Expr) []string {
	switch expr.Kind() {
	case ast.LiteralKind:
		if text, ok := expr.AsLiteral().(types.String); ok {
			return []string{string(text)}
		}
	case ast.ListKind:
		var all []string
		for _, element := range expr.AsList().Elements() {
			if element.Kind() == ast.LiteralKind {
				all = append(all, texts(element)...)
			}
		}
		return all
	}
	return nil
}

// checkStanzas finds tools whose stanza changes nothing, and amounts that show
// what is redacted.
func (c *checker) checkStanzas() {
	for _, tool := range c.tools {
		at := place{"integrations", tool.integration(), "tools", string(tool.pattern)}
		if other := c.makesPointless(tool); other != nil {
			c.finding(at, "has no effect: %s says tier %d for all of it; take it out", other.id, other.tier)
		}
		if tool.amount == nil {
			continue
		}
		hidden := c.redactions.with(Redactions{Paths: tool.redact})
		for _, path := range payloadReads(tool.amount.checked, tool.amount.checked.NativeRep().Expr()) {
			if len(path) > 0 && hidden.Hide(path) {
				c.finding(at.of("amount"), "shows %s, which is redacted, as the amount; redact it no longer, or leave amount out", pointerTo(path))
			}
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
	return t.count == nil && t.amount == nil && len(t.bulk) == 0 && len(t.highValue) == 0 && len(t.redact) == 0
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
	return c.firstUse != nil ||
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
		all = append(all, tool.count, tool.amount)
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

// secrets are what doesn't belong in a policy, by what it is called.
var secrets = []struct {
	name    string
	pattern *regexp.Regexp
}{
	{"a Slack token", regexp.MustCompile(`\b(xox[abceoprs]|xapp)-[A-Za-z0-9-]{10,}`)},
	{"a Slack webhook", regexp.MustCompile(`(https://)?hooks\.slack\.com/(services|workflows|triggers)/[A-Z0-9]{6,}/[A-Za-z0-9/]{8,}`)},
	{"a Stripe key", regexp.MustCompile(`\b([sr]k_(live|test)|whsec)_[A-Za-z0-9]{10,}`)},
	{"a GitHub token", regexp.MustCompile(`\b(gh[pousr]_[A-Za-z0-9]{16,}|github_pat_[A-Za-z0-9_]{16,})`)},
	{"a GitLab token", regexp.MustCompile(`\bglpat-[A-Za-z0-9_-]{16,}`)},
	{"an AWS key", regexp.MustCompile(`\b(AKIA|ASIA)[A-Z0-9]{16}\b`)},
	{"a Google key", regexp.MustCompile(`\bAIza[A-Za-z0-9_-]{35}`)},
	{"an API key", regexp.MustCompile(`\bsk-[A-Za-z0-9_-]{8,}[0-9][A-Za-z0-9_-]{8,}`)},
	{"a private key", regexp.MustCompile(`-----BEGIN [A-Z ]*PRIVATE KEY-----[\s#]*[A-Za-z0-9+/=]{20,}`)},
	{"a JSON Web Token", regexp.MustCompile(`\beyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*`)},
	{"a bearer token", regexp.MustCompile(`(?i)\bbearer\s+[A-Za-z0-9._~+/-]{6,}[0-9][A-Za-z0-9._~+/-]{6,}`)},
	{"a password in an address", regexp.MustCompile(`[A-Za-z][A-Za-z0-9+.-]*://[^\s/:@"']*:[^\s/@"'$<{*]+@`)},
}

// checkSecrets finds what looks like a secret, also in comments. No finding
// repeats it.
func (c *checker) checkSecrets() {
	text := c.text()
	for _, secret := range secrets {
		for _, at := range secret.pattern.FindAllStringIndex(text, -1) {
			for i, other := range c.found {
				c.found[i].Text = strings.ReplaceAll(other.Text, text[at[0]:at[1]], "…")
			}
			before := text[:at[0]]
			line := before[strings.LastIndexByte(before, '\n')+1:]
			c.found = append(c.found, Finding{
				Line:   strings.Count(before, "\n") + 1,
				Column: utf8.RuneCountInString(line) + 1,
				Text:   fmt.Sprintf("looks like %s; whoever can read the policy could use it: take it out, and replace it where it is valid", secret.name),
			})
		}
	}
}

// text is the policy's source, put together from the file's tokens.
func (c *checker) text() string {
	var text strings.Builder
	token := c.file.Docs[0].Body.GetToken()
	for token != nil && token.Prev != nil {
		token = token.Prev
	}
	for ; token != nil; token = token.Next {
		text.WriteString(token.Origin)
	}
	return text.String()
}
