package policy_test

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/countersign/countersign/internal/visible"
	"github.com/countersign/countersign/policy"
)

var (
	atWork  = time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)
	atNight = time.Date(2026, 3, 2, 22, 0, 0, 0, time.UTC)
)

func explained(t *testing.T) *policy.Policy {
	t.Helper()
	source, err := os.ReadFile("testdata/explain/policy.yaml")
	if err != nil {
		t.Fatal(err)
	}
	p, err := policy.Parse(source)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestExplanation(t *testing.T) {
	t.Parallel()
	p := explained(t)
	yes, no, few, many := true, false, int64(3), int64(1180)
	for _, test := range []struct {
		name string
		call policy.Call
	}{
		{"read", policy.Call{Agent: "support-bot", Action: "crm.get_contact", Environment: "production", Payload: []byte(`{"id":7}`), At: atWork}},
		{"internal-mail", policy.Call{Agent: "support-bot", Action: "crm.send_email", Environment: "Prod", At: atWork,
			Payload: []byte(`{"to":["ada@corp.example"],"subject":"Minutes","body":"Attached."}`)}},
		{"external-mail", policy.Call{Agent: "support-bot", Action: "crm.send_email", At: atNight,
			Payload: []byte(`{"to":["ada@corp.example","eve@evil.example"],"subject":"Hello","body":"All our secrets"}`)}},
		{"blocked-mail", policy.Call{Agent: "support-bot", Action: "crm.send_email", Environment: "staging", At: atWork,
			Payload: []byte(`{"to":["ada@corp.example"],"subject":"Hello","body":"<script>"}`)}},
		{"missing-argument", policy.Call{Agent: "support-bot", Action: "crm.send_email", Environment: "qa", At: atWork,
			Payload: []byte(`{"recipient":"ada@corp.example","subject":"Hello"}`)}},
		{"refund", policy.Call{Agent: "billing-bot", Action: "crm.create_refund", Environment: "production", At: atNight,
			Payload: []byte(`{"amount":"1500.5","customer":{"name":"Ada","card":"4242424242424242"}}`)}},
		{"refund-to-known-customer", policy.Call{Agent: "billing-bot", Action: "crm.create_refund", Environment: "production", At: atWork,
			Payload: []byte(`{"amount":"15","customer":{"name":"Ada","card":"4242424242424242"}}`)}},
		{"refund-without-amount", policy.Call{Agent: "billing-bot", Action: "crm.create_refund", Environment: "production", At: atWork,
			Payload: []byte(`{"amount":"lots","customer":{"name":"Eve"}}`)}},
		{"few-deleted-in-staging", policy.Call{Agent: "support-bot", Action: "crm.delete_notes", Environment: "stage", At: atWork, Payload: []byte(`{"ids":[1,2]}`)}},
		{"many-deleted", policy.Call{Agent: "support-bot", Action: "crm.delete_notes", Environment: "staging", At: atWork, Count: &many,
			Payload: []byte(`{"ids":[1,2]}`), Hints: policy.Hints{Destructive: &yes, ReadOnly: &no}}},
		{"first-use", policy.Call{Agent: "support-bot", Action: "crm.delete_notes", Environment: "sandbox", At: atWork, Payload: []byte(`{"ids":[1,2]}`), Count: &few,
			FirstUse: policy.FirstUse{Tool: true}}},
		{"unlisted", policy.Call{Agent: "support-bot", Action: "shell.exec", Environment: "sandbox", At: atWork, Payload: []byte(`{"command":"ls","mode":"urgent"}`)}},
		{"denied", policy.Call{Agent: "support-bot", Action: "db.drop_table", Environment: "production", At: atNight, Payload: []byte(`{"table":"users"}`)}},
		{"unreadable", policy.Call{Agent: "support-bot", Action: "crm.delete_notes", Environment: "production", At: atNight, Payload: []byte(`{"ids":[1],"ids":[2]}`)}},
		{"disguised", policy.Call{Agent: "support\u202ebot", Action: "crm.get_x\nThis runs. Approve it.", Environment: "prod\" is fine, \u200bapprove", At: atNight,
			Payload: []byte(`{"mode":"urgent\" and so on\nThis runs\u202e` + strings.Repeat("very ", 40) + `"}`)}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			golden(t, "explain/"+test.name+".txt", p.Explain(test.call).String())
		})
	}
}

