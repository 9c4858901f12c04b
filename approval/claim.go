package approval

import (
	"fmt"
	"io"
	"time"

	"github.com/countersign/countersign/policy"
)

// claimable says why the request can't be applied, nil if it can.
func (r *Request) claimable() error {
	switch r.Status {
	case Approved:
		return nil
	case Pending:
		return ErrPending
	case Rejected:
		return ErrRejected
	case Expired:
		return ErrExpired
	default:
		return ErrApplied
	}
}

// claim uses up the approval: from approved to applied, once. If the approval
// doesn't hold any more, the request is superseded instead, so that it must be
// asked again. present are those who approved, with the roles that they hold
// now, and ruling is what policy says now.
func (r *Request) claim(agent Agent, present []holder, ruling policy.Ruling, now time.Time, random io.Reader) error {
	if err := r.claimable(); err != nil {
		return err
	}
	if why := r.lapsed(present, ruling, now); why != "" {
		r.supersede(why, ruling, now)
		return nil
	}
	id, err := newID("exec_", now, random)
	if err != nil {
		return err
	}
	r.Status = Applied
	r.used = Place{Environment: ruling.Environment, Integration: ruling.Integration, Tool: ruling.Tool}
	r.ClosedAt = now
	r.Execution = &Execution{ID: id, Version: r.Version, StartedAt: now, Outcome: Unknown}
	r.changed(now, "request.applied", "agent:"+agent.Name, "", map[string]any{"execution": id, "policy": ruling.Revision})
	return nil
}

// holder is somebody who approved, with the roles that they hold now.
type holder struct {
	who   Approver
	roles []Membership
}

// lapsed says in words why an approval doesn't hold any more: what would run
// isn't what was approved, policy asks for more than it did, or somebody who
// approved no longer counts. It is empty if the approval holds. What policy
// loosened since doesn't help: the requirement of then has to be met too.
func (r *Request) lapsed(present []holder, ruling policy.Ruling, now time.Time) string {
	stored, err := digest(r.Action, r.Environment, r.ToolPin, r.Version, r.Payload)
	if err != nil || stored != r.Digest {
		return "The stored arguments are not those that were approved."
	}
	if why := ruling.StricterThan(r.Ruling); why != "" {
		return why
	}
	if !now.Before(r.DecidedAt.Add(ruling.ApplyWithin)) {
		return fmt.Sprintf("The policy now lets an approval be used for %s only.", ruling.ApplyWithin)
	}
	if r.Ruling.Effect == policy.Allow {
		return "" // nobody was asked, and policy still asks nobody
	}
	var votes []policy.Vote
	for _, d := range r.approvals() {
		for _, h := range present {
			if h.who == d.Approver {
				votes = append(votes, r.vote(h.who, h.roles))
			}
		}
	}
	if missing := r.Ruling.Requirement.Missing(votes); len(missing) > 0 {
		return "Somebody who approved no longer counts, so " + policy.Words(missing) + " is missing."
	}
	return ""
}

// finish records what an execution came to, once.
func (r *Request) finish(agent Agent, outcome Outcome, detail string, now time.Time) error {
	if r.Execution == nil {
		if err := r.claimable(); err != nil {
			return err
		}
		return ErrNotApplied
	}
	if !r.Execution.FinishedAt.IsZero() {
		return ErrFinished
	}
	finished := *r.Execution
	finished.FinishedAt, finished.Outcome, finished.Detail = now, outcome, detail
	r.Execution = &finished
	r.changed(now, "execution.finished", "agent:"+agent.Name, "", map[string]any{
		"execution": finished.ID,
		"outcome":   outcome,
		"detail":    detail,
	})
	return nil
}
