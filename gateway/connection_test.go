package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

func TestBackOff(t *testing.T) {
	t.Parallel()
	var attempts []time.Duration
	began := time.Time{}
	prepare := func(c *connection) {
		began = time.Now()
		c.open = func(context.Context) (sdk.Transport, func()) {
			attempts = append(attempts, time.Since(began))
			return failing{}, func() {}
		}
	}
	inBubble(t, prepare, func(t *testing.T, b *bubble) {
		time.Sleep(4 * time.Minute) // in the bubble
		b.stop()
		var want []time.Duration
		for _, second := range []time.Duration{0, 1, 3, 7, 15, 31, 63, 123, 183} {
			want = append(want, second*time.Second)
		}
		if diff := cmp.Diff(want, attempts); diff != "" {
			t.Errorf("attempts (-want +got):\n%s", diff)
		}
		_, err := b.call(t.Context(), "one", methodCallTool, json.RawMessage(`{"name":"t"}`), relay{})
		requireKind(t, err, errUnavailable)
	})
}

// A server that was up for long is tried again at once; one that keeps ending
// soon isn't.
func TestBackOffStartsAnew(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		lasts time.Duration
		want  time.Duration // the pause after the third time
	}{
		{time.Second, 4 * time.Second},
		{2 * time.Minute, time.Second},
	} {
		var connected []time.Time
		prepare := func(c *connection) {
			pipe(c, func(far io.ReadWriteCloser) {
				connected = append(connected, time.Now())
				time.AfterFunc(test.lasts, func() { _ = far.Close() })
				script(modest).serve(far)
			})
		}
		inBubble(t, prepare, func(t *testing.T, b *bubble) {
			for range 3 {
				time.Sleep(test.lasts + test.want)
			}
			time.Sleep(time.Minute)
			b.stop()
			if got := connected[3].Sub(connected[2]) - test.lasts; got != test.want {
				t.Errorf("after it lasted %s: tried again after %s, want %s", test.lasts, got, test.want)
			}
		})
	}
}

// What a server that is down offered stays, and its calls say that it is down.
func TestOffersStayWhileDown(t *testing.T) {
	t.Parallel()
	var far io.Closer
	opened := 0
	prepare := func(c *connection) {
		pipe(c, func(end io.ReadWriteCloser) {
			if opened++; opened > 1 {
				_ = end.Close()
				return
			}
			far = end
			script(modest).serve(end)
		})
	}
	inBubble(t, prepare, func(t *testing.T, b *bubble) {
		synctest.Wait()
		if !b.up("one") {
			t.Fatalf("it isn't up: %q", b.logs.lines)
		}
		_ = far.Close()
		synctest.Wait()
		if b.up("one") {
			t.Error("it counts as up")
		}
		_, err := b.call(t.Context(), "one", methodCallTool, json.RawMessage(`{"name":"t"}`), relay{})
		requireKind(t, err, errUnavailable)
		if b.catalog().tool("t") == nil {
			t.Error("its tool is gone")
		}
	})
}

