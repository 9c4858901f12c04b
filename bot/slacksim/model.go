package slacksim

import "encoding/json"

// The types below are what the simulator itself reads from blocks that passed
// the linter: what can be pressed, filled in and shown. Apps' JSON is kept and
// sent back as they wrote it.

type block struct {
	Type      string            `json:"type"`
	BlockID   string            `json:"block_id"`
	Text      *textObject       `json:"text"`
	Fields    []textObject      `json:"fields"`
	Accessory *element          `json:"accessory"`
	Elements  []json.RawMessage `json:"elements"`
	Label     *textObject       `json:"label"`
	Hint      *textObject       `json:"hint"`
	Element   *element          `json:"element"`
	Optional  bool              `json:"optional"`
	Level     any               `json:"level"` // a word on alerts, a number on headers
}

type textObject struct {
	Type  string `json:"type"`
	Text  string `json:"text"`
	Emoji *bool  `json:"emoji"`
}

// element is a button or an input.
type element struct {
	Type               string          `json:"type"`
	ActionID           string          `json:"action_id"`
	Text               *textObject     `json:"text"`
	Value              string          `json:"value"`
	URL                string          `json:"url"`
	Style              string          `json:"style"`
	AccessibilityLabel string          `json:"accessibility_label"`
	Confirm            *confirm        `json:"confirm"`
	Placeholder        *textObject     `json:"placeholder"`
	InitialValue       string          `json:"initial_value"`
	InitialDate        string          `json:"initial_date"`
	InitialOption      json.RawMessage `json:"initial_option"`
	InitialOptions     []option        `json:"initial_options"`
	Options            []option        `json:"options"`
	Multiline          bool            `json:"multiline"`
	MinLength          int             `json:"min_length"`
	MaxLength          int             `json:"max_length"`
	DecimalAllowed     bool            `json:"is_decimal_allowed"`
	MinValue           string          `json:"min_value"`
	MaxValue           string          `json:"max_value"`
}

type option struct {
	Text        *textObject `json:"text"`
	Value       string      `json:"value"`
	Description *textObject `json:"description,omitempty"`
}

// confirm is the dialog that a client shows before it sends a click.
type confirm struct {
	Title   *textObject `json:"title"`
	Text    *textObject `json:"text"`
	Confirm *textObject `json:"confirm"`
	Deny    *textObject `json:"deny"`
	Style   string      `json:"style"`
}

func blocksOf(data json.RawMessage) []block {
	var blocks []block
	if len(data) == 0 || json.Unmarshal(data, &blocks) != nil {
		return nil
	}
	return blocks
}

// buttons are the buttons of a block.
func (b block) buttons() []element {
	if b.Accessory != nil {
		return []element{*b.Accessory}
	}
	if b.Type != "actions" {
		return nil
	}
	var buttons []element
	for _, raw := range b.Elements {
		var e element
		if json.Unmarshal(raw, &e) == nil {
			buttons = append(buttons, e)
		}
	}
	return buttons
}

// button finds a button. Action ids are unique within a block only; without a
// block id the first counts.
func button(blocks json.RawMessage, blockID, actionID string) (element, string, bool) {
	for _, b := range blocksOf(blocks) {
		if blockID != "" && b.BlockID != blockID {
			continue
		}
		for _, e := range b.buttons() {
			if e.ActionID == actionID {
				return e, b.BlockID, true
			}
		}
	}
	return element{}, "", false
}
