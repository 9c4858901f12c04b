package mcp_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/approval/approvaltest"
	"github.com/countersign/countersign/db"
	"github.com/countersign/countersign/db/dbtest"
	"github.com/countersign/countersign/mcp"
)

// This test binary serves stdio instead of testing if childEnvironment is set:
// to "local" with a store of its own, or to the address of a server, with the
// token in tokenEnvironment.
const (
	childEnvironment = "COUNTERSIGN_TEST_CHILD"
	tokenEnvironment = "COUNTERSIGN_TEST_CHILD_TOKEN"
)

func serveChild() int {
	ctx := context.Background()
	flow, end, err := childFlow(ctx, os.Getenv(childEnvironment))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer end()
	options := mcp.Options{Logger: slog.New(slog.NewTextHandler(os.Stderr, nil))}
	if err := mcp.ServeStdio(ctx, flow, approval.Agent{Name: "child"}, os.Stdin, os.Stdout, options); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func childFlow(ctx context.Context, kind string) (mcp.Flow, func(), error) {
	if kind != "local" {
		remote, err := mcp.Dial(ctx, kind, os.Getenv(tokenEnvironment), mcp.RemoteOptions{})
		if err != nil {
			return nil, nil, err
		}
		return remote, remote.Close, nil
	}
	folder, err := os.MkdirTemp("", "countersign-child")
	if err != nil {
		return nil, nil, err
	}
	store, err := db.Open(ctx, folder, db.Options{})
	if err != nil {
		return nil, nil, err
	}
	people := new(approvaltest.People)
	people.Give("finance", approvaltest.Alice)
	rules, err := dbtest.Policy()
	if err != nil {
		return nil, nil, err
	}
	service, err := approval.New(store, people, approval.Options{Policy: rules})
	if err != nil {
		return nil, nil, err
	}
	local, err := newDecidedLocal(service)
	if err != nil {
		return nil, nil, err
	}
	return local, func() {
		_ = store.Close()
		_ = os.RemoveAll(folder)
	}, nil
}

// newDecidedLocal is a flow whose requests are decided at once as their purpose
// says, and that waits a second for others.
func newDecidedLocal(service *approval.Service) (*mcp.Local, error) {
	return mcp.NewLocal(service, mcp.LocalOptions{
		AwaitBound: time.Second,
		ReviewURL: func(id approval.ID) string {
			decideByPurpose(service, id)
			return reviewURL(id)
		},
	})
}

// decideByPurpose decides a request whose purpose begins with a verdict.
func decideByPurpose(service *approval.Service, id approval.ID) {
	r, err := service.Review(context.Background(), approvaltest.Alice, id)
	if err != nil {
		return
	}
	for _, verdict := range []approval.Verdict{approval.Approve, approval.Reject} {
		if reason, ok := strings.CutPrefix(r.Purpose, string(verdict)+": "); ok {
			ballot := approvaltest.Ballot(r, verdict)
			ballot.Reason = reason
			_, _ = service.Decide(context.Background(), approvaltest.Alice, ballot)
		}
	}
}

// childCommand starts this test binary as a stdio server.
func childCommand(t testing.TB, kind, token string) *exec.Cmd {
	t.Helper()
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	command := exec.Command(binary)
	command.Env = append(os.Environ(), childEnvironment+"="+kind, tokenEnvironment+"="+token)
	command.Stderr = t.Output()
	return command
}

// A real process on real pipes: each version works, and it ends by itself when
// its input ends.
func TestChildProcess(t *testing.T) {
	t.Parallel()
	for _, version := range sdk.SupportedProtocolVersions() {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			command := childCommand(t, "local", "")
			session := connect(t, &sdk.CommandTransport{Command: command}, version, nil)
			text := succeed(t, session, "request_approval", `{"purpose":"approve: fine","payload":{"id":9007199254740993}}`)
			id := idIn(t, text)
			if got := succeed(t, session, "await_approval", byID(id)); got != `{"status":"approved"}` {
				t.Errorf("await_approval: %s", got)
			}
			if got, want := succeed(t, session, "apply", byID(id)), `{"status":"applied","payload":{"id":9007199254740993}}`; got != want {
				t.Errorf("apply: %s, want %s", got, want)
			}
			if err := session.Close(); err != nil {
				t.Errorf("closing: %v", err)
			}
			if !command.ProcessState.Success() {
				t.Errorf("the process ended with %v", command.ProcessState)
			}
		})
	}
}

func TestChildBridge(t *testing.T) {
	t.Parallel()
	f := approvaltest.New(t)
	s := serveHTTP(t, f, newLocal(t, f, 0), mcp.HandlerOptions{})
	session := connect(t, &sdk.CommandTransport{Command: childCommand(t, s.URL, s.token(t, f.Agent.Name))}, modern, nil)
	id := asked(t, session)
	decide(t, f, id, approval.Approve, "")
	succeed(t, session, "apply", byID(id))

	refused := childCommand(t, s.URL, "countersign_unknown")
	refused.Stderr = nil
	output, err := refused.CombinedOutput()
	if err == nil || !strings.Contains(string(output), mcp.ErrTokenRefused.Error()) {
		t.Errorf("with a bad token: %v, %s", err, output)
	}
}

// Standard output carries messages and nothing else, whatever is logged.
func TestChildWritesOnlyMessages(t *testing.T) {
	t.Parallel()
	command := childCommand(t, "local", "")
	command.Stdin = strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":` + initializeParams(legacy, "{}") + "}\n" +
		`{"jsonrpc":"2.0","method":"notifications/initialized"}` + "\n" +
		`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"apply","arguments":{"elicitationId":"x"}}}` + "\n" +
		`{"jsonrpc":"2.0","id":3,"method":"no/such"}` + "\n")
	output, err := command.Output()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(output)) {
		var message struct{ JSONRPC string }
		if err := json.Unmarshal([]byte(line), &message); err != nil || message.JSONRPC != "2.0" {
			t.Errorf("not a message: %q", line)
		}
	}
}
