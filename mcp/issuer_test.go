package mcp_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/approval/approvaltest"
	"github.com/countersign/countersign/mcp"
)

// The endpoint that tokens are for, behind a proxy, and what the issuer knows its
// people by.
const (
	endpoint    = "https://approvals.example.com/mcp/gate"
	aliceAtWork = "00u-alice|108234567890123456789"
	bobAtWork   = "00u-bob"
)

// signingKeys are made once: the RSA ones take a while.
var signingKeys = sync.OnceValue(func() (keys struct {
	right, other, small *rsa.PrivateKey
	curve               *ecdsa.PrivateKey
	edwards             ed25519.PrivateKey
}) {
	var errs [5]error
	keys.right, errs[0] = rsa.GenerateKey(rand.Reader, 2048)
	keys.other, errs[1] = rsa.GenerateKey(rand.Reader, 2048)
	keys.small, errs[2] = rsa.GenerateKey(rand.Reader, 1024)
	keys.curve, errs[3] = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	_, keys.edwards, errs[4] = ed25519.GenerateKey(rand.Reader)
	for _, err := range errs {
		if err != nil {
			panic(err)
		}
	}
	return keys
})

// issuer is an authorization server that can be told to misbehave. It does what
// the standards say unless a test changes it.
type issuer struct {
	*httptest.Server
	clock *approvaltest.Clock

	mu       sync.Mutex
	metadata map[string]any // on top of what it says by itself; nil takes one out
	keys     []any          // jose.JSONWebKey, or anything
	answer   http.HandlerFunc
	asked    map[string]int // how often, by path
}

func newIssuer(t *testing.T, clock *approvaltest.Clock) *issuer {
	t.Helper()
	i := &issuer{clock: clock, metadata: map[string]any{}, asked: map[string]int{}}
	i.keys = []any{public("1", "RS256", signingKeys().right.Public())}
	i.Server = httptest.NewServer(i)
	t.Cleanup(i.Close)
	return i
}

func public(id, algorithm string, key any) jose.JSONWebKey {
	return jose.JSONWebKey{Key: key, KeyID: id, Algorithm: algorithm, Use: "sig"}
}

// withUse is a key that is for something.
func withUse(id string, key any, use string) jose.JSONWebKey {
	return jose.JSONWebKey{Key: key, KeyID: id, Use: use}
}

// publicPEM is how many write a public key, which is no secret.
func publicPEM(t testing.TB, key *rsa.PrivateKey) []byte {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
}

func (i *issuer) change(change func(*issuer)) {
	i.mu.Lock()
	defer i.mu.Unlock()
	change(i)
}

// times is how often a path was asked for.
func (i *issuer) times(path string) int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.asked[path]
}

const (
	openIDPath = "/.well-known/openid-configuration"
	oauthPath  = "/.well-known/oauth-authorization-server"
	keysPath   = "/keys"
)

