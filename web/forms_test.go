package web_test

import (
	"fmt"
	"html"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/approval/approvaltest"
)

// formsPolicy asks for some people, with a reason from tier 4 on. Carol has a role
// of it that isn't asked for.
const formsPolicy = `
version: 1
mode: all
modes: {all: {1: require_approval, 2: require_approval, 3: require_approval, 4: require_approval, 5: require_approval}}
roles: {finance: {users: [U0ALICE, U0BOB]}, audit: {users: [U0CAROL]}, owners: {users: [U0ALICE], self_approval: true}}
approval: {requires: [%s], scopes: [once, session, 15m]}
tiers:
  4: {reason_required: true, scopes: [once]}
  5: {reason_required: true, scopes: [once]}
block: [{id: no-all, actions: [payouts.note], when: 'has(args.all) && args.all == true', why: "Not everything at once."}]
integrations:
  payouts:
    tools:
      note: {tier: 3, target: args.account}
      drop: {tier: 4}
      wipe: {tier: 5}
      card: {tier: 3, redact: [/card/number, /list/1]}
redact: {keys: [password]}
limits: {pending: 1000000, per_minute: 1000000, cooldown: 0s}
`

// formsSite is a site under formsPolicy.
func formsSite(t *testing.T) *site {
	t.Helper()
	s := newSite(t)
	s.requires(t, "{role: finance}")
	s.People.Give("audit", approvaltest.Carol)
	s.People.Give("owners", approvaltest.Alice)
	return s
}

// requires has formsPolicy ask for other people from now on.
func (s *site) requires(t *testing.T, roles string) {
	t.Helper()
	if err := s.Service.SetPolicy(t.Context(), approvaltest.ParsePolicy(t, fmt.Sprintf(formsPolicy, roles))); err != nil {
		t.Fatal(err)
	}
}

// ask has the site's agent ask for a tool's call by itself.
func (s *site) ask(t *testing.T, tool string, options ...func(*approval.Proposal)) *approval.Request {
	t.Helper()
	return s.Propose(t, append([]func(*approval.Proposal){func(p *approval.Proposal) { p.Action = "payouts." + tool }}, options...)...)
}

// askToRun has it ask for a call that the gateway makes.
func (s *site) askToRun(t *testing.T, tool string) *approval.Request {
	t.Helper()
	return s.ProposeRun(t, func(p *approval.Proposal) { p.Action = "payouts." + tool })
}

