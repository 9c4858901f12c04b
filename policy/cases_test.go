package policy_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/countersign/countersign/internal/strictjson"
	"github.com/countersign/countersign/policy"
)

// example is a policy with everything that the tests of cases look at.
const example = `version: 1
mode: cautious
environments:
  staging: {names: [stage], mode: open}
roles:
  finance: {users: [U0FIN1]}
  sre: {users: [U0SRE1, U0SRE2]}
approval:
  requires: [{role: sre}]
tiers:
  5: {requires: [{role: finance}, {role: sre, count: 2}]}
bulk: [{over: 25, raise_to: 4}]
first_use: {of: [tool]}
block:
  - {id: no-drop, actions: [crm.drop_*], why: Nothing is dropped.}
integrations:
  crm:
    tools:
      get_*: {tier: 1}
      delete_*: {tier: 4, count: size(args.ids)}
      refund: {tier: 4, amount: double(args.amount), high_value: [{over: 1000, raise_to: 5}], redact: [/customer/card]}
      send_email: {tier: 2}
rules:
  - {id: external-mail, actions: [crm.send_email], when: '!args.to.endsWith("@corp.example")', raise_to: 3, why: The mail leaves the company.}
  - {id: staging-ease, actions: [crm.delete_*], environments: [staging], count_at_most: 5, lower_to: 3, why: It comes back.}
redact: {keys: [password]}
`

