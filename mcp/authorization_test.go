package mcp_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/approval/approvaltest"
	"github.com/countersign/countersign/mcp"
)

// written is what was logged.
type written struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func newWritten() *written { return new(written) }

func (w *written) Write(line []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.Write(line)
}

func (w *written) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.String()
}

func (w *written) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

const metadataURL = "https://approvals.example.com/.well-known/oauth-protected-resource/mcp/gate"

// Whoever the table has calls as the agent of the table, and acts for the person
// of the table, in each kind of token that issuers give.
func TestAccessTokens(t *testing.T) {
	t.Parallel()
	keys := signingKeys()
	for name, test := range map[string]struct {
		issuer func(*issuer)
		trust  func(*mcp.Issuer)
		token  []func(*token)
	}{
		"as RFC 9068 has it": {},
		"of no kind":         {token: []func(*token){head("typ", nil), say("jti", nil), say("client_id", nil)}},
		"of the kind JWT":    {token: []func(*token){head("typ", "JWT")}},
		"its whole kind":     {token: []func(*token){head("typ", "application/AT+jwt")}},
		"several audiences":  {token: []func(*token){say("aud", []string{"https://elsewhere.example", endpoint})}},
		"an audience by name": {
			trust: func(i *mcp.Issuer) { i.Audiences = []string{"api://countersign"} },
			token: []func(*token){say("aud", "api://countersign")},
		},
		"with scopes":           {trust: func(i *mcp.Issuer) { i.Scopes = []string{"approvals", "openid"} }},
		"with scopes in a row":  {trust: func(i *mcp.Issuer) { i.Scopes = []string{"approvals"} }, token: []func(*token){say("scope", nil), say("scp", []string{"approvals"})}},
		"with scp as a string":  {trust: func(i *mcp.Issuer) { i.Scopes = []string{"approvals"} }, token: []func(*token){say("scope", nil), say("scp", "x approvals")}},
		"of a client":           {trust: func(i *mcp.Issuer) { i.Clients = []string{"desk-client"} }},
		"of a party":            {trust: func(i *mcp.Issuer) { i.Clients = []string{"desk-client"} }, token: []func(*token){head("typ", "JWT"), say("client_id", nil), say("azp", "desk-client")}},
		"said to be a bearer's": {token: []func(*token){head("typ", "JWT"), say("typ", "Bearer"), say("token_use", "access")}},
		"by a clock ahead":      {token: []func(*token){func(made *token) { made.claims["iat"] = made.claims["iat"].(int64) + 59 }}},
		"without the key's id":  {token: []func(*token){head("kid", nil)}},
		"by an elliptic curve": {
			issuer: func(i *issuer) { i.keys = []any{public("1", "ES256", keys.curve.Public())} },
			token:  []func(*token){by("ES256", keys.curve)},
		},
		"by an Edwards curve": {
			issuer: func(i *issuer) { i.keys = []any{public("1", "EdDSA", keys.edwards.Public())} },
			token:  []func(*token){by("EdDSA", keys.edwards)},
		},
		"by a key of no algorithm that is announced": {
			issuer: func(i *issuer) {
				i.keys = []any{public("1", "", keys.curve.Public())}
				i.metadata["id_token_signing_alg_values_supported"] = []string{"ES256"}
			},
			token: []func(*token){by("ES256", keys.curve)},
		},
		"among keys of other kinds": {issuer: func(i *issuer) {
			i.keys = append([]any{
				map[string]any{"kty": "AKP", "alg": "ML-DSA-44", "kid": "1", "pub": "AAAA"}, map[string]any{"kty": "oct", "kid": "1", "k": "AAAA"}, "nonsense",
				map[string]any{"kty": "RSA", "kid": "1", "n": "!", "e": "AQAB"},
			}, i.keys...)
		}},
		"of an issuer that speaks OAuth only": {issuer: func(i *issuer) {
			i.answer = func(w http.ResponseWriter, r *http.Request) {
				switch r.URL.Path {
				case oauthPath:
					_ = json.NewEncoder(w).Encode(map[string]any{"issuer": i.URL, "jwks_uri": i.URL + keysPath})
				case keysPath:
					_ = json.NewEncoder(w).Encode(map[string]any{"keys": []any{public("1", "", keys.right.Public())}})
				default:
					http.NotFound(w, r)
				}
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newAuthorized(t, func(i *mcp.Issuer) {
				if test.trust != nil {
					test.trust(i)
				}
			})
			if test.issuer != nil {
				a.issuer.change(test.issuer)
			}
			token := a.issuer.signed(t, test.token...)
			for _, version := range []string{legacy, modern} {
				session := connect(t, a.transport(t, token), version, nil)
				r, err := a.fixture.Service.Status(t.Context(), approval.Agent{Name: "desk", Owner: approvaltest.Alice}, asked(t, session))
				if err != nil {
					t.Fatal(err)
				}
				if r.Agent != "desk" || r.ActsFor != approvaltest.Alice {
					t.Errorf("%s: asked as %q for %v", version, r.Agent, r.ActsFor)
				}
			}
			if strings.Contains(a.log.String(), token) || strings.Contains(a.log.String(), strings.Split(token, ".")[2]) {
				t.Error("the token is in the log")
			}
		})
	}
}

// What an attacker, another server or a careless issuer could come with.
func TestAccessTokensThatAreRefused(t *testing.T) {
	t.Parallel()
	const (
		noToken, form, kind, signature = "it isn't a signed token", "in another form", "another token than one to call with", "its signature isn't by a key of its issuer"
		algorithm, elsewhere, nobody   = "its algorithm isn't one", "it is meant for another server", "it doesn't say for whom"
		issuerUnknown                  = "another issuer than those"
	)
	keys := signingKeys()
	a := newAuthorized(t, func(i *mcp.Issuer) { i.Audiences = []string{"api://countersign"} })
	a.issuer.change(func(i *issuer) {
		i.keys = append(i.keys, public("small", "RS256", keys.small.Public()), public("curve", "ES256", keys.curve.Public()),
			withUse("enc", keys.other.Public(), "enc"), map[string]any{"kty": "oct", "kid": "oct", "alg": "HS256", "k": base64.RawURLEncoding.EncodeToString([]byte("a secret that everybody knows"))})
	})
	secret := []byte("a secret that everybody knows")
	in := func(d time.Duration) int64 { return a.fixture.Clock.Now().Add(d).Unix() }
	raw := func(add string) func(*token) {
		return func(made *token) {
			text, _ := json.Marshal(made.claims)
			made.text = string(text[:len(text)-1]) + add + "}"
		}
	}
	without := func(name, add string) func(*token) {
		return func(made *token) {
			delete(made.claims, name)
			raw(add)(made)
		}
	}
	for name, test := range map[string]struct {
		changes []func(*token)
		says    string
	}{
		"another audience":                 {[]func(*token){say("aud", "https://approvals.example.com")}, elsewhere},
		"the endpoint beside it":           {[]func(*token){say("aud", "https://approvals.example.com/mcp")}, elsewhere},
		"the endpoint with a slash":        {[]func(*token){say("aud", endpoint+"/")}, elsewhere},
		"an audience that begins alike":    {[]func(*token){say("aud", endpoint+".evil.example")}, elsewhere},
		"no audience":                      {[]func(*token){say("aud", nil)}, elsewhere},
		"an empty audience":                {[]func(*token){say("aud", []string{})}, elsewhere},
		"an audience in an audience":       {[]func(*token){say("aud", []any{[]any{endpoint}})}, form},
		"its client as the audience":       {[]func(*token){say("aud", "desk-client")}, elsewhere},
		"an issuer that nobody knows":      {[]func(*token){say("iss", "https://evil.example")}, issuerUnknown},
		"an issuer with a slash":           {[]func(*token){say("iss", a.issuer.URL+"/")}, issuerUnknown},
		"an issuer in capitals":            {[]func(*token){say("iss", strings.ToUpper(a.issuer.URL))}, issuerUnknown},
		"no issuer":                        {[]func(*token){say("iss", nil)}, issuerUnknown},
		"two issuers":                      {[]func(*token){raw(`,"iss":"` + a.issuer.URL + `"`)}, noToken},
		"expired":                          {[]func(*token){say("exp", in(0))}, "it has expired"},
		"expired long ago":                 {[]func(*token){say("exp", in(-time.Hour))}, "it has expired"},
		"without an end":                   {[]func(*token){say("exp", nil)}, "when it ends"},
		"an end that is no number":         {[]func(*token){say("exp", "2099-01-01")}, form},
		"an end that is null":              {[]func(*token){without("exp", `,"exp":null`)}, form},
		"an end beyond all time":           {[]func(*token){without("exp", `,"exp":1e30`)}, form},
		"an end before all time":           {[]func(*token){without("exp", `,"exp":-1e30`)}, form},
		"an end that wraps around":         {[]func(*token){say("exp", uint64(math.MaxUint64))}, form},
		"not yet good":                     {[]func(*token){say("nbf", in(61*time.Second))}, "it isn't good yet"},
		"given in the future":              {[]func(*token){say("iat", in(61*time.Second))}, "it isn't good yet"},
		"no subject":                       {[]func(*token){say("sub", nil)}, nobody},
		"an empty subject":                 {[]func(*token){say("sub", "")}, form},
		"a subject that is a number":       {[]func(*token){say("sub", 7)}, form},
		"several subjects":                 {[]func(*token){say("sub", []string{aliceAtWork})}, form},
		"a subject that is very long":      {[]func(*token){say("sub", strings.Repeat("a", 256))}, nobody},
		"two subjects":                     {[]func(*token){raw(`,"sub":"` + bobAtWork + `"`)}, noToken},
		"a subject in capitals":            {[]func(*token){without("sub", `,"SUB":"`+aliceAtWork+`"`)}, nobody},
		"an end in capitals":               {[]func(*token){without("exp", fmt.Sprintf(`,"Exp":%d`, in(time.Hour)))}, "when it ends"},
		"a proof of possession":            {[]func(*token){say("cnf", map[string]string{"jkt": "x"})}, "bound to a proof"},
		"a certificate's token":            {[]func(*token){say("cnf", map[string]string{"x5t#S256": "x"})}, "bound to a proof"},
		"bound to nothing":                 {[]func(*token){without("cnf", `,"cnf":null`)}, "bound to a proof"},
		"an identity":                      {[]func(*token){head("typ", "JWT"), say("nonce", "n")}, kind},
		"an identity beside a token":       {[]func(*token){head("typ", nil), say("at_hash", "h")}, kind},
		"an identity beside a code":        {[]func(*token){head("typ", nil), say("c_hash", "h")}, kind},
		"an identity that says it is none": {[]func(*token){say("nonce", "n")}, kind},
		"an identity by its own word":      {[]func(*token){head("typ", "JWT"), say("typ", "ID")}, kind},
		"an identity by its use":           {[]func(*token){head("typ", "JWT"), say("token_use", "id")}, kind},
		"a token to refresh with":          {[]func(*token){head("typ", "JWT"), say("typ", "Refresh")}, kind},
		"a sign-out":                       {[]func(*token){head("typ", "logout+jwt")}, kind},
		"a sign-out of no kind":            {[]func(*token){head("typ", nil), say("events", map[string]any{})}, kind},
		"a proof":                          {[]func(*token){head("typ", "dpop+jwt")}, kind},
		"a kind that is a number":          {[]func(*token){head("typ", 1)}, noToken},
		"an empty kind":                    {[]func(*token){head("typ", "")}, noToken},
		"RFC 9068 without a client":        {[]func(*token){say("client_id", nil)}, "it says less"},
		"RFC 9068 without an id":           {[]func(*token){say("jti", nil)}, "it says less"},
		"RFC 9068 without a time":          {[]func(*token){say("iat", nil)}, "it says less"},
		"unsigned":                         {[]func(*token){by("none", nil)}, algorithm},
		"unsigned in other letters":        {[]func(*token){by("nOnE", nil)}, algorithm},
		"without a signature":              {[]func(*token){by("RS256", nil)}, signature},
		"without an algorithm":             {[]func(*token){head("alg", nil)}, algorithm},
		"with the public key as a secret":  {[]func(*token){by("HS256", publicPEM(t, keys.right))}, algorithm},
		"with a secret that it shows":      {[]func(*token){by("HS256", secret), head("kid", "oct")}, algorithm},
		"with a secret as a signature":     {[]func(*token){by("RS256", secret), head("kid", "oct")}, signature},
		"by another key":                   {[]func(*token){by("RS256", keys.other)}, signature},
		"by a key of its own":              {[]func(*token){by("RS256", keys.other), head("jwk", withUse("1", keys.other.Public(), "sig")), head("kid", "mine")}, signature},
		"by a key from elsewhere":          {[]func(*token){by("RS256", keys.other), head("jku", "https://evil.example/keys"), head("x5u", "https://evil.example/cert"), head("kid", "theirs")}, signature},
		"by a key that is too small":       {[]func(*token){by("RS256", keys.small), head("kid", "small")}, signature},
		"by a key that is for secrets":     {[]func(*token){by("RS256", keys.other), head("kid", "enc")}, signature},
		"with another algorithm":           {[]func(*token){head("alg", "PS256")}, signature},
		"with another key's algorithm":     {[]func(*token){head("alg", "ES256")}, signature},
		"a curve's as another's":           {[]func(*token){by("ES256", keys.curve), head("kid", "1")}, signature},
		"with something critical":          {[]func(*token){head("crit", []string{"b64"}), head("b64", true)}, noToken},
		"with nothing critical":            {[]func(*token){head("crit", []string{})}, noToken},
		"two algorithms":                   {[]func(*token){func(made *token) { made.headerText = `{"alg":"none","alg":"RS256","kid":"1"}` }}, noToken},
		"claims that are a list":           {[]func(*token){func(made *token) { made.text = `["iss"]` }}, noToken},
		"claims that are broken":           {[]func(*token){func(made *token) { made.text = `{"iss":` }}, noToken},
		"claims of broken letters":         {[]func(*token){func(made *token) { made.text = "{\"iss\":\"\xff\"}" }}, noToken},
		"too long":                         {[]func(*token){say("groups", strings.Repeat("x", 16<<10))}, "it is too long"},
	} {
		t.Run(name, func(t *testing.T) {
			token := a.issuer.signed(t, test.changes...)
			response, text := a.try(t, token)
			want := `Bearer realm="countersign", error="invalid_token", resource_metadata="` + metadataURL + `"`
			if response.StatusCode != http.StatusUnauthorized || response.Header.Get("WWW-Authenticate") != want {
				t.Errorf("%s, %q", response.Status, response.Header.Get("WWW-Authenticate"))
			}
			if !strings.Contains(text, "the access token isn't accepted: ") || !strings.Contains(text, test.says) {
				t.Errorf("the answer says %q, want %q", text, test.says)
			}
			for _, part := range strings.Split(token, ".") {
				if len(part) > 20 && strings.Contains(a.log.String()+text, part) {
					t.Error("the token is in the log or in the answer")
				}
			}
		})
	}
	// Whatever came before, a good one is taken; changed anywhere, it isn't.
	good := a.issuer.signed(t)
	if response, text := a.try(t, good); response.StatusCode != http.StatusOK {
		t.Fatalf("a good token: %s %s", response.Status, text)
	}
	for at := range len(good) {
		other := byte('A')
		if good[at] == other {
			other = 'Q'
		}
		changed := good[:at] + string(other) + good[at+1:]
		if last := strings.LastIndexByte(good, '.'); at == len(good)-1 && sameBytes(good[last+1:], changed[last+1:]) {
			continue // the last letter has bits that nobody reads
		}
		if at%7 != 0 && good[at] != '.' {
			continue
		}
		if response, _ := a.try(t, changed); response.StatusCode != http.StatusUnauthorized {
			t.Errorf("changed at %d: %s", at, response.Status)
		}
	}
}

func sameBytes(a, b string) bool {
	first, _ := base64.RawURLEncoding.DecodeString(a)
	second, _ := base64.RawURLEncoding.DecodeString(b)
	return bytes.Equal(first, second)
}

// Who the issuer names, and isn't expected here, is told so, and what is missing.
func TestAccessTokensThatAreNotEnough(t *testing.T) {
	t.Parallel()
	a := newAuthorized(t, func(i *mcp.Issuer) {
		i.Clients = []string{"desk-client", "other-client"}
		i.Scopes = []string{"approvals", "approvals:ask"}
	})
	scoped := say("scope", "approvals:ask x approvals")
	for name, test := range map[string]struct {
		changes   []func(*token)
		says      string
		challenge string
		logs      string
	}{
		"nobody in the table":       {[]func(*token){scoped, say("sub", "mallory\nlevel=INFO")}, "you aren't among the people", "", `subject="mallory\nlevel=INFO"`},
		"somebody by Slack's id":    {[]func(*token){scoped, say("sub", "U0ALICE")}, "you aren't among the people", "", "subject=U0ALICE"},
		"somebody in capitals":      {[]func(*token){scoped, say("sub", strings.ToUpper(bobAtWork))}, "you aren't among the people", "", "subject=00U-BOB"},
		"somebody by mail":          {[]func(*token){scoped, say("sub", "x"), say("email", aliceAtWork), say("preferred_username", aliceAtWork)}, "you aren't among the people", "", "subject=x"},
		"another client":            {[]func(*token){scoped, say("client_id", "evil-client")}, "this client isn't among", "", "evil-client"},
		"another party":             {[]func(*token){scoped, say("azp", "evil-client")}, "this client isn't among", "", "evil-client"},
		"no client":                 {[]func(*token){scoped, head("typ", "JWT"), say("client_id", nil)}, "this client isn't among", "", "clients=[]"},
		"no scope":                  {[]func(*token){say("scope", nil)}, "lacks a scope: approvals approvals:ask", "insufficient_scope", ""},
		"one scope":                 {[]func(*token){say("scope", "approvals")}, "lacks a scope: approvals:ask", "insufficient_scope", ""},
		"a scope that begins alike": {[]func(*token){say("scope", "approvals:ask approvals-not")}, "lacks a scope: approvals", "insufficient_scope", ""},
		"scopes in other words":     {[]func(*token){say("scope", nil), say("scopes", "approvals approvals:ask")}, "lacks a scope", "insufficient_scope", ""},
	} {
		t.Run(name, func(t *testing.T) {
			response, text := a.try(t, a.issuer.signed(t, test.changes...))
			want := ""
			if test.challenge != "" {
				want = `Bearer realm="countersign", error="insufficient_scope", scope="approvals approvals:ask", resource_metadata="` + metadataURL + `"`
			}
			if response.StatusCode != http.StatusForbidden || response.Header.Get("WWW-Authenticate") != want {
				t.Errorf("%s, %q", response.Status, response.Header.Get("WWW-Authenticate"))
			}
			if !strings.Contains(text, test.says) {
				t.Errorf("the answer says %q, want %q", text, test.says)
			}
			if !strings.Contains(a.log.String(), test.logs) || test.logs != "" && !strings.Contains(a.log.String(), "issuer="+a.issuer.URL) {
				t.Errorf("the log doesn't have %q:\n%s", test.logs, a.log)
			}
		})
	}
	if response, text := a.try(t, a.issuer.signed(t, scoped, say("azp", "other-client"))); response.StatusCode != http.StatusOK {
		t.Errorf("a good token: %s %s", response.Status, text)
	}
}

// Each issuer has its own people, whose names there are nobody's elsewhere.
func TestIssuersAreToldApart(t *testing.T) {
	t.Parallel()
	a := newAuthorized(t)
	// The other issuer's metadata isn't served, so nothing of it is believed, also
	// not what the first has signed.
	response, _ := a.try(t, a.issuer.signed(t, say("iss", a.issuer.URL+"/other")))
	if response.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("a token of another issuer: %s", response.Status)
	}
	a.issuer.change(func(i *issuer) {
		i.answer = func(w http.ResponseWriter, r *http.Request) {
			at := i.URL
			if strings.HasPrefix(r.URL.Path, "/other") {
				at += "/other"
			}
			switch strings.TrimPrefix(r.URL.Path, "/other") {
			case openIDPath:
				_ = json.NewEncoder(w).Encode(map[string]any{"issuer": at, "jwks_uri": at + keysPath})
			case keysPath:
				key := signingKeys().right.Public()
				if at != i.URL {
					key = signingKeys().other.Public()
				}
				_ = json.NewEncoder(w).Encode(map[string]any{"keys": []any{public("1", "RS256", key)}})
			}
		}
	})
	a.fixture.Clock.Advance(time.Minute)
	for _, test := range []struct {
		name, issuer string
		key          any
		status       int
	}{
		{"the one's by its key", a.issuer.URL, signingKeys().right, http.StatusOK},
		{"the other's by its key", a.issuer.URL + "/other", signingKeys().other, http.StatusOK},
		{"the one's by the other's key", a.issuer.URL, signingKeys().other, http.StatusUnauthorized},
		{"the other's by the one's key", a.issuer.URL + "/other", signingKeys().right, http.StatusUnauthorized},
	} {
		if response, text := a.try(t, a.issuer.signed(t, say("iss", test.issuer), by("RS256", test.key))); response.StatusCode != test.status {
			t.Errorf("%s: %s %s", test.name, response.Status, text)
		}
	}
	session := connect(t, a.transport(t, a.issuer.signed(t, say("iss", a.issuer.URL+"/other"), by("RS256", signingKeys().other))), modern, nil)
	if _, err := a.fixture.Service.Status(t.Context(), approval.Agent{Name: "other", Owner: approvaltest.Carol}, asked(t, session)); err != nil {
		t.Errorf("the other's person: %v", err)
	}
}

