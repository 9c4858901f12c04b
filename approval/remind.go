package approval

import "time"

// Due is when the request has to be looked at: when it or its grant expires, or
// before that when people are to be reminded of it or others to be called. It is
// zero if nothing more happens by itself.
func (r *Request) Due() time.Time {
	due := r.Deadline()
	others := []time.Time{r.grantEnd()}
	if r.Status == Pending {
		others = []time.Time{r.nextReminder(), r.escalateAt()}
	}
	for _, next := range others {
		if !next.IsZero() && (due.IsZero() || next.Before(due)) {
			due = next
		}
	}
	return due
}

// nextReminder is when people are reminded next; zero if never.
func (r *Request) nextReminder() time.Time {
	if r.ClientOnly || r.Reminders >= len(r.Ruling.RemindAfter) {
		return time.Time{}
	}
	return r.CreatedAt.Add(r.Ruling.RemindAfter[r.Reminders])
}

// escalateAt is when others are called; zero if never, or if they were.
func (r *Request) escalateAt() time.Time {
	if r.ClientOnly || r.Escalated || r.Ruling.Escalation.After == 0 {
		return time.Time{}
	}
	return r.CreatedAt.Add(r.Ruling.Escalation.After)
}

// remind records that people are to be reminded, and others called, if it is
// time. Reminders that were missed are one.
func (r *Request) remind(now time.Time) {
	if r.Status != Pending {
		return
	}
	before := r.Reminders
	for next := r.nextReminder(); !next.IsZero() && !now.Before(next); next = r.nextReminder() {
		r.Reminders++
	}
	if r.Reminders > before {
		r.changed(now, "request.reminded", "countersign", "", map[string]any{"reminders": r.Reminders})
	}
	if at := r.escalateAt(); !at.IsZero() && !now.Before(at) {
		r.Escalated = true
		r.changed(now, "request.escalated", "countersign", "", map[string]any{"to": r.Ruling.Escalation.To})
	}
}
