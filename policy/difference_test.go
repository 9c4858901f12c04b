package policy_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/countersign/countersign/policy"
)

// edited is the example policy with each first text of a pair replaced by the
// second.
func edited(t *testing.T, pairs ...string) *policy.Policy {
	t.Helper()
	source := example
	for i := 0; i < len(pairs); i += 2 {
		if !strings.Contains(source, pairs[i]) {
			t.Fatalf("the example doesn't contain %q", pairs[i])
		}
		source = strings.Replace(source, pairs[i], pairs[i+1], 1)
	}
	return mustParse(t, source)
}

func recorded(id, action, payload string) policy.RecordedCall {
	return policy.RecordedCall{ID: id, Call: policy.Call{
		Agent:   "agent",
		Action:  action,
		Payload: []byte(payload),
		At:      time.Date(2026, 3, 2, 10, 0, 0, 0, time.UTC),
	}}
}

// backwards turns a change around. To hide more asks nobody for more, so only
// the other way of that has a direction.
func backwards(c policy.Change) policy.Change {
	c.Before, c.After = c.After, c.Before
	switch {
	case c.What == "hidden" && c.Direction == policy.Loosened:
		c.Direction = policy.Neutral
	case c.What == "hidden":
		c.Direction = policy.Loosened
	case c.Direction == policy.Loosened:
		c.Direction = policy.Stricter
	case c.Direction == policy.Stricter:
		c.Direction = policy.Loosened
	}
	return c
}

// inWords writes changes one on a line, sorted.
func inWords(changes []policy.Change) []string {
	var lines []string
	for _, c := range changes {
		lines = append(lines, fmt.Sprintf("%s: %s → %s, %s", c.What, c.Before, c.After, c.Direction))
	}
	slices.Sort(lines)
	return lines
}

