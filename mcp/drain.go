package mcp

import (
	"context"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// drainLimit is how long a server that stops waits for its calls to be answered.
const drainLimit = 5 * time.Second

// calls counts the calls that aren't answered yet. The SDK drops the answer of a
// call that runs while its session is closed, so sessions are closed after that.
type calls struct {
	mu       sync.Mutex
	open     int
	draining bool
	idle     chan struct{} // closed when draining and none was open
}

func newCalls() *calls { return &calls{idle: make(chan struct{})} }

// begin counts a call and reports whether it came before draining.
func (c *calls) begin() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open++
	return !c.draining
}

// end says that a call that was counted is answered.
func (c *calls) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open--
	c.settle()
}

// settle closes idle once it is true. c.mu must be held.
func (c *calls) settle() {
	if !c.draining || c.open > 0 {
		return
	}
	select {
	case <-c.idle:
	default:
		close(c.idle)
	}
}

// drain waits until all calls are answered, at most drainLimit, or until gone is
// closed because nobody takes answers any more.
func (c *calls) drain(gone <-chan struct{}) {
	c.mu.Lock()
	c.draining = true
	c.settle()
	c.mu.Unlock()
	limit := time.NewTimer(drainLimit)
	defer limit.Stop()
	select {
	case <-c.idle:
	case <-gone:
	case <-limit.C:
	}
}

// countedTransport counts the calls of one connection, which ends with open. At
// its end, calls that still run are cancelled.
type countedTransport struct {
	sdk.Transport
	calls *calls
	open  context.Context
}

func (t *countedTransport) Connect(ctx context.Context) (sdk.Connection, error) {
	connection, err := t.Transport.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &countedConnection{connection, t.calls, t.open}, nil
}

type countedConnection struct {
	sdk.Connection
	calls *calls
	open  context.Context
}

// Read implements sdk.Connection. The SDK's context never ends.
func (c *countedConnection) Read(context.Context) (jsonrpc.Message, error) {
	message, err := c.Connection.Read(c.open)
	if request, ok := message.(*jsonrpc.Request); ok && err == nil && request.IsCall() {
		c.calls.begin()
		keepParams(request)
	}
	return message, err
}

// Write implements sdk.Connection.
func (c *countedConnection) Write(ctx context.Context, message jsonrpc.Message) error {
	err := c.Connection.Write(ctx, message)
	if _, ok := message.(*jsonrpc.Response); ok {
		c.calls.end()
	}
	return err
}
