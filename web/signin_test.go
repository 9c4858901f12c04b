package web_test

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/approval/approvaltest"
	"github.com/countersign/countersign/bot/slacksim"
	"github.com/countersign/countersign/web"
)

const locator = "/review?elicitationId=req_0123456789abcdef0123456789abcdef"

// site is the pages, with a simulated Slack to sign in with.
type site struct {
	*approvaltest.Fixture
	slack  *slacksim.Workspace
	issuer string // where Slack is
	url    string
}

// newSite makes a site whose Slack is behind what is given.
func newSite(t *testing.T, before ...func(http.Handler) http.Handler) *site {
	t.Helper()
	return siteWith(t, nil, before...)
}

// siteWith makes a site that people sign in to with other providers, too. They may
// have to know where it is.
func siteWith(t *testing.T, providers func(address string) []web.Provider, before ...func(http.Handler) http.Handler) *site {
	t.Helper()
	f := approvaltest.New(t)
	slack := slacksim.New(slacksim.Options{TeamID: approvaltest.Alice.Workspace, Now: f.Clock.Now})
	atSlack := slack.Handler()
	for _, one := range before {
		atSlack = one(atSlack)
	}
	issuer := httptest.NewServer(atSlack)
	t.Cleanup(issuer.Close)
	slack.SetURL(issuer.URL)
	for _, who := range []approval.Approver{approvaltest.Alice, approvaltest.Bob, approvaltest.Carol} {
		slack.SetUser(slacksim.User{ID: who.User, Name: who.User})
	}
	slack.SetUser(slacksim.User{ID: "U0EVE", Name: "eve", TeamID: "T0OTHER"})
	var handler http.Handler
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { handler.ServeHTTP(w, r) }))
	t.Cleanup(server.Close)
	// Browsers give no passkeys to an address without a name.
	address := strings.Replace(server.URL, "127.0.0.1", "localhost", 1)
	options := slack.Options()
	signIn := web.SignIn{ClientID: options.ClientID, ClientSecret: options.ClientSecret, Issuer: issuer.URL, Workspace: options.TeamID}
	if providers != nil {
		signIn.Providers = providers(address)
	}
	var err error
	if handler, err = web.Handler(f.Service, web.Options{
		URL: address, SlackURL: channel, Now: f.Clock.Now,
		SignIn: &signIn,
	}); err != nil {
		t.Fatal(err)
	}
	at, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	handler = web.Guard(handler, at, slog.New(slog.DiscardHandler))
	slack.SetRedirectURLs(address + web.CallbackPath)
	return &site{Fixture: f, slack: slack, issuer: issuer.URL, url: address}
}

// browser is a person's. It follows no redirects.
type browser struct {
	t    *testing.T
	site *site
	*http.Client
}

