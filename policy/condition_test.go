package policy_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/countersign/countersign/policy"
)

// met says what a condition comes to for a payload: "true", "false" or
// "failed". It asks a rule that raises and one that lowers, which must agree: if
// the condition fails, the first fires and the second doesn't.
func met(t *testing.T, condition, payload string) string {
	t.Helper()
	quoted := strconv.Quote(condition)
	p := mustParse(t, smallest+`
integrations:
  crm: {tools: {update: {tier: 4, count: "1"}}}
rules:
  - {id: up, when: `+quoted+`, raise_to: 5, why: Up.}
  - {id: down, actions: [crm.update], when: `+quoted+`, lower_to: 3, why: Down.}
`)
	r := p.Rule(policy.Call{Agent: "bot", Action: "crm.update", Payload: []byte(payload)})
	up, down := fired(r, "up"), fired(r, "down")
	switch {
	case up == nil && down == nil:
		return "false"
	case up != nil && up.Failed && down == nil:
		return "failed"
	case up != nil && !up.Failed && down != nil && !down.Failed:
		return "true"
	default:
		t.Fatalf("%s of %s: up %+v, down %+v", condition, payload, up, down)
		return ""
	}
}

// fired is the rule of that id among those that took part; nil if it didn't.
func fired(r policy.Ruling, id string) *policy.FiredRule {
	at := slices.IndexFunc(r.Rules, func(rule policy.FiredRule) bool { return rule.ID == id })
	if at < 0 {
		return nil
	}
	return &r.Rules[at]
}

type conditionTest struct{ condition, payload, want string }

func checkConditions(t *testing.T, tests []conditionTest) {
	t.Helper()
	for _, test := range tests {
		if got := met(t, test.condition, test.payload); got != test.want {
			t.Errorf("%.100s of %.100s: %s, want %s", test.condition, test.payload, got, test.want)
		}
	}
}

func TestNumbersInConditions(t *testing.T) {
	t.Parallel()
	checkConditions(t, []conditionTest{
		// Integers are exact within 64 bits.
		{"args.n == 9007199254740993", `{"n": 9007199254740993}`, "true"},
		{"args.n == 9007199254740992", `{"n": 9007199254740993}`, "false"},
		{"args.n > 9007199254740992", `{"n": 9007199254740993}`, "true"},
		{"args.n == 9223372036854775807", `{"n": 9223372036854775807}`, "true"},
		{"args.n > -9223372036854775808", `{"n": -9223372036854775808}`, "false"},
		{"args.n == 0", `{"n": -0}`, "true"},
		{"args.n == 0", `{"n": -0.0}`, "true"},
		{"args.n == 1 && args.n == 1.0 && args.n in [1]", `{"n": 1.0}`, "true"},
		{"args.n == 0.1", `{"n": 0.10}`, "true"},
		{"args.n == 100", `{"n": 1e2}`, "true"},
		{"args.n == 0", `{"n": 1e-400}`, "true"},
		{"args.n > 1e307", `{"n": 1e308}`, "true"},
		{"args.n > 5", `{"n": 5.000001}`, "true"},
		{"args.n > 5", `{"n": 5.0}`, "false"},
		// What isn't a number isn't compared with one.
		{"args.n > 5", `{"n": "6"}`, "failed"},
		{"args.n > 5", `{"n": null}`, "failed"},
		{"args.n > 5", `{"n": [6]}`, "failed"},
		{"args.n > 5", `{"n": true}`, "failed"},
		{"double(args.n) > 5.0", `{"n": "1,500"}`, "failed"},
		{"double(args.n) > 5.0", `{"n": "1500"}`, "true"},
		{"args.n + 1 > 0", `{"n": 9223372036854775807}`, "failed"},
	})
}

