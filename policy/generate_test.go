package policy_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/countersign/countersign/policy"
)

// draft is a policy that is drawn, in pieces whose order in the file doesn't
// matter.
type draft struct {
	mode         string
	sections     []string // whole lines of other keys
	environments []string
	integrations []integrationDraft
	blocks       []ruleDraft
	rules        []ruleDraft
}

type integrationDraft struct {
	name, mode   string
	environments []string
	tools        []string
}

type ruleDraft struct {
	id, does string // what it does: "raise_to: 4", "lower_to: 2", or nothing for a block
	when     string // empty for none
	rest     string // other keys, each with a comma before it
}

func (r ruleDraft) String() string {
	text := "{id: " + r.id + ", why: Because." + r.rest
	if r.does != "" {
		text += ", " + r.does
	}
	if r.when != "" {
		text += fmt.Sprintf(", when: %q", r.when)
	}
	return text + "}"
}

// source is the policy file.
func (d draft) source() string {
	var b strings.Builder
	fmt.Fprintf(&b, "version: 1\nmode: %s\n", d.mode)
	b.WriteString("roles: {a: {users: [U0ADA], groups: [S0A]}, b: {groups: [S0B]}, me: {groups: [S0ME], self_approval: true}}\n")
	for _, section := range d.sections {
		b.WriteString(section + "\n")
	}
	list := func(key string, lines []string) {
		if len(lines) > 0 {
			b.WriteString(key + ":\n  " + strings.Join(lines, "\n  ") + "\n")
		}
	}
	list("environments", d.environments)
	var integrations, blocks, rules []string
	for _, i := range d.integrations {
		line := i.name + ": {"
		if i.mode != "" {
			line += "mode: " + i.mode + ", "
		}
		line += "environments: {" + strings.Join(i.environments, ", ") + "}, tools: {" + strings.Join(i.tools, ", ") + "}}"
		integrations = append(integrations, line)
	}
	for _, r := range d.blocks {
		blocks = append(blocks, "- "+r.String())
	}
	for _, r := range d.rules {
		rules = append(rules, "- "+r.String())
	}
	list("integrations", integrations)
	list("block", blocks)
	list("rules", rules)
	return b.String()
}

// parse makes a policy of the draft, which must be accepted.
func (d draft) parse(t *rapid.T) *policy.Policy {
	p, err := policy.Parse([]byte(d.source()))
	if err != nil {
		t.Fatalf("%v\n%s", err, d.source())
	}
	return p
}

// shuffled is the same policy in another order.
func (d draft) shuffled(t *rapid.T) draft {
	d.sections = shuffle(t, d.sections)
	d.environments = shuffle(t, d.environments)
	d.integrations = shuffle(t, d.integrations)
	for i := range d.integrations {
		d.integrations[i].environments = shuffle(t, d.integrations[i].environments)
		d.integrations[i].tools = shuffle(t, d.integrations[i].tools)
	}
	d.blocks = shuffle(t, d.blocks)
	d.rules = shuffle(t, d.rules)
	return d
}

func shuffle[T any](t *rapid.T, list []T) []T {
	if len(list) < 2 {
		return slices.Clone(list)
	}
	return rapid.Permutation(list).Draw(t, "order")
}

// with is the draft with another rule or block at some place.
func (d draft) with(t *rapid.T, r ruleDraft) draft {
	if r.does == "" {
		d.blocks = slices.Insert(slices.Clone(d.blocks), rapid.IntRange(0, len(d.blocks)).Draw(t, "at"), r)
	} else {
		d.rules = slices.Insert(slices.Clone(d.rules), rapid.IntRange(0, len(d.rules)).Draw(t, "at"), r)
	}
	return d
}

func sample[T any](t *rapid.T, label string, of ...T) T {
	return rapid.SampledFrom(of).Draw(t, label)
}

func chance(t *rapid.T, label string) bool { return rapid.Bool().Draw(t, label) }

