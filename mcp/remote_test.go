package mcp_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/approval/approvaltest"
	"github.com/countersign/countersign/mcp"
)

func TestDialSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	f := approvaltest.New(t)
	s := serveHTTP(t, f, newLocal(t, f, 0), mcp.HandlerOptions{})
	web := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(web.Close)
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	for name, test := range map[string]struct {
		endpoint string
		want     string
	}{
		"unknown token":    {s.URL, "the server refused the token"},
		"no address":       {"", "not the address of a server"},
		"no scheme":        {"approvals.example/mcp", "not the address of a server"},
		"other scheme":     {"ftp://approvals.example/mcp", "not the address of a server"},
		"secret in it":     {"http://me:secret@approvals.example/mcp", "not the address of a server"},
		"something else":   {web.URL, "doesn't answer as an MCP server"},
		"nobody":           {gone.URL, "can't be reached"},
		"not a host":       {"http://", "not the address of a server"},
		"not even a URL":   {"http://[", "not the address of a server"},
		"a path of theirs": {web.URL + "/mcp", "404"},
	} {
		remote, err := mcp.Dial(t.Context(), test.endpoint, "countersign_unknown", mcp.RemoteOptions{})
		if err == nil {
			remote.Close()
			t.Errorf("%s: connected", name)
			continue
		}
		if !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
		if got, want := errors.Is(err, mcp.ErrTokenRefused), name == "unknown token"; got != want {
			t.Errorf("%s: ErrTokenRefused is %v", name, got)
		}
		if strings.Contains(err.Error(), "countersign_unknown") {
			t.Errorf("%s: the error tells the token: %v", name, err)
		}
	}
}

// A redirection is not followed: it would hand the token to somebody else.
func TestTokenStaysWithItsServer(t *testing.T) {
	t.Parallel()
	var stolen atomic.Bool
	thief := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { stolen.Store(true) }))
	t.Cleanup(thief.Close)
	front := httptest.NewServer(http.RedirectHandler(thief.URL, http.StatusTemporaryRedirect))
	t.Cleanup(front.Close)
	if remote, err := mcp.Dial(t.Context(), front.URL, "countersign_secret", mcp.RemoteOptions{}); err == nil {
		remote.Close()
		t.Error("connected")
	}
	if stolen.Load() {
		t.Error("the redirection was followed")
	}
}

// bridged is a host's session over a bridge to a restartable server.
func bridged(t *testing.T, f *approvaltest.Fixture, endpoint string, options *sdk.ClientOptions) *sdk.ClientSession {
	t.Helper()
	_, token, err := f.Service.CreateToken(t.Context(), approval.Operator{Name: "test"}, f.Agent.Name, approval.Approver{})
	if err != nil {
		t.Fatal(err)
	}
	remote, err := mcp.Dial(t.Context(), endpoint, token, mcp.RemoteOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(remote.Close)
	return connect(t, serveStdio(t, remote, approval.Agent{}, mcp.Options{Now: f.Clock.Now}).transport(), modern, options)
}

func TestBridgeOutlivesRestarts(t *testing.T) {
	t.Parallel()
	f := approvaltest.New(t)
	r := newRestartable(t, f)
	progress := make(chan string, 100)
	session := bridged(t, f, "http://"+r.address, &sdk.ClientOptions{
		ProgressNotificationHandler: func(_ context.Context, n *sdk.ProgressNotificationClientRequest) { progress <- n.Params.Message },
	})
	id := asked(t, session)
	for range 2 {
		done := await(t.Context(), session, id, "token")
		if got := receive(t, progress, "progress from the server"); got != "Waiting for a person: 1 of finance. 1 h 0 min left." {
			t.Errorf("progress: %q", got)
		}
		r.kill()
		if got := receive(t, done, "the cut-off call"); got.err != nil || got.status != `{"status":"pending"}` {
			t.Errorf("the cut-off call: %+v", got)
		}
		r.start(t)
	}
	done := await(t.Context(), session, id, "token")
	receive(t, progress, "progress after the restart")
	decide(t, f, id, approval.Approve, "")
	if got := receive(t, done, "the decision"); got.err != nil || got.status != `{"status":"approved"}` {
		t.Errorf("after the restart: %+v", got)
	}
	succeed(t, session, "apply", byID(id))
}

// A call made while the server is down is made when it is up again.
func TestBridgeWaitsForARestart(t *testing.T) {
	t.Parallel()
	f := approvaltest.New(t)
	r := newRestartable(t, f)
	session := bridged(t, f, "http://"+r.address, nil)
	r.kill()
	type answer struct {
		text string
		err  error
	}
	done := make(chan answer, 1)
	go func() {
		result, err := session.CallTool(t.Context(), &sdk.CallToolParams{Name: "request_approval", Arguments: map[string]any{"purpose": "p", "payload": map[string]any{}}})
		if err != nil {
			done <- answer{err: err}
			return
		}
		done <- answer{text: result.Content[0].(*sdk.TextContent).Text}
	}()
	r.start(t)
	got := receive(t, done, "the answer")
	if got.err != nil {
		t.Fatal(got.err)
	}
	checkUntouched(t, f, idIn(t, got.text))
}

func TestBridgeSaysThatTheServerIsDown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := approvaltest.New(t, func(o *approval.Options) { o.Now = nil })
		local, err := mcp.NewLocal(f.Service, mcp.LocalOptions{ReviewURL: reviewURL})
		if err != nil {
			t.Fatal(err)
		}
		handler := mcp.NewHandler(local, mcp.HandlerOptions{})
		server := httptest.NewServer(handler)
		_, token, err := f.Service.CreateToken(t.Context(), approval.Operator{Name: "test"}, f.Agent.Name, approval.Approver{})
		if err != nil {
			t.Fatal(err)
		}
		remote, err := mcp.Dial(t.Context(), server.URL, token, mcp.RemoteOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer remote.Close()
		server.CloseClientConnections()
		handler.Close()
		server.Close()
		began := time.Now()
		_, err = remote.Status(t.Context(), approval.Agent{}, "req_00000000000000000000000000000000")
		refusal, ok := errors.AsType[*mcp.Refusal](err)
		if !ok || !strings.Contains(refusal.Text, "can't be reached") || !strings.Contains(refusal.Text, "Nothing was changed") {
			t.Errorf("got %v", err)
		}
		if took := time.Since(began); took > 25*time.Second {
			t.Errorf("it took %v to say so", took)
		}
	})
}

