package mcp

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/countersign/countersign/internal/strictjson"
)

const (
	// maxAccessToken is how long an access token may be, in bytes.
	maxAccessToken = 16 << 10
	// maxSubject is how long what an issuer knows somebody by may be (OpenID
	// Connect Core, section 2).
	maxSubject = 255
	// clockSkew is how far an issuer's clock may be ahead of this one. Of a token's
	// end there is no such allowance: its client gets another.
	clockSkew = time.Minute
)

// asymmetric are the algorithms of signatures that nobody can make who can verify
// them.
var asymmetric = []jose.SignatureAlgorithm{
	jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512,
	jose.ES256, jose.ES384, jose.ES512, jose.EdDSA,
}

// isAccessToken tells access tokens from this server's own by their form: three
// parts with a dot between each two, of which the others have none.
func isAccessToken(secret string) bool { return strings.Count(secret, ".") == 2 }

// accessToken is a token that isn't verified.
type accessToken struct {
	signed    *jose.JSONWebSignature
	algorithm string
	key       string // the id of the key that it says it is signed with; may be empty
	kind      string // what it says it is; may be empty
	issuer    string // whose it says it is
}

// Errors of tokens, which their clients are told.
var (
	errNoAccessToken = errors.New("it isn't a signed token")
	errForm          = errors.New("it says something in another form than such a token does")
	errSignature     = errors.New("its signature isn't by a key of its issuer")
	errAnotherKind   = errors.New("it is another token than one to call with")
	errBound         = errors.New("it is bound to a proof that this server can't check")
)

// parseAccessToken reads a token as far as it takes to find the key that it must
// be signed with.
func parseAccessToken(text string) (*accessToken, error) {
	if len(text) > maxAccessToken {
		return nil, errors.New("it is too long")
	}
	signed, err := jose.ParseSignedCompact(text, asymmetric)
	if _, other := errors.AsType[*jose.ErrUnexpectedSignatureAlgorithm](err); other {
		return nil, errors.New("its algorithm isn't one that only its issuer can sign with")
	}
	if err != nil || len(signed.Signatures) != 1 {
		return nil, errNoAccessToken // the library's error may have some of the token in it
	}
	header := signed.Signatures[0].Protected
	// What changes how a token is to be read is nothing that an access token needs.
	for _, name := range []jose.HeaderKey{"crit", "b64"} {
		if _, there := header.ExtraHeaders[name]; there {
			return nil, errNoAccessToken
		}
	}
	token := &accessToken{signed: signed, algorithm: header.Algorithm, key: header.KeyID}
	if kind, there := header.ExtraHeaders[jose.HeaderType]; there {
		name, ok := kind.(string)
		if !ok || name == "" {
			return nil, errNoAccessToken
		}
		token.kind = strings.TrimPrefix(strings.ToLower(name), "application/")
	}
	unverified, err := readClaims(signed.UnsafePayloadWithoutVerification())
	if err != nil {
		return nil, err
	}
	token.issuer = unverified.Issuer
	return token, nil
}

// claims are what a token says.
type claims struct {
	Issuer    string
	Subject   string
	Audience  []string
	Expires   time.Time // zero if it doesn't say
	NotBefore time.Time // zero if it doesn't say
	IssuedAt  time.Time // zero if it doesn't say
	ID        string
	Party     string // azp: to whom it was given
	Client    string // client_id: the same, as RFC 9068 names it
	Scopes    []string

	Kind string // typ: what it is, as some issuers say it
	Use  string // token_use: the same, as others do

	others map[string]bool // the names of everything that it says
}

// readClaims reads what a token says. A name that is there twice, or one that
// only looks like a standard one, is nobody's word: they are compared exactly.
func readClaims(payload []byte) (*claims, error) {
	members, err := strictjson.Members(payload)
	if err != nil {
		return nil, errNoAccessToken
	}
	c := &claims{others: make(map[string]bool, len(members))}
	var scope, scopes []string
	ok := true
	for _, m := range members {
		c.others[m.Name] = true
		switch m.Name {
		case "iss":
			c.Issuer, ok = textIn(m.Value)
		case "sub":
			c.Subject, ok = textIn(m.Value)
		case "aud":
			c.Audience, ok = textsIn(m.Value)
		case "exp":
			c.Expires, ok = dateIn(m.Value)
		case "nbf":
			c.NotBefore, ok = dateIn(m.Value)
		case "iat":
			c.IssuedAt, ok = dateIn(m.Value)
		case "jti":
			c.ID, ok = textIn(m.Value)
		case "azp":
			c.Party, ok = textIn(m.Value)
		case "client_id":
			c.Client, ok = textIn(m.Value)
		case "scope":
			scope, ok = wordsIn(m.Value)
		case "scp":
			scopes, ok = wordsIn(m.Value)
		case "typ":
			c.Kind, ok = textIn(m.Value)
		case "token_use":
			c.Use, ok = textIn(m.Value)
		}
		if !ok {
			return nil, errForm
		}
	}
	c.Scopes = append(scope, scopes...)
	return c, nil
}

