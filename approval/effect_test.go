package approval_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/approval/approvaltest"
	"github.com/countersign/countersign/audit"
	"github.com/countersign/countersign/policy"
)

// eventsOf are the types of a request's events, in order, and the last of them.
func eventsOf(t *testing.T, f *approvaltest.Fixture, id approval.ID) (types string, last audit.Event) {
	t.Helper()
	var all []string
	for event, err := range f.Store.Events(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if event.RequestID == string(id) {
			all, last = append(all, event.Type), event
		}
	}
	return strings.Join(all, " "), last
}

func nothingToTell(t *testing.T, f *approvaltest.Fixture) {
	t.Helper()
	if _, due, err := f.Store.NextNotice(t.Context(), "slack:C1", f.Clock.Now()); err != nil || due {
		t.Errorf("people are told of what they needn't decide (%v)", err)
	}
}

// What policy allows runs without a person, with the rule as its decider on
// record.
func TestAllowedByPolicy(t *testing.T) {
	t.Parallel()
	f := ruledBy(t, generous)
	r, err := ask(f, "crm.get", `{"id":1}`)
	if err != nil || r.Status != approval.Approved {
		t.Fatalf("got %+v (%v)", r, err)
	}
	if got, err := f.Service.Await(t.Context(), f.Agent, r.ID, time.Hour); err != nil || got.Status != approval.Approved {
		t.Errorf("awaiting it: %v (%v)", got, err)
	}
	stored, err := f.Store.Request(t.Context(), r.ID)
	if err != nil || len(stored.Decisions) != 1 {
		t.Fatalf("stored with %v (%v)", stored, err)
	}
	d := stored.Decisions[0]
	if d.Surface != approval.Policy || !d.Approver.IsZero() || d.Verdict != approval.Approve || d.Reason == "" || d.Receipt == "" || len(d.Roles) > 0 || d.Own {
		t.Errorf("the decision is %+v", d)
	}
	if !stored.ApplyBy.Equal(f.Clock.Now().Add(15*time.Minute)) || len(stored.Votes()) != 0 {
		t.Errorf("apply by %s with the votes %v", stored.ApplyBy, stored.Votes())
	}
	types, last := eventsOf(t, f, r.ID)
	if types != "request.created request.approved" || last.Actor != "policy:crm.get" || last.Surface != "policy" {
		t.Errorf("the events are %s, the last by %s", types, last.Actor)
	}
	nothingToTell(t, f)
	for name, err := range map[string]error{
		"deciding": func() error {
			_, err := f.Service.Decide(t.Context(), approvaltest.Alice, approvaltest.Ballot(r, approval.Reject))
			return err
		}(),
		"editing": func() error {
			_, err := f.Service.Edit(t.Context(), approvaltest.Alice, r.ID, 1, []byte(`{"id":2}`), approval.Slack)
			if errors.Is(err, approval.ErrNotApprover) {
				return approval.ErrDecided // nobody has a role in it
			}
			return err
		}(),
	} {
		if !errors.Is(err, approval.ErrDecided) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	if applied, err := f.Service.Claim(t.Context(), f.Agent, r.ID); err != nil || string(applied.Payload) != `{"id":1}` {
		t.Errorf("applying it: %v (%v)", applied, err)
	}
	if _, err := f.Service.Claim(t.Context(), f.Agent, r.ID); !errors.Is(err, approval.ErrApplied) {
		t.Errorf("applying it again: %v", err)
	}
	nothingToTell(t, f)
}

// What policy denies is on record, nobody is asked, and nobody can approve it.
func TestDeniedByPolicy(t *testing.T) {
	t.Parallel()
	f := ruledBy(t, generous)
	r, err := ask(f, "crm.drop", `{}`)
	if !errors.Is(err, approval.ErrDenied) || !strings.Contains(err.Error(), "Nobody drops the CRM.") {
		t.Fatalf("got %v", err)
	}
	if r == nil || r.Status != approval.Rejected || r.Reason != "Nobody drops the CRM." {
		t.Fatalf("got %+v", r)
	}
	stored, err := f.Service.Status(t.Context(), f.Agent, r.ID)
	if err != nil || stored.Status != approval.Rejected || len(stored.Decisions) != 1 {
		t.Fatalf("stored is %+v (%v)", stored, err)
	}
	if d := stored.Decisions[0]; d.Surface != approval.Policy || !d.Approver.IsZero() || d.Verdict != approval.Reject {
		t.Errorf("the decision is %+v", d)
	}
	if types, last := eventsOf(t, f, r.ID); types != "request.created request.rejected" || last.Actor != "policy:no-drop" {
		t.Errorf("the events are %s, the last by %s", types, last.Actor)
	}
	nothingToTell(t, f)
	if _, err := f.Service.Decide(t.Context(), approvaltest.Alice, approvaltest.Ballot(r, approval.Approve)); !errors.Is(err, approval.ErrDecided) {
		t.Errorf("approving it: %v", err)
	}
	if _, err := f.Service.Claim(t.Context(), f.Agent, r.ID); !errors.Is(err, approval.ErrRejected) {
		t.Errorf("applying it: %v", err)
	}
}

// Nobody is no person, whatever a directory says of them.
func TestNobodyDecides(t *testing.T) {
	t.Parallel()
	f := approvaltest.New(t)
	f.People.Give("finance", approval.Approver{})
	r := f.Propose(t)
	if _, err := f.Service.Decide(t.Context(), approval.Approver{}, approvaltest.Ballot(r, approval.Approve)); !errors.Is(err, approval.ErrIneligible) {
		t.Errorf("deciding: %v", err)
	}
	if _, err := f.Service.Edit(t.Context(), approval.Approver{}, r.ID, 1, []byte(`{}`), approval.Slack); err == nil {
		t.Error("nobody edited it")
	}
}

// Policy bounds how long people have, whatever the agent asks for; it doesn't
// lengthen it.
func TestDecideWithin(t *testing.T) {
	t.Parallel()
	f := approvaltest.New(t, func(o *approval.Options) {
		o.Policy = financePolicy{approval: "decide_within: 20m"}.parse(t)
	})
	for wished, want := range map[time.Duration]time.Duration{
		0:                20 * time.Minute,
		5 * time.Minute:  5 * time.Minute,
		20 * time.Minute: 20 * time.Minute,
		9 * time.Hour:    20 * time.Minute,
	} {
		r := f.Propose(t, func(p *approval.Proposal) { p.TTL = wished })
		if got := r.ExpiresAt.Sub(r.CreatedAt); got != want {
			t.Errorf("an agent that asks for %s gets %s, want %s", wished, got, want)
		}
	}
}

// A request says why people are asked, without what policy redacts.
func TestExplanationIsFrozen(t *testing.T) {
	t.Parallel()
	f := ruledBy(t, generous+`
redact: {keys: [secret]}
rules: [{id: to-evil, actions: [crm.send], when: 'args.secret == "hunter2"', raise_to: 4, why: "It has the secret."}]`)
	r, err := ask(f, "crm.send", `{"secret":"hunter2"}`)
	if err != nil {
		t.Fatal(err)
	}
	stored, err := f.Store.Request(t.Context(), r.ID)
	if err != nil || stored.Explanation == "" || stored.Explanation != r.Explanation {
		t.Fatalf("stored with the explanation %q, made with %q (%v)", stored.Explanation, r.Explanation, err)
	}
	if !strings.Contains(stored.Explanation, "It has the secret.") {
		t.Errorf("the explanation lacks why: %s", stored.Explanation)
	}
	if err := f.Service.SetPolicy(t.Context(), tiered(t, generous)); err != nil {
		t.Fatal(err)
	}
	if again, err := f.Service.Status(t.Context(), f.Agent, r.ID); err != nil || again.Explanation != stored.Explanation || again.Ruling.Revision != stored.Ruling.Revision {
		t.Errorf("another policy changed the explanation (%v)", err)
	}
}

// A click under a policy that asks for more than it did ends the request and
// says why. A reject stands whatever policy says now.
func TestDecideUnderAnotherPolicy(t *testing.T) {
	t.Parallel()
	one := financePolicy{}
	tests := []struct {
		name      string
		asked     financePolicy
		later     financePolicy
		who       approval.Approver
		verdict   approval.Verdict
		want      error
		status    approval.Status
		whyHas    string
		lastEvent string
	}{
		{name: "the same", asked: one, later: one, verdict: approval.Approve, status: approval.Approved, lastEvent: "request.approved"},
		{name: "more people", asked: one, later: financePolicy{count: 2}, verdict: approval.Approve,
			want: approval.ErrSuperseded, status: approval.Rejected, whyHas: "The policy now asks for 2 of finance", lastEvent: "decision.refused"},
		{name: "more people, and a reject", asked: one, later: financePolicy{count: 2}, verdict: approval.Reject, status: approval.Rejected, lastEvent: "request.rejected"},
		{name: "fewer people", asked: financePolicy{count: 2}, later: one, verdict: approval.Approve, status: approval.Pending, lastEvent: "decision.recorded"},
		{name: "denied", asked: one, later: financePolicy{extra: `block: [{id: b, actions: [payouts.*], why: "Over."}]`}, verdict: approval.Approve,
			want: approval.ErrSuperseded, status: approval.Rejected, whyHas: "The policy now denies this action. Over.", lastEvent: "decision.refused"},
		{name: "denied, and a reject", asked: one, later: financePolicy{extra: `block: [{id: b, actions: [payouts.*], why: "Over."}]`}, verdict: approval.Reject,
			status: approval.Rejected, lastEvent: "request.rejected"},
		{name: "a click of somebody who may not decide", asked: one, later: financePolicy{count: 2}, who: approvaltest.Carol, verdict: approval.Approve,
			want: approval.ErrNotApprover, status: approval.Pending, lastEvent: "decision.refused"},
		{name: "another role, whose holder approves", asked: one, later: financePolicy{role: "sre"}, who: approvaltest.Carol, verdict: approval.Approve,
			want: approval.ErrSuperseded, status: approval.Rejected, whyHas: "1 of sre", lastEvent: "decision.refused"},
		{name: "another role, whose holder rejects", asked: one, later: financePolicy{role: "sre"}, who: approvaltest.Carol, verdict: approval.Reject,
			status: approval.Rejected, lastEvent: "request.rejected"},
		{name: "another role, and a holder of the old one rejects", asked: one, later: financePolicy{role: "sre"}, verdict: approval.Reject,
			status: approval.Rejected, lastEvent: "request.rejected"},
		{name: "a role that is gone", asked: one, later: financePolicy{role: "sre", gone: true}, verdict: approval.Approve,
			want: approval.ErrNotApprover, status: approval.Pending, lastEvent: "decision.refused"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			f := approvaltest.New(t, func(o *approval.Options) { o.Policy = test.asked.parse(t) })
			if test.later.role == "sre" {
				f.People.Give("sre", approvaltest.Carol)
			}
			who := test.who
			if who.IsZero() {
				who = approvaltest.Alice
			}
			r := f.Propose(t)
			if err := f.Service.SetPolicy(t.Context(), test.later.parse(t)); err != nil {
				t.Fatal(err)
			}
			got, err := f.Service.Decide(t.Context(), who, approvaltest.Ballot(r, test.verdict))
			if !errors.Is(err, test.want) || got.Status != test.status {
				t.Errorf("got %s (%v), want %s (%v)", got.Status, err, test.status, test.want)
			}
			if test.want == approval.ErrSuperseded {
				if !errors.Is(err, approval.ErrRejected) || !strings.Contains(err.Error(), test.whyHas) || !strings.Contains(got.Reason, test.whyHas) {
					t.Errorf("the clicker is told %v, the request says %q; want %q", err, got.Reason, test.whyHas)
				}
				if types, _ := eventsOf(t, f, r.ID); !strings.Contains(types, "request.superseded") {
					t.Errorf("the events are %s", types)
				}
			}
			if types, last := eventsOf(t, f, r.ID); last.Type != test.lastEvent {
				t.Errorf("the events are %s, want %s last", types, test.lastEvent)
			}
		})
	}
}

