package web_test

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/google/go-cmp/cmp"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/approval/approvaltest"
	"github.com/countersign/countersign/web"
)

const (
	issuerClient = "countersign-client"
	issuerSecret = "a secret & more"
	adaSubject   = "00u-ada|108234567890123456789"
)

// issuerKeys are made once: they take a while.
var issuerKeys = sync.OnceValues(func() (right, other *rsa.PrivateKey) {
	make := func() *rsa.PrivateKey {
		key, err := rsa.GenerateKey(rand.Reader, 2048)
		if err != nil {
			panic(err)
		}
		return key
	}
	return make(), make()
})

// issuer is an OpenID provider that can be told to misbehave. It does what the
// standard says unless a test changes it before anybody signs in.
type issuer struct {
	t        *testing.T
	site     *site
	url      string
	metadata map[string]any                     // on top of what it says by itself
	claims   map[string]any                     // in place of the right ones; nil takes one out
	sign     func(claims map[string]any) string // nil is with its key
	subject  string
	provedAt time.Time  // zero for now
	answers  url.Values // on top of how the browser comes back; empty takes one out

	mu     sync.Mutex
	codes  map[string]url.Values // with what the browser came
	trades []url.Values          // of codes, as they arrived
	basic  [][2]string           // the client and secret of each trade
}

// newIssuer makes a site that people can also sign in to with an issuer, which
// knows one who is Alice.
func newIssuer(t *testing.T, change func(*issuer)) *issuer {
	t.Helper()
	i := &issuer{t: t, subject: adaSubject, codes: make(map[string]url.Values), metadata: map[string]any{}, claims: map[string]any{}, answers: url.Values{}}
	server := httptest.NewServer(http.HandlerFunc(i.serve))
	t.Cleanup(server.Close)
	i.url = server.URL
	providers := []web.Provider{{
		Name: "Example-ID", Issuer: i.url, ClientID: issuerClient, ClientSecret: issuerSecret,
		People: map[string]string{adaSubject: approvaltest.Alice.User, "carol": approvaltest.Carol.User},
	}, {
		Name: "Other-ID", Issuer: i.url + "/other", ClientID: issuerClient, ClientSecret: issuerSecret,
		People: map[string]string{adaSubject: approvaltest.Bob.User},
	}}
	i.site = siteWith(t, func(string) []web.Provider { return providers })
	if change != nil {
		change(i)
	}
	return i
}

func (i *issuer) serve(w http.ResponseWriter, r *http.Request) {
	say := func(status int, what any) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(what)
	}
	at, address := i.url, r.URL.Path
	if rest, other := strings.CutPrefix(address, "/other"); other {
		at, address = i.url+"/other", rest
	}
	switch address {
	case "/.well-known/openid-configuration":
		metadata := map[string]any{
			"issuer": at, "authorization_endpoint": at + "/authorize", "token_endpoint": at + "/token", "jwks_uri": at + "/keys",
			"response_types_supported": []string{"code"}, "subject_types_supported": []string{"public"},
			"id_token_signing_alg_values_supported":          []string{"RS256", "HS256", "none"},
			"code_challenge_methods_supported":               []string{"plain", "S256"},
			"authorization_response_iss_parameter_supported": true,
		}
		maps.Copy(metadata, i.metadata)
		say(http.StatusOK, metadata)
	case "/keys":
		right, _ := issuerKeys()
		say(http.StatusOK, jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: right.Public(), KeyID: "1", Algorithm: "RS256", Use: "sig"}}})
	case "/token":
		_ = r.ParseForm()
		client, secret, _ := r.BasicAuth()
		i.mu.Lock()
		defer i.mu.Unlock()
		i.trades, i.basic = append(i.trades, r.PostForm), append(i.basic, [2]string{client, secret})
		came, known := i.codes[r.PostForm.Get("code")]
		delete(i.codes, r.PostForm.Get("code"))
		verifier := sha256.Sum256([]byte(r.PostForm.Get("code_verifier")))
		challenge := came.Get("code_challenge")
		if !known || r.PostForm.Get("redirect_uri") != came.Get("redirect_uri") ||
			challenge != "" && base64.RawURLEncoding.EncodeToString(verifier[:]) != challenge {
			say(http.StatusBadRequest, map[string]string{"error": "invalid_grant"})
			return
		}
		say(http.StatusOK, map[string]string{"access_token": "a", "token_type": "Bearer", "id_token": i.identity(at, came)})
	default:
		http.NotFound(w, r)
	}
}

