package policy_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/countersign/countersign/policy"
)

// Each problem is told at the place that the mark ‸ stands before, with what is
// wrong and what to do.
func TestProblems(t *testing.T) {
	t.Parallel()
	rule := func(text string) string { return "rules:\n  - " + text + "\n" }
	const staging = "environments: {staging: {}}\n"
	tests := []struct {
		name   string
		source string // added to the smallest policy unless it has a version itself
		want   string
	}{
		{"version of the future", strings.Replace(smallest, "version: 1", "version: ‸2", 1), "version: is 2; this countersign reads version 1"},
		{"unclassified is allowed", "unclassified: ‸allow\n", `unclassified: is "allow"; require_approval and deny are accepted`},

		{"mode missing", "‸" + strings.Replace(smallest, "mode: cautious\n", "", 1), "mode is missing; open, cautious, strict, readonly or one of your own"},
		{"mode unknown", strings.Replace(smallest, "cautious", "‸careful", 1), `mode: mode "careful" isn't known; there are cautious, open, readonly, strict`},
		{"mode in other case", strings.Replace(smallest, "cautious", "‸Cautious", 1), `mode: mode "Cautious" isn't known; there are cautious, open, readonly, strict`},
		{"mode of an environment unknown", "environments: {staging: {mode: ‸lax}}\n", `environments.staging.mode: mode "lax" isn't known; there are cautious, open, readonly, strict`},
		{"mode of an integration unknown", "integrations: {crm: {mode: ‸lax}}\n", `integrations.crm.mode: mode "lax" isn't known; there are cautious, open, readonly, strict`},
		{"mode of an integration for an environment unknown", "integrations: {crm: {environments: {production: ‸lax}}}\n", `integrations.crm.environments.production: mode "lax" isn't known; there are cautious, open, readonly, strict`},
		{"mode of an integration for an environment empty", "integrations: {crm: {environments: {production: ‸''}}}\n", `integrations.crm.environments.production: names no mode`},
		{"mode twice", "modes: {‸open: {1: allow, 2: deny, 3: deny, 4: deny, 5: deny}}\n", "modes.open: is a mode that every policy has; choose another name"},
		{"mode with capital letters", "modes: {‸Night: {1: allow, 2: deny, 3: deny, 4: deny, 5: deny}}\n", "modes.Night: a name is 1 to 64 lower-case letters, digits, - and _, starting with a letter"},
		{"mode without a tier", "modes: {‸nightly: {1: allow, 2: deny, 3: deny, 5: deny}}\n", "modes.nightly: doesn't say what tier 4 does; name all five"},
		{"mode with a tier too many", "modes: {nightly: {1: allow, 2: deny, 3: deny, 4: deny, 5: deny, ‸6: deny}}\n", "modes.nightly.6: is no tier; they are 1 to 5"},
		{"mode with a tier in words", "modes: {nightly: {‸one: allow, 2: deny, 3: deny, 4: deny, 5: deny}}\n", "modes.nightly.one: is no tier; they are 1 to 5"},
		{"mode with a tier that is broken", "modes: {nightly: {‸1.5: allow, 2: deny, 3: deny, 4: deny, 5: deny}}\n", "modes.nightly.1.5: is no tier; they are 1 to 5"},
		{"mode with a tier twice, spelt otherwise", "modes: {nightly: {1: deny, ‸0x1: allow, 2: deny, 3: deny, 4: deny, 5: deny}}\n", "modes.nightly.0x1: is no tier; they are 1 to 5"},
		{"mode with an effect that isn't known", "modes: {nightly: {1: allow, 2: ‸ask, 3: deny, 4: deny, 5: deny}}\n", `modes.nightly.2: is "ask"; allow, require_approval and deny are accepted`},
		{"mode that is weaker for a higher tier", "modes: {nightly: {1: deny, 2: ‸allow, 3: deny, 4: deny, 5: deny}}\n", "modes.nightly.2: allow is weaker than deny of the tier below"},

		{"environment with capital letters", "environments: {‸Staging: {}}\n", "environments.Staging: a name is 1 to 64 lower-case letters, digits, - and _, starting with a letter"},
		{"environment with an empty name", "environments: {staging: {names: [stage, ‸' ']}}\n", "environments.staging.names[1]: is empty; what isn't stated is production"},
		{"environment with another's name", "environments: {staging: {names: [‸Production]}}\n", `environments.staging.names[0]: "Production" already means production`},
		{"environment with another's other name", "environments: {a: {names: [x]}, b: {names: [‸X]}}\n", `environments.b.names[0]: "X" already means a`},
		{"environment with a name that follows", "environments: {a: {names: [‸b]}, b: {}}\n", `environments.a.names[0]: "b" already means b`},

		{"roles missing", "‸version: 1\nmode: open\n", "roles is missing; name who may approve"},
		{"role with capital letters", strings.ReplaceAll(strings.Replace(smallest, "oncall", "‸Oncall", 1), "role: oncall", "role: Oncall"), "roles.Oncall: a name is 1 to 64 lower-case letters, digits, - and _, starting with a letter"},
		{"role of nobody", strings.Replace(smallest, "oncall: {users: [U0ADA, U0GRACE]}", "‸oncall: {users: []}", 1), "roles.oncall: has no users and no groups, so nobody can approve for it"},
		{"user by name", strings.Replace(smallest, "U0GRACE", "‸'@grace'", 1), `roles.oncall.users[1]: "@grace" is not a Slack user id (like U024BE7LH)`},
		{"user in lower case", strings.Replace(smallest, "U0GRACE", "‸u0grace", 1), `roles.oncall.users[1]: "u0grace" is not a Slack user id (like U024BE7LH)`},
		{"user as a group", strings.Replace(smallest, "users: [U0ADA, U0GRACE]", "groups: [‸U0ADA]", 1), `roles.oncall.groups[0]: "U0ADA" is not a Slack user group id (like S0614TZR7)`},

		{"agent with another name than agents have", "agents: {‸a b: {owner: U0ADA}}\n", "agents.a b: an agent's name is 1 to 64 letters, digits, ., _ and -, starting with a letter or a digit"},
		{"agent without a name", "agents: {‸'': {owner: U0ADA}}\n", "agents.: an agent's name is 1 to 64 letters, digits, ., _ and -, starting with a letter or a digit"},
		{"agent without an owner", "agents: {‸billing: {}}\n", `agents.billing.owner: "" is not a Slack user id (like U024BE7LH)`},
		{"agent whose owner is the only approver", strings.Replace(smallest, ", U0GRACE", "", 1) + "agents: {billing: {owner: ‸U0ADA}}\n",
			"agents.billing.owner: without U0ADA, for whom the agent acts, nobody could approve its requests of tier 3, 4, 5; give the role to somebody else too, or set self_approval on it"},

		{"approval missing", "‸version: 1\nmode: open\nroles: {oncall: {users: [U0ADA]}}\n", "approval: requires is missing; name the role that approves"},
		{"approval of nobody", strings.Replace(smallest, "[{role: oncall}]", "‸[]", 1), "approval.requires: is an empty list; name the role that approves, or leave it out"},
		{"tier of nobody", "tiers: {5: {requires: ‸[]}}\n", "tiers.5.requires: is an empty list; name the role that approves, or leave it out"},
		{"tier that there isn't", "tiers: {‸6: {}}\n", "tiers.6: is no tier; they are 1 to 5"},
		{"self-approval for all roles", "tiers: {5: {self_approval: ‸true}}\n", "tiers.5.self_approval: only false is accepted here, which forbids it; a role allows it to its people"},
		{"role unknown", strings.Replace(smallest, "{role: oncall}", "‸{role: on-call}", 1), `approval.requires[0]: role "on-call" isn't defined`},
		{"role asked for twice", strings.Replace(smallest, "{role: oncall}", "{role: oncall}, ‸{role: oncall}", 1), `approval.requires[1]: role "oncall" is asked for twice; give it one count`},
		{"nobody of a role", strings.Replace(smallest, "{role: oncall}", "‸{role: oncall, count: 0}", 1), `approval.requires[0]: asks for 0 of role "oncall"; the count is 1 to 20`},
		{"fewer than nobody of a role", strings.Replace(smallest, "{role: oncall}", "‸{role: oncall, count: -1}", 1), `approval.requires[0]: asks for -1 of role "oncall"; the count is 1 to 20`},
		{"too many of a role", strings.Replace(smallest, "{role: oncall}", "‸{role: oncall, count: 21}", 1), `approval.requires[0]: asks for 21 of role "oncall"; the count is 1 to 20`},
		{"more than hold a role", strings.Replace(smallest, "{role: oncall}", "‸{role: oncall, count: 3}", 1), `approval.requires[0]: asks for 3 of role "oncall", which has 2`},
		{"the same user twice for two places", strings.NewReplacer("U0GRACE", "U0ADA", "{role: oncall}", "‸{role: oncall, count: 2}").Replace(smallest), `approval.requires[0]: asks for 2 of role "oncall", which has 1`},
		{"too many people in all", strings.NewReplacer("approval:", "  sre: {groups: [S0SRE]}\napproval:", "[{role: oncall}]", "‸[{role: sre, count: 20}, {role: oncall}]").Replace(smallest), `approval.requires: asks for 21 people; at most 20`},
		{"time to decide too short", "tiers: {4: {decide_within: ‸59s}}\n", "tiers.4.decide_within: is 59s; 1m to 24h are accepted"},
		{"time to decide too long", "tiers: {4: {decide_within: ‸24h1s}}\n", "tiers.4.decide_within: is 24h0m1s; 1m to 24h are accepted"},
		{"time to decide without a unit", "tiers: {4: {decide_within: ‸60}}\n", "tiers.4.decide_within: has no unit; a time is written like 15m"},
		{"time to decide that can't be read", "tiers: {4: {decide_within: ‸1 h}}\n", `tiers.4.decide_within: "1 h" is not a time, which is written like 15m`},
		{"time to decide below zero", "tiers: {4: {decide_within: ‸-1h}}\n", "tiers.4.decide_within: is -1h0m0s; 1m to 24h are accepted"},
		{"time to apply too short", "tiers: {4: {apply_within: ‸0s}}\n", "tiers.4.apply_within: is 0s; 1m to 24h are accepted"},
		{"reminders that don't rise", "tiers: {4: {remind_after: [10m, ‸10m]}}\n", "tiers.4.remind_after[1]: is 10m0s; rising times from 1m to 24h are accepted"},
		{"reminder at once", "tiers: {4: {remind_after: [‸1s]}}\n", "tiers.4.remind_after[0]: is 1s; rising times from 1m to 24h are accepted"},
		{"too many reminders", "tiers: {4: {remind_after: ‸[1m, 2m, 3m, 4m, 5m, 6m, 7m, 8m, 9m, 10m, 11m]}}\n", "tiers.4.remind_after: has 11 times; at most 10 are accepted"},
		{"escalation at once", "tiers: {4: {escalate: {after: ‸1s, to: oncall}}}\n", "tiers.4.escalate.after: is 1s; 1m to 24h are accepted"},
		{"escalation to a role that there isn't", "tiers: {4: {escalate: {after: 1h, to: ‸sre}}}\n", `tiers.4.escalate.to: role "sre" isn't defined`},
		{"scope unknown", "tiers: {2: {scopes: [once, ‸forever]}}\n", `tiers.2.scopes[1]: "forever"; once, session and durations such as 15m are accepted`},
		{"scope too long", "tiers: {2: {scopes: [‸9h]}}\n", "tiers.2.scopes[0]: is 9h; 1m to 8h are accepted"},
		{"scope too short", "tiers: {2: {scopes: [‸1s]}}\n", "tiers.2.scopes[0]: is 1s; 1m to 8h are accepted"},
		{"scope for what destroys", "tiers: {4: {scopes: [once, ‸15m]}}\n", `tiers.4.scopes[1]: "15m" isn't accepted from tier 4; what destroys is approved each time`},
		{"session for what destroys", "tiers: {5: {scopes: [‸session]}}\n", `tiers.5.scopes[0]: "session" isn't accepted from tier 4; what destroys is approved each time`},
		{"a higher tier takes fewer people", "tiers: {4: {requires: [{role: oncall, count: 2}]}, ‸5: {requires: [{role: oncall}]}}\n", "tiers.5: tier 5 takes 1 of oncall, which is fewer people than tier 4 takes (2 of oncall)"},
		{"a higher tier takes fewer people by what is general", strings.Replace(smallest, "approval:\n", "‸approval:\n", 1) + "tiers: {4: {requires: [{role: oncall, count: 2}]}}\n", "approval: tier 5 takes 1 of oncall, which is fewer people than tier 4 takes (2 of oncall)"},
		{"a higher tier takes no reason", "tiers: {4: {reason_required: true}, ‸5: {reason_required: false}}\n", "tiers.5: tier 5 takes no reason, but tier 4 does"},
		{"a higher tier lets people approve what is their own", strings.NewReplacer("approval:", "  me: {users: [U0ADA], self_approval: true}\napproval:", "role: oncall", "role: me").Replace(smallest) + "tiers: {4: {self_approval: false}, ‸5: {}}\n",
			"tiers.5: tier 5 lets people approve what is their own, but tier 4 forbids it"},
		{"one person for two roles", strings.NewReplacer("approval:", "  sre: {users: [U0ADA]}\napproval:", ", U0GRACE", "").Replace(smallest) + "tiers: {‸5: {requires: [{role: oncall}, {role: sre}]}}\n",
			"tiers.5: tier 5 takes more distinct people than hold the roles: one person fills one place"},

		{"time zone unknown", "hours: {zone: ‸Europe/Atlantis, days: [mon], from: '07:00', to: '20:00'}\n", `hours.zone: "Europe/Atlantis" is not a time zone (like Europe/Paris)`},
		{"time zone of the machine", "hours: {zone: ‸Local, days: [mon], from: '07:00', to: '20:00'}\n", `hours.zone: "Local" is not a time zone (like Europe/Paris)`},
		{"time zone as a file", "hours: {zone: ‸../../etc/passwd, days: [mon], from: '07:00', to: '20:00'}\n", `hours.zone: "../../etc/passwd" is not a time zone (like Europe/Paris)`},
		{"time zone missing", "‸hours: {days: [mon], from: '07:00', to: '20:00'}\n", `hours.zone: "" is not a time zone (like Europe/Paris)`},
		{"days missing", "‸hours: {zone: UTC, from: '07:00', to: '20:00'}\n", "hours: days is missing; name some of mon, tue, wed, thu, fri, sat, sun"},
		{"day unknown", "hours: {zone: UTC, days: [‸Mon], from: '07:00', to: '20:00'}\n", `hours.days[0]: "Mon" is no day; mon, tue, wed, thu, fri, sat and sun are`},
		{"days as a range", "hours: {zone: UTC, days: [‸mon-fri], from: '07:00', to: '20:00'}\n", `hours.days[0]: "mon-fri" is no day; mon, tue, wed, thu, fri, sat and sun are`},
		{"hours that end before they begin", "hours: {zone: UTC, days: [mon], from: '20:00', to: ‸'07:00'}\n", `hours.to: "07:00" isn't after from, "20:00"`},
		{"hours of no time", "hours: {zone: UTC, days: [mon], from: '07:00', to: ‸'07:00'}\n", `hours.to: "07:00" isn't after from, "07:00"`},
		{"no time of day", "hours: {zone: UTC, days: [mon], from: ‸7am, to: '20:00'}\n", `hours.from: "7am" is not a time of day (like "07:00")`},
		{"a time of day that there isn't", "hours: {zone: UTC, days: [mon], from: '07:00', to: ‸'24:01'}\n", `hours.to: "24:01" is not a time of day (like "07:00")`},

		{"first use of something else", "first_use: {of: [‸tools]}\n", `first_use.of[0]: "tools"; tool, integration and agent are accepted`},
		{"first use of nothing", "‸first_use: {of: []}\n", "first_use: of is missing; name some of tool, integration and agent"},
		{"first use in no environment", "first_use: {of: [tool], environments: ‸[]}\n", "first_use.environments: is an empty list; name some, or leave it out for all"},
		{"first use in an environment that there isn't", "first_use: {of: [tool], environments: [‸test]}\n", `first_use.environments[0]: environment "test" isn't defined; there are production`},
		{"first use to no tier", "first_use: {of: [tool], raise_to: ‸6}\n", "first_use.raise_to: is 6; tiers are 1 to 5"},
		{"first use for too short", "first_use: {of: [tool], within: ‸1m}\n", "first_use.within: is 1m0s; at least 1h is accepted"},

		{"bulk without a number", "bulk: [‸{raise_to: 4}]\n", "bulk[0]: over is missing; name the number"},
		{"bulk below zero", "bulk: [{over: ‸-1, raise_to: 4}]\n", "bulk[0].over: is -1; 0 to 1e15 are accepted"},
		{"bulk beyond what is exact", "bulk: [{over: ‸1e16, raise_to: 4}]\n", "bulk[0].over: is 1e+16; 0 to 1e15 are accepted"},
		{"bulk that raises nothing", "bulk: [‸{over: 25, raise_to: 2}]\n", "bulk[0]: raise_to is 2; a tier above 2 is accepted"},
		{"bulk to no tier", "bulk: [‸{over: 25}]\n", "bulk[0]: raise_to is 0; a tier above 2 is accepted"},
		{"bulk of a tool that raises nothing", "integrations: {crm: {tools: {get: {tier: 3, bulk: [‸{over: 25, raise_to: 3}]}}}}\n", "integrations.crm.tools.get.bulk[0]: raise_to is 3; a tier above 3 is accepted"},
		{"high value to no tier", "integrations: {crm: {tools: {get: {tier: 3, amount: args.n, high_value: [‸{over: 25, raise_to: 6}]}}}}\n", "integrations.crm.tools.get.high_value[0]: raise_to is 6; a tier above 3 is accepted"},

		{"integration with a dot", "integrations: {‸crm.v2: {}}\n", "integrations.crm.v2: a name is letters, digits, _, - and /; an action is INTEGRATION.TOOL"},
		{"integration with a star", "integrations: {‸'*': {}}\n", "integrations.*: a name is letters, digits, _, - and /; an action is INTEGRATION.TOOL"},
		{"integration in an environment that there isn't", "integrations: {crm: {environments: {test: ‸open}}}\n", "integrations.crm.environments.test: the environment isn't defined; there are production"},
		{"tool with a blank", "integrations: {crm: {tools: {‸get it: {tier: 1}}}}\n", "integrations.crm.tools.get it: a tool is letters, digits, _, -, ., / and * for any characters"},
		{"tool with a letter of another alphabet", "integrations: {crm: {tools: {‸gеt: {tier: 1}}}}\n", "integrations.crm.tools.gеt: a tool is letters, digits, _, -, ., / and * for any characters"},
		{"tool without a tier", "integrations: {crm: {tools: {‸get: {}}}}\n", "integrations.crm.tools.get: tier is 0; tiers are 1 to 5"},
		{"tool of no tier", "integrations: {crm: {tools: {‸get: {tier: 6}}}}\n", "integrations.crm.tools.get: tier is 6; tiers are 1 to 5"},
		{"high value without an amount", "integrations: {crm: {tools: {get: {tier: 1, high_value: ‸[{over: 1, raise_to: 5}]}}}}\n", "integrations.crm.tools.get.high_value: needs amount, an expression that says what a call is worth"},
		{"count empty", "integrations: {crm: {tools: {get: {tier: 1, count: ‸' '}}}}\n", "integrations.crm.tools.get.count: is empty; write an expression, or leave it out"},
		{"count of text", "integrations: {crm: {tools: {get: {tier: 1, count: ‸action}}}}\n", "integrations.crm.tools.get.count: gives string; int or uint or double is needed"},
		{"amount of a condition", "integrations: {crm: {tools: {get: {tier: 1, amount: ‸in_hours}}}}\n", "integrations.crm.tools.get.amount: gives bool; int or uint or double is needed"},

		{"condition misspelt", rule("{id: a, when: ‸argz.x == 1, raise_to: 5, why: A.}"), "rules[0].when: undeclared reference to 'argz' (did you mean 'args'?) (at character 1)"},
		{"condition that doesn't type-check", rule("{id: a, when: ‸hour == tool, raise_to: 5, why: A.}"), "rules[0].when: found no matching overload for '_==_' applied to '(int, string)' (at character 6)"},
		{"condition that isn't one", rule("{id: a, when: ‸hour + 1, raise_to: 5, why: A.}"), "rules[0].when: gives int; bool is needed"},
		{"condition empty", rule("{id: a, actions: [crm.x], when: ‸'', lower_to: 1, why: A.}"), "rules[0].when: is empty; write an expression, or leave it out"},
		{"condition too long", rule("{id: a, when: ‸'" + strings.Repeat("x", 4097) + "', raise_to: 5, why: A.}"), "rules[0].when: has 4097 bytes; at most 4096 are accepted"},
		{"condition nested too deep", rule("{id: a, when: ‸'" + strings.Repeat("(", 1000) + "true" + strings.Repeat(")", 1000) + "', raise_to: 5, why: A.}"), "rules[0].when: "},
		{"condition on the count", rule("{id: a, when: ‸count > 5, raise_to: 5, why: A.}"), "rules[0].when: undeclared reference to 'count' (at character 1)"},
		{"condition with a regular expression that isn't one", rule("{id: a, when: ‸'tool.matches(\"(\")', raise_to: 5, why: A.}"), "rules[0].when: can't be planned: "},
		{"condition on hours without hours", rule("{id: a, when: ‸'!in_hours', raise_to: 5, why: A.}"), "rules[0].when: in_hours needs hours, which say when people are at work"},

		{"rule without an id", rule("‸{raise_to: 5, why: A.}"), "rules[0]: id is missing; cards, logs and tests name the rule by it"},
		{"rule with capital letters", rule("{id: ‸Big, raise_to: 5, why: A.}"), `rules[0].id: "Big"; an id is 1 to 64 lower-case letters, digits and -`},
		{"rule with a name of ours", rule("{id: ‸first-use, raise_to: 5, why: A.}"), `rules[0].id: "first-use" is what countersign calls a rule of its own; choose another`},
		{"rule with a name of a mode's", rule("{id: ‸mode-open, raise_to: 5, why: A.}"), `rules[0].id: "mode-open" is what countersign calls a rule of its own; choose another`},
		{"rule with another's id", rule("{id: ‸a, raise_to: 5, why: A.}") + "block: [{id: a, actions: [x.y], why: A.}]\n", `rules[0].id: "a" is used twice`},
		{"rule without a reason", rule("‸{id: a, raise_to: 5, why: ' '}"), "rules[0]: why is missing; approvers and agents are told it"},
		{"rule that does nothing", rule("‸{id: a, why: A.}"), "rules[0]: a rule has one of raise_to and lower_to"},
		{"rule that does both", rule("‸{id: a, actions: [x.y], raise_to: 5, lower_to: 1, why: A.}"), "rules[0]: a rule has one of raise_to and lower_to"},
		{"rule to no tier", rule("‸{id: a, raise_to: 6, why: A.}"), "rules[0]: the tier is 6; tiers are 1 to 5"},
		{"rule about no action", rule("{id: a, actions: [crm.x, ‸crm x], raise_to: 5, why: A.}"), "rules[0].actions[1]: an action is INTEGRATION.TOOL with * for any characters"},
		{"rule about an empty list of actions", rule("{id: a, actions: ‸[], raise_to: 5, why: A.}"), "rules[0].actions: is an empty list; name some, or leave it out for all"},
		{"rule about an empty list of environments", rule("{id: a, environments: ‸[], raise_to: 5, why: A.}"), "rules[0].environments: is an empty list; name some, or leave it out for all"},
		{"rule about an empty list of agents", rule("{id: a, agents: ‸[], raise_to: 5, why: A.}"), "rules[0].agents: is an empty list; name some, or leave it out for all"},
		{"rule about an agent that there can't be", rule("{id: a, agents: [bot, ‸''], raise_to: 5, why: A.}"), "rules[0].agents[1]: an agent's name is 1 to 64 letters, digits, ., _ and -, starting with a letter or a digit"},
		{"rule about an environment that there isn't", staging + rule("{id: a, environments: [‸stage], raise_to: 5, why: A.}"), `rules[0].environments[0]: environment "stage" isn't defined; there are production, staging`},
		{"rule about an environment's other name", "environments: {staging: {names: [stage]}}\n" + rule("{id: a, environments: [‸stage], raise_to: 5, why: A.}"), `rules[0].environments[0]: environment "stage" isn't defined; there are production, staging`},
		{"rule that raises few", rule("{id: a, count_at_most: ‸5, raise_to: 5, why: A.}"), "rules[0].count_at_most: doesn't fit a rule to raise: over is for raising and blocking, at_most for lowering"},
		{"rule that raises what is cheap", rule("{id: a, amount_at_most: ‸5, raise_to: 5, why: A.}"), "rules[0].amount_at_most: doesn't fit a rule to raise: over is for raising and blocking, at_most for lowering"},
		{"rule that lowers many", rule("{id: a, actions: [x.y], count_over: ‸5, lower_to: 1, why: A.}"), "rules[0].count_over: doesn't fit a rule to lower: over is for raising and blocking, at_most for lowering"},
		{"rule that lowers what is dear", rule("{id: a, actions: [x.y], amount_over: ‸5, lower_to: 1, why: A.}"), "rules[0].amount_over: doesn't fit a rule to lower: over is for raising and blocking, at_most for lowering"},
		{"rule over fewer than none", rule("{id: a, count_over: ‸-1, raise_to: 5, why: A.}"), "rules[0].count_over: is -1; 0 to 1e15 are accepted"},
		{"rule over more than is exact", rule("{id: a, amount_over: ‸9007199254740993, raise_to: 5, why: A.}"), "rules[0].amount_over: is 9.007199254740992e+15; 0 to 1e15 are accepted"},
		{"rule that lowers everything", rule("‸{id: a, lower_to: 1, why: A.}"), "rules[0]: a rule that lowers names its actions"},
		{"rule that lowers what the agent says", rule("{id: a, actions: [x.y], when: ‸'!irreversible', lower_to: 1, why: A.}"), "rules[0].when: irreversible is what the agent says, which can't lower a tier"},
		{"rule that lowers what the agent calls it", rule("{id: a, actions: [x.y], when: ‸'args.all(k, target == k)', lower_to: 1, why: A.}"), "rules[0].when: target is what the agent says, which can't lower a tier"},

		{"block that raises", "block:\n  - ‸{id: a, actions: [x.y], raise_to: 5, why: A.}\n", "block[0]: a block denies; it raises and lowers nothing"},
		{"block of everything", "block:\n  - ‸{id: a, environments: [production], why: A.}\n", "block[0]: blocks everything; name actions or a condition"},
		{"block of few", "block:\n  - {id: a, actions: [x.y], count_at_most: ‸5, why: A.}\n", "block[0].count_at_most: doesn't fit a rule to block: over is for raising and blocking, at_most for lowering"},

		{"redaction of no key", "redact: {keys: [a, ‸'']}\n", "redact.keys[1]: is empty; name a key"},
		{"redaction of a path without its slash", "redact: {paths: [‸customer/card]}\n", `redact.paths[0]: "customer/card" is not a JSON Pointer (like /customer/card)`},
		{"redaction of everything", "redact: {paths: [‸'']}\n", `redact.paths[0]: "" is not a JSON Pointer (like /customer/card)`},
		{"redaction with an escape that there isn't", "redact: {paths: [‸/a~2b]}\n", `redact.paths[0]: "/a~2b" is not a JSON Pointer (like /customer/card)`},
		{"redaction of a tool by JSONPath", "integrations: {crm: {tools: {get: {tier: 1, redact: [‸$.card]}}}}\n", `integrations.crm.tools.get.redact[0]: "$.card" is not a JSON Pointer (like /customer/card)`},

		{"no pending requests", "limits: {pending: ‸0}\n", "limits.pending: is 0; 1 to 1000000 are accepted"},
		{"no requests", "limits: {per_minute: ‸0}\n", "limits.per_minute: is 0; 1 to 1000000 are accepted"},
		{"too many requests", "limits: {per_minute: ‸1000001}\n", "limits.per_minute: is 1000001; 1 to 1000000 are accepted"},
		{"cool-down below zero", "limits: {cooldown: ‸-1s}\n", "limits.cooldown: is -1s; 0s to 168h are accepted"},

		// What YAML allows and policies don't.
		{"anchor", "agents: {a: {owner: ‸&x U0GRACE}}\n", "an anchor (&) is not accepted here; write out what is meant, or quote it"},
		{"alias", "bulk: ‸*x\n", "an alias (*) is not accepted here; write out what is meant, or quote it"},
		{"star that isn't quoted", "integrations: {crm: {tools: {‸*: {tier: 1}}}}\n", "an alias (*) is not accepted here; write out what is meant, or quote it"},
		{"merge key", "agents: {a: {‸<<: {owner: U0GRACE}}}\n", "a merge key (<<) is not accepted here; write out what is meant, or quote it"},
		{"tag", "agents: {a: {owner: ‸!!str U0GRACE}}\n", "a tag (!) is not accepted here; write out what is meant, or quote it"},
		{"condition that isn't quoted", rule("{id: a, when: ‸!in_hours, raise_to: 5, why: A.}"), "a tag (!) is not accepted here; write out what is meant, or quote it"},
		{"key marked with ?", "agents:\n  ‸? a\n  : {owner: U0GRACE}\n", "a key marked with ? is not accepted here; write out what is meant, or quote it"},
		{"directive", "‸%YAML 1.1\n---\n" + smallest, "a directive (%) is not accepted here; write out what is meant, or quote it"},
		{"unknown key", "‸polices: {}\n", `unknown field "polices"`},
		{"unknown key of a rule", rule("{id: a, ‸if: 'true', raise_to: 5, why: A.}"), `unknown field "if"`},
		{"key in other case", "‸Rules: []\n", `unknown field "Rules"`},
		{"key twice", "‸mode: open\n", `mapping key "mode" already defined at [2:1]`},
		{"key twice, once in quotes", "integrations: {crm: {tools: {get: {tier: 4}, ‸\"get\": {tier: 1}}}}\n", `mapping key "get" already defined at [7:30]`},
		{"key twice, once with an escape", "integrations: {crm: {tools: {get: {tier: 4}, ‸\"g\\x65t\": {tier: 1}}}}\n", `mapping key "get" already defined at [7:30]`},
		{"tier twice, once in quotes", "tiers: {5: {reason_required: true}, ‸\"5\": {}}\n", `mapping key "5" already defined at [7:9]`},
		{"tab", "redact:\n‸\tkeys: [a]\n", "found character '\t' that cannot start any token"},
		{"value for a list", "redact: {keys: ‸password}\n", "redact.keys: a list is accepted, like [a, b]"},
		{"list for keys", "redact: ‸[password]\n", "redact: keys with values are accepted, like {a: b}"},
		{"list for a value", "unclassified: ‸[deny]\n", "unclassified: one value is accepted, not several"},
		{"list that doesn't end", "redact: {keys: ‸[a, b\n", "sequence end token ']' not found"},
		{"number that is too large", "limits: {pending: ‸99999999999999999999}\n", `limits.pending: "99999999999999999999"; a whole number in digits is accepted`},
		{"number that is infinite", "bulk: [{over: ‸1e999, raise_to: 4}]\n", `bulk[0].over: "1e999"; a number in digits is accepted`},
		{"control character", "# a\tb ‸\x00\n", "the character U+0000 can't be seen; leave it out, or write it as an escape in double quotes"},
		{"text that is turned around", "# ‸\u202e\n", "the character U+202E can't be seen; leave it out, or write it as an escape in double quotes"},
		{"line that only some editors break", "# comment‸\rmode: open\n", "the character U+000D can't be seen; leave it out, or write it as an escape in double quotes"},
		{"line that other editors break", "# comment‸\u2028mode: open\n", "the character U+2028 can't be seen; leave it out, or write it as an escape in double quotes"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			marked := test.source
			if !strings.Contains(marked, "version:") {
				marked = smallest + marked
			}
			before, after, found := strings.Cut(marked, "‸")
			if !found {
				t.Fatal("there is no mark")
			}
			line := strings.Count(before, "\n") + 1
			column := len([]rune(before[strings.LastIndex(before, "\n")+1:])) + 1
			p, err := policy.Parse([]byte(before + after))
			if err == nil {
				t.Fatal("accepted")
			}
			if p != nil {
				t.Error("there is a policy as well as an error")
			}
			if want := fmt.Sprintf("[%d:%d] %s", line, column, test.want); !strings.Contains("\n"+err.Error(), "\n"+want) {
				t.Errorf("got\n%v\nwant\n%s", err, want)
			}
		})
	}
}

