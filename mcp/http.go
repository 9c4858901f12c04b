package mcp

import (
	"context"
	"errors"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/internal/loopback"
)

const (
	// sessionIdle is how long a session of an older protocol is kept without a
	// call.
	sessionIdle = 30 * time.Minute
	// protocolHeader is how a call says which protocol it speaks; versions from
	// statelessFrom on have no sessions.
	protocolHeader = "Mcp-Protocol-Version"
	statelessFrom  = "2026-07-28"
	// sessionHeader names the session that a call belongs to.
	sessionHeader = "Mcp-Session-Id"
)

// HandlerOptions set up a Handler.
type HandlerOptions struct {
	Options
	// PayloadLimit is the largest payload in bytes that the service takes; zero
	// means approval.DefaultPayloadLimit. Request bodies may be a few times as
	// large, so that a payload that is too large is refused in words.
	PayloadLimit int
	// Hosts are names that clients may call a server by that listens on
	// loopback, beside the loopback's own: those of a proxy in front of it.
	Hosts []string
	// Resource is what access tokens must be meant for; nil means that none are
	// taken but the server's own.
	Resource *Resource
}

// Handler serves the tools over streamable HTTP, for every protocol version of
// the SDK. Each request needs a bearer token, by which the agent is known.
type Handler struct {
	local   *Local
	server  *server
	sdk     *sdk.Server
	handler http.Handler
	remove  func() // takes the gateway off, if there is one
	posts   *calls
	options HandlerOptions
	// bodyLimit is the largest body of a request in bytes.
	bodyLimit int64
}

// NewHandler returns the handler for one path, such as /mcp. Call Close when
// the server shuts down.
func NewHandler(local *Local, options HandlerOptions) *Handler {
	options.defaults()
	return newHandler(local, newSDKServer(options.Options), options)
}

func newHandler(local *Local, over *sdk.Server, options HandlerOptions) *Handler {
	if options.PayloadLimit == 0 {
		options.PayloadLimit = approval.DefaultPayloadLimit
	}
	h := &Handler{
		local:     local,
		server:    newServer(local, callerOf, options.Options),
		sdk:       over,
		posts:     newCalls(),
		options:   options,
		bodyLimit: int64(4*options.PayloadLimit + 64<<10),
	}
	h.remove = h.server.serve(over, options.Options)
	over.AddReceivingMiddleware(track)

	get := func(*http.Request) *sdk.Server { return over }
	// One SDK handler serves either the protocol with sessions or the one
	// without. Hosts are checked here, where a proxy's name can be allowed.
	stateful := sdk.NewStreamableHTTPHandler(get, &sdk.StreamableHTTPOptions{
		SessionTimeout:             sessionIdle,
		MaxRequestBodyBytes:        h.bodyLimit,
		DisableLocalhostProtection: true,
	})
	stateless := sdk.NewStreamableHTTPHandler(get, &sdk.StreamableHTTPOptions{
		Stateless:                    true,
		PropagateRequestCancellation: true,
		MaxRequestBodyBytes:          h.bodyLimit,
		DisableLocalhostProtection:   true,
	})
	// The SDK reads a call's token info from where RequireBearerToken puts it;
	// the token itself was verified before, in authenticate.
	carry := auth.RequireBearerToken(verified, &auth.RequireBearerTokenOptions{AllowMissingExpiration: true})
	h.handler = http.NewCrossOriginProtection().Handler(carry(exactParams(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get(protocolHeader) >= statelessFrom {
			stateless.ServeHTTP(w, r)
			return
		}
		if e, ok := r.Context().Value(exchangeKey{}).(*exchange); ok {
			// The SDK refuses a session that isn't the agent's.
			e.session = sessionName(r.Header.Get(sessionHeader))
		}
		stateful.ServeHTTP(w, r)
	}))))
	return h
}

// exchange is one HTTP request with the agent that its token named. It travels
// with the request into the tools.
//
// Over stdio, where nothing else has to, only params travel.
type exchange struct {
	agent    approval.Agent
	response *keepAlive
	// request ends when the client has gone or the request is served. The SDK
	// doesn't cancel a call for either under the protocols with sessions.
	request context.Context
	// answered says that closing needn't wait for the request.
	answered func()
	// session names the session that the request belongs to, if it has one.
	session string
	// params are those of the one message as they were written; nil if it isn't
	// one or isn't strict JSON.
	params []byte
}

