package gateway

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/approval/approvaltest"
	"github.com/countersign/countersign/mcp"
)

// worldPolicy rules the servers of a world by their names: calls of free ones run,
// of soft ones may be confirmed in the client, of hard ones wait for people, and
// of blocked ones never run.
const worldPolicy = `
version: 1
mode: cautious
roles: {finance: {users: [U0ALICE, U0BOB]}}
approval: {requires: [{role: finance}]}
limits: {pending: 1000000, per_minute: 1000000, cooldown: 0s}
environments: {staging: {}}
in_band: {tiers: [3], environments: [staging]}
block: [{id: never, actions: ["blocked.*"], why: "Agents don't do this."}]
tiers: {3: {scopes: [once, session, 15m]}}
integrations:
  free: {tools: {"*": {tier: 1}}}
  soft: {tools: {"*": {tier: 3, target: 'string(args.id)'}}}
  hard: {tools: {"*": {tier: 4, idempotency: key}}}
  worst: {tools: {"*": {tier: 5}}}
`

// arrived is a call that a downstream server got.
type arrived struct{ tool, arguments string }

// recorder notes the calls that a server gets.
type recorder struct {
	mu    sync.Mutex
	calls []arrived
}

func (r *recorder) middleware(next sdk.MethodHandler) sdk.MethodHandler {
	return func(ctx context.Context, method string, request sdk.Request) (sdk.Result, error) {
		if call, ok := request.(*sdk.CallToolRequest); ok {
			r.mu.Lock()
			r.calls = append(r.calls, arrived{call.Params.Name, string(call.Params.Arguments)})
			r.mu.Unlock()
		}
		return next(ctx, method, request)
	}
}

// got are the calls, in order.
func (r *recorder) got() []arrived {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.calls)
}

// world is a gateway with all that it stands between.
type world struct {
	*approvaltest.Fixture
	*recorder
	gateway    *Gateway
	logs       *logs
	downstream *testServer
	local      *mcp.Local
	stop       func() // ends the gateway's Run
	wire       *wire
}

// worldOptions are what a test may change.
type worldOptions struct {
	policy    string
	servers   []string // names; the policy says what they are
	version   string   // of the downstream protocol
	options   func(*Options)
	configure func(*Server)
	prepare   func(*testServer)
	gateway   func(*Gateway)
	fixture   *approvaltest.Fixture // to go on with
	server    *testServer           // to go on with
}

// testBound is how long a waiting call waits in tests: no test waits for it to
// end but those of that.
const testBound = 20 * time.Second

// newWorld makes a gateway to one downstream server, which it knows under one or
// several names.
func newWorld(t testing.TB, o worldOptions) *world {
	t.Helper()
	if o.policy == "" {
		o.policy = worldPolicy
	}
	if o.version == "" {
		o.version = modern
	}
	w := &world{Fixture: o.fixture, recorder: new(recorder), logs: newLogs(), downstream: o.server}
	if w.Fixture == nil {
		w.Fixture = approvaltest.New(t, func(settings *approval.Options) { settings.Policy = approvaltest.ParsePolicy(t, o.policy) })
	}
	if w.downstream == nil {
		w.downstream = newTestServer(o.version)
	}
	if o.prepare != nil {
		o.prepare(w.downstream)
	}
	w.downstream.AddReceivingMiddleware(w.middleware)
	w.wire = newWire(t, w.downstream, o.version)
	address := w.wire.URL
	var servers []Server
	for _, name := range o.servers {
		server := Server{Name: name, URL: address, Environment: "staging"}
		if o.configure != nil {
			o.configure(&server)
		}
		servers = append(servers, server)
	}
	options := Options{
		ReviewURL: reviewURL,
		Load:      w.Store.Request,
		StateKey:  bytes.Repeat([]byte{7}, 32),
		Now:       w.Clock.Now,
		Logger:    w.logs.logger(),
		HoldBound: testBound, AwaitBound: testBound,
	}
	if o.options != nil {
		o.options(&options)
	}
	var err error
	if w.gateway, err = New(w.Service, servers, options); err != nil {
		t.Fatal(err)
	}
	w.gateway.grace = 50 * time.Millisecond
	for _, c := range w.gateway.downstreams.connections {
		c.jitter = soon
	}
	if o.gateway != nil {
		o.gateway(w.gateway)
	}
	if w.local, err = mcp.NewLocal(w.Service, mcp.LocalOptions{ReviewURL: reviewURL, AwaitBound: testBound, Now: w.Clock.Now}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { w.gateway.Run(ctx) })
	w.stop = sync.OnceFunc(func() {
		cancel()
		running.Wait()
	})
	t.Cleanup(w.stop)
	for _, name := range o.servers {
		w.logs.await(t, 1, upText, "server="+name)
	}
	return w
}

