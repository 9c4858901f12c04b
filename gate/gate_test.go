package gate_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/approval/approvaltest"
	"github.com/countersign/countersign/gate"
	"github.com/countersign/countersign/web"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds every wait on a real event. Nothing is measured by it.
const patience = 30 * time.Second

// server is a real service behind a real HTTP server, which a test can stop, start
// again and get between.
type server struct {
	*approvaltest.Fixture
	url   string
	token string
	http  *http.Server

	// between, if there is one, may answer a call in the API's place.
	between atomic.Pointer[func(http.ResponseWriter, *http.Request, http.Handler)]
}

func newServer(t *testing.T, options ...func(*approval.Options)) *server {
	t.Helper()
	s := &server{Fixture: approvaltest.New(t, options...)}
	_, token, err := s.Service.CreateToken(t.Context(), approval.Operator{Name: "test"}, s.Agent.Name, s.Agent.Owner)
	if err != nil {
		t.Fatal(err)
	}
	s.token = token
	s.start(t, "127.0.0.1:0")
	t.Cleanup(func() { s.stop(t) })
	return s
}

func (s *server) start(t *testing.T, address string) {
	t.Helper()
	listener, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	s.url = "http://" + listener.Addr().String()
	api, err := web.NewAPI(s.Service, web.APIOptions{
		ReviewURL: func(id approval.ID) string { return s.url + "/review?elicitationId=" + string(id) },
	})
	if err != nil {
		t.Fatal(err)
	}
	s.http = &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if between := s.between.Load(); between != nil {
			(*between)(w, r, api)
			return
		}
		api.ServeHTTP(w, r)
	})}
	go func() { _ = s.http.Serve(listener) }()
}

// stop cuts every connection, as a crash does.
func (s *server) stop(t *testing.T) {
	t.Helper()
	if err := s.http.Close(); err != nil {
		t.Error(err)
	}
}

// comesBetween has something answer calls from now on.
func (s *server) comesBetween(answer func(http.ResponseWriter, *http.Request, http.Handler)) {
	s.between.Store(&answer)
}

func (s *server) gate(t *testing.T, options ...func(*gate.Options)) *gate.Gate {
	t.Helper()
	return s.gateWith(t, s.token, options...)
}

