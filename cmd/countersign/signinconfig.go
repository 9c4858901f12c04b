package main

import (
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"github.com/countersign/countersign/internal/loopback"
	"github.com/countersign/countersign/policy"
	"github.com/countersign/countersign/web"
)

// signInConfig is how people sign in, besides with Slack.
type signInConfig struct {
	Providers []providerConfig `yaml:"providers"`
}

// providerConfig is an OpenID provider that isn't Slack.
type providerConfig struct {
	Name     string      `yaml:"name"`
	Issuer   string      `yaml:"issuer"`
	ClientID string      `yaml:"client_id"`
	People   peopleTable `yaml:"people"`
}

// peopleTable has Slack user ids by subject.
type peopleTable map[string]string

// UnmarshalYAML takes subjects as they are written: many are digits, which as
// numbers would be somebody else's.
func (p *peopleTable) UnmarshalYAML(written ast.Node) error {
	wrong := func(at ast.Node) error {
		place := at.GetToken().Position
		return fmt.Errorf("[%d:%d] people is a table with a line SUBJECT: SLACK_USER_ID for each; a subject with other signs than letters and digits belongs in quotes", place.Line, place.Column)
	}
	table, ok := written.(ast.MapNode)
	if !ok {
		return wrong(written)
	}
	*p = make(peopleTable)
	for rows := table.MapRange(); rows.Next(); {
		subject, plain := rows.Key().(ast.ScalarNode)
		user, text := rows.Value().(*ast.StringNode)
		if !plain || !text || slices.Contains([]ast.NodeType{ast.AnchorType, ast.AliasType, ast.TagType, ast.MergeKeyType}, subject.Type()) {
			return wrong(rows.Key())
		}
		(*p)[subject.GetToken().Value] = user.Value
	}
	return nil
}

var providerName = regexp.MustCompile(`^[A-Za-z0-9]+(-[A-Za-z0-9]+)*$`)

// check reports everything that is wrong.
func (c signInConfig) check(problem func(format string, args ...any)) {
	named := map[string]bool{"slack": true}
	for i, one := range c.Providers {
		at := fmt.Sprintf("sign_in.providers[%d]", i)
		switch lower := strings.ToLower(one.Name); {
		case !providerName.MatchString(one.Name) || len(one.Name) > 32:
			problem("%s.name: %q; 1 to 32 letters and digits are accepted, with single dashes between them", at, one.Name)
		case named[lower]:
			problem("%s.name: %s is taken; each provider has a name of its own, which isn't Slack's", at, one.Name)
		default:
			named[lower], at = true, "sign_in.providers: "+one.Name
		}
		checkIssuer(at+": issuer", one.Issuer, problem)
		if one.ClientID == "" {
			problem("%s: client_id is empty; the provider gives one", at)
		}
		one.People.check(at, "so nobody could sign in", problem)
	}
}

// check reports everything that is wrong, and what comes of a table of nobody.
func (p peopleTable) check(at, withoutAny string, problem func(format string, args ...any)) {
	if len(p) == 0 {
		problem("%s: people is empty, %s; list SUBJECT: SLACK_USER_ID", at, withoutAny)
	}
	for _, subject := range slices.Sorted(maps.Keys(p)) {
		if subject == "" {
			problem("%s: people: \"\" is nobody; take the subject of the person's identity", at)
		}
		if user := p[subject]; !policy.IsUserID(user) {
			problem("%s: people: %q: %q is not a Slack user id (like U024BE7LH)", at, subject, user)
		}
	}
}

// checkIssuer reports an issuer that can't be believed.
func checkIssuer(key, address string, problem func(format string, args ...any)) {
	issuer, err := url.Parse(address)
	switch {
	case err != nil || issuer.Host == "" || (issuer.Scheme != "https" && issuer.Scheme != "http") || issuer.RawQuery != "" || issuer.Fragment != "":
		problem("%s: %q is not an address like https://slack.com", key, address)
	case issuer.Scheme == "http" && !loopback.Is(issuer.Hostname()):
		problem("%s: %q would say who people are in the clear; use https", key, address)
	}
}

// secretVariable is where the provider's client secret comes from.
func (c providerConfig) secretVariable() string {
	return clientSecretPrefix + strings.ToUpper(strings.ReplaceAll(c.Name, "-", "_")) + clientSecretSuffix
}

// What the variables of all client secrets have in common.
const (
	clientSecretPrefix = "COUNTERSIGN_"
	clientSecretSuffix = "_CLIENT_SECRET"
)

// isClientSecret reports whether a variable is one that a client secret comes from.
func isClientSecret(variable string) bool {
	variable = strings.TrimSuffix(variable, "_FILE")
	return strings.HasPrefix(variable, clientSecretPrefix) && strings.HasSuffix(variable, clientSecretSuffix)
}

// signIn is how people sign in; nil if they can't.
func (c config) signIn(keys secrets) *web.SignIn {
	if c.Slack.ClientID == "" && len(c.SignIn.Providers) == 0 {
		return nil
	}
	signIn := web.SignIn{Workspace: c.Slack.Workspace}
	if c.Slack.ClientID != "" {
		signIn.ClientID, signIn.ClientSecret, signIn.Issuer = c.Slack.ClientID, string(keys.ClientSecret), c.Slack.Issuer
	}
	for _, one := range c.SignIn.Providers {
		signIn.Providers = append(signIn.Providers, web.Provider{
			Name:         one.Name,
			Issuer:       one.Issuer,
			ClientID:     one.ClientID,
			ClientSecret: string(keys.Providers[one.Name]),
			People:       one.People,
		})
	}
	return &signIn
}
