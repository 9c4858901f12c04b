package presentation

import (
	"errors"
	"strconv"
	"strings"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/internal/visible"
	"github.com/countersign/countersign/policy"
)

// Answer is what a person reads whose decision came to err. It is empty if what
// they decided on shows it. place is where they look at that: "the card". The
// second result is false if nothing is known to be stored, so that it must look
// as if it didn't work.
func Answer(verdict approval.Verdict, r *approval.Request, err error, place string) (Line, bool) {
	var input *approval.InputError
	var account approval.Ineligible
	switch {
	case err == nil && verdict == approval.Approve && r.Status == approval.Pending:
		return said("Recorded. " + more(r.Missing())), true
	case err == nil:
		return nil, true
	case errors.Is(err, approval.ErrRecorded):
		return said(recorded(verdict, r)), true
	case errors.Is(err, approval.ErrNotApprover):
		return said("This needs " + r.Ruling.Requirement.String() + ". You are not in it, so your click doesn't count."), true
	case errors.Is(err, approval.ErrSelf):
		return said(refusedOwn(r, place)), true
	case errors.Is(err, approval.ErrReasonRequired):
		return said("Nothing was decided: the policy asks whoever approves this for a reason. Please write one."), true
	case errors.Is(err, approval.ErrSignInAgain):
		return said("Nothing was decided: approving this takes a sign-in of the last 5 minutes. Please sign in again."), true
	case errors.Is(err, approval.ErrPasskeyNeeded):
		return said("Nothing was decided: approving this here takes a passkey of yours, which signs exactly what is shown."), true
	case errors.Is(err, approval.ErrSuperseded):
		return said("This can't be approved any more: the policy became stricter since the agent asked. "+visible.Line(r.Reason)+
			" Nothing runs. ", askAgain(r), "."), true
	case errors.As(err, &account):
		return said("This doesn't count: " + string(account) + "."), true
	case errors.Is(err, approval.ErrIneligible):
		return said("This doesn't count: your account can't decide."), true
	case errors.Is(err, approval.ErrUnverified):
		return said("Slack couldn't confirm your account or your groups just now, so nothing was decided. Please try again."), true
	case errors.Is(err, approval.ErrStale):
		return said("The arguments changed; look at " + place + " as it is now."), true
	case errors.Is(err, approval.ErrDecided), errors.Is(err, approval.ErrRejected):
		return said("Nothing changed. ", decided(r)), true
	case errors.Is(err, approval.ErrApplied):
		return said("Nothing changed. It was ", approvedBy(r), appliedAfter(r, place)), true
	case errors.Is(err, approval.ErrExpired):
		return said("Nothing changed. ", expired(r)), true
	case errors.Is(err, approval.ErrNotFound):
		return said("Nothing changed: this server doesn't know the request. It may be from before its data was replaced."), true
	case errors.Is(err, approval.ErrNoGrant):
		return said("Nothing changed. ", noGrant(r)), true
	case errors.Is(err, approval.ErrKnown):
		return said("Nothing changed. ", outcomeKnown(r, place)), true
	case errors.As(err, &input) && input.Field == "scope":
		return said("Nothing was decided: approving for that long isn't offered for this request."), true
	case errors.As(err, &input):
		return said("Nothing was decided: the " + visible.Line(input.Error()) + "."), true
	default:
		return nil, false
	}
}

