package main

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/internal/loopback"
	"github.com/countersign/countersign/mcp"
)

// exampleConfig has every key with its default and what it means; "countersign
// config" prints it.
//
//go:embed example.yaml
var exampleConfig string

// config is the configuration file. Secrets are not in it: they come from the
// environment (see secrets).
type config struct {
	Data     string         `yaml:"data"`
	Policy   string         `yaml:"policy"`
	Listen   string         `yaml:"listen"`
	URL      string         `yaml:"url"`
	Slack    slackConfig    `yaml:"slack"`
	SignIn   signInConfig   `yaml:"sign_in"`
	Requests requestsConfig `yaml:"requests"`
	MCP      mcpConfig      `yaml:"mcp"`
	Gateway  gatewayConfig  `yaml:"gateway"`
	Gate     gateConfig     `yaml:"gate"`

	Authorization authorizationConfig `yaml:"authorization"`
}

type slackConfig struct {
	Workspace          string `yaml:"workspace"`
	Channel            string `yaml:"channel"`
	Interactions       string `yaml:"interactions"`
	AllowSharedChannel bool   `yaml:"allow_shared_channel"`
	ClientID           string `yaml:"client_id"`
	APIURL             string `yaml:"api_url"`
	Issuer             string `yaml:"issuer"`
}

type requestsConfig struct {
	PayloadLimit int `yaml:"payload_limit"`
}

type mcpConfig struct {
	AwaitBound time.Duration `yaml:"await_bound"`
}

// The two ways in which Slack's clicks can arrive.
const (
	overSocket = "socket"
	overHTTP   = "http"
)

// maxPayloadLimit is the largest payload that a configuration may accept, in
// bytes.
const maxPayloadLimit = 1 << 20

func defaultConfig() config {
	return config{
		Data:     "countersign-data",
		Policy:   "policy.yaml",
		Listen:   "127.0.0.1:8080",
		URL:      "http://127.0.0.1:8080",
		Slack:    slackConfig{Interactions: overSocket},
		SignIn:   signInConfig{Providers: []providerConfig{}},
		Requests: requestsConfig{PayloadLimit: approval.DefaultPayloadLimit},
		MCP:      mcpConfig{AwaitBound: mcp.DefaultAwaitBound},
		Gateway:  defaultGatewayConfig(),
		Gate:     defaultGateConfig(),

		Authorization: authorizationConfig{Issuers: []issuerConfig{}},
	}
}

// readConfig reads and checks a configuration file. Relative paths in it are
// relative to its folder.
func readConfig(path string) (config, error) {
	c, err := readUncheckedConfig(path)
	if err != nil {
		return config{}, err
	}
	if err := c.check(); err != nil {
		return config{}, fmt.Errorf("checking %s:\n%w", path, err)
	}
	return c, nil
}

// readUncheckedConfig is readConfig for what needs no more than the paths in
// the file: its keys are known, and its values may be anything.
func readUncheckedConfig(path string) (config, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return config{}, fmt.Errorf("%w %s; \"countersign config > %s\" writes an example to start from", errNoConfig, path, path)
	}
	if err != nil {
		return config{}, fmt.Errorf("reading the configuration: %w", err)
	}
	c, err := parseConfig(data)
	if err != nil {
		return config{}, fmt.Errorf("reading %s: %w", path, err)
	}
	for _, inside := range []*string{&c.Data, &c.Policy} {
		if *inside != "" && !filepath.IsAbs(*inside) {
			*inside = filepath.Join(filepath.Dir(path), *inside)
		}
	}
	c.Gateway.resolve(filepath.Dir(path))
	return c, nil
}

var errNoConfig = errors.New("there is no configuration file")

// movedKey is how an error begins that a configuration of before the policy
// file causes.
var movedKey = regexp.MustCompile(`unknown field "(roles|approval|apply_within)"`)

