package presentation_test

import "testing"

// What is no JSON has no tree, and is shown as it is.
func TestTreeOfWhatIsNoJSON(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", " ", "{", "[1,", `"`, `{"a":}`, "[,]"} {
		a := layOut(text)
		if tree, ok := a.Tree(); ok || a.Source != text {
			t.Errorf("%q is shown as %q, and as the tree %+v", text, a.Source, tree)
		}
	}
}
