package db

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/db/internal/sqlc"
	"github.com/countersign/countersign/policy"
)

// Insert stores a new request with its events and a notice for each
// destination, if admit agrees. admit runs in the writer's goroutine, so that
// what it is told includes every request that was stored before.
func (d *DB) Insert(ctx context.Context, r *approval.Request, destinations []string, admit func(approval.Backlog) error) error {
	row, err := insertParams(r)
	if err != nil {
		return err
	}
	return d.writer.do(ctx, func(q *sqlc.Queries) error {
		ctx := context.Background()
		if admit != nil {
			var before approval.Backlog
			var err error
			if r.Ruling.Effect == policy.RequireApproval || r.Executor == approval.ByGateway {
				before, err = backlog(ctx, q, r)
			}
			if err != nil {
				return err
			}
			if err := admit(before); err != nil {
				return err
			}
		}
		if err := q.InsertRequest(ctx, row); err != nil {
			return fmt.Errorf("inserting request %s: %w", r.ID, err)
		}
		if err := insertPayload(ctx, q, r); err != nil {
			return err
		}
		if err := insertDecisions(ctx, q, r, 0); err != nil {
			return err
		}
		if err := saveExecution(ctx, q, r, nil); err != nil {
			return err
		}
		if err := recordUse(ctx, q, r); err != nil {
			return err
		}
		if err := saveGrant(ctx, q, r, nil); err != nil {
			return err
		}
		for _, destination := range destinations {
			if err := insertNotice(ctx, q, r, destination); err != nil {
				return err
			}
		}
		return appendEvents(ctx, q, r.Events())
	})
}

// insertNotice has a destination told of a request, if it isn't already.
func insertNotice(ctx context.Context, q *sqlc.Queries, r *approval.Request, destination string) error {
	if err := q.InsertNotice(ctx, sqlc.InsertNoticeParams{
		RequestID:      string(r.ID),
		Destination:    destination,
		WantedRevision: r.Revision,
		DueSince:       r.UpdatedAt.UnixMilli(),
	}); err != nil {
		return fmt.Errorf("inserting the notice for %s: %w", destination, err)
	}
	return nil
}

// backlog is what the agent of a new request asked before.
func backlog(ctx context.Context, q *sqlc.Queries, r *approval.Request) (approval.Backlog, error) {
	var found approval.Backlog
	pending, err := q.CountPending(ctx, sqlc.CountPendingParams{
		Agent:            r.Agent,
		ActsForWorkspace: r.ActsFor.Workspace,
		ActsForUser:      r.ActsFor.User,
		Now:              r.CreatedAt.UnixMilli(),
	})
	if err != nil {
		return found, fmt.Errorf("counting the agent's pending requests: %w", err)
	}
	found.Pending = int(pending)
	twins, err := q.PendingTwins(ctx, sqlc.PendingTwinsParams{
		Asked:            r.Asked[:],
		Agent:            r.Agent,
		ActsForWorkspace: r.ActsFor.Workspace,
		ActsForUser:      r.ActsFor.User,
		Executor:         string(r.Executor),
		Target:           r.Target,
		StatedCount:      stated(r.StatedCount),
		Reversible:       stated(optionalBool(r.Reversible)),
		Now:              r.CreatedAt.UnixMilli(),
	})
	if err != nil {
		return found, fmt.Errorf("looking for the same request: %w", err)
	}
	if len(twins) == 0 && r.Executor == approval.ByGateway {
		twins, err = q.OpenTwins(ctx, sqlc.OpenTwinsParams{
			Asked:            r.Asked[:],
			Agent:            r.Agent,
			ActsForWorkspace: r.ActsFor.Workspace,
			ActsForUser:      r.ActsFor.User,
			Now:              r.CreatedAt.UnixMilli(),
		})
		if err != nil {
			return found, fmt.Errorf("looking for the same call: %w", err)
		}
	}
	if len(twins) > 0 {
		found.Twin = approval.ID(twins[0])
	}
	found.RejectedAt, err = rejectedAt(ctx, q, approval.Agent{Name: r.Agent, Owner: r.ActsFor}, r.Asked)
	return found, err
}

