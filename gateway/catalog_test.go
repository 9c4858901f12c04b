package gateway

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/countersign/countersign/policy"
)

// offer are tools, prompts and resources by their names.
func offer(t testing.TB, server string, tools, prompts, resources []string) lists {
	t.Helper()
	logger := newLogs().logger()
	all := func(format string, names []string) []json.RawMessage {
		var definitions []json.RawMessage
		for _, name := range names {
			definitions = append(definitions, json.RawMessage(fmt.Sprintf(format, name)))
		}
		return definitions
	}
	return lists{
		tools:     toolsOf(Server{Name: server}, all(`{"name":%q,"inputSchema":{"type":"object"}}`, tools), logger),
		prompts:   itemsOf(server, "name", all(`{"z":1.0,"name":%q}`, prompts), logger),
		resources: itemsOf(server, "uri", all(`{"uri":%q}`, resources), logger),
		templates: itemsOf(server, "uriTemplate", all(`{"uriTemplate":"%s{id}"}`, resources), logger),
	}
}

func TestNamesThatClash(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", maxToolName-2)
	for name, test := range map[string]struct {
		a, b []string
		want []string
	}{
		"none":                         {[]string{"read"}, []string{"write"}, []string{"a.read=read", "b.write=write"}},
		"two":                          {[]string{"read", "list"}, []string{"read"}, []string{"a.read=a__read", "a.list=list", "b.read=b__read"}},
		"with the gateway's own":       {[]string{"await_result"}, nil, []string{"a.await_result=a__await_result"}},
		"with a prefixed name":         {[]string{"read", "b__read"}, []string{"read"}, []string{"a.read=a__read", "a.b__read=b__read"}},
		"with a prefixed name to come": {[]string{"read"}, []string{"read", "a__read"}, []string{"b.read=b__read", "b.a__read=a__read"}},
		"within one server":            {[]string{"read", "read"}, nil, []string{"a.read=read"}},
		"with too long a name then":    {[]string{long}, []string{long}, nil},
		"in spelling only":             {[]string{"read"}, []string{"Read"}, []string{"a.read=read", "b.Read=Read"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			kept := newLogs()
			c := newCatalog([]string{"a", "b"}, map[string]lists{
				"a": offer(t, "a", test.a, nil, nil), "b": offer(t, "b", test.b, nil, nil),
			}, []string{"await_result"}, kept.logger())
			var got []string
			for i := range c.tools {
				tool := &c.tools[i]
				got = append(got, tool.action()+"="+tool.exposed)
				if c.tool(tool.exposed) != tool || c.byAction[tool.action()] != tool {
					t.Errorf("%s isn't found", tool.exposed)
				}
				if want := fmt.Sprintf(`{"name":%q,"inputSchema":{"type":"object"}}`, tool.exposed); string(tool.shown) != want {
					t.Errorf("shown as %s, want %s", tool.shown, want)
				}
				if want := fmt.Sprintf(`{"name":%q,"inputSchema":{"type":"object"}}`, tool.name); string(tool.definition) != want {
					t.Errorf("kept as %s, want %s", tool.definition, want)
				}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if all := len(slices.Compact(slices.Sorted(slices.Values(test.a)))) + len(test.b); len(got) < all && kept.count("leaving out") != all-len(got) {
				t.Errorf("what is left out isn't said: %q", kept.lines)
			}
		})
	}
}

func TestPromptsAndResourcesThatClash(t *testing.T) {
	t.Parallel()
	kept := newLogs()
	c := newCatalog([]string{"a", "b"}, map[string]lists{
		"a": offer(t, "a", nil, []string{"greet", "b__greet", "plan", "plan"}, []string{"x:1", "x:2", "x:"}),
		"b": offer(t, "b", nil, []string{"greet"}, []string{"x:2", "x:22", "x", "y:"}),
	}, []string{"plan"}, kept.logger())
	var prompts, resources []string
	for _, p := range c.prompts {
		prompts = append(prompts, p.server+" "+p.exposed+" "+string(p.shown))
	}
	for _, r := range c.resources {
		resources = append(resources, r.server+" "+r.key)
	}
	if diff := cmp.Diff([]string{`a a__greet {"z":1.0,"name":"a__greet"}`, `a b__greet {"z":1.0,"name":"b__greet"}`, `a plan {"z":1.0,"name":"plan"}`}, prompts); diff != "" {
		t.Errorf("prompts (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"a x:1", "a x:2", "a x:", "b x:22", "b x", "b y:"}, resources); diff != "" {
		t.Errorf("resources (-want +got):\n%s", diff)
	}
	for uri, want := range map[string]string{"x:2": "a", "x:22": "b", "x:222": "b", "x:3": "a", "y:3": "b", "z:3": "", "": ""} {
		if got := c.resourceServer(uri); got != want {
			t.Errorf("%s is %q's, want %q's", uri, got, want)
		}
	}
}

func TestChanges(t *testing.T) {
	t.Parallel()
	logger := newLogs().logger()
	with := func(tools, prompts, resources []string) *catalog {
		return newCatalog([]string{"a"}, map[string]lists{"a": offer(t, "a", tools, prompts, resources)}, nil, logger)
	}
	empty := with(nil, nil, nil)
	for _, test := range []struct {
		a, b *catalog
		want []string
	}{
		{empty, empty, nil},
		{with([]string{"x"}, nil, nil), with([]string{"x"}, nil, nil), nil},
		{with([]string{"x"}, nil, nil), empty, []string{kindTools}},
		{with([]string{"x"}, nil, nil), with([]string{"y"}, nil, nil), []string{kindTools}},
		{empty, with(nil, []string{"x"}, nil), []string{kindPrompts}},
		{empty, with(nil, nil, []string{"x"}), []string{kindResources}},
		{empty, with([]string{"x"}, []string{"x"}, []string{"x"}), []string{kindTools, kindResources, kindPrompts}},
	} {
		if diff := cmp.Diff(test.want, test.b.changes(test.a)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}

// oddDefinitions are tools at which the SDK's AddTool panics, with the end of the
// name of the member that it doesn't like.
var oddDefinitions = []string{
	`{"name":"no_schema"}`,
	`{"name":"null_schema","inputSchema":null}`,
	`{"name":"true_schema","inputSchema":true}`,
	`{"name":"no_type","inputSchema":{}}`,
	`{"name":"two_types","inputSchema":{"type":["object","null"]}}`,
	`{"name":"reference","inputSchema":{"$ref":"#/$defs/a","$defs":{"a":{"type":"object"}}}}`,
	`{"name":"bad_output","inputSchema":{"type":"object"},"outputSchema":7}`,
	`{"name":"bad_header","inputSchema":{"type":"object","properties":{"a":{"type":"object","x-mcp-header":"a b"}}}}`,
	`{"name":"bad name \u0000","inputSchema":{"type":"object"}}`,
}

// Tools that the SDK would panic at are listed as they are; those that the
// protocol forbids to use are left out, and so is what isn't a tool.
func TestOddToolsAreListed(t *testing.T) {
	t.Parallel()
	const good = `{"name":"good","inputSchema":{"type":"object"}}`
	junk := []string{`7`, `null`, `[]`, `{}`, `{"name":7}`, `{"name":""}`, `{"name":"a","name":"b"}`, `{"name":"deep","x":` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + `}`}
	listed := `{"tools":[` + strings.Join(slices.Concat(oddDefinitions, junk, []string{good}), ",") + `]}`
	server := newTestServer(modern)
	server.AddReceivingMiddleware(func(next sdk.MethodHandler) sdk.MethodHandler {
		return answerRaw(next, methodListTools, listed)
	})
	f := startAll(t, Server{Name: "one", URL: serveHTTP(t, server, modern).URL})
	var got []string
	for _, tool := range f.catalog().tools {
		got = append(got, string(tool.shown))
	}
	want := slices.DeleteFunc(slices.Concat(oddDefinitions, []string{good}), func(d string) bool { return strings.Contains(d, "bad_header") })
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if n := f.logs.count("leaving out a tool"); n != len(junk)+1 {
		t.Errorf("%d of %d are said to be left out", n, len(junk)+1)
	}
}

func TestHints(t *testing.T) {
	t.Parallel()
	yes, no := true, false
	for definition, want := range map[string]policy.Hints{
		`{"name":"a"}`:                    {},
		`{"name":"a","annotations":null}`: {},
		`{"name":"a","annotations":7}`:    {},
		`{"name":"a","annotations":{"readOnlyHint":true,"destructiveHint":false,"idempotentHint":true,"openWorldHint":false}}`: {ReadOnly: &yes, Destructive: &no, Idempotent: &yes, OpenWorld: &no},
		`{"name":"a","annotations":{"readOnlyHint":"true","destructiveHint":null,"ReadOnlyHint":true,"openWorldHint":true}}`:   {OpenWorld: &yes},
	} {
		tools := toolsOf(Server{Name: "a"}, []json.RawMessage{json.RawMessage(definition)}, newLogs().logger())
		if len(tools) != 1 {
			t.Fatalf("%s isn't listed", definition)
		}
		if diff := cmp.Diff(want, tools[0].hints); diff != "" {
			t.Errorf("%s (-want +got):\n%s", definition, diff)
		}
	}
}
