package bot

import (
	"strconv"
	"strings"
)

func integer(n int64) string { return strconv.FormatInt(n, 10) }

// digits writes a number with its digits in groups of three: 12,400. A person
// who decides on 1,000 must not read 100.
func digits(n int64) string {
	text := integer(n)
	sign := ""
	if strings.HasPrefix(text, "-") {
		sign, text = "-", text[1:]
	}
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return sign + text
}

// counted is a number with its noun: 1 line, 2 lines.
func counted(n int64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return digits(n) + " " + noun + "s"
}
