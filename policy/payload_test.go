package policy

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"cel.dev/cel-go/common/types"
	"pgregory.net/rapid"

	"github.com/countersign/countersign/internal/strictjson"
)

// expected reads a payload in another way: with the strict check and then with
// the standard library.
func expected(payload []byte) (value any, ok bool) {
	if strictjson.Check(payload) != nil {
		return nil, false
	}
	decoder := json.NewDecoder(bytes.NewReader(payload))
	decoder.UseNumber()
	if decoder.Decode(&value) != nil {
		return nil, false
	}
	return value, true
}

// same reports whether a decoded value is as the standard library reads it.
func same(got, want any) bool {
	switch want := want.(type) {
	case json.Number:
		text := string(want)
		whole, err := strconv.ParseInt(text, 10, 64)
		if err == nil {
			return got == whole
		}
		broken, err := strconv.ParseFloat(text, 64)
		if err == nil && strings.ContainsAny(text, ".eE") {
			return got == broken
		}
		_, failed := got.(*types.Err)
		return failed
	case map[string]any:
		object, ok := got.(map[string]any)
		if !ok || len(object) != len(want) {
			return false
		}
		for key, member := range want {
			if one, found := object[key]; !found || !same(one, member) {
				return false
			}
		}
		return true
	case []any:
		list, ok := got.([]any)
		return ok && slices.EqualFunc(list, want, same)
	default:
		return reflect.DeepEqual(got, want)
	}
}

func holdsError(value any) bool {
	switch value := value.(type) {
	case *types.Err:
		return true
	case map[string]any:
		for _, member := range value {
			if holdsError(member) {
				return true
			}
		}
	case []any:
		return slices.ContainsFunc(value, holdsError)
	}
	return false
}

func requireSameReading(t interface {
	Helper()
	Fatalf(string, ...any)
}, payload []byte) {
	t.Helper()
	got, flawed, err := decode(payload)
	want, ok := expected(payload)
	if ok != (err == nil) {
		t.Fatalf("%q: error %v, but the strict check accepts it: %t", payload, err, ok)
	}
	if err != nil {
		return
	}
	if !same(got, want) {
		t.Fatalf("%q is %v, want %v", payload, got, want)
	}
	if flawed != holdsError(got) {
		t.Fatalf("%q: flawed is %t", payload, flawed)
	}
}

// pieces of JSON, and of what isn't.
var pieces = []string{
	"{", "}", "[", "]", ",", ":", `"a"`, `"b"`, `"\u0061"`, `""`, `"\ud800"`, `"\ud83d\ude00"`, "\"\xff\"", `"`, "é",
	"0", "-0", "1", "1.0", "0.10", "1e2", "1e400", "9007199254740993", "9223372036854775807", "9223372036854775808", "-9223372036854775809", "1e-400", "01", "+1", "NaN",
	"true", "false", "null", "nul", " ", "\n", "\x00", "\ufeff", "//",
}

func TestReadingOfPayloads(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		requireSameReading(t, []byte(strings.Join(rapid.SliceOfN(rapid.SampledFrom(pieces), 0, 6).Draw(t, "pieces"), "")))
		requireSameReading(t, []byte(drawJSON(t, 3)))
	})
}

// drawJSON draws JSON, which may have a key twice.
func drawJSON(t *rapid.T, depth int) string {
	kind := rapid.IntRange(0, 2).Draw(t, "kind")
	if depth == 0 || kind == 0 {
		return rapid.SampledFrom(pieces[6:13]).Draw(t, "text") + rapid.SampledFrom([]string{"", " "}).Draw(t, "space")
	}
	var parts []string
	for range rapid.IntRange(0, 3).Draw(t, "parts") {
		value := rapid.SampledFrom([]string{"1", "-0", "1e400", "9223372036854775808", "2.50", "null", "true", "false"}).Draw(t, "value")
		if rapid.Bool().Draw(t, "nested") {
			value = drawJSON(t, depth-1)
		}
		if kind == 1 {
			value = rapid.SampledFrom([]string{`"a"`, `"b"`, `"\u0061"`, `"c"`, `"d"`}).Draw(t, "key") + ": " + value
		}
		parts = append(parts, value)
	}
	if kind == 1 {
		return "{" + strings.Join(parts, ", ") + "}"
	}
	return "[" + strings.Join(parts, ",") + "]"
}

func TestReadingOfDeepPayloads(t *testing.T) {
	t.Parallel()
	for _, levels := range []int{1, strictjson.MaxDepth - 1, strictjson.MaxDepth, strictjson.MaxDepth + 1, 1000, 100_000} {
		requireSameReading(t, []byte(strings.Repeat("[", levels)+strings.Repeat("]", levels)))
		requireSameReading(t, []byte(strings.Repeat(`{"a":`, levels)+"1"+strings.Repeat("}", levels)))
		requireSameReading(t, []byte(strings.Repeat("[", levels)))
	}
}

// FuzzDecode reads payloads in two ways.
func FuzzDecode(f *testing.F) {
	for _, piece := range pieces {
		f.Add([]byte(piece))
	}
	f.Add([]byte(`{"ids": [1, 2.50, 1e400], "a": {"b": null}, "\u0061": "x"} `))
	f.Fuzz(func(t *testing.T, payload []byte) { requireSameReading(t, payload) })
}

func TestLongestList(t *testing.T) {
	t.Parallel()
	for payload, want := range map[string]int{ // -1 if there is none
		`{"a": [1], "b": [1, 2, 3], "c": {"d": [1, 2, 3, 4]}, "e": "text"}`: 3,
		`[[1, 2, 3], 4]`:         2,
		`[]`:                     0,
		`{"a": []}`:              0,
		`{"a": {"b": [1, 2]}}`:   -1,
		`{}`:                     -1,
		`"text"`:                 -1,
		`7`:                      -1,
		`null`:                   -1,
		`true`:                   -1,
		`{"a": [1e400, 1e400]}`:  2,
		`{"a": 1e400, "b": [1]}`: 1,
		`1e400`:                  -2, // can't be read
		`{"a": [1, 2`:            -2,
		``:                       -2,
	} {
		value, _ := args([]byte(payload))
		length, found, err := longestList(value)
		switch {
		case err != nil:
			length = -2
		case !found:
			length = -1
		}
		if length != want {
			t.Errorf("%s: %d, want %d", payload, length, want)
		}
	}
}