// Each thing that a policy can ask for is loosened if it asks for less, and
// stricter the other way round.
func TestChangesOfOneCall(t *testing.T) {
	t.Parallel()
	refund := recorded("1", "crm.refund", `{"amount": 2000, "customer": {"card": "4242"}, "password": "p"}`)
	remove := recorded("2", "crm.delete_contact", `{"ids": [1]}`)
	read := recorded("3", "crm.get_contact", `{}`)
	drop := recorded("4", "crm.drop_table", `{}`)
	mail := recorded("5", "crm.send_email", `{"to": "x@y"}`)
	const tier5 = "tiers:\n  5: {"
	for _, test := range []struct {
		name string
		call policy.RecordedCall
		edit []string
		want []string
	}{
		{"nothing", remove, []string{"mode: cautious", "mode:  cautious"}, nil},
		{"nothing about the action", remove, []string{"send_email: {tier: 2}", "send_email: {tier: 3}"}, nil},
		{"a person no more", remove, []string{"mode: cautious", "mode: open"}, []string{"effect: require_approval → allow, loosened"}},
		{"denied no more", drop, []string{"actions: [crm.drop_*]", "actions: [crm.drap_*]"}, []string{"effect: deny → require_approval, loosened", "rules: unclassified, no-drop → unclassified, different"}},
		{"tier of what a person decides", remove, []string{"delete_*: {tier: 4", "delete_*: {tier: 3"}, []string{"the host's view: isn't enough → is enough, loosened", "tier: tier 4, destructive → tier 3, external-facing, loosened"}},
		{"tier of what is allowed", read, []string{"get_*: {tier: 1}", "get_*: {tier: 2}"}, []string{"tier: tier 1, read → tier 2, internal write, stricter"}},
		{
			"tier of what is denied", drop, []string{"tools:\n", "tools:\n      drop_*: {tier: 5}\n"},
			[]string{"rules: unclassified, no-drop → crm.drop_*, no-drop, different", "tier: tier 4, destructive → tier 5, irreversible or high value, different"},
		},
		{"fewer people", refund, []string{"{role: sre, count: 2}", "{role: sre}"}, []string{"people of sre: 2 → 1, loosened"}},
		{"a role less", refund, []string{"[{role: finance}, ", "["}, []string{"people of finance: 1 → 0, loosened"}},
		{
			"another role", refund, []string{"[{role: finance}, ", "[{role: legal}, ", "roles:", "roles:\n  legal: {users: [U0LEGAL]}"},
			[]string{"people of finance: 1 → 0, loosened", "people of legal: 0 → 1, stricter"},
		},
		{"self-approval", refund, []string{"[U0FIN1]", "[U0FIN1], self_approval: true"}, []string{"self-approval of finance: forbidden → allowed, loosened"}},
		{"reason", refund, []string{tier5, tier5 + "reason_required: true, "}, []string{"reason of approvers: not required → required, stricter"}},
		{"time to decide", refund, []string{tier5, tier5 + "decide_within: 1h, "}, []string{"time to decide: 24h → 1h, stricter"}},
		{"time to apply", refund, []string{tier5, tier5 + "apply_within: 90m, "}, []string{"time to apply: 15m → 1h30m, loosened"}},
		{"time to apply what is allowed", read, []string{"approval:", "approval:\n  apply_within: 14m"}, []string{"time to apply: 15m → 14m, stricter"}},
		{"scopes", mail, []string{"approval:", "approval:\n  scopes: [once, session, 15m]"}, []string{"offered scopes: once → 15m, once, session, loosened"}},
		{
			"reminders and escalation", refund, []string{tier5, tier5 + "remind_after: [10m, 90m], escalate: {after: 1h, to: sre}, "},
			[]string{"escalation: none → to sre after 1h, different", "reminders: none → after 10m, 1h30m, different"},
		},
		{"person behind the agent", refund, []string{"roles:", "agents: {agent: {owner: U0OWNER}}\nroles:"}, []string{"person behind the agent: nobody → U0OWNER, stricter"}},
		{"hidden", refund, []string{"redact: [/customer/card]", "redact: [/customer/cart]"}, []string{"hidden: /customer/card, /password → /password, loosened"}},
		{"hidden keys that aren't there", refund, []string{"keys: [password]", "keys: [password, iban]"}, nil},
		{
			"a client's answer", mail, []string{"approval:", "in_band: {tiers: [2, 3], environments: [production]}\napproval:"},
			[]string{"the client's own answer: isn't enough → is enough, loosened"},
		},
		{"a client's answer elsewhere", mail, []string{"approval:", "in_band: {tiers: [2, 3]}\napproval:"}, nil},
		{"a client's answer about what nobody decides", read, []string{"approval:", "in_band: {tiers: [1, 2, 3], environments: [production]}\napproval:"}, nil},
		{
			"the host's view", mail, []string{"approval:", "in_view: {tiers: []}\napproval:"},
			[]string{"the host's view: is enough → isn't enough, stricter"},
		},
		{
			"the host's view of what destroys", remove, []string{"approval:", "in_view: {tiers: [1, 2, 3, 4]}\napproval:"},
			[]string{"the host's view: isn't enough → is enough, loosened"},
		},
		{"the host's view elsewhere", remove, []string{"approval:", "in_view: {tiers: [1, 2, 3, 4], environments: [staging]}\napproval:"}, nil},
		{"the host's view of what nobody decides", read, []string{"approval:", "in_view: {tiers: []}\napproval:"}, nil},
		{
			"target", mail, []string{"send_email: {tier: 2}", "send_email: {tier: 2, target: args.to}"},
			[]string{`target: none → "x@y", different`},
		},
		{
			"argument for a key", mail, []string{"send_email: {tier: 2}", "send_email: {tier: 2, idempotency: key}"},
			[]string{"argument for a key: none → key, different"},
		},
		{
			"count", remove, []string{"count: size(args.ids)", "count: '3'"},
			[]string{"count: 1 → 3, different"},
		},
		{
			"amount", refund, []string{"amount: double(args.amount)", "amount: double(args.amount) * 2.0"},
			[]string{"amount: 2,000 → 4,000, different"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			before, after := mustParse(t, example), edited(t, test.edit...)
			forth := policy.Compare(before, after, []policy.RecordedCall{test.call})
			back := policy.Compare(after, before, []policy.RecordedCall{test.call})
			if test.want == nil {
				if forth.Same != 1 || len(forth.Changed) != 0 {
					t.Fatalf("changed: %v", inWords(forth.Changed[0].Changes))
				}
				return
			}
			if len(forth.Changed) != 1 || len(back.Changed) != 1 {
				t.Fatalf("%d calls changed, and %d the other way round", len(forth.Changed), len(back.Changed))
			}
			if diff := cmp.Diff(test.want, inWords(forth.Changed[0].Changes)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			var turned []policy.Change
			for _, change := range forth.Changed[0].Changes {
				turned = append(turned, backwards(change))
			}
			if diff := cmp.Diff(inWords(turned), inWords(back.Changed[0].Changes)); diff != "" {
				t.Errorf("the other way round, -want +got:\n%s", diff)
			}
			changed := forth.Changed[0]
			text := strings.Join(test.want, "\n")
			if changed.Loosened != strings.Contains(text, "loosened") || changed.Stricter != strings.Contains(text, "stricter") {
				t.Errorf("loosened %t, stricter %t for\n%s", changed.Loosened, changed.Stricter, text)
			}
		})
	}
}

// Another person behind the agent frees one and binds another.
func TestAnotherPersonBehindTheAgent(t *testing.T) {
	t.Parallel()
	before := edited(t, "roles:", "agents: {agent: {owner: U0ONE}}\nroles:")
	after := edited(t, "roles:", "agents: {agent: {owner: U0TWO}}\nroles:")
	changed := policy.Compare(before, after, []policy.RecordedCall{recorded("1", "crm.delete_x", `{"ids":[]}`)}).Changed
	if len(changed) != 1 || !changed[0].Loosened || !changed[0].Stricter {
		t.Errorf("got %+v", changed)
	}
}

// What the domain refuses at a claim because it is stricter is called stricter
// here, whatever the two policies are, and loosened the other way round.
func TestDifferenceAgreesWithTheDomain(t *testing.T) {
	t.Parallel()
	edits := [][2]string{
		{"mode: cautious", "mode: open"},
		{"mode: cautious", "mode: strict"},
		{"{role: sre, count: 2}", "{role: sre}"},
		{"[{role: finance}, ", "["},
		{"[U0FIN1]", "[U0FIN1], self_approval: true"},
		{"delete_*: {tier: 4", "delete_*: {tier: 5"},
		{"send_email: {tier: 2}", "send_email: {tier: 3}"},
		{"raise_to: 5", "raise_to: 5}, {over: 10, raise_to: 5"},
		{"actions: [crm.drop_*]", "actions: [crm.delete_*]"},
		{"over: 25", "over: 1"},
		{"count_at_most: 5", "count_at_most: 1"},
		{"first_use: {of: [tool]}", "unclassified: deny"},
		{"requires: [{role: sre}]", "requires: [{role: sre}]\n  reason_required: true"},
		{"roles:", "agents: {agent: {owner: U0OWNER}}\nroles:"},
		{"approval:", "in_band: {tiers: [2, 3], environments: [production, staging]}\napproval:"},
		{"mode:", "in_view: {tiers: [1, 2, 3, 4]}\nmode:"},
	}
	var policies []*policy.Policy
	for mask := range 1 << len(edits) {
		if mask%97 != 0 && mask&(mask-1) != 0 {
			continue
		}
		source := example
		for i, edit := range edits {
			if mask&(1<<i) != 0 {
				source = strings.Replace(source, edit[0], edit[1], 1)
			}
		}
		if p, err := policy.Parse([]byte(source)); err == nil {
			policies = append(policies, p)
		}
	}
	if len(policies) < 50 {
		t.Fatalf("only %d of the edited policies are accepted", len(policies))
	}
	rapid.Check(t, func(t *rapid.T) {
		before := rapid.SampledFrom(policies).Draw(t, "before")
		after := rapid.SampledFrom(policies).Draw(t, "after")
		call := recorded("1",
			rapid.SampledFrom([]string{"crm.get_x", "crm.delete_x", "crm.refund", "crm.send_email", "crm.drop_x", "other.x"}).Draw(t, "action"),
			rapid.SampledFrom([]string{`{}`, `{"ids":[1,2,3],"amount":100,"to":"x@y"}`, `{"amount":2000,"password":"p","to":"x@corp.example"}`}).Draw(t, "payload"))
		call.Call.Environment = rapid.SampledFrom([]string{"", "stage"}).Draw(t, "environment")
		call.Call.FirstUse.Tool = rapid.Bool().Draw(t, "first use")
		was, is := before.Rule(call.Call), after.Rule(call.Call)
		stricter, looser := is.StricterThan(was), was.StricterThan(is)
		changed := policy.Compare(before, after, []policy.RecordedCall{call}).Changed
		if len(changed) == 0 {
			if stricter != "" || looser != "" {
				t.Fatalf("no change, but %q or %q", stricter, looser)
			}
			return
		}
		if stricter != "" && !changed[0].Stricter || looser != "" && !changed[0].Loosened {
			t.Fatalf("stricter: %q, looser: %q, but the changes are\n%s", stricter, looser, strings.Join(inWords(changed[0].Changes), "\n"))
		}
		for _, change := range changed[0].Changes {
			if change.What == "what approving takes" {
				t.Fatalf("the domain looks at more than is compared: %q or %q", stricter, looser)
			}
		}
	})
}

// compared is a difference with several kinds of changed calls.
func compared(t *testing.T) policy.Difference {
	t.Helper()
	before := mustParse(t, example)
	after := edited(t,
		"delete_*: {tier: 4", "delete_*: {tier: 3",
		"raise_to: 5}]", "raise_to: 5}, {over: 10, raise_to: 5}]",
		"[{role: finance}, {role: sre, count: 2}]", "[{role: sre, count: 2}, {role: legal}], apply_within: 1h",
		"roles:", "roles:\n  legal: {users: [U0LEGAL]}",
		"block:\n  - {id: no-drop, actions: [crm.drop_*], why: Nothing is dropped.}\n", "",
		"rules:", "rules:\n  - {id: night, when: 'hour < 6', raise_to: 4, why: It's night.}",
		"raise_to: 3, why: The mail", "raise_to: 4, why: The mail",
		"mode: open}", "mode: strict}",
		"first_use: {of: [tool]}\n", "",
		"get_*: {tier: 1}", "get_*: {tier: 1, redact: [/note]}",
	)
	calls := []policy.RecordedCall{
		recorded("req_1", "crm.get_contact", `{}`),
		recorded("req_2", "crm.send_email", `{"to": "x@corp.example"}`),
		recorded("req_3", "crm.get_contact", `{"note": "n"}`),
		recorded("req_4", "crm.send_email", `{"to": "x@y"}`),
		recorded("req_5", "crm.refund", `{"amount": 2000}`),
		recorded("req_6", "crm.refund", `{"amount": 200}`),
		recorded("req_7", "crm.drop_table", `{}`),
	}
	for i := range 12 {
		calls = append(calls, recorded(fmt.Sprintf("req_1%02d", i), "crm.delete_contacts", fmt.Sprintf(`{"ids": [%d]}`, i)))
	}
	staging := recorded("req_200", "crm.delete_contacts", `{"ids": [1]}`)
	staging.Call.Environment = "stage"
	calls = append(calls, staging)
	calls[0].Then = before.Rule(calls[0].Call)
	calls[1].Then = after.Rule(calls[3].Call)
	return policy.Compare(before, after, calls)
}

func TestDifferenceText(t *testing.T) {
	t.Parallel()
	golden(t, "difference/text.txt", compared(t).String())
}

func TestDifferenceTextOfEqualPolicies(t *testing.T) {
	t.Parallel()
	p := mustParse(t, example)
	golden(t, "difference/same.txt", policy.Compare(p, mustParse(t, "# Another comment.\n"+example), []policy.RecordedCall{recorded("1", "crm.get_x", "{}")}).String())
}

func TestDifferenceAsJSON(t *testing.T) {
	t.Parallel()
	d := compared(t)
	d.Changed = d.Changed[:2]
	for i := range d.Changed {
		// The revisions change with each edit of the example.
		d.Changed[i].Before.Revision, d.Changed[i].After.Revision = "", ""
	}
	text, err := json.MarshalIndent(d, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "difference/difference.json", string(text)+"\n")
	var again policy.Difference
	if err := json.Unmarshal(text, &again); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(d, again); diff != "" {
		t.Errorf("written and read again, -want +got:\n%s", diff)
	}
}

func TestCountsOfDifference(t *testing.T) {
	t.Parallel()
	d := compared(t)
	got := []int{d.Calls, d.Same, len(d.Changed), d.Loosened(), d.RuledOtherwise}
	if diff := cmp.Diff([]int{20, 2, 18, 15, 1}, got); diff != "" {
		t.Errorf("calls, same, changed, loosened, ruled otherwise: -want +got:\n%s", diff)
	}
}

// That a client's answer becomes enough stands out, with the keys of the policy
// that make it so.
func TestDifferenceOfInBand(t *testing.T) {
	t.Parallel()
	after := edited(t, "approval:", "in_band: {tiers: [2, 3], environments: [production]}\napproval:", "send_email: {tier: 2}", "send_email: {tier: 2, target: args.to, idempotency: key}")
	text := policy.Compare(mustParse(t, example), after, []policy.RecordedCall{
		recorded("1", "crm.send_email", `{"to": "a@y"}`), recorded("2", "crm.send_email", `{"to": "b@y"}`), recorded("3", "crm.send_email", `{"to": "a@corp.example"}`),
	}).String()
	for _, want := range []string{
		"in_band: not written → {tiers: [2, 3], environments: [production]}", "target: not written → args.to", "idempotency: not written → key",
		"3 recorded calls compared: 3 get another answer (2 LOOSENED)", "LOOSENED  crm.send_email in production, 2 calls\n  ! the client's own answer  isn't enough → is enough\n",
		`target                   none → "a@y" (in 1)`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("lacks %q:\n%s", want, text)
		}
	}
}

