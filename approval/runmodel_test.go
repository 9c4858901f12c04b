package approval_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/approval/approvaltest"
	"github.com/countersign/countersign/audit"
	"github.com/countersign/countersign/policy"
)

// asks is what a policy says of a call of payouts.create, written the plainest
// way.
type asks struct {
	allowed bool
	denied  bool
	tier    int
	people  int
	inBand  bool
	scopes  []string // wider than once
}

// stricter reports whether policy asks for more now than it did.
func (a asks) stricter(before asks) bool {
	switch {
	case a.denied != before.denied:
		return a.denied
	case a.allowed != before.allowed:
		return before.allowed
	case a.allowed || a.denied:
		return false
	}
	return a.tier > before.tier || before.inBand && !a.inBand || a.people > before.people
}

// runPolicies are policies with what they say in production, in staging, and of
// a definition that isn't pinned.
func runPolicies(t testing.TB) []runPolicy {
	all := []string{"session", "15m", "1h"}
	tierThree := func(people int, scopes []string) runPolicy {
		return runPolicy{
			production: asks{tier: 3, people: people, scopes: scopes},
			staging:    asks{tier: 3, people: people, scopes: scopes, inBand: true},
			unpinned:   asks{tier: 4, people: people},
		}
	}
	raised := tierThree(1, nil)
	raised.production, raised.staging = raised.unpinned, raised.unpinned
	noInBand := tierThree(1, all)
	noInBand.staging.inBand = false
	policies := map[string]runPolicy{
		"":                                  tierThree(1, all),
		"tiers: {3: {scopes: [once, 15m]}}": tierThree(1, []string{"15m"}),
		"tiers: {3: {requires: [{role: finance, count: 2}]}, 4: {requires: [{role: finance, count: 2}]}, 5: {requires: [{role: finance, count: 2}]}}": tierThree(2, all),
		`rules: [{id: up, actions: [payouts.create], raise_to: 4, why: "Up."}]`:                                                                       raised,
		"rules: [{id: down, actions: [payouts.create], lower_to: 1, why: Down., when: 'environment == \"staging\"'}]": {
			production: tierThree(1, all).production, staging: asks{allowed: true}, unpinned: tierThree(1, all).unpinned,
		},
	}
	var list []runPolicy
	for _, line := range slices.Sorted(maps.Keys(policies)) {
		p := policies[line]
		p.policy = approvaltest.RunPolicy(t, line)
		list = append(list, p)
	}
	denies := runPolicy{production: asks{denied: true}, staging: asks{denied: true}, unpinned: asks{denied: true}}
	denies.policy = approvaltest.ParsePolicy(t, fmt.Sprintf(`
version: 1
mode: cautious
environments: {staging: {names: [stage]}}
roles: {finance: {users: [%s, %s]}}
approval: {requires: [{role: finance}]}
block: [{id: no-create, actions: [payouts.create], why: "Nothing is created."}]
integrations: {payouts: {tools: {create: {tier: 3, target: args.account}}}}
limits: {pending: 1000000, per_minute: 1000000, cooldown: 0s}
`, approvaltest.Alice.User, approvaltest.Bob.User))
	return append(list, denies)
}

type runPolicy struct {
	policy     *policy.Policy
	production asks
	staging    asks
	unpinned   asks
}

// says is what the policy says of a call.
func (p runPolicy) says(c runCall) asks {
	switch {
	case p.production.denied:
		return p.production
	case c.unpinned:
		return p.unpinned
	case c.environment == "staging":
		return p.staging
	default:
		return p.production
	}
}

// runCall is what tells calls of payouts.create apart.
type runCall struct {
	agent       string
	account     string
	number      int
	environment string
	pin         string
	unpinned    bool
	session     string
}

// same reports whether two calls ask the same.
func (c runCall) same(other runCall) bool {
	c.session, other.session = "", ""
	c.unpinned, other.unpinned = false, false
	return c == other
}

