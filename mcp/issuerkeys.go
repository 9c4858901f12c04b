package mcp

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/countersign/countersign/internal/loopback"
)

const (
	// issuerLimit is how long an issuer may take to say what its keys are.
	issuerLimit = 5 * time.Second
	// maxIssuerAnswer is how long an answer of an issuer may be, in bytes.
	maxIssuerAnswer = 256 << 10
	// maxIssuerKeys is how many keys of an issuer count: a token that doesn't say
	// which one it is signed with is tried with each.
	maxIssuerKeys = 32
	// keysFresh is for how long keys are used without asking for them again. It is
	// how long one that an issuer takes back is believed.
	keysFresh = 10 * time.Minute
	// keysKept is for how long they are used when the issuer doesn't answer.
	keysKept = time.Hour
	// askPause is how long an issuer isn't asked again, whatever tokens come: who
	// makes up keys must not have it asked for each.
	askPause = 10 * time.Second
)

// errNoKeys means that the keys of an issuer can't be had, which says nothing of
// a token.
var errNoKeys = errors.New("the issuer's keys can't be had")

// issuerKeys are the keys of one issuer. It is asked for them when a token comes,
// and then now and again: at once for those that come at the same time, and not
// more often than every askPause.
type issuerKeys struct {
	issuer string
	client *http.Client
	now    func() time.Time
	logger *slog.Logger

	mu      sync.Mutex
	keys    []issuerKey
	haveAt  time.Time     // when the keys were had; zero if they never were
	askedAt time.Time     // when the issuer was last asked; zero if it never was
	silent  bool          // it didn't answer then
	asking  chan struct{} // closed when it has answered; nil if it isn't being asked
}

// issuerKey is a key with the algorithms that its issuer signs with it.
type issuerKey struct {
	jose.JSONWebKey
	algorithms []string
}

func newIssuerKeys(issuer string, now func() time.Time, logger *slog.Logger) *issuerKeys {
	return &issuerKeys{issuer: issuer, client: newIssuerClient(), now: now, logger: logger}
}

