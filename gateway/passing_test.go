package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

func TestArgumentsArriveAsWritten(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, version string, one Server, _ *testServer) {
		f := startAll(t, one)
		sent := exoticObject
		if version == modern && one.URL != "" {
			// The SDK's own server doesn't take it there; another one does below.
			sent = strings.Replace(sent, "1e400", "1e300", 1)
		}
		params := `{"arguments":` + sent + `,"_meta":{"traceparent":"00-1","progressToken":"agent's","io.modelcontextprotocol/clientInfo":{"name":"agent's"}},"name":"echo"}`
		result, err := f.call(t.Context(), "one", methodCallTool, json.RawMessage(params), relay{})
		if err != nil {
			t.Fatal(err)
		}
		got := texts(t, string(result))
		if diff := cmp.Diff(sent, got[0]); diff != "" {
			t.Errorf("arguments (-sent +arrived):\n%s", diff)
		}
		var meta map[string]json.RawMessage
		if err := json.Unmarshal([]byte(got[1]), &meta); err != nil {
			t.Fatal(err)
		}
		if string(meta["traceparent"]) != `"00-1"` {
			t.Errorf("the agent's own _meta didn't arrive: %s", got[1])
		}
		if strings.Contains(got[1], "agent's") {
			t.Errorf("what belongs to the agent's connection went downstream: %s", got[1])
		}
		if _, ok := meta["progressToken"]; !ok {
			t.Errorf("no progress was asked for: %s", got[1])
		}
	})
}

func TestResultsArriveAsWritten(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, version string, one Server, _ *testServer) {
		f := startAll(t, one)
		if diff := cmp.Diff(exoticResult, f.tool(t, "exotic", "{}")); diff != "" {
			t.Errorf("result (-written +arrived):\n%s", diff)
		}
		if got := f.tool(t, "echo", "{}"); strings.Contains(got, "test-downstream") {
			t.Errorf("the downstream server's name comes through: %s", got)
		}
		if diff := cmp.Diff(inputNeeded, f.tool(t, "input", "{}")); diff != "" {
			t.Errorf("input_required (-written +arrived):\n%s", diff)
		}
	})
}

func TestOtherMethodsPass(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, _ string, one Server, _ *testServer) {
		f := startAll(t, one)
		for _, test := range []struct{ method, params, want string }{
			{methodReadResource, `{"uri":"test://one"}`, `"text":"1"`},
			{methodReadResource, `{"uri":"test://by/7"}`, `"uri":"test://by/7"`},
			{methodGetPrompt, `{"name":"greet","arguments":{"name":"Ada"}}`, `Hello, Ada`},
			{methodComplete, `{"ref":{"type":"ref/prompt","name":"greet"},"argument":{"name":"name","value":"o"}}`, `"one"`},
		} {
			result, err := f.call(t.Context(), "one", test.method, json.RawMessage(test.params), relay{})
			if err != nil || !strings.Contains(string(result), test.want) {
				t.Errorf("%s %s: %s (%v), want %s", test.method, test.params, result, err, test.want)
			}
		}
		c := f.catalog()
		if got := c.resourceServer("test://one"); got != "one" {
			t.Errorf("the server of a listed resource is %q", got)
		}
		if got := c.resourceServer("test://by/7"); got != "one" {
			t.Errorf("the server of a template's resource is %q", got)
		}
		if got := c.resourceServer("other://x"); got != "" {
			t.Errorf("the server of an unknown resource is %q", got)
		}
		if c.prompt("greet") == nil || c.prompt("other") != nil {
			t.Error("prompts aren't found by their names")
		}
	})
}

// The SDK takes some codes for its own errors, and forgets their data.
func TestErrorsArriveAsWritten(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, _ string, one Server, _ *testServer) {
		f := startAll(t, one)
		for _, code := range []int64{-32602, -32603, -32001, -32002, -32003, -32004, -32005, -32042, 7} {
			want := fmt.Sprintf(`{"code":%d,"message":"it <failed>","data":{"z":9007199254740993,"a":[1e300,0.10]}}`, code)
			_, err := f.call(t.Context(), "one", methodCallTool, json.RawMessage(`{"name":"fail","arguments":`+want+`}`), relay{})
			requireWire(t, err, want)
		}
		f.tool(t, "echo", "{}") // on the same connection
		if n := f.logs.count(upText); n != 1 {
			t.Errorf("it was connected %d times", n)
		}
	})
}

