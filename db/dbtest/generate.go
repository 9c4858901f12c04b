package dbtest

import (
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"time"

	"pgregory.net/rapid"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/policy"
)

// text is any text but the character NUL, which PostgreSQL keeps in no text.
func text(t *rapid.T, label string) string {
	return strings.ReplaceAll(rapid.String().Draw(t, label), "\x00", "")
}

func anyTime(t *rapid.T, label string) time.Time {
	return time.UnixMilli(rapid.Int64Range(1, 4_102_444_800_000).Draw(t, label)).UTC()
}

func optional[T any](t *rapid.T, label string, draw func(*rapid.T, string) T) T {
	var none T
	if rapid.Bool().Draw(t, label+" is there") {
		return draw(t, label)
	}
	return none
}

func anyApprover(t *rapid.T, label string) approval.Approver {
	return approval.Approver{Workspace: text(t, label+" workspace"), User: text(t, label+" user")}
}

func anyDigest(t *rapid.T) approval.Digest {
	return approval.Digest(rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "digest"))
}

var lastID atomic.Int64

// newID is an id that no request, decision or execution had before: one that
// is drawn could come twice, which a store refuses.
func newID(prefix string) string { return fmt.Sprintf("%s_%032x", prefix, lastID.Add(1)) }

// anyRequest is any request that the domain could come to, and many that it
// couldn't but that must come back as they were all the same.
func anyRequest(t *rapid.T) *approval.Request {
	count := rapid.Int64Range(0, math.MaxInt64)
	r := &approval.Request{
		ID:          approval.ID(newID("req")),
		Agent:       text(t, "agent"),
		ActsFor:     anyApprover(t, "acts for"),
		Purpose:     text(t, "purpose"),
		Action:      text(t, "action"),
		Target:      text(t, "target"),
		Environment: text(t, "environment"),
		StatedCount: rapid.Ptr(count, true).Draw(t, "count"),
		Reversible:  rapid.Ptr(rapid.Bool(), true).Draw(t, "reversible"),
		Executor:    rapid.SampledFrom([]approval.Executor{approval.ByAgent, approval.ByGateway}).Draw(t, "executor"),
		ToolPin:     text(t, "tool pin"),
		Unpinned:    rapid.Bool().Draw(t, "unpinned"),
		Hints:       anyHints(t),
		Session:     text(t, "session"),
		HostView:    rapid.Bool().Draw(t, "host view"),
		Ruling:      anyRuling(t),
		Explanation: text(t, "explanation"),
		Asked:       anyDigest(t),
		CreatedAt:   anyTime(t, "created at"),
		ExpiresAt:   anyTime(t, "expires at"),
		Version:     1,
		Revision:    1,
	}
	change(t, r)
	return r
}

func anyHints(t *rapid.T) policy.Hints {
	hint := func(label string) *bool { return rapid.Ptr(rapid.Bool(), true).Draw(t, label) }
	return policy.Hints{ReadOnly: hint("read only"), Destructive: hint("destructive"), Idempotent: hint("idempotent"), OpenWorld: hint("open world")}
}

