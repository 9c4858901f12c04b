package strictjson

import (
	"strings"
	"unicode"

	"github.com/go-json-experiment/json/jsontext"
)

// Clash returns the first name that an object in data has a second time if case
// doesn't count, and whether there is one. Many readers of JSON, Go's among them,
// take such names for the same and keep the last. Data must pass [Check], else
// its error is returned.
func Clash(data []byte) (name string, found bool, err error) {
	if err := Check(data); err != nil {
		return "", false, err
	}
	decoder := newDecoder(data)
	var open []map[string]bool // the names of each object that is open; nil for an array
	for {
		at := decoder.StackDepth()
		kind, read := decoder.StackIndex(at)
		token, err := decoder.ReadToken()
		if err != nil {
			return "", false, syntaxError(data, err)
		}
		switch token.Kind() {
		case jsontext.KindBeginObject:
			open = append(open, make(map[string]bool))
		case jsontext.KindBeginArray:
			open = append(open, nil)
		case jsontext.KindEndObject, jsontext.KindEndArray:
			open = open[:len(open)-1]
		default:
			if kind == jsontext.KindBeginObject && read%2 == 0 {
				folded := fold(token.String())
				if open[len(open)-1][folded] {
					return token.String(), true, nil
				}
				open[len(open)-1][folded] = true
			}
		}
		if len(open) == 0 {
			return "", false, nil
		}
	}
}

// fold is a name of which there is one for all that differ only in case, as
// strings.EqualFold compares them.
func fold(name string) string {
	return strings.Map(func(r rune) rune {
		least := r
		for next := unicode.SimpleFold(r); next != r; next = unicode.SimpleFold(next) {
			least = min(least, next)
		}
		return least
	}, name)
}
