package approval_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/approval/approvaltest"
	"github.com/countersign/countersign/policy"
)

// underPolicy makes a fixture whose policy is the given lines beside roles that
// Alice and Bob hold.
func underPolicy(t *testing.T, lines string) *approvaltest.Fixture {
	t.Helper()
	return approvaltest.New(t, func(o *approval.Options) { o.Policy = finance(t, lines) })
}

func finance(t testing.TB, lines string) *policy.Policy {
	t.Helper()
	return approvaltest.ParsePolicy(t, fmt.Sprintf(`
version: 1
mode: cautious
roles: {finance: {users: [%s, %s]}}
%s`, approvaltest.Alice.User, approvaltest.Bob.User, lines))
}

func action(name string) func(*approval.Proposal) {
	return func(p *approval.Proposal) { p.Action = name }
}

// proposal is what Propose would ask, for tests of what is refused.
func proposal(change ...func(*approval.Proposal)) approval.Proposal {
	p := approval.Proposal{Purpose: "Pay the invoices of March", Action: "payouts.create", Payload: []byte(`{"amount": 1200}`)}
	for _, c := range change {
		c(&p)
	}
	return p
}

const (
	asksFinance = "approval: {requires: [{role: finance}]}\n"
	payouts     = "integrations: {payouts: {tools: {get_*: {tier: 1}, create: {tier: 4}, drop: {tier: 5}}}}\n" +
		"block: [{id: no-drop, actions: [payouts.drop], why: Nothing is dropped here.}]\n"
)

// tiered is a policy under which mode cautious allows crm.get, asks one of
// finance for crm.send to at most two and two of finance for more, and denies
// crm.drop. More is added to it.
func tiered(t testing.TB, more string) *policy.Policy {
	t.Helper()
	return finance(t, tieredLines(more))
}

func tieredLines(more string) string {
	return `
approval: {requires: [{role: finance}]}
tiers: {5: {requires: [{role: finance, count: 2}]}}
block: [{id: no-drop, actions: [crm.drop], why: "Nobody drops the CRM."}]
integrations:
  crm:
    tools:
      get: {tier: 1}
      send: {tier: 3, bulk: [{over: 2, raise_to: 5}]}
      drop: {tier: 5}
` + more
}

// ruledBy is a fixture whose policy is tiered with more.
func ruledBy(t *testing.T, more string) *approvaltest.Fixture {
	t.Helper()
	return approvaltest.New(t, func(o *approval.Options) {
		o.Policy = tiered(t, more)
		o.Destinations = []string{"slack:C1"}
	})
}

// ask has the agent ask for an action.
func ask(f *approvaltest.Fixture, action, payload string) (*approval.Request, error) {
	return f.Service.Request(context.Background(), f.Agent, approval.Proposal{
		Purpose: "Do it", Action: action, Environment: "production", Payload: []byte(payload),
	})
}

const generous = "limits: {pending: 1000000, per_minute: 60000, cooldown: 0s}"