func rejectedAt(ctx context.Context, q *sqlc.Queries, agent approval.Agent, asked approval.Digest) (time.Time, error) {
	rejected, err := q.LastRejection(ctx, sqlc.LastRejectionParams{
		Asked:            asked[:],
		Agent:            agent.Name,
		ActsForWorkspace: agent.Owner.Workspace,
		ActsForUser:      agent.Owner.User,
	})
	if err != nil {
		return time.Time{}, fmt.Errorf("looking for a rejection of the same request: %w", err)
	}
	return sometime(rejected), nil
}

// RejectedAt implements approval.Store.
func (d *DB) RejectedAt(ctx context.Context, agent approval.Agent, asked approval.Digest) (time.Time, error) {
	at, err := rejectedAt(ctx, d.reads, agent, asked)
	if err != nil {
		return time.Time{}, d.explain(ctx, err)
	}
	return at, nil
}

// stated is a number that is at least 0, or -1 if it isn't stated.
func stated(number *int64) int64 {
	if number == nil {
		return -1
	}
	return *number
}

// Update loads a request, runs change on it and saves what it did, as
// approval.Store says. change runs in the writer's goroutine, while every other
// change waits. A panic in it is raised again in the caller's.
func (d *DB) Update(ctx context.Context, id approval.ID, change func(*approval.Request) error) (*approval.Request, error) {
	var as *approval.Request // as loaded, if change refused; else as changed
	var refusal error
	err := d.writer.do(ctx, func(q *sqlc.Queries) error {
		ctx := context.Background()
		before, err := load(ctx, q, id)
		if err != nil {
			return err
		}
		if as, err = before.decode(); err != nil {
			return err
		}
		if refusal = change(as); refusal != nil {
			// change may have altered it before it refused.
			if as, err = before.decode(); err != nil {
				return err
			}
			return refusal
		}
		return save(ctx, q, before, as)
	})
	// If the transaction was lost, the refusal wasn't about what is stored.
	if err != nil && (refusal == nil || !errors.Is(err, refusal)) {
		return nil, err
	}
	return as, err
}

// save stores what differs between a request as loaded and as changed.
func save(ctx context.Context, q *sqlc.Queries, before rows, after *approval.Request) error {
	if after.Revision != before.request.Request.Revision {
		if err := saveState(ctx, q, before, after); err != nil {
			return fmt.Errorf("saving request %s: %w", after.ID, err)
		}
	}
	return appendEvents(ctx, q, after.Events())
}

func saveState(ctx context.Context, q *sqlc.Queries, before rows, after *approval.Request) error {
	loaded := before.request.Request
	row, err := updateParams(after, loaded.Revision)
	if err != nil {
		return err
	}
	if row.Version != loaded.Version {
		if err := insertPayload(ctx, q, after); err != nil {
			return err
		}
	} else if !bytes.Equal(after.Payload, before.request.Payload) {
		return errors.New("the payload of a version never changes")
	}
	saved, err := q.UpdateRequest(ctx, row)
	if err != nil {
		return err
	}
	if saved != 1 {
		return fmt.Errorf("%w: another writer changed the request first", approval.ErrUnavailable)
	}
	if err := insertDecisions(ctx, q, after, len(before.decisions)); err != nil {
		return err
	}
	execution, err := before.execution()
	if err != nil {
		return err
	}
	if err := saveExecution(ctx, q, after, execution); err != nil {
		return err
	}
	if err := recordUse(ctx, q, after); err != nil {
		return err
	}
	if err := saveGrant(ctx, q, after, before.grant()); err != nil {
		return err
	}
	for _, destination := range after.Tell() {
		if err := insertNotice(ctx, q, after, destination); err != nil {
			return err
		}
	}
	return q.WantRevision(ctx, sqlc.WantRevisionParams{
		RequestID: row.ID,
		Revision:  row.Revision,
		DueSince:  row.UpdatedAt,
	})
}

