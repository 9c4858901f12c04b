package gateway

import (
	"strings"
	"testing"
	"time"
)

func TestServerCheck(t *testing.T) {
	t.Parallel()
	command := func(change func(*Server)) Server {
		s := Server{Name: "one", Command: []string{"program", ""}, Env: map[string]string{"TOKEN": "x"}}
		change(&s)
		return s
	}
	web := func(change func(*Server)) Server {
		s := Server{Name: "one", URL: "https://crm.example.com/mcp", Headers: map[string]string{"Authorization": "Bearer hush"}}
		change(&s)
		return s
	}
	for name, test := range map[string]struct {
		server Server
		says   string // empty if it is accepted
	}{
		"a command":              {command(func(*Server) {}), ""},
		"an address":             {web(func(*Server) {}), ""},
		"an address here":        {web(func(s *Server) { s.URL = "http://[::1]:8080/mcp" }), ""},
		"an address, by name":    {web(func(s *Server) { s.URL = "http://localhost/mcp" }), ""},
		"nothing":                {Server{Name: "one"}, "neither command nor url"},
		"both":                   {web(func(s *Server) { s.Command = []string{"x"} }), "both command and url"},
		"no name":                {command(func(s *Server) { s.Name = "" }), "is not a name"},
		"a bad name":             {command(func(s *Server) { s.Name = "One" }), "is not a name"},
		"a name with a dot":      {command(func(s *Server) { s.Name = "a.b" }), "is not a name"},
		"a long name":            {command(func(s *Server) { s.Name = strings.Repeat("a", 33) }), "is not a name"},
		"no program":             {command(func(s *Server) { s.Command = []string{""} }), "the program is missing"},
		"in the clear":           {web(func(s *Server) { s.URL = "http://crm.example.com/mcp" }), "in the clear"},
		"as if here":             {web(func(s *Server) { s.URL = "http://127.0.0.1.example.com/mcp" }), "in the clear"},
		"with credentials":       {web(func(s *Server) { s.URL = "https://a:hush@crm.example.com/mcp" }), "has credentials in it"},
		"no address":             {web(func(s *Server) { s.URL = "crm" }), "is not an address"},
		"another scheme":         {web(func(s *Server) { s.URL = "file:///etc" }), "is not an address"},
		"headers of a command":   {command(func(s *Server) { s.Headers = map[string]string{"A": "b"} }), "headers are for a url"},
		"env of an address":      {web(func(s *Server) { s.Env = map[string]string{"A": "b"} }), "env are for a command"},
		"this product's":         {command(func(s *Server) { s.Env["Countersign_TOKEN"] = "hush" }), "for this server alone"},
		"not a variable":         {command(func(s *Server) { s.Env["A=B"] = "hush" }), "not the name of a variable"},
		"NUL in a variable":      {command(func(s *Server) { s.Env["A"] = "hush\x00" }), "NUL byte"},
		"not a header":           {web(func(s *Server) { s.Headers["A B"] = "hush" }), "not the name of a header"},
		"a header's end":         {web(func(s *Server) { s.Headers["A"] = "hush\r\nB: c" }), "control character"},
		"the protocol's header":  {web(func(s *Server) { s.Headers["mcp-session-id"] = "hush" }), "set by the protocol"},
		"the request's header":   {web(func(s *Server) { s.Headers["Content-Length"] = "7" }), "set by the protocol"},
		"another time":           {command(func(s *Server) { s.Run = "later" }), "decision and return"},
		"another time of a tool": {command(func(s *Server) { s.Tools = map[string]RunAt{"t": "later"} }), "decision and return"},
		"a negative timeout":     {command(func(s *Server) { s.CallTimeout = -time.Second }), "timeout is negative"},
	} {
		err := test.server.Check()
		if (err == nil) != (test.says == "") || err != nil && !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: %v, want %q", name, err, test.says)
		}
		if err != nil && strings.Contains(err.Error(), "hush") {
			t.Errorf("%s: a secret is repeated: %v", name, err)
		}
	}
	if _, err := newDownstreams([]Server{command(func(*Server) {}), web(func(*Server) {})}, nil, "", soon, newLogs().logger()); err == nil {
		t.Error("two servers may have one name")
	}
	if _, err := newDownstreams([]Server{{Name: "one"}}, nil, "", soon, newLogs().logger()); err == nil {
		t.Error("a server isn't checked")
	}
}

func TestRunAt(t *testing.T) {
	t.Parallel()
	s := Server{Run: AtReturn, Tools: map[string]RunAt{"now": AtDecision, "unset": ""}}
	for tool, want := range map[string]RunAt{"now": AtDecision, "unset": AtReturn, "other": AtReturn} {
		if got := s.runAt(tool); got != want {
			t.Errorf("%s: %s, want %s", tool, got, want)
		}
	}
	if got := (Server{}).runAt("any"); got != AtDecision {
		t.Errorf("unless configured: %s", got)
	}
}
