package mcp

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/countersign/countersign/approval"
)

// ErrTokenRefused means that the server doesn't know the token, or that it was
// revoked.
var ErrTokenRefused = errors.New("the server refused the token; `countersign token create` on the server makes a new one")

const (
	// unreachableAfter is how long a call tries to reach a server that is down
	// before it says so: long enough for a restart.
	unreachableAfter = 20 * time.Second
	retryFirst       = 100 * time.Millisecond
	retryMost        = 2 * time.Second
	connectLimit     = 10 * time.Second
	// maxRemoteEvent is the longest answer in bytes: a payload in it can be
	// written twice, with up to six bytes for one.
	maxRemoteEvent = 64 << 20
)

// RemoteOptions set up a Remote. Zero values are usable.
type RemoteOptions struct {
	// Version is the product's, as the server is told; empty means "devel".
	Version string
	// Logger gets what no caller is told; nil discards it.
	Logger *slog.Logger
}

// Remote is the Flow of a running server, reached over streamable HTTP with a
// bearer token. Which agent calls is the token's to say; the agents given to
// its methods don't count.
//
// It outlives restarts of the server: a wait that a restart cuts off ends as
// pending, and calls that find the server down try again for a while.
type Remote struct {
	endpoint string
	client   *sdk.Client
	http     *http.Client
	logger   *slog.Logger

	connecting chan struct{}      // holds one element: whoever has taken it may use session
	session    *sdk.ClientSession // nil while there is none
	closing    sync.WaitGroup

	tokens  atomic.Int64
	reports sync.Map // progress token (string) to func(message string)
}

var _ Flow = (*Remote)(nil)

// Dial connects to the tools of a running server at endpoint, such as
// https://HOST/mcp. The error wraps ErrTokenRefused if the token doesn't work.
// Call Close at the end.
func Dial(ctx context.Context, endpoint, token string, options RemoteOptions) (*Remote, error) {
	address, err := url.Parse(endpoint)
	if err != nil || address.Host == "" || (address.Scheme != "http" && address.Scheme != "https") || address.User != nil {
		return nil, fmt.Errorf("%q is not the address of a server; it looks like https://HOST/mcp", endpoint)
	}
	common := Options{Version: options.Version, Logger: options.Logger}
	common.defaults()
	r := &Remote{
		endpoint:   endpoint,
		http:       newBridgeClient(token),
		logger:     common.Logger,
		connecting: make(chan struct{}, 1),
	}
	r.connecting <- struct{}{}
	r.client = sdk.NewClient(&sdk.Implementation{Name: "countersign-bridge", Version: common.Version}, &sdk.ClientOptions{
		// Prompts are this side's: it knows the host.
		Capabilities: &sdk.ClientCapabilities{},
		ProgressNotificationHandler: func(_ context.Context, n *sdk.ProgressNotificationClientRequest) {
			if report, ok := r.reports.Load(n.Params.ProgressToken); ok {
				report.(func(string))(n.Params.Message)
			}
		},
	})
	if err := sdk.AddSendingCustomMethod[*bridgeParams, *bridgeResult](r.client, bridgeMethod); err != nil {
		return nil, fmt.Errorf("preparing the connection: %w", err)
	}
	if _, err := r.connected(ctx); err != nil {
		r.http.CloseIdleConnections()
		return nil, fmt.Errorf("connecting to %s: %w", endpoint, err)
	}
	return r, nil
}

// Close ends the connection, after the calls that are under way.
func (r *Remote) Close() {
	<-r.connecting
	r.disconnect(r.session)
	r.connecting <- struct{}{}
	r.closing.Wait()
	r.http.CloseIdleConnections()
}

