package web

import (
	"context"
	"errors"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/countersign/countersign/approval"
)

// problem is how every call ends that isn't served: {"error": {...}}.
type problem struct {
	status int
	Code   string `json:"code"`
	// Message is what is wrong and what to do, for whoever reads the log of the
	// script.
	Message string `json:"message"`
	// Reason is why the policy or a person refuses, in their words.
	Reason string `json:"reason,omitempty"`
	// Field is the input that was refused.
	Field string `json:"field,omitempty"`
	// RetryAt is when the same call may work.
	RetryAt string `json:"retryAt,omitempty"`

	retryAfter time.Duration // how long to wait before the same call, if known
}

func (p *problem) write(w http.ResponseWriter) {
	if p.status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", `Bearer realm="countersign"`)
	}
	if p.retryAfter > 0 {
		// Rounded up, or the caller comes too early.
		w.Header().Set("Retry-After", strconv.FormatInt(int64((p.retryAfter+time.Second-1)/time.Second), 10))
	}
	body, err := marshal(map[string]*problem{"error": p})
	if err != nil {
		body = []byte("{}\n") // it has strings only
	}
	write(w, p.status, body)
}

// What is wrong before the service is asked.
var (
	noToken         = &problem{status: http.StatusUnauthorized, Code: "token", Message: "A bearer token is needed; `countersign token create`, on the server, makes one."}
	crossOrigin     = &problem{status: http.StatusForbidden, Code: "cross_origin", Message: "Pages of other origins can't call this API."}
	noRoute         = &problem{status: http.StatusNotFound, Code: "no_such_call", Message: "The API has no such call."}
	unwantedBody    = &problem{status: http.StatusBadRequest, Code: "input", Field: "body", Message: "body: this call takes none."}
	unreadableQuery = &problem{status: http.StatusBadRequest, Code: "input", Field: "query", Message: "query: could not be read."}
	wrongType       = &problem{status: http.StatusUnsupportedMediaType, Code: "content_type", Message: "The body must be JSON in UTF-8; send it with Content-Type: application/json."}
	stopping        = &problem{status: http.StatusServiceUnavailable, Code: "stopping", Message: "The server is stopping and did nothing with this call. Make it again in a few seconds.", retryAfter: 5 * time.Second}
)

func wrongMethod(right string) *problem {
	return &problem{status: http.StatusMethodNotAllowed, Code: "method", Message: "This call is made with " + right + "."}
}

// unreadable says why a body couldn't be read.
func unreadable(err error) *problem {
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		return &problem{status: http.StatusRequestEntityTooLarge, Code: "too_large", Message: "The body is larger than this server reads."}
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return &problem{status: http.StatusRequestTimeout, Code: "too_slow", Message: "The body took too long to arrive."}
	}
	return &problem{status: http.StatusBadRequest, Code: "input", Field: "body", Message: "body: could not be read."}
}

// refusedError is an error of approval with the request, if there is one, that it
// is about.
type refusedError struct {
	error
	request *approval.Request
}

func (e *refusedError) Unwrap() error { return e.error }

// known is what each error of approval is to a caller. The first that matches
// counts.
var known = []struct {
	is      error
	status  int
	code    string
	message string
}{
	{approval.ErrToken, http.StatusUnauthorized, "token", "The token is unknown or revoked; `countersign token create`, on the server, makes a new one."},
	{approval.ErrNotFound, http.StatusNotFound, "not_found", "There is no such request of yours."},
	{approval.ErrDenied, http.StatusForbidden, "denied", "The policy denies this action, and no person was asked."},
	{approval.ErrPending, http.StatusConflict, "pending", "Nobody has decided yet, so there is nothing to run. Wait for the decision."},
	{approval.ErrSuperseded, http.StatusConflict, "superseded", "What was approved doesn't hold any more, so it must not run. Ask again."},
	{approval.ErrRejected, http.StatusConflict, "rejected", "The request was rejected, so it must not run."},
	{approval.ErrExpired, http.StatusConflict, "expired", "The deadline has passed, so it must not run. Nobody refused, and silence is not consent."},
	{approval.ErrApplied, http.StatusConflict, "applied", "The approval was already used. It works once, so it must not run again."},
	{approval.ErrNotApplied, http.StatusConflict, "not_applied", "The approval wasn't used, so nothing can have come of it."},
	{approval.ErrFinished, http.StatusConflict, "finished", "The outcome was already reported; it is recorded once."},
	{approval.ErrServerRuns, http.StatusConflict, "server_runs", "The server runs this itself, and hands nobody its payload."},
	{approval.ErrUnverified, http.StatusServiceUnavailable, "unverified", "It couldn't be checked whether the people who approved still may. Nothing was used up. Make the same call again in a few seconds."},
	{approval.ErrUnavailable, http.StatusServiceUnavailable, "unavailable", "The server's store can't be used now. Nothing was changed. Make the same call again in a few seconds."},
}

// problemOf is what a caller is told of an error. What isn't the caller's doing is
// logged.
func (a *API) problemOf(r *http.Request, c call, err error) *problem {
	if input, ok := errors.AsType[*approval.InputError](err); ok {
		return &problem{status: http.StatusBadRequest, Code: "input", Field: input.Field, Message: input.Error() + "."}
	}
	if limit, ok := errors.AsType[*approval.LimitError](err); ok {
		p := &problem{status: http.StatusTooManyRequests, Code: "limit", Message: limit.Problem}
		if !limit.RetryAt.IsZero() {
			p.RetryAt = timeText(limit.RetryAt)
			p.retryAfter = max(time.Until(limit.RetryAt), time.Second)
		}
		return p
	}
	for _, k := range known {
		if !errors.Is(err, k.is) {
			continue
		}
		p := &problem{status: k.status, Code: k.code, Message: k.message}
		if refused, ok := errors.AsType[*refusedError](err); ok && refused.request != nil {
			p.Reason = refused.request.Reason
		}
		if k.status == http.StatusServiceUnavailable {
			p.retryAfter = 5 * time.Second
			a.options.Logger.Error("a call of the API could not be served", "path", r.URL.Path, "agent", c.agent.Name, "err", err)
		}
		return p
	}
	if r.Context().Err() != nil && errors.Is(err, context.Cause(r.Context())) {
		// Nobody is left to be told.
		return &problem{status: http.StatusServiceUnavailable, Code: "gone", Message: "The caller went away."}
	}
	a.options.Logger.Error("a call of the API failed", "path", r.URL.Path, "agent", c.agent.Name, "err", err)
	return &problem{status: http.StatusInternalServerError, Code: "internal", Message: "Internal error. Whoever runs the server finds the cause in its log."}
}
