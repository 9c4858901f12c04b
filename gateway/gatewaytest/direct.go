package gatewaytest

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"testing"
)

// Direct is a connection to a program with nothing in between, not even an MCP
// library: what it returns is what the server wrote. It isn't safe for concurrent
// use.
type Direct struct {
	input   io.WriteCloser
	lines   *bufio.Reader
	command *exec.Cmd
	last    int
}

// Connect starts the program and initialises it, as a client of 2025-11-25 with
// capabilities, such as {}. It runs until the test ends.
func (p Program) Connect(t testing.TB, capabilities string) *Direct {
	t.Helper()
	d := &Direct{command: p.command()}
	var err error
	if d.input, err = d.command.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	output, err := d.command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	d.lines = bufio.NewReader(output)
	if err := d.command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = d.command.Process.Kill()
		_ = d.command.Wait()
	})
	if _, refusal := d.Request(t, "initialize", `{"protocolVersion":"2025-11-25","capabilities":`+capabilities+`,"clientInfo":{"name":"direct","version":"1"}}`); refusal != nil {
		t.Fatalf("initialize: %s", refusal)
	}
	d.send(t, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return d
}

// Request sends a request and returns the result of its answer or the error, each
// as it was written. Notifications before it are dropped; what the server asks
// fails the test.
func (d *Direct) Request(t testing.TB, method, params string) (result, refusal json.RawMessage) {
	t.Helper()
	d.last++
	d.send(t, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`, d.last, method, params))
	for {
		line, err := d.lines.ReadBytes('\n')
		if err != nil {
			t.Fatalf("%s: reading the answer: %v", method, err)
		}
		var message struct {
			ID            json.RawMessage
			Method        string
			Result, Error json.RawMessage
		}
		if err := json.Unmarshal(line, &message); err != nil {
			t.Fatalf("%s: the server wrote %q: %v", method, line, err)
		}
		switch {
		case message.Method == "" && string(message.ID) == fmt.Sprint(d.last):
			return message.Result, message.Error
		case message.ID != nil:
			t.Fatalf("%s: the server wrote %s", method, line)
		}
	}
}

// Call calls a tool and returns its result as it was written.
func (d *Direct) Call(t testing.TB, tool, arguments string) json.RawMessage {
	t.Helper()
	result, refusal := d.Request(t, "tools/call", fmt.Sprintf(`{"name":%q,"arguments":%s}`, tool, arguments))
	if refusal != nil {
		t.Fatalf("%s: %s", tool, refusal)
	}
	return result
}

func (d *Direct) send(t testing.TB, message string) {
	t.Helper()
	if _, err := io.WriteString(d.input, message+"\n"); err != nil {
		t.Fatalf("writing to the server: %v", err)
	}
}