// modelRun is what the rules say of one request.
type modelRun struct {
	id        approval.ID
	call      runCall
	asked     asks
	account   string // what it acts on now
	stored    approval.Status
	shown     *approval.Request // as it is now, to vote on
	editors   map[approval.Approver]bool
	approved  map[approval.Approver]string // with the scope
	confirmed bool
	by        *modelRun // whose grant approved it
	grant     *modelGrant
	expires   time.Time
	applyBy   time.Time
	decided   time.Time
	changed   time.Time
	begun     int
	ended     approval.Outcome // empty while it runs
	settled   bool
	result    bool
	returned  bool
}

type modelGrant struct {
	scope   string
	session string
	expires time.Time
	revoked bool
}

func (r *modelRun) at(clock time.Time) time.Time {
	if clock.Before(r.changed) {
		return r.changed
	}
	return clock
}

func (r *modelRun) become(status approval.Status, clock time.Time) {
	r.changed = r.at(clock)
	r.stored = status
}

// status is what the service says when it looks at the request, which records a
// deadline that has passed. Nothing else does: a clock that is set back revives
// what nobody was told of.
func (r *modelRun) status(clock time.Time) approval.Status {
	if r.stored != approval.Expired && r.unseen(clock) == approval.Expired {
		r.become(approval.Expired, clock)
	}
	return r.stored
}

// unseen is status for a test that wonders, while the service isn't asked.
func (r *modelRun) unseen(clock time.Time) approval.Status {
	now := r.at(clock)
	if r.stored == approval.Pending && !now.Before(r.expires) || r.stored == approval.Approved && !now.Before(r.applyBy) {
		return approval.Expired
	}
	return r.stored
}

// tried is what a change leaves that was refused: that the grant of the request
// has ended is recorded even so.
func (r *modelRun) tried(clock time.Time) {
	if now := r.at(clock); r.grant.active(r.changed) && !r.grant.active(now) {
		r.changed = now
	}
}

func (r *modelRun) approve(clock time.Time) {
	r.become(approval.Approved, clock)
	r.decided, r.applyBy = r.changed, r.changed.Add(applyWithin)
}

func (g *modelGrant) active(at time.Time) bool { return g != nil && !g.revoked && at.Before(g.expires) }

// runModel is the rules for all that an agent calls through the gateway.
type runModel struct {
	clock  func() time.Time
	policy runPolicy
	holds  map[approval.Approver]bool
	pin    string // what the tool is now
	pinned string // what is accepted
	runs   []*modelRun
}

// covering are the requests whose grants cover a call.
func (m *runModel) covering(c runCall, now asks) []*modelRun {
	var covering []*modelRun
	for _, r := range m.runs {
		g := r.grant
		if g.active(r.at(m.clock())) && (g.session == "" || g.session == c.session) &&
			r.call.agent == c.agent && r.account == c.account && r.call.environment == c.environment && r.call.pin == c.pin &&
			!c.unpinned && !now.stricter(r.asked) && slices.Contains(now.scopes, g.scope) {
			covering = append(covering, r)
		}
	}
	return covering
}

// looked records that the service looked at grants for a call: from the newest on,
// as far as to one that covers it.
func (m *runModel) looked(c runCall, now asks) {
	if now.allowed || now.denied || c.unpinned || len(now.scopes) == 0 {
		return
	}
	covering := m.covering(c, now)
	for _, r := range slices.Backward(m.runs) {
		if r.grant.active(m.clock()) && r.call.agent == c.agent && r.account == c.account {
			r.status(m.clock())
			if slices.Contains(covering, r) {
				return
			}
		}
	}
}

// twin is the request that is the same as a call and not over.
func (m *runModel) twin(c runCall) *modelRun {
	clock := m.clock()
	var latest *modelRun
	for _, r := range m.runs {
		if !r.call.same(c) || r.asked.allowed || r.asked.denied {
			continue
		}
		// The store compares with the clock as it is.
		if r.stored == approval.Pending && clock.Before(r.expires) {
			return r
		}
		if (r.stored == approval.Approved || r.stored == approval.Applied) && r.by == nil && clock.Before(r.applyBy) && !r.returned &&
			(latest == nil || r.applyBy.After(latest.applyBy)) {
			latest = r
		}
	}
	return latest
}

