package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/testscript"
	"pgregory.net/rapid"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/bot/slacksim"
	"github.com/countersign/countersign/internal/strictjson"
)

// The scripts are the specification of "countersign run". They run against a real
// server, at which Ada decides as a purpose begins: "approve: " or "reject: ".
// With "slowly: " the script says when.
func TestRunScripts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, cancel := context.WithCancel(t.Context())
	decided := make(chan struct{})
	go func() { defer close(decided); decideByPurpose(ctx, t, w.slack) }()
	t.Cleanup(func() { cancel(); <-decided })
	var agents atomic.Int64
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script/run",
		RequireExplicitExec: true,
		UpdateScripts:       *update,
		Setup: func(env *testscript.Env) error {
			_, token, err := w.server.service.CreateToken(t.Context(), operator(), fmt.Sprintf("shell-%d", agents.Add(1)), approval.Approver{})
			env.Setenv(agentTokenVariable, token)
			env.Setenv(serverVariable, w.server.config.URL)
			env.Setenv("OTHER", "kept")
			return err
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			// waiting PURPOSE: until its card is there.
			"waiting": func(ts *testscript.TestScript, _ bool, args []string) { w.posted(t, args[0]) },
			// approve PURPOSE: Ada does.
			"approve": func(ts *testscript.TestScript, _ bool, args []string) {
				w.click(t, "U0ADA", w.posted(t, args[0]).TS, "approve")
			},
			// request PURPOSE: prints what the server knows of it.
			"request": func(ts *testscript.TestScript, _ bool, args []string) {
				r, err := w.requestFor(t.Context(), args[0])
				ts.Check(err)
				reversible := "not said"
				if r.Reversible != nil {
					reversible = map[bool]string{true: "yes", false: "no"}[*r.Reversible]
				}
				fmt.Fprintf(ts.Stdout(), "action: %s\ntarget: %s\nenvironment: %s\nreversible: %s\npayload: %s\n", r.Action, r.Target, r.Environment, reversible, r.Payload)
				if r.Execution == nil {
					fmt.Fprintf(ts.Stdout(), "%s: \n", r.Status)
					return
				}
				fmt.Fprintf(ts.Stdout(), "%s: %s\n", r.Execution.Outcome, r.Execution.Detail)
			},
		},
	})
}

// posted waits for the card of a request that waits, by its purpose.
func (w *world) posted(t *testing.T, purpose string) slacksim.Message {
	t.Helper()
	return w.card(t, func(m slacksim.Message) bool {
		return strings.Contains(m.Text, "Approval needed") && strings.Contains(string(m.Blocks), purpose)
	})
}

// requestFor is the request with a purpose.
func (w *world) requestFor(ctx context.Context, purpose string) (*approval.Request, error) {
	recorded, err := w.server.store.Recorded(ctx, 100)
	if err != nil {
		return nil, err
	}
	for _, r := range recorded {
		if r.Purpose == purpose {
			return w.server.store.Request(ctx, r.ID)
		}
	}
	return nil, fmt.Errorf("nobody asked %q", purpose)
}

// startRun starts "countersign run" in its own session, so that no terminal
// signals it, and returns it once people are asked.
func (p *program) startRun(t *testing.T, token, purpose string, out *bytes.Buffer, command ...string) *exec.Cmd {
	t.Helper()
	running := p.command(t, []string{agentTokenVariable + "=" + token, serverVariable + "=http://127.0.0.1:" + p.port},
		append([]string{"run", "--purpose", purpose, "--"}, command...)...)
	running.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	running.Stdout, running.Stderr = out, out
	if err := running.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = running.Process.Kill() })
	return running
}

// exitCodeOf waits for the end of a process and returns its exit code.
func exitCodeOf(t *testing.T, running *exec.Cmd) int {
	t.Helper()
	ended := make(chan struct{})
	go func() { defer close(ended); _ = running.Wait() }()
	select {
	case <-ended:
		return running.ProcessState.ExitCode()
	case <-time.After(patience):
		t.Fatal("the process goes on")
		return 0
	}
}

// What is sent to run is sent to the command: by it, it can end as it likes.
func TestRunForwardsSignals(t *testing.T) {
	t.Parallel()
	p := newProgram(t)
	p.serve(t)
	token := p.output(t, "token", "create", "shell")
	w := p.world()
	for name, sent := range map[string]syscall.Signal{"INT": syscall.SIGINT, "TERM": syscall.SIGTERM, "HUP": syscall.SIGHUP, "QUIT": syscall.SIGQUIT, "USR1": syscall.SIGUSR1, "USR2": syscall.SIGUSR2} {
		t.Run(name, func(t *testing.T) {
			fifo := filepath.Join(t.TempDir(), "ready")
			if err := syscall.Mkfifo(fifo, 0o600); err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			running := p.startRun(t, token, "signal "+name, &out, "sh", "-c",
				`trap 'echo got `+name+`; exit 7' `+name+`; echo >"$0"; while :; do sleep 0.01; done`, fifo)
			w.click(t, "U0ADA", w.posted(t, "signal "+name).TS, "approve")
			if _, err := os.ReadFile(fifo); err != nil { // until it is ready
				t.Fatal(err)
			}
			if err := running.Process.Signal(sent); err != nil {
				t.Fatal(err)
			}
			if code := exitCodeOf(t, running); code != 7 || strings.Count(out.String(), "got "+name) != 1 {
				t.Errorf("exit code %d, and\n%s", code, &out)
			}
		})
	}
}

