package gateway

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/countersign/countersign/gateway/gatewaytest"
)

// allAllowed lets every tool of the reference servers run.
const allAllowed = `
version: 1
mode: open
roles: {finance: {users: [U0ALICE]}}
approval: {requires: [{role: finance}]}
limits: {pending: 10, per_minute: 1000000, cooldown: 0s}
integrations:
  files: {tools: {"*": {tier: 1}}}
  notes: {tools: {"*": {tier: 1}}}
  things: {tools: {"*": {tier: 1}}}
`

// Servers that we didn't write answer through the gateway as they do without it,
// byte for byte.
func TestReferenceServersAnswerAsDirectly(t *testing.T) {
	t.Parallel()
	for _, version := range []string{legacy, modern} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			folder := t.TempDir()
			inside := func(name string) string { return filepath.Join(folder, name) }
			programs := func(notes string) map[string]gatewaytest.Program {
				return map[string]gatewaytest.Program{
					"files":  gatewaytest.Filesystem(t, folder),
					"notes":  gatewaytest.Memory(t, filepath.Join(t.TempDir(), notes)),
					"things": gatewaytest.Everything(t),
				}
			}
			calls := []struct{ server, tool, arguments string }{
				{"files", "write_file", textObject("path", inside("one.txt"), "content", "9007199254740993 & <tags> é\n0.10\n")},
				{"files", "create_directory", textObject("path", inside("sub"))},
				{"files", "read_text_file", textObject("path", inside("one.txt"))},
				{"files", "edit_file", `{"path":` + quoted(inside("one.txt")) + `,"edits":[{"oldText":"0.10","newText":"0.20"}]}`},
				{"files", "move_file", textObject("source", inside("one.txt"), "destination", inside("two.txt"))},
				{"files", "move_file", textObject("source", inside("one.txt"), "destination", inside("two.txt"))},
				{"files", "list_directory", textObject("path", folder)},
				{"files", "directory_tree", textObject("path", folder)},
				{"files", "search_files", textObject("path", folder, "pattern", "two*")},
				{"files", "read_text_file", textObject("path", "/etc/passwd")},
				{"files", "read_text_file", `{}`},
				{"notes", "create_entities", `{"entities":[{"name":"Ada","entityType":"person","observations":["owes 10","<b>&"]},{"name":"Bob","entityType":"person","observations":[]}]}`},
				{"notes", "create_relations", `{"relations":[{"from":"Ada","to":"Bob","relationType":"knows"}]}`},
				{"notes", "search_nodes", `{"query":"owes"}`},
				{"notes", "delete_entities", `{"entityNames":["Ada"]}`},
				{"notes", "read_graph", `{}`},
				{"things", "echo", `{"message":"é\u2028 </script>"}`},
				{"things", "get-sum", `{"a":0.1,"b":0.2}`},
				{"things", "get-sum", `{"a":9007199254740993,"b":1e-7}`},
				{"things", "get-sum", `{"a":"1"}`},
				{"things", "get-structured-content", `{"location":"Chicago"}`},
				{"things", "get-annotated-message", `{"messageType":"error","includeImage":true}`},
				{"things", "get-tiny-image", `{}`},
				{"things", "get-resource-links", `{"count":2}`},
				{"things", "get-resource-reference", `{"resourceType":"Text","resourceId":1}`},
			}
			direct := make(map[string]*gatewaytest.Direct)
			for name, program := range programs("direct") {
				direct[name] = program.Connect(t, `{}`)
			}
			want := make([]json.RawMessage, len(calls))
			for i, call := range calls {
				want[i] = direct[call.server].Call(t, call.tool, call.arguments)
			}
			for _, name := range []string{"two.txt", "sub"} {
				if err := os.RemoveAll(inside(name)); err != nil {
					t.Fatal(err)
				}
			}

			behind := programs("gateway")
			w := newWorld(t, worldOptions{policy: allAllowed, servers: []string{"files", "notes", "things"}, configure: func(s *Server) {
				s.URL, s.Command, s.Env = "", behind[s.Name].Command, behind[s.Name].Env
			}})
			h := w.listen(t).byHand(t, w.Agent.Name, version, `{}`)
			for i, call := range calls {
				got, expected := string(h.must(call.tool, call.arguments, "")), string(want[i])
				if version == modern {
					// What every result of that version has, behind what the server wrote.
					expected = strings.TrimSuffix(expected, "}")
					got = got[:min(len(got), len(expected))]
				}
				if strings.Contains(expected, "Resource 1: ") {
					continue // it has the time of day in it
				}
				if diff := cmp.Diff(expected, got); diff != "" {
					t.Errorf("%s %s (-directly +through the gateway):\n%s", call.tool, call.arguments, diff)
				}
			}
			if all := w.all(t); len(all) != len(calls) {
				t.Errorf("%d calls are recorded, want %d", len(all), len(calls))
			}
		})
	}
}

// textObject is an object of texts, in their order.
func textObject(namesAndTexts ...string) string {
	var members []string
	for i := 0; i < len(namesAndTexts); i += 2 {
		members = append(members, quoted(namesAndTexts[i])+":"+quoted(namesAndTexts[i+1]))
	}
	return "{" + strings.Join(members, ",") + "}"
}

func quoted(text string) string { return string(mustEncode(text)) }
