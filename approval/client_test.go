package approval_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/approval/approvaltest"
	"github.com/countersign/countersign/audit"
)

// inView is asked through a view of the agent's host, for the agent to run.
func inView(p *approval.Proposal) {
	p.Executor, p.ToolPin, p.HostView = approval.ByAgent, "", true
}

// shown is a confirmation in the view of what the request is.
func shown(r *approval.Request, verdict approval.Verdict, change ...func(*approval.Confirmation)) approval.Confirmation {
	c := approval.Confirmation{Request: r.ID, Surface: approval.App, Digest: r.Digest, Verdict: verdict}
	for _, one := range change {
		one(&c)
	}
	return c
}

func withArguments(text string) func(*approval.Confirmation) {
	return func(c *approval.Confirmation) { c.Edited = []byte(text) }
}

// A decision in the view counts once, is on record as nobody's, and lets the agent
// apply what was shown.
func TestConfirmInTheView(t *testing.T) {
	t.Parallel()
	f := approvaltest.NewRuns(t)
	f.Agent.Owner = approvaltest.Bob
	r := f.ProposeRun(t, inView)
	if !r.HostView || !r.Ruling.InView || !r.ViewDecides() || r.Status != approval.Pending || r.ClientOnly {
		t.Fatalf("got %+v", r)
	}
	got, err := f.Service.Confirm(t.Context(), f.Agent, shown(r, approval.Approve, func(c *approval.Confirmation) { c.Reason = "Checked with the bank." }))
	if err != nil || got.Status != approval.Approved || len(got.Decisions) != 1 {
		t.Fatalf("got %+v (%v)", got, err)
	}
	d := got.Decisions[0]
	if d.Surface != approval.App || d.Person() || !d.Approver.IsZero() || len(d.Roles) > 0 || d.Receipt == "" || d.Digest != r.Digest || d.Reason != "Checked with the bank." || d.Scope != "" {
		t.Errorf("the decision is %+v", d)
	}
	if len(got.Votes()) != 0 || len(got.Missing()) == 0 || got.Grant != nil {
		t.Errorf("it filled a place: votes %v, missing %v", got.Votes(), got.Missing())
	}
	types, last := eventsOf(t, f, r.ID)
	if types != "request.created client.confirmed request.approved" || last.Actor != "agent:deployer" || last.Surface != "app" {
		t.Errorf("the events are %s, the last by %s over %s", types, last.Actor, last.Surface)
	}
	var detail struct {
		ClientConfirmed bool   `json:"client_confirmed"`
		ActsFor         string `json:"acts_for"`
	}
	if err := json.Unmarshal(last.Detail, &detail); err != nil || !detail.ClientConfirmed || detail.ActsFor != approvaltest.Bob.String() {
		t.Errorf("the event says %s (%v)", last.Detail, err)
	}
	for _, verdict := range []approval.Verdict{approval.Approve, approval.Reject} {
		if _, err := f.Service.Confirm(t.Context(), f.Agent, shown(r, verdict)); !errors.Is(err, approval.ErrDecided) {
			t.Errorf("answering %s again: %v", verdict, err)
		}
	}
	if claimed, err := f.Service.Claim(t.Context(), f.Agent, r.ID); err != nil || string(claimed.Payload) != string(r.Payload) {
		t.Errorf("claiming: %+v (%v)", claimed, err)
	}
	if _, err := f.Service.Claim(t.Context(), f.Agent, r.ID); !errors.Is(err, approval.ErrApplied) {
		t.Errorf("claiming again: %v", err)
	}

	r = f.ProposeRun(t, inView)
	got, err = f.Service.Confirm(t.Context(), f.Agent, shown(r, approval.Reject, func(c *approval.Confirmation) { c.Reason = "Too much." }))
	if err != nil || got.Status != approval.Rejected || got.Reason != "Too much." || got.Decisions[0].Surface != approval.App {
		t.Errorf("rejected: %+v (%v)", got, err)
	}
	if _, err := f.Service.Claim(t.Context(), f.Agent, r.ID); !errors.Is(err, approval.ErrRejected) {
		t.Errorf("claiming what was rejected: %v", err)
	}
	if _, _, err := audit.Verify(f.Store.Events(t.Context())); err != nil {
		t.Error(err)
	}
}

