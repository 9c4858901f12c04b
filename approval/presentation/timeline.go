package presentation

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/audit"
	"github.com/countersign/countersign/internal/visible"
	"github.com/countersign/countersign/policy"
)

// Happening is one entry of a timeline.
type Happening struct {
	At time.Time
	// What happened, with who did it.
	What Line
	// Quote is what was said about it, or why it happened; empty if nothing. Hidden
	// characters in it are visible.
	Quote string
	// Refused says that it changed nothing.
	Refused bool
}

// Timeline says what the events of a request record, in their order. What a run
// reported isn't among it: it may repeat what the policy hides.
func Timeline(events []audit.Event) []Happening {
	timeline := make([]Happening, len(events))
	approved := false // before the event
	for i, event := range events {
		timeline[i] = happening(event, approved)
		approved = approved || event.Type == "request.approved"
	}
	return timeline
}

// detail is what is read of the details of all kinds of events.
type detail struct {
	ActsFor     string             `json:"acts_for"`
	Effect      policy.Effect      `json:"effect"`
	Tier        int                `json:"tier"`
	Requirement policy.Requirement `json:"requirement"`
	ApplyBy     time.Time          `json:"apply_by"`
	ExpiresAt   time.Time          `json:"expires_at"`
	Verdict     approval.Verdict   `json:"verdict"`
	Scope       string             `json:"scope"`
	Roles       []struct {
		Role string `json:"role"`
	} `json:"roles"`
	Own     bool             `json:"own"`
	Reason  string           `json:"reason"`
	Why     string           `json:"why"`
	Phase   string           `json:"phase"`
	Outcome approval.Outcome `json:"outcome"`
	To      string           `json:"to"`
	Uses    int64            `json:"uses"`
}

func happening(event audit.Event, approved bool) Happening {
	h := Happening{At: event.At}
	var d detail
	if err := json.Unmarshal(event.Detail, &d); err != nil {
		h.What = unnamed(event)
		return h
	}
	by := actor(event.Actor)
	say := func(parts ...any) { h.What = said(parts...) }
	person, isPerson := ParseApprover(event.Actor)
	switch event.Type {
	case "request.created":
		parts := []any{by, " asked"}
		if who, ok := ParseApprover(d.ActsFor); ok {
			parts = append(parts, " for ", who)
		}
		say(append(parts, ruled(d))...)
	case "request.approved":
		h.Quote = d.Reason
		switch {
		case isPerson:
			say("Approved by enough people, to be applied by ", d.ApplyBy)
		case strings.HasPrefix(event.Actor, "policy:"):
			say("Allowed by the policy, without a person")
		case strings.HasPrefix(event.Actor, "grant:"):
			say("Approved by what was granted with another request")
		case event.Surface == string(approval.App):
			say("Confirmed in the agent's host, not by a verified person")
		default:
			say("Approved by the agent's client, not by a verified person")
		}
	case "request.rejected":
		h.Quote = d.Reason
		switch {
		case isPerson:
			say("Rejected by ", person, ", which is final")
		case strings.HasPrefix(event.Actor, "policy:"):
			say("Denied by the policy, without a person")
		case event.Actor == "countersign":
			say("Denied, since the agent's host can't show it to a person")
		case event.Surface == string(approval.App) && approved:
			say("Taken back in the agent's host, not by a verified person")
		case event.Surface == string(approval.App):
			say("Denied in the agent's host, not by a verified person")
		default:
			say("Declined by the agent's client, not by a verified person")
		}
	case "decision.recorded":
		h.Quote = d.Reason
		parts := []any{by, " " + verdicts[d.Verdict]}
		if d.Scope != "" {
			parts = append(parts, " for "+ScopeWords(d.Scope))
		}
		say(append(parts, as(d), on(event.Surface))...)
	case "decision.refused":
		h.Quote, h.Refused = d.Why, true
		say(by, " tried to "+attempts[d.Verdict]+on(event.Surface)+", which didn't count")
	case "request.edited":
		if event.Surface == string(approval.App) {
			by = nil
			by.Text("Somebody in the agent's host")
		}
		say(by, " edited the arguments"+on(event.Surface)+", which made version "+Digits(int64(event.Version))+". Approvals from before don't count")
	case "request.revoked":
		h.Quote = d.Reason
		say(by, " revoked the approval"+on(event.Surface)+", so it won't run")
	case "request.superseded":
		h.Quote = d.Why
		say("Superseded: it won't run")
	case "request.expired":
		if d.Phase == "deciding" {
			say("Expired before enough people had decided")
		} else {
			say("Expired: approved, but not applied in time")
		}
	case "request.applied":
		if event.Actor == "countersign" {
			say("The server began to run it")
		} else {
			say(by, " took it to apply it")
		}
	case "execution.finished":
		say(outcomes[d.Outcome])
	case "execution.settled":
		if d.Outcome == approval.Succeeded {
			say(by, " says that it ran")
		} else {
			say(by, " says that it didn't run")
		}
	case "result.returned":
		say(by, " got the result")
	case "people.told":
		say("People were asked, since the client's answer wasn't enough")
	case "client.confirmed":
		say("The client of ", by, " confirmed")
	case "client.declined":
		say("The client of ", by, " declined")
	case "client.withdrew":
		say("The client of ", by, " took the request back")
	case "request.reminded":
		say("People were reminded")
	case "request.escalated":
		say("Nobody had decided, so the people of " + visible.Line(d.To) + " were called")
	case "grant.created":
		say("From then on, the same was approved without asking, for "+ScopeWords(d.Scope)+", until ", d.ExpiresAt)
	case "grant.expired":
		say("The grant ended. It was used " + times(d.Uses))
	case "grant.revoked":
		say(by, " revoked the grant. It was used "+times(d.Uses))
	default:
		h.What = unnamed(event)
	}
	h.Quote = visible.Text(h.Quote)
	return h
}

