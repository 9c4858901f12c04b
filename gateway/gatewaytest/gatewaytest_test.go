package gatewaytest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"

	"github.com/countersign/countersign/gateway/gatewaytest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 30 * time.Second

// eachEverything runs a test with the everything server on each transport.
func eachEverything(t *testing.T, test func(t *testing.T, transport sdk.Transport)) {
	t.Helper()
	t.Run("stdio", func(t *testing.T) {
		t.Parallel()
		test(t, gatewaytest.Everything(t).Transport())
	})
	t.Run("http", func(t *testing.T) {
		t.Parallel()
		address, _ := gatewaytest.EverythingHTTP(t)
		test(t, &sdk.StreamableClientTransport{Endpoint: address})
	})
}

// connect connects the SDK's client. Without options it declares nothing.
func connect(t *testing.T, transport sdk.Transport, options *sdk.ClientOptions) *sdk.ClientSession {
	t.Helper()
	if options == nil {
		options = new(sdk.ClientOptions)
	}
	if options.Capabilities == nil {
		options.Capabilities = new(sdk.ClientCapabilities)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	session, err := sdk.NewClient(&sdk.Implementation{Name: "gatewaytest", Version: "1"}, options).Connect(ctx, transport, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := session.Close(); err != nil {
			t.Errorf("closing: %v", err)
		}
	})
	return session
}

// call calls a tool and returns its result in JSON.
func call(t *testing.T, session *sdk.ClientSession, tool, arguments string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	result, err := session.CallTool(ctx, &sdk.CallToolParams{Name: tool, Arguments: json.RawMessage(arguments)})
	if err != nil {
		t.Fatalf("%s: %v", tool, err)
	}
	return encode(t, result)
}

func encode(t *testing.T, value any) string {
	t.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// has checks that a result contains a text.
func has(t *testing.T, what, result, text string) {
	t.Helper()
	if !strings.Contains(result, text) {
		t.Errorf("%s: got %s, want %s in it", what, result, text)
	}
}

// hints says of a tool what its annotations say.
func hints(tool *sdk.Tool) string {
	said := tool.Annotations
	switch {
	case said == nil:
		return "nothing"
	case said.ReadOnlyHint:
		return "reads"
	case said.DestructiveHint == nil:
		return "changes"
	case *said.DestructiveHint:
		return "destroys"
	default:
		return "adds"
	}
}

// What a policy or another test relies on: the tools with what they say of
// themselves, and the rest that is listed.
func TestListed(t *testing.T) {
	t.Parallel()
	everything := map[string]string{
		"echo": "reads", "get-annotated-message": "reads", "get-env": "reads", "get-resource-links": "reads",
		"get-resource-reference": "reads", "get-structured-content": "reads", "get-sum": "reads", "get-tiny-image": "reads",
		"gzip-file-as-resource": "adds", "simulate-research-query": "adds", "toggle-simulated-logging": "adds",
		"toggle-subscriber-updates": "adds", "trigger-long-running-operation": "reads",
	}
	prompts := []string{"simple-prompt", "args-prompt", "completable-prompt", "resource-prompt"}
	for _, test := range []struct {
		name      string
		transport func(*testing.T) sdk.Transport
		tools     map[string]string
		resources int
		templates int
		prompts   []string
	}{
		{"filesystem", func(t *testing.T) sdk.Transport { return gatewaytest.Filesystem(t, t.TempDir()).Transport() }, map[string]string{
			"read_file": "reads", "read_text_file": "reads", "read_media_file": "reads", "read_multiple_files": "reads",
			"write_file": "destroys", "edit_file": "destroys", "create_directory": "adds", "list_directory": "reads",
			"list_directory_with_sizes": "reads", "directory_tree": "reads", "move_file": "destroys", "search_files": "reads",
			"get_file_info": "reads", "list_allowed_directories": "reads",
		}, 0, 0, nil},
		{"memory", func(t *testing.T) sdk.Transport {
			return gatewaytest.Memory(t, filepath.Join(t.TempDir(), "memory")).Transport()
		}, map[string]string{
			"create_entities": "adds", "create_relations": "adds", "add_observations": "adds",
			"delete_entities": "destroys", "delete_observations": "destroys", "delete_relations": "destroys",
			"read_graph": "reads", "search_nodes": "reads", "open_nodes": "reads",
		}, 1, 0, nil},
		{"everything", func(t *testing.T) sdk.Transport { return gatewaytest.Everything(t).Transport() }, everything, 7, 2, prompts},
		{"everything over HTTP", func(t *testing.T) sdk.Transport {
			address, _ := gatewaytest.EverythingHTTP(t)
			return &sdk.StreamableClientTransport{Endpoint: address}
		}, everything, 7, 2, prompts},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			session := connect(t, test.transport(t), nil)
			if version := session.InitializeResult().ProtocolVersion; version != "2025-11-25" {
				t.Errorf("speaks %s", version)
			}
			got := make(map[string]string)
			server := sdk.NewServer(&sdk.Implementation{Name: "gatewaytest", Version: "1"}, nil)
			for tool, err := range session.Tools(t.Context(), nil) {
				if err != nil {
					t.Fatal(err)
				}
				got[tool.Name] = hints(tool)
				server.AddTool(tool, nil) // which panics at a schema that it doesn't take
			}
			if diff := cmp.Diff(test.tools, got); diff != "" {
				t.Errorf("tools (-want +got):\n%s", diff)
			}
			if test.resources > 0 {
				resources, err := session.ListResources(t.Context(), nil)
				if err != nil || len(resources.Resources) != test.resources {
					t.Errorf("resources: %s (%v)", encode(t, resources), err)
				}
				templates, err := session.ListResourceTemplates(t.Context(), nil)
				if err != nil || len(templates.ResourceTemplates) != test.templates {
					t.Errorf("templates: %s (%v)", encode(t, templates), err)
				}
			}
			if test.prompts != nil {
				listed, err := session.ListPrompts(t.Context(), nil)
				if err != nil {
					t.Fatal(err)
				}
				var names []string
				for _, prompt := range listed.Prompts {
					names = append(names, prompt.Name)
				}
				if diff := cmp.Diff(test.prompts, names); diff != "" {
					t.Errorf("prompts (-want +got):\n%s", diff)
				}
			}
		})
	}
}