// Where policy keeps a decision for people, the view decides nothing, neither yes
// nor no, and nothing is recorded.
func TestConfirmInTheViewWhereItIsNotEnough(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		lines  string
		policy string // in place of the runs' policy
		change func(*approval.Proposal)
		answer func(*approval.Confirmation)
		want   error
		noToo  bool // a no is refused as well
	}{
		{name: "no view shows it", change: func(p *approval.Proposal) { p.HostView = false }, want: approval.ErrNotInBand, noToo: true},
		{name: "the gateway runs it", change: func(p *approval.Proposal) { p.Executor, p.ToolPin = approval.ByGateway, approvaltest.Pin }, want: approval.ErrNotInBand, noToo: true},
		{name: "of tier 4", change: action("payouts.drop"), want: approval.ErrNotInBand, noToo: true},
		{name: "of no class", change: action("crm.send"), want: approval.ErrNotInBand, noToo: true},
		{name: "no tier is marked", lines: "in_view: {tiers: []}", want: approval.ErrNotInBand, noToo: true},
		{name: "the environment isn't", lines: "in_view: {environments: [staging]}", want: approval.ErrNotInBand, noToo: true},
		{name: "raised by a rule", lines: `rules: [{id: up, actions: [payouts.create], raise_to: 4, why: "Up."}]`, want: approval.ErrNotInBand, noToo: true},
		{name: "a form's answer", answer: func(c *approval.Confirmation) { c.Surface = approval.InBand }, want: approval.ErrNotInBand, noToo: true},
		{name: "another digest", answer: func(c *approval.Confirmation) { c.Digest[0]++ }, want: approval.ErrStale, noToo: true},
		{name: "another request", answer: func(c *approval.Confirmation) { c.Request = "req_0" }, want: approval.ErrNotFound, noToo: true},
		{name: "no reason", lines: "tiers: {3: {reason_required: true}, 4: {reason_required: true}, 5: {reason_required: true}}", want: approval.ErrReasonRequired},
		{name: "a scope that isn't offered", answer: func(c *approval.Confirmation) { c.Scope = "2h" }},
		{name: "a session without one", answer: func(c *approval.Confirmation) { c.Scope = approval.ScopeSession }},
		{name: "edited to what policy denies", policy: `block: [{id: no-evil, when: "args.account == 'evil'", why: "Not there."}]`, answer: withArguments(`{"account": "evil"}`), want: approval.ErrDenied},
		{name: "in production under strict", policy: "environments: {production: {mode: strict}}\nin_view: {modes: [strict]}", want: approval.ErrNotInBand, noToo: true},
		{name: "edited to what people decide on", lines: `rules: [{id: big, actions: [payouts.create], when: "args.amount > 5000", raise_to: 4, why: "Big."}]`, answer: withArguments(`{"account": "a", "amount": 5001}`), want: approval.ErrNotInBand},
		{name: "edited to no JSON", answer: withArguments(`{`)},
		{name: "edited to nothing", answer: withArguments(``)},
		{name: "edited and no scope of that", answer: func(c *approval.Confirmation) { c.Edited, c.Scope = []byte(`{"account":"b"}`), "2h" }},
		{name: "too long a reason", answer: func(c *approval.Confirmation) { c.Reason = strings.Repeat("x", approval.MaxReason+1) }, noToo: true},
		{name: "a person's surface", answer: func(c *approval.Confirmation) { c.Surface = approval.Slack }, noToo: true},
		{name: "no surface", answer: func(c *approval.Confirmation) { c.Surface = "" }, noToo: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			f := approvaltest.NewRuns(t, func(o *approval.Options) {
				o.Policy = approvaltest.RunPolicy(t, test.lines)
				if test.policy != "" {
					o.Policy = approvaltest.ParsePolicy(t, viewPolicy+test.policy)
				}
			})
			change := test.change
			if change == nil {
				change = func(*approval.Proposal) {}
			}
			r := f.ProposeRun(t, inView, change)
			verdicts := []approval.Verdict{approval.Approve}
			if test.noToo {
				verdicts = append(verdicts, approval.Reject)
			}
			for _, verdict := range verdicts {
				c := shown(r, verdict)
				if test.answer != nil {
					test.answer(&c)
				}
				_, err := f.Service.Confirm(t.Context(), f.Agent, c)
				_, input := errors.AsType[*approval.InputError](err)
				if err == nil || test.want != nil && !errors.Is(err, test.want) || test.want == nil && !input {
					t.Errorf("answering %s: %v, want %v", verdict, err, test.want)
				}
			}
			after, err := f.Service.Status(t.Context(), f.Agent, r.ID)
			if err != nil || after.Status != approval.Pending || len(after.Decisions) != 0 || after.Revision != r.Revision || after.Version != 1 || len(after.Editors) > 0 {
				t.Errorf("it is %+v (%v)", after, err)
			}
			if types, _ := eventsOf(t, f, r.ID); types != "request.created" {
				t.Errorf("the events are %s", types)
			}
		})
	}
}

