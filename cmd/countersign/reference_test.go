package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/countersign/countersign/bot/slacksim"
	"github.com/countersign/countersign/gateway/gatewaytest"
)

const referencePolicy = `
version: 1
mode: cautious
roles: {oncall: {users: [U0ADA, U0GRACE]}}
approval: {requires: [{role: oncall}]}
integrations:
  files:
    tools:
      read_*: {tier: 1}
      list_*: {tier: 1}
      move_file: {tier: 4, target: 'args.source'}
  notes:
    tools:
      read_graph: {tier: 1}
      create_entities: {tier: 2}
      delete_entities: {tier: 4, count: 'size(args.entityNames)', target: 'args.entityNames.join(", ")'}
`

// Servers that we didn't write, in front of which the whole product stands: what
// is allowed is as without it, and what destroys waits for Slack and then happens,
// once.
func TestReferenceServers(t *testing.T) {
	t.Parallel()
	folder, memory := t.TempDir(), filepath.Join(t.TempDir(), "memory.json")
	files, notes := gatewaytest.Filesystem(t, folder), gatewaytest.Memory(t, memory)
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("precious.txt", "9007199254740993 & <tags>\n")
	direct := files.Connect(t, `{}`)

	w := unstartedWorld(t)
	w.options.config.Gateway = defaultGatewayConfig()
	w.options.config.Gateway.Servers = map[string]downstreamConfig{
		"files": {Command: files.Command, Env: secretsOf(files.Env)},
		"notes": {Command: notes.Command, Env: secretsOf(notes.Env)},
	}
	w.options.secrets.Downstream = map[string]downstreamSecrets{
		"files": {Env: secretsOf(files.Env)},
		"notes": {Env: secretsOf(notes.Env)},
	}
	if err := os.WriteFile(w.options.config.Policy, []byte(referencePolicy), 0o600); err != nil {
		t.Fatal(err)
	}
	var err error
	if w.options.policy, err = readPolicy(w.options.config.Policy); err != nil {
		t.Fatal(err)
	}
	w.start(t)
	token := w.token(t, "files-agent")
	agent := gatewayAgent(t, w, token, "move_file", "delete_entities")

	source, gone := filepath.Join(folder, "precious.txt"), filepath.Join(folder, "gone.txt")
	for _, arguments := range []string{
		`{"path":` + quoted(source) + `}`,
		`{"path":` + quoted(filepath.Join(folder, "missing.txt")) + `}`,
	} {
		got := raw(t, agent, "read_text_file", arguments)
		want := direct.Call(t, "read_text_file", arguments)
		if !sameJSON(t, got, want) {
			t.Errorf("through the gateway:\n%s\ndirectly:\n%s", got, want)
		}
	}

	move := `{"source":` + quoted(source) + `,"destination":` + quoted(gone) + `}`
	var waits struct{ Status, RequestID string }
	waiting := toolCall(t, agent, "move_file", move)
	if err := json.Unmarshal([]byte(metaOf(waiting)), &waits); err != nil || waits.Status != "pending_approval" {
		t.Fatalf("got %s (%v)", encoded(t, waiting), err)
	}
	if _, err := os.Stat(source); err != nil {
		t.Fatalf("it ran before anybody decided: %v", err)
	}
	card := w.card(t, func(m slacksim.Message) bool { return strings.Contains(m.Text, "move_file") })
	w.click(t, "U0SAM", card.TS, "approve") // who isn't on call
	if _, err := os.Stat(source); err != nil {
		t.Fatalf("it ran although nobody who may has decided: %v", err)
	}
	w.click(t, "U0ADA", card.TS, "approve")
	result := toolCall(t, agent, "await_result", `{"requestId":"`+waits.RequestID+`"}`)
	if result.IsError {
		t.Fatalf("got %s", encoded(t, result))
	}
	if _, err := os.Stat(source); !os.IsNotExist(err) {
		t.Errorf("the file is still there (%v)", err)
	}
	if content, err := os.ReadFile(gone); err != nil || !bytes.Contains(content, []byte("9007199254740993")) {
		t.Errorf("got %q, %v", content, err)
	}
	w.card(t, func(m slacksim.Message) bool { return m.TS == card.TS && strings.Contains(m.Text, "Approved · ran") })

	// The same result again and again, and nothing runs a second time.
	write("precious.txt", "another")
	again := toolCall(t, agent, "await_result", `{"requestId":"`+waits.RequestID+`"}`)
	if encoded(t, again) != encoded(t, result) {
		t.Errorf("got %s, then %s", encoded(t, result), encoded(t, again))
	}
	w.click(t, "U0GRACE", card.TS, "why")
	if content, err := os.ReadFile(source); err != nil || string(content) != "another" {
		t.Errorf("it ran a second time: %q, %v", content, err)
	}

	if made := toolCall(t, agent, "create_entities", `{"entities":[{"name":"ada","entityType":"person","observations":["x"]}]}`); made.IsError {
		t.Fatalf("got %s", encoded(t, made))
	}
	waiting = toolCall(t, agent, "delete_entities", `{"entityNames":["ada"]}`)
	if err := json.Unmarshal([]byte(metaOf(waiting)), &waits); err != nil {
		t.Fatalf("got %s (%v)", encoded(t, waiting), err)
	}
	card = w.card(t, func(m slacksim.Message) bool { return strings.Contains(m.Text, "delete_entities") })
	stored := func() string {
		t.Helper()
		content, err := os.ReadFile(memory)
		if err != nil {
			t.Fatal(err)
		}
		return string(content)
	}
	if !strings.Contains(stored(), "ada") {
		t.Error("what waits has run")
	}
	w.click(t, "U0GRACE", card.TS, "approve")
	if result := toolCall(t, agent, "await_result", `{"requestId":"`+waits.RequestID+`"}`); result.IsError {
		t.Fatalf("got %s", encoded(t, result))
	}
	if strings.Contains(stored(), "ada") {
		t.Errorf("it wasn't deleted: %s", stored())
	}
	toolCall(t, agent, "create_entities", `{"entities":[{"name":"ada","entityType":"person","observations":["again"]}]}`)
	toolCall(t, agent, "await_result", `{"requestId":"`+waits.RequestID+`"}`)
	w.click(t, "U0ADA", card.TS, "approve")
	if !strings.Contains(stored(), "again") {
		t.Error("it was deleted a second time")
	}
}

