package db

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/audit"
	"github.com/countersign/countersign/db/internal/sqlc"
	"github.com/countersign/countersign/policy"
)

// Pending returns up to limit pending requests after a place, in the order in
// which they expire, without those of which only the agent's client was told.
func (d *DB) Pending(ctx context.Context, after approval.QueueKey, limit int) ([]approval.ID, error) {
	params := sqlc.WaitingRequestsParams{ID: string(after.ID), Count: int64(limit)}
	if !after.IsZero() {
		params.ExpiresAt = after.ExpiresAt.UnixMilli()
	}
	found, err := d.reads.WaitingRequests(ctx, params)
	if err != nil {
		return nil, fmt.Errorf("listing what waits for people: %w", d.explain(ctx, err))
	}
	return requestIDs(found), nil
}

// afterAll is above the id of every request.
const afterAll = "req_ffffffffffffffffffffffffffffffff"

// History returns up to limit requests that match a filter, as
// approval.Looking says.
func (d *DB) History(ctx context.Context, filter approval.Filter, before approval.ID, limit, lookedThrough int) ([]approval.ID, approval.ID, error) {
	end := afterAll
	if !filter.Until.IsZero() {
		end = string(approval.FirstID(filter.Until))
	}
	if before != "" {
		end = min(end, string(before))
	}
	first := string(approval.FirstID(filter.Since))
	lookedAt, err := d.reads.LastLookedAt(ctx, sqlc.LastLookedAtParams{Before: end, First: first, Others: int64(lookedThrough - 1)})
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return nil, "", fmt.Errorf("looking back: %w", d.explain(ctx, err))
	}
	found, err := d.reads.SearchRequests(ctx, sqlc.SearchRequestsParams{
		Before:      end,
		First:       max(first, lookedAt),
		Status:      string(filter.Status),
		Tier:        int64(filter.Tier),
		Agent:       filter.Agent,
		Action:      filter.Action,
		Environment: filter.Environment,
		Rule:        between(filter.Rule),
		DecidedBy:   filter.DecidedBy,
		Text:        filter.Text,
		Count:       int64(limit),
	})
	if err != nil {
		return nil, "", fmt.Errorf("searching requests: %w", d.explain(ctx, err))
	}
	return requestIDs(found), approval.ID(lookedAt), nil
}

// ruleIDs are how the rules of a ruling are found: each between line breaks,
// which no id has in it.
func ruleIDs(rules []policy.FiredRule) string {
	var ids strings.Builder
	for _, rule := range rules {
		ids.WriteString(between(rule.ID))
	}
	return ids.String()
}

// between is a rule's id as it is found; empty for none.
func between(id string) string {
	if id == "" {
		return ""
	}
	return "\n" + id + "\n"
}

// DecidedBy returns the last decisions of a person, the newest first.
func (d *DB) DecidedBy(ctx context.Context, who approval.Approver, limit int) ([]approval.Decided, error) {
	found, err := d.reads.DecisionsOf(ctx, sqlc.DecisionsOfParams{
		ApproverWorkspace: who.Workspace,
		ApproverUser:      who.User,
		Count:             int64(limit),
	})
	if err != nil {
		return nil, fmt.Errorf("listing what somebody decided: %w", d.explain(ctx, err))
	}
	decided := make([]approval.Decided, len(found))
	for i, row := range found {
		decided[i] = approval.Decided{Request: approval.ID(row.RequestID), Receipt: row.Receipt}
	}
	return decided, nil
}

// Asked returns what was asked of people from one time until before another, in
// the order in which it was asked.
func (d *DB) Asked(ctx context.Context, since, until time.Time) ([]approval.Asked, error) {
	found, err := d.reads.AskedOfPeople(ctx, sqlc.AskedOfPeopleParams{Since: since.UnixMilli(), Until: until.UnixMilli()})
	if err != nil {
		return nil, fmt.Errorf("listing what was asked of people: %w", d.explain(ctx, err))
	}
	asked := make([]approval.Asked, len(found))
	for i, row := range found {
		asked[i] = approval.Asked{
			Action:    row.Action,
			Tier:      policy.Tier(row.Tier),
			Rules:     strings.FieldsFunc(row.Rules, func(c rune) bool { return c == '\n' }),
			Status:    approval.Status(row.Status),
			CreatedAt: moment(row.CreatedAt),
			DecidedAt: optionalMoment(row.DecidedAt),
			Approved:  row.ApplyBy != nil,
		}
	}
	return asked, nil
}

// EventsOf returns the first limit events of a request, in order.
func (d *DB) EventsOf(ctx context.Context, id approval.ID, limit int) ([]audit.Event, error) {
	found, err := d.reads.EventsOfRequest(ctx, sqlc.EventsOfRequestParams{RequestID: string(id), Count: int64(limit)})
	if err != nil {
		return nil, fmt.Errorf("reading the events of %s: %w", id, d.explain(ctx, err))
	}
	events := make([]audit.Event, len(found))
	for i, row := range found {
		if events[i], err = decodeEvent(row); err != nil {
			return nil, fmt.Errorf("reading event %d: %w", row.Sequence, err)
		}
	}
	return events, nil
}

// PayloadOf returns the payload that a version of a request has.
func (d *DB) PayloadOf(ctx context.Context, id approval.ID, version int) (approval.Payload, error) {
	payload, err := d.reads.LoadPayload(ctx, sqlc.LoadPayloadParams{RequestID: string(id), Version: int64(version)})
	if errors.Is(err, sql.ErrNoRows) {
		return nil, approval.ErrNotFound
	}
	if err != nil {
		return nil, fmt.Errorf("reading version %d of %s: %w", version, id, d.explain(ctx, err))
	}
	return payload, nil
}
