package web

import (
	"cmp"
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/countersign/countersign/approval"
)

// Where a browser is sent back to after it has signed in with Slack. The app's
// manifest names it.
const CallbackPath = "/sign-in/callback"

// slackIssuer is who says who somebody is:
// https://docs.slack.dev/authentication/sign-in-with-slack/
const slackIssuer = "https://slack.com"

// providerLimit is how long the provider may take for one answer.
const providerLimit = 10 * time.Second

// SignIn is how people sign in with Slack.
type SignIn struct {
	// ClientID and ClientSecret are the app's.
	ClientID, ClientSecret string
	// Issuer is empty for Slack's own.
	Issuer string
	// Workspace is the only one whose people can sign in.
	Workspace string
}

// provider is Slack as the one who says who somebody is. It is asked what it can
// do when somebody first signs in, and again until it has answered.
type provider struct {
	options  SignIn
	redirect string
	client   *http.Client
	now      func() time.Time

	mu    sync.Mutex
	found *oidc.Provider
}

func newProvider(options SignIn, redirect string, now func() time.Time) *provider {
	options.Issuer = cmp.Or(options.Issuer, slackIssuer)
	return &provider{options: options, redirect: redirect, client: &http.Client{Timeout: providerLimit}, now: now}
}

// look returns what the provider says that it can do.
func (p *provider) look(ctx context.Context) (*oidc.Provider, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.found != nil {
		return p.found, nil
	}
	// Its keys are fetched with this context, whenever they change.
	found, err := oidc.NewProvider(oidc.ClientContext(context.WithoutCancel(ctx), p.client), p.options.Issuer)
	if err != nil {
		return nil, fmt.Errorf("asking %s how people sign in: %w", p.options.Issuer, err)
	}
	p.found = found
	return found, nil
}

func (p *provider) flow(found *oidc.Provider) *oauth2.Config {
	return &oauth2.Config{
		ClientID:     p.options.ClientID,
		ClientSecret: p.options.ClientSecret,
		Endpoint:     found.Endpoint(),
		RedirectURL:  p.redirect,
		Scopes:       []string{oidc.ScopeOpenID},
	}
}

// address is where a browser is sent to sign in.
func (p *provider) address(ctx context.Context, state token, nonce string) (string, error) {
	found, err := p.look(ctx)
	if err != nil {
		return "", err
	}
	return p.flow(found).AuthCodeURL(string(state), oidc.Nonce(nonce), oauth2.SetAuthURLParam("team", p.options.Workspace)), nil
}

// errNotOurs means that somebody of another workspace has signed in.
var errNotOurs = errors.New("people of other workspaces can't sign in")

// identify trades the code that a browser came back with for who has signed in.
func (p *provider) identify(ctx context.Context, code, nonce string) (approval.Approver, error) {
	found, err := p.look(ctx)
	if err != nil {
		return approval.Approver{}, err
	}
	answer, err := p.flow(found).Exchange(oidc.ClientContext(ctx, p.client), code)
	if err != nil {
		// The library's error may have the answer in it, and that a secret.
		if refused, ok := errors.AsType[*oauth2.RetrieveError](err); ok {
			return approval.Approver{}, fmt.Errorf("trading the code: refused as %q", refused.ErrorCode)
		}
		return approval.Approver{}, errors.New("trading the code: there was no answer that can be used")
	}
	raw, _ := answer.Extra("id_token").(string)
	identity, err := found.Verifier(&oidc.Config{ClientID: p.options.ClientID, Now: p.now}).Verify(oidc.ClientContext(ctx, p.client), raw)
	if err != nil {
		return approval.Approver{}, fmt.Errorf("verifying the identity: %w", err)
	}
	if subtle.ConstantTimeCompare([]byte(identity.Nonce), []byte(nonce)) != 1 {
		return approval.Approver{}, errors.New("verifying the identity: it is of another sign-in")
	}
	var claims struct {
		Workspace string `json:"https://slack.com/team_id"`
		User      string `json:"https://slack.com/user_id"`
	}
	if err := identity.Claims(&claims); err != nil {
		return approval.Approver{}, fmt.Errorf("reading the identity: %w", err)
	}
	if claims.User == "" || claims.Workspace == "" {
		return approval.Approver{}, errors.New("reading the identity: it doesn't say whose it is")
	}
	if claims.Workspace != p.options.Workspace {
		return approval.Approver{}, errNotOurs
	}
	return approval.Approver{Workspace: claims.Workspace, User: claims.User}, nil
}
