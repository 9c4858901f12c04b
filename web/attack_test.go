package web_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/approval/approvaltest"
)

// sentForm is a form that would change something.
type sentForm struct {
	name, address string
	form          url.Values
	r             *approval.Request
}

// target has requests in which each form of a request's page is offered.
type target struct {
	*site
	requests [3]*approval.Request // that wait, granted something, and were lost
}

func (s *site) target(t *testing.T) target {
	t.Helper()
	granted, lost := s.askToRun(t, "note"), s.askToRun(t, "note")
	pending := s.ask(t, "note", func(p *approval.Proposal) { p.Payload = fmt.Appendf(nil, `{"after": %q}`, lost.ID) })
	s.Grant(t, approvaltest.Bob, granted, "15m")
	s.Decide(t, approvaltest.Bob, lost, approval.Approve)
	if _, err := s.Service.ClaimToRun(t.Context(), lost.ID, approvaltest.Pin); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Service.FinishRun(t.Context(), lost.ID, approval.Report{Outcome: approval.Unknown}); err != nil {
		t.Fatal(err)
	}
	return target{s, [3]*approval.Request{pending, granted, lost}}
}

// forms are all that somebody is offered there, filled in.
func (g target) forms(b *browser) []sentForm {
	b.t.Helper()
	pending, granted, lost := g.requests[0], g.requests[1], g.requests[2]
	return []sentForm{
		{"edit", editAt, changed(b.formOf(pending, editAt, ""), "payload", `{"edited": true}`), pending},
		{"end the grant", endGrantAt, b.formOf(granted, endGrantAt, ""), granted},
		{"revoke", revokeAt, b.formOf(granted, revokeAt, ""), granted},
		{"settle", settleAt, changed(b.formOf(lost, settleAt, ""), "ran", "yes"), lost},
		{"reject", decideAt, b.rejectForm(pending), pending},
		{"approve", decideAt, b.approveForm(pending), pending},
	}
}

func (g target) stored(t *testing.T) stored {
	t.Helper()
	return g.site.stored(t, g.requests[:]...)
}

// postRoutes are all addresses that take forms.
var postRoutes = []string{
	"/", "/review", decideAt, revokeAt, endGrantAt, settleAt, editAt, "/sign-in", "/sign-out",
	"/passkeys", "/passkeys/remove", "/passkeys/make", "/passkeys/sign",
}

// What is tried on each address is tried on new ones, too.
func TestAttacksKnowTheRoutes(t *testing.T) {
	t.Parallel()
	found := 0
	sources, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range sources {
		if name == "api.go" || strings.HasSuffix(name, "_test.go") {
			continue // scripts and jobs prove by a token who they are
		}
		source, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		found += len(regexp.MustCompile(`HandleFunc\("POST `).FindAll(source, -1))
		if others := regexp.MustCompile(`HandleFunc\("(PUT|PATCH|DELETE|/)`).FindAll(source, -1); others != nil {
			t.Errorf("%s takes more than GET and POST: %s", name, others)
		}
	}
	if want := len(postRoutes) - 1; found != want { // POST / takes /review
		t.Errorf("there are %d routes for forms, and %d are attacked", found, want)
	}
}

