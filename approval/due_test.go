package approval

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/countersign/countersign/policy"
)

// At any time, what is due is done at once and is then not due any more, or the
// sweeper would spin; nothing is done before it is due, nothing after the
// deadline, and what was missed comes as one.
func TestReminding(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		ruling := oneOf("oncall")
		var after time.Duration
		for range rapid.IntRange(0, 4).Draw(t, "reminders") {
			after += time.Duration(rapid.Int64Range(1, 40_000_000).Draw(t, "after")) * time.Microsecond * 100
			ruling.RemindAfter = append(ruling.RemindAfter, after)
		}
		if rapid.Bool().Draw(t, "escalates") {
			ruling.Escalation = policy.Escalation{To: "sre", After: time.Duration(rapid.Int64Range(1, 90_000_000).Draw(t, "escalate after")) * time.Microsecond * 100}
		}
		p := Proposal{Purpose: "Clean up", Payload: []byte(`{}`), TTL: time.Duration(rapid.IntRange(1, 180).Draw(t, "minutes")) * time.Minute}
		r, err := propose(crmAgent, p, policy.Explanation{Ruling: ruling}, start, source(), nil)
		if err != nil {
			t.Fatal(err)
		}
		now := start
		for range rapid.IntRange(1, 12).Draw(t, "sweeps") {
			now = now.Add(time.Duration(rapid.Int64Range(0, 3_600_000).Draw(t, "milliseconds")) * time.Millisecond)
			if rapid.Bool().Draw(t, "when it is due") && !r.Due().IsZero() && r.Due().After(now) {
				now = r.Due()
			}
			due, before := r.Due(), *r
			expired := r.expire(now)
			r.remind(now)
			switch {
			case due.IsZero() || now.Before(due):
				if r.Revision != before.Revision {
					t.Fatalf("something was done at %s, and the next is due at %s", now, due)
				}
				continue
			case r.Revision == before.Revision:
				t.Fatalf("nothing was done at %s, although it was due at %s", now, due)
			}
			if next := r.Due(); !next.IsZero() && !next.After(now) {
				t.Fatalf("at %s it is due at %s, after all was done", now, next)
			}
			if expired && (r.Reminders != before.Reminders || r.Escalated != before.Escalated) {
				t.Fatal("people were reminded of what had expired")
			}
			reminded := 0
			for _, event := range r.events[len(before.events):] {
				if event.Type == "request.reminded" {
					reminded++
				}
			}
			if reminded > 1 {
				t.Fatalf("people were reminded %d times at once", reminded)
			}
		}
		if due := r.Due(); due.After(r.ExpiresAt) {
			t.Fatalf("due at %s, after the deadline", due)
		}
	})
}

// What is decided, and what an edit made new, reminds as it should.
func TestRemindingAfterOtherChanges(t *testing.T) {
	t.Parallel()
	for _, state := range []string{"approved", "applied", "rejected", "expired", "superseded"} {
		r := in(t, state)
		r.Ruling.RemindAfter = []time.Duration{time.Minute}
		r.Ruling.Escalation = policy.Escalation{To: "sre", After: time.Minute}
		before := r.Revision
		r.remind(start.Add(10 * time.Minute))
		if r.Revision != before || !r.Due().Equal(r.Deadline()) {
			t.Errorf("%s: people were reminded, or are due to be at %s", state, r.Due())
		}
	}
	r := pending(t)
	r.Ruling.RemindAfter = []time.Duration{time.Minute, time.Hour / 2}
	r.remind(start.Add(2 * time.Minute))
	less := r.Ruling
	less.RemindAfter = []time.Duration{time.Minute}
	must(t, r.edit(grace, 1, Payload(`{}`), policy.Explanation{Ruling: less}, Slack, start.Add(3*time.Minute)))
	r.remind(start.Add(50 * time.Minute))
	if r.Reminders != 1 {
		t.Errorf("%d reminders, and policy has one now", r.Reminders)
	}
}