// wire is the way to a downstream server, which can be cut.
type wire struct {
	*httptest.Server
	isCut atomic.Bool
}

func newWire(t testing.TB, server *testServer, version string) *wire {
	t.Helper()
	handler := sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return server.Server }, &sdk.StreamableHTTPOptions{
		Stateless:                    version >= modern,
		PropagateRequestCancellation: true,
		SessionTimeout:               time.Minute,
	})
	w := new(wire)
	w.Server = listen(t, http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		if w.isCut.Load() {
			http.Error(out, "busy", http.StatusTooManyRequests) // which says that nothing ran
			return
		}
		handler.ServeHTTP(out, r)
	}))
	return w
}

// cut has the server answer nothing more, until mend.
func (w *wire) cut()  { w.isCut.Store(true); w.CloseClientConnections() }
func (w *wire) mend() { w.isCut.Store(false) }

func reviewURL(id approval.ID) string {
	return "https://countersign.example/review?elicitationId=" + string(id)
}

func (w *world) mcpOptions() mcp.Options {
	return mcp.Options{Gateway: w.gateway, Now: w.Clock.Now, Logger: w.logs.logger()}
}

// door is the gateway over HTTP.
type door struct {
	*httptest.Server
	world *world
}

func (w *world) listen(t testing.TB) *door {
	t.Helper()
	handler := mcp.NewHandler(w.local, mcp.HandlerOptions{Options: w.mcpOptions()})
	s := httptest.NewServer(handler)
	t.Cleanup(func() {
		handler.Close()
		s.CloseClientConnections()
		s.Close()
	})
	return &door{s, w}
}

// transport is an agent's way in.
func (d *door) transport(t testing.TB, agent string) sdk.Transport {
	t.Helper()
	return &sdk.StreamableClientTransport{Endpoint: d.URL, HTTPClient: d.client(t, agent), MaxRetries: -1}
}

func (d *door) client(t testing.TB, agent string) *http.Client {
	t.Helper()
	_, secret, err := d.world.Service.CreateToken(t.Context(), approval.Operator{Name: "test"}, agent, approval.Approver{})
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &bearer{secret, http.DefaultTransport.(*http.Transport).Clone()}}
	t.Cleanup(client.CloseIdleConnections)
	return client
}

type bearer struct {
	secret string
	*http.Transport
}

func (b *bearer) RoundTrip(request *http.Request) (*http.Response, error) {
	request = request.Clone(request.Context())
	request.Header.Set("Authorization", "Bearer "+b.secret)
	return b.Transport.RoundTrip(request)
}

// stdio serves the gateway over pipes and returns the client's end.
func (w *world) stdio(t testing.TB) sdk.Transport {
	t.Helper()
	in, toServer := io.Pipe()
	fromServer, out := io.Pipe()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- mcp.ServeStdio(ctx, w.local, w.Agent, in, out, w.mcpOptions()) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("ServeStdio: %v", err)
		}
	})
	return &sdk.IOTransport{Reader: fromServer, Writer: toServer}
}

// connect connects the SDK's client.
func connect(t testing.TB, transport sdk.Transport, version string, options *sdk.ClientOptions) *sdk.ClientSession {
	t.Helper()
	client := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, options)
	session, err := client.Connect(t.Context(), transport, &sdk.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = session.Close() })
	if got := session.InitializeResult().ProtocolVersion; got != version {
		t.Fatalf("negotiated %s, want %s", got, version)
	}
	return session
}