func (i *issuer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	i.mu.Lock()
	i.asked[r.URL.Path]++
	answer := i.answer
	metadata := map[string]any{
		"issuer": i.URL, "jwks_uri": i.URL + keysPath, "authorization_endpoint": i.URL + "/authorize", "token_endpoint": i.URL + "/token",
		"id_token_signing_alg_values_supported": []string{"RS256", "HS256", "none"},
		"code_challenge_methods_supported":      []string{"S256"},
	}
	maps.Copy(metadata, i.metadata)
	maps.DeleteFunc(metadata, func(_ string, value any) bool { return value == nil })
	keys := map[string]any{"keys": i.keys}
	i.mu.Unlock()
	if answer != nil {
		answer(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	switch r.URL.Path {
	case openIDPath:
		_ = json.NewEncoder(w).Encode(metadata)
	case keysPath:
		_ = json.NewEncoder(w).Encode(keys)
	default:
		http.NotFound(w, r)
	}
}

// token is how an access token is made: what it says, on top of the right things
// (nil takes one out), and how it is signed.
type token struct {
	header, claims map[string]any
	text           string // of the claims, in place of them
	headerText     string // of the header, in place of it
	key            any    // nil for none
}

// signed returns an access token of the issuer for Alice, with changes.
func (i *issuer) signed(t testing.TB, changes ...func(*token)) string {
	t.Helper()
	now := i.clock.Now()
	made := &token{
		header: map[string]any{"alg": "RS256", "kid": "1", "typ": "at+jwt"},
		claims: map[string]any{
			"iss": i.URL, "sub": aliceAtWork, "aud": endpoint, "client_id": "desk-client", "jti": rand.Text(),
			"iat": now.Unix(), "exp": now.Add(5 * time.Minute).Unix(), "scope": "openid approvals",
		},
		key: signingKeys().right,
	}
	for _, change := range changes {
		change(made)
	}
	header, claims := made.headerText, made.text
	if header == "" {
		header = encoded(t, made.header)
	}
	if claims == "" {
		claims = encoded(t, made.claims)
	}
	return signAs(t, header, claims, made.key)
}

func encoded(t testing.TB, what map[string]any) string {
	t.Helper()
	maps.DeleteFunc(what, func(_ string, value any) bool { return value == nil })
	text, err := json.Marshal(what)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// signAs signs without a library, which would refuse much of what is tested.
func signAs(t testing.TB, header, claims string, key any) string {
	t.Helper()
	encode := base64.RawURLEncoding.EncodeToString
	text := encode([]byte(header)) + "." + encode([]byte(claims))
	sum := sha256.Sum256([]byte(text))
	var signature []byte
	var err error
	switch key := key.(type) {
	case *rsa.PrivateKey:
		signature, err = rsa.SignPKCS1v15(rand.Reader, key, crypto.SHA256, sum[:])
	case *ecdsa.PrivateKey:
		r, s, failed := ecdsa.Sign(rand.Reader, key, sum[:])
		signature, err = append(r.FillBytes(make([]byte, 32)), s.FillBytes(make([]byte, 32))...), failed
	case ed25519.PrivateKey:
		signature = ed25519.Sign(key, []byte(text))
	case []byte:
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(text))
		signature = mac.Sum(nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	return text + "." + encode(signature)
}

// say has a token say something; nil takes it out.
func say(name string, value any) func(*token) {
	return func(made *token) { made.claims[name] = value }
}

// head is say for the header.
func head(name string, value any) func(*token) {
	return func(made *token) { made.header[name] = value }
}

// by has a token signed with another key and algorithm.
func by(algorithm string, key any) func(*token) {
	return func(made *token) { made.header["alg"], made.key = algorithm, key }
}

// authorized is a server that takes the tokens of an issuer.
type authorized struct {
	*httpServer
	issuer   *issuer
	resource *mcp.Resource
	log      *written
}

func newAuthorized(t *testing.T, changes ...func(*mcp.Issuer)) *authorized {
	t.Helper()
	f := approvaltest.New(t)
	a := &authorized{issuer: newIssuer(t, f.Clock), log: newWritten()}
	trusted := mcp.Issuer{
		Address: a.issuer.URL,
		Agent:   "desk",
		People:  map[string]approval.Approver{aliceAtWork: approvaltest.Alice, bobAtWork: approvaltest.Bob},
	}
	for _, change := range changes {
		change(&trusted)
	}
	authorization := mcp.NewAuthorization(mcp.AuthorizationOptions{
		Issuers: []mcp.Issuer{trusted, {Address: a.issuer.URL + "/other", Agent: "other", People: map[string]approval.Approver{aliceAtWork: approvaltest.Carol}}},
		Now:     f.Clock.Now,
		Logger:  a.log.logger(),
	})
	a.resource = authorization.Resource(&url.URL{Scheme: "https", Host: "approvals.example.com", Path: "/"}, "/mcp/gate")
	a.httpServer = serveHTTP(t, f, newLocal(t, f, 0), mcp.HandlerOptions{
		Options:  mcp.Options{Logger: a.log.logger()},
		Resource: a.resource,
	})
	return a
}

// try makes a call with a token, and returns the answer and its text.
func (a *authorized) try(t testing.TB, token string) (*http.Response, string) {
	t.Helper()
	response := post(t, a.httpServer, discoverBody, modernHeaders(token, "server/discover", ""))
	return response, bodyOf(t, response)
}
