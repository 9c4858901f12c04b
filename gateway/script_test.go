package gateway

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// script is a downstream server by hand: it says what it answers to a request,
// as the "result" or "error" of a response, or nothing.
type script func(method string, params json.RawMessage) string

// modest answers as a server of 2026-07-28 with one tool.
func modest(method string, _ json.RawMessage) string {
	switch method {
	case "server/discover":
		return `"result":{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}}}`
	case methodListTools:
		return `"result":{"tools":[{"name":"t","inputSchema":{"type":"object"}}]}`
	case methodCallTool:
		return `"result":{"content":[]}`
	default:
		return `"error":{"code":-32601,"message":"no such method"}`
	}
}

// but answers one method in another way.
func but(other script, method string, answer func(params json.RawMessage) string) script {
	return func(called string, params json.RawMessage) string {
		if called == method {
			return answer(params)
		}
		return other(called, params)
	}
}

type envelope struct {
	ID     json.RawMessage
	Method string
	Params json.RawMessage
}

// serve answers one message after the other until the other side closes.
func (s script) serve(connection io.ReadWriteCloser) {
	defer func() { _ = connection.Close() }()
	lines := bufio.NewReader(connection)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		var message envelope
		if err := json.Unmarshal(line, &message); err != nil {
			return
		}
		if message.ID == nil {
			continue
		}
		if answer := s(message.Method, message.Params); answer != "" {
			if _, err := fmt.Fprintf(connection, `{"jsonrpc":"2.0","id":%s,%s}`+"\n", message.ID, answer); err != nil {
				return
			}
		}
	}
}

// pipe makes connections of c that are served in memory.
func pipe(c *connection, server func(io.ReadWriteCloser)) {
	c.open = func(context.Context) (sdk.Transport, func()) {
		near, far := net.Pipe()
		go server(far)
		transport := &rawTransport{Transport: &sdk.IOTransport{Reader: near, Writer: near}, received: c.received}
		return transport, transport.release
	}
}

// bubble is one server in memory, in a bubble of time.
type bubble struct {
	*downstreams
	logs *logs
	one  *connection
	stop func()
}

// inBubble runs a test of one server that prepare sets up. Back-off has no
// jitter there.
func inBubble(t *testing.T, prepare func(c *connection), test func(t *testing.T, b *bubble)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &bubble{logs: newLogs()}
		exact := func(d time.Duration) time.Duration { return d }
		var err error
		b.downstreams, err = newDownstreams([]Server{{Name: "one", Command: []string{"in memory"}}}, nil, "test", exact, b.logs.logger())
		if err != nil {
			t.Fatal(err)
		}
		b.one = b.connections["one"]
		prepare(b.one)
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { b.run(ctx) })
		b.stop = func() {
			cancel()
			running.Wait()
		}
		defer b.stop()
		test(t, b)
	})
}

// failing is a transport that doesn't connect.
type failing struct{}

func (failing) Connect(context.Context) (sdk.Connection, error) {
	return nil, errors.New("it isn't there")
}

// serveScript serves a script over HTTP. wrap may answer a request itself.
func (s script) handler(wrap func(w http.ResponseWriter, r *http.Request, message envelope) (done bool)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			http.Error(w, "only POST", http.StatusMethodNotAllowed)
			return
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		var message envelope
		if err := json.Unmarshal(body, &message); err != nil {
			http.Error(w, "not JSON", http.StatusBadRequest)
			return
		}
		if wrap != nil && wrap(w, r, message) {
			return
		}
		if message.ID == nil {
			w.WriteHeader(http.StatusAccepted)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,%s}`, message.ID, s(message.Method, message.Params))
	})
}
