package strictjson

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// SyntaxError says why a text was refused and where.
type SyntaxError struct {
	// Offset is the index of the byte at which the text goes wrong, from 0 on.
	// It is the length of the text where the text ends too early.
	Offset int

	// Line and Column are the same place for a person, both from 1 on. Column
	// counts characters (Unicode code points; a byte that isn't UTF-8 is one).
	Line, Column int

	// Pointer is the JSON pointer (RFC 6901) of the value, member or container
	// that goes wrong. It is empty where that is the whole text.
	Pointer string

	// Reason is what is wrong, in words that follow "line 1, column 1: ".
	Reason string
}

// Error names the place and the reason, on one line of bounded length and
// without characters that can't be seen.
func (e *SyntaxError) Error() string {
	place := fmt.Sprintf("line %d, column %d", e.Line, e.Column)
	if e.Pointer != "" {
		place += " (at " + quote(e.Pointer, maxPointerShown) + ")"
	}
	return "not strict JSON: " + place + ": " + e.Reason
}

// Longest key and pointer that an error's text shows, in characters.
const (
	maxKeyShown     = 80
	maxPointerShown = 160
)

func newSyntaxError(data []byte, offset int, pointer jsontext.Pointer, reason string) *SyntaxError {
	offset = min(max(offset, 0), len(data))
	before := data[:offset]
	lineStart := bytes.LastIndexByte(before, '\n') + 1
	return &SyntaxError{
		Offset:  offset,
		Line:    1 + bytes.Count(before, []byte("\n")),
		Column:  1 + utf8.RuneCount(before[lineStart:]),
		Pointer: string(pointer),
		Reason:  reason,
	}
}

// syntaxError turns an error of jsontext about data into ours.
func syntaxError(data []byte, err error) error {
	syntactic, ok := errors.AsType[*jsontext.SyntacticError](err)
	if !ok {
		// A bare io.EOF: there was nothing but white space.
		return newSyntaxError(data, len(data), "", "there is no value")
	}
	offset := min(int(syntactic.ByteOffset), len(data))
	reason := reason(data[offset:], syntactic)
	if reason == endsEarly {
		// jsontext names the start of the token that is cut off.
		offset = len(data)
	}
	return newSyntaxError(data, offset, syntactic.JSONPointer, reason)
}

func tooDeep(data []byte, decoder *jsontext.Decoder) error {
	return newSyntaxError(data, int(decoder.InputOffset())-1, decoder.StackPointer(),
		"objects and arrays are nested deeper than "+strconv.Itoa(MaxDepth))
}

func trailingData(data []byte, offset int) error {
	return newSyntaxError(data, offset, "", "something follows after the end of the value")
}

const endsEarly = "the text ends inside the value"

// reason puts into words what is wrong at the start of rest.
func reason(rest []byte, err *jsontext.SyntacticError) string {
	if r, size := utf8.DecodeRune(rest); r == utf8.RuneError && size == 1 {
		return fmt.Sprintf("the byte 0x%02x isn't UTF-8 here", rest[0])
	}
	if unit, ok := escapedUnit(rest); ok && utf16.IsSurrogate(unit) {
		return fmt.Sprintf(`the surrogate \u%04x has no partner`, unit)
	}
	for _, word := range []string{"NaN", "Infinity"} {
		if bytes.HasPrefix(rest, []byte(word)) {
			return word + " isn't a JSON number"
		}
	}
	switch {
	case bytes.HasPrefix(rest, []byte("\ufeff")):
		return "a byte-order mark isn't allowed"
	case errors.Is(err, jsontext.ErrDuplicateName):
		return "duplicate key " + quote(err.JSONPointer.LastToken(), maxKeyShown)
	case errors.Is(err, jsontext.ErrNonStringName):
		return "a key must be a string in double quotes"
	case errors.Is(err, io.ErrUnexpectedEOF):
		return endsEarly
	}
	return toASCII(err.Err.Error())
}

// escapedUnit returns the UTF-16 code unit of the escape that text starts with.
func escapedUnit(text []byte) (rune, bool) {
	if len(text) < 6 || text[0] != '\\' || text[1] != 'u' {
		return 0, false
	}
	unit, err := strconv.ParseUint(string(text[2:6]), 16, 16)
	return rune(unit), err == nil
}

// quote returns s in double quotes as it may stand in an error's text: cut to
// the given number of characters, and what isn't ASCII as escapes.
func quote(s string, characters int) string {
	for i := range s {
		if characters == 0 {
			return strconv.QuoteToASCII(s[:i]) + " (cut)"
		}
		characters--
	}
	return strconv.QuoteToASCII(s)
}

// toASCII returns text with each character that isn't ASCII as an escape.
// jsontext shows some characters that can't be seen, such as U+3164, as they are.
func toASCII(text string) string {
	var b strings.Builder
	for _, r := range text {
		if r < utf8.RuneSelf {
			b.WriteRune(r)
			continue
		}
		b.WriteString(strings.Trim(strconv.QuoteRuneToASCII(r), "'"))
	}
	return b.String()
}