// A server that is killed while a command waits for its approval, and comes back,
// takes the click and lets it run, once.
func TestRunOutlivesTheServer(t *testing.T) {
	t.Parallel()
	p := newProgram(t)
	server := p.serve(t)
	token := p.output(t, "token", "create", "shell")
	w := p.world()
	var out bytes.Buffer
	made := filepath.Join(t.TempDir(), "made")
	running := p.startRun(t, token, "outlive", &out, "sh", "-c", `echo ran >>"$0"`, made)
	card := w.posted(t, "outlive")
	_ = server.Process.Kill()
	_ = server.Wait()
	p.serve(t)
	if reply := w.click(t, "U0ADA", card.TS, "approve"); !reply.OK() {
		t.Fatalf("the click: %+v", reply)
	}
	code := exitCodeOf(t, running)
	if text, err := os.ReadFile(made); code != 0 || err != nil || string(text) != "ran\n" {
		t.Errorf("exit code %d, it made %q (%v), and said\n%s", code, text, err, &out)
	}
	if strings.Contains(out.String(), token) {
		t.Errorf("it shows the token:\n%s", &out)
	}
	w.card(t, func(m slacksim.Message) bool {
		return strings.Contains(string(m.Blocks), "Exit code 0.") || strings.Contains(m.Text, "Exit code 0.")
	})
}

// Whatever arguments are UTF-8 stand in the payload as they are, and come out of it
// as they were.
func TestCommandLineSurvives(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		want := commandLine{
			Argv:       rapid.SliceOfN(rapid.String(), 1, 6).Draw(t, "argv"),
			Directory:  "/" + rapid.String().Draw(t, "directory"),
			Executable: "/" + rapid.String().Draw(t, "executable"),
			SHA256:     rapid.StringMatching(`[0-9a-f]{64}`).Draw(t, "sha256"),
		}
		action, err := (&runCommand{}).action(want)
		if err != nil {
			t.Fatal(err)
		}
		got, err := parseCommandLine(action.Payload)
		if err != nil {
			t.Fatalf("%s: %v", action.Payload, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("(-want +got):\n%s", diff)
		}
	})
}

// What was approved runs only if all of it can be heeded.
func TestParseCommandLineRefuses(t *testing.T) {
	t.Parallel()
	const good = `"argv":["true"],"directory":"/","executable":"/bin/true","sha256":"00"`
	if _, err := parseCommandLine([]byte(`{"command":{` + good + "}}")); err != nil {
		t.Fatal(err)
	}
	for _, payload := range []string{
		``, `[]`, `{}`, "{" + good + `,"environment":{"A":"b"}}`, "{" + good + `,"Argv":["rm"]}`, "{" + good + `,"argv":["rm"]}`,
		strings.Replace("{"+good+"}", `["true"]`, `[]`, 1),
		strings.Replace("{"+good+"}", `["true"]`, `null`, 1),
		strings.Replace("{"+good+"}", `["true"]`, `"true"`, 1),
		strings.Replace("{"+good+"}", `["true"]`, `["true",null]`, 1),
		strings.Replace("{"+good+"}", `["true"]`, `["true",1]`, 1),
		strings.Replace("{"+good+"}", `"/"`, `"here"`, 1),
		strings.Replace("{"+good+"}", `"/"`, `null`, 1),
		strings.Replace("{"+good+"}", `"/bin/true"`, `"true"`, 1),
		strings.Replace("{"+good+"}", `"00"`, `""`, 1),
		strings.Replace("{"+good+"}", `,"sha256":"00"`, ``, 1),
	} {
		if line, err := parseCommandLine([]byte(`{"command":` + payload + "}")); err == nil {
			t.Errorf("%s: accepted as %+v", payload, line)
		}
	}
	for _, payload := range []string{"", "{}", "[]", "{" + good + "}", `{"Command":{` + good + "}}", `{"command":{` + good + `},"environment":{}}`} {
		if line, err := parseCommandLine([]byte(payload)); err == nil {
			t.Errorf("%s: accepted as %+v", payload, line)
		}
	}
}

// Whatever a payload is, reading it ends in a command line that it holds, or in an
// error.
func FuzzCommandLine(f *testing.F) {
	f.Add([]byte(`{"command":{"argv":["true"],"directory":"/","executable":"/bin/true","sha256":"00"}}`))
	f.Add([]byte(`{"command":{"argv":["\u0000","\ud83d\ude00"],"directory":"/a","executable":"/b","sha256":"00"}}`))
	f.Add([]byte(`{"command":{"argv":[null]}}`))
	f.Fuzz(func(t *testing.T, payload []byte) {
		line, err := parseCommandLine(payload)
		if err != nil {
			return
		}
		written, err := json.Marshal(map[string]commandLine{"command": line})
		if err != nil {
			t.Fatal(err)
		}
		want, err := strictjson.Canonical(payload)
		if err != nil {
			t.Fatalf("accepted %q: %v", payload, err)
		}
		if got, err := strictjson.Canonical(written); err != nil || !bytes.Equal(got, want) {
			t.Errorf("read %q as %q (%v)", payload, written, err)
		}
	})
}

func TestCommandLineString(t *testing.T) {
	t.Parallel()
	for want, argv := range map[string][]string{
		"git push origin main":    {"git", "push", "origin", "main"},
		"rm -rf 'a b' '' '*' --":  {"rm", "-rf", "a b", "", "*", "--"},
		`echo 'it'\''s' '$HOME'`:  {"echo", "it's", "$HOME"},
		"curl https://a.example/": {"curl", "https://a.example/"},
	} {
		if got := (commandLine{Argv: argv}).String(); got != want {
			t.Errorf("%q: %s, want %s", argv, got, want)
		}
	}
}
