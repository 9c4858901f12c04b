package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/countersign/countersign/bot/slacksim"
)

// program is the product as its users run it: a process of its own with a
// configuration file, over Socket Mode to a simulated Slack.
type program struct {
	slack  *slacksim.Server
	folder string
	port   string
	log    *processLog // of the server that serve started

	environment []string // beside what Slack needs
}

func newProgram(t *testing.T) *program {
	t.Helper()
	slack, err := slacksim.Start(slacksim.Options{TeamID: demoWorkspace})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = slack.Close() })
	slack.SetChannel(slacksim.Channel{ID: demoChannel, Name: "agent-approvals"})
	for _, person := range demoPeople {
		slack.SetUser(person)
	}
	p := &program{slack: slack, folder: t.TempDir(), port: freePort(t)}
	text := fmt.Sprintf(`
listen: 127.0.0.1:%s
url: http://127.0.0.1:%s
slack: {workspace: %s, channel: %s, api_url: "%s"}
mcp: {await_bound: 1s}
`, p.port, p.port, demoWorkspace, demoChannel, slack.APIURL())
	p.write(t, "countersign.yaml", text)
	p.write(t, "policy.yaml", programPolicy)
	return p
}

// programPolicy leaves to people what it doesn't classify, which is most of what
// tests ask for.
const programPolicy = `version: 1
mode: cautious
roles: {finance: {users: [U0ADA, U0GRACE, U0OLIVIA]}}
approval: {requires: [{role: finance}]}
`

// write replaces a file in the program's folder as a careful editor does.
func (p *program) write(t *testing.T, name, text string) {
	t.Helper()
	path := filepath.Join(p.folder, name)
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

func freePort(t *testing.T) string {
	t.Helper()
	s, err := slacksim.Start(slacksim.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	return s.URL[strings.LastIndex(s.URL, ":")+1:]
}

// command is a run of the program in its folder.
func (p *program) command(t *testing.T, environment []string, arguments ...string) *exec.Cmd {
	t.Helper()
	options := p.slack.Options()
	command := exec.CommandContext(t.Context(), "countersign", arguments...)
	command.Dir = p.folder
	command.Env = append(os.Environ(),
		botTokenVariable+"="+options.BotToken,
		appTokenVariable+"="+options.AppToken)
	command.Env = append(command.Env, p.environment...)
	command.Env = append(command.Env, environment...)
	return command
}

// output runs the program to its end.
func (p *program) output(t *testing.T, arguments ...string) string {
	t.Helper()
	var stderr bytes.Buffer
	command := p.command(t, nil, arguments...)
	command.Stderr = &stderr
	out, err := command.Output()
	if err != nil {
		t.Fatalf("countersign %v: %v\n%s", arguments, err, &stderr)
	}
	return strings.TrimSpace(string(out))
}

// serve starts the server and returns once it is connected to Slack.
func (p *program) serve(t *testing.T) *exec.Cmd {
	t.Helper()
	command := p.command(t, nil, "serve")
	log := p.logOf(t, command)
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = command.Process.Kill(); _ = command.Wait() })
	log.says(t, `"msg":"serving"`)
	p.log = log
	p.connected(t)
	return command
}

// processLog is what a process says on standard error, line by line.
type processLog struct {
	lines chan string
}

// logOf follows a command's log, of which each line is JSON without secrets and
// payloads.
func (p *program) logOf(t *testing.T, command *exec.Cmd) *processLog {
	t.Helper()
	out, err := command.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	log := &processLog{lines: make(chan string, 1000)}
	go func() {
		defer close(log.lines)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			line := lines.Text()
			if !json.Valid(lines.Bytes()) {
				t.Errorf("a line of the log is not JSON: %s", line)
			}
			if strings.Contains(line, "xoxb-") || strings.Contains(line, "xapp-") || strings.Contains(line, crmToken) || strings.Contains(line, "last_seen_before") {
				t.Errorf("the log has a secret or a payload: %s", line)
			}
			log.lines <- line
		}
	}()
	return log
}

