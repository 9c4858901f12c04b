package mcp_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/approval/approvaltest"
	"github.com/countersign/countersign/mcp"
)

// waitBody is a call of await_approval on an era.
func waitBody(era string, id approval.ID) string {
	meta := ""
	if era == modern {
		meta = `,"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`
	}
	return `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"await_approval","arguments":` + byID(id) + meta + `}}`
}

// eraHeaders begins a session if the era has them, and returns what each call
// in it carries.
func eraHeaders(t testing.TB, s *httpServer, era, token string) map[string]string {
	t.Helper()
	if era == modern {
		return modernHeaders(token, "tools/call", "await_approval")
	}
	begun := post(t, s, initializeBody, map[string]string{"Authorization": "Bearer " + token})
	_ = bodyOf(t, begun)
	return map[string]string{"Authorization": "Bearer " + token, "Mcp-Session-Id": begun.Header.Get("Mcp-Session-Id"), "Mcp-Protocol-Version": legacy}
}

// A waiting answer begins before there is anything to say, so that neither a
// proxy nor a client gives up on it.
func TestWaitingAnswerBeginsBeforeItsFirstEvent(t *testing.T) {
	t.Parallel()
	for _, era := range []string{legacy, modern} {
		t.Run(era, func(t *testing.T) {
			t.Parallel()
			f := approvaltest.New(t)
			s := serveHTTP(t, f, newLocal(t, f, mcp.MaxAwaitBound), mcp.HandlerOptions{})
			r := f.Propose(t)
			// Do returns with the header, and the first line is read, while
			// nothing has been decided.
			response := post(t, s, waitBody(era, r.ID), eraHeaders(t, s, era, s.token(t, f.Agent.Name)))
			if got := response.Header.Get("Content-Type"); response.StatusCode != http.StatusOK || got != "text/event-stream" {
				t.Fatalf("%s, %s", response.Status, got)
			}
			if got := response.Header.Get("X-Accel-Buffering"); got != "no" {
				t.Errorf("X-Accel-Buffering is %q; proxies would keep the answer back", got)
			}
			lines := bufio.NewReader(response.Body)
			line, err := lines.ReadString('\n')
			if err != nil || line != ": waiting\n" {
				t.Fatalf("first line %q, %v", line, err)
			}
			f.Decide(t, approvaltest.Alice, r, approval.Approve)
			rest, err := io.ReadAll(lines)
			if err != nil || !bytes.Contains(rest, []byte(`"structuredContent":{"status":"approved"}`)) {
				t.Errorf("then %q, %v", rest, err)
			}
		})
	}
}

// What is wrong with a call still gets its own HTTP status.
func TestEarlyErrorsKeepTheirStatus(t *testing.T) {
	t.Parallel()
	f := approvaltest.New(t)
	s := serveHTTP(t, f, newLocal(t, f, 0), mcp.HandlerOptions{})
	token := s.token(t, f.Agent.Name)
	body := strings.ReplaceAll(waitBody(modern, "x"), "await_approval", "no_such_tool")
	if response := post(t, s, body, modernHeaders(token, "tools/call", "no_such_tool")); response.StatusCode != http.StatusBadRequest {
		t.Errorf("an unknown tool: %s", response.Status)
	}
	body = strings.ReplaceAll(discoverBody, "server/discover", "no/such")
	if response := post(t, s, body, modernHeaders(token, "no/such", "")); response.StatusCode != http.StatusNotFound {
		t.Errorf("an unknown method: %s", response.Status)
	}
	if response := post(t, s, waitBody(modern, "x"), modernHeaders(token, "tools/call", "apply")); response.StatusCode != http.StatusBadRequest {
		t.Errorf("a header that says something else: %s", response.Status)
	}
}

func TestWaitEndsWhenTheClientDisconnects(t *testing.T) {
	t.Parallel()
	for _, era := range []string{legacy, modern} {
		t.Run(era, func(t *testing.T) {
			t.Parallel()
			f := approvaltest.New(t)
			logger, messages := logged()
			s := serveHTTP(t, f, newLocal(t, f, mcp.MaxAwaitBound), mcp.HandlerOptions{Options: mcp.Options{Logger: logger}})
			r := f.Propose(t)
			response := post(t, s, waitBody(era, r.ID), eraHeaders(t, s, era, s.token(t, f.Agent.Name)))
			if line, err := bufio.NewReader(response.Body).ReadString('\n'); err != nil {
				t.Fatalf("%q, %v", line, err)
			}
			_ = response.Body.Close() // an unread body closes the connection
			receiveMessage(t, messages, "a caller went away")
			checkUntouched(t, f, r.ID)
		})
	}
}

