package gateway

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// slow is a server with sessions that answers calls only when it is told to, and
// asks a question when it is told to.
type slow struct {
	answers chan string // of the client, to questions

	mu    sync.Mutex
	far   io.ReadWriteCloser
	calls []json.RawMessage // their ids
	asked int
}

func newSlow() *slow { return &slow{answers: make(chan string, 1)} }

func (s *slow) serve(far io.ReadWriteCloser) {
	defer func() { _ = far.Close() }()
	s.mu.Lock()
	s.far = far
	s.mu.Unlock()
	for lines := bufio.NewScanner(far); lines.Scan(); {
		var message struct {
			envelope
			Result json.RawMessage
		}
		if err := json.Unmarshal(lines.Bytes(), &message); err != nil {
			return
		}
		answer := modest(message.Method, nil)
		switch {
		case message.ID == nil:
			continue
		case message.Method == "":
			s.answers <- string(message.Result)
			continue
		case message.Method == methodCallTool:
			s.mu.Lock()
			s.calls = append(s.calls, message.ID)
			s.mu.Unlock()
			continue
		case message.Method == "server/discover":
			answer = `"error":{"code":-32601,"message":"no such method"}`
		case message.Method == "initialize":
			answer = `"result":{"protocolVersion":"` + legacy + `","capabilities":{"tools":{}},"serverInfo":{"name":"slow","version":"1"}}`
		}
		if _, err := fmt.Fprintf(far, `{"jsonrpc":"2.0","id":%s,%s}`+"\n", message.ID, answer); err != nil {
			return
		}
	}
}

// ask has the server ask something, and returns what it is told.
func (s *slow) ask(t *testing.T) string {
	t.Helper()
	s.mu.Lock()
	s.asked++
	_, err := fmt.Fprintf(s.far, `{"jsonrpc":"2.0","id":"q%d","method":"elicitation/create","params":{"message":"Which?","requestedSchema":{"type":"object","properties":{}}}}`+"\n", s.asked)
	s.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	return receive(t, s.answers)
}

// answer answers the nth call.
func (s *slow) answer(t *testing.T, n int) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := fmt.Fprintf(s.far, `{"jsonrpc":"2.0","id":%s,"result":{"content":[]}}`+"\n", s.calls[n]); err != nil {
		t.Fatal(err)
	}
}

// A question may be of a call that was given up, until the server has answered
// that call or the connection has ended: it never reaches the next caller.
func TestQuestionsOfCallsThatWereGivenUp(t *testing.T) {
	t.Parallel()
	const cancelled, declined = `{"action":"cancel"}`, `{"action":"decline"}`
	server := newSlow()
	inBubble(t, func(c *connection) { pipe(c, server.serve) }, func(t *testing.T, b *bubble) {
		var waiting sync.WaitGroup
		call := func() (giveUp func()) {
			ctx, cancel := context.WithCancel(t.Context())
			waiting.Go(func() {
				_, _ = b.call(ctx, "one", methodCallTool, json.RawMessage(`{"name":"t"}`), relay{
					elicit: func(context.Context, json.RawMessage) (json.RawMessage, error) {
						return json.RawMessage(declined), nil
					},
				})
			})
			synctest.Wait()
			return func() {
				cancel()
				synctest.Wait()
			}
		}
		require := func(when, want string) {
			t.Helper()
			if got := server.ask(t); got != want {
				t.Errorf("%s: the server is told %s, want %s", when, got, want)
			}
		}
		synctest.Wait()
		first := call()
		require("during a call", declined)
		first()
		require("after a call was given up", cancelled)
		second := call()
		require("during the next one", cancelled)
		time.Sleep(b.one.server.callTimeout() / 2)
		require("a while later", cancelled)
		server.answer(t, 0)
		synctest.Wait()
		require("once the given-up call is answered", declined)
		second()

		// One that is answered as it is given up.
		third := call()
		server.answer(t, 1)
		server.answer(t, 2)
		third()
		fourth := call()
		require("where all others were answered", declined)

		// One without an answer, until the connection ends.
		fourth()
		fifth := call()
		require("before the connection ends", cancelled)
		fifth()
		_ = server.far.Close()
		time.Sleep(2 * firstBackOff)
		synctest.Wait()
		sixth := call()
		require("on the next connection", declined)
		sixth()

		// More of them than are watched.
		for range maxLeft + 1 {
			call()()
		}
		seventh := call()
		for n := range maxLeft + 6 {
			server.answer(t, n)
		}
		synctest.Wait()
		require("where some may still be at work", cancelled)
		seventh()
		waiting.Wait()
	})
}

// Over HTTP most questions come with the answer to their call. Of others, nobody
// knows when a call that was given up ends.
func TestQuestionsAsideOverHTTP(t *testing.T) {
	t.Parallel()
	server := newTestServer(legacy)
	server.AddTool(&sdk.Tool{Name: "aside", InputSchema: json.RawMessage(`{"type":"object"}`)}, func(_ context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		return server.ask(context.Background(), r) // which isn't with this call then
	})
	f := startAll(t, Server{Name: "one", URL: serveHTTP(t, server, legacy).URL})
	require := func(when, tool, want string) {
		t.Helper()
		result, err := f.call(t.Context(), "one", methodCallTool, json.RawMessage(`{"name":"`+tool+`"}`), relay{
			elicit: func(context.Context, json.RawMessage) (json.RawMessage, error) {
				return json.RawMessage(`{"action":"decline"}`), nil
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		if got := texts(t, string(result))[0]; got != want {
			t.Errorf("%s: the server is told %s, want %s", when, got, want)
		}
	}
	require("with one call in flight", "aside", `{"action":"decline"}`)
	ctx, giveUp := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := f.call(ctx, "one", methodCallTool, json.RawMessage(`{"name":"wait","arguments":{"id":"a"}}`), relay{})
		ended <- err
	}()
	receive(t, server.waiting)
	giveUp()
	requireKind(t, receive(t, ended), errCutOff)
	require("after another was given up", "aside", `{"action":"cancel"}`)
	require("with the answer to its call", "ask", `{"action":"decline"}`)
}
