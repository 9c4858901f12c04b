package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
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

// closeWait is how long a server may take to say goodbye.
const closeWait = 3 * time.Second

// How much a server may list.
const (
	maxListed    = 1000
	maxPages     = 100
	maxListBytes = 16 << 20 // in all pages of a list
)

// maxLeft is how many calls that were given up are watched for their answers.
const maxLeft = 1000

var (
	// errUnavailable means that a request never arrived, or that the server
	// refused to look at it: nothing ran.
	errUnavailable = errors.New("the server isn't available now")
	// errCutOff means that nobody learned what became of a request, which may
	// have run.
	errCutOff = errors.New("the connection ended before there was an answer")
)

// connection is the way to one downstream server, which is made again whenever
// it breaks.
type connection struct {
	server  Server
	version string
	logger  *slog.Logger
	jitter  func(time.Duration) time.Duration
	changed func() // what the connection offers has changed

	// open returns a new transport on which all ends with ctx, and what frees
	// what is left of it.
	open func(ctx context.Context) (sdk.Transport, func())

	stale  chan struct{}                // the lists should be read again
	listed map[string][]json.RawMessage // what was read last, by method; only run uses it

	mu      sync.Mutex
	link    *link // nil while there is none
	down    error // why there is none
	offers  lists // the last that were read
	flights map[string]*flight
	tokens  int
	// left are the calls that were given up and that the server hasn't answered,
	// and lost says that there are some of which no answer will be seen. A
	// question may be of one of these.
	left map[jsonrpc.ID]bool
	lost bool
}

func newConnection(server Server, version string, logger *slog.Logger, jitter func(time.Duration) time.Duration, changed func()) *connection {
	c := &connection{
		server:  server,
		version: version,
		logger:  logger.With("server", server.Name),
		jitter:  jitter,
		changed: changed,
		stale:   make(chan struct{}, 1),
		down:    errors.New("it hasn't started yet"),
		flights: make(map[string]*flight),
	}
	c.open = c.openTransport
	return c
}

func (c *connection) openTransport(ctx context.Context) (sdk.Transport, func()) {
	if c.server.URL != "" {
		transport, below := newHTTPTransport(ctx, c.server, c.received)
		return transport, below.CloseIdleConnections
	}
	transport := newCommandTransport(c.server, c.received, c.logger)
	return transport, transport.release
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
	l, err := c.connect(ctx)
	if err == nil {
		err = c.keep(ctx, l)
	}
	c.mu.Lock()
	c.link, c.down = nil, err
	c.mu.Unlock()
	if l != nil {
		l.close()
	}
	return err
}

// keep reads what a server offers, now and whenever it changes.
func (c *connection) keep(ctx context.Context, l *link) error {
	changed, err := c.refresh(ctx, l)
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.link, c.down = l, nil
	c.left, c.lost = make(map[jsonrpc.ID]bool), false
	offered := len(c.offers.tools)
	c.mu.Unlock()
	if changed {
		c.changed()
	}
	c.logger.Info("a downstream server is up", "tools", offered, "protocol", l.session.InitializeResult().ProtocolVersion)
	again := time.NewTicker(listEvery)
	defer again.Stop()
	var failing time.Time // since when reading fails; zero if it doesn't
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-l.ended:
			return c.plain(fmt.Errorf("the connection ended: %w", errors.Join(l.err, errCutOff)))
		case <-c.stale:
		case <-again.C:
			if c.busy() {
				continue // many servers do one thing at a time
			}
		}
		changed, err = c.refresh(ctx, l)
		if err == nil {
			failing = time.Time{}
			if changed {
				c.changed()
			}
			continue
		}
		if failing.IsZero() {
			failing = time.Now()
		}
		silent := errors.Is(err, errCutOff) || errors.Is(err, errUnavailable)
		if !silent || !c.busy() || time.Since(failing) > c.server.callTimeout() {
			return err
		}
		c.logger.Warn("reading a downstream server's lists failed while it is at work", "err", err)
	}
}

