package db

import (
	"context"
	"database/sql"
	"errors"
	"sync"

	"github.com/countersign/countersign/db/internal/sqlc"
)

// statements runs each text that it is given as a statement that is prepared
// once. It is what the generated queries run on.
type statements struct {
	on    sqlc.DBTX
	trace func(string)

	mu       sync.Mutex
	prepared map[string]*sql.Stmt
}

var _ sqlc.DBTX = (*statements)(nil)

func newStatements(on sqlc.DBTX, trace func(string)) *statements {
	return &statements{on: on, trace: trace, prepared: make(map[string]*sql.Stmt)}
}

// PrepareContext returns the prepared statement, which close closes.
func (s *statements) PrepareContext(ctx context.Context, query string) (*sql.Stmt, error) {
	if s.trace != nil {
		s.trace(query)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if statement := s.prepared[query]; statement != nil {
		return statement, nil
	}
	statement, err := s.on.PrepareContext(ctx, query)
	if err == nil {
		s.prepared[query] = statement
	}
	return statement, err
}

// ExecContext runs a statement that returns no rows.
func (s *statements) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	statement, err := s.PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	return statement.ExecContext(ctx, args...)
}

// QueryContext runs a statement that returns rows.
func (s *statements) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	statement, err := s.PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	return statement.QueryContext(ctx, args...)
}

// QueryRowContext runs a statement that returns one row.
func (s *statements) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	statement, err := s.PrepareContext(ctx, query)
	if err != nil {
		// A sql.Row with an error in it can only be had by failing again.
		return s.on.QueryRowContext(ctx, query, args...)
	}
	return statement.QueryRowContext(ctx, args...)
}

func (s *statements) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for _, statement := range s.prepared {
		errs = append(errs, statement.Close())
	}
	clear(s.prepared)
	return errors.Join(errs...)
}
