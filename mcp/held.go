package mcp

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"
	"sync"

	"github.com/countersign/countersign/approval"
)

// heldCalls are the calls that are held now. A view isn't told by its host which
// request it is shown for, only what the model wrote, so it asks for the held one.
type heldCalls struct {
	mu    sync.Mutex
	calls map[approval.Agent][]*heldCall
}

type heldCall struct {
	id    approval.ID
	asked any // the arguments of the call, as hosts read them
}

// newHeldCall is a call for a request, with the arguments as they were written.
func newHeldCall(id approval.ID, asked []byte) *heldCall {
	value, _ := asHostsRead(asked) // they were read before
	return &heldCall{id, value}
}

// add holds a call until the returned function is called.
func (h *heldCalls) add(agent approval.Agent, call *heldCall) (remove func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.calls == nil {
		h.calls = make(map[approval.Agent][]*heldCall)
	}
	h.calls[agent] = append(h.calls[agent], call)
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		left := slices.DeleteFunc(h.calls[agent], func(one *heldCall) bool { return one == call })
		if h.calls[agent] = left; len(left) == 0 {
			delete(h.calls, agent)
		}
	}
}

// find is the request of the agent's held call whose arguments are asked, or of its
// only one if asked is nil; empty if there is none, or if it can't be told which.
func (h *heldCalls) find(agent approval.Agent, asked []byte) approval.ID {
	h.mu.Lock()
	held := slices.Clone(h.calls[agent])
	h.mu.Unlock()
	var wanted any
	if asked != nil {
		var err error
		if wanted, err = asHostsRead(asked); err != nil {
			return ""
		}
	}
	var found approval.ID
	for _, call := range held {
		if call.id == found || asked != nil && !reflect.DeepEqual(call.asked, wanted) {
			continue
		}
		if found != "" {
			return ""
		}
		found = call.id
	}
	return found
}

// holds reports whether a call of the agent is held for a request.
func (h *heldCalls) holds(agent approval.Agent, id approval.ID) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.ContainsFunc(h.calls[agent], func(one *heldCall) bool { return one.id == id })
}

// asHostsRead decodes a JSON text as hosts do, which round numbers. It tells calls
// apart; nothing is decided by it.
func asHostsRead(text []byte) (any, error) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var value any
	err := decoder.Decode(&value)
	return rounded(value), err
}

// rounded is a value with its numbers as JavaScript reads them and writes them again:
// one that is out of range becomes null.
func rounded(value any) any {
	switch value := value.(type) {
	case json.Number:
		number, err := value.Float64()
		if err != nil {
			return nil
		}
		return number
	case []any:
		for i := range value {
			value[i] = rounded(value[i])
		}
	case map[string]any:
		for name := range value {
			value[name] = rounded(value[name])
		}
	}
	return value
}
