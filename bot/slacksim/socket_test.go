package slacksim_test

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/gorilla/websocket"
	"github.com/slack-go/slack"
	"github.com/slack-go/slack/socketmode"

	"github.com/countersign/countersign/bot/slacksim"
)

// connect runs Slack's Socket Mode client and answers interactions with what a
// test says; nil acknowledges.
func connect(t *testing.T, server *slacksim.Server, answer func(*socketmode.Client, socketmode.Request)) <-chan socketmode.Event {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	connection := socketmode.New(client(server))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = connection.RunContext(ctx)
	}()
	seen := make(chan socketmode.Event, 100)
	go func() {
		for {
			select {
			case event := <-connection.Events:
				seen <- event
				if event.Type != socketmode.EventTypeInteractive {
					continue
				}
				if answer != nil {
					answer(connection, *event.Request)
				} else if err := connection.AckCtx(ctx, event.Request.EnvelopeID, nil); err != nil {
					t.Error(err)
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	waitSockets(t, server, 1)
	return seen
}

func waitSockets(t *testing.T, server *slacksim.Server, count int) {
	t.Helper()
	if err := server.Wait(deadline(t), func() bool { return server.Sockets() == count }); err != nil {
		t.Fatalf("%v: %d are connected", err, server.Sockets())
	}
}

// next returns the next event of that type.
func next(t *testing.T, seen <-chan socketmode.Event, kind socketmode.EventType) socketmode.Event {
	t.Helper()
	ctx := deadline(t)
	for {
		select {
		case event := <-seen:
			if event.Type == kind {
				return event
			}
		case <-ctx.Done():
			t.Fatalf("no %s came", kind)
		}
	}
}

func TestSocketMode(t *testing.T) {
	t.Parallel()
	server := start(t, slacksim.Options{})
	seen := connect(t, server, nil)
	hello := next(t, seen, socketmode.EventTypeHello).Request
	if hello.NumConnections != 1 || hello.ConnectionInfo.AppID != "A0DEMO" || hello.DebugInfo.ApproximateConnectionTime != 3600 {
		t.Errorf("hello is %+v", hello)
	}
	ts := post(t, server)
	reply, err := server.Click(deadline(t), "U0ADA", approvals, ts, "approve")
	if err != nil || !reply.OK() || reply.Attempts != 1 || reply.Status != http.StatusOK {
		t.Errorf("the reply is %+v, %v", reply, err)
	}
	event := next(t, seen, socketmode.EventTypeInteractive)
	callback := event.Data.(slack.InteractionCallback)
	if callback.User.ID != "U0ADA" || callback.ActionCallback.BlockActions[0].ActionID != "approve" || callback.Container.MessageTs != ts || event.Request.RetryAttempt != 0 {
		t.Errorf("the event is %+v", callback)
	}
}

// A submission's answer comes in the acknowledgement.
func TestSocketModeSubmission(t *testing.T) {
	t.Parallel()
	server := start(t, slacksim.Options{})
	seen := connect(t, server, func(c *socketmode.Client, r socketmode.Request) {
		var payload any
		if r.AcceptsResponsePayload {
			payload = slack.NewErrorsViewSubmissionResponse(map[string]string{"reason": "Too late"})
		}
		if err := c.Ack(r, payload); err != nil {
			t.Error(err)
		}
	})
	if _, err := server.Click(deadline(t), "U0ADA", approvals, post(t, server), "approve"); err != nil {
		t.Fatal(err)
	}
	callback := next(t, seen, socketmode.EventTypeInteractive).Data.(slack.InteractionCallback)
	if r := call(t, server, "views.open", "trigger_id", callback.TriggerID, "view", form); !r.OK {
		t.Fatal(r.Error)
	}
	view, _ := server.OpenView("U0ADA")
	reply, err := server.Submit(deadline(t), "U0ADA", view.ID, map[string]string{"reason": "fine"})
	if err != nil || reply.FieldErrors["reason"] != "Too late" {
		t.Errorf("the reply is %+v, %v", reply, err)
	}
	callback = next(t, seen, socketmode.EventTypeInteractive).Data.(slack.InteractionCallback)
	if got := callback.View.State.Values["reason"]["v"].Value; got != "fine" {
		t.Errorf("the reason is %q", got)
	}
}

// An envelope that isn't acknowledged comes once more, as another one.
func TestRedelivery(t *testing.T) {
	t.Parallel()
	server := start(t, slacksim.Options{})
	requests := make(chan socketmode.Request, 10)
	acknowledge := make(chan bool, 10)
	connect(t, server, func(c *socketmode.Client, r socketmode.Request) {
		requests <- r
		if <-acknowledge {
			if err := c.Ack(r); err != nil {
				t.Error(err)
			}
		}
	})
	ts := post(t, server)
	for _, test := range []struct {
		name  string
		again bool // the second is acknowledged
	}{{"the second time", true}, {"never", false}} {
		replied := make(chan slacksim.Reply, 1)
		go func() {
			reply, err := server.Click(deadline(t), "U0ADA", approvals, ts, "approve")
			if err != nil {
				t.Error(err)
			}
			replied <- reply
		}()
		first := <-requests
		acknowledge <- false
		server.PassAckDeadline()
		second := <-requests
		acknowledge <- test.again
		if !test.again {
			server.PassAckDeadline()
		}
		reply := <-replied
		if reply.OK() != test.again || reply.Attempts != 2 {
			t.Errorf("%s: %+v", test.name, reply)
		}
		if first.EnvelopeID == second.EnvelopeID || string(first.Payload) != string(second.Payload) || first.RetryAttempt != 0 ||
			second.RetryAttempt != 1 || second.RetryReason != "timeout" {
			t.Errorf("%s: %s %d %s after %s", test.name, second.EnvelopeID, second.RetryAttempt, second.RetryReason, first.EnvelopeID)
		}
	}
}

func TestDisconnect(t *testing.T) {
	t.Parallel()
	server := start(t, slacksim.Options{})
	seen := connect(t, server, nil)
	next(t, seen, socketmode.EventTypeHello)
	server.Disconnect("refresh_requested")
	next(t, seen, socketmode.EventTypeHello) // The client has connected anew.
	waitSockets(t, server, 1)
	if reply, err := server.Click(deadline(t), "U0ADA", approvals, post(t, server), "approve"); err != nil || !reply.OK() {
		t.Errorf("the reply is %+v, %v", reply, err)
	}
}

// dial connects by hand.
func dial(t *testing.T, server *slacksim.Server) *websocket.Conn {
	t.Helper()
	_, address, err := client(server).StartSocketModeContext(deadline(t))
	if err != nil {
		t.Fatal(err)
	}
	conn, response, err := websocket.DefaultDialer.Dial(address, http.Header{"Origin": {"https://api.slack.com"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(); _ = response.Body.Close() })
	return conn
}

// Of several connections each gets some of the clicks, and a ticket is for one
// connection.
func TestSeveralConnections(t *testing.T) {
	t.Parallel()
	server := start(t, slacksim.Options{})
	counts := make(chan int, 10)
	for n := range 2 {
		conn := dial(t, server)
		var hello struct {
			Type  string
			Count int `json:"num_connections"`
		}
		if err := conn.ReadJSON(&hello); err != nil || hello.Type != "hello" || hello.Count != n+1 {
			t.Fatalf("hello is %+v, %v", hello, err)
		}
		waitSockets(t, server, n+1)
		go func() {
			for {
				var envelope struct {
					ID string `json:"envelope_id"`
				}
				if conn.ReadJSON(&envelope) != nil {
					return
				}
				counts <- n
				_ = conn.WriteJSON(map[string]string{"envelope_id": "another"})
				_ = conn.WriteJSON(map[string]string{"envelope_id": envelope.ID})
			}
		}()
	}
	ts := post(t, server)
	got := map[int]int{}
	for range 4 {
		if reply, err := server.Click(deadline(t), "U0ADA", approvals, ts, "approve"); err != nil || !reply.OK() {
			t.Errorf("the reply is %+v, %v", reply, err)
		}
		got[<-counts]++
	}
	if got[0] != 2 || got[1] != 2 {
		t.Errorf("the clicks went to %v", got)
	}
	for _, address := range []string{"/socket", "/socket?ticket=ticket-000001"} {
		conn, response, err := websocket.DefaultDialer.Dial("ws"+strings.TrimPrefix(server.URL, "http")+address, nil)
		if err == nil {
			_ = conn.Close()
			t.Errorf("%s was let in", address)
		} else if response.StatusCode != http.StatusForbidden {
			t.Errorf("%s: %d", address, response.StatusCode)
		}
	}
}

// Slack drops a large acknowledgement without a word.
func TestLargeAcknowledgement(t *testing.T) {
	t.Parallel()
	server := start(t, slacksim.Options{})
	conn := dial(t, server)
	waitSockets(t, server, 1)
	go func() {
		for attempt := 0; ; {
			var envelope struct {
				ID      string `json:"envelope_id"`
				Payload json.RawMessage
			}
			if conn.ReadJSON(&envelope) != nil {
				return
			}
			if envelope.ID == "" {
				continue // hello
			}
			attempt++
			size := 20_000
			if attempt == 2 {
				size = 10_000
			}
			_ = conn.WriteJSON(map[string]string{"envelope_id": envelope.ID, "payload": longText(size)})
			if attempt == 1 {
				server.PassAckDeadline()
			}
		}
	}()
	reply, err := server.Click(deadline(t), "U0ADA", approvals, post(t, server), "approve")
	if err != nil || !reply.OK() || reply.Attempts != 2 {
		t.Errorf("the reply is %d attempts, %q, %v", reply.Attempts, reply.Shown, err)
	}
}

// A connection that ends stops counting, and clicks go to the Request URL
// again.
func TestBackToHTTP(t *testing.T) {
	t.Parallel()
	server := start(t, slacksim.Options{})
	a := answering(t, server, nil)
	conn := dial(t, server)
	waitSockets(t, server, 1)
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	waitSockets(t, server, 0)
	if reply, _ := a.click(t, "U0ADA", post(t, server), "approve"); !reply.OK() {
		t.Errorf("the reply is %+v", reply)
	}
}
