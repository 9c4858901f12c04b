package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/internal/strictjson"
)

// withoutSessions is the first version of the protocol that has no sessions, in
// which a server can't ask a client anything but in its answers.
const withoutSessions = "2026-07-28"

// installation is a Gateway in one of the SDK's servers.
type installation struct {
	*Gateway
	to     *sdk.Server
	caller func(sdk.Request) (approval.Agent, string, json.RawMessage, error)
	prompt func(context.Context, *sdk.CallToolRequest, approval.ID, string, time.Time) bool

	mu    sync.Mutex // held while what the SDK's server knows of is changed
	stubs map[string]string
}

// Install adds the gateway to a server that isn't connected yet, and returns what
// takes it off again.
//
// caller says who sent a request that the server received: the agent, the session
// that the agent is in, empty if its connection has none, and the request's
// parameters as they were written, nil if that isn't known.
//
// prompt sends the host of a call a link to a request, if it can show links and
// its protocol lets a server ask, and reports whether it did.
func (g *Gateway) Install(
	to *sdk.Server,
	caller func(sdk.Request) (agent approval.Agent, session string, params json.RawMessage, err error),
	prompt func(ctx context.Context, request *sdk.CallToolRequest, id approval.ID, link string, until time.Time) bool,
) (remove func()) {
	i := &installation{Gateway: g, to: to, caller: caller, prompt: prompt, stubs: make(map[string]string)}
	to.AddTool(resultTool, unreachable)
	to.AddReceivingMiddleware(i.receive)
	remove = g.downstreams.watch(i.announce)
	i.announce(kindTools)
	return remove
}

// unreachable is for what the SDK's server knows of only to check headers and to
// say that a list has changed.
func unreachable(_ context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
	return nil, unknownTool(r.Params.Name)
}

func unknownTool(name string) *jsonrpc.Error {
	return &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: fmt.Sprintf("unknown tool %q", name)}
}

// marker is something that is added to the SDK's server and removed at once, upon
// which it tells its clients that a list has changed. No client is ever shown it.
const marker = "countersign-changed"

// announce tells clients that a list has changed.
func (i *installation) announce(kind string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	switch kind {
	case kindTools:
		i.updateStubs()
		i.to.AddTool(&sdk.Tool{Name: marker, InputSchema: json.RawMessage(`{"type":"object"}`)}, unreachable)
		i.to.RemoveTools(marker)
	case kindResources:
		i.to.AddResource(&sdk.Resource{Name: marker, URI: marker + "://"}, func(context.Context, *sdk.ReadResourceRequest) (*sdk.ReadResourceResult, error) {
			return nil, sdk.ResourceNotFoundError(marker)
		})
		i.to.RemoveResources(marker + "://")
	case kindPrompts:
		i.to.AddPrompt(&sdk.Prompt{Name: marker}, func(context.Context, *sdk.GetPromptRequest) (*sdk.GetPromptResult, error) {
			return nil, unknownPrompt(marker)
		})
		i.to.RemovePrompts(marker)
	}
}

// updateStubs lets the SDK's server know of tools with arguments that are in
// headers too, which it compares before the gateway gets the call.
func (i *installation) updateStubs() {
	wanted := make(map[string]string)
	for _, t := range i.downstreams.catalog().tools {
		if len(t.headers) > 0 {
			wanted[t.exposed] = string(t.shown)
		}
	}
	for name, shown := range i.stubs {
		if wanted[name] != shown {
			i.to.RemoveTools(name)
			delete(i.stubs, name)
		}
	}
	for name, shown := range wanted {
		if _, known := i.stubs[name]; !known && i.addStub(name, shown) {
			i.stubs[name] = shown
		}
	}
}

// addStub adds a tool, and reports whether the SDK takes it.
func (i *installation) addStub(name, shown string) (added bool) {
	defer func() {
		if problem := recover(); problem != nil {
			i.logger.Warn("the headers of a tool can't be checked", "tool", name, "err", problem)
			added = false
		}
	}()
	members, err := strictjson.Members([]byte(shown))
	if err != nil {
		return false
	}
	i.to.AddTool(&sdk.Tool{Name: name, InputSchema: value(members, "inputSchema")}, unreachable)
	return true
}

// receive answers what is downstream servers', and leaves the rest to the SDK's
// server.
func (i *installation) receive(next sdk.MethodHandler) sdk.MethodHandler {
	return func(ctx context.Context, method string, request sdk.Request) (sdk.Result, error) {
		known := i.downstreams.catalog()
		switch r := request.(type) {
		case *sdk.ListToolsRequest:
			own, err := i.ownTools(ctx, next, r)
			if err != nil {
				return nil, err
			}
			for _, t := range known.tools {
				own = append(own, t.shown)
			}
			return i.list(r.ProtocolVersion(), "tools", own, r.Params != nil && r.Params.Cursor != "")
		case *sdk.ListResourcesRequest:
			return i.list(r.ProtocolVersion(), "resources", shown(known.resources), r.Params != nil && r.Params.Cursor != "")
		case *sdk.ListResourceTemplatesRequest:
			return i.list(r.ProtocolVersion(), "resourceTemplates", shown(known.templates), r.Params != nil && r.Params.Cursor != "")
		case *sdk.ListPromptsRequest:
			return i.list(r.ProtocolVersion(), "prompts", shown(known.prompts), r.Params != nil && r.Params.Cursor != "")
		case *sdk.ReadResourceRequest:
			server := known.resourceServer(r.Params.URI)
			if server == "" {
				return nil, sdk.ResourceNotFoundError(r.Params.URI)
			}
			return i.forward(ctx, method, server, request, r.Session, r.ProtocolVersion(), r.ClientCapabilities(), nil)
		case *sdk.GetPromptRequest:
			prompt := known.prompt(r.Params.Name)
			if prompt == nil {
				return nil, unknownPrompt(r.Params.Name)
			}
			return i.forward(ctx, method, prompt.server, request, r.Session, r.ProtocolVersion(), r.ClientCapabilities(), func(params []strictjson.Member) json.RawMessage {
				return with(params, "name", mustEncode(prompt.key))
			})
		case *sdk.CompleteRequest:
			return i.complete(ctx, method, r, known)
		case *sdk.CallToolRequest:
			return i.callTool(ctx, method, r, known, next)
		}
		return next(ctx, method, request)
	}
}