func TestProgressPasses(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, _ string, one Server, _ *testServer) {
		f := startAll(t, one)
		var got []string
		_, err := f.call(t.Context(), "one", methodCallTool, json.RawMessage(`{"name":"count","arguments":{}}`), relay{
			progress: func(params json.RawMessage) { got = append(got, string(params)) },
		})
		if err != nil {
			t.Fatal(err)
		}
		var want []string
		for n := 1; n <= 5; n++ {
			want = append(want, fmt.Sprintf(`{"message":"step %d","progress":%d,"total":5}`, n, n))
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("progress (-want +got):\n%s", diff)
		}
	})
}

func TestCancellationPasses(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, _ string, one Server, server *testServer) {
		f := startAll(t, one)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			_, err := f.call(ctx, "one", methodCallTool, json.RawMessage(`{"name":"wait","arguments":{"id":"a"}}`), relay{})
			ended <- err
		}()
		if server == nil {
			f.logs.await(t, 1, "waiting a")
		} else {
			receive(t, server.waiting)
		}
		cancel()
		err := receive(t, ended)
		requireKind(t, err, errCutOff)
		if !errors.Is(err, context.Canceled) {
			t.Errorf("the error doesn't say why: %v", err)
		}
		if server == nil {
			f.logs.await(t, 1, "cancelled a")
		} else {
			receive(t, server.cancelled)
		}
		f.tool(t, "echo", "{}")
	})
}

func TestListChangesPass(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, _ string, one Server, _ *testServer) {
		f := startAll(t, one)
		changes := make(chan string, 10)
		stop := f.watch(func(kind string) { changes <- kind })
		defer stop()
		if f.catalog().tool("grown") != nil {
			t.Fatal("it has grown before")
		}
		f.tool(t, "grow", "{}")
		for f.catalog().tool("grown") == nil {
			if kind := receive(t, changes); kind != kindTools {
				t.Fatalf("%s changed", kind)
			}
		}
	})
}

// Before 2026-07-28 a server asks while it answers; since then, in its result.
func TestElicitationPasses(t *testing.T) {
	t.Parallel()
	eachKindOf(t, []string{legacy}, func(t *testing.T, _ string, one Server, _ *testServer) {
		f := startAll(t, one)
		ask := func(answer string, err error) (asked, answered string) {
			t.Helper()
			result, callErr := f.call(t.Context(), "one", methodCallTool, json.RawMessage(`{"name":"ask","arguments":{}}`), relay{
				elicit: func(ctx context.Context, params json.RawMessage) (json.RawMessage, error) {
					asked = string(params)
					return json.RawMessage(answer), err
				},
			})
			if callErr != nil {
				return asked, callErr.Error()
			}
			return asked, texts(t, string(result))[0]
		}
		asked, answered := ask(`{"content":{"zeta":12345678,"alpha":"x"},"action":"accept"}`, nil)
		if !strings.Contains(asked, `"requestedSchema":{"type":"object","properties":{"zeta":{"type":"integer"},"alpha":{"type":"string"}}}`) {
			t.Errorf("the question arrived as %s", asked)
		}
		if want := `{"action":"accept","content":{"alpha":"x","zeta":12345678}}`; answered != want {
			t.Errorf("the answer arrived as %s, want %s", answered, want)
		}
		if _, answered := ask(`{"action":"decline"}`, nil); answered != `{"action":"decline"}` {
			t.Errorf("the answer arrived as %s", answered)
		}
		for name, answer := range map[string]string{"no answer": "", "half an answer": `{"action":"acc`} {
			if _, answered := ask(answer, nil); answered != `{"action":"cancel"}` {
				t.Errorf("%s arrived as %s", name, answered)
			}
		}
		if _, answered := ask("", errors.New("nobody is there")); answered != `{"action":"cancel"}` {
			t.Errorf("an error arrived as %s", answered)
		}
		if _, answered := ask("", &jsonrpc.Error{Code: -32602, Message: "no such mode"}); !strings.Contains(answered, "no such mode") {
			t.Errorf("a client's error arrived as %s", answered)
		}
		if got := texts(t, f.tool(t, "ask", "{}"))[0]; got != `{"action":"cancel"}` {
			t.Errorf("where nobody can be asked: %s", got)
		}
	})
}

