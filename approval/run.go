package approval

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/countersign/countersign/policy"
)

// MaxResult bounds the stored result of a run, in bytes.
const MaxResult = 16 << 20

// Report is what an execution came to.
type Report struct {
	Outcome Outcome
	// Detail says it in words, in at most MaxReason characters; may be empty.
	Detail string
	// Result is what the run returned, kept for the agent; nil if nothing is
	// kept.
	Result []byte
	// Returned means that the agent gets the result at once.
	Returned bool
}

func (r Report) check() error {
	if len(r.Result) > MaxResult {
		return invalid("result", "is %d bytes; at most %d are kept", len(r.Result), MaxResult)
	}
	return checkText("detail", r.Detail, MaxReason)
}

// Result is what a run that was reported since the request was loaded returned,
// for the store to save in the transaction that saves the request; nil if
// nothing is to be saved.
func (r *Request) Result() []byte { return r.result }

// ClaimToRun is Claim for what the gateway runs. pin is what the tool's
// definition is at this moment: if it isn't what it was when the request was
// made, the request is superseded. ErrAgentRuns for a request that the agent
// runs.
func (s *Service) ClaimToRun(ctx context.Context, id ID, pin string) (*Request, error) {
	ctx, cancel := uninterrupted(ctx, changeLimit)
	defer cancel()
	r, err := s.read(ctx, id)
	if err != nil {
		return nil, err
	}
	if r.Executor != ByGateway {
		return r, ErrAgentRuns
	}
	return s.claim(ctx, r, "countersign", pin)
}

// FinishRun records once what came of what the gateway ran. Unknown is for a
// run of which nobody learned how it ended; a person can settle it.
func (s *Service) FinishRun(ctx context.Context, id ID, report Report) (*Request, error) {
	switch report.Outcome {
	case Succeeded, Failed, Unknown:
	default:
		return nil, invalid("outcome", "is %q; succeeded, failed and unknown are accepted", report.Outcome)
	}
	if err := report.check(); err != nil {
		return nil, err
	}
	ctx, cancel := uninterrupted(ctx, changeLimit)
	defer cancel()
	return s.change(ctx, id, func(r *Request, now time.Time) error {
		if r.Executor != ByGateway {
			return ErrAgentRuns
		}
		return r.finish("countersign", report, now)
	})
}

// Runnable returns up to limit approved requests that the gateway has to run,
// oldest first.
func (s *Service) Runnable(ctx context.Context, limit int) ([]ID, error) {
	return s.store.Runnable(ctx, limit)
}

// Unfinished returns up to limit requests that the gateway began to run and of
// which nothing was reported, oldest first. When a server starts, those were
// cut off.
func (s *Service) Unfinished(ctx context.Context, limit int) ([]ID, error) {
	return s.store.Unfinished(ctx, limit)
}

// ran reports whether nothing more will come of the request: it won't run, or
// has.
func (r *Request) ran() bool {
	switch r.Status {
	case Rejected, Expired:
		return true
	case Applied:
		return r.Executor != ByGateway || !r.Execution.FinishedAt.IsZero()
	default:
		return false
	}
}

// AwaitRun is Await that goes on until the request won't run or has run.
func (s *Service) AwaitRun(ctx context.Context, agent Agent, id ID, bound time.Duration) (*Request, error) {
	return s.await(ctx, agent, id, bound, func(r *Request) bool { return !r.ran() })
}

// ReturnResult returns what the gateway's run of the agent's request returned,
// as often as it is asked, and records the first time. ErrNoResult with the
// request as it is if nothing is stored.
func (s *Service) ReturnResult(ctx context.Context, agent Agent, id ID) ([]byte, *Request, error) {
	r, err := s.Status(ctx, agent, id)
	if err != nil {
		return nil, nil, err
	}
	if r.Execution == nil || r.Execution.ResultSize == 0 {
		return nil, r, ErrNoResult
	}
	result, err := s.store.Result(ctx, r.Execution.ID)
	if err != nil {
		return nil, r, fmt.Errorf("loading the result: %w", err)
	}
	if !r.Execution.ReturnedAt.IsZero() {
		return result, r, nil
	}
	ctx, cancel := uninterrupted(ctx, changeLimit)
	defer cancel()
	r, err = s.change(ctx, id, func(r *Request, now time.Time) error {
		if r.Execution.ReturnedAt.IsZero() {
			returned := *r.Execution
			returned.ReturnedAt = now
			r.Execution = &returned
			r.changed(now, "result.returned", "agent:"+agent.Name, "", map[string]any{"execution": returned.ID})
		}
		return nil
	})
	return result, r, err
}

