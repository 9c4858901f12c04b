package bot

import (
	"slices"
	"strings"
	"time"

	"github.com/slack-go/slack"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/internal/visible"
)

// scopeInput names the block and the element in which somebody chooses how far
// an approval goes.
const scopeInput = "scope"

// longestSession bounds a grant for a session, as the service does.
const longestSession = 8 * time.Hour

// maxWider is how many scopes an approver is offered besides once: Slack takes
// ten options.
const maxWider = 9

// wider are the scopes beyond once that an approver may be offered, each once.
func wider(r *approval.Request) []string {
	var scopes []string
	for _, scope := range r.Scopes() {
		if scope != approval.ScopeOnce && !slices.Contains(scopes, scope) && len(scopes) < maxWider {
			scopes = append(scopes, scope)
		}
	}
	return scopes
}

// scopeWords is how far an approval goes, in words: "15 minutes".
func scopeWords(scope string) string {
	within, err := time.ParseDuration(scope)
	switch {
	case scope == "" || scope == approval.ScopeOnce:
		return "once"
	case scope == approval.ScopeSession:
		return "the agent's session"
	case err != nil:
		return "longer than once"
	case within%time.Minute == 0:
		return span(within)
	default:
		// A grant ends to the second.
		text := counted(int64(within%time.Minute/time.Second), "second")
		if within >= time.Minute {
			text = span(within) + " " + text
		}
		return text
	}
}

// scopeBlock asks how far an approval goes. Nothing wider than once is chosen
// beforehand.
func scopeBlock(label string, scopes []string) *slack.InputBlock {
	options := make([]*slack.OptionBlockObject, len(scopes))
	var initial *slack.OptionBlockObject
	for i, scope := range scopes {
		words := "For " + scopeWords(scope)
		if scope == approval.ScopeOnce {
			words = "Only this once"
		}
		options[i] = slack.NewOptionBlockObject(scope, plainText(words), nil)
		if scope == approval.ScopeOnce {
			initial = options[i]
		}
	}
	choice := slack.NewRadioButtonsBlockElement(scopeInput, options...)
	choice.InitialOption = initial
	return slack.NewInputBlock(scopeInput, plainText(label), nil, choice)
}

// granting says exactly what an approval for longer than once allows.
func granting(r *approval.Request) slack.RichTextElement {
	f := newFacts(r, detailsBudget)
	var l line
	l.text("Longer than once is a grant. Until it ends, the same is approved without asking again, any number of times:")
	l.label("Agent")
	l.text(visible.Line(r.Agent))
	if !r.ActsFor.IsZero() {
		l.text(", acting for ")
		l.person(r.ActsFor)
	}
	l.label("Action")
	f.stated(&l, r.Action, f.budget.action, "not stated")
	l.label("Target")
	f.stated(&l, r.Target, f.budget.target, "not stated")
	l.label("Environment")
	f.stated(&l, r.Environment, f.budget.environment, "not stated, treated as production")
	l.label("Arguments")
	l.text("any, as long as the policy asks for no more than for these")
	return l.section()
}

// ending says when what is granted ends, and how to end it before.
func ending(r *approval.Request, now time.Time) []slack.MixedElement {
	var ends []string
	for _, scope := range wider(r) {
		within, err := time.ParseDuration(scope)
		switch {
		case scope == approval.ScopeSession:
			ends = append(ends, "the session until "+moment(now.Add(longestSession))+" at the latest")
		case err == nil:
			ends = append(ends, scopeWords(scope)+" until "+moment(now.Add(within)))
		}
	}
	said := []slack.MixedElement{markup("It ends by itself. From now: " + strings.Join(ends, ", ") + ".")}
	if given, needed := votes(r); needed-given > 1 {
		said = append(said, plainText("It begins when everybody needed has approved, and the least that anybody chose counts."))
	}
	text, _ := cut("Anybody of "+roles(r.Ruling.Requirement.Roles, " or ")+" can revoke it at any moment on the card, and an operator on the command line.", 400)
	return append(said, plainText(text))
}