// This server's own tokens and access tokens are told apart by their form, before
// anybody is asked for either.
func TestTokensAreToldApart(t *testing.T) {
	t.Parallel()
	a := newAuthorized(t)
	own := a.token(t, "deployer")
	if response, _ := a.try(t, own); response.StatusCode != http.StatusOK {
		t.Errorf("an own token: %s", response.Status)
	}
	for _, token := range []string{own + "x", own + ".b.c", "a.b.c", own + ".b", own + ".b.c.d", "opaque", strings.Join([]string{own, own, own}, ".")} {
		response, text := a.try(t, token)
		want := `Bearer realm="countersign", error="invalid_token", resource_metadata="` + metadataURL + `"`
		if response.StatusCode != http.StatusUnauthorized || response.Header.Get("WWW-Authenticate") != want {
			t.Errorf("%s: %s %q", token, response.Status, response.Header.Get("WWW-Authenticate"))
		}
		if strings.Contains(text+a.log.String(), strings.TrimPrefix(own, "countersign_")) {
			t.Error("the token is in the log or in the answer")
		}
	}
	if got := a.issuer.times(openIDPath); got != 0 {
		t.Errorf("the issuer was asked %d times", got)
	}
	// The database isn't asked for an access token.
	if err := a.fixture.Store.Close(); err != nil {
		t.Fatal(err)
	}
	if response, text := a.try(t, a.issuer.signed(t)); response.StatusCode != http.StatusOK {
		t.Errorf("an access token: %s %s", response.Status, text)
	}
	if response, _ := a.try(t, own); response.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("an own token: %s", response.Status)
	}
}

// Without a token a client is told where it gets one; where no issuer is believed,
// nothing is said of any.
func TestChallenge(t *testing.T) {
	t.Parallel()
	a := newAuthorized(t, func(i *mcp.Issuer) { i.Scopes = []string{"approvals"} })
	f := approvaltest.New(t)
	without := serveHTTP(t, f, newLocal(t, f, 0), mcp.HandlerOptions{})
	token := a.issuer.signed(t)
	for name, test := range map[string]struct {
		server *httpServer
		header string
		want   string
	}{
		"nothing":                  {a.httpServer, "", `Bearer realm="countersign", scope="approvals", resource_metadata="` + metadataURL + `"`},
		"another scheme":           {a.httpServer, "DPoP " + token, `Bearer realm="countersign", scope="approvals", resource_metadata="` + metadataURL + `"`},
		"nothing, without issuers": {without, "", `Bearer realm="countersign"`},
		"a token, without issuers": {without, "Bearer " + token, `Bearer realm="countersign", error="invalid_token"`},
	} {
		response := post(t, test.server, initializeBody, map[string]string{"Authorization": test.header})
		if got := response.Header.Get("WWW-Authenticate"); response.StatusCode != http.StatusUnauthorized || got != test.want {
			t.Errorf("%s: %s %q, want %q", name, response.Status, got, test.want)
		}
	}
	// In an address a token would be in logs.
	response, err := a.Client().Post(a.URL+"?access_token="+token, "application/json", strings.NewReader(initializeBody))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusUnauthorized {
		t.Errorf("a token in the address: %s", response.Status)
	}
}

// Anybody can read where tokens for an endpoint are to be had.
func TestResourceMetadata(t *testing.T) {
	t.Parallel()
	a := newAuthorized(t, func(i *mcp.Issuer) { i.Scopes = []string{"approvals"} })
	if got := a.resource.MetadataPath(); "https://approvals.example.com"+got != metadataURL {
		t.Errorf("it is at %s", got)
	}
	said := func(method string) *http.Response {
		recorded := httptest.NewRecorder()
		a.resource.ServeMetadata(recorded, httptest.NewRequest(method, metadataURL, nil))
		return recorded.Result()
	}
	got := said(http.MethodGet)
	var metadata map[string]any
	if err := json.NewDecoder(got.Body).Decode(&metadata); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"resource": endpoint, "authorization_servers": []any{a.issuer.URL, a.issuer.URL + "/other"}, "scopes_supported": []any{"approvals"},
		"bearer_methods_supported": []any{"header"}, "resource_name": "Countersign",
	}
	if diff := cmp.Diff(want, metadata); diff != "" {
		t.Errorf("it says (-want +got):\n%s", diff)
	}
	if got.Header.Get("Access-Control-Allow-Origin") != "*" || got.Header.Get("Content-Type") != "application/json" {
		t.Errorf("its header is %v", got.Header)
	}
	if got := said(http.MethodOptions); got.StatusCode != http.StatusNoContent || got.Header.Get("Access-Control-Allow-Headers") != "Mcp-Protocol-Version" {
		t.Errorf("asked beforehand, it says %s %v", got.Status, got.Header)
	}
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete} {
		if got := said(method); got.StatusCode != http.StatusMethodNotAllowed || got.Header.Get("Allow") == "" {
			t.Errorf("%s: %s %v", method, got.Status, got.Header)
		}
	}
}

// Two people with an agent of the same name share no session and no request.
func TestSessionsBelongToOnePersonsAgent(t *testing.T) {
	t.Parallel()
	a := newAuthorized(t)
	alice, again, bob := a.issuer.signed(t), a.issuer.signed(t), a.issuer.signed(t, say("sub", bobAtWork))
	h := newHost()
	session := connect(t, a.transport(t, alice), legacy, h.options(showsURLs))
	id, _ := askedWith(t, session)
	receive(t, h.shown, "the prompt")
	in := func(method, token string) int {
		request, err := http.NewRequestWithContext(t.Context(), method, a.URL, strings.NewReader(`{"jsonrpc":"2.0","id":2,"method":"tools/list","params":{}}`))
		if err != nil {
			t.Fatal(err)
		}
		for name, value := range map[string]string{
			"Content-Type": "application/json", "Accept": "application/json, text/event-stream",
			"Authorization": "Bearer " + token, "Mcp-Session-Id": session.ID(), "Mcp-Protocol-Version": legacy,
		} {
			request.Header.Set(name, value)
		}
		response, err := a.Client().Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		_, _ = io.Copy(io.Discard, response.Body)
		return response.StatusCode
	}
	nobodys := a.token(t, "desk") // an agent of the name that acts for nobody
	for name, step := range map[string]struct {
		method, token string
		want          int
	}{
		"her own": {http.MethodPost, alice, http.StatusOK}, "her next token": {http.MethodPost, again, http.StatusOK},
		"his": {http.MethodPost, bob, http.StatusForbidden}, "his end": {http.MethodDelete, bob, http.StatusForbidden},
		"nobody's": {http.MethodPost, nobodys, http.StatusForbidden}, "nobody's end": {http.MethodDelete, nobodys, http.StatusForbidden},
	} {
		if got := in(step.method, step.token); got != step.want {
			t.Errorf("%s: %d, want %d", name, got, step.want)
		}
	}
	his := connect(t, a.transport(t, bob), modern, nil)
	if got := refused(t, his, "check_status", byID(id)); !strings.Contains(got, "request") {
		t.Errorf("his agent is told %q", got)
	}
	// Her prompt is still open: it is completed.
	r, err := a.fixture.Service.Status(t.Context(), approval.Agent{Name: "desk", Owner: approvaltest.Alice}, id)
	if err != nil {
		t.Fatal(err)
	}
	a.fixture.Decide(t, approvaltest.Bob, r, approval.Reject)
	if got := receive(t, h.completed, "the completion"); got != string(id) {
		t.Errorf("completed %s", got)
	}
}

