package policy_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// What is covered is what some case makes fire and some other doesn't.
func TestCoverage(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name  string
		cases string
		want  []string // what isn't covered
	}{
		{
			"no cases", "[]",
			[]string{
				"tool crm.get_*: no case is classified by it",
				"tool crm.delete_*: no case is classified by it",
				"tool crm.refund: no case is classified by it",
				"tool crm.send_email: no case is classified by it",
				"built-in bulk: no case is about it",
				"built-in high-value: no case is about it",
				"built-in first-use: no case is about it",
				"block no-drop: no case makes it fire",
				"rule external-mail: no case is about it",
				"rule staging-ease: no case is about it",
			},
		},
		{
			"one side", `
  - {name: a, action: crm.get_x, environment: stage, expect: {effect: allow}}
  - {name: b, action: crm.delete_x, environment: stage, args: {ids: [1]}, expect: {effect: allow}}
  - {name: c, action: crm.refund, environment: stage, args: {amount: 1001}, expect: {effect: allow}}
  - {name: d, action: crm.send_email, first_use: [tool], args: {to: x@corp.example}, expect: {effect: allow}}
  - {name: e, action: crm.drop_x, environment: stage, expect: {effect: deny}}
`,
			[]string{
				"built-in bulk: no case makes it fire",
				"built-in high-value: no case shows it not firing",
				"built-in first-use: no case shows it not firing",
				"rule external-mail: no case makes it fire",
				"rule staging-ease: no case shows it not firing",
			},
		},
		{
			"both sides", `
  - {name: a, action: crm.get_x, expect: {effect: allow}}
  - {name: b, action: crm.delete_x, environment: stage, args: {ids: [1]}, expect: {effect: allow}}
  - {name: c, action: crm.delete_x, environment: stage, args: {}, expect: {effect: allow}}
  - {name: d, action: crm.refund, args: {amount: 1001}, expect: {effect: allow}}
  - {name: e, action: crm.refund, args: {amount: 1000}, expect: {effect: allow}}
  - {name: f, action: crm.send_email, first_use: [tool], args: {to: x@corp.example}, expect: {effect: allow}}
  - {name: g, action: crm.send_email, args: {to: x@y}, expect: {effect: allow}}
  - {name: h, action: crm.drop_x, expect: {effect: deny}}
`, nil,
		},
		{
			// A tool that has changed is classified by nothing, and what raises
			// anything raises it.
			"changed tools", `
  - {name: a, action: crm.get_x, unpinned: true, expect: {effect: require_approval}}
  - {name: b, action: crm.delete_x, unpinned: true, args: {ids: [1]}, expect: {effect: require_approval}}
  - {name: c, action: crm.refund, unpinned: true, count: 26, args: {amount: 1001}, expect: {effect: require_approval}}
`,
			[]string{
				"tool crm.get_*: no case is classified by it",
				"tool crm.delete_*: no case is classified by it",
				"tool crm.refund: no case is classified by it",
				"tool crm.send_email: no case is classified by it",
				"built-in high-value: no case shows it not firing",
				"built-in first-use: no case makes it fire",
				"block no-drop: no case makes it fire",
				"rule external-mail: no case is about it",
				"rule staging-ease: no case makes it fire",
			},
		},
		{
			// Another action than that of a rule shows nothing about the rule,
			// nor does an environment in which nobody is asked about first uses.
			"about something else", `
  - {name: a, action: crm.refund, environment: stage, count: 26, args: {amount: 1001}, expect: {effect: allow}}
  - {name: b, action: crm.get_x, environment: stage, args: {amount: 1, ids: []}, expect: {effect: allow}}
`,
			[]string{
				"tool crm.delete_*: no case is classified by it",
				"tool crm.send_email: no case is classified by it",
				"built-in bulk: no case shows it not firing",
				"built-in high-value: no case shows it not firing",
				"built-in first-use: no case is about it",
				"block no-drop: no case makes it fire",
				"rule external-mail: no case is about it",
				"rule staging-ease: no case is about it",
			},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			coverage := mustParse(t, example).Test(mustParseCases(t, "cases: "+test.cases)).Coverage
			var got []string
			for _, item := range coverage.Uncovered() {
				got = append(got, fmt.Sprintf("%s %s: %s", item.Kind, item.ID, item.Missing()))
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if coverage.Covered()+len(got) != len(coverage.Items) || len(coverage.Items) != 10 {
				t.Errorf("%d of %d covered, and %d not", coverage.Covered(), len(coverage.Items), len(got))
			}
		})
	}
}

// Items are named with where they stand in the policy.
func TestPlacesOfCoverage(t *testing.T) {
	t.Parallel()
	lines := make(map[string]int)
	for _, item := range mustParse(t, example).Test(nil).Coverage.Items {
		lines[item.ID] = item.Line
	}
	want := map[string]int{
		"bulk": 12, "first-use": 13, "no-drop": 15, "crm.get_*": 19, "crm.delete_*": 20, "crm.refund": 21,
		"high-value": 21, "crm.send_email": 22, "external-mail": 24, "staging-ease": 25,
	}
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// A rule that asks for something beside its action has to be shown not firing.
func TestWhatIsShownNotFiring(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		asks string
		want string
	}{
		{"", ""},
		{"environments: [production, staging]", ""},
		{"agents: [agent]", "no case shows it not firing"},
		{"environments: [production]", "no case shows it not firing"},
		{"environments: [production, production]", "no case shows it not firing"},
		{"when: 'true'", "no case shows it not firing"},
		{"count_over: 1", "no case shows it not firing"},
		{"amount_over: 1", "no case shows it not firing"},
	} {
		t.Run(test.asks, func(t *testing.T) {
			t.Parallel()
			rule := "rules:\n  - {id: new, actions: [crm.refund], raise_to: 5, why: w"
			if test.asks != "" {
				rule += ", " + test.asks
			}
			cases := mustParseCases(t, "cases:\n  - {name: a, action: crm.refund, count: 2, args: {amount: 2}, expect: {effect: allow}}\n")
			for _, item := range edited(t, "rules:", rule+"}").Test(cases).Coverage.Items {
				if item.ID == "new" && item.Missing() != test.want {
					t.Errorf("missing is %q, want %q", item.Missing(), test.want)
				}
			}
		})
	}
}