// anyRuling is any ruling that policy could make.
func anyRuling(t *rapid.T) policy.Ruling {
	return policy.Ruling{
		Revision: text(t, "policy"),
		Effect:   rapid.SampledFrom([]policy.Effect{policy.Allow, policy.RequireApproval, policy.Deny}).Draw(t, "effect"),
		Tier:     policy.Tier(rapid.IntRange(1, 5).Draw(t, "tier")),
		Requirement: policy.Requirement{
			Roles: rapid.SliceOf(rapid.Custom(func(t *rapid.T) policy.RoleCount {
				return policy.RoleCount{
					Role:      text(t, "role"),
					Count:     rapid.IntRange(1, 20).Draw(t, "count"),
					AllowSelf: rapid.Bool().Draw(t, "allow self"),
				}
			})).Draw(t, "roles"),
			ReasonRequired: rapid.Bool().Draw(t, "reason required"),
			Owner:          text(t, "owner"),
		},
		Rules: rapid.SliceOf(rapid.Custom(func(t *rapid.T) policy.FiredRule {
			return policy.FiredRule{
				ID:      text(t, "rule"),
				Why:     text(t, "why"),
				Effect:  rapid.SampledFrom([]policy.Effect{"", policy.Deny}).Draw(t, "rule's effect"),
				RaiseTo: policy.Tier(rapid.IntRange(0, 5).Draw(t, "raise to")),
				LowerTo: policy.Tier(rapid.IntRange(0, 5).Draw(t, "lower to")),
				Failed:  rapid.Bool().Draw(t, "failed"),
			}
		})).Draw(t, "rules"),
		Integration:  text(t, "integration"),
		Tool:         text(t, "tool"),
		Environment:  text(t, "environment"),
		Mode:         text(t, "mode"),
		Classified:   rapid.Bool().Draw(t, "classified"),
		Target:       text(t, "ruled target"),
		Idempotency:  text(t, "idempotency"),
		InBand:       rapid.Bool().Draw(t, "in band"),
		InView:       rapid.Bool().Draw(t, "in view"),
		Count:        anyQuantity(t),
		Amount:       anyQuantity(t),
		FirstUse:     policy.FirstUse{Tool: rapid.Bool().Draw(t, "first use of the tool")},
		Redactions:   policy.Redactions{Paths: rapid.SliceOf(rapid.String()).Draw(t, "paths")},
		DecideWithin: anyDuration(t, "decide within"),
		ApplyWithin:  anyDuration(t, "apply within"),
		Scopes:       rapid.SliceOf(rapid.String()).Draw(t, "scopes"),
		RemindAfter: rapid.SliceOf(rapid.Custom(func(t *rapid.T) time.Duration {
			return anyDuration(t, "remind after")
		})).Draw(t, "reminders"),
		Escalation: policy.Escalation{After: anyDuration(t, "escalate after"), To: text(t, "escalate to")},
	}
}

func anyQuantity(t *rapid.T) policy.Quantity {
	return policy.Quantity{
		Value:     rapid.Float64().Draw(t, "value"),
		Known:     rapid.Bool().Draw(t, "known"),
		Unbounded: rapid.Bool().Draw(t, "unbounded"),
	}
}

func anyDuration(t *rapid.T, label string) time.Duration {
	return time.Duration(rapid.Int64Range(0, int64(24*time.Hour)).Draw(t, label))
}

// change gives a request any other state that it could have later.
func change(t *rapid.T, r *approval.Request) {
	if edits := rapid.IntRange(0, 3).Draw(t, "edits"); edits > 0 || r.Payload == nil {
		r.Version += edits
		r.Payload = rapid.SliceOfN(rapid.Byte(), 1, -1).Draw(t, "payload")
	}
	r.Revision += rapid.Int64Range(1, 5).Draw(t, "changes")
	r.Digest = anyDigest(t)
	r.UpdatedAt = anyTime(t, "updated at")
	r.Reason = text(t, "reason")
	r.Ruling = anyRuling(t)
	r.Explanation = text(t, "explanation")
	r.Reminders = rapid.IntRange(0, 10).Draw(t, "reminders")
	r.Escalated = rapid.Bool().Draw(t, "escalated")
	r.ClientOnly = rapid.Bool().Draw(t, "client only")
	if r.Execution == nil {
		changeStatus(t, r)
	} else {
		execution := *r.Execution
		r.Execution = &execution
	}
	if r.Execution != nil {
		r.Execution.FinishedAt = optional(t, "finished at", anyTime)
		r.Execution.Outcome = rapid.SampledFrom([]approval.Outcome{approval.Unknown, approval.Succeeded, approval.Failed}).Draw(t, "outcome")
		r.Execution.Detail = text(t, "detail")
		r.Execution.ResultSize = rapid.IntRange(0, 1000).Draw(t, "result size")
		r.Execution.ReturnedAt = optional(t, "returned at", anyTime)
		r.Execution.SettledBy = optional(t, "settled by", anyApprover)
	}
	if r.Grant != nil || rapid.Bool().Draw(t, "grants") {
		changeGrant(t, r)
	}
	for range rapid.IntRange(0, 2).Draw(t, "editors") {
		r.Editors = append(r.Editors, anyApprover(t, "editor"))
	}
	for i := range rapid.IntRange(0, 3).Draw(t, "decisions") {
		r.Decisions = append(r.Decisions, anyDecision(t, r, i))
	}
}

