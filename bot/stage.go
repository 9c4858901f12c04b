package bot

import (
	"slices"
	"strconv"

	"github.com/slack-go/slack"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/internal/visible"
)

// stage is where a request is, in words and with a mark. Colour alone says
// nothing to everybody.
type stage struct {
	mark, words string
}

func stageOf(r *approval.Request) stage {
	byGateway := r.Executor == approval.ByGateway
	switch r.Status {
	case approval.Pending:
		if given, needed := votes(r); given > 0 {
			return stage{"🟡", strconv.Itoa(given) + " of " + strconv.Itoa(needed) + " approved"}
		}
		return stage{"🟡", "Approval needed"}
	case approval.Approved:
		if byGateway {
			return stage{"✅", consented(r) + ", waiting to run"}
		}
		return stage{"✅", consented(r) + ", waiting to be applied"}
	case approval.Applied:
		if byGateway {
			return ranStage(r)
		}
		switch r.Execution.Outcome {
		case approval.Succeeded:
			return stage{"✅", "Applied, succeeded"}
		case approval.Failed:
			return stage{"❌", "Applied, failed"}
		default:
			return stage{"🔵", "Applied"}
		}
	case approval.Rejected:
		switch d := withoutPerson(r, approval.Reject); {
		case rejection(r) != nil:
			return stage{"⛔", "Rejected"}
		case d == nil:
			return stage{"⛔", "Superseded, will not run"}
		case d.Surface == approval.InBand:
			return stage{"⛔", "Declined by the client"}
		default:
			return stage{"⛔", "Denied by the policy"}
		}
	default:
		switch {
		case r.DecidedAt.IsZero():
			return stage{"⌛", "Expired before a decision"}
		case byGateway:
			return stage{"⌛", "Expired, approved but not run"}
		default:
			return stage{"⌛", "Expired, approved but not applied"}
		}
	}
}

// votes counts the places that the approvals fill, and all places.
func votes(r *approval.Request) (given, needed int) {
	open := 0
	for _, missing := range r.Missing() {
		open += missing.Count
	}
	for _, want := range r.Ruling.Requirement.Roles {
		needed += want.Count
	}
	return max(needed-open, 0), needed
}

// approvals are people's that count: of the current version.
func approvals(r *approval.Request) []approval.Decision {
	var all []approval.Decision
	for _, d := range r.Decisions {
		if d.Version == r.Version && d.Verdict == approval.Approve && d.Person() {
			all = append(all, d)
		}
	}
	return all
}

// rejection is the decision of a person that rejected the request; nil if none
// did.
func rejection(r *approval.Request) *approval.Decision {
	for i, d := range r.Decisions {
		if d.Version == r.Version && d.Verdict == approval.Reject && d.Person() {
			return &r.Decisions[i]
		}
	}
	return nil
}

// withoutPerson is the decision that nobody made with this verdict: the
// policy's, a grant's or the agent's client's; nil if there is none.
func withoutPerson(r *approval.Request, verdict approval.Verdict) *approval.Decision {
	for i, d := range r.Decisions {
		if d.Version == r.Version && d.Verdict == verdict && !d.Person() {
			return &r.Decisions[i]
		}
	}
	return nil
}

// approvers mentions who approved, and says of whom it was their own, and for
// how long if they don't agree on that, or don't yet.
func approvers(r *approval.Request) string {
	given := approvals(r)
	longer := forLonger(given)
	var all []string
	for _, d := range given {
		text := person(d.Approver) + ownership(r, d)
		switch {
		case !longer || r.Grant != nil:
		case d.Scope == "":
			text += ", once"
		default:
			text += ", for " + scopeWords(d.Scope)
		}
		all = append(all, text)
	}
	return listed(all)
}

// forLonger reports whether somebody approved for more than once.
func forLonger(given []approval.Decision) bool {
	return slices.ContainsFunc(given, func(d approval.Decision) bool { return d.Scope != "" })
}

// approvedBy says who approved, or what did instead of a person, in mrkdwn.
func approvedBy(r *approval.Request) string {
	d := withoutPerson(r, approval.Approve)
	switch {
	case len(approvals(r)) > 0 || d == nil:
		return "approved by " + approvers(r)
	case d.Surface == approval.InBand:
		return "confirmed by the agent's client, not by a verified person"
	case d.Surface == approval.Granted:
		return "granted with another request"
	default:
		return "allowed by the policy, without a person"
	}
}

// ownership says that a decision is about the person's own, and in which way.
func ownership(r *approval.Request, d approval.Decision) string {
	switch {
	case !d.Own:
		return ""
	case d.Approver == r.ActsFor || d.Approver.User == r.Ruling.Requirement.Owner:
		return ", whose own agent asked"
	default:
		return ", who edited it"
	}
}