// viewPolicy is a policy of few words, to which a test adds its own.
const viewPolicy = `
version: 1
mode: cautious
roles: {finance: {users: [U0ALICE, U0BOB]}}
approval: {requires: [{role: finance}]}
integrations: {payouts: {tools: {create: {tier: 3}}}}
`

// An edit in the view and its approval are one: the edited arguments are what is
// approved and applied, byte for byte, and nobody's approval of others counts.
func TestEditInTheView(t *testing.T) {
	t.Parallel()
	f := approvaltest.NewRuns(t, func(o *approval.Options) {
		o.Policy = approvaltest.ParsePolicy(t, strings.Replace(viewPolicy, "{role: finance}", "{role: finance, count: 2}", 1))
	})
	r := f.Decide(t, approvaltest.Alice, f.ProposeRun(t, inView), approval.Approve)
	const payload = `{ "account": "acct_x", "amount": 9007199254740993, "rate": 0.10, "huge": 1e400 }`
	got, err := f.Service.Confirm(t.Context(), f.Agent, shown(r, approval.Approve, withArguments(payload)))
	if err != nil || got.Status != approval.Approved || got.Version != 2 || got.Digest == r.Digest || string(got.Payload) != payload {
		t.Fatalf("got %+v (%v)", got, err)
	}
	if len(got.Editors) != 1 || !got.Editors[0].IsZero() || len(got.Votes()) != 0 {
		t.Errorf("edited by %v, votes %v", got.Editors, got.Votes())
	}
	if d := got.Decisions[len(got.Decisions)-1]; d.Version != 2 || d.Digest != got.Digest || d.Surface != approval.App {
		t.Errorf("the decision is %+v", d)
	}
	if types, _ := eventsOf(t, f, r.ID); types != "request.created decision.recorded request.edited client.confirmed request.approved" {
		t.Errorf("the events are %s", types)
	}
	if claimed, err := f.Service.Claim(t.Context(), f.Agent, r.ID); err != nil || string(claimed.Payload) != payload {
		t.Errorf("claiming: %+v (%v)", claimed, err)
	}
}

