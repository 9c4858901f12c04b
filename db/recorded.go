package db

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/db/internal/sqlc"
	"github.com/countersign/countersign/policy"
)

// Recorded returns the last requests of all agents as they were asked, the
// newest first: their payload and digest are those of version 1, and what became
// of them is left out. The ruling of one that a person edited isn't kept, so it
// has only what that was told of first uses.
func (d *DB) Recorded(ctx context.Context, limit int) ([]*approval.Request, error) {
	requests, err := recorded(ctx, d.reads, limit)
	if err != nil {
		return nil, d.explain(ctx, err)
	}
	return requests, nil
}

// Recorded reads the last requests of a data folder, as DB.Recorded does. It
// changes nothing in the folder, and a server may have it open. The error wraps
// os.ErrNotExist if there is no database in it.
func Recorded(ctx context.Context, folder string, limit int) (requests []*approval.Request, err error) {
	processWide()
	path, err := filepath.Abs(filepath.Join(folder, fileName))
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(path); err != nil {
		return nil, fmt.Errorf("looking for the database: %w", err)
	}
	pool, err := sql.Open("sqlite", lookSource(path))
	if err != nil {
		return nil, fmt.Errorf("opening the database in %s: %w", folder, err)
	}
	defer func() { err = errors.Join(err, pool.Close()) }()
	requests, err = recorded(ctx, sqlc.New(pool), limit)
	if err != nil {
		return nil, fmt.Errorf("reading the database in %s: %w", folder, explain(ctx, err))
	}
	return requests, nil
}

func recorded(ctx context.Context, q *sqlc.Queries, limit int) ([]*approval.Request, error) {
	found, err := q.RecentRequests(ctx, int64(limit))
	if err != nil {
		return nil, fmt.Errorf("listing the last requests: %w", err)
	}
	requests := make([]*approval.Request, len(found))
	for i, row := range found {
		// An execution is about a later version.
		row.Request.ExecutionID = nil
		loaded := rows{request: sqlc.LoadRequestRow{Request: row.Request, Payload: row.Payload}}
		now, err := loaded.decode()
		if err != nil {
			return nil, err
		}
		requests[i] = asAsked(now)
	}
	return requests, nil
}

// asAsked is what is left of a request without what happened to it.
func asAsked(now *approval.Request) *approval.Request {
	asked := &approval.Request{
		ID:          now.ID,
		Agent:       now.Agent,
		ActsFor:     now.ActsFor,
		Purpose:     now.Purpose,
		Action:      now.Action,
		Target:      now.Target,
		Environment: now.Environment,
		StatedCount: now.StatedCount,
		Reversible:  now.Reversible,
		Payload:     now.Payload,
		Executor:    now.Executor,
		ToolPin:     now.ToolPin,
		Unpinned:    now.Unpinned,
		Hints:       now.Hints,
		Version:     1,
		Asked:       now.Asked,
		Ruling:      policy.Ruling{FirstUse: now.Ruling.FirstUse},
		CreatedAt:   now.CreatedAt,
		ExpiresAt:   now.ExpiresAt,
	}
	if now.Version == 1 {
		asked.Digest, asked.Ruling, asked.Explanation = now.Digest, now.Ruling, now.Explanation
	}
	return asked
}
