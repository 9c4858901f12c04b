package gateway

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"pgregory.net/rapid"
)

// answersTo answers tools/call in one way, but for the tool "hold", which waits
// for release.
type answersTo struct {
	release chan struct{}
	holding chan struct{}
}

func newAnswersTo() *answersTo {
	return &answersTo{release: make(chan struct{}), holding: make(chan struct{}, 1)}
}

func (a *answersTo) handler(answer func(w http.ResponseWriter, r *http.Request, id string)) http.Handler {
	return script(modest).handler(func(w http.ResponseWriter, r *http.Request, message envelope) bool {
		if message.Method != methodCallTool {
			return false
		}
		if bytes.Contains(message.Params, []byte(`"hold"`)) {
			a.holding <- struct{}{}
			<-a.release
			return false
		}
		answer(w, r, string(message.ID))
		return true
	})
}

func status(code int, kind, body string) func(http.ResponseWriter, *http.Request, string) {
	return func(w http.ResponseWriter, _ *http.Request, id string) {
		w.Header().Set("Content-Type", kind)
		w.Header().Set("Location", "/elsewhere")
		w.WriteHeader(code)
		_, _ = io.WriteString(w, strings.ReplaceAll(body, "ID", id))
	}
}

// What never ran and what may have run are told apart, and a call that goes wrong
// cuts no other off.
func TestHTTPAnswersThatAreNone(t *testing.T) {
	t.Parallel()
	const wire = `{"jsonrpc":"2.0","id":ID,"error":{"code":-32003,"message":"no","data":{"z":1e400,"a":2}}}`
	for name, test := range map[string]struct {
		answer func(http.ResponseWriter, *http.Request, string)
		kind   error // nil for the error in wire
	}{
		"moved":                   {status(302, "text/plain", "x"), errUnavailable},
		"moved, as it was":        {status(307, "text/plain", "x"), errUnavailable},
		"no credentials":          {status(401, "text/plain", "x"), errUnavailable},
		"wrong credentials":       {status(403, "application/json", wire), errUnavailable},
		"not found":               {status(404, "text/plain", "x"), errUnavailable},
		"no POST":                 {status(405, "text/plain", "x"), errUnavailable},
		"too large":               {status(413, "text/plain", "x"), errUnavailable},
		"wrong type":              {status(415, "text/plain", "x"), errUnavailable},
		"too often":               {status(429, "text/plain", "x"), errUnavailable},
		"bad":                     {status(400, "text/plain", "x"), errCutOff},
		"conflict":                {status(409, "text/plain", "x"), errCutOff},
		"broken":                  {status(500, "text/plain", "x"), errCutOff},
		"bad gateway":             {status(502, "text/html", "x"), errCutOff},
		"unavailable":             {status(503, "text/plain", "x"), errCutOff},
		"gateway timeout":         {status(504, "text/plain", "x"), errCutOff},
		"an error, said as such":  {status(400, "application/json", wire), nil},
		"an error, not found":     {status(404, "application/json", wire), nil},
		"an error, broken":        {status(500, "application/json", wire), nil},
		"an error in a result":    {status(200, "application/json", wire), nil},
		"an error in an event":    {status(200, "text/event-stream", "event: message\ndata: "+wire+"\n\n"), nil},
		"an error in more lines":  {status(200, "text/event-stream", strings.ReplaceAll("data: "+wire, `,"error"`, "\ndata:,\"error\"")+"\r\n\r\n"), nil},
		"a stream without an end": {status(200, "text/event-stream", "data: {\"jsonrpc\":\"2.0\""), errCutOff},
		"a stream of nothing":     {status(200, "text/event-stream", ": nothing\n\n"), errCutOff},
		"too long an event":       {status(200, "text/event-stream", "data: "+strings.Repeat("x", maxMessage+1)+"\n\n"), errCutOff},
		"gone": {func(w http.ResponseWriter, _ *http.Request, _ string) {
			connection, _, err := http.NewResponseController(w).Hijack()
			if err == nil {
				_ = connection.Close()
			}
		}, errCutOff},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newAnswersTo()
			f := startAll(t, Server{Name: "one", URL: listen(t, a.handler(test.answer)).URL})
			held := make(chan error, 1)
			go func() {
				_, err := f.call(context.Background(), "one", methodCallTool, json.RawMessage(`{"name":"hold"}`), relay{})
				held <- err
			}()
			receive(t, a.holding)
			_, err := f.call(t.Context(), "one", methodCallTool, json.RawMessage(`{"name":"t"}`), relay{})
			if test.kind == nil {
				requireWire(t, err, `{"code":-32003,"message":"no","data":{"z":1e400,"a":2}}`)
			} else {
				requireKind(t, err, test.kind)
			}
			if strings.Contains(err.Error(), rawPrefix) || strings.Contains(err.Error(), "127.0.0.1") {
				t.Errorf("the error says too much: %v", err)
			}
			close(a.release)
			if err := receive(t, held); err != nil {
				t.Errorf("it cut another call off: %v", err)
			}
		})
	}
}

