//lint:file-ignore SA1019 the suite checks what older protocol versions have.

package mcp_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// What the conformance suite's scenarios call by fixed names. None of it is in
// the product: it is added to the product's server for the suite only.

// newConformanceServer is a server with the features that the scenarios need
// and the product hasn't.
func newConformanceServer() *sdk.Server {
	over := sdk.NewServer(&sdk.Implementation{Name: "countersign", Version: "test"}, &sdk.ServerOptions{
		CompletionHandler: func(context.Context, *sdk.CompleteRequest) (*sdk.CompleteResult, error) {
			return &sdk.CompleteResult{Completion: sdk.CompletionResultDetails{Values: []string{}}}, nil
		},
		SubscribeHandler:   func(context.Context, *sdk.SubscribeRequest) error { return nil },
		UnsubscribeHandler: func(context.Context, *sdk.UnsubscribeRequest) error { return nil },
	})
	addContentTools(over)
	addSessionTools(over)
	addRoundTripTools(over)
	addResources(over)
	addPrompts(over)
	return over
}

var (
	// The smallest PNG that decoders take, and a WAV without samples.
	onePixel = []byte("\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x01\x00\x00\x00\x01\x08\x00\x00\x00\x00:~\x9bU\x00\x00\x00\nIDATx\x9cc`\x00\x00\x00\x02\x00\x01H\xaf\xa4q\x00\x00\x00\x00IEND\xaeB`\x82")
	silence  = []byte("RIFF$\x00\x00\x00WAVEfmt \x10\x00\x00\x00\x01\x00\x01\x00\x40\x1f\x00\x00\x40\x1f\x00\x00\x01\x00\x08\x00data\x00\x00\x00\x00")

	anyObject = json.RawMessage(`{"type":"object"}`)
)

type toolHandler = func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error)

func addTestTool(to *sdk.Server, name string, schema json.RawMessage, handler toolHandler) {
	to.AddTool(&sdk.Tool{Name: name, Description: "For the conformance suite.", InputSchema: schema}, handler)
}

// always is a tool that answers with the content.
func always(content ...sdk.Content) toolHandler {
	return func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		return &sdk.CallToolResult{Content: content}, nil
	}
}

func says(format string, args ...any) *sdk.CallToolResult {
	return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: fmt.Sprintf(format, args...)}}}
}

func embedded(uri string) sdk.Content {
	return &sdk.EmbeddedResource{Resource: &sdk.ResourceContents{URI: uri, MIMEType: "text/plain", Text: "An embedded text"}}
}

func addContentTools(to *sdk.Server) {
	image := &sdk.ImageContent{Data: onePixel, MIMEType: "image/png"}
	addTestTool(to, "test_simple_text", anyObject, always(&sdk.TextContent{Text: "This is a simple text response for testing."}))
	addTestTool(to, "test_image_content", anyObject, always(image))
	addTestTool(to, "test_audio_content", anyObject, always(&sdk.AudioContent{Data: silence, MIMEType: "audio/wav"}))
	addTestTool(to, "test_embedded_resource", anyObject, always(embedded("test://embedded-resource")))
	addTestTool(to, "test_multiple_content_types", anyObject, always(&sdk.TextContent{Text: "Several kinds"}, image, embedded("test://embedded-in-multiple")))
	addTestTool(to, "test_streaming_elicitation", anyObject, always(&sdk.TextContent{Text: "Nothing was asked on the way"}))
	addTestTool(to, "test_error_handling", anyObject, func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		result := new(sdk.CallToolResult)
		result.SetError(errors.New("this tool fails for the test"))
		return result, nil
	})
	addTestTool(to, "json_schema_2020_12_tool", json.RawMessage(`{
		"$schema": "https://json-schema.org/draft/2020-12/schema",
		"type": "object",
		"$defs": {"address": {"$anchor": "addressDef", "type": "object", "properties": {"street": {"type": "string"}, "city": {"type": "string"}}}},
		"properties": {
			"name": {"type": "string"},
			"address": {"$ref": "#/$defs/address"},
			"contactMethod": {"type": "string", "enum": ["phone", "email"]},
			"phone": {"type": "string"},
			"email": {"type": "string"}
		},
		"allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
		"if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
		"then": {"required": ["phone"]},
		"else": {"required": ["email"]},
		"additionalProperties": false
	}`), always(&sdk.TextContent{Text: "called"}))
	addTestTool(to, "test_x_mcp_header", json.RawMessage(`{"type":"object","properties":{
		"region": {"type": "string", "x-mcp-header": "Region"},
		"level": {"type": "integer"}
	}}`), always(&sdk.TextContent{Text: "called"}))
}

