package main

import (
	"encoding/json"
	"fmt"
	"os"
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
	FirstUse    []string  `placeholder:"OF" help:"What was never used before: some of tool, integration, agent."`
	Hint        []string  `placeholder:"HINT" help:"What the tool's server says: some of read-only, destructive, idempotent, open-world, each also as not-…."`
	At          time.Time `placeholder:"TIME" help:"When, such as 2026-03-02T22:15:00+01:00 (default: now)."`
	JSON        bool      `name:"json" help:"As JSON."`
}

func (c *policyExplainCommand) Run(p *process) error {
	call, err := c.call(p)
	if err != nil {
		return err
	}
	rules, err := c.read(p)
	if err != nil {
		return err
	}
	explanation := rules.Explain(call)
	if c.JSON {
		return p.printJSON(explanation)
	}
	fmt.Fprintln(p.stdout, strings.TrimRight(explanation.String(), "\n"))
	return nil
}

func (c *policyExplainCommand) call(p *process) (policy.Call, error) {
	call := policy.Call{
		Agent:       c.Agent,
		Owner:       c.Owner,
		Action:      c.Action,
		Target:      c.Target,
		Environment: c.Environment,
		Count:       c.Count,
		Reversible:  c.Reversible,
		At:          c.At,
	}
	if call.At.IsZero() {
		call.At = time.Now()
	}
	if c.Owner != "" && !policy.IsUserID(c.Owner) {
		return call, fmt.Errorf("--owner: %q is not a Slack user id (like U024BE7LH)", c.Owner)
	}
	if c.Payload == standardInput && c.Policy == standardInput {
		return call, fmt.Errorf("--payload and --policy can't both be standard input")
	}
	var err error
	if call.FirstUse, err = firstUse(c.FirstUse); err != nil {
		return call, err
	}
	if call.Hints, err = hints(c.Hint); err != nil {
		return call, err
	}
	if call.Payload, err = c.payload(p); err != nil {
		return call, fmt.Errorf("--payload: %w", err)
	}
	return call, nil
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

func firstUse(of []string) (first policy.FirstUse, err error) {
	for _, one := range of {
		switch one {
		case "tool":
			first.Tool = true
		case "integration":
			first.Integration = true
		case "agent":
			first.Agent = true
		default:
			return first, fmt.Errorf("--first-use: %q; tool, integration and agent are accepted", one)
		}
	}
	return first, nil
}

func hints(said []string) (hints policy.Hints, err error) {
	for _, one := range said {
		name, isNot := strings.CutPrefix(one, "not-")
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
		default:
			return hints, fmt.Errorf("--hint: %q; read-only, destructive, idempotent and open-world are accepted, and each with not- before it", one)
		}
	}
	return hints, nil
}

// printJSON writes a value for a script to read.
func (p *process) printJSON(value any) error {
	encoder := json.NewEncoder(p.stdout)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(value)
}
