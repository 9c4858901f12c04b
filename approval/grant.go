package approval

import (
	"cmp"
	"slices"
	"time"
)

// How far an approval can go, besides a duration such as "15m".
const (
	ScopeOnce    = "once"
	ScopeSession = "session"
)

// MaxGrant bounds a grant that names no time.
const MaxGrant = 8 * time.Hour

// Grant is what the approval of a request allows beyond once: the same tool on
// the same target in the same environment, by the same agent. It is part of the
// request that it came with.
type Grant struct {
	Scope     string // as the policy names it
	Session   string // it holds in this session only; empty if in all
	GrantedAt time.Time
	ExpiresAt time.Time
	RevokedAt time.Time // zero while nobody revoked it
	RevokedBy string    // who did: an approver or an operator
	Uses      int       // how many requests it approved that were applied
}

// Active reports whether the grant approves anything at a time.
func (g *Grant) Active(at time.Time) bool {
	return g.RevokedAt.IsZero() && at.Before(g.ExpiresAt)
}

// Scopes are how far an approver may be offered to approve. A wider one than
// once needs a target that it is limited to, which policy says and not the
// agent, and a session needs one to end with.
func (r *Request) Scopes() []string {
	offered := []string{ScopeOnce}
	if r.actsOn() == "" || r.Unpinned {
		return offered
	}
	for _, scope := range r.Ruling.Scopes {
		if scope == ScopeOnce || scope == ScopeSession && r.Session == "" {
			continue
		}
		offered = append(offered, scope)
	}
	return offered
}

// actsOn is what policy says that the request acts on; empty if it says nothing.
func (r *Request) actsOn() string {
	if r.Executor == ByGateway {
		return r.Target
	}
	return r.Ruling.Target
}

// scopeOf is how far a ballot's approval goes; empty for once.
func scopeOf(b Ballot) string {
	if b.Verdict != Approve || b.Scope == ScopeOnce {
		return ""
	}
	return b.Scope
}

// grant gives what everybody who approved wants to allow, now that they have:
// the shortest time, and the session if anybody meant only that.
func (r *Request) grant(by string, surface Surface, approvals []Decision, now time.Time) {
	given := Grant{GrantedAt: now, ExpiresAt: now.Add(MaxGrant)}
	for _, d := range approvals {
		switch within, err := time.ParseDuration(d.Scope); {
		case d.Scope == ScopeSession:
			given.Session = r.Session
		case err == nil:
			given.ExpiresAt = earlier(given.ExpiresAt, now.Add(within.Truncate(time.Millisecond)))
		default:
			return // somebody approved once
		}
		given.Scope = cmp.Or(given.Scope, d.Scope)
		if d.Scope != ScopeSession {
			given.Scope = shorter(given.Scope, d.Scope)
		}
	}
	r.Grant = &given
	r.record(now, "grant.created", by, surface, map[string]any{
		"scope":      given.Scope,
		"session":    given.Session != "",
		"expires_at": timeText(given.ExpiresAt),
	})
}

// shorter is which of two scopes ends first; a session has no time of its own.
func shorter(a, b string) string {
	first, err := time.ParseDuration(a)
	second, _ := time.ParseDuration(b)
	if err != nil || second < first {
		return b
	}
	return a
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// covers reports whether the request's grant approves another one: the same
// agent's, of the same tool and target, for which policy asks for no more than
// was asked when it was granted. What a view granted covers what a view shows.
func (r *Request) covers(next *Request, now time.Time) bool {
	g := r.Grant
	return g != nil && g.Active(now) &&
		(g.Session == "" || g.Session == next.Session) &&
		r.Agent == next.Agent && r.ActsFor == next.ActsFor &&
		r.Executor == next.Executor && (r.confirmed() == "" || next.ViewDecides()) &&
		r.Action == next.Action && next.actsOn() != "" && r.actsOn() == next.actsOn() &&
		r.Ruling.Environment == next.Ruling.Environment &&
		r.ToolPin == next.ToolPin && !next.Unpinned &&
		next.Ruling.StricterThan(r.heldTo()) == "" &&
		slices.Contains(next.Ruling.Scopes, g.Scope)
}

// grantEnd is when the request's grant ends by itself; zero if that is recorded,
// or if there is nothing to end.
func (r *Request) grantEnd() time.Time {
	if r.Grant == nil || !r.Grant.Active(r.UpdatedAt) {
		return time.Time{}
	}
	return r.Grant.ExpiresAt
}

// endGrant records that the request's grant has ended by itself and reports
// whether it did.
func (r *Request) endGrant(now time.Time) bool {
	end := r.grantEnd()
	if end.IsZero() || now.Before(end) {
		return false
	}
	r.changed(now, "grant.expired", "countersign", "", map[string]any{"uses": r.Grant.Uses})
	return true
}

// revokeGrant ends the request's grant.
func (r *Request) revokeGrant(by string, surface Surface, now time.Time) error {
	if r.Grant == nil || !r.Grant.Active(now) {
		return ErrNoGrant
	}
	ended := *r.Grant
	ended.RevokedAt, ended.RevokedBy = now, by
	r.Grant = &ended
	r.changed(now, "grant.revoked", by, surface, map[string]any{"uses": ended.Uses})
	return nil
}
