package mcp

import (
	"fmt"
	"time"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/policy"
)

// What models are told. They act on these words, so each says what the status
// is not as well as what it is: a wait that ends or a request that expires is
// neither a yes nor a person's no.
const (
	whilePending = "Nobody has decided yet. This is not a refusal and not an approval. Call await_approval again with the same elicitationId, as often as needed. Don't run the action meanwhile."

	whenExpired = "Nobody decided in time, so the request has expired. Silence is not consent, and nobody refused. Don't run the action or reach its effect another way. Ask the user whether to ask again with request_approval."

	whenLapsed = "The request was approved, but apply was not called before its deadline, so the approval has expired. Don't run the action. Ask the user whether to ask again with request_approval."

	whenUsed = "The approval was already used by an earlier apply; it works once. Don't run the action again. If it must run again, ask for a new approval with request_approval."

	whenApplied = "Run exactly this payload now, once, with nothing added, left out or changed. The approval is used up: another run needs a new request_approval."

	whenLetGo = "Nobody has decided yet, and the call isn't held any longer: the server is stopping, or it has held the call as long as it may. Nothing was approved, and this is not a refusal. Don't run the action. Call request_approval again with exactly the same action and arguments in a minute: it goes on waiting for the same decision."

	whileHeld = "Nobody has decided yet. Don't run the action. Call request_approval again with exactly the same action and arguments: it goes on waiting for the same decision."

	noRetry = "Don't retry, rephrase or split the request, and don't reach the same effect another way. Tell the user, and continue only as the user says."
)

// afterRequest is what to do once a request is stored.
func afterRequest(r *approval.Request, reviewURL string, reviewDecides bool) string {
	if r.Status != approval.Pending {
		return guidance(r)
	}
	where := "to look at the request, people can open " + reviewURL + " (opening it decides nothing)"
	if reviewDecides {
		where = "people can also decide at " + reviewURL + ", where they sign in (opening it decides nothing)"
	}
	return "The request is stored and waits for a person. Call await_approval with this elicitationId now, and again each time it returns pending. Whoever may decide is asked in Slack; " + where + ". Don't run the action before apply has returned its payload."
}

// guidance is what the request's status means for the agent that asked.
func guidance(r *approval.Request) string {
	if r.Executor == approval.ByGateway {
		return gatewayGuidance(r)
	}
	switch r.Status {
	case approval.Pending:
		return whilePending
	case approval.Approved:
		return approvedBy(r) + "Call apply with this elicitationId now, before " + timeText(r.ApplyBy) + ", and run exactly the payload that it returns. Don't run the action from memory."
	case approval.Rejected:
		return whenRejected(r)
	case approval.Expired:
		if r.ApplyBy.IsZero() {
			return whenExpired
		}
		return whenLapsed
	default:
		return whenUsed
	}
}

// approvedBy says that a request is approved, and by what if no person was asked.
func approvedBy(r *approval.Request) string {
	if r.Ruling.Effect == policy.Allow {
		return "Approved by the policy, without a person: " + r.Ruling.Reason() + " "
	}
	return "Approved. "
}

// whenDenied is what an agent is told that asks for what no person is asked
// about.
func whenDenied(r *approval.Request) string {
	return "The policy denies this action, and no person was asked. " + r.Reason + " Don't reach the same effect another way. Tell the user."
}

// gatewayGuidance is guidance for a call of a tool that the server runs itself.
func gatewayGuidance(r *approval.Request) string {
	const fetch = "Call await_result with this id as requestId"
	switch r.Status {
	case approval.Pending:
		return "Nobody has decided yet. This is not a refusal and not an approval. " + fetch + ", as often as needed: it waits for the decision and then for the tool's result. Don't call the tool again meanwhile."
	case approval.Approved:
		return approvedBy(r) + "The server runs the call itself; don't call the tool again. " + fetch + " to get its result."
	case approval.Rejected:
		return whenRejected(r)
	case approval.Expired:
		if r.ApplyBy.IsZero() {
			return "Nobody decided in time, so the request has expired and nothing ran. Silence is not consent, and nobody refused. Don't reach the same effect another way. Ask the user whether to call the tool again."
		}
		return "The call was approved, but it couldn't run before the deadline for that, so the approval has expired and nothing ran. Ask the user whether to call the tool again."
	}
	switch execution := r.Execution; {
	case execution == nil || execution.FinishedAt.IsZero():
		return "The call was approved and runs now. Don't call the tool again. " + fetch + " to get its result."
	case execution.Outcome == approval.Unknown:
		return "The call was approved and began to run, and nobody knows how it ended: it may have taken effect. Don't call the tool again and don't reach the same effect another way. A person has to look; tell the user."
	case execution.ResultSize > 0:
		return "The call was approved and has run. " + fetch + " to get its result, if you don't have it."
	default:
		return "The call was approved and has run, once. Don't call the tool again for it."
	}
}

// whenRejected keeps a person's no apart from an approval that stopped counting.
func whenRejected(r *approval.Request) string {
	if r.Ruling.Effect == policy.Deny {
		return whenDenied(r)
	}
	for _, decision := range r.Decisions {
		if decision.Verdict != approval.Reject || decision.Version != r.Version {
			continue
		}
		if decision.Surface == approval.App {
			return whenHostSaidNo(r, decision)
		}
		if r.ClientOnly && r.Executor == approval.ByAgent && !decision.Person() {
			return decision.Reason + " Nothing ran. Tell the user that this host doesn't show the view in which a person decides (MCP Apps). " + noRetry
		}
		if !decision.Person() {
			return decision.Reason + " Nothing ran. " + noRetry
		}
		if decision.Reason == "" {
			return "A person said no and gave no reason. " + noRetry
		}
		return fmt.Sprintf("A person said no. Their reason, in their words: %q. %s", decision.Reason, noRetry)
	}
	what := "The approval no longer counts. "
	if r.DecidedAt.IsZero() {
		what = "The request no longer counts. "
	}
	if r.Executor == approval.ByGateway {
		return what + r.Reason + " Nothing ran. Ask the user whether to call the tool again."
	}
	return what + r.Reason + " Don't run the action. Ask the user whether to ask again with request_approval."
}

// whenHostSaidNo is what an agent is told whose own host decided, or took back.
func whenHostSaidNo(r *approval.Request, d approval.Decision) string {
	what := "It was denied in this host"
	if !r.ApplyBy.IsZero() {
		what = "It was approved, and then taken back in this host"
	}
	if d.Reason == "" {
		return what + ", without a reason. " + noRetry
	}
	return fmt.Sprintf("%s. The reason given, as it was written: %q. %s", what, d.Reason, noRetry)
}

// timeText is a time as the tools write it: RFC 3339, UTC, milliseconds.
func timeText(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }
