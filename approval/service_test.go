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
)

const contenders = 8

// contend runs eight of them at once and returns what each got.
func contend(do func(i int) error) []error {
	results := make([]error, contenders)
	gate := make(chan struct{})
	var all sync.WaitGroup
	for i := range contenders {
		all.Go(func() {
			<-gate
			results[i] = do(i)
		})
	}
	close(gate)
	all.Wait()
	return results
}

// count returns how many results are nil, and fails on any that is neither nil
// nor one of the expected refusals.
func count(t *testing.T, results []error, refusals ...error) int {
	t.Helper()
	won := 0
	for _, err := range results {
		if err == nil {
			won++
			continue
		}
		known := false
		for _, refusal := range refusals {
			known = known || errors.Is(err, refusal)
		}
		if !known {
			t.Errorf("a contender got %v", err)
		}
	}
	return won
}

func crowd(f *approvaltest.Fixture) []approval.Approver {
	people := make([]approval.Approver, contenders)
	for i := range people {
		people[i] = approval.Approver{Workspace: "T0TEST", User: fmt.Sprintf("U0CROWD%d", i)}
		f.People.Give("finance", people[i])
	}
	return people
}

func TestEightClaimsOneRuns(t *testing.T) {
	t.Parallel()
	f := approvaltest.New(t)
	for range 50 {
		r := f.Decide(t, approvaltest.Alice, f.Propose(t), approval.Approve)
		results := contend(func(int) error {
			_, err := f.Service.Claim(t.Context(), f.Agent, r.ID)
			return err
		})
		if won := count(t, results, approval.ErrApplied); won != 1 {
			t.Fatalf("%d of %d claims succeeded", won, contenders)
		}
	}
}

func TestEightDecideOneCounts(t *testing.T) {
	t.Parallel()
	f := approvaltest.New(t)
	people := crowd(f)
	for range 50 {
		r := f.Propose(t)
		results := contend(func(i int) error {
			verdict := approval.Approve
			if i%2 == 0 {
				verdict = approval.Reject
			}
			_, err := f.Service.Decide(t.Context(), people[i], approvaltest.Ballot(r, verdict))
			return err
		})
		if won := count(t, results, approval.ErrDecided); won != 1 {
			t.Fatalf("%d of %d decisions counted", won, contenders)
		}
		after, err := f.Service.Status(t.Context(), f.Agent, r.ID)
		if err != nil || len(after.Decisions) != 1 {
			t.Fatalf("%d decisions are stored (%v)", len(after.Decisions), err)
		}
	}
}

// One person who clicks eight times is one vote.
func TestEightClicksOfOnePerson(t *testing.T) {
	t.Parallel()
	f := approvaltest.New(t, func(o *approval.Options) { o.Policy = approvaltest.Policy(t, 2) })
	for range 50 {
		r := f.Propose(t)
		results := contend(func(int) error {
			_, err := f.Service.Decide(t.Context(), approvaltest.Alice, approvaltest.Ballot(r, approval.Approve))
			return err
		})
		if won := count(t, results, approval.ErrRecorded); won != 1 {
			t.Fatalf("%d of %d clicks counted", won, contenders)
		}
		after, err := f.Service.Status(t.Context(), f.Agent, r.ID)
		if err != nil || after.Status != approval.Pending || len(after.Votes()) != 1 {
			t.Fatalf("status %s with %d votes (%v)", after.Status, len(after.Votes()), err)
		}
	}
}

// A decision and the expiry that meet at the deadline have one outcome.
func TestDecisionsAtTheDeadline(t *testing.T) {
	t.Parallel()
	f := approvaltest.New(t)
	people := crowd(f)
	for round := range 60 {
		r := f.Propose(t)
		f.Clock.Set(r.ExpiresAt.Add(time.Duration(round%3-1) * time.Millisecond)) // before, at and after it
		results := contend(func(i int) error {
			if i == 0 {
				_, err := f.Service.Status(t.Context(), f.Agent, r.ID)
				f.Clock.Set(r.ExpiresAt)
				return errors.Join(err, approval.ErrExpired)
			}
			_, err := f.Service.Decide(t.Context(), people[i], approvaltest.Ballot(r, approval.Approve))
			return err
		})
		won := count(t, results, approval.ErrExpired, approval.ErrDecided)
		after, err := f.Service.Status(t.Context(), f.Agent, r.ID)
		if err != nil {
			t.Fatal(err)
		}
		if approved := after.Status == approval.Approved; approved != (won == 1) || won > 1 {
			t.Fatalf("%d decisions counted and the request is %s", won, after.Status)
		}
		if round%3 > 0 && won > 0 {
			t.Fatal("a decision counted at or after the deadline")
		}
	}
	if _, _, err := audit.Verify(f.Store.Events(t.Context())); err != nil {
		t.Error(err)
	}
}

