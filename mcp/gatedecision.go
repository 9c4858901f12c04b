package mcp

import (
	"bytes"
	"time"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/approval/presentation"
)

// The outcomes of a held call. Only granted is a yes.
const (
	outcomeGranted = "granted"
	outcomeDenied  = "denied"
	outcomeExpired = "expired"
	// outcomeRevoked is for the view: what was granted was taken back.
	outcomeRevoked = "revoked"
)

// outcomeOf is what a request came to; empty while it is pending.
func outcomeOf(r *approval.Request) string {
	switch r.Status {
	case approval.Pending:
		return ""
	case approval.Approved, approval.Applied:
		return outcomeGranted
	case approval.Expired:
		return outcomeExpired
	default:
		if r.ApplyBy.IsZero() {
			return outcomeDenied
		}
		return outcomeRevoked
	}
}

// decider is the decision that made the outcome; nil if none did, as of an expiry.
func decider(r *approval.Request) *approval.Decision {
	verdict := approval.Approve
	switch outcomeOf(r) {
	case outcomeGranted:
	case outcomeDenied, outcomeRevoked:
		verdict = approval.Reject
	default:
		return nil
	}
	for i := len(r.Decisions) - 1; i >= 0; i-- {
		if d := &r.Decisions[i]; d.Verdict == verdict && d.Version == r.Version {
			return d
		}
	}
	return nil
}

// decidedAt is when the outcome came about.
func decidedAt(r *approval.Request) time.Time {
	if outcomeOf(r) == outcomeGranted {
		return r.DecidedAt
	}
	return r.ClosedAt
}

// decisionText is the decision on a request as a view has it: edited arguments are in
// it if they may run and the policy hides nothing in them.
func decisionText(r *approval.Request, outcome string) ([]byte, error) {
	return decisionWith(r, outcome, presentation.LayOut(r.Payload, r.Ruling.Redactions).Hidden == 0)
}

// heldText is the decision on a request as its held call has it: with edited arguments
// if they may run, which it is to run.
func heldText(r *approval.Request) ([]byte, error) {
	return decisionWith(r, heldOutcome(r), true)
}

// decisionWith is a decision in the order of the seed, with edited arguments byte for
// byte as they are stored. Those that may not run are nobody's to have.
func decisionWith(r *approval.Request, outcome string, edited bool) ([]byte, error) {
	head := struct {
		RequestID      approval.ID `json:"requestId"`
		RequestVersion int         `json:"requestVersion"`
		Outcome        string      `json:"outcome"`
		Scope          string      `json:"scope,omitempty"`
	}{RequestID: r.ID, RequestVersion: r.Version, Outcome: outcome}
	tail := struct {
		DecidedAt       string `json:"decidedAt"`
		ServerReceiptID string `json:"serverReceiptId,omitempty"`
	}{DecidedAt: timeText(decidedAt(r))}
	if d := decider(r); d != nil {
		tail.ServerReceiptID = d.Receipt
	}
	if outcome == outcomeGranted {
		head.Scope = approval.ScopeOnce
		if r.Grant != nil {
			head.Scope = r.Grant.Scope
		}
	}
	text, err := encode(head)
	if err != nil {
		return nil, err
	}
	rest, err := encode(tail)
	if err != nil {
		return nil, err
	}
	text = bytes.TrimSuffix(text, []byte("}"))
	if edited && outcome == outcomeGranted && r.Version > 1 {
		text = append(append(text, `,"editedArgs":`...), r.Payload...)
	}
	return append(append(text, ','), bytes.TrimPrefix(rest, []byte("{"))...), nil
}

// heldOutcome is the outcome as a held call has it: what was revoked before the call
// heard of it is denied.
func heldOutcome(r *approval.Request) string {
	if outcome := outcomeOf(r); outcome != outcomeRevoked {
		return outcome
	}
	return outcomeDenied
}

// rule is what a decision means for the model.
func rule(r *approval.Request) string {
	switch heldOutcome(r) {
	case outcomeGranted:
		what := "the arguments of your call"
		if r.Version > 1 {
			what = "editedArgs, which somebody edited, and not the arguments that you asked with"
		}
		text := approvedBy(r) + "Right before you run the action, call apply with this requestId, before " + timeText(r.ApplyBy) + ": it checks that the approval still holds, hands back the exact arguments and uses it up. Run exactly those once: " + what + ". If apply fails, don't run the action."
		if r.Grant != nil {
			text += " It holds for " + presentation.ScopeWords(r.Grant.Scope) + ": ask again with request_approval for each further action; what this covers is granted at once."
		}
		return text
	case outcomeExpired:
		return whenExpired
	default:
		return whenRejected(r)
	}
}
