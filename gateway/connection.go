package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/countersign/countersign/internal/strictjson"
)

// How long until a server that is down is tried again.
const (
	firstBackOff = time.Second
	maxBackOff   = time.Minute
	// steadyAfter is how long a server must have been up to be tried at once
	// again.
	steadyAfter = time.Minute
)

// listEvery is how often a server's lists are read again without it saying that
// they changed: not every server does.
const listEvery = time.Minute

// How much a server may list.
const (
	maxListed = 1000
	maxPages  = 100
)

var (
	// errUnavailable means that a request never arrived: nothing ran.
	errUnavailable = errors.New("the server isn't available now")
	// errCutOff means that nobody learned what became of a request, which may
	// have run.
	errCutOff = errors.New("the connection ended before there was an answer")
)

// relay is what a downstream server may tell while it answers a call. Nil
// members are for those who can't be told.
type relay struct {
	progress func(*sdk.ProgressNotificationParams)
	elicit   func(context.Context, *sdk.ElicitParams) (*sdk.ElicitResult, error)
}

// connection is the way to one downstream server, which is made again whenever
// it breaks.
type connection struct {
	server  Server
	version string
	logger  *slog.Logger
	jitter  func(time.Duration) time.Duration
	changed func() // what the connection offers has changed

	stale chan struct{} // the server says that a list changed

	mu      sync.Mutex
	session *sdk.ClientSession // nil while there is none
	down    error              // why there is none
	offers  lists              // the last that were read
	calls   map[string]relay   // that are in flight, by progress token
	tokens  int
}

func newConnection(server Server, version string, logger *slog.Logger, jitter func(time.Duration) time.Duration, changed func()) *connection {
	return &connection{
		server:  server,
		version: version,
		logger:  logger.With("server", server.Name),
		jitter:  jitter,
		changed: changed,
		stale:   make(chan struct{}, 1),
		down:    errors.New("it hasn't started yet"),
		calls:   make(map[string]relay),
	}
}

// run keeps the connection until ctx ends.
func (c *connection) run(ctx context.Context) {
	wait := firstBackOff
	for ctx.Err() == nil {
		began := time.Now()
		err := c.serve(ctx)
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > steadyAfter {
			wait = firstBackOff
		}
		pause := c.jitter(wait)
		c.logger.Warn("a downstream server is down", "err", err, "retry_in", pause.Round(time.Millisecond).String())
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		timer.Stop()
		wait = min(2*wait, maxBackOff)
	}
}

// serve connects and stays so until the connection breaks, which is the error,
// or ctx ends.
func (c *connection) serve(ctx context.Context) error {
	session, err := c.connect(ctx)
	if err != nil {
		c.lost(err)
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- session.Wait() }()
	defer func() {
		c.lost(errors.New("the connection ended"))
		_ = session.Close() // it is closed whatever the error
		<-ended
	}()
	if err := c.refresh(ctx, session); err != nil {
		return err
	}
	c.mu.Lock()
	c.session, c.down = session, nil
	offered := len(c.offers.tools)
	c.mu.Unlock()
	c.logger.Info("a downstream server is up", "tools", offered, "protocol", session.InitializeResult().ProtocolVersion)
	c.changed()
	again := time.NewTicker(listEvery)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-ended:
			ended <- err
			return fmt.Errorf("the connection ended: %w", errors.Join(err, errCutOff))
		case <-c.stale:
		case <-again.C:
		}
		if err := c.refresh(ctx, session); err != nil {
			return err
		}
		c.changed()
	}
}