// What is wrong with the whole of a file.
func TestRefusedFiles(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, source, want string }{
		{"empty", "", "the file is empty"},
		{"blank", " \n\n", "the file is empty"},
		{"only comments", "# Nothing yet.\n", "the file is empty"},
		{"only a mark of a document", "---\n", "the file is empty"},
		{"only a byte order mark", "\ufeff", "the file is empty"},
		{"a list", "- version: 1\n", "[1:1] keys with values are accepted, like {a: b}"},
		{"a text", "version\n", "[1:1] keys with values are accepted, like {a: b}"},
		{"JSON that ends", "{\"version\": 1", "[1:1] could not find flow mapping end token '}'"},
		{"a second document", smallest + "---\n" + smallest, `there is a second document after "---"; put everything in one`},
		{"a second document without anything", smallest + "---\n", `there is a second document after "---"; put everything in one`},
		{"bytes that aren't text", smallest + "# \xff\n", "the file isn't in UTF-8"},
		{"UTF-16", "\xff\xfev\x00e\x00r\x00", "the file isn't in UTF-8"},
		{"too large", smallest + strings.Repeat("#", policy.MaxSource+1-len(smallest)), "the file has 1048577 bytes; at most 1048576 are accepted"},
		{"nested too deep", smallest + "rules: " + strings.Repeat("[", 100_000), "[7:108] is nested too deep; at most 100 levels are accepted"},
		{"lists nested too deep", smallest + "rules: " + strings.Repeat("- ", 100_000), "[7:208] is nested too deep; at most 100 levels are accepted"},
		{"no version", "mode: open\nroles: {a: {users: [U0ADA]}}\napproval: {requires: [{role: a}]}\n", "[1:1] version: is 0; this countersign reads version 1"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			_, err := policy.Parse([]byte(test.source))
			if err == nil || err.Error() != test.want {
				t.Errorf("got %v\nwant %s", err, test.want)
			}
		})
	}
}