// everyDoor runs a test over each way in and each era of the protocol.
func everyDoor(t *testing.T, o worldOptions, run func(t *testing.T, w *world, reach func(*sdk.ClientOptions) *sdk.ClientSession)) {
	t.Helper()
	for _, version := range []string{legacy, modern} {
		for _, kind := range []string{"http", "stdio"} {
			t.Run(kind+"/"+version, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, o)
				run(t, w, func(options *sdk.ClientOptions) *sdk.ClientSession {
					if kind == "stdio" {
						return connect(t, w.stdio(t), version, options)
					}
					return connect(t, w.listen(t).transport(t, w.Agent.Name), version, options)
				})
			})
		}
	}
}

// ask calls a tool with arguments as they are.
func ask(t testing.TB, session *sdk.ClientSession, tool, arguments string) *sdk.CallToolResult {
	t.Helper()
	result, err := session.CallTool(t.Context(), &sdk.CallToolParams{Name: tool, Arguments: json.RawMessage(arguments)})
	if err != nil {
		t.Fatalf("%s: %v", tool, err)
	}
	return result
}

// firstText is the first text of a result.
func firstText(t testing.TB, result *sdk.CallToolResult) string {
	t.Helper()
	if len(result.Content) == 0 {
		t.Fatalf("no content in %+v", result)
	}
	content, ok := result.Content[0].(*sdk.TextContent)
	if !ok {
		t.Fatalf("the content is a %T", result.Content[0])
	}
	return content.Text
}

// requirePending checks that a call waits and returns its request.
func (w *world) requirePending(t testing.TB, result *sdk.CallToolResult) *approval.Request {
	t.Helper()
	facts, ok := result.Meta[metaRequest].(map[string]any)
	if !ok || facts["status"] != "pending_approval" {
		t.Fatalf("the call doesn't wait: %+v %s", result, firstText(t, result))
	}
	return w.load(t, approval.ID(facts["requestId"].(string)))
}

func (w *world) load(t testing.TB, id approval.ID) *approval.Request {
	t.Helper()
	r, err := w.Store.Request(t.Context(), id)
	if err != nil {
		t.Fatalf("loading %q: %v", id, err)
	}
	return r
}

// only is the one request that there is.
func (w *world) only(t testing.TB) *approval.Request {
	t.Helper()
	all := w.all(t)
	if len(all) != 1 {
		t.Fatalf("there are %d requests, want 1", len(all))
	}
	return all[0]
}

// find is the one request for an action with a payload.
func (w *world) find(t testing.TB, action, payload string) *approval.Request {
	t.Helper()
	var found []*approval.Request
	for _, r := range w.all(t) {
		if r.Action == action && string(r.Payload) == payload {
			found = append(found, r)
		}
	}
	if len(found) != 1 {
		t.Fatalf("there are %d requests for %s with %s, want 1", len(found), action, payload)
	}
	return found[0]
}

func (w *world) all(t testing.TB) []*approval.Request {
	t.Helper()
	all, err := w.Store.Recorded(t.Context(), 1000)
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range all {
		all[i] = w.load(t, r.ID)
	}
	return all
}