func TestBridgeTellsOfARevokedToken(t *testing.T) {
	t.Parallel()
	f := approvaltest.New(t)
	s := serveHTTP(t, f, newLocal(t, f, 0), mcp.HandlerOptions{})
	session := bridged(t, f, s.URL, nil)
	id := asked(t, session)
	tokens, err := f.Service.Tokens(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, token := range tokens {
		if err := f.Service.RevokeToken(t.Context(), approval.Operator{Name: "test"}, token.ID); err != nil {
			t.Fatal(err)
		}
	}
	for _, tool := range []string{"await_approval", "check_status", "apply"} {
		if got := refused(t, session, tool, byID(id)); !strings.Contains(got, "refused this agent's token") {
			t.Errorf("%s: %s", tool, got)
		}
	}
}

// faulty is in front of a handler, and spoils the answers to calls of a tool.
type faulty struct {
	next  http.Handler
	tool  string
	spoil func(http.ResponseWriter, *http.Request, http.Handler)
}

func (f *faulty) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	if r.Header.Get("Mcp-Name") == f.tool {
		f.spoil(w, r, f.next)
		return
	}
	f.next.ServeHTTP(w, r)
}

// doneThenCut has a call done and cuts its answer off.
func doneThenCut(_ http.ResponseWriter, r *http.Request, next http.Handler) {
	next.ServeHTTP(httptest.NewRecorder(), r)
	panic(http.ErrAbortHandler)
}

// doneThenUnavailable has a call done and says what a proxy says that then loses
// the connection.
func doneThenUnavailable(w http.ResponseWriter, r *http.Request, next http.Handler) {
	next.ServeHTTP(httptest.NewRecorder(), r)
	http.Error(w, "disconnected before headers", http.StatusServiceUnavailable)
}

// badGateway is what a proxy says when it loses the server.
func badGateway(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
	http.Error(w, "lost the server", http.StatusBadGateway)
}

