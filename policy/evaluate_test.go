package policy_test

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/countersign/countersign/policy"
)

// smallest is a policy with only what is required, for tests to add to.
const smallest = `version: 1
mode: cautious
roles:
  oncall: {users: [U0ADA, U0GRACE]}
approval:
  requires: [{role: oncall}]
`

// at is a time as RFC 3339.
func at(text string) time.Time {
	made, err := time.Parse(time.RFC3339, text)
	if err != nil {
		panic(err)
	}
	return made
}

func number(n int64) *int64 { return &n }

// ids are the rules that took part, without the first, which is the class.
func ids(r policy.Ruling) []string {
	var all []string
	for _, rule := range r.Rules[1:] {
		all = append(all, rule.ID)
	}
	return all
}

// short is a ruling in few words: its effect, its tier, its class and the rules
// that fired.
func short(r policy.Ruling) string {
	words := []string{string(r.Effect), fmt.Sprint(int(r.Tier)), r.Rules[0].ID}
	if fired := ids(r); len(fired) > 0 {
		words = append(words, "by", strings.Join(fired, " "))
	}
	return strings.Join(words, " ")
}

// tiers are tools of each tier.
const tiers = `
integrations:
  crm: {tools: {one: {tier: 1}, two: {tier: 2}, three: {tier: 3}, four: {tier: 4}, five: {tier: 5}}}
`

func TestBuiltInModes(t *testing.T) {
	t.Parallel()
	for mode, want := range map[string][]string{
		"open":     {"allow", "allow", "allow", "allow", "allow"},
		"cautious": {"allow", "allow", "require_approval", "require_approval", "require_approval"},
		"strict":   {"allow", "require_approval", "require_approval", "deny", "deny"},
		"readonly": {"allow", "deny", "deny", "deny", "deny"},
	} {
		p := mustParse(t, strings.Replace(smallest, "cautious", mode, 1)+tiers)
		for i, tool := range []string{"one", "two", "three", "four", "five"} {
			r := p.Rule(policy.Call{Agent: "bot", Action: "crm." + tool, Payload: []byte("{}")})
			if string(r.Effect) != want[i] || r.Tier != policy.Tier(i+1) || r.Mode != mode {
				t.Errorf("%s does %+v with tier %d, want %s", mode, r, i+1, want[i])
			}
			if denied := fired(r, "mode-"+mode); (denied != nil) != (r.Effect == policy.Deny) {
				t.Errorf("%s of tier %d is %s by %v", mode, i+1, r.Effect, ids(r))
			}
			if asks := len(r.Requirement.Roles) > 0; asks != (r.Effect == policy.RequireApproval) || (len(r.Scopes) > 0) != asks {
				t.Errorf("%s of tier %d is %s and requires %+v of scopes %v", mode, i+1, r.Effect, r.Requirement, r.Scopes)
			}
		}
	}
}

// The mode that an integration has for an environment beats all. Else the
// stricter of the integration's and the environment's counts, tier by tier, and
// else the policy's.
func TestModeOfACall(t *testing.T) {
	t.Parallel()
	p := mustParse(t, smallest+`
modes:
  odd: {1: require_approval, 2: require_approval, 3: require_approval, 4: require_approval, 5: require_approval}
environments:
  staging: {mode: open}
  test: {}
  locked: {mode: strict}
integrations:
  plain: {tools: {"1": {tier: 1}, "2": {tier: 2}, "4": {tier: 4}}}
  loose: {mode: open, tools: {"1": {tier: 1}, "2": {tier: 2}, "4": {tier: 4}}}
  odd: {mode: odd, tools: {"1": {tier: 1}, "2": {tier: 2}, "4": {tier: 4}}}
  special: {mode: odd, environments: {locked: open, staging: readonly}, tools: {"1": {tier: 1}, "2": {tier: 2}, "4": {tier: 4}}}
`)
	for _, test := range []struct{ action, environment, want string }{
		{"plain.2", "production", "cautious allow"},
		{"plain.4", "test", "cautious require_approval"},
		{"plain.4", "staging", "open allow"},
		{"plain.4", "locked", "strict deny"},
		{"loose.4", "production", "open allow"},
		{"loose.4", "test", "open allow"},
		{"loose.4", "staging", "open allow"},
		{"loose.4", "locked", "strict deny"},
		// For one tier the integration's is the stricter, for another the
		// environment's.
		{"odd.1", "locked", "odd require_approval"},
		{"odd.2", "locked", "odd require_approval"},
		{"odd.4", "locked", "strict deny"},
		{"odd.4", "staging", "odd require_approval"},
		{"special.4", "locked", "open allow"},
		{"special.2", "staging", "readonly deny"},
		{"special.1", "production", "odd require_approval"},
		{"other.1", "production", "cautious require_approval"}, // unclassified
		{"other.1", "locked", "strict deny"},
		{"other.1", "staging", "open require_approval"},
	} {
		r := p.Rule(policy.Call{Agent: "bot", Action: test.action, Environment: test.environment, Payload: []byte("{}")})
		if got := r.Mode + " " + string(r.Effect); got != test.want {
			t.Errorf("%s in %s: %s, want %s", test.action, test.environment, got, test.want)
		}
	}
}

func TestEnvironments(t *testing.T) {
	t.Parallel()
	p := mustParse(t, smallest+"environments: {staging: {names: [stage, Größe]}, production: {names: [live]}}\n")
	for stated, want := range map[string]string{
		"":                     "production",
		"production":           "production",
		"Live":                 "production",
		"LIVE":                 "production",
		"staging":              "staging",
		"Staging":              "staging",
		"STAGE":                "staging",
		"grösse":               "production",
		"GRÖßE":                "staging",
		"stagings":             "production",
		" staging":             "production",
		"staging\n":            "production",
		"st\u0430ging":         "production", // with a Cyrillic а
		"test":                 "production",
		"staging,production":   "production",
		"\xff":                 "production",
		"stag\u0131ng":         "production", // without its dot
		strings.Repeat("a", 9): "production",
	} {
		if got := p.Rule(policy.Call{Action: "a.b", Environment: stated}).Environment; got != want {
			t.Errorf("%q is %s, want %s", stated, got, want)
		}
	}
}

