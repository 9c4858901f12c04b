package slacksim

import (
	"net/http"
	"net/url"
	"slices"
	"time"
)

// A response URL can be used this often, for this long.
const (
	responseUses = 5
	responseLife = 30 * time.Minute
)

// responseURL lets the app answer a click without a token.
type responseURL struct {
	userID    string
	channelID string
	ts        string // of the message that was clicked in
	madeAt    time.Time
	uses      int
}

// newResponseURL makes a response URL for a click in a message. The caller
// holds mu.
func (w *Workspace) newResponseURL(userID string, m *Message) string {
	id := w.id("R")
	w.replies[id] = &responseURL{userID: userID, channelID: m.Channel, ts: m.TS, madeAt: w.now()}
	return w.url + "/response/" + id
}

// serveResponse takes what the app posts to a response URL.
func (w *Workspace) serveResponse(rw http.ResponseWriter, r *http.Request) {
	w.serveCall(rw, r, "response_url", func(arguments url.Values, _ string) answer {
		return w.useResponse(r.PathValue("id"), arguments)
	})
}

func (w *Workspace) useResponse(id string, arguments url.Values) answer {
	gone := func(code string) answer {
		a := failure(code)
		a.status = http.StatusNotFound
		return a
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	u := w.replies[id]
	switch {
	case u == nil || w.now().Sub(u.madeAt) > responseLife:
		return gone("expired_url")
	case u.uses >= responseUses:
		return gone("used_url")
	}
	u.uses++
	original := w.message(u.channelID, u.ts, u.userID)
	if truth(arguments.Get("delete_original")) {
		w.messages = slices.DeleteFunc(w.messages, func(m *Message) bool { return m == original })
		w.ring()
		return success(map[string]any{})
	}
	said, a, ok := contentOf(arguments)
	if !ok {
		return a
	}
	if said.empty() {
		return failure("no_text")
	}
	if truth(arguments.Get("replace_original")) {
		if original == nil {
			return failure("message_not_found")
		}
		w.update(original, said.text, said.blocks, said.metadata)
		return success(map[string]any{})
	}
	m := &Message{Channel: u.channelID, ThreadTS: arguments.Get("thread_ts"), Text: said.text, Blocks: said.blocks}
	switch arguments.Get("response_type") {
	case "", "ephemeral":
		m.VisibleTo = u.userID
	case "in_channel":
		if said.metadata != nil {
			m.Metadata = *said.metadata
		}
	default:
		return failure("invalid_payload")
	}
	w.post(m)
	return success(map[string]any{})
}
