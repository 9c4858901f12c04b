package approval_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/approval/approvaltest"
	"github.com/countersign/countersign/audit"
	"github.com/countersign/countersign/policy"
)

// inStaging is where approvaltest's policy for runs lets the client's answer be
// enough.
func inStaging(p *approval.Proposal) { p.Environment = "staging" }

func confirm(t *testing.T, f *approvaltest.Fixture, r *approval.Request, accept bool) (*approval.Request, error) {
	t.Helper()
	return f.Service.Confirm(t.Context(), f.Agent, approvaltest.Answer(r, accept))
}

// The client's answer decides where policy says so, once, and is on record as
// what it is: nobody's decision.
func TestConfirm(t *testing.T) {
	t.Parallel()
	f := approvaltest.NewRuns(t)
	r := f.ProposeRun(t, inStaging)
	if !r.Ruling.InBand || r.Status != approval.Pending {
		t.Fatalf("got %s, in-band: %t", r.Status, r.Ruling.InBand)
	}
	confirmed, err := confirm(t, f, r, true)
	if err != nil || confirmed.Status != approval.Approved || len(confirmed.Decisions) != 1 {
		t.Fatalf("got %+v (%v)", confirmed, err)
	}
	d := confirmed.Decisions[0]
	if d.Surface != approval.InBand || d.Person() || !d.Approver.IsZero() || len(d.Roles) > 0 || d.Receipt == "" || d.Digest != r.Digest || !strings.Contains(d.Reason, "not by a verified person") {
		t.Errorf("the decision is %+v", d)
	}
	if len(confirmed.Votes()) != 0 || len(confirmed.Missing()) == 0 || confirmed.Grant != nil {
		t.Errorf("it filled a place: votes %v, missing %v", confirmed.Votes(), confirmed.Missing())
	}
	if types, last := eventsOf(t, f, r.ID); types != "request.created client.confirmed request.approved" || last.Actor != "agent:deployer" || last.Surface != "in-band" {
		t.Errorf("the events are %s, the last by %s over %s", types, last.Actor, last.Surface)
	}
	if confirmed.Revision != r.Revision+1 {
		t.Errorf("the revision is %d after %d", confirmed.Revision, r.Revision)
	}
	for _, accept := range []bool{true, false} {
		if _, err := confirm(t, f, r, accept); !errors.Is(err, approval.ErrDecided) {
			t.Errorf("answering %t again: %v", accept, err)
		}
	}
	if ran := f.Run(t, confirmed, `1`); ran.Execution.Outcome != approval.Succeeded {
		t.Errorf("got %+v", ran.Execution)
	}
	if _, err := confirm(t, f, r, true); !errors.Is(err, approval.ErrApplied) {
		t.Errorf("answering once it ran: %v", err)
	}

	r = f.ProposeRun(t, inStaging)
	declined, err := confirm(t, f, r, false)
	if err != nil || declined.Status != approval.Rejected || declined.Reason == "" || declined.Decisions[0].Verdict != approval.Reject || declined.Decisions[0].Person() {
		t.Errorf("declined: %+v (%v)", declined, err)
	}
	if types, _ := eventsOf(t, f, r.ID); types != "request.created client.declined request.rejected" {
		t.Errorf("the events of what was declined are %s", types)
	}
	if _, err := confirm(t, f, r, true); !errors.Is(err, approval.ErrDecided) {
		t.Errorf("accepting what was declined: %v", err)
	}
	if _, err := f.Service.ClaimToRun(t.Context(), r.ID, r.ToolPin); !errors.Is(err, approval.ErrRejected) {
		t.Errorf("claiming what was declined: %v", err)
	}
	if _, _, err := audit.Verify(f.Store.Events(t.Context())); err != nil {
		t.Error(err)
	}
}

