package bot

import (
	"strings"
	"unicode/utf8"

	"github.com/countersign/countersign/approval/presentation"
	"github.com/countersign/countersign/internal/visible"
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

// inline reports whether a card shows all of the arguments.
func inline(a presentation.Arguments) bool {
	return a.Characters <= inlineCharacters && a.Lines <= inlineLines && length(a.Text) <= inlineLength
}

// excerpt is the beginning that a card shows of arguments that aren't inline,
// and how much of the whole that is, exactly.
func excerpt(a presentation.Arguments) (text, note string) {
	text, less := visible.Cut(a.Text, excerptCharacters)
	mark := ""
	if lines := strings.SplitN(text, "\n", excerptLines+1); len(lines) > excerptLines {
		text = strings.Join(lines[:excerptLines], "\n")
	} else if whole := strings.LastIndexByte(text, '\n'); whole > len(text)/2 {
		// Half a line could read as a value that isn't there.
		text = text[:whole]
	} else if less {
		mark = "…"
	}
	note = "Showing " + presentation.Digits(int64(1+strings.Count(text, "\n"))) + " of " + presentation.Counted(int64(a.Lines), "line") +
		", " + presentation.Digits(int64(utf8.RuneCountInString(text))) + " of " + presentation.Counted(int64(a.Characters), "character") + "."
	return text + mark, note
}

// chunks splits a text into ones that Slack takes, at line breaks where they are
// not too far apart.
func chunks(text string) []string {
	var chunks []string
	rest := text
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