// anyDecision is a decision on a request as it is, of somebody who made none
// yet; the first may be the policy's.
func anyDecision(t *rapid.T, r *approval.Request, number int) approval.Decision {
	d := approval.Decision{
		Receipt:       newID("rcpt"),
		SignedReceipt: text(t, "signed receipt"),
		Approver:      approval.Approver{Workspace: text(t, "workspace"), User: fmt.Sprintf("U%d-%d", r.Revision, number)},
		Verdict:       rapid.SampledFrom([]approval.Verdict{approval.Approve, approval.Reject}).Draw(t, "verdict"),
		Own:           rapid.Bool().Draw(t, "own"),
		Reason:        text(t, "reason"),
		Surface:       approval.Surface("a " + text(t, "surface")),
		Scope:         text(t, "scope"),
		Version:       r.Version,
		Digest:        anyDigest(t),
		Roles: rapid.SliceOf(rapid.Custom(func(t *rapid.T) approval.Membership {
			return approval.Membership{Role: text(t, "role"), Via: text(t, "via")}
		})).Draw(t, "memberships"),
		At: anyTime(t, "at"),
	}
	if len(r.Decisions) == 0 && rapid.Bool().Draw(t, "without a person") {
		d.Approver = approval.Approver{}
		d.Surface = rapid.SampledFrom([]approval.Surface{approval.Policy, approval.InBand, approval.App, approval.Granted}).Draw(t, "from")
	}
	return d
}

// changeGrant gives a request a grant, or revokes the one that it has.
func changeGrant(t *rapid.T, r *approval.Request) {
	var g approval.Grant
	if r.Grant != nil {
		g = *r.Grant
	} else {
		g = approval.Grant{Scope: text(t, "scope"), Session: text(t, "session"), GrantedAt: anyTime(t, "granted at"), ExpiresAt: anyTime(t, "grant expires at")}
	}
	if g.RevokedAt.IsZero() && rapid.Bool().Draw(t, "revoked") {
		g.RevokedAt, g.RevokedBy = anyTime(t, "revoked at"), "operator:"+text(t, "revoked by")
	}
	r.Grant = &g
}

func changeStatus(t *rapid.T, r *approval.Request) {
	r.Status = rapid.SampledFrom([]approval.Status{
		approval.Pending, approval.Approved, approval.Rejected, approval.Expired, approval.Applied,
	}).Draw(t, "status")
	r.DecidedAt, r.ApplyBy, r.ClosedAt = time.Time{}, time.Time{}, time.Time{}
	switch r.Status {
	case approval.Approved, approval.Applied:
		r.DecidedAt, r.ApplyBy = anyTime(t, "decided at"), anyTime(t, "apply by")
	case approval.Rejected, approval.Expired:
		r.DecidedAt, r.ApplyBy = optional(t, "decided at", anyTime), optional(t, "apply by", anyTime)
	}
	if r.Status.Final() {
		r.ClosedAt = anyTime(t, "closed at")
	}
	if r.Status == approval.Applied {
		r.Execution = &approval.Execution{ID: newID("exec"), Version: r.Version, StartedAt: anyTime(t, "started at")}
	}
}
