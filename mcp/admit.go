package mcp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/countersign/countersign/approval"
)

// uploadLimit is how long a request's body may take to arrive.
const uploadLimit = 10 * time.Second

// untouchedHeader is on an answer by which this server, and no proxy before it,
// says that it did nothing with a call, which can be made again.
const untouchedHeader = "Countersign-Untouched"

// denial is the answer to a request that isn't served.
type denial struct {
	status int
	text   string
	// challenge is what the client has to come with in place of what it had; empty
	// if it needn't try.
	challenge string
}

var stopping = &denial{status: http.StatusServiceUnavailable, text: "the server is stopping"}

func (d *denial) write(w http.ResponseWriter) {
	if d.challenge != "" {
		w.Header().Set("WWW-Authenticate", d.challenge)
	}
	if d.status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "5")
		w.Header().Set(untouchedHeader, "true")
	}
	http.Error(w, d.text, d.status)
}

// admit finds out whose request it is, reads its body whole, and puts what it
// read in the body's place. If it returns false, the request is answered.
//
// A request that is still arriving is no call yet: it holds up nobody, ends
// after uploadLimit, and is turned away when the handler closes.
func (h *Handler) admit(w http.ResponseWriter, r *http.Request) (approval.Agent, bool) {
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Now().Add(uploadLimit)) // only a response of a test has none
	cut := make(chan struct{})
	arrived := context.AfterFunc(h.server.stopping, func() {
		defer close(cut)
		_ = control.SetReadDeadline(time.Unix(1, 0))
	})
	agent, body, denied := h.receive(w, r)
	if h.server.stopping.Err() != nil {
		denied = stopping
	}
	if denied != nil {
		denied.write(w)
		// The server reads what is left of the body, for which the deadline and
		// the end of the handler must still count.
		_ = control.Flush()
	}
	if !arrived() {
		// The deadline can't be taken back any more.
		<-cut
		if denied == nil {
			stopping.write(w)
		}
		return approval.Agent{}, false
	}
	if denied != nil {
		return approval.Agent{}, false
	}
	// From here on the connection is read only to learn whether the client is
	// still there, as long as its call waits.
	_ = control.SetReadDeadline(time.Time{})
	r.Body = io.NopCloser(bytes.NewReader(body))
	r.ContentLength = int64(len(body))
	return agent, true
}

// receive checks a request and reads its body.
func (h *Handler) receive(w http.ResponseWriter, r *http.Request) (approval.Agent, []byte, *denial) {
	if !h.hostAllowed(r) {
		return approval.Agent{}, nil, &denial{status: http.StatusForbidden, text: fmt.Sprintf("this server is not called %q", r.Host)}
	}
	agent, denied := h.authenticate(r)
	if denied != nil {
		return approval.Agent{}, nil, denied
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, h.bodyLimit))
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		return approval.Agent{}, nil, &denial{status: http.StatusRequestEntityTooLarge, text: "the request is too large"}
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return approval.Agent{}, nil, &denial{status: http.StatusRequestTimeout, text: "the request took too long to arrive"}
	}
	if err != nil {
		return approval.Agent{}, nil, &denial{status: http.StatusBadRequest, text: "the request could not be read"}
	}
	return agent, body, nil
}

// authenticate finds out whose token the request carries: one of this server's
// own, or an access token of an issuer that it believes. Neither is looked for
// among the other.
func (h *Handler) authenticate(r *http.Request) (approval.Agent, *denial) {
	resource := h.options.Resource
	scheme, secret, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	secret = strings.TrimSpace(secret)
	if !strings.EqualFold(scheme, "Bearer") || secret == "" {
		return approval.Agent{}, resource.needed()
	}
	if resource != nil && isAccessToken(secret) {
		return resource.identify(r.Context(), secret)
	}
	token, err := h.local.service.Authenticate(r.Context(), secret)
	switch {
	case err == nil:
		return approval.Agent{Name: token.Agent, Owner: token.Owner}, nil
	case errors.Is(err, approval.ErrToken):
		return approval.Agent{}, resource.unknown()
	default:
		// That a token can't be looked up says nothing about it.
		if r.Context().Err() == nil {
			h.options.Logger.Error("looking up a token", "err", err)
		}
		return approval.Agent{}, &denial{status: http.StatusServiceUnavailable, text: "tokens can't be checked now; try again"}
	}
}