// A number that CEL can't hold is an error to whoever touches it, and beside one
// no list and no object of the arguments is compared.
func TestNumbersThatAreTooLarge(t *testing.T) {
	t.Parallel()
	for _, number := range []string{"1e400", "-1e400", "9223372036854775808", "-9223372036854775809", "100000000000000000000", strings.Repeat("9", 1000)} {
		var tests []conditionTest
		add := func(condition, payload, want string) {
			tests = append(tests, conditionTest{condition, strings.ReplaceAll(payload, "N", number), want})
		}
		for _, touching := range []string{
			"args.n > 5", "args.n < 5", "args.n == 5", "args.n != 5", "args.n == 1e20", "args.n == args.n", "args == args", "args.n in [5]",
			"args.n in [1e20]", "dyn(1e20) in [args.n]", "[args.n] == [5]", `{"n": args.n} == {"n": 5}`, "double(args.n) > 5.0", "int(args.n) > 5", `string(args.n) == "5"`,
			"args.n + 1 > 5", "-args.n > 5", "args.n", "args.n ? true : false", "args.o[args.n] == 5", "type(args.n) == int",
			"args.l == [5]", "[5] == args.l", "args.l != [5]", "!(args.l == [5])", "args.l == args.m", "args.m == args.l", "args.l[0] == 5", "args.m == [5]", "5 in args.m", "has(args.n)", "has(args.o.n)",
			"5 in args.l", "1e20 in args.l", "args.l in [[5]]", "[5] in [args.l]", "[args.l] == [[5]]", "args.l + [5] == [5, 5]",
			"args.l.all(x, x > 5)", "args.l.exists(x, x > 5)", "args.l.map(x, x) == [5]", "args.l.filter(x, true) == [5]",
			`args.o == {"n": 5}`, `{"n": 5} == args.o`, `args.o in [{"n": 5}]`, "args.d == args.e", "args.e == args.d", "args.d != args.e",
		} {
			add(touching, `{"n": N, "l": [N], "m": [5], "o": {"n": N}, "d": [{"x": [N]}], "e": [{"x": [5]}]}`, "failed")
		}
		for _, untouched := range []string{
			`"n" in args`, `"n" in args.o`, "size(args.l) == 1", "args.to == 5",
			`args.exists(k, k == "n")`, "args.to == 5 || args.n == 5", "args.to < 6 && args.m[0] == 5", "true",
		} {
			add(untouched, `{"n": N, "l": [N], "m": [5], "o": {"n": N}, "to": 5}`, "true")
		}
		checkConditions(t, tests)
	}
}

func TestConditions(t *testing.T) {
	t.Parallel()
	checkConditions(t, []conditionTest{
		{`args.to.endsWith("@corp.example")`, `{"to": "ada@corp.example"}`, "true"},
		{`args.to.endsWith("@corp.example")`, `{"to": "ada@corp.example.org"}`, "false"},
		{`args.to.endsWith("@corp.example")`, `{"to": ["ada@corp.example"]}`, "failed"},
		{`args.to.endsWith("@corp.example")`, `{"To": "ada@corp.example"}`, "failed"},
		{`args.to.lowerAscii() == "ada"`, `{"to": "ADA"}`, "true"},
		{`args["a.b"].c == null`, `{"a.b": {"c": null}}`, "true"},
		{`has(args.a.b)`, `{"a": {}}`, "false"},
		{`has(args.a.b)`, `{}`, "failed"},
		{`has(args.a) && args.a.b == 1`, `{}`, "false"},
		{`args.a == 1`, `{"a": "1"}`, "false"},
		{`args.flag`, `{"flag": true}`, "true"},
		{`args.flag`, `{"flag": "true"}`, "failed"},
		{`args.flag`, `{"flag": 1}`, "failed"},
		{`args.flag`, `{"flag": null}`, "failed"},
		{`args.where == ""`, `{"where": ""}`, "true"},
		{`args[0] == 1`, `[1]`, "true"},
		{`args == 1`, `1`, "true"},
		{`args == null`, `null`, "true"},
		{`args.a == 1`, `null`, "failed"},
		{`args.a == 1`, `"text"`, "failed"},
		// Nested macros.
		{`args.rows.exists(r, r.tags.exists(t, t == "vip"))`, `{"rows": [{"tags": []}, {"tags": ["a", "vip"]}]}`, "true"},
		{`args.rows.all(r, r.tags.exists(t, t == "vip"))`, `{"rows": [{"tags": []}, {"tags": ["a", "vip"]}]}`, "false"},
		{`args.rows.filter(r, r.n > 1).map(r, r.n) == [2, 3]`, `{"rows": [{"n": 1}, {"n": 2}, {"n": 3}]}`, "true"},
		{`args.rows.exists(r, r.n > 1)`, `{"rows": [{"x": 1}, {"n": 2}]}`, "true"},
		{`args.rows.exists(r, r.n > 1)`, `{"rows": [{"x": 1}, {"n": 1}]}`, "failed"},
		{`args.rows.all(r, r.n > 1)`, `{"rows": []}`, "true"},
		// Regular expressions match anywhere unless they are anchored.
		{`args.sql.matches("(?i)^\\s*drop\\s")`, `{"sql": "  DROP TABLE x"}`, "true"},
		{`args.sql.matches("drop")`, `{"sql": "raindrops"}`, "true"},
		{`args.sql.matches(args.pattern)`, `{"sql": "x", "pattern": "("}`, "failed"},
		{`args.sql.matches("^(a+)+$")`, `{"sql": "` + strings.Repeat("a", 100_000) + `!"}`, "false"},
	})
}