func (c *connection) connect(ctx context.Context) (*sdk.ClientSession, error) {
	stale := func() {
		select {
		case c.stale <- struct{}{}:
		default:
		}
	}
	client := sdk.NewClient(&sdk.Implementation{Name: "countersign-gateway", Title: "Countersign", Version: c.version}, &sdk.ClientOptions{
		// What agents' clients can do differs; elicitation is passed on where
		// theirs can.
		Capabilities: &sdk.ClientCapabilities{Elicitation: &sdk.ElicitationCapabilities{
			Form: &sdk.FormElicitationCapabilities{},
			URL:  &sdk.URLElicitationCapabilities{},
		}},
		ElicitationHandler:          c.elicited,
		ProgressNotificationHandler: c.progressed,
		ToolListChangedHandler:      func(context.Context, *sdk.ToolListChangedRequest) { stale() },
		PromptListChangedHandler:    func(context.Context, *sdk.PromptListChangedRequest) { stale() },
		ResourceListChangedHandler:  func(context.Context, *sdk.ResourceListChangedRequest) { stale() },
	})
	for _, method := range rawMethods {
		if err := sdk.AddSendingCustomMethod[*rawParams, *rawResult](client, rawPrefix+method); err != nil {
			return nil, err
		}
	}
	var transport sdk.Transport
	if c.server.URL != "" {
		transport = newHTTPTransport(c.server)
	} else {
		transport = newCommandTransport(c.server, c.logger)
	}
	limited, cancel := context.WithTimeout(ctx, c.server.startTimeout())
	defer cancel()
	session, err := client.Connect(limited, transport, nil)
	if err != nil {
		return nil, fmt.Errorf("connecting: %w", err)
	}
	return session, nil
}

// lost says that there is no connection, and why.
func (c *connection) lost(why error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.session, c.down = nil, why
}

// refresh reads all that the server offers.
func (c *connection) refresh(ctx context.Context, session *sdk.ClientSession) error {
	ctx, cancel := context.WithTimeout(ctx, c.server.startTimeout())
	defer cancel()
	capabilities := session.InitializeResult().Capabilities
	if capabilities == nil {
		capabilities = new(sdk.ServerCapabilities)
	}
	var offers lists
	if capabilities.Tools != nil {
		listed, err := list(ctx, session, methodListTools, "tools")
		if err != nil {
			return err
		}
		offers.tools = toolsOf(c.server.Name, listed, c.logger)
	}
	for _, one := range []struct {
		method, member, key string
		offered             bool
		into                *[]item
	}{
		{methodListResources, "resources", "uri", capabilities.Resources != nil, &offers.resources},
		{methodListTemplates, "resourceTemplates", "uriTemplate", capabilities.Resources != nil, &offers.templates},
		{methodListPrompts, "prompts", "name", capabilities.Prompts != nil, &offers.prompts},
	} {
		if !one.offered {
			continue
		}
		listed, err := list(ctx, session, one.method, one.member)
		if wire, ok := errors.AsType[*jsonrpc.Error](err); ok && wire.Code == jsonrpc.CodeMethodNotFound {
			continue // not every server has each
		}
		if err != nil {
			return err
		}
		*one.into = itemsOf(c.server.Name, one.key, listed, c.logger)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.offers = offers
	return nil
}

// list reads all pages of a list.
func list(ctx context.Context, session *sdk.ClientSession, method, member string) ([]json.RawMessage, error) {
	var all []json.RawMessage
	params := new(rawParams)
	for range maxPages {
		result, err := sdk.CallCustomMethod[*rawParams, *rawResult](sending(ctx, outgoing{method: method}), session, rawPrefix+method, params)
		if err != nil {
			return nil, fmt.Errorf("listing its %s: %w", member, err)
		}
		members, err := strictjson.Members(result.raw)
		if err != nil {
			return nil, fmt.Errorf("reading its list of %s: %w", member, err)
		}
		page, err := elements(value(members, member))
		if err != nil {
			return nil, fmt.Errorf("reading its list of %s: it %w", member, err)
		}
		all = append(all, page...)
		if len(all) > maxListed {
			return nil, fmt.Errorf("it lists more than %d %s", maxListed, member)
		}
		cursor := value(members, "nextCursor")
		if len(cursor) == 0 || string(cursor) == "null" || string(cursor) == `""` {
			return all, nil
		}
		params = &rawParams{members: []strictjson.Member{{Name: "cursor", Value: cursor}}}
	}
	return nil, fmt.Errorf("its list of %s doesn't end within %d pages", member, maxPages)
}

// call sends a request with the parameters as they are and returns the result as
// it is. A *jsonrpc.Error is the server's own answer. An error that wraps
// errUnavailable means that the request didn't arrive, and one that wraps
// errCutOff that it may have run.
func (c *connection) call(ctx context.Context, method string, params json.RawMessage, to relay) (json.RawMessage, error) {
	raw, err := newRawParams(params)
	if err != nil {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "the parameters are not strict JSON: " + err.Error()}
	}
	session, token, out, err := c.begin(method, raw, to)
	if err != nil {
		return nil, err
	}
	defer c.end(token)
	raw.SetMeta(map[string]any{"progressToken": token})
	ctx, cancel := context.WithTimeout(ctx, c.server.callTimeout())
	defer cancel()
	result, err := sdk.CallCustomMethod[*rawParams, *rawResult](sending(ctx, out), session, rawPrefix+method, raw)
	if err != nil {
		return nil, told(ctx, err)
	}
	return ownless(result.raw), nil
}

