package strictjson_test

import (
	"encoding/json"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/countersign/countersign/internal/strictjson"
)

func TestClash(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ data, want string }{
		{`{}`, ""},
		{`1`, ""},
		{`"id"`, ""},
		{`["id","ID"]`, ""},
		{`{"id":"ID","b":["id","ID"]}`, ""},
		{`{"id":{"ID":1},"x":{"ID":1}}`, ""},
		{`[{"id":1},{"ID":1}]`, ""},
		{`{"id":1,"ID":2}`, "ID"},
		{`{"id":1,"Id":2,"ID":3}`, "Id"},
		{`{"a":[{"b":{"path":1,"n":[],"pAth":3}}]}`, "pAth"},
		{`{"a":{},"A":1}`, "A"},
		{`{"id":1,"\u0049D":2}`, "ID"},
		{`{"s":1,"ſ":2}`, "ſ"}, // a long s is an s to whoever folds
		{`{"k":1,"K":2}`, "K"}, // and the sign of Kelvin a k
		{`{"ß":1,"ss":2}`, ""},
	} {
		name, found, err := strictjson.Clash([]byte(test.data))
		if err != nil || name != test.want || found != (test.want != "") {
			t.Errorf("%s: got %q, %v, %v, want %q", test.data, name, found, err, test.want)
		}
	}
	if _, _, err := strictjson.Clash([]byte(`{"a":1,"a":2}`)); err == nil {
		t.Error("what Check refuses is accepted")
	}
}

// Two names of an object clash if, and only if, strings.EqualFold takes them for
// the same.
func TestClashIsEqualFold(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		letters := rapid.StringOfN(rapid.SampledFrom([]rune("sSſkKKaAäÄıIiİß")), 1, 3, -1)
		first, second := letters.Draw(t, "first"), letters.Draw(t, "second")
		if first == second {
			return
		}
		object, err := json.Marshal(map[string]any{first: []any{1}, second: map[string]any{"x": 1}})
		if err != nil {
			t.Fatal(err)
		}
		_, found, err := strictjson.Clash(object)
		if err != nil || found != strings.EqualFold(first, second) {
			t.Errorf("%s: got %v, %v", object, found, err)
		}
	})
}
