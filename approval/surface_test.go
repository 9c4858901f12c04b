package approval_test

import (
	"errors"
	"testing"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/approval/approvaltest"
)

// A ballot comes from where people are shown what they decide on.
func TestBallotsComeFromPeople(t *testing.T) {
	t.Parallel()
	f := approvaltest.New(t)
	r := f.Propose(t)
	for _, surface := range []approval.Surface{approval.Policy, approval.InBand, approval.Granted} {
		ballot := approvaltest.Ballot(r, approval.Approve)
		ballot.Surface = surface
		_, decided := f.Service.Decide(t.Context(), approvaltest.Alice, ballot)
		_, revoked := f.Service.Revoke(t.Context(), approvaltest.Alice, ballot)
		for _, err := range []error{decided, revoked} {
			if input, ok := errors.AsType[*approval.InputError](err); !ok || input.Field != "surface" {
				t.Errorf("from %q: %v", surface, err)
			}
		}
	}
}
