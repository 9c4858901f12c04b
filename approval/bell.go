package approval

import "sync"

// Bell wakes those who wait for a request to change. It carries no data: a
// waiter listens first, then reads, then waits, then reads again. A lost ring
// is a delay, never a lost decision.
type Bell struct {
	mu      sync.Mutex
	waiting map[ID]map[chan struct{}]struct{}
}

// everyRequest is the id that listeners to every request are kept under.
const everyRequest ID = ""

// Listen returns a channel that receives after each change of the request, and
// a function that ends listening. Rings that come while one is unread are one.
func (b *Bell) Listen(id ID) (<-chan struct{}, func()) {
	rung := make(chan struct{}, 1)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.waiting == nil {
		b.waiting = make(map[ID]map[chan struct{}]struct{})
	}
	if b.waiting[id] == nil {
		b.waiting[id] = make(map[chan struct{}]struct{})
	}
	b.waiting[id][rung] = struct{}{}
	return rung, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.waiting[id], rung)
		if len(b.waiting[id]) == 0 {
			delete(b.waiting, id)
		}
	}
}

// ListenAll is Listen for every request.
func (b *Bell) ListenAll() (<-chan struct{}, func()) { return b.Listen(everyRequest) }

// Ring wakes everybody who listens to the request.
func (b *Bell) Ring(id ID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, listeners := range []map[chan struct{}]struct{}{b.waiting[id], b.waiting[everyRequest]} {
		for rung := range listeners {
			select {
			case rung <- struct{}{}:
			default:
			}
		}
	}
}
