package gate

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/countersign/countersign/internal/loopback"
	"github.com/countersign/countersign/internal/strictjson"
	"github.com/countersign/countersign/internal/visible"
)

const (
	// waitSeconds is how long one call waits for a decision: less than the 30
	// seconds after which some proxies give up.
	waitSeconds = 25
	// attemptLimit is how long one attempt of a call may take beyond that.
	attemptLimit = 15 * time.Second
	// patience is how long a server that can't be reached is tried that hasn't
	// been asked yet, or that has to be told what a run came to: long enough for
	// a restart.
	patience = time.Minute
	// maxAnswer bounds an answer, in bytes. The largest payload that a server can
	// be set to is 1 MiB.
	maxAnswer = 4 << 20
)

// Pauses between attempts double from the first to the most, less a random part.
const (
	firstPause = 200 * time.Millisecond
	mostPause  = 10 * time.Second
)

// The statuses of a request, and what a run comes to, on the wire.
const (
	pending  = "pending"
	approved = "approved"
	rejected = "rejected"
	expired  = "expired"
	applied  = "applied"

	succeeded = "succeeded"
	failed    = "failed"
)

// state is a request as the server describes it.
type state struct {
	ID         string
	Status     string
	ReviewURL  string
	WaitingFor string
	ExpiresAt  time.Time
	Reason     string
	RejectedBy string
}

// refusal is why a request that is in a final state doesn't run. unsure is whether
// a call of this side may have used its approval.
func (s state) refusal(unsure bool) error {
	why := &NotRunError{Reason: s.Reason}
	switch {
	case s.Status == rejected && s.RejectedBy == "person":
		why.Err = ErrRejected
	case s.Status == rejected:
		why.Err = ErrSuperseded
	case s.Status == expired:
		why.Err = ErrExpired
	case s.Status == applied && unsure:
		why.Err = ErrLost
	case s.Status == applied:
		why.Err = ErrUsed
	default:
		why.Err = fmt.Errorf("the server says %q of the request, which this version doesn't know", s.Status)
	}
	return why
}

// client makes the calls of the HTTP API.
type client struct {
	address string
	http    *http.Client
	logger  *slog.Logger
}

// serverAddress is where a server is: scheme and host, with nothing that anybody on
// the way could read or change.
func serverAddress(server string) (string, error) {
	address, err := url.Parse(server)
	switch {
	case err != nil || address.Host == "" || (address.Scheme != "https" && address.Scheme != "http"):
		if strings.Contains(server, "@") {
			server = "what is given" // it may have a password in it
		} else {
			server = strconv.Quote(server)
		}
		return "", fmt.Errorf("%s is not an address like https://approvals.example.com", server)
	case address.User != nil || address.RawQuery != "" || address.Fragment != "" || strings.Trim(address.Path, "/") != "":
		return "", fmt.Errorf("the address of %s has more than scheme and host", address.Host)
	case address.Scheme == "http" && !loopback.Is(address.Hostname()):
		return "", fmt.Errorf("%s would be called in the clear, where others can read and change what is sent; use https", server)
	}
	return address.Scheme + "://" + address.Host, nil
}

