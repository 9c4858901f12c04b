package slacksim

import (
	"context"
	"encoding/json"
	"net/http"
	"time"
)

// Reply is what came of one interaction, as the person who acted sees it.
type Reply struct {
	// Status is the HTTP status of the app's answer; 200 for an acknowledged Socket Mode envelope; 0 when no answer came.
	Status int
	// Body is the answer's body, or the payload of the Socket Mode acknowledgement.
	Body []byte
	// Shown is the error that Slack would show to the person; empty when all went well.
	Shown string
	// FieldErrors are messages on input blocks by block id, from the app or, with Sent false, from Slack's own form check.
	FieldErrors map[string]string
	// Sent reports whether anything was sent to the app.
	Sent bool
	// Attempts counts deliveries: 2 when a Socket Mode envelope was sent again.
	Attempts int
}

// OK reports whether the person saw neither an error nor messages on fields.
func (r Reply) OK() bool { return r.Shown == "" && len(r.FieldErrors) == 0 }

// Click has a person press a button in a message (an ephemeral one included), confirming its confirm dialog if it has one.
// It returns once the app answered or Slack's three seconds are over. An error means that there is nothing to press:
// unknown person, message or action.
func (w *Workspace) Click(ctx context.Context, userID, channelID, ts, actionID string) (Reply, error) {
	panic("API sketch")
}

// ClickInView has a person press a button in a modal they have open.
func (w *Workspace) ClickInView(ctx context.Context, userID, viewID, actionID string) (Reply, error) {
	panic("API sketch")
}

// Submit has a person press the modal's submit button. Values are by block id (an input block has one element): text as
// typed, or a chosen option's value; several options, for checkboxes, on a line each. Blocks that aren't named keep their
// initial value. Slack's own form check (required, lengths, numbers) comes first and may end it.
// The app's response_action is carried out before Submit returns.
func (w *Workspace) Submit(ctx context.Context, userID, viewID string, values map[string]string) (Reply, error) {
	panic("API sketch")
}

// CloseView has a person close the modal's top view with its close button; a view_closed is sent if the view asks for it.
func (w *Workspace) CloseView(ctx context.Context, userID, viewID string) (Reply, error) {
	panic("API sketch")
}

// ClickPayload returns the JSON that Click would send, with a live trigger_id and response_url, for a test to change or repeat.
func (w *Workspace) ClickPayload(userID, channelID, ts, actionID string) (json.RawMessage, error) {
	panic("API sketch")
}

// SubmitPayload returns the JSON that Submit would send, without the form check.
func (w *Workspace) SubmitPayload(userID, viewID string, values map[string]string) (json.RawMessage, error) {
	panic("API sketch")
}

// Deliver signs a payload and sends it as Slack would, whatever it says. The answer isn't acted upon.
func (w *Workspace) Deliver(ctx context.Context, payload json.RawMessage) (Reply, error) {
	panic("API sketch")
}

// FormBody encodes a payload as the body of an interaction request.
func FormBody(payload json.RawMessage) []byte { panic("API sketch") }

// Sign returns the headers of an interaction request whose body was signed at that time.
func (w *Workspace) Sign(body []byte, at time.Time) http.Header { panic("API sketch") }

// PassAckDeadline ends Slack's three seconds now for every interaction that is waiting for the app.
func (w *Workspace) PassAckDeadline() {}
