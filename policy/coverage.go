package policy

import (
	"cmp"
	"slices"
	"strings"
)

// Coverage says what of a policy its cases exercise.
type Coverage struct {
	Items []CoveredItem // tools, built-in thresholds, blocks and rules, in this order
}

// CoveredItem is one thing of a policy that cases can exercise. It is covered
// if some case makes it fire and another, about an action that it is about,
// doesn't: a condition that is always met would pass the first alone.
type CoveredItem struct {
	Kind string // "tool", "built-in", "block" or "rule"
	ID   string
	Line int // where it stands in the policy

	Fired    bool // or, for a tool, classified a call
	NotFired bool
	// Always means that it fires for every call that it is about, so that
	// nothing needs to show the contrary.
	Always bool
}

// Covered reports whether the cases show all of it.
func (c CoveredItem) Covered() bool { return c.Fired && (c.NotFired || c.Always) }

// Missing says in words what no case shows; empty if nothing.
func (c CoveredItem) Missing() string {
	switch {
	case c.Covered():
		return ""
	case c.Kind == kindTool:
		return "no case is classified by it"
	case c.Fired:
		return "no case shows it not firing"
	case c.NotFired || c.Always:
		return "no case makes it fire"
	default:
		return "no case is about it"
	}
}

const (
	kindTool    = "tool"
	kindBuiltIn = "built-in"
	kindBlock   = "block"
	kindRule    = "rule"
)

// Covered is how many items are covered.
func (c Coverage) Covered() int { return len(c.Items) - len(c.Uncovered()) }

// Uncovered are the items that aren't covered.
func (c Coverage) Uncovered() []CoveredItem {
	var missing []CoveredItem
	for _, item := range c.Items {
		if !item.Covered() {
			missing = append(missing, item)
		}
	}
	return missing
}

// coverage notes what cases exercise.
type coverage struct {
	policy *Policy
	items  []CoveredItem
	at     map[string]int // by the item's id, which no two items share
}

// coverage lists all that cases can exercise.
func (p *Policy) coverage() *coverage {
	c := &coverage{policy: p, at: make(map[string]int)}
	c.listTools()
	if len(p.bulk) > 0 {
		c.item(kindBuiltIn, bulkID, place{"bulk"}, false)
	}
	for _, tool := range p.stanzas() {
		at := place{"integrations", tool.integration(), "tools", string(tool.pattern)}
		if len(tool.bulk) > 0 {
			c.item(kindBuiltIn, bulkID, at.of("bulk"), false)
		}
		if len(tool.highValue) > 0 {
			c.item(kindBuiltIn, highValueID, at.of("high_value"), false)
		}
	}
	if p.firstUse != nil {
		c.item(kindBuiltIn, firstUseID, place{"first_use"}, false)
	}
	for i, written := range p.source.Block {
		c.item(kindBlock, written.ID, place{"block", i}, p.always(written))
	}
	for i, written := range p.source.Rules {
		c.item(kindRule, written.ID, place{"rules", i}, p.always(written))
	}
	return c
}

// listTools lists the stanzas of tools in the order of the file.
func (c *coverage) listTools() {
	for _, tool := range c.policy.stanzas() {
		c.item(kindTool, tool.id, place{"integrations", tool.integration(), "tools", string(tool.pattern)}, true)
	}
	slices.SortStableFunc(c.items, func(a, b CoveredItem) int { return cmp.Compare(a.Line, b.Line) })
	for i, item := range c.items {
		c.at[item.ID] = i
	}
}

// item lists one more thing to cover, unless it is listed already.
func (c *coverage) item(kind, id string, at place, always bool) {
	if _, listed := c.at[id]; listed {
		return
	}
	line, _ := lineColumn(locate(c.policy.file, at))
	c.at[id] = len(c.items)
	c.items = append(c.items, CoveredItem{Kind: kind, ID: id, Line: line, Always: always})
}

// stanzas are all stanzas of tools, by id.
func (p *Policy) stanzas() []*toolRules {
	var all []*toolRules
	for _, tool := range p.exact {
		all = append(all, tool)
	}
	for _, integration := range p.integrations {
		all = append(all, integration.patterns...)
	}
	slices.SortFunc(all, func(a, b *toolRules) int { return cmp.Compare(a.id, b.id) })
	return all
}

func (t *toolRules) integration() string {
	integration, _ := integrationOf(t.id)
	return integration
}

// always reports whether a rule asks for nothing but its actions.
func (p *Policy) always(r ruleDocument) bool {
	everywhere := len(r.Environments) == 0 || len(distinct(r.Environments)) == len(p.environments)
	unbounded := r.CountOver == nil && r.CountAtMost == nil && r.AmountOver == nil && r.AmountAtMost == nil
	return everywhere && unbounded && len(r.Agents) == 0 && strings.TrimSpace(r.When) == ""
}

// add notes what one call exercises.
func (c *coverage) add(call Call, x Explanation) {
	p := c.policy
	class := p.classify(call.Action, strings.ToLower(call.Action))
	if call.Unpinned {
		class = class.unpinned()
	}
	bulk := len(p.bulk) > 0 && class.tier >= TierInternalWrite
	highValue := false
	for _, tool := range class.tools {
		if class.known {
			c.note(tool.id, true)
		}
		bulk = bulk || len(tool.bulk) > 0
		highValue = highValue || len(tool.highValue) > 0
	}
	fired := func(id string) bool {
		return slices.ContainsFunc(x.Ruling.Rules[1:], func(rule FiredRule) bool { return rule.ID == id })
	}
	if bulk {
		c.note(bulkID, fired(bulkID))
	}
	if highValue {
		c.note(highValueID, fired(highValueID))
	}
	if p.firstUse != nil && p.firstUse.environments[x.Ruling.Environment] {
		c.note(firstUseID, fired(firstUseID))
	}
	for _, rule := range x.Rules {
		c.note(rule.ID, rule.Fired)
	}
}

func (c *coverage) note(id string, fired bool) {
	at, listed := c.at[id]
	if !listed {
		return
	}
	if fired {
		c.items[at].Fired = true
	} else {
		c.items[at].NotFired = true
	}
}
