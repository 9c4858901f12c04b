package approval

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/countersign/countersign/policy"
)

// FreshSignIn is how long a sign-in proves who somebody is for approving what
// destroys something, on the review page.
const FreshSignIn = 5 * time.Minute

// Ballot is a decision that an approver asks to have recorded: what they
// decided, and what exactly they were shown.
type Ballot struct {
	Request ID
	Version int
	Digest  Digest
	Verdict Verdict
	Reason  string // may be empty; at most MaxReason characters
	// Scope is how far an approval goes: one of the request's Scopes, or empty
	// for once.
	Scope   string
	Surface Surface
	// SignedInAt is when the approver last proved to the review page who they are.
	// Other surfaces leave it out.
	SignedInAt time.Time
	// Passkey is what a passkey of the approver signed, as the review page has
	// verified with UsePasskey; nil if none did.
	Passkey *PasskeyProof
}

func (b Ballot) check() error {
	if b.Verdict != Approve && b.Verdict != Reject {
		return invalid("verdict", "is %q; approve and reject are accepted", b.Verdict)
	}
	if !b.Surface.person() {
		return invalid("surface", "is %q, where no person decides", b.Surface)
	}
	return checkText("reason", b.Reason, MaxReason)
}

// admits says why the ballot of this person doesn't count, before it matters
// which roles they hold.
func (r *Request) admits(who Approver, b Ballot) error {
	if who.IsZero() {
		return ErrIneligible // decisions without a person are the policy's
	}
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
	if !slices.Contains(r.Scopes(), cmp.Or(b.Scope, ScopeOnce)) {
		return invalid("scope", "is %q; %s are offered for this request", b.Scope, strings.Join(r.Scopes(), ", "))
	}
	if !r.Ruling.Requirement.AllowsSelf() && r.own(who) {
		return ErrSelf
	}
	if r.Ruling.Requirement.ReasonRequired && strings.TrimSpace(b.Reason) == "" {
		return ErrReasonRequired
	}
	return nil
}

// Hindered says why an approval by somebody who holds these roles wouldn't count
// now: ErrNotApprover, ErrSelf, ErrRecorded, or that nothing more can be decided. It
// is nil if it would count. It is for offering what works; Decide looks again.
func (r *Request) Hindered(who Approver, held []Membership) error {
	shown := Ballot{Version: r.Version, Digest: r.Digest, Verdict: Approve, Reason: "any", Surface: Web}
	mine := required(r.Ruling.Requirement, held)
	if len(mine) == 0 {
		return ErrNotApprover
	}
	if err := r.admits(who, shown); err != nil {
		return err
	}
	if r.own(who) && len(r.selfApproving(mine)) == 0 {
		return ErrSelf
	}
	return nil
}

