package slacksim

import (
	"net/url"
	"time"
)

// Call is one Web API request as it arrived and how it was answered.
type Call struct {
	Method string // such as chat.postMessage; response_url for a POST to one
	At     time.Time
	// Arguments are form-style: a nested value of a JSON body is kept as its JSON text. The token is left out.
	Arguments url.Values
	Status    int    // HTTP status of the answer; 0 when the connection was dropped
	Error     string // Slack's error name; empty when the answer was ok
	TS        string // of the message that was posted or updated
}

// Calls returns the calls of one method, oldest first; of all methods when method is empty. A call is in it once it has been
// answered or dropped.
func (w *Workspace) Calls(method string) []Call {
	w.mu.Lock()
	defer w.mu.Unlock()
	var found []Call
	for _, call := range w.calls {
		if method == "" || call.Method == method {
			found = append(found, call)
		}
	}
	return found
}

func (w *Workspace) record(call Call) {
	w.mu.Lock()
	w.calls = append(w.calls, call)
	w.ring()
	w.mu.Unlock()
	w.log.Debug("slack call", "method", call.Method, "status", call.Status, "err", call.Error)
}