func bubble(t *testing.T, test func(*testing.T, *approvaltest.Fixture)) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		test(t, approvaltest.New(t, func(o *approval.Options) { o.Now = nil }))
	})
}

type answer struct {
	r   *approval.Request
	err error
}

func await(ctx context.Context, f *approvaltest.Fixture, id approval.ID, bound time.Duration) <-chan answer {
	answers := make(chan answer, 1)
	go func() {
		r, err := f.Service.Await(ctx, f.Agent, id, bound)
		answers <- answer{r, err}
	}()
	return answers
}

// In the bubble time only moves when everybody waits, so a wake after no time
// is a wake by the decision and by nothing else.
func TestAwaitWakesWhenTheDecisionLands(t *testing.T) {
	bubble(t, func(t *testing.T, f *approvaltest.Fixture) {
		r := f.Propose(t)
		answers := await(t.Context(), f, r.ID, time.Minute)
		time.Sleep(10 * time.Second)
		began := time.Now()
		f.Decide(t, approvaltest.Alice, r, approval.Approve)
		got := <-answers
		if got.err != nil || got.r.Status != approval.Approved || time.Since(began) != 0 {
			t.Errorf("got %v (%v) after %s", got.r, got.err, time.Since(began))
		}
	})
}

func TestAwaitWaitsOnUntilSomethingIsDecided(t *testing.T) {
	bubble(t, func(t *testing.T, f *approvaltest.Fixture) {
		r := f.Propose(t)
		answers := await(t.Context(), f, r.ID, time.Minute)
		synctest.Wait()
		f.Service.Bell().Ring(r.ID) // a change that decides nothing
		synctest.Wait()
		select {
		case got := <-answers:
			t.Errorf("returned %v (%v) while nothing was decided", got.r, got.err)
		default:
		}
		f.Decide(t, approvaltest.Alice, r, approval.Reject)
		if got := <-answers; got.err != nil || got.r.Status != approval.Rejected {
			t.Errorf("got %v (%v)", got.r, got.err)
		}
	})
}

func TestAwaitEnds(t *testing.T) {
	t.Run("pending at the bound", func(t *testing.T) {
		bubble(t, func(t *testing.T, f *approvaltest.Fixture) {
			r := f.Propose(t)
			began := time.Now()
			got := <-await(t.Context(), f, r.ID, 25*time.Second)
			if got.err != nil || got.r.Status != approval.Pending || time.Since(began) != 25*time.Second {
				t.Errorf("got %v (%v) after %s", got.r, got.err, time.Since(began))
			}
		})
	})
	t.Run("expired at the deadline, though nobody sweeps", func(t *testing.T) {
		bubble(t, func(t *testing.T, f *approvaltest.Fixture) {
			r := f.Propose(t, func(p *approval.Proposal) { p.TTL = time.Minute })
			got := <-await(t.Context(), f, r.ID, time.Hour)
			if got.err != nil || got.r.Status != approval.Expired || time.Now().Before(r.ExpiresAt) {
				t.Errorf("got %v (%v)", got.r, got.err)
			}
		})
	})
	t.Run("pending when the server drains", func(t *testing.T) {
		bubble(t, func(t *testing.T, f *approvaltest.Fixture) {
			r := f.Propose(t)
			answers := await(t.Context(), f, r.ID, time.Hour)
			synctest.Wait()
			f.Service.Drain()
			if got := <-answers; got.err != nil || got.r.Status != approval.Pending {
				t.Errorf("got %v (%v)", got.r, got.err)
			}
			if got := <-await(t.Context(), f, r.ID, time.Hour); got.err != nil || got.r.Status != approval.Pending {
				t.Errorf("after it: got %v (%v)", got.r, got.err)
			}
		})
	})
	t.Run("when the caller goes away, and the request stays", func(t *testing.T) {
		bubble(t, func(t *testing.T, f *approvaltest.Fixture) {
			r := f.Propose(t)
			ctx, leave := context.WithCancel(t.Context())
			answers := await(ctx, f, r.ID, time.Hour)
			synctest.Wait()
			leave()
			if got := <-answers; !errors.Is(got.err, context.Canceled) {
				t.Errorf("got %v (%v)", got.r, got.err)
			}
			if after, err := f.Service.Status(t.Context(), f.Agent, r.ID); err != nil || after.Status != approval.Pending {
				t.Errorf("the request is %v (%v)", after, err)
			}
		})
	})
	t.Run("at once for a request that is decided", func(t *testing.T) {
		bubble(t, func(t *testing.T, f *approvaltest.Fixture) {
			r := f.Decide(t, approvaltest.Alice, f.Propose(t), approval.Approve)
			began := time.Now()
			if got := <-await(t.Context(), f, r.ID, time.Hour); got.r.Status != approval.Approved || time.Since(began) != 0 {
				t.Errorf("got %v (%v)", got.r, got.err)
			}
		})
	})
	t.Run("at once for another agent's request", func(t *testing.T) {
		bubble(t, func(t *testing.T, f *approvaltest.Fixture) {
			r := f.Propose(t)
			f.Agent.Name = "another"
			if got := <-await(t.Context(), f, r.ID, time.Hour); !errors.Is(got.err, approval.ErrNotFound) {
				t.Errorf("got %v (%v)", got.r, got.err)
			}
		})
	})
}

