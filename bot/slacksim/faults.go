package slacksim

import (
	"net/http"
	"time"
)

// Fault is a way for a call to go wrong. Set one of Status, Error, HTML and
// Drop; Hold can be combined with each, or stand alone.
type Fault struct {
	// Status answers with this HTTP status instead of handling the call; 429
	// has Slack's ratelimited body.
	Status int
	// RetryAfter sets the Retry-After header, rounded up to whole seconds.
	RetryAfter time.Duration
	// Error answers 200 with ok:false and this name instead of handling the
	// call.
	Error string
	// HTML answers 200 with an HTML page, as a proxy in between would.
	HTML bool
	// Drop closes the connection without an answer.
	Drop Drop
	// Hold delays the call until the channel is closed or the client goes away.
	Hold <-chan struct{}
}

// Drop says whether a dropped call took effect.
type Drop int

const (
	// DropNone answers normally.
	DropNone Drop = iota
	// DropUnhandled closes the connection before the call is handled.
	DropUnhandled
	// DropDelivered handles the call, then closes the connection: the caller
	// can't tell that it took effect.
	DropDelivered
)

// armedFault is a fault and how often it still strikes; forever when left is
// negative.
type armedFault struct {
	Fault
	left int
}

// Fail makes the next times calls of a Web API method go wrong; with times of 0
// or less, all calls until Recover. Faults of one method queue up. The method
// response_url stands for posts to response URLs.
func (w *Workspace) Fail(method string, fault Fault, times int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if times <= 0 {
		times = -1
	}
	w.faults[method] = append(w.faults[method], &armedFault{fault, times})
}

// Recover removes the faults of a method that haven't been used up.
func (w *Workspace) Recover(method string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.faults, method)
}

// strike takes the fault for a call of the method, if there is one.
func (w *Workspace) strike(method string) Fault {
	w.mu.Lock()
	defer w.mu.Unlock()
	queue := w.faults[method]
	if len(queue) == 0 {
		return Fault{}
	}
	first := queue[0]
	if first.left--; first.left == 0 {
		w.faults[method] = queue[1:]
	}
	return first.Fault
}

// faultPage is what a proxy between the app and Slack might answer.
const faultPage = "<!doctype html><title>Sign in</title><p>This isn't Slack.</p>"

// answer returns what the fault answers instead of handling the call, if it
// does.
func (f Fault) answer() (answer, bool) {
	switch {
	case f.Status == http.StatusTooManyRequests:
		return rateLimited(f.RetryAfter), true
	case f.Status != 0:
		return answer{status: f.Status, retryAfter: f.RetryAfter}, true
	case f.Error != "":
		return failure(f.Error), true
	case f.HTML:
		return answer{status: http.StatusOK, page: faultPage}, true
	}
	return answer{}, false
}

// wait holds the call back as the fault says. It reports whether the client is
// still there.
func (f Fault) wait(r *http.Request) bool {
	if f.Hold == nil {
		return true
	}
	select {
	case <-f.Hold:
		return true
	case <-r.Context().Done():
		return false
	}
}
