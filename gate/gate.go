// Package gate lets a Go program, such as a background job, ask a running
// countersign server before it does something that matters, so that the job goes
// through the same policy and the same people as an agent does.
//
// Do asks, waits as long as people take, and runs a function once, with exactly
// the bytes that were approved. Whatever goes wrong before that means that the
// function doesn't run: nothing here ever takes silence, a broken connection or
// an answer that it doesn't understand for a yes.
//
// It can't keep a job from acting without it. Give a job no way around: keep the
// credentials for what matters inside the function, or better, behind the
// gateway.
package gate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"
)

// Options set up a Gate. The zero value is usable.
type Options struct {
	// Waiting, if it isn't nil, is called once for each request that people
	// have to decide on, before the wait for them.
	Waiting func(Request)
	// Logger gets what happens while a call waits, such as a server that can't be
	// reached; nil discards it.
	Logger *slog.Logger
	// Transport makes the calls; nil means http.DefaultTransport. It sees the
	// token.
	Transport http.RoundTripper
}

// Action is what a program wants to do.
type Action struct {
	// Purpose says in a sentence, for the people who decide, what this is for.
	// Required.
	Purpose string
	// Payload is the JSON object that will run: all that the function needs to
	// know. People see it, and what they approve is these bytes. Required.
	Payload json.RawMessage

	// Name is INTEGRATION.TOOL, by which the policy knows the action. What has
	// no name waits for a person or is denied.
	Name string
	// Target is what it acts on, in words that people know.
	Target string
	// Environment is where; empty means production.
	Environment string
	// Count is on how many things it acts, and Reversible whether it can be
	// undone; nil if that isn't known.
	Count      *int64
	Reversible *bool

	// TTL is how long people have to decide, in whole seconds; zero means the
	// server's default of an hour. Other values are brought within a minute and a
	// day.
	TTL time.Duration
}

// Request is an action that was asked.
type Request struct {
	// ID names the request. It is a locator: it grants nothing.
	ID string
	// ReviewURL is where people find it.
	ReviewURL string
	// WaitingFor is what approving takes, such as "1 of oncall".
	WaitingFor string
	// ExpiresAt is until when people can decide.
	ExpiresAt time.Time
}

// Gate asks one server as one agent, whose name and owner the token says. It is
// safe for concurrent use.
type Gate struct {
	client  *client
	options Options
}

// New returns a Gate to the server at an address such as
// https://approvals.example.com, with the token of an agent. Plain http is
// accepted for this machine's loopback only, since the token would be readable on
// the way. New connects to nothing.
func New(server, token string, options Options) (*Gate, error) {
	if options.Logger == nil {
		options.Logger = slog.New(slog.DiscardHandler)
	}
	c, err := newClient(server, token, options)
	if err != nil {
		return nil, err
	}
	return &Gate{client: c, options: options}, nil
}

// Do asks whether an action may run, waits until that is decided, and then calls
// run once with the approved payload. That is what was asked, byte for byte,
// unless somebody who may has edited it: run must act on what it is given and on
// nothing else.
//
// If run wasn't called, the error is a *NotRunError that says why. Otherwise Do
// returns the error of run, joined with ErrUnreported if the server couldn't be
// told what the run came to.
//
// The server and the people who decided are told whether run succeeded, with its
// report in at most 1000 characters, or its error if the report is empty. So
// neither may hold a secret. A run that panics is reported as failed.
//
// Waiting outlives restarts of the server and broken connections. The end of ctx
// ends it and decides nothing: the request stays with the people, and asking for
// exactly the same while it waits finds it again. Two calls that wait for one
// request share its approval, and one of them runs. Once run is called, ctx is
// run's own to heed.
func (g *Gate) Do(ctx context.Context, action Action, run func(ctx context.Context, payload json.RawMessage) (report string, err error)) error {
	if run == nil {
		return notRun(errors.New("there is no function to run"), "")
	}
	id, payload, err := g.approved(ctx, action)
	if err != nil {
		return notRun(err, id)
	}
	if ctx.Err() != nil {
		// The approval is used up, so the people who gave it are told; nothing ran,
		// so it is no matter if they can't be.
		_ = g.report(ctx, id, failed, "Not run: it was stopped before it began.")
		return notRun(stoppedBy(ctx), id)
	}
	ended := false
	defer func() {
		if !ended {
			_ = g.report(ctx, id, failed, "It panicked.") // the panic says more
		}
	}()
	report, err := run(ctx, payload)
	ended = true
	outcome := succeeded
	if err != nil {
		outcome = failed
		if report == "" {
			report = err.Error()
		}
	}
	return unreported(err, g.report(ctx, id, outcome, report))
}

// approved asks, waits, and uses the approval for the payload.
func (g *Gate) approved(ctx context.Context, action Action) (id string, payload json.RawMessage, err error) {
	body, err := action.body()
	if err != nil {
		return "", nil, err
	}
	r, err := g.client.ask(ctx, body)
	if err != nil {
		return "", nil, err
	}
	id = r.ID
	if r.Status == pending && g.options.Waiting != nil {
		g.options.Waiting(Request{ID: id, ReviewURL: r.ReviewURL, WaitingFor: r.WaitingFor, ExpiresAt: r.ExpiresAt})
	}
	unsure := false // a call may have used the approval without getting its answer here
	for err == nil {
		switch r.Status {
		case pending:
			r, err = g.client.wait(ctx, id)
		case approved:
			if payload, r, err = g.client.apply(ctx, id, &unsure); payload != nil {
				return id, payload, nil
			}
		default:
			return id, nil, r.refusal(unsure)
		}
	}
	if unsure {
		err = fmt.Errorf("%w: %w", ErrLost, err)
	}
	return id, nil, err
}

// reportLimit is how many characters of a report the server takes.
const reportLimit = 1000

// report tells the server what a run came to, also after ctx has ended.
func (g *Gate) report(ctx context.Context, id, outcome, report string) error {
	report = strings.ToValidUTF8(strings.ReplaceAll(report, "\x00", ""), "\ufffd")
	if utf8.RuneCountInString(report) > reportLimit {
		report = string([]rune(report)[:reportLimit-1]) + "…"
	}
	err := g.client.finish(context.WithoutCancel(ctx), id, outcome, report)
	if err != nil {
		g.options.Logger.Error("the server couldn't be told what a run came to", "request_id", id, "outcome", outcome, "err", err)
	}
	return err
}

// unreported adds to the error of a run that the server doesn't know of it.
func unreported(err, reporting error) error {
	if reporting == nil {
		return err
	}
	return errors.Join(err, fmt.Errorf("%w: %w", ErrUnreported, reporting))
}
