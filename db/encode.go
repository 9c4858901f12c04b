package db

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/db/internal/sqlc"
)

// insertParams is the row of a request.
func insertParams(r *approval.Request) (sqlc.InsertRequestParams, error) {
	ruling, err := json.Marshal(r.Ruling)
	if err != nil {
		return sqlc.InsertRequestParams{}, fmt.Errorf("encoding the ruling: %w", err)
	}
	editors, err := json.Marshal(r.Editors)
	if err != nil {
		return sqlc.InsertRequestParams{}, fmt.Errorf("encoding the editors: %w", err)
	}
	hints, err := json.Marshal(r.Hints)
	if err != nil {
		return sqlc.InsertRequestParams{}, fmt.Errorf("encoding the hints: %w", err)
	}
	return sqlc.InsertRequestParams{
		ID:               string(r.ID),
		Agent:            r.Agent,
		ActsForWorkspace: r.ActsFor.Workspace,
		ActsForUser:      r.ActsFor.User,
		Purpose:          r.Purpose,
		Action:           r.Action,
		Target:           r.Target,
		Environment:      r.Environment,
		StatedCount:      r.StatedCount,
		Reversible:       optionalBool(r.Reversible),
		Executor:         string(r.Executor),
		ToolPin:          r.ToolPin,
		Unpinned:         flag(r.Unpinned),
		Hints:            string(hints),
		Session:          r.Session,
		ClientOnly:       flag(r.ClientOnly),
		HostView:         flag(r.HostView),
		Version:          int64(r.Version),
		Digest:           r.Digest[:],
		Effect:           string(r.Ruling.Effect),
		Tier:             int64(r.Ruling.Tier),
		Ruling:           string(ruling),
		Rules:            ruleIDs(r.Ruling.Rules),
		Explanation:      r.Explanation,
		Asked:            r.Asked[:],
		Reminders:        int64(r.Reminders),
		Escalated:        flag(r.Escalated),
		Status:           string(r.Status),
		Reason:           r.Reason,
		Editors:          string(editors),
		GrantedBy:        string(r.GrantedBy),
		ExecutionID:      executionID(r),
		CreatedAt:        r.CreatedAt.UnixMilli(),
		ExpiresAt:        r.ExpiresAt.UnixMilli(),
		DecidedAt:        optionalTime(r.DecidedAt),
		ApplyBy:          optionalTime(r.ApplyBy),
		ClosedAt:         optionalTime(r.ClosedAt),
		UpdatedAt:        r.UpdatedAt.UnixMilli(),
		Deadline:         optionalTime(r.Deadline()),
		DueAt:            optionalTime(r.Due()),
		Revision:         r.Revision,
	}, nil
}

// updateParams is what of a request's row can change.
func updateParams(r *approval.Request, loadedRevision int64) (sqlc.UpdateRequestParams, error) {
	row, err := insertParams(r)
	if err != nil {
		return sqlc.UpdateRequestParams{}, err
	}
	return sqlc.UpdateRequestParams{
		ID:             row.ID,
		LoadedRevision: loadedRevision,
		Target:         row.Target,
		ClientOnly:     row.ClientOnly,
		Version:        row.Version,
		Digest:         row.Digest,
		Effect:         row.Effect,
		Tier:           row.Tier,
		Ruling:         row.Ruling,
		Rules:          row.Rules,
		Explanation:    row.Explanation,
		Reminders:      row.Reminders,
		Escalated:      row.Escalated,
		Status:         row.Status,
		Reason:         row.Reason,
		Editors:        row.Editors,
		ExecutionID:    row.ExecutionID,
		DecidedAt:      row.DecidedAt,
		ApplyBy:        row.ApplyBy,
		ClosedAt:       row.ClosedAt,
		UpdatedAt:      row.UpdatedAt,
		Deadline:       row.Deadline,
		DueAt:          row.DueAt,
		Revision:       row.Revision,
	}, nil
}

