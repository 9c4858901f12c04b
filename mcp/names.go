package mcp

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/internal/visible"
)

const (
	// nameFor is how long a name is remembered, and noNameFor that there is none.
	nameFor   = time.Hour
	noNameFor = time.Minute
	// nameLimit is how long a view waits for a name.
	nameLimit = time.Second
	// nameLength bounds a name, in characters.
	nameLength = 60
	// mostNames are how many are remembered.
	mostNames = 1000
)

// names are what people call themselves. Whoever has none goes by their id.
type names struct {
	ask func(context.Context, approval.Approver) (string, error)
	now func() time.Time

	mu    sync.Mutex
	known map[approval.Approver]knownName
}

type knownName struct {
	name  string
	until time.Time
}

func newNames(options GateOptions) *names {
	return &names{ask: options.Name, now: options.Now, known: make(map[approval.Approver]knownName)}
}

// of names a person, with their id, which is what counts.
func (n *names) of(who approval.Approver) string {
	if n.ask == nil {
		return who.User
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	now := n.now()
	one, known := n.known[who]
	if !known || !now.Before(one.until) {
		ctx, cancel := context.WithTimeout(context.Background(), nameLimit)
		defer cancel()
		name, err := n.ask(ctx, who)
		one = knownName{until: now.Add(noNameFor)}
		if err == nil && strings.TrimSpace(name) != "" {
			short, _ := visible.Cut(visible.Line(name), nameLength)
			one = knownName{short, now.Add(nameFor)}
		}
		if len(n.known) >= mostNames {
			clear(n.known)
		}
		n.known[who] = one
	}
	if one.name == "" {
		return who.User
	}
	return one.name + " (" + who.User + ")"
}