func TestClasses(t *testing.T) {
	t.Parallel()
	p := mustParse(t, smallest+`
integrations:
  crm:
    tools:
      "*": {tier: 1}
      get_*: {tier: 1, bulk: [{over: 3, raise_to: 2}]}
      "*_all": {tier: 3, count: 'size(args.a)', bulk: [{over: 2, raise_to: 5}]}
      get_all: {tier: 2}
      v2.purge: {tier: 5}
      v2.*: {tier: 2}
      get/one: {tier: 2}
      put_*: {tier: 3}
      put_x*: {tier: 2}
  empty: {}
  acme/crm: {tools: {get: {tier: 1}}}
`)
	for action, want := range map[string]string{
		"crm.list":                        "allow 1 crm.*",
		"crm.get_one":                     "allow 1 crm.* + crm.get_*",
		"crm.get_all":                     "allow 2 crm.get_all", // the exact name counts alone
		"crm.drop_all":                    "require_approval 5 crm.* + crm.*_all by bulk",
		"crm.v2.purge":                    "require_approval 5 crm.v2.purge",
		"crm.v2.get":                      "allow 2 crm.* + crm.v2.*",
		"crm.put_xy":                      "require_approval 3 crm.* + crm.put_* + crm.put_x*", // the highest counts
		"crm.get/one":                     "allow 2 crm.get/one",
		"crm.":                            "allow 1 crm.*",
		"acme/crm.get":                    "allow 1 acme/crm.get",
		"acme/crm.put":                    "require_approval 4 unclassified",
		"empty.get":                       "require_approval 4 unclassified",
		"other.get":                       "require_approval 4 unclassified",
		"CRM.list":                        "require_approval 4 unclassified",
		"Crm.get_all":                     "require_approval 4 unclassified",
		"crm.GET_ALL":                     "allow 2 crm.*", // is another tool, and not less than crm.get_all
		"list":                            "require_approval 4 unclassified",
		".list":                           "require_approval 4 unclassified",
		"":                                "require_approval 4 unclassified",
		"crm":                             "require_approval 4 unclassified",
		" crm.list":                       "require_approval 4 unclassified",
		"crm.list ":                       "require_approval 4 unclassified",
		"crm.list\n":                      "require_approval 4 unclassified",
		"crm.l\u0456st":                   "require_approval 4 unclassified", // with a Cyrillic і
		"crm.list\u200b":                  "require_approval 4 unclassified",
		"crm.*":                           "require_approval 4 unclassified", // is no pattern
		"crm.\xff":                        "require_approval 4 unclassified",
		"crm." + strings.Repeat("a", 196): "allow 1 crm.*",
		"crm." + strings.Repeat("a", 197): "require_approval 4 unclassified",
	} {
		r := p.Rule(policy.Call{Agent: "bot", Action: action, Payload: []byte(`{"a": [1, 2, 3]}`)})
		if got := short(r); got != want {
			t.Errorf("%q: %s, want %s", action, got, want)
		}
		if r.Classified == (r.Rules[0].ID == "unclassified") {
			t.Errorf("%q: classified is %t", action, r.Classified)
		}
	}
}

// Whatever the mode, what isn't classified is never allowed.
func TestUnclassified(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"open", "cautious", "strict", "readonly"} {
		for _, setting := range []string{"", "unclassified: require_approval\n", "unclassified: deny\n"} {
			p := mustParse(t, strings.Replace(smallest, "cautious", mode, 1)+setting+"rules: [{id: down, actions: ['*'], lower_to: 1, why: Down.}]\n")
			r := p.Rule(policy.Call{Agent: "bot", Action: "crm.get", Payload: []byte("{}"), Hints: policy.Hints{ReadOnly: isTrue()}})
			want := "require_approval 4 unclassified"
			if mode == "strict" || mode == "readonly" {
				want = "deny 4 unclassified by mode-" + mode
			} else if strings.Contains(setting, "deny") {
				want = "deny 4 unclassified"
			}
			if got := short(r); got != want {
				t.Errorf("%s, %q: %s, want %s", mode, setting, got, want)
			}
			if r.Effect == policy.Deny && r.Reason() == "" || r.Decider() == "" {
				t.Errorf("%s, %q: denied without a reason: %+v", mode, setting, r)
			}
		}
	}
}

func isTrue() *bool  { return ptr(true) }
func isFalse() *bool { return ptr(false) }

func ptr[T any](value T) *T { return &value }

func TestBlock(t *testing.T) {
	t.Parallel()
	p := mustParse(t, strings.Replace(smallest, "cautious", "open", 1)+`
environments: {staging: {}}
integrations: {crm: {tools: {"*": {tier: 1, count: args.n}}}}
block:
  - {id: no-drop, actions: ["*.Drop_*", sweep], environments: [production], why: Nothing is dropped.}
  - {id: no-bulk, actions: [crm.send], when: args.n > 3, why: Not so many.}
  - {id: no-many, actions: [crm.tag], count_over: 3, why: Not so many.}
  - {id: no-bot, actions: ["*"], agents: [bad-bot], why: It is suspended.}
`)
	for _, test := range []struct {
		call policy.Call
		want string
	}{
		{policy.Call{Action: "crm.drop_table"}, "deny 1 crm.* by no-drop"},
		{policy.Call{Action: "crm.DROP_table"}, "deny 1 crm.* by no-drop"},
		{policy.Call{Action: "CRM.drop_table"}, "deny 4 unclassified by no-drop"}, // in other case too
		{policy.Call{Action: "other.drop_table"}, "deny 4 unclassified by no-drop"},
		{policy.Call{Action: "crm.drop_table", Environment: "nowhere"}, "deny 1 crm.* by no-drop"},
		{policy.Call{Action: "crm.drop_table", Environment: "staging"}, "allow 1 crm.*"},
		{policy.Call{Action: "crm.\u212Adrop_table"}, "require_approval 4 unclassified"}, // is no drop
		{policy.Call{Action: "crm.dr\u043Ep_table"}, "require_approval 4 unclassified"},
		{policy.Call{Action: "sweep"}, "deny 4 unclassified by no-drop"},
		{policy.Call{Action: "Sweep"}, "deny 4 unclassified by no-drop"},
		{policy.Call{Action: "crm.send", Payload: []byte(`{"n": 3}`)}, "allow 1 crm.*"},
		{policy.Call{Action: "crm.send", Payload: []byte(`{"n": 4}`)}, "deny 1 crm.* by no-bulk"},
		{policy.Call{Action: "crm.send", Payload: []byte(`{}`)}, "deny 1 crm.* by no-bulk"}, // can't be worked out
		{policy.Call{Action: "crm.send"}, "deny 1 crm.* by no-bulk"},
		{policy.Call{Action: "crm.tag", Payload: []byte(`{"n": 3}`)}, "allow 1 crm.*"},
		{policy.Call{Action: "crm.tag", Payload: []byte(`{"n": 4}`)}, "deny 1 crm.* by no-many"},
		{policy.Call{Action: "crm.tag", Payload: []byte(`{"n": 3}`), Count: number(4)}, "deny 1 crm.* by no-many"},
		{policy.Call{Action: "crm.tag", Payload: []byte(`{}`)}, "deny 1 crm.* by no-many"},
		{policy.Call{Action: "crm.get", Agent: "bad-bot"}, "deny 1 crm.* by no-bot"},
		{policy.Call{Action: "crm.get", Agent: "bad-bots"}, "allow 1 crm.*"},
	} {
		if got := short(p.Rule(test.call)); got != test.want {
			t.Errorf("%+v: %s, want %s", test.call, got, test.want)
		}
	}
	denied := p.Rule(policy.Call{Action: "crm.send"})
	if block := fired(denied, "no-bulk"); !block.Failed || denied.Reason() != "Not so many." || denied.Decider() != "no-bulk" {
		t.Errorf("got %+v", denied)
	}
}

