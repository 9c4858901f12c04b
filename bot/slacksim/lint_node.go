package slacksim

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"
)

// surface is where blocks are shown; the values are bits, so that a rule can
// name several.
type surface int

const (
	onMessage surface = 1 << iota
	onModal
	onHome

	anywhere = onMessage | onModal | onHome
)

func (s surface) String() string {
	return map[surface]string{onMessage: "messages", onModal: "modals", onHome: "Home tabs"}[s]
}

// linter collects the problems of one message or view.
type linter struct {
	surface    surface
	code       string // the error name of ordinary problems
	problems   []Problem
	characters int // of text, over all blocks
	inputs     int // input blocks seen
	focused    int // elements with focus_on_load
}

func (l *linter) add(code, pointer, message string) {
	l.problems = append(l.problems, Problem{Code: code, Pointer: pointer, Message: message})
}

// node is a value in the document under check and the way to it. The value is
// nil when it is absent.
type node struct {
	l       *linter
	pointer string
	value   any
}

func (n node) present() bool { return n.value != nil }

func (n node) fail(format string, args ...any) {
	n.l.add(n.l.code, n.pointer, fmt.Sprintf(format, args...))
}

func (n node) child(name string) node {
	object, _ := n.value.(map[string]any)
	return node{n.l, n.pointer + "/" + name, object[name]}
}

// object checks that the value is an object with only these properties; a name
// that ends in * is required, and "*" alone allows any other. It reports
// whether there is an object to look into.
func (n node) object(properties ...string) bool {
	object, ok := n.value.(map[string]any)
	if !ok {
		if n.present() {
			n.fail("must be an object")
		}
		return false
	}
	for _, property := range properties {
		name, required := strings.CutSuffix(property, "*")
		if required && name != "" && object[name] == nil {
			n.fail("missing required field: %s", name)
		}
	}
	if slices.Contains(properties, "*") {
		return true
	}
	for _, name := range slices.Sorted(maps.Keys(object)) {
		if !slices.Contains(properties, name) && !slices.Contains(properties, name+"*") {
			n.fail("invalid additional property: %s", name)
		}
	}
	return true
}

// items checks that the value is an array with that many items and returns
// them.
func (n node) items(fewest, most int) []node {
	if !n.present() {
		return nil
	}
	array, ok := n.value.([]any)
	if !ok {
		n.fail("must be an array")
		return nil
	}
	if len(array) > most {
		n.fail("no more than %d items allowed", most)
	}
	if len(array) < fewest {
		n.fail("no fewer than %d items allowed", fewest)
	}
	nodes := make([]node, len(array))
	for i, value := range array {
		nodes[i] = node{n.l, fmt.Sprintf("%s/%d", n.pointer, i), value}
	}
	return nodes
}

// text1 checks an optional string that isn't shown as message text, such as an
// id or a value, and returns it.
func (n node) id(fewest, most int) string {
	if !n.present() {
		return ""
	}
	s, ok := n.value.(string)
	if !ok {
		n.fail("must be a string")
		return ""
	}
	n.length(utf8.RuneCountInString(s), fewest, most)
	return s
}

func (n node) length(count, fewest, most int) {
	if count < fewest {
		n.fail("must be more than %d characters", fewest-1)
	}
	if count > most {
		n.fail("%s", lessThan(most))
	}
}

func lessThan(most int) string { return fmt.Sprintf("must be less than %d characters", most+1) }

// oneOf checks an optional string against a fixed set.
func (n node) oneOf(allowed ...string) {
	if s, ok := n.value.(string); n.present() && (!ok || !slices.Contains(allowed, s)) {
		n.fail("must be one of: %s", strings.Join(allowed, ", "))
	}
}

func (n node) boolean() {
	if _, ok := n.value.(bool); n.present() && !ok {
		n.fail("must be a boolean")
	}
}

// integer checks an optional whole number and returns it, with the fallback
// when it is absent or wrong.
func (n node) integer(fewest, most, fallback int) int {
	if !n.present() {
		return fallback
	}
	number, ok := n.value.(json.Number)
	i, err := number.Int64()
	if !ok || err != nil {
		n.fail("must be an integer")
		return fallback
	}
	if int(i) < fewest || int(i) > most {
		n.fail("must be between %d and %d", fewest, most)
		return fallback
	}
	return int(i)
}

// textKind says which text objects a place takes.
type textKind int

const (
	plainOnly textKind = iota
	plainOrMarkup
)

// text checks an optional text object whose text has 1 to most characters.
func (n node) text(kind textKind, most int) {
	if !n.present() {
		return
	}
	markup := n.child("type").value == "mrkdwn"
	escaping := plainText
	if markup {
		escaping = markupText
		n.object("type*", "text*", "verbatim")
	} else {
		n.object("type*", "text*", "emoji")
	}
	if kind == plainOnly {
		n.child("type").oneOf("plain_text")
	} else {
		n.child("type").oneOf("plain_text", "mrkdwn")
	}
	n.child("emoji").boolean()
	n.child("verbatim").boolean()
	n.child("text").shown(escaping, 1, most)
}

// shown checks a string that people read, counting it towards the whole
// message.
func (n node) shown(e escaping, fewest, most int) {
	if !n.present() {
		return
	}
	s, ok := n.value.(string)
	if !ok {
		n.fail("must be a string")
		return
	}
	count := characters(s, e)
	n.l.characters += count
	n.length(count, fewest, most)
}

// escaping says what Slack's escaping does to a text before it is counted.
type escaping int

const (
	plainText  escaping = iota // &, < and > each become an entity
	markupText                 // < and > are markup, & becomes an entity unless it starts one
)

// characters counts a text as Slack stores it. That the count is after escaping
// is documented only in that limits apply to the escaped text; counting an
// unescaped & as five is the stricter reading.
func characters(text string, e escaping) int {
	count := utf8.RuneCountInString(text)
	for i, r := range text {
		switch {
		case r == '&' && !startsEntity(text[i:]):
			count += len("&amp;") - 1
		case (r == '<' || r == '>') && e == plainText:
			count += len("&lt;") - 1
		}
	}
	return count
}

func startsEntity(s string) bool {
	return strings.HasPrefix(s, "&amp;") || strings.HasPrefix(s, "&lt;") || strings.HasPrefix(s, "&gt;")
}
