package bot

import (
	"context"
	"encoding/json"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/slack-go/slack"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/approval/presentation"
	"github.com/countersign/countersign/policy"
)

// reminderEvent marks our reminders, so that one whose arrival is in doubt can
// be found. It is another event than a card's, so that none is taken for a card.
const reminderEvent = "countersign_reminder"

// place is a message of a request, with what its thread holds.
type place struct {
	channel, timestamp string
	told               told
}

// told is what people were told below a card: how many of the request's
// reminders, and whether others were called.
type told struct {
	reminders int
	called    bool
}

// wanted is what people should have been told of a request by now.
func wanted(r *approval.Request) told { return told{r.Reminders, r.Escalated} }

// and is both together. Each is told at most once.
func (t told) and(other told) told {
	return told{max(t.reminders, other.reminders), t.called || other.called}
}

// called marks, in a place's text, that others were called.
const calledMark = "called"

// String is "CHANNEL/TIMESTAMP", with "/REMINDERS" behind it once people were
// reminded, and "/called" once others were called.
func (p place) String() string {
	text := p.channel + "/" + p.timestamp
	if p.told != (told{}) {
		text += "/" + strconv.Itoa(p.told.reminders)
	}
	if p.told.called {
		text += "/" + calledMark
	}
	return text
}

// parsePlace reads what String writes. In what it can't read, nobody was told
// anything.
func parsePlace(text string) place {
	var p place
	parts := strings.Split(text, "/")
	p.channel = parts[0]
	if len(parts) > 1 {
		p.timestamp = parts[1]
	}
	if len(parts) > 2 {
		p.told.reminders, _ = strconv.Atoi(parts[2])
	}
	p.told.called = len(parts) > 3 && parts[3] == calledMark
	return p
}

var groupID = regexp.MustCompile(`^S[A-Z0-9]{2,30}$`)

// maxMentions is how many people and groups a call mentions.
const maxMentions = 40

// renderReminder is what stands in the card's thread while nobody decides. It
// says how long the request has waited, which stays true when somebody decides
// later. A call mentions the people whom the policy names.
func renderReminder(r *approval.Request, call bool, now time.Time) message {
	waited := "No decision after " + presentation.Span(waited(r, call, now))
	var blocks []slack.Block
	text := waited + " (" + presentation.Environment(r) + "): " + summary(r, 60) + ". Expires " + clock(r.ExpiresAt, r.CreatedAt) + "."
	text = escape(text)
	if call {
		called := mentions(r.Ruling.Escalation)
		text = called + " " + text
		blocks = append(blocks, slack.NewSectionBlock(markup(called+" this needs your attention."), nil, nil))
	}
	var l presentation.Line
	l.Strong(waited)
	l.Text(": ")
	if r.Action == "" {
		l.Text(summary(r, 150))
	} else {
		action, count := phrase(r, 150)
		l.Code(action)
		l.Text(count)
	}
	l.Text(" · " + presentation.Environment(r))
	blocks = append(blocks,
		slack.NewRichTextBlock("", section(l)),
		slack.NewContextBlock("", plainText(needs(r)), markup("Expires "+moment(r.ExpiresAt))))
	return message{text: text, blocks: blocks}
}

// waited is how long the request has waited, by the clock or, if that is
// behind, by the time that the policy names.
func waited(r *approval.Request, call bool, now time.Time) time.Duration {
	least := r.Ruling.Escalation.After
	if reminders := r.Ruling.RemindAfter; !call && r.Reminders > 0 && r.Reminders <= len(reminders) {
		least = reminders[r.Reminders-1]
	}
	return max(now.Sub(r.CreatedAt), least)
}

// mentions are the people and groups that a policy has called, groups first.
func mentions(e policy.Escalation) string {
	var all []string
	for _, group := range e.Groups {
		if groupID.MatchString(group) {
			all = append(all, "<!subteam^"+group+">")
		}
	}
	for _, user := range e.Users {
		if policy.IsUserID(user) {
			all = append(all, "<@"+user+">")
		}
	}
	if more := len(all) - maxMentions; more > 0 {
		all = append(all[:maxMentions:maxMentions], "and "+presentation.Digits(int64(more))+" more")
	}
	return strings.Join(all, " ")
}

// remind tells people below the card what they should have been told by now, in
// one message, and returns what they have been told then. It is shown in the
// channel too: nobody follows the thread of a card yet.
func (d *delivery) remind(ctx context.Context, n approval.Notice, r *approval.Request, card place) (told, error) {
	want := wanted(r).and(card.told)
	now := d.options.Now()
	if want == card.told || r.Status != approval.Pending || !now.Before(r.ExpiresAt) {
		return card.told, nil
	}
	if n.Attempts > 1 {
		// An earlier attempt may have got as far as this.
		found, err := d.history.told(ctx, r)
		switch {
		case err == nil:
			card.told = card.told.and(found)
		case classify(err) == misconfigured || classify(err) == refused:
			d.log.Warn("can't look whether a reminder arrived, so it may be posted twice", "request_id", r.ID, "err", explained(err))
		default:
			return card.told, err
		}
		if want == card.told {
			return card.told, nil
		}
	}
	if err := d.private(ctx); err != nil {
		return card.told, err
	}
	if err := d.limiter.Wait(ctx); err != nil {
		return card.told, err
	}
	m := renderReminder(r, want.called && !card.told.called, now)
	err := d.reply(ctx, r, m, card.timestamp, want)
	if classify(err) == refusedBlocks {
		d.log.Error("Slack refuses a reminder, so its text is sent alone; please report this", "request_id", r.ID, "err", explained(err))
		m.blocks = nil
		err = d.reply(ctx, r, m, card.timestamp, want)
	}
	switch classify(err) {
	case delivered:
		d.log.Debug("reminded people of a request", "request_id", r.ID, "reminders", want.reminders, "called", want.called)
	case refused, refusedBlocks, gone:
		// It won't be taken another time either, and the card is more
		// important.
		d.log.Error("Slack refuses a reminder, so people aren't reminded", "request_id", r.ID, "err", explained(err))
	default:
		return card.told, err
	}
	return want, nil
}

// reply posts into the thread of a card.
func (d *delivery) reply(ctx context.Context, r *approval.Request, m message, thread string, says told) error {
	_, at, _, err := d.slack.SendMessageContext(ctx, d.options.Channel,
		slack.MsgOptionPost(),
		slack.MsgOptionTS(thread),
		slack.MsgOptionBroadcast(),
		slack.MsgOptionText(m.text, false),
		slack.MsgOptionBlocks(m.blocks...),
		slack.MsgOptionMetadata(slack.SlackMetadata{
			EventType:    reminderEvent,
			EventPayload: map[string]any{"request_id": string(r.ID), "reminders": says.reminders, "called": says.called},
		}),
		slack.MsgOptionDisableLinkUnfurl(),
		slack.MsgOptionDisableMediaUnfurl(),
		slack.MsgOptionDisableMarkdown())
	if err == nil && at == "" {
		return errNoTimestamp
	}
	return err
}

// told returns what people were told of a request in the channel.
func (h history) told(ctx context.Context, r *approval.Request) (told, error) {
	var found told
	err := h.ours(ctx, r.CreatedAt, reminderEvent, func(_ string, payload json.RawMessage) bool {
		var about struct {
			RequestID string `json:"request_id"`
			Reminders int    `json:"reminders"`
			Called    bool   `json:"called"`
		}
		if json.Unmarshal(payload, &about) == nil && about.RequestID == string(r.ID) {
			found = found.and(told{about.Reminders, about.Called})
		}
		return found == wanted(r)
	})
	return found, err
}
