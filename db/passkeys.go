package db

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/db/internal/sqlc"
)

// errPasskeyChanged means that another process changed a passkey meanwhile.
var errPasskeyChanged = fmt.Errorf("%w: a passkey was changed meanwhile; try again", approval.ErrUnavailable)

// UpdatePasskeys loads a person's passkeys, runs change on them and saves what it
// did, as approval.Store says. change runs in the writer's goroutine.
func (d *DB) UpdatePasskeys(ctx context.Context, owner approval.Approver, change func(*approval.Keyring) error) error {
	return d.writer.do(ctx, func(q *sqlc.Queries) error {
		ctx := context.Background()
		before, err := loadPasskeys(ctx, q, owner)
		if err != nil {
			return err
		}
		ring := approval.Keyring{Owner: owner, Passkeys: slices.Clone(before)}
		if err := change(&ring); err != nil {
			return err
		}
		if err := savePasskeys(ctx, q, before, ring.Passkeys); err != nil {
			return err
		}
		for _, notice := range ring.Notices() {
			if err := insertPersonalNotice(ctx, q, notice); err != nil {
				return err
			}
		}
		return appendEvents(ctx, q, ring.Events())
	})
}

// Passkeys returns a person's passkeys, oldest first.
func (d *DB) Passkeys(ctx context.Context, owner approval.Approver) ([]approval.Passkey, error) {
	passkeys, err := loadPasskeys(ctx, d.reads, owner)
	if err != nil {
		return nil, d.explain(ctx, err)
	}
	return passkeys, nil
}

func loadPasskeys(ctx context.Context, q *sqlc.Queries, owner approval.Approver) ([]approval.Passkey, error) {
	rows, err := q.ListPasskeys(ctx, sqlc.ListPasskeysParams{OwnerWorkspace: owner.Workspace, OwnerUser: owner.User})
	if err != nil {
		return nil, fmt.Errorf("listing passkeys: %w", err)
	}
	passkeys := make([]approval.Passkey, len(rows))
	for i, row := range rows {
		passkeys[i] = approval.Passkey{
			ID:         row.ID,
			Owner:      owner,
			Name:       row.Name,
			Credential: row.Credential,
			SignCount:  uint32(row.SignCount),
			EnrolledAt: moment(row.EnrolledAt),
			UsedAt:     optionalMoment(row.UsedAt),
		}
	}
	return passkeys, nil
}

// savePasskeys makes the difference between what was loaded and what there is to
// be. Of a passkey that stays, only its use can have changed.
func savePasskeys(ctx context.Context, q *sqlc.Queries, before, after []approval.Passkey) error {
	find := func(all []approval.Passkey, id []byte) int {
		return slices.IndexFunc(all, func(one approval.Passkey) bool { return bytes.Equal(one.ID, id) })
	}
	for _, one := range before {
		if find(after, one.ID) >= 0 {
			continue
		}
		if changed, err := q.DeletePasskey(ctx, one.ID); err != nil {
			return fmt.Errorf("removing a passkey: %w", err)
		} else if changed == 0 {
			return errPasskeyChanged
		}
	}
	for _, one := range after {
		at := find(before, one.ID)
		if at < 0 {
			changed, err := q.InsertPasskey(ctx, sqlc.InsertPasskeyParams{
				ID:             one.ID,
				OwnerWorkspace: one.Owner.Workspace,
				OwnerUser:      one.Owner.User,
				Name:           one.Name,
				Credential:     one.Credential,
				SignCount:      int64(one.SignCount),
				EnrolledAt:     one.EnrolledAt.UnixMilli(),
				UsedAt:         optionalTime(one.UsedAt),
			})
			if err != nil {
				return fmt.Errorf("inserting a passkey: %w", err)
			}
			if changed == 0 {
				return approval.ErrPasskeyKnown
			}
			continue
		}
		loaded := before[at]
		if one.SignCount == loaded.SignCount && one.UsedAt.Equal(loaded.UsedAt) {
			continue
		}
		changed, err := q.UsePasskey(ctx, sqlc.UsePasskeyParams{
			ID:              one.ID,
			SignCount:       int64(one.SignCount),
			UsedAt:          optionalTime(one.UsedAt),
			LoadedSignCount: int64(loaded.SignCount),
		})
		if err != nil {
			return fmt.Errorf("noting the use of a passkey: %w", err)
		}
		if changed == 0 {
			return errPasskeyChanged
		}
	}
	return nil
}