func decisionParams(r *approval.Request, ordinal int) (sqlc.InsertDecisionParams, error) {
	d := r.Decisions[ordinal-1]
	roles, err := json.Marshal(d.Roles)
	if err != nil {
		return sqlc.InsertDecisionParams{}, fmt.Errorf("encoding the roles: %w", err)
	}
	return sqlc.InsertDecisionParams{
		Receipt:           d.Receipt,
		SignedReceipt:     d.SignedReceipt,
		RequestID:         string(r.ID),
		Ordinal:           int64(ordinal),
		ApproverWorkspace: d.Approver.Workspace,
		ApproverUser:      d.Approver.User,
		Verdict:           string(d.Verdict),
		Reason:            d.Reason,
		Surface:           string(d.Surface),
		Scope:             d.Scope,
		Version:           int64(d.Version),
		Digest:            d.Digest[:],
		Roles:             string(roles),
		Own:               flag(d.Own),
		DecidedAt:         d.At.UnixMilli(),
		Revision:          r.Revision,
	}, nil
}

// rows are all that is stored of a request.
type rows struct {
	request   sqlc.LoadRequestRow
	decisions []sqlc.Decision
}

// decode makes a request of its rows, and shares no memory with them.
func (loaded rows) decode() (*approval.Request, error) {
	row := loaded.request.Request
	if loaded.request.Payload == nil {
		return nil, fmt.Errorf("decoding request %s: the payload of its version %d is missing: %w", row.ID, row.Version, ErrCorrupt)
	}
	r := &approval.Request{
		ID:          approval.ID(row.ID),
		Agent:       row.Agent,
		ActsFor:     approval.Approver{Workspace: row.ActsForWorkspace, User: row.ActsForUser},
		Purpose:     row.Purpose,
		Action:      row.Action,
		Target:      row.Target,
		Environment: row.Environment,
		Payload:     slices.Clone(loaded.request.Payload),
		Executor:    approval.Executor(row.Executor),
		ToolPin:     row.ToolPin,
		Unpinned:    row.Unpinned != 0,
		Session:     row.Session,
		ClientOnly:  row.ClientOnly != 0,
		HostView:    row.HostView != 0,
		GrantedBy:   approval.ID(row.GrantedBy),
		Version:     int(row.Version),
		Explanation: row.Explanation,
		Reminders:   int(row.Reminders),
		Escalated:   row.Escalated != 0,
		Status:      approval.Status(row.Status),
		Reason:      row.Reason,
		CreatedAt:   moment(row.CreatedAt),
		ExpiresAt:   moment(row.ExpiresAt),
		DecidedAt:   optionalMoment(row.DecidedAt),
		ApplyBy:     optionalMoment(row.ApplyBy),
		ClosedAt:    optionalMoment(row.ClosedAt),
		UpdatedAt:   moment(row.UpdatedAt),
		Revision:    row.Revision,
	}
	if row.StatedCount != nil {
		count := *row.StatedCount
		r.StatedCount = &count
	}
	if row.Reversible != nil {
		reversible := *row.Reversible != 0
		r.Reversible = &reversible
	}
	for _, field := range []struct {
		name, text string
		into       any
	}{
		{"ruling", row.Ruling, &r.Ruling},
		{"editors", row.Editors, &r.Editors},
		{"hints", row.Hints, &r.Hints},
	} {
		if err := json.Unmarshal([]byte(field.text), field.into); err != nil {
			return nil, fmt.Errorf("decoding the %s of request %s: %w (%w)", field.name, row.ID, ErrCorrupt, err)
		}
	}
	var err error
	if r.Digest, err = decodeDigest(row.Digest); err != nil {
		return nil, fmt.Errorf("decoding request %s: %w", row.ID, err)
	}
	if r.Asked, err = decodeDigest(row.Asked); err != nil {
		return nil, fmt.Errorf("decoding what request %s asked: %w", row.ID, err)
	}
	if r.Execution, err = loaded.execution(); err != nil {
		return nil, fmt.Errorf("decoding request %s: %w", row.ID, err)
	}
	r.Grant, r.Under = loaded.grant(), loaded.under()
	for _, d := range loaded.decisions {
		decision, err := decodeDecision(d)
		if err != nil {
			return nil, fmt.Errorf("decoding decision %s of request %s: %w", d.Receipt, row.ID, err)
		}
		r.Decisions = append(r.Decisions, decision)
	}
	return r, nil
}

