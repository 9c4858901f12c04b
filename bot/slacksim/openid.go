package slacksim

import (
	"cmp"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

// How long what Sign in with Slack gives out is good for.
const (
	codeLife    = 10 * time.Minute
	idTokenLife = 5 * time.Minute
)

// signInCode is what the app trades for the identity of whoever signed in.
type signInCode struct {
	userID   string
	redirect string
	nonce    string
	madeAt   time.Time
}

// signInKey signs identities. It is made when it is first needed.
type signInKey struct {
	private *rsa.PrivateKey
	id      string
}

// serveOpenID adds Sign in with Slack: what a client finds at the issuer, which
// is the workspace's own address instead of Slack's.
//
// https://docs.slack.dev/authentication/sign-in-with-slack/
func (w *Workspace) serveOpenID(mux *http.ServeMux) {
	mux.HandleFunc("GET /.well-known/openid-configuration", w.serveDiscovery)
	mux.HandleFunc("GET /openid/connect/keys", w.serveKeys)
	mux.HandleFunc("GET /openid/connect/authorize", w.serveAuthorize)
	mux.HandleFunc("POST /api/openid.connect.token", w.serveToken)
}

func (w *Workspace) serveDiscovery(rw http.ResponseWriter, _ *http.Request) {
	w.mu.Lock()
	at := w.url
	w.mu.Unlock()
	success(map[string]any{
		"issuer":                                at,
		"authorization_endpoint":                at + "/openid/connect/authorize",
		"token_endpoint":                        at + "/api/openid.connect.token",
		"jwks_uri":                              at + "/openid/connect/keys",
		"scopes_supported":                      []string{"openid", "profile", "email"},
		"response_types_supported":              []string{"code"},
		"response_modes_supported":              []string{"form_post"},
		"grant_types_supported":                 []string{"authorization_code"},
		"subject_types_supported":               []string{"public"},
		"id_token_signing_alg_values_supported": []string{"RS256"},
		"token_endpoint_auth_methods_supported": []string{"client_secret_post", "client_secret_basic"},
		"claims_supported":                      []string{"sub", "auth_time", "iss"},
	}).write(rw)
}

func (w *Workspace) serveKeys(rw http.ResponseWriter, _ *http.Request) {
	key, err := w.signInKey()
	if err != nil {
		http.Error(rw, err.Error(), http.StatusInternalServerError)
		return
	}
	answer{status: http.StatusOK, body: map[string]any{
		"keys": []jose.JSONWebKey{{Key: key.private.Public(), KeyID: key.id, Algorithm: string(jose.RS256), Use: "sig"}},
	}}.write(rw)
}

func (w *Workspace) signInKey() (signInKey, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.key.private == nil {
		private, err := rsa.GenerateKey(rand.Reader, 2048)
		if err != nil {
			return signInKey{}, fmt.Errorf("making the key that signs identities: %w", err)
		}
		w.key = signInKey{private, w.id("K")}
	}
	return w.key, nil
}

// serveAuthorize shows who can sign in, and once somebody is chosen leads back to
// the app. A link is enough: a code alone is worth nothing.
func (w *Workspace) serveAuthorize(rw http.ResponseWriter, r *http.Request) {
	rw.Header().Set("Cache-Control", "no-store")
	rw.Header().Set("Referrer-Policy", "no-referrer")
	if chosen := r.URL.Query().Get("user"); chosen != "" {
		back, err := w.Authorize(chosen, r.URL.String())
		if err != nil {
			http.Error(rw, err.Error(), http.StatusBadRequest)
			return
		}
		http.Redirect(rw, r, back, http.StatusFound)
		return
	}
	if err := w.checkAuthorize(r.URL.Query()); err != nil {
		http.Error(rw, err.Error(), http.StatusBadRequest)
		return
	}
	type choice struct{ Name, Link string }
	var choices []choice
	w.mu.Lock()
	for _, u := range w.users {
		if w.canSignIn(u) == nil {
			query := r.URL.Query()
			query.Set("user", u.ID)
			choices = append(choices, choice{u.name(), "/openid/connect/authorize?" + query.Encode()})
		}
	}
	w.mu.Unlock()
	rw.Header().Set("Content-Type", "text/html; charset=utf-8")
	rw.Header().Set("Content-Security-Policy", securityPolicy)
	if err := templates.ExecuteTemplate(rw, "authorize.tmpl", map[string]any{"Team": w.options.TeamName, "App": w.options.BotName, "People": choices}); err != nil {
		w.log.Error("showing who can sign in", "err", err)
	}
}

// Authorize signs a person in for the app, as the person's click on the page that
// authorizeURL leads to does, and returns where the browser is sent: the app's
// redirect address with the code and the state.
func (w *Workspace) Authorize(userID, authorizeURL string) (string, error) {
	address, err := url.Parse(authorizeURL)
	if err != nil {
		return "", err
	}
	query := address.Query()
	if err := w.checkAuthorize(query); err != nil {
		return "", err
	}
	back, err := url.Parse(query.Get("redirect_uri"))
	if err != nil {
		return "", err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	u, _ := w.user(userID)
	if err := w.canSignIn(u); err != nil {
		return "", err
	}
	code := w.id("C") + "." + rand.Text()
	w.codes[code] = signInCode{userID: u.ID, redirect: query.Get("redirect_uri"), nonce: query.Get("nonce"), madeAt: w.now()}
	answer := back.Query()
	answer.Set("code", code)
	answer.Set("state", query.Get("state"))
	back.RawQuery = answer.Encode()
	return back.String(), nil
}

// checkAuthorize refuses what Slack would show an error page for. A redirect
// address must be exactly one of the app's; Slack takes some that begin like one.
func (w *Workspace) checkAuthorize(query url.Values) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case query.Get("client_id") != w.options.ClientID:
		return errors.New("invalid_client_id")
	case query.Get("response_type") != "code":
		return errors.New("invalid_response_type")
	case !slices.Contains(strings.Fields(strings.ReplaceAll(query.Get("scope"), ",", " ")), "openid"):
		return errors.New("invalid_scope")
	case !slices.Contains(w.redirects, query.Get("redirect_uri")):
		return errors.New("bad_redirect_uri")
	case query.Get("state") == "":
		return errors.New("missing_state")
	case query.Has("team") && query.Get("team") != w.options.TeamID:
		return errors.New("invalid_team")
	}
	return nil
}

