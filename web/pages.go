// Package web serves what people open in a browser, and the HTTP API for scripts
// and jobs.
//
// The address of a request is a locator, not a capability: whoever isn't signed
// in gets the same page for every address. GET changes no request.
package web

import (
	"bytes"
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
	"github.com/countersign/countersign/approval/presentation"
)

//go:embed *.html *.css *.js
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
	// Name is what somebody calls themselves, to be shown beside their id; nil if
	// there are only ids.
	Name func(context.Context, approval.Approver) (string, error)
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
	policy    string      // what the pages may load
	providers []*provider // that people can sign in with
	mux       *http.ServeMux
	sessions  *sessions
	passkeys  *passkeys // nil where there can be none
	cookies   cookies
	logger    *slog.Logger
}

// noPage is the pattern of what is no page.
const noPage = "GET /"

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
	names := presentation.NewNames(options.Name, options.Now)
	templates, err := template.New("").Funcs(template.FuncMap{"name": names.Of}).ParseFS(files, "*.html")
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
		mux:       http.NewServeMux(),
		style:     template.CSS(style),
		sessions:  newSessions(options.Now, options.Random),
		cookies:   cookies{secure: address.Scheme == "https"},
		logger:    options.Logger,
	}
	hash := sha256.Sum256(style)
	p.policy = "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(hash[:]) + "'; frame-ancestors 'none'; base-uri 'none'; form-action "
	mux := p.mux
	if options.SignIn == nil {
		p.policy += "'none'"
		mux.HandleFunc("GET /review", p.leadOn)
		mux.HandleFunc("GET /{$}", p.leadOn)
	} else {
		p.policy += "'self'; script-src 'self'; connect-src 'self'"
		p.providers = newProviders(*options.SignIn, options.URL, options.Now)
		p.routeReview(mux)
		mux.HandleFunc("GET /{$}", p.queue)
		mux.HandleFunc("GET /history", p.history)
		mux.HandleFunc("GET /insights", p.insights)
		mux.HandleFunc("POST /", p.signIn)
		mux.HandleFunc(noPage, http.NotFound) // rather than that it takes a POST
		mux.HandleFunc("POST /sign-in", p.signInAnew)
		mux.HandleFunc("POST /sign-out", p.signOut)
		for _, one := range p.providers {
			mux.HandleFunc("GET "+one.callback, p.callback(one))
		}
		if p.passkeys, err = newPasskeys(address, options.Now, options.Random); err != nil {
			return nil, err
		}
		p.routePasskeys(mux)
		mux.HandleFunc("GET /live", p.live)
		mux.HandleFunc("GET /script/{name}", p.script)
	}
	return http.NewCrossOriginProtection().Handler(bounded(mux)), nil
}

// bodyLimit is how long a browser may take to send what it sends. Anybody can begin
// to, and would hold a connection for as long as they like.
const bodyLimit = time.Minute

// bounded bounds what is sent to a page.
func bounded(next http.Handler) http.Handler {
	next = http.MaxBytesHandler(next, maxEditForm)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength != 0 {
			// The server sets it anew for the next request. What takes none is no connection.
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyLimit))
		}
		next.ServeHTTP(w, r)
	})
}

// page is what every page is made of.
type page struct {
	Name     string // of the file that it is made of
	Style    template.CSS
	SlackURL string
	Now      int64 // the server's clock, in milliseconds since 1970
	Who      approval.Approver
	User     string // the id of who is signed in; empty if nobody is
	Roles    string // that they hold
	Content  any    // what the page is about
}

