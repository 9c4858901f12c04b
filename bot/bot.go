// Package bot is the Slack side: it posts a card for each request and keeps it
// up to date, and turns what verified people click into decisions.
//
// It decides nothing itself. What Slack signed, or sent over a connection that
// our token opened, says who acted; approval.Service says what that comes to.
// A decision is stored before Slack is acknowledged, so an acknowledged click
// is never lost, and one that couldn't be stored shows Slack's error.
//
// Text from an agent stands only where Slack parses nothing, with hidden
// characters made visible, and what a card leaves out is said and can't be
// approved from that card.
package bot

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/slack-go/slack"
	"golang.org/x/sync/errgroup"

	"github.com/countersign/countersign/approval"
)

// Options say which Slack app, workspace and channel to work with.
type Options struct {
	// Token is the bot token, "xoxb-…".
	Token string
	// AppToken is the app-level token, "xapp-…", for Socket Mode. Empty means
	// that clicks arrive over HTTP only.
	AppToken string
	// SigningSecrets prove that an HTTP request comes from Slack: the current
	// secret and, while it is replaced, the previous one. May be empty with an
	// AppToken; an empty secret among them is refused.
	SigningSecrets []string
	// Workspace is the team id of the one workspace whose people decide, such
	// as T024BE7LD.
	Workspace string
	// Channel is the id of the channel that cards are posted to, such as
	// C024BE91L.
	Channel string
	// AllowSharedChannel posts to the channel even if it is shared with another
	// organisation.
	AllowSharedChannel bool
	// APIURL is the Web API's address, ending in /. Empty means Slack's own.
	APIURL string
	// ReviewURL is where people who sign in decide on a request outside of Slack;
	// nil if they can't.
	ReviewURL func(approval.ID) string
	// Now is the clock; nil means time.Now.
	Now func() time.Time
	// Logger gets what nobody is told otherwise; nil discards it.
	Logger *slog.Logger
}

var (
	workspaceID = regexp.MustCompile(`^T[A-Z0-9]{2,30}$`)
	channelID   = regexp.MustCompile(`^[CGD][A-Z0-9]{2,30}$`)
)

// reviewURL is where a request can be decided outside of Slack; empty if it can't.
func (o *Options) reviewURL(id approval.ID) string {
	if o.ReviewURL == nil {
		return ""
	}
	return o.ReviewURL(id)
}

// check fills in the defaults and reports everything that is wrong.
func (o *Options) check() error {
	var problems []error
	problem := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	if o.Token == "" {
		problem("the bot token is missing; it is on the Slack app's OAuth & Permissions page")
	}
	if !workspaceID.MatchString(o.Workspace) {
		problem("%q is not a workspace id (like T024BE7LD)", o.Workspace)
	}
	if !channelID.MatchString(o.Channel) {
		problem("%q is not a channel id (like C024BE91L)", o.Channel)
	}
	if o.APIURL == "" {
		o.APIURL = slack.APIURL
	}
	if u, err := url.Parse(o.APIURL); err != nil || u.Host == "" || !strings.HasSuffix(o.APIURL, "/") {
		problem("%q is not an address of a Web API, which ends in /", o.APIURL)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return errors.Join(problems...)
}

// How long one call to Slack may take. While a person waits for an answer there
// are three seconds in all.
const (
	deliveryTimeout    = 5 * time.Second
	interactiveTimeout = 2 * time.Second
)

// client is a Slack client that gives up after timeout and retries nothing: the
// outbox decides when something is sent again, and a person can press again.
func (o *Options) client(timeout time.Duration) *slack.Client {
	return slack.New(o.Token,
		slack.OptionAPIURL(o.APIURL),
		slack.OptionHTTPClient(httpClient(timeout)),
		slack.OptionAppLevelToken(o.AppToken))
}

func httpClient(timeout time.Duration) *http.Client {
	return &http.Client{
		Timeout: timeout,
		// Slack's API doesn't redirect, and a token must not follow.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// Destination names a channel for approval.Options.Destinations. Use it with
// the channel that the Options name.
func Destination(channel string) string { return "slack:" + channel }

// Bot is a Slack app at work. Make it with New.
type Bot struct {
	options  Options
	service  *approval.Service
	verifier verifier
	slack    *slack.Client // while a person waits
	filler   *slack.Client // to fill a modal that is open
	web      *http.Client  // for response URLs
	delivery *delivery
	health   health
	appID    known

	acknowledged atomic.Bool // whether Socket Mode acknowledged anything
	background   sync.WaitGroup
	stopping     context.Context // ends when Run is to end
	stop         context.CancelFunc
}

// New returns a Bot over a service and the outbox of its store. It refuses
// options under which no click could arrive, or could be forged.
func New(options Options, service *approval.Service, outbox Outbox) (*Bot, error) {
	if err := options.check(); err != nil {
		return nil, fmt.Errorf("checking the Slack options: %w", err)
	}
	if len(options.SigningSecrets) == 0 && options.AppToken == "" {
		return nil, errors.New("no click could arrive: a signing secret (for HTTP) or an app token (for Socket Mode) is needed")
	}
	verifier, err := newVerifier(options.SigningSecrets, options.Now)
	if err != nil {
		return nil, err
	}
	b := &Bot{
		options:  options,
		service:  service,
		verifier: verifier,
		slack:    options.client(interactiveTimeout),
		filler:   options.client(deliveryTimeout),
		web:      httpClient(interactiveTimeout),
	}
	b.stopping, b.stop = context.WithCancel(context.Background())
	b.health.set(deliveryPart, errNotReached)
	if options.AppToken != "" {
		b.health.set(socketPart, errDisconnected)
	}
	b.delivery = newDelivery(options, service.Bell(), outbox, &b.health)
	return b, nil
}

// Run delivers cards and, with an app token, receives clicks over Socket Mode,
// until ctx ends; then it lets what is in flight finish, for at most a few
// seconds, and returns nil. It returns an error only if the bot token belongs
// to another workspace: then nothing was posted.
func (b *Bot) Run(ctx context.Context) error {
	work, ctx := errgroup.WithContext(ctx)
	defer context.AfterFunc(ctx, b.stop)()
	work.Go(func() error {
		if err := b.delivery.introduce(ctx); err != nil {
			return err
		}
		work.Go(func() error {
			b.delivery.runPersonal(ctx)
			return nil
		})
		b.delivery.run(ctx)
		return nil
	})
	if b.options.AppToken != "" {
		work.Go(func() error {
			b.runSocket(ctx)
			return nil
		})
	}
	err := work.Wait()
	b.background.Wait()
	return err
}

// Ready returns nil while cards can be delivered and clicks can arrive, as far
// as is known, and otherwise what is wrong. It is an error until Run has reached
// Slack and, with an app token, Slack has greeted the connection.
func (b *Bot) Ready() error { return b.health.problem() }

// later runs something that Slack's acknowledgement doesn't wait for. Run waits
// for it, but not for much longer than for a delivery when it is to end.
func (b *Bot) later(what func(context.Context)) {
	b.background.Go(func() {
		ctx, stop := lingering(b.stopping, shutdownGrace)
		defer stop()
		ctx, cancel := context.WithTimeout(ctx, deliveryTimeout)
		defer cancel()
		what(ctx)
	})
}