// now is a request as it is stored.
func (s *site) now(t *testing.T, r *approval.Request) *approval.Request {
	t.Helper()
	r, err := s.Store.Request(t.Context(), r.ID)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// stored is all that is stored: each request, and how many events of each kind
// there are, but for those of attempts that didn't count.
type stored struct {
	Requests []approval.Request
	Events   map[string]int
}

func (s *site) stored(t *testing.T, requests ...*approval.Request) stored {
	t.Helper()
	all := stored{Events: make(map[string]int)}
	for _, r := range requests {
		all.Requests = append(all.Requests, *s.now(t, r))
	}
	for event, err := range s.Store.Events(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if event.Type != "decision.refused" {
			all.Events[event.Type]++
		}
	}
	return all
}

func requireSame(t *testing.T, before, after stored) {
	t.Helper()
	if diff := cmp.Diff(before, after, cmpopts.IgnoreUnexported(approval.Request{}), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("what is stored has changed (-before +after):\n%s", diff)
	}
}

// Where the forms of a request's page are sent.
const (
	decideAt   = "/review/decide"
	revokeAt   = "/review/revoke"
	endGrantAt = "/review/end-grant"
	settleAt   = "/review/settle"
	editAt     = "/review/edit"
)

func pageOf(r *approval.Request) string { return "/review?elicitationId=" + string(r.ID) }

func editPageOf(r *approval.Request) string { return "/review/edit?elicitationId=" + string(r.ID) }

var input = regexp.MustCompile(`<input type="(\w+)" name="(\w+)" value="([^"]*)"( checked)?>`)

// forms are the forms of a page, by the beginning of their tags. Pages can be long,
// and regular expressions slow.
func (p page) forms() []string {
	var all []string
	for _, form := range strings.Split(p.text, `<form method="post" action="`)[1:] {
		form, _, _ = strings.Cut(form, "</form>")
		all = append(all, form)
	}
	return all
}

// form is what the form of a page to an address sends if nobody changes anything;
// nil if there is none. Of several it is the one that has some words.
func (p page) form(address, words string) url.Values {
	for _, form := range p.forms() {
		if !strings.HasPrefix(form, address+`"`) || !strings.Contains(form, words) {
			continue
		}
		values := url.Values{}
		fields, areas, _ := strings.Cut(form, "<textarea ")
		for areas != "" {
			var tag, text string
			tag, areas, _ = strings.Cut(areas, ">")
			text, areas, _ = strings.Cut(areas, "</textarea>")
			_, name, _ := strings.Cut(tag, `name="`)
			name, _, _ = strings.Cut(name, `"`)
			values.Add(name, html.UnescapeString(strings.TrimPrefix(text, "\n")))
			var between string
			between, areas, _ = strings.Cut(areas, "<textarea ")
			fields += between
		}
		for _, one := range input.FindAllStringSubmatch(fields, -1) {
			if one[1] == "hidden" || one[4] != "" {
				values.Add(one[2], html.UnescapeString(one[3]))
			}
		}
		return values
	}
	return nil
}

// offers are the forms that a page has, by the words on their buttons.
func (p page) offers() []string {
	var all []string
	for _, form := range p.forms() {
		if strings.HasPrefix(form, "/sign-out") {
			continue
		}
		for _, button := range regexp.MustCompile(`<button[^>]*>([^<]*)</button>`).FindAllStringSubmatch(form, -1) {
			all = append(all, button[1])
		}
	}
	if link(p.text, "Edit the arguments") != "" {
		all = append(all, "Edit the arguments")
	}
	return all
}

func (p page) requireOffers(t *testing.T, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, p.offers(), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("what the page offers (-want +got):\n%s", diff)
	}
}

// body is a page without its head.
func (p page) body() string {
	if _, body, ok := strings.Cut(p.text, "</head>"); ok {
		return body
	}
	return p.text
}

// require checks how a page came and that it has some words.
func (p page) require(t *testing.T, what string, status int, words ...string) {
	t.Helper()
	if p.status != status {
		t.Errorf("%s: %d, want %d\n%s", what, p.status, status, p.body())
		return
	}
	for _, one := range words {
		if !strings.Contains(p.text, one) {
			t.Errorf("%s: no %q in\n%s", what, one, p.body())
		}
	}
}

// formOf is a form of a request's pages, which there must be.
func (b *browser) formOf(r *approval.Request, address, words string) url.Values {
	b.t.Helper()
	got := b.open(http.MethodGet, pageOf(r))
	if address == editAt {
		got = b.open(http.MethodGet, editPageOf(r))
	}
	form := got.form(address, words)
	if form == nil {
		b.t.Fatalf("no form to %s with %q in\n%s", address, words, got.body())
	}
	return form
}

func (b *browser) approveForm(r *approval.Request) url.Values {
	b.t.Helper()
	return b.formOf(r, decideAt, `value="approve"`)
}

func (b *browser) rejectForm(r *approval.Request) url.Values {
	b.t.Helper()
	return b.formOf(r, decideAt, `value="reject"`)
}

// changed is a copy of a form with other values.
func changed(form url.Values, pairs ...string) url.Values {
	other := url.Values{}
	for name, values := range form {
		other[name] = append([]string(nil), values...)
	}
	for i := 0; i < len(pairs); i += 2 {
		other.Set(pairs[i], pairs[i+1])
	}
	return other
}