// The larger of what the agent states and what the arguments say counts, and
// what can't be worked out is unbounded.
func TestCount(t *testing.T) {
	t.Parallel()
	p := mustParse(t, smallest+`
integrations:
  crm:
    tools:
      expression: {tier: 3, count: 'size(args.ids)', bulk: [{over: 3, raise_to: 4}, {over: 10, raise_to: 5}, {over: 12, raise_to: 5}]}
      listed: {tier: 3, bulk: [{over: 3, raise_to: 4}]}
      unsigned: {tier: 3, count: 'uint(args.n)', bulk: [{over: 3, raise_to: 4}]}
      typed: {tier: 3, count: 'args.n', bulk: [{over: 3, raise_to: 4}]}
      two_*: {tier: 3, count: 'args.n'}
      "*_three": {tier: 3, count: 'args.m', bulk: [{over: 3, raise_to: 4}]}
`)
	list := func(n int) string { return "[1" + strings.Repeat(",1", n-1) + "]" }
	for _, test := range []struct {
		action, payload string
		stated          *int64
		count           string
		want            string
	}{
		{"crm.expression", `{"ids": []}`, nil, "0", "require_approval 3 crm.expression"},
		{"crm.expression", `{"ids": [1, 2, 3]}`, nil, "3", "require_approval 3 crm.expression"},
		{"crm.expression", `{"ids": [1, 2, 3, 4]}`, nil, "4", "require_approval 4 crm.expression by bulk"},
		{"crm.expression", `{"ids": ` + list(10) + `}`, nil, "10", "require_approval 4 crm.expression by bulk"},
		{"crm.expression", `{"ids": ` + list(11) + `}`, nil, "11", "require_approval 5 crm.expression by bulk"},
		{"crm.expression", `{"ids": [1]}`, number(3), "3", "require_approval 3 crm.expression"},
		{"crm.expression", `{"ids": [1]}`, number(4), "4", "require_approval 4 crm.expression by bulk"},
		{"crm.expression", `{"ids": [1, 2, 3, 4]}`, number(0), "4", "require_approval 4 crm.expression by bulk"},
		{"crm.expression", `{"ids": [1, 2, 3, 4]}`, number(-5), "4", "require_approval 4 crm.expression by bulk"},
		{"crm.expression", `{"ids": [1]}`, number(math.MaxInt64), "9,223,372,036,854,776,000", "require_approval 5 crm.expression by bulk"},
		// Another list isn't what counts, if an expression says what does.
		{"crm.expression", `{"ids": [1], "fields": [1, 2, 3, 4]}`, nil, "1", "require_approval 3 crm.expression"},
		{"crm.expression", `{}`, nil, "unbounded", "require_approval 5 crm.expression by bulk"},
		{"crm.expression", `{}`, number(1), "unbounded", "require_approval 5 crm.expression by bulk"},
		{"crm.expression", `{"ids": 7}`, nil, "unbounded", "require_approval 5 crm.expression by bulk"},
		{"crm.expression", `{"ids": "1,2"}`, nil, "3", "require_approval 3 crm.expression"}, // three characters
		{"crm.expression", ``, nil, "unbounded", "require_approval 5 crm.expression by bulk"},
		{"crm.listed", `{"ids": [1], "fields": [1, 2, 3, 4]}`, nil, "4", "require_approval 4 crm.listed by bulk"},
		{"crm.listed", `{"where": {"ids": [1, 2, 3, 4]}}`, nil, "unknown", "require_approval 3 crm.listed"},
		{"crm.listed", `[1, 2, 3, 4]`, nil, "4", "require_approval 4 crm.listed by bulk"},
		{"crm.listed", `{}`, nil, "unknown", "require_approval 3 crm.listed"},
		{"crm.listed", `{}`, number(4), "4", "require_approval 4 crm.listed by bulk"},
		{"crm.listed", `{}`, number(-4), "-4", "require_approval 3 crm.listed"},
		{"crm.listed", `{"ids": [1]}`, number(2), "2", "require_approval 3 crm.listed"},
		{"crm.listed", `{`, nil, "unbounded", "require_approval 4 crm.listed by bulk"},
		{"crm.unsigned", `{"n": 4}`, nil, "4", "require_approval 4 crm.unsigned by bulk"},
		{"crm.unsigned", `{"n": -4}`, nil, "unbounded", "require_approval 4 crm.unsigned by bulk"},
		{"crm.typed", `{"n": 3}`, nil, "3", "require_approval 3 crm.typed"},
		{"crm.typed", `{"n": 3.0}`, nil, "3", "require_approval 3 crm.typed"},
		{"crm.typed", `{"n": 3.5}`, nil, "3.5", "require_approval 4 crm.typed by bulk"},
		{"crm.typed", `{"n": -0}`, nil, "0", "require_approval 3 crm.typed"},
		{"crm.typed", `{"n": -0.0}`, nil, "0", "require_approval 3 crm.typed"},
		{"crm.typed", `{"n": -1}`, nil, "unbounded", "require_approval 4 crm.typed by bulk"},
		{"crm.typed", `{"n": "3"}`, nil, "unbounded", "require_approval 4 crm.typed by bulk"},
		{"crm.typed", `{"n": true}`, nil, "unbounded", "require_approval 4 crm.typed by bulk"},
		{"crm.typed", `{"n": null}`, nil, "unbounded", "require_approval 4 crm.typed by bulk"},
		{"crm.typed", `{"n": 1e400}`, nil, "unbounded", "require_approval 4 crm.typed by bulk"},
		{"crm.typed", `{"n": 9223372036854775808}`, nil, "unbounded", "require_approval 4 crm.typed by bulk"},
		// The stanzas of all patterns count together.
		{"crm.two_three", `{"n": 1, "m": 3}`, nil, "3", "require_approval 3 crm.*_three + crm.two_*"},
		{"crm.two_three", `{"n": 4, "m": 3}`, nil, "4", "require_approval 4 crm.*_three + crm.two_* by bulk"},
		{"crm.two_three", `{"m": 3}`, nil, "unbounded", "require_approval 4 crm.*_three + crm.two_* by bulk"},
		{"crm.two", `{"n": 4}`, nil, "unknown", "require_approval 4 unclassified"},
	} {
		r := p.Rule(policy.Call{Agent: "bot", Action: test.action, Payload: []byte(test.payload), Count: test.stated})
		if got := r.Count.String(); got != test.count {
			t.Errorf("%s %s: the count is %s, want %s", test.action, test.payload, got, test.count)
		}
		if got := short(r); got != test.want {
			t.Errorf("%s %s: %s, want %s", test.action, test.payload, got, test.want)
		}
		if bulk := fired(r, "bulk"); bulk != nil && bulk.Failed != r.Count.Unbounded {
			t.Errorf("%s %s: %+v", test.action, test.payload, bulk)
		}
	}
}

