package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/countersign/countersign/internal/strictjson"
	"github.com/countersign/countersign/policy"
)

type policyExplainCommand struct {
	policyFlag
	Action      string    `required:"" placeholder:"INTEGRATION.TOOL" help:"What would be done."`
	Payload     string    `default:"{}" placeholder:"JSON" help:"The arguments as JSON; @FILE is a file, - standard input (default: ${default})."`
	Environment string    `placeholder:"NAME" help:"As the agent states it. Not stated is production."`
	Agent       string    `default:"agent" placeholder:"NAME" help:"Who asks (default: ${default})."`
	Owner       string    `placeholder:"USER" help:"The Slack user id of the person the agent acts for."`
	Target      string    `placeholder:"TEXT" help:"As the agent states it."`
	Count       *int64    `placeholder:"N" help:"On how many things, as the agent states it."`
	Reversible  *bool     `negatable:"irreversible" help:"Whether it can be undone, as the agent states it."`
	FirstUse    []string  `enum:"tool,integration,agent" placeholder:"OF" help:"What was never used before: some of tool, integration, agent."`
	Hint        []string  `enum:"read-only,not-read-only,destructive,not-destructive,idempotent,not-idempotent,open-world,not-open-world" placeholder:"HINT" help:"What the tool's server says: some of read-only, destructive, idempotent, open-world; not-read-only and so on for the contrary."`
	At          time.Time `placeholder:"TIME" help:"When, such as 2026-03-02T22:15:00+01:00 (default: now)."`
	JSON        bool      `name:"json" help:"As JSON."`
}

// Validate refuses what no call can be.
func (c *policyExplainCommand) Validate() error {
	switch {
	case c.Owner != "" && !policy.IsUserID(c.Owner):
		return fmt.Errorf("--owner: %q is not a Slack user id (like U024BE7LH)", c.Owner)
	case c.Payload == standardInput && c.Policy == standardInput:
		return errors.New("only one of --payload and --policy can be standard input")
	}
	return nil
}

func (c *policyExplainCommand) Run(p *process) error {
	payload, err := c.payload(p)
	if err != nil {
		return fmt.Errorf("--payload: %w", err)
	}
	rules, err := c.read(p)
	if err != nil {
		return err
	}
	explanation := rules.Explain(c.call(payload))
	if c.JSON {
		return p.printJSON(explanation)
	}
	fmt.Fprintln(p.stdout, strings.TrimRight(explanation.Text(0), "\n"))
	return nil
}

func (c *policyExplainCommand) call(payload []byte) policy.Call {
	call := policy.Call{
		Agent:       c.Agent,
		Owner:       c.Owner,
		Action:      c.Action,
		Target:      c.Target,
		Environment: c.Environment,
		Count:       c.Count,
		Reversible:  c.Reversible,
		Payload:     payload,
		Hints:       c.hints(),
		At:          c.At,
		FirstUse: policy.FirstUse{
			Tool:        slices.Contains(c.FirstUse, "tool"),
			Integration: slices.Contains(c.FirstUse, "integration"),
			Agent:       slices.Contains(c.FirstUse, "agent"),
		},
	}
	if call.At.IsZero() {
		call.At = time.Now()
	}
	return call
}

// hints are what --hint says. Of a hint that is said twice, the last counts.
func (c *policyExplainCommand) hints() (hints policy.Hints) {
	for _, said := range c.Hint {
		name, isNot := strings.CutPrefix(said, "not-")
		value := !isNot
		switch name {
		case "read-only":
			hints.ReadOnly = &value
		case "destructive":
			hints.Destructive = &value
		case "idempotent":
			hints.Idempotent = &value
		case "open-world":
			hints.OpenWorld = &value
		}
	}
	return hints
}

// payload is what is meant by --payload, as strict JSON.
func (c *policyExplainCommand) payload(p *process) (payload []byte, err error) {
	path, isFile := strings.CutPrefix(c.Payload, "@")
	switch {
	case c.Payload == standardInput:
		payload, err = readAll("standard input", p.stdin)
	case isFile:
		payload, err = os.ReadFile(path)
	default:
		payload = []byte(c.Payload)
	}
	if err != nil {
		return nil, err
	}
	return payload, strictjson.Check(payload)
}

// printJSON writes a value for a script to read.
func (p *process) printJSON(value any) error {
	encoder := json.NewEncoder(p.stdout)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(value)
}
