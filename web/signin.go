package web

import (
	"cmp"
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/internal/loopback"
)

// Where a browser is sent back to after it has signed in with Slack. The app's
// manifest names it. After it has signed in with another provider, it is the
// address below it that ends in the provider's name.
const CallbackPath = "/sign-in/callback"

// slackIssuer is who says who somebody is:
// https://docs.slack.dev/authentication/sign-in-with-slack/
const slackIssuer = "https://slack.com"

// slackName is what Slack is called among the providers.
const slackName = "Slack"

// providerLimit is how long a provider may take for one answer.
const providerLimit = 10 * time.Second

// clockSkew is how far a provider's clock may be behind this one.
const clockSkew = time.Minute

// SignIn is how people sign in. Who they are is the same whichever way they take:
// somebody of the workspace, whose account there and whose roles count.
type SignIn struct {
	// Workspace is the only one whose people can sign in.
	Workspace string
	// ClientID and ClientSecret are the Slack app's; without them nobody signs in
	// with Slack.
	ClientID, ClientSecret string
	// Issuer is empty for Slack's own.
	Issuer string
	// Providers are others who say who somebody is.
	Providers []Provider
}

// Provider is an OpenID provider that isn't Slack. Whom it names is looked up in
// an explicit table, and nothing else that it says of them counts.
type Provider struct {
	// Name is what people know it by, and the end of the address that it sends
	// them back to: letters, digits and dashes, and no other provider's.
	Name string
	// Issuer is its address, which must be exactly what it calls itself.
	Issuer string
	// ClientID and ClientSecret are what it knows this server by.
	ClientID, ClientSecret string
	// People are the Slack user ids of those who can sign in, by what the provider
	// knows them by (the subject of its identities).
	People map[string]string
}

// Callback is the path that the provider sends browsers back to.
func (p Provider) Callback() string { return CallbackPath + "/" + p.Name }

// identity is who has signed in, as a provider says.
type identity struct {
	who approval.Approver
	// provedAt is when they proved who they are; zero if the provider doesn't say.
	provedAt time.Time
}

// provider says who somebody is. It is asked what it can do when somebody first
// signs in, and again until it has answered.
type provider struct {
	Provider
	callback string // the path that it sends browsers back to
	redirect string // the same as an address
	ask      []oauth2.AuthCodeOption
	person   func(*oidc.IDToken) (approval.Approver, error)
	client   *http.Client
	now      func() time.Time

	mu    sync.Mutex
	asked func() (*discovered, error) // waits for the answer; nil if there was none yet
}