func TestFilesystem(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	session := connect(t, gatewaytest.Filesystem(t, folder).Transport(), nil)
	one, two := filepath.Join(folder, "one.txt"), filepath.Join(folder, "two.txt")
	has(t, "writing", call(t, session, "write_file", fmt.Sprintf(`{"path":%q,"content":"1\n2\n"}`, one)), "Successfully wrote")
	has(t, "reading", call(t, session, "read_text_file", fmt.Sprintf(`{"path":%q,"head":1}`, one)), `"structuredContent":{"content":"1"}`)
	has(t, "editing", call(t, session, "edit_file", fmt.Sprintf(`{"path":%q,"edits":[{"oldText":"2","newText":"3"}]}`, one)), "+3")
	has(t, "moving", call(t, session, "move_file", fmt.Sprintf(`{"source":%q,"destination":%q}`, one, two)), "Successfully moved")
	has(t, "moving it again", call(t, session, "move_file", fmt.Sprintf(`{"source":%q,"destination":%q}`, one, two)), `"isError":true`)
	has(t, "listing", call(t, session, "list_directory", fmt.Sprintf(`{"path":%q}`, folder)), `"[FILE] two.txt"`)
	has(t, "reading outside", call(t, session, "read_text_file", fmt.Sprintf(`{"path":%q}`, filepath.Join(folder, "..", "x"))), "Access denied")
	if content, err := os.ReadFile(two); err != nil || string(content) != "1\n3\n" {
		t.Errorf("the file has %q (%v)", content, err)
	}
	if _, err := os.Stat(one); !os.IsNotExist(err) {
		t.Errorf("the moved file is still there: %v", err)
	}
}