// Who an agent acts for never fills a place for what it asks, however they click.
func TestPersonBehindAnAccessTokenDoesNotApprove(t *testing.T) {
	t.Parallel()
	a := newAuthorized(t)
	session := connect(t, a.transport(t, a.issuer.signed(t)), modern, nil)
	id := asked(t, session)
	r, err := a.fixture.Service.Status(t.Context(), approval.Agent{Name: "desk", Owner: approvaltest.Alice}, id)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.fixture.Service.Decide(t.Context(), approvaltest.Alice, approvaltest.Ballot(r, approval.Approve)); !errors.Is(err, approval.ErrSelf) {
		t.Errorf("her own click: %v", err)
	}
	if got := a.fixture.Decide(t, approvaltest.Bob, r, approval.Approve); got.Status != approval.Approved {
		t.Errorf("another's: %s", got.Status)
	}
}

// A call that waits when its token ends goes on; the next one needs another.
func TestTokenEndsWhileACallWaits(t *testing.T) {
	t.Parallel()
	a := newAuthorized(t)
	token := a.issuer.signed(t)
	held := make(chan struct{}, 100)
	session := connect(t, a.transport(t, token), modern, &sdk.ClientOptions{
		ProgressNotificationHandler: func(context.Context, *sdk.ProgressNotificationClientRequest) { held <- struct{}{} },
	})
	id := asked(t, session)
	answers := make(chan string, 1)
	go func() {
		params := &sdk.CallToolParams{Name: "await_approval", Arguments: json.RawMessage(byID(id))}
		params.SetProgressToken("await")
		result, err := session.CallTool(t.Context(), params)
		if err != nil {
			answers <- err.Error()
			return
		}
		answers <- textOf(t, result, 0)
	}()
	receive(t, held, "the call to be held")
	a.fixture.Clock.Advance(10 * time.Minute)
	if response, text := a.try(t, token); response.StatusCode != http.StatusUnauthorized || !strings.Contains(text, "it has expired") {
		t.Errorf("the next call: %s %s", response.Status, text)
	}
	r, err := a.fixture.Service.Status(t.Context(), approval.Agent{Name: "desk", Owner: approvaltest.Alice}, id)
	if err != nil {
		t.Fatal(err)
	}
	a.fixture.Decide(t, approvaltest.Bob, r, approval.Approve)
	if got := receive(t, answers, "the answer"); got != `{"status":"approved"}` {
		t.Errorf("the call answers %s", got)
	}
}

// What can't be read is refused, and nothing makes the server fall over.
func FuzzAccessToken(f *testing.F) {
	encode := base64.RawURLEncoding.EncodeToString
	f.Add(encode([]byte(`{"alg":"RS256"}`)) + "." + encode([]byte(`{"iss":"https://id.example.com","aud":["a"],"exp":1}`)) + ".AAAA")
	f.Add("..")
	f.Add("a.b.c")
	f.Add(encode([]byte(`{"alg":"none","crit":[1]}`)) + "." + encode([]byte(`{"scp":[],"scope":1}`)) + ".")
	authorization := mcp.NewAuthorization(mcp.AuthorizationOptions{Issuers: []mcp.Issuer{{Address: "http://127.0.0.1:1"}}})
	resource := authorization.Resource(&url.URL{Scheme: "https", Host: "approvals.example.com"}, "/mcp/gate")
	f.Fuzz(func(t *testing.T, token string) {
		agent, status := mcp.Identify(t.Context(), resource, token)
		if agent != (approval.Agent{}) || !slices.Contains([]int{http.StatusUnauthorized, http.StatusServiceUnavailable}, status) {
			t.Errorf("%q is %v, %d", token, agent, status)
		}
	})
}