func (s *site) browser(t *testing.T) *browser {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	return &browser{t, s, &http.Client{Jar: jar, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
}

// page is what a browser got.
type page struct {
	status   int
	location string
	text     string
	header   http.Header
}

func (b *browser) open(method, address string, headers ...string) page {
	b.t.Helper()
	return b.do(method, address, nil, headers...)
}

// send sends a form.
func (b *browser) send(address string, form url.Values, headers ...string) page {
	b.t.Helper()
	return b.do(http.MethodPost, address, strings.NewReader(form.Encode()), append(headers, "Content-Type", "application/x-www-form-urlencoded")...)
}

func (b *browser) do(method, address string, body io.Reader, headers ...string) page {
	b.t.Helper()
	if strings.HasPrefix(address, "/") {
		address = b.site.url + address
	}
	request, err := http.NewRequestWithContext(b.t.Context(), method, address, body)
	if err != nil {
		b.t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	response, err := b.Do(request)
	if err != nil {
		b.t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return page{response.StatusCode, response.Header.Get("Location"), string(text), response.Header}
}

// begin presses the button and returns where Slack sends somebody back to.
func (b *browser) begin(user string) string {
	b.t.Helper()
	back, err := b.site.slack.Authorize(user, b.leave())
	if err != nil {
		b.t.Fatal(err)
	}
	return back
}

// with is what the button of a provider sends.
func with(provider string) url.Values { return url.Values{"with": {provider}} }

// leave presses Slack's button and returns where the browser goes on to.
func (b *browser) leave() string {
	b.t.Helper()
	return b.next(b.send(locator, with("Slack")))
}

// next is where the browser goes on to, to sign in.
func (b *browser) next(sent page) string {
	b.t.Helper()
	next, ok := strings.CutPrefix(sent.header.Get("Refresh"), "0; url=")
	if sent.status != http.StatusOK || !ok || !strings.Contains(sent.text, `<a href="`+strings.ReplaceAll(next, "&", "&amp;")+`"`) {
		b.t.Fatalf("%d to %q\n%s", sent.status, next, sent.text)
	}
	return next
}

// cookie is what the browser keeps under a name; empty if nothing.
func (b *browser) cookie(name string) string {
	b.t.Helper()
	address, err := url.Parse(b.site.url)
	if err != nil {
		b.t.Fatal(err)
	}
	for _, one := range b.Jar.Cookies(address) {
		if one.Name == name {
			return one.Value
		}
	}
	return ""
}

func (b *browser) signIn(user string) {
	b.t.Helper()
	if got := b.open(http.MethodGet, b.begin(user)); got.status != http.StatusSeeOther || got.location != locator {
		b.t.Fatalf("signed in: %d to %q: %s", got.status, got.location, got.text)
	}
}

// requireSignedIn checks who the page says is signed in; empty for nobody.
func (b *browser) requireSignedIn(user string) {
	b.t.Helper()
	got := b.open(http.MethodGet, locator)
	if is := strings.Contains(got.text, "<span>"+user+" ("); got.status != http.StatusOK && got.status != http.StatusNotFound || is != (user != "") || strings.Contains(got.text, "Sign in with Slack") == is {
		b.t.Errorf("want %q signed in: %d\n%s", user, got.status, got.text)
	}
}

func TestSignIn(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	b := s.browser(t)
	b.requireSignedIn("")
	anonymous := b.open(http.MethodGet, locator)
	for _, address := range []string{"/", "/review", "/review?elicitationId=%3Cscript%3E", "/review?elicitationId=" + string(s.Propose(t).ID)} {
		if got := b.open(http.MethodGet, address); got.status != http.StatusOK || got.text != anonymous.text {
			t.Errorf("%s is another page: %d\n%s", address, got.status, got.text)
		}
	}
	b.signIn("U0ALICE")
	b.requireSignedIn("U0ALICE")
	s.browser(t).requireSignedIn("") // another browser's person isn't

	before := b.cookie("countersign-session")
	b.signIn("U0ALICE")
	if after := b.cookie("countersign-session"); after == before || after == "" {
		t.Errorf("the session after signing in is the one of before: %q", after)
	}
	old := s.browser(t)
	if got := old.open(http.MethodGet, locator, "Cookie", "countersign-session="+before); strings.Contains(got.text, "Sign out") {
		t.Error("the session of before goes on")
	}
	if got := b.open(http.MethodPost, "/sign-out"); got.status != http.StatusSeeOther || got.location != "/" {
		t.Errorf("signing out: %d to %q", got.status, got.location)
	}
	b.requireSignedIn("")
}

// A sign-in works once, even with all that belongs to it.
func TestSignInIsUsedUp(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	b := s.browser(t)
	next := b.leave()
	kept := "countersign-sign-in=" + b.cookie("countersign-sign-in")
	for i, want := range []int{http.StatusSeeOther, http.StatusForbidden} {
		back, err := s.slack.Authorize("U0ALICE", next)
		if err != nil {
			t.Fatal(err)
		}
		if got := s.browser(t).open(http.MethodGet, back, "Cookie", kept); got.status != want {
			t.Errorf("time %d: %d", i+1, got.status)
		}
	}
}

// A session ends when it isn't used, after a day's work, and with the last role.
func TestSessionsEnd(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		happens func(*site, *browser)
		ends    bool
		looked  bool // it takes a look at who somebody is
	}{
		"used in time":       {func(s *site, _ *browser) { s.Clock.Advance(15*time.Minute - time.Millisecond) }, false, false},
		"not used":           {func(s *site, _ *browser) { s.Clock.Advance(15 * time.Minute) }, true, false},
		"used all day":       {func(s *site, b *browser) { s.use(b, 8*time.Hour-time.Minute) }, false, false},
		"used for too long":  {func(s *site, b *browser) { s.use(b, 8*time.Hour) }, true, false},
		"without a role":     {func(s *site, _ *browser) { s.People.Take("finance", approvaltest.Alice) }, true, true},
		"of what is a guest": {func(s *site, _ *browser) { s.People.Bar(approvaltest.Alice, "a guest") }, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			b := s.browser(t)
			b.signIn("U0ALICE")
			test.happens(s, b)
			if test.looked {
				b.requireSignedIn("U0ALICE") // a moment ago
				s.Clock.Advance(approval.StandingFor)
			}
			if !test.ends {
				b.requireSignedIn("U0ALICE")
				return
			}
			b.requireSignedIn("")
			s.People.Give("finance", approvaltest.Alice)
			s.People.Bar(approvaltest.Alice, "")
			b.requireSignedIn("") // it doesn't come back
		})
	}
}

// use has a browser open a page every ten minutes.
func (s *site) use(b *browser, all time.Duration) {
	for ; all > 10*time.Minute; all -= 10 * time.Minute {
		s.Clock.Advance(10 * time.Minute)
		b.requireSignedIn("U0ALICE")
	}
	s.Clock.Advance(all)
}

// Nobody is signed in who shouldn't be, and the page says what to do.
func TestSignInRefuses(t *testing.T) {
	t.Parallel()
	alter := func(back, name, value string) string {
		address, err := url.Parse(back)
		if err != nil {
			panic(err)
		}
		query := address.Query()
		query.Set(name, value)
		address.RawQuery = query.Encode()
		return address.String()
	}
	for name, test := range map[string]struct {
		user string
		come func(s *site, b *browser, back string) (*browser, string)
		says string
	}{
		"somebody without a role": {"U0CAROL", nil, "holds no role here"},
		"another workspace's":     {"U0EVE", nil, "This account can&#39;t decide here."},
		"a guest": {"U0BOB", func(s *site, b *browser, back string) (*browser, string) {
			s.People.Bar(approvaltest.Bob, "a guest")
			return b, back
		}, "This account can&#39;t decide here."},
		"another browser": {"U0ALICE", func(s *site, b *browser, back string) (*browser, string) {
			return s.browser(b.t), back
		}, "begun in another browser"},
		"another sign-in of another browser": {"U0ALICE", func(s *site, b *browser, back string) (*browser, string) {
			other := s.browser(b.t)
			other.begin("U0ALICE")
			return other, back
		}, "begun in another browser"},
		"a sign-in twice": {"U0CAROL", func(_ *site, b *browser, back string) (*browser, string) {
			b.open(http.MethodGet, back)
			return b, back
		}, "begun in another browser"},
		"another state": {"U0ALICE", func(_ *site, b *browser, back string) (*browser, string) {
			return b, alter(back, "state", "forged")
		}, "begun in another browser"},
		"another code": {"U0ALICE", func(_ *site, b *browser, back string) (*browser, string) {
			return b, alter(back, "code", "forged")
		}, "Signing in didn&#39;t work."},
		"the code of another sign-in": {"U0ALICE", func(s *site, b *browser, back string) (*browser, string) {
			address, err := url.Parse(s.browser(b.t).begin("U0ALICE"))
			if err != nil {
				b.t.Fatal(err)
			}
			return b, alter(back, "code", address.Query().Get("code"))
		}, "Signing in didn&#39;t work."},
		"no code": {"U0ALICE", func(_ *site, b *browser, back string) (*browser, string) {
			return b, alter(alter(back, "code", ""), "error", "access_denied")
		}, "Signing in didn&#39;t work."},
		"too late": {"U0ALICE", func(s *site, b *browser, back string) (*browser, string) {
			s.Clock.Advance(10 * time.Minute)
			return b, back
		}, "took too long"},
		"while Slack can't say who this is": {"U0ALICE", func(s *site, b *browser, back string) (*browser, string) {
			s.People.Fail(approval.ErrUnverified)
			return b, back
		}, "couldn&#39;t be asked about your account"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			b := s.browser(t)
			back := b.begin(test.user)
			if test.come != nil {
				b, back = test.come(s, b, back)
			}
			got := b.open(http.MethodGet, back)
			if got.status != http.StatusForbidden || !strings.Contains(got.text, test.says) || !strings.Contains(got.text, "Sign in with Slack") {
				t.Errorf("%d\n%s", got.status, got.text)
			}
			if b.cookie("countersign-session") != "" {
				t.Error("somebody is signed in")
			}
			s.People.Fail(nil)
			b.requireSignedIn("")
		})
	}
}

// What another site has a browser send changes nothing.
func TestSignOutFromElsewhere(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	b := s.browser(t)
	b.signIn("U0ALICE")
	for _, header := range [][2]string{{"Sec-Fetch-Site", "cross-site"}, {"Sec-Fetch-Site", "same-site"}, {"Origin", "https://evil.example"}, {"Origin", "null"}} {
		for _, address := range []string{"/sign-out", "/sign-in", locator} {
			if got := b.open(http.MethodPost, address, header[0], header[1]); got.status != http.StatusForbidden {
				t.Errorf("%s with %s: %d", address, header, got.status)
			}
		}
	}
	if got := b.open(http.MethodGet, "/sign-out"); got.status != http.StatusNotFound {
		t.Errorf("GET: %d", got.status)
	}
	b.requireSignedIn("U0ALICE")
}

// Over https, cookies are of this host alone; a form leads nowhere else.
func TestCookiesAndPolicy(t *testing.T) {
	t.Parallel()
	issuer := newSite(t).issuer
	handler, err := web.Handler(approvaltest.New(t).Service, web.Options{
		URL: "https://approvals.example.com", SlackURL: channel,
		SignIn: &web.SignIn{ClientID: "1.demo", Issuer: issuer, Workspace: "T0TEST"},
	})
	if err != nil {
		t.Fatal(err)
	}
	recorder := httptest.NewRecorder()
	request := httptest.NewRequest(http.MethodPost, "/review", strings.NewReader(with("Slack").Encode()))
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	handler.ServeHTTP(recorder, request)
	response := recorder.Result()
	cookies := response.Cookies()
	if len(cookies) != 1 {
		t.Fatalf("got %v", cookies)
	}
	one := cookies[0]
	if one.Name != "__Host-countersign-sign-in" || !one.Secure || !one.HttpOnly || one.SameSite != http.SameSiteLaxMode || one.Path != "/" || one.Domain != "" || len(one.Value) < 26 {
		t.Errorf("got %s", one)
	}
	address, err := url.Parse(strings.TrimPrefix(response.Header.Get("Refresh"), "0; url="))
	if err != nil || strings.Contains(address.RawQuery, one.Value) {
		t.Errorf("the cookie's secret is in the address %s (%v)", address, err)
	}
	for name, want := range map[string]string{"redirect_uri": "https://approvals.example.com" + web.CallbackPath, "team": "T0TEST", "scope": "openid"} {
		if got := address.Query().Get(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	response, _ = get(t, handler, http.MethodGet, "/review")
	if policy := response.Header.Get("Content-Security-Policy"); !strings.Contains(policy, "form-action 'self'; script-src 'self'; connect-src 'self'") || !strings.Contains(policy, "frame-ancestors 'none'") {
		t.Errorf("the policy is %q", policy)
	}
}

// A provider that can't be asked now can be later.
func TestProviderThatIsDown(t *testing.T) {
	t.Parallel()
	var down atomic.Bool
	s := newSite(t, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if down.Load() {
				panic(http.ErrAbortHandler)
			}
			next.ServeHTTP(w, r)
		})
	})
	b := s.browser(t)
	down.Store(true)
	got := b.send(locator, with("Slack"))
	if got.status != http.StatusBadGateway || !strings.Contains(got.text, "Please try again in a moment") {
		t.Errorf("%d\n%s", got.status, got.text)
	}
	down.Store(false)
	back := b.begin("U0ALICE")
	down.Store(true)
	if got := b.open(http.MethodGet, back); got.status != http.StatusForbidden || !strings.Contains(got.text, "Please try again in a moment") {
		t.Errorf("while the code is traded: %d\n%s", got.status, got.text)
	}
	down.Store(false)
	b.signIn("U0ALICE")
}