func TestWaitingEndsAsPendingWhenTheHandlerCloses(t *testing.T) {
	t.Parallel()
	for name, stop := range map[string]func(*httpServer){
		"drain": func(s *httpServer) { s.fixture.Service.Drain() },
		"close": func(s *httpServer) { s.handler.Close() },
	} {
		for _, era := range []string{legacy, modern} {
			t.Run(name+"/"+era, func(t *testing.T) {
				t.Parallel()
				f := approvaltest.New(t)
				s := serveHTTP(t, f, newLocal(t, f, mcp.MaxAwaitBound), mcp.HandlerOptions{})
				r := f.Propose(t)
				headers := eraHeaders(t, s, era, s.token(t, f.Agent.Name))
				response := post(t, s, waitBody(era, r.ID), headers)
				stop(s)
				if text := bodyOf(t, response); !strings.Contains(text, `"structuredContent":{"status":"pending"}`) {
					t.Errorf("got %q", text)
				}
				checkUntouched(t, f, r.ID)
				if name == "close" {
					if response := post(t, s, waitBody(era, r.ID), headers); response.StatusCode != http.StatusServiceUnavailable {
						t.Errorf("after Close: %s", response.Status)
					}
				}
			})
		}
	}
}

// A shutdown ends even with open event streams and waiting calls, and each
// waiting call is answered.
func TestShutdown(t *testing.T) {
	t.Parallel()
	f := approvaltest.New(t)
	s := serveHTTP(t, f, newLocal(t, f, mcp.MaxAwaitBound), mcp.HandlerOptions{})
	var waits []<-chan awaited
	for _, version := range []string{legacy, modern, legacy} {
		session := connect(t, s.transport(t, s.token(t, f.Agent.Name)), version, nil)
		id := asked(t, session)
		waits = append(waits, await(t.Context(), session, id, "token"))
	}
	f.Service.Drain()
	s.handler.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := s.Config.Shutdown(ctx); err != nil {
		t.Errorf("Shutdown: %v", err)
	}
	for _, done := range waits {
		// A call that had not arrived yet may be turned away, and none is
		// answered with anything but pending.
		if got := receive(t, done, "a waiting call"); got.err == nil && got.status != `{"status":"pending"}` {
			t.Errorf("got %+v", got)
		}
	}
}

// restartable is a server that can be stopped and started anew on its address.
type restartable struct {
	fixture *approvaltest.Fixture
	local   *mcp.Local
	address string
	handler *mcp.Handler
	server  *http.Server
	served  chan error
}

func newRestartable(t *testing.T, f *approvaltest.Fixture) *restartable {
	t.Helper()
	r := &restartable{fixture: f, local: newLocal(t, f, mcp.MaxAwaitBound), address: "127.0.0.1:0"}
	r.start(t)
	t.Cleanup(r.kill)
	return r
}

func (r *restartable) start(t *testing.T) {
	t.Helper()
	listener, err := net.Listen("tcp", r.address)
	if err != nil {
		t.Fatal(err)
	}
	r.address = listener.Addr().String()
	r.handler = mcp.NewHandler(r.local, mcp.HandlerOptions{Options: mcp.Options{Now: r.fixture.Clock.Now}})
	r.server = &http.Server{Handler: r.handler, ReadHeaderTimeout: time.Minute}
	r.served = make(chan error, 1)
	go func() { r.served <- r.server.Serve(listener) }()
}

// kill cuts all connections off, as the end of a process does.
func (r *restartable) kill() {
	_ = r.server.Close()
	<-r.served
	r.handler.Close()
	r.served <- nil
}

func TestRestartBetweenCalls(t *testing.T) {
	t.Parallel()
	for _, era := range []string{legacy, modern} {
		t.Run(era, func(t *testing.T) {
			t.Parallel()
			f := approvaltest.New(t)
			r := newRestartable(t, f)
			_, token, err := f.Service.CreateToken(t.Context(), approval.Operator{Name: "test"}, f.Agent.Name, approval.Approver{})
			if err != nil {
				t.Fatal(err)
			}
			transport := func() sdk.Transport {
				client := &http.Client{Transport: &bearer{token: token, next: http.DefaultTransport.(*http.Transport).Clone()}}
				t.Cleanup(client.CloseIdleConnections)
				return &sdk.StreamableClientTransport{Endpoint: "http://" + r.address, HTTPClient: client, MaxRetries: -1, DisableStandaloneSSE: true}
			}
			session := connect(t, transport(), era, nil)
			id := asked(t, session)
			done := await(t.Context(), session, id, "token")
			r.kill()
			if got := receive(t, done, "the cut-off call"); got.err == nil && got.status != `{"status":"pending"}` {
				t.Errorf("the cut-off call: %+v", got)
			}
			r.start(t)
			decide(t, f, id, approval.Approve, "")
			if era == legacy {
				// A session ends with its server, and the client is told so.
				_, err := session.CallTool(t.Context(), &sdk.CallToolParams{Name: "await_approval", Arguments: map[string]any{"elicitationId": id}})
				if !errors.Is(err, sdk.ErrSessionMissing) {
					t.Errorf("a call in the old session: %v", err)
				}
				session = connect(t, transport(), era, nil)
			}
			if got := succeed(t, session, "await_approval", byID(id)); got != `{"status":"approved"}` {
				t.Errorf("await_approval: %s", got)
			}
			succeed(t, session, "apply", byID(id))
		})
	}
}
