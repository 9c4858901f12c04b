package web_test

import (
	"fmt"
	"html"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/approval/approvaltest"
)

// everyPage is each page that has something of the requests on it.
func everyPage(requests ...*approval.Request) []string {
	all := []string{"/", "/history", "/insights"}
	for _, r := range requests {
		all = append(all, pageOf(r), editPageOf(r), "/history?action="+url.QueryEscape(r.Action), "/history?environment="+url.QueryEscape(r.Environment))
	}
	return all
}

// What the policy hides is on no page, whoever looks and whatever became of it.
func TestReviewHidesWhatThePolicyHides(t *testing.T) {
	t.Parallel()
	s := formsSite(t)
	alice := s.signedIn(t, approvaltest.Alice)
	secrets := []string{"hunter2", "4111111111111111", "s3cret", `pa<sswort`, "777888999"}
	payload := []byte(`{"user": "bob", "password": "hunter2", "card": {"number": "4111111111111111", "name": "B"}, "list": ["seen", {"x": "s3cret"}], "deep": [{"PassWord": ["pa<sswort", 777888999]}]}`)
	ask := func(more ...func(*approval.Proposal)) *approval.Request {
		t.Helper()
		return s.ask(t, "card", append([]func(*approval.Proposal){func(p *approval.Proposal) { p.Payload = payload }}, more...)...)
	}
	pending, rejected, failed, edited := ask(), ask(), ask(), ask(func(p *approval.Proposal) { p.Payload = []byte(`{"user": "bob"}`) })
	alice.sends(edited, editAt, changed(alice.formOf(edited, editAt, ""), "payload", string(payload)))
	alice.sends(rejected, decideAt, alice.rejectForm(rejected))
	s.Decide(t, approvaltest.Bob, failed, approval.Approve)
	if _, err := s.Service.Claim(t.Context(), s.Agent, failed.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Service.Finish(t.Context(), s.Agent, failed.ID, approval.Failed, "wrong password hunter2 or card 4111111111111111 or s3cret or pa<sswort or 777888999"); err != nil {
		t.Fatal(err)
	}
	deep := ask(func(p *approval.Proposal) {
		p.Payload = []byte(`{"user": "bob", "password": "hunter2", "a": ` + strings.Repeat("[", 60) + strings.Repeat("]", 60) + `}`)
	})
	// What was hidden before an edit stays so.
	masked := ask()
	if _, err := s.Service.Edit(t.Context(), approvaltest.Bob, masked.ID, 1, []byte(`{"password": "x", "card": {"number": 1}, "list": ["seen", 2, 3]}`), approval.Slack); err != nil {
		t.Fatal(err)
	}
	requests := []*approval.Request{pending, rejected, failed, edited, deep, masked}
	seen := func(what string, got page) {
		t.Helper()
		text := html.UnescapeString(got.body())
		for _, secret := range secrets {
			if strings.Contains(text, secret) {
				t.Errorf("%s has %s:\n%s", what, secret, got.body())
			}
		}
	}
	for _, b := range []*browser{alice, s.signedIn(t, approvaltest.Carol)} {
		for _, address := range everyPage(requests...) {
			seen(address, b.open(http.MethodGet, address))
		}
	}
	got := alice.open(http.MethodGet, pageOf(pending))
	got.require(t, "the page", http.StatusOK, "can&#39;t be edited here: the policy hides some of them", `"seen"`[1:5], "bob")
	got.requireOffers(t, "Approve", "Reject")
	alice.open(http.MethodGet, editPageOf(pending)).require(t, "the page to edit", http.StatusConflict, "the policy hides some of them")
	alice.open(http.MethodGet, pageOf(edited)).require(t, "what was added", http.StatusOK, "Changed since version 1", `<ins>+   &#34;password&#34;: `)

	// No form makes a page say it either.
	form := alice.rejectForm(pending)
	for _, address := range []string{decideAt, editAt, revokeAt, endGrantAt, settleAt} {
		seen(address, alice.send(address, changed(form, "payload", "{")))
	}
	if s.now(t, pending).Version != 1 {
		t.Error("what is hidden was edited")
	}
}

// Whatever agents and people write is shown as text.
func TestReviewShowsTextAsText(t *testing.T) {
	t.Parallel()
	s := formsSite(t)
	alice := s.signedIn(t, approvaltest.Alice)
	const evil = `"'></textarea></title></style><x-evil onload=1>{{.}}&lt;`
	odd := func(field string) string { return evil + field + "\u202e\u200b\u0430dmin" }
	quoted := func(field string) string { return `"` + strings.ReplaceAll(odd(field), `"`, `\"`) + `"` }
	payload := fmt.Appendf(nil, `{%s: %s, "list": [%s], "deep": {%s: [1]}, "n": 1e400}`, quoted("name"), quoted("value"), quoted("item"), quoted("key"))
	ask := func(more ...func(*approval.Proposal)) *approval.Request {
		t.Helper()
		return s.Propose(t, append([]func(*approval.Proposal){func(p *approval.Proposal) {
			p.Action, p.Environment, p.Purpose, p.Payload = odd("action"), `"><x-evil e='`, odd("purpose")+"\n</blockquote>", payload
			p.Target += odd("target")
		}}, more...)...)
	}
	note := func(p *approval.Proposal) { p.Action, p.Environment = "payouts.note", "production" }
	pending, rejected, failed, edited, grant := ask(), ask(), ask(note), ask(), s.ProposeRun(t, func(p *approval.Proposal) {
		p.Action, p.Payload = "payouts.note", fmt.Appendf(nil, `{"account": %s}`, quoted("account"))
	})
	if _, err := s.Service.Edit(t.Context(), approvaltest.Bob, edited.ID, 1, fmt.Appendf(nil, `{%s: %s}`, quoted("name"), quoted("edited")), approval.Slack); err != nil {
		t.Fatal(err)
	}
	reasoned := func(r *approval.Request, verdict approval.Verdict) {
		t.Helper()
		ballot := approvaltest.Ballot(r, verdict)
		ballot.Reason = odd("reason")
		if _, err := s.Service.Decide(t.Context(), approvaltest.Bob, ballot); err != nil {
			t.Fatal(err)
		}
	}
	reasoned(rejected, approval.Reject)
	reasoned(failed, approval.Approve)
	if _, err := s.Service.Claim(t.Context(), s.Agent, failed.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Service.Finish(t.Context(), s.Agent, failed.ID, approval.Failed, odd("detail")); err != nil {
		t.Fatal(err)
	}
	s.Grant(t, approvaltest.Bob, grant, "15m")
	ran := s.askToRun(t, "note")
	s.Run(t, s.Decide(t, approvaltest.Bob, ran, approval.Approve), `{"result": "<x-evil>"}`)
	lost := s.askToRun(t, "note")
	if _, err := s.Service.ClaimToRun(t.Context(), s.Decide(t, approvaltest.Bob, lost, approval.Approve).ID, approvaltest.Pin); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Service.FinishRun(t.Context(), lost.ID, approval.Report{Outcome: approval.Unknown, Detail: odd("lost")}); err != nil {
		t.Fatal(err)
	}
	requests := []*approval.Request{pending, rejected, failed, edited, grant, ran, lost}
	raw := []string{"<x-evil", "</textarea></title>", `"'>`, `'></`, "{{.}}&lt;</"}
	check := func(what string, got page, typed bool) {
		t.Helper()
		lower := strings.ToLower(got.text)
		for _, one := range raw {
			if strings.Contains(lower, one) {
				t.Errorf("%s has %s:\n%s", what, one, got.body())
			}
		}
		head, _, isPage := strings.Cut(got.text, "</head>")
		if isPage && strings.Count(head, "<title>") != 1 || strings.Count(got.text, "</textarea>") != strings.Count(got.text, "<textarea") || strings.Count(got.text, "<script") != strings.Count(got.text, "<script src=")+strings.Count(got.text, `<script type="module" src=`) {
			t.Errorf("%s has other elements than it should:\n%s", what, got.body())
		}
		if !typed && strings.ContainsAny(got.text, "\u202e\u200b") {
			t.Errorf("%s hides characters:\n%s", what, got.body())
		}
	}
	for _, address := range everyPage(requests...) {
		got := alice.open(http.MethodGet, address)
		// What is in a field is sent as it is.
		check(address, got, strings.HasPrefix(address, "/review/edit") && got.status == http.StatusOK || strings.HasPrefix(address, "/history?action"))
	}
	for _, address := range []string{"/?after=", "/history?text=", "/history?status=", "/history?since=", "/history?decided_by=", "/insights?days=", "/review?elicitationId=", "/review/edit?elicitationId=", "/nowhere/"} {
		check(address, alice.open(http.MethodGet, address+url.QueryEscape(evil)), false)
		check(address, s.browser(t).open(http.MethodGet, address+url.QueryEscape(evil)), false)
	}
	// What the texts hide is shown, and said beside them.
	got := alice.open(http.MethodGet, pageOf(pending))
	for _, field := range []string{"action", "target", "purpose", "name", "value", "item", "key"} {
		if !strings.Contains(got.text, "&amp;lt;"+field+`\u{202e}\u{200b}`) && !strings.Contains(got.text, "&lt;"+field+`\u{202e}\u{200b}`) {
			t.Errorf("the %s isn't shown in\n%s", field, got.body())
		}
	}
	got.require(t, "the page", http.StatusOK, "<b>Hidden characters</b> in action, target, arguments, purpose", "<b>Mixed alphabets</b> in", "unusual environment")
	alice.open(http.MethodGet, editPageOf(pending)).require(t, "the page to edit", http.StatusOK, "<b>Hidden characters</b> in")
	for what, words := range map[*approval.Request]string{rejected: "reason", failed: "detail", edited: "edited", lost: "lost"} {
		if got := alice.open(http.MethodGet, pageOf(what)); !strings.Contains(html.UnescapeString(got.text), words+`\u{202e}\u{200b}`) {
			t.Errorf("the %s isn't shown in\n%s", words, got.body())
		}
	}
	// Nor does what somebody typed come back as anything else.
	form := alice.rejectForm(pending)
	check("a reason", alice.send(decideAt, changed(form, "token", "", "reason", odd("reason"))), true)
	check("a verdict", alice.send(decideAt, changed(form, "verdict", evil)), false)
	check("a scope", alice.send(decideAt, changed(form, "verdict", "approve", "scope", evil)), false)
	check("an edit", alice.send(editAt, changed(alice.formOf(pending, editAt, ""), "payload", evil)), true)
	check("an id", alice.send(decideAt, changed(form, "elicitationId", evil)), false)
	check("a way back", alice.send("/sign-in", url.Values{"back": {evil}}), false)
	check("a way back of nobody", s.browser(t).send("/sign-in", url.Values{"back": {"/review?elicitationId=" + evil}}), false)
}
