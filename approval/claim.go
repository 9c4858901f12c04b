package approval

import (
	"fmt"
	"io"
	"slices"
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
// asked again.
func (r *Request) claim(by string, backed backing, ruling policy.Ruling, now time.Time, random io.Reader) error {
	if err := r.claimable(); err != nil {
		return err
	}
	if why := r.lapsed(backed, ruling, now); why != "" {
		r.supersede(why, ruling, now)
		return nil
	}
	return r.start(by, ruling, now, random)
}

// start begins the one execution of an approved request.
func (r *Request) start(by string, ruling policy.Ruling, now time.Time, random io.Reader) error {
	id, err := newID("exec_", now, random)
	if err != nil {
		return err
	}
	r.Status = Applied
	r.used = Place{Environment: ruling.Environment, Integration: ruling.Integration, Tool: ruling.Tool}
	r.ClosedAt = now
	r.Execution = &Execution{ID: id, Version: r.Version, StartedAt: now, Outcome: Unknown}
	r.changed(now, "request.applied", by, "", map[string]any{"execution": id, "policy": ruling.Revision})
	return nil
}

// backing is what stands behind an approval when it is used.
type backing struct {
	// granted is the request whose grant approved the one that is claimed; nil
	// if people did.
	granted *Request
	// present are those who approved the one or the other, with the roles that
	// they hold now.
	present []holder
	// pin is what the tool's definition is now; empty for what an agent runs.
	pin string
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
func (r *Request) lapsed(backed backing, ruling policy.Ruling, now time.Time) string {
	stored, err := digest(r.Action, r.Environment, r.ToolPin, r.Version, r.Payload)
	if err != nil || stored != r.Digest {
		return "The stored arguments are not those that were approved."
	}
	if backed.pin != r.ToolPin {
		return toolChanged
	}
	before := r.heldTo()
	if backed.granted != nil && backed.granted.confirmed() != "" {
		before = r.Ruling
	}
	if why := ruling.StricterThan(before); why != "" {
		return why
	}
	if !now.Before(r.DecidedAt.Add(ruling.ApplyWithin)) {
		return fmt.Sprintf("The policy now lets an approval be used for %s only.", ruling.ApplyWithin)
	}
	if r.Ruling.Effect == policy.Allow {
		return "" // nobody was asked, and policy still asks nobody
	}
	if r.confirmed() != "" {
		return "" // policy still lets that be enough, or it would be stricter
	}
	approved := r
	if r.GrantedBy != "" {
		if r.Under == nil || !r.Under.Active(backed.granted.at(now)) {
			return "The grant that approved this has ended."
		}
		if !slices.Contains(ruling.Scopes, r.Under.Scope) {
			return "The policy no longer offers an approval as wide as the grant that approved this."
		}
		approved = backed.granted
		if approved.confirmed() != "" {
			return "" // as above
		}
	}
	if missing := approved.missingNow(backed.present); len(missing) > 0 {
		return "Somebody who approved no longer counts, so " + policy.Words(missing) + " is missing."
	}
	return ""
}

// missingNow is what approving the request would still take if those who approved
// it did so with the roles that they hold now.
func (r *Request) missingNow(present []holder) []policy.RoleCount {
	var votes []policy.Vote
	for _, d := range r.approvals() {
		for _, h := range present {
			if h.who == d.Approver {
				votes = append(votes, r.vote(h.who, h.roles))
			}
		}
	}
	return r.Ruling.Requirement.Missing(votes)
}

// toolChanged is why a request is superseded whose tool isn't what it was.
const toolChanged = "The tool's definition has changed since this was asked."

// finish records what an execution came to, once.
func (r *Request) finish(by string, report Report, now time.Time) error {
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
	finished.FinishedAt, finished.Outcome, finished.Detail = now, report.Outcome, report.Detail
	finished.ResultSize = len(report.Result)
	if report.Returned {
		finished.ReturnedAt = now
	}
	r.Execution = &finished
	r.result = report.Result
	r.changed(now, "execution.finished", by, "", map[string]any{
		"execution":   finished.ID,
		"outcome":     report.Outcome,
		"detail":      report.Detail,
		"result_size": finished.ResultSize,
		"returned":    report.Returned,
	})
	return nil
}