// gatewayAgent connects as an agent to the gateway, and returns when it has the
// tools.
func gatewayAgent(t *testing.T, w *world, token string, tools ...string) *sdk.ClientSession {
	t.Helper()
	client := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil)
	session, err := client.Connect(t.Context(), &sdk.StreamableClientTransport{
		Endpoint:             w.options.config.URL + gatewayPath,
		HTTPClient:           &http.Client{Transport: bearer(token)},
		DisableStandaloneSSE: true,
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = session.Close() })
	offers(t, session, tools...)
	return session
}

// offers returns when a server offers the tools.
func offers(t *testing.T, session *sdk.ClientSession, tools ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		listed, err := session.ListTools(ctx, nil)
		if err != nil {
			t.Fatalf("the servers' tools are not there: %v", err)
		}
		if !slices.ContainsFunc(tools, func(name string) bool {
			return !slices.ContainsFunc(listed.Tools, func(tool *sdk.Tool) bool { return tool.Name == name })
		}) {
			return
		}
	}
}

func toolCall(t *testing.T, session *sdk.ClientSession, tool, arguments string) *sdk.CallToolResult {
	t.Helper()
	result, err := session.CallTool(t.Context(), &sdk.CallToolParams{Name: tool, Arguments: json.RawMessage(arguments)})
	if err != nil {
		t.Fatal(err)
	}
	return result
}

func raw(t *testing.T, session *sdk.ClientSession, tool, arguments string) json.RawMessage {
	t.Helper()
	return json.RawMessage(encoded(t, toolCall(t, session, tool, arguments)))
}

func encoded(t *testing.T, result *sdk.CallToolResult) string {
	t.Helper()
	data, err := json.Marshal(result)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// metaOf is what a result that has not ended says of its request.
func metaOf(result *sdk.CallToolResult) string {
	data, err := json.Marshal(result.Meta["countersign/request"])
	if err != nil {
		return ""
	}
	return string(data)
}

// sameJSON compares values; the SDK's client writes members in its own order.
func sameJSON(t *testing.T, a, b json.RawMessage) bool {
	t.Helper()
	var first, second map[string]any
	if err := json.Unmarshal(a, &first); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &second); err != nil {
		t.Fatal(err)
	}
	for _, one := range []map[string]any{first, second} {
		delete(one, "_meta")
		delete(one, "resultType")
	}
	x, _ := json.Marshal(first)
	y, _ := json.Marshal(second)
	return bytes.Equal(x, y)
}

func quoted(text string) string {
	data, _ := json.Marshal(text)
	return string(data)
}

func secretsOf(values map[string]string) map[string]secret {
	all := make(map[string]secret)
	for name, value := range values {
		all[name] = secret(value)
	}
	return all
}
