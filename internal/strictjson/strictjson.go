// Package strictjson reads JSON that must run exactly as it was reviewed.
//
// Two parsers that disagree on a text are a hole in an approval: a person
// reviews what one of them sees and the action runs what the other one sees.
// So a text that any two parsers could read differently is refused and never
// repaired, and nothing here decodes a text and encodes it again: numbers stay
// the digits that were written.
//
// It doesn't limit how long a text may be, and it doesn't interpret values.
package strictjson

import (
	"bytes"

	"github.com/go-json-experiment/json/jsontext"
)

// MaxDepth is how deep objects and arrays may be nested in each other.
// [[]] is nested two deep.
const MaxDepth = 64

// Check reports whether data is one JSON value that every parser reads alike.
// It returns nil, or a [*SyntaxError] for the first place that isn't:
//
//   - anything outside the grammar of RFC 8259, such as NaN, comments, or a
//     byte-order mark;
//   - a key that occurs twice in an object, also where one is written with
//     escapes (a and \u0061);
//   - bytes that aren't UTF-8, and escaped surrogates without their partner;
//   - anything but white space after the value;
//   - nesting deeper than [MaxDepth].
//
// Numbers of any size and precision are accepted.
func Check(data []byte) error {
	decoder := newDecoder(data)
	for {
		token, err := decoder.ReadToken()
		if err != nil {
			return syntaxError(data, err)
		}
		if kind := token.Kind(); kind == jsontext.KindBeginObject || kind == jsontext.KindBeginArray {
			if decoder.StackDepth() > MaxDepth {
				return tooDeep(data, decoder)
			}
		}
		if decoder.StackDepth() == 0 {
			break
		}
	}
	end := int(decoder.InputOffset())
	if rest := bytes.TrimLeft(data[end:], whiteSpace); len(rest) > 0 {
		return trailingData(data, len(data)-len(rest))
	}
	return nil
}

// Canonical returns the one form that all spellings of the same value share:
// keys in the order of RFC 8785 (by UTF-16 code units), no white space between
// tokens, and each string with the fewest escapes (RFC 8785, section 3.2.2.2).
//
// Number literals are kept as written, against RFC 8785, which would give
// 9007199254740993 and 9007199254740992 the same form. So 1 and 1.0 differ.
// Characters are never normalised.
//
// Canonical accepts what [Check] accepts and returns the same errors. It is
// idempotent. data isn't changed and the result doesn't share memory with it.
func Canonical(data []byte) ([]byte, error) {
	if err := Check(data); err != nil {
		return nil, err
	}
	canonical, err := jsontext.AppendFormat(make([]byte, 0, len(data)), data,
		jsontext.ReorderRawObjects(true),
		jsontext.CanonicalizeRawInts(false),
		jsontext.CanonicalizeRawFloats(false),
	)
	if err != nil {
		return nil, syntaxError(data, err)
	}
	return canonical, nil
}

// whiteSpace is what JSON allows between tokens.
const whiteSpace = " \t\r\n"

// newDecoder returns a decoder that reads data in place: jsontext takes the
// bytes of a bytes.Buffer without copying and never writes to them.
func newDecoder(data []byte) *jsontext.Decoder {
	return jsontext.NewDecoder(bytes.NewBuffer(data),
		jsontext.AllowDuplicateNames(false),
		jsontext.AllowInvalidUTF8(false),
	)
}
