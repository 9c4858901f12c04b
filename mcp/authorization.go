package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/oauthex"

	"github.com/countersign/countersign/approval"
)

// metadataPath is where the metadata of each resource is: below it is the
// resource's own path (RFC 9728).
const metadataPath = "/.well-known/oauth-protected-resource"

// Issuer is an OAuth authorization server with whose access tokens people's
// agents may call. Whom it names is looked up in an explicit table, and nothing
// else that it says of them counts.
type Issuer struct {
	// Address must be exactly what the issuer calls itself.
	Address string
	// Audiences are what a token may be meant for, besides the address that it is
	// shown at.
	Audiences []string
	// Scopes are what a token must have, all of them.
	Scopes []string
	// Agent is the name of the agent that people connect with from there.
	Agent string
	// Clients are the ids of those that may connect; empty means each that the
	// issuer gives tokens to.
	Clients []string
	// People are those whose agents may connect, by what the issuer knows them by
	// (the subject of its tokens).
	People map[string]approval.Approver
}

// AuthorizationOptions set up an Authorization.
type AuthorizationOptions struct {
	Issuers []Issuer // each with another address
	// Now is the clock that tokens are good by; nil means time.Now.
	Now func() time.Time
	// Logger gets what no caller is told; nil discards it.
	Logger *slog.Logger
}

// Authorization finds out from access tokens for whom an agent acts. The tokens
// are signed ones (RFC 9068), verified here: their issuer is asked for its keys
// and for nothing else.
type Authorization struct {
	issuers []*knownIssuer
	scopes  []string // of all issuers
	now     func() time.Time
	logger  *slog.Logger
}

// knownIssuer is an issuer with its keys.
type knownIssuer struct {
	Issuer
	keys *issuerKeys
}

// NewAuthorization returns what verifies the access tokens of issuers.
func NewAuthorization(options AuthorizationOptions) *Authorization {
	if options.Now == nil {
		options.Now = time.Now
	}
	if options.Logger == nil {
		options.Logger = slog.New(slog.DiscardHandler)
	}
	a := &Authorization{now: options.Now, logger: options.Logger}
	for _, one := range options.Issuers {
		a.issuers = append(a.issuers, &knownIssuer{one, newIssuerKeys(one.Address, options.Now, options.Logger)})
		for _, scope := range one.Scopes {
			if !slices.Contains(a.scopes, scope) {
				a.scopes = append(a.scopes, scope)
			}
		}
	}
	return a
}

// Resource is one endpoint as what tokens are meant for (RFC 8707). The same
// issuers' tokens for another endpoint aren't taken.
type Resource struct {
	*Authorization
	address  string
	metadata *url.URL // where its metadata is
}

// Resource returns the endpoint at a path, such as /mcp, of the server that agents
// reach at an address. Of that, scheme and host count.
func (a *Authorization) Resource(server *url.URL, path string) *Resource {
	at := url.URL{Scheme: server.Scheme, Host: server.Host, Path: path}
	metadata := at
	metadata.Path = metadataPath + path
	return &Resource{a, at.String(), &metadata}
}

// MetadataPath is where clients look for ServeMetadata.
func (r *Resource) MetadataPath() string { return r.metadata.Path }

// ServeMetadata tells clients where they get tokens for the resource (RFC 9728).
// That is for everybody to read, also for pages elsewhere.
func (r *Resource) ServeMetadata(w http.ResponseWriter, request *http.Request) {
	header := w.Header()
	header.Set("Access-Control-Allow-Origin", "*")
	switch request.Method {
	case http.MethodGet, http.MethodHead:
	case http.MethodOptions:
		// Clients in a browser say which protocol they speak also here, for which
		// the browser asks beforehand.
		header.Set("Access-Control-Allow-Methods", "GET")
		header.Set("Access-Control-Allow-Headers", protocolHeader)
		w.WriteHeader(http.StatusNoContent)
		return
	default:
		header.Set("Allow", "GET, HEAD, OPTIONS")
		http.Error(w, "This can only be read.", http.StatusMethodNotAllowed)
		return
	}
	said := &oauthex.ProtectedResourceMetadata{
		Resource:               r.address,
		ScopesSupported:        r.scopes,
		BearerMethodsSupported: []string{"header"},
		ResourceName:           "Countersign",
	}
	for _, one := range r.issuers {
		said.AuthorizationServers = append(said.AuthorizationServers, one.Address)
	}
	header.Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(said) // the reader went away
}

