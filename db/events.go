package db

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"iter"

	"github.com/countersign/countersign/audit"
	"github.com/countersign/countersign/db/internal/sqlc"
)

// eventPage is how many events are in memory at once while all are read.
const eventPage = 500

// appendEvents seals the events onto the chain. The last one is read from the
// file, in the transaction that appends: another process may have appended.
func appendEvents(ctx context.Context, q *sqlc.Queries, events []audit.Event) error {
	if len(events) == 0 {
		return nil
	}
	var sequence int64
	var previous audit.Hash
	switch last, err := q.LastEvent(ctx); {
	case errors.Is(err, sql.ErrNoRows):
	case err != nil:
		return fmt.Errorf("reading the last event: %w", err)
	default:
		sequence = last.Sequence
		if previous, err = decodeHash(last.Hash); err != nil {
			return fmt.Errorf("reading event %d: %w", sequence, err)
		}
	}
	for _, event := range events {
		event = event.Seal(sequence, previous)
		if err := q.InsertEvent(ctx, sqlc.InsertEventParams{
			Sequence:  event.Sequence,
			Type:      event.Type,
			At:        event.At.UnixMilli(),
			RequestID: event.RequestID,
			Actor:     event.Actor,
			Surface:   event.Surface,
			Version:   int64(event.Version),
			Digest:    event.Digest,
			Detail:    event.Detail,
			Previous:  event.Previous[:],
			Hash:      event.Hash[:],
		}); err != nil {
			return fmt.Errorf("appending event %d: %w", event.Sequence, err)
		}
		sequence, previous = event.Sequence, event.Hash
	}
	return nil
}

// Append stores an event that is about no request.
func (d *DB) Append(ctx context.Context, event audit.Event) error {
	return d.writer.do(ctx, func(q *sqlc.Queries) error {
		return appendEvents(context.Background(), q, []audit.Event{event})
	})
}

// Events reads all events in order, some at a time, as audit.Verify takes them.
// Events that are appended meanwhile are read too. The sequence ends after its
// first error.
func (d *DB) Events(ctx context.Context) iter.Seq2[audit.Event, error] {
	return func(yield func(audit.Event, error) bool) {
		var after int64
		for {
			page, err := d.reads.EventsAfter(ctx, sqlc.EventsAfterParams{After: after, Count: eventPage})
			if err != nil {
				yield(audit.Event{}, d.explain(ctx, err))
				return
			}
			for _, row := range page {
				event, err := decodeEvent(row)
				if !yield(event, err) || err != nil {
					return
				}
				after = row.Sequence
			}
			if len(page) < eventPage {
				return
			}
		}
	}
}

func decodeEvent(row sqlc.Event) (audit.Event, error) {
	event := audit.Event{
		Type:      row.Type,
		At:        moment(row.At),
		RequestID: row.RequestID,
		Actor:     row.Actor,
		Surface:   row.Surface,
		Version:   int(row.Version),
		Digest:    row.Digest,
		Detail:    row.Detail,
		Sequence:  row.Sequence,
	}
	var err error
	if event.Previous, err = decodeHash(row.Previous); err != nil {
		return event, err
	}
	event.Hash, err = decodeHash(row.Hash)
	return event, err
}

func decodeHash(data []byte) (audit.Hash, error) {
	var hash audit.Hash
	if len(data) != len(hash) {
		return hash, fmt.Errorf("a hash has %d bytes: %w", len(data), audit.ErrBroken)
	}
	return audit.Hash(data), nil
}
