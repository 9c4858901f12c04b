package bot

import (
	"github.com/slack-go/slack"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/approval/presentation"
)

// renderReason asks for the reason that the policy wants of whoever approves.
// The card that led here showed all of the request; this says again what it
// comes to.
func renderReason(r *approval.Request) slack.ModalViewRequest {
	facts := presentation.NewFacts(r, cardLimits).List()
	view := modal(approveView, "Approve with a reason",
		slack.NewRichTextBlock("facts", section(factLines(facts))),
		slack.NewContextBlock("lead", plainText(presentation.Consequence(r, "exactly this"))),
		reasonBlock("Reason for approving, shown on the card", false),
		slack.NewContextBlock("print", plainText(smallPrint(r))))
	view.PrivateMetadata = shows(r).value()
	view.Submit = plainText("Approve")
	view.Close = plainText("Cancel")
	return view
}
