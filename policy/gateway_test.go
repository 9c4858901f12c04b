package policy_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/countersign/countersign/internal/visible"
	"github.com/countersign/countersign/policy"
)

const gatewayPolicy = `
version: 1
mode: cautious
roles: {oncall: {users: [U0ADA]}}
approval: {requires: [{role: oncall}]}
environments: {staging: {names: [stage]}, tight: {mode: strict}}
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
      deep_file: {tier: 3, target: 'args.parts.map(k, args.parts[k].map(n, args.parts[k][n]).join()).join()'}
      part_file: {tier: 3, target: 'args.parts.map(k, string(args.parts[k])).join()', redact: [/parts/hidden]}
      any_file: {tier: 3, target: 'args[args.which]'}
      has_file: {tier: 3, target: 'has(args.secret) ? "with" : "without"'}
      delete_file: {tier: 4, target: 'args.path'}
      odd_*: {tier: 3, target: 'args.path', idempotency: a}
      odd_one*: {tier: 3, target: 'args.other', idempotency: b}
      "*_plain": {tier: 2}
      odd_z*: {tier: 2}
rules:
  - {id: odd, actions: [files.odd_*], when: 'target == "never"', raise_to: 4, why: "It is odd."}
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
		{"an agent's word that would be caught", "files.write_file", "/etc/x", `{"path": "/srv/a"}`, "/srv/a", 3},
		{"no argument", "files.write_file", "/srv/a", `{}`, "", 4}, // a condition that reads it can't be worked out
		{"not a text", "files.write_file", "/srv/a", `{"path": 1}`, "", 4},
		{"too long", "files.write_file", "/srv/a", `{"path": "` + strings.Repeat("a", 501) + `"}`, "", 4},
		{"a NUL", "files.write_file", "/srv/a", `{"path": "a\u0000"}`, "", 4},
		{"arguments that can't be read", "files.write_file", "/srv/a", `{`, "", 4},
		{"an empty text", "files.write_file", "/etc/x", `{"path": " \t"}`, "", 3}, // which is what it is
		{"as long as may be", "files.write_file", "", `{"path": "` + strings.Repeat("ä", 500) + `"}`, strings.Repeat("ä", 500), 3},
		{"what is redacted by key", "files.secret_file", "x", `{"path": "a", "secret": "s"}`, "", 3},
		{"what is redacted by path", "files.hidden_file", "x", `{"hidden": {"name": "s"}}`, "", 3},
		{"what holds a redacted key", "files.deep_file", "x", `{"parts": {"a": {"secret": "s"}}}`, "", 3},
		{"what may hold one and doesn't", "files.deep_file", "x", `{"parts": {"a": {"b": "c"}}}`, "c", 3},
		{"what may hold a redacted path and doesn't", "files.part_file", "x", `{"parts": {"a": "b"}}`, "", 3}, // as check says
		{"anything, with a redacted key", "files.any_file", "x", `{"which": "path", "path": "a", "secret": "s"}`, "", 3},
		{"anything, without one", "files.any_file", "x", `{"which": "path", "path": "a"}`, "a", 3},
		{"whether a secret is there", "files.has_file", "x", `{"secret": "s"}`, "", 3},
		{"stanzas that differ", "files.odd_one", "x", `{"path": "a", "other": "b"}`, "", 4},
		{"stanzas of which one fails", "files.odd_one", "x", `{"path": "a"}`, "", 4},
		{"stanzas that agree", "files.odd_one", "x", `{"path": "a", "other": "a"}`, "a", 3},
		{"a stanza without one beside it", "files.odd_plain", "x", `{"path": "a"}`, "a", 3},
		{"no expression", "files.read_file", "/x", `{"path": "a"}`, "", 1},
		{"another spelling", "files.Write_File", "x", `{"path": "/srv/a"}`, "/srv/a", 4},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			x := p.Explain(policy.Call{Action: test.action, Target: test.stated, Environment: "staging", Payload: []byte(test.payload)})
			if x.Ruling.Target != test.want {
				t.Errorf("got %q, want %q", x.Ruling.Target, test.want)
			}
			if x.Ruling.Tier != test.tier {
				t.Errorf("got %s, want tier %d", x.Ruling.Tier, test.tier)
			}
			if data, _ := json.Marshal(x); strings.Contains(string(data), `"s"`) {
				t.Errorf("shows what is redacted: %s", data)
			}
			if says := len(x.Target) > 0; says != (test.name != "no expression") {
				t.Errorf("the explanation says of the target %q", x.Target)
			}
		})
	}
}

// Nothing that an agent does with the argument gets around a rule that looks at
// the target.
func TestTargetCannotBeHidden(t *testing.T) {
	t.Parallel()
	p := parsed(t, gatewayPolicy+"block: [{id: none, actions: [files.write_file], when: 'target == \"/etc/shadow\" || target.startsWith(\"/etc/\")', why: W}]\n")
	rapid.Check(t, func(t *rapid.T) {
		argument := rapid.OneOf(
			rapid.SampledFrom([]string{`1`, `null`, `["/etc/shadow"]`, `{}`, `true`, `1e400`, `"/etc/\u0000"`}),
			rapid.Custom(func(t *rapid.T) string {
				return `"/etc/` + strings.Repeat("./", rapid.IntRange(0, 1000).Draw(t, "steps")) + `shadow"`
			}),
		).Draw(t, "path")
		call := policy.Call{Action: "files.write_file", Target: rapid.String().Draw(t, "stated"), Payload: []byte(`{"path": ` + argument + `}`)}
		if effect := p.Rule(call).Effect; effect != policy.Deny {
			t.Errorf("%s: got %s", argument, effect)
		}
	})
}

// Whatever stands in the arguments, a target is what can be stored and shown,
// and no explanation of one breaks a line or is longer than asked.
func TestAnyTarget(t *testing.T) {
	t.Parallel()
	p := parsed(t, gatewayPolicy)
	texts := rapid.OneOf(rapid.String(), rapid.StringOfN(rapid.SampledFrom([]rune("a.\"\n\r\u202e\u200b\u2028 <&\x00\U000e0041")), 0, 600, -1))
	rapid.Check(t, func(t *rapid.T) {
		path, other := texts.Draw(t, "path"), texts.Draw(t, "other")
		payload, err := json.Marshal(map[string]any{"path": path, "other": other})
		if err != nil {
			t.Fatal(err)
		}
		action := rapid.SampledFrom([]string{"files.write_file", "files.odd_one"}).Draw(t, "action")
		x := p.Explain(policy.Call{Action: action, Payload: payload})
		target := x.Ruling.Target
		if target != "" && target != path || utf8.RuneCountInString(target) > 500 || !utf8.ValidString(target) || strings.ContainsRune(target, 0) {
			t.Fatalf("the target is %q", target)
		}
		if text := x.String(); utf8.RuneCountInString(text) > policy.MaxExplanation {
			t.Fatalf("%d characters", utf8.RuneCountInString(text))
		}
		for _, text := range append(x.Target, x.Text(0)) {
			for _, finding := range visible.Suspicious(text) {
				if finding.Kind == visible.HiddenCharacters {
					t.Fatalf("something in it can't be seen: %q", text)
				}
			}
		}
		_, why, _ := strings.Cut(x.Text(0), "\nWhy\n")
		for line := range strings.Lines(why) {
			if !strings.HasPrefix(line, "- ") && !strings.HasPrefix(line, "  ") && line != "\n" && line != "Rules that don't apply\n" {
				t.Fatalf("a line that isn't the policy's: %q in\n%s", line, why)
			}
		}
	})
}

// Where the policy says what a call acts on, what the agent says of it counts
// for nothing.
func TestStatedTargetCountsForNothing(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		d := drawDraft(t)
		p := d.parse(t)
		for range calls {
			c := drawCall(t, drawArguments(t).payload())
			x := p.Explain(c)
			if len(x.Target) == 0 {
				continue
			}
			c.Target = rapid.SampledFrom([]string{"", "x", "y"}).Draw(t, "another target")
			if diff := cmp.Diff(x.Ruling, p.Rule(c)); diff != "" {
				t.Fatalf("-before +after:\n%s\n%s", diff, d.source())
			}
		}
	})
}

func TestInBand(t *testing.T) {
	t.Parallel()
	always := strings.Replace(gatewayPolicy, "tight]}", "tight], modes: [strict]}", 1)
	byDefault := strings.Replace(gatewayPolicy, ", environments: [production, staging, tight]}", "}", 1)
	reason := strings.Replace(gatewayPolicy, "{requires: [{role: oncall}]}", "{requires: [{role: oncall}], reason_required: true}", 1)
	mixed := strings.Replace(gatewayPolicy, "  files:\n", "  files:\n    mode: cautious\n", 1)
	own := strings.Replace(gatewayPolicy, "  files:\n", "  files:\n    environments: {tight: cautious}\n", 1)
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
		{"a tier that isn't listed", strings.Replace(gatewayPolicy, "tiers: [2, 3]", "tiers: [2]", 1), call("files.write_file", "staging"), false},
		{"in strict mode", gatewayPolicy, call("files.write_file", "tight"), false},
		{"in strict mode where it is listed", always, call("files.write_file", "tight"), true},
		{"not classified", gatewayPolicy, call("files.chmod", "staging"), false},
		{"a first use", gatewayPolicy, firstUse, false},
		{"a changed tool", gatewayPolicy, unpinned, false},
		{"a tool that says it is destructive", gatewayPolicy, destructive, false},
		{"in a strict environment with a mode of the integration", mixed, call("files.write_file", "tight"), false},
		{"in another environment with that mode", mixed, call("files.write_file", "staging"), true},
		{"where an integration has its own mode for a strict environment", own, call("files.write_file", "tight"), true},
		{"in an environment that isn't known", byDefault, call("files.write_file", "nowhere"), false},
		{"in an environment by another name", byDefault, call("files.write_file", "STAGE"), true},
		{"another spelling", gatewayPolicy, call("files.Write_File", "staging"), false},
		{"lowered to tier 3", gatewayPolicy + "  - {id: low, actions: [files.delete_file], lower_to: 3, why: W}\n", call("files.delete_file", "staging"), true},
		{"blocked", gatewayPolicy + "block: [{id: no, actions: [files.write_file], why: W}]\n", call("files.write_file", "staging"), false},
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
}

func TestPeopleInsteadOfTheClientIsStricter(t *testing.T) {
	t.Parallel()
	with := func(environments string, edits ...string) policy.Ruling {
		source := strings.NewReplacer(edits...).Replace(gatewayPolicy)
		return parsed(t, strings.Replace(source, "[production, staging, tight]", environments, 1)).Rule(
			policy.Call{Action: "files.write_file", Environment: "staging", Payload: []byte(`{"path": "a"}`)})
	}
	inBand, people := with("[staging]"), with("[production]")
	const want = "The policy now has people of a role decide on this action."
	for _, test := range []struct {
		name          string
		before, after policy.Ruling
		want          string
	}{
		{"people now", inBand, people, want},
		{"the client now", people, inBand, ""},
		{"the same", inBand, inBand, ""},
		{"allowed now", inBand, with("[production]", "mode: cautious", "mode: open"), ""},
		{"denied now", inBand, with("[production]", "mode: cautious", "mode: readonly"), "The policy now denies this action. Mode readonly denies tier 3, external-facing."},
		{"a lower tier of people", inBand, with("[production]", "mode: cautious", "mode: strict", "write_file: {tier: 3", "write_file: {tier: 2"), want},
		{"a higher tier", inBand, with("[staging]", "write_file: {tier: 3", "write_file: {tier: 4"), "The policy now sorts this action as tier 4, destructive; it was tier 3, external-facing."},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if got := test.after.StricterThan(test.before); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

// More harm is never left to a client, or to a host's view, where less is left to
// people, whatever mode it is that counts.
func TestMoreIsNeverLeftToTheAgentsSide(t *testing.T) {
	t.Parallel()
	toClients, toViews, unclassified := 0, 0, 0
	rapid.Check(t, func(t *rapid.T) {
		modes := []string{"", "cautious", "cautious", "cautious", "strict", "readonly", "own"}
		mode := func(what string) string { return prefixed("mode: ", sample(t, what, modes...)) }
		own := sample(t, "mode of the integration for the environment", append(modes, "", "", "")...)
		source := "version: 1\nmode: " + sample(t, "mode", modes[1:]...) + "\n" + drawOwnMode(t) + "\n" +
			"roles: {a: {users: [U0ADA]}}\napproval: {requires: [{role: a}]}\nenvironments: {staging: {" + mode("mode of the environment") + "}}\n" +
			"in_band: {environments: [staging, production], tiers: [" + sample(t, "tiers", "1, 2, 3", "1, 2, 3", "2, 3", "3", "1, 2", "2") + "], modes: [" + sample(t, "modes", "", "strict") + "]}\n" +
			"in_view: {tiers: [" + sample(t, "tiers of the view", "1, 2, 3, 4, 5", "1, 2, 3, 4, 5", "1, 2, 3, 4", "1, 2, 3, 4", "1, 2, 3", "1", "", "2, 3, 4, 5", "4", "5") + "], modes: [" + sample(t, "modes of the view", "", "strict") + "]}\n" +
			"bulk: [{over: 8, raise_to: 5}]\nunclassified: " + sample(t, "unclassified", "require_approval", "deny") + "\n" +
			"integrations:\n  s:\n    environments: {" + prefixed("staging: ", own) + "}\n    tools: {one: {tier: 1}, two: {tier: 2}, three: {tier: 3}, four: {tier: 4}, five: {tier: 5}}\n"
		if m := mode("mode of the integration"); m != "" {
			source += "    " + m + "\n"
		}
		p, err := policy.Parse([]byte(source))
		if err != nil {
			if !strings.Contains(err.Error(), "so that what is worse would take less") {
				t.Fatal(err)
			}
			return
		}
		environment := sample(t, "environment", "staging", "production")
		rule := func(action string) policy.Ruling {
			r := p.Rule(policy.Call{Action: action, Environment: environment, Payload: []byte(`{}`)})
			if r.InBand {
				toClients++
			}
			switch {
			case r.InView && !r.Classified:
				unclassified++
			case r.InView:
				toViews++
			}
			return r
		}
		before := rule("s.one")
		for _, tool := range []string{"two", "three", "four", "five"} {
			after := rule("s." + tool)
			never(t, "a higher tier", before, after, source)
			never(t, "another spelling", after, rule("S."+tool), source)
			before = after
		}
		never(t, "what isn't classified", rule("s.three"), rule("s.other"), source)
		never(t, "what isn't classified", rule("s.four"), rule("s.other"), source)
		bigger := policy.Call{Action: "s.other", Environment: environment, Payload: []byte(`{}`), Count: new(int64(9))}
		never(t, "a higher tier of what isn't classified", rule("s.other"), p.Rule(bigger), source)
	})
	if toClients == 0 || toViews == 0 || unclassified == 0 {
		t.Errorf("%d were left to a client, %d to a view, and %d that weren't classified", toClients, toViews, unclassified)
	}
}

// A tier of which a client's answer is enough may stand above one on which
// nobody decides.
func TestInBandAboveWhatRuns(t *testing.T) {
	t.Parallel()
	source := strings.Replace(gatewayPolicy, "in_band: {tiers: [2, 3]", "in_band: {tiers: [3]", 1)
	if _, err := policy.Parse([]byte(strings.Replace(source, "tight: {mode: strict}", "tight: {}", 1))); err != nil {
		t.Error(err)
	}
}

func TestInBandIsRefused(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ written, want string }{
		{"{tiers: [4]}", "is 4; 1, 2 and 3 are accepted"},
		{"{environments: [staging]}", "tiers is missing"},
		{"{tiers: []}", "tiers is missing"},
		{"{tiers: [0, 3]}", "is 0; 1, 2 and 3 are accepted"},
		{"{tiers: [5]}", "is 5; 1, 2 and 3 are accepted"},
		{"{tiers: [3]}", "names tier 3 and not tier 2, on which people decide too"}, // in mode strict
		{"{tiers: [3], environments: []}", "is an empty list"},
		{"{tiers: [3], modes: ['']}", "names no mode"},
		{"{tiers: [3], env: [staging]}", "env"},
		{"", "in_band"},
		{"{tiers: [3], environments: [mars]}", "mars"},
		{"{tiers: [3], modes: [loose]}", `mode "loose" isn't known`},
	} {
		source := strings.Replace(gatewayPolicy, "{tiers: [2, 3], environments: [production, staging, tight]}", test.written, 1)
		if _, err := policy.Parse([]byte(source)); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v, want %q in it", test.written, err, test.want)
		}
	}
	for _, stanza := range []string{
		`target: 'target'`, `target: '1'`, `target: 'irreversible ? "a" : "b"'`, `target: 'in_hours ? "a" : "b"'`, `target: 'string(hour)'`, `target: 'weekday'`,
		`target: 'string(tier)'`, `target: 'first_use_of_tool ? "a" : "b"'`, `target: ''`, `target: 'args.a ='`, `target: 5`, `target: [a]`,
		`idempotency: "a b"`, `idempotency: ""`, `idempotency: /a`, `idempotency: 5`,
	} {
		source := strings.Replace(gatewayPolicy, "read_*: {tier: 1}", "read_*: {tier: 1, "+stanza+"}", 1)
		if _, err := policy.Parse([]byte(source)); err == nil {
			t.Errorf("%s is accepted", stanza)
		}
	}
}