// What the clock says counts when it is decided: what is asked in working hours
// and takes more outside them can't be approved at night.
func TestHoursOfTheMomentCount(t *testing.T) {
	t.Parallel()
	f := ruledBy(t, generous+`
hours: {zone: UTC, days: [mon, tue, wed, thu, fri], from: "03:00", to: "20:00"}
rules: [{id: night, actions: [crm.send], when: '!in_hours', raise_to: 4, why: "It is night."}]`)
	f.Clock.Set(time.Date(2026, 1, 2, 19, 50, 0, 0, time.UTC)) // a Friday
	r, err := ask(f, "crm.send", `{}`)
	if err != nil {
		t.Fatal(err)
	}
	f.Clock.Advance(5 * time.Minute)
	second, err := ask(f, "crm.send", `{"to":2}`)
	if err != nil {
		t.Fatal(err)
	}
	f.Decide(t, approvaltest.Alice, second, approval.Approve)
	f.Clock.Advance(5 * time.Minute)
	if got, err := f.Service.Decide(t.Context(), approvaltest.Alice, approvaltest.Ballot(r, approval.Approve)); !errors.Is(err, approval.ErrSuperseded) {
		t.Errorf("deciding at night: %s (%v)", got.Status, err)
	}
	if got, err := f.Service.Claim(t.Context(), f.Agent, second.ID); !errors.Is(err, approval.ErrSuperseded) {
		t.Errorf("applying at night: %s (%v)", got.Status, err)
	}
}

