package visible

import (
	"unicode"
	"unicode/utf8"
)

// Cut returns the longest beginning of s that has at most the given number of
// characters (Unicode code points; a byte that isn't UTF-8 is one) and says if
// it left anything out. It adds no mark of its own.
//
// It is for what [Text] and [Line] return: it never cuts inside an escape such
// as \u{202e}, nor inside what is drawn as one character, such as a letter with
// its marks, a Hangul syllable, a flag or an emoji with its skin tone. Only
// where a single such character is too long is it cut itself, and an escape
// that is too long is left out.
func Cut(s string, characters int) (string, bool) {
	var (
		count     int  // characters before i
		whole     int  // the last place at which everything before is whole
		between   int  // the last place between two code points, outside of escapes
		previous  rune // the one before i
		indicator bool // previous is the first half of a flag
	)
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		length := 1
		if escape := escapeLength(s[i:]); escape > 0 {
			size, length = escape, escape
		}
		if joined := i > 0 && join(previous, r, indicator); !joined {
			whole = i
		}
		between = i
		count += length
		if count > characters {
			if whole == 0 {
				return s[:between], true
			}
			return s[:whole], true
		}
		indicator = isRegionalIndicator(r) && !indicator
		previous = r
		if length > 1 {
			previous = '}'
		}
		i += size
	}
	return s, false
}

// escapeLength returns the length of the escape that s starts with, or 0.
func escapeLength(s string) int {
	if !startsEscape(s) {
		return 0
	}
	for i := len(`\u{`); i < len(s); i++ {
		switch c := s[i]; {
		case c == '}':
			return i + 1
		case i > len(`\u{10fff`) || !('0' <= c && c <= '9' || 'a' <= c && c <= 'f'):
			return 0
		}
	}
	return 0
}

// join says if next is drawn as one with previous. It follows the rules for
// grapheme clusters of Unicode (UAX 29) as far as they can be told from the
// standard library's tables; where it can't tell, it doesn't join.
func join(previous, next rune, indicator bool) bool {
	const zeroWidthJoiner = '\u200d'
	switch {
	case previous == '\r' && next == '\n':
		return true
	case unicode.IsControl(previous) || unicode.IsControl(next):
		return false
	case unicode.Is(unicode.M, next), next == zeroWidthJoiner, previous == zeroWidthJoiner:
		return true
	case unicode.Is(unicode.Variation_Selector, next), isSkinTone(next), isTag(next):
		return true
	case isRegionalIndicator(next):
		return indicator
	}
	return joinHangul(previous, next)
}

// joinHangul says if two conjoining letters, or a syllable and a letter, are
// drawn as one syllable.
func joinHangul(previous, next rune) bool {
	switch {
	case isLeadingConsonant(previous):
		return isLeadingConsonant(next) || isJamoVowel(next) || isHangulSyllable(next)
	case isJamoVowel(previous), isHangulSyllable(previous) && (previous-0xac00)%28 == 0:
		return isJamoVowel(next) || isTrailingConsonant(next)
	case isHangulSyllable(previous), isTrailingConsonant(previous):
		return isTrailingConsonant(next)
	}
	return false
}

func isLeadingConsonant(r rune) bool {
	return 0x1100 <= r && r <= 0x115f || 0xa960 <= r && r <= 0xa97c
}

func isJamoVowel(r rune) bool {
	return 0x1160 <= r && r <= 0x11a7 || 0xd7b0 <= r && r <= 0xd7c6
}

func isTrailingConsonant(r rune) bool {
	return 0x11a8 <= r && r <= 0x11ff || 0xd7cb <= r && r <= 0xd7fb
}

func isHangulSyllable(r rune) bool    { return 0xac00 <= r && r <= 0xd7a3 }
func isRegionalIndicator(r rune) bool { return 0x1f1e6 <= r && r <= 0x1f1ff }
func isSkinTone(r rune) bool          { return 0x1f3fb <= r && r <= 0x1f3ff }
func isTag(r rune) bool               { return 0xe0020 <= r && r <= 0xe007f }