// What was approved in the view rests on the policy's word that this is enough, up
// to when it is applied. What people approved doesn't.
func TestViewUnderAnotherPolicy(t *testing.T) {
	t.Parallel()
	for name, later := range map[string]string{
		"no tier is marked": "in_view: {tiers: []}",
		"of a higher tier":  `rules: [{id: up, actions: [payouts.create], raise_to: 4, why: "Up."}]`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := approvaltest.NewRuns(t)
			confirmed, pending, edits, people := f.ProposeRun(t, inView), f.ProposeRun(t, inView), f.ProposeRun(t, inView), f.ProposeRun(t, inView)
			if _, err := f.Service.Confirm(t.Context(), f.Agent, shown(confirmed, approval.Approve)); err != nil {
				t.Fatal(err)
			}
			f.Decide(t, approvaltest.Alice, people, approval.Approve)
			if err := f.Service.SetPolicy(t.Context(), approvaltest.RunPolicy(t, later)); err != nil {
				t.Fatal(err)
			}
			if _, err := f.Service.Claim(t.Context(), f.Agent, confirmed.ID); !errors.Is(err, approval.ErrSuperseded) {
				t.Errorf("claiming what the view approved: %v", err)
			}
			if got, err := f.Service.Confirm(t.Context(), f.Agent, shown(pending, approval.Approve)); !errors.Is(err, approval.ErrNotInBand) || got.Status != approval.Pending {
				t.Errorf("confirming now: %+v (%v)", got, err)
			}
			if got, err := f.Service.Confirm(t.Context(), f.Agent, shown(edits, approval.Approve, withArguments(`{"account": "b"}`))); !errors.Is(err, approval.ErrNotInBand) || got.Version != 1 {
				t.Errorf("confirming an edit now: %+v (%v)", got, err)
			}
			if name == "no tier is marked" {
				f.Decide(t, approvaltest.Alice, pending, approval.Approve)
				if _, err := f.Service.Claim(t.Context(), f.Agent, people.ID); err != nil {
					t.Errorf("claiming what people approved: %v", err)
				}
			}
			// A no is never less strict.
			if got, err := f.Service.Confirm(t.Context(), f.Agent, shown(edits, approval.Reject)); err != nil || got.Status != approval.Rejected {
				t.Errorf("rejecting now: %+v (%v)", got, err)
			}
		})
	}
}

// An approval in the view can go further than once, where policy offers that: for
// what the view shows, and as long as policy lets the view decide.
func TestGrantInTheView(t *testing.T) {
	t.Parallel()
	f := approvaltest.NewRuns(t)
	first := again(t, f, payout("acct_1", 0, inView))
	granted, err := f.Service.Confirm(t.Context(), f.Agent, shown(first, approval.Approve, func(c *approval.Confirmation) { c.Scope = "15m" }))
	if err != nil || granted.Grant == nil || granted.Grant.Scope != "15m" || granted.Decisions[0].Scope != "15m" {
		t.Fatalf("got %+v (%v)", granted, err)
	}
	claims := func(number int) {
		t.Helper()
		next := again(t, f, payout("acct_1", number, inView))
		if next.Status != approval.Approved || next.GrantedBy != first.ID {
			t.Fatalf("got %s by %q", next.Status, next.GrantedBy)
		}
		if _, err := f.Service.Claim(t.Context(), f.Agent, next.ID); err != nil {
			t.Errorf("claiming what it covers: %v", err)
		}
	}
	claims(1)
	claims(2)
	unseen := func(p *approval.Proposal) { p.HostView = false }
	if next := again(t, f, payout("acct_1", 3, inView, unseen)); next.Status != approval.Pending {
		t.Errorf("what no view shows is %s", next.Status)
	}
	if next := again(t, f, payout("acct_2", 4, inView)); next.Status != approval.Pending {
		t.Errorf("on another account it is %s", next.Status)
	}
	waits := again(t, f, payout("acct_1", 5, inView))
	if _, err := f.Service.Withdraw(t.Context(), f.Agent, first.ID, approval.Digest{}, "", approval.App); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Service.Claim(t.Context(), f.Agent, waits.ID); !errors.Is(err, approval.ErrSuperseded) {
		t.Errorf("claiming what a grant covered that was taken back: %v", err)
	}
	if next := again(t, f, payout("acct_1", 6, inView)); next.Status != approval.Pending {
		t.Errorf("after it was taken back it is %s", next.Status)
	}

	second, err := f.Service.Confirm(t.Context(), f.Agent, shown(again(t, f, payout("acct_3", 7, inView)), approval.Approve, func(c *approval.Confirmation) { c.Scope = "15m" }))
	if err != nil {
		t.Fatal(err)
	}
	waits = again(t, f, payout("acct_3", 8, inView))
	if err := f.Service.SetPolicy(t.Context(), approvaltest.RunPolicy(t, "in_view: {tiers: []}")); err != nil {
		t.Fatal(err)
	}
	if waits.GrantedBy != second.ID {
		t.Fatalf("it was granted by %q", waits.GrantedBy)
	}
	if _, err := f.Service.Claim(t.Context(), f.Agent, waits.ID); !errors.Is(err, approval.ErrSuperseded) {
		t.Errorf("claiming under a policy that leaves the view nothing: %v", err)
	}
	if next := again(t, f, payout("acct_3", 9, inView)); next.Status != approval.Pending {
		t.Errorf("under a policy that leaves the view nothing it is %s", next.Status)
	}
}