func (s *server) gateWith(t *testing.T, token string, options ...func(*gate.Options)) *gate.Gate {
	t.Helper()
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	settings := gate.Options{Transport: transport}
	for _, option := range options {
		option(&settings)
	}
	g, err := gate.New(s.url, token, settings)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// decides has somebody decide on each request as soon as people are asked.
func (s *server) decides(t *testing.T, decide func(r *approval.Request)) func(*gate.Options) {
	return func(o *gate.Options) {
		o.Waiting = func(asked gate.Request) {
			r, err := s.Service.Status(context.WithoutCancel(t.Context()), s.Agent, approval.ID(asked.ID))
			if err != nil {
				t.Error(err)
				return
			}
			decide(r)
		}
	}
}

func (s *server) approves(t *testing.T) func(*gate.Options) {
	return s.decides(t, func(r *approval.Request) { s.Decide(t, approvaltest.Alice, r, approval.Approve) })
}

// exact is a payload that any decoding and encoding would change.
const exact = "{ \"id\" : 9007199254740993, \"rate\":0.10,\n\"far\":1e400, \"html\":\"<&>\\u0041\" }"

var payout = gate.Action{
	Purpose:     "Pay the invoices of March",
	Payload:     json.RawMessage(exact),
	Name:        "payouts.create",
	Target:      "acct_1032",
	Environment: "production",
	Count:       new(int64(3)),
	Reversible:  new(false),
	TTL:         10 * time.Minute,
}

// runs counts the runs of a function and keeps what it was given.
type runs struct {
	count   atomic.Int64
	payload atomic.Value
}

func (r *runs) run(_ context.Context, payload json.RawMessage) (string, error) {
	r.count.Add(1)
	r.payload.Store(string(payload))
	return "3 paid", nil
}

// only is the one request that there is.
func (s *server) only(t *testing.T) *approval.Request {
	t.Helper()
	recorded, err := s.Store.Recorded(t.Context(), 10)
	if err != nil || len(recorded) != 1 {
		t.Fatalf("there are the requests %v (%v)", recorded, err)
	}
	r, err := s.Store.Request(t.Context(), recorded[0].ID)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// What was asked is what people see; what was approved is what the function gets;
// and what it says is what the server keeps.
func TestDo(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	var asked gate.Request
	var stored *approval.Request
	g := s.gate(t, s.decides(t, func(r *approval.Request) {
		stored = r
		s.Decide(t, approvaltest.Alice, r, approval.Approve)
	}), func(o *gate.Options) {
		decide := o.Waiting
		o.Waiting = func(r gate.Request) { asked = r; decide(r) }
	})
	var r runs
	if err := g.Do(t.Context(), payout, r.run); err != nil {
		t.Fatal(err)
	}
	if r.count.Load() != 1 || r.payload.Load() != exact {
		t.Errorf("ran %d times with %v", r.count.Load(), r.payload.Load())
	}
	if stored.Purpose != payout.Purpose || stored.Action != payout.Name || stored.Target != payout.Target || stored.Environment != payout.Environment ||
		*stored.StatedCount != 3 || *stored.Reversible || string(stored.Payload) != exact || stored.ExpiresAt.Sub(stored.CreatedAt) != payout.TTL {
		t.Errorf("people saw %+v", stored)
	}
	if asked.ID != string(stored.ID) || !strings.HasSuffix(asked.ReviewURL, asked.ID) || asked.WaitingFor != "1 of finance" || !asked.ExpiresAt.Equal(stored.ExpiresAt) {
		t.Errorf("the program was told %+v", asked)
	}
	s.finished(t, stored.ID, approval.Succeeded, "3 paid")
}

func (s *server) finished(t *testing.T, id approval.ID, outcome approval.Outcome, detail string) {
	t.Helper()
	r, err := s.Service.Status(context.WithoutCancel(t.Context()), s.Agent, id)
	if err != nil {
		t.Fatal(err)
	}
	if r.Execution == nil || r.Execution.FinishedAt.IsZero() || r.Execution.Outcome != outcome || r.Execution.Detail != detail {
		t.Errorf("the server keeps %+v, want %s %q", r.Execution, outcome, detail)
	}
}

// What policy allows runs without anybody.
func TestDoAllowed(t *testing.T) {
	t.Parallel()
	s := newServer(t, func(o *approval.Options) {
		o.Policy = approvaltest.ParsePolicy(t, "version: 1\nmode: cautious\nroles: {finance: {users: [U0ALICE]}}\napproval: {requires: [{role: finance}]}\nintegrations: {crm: {tools: {get_*: {tier: 1}}}}\n")
	})
	g := s.gate(t, func(o *gate.Options) {
		o.Waiting = func(gate.Request) { t.Error("somebody was waited for") }
	})
	var r runs
	if err := g.Do(t.Context(), gate.Action{Purpose: "p", Name: "crm.get_contact", Payload: json.RawMessage(" {} \n")}, r.run); err != nil || r.payload.Load() != "{}" {
		t.Errorf("%v, with %v", err, r.payload.Load())
	}
}

// A function that fails is told of as failed, in its report's words or in its
// error's.
func TestDoFails(t *testing.T) {
	t.Parallel()
	broken := errors.New("the bank refused")
	for name, test := range map[string]struct {
		report string
		want   string
	}{
		"by its error":       {"", "the bank refused"},
		"by its report":      {"1 of 3 paid", "1 of 3 paid"},
		"too long":           {strings.Repeat("é", 1001), strings.Repeat("é", 999) + "…"},
		"what can't be kept": {"a\x00b\xff", "ab\ufffd"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t)
			var id approval.ID
			g := s.gate(t, s.decides(t, func(r *approval.Request) { id = r.ID; s.Decide(t, approvaltest.Alice, r, approval.Approve) }))
			err := g.Do(t.Context(), payout, func(context.Context, json.RawMessage) (string, error) { return test.report, broken })
			if err != broken {
				t.Errorf("got %v", err)
			}
			s.finished(t, id, approval.Failed, test.want)
		})
	}
}

