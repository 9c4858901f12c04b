package policy

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"
)

// writtenRule is a rule with its place in the file.
type writtenRule struct {
	*rule
	at place
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