// Nobody has to ask for a deadline to be recorded: the sweeper wakes for it and
// for nothing else.
func TestSweepRecordsExpiry(t *testing.T) {
	bubble(t, func(t *testing.T, f *approvaltest.Fixture) {
		go f.Service.Sweep(t.Context())
		short := f.Propose(t, func(p *approval.Proposal) { p.TTL = time.Minute })
		long := f.Propose(t, func(p *approval.Proposal) { p.TTL = 20 * time.Hour })
		used := f.Decide(t, approvaltest.Alice, f.Propose(t), approval.Approve)
		stored := func(id approval.ID) approval.Status {
			r, err := f.Store.Request(t.Context(), id)
			if err != nil {
				t.Fatal(err)
			}
			return r.Status
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := []approval.Status{stored(short.ID), stored(long.ID), stored(used.ID)}; got[0] != approval.Expired || got[1] != approval.Pending || got[2] != approval.Approved {
			t.Errorf("after a minute: %v", got)
		}
		time.Sleep(15*time.Minute - time.Minute)
		synctest.Wait()
		if got := stored(used.ID); got != approval.Expired {
			t.Errorf("an approval that nobody used is %s", got)
		}
		time.Sleep(20 * time.Hour)
		synctest.Wait()
		if got := stored(long.ID); got != approval.Expired {
			t.Errorf("after a day: %s", got)
		}
	})
}

func TestRequestRefusesBadInput(t *testing.T) {
	t.Parallel()
	f := approvaltest.New(t)
	negative := int64(-1)
	tests := []struct {
		name   string
		change func(*approval.Proposal)
		field  string
		want   string
	}{
		{"no purpose", func(p *approval.Proposal) { p.Purpose = " \n" }, "purpose", "is missing"},
		{"a long purpose", func(p *approval.Proposal) { p.Purpose = strings.Repeat("é", 1001) }, "purpose", "has 1001 characters; at most 1000"},
		{"broken text", func(p *approval.Proposal) { p.Target = "\xff" }, "target", "UTF-8"},
		{"a NUL", func(p *approval.Proposal) { p.Action = "crm\x00delete" }, "action", "NUL"},
		{"a long action", func(p *approval.Proposal) { p.Action = strings.Repeat("a", 201) }, "action", "at most 200"},
		{"a long environment", func(p *approval.Proposal) { p.Environment = strings.Repeat("a", 61) }, "environment", "at most 60"},
		{"a negative count", func(p *approval.Proposal) { p.Count = &negative }, "count", "from 0"},
		{"no payload", func(p *approval.Proposal) { p.Payload = nil }, "payload", "is missing"},
		{"a large payload", func(p *approval.Proposal) {
			p.Payload = []byte(`"` + strings.Repeat("x", approval.DefaultPayloadLimit) + `"`)
		}, "payload", "at most 262144"},
		{"no JSON", func(p *approval.Proposal) { p.Payload = []byte("rm -rf /") }, "payload", "line 1"},
		{"a key twice", func(p *approval.Proposal) { p.Payload = []byte("{\"id\":1,\n\"id\":2}") }, "payload", `line 2, column 1`},
		{"a key twice, once escaped", func(p *approval.Proposal) { p.Payload = []byte(`{"a":1,"\u0061":2}`) }, "payload", "duplicate key"},
		{"broken UTF-8", func(p *approval.Proposal) { p.Payload = []byte("{\"a\":\"\xff\"}") }, "payload", "UTF-8"},
		{"a lone surrogate", func(p *approval.Proposal) { p.Payload = []byte(`{"a":"\ud800"}`) }, "payload", "surrogate"},
		{"two values", func(p *approval.Proposal) { p.Payload = []byte(`{} {}`) }, "payload", "column 4"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			p := approval.Proposal{Purpose: "Try", Payload: []byte(`{}`)}
			test.change(&p)
			_, err := f.Service.Request(t.Context(), f.Agent, p)
			var input *approval.InputError
			if !errors.As(err, &input) || input.Field != test.field || !strings.Contains(input.Problem, test.want) {
				t.Errorf("got %v, want an error on %s that says %q", err, test.field, test.want)
			}
		})
	}
	for range f.Store.Events(t.Context()) {
		t.Fatal("refused input left an event")
	}
}

