package visible_test

import (
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/countersign/countersign/internal/visible"
)

func TestText(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, text, want string }{
		{"nothing", "", ""},
		{"ordinary text", "Delete 3 rows?\n\t{\"id\": 1}", "Delete 3 rows?\n\t{\"id\": 1}"},
		{"other languages", "Größe, 東京, Привет, שלום, नमस्ते, ไทย, 한국어", "Größe, 東京, Привет, שלום, नमस्ते, ไทย, 한국어"},
		{"emoji", "😀 👍🏽 🇩🇪", "😀 👍🏽 🇩🇪"},
		{"replacement character", "\ufffd", "\ufffd"},

		{"right-to-left override", "invoice_\u202efdp.exe", `invoice_\u{202e}fdp.exe`},
		{"isolates", "\u2066a\u2069", `\u{2066}a\u{2069}`},
		{"marks of direction", "\u200e\u200f\u061c", `\u{200e}\u{200f}\u{61c}`},
		{"zero width", "pay\u200bpal\u200c\u200d\u2060\ufeff", `pay\u{200b}pal\u{200c}\u{200d}\u{2060}\u{feff}`},
		{"invisible operators", "\u2061\u2064", `\u{2061}\u{2064}`},
		{"soft hyphen", "re\u00adfund", `re\u{ad}fund`},
		{"variation selectors", "❤\ufe0f\U000e0100", `❤\u{fe0f}\u{e0100}`},
		{"Mongolian selectors", "\u180b\u180e\u180f", `\u{180b}\u{180e}\u{180f}`},
		{"tags", "hi\U000e0041\U000e007f\U000e0001", `hi\u{e0041}\u{e007f}\u{e0001}`},
		{"fillers", "\u3164\u115f\u1160\uffa0", `\u{3164}\u{115f}\u{1160}\u{ffa0}`},
		{"ignorable marks", "a\u034fb\u17b4", `a\u{34f}b\u{17b4}`},
		{"blank pictures", "\u2800\ufffc\U0001d159\U00013441\U00016fe4", `\u{2800}\u{fffc}\u{1d159}\u{13441}\u{16fe4}`},
		{"blanks other than the space", "a\u00a0b\u2003\u202f\u3000", `a\u{a0}b\u{2003}\u{202f}\u{3000}`},

		{"C0 controls", "\x00\x07\b\v\f\r\x1b[31m", `\u{0}\u{7}\u{8}\u{b}\u{c}\u{d}\u{1b}[31m`},
		{"delete and C1 controls", "\x7f\u0085\u009b", `\u{7f}\u{85}\u{9b}`},
		{"separators of lines and paragraphs", "a\u2028b\u2029", `a\u{2028}b\u{2029}`},
		{"private use", "\ue000\U000f0000\U0010fffd", `\u{e000}\u{f0000}\u{10fffd}`},
		{"noncharacters", "\uffff\ufdd0\U0010ffff", `\u{ffff}\u{fdd0}\u{10ffff}`},
		{"unassigned", "\u0378\U000e0fff", `\u{378}\u{e0fff}`},
		{"bytes that aren't UTF-8", "a\xffb\xc0\x80\xed\xa0\x80", `a\x{ff}b\x{c0}\x{80}\x{ed}\x{a0}\x{80}`},
		{"character cut off", "a\xe2\x82", `a\x{e2}\x{82}`},

		{"backslashes", `C:\users\x \n \u202e \\u \`, `C:\users\x \n \u202e \\u \`},
		{"forged escape", `\u{202e}`, `\u{5c}u{202e}`},
		{"forged escape of a byte", `\x{ff}`, `\u{5c}x{ff}`},
		{"forged escape without an end", `\u{`, `\u{5c}u{`},
		{"forged escape of a backslash", `\u{5c}u{202e}`, `\u{5c}u{5c}u{202e}`},
		{"two backslashes", `\\u{202e}`, `\\u{5c}u{202e}`},
		{"backslash before a hidden character", "\\\u202e", `\\u{202e}`},
		{"escape that only comes about without what is hidden", "\\\u200bu{202e}\\u\u200b{", `\\u{200b}u{202e}\u\u{200b}{`},

		{"marks on letters", "e\u0301 ö\u0323", "e\u0301 ö\u0323"},
		{"mark at the start", "\u0301a", `\u{301}a`},
		{"mark after a line break", "a\n\u0336", "a\n" + `\u{336}`},
		{"mark after a space", "a \u20dd", `a \u{20dd}`},
		{"mark after an escape", "\u202e\u0301\u0301", `\u{202e}\u{301}\u{301}`},
		{"four marks", "a\u0300\u0301\u0302\u0303", "a\u0300\u0301\u0302\u0303"},
		{"fifth mark", "a\u0300\u0301\u0302\u0303\u0304\u0305b\u0300", "a\u0300\u0301\u0302\u0303" + `\u{304}\u{305}` + "b\u0300"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if got := visible.Text(test.text); got != test.want {
				t.Errorf("Text(%q) = %q, want %q", test.text, got, test.want)
			}
		})
	}
}

func TestLine(t *testing.T) {
	t.Parallel()
	if got, want := visible.Line("a\nb\tc\u202e"), `a\u{a}b\u{9}c\u{202e}`; got != want {
		t.Errorf("Line = %q, want %q", got, want)
	}
}

// hidden are the tables that the rule names. Text decides by what Go can print
// instead, so that this is a second opinion.
var hidden = []*unicode.RangeTable{
	unicode.Bidi_Control,
	unicode.Join_Control,
	unicode.Variation_Selector,
	unicode.Other_Default_Ignorable_Code_Point,
	unicode.Noncharacter_Code_Point,
	unicode.Cc, unicode.Cf, unicode.Co, unicode.Cs, unicode.Zl, unicode.Zp,
}

func TestNoHiddenCharacterIsShown(t *testing.T) {
	t.Parallel()
	for r := rune(0); r <= unicode.MaxRune; r++ {
		assigned := unicode.In(r, unicode.L, unicode.M, unicode.N, unicode.P, unicode.S, unicode.Zs)
		if assigned && !unicode.In(r, hidden...) {
			continue
		}
		s := "a" + string(r) + "b"
		if !utf8.ValidRune(r) {
			continue
		}
		want := `a\u{` + strconv.FormatInt(int64(r), 16) + `}b`
		if got := visible.Line(s); got != want {
			t.Errorf("Line(%q) = %q, want %q", s, got, want)
		}
		if got := visible.Text(s); got != want && r != '\n' && r != '\t' {
			t.Errorf("Text(%q) = %q, want %q", s, got, want)
		}
	}
}

// anyText draws strings with much of what Text has to do with: escapes and
// parts of escapes, hidden characters, marks, and bytes that aren't UTF-8.
func anyText() *rapid.Generator[string] {
	piece := rapid.OneOf(
		rapid.SampledFrom([]string{
			`\`, `u`, `x`, `{`, `}`, `\u{`, `\x{`, `\u{202e}`, `\x{ff}`, `\u{5c}`, `5c`, "202e", "\n", "\t", " ",
			"\u202e", "\u200b", "\ufe0f", "\U000e0041", "\u0301", "\u0336", "\xff", "\xe2\x82", "\x80", "ö", "한", "\u1100", "😀", "🇩",
		}),
		rapid.String(),
		rapid.Map(rapid.SliceOfN(rapid.Byte(), 0, 4), func(b []byte) string { return string(b) }),
	)
	return rapid.Map(rapid.SliceOfN(piece, 0, 12), func(pieces []string) string { return strings.Join(pieces, "") })
}

var anEscape = regexp.MustCompile(`\\([ux])\{([0-9a-f]+)\}`)

// original reads escapes back: that there is such a function for all strings
// is what proves that no two strings have the same Text.
func original(shown string) string {
	return anEscape.ReplaceAllStringFunc(shown, func(escape string) string {
		parts := anEscape.FindStringSubmatch(escape)
		value, err := strconv.ParseUint(parts[2], 16, 32)
		if err != nil {
			return err.Error()
		}
		if parts[1] == "x" {
			return string([]byte{byte(value)})
		}
		return string(rune(value))
	})
}

func requireFaithful(t interface{ Fatalf(string, ...any) }, s string) {
	for name, shown := range map[string]string{"Text": visible.Text(s), "Line": visible.Line(s)} {
		if !utf8.ValidString(shown) {
			t.Fatalf("%s(%q) = %q isn't UTF-8", name, s, shown)
		}
		for _, r := range shown {
			if name == "Text" && (r == '\n' || r == '\t') {
				continue
			}
			if !unicode.IsGraphic(r) || unicode.In(r, hidden...) || unicode.IsSpace(r) && r != ' ' {
				t.Fatalf("%s(%q) = %q has %q", name, s, shown, r)
			}
		}
		if back := original(shown); back != s {
			t.Fatalf("%s(%q) = %q, which is what %q should give", name, s, shown, back)
		}
	}
}

func TestNoTwoStringsLookAlike(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) { requireFaithful(t, anyText().Draw(t, "text")) })
}

func FuzzText(f *testing.F) {
	for _, seed := range []string{"", "a\u202e", `\u{202e}`, "\\\u200bu{", "\xff\\x{ff}", "a\u0300\u0301\u0302\u0303\u0304"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		requireFaithful(t, s)
		for _, finding := range visible.Suspicious(s) {
			requireGoodFinding(t, finding)
		}
		requireGoodCut(t, visible.Text(s), len(s)/2)
	})
}