// sends sends a form that must work, which leads back to the request's page.
func (b *browser) sends(r *approval.Request, address string, form url.Values) page {
	b.t.Helper()
	if got := b.send(address, form); got.status != http.StatusSeeOther || got.location != pageOf(r) {
		b.t.Fatalf("%s: %d to %q\n%s", address, got.status, got.location, got.body())
	}
	return b.open(http.MethodGet, pageOf(r))
}

// What people do about a request, they do with forms and without any script.
func TestReviewByForms(t *testing.T) {
	t.Parallel()
	s := formsSite(t)
	alice, bob := s.signedIn(t, approvaltest.Alice), s.signedIn(t, approvaltest.Bob)

	t.Run("approve", func(t *testing.T) {
		r := s.ask(t, "note", func(p *approval.Proposal) { p.Payload = []byte(`{"amount": 1, "b": [true, null]}`) })
		alice.open(http.MethodGet, pageOf(r)).requireOffers(t, "Approve", "Reject", "Edit the arguments")
		got := alice.sends(r, decideAt, alice.approveForm(r))
		got.require(t, "approved", http.StatusOK, "<b>U0ALICE</b> approved version 1 as finance on this page", "waiting to be applied", "U0ALICE</b> approved")
		got.requireOffers(t, "Revoke approval")
		if strings.Contains(got.text, "<p>Needs") || strings.Contains(got.text, "<p>Still needs") {
			t.Errorf("it still needs somebody:\n%s", got.body())
		}
		d := s.now(t, r).Decisions[0]
		if d.Approver != approvaltest.Alice || d.Surface != approval.Web || d.Digest != r.Digest || s.now(t, r).Status != approval.Approved {
			t.Errorf("got %+v", d)
		}
		alice.send(decideAt, changed(alice.formOf(r, revokeAt, ""), "verdict", "approve")).require(t, "with another form's token", http.StatusForbidden)
	})
	t.Run("reject with a reason", func(t *testing.T) {
		r := s.ask(t, "note")
		got := alice.sends(r, decideAt, changed(alice.rejectForm(r), "reason", "  not <b>now</b>\u202e \n"))
		got.require(t, "rejected", http.StatusOK, "not &lt;b&gt;now&lt;/b&gt;\\u{202e}", "Rejected")
		got.requireOffers(t)
		if r := s.now(t, r); r.Status != approval.Rejected || r.Reason != "not <b>now</b>\u202e" {
			t.Errorf("got %s for %q", r.Status, r.Reason)
		}
		bob.open(http.MethodGet, editPageOf(r)).require(t, "editing then", http.StatusConflict, "can&#39;t be edited any more")
	})
	t.Run("edit, then somebody else approves", func(t *testing.T) {
		r := s.ask(t, "note", func(p *approval.Proposal) { p.Payload = []byte("{\n  \"amount\": 1200,\n  \"to\": \"</textarea>\"\n}") })
		old := bob.approveForm(r)
		form := alice.formOf(r, editAt, "")
		if form.Get("payload") != string(r.Payload) {
			t.Errorf("the page shows other arguments: %q", form.Get("payload"))
		}
		unchanged := changed(form, "payload", strings.ReplaceAll(form.Get("payload"), "\n", "\r\n"))
		alice.send(editAt, unchanged).require(t, "unchanged", http.StatusBadRequest, "Nothing was changed: these are the arguments as they are.")
		for what, wrong := range map[string]string{"no JSON": "{\"amount\": <1}", "what is denied": `{"all": true, "x": "<i>"}`, "too much": `{"a":"` + strings.Repeat("x", approval.DefaultPayloadLimit) + `"}`} {
			got := alice.send(editAt, changed(form, "payload", wrong))
			if got.form(editAt, "").Get("payload") != wrong || got.status != http.StatusBadRequest && got.status != http.StatusForbidden || !strings.Contains(got.text, "Nothing was changed") {
				t.Errorf("%s: %d\n%.3000s", what, got.status, got.body())
			}
			if s.now(t, r).Version != 1 {
				t.Fatalf("%s made a version", what)
			}
		}
		got := alice.sends(r, editAt, changed(form, "payload", strings.ReplaceAll(form.Get("payload"), "1200", "900")))
		got.require(t, "edited", http.StatusOK, "edited the arguments, on the review page", "You can&#39;t approve what you edited. It still needs 1 of finance.", "Changed since version 1 of deployer", `<del>-   &#34;amount&#34;: 1200,</del>`, `<ins>+   &#34;amount&#34;: 900,</ins>`)
		got.requireOffers(t, "Reject", "Edit the arguments")
		own := changed(alice.rejectForm(r), "verdict", "approve")
		alice.send(decideAt, own).require(t, "approving one's own edit", http.StatusForbidden, "somebody else must approve")
		bob.send(decideAt, old).require(t, "approving version 1", http.StatusConflict, "The arguments changed", "version 2")
		if s.now(t, r).Status != approval.Pending {
			t.Fatal("it is decided")
		}
		bob.sends(r, decideAt, bob.approveForm(r))
		if r = s.now(t, r); r.Status != approval.Approved || r.Decisions[0].Version != 2 || r.Decisions[0].Digest != r.Digest || r.Editors[0] != approvaltest.Alice || string(r.Payload) != "{\n  \"amount\": 900,\n  \"to\": \"</textarea>\"\n}" {
			t.Errorf("got %+v", r)
		}
	})
	t.Run("edit twice", func(t *testing.T) {
		r := s.ask(t, "note", func(p *approval.Proposal) { p.Payload = []byte(`{"a": 1}`) })
		alice.sends(r, editAt, changed(alice.formOf(r, editAt, ""), "payload", `{"a": 2}`))
		old := alice.formOf(r, editAt, "")
		got := bob.sends(r, editAt, changed(bob.formOf(r, editAt, ""), "payload", `{"a":  2}`))
		got.require(t, "only the spacing", http.StatusOK, "Changed since version 2 of <b>U0ALICE</b>", "Only the spacing.", "Changed since version 1 of deployer")
		got = alice.send(editAt, changed(old, "payload", `{"a": 4}`))
		got.require(t, "an edit of version 2", http.StatusConflict, "The arguments changed", "Version 3")
		if got.form(editAt, "") != nil {
			t.Errorf("what was written for version 2 can be saved as version 4:\n%s", got.body())
		}
		if r = s.now(t, r); r.Version != 3 || string(r.Payload) != `{"a":  2}` {
			t.Errorf("version %d is %s", r.Version, r.Payload)
		}
	})
	t.Run("edit, and sign in meanwhile", func(t *testing.T) {
		r := s.ask(t, "note")
		bob := s.signedIn(t, approvaltest.Bob)
		old := changed(bob.formOf(r, editAt, ""), "payload", `{"typed": "for <long>"}`)
		bob.prove("U0BOB")
		got := bob.send(editAt, old)
		got.require(t, "the form of before", http.StatusForbidden, "from before you signed in")
		again := got.form(editAt, "")
		if again.Get("payload") != old.Get("payload") {
			t.Fatalf("what was typed is gone from\n%s", got.body())
		}
		bob.sends(r, editAt, again)
		if r := s.now(t, r); r.Version != 2 || string(r.Payload) != old.Get("payload") {
			t.Errorf("version %d is %s", r.Version, r.Payload)
		}
		// What was typed for other arguments isn't offered to be saved over these.
		if got := bob.send(editAt, changed(old, "payload", "{}")); got.status != http.StatusForbidden || got.form(editAt, "") != nil {
			t.Errorf("%d\n%s", got.status, got.body())
		}
	})
	t.Run("revoke an approval", func(t *testing.T) {
		r := s.ask(t, "note")
		s.Decide(t, approvaltest.Bob, r, approval.Approve)
		got := alice.sends(r, revokeAt, changed(alice.formOf(r, revokeAt, ""), "reason", "changed <my> mind"))
		got.require(t, "revoked", http.StatusOK, "changed &lt;my&gt; mind", "revoked")
		got.requireOffers(t)
		if r := s.now(t, r); r.Status != approval.Rejected || r.Reason != "changed <my> mind" || r.Decisions[1].Surface != approval.Web {
			t.Errorf("got %+v", r)
		}
	})
	t.Run("what was used can't be revoked", func(t *testing.T) {
		r := s.ask(t, "note")
		s.Decide(t, approvaltest.Bob, r, approval.Approve)
		form := changed(alice.formOf(r, revokeAt, ""), "reason", "too late?")
		if _, err := s.Service.Claim(t.Context(), s.Agent, r.ID); err != nil {
			t.Fatal(err)
		}
		alice.send(revokeAt, form).require(t, "revoked too late", http.StatusConflict, "Nothing changed. It was", "approved by", "applied")
		if s.now(t, r).Status != approval.Applied {
			t.Error("it was revoked")
		}
	})
	t.Run("grant, and end the grant", func(t *testing.T) {
		r := s.askToRun(t, "note")
		form := alice.approveForm(r)
		if form.Get("scope") != approval.ScopeOnce {
			t.Errorf("%q is chosen at first", form.Get("scope"))
		}
		alice.send(decideAt, changed(form, "scope", "1h")).require(t, "a scope that isn't offered", http.StatusBadRequest, "approving for that long isn&#39;t offered")
		got := alice.sends(r, decideAt, changed(form, "scope", "15m"))
		got.requireOffers(t, "Revoke approval", "Revoke grant")
		if r := s.now(t, r); r.Grant == nil || r.Decisions[0].Scope != "15m" {
			t.Fatalf("got %+v", r.Grant)
		}
		end := bob.formOf(r, endGrantAt, "")
		got = bob.sends(r, endGrantAt, end)
		got.requireOffers(t, "Revoke approval")
		if r := s.now(t, r); r.Grant.RevokedAt.IsZero() || r.Grant.RevokedBy != approvaltest.Bob.String() || r.Status != approval.Approved {
			t.Errorf("got %+v, %s", r.Grant, r.Status)
		}
		bob.send(endGrantAt, end).require(t, "ended twice", http.StatusConflict, "The grant was revoked before")
	})
	t.Run("once is no grant", func(t *testing.T) {
		r := s.askToRun(t, "note")
		alice.sends(r, decideAt, alice.approveForm(r)).requireOffers(t, "Revoke approval")
		if r := s.now(t, r); r.Grant != nil || r.Decisions[0].Scope != "" {
			t.Errorf("got %+v for %q", r.Grant, r.Decisions[0].Scope)
		}
	})
	t.Run("settle an unknown run", func(t *testing.T) {
		for ran, want := range map[string]approval.Outcome{"yes": approval.Succeeded, "no": approval.Failed} {
			r := s.askToRun(t, "note")
			s.Decide(t, approvaltest.Bob, r, approval.Approve)
			if _, err := s.Service.ClaimToRun(t.Context(), r.ID, approvaltest.Pin); err != nil {
				t.Fatal(err)
			}
			alice.open(http.MethodGet, pageOf(r)).requireOffers(t) // it runs
			if _, err := s.Service.FinishRun(t.Context(), r.ID, approval.Report{Outcome: approval.Unknown, Detail: "lost <it>"}); err != nil {
				t.Fatal(err)
			}
			alice.open(http.MethodGet, pageOf(r)).requireOffers(t, "It ran", "It did not run")
			form := alice.formOf(r, settleAt, "")
			alice.send(settleAt, form).require(t, "neither", http.StatusBadRequest, "please say whether it ran")
			alice.send(settleAt, changed(form, "ran", "maybe")).require(t, "neither", http.StatusBadRequest, "please say whether it ran")
			if e := s.now(t, r).Execution; e.Outcome != approval.Unknown || !e.SettledBy.IsZero() {
				t.Fatalf("settled by saying nothing: %+v", e)
			}
			alice.sends(r, settleAt, changed(form, "ran", ran)).requireOffers(t)
			if e := s.now(t, r).Execution; e.Outcome != want || e.SettledBy != approvaltest.Alice {
				t.Errorf("%s: got %+v", ran, e)
			}
			alice.send(settleAt, changed(form, "ran", ran)).require(t, "twice", http.StatusConflict, "said before")
		}
	})
	t.Run("a reason", func(t *testing.T) {
		r := s.ask(t, "drop")
		form := alice.approveForm(r)
		for _, none := range []string{"", " \n "} {
			alice.send(decideAt, changed(form, "reason", none)).require(t, "without a reason", http.StatusBadRequest, "asks whoever approves this for a reason")
		}
		long := strings.Repeat("<", approval.MaxReason+1)
		got := alice.send(decideAt, changed(form, "reason", long))
		got.require(t, "with a long one", http.StatusBadRequest, "Nothing was decided")
		if got.form(decideAt, `value="approve"`).Get("reason") != long {
			t.Errorf("what was typed is gone from\n%.2000s", got.body())
		}
		alice.sends(r, decideAt, changed(form, "reason", "it's <due>")).require(t, "approved", http.StatusOK, "it&#39;s &lt;due&gt;")
		if d := s.now(t, r).Decisions[0]; d.Reason != "it's <due>" {
			t.Errorf("got %+v", d)
		}
		other := s.ask(t, "note")
		got = alice.send(decideAt, changed(alice.rejectForm(other), "reason", long))
		got.require(t, "rejected with a long one", http.StatusBadRequest, "Nothing was decided")
		if got.form(decideAt, `value="reject"`).Get("reason") != long {
			t.Errorf("what was typed is gone from\n%.2000s", got.body())
		}
	})
	t.Run("two approvers", func(t *testing.T) {
		s.requires(t, "{role: finance, count: 2}")
		defer s.requires(t, "{role: finance}")
		r := s.ask(t, "note")
		form := alice.approveForm(r)
		alice.send(decideAt, form).require(t, "the first", http.StatusOK, "Recorded. 1 more of finance is needed.")
		got := alice.open(http.MethodGet, pageOf(r))
		got.require(t, "after the first", http.StatusOK, "1 of 2 approved", "You approved this. It still needs 1 of finance.")
		got.requireOffers(t, "Reject", "Edit the arguments")
		alice.send(decideAt, form).require(t, "the first again", http.StatusConflict, "recorded already")
		if r := s.now(t, r); r.Status != approval.Pending || len(r.Decisions) != 1 {
			t.Fatalf("got %s", r.Status)
		}
		bob.sends(r, decideAt, bob.approveForm(r))
		if r := s.now(t, r); r.Status != approval.Approved || len(r.Decisions) != 2 {
			t.Errorf("got %s", r.Status)
		}
	})
	t.Run("one's own request", func(t *testing.T) {
		agent := approval.Agent{Name: "alices", Owner: approvaltest.Alice}
		r, err := s.Service.Request(t.Context(), agent, approval.Proposal{Purpose: "x", Action: "payouts.note", Payload: []byte(`{"own": 1}`)})
		if err != nil {
			t.Fatal(err)
		}
		got := alice.open(http.MethodGet, pageOf(r))
		got.require(t, "one's own", http.StatusOK, "You can&#39;t approve what your own agent asks.")
		got.requireOffers(t, "Reject", "Edit the arguments")
		alice.send(decideAt, changed(alice.rejectForm(r), "verdict", "approve")).require(t, "approving it", http.StatusForbidden, "somebody else must approve")
		if s.now(t, r).Status != approval.Pending {
			t.Fatal("it is decided")
		}
		bob.sends(r, decideAt, bob.approveForm(r))
	})
	t.Run("one's own where a role allows that", func(t *testing.T) {
		s.requires(t, "{role: finance}, {role: owners}")
		defer s.requires(t, "{role: finance}")
		agent := approval.Agent{Name: "alices", Owner: approvaltest.Alice}
		r, err := s.Service.Request(t.Context(), agent, approval.Proposal{Purpose: "x", Action: "payouts.note", Payload: []byte(`{}`)})
		if err != nil {
			t.Fatal(err)
		}
		alice.send(decideAt, alice.approveForm(r)).require(t, "as an owner", http.StatusOK, "1 more of finance is needed")
		if d := s.now(t, r).Decisions[0]; !d.Own || len(d.Roles) != 1 || d.Roles[0].Role != "owners" {
			t.Errorf("got %+v", d)
		}
		// Another role that somebody holds doesn't allow it.
		r = s.ask(t, "note")
		bob.sends(r, editAt, changed(bob.formOf(r, editAt, ""), "payload", `{}`)).requireOffers(t, "Reject", "Edit the arguments")
		bob.send(decideAt, changed(bob.rejectForm(r), "verdict", "approve")).require(t, "without that role", http.StatusForbidden, "somebody else must approve")
		if len(s.now(t, r).Decisions) != 0 {
			t.Error("it counts")
		}
	})
	t.Run("without a role that is asked for", func(t *testing.T) {
		r, approved, granted := s.ask(t, "note"), s.ask(t, "note"), s.askToRun(t, "note")
		s.Decide(t, approvaltest.Bob, approved, approval.Approve)
		s.Grant(t, approvaltest.Bob, granted, "15m")
		carol := s.signedIn(t, approvaltest.Carol)
		for _, one := range []*approval.Request{r, approved, granted} {
			got := carol.open(http.MethodGet, pageOf(one))
			got.require(t, "the page", http.StatusOK, "U0CAROL (audit)")
			got.requireOffers(t)
			if strings.Contains(got.text, `name="token"`) {
				t.Error("there is a form")
			}
			carol.open(http.MethodGet, editPageOf(one)).require(t, "to edit", http.StatusConflict, "can")
		}
	})
	t.Run("expired", func(t *testing.T) {
		r := s.ask(t, "note", func(p *approval.Proposal) { p.TTL = approval.MinTTL })
		form := alice.approveForm(r)
		s.Clock.Advance(approval.MinTTL)
		alice.send(decideAt, form).require(t, "too late", http.StatusConflict, "It expired", "before it was decided")
		if s.now(t, r).Status != approval.Expired {
			t.Error("it isn't")
		}
	})
	t.Run("while Slack can't say", func(t *testing.T) {
		r := s.ask(t, "note")
		form := changed(alice.rejectForm(r), "reason", "typed")
		before := s.stored(t, r)
		s.People.Fail(approval.ErrUnverified)
		got := alice.send(decideAt, form)
		s.People.Fail(nil)
		got.require(t, "then", http.StatusServiceUnavailable, "couldn&#39;t be asked")
		requireSame(t, before, s.stored(t, r))
		alice.sends(r, decideAt, form)
	})
}

