package slacksim

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"
)

// Options says what the workspace and its one app look like. The zero value is
// usable.
type Options struct {
	// TeamID and TeamName are the workspace; they default to T0DEMO and Demo.
	TeamID, TeamName string
	// EnterpriseID is set for a workspace inside a Grid organisation; empty
	// means a standalone workspace.
	EnterpriseID string
	// AppID, BotUserID and BotID are the app, its bot user (a person record in
	// users.info) and its bot record (the bot_id of messages). They default to
	// A0DEMO, U0BOT and B0BOT.
	AppID, BotUserID, BotID string
	// BotName is the bot's display name; it defaults to countersign.
	BotName string
	// BotToken authenticates the Web API; it defaults to xoxb-demo. AppToken
	// opens Socket Mode; it defaults to xapp-demo.
	BotToken, AppToken string
	// SigningSecret signs interactions; it defaults to demo-signing-secret.
	SigningSecret string
	// ClientID and ClientSecret are the app's for Sign in with Slack; they default
	// to 1.demo and demo-client-secret.
	ClientID, ClientSecret string
	// InteractivityURL is the app's Request URL. It can be set later with
	// SetInteractivityURL. While a Socket Mode client is connected,
	// interactions go there instead.
	InteractivityURL string
	// Scopes are the bot token's scopes. Nil means all that the simulated
	// methods need.
	Scopes []string
	// RateLimits turns Slack's documented rate limits on. Off by default, so
	// that tests that are about something else can be fast.
	RateLimits bool
	// Addr is where Start listens; it must be a loopback address and defaults
	// to 127.0.0.1:0, a free port.
	Addr string
	// Now is the workspace's clock: message timestamps, trigger and
	// response_url lifetimes, rate limits, signatures. Nil means time.Now.
	Now func() time.Time
	// Logger gets one line per API call and delivery, without tokens or
	// payloads. Nil means none.
	Logger *slog.Logger
}

// Workspace is the simulated Slack workspace. All methods are safe for
// concurrent use.
type Workspace struct {
	options Options
	now     func() time.Time
	log     *slog.Logger

	mu       sync.Mutex // guards all below
	changed  chan struct{}
	url      string // where this workspace is reached
	target   string // the app's Request URL
	serial   int    // the last number given to an id
	lastTS   int64  // the last message timestamp, in microseconds
	users    []User
	groups   []Group
	channels []Channel
	messages []*Message // normal and ephemeral, oldest first
	views    map[string]*view
	stacks   map[string][]string // person to the ids of their open views, bottom first
	triggers map[string]*trigger
	replies  map[string]*responseURL
	calls    []*Call
	faults   map[string][]*armedFault
	buckets  map[string]*bucket
	sockets  []*socket
	tickets  map[string]bool // of Socket Mode addresses that were handed out
	next     int             // which socket gets the next envelope
	waiting  map[chan struct{}]bool
	consoles []*Console

	redirects []string // where people who sign in may be sent
	codes     map[string]signInCode
	key       signInKey
}

// New makes an empty workspace: its bot user exists, nobody else, and no
// channels.
func New(options Options) *Workspace {
	defaultTo := func(field *string, value string) {
		if *field == "" {
			*field = value
		}
	}
	defaultTo(&options.TeamID, "T0DEMO")
	defaultTo(&options.TeamName, "Demo")
	defaultTo(&options.AppID, "A0DEMO")
	defaultTo(&options.BotUserID, "U0BOT")
	defaultTo(&options.BotID, "B0BOT")
	defaultTo(&options.BotName, "countersign")
	defaultTo(&options.BotToken, "xoxb-demo")
	defaultTo(&options.AppToken, "xapp-demo")
	defaultTo(&options.SigningSecret, "demo-signing-secret")
	defaultTo(&options.ClientID, "1.demo")
	defaultTo(&options.ClientSecret, "demo-client-secret")
	defaultTo(&options.Addr, "127.0.0.1:0")
	w := &Workspace{
		options:  options,
		now:      options.Now,
		log:      options.Logger,
		changed:  make(chan struct{}),
		target:   options.InteractivityURL,
		views:    map[string]*view{},
		stacks:   map[string][]string{},
		triggers: map[string]*trigger{},
		replies:  map[string]*responseURL{},
		faults:   map[string][]*armedFault{},
		buckets:  map[string]*bucket{},
		tickets:  map[string]bool{},
		waiting:  map[chan struct{}]bool{},
		codes:    map[string]signInCode{},
	}
	if options.Scopes == nil {
		w.options.Scopes = allScopes()
	}
	w.users = []User{{ID: options.BotUserID, Name: options.BotName, RealName: options.BotName, Bot: true}}
	if w.now == nil {
		w.now = time.Now
	}
	if w.log == nil {
		w.log = slog.New(slog.DiscardHandler)
	}
	return w
}

// Options returns the options in use, with defaults filled in, so that a test
// can configure the app from them.
func (w *Workspace) Options() Options { return w.options }

// SetURL tells a workspace that is served by something other than Start where
// it is reachable, such as http://127.0.0.1:4000. It is needed for response_url
// and Socket Mode addresses.
func (w *Workspace) SetURL(url string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.url = strings.TrimRight(url, "/")
}

// APIURL is what a Slack client takes as its API address, with the trailing
// slash: http://127.0.0.1:4000/api/.
func (w *Workspace) APIURL() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.url + "/api/"
}

// SetInteractivityURL sets the app's Request URL, where interactions are sent
// while no Socket Mode client is connected.
func (w *Workspace) SetInteractivityURL(url string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.target = url
}

// Changed returns a channel that is closed at the next change of anything the
// workspace holds (messages, views, calls, connections, consoles). Take it,
// then read, then wait on it: a change in between isn't missed.
func (w *Workspace) Changed() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.changed
}

// waitTick is how often Wait looks without being told of a change.
const waitTick = 20 * time.Millisecond

// Wait returns nil once condition is true, checking it now, after each change
// of the workspace, and every few milliseconds for what the workspace can't
// see, such as the app's own state. When ctx ends first, it returns ctx's
// error.
func (w *Workspace) Wait(ctx context.Context, condition func() bool) error {
	ticker := time.NewTicker(waitTick)
	defer ticker.Stop()
	for {
		changed := w.Changed()
		if condition() {
			return nil
		}
		select {
		case <-changed:
		case <-ticker.C:
		case <-ctx.Done():
			return fmt.Errorf("waiting for the workspace: %w", context.Cause(ctx))
		}
	}
}

// ring wakes everyone who waits on Changed. The caller holds mu.
func (w *Workspace) ring() {
	close(w.changed)
	w.changed = make(chan struct{})
}

// id returns a new id: a prefix that says of what, and a number. The caller
// holds mu.
func (w *Workspace) id(prefix string) string {
	w.serial++
	return fmt.Sprintf("%s%06d", prefix, w.serial)
}

// timestamp returns the id of a message posted now. It is unique and increases,
// whatever the clock does. The caller holds mu.
func (w *Workspace) timestamp() string {
	w.lastTS = max(w.lastTS+1, w.now().UnixMicro())
	return fmt.Sprintf("%d.%06d", w.lastTS/1e6, w.lastTS%1e6)
}