func TestIdempotency(t *testing.T) {
	t.Parallel()
	p := parsed(t, gatewayPolicy)
	for action, want := range map[string]string{"files.write_file": "key", "files.read_file": "", "files.odd_two": "a", "files.odd_one": "", "files.odd_plain": "a", "files.x_plain": "", "files.odd_z": "a"} {
		if got := p.Rule(policy.Call{Action: action, Payload: []byte(`{}`)}).Idempotency; got != want {
			t.Errorf("%s: got %q, want %q", action, got, want)
		}
	}
}

// A tool whose definition changed never runs by itself, and nothing is asked of
// it less than before, also by conditions that look at its tier.
func TestUnpinnedIsNeverWeaker(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		d := drawDraft(t)
		for i := range d.integrations {
			if chance(t, "open") {
				d.integrations[i].mode, d.integrations[i].environments = "open", nil
			}
		}
		if chance(t, "one tier only") {
			r := drawRule(t, "x", sample(t, "kind", "raise", "block"))
			r.when = fmt.Sprintf("tier == %d", rapid.IntRange(1, 5).Draw(t, "tier"))
			d = d.with(t, r)
		}
		p := d.parse(t)
		for range calls {
			c := drawCall(t, drawArguments(t).payload())
			c.Unpinned = false
			before := p.Rule(c)
			c.Unpinned = true
			x := p.Explain(c)
			after := x.Ruling
			never(t, "a tool that has changed", before, after, d.source())
			if after.Effect == policy.Allow || after.InBand || after.Classified || after.Tier < policy.TierDestructive || after.Rules[0].ID != "unclassified" {
				t.Fatalf("got %+v", after)
			}
			if diff := cmp.Diff([]any{before.Count, before.Amount, before.Target, before.Idempotency, before.Redactions}, []any{after.Count, after.Amount, after.Target, after.Idempotency, after.Redactions}); diff != "" {
				t.Fatalf("its stanzas don't limit it any more (-before +after):\n%s", diff)
			}
			for _, rule := range x.Rules {
				if rule.Fired != (fired(after, rule.ID) != nil) || rule.When != nil && rule.When.Value != "can't be worked out" && rule.When.Value != fmt.Sprint(rule.Fired) {
					t.Fatalf("the explanation of %s isn't of the ruling: %+v", rule.ID, rule)
				}
			}
		}
	})
}

