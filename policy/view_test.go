package policy_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/countersign/countersign/policy"
)

const viewPolicy = `version: 1
mode: cautious
roles: {oncall: {users: [U0ADA]}}
approval: {requires: [{role: oncall}]}
environments: {staging: {names: [stage]}, tight: {mode: strict}, closed: {mode: readonly}}
first_use: {of: [tool], environments: [production], raise_to: 3}
modes: {own: {1: require_approval, 2: require_approval, 3: require_approval, 4: require_approval, 5: require_approval}}
#in_view#
integrations:
  crm:
    tools:
      get: {tier: 1}
      tag: {tier: 2}
      mail: {tier: 3}
      delete: {tier: 4}
      refund: {tier: 5}
rules:
  - {id: away, actions: [crm.mail], when: 'args.to == "away"', raise_to: 4, why: "It goes away."}
`

func TestInView(t *testing.T) {
	t.Parallel()
	with := func(inView string, edits ...string) string {
		return strings.NewReplacer(append(edits, "#in_view#", inView)...).Replace(viewPolicy)
	}
	call := func(action, environment string) policy.Call {
		return policy.Call{Action: action, Environment: environment, Payload: []byte(`{"to": "a"}`)}
	}
	firstUse := call("crm.mail", "")
	firstUse.FirstUse.Tool = true
	unpinned := call("crm.tag", "")
	unpinned.Unpinned = true
	away := call("crm.mail", "")
	away.Payload = []byte(`{"to": "away"}`)
	const (
		byDefault = ""
		all       = "in_view: {tiers: [1, 2, 3, 4, 5]}"
		strict    = "in_view: {tiers: [1, 2, 3, 4, 5], modes: [strict, readonly]}"
	)
	production := []string{"mode: cautious", "mode: strict"}
	integration := []string{"  crm:\n", "  crm:\n    mode: strict\n"}
	weaker := []string{"  crm:\n", "  crm:\n    mode: own\n"}
	own := []string{"  crm:\n", "  crm:\n    environments: {tight: own}\n"}
	for _, test := range []struct {
		name, source string
		call         policy.Call
		want         bool
	}{
		{"tier 3 in production", with(byDefault), call("crm.mail", ""), true},
		{"tier 3 elsewhere", with(byDefault), call("crm.mail", "stage"), true},
		{"tier 1", with(byDefault, "mode: cautious", "mode: own"), call("crm.get", ""), true},
		{"tier 2", with(byDefault, "mode: cautious", "mode: own"), call("crm.tag", ""), true},
		{"tier 4 by default", with(byDefault), call("crm.delete", ""), false},
		{"tier 5 by default", with(byDefault), call("crm.refund", ""), false},
		{"raised to tier 4", with(byDefault), away, false},
		{"not classified by default", with(byDefault), call("crm.other", ""), false},
		{"what runs anyway", with(all), call("crm.get", ""), false},
		{"blocked", with(all) + "block: [{id: no, actions: [crm.mail], why: W}]\n", call("crm.mail", ""), false},

		{"no tiers", with("in_view: {tiers: []}"), call("crm.mail", ""), false},
		{"a tier that isn't listed", with("in_view: {tiers: [1, 2]}"), call("crm.mail", ""), false},
		{"tiers that aren't written", with("in_view: {environments: [staging]}"), call("crm.mail", "staging"), true},
		{"tier 4 where tiers aren't written", with("in_view: {environments: [staging]}"), call("crm.delete", "staging"), false},
		{"an environment that isn't listed", with("in_view: {environments: [staging]}"), call("crm.mail", ""), false},
		{"an environment that isn't known", with("in_view: {environments: [staging]}"), call("crm.mail", "nowhere"), false},

		{"tier 4", with(all), call("crm.delete", ""), true},
		{"tier 5", with(all), call("crm.refund", ""), true},
		{"raised to a tier that is listed", with(all), away, true},
		{"not classified", with(all), call("crm.other", ""), true},
		{"an action of nowhere", with(all), call("rm -rf", ""), true},
		{"not classified, and denied", with(all + "\nunclassified: deny"), call("crm.other", ""), false},
		{"a changed tool", with(all), unpinned, true},
		{"where a reason is needed", with(all, "[{role: oncall}]}", "[{role: oncall}], reason_required: true}"), call("crm.mail", ""), true},
		{"a first use", with(all), firstUse, false},

		{"in strict mode", with(all), call("crm.mail", "tight"), false},
		{"in strict mode where it is listed", with(strict), call("crm.mail", "tight"), true},
		{"in strict mode in production where it is listed", with(strict, production...), call("crm.mail", ""), false},
		{"in an unknown environment in strict mode where it is listed", with(strict, production...), call("crm.mail", "nowhere"), false},
		{"in the policy's strict mode elsewhere where it is listed", with(strict, production...), call("crm.mail", "staging"), true},
		{"in readonly mode where it is listed", with(strict), call("crm.mail", "closed"), false},

		{"in an integration's strict mode", with(all, integration...), call("crm.mail", ""), false},
		{"in an integration's strict mode where it is listed", with(strict, integration...), call("crm.mail", ""), false},
		{"in an integration's strict mode elsewhere where it is listed", with(strict, integration...), call("crm.mail", "staging"), true},
		{"in a strict environment with a mode of the integration", with(all, weaker...), call("crm.mail", "tight"), false},
		{"where an integration has its own mode for a strict environment", with(all, own...), call("crm.mail", "tight"), true},
		{"another spelling of a strict integration", with(all, integration...), call("CRM.tag", ""), false},
		{"another spelling", with(all), call("CRM.tag", ""), true},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			p := parsed(t, test.source)
			r := p.Rule(test.call)
			if r.InView != test.want {
				t.Errorf("got %v for %+v", r.InView, r)
			}
			if wrong := valid(r); wrong != "" {
				t.Error(wrong)
			}
			const says = "Where the agent's own host shows the request, what is decided there is enough."
			if text := strings.ReplaceAll(p.Explain(test.call).Text(0), "\n  decided", " decided"); strings.Contains(text, says) != test.want {
				t.Errorf("says:\n%s", text)
			}
		})
	}
}

