package presentation

import (
	"strings"
	"unicode/utf8"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/internal/visible"
)

// inlineDetail is how long a run's report may be, in characters, to stand in the
// line that says what became of it; a longer one gets a place of its own.
const inlineDetail = 80

// ranStage is where a request is that the gateway began to run. That it was
// approved and what came of it are two facts, so the heading says both.
func ranStage(r *approval.Request) Stage {
	how := consented(r)
	settled := ""
	if !r.Execution.SettledBy.IsZero() {
		settled = ", a person says"
	}
	switch {
	case r.Execution.FinishedAt.IsZero():
		return Stage{"🔵", how + " · running"}
	case r.Execution.Outcome == approval.Succeeded:
		return Stage{"✅", how + " · ran" + settled}
	case r.Execution.Outcome == approval.Failed && settled != "":
		return Stage{"⛔", how + " · did not run" + settled}
	case r.Execution.Outcome == approval.Failed:
		return Stage{"❌", how + " · failed"}
	default:
		return Stage{"❓", how + " · outcome unknown"}
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
	case d.Surface == approval.App:
		return "Confirmed in the agent's host"
	case d.Surface == approval.Granted:
		return "Approved by a grant"
	default:
		return "Allowed by the policy"
	}
}

// Ran is what became of a request that the gateway began to run: first who
// approved it, then what the tool came to. What the tool says stands in code
// style, so that it can't be taken for a word of ours. It is nil for others.
func Ran(r *approval.Request) Line {
	if r.Executor != approval.ByGateway || r.Execution == nil {
		return nil
	}
	var l Line
	consent(&l, r)
	l.Text(" · ")
	e := r.Execution
	switch {
	case e.FinishedAt.IsZero():
		l.Strong("Running")
	case !e.SettledBy.IsZero():
		if e.Outcome == approval.Succeeded {
			l.Strong("It ran")
		} else {
			l.Strong("It did not run")
		}
		l.Text(", says ")
		l.Person(e.SettledBy)
		l.Text(". The server had lost track.")
	case e.Outcome == approval.Unknown:
		l.Strong("Outcome unknown")
		l.Text(". The server lost track while it ran. It won't run again by itself. Whoever finds out whether it ran can say so here.")
	default:
		word := "Ran"
		if e.Outcome == approval.Failed {
			word = "Failed"
		}
		l.Strong(word)
		if text, short := shortDetail(r); short {
			l.Text(": ")
			l.Code(text)
		}
	}
	return l
}

// consent says who approved, or what did instead of a person.
func consent(l *Line, r *approval.Request) {
	const most = 3 // all of them stand below
	d := withoutPerson(r, approval.Approve)
	switch given := approvals(r); {
	case len(given) > 0:
		l.Strong("Approved")
		l.Text(" by ")
		for i, d := range given[:min(len(given), most)] {
			if i > 0 {
				l.Text(", ")
			}
			l.Person(d.Approver)
		}
		if more := len(given) - most; more > 0 {
			l.Text(" and " + Digits(int64(more)) + " more")
		}
	case d != nil && d.Surface == approval.Granted:
		l.Strong("Granted")
		l.Text(" with ")
		l.Code(string(r.GrantedBy))
	default:
		l.Strong(consented(r))
		if d != nil {
			l.Text(", not by a verified person")
		}
	}
}

// shortDetail is what a tool reported, if that fits the line that says what
// became of the run.
func shortDetail(r *approval.Request) (string, bool) {
	text := Detail(r)
	line := visible.Line(text)
	fits := strings.TrimSpace(text) != "" && !strings.ContainsAny(text, "\r\n") && utf8.RuneCountInString(line) <= inlineDetail
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
	return label, Detail(r)
}

// Settleable reports whether a person is to say what came of a run.
func Settleable(r *approval.Request) bool {
	return r.Executor == approval.ByGateway && r.Execution != nil &&
		r.Execution.Outcome == approval.Unknown && !r.Execution.FinishedAt.IsZero()
}
