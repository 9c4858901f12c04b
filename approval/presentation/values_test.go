package presentation_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/approval/presentation"
	"github.com/countersign/countersign/internal/visible"
	"github.com/countersign/countersign/policy"
)

func layOut(payload string, hidden ...string) presentation.Arguments {
	return presentation.LayOut(approval.Payload(payload), policy.Redactions{Keys: hidden})
}

// What somebody may misread is said beside it.
func TestNotes(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		literal, note string
		warns         bool
	}{
		{"7", "", false},
		{"100", "", false},
		{"1000", "1,000", false},
		{"-1000", "-1,000", false},
		{"9007199254740993", "9,007,199,254,740,993", false},
		{"0.10", "", false},
		{"1234.50", "1,234.5", false},
		{"1000.0", "1,000", false},
		{"1e3", "1,000", false},
		{"1E-3", "0.001", false},
		{"25e1", "250", false},
		{"1e400", "more than 30 digits long", false},
		{"1e999999999999999999999", "more than 30 digits long", false},
		{"1e-400", "close to zero", false},
		{"0e400", "zero", false},
		{"true", "", false},
		{"null", "", false},
		{`"customers"`, "", false},
		{`"1,000"`, "text, not a number", false},
		{`"1"`, "text, not a number", false},
		{`"1e3"`, "text, not a number", false},
		{`"2024-12-01"`, "", false},
		{`"١٠٠"`, string(visible.UnusualDigits), true},
		{`"pаypal"`, string(visible.MixedAlphabets), true}, // its second letter is Cyrillic
		{"\"in\u202evoice\"", string(visible.HiddenCharacters), true},
		{`"` + strings.Repeat("x", 80) + `"`, "80 characters", false},
	} {
		tree, ok := layOut(`[` + test.literal + `]`).Tree()
		if !ok || len(tree.Items) != 1 {
			t.Fatalf("%s: %v, %v", test.literal, tree, ok)
		}
		if got := tree.Items[0]; got.Note != test.note || got.Warns != test.warns {
			t.Errorf("%s: noted %q, %v; want %q, %v", test.literal, got.Note, got.Warns, test.note, test.warns)
		}
	}
}

func TestTree(t *testing.T) {
	t.Parallel()
	got, ok := layOut(`{"table": "customers", "where": {}, "ids": [7, {"token": "s3cret!"}]}`, "token").Tree()
	want := presentation.Value{Note: "3 members", Items: []presentation.Value{
		{Name: `"table"`, Text: `"customers"`},
		{Name: `"where"`, Note: "0 members"},
		{Name: `"ids"`, Note: "2 elements", List: true, Items: []presentation.Value{
			{Name: "1", Text: "7"},
			{Name: "2", Note: "1 member", Items: []presentation.Value{
				{Name: `"token"`, Text: "‹hidden text, 7 characters›"},
			}},
		}},
	}}
	if diff := cmp.Diff(want, got); diff != "" || !ok {
		t.Errorf("ok is %v; -want +got:\n%s", ok, diff)
	}
	for values, fits := range map[int]bool{presentation.MaxValues - 1: true, presentation.MaxValues: false} {
		if _, ok := layOut("[" + strings.Repeat("1,", values-1) + "1]").Tree(); ok != fits {
			t.Errorf("a tree of %d values and their list: %v", values, ok)
		}
	}
}

// The exact text stays as it is but for what the policy hides.
func TestSourceIsExact(t *testing.T) {
	t.Parallel()
	const payload = "{ \"b\" :1e400,\n\t\"password\": [ 1 , \"x\" ] , \"a\":\"\\u0041\", \"c\": {\"password\":null} }"
	if got := layOut(payload).Source; got != payload {
		t.Errorf("got %q", got)
	}
	want := "{ \"b\" :1e400,\n\t\"password\": ‹hidden list, 2 elements› , \"a\":\"\\u0041\", \"c\": {\"password\":‹hidden null›} }"
	if got := layOut(payload, "password"); got.Source != want || got.Hidden != 2 {
		t.Errorf("got %q, %d hidden", got.Source, got.Hidden)
	}
}

func changes(t interface{ Fatal(...any) }, before, after presentation.Arguments) []presentation.Change {
	all, err := presentation.Changes(before, after)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestChanges(t *testing.T) {
	t.Parallel()
	before := layOut(`{"a":1,"b":2,"c":3,"d":4,"e":5,"ids":[1,2,3],"f":6,"g":7,"h":8,"i":9,"z":0}`)
	after := layOut(`{"a":1,"b":2,"c":3,"d":4,"e":5,"ids":[1,3],"f":6,"g":7,"h":8,"i":9,"z":0,"y":"-"}`)
	var got strings.Builder
	for _, change := range changes(t, before, after) {
		got.WriteString(change.Mark + change.Text + "\n")
	}
	want := `   "e": 5,
   "ids": [
     1,
-    2,
     3
   ],
   "f": 6,
   "g": 7,
   "h": 8,
   "i": 9,
-  "z": 0
+  "z": 0,
+  "y": "-"
 }
`
	if diff := cmp.Diff(want, got.String()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if got := changes(t, layOut(`{"a":1}`), layOut(`{ "a": 1 }`)); got != nil {
		t.Errorf("other spacing is a change: %v", got)
	}
	far := strings.Repeat(`0,`, 20)
	got.Reset()
	for _, change := range changes(t, layOut(`[1,`+far+`1]`), layOut(`[2,`+far+`2]`)) {
		got.WriteString(change.Mark)
	}
	if got.String() != " -+   …   -+ " {
		t.Errorf("the marks are %q", got.String())
	}
}

// A change shows nothing that the policy hides, and whoever applies the marks to
// the version before has the version after.
func TestChangesTellAll(t *testing.T) {
	t.Parallel()
	list := rapid.SliceOfN(rapid.SampledFrom([]string{`1`, `"-"`, `"+"`, `"@@"`, `"…"`, `""`, `{"token":"s3cret!"}`}), 0, 12)
	rapid.Check(t, func(t *rapid.T) {
		before, after := list.Draw(t, "before"), list.Draw(t, "after")
		changes := changes(t,
			layOut(`[`+strings.Join(before, ",")+`]`, "token"),
			layOut(`[`+strings.Join(after, ",")+`]`, "token"))
		balance := make(map[string]int)
		for _, change := range changes {
			switch change.Mark {
			case "+":
				balance[strings.Trim(change.Text, " ,")]++
			case "-":
				balance[strings.Trim(change.Text, " ,")]--
			}
			if strings.Contains(change.Text, "s3cret") {
				t.Fatalf("%q is shown", change.Text)
			}
		}
		for _, one := range []string{`1`, `"-"`, `"+"`, `"@@"`, `"…"`, `""`} {
			want := 0
			for _, other := range after {
				if other == one {
					want++
				}
			}
			for _, other := range before {
				if other == one {
					want--
				}
			}
			if balance[one] != want {
				t.Fatalf("%s: the marks come to %d, want %d", one, balance[one], want)
			}
		}
	})
}
