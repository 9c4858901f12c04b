// Package visible shows an agent's text to a person as what it is: characters
// that can't be seen, or that move what is around them, become escapes in
// plain ASCII.
//
// [Text] and [Line] are for showing only. What runs, what is stored and what is
// hashed is the text itself, and they don't escape for HTML or Slack.
package visible

import (
	"iter"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Text returns s with everything that a person couldn't see replaced by an
// escape, for places that keep line breaks and tabs:
//
//   - \u{202e} for a character: controls except line feed and tab, directional
//     and other format characters, variation selectors, tags, fillers and other
//     default-ignorable characters, line and paragraph separators, blanks other
//     than the space, private-use characters, and what isn't assigned;
//   - \u{301} also for a combining mark that has no character to stand on, or
//     that would be the fifth on one character: it would be drawn over the text
//     before it or the lines above it;
//   - \x{ff} for a byte that isn't UTF-8.
//
// Two different strings never have the same Text. So that an escape can't be
// forged, a backslash in s that would start \u{ or \x{ is itself shown as the
// escape \u{5c}; other backslashes stay as they are. It follows that Text must
// be applied once.
func Text(s string) string { return show(s, true) }

// Line is [Text] for places of one line: line feeds and tabs are escapes too.
func Line(s string) string { return show(s, false) }

// maxMarks is how many combining marks may stand on one character. Written
// languages need up to four (Hebrew with accents, Tibetan stacks).
const maxMarks = 4

func show(s string, keepBreaks bool) string {
	var b strings.Builder
	copied := 0
	for c := range characters(s, keepBreaks) {
		if c.shown {
			continue
		}
		b.WriteString(s[copied:c.at])
		copied = c.at + c.size
		b.WriteString(c.escape())
	}
	if copied == 0 {
		return s
	}
	b.WriteString(s[copied:])
	return b.String()
}

// character is a code point, or a byte that isn't UTF-8, in a string.
type character struct {
	at, size int
	value    rune // the byte's value for a byte that isn't UTF-8
	isUTF8   bool
	shown    bool // false where an escape stands for it
}

func (c character) escape() string {
	kind := `\u{`
	if !c.isUTF8 {
		kind = `\x{`
	}
	return kind + strconv.FormatInt(int64(c.value), 16) + "}"
}

// characters yields all of s and decides what is shown as it is.
func characters(s string, keepBreaks bool) iter.Seq[character] {
	return func(yield func(character) bool) {
		marks := maxMarks // combining marks on the last character, maxMarks if it can carry none
		for at := 0; at < len(s); {
			c := character{at: at, isUTF8: true}
			c.value, c.size = utf8.DecodeRuneInString(s[at:])
			switch {
			case c.value == utf8.RuneError && c.size == 1:
				c.value, c.isUTF8 = rune(s[at]), false
			case c.value == '\n' || c.value == '\t':
				c.shown = keepBreaks
			case c.value == '\\':
				c.shown = !startsEscape(s[at:])
			case unicode.IsMark(c.value):
				c.shown = !hidden(c.value) && marks < maxMarks
			default:
				c.shown = !hidden(c.value)
			}
			switch {
			case !c.shown || c.value <= ' ':
				marks = maxMarks
			case unicode.IsMark(c.value):
				marks++
			default:
				marks = 0
			}
			if !yield(c) {
				return
			}
			at += c.size
		}
	}
}

// startsEscape says if s starts as escapes do. It looks no further than the
// brace, so that what is shown never depends on the text after it.
func startsEscape(s string) bool {
	return strings.HasPrefix(s, `\u{`) || strings.HasPrefix(s, `\x{`)
}

// hidden says if a person couldn't see r wherever it stands. Line feed and tab
// are hidden too.
func hidden(r rune) bool {
	// What Go prints is letters, marks, numbers, punctuation, symbols and the
	// space, as far as assigned. Some of those are drawn as nothing at all.
	return !unicode.IsPrint(r) ||
		unicode.In(r, unicode.Variation_Selector, unicode.Other_Default_Ignorable_Code_Point, blank)
}

// blank is what is drawn as nothing although its category and properties say
// that it is a letter, a mark or a symbol.
var blank = &unicode.RangeTable{
	R16: []unicode.Range16{
		{Lo: 0x2800, Hi: 0x2800, Stride: 1}, // Braille pattern without dots
		{Lo: 0xfffc, Hi: 0xfffc, Stride: 1}, // stands for an object that isn't there
	},
	R32: []unicode.Range32{
		{Lo: 0x13441, Hi: 0x13442, Stride: 1}, // Egyptian blanks
		{Lo: 0x16fe4, Hi: 0x16fe4, Stride: 1}, // Khitan filler
		{Lo: 0x1d159, Hi: 0x1d159, Stride: 1}, // musical null note head
	},
}