// What policy allowed is asked of it again when it is applied.
func TestAllowedIsRuledAgain(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ later, why string }{
		"the same":                     {"", ""},
		"another tier that is allowed": {`rules: [{id: careful, actions: [crm.get], raise_to: 2, why: "Careful."}]`, ""},
		"people decide now":            {`rules: [{id: careful, actions: [crm.get], raise_to: 3, why: "Careful."}]`, "The policy now has people decide on this action."},
		"denied now": {`environments: {production: {mode: strict}}
rules: [{id: careful, actions: [crm.get], raise_to: 4, why: "Careful."}]`, "The policy now denies this action. Mode strict denies tier 4, destructive."},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := ruledBy(t, generous)
			r, err := ask(f, "crm.get", `{}`)
			if err != nil {
				t.Fatal(err)
			}
			if err := f.Service.SetPolicy(t.Context(), tiered(t, generous+"\n"+test.later)); err != nil {
				t.Fatal(err)
			}
			got, err := f.Service.Claim(t.Context(), f.Agent, r.ID)
			if test.why == "" {
				if err != nil || got.Status != approval.Applied {
					t.Errorf("got %s (%v)", got.Status, err)
				}
				return
			}
			if !errors.Is(err, approval.ErrSuperseded) || got.Reason != test.why {
				t.Errorf("got %s, %q (%v)", got.Status, got.Reason, err)
			}
			// A person can't be asked about it afterwards.
			if _, err := f.Service.Claim(t.Context(), f.Agent, r.ID); !errors.Is(err, approval.ErrRejected) {
				t.Errorf("applied again: %v", err)
			}
		})
	}
}