// A list without an end, or with too much, keeps a server down and is said.
func TestListsAreBounded(t *testing.T) {
	t.Parallel()
	pages := 0
	many := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `,{"name":"t%d","uri":"u:%d","inputSchema":{"type":"object"}}`, i, i)
		}
		return "[" + b.String()[1:] + "]"
	}
	for name, test := range map[string]struct {
		server script
		says   string
	}{
		"endless tools": {
			but(modest, methodListTools, func(json.RawMessage) string {
				pages++
				return fmt.Sprintf(`"result":{"tools":[{"name":"t%d"}],"nextCursor":"%d"}`, pages, pages)
			}), "doesn't end within 100 pages",
		},
		"endless empty pages": {
			but(modest, methodListTools, func(json.RawMessage) string { return `"result":{"tools":[],"nextCursor":"x"}` }), "doesn't end within 100 pages",
		},
		"too many tools": {
			but(modest, methodListTools, func(json.RawMessage) string { return `"result":{"tools":` + many(maxListed+1) + `}` }), "it lists more than 1000 tools",
		},
		"too large a list": {
			but(modest, methodListTools, func(json.RawMessage) string {
				return `"result":{"tools":[{"name":"t","description":"` + strings.Repeat("x", 1<<20) + `"}],"nextCursor":"x"}`
			}), "its list of tools is larger than 16 MiB",
		},
		"no list": {
			but(modest, methodListTools, func(json.RawMessage) string { return `"result":{"tools":7}` }), "is not an array",
		},
		"tools that can't be listed": {
			but(modest, methodListTools, func(json.RawMessage) string { return `"error":{"code":-32603,"message":"broken"}` }), "broken",
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(c *connection) { pipe(c, test.server.serve) }, func(t *testing.T, b *bubble) {
				synctest.Wait()
				if b.up("one") || b.logs.count(downText, test.says) != 1 {
					t.Errorf("want it down, saying %q: %q", test.says, b.logs.lines)
				}
				if len(b.catalog().tools) != 0 {
					t.Errorf("it offers %d tools", len(b.catalog().tools))
				}
			})
		})
	}
	t.Run("just enough tools", func(t *testing.T) {
		server := but(modest, methodListTools, func(json.RawMessage) string { return `"result":{"tools":` + many(maxListed) + `}` })
		inBubble(t, func(c *connection) { pipe(c, server.serve) }, func(t *testing.T, b *bubble) {
			synctest.Wait()
			if len(b.catalog().tools) != maxListed {
				t.Errorf("it offers %d tools", len(b.catalog().tools))
			}
		})
	})
	t.Run("too many resources", func(t *testing.T) {
		server := but(modest, "server/discover", func(json.RawMessage) string {
			return `"result":{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{},"resources":{},"prompts":{}}}`
		})
		server = but(server, methodListResources, func(json.RawMessage) string { return `"result":{"resources":` + many(maxListed+5) + `}` })
		server = but(server, methodListPrompts, func(json.RawMessage) string { return `"error":{"code":-32603,"message":"broken"}` })
		inBubble(t, func(c *connection) { pipe(c, server.serve) }, func(t *testing.T, b *bubble) {
			synctest.Wait()
			c := b.catalog()
			if len(c.tools) != 1 || len(c.resources) != maxListed || len(c.templates) != 0 || len(c.prompts) != 0 {
				t.Errorf("%d tools, %d resources, %d templates, %d prompts", len(c.tools), len(c.resources), len(c.templates), len(c.prompts))
			}
			for _, says := range []string{"a list that is too long", "doesn't list what it says it has"} {
				if b.logs.count(says) != 1 {
					t.Errorf("%q isn't said once: %q", says, b.logs.lines)
				}
			}
		})
	})
}

// Who looks before connecting, such as a doctor, is told the same.
func TestLookAtAListThatIsTooLarge(t *testing.T) {
	t.Parallel()
	server := but(modest, methodListTools, func(json.RawMessage) string {
		return `"result":{"tools":[],"nextCursor":"` + strings.Repeat("x", 1<<20) + `"}`
	})
	_, err := Look(t.Context(), Server{Name: "one", URL: listen(t, server.handler(nil)).URL}, "test", nil)
	if err == nil || err.Error() != "its list of tools is larger than 16 MiB" {
		t.Errorf("got %v", err)
	}
}