// What the agent asked, its host can take back until it is applied.
func TestWithdraw(t *testing.T) {
	t.Parallel()
	f := approvaltest.NewRuns(t)
	withdraw := func(r *approval.Request, shown approval.Digest) (*approval.Request, error) {
		return f.Service.Withdraw(t.Context(), f.Agent, r.ID, shown, "Changed my mind.", approval.App)
	}
	r := f.ProposeRun(t, inView)
	other := r.Digest
	other[0]++
	if got, err := withdraw(r, other); !errors.Is(err, approval.ErrStale) || got.Status != approval.Pending {
		t.Errorf("another digest: %v", err)
	}
	if _, err := f.Service.Withdraw(t.Context(), approval.Agent{Name: "another"}, r.ID, r.Digest, "", approval.App); !errors.Is(err, approval.ErrNotFound) {
		t.Errorf("another agent: %v", err)
	}
	got, err := withdraw(r, r.Digest)
	if err != nil || got.Status != approval.Rejected || got.Reason != "Changed my mind." || !got.DecidedAt.Equal(got.ClosedAt) {
		t.Fatalf("got %+v (%v)", got, err)
	}
	if d := got.Decisions[0]; d.Verdict != approval.Reject || d.Surface != approval.App || d.Receipt == "" || d.Person() {
		t.Errorf("the decision is %+v", d)
	}
	if types, last := eventsOf(t, f, r.ID); types != "request.created client.withdrew request.rejected" || last.Actor != "agent:deployer" {
		t.Errorf("the events are %s", types)
	}
	if _, err := withdraw(r, r.Digest); !errors.Is(err, approval.ErrDecided) {
		t.Errorf("again: %v", err)
	}
	if _, err := f.Service.Decide(t.Context(), approvaltest.Alice, approvaltest.Ballot(r, approval.Approve)); !errors.Is(err, approval.ErrDecided) {
		t.Errorf("approving what was taken back: %v", err)
	}

	// Whoever approved it.
	r = f.Decide(t, approvaltest.Alice, f.ProposeRun(t, inView, action("payouts.drop")), approval.Approve)
	f.Clock.Advance(time.Second)
	got, err = withdraw(r, approval.Digest{})
	if err != nil || got.Status != approval.Rejected || !got.DecidedAt.Equal(r.DecidedAt) || !got.ClosedAt.After(r.DecidedAt) {
		t.Fatalf("got %+v (%v)", got, err)
	}
	if _, err := f.Service.Claim(t.Context(), f.Agent, r.ID); !errors.Is(err, approval.ErrRejected) {
		t.Errorf("claiming what was taken back: %v", err)
	}

	applied := f.Decide(t, approvaltest.Alice, f.ProposeRun(t, inView), approval.Approve)
	if _, err := f.Service.Claim(t.Context(), f.Agent, applied.ID); err != nil {
		t.Fatal(err)
	}
	if got, err := withdraw(applied, approval.Digest{}); !errors.Is(err, approval.ErrApplied) || got.Status != approval.Applied {
		t.Errorf("what is applied: %v", err)
	}
	run := f.ProposeRun(t)
	if got, err := withdraw(run, approval.Digest{}); !errors.Is(err, approval.ErrServerRuns) || got.Status != approval.Pending {
		t.Errorf("what the gateway runs: %v", err)
	}
	late := f.ProposeRun(t, inView)
	f.Clock.Set(late.ExpiresAt)
	if got, err := withdraw(late, approval.Digest{}); !errors.Is(err, approval.ErrExpired) || got.Status != approval.Expired {
		t.Errorf("what has expired: %v", err)
	}
	if _, err := f.Service.Withdraw(t.Context(), f.Agent, "req_x", approval.Digest{}, "", approval.App); !errors.Is(err, approval.ErrNotFound) {
		t.Errorf("no request: %v", err)
	}
	if _, err := f.Service.Withdraw(t.Context(), f.Agent, run.ID, approval.Digest{}, "a\x00b", approval.App); err == nil {
		t.Error("a reason with NUL is taken")
	}
	if _, err := f.Service.Withdraw(t.Context(), f.Agent, run.ID, approval.Digest{}, "", approval.Slack); err == nil {
		t.Error("a person's surface is taken")
	}
	if again := again(t, f, payout("acct_9", 1, inView)); again.Status != approval.Pending {
		t.Errorf("got %s", again.Status)
	}
}

