package approval

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/countersign/countersign/audit"
	"github.com/countersign/countersign/policy"
)

// Request is one frozen action that awaits a decision or holds an outcome.
// Agents' words (Purpose, Action, Target, Environment, StatedCount, Reversible)
// are shown and ruled on, and never trusted for authority.
type Request struct {
	ID      ID
	Agent   string
	ActsFor Approver // the person the agent acted for when it asked; zero if nobody

	Purpose     string
	Action      string // empty if not stated
	Target      string // empty if not stated
	Environment string // empty if not stated, which is treated as production
	StatedCount *int64 // nil if not stated
	Reversible  *bool  // nil if not stated
	Payload     Payload

	// Executor is who runs it. The next three are set for a gateway's tools only.
	Executor Executor
	ToolPin  string       // names the definition that the tool had when it was called
	Unpinned bool         // that definition isn't the one that was accepted
	Hints    policy.Hints // that definition's annotations
	// Session is where it was asked, if the agent's connection has sessions.
	Session string
	// ClientOnly says that nobody was told but the agent's client, since its
	// answer is enough.
	ClientOnly bool
	// HostView says that it is shown in a view of the agent's host, where a decision
	// counts if the ruling's InView says so.
	HostView bool

	Version int // starts at 1; an edit makes the next
	Digest  Digest

	// Ruling is what policy said when it was asked, which is how it is decided.
	Ruling policy.Ruling
	// Explanation is how policy came to that, for the people who decide. It
	// holds nothing that the policy redacts.
	Explanation string
	// Asked is the digest of what the agent asked, before anybody edited it and
	// however it spelled the action and the environment. It tells what was asked
	// before; what is decided on is in Digest.
	Asked Digest
	// Reminders counts how many times people were reminded, and Escalated says
	// that the people whom the ruling's escalation names were called.
	Reminders int
	Escalated bool

	Status    Status
	Reason    string // why it is rejected, in words; empty otherwise
	Decisions []Decision
	Editors   []Approver // who edited it, in order
	Execution *Execution // nil until it is applied
	Grant     *Grant     // what its approval allows beyond once; nil if nothing
	// GrantedBy is the request whose grant approved this one, and Under what
	// that grant is now, as the store finds it in the transaction that loads
	// the request. Empty and nil if none did.
	GrantedBy ID
	Under     *Grant

	CreatedAt time.Time // all times are UTC, to the millisecond
	ExpiresAt time.Time // deciding ends here
	DecidedAt time.Time // zero until approved or rejected
	ApplyBy   time.Time // applying ends here; zero until approved
	ClosedAt  time.Time // when the final status was reached; zero before
	UpdatedAt time.Time // the last change

	Revision int64 // counts every change of the request; the compare-and-swap is on it

	events []audit.Event
	used   Place    // what a claim used
	result []byte   // what a run returned
	tell   []string // destinations that are to be told from now on
}

// Decision is one approver's verdict on one version. If Approver is nobody, it
// is the policy's, a grant's or the agent's client's, as Surface says.
type Decision struct {
	Receipt string // "rcpt_" and 32 hexadecimal digits
	// SignedReceipt is the receipt itself, as text that can be verified without the
	// server; empty if none is signed.
	SignedReceipt string
	Approver      Approver
	Verdict       Verdict
	Reason        string // the approver's words; may be empty
	Surface       Surface
	Version       int
	Digest        Digest
	Roles         []Membership // the required roles the approver held, and why
	Own           bool         // it was the approver's own: their agent's request, or their edit
	Scope         string       // how far an approval goes, as the policy names it; empty is once
	At            time.Time
}

// Person reports whether a verified person made the decision.
func (d Decision) Person() bool { return d.Surface.person() }

// Membership says that a person holds a role, and through what.
type Membership struct {
	Role string `json:"role"`
	Via  string `json:"via"` // "user" if listed, or the id of the Slack user group
}

// Outcome is what is known of an execution.
type Outcome string

// The outcomes. An action that the agent runs itself stays Unknown unless
// somebody reports what happened.
const (
	Unknown   Outcome = "unknown"
	Succeeded Outcome = "succeeded"
	Failed    Outcome = "failed"
)

// Execution is one attempt to run an approved version. Approval and success are
// separate facts.
type Execution struct {
	ID         string // "exec_" and 32 hexadecimal digits
	Version    int
	StartedAt  time.Time // when the claim was made
	FinishedAt time.Time // when the outcome was reported; zero before
	Outcome    Outcome
	Detail     string // what the run said, short; may be empty
	// ResultSize is how long the stored result is, in bytes; 0 if none is.
	ResultSize int
	ReturnedAt time.Time // when the agent got the result; zero before
	SettledBy  Approver  // who said what came of a run whose outcome nobody knew
}

