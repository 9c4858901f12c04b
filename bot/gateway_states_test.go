package bot_test

import (
	"maps"
	"strings"
	"time"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/policy"
)

const somePin = "7d1a54127b222502f5b79b5fb0803061152a44f92b37e23c6527baf665d4da9a"

// byGateway has the gateway run the request.
func byGateway(r *approval.Request) {
	r.Executor, r.ToolPin = approval.ByGateway, somePin
	r.Hints = policy.Hints{ReadOnly: pointer(false), Destructive: pointer(true)}
	r.Purpose, r.StatedCount, r.Reversible = "crm.delete_records, called through the gateway", nil, nil
	r.Payload = approval.Payload(`{"table":"customers","ids":[4001,4008,4015]}`)
}

// tierThree has a class for which more than once can be offered.
func tierThree(r *approval.Request) { tier(policy.TierExternal, "cautious")(r) }

// scopes are what the policy offers.
func scopes(scopes ...string) func(*approval.Request) {
	return func(r *approval.Request) {
		tierThree(r)
		r.Ruling.Scopes, r.Session = scopes, "session-1"
		r.Ruling.Target = r.Target // nothing wider than once is offered of what only the agent says
	}
}

// scope is how far the last approval goes.
func scope(scope string) func(*approval.Request) {
	return func(r *approval.Request) { r.Decisions[len(r.Decisions)-1].Scope = scope }
}

// grants gives a grant to an approved request.
func grants(scope string, within time.Duration) func(*approval.Request) {
	return func(r *approval.Request) {
		r.Decisions[len(r.Decisions)-1].Scope = scope
		r.Grant = &approval.Grant{Scope: scope, GrantedAt: r.DecidedAt, ExpiresAt: r.DecidedAt.Add(within)}
		if scope == approval.ScopeSession {
			r.Grant.Session = r.Session
		}
	}
}

func used(times int) func(*approval.Request) {
	return func(r *approval.Request) { r.Grant.Uses = times }
}

func revoked(by string) func(*approval.Request) {
	return func(r *approval.Request) {
		r.Grant.RevokedAt, r.Grant.RevokedBy = r.DecidedAt.Add(4*time.Minute), by
		r.UpdatedAt = r.Grant.RevokedAt
		r.Revision++
	}
}

// later is a change after everything has ended.
func later(r *approval.Request) { r.UpdatedAt = r.UpdatedAt.Add(24 * time.Hour); r.Revision++ }

// nobody decides without a person.
func nobody(surface approval.Surface, verdict approval.Verdict, reason string) func(*approval.Request) {
	return func(r *approval.Request) {
		at := asked.Add(time.Minute)
		r.Decisions = append(r.Decisions, approval.Decision{
			Receipt: "rcpt_1", Verdict: verdict, Reason: reason, Surface: surface, Version: r.Version, Digest: r.Digest, At: at,
		})
		r.DecidedAt, r.UpdatedAt = at, at
		r.Status, r.ApplyBy = approval.Approved, at.Add(15*time.Minute)
		if verdict == approval.Reject {
			r.Status, r.Reason, r.ClosedAt, r.ApplyBy = approval.Rejected, reason, at, time.Time{}
		}
		r.Revision++
	}
}

func confirmedByClient(r *approval.Request) {
	tierThree(r)
	r.Ruling.InBand = true
	nobody(approval.InBand, approval.Approve, "Confirmed by the agent's client, not by a verified person.")(r)
}

func declinedByClient(r *approval.Request) {
	tierThree(r)
	r.Ruling.InBand = true
	nobody(approval.InBand, approval.Reject, "The agent's client declined.")(r)
}

func grantedBefore(r *approval.Request) {
	r.GrantedBy = "req_0190a0b0c0d0e0f00102030405060709"
	nobody(approval.Granted, approval.Approve, "Granted with "+string(r.GrantedBy)+".")(r)
}

// begun has the gateway begin to run what is approved.
func begun(r *approval.Request) {
	r.Status = approval.Applied
	r.ClosedAt = r.DecidedAt.Add(time.Minute)
	r.UpdatedAt = r.ClosedAt
	r.Execution = &approval.Execution{ID: "exec_1", Version: r.Version, StartedAt: r.ClosedAt, Outcome: approval.Unknown}
	r.Revision++
}

// ran ends the run.
func ran(outcome approval.Outcome, detail string) func(*approval.Request) {
	return func(r *approval.Request) {
		begun(r)
		r.Execution.Outcome, r.Execution.Detail, r.Execution.FinishedAt = outcome, detail, r.ClosedAt.Add(3*time.Second)
		r.UpdatedAt = r.Execution.FinishedAt
		r.Revision++
	}
}

func settled(who approval.Approver, outcome approval.Outcome) func(*approval.Request) {
	return func(r *approval.Request) {
		r.Execution.Outcome, r.Execution.SettledBy = outcome, who
		r.UpdatedAt = r.UpdatedAt.Add(time.Minute)
		r.Revision++
	}
}