// A file that an editor wrote in its own way says the same.
func TestAcceptedFiles(t *testing.T) {
	t.Parallel()
	for name, source := range map[string]string{
		"as large as is accepted": smallest + strings.Repeat("#", policy.MaxSource-len(smallest)),
		"byte order mark":         "\ufeff" + smallest,
		"lines as on Windows":     strings.ReplaceAll(smallest, "\n", "\r\n"),
		"a mark of the document":  "---\n" + smallest,
		"an end of the document":  smallest + "...\n",
		"no last line feed":       strings.TrimSuffix(smallest, "\n"),
		"comments":                "# first\n" + strings.ReplaceAll(smallest, "\n", " # why\n"),
		"JSON":                    `{"version": 1, "mode": "cautious", "roles": {"oncall": {"users": ["U0ADA", "U0GRACE"]}}, "approval": {"requires": [{"role": "oncall"}]}, "tiers": {"5": {}}}`,
		"text of other languages": smallest + "# Größe, 大きさ, גודל, 👩\u200d💻\n",
	} {
		p, err := policy.Parse([]byte(source))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got := p.Rule(policy.Call{Action: "crm.get"}); got.Mode != "cautious" || got.Requirement.Roles[0].Role != "oncall" {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// Everything that is wrong is told at once, in the order of the file.
func TestSeveralProblems(t *testing.T) {
	t.Parallel()
	_, err := policy.Parse([]byte(`version: 2
mode: careful
roles:
  oncall: {users: ["@ada"]}
approval:
  decide_within: 1s
  requires: [{role: sre}]
rules:
  - id: a
    when: |
      x == 1 &&
      y == 2
`))
	want := `[1:10] version: is 2; this countersign reads version 1
[2:7] mode: mode "careful" isn't known; there are cautious, open, readonly, strict
[4:20] roles.oncall.users[0]: "@ada" is not a Slack user id (like U024BE7LH)
[6:18] approval.decide_within: is 1s; 1m to 24h are accepted
[7:14] approval.requires[0]: role "sre" isn't defined
[9:5] rules[0]: a rule has one of raise_to and lower_to
[9:5] rules[0]: why is missing; approvers and agents are told it
[10:11] rules[0].when: undeclared reference to 'x' (at character 1); undeclared reference to 'y' (at character 1)`
	if err == nil {
		t.Fatal("accepted")
	}
	if diff := cmp.Diff(want, err.Error()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	findings, ok := errors.AsType[policy.Findings](err)
	if !ok || len(findings) != 8 || findings[1] != (policy.Finding{Line: 2, Column: 7, Text: `mode: mode "careful" isn't known; there are cautious, open, readonly, strict`}) {
		t.Errorf("got %#v", findings)
	}
}

// The example has every feature, and what it says is what the policy holds.
func TestParseExample(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile("testdata/example.yaml")
	if err != nil {
		t.Fatal(err)
	}
	p := mustParse(t, string(source))
	if diff := cmp.Diff([]policy.Role{
		{Name: "finance", Users: []string{"U0FIN1"}},
		{Name: "me", Users: []string{"U024BE7LJ"}, SelfApproval: true},
		{Name: "oncall", Users: []string{"U024BE7LH", "U024BE7LK"}, Groups: []string{"S0614TZR7"}},
		{Name: "sre", Users: []string{"U0SRE1", "U0SRE2"}},
	}, p.Roles()); diff != "" {
		t.Errorf("roles (-want +got):\n%s", diff)
	}
	if got, want := p.Limits(), (policy.Limits{Pending: 10, PerMinute: 30, Cooldown: time.Hour}); got != want {
		t.Errorf("limits are %+v, want %+v", got, want)
	}
	if got := p.FirstUseWithin(); got != 720*time.Hour {
		t.Errorf("a first use is within %s", got)
	}
	if integration, tool, environment := p.Place("crm.contacts.get", "Live"); integration != "crm" || tool != "contacts.get" || environment != "production" {
		t.Errorf("the place is %s, %s, %s", integration, tool, environment)
	}
	if got, want := p.Named(requires(policy.RoleCount{Role: "sre", Count: 1}, policy.RoleCount{Role: "gone", Count: 1}, policy.RoleCount{Role: "finance", Count: 1})), []string{"sre", "finance"}; len(got) != 2 || got[0].Name != want[0] || got[1].Name != want[1] {
		t.Errorf("named are %+v, want %v", got, want)
	}
}

// What isn't written is as the documentation says.
func TestDefaults(t *testing.T) {
	t.Parallel()
	p := mustParse(t, smallest)
	if got, want := p.Limits(), (policy.Limits{Pending: 10, PerMinute: 30, Cooldown: time.Hour}); got != want {
		t.Errorf("limits are %+v, want %+v", got, want)
	}
	if got := p.FirstUseWithin(); got != 0 {
		t.Errorf("a first use is asked about within %s", got)
	}
	if got := mustParse(t, smallest+"first_use: {of: [tool]}\n").FirstUseWithin(); got != 30*24*time.Hour {
		t.Errorf("a first use is within %s", got)
	}
	got := p.Rule(policy.Call{Agent: "bot", Action: "crm.get"})
	want := policy.Ruling{
		Revision:     p.Revision(),
		Effect:       policy.RequireApproval,
		Tier:         policy.TierDestructive,
		Requirement:  requires(policy.RoleCount{Role: "oncall", Count: 1}),
		Rules:        []policy.FiredRule{{ID: "unclassified", Why: "No rule classifies this action, so a person decides."}},
		Integration:  "crm",
		Tool:         "get",
		Environment:  "production",
		Mode:         "cautious",
		Count:        policy.Quantity{Unbounded: true},
		DecideWithin: 24 * time.Hour,
		ApplyWithin:  15 * time.Minute,
		Scopes:       []string{"once"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestRevision(t *testing.T) {
	t.Parallel()
	first, second := mustParse(t, smallest), mustParse(t, smallest+"\n")
	if first.Revision() == second.Revision() {
		t.Error("two files have one revision")
	}
	if first.Revision() != mustParse(t, smallest).Revision() {
		t.Error("one file has two revisions")
	}
	if want := "sha256 of the file"; len(first.Revision()) != 64 {
		t.Errorf("the revision is %q, want the %s", first.Revision(), want)
	}
}

// What a policy was made of may change; the policy doesn't.
func TestPolicyDoesNotShareTheSource(t *testing.T) {
	t.Parallel()
	source := []byte(smallest + "integrations: {crm: {tools: {get: {tier: 1}}}}\n")
	p, err := policy.Parse(source)
	if err != nil {
		t.Fatal(err)
	}
	call := policy.Call{Agent: "bot", Action: "crm.get", Payload: []byte("{}")}
	before := p.Rule(call)
	copy(source, bytes.Repeat([]byte("x"), len(source)))
	if diff := cmp.Diff(before, p.Rule(call)); diff != "" {
		t.Errorf("-before +after:\n%s", diff)
	}
	p.Roles()[0] = policy.Role{Name: "changed"}
	if p.Roles()[0].Name != "oncall" {
		t.Error("the policy's roles can be changed")
	}
}

// Whoever an agent acts for doesn't count unless a role allows it, so others
// must suffice.
func TestValidateFor(t *testing.T) {
	t.Parallel()
	alone := strings.Replace(smallest, ", U0GRACE", "", 1)
	for _, test := range []struct {
		name, source, user string
		ok                 bool
	}{
		{"nobody", alone, "", true},
		{"somebody without the role", alone, "U0GRACE", true},
		{"the only one", alone, "U0ADA", false},
		{"the only one, who may", strings.Replace(alone, "[U0ADA]", "[U0ADA], self_approval: true", 1), "U0ADA", true},
		{"the only one, who may but not for all tiers", strings.Replace(alone, "[U0ADA]", "[U0ADA], self_approval: true", 1) + "tiers: {5: {self_approval: false}}\n", "U0ADA", false},
		{"the only one, for what is never asked", strings.Replace(alone, "cautious", "readonly", 1) + "unclassified: deny\n", "U0ADA", true},
		{"the only one, for what isn't classified", strings.Replace(alone, "cautious", "readonly", 1), "U0ADA", false},
		{"the only one, for first uses", strings.Replace(alone, "cautious", "readonly", 1) + "unclassified: deny\nfirst_use: {of: [tool]}\n", "U0ADA", false},
		{"the only one, in one environment", strings.Replace(alone, "cautious", "readonly", 1) + "unclassified: deny\nenvironments: {staging: {mode: cautious}}\n", "U0ADA", false},
		{"one of two", smallest, "U0ADA", true},
		{"one of two where two are needed", strings.Replace(smallest, "role: oncall", "role: oncall, count: 2", 1), "U0ADA", false},
		{"one of a role with a group", strings.Replace(alone, "[U0ADA]", "[U0ADA], groups: [S0ONCALL]", 1), "U0ADA", true},
	} {
		if err := mustParse(t, test.source).ValidateFor(test.user); (err == nil) != test.ok {
			t.Errorf("%s: %v", test.name, err)
		}
	}
	err := mustParse(t, alone).ValidateFor("U0ADA")
	if want := "without U0ADA, for whom the agent acts, nobody could approve its requests of tier 3, 4, 5; give the role to somebody else too, or set self_approval on it"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// What approving takes where it could be thought not to be accepted.
func TestAcceptedApprovals(t *testing.T) {
	t.Parallel()
	groups := strings.Replace(smallest, "users: [U0ADA, U0GRACE]", "groups: [S0ONCALL]", 1)
	for name, source := range map[string]string{
		"everybody of a role":               strings.Replace(smallest, "role: oncall", "role: oncall, count: 2", 1),
		"members not known here":            strings.Replace(groups, "role: oncall", "role: oncall, count: 20", 1),
		"no reminders for a tier":           smallest + "tiers: {5: {remind_after: []}}\n",
		"scopes that upper tiers leave out": strings.Replace(smallest, "approval:\n", "approval:\n  scopes: [once, session, 15m]\n", 1),
		"a reason from tier 4":              smallest + "tiers: {4: {reason_required: true}, 5: {reason_required: true}}\n",
		"no cool-down":                      smallest + "limits: {cooldown: 0s}\n",
		"hours to midnight":                 smallest + "hours: {zone: UTC, days: [mon], from: '00:00', to: '24:00'}\n",
	} {
		if _, err := policy.Parse([]byte(source)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