// Not every server says that its tools changed.
func TestListsAreReadAgain(t *testing.T) {
	t.Parallel()
	var tools atomic.Value
	tools.Store(`[{"name":"t","description":"old","inputSchema":{"type":"object"}}]`)
	server := but(modest, methodListTools, func(json.RawMessage) string { return `"result":{"tools":` + tools.Load().(string) + `}` })
	inBubble(t, func(c *connection) { pipe(c, server.serve) }, func(t *testing.T, b *bubble) {
		synctest.Wait()
		before := b.catalog()
		changes := 0
		defer b.watch(func(string) { changes++ })()
		time.Sleep(2*listEvery + time.Second)
		if changes != 0 || b.catalog() != before {
			t.Errorf("%d changes where nothing changed", changes)
		}
		tools.Store(strings.Replace(tools.Load().(string), "old", "new", 1))
		time.Sleep(listEvery)
		synctest.Wait()
		if changes != 1 || b.catalog().tool("t").pin == before.tool("t").pin {
			t.Errorf("%d changes where one did", changes)
		}
		tools.Store(`7`)
		time.Sleep(listEvery)
		synctest.Wait()
		if b.logs.count(downText, "is not an array") == 0 {
			t.Errorf("what can't be read isn't said: %q", b.logs.lines)
		}
		if b.catalog().tool("t") == nil {
			t.Error("what it offered is gone")
		}
	})
}

// Many servers do one thing at a time: one that works for long doesn't list
// meanwhile, and must not be cut off for that.
func TestBusyServerIsLeftAlone(t *testing.T) {
	t.Parallel()
	const work = 9 * time.Minute
	server := but(modest, methodCallTool, func(json.RawMessage) string {
		time.Sleep(work)
		return `"result":{"content":[]}`
	})
	inBubble(t, func(c *connection) { pipe(c, server.serve) }, func(t *testing.T, b *bubble) {
		synctest.Wait()
		go func() {
			time.Sleep(time.Minute / 2)
			b.one.outdated() // as if the server had said so
		}()
		began := time.Now()
		_, err := b.call(t.Context(), "one", methodCallTool, json.RawMessage(`{"name":"t"}`), relay{})
		if err != nil || time.Since(began) != work {
			t.Fatalf("after %s: %v", time.Since(began), err)
		}
		time.Sleep(3 * time.Minute)
		if n := b.logs.count("failed while it is at work"); n != 1 {
			t.Errorf("it was asked for its lists %d times meanwhile", n)
		}
		if n := b.logs.count(downText); n != 0 {
			t.Errorf("it was down %d times: %q", n, b.logs.lines)
		}
	})
}

// A server that answers nothing any more is found out.
func TestSilentServerIsConnectedAnew(t *testing.T) {
	t.Parallel()
	var silent atomic.Bool
	server := script(func(method string, params json.RawMessage) string {
		if silent.Load() {
			return ""
		}
		return modest(method, params)
	})
	inBubble(t, func(c *connection) { pipe(c, server.serve) }, func(t *testing.T, b *bubble) {
		synctest.Wait()
		silent.Store(true)
		_, err := b.call(t.Context(), "one", methodCallTool, json.RawMessage(`{"name":"t"}`), relay{})
		requireKind(t, err, errCutOff)
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the error doesn't say why: %v", err)
		}
		time.Sleep(time.Minute)
		silent.Store(false)
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if !b.up("one") || b.logs.count(downText) == 0 {
			t.Errorf("it wasn't connected anew: %q", b.logs.lines)
		}
	})
}

// What is written to a server that doesn't read must not hold its callers.
func TestServerThatDoesNotRead(t *testing.T) {
	t.Parallel()
	inBubble(t, func(c *connection) {
		pipe(c, func(far io.ReadWriteCloser) {
			stop := make(chan struct{})
			time.AfterFunc(time.Hour, func() { close(stop) })
			but(modest, methodCallTool, func(json.RawMessage) string { <-stop; return "" }).serve(far)
		})
	}, func(t *testing.T, b *bubble) {
		defer time.Sleep(2 * time.Hour) // until the server has ended
		synctest.Wait()
		// The first is being answered. What is half written next is the second, or
		// that the first is cancelled, whichever comes to write first; whatever
		// comes after that waits for it.
		for i, want := range []error{errCutOff, nil, errUnavailable} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			began := time.Now()
			_, err := b.call(ctx, "one", methodCallTool, json.RawMessage(`{"name":"t"}`), relay{})
			cancel()
			if want == nil && !errors.Is(err, errCutOff) && !errors.Is(err, errUnavailable) {
				t.Errorf("call %d: got %v", i, err)
			} else if want != nil {
				requireKind(t, err, want)
			}
			if time.Since(began) != time.Second {
				t.Errorf("it held a caller for %s", time.Since(began))
			}
		}
		began := time.Now()
		b.stop()
		if time.Since(began) > 10*time.Second {
			t.Errorf("it held up the end for %s", time.Since(began))
		}
	})
}