// says waits for a line with a text in it, and returns it.
func (l *processLog) says(t *testing.T, text string) string {
	t.Helper()
	late := time.After(patience)
	for {
		select {
		case line, open := <-l.lines:
			if !open {
				t.Fatalf("the process ended without saying %s", text)
			}
			if strings.Contains(line, text) {
				return line
			}
		case <-late:
			t.Fatalf("the process didn't say %s", text)
		}
	}
}

// connected waits until a Socket Mode client is there to take clicks.
func (p *program) connected(t *testing.T) {
	t.Helper()
	if err := p.slack.Wait(t.Context(), func() bool { return p.slack.Sockets() > 0 }); err != nil {
		t.Fatal(err)
	}
}

// world makes the helpers for the wire usable on a program.
func (p *program) world() *world {
	return &world{slack: p.slack, options: serverOptions{config: config{URL: "http://127.0.0.1:" + p.port}}}
}

func stdio(t *testing.T, command *exec.Cmd) *sdk.ClientSession {
	t.Helper()
	client := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil)
	session, err := client.Connect(t.Context(), &sdk.CommandTransport{Command: command}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = session.Close() })
	return session
}

// roundTrip asks, has Ada approve and applies.
func roundTrip(t *testing.T, w *world, session *sdk.ClientSession) {
	t.Helper()
	id := ask(t, session, demoDelete)
	posted := w.card(t, mentions("Approval needed"))
	if reply := w.click(t, "U0ADA", posted.TS, "approve"); !reply.OK() {
		t.Fatalf("the click: %+v", reply)
	}
	if got := status(t, session, "await_approval", id); got != "approved" {
		t.Fatalf("await_approval says %s", got)
	}
	payload, err := apply(t, session, id)
	if err != nil || !json.Valid(payload) || !strings.Contains(string(payload), `"expected_count":214`) {
		t.Errorf("applied %s (%v)", payload, err)
	}
	w.card(t, mentions("Applied"))
}

// One agent on stdio, with its own store and its own connection to Slack; a
// second process on the same folder is told who has it and what to do.
func TestStandalone(t *testing.T) {
	t.Parallel()
	p := newProgram(t)
	session := stdio(t, p.command(t, nil, "mcp", "--agent", "my-agent", "--owner", demoOwner))
	p.connected(t)
	var stderr bytes.Buffer
	second := p.command(t, nil, "mcp")
	second.Stderr = &stderr
	if err := second.Run(); err == nil {
		t.Error("a second process took the same folder")
	}
	for _, want := range []string{"is in use by process", "(mcp)", "countersign serve", "--server http://127.0.0.1:" + p.port} {
		if !strings.Contains(stderr.String(), want) {
			t.Errorf("%q doesn't say %q", stderr.String(), want)
		}
	}
	w := p.world()
	id := ask(t, session, demoDelete)
	posted := w.card(t, mentions("Approval needed"))
	if !strings.Contains(string(posted.Blocks), "my-agent") {
		t.Error("the card doesn't name the agent")
	}
	w.click(t, demoOwner, posted.TS, "approve")
	if got := status(t, session, "check_status", id); got != "pending" {
		t.Errorf("after the owner's click: %s", got)
	}
	w.click(t, "U0ADA", posted.TS, "approve")
	if got := status(t, session, "await_approval", id); got != "approved" {
		t.Errorf("after Ada's click: %s", got)
	}
}

// SIGTERM ends what waits on stdio as pending too, before the store closes.
func TestTerminateStandalone(t *testing.T) {
	t.Parallel()
	p := newProgram(t)
	command := p.command(t, nil, "mcp")
	held := make(chan struct{}, 10)
	client := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, &sdk.ClientOptions{
		ProgressNotificationHandler: func(context.Context, *sdk.ProgressNotificationClientRequest) { held <- struct{}{} },
	})
	session, err := client.Connect(t.Context(), &sdk.CommandTransport{Command: command}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = session.Close() })
	answer := awaitHeld(t, session, held, ask(t, session, demoDelete))
	if err := command.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if got := <-answer; got != "pending" {
		t.Errorf("the waiting call ended with %s", got)
	}
}