// Answers by which the SDK ends the connection.
func TestHTTPAnswersThatEndTheConnection(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]func(http.ResponseWriter, *http.Request, string){
		"not JSON":     status(200, "application/json", `{"jsonrpc":`),
		"not MCP":      status(200, "text/html", `<html>`),
		"too long":     status(200, "application/json", `{"jsonrpc":"2.0","id":ID,"result":{"x":"`+strings.Repeat("x", maxMessage)+`"}}`),
		"not an event": status(200, "text/event-stream", "data: {\n\n"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := startAll(t, Server{Name: "one", URL: listen(t, newAnswersTo().handler(answer)).URL})
			_, err := f.call(t.Context(), "one", methodCallTool, json.RawMessage(`{"name":"t"}`), relay{})
			requireKind(t, err, errCutOff)
			f.logs.await(t, 2, upText)
		})
	}
}

func TestHTTPServerThatIsGone(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(script(modest).handler(func(w http.ResponseWriter, _ *http.Request, _ envelope) bool {
		w.Header().Set("Connection", "close") // so that a call needs a new one
		return false
	}))
	f := startAll(t, Server{Name: "one", URL: s.URL})
	s.Close()
	_, err := f.call(t.Context(), "one", methodCallTool, json.RawMessage(`{"name":"t"}`), relay{})
	requireKind(t, err, errUnavailable)
	f.logs.await(t, 1, downText)
	if n := f.logs.count(s.URL); n != 0 {
		t.Errorf("the address, which may have a secret in it, is logged %d times", n)
	}
}

// A certificate that isn't trusted keeps a server down, and nothing is sent.
func TestHTTPServerThatIsNotTrusted(t *testing.T) {
	t.Parallel()
	asked := false
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked = true }))
	s.Config.ErrorLog = newLogs().standard()
	s.StartTLS()
	t.Cleanup(s.Close)
	f := start(t, Server{Name: "one", URL: s.URL, Headers: map[string]string{"Authorization": "Bearer secret"}})
	f.logs.await(t, 1, downText, "certificate")
	f.stop()
	if asked {
		t.Error("it was asked")
	}
}

// A server mustn't send on what is meant for it.
func TestRedirectsAreNotFollowed(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var elsewhere []string
	other := listen(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		elsewhere = append(elsewhere, fmt.Sprint(r.Method, r.Header))
	}))
	for _, code := range []int{301, 302, 303, 307, 308} {
		s := listen(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, other.URL, code) }))
		f := start(t, Server{Name: "one", URL: s.URL, Headers: map[string]string{"Authorization": "Bearer secret"}})
		f.logs.await(t, 2, downText, "isn't followed")
		f.stop()
	}
	mu.Lock()
	defer mu.Unlock()
	if len(elsewhere) != 0 {
		t.Errorf("another address was asked: %s", elsewhere)
	}
}

