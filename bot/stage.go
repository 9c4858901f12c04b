package bot

import (
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
	switch r.Status {
	case approval.Pending:
		if given, needed := votes(r); given > 0 {
			return stage{"🟡", strconv.Itoa(given) + " of " + strconv.Itoa(needed) + " approved"}
		}
		return stage{"🟡", "Approval needed"}
	case approval.Approved:
		return stage{"✅", "Approved, waiting to be applied"}
	case approval.Applied:
		switch r.Execution.Outcome {
		case approval.Succeeded:
			return stage{"✅", "Applied, succeeded"}
		case approval.Failed:
			return stage{"❌", "Applied, failed"}
		default:
			return stage{"🔵", "Applied"}
		}
	case approval.Rejected:
		if rejection(r) == nil {
			return stage{"⛔", "Superseded, will not run"}
		}
		return stage{"⛔", "Rejected"}
	default:
		if r.DecidedAt.IsZero() {
			return stage{"⌛", "Expired before a decision"}
		}
		return stage{"⌛", "Expired, approved but not applied"}
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
		if d.Version == r.Version && d.Verdict == approval.Approve && d.Surface != approval.Policy {
			all = append(all, d)
		}
	}
	return all
}

// rejection is the decision of a person that rejected the request; nil if none
// did.
func rejection(r *approval.Request) *approval.Decision {
	for i, d := range r.Decisions {
		if d.Version == r.Version && d.Verdict == approval.Reject && d.Surface != approval.Policy {
			return &r.Decisions[i]
		}
	}
	return nil
}

// approvers mentions who approved, and says of whom it was their own.
func approvers(r *approval.Request) string {
	var all []string
	for _, d := range approvals(r) {
		all = append(all, person(d.Approver)+ownership(r, d))
	}
	return listed(all)
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
	if given := approvals(r); len(given) > 0 {
		say(":white_check_mark: Approved by " + approvers(r) + ", " + moment(given[len(given)-1].At))
	}
	switch r.Status {
	case approval.Approved:
		say("Expires unless applied by " + moment(r.ApplyBy))
	case approval.Applied:
		said = append(said, plainText("Applied by "+visible.Line(r.Agent)))
		say(moment(r.Execution.StartedAt))
		if r.Execution.FinishedAt.IsZero() {
			said = append(said, plainText("What came of it was not reported"))
		}
	case approval.Rejected:
		if d := rejection(r); d != nil {
			say(":no_entry: Rejected by " + person(d.Approver) + ", " + moment(d.At))
		} else {
			say(":no_entry: Superseded " + moment(r.ClosedAt) + ". If it is still wanted, the agent must ask again")
		}
	case approval.Expired:
		if r.DecidedAt.IsZero() {
			say(":hourglass: Nobody decided by " + moment(r.ExpiresAt) + ". The agent was told *no*.")
		} else {
			say(":hourglass: Not applied by " + moment(r.ApplyBy) + ", so it won't run")
		}
	}
	return said
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
		label, text = "Why", r.Reason
	case r.Execution != nil:
		label, text = "The agent reports", r.Execution.Detail
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
