package policy_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/countersign/countersign/policy"
)

const checkedHead = `version: 1
mode: cautious
roles: {oncall: {users: [U01, U02]}}
approval: {requires: [{role: oncall}]}
`

const checkedTools = `integrations:
  crm:
    tools:
      get_*: {tier: 1}
      send_email: {tier: 3}
      delete_*: {tier: 4, count: 'size(args.ids)'}
      refund: {tier: 4, amount: 'args.amount'}
`

// findings checks a policy. Its own lines count from 1: what a test puts before
// them doesn't.
func findings(t interface {
	Helper()
	Fatal(...any)
}, before, source string) []string {
	t.Helper()
	p, err := policy.Parse([]byte(before + source))
	if err != nil {
		t.Fatal(err)
	}
	var texts []string
	for _, finding := range p.Check() {
		finding.Line -= strings.Count(before, "\n")
		texts = append(texts, finding.String())
	}
	return texts
}

func TestCheck(t *testing.T) {
	t.Parallel()
	const tools = checkedHead + checkedTools
	for _, test := range []struct {
		name, before, source string
		want                 []string
	}{
		{"nothing", checkedHead, ``, nil},
		{"tools", tools, ``, nil},

		{"raise to the same tier", tools, `
rules:
  - {id: a, actions: [crm.delete_contact, crm.refund], raise_to: 4, why: W}`,
			[]string{"[3:5] rules[0]: a raises nothing: all that it is about is tier 4 or higher; raise it further or take the rule out"}},
		{"raise one of several", tools, `
rules:
  - {id: a, actions: [crm.delete_contact, crm.send_email], raise_to: 4, why: W}`, nil},
		{"raise in spite of a lowering rule", tools, `
rules:
  - {id: a, actions: [crm.delete_*], when: 'has(args.all)', raise_to: 4, why: W}
  - {id: b, actions: [crm.delete_note], lower_to: 2, why: W}`, nil},
		{"raise everything", tools, `
rules:
  - {id: a, when: 'tier >= 3', raise_to: 4, why: W}`, nil},
		{"raise everything where nothing is listed", checkedHead, `
rules:
  - {id: a, raise_to: 4, why: W}`, nil},
		{"raise a tool with a stanza of its own", checkedHead, `integrations: {crm: {tools: {del_*: {tier: 2}, del_all: {tier: 5}, Purge: {tier: 4}}}}
rules:
  - {id: a, actions: [crm.del_all], raise_to: 5, why: W}
  - {id: b, actions: [crm.purge], raise_to: 4, why: W}`,
			[]string{
				"[3:5] rules[0]: a raises nothing: all that it is about is tier 5 or higher; raise it further or take the rule out",
				"[4:5] rules[1]: b raises nothing: all that it is about is tier 4 or higher; raise it further or take the rule out",
			}},
		{"raise what isn't listed to its tier", tools, `
rules:
  - {id: a, actions: [crm.send_emial], raise_to: 4, why: W}`,
			[]string{"[3:5] rules[0]: a raises nothing: the policy doesn't list these actions, so they are tier 4; check their names or list them"}},
		{"raise what isn't listed further", tools, `
rules:
  - {id: a, actions: [shell.exec], raise_to: 5, why: W}`, nil},
		{"raise what isn't listed and denied", "unclassified: deny\n" + tools, `
rules:
  - {id: a, actions: [shell.exec], raise_to: 5, why: W}`,
			[]string{"[3:5] rules[0]: a raises nothing: the policy doesn't list these actions, so it denies them; check their names or list them"}},
		{"raise what may be listed one day", tools, `
rules:
  - {id: a, actions: ["*.drop_*"], raise_to: 4, why: W}`, nil},
		{"raise in another spelling", tools, `
rules:
  - {id: a, actions: [CRM.Send_Email], raise_to: 4, why: W}`, nil},
		{"block what isn't listed", tools, `
block:
  - {id: a, actions: [shell.exec, "*.drop_*"], why: W}`, nil},

		{"lower what isn't listed", tools, `
rules:
  - {id: a, actions: [crm.delete_*, crm.dellete_note, shell.exec], lower_to: 2, why: W}`,
			[]string{
				"[3:37] rules[0].actions[1]: the policy lists no tool that crm.dellete_note is about, and what isn't listed is never lowered; check the name",
				"[3:55] rules[0].actions[2]: the policy lists no tool that shell.exec is about, and what isn't listed is never lowered; check the name",
			}},
		{"lower in another spelling", tools, `
rules:
  - {id: a, actions: [crm.Delete_note], lower_to: 2, why: W}`,
			[]string{"[3:23] rules[0].actions[0]: the policy lists no tool that crm.Delete_note is about, and what isn't listed is never lowered; check the name"}},
		{"lower to the same tier", tools, `
rules:
  - {id: a, actions: [crm.get_*, crm.send_email], lower_to: 3, why: W}`,
			[]string{"[3:5] rules[0]: a lowers nothing: all that it is about is tier 3 or lower; take the rule out"}},

		{"blocked always", tools, `
block:
  - {id: b, actions: ["crm.DELETE_*"], environments: [production], why: W}
rules:
  - {id: r, actions: [crm.delete_note], environments: [production], when: 'has(args.x)', raise_to: 5, why: W}
  - {id: l, actions: [crm.delete_note], lower_to: 2, environments: [production], why: W}`,
			[]string{
				"[5:5] rules[0]: r has no effect: b denies all that it is about; take one of them out",
				"[6:5] rules[1]: l has no effect: b denies all that it is about; take one of them out",
			}},
		{"blocked sometimes", "environments: {staging: {names: [stage]}}\n" + tools, `
block:
  - {id: b, actions: ["crm.delete_*"], environments: [production], why: W}
  - {id: c, actions: ["crm.delete_*"], count_over: 10, why: W}
  - {id: d, actions: ["crm.delete_*"], when: 'has(args.x)', why: W}
  - {id: e, actions: ["crm.delete_*"], agents: [x], why: W}
  - {id: f, actions: ["crm.delete_a*"], environments: [staging], why: W}
rules:
  - {id: r, actions: [crm.delete_note], raise_to: 5, why: W}`, nil},
		{"blocked in all environments by name", "environments: {staging: {names: [stage]}}\n" + tools, `
block:
  - {id: b, actions: ["crm.delete_*"], environments: [production, staging], why: W}
rules:
  - {id: r, actions: [crm.delete_note], raise_to: 5, why: W}`,
			[]string{"[5:5] rules[0]: r has no effect: b denies all that it is about; take one of them out"}},
		{"same rule twice", tools, `
rules:
  - {id: a, actions: [crm.send_email], when: 'has(args.x)', raise_to: 4, why: W}
  - {id: b, actions: [crm.send_email], when: 'has(args.x)', raise_to: 4, why: X}
  - {id: c, actions: [crm.send_email], when: 'has(args.y)', raise_to: 4, why: X}`,
			[]string{"[4:5] rules[1]: b has no effect: a raises all that it is about to tier 4; take one of them out"}},
		{"shadowed by a higher bound", tools, `
rules:
  - {id: a, actions: [crm.refund], amount_over: 100, raise_to: 5, why: W}
  - {id: b, actions: [crm.refund], amount_over: 1000, raise_to: 5, why: W}
  - {id: c, actions: [crm.delete_*], count_at_most: 5, lower_to: 2, why: W}
  - {id: d, actions: [crm.delete_*], count_at_most: 10, lower_to: 3, why: W}
  - {id: e, actions: [crm.delete_note], count_at_most: 3, lower_to: 3, why: W}
  - {id: f, actions: [crm.delete_*], lower_to: 3, agents: [x], why: W}`,
			[]string{
				"[4:5] rules[1]: b has no effect: a raises all that it is about to tier 5; take one of them out",
				"[7:5] rules[4]: e has no effect: c lowers all that it is about to tier 2; take one of them out",
			}},
		{"shadowed by a later rule", tools, `
rules:
  - {id: a, actions: [crm.refund], amount_over: 1000, raise_to: 5, why: W}
  - {id: b, actions: [crm.refund], amount_over: 100, raise_to: 5, why: W}
  - {id: c, actions: [crm.refund], amount_at_most: 5, lower_to: 2, why: W}
  - {id: d, actions: [crm.refund], amount_at_most: 10, lower_to: 2, why: W}
  - {id: e, actions: [crm.send_email], raise_to: 5, when: 'has(args.x)', why: W}
  - {id: f, raise_to: 5, when: 'has(args.x)', why: W}`,
			[]string{
				"[3:5] rules[0]: a has no effect: b raises all that it is about to tier 5; take one of them out",
				"[5:5] rules[2]: c has no effect: d lowers all that it is about to tier 2; take one of them out",
				"[7:5] rules[4]: e has no effect: f raises all that it is about to tier 5; take one of them out",
			}},
		{"shadowed in another spelling", checkedHead, `integrations: {crm: {tools: {Purge: {tier: 4}}}}
block: [{id: b, actions: [crm.PURGE], why: W}]
rules: [{id: l, actions: [crm.Purge], lower_to: 2, why: W}]`,
			[]string{"[3:9] rules[0]: l has no effect: b denies all that it is about; take one of them out"}},
		{"shadowed for some agents", tools, `
rules:
  - {id: a, actions: [crm.send_email], agents: [x, y], raise_to: 4, why: W}
  - {id: b, actions: [crm.send_email], agents: [y], raise_to: 4, why: W}
  - {id: c, actions: [crm.send_email], agents: [z], raise_to: 4, why: W}`,
			[]string{"[4:5] rules[1]: b has no effect: a raises all that it is about to tier 4; take one of them out"}},

		{"amount of tools without one", tools, `
block:
  - {id: a, amount_over: 5000, when: 'tier > 1', why: W}
rules:
  - {id: b, actions: [crm.refund, crm.send_email], amount_over: 1000, raise_to: 5, why: W}
  - {id: c, actions: ["crm.*"], amount_over: 2000, raise_to: 5, agents: [x], why: W}
  - {id: d, actions: [crm.delete_note], amount_at_most: 3, lower_to: 2, why: W}
  - {id: e, actions: [crm.refund], count_at_most: 3, lower_to: 2, why: W}`,
			[]string{
				"[5:35] rules[0].actions[1]: no tool that crm.send_email is about has an expression for its amount, so b never holds for it; add one",
				"[7:23] rules[2].actions[0]: no tool that crm.delete_note is about has an expression for its amount, so d never holds for it; add one",
				"[8:23] rules[3].actions[0]: no tool that crm.refund is about has an expression for its count, so e never holds for it; add one",
			}},
		{"amount of what isn't listed", tools, `
rules:
  - {id: a, actions: [shell.pay], amount_at_most: 3, lower_to: 2, why: W}
  - {id: b, actions: [shell.pay], amount_over: 3, raise_to: 5, why: W}`,
			[]string{
				"[3:23] rules[0].actions[0]: the policy lists no tool that shell.pay is about, and what isn't listed is never lowered; check the name",
				"[4:23] rules[1].actions[0]: no tool that shell.pay is about has an expression for its amount, so b never holds for it; add one",
			}},
		{"amount of no tool", checkedHead, `
rules:
  - {id: a, amount_over: 5000, raise_to: 5, why: W}`,
			[]string{"[3:26] rules[0].amount_over: no tool has an expression for its amount, so a never holds; add one"}},

		{"agents", "agents: {known: {owner: U09}}\n" + tools, `
rules:
  - {id: a, agents: [known, unknown], when: 'tier > 2', raise_to: 5, why: W}
  - {id: b, when: 'agent in ["known", "other"]', raise_to: 5, why: W}`,
			[]string{
				`[3:29] rules[0].agents[1]: "unknown" isn't under agents; check the name or add it there`,
				`[4:19] rules[1].when: agent "other" isn't under agents; check the name or add it there`,
			}},

		{"agents that aren't listed at all", tools, `
rules:
  - {id: a, agents: [known], when: 'tier > 2', raise_to: 5, why: W}
  - {id: b, when: 'agent == "other"', raise_to: 5, why: W}`, nil},
		{"constant conditions", tools, `
rules:
  - {id: a, when: '1 < 2 || args.x', raise_to: 5, why: W}
  - {id: b, when: '"a".startsWith("b")', raise_to: 5, why: W}
  - {id: c, when: 'args.all(k, k == "a")', raise_to: 5, why: W}`,
			[]string{
				"[3:19] rules[0].when: is always true; leave it out",
				"[4:19] rules[1].when: is never true, so the rule has no effect; take the rule out",
			}},
		{"what variables never are", "environments: {staging: {names: [stage]}}\n" + tools, `
rules:
  - {id: a, when: 'environment == "prod"', raise_to: 5, why: W}
  - {id: b, when: '!(environment in ["stage", "staging", "production"])', raise_to: 5, why: W}
  - {id: c, when: '"monday" == weekday || args.environment == "prod"', raise_to: 5, why: W}
  - {id: d, when: 'environment != "live"', raise_to: 5, why: W}`,
			[]string{
				`[3:19] rules[0].when: environment is never "prod"; there are production, staging`,
				`[4:19] rules[1].when: environment is never "stage", which is called staging here; there are production, staging`,
				`[5:19] rules[2].when: weekday is never "monday"; it is one of mon, tue, wed, thu, fri, sat and sun`,
				`[6:19] rules[3].when: environment is never "live"; there are production, staging`,
			}},

		{"stanzas", checkedHead, `integrations:
  crm:
    tools:
      get_*: {tier: 2}
      get_note: {tier: 2}
      get_notes_*: {tier: 1}
      get_secret: {tier: 4}
      get_public: {tier: 1}
      get_ids: {tier: 2, redact: [/x]}
      delete_*: {tier: 4, count: 'size(args.ids)'}
      delete_note: {tier: 4}
      delete_x_*: {tier: 4, count: 'args.x'}`,
			[]string{
				"[5:7] integrations.crm.tools.get_note: has no effect: crm.get_* says tier 2 for all of it; take it out",
				"[6:7] integrations.crm.tools.get_notes_*: has no effect: crm.get_* says tier 2 for all of it; take it out",
			}},
		{"thresholds", checkedHead, `
bulk: [{over: 25, raise_to: 4}, {over: 100, raise_to: 5}, {over: 50, raise_to: 4}, {over: 100, raise_to: 5}]
integrations:
  crm:
    tools:
      get_*: {tier: 1, bulk: [{over: 100, raise_to: 3}]}
      update: {tier: 2, bulk: [{over: 30, raise_to: 3}, {over: 10, raise_to: 3}]}
      pay: {tier: 3, amount: 'args.a', high_value: [{over: 10, raise_to: 5}, {over: 20, raise_to: 4}]}`,
			[]string{
				"[2:59] bulk[2]: has no effect: over 25 it is tier 4 already; take it out",
				"[2:84] bulk[3]: has no effect: over 100 it is tier 5 already; take it out",
				"[7:32] integrations.crm.tools.update.bulk[0]: has no effect: bulk raises to tier 4 over 25 already; take it out",
				"[8:78] integrations.crm.tools.pay.high_value[1]: has no effect: over 10 it is tier 5 already; take it out",
			}},
		{"bulk that meets no tool", checkedHead, `
bulk: [{over: 25, raise_to: 4}]
integrations: {crm: {tools: {get_*: {tier: 1}, delete_*: {tier: 4}}}}`,
			[]string{"[2:8] bulk[0]: raises nothing: all tools that change something are tier 4 or higher; take it out"}},
		{"bulk without tools that change something", checkedHead, `
bulk: [{over: 25, raise_to: 4}]
integrations: {crm: {tools: {get_*: {tier: 1}}}}`, nil},
		{"bulk of lowered tools", checkedHead, `
bulk: [{over: 25, raise_to: 4}]
integrations: {crm: {tools: {get_*: {tier: 1}, delete_*: {tier: 4}}}}
rules: [{id: a, actions: [crm.delete_note], lower_to: 2, why: W}]`, nil},
		{"amount of what is redacted", checkedHead, `
redact: {keys: [salary]}
integrations: {hr: {tools: {pay: {tier: 4, amount: 'args.person.Salary * 2', redact: [/person/name]}}}}`,
			[]string{"[3:52] integrations.hr.tools.pay.amount: shows /person/Salary, which is redacted, as the amount; redact it no longer, or leave amount out"}},
		{"amount of what has a redacted part", checkedHead, `
integrations: {hr: {tools: {pay: {tier: 4, amount: 'args.lines.map(l, l.salary)[0]', redact: [/lines/*/salary]}}}}`,
			[]string{"[2:52] integrations.hr.tools.pay.amount: reads /lines, of which a part is redacted, and may show that as the amount; name the part that it reads"}},
		{"count of what is redacted", checkedHead, `
integrations: {hr: {tools: {pay: {tier: 4, count: 'int(args.salary)', redact: [/salary]}}}}`,
			[]string{"[2:51] integrations.hr.tools.pay.count: shows /salary, which is redacted, as the count; redact it no longer, or leave count out"}},
		{"how many there are of what is partly redacted", checkedHead, `
integrations: {hr: {tools: {pay: {tier: 4, count: 'size(args.lines)', redact: [/lines/*/salary]}}}}`, nil},

		{"target of what is redacted", checkedHead, `
redact: {keys: [salary]}
integrations: {hr: {tools: {pay: {tier: 4, target: 'args.name + args.person.Salary', redact: [/person/name]}}}}`,
			[]string{"[3:52] integrations.hr.tools.pay.target: reads /person/Salary, which is redacted, so no call has a target; redact it no longer, or leave target out"}},
		{"target of what has a redacted part", checkedHead, `
integrations: {hr: {tools: {pay: {tier: 4, target: 'args.lines.map(l, l.id).join()', redact: [/lines/*/salary]}}}}`,
			[]string{"[2:52] integrations.hr.tools.pay.target: reads /lines, of which a part is redacted, so no call has a target; name the part that it reads"}},
		{"target of anything", checkedHead, `
redact: {keys: [salary]}
integrations: {hr: {tools: {pay: {tier: 4, target: 'args[args.key]'}}}}`,
			[]string{"[3:52] integrations.hr.tools.pay.target: reads arguments that it doesn't name, so a call in which something is redacted has no target; name the arguments"}},
		{"target of anything where nothing is redacted", checkedHead, `
integrations: {hr: {tools: {pay: {tier: 4, target: 'args[args.key]'}}}}`, nil},
		{"target of what isn't redacted", checkedHead, `
redact: {keys: [salary]}
integrations: {hr: {tools: {pay: {tier: 4, target: 'args.person.name', redact: [/person/salary]}}}}`, nil},
		{"stanza that says only what a call acts on", checkedHead, `
integrations: {hr: {tools: {"*": {tier: 4}, pay: {tier: 4, target: 'args.to'}, order: {tier: 4, idempotency: key}}}}`, nil},

		{"in band", tools, `
environments: {staging: {names: [stage]}}
in_band: {tiers: [2, 3], environments: [staging]}`, nil},
		{"in band everywhere else", tools, `
environments: {staging: {names: [stage]}}
in_band: {tiers: [2, 3]}`, nil},
		{"in band in production and in strict mode", tools, `
environments: {staging: {mode: strict}}
in_band: {tiers: [2, 3], environments: [staging, production], modes: [strict]}`,
			[]string{
				"[3:50] in_band.environments[1]: in production, what an agent's own client answers is enough, and that isn't the answer of a person with a role, since some clients say yes by themselves; leave it out unless that is meant",
				"[3:71] in_band.modes[0]: in mode strict, what an agent's own client answers is enough, and that isn't the answer of a person with a role, since some clients say yes by themselves; leave it out unless that is meant",
			}},
		{"in band nowhere", tools, `
in_band: {tiers: [2, 3]}`,
			[]string{"[2:1] in_band: has no effect: it is about all environments but production, and there is no other; take it out"}},
		{"in band in modes without effect", tools, `
environments: {staging: {mode: own}}
modes: {own: {1: allow, 2: allow, 3: require_approval, 4: deny, 5: deny}}
in_band: {tiers: [3], modes: [readonly, own]}`,
			[]string{
				"[4:31] in_band.modes[0]: has no effect: mode readonly leaves nothing to people that a client could answer; take it out",
				"[4:41] in_band.modes[1]: has no effect: what a client answers counts in mode own anyway; only strict has to be listed",
			}},

		{"in view", tools, `
environments: {staging: {names: [stage]}}
in_view: {tiers: [1, 2, 3, 4], environments: [staging]}`, nil},
		{"in view everywhere", tools, `
in_view: {tiers: [1, 2, 3, 4, 5]}`, nil},
		{"in view nowhere", tools, `
in_view: {tiers: []}`, nil},
		{"in view nowhere in some places", tools, `
environments: {staging: {mode: strict}}
in_view: {tiers: [], environments: [staging], modes: [strict]}`,
			[]string{
				"[3:36] in_view.environments: has no effect: no tier is named, so nothing is left to a view; take it out",
				"[3:54] in_view.modes: has no effect: no tier is named, so nothing is left to a view; take it out",
			}},
		{"in view in production and in strict mode", tools, `
environments: {staging: {mode: strict}}
in_view: {tiers: [1, 2], environments: [staging, production], modes: [strict]}`,
			[]string{
				"[3:71] in_view.modes[0]: in mode strict, what is decided in the view of an agent's own host is enough, and that isn't the decision of a person with a role, since nobody signs in there; leave it out unless that is meant",
			}},
		{"in view in production alone", tools, `
environments: {staging: {mode: strict}}
in_view: {environments: [production], modes: [strict]}`,
			[]string{
				"[3:47] in_view.modes[0]: has no effect: it is about production alone, where mode strict leaves nothing to a view; take it out",
			}},
		{"in view where there is only production", tools, `
in_view: {modes: [strict]}`,
			[]string{
				"[2:19] in_view.modes[0]: has no effect: it is about production alone, where mode strict leaves nothing to a view; take it out",
			}},
		{"in view in modes without effect", tools, `
environments: {staging: {mode: own}}
modes: {own: {1: allow, 2: allow, 3: require_approval, 4: deny, 5: deny}}
in_view: {modes: [readonly, own]}`,
			[]string{
				"[4:19] in_view.modes[0]: has no effect: mode readonly leaves nothing to people that could be decided in a view; take it out",
				"[4:29] in_view.modes[1]: has no effect: what is decided in a view counts in mode own anyway; only strict has to be listed",
			}},
		{"in view, which says nothing of environments", tools, `
environments: {staging: {names: [stage]}}
in_view: {tiers: [1]}`,
			[]string{"[2:16] environments.staging: nothing in the policy depends on the environment; give it a mode or take it out"}},

		{"environments", tools, `
environments: {staging: {names: [stage]}, production: {names: [prod]}}`,
			[]string{"[2:16] environments.staging: nothing in the policy depends on the environment; give it a mode or take it out"}},
		{"environments that matter", tools, `
environments: {staging: {names: [stage]}}
rules: [{id: a, environments: [production], when: 'tier > 1', raise_to: 5, why: W}]`, nil},
		{"environments that an integration has a mode for", checkedHead, `
environments: {staging: {names: [stage]}}
integrations: {crm: {environments: {staging: open}}}`, nil},
		{"environments that first uses are counted in", tools, `
environments: {staging: {names: [stage]}}
first_use: {of: [agent]}`, nil},
		{"environments that conditions read", tools, `
environments: {staging: {names: [stage]}}
rules: [{id: a, when: 'environment == "production"', raise_to: 5, why: W}]`, nil},
		{"modes", tools, `
modes:
  mine: {1: allow, 2: allow, 3: allow, 4: allow, 5: deny}
  used: {1: allow, 2: allow, 3: allow, 4: allow, 5: deny}
environments: {staging: {mode: used}}`,
			[]string{"[3:3] modes.mine: is used nowhere; name it as the mode of the policy, an environment or an integration, or take it out"}},
		{"hours", tools, `
hours: {zone: Europe/Paris, days: [mon], from: "07:00", to: "20:00"}`,
			[]string{"[2:1] hours: no condition uses in_hours, hour or weekday; take it out"}},
		{"hours that conditions read", tools, `
hours: {zone: Europe/Paris, days: [mon], from: "07:00", to: "20:00"}
rules: [{id: a, when: '!in_hours', raise_to: 5, why: W}]`, nil},
		{"hours whose zone conditions read", tools, `
hours: {zone: Europe/Paris, days: [mon], from: "07:00", to: "20:00"}
rules: [{id: a, when: 'weekday == "sun"', raise_to: 5, why: W}]`, nil},

		{"roles", "", `version: 1
mode: cautious
roles:
  oncall: {users: [U01, U02]}
  all: {users: [U03, U04]}
  spare: {users: [U05], self_approval: true}
  solo: {users: [U06], self_approval: true}
approval:
  requires: [{role: oncall}]
tiers:
  4: {requires: [{role: all, count: 2}]}
  5: {requires: [{role: all, count: 2}, {role: solo}], self_approval: false}
`,
			[]string{
				"[6:3] roles.spare: is asked for nowhere; name it under requires, or take it out",
				"[7:39] roles.solo.self_approval: has no effect: wherever the role is asked for, self_approval is false; take one of them out",
				"[11:18] tiers.4.requires[0]: asks for all 2 people of all, so nothing is approved while one is away; add somebody to the role or ask for fewer",
				"[12:18] tiers.5.requires[0]: asks for all 2 people of all, so nothing is approved while one is away; add somebody to the role or ask for fewer",
			}},
		{"one person alone", "", `version: 1
mode: cautious
roles: {me: {users: [U01], self_approval: true}}
agents: {mine: {owner: U01}}
approval: {requires: [{role: me}]}
`, nil},
		{"several people of a group", "", `version: 1
mode: cautious
roles: {team: {users: [U01, U02], groups: [S01]}, boss: {users: [U03], groups: [S01]}}
approval: {requires: [{role: team, count: 2}], escalate: {after: 1h, to: boss}}
`, nil},
		{"too late", "", `version: 1
mode: cautious
roles: {oncall: {users: [U01, U02]}}
approval:
  requires: [{role: oncall}]
  decide_within: 1h
  remind_after: [30m, 1h]
  escalate: {after: 2h, to: oncall}
tiers:
  4: {decide_within: 40m}
  5: {decide_within: 10m}
`,
			[]string{
				"[7:23] approval.remind_after[1]: never comes: a request expires after 1 hour; remind earlier",
				"[8:21] approval.escalate.after: never comes: a request expires after 1 hour; escalate earlier",
				"[10:22] tiers.4.decide_within: ends before approval escalates, after 2 hours; give the tier its own escalate",
				"[11:22] tiers.5.decide_within: ends before approval escalates, after 2 hours; give the tier its own escalate",
				"[11:22] tiers.5.decide_within: ends before the first reminder of approval, after 30 minutes; give the tier its own remind_after",
			}},
		{"escalation to people who can't decide", "", `version: 1
mode: cautious
roles:
  oncall: {users: [U01, U02]}
  lead: {users: [U02]}
  boss: {users: [U03]}
approval:
  requires: [{role: oncall}]
  escalate: {after: 2h, to: lead}
tiers:
  4: {escalate: {after: 1h, to: boss}}
  5: {requires: [{role: boss}]}
`,
			[]string{
				"[11:33] tiers.4.escalate.to: mentions boss, whose people can't decide; escalate to a role that is asked for",
				"[12:17] tiers.5.requires: doesn't ask for lead, whom approval escalates to; give the tier its own escalate",
			}},
		{"nobody is asked", "", `version: 1
mode: readonly
unclassified: deny
roles: {oncall: {users: [U01, U02]}, boss: {users: [U03]}}
approval:
  requires: [{role: oncall, count: 2}]
  escalate: {after: 24h, to: boss}
`, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(test.want, findings(t, test.before, test.source)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestCheckSecrets(t *testing.T) {
	t.Parallel()
	const digits = "0123456789abcdefghij"
	for _, test := range []struct {
		name, secret, want string
	}{
		{"Slack token", "xo" + "xb-123456789012-" + digits, "a Slack token"},
		{"Slack app token", "xa" + "pp-1-A012-" + digits, "a Slack token"},
		{"Slack webhook", "https://hooks." + "slack.com/services/T0123456/B0123456/" + digits, "a Slack webhook"},
		{"Stripe key", "sk_" + "live_" + digits, "a Stripe key"},
		{"GitHub token", "gh" + "p_" + digits, "a GitHub token"},
		{"fine-grained GitHub token", "github" + "_pat_" + digits, "a GitHub token"},
		{"GitLab token", "gl" + "pat-" + digits, "a GitLab token"},
		{"AWS key", "AK" + "IA0123456789ABCDEF", "an AWS key"},
		{"Google key", "AI" + "za" + digits + "0123456789abcde", "a Google key"},
		{"API key", "sk-" + "ant-" + digits + digits, "an API key"},
		{"JSON Web Token", "ey" + "J0123456789.ey" + "J0123456789.abc", "a JSON Web Token"},
		{"bearer token", "Bearer " + "abcdefgh" + digits, "a bearer token"},
		{"password in an address", "postgres://app:" + "hunter2@db.internal/crm", "a password in an address"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			looks := ": looks like " + test.want + "; whoever can read the policy could use it: take it out, and replace it where it is valid"
			for place, source := range map[string]struct{ before, source, at string }{
				"at the top":  {"", "# " + test.secret + "\n" + checkedHead, "[1:3]"},
				"after a key": {checkedHead, "unclassified: deny # " + test.secret + "\n", "[1:22]"},
				"at the end":  {checkedHead, "\n  #" + test.secret, "[2:4]"},
				"in a reason": {checkedHead + checkedTools, "rules: [{id: a, raise_to: 5, why: \"é " + test.secret + "\"}]\n", "[1:38]"},
				"in a condition": {checkedHead + checkedTools, "rules:\n- id: a\n  why: W\n  raise_to: 5\n  when: >-\n    args.x ==\n    \"" +
					test.secret + "\"\n", "[7:6]"},
			} {
				got := findings(t, source.before, source.source)
				want := source.at + strings.TrimPrefix(looks, ":")
				if len(got) != 1 || got[0] != want {
					t.Errorf("%s: %q, want %q", place, got, want)
				}
			}
		})
	}
}

func TestCheckPrivateKeys(t *testing.T) {
	t.Parallel()
	got := findings(t, checkedHead, "# -----BEGIN RSA PRIVATE "+"KEY-----\n# MIIEpAIBAAKCAQEA0123456789\n# -----END RSA PRIVATE KEY-----\n")
	want := []string{"[1:3] looks like a private key; whoever can read the policy could use it: take it out, and replace it where it is valid"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// What a finding says of a name that is a secret, the secret isn't in.
func TestCheckRepeatsNoSecret(t *testing.T) {
	t.Parallel()
	const secret = "xo" + "xb-123456789012-abcdefgh"
	got := findings(t, checkedHead+checkedTools, "agents: {a: {owner: U09}}\nrules: [{id: a, when: 'agent == \""+secret+"\"', raise_to: 5, why: W}]\n")
	if len(got) != 2 || strings.Contains(strings.Join(got, "\n"), secret) {
		t.Errorf("%q", got)
	}
}

func TestCheckTakesNothingElseForSecrets(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"a token is xoxb-...",
		"https://example.com:8080/a@b and https://user@example.com",
		"https://USER:${PASSWORD}@example.com and https://u:<password>@example.com",
		"the bearer authentication-of-this-server is off",
		"sk-operations-and-everything-else",
		`args.text.matches("xox[bp]-[0-9]{10,}|AKIA[0-9A-Z]{16}|sk_live_|ghp_[A-Za-z0-9]{36}|https?://.*:.*@")`,
		`args.text.contains("-----BEGIN PRIVATE KEY-----") || args.text.startsWith("Bearer ")`,
		"task-0123456789-0123456789-0123456789",
	} {
		if got := findings(t, checkedHead, "# "+text+"\n"); len(got) > 0 {
			t.Errorf("%s: %q", text, got)
		}
	}
}

// Starters are examples to follow, so nothing is to be said about them.
func TestCheckOfStarters(t *testing.T) {
	t.Parallel()
	paths, err := filepath.Glob("starters/*/policy.yaml")
	if err != nil || len(paths) == 0 {
		t.Fatal(paths, err)
	}
	for _, path := range paths {
		source, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if got := findings(t, "", string(source)); len(got) > 0 {
			t.Errorf("%s:\n%s", path, strings.Join(got, "\n"))
		}
	}
}

// A rule of which Check says that it has no effect changes no ruling's effect
// or tier when it is taken out.
func TestWhatCheckCallsPointlessIs(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		names := []string{"get_a", "get_b", "del_a", "del_b", "x"}
		patterns := []string{"get_a", "get_*", "*_a", "del_*", "*", "x", "del_b"}
		var tools, rules []string
		for _, name := range rapid.SliceOfNDistinct(rapid.SampledFrom(patterns), 1, 4, rapid.ID).Draw(t, "tools") {
			tools = append(tools, `      "`+name+`": {tier: `+rapid.SampledFrom([]string{"1", "2", "3", "4", "5"}).Draw(t, "tier")+"}")
		}
		for i := range rapid.IntRange(1, 4).Draw(t, "rules") {
			rules = append(rules, `  - {id: r`+string(rune('0'+i))+`, why: W, actions: ["s.`+rapid.SampledFrom(patterns).Draw(t, "action")+`"]`+
				rapid.SampledFrom([]string{"", ", environments: [production]", ", environments: [staging]"}).Draw(t, "environments")+
				rapid.SampledFrom([]string{"", `, when: 'has(args.c)'`}).Draw(t, "when")+
				rapid.SampledFrom([]string{", lower_to: 1", ", lower_to: 2", ", lower_to: 3", ", raise_to: 3", ", raise_to: 4", ", raise_to: 5"}).Draw(t, "does")+"}")
		}
		head := checkedHead + "environments: {staging: {names: [stage]}}\nmodes: {each: {1: allow, 2: allow, 3: require_approval, 4: require_approval, 5: deny}}\n"
		whole := func(tools, rules []string) *policy.Policy {
			p, err := policy.Parse([]byte(head + "integrations:\n  s:\n    tools:\n" + strings.Join(tools, "\n") + "\nrules:\n" + strings.Join(rules, "\n") + "\n"))
			if err != nil {
				t.Fatal(err)
			}
			return p
		}
		rulings := func(p *policy.Policy) (all []string) {
			for _, name := range names {
				for _, environment := range []string{"production", "staging"} {
					for _, payload := range []string{`{}`, `{"c":1}`} {
						r := p.Rule(policy.Call{Action: "s." + name, Environment: environment, Payload: []byte(payload)})
						all = append(all, name+" "+environment+" "+payload+" "+r.Tier.String())
					}
				}
			}
			return all
		}
		p := whole(tools, rules)
		for _, finding := range p.Check() {
			text := finding.Text
			pointless := strings.Contains(text, "has no effect") || strings.Contains(text, "s nothing:")
			if !pointless {
				continue
			}
			var kept, keptTools []string
			for i, rule := range rules {
				if !strings.HasPrefix(text, "rules["+string(rune('0'+i))+"]: ") {
					kept = append(kept, rule)
				}
			}
			for _, tool := range tools {
				name := strings.Split(tool, `"`)[1]
				if !strings.HasPrefix(text, "integrations.s.tools."+name+": ") {
					keptTools = append(keptTools, tool)
				}
			}
			if len(kept)+len(keptTools) != len(rules)+len(tools)-1 {
				t.Fatalf("%s is about no rule and no tool", text)
			}
			if len(kept) == 0 {
				kept = []string{`  - {id: other, actions: [other.x], why: W, raise_to: 5}`}
			}
			if diff := cmp.Diff(rulings(p), rulings(whole(keptTools, kept))); diff != "" {
				t.Fatalf("%s, but without it -before +after:\n%s", finding, diff)
			}
		}
	})
}
