package strictjson_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/countersign/countersign/internal/strictjson"
)

// refused are texts that must not pass, with the error that each must give.
var refused = []struct {
	name, text string
	want       strictjson.SyntaxError
}{
	{"nothing", "", at(0, 1, 1, "", "there is no value")},
	{"only white space", " \n ", at(3, 2, 2, "", "there is no value")},
	{"byte-order mark", "\ufeff{}", at(0, 1, 1, "", "a byte-order mark isn't allowed")},
	{"byte-order mark after the value", "{}\ufeff", at(2, 1, 3, "", trailing)},

	{"same key", `{"id":1,"id":2}`, at(8, 1, 9, "/id", `duplicate key "id"`)},
	{"same key escaped", `{"a":1,"\u0061":2}`, at(7, 1, 8, "/a", `duplicate key "a"`)},
	{"same key, surrogate pair escaped", `{"😀":1,"\ud83d\ude00":2}`, at(10, 1, 8, "/😀", `duplicate key "\U0001f600"`)},
	{"same key inside", `[0,{"rows":[{"x":{},"x":[]}]}]`, at(20, 1, 21, "/1/rows/0/x", `duplicate key "x"`)},
	{"same empty key", `{"":1,"":2}`, at(6, 1, 7, "/", `duplicate key ""`)},
	{"same key among many", manyKeys(1000, `"key7":0`), at(10891, 1, 10892, "/key7", `duplicate key "key7"`)},
	{"pointer escapes", `{"a/b~":{"x":1,"x":2}}`, at(15, 1, 16, "/a~1b~0/x", `duplicate key "x"`)},
	{"place after a line break", "{\n  \"ö\": 1,\n  \"é\": 2, \"ö\": 3\n}", at(24, 3, 11, "/ö", `duplicate key "\u00f6"`)},

	{"byte that isn't UTF-8", "{\"a\":\"ö\xff\"}", at(8, 1, 8, "/a", "the byte 0xff isn't UTF-8 here")},
	{"overlong encoding", "\"\xc0\x80\"", at(1, 1, 2, "", "the byte 0xc0 isn't UTF-8 here")},
	{"surrogate as UTF-8", "\"\xed\xa0\x80\"", at(1, 1, 2, "", "the byte 0xed isn't UTF-8 here")},
	{"above U+10FFFF", "\"\xf4\x90\x80\x80\"", at(1, 1, 2, "", "the byte 0xf4 isn't UTF-8 here")},
	{"character cut off by the end", "\"a\xe2\x82", at(2, 1, 3, "", "the byte 0xe2 isn't UTF-8 here")},
	{"byte that isn't UTF-8 outside of strings", "[\xff]", at(1, 1, 2, "/0", "the byte 0xff isn't UTF-8 here")},
	{"UTF-16", "\xff\xfe{\x00}\x00", at(0, 1, 1, "", "the byte 0xff isn't UTF-8 here")},

	{"high surrogate alone", `["\ud800"]`, at(2, 1, 3, "/0", `the surrogate \ud800 has no partner`)},
	{"low surrogate alone", `["\uDC00"]`, at(2, 1, 3, "/0", `the surrogate \udc00 has no partner`)},
	{"two high surrogates", `["\ud800\ud800"]`, at(2, 1, 3, "/0", `the surrogate \ud800 has no partner`)},
	{"high surrogate before another character", `["\ud800\u0041"]`, at(2, 1, 3, "/0", `the surrogate \ud800 has no partner`)},
	{"surrogate in a key", `{"\udfff":1}`, at(2, 1, 3, "", `the surrogate \udfff has no partner`)},

	{"second value", `{} {}`, at(3, 1, 4, "", trailing)},
	{"second number", "1\n2", at(2, 2, 1, "", trailing)},
	{"leading zero", `01`, at(1, 1, 2, "", trailing)},
	{"closing bracket too many", `[1]]`, at(3, 1, 4, "", trailing)},
	{"comment after", `[1]//x`, at(3, 1, 4, "", trailing)},
	{"NUL after", "{}\x00", at(2, 1, 3, "", trailing)},

	{"NaN", `{"a":NaN}`, at(5, 1, 6, "/a", "NaN isn't a JSON number")},
	{"infinity", `[Infinity]`, at(1, 1, 2, "/0", "Infinity isn't a JSON number")},
	{"minus infinity", `[-Infinity]`, at(2, 1, 3, "/0", "Infinity isn't a JSON number")},
	{"plus sign", `[+1]`, at(1, 1, 2, "/0", "invalid character '+' at start of value")},
	{"hexadecimal", `[0x10]`, at(2, 1, 3, "", "invalid character 'x' after array element (expecting ',' or ']')")},
	{"no digits after the point", `[1.]`, at(3, 1, 4, "/0", "invalid character ']' in number (expecting digit)")},
	{"full-width digit", `[１]`, at(1, 1, 2, "/0", `invalid character '\uff11' at start of value`)},

	{"key without quotes", `{a:1}`, at(1, 1, 2, "", "invalid character 'a' at start of value")},
	{"number as key", `{1:1}`, at(1, 1, 2, "", "a key must be a string in double quotes")},
	{"single quotes", `{'a':1}`, at(1, 1, 2, "", `invalid character '\'' at start of value`)},
	{"trailing comma", `[1,]`, at(2, 1, 3, "", "invalid character ',' at start of value")},
	{"no comma", `{"a":1 "b":2}`, at(7, 1, 8, "", "invalid character '\"' after object value (expecting ',' or '}')")},
	{"wrong bracket", `{"a":[1}}`, at(7, 1, 8, "/a", "invalid character '}' after array element (expecting ',' or ']')")},
	{"upper case", `[True]`, at(1, 1, 2, "/0", "invalid character 'T' at start of value")},
	{"comment", `[/**/1]`, at(1, 1, 2, "/0", "invalid character '/' at start of value")},
	{"no-break space", "[\u00a01]", at(1, 1, 2, "/0", `invalid character '\u00a0' at start of value`)},
	{"hidden character that Go prints", "[\u31641]", at(1, 1, 2, "/0", `invalid character '\u3164' at start of value`)},
	{"form feed", "[\f1]", at(1, 1, 2, "/0", `invalid character '\f' at start of value`)},

	{"tab in a string", "[\"\t\"]", at(2, 1, 3, "/0", `invalid character '\t' in string (expecting non-control character)`)},
	{"NUL in a string", "[\"\x00\"]", at(2, 1, 3, "/0", `invalid character '\x00' in string (expecting non-control character)`)},
	{"unknown escape", `["\x41"]`, at(2, 1, 3, "/0", "invalid escape sequence `\\x` in string")},
	{"short escape", `["\u12"]`, at(2, 1, 3, "/0", "invalid escape sequence `\\u12\"]` in string")},

	{"object without an end", `{"a":1`, at(6, 1, 7, "", endsEarly)},
	{"key without a value", `{"a":`, at(5, 1, 6, "/a", endsEarly)},
	{"string without an end", "[\n\"abc", at(6, 2, 5, "/0", endsEarly)},
	{"escape without an end", `["\ud8`, at(6, 1, 7, "/0", endsEarly)},
	{"number without an end", `[1e`, at(3, 1, 4, "/0", endsEarly)},
	{"word without an end", `tru`, at(3, 1, 4, "", endsEarly)},

	{"too deep", strings.Repeat("[", 65) + strings.Repeat("]", 65), at(64, 1, 65, strings.Repeat("/0", 64), tooDeep)},
	{"objects too deep", strings.Repeat(`{"a":`, 65) + "1" + strings.Repeat("}", 65), at(320, 1, 321, strings.Repeat("/a", 64), tooDeep)},
	{"too deep for the stack", strings.Repeat("[", 1<<20), at(64, 1, 65, strings.Repeat("/0", 64), tooDeep)},
}

