package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/db"
	"github.com/countersign/countersign/policy"
)

type policyToolsCommand struct {
	policyFlag
	recordedFlags
	From        []string `sep:"none" placeholder:"FILE" help:"What an MCP server answers to tools/list, as JSON. May be given several times."`
	Integration string   `placeholder:"NAME" help:"Whose tools are in --from (default: the file's name without its ending)."`
	JSON        bool     `name:"json" help:"As JSON."`
}

// Validate refuses a limit that is none.
func (c *policyToolsCommand) Validate() error { return c.check() }

// Run proposes a stanza for each tool that is in a list or in recorded calls, or
// that the gateway saw, and that the policy doesn't classify.
func (c *policyToolsCommand) Run(ctx context.Context, p *process) error {
	rules, err := c.read(p)
	if err != nil {
		return err
	}
	var tools []policy.Tool
	for _, path := range c.From {
		listed, err := c.listed(path)
		if err != nil {
			return err
		}
		tools = append(tools, listed...)
	}
	recorded, err := c.fromFolder(ctx)
	if err != nil {
		return err
	}
	tools = append(tools, recorded...)
	proposals := rules.Propose(tools)
	if c.JSON {
		return p.printJSON(append(policy.Proposals{}, proposals...)) // a list, also an empty one
	}
	fmt.Fprint(p.stdout, proposals)
	return nil
}

func (c *policyToolsCommand) listed(path string) ([]policy.Tool, error) {
	source, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("--from: %w", err)
	}
	integration := c.Integration
	if integration == "" {
		integration = strings.TrimSuffix(filepath.Base(path), filepath.Ext(path))
	}
	tools, err := policy.ParseTools(integration, source)
	if err != nil {
		return nil, fmt.Errorf("--from: %s: %w", path, err)
	}
	return tools, nil
}

// fromFolder are the tools of recorded calls, and those that the gateway saw.
// Where a list of tools is given and no folder, there need be none.
func (c *policyToolsCommand) fromFolder(ctx context.Context) ([]policy.Tool, error) {
	needless := len(c.From) > 0 && c.Data == ""
	folder, err := c.folder(c.configFlag)
	if err != nil {
		if needless && errors.Is(err, errNoConfig) {
			return nil, nil
		}
		return nil, err
	}
	calls, err := c.recorded(ctx, folder)
	if needless && errors.Is(err, errNothingRecorded) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var tools []policy.Tool
	for _, recorded := range calls {
		tools = append(tools, policy.ToolOf(recorded.Call.Action))
	}
	seen, err := seenTools(ctx, folder)
	return append(tools, seen...), err
}

// seenTools are those that the gateway saw, as their servers describe them now.
func seenTools(ctx context.Context, folder string) ([]policy.Tool, error) {
	store, err := db.Open(ctx, folder, db.Options{})
	if err != nil {
		return nil, err
	}
	defer store.Close()
	seen, err := store.Tools(ctx)
	if err != nil {
		return nil, err
	}
	var tools []policy.Tool
	for _, t := range seen {
		tools = append(tools, policyTool(t.Server, t.Name, t.Seen))
	}
	return tools, nil
}

// policyTool is a downstream server's tool as a policy knows tools. If the
// description can't be read, its name counts alone.
func policyTool(server, name string, definition approval.ToolDefinition) policy.Tool {
	described, err := policy.ParseTools(server, slices.Concat([]byte(`{"tools":[`), definition.JSON, []byte("]}")))
	if err != nil || len(described) != 1 {
		return policy.Tool{Integration: server, Name: name}
	}
	return described[0]
}
