package slacksim

import (
	"bytes"
	"encoding/json"
	"slices"
	"time"
)

// Message is a message as it is now, with how it came to be.
type Message struct {
	Channel  string
	TS       string // Slack's id of a message within its channel
	ThreadTS string // the parent's TS for a thread reply; empty otherwise
	UserID   string // who posted it
	Text     string // the notification text
	Blocks   json.RawMessage
	Metadata Metadata
	// Edited reports whether clients show the "(edited)" label, which they
	// don't when an update carried blocks.
	Edited bool
	// Earlier holds what the message was before each update, oldest first.
	Earlier []Revision
	// VisibleTo is the one person who sees an ephemeral message; empty for a
	// normal one.
	VisibleTo string
	// Broadcast is a thread reply that is shown in the channel too.
	Broadcast bool
	// UnfurlLinks and UnfurlMedia are as the app sent them; nil means that it
	// left Slack's default.
	UnfurlLinks, UnfurlMedia *bool
	PostedAt                 time.Time
}

// Revision is an earlier state of an updated message.
type Revision struct {
	Text       string
	Blocks     json.RawMessage
	Metadata   Metadata
	ReplacedAt time.Time
}

// Metadata is message metadata: machine-readable, invisible to people, readable
// by other apps.
type Metadata struct {
	EventType    string          `json:"event_type"`
	EventPayload json.RawMessage `json:"event_payload"`
}

// Messages returns the channel's messages and thread replies, oldest first,
// without ephemeral ones. A direct message channel can also be asked for by the
// person's id.
func (w *Workspace) Messages(channelID string) []Message {
	w.mu.Lock()
	defer w.mu.Unlock()
	var found []Message
	for _, m := range w.messages {
		if m.VisibleTo == "" && (m.Channel == channelID || m.Channel == directID(channelID)) {
			found = append(found, m.copy())
		}
	}
	return found
}

// Ephemerals returns what the person was shown with "Only visible to you",
// oldest first.
func (w *Workspace) Ephemerals(userID string) []Message {
	w.mu.Lock()
	defer w.mu.Unlock()
	var found []Message
	for _, m := range w.messages {
		if m.VisibleTo == userID {
			found = append(found, m.copy())
		}
	}
	return found
}

// copy protects what the workspace holds from its readers. JSON is never
// changed in place, so it is shared.
func (m *Message) copy() Message {
	c := *m
	c.Earlier = slices.Clone(m.Earlier)
	return c
}

// message returns a message as that person could see it; ephemeral ones belong
// to one person. The caller holds mu.
func (w *Workspace) message(channelID, ts, userID string) *Message {
	for _, m := range w.messages {
		if m.Channel == channelID && m.TS == ts && (m.VisibleTo == "" || m.VisibleTo == userID) {
			return m
		}
	}
	return nil
}

// post adds a message. The caller holds mu and has checked it.
func (w *Workspace) post(m *Message) {
	m.TS = w.timestamp()
	m.UserID = w.options.BotUserID
	m.PostedAt = w.now()
	m.Blocks = w.withBlockIDs(m.Blocks)
	w.messages = append(w.messages, m)
	w.ring()
}

// update replaces what a message says. The caller holds mu and has checked it.
func (w *Workspace) update(m *Message, text string, blocks json.RawMessage, metadata *Metadata) {
	m.Earlier = append(m.Earlier, Revision{Text: m.Text, Blocks: m.Blocks, Metadata: m.Metadata, ReplacedAt: w.now()})
	m.Text = text
	m.Blocks = w.withBlockIDs(blocks)
	if metadata != nil {
		m.Metadata = *metadata
	}
	w.ring()
}

// withBlockIDs gives each block without a block_id one, as Slack does. The
// blocks have passed the linter. The caller holds mu.
func (w *Workspace) withBlockIDs(blocks json.RawMessage) json.RawMessage {
	var list []map[string]json.RawMessage
	if len(blocks) == 0 || json.Unmarshal(blocks, &list) != nil || len(list) == 0 {
		return nil
	}
	for _, block := range list {
		if id := block["block_id"]; len(id) == 0 || string(id) == `""` || string(id) == "null" {
			block["block_id"] = asJSON(w.id("b"))
		}
	}
	return asJSON(list)
}

// asJSON encodes a value that is known to be encodable, with < and & as they
// are.
func asJSON(value any) json.RawMessage {
	var buffer bytes.Buffer
	encoder := json.NewEncoder(&buffer)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return json.RawMessage("null")
	}
	return bytes.TrimSpace(buffer.Bytes())
}