// recordUse keeps when an agent used what is at a place, if a claim did, and has
// the grant that it was under change.
func recordUse(ctx context.Context, q *sqlc.Queries, r *approval.Request) error {
	at := r.Used()
	if at == (approval.Place{}) {
		return nil
	}
	if r.GrantedBy != "" {
		granted, err := q.CountUse(ctx, sqlc.CountUseParams{ID: string(r.GrantedBy), At: r.Execution.StartedAt.UnixMilli()})
		if err != nil {
			return fmt.Errorf("counting the use of the grant of %s: %w", r.GrantedBy, err)
		}
		if err := q.WantRevision(ctx, sqlc.WantRevisionParams{
			RequestID: string(r.GrantedBy),
			Revision:  granted.Revision,
			DueSince:  granted.UpdatedAt,
		}); err != nil {
			return err
		}
	}
	return q.RecordUse(ctx, sqlc.RecordUseParams{
		Agent:          r.Agent,
		OwnerWorkspace: r.ActsFor.Workspace,
		OwnerUser:      r.ActsFor.User,
		Environment:    at.Environment,
		Integration:    at.Integration,
		Tool:           at.Tool,
		LastUsedAt:     r.Execution.StartedAt.UnixMilli(),
	})
}

func insertPayload(ctx context.Context, q *sqlc.Queries, r *approval.Request) error {
	return q.InsertPayload(ctx, sqlc.InsertPayloadParams{
		RequestID: string(r.ID),
		Version:   int64(r.Version),
		Payload:   r.Payload,
	})
}

// insertDecisions stores the decisions after the first known ones.
func insertDecisions(ctx context.Context, q *sqlc.Queries, r *approval.Request, known int) error {
	for i := known; i < len(r.Decisions); i++ {
		row, err := decisionParams(r, i+1)
		if err != nil {
			return err
		}
		if err := q.InsertDecision(ctx, row); err != nil {
			return fmt.Errorf("inserting decision %s: %w", row.Receipt, err)
		}
	}
	return nil
}

func saveExecution(ctx context.Context, q *sqlc.Queries, r *approval.Request, before *approval.Execution) error {
	after := r.Execution
	switch {
	case after == nil:
		return nil
	case before == nil:
		if err := q.InsertExecution(ctx, sqlc.InsertExecutionParams{
			ID:                 after.ID,
			RequestID:          string(r.ID),
			Executor:           string(r.Executor),
			Version:            int64(after.Version),
			StartedAt:          after.StartedAt.UnixMilli(),
			FinishedAt:         optionalTime(after.FinishedAt),
			Outcome:            string(after.Outcome),
			Detail:             after.Detail,
			ResultSize:         int64(after.ResultSize),
			ReturnedAt:         optionalTime(after.ReturnedAt),
			SettledByWorkspace: after.SettledBy.Workspace,
			SettledByUser:      after.SettledBy.User,
		}); err != nil {
			return fmt.Errorf("inserting the execution: %w", err)
		}
	case *before != *after:
		if err := q.UpdateExecution(ctx, sqlc.UpdateExecutionParams{
			ID:                 after.ID,
			FinishedAt:         optionalTime(after.FinishedAt),
			Outcome:            string(after.Outcome),
			Detail:             after.Detail,
			ResultSize:         int64(after.ResultSize),
			ReturnedAt:         optionalTime(after.ReturnedAt),
			SettledByWorkspace: after.SettledBy.Workspace,
			SettledByUser:      after.SettledBy.User,
		}); err != nil {
			return fmt.Errorf("updating the execution: %w", err)
		}
	}
	if len(r.Result()) == 0 {
		return nil
	}
	return q.InsertResult(ctx, sqlc.InsertResultParams{ExecutionID: after.ID, Result: r.Result()})
}