// parseConfig reads YAML strictly: an unknown or repeated key is an error with
// its line and column. The text of the file is kept out of the error, in case
// somebody put a secret in it.
func parseConfig(data []byte) (config, error) {
	c := defaultConfig()
	decoder := yaml.NewDecoder(bytes.NewReader(data), yaml.Strict())
	err := decoder.Decode(&c)
	if errors.Is(err, io.EOF) {
		return defaultConfig(), nil // the decoder has emptied c
	}
	if err != nil {
		text := yaml.FormatError(err, false, false)
		if movedKey.MatchString(text) {
			text += "\nRoles and what approving takes are in a file of their own now, which \"policy\" names; \"countersign policy example\" shows it"
		}
		return config{}, errors.New(text)
	}
	if err := decoder.Decode(new(config)); !errors.Is(err, io.EOF) {
		return config{}, errors.New("there is a second document after \"---\"; put everything in one")
	}
	return c, nil
}

var (
	workspaceID = regexp.MustCompile(`^T[A-Z0-9]{2,30}$`)
	channelID   = regexp.MustCompile(`^[CG][A-Z0-9]{2,30}$`)
)

// check reports everything that is wrong with the values.
func (c config) check() error {
	var problems []error
	problem := func(format string, args ...any) {
		problems = append(problems, fmt.Errorf("  "+format, args...))
	}
	if c.Data == "" {
		problem("data: is empty; name the folder for the database")
	}
	if c.Policy == "" {
		problem("policy: is empty; name the policy file")
	}
	host, _, err := net.SplitHostPort(c.Listen)
	if err != nil {
		problem("listen: %q is not HOST:PORT", c.Listen)
	}
	public, err := url.Parse(c.URL)
	switch {
	case err != nil || public.Host == "" || (public.Scheme != "https" && public.Scheme != "http"):
		problem("url: %q is not an address like https://approvals.example.com", c.URL)
	case public.Scheme == "http" && !loopback.Is(public.Hostname()):
		problem("url: %q sends tokens in the clear; use https", c.URL)
	case public.RawQuery != "" || public.Fragment != "" || strings.Trim(public.Path, "/") != "":
		problem("url: %q has more than scheme and host", c.URL)
	}
	if !workspaceID.MatchString(c.Slack.Workspace) {
		problem("slack.workspace: %q is not a workspace id (like T024BE7LD)", c.Slack.Workspace)
	}
	if !channelID.MatchString(c.Slack.Channel) {
		problem("slack.channel: %q is not a channel id (like C024BE91L)", c.Slack.Channel)
	}
	switch c.Slack.Interactions {
	case overSocket:
	case overHTTP:
		if public != nil && public.Scheme != "https" && !loopback.Is(host) {
			problem("slack.interactions: http needs an https url that Slack can reach")
		}
	default:
		problem("slack.interactions: %q; socket and http are accepted", c.Slack.Interactions)
	}
	if c.Slack.APIURL != "" {
		api, err := url.Parse(c.Slack.APIURL)
		if err != nil || api.Host == "" || !strings.HasSuffix(api.Path, "/") {
			problem("slack.api_url: %q is not an address that ends in /", c.Slack.APIURL)
		} else if api.Scheme != "https" && !loopback.Is(api.Hostname()) {
			problem("slack.api_url: %q sends the bot's token in the clear; use https", c.Slack.APIURL)
		}
	}
	if c.Slack.Issuer != "" {
		checkIssuer("slack.issuer", c.Slack.Issuer, problem)
		if c.Slack.ClientID == "" {
			problem("slack.issuer: is for people who sign in, which takes slack.client_id")
		}
	}
	c.SignIn.check(problem)
	if c.Requests.PayloadLimit < 1024 || c.Requests.PayloadLimit > maxPayloadLimit {
		problem("requests.payload_limit: %d; 1024 to %d bytes are accepted", c.Requests.PayloadLimit, maxPayloadLimit)
	}
	if c.MCP.AwaitBound < time.Second || c.MCP.AwaitBound > mcp.MaxAwaitBound {
		problem("mcp.await_bound: %s; 1s to 55s are accepted, since hosts give up on longer calls", c.MCP.AwaitBound)
	}
	c.Gateway.check(problem)
	c.Gate.check(problem)
	c.Authorization.check(problem)
	return errors.Join(problems...)
}

// secret is a value that never shows itself in a log, an error or JSON.
type secret string

