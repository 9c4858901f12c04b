package main

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/bot/slacksim"
	"github.com/countersign/countersign/web"
)

// patience bounds every wait on a real event. Nothing is measured by it.
const patience = 30 * time.Second

// world is the whole product with a simulated Slack: the demo's wiring, without
// the demo's agent.
type world struct {
	slack   *slacksim.Server
	options serverOptions
	server  *server
	stop    func() // stops the server and waits for its end
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := unstartedWorld(t)
	w.start(t)
	return w
}

// unstartedWorld is a world whose options can still be changed before start.
func unstartedWorld(t *testing.T) *world {
	t.Helper()
	slack, err := slacksim.Start(slacksim.Options{TeamID: demoWorkspace})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = slack.Close() })
	slack.SetChannel(slacksim.Channel{ID: demoChannel, Name: "agent-approvals"})
	for _, person := range demoPeople {
		slack.SetUser(person)
	}
	w := &world{slack: slack}
	w.options, err = demoOptions(t.TempDir(), slack, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// start runs the server until the test ends or stop is called. Started again, it
// is at the same address.
func (w *world) start(t *testing.T) {
	t.Helper()
	s, err := openServer(t.Context(), w.options)
	if err != nil {
		t.Fatal(err)
	}
	w.options.config.URL = s.config.URL
	w.options.config.Listen = s.listener.Addr().String()
	w.server = s
	w.slack.SetInteractivityURL(s.config.URL + "/slack/interactions")
	w.slack.SetRedirectURLs(s.config.URL + web.CallbackPath)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.run(ctx, nil) }()
	stopped := false
	w.stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the server ended with %v", err)
		}
	}
	t.Cleanup(w.stop)
}

// bridge is a process that passes a host's calls on to the server.
func (w *world) bridge(t *testing.T) *exec.Cmd {
	t.Helper()
	command := exec.CommandContext(t.Context(), "countersign", "mcp", "--server", w.options.config.URL)
	command.Env = append(os.Environ(), agentTokenVariable+"="+w.token(t, "crm-agent"))
	return command
}

func (w *world) token(t *testing.T, agent string) string {
	t.Helper()
	_, token, err := w.server.service.CreateToken(t.Context(), operator(), agent, approval.Approver{Workspace: demoWorkspace, User: demoOwner})
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// agent connects as an agent over HTTP.
func (w *world) agent(t *testing.T, token string) *sdk.ClientSession {
	t.Helper()
	return w.agentWith(t, token, nil)
}

func (w *world) agentWith(t *testing.T, token string, options *sdk.ClientOptions) *sdk.ClientSession {
	t.Helper()
	client := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, options)
	session, err := client.Connect(t.Context(), &sdk.StreamableClientTransport{
		Endpoint:             w.options.config.URL + "/mcp",
		HTTPClient:           &http.Client{Transport: bearer(token)},
		DisableStandaloneSSE: true,
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = session.Close() })
	return session
}

// ask requests approval and returns the request's id.
func ask(t *testing.T, session *sdk.ClientSession, request map[string]any) string {
	t.Helper()
	var asked struct{ ElicitationID, Status string }
	if err := call(t.Context(), session, "request_approval", request, &asked); err != nil {
		t.Fatal(err)
	}
	if asked.Status != "pending" {
		t.Fatalf("asked and got %s", asked.Status)
	}
	return asked.ElicitationID
}

// status calls await_approval or check_status.
func status(t *testing.T, session *sdk.ClientSession, tool, id string) string {
	t.Helper()
	var got struct{ Status string }
	if err := call(t.Context(), session, tool, map[string]any{"elicitationId": id}, &got); err != nil {
		t.Fatal(err)
	}
	return got.Status
}

// waiting calls await_approval in the background and returns once the server
// holds the call, with where its answer will be.
func (w *world) waiting(t *testing.T, token, id string) <-chan string {
	t.Helper()
	held := make(chan struct{}, 10)
	session := w.agentWith(t, token, &sdk.ClientOptions{
		ProgressNotificationHandler: func(context.Context, *sdk.ProgressNotificationClientRequest) { held <- struct{}{} },
	})
	return awaitHeld(t, session, held, id)
}

func awaitHeld(t *testing.T, session *sdk.ClientSession, held <-chan struct{}, id string) <-chan string {
	t.Helper()
	answer := make(chan string, 1)
	go func() {
		params := &sdk.CallToolParams{Name: "await_approval", Arguments: map[string]any{"elicitationId": id}}
		params.SetProgressToken("await")
		var got struct{ Status string }
		if err := callWith(t.Context(), session, params, &got); err != nil {
			got.Status = err.Error()
		}
		answer <- got.Status
	}()
	select {
	case <-held:
	case got := <-answer:
		t.Fatalf("await_approval answered %s at once", got)
	case <-time.After(patience):
		t.Fatal("await_approval showed no progress")
	}
	return answer
}

func apply(t *testing.T, session *sdk.ClientSession, id string) (json.RawMessage, error) {
	t.Helper()
	var got struct{ Payload json.RawMessage }
	err := call(t.Context(), session, "apply", map[string]any{"elicitationId": id}, &got)
	return got.Payload, err
}

// card waits until the channel has a card whose notification text satisfies the
// condition, and returns it.
func (w *world) card(t *testing.T, condition func(slacksim.Message) bool) slacksim.Message {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var found slacksim.Message
	err := w.slack.Wait(ctx, func() bool {
		for _, message := range w.slack.Messages(demoChannel) {
			if condition(message) {
				found = message
				return true
			}
		}
		return false
	})
	if err != nil {
		var texts []string
		for _, message := range w.slack.Messages(demoChannel) {
			texts = append(texts, message.Text)
		}
		t.Fatalf("no such card: %v; the channel has %q", err, texts)
	}
	return found
}

func (w *world) click(t *testing.T, person, ts, action string) slacksim.Reply {
	t.Helper()
	reply, err := w.slack.Click(t.Context(), person, demoChannel, ts, action)
	if err != nil {
		t.Fatal(err)
	}
	return reply
}