// The policy that counts is the one in force when the decision is stored, also
// if it came while people were looked up.
func TestPolicyChangesDuringADecision(t *testing.T) {
	t.Parallel()
	f := approvaltest.New(t)
	r := f.Propose(t)
	service, directory := slowed(t, f)
	directory.meanwhile = func() {
		if err := service.SetPolicy(t.Context(), approvaltest.Policy(t, 2)); err != nil {
			t.Error(err)
		}
	}
	got, err := service.Decide(t.Context(), approvaltest.Alice, approvaltest.Ballot(r, approval.Approve))
	if !errors.Is(err, approval.ErrSuperseded) || got.Status != approval.Rejected {
		t.Errorf("got %v (%v)", got, err)
	}
}

// The same for the claim.
func TestPolicyChangesDuringAClaim(t *testing.T) {
	t.Parallel()
	f := approvaltest.New(t)
	r := f.Decide(t, approvaltest.Alice, f.Propose(t), approval.Approve)
	service, directory := slowed(t, f)
	directory.meanwhile = func() {
		if err := service.SetPolicy(t.Context(), approvaltest.Policy(t, 2)); err != nil {
			t.Error(err)
		}
	}
	if got, err := service.Claim(t.Context(), f.Agent, r.ID); !errors.Is(err, approval.ErrSuperseded) {
		t.Errorf("got %v (%v)", got, err)
	}
}