// lapsed reports whether the approval of a request doesn't hold any more, and
// whether that is since nobody stands behind its grant.
func (m *runModel) lapsed(r *modelRun, pin string) (lapsed, hollow bool) {
	now := m.policy.says(r.call)
	present := 0
	of := r
	if r.by != nil {
		of = r.by
	}
	for who := range of.approved {
		if m.holds[who] {
			present++
		}
	}
	hollow = r.by != nil && present < of.asked.people
	switch {
	case pin != r.call.pin, now.stricter(r.asked):
		return true, hollow
	case r.confirmed:
		return false, false
	case r.by != nil && (!r.by.grant.active(r.by.at(r.at(m.clock()))) || !slices.Contains(now.scopes, r.by.grant.scope)):
		return true, hollow
	default:
		return present < of.asked.people, hollow
	}
}

// Random sequences of all that can happen to calls through the gateway, against
// the model: the same errors, the same states, nothing that begins twice, and in
// the end an audit log that says the same.
func TestRunsAgainstModel(t *testing.T) {
	t.Parallel()
	f := approvaltest.NewRuns(t)
	policies := runPolicies(t)
	var world int
	seen := make(map[string]int)
	rapid.Check(t, func(rt *rapid.T) {
		world++
		runsAgainstModel(t, rt, f, policies, fmt.Sprint(world), seen)
	})
	for _, want := range []string{
		"allowed", "denied", "pending", "twin pending", "twin approved", "twin running", "granted", "granted by a session",
		"run by people", "run by a grant", "superseded", "superseded by a grant", "unknown", "returned", "edited",
		"unpinned", "grant revoked", "expired", "tool changed", "twin withdrawn",
	} {
		if seen[want] == 0 {
			t.Errorf("nothing was ever %s, so nothing was tested of it", want)
		}
	}
	t.Logf("%v", seen)
	begun := make(map[string]int)
	for event, err := range f.Store.Events(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if event.Type == "request.applied" {
			if begun[event.RequestID]++; begun[event.RequestID] > 1 {
				t.Errorf("%s began twice", event.RequestID)
			}
		}
	}
	if _, _, err := audit.Verify(f.Store.Events(t.Context())); err != nil {
		t.Error(err)
	}
}