// What the agent gets to run is what it sent, to the byte.
func TestPayloadIsKeptByteForByte(t *testing.T) {
	t.Parallel()
	f := approvaltest.New(t)
	for _, payload := range []string{
		`{"id":9007199254740993,"big":1e400,"price":0.10,"neg":-0}`,
		"{ \"b\" : 1,\r\n\t\"a\" : [ ] }",
		`{"text":"\u0041\/<&>\u202e é 😀"}`,
		`null`, `"x"`, `0`, `[]`, `{}`,
	} {
		r := f.Propose(t, func(p *approval.Proposal) { p.Payload = []byte(payload) })
		f.Decide(t, approvaltest.Alice, r, approval.Approve)
		applied, err := f.Service.Claim(t.Context(), f.Agent, r.ID)
		if err != nil {
			t.Fatal(err)
		}
		if string(applied.Payload) != payload {
			t.Errorf("got %s, want %s", applied.Payload, payload)
		}
	}
}

// Each role and each person is checked again when the approval is used.
func TestClaimChecksTheApproversAgain(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		change func(*approvaltest.Fixture)
		want   error
		status approval.Status
	}{
		{"unchanged", func(*approvaltest.Fixture) {}, nil, approval.Applied},
		{"the role is gone", func(f *approvaltest.Fixture) { f.People.Take("finance", approvaltest.Alice) }, approval.ErrRejected, approval.Rejected},
		{"the account is gone", func(f *approvaltest.Fixture) { f.People.Bar(approvaltest.Alice, "deactivated") }, approval.ErrRejected, approval.Rejected},
		{"nobody can say", func(f *approvaltest.Fixture) { f.People.Fail(errors.New("outage")) }, approval.ErrUnverified, approval.Approved},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			f := approvaltest.New(t)
			r := f.Decide(t, approvaltest.Alice, f.Propose(t), approval.Approve)
			test.change(f)
			after, err := f.Service.Claim(t.Context(), f.Agent, r.ID)
			if !errors.Is(err, test.want) || after.Status != test.status {
				t.Errorf("got %s (%v), want %s (%v)", after.Status, err, test.status, test.want)
			}
			if test.want == approval.ErrRejected && !strings.Contains(after.Reason, "1 of finance") {
				t.Errorf("the reason %q doesn't say what is missing", after.Reason)
			}
		})
	}
}

