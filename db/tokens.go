package db

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/audit"
	"github.com/countersign/countersign/db/internal/sqlc"
)

// InsertToken stores a token with the hash of its secret, and its event.
func (d *DB) InsertToken(ctx context.Context, t approval.Token, hash approval.TokenHash) error {
	return d.writer.do(ctx, func(q *sqlc.Queries) error {
		ctx := context.Background()
		if err := q.InsertToken(ctx, sqlc.InsertTokenParams{
			ID:             t.ID,
			Agent:          t.Agent,
			OwnerWorkspace: t.Owner.Workspace,
			OwnerUser:      t.Owner.User,
			Hash:           hash[:],
			CreatedAt:      t.CreatedAt.UnixMilli(),
			CreatedBy:      t.CreatedBy.Name,
			RevokedAt:      optionalTime(t.RevokedAt),
		}); err != nil {
			return fmt.Errorf("inserting token %s: %w", t.ID, err)
		}
		return appendEvents(ctx, q, []audit.Event{t.Created()})
	})
}

// RevokeToken revokes a token, with its event. approval.ErrToken if it is
// unknown or already revoked.
func (d *DB) RevokeToken(ctx context.Context, id string, by approval.Operator, now time.Time) error {
	return d.writer.do(ctx, func(q *sqlc.Queries) error {
		ctx := context.Background()
		row, err := q.RevokeToken(ctx, sqlc.RevokeTokenParams{ID: id, RevokedAt: now.UnixMilli()})
		if errors.Is(err, sql.ErrNoRows) {
			return approval.ErrToken
		}
		if err != nil {
			return fmt.Errorf("revoking token %s: %w", id, err)
		}
		return appendEvents(ctx, q, []audit.Event{decodeToken(row).Revoked(by, now)})
	})
}

// Tokens lists all tokens, oldest first.
func (d *DB) Tokens(ctx context.Context) ([]approval.Token, error) {
	rows, err := d.reads.ListTokens(ctx)
	if err != nil {
		return nil, fmt.Errorf("listing tokens: %w", d.explain(ctx, err))
	}
	tokens := make([]approval.Token, len(rows))
	for i, row := range rows {
		tokens[i] = decodeToken(row)
	}
	return tokens, nil
}

// TokenByHash finds a token that isn't revoked. approval.ErrToken if there is
// none.
func (d *DB) TokenByHash(ctx context.Context, hash approval.TokenHash) (approval.Token, error) {
	row, err := d.reads.TokenByHash(ctx, hash[:])
	if errors.Is(err, sql.ErrNoRows) {
		return approval.Token{}, approval.ErrToken
	}
	if err != nil {
		return approval.Token{}, fmt.Errorf("finding a token: %w", d.explain(ctx, err))
	}
	return decodeToken(row), nil
}

func decodeToken(row sqlc.Token) approval.Token {
	return approval.Token{
		ID:        row.ID,
		Agent:     row.Agent,
		Owner:     approval.Approver{Workspace: row.OwnerWorkspace, User: row.OwnerUser},
		CreatedAt: moment(row.CreatedAt),
		CreatedBy: approval.Operator{Name: row.CreatedBy},
		RevokedAt: optionalMoment(row.RevokedAt),
	}
}
