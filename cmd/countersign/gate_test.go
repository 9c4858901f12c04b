package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/countersign/countersign/policy"
)

// viewHost is a host that shows views, with the call that its model makes.
type viewHost struct {
	*sdk.ClientSession
	held chan struct{} // gets a value when the held call shows progress
}

func newViewHost(t *testing.T, transport sdk.Transport, version string, views bool) *viewHost {
	t.Helper()
	h := &viewHost{held: make(chan struct{}, 100)}
	can := &sdk.ClientCapabilities{}
	if views {
		can.AddExtension("io.modelcontextprotocol/ui", map[string]any{"mimeTypes": []string{"text/html;profile=mcp-app"}})
	}
	client := sdk.NewClient(&sdk.Implementation{Name: "host", Version: "1"}, &sdk.ClientOptions{
		Capabilities:                can,
		ProgressNotificationHandler: func(context.Context, *sdk.ProgressNotificationClientRequest) { h.held <- struct{}{} },
	})
	session, err := client.Connect(t.Context(), transport, &sdk.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = session.Close() })
	h.ClientSession = session
	return h
}

// decision is what a held call answers.
type decision struct {
	RequestID, Outcome, Scope, ServerReceiptID string
	RequestVersion                             int
	EditedArgs                                 json.RawMessage

	words string
}

// hold has the model ask, and returns once the call is held, with where its answer
// will be.
func (h *viewHost) hold(t *testing.T, action, arguments string) <-chan decision {
	t.Helper()
	answer := make(chan decision, 1)
	go func() {
		params := &sdk.CallToolParams{Name: "request_approval", Arguments: map[string]any{
			"action": action, "arguments": json.RawMessage(arguments), "target": "deals", "reversible": true,
		}}
		params.SetProgressToken("hold")
		var got decision
		result, err := h.CallTool(t.Context(), params)
		if err != nil {
			got.words = err.Error()
		} else {
			got.words = textOf(result)
			_ = json.Unmarshal([]byte(result.Content[0].(*sdk.TextContent).Text), &got)
		}
		answer <- got
	}()
	select {
	case <-h.held:
	case got := <-answer:
		t.Fatalf("the call wasn't held: %+v", got)
	case <-time.After(patience):
		t.Fatal("the call showed no progress")
	}
	return answer
}

// heldRequest is what the view is shown.
type heldRequest struct {
	RequestID, Digest, Status, Outcome, WaitsFor, ReviewURL, Notice string
	RequestVersion                                                  int
	Revision                                                        int64
	DecidesHere                                                     bool
	Receipt                                                         struct{ ServerReceiptID, Signed, Surface string }
}

// view calls a tool of the view, and returns what it says of the request.
func (h *viewHost) view(t *testing.T, tool string, arguments map[string]any) (heldRequest, *sdk.CallToolResult) {
	t.Helper()
	result, err := h.CallTool(t.Context(), &sdk.CallToolParams{Name: tool, Arguments: arguments})
	if err != nil {
		t.Fatal(err)
	}
	var got struct{ Request heldRequest }
	if !result.IsError {
		if err := json.Unmarshal([]byte(result.Content[0].(*sdk.TextContent).Text), &got); err != nil {
			t.Fatal(err)
		}
	}
	return got.Request, result
}

// decides are the arguments of a decision on what the view shows.
func (r heldRequest) decides(outcome string) map[string]any {
	return map[string]any{"requestId": r.RequestID, "requestVersion": r.RequestVersion, "digest": r.Digest, "outcome": outcome}
}

const gatePolicy = programPolicy + "integrations: {deals: {tools: {update: {tier: 3}, purge: {tier: 4}}}}\n"

// gateDoors are the ways of a host to the gate.
var gateDoors = map[string]func(*testing.T) (*world, sdk.Transport){
	"http": func(t *testing.T) (*world, sdk.Transport) {
		w := unstartedWorld(t)
		w.options.config.Gate.Serve = true
		rules, err := policy.Parse([]byte(gatePolicy))
		if err != nil {
			t.Fatal(err)
		}
		w.options.policy = rules
		if err := os.WriteFile(w.options.config.Policy, []byte(gatePolicy), 0o600); err != nil {
			t.Fatal(err)
		}
		w.start(t)
		return w, w.overHTTP(w.token(t, "deal-agent"), gatePath, true)
	},
	"stdio": func(t *testing.T) (*world, sdk.Transport) {
		p := newProgram(t)
		p.write(t, "policy.yaml", gatePolicy)
		return p.world(), &sdk.CommandTransport{Command: p.command(t, nil, "mcp", "--tools", "gate", "--agent", "deal-agent")}
	},
}

