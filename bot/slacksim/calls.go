package slacksim

import (
	"net/http"
	"net/url"
	"time"
)

// Call is one Web API request as it arrived and how it was answered.
type Call struct {
	Method string // such as chat.postMessage; response_url for a POST to one
	At     time.Time
	// Arguments are form-style: a nested value of a JSON body is kept as its
	// JSON text. The token is left out.
	Arguments url.Values
	Status    int    // HTTP status of the answer; 0 while there is none, and when the connection was dropped
	Error     string // Slack's error name; empty when the answer was ok
	TS        string // of the message that was posted or updated
}

// Calls returns the calls of one method, oldest first; of all methods when
// method is empty. A call is in it from its arrival, so before it has any
// effect.
func (w *Workspace) Calls(method string) []Call {
	w.mu.Lock()
	defer w.mu.Unlock()
	var found []Call
	for _, call := range w.calls {
		if method == "" || call.Method == method {
			found = append(found, *call)
		}
	}
	return found
}

// arrive notes a call and returns its record, whose answer is filled in by
// finish.
func (w *Workspace) arrive(method string, arguments url.Values) *Call {
	w.mu.Lock()
	defer w.mu.Unlock()
	call := &Call{Method: method, At: w.now(), Arguments: arguments}
	w.calls = append(w.calls, call)
	w.ring()
	return call
}

// finish notes what a call came to. Without an answer, the connection was
// dropped.
func (w *Workspace) finish(call *Call, a answer, answered bool) {
	w.mu.Lock()
	call.Error, call.TS = a.code, a.ts
	if answered {
		call.Status = a.status
	}
	done := *call
	w.ring()
	w.mu.Unlock()
	w.log.Debug("slack call", "method", done.Method, "status", done.Status, "err", done.Error)
}

// serveCall answers a call, unless a fault says otherwise.
func (w *Workspace) serveCall(rw http.ResponseWriter, r *http.Request, method string, handle func(arguments url.Values, token string) answer) {
	arguments, token, err := readArguments(rw, r)
	call := w.arrive(method, arguments)
	fault := w.strike(method)
	if !fault.wait(r) || fault.Drop == DropUnhandled {
		w.finish(call, answer{}, false)
		panic(http.ErrAbortHandler)
	}
	a, faulty := fault.answer()
	switch {
	case faulty:
	case err != nil:
		a = failure("invalid_form_data")
	default:
		a = handle(arguments, token)
	}
	if fault.Drop == DropDelivered {
		w.finish(call, a, false)
		panic(http.ErrAbortHandler)
	}
	w.finish(call, a, true)
	a.write(rw)
}
