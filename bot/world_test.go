package bot_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/approval/approvaltest"
	"github.com/countersign/countersign/bot"
	"github.com/countersign/countersign/bot/slacksim"
	"github.com/countersign/countersign/db"
	"github.com/countersign/countersign/policy"
)

const channel = "C0APPROVALS"

// world is a workspace with our app in it, over a real store.
type world struct {
	t       testing.TB
	slack   *slacksim.Server
	store   *faultyStore
	options bot.Options
	policy  terms
	service *approval.Service
	bot     *bot.Bot
	agent   approval.Agent
	log     *logBook
	clock   *approvaltest.Clock // the service's
	asked   int                 // requests so far

	endpoint atomic.Pointer[http.Handler] // where Slack posts interactions
	end      func()                       // has Run end
	stop     func()                       // ends Run and waits for it
}

// newWorld makes a workspace in which Ada and Grace are on call, the group
// finance has Frank, and Alan is the person that the agent acts for. The app is
// there but doesn't run yet.
func newWorld(t testing.TB, change ...func(*world)) *world {
	t.Helper()
	slack, err := slacksim.Start(slacksim.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = slack.Close() })
	for _, user := range []slacksim.User{
		{ID: "U0ADA", Name: "ada"},
		{ID: "U0GRACE", Name: "grace"},
		{ID: "U0FRANK", Name: "frank"},
		{ID: "U0ALAN", Name: "alan"},
		{ID: "U0EVE", Name: "eve"},
		{ID: "U0GUEST", Name: "guest", Restricted: true},
		{ID: "U0SINGLE", Name: "single", UltraRestricted: true},
		{ID: "U0GONE", Name: "gone", Deleted: true},
		{ID: "U0ROBOT", Name: "robot", Bot: true},
		{ID: "U0FLOW", Name: "flow", Bot: true, WorkflowBot: true},
		{ID: "U0OTHER", Name: "other", TeamID: "T0OTHER"},
		{ID: "U0STRANGER", Name: "stranger", TeamID: "T0OTHER", Stranger: true},
	} {
		slack.SetUser(user)
	}
	slack.SetGroup(slacksim.Group{ID: "S0FINANCE", Handle: "finance", Name: "Finance", Users: []string{"U0FRANK", "U0GUEST"}})
	slack.SetChannel(slacksim.Channel{ID: channel, Name: "approvals"})
	settings := slack.Options()
	w := &world{
		t:     t,
		slack: slack,
		store: &faultyStore{DB: approvaltest.New(t).Store},
		log:   new(logBook),
		clock: new(approvaltest.Clock),
		policy: terms{
			oncall:   "{users: [U0ADA, U0GRACE, U0ALAN, U0GUEST, U0SINGLE, U0GONE, U0ROBOT, U0FLOW, U0OTHER, U0STRANGER]}",
			finance:  "{groups: [S0FINANCE]}",
			requires: "[{role: oncall}]",
		},
		agent: approval.Agent{Name: "crm-agent", Owner: approval.Approver{Workspace: settings.TeamID, User: "U0ALAN"}},
	}
	w.clock.Set(time.Now())
	w.options = bot.Options{
		Token:          settings.BotToken,
		SigningSecrets: []string{settings.SigningSecret},
		Workspace:      settings.TeamID,
		Channel:        channel,
		APIURL:         slack.APIURL(),
		Logger:         slog.New(slog.NewTextHandler(w.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	for _, c := range change {
		c(w)
	}
	web := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if handler := w.endpoint.Load(); handler != nil {
			(*handler).ServeHTTP(rw, r)
			return
		}
		http.Error(rw, "down", http.StatusBadGateway)
	}))
	t.Cleanup(web.Close)
	slack.SetInteractivityURL(web.URL + "/slack/interactions")
	w.install()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the log:\n%s", w.log)
		}
	})
	return w
}

// overSocket has the app use Socket Mode only.
func overSocket(w *world) {
	w.options.AppToken = w.slack.Options().AppToken
	w.options.SigningSecrets = nil
}

func needsFinance(w *world) {
	w.policy.requires = "[{role: finance}]"
}

func needsTwo(w *world) {
	w.policy.requires = "[{role: oncall}, {role: finance}]"
}

// terms are what tests say in a policy file: two roles, what approving takes,
// further keys of approval, and further keys of the file.
type terms struct {
	oncall, finance, requires string
	approval, more            string
}

