package bot

import (
	"strconv"
	"strings"

	"github.com/slack-go/slack"

	"github.com/countersign/countersign/approval"
)

// The buttons of a card, and the modals that they open.
const (
	approveAction  = "approve"
	rejectAction   = "reject"
	reasonAction   = "approve_with_reason"
	detailsAction  = "details"
	whyAction      = "why"
	grantAction    = "approve_for"
	revokeAction   = "revoke"
	ranAction      = "it_ran"
	notRanAction   = "it_did_not_run"
	pageAction     = "open_page"
	takeBackAction = "revoke_approval"
)

// shown is what a button or a modal was about: which version of which request
// the person saw. It says nothing of authority and nothing of the payload.
type shown struct {
	request approval.ID
	version int
	digest  approval.Digest
}

func shows(r *approval.Request) shown {
	return shown{request: r.ID, version: r.Version, digest: r.Digest}
}

// value is "v1.REQUEST.VERSION.DIGEST", which a button carries.
func (s shown) value() string {
	return strings.Join([]string{"v1", string(s.request), strconv.Itoa(s.version), s.digest.String()}, ".")
}

// parseValue reads what value writes; false for anything else.
func parseValue(text string) (shown, bool) {
	parts := strings.Split(text, ".")
	if len(parts) != 4 || parts[0] != "v1" || !approval.ID(parts[1]).Valid() {
		return shown{}, false
	}
	version, err := strconv.Atoi(parts[2])
	if err != nil || version < 1 || strconv.Itoa(version) != parts[2] {
		return shown{}, false
	}
	digest, err := approval.ParseDigest(parts[3])
	if err != nil {
		return shown{}, false
	}
	return shown{request: approval.ID(parts[1]), version: version, digest: digest}, true
}

func button(action, label, value string, style slack.Style) *slack.ButtonBlockElement {
	return &slack.ButtonBlockElement{
		Type:     slack.METButton,
		ActionID: action,
		Text:     plainText(label),
		Value:    value,
		Style:    style,
	}
}
