package slacksim

import (
	"context"
	"encoding/json"
	"fmt"
)

// Reply is what came of one interaction, as the person who acted sees it.
type Reply struct {
	// Status is the HTTP status of the app's answer; 200 for an acknowledged
	// Socket Mode envelope; 0 when no answer came.
	Status int
	// Body is the answer's body, or the payload of the Socket Mode
	// acknowledgement.
	Body []byte
	// Shown is the error that Slack would show to the person; empty when all
	// went well.
	Shown string
	// FieldErrors are messages on input blocks by block id, from the app or,
	// with Sent false, from Slack's own form check.
	FieldErrors map[string]string
	// Sent reports whether anything was sent to the app.
	Sent bool
	// Attempts counts deliveries: 2 when a Socket Mode envelope was sent again.
	Attempts int
}

// OK reports whether the person saw neither an error nor messages on fields.
func (r Reply) OK() bool { return r.Shown == "" && len(r.FieldErrors) == 0 }

// What Slack shows when an interaction goes wrong.
const (
	shownNoAnswer    = "This app didn't respond in time."
	shownBadAnswer   = "This app responded with an error."
	shownNoTarget    = "This app is not configured to handle interactive responses."
	shownFormTrouble = "We had some trouble connecting. Try again?"
)

// Click has a person press a button in a message (an ephemeral one included),
// confirming its confirm dialog if it has one. It returns once the app answered
// or Slack's three seconds are over. An error means that there is nothing to
// press: unknown person, message or action. Deactivated people and bots can
// press too, as in a race with their deactivation.
func (w *Workspace) Click(ctx context.Context, userID, channelID, ts, actionID string) (Reply, error) {
	return w.click(ctx, userID, channelID, ts, "", actionID)
}

func (w *Workspace) click(ctx context.Context, userID, channelID, ts, blockID, actionID string) (Reply, error) {
	payload, err := w.clickPayload(userID, channelID, ts, blockID, actionID)
	if err != nil {
		return Reply{}, fmt.Errorf("clicking: %w", err)
	}
	return w.Deliver(ctx, payload)
}

// ClickInView has a person press a button in the modal view they see.
func (w *Workspace) ClickInView(ctx context.Context, userID, viewID, actionID string) (Reply, error) {
	return w.clickInView(ctx, userID, viewID, "", actionID, nil)
}

func (w *Workspace) clickInView(ctx context.Context, userID, viewID, blockID, actionID string, values map[string]string) (Reply, error) {
	payload, err := w.viewClickPayload(userID, viewID, blockID, actionID, values)
	if err != nil {
		return Reply{}, fmt.Errorf("clicking in a view: %w", err)
	}
	return w.Deliver(ctx, payload)
}

// Submit has a person press the submit button of the view they see. Values are
// by block id (an input block has one element): text as typed, or a chosen
// option's value; several options, for checkboxes, on a line each. Blocks that
// aren't named keep their initial value. Slack's own form check (required,
// lengths, numbers) comes first and may end it. The app's response_action is
// carried out before Submit returns.
func (w *Workspace) Submit(ctx context.Context, userID, viewID string, values map[string]string) (Reply, error) {
	wrong, err := w.precheck(userID, viewID, values)
	if err != nil {
		return Reply{}, fmt.Errorf("submitting a view: %w", err)
	}
	if len(wrong) > 0 {
		return Reply{FieldErrors: wrong}, nil
	}
	payload, err := w.SubmitPayload(userID, viewID, values)
	if err != nil {
		return Reply{}, err
	}
	reply, err := w.Deliver(ctx, payload)
	if err != nil {
		return reply, err
	}
	if reply.Shown != "" {
		reply.Shown = shownFormTrouble
		return reply, nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.respond(&reply, userID, viewID)
	return reply, nil
}

// precheck runs the client's form check and shows its messages in the view.
func (w *Workspace) precheck(userID, viewID string, values map[string]string) (map[string]string, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	v, ok := w.top(userID, viewID)
	if !ok {
		return nil, fmt.Errorf("%s doesn't see a view %s", userID, viewID)
	}
	if textOf(v.content.Submit) == "" {
		return nil, fmt.Errorf("view %s has no submit button", viewID)
	}
	if err := v.checkNames(values); err != nil {
		return nil, err
	}
	v.errors = v.checkForm(values)
	w.ring()
	return v.errors, nil
}

// respond carries out the app's answer to a submission. The caller holds mu.
func (w *Workspace) respond(reply *Reply, userID, viewID string) {
	v, ok := w.views[viewID]
	if !ok {
		return // The person closed it meanwhile.
	}
	var body struct {
		Action string            `json:"response_action"`
		Errors map[string]string `json:"errors"`
		View   json.RawMessage   `json:"view"`
	}
	if len(reply.Body) > 0 && json.Unmarshal(reply.Body, &body) != nil {
		reply.Shown = shownFormTrouble
		return
	}
	switch body.Action {
	case "":
		w.dismiss(v)
	case "clear":
		w.clear(userID)
	case "errors":
		if len(body.Errors) == 0 || !v.hasInputs(body.Errors) {
			reply.Shown = shownFormTrouble
			return
		}
		v.errors, reply.FieldErrors = body.Errors, body.Errors
		w.ring()
	case "update", "push":
		var content viewContent
		if LintView(body.View) != nil || json.Unmarshal(body.View, &content) != nil || content.Type != "modal" ||
			body.Action == "push" && len(w.stacks[userID]) >= maxStack {
			reply.Shown = shownFormTrouble
			return
		}
		if body.Action == "update" {
			w.setContent(v, content)
		} else {
			w.show(userID, content)
		}
	default:
		reply.Shown = shownFormTrouble
	}
}

// CloseView has a person close the view they see with its close button; a
// view_closed is sent if the view asks for it.
func (w *Workspace) CloseView(ctx context.Context, userID, viewID string) (Reply, error) {
	payload, err := w.close(userID, viewID)
	if err != nil || payload == nil {
		return Reply{}, err
	}
	return w.Deliver(ctx, payload)
}

// close removes the view and returns the view_closed to send, if any.
func (w *Workspace) close(userID, viewID string) (json.RawMessage, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	v, ok := w.top(userID, viewID)
	if !ok {
		return nil, fmt.Errorf("closing a view: %s doesn't see a view %s", userID, viewID)
	}
	var payload json.RawMessage
	if v.content.NotifyOnClose {
		closed := w.origin("view_closed", userID)
		closed["view"] = w.viewJSON(v, nil)
		closed["is_cleared"] = v.content.ClearOnClose
		payload = asJSON(closed)
	}
	if v.content.ClearOnClose {
		w.clear(userID)
	} else {
		w.dismiss(v)
	}
	return payload, nil
}
