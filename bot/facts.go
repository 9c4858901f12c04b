package bot

import (
	"github.com/slack-go/slack"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/approval/presentation"
)

// cardLimits keep everything that decides above the buttons on a phone.
// detailsLimits hold everything that a request can hold, so that nothing is cut
// there: an escape such as \u{10ffff} is ten characters of one.
var (
	cardLimits = presentation.Limits{
		Cut:    cut,
		Action: 200, Target: 300, Environment: 60,
		ListName: 40, Lists: 3,
		Why: 200, Rules: 3,
		Purpose: 500, PurposeLines: 8,
	}
	detailsLimits = presentation.Limits{
		Cut:    cut,
		Action: 10 * approval.MaxAction, Target: 10 * approval.MaxTarget, Environment: 10 * approval.MaxEnvironment,
		ListName: 200, Lists: 20,
		Why: 2000, Rules: 1000,
		Purpose: 10 * approval.MaxPurpose, PurposeLines: approval.MaxPurpose + 1,
		Tool: true,
	}
)

// factLines are facts below each other.
func factLines(facts []presentation.Fact) presentation.Line {
	var l presentation.Line
	for _, fact := range facts {
		l.Label(fact.Name)
		l.Add(fact.Value)
	}
	return l
}

// warnings are all that a request and the arguments that may be shown warn of; nil
// if there is nothing.
func warnings(r *approval.Request, arguments string) presentation.Line {
	var l presentation.Line
	for i, one := range presentation.Warnings(r, arguments) {
		if i > 0 {
			l.Text("\n")
		}
		l.Text("⚠️ ")
		l.Add(one)
	}
	return l
}

// purpose is what an action is for, with whose words those are.
func purpose(f *presentation.Facts) []slack.RichTextElement {
	label, words := f.Purpose()
	elements := []slack.RichTextElement{section(label)}
	for _, part := range chunks(words) {
		elements = append(elements, quote(part))
	}
	return elements
}

// summary is the action with its count in one phrase, for the notification and
// for the confirmation. The count is never cut.
func summary(r *approval.Request, limit int) string {
	action, count := phrase(r, limit)
	return action + count
}

// phrase is a summary in two parts.
func phrase(r *approval.Request, limit int) (action, count string) {
	action, count = presentation.Phrase(r)
	action, _ = cut(action, max(limit-len(count), 20))
	return action, count
}

// words are the reasons of approvals, the reason of a rejection and what an
// execution reported: other people's texts that belong to the outcome. Each is
// at most limit characters long, and the reasons of approvals together.
func words(r *approval.Request, limit int) []slack.RichTextElement {
	var said []slack.RichTextElement
	say := func(one presentation.Quote, limit int) {
		text, _ := cut(one.Text, limit)
		said = append(said, section(one.Label), quote(text))
	}
	reasons := presentation.Reasons(r)
	for _, one := range reasons {
		say(one, limit/len(reasons))
	}
	if one := presentation.Words(r); one != nil {
		say(*one, limit)
	}
	return said
}

// outcome says what became of the request; nil while nothing has.
func outcome(r *approval.Request) []slack.MixedElement { return small(presentation.History(r)...) }

// notification is the text that stands alone on a lock screen and that screen
// readers read.
func notification(r *approval.Request) string {
	const actionLength = 60
	text := presentation.StageOf(r).Words + " (" + presentation.Environment(r) + "): " + summary(r, actionLength) + "."
	if r.Status == approval.Pending {
		text += " Expires " + clock(r.ExpiresAt, r.CreatedAt) + "."
	}
	return escape(text)
}

// heading is where a request is, and of which environment it is.
func heading(r *approval.Request) string {
	stage := presentation.StageOf(r)
	return stage.Mark + " " + stage.Words + " · " + presentation.Environment(r)
}