// addSessionTools adds tools that talk to the client while they run.
func addSessionTools(to *sdk.Server) {
	addTestTool(to, "test_tool_with_logging", anyObject, func(ctx context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		for _, line := range []string{"begun", "under way", "done"} {
			if err := r.Session.Log(ctx, &sdk.LoggingMessageParams{Level: "info", Data: line}); err != nil {
				return nil, err
			}
		}
		return says("logged"), nil
	})
	addTestTool(to, "test_logging_tool", anyObject, func(ctx context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		return says("tried to log"), r.Session.Log(ctx, &sdk.LoggingMessageParams{Level: "info", Data: "a line"})
	})
	addTestTool(to, "test_tool_with_progress", anyObject, func(ctx context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		for _, progress := range []float64{0, 50, 100} {
			err := r.Session.NotifyProgress(ctx, &sdk.ProgressNotificationParams{ProgressToken: r.Params.GetProgressToken(), Progress: progress, Total: 100})
			if err != nil {
				return nil, err
			}
		}
		return says("%v", r.Params.GetProgressToken()), nil
	})
	addTestTool(to, "test_sampling", anyObject, func(ctx context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		result, err := r.Session.CreateMessage(ctx, &sdk.CreateMessageParams{Messages: question(stringIn(r, "prompt")), MaxTokens: 100})
		if err != nil {
			return nil, err
		}
		text, _ := result.Content.(*sdk.TextContent)
		return says("LLM response: %s", text.Text), nil
	})
	asks := func(name string, message func(*sdk.CallToolRequest) string, schema string) {
		addTestTool(to, name, anyObject, func(ctx context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
			result, err := r.Session.Elicit(ctx, &sdk.ElicitParams{Message: message(r), RequestedSchema: json.RawMessage(schema)})
			if err != nil {
				return nil, err
			}
			return says("Elicitation completed: action=%s, content=%v", result.Action, result.Content), nil
		})
	}
	fixed := func(*sdk.CallToolRequest) string { return "Please fill in" }
	asks("test_elicitation", func(r *sdk.CallToolRequest) string { return stringIn(r, "message") },
		`{"type":"object","properties":{"username":{"type":"string"}},"required":["username"]}`)
	asks("test_elicitation_sep1034_defaults", fixed, `{"type":"object","properties":{
		"name": {"type": "string", "default": "John Doe"},
		"age": {"type": "integer", "default": 30},
		"score": {"type": "number", "default": 95.5},
		"status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
		"verified": {"type": "boolean", "default": true}
	}}`)
	asks("test_elicitation_sep1330_enums", fixed, `{"type":"object","properties":{
		"untitledSingle": {"type": "string", "enum": ["option1", "option2", "option3"]},
		"titledSingle": {"type": "string", "oneOf": [{"const": "value1", "title": "One"}, {"const": "value2", "title": "Two"}, {"const": "value3", "title": "Three"}]},
		"legacyEnum": {"type": "string", "enum": ["opt1", "opt2", "opt3"], "enumNames": ["One", "Two", "Three"]},
		"untitledMulti": {"type": "array", "minItems": 1, "maxItems": 3, "items": {"type": "string", "enum": ["option1", "option2", "option3"]}},
		"titledMulti": {"type": "array", "minItems": 1, "maxItems": 3, "items": {"anyOf": [{"const": "value1", "title": "One"}, {"const": "value2", "title": "Two"}, {"const": "value3", "title": "Three"}]}}
	}}`)
	addTestTool(to, "test_reconnection", anyObject, func(_ context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		r.Extra.CloseSSEStream(sdk.CloseSSEStreamArgs{RetryAfter: 10 * time.Millisecond})
		return says("done without the stream"), nil
	})
	addTestTool(to, "test_missing_capability", anyObject, func(_ context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		if c := r.ClientCapabilities(); c != nil && c.Sampling != nil {
			return says("the client can sample"), nil
		}
		return nil, &jsonrpc.Error{
			Code:    sdk.CodeMissingRequiredClientCapabilities,
			Message: "the client can't sample",
			Data:    json.RawMessage(`{"requiredCapabilities":{"sampling":{}}}`),
		}
	})
	addTestTool(to, "test_trigger_tool_change", anyObject, func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		addTestTool(to, "test_changed", anyObject, always())
		return says("changed"), nil
	})
	addTestTool(to, "test_trigger_prompt_change", anyObject, func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		to.AddPrompt(&sdk.Prompt{Name: "test_changed", Description: "For the conformance suite."}, func(context.Context, *sdk.GetPromptRequest) (*sdk.GetPromptResult, error) {
			return new(sdk.GetPromptResult), nil
		})
		return says("changed"), nil
	})
}