// challenge is what a client is told that has to come with another token: why
// (RFC 6750), with which scopes, and where it gets one (RFC 9728), which is
// nothing if there is no resource.
func (r *Resource) challenge(code string, scopes []string) string {
	said := `Bearer realm="countersign"`
	if code != "" {
		said += fmt.Sprintf(`, error="%s"`, code)
	}
	if r == nil {
		return said
	}
	if len(scopes) > 0 {
		said += fmt.Sprintf(`, scope="%s"`, strings.Join(scopes, " "))
	}
	return said + fmt.Sprintf(`, resource_metadata="%s"`, r.metadata)
}

// Why a token isn't enough, as RFC 6750 names it.
const (
	invalidToken      = "invalid_token"
	insufficientScope = "insufficient_scope"
)

// needed is the answer to a request without a token.
func (r *Resource) needed() *denial {
	text := "a bearer token is needed; `countersign token create` makes one"
	var scopes []string
	if r != nil {
		text += ", and a client that can sign people in gets one by itself"
		scopes = r.scopes
	}
	return &denial{status: http.StatusUnauthorized, text: text, challenge: r.challenge("", scopes)}
}

// unknown is the answer to a token of this server's own that isn't good, or is of
// no kind.
func (r *Resource) unknown() *denial {
	var scopes []string
	if r != nil {
		scopes = r.scopes
	}
	return &denial{
		status:    http.StatusUnauthorized,
		text:      "the token is unknown or revoked; `countersign token create` makes a new one",
		challenge: r.challenge(invalidToken, scopes),
	}
}

// identify finds out from an access token which agent calls, and for whom.
//
// What the issuer says is checked before what this server's operator says: only
// those whom the issuer names are told whether they are expected here.
func (r *Resource) identify(ctx context.Context, text string) (approval.Agent, *denial) {
	refused := func(why error) (approval.Agent, *denial) {
		r.logger.Debug("refusing an access token", "resource", r.address, "err", why)
		return approval.Agent{}, &denial{
			status:    http.StatusUnauthorized,
			text:      fmt.Sprintf("the access token isn't accepted: %v", why),
			challenge: r.challenge(invalidToken, r.scopes),
		}
	}
	token, err := parseAccessToken(text)
	if err != nil {
		return refused(err)
	}
	at := slices.IndexFunc(r.issuers, func(one *knownIssuer) bool { return one.Address == token.issuer })
	if at < 0 {
		return refused(errors.New("it is of another issuer than those that this server knows"))
	}
	from := r.issuers[at]
	signed, err := from.keys.verify(ctx, token)
	if errors.Is(err, errNoKeys) {
		return approval.Agent{}, &denial{status: http.StatusServiceUnavailable, text: "access tokens can't be checked now; try again"}
	}
	if err != nil {
		return refused(err)
	}
	if err := signed.check(token.kind, from.Address, append([]string{r.address}, from.Audiences...), r.now()); err != nil {
		return refused(err)
	}
	who, known := from.People[signed.Subject]
	if !known || who.IsZero() {
		r.logger.Warn("somebody connects who isn't in the table of people", "issuer", from.Address, "subject", signed.Subject)
		return approval.Agent{}, &denial{status: http.StatusForbidden, text: "you aren't among the people whose agents may connect; who runs this server can add you"}
	}
	if len(from.Clients) > 0 && !signed.givenTo(from.Clients) {
		r.logger.Warn("a client connects that isn't among those that may", "issuer", from.Address, "subject", signed.Subject, "clients", signed.clients())
		return approval.Agent{}, &denial{status: http.StatusForbidden, text: "this client isn't among those that may connect; who runs this server can add it"}
	}
	if missing := signed.lacks(from.Scopes); len(missing) > 0 {
		return approval.Agent{}, &denial{
			status:    http.StatusForbidden,
			text:      "the access token lacks a scope: " + strings.Join(missing, " "),
			challenge: r.challenge(insufficientScope, from.Scopes),
		}
	}
	return approval.Agent{Name: from.Agent, Owner: who}, nil
}
