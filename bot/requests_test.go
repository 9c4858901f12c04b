package bot_test

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/policy"
)

var (
	ada   = approval.Approver{Workspace: "T0DEMO", User: "U0ADA"}
	grace = approval.Approver{Workspace: "T0DEMO", User: "U0GRACE"}
	alan  = approval.Approver{Workspace: "T0DEMO", User: "U0ALAN"}

	asked = time.Date(2026, 12, 1, 2, 35, 0, 0, time.UTC)
)

func pointer[T any](value T) *T { return &value }

// deletion is a pending request to delete 214 records.
func deletion(change ...func(*approval.Request)) *approval.Request {
	r := &approval.Request{
		ID:          someRequest,
		Agent:       "crm-agent",
		ActsFor:     alan,
		Purpose:     "Remove customers who haven't signed in for two years, as agreed in DATA-812.",
		Action:      "crm.delete_records",
		Target:      "crm / customers",
		Environment: "production",
		StatedCount: pointer[int64](214),
		Reversible:  pointer(false),
		Payload:     approval.Payload(`{"table":"customers","where":{"status":"inactive","last_seen_before":"2024-12-01"},"expected_count":214}`),
		Version:     1,
		Ruling: policy.Ruling{
			Effect:      policy.RequireApproval,
			Tier:        policy.TierDestructive,
			Requirement: policy.Requirement{Roles: []policy.RoleCount{{Role: "oncall", Count: 1}}},
			Rules:       []policy.FiredRule{{ID: "unclassified", Why: "No rule classifies this action, so a person decides."}},
			Revision:    "4f0a6a0c9d7b4d6e8a35c1b2f7e6d5c4b3a291807f6e5d4c3b2a190807060504",
			ApplyWithin: 15 * time.Minute,
		},
		Explanation: explanation,
		Status:      approval.Pending,
		CreatedAt:   asked,
		ExpiresAt:   asked.Add(time.Hour),
		UpdatedAt:   asked,
		Revision:    1,
	}
	digest, err := approval.ParseDigest(someDigest)
	if err != nil {
		panic(err)
	}
	r.Digest = digest
	for _, c := range change {
		c(r)
	}
	return r
}

// explanation is a text as the policy writes it.
const explanation = `Somebody of oncall has to approve this.
They have at most 1 hour.
The person behind the agent doesn't count.

crm.delete_records in production, asked by crm-agent.

Why
- The policy doesn't list this action. Until it does, it
  counts as tier 4, destructive.
- Mode cautious, of the policy, has people decide on tier 4.

Rules that don't apply
- external-mail: its condition isn't met.
    no: args.to.endsWith("@corp.example")
      args.to is "<ada@corp.example>"
`

func idsPayload(n int) approval.Payload {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprint(4001 + 7*i)
	}
	return approval.Payload(`{"table":"customers","ids":[` + strings.Join(ids, ",") + `]}`)
}

func ids(n int) func(*approval.Request) {
	return func(r *approval.Request) { r.Payload = idsPayload(n) }
}

// decoys puts lists of the stated length before the one that counts.
func decoys(r *approval.Request) {
	r.Payload = approval.Payload(`{"a": [1], "b": [1], "c": [1], "customers) · approved": [1` + strings.Repeat(",1", 213) + `]}`)
	r.StatedCount = pointer[int64](1)
}

// twoOf asks for two people.
func twoOf(r *approval.Request) {
	r.Ruling.Requirement.Roles = []policy.RoleCount{{Role: "finance", Count: 1}, {Role: "oncall", Count: 1}}
}

// tier classifies the action.
func tier(tier policy.Tier, mode string) func(*approval.Request) {
	return func(r *approval.Request) {
		r.Ruling.Tier = tier
		r.Ruling.Rules = []policy.FiredRule{{ID: r.Action, Why: fmt.Sprintf("%s is %s, which mode %s leaves to a person.", r.Action, tier, mode)}}
	}
}

// raised has rules raise the action's tier.
func raised(r *approval.Request) {
	r.Ruling.Tier = policy.TierDestructive
	r.Ruling.Rules = []policy.FiredRule{
		{ID: r.Action, Why: r.Action + " is tier 3, external-facing."},
		{ID: "bulk", RaiseTo: policy.TierDestructive, Why: "The count, 214, is more than 25."},
		{ID: "external-mail", RaiseTo: policy.TierDestructive, Why: "The mail leaves the company."},
	}
}

func reasonRequired(r *approval.Request) { r.Ruling.Requirement.ReasonRequired = true }