// A server part that can't go on ends the process, with the reason, although
// the host is still there.
func TestStandaloneWithAnotherWorkspacesToken(t *testing.T) {
	t.Parallel()
	p := newProgram(t)
	path := filepath.Join(p.folder, "countersign.yaml")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, bytes.Replace(text, []byte(demoWorkspace), []byte("T0OTHER"), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	command := p.command(t, nil, "mcp")
	host, err := command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	var stderr bytes.Buffer
	command.Stderr = &stderr
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- command.Wait() }()
	select {
	case err := <-ended:
		if err == nil || !strings.Contains(stderr.String(), "workspace") {
			t.Errorf("ended with %v and\n%s", err, &stderr)
		}
	case <-time.After(patience):
		_ = command.Process.Kill()
		t.Fatal("the process goes on without its server part")
	}
}

// An agent on stdio through a running server: the token says who it is.
func TestBridge(t *testing.T) {
	t.Parallel()
	p := newProgram(t)
	p.serve(t)
	token := p.output(t, "token", "create", "crm-agent", "--owner", demoOwner)
	roundTrip(t, p.world(), stdio(t, p.command(t, []string{agentTokenVariable + "=" + token}, "mcp", "--server", "http://127.0.0.1:"+p.port)))
}

func TestBridgeSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	p := newProgram(t)
	p.serve(t)
	server := "http://127.0.0.1:" + p.port
	for name, test := range map[string]struct {
		environment []string
		server      string
		want        string
	}{
		"no token":      {nil, server, "COUNTERSIGN_TOKEN (or COUNTERSIGN_TOKEN_FILE) is not set"},
		"in the clear":  {[]string{agentTokenVariable + "=countersign_wrong"}, "http://approvals.example.com", "in the clear"},
		"no address":    {[]string{agentTokenVariable + "=countersign_wrong"}, "approvals.example.com", "is not an address"},
		"a wrong token": {[]string{agentTokenVariable + "=countersign_wrong"}, server, "token create"},
	} {
		var stderr bytes.Buffer
		command := p.command(t, test.environment, "mcp", "--server", test.server)
		command.Stderr = &stderr
		if err := command.Run(); err == nil || !strings.Contains(stderr.String(), test.want) {
			t.Errorf("%s: %v, %s", name, err, &stderr)
		}
		if strings.Contains(stderr.String(), "countersign_wrong") {
			t.Errorf("%s: the error shows the token", name)
		}
	}
}

// SIGTERM: waiting calls end with pending, the process ends well, and what was
// asked is there after a restart. The limit of ten seconds is the product's.
func TestTerminate(t *testing.T) {
	t.Parallel()
	p := newProgram(t)
	running := p.serve(t)
	w := p.world()
	token := p.output(t, "token", "create", "crm-agent")
	id := ask(t, w.agent(t, token), demoDelete)
	answer := w.waiting(t, token, id)
	if err := running.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if got := <-answer; got != "pending" {
		t.Errorf("the waiting call ended with %s", got)
	}
	ended := make(chan error, 1)
	go func() { ended <- running.Wait() }()
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("the process ended with %v", err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("the process is there ten seconds after SIGTERM")
	}
	p.serve(t)
	if got := status(t, w.agent(t, token), "check_status", id); got != "pending" {
		t.Errorf("after the restart: %s", got)
	}
}

// A process that is killed loses nothing that it acknowledged: not the request,
// not the click, and not that the approval was used.
func TestKill(t *testing.T) {
	t.Parallel()
	p := newProgram(t)
	w := p.world()
	running := p.serve(t)
	kill := func() {
		t.Helper()
		_ = running.Process.Kill()
		_ = running.Wait()
		running = p.serve(t)
	}
	token := p.output(t, "token", "create", "crm-agent")
	id := ask(t, w.agent(t, token), demoDelete)
	posted := w.card(t, mentions("Approval needed"))
	kill()
	if reply := w.click(t, "U0ADA", posted.TS, "approve"); !reply.OK() {
		t.Fatalf("the click: %+v", reply)
	}
	kill()
	session := w.agent(t, token)
	if got := status(t, session, "await_approval", id); got != "approved" {
		t.Fatalf("after the kill: %s", got)
	}
	if _, err := apply(t, session, id); err != nil {
		t.Fatal(err)
	}
	kill()
	if _, err := apply(t, w.agent(t, token), id); err == nil {
		t.Error("applied twice over a kill")
	}
	w.card(t, mentions("Applied"))
	if messages := w.slack.Messages(demoChannel); len(messages) != 1 {
		t.Errorf("%d cards for one request", len(messages))
	}
}

