package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/db"
	"github.com/countersign/countersign/internal/loopback"
	"github.com/countersign/countersign/mcp"
	"github.com/countersign/countersign/policy"
)

type mcpCommand struct {
	configFlag
	Agent    string `placeholder:"NAME" default:"local-agent" help:"The agent's name, which people see on the card (default: ${default}). With --server, the token says who it is."`
	Owner    string `placeholder:"USER" help:"The Slack user id of the person the agent acts for."`
	Tools    string `enum:"flow,gate" default:"flow" placeholder:"NAME" help:"Which tools to ask with: flow, to ask, wait and apply, or gate, whose one call waits and which hosts with MCP Apps show in a view (default: ${default})."`
	Gateway  bool   `help:"Serve the tools of the configured downstream servers, gated, in place of those to ask with."`
	Personal bool   `help:"For one person on their own machine: no Slack and no configuration, every decision is made in the host's view. With --tools gate."`
	Data     string `placeholder:"FOLDER" help:"Where personal mode keeps its data (default: a folder of yours)."`
	Server   string `placeholder:"URL" help:"Go through the server at this address, with the agent's token from COUNTERSIGN_TOKEN or COUNTERSIGN_TOKEN_FILE. Without it, this process is the server."`
}

// Validate refuses what a bridge can't pass on as it is.
func (c *mcpCommand) Validate() error {
	gate := c.Tools == gateTools
	for _, direct := range []struct {
		flag, path string
		given      bool
	}{{"--gateway", gatewayPath, c.Gateway}, {"--tools gate", gatePath, gate}} {
		if direct.given && c.Server != "" {
			return fmt.Errorf("%s and --server don't go together: give the host the address %s%s itself, with the header \"Authorization: Bearer TOKEN\"", direct.flag, serverRoot(c.Server), direct.path)
		}
	}
	switch {
	case c.Gateway && gate:
		return errors.New("--gateway and --tools gate don't go together: the gateway asks by itself when its tools are called")
	case c.Personal && !gate:
		return errors.New("--personal is for --tools gate: elsewhere nobody could decide")
	case c.Personal && c.Owner != "":
		return errors.New("--personal and --owner don't go together: in personal mode nobody is known")
	case c.Personal && c.Config != defaultConfigFile:
		return errors.New("--personal and --config don't go together: personal mode has no configuration file")
	case !c.Personal && c.Data != "":
		return errors.New("--data is for --personal; elsewhere the configuration names the folder")
	case !approval.ValidAgentName(c.Agent):
		return fmt.Errorf("--agent: %q is not a name: letters, digits, dots, dashes and underscores are accepted", c.Agent)
	}
	return nil
}

// gateTools is the value of --tools for the gate.
const gateTools = "gate"

// serverRoot is a server's address without what agents find there.
func serverRoot(address string) string {
	root := strings.TrimRight(address, "/")
	for _, path := range []string{gatewayPath, gatePath, flowPath} {
		root = strings.TrimSuffix(root, path)
	}
	return root
}

func (c *mcpCommand) Run(ctx context.Context, p *process) error {
	if c.Server != "" {
		return c.bridge(ctx, p)
	}
	if c.Personal {
		return c.personal(ctx, p)
	}
	return c.standalone(ctx, p)
}

// bridge serves the host on standard input and output through a running server,
// which knows the agent by its token.
func (c *mcpCommand) bridge(ctx context.Context, p *process) error {
	token, err := readSecret(agentTokenVariable, p.environment)
	if err != nil {
		return err
	}
	if token == "" {
		return fmt.Errorf("%s (or %s_FILE) is not set: \"countersign token create\", on the server, makes a token", agentTokenVariable, agentTokenVariable)
	}
	server, err := url.Parse(c.Server)
	if err != nil || server.Host == "" || (server.Scheme != "https" && server.Scheme != "http") {
		return fmt.Errorf("--server: %q is not an address like https://approvals.example.com", c.Server)
	}
	if server.Scheme == "http" && !loopback.Is(server.Hostname()) {
		return fmt.Errorf("--server: %s would send the token in the clear; use https", c.Server)
	}
	endpoint := serverRoot(c.Server) + flowPath
	logger := p.logger()
	flow, err := mcp.Dial(ctx, endpoint, string(token), mcp.RemoteOptions{Version: version(), Logger: logger})
	if err != nil {
		return err
	}
	defer flow.Close()
	return mcp.ServeStdio(ctx, flow, approval.Agent{}, p.stdin, p.stdout, mcp.Options{Version: version(), Logger: logger})
}

// standalone is a whole server for one agent, on its own data folder.
func (c *mcpCommand) standalone(ctx context.Context, p *process) error {
	given, err := c.read(p)
	if err != nil {
		return err
	}
	if c.Gateway && len(given.config.Gateway.Servers) == 0 {
		return fmt.Errorf("--gateway: %s names no gateway.servers; \"countersign config\" shows how to", c.Config)
	}
	agent := approval.Agent{Name: c.Agent}
	if c.Owner != "" {
		if !policy.IsUserID(c.Owner) {
			return fmt.Errorf("--owner: %q is not a Slack user id (like U024BE7LH)", c.Owner)
		}
		agent.Owner = approval.Approver{Workspace: given.config.Slack.Workspace, User: c.Owner}
	}
	accepts := func(rules *policy.Policy) error { return rules.ValidateFor(c.Owner) }
	if err := accepts(given.policy); err != nil {
		return fmt.Errorf("--owner: %w", err)
	}
	hangup, stop := hangups()
	defer stop()
	s, err := openServer(ctx, serverOptions{
		config:     given.config,
		policy:     given.policy,
		secrets:    given.secrets,
		command:    "mcp",
		channelURL: given.config.channelURL(),
		accepts:    accepts,
		hangup:     hangup,
		logger:     p.logger(),
	})
	var held *db.HeldError
	if errors.As(err, &held) {
		each := "\"countersign mcp --server " + given.config.URL + "\""
		switch {
		case c.Gateway:
			each = "the address " + given.config.URL + gatewayPath
		case c.Tools == gateTools:
			each = "the address " + given.config.URL + gatePath + ", with gate.serve,"
		}
		return fmt.Errorf("%w\nOne process serves a data folder. To have several agents, run \"countersign serve\" once, and %s for each agent with a token of its own", err, each)
	}
	if err != nil {
		return err
	}
	options := s.toolOptions()
	switch {
	case c.Gateway:
		options = s.gatewayOptions()
	case c.Tools == gateTools:
		if options, err = s.gateOptions(); err != nil {
			return errors.Join(err, s.close())
		}
	}
	return s.run(ctx, func(ctx context.Context) error {
		return mcp.ServeStdio(ctx, s.flow, agent, p.stdin, p.stdout, options)
	})
}
