package policy_test

import (
	"encoding/json"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/countersign/countersign/policy"
)

const gatewayPolicy = `
version: 1
mode: cautious
roles: {oncall: {users: [U0ADA]}}
approval: {requires: [{role: oncall}]}
environments: {staging: {}, tight: {mode: strict}}
in_band: {tiers: [2, 3], environments: [production, staging, tight]}
first_use: {of: [tool], environments: [staging], raise_to: 3}
redact: {keys: [secret], paths: [/hidden]}
integrations:
  files:
    tools:
      read_*: {tier: 1}
      write_file: {tier: 3, target: 'args.path', idempotency: key}
      secret_file: {tier: 3, target: 'args.path + args.secret'}
      hidden_file: {tier: 3, target: 'args.hidden.name'}
      delete_file: {tier: 4, target: 'args.path'}
      odd_*: {tier: 3, target: 'args.path', idempotency: a}
      odd_one*: {tier: 3, target: 'args.other', idempotency: b}
rules:
  - {id: etc, actions: [files.write_file], when: 'target.startsWith("/etc/")', raise_to: 4, why: "It is the system's."}
`

func parsed(t testing.TB, source string) *policy.Policy {
	t.Helper()
	p, err := policy.Parse([]byte(source))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestTarget(t *testing.T) {
	t.Parallel()
	p := parsed(t, gatewayPolicy)
	for _, test := range []struct {
		name, action, stated, payload string
		want                          string
		tier                          policy.Tier
	}{
		{"what the arguments say", "files.write_file", "/home", `{"path": "/srv/a"}`, "/srv/a", 3},
		{"and not the agent", "files.write_file", "/srv/a", `{"path": "/etc/passwd"}`, "/etc/passwd", 4},
		{"no argument", "files.write_file", "/etc/x", `{}`, "", 4}, // the condition can't be worked out either
		{"not a text", "files.write_file", "", `{"path": 1}`, "", 3},
		{"an empty text", "files.write_file", "", `{"path": " "}`, "", 3},
		{"too long", "files.write_file", "", `{"path": "` + strings.Repeat("a", 501) + `"}`, "", 3},
		{"as long as may be", "files.write_file", "", `{"path": "` + strings.Repeat("ä", 500) + `"}`, strings.Repeat("ä", 500), 3},
		{"a NUL", "files.write_file", "", `{"path": "a\u0000"}`, "", 3},
		{"what is redacted by key", "files.secret_file", "", `{"path": "a", "secret": "s"}`, "", 3},
		{"what is redacted by path", "files.hidden_file", "", `{"hidden": {"name": "s"}}`, "", 3},
		{"stanzas that differ", "files.odd_one", "x", `{"path": "a", "other": "b"}`, "", 3},
		{"stanzas that agree", "files.odd_one", "x", `{"path": "a", "other": "a"}`, "a", 3},
		{"no expression", "files.read_file", "/x", `{"path": "a"}`, "", 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			x := p.Explain(policy.Call{Action: test.action, Target: test.stated, Environment: "staging", Payload: []byte(test.payload)})
			if x.Ruling.Target != test.want {
				t.Errorf("got %q, want %q", x.Ruling.Target, test.want)
			}
			if test.name != "no argument" && x.Ruling.Tier != test.tier {
				t.Errorf("got %s, want tier %d", x.Ruling.Tier, test.tier)
			}
			if data, _ := json.Marshal(x); strings.Contains(string(data), `"s"`) {
				t.Errorf("shows what is redacted: %s", data)
			}
		})
	}
}

