package web_test

import (
	"net/http"
	"testing"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/approval/approvaltest"
)

// Nobody was asked about what the policy allows, so of a run of it that the server
// lost track of, whoever holds a role can say on its page whether it ran.
func TestSettleWhatThePolicyAllowed(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	if err := s.Service.SetPolicy(t.Context(), approvaltest.RunPolicy(t)); err != nil {
		t.Fatal(err)
	}
	r := s.ProposeRun(t, func(p *approval.Proposal) { p.Action = "payouts.get" })
	if _, err := s.Service.FinishRun(t.Context(), r.ID, approval.Report{Outcome: approval.Unknown}); err != nil {
		t.Fatal(err)
	}
	alice := s.signedIn(t, approvaltest.Alice)
	alice.open(http.MethodGet, pageOf(r)).requireOffers(t, "It ran", "It did not run")
	alice.sends(r, settleAt, changed(alice.formOf(r, settleAt, ""), "ran", "yes")).requireOffers(t)
	if e := s.now(t, r).Execution; e.Outcome != approval.Succeeded || e.SettledBy != approvaltest.Alice {
		t.Errorf("got %+v", e)
	}
}