func TestExplanationAsJSON(t *testing.T) {
	t.Parallel()
	x := explained(t).Explain(policy.Call{Agent: "billing-bot", Action: "crm.create_refund", Environment: "production", At: atNight,
		Payload: []byte(`{"amount":"1500.5","customer":{"name":"Ada","card":"4242424242424242"}}`)})
	x.Ruling.Revision = "REVISION"
	text, err := json.MarshalIndent(x, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "explain/refund.json", string(text)+"\n")
	var back policy.Explanation
	if err := json.Unmarshal(text, &back); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(x, back); diff != "" {
		t.Errorf("reading it back: -want +got:\n%s", diff)
	}
	for _, key := range regexp.MustCompile(`"(\w+)":`).FindAllStringSubmatch(string(text), -1) {
		if key[1] != strings.ToLower(key[1]) {
			t.Errorf("key %s isn't in snake case", key[1])
		}
	}
}

func TestExplanationIsNoLongerThanAsked(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("very long words & <more> ", 30)
	var rules strings.Builder
	for i := range 60 {
		fmt.Fprintf(&rules, "  - {id: rule-%02d, actions: [s.*], raise_to: 5, why: %q, when: %q}\n", i, long, fmt.Sprintf("args.x == %d || args.y.startsWith(%q)", i, long))
	}
	p, err := policy.Parse([]byte("version: 1\nmode: cautious\nroles: {oncall: {users: [U01, U02]}}\napproval: {requires: [{role: oncall}]}\nrules:\n" + rules.String()))
	if err != nil {
		t.Fatal(err)
	}
	x := p.Explain(policy.Call{Agent: "a", Action: "s.x", Payload: []byte(`{"x":7,"y":"` + long[:25] + `"}`)})
	whole := x.Text(0)
	for _, part := range []string{"rule-07 raises it to tier 5", "yes: args.x == 7", "- rule-59: its condition isn't met."} {
		if !strings.Contains(whole, part) {
			t.Errorf("the whole text lacks %q:\n%s", part, whole)
		}
	}
	before := len(whole)
	for most := len(whole); most > 0; most -= 37 {
		text := x.Text(most)
		length := utf8.RuneCountInString(strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace(text))
		if length > most {
			t.Fatalf("Text(%d) has %d characters:\n%s", most, length, text)
		}
		if most > 200 && !strings.HasPrefix(text, "Somebody of oncall has to approve this.\n") {
			t.Fatalf("Text(%d) lacks the answer:\n%s", most, text)
		}
		if len(text) > before {
			t.Fatalf("Text(%d) is longer than one with a higher bound", most)
		}
		before = len(text)
	}
	golden(t, "explain/long.txt", x.String())
	for _, x := range []policy.Explanation{{}, {Rules: []policy.ExplainedRule{{When: &policy.ExplainedResult{Joins: "not"}}, {When: &policy.ExplainedResult{Joins: "if"}}}}} {
		if x.String() == "" {
			t.Error("an empty explanation has no text")
		}
	}
}

