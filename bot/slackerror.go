package bot

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/slack-go/slack"
)

// code is the error name that Slack answered with; "" if it gave none.
func code(err error) string {
	var refused slack.SlackErrorResponse
	if errors.As(err, &refused) {
		return refused.Err
	}
	return ""
}

// explained adds what Slack says of the reason: the place in the blocks, and
// the scope that is missing. Neither holds what the blocks say.
func explained(err error) error {
	var refused slack.SlackErrorResponse
	if !errors.As(err, &refused) {
		return err
	}
	text := ""
	if refused.Needed != "" {
		text += ", needs the scope " + refused.Needed
	}
	if messages := refused.ResponseMetadata.Messages; len(messages) > 0 {
		text += ": " + strings.Join(messages, "; ")
	}
	return fmt.Errorf("%w%s", err, text)
}

// result is what is known of a call that failed.
type result int

const (
	// delivered is no failure.
	delivered result = iota
	// refused means that Slack did nothing.
	refused
	// refusedBlocks means that Slack did nothing because of what was to be shown.
	refusedBlocks
	// gone means that the message to update is not there or not ours.
	gone
	// misconfigured means that no call of the kind works until somebody does
	// something.
	misconfigured
	// limited means that Slack asks to wait.
	limited
	// unreachable means that the call was not sent.
	unreachable
	// unclear means that Slack may have done it.
	unclear
)

// classify says what a call's error means. What isn't known to have been
// refused is unclear.
func classify(err error) result {
	if err == nil {
		return delivered
	}
	var limit *slack.RateLimitedError
	var status slack.StatusCodeError
	var dialing *net.OpError
	switch name := code(err); {
	case name != "":
		return classifyCode(name)
	case errors.As(err, &limit):
		return limited
	case errors.As(err, &status) && status.Code < http.StatusInternalServerError:
		return refused
	case errors.As(err, &dialing) && dialing.Op == "dial":
		return unreachable
	default:
		return unclear
	}
}

func classifyCode(name string) result {
	switch name {
	case "invalid_blocks", "invalid_blocks_format", "msg_blocks_too_long", "msg_too_long", "too_many_blocks", "block_mismatch":
		return refusedBlocks
	case "message_not_found", "cant_update_message", "edit_window_closed", "is_inactive":
		return gone
	case "ratelimited", "rate_limited", "message_limit_exceeded":
		return limited
	case "internal_error", "fatal_error", "request_timeout", "service_unavailable":
		// Slack's words: some aspect of the operation may have succeeded.
		return unclear
	}
	if remedy(name) != "" {
		return misconfigured
	}
	return refused
}

// retryAfter is how long Slack asks to wait; 0 if it doesn't say.
func retryAfter(err error) time.Duration {
	var limit *slack.RateLimitedError
	if errors.As(err, &limit) {
		return limit.RetryAfter
	}
	return 0
}

// remedy says what to do about an error that goes away only if somebody does
// something; "" for other errors.
func remedy(name string) string {
	switch name {
	case "channel_not_found":
		return "check slack.channel, and invite the app to the channel if it is private"
	case "not_in_channel":
		return "invite the app to the channel: /invite @countersign"
	case "channel_is_shared":
		return "use a channel of your own organisation, or set slack.allow_shared_channel"
	case "is_archived":
		return "unarchive the channel or configure another one"
	case "invalid_auth", "not_authed", "token_revoked", "token_expired", "account_inactive":
		return "install the Slack app again and configure its new bot token"
	case "missing_scope", "no_permission", "not_allowed_token_type":
		return "add the scopes that \"countersign manifest\" prints and install the Slack app again"
	case "messages_tab_disabled":
		return "turn on the Messages tab on the Slack app's App Home page, as the manifest that \"countersign manifest\" prints does"
	case "restricted_action", "restricted_action_read_only_channel":
		return "let the app post to the channel, or configure another one"
	case "team_access_not_granted", "access_denied", "org_login_required", "ekm_access_denied", "team_added_to_org":
		return "ask a workspace admin to let the app in"
	default:
		return ""
	}
}
