package main

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"regexp"
	"slices"
	"time"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/mcp"
	"github.com/countersign/countersign/policy"
)

// authorizationConfig is whose access tokens agents may call with, besides the
// server's own tokens.
type authorizationConfig struct {
	Issuers []issuerConfig `yaml:"issuers"`
}

// issuerConfig is an OAuth authorization server.
type issuerConfig struct {
	Issuer   string      `yaml:"issuer"`
	Audience []string    `yaml:"audience"`
	Scopes   []string    `yaml:"scopes"`
	Agent    string      `yaml:"agent"`
	Clients  []string    `yaml:"clients"`
	People   peopleTable `yaml:"people"`
}

// scopeToken is what a scope may be (RFC 6749, section 3.3).
var scopeToken = regexp.MustCompile(`^[\x21\x23-\x5b\x5d-\x7e]+$`)

// check reports everything that is wrong.
func (c authorizationConfig) check(problem func(format string, args ...any)) {
	named := make(map[string]bool)
	for i, one := range c.Issuers {
		at := fmt.Sprintf("authorization.issuers[%d]", i)
		checkIssuer(at+": issuer", one.Issuer, problem)
		if named[one.Issuer] {
			problem("%s: issuer: %s is there twice; put its people into one table", at, one.Issuer)
		}
		named[one.Issuer] = true
		if !approval.ValidAgentName(one.Agent) {
			problem("%s: agent: %q is not a name: 1 to 64 letters, digits, dots, dashes and underscores are accepted, starting with a letter or digit", at, one.Agent)
		}
		if slices.Contains(one.Audience, "") {
			problem("%s: audience: \"\" is nobody; leave it out, or name what the issuer's tokens are meant for", at)
		}
		if slices.Contains(one.Clients, "") {
			problem("%s: clients: \"\" is no client; leave it out, or take the id that the issuer gave the client", at)
		}
		for _, scope := range one.Scopes {
			if !scopeToken.MatchString(scope) {
				problem("%s: scopes: %q is not a scope; list each by itself", at, scope)
			}
		}
		one.People.check(at, "so nobody could connect", problem)
	}
}

// trusted is what the server must know of the issuers.
func (c config) trusted() []mcp.Issuer {
	var issuers []mcp.Issuer
	for _, one := range c.Authorization.Issuers {
		people := make(map[string]approval.Approver, len(one.People))
		for subject, user := range one.People {
			people[subject] = approval.Approver{Workspace: c.Slack.Workspace, User: user}
		}
		issuers = append(issuers, mcp.Issuer{
			Address:   one.Issuer,
			Audiences: one.Audience,
			Scopes:    one.Scopes,
			Agent:     one.Agent,
			Clients:   one.Clients,
			People:    people,
		})
	}
	return issuers
}

// authorization verifies access tokens; nil if none are taken.
func (c config) authorization(now func() time.Time, logger *slog.Logger) *mcp.Authorization {
	if len(c.Authorization.Issuers) == 0 {
		return nil
	}
	return mcp.NewAuthorization(mcp.AuthorizationOptions{Issuers: c.trusted(), Now: now, Logger: logger})
}

// inVain is somebody who may connect, and whose agent nobody could approve anything
// for.
type inVain struct {
	issuer, agent, user string
	err                 error
}

// withoutApprovers finds those for whose agents nobody could approve anything, since
// the people who could are they themselves.
func (c authorizationConfig) withoutApprovers(rules *policy.Policy) []inVain {
	var stuck []inVain
	for _, one := range c.Issuers {
		for _, user := range slices.Compact(slices.Sorted(maps.Values(one.People))) {
			if err := rules.ValidateFor(user); err != nil {
				stuck = append(stuck, inVain{one.Issuer, one.Agent, user, err})
			}
		}
	}
	return stuck
}

// checkAuthorization asks each issuer about itself, and looks for people who would
// connect for nothing.
func checkAuthorization(ctx context.Context, conf config, rules *policy.Policy, say func(bool, string, ...any)) {
	for _, finding := range mcp.CheckIssuers(ctx, conf.trusted()) {
		say(finding.OK, "access tokens of %s: %s", finding.Issuer, finding.Text)
	}
	if rules == nil {
		return
	}
	for _, stuck := range conf.Authorization.withoutApprovers(rules) {
		say(false, "access tokens of %s: %s for %s: %v", stuck.issuer, stuck.agent, stuck.user, stuck.err)
	}
}
