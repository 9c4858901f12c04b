// Package web serves what people open in a browser, and the HTTP API for scripts
// and jobs.
//
// The address of a request is a locator, not a capability: whoever isn't signed
// in gets the same page for every address. GET changes no request.
package web

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"errors"
	"fmt"
	"html/template"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/countersign/countersign/approval"
)

//go:embed *.html *.css
var files embed.FS

// Options set up the pages.
type Options struct {
	// URL is the address of the server, without a slash at its end.
	URL string
	// SlackURL is where the pages lead to: the channel in which requests are
	// decided.
	SlackURL string
	// SignIn is how people sign in. Without it nobody can, and all addresses give
	// one page that leads on to Slack.
	SignIn *SignIn
	// Now is the clock; nil means time.Now.
	Now func() time.Time
	// Random makes secrets, of at least 128 bits each; nil means rand.Text.
	Random func() string
	// Logger gets what the visitor isn't told; nil discards it.
	Logger *slog.Logger
}

// pages are what people open in a browser.
type pages struct {
	service   *approval.Service
	options   Options
	templates *template.Template
	style     template.CSS
	policy    string // what the pages may load
	provider  *provider
	sessions  *sessions
	cookies   cookies
	logger    *slog.Logger
}

// Handler serves the pages for people: /, /review and, if people can sign in,
// what is below /sign-in and /sign-out.
func Handler(service *approval.Service, options Options) (http.Handler, error) {
	if options.Now == nil {
		options.Now = time.Now
	}
	if options.Random == nil {
		options.Random = rand.Text
	}
	if options.Logger == nil {
		options.Logger = slog.New(slog.DiscardHandler)
	}
	style, err := files.ReadFile("style.css")
	if err != nil {
		return nil, fmt.Errorf("reading the style sheet: %w", err)
	}
	templates, err := template.ParseFS(files, "*.html")
	if err != nil {
		return nil, fmt.Errorf("reading the pages: %w", err)
	}
	address, err := url.Parse(options.URL)
	if err != nil {
		return nil, fmt.Errorf("reading the server's address: %w", err)
	}
	p := &pages{
		service:   service,
		options:   options,
		templates: templates,
		style:     template.CSS(style),
		sessions:  newSessions(options.Now, options.Random),
		cookies:   cookies{secure: address.Scheme == "https"},
		logger:    options.Logger,
	}
	hash := sha256.Sum256(style)
	forms := "'none'"
	mux := http.NewServeMux()
	if options.SignIn == nil {
		mux.HandleFunc("GET /review", p.leadOn)
		mux.HandleFunc("GET /{$}", p.leadOn)
	} else {
		p.provider = newProvider(*options.SignIn, options.URL+CallbackPath, options.Now)
		forms = "'self'"
		mux.HandleFunc("GET /review", p.review)
		mux.HandleFunc("GET /{$}", p.review)
		mux.HandleFunc("POST /review", p.signIn)
		mux.HandleFunc("POST /{$}", p.signIn)
		mux.HandleFunc("POST /sign-out", p.signOut)
		mux.HandleFunc("GET "+CallbackPath, p.callback)
	}
	p.policy = "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(hash[:]) + "'; frame-ancestors 'none'; base-uri 'none'; form-action " + forms
	return http.NewCrossOriginProtection().Handler(mux), nil
}

// shown is what a page says.
type shown struct {
	SlackURL string
	Style    template.CSS
	Problem  string // why the visitor isn't signed in; empty if there is nothing to say
	Back     string // where signing in leads to; empty for the same address
	Next     string // where the visitor signs in
	User     string // who is signed in
	Roles    string // that they hold
}

func (p *pages) show(w http.ResponseWriter, status int, name string, what shown) {
	what.SlackURL, what.Style = p.options.SlackURL, p.style
	var body bytes.Buffer
	if err := p.templates.ExecuteTemplate(&body, name, what); err != nil {
		p.logger.Error("rendering a page", "page", name, "err", err)
		http.Error(w, "This page can't be shown now.", http.StatusInternalServerError)
		return
	}
	header := w.Header()
	header.Set("Content-Type", "text/html; charset=utf-8")
	header.Set("Content-Security-Policy", p.policy)
	header.Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(body.Bytes()) // the reader went away
}

// leadOn shows where requests are decided.
func (p *pages) leadOn(w http.ResponseWriter, _ *http.Request) {
	p.show(w, http.StatusOK, "slack.html", shown{})
}

// review shows who is signed in. Whoever isn't gets the same page whatever the
// address is of.
func (p *pages) review(w http.ResponseWriter, r *http.Request) {
	who, roles, err := p.visitor(r)
	switch {
	case errors.Is(err, errSignedOut):
		p.show(w, http.StatusOK, "signin.html", shown{})
	case err != nil:
		p.show(w, http.StatusServiceUnavailable, "signin.html", shown{Problem: p.problem(err)})
	default:
		p.show(w, http.StatusOK, "review.html", shown{User: who.User, Roles: roles})
	}
}

