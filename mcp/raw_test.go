package mcp_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/countersign/countersign/approval/approvaltest"
	"github.com/countersign/countersign/mcp"
)

// raw is a client by hand, which sends exactly what it is given and keeps
// exactly what it gets.
type raw interface {
	// call calls a tool and returns its result.
	call(tool, arguments string) rawResult
	// rpc sends a request and returns the response.
	rpc(method, params string) []byte
}

// rawKinds are clients by hand that have finished the handshake, as the
// fixture's agent.
var rawKinds = map[string]func(testing.TB, *approvaltest.Fixture, *mcp.Local, string) raw{
	"stdio": func(t testing.TB, f *approvaltest.Fixture, local *mcp.Local, version string) raw {
		s := serveStdio(t, local, f.Agent, mcp.Options{Now: f.Clock.Now})
		return newRawStdio(t, s, version)
	},
	"http": func(t testing.TB, f *approvaltest.Fixture, local *mcp.Local, version string) raw {
		s := serveHTTP(t, f, local, mcp.HandlerOptions{})
		return newRawHTTP(t, s, s.token(t, f.Agent.Name), version)
	},
	"bridge": func(t testing.TB, f *approvaltest.Fixture, local *mcp.Local, version string) raw {
		s := serveHTTP(t, f, local, mcp.HandlerOptions{})
		bridge := serveStdio(t, dial(t, s, s.token(t, f.Agent.Name)), f.Agent, mcp.Options{Now: f.Clock.Now})
		return newRawStdio(t, bridge, version)
	},
}

// rawResult is the "result" of a response to tools/call.
type rawResult []byte

func (r rawResult) fields(t testing.TB) map[string]json.RawMessage {
	t.Helper()
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(r, &fields); err != nil {
		t.Fatalf("reading %s: %v", r, err)
	}
	return fields
}

func (r rawResult) isError(t testing.TB) bool {
	t.Helper()
	return string(r.fields(t)["isError"]) == "true"
}

func (r rawResult) structured(t testing.TB) string {
	t.Helper()
	return string(r.fields(t)["structuredContent"])
}

func (r rawResult) text(t testing.TB, at int) string {
	t.Helper()
	var content []struct{ Type, Text string }
	if err := json.Unmarshal(r.fields(t)["content"], &content); err != nil || len(content) <= at || content[at].Type != "text" {
		t.Fatalf("no text %d in %s (%v)", at, r, err)
	}
	return content[at].Text
}

// rawClient makes requests of a version.
type rawClient struct {
	t       testing.TB
	version string
	next    int
	send    func(id int, method string, message []byte, name string) []byte
}

func (c *rawClient) rpc(method, params string) []byte {
	c.t.Helper()
	c.next++
	return c.send(c.next, method, c.message(method, params), "")
}

func (c *rawClient) call(tool, arguments string) rawResult {
	c.t.Helper()
	c.next++
	response := c.send(c.next, "tools/call", c.message("tools/call", `{"name":"`+tool+`","arguments":`+arguments+`}`), tool)
	var fields struct{ Result, Error json.RawMessage }
	if err := json.Unmarshal(response, &fields); err != nil || fields.Error != nil {
		c.t.Fatalf("%s %s: %s (%v)", tool, arguments, response, err)
	}
	return rawResult(fields.Result)
}

// message is a request with what the version wants in it.
func (c *rawClient) message(method, params string) []byte {
	if c.version >= modern {
		meta := `"_meta":{"io.modelcontextprotocol/protocolVersion":"` + c.version + `","io.modelcontextprotocol/clientCapabilities":{}}`
		if params == "{}" {
			params = "{" + meta + "}"
		} else {
			params = strings.TrimSuffix(params, "}") + "," + meta + "}"
		}
	}
	return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`, c.next, method, params)
}

func initializeParams(version, capabilities string) string {
	return `{"protocolVersion":"` + version + `","capabilities":` + capabilities + `,"clientInfo":{"name":"raw","version":"1"}}`
}

// newRawStdio speaks over pipes. It drops notifications and requests.
func newRawStdio(t testing.TB, s *stdio, version string) raw {
	t.Helper()
	lines := bufio.NewReader(s.out.PipeReader)
	write := func(message []byte) {
		// What must be one line on stdio may be written on several here.
		message = append(bytes.ReplaceAll(message, []byte("\n"), []byte(" ")), '\n')
		if _, err := s.in.PipeWriter.Write(message); err != nil {
			t.Fatal(err)
		}
	}
	c := &rawClient{t: t, version: version}
	c.send = func(id int, _ string, message []byte, _ string) []byte {
		t.Helper()
		write(message)
		for {
			line, err := lines.ReadBytes('\n')
			if err != nil {
				t.Fatal(err)
			}
			if isResponse(line, id) {
				return line
			}
		}
	}
	if version < modern {
		c.rpc("initialize", initializeParams(version, "{}"))
		write([]byte(`{"jsonrpc":"2.0","method":"notifications/initialized"}`))
	}
	return c
}

// isResponse reports whether a message is the response to a request.
func isResponse(message []byte, id int) bool {
	var envelope struct {
		ID     any
		Method string
	}
	return json.Unmarshal(message, &envelope) == nil && envelope.Method == "" && envelope.ID == float64(id)
}

// newRawHTTP speaks over POST.
func newRawHTTP(t testing.TB, s *httpServer, token, version string) raw {
	t.Helper()
	session := ""
	client := &http.Client{Transport: s.Client().Transport.(*http.Transport).Clone()}
	t.Cleanup(client.CloseIdleConnections)
	post := func(method string, message []byte, name string) *http.Response {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL, bytes.NewReader(message))
		if err != nil {
			t.Fatal(err)
		}
		for key, value := range map[string]string{
			"Content-Type":         "application/json",
			"Accept":               "application/json, text/event-stream",
			"Authorization":        "Bearer " + token,
			"Mcp-Protocol-Version": version,
			"Mcp-Session-Id":       session,
		} {
			if value != "" {
				request.Header.Set(key, value)
			}
		}
		if version >= modern {
			request.Header.Set("Mcp-Method", method)
			if name != "" {
				request.Header.Set("Mcp-Name", name)
			}
		}
		response, err := client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		if id := response.Header.Get("Mcp-Session-Id"); id != "" {
			session = id
		}
		return response
	}
	c := &rawClient{t: t, version: version}
	c.send = func(id int, method string, message []byte, name string) []byte {
		t.Helper()
		response := post(method, message, name)
		defer func() { _ = response.Body.Close() }()
		body, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		for line := range bytes.Lines(body) {
			if data, ok := bytes.CutPrefix(line, []byte("data: ")); ok && isResponse(data, id) {
				return data
			}
		}
		if isResponse(body, id) {
			return body
		}
		t.Fatalf("no response (%s) to %s: %s", response.Status, message, body)
		return nil
	}
	if version < modern {
		c.rpc("initialize", initializeParams(version, "{}"))
		_ = post("notifications/initialized", []byte(`{"jsonrpc":"2.0","method":"notifications/initialized"}`), "").Body.Close()
	}
	return c
}
