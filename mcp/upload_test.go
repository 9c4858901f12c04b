package mcp_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/approval/approvaltest"
	"github.com/countersign/countersign/mcp"
)

// pipeListener listens in memory, so that a test's clock moves while its
// connections wait.
type pipeListener struct {
	connections chan net.Conn
	closed      chan struct{}
	close       func()
}

func newPipeListener() *pipeListener {
	l := &pipeListener{connections: make(chan net.Conn), closed: make(chan struct{})}
	l.close = sync.OnceFunc(func() { close(l.closed) })
	return l
}

func (l *pipeListener) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 80} }

func (l *pipeListener) Close() error {
	l.close()
	return nil
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.connections:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) dial(context.Context, string, string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case l.connections <- theirs:
		return ours, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// uploads is a server in a test's bubble and a client of it.
type uploads struct {
	fixture *approvaltest.Fixture
	handler *mcp.Handler
	server  *http.Server
	client  *http.Client
	token   string
}

// inUploads runs a test in a bubble.
func inUploads(t *testing.T, run func(t *testing.T, u *uploads)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := approvaltest.New(t, func(o *approval.Options) { o.Now = nil })
		local, err := mcp.NewLocal(f.Service, mcp.LocalOptions{ReviewURL: reviewURL})
		if err != nil {
			t.Fatal(err)
		}
		_, token, err := f.Service.CreateToken(t.Context(), approval.Operator{Name: "test"}, f.Agent.Name, approval.Approver{})
		if err != nil {
			t.Fatal(err)
		}
		listener := newPipeListener()
		transport := &http.Transport{DialContext: listener.dial}
		handler := mcp.NewHandler(local, mcp.HandlerOptions{})
		u := &uploads{f, handler, &http.Server{Handler: handler}, &http.Client{Transport: transport}, token}
		served := make(chan error, 1)
		go func() { served <- u.server.Serve(listener) }()
		defer func() {
			handler.Close()
			_ = u.server.Close()
			transport.CloseIdleConnections()
			if err := <-served; !errors.Is(err, http.ErrServerClosed) {
				t.Error(err)
			}
		}()
		run(t, u)
	})
}

// answer is what a request got; its body is read.
type answer struct {
	response *http.Response
	err      error
}

// begin sends a request of which nothing follows what is in sent. The rest of
// it ends with the test's bubble.
func (u *uploads) begin(t *testing.T, method, token, sent string) <-chan answer {
	t.Helper()
	body, rest := io.Pipe()
	t.Cleanup(func() { _ = rest.Close() })
	request, err := http.NewRequestWithContext(t.Context(), method, "http://server/", body)
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range modernHeaders(token, "server/discover", "") {
		request.Header.Set(name, value)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Accept", "application/json, text/event-stream")
	answered := make(chan answer, 1)
	go func() {
		response, err := u.client.Do(request)
		if err == nil {
			// Nothing in memory is sent before somebody reads it.
			_, _ = io.Copy(io.Discard, response.Body) // cut off is as good
			_ = response.Body.Close()
		}
		answered <- answer{response, err}
	}()
	if _, err := io.WriteString(rest, sent); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
	return answered
}

// A request that hasn't arrived whole holds up nobody, whoever sends it.
func TestUnfinishedUploadHoldsUpNoStop(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		method string
		token  string // empty means a good one
	}{
		"a call":           {http.MethodPost, ""},
		"of nobody":        {http.MethodPost, "countersign_unknown"},
		"an event stream":  {http.MethodGet, ""},
		"a session's end":  {http.MethodDelete, ""},
		"stream of nobody": {http.MethodGet, "countersign_unknown"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inUploads(t, func(t *testing.T, u *uploads) {
				token := test.token
				if token == "" {
					token = u.token
				}
				answered := u.begin(t, test.method, token, discoverBody[:20])
				began := time.Now()
				u.handler.Close()
				if err := u.server.Shutdown(t.Context()); err != nil {
					t.Error(err)
				}
				if took := time.Since(began); took > 2*time.Second {
					t.Errorf("stopping took %v", took)
				}
				got := <-answered
				if got.err != nil {
					return // cut off is as good
				}
				if got.response.StatusCode != http.StatusServiceUnavailable && test.token == "" {
					t.Errorf("got %s", got.response.Status)
				}
			})
		})
	}
}

func TestUploadsEnd(t *testing.T) {
	t.Parallel()
	for name, token := range map[string]string{"a call": "", "of nobody": "countersign_unknown"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inUploads(t, func(t *testing.T, u *uploads) {
				want := http.StatusUnauthorized
				if token == "" {
					token, want = u.token, http.StatusRequestTimeout
				}
				began := time.Now()
				got := <-u.begin(t, http.MethodPost, token, discoverBody[:20])
				if took := time.Since(began); took > 11*time.Second {
					t.Errorf("the upload ended after %v", took)
				}
				if got.err != nil {
					t.Fatal(got.err)
				}
				if got.response.StatusCode != want || !got.response.Close {
					t.Errorf("got %s, and the connection stays: %v", got.response.Status, !got.response.Close)
				}
			})
		})
	}
}

// What limits the arrival of a call doesn't limit how long it waits.
func TestWaitingOutlastsTheUploadLimit(t *testing.T) {
	t.Parallel()
	inUploads(t, func(t *testing.T, u *uploads) {
		r := u.fixture.Propose(t)
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://server/", strings.NewReader(waitBody(modern, r.ID)))
		if err != nil {
			t.Fatal(err)
		}
		for name, value := range modernHeaders(u.token, "tools/call", "await_approval") {
			request.Header.Set(name, value)
		}
		request.Header.Set("Content-Type", "application/json")
		request.Header.Set("Accept", "application/json, text/event-stream")
		began := time.Now()
		response, err := u.client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = response.Body.Close() }()
		text := bodyOf(t, response)
		if !strings.Contains(text, `"structuredContent":{"status":"pending"}`) {
			t.Errorf("got %q", text)
		}
		if took := time.Since(began); took < mcp.DefaultAwaitBound {
			t.Errorf("the wait ended after %v", took)
		}
	})
}
