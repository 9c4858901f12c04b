package jsoninput_test

import (
	"bytes"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/countersign/countersign/internal/jsoninput"
	"github.com/countersign/countersign/internal/strictjson"
)

// everything is what a test's object may have.
type everything struct {
	Name       string
	Arguments  string
	Count      int64 // -1 if it isn't there
	Within     time.Duration
	Reversible string
}

func read(raw string) (everything, error) {
	o := jsoninput.Read([]byte(raw), "the test", "name", "arguments", "count", "within", "reversible")
	e := everything{
		Name:      o.RequiredText("name", 5, "give one"),
		Arguments: string(o.Object("arguments", "give them")),
		Count:     -1,
		Within:    o.Seconds("within", time.Minute, time.Hour),
	}
	if count := o.Count("count"); count != nil {
		e.Count = *count
	}
	if reversible := o.Boolean("reversible"); reversible != nil {
		e.Reversible = map[bool]string{true: "yes", false: "no"}[*reversible]
	}
	return e, o.Err()
}

func TestRead(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]everything{
		`{"name":"a","arguments":{}}`: {"a", "{}", -1, 0, ""},
		` {"arguments": { "b" : [1e400, 0.10, 9007199254740993] } , "name":"\u0061"}`:     {"a", `{ "b" : [1e400, 0.10, 9007199254740993] }`, -1, 0, ""},
		`{"name":"a","arguments":{},"count":0,"within":90.0,"reversible":false}`:          {"a", "{}", 0, 90 * time.Second, "no"},
		`{"name":"a","arguments":{},"count":9.2e18,"within":0,"reversible":true}`:         {"a", "{}", 9200000000000000000, time.Minute, "yes"},
		`{"name":"","arguments":{},"count":9223372036854775807,"within":-1e400}`:          {"", "{}", math.MaxInt64, time.Minute, ""},
		`{"name":"too long is for the caller to say","arguments":{},"within":9e999}`:      {"too long is for the caller to say", "{}", -1, time.Hour, ""},
		"{\"name\":\"\\u202e\",\"arguments\":{\"\\u202e\":\"\u202e\"},\"within\":3601}\n": {"\u202e", "{\"\\u202e\":\"\u202e\"}", -1, time.Hour, ""},
	} {
		got, err := read(raw)
		if err != nil {
			t.Errorf("%s: %v", raw, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", raw, diff)
		}
	}
}

func TestRefused(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]jsoninput.Error{
		``:                                       {"name", "is missing; give one"},
		` `:                                      {"name", "is missing; give one"},
		`{}`:                                     {"name", "is missing; give one"},
		`{"name":"a"}`:                           {"arguments", "is missing; give them"},
		`[]`:                                     {"", "is an array; an object with name, arguments, count, within, reversible is accepted"},
		` "{}"`:                                  {"", "is a string; an object with name, arguments, count, within, reversible is accepted"},
		`{} {}`:                                  {"", "is not strict JSON: line 1, column 4: something follows after the end of the value"},
		`{"name":"a","name":"a"}`:                {"name", `is not strict JSON: line 1, column 13 (at "/name"): duplicate key "name"`},
		`{"other":{"b":1,"b":2}}`:                {"", `is not strict JSON: line 1, column 17 (at "/other/b"): duplicate key "b"`},
		`{"Name":"a"}`:                           {"Name", "is not an input of the test; accepted are name, arguments, count, within, reversible"},
		`{"":1}`:                                 {`""`, "is not an input of the test; accepted are name, arguments, count, within, reversible"},
		"{\"\u202ename\":1}":                     {`"\u202ename"`, "is not an input of the test; accepted are name, arguments, count, within, reversible"},
		`{"name":null}`:                          {"name", "is null; a string of at most 5 characters is accepted"},
		`{"name":{}}`:                            {"name", "is an object; a string of at most 5 characters is accepted"},
		`{"name":"a","arguments":"{}"`:           {"", "is not strict JSON: line 1, column 29: the text ends inside the value"},
		`{"name":"a","arguments":"{}"}`:          {"arguments", "is a string; a JSON object is accepted, as itself and not as text that holds it"},
		`{"name":"a","arguments":null}`:          {"arguments", "is null; a JSON object is accepted, as itself and not as text that holds it"},
		`{"name":"a","arguments":{},"count":-1}`: {"count", "is -1; a whole number from 0 to 9223372036854775807 is accepted"},
		`{"name":"a","arguments":{},"count":1e99}`:                                          {"count", "is 1e99; a whole number from 0 to 9223372036854775807 is accepted"},
		`{"name":"a","arguments":{},"count":"` + strings.Repeat("9", 50) + `"}`:             {"count", `is "\"` + strings.Repeat("9", 39) + `" (cut); a whole number from 0 to 9223372036854775807 is accepted`},
		`{"name":"a","arguments":{},"within":1.5}`:                                          {"within", "is 1.5; a whole number of seconds from 60 to 3600 is accepted"},
		`{"name":"a","arguments":{},"within":null}`:                                         {"within", "is null; a whole number of seconds from 60 to 3600 is accepted"},
		`{"name":"a","arguments":{},"reversible":0}`:                                        {"reversible", "is 0; true and false are accepted"},
		`{"name":7,"arguments":7,"count":"7","within":"7","reversible":"the first counts"}`: {"name", "is a number; a string of at most 5 characters is accepted"},
	} {
		got, err := read(raw)
		refused, ok := errors.AsType[*jsoninput.Error](err)
		if !ok {
			t.Errorf("%s: accepted as %+v (%v)", raw, got, err)
			continue
		}
		if diff := cmp.Diff(want, *refused); diff != "" {
			t.Errorf("%s (-want +got):\n%s", raw, diff)
		}
	}
}

// Whatever is read ends in values that are parts of it, or in an error that may
// be shown.
func FuzzRead(f *testing.F) {
	f.Add([]byte(`{"name":"a","arguments":{"b":9007199254740993},"count":3,"within":60,"reversible":true}`))
	f.Add([]byte(`{"name":"\ud83d\ude00","arguments": { "b" : [1e400, 0.10] } }`))
	f.Add([]byte("{\"arguments\":{\"a\":1,\"\\u0061\":2}}"))
	f.Add([]byte(`{"count":1e-5}`))
	f.Add([]byte("[]"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		got, err := read(string(raw))
		if err == nil {
			if strictjson.Check(raw) != nil {
				t.Errorf("accepted %q, which isn't strict", raw)
			}
			if !bytes.Contains(raw, []byte(got.Arguments)) || got.Arguments[0] != '{' || got.Count < -1 || got.Within < 0 || got.Within > time.Hour {
				t.Errorf("read %q as %+v", raw, got)
			}
			return
		}
		if _, ok := errors.AsType[*jsoninput.Error](err); !ok {
			t.Fatalf("another error: %#v", err)
		}
		for _, c := range err.Error() {
			if c < ' ' || c > '~' {
				t.Fatalf("the error holds %q: %q", c, err)
			}
		}
		if len(err.Error()) > 1000 {
			t.Fatalf("the error has %d bytes", len(err.Error()))
		}
	})
}
