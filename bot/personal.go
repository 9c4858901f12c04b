package bot

import (
	"context"
	"time"

	"github.com/slack-go/slack"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/approval/presentation"
	"github.com/countersign/countersign/internal/visible"
)

// renderPersonal is what a person is told of their own account.
func renderPersonal(n approval.PersonalNotice) message {
	happened, more := "Something happened to a passkey of yours", ""
	switch n.Kind {
	case approval.PasskeyEnrolled:
		happened, more = "You have a new passkey", "With it, what can't be undone is approved in your name. If you didn't add it, remove it on countersign's page Passkeys, and tell those who run countersign."
	case approval.PasskeyRemoved:
		happened, more = "A passkey of yours was removed", "If you didn't remove it, somebody else is signed in as you: tell those who run countersign."
	case approval.PasskeyCopied:
		happened, more = "A passkey of yours was refused", "It said that it had signed no more often than before, so somebody may have a copy. Remove it on countersign's page Passkeys, add a new one, and tell those who run countersign."
	}
	var l presentation.Line
	l.Strong(happened)
	l.Text(": ")
	l.Code(visible.Line(n.Passkey))
	l.Text(", ")
	l.Moment(n.At)
	l.Text(".")
	if more != "" {
		l.Text("\n" + more)
	}
	return message{text: escape(l.String()), blocks: []slack.Block{slack.NewRichTextBlock("", section(l))}}
}

// tellNext tells one person what they still have to be told, and returns how long
// to rest then.
func (d *delivery) tellNext(ctx context.Context) time.Duration {
	ctx, stop := lingering(ctx, shutdownGrace)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, leaseTime)
	defer cancel()
	now := d.options.Now()
	notice, ok, err := d.outbox.LeasePersonalNotice(ctx, d.options.Workspace, now, now.Add(leaseTime))
	if err != nil {
		d.log.Error("taking what a person is to be told", "err", err)
		return outboxRetry
	}
	if !ok {
		return 0
	}
	settlement := d.tell(ctx, notice)
	// What happened is recorded even if the bot is stopping.
	settling, cancel := context.WithTimeout(context.WithoutCancel(ctx), deliveryTimeout)
	defer cancel()
	if err := d.outbox.SettlePersonalNotice(settling, notice, settlement); err != nil {
		// The lease ends by itself, and then the person is told again.
		d.log.Error("recording what a person was told", "notice", notice.ID, "err", err)
		return outboxRetry
	}
	return 0
}

// tell sends a direct message. If it may have arrived it is sent again: reading
// twice of a passkey does no harm, and not reading of it would.
func (d *delivery) tell(ctx context.Context, n approval.PersonalNotice) approval.Settlement {
	m := renderPersonal(n)
	channel, at, _, err := d.slack.SendMessageContext(ctx, n.Person.User,
		slack.MsgOptionPost(),
		slack.MsgOptionText(m.text, false),
		slack.MsgOptionBlocks(m.blocks...),
		slack.MsgOptionDisableLinkUnfurl(),
		slack.MsgOptionDisableMediaUnfurl(),
		slack.MsgOptionDisableMarkdown())
	if err == nil && at == "" {
		err = errNoTimestamp
	}
	if err == nil {
		d.log.Debug("told a person of their account", "notice", n.ID, "approver", n.Person.String(), "kind", n.Kind)
		return approval.Settlement{Reference: place{channel: channel, timestamp: at}.String()}
	}
	doing := "telling a person of their account"
	s := approval.Settlement{Failure: failure(doing, err)}
	if nobody(err) {
		d.log.Error("there is nobody to tell of an account any more", "notice", n.ID, "approver", n.Person.String(), "kind", n.Kind, "err", explained(err))
		s.Abandon = true
		return s
	}
	wait := max(d.backoff(n.Attempts), retryAfter(err))
	s.NextAttempt = d.options.Now().Add(wait)
	d.log.Error(doing, "notice", n.ID, "approver", n.Person.String(), "kind", n.Kind, "err", explained(err), "todo", remedy(code(err)), "next_attempt_in", wait.String())
	return s
}

// nobody reports whether Slack says that a person isn't there to be told.
func nobody(err error) bool {
	switch code(err) {
	case "user_not_found", "users_not_found", "user_disabled", "cannot_dm_bot", "channel_not_found":
		return true
	}
	return false
}
