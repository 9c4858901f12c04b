package gateway

import (
	"fmt"
	"strings"
	"time"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/policy"
)

// What models are told. They act on these words, so each says first whether
// anything ran, and then what to do.
const (
	noWayAround = "Don't retry, rephrase or split the call, and don't reach the same effect another way. Tell the user, and continue only as the user says."

	askUser = "Ask the user whether to call the tool again."

	whenNotSent = "Nothing ran: the tool's server wasn't reached. " + askUser

	whenCutOff = "The call was sent, and nobody knows what came of it: it may have taken effect. Don't call the tool again and don't reach the same effect another way. Tell the user, who has to look."

	whenNeedsInput = "The tool didn't finish, and may have done something before: it asked for input, and nobody could be asked. " + askUser

	whenCantAsk = "The tool didn't finish, and may have done something before: it asks for input in a way that this client doesn't support. Tell the user."

	whenDone = "The call was approved and has run, once, and its result was too large to keep. Don't call the tool again for it. Tell the user."

	whenFoundRan = "Nobody learned the result of the call, and a person has found that it did run. Don't call the tool again for it."

	whenFoundNot = "Nobody learned the result of the call, and a person has found that it did not run. " + askUser

	whenUnverified = "Nothing ran: it couldn't be checked whether the people who approved still may. Nothing was used up. Try again in a few seconds; if that keeps failing, tell the user."

	whenUnavailable = "Nothing ran: the gate's store can't be used now. Try again in a minute; if that keeps failing, tell the user."

	whenStopping = "Nothing ran: the gate is stopping. Try again in a minute."

	whenForged = "Nothing ran and nothing was decided by this call: the state that came with it wasn't made for it. Call the tool again without it."

	whenStateExpired = "Nothing ran and nothing was decided by this call: it came back too late. Call the tool again, to be asked anew or told what came of it."

	internalError = "Internal error. Tell the user; whoever runs the server finds the cause in its log."

	notHere = "There is no such request of yours. Use the requestId that the waiting call returned."

	runYourself = "The agent runs this request itself: call apply with its id where it was asked for."
)

// What the card says of a run, where the tool itself says nothing.
const (
	detailStopped    = "The server stopped while it ran."
	detailNotSent    = "It wasn't sent: the tool's server isn't available."
	detailCutOff     = "The connection ended before there was an answer."
	detailTooSlow    = "There was no answer in time."
	detailCancelled  = "The agent's client went away or cancelled the call."
	detailNeedsInput = "It asked for input, and didn't finish."
)

// whenUnknown is for a request that can't be looked up.
func whenUnknown(id approval.ID) string {
	return fmt.Sprintf("It can't be looked up now what became of the call. %s in a minute; if that keeps failing, tell the user. Don't call the tool again.", fetch(id))
}

// fetch says how to get a call's result.
func fetch(id approval.ID) string {
	return fmt.Sprintf(`Call await_result with {"requestId": %q}`, string(id))
}

// whenDown is for a tool whose server isn't connected.
func whenDown(server string) string {
	return fmt.Sprintf("Nothing ran: the server %s isn't available now. Try again in a minute; if that keeps failing, tell the user.", server)
}

// whenPending is for a call that waits for a person. decides says that people can
// decide at the link, too.
func whenPending(r *approval.Request, link string, decides bool) string {
	where := fmt.Sprintf("Whoever may decide is asked; people can look at the request at %s (opening it decides nothing).", link)
	if decides {
		where = fmt.Sprintf("Whoever may decide is asked in Slack; people can also decide at %s, where they sign in (opening it decides nothing).", link)
	}
	return fmt.Sprintf(notRunYet+"this call needs a person's approval and waits for it, as request %s. "+isNoDecision+
		"%s now, and again each time it still waits: it returns the tool's result once the call was approved and has run. "+
		"Don't call the tool again meanwhile, and don't reach the same effect another way. "+
		"%s It expires at %s.",
		r.ID, fetch(r.ID), where, timeText(r.ExpiresAt))
}

