package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/countersign/countersign/internal/strictjson"
)

// relay is who hears what a downstream server says while it answers a call.
// Members are nil where nobody can be told.
type relay struct {
	// progress gets the parameters of each notification of progress as they were
	// written, but for the token, which is the gateway's own. It is called for
	// one at a time, in their order, and not after the call has returned; only a
	// progress that itself takes longer than landWait is left behind. What comes
	// faster than it takes them is left out.
	progress func(params json.RawMessage)

	// elicit gets the parameters of a server's question as they were written and
	// returns the result of elicitation/create, which reaches the server as it
	// is. ctx ends with the call. An error that is a *jsonrpc.Error reaches the
	// server; any other counts as "cancel".
	elicit func(ctx context.Context, params json.RawMessage) (json.RawMessage, error)
}

// flight is a request that is under way to a downstream server and back.
type flight struct {
	token   string // of its progress; empty if it isn't an agent's
	method  string // without rawPrefix
	name    string // of what it is about: a tool, a prompt or a resource
	headers map[string]string
	to      relay
	ctx     context.Context // ends with the request

	// departed says that some of it may have reached the server, and refused
	// that the server has said that it didn't look at it.
	departed, refused atomic.Bool
	// answered says that the server's answer has come, whether anybody waits for
	// it or not.
	answered atomic.Bool
	// renounced is closed when the server was told that nobody waits any more.
	renounced chan struct{}
	renounce  func()

	mu        sync.Mutex
	id        jsonrpc.ID // of the request, once it is sent on a pipe
	landed    bool       // nobody is told anything more
	reports   chan json.RawMessage
	reported  chan struct{} // closed when all reports were told
	abandoned atomic.Bool   // what reports still holds is not told
}

func newFlight(ctx context.Context, method string, to relay) *flight {
	f := &flight{ctx: ctx, method: method, to: to, renounced: make(chan struct{})}
	f.renounce = sync.OnceFunc(func() { close(f.renounced) })
	return f
}

// depart notes that a request is being sent on a pipe, on which answers are told
// apart by its id alone.
func (f *flight) depart(id jsonrpc.ID) {
	f.mu.Lock()
	f.id = id
	f.mu.Unlock()
	f.departed.Store(true)
}

// sentAs returns the id with which the request was sent; false if there is none
// by which its answer is known.
func (f *flight) sentAs() (jsonrpc.ID, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.id, f.id.IsValid()
}

// maxReports is how many notifications of progress wait to be told.
const maxReports = 64

type flightKey struct{}

// flightOf returns the request that a transport is sending; nil if it is one of
// the SDK's own.
func flightOf(ctx context.Context) *flight {
	f, _ := ctx.Value(flightKey{}).(*flight)
	return f
}

// start lets progress be told, until land.
func (f *flight) start() {
	if f.to.progress == nil {
		return
	}
	f.reports, f.reported = make(chan json.RawMessage, maxReports), make(chan struct{})
	go func() {
		defer close(f.reported)
		for params := range f.reports {
			if !f.abandoned.Load() {
				f.to.progress(params)
			}
		}
	}()
}

// land tells the last of the progress.
func (f *flight) land() {
	if f.reports == nil {
		return
	}
	f.mu.Lock()
	f.landed = true
	close(f.reports)
	f.mu.Unlock()
	// An agent that doesn't read must not hold up what came of the call.
	late := time.NewTimer(landWait)
	defer late.Stop()
	select {
	case <-f.reported:
	case <-late.C:
		f.abandoned.Store(true)
	}
}

// landWait is how long a result waits for the progress before it.
const landWait = 5 * time.Second

func (f *flight) report(params json.RawMessage) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.reports == nil || f.landed {
		return
	}
	select {
	case f.reports <- params:
	default: // progress is only to be seen; reading on is worth more
	}
}

// Where the SDK's types would change what a server wrote, the text travels
// through the SDK inside of something that they leave alone.
const (
	// carriedParams is the member of _meta that has the parameters of
	// elicitation/create, as text, and carriedToken the one that says which
	// request they belong to.
	carriedParams = rawPrefix + "params"
	carriedToken  = rawPrefix + "token"
	// carriedError is the member of a result that is an error: the SDK takes some
	// codes for its own errors, and forgets the data of others.
	carriedError = rawPrefix + "error"
)

