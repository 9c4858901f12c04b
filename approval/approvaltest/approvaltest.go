// Package approvaltest is test support for what uses approval: a Service on a
// real SQLite file, with people and a clock that the test sets.
//
// It works inside a testing/synctest bubble: call New in it, and set Now to nil
// in the options to have the bubble's clock.
package approvaltest

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/db"
	"github.com/countersign/countersign/db/dbtest"
	"github.com/countersign/countersign/policy"
)

// The people that a Fixture knows. Alice and Bob hold the role "finance", Carol
// holds none. The fixture's agent acts for nobody.
var (
	Alice = approval.Approver{Workspace: "T0TEST", User: "U0ALICE"}
	Bob   = approval.Approver{Workspace: "T0TEST", User: "U0BOB"}
	Carol = approval.Approver{Workspace: "T0TEST", User: "U0CAROL"}
)

// Start is the time that a Fixture's clock starts at.
var Start = time.Date(2026, 1, 2, 3, 4, 5, 678_000_000, time.UTC)

// Fixture is a Service with all that it stands on.
type Fixture struct {
	Service *approval.Service
	Store   *db.DB
	People  *People
	Clock   *Clock         // stands still until it is moved
	Agent   approval.Agent // "deployer", who acts for nobody

	proposed atomic.Int64
}

// New makes a Fixture that ends with the test. Its policy asks for one of
// "finance" and it tells no destination; each option may change the Service's
// options before it is made.
func New(t testing.TB, options ...func(*approval.Options)) *Fixture {
	t.Helper()
	f := &Fixture{
		Store:  dbtest.Open(t),
		People: new(People),
		Clock:  &Clock{now: Start},
		Agent:  approval.Agent{Name: "deployer"},
	}
	f.People.Give("finance", Alice, Bob)
	settings := approval.Options{Policy: Policy(t, 1), Now: f.Clock.Now}
	for _, option := range options {
		option(&settings)
	}
	service, err := approval.New(f.Store, f.People, settings)
	if err != nil {
		t.Fatal(err)
	}
	f.Service = service
	return f
}

// Policy is a policy that asks for so many of the role "finance", which Alice
// and Bob hold, and that lets agents ask as much as a test asks.
func Policy(t testing.TB, count int) *policy.Policy {
	t.Helper()
	return ParsePolicy(t, fmt.Sprintf(`
version: 1
mode: cautious
roles: {finance: {users: [%s, %s]}}
approval: {requires: [{role: finance, count: %d}]}
limits: {pending: 1000000, per_minute: 1000000, cooldown: 0s}
`, Alice.User, Bob.User, count))
}

// ParsePolicy reads a policy, which must be accepted.
func ParsePolicy(t testing.TB, source string) *policy.Policy {
	t.Helper()
	p, err := policy.Parse([]byte(source))
	if err != nil {
		t.Fatalf("reading a test's policy:\n%v", err)
	}
	return p
}

// Propose has the fixture's agent ask for approval of a small payout, which
// each option may change, and returns the request. From the second on, each has
// a target of its own, since agents don't ask twice for the same.
func (f *Fixture) Propose(t testing.TB, options ...func(*approval.Proposal)) *approval.Request {
	t.Helper()
	proposal := approval.Proposal{
		Purpose:     "Pay the invoices of March",
		Action:      "payouts.create",
		Target:      "acct_1032",
		Environment: "production",
		Payload:     []byte(`{"amount": 1200, "currency": "EUR"}`),
	}
	if n := f.proposed.Add(1); n > 1 {
		proposal.Target += fmt.Sprintf("-%d", n)
	}
	for _, option := range options {
		option(&proposal)
	}
	r, err := f.Service.Request(t.Context(), f.Agent, proposal)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Ballot is a ballot on the request exactly as it is, from Slack.
func Ballot(r *approval.Request, verdict approval.Verdict) approval.Ballot {
	return approval.Ballot{Request: r.ID, Version: r.Version, Digest: r.Digest, Verdict: verdict, Surface: approval.Slack}
}

// Decide has a person decide on the request as it is, which must count, and
// returns the request after it.
func (f *Fixture) Decide(t testing.TB, who approval.Approver, r *approval.Request, verdict approval.Verdict) *approval.Request {
	t.Helper()
	decided, err := f.Service.Decide(t.Context(), who, Ballot(r, verdict))
	if err != nil {
		t.Fatal(err)
	}
	return decided
}

// Clock is a clock that stands still until it is moved. Its methods are safe
// for concurrent use.
type Clock struct {
	mu  sync.Mutex
	now time.Time
}

// Now is the time on the clock.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Advance moves the clock, back if by is negative.
func (c *Clock) Advance(by time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(by)
}

// Set sets the clock.
func (c *Clock) Set(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = now
}