func TestDoPanics(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	var id approval.ID
	g := s.gate(t, s.decides(t, func(r *approval.Request) { id = r.ID; s.Decide(t, approvaltest.Alice, r, approval.Approve) }))
	func() {
		defer func() {
			if r := recover(); r != "broken" {
				t.Errorf("recovered %v", r)
			}
		}()
		_ = g.Do(t.Context(), payout, func(context.Context, json.RawMessage) (string, error) { panic("broken") })
	}()
	s.finished(t, id, approval.Failed, "It panicked.")
}

// Whatever isn't a yes is an error that says which no it is, and nothing runs.
func TestNotRun(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		policy string // added to the one of the fixture
		decide func(*testing.T, *server, *approval.Request)
		change func(*gate.Action)
		token  string
		want   error
		text   string
	}{
		"rejected": {decide: func(t *testing.T, s *server, r *approval.Request) {
			b := approvaltest.Ballot(r, approval.Reject)
			b.Reason = "Not before\nthe \u202eaudit"
			if _, err := s.Service.Decide(t.Context(), approvaltest.Alice, b); err != nil {
				t.Error(err)
			}
		}, want: gate.ErrRejected, text: `not run: a person said no: Not before\u{a}the \u{202e}audit`},
		"rejected without a word": {decide: func(t *testing.T, s *server, r *approval.Request) {
			s.Decide(t, approvaltest.Alice, r, approval.Reject)
		}, want: gate.ErrRejected, text: "not run: a person said no"},
		"expired": {decide: func(t *testing.T, s *server, r *approval.Request) { s.Clock.Advance(time.Hour) },
			want: gate.ErrExpired, text: "not run: the deadline passed, and silence is not consent"},
		"superseded": {decide: func(t *testing.T, s *server, r *approval.Request) {
			s.Decide(t, approvaltest.Alice, r, approval.Approve)
			s.People.Take("finance", approvaltest.Alice)
		}, want: gate.ErrSuperseded, text: "not run: what was asked doesn't hold any more: "},
		"approved, and then too late": {decide: func(t *testing.T, s *server, r *approval.Request) {
			s.Decide(t, approvaltest.Alice, r, approval.Approve)
			s.Clock.Advance(time.Hour)
		}, want: gate.ErrExpired, text: "not run: the deadline passed"},
		"used by another": {decide: func(t *testing.T, s *server, r *approval.Request) {
			s.Decide(t, approvaltest.Alice, r, approval.Approve)
			if _, err := s.Service.Claim(t.Context(), s.Agent, r.ID); err != nil {
				t.Error(err)
			}
		}, want: gate.ErrUsed, text: "not run: another call used the approval"},
		"denied": {policy: "block: [{id: never, actions: ['payouts.*'], why: Agents pay nobody.}]", want: gate.ErrDenied,
			text: "not run: the policy denies it, and no person was asked: Agents pay nobody."},
		"limit":               {policy: "limits: {pending: 10, per_minute: 1, cooldown: 0s}", want: gate.ErrLimit, text: "(again from 2026-01-02T03:05:"},
		"token":               {token: "countersign_wrong", want: gate.ErrToken, text: "token create"},
		"purpose":             {change: func(a *gate.Action) { a.Purpose = "" }, text: "purpose: is missing"},
		"payload":             {change: func(a *gate.Action) { a.Payload = json.RawMessage(`{"a":1,"a":2}`) }, text: "not strict JSON: "},
		"more than a payload": {change: func(a *gate.Action) { a.Payload = json.RawMessage(`{}, "action": "crm.get_contact"`) }, text: "not strict JSON: "},
		"no payload":          {change: func(a *gate.Action) { a.Payload = nil }, text: "not strict JSON: "},
		"a list":              {change: func(a *gate.Action) { a.Payload = json.RawMessage(`[{}]`) }, text: "no JSON object"},
		"a target":            {change: func(a *gate.Action) { a.Target = "\xff" }, text: "target is not valid UTF-8"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t, func(o *approval.Options) {
				if test.policy != "" {
					o.Policy = approvaltest.ParsePolicy(t, "version: 1\nmode: cautious\nroles: {finance: {users: [U0ALICE, U0BOB]}}\napproval: {requires: [{role: finance}]}\n"+test.policy)
				}
			})
			if test.want == gate.ErrLimit {
				s.Propose(t)
			}
			if test.token == "" {
				test.token = s.token
			}
			action := payout
			if test.change != nil {
				test.change(&action)
			}
			var r runs
			err := s.gateWith(t, test.token, s.decides(t, func(r *approval.Request) { test.decide(t, s, r) })).Do(t.Context(), action, r.run)
			why, ok := errors.AsType[*gate.NotRunError](err)
			if !ok || (test.want != nil && !errors.Is(err, test.want)) || !strings.Contains(err.Error(), test.text) {
				t.Errorf("got %v, want %v with %q", err, test.want, test.text)
			}
			if ok && (why.RequestID == "") != (test.decide == nil) {
				t.Errorf("the request is %q", why.RequestID)
			}
			if strings.ContainsAny(err.Error(), "\n\u202e") || strings.Contains(err.Error(), "countersign_") {
				t.Errorf("the error can't be shown: %q", err)
			}
			if r.count.Load() != 0 {
				t.Error("it ran")
			}
		})
	}
}

