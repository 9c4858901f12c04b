package approval_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/approval/approvaltest"
)

func TestReminders(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := approvaltest.New(t, func(o *approval.Options) {
			o.Now = nil
			o.Policy = finance(t, "approval: {requires: [{role: finance}], remind_after: [5m, 10m], escalate: {after: 20m, to: finance}}\n")
		})
		r := f.Propose(t)
		sweep := func(t *testing.T, until time.Time) *approval.Request {
			ctx, stop := context.WithCancel(t.Context())
			go f.Service.Sweep(ctx)
			time.Sleep(time.Until(until))
			synctest.Wait()
			stop()
			synctest.Wait()
			now, err := f.Service.Status(t.Context(), f.Agent, r.ID)
			if err != nil {
				t.Fatal(err)
			}
			return now
		}
		for _, step := range []struct {
			after     time.Duration
			down      bool // nobody sweeps until then
			reminders int
			escalated bool
			status    approval.Status
		}{
			{5*time.Minute - time.Millisecond, false, 0, false, approval.Pending},
			{5 * time.Minute, false, 1, false, approval.Pending},
			{25 * time.Minute, true, 2, true, approval.Pending},
			{59 * time.Minute, false, 2, true, approval.Pending},
			{time.Hour, false, 2, true, approval.Expired},
		} {
			at := r.CreatedAt.Add(step.after)
			if step.down {
				time.Sleep(time.Until(at))
			}
			now := sweep(t, at)
			if now.Reminders != step.reminders || now.Escalated != step.escalated || now.Status != step.status {
				t.Errorf("after %v: got %d reminders, escalated %v, %s", step.after, now.Reminders, now.Escalated, now.Status)
			}
		}
	})
}

// Nobody is reminded of what is decided.
func TestNoReminderOnceDecided(t *testing.T) {
	t.Parallel()
	f := underPolicy(t, "approval: {requires: [{role: finance}], remind_after: [5m]}\n")
	r := f.Decide(t, approvaltest.Alice, f.Propose(t), approval.Approve)
	if due, err := f.Store.NextDue(t.Context()); err != nil || !due.Equal(r.ApplyBy) {
		t.Errorf("due at %v, want %v (%v)", due, r.ApplyBy, err)
	}
}
