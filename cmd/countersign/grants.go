package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/internal/visible"
)

type grantsCommand struct {
	List   grantsListCommand   `cmd:"" help:"List what people granted for more than once, as far as it is in force."`
	Revoke grantsRevokeCommand `cmd:"" help:"End a grant: nothing more runs by it."`
}

type grantsListCommand struct{ configFlag }

func (c *grantsListCommand) Run(ctx context.Context, p *process) error {
	return withAnyPolicy(ctx, c.Config, func(service *approval.Service) error {
		granted, err := service.Grants(ctx)
		if err != nil {
			return err
		}
		table := tabwriter.NewWriter(p.stdout, 0, 0, 2, ' ', 0)
		fmt.Fprintln(table, "ID\tAGENT\tACTION\tTARGET\tENVIRONMENT\tSCOPE\tUSES\tUNTIL\tGRANTED BY")
		for _, r := range granted {
			fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%d\t%s\t%s\n",
				r.ID, r.Agent, visible.Line(r.Action), targetColumn(r), r.Ruling.Environment,
				r.Grant.Scope, r.Grant.Uses, when(r.Grant.ExpiresAt), orDash(strings.Join(granters(r), ", ")))
		}
		return table.Flush()
	})
}

// targetWidth is how much of a target is in the list.
const targetWidth = 60

func targetColumn(r *approval.Request) string {
	target, cut := visible.Cut(visible.Line(r.Target), targetWidth)
	if cut {
		target += "…"
	}
	return target
}

// granters are the people who approved a request, who alone can grant.
func granters(r *approval.Request) []string {
	var people []string
	for _, d := range r.Decisions {
		if d.Verdict == approval.Approve && d.Version == r.Version {
			people = append(people, d.Approver.User)
		}
	}
	return people
}

type grantsRevokeCommand struct {
	configFlag
	ID string `arg:"" help:"The grant's id, from \"grants list\": the request that it came with."`
}

func (c *grantsRevokeCommand) Run(ctx context.Context, p *process) error {
	return withAnyPolicy(ctx, c.Config, func(service *approval.Service) error {
		r, err := service.RevokeGrantAs(ctx, operator(), approval.ID(c.ID))
		if errors.Is(err, approval.ErrNoGrant) || errors.Is(err, approval.ErrNotFound) {
			return fmt.Errorf("%s granted nothing that is in force; \"countersign grants list\" names what does", visible.Line(c.ID))
		}
		if err != nil {
			return fmt.Errorf("revoking the grant of %s: %w", c.ID, err)
		}
		fmt.Fprintf(p.stderr, "Revoked what %s granted %s: %s on %s in %s. It was used %s.\n",
			r.ID, r.Agent, visible.Line(r.Action), visible.Line(r.Target), r.Ruling.Environment, counted(r.Grant.Uses, "time"))
		return nil
	})
}
