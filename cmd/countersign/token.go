package main

import (
	"context"
	"fmt"
	"os/user"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/db"
	"github.com/countersign/countersign/policy"
)

type tokenCommand struct {
	Create tokenCreateCommand `cmd:"" help:"Make a token for an agent and print it, once."`
	List   tokenListCommand   `cmd:"" help:"List the tokens, without their secrets."`
	Revoke tokenRevokeCommand `cmd:"" help:"End a token: calls with it are refused from then on."`
}

type tokenCreateCommand struct {
	configFlag
	Agent string `arg:"" help:"The agent's name, which people see on the card."`
	Owner string `placeholder:"USER" help:"The Slack user id of the person the agent acts for, who then can't approve its requests unless the policy says so."`
}

func (c *tokenCreateCommand) Run(ctx context.Context, p *process) error {
	conf, err := readConfig(c.Config)
	if err != nil {
		return err
	}
	rules, err := readPolicy(conf.Policy)
	if err != nil {
		return err
	}
	var owner approval.Approver
	if c.Owner != "" {
		if !policy.IsUserID(c.Owner) {
			return fmt.Errorf("--owner: %q is not a Slack user id (like U024BE7LH)", c.Owner)
		}
		owner = approval.Approver{Workspace: conf.Slack.Workspace, User: c.Owner}
	}
	if err := rules.ValidateFor(c.Owner); err != nil {
		return fmt.Errorf("--owner: %w", err)
	}
	return withService(ctx, conf, rules, func(service *approval.Service) error {
		token, value, err := service.CreateToken(ctx, operator(), c.Agent, owner)
		if err != nil {
			return err
		}
		fmt.Fprintln(p.stdout, value)
		fmt.Fprintf(p.stderr, "This is the token of %s (%s). It can't be shown again.\n", token.Agent, token.ID)
		return nil
	})
}

type tokenListCommand struct{ configFlag }

func (c *tokenListCommand) Run(ctx context.Context, p *process) error {
	return withAnyPolicy(ctx, c.Config, func(service *approval.Service) error {
		tokens, err := service.Tokens(ctx)
		if err != nil {
			return err
		}
		table := tabwriter.NewWriter(p.stdout, 0, 0, 2, ' ', 0)
		fmt.Fprintln(table, "ID\tAGENT\tACTS FOR\tCREATED\tREVOKED")
		for _, t := range tokens {
			fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", t.ID, t.Agent, orDash(t.Owner.User), when(t.CreatedAt), when(t.RevokedAt))
		}
		return table.Flush()
	})
}

type tokenRevokeCommand struct {
	configFlag
	ID string `arg:"" help:"The token's id, from \"token list\"."`
}

func (c *tokenRevokeCommand) Run(ctx context.Context, p *process) error {
	return withAnyPolicy(ctx, c.Config, func(service *approval.Service) error {
		if err := service.RevokeToken(ctx, operator(), c.ID); err != nil {
			return fmt.Errorf("revoking %s: %w", c.ID, err)
		}
		fmt.Fprintf(p.stderr, "Revoked %s.\n", c.ID)
		return nil
	})
}

// withService runs use over the configured database. It works beside a running
// server, which sees the change at once.
func withService(ctx context.Context, conf config, rules *policy.Policy, use func(*approval.Service) error) error {
	store, err := db.Open(ctx, conf.Data, db.Options{})
	if err != nil {
		return err
	}
	defer store.Close()
	service, err := approval.New(store, nil, approval.Options{Policy: rules})
	if err != nil {
		return err
	}
	return use(service)
}

// withAnyPolicy is withService for what no policy has a say in, so that a token
// can be revoked while the policy file is being worked on.
func withAnyPolicy(ctx context.Context, path string, use func(*approval.Service) error) error {
	conf, err := readConfig(path)
	if err != nil {
		return err
	}
	rules, err := policy.Parse([]byte(examplePolicy))
	if err != nil {
		return fmt.Errorf("reading the example policy: %w", err)
	}
	return withService(ctx, conf, rules, use)
}

// stuckToken is a token of an agent whose requests nobody could approve.
type stuckToken struct {
	token approval.Token
	err   error
}

// withoutApprovers finds tokens that nobody could approve anything for, since
// the people who could are the ones whom the agent acts for.
func withoutApprovers(tokens []approval.Token, rules *policy.Policy) []stuckToken {
	var stuck []stuckToken
	for _, token := range tokens {
		if err := rules.ValidateFor(token.Owner.User); err != nil && token.RevokedAt.IsZero() {
			stuck = append(stuck, stuckToken{token, err})
		}
	}
	return stuck
}

// operator is the person at the command line.
func operator() approval.Operator {
	who, err := user.Current()
	if err != nil {
		return approval.Operator{Name: "unknown"}
	}
	return approval.Operator{Name: who.Username}
}

func when(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format("2006-01-02 15:04 UTC")
}

func orDash(text string) string {
	if strings.TrimSpace(text) == "" {
		return "-"
	}
	return text
}
