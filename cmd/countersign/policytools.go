package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

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

// Run proposes a stanza for each tool that is in a list or in recorded calls
// and that the policy doesn't classify.
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
	calls, err := c.calls(ctx)
	if err != nil {
		return err
	}
	for _, recorded := range calls {
		tools = append(tools, policy.ToolOf(recorded.Call.Action))
	}
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

// calls are the recorded ones. Where a list of tools is given and no folder,
// there need be none.
func (c *policyToolsCommand) calls(ctx context.Context) ([]policy.RecordedCall, error) {
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
	return calls, err
}