// Proposal is what an agent asks, before it is a Request.
type Proposal struct {
	Purpose     string
	Action      string
	Target      string
	Environment string
	Count       *int64
	Reversible  *bool
	Payload     []byte

	// Executor is who will run it; empty means ByAgent. The next three are as in
	// Request.
	Executor Executor
	ToolPin  string
	Unpinned bool
	Hints    policy.Hints
	Session  string
	// AskClient says that the agent's client will be asked to confirm, where the
	// policy lets that be enough. Then no destination is told.
	AskClient bool
	// HostView says that the agent's host shows it in a view.
	HostView bool
	// Unseen says that the agent's host can't show it, and that nobody else is to be
	// asked: what policy leaves to people is denied.
	Unseen bool

	// TTL is how long people have to decide. Zero means DefaultTTL; other
	// values are brought within MinTTL and MaxTTL.
	TTL time.Duration
}

// How long a request may wait for its decision.
const (
	DefaultTTL = time.Hour
	MinTTL     = time.Minute
	MaxTTL     = 24 * time.Hour
)

// How long an agent's words may be, in characters.
const (
	MaxPurpose     = 1000
	MaxAction      = 200
	MaxTarget      = 500
	MaxEnvironment = 60
	MaxReason      = 1000
)

func (p *Proposal) check(payloadLimit int) error {
	if strings.TrimSpace(p.Purpose) == "" {
		return invalid("purpose", "is missing; say in 1 to %d characters what this is for", MaxPurpose)
	}
	for _, text := range []struct {
		field, value string
		limit        int
	}{
		{"purpose", p.Purpose, MaxPurpose},
		{"action", p.Action, MaxAction},
		{"target", p.Target, MaxTarget},
		{"environment", p.Environment, MaxEnvironment},
	} {
		if err := checkText(text.field, text.value, text.limit); err != nil {
			return err
		}
	}
	if p.Count != nil && *p.Count < 0 {
		return invalid("count", "is %d; a whole number from 0 to %d is accepted", *p.Count, int64(math.MaxInt64))
	}
	if err := checkPayload(p.Payload, payloadLimit); err != nil {
		return err
	}
	return checkArguments(p.Executor, p.Payload)
}

func checkText(field, value string, limit int) error {
	if !utf8.ValidString(value) {
		return invalid(field, "is not valid UTF-8 text")
	}
	if strings.ContainsRune(value, 0) {
		// PostgreSQL can't store it, and no word has it.
		return invalid(field, "has a NUL character, which is not accepted")
	}
	if n := utf8.RuneCountInString(value); n > limit {
		return invalid(field, "has %d characters; at most %d are accepted", n, limit)
	}
	return nil
}

func clampTTL(ttl time.Duration) time.Duration {
	if ttl == 0 {
		return DefaultTTL
	}
	return min(max(ttl, MinTTL), MaxTTL)
}

// asked is what the agent asks, before anything else is known of it.
func asked(agent Agent, p Proposal) *Request {
	return &Request{
		Agent:       agent.Name,
		ActsFor:     agent.Owner,
		Purpose:     p.Purpose,
		Action:      p.Action,
		Target:      p.Target,
		Environment: p.Environment,
		StatedCount: p.Count,
		Reversible:  p.Reversible,
		Executor:    cmp.Or(p.Executor, ByAgent),
		ToolPin:     p.ToolPin,
		Unpinned:    p.Unpinned,
		Hints:       p.Hints,
		Session:     p.Session,
		HostView:    p.HostView,
		Payload:     append(Payload(nil), p.Payload...),
		Version:     1,
		Status:      Pending,
	}
}

