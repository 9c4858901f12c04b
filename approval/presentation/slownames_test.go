package presentation

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countersign/countersign/approval"
)

// While Slack answers slowly, a page of many people is held up once, and has the
// names that came by then.
func TestSlowNames(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := NewNames(func(ctx context.Context, who approval.Approver) (string, error) {
			select {
			case <-time.After(300 * time.Millisecond):
				return "name of " + who.User, nil
			case <-ctx.Done():
				return "", ctx.Err()
			}
		}, time.Now)
		page := func() (named int) {
			for i := range 20 {
				if n.Of(approval.Approver{Workspace: "T", User: fmt.Sprint("U", i)}) != "" {
					named++
				}
			}
			return named
		}
		for _, want := range []struct {
			after time.Duration
			named int
		}{{0, 3}, {0, 3}, {namesSpell, 6}} {
			time.Sleep(want.after)
			begun := time.Now()
			if named, took := page(), time.Since(begun); named != want.named || took > namesLimit {
				t.Errorf("%d names after %v, want %d", named, took, want.named)
			}
		}
	})
}