// ownAllowed lets people of the first role approve what is their own.
func ownAllowed(r *approval.Request) {
	r.Ruling.Requirement.Roles = slices.Clone(r.Ruling.Requirement.Roles)
	r.Ruling.Requirement.Roles[0].AllowSelf = true
}

// own marks the last decision as one about the person's own.
func own(r *approval.Request) { r.Decisions[len(r.Decisions)-1].Own = true }

// redacted has secrets in the payload, which the policy hides.
func redacted(r *approval.Request) {
	payload(`{"login":"ada","password":"hunter2, hunter3","customers":[{"name":"Grace","card":{"number":4111111111111111,"cvc":"123"}},{"name":"Alan","card":null}],"pin":1234,"urgent":true,"keys":["a","b"]}`)(r)
	r.Ruling.Redactions = policy.Redactions{Keys: []string{"password", "keys"}, Paths: []string{"/customers/*/card", "/pin", "/urgent"}}
}

// vote adds a decision and counts it as a change.
func vote(who approval.Approver, verdict approval.Verdict, role, reason string) func(*approval.Request) {
	return func(r *approval.Request) {
		at := asked.Add(time.Duration(len(r.Decisions)+1) * 5 * time.Minute)
		r.Decisions = append(r.Decisions, approval.Decision{
			Receipt: "rcpt_1", Approver: who, Verdict: verdict, Reason: reason, Surface: approval.Slack,
			Version: r.Version, Digest: r.Digest, Roles: []approval.Membership{{Role: role, Via: "user"}}, At: at,
		})
		r.Revision++
		r.UpdatedAt = at
		switch {
		case verdict == approval.Reject:
			r.Status, r.Reason, r.DecidedAt, r.ClosedAt = approval.Rejected, reason, at, at
		case len(r.Missing()) == 0:
			r.Status, r.DecidedAt, r.ApplyBy = approval.Approved, at, at.Add(15*time.Minute)
		}
	}
}

func approved(r *approval.Request) { vote(ada, approval.Approve, "oncall", "")(r) }

func applied(r *approval.Request) {
	approved(r)
	r.Status = approval.Applied
	r.ClosedAt = asked.Add(6 * time.Minute)
	r.Execution = &approval.Execution{ID: "exec_1", Version: 1, StartedAt: r.ClosedAt, Outcome: approval.Unknown}
	r.Revision++
}

func finished(outcome approval.Outcome, detail string) func(*approval.Request) {
	return func(r *approval.Request) {
		applied(r)
		r.Execution.Outcome, r.Execution.Detail, r.Execution.FinishedAt = outcome, detail, asked.Add(7*time.Minute)
		r.Revision++
	}
}

func expired(r *approval.Request) {
	r.Status = approval.Expired
	r.ClosedAt = r.ExpiresAt
	if !r.ApplyBy.IsZero() {
		r.ClosedAt = r.ApplyBy
	}
	r.Revision++
}

func superseded(r *approval.Request) {
	approved(r)
	r.Status = approval.Rejected
	r.Reason = "Somebody who approved no longer counts, so 1 of oncall is missing."
	r.ClosedAt = asked.Add(8 * time.Minute)
	r.Revision++
}

// denied ends a request that the policy came to deny.
func denied(r *approval.Request) {
	superseded(r)
	r.Decisions, r.DecidedAt, r.ApplyBy = nil, time.Time{}, time.Time{}
	r.Reason = "The policy now denies this action. Nobody deletes customers during the audit."
}

func payload(text string) func(*approval.Request) {
	return func(r *approval.Request) { r.Payload, r.StatedCount = approval.Payload(text), nil }
}

const hostile = "x` <https://evil.example|Approve here> <!channel> <@U0ADA> *Approved by the CISO* ```\n@here &lt;!here&gt; :white_check_mark: \u202egnp.exe \u200bzero\u2060width р\u0430ypal ١٠٠"

