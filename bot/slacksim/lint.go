package slacksim

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
)

// Error names that a lint problem can carry.
const (
	codeInvalidBlocks       = "invalid_blocks"
	codeInvalidBlocksFormat = "invalid_blocks_format"
	codeBlocksTooLong       = "msg_blocks_too_long"
	codeMessageTooLong      = "msg_too_long"
	codeInvalidArguments    = "invalid_arguments"
	codeViewTooLarge        = "view_too_large"
)

// Limits of whole messages and views.
const (
	maxMessageBlocks   = 50
	maxViewBlocks      = 100
	maxViewBytes       = 250_000
	maxUpdateText      = 4_000
	maxPostText        = 40_000
	maxPrivateMetadata = 3_000

	// Slack names msg_blocks_too_long but documents no threshold. Published
	// measurements: markdown blocks alone are taken up to 13,297 characters
	// (bolt-js#2509, where Slack speaks of "12,000 text characters with a
	// buffer for block containers"); of mixed blocks, 9,597 characters in 50
	// blocks are taken and 11,341 in 45 are refused (bolt-js#2867). Charging
	// each block for its container agrees with all of them.
	maxMessageCharacters = 13_200
	blockCharacters      = 50
)

// Problem is one reason for which Slack would refuse a message or view.
type Problem struct {
	// Code is the error name that the Web API would answer with, such as
	// invalid_blocks.
	Code string
	// Pointer is the JSON pointer of the offending value, such as
	// /blocks/0/text/text.
	Pointer string
	// Message says what is wrong, in Slack's words where they are known.
	Message string
}

// String formats the problem as Slack does in its list of errors.
func (p Problem) String() string { return p.Message + " [json-pointer:" + p.Pointer + "]" }

// LintMessage checks the blocks and notification text of a message that is
// posted and later updated with the same, against the limits that Slack
// documents. Lengths are in characters after escaping. Blocks may be empty,
// text must not be. It returns nil when Slack would take it.
func LintMessage(blocks json.RawMessage, text string) []Problem {
	problems := lintBlocks(blocks)
	switch n := characters(text, markupText); {
	case n == 0:
		problems = append(problems, Problem{Code: "no_text", Pointer: "/text", Message: "must be more than 0 characters"})
	case n > maxUpdateText:
		problems = append(problems, Problem{Code: codeMessageTooLong, Pointer: "/text", Message: lessThan(maxUpdateText)})
	}
	return problems
}

// lintBlocks checks the blocks of a message alone, as chat.postMessage does.
func lintBlocks(blocks json.RawMessage) []Problem {
	if len(blocks) == 0 {
		return nil
	}
	value, err := decodeStrict(blocks)
	if err != nil {
		return []Problem{{Code: codeInvalidBlocksFormat, Pointer: "/blocks", Message: "must be JSON: " + err.Error()}}
	}
	list, ok := value.([]any)
	if !ok {
		return []Problem{{Code: codeInvalidBlocksFormat, Pointer: "/blocks", Message: "must be an array"}}
	}
	l := &linter{surface: onMessage, code: codeInvalidBlocks}
	l.blocks(node{l, "/blocks", value}, 0, maxMessageBlocks)
	if l.characters+len(list)*blockCharacters > maxMessageCharacters {
		l.add(codeBlocksTooLong, "/blocks", fmt.Sprintf("must be less than %d characters over all blocks", maxMessageCharacters+1))
	}
	return l.problems
}

// LintView checks a modal or Home view. It returns nil when Slack would take
// it.
func LintView(view json.RawMessage) []Problem {
	if len(view) > maxViewBytes {
		return []Problem{{Code: codeViewTooLarge, Pointer: "/view", Message: fmt.Sprintf("must be at most %d bytes", maxViewBytes)}}
	}
	value, err := decodeStrict(view)
	if err != nil {
		return []Problem{{Code: codeInvalidArguments, Pointer: "/view", Message: "must be JSON: " + err.Error()}}
	}
	l := &linter{code: codeInvalidArguments}
	n := node{l, "/view", value}
	switch n.child("type").value {
	case "modal":
		l.surface = onModal
		l.modal(n)
	case "home":
		l.surface = onHome
		l.home(n)
	default:
		n.object("type*", "*")
		n.child("type").oneOf("modal", "home")
	}
	return l.problems
}

func (l *linter) modal(n node) {
	n.object("type*", "title*", "blocks*", "close", "submit", "private_metadata", "callback_id", "external_id",
		"clear_on_close", "notify_on_close", "submit_disabled")
	n.child("title").text(plainOnly, 24)
	n.child("submit").text(plainOnly, 24)
	n.child("close").text(plainOnly, 24)
	for _, name := range []string{"clear_on_close", "notify_on_close", "submit_disabled"} {
		n.child(name).boolean()
	}
	l.view(n)
	if l.inputs > 0 && !n.child("submit").present() {
		l.add(l.code, n.pointer, "missing required field: submit")
	}
}

func (l *linter) home(n node) {
	n.object("type*", "blocks*", "private_metadata", "callback_id", "external_id")
	l.view(n)
}

func (l *linter) view(n node) {
	n.child("private_metadata").id(0, maxPrivateMetadata)
	n.child("callback_id").id(0, 255)
	n.child("external_id").id(0, 255)
	l.blocks(n.child("blocks"), 1, maxViewBlocks)
	if l.focused > 1 {
		l.add(l.code, n.pointer, "focus_on_load may be set on one element only")
	}
}

// decodeStrict decodes exactly one JSON value, keeping numbers as written.
func decodeStrict(data []byte) (any, error) {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		return nil, err
	}
	if _, err := decoder.Token(); err != io.EOF {
		return nil, fmt.Errorf("something follows the value at byte %d", decoder.InputOffset())
	}
	return value, nil
}