const (
	trailing  = "something follows after the end of the value"
	endsEarly = "the text ends inside the value"
	tooDeep   = "objects and arrays are nested deeper than 64"
)

func at(offset, line, column int, pointer, reason string) strictjson.SyntaxError {
	return strictjson.SyntaxError{Offset: offset, Line: line, Column: column, Pointer: pointer, Reason: reason}
}

// accepted are unusual texts that are JSON, each with its canonical form.
var accepted = []struct{ name, text, canonical string }{
	{"white space around", " \t\r\n{ } \n", `{}`},
	{"null", `null`, `null`},
	{"empty string", `""`, `""`},
	{"integer beyond 2^53", `9007199254740993`, `9007199254740993`},
	{"integer beyond 2^64", `[184467440737095516160]`, `[184467440737095516160]`},
	{"beyond float64", `[1e400,-1E+400,1e-400]`, `[1e400,-1E+400,1e-400]`},
	{"trailing zero", `[0.10,1.0,10]`, `[0.10,1.0,10]`},
	{"minus zero", `[-0,-0.0,0]`, `[-0,-0.0,0]`},
	{"keys that differ in case", `{"b":1,"B":2}`, `{"B":2,"b":1}`},
	{"keys that differ in normalisation", "{\"é\":1,\"e\u0301\":2}", "{\"e\u0301\":2,\"é\":1}"},
	{"UTF-16 order of keys", "{\"\ufb33\":1,\"😀\":2,\"€\":3,\"\\r\":4,\"1\":5,\"\u0080\":6,\"ö\":7}",
		"{\"\\r\":4,\"1\":5,\"\u0080\":6,\"ö\":7,\"€\":3,\"😀\":2,\"\ufb33\":1}"},
	{"keys inside", `[{"b":{"d":1,"c":2},"a":[]}]`, `[{"a":[],"b":{"c":2,"d":1}}]`},
	{"order of elements", `[3,1,2]`, `[3,1,2]`},
	{"escapes that aren't needed", `["\u0041\/\u00e9\uD83D\uDE00"]`, `["A/é😀"]`},
	{"escapes that are needed", `["\"\\\b\f\n\r\t\u001F\u0000"]`, `["\"\\\b\f\n\r\t\u001f\u0000"]`},
	{"control characters with short escapes", `["\u0008\u000c\u000A\u000d\u0009"]`, `["\b\f\n\r\t"]`},
	{"characters that only HTML escapes", `["<&>\u2028\u007f"]`, "[\"<&>\u2028\u007f\"]"},
	{"hidden characters in a string", "[\"\u202e\ufeff\"]", "[\"\u202e\ufeff\"]"},
	{"as deep as allowed", strings.Repeat("[", 64) + strings.Repeat("]", 64), strings.Repeat("[", 64) + strings.Repeat("]", 64)},
	{"one level often", "[" + strings.Repeat("[],", 100) + "[]]", "[" + strings.Repeat("[],", 100) + "[]]"},
	{"brackets in a string", `["` + strings.Repeat("[{", 100) + `"]`, `["` + strings.Repeat("[{", 100) + `"]`},
}

