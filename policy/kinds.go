package policy

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
)

// checkKinds refuses values of another kind than the one that is needed. The
// library would make them fit: a count of 1.9 would be 1, 010 would be 8, and a
// key with nothing behind it would be as if it weren't there.
func checkKinds(file *ast.File, into any) error {
	check := kindCheck{}
	check.value(nil, file.Docs[0].Body, reflect.TypeOf(into).Elem())
	if len(check.problems) == 0 {
		return nil
	}
	slices.SortFunc(check.problems, Finding.compare)
	return check.problems
}

type kindCheck struct{ problems Findings }

var (
	durationType = reflect.TypeFor[time.Duration]()
	nodeType     = reflect.TypeFor[node]()
	tierKey      = regexp.MustCompile(`^[1-5]$`)
)

// value checks a value and what it consists of.
func (c *kindCheck) value(at place, value ast.Node, want reflect.Type) {
	if want.Kind() == reflect.Pointer {
		want = want.Elem()
	}
	if _, empty := value.(*ast.NullNode); empty {
		c.problem(at, value, "has no value; leave it out or give it one")
		return
	}
	switch {
	case want == nodeType:
	case want.Kind() == reflect.Slice:
		c.list(at, value, want)
	case want.Kind() == reflect.Map, want.Kind() == reflect.Struct:
		c.mapping(at, value, want)
	case !isScalar(value):
		c.problem(at, value, "one value is accepted, not several")
	case want == durationType:
		_, err := time.ParseDuration(scalarText(value))
		switch {
		case isNumber(value):
			c.problem(at, value, "has no unit; a time is written like 15m")
		case err != nil:
			c.problem(at, value, "%q is not a time, which is written like 15m", scalarText(value))
		}
	case want.Kind() == reflect.String:
		if !isText(value) {
			c.problem(at, value, "%s is not text; quote it if it is meant as such", value.GetToken().Value)
		}
	case want.Kind() == reflect.Bool:
		if _, ok := value.(*ast.BoolNode); !ok {
			c.problem(at, value, "%q; true and false are accepted", scalarText(value))
		}
	case want.Kind() == reflect.Int, want.Kind() == reflect.Int64:
		if _, err := strconv.ParseInt(scalarText(value), 10, 64); err != nil || !isNumber(value) {
			c.problem(at, value, "%q; a whole number in digits is accepted", scalarText(value))
		}
	case want.Kind() == reflect.Float64:
		if _, err := strconv.ParseFloat(scalarText(value), 64); err != nil || !isNumber(value) {
			c.problem(at, value, "%q; a number in digits is accepted", scalarText(value))
		}
	}
}

func (c *kindCheck) list(at place, value ast.Node, want reflect.Type) {
	list, ok := value.(*ast.SequenceNode)
	if !ok {
		c.problem(at, value, "a list is accepted, like [a, b]")
		return
	}
	for i, element := range list.Values {
		c.value(at.of(i), element, want.Elem())
	}
}

func (c *kindCheck) mapping(at place, value ast.Node, want reflect.Type) {
	if !isMapping(value) {
		c.problem(at, value, "keys with values are accepted, like {a: b}")
		return
	}
	for _, member := range membersOf(value) {
		key := member.Key.GetToken().Value
		if want.Kind() == reflect.Map && !c.key(at.of(key), member.Key, want.Key()) {
			continue
		}
		if inner, ok := memberType(want, key); ok {
			c.value(at.of(key), member.Value, inner)
		}
	}
}

// key checks the key of a mapping and reports whether it is right. A tier has
// one spelling, so that none is there twice.
func (c *kindCheck) key(at place, key ast.MapKeyNode, want reflect.Type) bool {
	switch text := scalarText(key); {
	case want.Kind() == reflect.Int && !tierKey.MatchString(text):
		c.problem(at, key, "is no tier; they are 1 to 5")
	case want.Kind() == reflect.String && !isText(key):
		c.problem(at, key, "%s is not text; quote it if it is meant as such", text)
	default:
		return true
	}
	return false
}

func (c *kindCheck) problem(at place, value ast.Node, format string, args ...any) {
	line, column := lineColumn(value)
	text := fmt.Sprintf(format, args...)
	if where := at.String(); where != "" {
		text = where + ": " + text
	}
	c.problems = append(c.problems, Finding{Line: line, Column: column, Text: text})
}

// memberType is the type of what stands under a key; false for a key that isn't
// known, which the library refuses.
func memberType(of reflect.Type, key string) (reflect.Type, bool) {
	if of.Kind() == reflect.Map {
		return of.Elem(), true
	}
	for field := range of.Fields() {
		if field.Tag.Get("yaml") == key {
			return field.Type, true
		}
	}
	return nil, false
}

func isScalar(value ast.Node) bool {
	_, ok := value.(ast.ScalarNode)
	return ok
}

// isText reports whether a value is text to every reader of YAML.
func isText(value ast.Node) bool {
	switch value := value.(type) {
	case *ast.LiteralNode:
		return true
	case *ast.StringNode:
		return value.GetToken().Type != token.StringType || !otherNumber.MatchString(value.Value)
	default:
		return false
	}
}

// isNumber reports whether a value is a number that is written as in JSON, which
// has no bases.
func isNumber(value ast.Node) bool {
	if text, ok := value.(*ast.StringNode); ok && text.GetToken().Type != token.StringType {
		return false
	}
	return isScalar(value) && jsonNumber.MatchString(scalarText(value))
}

// scalarText is a value as it is written, without quotes.
func scalarText(value ast.Node) string {
	if text, ok := value.(*ast.LiteralNode); ok {
		return text.Value.Value
	}
	return value.GetToken().Value
}