// The end of the context ends the wait and decides nothing; asking for the same
// again finds the request, and its approval.
func TestStopped(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("the job is over")
	var id string
	g := s.gate(t, func(o *gate.Options) { o.Waiting = func(r gate.Request) { id = r.ID; cancel(why) } })
	var r runs
	err := g.Do(ctx, payout, r.run)
	stopped, ok := errors.AsType[*gate.NotRunError](err)
	if !ok || !errors.Is(err, gate.ErrStopped) || !errors.Is(err, why) || stopped.RequestID != id {
		t.Fatalf("got %v", err)
	}
	if after := s.only(t); after.Status != approval.Pending || after.Revision != 1 {
		t.Errorf("the request is %+v", after)
	}
	if err := s.gate(t, s.approves(t)).Do(t.Context(), payout, r.run); err != nil || r.count.Load() != 1 {
		t.Errorf("again: %v, ran %d times", err, r.count.Load())
	}
	if after := s.only(t); after.Status != approval.Applied || string(after.ID) != id {
		t.Errorf("the request is %+v", after)
	}
	cancelled, end := context.WithCancel(t.Context())
	end()
	if err := g.Do(cancelled, payout, r.run); !errors.Is(err, gate.ErrStopped) || !errors.Is(err, context.Canceled) || r.count.Load() != 1 {
		t.Errorf("with a context that had ended: %v", err)
	}
}

// A context that ends while the approval is being used loses nothing: the server
// is told that nothing ran.
func TestStoppedWhileApplying(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	ctx, cancel := context.WithCancel(t.Context())
	s.comesBetween(func(w http.ResponseWriter, r *http.Request, api http.Handler) {
		if strings.HasSuffix(r.URL.Path, "/apply") {
			cancel()
		}
		api.ServeHTTP(w, r)
	})
	var r runs
	err := s.gate(t, s.approves(t)).Do(ctx, payout, r.run)
	why, ok := errors.AsType[*gate.NotRunError](err)
	if !ok || !errors.Is(err, gate.ErrStopped) || r.count.Load() != 0 {
		t.Fatalf("got %v, ran %d times", err, r.count.Load())
	}
	s.finished(t, approval.ID(why.RequestID), approval.Failed, "Not run: it was stopped before it began.")
}

// A server that goes away while a program waits, however that shows, and comes
// back where it was.
func TestRestartWhileWaiting(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	held := make(chan struct{}, 10)
	s.comesBetween(func(w http.ResponseWriter, r *http.Request, api http.Handler) {
		if r.Method == http.MethodGet {
			held <- struct{}{}
		}
		api.ServeHTTP(w, r)
	})
	log := newLogged()
	g := s.gate(t, func(o *gate.Options) { o.Logger = slog.New(slog.NewTextHandler(log, nil)) })
	var r runs
	done := make(chan error, 1)
	go func() { done <- g.Do(t.Context(), payout, r.run) }()
	arrives(t, held)
	s.stop(t)
	stored := s.only(t)
	s.Decide(t, approvaltest.Alice, stored, approval.Approve)
	down := s.url
	log.says(t, "connection refused")
	s.start(t, strings.TrimPrefix(down, "http://"))
	if err := ends(t, done); err != nil || r.count.Load() != 1 || r.payload.Load() != exact {
		t.Errorf("got %v, ran %d times with %v", err, r.count.Load(), r.payload.Load())
	}
	s.finished(t, stored.ID, approval.Succeeded, "3 paid")
	if strings.Contains(log.String(), s.token) || strings.Contains(log.String(), "9007199254740993") || !strings.Contains(log.String(), "answers again") {
		t.Errorf("the log says\n%s", log)
	}
}