// restless is a directory during whose look-ups something always happens.
type restless struct {
	approval.Directory
	meanwhile func()
}

func (d *restless) Standing(ctx context.Context, who approval.Approver, roles []policy.Role) (approval.Standing, error) {
	d.meanwhile()
	return d.Directory.Standing(ctx, who, roles)
}

// A policy that changes at every look-up decides nothing.
func TestPolicyKeepsChanging(t *testing.T) {
	t.Parallel()
	f := approvaltest.New(t)
	r := f.Propose(t)
	directory := &restless{Directory: f.People}
	service, err := approval.New(f.Store, directory, approval.Options{Policy: approvaltest.Policy(t, 1), Now: f.Clock.Now})
	if err != nil {
		t.Fatal(err)
	}
	directory.meanwhile = func() {
		if err := service.SetPolicy(t.Context(), approvaltest.Policy(t, 1)); err != nil {
			t.Error(err)
		}
	}
	got, err := service.Decide(t.Context(), approvaltest.Alice, approvaltest.Ballot(r, approval.Approve))
	if !errors.Is(err, approval.ErrUnverified) || got.Status != approval.Pending {
		t.Errorf("got %s (%v)", got.Status, err)
	}
}

// What is decided is what was ruled: an edit between the two makes the click
// stale.
func TestEditDuringADecision(t *testing.T) {
	t.Parallel()
	f := approvaltest.New(t)
	r := f.Propose(t)
	service, directory := slowed(t, f)
	directory.meanwhile = func() {
		if _, err := f.Service.Edit(t.Context(), approvaltest.Bob, r.ID, 1, []byte(`{"amount":2}`), approval.Slack); err != nil {
			t.Error(err)
		}
	}
	if got, err := service.Decide(t.Context(), approvaltest.Alice, approvaltest.Ballot(r, approval.Approve)); !errors.Is(err, approval.ErrStale) || got.Status != approval.Pending {
		t.Errorf("got %v (%v)", got, err)
	}
}