// Another site can't have somebody's browser do anything.
func TestFormsFromElsewhere(t *testing.T) {
	t.Parallel()
	g := formsSite(t).target(t)
	alice := g.signedIn(t, approvaltest.Alice)
	valid := g.forms(alice)
	before := g.stored(t)
	session := alice.cookie("countersign-session")
	for what, headers := range map[string][]string{
		"another site":               {"Sec-Fetch-Site", "cross-site"},
		"another site that claims":   {"Sec-Fetch-Site", "cross-site", "Origin", g.url},
		"a sibling":                  {"Sec-Fetch-Site", "same-site"},
		"a sibling that claims":      {"Sec-Fetch-Site", "same-site", "Origin", g.url},
		"rubbish":                    {"Sec-Fetch-Site", "SAME-ORIGIN"},
		"an older browser":           {"Origin", "https://evil.example"},
		"a sandboxed frame":          {"Origin", "null"},
		"another port":               {"Origin", "http://localhost:1"},
		"a name that begins like it": {"Origin", g.url + ".evil.example"},
		"a page on its IP address":   {"Origin", strings.Replace(g.url, "localhost", "127.0.0.1", 1)},
	} {
		for _, address := range postRoutes {
			if got := alice.send(address, with("Slack"), headers...); got.status != http.StatusForbidden || strings.Contains(got.text, "<html") || got.header.Get("Set-Cookie") != "" {
				t.Errorf("%s sends to %s: %d\n%s", what, address, got.status, got.text)
			}
		}
		for _, one := range valid {
			if got := alice.send(one.address, one.form, headers...); got.status != http.StatusForbidden || strings.Contains(got.text, "<html") {
				t.Errorf("%s sends the form to %s: %d\n%s", what, one.name, got.status, got.text)
			}
		}
	}
	requireSame(t, before, g.stored(t))
	if alice.cookie("countersign-session") != session {
		t.Error("the session is another one")
	}
	// All that was missing is that it comes from here.
	for _, one := range []sentForm{valid[1], valid[2], valid[3], valid[5]} {
		if got := alice.send(one.address, one.form, "Sec-Fetch-Site", "same-origin", "Origin", g.url); got.status != http.StatusSeeOther {
			t.Errorf("%s from here: %d\n%s", one.name, got.status, got.body())
		}
	}
}

