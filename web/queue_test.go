package web_test

import (
	"fmt"
	"html"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/approval/approvaltest"
)

// signedIn is a browser of somebody who is signed in.
func (s *site) signedIn(t *testing.T, who approval.Approver) *browser {
	t.Helper()
	b := s.browser(t)
	b.signIn(who.User)
	return b
}

// read opens a page that there must be.
func (b *browser) read(address string) string {
	b.t.Helper()
	got := b.open(http.MethodGet, address)
	if got.status != http.StatusOK {
		b.t.Fatalf("%s: %d\n%s", address, got.status, got.text)
	}
	return got.text
}

var listedLink = regexp.MustCompile(`<h3><a id="[^"]+" href="/review\?elicitationId=(req_[0-9a-f]{32})">`)

// listed are the requests that are listed in a part of a page.
func listed(text string) []approval.ID {
	var found []approval.ID
	for _, match := range listedLink.FindAllStringSubmatch(text, -1) {
		found = append(found, approval.ID(match[1]))
	}
	return found
}

// link is where the link with some words leads to; empty if there is none.
func link(text, words string) string {
	match := regexp.MustCompile(`<a href="([^"]+)">` + regexp.QuoteMeta(words) + `</a>`).FindStringSubmatch(text)
	if match == nil {
		return ""
	}
	return html.UnescapeString(match[1])
}

func ids(requests ...*approval.Request) []approval.ID {
	var all []approval.ID
	for _, r := range requests {
		all = append(all, r.ID)
	}
	return all
}