// Request implements Flow. The payload reaches the server byte for byte.
func (r *Remote) Request(ctx context.Context, _ approval.Agent, p approval.Proposal) (Answer, error) {
	mark := rand.Text()
	arguments := map[string]any{inputPurpose: p.Purpose, inputPayload: mark}
	for name, value := range map[string]string{inputAction: p.Action, inputTarget: p.Target, inputEnvironment: p.Environment} {
		if value != "" {
			arguments[name] = value
		}
	}
	if p.Count != nil {
		arguments[inputCount] = *p.Count
	}
	if p.Reversible != nil {
		arguments[inputReversible] = *p.Reversible
	}
	if p.TTL != 0 {
		arguments[inputTTL] = int64(p.TTL / time.Second)
	}
	answer, err := r.call(ctx, outgoing{tool: requestTool.Name, payload: p.Payload, mark: mark}, arguments, nil)
	if err == nil && (answer.ID == "" || answer.ReviewURL == "" || answer.ExpiresAt.IsZero()) {
		err = errors.New("the server's answer to request_approval is incomplete")
	}
	if errors.Is(err, errCutOff) {
		err = &Refusal{Text: "The connection broke while the request was being stored, so it isn't known whether people were asked. Nothing was approved. Ask the user before asking again: people may see the request twice."}
	}
	return answer, err
}

// Await implements Flow. The bound is the server's.
func (r *Remote) Await(ctx context.Context, _ approval.Agent, id approval.ID, report func(message string)) (Answer, error) {
	answer, err := r.call(ctx, outgoing{tool: awaitTool.Name}, map[string]any{inputID: id}, report)
	if errors.Is(err, errCutOff) && ctx.Err() == nil {
		return Answer{Status: approval.Pending, Guidance: whilePending}, nil
	}
	return answer, err
}

// Status implements Flow.
func (r *Remote) Status(ctx context.Context, _ approval.Agent, id approval.ID) (Answer, error) {
	return r.call(ctx, outgoing{tool: statusTool.Name}, map[string]any{inputID: id}, nil)
}

// Apply implements Flow.
func (r *Remote) Apply(ctx context.Context, _ approval.Agent, id approval.ID) (Answer, error) {
	answer, err := r.call(ctx, outgoing{tool: applyTool.Name}, map[string]any{inputID: id}, nil)
	if err == nil && answer.Payload == nil {
		err = errors.New("the server's answer to apply has no payload")
	}
	if errors.Is(err, errCutOff) {
		err = &Refusal{Text: "The connection broke while the approval was being used. Don't run the action from memory. Call check_status: if it says approved, call apply again; if it says applied, the approval is used up and the payload didn't arrive, so ask for a new approval."}
	}
	return answer, err
}

// call calls a tool of the server, and tries again for a while if the call
// surely didn't reach it. errCutOff means that it may have.
func (r *Remote) call(ctx context.Context, out outgoing, arguments map[string]any, report func(string)) (Answer, error) {
	giveUp := time.NewTimer(unreachableAfter)
	defer giveUp.Stop()
	for pause := retryFirst; ; pause = min(2*pause, retryMost) {
		answer, err := r.callOnce(ctx, out, arguments, report)
		again := errors.Is(err, errUnreached) || (errors.Is(err, errCutOff) && out.tool == statusTool.Name)
		if !again {
			return answer, err
		}
		r.logger.Debug("reaching the server", "tool", out.tool, "err", err)
		select {
		case <-ctx.Done():
			return Answer{}, ctx.Err()
		case <-giveUp.C:
			r.logger.Warn("the server can't be reached", "tool", out.tool, "err", err)
			return Answer{}, &Refusal{Text: "The approval server can't be reached now. Nothing was changed, and requests that it has stay as they are. Try again in a minute; if that keeps failing, tell the user."}
		case <-time.After(pause):
		}
	}
}

