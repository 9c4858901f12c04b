package approvaltest

import (
	"fmt"
	"testing"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/policy"
)

// Pin names the definition of the tools that ProposeRun calls.
const Pin = "pin-1"

// RunPolicy is a policy for what a gateway runs. One of "finance" approves
// payouts.create, once, for a session, for 15m or for 1h on the same account;
// in staging the answer of the agent's client is enough. payouts.drop is of tier
// 4, payouts.get runs by itself, and payouts.wipe is denied. Lines are added
// below it.
func RunPolicy(t testing.TB, lines ...string) *policy.Policy {
	t.Helper()
	source := fmt.Sprintf(`
version: 1
mode: cautious
environments: {staging: {names: [stage]}}
roles: {finance: {users: [%s, %s]}}
approval: {requires: [{role: finance}], scopes: [once, session, 15m, 1h]}
in_band: {tiers: [3]}
block: [{id: no-wipe, actions: [payouts.wipe], why: "Nothing is wiped."}]
integrations:
  payouts:
    tools:
      get: {tier: 1, target: args.account}
      create: {tier: 3, target: args.account}
      drop: {tier: 4, target: args.account}
      wipe: {tier: 5}
limits: {pending: 1000000, per_minute: 1000000, cooldown: 0s}
`, Alice.User, Bob.User)
	for _, line := range lines {
		source += line + "\n"
	}
	return ParsePolicy(t, source)
}

// NewRuns is New under RunPolicy.
func NewRuns(t testing.TB, options ...func(*approval.Options)) *Fixture {
	t.Helper()
	underIt := func(o *approval.Options) { o.Policy = RunPolicy(t) }
	return New(t, append([]func(*approval.Options){underIt}, options...)...)
}

// Call is what ProposeRun asks, on the given account and before any option
// changes it.
func Call(account string, options ...func(*approval.Proposal)) approval.Proposal {
	p := approval.Proposal{
		Purpose:     "Call create of payouts",
		Action:      "payouts.create",
		Environment: "production",
		Payload:     fmt.Appendf(nil, `{"account": %q, "amount": 1200}`, account),
		Executor:    approval.ByGateway,
		ToolPin:     Pin,
	}
	for _, option := range options {
		option(&p)
	}
	return p
}

// ProposeRun has the fixture's agent call payouts.create of a gateway's server,
// each time on an account of its own, which each option may change, and returns
// the request.
func (f *Fixture) ProposeRun(t testing.TB, options ...func(*approval.Proposal)) *approval.Request {
	t.Helper()
	r, err := f.Service.Request(t.Context(), f.Agent, Call(fmt.Sprintf("acct_%d", f.proposed.Add(1)), options...))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Grant has a person approve the request as it is for longer than once.
func (f *Fixture) Grant(t testing.TB, who approval.Approver, r *approval.Request, scope string) *approval.Request {
	t.Helper()
	ballot := Ballot(r, approval.Approve)
	ballot.Scope = scope
	decided, err := f.Service.Decide(t.Context(), who, ballot)
	if err != nil {
		t.Fatal(err)
	}
	return decided
}

// Run claims the request for the gateway, whose tool is as it was, which must
// work, and records that it succeeded with the given result.
func (f *Fixture) Run(t testing.TB, r *approval.Request, result string) *approval.Request {
	t.Helper()
	if _, err := f.Service.ClaimToRun(t.Context(), r.ID, r.ToolPin); err != nil {
		t.Fatal(err)
	}
	ran, err := f.Service.FinishRun(t.Context(), r.ID, approval.Report{Outcome: approval.Succeeded, Result: []byte(result)})
	if err != nil {
		t.Fatal(err)
	}
	return ran
}

// Answer is what an agent's client answers that was shown a request.
func Answer(r *approval.Request, accept bool) approval.Confirmation {
	c := approval.Confirmation{Request: r.ID, Surface: approval.InBand, Digest: r.Digest, Verdict: approval.Reject}
	if accept {
		c.Verdict = approval.Approve
	}
	return c
}
