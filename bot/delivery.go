package bot

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/slack-go/slack"
	"golang.org/x/time/rate"

	"github.com/countersign/countersign/approval"
)

// Outbox is what a destination still has to be told, as the store keeps it. It
// holds states and no messages: what is sent is the request as it is when it is
// sent, so notices coalesce and can't overtake each other.
type Outbox interface {
	// LeaseNotice takes the due notice that has waited longest, until the given
	// time, with its request as it is now. false if none can be had.
	LeaseNotice(ctx context.Context, destination string, now, until time.Time) (approval.Notice, *approval.Request, bool, error)
	// SettleNotice records what became of a leased notice.
	SettleNotice(ctx context.Context, n approval.Notice, s approval.Settlement, now time.Time) error
	// NextNotice says when the next due notice can be leased; the zero time is
	// at once. false if none is due.
	NextNotice(ctx context.Context, destination string, now time.Time) (time.Time, bool, error)

	// LeasePersonalNotice takes the oldest notice for a person of a workspace,
	// until the given time. false if none can be had.
	LeasePersonalNotice(ctx context.Context, workspace string, now, until time.Time) (approval.PersonalNotice, bool, error)
	// SettlePersonalNotice records what became of it.
	SettlePersonalNotice(ctx context.Context, n approval.PersonalNotice, s approval.Settlement) error
	// NextPersonalNotice is NextNotice for people of a workspace.
	NextPersonalNotice(ctx context.Context, workspace string, now time.Time) (time.Time, bool, error)
}

// pace is how fast and how often things are sent.
type pace struct {
	every time.Duration // between two messages, after a burst; Slack allows one a second in a channel
	burst int
	first time.Duration // before the second attempt; it doubles from attempt to attempt
	most  time.Duration // between attempts
	slow  time.Duration // between attempts that need somebody to do something
	doubt time.Duration // before a message whose arrival is in doubt is looked for
}

var defaultPace = pace{
	every: time.Second,
	burst: 3,
	first: time.Second,
	most:  time.Minute,
	slow:  time.Minute,
	doubt: 3 * time.Second,
}

const (
	// leaseTime is how long a delivery may take with everything around it. It
	// is also how long a card may be late after a crash in the middle of one.
	leaseTime = 15 * time.Second
	// shutdownGrace is how long a delivery in flight may go on when the bot
	// stops. What it doesn't finish is looked for at the next start.
	shutdownGrace = 2 * time.Second
	// outboxRetry is how long to wait when the store doesn't answer.
	outboxRetry = 5 * time.Second
)

// delivery tells one channel of requests, and people of their own accounts.
type delivery struct {
	options     Options
	destination string
	bell        *approval.Bell
	outbox      Outbox
	slack       *slack.Client
	history     history
	pace        pace
	limiter     *rate.Limiter
	health      *health
	log         *slog.Logger

	failures     int       // calls that failed in a row
	sharingKnown time.Time // until when the channel's sharing needs no new look
}

func newDelivery(options Options, bell *approval.Bell, outbox Outbox, health *health) *delivery {
	d := &delivery{
		options:     options,
		destination: Destination(options.Channel),
		bell:        bell,
		outbox:      outbox,
		slack:       options.client(deliveryTimeout),
		history:     newHistory(options),
		health:      health,
		log:         options.Logger.With("destination", Destination(options.Channel)),
	}
	d.keep(defaultPace)
	return d
}

func (d *delivery) keep(p pace) {
	d.pace = p
	d.limiter = rate.NewLimiter(rate.Every(p.every), p.burst)
}

// run delivers cards until ctx ends.
func (d *delivery) run(ctx context.Context) {
	d.attend(ctx, d.destination, d.outbox.NextNotice, d.deliverNext)
}

// runPersonal tells people of their own accounts until ctx ends.
func (d *delivery) runPersonal(ctx context.Context) {
	d.attend(ctx, d.options.Workspace, d.outbox.NextPersonalNotice, d.tellNext)
}

// attend does what next says is due for whom, until ctx ends. do returns how long
// to rest before the next.
func (d *delivery) attend(ctx context.Context, whom string, next func(context.Context, string, time.Time) (time.Time, bool, error), do func(context.Context) time.Duration) {
	changed, stop := d.bell.ListenAll()
	defer stop()
	for ctx.Err() == nil {
		now := d.options.Now()
		at, due, err := next(ctx, whom, now)
		switch wait := at.Sub(now); {
		case err != nil:
			if ctx.Err() == nil {
				d.log.Error("looking for something to deliver", "err", err)
			}
			sleep(ctx, outboxRetry, nil)
		case !due:
			sleep(ctx, time.Hour, changed)
		case wait > 0:
			sleep(ctx, wait, changed)
		case d.limiter.Wait(ctx) == nil:
			sleep(ctx, do(ctx), nil)
		}
	}
}

