package slacksim_test

import (
	"html"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/countersign/countersign/bot/slacksim"
)

const redirectURL = "http://127.0.0.1:9/sign-in/callback"

// relyingParty is a real client of Sign in with Slack.
func relyingParty(t testing.TB, server *slacksim.Server, now func() time.Time) (oauth2.Config, *oidc.IDTokenVerifier) {
	t.Helper()
	server.SetRedirectURLs(redirectURL)
	provider, err := oidc.NewProvider(t.Context(), server.URL)
	if err != nil {
		t.Fatal(err)
	}
	options := server.Options()
	return oauth2.Config{
		ClientID: options.ClientID, ClientSecret: options.ClientSecret, Endpoint: provider.Endpoint(),
		RedirectURL: redirectURL, Scopes: []string{oidc.ScopeOpenID},
	}, provider.Verifier(&oidc.Config{ClientID: options.ClientID, Now: now})
}

// codeIn is the code that an address leads back with.
func codeIn(t testing.TB, back string) string {
	t.Helper()
	address, err := url.Parse(back)
	if err != nil {
		t.Fatal(err)
	}
	if got := address.Scheme + "://" + address.Host + address.Path; got != redirectURL || address.Query().Get("state") != "a state" {
		t.Errorf("the browser is sent to %s", back)
	}
	return address.Query().Get("code")
}

// A real client of OpenID Connect learns who signed in.
func TestSignIn(t *testing.T) {
	t.Parallel()
	clock := newClock()
	server := start(t, slacksim.Options{Now: clock.Now})
	server.SetUser(slacksim.User{ID: "U0EVE", Name: "eve", TeamID: "T0OTHER"})
	client, verifier := relyingParty(t, server, clock.Now)
	for user, team := range map[string]string{"U0ADA": "T0DEMO", "U0EVE": "T0OTHER"} {
		back, err := server.Authorize(user, client.AuthCodeURL("a state", oidc.Nonce("a nonce")))
		if err != nil {
			t.Fatal(err)
		}
		code := codeIn(t, back)
		token, err := client.Exchange(t.Context(), code)
		if err != nil {
			t.Fatal(err)
		}
		raw, _ := token.Extra("id_token").(string)
		identity, err := verifier.Verify(t.Context(), raw)
		if err != nil {
			t.Fatal(err)
		}
		var claims struct {
			Team string `json:"https://slack.com/team_id"`
			User string `json:"https://slack.com/user_id"`
		}
		if err := identity.Claims(&claims); err != nil {
			t.Fatal(err)
		}
		if claims.Team != team || claims.User != user || identity.Subject != user || identity.Nonce != "a nonce" {
			t.Errorf("%s signed in as %+v, %s with the nonce %q", user, claims, identity.Subject, identity.Nonce)
		}
		if err := identity.VerifyAccessToken(token.AccessToken); err != nil {
			t.Error(err)
		}
		if _, err := client.Exchange(t.Context(), code); err == nil || !strings.Contains(err.Error(), "invalid_code") {
			t.Errorf("the code works twice: %v", err)
		}
		clock.Advance(6 * time.Minute)
		if _, err := verifier.Verify(t.Context(), raw); err == nil {
			t.Error("the identity is good for ever")
		}
	}
}

// Whoever uses the browser chooses who they are.
func TestSignInPage(t *testing.T) {
	t.Parallel()
	server := start(t, slacksim.Options{})
	server.SetUser(slacksim.User{ID: "U0GONE", Name: "gone", Deleted: true})
	client, _ := relyingParty(t, server, nil)
	response, err := http.Get(client.AuthCodeURL("a state"))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	page := string(body)
	if !strings.Contains(page, "Ada Moreau") || strings.Contains(page, "gone") || strings.Contains(page, ">countersign</a>") {
		t.Errorf("the page offers\n%s", page)
	}
	link := page[strings.Index(page, `href="/openid`)+len(`href="`):]
	link = html.UnescapeString(link[:strings.Index(link, `"`)])
	follow := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	response, err = follow.Get(server.URL + link)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if _, err := client.Exchange(t.Context(), codeIn(t, response.Header.Get("Location"))); err != nil {
		t.Error(err)
	}
}

func TestSignInRefuses(t *testing.T) {
	t.Parallel()
	clock := newClock()
	server := start(t, slacksim.Options{Now: clock.Now})
	server.SetUser(slacksim.User{ID: "U0GONE", Name: "gone", Deleted: true})
	client, _ := relyingParty(t, server, clock.Now)
	for name, test := range map[string]struct {
		user, parameter, value, want string
	}{
		"another client":      {"U0ADA", "client_id", "2.other", "invalid_client_id"},
		"an implicit flow":    {"U0ADA", "response_type", "id_token", "invalid_response_type"},
		"no openid":           {"U0ADA", "scope", "email", "invalid_scope"},
		"a longer redirect":   {"U0ADA", "redirect_uri", redirectURL + "/more", "bad_redirect_uri"},
		"another redirect":    {"U0ADA", "redirect_uri", "https://evil.example/", "bad_redirect_uri"},
		"no state":            {"U0ADA", "state", "", "missing_state"},
		"another workspace":   {"U0ADA", "team", "T0OTHER", "invalid_team"},
		"nobody":              {"U0NOBODY", "team", "T0DEMO", "user_not_found"},
		"a bot":               {"U0BOT", "team", "T0DEMO", "user_not_found"},
		"somebody who's gone": {"U0GONE", "team", "T0DEMO", "user_not_found"},
	} {
		address := client.AuthCodeURL("a state", oauth2.SetAuthURLParam(test.parameter, test.value))
		if back, err := server.Authorize(test.user, address); err == nil || err.Error() != test.want {
			t.Errorf("%s: got %q, %v, want %s", name, back, err, test.want)
		}
	}
	for name, test := range map[string]struct {
		change func(*oauth2.Config)
		wait   time.Duration
		want   string
	}{
		"a wrong secret":   {func(c *oauth2.Config) { c.ClientSecret = "wrong" }, 0, "bad_client_secret"},
		"another client":   {func(c *oauth2.Config) { c.ClientID = "2.other" }, 0, "invalid_client_id"},
		"another redirect": {func(c *oauth2.Config) { c.RedirectURL = "http://127.0.0.1:9/other" }, 0, "bad_redirect_uri"},
		"too late":         {func(*oauth2.Config) {}, 11 * time.Minute, "invalid_code"},
	} {
		back, err := server.Authorize("U0ADA", client.AuthCodeURL("a state"))
		if err != nil {
			t.Fatal(err)
		}
		clock.Advance(test.wait)
		with := client
		test.change(&with)
		if r := call(t, server, "openid.connect.token", "client_id", with.ClientID, "client_secret", with.ClientSecret,
			"code", codeIn(t, back), "redirect_uri", with.RedirectURL, "grant_type", "authorization_code"); r.OK || r.Error != test.want {
			t.Errorf("%s: got %+v, want %s", name, r, test.want)
		}
	}
}
