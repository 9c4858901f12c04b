package slacksim

import (
	"math/big"
	"reflect"
	"time"
)

const maxInputLength = 3000

func lintInput(n node) {
	n.l.inputs++
	n.object("type*", "block_id", "label*", "element*", "hint", "optional", "dispatch_action")
	n.child("label").text(plainOnly, 2000)
	n.child("hint").text(plainOnly, 2000)
	n.child("optional").boolean()
	n.child("dispatch_action").boolean()
	element := n.child("element")
	if !element.present() {
		return
	}
	check, ok := map[string]func(node){
		"plain_text_input": lintTextInput,
		"email_text_input": lintLineInput,
		"url_text_input":   lintLineInput,
		"number_input":     lintNumberInput,
		"static_select":    lintSelect,
		"radio_buttons":    lintRadioButtons,
		"checkboxes":       lintCheckboxes,
		"datepicker":       lintDatePicker,
	}[stringOf(element.child("type").value)]
	if !ok {
		element.child("type").fail("unsupported type: %v (not one that slacksim simulates)", element.child("type").value)
		return
	}
	check(element)
	element.child("action_id").id(1, 255)
	element.child("placeholder").text(plainOnly, 150)
	element.child("focus_on_load").boolean()
	if element.child("focus_on_load").value == true {
		n.l.focused++
	}
	lintConfirm(element.child("confirm"))
	lintDispatch(element.child("dispatch_action_config"))
}

func lintDispatch(n node) {
	if !n.present() {
		return
	}
	n.object("trigger_actions_on*")
	for _, trigger := range n.child("trigger_actions_on").items(1, 2) {
		trigger.oneOf("on_enter_pressed", "on_character_entered")
	}
}

func lintTextInput(n node) {
	n.object("type*", "action_id", "initial_value", "multiline", "min_length", "max_length", "placeholder", "focus_on_load", "dispatch_action_config")
	n.child("multiline").boolean()
	shortest := n.child("min_length").integer(0, maxInputLength, 0)
	longest := n.child("max_length").integer(1, maxInputLength, maxInputLength)
	if shortest > longest {
		n.child("min_length").fail("must not be more than max_length")
	}
	if initial := n.child("initial_value"); initial.present() {
		initial.id(0, longest)
	}
}

func lintLineInput(n node) {
	n.object("type*", "action_id", "initial_value", "placeholder", "focus_on_load", "dispatch_action_config")
	n.child("initial_value").id(0, maxInputLength)
}

func lintNumberInput(n node) {
	n.object("type*", "is_decimal_allowed*", "action_id", "initial_value", "min_value", "max_value", "placeholder", "focus_on_load", "dispatch_action_config")
	n.child("is_decimal_allowed").boolean()
	decimals := n.child("is_decimal_allowed").value == true
	read := func(name string) *big.Rat {
		child := n.child(name)
		if !child.present() {
			return nil
		}
		value, ok := parseNumber(stringOf(child.value), decimals)
		if !ok {
			child.fail("must be a number in a string")
		}
		return value
	}
	lowest, highest, initial := read("min_value"), read("max_value"), read("initial_value")
	if lowest != nil && highest != nil && lowest.Cmp(highest) > 0 {
		n.child("min_value").fail("must not be more than max_value")
	}
	if initial != nil && (lowest != nil && initial.Cmp(lowest) < 0 || highest != nil && initial.Cmp(highest) > 0) {
		n.child("initial_value").fail("must be between min_value and max_value")
	}
}

// parseNumber reads a decimal number as Slack's number input takes it.
func parseNumber(s string, decimals bool) (*big.Rat, bool) {
	for i, r := range s {
		if !(r >= '0' && r <= '9' || r == '-' && i == 0 || r == '.' && decimals) {
			return nil, false
		}
	}
	return new(big.Rat).SetString(s)
}

func lintSelect(n node) {
	n.object("type*", "action_id", "options*", "initial_option", "placeholder", "confirm", "focus_on_load")
	lintOptions(n, plainOnly, 100)
	lintInitial(n, n.child("initial_option"))
}

func lintRadioButtons(n node) {
	n.object("type*", "action_id", "options*", "initial_option", "confirm", "focus_on_load")
	lintOptions(n, plainOrMarkup, 10)
	lintInitial(n, n.child("initial_option"))
}

func lintCheckboxes(n node) {
	n.object("type*", "action_id", "options*", "initial_options", "confirm", "focus_on_load")
	lintOptions(n, plainOrMarkup, 10)
	for _, initial := range n.child("initial_options").items(1, 10) {
		lintInitial(n, initial)
	}
}

func lintDatePicker(n node) {
	n.object("type*", "action_id", "initial_date", "placeholder", "confirm", "focus_on_load")
	if initial := n.child("initial_date"); initial.present() {
		if _, err := time.Parse(time.DateOnly, stringOf(initial.value)); err != nil {
			initial.fail("must be a date as YYYY-MM-DD")
		}
	}
}

func lintOptions(n node, kind textKind, most int) {
	for _, option := range n.child("options").items(1, most) {
		option.object("text*", "value*", "description")
		option.child("text").text(kind, 75)
		option.child("value").id(1, 150)
		option.child("description").text(kind, 75)
	}
}

// lintInitial checks that an initial option is one of the options, field for
// field.
func lintInitial(n, initial node) {
	if !initial.present() {
		return
	}
	options, _ := n.child("options").value.([]any)
	for _, option := range options {
		if reflect.DeepEqual(option, initial.value) {
			return
		}
	}
	initial.fail("must match one of the options")
}

func stringOf(value any) string {
	s, _ := value.(string)
	return s
}
