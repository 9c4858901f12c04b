package presentation_test

import (
	"strings"
	"testing"
)

// A number's note is the same number: nothing is rounded.
func TestNotesAreExact(t *testing.T) {
	t.Parallel()
	nines, zeros := strings.Repeat("9", 80), strings.Repeat("0", 80)
	for literal, want := range map[string]string{
		"1999." + nines:          "1,999." + nines,
		"1." + nines + "e3":      "1,999." + nines[3:],
		"-9." + nines + "e-2":    "-0.09" + nines,
		"1000." + zeros + "1":    "1,000." + zeros + "1",
		"1000." + zeros:          "1,000",
		"1" + zeros[:30]:         "1," + strings.TrimSuffix(strings.Repeat("000,", 10), ","),
		"1." + zeros + "1e30":    "1," + strings.TrimSuffix(strings.Repeat("000,", 10), ",") + "." + zeros[30:] + "1",
		strings.Repeat("7", 400): "",
	} {
		tree, ok := layOut(literal).Tree()
		if !ok || tree.Note != want {
			t.Errorf("%s is noted as %q, want %q", literal, tree.Note, want)
		}
	}
}