func TestMemory(t *testing.T) {
	t.Parallel()
	const graph = "memory://knowledge-graph"
	file := filepath.Join(t.TempDir(), "memory")
	updated := make(chan string, 10)
	session := connect(t, gatewaytest.Memory(t, file).Transport(), &sdk.ClientOptions{
		ResourceUpdatedHandler: func(_ context.Context, r *sdk.ResourceUpdatedNotificationRequest) { updated <- r.Params.URI },
	})
	if err := session.Subscribe(t.Context(), &sdk.SubscribeParams{URI: graph}); err != nil {
		t.Fatal(err)
	}
	has(t, "creating", call(t, session, "create_entities", `{"entities":[{"name":"Ada","entityType":"person","observations":["owes 10"]},{"name":"Bob","entityType":"person","observations":[]}]}`), `"name":"Ada"`)
	select {
	case uri := <-updated:
		if uri != graph {
			t.Errorf("%s was updated", uri)
		}
	case <-time.After(patience):
		t.Error("nobody is told of the update")
	}
	has(t, "searching", call(t, session, "search_nodes", `{"query":"owes"}`), `"entities":[{"entityType":"person","name":"Ada","observations":["owes 10"]}]`)
	has(t, "deleting", call(t, session, "delete_entities", `{"entityNames":["Ada"]}`), `"success":true`)
	content, err := os.ReadFile(file)
	if want := `{"type":"entity","name":"Bob","entityType":"person","observations":[]}`; err != nil || string(content) != want {
		t.Errorf("the file has %q (%v), want %s", content, err, want)
	}
	read, err := session.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: graph})
	if err != nil || len(read.Contents) != 1 || !strings.Contains(read.Contents[0].Text, `"Bob"`) || strings.Contains(read.Contents[0].Text, `"Ada"`) {
		t.Errorf("the resource has %s (%v)", encode(t, read), err)
	}
}

func TestEverything(t *testing.T) {
	t.Parallel()
	eachEverything(t, func(t *testing.T, transport sdk.Transport) {
		progress := make(chan float64, 10)
		session := connect(t, transport, &sdk.ClientOptions{
			ProgressNotificationHandler: func(_ context.Context, r *sdk.ProgressNotificationClientRequest) { progress <- r.Params.Progress },
		})
		for _, test := range []struct{ tool, arguments, want string }{
			{"echo", `{"message":"é"}`, `"text":"Echo: é"`},
			{"get-sum", `{"a":0.1,"b":0.2}`, `is 0.30000000000000004.`},
			{"get-sum", `{"a":"1"}`, `"isError":true`},
			{"get-structured-content", `{"location":"Chicago"}`, `"structuredContent":{"conditions":"Light rain / drizzle","humidity":82,"temperature":36}`},
			{"get-annotated-message", `{"messageType":"success"}`, `"annotations":{"audience":["user"],"priority":0.7}`},
			{"get-tiny-image", `{}`, `"mimeType":"image/png"`},
			{"get-resource-links", `{"count":1}`, `"type":"resource_link"`},
			{"gzip-file-as-resource", `{"name":"a.gz","data":"data:text/plain,hello","outputType":"resource"}`, `"blob":"H4sI`},
			{"none", `{}`, "Tool none not found"},
		} {
			has(t, test.tool, call(t, session, test.tool, test.arguments), test.want)
		}

		params := &sdk.CallToolParams{Name: "trigger-long-running-operation", Arguments: json.RawMessage(`{"duration":0.05,"steps":5}`)}
		params.SetProgressToken("p")
		if _, err := session.CallTool(t.Context(), params); err != nil {
			t.Fatal(err)
		}
		for want := 1.0; want <= 5; want++ {
			select {
			case got := <-progress:
				if got != want {
					t.Errorf("got progress %v, want %v", got, want)
				}
			case <-time.After(patience):
				t.Fatalf("no progress %v", want)
			}
		}

		read, err := session.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: "demo://resource/static/document/features.md"})
		if err != nil || len(read.Contents) != 1 || read.Contents[0].Text == "" {
			t.Errorf("the document: %s (%v)", encode(t, read), err)
		}
		if read, err = session.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: "demo://resource/dynamic/text/7"}); err != nil || !strings.HasPrefix(read.Contents[0].Text, "Resource 7: ") {
			t.Errorf("the resource: %s (%v)", encode(t, read), err)
		}
		prompt, err := session.GetPrompt(t.Context(), &sdk.GetPromptParams{Name: "args-prompt", Arguments: map[string]string{"city": "Bern"}})
		if err != nil {
			t.Fatal(err)
		}
		has(t, "the prompt", encode(t, prompt), "weather in Bern")
		completed, err := session.Complete(t.Context(), &sdk.CompleteParams{
			Ref:      &sdk.CompleteReference{Type: "ref/prompt", Name: "completable-prompt"},
			Argument: sdk.CompleteParamsArgument{Name: "department", Value: "E"},
		})
		if err != nil {
			t.Fatal(err)
		}
		has(t, "the completion", encode(t, completed), `"values":["Engineering"]`)
	})
}

