package policy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"

	"github.com/countersign/countersign/internal/strictjson"
)

// decode reads a payload as it is in JSON, with numbers kept as written.
func decode(payload []byte) (any, error) {
	if err := strictjson.Check(payload); err != nil {
		return nil, fmt.Errorf("reading the payload: %w", err)
	}
	decoder := json.NewDecoder(bytes.NewReader(payload))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		return nil, fmt.Errorf("reading the payload: %w", err)
	}
	return value, nil
}

// args is a payload as conditions see it. A number that CEL can't hold is an
// error to whoever touches it, and so is a payload that can't be read. flawed
// means that there is such a number.
func args(payload []byte) (value ref.Val, flawed bool) {
	decoded, err := decode(payload)
	if err != nil {
		return types.WrapErr(err), true
	}
	decoded = numbers(decoded, &flawed)
	return types.DefaultTypeAdapter.NativeToValue(decoded), flawed
}

var errNumber = errors.New("the number is too large for a condition")

// numbers turns the numbers of a decoded value into what CEL has: integers into
// ints and others into doubles. The value is changed in place.
func numbers(value any, flawed *bool) any {
	switch value := value.(type) {
	case json.Number:
		made, ok := number(value)
		if !ok {
			*flawed = true
			return types.WrapErr(errNumber)
		}
		return made
	case map[string]any:
		for key, member := range value {
			value[key] = numbers(member, flawed)
		}
	case []any:
		for i, element := range value {
			value[i] = numbers(element, flawed)
		}
	}
	return value
}

// number is a number as CEL holds it; false for one that it can't hold.
func number(literal json.Number) (any, bool) {
	if whole, err := literal.Int64(); err == nil {
		return whole, true
	}
	isWhole := !strings.ContainsAny(string(literal), ".eE")
	broken, err := strconv.ParseFloat(string(literal), 64)
	return broken, err == nil && !isWhole
}

// longestList is the length of the longest list at the top of a payload, where
// actions list what they act on; false if there is none.
func longestList(payload []byte) (int, bool, error) {
	lengths, err := strictjson.ArrayLengths(payload)
	if err != nil {
		return 0, false, err
	}
	longest := 0
	for _, list := range lengths {
		longest = max(longest, list.Length)
	}
	return longest, len(lengths) > 0, nil
}