func TestRefused(t *testing.T) {
	t.Parallel()
	for _, test := range refused {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			data := []byte(test.text)
			_, canonicalErr := strictjson.Canonical(data)
			_, membersErr := strictjson.Members(data)
			_, lengthsErr := strictjson.ArrayLengths(data)
			for function, err := range map[string]error{
				"Check":        strictjson.Check(data),
				"Canonical":    canonicalErr,
				"Members":      membersErr,
				"ArrayLengths": lengthsErr,
			} {
				got, ok := errors.AsType[*strictjson.SyntaxError](err)
				if !ok {
					t.Errorf("%s(%.80q) gives %v, want a *SyntaxError", function, test.text, err)
					continue
				}
				if diff := cmp.Diff(test.want, *got); diff != "" {
					t.Errorf("%s(%.80q) (-want +got):\n%s", function, test.text, diff)
				}
			}
		})
	}
}

func TestAccepted(t *testing.T) {
	t.Parallel()
	for _, test := range accepted {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			data := []byte(test.text)
			if err := strictjson.Check(data); err != nil {
				t.Fatalf("Check(%q): %v", test.text, err)
			}
			got, err := strictjson.Canonical(data)
			if err != nil {
				t.Fatalf("Canonical(%q): %v", test.text, err)
			}
			if diff := cmp.Diff(test.canonical, string(got)); diff != "" {
				t.Errorf("Canonical(%q) (-want +got):\n%s", test.text, diff)
			}
			if string(data) != test.text {
				t.Errorf("the text was changed to %q", data)
			}
		})
	}
}

func TestErrorText(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("ö", 1000)
	for _, test := range []struct{ name, text, want string }{
		{"whole text", "{} x", "not strict JSON: line 1, column 4: something follows after the end of the value"},
		{"place", "{\"to\":[\n {\"id\":1, \"id\":2}]}", `not strict JSON: line 2, column 11 (at "/to/0/id"): duplicate key "id"`},
		{"hidden characters", "{\"\u202e\u3164\":1,\"\u202e\u3164\":2}",
			`not strict JSON: line 1, column 9 (at "/\u202e\u3164"): duplicate key "\u202e\u3164"`},
		{"line break in a key", `{"a\nb":1,"a\nb":2}`, `not strict JSON: line 1, column 11 (at "/a\nb"): duplicate key "a\nb"`},
		{"long key", `{"` + long + `":1,"` + long + `":2}`,
			`not strict JSON: line 1, column 1007 (at "/` + strings.Repeat(`\u00f6`, 159) + `" (cut)): duplicate key "` + strings.Repeat(`\u00f6`, 80) + `" (cut)`},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			err := strictjson.Check([]byte(test.text))
			if err == nil {
				t.Fatalf("Check(%.80q) accepts it", test.text)
			}
			if diff := cmp.Diff(test.want, err.Error()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// manyKeys returns an object with count distinct keys and one more member.
func manyKeys(count int, member string) string {
	var b strings.Builder
	b.WriteByte('{')
	for i := range count {
		fmt.Fprintf(&b, `"key%d":0,`, i)
	}
	return b.String() + member + `}`
}
