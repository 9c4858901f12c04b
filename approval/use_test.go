package approval_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/approval/approvaltest"
)

func TestFirstUse(t *testing.T) {
	t.Parallel()
	f := underPolicy(t, asksFinance+payouts+"first_use: {of: [tool], within: 24h}\n")
	read := action("payouts.get_all")
	first := f.Propose(t, read)
	if first.Status != approval.Pending || first.Ruling.Rules[1].ID != "first-use" {
		t.Fatalf("the first use is %s by %v", first.Status, first.Ruling.Rules)
	}
	// Asking isn't using, nor is a use elsewhere or by another.
	f.Decide(t, approvaltest.Alice, first, approval.Approve)
	if again := f.Propose(t, read); again.Status != approval.Pending {
		t.Error("it counts as used before it was applied")
	}
	if _, err := f.Service.Claim(t.Context(), f.Agent, first.ID); err != nil {
		t.Fatal(err)
	}
	if again := f.Propose(t, read); again.Status != approval.Approved {
		t.Errorf("the second use is %s by %v", again.Status, again.Ruling.Rules)
	}
	f.Clock.Advance(24*time.Hour + time.Second)
	if late := f.Propose(t, read); late.Status != approval.Pending {
		t.Error("a use of long ago counts")
	}
}

// What counts as used before is the agent's own use, of the same in the same
// environment, not too long ago.
func TestWhatWasUsedBefore(t *testing.T) {
	t.Parallel()
	const lines = asksFinance + `
environments: {staging: {names: [stage]}}
integrations:
  crm: {tools: {get_*: {tier: 1}}}
  git: {tools: {get_*: {tier: 1}}}
limits: {pending: 1000, per_minute: 60000, cooldown: 0s}
`
	use := func(t *testing.T, f *approvaltest.Fixture, agent approval.Agent, name, environment string) {
		t.Helper()
		r, err := f.Service.Request(t.Context(), agent, proposal(action(name), func(p *approval.Proposal) { p.Environment = environment }))
		if err != nil {
			t.Fatal(err)
		}
		if r.Status == approval.Pending {
			r = f.Decide(t, approvaltest.Alice, r, approval.Approve)
		}
		if _, err := f.Service.Claim(t.Context(), agent, r.ID); err != nil {
			t.Fatal(err)
		}
	}
	deployer := approval.Agent{Name: "deployer"}
	for name, test := range map[string]struct {
		of    string
		agent approval.Agent // that used crm.get_a
		in    string         // where
		asks  string         // what deployer asks for then, in production
		first bool
	}{
		"the tool":                                 {"tool", deployer, "production", "crm.get_a", false},
		"an environment that isn't known":          {"tool", deployer, "prd", "crm.get_a", false},
		"another tool":                             {"tool", deployer, "production", "crm.get_b", true},
		"another tool of the integration":          {"integration", deployer, "production", "crm.get_b", false},
		"another integration":                      {"integration", deployer, "production", "git.get_a", true},
		"another integration of an agent":          {"agent", deployer, "production", "git.get_a", false},
		"another environment":                      {"agent", deployer, "stage", "crm.get_a", true},
		"another agent":                            {"agent", approval.Agent{Name: "another"}, "production", "crm.get_a", true},
		"an agent of the name for somebody else":   {"agent", approval.Agent{Name: "deployer", Owner: approvaltest.Carol}, "production", "crm.get_a", true},
		"any of them, and one is used":             {"tool, integration, agent", deployer, "production", "crm.get_a", false},
		"any of them, and only one isn't used yet": {"tool, integration, agent", deployer, "production", "crm.get_b", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := underPolicy(t, lines+"first_use: {of: ["+test.of+"], within: 24h}\n")
			use(t, f, test.agent, "crm.get_a", test.in)
			r, err := f.Service.Request(t.Context(), deployer, proposal(action(test.asks), func(p *approval.Proposal) { p.Environment = "production" }))
			if err != nil {
				t.Fatal(err)
			}
			if first := r.Status == approval.Pending; first != test.first {
				t.Errorf("it is %s by %v, want it to be a first use: %t", r.Status, r.Ruling.Rules, test.first)
			}
		})
	}

	// A use is of the environment that policy named when it was claimed: who
	// used what is staging now has not used production.
	t.Run("an environment that was renamed", func(t *testing.T) {
		t.Parallel()
		f := underPolicy(t, lines+"first_use: {of: [tool], within: 24h}\n")
		r, err := f.Service.Request(t.Context(), deployer, proposal(action("crm.get_a"), func(p *approval.Proposal) { p.Environment = "pre" }))
		if err != nil || r.Ruling.Environment != "production" {
			t.Fatal(r, err)
		}
		f.Decide(t, approvaltest.Alice, r, approval.Approve)
		if err := f.Service.SetPolicy(t.Context(), finance(t, strings.Replace(lines, "[stage]", "[stage, pre]", 1)+"first_use: {of: [tool], within: 24h}\n")); err != nil {
			t.Fatal(err)
		}
		if _, err := f.Service.Claim(t.Context(), deployer, r.ID); err != nil {
			t.Fatal(err)
		}
		again, err := f.Service.Request(t.Context(), deployer, proposal(action("crm.get_a"), func(p *approval.Proposal) { p.Environment = "production" }))
		if err != nil || again.Status != approval.Pending {
			t.Errorf("the first use of production is %s (%v)", again.Status, err)
		}
	})

	// What is allowed because of an earlier use isn't once that is too long ago.
	t.Run("a use that grows too old before it is applied", func(t *testing.T) {
		t.Parallel()
		f := underPolicy(t, lines+"first_use: {of: [tool], within: 24h}\n")
		use(t, f, deployer, "crm.get_a", "production")
		ask := func() *approval.Request {
			t.Helper()
			r, err := f.Service.Request(t.Context(), deployer, proposal(action("crm.get_a"), func(p *approval.Proposal) { p.Environment = "production" }))
			if err != nil || r.Status != approval.Approved {
				t.Fatalf("got %v (%v)", r, err)
			}
			return r
		}
		f.Clock.Advance(24*time.Hour - time.Minute)
		early, late := ask(), ask()
		f.Clock.Advance(time.Minute) // exactly a day
		if _, err := f.Service.Claim(t.Context(), deployer, early.ID); err != nil {
			t.Errorf("at the end of the time: %v", err)
		}
		// The claim was a use, so that the other holds.
		if _, err := f.Service.Claim(t.Context(), deployer, late.ID); err != nil {
			t.Errorf("after another use: %v", err)
		}
		f.Clock.Advance(24*time.Hour - time.Minute)
		stale := ask()
		f.Clock.Advance(2 * time.Minute)
		if got, err := f.Service.Claim(t.Context(), deployer, stale.ID); !errors.Is(err, approval.ErrSuperseded) {
			t.Errorf("when it is too long ago: %v (%v)", got, err)
		}
	})
}

// A condition on a first use is told of it, whether or not the policy asks about
// first uses in general.
func TestFirstUseInACondition(t *testing.T) {
	t.Parallel()
	f := underPolicy(t, asksFinance+payouts+"rules: [{id: new-agent, when: first_use_of_agent, raise_to: 4, why: The agent is new.}]\n")
	if r := f.Propose(t, action("payouts.get_all")); r.Status != approval.Pending {
		t.Errorf("got %s by %v", r.Status, r.Ruling.Rules)
	}
}