// more says what approving still takes: "1 more of finance is needed."
func more(missing []policy.RoleCount) string {
	parts := make([]string, len(missing))
	people := 0
	for i, want := range missing {
		parts[i] = strconv.Itoa(want.Count) + " more of " + want.Role
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
func refusedOwn(r *approval.Request, place string) string {
	why := "the agent acts for you"
	if len(r.Editors) > 0 {
		why = "this is your own request or your own edit"
	}
	missing := r.Missing()
	text := "This doesn't count: " + why + ", so somebody else must approve. " + more(missing) +
		" Ask somebody of " + roles(missing, " or ") + " to look at " + place + "."
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

func decided(r *approval.Request) Line {
	switch d := rejection(r); {
	case d != nil && Revoked(r):
		return said("The approval was revoked by ", d.Approver, ", ", d.At, ".")
	case d != nil:
		return said("It was rejected by ", d.Approver, ", ", d.At, ".")
	case withoutPerson(r, approval.Reject) != nil:
		return said("It was rejected without a person, ", r.ClosedAt, ". "+visible.Line(r.Reason))
	case r.Status == approval.Rejected:
		return said("It was superseded, ", r.ClosedAt, ". "+visible.Line(r.Reason)+" "+askAgain(r)+".")
	default:
		return said("It was ", approvedBy(r), ", ", r.DecidedAt, ".")
	}
}

func expired(r *approval.Request) Line {
	if r.DecidedAt.IsZero() {
		return said("It expired ", r.ExpiresAt, ", before it was decided.")
	}
	before := ", before it was applied."
	if r.Executor == approval.ByGateway {
		before = ", before it ran."
	}
	return said("It was ", approvedBy(r), " but expired ", r.ApplyBy, before)
}

// appliedAfter says when what was approved was used, and where to see what came
// of it.
func appliedAfter(r *approval.Request, place string) Line {
	if r.Executor != approval.ByGateway {
		return said(" and then applied, ", r.ClosedAt, ".")
	}
	return said(", and began to run ", r.ClosedAt, ". "+Capital(place)+" says what came of it.")
}

// RevokeAnswer is what a person reads who revoked a grant, as Answer says.
func RevokeAnswer(r *approval.Request, err error, place string) (Line, bool) {
	switch {
	case err == nil:
		return nil, true
	case errors.Is(err, approval.ErrNotApprover):
		return onlyThey(r, "revoke this"), true
	case errors.Is(err, approval.ErrUnverified):
		return said("Slack couldn't confirm your account or your groups just now, so nothing was revoked. Please try again."), true
	default:
		return Answer(approval.Reject, r, err, place)
	}
}

// noGrant says why a request has no grant in force.
func noGrant(r *approval.Request) Line {
	switch g := r.Grant; {
	case g == nil:
		return said("This request granted nothing beyond once.")
	case !g.RevokedAt.IsZero():
		return said("The grant was revoked before, ", g.RevokedAt, revoker(g.RevokedBy), ".")
	default:
		return said("The grant ended by itself, ", g.ExpiresAt, ".")
	}
}

// SettleAnswer is what a person reads who said what came of a run, as Answer
// says.
func SettleAnswer(r *approval.Request, err error, place string) (Line, bool) {
	switch {
	case err == nil:
		return nil, true
	case errors.Is(err, approval.ErrNotApprover):
		return onlyThey(r, "say what came of this"), true
	case errors.Is(err, approval.ErrUnverified):
		return said("Slack couldn't confirm your account or your groups just now, so nothing was recorded. Please try again."), true
	default:
		return Answer(approval.Reject, r, err, place)
	}
}

// outcomeKnown says why nobody has to say what came of a request.
func outcomeKnown(r *approval.Request, place string) Line {
	e := r.Execution
	switch {
	case r.Executor != approval.ByGateway || e == nil:
		return said("The server didn't run this.")
	case e.FinishedAt.IsZero():
		return said("It is still running.")
	case e.SettledBy.IsZero():
		return said("What came of it is known; " + place + " says so.")
	case e.Outcome == approval.Succeeded:
		return said(e.SettledBy, " said before that it ran.")
	default:
		return said(e.SettledBy, " said before that it did not run.")
	}
}

// EditAnswer is what a person reads whose edit came to err, as Answer says.
func EditAnswer(r *approval.Request, err error, place string) (Line, bool) {
	var input *approval.InputError
	switch {
	case err == nil:
		return nil, true
	case errors.Is(err, approval.ErrNotApprover):
		return onlyThey(r, "edit this"), true
	case errors.Is(err, approval.ErrDenied):
		return said("Nothing was changed: " + visible.Line(err.Error()) + "."), true
	case errors.As(err, &input):
		return said("Nothing was changed: what you wrote " + visible.Line(input.Problem) + "."), true
	case errors.Is(err, approval.ErrUnverified):
		return said("Slack couldn't confirm your account or your groups just now, so nothing was changed. Please try again."), true
	default:
		return Answer(approval.Reject, r, err, place)
	}
}

// onlyThey says who may do something that the person who clicked may not.
func onlyThey(r *approval.Request, what string) Line {
	whose := "a role of the policy"
	if required := r.Ruling.Requirement.Roles; len(required) > 0 {
		whose = roles(required, " or ")
	}
	return said("Only somebody of " + whose + " can " + what + ". You are not in it, so your click doesn't count.")
}
