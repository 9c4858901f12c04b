package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/db"
	"github.com/countersign/countersign/gateway"
	"github.com/countersign/countersign/policy"
)

// crmToken is what the downstream server of the tests asks for. It is a secret
// that must show itself nowhere.
const crmToken = "crm-hunter2"

// crmPolicy is a policy for that server's tools.
const crmPolicy = `version: 1
mode: cautious
roles: {finance: {users: [U0ADA, U0GRACE]}}
approval: {requires: [{role: finance}], scopes: [15m]}
integrations:
  crm:
    tools:
      get_customer: {tier: 1}
      describe: {tier: 1}
      hang: {tier: 1}
      delete_customer: {tier: 4, target: 'args.id'}
`

// serveCRM is a downstream server on standard input and output, a program of its
// own. It wants CRM_TOKEN. What it deletes is in the file CRM_DELETED, a line each,
// and what it says of get_customer is CRM_DESCRIPTION until somebody calls
// describe.
func serveCRM(environment func(string) string) error {
	if environment("CRM_TOKEN") != crmToken {
		return fmt.Errorf("CRM_TOKEN is %q, and nobody is let in with that", environment("CRM_TOKEN"))
	}
	for _, name := range []string{botTokenVariable, appTokenVariable, agentTokenVariable} {
		if environment(name) != "" {
			return errors.New("a downstream server was given " + name)
		}
	}
	return newCRM(environment).Run(context.Background(), &sdk.StdioTransport{})
}

func newCRM(environment func(string) string) *sdk.Server {
	s := sdk.NewServer(&sdk.Implementation{Name: "crm", Version: "1"}, nil)
	s.AddTool(&sdk.Tool{
		Name:        "delete_customer",
		Description: "Deletes a customer for good.",
		InputSchema: json.RawMessage(`{"type":"object","properties":{"id":{"type":"string"}},"required":["id"]}`),
		Annotations: &sdk.ToolAnnotations{Title: "Delete"},
	}, func(_ context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		var arguments struct{ ID string }
		if err := json.Unmarshal(r.Params.Arguments, &arguments); err != nil {
			return nil, err
		}
		file, err := os.OpenFile(environment("CRM_DELETED"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			return nil, err
		}
		_, err = fmt.Fprintln(file, arguments.ID)
		return said("deleted " + arguments.ID), errors.Join(err, file.Close())
	})
	describe := func(description string) {
		s.AddTool(&sdk.Tool{
			Name:        "get_customer",
			Description: description,
			InputSchema: json.RawMessage(`{"type":"object"}`),
			Annotations: &sdk.ToolAnnotations{ReadOnlyHint: true},
		}, func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
			return said("Ada"), nil
		})
	}
	if description := environment("CRM_DESCRIPTION"); description != "" {
		describe(description)
	} else {
		describe("Looks a customer up.")
	}
	s.AddTool(&sdk.Tool{Name: "describe", InputSchema: json.RawMessage(`{"type":"object"}`)}, func(_ context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		var arguments struct{ Text string }
		if err := json.Unmarshal(r.Params.Arguments, &arguments); err != nil {
			return nil, err
		}
		describe(arguments.Text)
		return said("done"), nil
	})
	s.AddTool(&sdk.Tool{Name: "hang", InputSchema: json.RawMessage(`{"type":"object"}`)}, func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		if err := os.WriteFile(environment("CRM_DELETED")+".hangs", []byte(strconv.Itoa(os.Getpid())), 0o600); err != nil {
			return nil, err
		}
		for began := time.Now(); ; {
			if _, err := os.Stat(environment("CRM_DELETED") + ".goes-on"); err == nil {
				return said("went on"), nil
			} else if time.Since(began) > patience {
				return nil, err
			}
		}
	})
	return s
}

func said(text string) *sdk.CallToolResult {
	return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: text}}}
}

// see is "see CONFIG": what the configured servers say of their tools is recorded
// in the data folder, as a gateway does it.
func see(path string) error {
	ctx := context.Background()
	conf, err := readConfig(path)
	if err != nil {
		return err
	}
	given, err := conf.Gateway.readSecrets(os.Getenv)
	if err != nil {
		return err
	}
	rules, err := policy.Parse([]byte(crmPolicy))
	if err != nil {
		return err
	}
	store, err := db.Open(ctx, conf.Data, db.Options{})
	if err != nil {
		return err
	}
	defer store.Close()
	service, err := approval.New(store, nil, approval.Options{Policy: rules})
	if err != nil {
		return err
	}
	for _, server := range conf.Gateway.servers(given) {
		tools, err := gateway.Look(ctx, server, "test", nil)
		if err != nil {
			return err
		}
		for name, definition := range tools {
			if _, err := service.SeeTool(ctx, server.Name, name, definition); err != nil {
				return err
			}
		}
	}
	return nil
}

// seeTool records what a server said of a tool once.
func seeTool(ctx context.Context, store *db.DB, server, name, description string) error {
	rules, err := policy.Parse([]byte(crmPolicy))
	if err != nil {
		return err
	}
	service, err := approval.New(store, nil, approval.Options{Policy: rules})
	if err != nil {
		return err
	}
	_, err = service.SeeTool(ctx, server, name, approval.ToolDefinition{Pin: description, JSON: []byte(`{"description":` + quoted(description) + "}")})
	return err
}