// A form works as it was given, where it was given, and for that alone.
func TestForgedForms(t *testing.T) {
	t.Parallel()
	s := formsSite(t)
	g, twin := s.target(t), s.target(t)
	alice, bob := s.signedIn(t, approvaltest.Alice), s.signedIn(t, approvaltest.Bob)
	valid, bobs, twins := g.forms(alice), g.forms(bob), twin.forms(alice)
	before, twinBefore := g.stored(t), twin.stored(t)
	refused := func(what string, got page) {
		t.Helper()
		if got.status < 400 || got.status >= 500 {
			t.Errorf("%s: %d to %q\n%s", what, got.status, got.location, got.body())
		}
	}
	forbidden := func(what string, got page) {
		t.Helper()
		if got.status != http.StatusForbidden {
			t.Errorf("%s: %d to %q\n%s", what, got.status, got.location, got.body())
		}
	}
	for i, one := range valid {
		token := one.form.Get("token")
		forbidden(one.name+" with another session's token", alice.send(one.address, changed(one.form, "token", bobs[i].form.Get("token"))))
		forbidden(one.name+" in another session", bob.send(one.address, one.form))
		forbidden(one.name+" of another request", alice.send(one.address, changed(twins[i].form, "token", token)))
		forbidden(one.name+" under another id", alice.send(one.address, changed(one.form, "elicitationId", string(twins[i].r.ID))))
		forbidden(one.name+" of another digest", alice.send(one.address, changed(one.form, "digest", twins[i].form.Get("digest"))))
		for _, version := range []string{"0", "2", "-1", "x", "", "1.0", "99999999999999999999"} {
			forbidden(one.name+" of version "+version, alice.send(one.address, changed(one.form, "version", version)))
		}
		for _, wrong := range []string{"", "0", token[:len(token)-1], token + "0", strings.ToUpper(token), token + "\n", strings.Repeat("0", len(token))} {
			forbidden(one.name+" with the token "+wrong, alice.send(one.address, changed(one.form, "token", wrong)))
		}
		for _, wrong := range []string{"", "0", strings.Repeat("g", 64), one.form.Get("digest")[:62]} {
			forbidden(one.name+" with the digest "+wrong, alice.send(one.address, changed(one.form, "digest", wrong)))
		}
		for _, id := range []string{"", "req_", "req_0123456789abcdef0123456789abcdef", string(one.r.ID) + " ", strings.ToUpper(string(one.r.ID)), "../" + string(one.r.ID)} {
			refused(one.name+" with the id "+id, alice.send(one.address, changed(one.form, "elicitationId", id)))
		}
		for name := range one.form {
			twice := changed(one.form)
			twice.Add(name, one.form.Get(name))
			forbidden(one.name+" with two of "+name, alice.send(one.address, twice))
			other := changed(one.form)
			other[name] = append(other[name], "approve")
			forbidden(one.name+" with another "+name, alice.send(one.address, other))
			if name == "scope" || name == "reason" || name == "passkey" {
				continue // which may be left out
			}
			missing := changed(one.form)
			missing.Del(name)
			refused(one.name+" without "+name, alice.send(one.address, missing))
		}
		for _, other := range valid {
			if other.address != one.address {
				forbidden(one.name+" as "+other.name, alice.send(other.address, changed(one.form, "verdict", "approve", "ran", "yes", "payload", "{}")))
				forbidden(one.name+" with the token to "+other.name, alice.send(one.address, changed(one.form, "token", other.form.Get("token"))))
			}
		}
		query := "?" + one.form.Encode()
		refused(one.name+" in the address", alice.send(one.address+query, nil))
		forbidden(one.name+" with the token in the address", alice.send(one.address+query, changed(one.form, "token", "")))
		for _, kind := range []string{"text/plain", "application/json", ""} {
			refused(one.name+" as "+kind, alice.do(http.MethodPost, one.address, strings.NewReader(one.form.Encode()), "Content-Type", kind))
		}
		for _, method := range []string{http.MethodPut, http.MethodPatch, http.MethodDelete, "APPROVE"} {
			refused(one.name+" by "+method, alice.do(method, one.address, strings.NewReader(one.form.Encode()), "Content-Type", "application/x-www-form-urlencoded"))
		}
		kind, parts := inParts(t, one.form)
		got := alice.do(http.MethodPost, one.address+"?elicitationId="+string(twins[i].r.ID), parts, "Content-Type", kind)
		refused(one.name+" in parts", got)
		if strings.Contains(got.text, string(twins[i].r.ID)) {
			t.Errorf("%s in parts shows another request:\n%s", one.name, got.body())
		}
		got = alice.open(http.MethodPost, one.address, "Cookie", "countersign-session="+bob.cookie("countersign-session"))
		if !strings.Contains(got.text, "Sign in to review") {
			t.Errorf("%s with two sessions: %d\n%s", one.name, got.status, got.body())
		}
		requireSame(t, before, g.stored(t))
		requireSame(t, twinBefore, twin.stored(t))
	}
	for what, form := range map[string]url.Values{
		"no verdict":    changed(valid[5].form, "verdict", ""),
		"a capital one": changed(valid[5].form, "verdict", "Approve"),
		"another one":   changed(valid[5].form, "verdict", "revoke"),
		"a day":         changed(valid[5].form, "scope", "24h"),
		"forever":       changed(valid[5].form, "scope", "*"),
		"bytes":         changed(valid[5].form, "reason", "\xff", "verdict", "reject"),
	} {
		got := alice.send(decideAt, form)
		got.require(t, what, http.StatusBadRequest, "Nothing was decided")
	}
	requireSame(t, before, g.stored(t))
}