func (p terms) parse(t testing.TB) *policy.Policy {
	t.Helper()
	return approvaltest.ParsePolicy(t, `
version: 1
mode: cautious
roles:
  oncall: `+p.oncall+`
  finance: `+p.finance+`
approval:
  requires: `+p.requires+p.approval+`
limits: {pending: 1000, per_minute: 1000, cooldown: 0s}
`+p.more)
}

// install makes the service and the bot anew over the same store, as a restart
// does.
func (w *world) install() {
	w.t.Helper()
	directory, err := bot.NewDirectory(w.options)
	if err != nil {
		w.t.Fatal(err)
	}
	w.service, err = approval.New(w.store, directory, approval.Options{
		Policy:       w.policy.parse(w.t),
		Destinations: []string{bot.Destination(channel)},
		Now:          w.clock.Now,
		Logger:       w.options.Logger,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	if w.bot, err = bot.New(w.options, w.service, w.store); err != nil {
		w.t.Fatal(err)
	}
	w.bot.ShrinkPace()
	handler := w.bot.Interactions()
	w.endpoint.Store(&handler)
}

// run runs the bot until the test ends or it is stopped.
func (w *world) run() {
	w.t.Helper()
	w.runWithoutWaiting()
	if w.options.AppToken != "" {
		w.ready()
	}
}

func (w *world) runWithoutWaiting() {
	w.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := w.bot.Run(ctx); err != nil {
			w.t.Errorf("running the bot: %v", err)
		}
	}()
	var once sync.Once
	w.end = cancel
	w.stop = func() {
		once.Do(func() {
			cancel()
			<-ended
		})
	}
	w.t.Cleanup(w.stop)
}

// deadline is how long a test waits for what must happen.
const deadline = 20 * time.Second

func (w *world) context() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	w.t.Cleanup(cancel)
	return ctx
}

// wait waits until something is so in the workspace.
func (w *world) wait(what string, so func() bool) {
	w.t.Helper()
	if err := w.slack.Wait(w.context(), so); err != nil {
		w.t.Fatalf("waiting for %s: %v; messages: %s", what, err, indentedText(w.slack.Messages(channel)))
	}
}

func indentedText(value any) string {
	data, err := json.MarshalIndent(value, "", " ")
	if err != nil {
		return err.Error()
	}
	return string(data)
}