func arrives(t *testing.T, held <-chan struct{}) {
	t.Helper()
	select {
	case <-held:
	case <-time.After(patience):
		t.Fatal("no call arrived")
	}
}

func ends(t *testing.T, done <-chan error) error {
	t.Helper()
	select {
	case err := <-done:
		return err
	case <-time.After(patience):
		t.Fatal("Do goes on")
		return nil
	}
}

// logged is a log that a test reads meanwhile.
type logged struct {
	mu      sync.Mutex
	text    bytes.Buffer
	changed chan struct{} // closed at the next change
}

func newLogged() *logged { return &logged{changed: make(chan struct{})} }

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.changed)
	l.changed = make(chan struct{})
	return l.text.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// says waits until the log has a text.
func (l *logged) says(t *testing.T, text string) {
	t.Helper()
	late := time.After(patience)
	for {
		l.mu.Lock()
		said, changed := strings.Contains(l.text.String(), text), l.changed
		l.mu.Unlock()
		if said {
			return
		}
		select {
		case <-changed:
		case <-late:
			t.Fatalf("the log doesn't say %q:\n%s", text, l)
		}
	}
}

// Trouble on the way, at each call and of each kind, is tried again and changes
// nothing, unless it takes the answer with the payload away: then nothing runs.
func TestTroubleOnTheWay(t *testing.T) {
	t.Parallel()
	calls := map[string]func(*http.Request) bool{
		"asking": func(r *http.Request) bool {
			return r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/requests")
		},
		"waiting":   func(r *http.Request) bool { return r.Method == http.MethodGet },
		"applying":  func(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/apply") },
		"reporting": func(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/outcome") },
	}
	troubles := map[string]struct {
		reaches bool // the call has its effect
		answer  func(http.ResponseWriter, *http.Request, http.Handler)
	}{
		"cut off before": {false, func(http.ResponseWriter, *http.Request, http.Handler) { panic(http.ErrAbortHandler) }},
		"cut off after": {true, func(_ http.ResponseWriter, r *http.Request, api http.Handler) {
			api.ServeHTTP(httptest.NewRecorder(), r)
			panic(http.ErrAbortHandler)
		}},
		"cut off in the answer": {true, func(w http.ResponseWriter, r *http.Request, api http.Handler) {
			recorder := httptest.NewRecorder()
			api.ServeHTTP(recorder, r)
			w.Header().Set("Content-Length", fmt.Sprint(recorder.Body.Len()))
			w.WriteHeader(recorder.Code)
			_, _ = w.Write(recorder.Body.Bytes()[:recorder.Body.Len()/2])
			panic(http.ErrAbortHandler)
		}},
		"a proxy's answer": {false, func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
			http.Error(w, "<html>bad gateway</html>", http.StatusBadGateway)
		}},
		"a proxy that gave up": {true, func(w http.ResponseWriter, r *http.Request, api http.Handler) {
			api.ServeHTTP(httptest.NewRecorder(), r)
			http.Error(w, "", http.StatusGatewayTimeout)
		}},
		"stopping": {false, func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = io.WriteString(w, `{"error":{"code":"stopping","message":"The server is stopping."}}`)
		}},
	}
	for at, is := range calls {
		for kind, trouble := range troubles {
			t.Run(at+"/"+kind, func(t *testing.T) {
				t.Parallel()
				s := newServer(t)
				var left atomic.Int64
				left.Store(2)
				if trouble.reaches {
					left.Store(1)
				}
				s.comesBetween(func(w http.ResponseWriter, r *http.Request, api http.Handler) {
					if is(r) && left.Add(-1) >= 0 {
						trouble.answer(w, r, api)
						return
					}
					api.ServeHTTP(w, r)
				})
				if at == "waiting" && trouble.reaches {
					trouble.reaches = false // a wait has no effect
				}
				var r runs
				err := s.gate(t, s.approves(t)).Do(t.Context(), payout, r.run)
				stored := s.only(t)
				if at == "applying" && trouble.reaches {
					if !errors.Is(err, gate.ErrLost) || r.count.Load() != 0 || stored.Status != approval.Applied || !stored.Execution.FinishedAt.IsZero() {
						t.Errorf("got %v, ran %d times, and the request is %+v", err, r.count.Load(), stored)
					}
					return
				}
				if err != nil || r.count.Load() != 1 || r.payload.Load() != exact {
					t.Errorf("got %v, ran %d times with %v", err, r.count.Load(), r.payload.Load())
				}
				s.finished(t, stored.ID, approval.Succeeded, "3 paid")
			})
		}
	}
}