// sleep waits for a time, for the bell if there is one, or for ctx to end.
func sleep(ctx context.Context, wait time.Duration, rung <-chan struct{}) {
	if wait <= 0 {
		return
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-rung:
	case <-ctx.Done():
	}
}

// introduce finds out who we are, before anything is posted. The error says that
// the token is another workspace's.
func (d *delivery) introduce(ctx context.Context) error {
	for attempt := 1; ctx.Err() == nil; attempt++ {
		self, err := d.slack.AuthTestContext(ctx)
		if err == nil && self.TeamID == "" {
			err = errors.New("the answer says nothing")
		}
		if err == nil && self.TeamID != d.options.Workspace {
			return fmt.Errorf("the bot token belongs to the workspace %s (%s), not to %s", self.TeamID, self.Team, d.options.Workspace)
		}
		if err == nil {
			d.history.self = self
			d.health.set(deliveryPart, nil)
			d.log.Info("delivering to Slack", "workspace", self.TeamID, "user", self.UserID)
			return nil
		}
		wait := d.backoff(attempt)
		if classify(err) == misconfigured {
			wait = d.pace.slow
		}
		wait = max(wait, retryAfter(err))
		if ctx.Err() == nil {
			d.failed("asking Slack who we are", err, wait)
		}
		sleep(ctx, wait, nil)
	}
	return nil
}

// failed logs a failure with what to do about it.
func (d *delivery) failed(doing string, err error, wait time.Duration, more ...any) {
	attributes := append([]any{"err", explained(err), "next_attempt_in", wait.String()}, more...)
	// Who reads in the log that something is wrong must not be told that all is
	// well.
	if todo := remedy(code(err)); todo != "" {
		d.health.set(deliveryPart, fmt.Errorf("%s: %w: %s", doing, err, todo))
		d.log.Error(doing, append(attributes, "todo", todo)...)
		return
	}
	d.health.set(deliveryPart, fmt.Errorf("%s: %w", doing, err))
	d.log.Warn(doing, attributes...)
}

func (d *delivery) backoff(attempts int) time.Duration {
	wait := d.pace.first
	for i := 1; i < attempts && wait < d.pace.most; i++ {
		wait *= 2
	}
	return min(wait, d.pace.most)
}

// deliverNext delivers one notice and returns how long the whole destination
// has to rest then.
func (d *delivery) deliverNext(ctx context.Context) time.Duration {
	ctx, stop := lingering(ctx, shutdownGrace)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, leaseTime)
	defer cancel()
	now := d.options.Now()
	notice, r, ok, err := d.outbox.LeaseNotice(ctx, d.destination, now, now.Add(leaseTime))
	if err != nil {
		d.log.Error("taking something to deliver", "err", err)
		return outboxRetry
	}
	if !ok {
		return 0
	}
	settlement, rest := d.deliver(ctx, notice, r)
	// What happened is recorded even if the bot is stopping.
	settling, cancel := context.WithTimeout(context.WithoutCancel(ctx), deliveryTimeout)
	defer cancel()
	if err := d.outbox.SettleNotice(settling, notice, settlement, d.options.Now()); err != nil {
		// The lease ends by itself; a message that arrived is found again.
		d.log.Error("recording a delivery", "request_id", notice.Request, "err", err)
		return outboxRetry
	}
	return rest
}

// lingering is a context that ends a while after its parent.
func lingering(parent context.Context, grace time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(parent))
	stop := context.AfterFunc(parent, func() {
		timer := time.AfterFunc(grace, cancel)
		context.AfterFunc(ctx, func() { timer.Stop() })
	})
	return ctx, func() {
		stop()
		cancel()
	}
}

