package approval_test

import (
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
)

// payout is a call on an account that no other has the payload of.
func payout(account string, number int, options ...func(*approval.Proposal)) approval.Proposal {
	amount := func(p *approval.Proposal) {
		p.Payload = fmt.Appendf(nil, `{"account": %q, "amount": %d}`, account, number)
	}
	return approvaltest.Call(account, append([]func(*approval.Proposal){amount}, options...)...)
}

// granted is a request that Alice approved for longer than once.
func granted(t *testing.T, f *approvaltest.Fixture, scope string, options ...func(*approval.Proposal)) *approval.Request {
	t.Helper()
	r := f.Grant(t, approvaltest.Alice, again(t, f, payout("acct_1", 0, options...)), scope)
	if r.Grant == nil || r.Status != approval.Approved {
		t.Fatalf("got %+v, want a grant", r)
	}
	return r
}

// A grant approves the same tool's calls on the same target, and nothing else.
func TestWhatAGrantCovers(t *testing.T) {
	t.Parallel()
	session := func(name string) func(*approval.Proposal) {
		return func(p *approval.Proposal) { p.Session = name }
	}
	for _, test := range []struct {
		name  string
		scope string
		first []func(*approval.Proposal)
		next  []func(*approval.Proposal)
		agent func(*approval.Agent)
		wait  time.Duration
		to    string // the account; empty for the same
		want  bool
	}{
		{name: "other arguments", scope: "15m", want: true},
		{name: "within the time", scope: "15m", wait: 15*time.Minute - time.Millisecond, want: true},
		{name: "once the time is over", scope: "15m", wait: 15 * time.Minute},
		{name: "within the longer time", scope: "1h", wait: time.Hour - time.Millisecond, want: true},
		{name: "another target", scope: "15m", to: "acct_2"},
		{name: "another tool", scope: "15m", next: []func(*approval.Proposal){action("payouts.drop")}},
		{name: "the same tool in capitals", scope: "15m", next: []func(*approval.Proposal){action("Payouts.create")}},
		{name: "another environment", scope: "15m", next: []func(*approval.Proposal){func(p *approval.Proposal) { p.Environment = "staging" }}},
		{name: "the same environment by another name", scope: "15m", next: []func(*approval.Proposal){func(p *approval.Proposal) { p.Environment = "" }}, want: true},
		{name: "another definition", scope: "15m", next: []func(*approval.Proposal){func(p *approval.Proposal) { p.ToolPin = "pin-2" }}},
		{name: "a definition that isn't pinned", scope: "15m", next: []func(*approval.Proposal){func(p *approval.Proposal) { p.Unpinned = true }}},
		{name: "run by the agent", scope: "15m", next: []func(*approval.Proposal){func(p *approval.Proposal) { p.Executor, p.Target = approval.ByAgent, "acct_1" }}},
		{name: "another agent", scope: "15m", agent: func(a *approval.Agent) { a.Name = "another" }},
		{name: "for another person", scope: "15m", agent: func(a *approval.Agent) { a.Owner = approvaltest.Carol }},
		{name: "in any session", scope: "15m", first: []func(*approval.Proposal){session("a")}, next: []func(*approval.Proposal){session("b")}, want: true},
		{name: "in the same session", scope: "session", first: []func(*approval.Proposal){session("a")}, next: []func(*approval.Proposal){session("a")}, want: true},
		{name: "in another session", scope: "session", first: []func(*approval.Proposal){session("a")}, next: []func(*approval.Proposal){session("b")}},
		{name: "without a session", scope: "session", first: []func(*approval.Proposal){session("a")}},
		{name: "in a session that lasts", scope: "session", first: []func(*approval.Proposal){session("a")}, next: []func(*approval.Proposal){session("a")}, wait: 8*time.Hour - time.Millisecond, want: true},
		{name: "in a session that lasts too long", scope: "session", first: []func(*approval.Proposal){session("a")}, next: []func(*approval.Proposal){session("a")}, wait: 8 * time.Hour},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			f := approvaltest.NewRuns(t)
			first := granted(t, f, test.scope, test.first...)
			f.Clock.Advance(test.wait)
			account := first.Target
			if test.to != "" {
				account = test.to
			}
			agent := f.Agent
			if test.agent != nil {
				test.agent(&agent)
			}
			next, err := f.Service.Request(t.Context(), agent, payout(account, 1, test.next...))
			if err != nil {
				t.Fatal(err)
			}
			if covered := next.GrantedBy == first.ID; covered != test.want || covered != (next.Status == approval.Approved) {
				t.Errorf("got %s by the grant %q, want it covered: %t", next.Status, next.GrantedBy, test.want)
			}
		})
	}
}