func TestHealth(t *testing.T) {
	t.Parallel()
	p := newProgram(t)
	p.serve(t)
	for _, path := range []string{"/healthz", "/readyz", "/review?elicitationId=req_0"} {
		// The server may still be introducing itself to Slack.
		for began := time.Now(); ; {
			response, err := http.Get("http://127.0.0.1:" + p.port + path)
			if err != nil {
				t.Fatal(err)
			}
			_ = response.Body.Close()
			if response.StatusCode == http.StatusOK {
				break
			}
			if response.StatusCode != http.StatusServiceUnavailable || time.Since(began) > patience {
				t.Fatalf("%s: %s", path, response.Status)
			}
		}
	}
}

// The doctor finds everything well where it is, and says what to do where not.
func TestDoctor(t *testing.T) {
	t.Parallel()
	p := newProgram(t)
	well := p.output(t, "doctor")
	if strings.Contains(well, "FAIL") || !strings.Contains(well, "ok") {
		t.Errorf("the doctor says\n%s", well)
	}
	t.Log("\n" + well)
	p.slack.SetChannel(slacksim.Channel{ID: demoChannel, Name: "agent-approvals", WithoutBot: true})
	p.slack.SetUser(slacksim.User{ID: "U0GRACE", Name: "grace", Deleted: true})
	ill, err := p.command(t, nil, "doctor").Output()
	if err == nil || !strings.Contains(string(ill), "/invite") || !strings.Contains(string(ill), "U0GRACE") {
		t.Errorf("%v, and the doctor says\n%s", err, ill)
	}
	t.Log("\n" + string(ill))
}

// The doctor looks at the policy: what its author should know, who may write it,
// and agents whose requests nobody could approve by it.
func TestDoctorOnPolicy(t *testing.T) {
	t.Parallel()
	p := newProgram(t)
	p.output(t, "token", "create", "crm-agent", "--owner", "U0ADA")
	if well := p.output(t, "doctor"); !strings.Contains(well, "ok    receipts: signed by the key ") {
		t.Errorf("the doctor says of the keys of receipts\n%s", well)
	}
	if err := os.Chmod(filepath.Join(p.folder, "countersign-data", "receipts.keys"), 0o640); err != nil {
		t.Fatal(err)
	}
	const unused = "  nobody: {users: [U0SAM]}\n"
	p.write(t, "policy.yaml", strings.Replace(programPolicy, "roles: {finance: {users: [U0ADA, U0GRACE, U0OLIVIA]}}\n", "roles:\n  finance: {users: [U0ADA]}\n"+unused, 1))
	if err := os.Chmod(filepath.Join(p.folder, "policy.yaml"), 0o606); err != nil {
		t.Fatal(err)
	}
	ill, err := p.command(t, nil, "doctor").Output()
	for _, want := range []string{"policy.yaml:5:", "chmod o-w policy.yaml", "FAIL  receipts: ", "chmod 0600", "token of crm-agent (tok_", "without U0ADA"} {
		if err == nil || !strings.Contains(string(ill), want) {
			t.Errorf("%v, and the doctor doesn't say %q:\n%s", err, want, ill)
		}
	}
	t.Log("\n" + string(ill))

	p.write(t, "policy.yaml", "version: 1\n")
	ill, err = p.command(t, nil, "doctor").Output()
	for _, want := range []string{"FAIL  policy: policy.yaml:1:1: approval: requires is missing", "ok    secrets"} {
		if err == nil || !strings.Contains(string(ill), want) {
			t.Errorf("%v, and the doctor doesn't say %q:\n%s", err, want, ill)
		}
	}
	t.Log("\n" + string(ill))
}