func saveGrant(ctx context.Context, q *sqlc.Queries, r *approval.Request, before *approval.Grant) error {
	after := r.Grant
	if after == nil || before != nil && *before == *after {
		return nil
	}
	return q.SaveGrant(ctx, sqlc.SaveGrantParams{
		RequestID: string(r.ID),
		Scope:     after.Scope,
		Session:   after.Session,
		GrantedAt: after.GrantedAt.UnixMilli(),
		ExpiresAt: after.ExpiresAt.UnixMilli(),
		RevokedAt: optionalTime(after.RevokedAt),
		RevokedBy: after.RevokedBy,
	})
}

// Request loads a request. approval.ErrNotFound if there is none.
func (d *DB) Request(ctx context.Context, id approval.ID) (*approval.Request, error) {
	loaded, err := load(ctx, d.reads, id)
	if err != nil {
		return nil, d.explain(ctx, err)
	}
	return loaded.decode()
}

// load reads the rows of a request, which fit together even if it changes
// meanwhile.
func load(ctx context.Context, q *sqlc.Queries, id approval.ID) (rows, error) {
	request, err := q.LoadRequest(ctx, string(id))
	if errors.Is(err, sql.ErrNoRows) {
		return rows{}, approval.ErrNotFound
	}
	if err != nil {
		return rows{}, fmt.Errorf("loading request %s: %w", id, err)
	}
	decisions, err := q.LoadDecisions(ctx, sqlc.LoadDecisionsParams{
		RequestID: string(id),
		Revision:  request.Request.Revision,
	})
	if err != nil {
		return rows{}, fmt.Errorf("loading the decisions of request %s: %w", id, err)
	}
	return rows{request: request, decisions: decisions}, nil
}

// Due returns up to limit requests that are due now or before, oldest first.
func (d *DB) Due(ctx context.Context, now time.Time, limit int) ([]approval.ID, error) {
	found, err := d.reads.DueRequests(ctx, sqlc.DueRequestsParams{Now: now.UnixMilli(), Count: int64(limit)})
	if err != nil {
		return nil, fmt.Errorf("listing due requests: %w", d.explain(ctx, err))
	}
	return requestIDs(found), nil
}

func requestIDs(found []string) []approval.ID {
	ids := make([]approval.ID, len(found))
	for i, id := range found {
		ids[i] = approval.ID(id)
	}
	return ids
}

// NextDue returns the earliest time at which any request is due, zero if none
// is.
func (d *DB) NextDue(ctx context.Context) (time.Time, error) {
	due, err := d.reads.NextDue(ctx)
	if errors.Is(err, sql.ErrNoRows) {
		return time.Time{}, nil
	}
	if err != nil {
		return time.Time{}, fmt.Errorf("finding the next due request: %w", d.explain(ctx, err))
	}
	return optionalMoment(due), nil
}

// LastUse returns when an agent last used what is at a place.
func (d *DB) LastUse(ctx context.Context, agent approval.Agent, at approval.Place) (approval.LastUse, error) {
	row, err := d.reads.LastUse(ctx, sqlc.LastUseParams{
		Integration:    at.Integration,
		Tool:           at.Tool,
		Agent:          agent.Name,
		OwnerWorkspace: agent.Owner.Workspace,
		OwnerUser:      agent.Owner.User,
		Environment:    at.Environment,
	})
	if err != nil {
		return approval.LastUse{}, fmt.Errorf("finding when %s was used: %w", at.Tool, d.explain(ctx, err))
	}
	return approval.LastUse{
		Tool:        sometime(row.OfTool),
		Integration: sometime(row.OfIntegration),
		Agent:       sometime(row.OfAgent),
	}, nil
}

// sometime is a moment of which 0 means never.
func sometime(milliseconds int64) time.Time {
	if milliseconds == 0 {
		return time.Time{}
	}
	return moment(milliseconds)
}
