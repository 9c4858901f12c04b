package approval

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/countersign/countersign/policy"
)

// Confirmation is an answer of the agent's own client: what it decided, and what
// exactly it was shown.
type Confirmation struct {
	Request ID
	// Surface is how the client was asked: InBand or App.
	Surface Surface
	// Digest is that of the version that was shown.
	Digest  Digest
	Verdict Verdict
	Reason  string // may be empty; at most MaxReason characters
	// Scope is how far an approval goes: one of the request's Scopes, or empty for
	// once.
	Scope string
	// Edited are the arguments to approve in place of those that were shown; nil if
	// it is those. Only a view edits.
	Edited []byte
}

func (c Confirmation) check(payloadLimit int) error {
	if !c.Surface.client() {
		return invalid("surface", "is %q, where no client decides", c.Surface)
	}
	if c.Verdict != Approve && c.Verdict != Reject {
		return invalid("verdict", "is %q; approve and reject are accepted", c.Verdict)
	}
	if c.Edited != nil {
		if c.Surface != App || c.Verdict != Approve {
			return invalid("edited", "is only for approving in a view")
		}
		if err := checkPayload(c.Edited, payloadLimit); err != nil {
			return err
		}
	}
	return checkText("reason", c.Reason, MaxReason)
}

// Confirm records the answer of the agent's own client, where the policy lets
// that be enough, and what it edited with it. It works once, since the request is
// decided by it. ErrNotInBand if policy wanted more than the client's word when it
// was asked, and of a yes also if it does now, or wants more for the edited
// arguments; ErrDenied if it denies those, and a LimitError if they were rejected
// a moment ago. Otherwise ErrNotFound, ErrStale,
// ErrDecided, ErrExpired, ErrApplied, ErrReasonRequired or an InputError says why
// not, and nothing changed.
func (s *Service) Confirm(ctx context.Context, agent Agent, c Confirmation) (*Request, error) {
	if err := c.check(s.options.PayloadLimit); err != nil {
		return nil, err
	}
	ctx, cancel := uninterrupted(ctx, decideLimit)
	defer cancel()
	r, err := s.Status(ctx, agent, c.Request)
	if err != nil {
		return nil, err
	}
	if err := r.Settled(); err != nil {
		return r, err
	}
	payload := r.Payload
	if c.Edited != nil {
		if err := checkArguments(r.Executor, c.Edited); err != nil {
			return r, err
		}
		payload = c.Edited
	}
	return s.underPolicy(r, func(current *policy.Policy) (*Request, error) {
		explained, err := s.rule(ctx, current, r, payload)
		if err != nil {
			return r, err
		}
		if c.Edited != nil {
			if err := s.rejectedBefore(ctx, current, agent, r, explained.Ruling, c.Edited); err != nil {
				return r, err
			}
		}
		return s.change(ctx, c.Request, func(r *Request, now time.Time) error {
			if s.Policy() != current {
				return errPolicyChanged
			}
			// An edit comes before what may yet be refused.
			next := *r
			if err := next.confirm(agent, c, explained, now, s.options.Rand, s.options.Signer); err != nil {
				return err
			}
			*r = next
			return nil
		})
	})
}

// rejectedBefore says that what an edit makes was rejected a moment ago, as asking for
// it would.
func (s *Service) rejectedBefore(ctx context.Context, current *policy.Policy, agent Agent, r *Request, ruling policy.Ruling, edited Payload) error {
	asked, err := digest(strings.ToLower(r.Action), ruling.Environment, r.ToolPin, 1, edited)
	if err != nil {
		return err
	}
	at, err := s.store.RejectedAt(ctx, agent, asked)
	if err != nil {
		return fmt.Errorf("looking for a rejection of what was edited: %w", err)
	}
	return cooling(at, r.at(s.options.Now()), current.Limits())
}

// heeds reports whether an answer of the agent's client from there is enough.
func (r *Request) heeds(surface Surface) bool {
	switch surface {
	case InBand:
		return r.Ruling.InBand
	case App:
		return r.ViewDecides()
	default:
		return false
	}
}

// ViewDecides reports whether a decision counts that is made in the view of the
// agent's host. What the gateway runs is never decided there.
func (r *Request) ViewDecides() bool {
	return r.HostView && r.Executor == ByAgent && r.Ruling.InView
}

// confirmed is how the agent's client approved what the request is now; empty if it
// didn't.
func (r *Request) confirmed() Surface {
	for _, d := range r.Decisions {
		if d.Surface.client() && d.Verdict == Approve && d.Version == r.Version && d.Digest == r.Digest && r.heeds(d.Surface) {
			return d.Surface
		}
	}
	return ""
}

// ruledForPeople is the ruling that what people approve is held to: whether a view
// would have been enough is nothing to them.
func (r *Request) ruledForPeople() policy.Ruling {
	ruling := r.Ruling
	ruling.InView = false
	return ruling
}

// enough reports whether the client's yes is, under what policy says now.
func (c Confirmation) enough(ruling policy.Ruling) bool {
	if c.Surface == InBand {
		return ruling.InBand
	}
	return ruling.InView || ruling.Effect == policy.Allow
}

// heldTo is the ruling that an approval of the request is held to.
func (r *Request) heldTo() policy.Ruling {
	if r.confirmed() != "" {
		return r.Ruling
	}
	return r.ruledForPeople()
}

