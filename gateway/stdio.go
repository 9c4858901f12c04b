package gateway

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// terminateWait is how long a child that is ended has after each step: its input
// is closed, then it is asked to end, then it is killed.
const terminateWait = time.Second

// inherited are the variables that a child gets of this process's environment.
// Everything else is this process's own, such as its tokens.
var inherited = []string{"PATH", "HOME", "USER", "LANG", "LC_ALL", "TZ", "TMPDIR", "SYSTEMROOT", "TEMP", "TMP", "APPDATA", "LOCALAPPDATA", "USERPROFILE", "PATHEXT"}

// newCommandTransport starts a server on standard input and output.
func newCommandTransport(server Server, logger *slog.Logger) sdk.Transport {
	command := exec.Command(server.Command[0], server.Command[1:]...)
	command.Dir = server.Directory
	command.Env = childEnvironment(server.Env, os.LookupEnv)
	command.Stderr = &lineLog{logger: logger}
	// A child of the child may keep the pipe open.
	command.WaitDelay = terminateWait
	return &renamingTransport{&sdk.CommandTransport{Command: command, TerminateDuration: terminateWait}}
}

func childEnvironment(own map[string]string, lookUp func(string) (string, bool)) []string {
	environment := []string{} // not nil, which is this process's own
	for _, name := range inherited {
		if _, given := own[name]; given {
			continue
		}
		if value, ok := lookUp(name); ok {
			environment = append(environment, name+"="+value)
		}
	}
	for name, value := range own {
		environment = append(environment, name+"="+value)
	}
	slices.Sort(environment)
	return environment
}

// lineLog logs what a child writes to its standard error, line by line.
type lineLog struct {
	logger *slog.Logger
	begun  []byte // of a line
}

// maxLogLine bounds a logged line, in bytes; what follows is another one.
const maxLogLine = 4096

// Write implements io.Writer. os/exec calls it from one goroutine.
func (l *lineLog) Write(data []byte) (int, error) {
	l.begun = append(l.begun, data...)
	for {
		end, skip := bytes.IndexByte(l.begun, '\n'), 1
		if end < 0 || end > maxLogLine {
			if len(l.begun) <= maxLogLine {
				return len(data), nil
			}
			end, skip = maxLogLine, 0
		}
		if line := strings.TrimSpace(string(l.begun[:end])); line != "" {
			l.logger.Info("the server says", "line", line)
		}
		l.begun = append([]byte(nil), l.begun[end+skip:]...)
	}
}

// renamingTransport takes the prefix off the gateway's methods.
type renamingTransport struct{ sdk.Transport }

func (t *renamingTransport) Connect(ctx context.Context) (sdk.Connection, error) {
	connection, err := t.Transport.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &renamingConnection{connection}, nil
}

type renamingConnection struct{ sdk.Connection }

// Write implements sdk.Connection.
func (c *renamingConnection) Write(ctx context.Context, message jsonrpc.Message) error {
	if request, ok := message.(*jsonrpc.Request); ok {
		if method, ours := strings.CutPrefix(request.Method, rawPrefix); ours {
			renamed := *request
			renamed.Method = method
			message = &renamed
		}
	}
	return c.Connection.Write(ctx, message)
}
