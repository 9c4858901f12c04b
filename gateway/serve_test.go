package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/approval/approvaltest"
)

// What downstream servers offer is served beside the gateway's own tools.
func TestListsAreServed(t *testing.T) {
	t.Parallel()
	everyDoor(t, worldOptions{servers: []string{"free"}}, func(t *testing.T, w *world, reach func(*sdk.ClientOptions) *sdk.ClientSession) {
		session := reach(nil)
		tools, err := session.ListTools(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, tool := range tools.Tools {
			names = append(names, tool.Name)
		}
		want := []string{"await_approval", "await_result", "check_status", "ask", "count", "crash", "echo", "environment", "exotic", "fail", "grow", "input", "wait"}
		slices.Sort(want[3:])
		if diff := cmp.Diff(want, names); diff != "" {
			t.Errorf("tools (-want +got):\n%s", diff)
		}
		resources, err := session.ListResources(t.Context(), nil)
		if err != nil || len(resources.Resources) != 1 || resources.Resources[0].URI != "test://one" {
			t.Errorf("resources: %+v (%v)", resources, err)
		}
		templates, err := session.ListResourceTemplates(t.Context(), nil)
		if err != nil || len(templates.ResourceTemplates) != 1 {
			t.Errorf("templates: %+v (%v)", templates, err)
		}
		prompts, err := session.ListPrompts(t.Context(), nil)
		if err != nil || len(prompts.Prompts) != 1 || prompts.Prompts[0].Name != "greet" {
			t.Errorf("prompts: %+v (%v)", prompts, err)
		}
		read, err := session.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: "test://by/7"})
		if err != nil || read.Contents[0].Text != "by" {
			t.Errorf("reading: %+v (%v)", read, err)
		}
		prompt, err := session.GetPrompt(t.Context(), &sdk.GetPromptParams{Name: "greet", Arguments: map[string]string{"name": "Ada"}})
		if err != nil || prompt.Messages[0].Content.(*sdk.TextContent).Text != "Hello, Ada" {
			t.Errorf("prompting: %+v (%v)", prompt, err)
		}
		completed, err := session.Complete(t.Context(), &sdk.CompleteParams{
			Ref: &sdk.CompleteReference{Type: "ref/prompt", Name: "greet"}, Argument: sdk.CompleteParamsArgument{Name: "name", Value: "o"},
		})
		if err != nil || len(completed.Completion.Values) != 1 {
			t.Errorf("completing: %+v (%v)", completed, err)
		}
		for what, err := range map[string]error{
			"reading":   second(session.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: "other://x"})),
			"prompting": second(session.GetPrompt(t.Context(), &sdk.GetPromptParams{Name: "other"})),
			"calling":   second(session.CallTool(t.Context(), &sdk.CallToolParams{Name: "other"})),
			"marking":   second(session.CallTool(t.Context(), &sdk.CallToolParams{Name: marker})),
			"asking":    second(session.CallTool(t.Context(), &sdk.CallToolParams{Name: "request_approval"})),
		} {
			if err == nil {
				t.Errorf("%s what there isn't succeeds", what)
			}
		}
		if len(w.all(t)) != 0 {
			t.Error("reading was gated")
		}
	})
}

func second[T any](_ T, err error) error { return err }

// Definitions are listed as the server wrote them, under the agent's protocol.
func TestDefinitionsAreServedAsWritten(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{servers: []string{"free", "hard"}})
	d := w.listen(t)
	for _, version := range []string{legacy, modern} {
		listed, err := d.byHand(t, "deployer", version, "{}").rpc(methodListTools, "{}", "")
		if err != nil {
			t.Fatal(err)
		}
		for _, tool := range w.gateway.downstreams.catalog().tools {
			if !strings.Contains(string(listed), string(tool.shown)) {
				t.Errorf("%s: %s isn't listed as %s", version, tool.exposed, tool.shown)
			}
		}
		if !strings.Contains(string(listed), `"free__echo"`) || !strings.Contains(string(listed), `"hard__echo"`) || strings.Contains(string(listed), `"name":"echo"`) {
			t.Errorf("%s: clashing names aren't prefixed: %s", version, listed)
		}
		for _, part := range []string{`"resultType":"complete"`, `"cacheScope":"private"`, `"ttlMs":0`, `"name":"countersign"`} {
			if got := strings.Contains(string(listed), part); got != (version == modern) {
				t.Errorf("%s: %s is there: %v", version, part, got)
			}
		}
	}
}

// Clients are told when a list changes.
func TestChangesAreAnnounced(t *testing.T) {
	t.Parallel()
	everyDoor(t, worldOptions{servers: []string{"free"}}, func(t *testing.T, w *world, reach func(*sdk.ClientOptions) *sdk.ClientSession) {
		changed := make(chan string, 100)
		session := reach(&sdk.ClientOptions{
			ToolListChangedHandler:     func(context.Context, *sdk.ToolListChangedRequest) { changed <- kindTools },
			ResourceListChangedHandler: func(context.Context, *sdk.ResourceListChangedRequest) { changed <- kindResources },
			PromptListChangedHandler:   func(context.Context, *sdk.PromptListChangedRequest) { changed <- kindPrompts },
		})
		for kind, change := range map[string]func(){
			kindTools: func() { ask(t, session, "grow", "{}") },
			kindResources: func() {
				w.downstream.AddResource(&sdk.Resource{URI: "test://two", Name: "two"}, nil)
			},
			kindPrompts: func() { w.downstream.AddPrompt(&sdk.Prompt{Name: "again"}, nil) },
		} {
			change()
			for got := receive(t, changed); got != kind; got = receive(t, changed) {
			}
		}
		tools, err := session.ListTools(t.Context(), nil)
		if err != nil || !slices.ContainsFunc(tools.Tools, func(tool *sdk.Tool) bool { return tool.Name == "grown" }) {
			t.Errorf("the new tool isn't listed (%v)", err)
		}
		if got := firstText(t, ask(t, session, "grown", `{"a":1}`)); got != `{"a":1}` {
			t.Errorf("the new tool says %s", got)
		}
	})
}

