package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/internal/visible"
	"github.com/countersign/countersign/policy"
)

type toolsCommand struct {
	List toolsListCommand `cmd:"" help:"List the tools of downstream servers, with their tiers and whether they are what was pinned."`
	Diff toolsDiffCommand `cmd:"" help:"Show what servers say of their tools now against what is pinned; exit 1 if it differs."`
	Pin  toolsPinCommand  `cmd:"" help:"Accept what a server says of a tool now, after showing what changed."`
}

type toolsListCommand struct{ configFlag }

func (c *toolsListCommand) Run(ctx context.Context, p *process) error {
	conf, err := readConfig(c.Config)
	if err != nil {
		return err
	}
	rules, err := readPolicy(conf.Policy)
	if err != nil {
		return err
	}
	return withService(ctx, conf, rules, func(service *approval.Service) error {
		tools, err := service.Tools(ctx)
		if err != nil {
			return err
		}
		now := serversNow(ctx, conf, p.environment, tools)
		p.sayUnknown(now, tools)
		table := tabwriter.NewWriter(p.stdout, 0, 0, 2, ' ', 0)
		fmt.Fprintln(table, "SERVER\tTOOL\tSTATE\tTIER\tPINNED\tBY")
		for _, t := range tools {
			fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\n", t.Server, visible.Line(t.Name), state(t, now[t.Server]), tierOf(t, conf, rules), when(t.PinnedAt), pinnedBy(t))
		}
		return table.Flush()
	})
}

func state(t approval.Tool, now *serverNow) string {
	if gone, _ := now.gone(t); gone != "" {
		return gone
	}
	if t.Changed() {
		return "CHANGED"
	}
	return "pinned"
}

// tierOf is the tier that the policy sorts a tool into, before what a call's
// arguments add.
func tierOf(t approval.Tool, conf config, rules *policy.Policy) string {
	explained := rules.Explain(policy.Call{
		Action:      t.Action(),
		Environment: conf.Gateway.Servers[t.Server].Environment,
		Payload:     []byte("{}"),
		Unpinned:    t.Changed(),
	})
	if !explained.Ruling.Classified {
		return "unclassified"
	}
	return strings.TrimPrefix(explained.Class.Tier.String(), "tier ")
}

func pinnedBy(t approval.Tool) string {
	if name, byOperator := strings.CutPrefix(t.PinnedBy, "operator:"); byOperator {
		return name
	}
	return "first seen"
}

type toolsDiffCommand struct {
	configFlag
	Tool string `arg:"" optional:"" name:"server.tool" help:"Only this tool."`
}

func (c *toolsDiffCommand) Run(ctx context.Context, p *process) error {
	conf, err := readConfig(c.Config)
	if err != nil {
		return err
	}
	return withAnyPolicy(ctx, c.Config, func(service *approval.Service) error {
		tools, err := chosenTools(ctx, service, c.Tool)
		if err != nil {
			return err
		}
		now := serversNow(ctx, conf, p.environment, tools)
		unknown := p.sayUnknown(now, tools)
		differ, gone := 0, 0
		for _, t := range tools {
			if _, why := now[t.Server].gone(t); why != "" {
				p.print(why+".\n", "")
				gone++
				continue
			}
			if !t.Changed() {
				continue
			}
			if err := p.showDifference(t); err != nil {
				return err
			}
			differ++
		}
		if differ > 0 {
			return fmt.Errorf("%s, and unclassified until \"countersign tools pin\" accepts what is shown", asPinned(differ, "not "))
		}
		if gone > 0 {
			return fmt.Errorf("%s out of reach", counted(gone, "pinned tool"))
		}
		if unknown > 0 {
			return fmt.Errorf("%s couldn't be looked at; \"countersign doctor\" says more", counted(unknown, "server"))
		}
		p.sayPinned(len(tools))
		return nil
	})
}

// asPinned says that so many tools are, or are not, what was accepted.
func asPinned(count int, not string) string {
	if count == 1 {
		return "1 tool is " + not + "as it was pinned"
	}
	return fmt.Sprintf("%d tools are %sas they were pinned", count, not)
}

// sayPinned says that there is no difference in so many tools.
func (p *process) sayPinned(count int) {
	if count == 0 {
		fmt.Fprintln(p.stderr, "No gateway has seen a tool yet: \"countersign serve\" starts it with the servers of the configuration.")
		return
	}
	fmt.Fprintln(p.stderr, asPinned(count, "")+".")
}

// chosenTools are those that are named, or all.
func chosenTools(ctx context.Context, service *approval.Service, named ...string) ([]approval.Tool, error) {
	if len(named) == 0 || len(named) == 1 && named[0] == "" {
		return service.Tools(ctx)
	}
	var tools []approval.Tool
	for _, action := range named {
		// A server's name has no dot in it, and a tool's may.
		server, name, _ := strings.Cut(action, ".")
		t, err := service.Tool(ctx, server, name)
		if errors.Is(err, approval.ErrNoTool) {
			return nil, fmt.Errorf("no gateway has seen a tool %q; \"countersign tools list\" names those that were seen, as SERVER and TOOL of SERVER.TOOL", action)
		}
		if err != nil {
			return nil, err
		}
		tools = append(tools, t)
	}
	return tools, nil
}

type toolsPinCommand struct {
	configFlag
	Tools []string `arg:"" optional:"" name:"server.tool" help:"The tools to pin."`
	All   bool     `help:"Pin all that changed."`
	Yes   bool     `help:"Don't ask whether what is shown is accepted."`
}

// Validate wants to be told which tools are meant.
func (c *toolsPinCommand) Validate() error {
	if (len(c.Tools) > 0) == c.All {
		return errors.New("name the tools as SERVER.TOOL, or say --all")
	}
	return nil
}

func (c *toolsPinCommand) Run(ctx context.Context, p *process) error {
	return withAnyPolicy(ctx, c.Config, func(service *approval.Service) error {
		tools, err := chosenTools(ctx, service, c.Tools...)
		if err != nil {
			return err
		}
		var changed []approval.Tool
		for _, t := range tools {
			if !t.Changed() {
				continue
			}
			if err := p.showDifference(t); err != nil {
				return err
			}
			changed = append(changed, t)
		}
		if len(changed) == 0 {
			p.sayPinned(len(tools))
			return nil
		}
		if !c.Yes {
			if err := p.confirm(ctx, fmt.Sprintf("Accept %s as shown?", counted(len(changed), "tool"))); err != nil {
				return err
			}
		}
		// Exactly what was shown is pinned, whatever the server says meanwhile.
		var problems []error
		for _, t := range changed {
			_, err := service.PinTool(ctx, operator(), t.Server, t.Name, t.Seen.Pin)
			switch {
			case errors.Is(err, approval.ErrStale):
				problems = append(problems, fmt.Errorf("%s has changed again since it was shown; look at it again", visible.Line(t.Action())))
			case err != nil:
				problems = append(problems, fmt.Errorf("pinning %s: %w", visible.Line(t.Action()), err))
			default:
				fmt.Fprintf(p.stderr, "Pinned %s.\n", visible.Line(t.Action()))
			}
		}
		return errors.Join(problems...)
	})
}