// What approvers may be offered: more than once only where it is limited to what
// policy says that the call acts on.
func TestScopes(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		change func(*approval.Proposal)
		want   string
	}{
		{"a call", func(*approval.Proposal) {}, "once 15m 1h"},
		{"a call in a session", func(p *approval.Proposal) { p.Session = "a" }, "once session 15m 1h"},
		{"of a definition that isn't pinned", func(p *approval.Proposal) { p.Unpinned = true }, "once"},
		{"of tier 4", action("payouts.drop"), "once"},
		{"that has no target", func(p *approval.Proposal) { p.Payload = []byte(`{"amount": 1}`) }, "once"},
		{"whose target isn't text", func(p *approval.Proposal) { p.Payload = []byte(`{"account": 1}`) }, "once"},
		{"of a target that only the agent says", func(p *approval.Proposal) {
			p.Target, p.Payload = "acct_1", []byte(`{"amount": 1}`)
		}, "once"},
		{"that the agent runs", func(p *approval.Proposal) { p.Executor, p.ToolPin = approval.ByAgent, "" }, "once 15m 1h"},
		{"that the agent runs, of a target that only it says", func(p *approval.Proposal) {
			p.Executor, p.ToolPin, p.Target, p.Payload = approval.ByAgent, "", "acct_1", []byte(`{"amount": 1}`)
		}, "once"},
		{"that nobody classified", func(p *approval.Proposal) { p.Action, p.Target = "crm.send", "acct_1" }, "once"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			f := approvaltest.NewRuns(t)
			r := again(t, f, approvaltest.Call("acct_1", test.change))
			if got := strings.Join(r.Scopes(), " "); got != test.want {
				t.Errorf("offered %s, want %s", got, test.want)
			}
			// What isn't offered is refused, and recorded as an attempt.
			for _, scope := range []string{"8h", "session", "15m", "forever"} {
				if strings.Contains(" "+test.want+" ", " "+scope+" ") {
					continue
				}
				b := approvaltest.Ballot(r, approval.Approve)
				b.Scope = scope
				var input *approval.InputError
				if _, err := f.Service.Decide(t.Context(), approvaltest.Alice, b); !errors.As(err, &input) || input.Field != "scope" {
					t.Errorf("approving for %s: got %v", scope, err)
				}
				if last := lastEvent(t, f); last.Type != "decision.refused" {
					t.Errorf("approving for %s: the last event is %s", scope, last.Type)
				}
			}
			for _, scope := range []string{"", "once"} {
				b := approvaltest.Ballot(r, approval.Approve)
				b.Scope = scope
				r, err := f.Service.Decide(t.Context(), approvaltest.Alice, b)
				if err != nil && !errors.Is(err, approval.ErrRecorded) || r.Grant != nil {
					t.Errorf("approving %q: got %+v (%v)", scope, r, err)
				}
			}
		})
	}
}