func question(text string) []*sdk.SamplingMessage {
	return []*sdk.SamplingMessage{{Role: "user", Content: &sdk.TextContent{Text: text}}}
}

func stringIn(r *sdk.CallToolRequest, name string) string {
	var arguments map[string]string
	_ = json.Unmarshal(r.Params.Arguments, &arguments) // a missing one is empty
	return arguments[name]
}

// addRoundTripTools adds tools that ask in their result and are called again
// with the answers.
func addRoundTripTools(to *sdk.Server) {
	form := func(field, kind string) *sdk.ElicitParams {
		return &sdk.ElicitParams{Message: "Please fill in", RequestedSchema: json.RawMessage(
			`{"type":"object","properties":{"` + field + `":{"type":"` + kind + `"}},"required":["` + field + `"]}`)}
	}
	sample := func(prompt string) *sdk.CreateMessageParams {
		return &sdk.CreateMessageParams{Messages: question(prompt), MaxTokens: 100}
	}
	ask := func(state string, requests sdk.InputRequestMap) (*sdk.CallToolResult, error) {
		return &sdk.CallToolResult{InputRequests: requests, RequestState: state}, nil
	}
	tool := func(name string, handler func(p *sdk.CallToolParamsRaw, r *sdk.CallToolRequest) (*sdk.CallToolResult, error)) {
		addTestTool(to, "test_input_required_result_"+name, anyObject, func(_ context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
			return handler(r.Params, r)
		})
	}
	tool("elicitation", func(p *sdk.CallToolParamsRaw, _ *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		if name, _ := accepted(p.InputResponses, "user_name")["name"].(string); name != "" {
			return says("Hello, %s!", name), nil
		}
		return ask("", sdk.InputRequestMap{"user_name": form("name", "string")})
	})
	tool("sampling", func(p *sdk.CallToolParamsRaw, _ *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		if p.InputResponses["capital_question"] != nil {
			return says("sampled"), nil
		}
		return ask("", sdk.InputRequestMap{"capital_question": sample("What is the capital of France?")})
	})
	tool("list_roots", func(p *sdk.CallToolParamsRaw, _ *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		if roots, ok := p.InputResponses["client_roots"].(*sdk.ListRootsResult); ok {
			return says("%d roots", len(roots.Roots)), nil
		}
		return ask("", sdk.InputRequestMap{"client_roots": new(sdk.ListRootsParams)})
	})
	// The suite tampers with a state by adding to its end.
	const sealed = "sealed by the test"
	for _, name := range []string{"request_state", "tampered_state"} {
		tool(name, func(p *sdk.CallToolParamsRaw, _ *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
			switch {
			case p.RequestState == "":
				return ask(sealed, sdk.InputRequestMap{"confirm": form("ok", "boolean")})
			case p.RequestState != sealed:
				return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "the state is not what was sent"}
			default:
				return says("state-ok"), nil
			}
		})
	}
	tool("multiple_inputs", func(p *sdk.CallToolParamsRaw, _ *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		if len(p.InputResponses) == 3 {
			return says("all three"), nil
		}
		return ask(sealed, sdk.InputRequestMap{"user_name": form("name", "string"), "greeting": sample("Greet"), "client_roots": new(sdk.ListRootsParams)})
	})
	tool("multi_round", func(p *sdk.CallToolParamsRaw, _ *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		switch p.RequestState {
		case "":
			return ask("first", sdk.InputRequestMap{"step1": form("name", "string")})
		case "first":
			return ask("second", sdk.InputRequestMap{"step2": form("color", "string")})
		default:
			return says("both rounds"), nil
		}
	})
	tool("capabilities", func(p *sdk.CallToolParamsRaw, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		requests := make(sdk.InputRequestMap)
		if c := r.ClientCapabilities(); c != nil && len(p.InputResponses) == 0 {
			if c.Elicitation != nil {
				requests["user_name"] = form("name", "string")
			}
			if c.Sampling != nil {
				requests["greeting"] = sample("Greet")
			}
			if c.RootsV2 != nil {
				requests["client_roots"] = new(sdk.ListRootsParams)
			}
		}
		if len(requests) == 0 {
			return says("nothing to ask"), nil
		}
		return ask("", requests)
	})
}

