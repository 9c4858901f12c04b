// Package jsoninput reads the members of a JSON object that somebody sent, and
// says in words what isn't accepted and what would be.
//
// It is for inputs that people decide on: a member that nobody expects is
// refused instead of dropped, since what is dropped is never seen, nothing is
// rounded, and what is kept is kept byte for byte.
package jsoninput

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/countersign/countersign/internal/strictjson"
)

// Error says which member was refused and what would be accepted. Its text is
// short, on one line, and has no characters that can't be seen.
type Error struct {
	Field   string // the member's name as it was written; empty for the object as a whole
	Problem string // what is wrong and what is accepted, in words that follow the name
}

// Error is "FIELD: PROBLEM".
func (e *Error) Error() string {
	if e.Field == "" {
		return e.Problem
	}
	return e.Field + ": " + e.Problem
}

// Object is an object that was read. Its methods give the values of members. The
// first that isn't what it has to be is kept as the error, and all of them give
// zero values from then on.
type Object struct {
	values map[string][]byte
	err    error
}

// Read reads an object that may have the accepted members and no others. of is
// whose inputs they are, as errors call it. No text at all, or only white space,
// is an object without members.
func Read(raw []byte, of string, accepted ...string) *Object {
	o := &Object{}
	if len(bytes.TrimSpace(raw)) == 0 {
		return o
	}
	members, err := strictjson.Members(raw)
	if errors.Is(err, strictjson.ErrNotObject) {
		o.refuse("", "is %s; an object with %s is accepted", kindOf(bytes.TrimSpace(raw)), strings.Join(accepted, ", "))
		return o
	}
	if syntax, ok := errors.AsType[*strictjson.SyntaxError](err); ok {
		field, _, _ := strings.Cut(strings.TrimPrefix(syntax.Pointer, "/"), "/")
		if !slices.Contains(accepted, field) {
			field = ""
		}
		o.refuse(field, "is %s", syntax)
		return o
	}
	if err != nil {
		o.err = err
		return o
	}
	o.values = make(map[string][]byte, len(members))
	for _, member := range members {
		if !slices.Contains(accepted, member.Name) {
			o.refuse(shown([]byte(member.Name)), "is not an input of %s; accepted are %s", of, strings.Join(accepted, ", "))
			return o
		}
		o.values[member.Name] = member.Value
	}
	return o
}

// Err is what is wrong with what was read so far: nil, or an *Error.
func (o *Object) Err() error { return o.err }

// Has reports whether a member is there.
func (o *Object) Has(name string) bool { return o.value(name) != nil }

// Text is a string, which has at most limit characters if whoever uses it checks
// that; empty if it isn't there.
func (o *Object) Text(name string, limit int) string {
	value := o.value(name)
	if value == nil {
		return ""
	}
	text, err := Text(name, value, limit)
	if err != nil {
		o.err = err
	}
	return text
}

// RequiredText is Text of a member that must be there; hint is what to give.
func (o *Object) RequiredText(name string, limit int, hint string) string {
	o.require(name, hint)
	return o.Text(name, limit)
}

// Object is the text of an object that must be there, byte for byte as it was
// written; hint is what to give. It shares memory with what was read.
func (o *Object) Object(name, hint string) []byte {
	o.require(name, hint)
	value := o.value(name)
	if value == nil {
		return nil
	}
	if value[0] != '{' {
		o.refuse(name, "is %s; a JSON object is accepted, as itself and not as text that holds it", kindOf(value))
		return nil
	}
	return value
}

// Count is a whole number from 0 on, in any spelling; nil if it isn't there.
func (o *Object) Count(name string) *int64 {
	value := o.value(name)
	if value == nil {
		return nil
	}
	count, err := wholeNumber(value)
	if err != nil || count < 0 {
		o.refuse(name, "is %s; a whole number from 0 to %d is accepted", shown(value), int64(math.MaxInt64))
		return nil
	}
	return &count
}

// Seconds is a whole number of seconds in any spelling, brought within what is
// accepted: 0 are the least there are. 0 if it isn't there.
func (o *Object) Seconds(name string, least, most time.Duration) time.Duration {
	value := o.value(name)
	if value == nil {
		return 0
	}
	low, high := int64(least/time.Second), int64(most/time.Second)
	seconds, err := wholeNumber(value)
	switch {
	case errors.Is(err, errTooSmall):
		seconds = low
	case errors.Is(err, errTooLarge):
		seconds = high
	case err != nil:
		o.refuse(name, "is %s; a whole number of seconds from %d to %d is accepted", shown(value), low, high)
		return 0
	}
	return time.Duration(min(max(seconds, low), high)) * time.Second
}

// Boolean is true or false; nil if it isn't there.
func (o *Object) Boolean(name string) *bool {
	value := o.value(name)
	if value == nil {
		return nil
	}
	if kindOf(value) != kindBoolean {
		o.refuse(name, "is %s; true and false are accepted", shown(value))
		return nil
	}
	is := value[0] == 't'
	return &is
}

// value is a member as it was written; nil if it isn't there or something was
// wrong before.
func (o *Object) value(name string) []byte {
	if o.err != nil {
		return nil
	}
	return o.values[name]
}

func (o *Object) require(name, hint string) {
	if o.err == nil && o.values[name] == nil {
		o.refuse(name, "is missing; %s", hint)
	}
}

func (o *Object) refuse(field, format string, args ...any) {
	o.err = &Error{Field: field, Problem: fmt.Sprintf(format, args...)}
}

// Text reads one strict JSON value that must be a string. limit is how many
// characters errors say are accepted.
func Text(name string, value []byte, limit int) (string, error) {
	if value[0] != '"' {
		return "", &Error{name, fmt.Sprintf("is %s; a string of at most %d characters is accepted", kindOf(value), limit)}
	}
	var text string
	if err := json.Unmarshal(value, &text); err != nil {
		return "", &Error{name, fmt.Sprintf("is not a string: %v", err)}
	}
	return text, nil
}

// The kinds of JSON values, in words.
const (
	kindObject  = "an object"
	kindArray   = "an array"
	kindString  = "a string"
	kindBoolean = "a boolean"
	kindNull    = "null"
	kindNumber  = "a number"
)

// kindOf is the kind of one JSON value.
func kindOf(value []byte) string {
	switch value[0] {
	case '{':
		return kindObject
	case '[':
		return kindArray
	case '"':
		return kindString
	case 't', 'f':
		return kindBoolean
	case 'n':
		return kindNull
	default:
		return kindNumber
	}
}

// shown is a value as it may stand in an error's text: short, on one line, and
// without characters that can't be seen.
func shown(value []byte) string {
	const limit = 40
	if len(value) == 0 {
		return `""`
	}
	text, cut := string(value), ""
	if len(text) > limit {
		text, cut = strings.ToValidUTF8(text[:limit], ""), " (cut)"
	}
	if quoted := strconv.QuoteToASCII(text); quoted != `"`+text+`"` {
		text = quoted
	}
	return text + cut
}