// The reason names the highest threshold that was passed.
func TestReasonOfThresholds(t *testing.T) {
	t.Parallel()
	p := mustParse(t, smallest+`
integrations:
  pay:
    tools:
      refund: {tier: 3, count: 'size(args.ids)', bulk: [{over: 1, raise_to: 4}, {over: 2, raise_to: 4}, {over: 3000, raise_to: 5}], amount: args.n, high_value: [{over: 1000, raise_to: 5}]}
`)
	for payload, want := range map[string]string{
		`{"ids": [1, 2, 3], "n": 1180.5}`: "pay.refund is tier 3, external-facing. The count, 3, is more than 2. The amount, 1,180.5, is more than 1,000.",
		`{}`:                              "pay.refund is tier 3, external-facing. The count couldn't be worked out, so it counts as more than 3,000. The amount couldn't be worked out, so it counts as more than 1,000.",
		`{"ids": [1], "n": 1000}`:         "pay.refund is tier 3, external-facing, which mode cautious leaves to a person.",
	} {
		if got := p.Rule(policy.Call{Action: "pay.refund", Payload: []byte(payload)}).Reason(); got != want {
			t.Errorf("%s\ngot  %s\nwant %s", payload, got, want)
		}
	}
}

func TestAmount(t *testing.T) {
	t.Parallel()
	p := mustParse(t, smallest+`
integrations:
  pay:
    tools:
      refund: {tier: 3, amount: 'double(args.amount)', high_value: [{over: 1000, raise_to: 5}]}
      charge: {tier: 3}
rules:
  - {id: dear, actions: ["pay.*"], amount_over: 500, raise_to: 4, why: It's dear.}
  - {id: cheap, actions: [pay.refund, pay.charge], amount_at_most: 10, lower_to: 2, why: It's cheap.}
`)
	for payload, want := range map[string]string{
		`{"amount": 0}`:       "allow 2 pay.refund by cheap",
		`{"amount": 10}`:      "allow 2 pay.refund by cheap",
		`{"amount": "10.00"}`: "allow 2 pay.refund by cheap",
		`{"amount": 10.01}`:   "require_approval 3 pay.refund",
		`{"amount": 500}`:     "require_approval 3 pay.refund",
		`{"amount": 501}`:     "require_approval 4 pay.refund by dear",
		`{"amount": 1000}`:    "require_approval 4 pay.refund by dear",
		`{"amount": 1000.01}`: "require_approval 5 pay.refund by dear high-value",
		`{"amount": -5}`:      "require_approval 5 pay.refund by dear high-value",
		`{"amount": "1,500"}`: "require_approval 5 pay.refund by dear high-value",
		`{"amount": "NaN"}`:   "require_approval 5 pay.refund by dear high-value",
		`{"amount": "Inf"}`:   "require_approval 5 pay.refund by dear high-value",
		`{"amount": [1]}`:     "require_approval 5 pay.refund by dear high-value",
		`{"amount": 1e400}`:   "require_approval 5 pay.refund by dear high-value",
		`{}`:                  "require_approval 5 pay.refund by dear high-value",
	} {
		r := p.Rule(policy.Call{Action: "pay.refund", Payload: []byte(payload)})
		if got := short(r); got != want {
			t.Errorf("%s: %s, want %s", payload, got, want)
		}
		if failed := fired(r, "high-value") != nil && payload != `{"amount": 1000.01}`; r.Amount.Unbounded != failed {
			t.Errorf("%s: the amount is %s", payload, r.Amount)
		}
	}
	// Without an expression nothing says the amount, and nothing is lowered.
	if got := short(p.Rule(policy.Call{Action: "pay.charge", Payload: []byte(`{"amount": 1}`)})); got != "require_approval 3 pay.charge" {
		t.Error(got)
	}
}

// The policy's own bulk thresholds are for what changes something, and for what
// isn't classified, which may.
func TestBulkOfThePolicy(t *testing.T) {
	t.Parallel()
	p := mustParse(t, smallest+"bulk: [{over: 2, raise_to: 4}, {over: 4, raise_to: 5}]\n"+
		"rules: [{id: writes, actions: [crm.read], raise_to: 2, why: It writes too.}]\n"+
		strings.Replace(tiers, "one: {tier: 1}", "one: {tier: 1}, read: {tier: 1}", 1))
	for _, test := range []struct{ action, payload, want string }{
		{"crm.one", `[1, 2, 3]`, "allow 1 crm.one"},
		{"crm.two", `[1, 2]`, "allow 2 crm.two"},
		{"crm.two", `[1, 2, 3]`, "require_approval 4 crm.two by bulk"},
		{"crm.three", `[1, 2, 3, 4, 5]`, "require_approval 5 crm.three by bulk"},
		{"crm.five", `[1, 2, 3]`, "require_approval 5 crm.five by bulk"},
		{"crm.six", `[1, 2, 3, 4, 5]`, "require_approval 5 unclassified by bulk"},
		{"crm.read", `[1, 2, 3]`, "require_approval 4 crm.read by bulk writes"}, // a read that a rule raised to a write
	} {
		if got := short(p.Rule(policy.Call{Action: test.action, Payload: []byte(test.payload)})); got != test.want {
			t.Errorf("%s %s: %s, want %s", test.action, test.payload, got, test.want)
		}
	}
}