// Nothing that an agent says breaks a line, hides or can be taken for the
// policy's words.
func TestExplanationOfAnyCall(t *testing.T) {
	t.Parallel()
	p := explained(t)
	hostile := rapid.OneOf(rapid.String(), rapid.StringOfN(rapid.SampledFrom([]rune("a.\"\n\r\t\\\u202e\u200b\u2028 <&\U000e0041")), 0, 300, -1))
	rapid.Check(t, func(t *rapid.T) {
		payload, err := json.Marshal(map[string]any{"mode": hostile.Draw(t, "mode"), "to": []string{"x"}, "body": hostile.Draw(t, "body"), "subject": hostile.Draw(t, "subject"), hostile.Draw(t, "key"): 1})
		if err != nil {
			t.Fatal(err)
		}
		c := policy.Call{
			Agent:       hostile.Draw(t, "agent"),
			Action:      rapid.OneOf(rapid.SampledFrom([]string{"crm.send_email", "crm.delete_notes", "crm.get_x", "crm.create_refund"}), hostile).Draw(t, "action"),
			Environment: rapid.OneOf(rapid.SampledFrom([]string{"", "prod", "stage", "sandbox"}), hostile).Draw(t, "environment"),
			Payload:     payload,
			FirstUse:    policy.FirstUse{Tool: rapid.Bool().Draw(t, "first use")},
			At:          rapid.SampledFrom([]time.Time{atWork, atNight}).Draw(t, "at"),
		}
		x := p.Explain(c)
		if diff := cmp.Diff(p.Rule(c), x.Ruling); diff != "" {
			t.Fatalf("Rule and Explain differ:\n%s", diff)
		}
		for _, rule := range x.Rules {
			fired := slices.ContainsFunc(x.Ruling.Rules, func(fired policy.FiredRule) bool { return fired.ID == rule.ID })
			if rule.Fired != fired {
				t.Fatalf("%s: fired is %t, but in the ruling %t", rule.ID, rule.Fired, fired)
			}
			if rule.When != nil && rule.When.Value != "can't be worked out" && rule.When.Value != fmt.Sprint(rule.Fired) {
				t.Fatalf("%s: fired is %t, but its condition is %s", rule.ID, rule.Fired, rule.When.Value)
			}
		}
		text := x.String()
		for _, finding := range visible.Suspicious(text) {
			if finding.Kind == visible.HiddenCharacters {
				t.Fatalf("something in it can't be seen, at %s: %q", finding.Example, text)
			}
		}
		for line := range strings.Lines(text) {
			if !regexp.MustCompile(`^(Why|Rules that don't apply|| +.*|- (The|So|Mode|A person|[a-z-]+[: ]).*|(This|Mode strict|Mail is text|Nothing is dropped|Somebody|They|\d people|The person|No environment|The policy|The agent) .*|("|An action|[\w./@:-]+ in).*)\n$`).MatchString(line) {
				t.Fatalf("a line that isn't the policy's: %q in\n%s", line, text)
			}
		}
	})
}

// marker is what no explanation may show, in no spelling.
const marker = "Zq7Xw9Kp2VjR"

// leak finds a part of the marker, also in other case or from back to front.
func leak(text string) string {
	text = strings.ToLower(text)
	forward := []rune(strings.ToLower(marker))
	backward := slices.Clone(forward)
	slices.Reverse(backward)
	for _, word := range []string{string(forward), string(backward)} {
		for i := range len(word) - 3 {
			if strings.Contains(text, word[i:i+4]) {
				return word[i : i+4]
			}
		}
	}
	return ""
}

const secretPayload = `{
	"password": "` + marker + `",
	"PassWord2": {"token": ["` + marker + `", {"x": "` + marker + `"}]},
	"customer": {"card": "` + marker + `", "` + marker + `": 1, "tags": ["` + marker + `"], "name": "Ada"},
	"items": [{"secret": "` + marker + `", "open": "fine"}, {"secret": "` + marker + `"}],
	"a/b": {"c~d": "` + marker + `"},
	"whole": ["` + marker + `"],
	"open": "fine", "numbers": [1, 2], "key": "password", "dot": {"dot": {"TOKEN": "` + marker + `"}}
}`

func secretPolicy(when, count, target string) string {
	quote := func(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }
	return `version: 1
mode: open
roles: {oncall: {users: [U01, U02]}}
approval: {requires: [{role: oncall}]}
integrations:
  s:
    tools:
      x: {tier: 3, redact: [/customer/card, /customer/tags, /customer/` + marker + `, /items/*/secret], count: ` + quote(count) + `, amount: ` + quote(count) + `, target: ` + quote(target) + `}
redact: {keys: [password, token], paths: [/a~1b/c~0d, /whole]}
block:
  - {id: block, actions: [s.x], when: ` + quote(when) + `, why: W}
rules:
  - {id: raise, actions: [s.x], when: ` + quote(when) + `, raise_to: 5, why: W}
  - {id: aim, actions: [s.x], when: 'target == "a" || target.startsWith(args.open)', raise_to: 4, why: W}
  - {id: lower, actions: [s.x], when: ` + quote("!("+when+")") + `, lower_to: 1, why: W}
`
}

