package bot

import (
	"github.com/slack-go/slack"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/approval/presentation"
)

// reasonInput names the block and the element that the reason is typed in.
const reasonInput = "reason"

// maxTypedReason is how long a reason may be that is typed in the modal.
const maxTypedReason = 500

// renderReject asks for a reason. It is opened at once, before anything is
// looked up: the request isn't known then, and r is nil.
func renderReject(about shown, r *approval.Request) slack.ModalViewRequest {
	lead := "The agent is told no, with your reason. One rejection is final."
	var blocks []slack.Block
	if r != nil {
		facts := presentation.NewFacts(r, cardLimits).List()
		blocks = append(blocks, slack.NewRichTextBlock("facts", section(factLines(facts))))
	}
	blocks = append(blocks, slack.NewContextBlock("lead", plainText(lead)))
	blocks = append(blocks, reasonBlock("Reason, shown to the agent and on the card", true))

	view := modal(rejectView, "Reject", blocks...)
	view.PrivateMetadata = about.value()
	view.Submit = plainText("Reject")
	view.Close = plainText("Cancel")
	return view
}

// reasonBlock asks for a reason in words.
func reasonBlock(label string, optional bool) slack.Block {
	typed := slack.NewPlainTextInputBlockElement(nil, reasonInput)
	typed.Multiline = true
	typed.MaxLength = maxTypedReason
	input := slack.NewInputBlock(reasonInput, plainText(label), nil, typed)
	input.Optional = optional
	return input
}