// told sorts the errors of a call.
func told(ctx context.Context, err error) error {
	const rejectedByTransport = -32005 // the SDK's own, about a request that it couldn't send
	switch wire, ok := errors.AsType[*jsonrpc.Error](err); {
	case ctx.Err() != nil:
		return fmt.Errorf("%w: %w", errCutOff, context.Cause(ctx))
	case errors.Is(err, errUnavailable):
		return err
	case errors.Is(err, sdk.ErrSessionMissing):
		return fmt.Errorf("%w: %w", errUnavailable, err)
	case ok && wire.Code != rejectedByTransport:
		return wire
	default:
		return fmt.Errorf("%w: %w", errCutOff, err)
	}
}

// begin notes a call, and finds out what the transport must know of it.
func (c *connection) begin(method string, params *rawParams, to relay) (session *sdk.ClientSession, token string, out outgoing, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.session == nil {
		return nil, "", outgoing{}, fmt.Errorf("%w: %w", errUnavailable, c.down)
	}
	out = outgoing{method: method, name: text(params.members, "name")}
	switch method {
	case methodReadResource:
		out.name = text(params.members, "uri")
	case methodCallTool:
		for _, t := range c.offers.tools {
			if t.name == out.name {
				out.headers = headersOf(t.headers, value(params.members, "arguments"))
			}
		}
	}
	c.tokens++
	token = "countersign-" + strconv.Itoa(c.tokens)
	c.calls[token] = to
	return c.session, token, out, nil
}

func (c *connection) end(token string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.calls, token)
}

// progressed passes progress on to the call that it is of.
func (c *connection) progressed(_ context.Context, request *sdk.ProgressNotificationClientRequest) {
	token, _ := request.Params.ProgressToken.(string)
	c.mu.Lock()
	to := c.calls[token]
	c.mu.Unlock()
	if to.progress != nil {
		to.progress(request.Params)
	}
}

// elicited passes a server's question on to the one call that it can be about.
// The protocol doesn't say which it is: with several in flight it might reach
// somebody else's person, so then nobody is asked.
func (c *connection) elicited(ctx context.Context, request *sdk.ElicitRequest) (*sdk.ElicitResult, error) {
	c.mu.Lock()
	var to relay
	alone := len(c.calls) == 1
	for _, one := range c.calls {
		to = one
	}
	c.mu.Unlock()
	if !alone || to.elicit == nil {
		c.logger.Info("a server's question is cancelled: nobody can be asked it for sure")
		return &sdk.ElicitResult{Action: "cancel"}, nil
	}
	return to.elicit(ctx, request.Params)
}