var (
	effectNames  = []string{"allow", "require_approval", "deny"}
	modeNames    = []string{"open", "cautious", "strict", "readonly", "own"}
	toolPatterns = []string{"get", "get_all", "del", "send", "'*'", "get*", "'*_all'", "d*l"}
	rulePatterns = []string{"'*'", "crm.*", "crm.get", "'*.del*'", "CRM.Get", "c*", "pay.send", "'*all'", "sweep", "crm.d*, pay.get_all"}

	// Conditions that are met or not, and fail for some calls. None is about the
	// list of ids or the amount, which grow in the properties.
	conditions = []string{
		`args.to == "x"`, `args.n > 2`, `args.flag`, `has(args.to)`, `has(args.to) && args.to.startsWith("x")`,
		`!(args.n in [1, 2])`, `args.l.exists(i, i > 2)`, `args.l == [1, 2]`,
		`environment == "staging"`, `agent == "bot"`, `owner == ""`, `tier >= 3`, `tool.endsWith("all")`,
		`in_hours`, `!in_hours`, `hour > 12`, `weekday == "mon"`, `true`, `false`,
		`first_use_of_agent == first_use_of_agent`,
	}
	// Conditions that always fail.
	failing = []string{
		`args.missing.x == 1`, `1 / (size(action) - size(action)) == 1`, `args.missing`, `"x" > args.missing`,
	}
	// Conditions that only rules that raise or block may have.
	raisingOnly = []string{`irreversible`, `target == "x"`, `target.startsWith("x") || args.flag`, `first_use_of_tool`, `first_use_of_integration || first_use_of_agent`}
)

func drawDraft(t *rapid.T) draft {
	d := draft{mode: sample(t, "mode", modeNames...)}
	d.sections = append(d.sections, drawOwnMode(t), drawApprovals(t), "hours: {zone: Europe/Paris, days: [mon, tue, wed], from: '07:00', to: '20:00'}")
	for _, section := range []string{
		"unclassified: " + sample(t, "unclassified", "require_approval", "deny"),
		fmt.Sprintf("bulk: [{over: %d, raise_to: %d}]", sample(t, "over", 0, 3, 8), sample(t, "to", 3, 4, 5)),
		fmt.Sprintf("first_use: {of: [%s], environments: [%s], raise_to: %d}", sample(t, "of", "tool", "integration", "agent", "tool, integration, agent"), sample(t, "environments", "production", "staging", "production, test"), sample(t, "to", 1, 3, 4, 5)),
		"agents: {bot: {owner: U0GRACE}}",
		"redact: {keys: [token], paths: [/a]}",
		fmt.Sprintf("in_band: {tiers: [%s], environments: [%s], modes: [%s]}", sample(t, "tiers", "1, 2, 3", "1, 2, 3", "1, 2", "1"), sample(t, "environments", "production, staging, test", "staging, test", "production"), sample(t, "modes", "strict, own", "strict", "")),
		fmt.Sprintf("in_view: {tiers: [%s]%s, modes: [%s]}", sample(t, "tiers", "1, 2, 3, 4, 5", "1, 2, 3, 4", "1, 2, 3", "1, 2", "1", ""), sample(t, "environments", "", ", environments: [staging, test]", ", environments: [production]"), sample(t, "modes", "strict, own", "strict", "")),
	} {
		if chance(t, "section") {
			d.sections = append(d.sections, section)
		}
	}
	mode := func() string {
		if chance(t, "with a mode") {
			return sample(t, "mode", modeNames...)
		}
		return ""
	}
	d.environments = []string{"staging: {names: [stage, s1]" + prefixed(", mode: ", mode()) + "}", "test: {" + prefixed("mode: ", mode()) + "}"}
	if chance(t, "production") {
		d.environments = append(d.environments, "production: {names: [live]"+prefixed(", mode: ", mode())+"}")
	}
	for _, name := range []string{"crm", "pay"} {
		i := integrationDraft{name: name, mode: mode()}
		for _, environment := range []string{"staging", "production"} {
			if m := mode(); m != "" {
				i.environments = append(i.environments, environment+": "+m)
			}
		}
		for _, pattern := range rapid.SliceOfNDistinct(rapid.SampledFrom(toolPatterns), 0, 5, rapid.ID).Draw(t, "tools") {
			i.tools = append(i.tools, drawTool(t, pattern))
		}
		d.integrations = append(d.integrations, i)
	}
	if sample(t, "left to clients", false, false, true) {
		// Much of it is, so that it matters where that ends.
		inView := fmt.Sprintf("in_view: {tiers: [1, 2, 3, %s], modes: [%s]}", sample(t, "tiers", "4, 5", "4", ""), sample(t, "modes", "strict", ""))
		inBand := fmt.Sprintf("in_band: {tiers: [1, 2, 3], environments: [production, staging, test], modes: [%s]}", sample(t, "modes", "strict", ""))
		d.sections = append(slices.DeleteFunc(d.sections, func(section string) bool {
			return strings.HasPrefix(section, "in_band:") || strings.HasPrefix(section, "in_view:") || strings.HasPrefix(section, "first_use:")
		}), inBand, inView)
		d.mode = sample(t, "mode", "strict", "own", "cautious")
		for i := range d.integrations {
			d.integrations[i].mode, d.integrations[i].environments = "", nil
			d.integrations[i].tools = []string{fmt.Sprintf("'*': {tier: %d, target: args.to}", sample(t, "tier", 2, 3)), drawTool(t, "get")}
		}
	}
	for n := range rapid.IntRange(0, 2).Draw(t, "blocks") {
		d.blocks = append(d.blocks, drawRule(t, fmt.Sprint("b", n), "block"))
	}
	if chance(t, "everywhere") {
		// Rules of one kind that fire for much, so that they meet.
		does := sample(t, "does", "lower_to", "raise_to")
		for n := range rapid.IntRange(1, 3).Draw(t, "rules") {
			d.rules = append(d.rules, ruleDraft{id: fmt.Sprint("e", n), does: fmt.Sprintf("%s: %d", does, rapid.IntRange(1, 4).Draw(t, "to")), rest: ", actions: ['*']"})
		}
	}
	for n := range rapid.IntRange(0, 4).Draw(t, "rules") {
		d.rules = append(d.rules, drawRule(t, fmt.Sprint("r", n), sample(t, "kind", "lower", "raise")))
	}
	return d
}

