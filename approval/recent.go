package approval

import (
	"context"
	"sync"
	"time"

	"github.com/countersign/countersign/policy"
)

// StandingFor is how long it counts for looking at things that somebody holds a
// role. It counts for nothing that changes something.
const StandingFor = 30 * time.Second

// maxRecent bounds the people whose standing is kept.
const maxRecent = 1000

// recent is what was last found out of people. An open page follows each change of
// what waits, and asking each time who reads it would use up what a directory
// answers in a minute, which those who decide then lack.
type recent struct {
	mu    sync.Mutex
	known map[Approver]knownStanding
}

type knownStanding struct {
	standing Standing
	policy   *policy.Policy // that named the roles
	at       time.Time
}

func (k knownStanding) holds(current *policy.Policy, now time.Time) bool {
	age := now.Sub(k.at)
	return k.policy == current && 0 <= age && age < StandingFor
}

func (r *recent) note(who Approver, standing Standing, current *policy.Policy, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.known) >= maxRecent {
		clear(r.known)
	}
	if r.known == nil {
		r.known = make(map[Approver]knownStanding)
	}
	r.known[who] = knownStanding{standing, current, now}
}

func (r *recent) forget(who Approver) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.known, who)
}

func (r *recent) find(who Approver) (knownStanding, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	known, ok := r.known[who]
	return known, ok
}

// RecentStanding is Standing as of a moment that is at most StandingFor ago, for
// looking at things.
func (s *Service) RecentStanding(ctx context.Context, who Approver) (Standing, error) {
	if known, ok := s.recent.find(who); ok && known.holds(s.Policy(), s.options.Now()) {
		return known.standing, nil
	}
	return s.Standing(ctx, who)
}
