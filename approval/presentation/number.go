package presentation

import (
	"strconv"
	"strings"
	"time"
)

// Digits writes a number with its digits in groups of three: 12,400. A person
// who decides on 1,000 must not read 100.
func Digits(n int64) string {
	return groups(strconv.FormatInt(n, 10))
}

// groups sets digits apart in threes.
func groups(text string) string {
	sign := ""
	if strings.HasPrefix(text, "-") {
		sign, text = "-", text[1:]
	}
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return sign + text
}

// Counted is a number with its noun: 1 line, 2 lines.
func Counted(n int64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return Digits(n) + " " + noun + "s"
}

// Span writes how long something takes in words, to the minute: "1 hour 30
// minutes".
func Span(d time.Duration) string {
	hours, minutes := int64(d/time.Hour), int64(d%time.Hour/time.Minute)
	switch {
	case hours == 0 && minutes == 0:
		return "less than a minute"
	case hours == 0:
		return Counted(minutes, "minute")
	case minutes == 0:
		return Counted(hours, "hour")
	default:
		return Counted(hours, "hour") + " " + Counted(minutes, "minute")
	}
}
