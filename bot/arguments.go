package bot

import (
	"strings"
	"unicode/utf8"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/internal/visible"
	"github.com/countersign/countersign/policy"
)

// How much of the arguments a card shows, and how the rest is split over the
// Details modal.
const (
	inlineCharacters = 1200
	inlineLines      = 25
	inlineLength     = 2800 // as Slack counts

	// An excerpt is short, because it can't be decided on: who reads it has to
	// open Details anyway.
	excerptCharacters = 400
	excerptLines      = 8

	chunkLength = 2800 // as Slack counts; its limit for a text is 3,000

	// lineWidth is what a phone shows of preformatted text without wrapping.
	lineWidth = 44
)

// arguments is a payload laid out for reading.
type arguments struct {
	text       string // with hidden characters made visible
	characters int    // in text
	lines      int    // in text
	reindented bool   // the white space outside of strings isn't the payload's
	hidden     int    // how many values the policy hides, which aren't in text
	source     string // the payload without what the policy hides, as it is written otherwise
}

// layOut lays a payload out: what is short stays on a line, lists of plain
// values fill lines, and all else gets a line and an indent. Only white space
// outside of strings differs from the payload; numbers and strings stay as they
// are written, apart from what the policy hides.
func layOut(p approval.Payload, hidden policy.Redactions) arguments {
	a := arguments{source: string(p)}
	laidOut := a.source
	tree, ok := parseJSON(a.source)
	if ok {
		laidOut = tree.printed()
		a.reindented = laidOut != a.source
	}
	switch {
	case hidden.IsZero():
	case !ok:
		// What can't be told apart can't be shown either.
		laidOut, a.hidden = "‹hidden›", 1
		a.source = laidOut
	default:
		tree, a.hidden = redact(tree, hidden, nil)
		if a.hidden > 0 {
			laidOut = tree.printed()
			a.source = laidOut
		}
	}
	a.text = visible.Text(laidOut)
	a.characters = utf8.RuneCountInString(a.text)
	a.lines = 1 + strings.Count(a.text, "\n")
	return a
}

// label says what follows and what was done to it.
func (a arguments) label(size bool) line {
	var l line
	l.bold("Arguments")
	if size {
		l.text(", " + counted(int64(a.lines), "line") + ", " + counted(int64(a.characters), "character"))
	}
	if a.hidden > 0 {
		l.text(", " + counted(int64(a.hidden), "value") + " hidden by the policy")
	}
	if a.reindented {
		l.text(", spacing changed for reading")
	}
	return l
}

// inline reports whether a card shows all of it.
func (a arguments) inline() bool {
	return a.characters <= inlineCharacters && a.lines <= inlineLines && length(a.text) <= inlineLength
}

// excerpt is the beginning that a card shows of arguments that aren't inline,
// and how much of the whole that is, exactly.
func (a arguments) excerpt() (text, note string) {
	text, less := visible.Cut(a.text, excerptCharacters)
	mark := ""
	if lines := strings.SplitN(text, "\n", excerptLines+1); len(lines) > excerptLines {
		text = strings.Join(lines[:excerptLines], "\n")
	} else if whole := strings.LastIndexByte(text, '\n'); whole > len(text)/2 {
		// Half a line could read as a value that isn't there.
		text = text[:whole]
	} else if less {
		mark = "…"
	}
	note = "Showing " + digits(int64(1+strings.Count(text, "\n"))) + " of " + counted(int64(a.lines), "line") +
		", " + digits(int64(utf8.RuneCountInString(text))) + " of " + counted(int64(a.characters), "character") + "."
	return text + mark, note
}

// chunks splits all of it into texts that Slack takes, at line breaks where
// they are not too far apart.
func (a arguments) chunks() []string {
	var chunks []string
	rest := a.text
	for rest != "" {
		chunk, more := beginning(rest, chunkLength)
		if !more {
			return append(chunks, rest)
		}
		next := len(chunk)
		if last := strings.LastIndexByte(chunk, '\n'); last > len(chunk)/2 {
			// The break between two blocks is the line break.
			chunk, next = chunk[:last], last+1
		}
		if next == 0 {
			// One escape is longer than a chunk, which can't be.
			return append(chunks, rest)
		}
		chunks = append(chunks, chunk)
		rest = rest[next:]
	}
	return chunks
}
