package approval

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/countersign/countersign/policy"
)

// Ballot is a decision that an approver asks to have recorded: what they
// decided, and what exactly they were shown.
type Ballot struct {
	Request ID
	Version int
	Digest  Digest
	Verdict Verdict
	Reason  string // may be empty; at most MaxReason characters
	Surface Surface
}

func (b Ballot) check() error {
	if b.Verdict != Approve && b.Verdict != Reject {
		return invalid("verdict", "is %q; approve and reject are accepted", b.Verdict)
	}
	return checkText("reason", b.Reason, MaxReason)
}

// admits says why the ballot of this person doesn't count, before it matters
// which roles they hold.
func (r *Request) admits(who Approver, b Ballot) error {
	if r.Status != Expired && r.recorded(who, b) {
		return ErrRecorded
	}
	if err := r.Settled(); err != nil {
		return err
	}
	if b.Version != r.Version || b.Digest != r.Digest {
		return ErrStale
	}
	if b.Verdict != Approve {
		return nil
	}
	if !r.Ruling.Requirement.AllowsSelf() && r.own(who) {
		return ErrSelf
	}
	if r.Ruling.Requirement.ReasonRequired && strings.TrimSpace(b.Reason) == "" {
		return ErrReasonRequired
	}
	return nil
}

// recorded reports whether the person decided the same before, on what the
// request is now: what an edit replaced doesn't count any more.
func (r *Request) recorded(who Approver, b Ballot) bool {
	if b.Version != r.Version || b.Digest != r.Digest {
		return false
	}
	for _, d := range r.Decisions {
		if d.Approver == who && d.Verdict == b.Verdict && d.Version == r.Version {
			return true
		}
	}
	return false
}

// own reports whether the request is the person's own: the agent acts for them,
// the policy names them behind the agent, or they edited it.
func (r *Request) own(who Approver) bool {
	if !r.ActsFor.IsZero() && r.ActsFor == who {
		return true
	}
	if owner := r.Ruling.Requirement.Owner; owner != "" && owner == who.User {
		return true
	}
	for _, editor := range r.Editors {
		if editor == who {
			return true
		}
	}
	return false
}

// decide records the ballot of a person whose standing was just looked up, under
// what policy says now. A reject is final; enough approvals approve. If policy
// asks for more than it did, nobody can approve: the request is superseded.
func (r *Request) decide(who Approver, standing Standing, ruling policy.Ruling, b Ballot, now time.Time, random io.Reader) error {
	if err := r.admits(who, b); err != nil {
		return err
	}
	held := r.required(standing.Roles)
	if len(held) == 0 {
		return ErrNotApprover
	}
	own := r.own(who)
	if own && b.Verdict == Approve {
		if held = r.selfApproving(held); len(held) == 0 {
			return ErrSelf
		}
	}
	if why := ruling.StricterThan(r.Ruling); why != "" && b.Verdict == Approve {
		r.supersede(why, now)
		return nil
	}
	receipt, err := newID("rcpt_", now, random)
	if err != nil {
		return err
	}
	r.Decisions = append(r.Decisions, Decision{
		Receipt:  receipt,
		Approver: who,
		Verdict:  b.Verdict,
		Reason:   b.Reason,
		Surface:  b.Surface,
		Version:  r.Version,
		Digest:   r.Digest,
		Roles:    held,
		Own:      own,
		At:       now,
	})
	r.changed(now, "decision.recorded", who.String(), b.Surface, map[string]any{
		"receipt": receipt,
		"verdict": b.Verdict,
		"reason":  b.Reason,
		"roles":   held,
		"own":     own,
	})
	switch {
	case b.Verdict == Reject:
		r.Status = Rejected
		r.Reason = b.Reason
		r.DecidedAt, r.ClosedAt = now, now
		r.record(now, "request.rejected", who.String(), b.Surface, nil)
	case len(r.Missing()) == 0:
		r.Status = Approved
		r.DecidedAt = now
		r.ApplyBy = now.Add(r.Ruling.ApplyWithin)
		r.record(now, "request.approved", who.String(), b.Surface, map[string]any{
			"apply_by": timeText(r.ApplyBy),
		})
	}
	return nil
}

// required keeps the memberships in roles that the requirement names.
func (r *Request) required(held []Membership) []Membership {
	var kept []Membership
	for _, m := range held {
		for _, want := range r.Ruling.Requirement.Roles {
			if want.Role == m.Role {
				kept = append(kept, m)
				break
			}
		}
	}
	return kept
}

// selfApproving keeps the memberships in roles whose people may approve what is
// their own.
func (r *Request) selfApproving(held []Membership) []Membership {
	var kept []Membership
	for _, m := range held {
		for _, want := range r.Ruling.Requirement.Roles {
			if want.Role == m.Role && want.AllowSelf {
				kept = append(kept, m)
			}
		}
	}
	return kept
}

// supersede ends a request that policy asks more for than it did.
func (r *Request) supersede(why string, now time.Time) {
	r.Status = Rejected
	r.Reason = why
	r.ClosedAt = now
	r.changed(now, "request.superseded", "countersign", "", map[string]any{"why": why})
}

// refuse records that a person tried to decide, on what, and why it didn't
// count.
func (r *Request) refuse(who Approver, b Ballot, now time.Time, why error) {
	r.record(now, "decision.refused", who.String(), b.Surface, map[string]any{
		"verdict":       b.Verdict,
		"shown_version": b.Version,
		"shown_digest":  b.Digest.String(),
		"why":           why.Error(),
	})
}

// edit replaces the payload of the given version by a person's, which makes the
// next version: what was approved before doesn't count for it. explained is what
// policy says of the new payload. An edit never makes approving easier.
func (r *Request) edit(who Approver, version int, payload Payload, explained policy.Explanation, surface Surface, now time.Time) error {
	if err := r.Settled(); err != nil {
		return err
	}
	if version != r.Version {
		return ErrStale
	}
	ruling := explained.Ruling
	if ruling.Effect == policy.Deny {
		return fmt.Errorf("%w: %s", ErrDenied, ruling.Reason())
	}
	next, err := digest(r.Action, r.Environment, r.ToolPin, r.Version+1, payload)
	if err != nil {
		return err
	}
	previous := r.Digest
	r.Version++
	r.Digest = next
	r.Payload = append(Payload(nil), payload...)
	r.Editors = append(r.Editors, who)
	if ruling.StricterThan(r.Ruling) != "" {
		r.Ruling, r.Explanation = ruling, explained.String()
	} else {
		r.Ruling.Count, r.Ruling.Amount, r.Ruling.Redactions = ruling.Count, ruling.Amount, ruling.Redactions
	}
	r.changed(now, "request.edited", who.String(), surface, map[string]any{"previous_digest": previous.String()})
	return nil
}
