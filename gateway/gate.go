package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/internal/seal"
	"github.com/countersign/countersign/internal/strictjson"
	"github.com/countersign/countersign/internal/visible"
)

// call is one call of a tool by an agent.
type call struct {
	*installation
	*asker
	request *sdk.CallToolRequest
	agent   approval.Agent
	where   string // the session that the agent is in
	tool    *tool  // nil for one of our own
}

// notRun is an error whose text the model may read and act on.
type notRun struct {
	text  string
	cause error // for the log: what whoever runs the server must see to; or nil
}

func (r *notRun) Error() string { return r.text }

// callTool answers a call of a downstream server's tool, and of await_result.
func (i *installation) callTool(ctx context.Context, method string, r *sdk.CallToolRequest, known *catalog, next sdk.MethodHandler) (sdk.Result, error) {
	t := known.tool(r.Params.Name)
	switch {
	case t != nil, r.Params.Name == resultToolName:
	case slices.Contains(ownTools, r.Params.Name):
		return next(ctx, method, r)
	default:
		return nil, unknownTool(r.Params.Name)
	}
	agent, session, params, err := i.caller(r)
	if err != nil {
		return nil, err
	}
	if !approval.ValidAgentName(agent.Name) {
		// A caller whose name was lost on the way must not share requests with
		// the next one.
		return nil, fmt.Errorf("the calling agent has no valid name (%q)", agent.Name)
	}
	select {
	case <-i.recorded:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	c := &call{
		installation: i,
		asker: &asker{
			ctx:     ctx,
			until:   i.stopping,
			session: r.Session,
			modern:  r.ProtocolVersion() >= withoutSessions,
			can:     r.ClientCapabilities(),
			token:   r.Params.GetProgressToken(),
			logger:  i.logger,
			called:  calledBefore(r.Params),
		},
		request: r,
		agent:   agent,
		where:   session,
		tool:    t,
	}
	result, err := c.answer(params)
	if err != nil {
		return nil, err
	}
	return &served{raw: result, modern: c.modern}, nil
}

// calledBefore reports whether a call comes with answers to what its server asked,
// or with its server's state: the gateway's own says itself whether it does.
func calledBefore(params *sdk.CallToolParamsRaw) bool {
	return (params.InputResponses != nil || params.RequestState != "") && !seal.Ours(params.RequestState)
}

// answer is what the agent gets: a result, or an error of the protocol.
func (c *call) answer(params json.RawMessage) (json.RawMessage, error) {
	members, err := membersOf(c.request, params)
	if wire, ok := errors.AsType[*jsonrpc.Error](err); ok {
		return toolError(c.truly("Nothing ran: " + wire.Message)), nil
	}
	var result json.RawMessage
	switch {
	case err != nil:
	case c.tool == nil:
		result, err = c.awaitResult(members)
	default:
		result, err = c.converse(members, c.gated)
	}
	refused, isNotRun := errors.AsType[*notRun](err)
	wire, isWire := errors.AsType[*jsonrpc.Error](err)
	switch {
	case err == nil:
		return result, nil
	case isNotRun:
		if refused.cause != nil {
			c.installation.logger.Warn("refusing a call", "tool", c.request.Params.Name, "agent", c.agent.Name, "err", refused.cause)
		}
		return toolError(c.truly(refused.text)), nil
	case isWire:
		return nil, wire
	case errors.Is(err, errCantAsk):
		return toolError(whenCantAsk), nil
	case c.ctx.Err() != nil:
		// Nobody is there to be told, and going away is no answer.
		return nil, context.Cause(c.ctx)
	default:
		c.installation.logger.Error("answering a call", "tool", c.request.Params.Name, "agent", c.agent.Name, "err", err)
		return toolError(internalError), nil
	}
}

// truly is a text of a call that hasn't run now, which may have before.
func (c *call) truly(text string) string {
	if c.called {
		return halfWay(text)
	}
	return text
}

// argumentsIn are the arguments of a call; none are an empty object.
func argumentsIn(members []strictjson.Member) (json.RawMessage, error) {
	arguments := value(members, "arguments")
	if arguments == nil || string(arguments) == "null" {
		return json.RawMessage("{}"), nil
	}
	if arguments[0] != '{' {
		return nil, &notRun{text: "Nothing ran: the arguments of a call are a JSON object."}
	}
	return arguments, nil
}

// callMembers are what the parameters of a call may have. What else there is,
// policy wouldn't see and no person would be shown.
var callMembers = []string{"name", "arguments", metaName, inputResponses, requestState}

// ambiguous says why a call may mean something else to its server than to the
// gate: many servers take names as the same that differ only in case.
func ambiguous(members []strictjson.Member, arguments json.RawMessage) string {
	for _, member := range members {
		if !slices.Contains(callMembers, member.Name) {
			return fmt.Sprintf("Nothing ran: the call has the member %q, which the gate doesn't pass on; name, arguments and _meta are accepted.", visible.Line(member.Name))
		}
	}
	name, found, err := strictjson.Clash(arguments)
	if err != nil {
		return "Nothing ran: the arguments are " + err.Error() + "."
	}
	if found {
		return fmt.Sprintf("Nothing ran: the arguments have %q twice in one object, in different case. Use one.", visible.Line(name))
	}
	return ""
}

// gated asks policy about a call and does what it says.
func (c *call) gated(members []strictjson.Member) (json.RawMessage, error) {
	if !c.downstreams.up(c.tool.server) {
		return nil, &notRun{text: whenDown(c.tool.server)} // nobody should decide on what can't run
	}
	arguments, err := argumentsIn(members)
	if err != nil {
		return nil, err
	}
	if why := ambiguous(members, arguments); why != "" {
		return nil, &notRun{text: why}
	}
	if state := text(members, requestState); seal.Ours(state) {
		return c.answered(state, arguments)
	}
	known, err := c.known(c.ctx, c.tool)
	if err != nil {
		return nil, refused(fmt.Errorf("looking the tool up: %w", err), nil)
	}
	r, err := c.service.Request(c.ctx, c.agent, approval.Proposal{
		Purpose:     fmt.Sprintf("Call %s of %s", c.tool.name, c.tool.server),
		Action:      c.tool.action(),
		Environment: c.servers[c.tool.server].Environment,
		Payload:     arguments,
		Executor:    approval.ByGateway,
		ToolPin:     c.tool.pin,
		Unpinned:    known.Pinned.Pin != c.tool.pin,
		Hints:       c.tool.hints,
		Session:     c.where,
		AskClient:   c.canForm() && fitsForm(c.tool, arguments),
	})
	if err != nil {
		return nil, refused(err, r)
	}
	switch {
	case r.Status == approval.Applied && nobodyAsked(r):
		return c.forward(r, members)
	case r.Status == approval.Approved && r.GrantedBy != "":
		claimed, err := c.service.ClaimToRun(c.ctx, r.ID, c.tool.pin)
		if err != nil {
			return nil, refused(err, claimed)
		}
		return c.forward(claimed, members)
	case r.Status == approval.Pending:
		return c.waiting(r, arguments)
	default:
		return c.settle(r, c.options.AwaitBound)
	}
}

// nobodyAsked reports whether the policy allowed a request without anybody, so
// that it was claimed for the call that made it.
func nobodyAsked(r *approval.Request) bool {
	return len(r.Decisions) == 1 && r.Decisions[0].Surface == approval.Policy && r.Decisions[0].Verdict == approval.Approve
}

// forward makes a call that is claimed, for as long as its caller is there, with
// what the agent wrote.
func (c *call) forward(r *approval.Request, members []strictjson.Member) (json.RawMessage, error) {
	c.step(stepClaimed, r.ID)
	params := with(members, "name", mustEncode(c.tool.name))
	if r.Ruling.Idempotency != "" {
		params = with(membersMust(params), "arguments", withKey(r.Payload, r))
	}
	// A gateway that stops waits for it, and it takes nobody's place at the server.
	if !c.runs.begin("", 0) {
		c.finishSoon(r.ID, c.tool.server, approval.Report{Outcome: approval.Failed, Detail: detailNotSent, Returned: true})
		return nil, &notRun{text: whenStopping}
	}
	defer c.runs.done("")
	ctx, end := context.WithCancel(c.ctx)
	defer end()
	defer context.AfterFunc(c.runs.life, end)()
	result, err := c.downstreams.call(ctx, c.tool.server, methodCallTool, params, c.relay())
	c.step(stepReturned, r.ID)
	report := reportOf(result, err)
	report.Returned, report.Result = true, nil
	if c.runs.life.Err() != nil && report.Outcome == approval.Unknown {
		report.Detail = detailStopped
	}
	if c.ctx.Err() != nil && report.Outcome == approval.Unknown {
		report.Detail = detailCancelled
	}
	if len(result) > approval.MaxResult {
		report.Detail = readResult(result).detail // it is passed on all the same
	}
	c.finishSoon(r.ID, c.tool.server, report)
	c.step(stepFinished, r.ID)
	switch {
	case err == nil:
		return result, nil
	case errors.Is(err, errUnavailable) && c.ctx.Err() == nil:
		return nil, &notRun{text: whenNotSent, cause: err}
	case errors.Is(err, errCutOff) && c.ctx.Err() == nil:
		return nil, &notRun{text: whenCutOff, cause: err}
	default:
		return nil, err
	}
}

// membersMust are the members of an object of our own making.
func membersMust(object json.RawMessage) []strictjson.Member {
	members, err := strictjson.Members(object)
	if err != nil {
		return nil
	}
	return members
}

// finishSoon is finish that doesn't hold up an answer while the store can't take
// it.
func (g *Gateway) finishSoon(id approval.ID, server string, report approval.Report) {
	_, err := g.service.FinishRun(context.Background(), id, report)
	switch {
	case err == nil:
	case errors.Is(err, approval.ErrUnavailable) && g.runs.begin(server, 0):
		go func() {
			defer g.runs.done(server)
			g.finish(id, report)
		}()
	default:
		g.logger.Error("recording what came of a call", "request_id", id, "outcome", report.Outcome, "err", err)
	}
}

// waiting answers a call that waits for a person: by asking the agent's client
// where that is enough, and else by the configuration.
func (c *call) waiting(r *approval.Request, arguments json.RawMessage) (json.RawMessage, error) {
	if r.Ruling.InBand && c.canForm() && fitsForm(c.tool, arguments) {
		return c.confirm(r, arguments)
	}
	if c.modern && c.canURL() && c.options.Prompt == PromptURL {
		return c.showLink(r, arguments)
	}
	return c.pend(r)
}

// pend answers a call that waits for people.
func (c *call) pend(r *approval.Request) (json.RawMessage, error) {
	if !c.modern && c.canURL() && r.Status == approval.Pending {
		c.installation.prompt(c.ctx, c.request, r.ID, c.options.ReviewURL(r.ID), r.ExpiresAt)
	}
	if c.options.Approval == Hold {
		return c.settle(r, c.options.HoldBound)
	}
	return c.outcome(r)
}

// progressEvery is how often a waiting caller hears that nothing has happened.
const progressEvery = 10 * time.Second

// settle waits until a request has run or won't, at most bound, and answers with
// what is then known of it. What is approved and doesn't run is run now: the agent
// is here.
func (c *call) settle(r *approval.Request, bound time.Duration) (json.RawMessage, error) {
	id, end := r.ID, time.Now().Add(bound)
	stop := c.report(r)
	defer stop()
	var err error
	if r.Status == approval.Pending {
		if r, err = c.service.Await(c.ctx, c.agent, id, bound); err != nil {
			return nil, unknown(err, id)
		}
	}
	if r.Status == approval.Approved {
		if r, err = c.begin(r); err != nil {
			return nil, err
		}
	}
	if r.Status == approval.Approved || runsNow(r) {
		if r, err = c.service.AwaitRun(c.ctx, c.agent, id, max(time.Until(end), 0)); err != nil {
			return nil, unknown(err, id)
		}
	}
	stop()
	return c.outcome(r)
}

// runsNow reports whether a request was claimed and nobody has said what came of
// it.
func runsNow(r *approval.Request) bool {
	return r.Status == approval.Applied && (r.Execution == nil || r.Execution.FinishedAt.IsZero())
}

// begin starts what is approved, and returns the request as it is then. What
// can't be started now stays approved.
func (c *call) begin(r *approval.Request) (*approval.Request, error) {
	t := c.downstreams.catalog().byAction[r.Action]
	if t == nil || !c.downstreams.up(t.server) {
		return r, nil
	}
	claimed, err := c.claim(c.ctx, r, t, 0, c.relay())
	switch {
	case err == nil, errors.Is(err, errBusy), errors.Is(err, approval.ErrExpired), errors.Is(err, approval.ErrRejected):
		return claimed, nil
	case errors.Is(err, approval.ErrApplied):
		return claimed, nil // somebody else was faster
	default:
		return nil, refused(err, claimed)
	}
}

// report tells the client at once and every progressEvery where the request is,
// until the returned function is called.
func (c *call) report(r *approval.Request) (stop func()) {
	if c.token == nil || r.Status.Final() && !runsNow(r) {
		return func() {}
	}
	began := time.Now()
	c.wait(0, waitingLine(r, c.options.Now()))
	ended, told := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(told)
		tick := time.NewTicker(progressEvery)
		defer tick.Stop()
		for {
			select {
			case <-ended:
				return
			case <-tick.C:
			}
			now, err := c.service.Status(c.ctx, c.agent, r.ID)
			if err != nil {
				return // whatever it is, the wait itself finds out
			}
			c.wait(time.Since(began).Round(time.Second).Seconds(), waitingLine(now, c.options.Now()))
		}
	}()
	closed := false
	return func() {
		if !closed {
			closed = true
			close(ended)
			<-told
		}
	}
}