func (i *issuer) identity(at string, came url.Values) string {
	now := i.site.Clock.Now()
	provedAt := now
	if !i.provedAt.IsZero() {
		provedAt = i.provedAt
	}
	claims := map[string]any{
		"iss": at, "sub": i.subject, "aud": issuerClient, "nonce": came.Get("nonce"),
		"iat": now.Unix(), "exp": now.Add(5 * time.Minute).Unix(), "auth_time": provedAt.Unix(),
	}
	for name, value := range i.claims {
		claims[name] = value
		if value == nil {
			delete(claims, name)
		}
	}
	if i.sign != nil {
		return i.sign(claims)
	}
	right, _ := issuerKeys()
	return signed(i.t, jose.RS256, right, claims)
}

func signed(t *testing.T, algorithm jose.SignatureAlgorithm, key any, claims map[string]any) string {
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: algorithm, Key: jose.JSONWebKey{Key: key, KeyID: "1"}}, nil)
	if err != nil {
		t.Error(err)
		return ""
	}
	text, err := jwt.Signed(signer).Claims(claims).Serialize()
	if err != nil {
		t.Error(err)
	}
	return text
}

// authorize signs its person in and returns where it sends the browser back to.
func (i *issuer) authorize(address string) string {
	i.t.Helper()
	sent, err := url.Parse(address)
	if err != nil {
		i.t.Fatal(err)
	}
	back, err := url.Parse(sent.Query().Get("redirect_uri"))
	if err != nil {
		i.t.Fatal(err)
	}
	code := rand.Text()
	i.mu.Lock()
	i.codes[code] = sent.Query()
	i.mu.Unlock()
	answer := url.Values{"code": {code}, "state": {sent.Query().Get("state")}, "iss": {strings.TrimSuffix(address[:strings.Index(address, "?")], "/authorize")}}
	for name, values := range i.answers {
		answer[name] = values
		if len(values) == 0 {
			answer.Del(name)
		}
	}
	back.RawQuery = answer.Encode()
	return back.String()
}

// begin presses the button of a provider, and returns where that sends the browser
// back to.
func (i *issuer) begin(b *browser, provider string) string {
	i.t.Helper()
	return i.authorize(b.next(b.send(locator, with(provider))))
}

// Somebody in the table is who the table says, whichever way they sign in.
func TestSignInWithAnotherProvider(t *testing.T) {
	t.Parallel()
	i := newIssuer(t, nil)
	b := i.site.browser(t)
	if got := b.open(http.MethodGet, locator); !strings.Contains(got.text, "Sign in with Slack") || !strings.Contains(got.text, "Sign in with Example-ID") {
		t.Errorf("the page offers\n%s", got.text)
	}
	next := b.next(b.send(locator, with("Example-ID")))
	address, err := url.Parse(next)
	if err != nil {
		t.Fatal(err)
	}
	asked := address.Query()
	for _, secret := range []string{"state", "nonce", "code_challenge"} {
		if len(asked.Get(secret)) < 26 {
			t.Errorf("%s is %q", secret, asked.Get(secret))
		}
		asked.Del(secret)
	}
	want := url.Values{
		"client_id": {issuerClient}, "redirect_uri": {i.site.url + "/sign-in/callback/Example-ID"}, "response_type": {"code"},
		"scope": {"openid"}, "code_challenge_method": {"S256"}, "max_age": {"28800"},
	}
	if diff := cmp.Diff(want, asked); diff != "" {
		t.Errorf("asked for (-want +got):\n%s", diff)
	}
	if got := b.open(http.MethodGet, i.authorize(next)); got.status != http.StatusSeeOther || got.location != locator {
		t.Fatalf("%d to %q\n%s", got.status, got.location, got.text)
	}
	b.requireSignedIn(approvaltest.Alice.User)
	if want := [][2]string{{url.QueryEscape(issuerClient), url.QueryEscape(issuerSecret)}}; !cmp.Equal(i.basic, want) {
		t.Errorf("the client shows %q, want %q", i.basic, want)
	}
	i.site.People.Bar(approvaltest.Alice, "a guest")
	i.site.Clock.Advance(approval.StandingFor)
	b.requireSignedIn("") // the account in Slack is what counts
}

