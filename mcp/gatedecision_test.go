package mcp_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/approval/approvaltest"
	"github.com/countersign/countersign/mcp"
)

// What a person edited is the agent's only once it may run, and what the policy hides
// in it is in nothing that a view is answered.
func TestEditedArgumentsStayPrivate(t *testing.T) {
	t.Parallel()
	const canary = "canary-5f3a"
	for _, test := range []struct {
		name string
		then func(t *testing.T, f *approvaltest.Fixture, call func(string, object) string, r *approval.Request)
		want string // the outcome of the held call
	}{
		{"denied", func(t *testing.T, f *approvaltest.Fixture, _ func(string, object) string, r *approval.Request) {
			f.Decide(t, approvaltest.Alice, r, approval.Reject)
		}, "denied"},
		{"denied in the view", func(t *testing.T, f *approvaltest.Fixture, call func(string, object) string, r *approval.Request) {
			answer := call("approval_decide", object{"requestId": r.ID, "requestVersion": r.Version, "digest": r.Digest.String(), "outcome": "denied"})
			if strings.Contains(answer, canary) {
				t.Errorf("the view is answered %s", answer)
			}
		}, "denied"},
		{"approved in the view", func(t *testing.T, f *approvaltest.Fixture, call func(string, object) string, r *approval.Request) {
			answer := call("approval_decide", object{"requestId": r.ID, "requestVersion": r.Version, "digest": r.Digest.String(), "outcome": "granted"})
			if strings.Contains(answer, canary) {
				t.Errorf("the view is answered %s", answer)
			}
			answer = call("approval_revoke", object{"requestId": r.ID, "requestVersion": r.Version, "digest": r.Digest.String()})
			if strings.Contains(answer, canary) {
				t.Errorf("the view is answered %s when it takes it back", answer)
			}
		}, "granted"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			f := approvaltest.New(t, func(o *approval.Options) {
				o.Policy = approvaltest.ParsePolicy(t, `
version: 1
mode: cautious
roles: {finance: {users: [`+approvaltest.Alice.User+`, `+approvaltest.Bob.User+`]}}
approval: {requires: [{role: finance}]}
integrations: {crm: {tools: {update: {tier: 3}}}}
redact: {keys: [secret]}
`)
			})
			gate, err := mcp.NewGate(f.Service, mcp.GateOptions{Now: f.Clock.Now})
			if err != nil {
				t.Fatal(err)
			}
			held := make(chan bool, 100)
			can := &sdk.ClientCapabilities{}
			can.AddExtension("io.modelcontextprotocol/ui", object{"mimeTypes": []string{mcp.ViewMIME}})
			session := connect(t, serveStdio(t, nil, f.Agent, mcp.Options{Now: f.Clock.Now, Gate: gate}).transport(), modern, &sdk.ClientOptions{
				Capabilities:                can,
				ProgressNotificationHandler: func(_ context.Context, _ *sdk.ProgressNotificationClientRequest) { held <- true },
			})
			call := func(tool string, given object) string {
				t.Helper()
				result, err := session.CallTool(t.Context(), &sdk.CallToolParams{Name: tool, Arguments: given})
				if err != nil || result.IsError {
					t.Fatalf("%s: %+v (%v)", tool, result, err)
				}
				answer, err := json.Marshal(result)
				if err != nil {
					t.Fatal(err)
				}
				return string(answer)
			}
			returned := make(chan *sdk.CallToolResult, 1)
			go func() {
				params := &sdk.CallToolParams{Name: "request_approval", Arguments: object{"action": "crm.update", "target": "deal 101", "reversible": true, "arguments": object{"id": 101, "secret": "a"}}}
				params.SetProgressToken("held")
				result, _ := session.CallTool(t.Context(), params)
				returned <- result
			}()
			receive(t, held, "a held call")
			var found struct {
				Request struct{ RequestID approval.ID }
			}
			shown, err := session.CallTool(t.Context(), &sdk.CallToolParams{Name: "approval_request"})
			if err != nil || json.Unmarshal([]byte(shown.Content[0].(*sdk.TextContent).Text), &found) != nil || found.Request.RequestID == "" {
				t.Fatalf("%+v (%v)", shown, err)
			}
			r, err := f.Service.Edit(t.Context(), approvaltest.Bob, found.Request.RequestID, 1, []byte(`{"id": 101, "secret": "`+canary+`"}`), approval.Slack)
			if err != nil {
				t.Fatal(err)
			}
			test.then(t, f, call, r)
			result := receive(t, returned, "the agent's answer")
			answer, err := json.Marshal(result)
			if err != nil {
				t.Fatal(err)
			}
			if said, _ := result.StructuredContent.(map[string]any); said["outcome"] != test.want {
				t.Errorf("the agent is told %s", answer)
			}
			if got := strings.Contains(string(answer), canary); got != (test.want == "granted") {
				t.Errorf("the agent is told %s", answer)
			}
		})
	}
}

// A receipt names what decided, and nothing that looks like more: the answer of the
// agent's client isn't the policy's.
func TestReceiptNamesTheClient(t *testing.T) {
	t.Parallel()
	f := approvaltest.NewRuns(t)
	r := f.ProposeRun(t, func(p *approval.Proposal) { p.Environment = "stage" })
	if _, err := f.Service.Confirm(t.Context(), f.Agent, approvaltest.Answer(r, true)); err != nil {
		t.Fatal(err)
	}
	gate, err := mcp.NewGate(f.Service, mcp.GateOptions{Now: f.Clock.Now})
	if err != nil {
		t.Fatal(err)
	}
	can := &sdk.ClientCapabilities{}
	can.AddExtension("io.modelcontextprotocol/ui", object{"mimeTypes": []string{mcp.ViewMIME}})
	session := connect(t, serveStdio(t, nil, f.Agent, mcp.Options{Now: f.Clock.Now, Gate: gate}).transport(), modern, &sdk.ClientOptions{Capabilities: can})
	result, err := session.CallTool(t.Context(), &sdk.CallToolParams{Name: "approval_request", Arguments: object{"requestId": r.ID}})
	if err != nil || result.IsError {
		t.Fatalf("%+v (%v)", result, err)
	}
	if text := result.Content[0].(*sdk.TextContent).Text; !strings.Contains(text, `"outcome":"granted","by":[{"text":"the agent's client"}]`) {
		t.Errorf("the view is told %s", text)
	}
}
