package jsoninput

import (
	"errors"
	"strconv"
	"strings"
)

var (
	errNotWhole = errors.New("not a whole number")
	errTooSmall = errors.New("less than the least that fits")
	errTooLarge = errors.New("more than the most that fits")
)

// wholeNumber reads a JSON number that is whole in any spelling, as JSON Schema
// counts them: 3600, 3600.0 and 3.6e3 are the same. Nothing is rounded.
// value must be one strict JSON value.
func wholeNumber(value []byte) (int64, error) {
	if kindOf(value) != kindNumber {
		return 0, errNotWhole
	}
	literal, negative := strings.CutPrefix(string(value), "-")
	mantissa, exponent := literal, 0
	if at := strings.IndexAny(literal, "eE"); at >= 0 {
		mantissa = literal[:at]
		// Out of range, Atoi gives the nearest that fits, which is as far
		// beyond any mantissa that a message can hold.
		exponent, _ = strconv.Atoi(literal[at+1:])
		exponent = min(max(exponent, -1<<30), 1<<30)
	}
	whole, fraction, _ := strings.Cut(mantissa, ".")
	point := len(whole) + exponent // where the decimal point is among the digits
	digits := whole + fraction
	leading := len(digits) - len(strings.TrimLeft(digits, "0"))
	digits = strings.TrimRight(digits[leading:], "0")
	point -= leading
	switch {
	case digits == "":
		return 0, nil
	case point < len(digits):
		return 0, errNotWhole
	case point > 19:
		return 0, outOfRange(negative)
	}
	digits += strings.Repeat("0", point-len(digits))
	if negative {
		digits = "-" + digits
	}
	number, err := strconv.ParseInt(digits, 10, 64)
	if err != nil {
		return 0, outOfRange(negative)
	}
	return number, nil
}

func outOfRange(negative bool) error {
	if negative {
		return errTooSmall
	}
	return errTooLarge
}