// errSignedOut means that nobody is signed in, or somebody who may no longer be.
var errSignedOut = errors.New("nobody is signed in")

// errNoRole means that somebody holds no role, so there is nothing to show them.
var errNoRole = errors.New("this account holds no role")

// visitor returns who is signed in and the roles that they hold at this moment;
// without any, their session has ended.
func (p *pages) visitor(r *http.Request) (approval.Approver, string, error) {
	id := p.cookies.get(r, sessionCookie)
	one, ok := p.sessions.use(id)
	if !ok {
		return approval.Approver{}, "", errSignedOut
	}
	roles, err := p.roles(r.Context(), one.who)
	if errors.Is(err, errNoRole) || errors.Is(err, approval.ErrIneligible) {
		p.sessions.end(id)
		p.logger.Info("ending the session of somebody who holds no role any more", "approver", one.who.String())
		return approval.Approver{}, "", errSignedOut
	}
	return one.who, roles, err
}

func (p *pages) roles(ctx context.Context, who approval.Approver) (string, error) {
	standing, err := p.service.Standing(ctx, who)
	if err != nil {
		return "", err
	}
	if len(standing.Roles) == 0 {
		return "", errNoRole
	}
	names := make([]string, len(standing.Roles))
	for i, role := range standing.Roles {
		names[i] = role.Role
	}
	return strings.Join(names, ", "), nil
}

// signIn sends the browser to sign in, and back to the same address after that.
func (p *pages) signIn(w http.ResponseWriter, r *http.Request) {
	back := "/"
	if r.URL.Path == "/review" {
		back = "/review?" + url.Values{"elicitationId": {r.URL.Query().Get("elicitationId")}}.Encode()
	}
	browser, state, nonce := p.sessions.begin(back)
	address, err := p.provider.address(r.Context(), state, nonce)
	if err != nil {
		p.show(w, http.StatusBadGateway, "signin.html", shown{Problem: p.problem(err)})
		return
	}
	p.cookies.set(w, signInCookie, browser)
	// A redirect would be part of sending the form, so that the page's policy would
	// have to name each place that Slack leads on to, such as where a workspace's
	// people sign in to everything.
	w.Header().Set("Refresh", "0; url="+address)
	p.show(w, http.StatusOK, "leaving.html", shown{Next: address})
}

// callback is where the browser comes back to. Nobody but the browser that began
// the sign-in can end it, so nobody can be signed in as somebody else.
func (p *pages) callback(w http.ResponseWriter, r *http.Request) {
	who, back, err := p.signedIn(r)
	p.cookies.clear(w, signInCookie)
	if err != nil {
		p.show(w, http.StatusForbidden, "signin.html", shown{Problem: p.problem(err), Back: cmp.Or(back, "/")})
		return
	}
	p.sessions.end(p.cookies.get(r, sessionCookie))
	p.cookies.set(w, sessionCookie, p.sessions.start(who))
	p.logger.Info("somebody has signed in", "approver", who.String())
	http.Redirect(w, r, back, http.StatusSeeOther)
}

// errNotBegun means that a browser came back from a sign-in that isn't its own,
// is over or took too long.
var errNotBegun = errors.New("this sign-in wasn't begun in this browser, or it took too long")

func (p *pages) signedIn(r *http.Request) (who approval.Approver, back string, err error) {
	query := r.URL.Query()
	attempt, ok := p.sessions.finish(p.cookies.get(r, signInCookie), token(query.Get("state")))
	if !ok {
		return approval.Approver{}, "", errNotBegun
	}
	back = attempt.back
	if query.Get("code") == "" {
		return approval.Approver{}, back, errors.New("signing in was given up")
	}
	ctx, cancel := context.WithTimeout(r.Context(), 2*providerLimit)
	defer cancel()
	if who, err = p.provider.identify(ctx, query.Get("code"), attempt.nonce); err != nil {
		return approval.Approver{}, back, err
	}
	_, err = p.roles(ctx, who)
	return who, back, err
}

// problem logs why somebody isn't signed in, and says it in words for them.
func (p *pages) problem(err error) string {
	p.logger.Warn("nobody is signed in", "err", err)
	switch {
	case errors.Is(err, errNoRole):
		return "Your account holds no role here, so there is nothing for you to decide."
	case errors.Is(err, approval.ErrIneligible), errors.Is(err, errNotOurs):
		return "This account can't decide here."
	case errors.Is(err, errNotBegun):
		return "That sign-in took too long, or was begun in another browser. Please sign in again."
	case errors.Is(err, approval.ErrUnverified):
		return "Slack couldn't be asked about your account. Please try again in a moment."
	default:
		return "Signing in didn't work. Please try again in a moment."
	}
}

func (p *pages) signOut(w http.ResponseWriter, r *http.Request) {
	p.sessions.end(p.cookies.get(r, sessionCookie))
	p.cookies.clear(w, sessionCookie)
	http.Redirect(w, r, "/", http.StatusSeeOther)
}
