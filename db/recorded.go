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
)

// Recorded returns the last requests of all agents as they were asked, the
// newest first: with the payload of version 1, and without decisions.
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
	pool, err := sql.Open("sqlite", source(path, true))
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
		if requests[i], err = loaded.decode(); err != nil {
			return nil, err
		}
	}
	return requests, nil
}