// A person's edit is ruled like the agent's request, and never makes approving
// easier.
func TestEditIsRuled(t *testing.T) {
	t.Parallel()
	const notAll = `, {id: not-all, actions: [crm.send], when: '"all" in args.ids', why: "Not to all."}]`
	for name, test := range map[string]struct {
		asked, edited string
		want          error
		requirement   string
		tier          policy.Tier
		count         float64
		explained     string // what the explanation says
	}{
		"to more":            {asked: `{"ids":[1]}`, edited: `{"ids":[1,2,3]}`, requirement: "2 of finance", tier: 5, count: 3, explained: "count is 3"},
		"to less":            {asked: `{"ids":[1,2,3]}`, edited: `{"ids":[1]}`, requirement: "2 of finance", tier: 5, count: 1, explained: "count is 3"},
		"to as much":         {asked: `{"ids":[1]}`, edited: `{"ids":[7,8]}`, requirement: "1 of finance", tier: 3, count: 2, explained: "count is 2"},
		"to what is denied":  {asked: `{"ids":[1]}`, edited: `{"ids":["all"]}`, want: approval.ErrDenied, requirement: "1 of finance", tier: 3, count: 1, explained: "count is 1"},
		"to what is allowed": {asked: `{"ids":[1]}`, edited: `{"ids":[]}`, requirement: "1 of finance", tier: 3, count: 0, explained: "count is 1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lines := tieredLines(generous + `
rules: [{id: none, actions: [crm.send], count_at_most: 0, lower_to: 1, why: "Nothing is sent."}]`)
			lines = strings.Replace(lines, `drops the CRM."}]`, `drops the CRM."}`+notAll, 1)
			lines = strings.Replace(lines, "send: {", "send: {count: 'size(args.ids)', ", 1)
			f := underPolicy(t, lines)
			r, err := ask(f, "crm.send", test.asked)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := f.Service.Edit(t.Context(), approvaltest.Bob, r.ID, 1, []byte(test.edited), approval.Slack); !errors.Is(err, test.want) {
				t.Fatalf("got %v, want %v", err, test.want)
			}
			stored, err := f.Store.Request(t.Context(), r.ID)
			if err != nil {
				t.Fatal(err)
			}
			if got := stored.Ruling; got.Effect != policy.RequireApproval || got.Requirement.String() != test.requirement || got.Tier != test.tier || got.Count.Value != test.count {
				t.Errorf("for %v it takes %s at tier %d (%s), want for %v %s at tier %d", got.Count, got.Requirement, got.Tier, got.Effect, test.count, test.requirement, test.tier)
			}
			if !strings.Contains(stored.Explanation, test.explained) {
				t.Errorf("the explanation doesn't say %q:\n%s", test.explained, stored.Explanation)
			}
			if stored.Asked != r.Asked || stored.Asked != r.Digest {
				t.Error("an edit changed what the agent asked")
			}
			if edited := test.want == nil; edited != (stored.Version == 2) || edited != (string(stored.Payload) == test.edited) {
				t.Errorf("version %d with %s", stored.Version, stored.Payload)
			}
		})
	}
}

// An edit under a policy that asks for other people takes those of then and of
// now.
func TestEditTakesBothRequirements(t *testing.T) {
	t.Parallel()
	f := approvaltest.New(t, func(o *approval.Options) { o.Policy = financePolicy{count: 2}.parse(t) })
	f.People.Give("sre", approvaltest.Carol)
	r := f.Propose(t)
	if err := f.Service.SetPolicy(t.Context(), financePolicy{role: "sre", approval: "reason_required: true"}.parse(t)); err != nil {
		t.Fatal(err)
	}
	editor := approval.Approver{Workspace: "T0TEST", User: "U0EDITOR"}
	f.People.Give("finance", editor)
	r, err := f.Service.Edit(t.Context(), editor, r.ID, 1, []byte(`{"amount":1}`), approval.Slack)
	if err != nil {
		t.Fatal(err)
	}
	if got := r.Ruling.Requirement; got.String() != "2 of finance and 1 of sre" || !got.ReasonRequired {
		t.Fatalf("it takes %+v", got)
	}
	for _, who := range []approval.Approver{approvaltest.Alice, approvaltest.Bob, approvaltest.Carol} {
		ballot := approvaltest.Ballot(r, approval.Approve)
		ballot.Reason = "Fine."
		if r, err = f.Service.Decide(t.Context(), who, ballot); err != nil {
			t.Fatalf("%s: %v", who, err)
		}
	}
	if r.Status != approval.Approved {
		t.Errorf("it is %s", r.Status)
	}
	if _, err := f.Service.Claim(t.Context(), f.Agent, r.ID); err != nil {
		t.Error(err)
	}
}

// A reason is words, where policy asks for one. Rejecting takes none.
func TestReasonRequired(t *testing.T) {
	t.Parallel()
	f := approvaltest.New(t, func(o *approval.Options) { o.Policy = financePolicy{approval: "reason_required: true"}.parse(t) })
	r := f.Propose(t)
	ballot := approvaltest.Ballot(r, approval.Approve)
	for _, reason := range []string{"", " \n\t"} {
		ballot.Reason = reason
		if got, err := f.Service.Decide(t.Context(), approvaltest.Alice, ballot); !errors.Is(err, approval.ErrReasonRequired) || got.Status != approval.Pending {
			t.Errorf("approving with the reason %q: %v", reason, err)
		}
	}
	ballot.Reason = "Checked with the team."
	if got, err := f.Service.Decide(t.Context(), approvaltest.Alice, ballot); err != nil || got.Decisions[0].Reason != ballot.Reason {
		t.Errorf("with a reason: %v", err)
	}
	f.Decide(t, approvaltest.Alice, f.Propose(t), approval.Reject)
}

// Somebody who works alone approves what their own agent asks, through a role
// that allows it and through no other, and that is on record.
func TestOwnApprovals(t *testing.T) {
	t.Parallel()
	const document = `
version: 1
mode: cautious
roles:
  me: {users: [U0ALICE], self_approval: true}
  finance: {users: [U0ALICE, U0BOB]}
approval: {requires: [{role: me}, {role: finance}]}
agents: {deployer: {owner: U0BOB}}
limits: {pending: 1000, per_minute: 60000, cooldown: 0s}
`
	f := approvaltest.New(t, func(o *approval.Options) {
		o.Policy = approvaltest.ParsePolicy(t, strings.Replace(document, "finance: {users: [U0ALICE, U0BOB]}", "finance: {users: [U0ALICE, U0BOB, U0CAROL]}", 1))
	})
	f.Agent.Owner = approvaltest.Alice
	f.People.Give("me", approvaltest.Alice)
	f.People.Give("finance", approvaltest.Carol)
	r := f.Propose(t)
	r = f.Decide(t, approvaltest.Alice, r, approval.Approve)
	d := r.Decisions[0]
	if !d.Own || len(d.Roles) != 1 || d.Roles[0].Role != "me" {
		t.Errorf("the own approval is recorded as %+v", d)
	}
	if types, last := eventsOf(t, f, r.ID); !strings.Contains(string(last.Detail), `"own":true`) {
		t.Errorf("the last event of %s is %s", types, last.Detail)
	}
	// The person whom the policy names behind the agent is its owner too.
	if got, err := f.Service.Decide(t.Context(), approvaltest.Bob, approvaltest.Ballot(r, approval.Approve)); !errors.Is(err, approval.ErrSelf) || got.Status != approval.Pending {
		t.Errorf("the owner that the policy names: %s (%v)", got.Status, err)
	}
	r = f.Decide(t, approvaltest.Carol, r, approval.Approve)
	if r.Status != approval.Approved || r.Decisions[1].Own {
		t.Errorf("got %s with %+v", r.Status, r.Decisions)
	}
	if stored, err := f.Store.Request(t.Context(), r.ID); err != nil || !stored.Decisions[0].Own || stored.Decisions[1].Own {
		t.Errorf("stored with %+v (%v)", stored.Decisions, err)
	}
	if _, err := f.Service.Claim(t.Context(), f.Agent, r.ID); err != nil {
		t.Error(err)
	}
}

// The policy that rules is the one of the last event, also when several are set
// at once.
func TestSetPolicy(t *testing.T) {
	t.Parallel()
	f := approvaltest.New(t)
	if err := f.Service.SetPolicy(t.Context(), nil); err == nil {
		t.Error("no policy was accepted")
	}
	before := f.Service.Policy()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := f.Service.SetPolicy(ctx, approvaltest.Policy(t, 2)); err == nil || f.Service.Policy() != before {
		t.Errorf("a policy rules that couldn't be recorded (%v)", err)
	}
	var policies []*policy.Policy
	for i := range 8 {
		policies = append(policies, financePolicy{approval: fmt.Sprintf("apply_within: %dm", i+1)}.parse(t))
	}
	for range 30 {
		var setting sync.WaitGroup
		for _, p := range policies {
			setting.Go(func() {
				if err := f.Service.SetPolicy(t.Context(), p); err != nil {
					t.Error(err)
				}
			})
		}
		setting.Wait()
		if last := lastEvent(t, f); !strings.Contains(string(last.Detail), f.Service.Policy().Revision()) {
			t.Fatalf("the last event is %s %s, and %s rules", last.Type, last.Detail, f.Service.Policy().Revision())
		}
	}
	last := lastEvent(t, f)
	if last.Type != "policy.loaded" || last.Actor != "countersign" || !strings.Contains(string(last.Detail), f.Service.Policy().Revision()) {
		t.Errorf("the last event is %s %s, and %s rules", last.Type, last.Detail, f.Service.Policy().Revision())
	}
}

// A request that waits isn't ruled again only because the policy changed.
func TestPolicyChangesWhileWaiting(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := approvaltest.New(t, func(o *approval.Options) { o.Now = nil })
		r := f.Propose(t)
		answers := await(t.Context(), f, r.ID, time.Minute)
		synctest.Wait()
		if err := f.Service.SetPolicy(t.Context(), approvaltest.Policy(t, 2)); err != nil {
			t.Fatal(err)
		}
		if got := <-answers; got.err != nil || got.r.Status != approval.Pending || got.r.Ruling.Requirement.String() != "1 of finance" {
			t.Errorf("got %+v (%v)", got.r, got.err)
		}
	})
}

// financePolicy is a policy under which people of one role approve everything.
type financePolicy struct {
	role     string // "finance" if empty; also "sre"
	gone     bool   // there is no role finance
	count    int    // 1 if zero
	approval string // more keys of approval
	extra    string // more of the document
}

func (p financePolicy) parse(t testing.TB) *policy.Policy {
	t.Helper()
	role := p.role
	if role == "" {
		role = "finance"
	}
	finance := "finance: {users: [U0ALICE, U0BOB]}"
	if p.gone {
		finance = ""
	}
	return approvaltest.ParsePolicy(t, fmt.Sprintf(`
version: 1
mode: cautious
roles:
  %s
  sre: {users: [U0ALICE, U0BOB, U0CAROL]}
approval:
  requires: [{role: %s, count: %d}]
  %s
limits: {pending: 1000, per_minute: 60000, cooldown: 0s}
%s
`, finance, role, max(p.count, 1), p.approval, p.extra))
}

// A deadline for applying that became shorter counts for what is approved.
func TestShorterTimeToApply(t *testing.T) {
	t.Parallel()
	long := "approval: {requires: [{role: finance}], apply_within: 10h}\n"
	f := underPolicy(t, long)
	r := f.Decide(t, approvaltest.Alice, f.Propose(t), approval.Approve)
	if err := f.Service.SetPolicy(t.Context(), finance(t, asksFinance)); err != nil {
		t.Fatal(err)
	}
	f.Clock.Advance(time.Hour)
	r, err := f.Service.Claim(t.Context(), f.Agent, r.ID)
	if !errors.Is(err, approval.ErrSuperseded) {
		t.Errorf("got %s (%v)", r.Status, err)
	}
}

// An edit under a looser policy gets neither a longer time nor a look at what
// was hidden.
func TestEditUnderALooserPolicy(t *testing.T) {
	t.Parallel()
	f := underPolicy(t, "approval: {requires: [{role: finance}], apply_within: 1m}\nredact: {paths: [/iban]}\n")
	r := f.Propose(t)
	if err := f.Service.SetPolicy(t.Context(), finance(t, "approval: {requires: [{role: finance}], apply_within: 10h}\n")); err != nil {
		t.Fatal(err)
	}
	r, err := f.Service.Edit(t.Context(), approvaltest.Bob, r.ID, r.Version, []byte(`{"iban": "x"}`), approval.Slack)
	if err != nil || r.Ruling.ApplyWithin != time.Minute || !r.Ruling.Redactions.Hide([]string{"iban"}) {
		t.Errorf("got %v to apply, hiding %v (%v)", r.Ruling.ApplyWithin, r.Ruling.Redactions, err)
	}
}
