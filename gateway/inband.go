package gateway

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/internal/seal"
	"github.com/countersign/countersign/internal/strictjson"
	"github.com/countersign/countersign/internal/visible"
)

const (
	// confirmWithin is how long a client may take to confirm.
	confirmWithin = 5 * time.Minute
	// linkWithin is how long a client may take to come back from a link, where
	// people decide meanwhile. That it comes back decides nothing.
	linkWithin = time.Hour
)

// maxForm bounds what is confirmed in a client, in characters as they are shown:
// the action and its arguments, whole. Clients show a form in a small place.
const maxForm = 1200

// fitsForm reports whether a call can be shown whole in a form.
func fitsForm(t *tool, arguments json.RawMessage) bool {
	return utf8.RuneCountInString(visible.Line(t.action()))+utf8.RuneCountInString(visible.Text(string(arguments))) <= maxForm
}

// form asks to confirm a call, which it shows whole. What policy hides from
// people isn't hidden here: the client asked for it itself.
func form(r *approval.Request) *sdk.ElicitParams {
	var b strings.Builder
	b.WriteString("Run this?")
	line := func(name, value string) {
		if value != "" {
			b.WriteString("\n" + name + ": " + value)
		}
	}
	line("Action", visible.Line(r.Action))
	line("Target", visible.Line(r.Target))
	line("Environment", visible.Line(r.Ruling.Environment))
	if r.Ruling.Count.Known {
		line("Count", strconv.FormatFloat(r.Ruling.Count.Value, 'f', -1, 64))
	}
	line("Arguments", visible.Text(string(r.Payload)))
	return &sdk.ElicitParams{
		Mode:            "form",
		Message:         b.String(),
		RequestedSchema: json.RawMessage(`{"type":"object","properties":{"approve":{"type":"boolean","title":"Run it","description":"Yes runs it now, once. No refuses it.","default":false}},"required":["approve"]}`),
	}
}

// accepted reports whether an answer to form says yes: nothing else counts as it.
func accepted(answer *sdk.ElicitResult) bool {
	approve, _ := answer.Content["approve"].(bool)
	return answer.Action == "accept" && approve
}

// The kinds of what a client comes back with.
const (
	stateForm = "form"
	stateLink = "link"
)

// question is how the answer is named in inputResponses.
const question = "approval"

// state is what is sealed in requestState. Whose it is, and for which call, isn't
// in it: it opens for that call only.
type state struct {
	Kind    string      `json:"kind"`
	Request approval.ID `json:"request"`
	Digest  string      `json:"digest"`
	// Called is as in asker.
	Called bool `json:"called,omitempty"`
}

// binding is what a state is good for: one agent's call of one tool as it is now,
// with the same arguments.
func (c *call) binding(arguments json.RawMessage) ([][]byte, error) {
	canonical, err := strictjson.Canonical(arguments)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(canonical)
	return [][]byte{
		[]byte("requestState"),
		[]byte(c.agent.Name),
		[]byte(c.agent.Owner.String()),
		[]byte(methodCallTool),
		[]byte(c.tool.action()),
		[]byte(c.tool.pin),
		sum[:],
	}, nil
}

// comeBack is the answer that asks a client of the protocol without sessions
// something, upon which it makes the same call again, at most within a time.
func (c *call) comeBack(kind string, within time.Duration, r *approval.Request, arguments json.RawMessage, ask *sdk.ElicitParams) (json.RawMessage, error) {
	bound, err := c.binding(arguments)
	if err != nil {
		return nil, err
	}
	now := c.options.Now()
	sealed, err := c.sealer.Seal(now, now.Add(within), bound, mustEncode(state{kind, r.ID, r.Digest.String(), c.called}))
	if err != nil {
		return nil, err
	}
	return mustEncode(map[string]any{
		resultTypeName:  inputRequired,
		requestState:    sealed,
		"inputRequests": sdk.InputRequestMap{question: ask},
	}), nil
}

