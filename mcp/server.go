package mcp

import (
	"context"
	"errors"
	"log/slog"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/countersign/countersign/approval"
)

// Options set up the tools of a Handler or of ServeStdio. Zero values are
// usable.
type Options struct {
	// Version is the product's, as clients are told; empty means "devel".
	Version string
	// Gateway is served in place of the tools to ask and to apply; nil for none.
	Gateway Gateway
	// Gate is served in place of all of the flow's tools; nil for none. It and
	// Gateway are never set together.
	Gate *Gate
	// Now is the clock of the flow; nil means time.Now.
	Now func() time.Time
	// Logger gets what no caller is told; nil discards it.
	Logger *slog.Logger
}

func (o *Options) defaults() {
	if o.Version == "" {
		o.Version = "devel"
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
}

// server answers the four tools.
type server struct {
	flow    Flow
	caller  func(sdk.Request) (caller, error)
	prompts *prompts
	logger  *slog.Logger

	// stopping ends with the server: waiting calls return what is known then.
	stopping context.Context
	stop     context.CancelFunc
}

// caller is who makes a call, and how.
type caller struct {
	agent approval.Agent
	// reachable is how long an answer can reach them beyond what the call's
	// context says; nil means as long as that.
	reachable context.Context
	session   string // as a Gateway is told
	params    []byte // as a Gateway is told
}

// lastKnownLimit is how long looking a request up may take while stopping.
const lastKnownLimit = 2 * time.Second

// errStopping ends waiting when the server stops.
var errStopping = errors.New("the server is stopping")

// errGone ends waiting when nobody is left to be answered.
var errGone = errors.New("the caller went away")

func newServer(flow Flow, who func(sdk.Request) (caller, error), options Options) *server {
	stopping, stop := context.WithCancel(context.Background())
	return &server{
		flow:     flow,
		caller:   who,
		prompts:  newPrompts(flow, options),
		logger:   options.Logger,
		stopping: stopping,
		stop:     stop,
	}
}

// newSDKServer is the SDK's server of the product, without tools.
func newSDKServer(options Options) *sdk.Server {
	settings := &sdk.ServerOptions{
		Instructions: instructions,
		Capabilities: &sdk.ServerCapabilities{Tools: &sdk.ToolCapabilities{}},
	}
	if options.Gate != nil {
		settings.Instructions = gateInstructions
		settings.Capabilities.Resources = &sdk.ResourceCapabilities{}
		settings.Capabilities.AddExtension(uiExtension, nil)
		// What is listed depends on what the client can show.
		settings.SetCacheable = func(_ context.Context, _ sdk.Request, c *sdk.Cacheable) { c.CacheScope = "private" }
	}
	if options.Gateway != nil {
		// Downstream servers come and go, and what they have changes; so what
		// any of them may have is said from the start.
		settings.Instructions = gatewayInstructions
		settings.Capabilities = &sdk.ServerCapabilities{
			Tools:       &sdk.ToolCapabilities{ListChanged: true},
			Resources:   &sdk.ResourceCapabilities{ListChanged: true},
			Prompts:     &sdk.PromptCapabilities{ListChanged: true},
			Completions: &sdk.CompletionCapabilities{},
		}
	}
	return sdk.NewServer(&sdk.Implementation{Name: "countersign", Title: "Countersign", Version: options.Version}, settings)
}

// serve adds what the options say to the SDK's server, and says how to remove it.
func (s *server) serve(over *sdk.Server, options Options) (remove func()) {
	switch {
	case options.Gateway != nil:
		return s.install(over, options.Gateway)
	case options.Gate != nil:
		s.installGate(over, options.Gate)
	default:
		s.addTo(over)
	}
	return func() {}
}

// addTo registers the tools.
func (s *server) addTo(to *sdk.Server) {
	to.AddTool(requestTool, s.tool(s.request))
	to.AddTool(awaitTool, s.tool(s.await))
	to.AddTool(statusTool, s.tool(s.status))
	to.AddTool(applyTool, s.tool(s.apply))
}

// end makes waiting calls return what is known, and ends the prompts. Sessions
// can be closed after it without waiting for anybody.
func (s *server) end() {
	s.stop()
	s.prompts.stop()
}

// call is one tool call of a known caller.
type call struct {
	*sdk.CallToolRequest
	caller
}

// tool wraps a tool: it finds out who calls, and turns errors into what the
// model is told.
func (s *server) tool(run func(context.Context, call) (*sdk.CallToolResult, error)) sdk.ToolHandler {
	return func(ctx context.Context, request *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		who, err := s.caller(request)
		if err == nil {
			if arguments := argumentsOf(who.params); arguments != nil {
				request.Params.Arguments = arguments
			}
			var result *sdk.CallToolResult
			if result, err = run(ctx, call{request, who}); err == nil {
				return result, nil
			}
		}
		if refused, ok := errors.AsType[*Refusal](err); ok {
			if refused.cause != nil {
				s.logger.Warn("refusing a tool call", "tool", request.Params.Name, "agent", who.agent.Name, "err", refused.cause)
			}
			return failed(refused.Text), nil
		}
		if input, ok := errors.AsType[*approval.InputError](err); ok {
			return failed(input.Error()), nil
		}
		if ctx.Err() != nil || errors.Is(err, errGone) {
			// Nobody is there to be told, and going away is no answer.
			s.logger.Debug("a caller went away", "tool", request.Params.Name, "agent", who.agent.Name)
			return nil, err
		}
		s.logger.Error("answering a tool call", "tool", request.Params.Name, "agent", who.agent.Name, "err", err)
		return failed(internalError), nil
	}
}

func (s *server) request(ctx context.Context, c call) (*sdk.CallToolResult, error) {
	proposal, err := parseRequest(c.Params.Arguments)
	if err != nil {
		return nil, err
	}
	answer, err := s.flow.Request(ctx, c.agent, proposal)
	if err != nil {
		return nil, err
	}
	text, err := requestedText(answer, s.prompts.push(ctx, c, answer))
	if err != nil {
		return nil, err
	}
	return result(text, answer.Guidance), nil
}

func (s *server) await(ctx context.Context, c call) (*sdk.CallToolResult, error) {
	id, err := parseID(awaitTool.Name, c.Params.Arguments)
	if err != nil {
		return nil, err
	}
	wait, end := context.WithCancelCause(ctx)
	defer end(nil)
	defer context.AfterFunc(s.stopping, func() { end(errStopping) })()
	if c.reachable != nil {
		defer context.AfterFunc(c.reachable, func() { end(errGone) })()
	}
	answer, err := s.flow.Await(wait, c.agent, id, s.progress(wait, c))
	if err != nil {
		switch context.Cause(wait) {
		case errStopping:
			answer, err = s.lastKnown(ctx, c.agent, id)
		case errGone:
			err = errGone
		}
	}
	return s.told(ctx, c, id, answer, err)
}

// lastKnown is the answer to a call that waits when the server stops: as if its
// bound had passed.
func (s *server) lastKnown(ctx context.Context, agent approval.Agent, id approval.ID) (Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, lastKnownLimit)
	defer cancel()
	answer, err := s.flow.Status(ctx, agent, id)
	if err != nil && ctx.Err() != nil {
		return Answer{Status: approval.Pending, Guidance: whilePending}, nil
	}
	return answer, err
}

