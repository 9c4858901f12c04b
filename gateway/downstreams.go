package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"
	"time"
)

// downstreams are all downstream servers.
type downstreams struct {
	names       []string // as configured
	connections map[string]*connection
	taken       []string // names of tools that are the gateway's own
	logger      *slog.Logger

	current atomic.Pointer[catalog]

	mu       sync.Mutex // held while the catalog is made
	watchers map[int]func(kind string)
	watched  int
}

// newDownstreams are the servers, none of them connected.
func newDownstreams(servers []Server, taken []string, version string, jitter func(time.Duration) time.Duration, logger *slog.Logger) (*downstreams, error) {
	d := &downstreams{
		connections: make(map[string]*connection),
		taken:       taken,
		logger:      logger,
		watchers:    make(map[int]func(string)),
	}
	for _, server := range servers {
		if err := server.Check(); err != nil {
			return nil, fmt.Errorf("server %s: %w", server.Name, err)
		}
		if d.connections[server.Name] != nil {
			return nil, fmt.Errorf("two servers are called %s", server.Name)
		}
		d.names = append(d.names, server.Name)
		d.connections[server.Name] = newConnection(server, version, logger, jitter, d.refreshed)
	}
	d.current.Store(newCatalog(nil, nil, taken, logger))
	return d, nil
}

// run keeps all connections until ctx ends. One that fails doesn't hurt the
// others.
func (d *downstreams) run(ctx context.Context) {
	var work sync.WaitGroup
	for _, c := range d.connections {
		work.Go(func() { c.run(ctx) })
	}
	work.Wait()
}

// catalog is what all servers offer, as far as it is known: what a server that
// is down offered before stays.
func (d *downstreams) catalog() *catalog { return d.current.Load() }

// refreshed makes the catalog anew and tells of what changed in it.
func (d *downstreams) refreshed() {
	d.mu.Lock()
	offers := make(map[string]lists, len(d.connections))
	for name, c := range d.connections {
		c.mu.Lock()
		offers[name] = c.offers
		c.mu.Unlock()
	}
	next := newCatalog(d.names, offers, d.taken, d.logger)
	kinds := next.changes(d.current.Load())
	d.current.Store(next)
	watchers := maps.Clone(d.watchers)
	d.mu.Unlock()
	for _, kind := range kinds {
		for _, tell := range watchers {
			tell(kind)
		}
	}
}

// watch has changed called after each change of the catalog, with the kind of
// list that changed, until stop is called.
func (d *downstreams) watch(changed func(kind string)) (stop func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.watched++
	key := d.watched
	d.watchers[key] = changed
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.watchers, key)
	}
}

// call sends a request to a server: see connection.call.
func (d *downstreams) call(ctx context.Context, server, method string, params json.RawMessage, to relay) (json.RawMessage, error) {
	c := d.connections[server]
	if c == nil {
		return nil, fmt.Errorf("%w: there is no server %s", errUnavailable, server)
	}
	return c.call(ctx, method, params, to)
}
