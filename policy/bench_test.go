package policy_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/countersign/countersign/policy"
)

// policyOf is a policy with that many rules as teams have them: for ten tools
// each there is an integration, most rules are about one tool, some about all
// of an integration, and a few about everything. Each call comes to few.
func policyOf(rules int) string {
	var b strings.Builder
	b.WriteString(smallest + "environments: {staging: {names: [stage], mode: open}}\nbulk: [{over: 25, raise_to: 4}]\n")
	b.WriteString("hours: {zone: Europe/Paris, days: [mon, tue, wed, thu, fri], from: '07:00', to: '20:00'}\nredact: {keys: [password, token], paths: [/customer/card]}\n")
	b.WriteString("integrations:\n")
	for i := range max(rules/15, 1) {
		fmt.Fprintf(&b, "  server%d:\n    tools:\n      get_*: {tier: 1}\n", i)
		for tool := range 10 {
			fmt.Fprintf(&b, "      update_%d: {tier: 3, count: 'size(args.ids)', bulk: [{over: 25, raise_to: 4}]}\n", tool)
		}
	}
	b.WriteString("rules:\n")
	for n := range rules {
		actions, when := fmt.Sprintf("server%d.update_%d", n/15, n%10), `!args.to.endsWith("@corp.example")`
		switch {
		case n < 2:
			actions, when = "'*'", "tier >= 4 && !in_hours"
		case n%15 >= 10 && n%15 < 13:
			actions, when = fmt.Sprintf("server%d.*", n/15), "has(args.reason) && args.reason == ''"
		case n%15 >= 13:
			actions, when = fmt.Sprintf("server%d.delete_*", n/15), "size(args.ids) > 3"
		}
		fmt.Fprintf(&b, "  - {id: rule-%d, actions: [%s], environments: [production], when: %q, raise_to: 4, why: Because.}\n", n, actions, when)
	}
	return b.String()
}

// payload is the arguments of a call that changes five contacts.
const payload = `{"ids": [101, 102, 103, 104, 105], "to": "ada@corp.example", "reason": "The customer asked for it.", "fields": {"city": "Paris", "zip": "75011", "note": "Moved in May."}}`

func BenchmarkRule(b *testing.B) {
	for _, rules := range []int{10, 100, 1000} {
		p, err := policy.Parse([]byte(policyOf(rules)))
		if err != nil {
			b.Fatal(err)
		}
		call := policy.Call{Agent: "bot", Action: "server0.update_3", Environment: "prod", Payload: []byte(payload), At: at("2026-01-05T12:00:00Z")}
		b.Run(fmt.Sprint(rules), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				p.Rule(call)
			}
		})
	}
	p, err := policy.Parse([]byte(policyOf(100)))
	if err != nil {
		b.Fatal(err)
	}
	for name, call := range map[string]policy.Call{
		"read":         {Agent: "bot", Action: "server0.get_contact", Environment: "staging", Payload: []byte(payload), At: at("2026-01-05T12:00:00Z")},
		"unpinned":     {Agent: "bot", Action: "server0.update_3", Environment: "prod", Payload: []byte(payload), At: at("2026-01-05T12:00:00Z"), Unpinned: true},
		"unclassified": {Agent: "bot", Action: "other.tool", Payload: []byte(payload), At: at("2026-01-05T12:00:00Z")},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				p.Rule(call)
			}
		})
	}
	aimed, err := policy.Parse([]byte(strings.ReplaceAll(policyOf(100), "{tier: 3,", "{tier: 3, target: 'args.to',")))
	if err != nil {
		b.Fatal(err)
	}
	b.Run("with a target", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			aimed.Rule(policy.Call{Agent: "bot", Action: "server0.update_3", Environment: "prod", Payload: []byte(payload), At: at("2026-01-05T12:00:00Z")})
		}
	})
	none, err := policy.Parse([]byte(smallest + tiers))
	if err != nil {
		b.Fatal(err)
	}
	b.Run("without conditions", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			none.Rule(policy.Call{Agent: "bot", Action: "crm.three", Payload: []byte(payload)})
		}
	})
}

func BenchmarkExplain(b *testing.B) {
	p, err := policy.Parse([]byte(policyOf(100)))
	if err != nil {
		b.Fatal(err)
	}
	call := policy.Call{Agent: "bot", Action: "server0.update_3", Environment: "prod", Payload: []byte(payload), At: at("2026-01-05T12:00:00Z")}
	b.ReportAllocs()
	for b.Loop() {
		p.Explain(call)
	}
}

func BenchmarkParse(b *testing.B) {
	for _, rules := range []int{10, 100, 1000} {
		source := []byte(policyOf(rules))
		b.Run(fmt.Sprint(rules), func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(source)))
			for b.Loop() {
				if _, err := policy.Parse(source); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
