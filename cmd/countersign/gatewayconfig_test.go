package main

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/countersign/countersign/gateway"
	"github.com/countersign/countersign/mcp"
)

// gatewayExample is the example of servers, as it is meant to be written.
func gatewayExample(t *testing.T) string {
	t.Helper()
	at := strings.Index(exampleConfig, "  #   crm:\n")
	if at < 0 {
		t.Fatal("the example shows no servers")
	}
	servers, _, _ := strings.Cut(exampleConfig[at:], "  servers: {}\n")
	servers = regexp.MustCompile(`(?m)^  # `).ReplaceAllString(servers, "  ")
	return strings.Replace(exampleConfig, "  servers: {}\n", "  servers:\n"+servers, 1)
}

// What the example shows of servers is accepted, and means what it says.
func TestGatewayExample(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	path := filepath.Join(folder, "countersign.yaml")
	if err := os.WriteFile(path, []byte(gatewayExample(t)), 0o600); err != nil {
		t.Fatal(err)
	}
	conf, err := readConfig(path)
	if err != nil {
		t.Fatal(err)
	}
	given, err := conf.Gateway.readSecrets(environmentOf(map[string]string{"CRM_TOKEN": "c1", "WIKI_TOKEN": "w1"}))
	if err != nil {
		t.Fatal(err)
	}
	want := []gateway.Server{
		{
			Name:         "crm",
			Command:      []string{"crm-mcp", "--read-write"},
			Directory:    filepath.Join(folder, "crm"),
			Env:          map[string]string{"CRM_TOKEN": "c1"},
			Headers:      map[string]string{},
			Environment:  "staging",
			Run:          gateway.AtDecision,
			Tools:        map[string]gateway.RunAt{"export_contacts": gateway.AtReturn},
			StartTimeout: gateway.DefaultStartTimeout,
			CallTimeout:  gateway.DefaultCallTimeout,
		},
		{
			Name:    "wiki",
			Env:     map[string]string{},
			URL:     "https://wiki.example.com/mcp",
			Headers: map[string]string{"Authorization": "Bearer w1"},
			Tools:   map[string]gateway.RunAt{},
		},
	}
	if diff := cmp.Diff(want, conf.Gateway.servers(given)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// What the README shows of servers is one that a reader can paste.
func TestReadmeGateway(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile(filepath.Join("..", "..", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, after, found := strings.Cut(string(readme), "   ```yaml\n   gateway:\n")
	shown, _, closed := strings.Cut(after, "   ```\n")
	if !found || !closed {
		t.Fatal("the README shows no gateway")
	}
	conf, err := parseConfig([]byte("gateway:\n" + strings.ReplaceAll(shown, "\n   ", "\n")[len("   "):]))
	if err != nil {
		t.Fatal(err)
	}
	conf.Slack.Workspace, conf.Slack.Channel = demoWorkspace, demoChannel
	if err := conf.check(); err != nil {
		t.Error(err)
	}
	if len(conf.Gateway.Servers) != 2 {
		t.Errorf("got %d servers", len(conf.Gateway.Servers))
	}
}

func environmentOf(variables map[string]string) func(string) string {
	return func(name string) string { return variables[name] }
}

func TestGatewayOptions(t *testing.T) {
	t.Parallel()
	for written, want := range map[string]gateway.Options{
		"": {Approval: gateway.Pending, HoldBound: defaultHold, AwaitBound: mcp.DefaultAwaitBound},
		"gateway: {approval: hold, hold: 10s, review_prompt: url}\nmcp: {await_bound: 5s}": {
			Approval: gateway.Hold, HoldBound: 10 * time.Second, Prompt: gateway.PromptURL, AwaitBound: 5 * time.Second,
		},
	} {
		conf, err := parseConfig([]byte(written))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, conf.gatewayOptions()); diff != "" {
			t.Errorf("%q (-want +got)\n%s", written, diff)
		}
	}
}

// Each thing that is wrong is said at once, by its key.
func TestGatewayConfigRefuses(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, gateway string
		want          []string // the lines of the error, each by a part of it
	}{
		{"a way to answer that isn't one", "approval: sometime", []string{`gateway.approval: "sometime"; pending and hold`}},
		{"a hold that hosts cut off", "hold: 2m", []string{"gateway.hold: 2m0s; 1s to 55s are accepted"}},
		{"a hold of nothing", "hold: 0s", []string{"gateway.hold: 0s; 1s"}},
		{"another prompt", "review_prompt: always", []string{`gateway.review_prompt: "always"; none and url`}},
		{"a name", "servers: {Crm: {command: [crm]}}", []string{`gateway.servers.Crm: "Crm" is not a name`}},
		{"a name with a dot", "servers: {a.b: {command: [crm]}}", []string{`gateway.servers.a.b: "a.b" is not a name`}},
		{"a name that isn't what it looks like", "servers: {\"cr\\u043c\": {command: [crm]}}", []string{"is not a name"}},
		{"no way to it", "servers: {crm: }", []string{"gateway.servers.crm: has neither command nor url"}},
		{"two ways to it", "servers: {crm: {command: [crm], url: 'https://crm.example.com/mcp'}}", []string{"gateway.servers.crm: has both command and url"}},
		{"an empty command", "servers: {crm: {command: []}}", []string{"gateway.servers.crm: has neither"}},
		{"a command without a program", "servers: {crm: {command: ['', x]}}", []string{"gateway.servers.crm: command: the program is missing"}},
		{"an address in the clear", "servers: {crm: {url: 'http://crm.example.com/mcp'}}", []string{"gateway.servers.crm: url: sends what is secret in the clear"}},
		{"no address", "servers: {crm: {url: crm.example.com}}", []string{"gateway.servers.crm: url: is not an address"}},
		{"a password in the address", "servers: {crm: {url: 'https://me:hunter2@crm.example.com/mcp'}}", []string{"gateway.servers.crm: url: has credentials in it"}},
		{"a header with a command", "servers: {crm: {command: [crm], headers: {A: b}}}", []string{"gateway.servers.crm: headers are for a url"}},
		{"variables with an address", "servers: {crm: {url: 'https://crm.example.com/mcp', env: {A: b}}}", []string{"gateway.servers.crm: directory and env are for a command"}},
		{"a folder with an address", "servers: {crm: {url: 'https://crm.example.com/mcp', directory: x}}", []string{"gateway.servers.crm: directory and env are for a command"}},
		{"a header of the protocol", "servers: {crm: {url: 'https://crm.example.com/mcp', headers: {Mcp-Session-Id: b}}}", []string{"gateway.servers.crm: headers: Mcp-Session-Id is set by the protocol"}},
		{"a variable of ours for a child", "servers: {crm: {command: [crm], env: {COUNTERSIGN_TOKEN: x}}}", []string{"gateway.servers.crm: env: COUNTERSIGN_TOKEN is for this server alone"}},
		{"a secret of ours in a child's variable", "servers: {crm: {command: [crm], env: {A: '${COUNTERSIGN_SLACK_BOT_TOKEN}'}}}", []string{"gateway.servers.crm.env.A: COUNTERSIGN_SLACK_BOT_TOKEN is for this server alone"}},
		{"the file of one", "servers: {crm: {command: [crm], env: {A: '${COUNTERSIGN_SLACK_BOT_TOKEN_FILE}'}}}", []string{"gateway.servers.crm.env.A: COUNTERSIGN_SLACK_BOT_TOKEN_FILE is for this server alone"}},
		{"the secret of a provider", "servers: {crm: {command: [crm], env: {A: '${COUNTERSIGN_EXAMPLE_ID_CLIENT_SECRET}'}}}", []string{"COUNTERSIGN_EXAMPLE_ID_CLIENT_SECRET is for this server alone"}},
		{"the client secret's file", "servers: {crm: {command: [crm], env: {A: '${COUNTERSIGN_SLACK_CLIENT_SECRET_FILE}'}}}", []string{"COUNTERSIGN_SLACK_CLIENT_SECRET_FILE is for this server alone"}},
		{"a reference that doesn't end", "servers: {crm: {command: [crm], env: {A: 'hunter2${B'}}}", []string{"gateway.servers.crm.env.A: has a ${ that isn't followed"}},
		{"a reference to no variable", "servers: {crm: {url: 'https://crm.example.com/mcp', headers: {A: 'hunter2${B-C}'}}}", []string{"gateway.servers.crm.headers.A: has a ${ that isn't followed"}},
		{"another time to run", "servers: {crm: {command: [crm], run: later}}", []string{`gateway.servers.crm.run: "later"; decision and return`}},
		{"another time for a tool", "servers: {crm: {command: [crm], tools: {export: {run: later}}}}", []string{`gateway.servers.crm.tools.export.run: "later"; decision and return`}},
		{"times that are none", "servers: {crm: {command: [crm], start_timeout: -1s, call_timeout: -2s}}", []string{"gateway.servers.crm.start_timeout: -1s is negative", "gateway.servers.crm.call_timeout: -2s is negative"}},
		{"several servers", "servers: {wiki: {}, crm: {url: x, run: y}}", []string{"gateway.servers.crm.run", "gateway.servers.crm: url", "gateway.servers.wiki: has neither"}},
		{"a key that isn't there", "servers: {crm: {cmd: [crm]}}", []string{`unknown field "cmd"`}},
		{"a key of a tool that isn't there", "servers: {crm: {command: [crm], tools: {a: {runs: return}}}}", []string{`unknown field "runs"`}},
		{"a server twice", "servers:\n  crm: {command: [crm]}\n  crm: {command: [crm]}", []string{"crm"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			before, _, _ := strings.Cut(exampleConfig, "gateway:\n")
			text := before + "gateway:\n  " + strings.ReplaceAll(test.gateway, "\n", "\n  ") + "\n"
			path := filepath.Join(t.TempDir(), "countersign.yaml")
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := readConfig(path)
			if err == nil {
				t.Fatal("accepted")
			}
			if strings.Contains(err.Error(), "hunter2") {
				t.Errorf("the error shows a secret: %v", err)
			}
			if strings.HasPrefix(err.Error(), "reading ") { // one problem with its place
				if !strings.Contains(err.Error(), test.want[0]) {
					t.Errorf("got %v, want %q", err, test.want[0])
				}
				return
			}
			lines := strings.Split(err.Error(), "\n")[1:]
			if len(lines) != len(test.want) {
				t.Fatalf("got %d problems, want %d:\n%v", len(lines), len(test.want), err)
			}
			for i, want := range test.want {
				if !strings.HasPrefix(lines[i], "  ") || !strings.Contains(lines[i], want) {
					t.Errorf("line %d: got %q, want %q in it", i+1, lines[i], want)
				}
			}
		})
	}
}

// Commands start beside the configuration, wherever the process was started.
func TestGatewayDirectories(t *testing.T) {
	t.Parallel()
	folder, elsewhere := t.TempDir(), t.TempDir()
	for written, want := range map[string]string{
		"command: [crm]":                                 folder,
		"command: [crm], directory: here":                filepath.Join(folder, "here"),
		"command: [crm], directory: '" + elsewhere + "'": elsewhere,
		"url: 'https://crm.example.com/mcp'":             "",
	} {
		conf, err := parseConfig([]byte("gateway: {servers: {crm: {" + written + "}}}"))
		if err != nil {
			t.Fatal(err)
		}
		conf.Gateway.resolve(folder)
		if got := conf.Gateway.Servers["crm"].Directory; got != want {
			t.Errorf("%s: started in %q, want %q", written, got, want)
		}
	}
}

func TestGatewaySecrets(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte("from a file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	variables := map[string]string{"A": "hunter2", "B_FILE": file, "both": "x", "both_FILE": file, "BREAK": "hunter2\nX-Admin: yes", "NAUGHT": "", "NESTED": "${A}"}
	for _, test := range []struct{ written, want, problem string }{
		{"plain", "plain", ""},
		{"", "", ""},
		{"${A}", "hunter2", ""},
		{"Bearer ${A}", "Bearer hunter2", ""},
		{"${A}${A}-${B}", "hunter2hunter2-from a file", ""},
		{"${NESTED}", "${A}", ""},
		{"$A", "$A", ""},
		{"$$${", "$${", ""},
		{"$${A}", "${A}", ""},
		{"a$b}{", "a$b}{", ""},
		{"${MISSING}", "", "gateway.servers.crm.headers.X: MISSING (or MISSING_FILE) is not set"},
		{"${NAUGHT}", "", "gateway.servers.crm.headers.X: NAUGHT (or NAUGHT_FILE) is not set"},
		{"${both}", "", "gateway.servers.crm.headers.X: both and both_FILE are both set"},
		{"Bearer ${BREAK}", "", "gateway.servers.crm: headers: the value of X has a control character in it"},
	} {
		conf := defaultConfig()
		conf.Gateway.Servers["crm"] = downstreamConfig{URL: "https://crm.example.com/mcp", Headers: map[string]secret{"X": secret(test.written)}}
		given, err := conf.Gateway.readSecrets(environmentOf(variables))
		switch {
		case test.problem == "" && (err != nil || string(given["crm"].Headers["X"]) != test.want):
			t.Errorf("%q: got %q, %v", test.written, string(given["crm"].Headers["X"]), err)
		case test.problem != "" && (err == nil || !strings.Contains(err.Error(), test.problem)):
			t.Errorf("%q: got %v, want %q", test.written, err, test.problem)
		case err != nil && strings.Contains(err.Error(), "hunter2"):
			t.Errorf("%q: the error shows a secret: %v", test.written, err)
		}
	}
}

// All that is missing is said at once, beside what is missing for Slack.
func TestSecretsNamesAllThatIsMissing(t *testing.T) {
	t.Parallel()
	conf, err := parseConfig([]byte(gatewayExample(t)))
	if err != nil {
		t.Fatal(err)
	}
	_, err = readSecrets(conf, environmentOf(nil))
	for _, want := range []string{botTokenVariable, appTokenVariable, "gateway.servers.crm.env.CRM_TOKEN: CRM_TOKEN (or CRM_TOKEN_FILE)", "gateway.servers.wiki.headers.Authorization: WIKI_TOKEN"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q in it", err, want)
		}
	}
}

// What servers are given shows itself nowhere, written out or read.
func TestGatewaySecretsNeverShowThemselves(t *testing.T) {
	t.Parallel()
	conf := defaultConfig()
	conf.Gateway.Servers["crm"] = downstreamConfig{
		Command: []string{"crm"}, Env: map[string]secret{"A": "hunter2"}, StartTimeout: time.Second,
	}
	given, err := conf.Gateway.readSecrets(environmentOf(nil))
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	slog.New(slog.NewJSONHandler(&log, nil)).Info("starting", "conf", conf, "secrets", secrets{Downstream: given})
	slog.New(slog.NewTextHandler(&log, nil)).Info("starting", "conf", conf, "secrets", secrets{Downstream: given})
	if err := json.NewEncoder(&log).Encode(given); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(log.String(), "hunter2") {
		t.Error(log.String())
	}
}