// propose makes a request of a checked proposal: a pending one, or one that the
// policy decides by itself.
func propose(agent Agent, p Proposal, explained policy.Explanation, now time.Time, random io.Reader, signer Signer) (*Request, error) {
	ruling := explained.Ruling
	id, err := newID("req_", now, random)
	if err != nil {
		return nil, err
	}
	now = milliseconds(now)
	r := asked(agent, p)
	r.ID = ID(id)
	if r.Executor == ByGateway {
		r.Target = ruling.Target // nothing that an agent says stands for it
	}
	r.Ruling, r.Explanation = ruling, explained.String()
	r.CreatedAt = now
	r.ExpiresAt = now.Add(min(clampTTL(p.TTL), ruling.DecideWithin).Truncate(time.Millisecond))
	if r.Digest, err = digest(r.Action, r.Environment, r.ToolPin, r.Version, r.Payload); err != nil {
		return nil, err
	}
	if r.Asked, err = digest(strings.ToLower(r.Action), ruling.Environment, r.ToolPin, r.Version, r.Payload); err != nil {
		return nil, err
	}
	r.changed(now, "request.created", "agent:"+agent.Name, "", map[string]any{
		"purpose":     r.Purpose,
		"action":      r.Action,
		"target":      r.Target,
		"environment": r.Environment,
		"count":       r.StatedCount,
		"reversible":  r.Reversible,
		"executor":    r.Executor,
		"tool_pin":    r.ToolPin,
		"unpinned":    r.Unpinned,
		"policy":      ruling.Revision,
		"effect":      ruling.Effect,
		"tier":        int(ruling.Tier),
		"requirement": ruling.Requirement,
		"rules":       ruling.Rules,
		"expires_at":  timeText(r.ExpiresAt),
		"acts_for":    r.ActsFor.String(),
	})
	if ruling.Effect != policy.RequireApproval {
		return r, r.decideByPolicy(now, random, signer)
	}
	if p.Unseen {
		r.ClientOnly = true
		return r, r.decideWithoutPerson(InBand, Reject, unseen, "countersign", now, random, signer)
	}
	return r, nil
}

// unseen is why a request is denied whose agent's host can't show it.
const unseen = "The agent's host can't show this to a person, and nobody else is asked."

// decideByPolicy decides a new request that people aren't asked about. It stands
// in the same records as people's decisions, with the rule as its decider. What
// the gateway runs is claimed at the same moment: nothing can have changed.
func (r *Request) decideByPolicy(now time.Time, random io.Reader, signer Signer) error {
	verdict := Reject
	if r.Ruling.Effect == policy.Allow {
		verdict = Approve
	}
	err := r.decideWithoutPerson(Policy, verdict, r.Ruling.Reason(), "policy:"+r.Ruling.Decider(), now, random, signer)
	if err != nil || verdict == Reject || r.Executor != ByGateway {
		return err
	}
	return r.start("countersign", r.Ruling, now, random)
}

// decideWithoutPerson records a decision that no person makes now, and what it
// makes of the request. It counts no change: the caller does.
func (r *Request) decideWithoutPerson(surface Surface, verdict Verdict, reason, by string, now time.Time, random io.Reader, signer Signer) error {
	return r.decideAlone(Decision{Verdict: verdict, Reason: reason, Surface: surface}, by, now, random, signer)
}

// decideAlone is decideWithoutPerson of a decision that may go further than once.
func (r *Request) decideAlone(d Decision, by string, now time.Time, random io.Reader, signer Signer) error {
	d, err := r.issue(d, by, r.Ruling.Revision, now, random, signer)
	if err != nil {
		return err
	}
	r.DecidedAt = now
	detail := map[string]any{"receipt": d.Receipt, "signed_receipt": d.SignedReceipt, "reason": d.Reason}
	if d.Surface.client() {
		detail["client_confirmed"] = d.Verdict == Approve
		detail["acts_for"] = r.ActsFor.String()
	}
	if d.Verdict == Reject {
		r.Status, r.Reason, r.ClosedAt = Rejected, d.Reason, now
		r.record(now, "request.rejected", by, d.Surface, detail)
		return nil
	}
	if d.Scope != "" {
		detail["scope"] = d.Scope
	}
	r.Status, r.ApplyBy = Approved, now.Add(r.Ruling.ApplyWithin)
	detail["apply_by"] = timeText(r.ApplyBy)
	r.record(now, "request.approved", by, d.Surface, detail)
	return nil
}

// at is the time that counts for the request: never before its last change, so
// that a clock set back can't reopen a deadline.
func (r *Request) at(now time.Time) time.Time {
	now = milliseconds(now)
	if now.Before(r.UpdatedAt) {
		return r.UpdatedAt
	}
	return now
}

// Deadline is when the request expires unless something happens before; zero
// for a final status.
func (r *Request) Deadline() time.Time {
	switch r.Status {
	case Pending:
		return r.ExpiresAt
	case Approved:
		return r.ApplyBy
	default:
		return time.Time{}
	}
}

// overdue reports whether the request's deadline has come. At the deadline
// itself it is too late.
func (r *Request) overdue(now time.Time) bool {
	deadline := r.Deadline()
	return !deadline.IsZero() && !now.Before(deadline)
}