func runsAgainstModel(t *testing.T, rt *rapid.T, f *approvaltest.Fixture, policies []runPolicy, world string, seen map[string]int) {
	ctx := t.Context()
	people := []approval.Approver{approvaltest.Alice, approvaltest.Bob, approvaltest.Carol}
	m := &runModel{clock: f.Clock.Now, holds: map[approval.Approver]bool{approvaltest.Alice: true, approvaltest.Bob: true}}
	f.Clock.Set(approvaltest.Start)
	f.People.Give("finance", approvaltest.Alice, approvaltest.Bob)
	f.People.Take("finance", approvaltest.Carol)
	setPolicy := func(p runPolicy) {
		m.policy = p
		if err := f.Service.SetPolicy(ctx, p.policy); err != nil {
			t.Fatal(err)
		}
	}
	setPolicy(policies[0])
	seeTool := func(pin string) {
		same := pin == m.pin
		m.pin = pin
		if _, err := f.Service.SeeTool(ctx, "payouts", "create", definition(pin)); err != nil {
			t.Fatal(err)
		}
		if m.pinned == "" {
			m.pinned = pin
		}
		if same {
			return // nobody looks at a request, so no deadline that has passed is recorded
		}
		for _, r := range m.runs {
			if status := r.status(f.Clock.Now()); (status == approval.Pending || status == approval.Approved) && r.call.pin != pin {
				seen["tool changed"]++
				r.become(approval.Rejected, f.Clock.Now())
			}
		}
	}
	pinTool := func() {
		if _, err := f.Service.PinTool(ctx, approval.Operator{Name: "root"}, "payouts", "create", m.pin); err != nil {
			t.Fatal(err)
		}
		m.pinned = m.pin
	}
	seeTool("pin-" + world)
	pinTool()
	agentOf := func(r *modelRun) approval.Agent { return approval.Agent{Name: r.call.agent} }
	fail := func(rt *rapid.T, what string, r *modelRun, err, want error) {
		rt.Helper()
		if !errors.Is(err, want) || want == nil && err != nil {
			rt.Fatalf("%s %s: got %v, want %v", what, r.id, err, want)
		}
	}
	some := func(rt *rapid.T) *modelRun {
		if len(m.runs) == 0 {
			rt.Skip("nothing was asked")
		}
		// The last ones, so that something becomes of them.
		return m.runs[len(m.runs)-1-rapid.IntRange(0, min(len(m.runs)-1, 5)).Draw(rt, "how long ago")]
	}
	// lately is one of the last requests of a kind.
	lately := func(rt *rapid.T, of func(*modelRun) bool) *modelRun {
		var found []*modelRun
		for _, r := range slices.Backward(m.runs) {
			if of(r) && len(found) < 3 {
				found = append(found, r)
			}
		}
		if len(found) == 0 {
			rt.Skip("there is none")
		}
		return rapid.SampledFrom(found).Draw(rt, "which of the last")
	}
	notPending := map[approval.Status]error{
		approval.Approved: approval.ErrDecided,
		approval.Rejected: approval.ErrDecided,
		approval.Expired:  approval.ErrExpired,
		approval.Applied:  approval.ErrApplied,
	}
	claim := func(rt *rapid.T, r *modelRun, pin string) {
		clock := f.Clock.Now()
		status := r.status(clock)
		if r.by != nil && status == approval.Approved {
			r.by.status(clock)
		}
		got, err := f.Service.ClaimToRun(ctx, r.id, pin)
		want := map[approval.Status]error{
			approval.Pending:  approval.ErrPending,
			approval.Rejected: approval.ErrRejected,
			approval.Expired:  approval.ErrExpired,
			approval.Applied:  approval.ErrApplied,
		}[status]
		if status == approval.Approved {
			lapsed, hollow := m.lapsed(r, pin)
			if lapsed {
				want = approval.ErrSuperseded
				r.become(approval.Rejected, clock)
				seen["superseded"]++
				if r.by != nil {
					seen["superseded by a grant"]++
				}
				if hollow && r.by.grant.active(r.by.at(clock)) {
					seen["hollow"]++
					r.by.grant.revoked = true
					r.by.changed = r.by.at(clock)
				} else if hollow {
					r.by.tried(clock)
				}
			} else {
				r.begun++
				r.become(approval.Applied, clock)
				switch {
				case r.by != nil:
					seen["run by a grant"]++
					r.by.changed = r.by.at(r.changed) // it counts its uses
				case r.confirmed:
					seen["run by the client"]++
				default:
					seen["run by people"]++
				}
			}
		}
		fail(rt, "claiming", r, err, want)
		if (want == nil) != (err == nil && got.Status == approval.Applied && got.Execution != nil) {
			rt.Fatalf("claiming %s gave %s (%v)", r.id, got.Status, err)
		}
	}
	call := func(rt *rapid.T, c runCall) {
		c.pin, c.unpinned = m.pin, m.pin != m.pinned
		askClient := rapid.Bool().Draw(rt, "asks the client")
		clock := f.Clock.Now()
		now := m.policy.says(c)
		got, err := f.Service.Request(ctx, approval.Agent{Name: c.agent}, payout(c.account, c.number, func(p *approval.Proposal) {
			p.Environment, p.ToolPin, p.Unpinned, p.Session, p.AskClient = c.environment, c.pin, c.unpinned, c.session, askClient
			p.TTL = 30 * time.Minute
		}))
		if now.denied {
			seen["denied"]++
			if !errors.Is(err, approval.ErrDenied) || got.Status != approval.Rejected {
				rt.Fatalf("got %v (%v), want it denied", got, err)
			}
		} else if err != nil {
			rt.Fatal(err)
		}
		m.looked(c, now)
		if !now.denied {
			twin := m.twin(c)
			if twin != nil && now.allowed && twin.stored == approval.Pending && len(twin.editors) == 0 {
				seen["twin withdrawn"]++
				twin.become(approval.Rejected, clock)
				twin = m.twin(c) // one that was approved before
			}
			if twin != nil {
				if got.ID != twin.id {
					rt.Fatalf("got %s, which is %s by %q, want the same as before, %s", got.ID, got.Status, got.GrantedBy, twin.id)
				}
				switch status := twin.status(clock); {
				case status == approval.Applied && twin.ended == "":
					seen["twin running"]++
				case status == approval.Applied:
					seen["twin ended"]++
				default:
					seen["twin "+string(status)]++
				}
				if got.Revision > twin.shown.Revision {
					twin.changed = got.UpdatedAt // people were told
				}
				twin.shown = got
				return
			}
		}
		r := &modelRun{
			id: got.ID, call: c, asked: now, account: c.account, stored: approval.Pending, shown: got,
			approved: map[approval.Approver]string{}, editors: map[approval.Approver]bool{},
			expires: clock.Add(30 * time.Minute), changed: clock,
		}
		switch by := m.covering(c, now); {
		case now.denied:
			r.become(approval.Rejected, clock)
		case now.allowed:
			seen["allowed"]++
			r.approve(clock)
			r.begun++
			r.become(approval.Applied, clock)
		case len(by) > 0:
			seen["granted"]++
			if at := slices.IndexFunc(by, func(r *modelRun) bool { return r.id == got.GrantedBy }); at >= 0 {
				r.by = by[at]
			} else {
				rt.Fatalf("got %s by the grant %q, want it granted by %s or another", got.Status, got.GrantedBy, by[0].id)
			}
			if r.by.grant.session != "" {
				seen["granted by a session"]++
			}
			r.approve(clock)
		default:
			seen["pending"]++
		}
		if c.unpinned {
			seen["unpinned"]++
		}
		by := approval.ID("")
		if r.by != nil {
			by = r.by.id
		}
		for _, other := range m.runs {
			if other.id == got.ID {
				rt.Fatalf("got %s again, which is %s", got.ID, other.stored)
			}
		}
		if got.GrantedBy != by {
			rt.Fatalf("got %s by the grant %q, want by %q", got.Status, got.GrantedBy, by)
		}
		m.runs = append(m.runs, r)
	}
	decide := func(rt *rapid.T, r *modelRun, who approval.Approver, verdict approval.Verdict) {
		scope := rapid.SampledFrom(r.shown.Scopes()).Draw(rt, "scope")
		clock := f.Clock.Now()
		status := r.status(clock)
		b := approvaltest.Ballot(r.shown, verdict)
		b.Scope = scope
		got, err := f.Service.Decide(ctx, who, b)
		now := m.policy.says(r.call)
		_, voted := r.approved[who]
		var want error
		switch {
		case voted && verdict == approval.Approve && status != approval.Expired:
			want = approval.ErrRecorded
		case status != approval.Pending:
			want = notPending[status]
			if want == approval.ErrDecided && errors.Is(err, approval.ErrRecorded) && verdict == approval.Reject {
				want = approval.ErrRecorded // it was this person who rejected it
			}
		case verdict == approval.Approve && r.editors[who]:
			want = approval.ErrSelf
		case !m.holds[who]:
			want = approval.ErrNotApprover
		case verdict == approval.Approve && now.stricter(r.asked):
			want = approval.ErrSuperseded
			r.become(approval.Rejected, clock)
		case verdict == approval.Reject:
			r.become(approval.Rejected, clock)
		default:
			r.approved[who] = scope
			r.become(approval.Pending, clock)
			if len(r.approved) >= r.asked.people {
				r.approve(clock)
				r.grant = modelGranted(r)
			}
		}
		if err != nil && !errors.Is(err, approval.ErrRecorded) {
			r.tried(clock) // a refusal is recorded
		}
		fail(rt, "deciding on", r, err, want)
		if err == nil {
			r.shown = got
		}
	}
	end := func(rt *rapid.T, r *modelRun) {
		outcome := rapid.SampledFrom([]approval.Outcome{approval.Succeeded, approval.Failed, approval.Unknown}).Draw(rt, "outcome")
		report := approval.Report{Outcome: outcome, Returned: rapid.IntRange(0, 3).Draw(rt, "returned") == 0}
		if rapid.IntRange(0, 3).Draw(rt, "result") > 0 {
			report.Result = []byte(`1`)
		}
		status := r.status(f.Clock.Now())
		r.tried(f.Clock.Now())
		_, err := f.Service.FinishRun(ctx, r.id, report)
		want := map[approval.Status]error{
			approval.Pending:  approval.ErrPending,
			approval.Rejected: approval.ErrRejected,
			approval.Expired:  approval.ErrExpired,
			approval.Approved: approval.ErrNotApplied,
		}[status]
		if status == approval.Applied {
			if r.ended != "" {
				want = approval.ErrFinished
			} else {
				r.become(approval.Applied, f.Clock.Now())
				r.ended, r.result, r.returned = outcome, report.Result != nil, report.Returned
				seen[string(outcome)]++
			}
		}
		fail(rt, "ending", r, err, want)
	}
	giveBack := func(rt *rapid.T, r *modelRun) {
		r.status(f.Clock.Now())
		_, _, err := f.Service.ReturnResult(ctx, agentOf(r), r.id)
		var want error
		if !r.result {
			want = approval.ErrNoResult
		} else if !r.returned {
			seen["returned"]++
			r.returned = true
			r.become(approval.Applied, f.Clock.Now())
		}
		fail(rt, "returning", r, err, want)
	}
	settle := func(rt *rapid.T, r *modelRun) {
		who := rapid.SampledFrom(people).Draw(rt, "who")
		r.status(f.Clock.Now())
		_, err := f.Service.Settle(ctx, who, r.id, rapid.Bool().Draw(rt, "ran"), approval.Slack)
		var want error
		switch {
		case r.ended != approval.Unknown || r.settled:
			want = approval.ErrKnown
		case !m.holds[who]:
			want = approval.ErrNotApprover
		default:
			seen["settled"]++
			r.settled = true
			r.become(approval.Applied, f.Clock.Now())
		}
		fail(rt, "settling", r, err, want)
	}
	// goOn does with a request what comes next if nothing is in the way.
	goOn := func(rt *rapid.T) {
		r := lately(rt, func(r *modelRun) bool {
			status := r.unseen(f.Clock.Now())
			return !status.Final() || status == approval.Applied && !r.returned
		})
		switch status := r.unseen(f.Clock.Now()); {
		case status == approval.Pending:
			decide(rt, r, rapid.SampledFrom(people[:2]).Draw(rt, "who"), approval.Approve)
		case status == approval.Approved:
			claim(rt, r, m.pin)
		case status == approval.Applied && r.ended == "":
			end(rt, r)
		case r.ended == approval.Unknown && !r.settled:
			settle(rt, r)
		default:
			giveBack(rt, r)
		}
	}
	rarely := func(rt *rapid.T) {
		if rapid.IntRange(0, 2).Draw(rt, "rarely") > 0 {
			rt.Skip("not now")
		}
	}
	actions := map[string]func(*rapid.T){
		"go on":         goOn,
		"go on again":   goOn,
		"go on further": goOn,
		"call": func(rt *rapid.T) {
			call(rt, runCall{
				agent:       rapid.SampledFrom([]string{"a", "b"}).Draw(rt, "agent") + "-" + world,
				account:     "acct_" + rapid.SampledFrom([]string{"1", "2"}).Draw(rt, "account"),
				number:      rapid.IntRange(0, 2).Draw(rt, "amount"),
				environment: rapid.SampledFrom([]string{"production", "staging"}).Draw(rt, "environment"),
				session:     rapid.SampledFrom([]string{"", "s", "t"}).Draw(rt, "session"),
			})
		},
		"call again": func(rt *rapid.T) { call(rt, some(rt).call) },
		"call again what policy allows": func(rt *rapid.T) {
			rarely(rt)
			c := lately(rt, func(r *modelRun) bool {
				return r.call.environment == "staging" && r.call.pin == m.pin && m.pin == m.pinned && r.unseen(f.Clock.Now()) == approval.Pending
			}).call
			before := m.policy
			setPolicy(policies[slices.IndexFunc(policies, func(p runPolicy) bool { return p.staging.allowed })])
			call(rt, c)
			setPolicy(before)
		},
		"call under a grant": func(rt *rapid.T) {
			c := lately(rt, func(r *modelRun) bool { return r.grant.active(r.at(f.Clock.Now())) }).call
			c.number = rapid.IntRange(0, 9).Draw(rt, "amount")
			call(rt, c)
		},
		"decide": func(rt *rapid.T) {
			decide(rt, some(rt), rapid.SampledFrom(people).Draw(rt, "who"), rapid.SampledFrom([]approval.Verdict{approval.Approve, approval.Reject}).Draw(rt, "verdict"))
		},
		"edit": func(rt *rapid.T) {
			rarely(rt)
			r := some(rt)
			who := rapid.SampledFrom(people).Draw(rt, "who")
			to := "acct_" + rapid.SampledFrom([]string{"1", "2"}).Draw(rt, "account")
			clock := f.Clock.Now()
			status := r.status(clock)
			got, err := f.Service.Edit(ctx, who, r.id, r.shown.Version, fmt.Appendf(nil, `{"account": %q, "edit": %d}`, to, r.shown.Version), approval.Slack)
			now := m.policy.says(r.call)
			var want error
			switch {
			case !m.holds[who], r.asked.allowed, r.asked.denied:
				want = approval.ErrNotApprover
			case status != approval.Pending:
				want = notPending[status]
				r.tried(clock)
			case now.denied:
				want = approval.ErrDenied
			default:
				seen["edited"]++
				r.become(approval.Pending, clock)
				r.account, r.approved = to, map[approval.Approver]string{}
				r.editors[who] = true
				r.asked = edited(r.asked, now)
				r.shown = got
			}
			fail(rt, "editing", r, err, want)
		},
		"confirm": func(rt *rapid.T) {
			r := some(rt)
			accept := rapid.Bool().Draw(rt, "accept")
			clock := f.Clock.Now()
			status := r.status(clock)
			now := m.policy.says(r.call)
			_, err := f.Service.Confirm(ctx, agentOf(r), approvaltest.Answer(&approval.Request{ID: r.id, Digest: r.shown.Digest}, accept))
			var want error
			switch {
			case status != approval.Pending:
				want = notPending[status]
			case !r.asked.inBand, accept && (!now.inBand || now.stricter(r.asked)):
				want = approval.ErrNotInBand
			case accept:
				r.confirmed = true
				r.approve(clock)
			default:
				r.become(approval.Rejected, clock)
			}
			fail(rt, "confirming", r, err, want)
		},
		"run": func(rt *rapid.T) { claim(rt, some(rt), m.pin) },
		"run of another definition": func(rt *rapid.T) {
			rarely(rt)
			claim(rt, some(rt), m.pin+"-another")
		},
		"the agent claims": func(rt *rapid.T) {
			r := some(rt)
			_, err := f.Service.Claim(ctx, agentOf(r), r.id)
			r.status(f.Clock.Now())
			fail(rt, "the agent claims", r, err, approval.ErrServerRuns)
		},
		"end":    func(rt *rapid.T) { end(rt, some(rt)) },
		"settle": func(rt *rapid.T) { settle(rt, some(rt)) },
		"return": func(rt *rapid.T) { giveBack(rt, some(rt)) },
		"revoke": func(rt *rapid.T) {
			r := some(rt)
			clock := f.Clock.Now()
			r.status(clock)
			active := r.grant.active(r.at(clock))
			var err, want error
			if who := rapid.SampledFrom(append(people, approval.Approver{})).Draw(rt, "who"); who.IsZero() {
				_, err = f.Service.RevokeGrantAs(ctx, approval.Operator{Name: "root"}, r.id)
			} else {
				_, err = f.Service.RevokeGrant(ctx, who, r.id, approval.Slack)
				if !m.holds[who] {
					active, want = false, approval.ErrNotApprover
				}
			}
			switch {
			case active:
				seen["grant revoked"]++
				r.grant.revoked = true
				r.changed = r.at(clock)
			case want == nil:
				want = approval.ErrNoGrant
				r.tried(clock)
			}
			fail(rt, "revoking", r, err, want)
		},
		"move the clock": func(rt *rapid.T) {
			f.Clock.Advance(time.Duration(rapid.SampledFrom([]int64{
				-600_000, -1, 1, 1000, 1000, 60_000, 60_000, 300_000, 899_999, 900_000,
			}).Draw(rt, "milliseconds")) * time.Millisecond)
		},
		"change the policy": func(rt *rapid.T) {
			rarely(rt)
			setPolicy(policies[rapid.IntRange(0, len(policies)-1).Draw(rt, "policy")])
		},
		"change the policy back": func(rt *rapid.T) { setPolicy(policies[0]) },
		"change roles": func(rt *rapid.T) {
			rarely(rt)
			who := rapid.SampledFrom(people).Draw(rt, "who")
			if m.holds[who] = !m.holds[who]; m.holds[who] {
				f.People.Give("finance", who)
			} else {
				f.People.Take("finance", who)
			}
		},
		"change the tool": func(rt *rapid.T) {
			rarely(rt)
			seeTool("pin-" + rapid.SampledFrom([]string{"", "x"}).Draw(rt, "definition") + world)
		},
		"pin the tool": func(rt *rapid.T) { pinTool() },
		"pin it stale": func(rt *rapid.T) {
			if _, err := f.Service.PinTool(ctx, approval.Operator{Name: "root"}, "payouts", "create", m.pin+"-another"); !errors.Is(err, approval.ErrStale) {
				rt.Fatalf("pinning what isn't seen any more: %v", err)
			}
		},
		"": func(rt *rapid.T) {
			clock := f.Clock.Now()
			for _, r := range m.runs[max(0, len(m.runs)-8):] {
				before := r.stored
				status := r.status(clock)
				if status == approval.Expired && before != status {
					seen["expired"]++
				}
				got, err := f.Service.Status(ctx, agentOf(r), r.id)
				if err != nil || got.Status != status {
					rt.Fatalf("%s is %s (%v), want %s", r.id, got.Status, err, status)
				}
				if r.begun > 1 || (got.Execution != nil) != (r.begun == 1) {
					rt.Fatalf("%s was begun %d times, with the execution %+v", r.id, r.begun, got.Execution)
				}
				if want := r.grant.active(r.at(clock)); want != (got.Grant != nil && got.Grant.Active(r.at(clock))) {
					rt.Fatalf("%s has the grant %+v, want it active: %t", r.id, got.Grant, want)
				}
				if got.Target != r.account {
					rt.Fatalf("%s acts on %q, want %q", r.id, got.Target, r.account)
				}
			}
		},
	}
	for range 3 { // since some of it takes many steps
		rt.Repeat(actions)
	}
}

// modelGranted is what the approvals of a request grant; nil if nothing.
func modelGranted(r *modelRun) *modelGrant {
	g := &modelGrant{expires: r.changed.Add(8 * time.Hour)}
	rank := map[string]time.Duration{"15m": 15 * time.Minute, "1h": time.Hour}
	for _, scope := range r.approved {
		within, timed := rank[scope]
		switch {
		case scope == "once":
			return nil
		case scope == "session":
			g.session = r.call.session
		case timed && r.changed.Add(within).Before(g.expires):
			g.expires, g.scope = r.changed.Add(within), scope
		}
	}
	if g.scope == "" {
		g.scope = "session"
	}
	return g
}

// edited is what an edited request asks for, when policy says now of it: never
// less than before.
func edited(before, now asks) asks {
	if now.allowed {
		return before
	}
	if !before.stricter(now) {
		return now
	}
	kept := before
	kept.inBand = before.inBand && now.inBand
	if now.stricter(before) {
		kept.tier, kept.people = max(before.tier, now.tier), max(before.people, now.people)
		if now.tier > before.tier {
			kept.scopes = now.scopes
		}
	}
	return kept
}