func prefixed(prefix, text string) string {
	if text == "" {
		return ""
	}
	return prefix + text
}

// drawOwnMode draws a mode in which no higher tier is weaker.
func drawOwnMode(t *rapid.T) string {
	text, least := "modes: {own: {", 0
	for tier := 1; tier <= 5; tier++ {
		least = rapid.IntRange(least, 2).Draw(t, "effect")
		text += fmt.Sprintf("%d: %s, ", tier, effectNames[least])
	}
	return text + "}}"
}

// drawApprovals draws what approving takes, which is never less for a higher
// tier.
func drawApprovals(t *rapid.T) string {
	people, reason := 1, false
	terms := func() string {
		people = rapid.IntRange(people, 4).Draw(t, "people")
		reason = reason || sample(t, "reason", false, false, false, true)
		requires := fmt.Sprintf("{role: %s, count: %d}", sample(t, "role", "a", "b", "me"), people)
		if people > 1 && chance(t, "two roles") {
			requires = fmt.Sprintf("{role: a, count: %d}, {role: b}", people-1)
		}
		return fmt.Sprintf("{requires: [%s], reason_required: %t, decide_within: %s}", requires, reason, sample(t, "within", "10m", "1h"))
	}
	text := "approval: " + terms() + "\n"
	if chance(t, "by tier") {
		text += "tiers:\n"
		for tier := 2; tier <= 5; tier++ {
			text += fmt.Sprintf("  %d: %s\n", tier, terms())
		}
	}
	return text
}