// Of what lowers, the lowest counts, and whatever raises beats it.
func TestRaisingAndLowering(t *testing.T) {
	t.Parallel()
	p := mustParse(t, smallest+`
environments: {staging: {}}
integrations: {crm: {tools: {delete: {tier: 4, count: size(args.ids)}, remove: {tier: 4}, get: {tier: 1}, Get: {tier: 4}}}}
rules:
  - {id: a-few, actions: [crm.delete, crm.remove, crm.get], environments: [staging], count_at_most: 2, lower_to: 2, why: Few.}
  - {id: b-staging, actions: [crm.delete, crm.remove, crm.get, crm.other], environments: [staging], lower_to: 3, why: Staging.}
  - {id: c-note, actions: [crm.*], environments: [staging], when: 'args.note == "x"', lower_to: 1, why: Note.}
  - {id: d-many, count_over: 5, raise_to: 5, why: Many.}
  - {id: e-bot, agents: [bot], environments: [staging], when: 'args.note == "bot"', raise_to: 3, why: Bot.}
  - {id: f-case, actions: [CRM.Delete], when: 'args.note == "case"', raise_to: 5, why: Case.}
  - {id: g-case, actions: [CRM.Delete], lower_to: 1, why: Never.}
`)
	for _, test := range []struct{ action, environment, agent, payload, want string }{
		{"crm.delete", "production", "bot", `{"ids": [1], "note": ""}`, "require_approval 4 crm.delete"},
		{"crm.delete", "staging", "bot", `{"ids": [1], "note": ""}`, "allow 2 crm.delete by a-few b-staging"},
		{"crm.delete", "staging", "bot", `{"ids": [1, 2], "note": "x"}`, "allow 1 crm.delete by a-few b-staging c-note"},
		{"crm.delete", "staging", "bot", `{"ids": [1, 2, 3], "note": ""}`, "require_approval 3 crm.delete by b-staging"},
		{"crm.delete", "staging", "bot", `{"ids": [1, 2, 3]}`, "require_approval 5 crm.delete by b-staging e-bot f-case"}, // conditions fail
		{"crm.delete", "staging", "bot", `{"note": ""}`, "require_approval 5 crm.delete by b-staging d-many"},             // the count is unbounded
		{"crm.delete", "staging", "bot", `{"ids": [1], "note": "bot"}`, "require_approval 3 crm.delete by a-few b-staging e-bot"},
		{"crm.delete", "staging", "cat", `{"ids": [1], "note": "bot"}`, "allow 2 crm.delete by a-few b-staging"},
		{"crm.delete", "production", "cat", `{"ids": [1, 2, 3, 4, 5, 6], "note": ""}`, "require_approval 5 crm.delete by d-many"},
		{"crm.delete", "staging", "cat", `{"ids": [1], "note": "case"}`, "require_approval 5 crm.delete by a-few b-staging f-case"},
		// Nothing proves how many: a list isn't an expression.
		{"crm.remove", "staging", "cat", `{"ids": [1], "note": ""}`, "require_approval 3 crm.remove by b-staging"},
		// What is lower already isn't lowered.
		{"crm.get", "staging", "cat", `{"ids": [1], "note": "x"}`, "allow 1 crm.get"},
		// Nor is another tool, whose name differs by case only.
		{"crm.Get", "staging", "cat", `{"note": ""}`, "require_approval 4 crm.Get"},
		// What isn't classified never is.
		{"crm.other", "staging", "cat", `{"ids": [1], "note": "x"}`, "require_approval 4 unclassified"},
		{"CRM.Delete", "staging", "cat", `{"ids": [1], "note": "x"}`, "require_approval 4 unclassified"},
		{"CRM.DELETE", "staging", "cat", `{"ids": [1], "note": "case"}`, "require_approval 5 unclassified by f-case"},
	} {
		r := p.Rule(policy.Call{Action: test.action, Environment: test.environment, Agent: test.agent, Payload: []byte(test.payload)})
		if got := short(r); got != test.want {
			t.Errorf("%s in %s by %s of %s: %s, want %s", test.action, test.environment, test.agent, test.payload, got, test.want)
		}
	}
}

func TestFailedRulesSaySo(t *testing.T) {
	t.Parallel()
	p := mustParse(t, smallest+tiers+"rules: [{id: up, actions: [crm.one], when: args.a == 1, raise_to: 3, why: ' It is one. '}]\n")
	for payload, want := range map[string][]policy.FiredRule{
		`{"a": 1}`: {{ID: "crm.one", Why: "crm.one is tier 1, read."}, {ID: "up", Why: "It is one.", RaiseTo: 3}},
		`{}`:       {{ID: "crm.one", Why: "crm.one is tier 1, read."}, {ID: "up", Why: "It is one.", RaiseTo: 3, Failed: true}},
		`{"a": 2}`: {{ID: "crm.one", Why: "crm.one is tier 1, read, which mode cautious allows."}},
	} {
		got := p.Rule(policy.Call{Action: "crm.one", Payload: []byte(payload)}).Rules
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", payload, diff)
		}
	}
}

