package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/bot/slacksim"
	"github.com/countersign/countersign/web"
)

type demoCommand struct {
	Listen string `default:"127.0.0.1:8765" placeholder:"ADDRESS" help:"Where the simulated Slack listens; loopback only (default: ${default})."`
	Logs   bool   `help:"Show the server's log."`
}

// The simulated workspace.
const (
	demoWorkspace = "T0DEMO"
	demoChannel   = "C0APPROVALS"
	demoOwner     = "U0OLIVIA"
)

var demoPeople = []slacksim.User{
	{ID: "U0ADA", Name: "ada", RealName: "Ada Moreau (on call)"},
	{ID: "U0GRACE", Name: "grace", RealName: "Grace Okafor (on call)"},
	{ID: demoOwner, Name: "olivia", RealName: "Olivia Berg (the agent's owner)"},
	{ID: "U0SAM", Name: "sam", RealName: "Sam Lindqvist (not on call)"},
}

// Run shows the whole path on this machine: a real server and a real MCP client,
// with a simulated Slack between them and the person at the browser. Everything
// is kept in a folder that is removed at the end.
func (c *demoCommand) Run(ctx context.Context, p *process) error {
	folder, err := os.MkdirTemp("", "countersign-demo-")
	if err != nil {
		return fmt.Errorf("making the demo's folder: %w", err)
	}
	defer os.RemoveAll(folder)
	logger := slog.New(slog.DiscardHandler)
	if c.Logs {
		logger = p.logger()
	}

	slack, err := slacksim.Start(slacksim.Options{Addr: c.Listen, TeamID: demoWorkspace, TeamName: "Demo", Logger: logger})
	if err != nil {
		return fmt.Errorf("%w\n--listen takes another address, such as 127.0.0.1:0 for any free port", err)
	}
	defer slack.Close()
	slack.SetChannel(slacksim.Channel{ID: demoChannel, Name: "agent-approvals", Topic: "What agents may do, and who said so"})
	for _, person := range demoPeople {
		slack.SetUser(person)
	}

	options, err := demoOptions(folder, slack, logger)
	if err != nil {
		return err
	}
	desk, err := startHelpDesk()
	if err != nil {
		return err
	}
	defer desk.close()
	desk.behind(&options)
	hangup, stopHangups := hangups()
	defer stopHangups()
	options.hangup = hangup
	s, err := openServer(ctx, options)
	if err != nil {
		return err
	}
	if !c.Logs {
		// Who changes the policy wants to see that it was taken, or why not.
		s.watch.logger = slog.New(slog.NewTextHandler(p.stderr, nil))
	}
	slack.SetInteractivityURL(s.config.URL + "/slack/interactions")
	slack.SetRedirectURLs(s.config.URL + web.CallbackPath)
	_, token, err := s.service.CreateToken(ctx, operator(), "crm-agent", approval.Approver{Workspace: demoWorkspace, User: demoOwner})
	if err != nil {
		return errors.Join(err, s.close())
	}

	fmt.Fprintf(p.stdout, "Open %s, choose who you are, and decide.\n", slack.URL)
	fmt.Fprintf(p.stdout, "Sign in as one of them, too, at the review page: %s\n", s.config.URL)
	fmt.Fprintf(p.stdout, "Its policy is %s; change it, and see.\n", options.config.Policy)
	fmt.Fprintf(p.stdout, "Everything is on this machine; Ctrl-C ends it.\n\n")

	inner, stop := context.WithCancel(ctx)
	defer stop()
	var work sync.WaitGroup
	console := slack.Console("crm-agent, an MCP client")
	work.Go(func() {
		agent := demoAgent{
			server: s.config.URL,
			token:  token,
			say: func(format string, values ...any) {
				console.Printf(format, values...)
				fmt.Fprintf(p.stdout, "agent: "+format+"\n", values...)
			},
		}
		if err := agent.run(inner); err != nil && inner.Err() == nil {
			fmt.Fprintf(p.stderr, "countersign: the demo's agent stopped: %v\n", err)
		}
	})
	err = s.run(ctx, nil)
	stop()
	work.Wait()
	return err
}

// demoPolicy is a policy as a team would write it, for the people of the
// simulated workspace.
//
//go:embed demo/policy.yaml
var demoPolicy []byte

// demoOptions are the demo's server, with its policy and its data in a folder.
func demoOptions(folder string, slack *slacksim.Server, logger *slog.Logger) (serverOptions, error) {
	conf := defaultConfig()
	conf.Data = filepath.Join(folder, "data")
	conf.Policy = filepath.Join(folder, "policy.yaml")
	conf.Listen = "127.0.0.1:0"
	conf.URL = "" // that of the listener
	conf.Slack = slackConfig{
		Workspace:    demoWorkspace,
		Channel:      demoChannel,
		Interactions: overHTTP,
		ClientID:     slack.Options().ClientID,
		APIURL:       slack.APIURL(),
		Issuer:       slack.URL,
	}
	if err := os.WriteFile(conf.Policy, demoPolicy, 0o600); err != nil {
		return serverOptions{}, fmt.Errorf("writing the demo's policy: %w", err)
	}
	rules, err := readPolicy(conf.Policy)
	return serverOptions{
		config:     conf,
		policy:     rules,
		secrets:    demoSecrets(slack),
		command:    "demo",
		channelURL: slack.URL,
		logger:     logger,
	}, err
}

func demoSecrets(slack *slacksim.Server) secrets {
	options := slack.Options()
	return secrets{
		BotToken:      secret(options.BotToken),
		SigningSecret: secret(options.SigningSecret),
		ClientSecret:  secret(options.ClientSecret),
	}
}

// demoPause is between one request of the demo's agent and the next, so that a
// person can see how the first one ended.
const demoPause = 4 * time.Second