func drawTool(t *rapid.T, pattern string) string {
	tier := sample(t, "tier", 4, 1, 3, 5, 2)
	text := fmt.Sprintf("%s: {tier: %d", pattern, tier)
	thresholds := func(key string) {
		if tier < 5 && chance(t, key) {
			text += fmt.Sprintf(", %s: [{over: %v, raise_to: %d}]", key, sample(t, "over", 0, 1, 3.5, 8, 1000), rapid.IntRange(tier+1, 5).Draw(t, "to"))
		}
	}
	if count := sample(t, "count", "", "size(args.ids)", "size(args.ids) * 2", "args.n", "size(args.missing)"); count != "" {
		text += ", count: " + count
	}
	thresholds("bulk")
	if amount := sample(t, "amount", "", "double(args.amount)", "args.amount", "args.missing"); amount != "" {
		text += ", amount: " + amount
		thresholds("high_value")
	}
	if target := sample(t, "target", "", "", "args.to", `args.to + "x"`, "args.missing", "tool", "string(args.n)"); target != "" {
		text += ", target: " + target
	}
	if key := sample(t, "idempotency", "", "", "key", "n"); key != "" {
		text += ", idempotency: " + key
	}
	if chance(t, "redact") {
		text += ", redact: [/" + sample(t, "path", "to", "n", "ids/*") + "]"
	}
	return text + "}"
}

// drawRule draws a rule to "raise" or to "lower", or a "block".
func drawRule(t *rapid.T, id, kind string) ruleDraft {
	r := ruleDraft{id: id}
	switch {
	case kind == "lower":
		r.rest += ", actions: [" + sample(t, "actions", "crm.*", "'*'", "pay.*, crm.d*", "crm.get, crm.send, pay.send", "CRM.*") + "]"
	case kind == "block" || chance(t, "named"):
		r.rest += ", actions: [" + sample(t, "actions", rulePatterns...) + "]"
	}
	if sample(t, "within environments", false, false, true) {
		r.rest += ", environments: [" + sample(t, "environments", "staging", "production", "staging, test") + "]"
	}
	if sample(t, "of agents", false, false, true) {
		r.rest += ", agents: [" + sample(t, "agents", "bot", "cat, bot") + "]"
	}
	bounds := []string{"", "count_over", "amount_over"}
	switch kind {
	case "raise":
		r.does = fmt.Sprintf("raise_to: %d", rapid.IntRange(1, 5).Draw(t, "to"))
	case "lower":
		r.does = fmt.Sprintf("lower_to: %d", rapid.IntRange(1, 4).Draw(t, "to"))
		bounds = []string{"", "count_at_most", "amount_at_most"}
	}
	if bound := sample(t, "bound", bounds...); bound != "" {
		r.rest += fmt.Sprintf(", %s: %v", bound, sample(t, "at", 0, 2, 5.5, 1000))
	}
	if sample(t, "conditional", false, false, true) {
		some := slices.Concat(conditions, failing)
		if kind != "lower" {
			some = slices.Concat(some, raisingOnly)
		}
		r.when = sample(t, "when", some...)
	}
	return r
}

// arguments are a payload that is drawn, member by member as JSON; a member
// that is empty isn't there.
type arguments struct {
	to, n, flag, amount string
	ids, l              int    // how many elements; no list if negative
	broken              string // is the payload instead
}

func (a arguments) payload() []byte {
	if a.broken != "" {
		return []byte(a.broken)
	}
	var members []string
	add := func(key, value string) {
		if value != "" {
			members = append(members, fmt.Sprintf("%q: %s", key, value))
		}
	}
	list := func(length int) string {
		if length < 0 {
			return ""
		}
		elements := make([]string, length)
		for i := range elements {
			elements[i] = fmt.Sprint(i + 1)
		}
		return "[" + strings.Join(elements, ", ") + "]"
	}
	add("to", a.to)
	add("n", a.n)
	add("flag", a.flag)
	add("amount", a.amount)
	add("ids", list(a.ids))
	add("l", list(a.l))
	return []byte("{" + strings.Join(members, ", ") + "}")
}

func drawArguments(t *rapid.T) arguments {
	return arguments{
		to:     sample(t, "to", "", `"x"`, `"y"`, "5", "null"),
		n:      sample(t, "n", "", "0", "1", "3", "7.5", "1e400", "9007199254740993", `"3"`),
		flag:   sample(t, "flag", "", "true", "false", "0"),
		amount: sample(t, "amount", "", "0", "2", "5.5", "1000.01", `"7"`, `"seven"`, "-1", "1e400"),
		ids:    rapid.IntRange(-1, 12).Draw(t, "ids"),
		l:      rapid.IntRange(-1, 4).Draw(t, "l"),
		broken: sample(t, "broken", "", "", "", "", "", "", "", "{", "null", "[1, 2, 3, 4]", `"x"`, " "),
	}
}