// A question goes to nobody if it may be somebody else's. Over HTTP it comes on
// the answer to one call, so there it is known.
func TestElicitationOfOneAmongSeveral(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"stdio", "http"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			one, want := childConfiguration(t, "one", legacy), `{"action":"cancel"}`
			if kind == "http" {
				one, want = Server{Name: "one", URL: serveHTTP(t, newTestServer(legacy), legacy).URL}, `{"action":"decline"}`
			}
			f := startAll(t, one)
			ctx, cancel := context.WithCancel(t.Context())
			others := make(chan error, 1)
			started := make(chan struct{})
			go func() {
				_, err := f.call(ctx, "one", methodCallTool, json.RawMessage(`{"name":"ask","arguments":{}}`), relay{
					elicit: func(ctx context.Context, _ json.RawMessage) (json.RawMessage, error) {
						close(started)
						<-ctx.Done() // which the end of the call must end
						return nil, ctx.Err()
					},
				})
				others <- err
			}()
			receive(t, started)
			result, err := f.call(t.Context(), "one", methodCallTool, json.RawMessage(`{"name":"ask","arguments":{}}`), relay{
				elicit: func(context.Context, json.RawMessage) (json.RawMessage, error) {
					return json.RawMessage(`{"action":"decline"}`), nil
				},
			})
			if err != nil {
				t.Fatal(err)
			}
			if got := texts(t, string(result))[0]; got != want {
				t.Errorf("got %s, want %s", got, want)
			}
			cancel()
			requireKind(t, receive(t, others), errCutOff)
		})
	}
}

func TestWhatIsNotPassedOn(t *testing.T) {
	t.Parallel()
	f := startAll(t, childConfiguration(t, "one", modern))
	for _, test := range []struct {
		method, params string
		code           int64
	}{
		{"initialize", `{}`, jsonrpc.CodeMethodNotFound},
		{"roots/list", `{}`, jsonrpc.CodeMethodNotFound},
		{methodCallTool, `{"name":"echo","name":"exotic"}`, jsonrpc.CodeInvalidParams},
		{methodCallTool, `{"name":"echo","arguments":{"a":1,"\u0061":2}}`, jsonrpc.CodeInvalidParams},
		{methodCallTool, `[]`, jsonrpc.CodeInvalidParams},
		{methodCallTool, `{"name":"echo","_meta":1}`, jsonrpc.CodeInvalidParams},
		{methodCallTool, `{"name":"echo"} `, 0},
		{methodCallTool, `{"name":"echo","_meta":null}`, 0},
	} {
		_, err := f.call(t.Context(), "one", test.method, json.RawMessage(test.params), relay{})
		wire, _ := err.(*jsonrpc.Error)
		if test.code == 0 && err != nil || test.code != 0 && (wire == nil || wire.Code != test.code) {
			t.Errorf("%s %s: %v, want code %d", test.method, test.params, err, test.code)
		}
	}
	_, err := f.call(t.Context(), "other", methodCallTool, nil, relay{})
	requireKind(t, err, errUnavailable)
}

// A server is told of the calls for which nobody waits any more when the gateway
// ends.
func TestEndIsTold(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, _ string, one Server, server *testServer) {
		f := startAll(t, one)
		ended := make(chan error, 1)
		go func() {
			_, err := f.call(context.Background(), "one", methodCallTool, json.RawMessage(`{"name":"wait","arguments":{"id":"a"}}`), relay{})
			ended <- err
		}()
		if server == nil {
			f.logs.await(t, 1, "waiting a")
		} else {
			receive(t, server.waiting)
		}
		began := time.Now()
		f.stop()
		if took := time.Since(began); took >= closeWait {
			t.Errorf("it took %s", took)
		}
		requireKind(t, receive(t, ended), errCutOff)
		if server == nil {
			f.logs.await(t, 1, "cancelled a")
		} else {
			receive(t, server.cancelled)
		}
	})
}
