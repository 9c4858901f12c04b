package approval

import (
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

// claim uses up the approval: from approved to applied, once.
func (r *Request) claim(agent Agent, now time.Time, random io.Reader) error {
	now = r.at(now)
	if err := r.claimable(); err != nil {
		return err
	}
	id, err := newID("exec_", now, random)
	if err != nil {
		return err
	}
	r.Status = Applied
	r.ClosedAt = now
	r.Execution = &Execution{ID: id, Version: r.Version, StartedAt: now, Outcome: Unknown}
	r.changed(now, "request.applied", "agent:"+agent.Name, "", map[string]any{"execution": id})
	return nil
}

// supersede ends an approved request whose approvals no longer meet what
// approving takes, so that it must be asked again.
func (r *Request) supersede(missing []policy.RoleCount, now time.Time) {
	now = r.at(now)
	r.Status = Rejected
	r.Reason = "Superseded: somebody who approved no longer holds the role, so " + policy.Words(missing) + " is missing."
	r.ClosedAt = now
	r.changed(now, "request.superseded", "countersign", "", map[string]any{"missing": missing})
}

// finish records what an execution came to, once.
func (r *Request) finish(agent Agent, outcome Outcome, detail string, now time.Time) error {
	now = r.at(now)
	if r.Execution == nil {
		if err := r.claimable(); err != nil {
			return err
		}
		return ErrNotApplied
	}
	if !r.Execution.FinishedAt.IsZero() {
		return ErrRecorded
	}
	r.Execution.FinishedAt = now
	r.Execution.Outcome = outcome
	r.Execution.Detail = detail
	r.changed(now, "execution.finished", "agent:"+agent.Name, "", map[string]any{
		"execution": r.Execution.ID,
		"outcome":   outcome,
		"detail":    detail,
	})
	return nil
}
