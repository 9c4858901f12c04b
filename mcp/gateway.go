package mcp

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/internal/strictjson"
)

// Gateway is a set of tools, resources and prompts of other servers that is
// served through this package's doors: HTTP with bearer tokens, and stdio.
//
// With a Gateway in the Options, await_approval and check_status are served
// beside it. request_approval and apply aren't: the gateway asks by itself when
// one of its tools is called, and runs what was approved.
type Gateway interface {
	// Install adds the gateway to a server that isn't connected yet, and returns
	// what takes it off again when the server ends.
	//
	// caller says who sent a request that the server received: the agent, the
	// session that the agent is in, empty if its connection has none, and the
	// request's parameters exactly as they were written, nil if that isn't known
	// any more, as for a message in a batch.
	//
	// prompt sends the host of a call a link to a request if it can show links
	// and its protocol lets a server ask, and reports whether it did. The link
	// is shown until the request is decided, at most until a time.
	Install(
		to *sdk.Server,
		caller func(sdk.Request) (agent approval.Agent, session string, params json.RawMessage, err error),
		prompt func(ctx context.Context, request *sdk.CallToolRequest, id approval.ID, link string, until time.Time) bool,
	) (remove func())
}

// gatewayInstructions are what a host may put before a model once per session.
const gatewayInstructions = `These tools run behind a gate: the policy lets some calls run at once, and asks a person before others. A call that waits for a person says so and has not run; call await_result with the request id that it returns, as often as needed, to get its result once it was approved and has run. Don't call the tool again meanwhile. A rejection or an expiry is final for that call: don't retry, rephrase or work around it.`

// install adds a gateway to the SDK's server, and says how to remove it.
func (s *server) install(over *sdk.Server, gateway Gateway) (remove func()) {
	over.AddTool(gatewayTool(awaitTool, `Wait until a person has decided on a call that waits for one. "pending" means that the wait ended before anybody decided: call again with the same requestId, as often as needed. To get the call's result, call await_result instead, which waits for the decision too. "approved" and "applied": the server runs the call itself; call await_result. "rejected": a person said no; don't retry, rephrase or work around it. "expired": nobody decided in time; silence is not consent, and nobody refused.`), s.tool(byRequestID(s.await)))
	over.AddTool(gatewayTool(statusTool, `Say where a call that waited for a person is now, without waiting: "pending", "approved", "rejected", "expired" or "applied". To get the call's result, use await_result.`), s.tool(byRequestID(s.status)))
	prompt := func(ctx context.Context, request *sdk.CallToolRequest, id approval.ID, link string, until time.Time) bool {
		who, err := s.caller(request)
		if err != nil {
			return false
		}
		return s.prompts.push(ctx, call{request, who}, Answer{Status: approval.Pending, ID: id, ReviewURL: link, ExpiresAt: until})
	}
	from := func(request sdk.Request) (approval.Agent, string, json.RawMessage, error) {
		who, err := s.caller(request)
		return who.agent, who.session, who.params, err
	}
	remove = gateway.Install(over, from, prompt)
	over.AddReceivingMiddleware(s.tellingOver, untilGone)
	return remove
}

// inputRequest is how the gateway's tools name a request's id.
const inputRequest = "requestId"

// gatewayTool is a tool that takes a request's id, as the gateway has it.
func gatewayTool(tool *sdk.Tool, description string) *sdk.Tool {
	own := *tool
	own.Description = description
	own.InputSchema = object(field(inputRequest, &jsonschema.Schema{Type: "string", Description: "The id that the waiting call returned."}))
	return &own
}

// byRequestID lets a tool that takes an elicitationId be called with the same
// as requestId.
func byRequestID(run func(context.Context, call) (*sdk.CallToolResult, error)) func(context.Context, call) (*sdk.CallToolResult, error) {
	return func(ctx context.Context, c call) (*sdk.CallToolResult, error) {
		inputs, err := strictjson.Members(c.Params.Arguments)
		switch {
		case len(c.Params.Arguments) == 0, err == nil && len(inputs) == 0:
			return nil, wrong(inputRequest, "is missing; give the one that the waiting call returned")
		case err == nil && len(inputs) == 1 && inputs[0].Name == inputRequest:
			renamed := *c.CallToolRequest
			params := *c.Params
			params.Arguments = slices.Concat([]byte(`{"`+inputID+`":`), inputs[0].Value, []byte("}"))
			renamed.Params = &params
			c.CallToolRequest = &renamed
		}
		return run(ctx, c)
	}
}

// tellingOver tells the host of a call, before its result, which prompts are over:
// over HTTP, a host without an event stream can't be told at another time, and the
// gateway's tools don't say which request their result is of.
func (s *server) tellingOver(next sdk.MethodHandler) sdk.MethodHandler {
	return func(ctx context.Context, method string, request sdk.Request) (sdk.Result, error) {
		result, err := next(ctx, method, request)
		if session, ok := request.GetSession().(*sdk.ServerSession); ok && method == toolMethod {
			if who, unknown := s.caller(request); unknown == nil && who.reachable != nil {
				s.prompts.tellOver(ctx, session, who.agent)
			}
		}
		return result, err
	}
}

// untilGone ends what is done for a caller when nobody is left to be answered.
// The SDK doesn't notice that over the protocols with sessions.
func untilGone(next sdk.MethodHandler) sdk.MethodHandler {
	return func(ctx context.Context, method string, request sdk.Request) (sdk.Result, error) {
		if e := exchangeOf(request.GetExtra()); e != nil && e.request != nil {
			var end context.CancelCauseFunc
			ctx, end = context.WithCancelCause(ctx)
			defer end(nil)
			defer context.AfterFunc(e.request, func() { end(errGone) })()
		}
		return next(ctx, method, request)
	}
}

// sessionName names a session without telling its id, which is good for calls
// in it.
func sessionName(id string) string {
	if id == "" {
		return ""
	}
	sum := sha256.Sum256([]byte("countersign/session\x00" + id))
	return "mcp:" + hex.EncodeToString(sum[:16])
}

// keepParams lets the parameters of a call over stdio be known as they were
// written.
func keepParams(request *jsonrpc.Request) {
	request.Extra = &sdk.RequestExtra{TokenInfo: &auth.TokenInfo{
		Extra: map[string]any{exchangeName: &exchange{params: request.Params}},
	}}
}