// outcome is what the agent is told of a request as it is.
func (c *call) outcome(r *approval.Request) (json.RawMessage, error) {
	switch r.Status {
	case approval.Pending:
		return c.unfinished("pending_approval", c.truly(whenPending(r, c.options.ReviewURL(r.ID), c.options.ReviewDecides)), r), nil
	case approval.Approved:
		return c.unfinished("approved", c.truly(whenApproved(r)), r), nil
	case approval.Rejected:
		return nil, &notRun{text: whenRejected(r)}
	case approval.Expired:
		return nil, &notRun{text: whenExpired(r)}
	}
	if runsNow(r) {
		return c.unfinished("running", whenRunning(r), r), nil
	}
	stored, now, err := c.service.ReturnResult(c.ctx, c.agent, r.ID)
	switch {
	case err == nil:
		if wire := carriedIn(stored); wire != nil {
			return nil, wire
		}
		return stored, nil
	case !errors.Is(err, approval.ErrNoResult):
		return nil, unknown(err, r.ID)
	}
	switch r = now; {
	case r.Execution.Outcome == approval.Unknown:
		return toolError(whenCutOff), nil
	case r.Execution.SettledBy.IsZero():
		return toolError(whenDone), nil
	case r.Execution.Outcome == approval.Succeeded:
		return toolError(whenFoundRan), nil
	default:
		return toolError(whenFoundNot), nil
	}
}

