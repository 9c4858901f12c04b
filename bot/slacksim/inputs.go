package slacksim

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// initial returns what an untouched input holds, in the form that Submit takes.
func (e *element) initial() string {
	switch e.Type {
	case "static_select", "radio_buttons":
		var chosen option
		if json.Unmarshal(e.InitialOption, &chosen) == nil {
			return chosen.Value
		}
		return ""
	case "checkboxes":
		var chosen []string
		for _, o := range e.InitialOptions {
			chosen = append(chosen, o.Value)
		}
		return strings.Join(chosen, "\n")
	case "datepicker":
		return e.InitialDate
	}
	return e.InitialValue
}

// state returns the input's entry in a view's state, given what the person put
// in.
func (e *element) state(value string) map[string]any {
	entry := map[string]any{"type": e.Type}
	switch e.Type {
	case "static_select", "radio_buttons":
		entry["selected_option"] = nil
		if o, ok := e.option(value); ok {
			entry["selected_option"] = o
		}
	case "checkboxes":
		chosen := []option{}
		for name := range strings.SplitSeq(value, "\n") {
			if o, ok := e.option(name); ok {
				chosen = append(chosen, o)
			}
		}
		entry["selected_options"] = chosen
	case "datepicker":
		entry["selected_date"] = orNil(value)
	default:
		entry["value"] = orNil(value)
	}
	return entry
}

// orNil is how Slack sends an input that was left empty.
func orNil(value string) any {
	if value == "" {
		return nil
	}
	return value
}

func (e *element) option(value string) (option, bool) {
	return find(e.Options, func(o option) bool { return o.Value == value })
}

// check is what a Slack client checks before it submits a form. It returns the
// message for the field, or "".
func (e *element) check(value string, optional bool) string {
	if value == "" {
		if optional {
			return ""
		}
		return "Please complete this required field."
	}
	switch e.Type {
	case "plain_text_input", "email_text_input", "url_text_input":
		length := utf8.RuneCountInString(value)
		longest := e.MaxLength
		if longest == 0 {
			longest = maxInputLength
		}
		if length < e.MinLength {
			return fmt.Sprintf("Please enter at least %d characters.", e.MinLength)
		}
		if length > longest {
			return fmt.Sprintf("Please enter at most %d characters.", longest)
		}
	case "number_input":
		number, ok := parseNumber(value, e.DecimalAllowed)
		if !ok {
			return "Please enter a number."
		}
		if lowest, ok := parseNumber(e.MinValue, true); ok && number.Cmp(lowest) < 0 {
			return "Please enter a number that is at least " + e.MinValue + "."
		}
		if highest, ok := parseNumber(e.MaxValue, true); ok && number.Cmp(highest) > 0 {
			return "Please enter a number that is at most " + e.MaxValue + "."
		}
	case "datepicker":
		if _, err := time.Parse(time.DateOnly, value); err != nil {
			return "Please choose a date."
		}
	}
	return ""
}

// values returns the state of a view's inputs. Inputs that aren't named keep
// their initial value.
func (v *view) values(given map[string]string) map[string]map[string]any {
	values := map[string]map[string]any{}
	for _, b := range blocksOf(v.content.Blocks) {
		if b.Type != "input" {
			continue
		}
		value, ok := given[b.BlockID]
		if !ok {
			value = b.Element.initial()
		}
		values[b.BlockID] = map[string]any{b.Element.ActionID: b.Element.state(value)}
	}
	return values
}

// checkForm is the client's check of a whole form, by block id.
func (v *view) checkForm(given map[string]string) map[string]string {
	wrong := map[string]string{}
	for _, b := range blocksOf(v.content.Blocks) {
		if b.Type != "input" {
			continue
		}
		value, ok := given[b.BlockID]
		if !ok {
			value = b.Element.initial()
		}
		if message := b.Element.check(value, b.Optional); message != "" {
			wrong[b.BlockID] = message
		}
	}
	return wrong
}

// input returns the element of an input block.
func (v *view) input(blockID string) (*element, bool) {
	b, ok := find(blocksOf(v.content.Blocks), func(b block) bool { return b.Type == "input" && b.BlockID == blockID })
	return b.Element, ok
}

// hasInputs reports whether all names are of input blocks.
func (v *view) hasInputs(named map[string]string) bool {
	for name := range named {
		if _, ok := v.input(name); !ok {
			return false
		}
	}
	return true
}

// checkNames makes sure that a caller's values are for inputs, and choices are
// among the options.
func (v *view) checkNames(given map[string]string) error {
	for name, value := range given {
		e, ok := v.input(name)
		if !ok {
			return fmt.Errorf("view %s has no input block %q", v.id, name)
		}
		if len(e.Options) == 0 || value == "" {
			continue
		}
		for choice := range strings.SplitSeq(value, "\n") {
			if _, ok := e.option(choice); !ok {
				return fmt.Errorf("input block %q has no option %q", name, choice)
			}
		}
	}
	return nil
}