// whenApproved is for a call that is approved and hasn't begun.
func whenApproved(r *approval.Request) string {
	return fmt.Sprintf(notRunYet+"this call is approved, and runs as soon as its server can be reached, at the latest at %s. %s to get its result. Don't call the tool again meanwhile.", timeText(r.ApplyBy), fetch(r.ID))
}

// whenRunning is for a call that has begun.
func whenRunning(r *approval.Request) string {
	return fmt.Sprintf("This call is approved and runs now. %s to get its result, as often as needed. Don't call the tool again meanwhile.", fetch(r.ID))
}

// whenExpired keeps silence apart from a refusal.
func whenExpired(r *approval.Request) string {
	if r.ApplyBy.IsZero() {
		return "Nothing ran: nobody decided in time, so the request has expired. Silence is not consent, and nobody refused. Don't reach the same effect another way. " + askUser
	}
	return "Nothing ran: the call was approved, but it couldn't run before the deadline for that, so the approval has expired. " + askUser
}

// whenRejected keeps a person's no apart from the policy's, the client's, and an
// approval that stopped counting.
func whenRejected(r *approval.Request) string {
	if r.Ruling.Effect == policy.Deny {
		return "Nothing ran: the policy denies this call, and no person was asked. " + r.Reason + " Don't reach the same effect another way. Tell the user."
	}
	for _, decision := range r.Decisions {
		switch {
		case decision.Verdict != approval.Reject || decision.Version != r.Version:
		case !decision.Person():
			return "Nothing ran: the user was asked to confirm this call, and didn't. " + noWayAround
		case decision.Reason == "":
			return "Nothing ran: a person said no and gave no reason. " + noWayAround
		default:
			return fmt.Sprintf("Nothing ran: a person said no. Their reason, in their words: %q. %s", decision.Reason, noWayAround)
		}
	}
	what := "the approval no longer counts. "
	if r.DecidedAt.IsZero() {
		what = "the request no longer counts. "
	}
	return "Nothing ran: " + what + r.Reason + " " + askUser
}

// whenUsed is for a confirmation that was used before.
func whenUsed(id approval.ID) string {
	return fmt.Sprintf("Nothing more ran: this confirmation was used before, and works once. %s to see what came of the call that it was for.", fetch(id))
}

// How texts begin that say that nothing has run.
const (
	nothingRan   = "Nothing ran"
	notRunYet    = "NOT RUN YET: "
	isNoDecision = "That is no refusal and no approval, and nothing has happened. "
)

// halfWay is a text for a call that was to go no further or to wait, as it is
// where the call's server was called before and asked for input. One that doesn't
// say that nothing has run is true as it is.
func halfWay(text string) string {
	const before = "the tool's server was called before and asked for input, and may have done something then"
	if why, ok := strings.CutPrefix(text, nothingRan); ok {
		return "The tool didn't finish: " + before + ". Nothing more ran" + why
	}
	if waits, ok := strings.CutPrefix(text, notRunYet); ok {
		waits = strings.Replace(waits, isNoDecision, "That is no refusal and no approval. ", 1)
		return "NOT FINISHED: " + before + ". The answers weren't sent on: once approved, the call runs from its beginning. Now " + waits
	}
	return text
}

// whenStale is for a confirmation of something else than is asked now.
func whenStale(id approval.ID) string {
	return fmt.Sprintf("Nothing ran and nothing was decided: a person has edited the call since it was shown. %s to get its result once that is decided.", fetch(id))
}

// waitingLine is what a waiting caller is shown as progress.
func waitingLine(r *approval.Request, now time.Time) string {
	switch r.Status {
	case approval.Approved:
		return "Approved. Waiting to run."
	case approval.Applied:
		return "Approved. Running."
	}
	return r.Waiting(now)
}

// timeText is a time as the tools write it: RFC 3339, UTC, milliseconds.
func timeText(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }
