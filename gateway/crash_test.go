package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/approval/approvaltest"
	"github.com/countersign/countersign/db"
	"github.com/countersign/countersign/mcp"
	"github.com/countersign/countersign/policy"
)

// crashVariable makes this test binary a gateway for one agent on standard input
// and output instead of testing. Its value is crashing, as JSON.
const crashVariable = "GATEWAY_TEST_CRASH"

// crashing is what a gateway that crashes is made of.
type crashing struct {
	Folder     string // of the database
	Downstream string // its address
	Step       string // at which the process is killed; empty for never
}

// serveToCrash serves until a step at which it kills this process.
func serveToCrash(given string) error {
	var c crashing
	if err := json.Unmarshal([]byte(given), &c); err != nil {
		return err
	}
	ctx := context.Background()
	store, err := db.Open(ctx, c.Folder, db.Options{})
	if err != nil {
		return err
	}
	people := new(approvaltest.People)
	people.Give("finance", approvaltest.Alice)
	rules, err := policy.Parse([]byte(worldPolicy))
	if err != nil {
		return err
	}
	service, err := approval.New(store, people, approval.Options{Policy: rules})
	if err != nil {
		return err
	}
	logger := newLogs()
	g, err := New(service, []Server{{Name: "hard", URL: c.Downstream, Environment: "staging"}, {Name: "free", URL: c.Downstream, Environment: "staging"}}, Options{
		ReviewURL: reviewURL, Load: store.Request, StateKey: make([]byte, 32), Logger: logger.logger(),
		HoldBound: testBound, AwaitBound: testBound, Approval: Hold,
	})
	if err != nil {
		return err
	}
	g.step = func(name string, _ approval.ID) {
		if name == c.Step {
			kill()
		}
	}
	go g.Run(ctx)
	go approveAll(ctx, service, store)
	for !g.downstreams.up("hard") || !g.downstreams.up("free") {
		// Only this process's own start is waited for.
		logger.mu.Lock()
		more := logger.more
		logger.mu.Unlock()
		<-more
	}
	local, err := mcp.NewLocal(service, mcp.LocalOptions{ReviewURL: reviewURL})
	if err != nil {
		return err
	}
	return mcp.ServeStdio(ctx, local, approval.Agent{Name: "deployer"}, os.Stdin, os.Stdout, mcp.Options{Gateway: g})
}

// kill ends this process as if by kill -9.
func kill() {
	self, err := os.FindProcess(os.Getpid())
	if err == nil {
		err = self.Kill()
	}
	if err != nil {
		os.Exit(9)
	}
	select {}
}

// approveAll has Alice approve whatever is asked.
func approveAll(ctx context.Context, service *approval.Service, store *db.DB) {
	rung, stop := service.Bell().ListenAll()
	defer stop()
	for {
		all, err := store.Recorded(ctx, 100)
		if err != nil {
			return
		}
		for _, r := range all {
			if r, err = store.Request(ctx, r.ID); err == nil && r.Status == approval.Pending {
				_, _ = service.Decide(ctx, approvaltest.Alice, approvaltest.Ballot(r, approval.Approve))
			}
		}
		<-rung
	}
}

// Whenever the process is killed between the claim and the result, the call isn't
// made a second time, and what nobody knows is said to be unknown.
func TestKilled(t *testing.T) {
	t.Parallel()
	for _, tool := range []string{"hard__echo", "free__echo"} {
		for _, test := range []struct {
			step    string
			reached int // calls that the downstream server got
			outcome approval.Outcome
		}{
			{stepClaimed, 0, approval.Unknown},
			{"called", 1, approval.Unknown},
			{stepReturned, 1, approval.Unknown},
			{stepFinished, 1, approval.Succeeded},
		} {
			t.Run(tool+"/"+test.step, func(t *testing.T) {
				t.Parallel()
				var victim *exec.Cmd
				note := new(recorder)
				downstream := newTestServer(modern)
				downstream.AddReceivingMiddleware(func(next sdk.MethodHandler) sdk.MethodHandler {
					return func(ctx context.Context, method string, request sdk.Request) (sdk.Result, error) {
						if method == methodCallTool && test.step == "called" && len(note.got()) == 0 {
							defer func() { _ = victim.Process.Kill() }()
						}
						return note.middleware(next)(ctx, method, request)
					}
				})
				c := crashing{
					Folder:     filepath.Join(t.TempDir(), "data"),
					Downstream: newWire(t, downstream, modern).URL,
					Step:       test.step,
				}
				victim = c.command(t)
				session := c.connect(t, victim)
				_, err := session.CallTool(t.Context(), &sdk.CallToolParams{Name: tool, Arguments: json.RawMessage(`{"a":1}`)})
				if err == nil && test.step != stepFinished {
					t.Error("the process survived")
				}
				if n := len(note.got()); n != test.reached {
					t.Errorf("the downstream server got %d calls, want %d", n, test.reached)
				}

				c.Step = ""
				session = c.connect(t, c.command(t))
				store, err := db.Open(t.Context(), c.Folder, db.Options{})
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = store.Close() }()
				all, err := store.Recorded(t.Context(), 100)
				if err != nil || len(all) != 1 {
					t.Fatalf("%d requests are recorded (%v)", len(all), err)
				}
				r, err := store.Request(t.Context(), all[0].ID)
				if err != nil {
					t.Fatal(err)
				}
				requireOutcome(t, r, test.outcome, "")
				if tool == "free__echo" {
					// A repeated call is the agent's own, which needs nobody.
					if n := len(note.got()); n != test.reached {
						t.Errorf("the downstream server got %d calls, want %d", n, test.reached)
					}
					return
				}
				for _, again := range []func() *sdk.CallToolResult{
					func() *sdk.CallToolResult { return ask(t, session, "await_result", by(r.ID)) },
					func() *sdk.CallToolResult { return ask(t, session, tool, `{"a":1}`) },
				} {
					text := firstText(t, again())
					want := "nobody knows what came of it"
					if test.outcome == approval.Succeeded {
						if want = keyed(`{"a":1}`, r); text != want {
							break // the result was taken, so this is another call
						}
					}
					requireText(t, text, want)
				}
				times := 0
				for _, call := range note.got() {
					if call.arguments == keyed(`{"a":1}`, r) {
						times++
					}
				}
				if times != test.reached {
					t.Errorf("the call was made %d times, want %d", times, test.reached)
				}
			})
		}
	}
}

// command is a process that serves the gateway.
func (c crashing) command(t testing.TB) *exec.Cmd {
	t.Helper()
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	given, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	command := exec.Command(binary)
	command.Env = append(os.Environ(), crashVariable+"="+string(given))
	var errs strings.Builder
	command.Stderr = &errs
	t.Cleanup(func() {
		if t.Failed() && errs.Len() > 0 {
			t.Log(errs.String())
		}
	})
	return command
}

// connect starts the process and connects to it.
func (c crashing) connect(t testing.TB, command *exec.Cmd) *sdk.ClientSession {
	t.Helper()
	session, err := sdk.NewClient(&sdk.Implementation{Name: "test"}, nil).Connect(t.Context(), &sdk.CommandTransport{Command: command}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := session.Close(); err != nil && !errors.As(err, new(*exec.ExitError)) {
			t.Logf("closing: %v", err)
		}
	})
	return session
}