// A provider that says less is asked for less.
func TestSignInWithAnOlderProvider(t *testing.T) {
	t.Parallel()
	i := newIssuer(t, func(i *issuer) {
		i.metadata["code_challenge_methods_supported"] = []string{"plain"}
		i.metadata["authorization_response_iss_parameter_supported"] = false
		i.metadata["token_endpoint_auth_methods_supported"] = []string{"client_secret_post"}
		i.answers["iss"] = nil
		i.claims["auth_time"] = nil
	})
	b := i.site.browser(t)
	if got := b.open(http.MethodGet, i.begin(b, "Example-ID")); got.status != http.StatusSeeOther {
		t.Fatalf("%d\n%s", got.status, got.text)
	}
	b.requireSignedIn(approvaltest.Alice.User)
	if got := i.trades[0]; len(i.trades) != 1 || got.Has("code_verifier") || got.Get("client_secret") != issuerSecret {
		t.Errorf("the code was traded with %v", i.trades)
	}
}

// What isn't as the standard says, or is of somebody else, signs nobody in.
func TestAnotherProviderIsNotBelieved(t *testing.T) {
	t.Parallel()
	const didnt, cant, another = "Signing in didn&#39;t work.", "This account can&#39;t decide here.", "begun in another browser"
	for name, test := range map[string]struct {
		change func(*issuer)
		come   func(i *issuer, b *browser) string // nil is by the button
		says   string
	}{
		"of nobody in the table":     {func(i *issuer) { i.subject = "mallory" }, nil, cant},
		"of somebody by Slack's id":  {func(i *issuer) { i.subject = approvaltest.Alice.User }, nil, cant},
		"of nobody":                  {func(i *issuer) { i.subject = "" }, nil, cant},
		"of somebody without a role": {func(i *issuer) { i.subject = "carol" }, nil, "holds no role here"},
		"Slack's claims from elsewhere": {func(i *issuer) {
			i.subject = "mallory"
			i.claims["https://slack.com/team_id"] = approvaltest.Alice.Workspace
			i.claims["https://slack.com/user_id"] = approvaltest.Alice.User
		}, nil, cant},
		"another nonce":            {func(i *issuer) { i.claims["nonce"] = "another" }, nil, didnt},
		"no nonce":                 {func(i *issuer) { i.claims["nonce"] = nil }, nil, didnt},
		"another audience":         {func(i *issuer) { i.claims["aud"] = "another" }, nil, didnt},
		"several audiences":        {func(i *issuer) { i.claims["aud"] = []string{issuerClient, "another"} }, nil, didnt},
		"another party":            {func(i *issuer) { i.claims["azp"] = "another" }, nil, didnt},
		"another issuer":           {func(i *issuer) { i.claims["iss"] = i.url + "/other" }, nil, didnt},
		"no issuer":                {func(i *issuer) { i.claims["iss"] = nil }, nil, didnt},
		"over":                     {func(i *issuer) { i.claims["exp"] = i.site.Clock.Now().Add(-time.Second).Unix() }, nil, didnt},
		"without an end":           {func(i *issuer) { i.claims["exp"] = nil }, nil, didnt},
		"a time that is no number": {func(i *issuer) { i.claims["auth_time"] = "now" }, nil, didnt},
		"unsigned": {func(i *issuer) {
			i.sign = func(claims map[string]any) string {
				body, _ := json.Marshal(claims)
				encode := base64.RawURLEncoding.EncodeToString
				return encode([]byte(`{"alg":"none","typ":"JWT"}`)) + "." + encode(body) + "."
			}
		}, nil, didnt},
		"signed with the client's secret": {func(i *issuer) {
			i.sign = func(claims map[string]any) string {
				return signed(i.t, jose.HS256, []byte(strings.Repeat(issuerSecret, 3)), claims)
			}
		}, nil, didnt},
		"signed with another key": {func(i *issuer) {
			i.sign = func(claims map[string]any) string {
				_, other := issuerKeys()
				return signed(i.t, jose.RS256, other, claims)
			}
		}, nil, didnt},
		"no identity":                  {func(i *issuer) { i.sign = func(map[string]any) string { return "" } }, nil, didnt},
		"comes from another":           {func(i *issuer) { i.answers["iss"] = []string{"https://evil.example"} }, nil, didnt},
		"comes from two":               {func(i *issuer) { i.answers["iss"] = []string{i.url, "https://evil.example"} }, nil, didnt},
		"doesn't say where from":       {func(i *issuer) { i.answers["iss"] = nil }, nil, didnt},
		"given up":                     {func(i *issuer) { i.answers["code"], i.answers["error"] = nil, []string{"access_denied"} }, nil, didnt},
		"calls itself something else":  {func(i *issuer) { i.metadata["issuer"] = i.url + "/" }, unreachable, didnt},
		"takes codes in the clear":     {func(i *issuer) { i.metadata["token_endpoint"] = "http://id.example.com/token" }, unreachable, didnt},
		"has people sign in by script": {func(i *issuer) { i.metadata["authorization_endpoint"] = "javascript:alert(1)" }, unreachable, didnt},
		"takes no secret":              {func(i *issuer) { i.metadata["token_endpoint_auth_methods_supported"] = []string{"private_key_jwt"} }, unreachable, didnt},
		"a code that was used": {nil, func(i *issuer, b *browser) string {
			used := i.begin(i.site.browser(i.t), "Example-ID")
			address, _ := url.Parse(used)
			i.mu.Lock()
			delete(i.codes, address.Query().Get("code"))
			i.mu.Unlock()
			return withCodeOf(i.begin(b, "Example-ID"), used)
		}, didnt},
		"two codes": {nil, func(i *issuer, b *browser) string {
			return i.begin(b, "Example-ID") + "&code=another"
		}, didnt},
		// An attacker's code in a victim's browser, or a stolen one in the attacker's.
		"a code of another sign-in": {nil, func(i *issuer, b *browser) string {
			return withCodeOf(i.begin(b, "Example-ID"), i.begin(i.site.browser(i.t), "Example-ID"))
		}, didnt},
		// Mixed up: begun with one, and ended as if the other had answered.
		"another provider's callback": {nil, func(i *issuer, b *browser) string {
			return strings.Replace(i.begin(b, "Example-ID"), "/Example-ID?", "/Other-ID?", 1)
		}, another},
		"Slack's callback": {nil, func(i *issuer, b *browser) string {
			return strings.Replace(i.begin(b, "Example-ID"), "/Example-ID?", "?", 1)
		}, another},
		"Slack's person at the provider's callback": {nil, func(i *issuer, b *browser) string {
			return strings.Replace(b.begin(approvaltest.Alice.User), web.CallbackPath+"?", web.CallbackPath+"/Example-ID?", 1)
		}, another},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			i := newIssuer(t, test.change)
			b := i.site.browser(t)
			come := test.come
			if come == nil {
				come = func(i *issuer, b *browser) string { return i.begin(b, "Example-ID") }
			}
			if back := come(i, b); back != "" {
				if got := b.open(http.MethodGet, back); got.status != http.StatusForbidden || !strings.Contains(got.text, test.says) {
					t.Errorf("%d\n%s", got.status, got.text)
				}
			}
			if b.cookie("countersign-session") != "" {
				t.Error("somebody is signed in")
			}
			b.requireSignedIn("")
			if i.answers.Has("iss") && len(i.trades) > 0 {
				t.Error("the code was given away")
			}
		})
	}
}

