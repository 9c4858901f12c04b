package gateway

import (
	"context"
	"log/slog"

	"github.com/countersign/countersign/approval"
)

// Look connects to a server as a Gateway does, reads its list of tools, and
// disconnects: whoever configures it learns whether that works. It returns the
// definitions by the tools' own names. Nothing is called, and nothing is kept.
// What a started server writes to its standard error goes to logger; nil discards
// it.
func Look(ctx context.Context, server Server, version string, logger *slog.Logger) (map[string]approval.ToolDefinition, error) {
	if err := server.Check(); err != nil {
		return nil, err
	}
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	c := newConnection(server, version, logger, jitter, func() {})
	l, err := c.connect(ctx)
	if err != nil {
		return nil, err
	}
	defer l.close()
	if _, err := c.refresh(ctx, l); err != nil {
		return nil, c.plain(err)
	}
	tools := make(map[string]approval.ToolDefinition, len(c.offers.tools))
	for _, t := range c.offers.tools {
		tools[t.name] = approval.ToolDefinition{Pin: t.pin, JSON: t.definition}
	}
	return tools, nil
}
