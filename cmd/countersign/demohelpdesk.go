package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// helpDesk is the demo's downstream MCP server: what it does is done behind the
// gateway, which alone has its token.
type helpDesk struct {
	listener net.Listener
	server   *http.Server
	token    secret
}

// startHelpDesk serves it on a free port of this machine.
func startHelpDesk() (*helpDesk, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listening for the demo's help desk: %w", err)
	}
	h := &helpDesk{listener: listener, token: secret(rand.Text())}
	tools := newHelpDesk()
	endpoint := sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return tools }, nil)
	h.server = &http.Server{
		ReadHeaderTimeout: 10 * time.Second,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") != "Bearer "+string(h.token) {
				http.Error(w, "the help desk doesn't know you", http.StatusUnauthorized)
				return
			}
			endpoint.ServeHTTP(w, r)
		}),
	}
	go func() { _ = h.server.Serve(listener) }() // it ends with close
	return h, nil
}

func (h *helpDesk) close() { _ = h.server.Close() }

// behind puts the help desk behind the gateway of a server.
func (h *helpDesk) behind(options *serverOptions) {
	headers := map[string]secret{"Authorization": "Bearer " + h.token}
	options.config.Gateway.Servers["helpdesk"] = downstreamConfig{
		URL:         "http://" + h.listener.Addr().String(),
		Headers:     headers,
		Environment: "production",
	}
	options.secrets.Downstream = map[string]downstreamSecrets{"helpdesk": {Headers: headers}}
}

func newHelpDesk() *sdk.Server {
	s := sdk.NewServer(&sdk.Implementation{Name: "helpdesk", Version: version()}, nil)
	s.AddTool(&sdk.Tool{
		Name:        "find_tickets",
		Description: "Find the tickets of a queue that nobody has touched for a month.",
		InputSchema: json.RawMessage(`{"type":"object","properties":{"queue":{"type":"string"}},"required":["queue"]}`),
		Annotations: &sdk.ToolAnnotations{ReadOnlyHint: true},
	}, func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		return helpDeskSays("4 tickets: 3107, 3122, 3140, 3158"), nil
	})
	s.AddTool(&sdk.Tool{
		Name:        "close_tickets",
		Description: "Close tickets. Those who wrote them get a mail.",
		InputSchema: json.RawMessage(`{"type":"object","properties":{"queue":{"type":"string"},"ids":{"type":"array","items":{"type":"integer"}}},"required":["queue","ids"]}`),
	}, func(_ context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		var closing struct {
			Queue string
			IDs   []int
		}
		if err := json.Unmarshal(r.Params.Arguments, &closing); err != nil {
			return nil, errors.New("the arguments can't be read")
		}
		return helpDeskSays(fmt.Sprintf("Closed %s of %s.", counted(len(closing.IDs), "ticket"), closing.Queue)), nil
	})
	return s
}

func helpDeskSays(text string) *sdk.CallToolResult {
	return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: text}}}
}
