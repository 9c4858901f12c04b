package policy_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/countersign/countersign/policy"
)

// everything is a policy with every kind of condition for the fuzz targets.
const everything = `version: 1
mode: open
environments:
  staging: {names: [stage]}
  production: {mode: cautious}
roles:
  oncall: {users: [U0ADA, U0GRACE]}
approval:
  requires: [{role: oncall}]
bulk: [{over: 25, raise_to: 4}]
first_use: {of: [tool, integration, agent]}
block:
  - {id: no-drop, actions: ["*.drop_*"], when: 'args.cascade != false', why: Nothing is dropped.}
integrations:
  crm:
    mode: strict
    environments: {staging: open}
    tools:
      get_*: {tier: 1}
      "*_all": {tier: 3, count: 'size(args.ids)', bulk: [{over: 2, raise_to: 5}]}
      refund: {tier: 2, target: 'args.customer.map(k, string(args.customer[k])).join("/")', idempotency: key, amount: 'double(args.amount)', high_value: [{over: 1000, raise_to: 5}], redact: [/customer/card, /rows/*/iban]}
      tag: {tier: 4, count: 'args.ids.filter(i, i > 0).size()'}
      send: {tier: 3, target: 'args.to'}
in_band: {tiers: [1, 2, 3], environments: [production, staging], modes: [strict]}
in_view: {tiers: [1, 2, 3, 4, 5], environments: [production, staging], modes: [strict]}
rules:
  - {id: away, when: 'target.startsWith("away") || target == args.b', raise_to: 4, why: It goes away.}
  - {id: outside, actions: [crm.send], when: '!args.to.endsWith("@corp.example")', raise_to: 4, why: The mail leaves the company.}
  - {id: rows, when: 'has(args.rows) && args.rows.exists(r, r.vip || r.tags.exists(t, t == "vip"))', raise_to: 3, why: Somebody important.}
  - {id: same, when: 'args.a == args.b || args.a in args.c', raise_to: 2, why: The same.}
  - {id: few, actions: [crm.tag, crm.*_all], environments: [staging], count_at_most: 3, when: 'args.ids == [1] || args.note.matches("^[a-z]+$")', lower_to: 1, why: Few.}
  - {id: cheap, actions: [crm.refund], amount_at_most: 10, lower_to: 1, why: Cheap.}
redact: {keys: [password]}
`

// FuzzParse reads files. One that is accepted rules every call, always alike.
func FuzzParse(f *testing.F) {
	f.Add([]byte(smallest))
	f.Add([]byte(example))
	f.Add([]byte(everything))
	f.Add([]byte(smallest + "modes: {own: {1: allow, 2: allow, 3: deny, 4: deny, 5: deny}}\nbulk: [{over: 1e3, raise_to: 5}]\n"))
	f.Add([]byte("? [a]\n: *x\n---\n!!str &x |-\n <<\n"))
	paths := []string{"testdata/example.yaml"}
	starters, err := filepath.Glob("starters/*/policy.yaml")
	if err != nil || len(starters) == 0 {
		f.Fatalf("no starter policies: %v", err)
	}
	for _, path := range append(paths, starters...) {
		source, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(source)
	}
	f.Fuzz(func(t *testing.T, source []byte) {
		p, err := policy.Parse(source)
		if err != nil {
			if p != nil || err.Error() == "" || !utf8.ValidString(err.Error()) {
				t.Fatalf("policy %v, error %q", p, err)
			}
			return
		}
		again, err := policy.Parse(source)
		if err != nil {
			t.Fatalf("accepted once: %v", err)
		}
		for _, c := range []policy.Call{
			{},
			{Agent: "bot", Action: "crm.get_contact", Payload: []byte(`{"ids": [1, 2], "amount": 5, "to": "ada@corp.example"}`)},
			{Agent: "bot", Action: "crm.delete_contact", Environment: "staging", Payload: []byte(`{"ids": [1e400]}`), At: at("2026-01-05T12:00:00Z")},
			{Agent: "bot", Action: "github.merge", Count: number(30), Payload: []byte(`{`), FirstUse: policy.FirstUse{Tool: true}, Hints: policy.Hints{Destructive: isTrue()}},
		} {
			r := requireRuling(t, p, c)
			if diff := cmp.Diff(r, again.Rule(c)); diff != "" {
				t.Fatalf("reading twice differs:\n%s", diff)
			}
		}
		if err := p.ValidateFor("U0ADA"); err != nil && !strings.Contains(err.Error(), "U0ADA") {
			t.Fatal(err)
		}
	})
}