// Where policy wants more than the client's word, neither of its answers counts.
func TestConfirmWhereItIsNotEnough(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		lines  string
		change func(*approval.Proposal)
	}{
		{"in production", "", func(*approval.Proposal) {}},
		{"in an environment that isn't stated", "", func(p *approval.Proposal) { p.Environment = "" }},
		{"in one that isn't known", "", func(p *approval.Proposal) { p.Environment = "stagging" }},
		{"of tier 4", "", func(p *approval.Proposal) { p.Environment, p.Action = "staging", "payouts.drop" }},
		{"of no class", "", func(p *approval.Proposal) { p.Environment, p.Action = "staging", "crm.send" }},
		{"of a definition that isn't pinned", "", func(p *approval.Proposal) { p.Environment, p.Unpinned = "staging", true }},
		{"whose hints say that it destroys", "", func(p *approval.Proposal) {
			p.Environment, p.Hints = "staging", policy.Hints{Destructive: new(bool)}
			*p.Hints.Destructive = true
		}},
		{"raised by a rule", `rules: [{id: up, actions: [payouts.create], raise_to: 4, why: "Up."}]`, inStaging},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			f := approvaltest.NewRuns(t, func(o *approval.Options) { o.Policy = approvaltest.RunPolicy(t, test.lines) })
			r := f.ProposeRun(t, test.change)
			for _, accept := range []bool{true, false} {
				if got, err := confirm(t, f, r, accept); !errors.Is(err, approval.ErrNotInBand) || got.Status != approval.Pending {
					t.Errorf("answering %t: %s (%v)", accept, got.Status, err)
				}
			}
			if after, err := f.Service.Status(t.Context(), f.Agent, r.ID); err != nil || len(after.Decisions) != 0 || after.Revision != r.Revision {
				t.Errorf("it is %+v (%v)", after, err)
			}
		})
	}
	t.Run("in mode strict", func(t *testing.T) {
		t.Parallel()
		f := approvaltest.NewRuns(t, func(o *approval.Options) {
			o.Policy = approvaltest.ParsePolicy(t, `
version: 1
mode: strict
environments: {staging: {names: [stage]}}
roles: {finance: {users: [`+approvaltest.Alice.User+`]}}
approval: {requires: [{role: finance}]}
in_band: {tiers: [2, 3]}
integrations: {payouts: {tools: {create: {tier: 3}}}}
`)
		})
		if got, err := confirm(t, f, f.ProposeRun(t, inStaging), true); !errors.Is(err, approval.ErrNotInBand) {
			t.Errorf("got %s (%v)", got.Status, err)
		}
	})
}

// An answer counts for what was shown, of the agent's own, in time, and under the
// policy of now.
func TestConfirmWhat(t *testing.T) {
	t.Parallel()
	f := approvaltest.NewRuns(t)
	for name, test := range map[string]struct {
		do   func(*testing.T, *approval.Request) (*approval.Request, error)
		want error
	}{
		"another digest": {func(t *testing.T, r *approval.Request) (*approval.Request, error) {
			r.Digest[0]++
			return confirm(t, f, r, true)
		}, approval.ErrStale},
		"declining another digest": {func(t *testing.T, r *approval.Request) (*approval.Request, error) {
			r.Digest[0]++
			return confirm(t, f, r, false)
		}, approval.ErrStale},
		"what an edit replaced": {func(t *testing.T, r *approval.Request) (*approval.Request, error) {
			if _, err := f.Service.Edit(t.Context(), approvaltest.Alice, r.ID, 1, []byte(`{"account": "acct_x"}`), approval.Slack); err != nil {
				t.Fatal(err)
			}
			return confirm(t, f, r, true)
		}, approval.ErrStale},
		"another agent's": {func(t *testing.T, r *approval.Request) (*approval.Request, error) {
			return f.Service.Confirm(t.Context(), approval.Agent{Name: "another"}, approvaltest.Answer(r, true))
		}, approval.ErrNotFound},
		"of an agent of another person": {func(t *testing.T, r *approval.Request) (*approval.Request, error) {
			return f.Service.Confirm(t.Context(), approval.Agent{Name: f.Agent.Name, Owner: approvaltest.Bob}, approvaltest.Answer(r, true))
		}, approval.ErrNotFound},
		"no request": {func(t *testing.T, r *approval.Request) (*approval.Request, error) {
			return f.Service.Confirm(t.Context(), f.Agent, approvaltest.Answer(&approval.Request{ID: "req_x"}, true))
		}, approval.ErrNotFound},
		"what a person approved": {func(t *testing.T, r *approval.Request) (*approval.Request, error) {
			f.Decide(t, approvaltest.Alice, r, approval.Approve)
			return confirm(t, f, r, false)
		}, approval.ErrDecided},
		"what a person rejected": {func(t *testing.T, r *approval.Request) (*approval.Request, error) {
			f.Decide(t, approvaltest.Alice, r, approval.Reject)
			return confirm(t, f, r, true)
		}, approval.ErrDecided},
	} {
		r := f.ProposeRun(t, inStaging)
		if got, err := test.do(t, r); !errors.Is(err, test.want) {
			t.Errorf("%s: got %+v (%v), want %v", name, got, err, test.want)
		}
	}
	// What a person made of it can be confirmed as it is then.
	r := f.ProposeRun(t, inStaging)
	edited, err := f.Service.Edit(t.Context(), approvaltest.Alice, r.ID, 1, []byte(`{"account": "acct_y"}`), approval.Slack)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := confirm(t, f, edited, true); err != nil || got.Status != approval.Approved {
		t.Errorf("the edited one: %s (%v)", got.Status, err)
	}
	r = f.ProposeRun(t, inStaging)
	f.Clock.Set(r.ExpiresAt)
	if got, err := confirm(t, f, r, true); !errors.Is(err, approval.ErrExpired) || got.Status != approval.Expired {
		t.Errorf("at the deadline: %s (%v)", got.Status, err)
	}
}