// Arguments and results pass value for value, digit for digit, in their order.
func TestCallsPassAsWritten(t *testing.T) {
	t.Parallel()
	for _, downstream := range []string{legacy, modern} {
		for _, version := range []string{legacy, modern} {
			t.Run(version+" to "+downstream, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, worldOptions{servers: []string{"free"}, version: downstream})
				h := w.listen(t).byHand(t, "deployer", version, "{}")
				arguments := exoticObject
				if downstream == modern {
					arguments = strings.Replace(arguments, "1e400", "1e300", 1) // see TestArgumentsArriveAsWritten
				}
				result := h.must("echo", arguments, "")
				if got := texts(t, string(result))[0]; got != arguments {
					t.Errorf("arrived as\n%s, want\n%s", got, arguments)
				}
				result = h.must("exotic", "{}", "")
				for _, part := range []string{
					`"structuredContent":` + exoticObject,
					`"content":[{"type":"hologram","depth":1e400,"a":0},{"text":"t","type":"text"}]`,
					`"zz":12345678901234567890`,
					`"b":1.50,"a":{"z":1,"y":2}`,
				} {
					if !strings.Contains(string(result), part) {
						t.Errorf("%s isn't in %s", part, result)
					}
				}
				if got := strings.Contains(string(result), resultTypeName); got != (version == modern) {
					t.Errorf("resultType is there: %v in %s", got, result)
				}
			})
		}
	}
}

// keyed are arguments as they arrive of a call of the policy's hard tools, which
// take an idempotency key.
func keyed(arguments string, r *approval.Request) string {
	comma := ","
	if arguments == "{}" {
		comma = ""
	}
	return strings.TrimSuffix(arguments, "}") + comma + `"key":"` + string(r.ID) + `"}`
}

// The gateway's arguments may have numbers that the SDK can't read.
func TestEveryNumberArrives(t *testing.T) {
	t.Parallel()
	for _, version := range []string{legacy, modern} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, worldOptions{servers: []string{"hard"}, version: legacy})
			h := w.listen(t).byHand(t, "deployer", version, "{}")
			const arguments = `{"n":1e400,"m":-1E+999,"z":123456789012345678901234567890.10,"s":"1e400 \" 1e400"}`
			h.must("echo", arguments, "")
			r := w.only(t)
			if string(r.Payload) != arguments {
				t.Fatalf("frozen as %s", r.Payload)
			}
			w.Decide(t, approvaltest.Alice, r, approval.Approve)
			result := h.must("await_result", fmt.Sprintf(`{"requestId":%q}`, r.ID), "")
			if got := texts(t, string(result))[0]; got != keyed(arguments, r) {
				t.Errorf("ran with %s", got)
			}
		})
	}
}

// Arguments that are in headers too are compared with them, and both reach the
// server behind.
func TestParameterHeaders(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{servers: []string{"free"}, prepare: func(s *testServer) {
		s.AddTool(&sdk.Tool{Name: "regional", InputSchema: json.RawMessage(`{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"}}}`)}, s.echo)
	}})
	d := w.listen(t)
	session := connect(t, d.transport(t, w.Agent.Name), modern, nil)
	if _, err := session.ListTools(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if got := firstText(t, ask(t, session, "regional", `{"region":"eu","n":9007199254740993}`)); got != `{"region":"eu","n":9007199254740993}` {
		t.Errorf("arrived as %s", got)
	}
	h := d.byHand(t, w.Agent.Name, modern, "{}")
	if _, err := h.tool("regional", `{"region":"us"}`, ""); err == nil || !strings.Contains(err.Error(), "Region") {
		t.Errorf("an argument without its header: %v", err)
	}
	w.requireCalls(t, arrived{"regional", `{"region":"eu","n":9007199254740993}`})
}

// Of messages in a batch, which one old version of the protocol has, each call
// gets its own arguments.
func TestBatch(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{servers: []string{"free"}})
	h := w.listen(t).byHand(t, w.Agent.Name, "2025-03-26", "{}")
	call := func(id int, arguments string) string {
		return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"echo","arguments":%s}}`, id, arguments)
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, h.url, strings.NewReader("["+call(70, `{"n":9007199254740993}`)+","+call(71, `{"n":0.10}`)+"]"))
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{
		"Content-Type": "application/json", "Accept": "application/json, text/event-stream",
		"Mcp-Protocol-Version": h.version, "Mcp-Session-Id": h.session,
	} {
		request.Header.Set(name, value)
	}
	response, err := h.client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	requireText(t, string(body), `"id":70`, `"id":71`, `{\"n\":9007199254740993}`, `{\"n\":0.10}`)
}

// What isn't passed on is refused, and isn't promised.
func TestSubscribing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{servers: []string{"free"}})
	session := connect(t, w.stdio(t), legacy, nil)
	if session.InitializeResult().Capabilities.Resources.Subscribe {
		t.Error("it is promised")
	}
	if err := session.Subscribe(t.Context(), &sdk.SubscribeParams{URI: "test://one"}); err == nil {
		t.Error("it isn't refused")
	}
}