// Nothing of the agent's request goes downstream but the parameters.
func TestNothingOfTheAgentGoesDownstream(t *testing.T) {
	t.Parallel()
	eachVersion(t, func(t *testing.T, version string) {
		server := newTestServer(version)
		var mu sync.Mutex
		var headers []http.Header
		inner := serveHTTP(t, server, version).Config.Handler
		s := listen(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			headers = append(headers, r.Header.Clone())
			mu.Unlock()
			inner.ServeHTTP(w, r)
		}))
		f := startAll(t, Server{Name: "one", URL: s.URL, Headers: map[string]string{"Authorization": "Bearer downstream", "X-Team": "blue"}})
		upstream := listen(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			result, err := f.call(r.Context(), "one", methodCallTool, json.RawMessage(`{"name":"echo","arguments":{}}`), relay{})
			if err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
			_, _ = w.Write(result)
		}))
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, upstream.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"Authorization", "Cookie", "X-Agent", "Mcp-Session-Id", "Mcp-Param-X", "Forwarded", "User-Agent"} {
			request.Header.Set(name, "agent's secret")
		}
		response, err := upstream.Client().Do(request)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if response.StatusCode != http.StatusOK {
			t.Fatal(response.Status)
		}
		allowed := []string{
			"Accept", "Accept-Encoding", "Authorization", "Content-Length", "Content-Type", "User-Agent", "X-Team",
			"Mcp-Method", "Mcp-Name", "Mcp-Protocol-Version", "Mcp-Session-Id",
		}
		mu.Lock()
		defer mu.Unlock()
		for _, header := range headers {
			for name, values := range header {
				if !slices.Contains(allowed, name) || strings.Contains(fmt.Sprint(values), "agent's") {
					t.Errorf("%s: %s went downstream", name, values)
				}
			}
			if header.Get("Authorization") != "Bearer downstream" || header.Get("X-Team") != "blue" {
				t.Errorf("the configured headers are missing: %s", header)
			}
		}
	})
}

func eachVersion(t *testing.T, test func(t *testing.T, version string)) {
	t.Helper()
	for _, version := range []string{legacy, modern} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			test(t, version)
		})
	}
}

// A server that has forgotten a session didn't look at the call, but may have
// run others that were under way.
func TestSessionThatIsGone(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	sessions := 0
	holding := make(chan struct{}, 1)
	server := but(modest, "server/discover", func(json.RawMessage) string { return `"error":{"code":-32601,"message":"what?"}` })
	server = but(server, "initialize", func(json.RawMessage) string {
		return `"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}`
	})
	s := listen(t, server.handler(func(w http.ResponseWriter, r *http.Request, message envelope) bool {
		switch {
		case message.Method == "initialize":
			mu.Lock()
			sessions++
			w.Header().Set("Mcp-Session-Id", fmt.Sprint("s", sessions))
			mu.Unlock()
		case r.Header.Get("Mcp-Session-Id") != "s1":
		case bytes.Contains(message.Params, []byte(`"hold"`)):
			holding <- struct{}{}
			<-r.Context().Done()
			return true
		case message.Method == methodCallTool:
			status(404, "application/json", `{"jsonrpc":"2.0","id":ID,"error":{"code":-32001,"message":"Session not found"}}`)(w, r, string(message.ID))
			return true
		}
		return false
	}))
	f := startAll(t, Server{Name: "one", URL: s.URL})
	held := make(chan error, 1)
	go func() {
		_, err := f.call(context.Background(), "one", methodCallTool, json.RawMessage(`{"name":"hold"}`), relay{})
		held <- err
	}()
	receive(t, holding)
	_, err := f.call(t.Context(), "one", methodCallTool, json.RawMessage(`{"name":"t"}`), relay{})
	requireKind(t, err, errUnavailable)
	requireKind(t, receive(t, held), errCutOff)
	f.logs.await(t, 2, upText)
	if _, err := f.call(t.Context(), "one", methodCallTool, json.RawMessage(`{"name":"t"}`), relay{}); err != nil {
		t.Errorf("in the new session: %v", err)
	}
}