// What a tool's server says can raise a tier and never lower one.
func TestHints(t *testing.T) {
	t.Parallel()
	p := mustParse(t, smallest+tiers)
	for _, test := range []struct {
		action string
		hints  policy.Hints
		want   string
	}{
		{"crm.one", policy.Hints{}, "allow 1 crm.one"},
		{"crm.one", policy.Hints{ReadOnly: isTrue(), Destructive: isFalse(), Idempotent: isTrue(), OpenWorld: isFalse()}, "allow 1 crm.one"},
		{"crm.one", policy.Hints{ReadOnly: isFalse()}, "allow 2 crm.one by hint-not-read-only"},
		{"crm.one", policy.Hints{Destructive: isTrue()}, "require_approval 4 crm.one by hint-destructive"},
		{"crm.one", policy.Hints{Destructive: isTrue(), ReadOnly: isTrue()}, "require_approval 4 crm.one by hint-destructive"},
		{"crm.one", policy.Hints{Destructive: isTrue(), ReadOnly: isFalse()}, "require_approval 4 crm.one by hint-destructive hint-not-read-only"},
		{"crm.five", policy.Hints{ReadOnly: isTrue(), Destructive: isFalse()}, "require_approval 5 crm.five"},
		{"crm.five", policy.Hints{Destructive: isTrue()}, "require_approval 5 crm.five by hint-destructive"},
		{"crm.six", policy.Hints{ReadOnly: isTrue()}, "require_approval 4 unclassified"},
	} {
		if got := short(p.Rule(policy.Call{Action: test.action, Hints: test.hints, Payload: []byte("{}")})); got != test.want {
			t.Errorf("%s: %s, want %s", test.action, got, test.want)
		}
	}
}

// The first use asks a person, and never makes a denied call of one that would
// have been asked about.
func TestFirstUse(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, of, action, environment string
		first                         policy.FirstUse
		want, why                     string
	}{
		{"of the tool", "{of: [tool]}", "crm.one", "", policy.FirstUse{Tool: true}, "require_approval 4 crm.one by first-use", "The agent uses crm.one for the first time in production."},
		{"of the integration", "{of: [integration]}", "crm.one", "", policy.FirstUse{Tool: true, Integration: true}, "require_approval 4 crm.one by first-use", "The agent uses crm for the first time in production."},
		{"of the agent", "{of: [tool, integration, agent]}", "crm.one", "", policy.FirstUse{Tool: true, Integration: true, Agent: true}, "require_approval 4 crm.one by first-use", "The agent bot is used for the first time in production."},
		{"of the tool, which isn't asked about", "{of: [integration, agent]}", "crm.one", "", policy.FirstUse{Tool: true}, "allow 1 crm.one", ""},
		{"of nothing", "{of: [tool, integration, agent]}", "crm.one", "", policy.FirstUse{}, "allow 1 crm.one", ""},
		{"in staging", "{of: [tool]}", "crm.one", "staging", policy.FirstUse{Tool: true}, "allow 1 crm.one", ""},
		{"in staging, which is asked about", "{of: [tool], environments: [staging]}", "crm.one", "staging", policy.FirstUse{Tool: true}, "require_approval 4 crm.one by first-use", "The agent uses crm.one for the first time in staging."},
		{"in production, which isn't asked about", "{of: [tool], environments: [staging]}", "crm.one", "", policy.FirstUse{Tool: true}, "allow 1 crm.one", ""},
		{"to a lower tier", "{of: [tool], raise_to: 1}", "crm.one", "", policy.FirstUse{Tool: true}, "require_approval 1 crm.one by first-use", "The agent uses crm.one for the first time in production."},
		{"of a higher tier", "{of: [tool], raise_to: 3}", "crm.five", "", policy.FirstUse{Tool: true}, "require_approval 5 crm.five by first-use", "The agent uses crm.five for the first time in production."},
		// Strict denies tier 4, to which the first use raises: it asks all the same.
		{"where the tier would be denied", "{of: [tool]}", "locked.two", "", policy.FirstUse{Tool: true}, "require_approval 4 locked.two by first-use", "The agent uses locked.two for the first time in production."},
		{"of what is denied", "{of: [tool]}", "locked.four", "", policy.FirstUse{Tool: true}, "deny 4 locked.four by first-use mode-strict", "The agent uses locked.four for the first time in production."},
		{"of what is blocked", "{of: [tool]}", "crm.blocked", "", policy.FirstUse{Tool: true}, "deny 4 crm.blocked by blocked first-use", "The agent uses crm.blocked for the first time in production."},
		{"of what isn't classified", "{of: [tool], raise_to: 5}", "crm.six", "", policy.FirstUse{Tool: true}, "require_approval 5 unclassified by first-use", "The agent uses crm.six for the first time in production."},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			p := mustParse(t, smallest+`
environments: {staging: {}}
integrations:
  crm: {tools: {one: {tier: 1}, five: {tier: 5}, blocked: {tier: 1}}}
  locked: {mode: strict, tools: {two: {tier: 2}, four: {tier: 4}}}
block: [{id: blocked, actions: [crm.blocked], why: Blocked.}]
first_use: `+test.of+"\n")
			r := p.Rule(policy.Call{Agent: "bot", Action: test.action, Environment: test.environment, FirstUse: test.first, Payload: []byte("{}")})
			if got := short(r); got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
			why := ""
			if first := fired(r, "first-use"); first != nil {
				why = first.Why
			}
			if why != test.why {
				t.Errorf("got %q, want %q", why, test.why)
			}
			if r.FirstUse != test.first {
				t.Errorf("the ruling was told %+v", r.FirstUse)
			}
		})
	}
}

func TestHours(t *testing.T) {
	t.Parallel()
	p := mustParse(t, smallest+`
integrations: {crm: {tools: {get: {tier: 1}}}}
hours: {zone: Europe/Paris, days: [mon, tue, wed, thu, fri, sun], from: "07:00", to: "20:00"}
rules: [{id: night, when: '!in_hours', raise_to: 3, why: It's night.}]
`)
	for moment, want := range map[string]bool{
		"2026-01-05T05:59:59Z":      false, // a Monday in winter, one hour ahead of UTC
		"2026-01-05T06:00:00Z":      true,
		"2026-01-05T18:59:59Z":      true,
		"2026-01-05T19:00:00Z":      false,
		"2026-07-06T04:59:59Z":      false, // a Monday in summer, two hours ahead
		"2026-07-06T05:00:00Z":      true,
		"2026-07-06T18:00:00Z":      false,
		"2026-01-10T12:00:00Z":      false, // a Saturday
		"2026-01-11T12:00:00Z":      true,
		"2026-01-09T23:30:00Z":      false, // a Saturday there already
		"2026-01-05T07:00:00+01:00": true,  // the zone in which the moment is told doesn't matter
		"2026-01-05T15:00:00+09:00": true,
		"2026-01-05T14:59:00+09:00": false,
		// On the Sunday on which the clocks go forward at two, and back at three.
		"2026-03-29T04:59:59Z": false,
		"2026-03-29T05:00:00Z": true,
		"2026-03-28T05:30:00Z": false, // a Saturday anyway
		"2026-10-25T05:59:59Z": false,
		"2026-10-25T06:00:00Z": true,
	} {
		r := p.Rule(policy.Call{Action: "crm.get", Payload: []byte("{}"), At: at(moment)})
		if got := fired(r, "night") == nil; got != want {
			t.Errorf("%s: in hours is %t, want %t", moment, got, want)
		}
	}
}