// Policy that wants people now ends what a client could have confirmed, before
// it runs. A looser one changes nothing.
func TestConfirmUnderAnotherPolicy(t *testing.T) {
	t.Parallel()
	without := func(t *testing.T) *policy.Policy {
		return approvaltest.ParsePolicy(t, `
version: 1
mode: cautious
environments: {staging: {names: [stage]}}
roles: {finance: {users: [`+approvaltest.Alice.User+`, `+approvaltest.Bob.User+`]}}
approval: {requires: [{role: finance}]}
integrations: {payouts: {tools: {create: {tier: 3}}}}
`)
	}
	raised := func(t *testing.T) *policy.Policy {
		return approvaltest.RunPolicy(t, `rules: [{id: up, actions: [payouts.create], raise_to: 4, why: "Up."}]`)
	}
	set := func(t *testing.T, f *approvaltest.Fixture, p *policy.Policy) {
		t.Helper()
		if err := f.Service.SetPolicy(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	for name, later := range map[string]func(*testing.T) *policy.Policy{"without in_band": without, "of a higher tier": raised} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := approvaltest.NewRuns(t)
			pending, confirmed, declined := f.ProposeRun(t, inStaging), f.ProposeRun(t, inStaging), f.ProposeRun(t, inStaging)
			if _, err := confirm(t, f, confirmed, true); err != nil {
				t.Fatal(err)
			}
			set(t, f, later(t))
			if got, err := confirm(t, f, pending, true); !errors.Is(err, approval.ErrNotInBand) || got.Status != approval.Pending {
				t.Errorf("confirming now: %s (%v)", got.Status, err)
			}
			// A no is never less strict.
			if got, err := confirm(t, f, declined, false); err != nil || got.Status != approval.Rejected {
				t.Errorf("declining now: %s (%v)", got.Status, err)
			}
			if got, err := f.Service.ClaimToRun(t.Context(), confirmed.ID, confirmed.ToolPin); !errors.Is(err, approval.ErrSuperseded) || got.Execution != nil {
				t.Errorf("claiming what was confirmed before: %s, %q (%v)", got.Status, got.Reason, err)
			}
		})
	}
	t.Run("with it", func(t *testing.T) {
		t.Parallel()
		f := approvaltest.NewRuns(t)
		set(t, f, without(t))
		r := f.ProposeRun(t, inStaging)
		set(t, f, approvaltest.RunPolicy(t))
		// People were asked, so people answer.
		if got, err := confirm(t, f, r, true); !errors.Is(err, approval.ErrNotInBand) {
			t.Errorf("got %s (%v)", got.Status, err)
		}
	})
}

// A policy that comes between the ruling and the confirmation counts.
func TestPolicyChangesDuringAConfirmation(t *testing.T) {
	t.Parallel()
	f := approvaltest.NewRuns(t)
	store := &racingStore{Store: f.Store}
	service, err := approval.New(store, f.People, approval.Options{Policy: approvaltest.RunPolicy(t), Now: f.Clock.Now})
	if err != nil {
		t.Fatal(err)
	}
	r := f.ProposeRun(t, inStaging)
	store.meanwhile = func() {
		if err := service.SetPolicy(t.Context(), approvaltest.RunPolicy(t, `rules: [{id: up, actions: [payouts.create], raise_to: 4, why: "Up."}]`)); err != nil {
			t.Error(err)
		}
	}
	if got, err := service.Confirm(t.Context(), f.Agent, approvaltest.Answer(r, true)); !errors.Is(err, approval.ErrNotInBand) || got.Status != approval.Pending {
		t.Errorf("got %s (%v)", got.Status, err)
	}
}

// racingStore lets something happen right before its next change of a request.
type racingStore struct {
	approval.Store
	meanwhile func()
}

func (s *racingStore) Update(ctx context.Context, id approval.ID, change func(*approval.Request) error) (*approval.Request, error) {
	if happen := s.meanwhile; happen != nil {
		s.meanwhile = nil
		happen()
	}
	return s.Store.Update(ctx, id, change)
}

