package strictjson_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/countersign/countersign/internal/strictjson"
)

func TestMembers(t *testing.T) {
	t.Parallel()
	type member struct{ Name, Value string }
	for _, test := range []struct {
		name, text string
		want       []member
	}{
		{"empty object", `{ }`, nil},
		{"order as written", `{"b":1,"a":2}`, []member{{"b", "1"}, {"a", "2"}}},
		{"numbers as written", `{"id":9007199254740993,"x":1e400,"y":0.10}`, []member{{"id", "9007199254740993"}, {"x", "1e400"}, {"y", "0.10"}}},
		{"white space inside, not around", " { \"a\" : \n[ 1 ,\t{ } ] , \"b\":\" \" }\n", []member{{"a", "[ 1 ,\t{ } ]"}, {"b", `" "`}}},
		{"key decoded, value not", `{"\u0061\n":"\u0061"}`, []member{{"a\n", `"\u0061"`}}},
		{"empty key", `{"":null}`, []member{{"", "null"}}},
		{"objects inside stay whole", `{"a":{"b":{"c":1}}}`, []member{{"a", `{"b":{"c":1}}`}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			members, err := strictjson.Members([]byte(test.text))
			if err != nil {
				t.Fatal(err)
			}
			var got []member
			for _, m := range members {
				got = append(got, member{m.Name, string(m.Value)})
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("Members(%q) (-want +got):\n%s", test.text, diff)
			}
		})
	}
}

func TestMembersOfAnotherType(t *testing.T) {
	t.Parallel()
	for _, text := range []string{`[]`, `[{"a":1}]`, ` "a"`, `1`, `null`, `true`} {
		if members, err := strictjson.Members([]byte(text)); !errors.Is(err, strictjson.ErrNotObject) || members != nil {
			t.Errorf("Members(%q) = %v, %v, want ErrNotObject", text, members, err)
		}
	}
}

func TestMemberSharesTheText(t *testing.T) {
	t.Parallel()
	const text = `{"a":[1],"b":2}`
	data := []byte(text)
	members, err := strictjson.Members(data)
	if err != nil {
		t.Fatal(err)
	}
	if &members[0].Value[0] != &data[5] {
		t.Error("the value is a copy")
	}
	_ = append(members[0].Value, "!!!!"...)
	if string(data) != text {
		t.Errorf("appending to a value changed the text to %q", data)
	}
}

func TestArrayLengths(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, text string
		want       []strictjson.ArrayLength
	}{
		{"the text itself", ` [1, [2, 3], {"a":[4]}] `, []strictjson.ArrayLength{{Whole: true, Length: 3}}},
		{"empty text", `[]`, []strictjson.ArrayLength{{Whole: true, Length: 0}}},
		{"members", `{"ids":[1,2,3],"note":"[1,2]","tags":[ ],"\u0061":[[1,2]]}`,
			[]strictjson.ArrayLength{{Name: "ids", Length: 3}, {Name: "tags", Length: 0}, {Name: "a", Length: 1}}},
		{"empty key isn't the text itself", `{"":[1]}`, []strictjson.ArrayLength{{Name: "", Length: 1}}},
		{"further inside", `{"query":{"ids":[1,2]}}`, nil},
		{"commas and brackets in strings", `{"ids":["a,]","[b"]}`, []strictjson.ArrayLength{{Name: "ids", Length: 2}}},
		{"no object", `"[1]"`, nil},
		{"no array", `{}`, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			got, err := strictjson.ArrayLengths([]byte(test.text))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("ArrayLengths(%q) (-want +got):\n%s", test.text, diff)
			}
		})
	}
}
