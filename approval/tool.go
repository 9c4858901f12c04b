package approval

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/countersign/countersign/audit"
)

// ToolDefinition is what a downstream server says that a tool is.
type ToolDefinition struct {
	Pin  string // names the definition: equal definitions have the same one
	JSON []byte // as the server wrote it
}

// Tool is a tool of a downstream server. A definition that isn't the pinned one
// makes the tool unclassified until an operator pins it.
type Tool struct {
	Server string
	Name   string

	Seen     ToolDefinition // what the server said last
	SeenAt   time.Time      // when it said so first
	Pinned   ToolDefinition // what is accepted
	PinnedAt time.Time
	PinnedBy string // "countersign" for the first that was seen, or "operator:NAME"

	events []audit.Event
}

// Action is what policy calls the tool.
func (t Tool) Action() string { return t.Server + "." + t.Name }

// Changed reports whether the server says something else than what is pinned.
func (t Tool) Changed() bool { return t.Seen.Pin != t.Pinned.Pin }

// Events returns what happened to the tool since it was loaded, for the store to
// append in the transaction that saves the tool.
func (t Tool) Events() []audit.Event { return t.events }

func (t *Tool) record(now time.Time, kind, actor string, detail map[string]any) {
	detail["server"], detail["tool"] = t.Server, t.Name
	t.events = append(t.events, newEvent(now, kind, actor, "", detail))
}

// errSame means that a tool is as it was.
var errSame = errors.New("the tool is as it was")

func (t *Tool) see(definition ToolDefinition, now time.Time) error {
	if t.Seen.Pin == definition.Pin && bytes.Equal(t.Seen.JSON, definition.JSON) {
		return errSame
	}
	before := t.Seen.Pin
	t.Seen, t.SeenAt = definition, now
	switch {
	case t.PinnedAt.IsZero():
		t.pin(now, "countersign")
	case before != definition.Pin:
		t.record(now, "tool.changed", "countersign", map[string]any{"pinned": t.Pinned.Pin, "seen": definition.Pin})
	}
	return nil
}

func (t *Tool) pin(now time.Time, by string) {
	detail := map[string]any{"pin": t.Seen.Pin, "previous": t.Pinned.Pin}
	t.Pinned, t.PinnedAt, t.PinnedBy = t.Seen, now, by
	t.record(now, "tool.pinned", by, detail)
}

// SeeTool records what a downstream server says of a tool. The first definition
// is pinned. If it is another than before, open requests for the tool are
// superseded.
func (s *Service) SeeTool(ctx context.Context, server, name string, definition ToolDefinition) (Tool, error) {
	ctx, cancel := uninterrupted(ctx, changeLimit)
	defer cancel()
	now := milliseconds(s.options.Now())
	tool, err := s.store.UpdateTool(ctx, server, name, func(t *Tool) error { return t.see(definition, now) })
	if err != nil && !errors.Is(err, errSame) {
		return tool, fmt.Errorf("recording the tool %s.%s: %w", server, name, err)
	}
	if err != nil {
		return tool, nil
	}
	return tool, s.supersedeTool(ctx, tool)
}

// supersedeTool ends the open requests that were made of another definition. A
// claim looks at the pin again, so one that is missed doesn't run either.
func (s *Service) supersedeTool(ctx context.Context, tool Tool) error {
	ids, err := s.store.OpenRuns(ctx, tool.Action())
	if err != nil {
		return fmt.Errorf("looking for open requests of %s: %w", tool.Action(), err)
	}
	var problems []error
	for _, id := range ids {
		_, err := s.change(ctx, id, func(r *Request, now time.Time) error {
			if (r.Status == Pending || r.Status == Approved) && r.ToolPin != tool.Seen.Pin {
				r.supersede(toolChanged, r.Ruling, now)
			}
			return nil
		})
		problems = append(problems, err)
	}
	return errors.Join(problems...)
}

// Tool returns a tool as it was seen last. ErrNoTool if it never was.
func (s *Service) Tool(ctx context.Context, server, name string) (Tool, error) {
	return s.store.Tool(ctx, server, name)
}

// Tools returns all tools that were seen, by server and name.
func (s *Service) Tools(ctx context.Context) ([]Tool, error) { return s.store.Tools(ctx) }

// PinTool accepts the definition that the server gives a tool now, which pin
// names as the operator saw it. ErrStale if it is another one meanwhile, and
// ErrNoTool if no such tool was seen.
func (s *Service) PinTool(ctx context.Context, by Operator, server, name, pin string) (Tool, error) {
	now := milliseconds(s.options.Now())
	tool, err := s.store.UpdateTool(ctx, server, name, func(t *Tool) error {
		switch {
		case t.PinnedAt.IsZero():
			return ErrNoTool
		case t.Seen.Pin != pin:
			return ErrStale
		case !t.Changed():
			return errSame
		}
		t.pin(now, "operator:"+by.Name)
		return nil
	})
	if errors.Is(err, errSame) {
		err = nil
	}
	return tool, err
}