// outcome says what became of the request: who did what and when. It is nil
// while nothing has.
func outcome(r *approval.Request) []slack.MixedElement {
	var said []slack.MixedElement
	say := func(text string) { said = append(said, markup(text)) }
	if len(r.Editors) > 0 {
		say("Arguments edited by " + people(r.Editors) + "; approvals from before don't count")
	}
	gateway := r.Executor == approval.ByGateway
	if given := approvals(r); len(given) > 0 {
		say(":white_check_mark: Approved by " + approvers(r) + ", " + moment(given[len(given)-1].At))
		if forLonger(given) && r.Grant == nil && !r.DecidedAt.IsZero() {
			say("Not everybody approved for longer, so it counts once")
		}
	} else if d := withoutPerson(r, approval.Approve); d != nil {
		say(":white_check_mark: " + capital(approvedBy(r)) + ", " + moment(d.At))
		if r.GrantedBy != "" {
			said = append(said, plainText(string(r.GrantedBy)))
		}
	}
	switch r.Status {
	case approval.Approved:
		if gateway {
			say("Won't run any more after " + moment(r.ApplyBy))
		} else {
			say("Expires unless applied by " + moment(r.ApplyBy))
		}
	case approval.Applied:
		switch {
		case !gateway:
			said = append(said, plainText("Applied by "+visible.Line(r.Agent)))
			say(moment(r.Execution.StartedAt))
			if r.Execution.FinishedAt.IsZero() {
				said = append(said, plainText("What came of it was not reported"))
			}
		case r.Execution.FinishedAt.IsZero():
			say("Running since " + moment(r.Execution.StartedAt))
		case r.Execution.Outcome == approval.Unknown || !r.Execution.SettledBy.IsZero():
			say("Begun " + moment(r.Execution.StartedAt) + ". The server lost track of it " + moment(r.Execution.FinishedAt))
		default:
			say("Begun " + moment(r.Execution.StartedAt) + ", ended " + moment(r.Execution.FinishedAt))
		}
	case approval.Rejected:
		d := withoutPerson(r, approval.Reject)
		switch by := rejection(r); {
		case by != nil:
			say(":no_entry: Rejected by " + person(by.Approver) + ", " + moment(by.At))
		case d == nil:
			say(":no_entry: Superseded " + moment(r.ClosedAt) + ". " + askAgain(r))
		case d.Surface == approval.InBand:
			say(":no_entry: Declined by the agent's client, not by a verified person, " + moment(d.At))
		default:
			say(":no_entry: Denied by the policy, " + moment(d.At))
		}
	case approval.Expired:
		switch {
		case r.DecidedAt.IsZero():
			say(":hourglass: Nobody decided by " + moment(r.ExpiresAt) + ". The agent was told *no*.")
		case gateway:
			say(":hourglass: Not begun by " + moment(r.ApplyBy) + ", so it won't run")
		default:
			say(":hourglass: Not applied by " + moment(r.ApplyBy) + ", so it won't run")
		}
	}
	return said
}

// askAgain says how something comes up again that ended without a person's no.
func askAgain(r *approval.Request) string {
	if r.Executor == approval.ByGateway {
		return "If it is still wanted, the agent must call the tool again"
	}
	return "If it is still wanted, the agent must ask again"
}

// words are the reasons of approvals, the reason of a rejection and what an
// execution reported: other people's texts that belong to the outcome. Each is
// at most limit characters long, and the reasons of approvals together.
func words(r *approval.Request, limit int) []slack.RichTextElement {
	var said []slack.RichTextElement
	say := func(label line, text string, limit int) {
		if text != "" {
			text, _ = cut(visible.Text(text), limit)
			said = append(said, label.section(), quote(text))
		}
	}
	given := approvals(r)
	for _, d := range given {
		var label line
		label.bold("Reason of ")
		label.person(d.Approver)
		say(label, d.Reason, limit/len(given))
	}
	label, text := "", ""
	switch {
	case r.Status == approval.Rejected && rejection(r) != nil:
		label, text = "Reason", r.Reason
	case r.Status == approval.Rejected:
		// Of an answer of the agent's client, the outcome says all.
		if d := withoutPerson(r, approval.Reject); d == nil || d.Surface != approval.InBand {
			label, text = "Why", r.Reason
		}
	case r.Execution != nil:
		label, text = reported(r)
	}
	var bold line
	bold.bold(label)
	say(bold, text, limit)
	return said
}

// notification is the text that stands alone on a lock screen and that screen
// readers read.
func notification(r *approval.Request) string {
	const actionLength = 60
	text := stageOf(r).words + " (" + environment(r) + "): " + summary(r, actionLength) + "."
	if r.Status == approval.Pending {
		text += " Expires " + clock(r.ExpiresAt, r.CreatedAt) + "."
	}
	return escape(text)
}
