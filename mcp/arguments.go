package mcp

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/internal/strictjson"
)

// The inputs of the tools, as they are named on the wire.
const (
	inputID          = "elicitationId"
	inputPurpose     = "purpose"
	inputPayload     = "payload"
	inputTTL         = "ttlSeconds"
	inputAction      = "action"
	inputTarget      = "target"
	inputEnvironment = "environment"
	inputCount       = "count"
	inputReversible  = "reversible"
)

var requestInputs = []string{inputPurpose, inputPayload, inputTTL, inputAction, inputTarget, inputEnvironment, inputCount, inputReversible}

const (
	minTTLSeconds = int64(approval.MinTTL / time.Second)
	maxTTLSeconds = int64(approval.MaxTTL / time.Second)
)

// parseRequest reads the arguments of request_approval. The payload is the part
// of raw that was written there, byte for byte. Errors are *approval.InputError.
func parseRequest(raw []byte) (approval.Proposal, error) {
	inputs, err := members("request_approval", raw, requestInputs)
	if err != nil {
		return approval.Proposal{}, err
	}
	var p approval.Proposal
	for _, text := range []struct {
		name  string
		limit int
		into  *string
	}{
		{inputPurpose, approval.MaxPurpose, &p.Purpose},
		{inputAction, approval.MaxAction, &p.Action},
		{inputTarget, approval.MaxTarget, &p.Target},
		{inputEnvironment, approval.MaxEnvironment, &p.Environment},
	} {
		if value, given := inputs[text.name]; given {
			if *text.into, err = stringOf(text.name, value, text.limit); err != nil {
				return approval.Proposal{}, err
			}
		}
	}
	value, given := inputs[inputPayload]
	switch {
	case !given:
		return approval.Proposal{}, wrong(inputPayload, "is missing; give the JSON object that will run, exactly as it will run")
	case value[0] != '{':
		return approval.Proposal{}, wrong(inputPayload, "is %s; a JSON object is accepted, as itself and not as text that holds it", kindOf(value))
	}
	p.Payload = value
	if value, given := inputs[inputTTL]; given {
		if p.TTL, err = ttlOf(value); err != nil {
			return approval.Proposal{}, err
		}
	}
	if value, given := inputs[inputCount]; given {
		count, err := wholeNumber(value)
		if err != nil {
			return approval.Proposal{}, wrong(inputCount, "is %s; a whole number from 0 to 9223372036854775807 is accepted", shown(value))
		}
		p.Count = &count
	}
	if value, given := inputs[inputReversible]; given {
		reversible, err := strconv.ParseBool(string(value))
		if err != nil || kindOf(value) != kindBoolean {
			return approval.Proposal{}, wrong(inputReversible, "is %s; true and false are accepted", shown(value))
		}
		p.Reversible = &reversible
	}
	return p, nil
}

// parseID reads the arguments of the tools that take an elicitationId only.
func parseID(tool string, raw []byte) (approval.ID, error) {
	inputs, err := members(tool, raw, []string{inputID})
	if err != nil {
		return "", err
	}
	value, given := inputs[inputID]
	if !given {
		return "", wrong(inputID, "is missing; give the one that request_approval returned")
	}
	id, err := stringOf(inputID, value, 100)
	return approval.ID(id), err
}

// members returns the values of an object as they are written, by name. It
// refuses names that the tool doesn't have: an input that is silently dropped
// is one that a person never sees.
func members(tool string, raw []byte, accepted []string) (map[string][]byte, error) {
	if len(bytes.TrimSpace(raw)) == 0 {
		return nil, nil
	}
	list, err := strictjson.Members(raw)
	if errors.Is(err, strictjson.ErrNotObject) {
		return nil, wrong("arguments", "are %s; an object with %s is accepted", kindOf(bytes.TrimSpace(raw)), strings.Join(accepted, ", "))
	}
	if syntax, ok := errors.AsType[*strictjson.SyntaxError](err); ok {
		field := "arguments"
		if first, _, _ := strings.Cut(strings.TrimPrefix(syntax.Pointer, "/"), "/"); slices.Contains(accepted, first) {
			field = first
		}
		return nil, wrong(field, "is %s", syntax)
	}
	if err != nil {
		return nil, err
	}
	inputs := make(map[string][]byte, len(list))
	for _, member := range list {
		if !slices.Contains(accepted, member.Name) {
			return nil, wrong(shown([]byte(member.Name)), "is not an input of %s; accepted are %s", tool, strings.Join(accepted, ", "))
		}
		inputs[member.Name] = member.Value
	}
	return inputs, nil
}

func stringOf(name string, value []byte, limit int) (string, error) {
	var text string
	if value[0] != '"' {
		return "", wrong(name, "is %s; a string of at most %d characters is accepted", kindOf(value), limit)
	}
	if err := json.Unmarshal(value, &text); err != nil {
		return "", wrong(name, "is not a string: %v", err)
	}
	return text, nil
}

// ttlOf brings what is given within what is accepted. Zero seconds are the
// least there are, not the default.
func ttlOf(value []byte) (time.Duration, error) {
	seconds, err := wholeNumber(value)
	switch {
	case errors.Is(err, errTooSmall):
		seconds = minTTLSeconds
	case errors.Is(err, errTooLarge):
		seconds = maxTTLSeconds
	case err != nil:
		return 0, wrong(inputTTL, "is %s; a whole number of seconds from %d to %d is accepted", shown(value), minTTLSeconds, maxTTLSeconds)
	}
	seconds = min(max(seconds, minTTLSeconds), maxTTLSeconds)
	return time.Duration(seconds) * time.Second, nil
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

func wrong(field, format string, args ...any) *approval.InputError {
	return &approval.InputError{Field: field, Problem: fmt.Sprintf(format, args...)}
}