// busy reports whether calls are in flight, which would be cut off.
func (c *connection) busy() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.flights) > 0
}

// outdated has the lists read again.
func (c *connection) outdated() {
	select {
	case c.stale <- struct{}{}:
	default:
	}
}

// link is a connection that the SDK has made, until it ends.
type link struct {
	session *sdk.ClientSession
	calls   context.Context // ends before the session does
	running sync.WaitGroup  // calls, until the server knows that they are over
	ended   chan struct{}   // closed when the session has ended, with err
	err     error
	close   func()
}

func (c *connection) connect(ctx context.Context) (*link, error) {
	client, err := c.newClient()
	if err != nil {
		return nil, err
	}
	// The SDK waits for some answers without a limit, and says goodbye after
	// ctx has ended.
	during, abort := context.WithCancel(context.WithoutCancel(ctx))
	transport, release := c.open(during)
	limited, cancel := context.WithTimeout(ctx, c.server.startTimeout())
	defer cancel()
	stop := context.AfterFunc(limited, abort)
	session, err := client.Connect(limited, transport, nil)
	if !stop() && err == nil {
		_ = session.Close() // it is closed whatever the error
		err = limited.Err()
	}
	if err != nil {
		abort()
		release()
		return nil, c.plain(fmt.Errorf("connecting: %w", err))
	}
	calls, end := context.WithCancelCause(during)
	l := &link{session: session, calls: calls, ended: make(chan struct{})}
	go func() {
		defer close(l.ended)
		l.err = session.Wait()
	}()
	l.close = func() {
		end(errCutOff)
		l.running.Wait()
		late := time.AfterFunc(closeWait, abort)
		_ = session.Close()
		late.Stop()
		abort()
		<-l.ended
		release()
	}
	return l, nil
}

func (c *connection) newClient() (*sdk.Client, error) {
	client := sdk.NewClient(&sdk.Implementation{Name: "countersign-gateway", Title: "Countersign", Version: c.version}, &sdk.ClientOptions{
		// What agents' clients can do differs; elicitation is passed on where
		// theirs can.
		Capabilities: &sdk.ClientCapabilities{Elicitation: &sdk.ElicitationCapabilities{
			Form: &sdk.FormElicitationCapabilities{},
			URL:  &sdk.URLElicitationCapabilities{},
		}},
		ToolListChangedHandler:     func(context.Context, *sdk.ToolListChangedRequest) { c.outdated() },
		PromptListChangedHandler:   func(context.Context, *sdk.PromptListChangedRequest) { c.outdated() },
		ResourceListChangedHandler: func(context.Context, *sdk.ResourceListChangedRequest) { c.outdated() },
		MultiRoundTrip:             &sdk.MultiRoundTripOptions{Disabled: true},
	})
	client.AddReceivingMiddleware(func(next sdk.MethodHandler) sdk.MethodHandler {
		return func(ctx context.Context, method string, request sdk.Request) (sdk.Result, error) {
			if question, ok := request.(*sdk.ElicitRequest); ok {
				return c.asked(ctx, question)
			}
			return next(ctx, method, request)
		}
	})
	for _, method := range rawMethods {
		if err := sdk.AddSendingCustomMethod[*rawParams, *rawResult](client, rawPrefix+method); err != nil {
			return nil, err
		}
	}
	return client, nil
}

// plain is an error without the server's address, which may have a secret in it,
// and without the prefix that only the SDK knows.
func (c *connection) plain(err error) error {
	if failed, ok := errors.AsType[*url.Error](err); ok {
		return failed.Err
	}
	text := strings.ReplaceAll(err.Error(), rawPrefix, "")
	if c.server.URL != "" {
		text = strings.ReplaceAll(text, c.server.URL, "its address")
	}
	if text == err.Error() {
		return err
	}
	return errors.New(text)
}

// list is one of a server's lists.
type list struct {
	method, member, key string
	offered             bool
	into                *[]item // nil for tools
}