func newClient(server, token string, options Options) (*client, error) {
	address, err := serverAddress(server)
	if err != nil {
		return nil, err
	}
	if token == "" || strings.ContainsFunc(token, func(c rune) bool { return c <= ' ' || c > '~' }) {
		return nil, errors.New("that is no token; `countersign token create`, on the server, makes one")
	}
	transport := options.Transport
	if transport == nil {
		transport = http.DefaultTransport
	}
	return &client{
		address: address,
		logger:  options.Logger,
		http: &http.Client{
			Transport: authorized(transport, token),
			// A redirect would take the token along.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}, nil
}

// transport is a function as an http.RoundTripper. A function shows nothing of
// what it holds, however it is printed.
type transport func(*http.Request) (*http.Response, error)

func (t transport) RoundTrip(r *http.Request) (*http.Response, error) { return t(r) }

func authorized(next http.RoundTripper, token string) http.RoundTripper {
	return transport(func(r *http.Request) (*http.Response, error) {
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", "Bearer "+token)
		return next.RoundTrip(r)
	})
}

// body is the action as the server takes it. The payload is in it byte for byte.
func (a Action) body() ([]byte, error) {
	if err := strictjson.Check(a.Payload); err != nil {
		return nil, fmt.Errorf("the payload is %w", err)
	}
	payload := bytes.TrimSpace(a.Payload)
	if payload[0] != '{' {
		return nil, errors.New("the payload is no JSON object")
	}
	var b bytes.Buffer
	member := func(name string, value any) error {
		if text, ok := value.(string); ok && !utf8.ValidString(text) {
			return fmt.Errorf("%s is not valid UTF-8 text", name)
		}
		written, err := json.Marshal(value)
		if err != nil {
			return err
		}
		fmt.Fprintf(&b, "%q:%s,", name, written)
		return nil
	}
	b.WriteByte('{')
	err := member("purpose", a.Purpose)
	for name, value := range map[string]string{"action": a.Name, "target": a.Target, "environment": a.Environment} {
		if value != "" {
			err = errors.Join(err, member(name, value))
		}
	}
	if a.Count != nil {
		err = errors.Join(err, member("count", *a.Count))
	}
	if a.Reversible != nil {
		err = errors.Join(err, member("reversible", *a.Reversible))
	}
	if a.TTL != 0 {
		err = errors.Join(err, member("ttlSeconds", int64(a.TTL/time.Second)))
	}
	if err != nil {
		return nil, err
	}
	b.WriteString(`"payload":`)
	b.Write(payload)
	b.WriteByte('}')
	return b.Bytes(), nil
}

// ask stores a request. Made again because its answer got lost, it finds what it
// stored, as long as that is pending.
func (c *client) ask(ctx context.Context, body []byte) (state, error) {
	answer, err := c.call(ctx, call{method: http.MethodPost, path: "/requests", body: body, patience: patience})
	if err != nil {
		return state{}, err
	}
	s, err := stateOf(answer)
	if err == nil && s.ID == "" {
		err = errors.New("the server's answer names no request")
	}
	return s, err
}

// wait returns the request when it is decided or the time of one call is over.
func (c *client) wait(ctx context.Context, id string) (state, error) {
	began := time.Now()
	answer, err := c.call(ctx, call{method: http.MethodGet, path: requestPath(id, "") + "?wait=" + strconv.Itoa(waitSeconds), waits: true})
	if err != nil {
		return state{}, err
	}
	s, err := stateOf(answer)
	if err == nil && s.Status == pending && time.Since(began) < time.Second {
		// A server that doesn't wait isn't called in a loop.
		err = pause(ctx, time.Second)
	}
	return s, err
}

// apply uses the approval of a request and returns its payload; if that can't be
// used any more, the request as it is. It sets unsure before it returns something
// else than a payload although the approval may have been used by it.
func (c *client) apply(ctx context.Context, id string, unsure *bool) (json.RawMessage, state, error) {
	answer, err := c.call(ctx, call{method: http.MethodPost, path: requestPath(id, "/apply"), whole: true, unsure: unsure})
	if refused, ok := errors.AsType[*refusedError](err); ok && refused.status == http.StatusConflict {
		answer, err = c.call(ctx, call{method: http.MethodGet, path: requestPath(id, "")})
		if err != nil {
			return nil, state{}, err
		}
		s, err := stateOf(answer)
		if err == nil && s.Status == approved {
			err = refused // such as for what the server runs itself
		}
		return nil, s, err
	}
	if err != nil {
		return nil, state{}, err
	}
	payload, err := payloadOf(answer)
	if err != nil {
		*unsure = true
	}
	return payload, state{}, err
}

// finish reports what a run came to.
func (c *client) finish(ctx context.Context, id, outcome, detail string) error {
	body, err := json.Marshal(map[string]string{"outcome": outcome, "detail": detail})
	if err != nil {
		return err
	}
	_, err = c.call(ctx, call{method: http.MethodPost, path: requestPath(id, "/outcome"), body: body, patience: patience})
	if refused, ok := errors.AsType[*refusedError](err); ok && refused.code == "finished" {
		return nil // by an attempt whose answer got lost
	}
	return err
}

func requestPath(id, rest string) string { return "/requests/" + url.PathEscape(id) + rest }

func stateOf(answer []byte) (state, error) {
	var s state
	if err := json.Unmarshal(answer, &s); err != nil {
		return state{}, errors.New("the server's answer can't be read")
	}
	return s, nil
}

// payloadOf takes the payload out of an answer as it was written.
func payloadOf(answer []byte) (json.RawMessage, error) {
	members, err := strictjson.Members(answer)
	if err != nil {
		return nil, fmt.Errorf("the server's answer can't be read: %w", err)
	}
	var status string
	var payload json.RawMessage
	for _, member := range members {
		switch member.Name {
		case "status":
			status = string(member.Value)
		case "payload":
			payload = member.Value
		}
	}
	if status != strconv.Quote(applied) || len(payload) == 0 || payload[0] != '{' {
		return nil, errors.New("the server's answer has no payload")
	}
	return payload, nil
}

// call is one call of the API.
type call struct {
	method, path string
	body         []byte
	waits        bool          // for waitSeconds
	patience     time.Duration // how long it is tried; 0 is as long as the context lasts
	whole        bool          // an attempt goes on to its end although the context ends
	unsure       *bool         // set by an attempt without an answer that may have had an effect
}

// call makes a call until the server answers it. The error wraps ErrStopped if ctx
// ends and ErrUnreachable if patience does; else it is what the server refused.
func (c *client) call(ctx context.Context, one call) ([]byte, error) {
	var giveUp <-chan time.Time
	if one.patience > 0 {
		timer := time.NewTimer(one.patience)
		defer timer.Stop()
		giveUp = timer.C
	}
	said := ""
	for next := firstPause; ; next = min(2*next, mostPause) {
		if ctx.Err() != nil {
			return nil, stoppedBy(ctx)
		}
		answer, err := c.attempt(ctx, one)
		if err == nil {
			if said != "" {
				c.logger.Info("the server answers again")
			}
			return answer, nil
		}
		if one.unsure != nil && mayHaveHappened(err) {
			*one.unsure = true
		}
		if !again(err) {
			return nil, public(err)
		}
		if ctx.Err() != nil {
			return nil, stoppedBy(ctx)
		}
		if text := err.Error(); text != said {
			c.logger.Warn("the server doesn't answer; trying again", "err", err)
			said = text
		}
		timer := time.NewTimer(next/2 + rand.N(next/2))
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil, stoppedBy(ctx)
		case <-giveUp:
			timer.Stop()
			return nil, fmt.Errorf("%w: %w", ErrUnreachable, err)
		case <-timer.C:
		}
	}
}

// again reports whether a call that ended with an error may be answered later.
func again(err error) bool {
	if _, ok := errors.AsType[*noAnswerError](err); ok {
		return true
	}
	refused, ok := errors.AsType[*refusedError](err)
	// With these, the server says that it did nothing.
	return ok && (refused.status == http.StatusServiceUnavailable || refused.status == http.StatusRequestTimeout)
}

// mayHaveHappened reports whether a call that ended with an error may have had its
// effect.
func mayHaveHappened(err error) bool {
	if none, ok := errors.AsType[*noAnswerError](err); ok {
		return none.sent
	}
	_, refused := errors.AsType[*refusedError](err)
	return !refused
}

// attempt makes a call once. The error is a *noAnswerError, a *refusedError, or
// another that trying again doesn't help.
func (c *client) attempt(ctx context.Context, one call) ([]byte, error) {
	limit := attemptLimit
	if one.waits {
		limit += waitSeconds * time.Second
	}
	if one.whole {
		ctx = context.WithoutCancel(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, one.method, c.address+"/api/v1"+one.path, bytes.NewReader(one.body))
	if err != nil {
		return nil, err
	}
	if one.method == http.MethodPost {
		request.Header.Set("Content-Type", "application/json")
	}
	response, err := c.http.Do(request)
	if err != nil {
		return nil, noAnswer(err)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	switch {
	case err != nil:
		return nil, &noAnswerError{err: err, sent: true}
	case len(answer) > maxAnswer:
		return nil, errors.New("the server's answer is too large to be one")
	case response.StatusCode == http.StatusOK || response.StatusCode == http.StatusCreated:
		return answer, nil
	}
	if refused := refusalOf(response.StatusCode, answer); refused != nil && refused.code != "internal" {
		return nil, refused
	}
	foreign := fmt.Errorf("%s answers with the status %d, which says nothing of the request", c.address, response.StatusCode)
	if response.StatusCode >= 500 {
		// A proxy that doesn't reach the server says this, or a server in trouble.
		return nil, &noAnswerError{err: foreign, sent: true}
	}
	return nil, foreign
}

// noAnswer sorts what kept a call from being answered: what can't be helped by
// trying again is returned as it is.
func noAnswer(err error) error {
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		err = wrapped.Err // the address is known
	}
	_, untrusted := errors.AsType[*tls.CertificateVerificationError](err)
	if untrusted || errors.Is(err, http.ErrSchemeMismatch) {
		return err
	}
	broken, ok := errors.AsType[*net.OpError](err)
	return &noAnswerError{err: err, sent: !ok || broken.Op != "dial"}
}

// refusedError is a refusal that the server wrote.
type refusedError struct {
	status                int
	code, message, reason string
	retryAt               time.Time
}

// refusalOf reads the refusal in an answer; nil if there is none.
func refusalOf(status int, answer []byte) *refusedError {
	var read struct {
		Error struct {
			Code, Message, Reason string
			RetryAt               time.Time
		}
	}
	if json.Unmarshal(answer, &read) != nil || read.Error.Code == "" {
		return nil
	}
	e := read.Error
	return &refusedError{status, e.Code, e.Message, e.Reason, e.RetryAt}
}

func (e *refusedError) Error() string { return "the server refuses it: " + visible.Line(e.message) }

// public is an error as callers of Do can test for it.
func public(err error) error {
	refused, ok := errors.AsType[*refusedError](err)
	if !ok {
		return err
	}
	switch refused.code {
	case "token":
		return ErrToken
	case "denied":
		return &NotRunError{Err: ErrDenied, Reason: refused.reason}
	case "limit":
		return &NotRunError{Err: ErrLimit, Reason: refused.message, RetryAt: refused.retryAt}
	default:
		return err
	}
}

// noAnswerError means that a call got no answer of the server's. sent is whether
// the server may have got the call.
type noAnswerError struct {
	err  error
	sent bool
}

func (e *noAnswerError) Error() string { return e.err.Error() }
func (e *noAnswerError) Unwrap() error { return e.err }

// pause waits, or returns why not.
func pause(ctx context.Context, length time.Duration) error {
	timer := time.NewTimer(length)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return stoppedBy(ctx)
	case <-timer.C:
		return nil
	}
}