// The day that counts is that of the zone, on which it may be another one.
func TestHoursOfAnotherDay(t *testing.T) {
	t.Parallel()
	p := mustParse(t, smallest+`
integrations: {crm: {tools: {get: {tier: 1}}}}
hours: {zone: Asia/Tokyo, days: [tue], from: "00:00", to: "24:00"}
rules: [{id: night, when: '!in_hours || weekday != "tue"', raise_to: 3, why: It's night.}]
`)
	for moment, want := range map[string]bool{
		"2026-01-05T14:59:59Z": false,
		"2026-01-05T15:00:00Z": true, // a Monday in UTC
		"2026-01-06T14:59:59Z": true,
		"2026-01-06T15:00:00Z": false, // still a Tuesday in UTC
	} {
		r := p.Rule(policy.Call{Action: "crm.get", Payload: []byte("{}"), At: at(moment)})
		if got := fired(r, "night") == nil; got != want {
			t.Errorf("%s: in hours is %t, want %t", moment, got, want)
		}
	}
}

// Hours whose limits the clock jumps over, or comes to twice.
func TestHoursWhenTheClockChanges(t *testing.T) {
	t.Parallel()
	p := mustParse(t, smallest+`
integrations: {crm: {tools: {get: {tier: 1}}}}
hours: {zone: Europe/Paris, days: [sun], from: "02:30", to: "02:45"}
rules: [{id: night, when: '!in_hours', raise_to: 3, why: It's night.}]
`)
	for moment, want := range map[string]bool{
		"2026-03-29T00:59:59Z": false, // 01:59:59, and then it's three
		"2026-03-29T01:00:00Z": false,
		"2026-03-29T01:30:00Z": false,
		"2026-10-25T00:29:59Z": false,
		"2026-10-25T00:30:00Z": true, // half past two
		"2026-10-25T00:45:00Z": false,
		"2026-10-25T01:30:00Z": true, // half past two again
		"2026-10-25T01:45:00Z": false,
	} {
		r := p.Rule(policy.Call{Action: "crm.get", Payload: []byte("{}"), At: at(moment)})
		if got := fired(r, "night") == nil; got != want {
			t.Errorf("%s: in hours is %t, want %t", moment, got, want)
		}
	}
}

// Without hours the day and the hour are those of UTC; the last minute of a day
// can be within.
func TestDayAndHour(t *testing.T) {
	t.Parallel()
	utc := mustParse(t, smallest+tiers+"rules: [{id: up, when: 'weekday == \"mon\" && hour == 23', raise_to: 3, why: Up.}]\n")
	if r := utc.Rule(policy.Call{Action: "crm.one", Payload: []byte("{}"), At: at("2026-01-06T01:30:00+02:00")}); fired(r, "up") == nil {
		t.Error("23:30 on a Monday in UTC isn't")
	}
	all := mustParse(t, smallest+tiers+"hours: {zone: UTC, days: [mon], from: '00:00', to: '24:00'}\nrules: [{id: up, when: in_hours, raise_to: 3, why: Up.}]\n")
	for moment, want := range map[string]bool{"2026-01-05T00:00:00Z": true, "2026-01-05T23:59:59Z": true, "2026-01-06T00:00:00Z": false, "2026-01-04T23:59:59Z": false} {
		if got := fired(all.Rule(policy.Call{Action: "crm.one", Payload: []byte("{}"), At: at(moment)}), "up") != nil; got != want {
			t.Errorf("%s: in hours is %t, want %t", moment, got, want)
		}
	}
}

// What approving takes is the tier's, key by key.
func TestApprovals(t *testing.T) {
	t.Parallel()
	p := mustParse(t, `version: 1
mode: cautious
roles:
  oncall: {users: [U0ADA, U0GRACE], groups: [S0ONCALL]}
  sre: {users: [U0SRE1, U0SRE1]}
  me: {users: [U0ME], self_approval: true}
agents: {billing: {owner: U0OWNER}}
approval:
  requires: [{role: me}]
  decide_within: 2h
  apply_within: 5m
  remind_after: [10m, 30m]
  escalate: {after: 30m, to: oncall}
  scopes: [once, session, 15m]
tiers:
  4: {requires: [{role: oncall, count: 2}, {role: me}], reason_required: true, self_approval: false, escalate: {after: 1h, to: sre}}
  5: {requires: [{role: oncall, count: 2}, {role: sre}], reason_required: true, remind_after: [], decide_within: 15m, scopes: [once]}
`+tiers)
	type terms struct {
		Requirement  policy.Requirement
		DecideWithin time.Duration
		ApplyWithin  time.Duration
		Scopes       []string
		RemindAfter  []time.Duration
		Escalation   policy.Escalation
	}
	for action, want := range map[string]terms{
		"crm.one": {DecideWithin: 2 * time.Hour, ApplyWithin: 5 * time.Minute},
		"crm.three": {
			policy.Requirement{Roles: []policy.RoleCount{{Role: "me", Count: 1, AllowSelf: true}}, Owner: "U0OWNER"}, 2 * time.Hour, 5 * time.Minute,
			[]string{"once", "session", "15m"}, []time.Duration{10 * time.Minute, 30 * time.Minute},
			policy.Escalation{After: 30 * time.Minute, To: "oncall", Users: []string{"U0ADA", "U0GRACE"}, Groups: []string{"S0ONCALL"}},
		},
		"crm.four": {
			policy.Requirement{Roles: []policy.RoleCount{{Role: "oncall", Count: 2}, {Role: "me", Count: 1}}, ReasonRequired: true, Owner: "U0OWNER"}, 2 * time.Hour, 5 * time.Minute,
			[]string{"once"}, []time.Duration{10 * time.Minute, 30 * time.Minute},
			policy.Escalation{After: time.Hour, To: "sre", Users: []string{"U0SRE1"}},
		},
		"crm.five": {
			policy.Requirement{Roles: []policy.RoleCount{{Role: "oncall", Count: 2}, {Role: "sre", Count: 1}}, ReasonRequired: true, Owner: "U0OWNER"}, 15 * time.Minute, 5 * time.Minute,
			[]string{"once"}, nil,
			policy.Escalation{After: 30 * time.Minute, To: "oncall", Users: []string{"U0ADA", "U0GRACE"}, Groups: []string{"S0ONCALL"}},
		},
	} {
		r := p.Rule(policy.Call{Agent: "billing", Action: action, Payload: []byte("{}")})
		got := terms{r.Requirement, r.DecideWithin, r.ApplyWithin, r.Scopes, r.RemindAfter, r.Escalation}
		if len(got.RemindAfter) == 0 {
			got.RemindAfter = nil
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", action, diff)
		}
	}
	if got := p.Rule(policy.Call{Agent: "other", Action: "crm.five", Payload: []byte("{}")}).Requirement.Owner; got != "" {
		t.Errorf("%s is behind an agent that the policy doesn't name", got)
	}
}

