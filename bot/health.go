package bot

import (
	"errors"
	"maps"
	"slices"
	"sync"
)

// The parts of the bot that have to work.
const (
	deliveryPart = "delivery"
	socketPart   = "socket"
)

var (
	errNotReached   = errors.New("no call to Slack has succeeded yet")
	errDisconnected = errors.New("no connection for Socket Mode, so clicks don't arrive")
)

// health is what is known to be wrong, by part. A part that was set to nil
// works; one that was never set isn't needed.
type health struct {
	mu    sync.Mutex
	parts map[string]error
}

func (h *health) set(part string, problem error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.parts == nil {
		h.parts = make(map[string]error)
	}
	h.parts[part] = problem
}

func (h *health) problem() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	var problems []error
	for _, part := range slices.Sorted(maps.Keys(h.parts)) {
		problems = append(problems, h.parts[part])
	}
	return errors.Join(problems...)
}

// known is a string that is learned later.
type known struct {
	mu    sync.Mutex
	value string
}

func (k *known) set(value string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.value = value
}

func (k *known) get() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.value
}