// One call asks and is held. Where the policy lets the view decide, the view does,
// and Slack says so; where it doesn't, the view can't, and a click in Slack releases
// the call.
func TestGate(t *testing.T) {
	t.Parallel()
	for name, door := range gateDoors {
		for _, version := range []string{legacy, modern} {
			t.Run(name+" "+version, func(t *testing.T) {
				t.Parallel()
				w, transport := door(t)
				h := newViewHost(t, transport, version, true)

				answer := h.hold(t, "deals.update", `{"ids":[101,9007199254740993],"status":"closed-lost"}`)
				shown, _ := h.view(t, "approval_request", nil)
				if !shown.DecidesHere || shown.Status != "pending" {
					t.Fatalf("the view shows %+v", shown)
				}
				w.card(t, mentions("Approval needed"))
				decided, _ := h.view(t, "approval_decide", shown.decides("granted"))
				got := receive(t, answer, "the decision")
				if got.Outcome != "granted" || got.RequestID != shown.RequestID || got.Scope != "once" || got.EditedArgs != nil || got.ServerReceiptID != decided.Receipt.ServerReceiptID || got.ServerReceiptID == "" {
					t.Errorf("the call answers %+v", got)
				}
				w.card(t, mentions("Confirmed in the agent's host"))
				applied, err := h.CallTool(t.Context(), &sdk.CallToolParams{Name: "apply", Arguments: map[string]any{"requestId": got.RequestID}})
				if err != nil || applied.IsError || !strings.Contains(textOf(applied), "9007199254740993") {
					t.Errorf("applying: %s (%v)", textOf(applied), err)
				}
				w.card(t, mentions("Applied"))

				answer = h.hold(t, "deals.purge", `{"ids":[101]}`)
				shown, _ = h.view(t, "approval_request", map[string]any{"asked": map[string]any{
					"action": "deals.purge", "arguments": map[string]any{"ids": []int{101}}, "target": "deals", "reversible": true,
				}})
				if shown.DecidesHere || !strings.Contains(shown.WaitsFor, "1 of finance in Slack") || shown.ReviewURL == "" {
					t.Errorf("the view shows %+v", shown)
				}
				for _, outcome := range []string{"granted", "denied"} {
					_, refused := h.view(t, "approval_decide", shown.decides(outcome))
					if structured, _ := refused.StructuredContent.(map[string]any); !refused.IsError || structured["error"] != "needs_people" {
						t.Errorf("the view says %s and gets %s", outcome, textOf(refused))
					}
				}
				posted := w.card(t, mentions("Approval needed"))
				if reply := w.click(t, "U0ADA", posted.TS, "approve"); !reply.OK() {
					t.Fatalf("the click: %+v", reply)
				}
				if got := receive(t, answer, "the decision"); got.Outcome != "granted" || got.RequestID != shown.RequestID {
					t.Errorf("the call answers %+v", got)
				}
				after, _ := h.view(t, "approval_request", map[string]any{"requestId": shown.RequestID, "knownRevision": shown.Revision})
				if after.Outcome != "granted" || after.Receipt.Surface != "slack" || after.Receipt.Signed == "" {
					t.Errorf("the view shows %+v", after)
				}
				revoked, _ := h.view(t, "approval_revoke", map[string]any{"requestId": after.RequestID, "requestVersion": 1, "digest": after.Digest})
				if revoked.Outcome != "revoked" {
					t.Errorf("the view shows %+v", revoked)
				}
				applied, err = h.CallTool(t.Context(), &sdk.CallToolParams{Name: "apply", Arguments: map[string]any{"requestId": shown.RequestID}})
				if err != nil || !applied.IsError {
					t.Errorf("applying what was revoked: %s (%v)", textOf(applied), err)
				}
				w.card(t, mentions("Taken back in the agent's host"))
			})
		}
	}
}

