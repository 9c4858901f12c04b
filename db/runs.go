package db

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/db/internal/sqlc"
)

// Runnable returns up to limit approved requests that the gateway runs, oldest
// first.
func (d *DB) Runnable(ctx context.Context, limit int) ([]approval.ID, error) {
	found, err := d.reads.RunnableRequests(ctx, int64(limit))
	if err != nil {
		return nil, fmt.Errorf("listing what can be run: %w", d.explain(ctx, err))
	}
	return requestIDs(found), nil
}

// Unfinished returns up to limit requests of which the gateway's execution has
// no end yet, oldest first.
func (d *DB) Unfinished(ctx context.Context, limit int) ([]approval.ID, error) {
	found, err := d.reads.UnfinishedRequests(ctx, int64(limit))
	if err != nil {
		return nil, fmt.Errorf("listing unfinished executions: %w", d.explain(ctx, err))
	}
	return requestIDs(found), nil
}

// Result returns the stored result of an execution. approval.ErrNoResult if
// there is none.
func (d *DB) Result(ctx context.Context, execution string) ([]byte, error) {
	result, err := d.reads.LoadResult(ctx, execution)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, approval.ErrNoResult
	}
	if err != nil {
		return nil, fmt.Errorf("loading the result of %s: %w", execution, d.explain(ctx, err))
	}
	return result, nil
}

// OpenRuns returns the pending and approved requests of an action that the
// gateway runs.
func (d *DB) OpenRuns(ctx context.Context, action string) ([]approval.ID, error) {
	found, err := d.reads.OpenRuns(ctx, action)
	if err != nil {
		return nil, fmt.Errorf("listing open requests of %s: %w", action, d.explain(ctx, err))
	}
	return requestIDs(found), nil
}

// Grants returns the requests with a grant that isn't revoked and ends after
// now, oldest first.
func (d *DB) Grants(ctx context.Context, now time.Time) ([]approval.ID, error) {
	found, err := d.reads.Grants(ctx, now.UnixMilli())
	if err != nil {
		return nil, fmt.Errorf("listing grants: %w", d.explain(ctx, err))
	}
	slices.Sort(found) // ids are in the order in which they were made
	return requestIDs(found), nil
}

// GrantsFor is Grants of the same agent, action and target as a request, newest
// first.
func (d *DB) GrantsFor(ctx context.Context, r *approval.Request, now time.Time) ([]approval.ID, error) {
	found, err := d.reads.GrantsFor(ctx, sqlc.GrantsForParams{
		Now:              now.UnixMilli(),
		Agent:            r.Agent,
		ActsForWorkspace: r.ActsFor.Workspace,
		ActsForUser:      r.ActsFor.User,
		Action:           r.Action,
		Target:           r.Target,
	})
	if err != nil {
		return nil, fmt.Errorf("looking for grants of %s: %w", r.Action, d.explain(ctx, err))
	}
	slices.Sort(found)
	slices.Reverse(found)
	return requestIDs(found), nil
}