func TestPeopleInsteadOfTheViewIsStricter(t *testing.T) {
	t.Parallel()
	with := func(inView string) policy.Ruling {
		return parsed(t, strings.Replace(viewPolicy, "#in_view#", inView, 1)).Rule(policy.Call{Action: "crm.mail", Payload: []byte(`{"to": "a"}`)})
	}
	view, people := with(""), with("in_view: {tiers: []}")
	const want = "The policy now has people of a role decide on this action."
	if got := people.StricterThan(view); got != want {
		t.Errorf("people now: %q, want %q", got, want)
	}
	if got := view.StricterThan(people); got != "" {
		t.Errorf("the view now: %q", got)
	}
}

// What a case says of the view is in the report if it isn't so.
func TestCasesOfInView(t *testing.T) {
	t.Parallel()
	p := parsed(t, viewPolicy)
	var got [][]policy.Mismatch
	for _, result := range p.Test(mustParseCases(t, `cases:
  - {name: right, action: crm.mail, args: {to: a}, expect: {effect: require_approval, in_view: true}}
  - {name: none, action: crm.delete, expect: {effect: require_approval, in_view: false}}
  - {name: wrong, action: crm.mail, args: {to: a}, expect: {effect: require_approval, in_view: false}}
`)).Results {
		got = append(got, result.Mismatches)
	}
	if diff := cmp.Diff([][]policy.Mismatch{nil, nil, {{What: "in_view", Want: "false", Got: "true"}}}, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestInViewIsRefused(t *testing.T) {
	t.Parallel()
	const takesLess = "on which people decide too, so that what is worse would take less; name both"
	for _, test := range []struct{ written, want string }{
		{"in_view: {tiers: [0, 3]}", "[8:19] in_view.tiers[0]: is 0; tiers are 1 to 5"},
		{"in_view: {tiers: [1, 6]}", "[8:22] in_view.tiers[1]: is 6; tiers are 1 to 5"},
		{"in_view: {tiers: [3]}", "[8:18] in_view.tiers: names tier 3 and not tier 2, " + takesLess}, // in mode strict
		{"in_view: {tiers: [1, 2, 3, 5]}", "[8:18] in_view.tiers: names tier 5 and not tier 4, " + takesLess},
		{"in_view: {tiers: 3}", "[8:18] in_view.tiers: a list is accepted, like [a, b]"},
		{"in_view: {environments: []}", "[8:25] in_view.environments: is an empty list; name some, or leave it out for all"},
		{"in_view: {environments: [mars]}", `[8:26] in_view.environments[0]: environment "mars" isn't defined; there are closed, production, staging, tight`},
		{"in_view: {modes: ['']}", "[8:19] in_view.modes[0]: names no mode"},
		{"in_view: {modes: [loose]}", `[8:19] in_view.modes[0]: mode "loose" isn't known; there are cautious, open, own, readonly, strict`},
		{"in_view: {tier: [3]}", `[8:11] unknown field "tier"`},
		{"in_view:", "[8:9] in_view: has no value; leave it out or give it one"},
	} {
		source := strings.Replace(viewPolicy, "#in_view#", test.written, 1)
		if _, err := policy.Parse([]byte(source)); err == nil || err.Error() != test.want {
			t.Errorf("%s: got %v, want %q", test.written, err, test.want)
		}
	}
}

// A tier of the view may stand above one on which nobody decides, and of what
// isn't classified people decide on tier 4.
func TestInViewAboveWhatRuns(t *testing.T) {
	t.Parallel()
	source := strings.NewReplacer("#in_view#", "in_view: {tiers: [5]}", "mode: cautious", "mode: loose", "tight: {mode: strict}", "tight: {}",
		"modes: {", "modes: {loose: {1: allow, 2: allow, 3: allow, 4: allow, 5: require_approval}, ").Replace(viewPolicy)
	if _, err := policy.Parse([]byte(source)); err == nil || !strings.Contains(err.Error(), "names tier 5 and not tier 4") {
		t.Errorf("where people decide on what isn't classified: %v", err)
	}
	if _, err := policy.Parse([]byte(source + "unclassified: deny\n")); err != nil {
		t.Error(err)
	}
}
