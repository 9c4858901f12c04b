package main

import (
	"fmt"
	"strconv"
	"time"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/mcp"
)

// gateConfig is the part of the configuration that is about deciding in the hosts
// of agents.
type gateConfig struct {
	Serve       bool            `yaml:"serve"`
	Timeout     time.Duration   `yaml:"timeout"`
	WithoutView mcp.WithoutView `yaml:"without_view"`
}

func defaultGateConfig() gateConfig {
	return gateConfig{Timeout: mcp.DefaultGateTimeout, WithoutView: mcp.DenyWithoutView}
}

// check reports everything that is wrong with the values.
func (c gateConfig) check(problem func(format string, args ...any)) {
	if c.Timeout < approval.MinTTL || c.Timeout > approval.MaxTTL {
		problem("gate.timeout: %s; %s to %s are accepted", c.Timeout, approval.MinTTL, approval.MaxTTL)
	}
	if c.WithoutView != mcp.DenyWithoutView && c.WithoutView != mcp.WaitWithoutView {
		problem("gate.without_view: %q; deny and wait are accepted", c.WithoutView)
	}
}

// timeoutVariable is how long the gate holds a call, in milliseconds, in place of
// what the configuration says.
const timeoutVariable = "APPROVAL_TIMEOUT_MS"

// readTimeout takes the timeout from the environment, if it is there.
func (c *gateConfig) readTimeout(environment func(string) string) error {
	written := environment(timeoutVariable)
	if written == "" {
		return nil
	}
	milliseconds, err := strconv.ParseInt(written, 10, 64)
	least, most := approval.MinTTL.Milliseconds(), approval.MaxTTL.Milliseconds()
	if err != nil || milliseconds < least || milliseconds > most {
		return fmt.Errorf("%s: %q; a whole number of milliseconds from %d to %d is accepted", timeoutVariable, written, least, most)
	}
	c.Timeout = time.Duration(milliseconds) * time.Millisecond
	return nil
}