// unreachable is a provider that nobody is even sent to.
func unreachable(i *issuer, b *browser) string {
	i.t.Helper()
	if got := b.send(locator, with("Example-ID")); got.status != http.StatusBadGateway || got.header.Get("Refresh") != "" || !strings.Contains(got.text, "Signing in didn&#39;t work.") {
		i.t.Errorf("%d to %q\n%s", got.status, got.header.Get("Refresh"), got.text)
	}
	return ""
}

// withCodeOf is how a browser comes back, with the code of another.
func withCodeOf(back, other string) string {
	address, _ := url.Parse(back)
	stolen, _ := url.Parse(other)
	query := address.Query()
	query.Set("code", stolen.Query().Get("code"))
	address.RawQuery = query.Encode()
	return address.String()
}

// Who signs in anew is asked by the same provider, which must say that it did.
func TestSignInAnew(t *testing.T) {
	t.Parallel()
	ago := func(d time.Duration) func(*issuer) {
		return func(i *issuer) { i.provedAt = i.site.Clock.Now().Add(-d) }
	}
	for name, test := range map[string]struct {
		change func(*issuer) // once somebody is signed in
		status int
	}{
		"now":                       {nil, http.StatusSeeOther},
		"by a clock that is behind": {ago(59 * time.Second), http.StatusSeeOther},
		"by a clock that is ahead":  {ago(-time.Hour), http.StatusSeeOther},
		"without being asked":       {ago(2 * time.Minute), http.StatusForbidden},
		"without saying when":       {func(i *issuer) { i.claims["auth_time"] = nil }, http.StatusForbidden},
		"by somebody else, who may": {func(i *issuer) { i.subject = "carol"; i.site.People.Give("finance", approvaltest.Carol) }, http.StatusSeeOther},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			i := newIssuer(t, nil)
			b := i.site.browser(t)
			if got := b.open(http.MethodGet, i.begin(b, "Example-ID")); got.status != http.StatusSeeOther {
				t.Fatalf("%d\n%s", got.status, got.text)
			}
			i.site.Clock.Advance(6 * time.Minute)
			if test.change != nil {
				test.change(i)
			}
			next := b.next(b.send("/sign-in", url.Values{"back": {locator}}))
			if !strings.HasPrefix(next, i.url+"/authorize?") || !strings.Contains(next, "&prompt=login") || !strings.Contains(next, "&max_age=0&") {
				t.Fatalf("the browser is sent to %s", next)
			}
			before := b.cookie("countersign-session")
			got := b.open(http.MethodGet, i.authorize(next))
			if got.status != test.status || got.status == http.StatusSeeOther && got.location != locator {
				t.Errorf("%d to %q\n%s", got.status, got.location, got.text)
			}
			if after := b.cookie("countersign-session"); (after == before) != (test.status != http.StatusSeeOther) {
				t.Errorf("the session was %s and is %s", before, after)
			}
			if test.status == http.StatusForbidden && !strings.Contains(got.text, "without being asked again who you are") {
				t.Errorf("the page says\n%s", got.text)
			}
		})
	}
}