// An answer that didn't arrive is never taken for one: what may have happened
// is said, and what is safe is tried again.
func TestBridgeAfterALostAnswer(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		tool  string
		spoil func(http.ResponseWriter, *http.Request, http.Handler)
		want  string // in the refusal; or the result
		then  approval.Status
	}{
		"request, done":     {"request_approval", doneThenCut, "isn't known whether people were asked", ""},
		"request, then 503": {"request_approval", doneThenUnavailable, "isn't known whether people were asked", ""},
		"apply, done":       {"apply", doneThenCut, "if it says applied, the approval is used up", approval.Applied},
		"apply, then 503":   {"apply", doneThenUnavailable, "if it says applied, the approval is used up", approval.Applied},
		"apply, not done":   {"apply", badGateway, "if it says approved, call apply again", approval.Approved},
		"await, done":       {"await_approval", doneThenCut, `{"status":"pending"}`, approval.Approved},
		"await, then 503":   {"await_approval", doneThenUnavailable, `{"status":"pending"}`, approval.Approved},
		"await, by a proxy": {"await_approval", badGateway, `{"status":"pending"}`, approval.Approved},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := approvaltest.New(t)
			handler := mcp.NewHandler(newLocal(t, f, 0), mcp.HandlerOptions{Options: mcp.Options{Now: f.Clock.Now}})
			server := httptest.NewServer(&faulty{next: handler, tool: test.tool, spoil: test.spoil})
			t.Cleanup(func() {
				handler.Close()
				server.Close()
			})
			session := bridged(t, f, server.URL, nil)
			r := f.Propose(t)
			f.Decide(t, approvaltest.Alice, r, approval.Approve)
			arguments := byID(r.ID)
			if test.tool == "request_approval" {
				arguments = `{"purpose":"p","payload":{}}`
			}
			result := call(t, session, test.tool, arguments)
			if text := textOf(t, result, 0); !strings.Contains(text, test.want) || result.IsError == (test.tool == "await_approval") {
				t.Errorf("got %s (error: %v)", text, result.IsError)
			}
			if test.then != "" {
				if got := succeed(t, session, "check_status", byID(r.ID)); got != `{"status":"`+string(test.then)+`"}` {
					t.Errorf("afterwards: %s, want %s", got, test.then)
				}
			}
		})
	}
}

// A call that the server itself turned away was not done, and is made again.
func TestBridgeRepeatsWhatTheServerTurnedAway(t *testing.T) {
	t.Parallel()
	f := approvaltest.New(t)
	local := newLocal(t, f, 0)
	handler := mcp.NewHandler(local, mcp.HandlerOptions{Options: mcp.Options{Now: f.Clock.Now}})
	stopped := mcp.NewHandler(local, mcp.HandlerOptions{})
	stopped.Close()
	broken := approvaltest.New(t)
	storeless := mcp.NewHandler(newLocal(t, broken, 0), mcp.HandlerOptions{})
	t.Cleanup(storeless.Close)
	if err := broken.Store.Close(); err != nil {
		t.Fatal(err)
	}
	var calls atomic.Int32
	server := httptest.NewServer(&faulty{next: handler, tool: "apply", spoil: func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		switch calls.Add(1) {
		case 1:
			stopped.ServeHTTP(w, r)
		case 2:
			storeless.ServeHTTP(w, r)
		default:
			next.ServeHTTP(w, r)
		}
	}})
	t.Cleanup(func() {
		handler.Close()
		server.Close()
	})
	session := bridged(t, f, server.URL, nil)
	r := f.Propose(t)
	f.Decide(t, approvaltest.Alice, r, approval.Approve)
	if got := succeed(t, session, "apply", byID(r.ID)); !strings.Contains(got, `"payload":`) || calls.Load() != 3 {
		t.Errorf("%s after %d calls", got, calls.Load())
	}
}

// Reading the status changes nothing, so it is simply read again.
func TestBridgeReadsTheStatusAgain(t *testing.T) {
	t.Parallel()
	f := approvaltest.New(t)
	handler := mcp.NewHandler(newLocal(t, f, 0), mcp.HandlerOptions{Options: mcp.Options{Now: f.Clock.Now}})
	var calls atomic.Int32
	server := httptest.NewServer(&faulty{next: handler, tool: "check_status", spoil: func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		switch calls.Add(1) {
		case 1:
			doneThenCut(w, r, next)
		case 2:
			badGateway(w, r, next)
		default:
			next.ServeHTTP(w, r)
		}
	}})
	t.Cleanup(func() {
		handler.Close()
		server.Close()
	})
	session := bridged(t, f, server.URL, nil)
	if got := succeed(t, session, "check_status", byID(f.Propose(t).ID)); got != `{"status":"pending"}` || calls.Load() != 3 {
		t.Errorf("%s after %d calls", got, calls.Load())
	}
}

// A bridge that loses its host lets go of the server's answer.
func TestBridgeHostGone(t *testing.T) {
	t.Parallel()
	f := approvaltest.New(t)
	logger, messages := logged()
	s := serveHTTP(t, f, newLocal(t, f, mcp.MaxAwaitBound), mcp.HandlerOptions{Options: mcp.Options{Logger: logger}})
	progress := make(chan string, 100)
	session := bridged(t, f, s.URL, &sdk.ClientOptions{
		ProgressNotificationHandler: func(_ context.Context, n *sdk.ProgressNotificationClientRequest) { progress <- n.Params.Message },
	})
	id := asked(t, session)
	ctx, cancel := context.WithCancel(t.Context())
	done := await(ctx, session, id, "token")
	receive(t, progress, "progress")
	cancel()
	if got := receive(t, done, "the cancelled call"); !errors.Is(got.err, context.Canceled) {
		t.Errorf("got %+v", got)
	}
	receiveMessage(t, messages, "a caller went away")
	checkUntouched(t, f, id)
}