// execution is nil if the request has none.
func (loaded rows) execution() (*approval.Execution, error) {
	row := loaded.request
	id := row.Request.ExecutionID
	if id == nil {
		return nil, nil
	}
	if row.ExecutionVersion == nil || row.StartedAt == nil || row.Outcome == nil || row.Detail == nil ||
		row.ResultSize == nil || row.SettledByWorkspace == nil || row.SettledByUser == nil {
		return nil, fmt.Errorf("its execution %s is missing: %w", *id, ErrCorrupt)
	}
	return &approval.Execution{
		ID:         *id,
		Version:    int(*row.ExecutionVersion),
		StartedAt:  moment(*row.StartedAt),
		FinishedAt: optionalMoment(row.FinishedAt),
		Outcome:    approval.Outcome(*row.Outcome),
		Detail:     *row.Detail,
		ResultSize: int(*row.ResultSize),
		ReturnedAt: optionalMoment(row.ReturnedAt),
		SettledBy:  approval.Approver{Workspace: *row.SettledByWorkspace, User: *row.SettledByUser},
	}, nil
}

// grant is what the request's approval grants, nil if nothing.
func (loaded rows) grant() *approval.Grant {
	row := loaded.request
	if row.GrantScope == nil {
		return nil
	}
	return &approval.Grant{
		Scope:     *row.GrantScope,
		Session:   *row.GrantSession,
		GrantedAt: optionalMoment(row.GrantedAt),
		ExpiresAt: optionalMoment(row.GrantExpiresAt),
		RevokedAt: optionalMoment(row.RevokedAt),
		RevokedBy: *row.RevokedBy,
		Uses:      int(row.GrantUses),
	}
}

// under is the grant that approved the request, as it is now; nil if none did.
func (loaded rows) under() *approval.Grant {
	row := loaded.request
	if row.UnderScope == nil {
		return nil
	}
	return &approval.Grant{
		Scope:     *row.UnderScope,
		Session:   *row.UnderSession,
		GrantedAt: optionalMoment(row.UnderGrantedAt),
		ExpiresAt: optionalMoment(row.UnderExpiresAt),
		RevokedAt: optionalMoment(row.UnderRevokedAt),
		RevokedBy: *row.UnderRevokedBy,
	}
}

func decodeDecision(row sqlc.Decision) (approval.Decision, error) {
	d := approval.Decision{
		Receipt:       row.Receipt,
		SignedReceipt: row.SignedReceipt,
		Approver:      approval.Approver{Workspace: row.ApproverWorkspace, User: row.ApproverUser},
		Verdict:       approval.Verdict(row.Verdict),
		Reason:        row.Reason,
		Surface:       approval.Surface(row.Surface),
		Scope:         row.Scope,
		Version:       int(row.Version),
		Own:           row.Own != 0,
		At:            moment(row.DecidedAt),
	}
	if err := json.Unmarshal([]byte(row.Roles), &d.Roles); err != nil {
		return d, fmt.Errorf("decoding the roles: %w (%w)", ErrCorrupt, err)
	}
	var err error
	d.Digest, err = decodeDigest(row.Digest)
	return d, err
}

func decodeDigest(data []byte) (approval.Digest, error) {
	var digest approval.Digest
	if len(data) != len(digest) {
		return digest, fmt.Errorf("a digest has %d bytes: %w", len(data), ErrCorrupt)
	}
	return approval.Digest(data), nil
}

func executionID(r *approval.Request) *string {
	if r.Execution == nil {
		return nil
	}
	return &r.Execution.ID
}

func moment(milliseconds int64) time.Time { return time.UnixMilli(milliseconds).UTC() }

func optionalMoment(milliseconds *int64) time.Time {
	if milliseconds == nil {
		return time.Time{}
	}
	return moment(*milliseconds)
}

func optionalTime(t time.Time) *int64 {
	if t.IsZero() {
		return nil
	}
	milliseconds := t.UnixMilli()
	return &milliseconds
}

func optionalBool(b *bool) *int64 {
	if b == nil {
		return nil
	}
	number := flag(*b)
	return &number
}

func flag(b bool) int64 {
	if b {
		return 1
	}
	return 0
}