// Calls are cut off when the gateway ends, and say so.
func TestEndCutsCallsOff(t *testing.T) {
	t.Parallel()
	server := but(modest, methodCallTool, func(json.RawMessage) string { return "" })
	inBubble(t, func(c *connection) { pipe(c, server.serve) }, func(t *testing.T, b *bubble) {
		synctest.Wait()
		ended := make(chan error, 1)
		go func() {
			_, err := b.call(context.Background(), "one", methodCallTool, json.RawMessage(`{"name":"t"}`), relay{})
			ended <- err
		}()
		synctest.Wait()
		began := time.Now()
		b.stop()
		requireKind(t, <-ended, errCutOff)
		if time.Since(began) > closeWait {
			t.Errorf("it took %s", time.Since(began))
		}
	})
}

// A call whose time has ended before it began never arrives.
func TestCallThatHasEndedIsNotSent(t *testing.T) {
	t.Parallel()
	calls := 0
	server := but(modest, methodCallTool, func(json.RawMessage) string { calls++; return `"result":{}` })
	inBubble(t, func(c *connection) { pipe(c, server.serve) }, func(t *testing.T, b *bubble) {
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := b.call(ctx, "one", methodCallTool, json.RawMessage(`{"name":"t"}`), relay{})
		requireKind(t, err, errUnavailable)
		synctest.Wait()
		if calls != 0 {
			t.Error("it arrived")
		}
	})
}

