package bot

import (
	"strconv"
	"time"

	"github.com/slack-go/slack"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/internal/visible"
)

// renderReason asks for the reason that the policy wants of whoever approves.
// The card that led here showed all of the request; this says again what it
// comes to.
func renderReason(r *approval.Request) slack.ModalViewRequest {
	f := newFacts(r, cardBudget)
	view := modal(approveView, "Approve with a reason",
		slack.NewRichTextBlock("facts", f.lines()),
		slack.NewContextBlock("lead", plainText(consequence(r, "exactly this"))),
		reasonBlock("Reason for approving, shown on the card", false),
		slack.NewContextBlock("print", plainText(smallPrint(r))))
	view.PrivateMetadata = shows(r).value()
	view.Submit = plainText("Approve")
	view.Close = plainText("Cancel")
	return view
}

// consequence says what an approval of something leads to.
func consequence(r *approval.Request, what string) string {
	given, needed := votes(r)
	text := "If you approve, "
	if needed-given > 1 {
		text = "Your approval is number " + strconv.Itoa(given+1) + " of " + strconv.Itoa(needed) + " that this needs. Then "
	}
	if r.Executor == approval.ByGateway {
		text += "this server runs " + what + " once for " + visible.Line(r.Agent)
	} else {
		text += visible.Line(r.Agent) + " may run " + what + " once"
	}
	if within := r.Ruling.ApplyWithin; within > 0 {
		text += ", within " + span(within)
	}
	text += "."
	if r.Reversible != nil && !*r.Reversible {
		text += " " + capital(stater(r)) + " says that it can't be undone."
	}
	return text
}

// span writes how long something takes in words, to the minute: "1 hour 30
// minutes".
func span(d time.Duration) string {
	hours, minutes := int64(d/time.Hour), int64(d%time.Hour/time.Minute)
	switch {
	case hours == 0 && minutes == 0:
		return "less than a minute"
	case hours == 0:
		return counted(minutes, "minute")
	case minutes == 0:
		return counted(hours, "hour")
	default:
		return counted(hours, "hour") + " " + counted(minutes, "minute")
	}
}