// show answers with a page for somebody; for the zero visitor if nobody is signed
// in.
func (p *pages) show(w http.ResponseWriter, status int, name string, v visitor, content any) {
	var body bytes.Buffer
	err := p.templates.ExecuteTemplate(&body, name, page{
		Name:     name,
		Style:    p.style,
		SlackURL: p.options.SlackURL,
		Now:      p.options.Now().UnixMilli(),
		Who:      v.who,
		User:     v.who.User,
		Roles:    v.roleNames(),
		Content:  content,
	})
	if err != nil {
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

// script serves a script that pages load. None of them is needed to decide, but
// for passkeys, which browsers give to scripts only.
func (p *pages) script(w http.ResponseWriter, r *http.Request) {
	content, err := files.ReadFile(r.PathValue("name"))
	if err != nil || !strings.HasSuffix(r.PathValue("name"), ".js") {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", "text/javascript; charset=utf-8")
	w.Header().Set("Cache-Control", "no-cache")
	_, _ = w.Write(content) // the reader went away
}

// leadOn shows where requests are decided.
func (p *pages) leadOn(w http.ResponseWriter, _ *http.Request) {
	p.show(w, http.StatusOK, "slack.html", visitor{}, nil)
}

// visitor is somebody who is signed in and holds a role at this moment. The zero
// visitor is anybody.
type visitor struct {
	who     approval.Approver
	roles   []approval.Membership
	session session
}

func (v visitor) roleNames() string {
	names := make([]string, len(v.roles))
	for i, role := range v.roles {
		names[i] = role.Role
	}
	return strings.Join(names, ", ")
}

// person returns who is signed in. If nobody is, it has answered: with the same
// page whatever was asked for.
func (p *pages) person(w http.ResponseWriter, r *http.Request) (visitor, bool) {
	v, err := p.visitor(r)
	switch {
	case errors.Is(err, errSignedOut) && p.chosen(r) != nil:
		p.signIn(w, r)
	case errors.Is(err, errSignedOut) && r.Method == http.MethodPost:
		p.showSignIn(w, http.StatusOK, errNothingDone, backFrom(r))
	case errors.Is(err, errSignedOut):
		p.showSignIn(w, http.StatusOK, nil, backFrom(r))
	case err != nil:
		p.showSignIn(w, http.StatusServiceUnavailable, err, backFrom(r))
	}
	return v, err == nil
}

// backFrom is where signing in leads to if that isn't the same address: a form that
// was sent isn't sent again, and what it was about is shown.
func backFrom(r *http.Request) string {
	if id := approval.ID(r.PostFormValue("elicitationId")); r.Method == http.MethodPost && id.Valid() {
		return reviewAddress(id)
	}
	return ""
}

// unattended is the header of what a page's script fetches by itself, which is not
// somebody doing something: a page that is left open must not keep them signed in.
const unattended = "Countersign-Unattended"

// errSignedOut means that nobody is signed in, or somebody who may no longer be.
var errSignedOut = errors.New("nobody is signed in")

// errNothingDone means that somebody sent a form after their session had ended.
var errNothingDone = errors.New("a form was sent without a session")

// errNoRole means that somebody holds no role, so there is nothing to show them.
var errNoRole = errors.New("this account holds no role")

// visitor returns who is signed in and the roles that they hold, as of a moment ago
// if they only look; without any, their session has ended.
func (p *pages) visitor(r *http.Request) (visitor, error) {
	id := p.cookies.get(r, sessionCookie)
	one, ok := p.sessions.use(id, r.Header.Get(unattended) == "")
	if !ok {
		return visitor{}, errSignedOut
	}
	// Slack answers about groups only so often, and those who decide need that.
	look := p.service.RecentStanding
	if r.Method == http.MethodPost {
		look = p.service.Standing
	}
	roles, err := rolesOf(look(r.Context(), one.who))
	if errors.Is(err, errNoRole) || errors.Is(err, approval.ErrIneligible) {
		p.sessions.end(id)
		p.logger.Info("ending the session of somebody who holds no role any more", "approver", one.who.String())
		return visitor{}, errSignedOut
	}
	if err != nil {
		return visitor{}, err
	}
	return visitor{who: one.who, roles: roles, session: one}, nil
}

func (p *pages) roles(ctx context.Context, who approval.Approver) ([]approval.Membership, error) {
	return rolesOf(p.service.Standing(ctx, who))
}

// rolesOf are the roles of somebody; errNoRole without any.
func rolesOf(standing approval.Standing, err error) ([]approval.Membership, error) {
	if err != nil {
		return nil, err
	}
	if len(standing.Roles) == 0 {
		return nil, errNoRole
	}
	return standing.Roles, nil
}
