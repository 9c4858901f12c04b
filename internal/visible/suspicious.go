package visible

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Kind is one way in which a text may not be what it looks like. Its value is
// the text of the badge that says so.
type Kind string

const (
	// HiddenCharacters: [Text] shows something as an escape, other than a
	// backslash.
	HiddenCharacters Kind = "hidden characters"

	// MixedAlphabets: a word has letters of two alphabets that share shapes, as
	// where a Cyrillic letter stands in a Latin word.
	MixedAlphabets Kind = "mixed alphabets"

	// UnusualDigits: a decimal digit isn't one of 0 to 9.
	UnusualDigits Kind = "unusual digits"
)

// Finding is a [Kind] with its first place in a text.
type Finding struct {
	Kind Kind

	// Example is what stands around the first place, within one word, with all
	// that isn't printable ASCII as escapes like those of [Line]: p\u{430}ypal.
	// It has at most [MaxExample] characters.
	Example string
}

// MaxExample is the greatest length of an Example in characters.
const MaxExample = 60

// Suspicious returns at most one finding of each kind, in the order in which
// the kinds are declared; none for an ordinary text.
//
// It is a hint for a badge and no proof: a word written wholly in letters of
// another alphabet, or with look-alikes from its own, isn't found.
func Suspicious(s string) []Finding {
	first := map[Kind]string{}
	note := func(kind Kind, wordStart, at int) {
		if _, ok := first[kind]; !ok {
			first[kind] = example(s, wordStart, at)
		}
	}
	wordStart := 0
	var alphabet *unicode.RangeTable // of the word so far
	for c := range characters(s, true) {
		if !c.shown && c.value != '\\' {
			note(HiddenCharacters, wordStart, c.at)
		}
		if separatesWords(c) {
			wordStart, alphabet = c.at+c.size, nil
			continue
		}
		if !c.isUTF8 {
			continue
		}
		if c.value > unicode.MaxASCII && unicode.IsDigit(c.value) {
			note(UnusualDigits, wordStart, c.at)
		}
		if of := alphabetOf(c.value); of != nil {
			if alphabet != nil && of != alphabet {
				note(MixedAlphabets, wordStart, c.at)
			}
			alphabet = of
		}
	}
	var findings []Finding
	for _, kind := range []Kind{HiddenCharacters, MixedAlphabets, UnusualDigits} {
		if example, ok := first[kind]; ok {
			findings = append(findings, Finding{Kind: kind, Example: example})
		}
	}
	return findings
}

// separatesWords says if c stands between words. Hidden characters don't, apart
// from spaces: otherwise one of them would hide a mix of alphabets.
func separatesWords(c character) bool {
	if !c.isUTF8 {
		return false
	}
	return unicode.IsSpace(c.value) || c.shown && (unicode.IsPunct(c.value) || unicode.IsSymbol(c.value))
}

// alphabets are those whose letters can be taken for letters of another one of
// them, and above all for Latin letters. Scripts that are written next to Latin
// letters without a space, as in Japanese, Thai or Arabic texts, aren't there.
var alphabets = []*unicode.RangeTable{
	styled,
	unicode.Latin,
	unicode.Cyrillic,
	unicode.Greek,
	unicode.Armenian,
	unicode.Cherokee,
	unicode.Coptic,
	unicode.Lisu,
	unicode.Canadian_Aboriginal,
}

// styled are the letters that are Latin or Greek ones in another style, for
// wide columns and for formulas.
var styled = &unicode.RangeTable{
	R16: []unicode.Range16{
		{Lo: 0xff21, Hi: 0xff3a, Stride: 1},
		{Lo: 0xff41, Hi: 0xff5a, Stride: 1},
	},
	R32: []unicode.Range32{
		{Lo: 0x1d400, Hi: 0x1d7cb, Stride: 1},
	},
}

// symbols are Greek letters that stand in Latin words as units and signs (kΩ,
// μs, Δt) and look like no Latin letter. They belong to no alphabet here.
const symbols = "ΔΣΩλμπ\u2126"

func alphabetOf(r rune) *unicode.RangeTable {
	if !unicode.IsLetter(r) || strings.ContainsRune(symbols, r) {
		return nil
	}
	for _, alphabet := range alphabets {
		if unicode.Is(alphabet, r) {
			return alphabet
		}
	}
	return nil
}

// example returns the [Finding.Example] for the place at in the word of s that
// starts at wordStart.
func example(s string, wordStart, at int) string {
	const before = 16 // characters of the word that may stand before the place
	start := at
	for range before {
		if start == wordStart {
			break
		}
		_, size := utf8.DecodeLastRuneInString(s[wordStart:start])
		start -= size
	}
	var b strings.Builder
	for c := range characters(s[start:], false) {
		if start+c.at > at && separatesWords(c) || b.Len() > MaxExample {
			break
		}
		if c.shown && c.value <= unicode.MaxASCII {
			b.WriteByte(byte(c.value))
		} else {
			b.WriteString(c.escape())
		}
	}
	short, _ := Cut(b.String(), MaxExample)
	return short
}
