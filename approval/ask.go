package approval

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/countersign/countersign/policy"
)

// Request records what an agent asks. What policy leaves to people is pending,
// and those who may decide are told. If the same is already pending, that is what
// Request returns; of a call that the gateway runs, also if people approved it
// since, or if it has run and the agent hasn't got the result. What policy allows
// is approved at once and, if the gateway runs it, claimed at once; a call of the
// same that people have before them, as it was asked, is superseded then. What
// policy denies is recorded as rejected and returned with an error that wraps
// ErrDenied; what is Unseen, and policy leaves to people, is recorded as rejected and
// returned. An InputError names the field that was refused and a LimitError which
// limit was reached; nothing is stored then.
func (s *Service) Request(ctx context.Context, agent Agent, p Proposal) (*Request, error) {
	now := s.options.Now()
	take := sync.OnceValue(func() error { return s.pace.take(agent, s.Policy().Limits().PerMinute, now) })
	// What an agent asks for is counted whatever becomes of it. Of the calls that
	// it makes through the gateway, those that are approved at once bother nobody.
	if p.Executor != ByGateway {
		if err := take(); err != nil {
			return nil, err
		}
	}
	if err := p.check(s.options.PayloadLimit); err != nil {
		return nil, err
	}
	ctx, cancel := uninterrupted(ctx, changeLimit)
	defer cancel()
	ask := func() (*Request, error) {
		return s.underPolicy(nil, func(current *policy.Policy) (*Request, error) {
			return s.ask(ctx, current, agent, p, now, take)
		})
	}
	r, err := ask()
	if twin, ok := errors.AsType[*twinError](err); ok && twin.allowed {
		if err := s.withdraw(ctx, twin.twin); err != nil {
			return nil, err
		}
		r, err = ask()
	}
	if twin, ok := errors.AsType[*twinError](err); ok {
		if !p.AskClient {
			return s.TellPeople(ctx, agent, twin.twin)
		}
		return s.Status(ctx, agent, twin.twin)
	}
	if err != nil {
		return nil, err
	}
	s.bell.Ring(r.ID)
	if r.Ruling.Effect == policy.Deny {
		s.options.Logger.Warn("denied by policy", "request_id", r.ID, "agent", agent.Name, "action", r.Action, "rule", r.Ruling.Decider())
		return r, fmt.Errorf("%w: %s", ErrDenied, r.Reason)
	}
	return r, nil
}

// askedOfNobody is why a request is superseded that people needn't decide any more.
const askedOfNobody = "The policy asks nobody for this any more, and the same call was made again."

// withdraw takes from people a request that the policy asks nobody for any more,
// so that what is asked again runs in its place and not beside it. One that they
// have decided, or edited, stays theirs.
func (s *Service) withdraw(ctx context.Context, id ID) error {
	_, err := s.change(ctx, id, func(r *Request, now time.Time) error {
		if r.Status == Pending && r.Version == 1 {
			r.supersede(askedOfNobody, r.Ruling, now)
		}
		return nil
	})
	return err
}

// ask stores what an agent asks as the policy of now rules it. take counts it.
func (s *Service) ask(ctx context.Context, current *policy.Policy, agent Agent, p Proposal, now time.Time, take func() error) (*Request, error) {
	explained, err := s.rule(ctx, current, asked(agent, p), p.Payload)
	if err != nil {
		return nil, err
	}
	r, err := propose(agent, p, explained, now, s.options.Rand, s.options.Signer)
	if err != nil {
		return nil, fmt.Errorf("making the request: %w", err)
	}
	if r.Status == Pending {
		granted, err := s.covering(ctx, r, now)
		if err != nil {
			return nil, err
		}
		if granted != nil {
			if err := r.decideByGrant(granted, now, s.options.Rand, s.options.Signer); err != nil {
				return nil, fmt.Errorf("making the request: %w", err)
			}
		}
	}
	if r.Status == Pending || r.Status == Rejected {
		if err := take(); err != nil {
			return nil, err
		}
	}
	if r.Status == Pending {
		r.ClientOnly = p.AskClient && r.Ruling.InBand
	}
	var destinations []string
	if r.Status == Pending && !r.ClientOnly {
		destinations = s.options.Destinations
	}
	err = s.store.Insert(ctx, r, destinations, func(backlog Backlog) error {
		if s.Policy() != current {
			return errPolicyChanged // what it allows may not be allowed any more
		}
		return r.admit(backlog, current.Limits())
	})
	if limit, ok := errors.AsType[*LimitError](err); ok {
		return nil, limit
	}
	if err != nil {
		return nil, fmt.Errorf("storing the request: %w", err)
	}
	return r, nil
}

// lookUpUses tells a call what the agent hasn't used before, if the policy asks.
func (s *Service) lookUpUses(ctx context.Context, current *policy.Policy, agent Agent, call *policy.Call) error {
	within := current.FirstUseWithin()
	if within == 0 {
		return nil
	}
	integration, tool, environment := current.Place(call.Action, call.Environment)
	last, err := s.store.LastUse(ctx, agent, Place{Environment: environment, Integration: integration, Tool: tool})
	if err != nil {
		return fmt.Errorf("looking up what the agent used: %w", err)
	}
	call.FirstUse = last.first(call.At.Add(-within))
	return nil
}

// rule has the policy of now rule a request with the facts of now.
func (s *Service) rule(ctx context.Context, current *policy.Policy, r *Request, payload Payload) (policy.Explanation, error) {
	call := r.Call(s.options.Now())
	call.Payload = payload
	if err := s.lookUpUses(ctx, current, Agent{Name: r.Agent, Owner: r.ActsFor}, &call); err != nil {
		return policy.Explanation{}, err
	}
	return current.Explain(call), nil
}
