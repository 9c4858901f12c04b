package slacksim

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gorilla/websocket"
)

const (
	// pingInterval keeps clients from thinking that the connection is dead;
	// they give up after about 30 s.
	pingInterval = 5 * time.Second
	// connectionTime is what hello says about how long a connection lasts.
	// Nothing ends one here but Disconnect.
	connectionTime = time.Hour
	// maxAcknowledgement is from where on Slack silently drops an
	// acknowledgement.
	maxAcknowledgement = 20_000
	socketWriteTimeout = 5 * time.Second
)

// socket is one Socket Mode connection.
type socket struct {
	conn    *websocket.Conn
	writing sync.Mutex // held while writing to conn
	mu      sync.Mutex // guards pending
	pending map[string]chan json.RawMessage
}

// upgrader takes any Origin: real clients send that of Slack, and the ticket in
// the address is what lets them in.
var upgrader = websocket.Upgrader{CheckOrigin: func(*http.Request) bool { return true }}

func (w *Workspace) connectionsOpen(url.Values) answer {
	ticket := w.id("ticket-")
	w.tickets[ticket] = true
	return success(map[string]any{"url": "ws" + strings.TrimPrefix(w.url, "http") + "/socket?ticket=" + ticket})
}

// Sockets returns how many Socket Mode clients are connected.
func (w *Workspace) Sockets() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.sockets)
}

// Disconnect sends a disconnect message with that reason (warning,
// refresh_requested, link_disabled) to all Socket Mode clients and, except for
// a warning, closes the connections.
func (w *Workspace) Disconnect(reason string) {
	w.mu.Lock()
	sockets := slices.Clone(w.sockets)
	w.mu.Unlock()
	for _, s := range sockets {
		_ = s.write(map[string]any{"type": "disconnect", "reason": reason, "debug_info": map[string]any{"host": "slacksim"}})
		if reason != "warning" {
			w.drop(s)
		}
	}
}

// drop ends a connection.
func (w *Workspace) drop(s *socket) {
	w.mu.Lock()
	w.sockets = slices.DeleteFunc(w.sockets, func(other *socket) bool { return other == s })
	w.ring()
	w.mu.Unlock()
	_ = s.conn.Close()
}

// serveSocket is a Socket Mode connection's life.
func (w *Workspace) serveSocket(rw http.ResponseWriter, r *http.Request) {
	ticket := r.URL.Query().Get("ticket")
	w.mu.Lock()
	valid := w.tickets[ticket]
	delete(w.tickets, ticket)
	w.mu.Unlock()
	if !valid {
		http.Error(rw, "the ticket isn't valid or was used", http.StatusForbidden)
		return
	}
	conn, err := upgrader.Upgrade(rw, r, nil)
	if err != nil {
		return // The upgrader has answered.
	}
	s := &socket{conn: conn, pending: map[string]chan json.RawMessage{}}
	defer w.drop(s)
	if w.greet(s) != nil {
		return
	}
	done := make(chan struct{})
	defer close(done)
	go s.ping(done)
	for {
		var ack struct {
			EnvelopeID string          `json:"envelope_id"`
			Payload    json.RawMessage `json:"payload"`
		}
		_, message, err := conn.ReadMessage()
		if err != nil {
			return
		}
		if len(message) >= maxAcknowledgement || json.Unmarshal(message, &ack) != nil {
			continue
		}
		s.acknowledge(ack.EnvelopeID, ack.Payload)
	}
}

// greet adds a connection to those that get envelopes and sends hello. Holding
// back other writers meanwhile makes hello the first on the wire, and a client
// that has read it gets the next click.
func (w *Workspace) greet(s *socket) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	w.mu.Lock()
	w.sockets = append(w.sockets, s)
	connections := len(w.sockets)
	w.ring()
	w.mu.Unlock()
	return s.send(map[string]any{
		"type":            "hello",
		"num_connections": connections,
		"connection_info": map[string]any{"app_id": w.options.AppID},
		"debug_info":      map[string]any{"host": "slacksim", "approximate_connection_time": int(connectionTime.Seconds())},
	})
}

func (s *socket) ping(done <-chan struct{}) {
	ticker := time.NewTicker(pingInterval)
	defer ticker.Stop()
	for {
		if s.conn.WriteControl(websocket.PingMessage, []byte("slacksim"), time.Now().Add(socketWriteTimeout)) != nil {
			return
		}
		select {
		case <-ticker.C:
		case <-done:
			return
		}
	}
}

func (s *socket) write(message any) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	return s.send(message)
}

// send writes a message. The caller holds writing.
func (s *socket) send(message any) error {
	if err := s.conn.SetWriteDeadline(time.Now().Add(socketWriteTimeout)); err != nil {
		return err
	}
	return s.conn.WriteMessage(websocket.TextMessage, asJSON(message))
}

func (s *socket) acknowledge(envelopeID string, payload json.RawMessage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if acknowledged, ok := s.pending[envelopeID]; ok {
		delete(s.pending, envelopeID)
		acknowledged <- payload
	}
}

// expect returns where the acknowledgement of an envelope will arrive; the
// channel has room for it.
func (s *socket) expect(envelopeID string) <-chan json.RawMessage {
	s.mu.Lock()
	defer s.mu.Unlock()
	acknowledged := make(chan json.RawMessage, 1)
	s.pending[envelopeID] = acknowledged
	return acknowledged
}

func (s *socket) forget(envelopeID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.pending, envelopeID)
}

// deliverSocket sends a payload in an envelope to one of the connections, and
// once more in a new one if it isn't acknowledged.
func (w *Workspace) deliverSocket(ctx context.Context, payload json.RawMessage) Reply {
	reply := Reply{Shown: shownNoAnswer}
	for attempt := range 2 {
		s, envelopeID, ok := w.nextSocket()
		if !ok {
			return reply
		}
		acknowledged := s.expect(envelopeID)
		over, stop := w.startDeadline()
		err := s.write(envelope(envelopeID, payload, attempt))
		reply.Sent, reply.Attempts = true, attempt+1
		if err == nil {
			select {
			case reply.Body = <-acknowledged:
				reply.Status, reply.Shown = http.StatusOK, ""
			case <-over:
			case <-ctx.Done():
			}
		}
		stop()
		s.forget(envelopeID)
		if reply.Shown == "" || ctx.Err() != nil {
			return reply
		}
	}
	return reply
}

// nextSocket takes the connections in turn, as each interaction may go to any
// of them.
func (w *Workspace) nextSocket() (*socket, string, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.sockets) == 0 {
		return nil, "", false
	}
	w.next++
	return w.sockets[w.next%len(w.sockets)], w.id("envelope-"), true
}

func envelope(id string, payload json.RawMessage, attempt int) map[string]any {
	var kind struct {
		Type string `json:"type"`
	}
	_ = json.Unmarshal(payload, &kind) // A tampered payload may be of no type.
	message := map[string]any{
		"type":                     "interactive",
		"envelope_id":              id,
		"payload":                  payload,
		"accepts_response_payload": kind.Type == "view_submission",
	}
	if attempt > 0 {
		message["retry_attempt"] = attempt
		message["retry_reason"] = "timeout"
	}
	return message
}
