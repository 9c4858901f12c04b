package gateway

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// terminateWait is how long a child that is ended has after each step: its input
// is closed, then it is asked to end, then it is killed.
const terminateWait = time.Second

// inherited are the variables that a child gets of this process's environment.
// Everything else is this process's own, such as its tokens.
var inherited = []string{"PATH", "HOME", "LANG", "TMPDIR", "USER"}

// inheritedOnWindows are those without which a program there doesn't start.
var inheritedOnWindows = []string{"APPDATA", "LOCALAPPDATA", "PATHEXT", "SYSTEMROOT", "TEMP", "TMP", "USERPROFILE"}

// ownVariable reports whether a variable is this product's: no child gets one,
// not even if it is configured.
func ownVariable(name string) bool { return strings.HasPrefix(strings.ToUpper(name), "COUNTERSIGN_") }

// newCommandTransport starts a server on standard input and output.
func newCommandTransport(server Server, received receiver, logger *slog.Logger) *rawTransport {
	command := exec.Command(server.Command[0], server.Command[1:]...)
	command.Dir = server.Directory
	command.Env = childEnvironment(server.Env, os.LookupEnv)
	command.Stderr = &lineLog{logger: logger, now: time.Now}
	// A child of the child may keep the pipe open.
	command.WaitDelay = terminateWait
	ownGroup(command)
	return &rawTransport{
		Transport: &sdk.CommandTransport{Command: command, TerminateDuration: terminateWait},
		received:  received,
		// What starts a server for it, such as npx or a shell, can end before it.
		left: func() { endGroup(command) },
	}
}

func childEnvironment(own map[string]string, lookUp func(string) (string, bool)) []string {
	environment := []string{} // not nil, which is this process's own
	names := inherited
	if runtime.GOOS == "windows" {
		names = slices.Concat(inherited, inheritedOnWindows)
	}
	for _, name := range names {
		if _, given := own[name]; given {
			continue
		}
		if value, ok := lookUp(name); ok {
			environment = append(environment, name+"="+value)
		}
	}
	for name, value := range own {
		if !ownVariable(name) {
			environment = append(environment, name+"="+value)
		}
	}
	slices.Sort(environment)
	return environment
}

// lineLog logs what a child writes to its standard error, line by line.
type lineLog struct {
	logger *slog.Logger
	now    func() time.Time
	begun  []byte // of a line

	second time.Time // when the count began
	logged int       // lines since then
	unsaid int       // lines that were left out since the last that was logged
}

const (
	// maxLogLine bounds a logged line, in bytes; what follows is another one.
	maxLogLine = 4096
	// maxLogLines bounds the lines of one second. More are counted.
	maxLogLines = 100
)

// Write implements io.Writer. os/exec calls it from one goroutine.
func (l *lineLog) Write(data []byte) (int, error) {
	l.begun = append(l.begun, data...)
	rest := l.begun
	for {
		end, skip := bytes.IndexByte(rest, '\n'), 1
		if end < 0 || end > maxLogLine {
			if len(rest) <= maxLogLine {
				l.begun = append([]byte(nil), rest...)
				return len(data), nil
			}
			end, skip = maxLogLine, 0
		}
		l.log(rest[:end])
		rest = rest[end+skip:]
	}
}

func (l *lineLog) log(text []byte) {
	line := strings.TrimSpace(string(text))
	if line == "" {
		return
	}
	if now := l.now(); now.Sub(l.second) >= time.Second {
		l.second, l.logged = now, 0
	}
	if l.logged == maxLogLines {
		l.unsaid++
		return
	}
	l.logged++
	if l.unsaid > 0 {
		l.logger.Warn("the server says too much: lines were left out", "lines", l.unsaid)
		l.unsaid = 0
	}
	l.logger.Info("the server says", "line", line)
}

// receiver sees each message of a server before the SDK does: see
// connection.received.
type receiver func(message jsonrpc.Message, of *flight) jsonrpc.Message

// rawTransport takes the prefix off the gateway's methods, and shows messages to
// received. It is for transports whose connections may be wrapped, which is
// those on pipes.
type rawTransport struct {
	sdk.Transport
	received receiver
	left     func() // ends what is left once the connection is closed; may be nil
	made     sdk.Connection
}

// release closes the connection, if there is one and the SDK hasn't, and ends
// what is left behind it.
func (t *rawTransport) release() {
	if t.made != nil {
		_ = t.made.Close()
	}
	if t.left != nil {
		t.left()
	}
}

// Connect implements sdk.Transport.
func (t *rawTransport) Connect(ctx context.Context) (sdk.Connection, error) {
	connection, err := t.Transport.Connect(ctx)
	if err != nil {
		return nil, err
	}
	t.made = &rawConnection{Connection: connection, received: t.received, turn: make(chan struct{}, 1)}
	return t.made, nil
}

type rawConnection struct {
	sdk.Connection
	received receiver
	turn     chan struct{} // whoever has put something in may write
	own      sync.Map      // ids of the SDK's own requests, which are few
}

// Write implements sdk.Connection. It returns when ctx ends even if the child
// doesn't read: then the message goes out later, or never.
func (c *rawConnection) Write(ctx context.Context, message jsonrpc.Message) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	// What waits behind a message that the child doesn't read hasn't departed.
	select {
	case c.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	f := flightOf(ctx)
	if request, ok := message.(*jsonrpc.Request); ok {
		if method, ours := strings.CutPrefix(request.Method, rawPrefix); ours {
			renamed := *request
			renamed.Method = method
			message = &renamed
			if f != nil {
				f.depart(request.ID)
			}
		} else if request.IsCall() {
			c.own.Store(request.ID, nil)
		} else if f != nil {
			defer f.renounce()
		}
	}
	written := make(chan error, 1)
	go func() {
		written <- c.Connection.Write(context.WithoutCancel(ctx), message)
		<-c.turn
	}()
	select {
	case err := <-written:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Read implements sdk.Connection.
func (c *rawConnection) Read(ctx context.Context) (jsonrpc.Message, error) {
	message, err := c.Connection.Read(ctx)
	if err != nil {
		return nil, err
	}
	if response, ok := message.(*jsonrpc.Response); ok && response.Error != nil {
		if _, own := c.own.Load(response.ID); !own {
			message = asResult(response)
		}
	}
	return c.received(message, nil), nil
}
