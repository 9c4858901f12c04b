package layout_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestLayout(t *testing.T) {
	packages := listPackages(t, "../..")
	for _, found := range check(packages) {
		t.Error(found)
	}
}

// listPackages returns the packages of the module at root that have more than
// tests, and those that they depend on.
func listPackages(t *testing.T, root string) []listed {
	t.Helper()
	noteFiles(t, root)
	// -e: a package that doesn't build yet is checked all the same.
	command := exec.Command("go", "list", "-e", "-deps", "-json=ImportPath,Name,Dir,Imports,GoFiles,CgoFiles", "./...")
	command.Dir = root
	var stderr bytes.Buffer
	command.Stderr = &stderr
	output, err := command.Output()
	if err != nil {
		t.Fatalf("running go list: %v\n%s", err, stderr.String())
	}
	var packages []listed
	ours := 0
	for decoder := json.NewDecoder(bytes.NewReader(output)); ; {
		var p struct {
			listed
			Dir               string
			GoFiles, CgoFiles []string
		}
		err := decoder.Decode(&p)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("reading what go list prints: %v", err)
		}
		if isOurs(p.ImportPath) {
			if len(p.GoFiles)+len(p.CgoFiles) == 0 {
				continue
			}
			ours++
			p.Generated = generatedFiles(t, p.Dir)
		}
		packages = append(packages, p.listed)
	}
	if ours == 0 {
		t.Fatalf("go list names no package of %s", module)
	}
	return packages
}

// noteFiles reads the folders of the module in this process. Go repeats a test
// whose result it has cached only when something that the test itself has
// opened is new; what go list opens doesn't count.
func noteFiles(t *testing.T, root string) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, entry os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if name := entry.Name(); entry.IsDir() && path != root && (strings.HasPrefix(name, ".") || name == "node_modules") {
			return filepath.SkipDir
		}
		return nil
	})
	if err != nil {
		t.Fatalf("reading the folders of the module: %v", err)
	}
}

// generatedLine is how Go's tools tell a generated file.
var generatedLine = regexp.MustCompile(`(?m)^// Code generated .* DO NOT EDIT\.$`)

// generatedFiles returns the names of the generated Go files in a folder.
func generatedFiles(t *testing.T, folder string) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, path := range paths {
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if generatedLine.Match(content) {
			names = append(names, filepath.Base(path))
		}
	}
	return names
}