// grantBlocks ask how far an approval goes and say what each answer allows.
func grantBlocks(r *approval.Request, scopes []string, now time.Time) []slack.Block {
	return []slack.Block{
		scopeBlock("Approve for how long?", scopes),
		slack.NewRichTextBlock("granting", granting(r)),
		slack.NewContextBlock("ending", ending(r, now)...),
	}
}

// renderGrant asks for how long somebody approves. It is opened from a card that
// shows all of the request.
func renderGrant(r *approval.Request, now time.Time) slack.ModalViewRequest {
	blocks := grantBlocks(r, wider(r), now)
	if r.Ruling.Requirement.ReasonRequired {
		blocks = append(blocks, reasonBlock("Reason for approving, shown on the card", false))
	}
	blocks = append(blocks,
		slack.NewContextBlock("lead", plainText(consequence(r, "exactly this request"))),
		slack.NewContextBlock("print", plainText(smallPrint(r))))
	view := modal(grantView, "Approve for longer", blocks...)
	view.PrivateMetadata = shows(r).value()
	view.Submit = plainText("Approve")
	view.Close = plainText("Cancel")
	return view
}

// granted says what of the request's approval goes beyond once, and what became
// of that; nil if nothing does.
func granted(r *approval.Request, id string) []slack.Block {
	g := r.Grant
	if g == nil {
		return nil
	}
	text := "*Granted for " + scopeWords(g.Scope) + "*: same action and target, "
	switch {
	case !g.RevokedAt.IsZero():
		text += "revoked " + moment(g.RevokedAt) + revoker(g.RevokedBy)
	case g.Active(r.UpdatedAt) && g.Session != "":
		text += "until the session ends, at the latest " + moment(g.ExpiresAt)
	case g.Active(r.UpdatedAt):
		text += "until " + moment(g.ExpiresAt)
	default:
		text += "ended " + moment(g.ExpiresAt)
	}
	text += "."
	switch {
	case g.Uses > 0:
		text += " Used " + counted(int64(g.Uses), "time") + "."
	case !g.RevokedAt.IsZero():
		text += " It was never used."
	}
	section := slack.NewSectionBlock(markup(text), nil, nil)
	section.BlockID = id
	return []slack.Block{section}
}

// revoker says who revoked a grant.
func revoker(by string) string {
	if who, ok := parseApprover(by); ok {
		return " by " + person(who)
	}
	if strings.HasPrefix(by, "operator:") {
		return " by an operator"
	}
	return ""
}

// parseApprover reads what Approver.String writes.
func parseApprover(text string) (approval.Approver, bool) {
	text, ok := strings.CutPrefix(text, "slack:")
	workspace, user, both := strings.Cut(text, "/")
	return approval.Approver{Workspace: workspace, User: user}, ok && both
}

// revocable reports whether the request's grant can still be revoked, as far as
// its last change tells.
func revocable(r *approval.Request) bool { return r.Grant != nil && r.Grant.Active(r.UpdatedAt) }

// revokeButton ends a grant.
func revokeButton(r *approval.Request) slack.BlockElement {
	b := button(revokeAction, "Revoke grant", shows(r).value(), slack.StyleDanger)
	b.AccessibilityLabel, _ = cut("Revoke the grant of "+summary(r, 40), 75)
	b.Confirm = slack.NewConfirmationBlockObject(plainText("Revoke this grant?"),
		plainText("From now on, such calls wait for an approval again. What the grant approved and hasn't begun to run won't run. What has run stays."),
		plainText("Revoke"), plainText("Cancel"))
	b.Confirm.Style = slack.StyleDanger
	return b
}

// grantButton leads to approving for longer than once.
func grantButton(r *approval.Request) slack.BlockElement {
	b := button(grantAction, "Approve for…", shows(r).value(), slack.StyleDefault)
	b.AccessibilityLabel, _ = cut("Approve for longer than once: "+summary(r, 40), 75)
	return b
}