// confirm records a client's answer. explained is what policy says now of what it
// answered on.
func (r *Request) confirm(agent Agent, c Confirmation, explained policy.Explanation, now time.Time, random io.Reader, signer Signer) error {
	if err := r.Settled(); err != nil {
		return err
	}
	if c.Digest != r.Digest {
		return ErrStale
	}
	if !r.heeds(c.Surface) {
		return ErrNotInBand // the client wasn't to be asked
	}
	by := "agent:" + agent.Name
	d := Decision{Verdict: c.Verdict, Reason: c.Reason, Surface: c.Surface}
	if c.Verdict == Reject {
		if c.Surface == InBand {
			d.Reason = "The agent's client declined."
		}
		r.changed(now, "client.declined", by, c.Surface, nil)
		return r.decideAlone(d, by, now, random, signer)
	}
	ruling := explained.Ruling
	if c.Edited != nil && ruling.Effect == policy.Deny {
		return fmt.Errorf("%w: %s", ErrDenied, ruling.Reason())
	}
	if !c.enough(ruling) {
		return ErrNotInBand
	}
	if c.Edited != nil {
		if err := r.edit(Approver{}, r.Version, c.Edited, explained, c.Surface, now); err != nil {
			return err
		}
	} else if ruling.StricterThan(r.Ruling) != "" {
		return ErrNotInBand
	}
	if !r.heeds(c.Surface) {
		return ErrNotInBand
	}
	if !slices.Contains(r.Scopes(), cmp.Or(c.Scope, ScopeOnce)) {
		return invalid("scope", "is %q; %s are offered for this request", c.Scope, strings.Join(r.Scopes(), ", "))
	}
	if r.Ruling.Requirement.ReasonRequired && strings.TrimSpace(c.Reason) == "" {
		return ErrReasonRequired
	}
	if c.Surface == InBand {
		d.Reason = "Confirmed by the agent's client, not by a verified person."
	}
	if c.Scope != ScopeOnce {
		d.Scope = c.Scope
	}
	r.changed(now, "client.confirmed", by, c.Surface, map[string]any{"policy": ruling.Revision})
	if err := r.decideAlone(d, by, now, random, signer); err != nil {
		return err
	}
	r.grant(by, c.Surface, []Decision{d}, now)
	return nil
}

// TellPeople has people decide on a request of which only the agent's client was
// told, since that gave no answer or its answer isn't enough. It does nothing to
// a request that is decided or of which people were told before.
func (s *Service) TellPeople(ctx context.Context, agent Agent, id ID) (*Request, error) {
	ctx, cancel := uninterrupted(ctx, changeLimit)
	defer cancel()
	r, err := s.Status(ctx, agent, id)
	if err != nil || r.Status != Pending || !r.ClientOnly {
		return r, err
	}
	return s.change(ctx, id, func(r *Request, now time.Time) error {
		if r.Status == Pending && r.ClientOnly {
			r.ClientOnly, r.tell = false, s.options.Destinations
			r.changed(now, "people.told", "countersign", "", nil)
		}
		return nil
	})
}

// Withdraw takes back what the agent itself asked, for its host: nothing that the
// request says runs, whoever approved it, and what its approval granted ends. It
// works while the request is pending, or approved and not applied; afterwards
// ErrDecided, ErrExpired or ErrApplied says why not. shown is the digest of what the
// host showed, for ErrStale if the request is something else now; the zero Digest is
// whatever it is. reason may be empty. surface is App if somebody did it in the host's
// view, which is a no that counts for asking again, or InBand if the host did.
func (s *Service) Withdraw(ctx context.Context, agent Agent, id ID, shown Digest, reason string, surface Surface) (*Request, error) {
	if !surface.client() {
		return nil, invalid("surface", "is %q, where no client decides", surface)
	}
	if err := checkText("reason", reason, MaxReason); err != nil {
		return nil, err
	}
	ctx, cancel := uninterrupted(ctx, decideLimit)
	defer cancel()
	if _, err := s.Status(ctx, agent, id); err != nil {
		return nil, err
	}
	return s.change(ctx, id, func(r *Request, now time.Time) error {
		return r.withdraw(agent, shown, reason, surface, now, s.options.Rand, s.options.Signer)
	})
}

func (r *Request) withdraw(agent Agent, shown Digest, reason string, surface Surface, now time.Time, random io.Reader, signer Signer) error {
	if r.Executor != ByAgent {
		return ErrServerRuns
	}
	if err := r.Settled(); err != nil && r.Status != Approved {
		return err
	}
	if shown != (Digest{}) && shown != r.Digest {
		return ErrStale
	}
	by, decidedAt := "agent:"+agent.Name, r.DecidedAt
	if r.Grant != nil && r.Grant.Active(now) {
		if err := r.revokeGrant(by, surface, now); err != nil {
			return fmt.Errorf("ending what was granted: %w", err)
		}
	}
	r.changed(now, "client.withdrew", by, surface, nil)
	if err := r.decideAlone(Decision{Verdict: Reject, Reason: reason, Surface: surface}, by, now, random, signer); err != nil {
		return err
	}
	if !decidedAt.IsZero() {
		r.DecidedAt = decidedAt
	}
	return nil
}