func TestUnpinned(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, more, action string
		effect             policy.Effect
		reason             string
		text               []string
	}{
		{"a person decides", "", "files.read_file", policy.RequireApproval, "The tool's definition has changed since it was pinned, so a person decides.", []string{
			"Somebody of oncall has to approve this.",
			"- The tool's definition has changed since it was pinned.\n  Until somebody pins it again, it counts as tier 4,\n  destructive.",
		}},
		{"in mode open", "mode: open\n", "files.read_file", policy.RequireApproval, "The tool's definition has changed since it was pinned, so a person decides.", []string{
			"- A person decides on a tool that has changed.",
		}},
		{"denied", "unclassified: deny\n", "files.read_file", policy.Deny, "The tool's definition has changed since it was pinned, and the policy denies what isn't classified.", []string{
			"This doesn't run, and nobody can approve it.",
			"- The policy denies a tool that has changed.",
		}},
		{"not listed either", "", "files.chmod", policy.RequireApproval, "The tool's definition has changed since it was pinned, so a person decides.", nil},
		{"a higher tier of its stanza", "rules: [{id: r, actions: [files.read_file], when: 'tier == 1', raise_to: 5, why: 'Read it twice.'}]\n", "files.read_file", policy.RequireApproval,
			"The tool's definition has changed since it was pinned, so a person decides. Read it twice.", []string{"- r raises it to tier 5."}},
		{"a rule about tier 4", "block: [{id: r, when: 'tier >= 4', why: 'Nothing is destroyed.'}]\n", "files.read_file", policy.Deny, "Nothing is destroyed.", []string{"- r denies it."}},
		{"rules about both tiers", "rules: [{id: q, when: 'tier == 1', raise_to: 4, why: Q.}, {id: r, when: 'tier == 4', raise_to: 5, why: R.}]\n", "files.read_file", policy.RequireApproval,
			"The tool's definition has changed since it was pinned, so a person decides. Q. R.", []string{"- q asks for tier 4 or higher.\n  Q.\n    yes: tier == 1\n", "- r raises it to tier 5.\n  R.\n    yes: tier == 4\n"}},
		{"a rule about another tier", "block: [{id: r, when: 'tier == 2', why: W}]\n", "files.read_file", policy.RequireApproval,
			"The tool's definition has changed since it was pinned, so a person decides.", []string{"- r: its condition isn't met.\n    no: tier == 2\n      tier is 4"}},
		{"nothing lowers it", "rules: [{id: r, actions: [files.delete_file], lower_to: 1, why: W}]\n", "files.delete_file", policy.RequireApproval,
			"The tool's definition has changed since it was pinned, so a person decides.", []string{"- r: what isn't classified is never lowered."}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			source := "version: 1\nmode: cautious\nroles: {oncall: {users: [U0ADA]}}\napproval: {requires: [{role: oncall}]}\nintegrations: {files: {tools: {read_*: {tier: 1}, delete_file: {tier: 4}}}}\n" + test.more
			if strings.Contains(test.more, "mode:") {
				source = strings.Replace(source, "mode: cautious\n", "", 1)
			}
			x := parsed(t, source).Explain(policy.Call{Action: test.action, Payload: []byte(`{}`), Unpinned: true})
			if x.Ruling.Effect != test.effect || x.Ruling.Reason() != test.reason || !x.Unpinned {
				t.Errorf("got %s, unpinned %t, reason %q", x.Ruling.Effect, x.Unpinned, x.Ruling.Reason())
			}
			for _, want := range test.text {
				if !strings.Contains(x.Text(0), want) {
					t.Errorf("the explanation lacks %q:\n%s", want, x.Text(0))
				}
			}
		})
	}
	// What is read from elsewhere may lack anything.
	if (policy.Explanation{Unpinned: true}).String() == "" {
		t.Error("no text")
	}
}

