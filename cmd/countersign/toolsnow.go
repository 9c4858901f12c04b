package main

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/gateway"
	"github.com/countersign/countersign/internal/visible"
)

// lookLimit is how long a server has to list its tools.
const lookLimit = 15 * time.Second

// serverNow is how a server that has pinned tools stands now.
type serverNow struct {
	configured bool
	tools      map[string]approval.ToolDefinition
	problem    error // why its tools aren't known
}

// serversNow looks at each server of some tools, beside a gateway that runs.
// What was seen last says nothing of a tool that is gone since.
func serversNow(ctx context.Context, conf config, getenv func(string) string, tools []approval.Tool) map[string]*serverNow {
	now := make(map[string]*serverNow)
	for _, t := range tools {
		if now[t.Server] == nil {
			_, configured := conf.Gateway.Servers[t.Server]
			now[t.Server] = &serverNow{configured: configured}
		}
	}
	if len(now) == 0 {
		return now
	}
	given, err := conf.Gateway.readSecrets(getenv)
	if err != nil {
		for _, s := range now {
			s.problem = err
		}
		return now
	}
	ctx, cancel := context.WithTimeout(ctx, lookLimit)
	defer cancel()
	var work sync.WaitGroup
	for _, server := range conf.Gateway.servers(given) {
		if s := now[server.Name]; s != nil {
			work.Go(func() {
				s.tools, s.problem = gateway.Look(ctx, server, version(), slog.New(slog.DiscardHandler))
			})
		}
	}
	work.Wait()
	return now
}

// gone reports whether no call can reach a tool any more, and why.
func (s *serverNow) gone(t approval.Tool) (state, why string) {
	if !s.configured {
		return "NO SERVER", fmt.Sprintf("%s is pinned, but the configuration has no server %s", visible.Line(t.Action()), t.Server)
	}
	if _, listed := s.tools[t.Name]; s.problem == nil && !listed {
		return "GONE", fmt.Sprintf("%s is pinned, but %s doesn't offer it any more", visible.Line(t.Action()), t.Server)
	}
	return "", ""
}

// sayUnknown says of which servers it isn't known what they offer now, and returns
// how many those are.
func (p *process) sayUnknown(now map[string]*serverNow, tools []approval.Tool) int {
	said := make(map[string]bool)
	for _, t := range tools {
		s := now[t.Server]
		if !s.configured || s.problem == nil || said[t.Server] {
			continue
		}
		said[t.Server] = true
		fmt.Fprintf(p.stderr, "What %s offers now is not known, so what is shown of it is as it was seen last: %s\n", t.Server, visible.Line(s.problem.Error()))
	}
	return len(said)
}
