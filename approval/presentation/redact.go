package presentation

import (
	"encoding/json"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/countersign/countersign/approval"
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
		return jsonNode{scalar: "‹hidden " + n.kind() + "›", from: n.from, to: n.to, hidden: true}, 1
	}
	count := 0
	redacted := jsonNode{scalar: n.scalar, open: n.open, from: n.from, to: n.to}
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
		return "object, " + Counted(int64(len(n.items)), "member")
	case n.open == '[':
		return "list, " + Counted(int64(len(n.items)), "element")
	case n.scalar[0] == '"':
		return "text, " + Counted(int64(utf8.RuneCountInString(decoded(n.scalar))), "character")
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

// shortestSecret is how long a hidden value is at least that is looked for in
// what a run reports. Shorter ones occur in any text.
const shortestSecret = 6

// masked stands for a hidden value in a text.
const masked = "‹hidden›"

// Detail is what an execution reported, without what the policy hides of the
// payload: a tool may repeat what it was given.
func Detail(r *approval.Request) string {
	text := r.Execution.Detail
	hidden := r.Ruling.Redactions
	if text == "" || hidden.IsZero() {
		return text
	}
	tree, ok := parseJSON(string(r.Payload))
	if !ok {
		return masked // what can't be told apart can't be shown either
	}
	var secrets []string
	tree.secrets(hidden, nil, false, &secrets)
	return mask(text, secrets)
}

// secrets collects the texts and numbers in what the policy hides, as they are
// and as JSON writes them. The names in a hidden object are part of it.
func (n jsonNode) secrets(hidden policy.Redactions, path []string, inside bool, found *[]string) {
	inside = inside || hidden.Hide(path)
	if inside && n.open == 0 {
		addSecret(n.scalar, found)
	}
	for i, item := range n.items {
		segment := strconv.Itoa(i)
		if n.open == '{' {
			segment = decoded(item.name)
			if inside {
				addSecret(item.name, found)
			}
		}
		item.value.secrets(hidden, append(path[:len(path):len(path)], segment), inside, found)
	}
}

// addSecret adds the forms in which a literal may occur. A text of several lines
// may occur by the line, too.
func addSecret(literal string, found *[]string) {
	add := func(text string) {
		if utf8.RuneCountInString(text) >= shortestSecret {
			*found = append(*found, text)
		}
	}
	if literal[0] != '"' {
		add(literal)
		return
	}
	text := decoded(literal)
	add(text)
	add(literal[1 : len(literal)-1])
	if written, err := json.Marshal(text); err == nil {
		add(string(written[1 : len(written)-1]))
	}
	if strings.ContainsAny(text, "\r\n") {
		for line := range strings.FieldsFuncSeq(text, func(r rune) bool { return r == '\r' || r == '\n' }) {
			add(strings.TrimSpace(line))
		}
	}
}

// mask replaces every occurrence of the secrets in a text, and the beginning of
// one at its end, where the text may have been cut.
func mask(text string, secrets []string) string {
	covered := make([]bool, len(text))
	cover := func(from, to int) {
		for i := from; i < to; i++ {
			covered[i] = true
		}
	}
	end := len(strings.TrimRight(text, "…. \n"))
	for _, secret := range secrets {
		for from := 0; ; {
			at := strings.Index(text[from:], secret)
			if at < 0 {
				break
			}
			cover(from+at, from+at+len(secret))
			from += at + 1
		}
		for size := min(len(secret)-1, end); size >= shortestSecret; size-- {
			if strings.HasSuffix(text[:end], secret[:size]) {
				cover(end-size, end)
				break
			}
		}
	}
	var b strings.Builder
	for i := range len(text) {
		switch {
		case !covered[i]:
			b.WriteByte(text[i])
		case i == 0 || !covered[i-1]:
			b.WriteString(masked)
		}
	}
	return b.String()
}
