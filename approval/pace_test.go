package approval

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/countersign/countersign/policy"
)

func TestAdmit(t *testing.T) {
	t.Parallel()
	limits := policy.Limits{Pending: 3, Cooldown: time.Hour}
	now := start.Add(24 * time.Hour)
	const twin = ID("req_twin")
	for _, test := range []struct {
		name    string
		backlog Backlog
		limits  policy.Limits
		twin    bool
		retryAt time.Time
		refused bool
	}{
		{name: "nothing before", limits: limits},
		{name: "one below the limit", backlog: Backlog{Pending: 2}, limits: limits},
		{name: "at the limit", backlog: Backlog{Pending: 3}, limits: limits, refused: true},
		{name: "above a limit that was lowered", backlog: Backlog{Pending: 9}, limits: limits, refused: true},
		{name: "the same is pending", backlog: Backlog{Pending: 1, Twin: twin}, limits: limits, twin: true},
		{name: "the same is pending, at the limit", backlog: Backlog{Pending: 3, Twin: twin}, limits: limits, twin: true},
		{name: "just rejected", backlog: Backlog{RejectedAt: now}, limits: limits, refused: true, retryAt: now.Add(time.Hour)},
		{name: "a millisecond before the end of the cool-down", backlog: Backlog{RejectedAt: now.Add(time.Millisecond - time.Hour)}, limits: limits, refused: true, retryAt: now.Add(time.Millisecond)},
		{name: "at the end of the cool-down", backlog: Backlog{RejectedAt: now.Add(-time.Hour)}, limits: limits},
		{name: "rejected, and there is no cool-down", backlog: Backlog{RejectedAt: now.Add(time.Minute)}, limits: policy.Limits{Pending: 3}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			r := pending(t)
			r.CreatedAt = now
			err := r.admit(test.backlog, test.limits)
			var same *twinError
			var limit *LimitError
			if got := errors.As(err, &same); got != test.twin || got && same.twin != twin {
				t.Errorf("got %v, want the twin: %t", err, test.twin)
			}
			if got := errors.As(err, &limit); got != test.refused || got && !limit.RetryAt.Equal(test.retryAt) {
				t.Errorf("got %v, want it refused: %t, until %s", err, test.refused, test.retryAt)
			}
			// What policy decided by itself isn't put before people.
			r.Status = Approved
			if err := r.admit(test.backlog, test.limits); err != nil {
				t.Errorf("approved by policy: %v", err)
			}
			// But the gateway doesn't run what they have before them.
			r.Executor = ByGateway
			if err := r.admit(test.backlog, test.limits); errors.As(err, &same) != test.twin || err != nil && !test.twin {
				t.Errorf("approved by policy, for the gateway to run: %v", err)
			}
			r.Status = Rejected
			if err := r.admit(test.backlog, test.limits); err != nil {
				t.Errorf("denied by policy: %v", err)
			}
		})
	}
}

// Whatever an agent does, no more come through within any time than come at
// once and are regained in it, and what a refusal says of when to ask again is
// true.
func TestPaceHolds(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		perMinute := rapid.IntRange(1, 50).Draw(t, "per minute")
		var p pace
		now := start
		var accepted []time.Time
		for range rapid.IntRange(1, 80).Draw(t, "calls") {
			now = now.Add(time.Duration(rapid.Int64Range(0, 4000).Draw(t, "milliseconds")) * time.Millisecond)
			err := p.take(crmAgent, perMinute, now)
			var limit *LimitError
			if err == nil {
				accepted = append(accepted, now)
			} else if !errors.As(err, &limit) || !limit.RetryAt.After(now) {
				t.Fatalf("got %v, retry at %v", err, limit)
			} else if rapid.Bool().Draw(t, "wait") {
				now = limit.RetryAt
				if err := p.take(crmAgent, perMinute, now); err != nil {
					t.Fatalf("at the time that it was told: %v", err)
				}
				accepted = append(accepted, now)
			}
			for i, from := range accepted {
				regained := now.Sub(from).Minutes() * float64(perMinute)
				if got := len(accepted) - i; float64(got) > float64(perMinute)+regained+1e-6 {
					t.Fatalf("%d came through in %s, at %d a minute", got, now.Sub(from), perMinute)
				}
			}
		}
	})
}

func TestPaceOfOthers(t *testing.T) {
	t.Parallel()
	var p pace
	for range 3 {
		must(t, p.take(crmAgent, 3, start))
	}
	if err := p.take(crmAgent, 3, start); err == nil {
		t.Error("a fourth came through")
	}
	must(t, p.take(Agent{Name: crmAgent.Name}, 3, start)) // who acts for nobody is another
	must(t, p.take(Agent{Name: "another"}, 3, start))
	// Another limit of the policy counts at once.
	if err := p.take(crmAgent, 2, start); err == nil {
		t.Error("a lower limit let more through")
	}
	must(t, p.take(Agent{Name: "spender"}, 10, start))
	for range 2 {
		must(t, p.take(Agent{Name: "spender"}, 2, start))
	}
	if err := p.take(Agent{Name: "spender"}, 2, start); err == nil {
		t.Error("what a higher limit had left was let through")
	}
	_ = p.take(crmAgent, 1000, start)
	must(t, p.take(crmAgent, 1000, start.Add(time.Second)))
}

// However many agents there are, the memory for their pace is bounded, and who
// just asked too much isn't forgotten for them.
func TestPaceIsBounded(t *testing.T) {
	t.Parallel()
	var p pace
	now := start
	for range 10 {
		must(t, p.take(crmAgent, 10, now))
	}
	for i := range maxPaced + 100 {
		now = now.Add(time.Microsecond)
		must(t, p.take(Agent{Name: fmt.Sprint(i)}, 10, now))
	}
	if len(p.agents) > maxPaced {
		t.Errorf("it keeps %d agents", len(p.agents))
	}
	if err := p.take(crmAgent, 10, now); err == nil {
		t.Error("an agent that asked too much was forgotten")
	}
	must(t, p.take(Agent{Name: "later"}, 10, now.Add(time.Hour)))
	if len(p.agents) != 1 {
		t.Errorf("it keeps %d agents that asked nothing for an hour", len(p.agents)-1)
	}
}
