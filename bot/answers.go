package bot

import (
	"errors"
	"strings"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/policy"
)

// ineligible is why an account may never decide, in plain words.
type ineligible string

func (e ineligible) Error() string { return string(e) }
func (e ineligible) Unwrap() error { return approval.ErrIneligible }

// answer is what a person reads whose click or submission came to err, in
// mrkdwn. "" needs no words: the card shows it. The second result is false if
// the person should act as if nothing happened, because nothing is known to be
// stored: Slack must show its error then.
func answer(verdict approval.Verdict, r *approval.Request, err error) (string, bool) {
	var input *approval.InputError
	var account ineligible
	switch {
	case err == nil && verdict == approval.Approve && r.Status == approval.Pending:
		return "Recorded. " + more(r.Missing()), true
	case err == nil:
		return "", true
	case errors.Is(err, approval.ErrRecorded):
		return recorded(verdict, r), true
	case errors.Is(err, approval.ErrNotApprover):
		return "This needs " + escape(r.Ruling.Requirement.String()) + ". You are not in it, so your click doesn't count.", true
	case errors.Is(err, approval.ErrSelf):
		return refusedOwn(r), true
	case errors.Is(err, approval.ErrReasonRequired):
		return "Nothing was decided: the policy asks whoever approves this for a reason. Please write one.", true
	case errors.Is(err, approval.ErrSuperseded):
		return "This can't be approved any more: the policy became stricter since the agent asked. " + escape(r.Reason) +
			" Nothing runs. " + askAgain(r) + ".", true
	case errors.As(err, &account):
		return "This doesn't count: " + escape(string(account)) + ".", true
	case errors.Is(err, approval.ErrIneligible):
		return "This doesn't count: your account can't decide.", true
	case errors.Is(err, approval.ErrUnverified):
		return "Slack couldn't confirm your account or your groups just now, so nothing was decided. Please try again.", true
	case errors.Is(err, approval.ErrStale):
		return "The arguments changed; look at the updated card.", true
	case errors.Is(err, approval.ErrDecided), errors.Is(err, approval.ErrRejected):
		return "Nothing changed. " + decided(r), true
	case errors.Is(err, approval.ErrApplied):
		return "Nothing changed. It was " + approvedBy(r) + appliedAfter(r), true
	case errors.Is(err, approval.ErrExpired):
		return "Nothing changed. " + expired(r), true
	case errors.Is(err, approval.ErrNotFound):
		return "Nothing changed: this server doesn't know the request. The card may be from before its data was replaced.", true
	case errors.Is(err, approval.ErrNoGrant):
		return "Nothing changed. " + noGrant(r), true
	case errors.Is(err, approval.ErrKnown):
		return "Nothing changed. " + outcomeKnown(r), true
	case errors.As(err, &input) && input.Field == scopeInput:
		return "Nothing was decided: approving for that long isn't offered for this request.", true
	case errors.As(err, &input):
		return "Nothing was decided: the " + escape(input.Error()) + ".", true
	default:
		return "", false
	}
}

// more says what approving still takes: "1 more of finance is needed."
func more(missing []policy.RoleCount) string {
	parts := make([]string, len(missing))
	people := 0
	for i, want := range missing {
		parts[i] = integer(int64(want.Count)) + " more of " + escape(want.Role)
		people += want.Count
	}
	verb := " are needed."
	if people == 1 {
		verb = " is needed."
	}
	return strings.Join(parts, " and ") + verb
}

func recorded(verdict approval.Verdict, r *approval.Request) string {
	text := "Your approval is recorded already."
	if verdict == approval.Reject {
		text = "Your rejection is recorded already."
	}
	if r.Status == approval.Pending {
		text += " " + more(r.Missing())
	}
	return text
}

// refusedOwn says why a person can't approve what is their own, and what to do.
func refusedOwn(r *approval.Request) string {
	why := "the agent acts for you"
	if len(r.Editors) > 0 {
		why = "this is your own request or your own edit"
	}
	missing := r.Missing()
	text := "This doesn't count: " + why + ", so somebody else must approve. " + more(missing) +
		" Ask somebody of " + escape(roles(missing, " or ")) + " to look at the card."
	if len(missing) == 1 && missing[0].Count == 1 {
		text += " If there is nobody else, the policy can let a role approve its own requests: self_approval."
	}
	return text
}

