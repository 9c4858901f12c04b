package visible_test

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/countersign/countersign/internal/visible"
)

func TestCut(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, text string
		characters int
		want       string
	}{
		{"nothing", "", 0, ""},
		{"no room", "abc", 0, ""},
		{"less than no room", "abc", -1, ""},
		{"short enough", "abc", 3, "abc"},
		{"too long", "abcd", 3, "abc"},
		{"characters, not bytes", "äöü😀", 3, "äöü"},
		{"before an escape", `ab\u{202e}cd`, 2, `ab`},
		{"inside an escape", `ab\u{202e}cd`, 9, `ab`},
		{"after an escape", `ab\u{202e}cd`, 10, `ab\u{202e}`},
		{"inside an escape of a byte", `ab\x{ff}cd`, 7, `ab`},
		{"longest escape", `\u{10ffff}a`, 10, `\u{10ffff}`},
		{"inside the longest escape", `a\u{10ffff}`, 10, `a`},
		{"two escapes", `\u{0}\u{0}`, 9, `\u{0}`},
		{"escape that is longer than the room", `\u{202e}`, 5, ``},
		{"backslash that starts no escape", `a\u202e`, 4, `a\u2`},
		{"braces that are no escape", `\u{hello}`, 5, `\u{he`},
		{"letter with marks", "abe\u0301\u0323d", 4, "ab"},
		{"letter with marks that fits", "abe\u0301\u0323d", 5, "abe\u0301\u0323"},
		{"skin tone", "a👍🏽b", 2, "a"},
		{"flag", "a🇩🇪🇫🇷", 2, "a"},
		{"second flag", "a🇩🇪🇫🇷", 4, "a🇩🇪"},
		{"Hangul in parts", "가\u1112\u1161\u11ab", 2, "가"},
		{"Hangul syllable with a trailing consonant", "a가\u11ab", 2, "a"},
		{"two Hangul syllables", "한글", 1, "한"},
		{"joined emoji", "a👩\u200d🚀b", 3, "a"},
		{"variation selector", "a❤\ufe0f", 2, "a"},
		{"carriage return and line feed", "a\r\nb", 2, "a"},
		{"single character that is too long", "e" + strings.Repeat("\u0301", 9), 4, "e" + strings.Repeat("\u0301", 3)},
		{"bytes that aren't UTF-8", "\xff\xfe\xfd", 2, "\xff\xfe"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			got, cut := visible.Cut(test.text, test.characters)
			if got != test.want || cut != (test.want != test.text) {
				t.Errorf("Cut(%q, %d) = %q, %t, want %q", test.text, test.characters, got, cut, test.want)
			}
		})
	}
}

func requireGoodCut(t interface{ Fatalf(string, ...any) }, text string, characters int) {
	got, cut := visible.Cut(text, characters)
	if !strings.HasPrefix(text, got) {
		t.Fatalf("Cut(%q, %d) = %q isn't its beginning", text, characters, got)
	}
	if length := utf8.RuneCountInString(got); length > characters {
		t.Fatalf("Cut(%q, %d) = %q has %d characters", text, characters, got, length)
	}
	if whole := utf8.RuneCountInString(text) <= characters; cut == whole || whole != (got == text) {
		t.Fatalf("Cut(%q, %d) = %q, %t", text, characters, got, cut)
	}
	for _, escape := range anEscape.FindAllStringIndex(text, -1) {
		if escape[0] < len(got) && len(got) < escape[1] {
			t.Fatalf("Cut(%q, %d) = %q ends inside an escape", text, characters, got)
		}
	}
	// Text leaves at most four marks on a letter. Letters beyond ASCII may be
	// joined to what is before them.
	letter, _ := utf8.DecodeLastRuneInString(strings.TrimRightFunc(got, unicode.IsMark))
	next, _ := utf8.DecodeRuneInString(text[len(got):])
	if unicode.IsMark(next) && letter < utf8.RuneSelf && characters > 4 {
		t.Fatalf("Cut(%q, %d) = %q leaves out a mark of its last letter", text, characters, got)
	}
}

func TestCutOfAnyText(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := visible.Text(anyText().Draw(t, "text"))
		requireGoodCut(t, text, rapid.IntRange(0, utf8.RuneCountInString(text)+2).Draw(t, "characters"))
	})
}
