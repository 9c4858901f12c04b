package approval_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/approval/approvaltest"
)

// The audit log says when somebody had proved who they are, who decided on the page:
// that it was just before is what some approvals take.
func TestDecisionsSayWhenSomebodySignedIn(t *testing.T) {
	t.Parallel()
	f := approvaltest.New(t)
	for surface, want := range map[approval.Surface]any{
		approval.Web:   "2026-01-02T03:01:05.678Z",
		approval.Slack: nil,
	} {
		ballot := approvaltest.Ballot(f.Propose(t), approval.Approve)
		ballot.Surface, ballot.SignedInAt = surface, f.Clock.Now().Add(-3*time.Minute)
		if _, err := f.Service.Decide(t.Context(), approvaltest.Alice, ballot); err != nil {
			t.Fatal(err)
		}
		var detail map[string]any
		for event, err := range f.Store.Events(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			if event.Type == "decision.recorded" && event.RequestID == string(ballot.Request) {
				if err := json.Unmarshal(event.Detail, &detail); err != nil {
					t.Fatal(err)
				}
			}
		}
		if got := detail["signed_in_at"]; got != want {
			t.Errorf("%s: signed in at %v, want %v", surface, got, want)
		}
	}
}
