package web

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/url"
	"path"

	"github.com/countersign/countersign/approval"
)

// signInPage is what the page to sign in says.
type signInPage struct {
	Problem   string   // why the visitor isn't signed in; empty if there is nothing to say
	Back      string   // where signing in leads to; empty for the same address
	Providers []string // that people can sign in with
}

// showSignIn answers with the page to sign in, which for nobody is nil.
func (p *pages) showSignIn(w http.ResponseWriter, status int, err error, back string) {
	shown := signInPage{Back: back}
	for _, one := range p.providers {
		shown.Providers = append(shown.Providers, one.Name)
	}
	if err != nil {
		p.logger.Warn("nobody is signed in", "err", err)
		shown.Problem = inWords(err)
	}
	p.show(w, status, "signin.html", visitor{}, shown)
}

// chosen is the provider that somebody chose on the page to sign in; nil for none.
func (p *pages) chosen(r *http.Request) *provider { return p.named(r.PostFormValue("with")) }

func (p *pages) named(name string) *provider {
	for _, one := range p.providers {
		if one.Name == name {
			return one
		}
	}
	return nil
}

// signIn sends the browser to sign in, and back to the same address after that.
func (p *pages) signIn(w http.ResponseWriter, r *http.Request) {
	back := p.page(r.URL)
	if with := p.chosen(r); with != nil {
		p.leave(w, r, with, back, false)
		return
	}
	p.showSignIn(w, http.StatusBadRequest, nil, back)
}

// signInAnew has somebody who is signed in prove again who they are, with the
// provider that said so before. There is no more to it than to signing in, so it
// takes no form of theirs.
func (p *pages) signInAnew(w http.ResponseWriter, r *http.Request) {
	back := "/"
	if address, err := url.Parse(r.PostFormValue("back")); err == nil {
		back = p.page(address)
	}
	if one, ok := p.sessions.use(p.cookies.get(r, sessionCookie), true); ok {
		if with := p.named(one.provider); with != nil {
			p.leave(w, r, with, back, true)
			return
		}
	}
	p.showSignIn(w, http.StatusOK, nil, back)
}

// page is the address of one of the pages, without what else an address can have;
// the first page's if it isn't one.
func (p *pages) page(address *url.URL) string {
	page := &url.URL{Path: address.Path, RawQuery: address.RawQuery}
	if _, pattern := p.mux.Handler(&http.Request{Method: http.MethodGet, URL: page}); pattern == "" || pattern == noPage || !path.IsAbs(page.Path) || path.Clean(page.Path) != page.Path {
		return "/"
	}
	return page.String()
}

// leave sends the browser to a provider.
func (p *pages) leave(w http.ResponseWriter, r *http.Request, to *provider, back string, anew bool) {
	browser, state, attempt := p.sessions.begin(to.Name, back, anew)
	address, err := to.address(r.Context(), state, attempt)
	if err != nil {
		p.showSignIn(w, http.StatusBadGateway, err, back)
		return
	}
	p.cookies.set(w, signInCookie, browser)
	// A redirect would be part of sending the form, so that the page's policy would
	// have to name each place that a provider leads on to, such as where a
	// workspace's people sign in to everything.
	w.Header().Set("Refresh", "0; url="+address)
	p.show(w, http.StatusOK, "leaving.html", visitor{}, leavingPage{to.Name, address})
}

// leavingPage is what the page on the way to a provider says.
type leavingPage struct{ Provider, Next string }

// callback is where the browser comes back to from a provider. Nobody but the
// browser that began the sign-in can end it, so nobody can be signed in as somebody
// else.
func (p *pages) callback(from *provider) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		is, back, err := p.signedIn(r, from)
		p.cookies.clear(w, signInCookie)
		if err != nil {
			p.showSignIn(w, http.StatusForbidden, err, cmp.Or(back, "/"))
			return
		}
		p.sessions.end(p.cookies.get(r, sessionCookie))
		p.cookies.set(w, sessionCookie, p.sessions.start(is, from.Name))
		p.logger.Info("somebody has signed in", "approver", is.who.String(), "provider", from.Name)
		http.Redirect(w, r, back, http.StatusSeeOther)
	}
}

// errNotBegun means that a browser came back from a sign-in that isn't its own,
// is over or took too long.
var errNotBegun = errors.New("this sign-in wasn't begun in this browser, or it took too long")

func (p *pages) signedIn(r *http.Request, from *provider) (is identity, back string, err error) {
	query := r.URL.Query()
	attempt, ok := p.sessions.finish(p.cookies.get(r, signInCookie), token(query.Get("state")))
	if !ok || attempt.provider != from.Name {
		return identity{}, "", errNotBegun
	}
	ctx, cancel := context.WithTimeout(r.Context(), 2*providerLimit)
	defer cancel()
	if is, err = from.identify(ctx, query, attempt); err != nil {
		return identity{}, attempt.back, err
	}
	_, err = p.roles(ctx, is.who)
	return is, attempt.back, err
}

// inWords says why somebody isn't signed in, for them to read.
func inWords(err error) string {
	switch {
	case errors.Is(err, errNothingDone):
		return "You aren't signed in any more, so nothing was decided or changed. Sign in, and do it again."
	case errors.Is(err, errNoRole):
		return "Your account holds no role here, so there is nothing for you to decide."
	case errors.Is(err, approval.ErrIneligible), errors.Is(err, errNotOurs):
		return "This account can't decide here."
	case errors.Is(err, errNotBegun):
		return "That sign-in took too long, or was begun in another browser. Please sign in again."
	case errors.Is(err, errNotAsked):
		return "You were let in without being asked again who you are, which this takes. Sign out where you sign in, and try again; or decide in Slack."
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