// settled waits until something is known of what came of a request.
func (w *world) settled(t testing.TB, id approval.ID) *approval.Request {
	t.Helper()
	r := w.load(t, id)
	r, err := w.Service.AwaitRun(t.Context(), approval.Agent{Name: r.Agent, Owner: r.ActsFor}, id, patience)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// requireCalls checks which calls the downstream server got.
func (w *world) requireCalls(t testing.TB, want ...arrived) {
	t.Helper()
	if got := w.got(); !slices.Equal(got, want) {
		t.Errorf("the downstream server got %v, want %v", got, want)
	}
}

// requireOutcome checks what is recorded of a run.
func requireOutcome(t testing.TB, r *approval.Request, want approval.Outcome, detail string) {
	t.Helper()
	switch {
	case r.Status != approval.Applied || r.Execution == nil || r.Execution.FinishedAt.IsZero():
		t.Errorf("%s is %s with %+v, want it to have run", r.ID, r.Status, r.Execution)
	case r.Execution.Outcome != want || !strings.Contains(r.Execution.Detail, detail):
		t.Errorf("%s is %s %q, want %s %q", r.ID, r.Execution.Outcome, r.Execution.Detail, want, detail)
	}
}

// accepting is a client that accepts whatever it is asked, and fills in forms so
// that they say yes.
func accepting(asked *[]*sdk.ElicitParams) *sdk.ClientOptions {
	return answering("accept", map[string]any{"approve": true}, asked)
}

// answering is a client with forms and links that always gives the same answer.
func answering(action string, content map[string]any, asked *[]*sdk.ElicitParams) *sdk.ClientOptions {
	var mu sync.Mutex
	return &sdk.ClientOptions{
		Capabilities: &sdk.ClientCapabilities{Elicitation: &sdk.ElicitationCapabilities{
			Form: &sdk.FormElicitationCapabilities{}, URL: &sdk.URLElicitationCapabilities{},
		}},
		ElicitationHandler: func(_ context.Context, r *sdk.ElicitRequest) (*sdk.ElicitResult, error) {
			mu.Lock()
			defer mu.Unlock()
			if asked != nil {
				*asked = append(*asked, r.Params)
			}
			if r.Params.Mode == "url" {
				return &sdk.ElicitResult{Action: action}, nil
			}
			return &sdk.ElicitResult{Action: action, Content: content}, nil
		},
	}
}

// hand is a client by hand over HTTP, which sends exactly what it is given and
// keeps exactly what it gets.
type hand struct {
	t       testing.TB
	url     string
	client  *http.Client
	version string
	can     string // the client's capabilities
	session string
	next    int
}

func (d *door) byHand(t testing.TB, agent, version, can string) *hand {
	t.Helper()
	h := &hand{t: t, url: d.URL, client: d.client(t, agent), version: version, can: can}
	if version < modern {
		if _, err := h.rpc("initialize", `{"protocolVersion":"`+version+`","capabilities":`+can+`,"clientInfo":{"name":"hand","version":"1"}}`, ""); err != nil {
			t.Fatal(err)
		}
	}
	return h
}

// tool calls a tool; more are members of the parameters besides its name and
// arguments, such as `,"requestState":"x"`.
func (h *hand) tool(name, arguments, more string) (json.RawMessage, error) {
	return h.rpc(methodCallTool, `{"name":"`+name+`","arguments":`+arguments+more+`}`, name)
}

// must is tool of which the answer must be a result.
func (h *hand) must(name, arguments, more string) json.RawMessage {
	h.t.Helper()
	result, err := h.tool(name, arguments, more)
	if err != nil {
		h.t.Fatalf("%s: %v", name, err)
	}
	return result
}

// rpc returns the result of a request; an error that it is answered with is an
// error.
func (h *hand) rpc(method, params, name string) (json.RawMessage, error) {
	h.next++
	if h.version >= modern {
		meta := `"_meta":{"io.modelcontextprotocol/protocolVersion":"` + h.version + `","io.modelcontextprotocol/clientCapabilities":` + h.can + `}`
		if params == "{}" {
			params = "{" + meta + "}"
		} else {
			params = strings.TrimSuffix(params, "}") + "," + meta + "}"
		}
	}
	message := fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`, h.next, method, params)
	request, err := http.NewRequestWithContext(h.t.Context(), http.MethodPost, h.url, strings.NewReader(message))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Accept", "application/json, text/event-stream")
	request.Header.Set("Mcp-Protocol-Version", h.version)
	if h.session != "" {
		request.Header.Set("Mcp-Session-Id", h.session)
	}
	if h.version >= modern {
		request.Header.Set("Mcp-Method", method)
		if name != "" {
			request.Header.Set("Mcp-Name", name)
		}
	}
	response, err := h.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	if id := response.Header.Get("Mcp-Session-Id"); id != "" {
		h.session = id
	}
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	if strings.HasPrefix(response.Header.Get("Content-Type"), "text/event-stream") {
		lines := bufio.NewScanner(bytes.NewReader(body))
		lines.Buffer(nil, 64<<20)
		for lines.Scan() {
			if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok && strings.Contains(data, fmt.Sprintf(`"id":%d`, h.next)) {
				body = []byte(data)
			}
		}
	}
	var answer struct {
		Result json.RawMessage
		Error  json.RawMessage
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return nil, fmt.Errorf("%s: %q: %w", response.Status, body, err)
	}
	if answer.Error != nil {
		return nil, errors.New(string(answer.Error))
	}
	return answer.Result, nil
}