// received sees each message of the server before the SDK does, and returns what
// the SDK gets. of is the request whose answer the message came with; nil if
// that isn't known.
func (c *connection) received(message jsonrpc.Message, of *flight) jsonrpc.Message {
	if response, ok := message.(*jsonrpc.Response); ok {
		c.answered(response.ID, of)
	}
	request, ok := message.(*jsonrpc.Request)
	if !ok {
		return message
	}
	switch request.Method {
	case "notifications/progress":
		c.progressed(request.Params)
	case "elicitation/create":
		carried := map[string]string{carriedParams: string(request.Params)}
		if of != nil {
			carried[carriedToken] = of.token
		}
		params, err := json.Marshal(map[string]any{metaName: carried, "message": ""})
		if err != nil {
			return message // strings always encode
		}
		changed := *request
		changed.Params = params
		return &changed
	}
	return message
}

// asResult turns an error that a server answered with into a result that carries
// it.
func asResult(response *jsonrpc.Response) *jsonrpc.Response {
	wire, ok := errors.AsType[*jsonrpc.Error](response.Error)
	if !ok {
		return response
	}
	text, err := json.Marshal(wire)
	if err != nil {
		return response
	}
	return &jsonrpc.Response{ID: response.ID, Result: slices.Concat([]byte(`{"`+carriedError+`":`), text, []byte("}"))}
}

// carriedIn returns the error that a result carries; nil if it is a result.
func carriedIn(result json.RawMessage) *jsonrpc.Error {
	if !strings.HasPrefix(string(result[:min(len(result), len(carriedError)+4)]), `{"`+carriedError+`":`) {
		return nil
	}
	var carried map[string]*jsonrpc.Error
	if err := json.Unmarshal(result, &carried); err != nil {
		return nil
	}
	return carried[carriedError]
}

// progressed passes progress on to the call that it is of.
func (c *connection) progressed(params json.RawMessage) {
	members, err := strictjson.Members(params)
	if err != nil {
		return
	}
	c.mu.Lock()
	f := c.flights[text(members, progressToken)]
	c.mu.Unlock()
	if f == nil {
		return
	}
	f.report(object(slices.DeleteFunc(members, func(m strictjson.Member) bool { return m.Name == progressToken })))
}

// asked passes a server's question on to the call that it is about. Where the
// transport doesn't say which that is, it is the only one in flight: with several
// it might reach somebody else's person, so then nobody is asked. A call that was
// given up is in flight until the server has answered it or the connection ends.
func (c *connection) asked(ctx context.Context, request *sdk.ElicitRequest) (sdk.Result, error) {
	if request.Params == nil {
		return &sdk.ElicitResult{Action: "cancel"}, nil
	}
	params, _ := request.Params.Meta[carriedParams].(string)
	token, known := request.Params.Meta[carriedToken].(string)
	c.mu.Lock()
	f := c.flights[token]
	if !known && len(c.flights) == 1 && len(c.left) == 0 && !c.lost {
		for _, only := range c.flights {
			f = only
		}
	}
	inFlight, left := len(c.flights), c.lost || len(c.left) > 0
	c.mu.Unlock()
	if f == nil || f.to.elicit == nil {
		c.logger.Info("a server's question is cancelled: nobody can be asked it for sure", "calls", inFlight, "given_up_unanswered", left)
		return &sdk.ElicitResult{Action: "cancel"}, nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(f.ctx, cancel)()
	answer, err := f.to.elicit(ctx, json.RawMessage(params))
	if wire, ok := errors.AsType[*jsonrpc.Error](err); ok {
		return nil, wire
	}
	if err != nil || !json.Valid(answer) {
		c.logger.Warn("a server's question is cancelled: there was no answer", "err", err)
		return &sdk.ElicitResult{Action: "cancel"}, nil
	}
	return &rawResult{raw: answer}, nil
}