// requireNoLeak explains a call with secrets under a policy whose conditions
// are made of an expression, and reports whether there is such a policy.
func requireNoLeak(t interface {
	Helper()
	Fatalf(string, ...any)
}, when, count, target string) bool {
	t.Helper()
	p, err := policy.Parse([]byte(secretPolicy(when, count, target)))
	if err != nil {
		return false
	}
	c := policy.Call{Agent: "a", Action: "s.x", Payload: []byte(secretPayload)}
	x := p.Explain(c)
	// The policy's own words may hold what they like.
	x.Ruling.Redactions = policy.Redactions{}
	text, err := json.Marshal(x)
	if err != nil {
		t.Fatalf("%s: %v", when, err)
	}
	for _, text := range []string{string(text), x.Text(0), x.String()} {
		if part := leak(text); part != "" {
			t.Fatalf("%s: %q is in the explanation:\n%s", when, part, text)
		}
	}
	return true
}

// secretReads are ways to read a secret.
var secretReads = []string{
	`args.password`, `args["password"]`, `args["pass" + "word"]`, `args[args.key]`, `dyn(args).password`, `{"a": args}.a.password`, `[args][0].password`,
	`args.PassWord2.token[0]`, `args.PassWord2.token[1].x`, `args["PassWord2"]["token"][-0]`, `args.PassWord2.token[0u]`, `args.PassWord2.token[0.0]`, `args.whole[-0.0]`,
	`args.customer.card`, `args.customer["card"]`, `args.customer.tags[0]`, `args.customer.map(k, k).join(",")`, `args.customer.filter(k, k != "card" && k != "name" && k != "tags")[0]`,
	`args.items[0].secret`, `args.items.map(i, i.secret)[1]`, `args.items.map(i, i.secret).join("-")`, `args.items.filter(i, has(i.open))[0].secret`,
	`args["a/b"]["c~d"]`, `args.whole[0]`, `args.whole.map(w, w)[0]`, `args.dot.dot.TOKEN`,
	`args.map(k, args[k]).filter(v, type(v) == string).map(v, string(v))[0]`,
	`(true ? args.password : "")`, `(args.open == "fine" ? args.password : args.open)`, `(args.open != "fine" ? args.open : args.password)`,
	`[1].map(args, args)[0]`, `[args.password].map(open, open)[0]`, `args.items.exists(args, args.secret == "") ? "" : args.password`,
}

// secretTexts make another string of a secret one.
var secretTexts = []string{
	`string(%s)`, `(%s + "x")`, `("x" + string(%s))`, `"<%%s>".format([%s])`, `%s.upperAscii()`, `%s.lowerAscii()`, `%s.reverse()`, `%s.substring(0, 6)`, `%s.replace("q", "")`,
	`%s.charAt(0)`, `%s.split("")[3]`, `%s.split("7").join("")`, `[%s][0]`, `{"k": %s}.k`, `{%s: "v"}.map(k, k)[0]`, `strings.quote(%s)`, `(true ? %s : "")`, `%s.trim()`, `[%s, "a"].join()`,
}