func requireListed(t *testing.T, what, text string, want ...*approval.Request) {
	t.Helper()
	if diff := cmp.Diff(ids(want...), listed(text)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func TestQueue(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	later := s.Propose(t, func(p *approval.Proposal) {
		p.TTL, p.Purpose, p.Action = 2*time.Hour, "<script>alert(1)</script>\u202e"+strings.Repeat("long ", 100), "a<b"
	})
	s.Clock.Advance(time.Millisecond)
	soon := s.Propose(t, func(p *approval.Proposal) { p.TTL = 10 * time.Minute })
	b := s.signedIn(t, approvaltest.Alice)
	waiting, own, ok := strings.Cut(b.read("/"), "<h2>What you decided lately</h2>")
	if !ok {
		t.Fatalf("the page has no decisions: %s", waiting)
	}
	for address, here := range map[string]string{"/": "Waiting", "/history": "History", "/insights": "Insights", "/passkeys": "Passkeys"} {
		if text := b.read(address); !strings.Contains(text, `<a href="`+address+`" aria-current="page">`+here) || strings.Count(strings.Split(text, "</nav>")[0], "aria-current=") != 1 {
			t.Errorf("%s doesn't say where it is:\n%s", address, text)
		}
	}
	requireListed(t, "waiting", waiting, soon, later)
	requireListed(t, "decided", own)
	for _, want := range []string{
		`&lt;script&gt;alert(1)&lt;/script&gt;\u{202e}long`, `long lo…</q>`, `a&lt;b`,
		`Needs 1 of finance.`, fmt.Sprintf(`<span data-until="%d">10 minutes</span> left`, soon.ExpiresAt.UnixMilli()),
	} {
		if !strings.Contains(waiting, want) {
			t.Errorf("the page doesn't have %s:\n%s", want, waiting)
		}
	}
	s.Decide(t, approvaltest.Alice, soon, approval.Approve)
	s.Clock.Advance(time.Second)
	s.Decide(t, approvaltest.Alice, later, approval.Reject)
	waiting, own, _ = strings.Cut(b.read("/"), "<h2>What you decided lately</h2>")
	requireListed(t, "waiting when all is decided", waiting)
	requireListed(t, "decided when all is", own, later, soon)
	if !strings.Contains(waiting, "Nothing waits for you.") || !strings.Contains(own, "<b>You rejected</b>") || !strings.Contains(own, "<b>You approved</b>") {
		t.Errorf("the page says otherwise:\n%s%s", waiting, own)
	}
	requireListed(t, "all that Alice decided", b.read(link(own, "All that you decided")), soon, later)
	if _, own, _ = strings.Cut(s.signedIn(t, approvaltest.Bob).read("/"), "<h2>What you decided lately</h2>"); len(listed(own)) != 0 {
		t.Errorf("Bob decided what Alice did:\n%s", own)
	}
}

func TestQueueGoesOn(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	var want []*approval.Request
	for range approval.PageSize + 5 {
		want = append(want, s.Propose(t))
		s.Clock.Advance(time.Millisecond)
	}
	b := s.signedIn(t, approvaltest.Alice)
	first := b.read("/")
	requireListed(t, "the first ones", first, want[:approval.PageSize]...)
	rest := b.read(link(first, "More of them"))
	requireListed(t, "the rest", rest, want[approval.PageSize:]...)
	if link(rest, "More of them") != "" || link(rest, "From the beginning") != "/" {
		t.Errorf("the rest leads on:\n%s", rest)
	}
	for _, after := range []string{"1", "x-" + string(want[0].ID), "1-req_1"} {
		if got := b.open(http.MethodGet, "/?after="+after); got.status != http.StatusSeeOther || got.location != "/" {
			t.Errorf("after %s: %d to %s", after, got.status, got.location)
		}
	}
}

// Whoever isn't signed in, or holds no role, sees the same page at every address.
func TestNobodyLooks(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.Propose(t)
	anonymous := s.browser(t).read(locator)
	b := s.signedIn(t, approvaltest.Alice)
	addresses := []string{"/", "/?after=1", "/history", "/history?status=open", "/history?decided_by=U0ALICE", "/insights", "/insights?days=x"}
	for _, address := range addresses {
		if got := s.browser(t).open(http.MethodGet, address); got.status != http.StatusOK || got.text != anonymous {
			t.Errorf("%s is another page for somebody: %d\n%s", address, got.status, got.text)
		}
	}
	s.People.Take("finance", approvaltest.Alice)
	s.Clock.Advance(approval.StandingFor)
	for _, address := range addresses {
		if got := b.open(http.MethodGet, address); got.text != anonymous {
			t.Errorf("%s is another page without a role: %d\n%s", address, got.status, got.text)
		}
	}
}

func TestHistory(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.Clock.Set(time.Date(2026, 3, 1, 23, 0, 0, 0, time.UTC))
	paid := s.Decide(t, approvaltest.Bob, s.Propose(t), approval.Approve)
	s.Clock.Set(time.Date(2026, 3, 2, 23, 59, 0, 0, time.UTC))
	refunded := s.Propose(t, func(p *approval.Proposal) {
		p.Purpose, p.Action, p.Environment = `Refund "100%" & <b>`, "payouts.refund", "staging"
		p.Payload = []byte(`{"iban": "DE89"}`)
	})
	b := s.signedIn(t, approvaltest.Alice)
	for query, want := range map[string][]*approval.Request{
		"":                               {refunded, paid},
		"?text=REFUND":                   {refunded},
		"?text=100%25%22+%26":            {refunded},
		"?text=DE89":                     {}, // payloads aren't searched
		"?status=pending":                {refunded},
		"?status=expired":                {paid}, // which it wasn't in time
		"?tier=4":                        {refunded, paid},
		"?tier=2":                        {},
		"?agent=deployer":                {refunded, paid},
		"?agent=other":                   {},
		"?action=payouts.create":         {paid},
		"?environment=+staging+":         {refunded},
		"?rule=default":                  {},
		"?decided_by=U0BOB":              {paid},
		"?decided_by=U0ALICE":            {},
		"?since=2026-03-02":              {refunded},
		"?until=2026-03-01":              {paid},
		"?until=2026-03-02":              {refunded, paid},
		"?since=2026-03-03":              {},
		"?status=pending&agent=deployer": {refunded},
		"?before=" + string(refunded.ID): {paid},
	} {
		if query == "?status=expired" {
			if _, err := s.Service.Status(t.Context(), s.Agent, paid.ID); err != nil {
				t.Fatal(err)
			}
		}
		requireListed(t, query, b.read("/history"+query), want...)
	}
	text := b.read("/history?text=Refund&status=pending")
	for _, want := range []string{`Refund &#34;100%&#34; &amp; &lt;b&gt;`, `<option value="pending" selected>`, `type="search" value="Refund"`} {
		if !strings.Contains(text, want) {
			t.Errorf("the page doesn't have %s:\n%s", want, text)
		}
	}
	if strings.Contains(text, "DE89") {
		t.Error("the history shows a payload")
	}
	if text = b.read("/history?text=a%E2%80%AEb"); !strings.Contains(text, `Text: <b>a\u{202e}b</b>`) {
		t.Errorf("a filter hides a character:\n%s", text)
	}
	for query, want := range map[string]string{
		"status=open":                       "Status is",
		"tier=6":                            "Tier is none of 1 to 5",
		"tier=x":                            "Tier is none of 1 to 5",
		"since=yesterday":                   "From is no day",
		"before=req_1":                      "Before is no id",
		"text=%ff":                          "Text is not valid",
		"text=" + strings.Repeat("a", 1001): "Text has 1001 characters",
	} {
		if got := b.open(http.MethodGet, "/history?"+query); got.status != http.StatusBadRequest || !strings.Contains(got.text, want) {
			t.Errorf("%s: %d without %q\n%s", query, got.status, want, got.text)
		}
	}
}

func TestHistoryGoesOn(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	var want []approval.ID
	for i := range approval.PageSize + 5 {
		r := s.Propose(t, func(p *approval.Proposal) { p.Environment = []string{"staging", "test"}[i%11/10] })
		if r.Environment == "staging" {
			want = append([]approval.ID{r.ID}, want...)
		}
		s.Clock.Advance(time.Millisecond)
	}
	for range approval.PageSize - len(want) + 3 {
		want = append([]approval.ID{s.Propose(t, func(p *approval.Proposal) { p.Environment = "staging" }).ID}, want...)
		s.Clock.Advance(time.Millisecond)
	}
	b := s.signedIn(t, approvaltest.Alice)
	first := b.read("/history?environment=staging&text=")
	older := link(first, "Older")
	if query, err := url.ParseQuery(strings.TrimPrefix(older, "/history?")); err != nil || query.Get("environment") != "staging" || query.Has("text") {
		t.Errorf("what is older is at %s", older)
	}
	rest := b.read(older)
	if diff := cmp.Diff(want, append(listed(first), listed(rest)...)); diff != "" {
		t.Errorf("both pages (-want +got):\n%s", diff)
	}
	if link(rest, "Older") != "" || link(rest, "Newest") != "/history?environment=staging" {
		t.Errorf("the rest leads on:\n%s", rest)
	}
}

func TestInsights(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	b := s.signedIn(t, approvaltest.Alice)
	empty := b.read("/insights")
	if !strings.Contains(empty, "No rule stands out.") || !strings.Contains(empty, "Nothing was asked.") {
		t.Errorf("without any request:\n%s", empty)
	}
	s.Clock.Set(time.Date(2026, 3, 2, 10, 0, 0, 0, time.UTC))
	for range 9 {
		r := s.Propose(t, func(p *approval.Proposal) { p.Action = "crm.<delete>" })
		s.Clock.Advance(2 * time.Second)
		s.Decide(t, approvaltest.Bob, r, approval.Reject)
	}
	s.Clock.Advance(24 * time.Hour)
	r := s.Propose(t, func(p *approval.Proposal) { p.Action = "crm.<delete>" })
	s.Clock.Advance(90 * time.Second)
	s.Decide(t, approvaltest.Bob, r, approval.Approve)
	b = s.signedIn(t, approvaltest.Alice)
	text := b.read("/insights?days=7")
	rule := r.Ruling.Rules[0].ID
	for _, want := range []string{
		`<dt>Asked</dt><dd>10</dd>`,
		`<dt>Rejected</dt><dd>9</dd>`,
		`<dt>Half decided within</dt><dd>2.0 s</dd>`,
		`<dt>Decided in under 3&nbsp;s</dt><dd>9 <small>(90 %)</small></dd>`,
		`<b>Could deny:</b> <a href="/history?rule=` + url.QueryEscape(rule) + `&amp;since=2026-02-25"><code>` + rule + `</code></a>. 9 of 10 were rejected.`,
		`<tr><th scope="row">2 Mar 2026</th><td>9</td><td>0</td><td>9</td><td>0</td><td>0</td></tr>`,
		`<tr><th scope="row">3 Mar 2026</th><td>1</td><td>1</td><td>0</td><td>0</td><td>0</td></tr>`,
		`<th scope="row">under 3 s</th><td>9 <small>(90 %)</small></td>`,
		`<th scope="row">1 to 5 min</th><td>1 <small>(10 %)</small></td>`,
		`<code>crm.&lt;delete&gt;</code></a><svg`, `<td>10</td><td>1</td><td>9</td><td>0</td><td>0</td><td>2.0 s</td>`,
		`<rect class="rejected" x="10.00" width="90.00" height="10"/>`,
		`<a href="/insights?days=7" aria-current="page">7 days</a>`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the page doesn't have %s:\n%s", want, text)
		}
	}
	if strings.Contains(text, "Could ask for less:") || strings.Contains(text, "style=") {
		t.Errorf("the page has what it shouldn't:\n%s", text)
	}
	requireListed(t, "the rule's requests since 3 March", b.read("/history?"+url.Values{"rule": {rule}, "since": {"2026-03-03"}}.Encode()), r)
	for _, days := range []string{"0", "x", "1000"} {
		if got := b.open(http.MethodGet, "/insights?days="+days); got.status != http.StatusSeeOther || got.location != "/insights" {
			t.Errorf("%s days: %d to %s", days, got.status, got.location)
		}
	}
}

// A page that is opened asks Slack once who reads it; one that follows what happens
// doesn't ask again each time.
func TestQueueAsksSlackOnce(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	b := s.signedIn(t, approvaltest.Alice)
	for _, look := range []struct {
		what    string
		headers []string
		passed  time.Duration
		asks    int
	}{
		{"opened just after signing in", nil, 0, 0},
		{"opened later", nil, approval.StandingFor, 1},
		{"opened again", nil, 0, 0},
		{"fetched by the page's script", []string{"Countersign-Unattended", "1"}, 0, 0},
		{"fetched later", []string{"Countersign-Unattended", "1"}, approval.StandingFor, 1},
	} {
		s.Clock.Advance(look.passed)
		before := s.People.Asked()
		if got := b.open(http.MethodGet, "/", look.headers...); got.status != http.StatusOK {
			t.Fatalf("%s: %d", look.what, got.status)
		}
		if asks := s.People.Asked() - before; asks != look.asks {
			t.Errorf("%s: %d look-ups, want %d", look.what, asks, look.asks)
		}
	}
	s.People.Take("finance", approvaltest.Alice)
	s.Clock.Advance(approval.StandingFor)
	if got := b.open(http.MethodGet, "/"); !strings.Contains(got.text, "Sign in to review") {
		t.Errorf("without a role:\n%s", got.text)
	}
	if got := b.open(http.MethodGet, "/", "Countersign-Unattended", "1"); !strings.Contains(got.text, "Sign in to review") {
		t.Errorf("without a session:\n%s", got.text)
	}
}
