package mcp

import (
	"errors"

	"github.com/countersign/countersign/approval"
)

const internalError = "Internal error. Tell the user; whoever runs the server finds the cause in its log."

// refusal turns an error of approval into what the model is told, and returns
// every other error as it is. r is the request if approval returned one.
func refusal(err error, r *approval.Request) error {
	if input, ok := errors.AsType[*approval.InputError](err); ok {
		return &Refusal{Text: input.Error()}
	}
	if limit, ok := errors.AsType[*approval.LimitError](err); ok {
		return &Refusal{Text: limit.Problem + " Don't rephrase or split the request to get around this."}
	}
	if errors.Is(err, approval.ErrDenied) && r != nil {
		return &Refusal{Text: whenDenied(r)}
	}
	for _, known := range []struct {
		is   error
		text string
	}{
		{approval.ErrNotFound, "There is no such request of yours. Use the id that the call which asked returned."},
		{approval.ErrServerRuns, "The server runs this itself, and hands nobody its payload. Call await_result at the gateway with this id as requestId to get the result."},
		{approval.ErrPending, whilePending},
		{approval.ErrExpired, whenExpired},
		{approval.ErrRejected, "The request was rejected. " + noRetry},
		{approval.ErrApplied, whenUsed},
		{approval.ErrUnverified, "It couldn't be checked whether the people who approved still may. Nothing was used up. Call apply again in a few seconds; if that keeps failing, tell the user."},
		{approval.ErrUnavailable, "The server's store can't be used now. Nothing was changed. Try again in a minute; if that keeps failing, tell the user."},
	} {
		if !errors.Is(err, known.is) {
			continue
		}
		text := known.text
		if r != nil && stateOf(known.is) == r.Status {
			// The request itself says more: who refused and why, or which
			// deadline passed.
			text = guidance(r)
		}
		refused := &Refusal{Text: text}
		if known.is == approval.ErrUnverified || known.is == approval.ErrUnavailable {
			refused.cause = err
		}
		return refused
	}
	return err
}

// stateOf is the status that an error reports.
func stateOf(err error) approval.Status {
	switch err {
	case approval.ErrPending:
		return approval.Pending
	case approval.ErrExpired:
		return approval.Expired
	case approval.ErrRejected:
		return approval.Rejected
	case approval.ErrApplied:
		return approval.Applied
	default:
		return ""
	}
}
