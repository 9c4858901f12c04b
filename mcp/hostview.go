package mcp

import (
	"context"
	"slices"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// uiExtension is MCP Apps (specification of 2026-01-26).
const uiExtension = "io.modelcontextprotocol/ui"

// uiMeta says that a tool belongs to the view, and for whom it is: the model, or the
// view itself, which is the app.
func uiMeta(visibility string) sdk.Meta {
	ui := map[string]any{"visibility": []string{visibility}}
	meta := sdk.Meta{"ui": ui}
	if visibility == "model" {
		ui["resourceUri"] = viewURI
		meta["ui/resourceUri"] = viewURI // for hosts of before the specification
	}
	return meta
}

// viewMeta lets the view load nothing from anywhere.
var viewMeta = sdk.Meta{"ui": map[string]any{"csp": map[string]any{}, "prefersBorder": true}}

// showsViews reports whether the host that sent a request shows views.
func showsViews(request sdk.Request) bool {
	from, ok := request.(interface {
		ClientCapabilities() *sdk.ClientCapabilities
	})
	if !ok {
		return false
	}
	can := from.ClientCapabilities()
	if can == nil {
		return false
	}
	extension, _ := can.Extensions[uiExtension].(map[string]any)
	types, _ := extension["mimeTypes"].([]any)
	return slices.Contains(types, any(viewMIME))
}

// addView serves the view itself.
func addView(over *sdk.Server) {
	over.AddResource(&sdk.Resource{
		URI:         viewURI,
		Name:        "approval-gate",
		Title:       "Approval Gate",
		Description: "Where a person decides on the request that is held.",
		MIMEType:    viewMIME,
		Meta:        viewMeta,
	}, func(context.Context, *sdk.ReadResourceRequest) (*sdk.ReadResourceResult, error) {
		return &sdk.ReadResourceResult{Contents: []*sdk.ResourceContents{{
			URI:      viewURI,
			MIMEType: viewMIME,
			Text:     viewHTML,
			Meta:     viewMeta,
		}}}, nil
	})
	over.AddReceivingMiddleware(withoutViews)
}

// withoutViews keeps what only a view can use from hosts that show none.
func withoutViews(next sdk.MethodHandler) sdk.MethodHandler {
	return func(ctx context.Context, method string, request sdk.Request) (sdk.Result, error) {
		result, err := next(ctx, method, request)
		if err != nil || showsViews(request) {
			return result, err
		}
		// The SDK's lists are shared, and what is in them too.
		switch listed := result.(type) {
		case *sdk.ListToolsResult:
			own := *listed
			own.Tools = nil
			for _, tool := range listed.Tools {
				if tool.Meta != nil {
					if slices.Contains(viewTools, tool.Name) {
						continue
					}
					plain := *tool
					plain.Meta = nil
					tool = &plain
				}
				own.Tools = append(own.Tools, tool)
			}
			return &own, nil
		case *sdk.ListResourcesResult:
			own := *listed
			own.Resources = slices.DeleteFunc(slices.Clone(listed.Resources), func(r *sdk.Resource) bool { return r.URI == viewURI })
			return &own, nil
		}
		return result, err
	}
}

var viewTools = []string{viewRequestTool.Name, viewDecideTool.Name, viewRevokeTool.Name}
