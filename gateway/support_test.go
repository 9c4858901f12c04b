package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

const (
	legacy = "2025-11-25"
	modern = "2026-07-28"
)

// patience is how long a test waits for what comes in an instant.
const patience = 20 * time.Second

// exotic has what decoding to Go values would change: digits, the order of
// members, kinds of content that the SDK doesn't know.
const (
	exoticObject = `{"z":9007199254740993,"a":1e400,"m":0.10,"nested":{"y":[{"b":1,"a":2},-0.0],"x":{"2":1,"10":2,"1":3}},"text":"\u003c<&>é\u2028","none":null}`
	exoticResult = `{"structuredContent":` + exoticObject + `,"content":[{"type":"hologram","depth":1e400,"a":0},{"text":"t","type":"text"}],"isError":false,"zz":12345678901234567890,"_meta":{"b":1.50,"a":{"z":1,"y":2}}}`
	inputNeeded  = `{"resultType":"input_required","requestState":"sealed","inputRequests":{"q":{"params":{"requestedSchema":{"type":"object","properties":{"z":{"type":"string"},"a":{"type":"string"}}},"message":"Which?"},"method":"elicitation/create"}}}`
)

// testServer is a downstream server by the SDK, with tools that do what their
// names say.
type testServer struct {
	*sdk.Server
	waiting   chan string // gets the argument "id" of each call of wait when it starts
	cancelled chan string // and when it is cancelled
	release   chan struct{}
}

func newTestServer(version string) *testServer {
	s := &testServer{
		waiting:   make(chan string, 100),
		cancelled: make(chan string, 100),
		release:   make(chan struct{}),
	}
	s.Server = sdk.NewServer(&sdk.Implementation{Name: "test-downstream", Version: "1"}, &sdk.ServerOptions{
		SupportedProtocolVersions: []string{version},
		CompletionHandler: func(context.Context, *sdk.CompleteRequest) (*sdk.CompleteResult, error) {
			return &sdk.CompleteResult{Completion: sdk.CompletionResultDetails{Values: []string{"one"}}}, nil
		},
	})
	for name, handler := range map[string]sdk.ToolHandler{
		"echo":        s.echo,
		"exotic":      nil,
		"input":       nil,
		"fail":        s.fail,
		"count":       s.count,
		"wait":        s.wait,
		"ask":         s.ask,
		"grow":        s.grow,
		"environment": s.environment,
		"crash":       func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) { os.Exit(3); return nil, nil },
	} {
		s.AddTool(&sdk.Tool{Name: name, Description: "Does " + name, InputSchema: json.RawMessage(`{"type":"object"}`)}, handler)
	}
	s.AddResource(&sdk.Resource{URI: "test://one", Name: "one"}, func(context.Context, *sdk.ReadResourceRequest) (*sdk.ReadResourceResult, error) {
		return &sdk.ReadResourceResult{Contents: []*sdk.ResourceContents{{URI: "test://one", Text: "1"}}}, nil
	})
	s.AddResourceTemplate(&sdk.ResourceTemplate{URITemplate: "test://by/{id}", Name: "by"}, func(_ context.Context, r *sdk.ReadResourceRequest) (*sdk.ReadResourceResult, error) {
		return &sdk.ReadResourceResult{Contents: []*sdk.ResourceContents{{URI: r.Params.URI, Text: "by"}}}, nil
	})
	s.AddPrompt(&sdk.Prompt{Name: "greet"}, func(_ context.Context, r *sdk.GetPromptRequest) (*sdk.GetPromptResult, error) {
		return &sdk.GetPromptResult{Messages: []*sdk.PromptMessage{{Role: "user", Content: &sdk.TextContent{Text: "Hello, " + r.Params.Arguments["name"]}}}}, nil
	})
	s.AddReceivingMiddleware(func(next sdk.MethodHandler) sdk.MethodHandler {
		return func(ctx context.Context, method string, request sdk.Request) (sdk.Result, error) {
			if call, ok := request.(*sdk.CallToolRequest); ok {
				switch call.Params.Name {
				case "exotic":
					return &rawResult{raw: json.RawMessage(exoticResult)}, nil
				case "input":
					return &rawResult{raw: json.RawMessage(inputNeeded)}, nil
				}
			}
			return next(ctx, method, request)
		}
	})
	return s
}

func textResult(text string) *sdk.CallToolResult {
	return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: text}}}
}

// echo answers with the arguments as they arrived, and with the names in _meta.
func (s *testServer) echo(_ context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
	result := textResult(string(r.Params.Arguments))
	meta, err := json.Marshal(r.Params.Meta)
	if err != nil {
		return nil, err
	}
	result.Content = append(result.Content, &sdk.TextContent{Text: string(meta)})
	return result, nil
}