// refresh reads all that the server offers, and reports whether that differs
// from what was known.
func (c *connection) refresh(ctx context.Context, l *link) (changed bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.server.startTimeout())
	defer cancel()
	capabilities := l.session.InitializeResult().Capabilities
	if capabilities == nil {
		capabilities = new(sdk.ServerCapabilities)
	}
	var offers lists
	all := []list{
		{methodListTools, "tools", "name", capabilities.Tools != nil, nil},
		{methodListResources, "resources", "uri", capabilities.Resources != nil, &offers.resources},
		{methodListTemplates, "resourceTemplates", "uriTemplate", capabilities.Resources != nil, &offers.templates},
		{methodListPrompts, "prompts", "name", capabilities.Prompts != nil, &offers.prompts},
	}
	listed := make(map[string][]json.RawMessage)
	for _, one := range all {
		if !one.offered {
			continue
		}
		listed[one.method], err = c.read(ctx, l, one)
		wire, refused := errors.AsType[*jsonrpc.Error](err)
		switch {
		case refused && one.into != nil:
			// Its tools don't depend on this one, which not every server has.
			if wire.Code != jsonrpc.CodeMethodNotFound {
				c.logger.Warn("a downstream server doesn't list what it says it has", "list", one.member, "err", wire)
			}
			listed[one.method] = c.listed[one.method]
		case err != nil:
			return false, err
		}
	}
	same := func(a, b []json.RawMessage) bool {
		return slices.EqualFunc(a, b, func(a, b json.RawMessage) bool { return bytes.Equal(a, b) })
	}
	if c.listed != nil && maps.EqualFunc(listed, c.listed, same) {
		return false, nil
	}
	for _, one := range all {
		if one.into != nil {
			*one.into = itemsOf(c.server.Name, one.key, listed[one.method], c.logger)
		}
	}
	offers.tools = toolsOf(c.server, listed[methodListTools], c.logger)
	c.listed = listed
	c.mu.Lock()
	defer c.mu.Unlock()
	c.offers = offers
	return true, nil
}

// read reads all pages of a list. Of more than maxListed it returns one more than
// that; as tools, they are an error.
func (c *connection) read(ctx context.Context, l *link, one list) ([]json.RawMessage, error) {
	var all []json.RawMessage
	size, params := 0, new(rawParams)
	for range maxPages {
		result, err := c.send(ctx, l, newFlight(ctx, one.method, relay{}), params)
		if err != nil {
			return nil, fmt.Errorf("listing its %s: %w", one.member, err)
		}
		if size += len(result); size > maxListBytes {
			return nil, fmt.Errorf("its list of %s is larger than %d MiB", one.member, maxListBytes>>20)
		}
		// Each element is read strictly later, so that one that isn't strict JSON
		// only costs itself.
		next, err := pageOf(result, one.member, maxListed+1-len(all))
		if err != nil {
			return nil, fmt.Errorf("reading its list of %s: it %w", one.member, err)
		}
		all = append(all, next.elements...)
		if len(all) > maxListed {
			if one.into == nil {
				return nil, fmt.Errorf("it lists more than %d %s", maxListed, one.member)
			}
			return all, nil
		}
		if next.cursor == nil {
			return all, nil
		}
		params = &rawParams{members: []strictjson.Member{{Name: "cursor", Value: next.cursor}}}
	}
	return nil, fmt.Errorf("its list of %s doesn't end within %d pages", one.member, maxPages)
}