// Signing in leads to a page of this server, whatever the form says.
func TestSignInLeadsBack(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for address, want := range map[string]string{
		locator:                          locator,
		"/review?elicitationId=x#y":      "/review?elicitationId=x",
		"https://evil.example/review":    "/review",
		"//evil.example/review":          "/review",
		"//evil.example//evil.example":   "/",
		"/%2Fevil.example":               "/",
		"///evil.example":                "/",
		`/\evil.example`:                 "/",
		"/review/../review":              "/",
		"javascript:alert(1)":            "/",
		"/nowhere":                       "/",
		"/review\nSet-Cookie: a=b":       "/",
		"review":                         "/",
		"":                               "/",
		"/sign-out":                      "/",
		"/review?elicitationId=%0d%0aa:": "/review?elicitationId=%0d%0aa:",
	} {
		b := s.browser(t)
		b.signIn("U0ALICE")
		back, err := s.slack.Authorize("U0ALICE", b.next(b.send("/sign-in", url.Values{"back": {address}})))
		if err != nil {
			t.Fatal(err)
		}
		if got := b.open(http.MethodGet, back); got.status != http.StatusSeeOther || got.location != want {
			t.Errorf("%q leads to %q (%d), want %q", address, got.location, got.status, want)
		}
	}
}

// Who isn't signed in any more when they sign in anew chooses how, and gets where
// they wanted to.
func TestSignInAnewAfterTheEnd(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	b := s.browser(t)
	got := b.send("/sign-in", url.Values{"back": {locator}})
	if got.status != http.StatusOK || !strings.Contains(got.text, `action="`+locator+`"`) || !strings.Contains(got.text, "Sign in with Slack") {
		t.Errorf("%d\n%s", got.status, got.text)
	}
	for _, form := range []url.Values{nil, with("Example-ID"), with("")} {
		if got := b.send(locator, form); got.status != http.StatusBadRequest || got.header.Get("Refresh") != "" {
			t.Errorf("%v: %d\n%s", form, got.status, got.text)
		}
	}
}

// Asking each provider beforehand finds what would keep people from signing in.
func TestCheckSignIn(t *testing.T) {
	t.Parallel()
	i := newIssuer(t, nil)
	options := web.SignIn{
		Workspace: "T0TEST", ClientID: "1.2", Issuer: i.site.issuer,
		Providers: []web.Provider{
			{Name: "Good", Issuer: i.url, ClientID: "c", People: map[string]string{"a": "U1", "b": "U2"}},
			{Name: "Bad", Issuer: i.url + "/nowhere", ClientID: "c", People: map[string]string{"a": "U1"}},
		},
	}
	got := web.CheckSignIn(t.Context(), options, "https://approvals.example.com")
	want := []web.SignInFinding{
		{true, "Slack", "it must send people back to https://approvals.example.com/sign-in/callback"},
		{true, "Good", "2 in its table; it must send people back to https://approvals.example.com/sign-in/callback/Good"},
		{false, "Bad", "asking " + i.url + "/nowhere how people sign in"},
	}
	for n := range want {
		if n >= len(got) || got[n].OK != want[n].OK || got[n].Provider != want[n].Provider || !strings.HasPrefix(got[n].Text, want[n].Text) {
			t.Errorf("got %v, want %v", got, want)
			break
		}
	}
}