// metaRequest is the member of a result's _meta that says for programs that a
// call hasn't run, and where its request is.
const metaRequest = "countersign/request"

// unfinished is the result of a call that has not ended, of which status says
// where it is.
//
// It is no error where it can: models take an error for something to get around.
// But a client refuses a result whose structured content isn't what the tool's
// output schema says, or that has none, unless it is an error. So for tools with
// an output schema it is one, and the text alone says what it means.
func (c *call) unfinished(status, text string, r *approval.Request) json.RawMessage {
	facts := map[string]string{
		"status":    status,
		"requestId": string(r.ID),
		"reviewUrl": c.options.ReviewURL(r.ID),
	}
	if deadline := r.Deadline(); !deadline.IsZero() {
		facts["expiresAt"] = timeText(deadline)
	}
	result := map[string]any{
		"content": textContent(text),
		metaName:  map[string]any{metaRequest: facts},
	}
	if c.tool != nil && value(membersMust(c.tool.definition), "outputSchema") != nil {
		result["isError"] = true
	} else {
		result["structuredContent"] = facts
	}
	return mustEncode(result)
}

// unknown turns an error of looking a request up into what the model is told.
func unknown(err error, id approval.ID) error {
	switch {
	case errors.Is(err, approval.ErrNotFound):
		return &notRun{text: notHere}
	case errors.Is(err, approval.ErrUnavailable):
		return &notRun{text: whenUnknown(id), cause: err}
	default:
		return err
	}
}

// refused turns an error of approval into what the model is told, and returns
// every other error as it is. r is the request if approval returned one.
func refused(err error, r *approval.Request) error {
	if input, ok := errors.AsType[*approval.InputError](err); ok {
		return &notRun{text: "Nothing ran: " + input.Error()}
	}
	if limit, ok := errors.AsType[*approval.LimitError](err); ok {
		return &notRun{text: "Nothing ran: " + limit.Problem + " Don't rephrase or split the call to get around this."}
	}
	switch {
	case errors.Is(err, approval.ErrNotFound):
		return &notRun{text: notHere}
	case errors.Is(err, approval.ErrRejected) && r != nil, errors.Is(err, approval.ErrDenied) && r != nil:
		return &notRun{text: whenRejected(r)}
	case errors.Is(err, approval.ErrExpired) && r != nil:
		return &notRun{text: whenExpired(r)}
	case errors.Is(err, approval.ErrUnverified):
		return &notRun{text: whenUnverified, cause: err}
	case errors.Is(err, approval.ErrUnavailable):
		return &notRun{text: whenUnavailable, cause: err}
	case errors.Is(err, errBusy):
		return &notRun{text: whenStopping}
	default:
		return err
	}
}
