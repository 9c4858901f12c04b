package approval

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// How often the sweeper looks for passed deadlines when it knows of none, and
// how long it waits after an error.
const (
	sweepAtLeast = time.Minute
	sweepRetry   = 5 * time.Second
	sweepBatch   = 100
)

// Sweep records expiry as deadlines pass, and that it is time to remind people
// or to call others, until ctx ends. A deadline counts without it; it is what
// makes an expired card say so and waiters wake.
func (s *Service) Sweep(ctx context.Context) {
	changed, stop := s.bell.ListenAll()
	defer stop()
	for ctx.Err() == nil {
		wake := changed
		wait, err := s.sweep(ctx)
		if err != nil && ctx.Err() == nil {
			s.options.Logger.Error("looking after requests that are due", "err", err)
			// What fails now fails at the next bell too.
			wait, wake = sweepRetry, nil
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-wake:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// sweep does what is due and returns how long until the next time. One request
// that can't be saved doesn't keep the others from it.
func (s *Service) sweep(ctx context.Context) (time.Duration, error) {
	due, err := s.store.Due(ctx, milliseconds(s.options.Now()), sweepBatch)
	if err != nil {
		return 0, err
	}
	var problems []error
	for _, id := range due {
		if _, err := s.change(ctx, id, remind); err != nil {
			problems = append(problems, fmt.Errorf("looking after %s: %w", id, err))
		}
	}
	if len(problems) > 0 {
		return 0, errors.Join(problems...)
	}
	next, err := s.store.NextDue(ctx)
	if err != nil || next.IsZero() {
		return sweepAtLeast, err
	}
	// Times are whole milliseconds: a timer that ends a moment early would
	// find nothing and spin.
	return min(max(next.Sub(s.options.Now()), time.Millisecond), sweepAtLeast), nil
}