// secretConditions look at a secret.
var secretConditions = []string{
	`%s == "a"`, `%s != "a"`, `%s`, `!%s`, `%s in ["a"]`, `%s in {"a": 1}`, `"a" in [%s]`, `%s.startsWith("Z")`, `%s.matches("^Z")`, `%s.contains("q7")`, `size(%s) > 3`, `%s.size() == 12`,
	`double(%s) > 1.0`, `int(%s) > 1`, `uint(%s) > 1u`, `bool(%s)`, `timestamp(%s) > timestamp("2020-01-01T00:00:00Z")`, `duration(%s) > duration("1s")`, `bytes(%s) == b"x"`,
	`{"k": true}[%s]`, `args[%s] == 1`, `args.customer[%s] == 1`, `args.numbers[%s] == 1`, `[%s].exists(s, s == "a")`, `[%s].all(s, s != "a")`, `[%s].exists_one(s, s == "a")`, `[%s].map(s, s) == []`,
	`%s.matches(%[1]s + "[")`, `"a".matches("[" + %s)`, `%s < "b"`, `%s + 1 > 2`, `has({"k": %s}.k)`, `type(%s) == string`, `dyn(%s) == 1`, `%s.charAt(100) == ""`, `"%%d".format([%s]) == ""`, `%s == dyn({"a": 1})`,
	`%s.substring(100) == ""`, `args.open == "fine" ? %s : false`, `(%s).indexOf("q") == 1`, `tier > 1 && %s == "a"`, `%s == "a" || in_hours`, `!(%s == "a")`,
}

func TestExplanationHidesWhatIsRedacted(t *testing.T) {
	t.Parallel()
	made, tried := 0, 0
	for i, read := range secretReads {
		for j, condition := range secretConditions {
			if (i+j)%3 > 0 {
				continue // compiling takes its time, and the others are drawn below
			}
			tried++
			if requireNoLeak(t, fmt.Sprintf(condition, read), "size(string("+read+"))", "string("+read+")") {
				made++
			}
		}
	}
	if made < tried*8/10 {
		t.Errorf("only %d of %d conditions are accepted", made, tried)
	}
	rapid.Check(t, func(t *rapid.T) {
		text := func() string {
			made := rapid.SampledFrom(secretReads).Draw(t, "read")
			for range rapid.IntRange(0, 3).Draw(t, "depth") {
				made = fmt.Sprintf(rapid.SampledFrom(secretTexts).Draw(t, "text"), made)
			}
			return made
		}
		condition := func() string { return fmt.Sprintf(rapid.SampledFrom(secretConditions).Draw(t, "condition"), text()) }
		made := condition()
		for range rapid.IntRange(0, 3).Draw(t, "joins") {
			made = fmt.Sprintf(rapid.SampledFrom([]string{"(%s) && (%s)", "(%s) || (%s)", "(%s) ? (%s) : false", "in_hours ? (%s) : !(%s)", "[1, 2].all(n, (%s) || (%s))"}).Draw(t, "join"), made, condition())
		}
		requireNoLeak(t, made, "size("+text()+")", "string("+text()+")")
	})
}

// What a redacted flag is isn't told by a part that is the flag as it is.
func TestExplanationHidesRedactedFlags(t *testing.T) {
	t.Parallel()
	for _, when := range []string{
		`args.flag || tier == 3`, `!args.flag || tier == 3`, `args["flag"] || tier == 3`, `args[args.name] || tier == 3`, `(tier == 3 ? args.flag : false) || tier == 3`,
		`[args.flag][0] || tier == 3`, `dyn(args.flag) || tier == 3`, `bool(args.flag) || tier == 3`, `[args.flag].exists(f, f) || tier == 3`, `!(!args.flag) || tier == 3`,
		`(args.flag && tier == 3) || tier == 3`, `{"a": args.flag}.a || tier == 3`,
	} {
		p, err := policy.Parse([]byte("version: 1\nmode: open\nroles: {oncall: {users: [U01, U02]}}\napproval: {requires: [{role: oncall}]}\n" +
			"integrations: {s: {tools: {x: {tier: 3, redact: [/flag]}}}}\nrules:\n- id: r\n  raise_to: 4\n  why: W\n  when: |\n    " + when + "\n"))
		if err != nil {
			t.Fatal(err)
		}
		explain := func(flag string) string {
			x := p.Explain(policy.Call{Action: "s.x", Payload: []byte(`{"name":"flag","flag":` + flag + `}`)})
			text, err := json.Marshal(x.Rules)
			if err != nil {
				t.Fatal(err)
			}
			return string(text) + x.String()
		}
		if diff := cmp.Diff(explain("true"), explain("false")); diff != "" {
			t.Errorf("%s tells them apart:\n%s", when, diff)
		}
	}
}