// A host without views is denied at once, and nobody is asked; or it waits for
// people, where that is configured.
func TestGateWithoutViews(t *testing.T) {
	t.Parallel()
	p := newProgram(t)
	p.write(t, "policy.yaml", gatePolicy)
	h := newViewHost(t, &sdk.CommandTransport{Command: p.command(t, nil, "mcp", "--tools", "gate")}, modern, false)
	arguments := map[string]any{"action": "deals.update", "arguments": map[string]any{"ids": []int{1}}, "target": "deals", "reversible": true}
	result, err := h.CallTool(t.Context(), &sdk.CallToolParams{Name: "request_approval", Arguments: arguments})
	if err != nil || result.IsError || !strings.Contains(textOf(result), `"outcome":"denied"`) {
		t.Fatalf("got %s (%v)", textOf(result), err)
	}
	if sent := p.slack.Messages(demoChannel); len(sent) > 0 {
		t.Errorf("Slack was told: %+v", sent)
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}

	p.appendTo(t, "countersign.yaml", "gate: {without_view: wait}\n")
	h = newViewHost(t, &sdk.CommandTransport{Command: p.command(t, nil, "mcp", "--tools", "gate")}, modern, false)
	answer := h.hold(t, "deals.update", `{"ids":[1]}`)
	posted := p.world().card(t, mentions("Approval needed"))
	p.connected(t)
	if reply := p.world().click(t, "U0ADA", posted.TS, "approve"); !reply.OK() {
		t.Fatalf("the click: %+v", reply)
	}
	if got := receive(t, answer, "the decision"); got.Outcome != "granted" {
		t.Errorf("the call answers %+v", got)
	}
}

// One person on their own machine needs nothing but the program: every tier is
// decided in the view, and everywhere it says that nobody was verified.
func TestPersonalMode(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(t.TempDir(), "data")
	command := func(arguments ...string) *exec.Cmd {
		c := exec.CommandContext(t.Context(), "countersign", arguments...)
		c.Dir = t.TempDir()
		return c
	}
	var log bytes.Buffer
	serving := command("mcp", "--tools", "gate", "--personal", "--data", folder)
	serving.Stderr = &log
	h := newViewHost(t, &sdk.CommandTransport{Command: serving}, modern, true)
	answer := h.hold(t, "warehouse.drop_everything", `{"sure":true}`)
	shown, _ := h.view(t, "approval_request", nil)
	if !shown.DecidesHere || shown.Notice != personalNotice || shown.ReviewURL != "" {
		t.Errorf("the view shows %+v", shown)
	}
	decided, _ := h.view(t, "approval_decide", shown.decides("granted"))
	if got := receive(t, answer, "the decision"); got.Outcome != "granted" {
		t.Errorf("the call answers %+v", got)
	}

	second := command("mcp", "--tools", "gate", "--personal", "--data", folder)
	if said, err := second.CombinedOutput(); err == nil || !strings.Contains(string(said), "--data FOLDER") {
		t.Errorf("a second one on the same folder: %s (%v)", said, err)
	}
	keys, err := command("receipt", "keys", "print", "--data", folder).Output()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "keys.json")
	if err := os.WriteFile(file, keys, 0o600); err != nil {
		t.Fatal(err)
	}
	verify := command("receipt", "verify", "--keys", file, "--expect", "approve")
	verify.Stdin = strings.NewReader(decided.Receipt.Signed)
	if said, err := verify.CombinedOutput(); err != nil || !strings.Contains(string(said), "Approved in the host of the agent local-agent, not by a verified person") {
		t.Errorf("the receipt: %s (%v)", said, err)
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(log.String(), personalNotice) {
		t.Errorf("at the start it says %s", &log)
	}
}

// What doesn't go together is refused with what to do.
func TestGateFlags(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		arguments []string
		timeout   string
		want      string
	}{
		{[]string{"--tools", "gate", "--server", "https://approvals.example.com/mcp"}, "", "https://approvals.example.com/mcp/gate itself"},
		{[]string{"--tools", "gate", "--gateway"}, "", "don't go together"},
		{[]string{"--tools", "other"}, "", "gate"},
		{[]string{"--personal"}, "", "--tools gate"},
		{[]string{"--tools", "gate", "--personal", "--owner", "U024BE7LH"}, "", "nobody is known"},
		{[]string{"--tools", "gate", "--personal", "--config", "other.yaml"}, "", "no configuration file"},
		{[]string{"--tools", "gate", "--data", "x"}, "", "--personal"},
		{[]string{"--tools", "gate", "--personal", "--agent", "a b"}, "", "--agent"},
		{[]string{"--tools", "gate", "--personal"}, "5m", timeoutVariable},
		{[]string{"--tools", "gate", "--personal"}, "59999", "60000"},
		{[]string{"--tools", "gate", "--personal"}, "-1", timeoutVariable},
		{[]string{"--tools", "gate", "--personal"}, "99999999999999999999", timeoutVariable},
	} {
		command := exec.CommandContext(t.Context(), "countersign", append([]string{"mcp"}, test.arguments...)...)
		command.Dir = t.TempDir()
		command.Env = append(os.Environ(), timeoutVariable+"="+test.timeout, "XDG_CONFIG_HOME="+command.Dir)
		if said, err := command.CombinedOutput(); err == nil || !strings.Contains(string(said), test.want) {
			t.Errorf("%v: %s (%v), want %q", test.arguments, said, err, test.want)
		}
	}
}
