package db

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/db/internal/sqlc"
)

// UpdateTool loads a tool, or makes one that was never seen, runs change on it
// and saves what it did, as approval.Store says. change runs in the writer's
// goroutine.
func (d *DB) UpdateTool(ctx context.Context, server, name string, change func(*approval.Tool) error) (approval.Tool, error) {
	var tool approval.Tool
	var refusal error
	err := d.writer.do(ctx, func(q *sqlc.Queries) error {
		ctx := context.Background()
		before, err := loadTool(ctx, q, server, name)
		if errors.Is(err, approval.ErrNoTool) {
			before = approval.Tool{Server: server, Name: name}
		} else if err != nil {
			return err
		}
		tool = before
		if refusal = change(&tool); refusal != nil {
			tool = before
			return refusal
		}
		if err := q.SaveTool(ctx, sqlc.SaveToolParams{
			Server:           tool.Server,
			Name:             tool.Name,
			SeenPin:          tool.Seen.Pin,
			SeenDefinition:   tool.Seen.JSON,
			SeenAt:           tool.SeenAt.UnixMilli(),
			PinnedPin:        tool.Pinned.Pin,
			PinnedDefinition: tool.Pinned.JSON,
			PinnedAt:         tool.PinnedAt.UnixMilli(),
			PinnedBy:         tool.PinnedBy,
		}); err != nil {
			return fmt.Errorf("saving the tool: %w", err)
		}
		return appendEvents(ctx, q, tool.Events())
	})
	if err != nil && (refusal == nil || !errors.Is(err, refusal)) {
		return approval.Tool{}, err
	}
	return tool, err
}

// Tool loads a tool. approval.ErrNoTool if there is none.
func (d *DB) Tool(ctx context.Context, server, name string) (approval.Tool, error) {
	tool, err := loadTool(ctx, d.reads, server, name)
	if err != nil && !errors.Is(err, approval.ErrNoTool) {
		err = d.explain(ctx, err)
	}
	return tool, err
}

func loadTool(ctx context.Context, q *sqlc.Queries, server, name string) (approval.Tool, error) {
	row, err := q.LoadTool(ctx, sqlc.LoadToolParams{Server: server, Name: name})
	if errors.Is(err, sql.ErrNoRows) {
		return approval.Tool{}, approval.ErrNoTool
	}
	if err != nil {
		return approval.Tool{}, fmt.Errorf("loading the tool %s.%s: %w", server, name, err)
	}
	return decodeTool(row), nil
}

// Tools returns all tools, by server and name.
func (d *DB) Tools(ctx context.Context) ([]approval.Tool, error) {
	rows, err := d.reads.ListTools(ctx)
	if err != nil {
		return nil, fmt.Errorf("listing tools: %w", d.explain(ctx, err))
	}
	tools := make([]approval.Tool, len(rows))
	for i, row := range rows {
		tools[i] = decodeTool(row)
	}
	return tools, nil
}

func decodeTool(row sqlc.Tool) approval.Tool {
	return approval.Tool{
		Server:   row.Server,
		Name:     row.Name,
		Seen:     approval.ToolDefinition{Pin: row.SeenPin, JSON: row.SeenDefinition},
		SeenAt:   moment(row.SeenAt),
		Pinned:   approval.ToolDefinition{Pin: row.PinnedPin, JSON: row.PinnedDefinition},
		PinnedAt: moment(row.PinnedAt),
		PinnedBy: row.PinnedBy,
	}
}
