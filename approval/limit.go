package approval

import (
	"fmt"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/countersign/countersign/policy"
)

// Backlog is what an agent asked before, as far as it matters to what it asks
// now. The store looks it up in the transaction that would store the request,
// so that requests at the same moment see each other.
type Backlog struct {
	// Twin is a pending request of the agent that asks the same, or a call of the
	// same that people approved and whose result the agent hasn't got; empty if
	// there is none.
	Twin ID
	// Pending is how many requests of the agent wait for people.
	Pending int
	// RejectedAt is when a person last rejected the same request of the agent, or
	// somebody in its host's view did; zero if nobody did.
	RejectedAt time.Time
}

// twinError means that the agent already waits for an answer to the same.
type twinError struct {
	twin    ID
	allowed bool // the policy asks nobody for it any more
}

func (e *twinError) Error() string { return "the same request is open as " + string(e.twin) }

// admit says why the request isn't stored: the same is before people already, or
// was approved by them and the agent is to get what it comes to; they rejected it
// a moment ago; or the agent has too many waiting.
func (r *Request) admit(backlog Backlog, limits policy.Limits) error {
	// What people have before them doesn't run once more because of a grant, nor
	// in the gateway because the policy asks nobody any more.
	if backlog.Twin != "" && r.Status != Rejected && (r.Status == Pending || r.GrantedBy != "" || r.Executor == ByGateway) {
		return &twinError{twin: backlog.Twin, allowed: r.Status != Pending && r.GrantedBy == ""}
	}
	if r.Status != Pending {
		return nil // people aren't asked
	}
	if err := cooling(backlog.RejectedAt, r.CreatedAt, limits); err != nil {
		return err
	}
	if backlog.Pending >= limits.Pending {
		return &LimitError{Problem: fmt.Sprintf("This agent has as many requests waiting for people as the policy lets it have: %d. Wait for a decision before asking for more.", limits.Pending)}
	}
	return nil
}

// cooling says that something was rejected too short a time ago to be asked now.
func cooling(rejectedAt, now time.Time, limits policy.Limits) error {
	again := rejectedAt.Add(limits.Cooldown)
	if limits.Cooldown <= 0 || rejectedAt.IsZero() || !now.Before(again) {
		return nil
	}
	return &LimitError{
		Problem: fmt.Sprintf("Exactly this was rejected at %s. It can't be asked again before %s.", timeText(rejectedAt), timeText(again)),
		RetryAt: again,
	}
}

// maxPaced bounds for how many agents the pace is kept at once.
const maxPaced = 4096

// pace bounds how fast each agent may ask, whatever becomes of what it asks: as
// many requests as may come in a minute may come at once. It is in memory, so
// that a restart forgives.
type pace struct {
	mu     sync.Mutex
	agents map[Agent]*rate.Limiter
}

// take counts one request of the agent and says why it is too many.
func (p *pace) take(agent Agent, perMinute int, now time.Time) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	limit := rate.Limit(float64(perMinute) / 60)
	limiter := p.agents[agent]
	if limiter == nil {
		limiter = rate.NewLimiter(limit, perMinute)
		if p.agents == nil {
			p.agents = make(map[Agent]*rate.Limiter)
		}
		if len(p.agents) >= maxPaced {
			p.forget(now)
		}
		p.agents[agent] = limiter
	}
	if limiter.Burst() != perMinute {
		limiter.SetLimitAt(now, limit)
		limiter.SetBurstAt(now, perMinute)
	}
	if limiter.AllowN(now, 1) {
		return nil
	}
	// A millisecond more, since the limiter reckons with fractions.
	wait := time.Duration((1-limiter.TokensAt(now))/float64(limit)*float64(time.Second)).Truncate(time.Millisecond) + time.Millisecond
	return &LimitError{
		Problem: fmt.Sprintf("This agent asks more than %d times a minute, which is what the policy lets one do. Ask again in %s.", perMinute, wait.Round(time.Second)+time.Second),
		RetryAt: now.Add(wait),
	}
}

// forget makes room: it forgets the agents that asked nothing for so long that
// they may ask as if they were new, or else the one that may ask the most.
func (p *pace) forget(now time.Time) {
	var idlest Agent
	most := -1.0
	for agent, limiter := range p.agents {
		left := limiter.TokensAt(now)
		if left >= float64(limiter.Burst()) {
			delete(p.agents, agent)
		} else if left > most {
			idlest, most = agent, left
		}
	}
	if len(p.agents) >= maxPaced {
		delete(p.agents, idlest)
	}
}