// What a host can't show is denied at once where policy leaves it to people, told to
// nobody, and on record.
func TestUnseen(t *testing.T) {
	t.Parallel()
	f := approvaltest.NewRuns(t, func(o *approval.Options) { o.Destinations = []string{"slack:C1"} })
	unseen := func(p *approval.Proposal) {
		p.Executor, p.ToolPin, p.Unseen = approval.ByAgent, "", true
	}
	r := f.ProposeRun(t, unseen)
	if r.Status != approval.Rejected || r.Reason == "" || !r.ClientOnly || len(r.Decisions) != 1 || r.Decisions[0].Surface != approval.InBand || r.Decisions[0].Receipt == "" {
		t.Errorf("got %+v", r)
	}
	if types, last := eventsOf(t, f, r.ID); types != "request.created request.rejected" || last.Actor != "countersign" {
		t.Errorf("the events are %s", types)
	}
	nothingToTell(t, f)
	if _, err := f.Service.Claim(t.Context(), f.Agent, r.ID); !errors.Is(err, approval.ErrRejected) {
		t.Errorf("claiming it: %v", err)
	}
	if allowed := f.ProposeRun(t, unseen, action("payouts.get")); allowed.Status != approval.Approved {
		t.Errorf("what policy allows is %s", allowed.Status)
	}
	denied, err := f.Service.Request(t.Context(), f.Agent, approvaltest.Call("acct_5", unseen, action("payouts.wipe")))
	if !errors.Is(err, approval.ErrDenied) || denied.Decisions[0].Surface != approval.Policy {
		t.Errorf("what policy denies: %+v (%v)", denied, err)
	}
}

// Whoever watches a request learns of each change, and of nothing else.
func TestAwaitChange(t *testing.T) {
	t.Parallel()
	f := approvaltest.NewRuns(t)
	r := f.ProposeRun(t, inView)
	if got, err := f.Service.AwaitChange(t.Context(), f.Agent, r.ID, r.Revision-1, time.Hour); err != nil || got.Revision != r.Revision {
		t.Fatalf("got %+v (%v)", got, err)
	}
	if got, err := f.Service.AwaitChange(t.Context(), f.Agent, r.ID, r.Revision, time.Millisecond); err != nil || got.Revision != r.Revision {
		t.Fatalf("got %+v (%v)", got, err)
	}
	if _, err := f.Service.AwaitChange(t.Context(), approval.Agent{Name: "another"}, r.ID, 0, time.Hour); !errors.Is(err, approval.ErrNotFound) {
		t.Errorf("another agent: %v", err)
	}
	var watching sync.WaitGroup
	watching.Go(func() {
		got, err := f.Service.AwaitChange(t.Context(), f.Agent, r.ID, r.Revision, time.Hour)
		if err != nil || got.Status != approval.Approved {
			t.Errorf("got %+v (%v)", got, err)
		}
	})
	f.Decide(t, approvaltest.Alice, r, approval.Approve)
	watching.Wait()
}