// Answers for which the SDK waits without a limit don't hold the gateway up.
func TestServersThatHang(t *testing.T) {
	t.Parallel()
	for name, hangs := range map[string]func(r *http.Request, method string) bool{
		"at once":      func(*http.Request, string) bool { return true },
		"on listening": func(_ *http.Request, method string) bool { return method == "subscriptions/listen" },
		"on the tools": func(_ *http.Request, method string) bool { return method == methodListTools },
		"on saying goodbye": func(r *http.Request, method string) bool {
			return method == "notifications/cancelled" || r.Method == http.MethodDelete
		},
		"on the open stream": func(r *http.Request, _ string) bool { return r.Method == http.MethodGet },
	} {
		eachVersion(t, func(t *testing.T, version string) {
			t.Run(name, func(t *testing.T) {
				inner := serveHTTP(t, newTestServer(version), version).Config.Handler
				hung := make(chan struct{}, 100)
				s := listen(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					body, err := io.ReadAll(r.Body)
					if err != nil {
						return
					}
					var message envelope
					_ = json.Unmarshal(body, &message) // what isn't JSON has no method
					if hangs(r, message.Method) {
						hung <- struct{}{}
						<-r.Context().Done()
						return
					}
					r.Body = io.NopCloser(bytes.NewReader(body))
					inner.ServeHTTP(w, r)
				}))
				f := start(t, Server{Name: "one", URL: s.URL, StartTimeout: 300 * time.Millisecond})
				switch {
				case name == "on saying goodbye", name == "on the open stream", name == "on listening" && version == legacy:
					f.logs.await(t, 1, upText)
				default:
					receive(t, hung)
					f.logs.await(t, 1, downText)
				}
				began := time.Now()
				f.stop()
				if took := time.Since(began); took > 2*closeWait {
					t.Errorf("it held up the end for %s", took)
				}
			})
		})
	}
}

// On 2026-07-28 some arguments are in headers too, which the SDK's server checks.
func TestArgumentsInHeaders(t *testing.T) {
	t.Parallel()
	server := newTestServer(modern)
	server.AddTool(&sdk.Tool{Name: "headers", InputSchema: json.RawMessage(`{"type":"object","properties":{
		"text":{"type":"string","x-mcp-header":"Text"},
		"number":{"type":"integer","x-mcp-header":"number"},
		"yes":{"type":"boolean","x-mcp-header":"Yes"},
		"in":{"type":"object","properties":{"er":{"type":"string","x-mcp-header":"In-Er"}}},
		"other":{"type":"number"}}}`)}, server.echo)
	f := startAll(t, Server{Name: "one", URL: serveHTTP(t, server, modern).URL})
	for _, arguments := range []string{
		`{}`,
		`{"text":"a","number":1,"yes":true,"in":{"er":"b"},"other":9007199254740993}`,
		`{"text":"","number":-9007199254740991,"yes":false,"in":{}}`,
		`{"text":"Zoë\n","number":10.0,"in":{"er":" b "}}`,
		`{"text":"=?base64?YQ==?=","number":1e3,"in":7}`,
		`{"text":"=?base64?","number":null,"yes":null,"in":null}`,
		`{"text":"a\u0000b","number":0.10e1}`,
	} {
		if got := texts(t, f.tool(t, "headers", arguments))[0]; got != arguments {
			t.Errorf("got %s, want %s", got, arguments)
		}
	}
}

func TestParamHeaders(t *testing.T) {
	t.Parallel()
	for schema, want := range map[string]string{
		`{}`:                "",
		`true`:              "",
		`{"properties":[]}`: "",
		`{"properties":{}}`: "",
		`{"properties":{"a":{"type":"string","x-mcp-header":"A"}}}`:                                                   "[{[a] Mcp-Param-A}]",
		`{"properties":{"a":{"type":"number","x-mcp-header":"A"}}}`:                                                   "is not for a string, an integer or a boolean",
		`{"properties":{"a":{"x-mcp-header":"A"}}}`:                                                                   "is not for a string, an integer or a boolean",
		`{"properties":{"a":{"type":"string","x-mcp-header":""}}}`:                                                    "is not the name of a header",
		`{"properties":{"a":{"type":"string","x-mcp-header":7}}}`:                                                     "is not the name of a header",
		`{"properties":{"a":{"type":"string","x-mcp-header":"A\r\nB"}}}`:                                              "is not the name of a header",
		`{"properties":{"a":{"type":"string","x-mcp-header":"A"},"b":{"type":"string","x-mcp-header":"a"}}}`:          "twice",
		`{"properties":{"a":{"properties":{"b":{"properties":{"c":{"type":"boolean","x-mcp-header":"C"}}}}}}}`:        "[{[a b c] Mcp-Param-C}]",
		strings.Repeat(`{"properties":{"a":`, 20) + `{"type":"string","x-mcp-header":"A"}` + strings.Repeat("}}", 20): "",
	} {
		found, err := paramHeaders(json.RawMessage(schema))
		got := fmt.Sprint(found)
		if err != nil {
			got = err.Error()
		}
		if want == "" && (err != nil || len(found) != 0) || !strings.Contains(got, want) {
			t.Errorf("%s: %s, want %s", schema, got, want)
		}
	}
}