func (r *Remote) callOnce(ctx context.Context, out outgoing, arguments map[string]any, report func(string)) (Answer, error) {
	session, err := r.connected(ctx)
	if err != nil {
		if err = failure(ctx, err); errors.Is(err, errCutOff) {
			err = fmt.Errorf("%w: %w", errUnreached, err) // the call wasn't sent yet
		}
		return Answer{}, err
	}
	params := &bridgeParams{Name: out.tool, Arguments: arguments}
	if report != nil {
		// A notification may be handled as the result is: nothing is reported
		// after this returns.
		token := strconv.FormatInt(r.tokens.Add(1), 10)
		var reporting sync.Mutex
		over := false
		r.reports.Store(token, func(message string) {
			reporting.Lock()
			defer reporting.Unlock()
			if !over {
				report(message)
			}
		})
		defer func() {
			r.reports.Delete(token)
			reporting.Lock()
			defer reporting.Unlock()
			over = true
		}()
		params.Meta = sdk.Meta{"progressToken": token}
	}
	ctx = context.WithValue(ctx, outgoingKey{}, out)
	result, err := sdk.CallCustomMethod[*bridgeParams, *bridgeResult](ctx, session, bridgeMethod, params)
	if err != nil {
		err = failure(ctx, err)
		if errors.Is(err, errUnreached) || errors.Is(err, errCutOff) {
			r.forget(session)
		}
		return Answer{}, err
	}
	return answerOf(result)
}

var (
	// errUnreached is that a call surely didn't reach the server.
	errUnreached = errors.New("the server can't be reached")
	// errCutOff is that the connection broke and the call may have reached it.
	errCutOff = errors.New("the connection to the server broke")
	// errNotMCP is that something answered which isn't MCP.
	errNotMCP = errors.New("the address doesn't answer as an MCP server")
)

// transportCodes are what the SDK gives errors of its own transport, which look
// like a server's answer: a client or server that is closing, and a message that
// couldn't be sent.
var transportCodes = []int64{-32003, -32004, -32005}

// failure sorts the error of a call. Whatever isn't known to be something else
// is a broken connection.
func failure(ctx context.Context, err error) error {
	answer, answered := errors.AsType[*jsonrpc.Error](err)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, ErrTokenRefused):
		return &Refusal{Text: "The approval server refused this agent's token. Nothing was done. Tell the user that the token is unknown or revoked, and that `countersign token create` on the server makes a new one."}
	case errors.Is(err, errNotMCP), errors.Is(err, errUnreached), errors.Is(err, errCutOff):
		return err
	case answered && !slices.Contains(transportCodes, answer.Code):
		// Its words may quote the call, and with it a payload.
		return fmt.Errorf("the server refused the call with code %d", answer.Code)
	default:
		return fmt.Errorf("%w: %w", errCutOff, err)
	}
}

// connected returns the session, and makes one if there is none.
func (r *Remote) connected(ctx context.Context) (*sdk.ClientSession, error) {
	select {
	case <-r.connecting:
		defer func() { r.connecting <- struct{}{} }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if r.session != nil {
		return r.session, nil
	}
	// The session outlives the call that makes it, and needs none of its values.
	limited, cancel := context.WithTimeout(context.Background(), connectLimit)
	defer cancel()
	defer context.AfterFunc(ctx, cancel)()
	session, err := r.client.Connect(limited, &sdk.StreamableClientTransport{
		Endpoint:             r.endpoint,
		HTTPClient:           r.http,
		MaxRetries:           -1, // call decides what is tried again
		DisableStandaloneSSE: true,
		MaxEventSize:         maxRemoteEvent,
	}, nil)
	if err != nil {
		return nil, err
	}
	r.session = session
	return session, nil
}

// forget drops a session that may be broken, so that the next call makes one.
func (r *Remote) forget(broken *sdk.ClientSession) {
	<-r.connecting
	defer func() { r.connecting <- struct{}{} }()
	if r.session == broken {
		r.disconnect(broken)
	}
}

// disconnect drops the session. The calls that others have in flight on it end
// by themselves.
func (r *Remote) disconnect(session *sdk.ClientSession) {
	r.session = nil
	if session != nil {
		r.closing.Go(func() { _ = session.Close() }) // it is closed whatever the error
	}
}
