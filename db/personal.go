package db

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/db/internal/sqlc"
)

func insertPersonalNotice(ctx context.Context, q *sqlc.Queries, n approval.PersonalNotice) error {
	if err := q.InsertPersonalNotice(ctx, sqlc.InsertPersonalNoticeParams{
		ID:              n.ID,
		PersonWorkspace: n.Person.Workspace,
		PersonUser:      n.Person.User,
		Kind:            string(n.Kind),
		Passkey:         n.Passkey,
		HappenedAt:      n.At.UnixMilli(),
	}); err != nil {
		return fmt.Errorf("inserting a notice for a person: %w", err)
	}
	return nil
}

// LeasePersonalNotice takes the oldest due notice for a person of a workspace,
// until the given time. false if none can be had now. until, and the next
// attempt of a settlement, must be within an hour of now: what is further ahead
// is due at once.
func (d *DB) LeasePersonalNotice(ctx context.Context, workspace string, now, until time.Time) (approval.PersonalNotice, bool, error) {
	var notice approval.PersonalNotice
	err := d.writer.do(ctx, func(q *sqlc.Queries) error {
		row, err := q.LeasePersonalNotice(context.Background(), sqlc.LeasePersonalNoticeParams{
			Workspace: workspace,
			Now:       now.UnixMilli(),
			Latest:    now.Add(longestWait).UnixMilli(),
			Until:     until.UnixMilli(),
		})
		if err != nil {
			return err
		}
		notice = approval.PersonalNotice{
			ID:          row.ID,
			Person:      approval.Approver{Workspace: row.PersonWorkspace, User: row.PersonUser},
			Kind:        approval.PersonalNoticeKind(row.Kind),
			Passkey:     row.Passkey,
			At:          moment(row.HappenedAt),
			Attempts:    int(row.Attempts),
			LeasedUntil: moment(row.LeasedUntil),
		}
		return nil
	})
	if errors.Is(err, sql.ErrNoRows) {
		return approval.PersonalNotice{}, false, nil
	}
	if err != nil {
		return approval.PersonalNotice{}, false, fmt.Errorf("leasing a notice for a person of %s: %w", workspace, err)
	}
	return notice, true, nil
}

// SettlePersonalNotice records what became of a leased notice, which is told once
// the settlement has a reference, and ends the lease. If the lease was lost,
// nothing is recorded: the other's settlement counts.
func (d *DB) SettlePersonalNotice(ctx context.Context, n approval.PersonalNotice, s approval.Settlement) error {
	row := sqlc.SettlePersonalNoticeParams{
		ID:            n.ID,
		LeaseUntil:    n.LeasedUntil.UnixMilli(),
		LeaseAttempts: int64(n.Attempts),
		Reference:     s.Reference,
		Failure:       s.Failure,
		Abandoned:     flag(s.Abandon),
	}
	if !s.NextAttempt.IsZero() {
		row.NextAttemptAt = s.NextAttempt.UnixMilli()
	}
	err := d.writer.do(ctx, func(q *sqlc.Queries) error {
		_, err := q.SettlePersonalNotice(context.Background(), row)
		return err
	})
	if err != nil {
		return fmt.Errorf("settling the notice %s: %w", n.ID, err)
	}
	return nil
}

// NextPersonalNotice returns when the next due notice for a person of a workspace
// may be leased, which may have passed and is at most an hour after now; the zero
// time is at once. false if none is due.
func (d *DB) NextPersonalNotice(ctx context.Context, workspace string, now time.Time) (time.Time, bool, error) {
	at, err := d.reads.NextPersonalNotice(ctx, sqlc.NextPersonalNoticeParams{
		Workspace: workspace,
		Latest:    now.Add(longestWait).UnixMilli(),
	})
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return time.Time{}, false, nil
	case err != nil:
		return time.Time{}, false, fmt.Errorf("finding the next notice for a person of %s: %w", workspace, d.explain(ctx, err))
	case at == 0:
		return time.Time{}, true, nil
	}
	return moment(at), true, nil
}
