package strictjson_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/countersign/countersign/internal/strictjson"
)

// FuzzCheck compares with encoding/json, a parser with another author: what is
// accepted it must read alike, before and after Canonical; and what it accepts
// may be refused only for a reason that it is known not to check.
func FuzzCheck(f *testing.F) {
	for _, test := range refused {
		if len(test.text) < 1<<16 {
			f.Add([]byte(test.text))
		}
	}
	for _, test := range accepted {
		f.Add([]byte(test.text))
	}
	f.Add(payloadOf(1 << 10))
	f.Fuzz(func(t *testing.T, data []byte) {
		if err := strictjson.Check(data); err != nil {
			requireGoodRefusal(t, data, err)
			return
		}
		tree := decode(t, data)
		canonical, err := strictjson.Canonical(data)
		if err != nil {
			t.Fatalf("Canonical refuses what Check accepts: %v", err)
		}
		requireSameTree(t, "Canonical", tree, decode(t, canonical))
		again, err := strictjson.Canonical(canonical)
		if err != nil {
			t.Fatalf("Canonical refuses its own output: %v", err)
		}
		if diff := cmp.Diff(string(canonical), string(again)); diff != "" {
			t.Errorf("Canonical isn't idempotent (-once +twice):\n%s", diff)
		}
		requireSameMembers(t, data, tree)
		requireSameLengths(t, data, tree)
	})
}

// reasonsOfOurs start the reasons for which encoding/json doesn't refuse.
var reasonsOfOurs = []string{"duplicate key", "the byte 0x", "the surrogate", "objects and arrays are nested"}

func requireGoodRefusal(t *testing.T, data []byte, err error) {
	t.Helper()
	syntax, ok := errors.AsType[*strictjson.SyntaxError](err)
	if !ok {
		t.Fatalf("Check gives %T, want *SyntaxError", err)
	}
	if syntax.Offset < 0 || syntax.Offset > len(data) {
		t.Fatalf("offset %d is outside of %d bytes", syntax.Offset, len(data))
	}
	lines := bytes.Split(data[:syntax.Offset], []byte("\n"))
	if line := len(lines); line != syntax.Line {
		t.Errorf("line %d, want %d", syntax.Line, line)
	}
	if column := utf8.RuneCount(lines[len(lines)-1]) + 1; column != syntax.Column {
		t.Errorf("column %d, want %d", syntax.Column, column)
	}
	for _, c := range []byte(err.Error()) {
		if c < ' ' || c > '~' {
			t.Fatalf("the error's text has byte 0x%02x: %q", c, err)
		}
	}
	if !json.Valid(data) {
		return
	}
	for _, reason := range reasonsOfOurs {
		if strings.HasPrefix(syntax.Reason, reason) {
			return
		}
	}
	t.Errorf("encoding/json accepts it, we don't: %v", err)
}

// decode returns data as encoding/json reads it, with numbers as written.
func decode(t *testing.T, data []byte) any {
	t.Helper()
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	var tree any
	if err := decoder.Decode(&tree); err != nil {
		t.Fatalf("encoding/json refuses %q: %v", data, err)
	}
	return tree
}

// requireSameMembers checks that the members, put together again, are the object.
func requireSameMembers(t *testing.T, data []byte, tree any) {
	t.Helper()
	members, err := strictjson.Members(data)
	if _, isObject := tree.(map[string]any); !isObject {
		if !errors.Is(err, strictjson.ErrNotObject) {
			t.Errorf("Members gives %v, want ErrNotObject", err)
		}
		return
	}
	if err != nil {
		t.Fatalf("Members: %v", err)
	}
	got := map[string]any{}
	for _, member := range members {
		if !bytes.Contains(data, member.Value) {
			t.Errorf("the value of %q isn't in the text", member.Name)
		}
		got[member.Name] = decode(t, member.Value)
	}
	requireSameTree(t, "Members", tree, got)
}

// requireSameTree compares without cmp.Diff, whose time doubles with each level
// of nested slices.
func requireSameTree(t *testing.T, function string, want, got any) {
	t.Helper()
	if !reflect.DeepEqual(want, got) {
		t.Errorf("%s changed the value\nwant %v\ngot  %v", function, want, got)
	}
}

func requireSameLengths(t *testing.T, data []byte, tree any) {
	t.Helper()
	want := map[strictjson.ArrayLength]bool{}
	switch tree := tree.(type) {
	case []any:
		want[strictjson.ArrayLength{Whole: true, Length: len(tree)}] = true
	case map[string]any:
		for name, value := range tree {
			if array, ok := value.([]any); ok {
				want[strictjson.ArrayLength{Name: name, Length: len(array)}] = true
			}
		}
	}
	lengths, err := strictjson.ArrayLengths(data)
	if err != nil {
		t.Fatalf("ArrayLengths: %v", err)
	}
	got := map[strictjson.ArrayLength]bool{}
	for _, length := range lengths {
		got[length] = true
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("ArrayLengths (-want +got):\n%s", diff)
	}
}