// What destroys something takes a sign-in of the last 5 minutes, which leads back.
func TestReviewTakesAFreshSignIn(t *testing.T) {
	t.Parallel()
	s := formsSite(t)
	alice, r := s.signedIn(t, approvaltest.Alice), s.ask(t, "drop", func(p *approval.Proposal) { p.TTL = 0 })
	form := changed(alice.approveForm(r), "reason", "it is <due>")
	s.Clock.Advance(approval.FreshSignIn - approvaltest.Start.Sub(approvaltest.Start.Truncate(1e9)) - 1)
	alice.open(http.MethodGet, pageOf(r)).requireOffers(t, "Approve", "Reject", "Edit the arguments")
	s.Clock.Advance(1)
	got := alice.open(http.MethodGet, pageOf(r))
	got.requireOffers(t, "Sign in again to approve", "Reject", "Edit the arguments")
	refused := alice.send(decideAt, form)
	refused.require(t, "later", http.StatusForbidden, "takes a sign-in of the last 5 minutes")
	if s.now(t, r).Status != approval.Pending {
		t.Fatal("it is decided")
	}
	again := got.form("/sign-in", "")
	back, err := s.slack.Authorize("U0ALICE", alice.next(alice.send("/sign-in", again)))
	if err != nil {
		t.Fatal(err)
	}
	if got := alice.open(http.MethodGet, back); got.status != http.StatusSeeOther || got.location != pageOf(r) {
		t.Fatalf("%d to %q", got.status, got.location)
	}
	alice.send(decideAt, form).require(t, "the form of the session before", http.StatusForbidden, "from before you signed in", "it is &lt;due&gt;")
	alice.sends(r, decideAt, changed(alice.approveForm(r), "reason", "due"))
	s.Clock.Advance(approval.FreshSignIn)
	low := s.ask(t, "note")
	alice.sends(low, decideAt, alice.approveForm(low)) // takes none
	high := s.ask(t, "drop")
	alice.sends(high, decideAt, alice.rejectForm(high)) // nor does rejecting
}