// newIssuerClient returns a client that goes nowhere but where it is sent.
func newIssuerClient() *http.Client {
	return &http.Client{
		Timeout:       issuerLimit,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// verify returns what a token says, if a key of the issuer has signed it.
func (k *issuerKeys) verify(ctx context.Context, token *accessToken) (*claims, error) {
	keys, err := k.known(ctx, func(keys []issuerKey) bool {
		return token.key == "" || slices.ContainsFunc(keys, func(one issuerKey) bool { return one.KeyID == token.key })
	})
	if err != nil {
		return nil, err
	}
	if payload, ok := token.signedBy(keys); ok {
		return readClaims(payload)
	}
	if token.key != "" {
		return nil, errSignature
	}
	// It may be by a new key in the place of an old one, neither of which has an id.
	if keys, err = k.known(ctx, func([]issuerKey) bool { return false }); err != nil {
		return nil, err
	}
	if payload, ok := token.signedBy(keys); ok {
		return readClaims(payload)
	}
	return nil, errSignature
}

// signedBy returns the payload of a token that one of the keys has signed.
func (t *accessToken) signedBy(keys []issuerKey) ([]byte, bool) {
	for _, one := range keys {
		if t.key != "" && t.key != one.KeyID || !slices.Contains(one.algorithms, t.algorithm) {
			continue
		}
		if payload, err := t.signed.Verify(one.Key); err == nil {
			return payload, true
		}
	}
	return nil, false
}

// known returns the issuer's keys. It is asked for them if they aren't enough or
// are too old, and if it may be asked again.
func (k *issuerKeys) known(ctx context.Context, enough func([]issuerKey) bool) ([]issuerKey, error) {
	for {
		k.mu.Lock()
		now := k.now()
		have := !k.haveAt.IsZero() && within(now, k.haveAt, keysKept)
		if have && within(now, k.haveAt, keysFresh) && enough(k.keys) {
			defer k.mu.Unlock()
			return k.keys, nil
		}
		if k.asking == nil && !k.askedAt.IsZero() && within(now, k.askedAt, askPause) {
			defer k.mu.Unlock()
			if !have || k.silent && !enough(k.keys) {
				return nil, errNoKeys
			}
			return k.keys, nil
		}
		if k.asking == nil {
			k.asking, k.askedAt = make(chan struct{}), now
			go k.ask()
		}
		asking := k.asking
		k.mu.Unlock()
		select {
		case <-asking:
		case <-ctx.Done():
			return nil, errNoKeys
		}
	}
}

// within reports whether a time was less than a while ago. What a clock that was
// set back says of the past isn't believed.
func within(now, then time.Time, while time.Duration) bool {
	return !now.Before(then) && now.Sub(then) < while
}

// ask asks the issuer. Who caused it may be gone by then, but others wait, too.
func (k *issuerKeys) ask() {
	ctx, cancel := context.WithTimeout(context.Background(), issuerLimit)
	defer cancel()
	said, err := askIssuer(ctx, k.client, k.issuer)
	if err != nil {
		k.logger.Error("asking an issuer for its keys", "issuer", k.issuer, "err", err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.askedAt, k.silent = k.now(), err != nil
	if err == nil {
		k.keys, k.haveAt = said.keys, k.askedAt
	}
	close(k.asking)
	k.asking = nil
}

// issuerMetadata is what an issuer says of itself (RFC 8414, OpenID Connect
// Discovery).
type issuerMetadata struct {
	Issuer        string   `json:"issuer"`
	Keys          string   `json:"jwks_uri"`
	Algorithms    []string `json:"id_token_signing_alg_values_supported"`
	Authorization string   `json:"authorization_endpoint"`
	Token         string   `json:"token_endpoint"`
	Registration  string   `json:"registration_endpoint"`
	// Documents says that clients can register by a document of theirs.
	Documents bool `json:"client_id_metadata_document_supported"`
	// Proofs are the kinds of PKCE: RFC 7636.
	Proofs []string `json:"code_challenge_methods_supported"`

	keys []issuerKey
}

// askIssuer asks an issuer about itself, and for its keys.
func askIssuer(ctx context.Context, client *http.Client, issuer string) (*issuerMetadata, error) {
	at, err := url.Parse(issuer)
	if err != nil {
		return nil, err
	}
	if err := mayAsk(at, at); err != nil {
		return nil, err
	}
	// The two standards agree on what is said, and not on where.
	ofOAuth := *at
	ofOAuth.Path, ofOAuth.RawPath = "/.well-known/oauth-authorization-server"+strings.TrimSuffix(at.Path, "/"), ""
	var said issuerMetadata
	err = getJSON(ctx, client, strings.TrimSuffix(issuer, "/")+"/.well-known/openid-configuration", &said)
	if _, refused := errors.AsType[statusError](err); refused {
		if getJSON(ctx, client, ofOAuth.String(), &said) == nil {
			err = nil
		}
	}
	if err != nil {
		return nil, fmt.Errorf("reading its metadata: %w", err)
	}
	if said.Issuer != issuer {
		return nil, fmt.Errorf("it calls itself %q", said.Issuer)
	}
	keysAt, err := url.Parse(said.Keys)
	if err != nil || keysAt.Host == "" {
		return nil, errors.New("it doesn't say where its keys are")
	}
	if err := mayAsk(keysAt, at); err != nil {
		return nil, fmt.Errorf("reading its keys: %w", err)
	}
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := getJSON(ctx, client, said.Keys, &set); err != nil {
		return nil, fmt.Errorf("reading its keys: %w", err)
	}
	for _, written := range set.Keys {
		if one, ok := said.key(written); ok && len(said.keys) < maxIssuerKeys {
			said.keys = append(said.keys, one)
		}
	}
	if len(said.keys) == 0 {
		return nil, errors.New("it has no key to verify signatures with")
	}
	return &said, nil
}

// mayAsk refuses addresses at which others could answer in the place of an issuer,
// or that lead into this machine.
func mayAsk(address, issuer *url.URL) error {
	switch {
	case address.Scheme == "https":
		return nil
	case address.Scheme == "http" && loopback.Is(address.Hostname()) && issuer.Scheme == "http" && loopback.Is(issuer.Hostname()):
		return nil
	}
	return fmt.Errorf("%q isn't an https address", address.Redacted())
}

// The sizes of RSA keys in bits that count. Larger ones take long to verify with.
const (
	minRSA = 2048
	maxRSA = 8192
)

// key reads a key that signatures can be verified with. Others, such as such of
// kinds that nobody knew of when this was written, are left out.
func (m *issuerMetadata) key(written []byte) (issuerKey, bool) {
	var one issuerKey
	if one.JSONWebKey.UnmarshalJSON(written) != nil || !one.Valid() || !one.IsPublic() || one.Use != "" && one.Use != "sig" {
		return issuerKey{}, false
	}
	possible := algorithmsOf(one.Key)
	announced := m.Algorithms
	if one.Algorithm != "" {
		announced = []string{one.Algorithm}
	} else if len(announced) == 0 {
		announced = []string{string(jose.RS256)} // which each must have
	}
	for _, name := range possible {
		if slices.Contains(announced, string(name)) {
			one.algorithms = append(one.algorithms, string(name))
		}
	}
	return one, len(one.algorithms) > 0
}

// algorithmsOf returns the algorithms that a key can be for.
func algorithmsOf(key any) []jose.SignatureAlgorithm {
	switch key := key.(type) {
	case *rsa.PublicKey:
		if bits := key.N.BitLen(); bits >= minRSA && bits <= maxRSA {
			return []jose.SignatureAlgorithm{jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512}
		}
	case *ecdsa.PublicKey:
		switch key.Curve {
		case elliptic.P256():
			return []jose.SignatureAlgorithm{jose.ES256}
		case elliptic.P384():
			return []jose.SignatureAlgorithm{jose.ES384}
		case elliptic.P521():
			return []jose.SignatureAlgorithm{jose.ES512}
		}
	case ed25519.PublicKey:
		return []jose.SignatureAlgorithm{jose.EdDSA}
	}
	return nil
}

// statusError is an answer that isn't what was asked for.
type statusError int

func (e statusError) Error() string {
	if e >= 300 && e < 400 {
		return "it leads on to another address, where it isn't followed"
	}
	return fmt.Sprintf("it answers %d", int(e))
}

// getJSON reads the answer of an issuer. Nothing of it is in an error.
func getJSON(ctx context.Context, client *http.Client, address string, into any) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return err
	}
	request.Header.Set("Accept", "application/json")
	request.Close = true // it is asked seldom
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return statusError(response.StatusCode)
	}
	answer, err := io.ReadAll(io.LimitReader(response.Body, maxIssuerAnswer+1))
	if err != nil {
		return err
	}
	if len(answer) > maxIssuerAnswer {
		return errors.New("the answer is too long")
	}
	if json.Unmarshal(answer, into) != nil {
		return errors.New("the answer isn't the JSON that it should be")
	}
	return nil
}

// IssuerFinding is what is to be known of one issuer.
type IssuerFinding struct {
	OK     bool
	Issuer string
	Text   string
}

// CheckIssuers asks each issuer about itself, as a server does when a token comes,
// and returns what it says and what clients will miss.
func CheckIssuers(ctx context.Context, issuers []Issuer) []IssuerFinding {
	var findings []IssuerFinding
	for _, one := range issuers {
		said, err := askIssuer(ctx, newIssuerClient(), one.Address)
		if err != nil {
			findings = append(findings, IssuerFinding{false, one.Address, err.Error()})
			continue
		}
		var algorithms []string
		for _, key := range said.keys {
			algorithms = append(algorithms, key.algorithms...)
		}
		slices.Sort(algorithms)
		text := fmt.Sprintf("%d in its table; it signs with %s", len(one.People), strings.Join(slices.Compact(algorithms), ", "))
		problem := ""
		switch {
		case said.Authorization == "" || said.Token == "":
			problem = "it doesn't say where people sign in and where clients get tokens"
		case !slices.Contains(said.Proofs, "S256"):
			problem = "it doesn't say that it supports PKCE (S256), without which MCP clients ask for no token"
		case said.Registration == "" && !said.Documents:
			text += "; it takes no client by itself, so each must be registered with it"
		}
		if problem != "" {
			findings = append(findings, IssuerFinding{false, one.Address, problem})
			continue
		}
		findings = append(findings, IssuerFinding{true, one.Address, text})
	}
	return findings
}