// An unreadable payload fails whatever reads it and nothing else.
func TestUnreadablePayloads(t *testing.T) {
	t.Parallel()
	for _, payload := range []string{"", " ", "{", `{"a": 1} 2`, `{"a": 1, "a": 2}`, `{"a": "` + "\xff" + `"}`, `{"a": "\ud800"}`, "NaN", strings.Repeat("[", 100_000)} {
		checkConditions(t, []conditionTest{
			{"args.a == 1", payload, "failed"},
			{"args == args", payload, "failed"},
			{"has(args.a)", payload, "failed"},
			{"size(args) >= 0", payload, "failed"},
			{`action == "crm.update"`, payload, "true"},
			{`action == "crm.update" || args.a == 1`, payload, "true"},
			{`action == "" && args.a == 1`, payload, "false"},
		})
	}
}

// A condition that takes too much work fails.
func TestCostLimit(t *testing.T) {
	t.Parallel()
	many := `{"s": "` + strings.Repeat("a", 200_000) + `", "l": [1` + strings.Repeat(",1", 100_000) + `]}`
	checkConditions(t, []conditionTest{
		{"size(args.l) > 100000", many, "true"},
		{`args.s.startsWith("aaa")`, many, "true"},
		{`args.s.contains("b")`, many, "false"},
		{"args.l.all(x, x == 1)", many, "failed"},
		{"args.l.exists(x, args.l.exists(y, x != y))", many, "failed"},
		{"args.l.map(x, [x, x, x, x, x, x, x, x]).size() > 0", many, "failed"},
		{`args.s.replace("a", "aaaaaaaaaa").replace("a", "aaaaaaaaaa").size() > 0`, many, "failed"},
		{`args.s.split("").size() > 0`, many, "failed"},
	})
}

// The deepest payload that is accepted is read, and one that is deeper isn't.
func TestDeepPayloads(t *testing.T) {
	t.Parallel()
	deep := func(levels int) string {
		return strings.Repeat(`{"a":`, levels) + "1" + strings.Repeat("}", levels)
	}
	checkConditions(t, []conditionTest{
		{"has(args.a)", deep(32), "true"},
		{"args.a == args.a", deep(32), "true"},
		{"has(args.a)", deep(100_000), "failed"},
	})
}

// Each variable has the value that the call and the policy give it.
func TestVariables(t *testing.T) {
	t.Parallel()
	yes, no := true, false
	call := policy.Call{
		Agent:       "bot",
		Owner:       "U0ADA",
		Action:      "crm.contacts.get",
		Target:      "contact 7",
		Environment: "STAGE",
		Reversible:  &no,
		Payload:     []byte(`{}`),
		FirstUse:    policy.FirstUse{Tool: true, Agent: true},
		At:          at("2026-03-03T06:30:00Z"), // a Tuesday
	}
	with := func(change func(*policy.Call)) policy.Call {
		changed := call
		change(&changed)
		return changed
	}
	for _, test := range []struct {
		condition string
		call      policy.Call
	}{
		{`action == "crm.contacts.get" && integration == "crm" && tool == "contacts.get"`, call},
		{`action == "sweep" && integration == "" && tool == "sweep"`, with(func(c *policy.Call) { c.Action = "sweep" })},
		{`agent == "bot" && owner == "U0ADA" && target == "contact 7"`, call},
		{`owner == "U0OWNER"`, with(func(c *policy.Call) { c.Owner = ""; c.Agent = "owned" })},
		{`owner == "U0ADA"`, with(func(c *policy.Call) { c.Agent = "owned" })},
		{`owner == ""`, with(func(c *policy.Call) { c.Owner = "" })},
		{`environment == "staging"`, call},
		{`environment == "production"`, with(func(c *policy.Call) { c.Environment = "staging " })},
		{`environment == "production"`, with(func(c *policy.Call) { c.Environment = "" })},
		{`tier == 2`, call},
		{`tier == 4`, with(func(c *policy.Call) { c.Action = "sweep" })},
		{`irreversible`, call},
		{`!irreversible`, with(func(c *policy.Call) { c.Reversible = nil })},
		{`!irreversible`, with(func(c *policy.Call) { c.Reversible = &yes })},
		{`first_use_of_tool && !first_use_of_integration && first_use_of_agent`, call},
		{`!first_use_of_tool && first_use_of_integration && !first_use_of_agent`, with(func(c *policy.Call) { c.FirstUse = policy.FirstUse{Integration: true} })},
		{`in_hours && weekday == "tue" && hour == 7`, call},
	} {
		p := mustParse(t, smallest+fmt.Sprintf(`
environments: {staging: {names: [stage]}}
agents: {owned: {owner: U0OWNER}}
integrations: {crm: {tools: {"*": {tier: 2}}}}
hours: {zone: Europe/Paris, days: [tue], from: "07:00", to: "20:00"}
rules: [{id: up, when: %q, raise_to: 5, why: Up.}]
`, test.condition))
		if up := fired(p.Rule(test.call), "up"); up == nil || up.Failed {
			t.Errorf("%s doesn't hold: %+v", test.condition, up)
		}
	}
}