// What isn't the server's answer to apply is never a payload.
func TestApplyAnswersThatAreNone(t *testing.T) {
	t.Parallel()
	for _, answer := range []string{
		``, `{}`, `null`, `"{}"`, `[]`, `{"status":"applied"}`, `{"status":"applied","payload":null}`, `{"status":"applied","payload":"{}"}`,
		`{"status":"approved","payload":{}}`, `{"payload":{}}`, `{"Status":"applied","Payload":{}}`, `{"status":"applied","payload":{}}{}`,
		`{"status":"applied","payload":{},"payload":{"a":1}}`, `{"status":"applied","payload":{"a":1,"a":2}}`, "<html>", `{"status":"applied","payload":{"a":`,
		`{"status":"applied","payload":{"a":"` + strings.Repeat("x", 5<<20) + `"}}`,
	} {
		name := answer
		if len(name) > 60 {
			name = name[:60]
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t)
			s.comesBetween(func(w http.ResponseWriter, r *http.Request, api http.Handler) {
				if !strings.HasSuffix(r.URL.Path, "/apply") {
					api.ServeHTTP(w, r)
					return
				}
				api.ServeHTTP(httptest.NewRecorder(), r)
				_, _ = io.WriteString(w, answer)
			})
			var r runs
			err := s.gate(t, s.approves(t)).Do(t.Context(), payout, r.run)
			if _, ok := errors.AsType[*gate.NotRunError](err); !ok || !errors.Is(err, gate.ErrLost) || r.count.Load() != 0 {
				t.Errorf("got %v, ran %d times", err, r.count.Load())
			}
		})
	}
}

// Eight programs that ask for the same share one request, and one of them runs.
func TestContenders(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	var r runs
	var used atomic.Int64
	var asked sync.WaitGroup
	asked.Add(8)
	var contenders sync.WaitGroup
	for range 8 {
		g := s.gate(t, func(o *gate.Options) {
			o.Waiting = func(gate.Request) { asked.Done(); asked.Wait() }
		})
		contenders.Go(func() {
			switch err := g.Do(t.Context(), payout, r.run); {
			case errors.Is(err, gate.ErrUsed):
				used.Add(1)
			case err != nil:
				t.Error(err)
			}
		})
	}
	asked.Wait()
	s.Decide(t, approvaltest.Alice, s.only(t), approval.Approve)
	contenders.Wait()
	if r.count.Load() != 1 || used.Load() != 7 {
		t.Errorf("%d ran, and %d heard that another did", r.count.Load(), used.Load())
	}
}