// textIn is a string that says something.
func textIn(value []byte) (string, bool) {
	var s string
	if value[0] != '"' || json.Unmarshal(value, &s) != nil {
		return "", false
	}
	return s, s != ""
}

// textsIn are strings, or a single one.
func textsIn(value []byte) ([]string, bool) {
	if one, ok := textIn(value); ok {
		return []string{one}, true
	}
	var written []json.RawMessage
	if value[0] != '[' || json.Unmarshal(value, &written) != nil {
		return nil, false
	}
	all := make([]string, len(written))
	for i, one := range written {
		var ok bool
		if all[i], ok = textIn(one); !ok {
			return nil, false
		}
	}
	return all, true
}

// wordsIn are the words of a string, or strings.
func wordsIn(value []byte) ([]string, bool) {
	if value[0] != '"' {
		return textsIn(value)
	}
	var s string
	err := json.Unmarshal(value, &s)
	return strings.Fields(s), err == nil
}

// dateIn is a time in seconds since 1970.
func dateIn(value []byte) (time.Time, bool) {
	var seconds jwt.NumericDate
	if seconds.UnmarshalJSON(value) != nil || seconds <= 0 {
		return time.Time{}, false
	}
	return seconds.Time(), true
}

// The kinds of signed tokens that can be ones to call with: such by name
// (RFC 9068), and by issuers that don't tell.
const (
	kindAccess = "at+jwt"
	kindAny    = "jwt"
)

// notToCallWith are the names of what only other tokens of an issuer say: that
// somebody has signed in, or out.
var notToCallWith = []string{"nonce", "at_hash", "c_hash", "s_hash", "events"}

// check says why a token that its issuer has signed isn't one to call with now,
// for one of the audiences.
func (c *claims) check(kind, issuer string, audiences []string, now time.Time) error {
	switch {
	case c.Issuer != issuer:
		return errors.New("it is of another issuer")
	case c.Expires.IsZero():
		return errors.New("it doesn't say when it ends")
	case !now.Before(c.Expires):
		return errors.New("it has expired")
	case c.NotBefore.After(now.Add(clockSkew)), c.IssuedAt.After(now.Add(clockSkew)):
		return errors.New("it isn't good yet")
	case c.others["cnf"]:
		return errBound
	case kind == kindAccess && (c.IssuedAt.IsZero() || c.ID == "" || c.Client == ""):
		return errors.New("it says less than such a token must")
	case kind != kindAccess && kind != kindAny && kind != "":
		return errAnotherKind
	case slices.ContainsFunc(notToCallWith, func(name string) bool { return c.others[name] }):
		return errAnotherKind
	case c.Kind != "" && !strings.EqualFold(c.Kind, "Bearer"), c.Use != "" && c.Use != "access":
		return errAnotherKind
	case !slices.ContainsFunc(audiences, func(one string) bool { return slices.Contains(c.Audience, one) }):
		return errors.New("it is meant for another server")
	case c.Subject == "" || len(c.Subject) > maxSubject:
		return errors.New("it doesn't say for whom it is")
	}
	return nil
}

// clients are whom the token says that it was given to.
func (c *claims) clients() []string {
	var all []string
	for _, one := range []string{c.Party, c.Client} {
		if one != "" && !slices.Contains(all, one) {
			all = append(all, one)
		}
	}
	return all
}

// givenTo reports whether the token was given to one of the clients, in each way
// in which it says so.
func (c *claims) givenTo(allowed []string) bool {
	named := c.clients()
	return len(named) > 0 && !slices.ContainsFunc(named, func(one string) bool { return !slices.Contains(allowed, one) })
}

// lacks returns the scopes that the token doesn't have.
func (c *claims) lacks(scopes []string) []string {
	return slices.DeleteFunc(slices.Clone(scopes), func(one string) bool { return slices.Contains(c.Scopes, one) })
}
