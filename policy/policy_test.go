package policy_test

import (
	"strings"
	"testing"

	"github.com/countersign/countersign/policy"
)

func document(change func(*policy.Document)) policy.Document {
	d := policy.Document{
		Roles: []policy.Role{
			{Name: "oncall", Users: []string{"U0ADA", "U0GRACE"}},
			{Name: "finance", Groups: []string{"S0FINANCE"}},
		},
		Approval: requires(policy.RoleCount{Role: "oncall", Count: 1}),
	}
	if change != nil {
		change(&d)
	}
	return d
}

func TestValidateAccepts(t *testing.T) {
	t.Parallel()
	for name, d := range map[string]policy.Document{
		"one of a role":          document(nil),
		"everybody of a role":    document(func(d *policy.Document) { d.Approval.Roles[0].Count = 2 }),
		"members not known here": document(func(d *policy.Document) { d.Approval = requires(policy.RoleCount{Role: "finance", Count: 5}) }),
	} {
		if err := d.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Nobody may approve by default: a document under which nobody could is
// refused, with the reason.
func TestValidateRefuses(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		change func(*policy.Document)
		want   string
	}{
		{"no requirement", func(d *policy.Document) { d.Approval.Roles = nil }, "nobody could ever approve"},
		{"nobody holds the role", func(d *policy.Document) { d.Roles[0].Users = nil }, "has no users and no groups"},
		{"an unknown role", func(d *policy.Document) { d.Approval.Roles[0].Role = "on-call" }, "is not defined"},
		{"more than hold the role", func(d *policy.Document) { d.Approval.Roles[0].Count = 3 }, "asks for 3"},
		{"a count of nobody", func(d *policy.Document) { d.Approval.Roles[0].Count = 0 }, "the count is 1 to"},
		{"a negative count", func(d *policy.Document) { d.Approval.Roles[0].Count = -1 }, "the count is 1 to"},
		{"a role twice", func(d *policy.Document) { d.Roles[1].Name = "oncall" }, "defined twice"},
		{"a name instead of an id", func(d *policy.Document) { d.Roles[0].Users = []string{"@ada", "U0GRACE"} }, "not a Slack user id"},
		{"a user as a group", func(d *policy.Document) { d.Roles[1].Groups = []string{"U0ADA"} }, "not a Slack user group id"},
		{"the same user twice for two places", func(d *policy.Document) {
			d.Roles[0].Users = []string{"U0ADA", "U0ADA"}
			d.Approval.Roles[0].Count = 2
		}, "which has 1"},
		{"one person for two roles", func(d *policy.Document) {
			d.Roles = []policy.Role{{Name: "a", Users: []string{"U0ADA"}}, {Name: "b", Users: []string{"U0ADA"}}}
			d.Approval = requires(policy.RoleCount{Role: "a", Count: 1}, policy.RoleCount{Role: "b", Count: 1})
		}, "one person fills one place"},
		{"too many people in all", func(d *policy.Document) {
			d.Roles[0] = policy.Role{Name: "oncall", Groups: []string{"S0ONCALL"}}
			d.Approval = requires(policy.RoleCount{Role: "finance", Count: policy.MaxPeople}, policy.RoleCount{Role: "oncall", Count: 1})
		}, "asks for 21 people"},
		{"too many people", func(d *policy.Document) {
			d.Approval = requires(policy.RoleCount{Role: "finance", Count: policy.MaxPeople + 1})
		}, "the count is 1 to"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			err := document(test.change).Validate()
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want an error that says %q", err, test.want)
			}
		})
	}
}

// Whoever an agent acts for doesn't count, so others must suffice.
func TestValidateFor(t *testing.T) {
	t.Parallel()
	alone := func(d *policy.Document) { d.Roles[0].Users = []string{"U0ADA"} }
	tests := []struct {
		name   string
		change func(*policy.Document)
		user   string
		ok     bool
	}{
		{"nobody", alone, "", true},
		{"somebody without the role", alone, "U0GRACE", true},
		{"the only one", alone, "U0ADA", false},
		{"the only one, where self-approval is allowed", func(d *policy.Document) { alone(d); d.Approval.AllowSelf = true }, "U0ADA", true},
		{"one of two", nil, "U0ADA", true},
		{"one of two where two are needed", func(d *policy.Document) { d.Approval.Roles[0].Count = 2 }, "U0ADA", false},
		{"one of a role with a group", func(d *policy.Document) { alone(d); d.Roles[0].Groups = []string{"S0ONCALL"} }, "U0ADA", true},
	}
	for _, test := range tests {
		if err := document(test.change).ValidateFor(test.user); (err == nil) != test.ok {
			t.Errorf("%s: %v", test.name, err)
		}
	}
}

func TestUnclassifiedWaitsForPeople(t *testing.T) {
	t.Parallel()
	d := document(nil)
	ruling := d.Rule(policy.Call{Agent: "crm-agent", Action: "crm.read", Environment: "staging"})
	if ruling.Effect != policy.RequireApproval || ruling.Tier != policy.TierDestructive || len(ruling.Rules) == 0 {
		t.Errorf("an unclassified action was ruled %+v", ruling)
	}
}