// A client's yes doesn't help out one approver of two, and a person's approval
// doesn't make a client's no less of one.
func TestClientBesidePeople(t *testing.T) {
	t.Parallel()
	two := "tiers: {3: {requires: [{role: finance, count: 2}]}, 4: {requires: [{role: finance, count: 2}]}, 5: {requires: [{role: finance, count: 2}]}}"
	f := approvaltest.NewRuns(t, func(o *approval.Options) { o.Policy = approvaltest.RunPolicy(t, two) })
	production := f.Decide(t, approvaltest.Alice, f.ProposeRun(t), approval.Approve)
	if got, err := confirm(t, f, production, true); !errors.Is(err, approval.ErrNotInBand) || got.Status != approval.Pending {
		t.Errorf("in production: %s (%v)", got.Status, err)
	}
	staging := f.Decide(t, approvaltest.Alice, f.ProposeRun(t, inStaging), approval.Approve)
	if got, err := confirm(t, f, staging, true); err != nil || got.Status != approval.Approved || len(got.Missing()) != 1 || len(got.Votes()) != 1 {
		t.Errorf("in staging: %s (%v)", got.Status, err)
	}
	// It stands on the client's word, so that Alice's role doesn't matter.
	f.People.Take("finance", approvaltest.Alice)
	if got, err := f.Service.ClaimToRun(t.Context(), staging.ID, staging.ToolPin); err != nil {
		t.Errorf("claiming it: %s (%v)", got.Status, err)
	}
	f.People.Give("finance", approvaltest.Alice)
	other := f.Decide(t, approvaltest.Alice, f.ProposeRun(t, inStaging), approval.Approve)
	if got, err := confirm(t, f, other, false); err != nil || got.Status != approval.Rejected {
		t.Errorf("declining: %s (%v)", got.Status, err)
	}
}

// Nobody else is told of what the client is asked, where its answer is enough,
// until that gives none.
func TestWhoIsToldOfWhatTheClientIsAsked(t *testing.T) {
	t.Parallel()
	told := func(t *testing.T, f *approvaltest.Fixture, want bool) {
		t.Helper()
		_, due, err := f.Store.NextNotice(t.Context(), "slack:C1", f.Clock.Now())
		if err != nil || due != want {
			t.Errorf("people are told: %t (%v), want %t", due, err, want)
		}
	}
	asked := func(p *approval.Proposal) { p.AskClient, p.Environment = true, "staging" }
	fixture := func(t *testing.T) *approvaltest.Fixture {
		return approvaltest.NewRuns(t, func(o *approval.Options) {
			o.Destinations = []string{"slack:C1"}
			o.Policy = approvaltest.RunPolicy(t, "tiers: {3: {remind_after: [10m], escalate: {after: 20m, to: finance}}}")
		})
	}
	for name, test := range map[string]struct {
		change func(*approval.Proposal)
		told   bool
	}{
		"the client in staging":                 {asked, false},
		"the client in production":              {func(p *approval.Proposal) { p.AskClient = true }, true},
		"a client that can't show it, anywhere": {inStaging, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := fixture(t)
			if r := f.ProposeRun(t, test.change); r.Status != approval.Pending || r.ClientOnly == test.told {
				t.Errorf("it is %s, for the client only: %t", r.Status, r.ClientOnly)
			}
			told(t, f, test.told)
		})
	}
	t.Run("a client that gives no answer", func(t *testing.T) {
		t.Parallel()
		f := fixture(t)
		r := f.ProposeRun(t, asked)
		if due := r.Due(); !due.Equal(r.ExpiresAt) {
			t.Errorf("it is due at %s, although nobody was told whom to remind", due)
		}
		if _, err := f.Service.TellPeople(t.Context(), approval.Agent{Name: "another"}, r.ID); !errors.Is(err, approval.ErrNotFound) {
			t.Errorf("another agent: %v", err)
		}
		told(t, f, false)
		first, err := f.Service.TellPeople(t.Context(), f.Agent, r.ID)
		if err != nil || first.Status != approval.Pending || first.ClientOnly || first.Revision != r.Revision+1 {
			t.Fatalf("got %+v (%v)", first, err)
		}
		told(t, f, true)
		if due := first.Due(); !due.Equal(r.CreatedAt.Add(10 * time.Minute)) {
			t.Errorf("it is due at %s, want the reminder", due)
		}
		// Once is enough, however often the client comes back without an answer.
		again, err := f.Service.TellPeople(t.Context(), f.Agent, r.ID)
		if err != nil || again.Revision != first.Revision {
			t.Errorf("told again: %+v (%v)", again, err)
		}
		if types, _ := eventsOf(t, f, r.ID); types != "request.created people.told" {
			t.Errorf("the events are %s", types)
		}
		// Both may answer then.
		if got, err := confirm(t, f, again, true); err != nil || got.Status != approval.Approved {
			t.Errorf("the client's answer: %s (%v)", got.Status, err)
		}
		if got, err := f.Service.TellPeople(t.Context(), f.Agent, r.ID); err != nil || got.Revision != again.Revision+1 {
			t.Errorf("told once it is decided: %+v (%v)", got, err)
		}
	})
	t.Run("at the same moment", func(t *testing.T) {
		t.Parallel()
		f := fixture(t)
		for range 10 {
			r := f.ProposeRun(t, asked)
			var racing sync.WaitGroup
			for range 8 {
				racing.Go(func() {
					if _, err := f.Service.TellPeople(t.Context(), f.Agent, r.ID); err != nil {
						t.Error(err)
					}
				})
			}
			racing.Wait()
			if types, _ := eventsOf(t, f, r.ID); types != "request.created people.told" {
				t.Errorf("the events are %s", types)
			}
		}
	})
	t.Run("the same call of a client that can't be asked", func(t *testing.T) {
		t.Parallel()
		f := fixture(t)
		call := approvaltest.Call("acct_1", asked)
		first := again(t, f, call)
		if same := again(t, f, call); same.ID != first.ID || same.Revision != first.Revision {
			t.Errorf("of the same client: %+v", same)
		}
		told(t, f, false)
		call.AskClient = false
		if same := again(t, f, call); same.ID != first.ID || same.ClientOnly {
			t.Errorf("got %+v", same)
		}
		told(t, f, true)
	})
}

