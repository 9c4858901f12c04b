package bot

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/slack-go/slack"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/policy"
)

// Finding is one thing that Check looked at.
type Finding struct {
	OK      bool
	Subject string // what was looked at, such as "Slack token"
	Text    string // what is so and, unless OK, what to do
}

// Check asks Slack whether the bot could do its work with these options and
// this policy: the tokens, their scopes, the clock, the channel, and every
// person and group of every role. It posts nothing. Without a network it says
// that Slack can't be reached.
func Check(ctx context.Context, options Options, p *policy.Policy) []Finding {
	c := checker{options: options}
	if err := c.options.check(); err != nil {
		c.bad("Slack options", "%v", err)
		return c.findings
	}
	c.slack = c.options.client(deliveryTimeout)
	if c.token(ctx) {
		c.channel(ctx)
		c.roles(ctx, p)
	}
	c.clicks(ctx)
	return c.findings
}

type checker struct {
	options  Options
	slack    *slack.Client
	granted  []string // the token's scopes; nil if Slack didn't say
	findings []Finding
}

func (c *checker) good(subject, format string, values ...any) {
	c.findings = append(c.findings, Finding{OK: true, Subject: subject, Text: fmt.Sprintf(format, values...)})
}

func (c *checker) bad(subject, format string, values ...any) {
	c.findings = append(c.findings, Finding{Subject: subject, Text: fmt.Sprintf(format, values...)})
}

// failed says what a call's error means and what to do.
func (c *checker) failed(subject string, err error) {
	todo := remedy(code(err))
	switch {
	case todo != "":
	case code(err) != "":
		todo = "see Slack's documentation of this error"
	default:
		todo = "check that this machine can reach " + c.options.APIURL
	}
	c.bad(subject, "%v: %s", explained(err), todo)
}

// token reports whether it works and is our workspace's.
func (c *checker) token(ctx context.Context) bool {
	const subject = "Slack token"
	self, err := c.slack.AuthTestContext(ctx)
	if err != nil {
		c.failed(subject, err)
		return false
	}
	if self.TeamID != c.options.Workspace {
		c.bad(subject, "it is of the workspace %s (%s), and %s is configured: configure that workspace, or this one's token", self.TeamID, self.Team, c.options.Workspace)
		return false
	}
	c.good(subject, "works in the workspace %s (%s) as the app's user %s", self.Team, self.TeamID, self.UserID)
	c.clock(self.Header)
	if text := self.Header.Get("X-OAuth-Scopes"); text != "" {
		for _, scope := range strings.Split(text, ",") {
			c.granted = append(c.granted, strings.TrimSpace(scope))
		}
	}
	return true
}

// clock compares ours with Slack's: what Slack signed is refused if they differ
// by more than five minutes.
func (c *checker) clock(header http.Header) {
	theirs, err := http.ParseTime(header.Get("Date"))
	if err != nil {
		return
	}
	switch skew := c.options.Now().Sub(theirs).Abs().Round(time.Second); {
	case skew > maxSkew/2:
		c.bad("clock", "it is %s from Slack's; above %s all clicks are refused: set the clock, for example with NTP", skew, maxSkew)
	default:
		c.good("clock", "within %s of Slack's", max(skew, time.Second))
	}
}

// scope finds out whether the token has a scope.
func (c *checker) scope(name string) {
	purpose := ""
	for _, scope := range scopes {
		if scope.name == name {
			purpose = scope.purpose
		}
	}
	subject := "scope " + name
	switch {
	case c.granted == nil:
		// Slack's answer didn't list them; the calls below tell.
	case slices.Contains(c.granted, name):
		c.good(subject, "granted, to %s", purpose)
	default:
		c.bad(subject, "missing, to %s: %s", purpose, remedy("missing_scope"))
	}
}

func (c *checker) channel(ctx context.Context) {
	c.scope("chat:write")
	c.scope("users:read")
	const subject = "Slack channel"
	channel, err := c.slack.GetConversationInfoContext(ctx, &slack.GetConversationInfoInput{ChannelID: c.options.Channel})
	if err != nil {
		c.failed(subject, err)
		return
	}
	kind := "channels"
	if channel.IsPrivate {
		kind = "groups"
	}
	c.scope(kind + ":read")
	c.scope(kind + ":history")
	switch {
	case channel.IsArchived:
		c.bad(subject, "#%s: %s", channel.Name, remedy("is_archived"))
	case !channel.IsMember:
		c.bad(subject, "the app is not in #%s: %s", channel.Name, remedy("not_in_channel"))
	case channel.IsExtShared && !c.options.AllowSharedChannel:
		c.bad(subject, "#%s is shared with another organisation, so nothing is posted there: %s", channel.Name, remedy(errShared.Err))
	default:
		c.good(subject, "the app is in #%s", channel.Name)
	}
}

// roles looks at everybody who may decide.
func (c *checker) roles(ctx context.Context, p *policy.Policy) {
	directory, err := NewDirectory(c.options)
	if err != nil {
		c.bad("roles", "%v", err)
		return
	}
	grouped := false
	for _, role := range p.Roles() {
		subject := "role " + role.Name
		able := 0
		for _, user := range role.Users {
			switch err := directory.eligible(ctx, user); {
			case err == nil:
				able++
			case errors.Is(err, approval.ErrIneligible):
				c.bad(subject, "%s: %v: remove the id from the role", user, err)
			default:
				c.failed(subject+", "+user, err)
			}
		}
		if len(role.Users) > 0 && able == len(role.Users) {
			c.good(subject, "all %d people listed may decide", able)
		}
		for _, group := range role.Groups {
			grouped = true
			switch members, err := directory.members(ctx, group); {
			case err != nil:
				c.failed(subject+", "+group, err)
			case len(members) == 0:
				c.bad(subject, "the user group %s has no members", group)
			default:
				c.good(subject, "the user group %s has %d members; whoever may edit it decides who holds the role", group, len(members))
			}
		}
	}
	if grouped {
		c.scope("usergroups:read")
	}
}

// clicks looks at how clicks arrive.
func (c *checker) clicks(ctx context.Context) {
	if c.options.AppToken != "" {
		const subject = "Socket Mode"
		switch _, _, err := c.slack.StartSocketModeContext(ctx); {
		case err != nil && code(err) == "":
			// The network, as for every other call.
			c.failed(subject, err)
		case err != nil:
			c.bad(subject, "%v: turn Socket Mode on for the Slack app, and make an app-level token with connections:write", explained(err))
		default:
			c.good(subject, "the app token opens a connection")
		}
	}
	const subject = "signing secret"
	_, err := newVerifier(c.options.SigningSecrets, c.options.Now)
	switch {
	case err != nil:
		c.bad(subject, "%v", err)
	case len(c.options.SigningSecrets) > 0:
		c.good(subject, "%d set; whether it is the right one shows when somebody clicks", len(c.options.SigningSecrets))
	case c.options.AppToken == "":
		c.bad(subject, "neither a signing secret nor an app token is set, so no click could arrive")
	}
}