func (s *server) status(ctx context.Context, c call) (*sdk.CallToolResult, error) {
	id, err := parseID(statusTool.Name, c.Params.Arguments)
	if err != nil {
		return nil, err
	}
	answer, err := s.flow.Status(ctx, c.agent, id)
	return s.told(ctx, c, id, answer, err)
}

// told is the result that reports a status.
func (s *server) told(ctx context.Context, c call, id approval.ID, answer Answer, err error) (*sdk.CallToolResult, error) {
	if err != nil {
		return nil, err
	}
	if answer.Status != approval.Pending {
		s.prompts.decided(ctx, c, id)
	}
	text, err := statusText(answer)
	if err != nil {
		return nil, err
	}
	return result(text, answer.Guidance), nil
}

func (s *server) apply(ctx context.Context, c call) (*sdk.CallToolResult, error) {
	id, err := parseID(applyTool.Name, c.Params.Arguments)
	if err != nil {
		return nil, err
	}
	answer, err := s.flow.Apply(ctx, c.agent, id)
	if err != nil {
		return nil, err
	}
	s.prompts.decided(ctx, c, id)
	text, err := appliedText(answer)
	if err != nil {
		return nil, err
	}
	return result(text, answer.Guidance), nil
}

// progress returns what reports a waiting call to its caller, nil if the caller
// gave no token.
func (s *server) progress(ctx context.Context, c call) func(message string) {
	token := c.Params.GetProgressToken()
	if token == nil {
		return nil
	}
	began := time.Now()
	next := 0.0
	return func(message string) {
		// Progress is the seconds waited, and must rise with each notification.
		seconds := max(time.Since(began).Round(time.Second).Seconds(), next)
		next = seconds + 1
		err := c.Session.NotifyProgress(ctx, &sdk.ProgressNotificationParams{
			ProgressToken: token,
			Progress:      seconds,
			Message:       message,
		})
		if err != nil && ctx.Err() == nil {
			s.logger.Debug("reporting progress", "err", err)
		}
	}
}