// states are the requests whose cards are kept as golden files.
func states() map[string]*approval.Request {
	var lines []string
	for i := range 10_000 {
		lines = append(lines, fmt.Sprintf(`{"id": %d, "note": "row %d of the export, to be deleted"}`, i, i))
	}
	return map[string]*approval.Request{
		"pending":            deletion(),
		"partial":            deletion(twoOf, vote(ada, approval.Approve, "oncall", "")),
		"approved":           deletion(approved),
		"applied":            deletion(applied),
		"applied-succeeded":  deletion(finished(approval.Succeeded, "214 records deleted in 3.2 s")),
		"applied-failed":     deletion(finished(approval.Failed, "403 from the CRM after 12 records")),
		"rejected":           deletion(vote(grace, approval.Reject, "oncall", "Legal hold until March; ask again then.")),
		"rejected-no-reason": deletion(vote(grace, approval.Reject, "oncall", "")),
		"expired":            deletion(expired),
		"expired-approved":   deletion(approved, expired),
		"superseded":         deletion(superseded),
		"edited": deletion(twoOf, vote(ada, approval.Approve, "oncall", ""), func(r *approval.Request) {
			r.Version, r.Editors, r.Payload = 2, []approval.Approver{grace}, idsPayload(12)
			r.Revision++
		}),
		"superseded-undecided": deletion(denied),
		"tier-2":               deletion(tier(policy.TierInternalWrite, "strict")),
		"tier-4":               deletion(tier(policy.TierDestructive, "cautious")),
		"raised":               deletion(raised),
		"reason-required":      deletion(reasonRequired),
		"reasons": deletion(twoOf, reasonRequired, vote(ada, approval.Approve, "oncall", "Checked the list with sales; the 214 are former customers."),
			vote(grace, approval.Approve, "finance", "Invoices are all paid.")),
		"redacted":           deletion(redacted),
		"own-allowed":        deletion(ownAllowed),
		"own-allowed-of-two": deletion(twoOf, ownAllowed),
		"own":                deletion(ownAllowed, vote(alan, approval.Approve, "oncall", ""), own),
		"own-edit": deletion(ownAllowed, func(r *approval.Request) {
			r.Version, r.Editors = 2, []approval.Approver{grace}
			r.Revision++
		}, vote(grace, approval.Approve, "oncall", ""), own),
		"in-view":           deletion(inView),
		"in-view-confirmed": deletion(inView, confirmedInView("Checked with sales.")),
		"in-view-edited": deletion(inView, func(r *approval.Request) {
			r.Version, r.Editors, r.Payload = 2, []approval.Approver{{}}, idsPayload(12)
		}, confirmedInView("")),
		"in-view-denied":     deletion(inView, nobody(approval.App, approval.Reject, "Not this table.")),
		"in-view-taken-back": deletion(inView, confirmedInView(""), takenBack),
		"in-view-unseen":     deletion(nobody(approval.InBand, approval.Reject, "The agent's host can't show this to a person, and nobody else is asked.")),
		"nothing-stated": deletion(payload(`{}`), func(r *approval.Request) {
			r.Action, r.Target, r.Environment, r.Reversible, r.ActsFor = "", "", "", nil, approval.Approver{}
		}),
		"ids":                deletion(ids(214)),
		"ids-not-stated":     deletion(ids(12), func(r *approval.Request) { r.StatedCount = nil }),
		"count-contradicted": deletion(ids(214), func(r *approval.Request) { r.StatedCount = pointer[int64](1) }),
		"empty-payload":      deletion(payload(`{}`)),
		"long-payload":       deletion(payload(`{"rows":[` + strings.Join(lines[:900], ",\n") + `]}`)),
		"10000-lines":        deletion(payload(`{"rows":[` + strings.Join(lines[:3000], ",\n") + strings.Repeat("\n", 7000) + `]}`)),
		"hostile": deletion(payload(`{"note": `+quoted(strings.ReplaceAll(hostile, "\n", ""))+`, "rtl": "\u202e"}`), func(r *approval.Request) {
			r.Action, r.Target, r.Environment, r.Purpose = hostile[:60], "<!here> | <@U0ADA>", "prod<!channel>", hostile
		}),
		"long-texts": deletion(payload(`{"text": "`+strings.Repeat("<&>", 1200)+`"}`), func(r *approval.Request) {
			r.Purpose = strings.Repeat("Because & ", 100)
			r.Action = strings.Repeat("<", 200)
			r.Target = strings.Repeat("\u202e", 500)
			r.Environment = strings.Repeat("&", 60)
		}),
	}
}

// inView is shown in the agent's host, where confirming is enough.
func inView(r *approval.Request) {
	r.Executor, r.HostView, r.Ruling.InView = approval.ByAgent, true, true
	r.Ruling.Tier, r.Ruling.Rules = policy.TierExternal, nil
}

func confirmedInView(reason string) func(*approval.Request) {
	return nobody(approval.App, approval.Approve, reason)
}

// takenBack has the host take back what was approved.
func takenBack(r *approval.Request) {
	applyBy, decidedAt := r.ApplyBy, r.DecidedAt
	nobody(approval.App, approval.Reject, "")(r)
	r.ApplyBy, r.DecidedAt = applyBy, decidedAt
	r.ClosedAt = decidedAt.Add(2 * time.Minute)
}