// expire ends a request whose deadline has come and reports whether it did.
func (r *Request) expire(now time.Time) bool {
	if !r.overdue(now) {
		return false
	}
	phase := "deciding"
	if r.Status == Approved {
		phase = "applying"
	}
	r.Status = Expired
	r.ClosedAt = now
	r.changed(now, "request.expired", "countersign", "", map[string]any{"phase": phase})
	return true
}

// Settled says why nothing more can be decided: ErrDecided, ErrExpired or
// ErrApplied. It is nil while the request is pending.
func (r *Request) Settled() error {
	switch r.Status {
	case Pending:
		return nil
	case Expired:
		return ErrExpired
	case Applied:
		return ErrApplied
	default:
		return ErrDecided
	}
}

// approvals are people's decisions that approve what the request is now, which
// are those that count.
func (r *Request) approvals() []Decision {
	var counted []Decision
	for _, d := range r.Decisions {
		if d.Person() && d.Verdict == Approve && d.Version == r.Version && d.Digest == r.Digest {
			counted = append(counted, d)
		}
	}
	return counted
}

// Votes are the approvals that count, with the roles that the approvers held.
func (r *Request) Votes() []policy.Vote {
	var votes []policy.Vote
	for _, d := range r.approvals() {
		votes = append(votes, r.vote(d.Approver, d.Roles))
	}
	return votes
}

func (r *Request) vote(who Approver, held []Membership) policy.Vote {
	v := policy.Vote{Person: who.String(), Own: r.own(who)}
	for _, m := range held {
		v.Roles = append(v.Roles, m.Role)
	}
	return v
}

// Call is what policy may know of the request at a time, apart from what was
// used before.
func (r *Request) Call(at time.Time) policy.Call {
	return policy.Call{
		Agent:       r.Agent,
		Owner:       r.ActsFor.User,
		Action:      r.Action,
		Target:      r.Target,
		Environment: r.Environment,
		Count:       r.StatedCount,
		Reversible:  r.Reversible,
		Payload:     r.Payload,
		Hints:       r.Hints,
		Unpinned:    r.Unpinned,
		At:          at,
	}
}

// Missing returns what approving still takes; empty once it is met.
func (r *Request) Missing() []policy.RoleCount { return r.Ruling.Requirement.Missing(r.Votes()) }

// Waiting says for whom a pending request waits and how long they have, in one
// line for people at the agent's host.
func (r *Request) Waiting(now time.Time) string {
	var left string
	switch until := max(r.ExpiresAt.Sub(now), 0); {
	case until >= time.Hour:
		left = fmt.Sprintf("%d h %d min", until/time.Hour, until%time.Hour/time.Minute)
	case until >= time.Minute:
		left = fmt.Sprintf("%d min", until/time.Minute)
	default:
		left = fmt.Sprintf("%d s", until/time.Second)
	}
	if r.ViewDecides() {
		return "Waiting for a decision in this host. " + left + " left."
	}
	return "Waiting for a person: " + policy.Words(r.Missing()) + ". " + left + " left."
}

// Used is the place that a claim used since the request was loaded, as policy
// named it then, for the store to record in the transaction that saves the
// request; zero if nothing was claimed.
func (r *Request) Used() Place { return r.used }

// Tell are the destinations that are to be told of the request from now on, for
// the store to make notices for those that have none, in the transaction that
// saves the request.
func (r *Request) Tell() []string { return r.tell }

// Events returns what happened to the request since it was loaded or made, in
// order, for the store to append in the transaction that saves the request.
func (r *Request) Events() []audit.Event { return r.events }

// changed counts a change and records its event.
func (r *Request) changed(now time.Time, kind, actor string, surface Surface, detail map[string]any) {
	r.Revision++
	r.UpdatedAt = now
	r.record(now, kind, actor, surface, detail)
}

// record notes a fact about the request that changes nothing in it.
func (r *Request) record(now time.Time, kind, actor string, surface Surface, detail map[string]any) {
	r.events = append(r.events, newEvent(now, kind, actor, surface, detail))
	last := &r.events[len(r.events)-1]
	last.RequestID = string(r.ID)
	last.Version = r.Version
	last.Digest = r.Digest.String()
}

func newEvent(now time.Time, kind, actor string, surface Surface, detail map[string]any) audit.Event {
	if detail == nil {
		detail = map[string]any{}
	}
	data, err := json.Marshal(detail)
	if err != nil {
		// Details are our own strings, numbers and structs of them.
		panic(fmt.Sprintf("encoding the detail of a %s event: %v", kind, err))
	}
	return audit.Event{Type: kind, At: now, Actor: actor, Surface: string(surface), Detail: data}
}

func milliseconds(t time.Time) time.Time { return t.UTC().Truncate(time.Millisecond) }

func timeText(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }
