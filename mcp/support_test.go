package mcp_test

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/approval/approvaltest"
	"github.com/countersign/countersign/mcp"
)

const reviewBase = "https://countersign.example/review?elicitationId="

func reviewURL(id approval.ID) string { return reviewBase + string(id) }

// newLocal is the flow over a fixture, on the fixture's clock.
func newLocal(t testing.TB, f *approvaltest.Fixture, bound time.Duration) *mcp.Local {
	t.Helper()
	local, err := mcp.NewLocal(f.Service, mcp.LocalOptions{ReviewURL: reviewURL, AwaitBound: bound, Now: f.Clock.Now})
	if err != nil {
		t.Fatal(err)
	}
	return local
}

// logged is a logger that passes each message on; what nobody takes is dropped.
func logged() (*slog.Logger, <-chan string) {
	messages := make(chan string, 1000)
	return slog.New(messageHandler(messages)), messages
}

type messageHandler chan<- string

func (messageHandler) Enabled(context.Context, slog.Level) bool { return true }
func (m messageHandler) WithAttrs([]slog.Attr) slog.Handler     { return m }
func (m messageHandler) WithGroup(string) slog.Handler          { return m }
func (m messageHandler) Handle(_ context.Context, record slog.Record) error {
	select {
	case m <- record.Message:
	default:
	}
	return nil
}

// receive waits for a value; the deadline is for a test that fails.
func receive[T any](t testing.TB, from <-chan T, what string) T {
	t.Helper()
	select {
	case value := <-from:
		return value
	case <-time.After(20 * time.Second):
		t.Fatalf("waited in vain for %s", what)
		panic("unreachable")
	}
}

// receiveMessage waits for a message of a logger.
func receiveMessage(t testing.TB, from <-chan string, want string) {
	t.Helper()
	for receive(t, from, "the message "+want) != want {
	}
}

// legacy and modern are a protocol with sessions and the one without.
const (
	legacy = "2025-11-25"
	modern = "2026-07-28"
)

// pipe is one direction of a stdio connection.
type pipe struct {
	*io.PipeReader
	*io.PipeWriter
}

func newPipe() pipe {
	r, w := io.Pipe()
	return pipe{r, w}
}

// stdio is a ServeStdio in this process.
type stdio struct {
	in, out pipe       // the server's
	ended   chan error // what ServeStdio returned
	stop    context.CancelFunc
}

// serveStdio runs ServeStdio until the test ends, which must be clean.
func serveStdio(t testing.TB, flow mcp.Flow, agent approval.Agent, options mcp.Options) *stdio {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	s := &stdio{in: newPipe(), out: newPipe(), ended: make(chan error, 1), stop: stop}
	go func() { s.ended <- mcp.ServeStdio(ctx, flow, agent, s.in.PipeReader, s.out.PipeWriter, options) }()
	t.Cleanup(func() {
		stop()
		if err := <-s.ended; err != nil {
			t.Errorf("ServeStdio: %v", err)
		}
	})
	return s
}

// transport is the client's end.
func (s *stdio) transport() sdk.Transport {
	return &sdk.IOTransport{Reader: s.out.PipeReader, Writer: s.in.PipeWriter}
}

// connect connects the SDK's client, speaking the given protocol version.
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

// httpServer is a Handler that listens.
type httpServer struct {
	*httptest.Server
	handler *mcp.Handler
	fixture *approvaltest.Fixture
}

// serveHTTP runs a Handler until the test ends.
func serveHTTP(t testing.TB, f *approvaltest.Fixture, local *mcp.Local, options mcp.HandlerOptions) *httpServer {
	t.Helper()
	if options.Now == nil {
		options.Now = f.Clock.Now
	}
	handler := mcp.NewHandler(local, options)
	s := &httpServer{Server: httptest.NewServer(handler), handler: handler, fixture: f}
	t.Cleanup(func() {
		handler.Close()
		s.Server.Close()
	})
	return s
}

// token makes a token for an agent.
func (s *httpServer) token(t testing.TB, agent string) string {
	t.Helper()
	_, secret, err := s.fixture.Service.CreateToken(t.Context(), approval.Operator{Name: "test"}, agent, approval.Approver{})
	if err != nil {
		t.Fatal(err)
	}
	return secret
}

// transport is a client's end, for an agent of that token.
func (s *httpServer) transport(t testing.TB, token string) *sdk.StreamableClientTransport {
	t.Helper()
	client := &http.Client{Transport: &bearer{token: token, next: s.Client().Transport.(*http.Transport).Clone()}}
	t.Cleanup(client.CloseIdleConnections)
	return &sdk.StreamableClientTransport{Endpoint: s.URL, HTTPClient: client, MaxRetries: -1}
}

// bearer adds a token to requests.
type bearer struct {
	token string
	next  *http.Transport
}

func (b *bearer) RoundTrip(request *http.Request) (*http.Response, error) {
	request = request.Clone(request.Context())
	request.Header.Set("Authorization", "Bearer "+b.token)
	return b.next.RoundTrip(request)
}

func (b *bearer) CloseIdleConnections() { b.next.CloseIdleConnections() }

// call calls a tool with arguments as they are.
func call(t testing.TB, session *sdk.ClientSession, tool, arguments string) *sdk.CallToolResult {
	t.Helper()
	result, err := session.CallTool(t.Context(), &sdk.CallToolParams{Name: tool, Arguments: json.RawMessage(arguments)})
	if err != nil {
		t.Fatalf("%s: %v", tool, err)
	}
	return result
}

// succeed is call of which the result must not be an error; it returns the
// JSON in its first text.
func succeed(t testing.TB, session *sdk.ClientSession, tool, arguments string) string {
	t.Helper()
	result := call(t, session, tool, arguments)
	if result.IsError {
		t.Fatalf("%s failed: %s", tool, textOf(t, result, 0))
	}
	return textOf(t, result, 0)
}

// refused is call of which the result must be an error; it returns its text.
func refused(t testing.TB, session *sdk.ClientSession, tool, arguments string) string {
	t.Helper()
	result := call(t, session, tool, arguments)
	if !result.IsError {
		t.Fatalf("%s succeeded: %s", tool, textOf(t, result, 0))
	}
	if result.StructuredContent != nil || len(result.Content) != 1 {
		t.Errorf("%s: a failure has more than its text: %+v", tool, result)
	}
	return textOf(t, result, 0)
}

func textOf(t testing.TB, result *sdk.CallToolResult, at int) string {
	t.Helper()
	if len(result.Content) <= at {
		t.Fatalf("the result has %d texts, want more than %d", len(result.Content), at)
	}
	text, ok := result.Content[at].(*sdk.TextContent)
	if !ok {
		t.Fatalf("content %d is a %T", at, result.Content[at])
	}
	return text.Text
}

// asked asks for approval of a small payload and returns the id.
func asked(t testing.TB, session *sdk.ClientSession) approval.ID {
	t.Helper()
	return idIn(t, succeed(t, session, "request_approval", `{"purpose":"Delete 214 inactive customer records","payload":{"table":"customers"}}`))
}

func idIn(t testing.TB, text string) approval.ID {
	t.Helper()
	var out struct{ ElicitationID approval.ID }
	if err := json.Unmarshal([]byte(text), &out); err != nil || !out.ElicitationID.Valid() {
		t.Fatalf("no request id in %s (%v)", text, err)
	}
	return out.ElicitationID
}

// byID are the arguments of the tools that take an id.
func byID(id approval.ID) string { return `{"elicitationId":"` + string(id) + `"}` }

// decide has Alice decide.
func decide(t testing.TB, f *approvaltest.Fixture, id approval.ID, verdict approval.Verdict, reason string) {
	t.Helper()
	r, err := f.Service.Status(t.Context(), f.Agent, id)
	if err != nil {
		t.Fatal(err)
	}
	ballot := approvaltest.Ballot(r, verdict)
	ballot.Reason = reason
	if _, err := f.Service.Decide(t.Context(), approvaltest.Alice, ballot); err != nil {
		t.Fatal(err)
	}
}