// Over HTTP as elsewhere, what the SDK's own server doesn't take passes too.
func TestHTTPPassesEveryDigit(t *testing.T) {
	t.Parallel()
	s := listen(t, script(modest).handler(func(w http.ResponseWriter, r *http.Request, message envelope) bool {
		if message.Method != methodCallTool {
			return false
		}
		if got, want := r.Header.Get("Mcp-Method")+" "+r.Header.Get("Mcp-Name"), "tools/call t"; got != want {
			http.Error(w, got, http.StatusBadRequest)
			return true
		}
		var params struct{ Arguments json.RawMessage }
		if err := json.Unmarshal(message.Params, &params); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return true
		}
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = fmt.Fprintf(w, ": waiting\n\nid: 1\nevent: message\ndata: {\"jsonrpc\":\"2.0\",\"id\":%s,\ndata:\"result\":{\"echo\":%s}}\n\n", message.ID, params.Arguments)
		return true
	}))
	f := startAll(t, Server{Name: "one", URL: s.URL})
	if diff := cmp.Diff(`{"echo":`+exoticObject+`}`, f.tool(t, "t", exoticObject)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestHeaderValue(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.String().Draw(t, "text")
		for _, c := range []byte(headerValue(text)) {
			if c < ' ' || c > '~' {
				t.Fatalf("%q becomes %q", text, headerValue(text))
			}
		}
	})
}

// A stream of events is read alike however it arrives, and translated where and
// only where a message is.
func TestMessageReader(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		end := rapid.SampledFrom([]string{"\n", "\r\n"}).Draw(t, "end")
		var stream strings.Builder
		var want []string
		for range rapid.IntRange(0, 5).Draw(t, "events") {
			for _, line := range rapid.SliceOfN(rapid.SampledFrom([]string{": comment", "id: 7", "event: message", "retry: 5"}), 0, 3).Draw(t, "fields") {
				stream.WriteString(line + end)
			}
			lines := rapid.SliceOfN(rapid.StringMatching(`[a-z]{1,5}`), 0, 3).Draw(t, "lines")
			for _, line := range lines {
				stream.WriteString(rapid.SampledFrom([]string{"data: ", "data:"}).Draw(t, "field") + line + end)
			}
			stream.WriteString(end)
			if len(lines) > 0 {
				want = append(want, strings.Join(lines, "\n"))
			}
		}
		source := io.Reader(strings.NewReader(stream.String()))
		if rapid.Bool().Draw(t, "byte by byte") {
			source = iotest.OneByteReader(source)
		}
		var got []string
		translated := rapid.Bool().Draw(t, "translated")
		reader := &messageReader{source: bufio.NewReaderSize(source, 16), events: true, translate: func(text []byte) []byte {
			got = append(got, string(text))
			if translated {
				return []byte("other")
			}
			return text
		}}
		read, err := io.ReadAll(reader)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("messages in %q (-want +got):\n%s", stream.String(), diff)
		}
		if !translated && string(read) != stream.String() {
			t.Fatalf("%q became %q", stream.String(), read)
		}
		if translated && (strings.Count(string(read), "data: other\n") != len(want) || strings.Count(string(read), "data") != len(want)) {
			t.Fatalf("%q became %q", stream.String(), read)
		}
		for _, field := range []string{"id: 7", ": comment", "retry: 5"} {
			if strings.Count(string(read), field) != strings.Count(stream.String(), field) {
				t.Fatalf("%q became %q", stream.String(), read)
			}
		}
	})
}
