package presentation

import (
	"math/big"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/countersign/countersign/internal/visible"
)

// Value is one value of the arguments, for a tree.
type Value struct {
	// Name is the member's name with its quotation marks, or the element's number;
	// empty for the whole.
	Name string
	// Text is the value as it is written, with hidden characters made visible;
	// empty for what holds others.
	Text string
	// Note is what one may miss: how large a number is, that a text only looks like
	// a number, how many others it holds. It may be empty.
	Note string
	// Warns says that the note is about something that may not be what it looks
	// like.
	Warns bool
	// List says that it holds elements, and not members; Flat that those are texts,
	// numbers and the like.
	List  bool
	Flat  bool
	Items []Value
}

// Holds reports whether the value is an object or a list, which may be empty.
func (v Value) Holds() bool { return v.Text == "" }

// MaxValues is how many values a tree has at most.
const MaxValues = 5000

// Tree is the arguments as a tree; false if they have more than MaxValues values
// or can't be taken apart. Text and Source have all of them in any case.
func (a Arguments) Tree() (Value, bool) {
	if !a.parsed {
		return Value{}, false
	}
	left := MaxValues
	tree := a.tree.value("", &left)
	return tree, left >= 0
}

func (n jsonNode) value(name string, left *int) Value {
	if *left--; *left < 0 {
		return Value{}
	}
	v := Value{Name: name}
	switch {
	case n.hidden:
		v.Text = n.scalar
	case n.open == 0:
		v.Text = visible.Line(n.scalar)
		v.Note, v.Warns = scalarNote(n.scalar)
	default:
		v.List = n.open == '['
		v.Note = Counted(int64(len(n.items)), "member")
		if v.List {
			v.Note = Counted(int64(len(n.items)), "element")
		}
		v.Flat = v.List
		for i, item := range n.items {
			v.Flat = v.Flat && item.value.open == 0
			name := visible.Line(item.name)
			if v.List {
				name = strconv.Itoa(i + 1)
			}
			v.Items = append(v.Items, item.value.value(name, left))
		}
	}
	return v
}

// looksLikeNumber is a text that somebody may take for a number.
var looksLikeNumber = regexp.MustCompile(`^[-+]?[0-9][0-9.,_ ]*([eE][-+]?[0-9]+)?$`)

// longText is from how many characters on a text's length is said.
const longText = 80

// scalarNote is what one may miss in a text or number.
func scalarNote(literal string) (note string, warns bool) {
	switch {
	case literal[0] != '"':
		return numberNote(literal), false
	case looksLikeNumber.MatchString(decoded(literal)):
		return "text, not a number", false
	}
	if found := visible.Suspicious(literal); len(found) > 0 {
		kinds := make([]string, len(found))
		for i, one := range found {
			kinds[i] = string(one.Kind)
		}
		return strings.Join(kinds, ", "), true
	}
	if length := utf8.RuneCountInString(decoded(literal)); length >= longText {
		return Counted(int64(length), "character"), false
	}
	return "", false
}

// largestExponent is up to where a number is written out.
const largestExponent = 30

// numberNote is a number with its digits in groups, where it isn't written so that
// one sees at once how large it is; empty for what is no number.
func numberNote(literal string) string {
	if literal == "true" || literal == "false" || literal == "null" {
		return ""
	}
	mantissa, exponent, scientific := strings.Cut(strings.ToLower(literal), "e")
	if scientific {
		if power, err := strconv.Atoi(exponent); err != nil || power > largestExponent || power < -largestExponent {
			if strings.HasPrefix(exponent, "-") {
				return "close to zero"
			}
			if strings.Trim(mantissa, "-0.") == "" {
				return "zero"
			}
			return "more than 30 digits long"
		}
	}
	if len(literal) > 10*largestExponent {
		return "" // nor is it worked out: that takes long
	}
	number, ok := new(big.Rat).SetString(literal)
	if !ok {
		return ""
	}
	decimals, _ := number.FloatPrec() // all of them, so that nothing is rounded
	whole, fraction, _ := strings.Cut(number.FloatString(decimals), ".")
	if !scientific && len(strings.TrimPrefix(whole, "-")) <= 3 {
		return ""
	}
	fraction = strings.TrimRight(fraction, "0")
	grouped := groups(whole)
	if fraction != "" {
		grouped += "." + fraction
	}
	if grouped == literal {
		return ""
	}
	return grouped
}
