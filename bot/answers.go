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
			" Nothing runs. If it is still wanted, the agent must ask again.", true
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
		return "Nothing changed. It was approved by " + approvers(r) + " and then applied, " + moment(r.ClosedAt) + ".", true
	case errors.Is(err, approval.ErrExpired):
		return "Nothing changed. " + expired(r), true
	case errors.Is(err, approval.ErrNotFound):
		return "Nothing changed: this server doesn't know the request. The card may be from before its data was replaced.", true
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
	case r.Status == approval.Rejected:
		return "It was superseded, " + moment(r.ClosedAt) + ". " + escape(r.Reason) + " If it is still wanted, the agent must ask again."
	default:
		return "It was approved by " + approvers(r) + ", " + moment(r.DecidedAt) + "."
	}
}

func expired(r *approval.Request) string {
	if r.DecidedAt.IsZero() {
		return "It expired " + moment(r.ExpiresAt) + ", before it was decided."
	}
	return "It was approved by " + approvers(r) + " but expired " + moment(r.ApplyBy) + ", before it was applied."
}
