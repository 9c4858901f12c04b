package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/countersign/countersign/policy"
)

type policyDiffCommand struct {
	configFlag
	recordedFlags
	Old            string `arg:"" help:"The policy file before; - is standard input."`
	New            string `arg:"" help:"The policy file after; - is standard input."`
	Replay         bool   `help:"Rule the recorded calls by both, and say which get another answer."`
	FailOnLoosened bool   `help:"With --replay, fail if a call would be ruled less strictly."`
	JSON           bool   `name:"json" help:"As JSON."`
}

// Validate refuses flags that would say nothing without the one they belong to.
func (c *policyDiffCommand) Validate() error {
	switch {
	case c.FailOnLoosened && !c.Replay:
		return errors.New("--fail-on-loosened needs --replay, which finds out what is loosened")
	case c.Data != "" && !c.Replay:
		return errors.New("--data needs --replay")
	case c.Old == standardInput && c.New == standardInput:
		return errors.New("only one of the policies can be standard input")
	}
	return c.check()
}

func (c *policyDiffCommand) Run(ctx context.Context, p *process) error {
	before, oldErr := p.readPolicy(c.Old)
	after, newErr := p.readPolicy(c.New)
	if err := errors.Join(oldErr, newErr); err != nil {
		return err
	}
	var calls []policy.RecordedCall
	if c.Replay {
		folder, err := c.folder(c.configFlag)
		if err != nil {
			return err
		}
		if calls, err = c.recorded(ctx, folder); err != nil {
			return err
		}
	}
	difference := policy.Compare(before, after, calls)
	if c.JSON {
		if err := p.printJSON(difference); err != nil {
			return err
		}
	} else {
		p.print(difference.String(), "LOOSENED", "  !")
	}
	if loosened := difference.Loosened(); c.FailOnLoosened && loosened > 0 {
		return fmt.Errorf("%s would be ruled less strictly", counted(loosened, "recorded call"))
	}
	return nil
}