// ask makes a request that deletes records. Each has a target of its own,
// because the same isn't asked twice.
func (w *world) ask(change ...func(*approval.Proposal)) *approval.Request {
	w.t.Helper()
	p := approval.Proposal{
		Purpose:     "Remove customers who left",
		Action:      "crm.delete_records",
		Target:      "crm / customers",
		Environment: "production",
		Payload:     []byte(`{"ids": [9007199254740993, 2, 3]}`),
	}
	if w.asked++; w.asked > 1 {
		p.Target += " " + strconv.Itoa(w.asked)
	}
	for _, c := range change {
		c(&p)
	}
	r, err := w.service.Request(w.context(), w.agent, p)
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

// big makes a payload that doesn't fit a card.
func big(p *approval.Proposal) { p.Payload = idsPayload(2000) }

// huge makes a payload that fits no modal.
func huge(p *approval.Proposal) { p.Payload = []byte(`["` + strings.Repeat("<&>", 80_000) + `"]`) }

// now is the request as it is.
func (w *world) now(id approval.ID) *approval.Request {
	w.t.Helper()
	r, err := w.service.Status(w.context(), w.agent, id)
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

// is requires that the request has this status.
func (w *world) is(r *approval.Request, want approval.Status) {
	w.t.Helper()
	if got := w.now(r.ID).Status; got != want {
		w.t.Errorf("the request is %s, want %s", got, want)
	}
}

// edit has Grace make version 2 of the request, on one record.
func (w *world) edit(r *approval.Request) {
	w.t.Helper()
	editor := approval.Approver{Workspace: "T0DEMO", User: "U0GRACE"}
	if _, err := w.service.Edit(w.context(), editor, r.ID, 1, []byte(`{"ids": [1]}`), approval.Slack); err != nil {
		w.t.Fatal(err)
	}
}

// card waits until the request's one card shows what the text says, and returns
// it.
func (w *world) card(r *approval.Request, says string) slacksim.Message {
	w.t.Helper()
	var found slacksim.Message
	w.wait("a card that says "+says, func() bool {
		all := w.cards(r)
		if len(all) != 1 {
			return false
		}
		found = all[0]
		return strings.Contains(found.Text, says)
	})
	return found
}

// cards are all cards of the request.
func (w *world) cards(r *approval.Request) []slacksim.Message { return w.about(r, "countersign_card") }

// reminders are all reminders of the request.
func (w *world) reminders(r *approval.Request) []slacksim.Message {
	return w.about(r, "countersign_reminder")
}

func (w *world) about(r *approval.Request, event string) []slacksim.Message {
	var all []slacksim.Message
	for _, m := range w.slack.Messages(channel) {
		if m.Metadata.EventType == event && strings.Contains(string(m.Metadata.EventPayload), string(r.ID)) {
			all = append(all, m)
		}
	}
	return all
}

// click has somebody press a button of the request's card.
func (w *world) click(user string, r *approval.Request, action string) slacksim.Reply {
	w.t.Helper()
	reply, err := w.slack.Click(w.context(), user, channel, w.cards(r)[0].TS, action)
	if err != nil {
		w.t.Fatal(err)
	}
	return reply
}

// submit has somebody submit the modal that they see.
func (w *world) submit(user string, view slacksim.View, reason string) slacksim.Reply {
	w.t.Helper()
	reply, err := w.slack.Submit(w.context(), user, view.ID, map[string]string{"reason": reason})
	if err != nil {
		w.t.Fatal(err)
	}
	return reply
}

// sweep records what is due, once something else than that shows that it was.
func (w *world) sweep(until func()) {
	w.t.Helper()
	ctx, cancel := context.WithCancel(w.context())
	var sweeping sync.WaitGroup
	sweeping.Go(func() { w.service.Sweep(ctx) })
	until()
	cancel()
	sweeping.Wait()
}

// payload is what Slack sends when somebody presses a button of the card.
func (w *world) payload(user string, card slacksim.Message, action string) []byte {
	w.t.Helper()
	payload, err := w.slack.ClickPayload(user, channel, card.TS, action)
	if err != nil {
		w.t.Fatal(err)
	}
	return payload
}

// altered is an interaction's payload with something else in it.
func (w *world) altered(payload []byte, change func(map[string]any)) []byte {
	w.t.Helper()
	var value map[string]any
	if err := json.Unmarshal(payload, &value); err != nil {
		w.t.Fatal(err)
	}
	change(value)
	data, err := json.Marshal(value)
	if err != nil {
		w.t.Fatal(err)
	}
	return data
}

// told waits until somebody was shown a line that only they see, and returns
// it.
func (w *world) told(user, says string) {
	w.t.Helper()
	w.wait(user+" to be told "+says, func() bool {
		for _, m := range w.slack.Ephemerals(user) {
			if strings.Contains(m.Text, says) {
				return true
			}
		}
		return false
	})
}

// modal waits until somebody sees a modal that says something.
func (w *world) modal(user, says string) slacksim.View {
	w.t.Helper()
	var found slacksim.View
	w.wait(user+" to see a window that says "+says, func() bool {
		view, ok := w.slack.OpenView(user)
		found = view
		return ok && strings.Contains(strings.Join(parts(w.t.(fataler), view.Blocks).texts, "\n"), says)
	})
	return found
}

// faultyStore is a store that can be made to refuse changes or what is read.
type faultyStore struct {
	*db.DB
	full atomic.Bool
}

func (s *faultyStore) Update(ctx context.Context, id approval.ID, change func(*approval.Request) error) (*approval.Request, error) {
	if s.full.Load() {
		return nil, approval.ErrUnavailable
	}
	return s.DB.Update(ctx, id, change)
}

// logBook keeps what was logged.
type logBook struct {
	mu      sync.Mutex
	text    strings.Builder
	changed chan struct{} // closed at the next line
}

func (l *logBook) Write(data []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.changed != nil {
		close(l.changed)
		l.changed = nil
	}
	return l.text.Write(data)
}

func (l *logBook) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// next is closed when another line is written.
func (l *logBook) next() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.changed == nil {
		l.changed = make(chan struct{})
	}
	return l.changed
}

// ready waits until the bot is ready. It logs what makes it so.
func (w *world) ready() {
	w.t.Helper()
	ctx := w.context()
	for {
		next := w.log.next()
		err := w.bot.Ready()
		if err == nil {
			return
		}
		select {
		case <-next:
		case <-ctx.Done():
			w.t.Fatalf("the bot isn't ready: %v", err)
		}
	}
}

// waitLog waits until something was logged.
func (w *world) waitLog(says string) {
	w.t.Helper()
	ctx := w.context()
	for {
		next := w.log.next()
		if strings.Contains(w.log.String(), says) {
			return
		}
		select {
		case <-next:
		case <-ctx.Done():
			w.t.Fatalf("the log doesn't say %q", says)
		}
	}
}
