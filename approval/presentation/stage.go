package presentation

import (
	"slices"
	"strconv"
	"strings"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/internal/visible"
	"github.com/countersign/countersign/policy"
)

// Stage is where a request is, in words and with a mark. Colour alone says
// nothing to everybody.
type Stage struct {
	Mark, Words string
}

// StageOf says where a request is.
func StageOf(r *approval.Request) Stage {
	byGateway := r.Executor == approval.ByGateway
	switch r.Status {
	case approval.Pending:
		if given, needed := Votes(r); given > 0 {
			return Stage{"🟡", strconv.Itoa(given) + " of " + strconv.Itoa(needed) + " approved"}
		}
		return Stage{"🟡", "Approval needed"}
	case approval.Approved:
		if byGateway {
			return Stage{"✅", consented(r) + ", waiting to run"}
		}
		return Stage{"✅", consented(r) + ", waiting to be applied"}
	case approval.Applied:
		if byGateway {
			return ranStage(r)
		}
		switch r.Execution.Outcome {
		case approval.Succeeded:
			return Stage{"✅", "Applied, succeeded"}
		case approval.Failed:
			return Stage{"❌", "Applied, failed"}
		default:
			return Stage{"🔵", "Applied"}
		}
	case approval.Rejected:
		switch d := withoutPerson(r, approval.Reject); {
		case rejection(r) != nil && Revoked(r):
			return Stage{"⛔", "Approval revoked, will not run"}
		case rejection(r) != nil:
			return Stage{"⛔", "Rejected"}
		case d == nil:
			return Stage{"⛔", "Superseded, will not run"}
		case d.Surface == approval.InBand && !r.ApplyBy.IsZero():
			return Stage{"⛔", "Taken back by the client"}
		case d.Surface == approval.InBand:
			return Stage{"⛔", "Declined by the client"}
		case d.Surface == approval.App && !r.ApplyBy.IsZero():
			return Stage{"⛔", "Taken back in the agent's host"}
		case d.Surface == approval.App:
			return Stage{"⛔", "Denied in the agent's host"}
		default:
			return Stage{"⛔", "Denied by the policy"}
		}
	default:
		switch {
		case r.DecidedAt.IsZero():
			return Stage{"⌛", "Expired before a decision"}
		case byGateway:
			return Stage{"⌛", "Expired, approved but not run"}
		default:
			return Stage{"⌛", "Expired, approved but not applied"}
		}
	}
}

// Revoked reports whether a person took back what was approved.
func Revoked(r *approval.Request) bool {
	return r.Status == approval.Rejected && !r.ApplyBy.IsZero() && rejection(r) != nil
}

