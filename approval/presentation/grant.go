package presentation

import (
	"slices"
	"strings"
	"time"

	"github.com/countersign/countersign/approval"
)

// maxWider is how many scopes an approver is offered besides once: Slack takes
// ten options.
const maxWider = 9

// Wider are the scopes beyond once that an approver may be offered, each once.
func Wider(r *approval.Request) []string {
	var scopes []string
	for _, scope := range r.Scopes() {
		if scope != approval.ScopeOnce && !slices.Contains(scopes, scope) && len(scopes) < maxWider {
			scopes = append(scopes, scope)
		}
	}
	return scopes
}

// ScopeWords is how far an approval goes, in words: "15 minutes".
func ScopeWords(scope string) string {
	within, err := time.ParseDuration(scope)
	switch {
	case scope == "" || scope == approval.ScopeOnce:
		return "once"
	case scope == approval.ScopeSession:
		return "the agent's session"
	case err != nil:
		return "longer than once"
	case within%time.Minute == 0:
		return Span(within)
	default:
		// A grant ends to the second.
		text := Counted(int64(within%time.Minute/time.Second), "second")
		if within >= time.Minute {
			text = Span(within) + " " + text
		}
		return text
	}
}

// Granting says exactly what an approval for longer than once allows: a sentence
// and the facts that it is about.
func Granting(r *approval.Request, limits Limits) (string, []Fact) {
	f := NewFacts(r, limits)
	return "Longer than once is a grant. Until it ends, the same is approved without asking again, any number of times:", []Fact{
		{"Agent", agent(r)},
		{"Action", f.stated(r.Action, limits.Action, "not stated")},
		{"Target", f.stated(r.Target, limits.Target, "not stated")},
		{"Environment", f.stated(r.Environment, limits.Environment, "not stated, treated as production")},
		{"Arguments", said("any, as long as the policy asks for no more than for these")},
	}
}

// GrantEnds says when what is granted ends, and how to end it before.
func GrantEnds(r *approval.Request, now time.Time) []Line {
	ends := said("It ends by itself. From now: ")
	for i, scope := range Wider(r) {
		if i > 0 {
			ends.Text(", ")
		}
		within, err := time.ParseDuration(scope)
		switch {
		case scope == approval.ScopeSession:
			ends.Add(said("the session until ", now.Add(approval.MaxGrant), " at the latest"))
		case err == nil:
			ends.Add(said(ScopeWords(scope)+" until ", now.Add(within)))
		}
	}
	ends.Text(".")
	all := []Line{ends}
	if given, needed := Votes(r); needed-given > 1 {
		all = append(all, said("It begins when everybody needed has approved, and the least that anybody chose counts."))
	}
	return append(all, said("Anybody of "+roles(r.Ruling.Requirement.Roles, " or ")+" can revoke it at any moment, and an operator on the command line."))
}

// Granted says what of the request's approval goes beyond once, and what became
// of that; nil if nothing does.
func Granted(r *approval.Request) Line {
	g := r.Grant
	if g == nil {
		return nil
	}
	var l Line
	l.Strong("Granted for " + ScopeWords(g.Scope))
	l.Text(": same action and target, ")
	switch {
	case !g.RevokedAt.IsZero():
		l.Add(said("revoked ", g.RevokedAt, revoker(g.RevokedBy)))
	case g.Active(r.UpdatedAt) && g.Session != "":
		l.Add(said("until the session ends, at the latest ", g.ExpiresAt))
	case g.Active(r.UpdatedAt):
		l.Add(said("until ", g.ExpiresAt))
	default:
		l.Add(said("ended ", g.ExpiresAt))
	}
	l.Text(".")
	switch {
	case g.Uses > 0:
		l.Text(" Used " + Counted(int64(g.Uses), "time") + ".")
	case !g.RevokedAt.IsZero():
		l.Text(" It was never used.")
	}
	return l
}

// revoker says who revoked a grant.
func revoker(by string) Line {
	if who, ok := ParseApprover(by); ok {
		return said(" by ", who)
	}
	if strings.HasPrefix(by, "operator:") {
		return said(" by an operator")
	}
	return nil
}

// ParseApprover reads what approval.Approver writes of itself; false for any other
// actor.
func ParseApprover(text string) (approval.Approver, bool) {
	text, ok := strings.CutPrefix(text, "slack:")
	workspace, user, both := strings.Cut(text, "/")
	return approval.Approver{Workspace: workspace, User: user}, ok && both
}

// Revocable reports whether the request's grant can still be revoked, as far as
// its last change tells.
func Revocable(r *approval.Request) bool { return r.Grant != nil && r.Grant.Active(r.UpdatedAt) }

// Revoking says what revoking a grant does.
const Revoking = "From now on, such calls wait for an approval again. What the grant approved and hasn't begun to run won't run. What has run stays."