// The connection that a click came over may drop; the decision must not.
func TestDecisionOutlivesItsCaller(t *testing.T) {
	t.Parallel()
	f := approvaltest.New(t)
	r := f.Propose(t)
	ctx, leave := context.WithCancel(t.Context())
	leave()
	if _, err := f.Service.Decide(ctx, approvaltest.Alice, approvaltest.Ballot(r, approval.Approve)); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Service.Claim(ctx, f.Agent, r.ID); err != nil {
		t.Fatal(err)
	}
}

// Attempts that don't count are events too, and change nothing else.
func TestRefusedAttemptsAreRecorded(t *testing.T) {
	t.Parallel()
	f := approvaltest.New(t)
	r := f.Propose(t)
	if _, err := f.Service.Decide(t.Context(), approvaltest.Carol, approvaltest.Ballot(r, approval.Approve)); !errors.Is(err, approval.ErrNotApprover) {
		t.Fatal(err)
	}
	last := lastEvent(t, f)
	if last.Type != "decision.refused" || last.Actor != approvaltest.Carol.String() || last.RequestID != string(r.ID) {
		t.Errorf("the last event is %+v", last)
	}
	if after, err := f.Service.Status(t.Context(), f.Agent, r.ID); err != nil || after.Revision != r.Revision {
		t.Errorf("the request changed: %v (%v)", after, err)
	}
}

func TestNewNeedsAPolicy(t *testing.T) {
	t.Parallel()
	f := approvaltest.New(t)
	if _, err := approval.New(f.Store, f.People, approval.Options{}); err == nil {
		t.Error("a service without a policy")
	}
}

// Two agents of one name that act for different people are two agents.
func TestAgentsOfDifferentOwners(t *testing.T) {
	t.Parallel()
	f := approvaltest.New(t)
	f.Agent.Owner = approvaltest.Carol
	r := f.Decide(t, approvaltest.Alice, f.Propose(t), approval.Approve)
	other := approval.Agent{Name: f.Agent.Name, Owner: approvaltest.Bob}
	if _, err := f.Service.Status(t.Context(), other, r.ID); !errors.Is(err, approval.ErrNotFound) {
		t.Errorf("the other's agent reads it: %v", err)
	}
	if _, err := f.Service.Claim(t.Context(), other, r.ID); !errors.Is(err, approval.ErrNotFound) {
		t.Errorf("the other's agent applies it: %v", err)
	}
}

func TestTokenOfTheOnlyApproversAgent(t *testing.T) {
	t.Parallel()
	f := approvaltest.New(t, func(o *approval.Options) { o.Policy = approvaltest.Policy(t, 2) })
	var input *approval.InputError
	if _, _, err := f.Service.CreateToken(t.Context(), approval.Operator{Name: "root"}, "agent", approvaltest.Alice); !errors.As(err, &input) || input.Field != "owner" {
		t.Errorf("got %v, want an error that nobody could approve", err)
	}
}

func TestTokens(t *testing.T) {
	t.Parallel()
	f := approvaltest.New(t)
	ctx := t.Context()
	by := approval.Operator{Name: "root"}
	token, secret, err := f.Service.CreateToken(ctx, by, "crm-agent", approvaltest.Carol)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := f.Service.Authenticate(ctx, secret); err != nil || got.Agent != "crm-agent" || got.Owner != approvaltest.Carol || got.ID != token.ID {
		t.Errorf("got %+v (%v)", got, err)
	}
	for _, wrong := range []string{"", "countersign_", secret + "x", secret[:len(secret)-1], strings.ToUpper(secret), token.ID} {
		if _, err := f.Service.Authenticate(ctx, wrong); !errors.Is(err, approval.ErrToken) {
			t.Errorf("%q: got %v", wrong, err)
		}
	}
	if err := f.Service.RevokeToken(ctx, by, token.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Service.Authenticate(ctx, secret); !errors.Is(err, approval.ErrToken) {
		t.Errorf("a revoked token: got %v", err)
	}
	if err := f.Service.RevokeToken(ctx, by, token.ID); !errors.Is(err, approval.ErrToken) {
		t.Errorf("revoked again: got %v", err)
	}
	var input *approval.InputError
	if _, _, err := f.Service.CreateToken(ctx, by, "crm agent", approval.Approver{}); !errors.As(err, &input) {
		t.Errorf("a name with a space: got %v", err)
	}
	for event, err := range f.Store.Events(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(event.Detail), secret) {
			t.Error("the audit log holds a secret")
		}
	}
}
