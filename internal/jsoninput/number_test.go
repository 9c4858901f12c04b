package jsoninput_test

import (
	"errors"
	"fmt"
	"math/big"
	"testing"

	"pgregory.net/rapid"

	"github.com/countersign/countersign/internal/jsoninput"
)

func TestWholeNumber(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		in   string
		want int64
		err  error
	}{
		{"0", 0, nil},
		{"-0", 0, nil},
		{"0.00e99999999999999999999", 0, nil},
		{"3600", 3600, nil},
		{"3600.0", 3600, nil},
		{"3.6e3", 3600, nil},
		{"360000E-2", 3600, nil},
		{"-12", -12, nil},
		{"9223372036854775807", 9223372036854775807, nil},
		{"-9223372036854775808", -9223372036854775808, nil},
		{"9223372036854775807.000", 9223372036854775807, nil},
		{"9223372036854775808", 0, jsoninput.ErrTooLarge},
		{"-9223372036854775809", 0, jsoninput.ErrTooSmall},
		{"1e400", 0, jsoninput.ErrTooLarge},
		{"-1e99999999999999999999", 0, jsoninput.ErrTooSmall},
		{"1.5", 0, jsoninput.ErrNotWhole},
		{"1e-99999999999999999999", 0, jsoninput.ErrNotWhole},
		{"3600.00000000000000000000000001", 0, jsoninput.ErrNotWhole},
		{`"3600"`, 0, jsoninput.ErrNotWhole},
		{"true", 0, jsoninput.ErrNotWhole},
		{"null", 0, jsoninput.ErrNotWhole},
		{"[1]", 0, jsoninput.ErrNotWhole},
		{"{}", 0, jsoninput.ErrNotWhole},
	} {
		got, err := jsoninput.WholeNumber([]byte(test.in))
		if got != test.want || !errors.Is(err, test.err) {
			t.Errorf("WholeNumber(%s) = %d, %v; want %d, %v", test.in, got, err, test.want, test.err)
		}
	}
}

// Every spelling of a number means what exact arithmetic says it means.
func TestWholeNumberIsExact(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		literal := rapid.SampledFrom([]string{"", "-"}).Draw(t, "sign") +
			rapid.StringMatching(`0|[1-9][0-9]{0,22}`).Draw(t, "whole") +
			rapid.StringMatching(`(\.[0-9]{1,22})?`).Draw(t, "fraction")
		if rapid.Bool().Draw(t, "has exponent") {
			literal += fmt.Sprintf("e%d", rapid.IntRange(-30, 30).Draw(t, "exponent"))
		}
		exact, ok := new(big.Rat).SetString(literal)
		if !ok {
			t.Fatalf("big.Rat refuses %s", literal)
		}
		got, err := jsoninput.WholeNumber([]byte(literal))
		switch {
		case !exact.IsInt():
			if !errors.Is(err, jsoninput.ErrNotWhole) {
				t.Fatalf("%s: got %d, %v; want ErrNotWhole", literal, got, err)
			}
		case !exact.Num().IsInt64():
			want := jsoninput.ErrTooLarge
			if exact.Sign() < 0 {
				want = jsoninput.ErrTooSmall
			}
			if !errors.Is(err, want) {
				t.Fatalf("%s: got %d, %v; want %v", literal, got, err, want)
			}
		case err != nil || got != exact.Num().Int64():
			t.Fatalf("%s: got %d, %v; want %s", literal, got, err, exact.Num())
		}
	})
}