// accepted is what a person filled in and sent; nil if they didn't.
func accepted(responses sdk.InputResponseMap, name string) map[string]any {
	if result, ok := responses[name].(*sdk.ElicitResult); ok && result.Action == "accept" {
		return result.Content
	}
	return nil
}

func addResources(to *sdk.Server) {
	read := func(content func(uri string) *sdk.ResourceContents) sdk.ResourceHandler {
		return func(_ context.Context, r *sdk.ReadResourceRequest) (*sdk.ReadResourceResult, error) {
			return &sdk.ReadResourceResult{Contents: []*sdk.ResourceContents{content(r.Params.URI)}}, nil
		}
	}
	text := read(func(uri string) *sdk.ResourceContents {
		return &sdk.ResourceContents{URI: uri, MIMEType: "text/plain", Text: "A text"}
	})
	to.AddResource(&sdk.Resource{Name: "text", MIMEType: "text/plain", URI: "test://static-text"}, text)
	to.AddResource(&sdk.Resource{Name: "watched", MIMEType: "text/plain", URI: "test://watched-resource"}, text)
	to.AddResource(&sdk.Resource{Name: "binary", MIMEType: "image/png", URI: "test://static-binary"}, read(func(uri string) *sdk.ResourceContents {
		return &sdk.ResourceContents{URI: uri, MIMEType: "image/png", Blob: onePixel}
	}))
	to.AddResourceTemplate(&sdk.ResourceTemplate{Name: "template", MIMEType: "application/json", URITemplate: "test://template/{id}/data"}, read(func(uri string) *sdk.ResourceContents {
		id := strings.TrimSuffix(strings.TrimPrefix(uri, "test://template/"), "/data")
		return &sdk.ResourceContents{URI: uri, MIMEType: "application/json", Text: fmt.Sprintf(`{"id":%q}`, id)}
	}))
}

func addPrompts(to *sdk.Server) {
	message := func(content sdk.Content) *sdk.PromptMessage {
		return &sdk.PromptMessage{Role: "user", Content: content}
	}
	prompt := func(name string, arguments []string, messages func(map[string]string) []*sdk.PromptMessage) {
		declared := &sdk.Prompt{Name: name, Description: "For the conformance suite."}
		for _, argument := range arguments {
			declared.Arguments = append(declared.Arguments, &sdk.PromptArgument{Name: argument, Required: true})
		}
		to.AddPrompt(declared, func(_ context.Context, r *sdk.GetPromptRequest) (*sdk.GetPromptResult, error) {
			return &sdk.GetPromptResult{Messages: messages(r.Params.Arguments)}, nil
		})
	}
	prompt("test_simple_prompt", nil, func(map[string]string) []*sdk.PromptMessage {
		return []*sdk.PromptMessage{message(&sdk.TextContent{Text: "A prompt"})}
	})
	prompt("test_prompt_with_arguments", []string{"arg1", "arg2"}, func(a map[string]string) []*sdk.PromptMessage {
		return []*sdk.PromptMessage{message(&sdk.TextContent{Text: a["arg1"] + " and " + a["arg2"]})}
	})
	prompt("test_prompt_with_embedded_resource", []string{"resourceUri"}, func(a map[string]string) []*sdk.PromptMessage {
		return []*sdk.PromptMessage{message(embedded(a["resourceUri"])), message(&sdk.TextContent{Text: "Read it"})}
	})
	prompt("test_prompt_with_image", nil, func(map[string]string) []*sdk.PromptMessage {
		return []*sdk.PromptMessage{message(&sdk.ImageContent{Data: onePixel, MIMEType: "image/png"}), message(&sdk.TextContent{Text: "Look"})}
	})
	to.AddPrompt(&sdk.Prompt{Name: "test_input_required_result_prompt", Description: "For the conformance suite."}, func(_ context.Context, r *sdk.GetPromptRequest) (*sdk.GetPromptResult, error) {
		if content := accepted(r.Params.InputResponses, "user_context"); content != nil {
			return &sdk.GetPromptResult{Messages: []*sdk.PromptMessage{message(&sdk.TextContent{Text: fmt.Sprint(content["context"])})}}, nil
		}
		return &sdk.GetPromptResult{InputRequests: sdk.InputRequestMap{"user_context": &sdk.ElicitParams{
			Message:         "Please give context",
			RequestedSchema: json.RawMessage(`{"type":"object","properties":{"context":{"type":"string"}},"required":["context"]}`),
		}}}, nil
	})
}