// call sends a request with the parameters as they are and returns the result as
// it is, but for what belongs to one of the two connections alone. The method is
// one of rawMethods.
//
// A *jsonrpc.Error is the server's own answer, or says that the request is not
// one. An error that wraps errUnavailable means that nothing ran, and one that
// wraps errCutOff that it may have. If that is because ctx or the time for a call
// has ended, it wraps the cause too.
func (c *connection) call(ctx context.Context, method string, params json.RawMessage, to relay) (json.RawMessage, error) {
	if !slices.Contains(rawMethods, method) {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: "the gateway doesn't pass on " + method}
	}
	raw, err := newRawParams(params)
	if err != nil {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "the parameters can't be passed on: " + err.Error()}
	}
	ctx, cancel := context.WithTimeout(ctx, c.server.callTimeout())
	defer cancel()
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	l, f, err := c.begin(ctx, method, raw, to)
	if err != nil {
		return nil, err
	}
	defer c.finish(f)
	defer context.AfterFunc(l.calls, func() { end(context.Cause(l.calls)) })()
	raw.SetMeta(map[string]any{progressToken: f.token})
	result, err := c.send(ctx, l, f, raw)
	givenUp := err != nil && ctx.Err() != nil && f.departed.Load()
	if givenUp {
		c.leave(f)
	}
	l.over(f, givenUp)
	if err != nil {
		if errors.Is(err, errUnavailable) || errors.Is(err, errCutOff) {
			c.outdated() // which shows whether the server is there
		}
		return nil, err
	}
	return ownless(result), nil
}

// over says that a call has ended. The SDK tells the server of one that was
// cancelled in its own time, but not once the session is being closed.
func (l *link) over(f *flight, cancelled bool) {
	if !cancelled {
		l.running.Done()
		return
	}
	go func() {
		defer l.running.Done()
		late := time.NewTimer(closeWait)
		defer late.Stop()
		select {
		case <-f.renounced:
		case <-l.ended:
		case <-late.C:
		}
	}()
}

// send sends a request and returns the result as the server wrote it, with the
// errors of call.
func (c *connection) send(ctx context.Context, l *link, f *flight, params *rawParams) (json.RawMessage, error) {
	result, err := sdk.CallCustomMethod[*rawParams, *rawResult](context.WithValue(ctx, flightKey{}, f), l.session, rawPrefix+f.method, params)
	if err == nil {
		if wire := carriedIn(result.raw); wire != nil {
			return nil, wire
		}
		return result.raw, nil
	}
	kind := errCutOff
	if !f.departed.Load() || f.refused.Load() {
		kind = errUnavailable
	}
	if ctx.Err() != nil {
		return nil, fmt.Errorf("%w: %w", kind, context.Cause(ctx))
	}
	return nil, fmt.Errorf("%w: %v", kind, c.plain(err))
}

// begin notes a call, and finds out what the transport must know of it.
func (c *connection) begin(ctx context.Context, method string, params *rawParams, to relay) (*link, *flight, error) {
	f := newFlight(ctx, method, to)
	f.name = text(params.members, "name")
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.link == nil {
		return nil, nil, fmt.Errorf("%w: %v", errUnavailable, c.down)
	}
	switch method {
	case methodReadResource:
		f.name = text(params.members, "uri")
	case methodCallTool:
		for _, t := range c.offers.tools {
			if t.name == f.name {
				f.headers = headersOf(t.headers, value(params.members, "arguments"))
			}
		}
	}
	c.tokens++
	f.token = "countersign-" + strconv.Itoa(c.tokens)
	c.flights[f.token] = f
	c.link.running.Add(1)
	f.start()
	return c.link, f, nil
}

// leave notes a call for which nobody waits any more. Its server may be at work
// on it for as long as it hasn't answered, which servers need not do at all.
func (c *connection) leave(f *flight) {
	c.mu.Lock()
	defer c.mu.Unlock()
	id, known := f.sentAs()
	switch {
	case f.answered.Load():
	case known && len(c.left) < maxLeft:
		c.left[id] = true
	default:
		c.lost = true
	}
}

// answered notes that a server has answered a call. of is as in received.
func (c *connection) answered(id jsonrpc.ID, of *flight) {
	if of != nil {
		of.answered.Store(true)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.left, id)
	for _, f := range c.flights {
		if sent, known := f.sentAs(); known && sent == id {
			f.answered.Store(true)
		}
	}
}

func (c *connection) finish(f *flight) {
	c.mu.Lock()
	delete(c.flights, f.token)
	c.mu.Unlock()
	f.land()
}
