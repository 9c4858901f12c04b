package web

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/url"

	"github.com/countersign/countersign/approval"
)

// signInPage is what the page to sign in says.
type signInPage struct {
	Problem string // why the visitor isn't signed in; empty if there is nothing to say
	Back    string // where signing in leads to; empty for the same address
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
		p.show(w, http.StatusBadGateway, "signin.html", visitor{}, signInPage{Problem: p.problem(err)})
		return
	}
	p.cookies.set(w, signInCookie, browser)
	// A redirect would be part of sending the form, so that the page's policy would
	// have to name each place that Slack leads on to, such as where a workspace's
	// people sign in to everything.
	w.Header().Set("Refresh", "0; url="+address)
	p.show(w, http.StatusOK, "leaving.html", visitor{}, address)
}

// callback is where the browser comes back to. Nobody but the browser that began
// the sign-in can end it, so nobody can be signed in as somebody else.
func (p *pages) callback(w http.ResponseWriter, r *http.Request) {
	who, back, err := p.signedIn(r)
	p.cookies.clear(w, signInCookie)
	if err != nil {
		p.show(w, http.StatusForbidden, "signin.html", visitor{}, signInPage{Problem: p.problem(err), Back: cmp.Or(back, "/")})
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