// newProviders returns those that people can sign in with, in the order in which
// they are offered. The server is at the address that is given.
func newProviders(options SignIn, address string, now func() time.Time) []*provider {
	client := &http.Client{
		Timeout: providerLimit,
		// What is sent has secrets in it, and goes where the provider said.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	var all []*provider
	if options.ClientID != "" {
		all = append(all, &provider{
			Provider: Provider{Name: slackName, Issuer: cmp.Or(options.Issuer, slackIssuer), ClientID: options.ClientID, ClientSecret: options.ClientSecret},
			callback: CallbackPath,
			ask:      []oauth2.AuthCodeOption{oauth2.SetAuthURLParam("team", options.Workspace)},
			person:   slackPerson(options.Workspace),
		})
	}
	for _, one := range options.Providers {
		all = append(all, &provider{Provider: one, callback: one.Callback(), person: listedPerson(options.Workspace, one.People)})
	}
	for _, one := range all {
		one.redirect, one.client, one.now = address+one.callback, client, now
	}
	return all
}

// discovered is what a provider says that it can do.
type discovered struct {
	*oidc.Provider
	Endpoints struct {
		Authorization string `json:"authorization_endpoint"`
		Token         string `json:"token_endpoint"`
		Keys          string `json:"jwks_uri"`
	}
	// Proofs are the kinds of PKCE: RFC 7636.
	Proofs []string `json:"code_challenge_methods_supported"`
	// NamesItself says that it sends its issuer along with each browser: RFC 9207.
	NamesItself bool `json:"authorization_response_iss_parameter_supported"`
	// SecretIn is how it wants to be shown the client's secret. If it doesn't say,
	// it is client_secret_basic.
	SecretIn []string `json:"token_endpoint_auth_methods_supported"`
}

// proof is the one kind of PKCE that hides what is proved.
const proof = "S256"

func (d *discovered) takesProof() bool { return slices.Contains(d.Proofs, proof) }

// look returns what the provider says that it can do. However many people wait
// for that, it is asked once.
func (p *provider) look(ctx context.Context) (*discovered, error) {
	p.mu.Lock()
	if p.asked == nil {
		p.asked = sync.OnceValues(func() (*discovered, error) {
			found, err := p.discover(ctx)
			if err != nil {
				p.mu.Lock()
				defer p.mu.Unlock()
				p.asked = nil
				return nil, fmt.Errorf("asking %s how people sign in: %w", p.Issuer, err)
			}
			return found, nil
		})
	}
	answer := p.asked
	p.mu.Unlock()
	return answer()
}

func (p *provider) discover(ctx context.Context) (*discovered, error) {
	// Others may wait for the answer, too, and its keys are fetched with this context
	// whenever they change.
	answered, err := oidc.NewProvider(oidc.ClientContext(context.WithoutCancel(ctx), p.client), p.Issuer)
	if err != nil {
		return nil, err
	}
	found := discovered{Provider: answered}
	if err := errors.Join(answered.Claims(&found), answered.Claims(&found.Endpoints)); err != nil {
		return nil, err
	}
	for _, one := range []string{found.Endpoints.Authorization, found.Endpoints.Token, found.Endpoints.Keys} {
		if address, err := url.Parse(one); err != nil || address.Scheme != "https" && (address.Scheme != "http" || !loopback.Is(address.Hostname())) {
			return nil, fmt.Errorf("it names %q, which isn't an https address", one)
		}
	}
	if len(found.SecretIn) > 0 && !slices.Contains(found.SecretIn, secretInHeader) && !slices.Contains(found.SecretIn, secretInBody) {
		return nil, fmt.Errorf("it takes no client secret, only %s", strings.Join(found.SecretIn, ", "))
	}
	return &found, nil
}

// The ways of showing a client's secret.
const (
	secretInHeader = "client_secret_basic"
	secretInBody   = "client_secret_post"
)

func (p *provider) flow(found *discovered) *oauth2.Config {
	endpoint := found.Endpoint()
	// Trying both would use up the code with the first.
	endpoint.AuthStyle = oauth2.AuthStyleInHeader
	if len(found.SecretIn) > 0 && !slices.Contains(found.SecretIn, secretInHeader) {
		endpoint.AuthStyle = oauth2.AuthStyleInParams
	}
	return &oauth2.Config{
		ClientID:     p.ClientID,
		ClientSecret: p.ClientSecret,
		Endpoint:     endpoint,
		RedirectURL:  p.redirect,
		Scopes:       []string{oidc.ScopeOpenID},
	}
}

// address is where a browser is sent to sign in. The state comes back with it.
func (p *provider) address(ctx context.Context, state token, attempt signInAttempt) (string, error) {
	found, err := p.look(ctx)
	if err != nil {
		return "", err
	}
	// Whoever is asked for a limit has to say when somebody proved who they are.
	limit, ask := sessionLimit, slices.Clone(p.ask)
	if attempt.anew {
		limit, ask = 0, append(ask, oauth2.SetAuthURLParam("prompt", "login"))
	}
	ask = append(ask, oidc.Nonce(attempt.nonce), oauth2.SetAuthURLParam("max_age", fmt.Sprintf("%.0f", limit.Seconds())))
	if found.takesProof() {
		ask = append(ask, oauth2.S256ChallengeOption(attempt.verifier))
	}
	return p.flow(found).AuthCodeURL(string(state), ask...), nil
}

var (
	// errNotOurs means that somebody has signed in whom the provider's table or
	// the workspace doesn't have.
	errNotOurs = errors.New("this account isn't one that can sign in")
	// errGivenUp means that a browser came back without having signed in.
	errGivenUp = errors.New("signing in was given up")
	// errNotAsked means that somebody should have proved anew who they are, and
	// the provider doesn't say that they did.
	errNotAsked = errors.New("the provider doesn't say that it asked anew who this is")
)

// identify trades what a browser came back with for who has signed in.
func (p *provider) identify(ctx context.Context, query url.Values, attempt signInAttempt) (identity, error) {
	found, err := p.look(ctx)
	if err != nil {
		return identity{}, err
	}
	// Before the code is given away: it may be another provider's.
	if named, is := query["iss"]; (is || found.NamesItself) && !slices.Equal(named, []string{p.Issuer}) {
		return identity{}, errors.New("the browser comes from another provider than it was sent to")
	}
	if len(query["code"]) != 1 || query.Get("code") == "" {
		return identity{}, errGivenUp
	}
	var trade []oauth2.AuthCodeOption
	if found.takesProof() {
		trade = append(trade, oauth2.VerifierOption(attempt.verifier))
	}
	answer, err := p.flow(found).Exchange(oidc.ClientContext(ctx, p.client), query.Get("code"), trade...)
	if err != nil {
		// The library's error may have the answer in it, and that a secret.
		if refused, ok := errors.AsType[*oauth2.RetrieveError](err); ok {
			return identity{}, fmt.Errorf("trading the code: refused as %q", refused.ErrorCode)
		}
		return identity{}, errors.New("trading the code: there was no answer that can be used")
	}
	raw, _ := answer.Extra("id_token").(string)
	signed, err := found.Verifier(&oidc.Config{ClientID: p.ClientID, Now: p.now}).Verify(oidc.ClientContext(ctx, p.client), raw)
	if err != nil {
		return identity{}, fmt.Errorf("verifying the identity: %w", err)
	}
	return p.read(signed, attempt)
}

// read takes from a verified identity who it is of, if it is for this sign-in.
func (p *provider) read(signed *oidc.IDToken, attempt signInAttempt) (identity, error) {
	if subtle.ConstantTimeCompare([]byte(signed.Nonce), []byte(attempt.nonce)) != 1 {
		return identity{}, errors.New("verifying the identity: it is of another sign-in")
	}
	var claims struct {
		Party    string `json:"azp"`
		ProvedAt *int64 `json:"auth_time"`
	}
	if err := signed.Claims(&claims); err != nil {
		return identity{}, fmt.Errorf("reading the identity: %w", err)
	}
	if claims.Party != p.ClientID && (claims.Party != "" || len(signed.Audience) > 1) {
		return identity{}, errors.New("verifying the identity: it was given to another client")
	}
	who, err := p.person(signed)
	if err != nil {
		return identity{}, err
	}
	is := identity{who: who}
	if claims.ProvedAt != nil {
		is.provedAt = time.Unix(*claims.ProvedAt, 0)
		if now := p.now(); is.provedAt.After(now) {
			is.provedAt = now
		}
	}
	if attempt.anew && is.provedAt.Before(attempt.begunAt.Add(-clockSkew)) {
		return identity{}, errNotAsked
	}
	return is, nil
}

// slackPerson reads the identities that Slack signs, which name who it is.
func slackPerson(workspace string) func(*oidc.IDToken) (approval.Approver, error) {
	return func(signed *oidc.IDToken) (approval.Approver, error) {
		var claims struct {
			Workspace string `json:"https://slack.com/team_id"`
			User      string `json:"https://slack.com/user_id"`
		}
		if err := signed.Claims(&claims); err != nil {
			return approval.Approver{}, fmt.Errorf("reading the identity: %w", err)
		}
		if claims.User == "" || claims.Workspace == "" {
			return approval.Approver{}, errors.New("reading the identity: it doesn't say whose it is")
		}
		if claims.Workspace != workspace {
			return approval.Approver{}, errNotOurs
		}
		return approval.Approver{Workspace: claims.Workspace, User: claims.User}, nil
	}
}

// listedPerson looks up whom another provider names.
func listedPerson(workspace string, people map[string]string) func(*oidc.IDToken) (approval.Approver, error) {
	return func(signed *oidc.IDToken) (approval.Approver, error) {
		user := people[signed.Subject]
		if user == "" || signed.Subject == "" {
			return approval.Approver{}, errNotOurs
		}
		return approval.Approver{Workspace: workspace, User: user}, nil
	}
}

// SignInFinding is what is to be known of one way to sign in.
type SignInFinding struct {
	OK       bool
	Provider string
	Text     string
}

// CheckSignIn asks each provider how people sign in with it, as a server does when
// somebody does, and returns what it says. The server is at the address that is
// given, without a slash at its end.
func CheckSignIn(ctx context.Context, options SignIn, address string) []SignInFinding {
	var findings []SignInFinding
	for _, one := range newProviders(options, address, time.Now) {
		found, err := one.look(ctx)
		if err != nil {
			findings = append(findings, SignInFinding{false, one.Name, err.Error()})
			continue
		}
		text := "it must send people back to " + one.redirect
		if one.People != nil {
			text = fmt.Sprintf("%d in its table; %s", len(one.People), text)
		}
		if one.Name != slackName && !found.takesProof() {
			text += "; it doesn't support PKCE"
		}
		findings = append(findings, SignInFinding{true, one.Name, text})
	}
	return findings
}