// A client's no isn't a person's: it keeps the agent from nothing, since it may
// be that the client couldn't ask.
func TestNoCooldownOfClients(t *testing.T) {
	t.Parallel()
	f := approvaltest.NewRuns(t, func(o *approval.Options) {
		o.Policy = approvaltest.ParsePolicy(t, `
version: 1
mode: cautious
environments: {staging: {names: [stage]}}
roles: {finance: {users: [`+approvaltest.Alice.User+`]}}
approval: {requires: [{role: finance}]}
in_band: {tiers: [3]}
integrations: {payouts: {tools: {create: {tier: 3}}}}
limits: {pending: 10, per_minute: 1000, cooldown: 1h}
`)
	})
	call := approvaltest.Call("acct_1", inStaging)
	if _, err := confirm(t, f, again(t, f, call), false); err != nil {
		t.Fatal(err)
	}
	asked := again(t, f, call)
	f.Decide(t, approvaltest.Alice, asked, approval.Reject)
	_, err := f.Service.Request(t.Context(), f.Agent, call)
	wantLimit(t, "after a person's no", err, asked.UpdatedAt.Add(time.Hour))
}

// Eight answers at once are one.
func TestEightAnswersOneCounts(t *testing.T) {
	t.Parallel()
	f := approvaltest.NewRuns(t)
	for range 30 {
		r := f.ProposeRun(t, inStaging)
		results := contend(func(i int) error {
			_, err := f.Service.Confirm(t.Context(), f.Agent, approvaltest.Answer(r, i%2 == 0))
			return err
		})
		if won := count(t, results, approval.ErrDecided); won != 1 {
			t.Fatalf("%d of %d answers counted", won, contenders)
		}
		if after, err := f.Service.Status(t.Context(), f.Agent, r.ID); err != nil || len(after.Decisions) != 1 {
			t.Fatalf("it has %d decisions (%v)", len(after.Decisions), err)
		}
	}
}

// An edit while policy asks nobody leaves the client's answer as good as it was.
func TestConfirmAfterAnEditThatPolicyAllows(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		accept bool
		want   approval.Status
	}{{true, approval.Approved}, {false, approval.Rejected}} {
		f := approvaltest.NewRuns(t)
		r := f.ProposeRun(t, inStaging)
		allows := approvaltest.RunPolicy(t, `rules: [{id: down, actions: [payouts.create], lower_to: 1, why: Down.}]`)
		if err := f.Service.SetPolicy(t.Context(), allows); err != nil {
			t.Fatal(err)
		}
		r, err := f.Service.Edit(t.Context(), approvaltest.Bob, r.ID, 1, []byte(`{"account": "acct_2"}`), approval.Slack)
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Service.SetPolicy(t.Context(), approvaltest.RunPolicy(t)); err != nil {
			t.Fatal(err)
		}
		if got, err := confirm(t, f, r, test.accept); err != nil || got.Status != test.want {
			t.Errorf("accept %t: %s (%v), want %s", test.accept, got.Status, err, test.want)
		}
	}
}