// Nothing follows a redirect, and nothing shows the token.
func TestTokenStaysHere(t *testing.T) {
	t.Parallel()
	var elsewhere atomic.Int64
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { elsewhere.Add(1) }))
	t.Cleanup(other.Close)
	s := newServer(t)
	s.comesBetween(func(w http.ResponseWriter, r *http.Request, _ http.Handler) {
		http.Redirect(w, r, other.URL+r.URL.Path, http.StatusTemporaryRedirect)
	})
	log := newLogged()
	g := s.gate(t, func(o *gate.Options) {
		o.Logger = slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	var r runs
	err := g.Do(t.Context(), payout, r.run)
	if _, ok := errors.AsType[*gate.NotRunError](err); !ok || !strings.Contains(err.Error(), "status 307") || r.count.Load() != 0 || elsewhere.Load() != 0 {
		t.Errorf("got %v; %d calls went elsewhere", err, elsewhere.Load())
	}
	for _, shown := range []string{fmt.Sprintf("%v %+v %#v", g, g, g), fmt.Sprintf("%+v", *g), err.Error(), log.String()} {
		if strings.Contains(shown, s.token) {
			t.Errorf("the token is in %s", shown)
		}
	}
}

func TestNew(t *testing.T) {
	t.Parallel()
	const token = "countersign_secret"
	for server, want := range map[string]string{
		"https://approvals.example.com":         "",
		"https://approvals.example.com:8443/":   "",
		"http://127.0.0.1:8080":                 "",
		"http://localhost:8080":                 "",
		"http://[::1]:8080":                     "",
		"http://approvals.example.com":          "in the clear",
		"http://localhost.evil.example":         "in the clear",
		"http://127.0.0.1.evil.example":         "in the clear",
		"approvals.example.com":                 "is not an address",
		"":                                      "is not an address",
		"ftp://approvals.example.com":           "is not an address",
		"https://":                              "is not an address",
		"https://approvals.example.com/mcp":     "more than scheme and host",
		"https://approvals.example.com?a=b":     "more than scheme and host",
		"https://approvals.example.com#a":       "more than scheme and host",
		"https://user:pw@approvals.example.com": "more than scheme and host",
		"https://user:pw@approvals.example:x":   "is not an address",
		"user:pw@approvals.example.com":         "is not an address",
	} {
		_, err := gate.New(server, token, gate.Options{})
		if (err == nil) != (want == "") || err != nil && (!strings.Contains(err.Error(), want) || strings.Contains(err.Error(), ":pw@")) {
			t.Errorf("%s: %v, want %q", server, err, want)
		}
	}
	for _, token := range []string{"", "countersign_a b", "countersign_a\n", "countersign_é"} {
		if _, err := gate.New("https://approvals.example.com", token, gate.Options{}); err == nil || token != "" && strings.Contains(err.Error(), token) {
			t.Errorf("the token %q: %v", token, err)
		}
	}
}

// A server whose certificate nobody vouches for is told nothing.
func TestUntrusted(t *testing.T) {
	t.Parallel()
	untrusted := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("it was called") }))
	untrusted.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	untrusted.StartTLS()
	t.Cleanup(untrusted.Close)
	g, err := gate.New(untrusted.URL, "countersign_secret", gate.Options{Transport: &http.Transport{}})
	if err != nil {
		t.Fatal(err)
	}
	var r runs
	if err := g.Do(t.Context(), payout, r.run); err == nil || !strings.Contains(err.Error(), "certificate") || r.count.Load() != 0 {
		t.Errorf("got %v", err)
	}
}

// inside is a gate to a service without a network between, for tests on a clock
// of their own. calls counts the calls that arrive.
func inside(t *testing.T, s *server, calls *atomic.Int64, options ...func(*gate.Options)) *gate.Gate {
	t.Helper()
	api, err := web.NewAPI(s.Service, web.APIOptions{ReviewURL: func(approval.ID) string { return "" }})
	if err != nil {
		t.Fatal(err)
	}
	settings := gate.Options{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
		calls.Add(1)
		recorder := httptest.NewRecorder()
		arrived := httptest.NewRequestWithContext(r.Context(), r.Method, r.URL.RequestURI(), r.Body)
		arrived.Header = r.Header
		api.ServeHTTP(recorder, arrived)
		if r.Context().Err() != nil {
			return nil, r.Context().Err()
		}
		return recorder.Result(), nil
	})}
	for _, option := range options {
		option(&settings)
	}
	g, err := gate.New("http://localhost", s.token, settings)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func bubbleServer(t *testing.T) *server {
	t.Helper()
	s := &server{Fixture: approvaltest.New(t, func(o *approval.Options) { o.Now = nil })}
	_, token, err := s.Service.CreateToken(t.Context(), approval.Operator{Name: "test"}, s.Agent.Name, s.Agent.Owner)
	if err != nil {
		t.Fatal(err)
	}
	s.token = token
	return s
}