func unknownPrompt(name string) *jsonrpc.Error {
	return &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: fmt.Sprintf("unknown prompt %q", name)}
}

func shown(items []item) []json.RawMessage {
	var all []json.RawMessage
	for _, one := range items {
		all = append(all, one.shown)
	}
	return all
}

// ownTools are the tools that are no downstream server's, as the SDK lists them.
func (i *installation) ownTools(ctx context.Context, next sdk.MethodHandler, r *sdk.ListToolsRequest) ([]json.RawMessage, error) {
	first := *r
	first.Params = &sdk.ListToolsParams{}
	if r.Params != nil {
		first.Params.Meta = r.Params.Meta
	}
	result, err := next(ctx, methodListTools, &first)
	if err != nil {
		return nil, err
	}
	listed, ok := result.(*sdk.ListToolsResult)
	if !ok {
		return nil, errors.New("the list of tools isn't one")
	}
	var own []json.RawMessage
	for _, t := range listed.Tools {
		if slices.Contains(ownTools, t.Name) {
			own = append(own, mustEncode(t))
		}
	}
	return own, nil
}

// list is the one page of a list.
func (i *installation) list(version, member string, items []json.RawMessage, later bool) (sdk.Result, error) {
	if later {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "there is no such page: the list has one"}
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, `{%q:[`, member)
	for at, one := range items {
		if at > 0 {
			b.WriteByte(',')
		}
		b.Write(one)
	}
	b.WriteString("]}")
	return &served{raw: b.Bytes(), modern: version >= withoutSessions, cacheable: true}, nil
}

// complete passes on what completes an argument of a prompt or a template.
func (i *installation) complete(ctx context.Context, method string, r *sdk.CompleteRequest, known *catalog) (sdk.Result, error) {
	var server string
	change := func(params []strictjson.Member) json.RawMessage { return object(params) }
	switch ref := r.Params.Ref; {
	case ref == nil:
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "missing required 'ref' field"}
	case ref.Type == "ref/prompt":
		prompt := known.prompt(ref.Name)
		if prompt == nil {
			return nil, unknownPrompt(ref.Name)
		}
		server = prompt.server
		change = func(params []strictjson.Member) json.RawMessage {
			of, err := strictjson.Members(value(params, "ref"))
			if err != nil {
				return object(params)
			}
			return with(params, "ref", with(of, "name", mustEncode(prompt.key)))
		}
	default:
		if server = known.resourceServer(ref.URI); server == "" {
			return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: fmt.Sprintf("unknown resource %q", ref.URI)}
		}
	}
	return i.forward(ctx, method, server, r, r.Session, r.ProtocolVersion(), r.ClientCapabilities(), change)
}

// forward passes on a request that isn't gated: it reads.
func (i *installation) forward(ctx context.Context, method, server string, request sdk.Request, session *sdk.ServerSession, version string, can *sdk.ClientCapabilities, change func([]strictjson.Member) json.RawMessage) (sdk.Result, error) {
	agent, _, params, err := i.caller(request)
	if err != nil {
		return nil, err
	}
	members, err := membersOf(request, params)
	if err != nil {
		return nil, err
	}
	i.logger.Info("passing on a request", "agent", agent.Name, "server", server, "method", method)
	a := &asker{ctx: ctx, until: i.stopping, session: session, modern: version >= withoutSessions, can: can, logger: i.logger}
	if with, ok := request.GetParams().(sdk.RequestParams); ok {
		a.token = with.GetProgressToken()
	}
	result, err := a.converse(members, func(members []strictjson.Member) (json.RawMessage, error) {
		params := object(members)
		if change != nil {
			params = change(members)
		}
		return i.downstreams.call(ctx, server, method, params, a.relay())
	})
	wire, refused := errors.AsType[*jsonrpc.Error](err)
	switch {
	case err == nil:
		return &served{raw: result, modern: a.modern, cacheable: method == methodReadResource && !needsInput(result)}, nil
	case refused:
		return nil, wire
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case errors.Is(err, errCantAsk):
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "the server asks for input in a way that this client doesn't support"}
	default:
		i.logger.Warn("passing on a request failed", "server", server, "method", method, "err", err)
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: fmt.Sprintf("the server %s isn't available now", server)}
	}
}

// membersOf are the parameters of a request as they were written, or else as the
// SDK understood them.
func membersOf(request sdk.Request, params json.RawMessage) ([]strictjson.Member, error) {
	if params == nil {
		var err error
		if params, err = json.Marshal(request.GetParams()); err != nil {
			return nil, fmt.Errorf("encoding the parameters: %w", err)
		}
	}
	members, err := strictjson.Members(params)
	if err != nil {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "the parameters can't be passed on: " + err.Error()}
	}
	return members, nil
}
