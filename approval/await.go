package approval

import (
	"context"
	"math"
	"time"
)

// Status returns an agent's own request as it is now: a passed deadline counts
// even if nobody has recorded it yet. ErrNotFound if it is unknown or another
// agent's: one of another name, or one that acts for somebody else.
func (s *Service) Status(ctx context.Context, agent Agent, id ID) (*Request, error) {
	r, err := s.read(ctx, id)
	if err != nil {
		return nil, err
	}
	if r.Agent != agent.Name || r.ActsFor != agent.Owner {
		return nil, ErrNotFound
	}
	return r, nil
}

// Await is Status that waits until the request is no longer pending. It returns
// the request as it is, still pending, when bound has passed or Drain was
// called, and ctx's error when the caller goes away, which never changes the
// request.
func (s *Service) Await(ctx context.Context, agent Agent, id ID, bound time.Duration) (*Request, error) {
	return s.await(ctx, agent, id, bound, func(r *Request) bool { return r.Status == Pending })
}

// AwaitChange is Status that waits, as Await does, until the request's Revision is
// another one than revision.
func (s *Service) AwaitChange(ctx context.Context, agent Agent, id ID, revision int64, bound time.Duration) (*Request, error) {
	return s.await(ctx, agent, id, bound, func(r *Request) bool { return r.Revision == revision })
}

// await waits as long as goOn says of the request.
func (s *Service) await(ctx context.Context, agent Agent, id ID, bound time.Duration, goOn func(*Request) bool) (*Request, error) {
	rung, stop := s.bell.Listen(id)
	defer stop()
	r, err := s.Status(ctx, agent, id)
	if err != nil || !goOn(r) {
		return r, err
	}
	end := time.NewTimer(bound)
	defer end.Stop()
	for {
		// What expires changes nothing that rings.
		expiry := time.NewTimer(untilDeadline(r, s.options.Now()))
		over := false
		select {
		case <-rung:
		case <-expiry.C:
		case <-end.C:
			over = true
		case <-s.draining:
			over = true
		case <-ctx.Done():
			expiry.Stop()
			return nil, context.Cause(ctx)
		}
		expiry.Stop()
		r, err = s.Status(ctx, agent, id)
		if err != nil || !goOn(r) || over {
			return r, err
		}
	}
}

// untilDeadline is how long until the request expires; long if it won't.
func untilDeadline(r *Request, now time.Time) time.Duration {
	deadline := r.Deadline()
	if deadline.IsZero() {
		return math.MaxInt64
	}
	// Times are whole milliseconds: a timer that ends a moment early would find
	// nothing.
	return max(deadline.Sub(now), time.Millisecond)
}

// Drain ends all waiting, now and from now on, as if its bound had passed.
func (s *Service) Drain() { s.drain.Do(func() { close(s.draining) }) }

// Draining is closed once Drain was called: whoever waits for changes by other
// means than Await ends then too.
func (s *Service) Draining() <-chan struct{} { return s.draining }
