package approval

import (
	"context"
	"time"
)

// How often the sweeper looks for passed deadlines when it knows of none, and
// how long it waits after an error.
const (
	sweepAtLeast = time.Minute
	sweepRetry   = 5 * time.Second
	sweepBatch   = 100
)

// Sweep records expiry as deadlines pass, until ctx ends. A deadline counts
// without it; it is what makes an expired card say so and waiters wake.
func (s *Service) Sweep(ctx context.Context) {
	changed, stop := s.bell.ListenAll()
	defer stop()
	for {
		wait := sweepRetry
		if next, err := s.sweep(ctx); err == nil {
			wait = next
		} else if ctx.Err() == nil {
			s.options.Logger.Error("recording expired requests", "err", err)
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-changed:
			timer.Stop()
		case <-timer.C:
		}
	}
}

// sweep expires what is overdue and returns how long until the next deadline.
func (s *Service) sweep(ctx context.Context) (time.Duration, error) {
	for {
		overdue, err := s.store.Overdue(ctx, milliseconds(s.options.Now()), sweepBatch)
		if err != nil {
			return 0, err
		}
		for _, id := range overdue {
			if _, err := s.update(ctx, id, func(r *Request) error {
				r.expire(s.options.Now())
				return nil
			}); err != nil {
				return 0, err
			}
		}
		if len(overdue) < sweepBatch {
			break
		}
	}
	next, err := s.store.NextDeadline(ctx)
	if err != nil || next.IsZero() {
		return sweepAtLeast, err
	}
	// Deadlines are whole milliseconds: a timer that ends a moment early would
	// find nothing and spin.
	return min(max(next.Sub(s.options.Now()), time.Millisecond), sweepAtLeast), nil
}