// canSignIn says why somebody can't sign in to Slack at all. Guests can. The
// caller holds mu.
func (w *Workspace) canSignIn(u User) error {
	if u.ID == "" || u.Bot || u.WorkflowBot || u.Deleted {
		return errors.New("user_not_found")
	}
	return nil
}

// SetRedirectURLs sets the addresses to which people who sign in may be sent.
func (w *Workspace) SetRedirectURLs(urls ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.redirects = slices.Clone(urls)
}

// serveToken trades a code for an identity, once. Like all methods, it answers
// 200 with ok false if it refuses.
func (w *Workspace) serveToken(rw http.ResponseWriter, r *http.Request) {
	w.serveCall(rw, r, "openid.connect.token", func(arguments url.Values, _ string) answer {
		client, secret, basic := r.BasicAuth()
		if !basic {
			client, secret = arguments.Get("client_id"), arguments.Get("client_secret")
		}
		switch {
		case client != w.options.ClientID:
			return failure("invalid_client_id")
		case subtle.ConstantTimeCompare([]byte(secret), []byte(w.options.ClientSecret)) != 1:
			return failure("bad_client_secret")
		case cmp.Or(arguments.Get("grant_type"), "authorization_code") != "authorization_code":
			return failure("invalid_grant_type")
		}
		w.mu.Lock()
		code, known := w.codes[arguments.Get("code")]
		delete(w.codes, arguments.Get("code"))
		now := w.now()
		w.mu.Unlock()
		switch {
		case !known || now.Sub(code.madeAt) > codeLife:
			return failure("invalid_code")
		case code.redirect != arguments.Get("redirect_uri"):
			return failure("bad_redirect_uri")
		}
		access := "xoxp-" + rand.Text()
		identity, err := w.identity(code, access, now)
		if err != nil {
			w.log.Error("signing an identity", "err", err)
			return failure("internal_error")
		}
		return success(map[string]any{"access_token": access, "token_type": "Bearer", "id_token": identity})
	})
}

// identity is the signed statement of who signed in.
func (w *Workspace) identity(code signInCode, access string, now time.Time) (string, error) {
	key, err := w.signInKey()
	if err != nil {
		return "", err
	}
	signer, err := jose.NewSigner(
		jose.SigningKey{Algorithm: jose.RS256, Key: jose.JSONWebKey{Key: key.private, KeyID: key.id}},
		(&jose.SignerOptions{}).WithType("JWT"),
	)
	if err != nil {
		return "", err
	}
	w.mu.Lock()
	u, _ := w.user(code.userID)
	at, team := w.url, w.team(u)
	w.mu.Unlock()
	hash := sha256.Sum256([]byte(access))
	claims := map[string]any{
		"iss":                       at,
		"sub":                       u.ID,
		"aud":                       w.options.ClientID,
		"iat":                       now.Unix(),
		"exp":                       now.Add(idTokenLife).Unix(),
		"auth_time":                 now.Unix(),
		"at_hash":                   base64.RawURLEncoding.EncodeToString(hash[:len(hash)/2]),
		"https://slack.com/team_id": team,
		"https://slack.com/user_id": u.ID,
	}
	if code.nonce != "" {
		claims["nonce"] = code.nonce
	}
	return jwt.Signed(signer).Claims(claims).Serialize()
}
