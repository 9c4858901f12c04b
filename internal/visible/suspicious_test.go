package visible_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/countersign/countersign/internal/visible"
)

func TestSuspicious(t *testing.T) {
	t.Parallel()
	const (
		hidden = visible.HiddenCharacters
		mixed  = visible.MixedAlphabets
		digits = visible.UnusualDigits
	)
	for _, test := range []struct {
		name, text string
		want       []visible.Finding
	}{
		{"nothing", "", nil},
		{"ordinary text", "Refund €48,210.50 to Zoë\n\t(INV-2291)?", nil},
		{"backslashes", `C:\users \u{202e}`, nil},
		{"another alphabet", "Привет мир, Ελλάδα", nil},
		{"alphabets side by side", "user Иван, /home/иван, my_ключ", nil},
		{"scripts written without spaces", "iPhoneを買う ใช้Google الـAPI PDF파일", nil},
		{"units and signs", "10kΩ 5μs Δt λx π2", nil},
		{"accents", "naïve cafe\u0301", nil},

		{"right-to-left override", "see invoice_\u202efdp.exe now", []visible.Finding{{hidden, `\u{202e}fdp`}}},
		{"zero width in a word", "to pay\u200bpal", []visible.Finding{{hidden, `pay\u{200b}pal`}}},
		{"only hidden", "\U000e0041\U000e0042", []visible.Finding{{hidden, `\u{e0041}\u{e0042}`}}},
		{"blank that isn't the space", "rm\u00a0-rf", []visible.Finding{{hidden, `rm\u{a0}`}}},
		{"byte that isn't UTF-8", "a\xffb", []visible.Finding{{hidden, `a\x{ff}b`}}},
		{"carriage return", "safe\rdrop", []visible.Finding{{hidden, `safe\u{d}drop`}}},
		{"marks on marks", "e\u0301\u0301\u0301\u0301\u0301", []visible.Finding{{hidden, `e\u{301}\u{301}\u{301}\u{301}\u{301}`}}},

		{"Cyrillic in a Latin word", "visit p\u0430ypal.com", []visible.Finding{{mixed, `p\u{430}ypal`}}},
		{"Greek at the start of a Latin word", "\u0391pple", []visible.Finding{{mixed, `\u{391}pple`}}},
		{"Latin in a Cyrillic word", "Приvет", []visible.Finding{{mixed, `\u{41f}\u{440}\u{438}v\u{435}\u{442}`}}},
		{"Armenian", "g\u0585ogle", []visible.Finding{{mixed, `g\u{585}ogle`}}},
		{"Cherokee", "\u13aaOOGLE", []visible.Finding{{mixed, `\u{13aa}OOGLE`}}},
		{"wide letters", "pay\uff50al", []visible.Finding{{mixed, `pay\u{ff50}al`}}},
		{"letters for formulas", "p\U0001d41aypal", []visible.Finding{{mixed, `p\u{1d41a}ypal`}}},
		{"digit between the alphabets", "p4\u0430", []visible.Finding{{mixed, `p4\u{430}`}}},
		{"alphabets parted by what can't be seen", "p\u200b\u0430", []visible.Finding{{hidden, `p\u{200b}\u{430}`}, {mixed, `p\u{200b}\u{430}`}}},

		{"Arabic digits", "pay \u0661\u0660", []visible.Finding{{digits, `\u{661}\u{660}`}}},
		{"wide digits", "pay \uff11,000", []visible.Finding{{digits, `\u{ff11}`}}},
		{"digits for formulas", "\U0001d7d9", []visible.Finding{{digits, `\u{1d7d9}`}}},
		{"superscript", "25 m²", nil},

		{"one of each", "a\u0430 \u0661 \u202e \u202e", []visible.Finding{{hidden, `\u{202e}`}, {mixed, `a\u{430}`}, {digits, `\u{661}`}}},
		{"long word", strings.Repeat("a", 500) + "\u0430" + strings.Repeat("b", 500),
			[]visible.Finding{{mixed, strings.Repeat("a", 16) + `\u{430}` + strings.Repeat("b", 37)}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(test.want, visible.Suspicious(test.text)); diff != "" {
				t.Errorf("Suspicious(%q) (-want +got):\n%s", test.text, diff)
			}
		})
	}
}

func requireGoodFinding(t interface{ Fatalf(string, ...any) }, finding visible.Finding) {
	for _, c := range []byte(finding.Example) {
		if c < ' ' || c > '~' {
			t.Fatalf("the example %q isn't printable ASCII", finding.Example)
		}
	}
	if finding.Example == "" || utf8.RuneCountInString(finding.Example) > visible.MaxExample {
		t.Fatalf("the example %q has a bad length", finding.Example)
	}
}

// TestHiddenIsFoundWhereTextShowsAnEscape ties the badge to what is shown.
func TestHiddenIsFoundWhereTextShowsAnEscape(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := anyText().Draw(t, "text")
		found := false
		for _, finding := range visible.Suspicious(s) {
			requireGoodFinding(t, finding)
			found = found || finding.Kind == visible.HiddenCharacters
		}
		shown := strings.ReplaceAll(visible.Text(s), `\u{5c}`, `\`)
		if found != (shown != s) {
			t.Fatalf("Suspicious(%q) finds hidden characters: %t, but it is shown as %q", s, found, shown)
		}
	})
}
