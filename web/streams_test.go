package web_test

import (
	"net/http"
	"testing"

	"github.com/countersign/countersign/approval/approvaltest"
)

// A session follows what happens in so many pages at once, and another session in
// as many. A page that is closed makes room.
func TestLiveInManyPages(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	alice, bob := s.signedIn(t, approvaltest.Alice), s.signedIn(t, approvaltest.Bob)
	open := func(b *browser) (status int, end func()) {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+"/live", nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := b.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { response.Body.Close() })
		return response.StatusCode, func() { response.Body.Close() }
	}
	var ends []func()
	for i := range 50 {
		status, end := open(alice)
		if status != http.StatusOK {
			t.Fatalf("page %d: %d", i+1, status)
		}
		ends = append(ends, end)
	}
	if status, _ := open(alice); status != http.StatusTooManyRequests {
		t.Errorf("one page more: %d", status)
	}
	if status, _ := open(bob); status != http.StatusOK {
		t.Errorf("in another session: %d", status)
	}
	ends[0]()
	for {
		// The server learns of it a little later, or the test ends.
		if status, _ := open(alice); status == http.StatusOK {
			break
		}
	}
}
