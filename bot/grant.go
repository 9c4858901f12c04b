package bot

import (
	"time"

	"github.com/slack-go/slack"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/approval/presentation"
)

// scopeInput names the block and the element in which somebody chooses how far
// an approval goes.
const scopeInput = "scope"

// scopeBlock asks how far an approval goes. Nothing wider than once is chosen
// beforehand.
func scopeBlock(label string, scopes []string) *slack.InputBlock {
	options := make([]*slack.OptionBlockObject, len(scopes))
	var initial *slack.OptionBlockObject
	for i, scope := range scopes {
		words := "For " + presentation.ScopeWords(scope)
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

// grantBlocks ask how far an approval goes and say what each answer allows.
func grantBlocks(r *approval.Request, scopes []string, now time.Time) []slack.Block {
	var granting presentation.Line
	lead, facts := presentation.Granting(r, detailsLimits)
	granting.Text(lead)
	granting.Text("\n")
	granting.Add(factLines(facts))
	return []slack.Block{
		scopeBlock("Approve for how long?", scopes),
		slack.NewRichTextBlock("granting", section(granting)),
		slack.NewContextBlock("ending", small(presentation.GrantEnds(r, now)...)...),
	}
}

// renderGrant asks for how long somebody approves. It is opened from a card that
// shows all of the request.
func renderGrant(r *approval.Request, now time.Time) slack.ModalViewRequest {
	blocks := grantBlocks(r, presentation.Wider(r), now)
	if r.Ruling.Requirement.ReasonRequired {
		blocks = append(blocks, reasonBlock("Reason for approving, shown on the card", false))
	}
	blocks = append(blocks,
		slack.NewContextBlock("lead", plainText(presentation.Consequence(r, "exactly this request"))),
		slack.NewContextBlock("print", plainText(smallPrint(r))))
	view := modal(grantView, "Approve for longer", blocks...)
	view.PrivateMetadata = shows(r).value()
	view.Submit = plainText("Approve")
	view.Close = plainText("Cancel")
	return view
}

// granted says what of the request's approval goes beyond once; nil if nothing
// does.
func granted(r *approval.Request, id string) []slack.Block {
	l := presentation.Granted(r)
	if l == nil {
		return nil
	}
	block := slack.NewSectionBlock(markup(markdown(l)), nil, nil)
	block.BlockID = id
	return []slack.Block{block}
}

// revokeButton ends a grant.
func revokeButton(r *approval.Request) slack.BlockElement {
	b := button(revokeAction, "Revoke grant", shows(r).value(), slack.StyleDanger)
	b.AccessibilityLabel, _ = cut("Revoke the grant of "+summary(r, 40), 75)
	b.Confirm = slack.NewConfirmationBlockObject(plainText("Revoke this grant?"),
		plainText(presentation.Revoking),
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