func mustParse(t *testing.T, source string) *policy.Policy {
	t.Helper()
	p, err := policy.Parse([]byte(source))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func mustParseCases(t *testing.T, source string) []policy.Case {
	t.Helper()
	cases, err := policy.ParseCases([]byte(source))
	if err != nil {
		t.Fatal(err)
	}
	return cases
}

func TestParseCases(t *testing.T) {
	t.Parallel()
	got := mustParseCases(t, `# Cases.
cases:
  - name: A case that says little
    action: crm.get_contact
    expect: {effect: allow}

  - name: A case that says everything
    action: crm.refund
    environment: production
    agent: billing-bot
    owner: U0OWNER
    target: invoice 7
    args: {ids: [1, 2]}
    count: 214
    reversible: false
    first_use: [tool, agent]
    at: 2026-03-02T22:15:00+01:00
    hints: {read_only: false, destructive: true}
    unpinned: true
    expect:
      effect: require_approval
      tier: 5
      class: crm.refund
      rules: []
      requires: [{role: finance}, {role: sre, count: 2}]
      count: unbounded
      amount: 1500.5
      target: invoice 7
      in_band: false
      in_view: true
      redacted: [/customer/card]
`)
	count, yes, no := int64(214), true, false
	want := []policy.Case{
		{
			Line: 3,
			Name: "A case that says little",
			Call: policy.Call{
				Agent:   "agent",
				Action:  "crm.get_contact",
				Payload: []byte("{}"),
				At:      time.Date(2026, 1, 5, 12, 0, 0, 0, time.UTC),
			},
			Want: policy.Expectation{Effect: policy.Allow},
		},
		{
			Line: 7,
			Name: "A case that says everything",
			Call: policy.Call{
				Agent:       "billing-bot",
				Owner:       "U0OWNER",
				Action:      "crm.refund",
				Target:      "invoice 7",
				Environment: "production",
				Count:       &count,
				Reversible:  &no,
				Payload:     []byte(`{"ids":[1,2]}`),
				Hints:       policy.Hints{ReadOnly: &no, Destructive: &yes},
				Unpinned:    true,
				FirstUse:    policy.FirstUse{Tool: true, Agent: true},
				At:          time.Date(2026, 3, 2, 21, 15, 0, 0, time.UTC),
			},
			Want: policy.Expectation{
				Effect:   policy.RequireApproval,
				Tier:     5,
				Class:    "crm.refund",
				Rules:    []string{},
				Requires: []policy.RoleCount{{Role: "finance", Count: 1}, {Role: "sre", Count: 2}},
				Count:    &policy.Quantity{Unbounded: true},
				Amount:   &policy.Quantity{Value: 1500.5, Known: true},
				Target:   new("invoice 7"),
				InBand:   &no,
				InView:   &yes,
				Redacted: []string{"/customer/card"},
			},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// What the policy rules on is what the case says, to the last digit.
func TestPayloadOfCases(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, written, want string }{
		{"nothing", `args: {}`, `{}`},
		{"numbers keep their digits", `args: {a: 9007199254740993, b: 0.10, c: 1e400, d: 12345678901234567890123, e: -0, f: 1.5E+3}`, `{"a":9007199254740993,"b":0.10,"c":1e400,"d":12345678901234567890123,"e":-0,"f":1.5E+3}`},
		{"quoted numbers are text", `args: {a: "1", b: '0.10'}`, `{"a":"1","b":"0.10"}`},
		{"truth and nothing", `args: {a: true, b: False, c: null, d: ~, e: }`, `{"a":true,"b":false,"c":null,"d":null,"e":null}`},
		{"text without quotes", `args: {a: yes, b: 2026-03-02, c: 3f2b9c, d: 10.0.0.1, e: 12 apples}`, `{"a":"yes","b":"2026-03-02","c":"3f2b9c","d":"10.0.0.1","e":"12 apples"}`},
		{"text is kept as it is", `args: {a: "<é\"\n\u2028>"}`, `{"a":"<é\"\n\u2028>"}`},
		{"keys are text", `args: {1: a, true: b, "": c}`, `{"1":"a","true":"b","":"c"}`},
		{"blocks", "args:\n      query: |\n        SELECT 1\n        FROM t\n      folded: >-\n        one\n        two\n      list:\n        - 1\n        - - 2\n        - x: y", `{"query":"SELECT 1\nFROM t\n","folded":"one two","list":[1,[2],{"x":"y"}]}`},
		{"exact JSON", `payload: '{"b": 1e400, "a":0.10}'`, `{"b": 1e400, "a":0.10}`},
		{"JSON of another kind", `payload: '[1]'`, `[1]`},
		{"neither", `target: t`, `{}`},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			cases := mustParseCases(t, "cases:\n  - name: n\n    action: a.b\n    expect: {effect: deny}\n    "+test.written+"\n")
			if got := string(cases[0].Call.Payload); got != test.want {
				t.Errorf("payload\n%s\nwant\n%s", got, test.want)
			}
		})
	}
}

func TestRefusedCases(t *testing.T) {
	t.Parallel()
	const head = "cases:\n  - name: n\n    action: a.b\n    expect: {effect: deny}\n"
	for _, test := range []struct{ name, source, want string }{
		{"nothing", "", "the file is empty"},
		{"no cases", "{}", "[1:1] cases is missing"},
		{"not YAML", "cases: [", "[1:8] "},
		{"unknown key", head + "    environmnet: production\n", `[5:5] unknown field "environmnet"`},
		{"repeated key", head + "    action: a.c\n", "[5:5] "},
		{"repeated argument", head + "    args: {a: 1, a: 2}\n", `[5:18] `},
		{"arguments that are one in JSON", head + "    args: {1: a, \"1\": b}\n", "[5:"},
		{"anchor", head + "    args: &x {a: 1}\n", "[5:11] an anchor (&) is not accepted here"},
		{"tag", head + "    args: {a: !!str 1}\n", "[5:15] a tag (!) is not accepted here"},
		{"merge key", head + "    args: {<<: {a: 1}}\n", "[5:12] a merge key (<<) is not accepted here"},
		{"second document", head + "---\ncases: []\n", "there is a second document"},
		{"no name", "cases:\n  - action: a.b\n    expect: {effect: deny}\n", "[2:5] cases[0]: name is missing"},
		{"name used twice", head + "  - name: n\n    action: a.c\n    expect: {effect: deny}\n", `[5:11] cases[1].name: "n" is the name of the case on line 2 too`},
		{"no action", "cases:\n  - name: n\n    expect: {effect: deny}\n", "[2:5] cases[0]: action is missing"},
		{"no effect", "cases:\n  - name: n\n    action: a.b\n    expect: {tier: 1}\n", "[4:5] cases[0].expect: effect is missing"},
		{"no expectation", "cases:\n  - name: n\n    action: a.b\n", "cases[0].expect: effect is missing"},
		{"another effect", "cases:\n  - name: n\n    action: a.b\n    expect: {effect: ask}\n", `[4:22] cases[0].expect.effect: is "ask"`},
		{"another tier", "cases:\n  - name: n\n    action: a.b\n    expect: {effect: deny, tier: 6}\n", `cases[0].expect.tier: is 6`},
		{"count in words", "cases:\n  - name: n\n    action: a.b\n    expect: {effect: deny, count: many}\n", `[4:35] cases[0].expect.count: "many"; a number, unknown and unbounded are accepted`},
		{"count below nothing", "cases:\n  - name: n\n    action: a.b\n    expect: {effect: deny, count: -1}\n", `cases[0].expect.count: "-1"`},
		{"role without name", "cases:\n  - name: n\n    action: a.b\n    expect: {effect: deny, requires: [{count: 2}]}\n", `cases[0].expect.requires[0]: role is missing`},
		{"no pointer", "cases:\n  - name: n\n    action: a.b\n    expect: {effect: deny, redacted: [card]}\n", `cases[0].expect.redacted[0]: "card" is not a JSON Pointer`},
		{"args and payload", head + "    args: {}\n    payload: '{}'\n", "[2:5] cases[0]: has args and payload"},
		{"args that are a list", head + "    args: [1]\n", "[5:11] cases[0].args: is not a mapping"},
		{"payload that isn't JSON", head + "    payload: '{\"a\":1,\"a\":2}'\n", "[5:14] cases[0].payload: is not JSON that can be read"},
		{"hexadecimal", head + "    args: {a: {b: 0x1F}}\n", "[5:19] cases[0].args: 0x1F is not a number in JSON"},
		{"leading zero", head + "    args: {a: 007}\n", "[5:15] cases[0].args: 007 is not a number in JSON"},
		{"infinity", head + "    args: {a: .inf}\n", "[5:15] cases[0].args: .inf is not a number in JSON"},
		{"digits in groups", head + "    args: {a: 1_000}\n", "[5:15] cases[0].args: 1_000 is not a number in JSON"},
		{"sign", head + "    args: {a: +1}\n", "[5:15] cases[0].args: +1 is not a number in JSON"},
		{"key that is null", head + "    args: {~: 1}\n", "is no key"},
		{"nested too deep", head + "    args: {a: " + strings.Repeat("[", 70) + strings.Repeat("]", 70) + "}\n", "is nested too deep"},
		{"owner that is a name", head + "    owner: jane\n", `[5:12] cases[0].owner: "jane" is not a Slack user id`},
		{"first use of something", head + "    first_use: [tenant]\n", `[5:17] cases[0].first_use[0]: "tenant"`},
		{"time without zone", head + "    at: 2026-03-02T22:15:00\n", `[5:9] cases[0].at: "2026-03-02T22:15:00" is not a time`},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			_, err := policy.ParseCases([]byte(test.source))
			if err == nil {
				t.Fatalf("accepted:\n%s", test.source)
			}
			if !strings.Contains(err.Error(), test.want) {
				t.Errorf("got\n%v\nwant\n%s", err, test.want)
			}
		})
	}
}