func TestCheck(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name     string
		packages []listed
		want     []string // for each text found its first line
	}{
		{"what is allowed", []listed{
			imports("cmd/countersign", "approval", "policy", "audit", "db", "bot", "bot/slacksim", "mcp", "gateway", "web", "gate", "internal/visible", "net/http"),
			imports("approval", "policy", "audit", "internal/strictjson", "time"),
			imports("policy", "internal/strictjson", "github.com/goccy/go-yaml"),
			imports("audit", "internal/strictjson", "crypto/sha256"),
			imports("db", "approval", "policy", "db/internal/sqlc", "db/migrations", "database/sql", "modernc.org/sqlite"),
			imports("bot", "approval", "internal/visible", "github.com/slack-go/slack"),
			imports("bot/slacksim", "net/http"),
			imports("gateway", "approval", "policy"),
			imports("web", "approval", "net/http"),
			imports("gate", "internal/strictjson", "net/http"),
			imports("internal/strictjson", "internal/visible", "github.com/go-json-experiment/json/jsontext"),
			generated("db/internal/sqlc", "models.go"),
		}, nil},
		{"test support may import more", []listed{
			imports("approval/approvaltest", "approval", "db", "db/dbtest"),
			imports("db/dbtest", "approval", "db", "database/sql"),
			imports("internal/faketest", "github.com/google/go-cmp/cmp"),
		}, nil},
		{"other modules import what they like", []listed{
			{ImportPath: "golang.org/x/util", Name: "util", Imports: []string{"net/http"}},
			{ImportPath: module + "er/approval", Name: "approval", Imports: []string{"net/http"}},
		}, nil},

		{"the domain knows an adapter", []listed{imports("approval", "db")}, []string{"approval imports " + module + "/db"}},
		{"an adapter's folder below", []listed{imports("approval", "db/migrations")}, []string{"approval imports " + module + "/db/migrations"}},
		{"policy knows the domain", []listed{imports("policy", "approval")}, []string{"policy imports " + module + "/approval"}},
		{"audit knows policy", []listed{imports("audit", "policy")}, []string{"audit imports " + module + "/policy"}},
		{"an adapter knows another", []listed{imports("bot", "db"), imports("web", "bot/slacksim"), imports("mcp", "gateway")},
			[]string{"bot imports " + module + "/db", "mcp imports " + module + "/gateway", "web imports " + module + "/bot/slacksim"}},
		{"the bot knows the simulator", []listed{imports("bot", "bot/slacksim")}, []string{"bot imports " + module + "/bot/slacksim"}},
		{"the simulator knows the domain", []listed{imports("bot/slacksim", "approval", "internal/visible", "bot")},
			[]string{"bot/slacksim imports " + module + "/approval", "bot/slacksim imports " + module + "/internal/visible", "bot/slacksim imports " + module + "/bot"}},
		{"the client knows the server", []listed{imports("gate", "approval"), imports("web", "gate")},
			[]string{"gate imports " + module + "/approval", "web imports " + module + "/gate"}},
		{"something imports cmd", []listed{imports("web", "cmd/countersign"), imports("db/dbtest", "cmd/countersign")},
			[]string{"db/dbtest imports " + module + "/cmd/countersign", "web imports " + module + "/cmd/countersign"}},
		{"a leaf knows the domain", []listed{imports("internal/visible", "approval")}, []string{"internal/visible imports " + module + "/approval"}},
		{"a leaf imports a library", []listed{imports("internal/visible", "golang.org/x/text/unicode/norm")}, []string{"internal/visible imports golang.org/x/text/unicode/norm"}},
		{"jsontext elsewhere", []listed{imports("internal/visible", "github.com/go-json-experiment/json/jsontext")},
			[]string{"internal/visible imports github.com/go-json-experiment/json/jsontext"}},
		{"a folder without an entry", []listed{imports("notify", "db"), imports("")},
			[]string{" has no entry", "notify imports " + module + "/db", "notify has no entry"}},
		{"test support in what is shipped", []listed{imports("approval", "approval/approvaltest"), imports("cmd/countersign", "db/dbtest")},
			[]string{"approval imports " + module + "/approval/approvaltest", "cmd/countersign imports " + module + "/db/dbtest"}},

		{"the domain serves HTTP", []listed{imports("approval", "net/http/httputil")}, []string{"approval reaches net/http/httputil"}},
		{"the domain opens a database", []listed{imports("audit", "database/sql", "database/sql/driver")}, []string{"audit reaches database/sql"}},
		{"the domain knows Slack and MCP", []listed{imports("policy", "github.com/slack-go/slack", "github.com/modelcontextprotocol/go-sdk/mcp")},
			[]string{"policy reaches github.com/slack-go/slack", "policy reaches github.com/modelcontextprotocol/go-sdk/mcp"}},
		{"through a library", []listed{
			imports("approval", "example.com/queue"),
			{ImportPath: "example.com/queue", Imports: []string{"example.com/wire", "fmt"}},
			{ImportPath: "example.com/wire", Imports: []string{"net/http", "example.com/queue"}},
		}, []string{"approval reaches example.com/queue → example.com/wire → net/http"}},
		{"through a leaf", []listed{imports("audit", "internal/visible"), imports("internal/visible", "net/http")},
			[]string{"audit reaches " + module + "/internal/visible → net/http"}},
		{"an adapter's libraries are its own", []listed{imports("approval", "db"), imports("db", "database/sql")},
			[]string{"approval imports " + module + "/db"}},
		{"policy reads files", []listed{imports("policy", "os", "net/netip")}, []string{"policy imports os", "policy imports net/netip"}},

		{"generated code elsewhere", []listed{generated("approval", "status_string.go"), generated("db", "models.go"), generated("db/internalised", "models.go")},
			[]string{"approval has the generated file status_string.go", "db has the generated file models.go", "db/internalised has the generated file models.go"}},
		{"names that say nothing", []listed{imports("internal/util"), imports("web/common/forms"), {ImportPath: module + "/bot/text", Name: "helpers"}},
			[]string{"bot/text is called helpers", "internal/util is called util", "web/common/forms is called common"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			var got []string
			for _, found := range check(test.packages) {
				first, rest, _ := strings.Cut(found, "\n")
				got = append(got, first)
				if !strings.Contains(rest, "rule: ") || !strings.Contains(rest, "why: ") {
					t.Errorf("the text doesn't give the rule and why: %s", found)
				}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// imports returns a package of ours, given by its path in the module. What it
// imports is ours where its first folder is one of the layout's.
func imports(from string, paths ...string) listed {
	p := listed{ImportPath: strings.TrimSuffix(module+"/"+from, "/"), Name: filepath.Base(from)}
	for _, path := range paths {
		if entry(path) != "" {
			path = module + "/" + path
		}
		p.Imports = append(p.Imports, path)
	}
	return p
}

func generated(path string, files ...string) listed {
	return listed{ImportPath: module + "/" + path, Name: filepath.Base(path), Generated: files}
}