// fail answers with its arguments as an error.
func (s *testServer) fail(_ context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
	wire := new(jsonrpc.Error)
	if err := json.Unmarshal(r.Params.Arguments, wire); err != nil {
		return nil, err
	}
	return nil, wire
}

// count reports progress before it answers.
func (s *testServer) count(ctx context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
	for n := 1; n <= 5; n++ {
		if err := r.Session.NotifyProgress(ctx, &sdk.ProgressNotificationParams{
			ProgressToken: r.Params.GetProgressToken(), Progress: float64(n), Total: 5, Message: fmt.Sprint("step ", n),
		}); err != nil {
			return nil, err
		}
	}
	return textResult("counted"), nil
}

// wait ends when it is cancelled or released.
func (s *testServer) wait(ctx context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
	var arguments struct{ ID string }
	if err := json.Unmarshal(r.Params.Arguments, &arguments); err != nil {
		return nil, err
	}
	s.waiting <- arguments.ID
	fmt.Fprintln(os.Stderr, "waiting "+arguments.ID)
	select {
	case <-ctx.Done():
		s.cancelled <- arguments.ID
		fmt.Fprintln(os.Stderr, "cancelled "+arguments.ID)
		return nil, ctx.Err()
	case <-s.release:
		return textResult("released " + arguments.ID), nil
	}
}

// ask asks a person, and answers with what came back.
func (s *testServer) ask(ctx context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
	answer, err := r.Session.Elicit(ctx, &sdk.ElicitParams{
		Message:         "Which?",
		RequestedSchema: json.RawMessage(`{"type":"object","properties":{"zeta":{"type":"integer"},"alpha":{"type":"string"}}}`),
	})
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(answer)
	if err != nil {
		return nil, err
	}
	return textResult(string(text)), nil
}

// grow offers another tool.
func (s *testServer) grow(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
	s.AddTool(&sdk.Tool{Name: "grown", InputSchema: json.RawMessage(`{"type":"object"}`)}, s.echo)
	return textResult("grown"), nil
}

func (s *testServer) environment(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
	return textResult(strings.Join(os.Environ(), "\n")), nil
}

// serveChild is what a child does: it serves a version of the protocol, or
// misbehaves.
func serveChild(kind string) error {
	switch kind {
	case "deaf": // never answers and doesn't end when asked to
		signal.Ignore(syscall.SIGTERM)
		fmt.Fprintln(os.Stderr, "deaf")
		select {}
	case "stubborn": // serves, but doesn't end when asked to
		signal.Ignore(syscall.SIGTERM)
		reader, writer := io.Pipe()
		go func() { _, _ = io.Copy(writer, os.Stdin) }() // which leaves the pipe open
		return newTestServer(modern).Run(context.Background(), &sdk.IOTransport{Reader: reader, Writer: os.Stdout})
	default:
		return newTestServer(kind).Run(context.Background(), new(sdk.StdioTransport))
	}
}

// childConfiguration is this test binary as a downstream server.
func childConfiguration(t testing.TB, name, kind string) Server {
	t.Helper()
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return Server{Name: name, Command: []string{binary}, Env: map[string]string{childVariable: kind}}
}

// serveHTTP serves a server as its version wants it.
func serveHTTP(t testing.TB, server *testServer, version string) *httptest.Server {
	t.Helper()
	t.Cleanup(func() { // after the listener's: sessions that nobody has ended
		for session := range server.Sessions() {
			_ = session.Close()
		}
	})
	handler := sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return server.Server }, &sdk.StreamableHTTPOptions{
		Stateless:                    version >= modern,
		PropagateRequestCancellation: true,
		SessionTimeout:               time.Minute,
	})
	return listen(t, handler)
}

func listen(t testing.TB, handler http.Handler) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(handler)
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s
}

// logs keeps what is logged.
type logs struct {
	mu    sync.Mutex
	lines []string
	more  chan struct{} // closed and made anew at each line
}

func newLogs() *logs { return &logs{more: make(chan struct{})} }

func (l *logs) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, strings.TrimSpace(string(line)))
	close(l.more)
	l.more = make(chan struct{})
	return len(line), nil
}

func (l *logs) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
}

// count is how many lines have all the parts.
func (l *logs) count(parts ...string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, line := range l.lines {
		if !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(line, part) }) {
			n++
		}
	}
	return n
}

// await waits for the nth line that has all the parts.
func (l *logs) await(t testing.TB, n int, parts ...string) {
	t.Helper()
	limit := time.After(patience)
	for {
		l.mu.Lock()
		more := l.more
		l.mu.Unlock()
		if l.count(parts...) >= n {
			return
		}
		select {
		case <-more:
		case <-limit:
			t.Fatalf("not logged %d times: %q; but at last:\n%s", n, parts, strings.Join(l.lines[max(0, len(l.lines)-20):], "\n"))
		}
	}
}

const (
	upText   = "a downstream server is up"
	downText = "a downstream server is down"
)

// fixture is some downstream servers, connected.
type fixture struct {
	*downstreams
	logs *logs
	stop func() // disconnects all
}

// soon is how long a test waits between two attempts.
func soon(time.Duration) time.Duration { return 5 * time.Millisecond }

// start connects to servers, without waiting for it.
func start(t testing.TB, servers ...Server) *fixture {
	t.Helper()
	f := &fixture{logs: newLogs()}
	f.connect(t, soon, servers...)
	return f
}

func (f *fixture) connect(t testing.TB, jitter func(time.Duration) time.Duration, servers ...Server) {
	t.Helper()
	var err error
	f.downstreams, err = newDownstreams(servers, []string{"await_result"}, "test", jitter, f.logs.logger())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { f.run(ctx) })
	f.stop = sync.OnceFunc(func() {
		cancel()
		running.Wait()
	})
	t.Cleanup(f.stop)
}

// startAll connects to servers and waits until each is up.
func startAll(t testing.TB, servers ...Server) *fixture {
	t.Helper()
	f := start(t, servers...)
	for _, server := range servers {
		f.logs.await(t, 1, upText, "server="+server.Name)
	}
	return f
}

// kinds are the ways to a server, with which each test of what passes is run.
func eachKind(t *testing.T, test func(t *testing.T, version string, one Server, server *testServer)) {
	t.Helper()
	eachKindOf(t, []string{legacy, modern}, test)
}

func eachKindOf(t *testing.T, versions []string, test func(t *testing.T, version string, one Server, server *testServer)) {
	t.Helper()
	for _, version := range versions {
		t.Run("stdio/"+version, func(t *testing.T) {
			t.Parallel()
			test(t, version, childConfiguration(t, "one", version), nil)
		})
		t.Run("http/"+version, func(t *testing.T) {
			t.Parallel()
			server := newTestServer(version)
			test(t, version, Server{Name: "one", URL: serveHTTP(t, server, version).URL}, server)
		})
	}
}

func (f *fixture) tool(t testing.TB, name, arguments string) string {
	t.Helper()
	result, err := f.call(t.Context(), "one", methodCallTool, json.RawMessage(`{"name":"`+name+`","arguments":`+arguments+`}`), relay{})
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return string(result)
}

// texts are the texts of a result.
func texts(t testing.TB, result string) []string {
	t.Helper()
	var read struct{ Content []struct{ Text string } }
	if err := json.Unmarshal([]byte(result), &read); err != nil {
		t.Fatalf("%s: %v", result, err)
	}
	var all []string
	for _, content := range read.Content {
		all = append(all, content.Text)
	}
	return all
}

// receive returns what comes on a channel.
func receive[T any](t testing.TB, from <-chan T) T {
	t.Helper()
	select {
	case got := <-from:
		return got
	case <-time.After(patience):
		t.Fatal("nothing came")
		panic("unreachable")
	}
}

// requireKind checks that an error is of one kind and not the other.
func requireKind(t testing.TB, err, want error) {
	t.Helper()
	for _, kind := range []error{errUnavailable, errCutOff} {
		if errors.Is(err, kind) != (kind == want) {
			t.Fatalf("got %v, want %v", err, want)
		}
	}
}

// requireWire checks that an error is the one that a server answered with.
func requireWire(t testing.TB, err error, want string) {
	t.Helper()
	wire, ok := err.(*jsonrpc.Error)
	if !ok {
		t.Fatalf("got %v, want %s", err, want)
	}
	if got := fmt.Sprintf(`{"code":%d,"message":"%s","data":%s}`, wire.Code, wire.Message, wire.Data); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// standard is a log of the standard library's that goes to l.
func (l *logs) standard() *log.Logger { return log.New(l, "", 0) }

// answerRaw answers a method with a result as it is written.
func answerRaw(next sdk.MethodHandler, method, result string) sdk.MethodHandler {
	return func(ctx context.Context, called string, request sdk.Request) (sdk.Result, error) {
		if called == method {
			return &rawResult{raw: json.RawMessage(result)}, nil
		}
		return next(ctx, called, request)
	}
}
