package web_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/approval/approvaltest"
)

// Whoever sends a form after their session has ended reads that nothing was done.
func TestNothingIsDoneWithoutASession(t *testing.T) {
	t.Parallel()
	s := formsSite(t)
	r := s.ask(t, "note")
	b := s.signedIn(t, approvaltest.Alice)
	form := b.approveForm(r)
	b.open(http.MethodPost, "/sign-out")
	b.send(decideAt, form).require(t, "signed out", http.StatusOK, "so nothing was decided or changed", "Sign in with Slack", `action="`+strings.ReplaceAll(pageOf(r), "&", "&amp;")+`"`)
	if r = s.now(t, r); r.Status != approval.Pending {
		t.Errorf("the request is %s", r.Status)
	}
}

// The reason that somebody approved with isn't put where they could reject with it,
// and what was done isn't said as a problem.
func TestReasonsStayInTheirForms(t *testing.T) {
	t.Parallel()
	s := formsSite(t)
	s.requires(t, "{role: finance, count: 2}")
	r := s.ask(t, "note")
	b := s.signedIn(t, approvaltest.Alice)
	form := b.approveForm(r)
	form.Set("reason", "Checked with finance")
	got := b.send(decideAt, form)
	got.require(t, "approved", http.StatusOK, `<p class="done" role="status"`, "1 more of finance is needed")
	if strings.Contains(got.text, ">Checked with finance</textarea>") {
		t.Errorf("it is offered as the reason of something else:\n%s", got.text)
	}
	reject := b.rejectForm(r)
	reject.Set("reason", "No, wait")
	reject.Set("version", "7")
	b.send(decideAt, reject).require(t, "refused", http.StatusForbidden, `<textarea id="why-reject" name="reason" maxlength="1000" rows="2">No, wait</textarea>`)
}

// A revocation is one in each place that names who did what.
func TestRevocationsAreSaidAsSuch(t *testing.T) {
	t.Parallel()
	s := formsSite(t)
	r := s.ask(t, "note")
	b := s.signedIn(t, approvaltest.Alice)
	b.sends(r, decideAt, b.approveForm(r))
	b.sends(r, revokeAt, b.open(http.MethodGet, pageOf(r)).form(revokeAt, ""))
	b.open(http.MethodGet, pageOf(r)).require(t, "the page", http.StatusOK, "<b>U0ALICE</b> revoked the approval of version 1", "Approval revoked, will not run")
	b.open(http.MethodGet, "/").require(t, "the queue", http.StatusOK, "<b>You revoked</b>")
}
