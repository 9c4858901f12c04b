package bot

import (
	"github.com/slack-go/slack"

	"github.com/countersign/countersign/approval"
)

// settleButtons ask what came of a run that nobody knows the outcome of.
func settleButtons(r *approval.Request) []slack.BlockElement {
	ask := func(action, label, title, text string) slack.BlockElement {
		b := button(action, label, shows(r).value(), slack.StyleDefault)
		b.Confirm = slack.NewConfirmationBlockObject(plainText(title), plainText(text), plainText(label), plainText("Cancel"))
		return b
	}
	const recorded = " This is recorded as your word and can't be changed. Nothing runs because of it."
	return []slack.BlockElement{
		ask(ranAction, "It ran", "Did it run?", "Say so only if you have looked where it would have run, and its effect is there."+recorded),
		ask(notRanAction, "It did not run", "Did it not run?", "Say so only if you have looked where it would have run, and nothing of it is there."+recorded),
	}
}
