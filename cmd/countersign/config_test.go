package main

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/countersign/countersign/policy"
)

// The example is a configuration that works, and its values are the defaults
// wherever it doesn't say that they are examples.
func TestExampleConfig(t *testing.T) {
	t.Parallel()
	got, err := parseConfig([]byte(exampleConfig))
	if err != nil {
		t.Fatal(err)
	}
	if err := got.check(); err != nil {
		t.Fatal(err)
	}
	want := defaultConfig()
	want.Slack.Workspace, want.Slack.Channel = got.Slack.Workspace, got.Slack.Channel
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the example differs from the defaults (-default +example):\n%s", diff)
	}
}

// Every key is in the example, with a comment somewhere above it.
func TestExampleConfigNamesEveryKey(t *testing.T) {
	t.Parallel()
	for _, key := range keys(reflect.TypeFor[config]()) {
		if !strings.Contains(exampleConfig, key+":") {
			t.Errorf("the example doesn't show %q", key)
		}
	}
}

// The example policy is one that a server accepts and that has nothing to be
// found, and each key that a policy can have is in it.
func TestExamplePolicy(t *testing.T) {
	t.Parallel()
	rules, err := policy.Parse([]byte(examplePolicy))
	if err != nil {
		t.Fatal(err)
	}
	if findings := rules.Check(); len(findings) > 0 {
		t.Error(findings)
	}
	source, err := os.ReadFile(filepath.Join("..", "..", "policy", "document.go"))
	if err != nil {
		t.Fatal(err)
	}
	keys := regexp.MustCompile("`yaml:\"([a-z_]+)\"`").FindAllStringSubmatch(string(source), -1)
	if len(keys) < 40 {
		t.Fatalf("found %d keys; they are somewhere else", len(keys))
	}
	for _, key := range keys {
		if !strings.Contains(examplePolicy, key[1]+":") {
			t.Errorf("the example doesn't show %q", key[1])
		}
	}
}

// The demo's policy does what its cases say, and they cover all of it.
func TestDemoPolicy(t *testing.T) {
	t.Parallel()
	var out, problems bytes.Buffer
	code := run(t.Context(), []string{"policy", "test", "--fail-on-uncovered", "demo"}, &process{
		stdout:      closer{&out},
		stderr:      &problems,
		environment: func(string) string { return "" },
	})
	if code != 0 {
		t.Errorf("exit %d\n%s%s", code, &out, &problems)
	}
}

func keys(t reflect.Type) []string {
	switch t.Kind() {
	case reflect.Map, reflect.Slice:
		return keys(t.Elem())
	case reflect.Struct:
	default:
		return nil
	}
	var all []string
	for i := range t.NumField() {
		all = append(all, t.Field(i).Tag.Get("yaml"))
		all = append(all, keys(t.Field(i).Type)...)
	}
	return all
}