// Votes counts the places that the approvals fill, and all places.
func Votes(r *approval.Request) (given, needed int) {
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

// Approvers names who approved, and says of whom it was their own, and for how
// long if they don't agree on that, or don't yet.
func Approvers(r *approval.Request) Line {
	given := approvals(r)
	longer := forLonger(given)
	all := make([]Line, len(given))
	for i, d := range given {
		all[i].Person(d.Approver)
		all[i].Text(ownership(r, d))
		switch {
		case !longer || r.Grant != nil:
		case d.Scope == "":
			all[i].Text(", once")
		default:
			all[i].Text(", for " + ScopeWords(d.Scope))
		}
	}
	return listed(all)
}

// forLonger reports whether somebody approved for more than once.
func forLonger(given []approval.Decision) bool {
	return slices.ContainsFunc(given, func(d approval.Decision) bool { return d.Scope != "" })
}

// approvedBy says who approved, or what did instead of a person.
func approvedBy(r *approval.Request) Line {
	d := withoutPerson(r, approval.Approve)
	var l Line
	switch {
	case len(approvals(r)) > 0 || d == nil:
		l.Text("approved by ")
		l.Add(Approvers(r))
	case d.Surface == approval.InBand:
		l.Text("confirmed by the agent's client, not by a verified person")
	case d.Surface == approval.App:
		l.Text("confirmed in the agent's host, not by a verified person")
	case d.Surface == approval.Granted:
		l.Text("granted with another request")
	default:
		l.Text("allowed by the policy, without a person")
	}
	return l
}

// WithoutPerson says what approved a request in place of people, and when; nil if
// people decided or nothing did.
func WithoutPerson(r *approval.Request) Line {
	d := withoutPerson(r, approval.Approve)
	if d == nil {
		return nil
	}
	l := said(approvedBy(r), ", ", d.At)
	l[0].Text = Capital(l[0].Text)
	return l
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

// Needs says what approving a pending request still takes, what is enough instead,
// and who may approve what is their own.
func Needs(r *approval.Request) string {
	verb := "Needs "
	if len(r.Votes()) > 0 {
		verb = "Still needs "
	}
	missing := r.Missing()
	text := verb + policy.Words(missing)
	if r.ViewDecides() {
		text += ", or a confirmation in the agent's host"
	}
	var own []string
	for _, want := range missing {
		if want.AllowSelf {
			own = append(own, want.Role)
		}
	}
	const may = " may approve their own agent's request"
	switch {
	case len(own) == 0:
		return text
	case len(missing) == 1:
		return text + ", who" + may
	default:
		return text + ". People of " + strings.Join(own, " and ") + may
	}
}

// Consequence says what an approval of something leads to.
func Consequence(r *approval.Request, what string) string {
	given, needed := Votes(r)
	text := "If you approve, "
	if needed-given > 1 {
		text = "Your approval is number " + strconv.Itoa(given+1) + " of " + strconv.Itoa(needed) + " that this needs. Then "
	}
	if r.Executor == approval.ByGateway {
		text += "this server runs " + what + " once for " + visible.Line(r.Agent)
	} else {
		text += visible.Line(r.Agent) + " may run " + what + " once"
	}
	if within := r.Ruling.ApplyWithin; within > 0 {
		text += ", within " + Span(within)
	}
	text += "."
	if r.Reversible != nil && !*r.Reversible {
		text += " " + Capital(stater(r)) + " says that it can't be undone."
	}
	return text
}

// History says what became of the request, a line each: who did what and when. It
// is nil while nothing has.
func History(r *approval.Request) []Line {
	var all []Line
	say := func(parts ...any) { all = append(all, said(parts...)) }
	if len(r.Editors) > 0 {
		say("Arguments edited by ", editors(r.Editors), "; approvals from before don't count")
	}
	gateway := r.Executor == approval.ByGateway
	if given := approvals(r); len(given) > 0 {
		say("✅ Approved by ", Approvers(r), ", ", given[len(given)-1].At)
		if forLonger(given) && r.Grant == nil && !r.DecidedAt.IsZero() {
			say("Not everybody approved for longer, so it counts once")
		}
	} else if l := WithoutPerson(r); l != nil {
		say("✅ ", l)
		if r.GrantedBy != "" {
			say(string(r.GrantedBy))
		}
	}
	switch r.Status {
	case approval.Approved:
		if gateway {
			say("Won't run any more after ", r.ApplyBy)
		} else {
			say("Expires unless applied by ", r.ApplyBy)
		}
	case approval.Applied:
		switch {
		case !gateway:
			say("Applied by " + visible.Line(r.Agent))
			say(r.Execution.StartedAt)
			if r.Execution.FinishedAt.IsZero() {
				say("What came of it was not reported")
			}
		case r.Execution.FinishedAt.IsZero():
			say("Running since ", r.Execution.StartedAt)
		case r.Execution.Outcome == approval.Unknown || !r.Execution.SettledBy.IsZero():
			say("Begun ", r.Execution.StartedAt, ". The server lost track of it ", r.Execution.FinishedAt)
		default:
			say("Begun ", r.Execution.StartedAt, ", ended ", r.Execution.FinishedAt)
		}
	case approval.Rejected:
		d := withoutPerson(r, approval.Reject)
		switch by := rejection(r); {
		case by != nil && Revoked(r):
			say("⛔ Revoked by ", by.Approver, ", ", by.At)
		case by != nil:
			say("⛔ Rejected by ", by.Approver, ", ", by.At)
		case d == nil:
			say("⛔ Superseded ", r.ClosedAt, ". "+askAgain(r))
		case d.Surface == approval.InBand && !r.ApplyBy.IsZero():
			say("⛔ Taken back by the agent's client, not by a verified person, ", d.At)
		case d.Surface == approval.InBand:
			say("⛔ Declined by the agent's client, not by a verified person, ", d.At)
		case d.Surface == approval.App && !r.ApplyBy.IsZero():
			say("⛔ Taken back in the agent's host, not by a verified person, ", d.At)
		case d.Surface == approval.App:
			say("⛔ Denied in the agent's host, not by a verified person, ", d.At)
		default:
			say("⛔ Denied by the policy, ", d.At)
		}
	case approval.Expired:
		switch {
		case r.DecidedAt.IsZero():
			var no Line
			no.Strong("no")
			say("⌛ Nobody decided by ", r.ExpiresAt, ". The agent was told ", no, ".")
		case gateway:
			say("⌛ Not begun by ", r.ApplyBy, ", so it won't run")
		default:
			say("⌛ Not applied by ", r.ApplyBy, ", so it won't run")
		}
	}
	return all
}

// askAgain says how something comes up again that ended without a person's no.
func askAgain(r *approval.Request) string {
	if r.Executor == approval.ByGateway {
		return "If it is still wanted, the agent must call the tool again"
	}
	return "If it is still wanted, the agent must ask again"
}

// Quote is somebody else's text that belongs to the outcome, and whose it is.
type Quote struct {
	Label Line
	Text  string
}

// Reasons are those that approvers gave, or whoever confirmed in the agent's host.
func Reasons(r *approval.Request) []Quote {
	var all []Quote
	if d := withoutPerson(r, approval.Approve); d != nil && d.Surface == approval.App && d.Reason != "" {
		all = append(all, Quote{Line{{Kind: Strong, Text: "Reason given in the agent's host"}}, visible.Text(d.Reason)})
	}
	for _, d := range approvals(r) {
		if d.Reason == "" {
			continue
		}
		var label Line
		label.Strong("Reason of ")
		label.Person(d.Approver)
		all = append(all, Quote{label, visible.Text(d.Reason)})
	}
	return all
}

// Words are the reason of a rejection, or what an execution reported; nil if
// there are none.
func Words(r *approval.Request) *Quote {
	label, text := "", ""
	switch {
	case r.Status == approval.Rejected && rejection(r) != nil:
		label, text = "Reason", r.Reason
	case r.Status == approval.Rejected:
		// Of a form that the agent's client declined, the outcome says all.
		if d := withoutPerson(r, approval.Reject); d == nil || d.Surface != approval.InBand || r.Executor != approval.ByGateway {
			label, text = "Why", r.Reason
		}
	case r.Execution != nil:
		label, text = reported(r)
	}
	if text == "" {
		return nil
	}
	return &Quote{Line{{Kind: Strong, Text: label}}, visible.Text(text)}
}
