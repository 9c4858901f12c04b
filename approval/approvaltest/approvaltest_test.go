package approvaltest_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/approval/approvaltest"
	"github.com/countersign/countersign/audit"
)

func TestOneRequestToItsEnd(t *testing.T) {
	t.Parallel()
	f := approvaltest.New(t)
	r := f.Propose(t)
	if _, err := f.Service.Decide(t.Context(), approvaltest.Carol, approvaltest.Ballot(r, approval.Approve)); !errors.Is(err, approval.ErrNotApprover) {
		t.Errorf("Carol holds no role, got %v", err)
	}
	r = f.Decide(t, approvaltest.Alice, r, approval.Approve)
	if r.Status != approval.Approved {
		t.Fatalf("got status %s, want approved", r.Status)
	}
	if _, err := f.Service.Claim(t.Context(), f.Agent, r.ID); err != nil {
		t.Fatal(err)
	}
	r, err := f.Service.Finish(t.Context(), f.Agent, r.ID, approval.Succeeded, "paid")
	if err != nil {
		t.Fatal(err)
	}
	if r.Execution.Outcome != approval.Succeeded {
		t.Errorf("got outcome %s", r.Execution.Outcome)
	}
	if n, _, err := audit.Verify(f.Store.Events(t.Context())); err != nil || n != 6 {
		t.Errorf("got %d events (%v), want 6: created, refused, decided, approved, applied, finished", n, err)
	}
}

func TestPeople(t *testing.T) {
	t.Parallel()
	f := approvaltest.New(t)
	ballot := approvaltest.Ballot(f.Propose(t), approval.Approve)
	decide := func() error {
		_, err := f.Service.Decide(t.Context(), approvaltest.Alice, ballot)
		return err
	}
	outage := errors.New("outage")
	f.People.Fail(outage)
	if err := decide(); !errors.Is(err, approval.ErrUnverified) || !errors.Is(err, outage) {
		t.Errorf("got %v while look-ups fail", err)
	}
	f.People.Fail(nil)
	f.People.Bar(approvaltest.Alice, "a guest")
	if err := decide(); !errors.Is(err, approval.ErrIneligible) {
		t.Errorf("got %v for a guest", err)
	}
	f.People.Bar(approvaltest.Alice, "")
	f.People.Take("finance", approvaltest.Alice)
	if err := decide(); !errors.Is(err, approval.ErrNotApprover) {
		t.Errorf("got %v without the role", err)
	}
	f.People.Give("finance", approvaltest.Alice)
	if err := decide(); err != nil {
		t.Error(err)
	}
	if got := f.People.Asked(); got != 4 {
		t.Errorf("asked %d times, want 4", got)
	}
}

func TestClock(t *testing.T) {
	t.Parallel()
	f := approvaltest.New(t)
	r := f.Propose(t)
	f.Clock.Set(r.ExpiresAt.Add(-time.Millisecond))
	if got, err := f.Service.Status(t.Context(), f.Agent, r.ID); err != nil || got.Status != approval.Pending {
		t.Errorf("got %v (%v) a millisecond before the deadline", got, err)
	}
	f.Clock.Advance(time.Millisecond)
	if got, err := f.Service.Status(t.Context(), f.Agent, r.ID); err != nil || got.Status != approval.Expired {
		t.Errorf("got %v (%v) at the deadline", got, err)
	}
}

func TestInABubble(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := approvaltest.New(t, func(o *approval.Options) { o.Now = nil })
		go f.Service.Sweep(t.Context())
		began := time.Now()
		r := f.Propose(t, func(p *approval.Proposal) { p.TTL = 20 * time.Hour })
		r, err := f.Service.Await(t.Context(), f.Agent, r.ID, 24*time.Hour)
		if err != nil || r.Status != approval.Expired {
			t.Fatalf("got %v (%v)", r, err)
		}
		if waited := time.Since(began); waited != 20*time.Hour {
			t.Errorf("waited %s", waited)
		}
	})
}

func TestOneRunToItsEnd(t *testing.T) {
	t.Parallel()
	f := approvaltest.NewRuns(t)
	first := f.Grant(t, approvaltest.Bob, f.ProposeRun(t), "15m")
	if first.Status != approval.Approved || first.Grant == nil {
		t.Fatalf("got %s with the grant %+v", first.Status, first.Grant)
	}
	ran := f.Run(t, first, `{"paid":true}`)
	if ran.Execution.Outcome != approval.Succeeded {
		t.Errorf("got %+v", ran.Execution)
	}
	got, _, err := f.Service.ReturnResult(t.Context(), f.Agent, first.ID)
	if err != nil || string(got) != `{"paid":true}` {
		t.Errorf("got %s (%v)", got, err)
	}
	under, err := f.Service.Request(t.Context(), f.Agent, approvaltest.Call(first.Target))
	if err != nil || under.GrantedBy != first.ID {
		t.Errorf("the next call on %s is %v (%v)", first.Target, under, err)
	}
	if next := f.ProposeRun(t); next.Target == first.Target || next.Status != approval.Pending {
		t.Errorf("the next proposal is %s on %s", next.Status, next.Target)
	}
	for tool, want := range map[string]approval.Status{"payouts.get": approval.Applied, "payouts.drop": approval.Pending} {
		if r := f.ProposeRun(t, func(p *approval.Proposal) { p.Action = tool }); r.Status != want {
			t.Errorf("%s is %s, want %s", tool, r.Status, want)
		}
	}
}