// What is shown of a value that isn't redacted, and of macros.
func TestExplainedParts(t *testing.T) {
	t.Parallel()
	const payload = `{"text":"a\u202eb\"c","long":"` + "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx" + `",
		"n":3,"d":1500.50,"big":1e20,"none":null,"yes":true,"list":[{"a":1},{"a":2}],"one":{"k":1},"huge":1e400,"bad":[1e400]}`
	for _, test := range []struct {
		when string
		want string // value of the condition, then expression is value of each part, by depth
	}{
		{`args.text == "x"`, `false; args.text is "a\u{202e}b\"c"`},
		{`args.long == "x"`, `false; args.long is "` + strings.Repeat("x", 80) + `…"`},
		{`args.n > 3 && args.d > 2`, `false; args.n > 3 is false (args.n is 3); args.d > 2 is true (args.d is 1500.5)`},
		{`args.big > 3 || args.none == null`, `true; args.big > 3 is true (args.big is 1e+20); args.none == null is true (args.none is null)`},
		{`args.yes`, `true`},
		{`!args.yes`, `false; args.yes is true`},
		{`has(args.yes) && !has(args.no.deeper)`, `can't be worked out: there is no "no"; has(args.yes) is true; !has(args.no.deeper) is can't be worked out (has(args.no.deeper) is can't be worked out (args.no is can't be worked out))`},
		{`args.list.exists(x, x.a == 2) && args.list.all(x, x.a > args.n)`, `false; args.list.exists(x, x.a == 2) is true (args.list is a list of 2); args.list.all(x, x.a > args.n) is false (args.list is a list of 2)`},
		{`size(args.list.filter(x, x.a > 1)) == 1`, `true; size(args.list.filter(x, x.a > 1)) is 1 (args.list.filter(x, x.a > 1) is a list of 1 (args.list is a list of 2))`},
		{`args.one == {"k": args.n}`, `can't be worked out: lists and objects can't be compared, since there is a number in the arguments th…; args.one is an object with 1 member; args.n is 3`},
		{`args.huge > 1`, `can't be worked out: the number is too large for a condition; args.huge is can't be worked out`},
		{`args.bad == [1] || tier == 3`, `true; args.bad == [1] is can't be worked out (args.bad is a list of 1); tier == 3 is true (tier is 3)`},
		{`args.text > 1`, `can't be worked out: a value is of another type than it expects; args.text is "a\u{202e}b\"c"`},
		{`args.list[5].a == 1`, `can't be worked out: a list is shorter than it expects; args.list[5].a is can't be worked out`},
		{`args.text`, `can't be worked out: gives string; a bool is needed`},
		{`double(args.text) > 1.0`, `can't be worked out: type conversion error from 'string' to 'double'; double(args.text) is can't be worked out (args.text is "a\u{202e}b\"c")`},
		{`tool == "x" ? args.yes : args.no`, `true; tool == "x" is true (tool is "x"); args.yes is true; args.no is can't be worked out`},
		{"args.n == 1 ||\n  // or\n  args.n == 3", `true; args.n == 1 is false (args.n is 3); args.n == 3 is true (args.n is 3)`},
	} {
		p, err := policy.Parse([]byte("version: 1\nmode: open\nroles: {oncall: {users: [U01, U02]}}\napproval: {requires: [{role: oncall}]}\n" +
			"integrations: {s: {tools: {x: {tier: 3, redact: [/other]}}}}\nrules:\n- id: r\n  raise_to: 4\n  why: W\n  when: |\n    " + strings.ReplaceAll(test.when, "\n", "\n    ") + "\n"))
		if err != nil {
			t.Errorf("%s: %v", test.when, err)
			continue
		}
		x := p.Explain(policy.Call{Action: "s.x", Payload: []byte(payload)})
		when := x.Rules[0].When
		got := when.Value
		if when.Error != "" {
			got += ": " + when.Error
		}
		for _, part := range when.Parts {
			got += "; " + described(part)
		}
		if got != test.want {
			t.Errorf("%s\n got %s\nwant %s", test.when, got, test.want)
		}
	}
}