func TestConfigRefuses(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name      string
		old, new  string
		want      string
		wantPlace string
	}{
		{"an unknown key", "listen: 127.0.0.1:8080", "listne: 127.0.0.1:8080", "listne", "[23:1]"},
		{"an unknown key inside", "  interactions: socket", "  interaction: socket", "interaction", ":3]"},
		{"a key twice", "listen: 127.0.0.1:8080", "listen: 127.0.0.1:8080\nlisten: 127.0.0.1:8081", "listen", "[24:1]"},
		{"a word for a number", "payload_limit: 262144", "payload_limit: many", "", ":18]"},
		{"roles, which are in the policy", "mcp:\n", "roles: {oncall: {users: [U024BE7LH]}}\nmcp:\n", "countersign policy example", ":1] unknown field"},
		{"no policy", "policy: policy.yaml", `policy: ""`, "name the policy file", ""},
		{"a name for a workspace", "T024BE7LD", "acme", "slack.workspace", ""},
		{"a name for a channel", "C024BE91L", "\"#approvals\"", "slack.channel", ""},
		{"a host in the clear", "url: http://127.0.0.1:8080", "url: http://approvals.example.com", "use https", ""},
		{"a path in the address", "url: http://127.0.0.1:8080", "url: https://example.com/sign", "more than scheme and host", ""},
		{"another way for clicks", "\n  interactions: socket", "\n  interactions: pigeon", "socket and http", ""},
		{"a wait that hosts cut off", "await_bound: 25s", "await_bound: 2m", "1s to 55s", ""},
		{"a second document", "mcp:\n", "---\nmcp:\n", "second document", ""},
		{"a payload limit of nothing", "payload_limit: 262144", "payload_limit: 0", "requests.payload_limit", ""},
		{"a Slack address in the clear", `api_url: ""`, "api_url: http://slack.example/api/", "use https", ""},
		{"who people are, in the clear", `issuer: ""`, "issuer: http://slack.example", "use https", ""},
		{"no address for who people are", `issuer: ""`, "issuer: slack.com", "is not an address", ""},
		{"an issuer that nobody signs in with", `issuer: ""`, "issuer: https://slack-gov.com", "slack.client_id", ""},
		{"a provider without a name", "providers: []", provider("name: ''"), "name: \"\"", ""},
		{"a provider by Slack's name", "providers: []", provider("name: slack"), "slack is taken", ""},
		{"a provider by a name that is no address", "providers: []", provider("name: a/b"), "single dashes", ""},
		{"two providers by one name", "providers: []", provider("name: a") + "\n" + strings.Repeat(" ", 4) + "- {name: A}", "A is taken", ""},
		{"a provider that nobody knows", "providers: []", provider("client_id: ''"), "Example: client_id", ""},
		{"a provider in the clear", "providers: []", provider("issuer: http://id.example.com"), "Example: issuer", ""},
		{"a provider for nobody", "providers: []", provider("people: {}"), "nobody could sign in", ""},
		{"a provider for somebody's name", "providers: []", provider("people: {a: ada}"), "\"a\": \"ada\" is not a Slack user id", ""},
		{"a provider for a list of people", "providers: []", provider("people: [U024BE7LH]"), "SUBJECT: SLACK_USER_ID", "["},
		{"an issuer in the clear", "issuers: []", trustedIssuer("issuer: http://login.example.com"), "use https", ""},
		{"an issuer that is no address", "issuers: []", trustedIssuer("issuer: login.example.com"), "is not an address", ""},
		{"an issuer for nobody", "issuers: []", trustedIssuer("people: {}"), "nobody could connect", ""},
		{"an issuer for somebody's name", "issuers: []", trustedIssuer("people: {a: ada}"), "\"a\": \"ada\" is not a Slack user id", ""},
		{"an issuer of no agent", "issuers: []", trustedIssuer("agent: ''"), "agent: \"\" is not a name", ""},
		{"an issuer of an agent by a sentence", "issuers: []", trustedIssuer("agent: my agent"), "is not a name", ""},
		{"two scopes as one", "issuers: []", trustedIssuer("scopes: [a b]"), "\"a b\" is not a scope", ""},
		{"a scope that ends its header", "issuers: []", trustedIssuer("scopes: ['a\"']"), "is not a scope", ""},
		{"an audience of nobody", "issuers: []", trustedIssuer("audience: ['']"), "audience: \"\" is nobody", ""},
		{"a client of nobody", "issuers: []", trustedIssuer("clients: ['']"), "is no client", ""},
		{"an issuer twice", "issuers: []", trustedIssuer("") + "\n    - {issuer: https://login.example.com}", "is there twice", ""},
		{"an issuer's unknown key", "issuers: []", trustedIssuer("") + "\n      peopel: {}", "peopel", ""},
		{"a subject by its anchor", "providers: []", provider("people: {&x a: U024BE7LH}"), "SUBJECT: SLACK_USER_ID", "["},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			text := strings.Replace(exampleConfig, test.old, test.new, 1)
			if text == exampleConfig {
				t.Fatalf("the example doesn't have %q", test.old)
			}
			path := filepath.Join(t.TempDir(), "countersign.yaml")
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := readConfig(path)
			if err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), test.wantPlace) {
				t.Errorf("got %v\nwant an error with %q at %q", err, test.want, test.wantPlace)
			}
		})
	}
}

