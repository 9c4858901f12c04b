package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// demoAgent is what an agent does with the four tools, and with tools behind the
// gateway, as a plain MCP client over HTTP. It has no knowledge of the server
// beyond its address and token.
type demoAgent struct {
	server string
	token  string
	say    func(format string, values ...any)
}

// What the agent asks for: it looks first, which policy allows, and one thing is
// never allowed.
var (
	demoSearch = map[string]any{
		"purpose":     "Find the customers who were not seen for two years",
		"action":      "crm.search_records",
		"target":      "customers",
		"environment": "production",
		"payload":     json.RawMessage(`{"table":"customers","where":{"status":"inactive","last_seen_before":"2024-12-01"}}`),
	}
	demoDelete = map[string]any{
		"purpose":     "Delete 214 inactive customer records",
		"action":      "crm.delete_records",
		"target":      "customers not seen since 2024-12-01",
		"environment": "production",
		"count":       214,
		"reversible":  false,
		"payload":     json.RawMessage(`{"table":"customers","where":{"status":"inactive","last_seen_before":"2024-12-01"},"expected_count":214}`),
	}
	demoRefund = map[string]any{
		"purpose":     "Refund three customers who were charged twice",
		"action":      "billing.refund",
		"target":      "invoices of November 2026",
		"environment": "production",
		"count":       3,
		"reversible":  false,
		"payload": json.RawMessage(`{"currency":"EUR","refunds":[{"invoice":"INV-2291","amount":"48.20","account":"DE02120300000000202051"},` +
			`{"invoice":"INV-2304","amount":"12.00","account":"DE02500105170137075030"},{"invoice":"INV-2310","amount":"1180.50","account":"DE02100500000054540402"}]}`),
	}
	demoDrop = map[string]any{
		"purpose":     "Drop the table that is empty now",
		"action":      "warehouse.drop_table",
		"target":      "customers_2019",
		"environment": "production",
		"count":       1,
		"reversible":  false,
		"payload":     json.RawMessage(`{"table":"customers_2019"}`),
	}
	demoAdd = map[string]any{
		"purpose":     "Add a new colleague and a contractor to the mailing list",
		"action":      "mail.list_add",
		"target":      "all-hands list",
		"environment": "production",
		"count":       2,
		"reversible":  true,
		"payload":     json.RawMessage(`{"list":"all-hands","members":["noor@example.com","jules@contractor.example"]}`),
	}
	demoFind = sdk.CallToolParams{
		Name:      "find_tickets",
		Arguments: json.RawMessage(`{"queue":"billing questions"}`),
	}
	demoClose = sdk.CallToolParams{
		Name:      "close_tickets",
		Arguments: json.RawMessage(`{"queue":"billing questions","ids":[3107,3122,3140,3158]}`),
	}
)

// errand is one thing that the agent does.
type errand func(context.Context) error

// errands are all of them, in turn.
func (a demoAgent) errands(asking, tools *sdk.ClientSession) []errand {
	ask := func(request map[string]any) errand {
		return func(ctx context.Context) error { return a.ask(ctx, asking, request) }
	}
	use := func(params sdk.CallToolParams) errand {
		return func(ctx context.Context) error { return a.use(ctx, tools, params) }
	}
	return []errand{ask(demoSearch), ask(demoDelete), ask(demoRefund), ask(demoDrop), use(demoFind), use(demoClose), ask(demoAdd)}
}

func (a demoAgent) run(ctx context.Context) error {
	asking, err := a.connect(ctx, flowPath)
	if err != nil {
		return err
	}
	defer asking.Close()
	tools, err := a.connect(ctx, gatewayPath)
	if err != nil {
		return err
	}
	defer tools.Close()
	errands := a.errands(asking, tools)
	for i := 0; ; i++ {
		if err := errands[i%len(errands)](ctx); err != nil {
			return err
		}
		select {
		case <-time.After(demoPause):
		case <-ctx.Done():
			return nil
		}
	}
}

func (a demoAgent) connect(ctx context.Context, path string) (*sdk.ClientSession, error) {
	client := sdk.NewClient(&sdk.Implementation{Name: "countersign-demo-agent", Version: version()}, nil)
	session, err := client.Connect(ctx, &sdk.StreamableClientTransport{
		Endpoint:             a.server + path,
		HTTPClient:           &http.Client{Transport: bearer(a.token)},
		DisableStandaloneSSE: true,
	}, nil)
	if err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", a.server+path, err)
	}
	return session, nil
}

