package approval_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/approval/approvaltest"
)

// revokes is a ballot that takes back what a request is.
func revokes(r *approval.Request) approval.Ballot {
	b := approvaltest.Ballot(r, approval.Reject)
	b.Reason, b.Surface = "Wrong account.", approval.Web
	return b
}

// Who may approve may also take it back, until it is used; and then nothing runs.
func TestRevoke(t *testing.T) {
	t.Parallel()
	f := approvaltest.New(t)
	r := f.Propose(t)
	if got, err := f.Service.Revoke(t.Context(), approvaltest.Bob, revokes(r)); !errors.Is(err, approval.ErrPending) || got.Status != approval.Pending {
		t.Fatalf("while it is pending: %v", err)
	}
	r = f.Decide(t, approvaltest.Alice, r, approval.Approve)
	stale := revokes(r)
	stale.Version++
	for name, refused := range map[string]struct {
		who    approval.Approver
		ballot approval.Ballot
		want   error
	}{
		"nobody":               {approval.Approver{}, revokes(r), approval.ErrIneligible},
		"somebody of no role":  {approval.Approver{Workspace: "T0TEST", User: "U0SAM"}, revokes(r), approval.ErrNotApprover},
		"another version":      {approvaltest.Bob, stale, approval.ErrStale},
		"where nobody decides": {approvaltest.Bob, approval.Ballot{Request: r.ID, Surface: approval.InBand}, nil},
	} {
		got, err := f.Service.Revoke(t.Context(), refused.who, refused.ballot)
		if err == nil || refused.want != nil && !errors.Is(err, refused.want) || got != nil && got.Status != approval.Approved {
			t.Errorf("%s: %v", name, err)
		}
	}
	got, err := f.Service.Revoke(t.Context(), approvaltest.Bob, revokes(r))
	if err != nil {
		t.Fatal(err)
	}
	last := got.Decisions[len(got.Decisions)-1]
	if got.Status != approval.Rejected || got.Reason != "Wrong account." || last.Approver != approvaltest.Bob || last.Verdict != approval.Reject || last.Surface != approval.Web {
		t.Errorf("got %s because of %q, decided last by %v", got.Status, got.Reason, last)
	}
	if _, err := f.Service.Claim(t.Context(), f.Agent, r.ID); !errors.Is(err, approval.ErrRejected) {
		t.Errorf("the agent was given the payload: %v", err)
	}
	if _, err := f.Service.Revoke(t.Context(), approvaltest.Bob, revokes(r)); !errors.Is(err, approval.ErrDecided) {
		t.Errorf("a second time: %v", err)
	}
}

// What was used can't be taken back, nor what has expired.
func TestRevokeTooLate(t *testing.T) {
	t.Parallel()
	f := approvaltest.New(t)
	used := f.Decide(t, approvaltest.Alice, f.Propose(t), approval.Approve)
	if _, err := f.Service.Claim(t.Context(), f.Agent, used.ID); err != nil {
		t.Fatal(err)
	}
	if got, err := f.Service.Revoke(t.Context(), approvaltest.Alice, revokes(used)); !errors.Is(err, approval.ErrApplied) || got.Status != approval.Applied {
		t.Errorf("once it is used: %v", err)
	}
	over := f.Decide(t, approvaltest.Alice, f.Propose(t), approval.Approve)
	f.Clock.Advance(24 * time.Hour)
	if got, err := f.Service.Revoke(t.Context(), approvaltest.Alice, revokes(over)); !errors.Is(err, approval.ErrExpired) || got.Status != approval.Expired {
		t.Errorf("once it has expired: %v", err)
	}
}

// What the approval granted beyond once ends with it.
func TestRevokeEndsTheGrant(t *testing.T) {
	t.Parallel()
	f := approvaltest.NewRuns(t)
	r := f.Grant(t, approvaltest.Alice, f.ProposeRun(t), "15m")
	got, err := f.Service.Revoke(t.Context(), approvaltest.Bob, revokes(r))
	if err != nil {
		t.Fatal(err)
	}
	if got.Grant == nil || got.Grant.RevokedBy != approvaltest.Bob.String() {
		t.Errorf("the grant is %+v", got.Grant)
	}
	next, err := f.Service.Request(t.Context(), f.Agent, approvaltest.Call("acct_2"))
	if err != nil || next.Status != approval.Pending {
		t.Errorf("the next call is %s (%v)", next.Status, err)
	}
}

// Of taking it back and using it, one comes first, and the other is refused.
func TestRevokeRacesClaim(t *testing.T) {
	t.Parallel()
	f := approvaltest.New(t)
	for range 20 {
		r := f.Decide(t, approvaltest.Alice, f.Propose(t), approval.Approve)
		var revoked, claimed error
		var both sync.WaitGroup
		both.Go(func() { _, revoked = f.Service.Revoke(t.Context(), approvaltest.Bob, revokes(r)) })
		both.Go(func() { _, claimed = f.Service.Claim(t.Context(), f.Agent, r.ID) })
		both.Wait()
		if (revoked == nil) == (claimed == nil) {
			t.Fatalf("revoking came to %v, and using it to %v", revoked, claimed)
		}
	}
}