func TestConfigMissing(t *testing.T) {
	t.Parallel()
	_, err := readConfig(filepath.Join(t.TempDir(), "countersign.yaml"))
	if err == nil || !strings.Contains(err.Error(), "countersign config >") {
		t.Errorf("got %v, want an error that says how to write one", err)
	}
}

func TestSecrets(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte("xoxb-from-file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	socket := defaultConfig()
	signIn := defaultConfig()
	signIn.Slack.ClientID = "1.2"
	others := defaultConfig()
	others.SignIn.Providers = []providerConfig{{Name: "Example-ID"}}
	overHTTPOnly := defaultConfig()
	overHTTPOnly.Slack.Interactions = overHTTP
	tests := []struct {
		name        string
		conf        config
		environment map[string]string
		want        string // in the error; empty for none
	}{
		{"socket", socket, map[string]string{botTokenVariable: "xoxb-1", appTokenVariable: "xapp-1"}, ""},
		{"http", overHTTPOnly, map[string]string{botTokenVariable: "xoxb-1", signingSecretVariable: "s"}, ""},
		{"from a file", socket, map[string]string{botTokenVariable + "_FILE": file, appTokenVariable: "xapp-1"}, ""},
		{"what the other way needs isn't read", overHTTPOnly, map[string]string{botTokenVariable: "xoxb-1", signingSecretVariable: "s", appTokenVariable: "nonsense"}, ""},
		{"for signing in", signIn, map[string]string{botTokenVariable: "xoxb-1", appTokenVariable: "xapp-1", clientSecretVariable: "c"}, ""},
		{"no client secret for signing in", signIn, map[string]string{botTokenVariable: "xoxb-1", appTokenVariable: "xapp-1"}, clientSecretVariable},
		{"for a provider", others, map[string]string{botTokenVariable: "xoxb-1", appTokenVariable: "xapp-1", "COUNTERSIGN_EXAMPLE_ID_CLIENT_SECRET": "c"}, ""},
		{"no client secret for a provider", others, map[string]string{botTokenVariable: "xoxb-1", appTokenVariable: "xapp-1"}, "COUNTERSIGN_EXAMPLE_ID_CLIENT_SECRET"},
		{"no bot token", socket, map[string]string{appTokenVariable: "xapp-1"}, botTokenVariable},
		{"no app token for a socket", socket, map[string]string{botTokenVariable: "xoxb-1"}, appTokenVariable},
		{"no signing secret for http", overHTTPOnly, map[string]string{botTokenVariable: "xoxb-1"}, signingSecretVariable},
		{"the wrong kind of token", socket, map[string]string{botTokenVariable: "xapp-1", appTokenVariable: "xapp-1"}, "doesn't start with"},
		{"both", socket, map[string]string{botTokenVariable: "xoxb-1", botTokenVariable + "_FILE": file, appTokenVariable: "xapp-1"}, "both set"},
		{"a file that isn't there", socket, map[string]string{botTokenVariable + "_FILE": file + "x", appTokenVariable: "xapp-1"}, botTokenVariable},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			got, err := readSecrets(test.conf, func(name string) string { return test.environment[name] })
			if test.want == "" {
				if err != nil || !strings.HasPrefix(string(got.BotToken), "xoxb-") {
					t.Errorf("got %q, %v", string(got.BotToken), err)
				}
				if test.conf.Slack.Interactions == overHTTP && got.AppToken != "" {
					t.Error("an app token would open Socket Mode beside HTTP")
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want an error with %q", err, test.want)
			}
			for _, value := range test.environment {
				if err != nil && strings.HasPrefix(value, "xoxb-") && strings.Contains(err.Error(), value) {
					t.Errorf("the error shows a secret: %v", err)
				}
			}
		})
	}
}

func TestSecretNeverShowsItself(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	logger := slog.New(slog.NewJSONHandler(&log, nil))
	logger.Info("starting", "token", secret("xoxb-hidden"), "all", secrets{BotToken: "xoxb-hidden"})
	if strings.Contains(log.String(), "hidden") {
		t.Error(log.String())
	}
}
