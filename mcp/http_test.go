package mcp_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/approval/approvaltest"
	"github.com/countersign/countersign/mcp"
)

// post makes a request to the server with headers beside those that any client
// sends; an empty one is left out.
func post(t testing.TB, s *httpServer, body string, headers map[string]string) *http.Response {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Accept", "application/json, text/event-stream")
	for key, value := range headers {
		if key == "Host" {
			request.Host = value
		} else {
			request.Header.Set(key, value)
		}
	}
	response, err := s.Client().Do(request)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = response.Body.Close() })
	return response
}

func bodyOf(t testing.TB, response *http.Response) string {
	t.Helper()
	data, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

const (
	initializeBody = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"raw","version":"1"}}}`
	discoverBody   = `{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`
)

func modernHeaders(token, method, name string) map[string]string {
	headers := map[string]string{"Authorization": "Bearer " + token, "Mcp-Protocol-Version": modern, "Mcp-Method": method}
	if name != "" {
		headers["Mcp-Name"] = name
	}
	return headers
}

func TestNoCallWithoutAToken(t *testing.T) {
	t.Parallel()
	f := approvaltest.New(t)
	s := serveHTTP(t, f, newLocal(t, f, 0), mcp.HandlerOptions{})
	revoked, secret, err := f.Service.CreateToken(t.Context(), approval.Operator{Name: "test"}, "deployer", approval.Approver{})
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Service.RevokeToken(t.Context(), approval.Operator{Name: "test"}, revoked.ID); err != nil {
		t.Fatal(err)
	}
	good := s.token(t, "deployer")
	for name, header := range map[string]string{
		"none":         "",
		"other scheme": "Basic " + good,
		"no secret":    "Bearer ",
		"unknown":      "Bearer countersign_unknown",
		"revoked":      "Bearer " + secret,
		"of no kind":   "Bearer " + strings.TrimPrefix(good, "countersign_"),
	} {
		for era, body := range map[string]string{legacy: initializeBody, modern: discoverBody} {
			headers := modernHeaders("", "server/discover", "")
			if era == legacy {
				headers = make(map[string]string)
			}
			headers["Authorization"] = header
			response := post(t, s, body, headers)
			if response.StatusCode != http.StatusUnauthorized || !strings.HasPrefix(response.Header.Get("WWW-Authenticate"), "Bearer") {
				t.Errorf("%s, %s: %s, %q", name, era, response.Status, response.Header.Get("WWW-Authenticate"))
			}
			if text := bodyOf(t, response); !strings.Contains(text, "countersign token create") {
				t.Errorf("%s: the answer doesn't say what to do: %s", name, text)
			}
		}
	}
	if response := post(t, s, initializeBody, map[string]string{"Authorization": "bearer  " + good}); response.StatusCode != http.StatusOK {
		t.Errorf("a good token: %s", response.Status)
	}
}

// That a token can't be looked up says nothing about the token.
func TestStoreFailureIsNoInvalidToken(t *testing.T) {
	t.Parallel()
	f := approvaltest.New(t)
	logger, messages := logged()
	s := serveHTTP(t, f, newLocal(t, f, 0), mcp.HandlerOptions{Options: mcp.Options{Logger: logger}})
	token := s.token(t, "deployer")
	if err := f.Store.Close(); err != nil {
		t.Fatal(err)
	}
	response := post(t, s, initializeBody, map[string]string{"Authorization": "Bearer " + token})
	if response.StatusCode != http.StatusServiceUnavailable || response.Header.Get("Retry-After") == "" || response.Header.Get("WWW-Authenticate") != "" {
		t.Errorf("got %s, %v", response.Status, response.Header)
	}
	if text := bodyOf(t, response); strings.Contains(text, "sql") || strings.Contains(text, "closed") {
		t.Errorf("the answer tells of the store: %s", text)
	}
	receiveMessage(t, messages, "looking up a token")
}

// A session belongs to the agent whose token began it, whichever of its tokens
// a call carries; a revoked one ends at once.
func TestSessionsBelongToAgents(t *testing.T) {
	t.Parallel()
	f := approvaltest.New(t)
	s := serveHTTP(t, f, newLocal(t, f, 0), mcp.HandlerOptions{})
	revocable, first, err := f.Service.CreateToken(t.Context(), approval.Operator{Name: "test"}, "deployer", approval.Approver{})
	if err != nil {
		t.Fatal(err)
	}
	second, stranger := s.token(t, "deployer"), s.token(t, "stranger")
	begun := post(t, s, initializeBody, map[string]string{"Authorization": "Bearer " + first})
	session := begun.Header.Get("Mcp-Session-Id")
	if begun.StatusCode != http.StatusOK || session == "" {
		t.Fatalf("initialize: %s, session %q", begun.Status, session)
	}
	list := func(token string) int {
		response := post(t, s, `{"jsonrpc":"2.0","id":2,"method":"tools/list","params":{}}`, map[string]string{
			"Authorization": "Bearer " + token, "Mcp-Session-Id": session, "Mcp-Protocol-Version": legacy,
		})
		return response.StatusCode
	}
	for _, step := range []struct {
		token string
		want  int
	}{{first, http.StatusOK}, {second, http.StatusOK}, {stranger, http.StatusForbidden}} {
		if got := list(step.token); got != step.want {
			t.Errorf("got %d, want %d", got, step.want)
		}
	}
	if err := f.Service.RevokeToken(t.Context(), approval.Operator{Name: "test"}, revocable.ID); err != nil {
		t.Fatal(err)
	}
	if got := list(first); got != http.StatusUnauthorized {
		t.Errorf("a revoked token: %d", got)
	}
	if got := list(second); got != http.StatusOK {
		t.Errorf("the agent's other token: %d", got)
	}
}

// The agent of a call is that of its own token, not of the one that began the
// session.
func TestRequestsAreTheTokensAgent(t *testing.T) {
	t.Parallel()
	f := approvaltest.New(t)
	s := serveHTTP(t, f, newLocal(t, f, 0), mcp.HandlerOptions{})
	owner := approval.Approver{Workspace: "T0TEST", User: "U0BOB"}
	_, secret, err := f.Service.CreateToken(t.Context(), approval.Operator{Name: "test"}, "deployer", owner)
	if err != nil {
		t.Fatal(err)
	}
	for _, version := range []string{legacy, modern} {
		session := connect(t, s.transport(t, secret), version, nil)
		r, err := f.Service.Status(t.Context(), approval.Agent{Name: "deployer", Owner: owner}, asked(t, session))
		if err != nil {
			t.Fatal(err)
		}
		if r.Agent != "deployer" || r.ActsFor != owner {
			t.Errorf("%s: asked as %q for %v", version, r.Agent, r.ActsFor)
		}
	}
}

func TestForeignPagesAndNamesAreRefused(t *testing.T) {
	t.Parallel()
	f := approvaltest.New(t)
	s := serveHTTP(t, f, newLocal(t, f, 0), mcp.HandlerOptions{Hosts: []string{"approvals.example"}})
	token := s.token(t, "deployer")
	for name, test := range map[string]struct {
		headers map[string]string
		want    int
	}{
		"another site":            {map[string]string{"Sec-Fetch-Site": "cross-site"}, http.StatusForbidden},
		"another origin":          {map[string]string{"Origin": "https://evil.example"}, http.StatusForbidden},
		"a name of somebody else": {map[string]string{"Host": "evil.example"}, http.StatusForbidden},
		"a name with our prefix":  {map[string]string{"Host": "approvals.example.evil"}, http.StatusForbidden},
		"the proxy's name":        {map[string]string{"Host": "Approvals.example:443"}, http.StatusOK},
		"the loopback's name":     {map[string]string{"Host": "localhost:1"}, http.StatusOK},
		"the loopback's number":   {map[string]string{"Host": "[::1]"}, http.StatusOK},
		"nothing of it":           {nil, http.StatusOK},
	} {
		for era, body := range map[string]string{legacy: initializeBody, modern: discoverBody} {
			headers := map[string]string{"Authorization": "Bearer " + token}
			if era == modern {
				headers = modernHeaders(token, "server/discover", "")
			}
			for key, value := range test.headers {
				headers[key] = value
			}
			if response := post(t, s, body, headers); response.StatusCode != test.want {
				t.Errorf("%s, %s: %s, want %d", name, era, response.Status, test.want)
			}
		}
	}
}

func TestBodiesAreLimited(t *testing.T) {
	t.Parallel()
	f := approvaltest.New(t)
	s := serveHTTP(t, f, newLocal(t, f, 0), mcp.HandlerOptions{PayloadLimit: 1000})
	token := s.token(t, "deployer")
	huge := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"request_approval","arguments":{"purpose":"` + strings.Repeat("x", 70<<10) + `"}}}`
	for _, headers := range []map[string]string{{"Authorization": "Bearer " + token}, modernHeaders(token, "tools/call", "request_approval")} {
		if response := post(t, s, huge, headers); response.StatusCode != http.StatusRequestEntityTooLarge {
			t.Errorf("got %s", response.Status)
		}
	}
}
