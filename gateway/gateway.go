// Package gateway stands between agents and the MCP servers that act: the
// downstream servers. It holds their credentials and is the only way to them.
//
// What a downstream server lists is offered as the server wrote it, and
// parameters and results pass as they were written: every digit, every member
// and the order of members stay. The SDK doesn't give that for methods that it
// knows, see rawPrefix.
//
// Each call of a tool is a request of approval.Service: what policy allows is
// forwarded, what it denies is refused, and the rest waits for a person. What
// was approved runs here, once, with the arguments that were frozen; the agent
// is handed nothing but the result.
//
// Each downstream server has one connection, which is made again whenever it
// breaks. One that is down hurts no other: what it offered stays known, and
// calls of it say that it isn't available now.
//
// A Gateway serves agents through package mcp, of which it knows nothing: give
// it as mcp.Options.Gateway, both to mcp.NewHandler for /mcp/gateway and to
// mcp.ServeStdio, and have Run run beside them.
package gateway

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	randv2 "math/rand/v2"
	"sync"
	"time"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/internal/seal"
)

// Approval is how a call that waits for a person is answered.
type Approval string

// The ways.
const (
	// Pending answers at once that the call waits, and how to get its result.
	Pending Approval = "pending"
	// Hold keeps the call open while a person decides, for a while.
	Hold Approval = "hold"
)

// PromptURL has clients of the protocol without sessions asked to open the review
// page, if they can show links, by an answer that asks for input.
const PromptURL = "url"

// How long a call waits. Hosts give up on a tool call from 30 s on and most by
// 60 s, and a call that a host gave up on tells the model nothing.
const (
	DefaultBound = 25 * time.Second
	MaxBound     = 55 * time.Second
)

// Options set up a Gateway. Zero values are usable unless said otherwise.
type Options struct {
	// Version is the product's, as downstream servers are told; empty means
	// "devel".
	Version string
	// ReviewURL is where people find a request. Required. The address is a
	// locator: it must decide nothing and reveal nothing by itself.
	ReviewURL func(approval.ID) string
	// ReviewDecides says that people can sign in at ReviewURL and decide there.
	ReviewDecides bool
	// Load reads a request, whosever it is, such as the store's Request.
	// Required.
	Load func(context.Context, approval.ID) (*approval.Request, error)
	// StateKey is the master key, of at least seal.KeySize random bytes, of what
	// clients hold between two rounds of a call. Required.
	StateKey []byte
	// Approval is how a call that waits for a person is answered; empty means
	// Pending.
	Approval Approval
	// HoldBound is how long a call is held, and AwaitBound how long await_result
	// waits; zero means DefaultBound. More than MaxBound is refused.
	HoldBound, AwaitBound time.Duration
	// Prompt is PromptURL or empty.
	Prompt string
	// Now is the clock of the service; nil means time.Now.
	Now func() time.Time
	// Rand is the source of nonces; nil means crypto/rand.
	Rand io.Reader
	// Logger gets what no caller is told; nil discards it.
	Logger *slog.Logger
}

func (o *Options) defaults() error {
	switch {
	case o.ReviewURL == nil:
		return errors.New("no review address is given")
	case o.Load == nil:
		return errors.New("nothing is given to load requests with")
	case o.Approval != "" && o.Approval != Pending && o.Approval != Hold:
		return fmt.Errorf("a waiting call can't be answered by %q; pending and hold are accepted", o.Approval)
	case o.Prompt != "" && o.Prompt != PromptURL:
		return fmt.Errorf("clients can't be prompted by %q; url is accepted, or nothing", o.Prompt)
	}
	for _, bound := range []*time.Duration{&o.HoldBound, &o.AwaitBound} {
		if *bound == 0 {
			*bound = DefaultBound
		}
		if *bound < time.Second || *bound > MaxBound {
			return fmt.Errorf("a call can't wait for %v; 1s to %v is accepted, because hosts give up on longer calls", *bound, MaxBound)
		}
	}
	if o.Version == "" {
		o.Version = "devel"
	}
	if o.Approval == "" {
		o.Approval = Pending
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Rand == nil {
		o.Rand = rand.Reader
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return nil
}

// Gateway serves the tools of downstream servers, each call of which is gated. Its
// methods are safe for concurrent use.
type Gateway struct {
	service     *approval.Service
	options     Options
	logger      *slog.Logger
	servers     map[string]Server
	downstreams *downstreams
	sealer      *seal.Sealer
	runs        *runs

	// stopping ends when Run is to end: nobody is asked anything any more.
	stopping context.Context
	stop     context.CancelFunc

	// recorded is closed when what an earlier process left running is recorded.
	// No call is made before.
	recorded chan struct{}

	// step is called at each step of a run, for tests that end the process there,
	// and grace is stopGrace but in tests.
	step  func(name string, id approval.ID)
	grace time.Duration
}

// ownTools are the names of tools that are not a downstream server's, in a server
// that a Gateway is installed in.
var ownTools = []string{"await_approval", "check_status", resultToolName}

// New returns a Gateway to the servers, none of them connected. One process may
// run a Gateway over a store: at its start it takes what is unfinished for cut
// off.
func New(service *approval.Service, servers []Server, options Options) (*Gateway, error) {
	if err := options.defaults(); err != nil {
		return nil, err
	}
	sealer, err := seal.New(options.StateKey, seal.Options{Rand: options.Rand})
	if err != nil {
		return nil, fmt.Errorf("the key of calls' states: %w", err)
	}
	g := &Gateway{
		service:  service,
		options:  options,
		logger:   options.Logger,
		servers:  make(map[string]Server),
		sealer:   sealer,
		runs:     newRuns(),
		recorded: make(chan struct{}),
		step:     func(string, approval.ID) {},
		grace:    stopGrace,
	}
	g.stopping, g.stop = context.WithCancel(context.Background())
	for _, server := range servers {
		g.servers[server.Name] = server
	}
	g.downstreams, err = newDownstreams(servers, ownTools, options.Version, jitter, options.Logger)
	return g, err
}

// jitter spreads a wait, so that servers which went down together aren't tried
// together.
func jitter(wait time.Duration) time.Duration {
	return wait/2 + randv2.N(wait/2+1)
}

// stopGrace is how long what runs may go on when the gateway stops.
const stopGrace = 4 * time.Second

// Run connects to the servers and runs what is approved, until ctx ends. Then
// what runs may end within a few seconds; what doesn't is recorded as unknown. It
// must run once, for calls to be answered.
func (g *Gateway) Run(ctx context.Context) {
	var work sync.WaitGroup
	g.recordCutOff(ctx)
	close(g.recorded)
	connected, disconnect := context.WithCancel(context.WithoutCancel(ctx))
	defer disconnect()
	work.Go(func() { g.downstreams.run(connected) })
	work.Go(func() { g.seeTools(ctx) })
	work.Go(func() { g.execute(ctx) })
	<-ctx.Done()
	g.stop()
	g.runs.drain(g.grace)
	disconnect()
	work.Wait()
}