func TestReviewTakesAPasskey(t *testing.T) {
	t.Parallel()
	s := formsSite(t)
	alice, r := s.signedIn(t, approvaltest.Alice), s.ask(t, "wipe")
	got := alice.open(http.MethodGet, pageOf(r))
	got.requireOffers(t, "Reject", "Edit the arguments")
	got.require(t, "the page", http.StatusOK, "takes a passkey, and you have none yet", `<a href="/passkeys">Add one</a>`)
	before := s.stored(t, r)
	for _, sent := range []string{"", "{}", "null", `{"nonce":"x"}`} {
		form := changed(alice.rejectForm(r), "verdict", "approve", "passkey", sent, "reason", "typed")
		if got := alice.send(decideAt, form); got.status != http.StatusForbidden || strings.Contains(got.text, "class=\"approve\"") {
			t.Errorf("with the passkey %q: %d\n%s", sent, got.status, got.body())
		}
	}
	requireSame(t, before, s.stored(t, r))
	alice.sends(r, decideAt, alice.rejectForm(r))
}

// What is written at most is shown, laid out and edited whole.
func TestReviewOfLargeArguments(t *testing.T) {
	t.Parallel()
	s := formsSite(t)
	alice, bob := s.signedIn(t, approvaltest.Alice), s.signedIn(t, approvaltest.Bob)
	var b strings.Builder
	b.WriteString(`{"last":"<the end>","values":[`)
	for i := 0; b.Len() < approval.DefaultPayloadLimit-20; i++ {
		fmt.Fprintf(&b, "%d,", i)
	}
	b.WriteString("0]}")
	many := b.String()
	one := `{"one":"` + strings.Repeat("é<", approval.DefaultPayloadLimit/3-5) + `"}`
	for name, payload := range map[string]string{"many values": many, "one value": one} {
		r := s.ask(t, "note", func(p *approval.Proposal) { p.Payload = []byte(payload) })
		got := alice.open(http.MethodGet, pageOf(r))
		got.require(t, name, http.StatusOK)
		if !strings.Contains(got.text, html.EscapeString(payload)) && !strings.Contains(got.text, strings.NewReplacer("<", "&lt;", ">", "&gt;", `"`, "&#34;").Replace(payload)) {
			t.Errorf("%s: the page doesn't have all", name)
		}
		if large := strings.Contains(got.text, "too many values for a tree"); large != (payload == many) {
			t.Errorf("%s: is there a tree? %t", name, !large)
		}
		form := alice.formOf(r, editAt, "")
		if form.Get("payload") != payload {
			t.Fatalf("%s: other arguments to edit", name)
		}
		edited := strings.Replace(payload, "<", "(", 1)
		got = alice.sends(r, editAt, changed(form, "payload", edited))
		if !strings.Contains(got.text, "Changed since version 1") {
			t.Errorf("%s: no changes", name)
		}
		if got := bob.send(decideAt, bob.approveForm(r)); got.status != http.StatusSeeOther {
			t.Errorf("%s: approved: %d", name, got.status)
		}
		if string(s.now(t, r).Payload) != edited {
			t.Errorf("%s: other arguments were approved", name)
		}
	}
}