// inParts is a form as multipart/form-data.
func inParts(t *testing.T, form url.Values) (kind string, body io.Reader) {
	t.Helper()
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	for name := range form {
		if err := w.WriteField(name, form.Get(name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return w.FormDataContentType(), &b
}

// What somebody was given is worth nothing when they aren't there any more.
func TestFormsEndWithTheSession(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		happens func(*testing.T, target, *browser)
		status  int // of what is sent then
		goesOn  bool
		says    string
	}{
		"signed out": {func(_ *testing.T, _ target, b *browser) { b.open(http.MethodPost, "/sign-out") }, http.StatusOK, false, ""},
		"signed out elsewhere, with the cookie kept": {func(t *testing.T, g target, b *browser) {
			other := g.browser(t)
			other.open(http.MethodPost, "/sign-out", "Cookie", "countersign-session="+b.cookie("countersign-session"))
		}, http.StatusOK, false, ""},
		"signed in anew":             {func(_ *testing.T, _ target, b *browser) { b.prove("U0BOB") }, http.StatusForbidden, true, "from before you signed in"},
		"signed in as somebody else": {func(_ *testing.T, _ target, b *browser) { b.signIn("U0ALICE") }, http.StatusForbidden, true, "from before you signed in"},
		"away for too long":          {func(_ *testing.T, g target, _ *browser) { g.Clock.Advance(15 * time.Minute) }, http.StatusOK, false, ""},
		"without any role":           {func(_ *testing.T, g target, _ *browser) { g.People.Take("finance", approvaltest.Bob) }, http.StatusOK, false, ""},
		"a guest now":                {func(_ *testing.T, g target, _ *browser) { g.People.Bar(approvaltest.Bob, "a guest") }, http.StatusOK, false, ""},
		"with another role": {func(_ *testing.T, g target, _ *browser) {
			g.People.Take("finance", approvaltest.Bob)
			g.People.Give("audit", approvaltest.Bob)
		}, http.StatusForbidden, true, "You are not in it"},
		"while Slack is down": {func(_ *testing.T, g target, _ *browser) { g.People.Fail(approval.ErrUnverified) }, http.StatusServiceUnavailable, false, "be asked about your account"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := formsSite(t).target(t)
			bob := g.signedIn(t, approvaltest.Bob)
			valid := g.forms(bob)
			test.happens(t, g, bob)
			before := g.stored(t)
			for i, one := range valid {
				var headers []string
				if i%2 == 0 {
					headers = []string{"Countersign-Unattended", "1"} // which is for reading
				}
				got := bob.send(one.address, one.form, headers...)
				if got.status != test.status || !strings.Contains(got.text, test.says) || strings.Contains(got.text, "Sign in to review") == test.goesOn {
					t.Errorf("%s: %d\n%s", one.name, got.status, got.body())
				}
				if !test.goesOn && strings.Contains(got.text, one.r.Action) {
					t.Errorf("%s shows the request:\n%s", one.name, got.body())
				}
			}
			requireSame(t, before, g.stored(t))
		})
	}
}

// What was decided stays decided, whatever is sent again.
func TestFormsSentAgain(t *testing.T) {
	t.Parallel()
	g := formsSite(t).target(t)
	alice, bob := g.signedIn(t, approvaltest.Alice), g.signedIn(t, approvaltest.Bob)
	valid, bobs := g.forms(alice), g.forms(bob)
	for _, one := range []sentForm{valid[1], valid[2], valid[3], valid[4]} {
		alice.sends(one.r, one.address, one.form)
	}
	before := g.stored(t)
	for range 2 {
		for _, one := range slices.Concat(valid, bobs) {
			b := alice
			if slices.ContainsFunc(bobs, func(f sentForm) bool { return f.form.Get("token") == one.form.Get("token") }) {
				b = bob
			}
			if got := b.send(one.address, one.form); got.status != http.StatusConflict || !strings.Contains(got.text, "Nothing changed.") && !strings.Contains(got.text, "recorded already") {
				t.Errorf("%s again: %d\n%s", one.name, got.status, got.body())
			}
		}
	}
	requireSame(t, before, g.stored(t))
}

// Whoever isn't signed in can't tell which requests there are.
func TestNobodyLearnsWhatThereIs(t *testing.T) {
	t.Parallel()
	g := formsSite(t).target(t)
	known, unknown := string(g.requests[0].ID), "req_0123456789abcdef0123456789abcdef"
	carol := g.signedIn(t, approvaltest.Carol)
	g.People.Take("audit", approvaltest.Carol)
	g.Clock.Advance(approval.StandingFor)
	for _, b := range []*browser{g.browser(t), carol} {
		plain := b.open(http.MethodGet, "/")
		for _, address := range []string{"/review", "/review/edit"} {
			for _, id := range []string{known, unknown, "", "x", "<x>", strings.Repeat("x", 1000)} {
				for _, method := range []string{http.MethodGet, http.MethodHead} {
					got := b.open(method, address+"?elicitationId="+url.QueryEscape(id))
					if got.status != http.StatusOK || method == http.MethodGet && got.text != plain.text {
						t.Errorf("%s %s of %.50s: %d\n%s", method, address, id, got.status, got.body())
					}
				}
			}
		}
		for _, address := range []string{decideAt, editAt, revokeAt, endGrantAt, settleAt} {
			there := b.send(address, url.Values{"elicitationId": {known}})
			nowhere := b.send(address, url.Values{"elicitationId": {unknown}})
			wrong := b.send(address, url.Values{"elicitationId": {"x"}})
			if there.status != http.StatusOK || there.text != strings.ReplaceAll(nowhere.text, unknown, known) || there.status != nowhere.status || wrong.text != b.send(address, url.Values{"elicitationId": {"y"}}).text {
				t.Errorf("%s tells them apart: %d and %d", address, there.status, nowhere.status)
			}
		}
		for _, address := range []string{"/live", "/live?elicitationId=" + known, "/live?elicitationId=" + unknown} {
			if got := b.open(http.MethodGet, address); got.status != http.StatusForbidden || got.text != "Sign in first.\n" {
				t.Errorf("%s: %d %s", address, got.status, got.text)
			}
		}
		for _, id := range []string{known, unknown} {
			if got := b.send("/passkeys/sign", url.Values{"elicitationId": {id}}); got.status != http.StatusForbidden || !strings.Contains(got.text, "aren't signed in") {
				t.Errorf("/passkeys/sign: %d %s", got.status, got.text)
			}
		}
	}
}

// Opening a page, as previews of links do, does nothing.
func TestGetChangesNothing(t *testing.T) {
	t.Parallel()
	g := formsSite(t).target(t)
	alice := g.signedIn(t, approvaltest.Alice)
	valid := g.forms(alice)
	before := g.stored(t)
	for _, b := range []*browser{alice, g.browser(t)} {
		for _, one := range valid {
			for range 8 {
				for _, address := range []string{pageOf(one.r), one.address + "?" + one.form.Encode(), pageOf(one.r) + "&" + one.form.Encode()} {
					for _, method := range []string{http.MethodGet, http.MethodHead} {
						if got := b.open(method, address, "User-Agent", "Slackbot-LinkExpanding 1.0"); got.status >= 500 {
							t.Errorf("%s %s: %d", method, address, got.status)
						}
					}
				}
			}
		}
		// Nor does a GET that has a form in it.
		for _, one := range valid {
			b.do(http.MethodGet, one.address, strings.NewReader(one.form.Encode()), "Content-Type", "application/x-www-form-urlencoded")
			kind, parts := inParts(t, one.form)
			b.do(http.MethodGet, one.address, parts, "Content-Type", kind)
		}
		for _, address := range postRoutes {
			b.open(http.MethodGet, address)
		}
	}
	requireSame(t, before, g.stored(t))
	alice.requireSignedIn("U0ALICE")
}

// Nothing can be framed, sniffed, shared with other sites or kept, whatever comes
// of it.
func TestHeadersOfEveryAnswer(t *testing.T) {
	t.Parallel()
	g := formsSite(t).target(t)
	alice := g.signedIn(t, approvaltest.Alice)
	check := func(what string, status int, got *http.Response) {
		t.Helper()
		if got.StatusCode != status {
			t.Errorf("%s: %d, want %d", what, got.StatusCode, status)
		}
		for name, want := range map[string]string{
			"X-Frame-Options": "DENY", "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer",
			"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin",
			"Access-Control-Allow-Origin": "", "Access-Control-Allow-Credentials": "",
		} {
			if value := got.Header.Get(name); value != want {
				t.Errorf("%s: %s is %q, want %q", what, name, value, want)
			}
		}
		policy := got.Header.Values("Content-Security-Policy")
		if len(policy) != 1 || !strings.HasPrefix(policy[0], "default-src 'none'; ") || !strings.Contains(policy[0], "frame-ancestors 'none'") || strings.Contains(policy[0], "unsafe") || strings.Contains(policy[0], "*") {
			t.Errorf("%s: the policy is %q", what, policy)
		}
		if kind := got.Header.Get("Content-Type"); strings.HasPrefix(kind, "text/html") && got.Header.Get("Cache-Control") != "no-store" && got.StatusCode/100 != 3 {
			t.Errorf("%s may be kept", what)
		}
		if to := got.Header.Get("Location"); to != "" && (!strings.HasPrefix(to, "/") || strings.HasPrefix(to, "//") || strings.HasPrefix(to, `/\`)) {
			t.Errorf("%s leads to %s", what, to)
		}
		for _, one := range got.Cookies() {
			if !one.HttpOnly || one.SameSite != http.SameSiteLaxMode {
				t.Errorf("%s sets the cookie %s", what, one)
			}
		}
	}
	for _, one := range []struct {
		method, address string
		status          int
		headers         []string
	}{
		{"GET", "/", 200, nil}, {"GET", "/review", 303, nil}, {"GET", pageOf(g.requests[0]), 200, nil}, {"GET", locator, 404, nil},
		{"GET", editPageOf(g.requests[0]), 200, nil}, {"GET", editPageOf(g.requests[1]), 409, nil}, {"GET", "/history", 200, nil},
		{"GET", "/history?since=x", 400, nil}, {"GET", "/insights", 200, nil}, {"GET", "/insights?days=x", 303, nil}, {"GET", "/passkeys", 200, nil},
		{"GET", "/nowhere", 404, nil}, {"GET", "/script/live.js", 200, nil}, {"GET", "/script/style.css", 404, nil}, {"GET", "/script/..%2fpages.go", 404, nil},
		{"GET", "/script/nothing.js", 404, nil}, {"GET", "/sign-in/callback", 403, nil}, {"GET", "//evil.example/", 307, nil},
		{"POST", decideAt, 404, nil}, {"POST", decideAt, 403, []string{"Sec-Fetch-Site", "cross-site"}}, {"POST", "/", 400, nil}, {"POST", "/passkeys", 403, nil},
		{"POST", "/passkeys/make", 403, nil}, {"POST", "/sign-in", 200, nil}, {"DELETE", "/review", 405, nil}, {"OPTIONS", decideAt, 405, nil},
		{"GET", "/live", 200, nil}, {"GET", "/", 421, []string{"Host", "evil.example"}}, {"POST", "/sign-out", 303, nil}, {"GET", "/live", 403, nil},
	} {
		func() {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			request, err := http.NewRequestWithContext(ctx, one.method, g.url+one.address, nil)
			if err != nil {
				t.Fatal(err)
			}
			if one.headers != nil {
				request.Header.Set(one.headers[0], one.headers[1])
				request.Host = request.Header.Get("Host")
			}
			response, err := alice.Do(request)
			if err != nil {
				t.Fatal(err)
			}
			defer response.Body.Close()
			check(one.method+" "+one.address, one.status, response)
		}()
	}
}

// Nobody can send more than a page takes.
func TestFormsThatAreTooLarge(t *testing.T) {
	t.Parallel()
	g := formsSite(t).target(t)
	alice := g.signedIn(t, approvaltest.Alice)
	valid := g.forms(alice)
	before := g.stored(t)
	const most = 4*approval.DefaultPayloadLimit + 64<<10
	large := func(form url.Values) string { return "a=" + strings.Repeat("x", most) + "&" + form.Encode() }
	for _, one := range valid {
		got := alice.do(http.MethodPost, one.address, strings.NewReader(large(one.form)), "Content-Type", "application/x-www-form-urlencoded")
		got.require(t, one.name, http.StatusRequestEntityTooLarge, "Nothing was done", "more than can be sent")
		if one.address == editAt {
			continue // which takes that much
		}
		form := changed(one.form, "a", strings.Repeat("x", 64<<10))
		if got := alice.send(one.address, form); got.status != http.StatusRequestEntityTooLarge {
			t.Errorf("%s with 64 KiB: %d", one.name, got.status)
		}
		kind, parts := inParts(t, changed(one.form, "a", strings.Repeat("x", most)))
		if got := alice.do(http.MethodPost, one.address, parts, "Content-Type", kind); got.status < 400 {
			t.Errorf("%s in parts: %d\n%s", one.name, got.status, got.body())
		}
	}
	requireSame(t, before, g.stored(t))

	// The least that somebody can do who isn't signed in is to send something.
	nobody := g.browser(t)
	for _, address := range postRoutes {
		got := nobody.do(http.MethodPost, address, strings.NewReader(large(with("Slack"))), "Content-Type", "application/x-www-form-urlencoded")
		if got.status != http.StatusOK && got.status != http.StatusSeeOther && (got.status < 400 || got.status >= 500) || got.header.Get("Refresh") != "" {
			t.Errorf("POST %s reads all: %d to %s", address, got.status, got.header.Get("Refresh"))
		}
	}
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		var b bytes.Buffer
		w := multipart.NewWriter(&b)
		for _, field := range [][2]string{{"a", strings.Repeat("x", most)}, {"with", "Slack"}} {
			if err := w.WriteField(field[0], field[1]); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if got := nobody.do(method, "/review", &b, "Content-Type", w.FormDataContentType()); got.header.Get("Refresh") != "" {
			t.Errorf("%s reads all parts: %d", method, got.status)
		}
	}
}

// stream is what a page's script listens to.
type stream struct {
	t     *testing.T
	lines *bufio.Scanner
}

func (b *browser) listen(address string) stream {
	b.t.Helper()
	request, err := http.NewRequestWithContext(b.t.Context(), http.MethodGet, b.site.url+address, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	response, err := b.Do(request)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { response.Body.Close() })
	if kind := response.Header.Get("Content-Type"); response.StatusCode != http.StatusOK || kind != "text/event-stream" {
		b.t.Fatalf("%s: %d, %s", address, response.StatusCode, kind)
	}
	s := stream{b.t, bufio.NewScanner(response.Body)}
	s.require(": listening", "")
	return s
}

func (s stream) require(lines ...string) {
	s.t.Helper()
	for _, want := range lines {
		if !s.lines.Scan() || s.lines.Text() != want {
			s.t.Fatalf("the stream says %q, want %q (%v)", s.lines.Text(), want, s.lines.Err())
		}
	}
}

func TestLive(t *testing.T) {
	t.Parallel()
	s := formsSite(t)
	alice := s.signedIn(t, approvaltest.Alice)
	r, other := s.ask(t, "note"), s.ask(t, "note")
	one, all := alice.listen("/live?elicitationId="+string(r.ID)), alice.listen("/live")
	s.Decide(t, approvaltest.Bob, other, approval.Reject)
	all.require("event: changed", "data:", "")
	if _, err := s.Service.Edit(t.Context(), approvaltest.Bob, r.ID, 1, []byte(`{}`), approval.Slack); err != nil {
		t.Fatal(err)
	}
	one.require("event: changed", "data:", "")
	all.require("event: changed", "data:", "")

	// What a page fetches by itself keeps nobody signed in.
	s.Clock.Advance(14 * time.Minute)
	for _, address := range []string{"/", pageOf(r), "/history", "/insights", "/passkeys"} {
		if got := alice.open(http.MethodGet, address, "Countersign-Unattended", "1"); !strings.Contains(got.text, "Sign out") {
			t.Errorf("%s: %d\n%s", address, got.status, got.body())
		}
	}
	alice.listen("/live")
	s.Clock.Advance(time.Minute)
	alice.requireSignedIn("")
	// Somebody who isn't signed in any more is told once, for the page to say so.
	// Whoever followed one request wasn't told of another before.
	s.Decide(t, approvaltest.Bob, s.now(t, r), approval.Reject)
	for _, listening := range []stream{one, all} {
		listening.require("event: changed", "data:", "")
		if listening.lines.Scan() {
			t.Errorf("the stream goes on after the session: %q", listening.lines.Text())
		}
	}
}

// Signing out ends what somebody with the same cookie listens to.
func TestLiveEndsWithSigningOut(t *testing.T) {
	t.Parallel()
	s := formsSite(t)
	alice := s.signedIn(t, approvaltest.Alice)
	listening := alice.listen("/live")
	alice.open(http.MethodPost, "/sign-out")
	s.ask(t, "note")
	listening.require("event: changed", "data:", "")
	if listening.lines.Scan() {
		t.Errorf("the stream goes on: %q", listening.lines.Text())
	}
}
