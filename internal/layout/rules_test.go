package layout_test

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

const module = "github.com/countersign/countersign"

// listed is what the rules look at in one package, ours or another's.
type listed struct {
	ImportPath string
	Name       string
	Imports    []string // of its files that aren't tests
	Generated  []string // names of its generated files
}

// A rule is one thing that the layout promises.
type rule struct {
	protects string // the promise
	why      string // what would be lost without it

	// breaks returns how p, a package of ours, breaks the promise, each in words
	// that follow the package's path.
	breaks func(p listed, all map[string]listed) []string
}

const (
	approval = "approval"
	policy   = "policy"
	audit    = "audit"
	internal = "internal"
)

var adapters = []string{"db", "bot", "mcp", "gateway", "web"}

// mayImport is the table of the layout: for each folder the folders of ours
// that it may import apart from itself. A longer entry goes before its parent.
var mayImport = map[string][]string{
	"cmd":          append([]string{approval, policy, audit, internal, "bot/slacksim", "gate"}, adapters...),
	approval:       {policy, audit, internal},
	policy:         {internal},
	audit:          {internal},
	"db":           {approval, policy, audit, internal},
	"bot":          {approval, policy, audit, internal},
	"bot/slacksim": {},
	"mcp":          {approval, policy, audit, internal},
	"gateway":      {approval, policy, audit, internal},
	"web":          {approval, policy, audit, internal},
	"gate":         {internal}, // what other programs import
	internal:       {},
}

// thirdParty are the libraries that packages below internal may import.
var thirdParty = map[string][]string{
	"internal/strictjson": {"github.com/go-json-experiment/json/jsontext"},
}

// outsideWorld is what the domain must not reach, not even through a library.
// An entry stands for the packages below it too.
var outsideWorld = []string{
	"net/http",
	"database/sql",
	"modernc.org/sqlite",
	"github.com/jackc/pgx",
	"github.com/pressly/goose",
	"github.com/slack-go/slack",
	"github.com/gorilla/websocket",
	"github.com/modelcontextprotocol/go-sdk",
}

// exceptions are packages below those of outsideWorld that hold only types.
var exceptions = []string{"database/sql/driver"}

var rules = []rule{
	{
		protects: "adapters (db, bot, mcp, gateway, web) never import each other",
		why:      "each can be read, tested and replaced alone, and there is one way to change a request: approval.Service",
		breaks: ours(func(from, to string) bool {
			return slices.Contains(adapters, entry(from)) && slices.Contains(adapters, entry(to)) && entry(from) != entry(to)
		}),
	},
	{
		protects: "nothing imports cmd",
		why:      "cmd wires everything together; what others need belongs into the package that it is about",
		breaks: anyOfOurs(func(from, to string) bool {
			return entry(to) == "cmd" && entry(from) != "cmd"
		}),
	},
	{
		protects: "a folder imports only what the table of the layout lists for it",
		why:      "the domain stays in the middle: adapters know it, and it knows none of them",
		breaks: ours(func(from, to string) bool {
			// The rules above say it better.
			if entry(to) == "cmd" || slices.Contains(adapters, entry(from)) && slices.Contains(adapters, entry(to)) {
				return false
			}
			return entry(from) != entry(to) && !slices.Contains(mayImport[entry(from)], entry(to))
		}),
	},
	{
		protects: "each folder is in the table of the layout",
		why:      "a folder without an entry would be free to import anything",
		breaks: func(p listed, _ map[string]listed) []string {
			if entry(relative(p.ImportPath)) == "" {
				return []string{"has no entry"}
			}
			return nil
		},
	},
	{
		protects: "test support (packages named …test) is imported by tests and test support only",
		why:      "it makes superusers, breaks things on purpose and may import any adapter",
		breaks: ours(func(_, to string) bool {
			return isTestSupport(to)
		}),
	},
	{
		protects: "approval, policy and audit reach no database, HTTP server, Slack or MCP library",
		why:      "who may approve what is decided by pure functions that a test can call without any setup",
		breaks:   reachOutside,
	},
	{
		protects: "policy touches neither files nor the network",
		why:      "the same document and call give the same ruling everywhere; whoever calls reads the files",
		breaks: func(p listed, _ map[string]listed) []string {
			if entry(relative(p.ImportPath)) != policy || isTestSupport(p.ImportPath) {
				return nil
			}
			return each(p.Imports, "imports %s", func(path string) bool {
				return path == "os" || path == "net" || strings.HasPrefix(path, "os/") || strings.HasPrefix(path, "net/")
			})
		},
	},
	{
		protects: "below internal there are leaves: of libraries only jsontext, in strictjson",
		why:      "everything imports them, so what they import is everywhere",
		breaks: func(p listed, _ map[string]listed) []string {
			from := relative(p.ImportPath)
			if entry(from) != internal || isTestSupport(from) {
				return nil
			}
			return each(p.Imports, "imports %s", func(path string) bool {
				first, _, _ := strings.Cut(path, "/")
				isLibrary := strings.Contains(first, ".") && !isOurs(path)
				return isLibrary && !slices.Contains(thirdParty[from], path)
			})
		},
	},
	{
		protects: "generated code stands under db/internal only",
		why:      "nobody reviews it line by line, and only the Store may depend on its shape",
		breaks: func(p listed, _ map[string]listed) []string {
			if within(relative(p.ImportPath), "db/internal") {
				return nil
			}
			return each(p.Generated, "has the generated file %s", func(string) bool { return true })
		},
	},
	{
		protects: "no package is called util, common or helpers",
		why:      "such a name says nothing, so anything ends up there",
		breaks: func(p listed, _ map[string]listed) []string {
			names := append(strings.Split(relative(p.ImportPath), "/"), p.Name)
			return each(slices.Compact(names), "is called %s", func(name string) bool {
				return slices.Contains([]string{"util", "utils", "common", "helper", "helpers", "misc"}, name)
			})
		},
	},
}

