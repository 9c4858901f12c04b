package bot

import (
	"strings"

	"github.com/slack-go/slack"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/internal/visible"
)

// inlineDetail is how long a run's report may be to stand in the line that says
// what became of it; a longer one gets a place of its own.
const inlineDetail = 80

// ranStage is where a request is that the gateway began to run. That it was
// approved and what came of it are two facts, so the heading says both.
func ranStage(r *approval.Request) stage {
	how := consented(r)
	settled := ""
	if !r.Execution.SettledBy.IsZero() {
		settled = ", a person says"
	}
	switch {
	case r.Execution.FinishedAt.IsZero():
		return stage{"🔵", how + " · running"}
	case r.Execution.Outcome == approval.Succeeded:
		return stage{"✅", how + " · ran" + settled}
	case r.Execution.Outcome == approval.Failed && settled != "":
		return stage{"⛔", how + " · did not run" + settled}
	case r.Execution.Outcome == approval.Failed:
		return stage{"❌", how + " · failed"}
	default:
		return stage{"❓", how + " · outcome unknown"}
	}
}

// consented is how it came that a request may run, in a word or two.
func consented(r *approval.Request) string {
	d := withoutPerson(r, approval.Approve)
	switch {
	case len(approvals(r)) > 0 || d == nil:
		return "Approved"
	case d.Surface == approval.InBand:
		return "Confirmed by the client"
	case d.Surface == approval.Granted:
		return "Approved by a grant"
	default:
		return "Allowed by the policy"
	}
}

// ran is what became of a request that the gateway began to run: first who
// approved it, then what the tool came to. What the tool says stands in code
// style, so that it can't be taken for a word of ours.
func ran(r *approval.Request) []slack.RichTextElement {
	if r.Executor != approval.ByGateway || r.Execution == nil {
		return nil
	}
	var l line
	consent(&l, r)
	l.text(" · ")
	e := r.Execution
	switch {
	case e.FinishedAt.IsZero():
		l.bold("Running")
	case !e.SettledBy.IsZero():
		if e.Outcome == approval.Succeeded {
			l.bold("It ran")
		} else {
			l.bold("It did not run")
		}
		l.text(", says ")
		l.person(e.SettledBy)
		l.text(". The server had lost track.")
	case e.Outcome == approval.Unknown:
		l.bold("Outcome unknown")
		l.text(". The server lost track while it ran. It won't run again by itself. Whoever finds out whether it ran can say so on the card.")
	default:
		word := "Ran"
		if e.Outcome == approval.Failed {
			word = "Failed"
		}
		l.bold(word)
		if text, short := shortDetail(r); short {
			l.text(": ")
			l.code(text)
		}
	}
	return []slack.RichTextElement{l.section()}
}

// consent says who approved, or what did instead of a person.
func consent(l *line, r *approval.Request) {
	const most = 3 // all of them stand below
	d := withoutPerson(r, approval.Approve)
	switch given := approvals(r); {
	case len(given) > 0:
		l.bold("Approved")
		l.text(" by ")
		for i, d := range given[:min(len(given), most)] {
			if i > 0 {
				l.text(", ")
			}
			l.person(d.Approver)
		}
		if more := len(given) - most; more > 0 {
			l.text(" and " + digits(int64(more)) + " more")
		}
	case d != nil && d.Surface == approval.Granted:
		l.bold("Granted")
		l.text(" with ")
		l.code(string(r.GrantedBy))
	default:
		l.bold(consented(r))
		if d != nil {
			l.text(", not by a verified person")
		}
	}
}

// shortDetail is what a tool reported, if that fits the line that says what
// became of the run.
func shortDetail(r *approval.Request) (string, bool) {
	text := detail(r)
	line := visible.Line(text)
	fits := strings.TrimSpace(text) != "" && !strings.ContainsAny(text, "\r\n") && length(line) <= inlineDetail
	return line, fits && r.Executor == approval.ByGateway && r.Execution.Outcome != approval.Unknown && r.Execution.SettledBy.IsZero()
}

// reported is what a run reported and the words that say who did; "" if it was
// said elsewhere.
func reported(r *approval.Request) (label, text string) {
	if _, short := shortDetail(r); short {
		return "", ""
	}
	e := r.Execution
	switch {
	case r.Executor != approval.ByGateway:
		label = "The agent reports"
	case e.Outcome == approval.Unknown || !e.SettledBy.IsZero():
		// No tool answered.
		label = "The server noted"
	default:
		label = "The tool reports"
	}
	return label, detail(r)
}

// settleable reports whether a person is to say what came of a run.
func settleable(r *approval.Request) bool {
	return r.Executor == approval.ByGateway && r.Execution != nil &&
		r.Execution.Outcome == approval.Unknown && !r.Execution.FinishedAt.IsZero()
}

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