// What the explanation says of the gateway's facts, in words.
func TestExplanationOfGatewayFacts(t *testing.T) {
	t.Parallel()
	p := parsed(t, gatewayPolicy)
	for _, test := range []struct {
		name string
		call policy.Call
		want []string
		not  []string
	}{
		{"all of them", policy.Call{Action: "files.write_file", Environment: "staging", Payload: []byte(`{"path": "/srv/a"}`)}, []string{
			"Where the agent's own client can ask its user, that user's\n  answer is enough.",
			"- It acts on \"/srv/a\".\n    args.path gives /srv/a\n",
			"- The argument key is for a key by which it knows a call\n  that it has had.",
		}, nil},
		{"no target", policy.Call{Action: "files.write_file", Payload: []byte(`{"path": 1}`)}, []string{"- What it acts on can't be told.\n    args.path gives no text\n"}, nil},
		{"an empty target", policy.Call{Action: "files.write_file", Payload: []byte(`{"path": ""}`)}, []string{"- What it acts on can't be told.\n    args.path gives an empty text\n"}, nil},
		{"a redacted target", policy.Call{Action: "files.secret_file", Payload: []byte(`{"path": "a", "secret": "s"}`)}, []string{"- What it acts on can't be told.\n    args.path + args.secret reads what is redacted\n"}, nil},
		{"a long target", policy.Call{Action: "files.write_file", Payload: []byte(`{"path": "` + strings.Repeat("a", 501) + `"}`)}, []string{"    args.path gives more than 500 characters\n"}, nil},
		{"none of them", policy.Call{Action: "files.read_file", Payload: []byte(`{}`)}, nil, []string{"acts on", "argument", "client"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			text := p.Explain(test.call).Text(0)
			for _, want := range test.want {
				if !strings.Contains(text, want) {
					t.Errorf("lacks %q:\n%s", want, text)
				}
			}
			for _, not := range test.not {
				if strings.Contains(text, not) {
					t.Errorf("says %q:\n%s", not, text)
				}
			}
		})
	}
}

// A case says what its call acts on and whether a client's answer is enough; what
// isn't so is in the report.
func TestCasesOfGatewayFacts(t *testing.T) {
	t.Parallel()
	p := parsed(t, gatewayPolicy)
	cases := mustParseCases(t, `cases:
  - {name: right, action: files.write_file, args: {path: /a}, expect: {effect: require_approval, target: /a, in_band: true}}
  - {name: none, action: files.read_file, expect: {effect: allow, target: "", in_band: false}}
  - {name: unstated, action: files.write_file, args: {path: /a}, expect: {effect: require_approval}}
  - {name: changed, action: files.write_file, args: {path: /a}, unpinned: true, expect: {effect: require_approval, tier: 4, class: unclassified, target: /a, in_band: false}}
  - {name: wrong, action: files.write_file, args: {path: "a\u202eb"}, expect: {effect: require_approval, target: "", in_band: false}}
`)
	var got [][]policy.Mismatch
	for _, result := range p.Test(cases).Results {
		got = append(got, result.Mismatches)
	}
	want := [][]policy.Mismatch{nil, nil, nil, nil, {{What: "target", Want: "none", Got: `"a\u202eb"`}, {What: "in_band", Want: "false", Got: "true"}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
