package bot

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/slack-go/slack"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/approval/presentation"
	"github.com/countersign/countersign/policy"
)

// Verify checks a signature as the interactions endpoint does.
func Verify(secrets []string, now time.Time, header http.Header, body []byte) error {
	v, err := newVerifier(secrets, func() time.Time { return now })
	if err != nil {
		return err
	}
	return v.verify(header, body)
}

// The errors that decide what Slack is answered.
var (
	ErrSignature = errSignature
	ErrMalformed = errMalformed
)

// ParsePayload reads an interaction from a verified body, and returns what it
// is about as a button's value.
func ParsePayload(body []byte) (string, error) {
	payload, err := formPayload(body)
	if err != nil {
		return "", err
	}
	i, err := parseInteraction(payload)
	if err != nil {
		return "", err
	}
	return i.about.value(), nil
}

// ParseValue reads a button's value and writes it again.
func ParseValue(text string) (string, bool) {
	about, ok := parseValue(text)
	return about.value(), ok
}

// Value is what the buttons of a request carry.
func Value(r *approval.Request) string { return shows(r).value() }

// Rendered is a card or a modal as it is sent.
type Rendered struct {
	Text   string          `json:"text,omitempty"`
	Blocks json.RawMessage `json:"blocks"`
}

func rendered(m message) Rendered {
	blocks, err := json.Marshal(m.blocks)
	if err != nil {
		panic(err)
	}
	return Rendered{Text: m.text, Blocks: blocks}
}

// Card renders the card of a request.
func Card(r *approval.Request) Rendered { return rendered(renderCard(r, "")) }

// Minimal renders the card for when Slack refuses the full one.
func Minimal(r *approval.Request) Rendered { return rendered(renderMinimal(r, "")) }

// Details renders the modal with the whole request, and reports whether it can
// be approved there.
func Details(r *approval.Request) (json.RawMessage, bool) {
	view, whole := renderDetails(r, "", r.CreatedAt)
	return encoded(view), whole
}

// RejectView renders the modal that asks for a reason, before and after the
// request is known.
func RejectView(r *approval.Request, known bool) json.RawMessage {
	if known {
		return encoded(renderReject(shows(r), r))
	}
	return encoded(renderReject(shows(r), nil))
}

// ReasonView renders the modal that asks for a reason to approve.
func ReasonView(r *approval.Request) json.RawMessage { return encoded(renderReason(r)) }

// GrantView renders the modal that asks for how long to approve.
func GrantView(r *approval.Request, now time.Time) json.RawMessage {
	return encoded(renderGrant(r, now))
}

// WhyView renders the modal that explains.
func WhyView(r *approval.Request) json.RawMessage { return encoded(renderWhy(r)) }

// Reminder renders what is posted below a card while nobody decides.
func Reminder(r *approval.Request, call bool, now time.Time) Rendered {
	return rendered(renderReminder(r, call, now))
}

// ParsePlace reads a notice's reference and writes it again.
func ParsePlace(text string) string { return parsePlace(text).String() }

// AnswerView renders a modal that says something.
func AnswerView(text string) json.RawMessage { return encoded(renderAnswer(text)) }

func encoded(value any) json.RawMessage {
	data, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	return data
}

// Answer is what a person reads whose decision came to err.
func Answer(verdict approval.Verdict, r *approval.Request, err error) (string, bool) {
	said, known := presentation.Answer(verdict, r, err, theCard)
	return markdown(said), known
}

// LaidOut is a payload as it is shown, and in chunks.
func LaidOut(p approval.Payload) (text string, parts []string, onCard bool) {
	a := presentation.LayOut(p, policy.Redactions{})
	return a.Text, chunks(a.Text), inline(a)
}

// Excerpt is what a card shows of a payload that is too long for it.
func Excerpt(p approval.Payload) (text, note string) {
	return excerpt(presentation.LayOut(p, policy.Redactions{}))
}

// Beginning and Length are how texts are cut.
var (
	Beginning = beginning
	Cut       = cut
	Length    = length
)

// FindCard looks for a request's card in the channel, as the app's user with the
// id U0BOT.
func FindCard(ctx context.Context, options Options, r *approval.Request) (string, error) {
	h := newHistory(options)
	h.self = &slack.AuthTestResponse{UserID: "U0BOT", BotID: "B0BOT"}
	return h.find(ctx, r)
}

// Answers reports whether the bot posts answers to this response URL.
func (b *Bot) Answers(address string) bool { return b.responseURL(address) }

// ShrinkPace has the bot try again in milliseconds, for tests that wait for it.
func (b *Bot) ShrinkPace() {
	b.delivery.keep(pace{
		every: time.Millisecond,
		burst: 10,
		first: 5 * time.Millisecond,
		most:  40 * time.Millisecond,
		slow:  40 * time.Millisecond,
		doubt: 5 * time.Millisecond,
	})
}
