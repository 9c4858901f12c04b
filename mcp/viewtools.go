package mcp

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/internal/jsoninput"
	"github.com/countersign/countersign/internal/strictjson"
	"github.com/countersign/countersign/internal/visible"
)

// watchBound is how long the view waits for a change in one call.
const watchBound = 20 * time.Second

// Why the view's call changed nothing, for the view.
const (
	codeStale    = "stale"
	codeDecided  = "decided"
	codeExpired  = "expired"
	codeNotFound = "not_found"
	codePeople   = "needs_people"
	codeReason   = "reason_required"
	codeDenied   = "denied_by_policy"
	codeInvalid  = "invalid"
	codeLater    = "unavailable"
)

// viewRefusal is why the view's call changed nothing, in words for the person.
type viewRefusal struct {
	code, message string
	cause         error // for the log: what whoever runs the server must see to; or nil
}

func (r *viewRefusal) Error() string { return r.message }

// refusedInView turns an error of approval into what the view is told, and returns
// every other error as it is.
func refusedInView(err error) error {
	if err == nil {
		return nil
	}
	if input, ok := errors.AsType[*approval.InputError](err); ok {
		return &viewRefusal{code: codeInvalid, message: "Nothing was decided: the " + visible.Line(input.Error()) + "."}
	}
	if limit, ok := errors.AsType[*approval.LimitError](err); ok {
		return &viewRefusal{code: codeInvalid, message: "Nothing was decided: " + limit.Problem}
	}
	for _, known := range []struct {
		is            error
		code, message string
	}{
		{approval.ErrNotFound, codeNotFound, "This server has no such request of this agent's."},
		{approval.ErrStale, codeStale, "Nothing was decided: the arguments changed. Look at them as they are now."},
		{approval.ErrExpired, codeExpired, "Nothing was decided: the request has expired."},
		{approval.ErrApplied, codeDecided, "Nothing changed: it was decided, and applied since."},
		{approval.ErrDecided, codeDecided, "Nothing changed: it was decided before."},
		{approval.ErrNotInBand, codePeople, "Nothing was decided: the policy has people decide on this, in Slack or on the review page."},
		{approval.ErrReasonRequired, codeReason, "Nothing was decided: the policy asks whoever approves this for a reason. Please write one."},
		{approval.ErrDenied, codeDenied, "Nothing was decided: " + visible.Line(strings.TrimSuffix(err.Error(), ".")) + "."},
		{approval.ErrServerRuns, codePeople, "Nothing changed: the server runs this itself, so people decide on it."},
		{approval.ErrUnverified, codeLater, "Nothing was decided: the policy is being changed just now. Please try again."},
		{approval.ErrUnavailable, codeLater, "The server's store can't be used now. Nothing was decided. Please try again in a minute."},
	} {
		if errors.Is(err, known.is) {
			refused := &viewRefusal{code: known.code, message: known.message}
			if known.code == codeLater {
				refused.cause = err
			}
			return refused
		}
	}
	return err
}

// forView wraps a tool of the view: it is for callers that show one, and what it
// refuses is for the person to read.
func (g *gateServer) forView(run func(context.Context, call) (*sdk.CallToolResult, error)) func(context.Context, call) (*sdk.CallToolResult, error) {
	return func(ctx context.Context, c call) (*sdk.CallToolResult, error) {
		err := named(c.agent)
		var told *sdk.CallToolResult
		switch {
		case err != nil:
		case !showsViews(c.CallToolRequest):
			err = &viewRefusal{code: codePeople, message: "This is for the approval view of hosts that render MCP Apps. Nothing was decided; people decide in Slack or on the review page."}
		default:
			told, err = run(ctx, c)
		}
		err = refusedInView(err)
		refused, ok := errors.AsType[*viewRefusal](err)
		if !ok {
			return told, err
		}
		if refused.code == codePeople {
			// Whoever tries what is kept for people may not be a view.
			g.logger.Warn("a view decided what people decide on, which doesn't count", "tool", c.Params.Name, "agent", c.agent.Name)
		}
		if refused.cause != nil {
			g.logger.Warn("refusing what a view decided", "tool", c.Params.Name, "agent", c.agent.Name, "err", refused.cause)
		}
		text, err := encode(struct {
			Error   string `json:"error"`
			Message string `json:"message"`
		}{refused.code, refused.message})
		if err != nil {
			return nil, err
		}
		told = plainResult(text)
		told.Content, told.IsError = []sdk.Content{&sdk.TextContent{Text: refused.message}}, true
		return told, nil
	}
}

// show answers with a request as it is: the one that is named, or whose call is held.
func (g *gateServer) show(ctx context.Context, c call) (*sdk.CallToolResult, error) {
	arguments := []byte(c.Params.Arguments)
	if len(arguments) == 0 || string(arguments) == "null" {
		arguments = []byte("{}") // it may have none
	}
	inputs := jsoninput.Read(arguments, viewRequestTool.Name, inputRequest, inputAsked, inputRevision)
	id := approval.ID(inputs.Text(inputRequest, maxID))
	known := inputs.Count(inputRevision)
	var asked []byte
	if inputs.Has(inputAsked) {
		asked = inputs.Object(inputAsked, "")
	}
	if err := inputs.Err(); err != nil {
		return nil, inputError(err)
	}
	if id == "" {
		if id = g.held.find(c.agent, asked); id == "" {
			return plainResult([]byte(`{"request":null}`)), nil
		}
	}
	var r *approval.Request
	var err error
	if known == nil {
		r, err = g.service.Status(ctx, c.agent, id)
	} else {
		r, err = g.change(ctx, c, id, *known)
	}
	if err != nil {
		return nil, err
	}
	text, err := encode(struct {
		Request shownRequest `json:"request"`
	}{g.shown(r)})
	if err != nil {
		return nil, err
	}
	return plainResult(text), nil
}

