package main

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/gateway"
	"github.com/countersign/countersign/internal/visible"
	"github.com/countersign/countersign/policy"
)

// checkDownstream starts or connects to each downstream server, beside a gateway
// that runs, and looks at its tools. seen are the tools that a gateway saw. There
// may be no policy.
func checkDownstream(ctx context.Context, servers []gateway.Server, rules *policy.Policy, seen []approval.Tool, say func(bool, string, ...any)) {
	findings := make([]finding, len(servers))
	var work sync.WaitGroup
	for i, server := range servers {
		work.Go(func() { findings[i] = lookAt(ctx, server, rules, seen) })
	}
	work.Wait()
	for i, server := range servers {
		say(findings[i].well, "server %s: %s", server.Name, findings[i].text)
	}
}

// finding is what a look at one thing came to.
type finding struct {
	well bool
	text string
}

func lookAt(ctx context.Context, server gateway.Server, rules *policy.Policy, seen []approval.Tool) finding {
	said := new(lastWords)
	tools, err := gateway.Look(ctx, server, version(), slog.New(said))
	if err != nil {
		return finding{false, strings.Join(append([]string{err.Error()}, said.lines(server)...), "\n")}
	}
	text := "answers, with " + counted(len(tools), "tool")
	if rules != nil {
		var listed []policy.Tool
		for name, definition := range tools {
			listed = append(listed, policyTool(server.Name, name, definition))
		}
		if unclassified := len(rules.Propose(listed)); unclassified > 0 {
			text += fmt.Sprintf("; the policy doesn't classify %d, see \"countersign policy tools\"", unclassified)
		}
	}
	changed := 0
	for _, t := range seen {
		now, listed := tools[t.Name]
		if t.Server == server.Name && listed && now.Pin != t.Pinned.Pin {
			changed++
		}
	}
	if changed > 0 {
		return finding{false, fmt.Sprintf("%s; %s, see \"countersign tools diff\"", text, asPinned(changed, "not "))}
	}
	return finding{true, text}
}

// lastWords keeps the last lines that a started server writes to its standard
// error, which often say why it doesn't start.
type lastWords struct {
	mu   sync.Mutex
	said []string
}

// maxLastWords is how many lines are kept.
const maxLastWords = 5

// lines are the last ones, without what the server was given that is secret.
func (l *lastWords) lines(server gateway.Server) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var lines []string
	for _, line := range l.said {
		for _, value := range server.Env {
			if len(value) > 3 { // a shorter one is no secret, and in every line
				line = strings.ReplaceAll(line, value, secret(value).String())
			}
		}
		lines = append(lines, "it says: "+visible.Line(line))
	}
	return lines
}

// Enabled implements slog.Handler.
func (l *lastWords) Enabled(context.Context, slog.Level) bool { return true }

// Handle implements slog.Handler. Only what a server says has a line.
func (l *lastWords) Handle(_ context.Context, record slog.Record) error {
	record.Attrs(func(a slog.Attr) bool {
		if a.Key != "line" {
			return true
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		l.said = append(l.said, a.Value.String())
		if len(l.said) > maxLastWords {
			l.said = slices.Delete(l.said, 0, 1)
		}
		return false
	})
	return nil
}

// WithAttrs implements slog.Handler.
func (l *lastWords) WithAttrs([]slog.Attr) slog.Handler { return l }

// WithGroup implements slog.Handler.
func (l *lastWords) WithGroup(string) slog.Handler { return l }