// Everything that is wrong is said at once, in the order of the file.
func TestRefusedCasesAreListed(t *testing.T) {
	t.Parallel()
	_, err := policy.ParseCases([]byte("cases:\n  - name: n\n    action: a.b\n    expect: {effect: deny}\n    owner: jane\n  - name: m\n    expect: {effect: no}\n"))
	want := `[5:12] cases[0].owner: "jane" is not a Slack user id (like U024BE7LH)
[6:5] cases[1]: action is missing; an action is INTEGRATION.TOOL
[7:22] cases[1].expect.effect: is "no"; allow, require_approval and deny are accepted`
	if diff := cmp.Diff(want, err.Error()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// Arguments that are written as JSON, which is YAML too, are that JSON.
func TestArgumentsWrittenAsJSON(t *testing.T) {
	t.Parallel()
	var value func(depth int) *rapid.Generator[any]
	value = func(depth int) *rapid.Generator[any] {
		kinds := []*rapid.Generator[any]{
			rapid.Just[any](nil),
			rapid.Bool().AsAny(),
			rapid.StringMatching(`[ -~é漢\n\t]{0,20}`).AsAny(),
			rapid.SampledFrom([]any{"", "~", "1", "0.10", "true", "no", "<<", "*a", "&a", "!t", "- a", "a: b", "# c", "'", "\"", "\\", "---", "\u2028", "😀", "%x", "@", "`", " a ", "a\nb"}),
			rapid.Map(rapid.StringMatching(`-?(0|[1-9][0-9]{0,25})(\.[0-9]{1,5})?([eE][+-]?[0-9]{1,3})?`), func(digits string) any { return json.Number(digits) }),
		}
		if depth > 0 {
			kinds = append(kinds,
				rapid.SliceOfN(value(depth-1), 0, 4).AsAny(),
				rapid.MapOfN(rapid.StringMatching(`[ -~]{1,6}`), value(depth-1), 0, 4).AsAny())
		}
		return rapid.OneOf(kinds...)
	}
	object := rapid.MapOfN(rapid.StringMatching(`[ -~]{1,6}`), value(3), 0, 4)
	rapid.Check(t, func(t *rapid.T) {
		args, err := json.Marshal(object.Draw(t, "args"))
		if err != nil {
			t.Fatal(err)
		}
		cases, err := policy.ParseCases([]byte("cases:\n  - name: n\n    action: a.b\n    expect: {effect: deny}\n    args: " + string(args) + "\n"))
		if err != nil {
			t.Fatalf("%s\n%v", args, err)
		}
		want, err := strictjson.Canonical(args)
		if err != nil {
			t.Fatal(err)
		}
		got, err := strictjson.Canonical(cases[0].Call.Payload)
		if err != nil || string(got) != string(want) {
			t.Fatalf("payload\n%s (%v)\nwant\n%s", got, err, want)
		}
	})
}

func FuzzParseCases(f *testing.F) {
	f.Add([]byte("cases:\n  - name: n\n    action: crm.delete_x\n    args: {ids: [1, 0.10, 1e400, \"a\"], b: {c: ~}}\n    expect: {effect: deny, count: unbounded}\n"))
	f.Add([]byte("cases:\n- {name: n, action: a.b, payload: '[1]', at: 2026-03-02T22:15:00+01:00, expect: {effect: allow, requires: [{role: r}], redacted: [/a]}}\n"))
	f.Add([]byte("cases: [{name: n, action: a.b, args: {? a : b}, expect: {effect: deny}}]"))
	p, err := policy.Parse([]byte(example))
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, source []byte) {
		cases, err := policy.ParseCases(source)
		if err != nil {
			return
		}
		for _, one := range cases {
			if err := strictjson.Check(one.Call.Payload); err != nil {
				t.Errorf("%q: %v", one.Call.Payload, err)
			}
		}
		report := p.Test(cases)
		if _, err := report.JUnit(); err != nil {
			t.Error(err)
		}
		_ = report.String()
	})
}
