package main

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/countersign/countersign/gateway"
	"github.com/countersign/countersign/internal/visible"
)

// gatewayConfig is the part of the configuration that is about downstream MCP
// servers.
type gatewayConfig struct {
	Servers      map[string]downstreamConfig `yaml:"servers"`
	Approval     gateway.Approval            `yaml:"approval"`
	Hold         time.Duration               `yaml:"hold"`
	ReviewPrompt string                      `yaml:"review_prompt"`
}

// downstreamConfig is one downstream MCP server. What is in Env and Headers may
// name variables of this process, and may be secret as it stands.
type downstreamConfig struct {
	Command      []string              `yaml:"command"`
	Directory    string                `yaml:"directory"`
	Env          map[string]secret     `yaml:"env"`
	URL          string                `yaml:"url"`
	Headers      map[string]secret     `yaml:"headers"`
	Environment  string                `yaml:"environment"`
	Run          gateway.RunAt         `yaml:"run"`
	Tools        map[string]toolConfig `yaml:"tools"`
	StartTimeout time.Duration         `yaml:"start_timeout"`
	CallTimeout  time.Duration         `yaml:"call_timeout"`
}

type toolConfig struct {
	Run gateway.RunAt `yaml:"run"`
}

// promptNone has no client asked to open the review page before it gets an answer.
const promptNone = "none"

// defaultHold is how long a call is held where calls are held at all: about as
// long as hosts wait that count progress.
const defaultHold = 50 * time.Second

func defaultGatewayConfig() gatewayConfig {
	return gatewayConfig{
		Servers:      map[string]downstreamConfig{},
		Approval:     gateway.Pending,
		Hold:         defaultHold,
		ReviewPrompt: promptNone,
	}
}

// gatewayOptions are how the gateway answers what waits for a person.
func (c config) gatewayOptions() gateway.Options {
	options := gateway.Options{Approval: c.Gateway.Approval, HoldBound: c.Gateway.Hold, AwaitBound: c.MCP.AwaitBound}
	if c.Gateway.ReviewPrompt != promptNone {
		options.Prompt = c.Gateway.ReviewPrompt
	}
	return options
}

// resolve makes relative directories relative to the configuration's folder,
// where commands start unless it says otherwise.
func (c gatewayConfig) resolve(folder string) {
	for name, server := range c.Servers {
		if server.Directory == "" && (len(server.Command) == 0 || server.URL != "") {
			continue
		}
		if !filepath.IsAbs(server.Directory) {
			server.Directory = filepath.Join(folder, server.Directory)
			c.Servers[name] = server
		}
	}
}

// check reports everything that is wrong with the values, as far as that can be
// known without the variables that they name.
func (c gatewayConfig) check(problem func(format string, args ...any)) {
	if c.Approval != gateway.Pending && c.Approval != gateway.Hold {
		problem("gateway.approval: %q; pending and hold are accepted", c.Approval)
	}
	if c.Hold < time.Second || c.Hold > gateway.MaxBound {
		problem("gateway.hold: %s; 1s to %s are accepted, since hosts give up on longer calls", c.Hold, gateway.MaxBound)
	}
	if c.ReviewPrompt != promptNone && c.ReviewPrompt != gateway.PromptURL {
		problem("gateway.review_prompt: %q; none and url are accepted", c.ReviewPrompt)
	}
	for _, name := range slices.Sorted(maps.Keys(c.Servers)) {
		c.Servers[name].check(name, problem)
	}
}

func (c downstreamConfig) check(name string, problem func(format string, args ...any)) {
	at := serverKey(name)
	if !acceptedRun(c.Run) {
		problem("%s.run: %q; decision and return are accepted", at, c.Run)
	}
	for _, tool := range slices.Sorted(maps.Keys(c.Tools)) {
		if run := c.Tools[tool].Run; !acceptedRun(run) {
			problem("%s.tools.%s.run: %q; decision and return are accepted", at, visible.Line(tool), run)
		}
	}
	if c.StartTimeout < 0 {
		problem("%s.start_timeout: %s is negative", at, c.StartTimeout)
	}
	if c.CallTimeout < 0 {
		problem("%s.call_timeout: %s is negative", at, c.CallTimeout)
	}
	unread := func(variable string) (secret, error) { return "", refuseOwn(variable) }
	if _, err := c.expand(at, unread); err != nil {
		problem("%w", err)
	}
	c.Run, c.Tools, c.StartTimeout, c.CallTimeout = "", nil, 0, 0 // said above, with their keys
	checkServer(c.server(name, downstreamSecrets{c.Env, c.Headers}), problem)
}

func acceptedRun(run gateway.RunAt) bool {
	return run == "" || run == gateway.AtDecision || run == gateway.AtReturn
}

// checkServer reports each thing that the gateway wouldn't accept of a server.
func checkServer(server gateway.Server, problem func(format string, args ...any)) {
	err := server.Check()
	if several, ok := err.(interface{ Unwrap() []error }); ok {
		for _, one := range several.Unwrap() {
			problem("%s: %w", serverKey(server.Name), one)
		}
	}
}