// confirm asks the agent's client about a call, where policy says that its word
// is enough.
func (c *call) confirm(r *approval.Request, arguments json.RawMessage) (json.RawMessage, error) {
	within := min(confirmWithin, max(r.ExpiresAt.Sub(c.options.Now()), time.Millisecond))
	if c.modern {
		return c.comeBack(stateForm, within, r, arguments, form(r))
	}
	c.wait(0, "Waiting for the user to confirm.")
	asking, cancel := c.asking(within)
	defer cancel()
	answer, err := c.session.Elicit(asking, form(r))
	switch {
	case c.ctx.Err() != nil:
		return nil, context.Cause(c.ctx) // nobody has answered: the same call asks again
	case c.until.Err() != nil:
		return nil, &notRun{text: whenStopping}
	case err != nil:
		c.installation.logger.Info("a client couldn't be asked to confirm", "request_id", r.ID, "err", err)
		return c.leaveToPeople(r.ID)
	}
	return c.decided(r.ID, r.Digest, accepted(answer))
}

// answered is the second round of a call: the client comes back with what it was
// asked.
func (c *call) answered(sealed string, arguments json.RawMessage) (json.RawMessage, error) {
	bound, err := c.binding(arguments)
	if err != nil {
		return nil, &notRun{text: whenForged}
	}
	content, err := c.sealer.Open(c.options.Now(), sealed, bound)
	if errors.Is(err, seal.ErrExpired) {
		return nil, &notRun{text: whenStateExpired}
	}
	var s state
	if err == nil {
		err = json.Unmarshal(content, &s)
	}
	if err != nil {
		c.installation.logger.Warn("a state wasn't made for this call", "tool", c.tool.action(), "agent", c.agent.Name)
		return nil, &notRun{text: whenForged}
	}
	c.called = s.Called
	if s.Kind == stateLink {
		r, err := c.service.Status(c.ctx, c.agent, s.Request)
		if err != nil {
			return nil, unknown(err, s.Request)
		}
		if r.Status == approval.Pending {
			return c.pend(r)
		}
		return c.settle(r, c.options.AwaitBound)
	}
	digest, err := approval.ParseDigest(s.Digest)
	if err != nil {
		return nil, &notRun{text: whenForged}
	}
	answer, ok := c.request.Params.InputResponses[question].(*sdk.ElicitResult)
	if !ok || answer == nil {
		return c.leaveToPeople(s.Request)
	}
	return c.decided(s.Request, digest, accepted(answer))
}

// leaveToPeople has people decide on a call that the client gave no answer to:
// silence is no refusal.
func (c *call) leaveToPeople(id approval.ID) (json.RawMessage, error) {
	r, err := c.service.TellPeople(c.ctx, c.agent, id)
	if err != nil {
		return nil, unknown(err, id)
	}
	if r.Status != approval.Pending {
		return c.settle(r, c.options.AwaitBound)
	}
	return c.pend(r)
}

// decided records the client's answer and does what it says.
func (c *call) decided(id approval.ID, shown approval.Digest, accept bool) (json.RawMessage, error) {
	verdict := approval.Reject
	if accept {
		verdict = approval.Approve
	}
	r, err := c.service.Confirm(c.ctx, c.agent, approval.Confirmation{Request: id, Surface: approval.InBand, Digest: shown, Verdict: verdict})
	switch {
	case err == nil:
		return c.settle(r, c.options.AwaitBound)
	case errors.Is(err, approval.ErrDecided), errors.Is(err, approval.ErrApplied):
		return nil, &notRun{text: whenUsed(id)}
	case errors.Is(err, approval.ErrStale):
		return nil, &notRun{text: whenStale(id)}
	case errors.Is(err, approval.ErrNotInBand):
		return c.leaveToPeople(id)
	default:
		return nil, refused(err, r)
	}
}

// showLink asks a client of the protocol without sessions to open the review
// page. Whatever it answers decides nothing.
func (c *call) showLink(r *approval.Request, arguments json.RawMessage) (json.RawMessage, error) {
	return c.comeBack(stateLink, linkWithin, r, arguments, &sdk.ElicitParams{
		Mode:    "url",
		Message: "A person must approve this before it runs. Open the review page?",
		URL:     c.options.ReviewURL(r.ID),
	})
}