// A ruling is stored and read again as it was.
func TestRulingAsJSON(t *testing.T) {
	t.Parallel()
	p := mustParse(t, example)
	for _, call := range []policy.Call{
		{Agent: "bot", Action: "crm.refund", Payload: []byte(`{"amount": 5000}`), FirstUse: policy.FirstUse{Tool: true}},
		{Agent: "bot", Action: "crm.get_contact", Payload: []byte(`{}`)},
		{Agent: "bot", Action: "crm.drop_it", Payload: []byte(`{`)},
		{},
	} {
		want := p.Rule(call)
		text, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		var got policy.Ruling
		if err := json.Unmarshal(text, &got); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", text, diff)
		}
	}
}

// The rules after the first are in the order of their ids, each once.
func TestOrderOfFiredRules(t *testing.T) {
	t.Parallel()
	p := mustParse(t, smallest+tiers+`
block: [{id: hint-a, actions: ["crm.*", crm.one, "*"], why: A.}, {id: a, actions: [crm.one], why: A.}]
rules: [{id: z, raise_to: 4, why: Z.}, {id: c, actions: [crm.*, crm.one], raise_to: 2, why: C.}]
`)
	got := ids(p.Rule(policy.Call{Action: "crm.one", Hints: policy.Hints{ReadOnly: isFalse()}, Payload: []byte("{}")}))
	if want := []string{"a", "c", "hint-a", "hint-not-read-only", "z"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// One policy rules and explains calls of many agents at the same time.
func TestRulingConcurrently(t *testing.T) {
	t.Parallel()
	p := mustParse(t, everything)
	calls := []policy.Call{
		{Agent: "bot", Action: "crm.tag", Environment: "staging", Payload: []byte(`{"ids": [1, 2], "note": "x", "a": [1e400], "b": [1]}`)},
		{Agent: "bot", Action: "crm.refund", Payload: []byte(`{"amount": 5000}`)},
		{Agent: "cat", Action: "crm.drop_all", Payload: []byte(`{"ids": [1, 2, 3]}`)},
		{Agent: "cat", Action: "crm.send", Payload: []byte(`{"to": "ada@corp.example", "rows": [{"tags": ["vip"]}]}`)},
	}
	var want []policy.Ruling
	for _, call := range calls {
		want = append(want, mustParse(t, everything).Rule(call))
	}
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for i, call := range calls {
				if diff := cmp.Diff(want[i], p.Rule(call)); diff != "" {
					t.Errorf("%s (-alone +with others):\n%s", call.Action, diff)
				}
				if diff := cmp.Diff(want[i], p.Explain(call).Ruling); diff != "" {
					t.Errorf("%s (-alone +with others):\n%s", call.Action, diff)
				}
			}
		})
	}
	group.Wait()
}

// An action in another spelling isn't classified, and doesn't get around what
// the policy asks of the tool.
func TestRespelledActions(t *testing.T) {
	t.Parallel()
	p := mustParse(t, smallest+`
tiers: {5: {requires: [{role: oncall, count: 2}]}}
integrations:
  crm: {mode: readonly, tools: {send: {tier: 3, redact: [/token]}}}
  pay:
    tools:
      refund: {tier: 3, amount: 'args.amount', high_value: [{over: 1000, raise_to: 5}]}
      payout: {tier: 5}
      move_*: {tier: 5}
      "*": {tier: 1}
block:
  - {id: fortune, actions: [pay.*], amount_over: 1000000, why: That is too much.}
`)
	for _, test := range []struct{ action, payload, want string }{
		{"CRM.send", `{"token": "x"}`, "deny 4 unclassified by mode-readonly"},
		{"crm.Send", `{"token": "x"}`, "deny 4 unclassified by mode-readonly"},
		{"PAY.refund", `{"amount": 2000}`, "require_approval 5 unclassified by high-value"},
		{"PAY.refund", `{"amount": 2000000}`, "deny 5 unclassified by fortune high-value"},
		{"PAY.payout", `{}`, "require_approval 5 unclassified"},
		{"PAY.move_all", `{}`, "require_approval 5 unclassified"},
		{"pay.Payout", `{}`, "require_approval 5 pay.*"},
		{"pay.Refund", `{"amount": 2000}`, "require_approval 5 pay.* by high-value"},
		{"pay.look", `{}`, "allow 1 pay.*"},
	} {
		r := p.Rule(policy.Call{Action: test.action, Payload: []byte(test.payload)})
		if got := short(r); got != test.want {
			t.Errorf("%s %s: %s, want %s", test.action, test.payload, got, test.want)
		}
		if hidden := r.Redactions.Hide([]string{"token"}); hidden != strings.EqualFold(test.action, "crm.send") {
			t.Errorf("%s: the token is hidden: %v", test.action, hidden)
		}
	}
}

// An object is walked in the order of its keys, so that a condition that asks
// for the first one has one answer.
func TestObjectsAreWalkedInOrder(t *testing.T) {
	t.Parallel()
	p := mustParse(t, smallest+tiers+`
rules:
  - {id: first, when: 'args.map(k, k)[0] == "a" && args.o.filter(k, true)[1] == "y"', raise_to: 5, why: It begins with a.}
`)
	for range 100 {
		r := p.Rule(policy.Call{Action: "crm.one", Payload: []byte(`{"o": {"z": 1, "y": 1, "x": 1}, "c": 1, "b": 1, "a": 1}`)})
		if got := short(r); got != "require_approval 5 crm.one by first" {
			t.Fatal(got)
		}
	}
}