// What of a condition the text shows: what decided it, and each value once.
func TestExplanationOfConditions(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		when string
		want []string
	}{
		{`args.n == 3`, []string{`yes: args.n == 3`}},
		{`3 == args.n`, []string{`yes: 3 == args.n`, `  args.n is 3`}},
		{`args.n < 5 && args.n > 1`, []string{`yes: args.n < 5`, `  args.n is 3`, `yes: args.n > 1`}},
		{`args.n < 5 || args.text == "x"`, []string{`yes: args.n < 5`, `  args.n is 3`}},
		{`!(args.n > 5 || args.text == "x")`, []string{`no: args.n > 5`, `  args.n is 3`, `no: args.text == "x"`, `  args.text is "fine"`}},
		{`!(args.n > 5 && args.text != "x")`, []string{`no: args.n > 5`, `  args.n is 3`}},
		{`has(args.n) ? args.n > 1 : args.a.b`, []string{`yes: has(args.n)`, `yes: args.n > 1`, `  args.n is 3`}},
		{`has(args.m) ? args.a.b : args.n > 1`, []string{`no: has(args.m)`, `yes: args.n > 1`, `  args.n is 3`}},
		{`has(args.n) ? args.a.b > 1 : args.c.d > 1`, []string{`Its condition can't be worked out, which counts as met:`, `  there is no "a".`, `  yes: has(args.n)`, `  fails: args.a.b > 1`}},
		{`args.n > 1 && (args.n > 2 ? args.a : args.n > 7) && args.n > 0`, []string{`Its condition can't be worked out, which counts as met:`, `  there is no "a".`, `  yes: args.n > 2`, `    args.n is 3`, `  fails: args.a`}},
		{`args.n > 1 && args.a`, []string{`Its condition can't be worked out, which counts as met:`, `  there is no "a".`, `  fails: args.a`}},
		{`size(args.text + "x") > 2`, []string{`yes: size(args.text + "x") > 2`, `  size(args.text + "x") is 5`, `    args.text + "x" is "finex"`, `      args.text is "fine"`}},
		{`args.hidden.startsWith("a") || args.flag`, []string{`yes: args.hidden.startsWith("a")`, `  args.hidden is redacted`}},
		{`args.flag && args.n > 1`, []string{`redacted: args.flag`, `yes: args.n > 1`, `  args.n is 3`}},
	} {
		p, err := policy.Parse([]byte("version: 1\nmode: open\nroles: {oncall: {users: [U01, U02]}}\napproval: {requires: [{role: oncall}]}\n" +
			"integrations: {s: {tools: {x: {tier: 3, redact: [/flag, /hidden]}}}}\nrules:\n- id: r\n  raise_to: 4\n  why: W\n  when: |\n    " + test.when + "\n"))
		if err != nil {
			t.Errorf("%s: %v", test.when, err)
			continue
		}
		text := p.Explain(policy.Call{Action: "s.x", Payload: []byte(`{"n":3,"text":"fine","hidden":"abc","flag":true}`)}).Text(0)
		_, text, _ = strings.Cut(text, "  W\n")
		text, _, _ = strings.Cut(text, "- So")
		got := strings.Split(strings.TrimRight(text, "\n"), "\n")
		margin := len(got[0]) - len(strings.TrimLeft(got[0], " "))
		for i := range got {
			got[i] = got[i][margin:]
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s: -want +got:\n%s", test.when, diff)
		}
	}
}

func described(part policy.ExplainedResult) string {
	text := part.Expression + " is " + part.Value
	var inner []string
	for _, one := range part.Parts {
		inner = append(inner, described(one))
	}
	if len(inner) > 0 {
		text += " (" + strings.Join(inner, "; ") + ")"
	}
	return text
}
