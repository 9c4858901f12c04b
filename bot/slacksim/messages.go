package slacksim

import (
	"encoding/json"
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
	// Edited reports whether clients show the "(edited)" label, which they don't when an update carried blocks.
	Edited bool
	// Earlier holds what the message was before each update, oldest first.
	Earlier []Revision
	// VisibleTo is the one person who sees an ephemeral message; empty for a normal one.
	VisibleTo string
	// Broadcast is a thread reply that is shown in the channel too.
	Broadcast bool
	// UnfurlLinks and UnfurlMedia are as the app sent them; nil means that it left Slack's default.
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

// Metadata is message metadata: machine-readable, invisible to people, readable by other apps.
type Metadata struct {
	EventType    string          `json:"event_type"`
	EventPayload json.RawMessage `json:"event_payload"`
}

// Messages returns the channel's messages and thread replies, oldest first. A direct message channel is asked for
// by the person's id.
func (w *Workspace) Messages(channelID string) []Message { return nil }

// Ephemerals returns what the person was shown with "Only visible to you", oldest first.
func (w *Workspace) Ephemerals(userID string) []Message { return nil }