// check returns one text for each place at which a package of ours breaks a
// rule, sorted by package. The packages are ours and those that ours depend on.
func check(packages []listed) []string {
	all := map[string]listed{}
	for _, p := range packages {
		all[p.ImportPath] = p
	}
	packages = slices.SortedFunc(slices.Values(packages), func(a, b listed) int {
		return strings.Compare(a.ImportPath, b.ImportPath)
	})
	var found []string
	for _, p := range packages {
		if !isOurs(p.ImportPath) {
			continue
		}
		for _, rule := range rules {
			for _, how := range rule.breaks(p, all) {
				found = append(found, fmt.Sprintf("%s %s\n\trule: %s\n\twhy:  %s",
					relative(p.ImportPath), how, rule.protects, rule.why))
			}
		}
	}
	return found
}

// ours is anyOfOurs without test support, which may import more.
func ours(forbidden func(from, to string) bool) func(listed, map[string]listed) []string {
	return anyOfOurs(func(from, to string) bool {
		return !isTestSupport(from) && forbidden(from, to)
	})
}

// anyOfOurs makes the check of a rule that forbids imports between packages of
// ours, given by their paths in the module.
func anyOfOurs(forbidden func(from, to string) bool) func(listed, map[string]listed) []string {
	return func(p listed, _ map[string]listed) []string {
		return each(p.Imports, "imports %s", func(path string) bool {
			return isOurs(path) && forbidden(relative(p.ImportPath), relative(path))
		})
	}
}

// reachOutside follows the imports of a package of the domain, and names for
// each forbidden one a shortest way to it.
func reachOutside(p listed, all map[string]listed) []string {
	if from := relative(p.ImportPath); !slices.Contains([]string{approval, policy, audit}, entry(from)) || isTestSupport(from) {
		return nil
	}
	var found []string
	seen := map[string]bool{p.ImportPath: true}
	ways := [][]string{{p.ImportPath}}
	for len(ways) > 0 {
		way := ways[0]
		ways = ways[1:]
		for _, next := range all[way[len(way)-1]].Imports {
			if seen[next] {
				continue
			}
			seen[next] = true
			if isOurs(next) && slices.Contains(adapters, entry(relative(next))) {
				continue // forbidden itself
			}
			longer := append(slices.Clone(way), next)
			if isOutside(next) {
				found = append(found, "reaches "+strings.Join(longer[1:], " → "))
				continue
			}
			ways = append(ways, longer)
		}
	}
	return found
}

func isOutside(path string) bool {
	if slices.Contains(exceptions, path) {
		return false
	}
	return slices.ContainsFunc(outsideWorld, func(forbidden string) bool { return within(path, forbidden) })
}

// entry returns the entry of the table that a path in the module belongs to, or
// the empty string.
func entry(path string) string {
	longest := ""
	for folder := range mayImport {
		if within(path, folder) && len(folder) > len(longest) {
			longest = folder
		}
	}
	return longest
}

func isOurs(path string) bool { return within(path, module) }

// relative returns the path in the module of a package of ours.
func relative(path string) string {
	return strings.TrimPrefix(strings.TrimPrefix(path, module), "/")
}

func isTestSupport(importPath string) bool { return strings.HasSuffix(path.Base(importPath), "test") }

func within(path, folder string) bool { return path == folder || strings.HasPrefix(path, folder+"/") }

// each formats those of the values that match.
func each(values []string, format string, matches func(string) bool) []string {
	var texts []string
	for _, value := range values {
		if matches(value) {
			texts = append(texts, fmt.Sprintf(format, value))
		}
	}
	return texts
}