// deliver brings the channel's message to the request's state, and tells people
// below it what is to be told.
func (d *delivery) deliver(ctx context.Context, n approval.Notice, r *approval.Request) (approval.Settlement, time.Duration) {
	s := approval.Settlement{Reference: n.Reference, SentRevision: n.SentRevision}
	if s.Reference == "" && n.Uncertain {
		found, err := d.history.find(ctx, r)
		switch {
		case err == nil:
			s.Reference = found // "" if it isn't there
		case classify(err) == misconfigured || classify(err) == refused:
			// A second card does no harm: both are about one request. A
			// missing one would.
			d.log.Warn("can't look whether a card arrived, so it may be posted twice", "request_id", r.ID, "err", explained(err))
		default:
			s.Uncertain = true
			return d.postpone(s, n, "looking for a card that may have arrived", err)
		}
	}
	var err error
	doing := "updating a card"
	card := parsePlace(s.Reference)
	if s.Reference != "" {
		err = d.send(ctx, r, slack.MsgOptionUpdate(card.timestamp), nil)
		if classify(err) == gone {
			d.log.Warn("a card is gone", "request_id", r.ID, "reference", s.Reference, "err", err)
			if r.Status != approval.Pending {
				s.Abandon, s.Failure = true, code(err)
				return s, 0
			}
			s.Reference = ""
		}
	}
	if s.Reference == "" {
		doing = "posting a card"
		if err = d.private(ctx); err != nil {
			return d.postpone(s, n, "checking who sees the channel", err)
		}
		var posted string
		err = d.send(ctx, r, slack.MsgOptionPost(), &posted)
		if err == nil {
			// A card that is new reminds people by itself.
			card.channel, card.timestamp = d.options.Channel, posted
			card.told.reminders = max(card.told.reminders, r.Reminders)
			s.Reference = card.String()
		}
		s.Uncertain = classify(err) == unclear
	}
	if err != nil {
		return d.postpone(s, n, doing, err)
	}
	card.told, err = d.remind(ctx, n, r, card)
	s.Reference = card.String()
	if err != nil {
		return d.postpone(s, n, "reminding people of a request", err)
	}
	s.SentRevision = r.Revision
	d.failures = 0
	d.health.set(deliveryPart, nil)
	d.log.Debug("delivered a card", "request_id", r.ID, "revision", r.Revision, "reference", s.Reference)
	return s, 0
}

// errNoTimestamp means that Slack's answer didn't say which message it posted.
var errNoTimestamp = errors.New("the answer names no message")

// send posts or updates the request's card; the minimal one if Slack refuses
// the full one.
func (d *delivery) send(ctx context.Context, r *approval.Request, how slack.MsgOption, posted *string) error {
	card := renderCard(r, d.options.reviewURL(r.ID))
	err := d.sendMessage(ctx, r, card, how, posted)
	if classify(err) != refusedBlocks {
		return err
	}
	d.log.Error("Slack refuses a card, so a minimal one is sent; please report this", "request_id", r.ID, "err", explained(err))
	return d.sendMessage(ctx, r, renderMinimal(r, d.options.reviewURL(r.ID)), how, posted)
}

func (d *delivery) sendMessage(ctx context.Context, r *approval.Request, m message, how slack.MsgOption, posted *string) error {
	_, at, _, err := d.slack.SendMessageContext(ctx, d.options.Channel,
		how,
		slack.MsgOptionText(m.text, false),
		slack.MsgOptionBlocks(m.blocks...),
		slack.MsgOptionMetadata(metadata(r)),
		slack.MsgOptionDisableLinkUnfurl(),
		slack.MsgOptionDisableMediaUnfurl(),
		slack.MsgOptionDisableMarkdown())
	switch {
	case err != nil:
		return err
	case at == "":
		return errNoTimestamp
	case posted != nil:
		*posted = at
	}
	return nil
}

// postpone says when to try again: the notice, and the whole destination if
// others would fail like it.
func (d *delivery) postpone(s approval.Settlement, n approval.Notice, doing string, err error) (approval.Settlement, time.Duration) {
	d.failures++
	wait := d.backoff(n.Attempts)
	rest := time.Duration(0)
	switch classify(err) {
	case limited:
		// Some limits come without a time to wait, and last.
		wait = max(wait, retryAfter(err))
		rest = max(d.backoff(d.failures), retryAfter(err))
	case misconfigured:
		wait = d.pace.slow
		rest = wait
	case unreachable, unclear:
		if s.Uncertain {
			wait = max(wait, d.pace.doubt)
		}
		rest = d.backoff(d.failures)
	}
	s.Failure = failure(doing, err)
	s.NextAttempt = d.options.Now().Add(wait)
	d.failed(doing, err, wait, "request_id", n.Request, "attempts", n.Attempts, "uncertain", s.Uncertain)
	return s, rest
}

// failure is an error in one short line, for the outbox: a proxy may have
// answered with a page.
func failure(doing string, err error) string {
	text, _ := cut(strings.Join(strings.Fields(err.Error()), " "), 200)
	return doing + ": " + text
}

// errShared keeps an organisation's requests from people of another one.
var errShared = slack.SlackErrorResponse{Err: "channel_is_shared"}

// private refuses to post to a channel that another organisation reads, unless
// that is allowed. What it learns counts for a minute.
func (d *delivery) private(ctx context.Context) error {
	now := d.options.Now()
	if d.options.AllowSharedChannel || now.Before(d.sharingKnown) {
		return nil
	}
	channel, err := d.slack.GetConversationInfoContext(ctx, &slack.GetConversationInfoInput{ChannelID: d.options.Channel})
	if err != nil {
		return err
	}
	if channel.ID != d.options.Channel {
		return errors.New("the answer is about another channel")
	}
	if channel.IsExtShared {
		return errShared
	}
	d.sharingKnown = now.Add(time.Minute)
	return nil
}