var (
	verdicts = map[approval.Verdict]string{approval.Approve: "approved", approval.Reject: "rejected"}
	attempts = map[approval.Verdict]string{approval.Approve: "approve", approval.Reject: "reject"}
	outcomes = map[approval.Outcome]string{
		approval.Succeeded: "It ran, and succeeded",
		approval.Failed:    "It ran, and failed",
		approval.Unknown:   "Nobody knows whether it ran",
	}
)

// unnamed is an event of which only the record's own words are known.
func unnamed(event audit.Event) Line {
	l := said(actor(event.Actor), " ")
	l.Code(visible.Line(event.Type))
	return l
}

// actor is who an event says did something.
func actor(text string) Line {
	var l Line
	if who, ok := ParseApprover(text); ok {
		l.Person(who)
		return l
	}
	kind, name, _ := strings.Cut(text, ":")
	switch kind {
	case "agent":
		l.Code(visible.Line(name))
	case "operator":
		l.Text("The operator ")
		l.Code(visible.Line(name))
	default:
		l.Text("The server")
	}
	return l
}

// ruled is what policy said of a request that was made.
func ruled(d detail) string {
	tier := " (tier " + Digits(int64(d.Tier)) + ")"
	switch d.Effect {
	case policy.Allow:
		return tier + ". The policy allows it"
	case policy.Deny:
		return tier + ". The policy denies it"
	default:
		return tier + ". The policy asks for " + policy.Words(d.Requirement.Roles)
	}
}

// as is in which role somebody decided.
func as(d detail) string {
	var roles []string
	for _, one := range d.Roles {
		roles = append(roles, visible.Line(one.Role))
	}
	text := ""
	if len(roles) > 0 {
		text = " as " + strings.Join(roles, " and ")
	}
	if d.Own {
		text += ", their own"
	}
	return text
}

// on is where somebody did something.
func on(surface string) string {
	switch approval.Surface(surface) {
	case approval.Slack:
		return ", in Slack"
	case approval.Web:
		return ", on the review page"
	default:
		return ""
	}
}

func times(n int64) string {
	if n == 1 {
		return "once"
	}
	return Digits(n) + " times"
}