// What a policy leaves to the view by itself isn't written in it, so that it shows
// where nothing is left any more.
func TestDifferenceOfInView(t *testing.T) {
	t.Parallel()
	after := edited(t, "approval:", "in_view: {tiers: []}\napproval:")
	text := policy.Compare(mustParse(t, example), after, []policy.RecordedCall{recorded("1", "crm.send_email", `{"to": "a@y"}`)}).String()
	for _, want := range []string{"in_view: not written → {tiers: []}", "stricter  crm.send_email in production, 1 call\n    the host's view  is enough → isn't enough\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("lacks %q:\n%s", want, text)
		}
	}
}

// A secret that is in a policy isn't repeated, and that it changed is told.
func TestDifferenceRepeatsNoSecret(t *testing.T) {
	t.Parallel()
	with := func(why string) *policy.Policy {
		return mustParse(t, smallest+"rules: [{id: a, raise_to: 5, why: "+why+"}]\n")
	}
	one, two := "xoxb-123456789012-abcdefghijkl", "xoxb-210987654321-lkjihgfedcba"
	difference := policy.Compare(with("Token "+one), with("Token "+two), nil)
	encoded, err := json.Marshal(difference)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{difference.String(), string(encoded)} {
		if strings.Contains(text, one) || strings.Contains(text, two) {
			t.Errorf("it repeats a secret:\n%s", text)
		}
		if !strings.Contains(text, "a Slack token") {
			t.Errorf("it doesn't tell the change:\n%s", text)
		}
	}
}
