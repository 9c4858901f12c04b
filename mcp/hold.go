package mcp

import (
	"context"
	"errors"
	"strings"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/internal/jsoninput"
)

// gateServer answers the gate's tools.
type gateServer struct {
	*server
	*Gate
}

// installGate adds the gate's tools to the SDK's server.
func (s *server) installGate(over *sdk.Server, gate *Gate) {
	g := &gateServer{s, gate}
	over.AddTool(holdTool, s.tool(g.hold))
	over.AddTool(gatewayTool(applyTool, `Use up an approval right before the action runs, and get the arguments that were approved, exactly as they are stored. It succeeds once, only while the approval holds: it may have been revoked since. Run exactly the returned payload, once. If it fails, don't run the action.`), s.tool(byRequestID(g.apply)))
	over.AddTool(viewRequestTool, s.tool(g.forView(g.show)))
	over.AddTool(viewDecideTool, s.tool(g.forView(g.decide)))
	over.AddTool(viewRevokeTool, s.tool(g.forView(g.revoke)))
	addView(over)
}

var holdInputs = []string{inputAction, inputArguments, inputTarget, inputReversible, inputPurpose, inputEnvironment, inputCount}

// parseHold reads the arguments of request_approval. The payload is the part of raw
// that was written there, byte for byte. Errors are *approval.InputError.
func parseHold(raw []byte) (approval.Proposal, error) {
	inputs := jsoninput.Read(raw, holdTool.Name, holdInputs...)
	p := approval.Proposal{
		Action:      inputs.RequiredText(inputAction, approval.MaxAction, "name the action"),
		Payload:     inputs.Object(inputArguments, "give the JSON object that will run, exactly as it will run"),
		Target:      inputs.RequiredText(inputTarget, approval.MaxTarget, "say what the action touches"),
		Reversible:  inputs.Boolean(inputReversible),
		Purpose:     inputs.Text(inputPurpose, approval.MaxPurpose),
		Environment: inputs.Text(inputEnvironment, approval.MaxEnvironment),
		Count:       inputs.Count(inputCount),
	}
	if err := inputs.Err(); err != nil {
		return approval.Proposal{}, inputError(err)
	}
	if p.Reversible == nil {
		return approval.Proposal{}, wrong(inputReversible, "is missing; say whether the action can be undone")
	}
	for _, said := range []struct{ name, text string }{{inputAction, p.Action}, {inputTarget, p.Target}} {
		if strings.TrimSpace(said.text) == "" {
			return approval.Proposal{}, wrong(said.name, "is empty; say it in words")
		}
	}
	if strings.TrimSpace(p.Purpose) == "" {
		p.Purpose = p.Action
	}
	return p, nil
}

// hold asks, and answers with the decision once there is one.
func (g *gateServer) hold(ctx context.Context, c call) (*sdk.CallToolResult, error) {
	proposal, err := parseHold(c.Params.Arguments)
	if err != nil {
		return nil, err
	}
	if err := named(c.agent); err != nil {
		return nil, err
	}
	proposal.HostView = showsViews(c.CallToolRequest)
	proposal.Unseen = !proposal.HostView && g.Gate.options.WithoutView == DenyWithoutView
	proposal.TTL, proposal.Session = g.Gate.options.Timeout, c.session
	r, err := g.service.Request(ctx, c.agent, proposal)
	if err != nil && (r == nil || !errors.Is(err, approval.ErrDenied)) {
		return nil, refusal(err, r)
	}
	if r.Status == approval.Pending {
		if r, err = g.await(ctx, c, r); err != nil {
			return nil, err
		}
	}
	text, err := heldText(r)
	if err != nil {
		return nil, err
	}
	return result(text, rule(r)), nil
}

// cancelLimit is how long after a connection broke its call may yet be cancelled:
// over the protocols with sessions, the one comes apart from the other.
const cancelLimit = 5 * time.Second

// errCancelled ends waiting when the caller takes its call back.
var errCancelled = errors.New("the caller cancelled its call")

// await holds the call until the request is decided. A call that is cancelled takes
// its request back, so that nobody approves what no agent waits for; unless another
// call is held for the same. One whose connection broke doesn't: the agent may ask the
// same again, and goes on waiting.
func (g *gateServer) await(ctx context.Context, c call, r *approval.Request) (*approval.Request, error) {
	one := newHeldCall(r.ID, c.Params.Arguments)
	remove := g.held.add(c.agent, one)
	defer remove()
	wait, end := context.WithCancelCause(ctx)
	defer end(nil)
	defer context.AfterFunc(g.stopping, func() { end(errStopping) })()
	if c.reachable != nil {
		defer context.AfterFunc(c.reachable, func() {
			if c.ProtocolVersion() >= statelessFrom {
				end(errCancelled) // closing the stream is how a call is cancelled there
				return
			}
			cancelled := time.AfterFunc(cancelLimit, func() { end(errGone) })
			context.AfterFunc(wait, func() { cancelled.Stop() })
		})()
	}
	id := r.ID
	if report := g.progress(wait, c); report != nil {
		stop, err := g.local.report(wait, c.agent, id, report)
		if err != nil {
			return nil, err
		}
		defer stop()
	}
	// What was asked here ends by itself before the bound. The same may have been asked
	// elsewhere before, for longer.
	r, err := g.service.Await(wait, c.agent, id, g.Gate.options.Timeout)
	cause := context.Cause(wait)
	if g.stopping.Err() != nil {
		// A server that stops cuts off whoever is left, which is no cancellation.
		cause = errStopping
	}
	switch {
	case err == nil && r.Status == approval.Pending, err != nil && cause == errStopping:
		return nil, &Refusal{Text: whenLetGo}
	case err == nil && (cause == nil || cause == errStopping):
		return r, nil
	case cause == errGone:
		return nil, errGone
	case cause != nil:
		remove()
		if !g.held.holds(c.agent, id) {
			g.takeBack(ctx, c, id)
		}
		return nil, cause
	default:
		return nil, refusal(err, nil)
	}
}

// takeBack settles a request whose call was cancelled as denied. What was approved at
// the same moment is taken back too, since nobody was told.
func (g *gateServer) takeBack(ctx context.Context, c call, id approval.ID) {
	_, err := g.service.Withdraw(ctx, c.agent, id, approval.Digest{}, "The call that asked was cancelled.", approval.InBand)
	if err == nil || errors.Is(err, approval.ErrDecided) || errors.Is(err, approval.ErrExpired) || errors.Is(err, approval.ErrApplied) {
		return
	}
	g.logger.Error("taking back what was asked by a cancelled call", "request_id", id, "agent", c.agent.Name, "err", err)
}

// apply uses up an approval.
func (g *gateServer) apply(ctx context.Context, c call) (*sdk.CallToolResult, error) {
	id, err := parseID(applyTool.Name, c.Params.Arguments)
	if err != nil {
		return nil, err
	}
	if err := named(c.agent); err != nil {
		return nil, err
	}
	r, err := g.service.Claim(ctx, c.agent, id)
	if errors.Is(err, approval.ErrPending) {
		return nil, &Refusal{Text: whileHeld}
	}
	if err != nil {
		return nil, refusal(err, r)
	}
	text, err := appliedText(Answer{Status: r.Status, Payload: r.Payload})
	if err != nil {
		return nil, err
	}
	return result(text, whenApplied), nil
}
