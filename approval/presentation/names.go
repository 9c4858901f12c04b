package presentation

import (
	"context"
	"sync"
	"time"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/internal/visible"
)

const (
	// nameFor is how long a name is remembered.
	nameFor = time.Hour
	// namesLimit is how long pages wait for names at most within namesSpell, however
	// many there are.
	namesLimit = time.Second
	namesSpell = 10 * time.Second
	// namesRest is how long no names are asked for after one that didn't come.
	namesRest = time.Minute
	// nameLength bounds a name, in characters.
	nameLength = 60
	// mostNames are how many are remembered.
	mostNames = 1000
)

// Names are what people call themselves, to be shown beside their ids. Whoever shows
// them does without rather than wait. All methods are safe for concurrent use.
type Names struct {
	ask func(context.Context, approval.Approver) (string, error)
	now func() time.Time

	mu     sync.Mutex
	known  map[approval.Approver]knownName
	rest   time.Time     // until then nobody is asked for
	since  time.Time     // when the spell began
	waited time.Duration // since then
}

type knownName struct {
	name string
	at   time.Time
}

// NewNames asks for names with ask, which may be nil if there are none, and remembers
// them by the clock now.
func NewNames(ask func(context.Context, approval.Approver) (string, error), now func() time.Time) *Names {
	return &Names{ask: ask, now: now, known: make(map[approval.Approver]knownName)}
}

// Of returns what a person calls themselves, with hidden characters made visible;
// empty if that isn't known.
func (n *Names) Of(who approval.Approver) string {
	if n.ask == nil || who.IsZero() {
		return ""
	}
	n.mu.Lock()
	defer n.mu.Unlock() // who waits, waits for the same few people
	now := n.now()
	one, known := n.known[who]
	if known && now.Sub(one.at) < nameFor || now.Before(n.rest) {
		return one.name
	}
	if now.Sub(n.since) >= namesSpell {
		n.since, n.waited = now, 0
	}
	if n.waited >= namesLimit {
		return one.name
	}
	left := namesLimit - n.waited
	ctx, cancel := context.WithTimeout(context.Background(), left)
	defer cancel()
	name, err := n.ask(ctx, who)
	n.waited += n.now().Sub(now)
	if err != nil && left < namesLimit && n.waited >= namesLimit {
		return one.name // it may have come in time of its own
	}
	if err != nil {
		n.rest = now.Add(namesRest)
		return one.name
	}
	if len(n.known) >= mostNames {
		clear(n.known)
	}
	short, cut := visible.Cut(visible.Line(name), nameLength)
	if cut {
		short += "…"
	}
	one = knownName{short, now}
	n.known[who] = one
	return one.name
}