// use calls a tool behind the gateway, which takes no skill: a call that waits
// says how to get its result.
func (a demoAgent) use(ctx context.Context, session *sdk.ClientSession, params sdk.CallToolParams) error {
	a.say("I call %s %s", params.Name, params.Arguments)
	tool := params.Name
	for told := false; ; told = true {
		result, err := session.CallTool(ctx, &params)
		if err != nil {
			return fmt.Errorf("calling %s: %w", params.Name, err)
		}
		id := waitsAs(result)
		if id == "" {
			a.say("%s -> %s\n", tool, firstText(result))
			return nil
		}
		if !told {
			a.say("%s -> not run yet; waiting for a person in await_result", tool)
		}
		tool = "await_result"
		params = sdk.CallToolParams{Name: tool, Arguments: map[string]any{"requestId": id}}
	}
}

// waitsAs is the request that a call waits as; empty if it has ended.
func waitsAs(result *sdk.CallToolResult) string {
	waits, _ := result.Meta["countersign/request"].(map[string]any)
	id, _ := waits["requestId"].(string)
	return id
}

func firstText(result *sdk.CallToolResult) string {
	if len(result.Content) > 0 {
		if text, ok := result.Content[0].(*sdk.TextContent); ok {
			return text.Text
		}
	}
	return "nothing"
}

// ask is the skill that every agent follows: request, await, apply. What is
// rejected, refused or expired it never asks again in other words.
func (a demoAgent) ask(ctx context.Context, session *sdk.ClientSession, request map[string]any) error {
	var asked struct{ ElicitationID, Status string }
	a.say("I want to: %s", request["purpose"])
	err := call(ctx, session, "request_approval", request, &asked)
	var refused toolError
	if errors.As(err, &refused) {
		a.say("request_approval -> refused: %s", refused)
		a.say("I don't run it.\n")
		return nil
	}
	if err != nil {
		return err
	}
	id := map[string]any{"elicitationId": asked.ElicitationID}
	if asked.Status == "pending" {
		a.say("request_approval -> pending; waiting for a person in await_approval")
		return a.await(ctx, session, id)
	}
	a.say("request_approval -> %s by policy, without a person", asked.Status)
	return a.apply(ctx, session, id)
}

func (a demoAgent) await(ctx context.Context, session *sdk.ClientSession, id map[string]any) error {
	var status struct{ Status string }
	for status.Status = "pending"; status.Status == "pending"; {
		if err := call(ctx, session, "await_approval", id, &status); err != nil {
			return err
		}
	}
	a.say("await_approval -> %s", status.Status)
	if status.Status != "approved" {
		a.say("I don't run it.\n")
		return nil
	}
	return a.apply(ctx, session, id)
}

func (a demoAgent) apply(ctx context.Context, session *sdk.ClientSession, id map[string]any) error {
	var applied struct{ Payload json.RawMessage }
	if err := call(ctx, session, "apply", id, &applied); err != nil {
		return err
	}
	a.say("apply -> applied, once, with exactly these arguments:")
	a.say("%s\n", applied.Payload)
	return nil
}

// toolError is what a tool says when it refuses a call.
type toolError string

func (e toolError) Error() string { return string(e) }

// call reads a tool's result from its first text, which is the exact JSON.
func call(ctx context.Context, session *sdk.ClientSession, tool string, arguments, result any) error {
	return callWith(ctx, session, &sdk.CallToolParams{Name: tool, Arguments: arguments}, result)
}

func callWith(ctx context.Context, session *sdk.ClientSession, params *sdk.CallToolParams, result any) error {
	tool := params.Name
	answer, err := session.CallTool(ctx, params)
	if err != nil {
		return fmt.Errorf("calling %s: %w", tool, err)
	}
	if len(answer.Content) == 0 {
		return fmt.Errorf("calling %s: the answer is empty", tool)
	}
	text, ok := answer.Content[0].(*sdk.TextContent)
	if !ok {
		return fmt.Errorf("calling %s: the answer is not text", tool)
	}
	if answer.IsError {
		return fmt.Errorf("calling %s: %w", tool, toolError(text.Text))
	}
	if err := json.Unmarshal([]byte(text.Text), result); err != nil {
		return fmt.Errorf("reading the answer of %s: %w", tool, err)
	}
	return nil
}

// bearer sends a token with each request.
type bearer string

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(b))
	return http.DefaultTransport.RoundTrip(r)
}