// serverKey is where a server is in the configuration.
func serverKey(name string) string { return "gateway.servers." + visible.Line(name) }

// downstreamSecrets are what a downstream server is given that nobody may read,
// with the variables' values in it.
type downstreamSecrets struct {
	Env     map[string]secret
	Headers map[string]secret
}

// server is the configuration as the gateway takes it.
func (c downstreamConfig) server(name string, given downstreamSecrets) gateway.Server {
	server := gateway.Server{
		Name:         name,
		Command:      c.Command,
		Directory:    c.Directory,
		Env:          revealed(given.Env),
		URL:          c.URL,
		Headers:      revealed(given.Headers),
		Environment:  c.Environment,
		Run:          c.Run,
		Tools:        make(map[string]gateway.RunAt, len(c.Tools)),
		StartTimeout: c.StartTimeout,
		CallTimeout:  c.CallTimeout,
	}
	for tool, own := range c.Tools {
		server.Tools[tool] = own.Run
	}
	return server
}

func revealed(values map[string]secret) map[string]string {
	shown := make(map[string]string, len(values))
	for name, value := range values {
		shown[name] = string(value)
	}
	return shown
}

// servers are the configured ones with what they are given, by name.
func (c gatewayConfig) servers(given map[string]downstreamSecrets) []gateway.Server {
	var servers []gateway.Server
	for _, name := range slices.Sorted(maps.Keys(c.Servers)) {
		servers = append(servers, c.Servers[name].server(name, given[name]))
	}
	return servers
}

// readSecrets takes what the servers are given from the environment, and reports
// everything that is missing or can't be passed on.
func (c gatewayConfig) readSecrets(environment func(string) string) (map[string]downstreamSecrets, error) {
	var problems []error
	problem := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	given := make(map[string]downstreamSecrets, len(c.Servers))
	read := func(variable string) (secret, error) {
		value, err := readSecret(variable, environment)
		if err == nil && value == "" {
			err = fmt.Errorf("%s (or %s_FILE) is not set", variable, variable)
		}
		return value, err
	}
	for _, name := range slices.Sorted(maps.Keys(c.Servers)) {
		values, err := c.Servers[name].expand(serverKey(name), read)
		if err != nil {
			problem("%w", err)
			continue
		}
		given[name] = values
		checkServer(c.Servers[name].server(name, values), problem)
	}
	return given, errors.Join(problems...)
}

// expand puts values of variables into what a server is given. at is the
// server's key.
func (c downstreamConfig) expand(at string, value func(variable string) (secret, error)) (downstreamSecrets, error) {
	env, wrongEnv := expandAll(at+".env", c.Env, value)
	headers, wrongHeaders := expandAll(at+".headers", c.Headers, value)
	return downstreamSecrets{env, headers}, errors.Join(wrongEnv, wrongHeaders)
}

func expandAll(at string, written map[string]secret, value func(variable string) (secret, error)) (map[string]secret, error) {
	var problems []error
	values := make(map[string]secret, len(written))
	for _, name := range slices.Sorted(maps.Keys(written)) {
		expanded, err := expand(written[name], value)
		if err != nil {
			problems = append(problems, fmt.Errorf("%s.%s: %w", at, visible.Line(name), err))
		}
		values[name] = expanded
	}
	return values, errors.Join(problems...)
}

var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// errReference doesn't repeat what is written, which may be secret.
var errReference = errors.New("has a ${ that isn't followed by the name of a variable and }; write $${ for the characters themselves")

// expand replaces each ${NAME} by the value of that variable, and each $${ by ${.
func expand(written secret, value func(variable string) (secret, error)) (secret, error) {
	var expanded strings.Builder
	rest := string(written)
	for {
		before, after, found := strings.Cut(rest, "${")
		if !found {
			expanded.WriteString(rest)
			return secret(expanded.String()), nil
		}
		if literal, escaped := strings.CutSuffix(before, "$"); escaped {
			expanded.WriteString(literal + "${")
			rest = after
			continue
		}
		expanded.WriteString(before)
		name, after, closed := strings.Cut(after, "}")
		if !closed || !variableName.MatchString(name) {
			return "", errReference
		}
		one, err := value(name)
		if err != nil {
			return "", err
		}
		expanded.WriteString(string(one))
		rest = after
	}
}

// refuseOwn refuses this server's own secrets, which are no downstream server's.
func refuseOwn(variable string) error {
	own := isClientSecret(variable)
	for _, one := range []string{botTokenVariable, appTokenVariable, signingSecretVariable, previousSecretVariable, agentTokenVariable} {
		own = own || variable == one || variable == one+"_FILE"
	}
	if own {
		return fmt.Errorf("%s is for this server alone; no downstream server gets it", variable)
	}
	return nil
}
