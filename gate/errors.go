package gate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/countersign/countersign/internal/visible"
)

// Why an action wasn't run, for errors.Is.
var (
	// ErrRejected means that a person said no. Don't ask again for the same.
	ErrRejected = errors.New("a person said no")
	// ErrSuperseded means that what was asked doesn't hold any more: the policy
	// or the roles of those who approved have changed. It can be asked again.
	ErrSuperseded = errors.New("what was asked doesn't hold any more")
	// ErrExpired means that nobody decided in time, or that the approval wasn't
	// used in time. Nobody refused, and silence is not consent.
	ErrExpired = errors.New("the deadline passed, and silence is not consent")
	// ErrDenied means that the policy denies the action. Nobody was asked.
	ErrDenied = errors.New("the policy denies it, and no person was asked")
	// ErrLimit means that the agent asks too much of people.
	ErrLimit = errors.New("too much was asked")
	// ErrUsed means that another call used the approval, which works once.
	ErrUsed = errors.New("another call used the approval, which works once")
	// ErrLost means that the answer with the payload got lost on the way. The
	// approval may be used up.
	ErrLost = errors.New("the connection broke while the approval was being used, so the payload isn't here and the approval may be used up; look at the request before asking again")
	// ErrStopped means that the context ended, whose cause is wrapped too.
	ErrStopped = errors.New("it was stopped before it began")
	// ErrToken means that the server doesn't know the token.
	ErrToken = errors.New("the server refused the token; `countersign token create`, on the server, makes a new one")
	// ErrUnreachable means that the server couldn't be reached, or couldn't
	// answer, for so long that nothing was asked.
	ErrUnreachable = errors.New("the server can't be reached")
)

// ErrUnreported means that an action was run, and that the server couldn't be told
// what came of it. Don't run it again for that.
var ErrUnreported = errors.New("it was run, but the server couldn't be told what came of it")

// NotRunError is the error of Do if the function wasn't called.
type NotRunError struct {
	// RequestID names the request; empty if none is known to be stored.
	RequestID string
	// Err is why: one of the errors above, or what is wrong with the action, the
	// server or its answer.
	Err error
	// Reason is a person's, the policy's or the server's own words for it; empty
	// if there are none.
	Reason string
	// RetryAt is when asking again may work after ErrLimit; zero if that doesn't
	// depend on the time alone.
	RetryAt time.Time
}

// Error says that nothing ran and why, on one line in which every character can be
// seen.
func (e *NotRunError) Error() string {
	text := "not run: " + e.Err.Error()
	if e.Reason != "" {
		text += ": " + visible.Line(e.Reason)
	}
	if !e.RetryAt.IsZero() {
		text += " (again from " + e.RetryAt.UTC().Format(time.RFC3339) + " on)"
	}
	return text
}

// Unwrap returns why.
func (e *NotRunError) Unwrap() error { return e.Err }

// notRun is why the action of a request isn't run.
func notRun(err error, id string) *NotRunError {
	why, ok := err.(*NotRunError) // not one that is only a part of why
	if !ok {
		why = &NotRunError{Err: err}
	}
	why.RequestID = id
	return why
}

// stoppedBy is ErrStopped with the cause of a context's end.
func stoppedBy(ctx context.Context) error {
	return fmt.Errorf("%w: %w", ErrStopped, context.Cause(ctx))
}