// People take their time: one call every 25 s waits for them, and the answer is
// there the moment they decide.
func TestWaitsAsLongAsItTakes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := bubbleServer(t)
		var calls atomic.Int64
		began := time.Now()
		g := inside(t, s, &calls, s.decides(t, func(r *approval.Request) {
			time.AfterFunc(20*time.Hour, func() { s.Decide(t, approvaltest.Alice, r, approval.Approve) })
		}))
		action := payout
		action.TTL = 24 * time.Hour
		var r runs
		if err := g.Do(t.Context(), action, r.run); err != nil || r.count.Load() != 1 {
			t.Fatal(err)
		}
		if waited := time.Since(began); waited != 20*time.Hour {
			t.Errorf("waited %v", waited)
		}
		if got := calls.Load(); got > 20*60*60/25+10 {
			t.Errorf("%d calls", got)
		}
	})
}

// A server that ends every wait at once isn't called in a loop.
func TestServerThatDoesNotWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := bubbleServer(t)
		s.Service.Drain()
		var calls atomic.Int64
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var r runs
		if err := inside(t, s, &calls).Do(ctx, payout, r.run); !errors.Is(err, gate.ErrStopped) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		if got := calls.Load(); got > 62 {
			t.Errorf("%d calls in a minute", got)
		}
	})
}

// A server that is away when it is asked is tried for a minute. One that goes away
// after the run is told for a minute what came of it.
func TestUnreachable(t *testing.T) {
	t.Parallel()
	away := &net.OpError{Op: "dial", Err: errors.New("connection refused")}
	synctest.Test(t, func(t *testing.T) {
		g, err := gate.New("http://localhost", "countersign_secret", gate.Options{
			Transport: roundTripper(func(*http.Request) (*http.Response, error) { return nil, away }),
		})
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		var r runs
		err = g.Do(t.Context(), payout, r.run)
		if _, ok := errors.AsType[*gate.NotRunError](err); !ok || !errors.Is(err, gate.ErrUnreachable) || !errors.Is(err, away) || r.count.Load() != 0 {
			t.Errorf("got %v", err)
		}
		if waited := time.Since(began); waited != time.Minute {
			t.Errorf("tried for %v", waited)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		s := bubbleServer(t)
		var calls atomic.Int64
		g := inside(t, s, &calls, s.approves(t), func(o *gate.Options) {
			reaches := o.Transport
			o.Transport = roundTripper(func(r *http.Request) (*http.Response, error) {
				if strings.HasSuffix(r.URL.Path, "/outcome") {
					return nil, away
				}
				return reaches.RoundTrip(r)
			})
		})
		broken := errors.New("the bank refused")
		err := g.Do(t.Context(), payout, func(context.Context, json.RawMessage) (string, error) { return "", broken })
		if _, ok := errors.AsType[*gate.NotRunError](err); ok || !errors.Is(err, gate.ErrUnreported) || !errors.Is(err, broken) {
			t.Errorf("got %v", err)
		}
	})
}

// Whether the approval may have been used from here is known from what broke.
func TestLostOrUsed(t *testing.T) {
	t.Parallel()
	for operation, want := range map[string]error{"dial": gate.ErrUsed, "read": gate.ErrLost, "write": gate.ErrLost} {
		synctest.Test(t, func(t *testing.T) {
			s := bubbleServer(t)
			var calls atomic.Int64
			var id approval.ID
			decide := s.decides(t, func(r *approval.Request) { id = r.ID; s.Decide(t, approvaltest.Alice, r, approval.Approve) })
			g := inside(t, s, &calls, decide, func(o *gate.Options) {
				reaches, broke := o.Transport, false
				o.Transport = roundTripper(func(r *http.Request) (*http.Response, error) {
					if strings.HasSuffix(r.URL.Path, "/apply") && !broke {
						broke = true
						if _, err := s.Service.Claim(r.Context(), s.Agent, id); err != nil {
							t.Error(err)
						}
						return nil, &net.OpError{Op: operation, Err: errors.New("broken")}
					}
					return reaches.RoundTrip(r)
				})
			})
			var r runs
			if err := g.Do(t.Context(), payout, r.run); !errors.Is(err, want) || r.count.Load() != 0 {
				t.Errorf("%s: got %v, want %v", operation, err, want)
			}
		})
	}
}