// Of several approvers, the one who allows the least counts.
func TestNarrowestScope(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		alice, bob string
		want       string // the scope; empty if nothing is granted
		within     time.Duration
		session    bool
	}{
		{"15m", "15m", "15m", 15 * time.Minute, false},
		{"15m", "1h", "15m", 15 * time.Minute, false},
		{"1h", "15m", "15m", 15 * time.Minute, false},
		{"session", "1h", "1h", time.Hour, true},
		{"1h", "session", "1h", time.Hour, true},
		{"session", "session", "session", 8 * time.Hour, true},
		{"once", "1h", "", 0, false},
		{"1h", "once", "", 0, false},
		{"", "session", "", 0, false},
		{"session", "", "", 0, false},
	} {
		t.Run(test.alice+" and "+test.bob, func(t *testing.T) {
			t.Parallel()
			f := approvaltest.NewRuns(t, func(o *approval.Options) {
				o.Policy = approvaltest.RunPolicy(t, "tiers: {3: {requires: [{role: finance, count: 2}]}, 4: {requires: [{role: finance, count: 2}]}, 5: {requires: [{role: finance, count: 2}]}}")
			})
			r := again(t, f, payout("acct_1", 0, func(p *approval.Proposal) { p.Session = "a" }))
			r = f.Grant(t, approvaltest.Alice, r, test.alice)
			if r.Grant != nil || r.Status != approval.Pending {
				t.Fatalf("one of two granted %+v", r.Grant)
			}
			r = f.Grant(t, approvaltest.Bob, r, test.bob)
			if test.want == "" {
				if r.Grant != nil || r.Status != approval.Approved {
					t.Errorf("got %s with %+v, want no grant", r.Status, r.Grant)
				}
				return
			}
			g := r.Grant
			if g == nil || g.Scope != test.want || g.ExpiresAt.Sub(g.GrantedAt) != test.within || (g.Session == "a") != test.session {
				t.Fatalf("got %+v", g)
			}
			if stored, err := f.Service.Status(t.Context(), f.Agent, r.ID); err != nil || *stored.Grant != *g {
				t.Errorf("stored is %+v (%v), want %+v", stored.Grant, err, g)
			}
			if next := again(t, f, payout("acct_1", 1, func(p *approval.Proposal) { p.Session = "a" })); next.GrantedBy != r.ID {
				t.Errorf("the next one is %s, want it granted", next.Status)
			}
		})
	}
}

