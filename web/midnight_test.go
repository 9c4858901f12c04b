package web_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/countersign/countersign/approval/approvaltest"
)

// The last moment of a day belongs to it.
func TestInsightsAtMidnight(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.Clock.Set(approvaltest.Start.Truncate(24 * time.Hour).Add(24*time.Hour - time.Millisecond))
	b := s.signedIn(t, approvaltest.Alice)
	s.Propose(t)
	if got := b.open(http.MethodGet, "/insights?days=1"); got.status != http.StatusOK {
		t.Errorf("%d\n%s", got.status, got.body())
	}
	if found, err := s.Service.Insights(t.Context(), approvaltest.Alice, 1); err != nil || len(found.Days) != 1 || found.Days[0].Waiting != 1 {
		t.Errorf("got %+v, %v", found.Days, err)
	}
}
