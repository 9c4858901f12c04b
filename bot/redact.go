package bot

import (
	"encoding/json"
	"strconv"
	"unicode/utf8"

	"github.com/countersign/countersign/policy"
)

// redact returns a payload's value with what the policy hides replaced by what
// it is, and how many values that is. A value that is hidden as a whole, such
// as an object, is one: the names in it are part of it.
//
// What stands in its place has no quotation marks, so no value of a payload can
// look like it.
func redact(n jsonNode, hidden policy.Redactions, path []string) (jsonNode, int) {
	if hidden.Hide(path) {
		return jsonNode{scalar: "‹hidden " + n.kind() + "›"}, 1
	}
	count := 0
	redacted := jsonNode{scalar: n.scalar, open: n.open}
	for i, item := range n.items {
		segment := strconv.Itoa(i)
		if n.open == '{' {
			segment = decoded(item.name)
		}
		value, more := redact(item.value, hidden, append(path[:len(path):len(path)], segment))
		redacted.items = append(redacted.items, jsonItem{name: item.name, value: value})
		count += more
	}
	return redacted, count
}

// kind says of a value what may be known of it: what it is and how long.
func (n jsonNode) kind() string {
	switch {
	case n.open == '{':
		return "object, " + counted(int64(len(n.items)), "member")
	case n.open == '[':
		return "list, " + counted(int64(len(n.items)), "element")
	case n.scalar[0] == '"':
		return "text, " + counted(int64(utf8.RuneCountInString(decoded(n.scalar))), "character")
	case n.scalar == "true" || n.scalar == "false":
		return "true or false"
	case n.scalar == "null":
		return "null"
	default:
		return "number"
	}
}

// decoded is what a JSON string stands for. Stored payloads are strict JSON, so
// there is no other way to read it.
func decoded(literal string) string {
	var text string
	if json.Unmarshal([]byte(literal), &text) != nil {
		return literal
	}
	return text
}