// proved says what the approver has yet to prove, so that a page which somebody
// left open, or that an agent drives in somebody's browser, approves nothing that
// can't be undone. Slack signs each click, so it has no page to leave open.
func (r *Request) proved(b Ballot, now time.Time) error {
	if b.Surface != Web || b.Verdict != Approve || r.Ruling.Tier < policy.TierDestructive {
		return nil
	}
	if now.Sub(b.SignedInAt) >= FreshSignIn {
		return ErrSignInAgain
	}
	if r.TakesPasskey() {
		return b.Passkey.signs(b)
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
func (r *Request) decide(who Approver, standing Standing, ruling policy.Ruling, b Ballot, now time.Time, random io.Reader, signer Signer) error {
	if err := r.admits(who, b); err != nil {
		return err
	}
	if err := r.proved(b, now); err != nil {
		return err
	}
	stricter := ruling.StricterThan(r.ruledForPeople())
	held := required(r.Ruling.Requirement, standing.Roles)
	if stricter != "" {
		// Those whom policy asks now may end it too.
		held = required(both(r.Ruling.Requirement, ruling.Requirement), standing.Roles)
	}
	if len(held) == 0 {
		return ErrNotApprover
	}
	if stricter != "" && b.Verdict == Approve {
		r.supersede(stricter, ruling, now)
		return nil
	}
	own := r.own(who)
	if own && b.Verdict == Approve {
		if held = r.selfApproving(held); len(held) == 0 {
			return ErrSelf
		}
	}
	d, err := r.issue(Decision{
		Approver: who,
		Verdict:  b.Verdict,
		Reason:   b.Reason,
		Surface:  b.Surface,
		Roles:    held,
		Own:      own,
		Scope:    scopeOf(b),
	}, who.String(), ruling.Revision, now, random, signer)
	if err != nil {
		return err
	}
	detail := map[string]any{
		"receipt":        d.Receipt,
		"signed_receipt": d.SignedReceipt,
		"scope":          scopeOf(b),
		"verdict":        b.Verdict,
		"reason":         b.Reason,
		"roles":          held,
		"own":            own,
		"policy":         ruling.Revision,
	}
	if b.Surface == Web && !b.SignedInAt.IsZero() {
		detail["signed_in_at"] = timeText(b.SignedInAt)
	}
	if b.Surface == Web && b.Verdict == Approve && r.TakesPasskey() {
		detail["passkey"] = b.Passkey
	}
	r.changed(now, "decision.recorded", who.String(), b.Surface, detail)
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
		r.grant(who.String(), b.Surface, r.approvals(), now)
	}
	return nil
}

// revoke takes back what was approved and not used yet, which is a reject that
// comes late: nothing that the request says runs any more, and what it granted
// ends. revision is that of the policy which says who holds which role.
func (r *Request) revoke(who Approver, standing Standing, revision string, b Ballot, now time.Time, random io.Reader, signer Signer) error {
	if r.Status == Pending {
		return ErrPending
	}
	if r.Status != Approved {
		return r.Settled()
	}
	if b.Version != r.Version || b.Digest != r.Digest {
		return ErrStale
	}
	held := required(r.Ruling.Requirement, standing.Roles)
	if len(held) == 0 {
		return ErrNotApprover
	}
	d, err := r.issue(Decision{
		Approver: who,
		Verdict:  Reject,
		Reason:   b.Reason,
		Surface:  b.Surface,
		Roles:    held,
		Own:      r.own(who),
	}, who.String(), revision, now, random, signer)
	if err != nil {
		return err
	}
	if r.Grant != nil && r.Grant.Active(now) {
		if err := r.revokeGrant(who.String(), b.Surface, now); err != nil {
			return err
		}
	}
	r.Status, r.Reason, r.ClosedAt = Rejected, b.Reason, now
	r.changed(now, "request.revoked", who.String(), b.Surface, map[string]any{
		"receipt":        d.Receipt,
		"signed_receipt": d.SignedReceipt,
		"reason":         b.Reason,
		"roles":          held,
		"policy":         revision,
	})
	return nil
}

// required keeps the memberships in roles that a requirement names.
func required(requirement policy.Requirement, held []Membership) []Membership {
	var kept []Membership
	for _, m := range held {
		for _, want := range requirement.Roles {
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

// supersede ends a request that doesn't hold any more. ruling is what policy
// says now.
func (r *Request) supersede(why string, ruling policy.Ruling, now time.Time) {
	r.Status = Rejected
	r.Reason = why
	r.ClosedAt = now
	r.changed(now, "request.superseded", "countersign", "", map[string]any{"why": why, "policy": ruling.Revision})
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
// policy says of the new payload, which nobody can get denied payloads past. An
// edit never makes approving easier. If who is nobody, the agent's client did it.
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
	if r.Executor == ByGateway {
		r.Target = ruling.Target
	}
	r.Editors = append(r.Editors, who)
	if r.Ruling.StricterThan(ruling) == "" {
		before := r.Ruling
		r.Ruling, r.Explanation = ruling, explained.String()
		r.Ruling.ApplyWithin = min(before.ApplyWithin, ruling.ApplyWithin)
		r.Ruling.Redactions = redactions(before, ruling)
	} else {
		if ruling.StricterThan(r.Ruling) != "" {
			r.Explanation = strings.TrimSpace(r.Explanation) + "\n\nAfter the edit:\n\n" + explained.String()
		}
		r.Ruling = notWeaker(r.Ruling, ruling)
	}
	r.changed(now, "request.edited", cmp.Or(who.String(), "agent:"+r.Agent), surface, map[string]any{
		"previous_digest": previous.String(),
		"policy":          ruling.Revision,
		"tier":            int(r.Ruling.Tier),
		"requirement":     r.Ruling.Requirement,
		"rules":           r.Ruling.Rules,
	})
	return nil
}

// notWeaker is the ruling of before with the facts of the next one, and with
// what that asks for on top of it.
func notWeaker(before, next policy.Ruling) policy.Ruling {
	kept := before
	kept.Count, kept.Amount, kept.FirstUse, kept.Target = next.Count, next.Amount, next.FirstUse, next.Target
	// Where policy asks nobody, the client's answer is no less.
	kept.InBand = before.InBand && (next.InBand || next.Effect == policy.Allow)
	kept.InView = before.InView && (next.InView || next.Effect == policy.Allow)
	kept.Redactions = redactions(before, next)
	if next.StricterThan(before) == "" {
		return kept
	}
	kept.Tier = max(before.Tier, next.Tier)
	kept.Requirement = both(before.Requirement, next.Requirement)
	kept.ApplyWithin = min(before.ApplyWithin, next.ApplyWithin)
	if next.Tier > before.Tier {
		kept.Scopes = next.Scopes
	}
	kept.Rules = slices.Clone(before.Rules)
	for _, rule := range next.Rules {
		if !slices.ContainsFunc(kept.Rules, func(r policy.FiredRule) bool { return r.ID == rule.ID }) {
			kept.Rules = append(kept.Rules, rule)
		}
	}
	return kept
}

// redactions are what either of two rulings hides.
func redactions(a, b policy.Ruling) policy.Redactions {
	return policy.Redactions{
		Keys:  union(a.Redactions.Keys, b.Redactions.Keys),
		Paths: union(a.Redactions.Paths, b.Redactions.Paths),
	}
}

// both is the requirement that is met when both are.
func both(a, b policy.Requirement) policy.Requirement {
	joined := a
	joined.Roles = slices.Clone(a.Roles)
	joined.ReasonRequired = a.ReasonRequired || b.ReasonRequired
	if joined.Owner == "" {
		joined.Owner = b.Owner
	}
	for _, want := range b.Roles {
		at := slices.IndexFunc(joined.Roles, func(c policy.RoleCount) bool { return c.Role == want.Role })
		if at < 0 {
			joined.Roles = append(joined.Roles, want)
			continue
		}
		joined.Roles[at].Count = max(joined.Roles[at].Count, want.Count)
		joined.Roles[at].AllowSelf = joined.Roles[at].AllowSelf && want.AllowSelf
	}
	return joined
}

// union is a and what of b isn't in it.
func union(a, b []string) []string {
	joined := slices.Clone(a)
	for _, one := range b {
		if !slices.Contains(joined, one) {
			joined = append(joined, one)
		}
	}
	return joined
}