// Of many who answer at once, in the view, in Slack and by taking it back, one
// decides.
func TestOneOfManyDecides(t *testing.T) {
	t.Parallel()
	f := approvaltest.NewRuns(t)
	for range 10 {
		r := f.ProposeRun(t, inView)
		var answering sync.WaitGroup
		for i := range 8 {
			answering.Go(func() {
				var err error
				switch i % 4 {
				case 0:
					_, err = f.Service.Confirm(t.Context(), f.Agent, shown(r, approval.Approve))
				case 1:
					_, err = f.Service.Confirm(t.Context(), f.Agent, shown(r, approval.Approve, withArguments(fmt.Sprintf(`{"account": "%d"}`, i))))
				case 2:
					_, err = f.Service.Confirm(t.Context(), f.Agent, shown(r, approval.Reject))
				default:
					_, err = f.Service.Decide(t.Context(), approvaltest.Alice, approvaltest.Ballot(r, approval.Reject))
				}
				if err != nil && !errors.Is(err, approval.ErrDecided) && !errors.Is(err, approval.ErrRecorded) && !errors.Is(err, approval.ErrStale) {
					t.Errorf("got %v", err)
				}
			})
		}
		answering.Wait()
		got, err := f.Service.Status(t.Context(), f.Agent, r.ID)
		if err != nil || len(got.Decisions) != 1 || got.Status == approval.Pending {
			t.Fatalf("got %+v (%v)", got, err)
		}
	}
}

// Whoever edits in a view is on record as the agent's client, like whoever decides
// there: no event is by nobody.
func TestEditInTheViewIsOnRecord(t *testing.T) {
	t.Parallel()
	f := approvaltest.NewRuns(t)
	r := f.ProposeRun(t, inView)
	if _, err := f.Service.Confirm(t.Context(), f.Agent, shown(r, approval.Approve, withArguments(`{"account": "b"}`))); err != nil {
		t.Fatal(err)
	}
	edits := 0
	for event, err := range f.Store.Events(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if event.Actor == "" {
			t.Errorf("%s is by nobody", event.Type)
		}
		if event.Type == "request.edited" {
			edits++
			if event.Actor != "agent:deployer" || event.Surface != "app" {
				t.Errorf("the edit is by %q over %q", event.Actor, event.Surface)
			}
		}
	}
	if edits != 1 {
		t.Errorf("%d edits are on record", edits)
	}
}

// A no in the view is one: the same can't be asked again at once, also not by editing
// something else into it. That a call is cancelled says nothing of what it asked.
func TestNoInTheViewCools(t *testing.T) {
	t.Parallel()
	limits := "limits: {pending: 1000000, per_minute: 1000000, cooldown: 10m}\n"
	f := approvaltest.NewRuns(t, func(o *approval.Options) { o.Policy = approvaltest.ParsePolicy(t, viewPolicy+limits) })
	ask := func(number int) (*approval.Request, error) {
		return f.Service.Request(t.Context(), f.Agent, payout("acct_1", number, inView))
	}
	must := func(r *approval.Request, err error) *approval.Request {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	cools := func(what string, err error) {
		t.Helper()
		if _, limited := errors.AsType[*approval.LimitError](err); !limited {
			t.Errorf("%s: %v", what, err)
		}
	}
	denied := must(ask(1))
	must(f.Service.Confirm(t.Context(), f.Agent, shown(denied, approval.Reject)))
	_, err := ask(1)
	cools("asking what was denied in the view", err)

	revoked := must(ask(2))
	must(f.Service.Confirm(t.Context(), f.Agent, shown(revoked, approval.Approve)))
	must(f.Service.Withdraw(t.Context(), f.Agent, revoked.ID, approval.Digest{}, "", approval.App))
	_, err = ask(2)
	cools("asking what was taken back in the view", err)

	people := f.Decide(t, approvaltest.Alice, must(ask(3)), approval.Reject)
	other := must(ask(4))
	for _, rejected := range []*approval.Request{denied, revoked, people} {
		got, err := f.Service.Confirm(t.Context(), f.Agent, shown(other, approval.Approve, withArguments(string(rejected.Payload))))
		cools("editing into what was rejected", err)
		if got.Status != approval.Pending || got.Version != 1 {
			t.Errorf("got %s, version %d", got.Status, got.Version)
		}
	}
	must(f.Service.Withdraw(t.Context(), f.Agent, other.ID, approval.Digest{}, "Cancelled.", approval.InBand))
	if again := must(ask(4)); again.Status != approval.Pending {
		t.Errorf("asking again what was cancelled: %s", again.Status)
	}
	f.Clock.Advance(10 * time.Minute)
	if again := must(ask(1)); again.Status != approval.Pending {
		t.Errorf("asking again later: %s", again.Status)
	}
}