// Settle records a verified person's word on whether something ran whose outcome
// nobody knows. The person must hold a role that the request required. ErrKnown
// if there is nothing to settle.
func (s *Service) Settle(ctx context.Context, who Approver, id ID, ran bool, surface Surface) (*Request, error) {
	ctx, cancel := uninterrupted(ctx, decideLimit)
	defer cancel()
	r, err := s.read(ctx, id)
	if err != nil {
		return nil, err
	}
	if err := r.unsettled(); err != nil {
		return r, err
	}
	if err := s.holdsRole(ctx, who, r); err != nil {
		return r, err
	}
	return s.change(ctx, id, func(r *Request, now time.Time) error {
		return r.settle(who, ran, surface, now)
	})
}

// holdsRole checks that a person may decide and holds a role that the request
// required; for what nobody was asked, any role of the policy will do.
func (s *Service) holdsRole(ctx context.Context, who Approver, r *Request) error {
	if who.IsZero() {
		return ErrIneligible
	}
	current := s.Policy()
	roles := current.Named(r.Ruling.Requirement)
	if r.Ruling.Effect != policy.RequireApproval {
		roles = current.Roles()
	}
	standing, err := s.directory.Standing(ctx, who, roles)
	if err != nil {
		return fmt.Errorf("checking who this is: %w", err)
	}
	if len(standing.Roles) == 0 {
		return ErrNotApprover
	}
	return nil
}

// unsettled says why nobody has to say what came of the request.
func (r *Request) unsettled() error {
	if r.Executor != ByGateway || r.Execution == nil || r.Execution.FinishedAt.IsZero() || r.Execution.Outcome != Unknown {
		return ErrKnown
	}
	return nil
}

func (r *Request) settle(who Approver, ran bool, surface Surface, now time.Time) error {
	if err := r.unsettled(); err != nil {
		return err
	}
	settled := *r.Execution
	settled.Outcome, settled.SettledBy = Failed, who
	if ran {
		settled.Outcome = Succeeded
	}
	r.Execution = &settled
	r.changed(now, "execution.settled", who.String(), surface, map[string]any{
		"execution": settled.ID,
		"outcome":   settled.Outcome,
	})
	return nil
}

// Grants returns the requests whose grants are in force, oldest first.
func (s *Service) Grants(ctx context.Context) ([]*Request, error) {
	now := milliseconds(s.options.Now())
	ids, err := s.store.Grants(ctx, now)
	if err != nil {
		return nil, fmt.Errorf("listing grants: %w", err)
	}
	var granted []*Request
	for _, id := range ids {
		r, err := s.read(ctx, id)
		if err != nil {
			return nil, fmt.Errorf("loading the grant of %s: %w", id, err)
		}
		if r.Grant != nil && r.Grant.Active(r.at(now)) {
			granted = append(granted, r)
		}
	}
	return granted, nil
}

// RevokeGrant ends the grant of a request: nothing more is approved by it, and
// what it approved and hasn't begun to run won't. It takes a verified person
// with a role that the request required.
func (s *Service) RevokeGrant(ctx context.Context, who Approver, id ID, surface Surface) (*Request, error) {
	ctx, cancel := uninterrupted(ctx, decideLimit)
	defer cancel()
	r, err := s.read(ctx, id)
	if err != nil {
		return nil, err
	}
	if err := s.holdsRole(ctx, who, r); err != nil {
		return r, err
	}
	return s.change(ctx, id, func(r *Request, now time.Time) error {
		return r.revokeGrant(who.String(), surface, now)
	})
}

// RevokeGrantAs is RevokeGrant by an operator.
func (s *Service) RevokeGrantAs(ctx context.Context, by Operator, id ID) (*Request, error) {
	if !id.Valid() {
		return nil, ErrNotFound
	}
	return s.change(ctx, id, func(r *Request, now time.Time) error {
		return r.revokeGrant("operator:"+by.Name, "", now)
	})
}

// covering finds the request whose grant approves a new one; nil if none does.
func (s *Service) covering(ctx context.Context, r *Request, now time.Time) (*Request, error) {
	if len(r.Scopes()) == 1 {
		return nil, nil // wider than once isn't offered for it
	}
	ids, err := s.store.GrantsFor(ctx, r, milliseconds(now))
	if err != nil {
		return nil, fmt.Errorf("looking for a grant: %w", err)
	}
	for _, id := range ids {
		granted, err := s.read(ctx, id)
		if errors.Is(err, ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("loading the grant of %s: %w", id, err)
		}
		if granted.covers(r, granted.at(now)) {
			return granted, nil
		}
	}
	return nil, nil
}

// decideByGrant approves a new request by what people granted before.
func (r *Request) decideByGrant(granted *Request, now time.Time, random io.Reader, signer Signer) error {
	r.GrantedBy = granted.ID
	return r.decideWithoutPerson(Granted, Approve, "Granted with "+string(granted.ID)+".", "grant:"+string(granted.ID), milliseconds(now), random, signer)
}