// A grant counts only while policy asks for no more than it did, offers it, and
// those who granted it could do so now. Then people are asked.
func TestGrantUnderChange(t *testing.T) {
	t.Parallel()
	two := "tiers: {3: {requires: [{role: finance, count: 2}]}, 4: {requires: [{role: finance, count: 2}]}, 5: {requires: [{role: finance, count: 2}]}}"
	policyIs := func(lines ...string) func(*testing.T, *approvaltest.Fixture) {
		return func(t *testing.T, f *approvaltest.Fixture) {
			if err := f.Service.SetPolicy(t.Context(), approvaltest.RunPolicy(t, lines...)); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, test := range []struct {
		name     string
		change   func(*testing.T, *approvaltest.Fixture)
		covered  bool // the next call
		runs     bool // what it approved before
		unsure   bool // nobody can say whether it runs
		hollow   bool // nothing is covered once that was found out
		claimWhy string
	}{
		{name: "nothing", change: func(*testing.T, *approvaltest.Fixture) {}, covered: true, runs: true},
		{name: "more people", change: policyIs(two), claimWhy: "2 of finance"},
		{name: "a higher tier", change: policyIs(`rules: [{id: up, actions: [payouts.create], raise_to: 4, why: "Up."}]`), claimWhy: "tier 4"},
		{name: "not offered any more", change: policyIs(`tiers: {3: {scopes: [once, 1h]}}`), claimWhy: "no longer offers"},
		{name: "no scopes at all any more", change: policyIs(`tiers: {3: {scopes: [once]}}`), claimWhy: "no longer offers"},
		{name: "another scope beside it", change: policyIs(`tiers: {3: {scopes: [once, 15m]}}`), covered: true, runs: true},
		{name: "the role is gone", change: func(t *testing.T, f *approvaltest.Fixture) {
			f.People.Take("finance", approvaltest.Alice)
		}, covered: true, hollow: true, claimWhy: "1 of finance"},
		{name: "the account is gone", change: func(t *testing.T, f *approvaltest.Fixture) {
			f.People.Bar(approvaltest.Alice, "deactivated")
		}, covered: true, hollow: true, claimWhy: "1 of finance"},
		{name: "nobody can say", change: func(t *testing.T, f *approvaltest.Fixture) {
			f.People.Fail(errors.New("outage"))
		}, covered: true, unsure: true},
		{name: "it is revoked", change: func(t *testing.T, f *approvaltest.Fixture) {
			all, err := f.Service.Grants(t.Context())
			if err != nil || len(all) != 1 {
				t.Fatalf("the grants are %v (%v)", all, err)
			}
			if _, err := f.Service.RevokeGrantAs(t.Context(), approval.Operator{Name: "root"}, all[0].ID); err != nil {
				t.Fatal(err)
			}
		}, claimWhy: "has ended"},
		{name: "it is over", change: func(t *testing.T, f *approvaltest.Fixture) {
			f.Clock.Advance(15*time.Minute - time.Second)
		}, claimWhy: "has ended"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			f := approvaltest.NewRuns(t)
			first := granted(t, f, "15m")
			f.Clock.Advance(time.Second)
			before := again(t, f, payout("acct_1", 1))
			if before.GrantedBy != first.ID {
				t.Fatalf("got %+v", before)
			}
			test.change(t, f)
			next := again(t, f, payout("acct_1", 2))
			if (next.GrantedBy == first.ID) != test.covered || test.covered != (next.Status == approval.Approved) {
				t.Errorf("the next call is %s by the grant %q, want it covered: %t", next.Status, next.GrantedBy, test.covered)
			}
			after, err := f.Service.ClaimToRun(t.Context(), before.ID, before.ToolPin)
			switch {
			case test.runs:
				if err != nil || after.Status != approval.Applied {
					t.Errorf("what was approved before: %s (%v)", after.Status, err)
				}
			case test.unsure:
				if !errors.Is(err, approval.ErrUnverified) || after.Status != approval.Approved {
					t.Errorf("what was approved before: %s (%v)", after.Status, err)
				}
			case !errors.Is(err, approval.ErrSuperseded) || !strings.Contains(after.Reason, test.claimWhy):
				t.Errorf("what was approved before: %s, %q (%v), want it to say %q", after.Status, after.Reason, err, test.claimWhy)
			}
			later := again(t, f, payout("acct_1", 3))
			if want := test.covered && !test.hollow; (later.GrantedBy == first.ID) != want {
				t.Errorf("a call after that is %s by the grant %q, want it covered: %t", later.Status, later.GrantedBy, want)
			}
		})
	}
}

// A grant that nobody stands behind any more ends when that is found out: the
// agent isn't sent in circles by what approves and never runs.
func TestHollowGrant(t *testing.T) {
	t.Parallel()
	f := approvaltest.NewRuns(t)
	byAlice := granted(t, f, "1h")
	f.People.Take("finance", approvaltest.Alice)
	covered := again(t, f, payout("acct_1", 1))
	if _, err := f.Service.ClaimToRun(t.Context(), covered.ID, covered.ToolPin); !errors.Is(err, approval.ErrSuperseded) {
		t.Fatalf("got %v", err)
	}
	if types, last := eventsOf(t, f, byAlice.ID); !strings.HasSuffix(types, " grant.revoked") || last.Actor != "countersign" {
		t.Errorf("the grant's events are %s, the last by %s", types, last.Actor)
	}
	if got, err := f.Service.Status(t.Context(), f.Agent, byAlice.ID); err != nil || got.Grant.RevokedBy != "countersign" {
		t.Errorf("the grant is %+v (%v)", got.Grant, err)
	}
	// It stays so when the role comes back.
	f.People.Give("finance", approvaltest.Alice)
	asked := again(t, f, payout("acct_1", 2))
	if asked.Status != approval.Pending {
		t.Fatalf("got %s by the grant %q", asked.Status, asked.GrantedBy)
	}
	byBob := f.Grant(t, approvaltest.Bob, asked, "15m")
	if next := again(t, f, payout("acct_1", 3)); next.GrantedBy != byBob.ID {
		t.Errorf("got %s by %q, want %s", next.Status, next.GrantedBy, byBob.ID)
	}
}

// Who may end a grant, and what is left of it then.
func TestRevokeGrant(t *testing.T) {
	t.Parallel()
	f := approvaltest.NewRuns(t)
	first := granted(t, f, "15m")
	other := granted(t, f, "15m", func(p *approval.Proposal) { p.Payload = []byte(`{"account": "acct_9"}`) })
	ran := f.Run(t, again(t, f, payout("acct_1", 1)), `1`)
	open := again(t, f, payout("acct_1", 2))
	if open.GrantedBy != first.ID {
		t.Fatalf("got %+v", open)
	}
	if _, err := f.Service.RevokeGrant(t.Context(), approvaltest.Carol, first.ID, approval.Slack); !errors.Is(err, approval.ErrNotApprover) {
		t.Errorf("Carol, who holds no role: %v", err)
	}
	if _, err := f.Service.RevokeGrant(t.Context(), approval.Approver{}, first.ID, approval.Slack); !errors.Is(err, approval.ErrIneligible) {
		t.Errorf("nobody: %v", err)
	}
	f.People.Bar(approvaltest.Bob, "a guest")
	if _, err := f.Service.RevokeGrant(t.Context(), approvaltest.Bob, first.ID, approval.Slack); !errors.Is(err, approval.ErrIneligible) {
		t.Errorf("a guest: %v", err)
	}
	f.People.Bar(approvaltest.Bob, "")
	if _, err := f.Service.RevokeGrant(t.Context(), approvaltest.Bob, ran.ID, approval.Slack); !errors.Is(err, approval.ErrNoGrant) {
		t.Errorf("of a request that granted nothing: %v", err)
	}
	if _, err := f.Service.RevokeGrantAs(t.Context(), approval.Operator{Name: "root"}, "req_x"); !errors.Is(err, approval.ErrNotFound) {
		t.Errorf("of no request: %v", err)
	}
	used, err := f.Store.Request(t.Context(), first.ID)
	if err != nil || used.Revision != first.Revision+1 {
		t.Fatalf("the revision is %d after %d (%v), so no card is told of the use", used.Revision, first.Revision, err)
	}
	revoked, err := f.Service.RevokeGrant(t.Context(), approvaltest.Bob, first.ID, approval.Slack)
	if err != nil || revoked.Grant.RevokedBy != approvaltest.Bob.String() || !revoked.Grant.RevokedAt.Equal(f.Clock.Now()) || revoked.Grant.Uses != 1 {
		t.Fatalf("got %+v (%v)", revoked.Grant, err)
	}
	if revoked.Revision != used.Revision+1 {
		t.Errorf("the revision is %d after %d, so no card is told", revoked.Revision, used.Revision)
	}
	if last := lastEvent(t, f); last.Type != "grant.revoked" || last.Actor != approvaltest.Bob.String() || last.Surface != "slack" || !strings.Contains(string(last.Detail), `"uses":1`) {
		t.Errorf("the last event is %s by %s: %s", last.Type, last.Actor, last.Detail)
	}
	for name, revoke := range map[string]func() (*approval.Request, error){
		"a person": func() (*approval.Request, error) {
			return f.Service.RevokeGrant(t.Context(), approvaltest.Bob, first.ID, approval.Slack)
		},
		"an operator": func() (*approval.Request, error) {
			return f.Service.RevokeGrantAs(t.Context(), approval.Operator{Name: "root"}, first.ID)
		},
	} {
		if _, err := revoke(); !errors.Is(err, approval.ErrNoGrant) {
			t.Errorf("%s, again: %v", name, err)
		}
	}
	if after, err := f.Service.ClaimToRun(t.Context(), open.ID, open.ToolPin); !errors.Is(err, approval.ErrSuperseded) || after.Execution != nil {
		t.Errorf("what it approved before: %s (%v)", after.Status, err)
	}
	// What Alice approved itself isn't the grant's.
	if after, err := f.Service.ClaimToRun(t.Context(), first.ID, first.ToolPin); err != nil {
		t.Errorf("the request that it came with: %s (%v)", after.Status, err)
	}
	all, err := f.Service.Grants(t.Context())
	if err != nil || len(all) != 1 || all[0].ID != other.ID {
		t.Errorf("the grants are %v (%v), want %s", all, err, other.ID)
	}
	f.Clock.Set(other.Grant.ExpiresAt)
	if all, err := f.Service.Grants(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("once it is over: %v (%v)", all, err)
	}
	if _, err := f.Service.RevokeGrantAs(t.Context(), approval.Operator{Name: "root"}, other.ID); !errors.Is(err, approval.ErrNoGrant) {
		t.Errorf("revoking what is over: %v", err)
	}
}

// What a grant approves is on record as that, and counts as nobody's approval.
func TestGrantedDecision(t *testing.T) {
	t.Parallel()
	f := approvaltest.NewRuns(t, func(o *approval.Options) { o.Destinations = []string{"slack:C1"} })
	first := granted(t, f, "15m")
	if types, _ := eventsOf(t, f, first.ID); types != "request.created decision.recorded request.approved grant.created" {
		t.Errorf("the events of the first are %s", types)
	}
	for {
		n, r, ok, err := f.Store.LeaseNotice(t.Context(), "slack:C1", f.Clock.Now(), f.Clock.Now().Add(time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			break
		}
		if err := f.Store.SettleNotice(t.Context(), n, approval.Settlement{Reference: "x", SentRevision: r.Revision}, f.Clock.Now()); err != nil {
			t.Fatal(err)
		}
	}
	next := again(t, f, payout("acct_1", 1))
	stored, err := f.Service.Status(t.Context(), f.Agent, next.ID)
	if err != nil || len(stored.Decisions) != 1 {
		t.Fatalf("stored is %+v (%v)", stored, err)
	}
	d := stored.Decisions[0]
	if d.Surface != approval.Granted || d.Person() || !d.Approver.IsZero() || d.Verdict != approval.Approve || !strings.Contains(d.Reason, string(first.ID)) || d.Receipt == "" {
		t.Errorf("the decision is %+v", d)
	}
	if len(stored.Votes()) != 0 || len(stored.Missing()) == 0 {
		t.Errorf("the votes are %v, missing is %v", stored.Votes(), stored.Missing())
	}
	if stored.Under == nil || stored.Under.ExpiresAt != first.Grant.ExpiresAt || stored.GrantedBy != first.ID || stored.Grant != nil {
		t.Errorf("it stands under %+v of %q", stored.Under, stored.GrantedBy)
	}
	if types, last := eventsOf(t, f, next.ID); types != "request.created request.approved" || last.Actor != "grant:"+string(first.ID) || last.Surface != "grant" {
		t.Errorf("its events are %s, the last by %s", types, last.Actor)
	}
	nothingToTell(t, f)
	// It can't grant anything itself.
	if _, err := f.Service.RevokeGrantAs(t.Context(), approval.Operator{Name: "root"}, next.ID); !errors.Is(err, approval.ErrNoGrant) {
		t.Errorf("got %v", err)
	}
	f.Run(t, next, `1`)
	if used, err := f.Service.Status(t.Context(), f.Agent, first.ID); err != nil || used.Grant.Uses != 1 {
		t.Errorf("the grant is %+v (%v), want one use", used.Grant, err)
	}
	if _, _, err := audit.Verify(f.Store.Events(t.Context())); err != nil {
		t.Error(err)
	}
}

// An edit that makes a request act on something else grants that.
func TestGrantAfterAnEdit(t *testing.T) {
	t.Parallel()
	f := approvaltest.NewRuns(t)
	r := again(t, f, payout("acct_1", 0))
	r, err := f.Service.Edit(t.Context(), approvaltest.Bob, r.ID, 1, []byte(`{"account": "acct_2"}`), approval.Slack)
	if err != nil {
		t.Fatal(err)
	}
	f.Grant(t, approvaltest.Alice, r, "15m")
	if next := again(t, f, payout("acct_1", 1)); next.Status != approval.Pending {
		t.Errorf("of what the agent asked first: %s by %q", next.Status, next.GrantedBy)
	}
	if next := again(t, f, payout("acct_2", 1)); next.GrantedBy != r.ID {
		t.Errorf("of what it became: %s by %q", next.Status, next.GrantedBy)
	}
}

// An approval for longer than once of what the agent runs itself holds for what
// policy says that it acts on, not for what the agent says.
func TestGrantOfWhatTheAgentRuns(t *testing.T) {
	t.Parallel()
	f := approvaltest.NewRuns(t)
	byAgent := func(p *approval.Proposal) { p.Executor, p.ToolPin, p.Target = approval.ByAgent, "", "the account" }
	first := granted(t, f, "15m", byAgent)
	if next := again(t, f, payout("acct_1", 1, byAgent)); next.GrantedBy != first.ID {
		t.Errorf("on the same account: %s by %q", next.Status, next.GrantedBy)
	} else if _, err := f.Service.Claim(t.Context(), f.Agent, next.ID); err != nil {
		t.Errorf("claiming it: %v", err)
	}
	if next := again(t, f, payout("acct_2", 1, byAgent)); next.Status != approval.Pending {
		t.Errorf("on another account of which the agent says the same: %s by %q", next.Status, next.GrantedBy)
	}
}

// Claims and a revocation at the same moment: whatever begins after the
// revocation is recorded doesn't run, and nothing runs twice.
func TestClaimsWhileTheGrantIsRevoked(t *testing.T) {
	t.Parallel()
	f := approvaltest.NewRuns(t)
	ran, stopped := 0, 0
	for round := range 40 {
		account := fmt.Sprintf("acct_%d", round)
		first := f.Grant(t, approvaltest.Alice, again(t, f, payout(account, 0)), "1h")
		var under []*approval.Request
		for i := range contenders - 1 {
			under = append(under, again(t, f, payout(account, i+1)))
		}
		results := contend(func(i int) error {
			if i == contenders/2 {
				_, err := f.Service.RevokeGrantAs(t.Context(), approval.Operator{Name: "root"}, first.ID)
				return err
			}
			r := under[i%(contenders/2)] // two for each, but one
			_, err := f.Service.ClaimToRun(t.Context(), r.ID, r.ToolPin)
			return err
		})
		count(t, results, approval.ErrApplied, approval.ErrRejected)
		revoked := false
		begun := make(map[string]bool)
		for event, err := range f.Store.Events(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			switch {
			case event.Type == "grant.revoked" && event.RequestID == string(first.ID):
				revoked = true
			case event.Type == "request.applied" && begun[event.RequestID]:
				t.Fatalf("%s began twice", event.RequestID)
			case event.Type == "request.applied":
				begun[event.RequestID] = true
				for _, r := range under {
					if revoked && event.RequestID == string(r.ID) {
						t.Fatalf("%s began after its grant was revoked", r.ID)
					}
				}
			}
		}
		for _, r := range under[:contenders/2] {
			after, err := f.Service.Status(t.Context(), f.Agent, r.ID)
			if err != nil || after.Status != approval.Applied && after.Status != approval.Rejected {
				t.Fatalf("%s is %v (%v)", r.ID, after, err)
			}
			if after.Status == approval.Applied {
				ran++
			} else {
				stopped++
			}
		}
	}
	t.Logf("%d ran, %d were stopped", ran, stopped)
	if _, _, err := audit.Verify(f.Store.Events(t.Context())); err != nil {
		t.Error(err)
	}
}

// Eight calls under one grant at once are eight requests, each of which runs
// once.
func TestManyCallsUnderAGrant(t *testing.T) {
	t.Parallel()
	f := approvaltest.NewRuns(t)
	first := granted(t, f, "1h")
	f.Run(t, first, `1`)
	if _, _, err := f.Service.ReturnResult(t.Context(), f.Agent, first.ID); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	ids := make(map[approval.ID]bool)
	results := contend(func(int) error {
		r, err := f.Service.Request(t.Context(), f.Agent, payout("acct_1", 0))
		if err != nil {
			return err
		}
		mu.Lock()
		ids[r.ID] = true
		mu.Unlock()
		_, err = f.Service.ClaimToRun(t.Context(), r.ID, r.ToolPin)
		return err
	})
	if won := count(t, results); won != contenders || len(ids) != contenders {
		t.Errorf("%d of %d ran, and there are %d requests", won, contenders, len(ids))
	}
	if used, err := f.Service.Status(t.Context(), f.Agent, first.ID); err != nil || used.Grant.Uses != contenders {
		t.Errorf("the grant is %+v (%v)", used.Grant, err)
	}
}

// A grant that is over stays over when the clock is set back behind what
// happened since.
func TestGrantAndAClockSetBack(t *testing.T) {
	t.Parallel()
	f := approvaltest.NewRuns(t)
	first := f.Run(t, granted(t, f, "15m"), `1`)
	f.Clock.Advance(4 * time.Minute)
	before := again(t, f, payout("acct_1", 9))
	if before.GrantedBy != first.ID {
		t.Fatalf("got %s by the grant %q", before.Status, before.GrantedBy)
	}
	f.Clock.Advance(12 * time.Minute)
	if _, _, err := f.Service.ReturnResult(t.Context(), f.Agent, first.ID); err != nil {
		t.Fatal(err)
	}
	f.Clock.Advance(-10 * time.Minute)
	if next := again(t, f, payout("acct_1", 1)); next.Status != approval.Pending {
		t.Errorf("got %s by the grant %q", next.Status, next.GrantedBy)
	}
	if all, err := f.Service.Grants(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("the grants are %v (%v)", all, err)
	}
	if after, err := f.Service.ClaimToRun(t.Context(), before.ID, before.ToolPin); !errors.Is(err, approval.ErrSuperseded) || after.Execution != nil {
		t.Errorf("what it approved before: %s (%v)", after.Status, err)
	}
}

// That a grant has ended is recorded once, when it has, and nothing revives it.
func TestGrantEndsByItself(t *testing.T) {
	bubble(t, func(t *testing.T, f *approvaltest.Fixture) {
		if err := f.Service.SetPolicy(t.Context(), approvaltest.RunPolicy(t)); err != nil {
			t.Fatal(err)
		}
		go f.Service.Sweep(t.Context())
		first := granted(t, f, "15m")
		f.Run(t, first, `1`)
		f.Run(t, again(t, f, payout("acct_1", 1)), `1`)
		time.Sleep(15*time.Minute - time.Millisecond)
		synctest.Wait()
		if all, _ := eventsOf(t, f, first.ID); strings.Contains(all, "grant.expired") {
			t.Errorf("before its time: %s", all)
		}
		time.Sleep(8 * time.Hour)
		synctest.Wait()
		all, ended := eventsOf(t, f, first.ID)
		if strings.Count(all, "grant.expired") != 1 || ended.Type != "grant.expired" ||
			!ended.At.Equal(first.Grant.ExpiresAt) || ended.Actor != "countersign" || string(ended.Detail) != `{"uses":1}` {
			t.Fatalf("got %s, at last %+v", all, ended)
		}
		r, err := f.Store.Request(t.Context(), first.ID)
		if err != nil || !r.UpdatedAt.Equal(first.Grant.ExpiresAt) || !r.Due().IsZero() {
			t.Errorf("updated at %s, due at %s (%v)", r.UpdatedAt, r.Due(), err)
		}
		if _, err := f.Service.RevokeGrant(t.Context(), approvaltest.Bob, first.ID, approval.Slack); !errors.Is(err, approval.ErrNoGrant) {
			t.Errorf("revoking it: %v", err)
		}
	})
}