func (secret) String() string               { return "[redacted]" }
func (secret) GoString() string             { return "[redacted]" }
func (secret) LogValue() slog.Value         { return slog.StringValue("[redacted]") }
func (secret) MarshalText() ([]byte, error) { return []byte("[redacted]"), nil }

// secrets are what the server must know and nobody may read.
type secrets struct {
	BotToken       secret
	AppToken       secret
	SigningSecret  secret
	PreviousSecret secret // still accepted while Slack is told the new one
	ClientSecret   secret // for people who sign in

	// Providers are the client secrets of the other providers that people sign in
	// with, by their names.
	Providers map[string]secret
	// Downstream are what downstream servers are given, by their names.
	Downstream map[string]downstreamSecrets
}

// Where secrets come from. Each may be in a file instead, which the same name
// with _FILE appended names.
const (
	botTokenVariable       = "COUNTERSIGN_SLACK_BOT_TOKEN"
	appTokenVariable       = "COUNTERSIGN_SLACK_APP_TOKEN"
	signingSecretVariable  = "COUNTERSIGN_SLACK_SIGNING_SECRET"
	previousSecretVariable = "COUNTERSIGN_SLACK_SIGNING_SECRET_PREVIOUS"
	clientSecretVariable   = "COUNTERSIGN_SLACK_CLIENT_SECRET"
	agentTokenVariable     = "COUNTERSIGN_TOKEN"
)

// readSecrets takes what the configuration needs from the environment and says
// what is missing.
func readSecrets(c config, environment func(string) string) (secrets, error) {
	var s secrets
	var problems []error
	read := func(into *secret, variable, like, from string) {
		value, err := readSecret(variable, environment)
		switch {
		case err != nil:
			problems = append(problems, err)
		case value == "" && variable != previousSecretVariable:
			problems = append(problems, fmt.Errorf("%s (or %s_FILE) is not set: %s", variable, variable, from))
		case value != "" && !strings.HasPrefix(string(value), like):
			problems = append(problems, fmt.Errorf("%s doesn't start with %q: %s", variable, like, from))
		default:
			*into = value
		}
	}
	read(&s.BotToken, botTokenVariable, "xoxb-", "the bot token, from the app's page \"OAuth & Permissions\"")
	// What the other way for clicks needs isn't even read, so it can't be used.
	if c.Slack.Interactions == overSocket {
		read(&s.AppToken, appTokenVariable, "xapp-", "an app-level token with connections:write, from \"Basic Information\"")
	} else {
		read(&s.SigningSecret, signingSecretVariable, "", "the signing secret, from \"Basic Information\"")
		read(&s.PreviousSecret, previousSecretVariable, "", "the signing secret before the current one")
	}
	if c.Slack.ClientID != "" {
		read(&s.ClientSecret, clientSecretVariable, "", "the client secret, from \"Basic Information\"")
	}
	s.Providers = make(map[string]secret, len(c.SignIn.Providers))
	for _, one := range c.SignIn.Providers {
		var given secret
		read(&given, one.secretVariable(), "", "the client secret that "+one.Name+" gave for "+one.ClientID)
		s.Providers[one.Name] = given
	}
	downstream, err := c.Gateway.readSecrets(environment)
	s.Downstream = downstream
	return s, errors.Join(errors.Join(problems...), err)
}

func readSecret(variable string, environment func(string) string) (secret, error) {
	value, path := environment(variable), environment(variable+"_FILE")
	switch {
	case value != "" && path != "":
		return "", fmt.Errorf("%s and %s_FILE are both set; set one", variable, variable)
	case path != "":
		data, err := os.ReadFile(path)
		if err != nil {
			return "", fmt.Errorf("reading the file that %s_FILE names: %w", variable, err)
		}
		return secret(strings.TrimSpace(string(data))), nil
	default:
		return secret(value), nil
	}
}

// signingSecrets are those that a click may be signed with.
func (s secrets) signingSecrets() []string {
	var all []string
	for _, one := range []secret{s.SigningSecret, s.PreviousSecret} {
		if one != "" {
			all = append(all, string(one))
		}
	}
	return all
}