var (
	actions = []string{"crm.get", "crm.get_all", "crm.del", "crm.send", "crm.del_all", "pay.get", "pay.get_all", "pay.send", "pay.delall"}
	// Actions that no stanza of a draft classifies.
	unknownActions = []string{"", "crm", "get", "other.get", "CRM.get", "Crm.del_all", "crm .get", "crm.get\n", "crm.g\u0435t", "crm.get\xff", "c\u0433m.get", "sweep", "crm.*", ".get"}

	environments        = []string{"", "production", "live", "LIVE", "staging", "Stage", "s1", "test", "nowhere"}
	unknownEnvironments = []string{"", "nowhere", "prod", "staging ", "st\u0430ging", "production2", "\xff", "Production"}

	moments = []time.Time{at("2026-01-05T05:00:00Z"), at("2026-01-05T12:00:00Z"), at("2026-01-10T12:00:00Z"), at("2026-03-29T01:30:00Z"), {}}
)

func drawCall(t *rapid.T, payload []byte) policy.Call {
	boolean := rapid.SampledFrom([]*bool{nil, isTrue(), isFalse()})
	c := policy.Call{
		Agent:       sample(t, "agent", "bot", "cat", ""),
		Owner:       sample(t, "owner", "", "U0ADA"),
		Action:      sample(t, "action", slices.Concat(actions, actions, actions, unknownActions)...),
		Target:      sample(t, "target", "", "x"),
		Environment: sample(t, "environment", environments...),
		Reversible:  boolean.Draw(t, "reversible"),
		Payload:     payload,
		Hints: policy.Hints{
			ReadOnly:    boolean.Draw(t, "read-only"),
			Destructive: boolean.Draw(t, "destructive"),
			Idempotent:  boolean.Draw(t, "idempotent"),
			OpenWorld:   boolean.Draw(t, "open world"),
		},
		FirstUse: policy.FirstUse{Tool: chance(t, "first use of the tool"), Integration: chance(t, "of the integration"), Agent: chance(t, "of the agent")},
		Unpinned: sample(t, "unpinned", false, false, false, true),
		At:       sample(t, "at", moments...),
	}
	if chance(t, "count stated") {
		c.Count = number(rapid.Int64Range(-2, 20).Draw(t, "count"))
	}
	return c
}

// The drafts are varied enough for the properties to mean something.
func TestDraftsAreVaried(t *testing.T) {
	t.Parallel()
	seen := make(map[string]bool)
	see := func(r policy.Ruling) {
		seen[string(r.Effect)] = true
		seen[fmt.Sprint("tier ", int(r.Tier))] = true
		seen[fmt.Sprint("classified ", r.Classified)] = true
		seen[fmt.Sprint("in band ", r.InBand)] = true
		seen[fmt.Sprint("in view ", r.InView, " classified ", r.Classified)] = true
		seen[fmt.Sprint("target ", r.Target != "")] = true
		seen[fmt.Sprint("key ", r.Idempotency != "")] = true
		for _, rule := range r.Rules[1:] {
			seen[strings.TrimRight(rule.ID, "0123456789")] = true
			seen[fmt.Sprint("failed ", rule.Failed)] = true
			seen[fmt.Sprint("lowered ", rule.LowerTo > 0)] = true
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		p := drawDraft(t).parse(t)
		for range calls {
			see(p.Rule(drawCall(t, drawArguments(t).payload())))
		}
	})
	for _, want := range []string{
		"allow", "require_approval", "deny", "tier 1", "tier 2", "tier 3", "tier 4", "tier 5", "classified true", "classified false",
		"r", "b", "bulk", "high-value", "first-use", "hint-destructive", "hint-not-read-only", "mode-own", "failed true", "lowered true",
		"in band true", "in view true classified true", "in view true classified false", "in view false classified true", "target true", "key true",
	} {
		if !seen[want] {
			t.Errorf("no draft came to %s", want)
		}
	}
}
