package web_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/approval/approvaltest"
)

// An edit may have changed what a policy hides that came after the question. The
// page doesn't say that only the spacing differs then.
func TestChangesOfWhatIsHidden(t *testing.T) {
	t.Parallel()
	s := formsSite(t)
	alice := s.signedIn(t, approvaltest.Alice)
	r := s.ask(t, "note", func(p *approval.Proposal) { p.Payload = []byte(`{"pin": "1111", "n": 1}`) })
	form := alice.formOf(r, editAt, "")
	hides := strings.Replace(formsPolicy, "keys: [password]", "keys: [password, pin]", 1)
	if err := s.Service.SetPolicy(t.Context(), approvaltest.ParsePolicy(t, strings.Replace(hides, "%s", "{role: finance}", 1))); err != nil {
		t.Fatal(err)
	}
	got := alice.sends(r, editAt, changed(form, "payload", `{"pin": "2222", "n": 1}`))
	got.require(t, "edited", http.StatusOK, "‹hidden text, 4 characters›", "when the agent asked, or when the arguments were edited")
	if strings.Contains(got.text, "Only the spacing") || strings.Contains(got.text, "1111") || strings.Contains(got.text, "2222") {
		t.Errorf("the page says\n%s", got.body())
	}
	if !strings.Contains(got.text, "What the policy hides isn't compared.") {
		t.Error("the page doesn't say that the hidden isn't compared")
	}
}
