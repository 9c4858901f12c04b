package approval_test

import (
	"testing"
	"time"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/approval/approvaltest"
)

func TestFirstUse(t *testing.T) {
	t.Parallel()
	f := underPolicy(t, asksFinance+payouts+"first_use: {of: [tool], within: 24h}\n")
	read := action("payouts.get_all")
	first := f.Propose(t, read)
	if first.Status != approval.Pending || first.Ruling.Rules[1].ID != "first-use" {
		t.Fatalf("the first use is %s by %v", first.Status, first.Ruling.Rules)
	}
	// Asking isn't using, nor is a use elsewhere or by another.
	f.Decide(t, approvaltest.Alice, first, approval.Approve)
	if again := f.Propose(t, read); again.Status != approval.Pending {
		t.Error("it counts as used before it was applied")
	}
	if _, err := f.Service.Claim(t.Context(), f.Agent, first.ID); err != nil {
		t.Fatal(err)
	}
	if again := f.Propose(t, read); again.Status != approval.Approved {
		t.Errorf("the second use is %s by %v", again.Status, again.Ruling.Rules)
	}
	f.Clock.Advance(24*time.Hour + time.Second)
	if late := f.Propose(t, read); late.Status != approval.Pending {
		t.Error("a use of long ago counts")
	}
}
