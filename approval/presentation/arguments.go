package presentation

import (
	"strings"
	"unicode/utf8"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/internal/visible"
	"github.com/countersign/countersign/policy"
)

// lineWidth is what a phone shows of preformatted text without wrapping.
const lineWidth = 44

// Arguments is a payload laid out for reading.
type Arguments struct {
	Text       string // laid out, with hidden characters made visible
	Characters int    // in Text
	Lines      int    // in Text
	Reindented bool   // the white space outside of strings isn't the payload's
	Hidden     int    // how many values the policy hides, which aren't in Text
	Source     string // the payload without what the policy hides, as it is written otherwise
	tree       jsonNode
	parsed     bool // whether it could be taken apart
}

// LayOut lays a payload out: what is short stays on a line, lists of plain
// values fill lines, and all else gets a line and an indent. Only white space
// outside of strings differs from the payload; numbers and strings stay as they
// are written, apart from what the policy hides.
func LayOut(p approval.Payload, hidden policy.Redactions) Arguments {
	a := Arguments{Source: string(p)}
	laidOut := a.Source
	a.tree, a.parsed = parseJSON(a.Source)
	switch {
	case !a.parsed && !hidden.IsZero():
		// What can't be told apart can't be shown either.
		laidOut, a.Hidden = masked, 1
		a.Source = laidOut
	case a.parsed:
		a.Reindented = a.tree.printed() != a.Source
		a.tree, a.Hidden = redact(a.tree, hidden, nil)
		laidOut = a.tree.printed()
		a.Source = a.tree.written(a.Source)
	}
	a.Text = visible.Text(laidOut)
	a.Characters = utf8.RuneCountInString(a.Text)
	a.Lines = 1 + strings.Count(a.Text, "\n")
	return a
}

// Label says what follows and what was done to it.
func (a Arguments) Label(size bool) Line {
	var l Line
	l.Strong("Arguments")
	if size {
		l.Text(", " + Counted(int64(a.Lines), "line") + ", " + Counted(int64(a.Characters), "character"))
	}
	if a.Hidden > 0 {
		l.Text(", " + Counted(int64(a.Hidden), "value") + " hidden by the policy")
	}
	if a.Reindented {
		l.Text(", spacing changed for reading")
	}
	return l
}