// What the server asks of a client that can be asked, and the tools that it
// offers only then.
func TestEverythingAsks(t *testing.T) {
	t.Parallel()
	eachEverything(t, func(t *testing.T, transport sdk.Transport) {
		changed := make(chan struct{}, 10)
		session := connect(t, transport, &sdk.ClientOptions{
			ToolListChangedHandler: func(context.Context, *sdk.ToolListChangedRequest) {
				select {
				case changed <- struct{}{}:
				default:
				}
			},
			ElicitationHandler: func(_ context.Context, r *sdk.ElicitRequest) (*sdk.ElicitResult, error) {
				if r.Params.Mode == "url" {
					return &sdk.ElicitResult{Action: "decline"}, nil
				}
				return &sdk.ElicitResult{Action: "accept", Content: map[string]any{"name": "Ada"}}, nil
			},
			Capabilities: &sdk.ClientCapabilities{Elicitation: &sdk.ElicitationCapabilities{
				Form: new(sdk.FormElicitationCapabilities), URL: new(sdk.URLElicitationCapabilities),
			}},
		})
		// Over HTTP they are told before the client listens.
		if _, http := transport.(*sdk.StreamableClientTransport); !http {
			select {
			case <-changed:
			case <-time.After(patience):
				t.Error("nobody is told of the tools that were added")
			}
		}
		has(t, "asking", call(t, session, "trigger-elicitation-request", `{}`), "Name: Ada")
		has(t, "asking to open an address", call(t, session, "trigger-url-elicitation", `{"url":"https://example.com/"}`), "declined")
	})
}

func TestDirect(t *testing.T) {
	t.Parallel()
	d := gatewaytest.Everything(t).Connect(t, `{"elicitation":{}}`)
	if got, want := string(d.Call(t, "get-structured-content", `{"location":"New York"}`)),
		`{"content":[{"type":"text","text":"{\"temperature\":33,\"conditions\":\"Cloudy\",\"humidity\":82}"}],"structuredContent":{"temperature":33,"conditions":"Cloudy","humidity":82}}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	result, refusal := d.Request(t, "resources/read", `{"uri":"demo://none"}`)
	if result != nil || !strings.Contains(string(refusal), `"code":-32602`) {
		t.Errorf("got %s, %s", result, refusal)
	}
	listed, _ := d.Request(t, "tools/list", `{}`)
	has(t, "the tools", string(listed), `"execution":{"taskSupport":"required"}`)
	has(t, "the tools", string(listed), `"name":"trigger-elicitation-request"`)
	environment := string(d.Call(t, "get-env", `{}`))
	has(t, "the environment", environment, `\"PATH\"`)
	if strings.Contains(environment, `\"HOME\"`) {
		t.Errorf("the program got more of the environment than it needs: %s", environment)
	}
}

// A server that was stopped isn't there any more, and can be stopped again.
func TestEverythingHTTPStops(t *testing.T) {
	t.Parallel()
	address, stop := gatewaytest.EverythingHTTP(t)
	stop()
	stop()
	client := sdk.NewClient(&sdk.Implementation{Name: "gatewaytest", Version: "1"}, nil)
	if session, err := client.Connect(t.Context(), &sdk.StreamableClientTransport{Endpoint: address, MaxRetries: -1}, nil); err == nil {
		session.Close()
		t.Error("connected to a server that was stopped")
	}
}
