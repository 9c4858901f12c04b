package strictjson_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf16"

	"pgregory.net/rapid"

	"github.com/countersign/countersign/internal/strictjson"
)

// A value is a JSON value apart from its spelling: numbers are their literals.
type value struct {
	literal  string // for a number, null, true and false
	text     string
	elements []value
	members  map[string]value
	kind     byte // 'l' literal, 's' string, 'a' array, 'o' object
}

func drawValue(t *rapid.T, depth int) value {
	kinds := []byte("lsao")
	if depth == 0 {
		kinds = kinds[:2]
	}
	v := value{kind: rapid.SampledFrom(kinds).Draw(t, "kind")}
	switch v.kind {
	case 'l':
		v.literal = rapid.OneOf(
			rapid.SampledFrom([]string{"null", "true", "false", "-0", "9007199254740993", "9007199254740992"}),
			rapid.StringMatching(`-?(0|[1-9][0-9]{0,20})(\.[0-9]{1,5})?([eE][+-]?[0-9]{1,4})?`),
		).Draw(t, "literal")
	case 's':
		v.text = rapid.String().Draw(t, "string")
	case 'a':
		for range rapid.IntRange(0, 4).Draw(t, "elements") {
			v.elements = append(v.elements, drawValue(t, depth-1))
		}
	case 'o':
		v.members = map[string]value{}
		for range rapid.IntRange(0, 4).Draw(t, "members") {
			v.members[rapid.String().Draw(t, "key")] = drawValue(t, depth-1)
		}
	}
	return v
}

// spell writes v with a drawn order of keys, white space and escapes.
func (v value) spell(t *rapid.T) string {
	space := func() string { return rapid.StringMatching(`[ \t\r\n]{0,2}`).Draw(t, "space") }
	var b strings.Builder
	b.WriteString(space())
	switch v.kind {
	case 'l':
		b.WriteString(v.literal)
	case 's':
		b.WriteString(spellString(t, v.text))
	case 'a':
		b.WriteByte('[')
		for i, element := range v.elements {
			if i > 0 {
				b.WriteByte(',')
			}
			b.WriteString(element.spell(t))
		}
		b.WriteString(space() + "]")
	case 'o':
		names := make([]string, 0, len(v.members))
		for name := range v.members {
			names = append(names, name)
		}
		slices.Sort(names)
		b.WriteByte('{')
		for i, name := range rapid.Permutation(names).Draw(t, "order") {
			if i > 0 {
				b.WriteByte(',')
			}
			b.WriteString(space() + spellString(t, name) + space() + ":" + v.members[name].spell(t))
		}
		b.WriteString(space() + "}")
	}
	return b.String() + space()
}

func spellString(t *rapid.T, text string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range text {
		if r >= ' ' && r != '"' && r != '\\' && rapid.Bool().Draw(t, "as it is") {
			b.WriteRune(r)
			continue
		}
		for _, unit := range utf16.AppendRune(nil, r) {
			fmt.Fprintf(&b, rapid.SampledFrom([]string{`\u%04x`, `\u%04X`}).Draw(t, "escape"), unit)
		}
	}
	b.WriteByte('"')
	return b.String()
}

func TestCanonicalIsOneForAllSpellings(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		v := drawValue(t, 3)
		first, second := v.spell(t), v.spell(t)
		if a, b := canonical(t, first), canonical(t, second); a != b {
			t.Fatalf("%q and %q are the same value, but have the forms\n%s\n%s", first, second, a, b)
		}
	})
}

func TestCanonicalTellsValuesApart(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		v, w := drawValue(t, 2), drawValue(t, 2)
		same := fmt.Sprintf("%#v", v) == fmt.Sprintf("%#v", w)
		a, b := canonical(t, v.spell(t)), canonical(t, w.spell(t))
		if (a == b) != same {
			t.Fatalf("%#v and %#v have the forms\n%s\n%s", v, w, a, b)
		}
	})
}

// TestRepeatedKeyIsRefused puts a second member with a drawn key's name, in
// another spelling, at a drawn place of an object that lies at a drawn depth.
func TestRepeatedKeyIsRefused(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		names := rapid.SliceOfNDistinct(rapid.String(), 1, 80, rapid.ID).Draw(t, "names")
		repeated := rapid.SampledFrom(names).Draw(t, "repeated")
		names = slices.Insert(names, rapid.IntRange(0, len(names)).Draw(t, "place"), repeated)
		members := make([]string, len(names))
		for i, name := range names {
			members[i] = spellString(t, name) + ":" + fmt.Sprint(i)
		}
		depth := rapid.IntRange(0, strictjson.MaxDepth-1).Draw(t, "depth")
		text := strings.Repeat("[", depth) + "{" + strings.Join(members, ",") + "}" + strings.Repeat("]", depth)
		if err := strictjson.Check([]byte(text)); err == nil {
			t.Fatalf("%q is accepted", text)
		}
	})
}

func canonical(t *rapid.T, text string) string {
	form, err := strictjson.Canonical([]byte(text))
	if err != nil {
		t.Fatalf("Canonical(%q): %v", text, err)
	}
	return string(form)
}