// roles names the roles of places.
func roles(places []policy.RoleCount, between string) string {
	var names []string
	for _, place := range places {
		names = append(names, place.Role)
	}
	return strings.Join(names, between)
}

func decided(r *approval.Request) string {
	switch d := rejection(r); {
	case d != nil:
		return "It was rejected by " + person(d.Approver) + ", " + moment(d.At) + "."
	case withoutPerson(r, approval.Reject) != nil:
		return "It was rejected without a person, " + moment(r.ClosedAt) + ". " + escape(r.Reason)
	case r.Status == approval.Rejected:
		return "It was superseded, " + moment(r.ClosedAt) + ". " + escape(r.Reason) + " " + askAgain(r) + "."
	default:
		return "It was " + approvedBy(r) + ", " + moment(r.DecidedAt) + "."
	}
}

func expired(r *approval.Request) string {
	if r.DecidedAt.IsZero() {
		return "It expired " + moment(r.ExpiresAt) + ", before it was decided."
	}
	before := ", before it was applied."
	if r.Executor == approval.ByGateway {
		before = ", before it ran."
	}
	return "It was " + approvedBy(r) + " but expired " + moment(r.ApplyBy) + before
}

// appliedAfter says when what was approved was used, and where to see what came
// of it.
func appliedAfter(r *approval.Request) string {
	if r.Executor != approval.ByGateway {
		return " and then applied, " + moment(r.ClosedAt) + "."
	}
	return ", and began to run " + moment(r.ClosedAt) + ". The card says what came of it."
}

// revokeAnswer is what a person reads who pressed Revoke, as answer says.
func revokeAnswer(r *approval.Request, err error) (string, bool) {
	switch {
	case err == nil:
		return "", true
	case errors.Is(err, approval.ErrNotApprover):
		return onlyThey(r, "revoke this"), true
	case errors.Is(err, approval.ErrUnverified):
		return "Slack couldn't confirm your account or your groups just now, so nothing was revoked. Please try again.", true
	default:
		return answer(approval.Reject, r, err)
	}
}

// noGrant says why a request has no grant in force.
func noGrant(r *approval.Request) string {
	switch g := r.Grant; {
	case g == nil:
		return "This request granted nothing beyond once."
	case !g.RevokedAt.IsZero():
		return "The grant was revoked before, " + moment(g.RevokedAt) + revoker(g.RevokedBy) + "."
	default:
		return "The grant ended by itself, " + moment(g.ExpiresAt) + "."
	}
}

// settleAnswer is what a person reads who said what came of a run, as answer
// says.
func settleAnswer(r *approval.Request, err error) (string, bool) {
	switch {
	case err == nil:
		return "", true
	case errors.Is(err, approval.ErrNotApprover):
		return onlyThey(r, "say what came of this"), true
	case errors.Is(err, approval.ErrUnverified):
		return "Slack couldn't confirm your account or your groups just now, so nothing was recorded. Please try again.", true
	default:
		return answer(approval.Reject, r, err)
	}
}

// outcomeKnown says why nobody has to say what came of a request.
func outcomeKnown(r *approval.Request) string {
	e := r.Execution
	switch {
	case r.Executor != approval.ByGateway || e == nil:
		return "The server didn't run this."
	case e.FinishedAt.IsZero():
		return "It is still running."
	case e.SettledBy.IsZero():
		return "What came of it is known; the card says so."
	case e.Outcome == approval.Succeeded:
		return person(e.SettledBy) + " said before that it ran."
	default:
		return person(e.SettledBy) + " said before that it did not run."
	}
}

// onlyThey says who may do something that the person who clicked may not.
func onlyThey(r *approval.Request, what string) string {
	whose := "a role of the policy"
	if required := r.Ruling.Requirement.Roles; len(required) > 0 {
		whose = escape(roles(required, " or "))
	}
	return "Only somebody of " + whose + " can " + what + ". You are not in it, so your click doesn't count."
}