// requireRuling rules a call and requires of the ruling what holds for each.
func requireRuling(t *testing.T, p *policy.Policy, c policy.Call) policy.Ruling {
	t.Helper()
	r := p.Rule(c)
	if wrong := valid(r); wrong != "" {
		t.Fatalf("%s: %+v", wrong, r)
	}
	if diff := cmp.Diff(r, p.Rule(c)); diff != "" {
		t.Fatalf("ruling twice differs:\n%s", diff)
	}
	if diff := cmp.Diff(r, p.Explain(c).Ruling); diff != "" {
		t.Fatalf("the explanation is of another ruling (-Rule +Explain):\n%s", diff)
	}
	return r
}

// FuzzRule rules calls. What isn't classified is never allowed, what isn't known
// to be another environment is production, and what can't be read isn't weaker
// than what can.
func FuzzRule(f *testing.F) {
	f.Add("crm.get_contact", "staging", []byte(`{}`), int64(-1), byte(0))
	f.Add("crm.delete_all", "stage", []byte(`{"ids": [1, 2, 3], "note": "x"}`), int64(2), byte(1))
	f.Add("crm.refund", "", []byte(`{"amount": "1000.01", "customer": {"card": "4111"}, "rows": [{"iban": 1, "tags": ["vip"]}]}`), int64(0), byte(255))
	f.Add("crm.tag", "Staging", []byte(`{"ids": [1e400, 9223372036854775808], "a": [1e400], "b": [1], "c": [[1]]}`), int64(3), byte(7))
	f.Add("CRM.drop_\u0430ll", "prod", []byte(`[1, 2, {"a": "\ud800"}]`), int64(1<<62), byte(42))
	f.Add("crm.send", "staging", []byte(`{"to": "ada@corp.example", "rows": [{"vip": true}, 5, null]}`), int64(5), byte(128))
	p, err := policy.Parse([]byte(everything))
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, action, environment string, payload []byte, count int64, bits byte) {
		bit := func(n int) bool { return bits&(1<<n) != 0 }
		c := policy.Call{
			Agent: "bot", Action: action, Environment: environment, Payload: payload, At: at("2026-01-05T12:00:00Z"),
			Hints:    policy.Hints{ReadOnly: ptr(bit(0)), Destructive: ptr(bit(1))},
			FirstUse: policy.FirstUse{Tool: bit(2), Integration: bit(3), Agent: bit(4)},
		}
		if bit(5) {
			c.Reversible = ptr(bit(6))
		}
		before := requireRuling(t, p, c)
		if count >= 0 {
			c.Count = &count
			after := requireRuling(t, p, c)
			if why := weaker(before, after); why != "" {
				t.Fatalf("a count that is stated is weaker: %s\nbefore %+v\nafter  %+v", why, before, after)
			}
			before = after
		}
		if before.Environment == "production" {
			c.Environment = "nowhere"
			if diff := cmp.Diff(before, p.Rule(c)); diff != "" {
				t.Fatalf("production differs from an environment that isn't known:\n%s", diff)
			}
		}
		if bit(7) {
			c.Unpinned = true
			changed := requireRuling(t, p, c)
			if why := weaker(before, changed); why != "" || changed.Effect == policy.Allow || changed.Classified {
				t.Fatalf("a tool that has changed is weaker: %s\nbefore %+v\nafter  %+v", why, before, changed)
			}
		}
		if before.Classified && !strings.HasPrefix(action, "crm.") {
			t.Fatalf("%q is classified: %+v", action, before)
		}
	})
}