const toolChanged = "The tool's definition has changed since this was asked."

const lostTrack = "The server stopped while the call was under way."

// gatewayStates are the requests of the gateway and those with grants whose
// cards are kept as golden files.
func gatewayStates() map[string]*approval.Request {
	gateway := func(change ...func(*approval.Request)) *approval.Request {
		return deletion(append([]func(*approval.Request){byGateway}, change...)...)
	}
	return map[string]*approval.Request{
		"gateway-pending":   gateway(),
		"gateway-no-target": gateway(func(r *approval.Request) { r.Target = "" }),
		"gateway-unpinned":  gateway(func(r *approval.Request) { r.Unpinned = true }),
		"gateway-approved":  gateway(approved),
		"gateway-running":   gateway(approved, begun),
		"gateway-ran":       gateway(approved, ran(approval.Succeeded, "214 deleted")),
		"gateway-ran-of-two": gateway(twoOf, vote(ada, approval.Approve, "oncall", ""), vote(grace, approval.Approve, "finance", ""),
			ran(approval.Succeeded, "")),
		"gateway-failed":       gateway(approved, ran(approval.Failed, "403 from the CRM after 12 records")),
		"gateway-long-report":  gateway(approved, ran(approval.Failed, "403 from the CRM\n"+strings.Repeat("at line <12> ", 60))),
		"gateway-hostile":      gateway(approved, ran(approval.Succeeded, "ok` · *Approved* by <@U0ADA> <!channel> \u202e")),
		"gateway-unknown":      gateway(approved, ran(approval.Unknown, lostTrack)),
		"gateway-settled-ran":  gateway(approved, ran(approval.Unknown, lostTrack), settled(grace, approval.Succeeded)),
		"gateway-settled-not":  gateway(approved, ran(approval.Unknown, ""), settled(grace, approval.Failed)),
		"gateway-confirmed":    gateway(confirmedByClient, ran(approval.Succeeded, "214 deleted")),
		"gateway-declined":     gateway(declinedByClient),
		"gateway-by-grant":     gateway(grantedBefore, ran(approval.Succeeded, "1 deleted")),
		"gateway-allowed":      gateway(nobody(approval.Policy, approval.Approve, "crm.get is tier 1, read."), ran(approval.Succeeded, "")),
		"gateway-denied":       gateway(nobody(approval.Policy, approval.Reject, "Nobody drops the CRM.")),
		"gateway-expired":      gateway(expired),
		"gateway-not-run":      gateway(approved, expired),
		"gateway-tool-changed": gateway(func(r *approval.Request) { superseded(r); r.Reason = toolChanged }),
		"gateway-redacted": gateway(redacted, approved,
			ran(approval.Failed, `login("ada", "hunter2, hunter3") refused`)),

		"scopes":        gateway(scopes("15m", "1h", "session")),
		"scopes-agent":  deletion(scopes("15m")),
		"scopes-reason": gateway(reasonRequired, scopes("once", "15m")),
		"scopes-large":  gateway(scopes("15m", "session"), ids(400)),
		"scopes-partial": gateway(scopes("15m", "1h"), twoOf,
			vote(ada, approval.Approve, "oncall", ""), scope("15m")),
		"granted":          gateway(scopes("15m"), approved, grants("15m", 15*time.Minute), ran(approval.Succeeded, "1 sent")),
		"granted-used":     gateway(scopes("90m"), approved, grants("90m", 90*time.Minute), used(3), ran(approval.Succeeded, "1 sent")),
		"granted-agent":    deletion(scopes("15m"), approved, grants("15m", 15*time.Minute)),
		"granted-session":  gateway(scopes("session"), approved, grants("session", 8*time.Hour), ran(approval.Succeeded, "")),
		"granted-revoked":  gateway(scopes("15m"), approved, grants("15m", 15*time.Minute), used(1), ran(approval.Succeeded, ""), revoked("slack:T0DEMO/U0GRACE")),
		"granted-operator": gateway(scopes("15m"), approved, grants("15m", 15*time.Minute), revoked("operator:root")),
		"granted-ended":    gateway(scopes("15m"), approved, grants("15m", 15*time.Minute), used(2), ran(approval.Succeeded, ""), later),
		"granted-unknown":  gateway(scopes("15m"), approved, grants("15m", 15*time.Minute), ran(approval.Unknown, lostTrack)),
		"granted-by-one": gateway(scopes("15m"), twoOf,
			vote(ada, approval.Approve, "oncall", ""), scope("15m"), vote(grace, approval.Approve, "finance", "")),
	}
}

// allStates are all requests whose cards are kept as golden files.
func allStates() map[string]*approval.Request {
	all := states()
	maps.Copy(all, gatewayStates())
	return all
}