// Progress is told in order, digit for digit, and not after the call.
func TestProgressDigitForDigit(t *testing.T) {
	t.Parallel()
	server := func(far io.ReadWriteCloser) {
		but(modest, methodCallTool, func(params json.RawMessage) string {
			var read struct {
				Meta struct{ ProgressToken json.RawMessage } `json:"_meta"`
			}
			if err := json.Unmarshal(params, &read); err != nil {
				return `"error":{"code":1,"message":"no token"}`
			}
			for _, progress := range []string{"0.10", "9007199254740993", "1e400"} {
				_, _ = fmt.Fprintf(far, `{"jsonrpc":"2.0","method":"notifications/progress","params":{"total":1e400,"progressToken":%s,"progress":%s,"later":{"z":1,"a":2}}}`+"\n", read.Meta.ProgressToken, progress)
			}
			_, _ = fmt.Fprint(far, `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"somebody else's","progress":1}}`+"\n")
			return `"result":{"content":[]}`
		}).serve(far)
	}
	inBubble(t, func(c *connection) { pipe(c, server) }, func(t *testing.T, b *bubble) {
		synctest.Wait()
		var got []string
		_, err := b.call(t.Context(), "one", methodCallTool, json.RawMessage(`{"name":"t"}`), relay{
			progress: func(params json.RawMessage) {
				time.Sleep(time.Second) // it takes its time, and is told all the same
				got = append(got, string(params))
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		var want []string
		for _, progress := range []string{"0.10", "9007199254740993", "1e400"} {
			want = append(want, `{"total":1e400,"progress":`+progress+`,"later":{"z":1,"a":2}}`)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("progress (-want +got):\n%s", diff)
		}
	})
}

func TestErrorsArriveWithAllDigits(t *testing.T) {
	t.Parallel()
	for _, code := range []int64{-32601, -32003, -32004, -32005, 0, 1 << 53} {
		want := fmt.Sprintf(`{"code":%d,"message":"<no>","data":{"z":1e400,"a":9007199254740993}}`, code)
		server := but(modest, methodCallTool, func(json.RawMessage) string { return `"error":` + want })
		inBubble(t, func(c *connection) { pipe(c, server.serve) }, func(t *testing.T, b *bubble) {
			synctest.Wait()
			_, err := b.call(t.Context(), "one", methodCallTool, json.RawMessage(`{"name":"t"}`), relay{})
			requireWire(t, err, want)
		})
	}
}

// An agent that doesn't take its progress holds up neither the server nor its
// own result for long, and isn't told more afterwards.
func TestProgressThatNobodyTakes(t *testing.T) {
	t.Parallel()
	server := func(far io.ReadWriteCloser) {
		but(modest, methodCallTool, func(params json.RawMessage) string {
			var read struct {
				Meta struct{ ProgressToken json.RawMessage } `json:"_meta"`
			}
			if err := json.Unmarshal(params, &read); err != nil {
				return `"error":{"code":1,"message":"no token"}`
			}
			for range 2 * maxReports {
				_, _ = fmt.Fprintf(far, `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":1}}`+"\n", read.Meta.ProgressToken)
			}
			return `"result":{"content":[]}`
		}).serve(far)
	}
	inBubble(t, func(c *connection) { pipe(c, server) }, func(t *testing.T, b *bubble) {
		synctest.Wait()
		var told atomic.Int32 // its teller is left to itself, so the race detector can't tell when it is done
		began := time.Now()
		_, err := b.call(t.Context(), "one", methodCallTool, json.RawMessage(`{"name":"t"}`), relay{
			progress: func(json.RawMessage) {
				told.Add(1)
				time.Sleep(time.Minute)
			},
		})
		if took := time.Since(began); err != nil || took != landWait {
			t.Errorf("after %s: %v", took, err)
		}
		time.Sleep(time.Hour)
		if n := told.Load(); n != 1 {
			t.Errorf("told %d times", n)
		}
	})
}

// A question that a server leaves open ends with the call that it is about.
func TestQuestionEndsWithTheCall(t *testing.T) {
	t.Parallel()
	server := func(far io.ReadWriteCloser) {
		legacyServer := but(modest, "server/discover", func(json.RawMessage) string { return `"error":{"code":-32601,"message":"what?"}` })
		legacyServer = but(legacyServer, "initialize", func(json.RawMessage) string {
			return `"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}`
		})
		but(legacyServer, methodCallTool, func(json.RawMessage) string {
			_, _ = io.WriteString(far, `{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{"message":"Which?","z":1e400,"a":1}}`+"\n")
			return ""
		}).serve(far)
	}
	inBubble(t, func(c *connection) { pipe(c, server) }, func(t *testing.T, b *bubble) {
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var asked string
		var ended error
		_, err := b.call(ctx, "one", methodCallTool, json.RawMessage(`{"name":"t"}`), relay{
			elicit: func(ctx context.Context, params json.RawMessage) (json.RawMessage, error) {
				asked = string(params)
				<-ctx.Done()
				ended = ctx.Err()
				return nil, ended
			},
		})
		requireKind(t, err, errCutOff)
		synctest.Wait()
		if want := `{"message":"Which?","z":1e400,"a":1}`; asked != want || ended == nil {
			t.Errorf("asked %s, ended with %v", asked, ended)
		}
	})
}

// What goes into logs has no address in it: some have a secret there.
func TestErrorsHaveNoAddress(t *testing.T) {
	t.Parallel()
	const address = "https://crm.example.com/mcp?key=hush"
	c := newConnection(Server{Name: "one", URL: address}, "", newLogs().logger(), soon, func() {})
	for _, err := range []error{
		&url.Error{Op: "Post", URL: address, Err: errCutOff},
		fmt.Errorf("sending %q: %w", rawPrefix+methodCallTool, &url.Error{Op: "Post", URL: address, Err: errCutOff}),
		fmt.Errorf("sending %q: %v", rawPrefix+methodCallTool, &url.Error{Op: "Post", URL: address, Err: errCutOff}),
	} {
		if got := c.plain(err).Error(); strings.Contains(got, "hush") || strings.Contains(got, rawPrefix) || !strings.Contains(got, errCutOff.Error()) {
			t.Errorf("%v became %s", err, got)
		}
	}
}