func TestInBand(t *testing.T) {
	t.Parallel()
	always := strings.Replace(gatewayPolicy, "tight]}", "tight], modes: [strict]}", 1)
	byDefault := strings.Replace(gatewayPolicy, ", environments: [production, staging, tight]}", "}", 1)
	reason := strings.Replace(gatewayPolicy, "{requires: [{role: oncall}]}", "{requires: [{role: oncall}], reason_required: true}", 1)
	call := func(action, environment string) policy.Call {
		return policy.Call{Action: action, Environment: environment, Payload: []byte(`{"path": "a"}`)}
	}
	firstUse := call("files.write_file", "staging")
	firstUse.FirstUse.Tool = true
	unpinned := call("files.write_file", "staging")
	unpinned.Unpinned = true
	destructive := call("files.write_file", "staging")
	destructive.Hints.Destructive = new(true)
	for _, test := range []struct {
		name, source string
		call         policy.Call
		want         bool
	}{
		{"tier 3 where it is listed", gatewayPolicy, call("files.write_file", "staging"), true},
		{"in production where it is listed", gatewayPolicy, call("files.write_file", ""), true},
		{"in production by default", byDefault, call("files.write_file", ""), false},
		{"elsewhere by default", byDefault, call("files.write_file", "staging"), true},
		{"tier 4", gatewayPolicy, call("files.delete_file", "staging"), false},
		{"raised to tier 4", gatewayPolicy, policy.Call{Action: "files.write_file", Environment: "staging", Payload: []byte(`{"path": "/etc/a"}`)}, false},
		{"what runs anyway", gatewayPolicy, call("files.read_file", "staging"), false},
		{"in strict mode", gatewayPolicy, call("files.write_file", "tight"), false},
		{"in strict mode where it is listed", always, call("files.write_file", "tight"), true},
		{"not classified", gatewayPolicy, call("files.chmod", "staging"), false},
		{"a first use", gatewayPolicy, firstUse, false},
		{"a changed tool", gatewayPolicy, unpinned, false},
		{"a tool that says it is destructive", gatewayPolicy, destructive, false},
		{"where a reason is needed", reason, call("files.write_file", "staging"), false},
		{"not in the policy", strings.Replace(gatewayPolicy, "in_band", "#", 1), call("files.write_file", "staging"), false},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			r := parsed(t, test.source).Rule(test.call)
			if r.InBand != test.want {
				t.Errorf("got %v for %+v", r.InBand, r)
			}
			if r.InBand && r.Effect != policy.RequireApproval {
				t.Errorf("the effect is %s", r.Effect)
			}
		})
	}
	before := parsed(t, gatewayPolicy).Rule(call("files.write_file", ""))
	after := parsed(t, byDefault).Rule(call("files.write_file", ""))
	if after.StricterThan(before) == "" || before.StricterThan(after) != "" {
		t.Error("that people have to decide now isn't stricter")
	}
}

func TestInBandIsRefused(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ written, want string }{
		{"{tiers: [4]}", "is 4; 1, 2 and 3 are accepted"},
		{"{environments: [staging]}", "tiers is missing"},
		{"{tiers: [3], environments: [mars]}", "mars"},
		{"{tiers: [3], modes: [loose]}", `mode "loose" isn't known`},
	} {
		source := strings.Replace(gatewayPolicy, "{tiers: [2, 3], environments: [production, staging, tight]}", test.written, 1)
		if _, err := policy.Parse([]byte(source)); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v, want %q in it", test.written, err, test.want)
		}
	}
	for _, stanza := range []string{`target: 'target'`, `target: '1'`, `idempotency: "a b"`, `idempotency: ""`} {
		source := strings.Replace(gatewayPolicy, "read_*: {tier: 1}", "read_*: {tier: 1, "+stanza+"}", 1)
		if _, err := policy.Parse([]byte(source)); err == nil {
			t.Errorf("%s is accepted", stanza)
		}
	}
}

func TestIdempotency(t *testing.T) {
	t.Parallel()
	p := parsed(t, gatewayPolicy)
	for action, want := range map[string]string{"files.write_file": "key", "files.read_file": "", "files.odd_two": "a", "files.odd_one": ""} {
		if got := p.Rule(policy.Call{Action: action, Payload: []byte(`{}`)}).Idempotency; got != want {
			t.Errorf("%s: got %q, want %q", action, got, want)
		}
	}
}

// A tool whose definition changed never runs by itself, and nothing is asked of
// it less than before.
func TestUnpinnedIsNeverWeaker(t *testing.T) {
	t.Parallel()
	p := parsed(t, gatewayPolicy)
	denying := parsed(t, gatewayPolicy+"unclassified: deny\n")
	rapid.Check(t, func(t *rapid.T) {
		call := policy.Call{
			Action:      "files." + rapid.SampledFrom([]string{"read_file", "write_file", "delete_file", "odd_one", "chmod"}).Draw(t, "tool"),
			Environment: rapid.SampledFrom([]string{"", "staging", "tight"}).Draw(t, "environment"),
			Payload:     []byte(rapid.SampledFrom([]string{`{}`, `{"path": "/etc/a"}`, `{"path": "a"}`, `{"path": [1, 2]}`}).Draw(t, "payload")),
			FirstUse:    policy.FirstUse{Tool: rapid.Bool().Draw(t, "first use")},
		}
		before := p.Rule(call)
		call.Unpinned = true
		after := p.Explain(call)
		if before.StricterThan(after.Ruling) != "" {
			t.Errorf("weaker: %s", before.StricterThan(after.Ruling))
		}
		if after.Ruling.Effect == policy.Allow || after.Ruling.InBand || after.Ruling.Classified || after.Ruling.Tier < policy.TierDestructive {
			t.Errorf("got %+v", after.Ruling)
		}
		if !strings.Contains(after.Text(0), "has changed since it was pinned") {
			t.Errorf("the explanation doesn't say why:\n%s", after.Text(0))
		}
		if effect := denying.Rule(call).Effect; effect != policy.Deny {
			t.Errorf("got %s where what isn't classified is denied", effect)
		}
	})
}
