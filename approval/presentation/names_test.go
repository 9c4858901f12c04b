package presentation

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/countersign/countersign/approval"
)

// Names are asked for once an hour, and for a minute not at all after one that
// didn't come: a page isn't held up by each.
func TestNames(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	asked, answer, failure := 0, "Ada \u202eMoreau", error(nil)
	n := NewNames(func(context.Context, approval.Approver) (string, error) {
		asked++
		return answer, failure
	}, func() time.Time { return now })
	ada, grace := approval.Approver{Workspace: "T", User: "U0ADA"}, approval.Approver{Workspace: "T", User: "U0GRACE"}
	look := func(when string, who approval.Approver, want string, asks int) {
		t.Helper()
		before := asked
		if got := n.Of(who); got != want || asked-before != asks {
			t.Errorf("%s: %q after %d look-ups; want %q after %d", when, got, asked-before, want, asks)
		}
	}
	const shown = `Ada \u{202e}Moreau`
	look("at first", ada, shown, 1)
	look("again", ada, shown, 0)
	look("nobody", approval.Approver{}, "", 0)
	now = now.Add(nameFor)
	failure = errors.New("Slack is down")
	look("an hour later, with Slack down", ada, shown, 1)
	look("somebody else then", grace, "", 0)
	now = now.Add(namesRest)
	look("a minute later", grace, "", 1)
	now = now.Add(namesRest)
	failure, answer = nil, "Grace"
	look("once it is back", grace, "Grace", 1)
	for i := range mostNames + 1 {
		n.Of(approval.Approver{User: fmt.Sprint(i)})
	}
	if len(n.known) > mostNames {
		t.Errorf("%d names are kept", len(n.known))
	}
}
