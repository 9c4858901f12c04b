package web_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/approval/approvaltest"
)

// An edit that replaces everything is compared as far as somebody reads, and the
// page says that there is more, which stands in the arguments.
func TestReviewOfManyChanges(t *testing.T) {
	t.Parallel()
	s := formsSite(t)
	alice := s.signedIn(t, approvaltest.Alice)
	payload := func(number string) string {
		return `{"list": [` + strings.TrimSuffix(strings.Repeat(number+",", 3000), ",") + `]}`
	}
	r := s.ask(t, "note", func(p *approval.Proposal) { p.Payload = []byte(payload("1")) })
	got := alice.sends(r, editAt, changed(alice.formOf(r, editAt, ""), "payload", payload("2")))
	got.require(t, "edited", http.StatusOK, "And 4,004 more lines of this comparison. The arguments above are whole.")
	if shown := strings.Count(got.text, "<del>") + strings.Count(got.text, "<ins>"); shown > 2000 || shown < 1900 {
		t.Errorf("%d changes are shown", shown)
	}
	r = s.now(t, r)
	few := strings.Replace(string(r.Payload), "2", "3", 1)
	got = alice.sends(r, editAt, changed(alice.formOf(r, editAt, ""), "payload", few))
	if since2, _, _ := strings.Cut(got.text, "Changed since version 1"); strings.Contains(since2, "more line") || !strings.Contains(since2, fmt.Sprintf("<ins>+     %d,</ins>", 3)) {
		t.Errorf("a small change isn't shown whole:\n%.3000s", got.body())
	}
}
