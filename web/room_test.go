package web

import (
	"crypto/rand"
	"testing"
	"time"
)

// Those who begin to sign in without end make the oldest ones give way, and nobody
// has to look at all of them each time.
func TestSignInsWithoutEnd(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	s := newSessions(func() time.Time { now = now.Add(time.Millisecond); return now }, rand.Text)
	type begun struct{ browser, state token }
	var first, middle begun
	for i := range maxKept {
		browser, state, _ := s.begin("Slack", "/", false)
		switch i {
		case 0:
			first = begun{browser, state}
		case maxKept / 2:
			middle = begun{browser, state}
		}
	}
	looks := 0
	for range 50 {
		makeRoom(s.attempts, func(one signInAttempt) time.Time {
			looks++
			return one.begunAt
		})
		s.begin("Slack", "/", false)
	}
	if len(s.attempts) > maxKept {
		t.Errorf("%d are kept", len(s.attempts))
	}
	if most := 40 * maxKept; looks > most {
		t.Errorf("%d looks for 50 of them, want at most %d", looks, most)
	}
	if _, ok := s.finish(first.browser, first.state); ok {
		t.Error("the oldest has not given way")
	}
	if _, ok := s.finish(middle.browser, middle.state); !ok {
		t.Error("one that isn't old has given way")
	}
}
