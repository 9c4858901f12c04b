package slacksim

import "time"

// Fault is a way for a call to go wrong. Set one of Status, Error, HTML and Drop; Hold can be combined with each, or stand alone.
type Fault struct {
	// Status answers with this HTTP status instead of handling the call; 429 has Slack's ratelimited body.
	Status int
	// RetryAfter sets the Retry-After header, rounded up to whole seconds.
	RetryAfter time.Duration
	// Error answers 200 with ok:false and this name instead of handling the call.
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
	// DropDelivered handles the call, then closes the connection: the caller can't tell that it took effect.
	DropDelivered
)

// Fail makes the next times calls of a Web API method go wrong; with times of 0 or less, all calls until Recover.
// Faults of one method queue up. The method response_url stands for posts to response URLs.
func (w *Workspace) Fail(method string, fault Fault, times int) {}

// Recover removes the faults of a method that haven't been used up.
func (w *Workspace) Recover(method string) {}
