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

// longestWait is how far ahead a lease or a next attempt can be. No worker asks
// for more, so what is further ahead was written while the clock was wrong; it
// counts as past, or a card would be missing until the clock gets there.
const longestWait = time.Hour

// LeaseNotice takes the notice for a destination that is due and has waited
// longest, until the given time, and returns it with its request. false if none
// can be had now. The lease is durable: if the process ends before it settles a
// first delivery, the next lease is told that the delivery is uncertain. until,
// and the next attempt of a settlement, must be within an hour of now: what is
// further ahead is due at once. The error wraps ErrCorrupt if the request can't
// be read; its lease stays, so that the requests behind it get their turn.
func (d *DB) LeaseNotice(ctx context.Context, destination string, now, until time.Time) (approval.Notice, *approval.Request, bool, error) {
	var notice approval.Notice
	var r *approval.Request
	var damaged error
	err := d.writer.do(ctx, func(q *sqlc.Queries) error {
		ctx := context.Background()
		row, err := q.LeaseNotice(ctx, sqlc.LeaseNoticeParams{
			Destination: destination,
			Now:         now.UnixMilli(),
			Latest:      now.Add(longestWait).UnixMilli(),
			Until:       until.UnixMilli(),
		})
		if err != nil {
			return err
		}
		loaded, err := load(ctx, q, approval.ID(row.RequestID))
		if err == nil {
			r, err = loaded.decode()
		}
		if errors.Is(err, ErrCorrupt) {
			damaged = err
			return nil
		}
		if err != nil {
			return err
		}
		notice = approval.Notice{
			Request:      approval.ID(row.RequestID),
			Destination:  row.Destination,
			Reference:    row.Reference,
			SentRevision: row.SentRevision,
			Attempts:     int(row.Attempts),
			Uncertain:    row.Uncertain != 0,
			LeasedUntil:  moment(row.LeasedUntil),
		}
		return nil
	})
	if errors.Is(err, sql.ErrNoRows) {
		return approval.Notice{}, nil, false, nil
	}
	if err == nil {
		err = damaged
	}
	if err != nil {
		return approval.Notice{}, nil, false, fmt.Errorf("leasing a notice for %s: %w", destination, err)
	}
	return notice, r, true, nil
}

// SettleNotice records what became of a leased notice and ends the lease. If
// the lease was lost, which is if another worker has leased the notice since,
// nothing is recorded: the other's settlement counts.
func (d *DB) SettleNotice(ctx context.Context, n approval.Notice, s approval.Settlement, now time.Time) error {
	row := sqlc.SettleNoticeParams{
		RequestID:     string(n.Request),
		Destination:   n.Destination,
		LeaseUntil:    n.LeasedUntil.UnixMilli(),
		LeaseAttempts: int64(n.Attempts),
		SentRevision:  s.SentRevision,
		Reference:     s.Reference,
		Unsettled:     flag(s.Uncertain && s.Reference == ""),
		DueSince:      now.UnixMilli(),
		Failure:       s.Failure,
		Abandoned:     flag(s.Abandon),
	}
	if s.Failure != "" {
		row.Attempts = int64(n.Attempts)
	}
	if !s.NextAttempt.IsZero() {
		row.NextAttemptAt = s.NextAttempt.UnixMilli()
	}
	err := d.writer.do(ctx, func(q *sqlc.Queries) error {
		_, err := q.SettleNotice(context.Background(), row)
		return err
	})
	if err != nil {
		return fmt.Errorf("settling the notice of %s for %s: %w", n.Request, n.Destination, err)
	}
	return nil
}

// NextNotice returns when the next due notice for a destination may be leased,
// which may have passed and is at most an hour after now; the zero time is at
// once. false if none is due.
func (d *DB) NextNotice(ctx context.Context, destination string, now time.Time) (time.Time, bool, error) {
	at, err := d.reads.NextNotice(ctx, sqlc.NextNoticeParams{
		Destination: destination,
		Latest:      now.Add(longestWait).UnixMilli(),
	})
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return time.Time{}, false, nil
	case err != nil:
		return time.Time{}, false, fmt.Errorf("finding the next notice for %s: %w", destination, d.explain(ctx, err))
	case at == 0:
		return time.Time{}, true, nil
	}
	return moment(at), true, nil
}