// change waits until a request isn't what the view has, or for watchBound.
func (g *gateServer) change(ctx context.Context, c call, id approval.ID, known int64) (*approval.Request, error) {
	wait, end := context.WithCancelCause(ctx)
	defer end(nil)
	defer context.AfterFunc(g.stopping, func() { end(errStopping) })()
	if c.reachable != nil {
		defer context.AfterFunc(c.reachable, func() { end(errGone) })()
	}
	r, err := g.service.AwaitChange(wait, c.agent, id, known, watchBound)
	if err != nil && context.Cause(wait) == errStopping {
		return g.service.Status(ctx, c.agent, id)
	}
	return r, err
}

// maxID is how long an id may be to be looked up, in characters.
const maxID = 100

// shownInView is what the view showed when somebody decided.
type shownInView struct {
	id     approval.ID
	digest approval.Digest
}

// sees reads what the view showed, which must be what the request is now. edited says
// that the decision is on the version that comes after it.
func (g *gateServer) sees(ctx context.Context, c call, inputs *jsoninput.Object, edited bool) (shownInView, error) {
	s := shownInView{id: approval.ID(inputs.RequiredText(inputRequest, maxID, "give the request that was shown"))}
	version := inputs.Count(inputVersion)
	digest := inputs.RequiredText(inputDigest, maxID, "give the digest that was shown")
	if err := inputs.Err(); err != nil {
		return shownInView{}, inputError(err)
	}
	if version == nil {
		return shownInView{}, wrong(inputVersion, "is missing; give the version that is decided on")
	}
	var err error
	if s.digest, err = approval.ParseDigest(digest); err != nil {
		return shownInView{}, wrong(inputDigest, "is not a digest; give the one that was shown")
	}
	r, err := g.service.Status(ctx, c.agent, s.id)
	if err != nil {
		return shownInView{}, err
	}
	shown := *version
	if edited {
		shown--
	}
	if s.digest != r.Digest || shown != int64(r.Version) {
		// What is decided says more than that something else is shown.
		if err := r.Settled(); err != nil {
			return shownInView{}, err
		}
		return shownInView{}, approval.ErrStale
	}
	return s, nil
}

// decide records what was decided in the view.
func (g *gateServer) decide(ctx context.Context, c call) (*sdk.CallToolResult, error) {
	inputs := jsoninput.Read(c.Params.Arguments, viewDecideTool.Name, inputRequest, inputVersion, inputDigest, inputOutcome, inputScope, inputEdited, inputReason)
	confirmed := approval.Confirmation{
		Surface: approval.App,
		Scope:   inputs.Text(inputScope, approval.MaxEnvironment),
		Reason:  inputs.Text(inputReason, approval.MaxReason),
	}
	outcome := inputs.RequiredText(inputOutcome, maxID, "granted and denied are accepted")
	if inputs.Has(inputEdited) {
		confirmed.Edited = []byte(inputs.Text(inputEdited, len(c.Params.Arguments)))
	}
	if err := inputs.Err(); err != nil {
		return nil, inputError(err)
	}
	if confirmed.Edited != nil {
		if _, err := strictjson.Members(confirmed.Edited); err != nil {
			return nil, wrong(inputEdited, "are not accepted: %s; the text of a JSON object is", err)
		}
	}
	switch outcome {
	case outcomeGranted:
		confirmed.Verdict = approval.Approve
	case outcomeDenied:
		confirmed.Verdict = approval.Reject
	default:
		return nil, wrong(inputOutcome, "is %q; granted and denied are accepted", outcome)
	}
	shown, err := g.sees(ctx, c, inputs, confirmed.Edited != nil)
	if err != nil {
		return nil, err
	}
	confirmed.Request, confirmed.Digest = shown.id, shown.digest
	r, err := g.service.Confirm(ctx, c.agent, confirmed)
	if err != nil {
		return nil, err
	}
	return g.decided(r)
}

// revoke takes back what was granted.
func (g *gateServer) revoke(ctx context.Context, c call) (*sdk.CallToolResult, error) {
	inputs := jsoninput.Read(c.Params.Arguments, viewRevokeTool.Name, inputRequest, inputVersion, inputDigest, inputReason)
	reason := inputs.Text(inputReason, approval.MaxReason)
	shown, err := g.sees(ctx, c, inputs, false)
	if err != nil {
		return nil, err
	}
	r, err := g.service.Status(ctx, c.agent, shown.id)
	if err != nil {
		return nil, err
	}
	if r.Status == approval.Pending {
		return nil, &viewRefusal{code: codeInvalid, message: "Nothing changed: nothing is approved yet that could be taken back."}
	}
	r, err = g.service.Withdraw(ctx, c.agent, shown.id, shown.digest, reason, approval.App)
	if err != nil {
		return nil, err
	}
	return g.decided(r)
}

// decided is the result of what changed a request: the decision, with the receipt by
// which the view knows that the server has it, and the request as it is.
func (g *gateServer) decided(r *approval.Request) (*sdk.CallToolResult, error) {
	decision, err := decisionText(r, outcomeOf(r))
	if err != nil {
		return nil, err
	}
	shown, err := encode(g.shown(r))
	if err != nil {
		return nil, err
	}
	text := bytes.Join([][]byte{[]byte(`{"decision":`), decision, []byte(`,"request":`), shown, []byte("}")}, nil)
	return plainResult(text), nil
}