// Where the exchange is: in the request's context, and in its
// auth.TokenInfo.Extra, which is what the SDK passes on to tools.
type exchangeKey struct{}

const exchangeName = "exchange"

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	agent, ok := h.admit(w, r)
	if !ok {
		return
	}
	ready := h.posts.begin()
	answered := sync.OnceFunc(h.posts.end)
	defer answered()
	if !ready {
		stopping.write(w)
		return
	}
	if r.Method != http.MethodPost {
		answered() // such as an event stream, which ends with its session
	}
	if r.Method == http.MethodDelete {
		h.server.prompts.endSession(r.Header.Get(sessionHeader), agent)
	}
	// A call waits longer than a server may allow for writing an answer.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Time{})
	w.Header().Set("X-Accel-Buffering", "no") // or some proxies keep a waiting answer back
	response := &keepAlive{response: w}
	defer response.close()
	// An access token may end while its call waits for people. The call goes on: it
	// was allowed when it was made, and what it waits for needs no token of theirs.
	e := &exchange{
		agent:    agent,
		response: response,
		request:  r.Context(),
		answered: answered,
	}
	h.handler.ServeHTTP(response, r.WithContext(context.WithValue(r.Context(), exchangeKey{}, e)))
}

// Close ends waiting calls with what is known, then all sessions, and returns
// when nothing runs any more for an agent. Requests that come later, or haven't
// arrived whole, get 503.
// Call it before http.Server.Shutdown, which waits for open event streams.
func (h *Handler) Close() {
	defer h.remove()
	h.server.end()
	h.posts.drain(nil)
	for session := range h.sdk.Sessions() {
		_ = session.Close() // it is closed whatever the error
	}
	h.server.prompts.wait()
}

// verified hands the SDK what authenticate found. Sessions belong to the agent of
// one person: the SDK refuses a call in a session of another UserID.
func verified(ctx context.Context, _ string, _ *http.Request) (*auth.TokenInfo, error) {
	e, ok := ctx.Value(exchangeKey{}).(*exchange)
	if !ok {
		return nil, auth.ErrInvalidToken
	}
	return &auth.TokenInfo{UserID: userOf(e.agent), Extra: map[string]any{exchangeName: e}}, nil
}

// userOf tells agents apart also by whom they act for. No name has a space in it.
func userOf(agent approval.Agent) string {
	return "agent:" + agent.Name + " " + agent.Owner.String()
}

// exchangeOf is the HTTP request that carried a message; nil if none did.
func exchangeOf(extra *sdk.RequestExtra) *exchange {
	if extra == nil || extra.TokenInfo == nil {
		return nil
	}
	e, _ := extra.TokenInfo.Extra[exchangeName].(*exchange)
	return e
}

func callerOf(request sdk.Request) (caller, error) {
	e := exchangeOf(request.GetExtra())
	if e == nil || e.request == nil {
		return caller{}, errors.New("a call arrived without a verified token")
	}
	return caller{agent: e.agent, reachable: e.request, session: e.session, params: e.params}, nil
}

// track lets the HTTP response of a call be kept alive while the call runs, and
// not before or after.
func track(next sdk.MethodHandler) sdk.MethodHandler {
	return func(ctx context.Context, method string, request sdk.Request) (sdk.Result, error) {
		if e := exchangeOf(request.GetExtra()); e != nil {
			switch method {
			case toolMethod, "resources/read", "prompts/get", "completion/complete":
				e.response.waits()
				defer e.response.continues()
			case "subscriptions/listen":
				e.answered() // it lasts as long as its session
			}
		}
		return next(ctx, method, request)
	}
}

// hostAllowed refuses names of a loopback server that aren't its own: a page in
// a browser can have its own name resolved to the loopback.
func (h *Handler) hostAllowed(r *http.Request) bool {
	local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if !ok || !isLoopback(local.String()) || isLoopback(r.Host) {
		return true
	}
	return slices.ContainsFunc(h.options.Hosts, func(host string) bool {
		return strings.EqualFold(hostOf(host), hostOf(r.Host))
	})
}

func isLoopback(address string) bool {
	return loopback.Is(hostOf(address))
}

// hostOf is an address without its port.
func hostOf(address string) string {
	if host, _, err := net.SplitHostPort(address); err == nil {
		return host
	}
	return strings.Trim(address, "[]")
}
