package gateway

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/countersign/countersign/internal/strictjson"
)

func TestRawParams(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ params, meta, want string }{
		{``, ``, `{}`},
		{`null`, ``, `{}`},
		{`{}`, ``, `{}`},
		{`{}`, `t`, `{"_meta":{"progressToken":"t"}}`},
		{`{"z":1.0,"a":{"z":1,"a":2}}`, ``, `{"z":1.0,"a":{"z":1,"a":2}}`},
		{`{"_meta":null,"z":1}`, ``, `{"z":1}`},
		{`{"_meta":{"progressToken":7},"z":1}`, ``, `{"z":1}`},
		{`{"_meta":{"z":1.0,"progressToken":7,"io.modelcontextprotocol/x":1,"a":1},"z":1}`, `t`, `{"z":1,"_meta":{"z":1.0,"a":1,"progressToken":"t"}}`},
	} {
		p, err := newRawParams(json.RawMessage(test.params))
		if err != nil {
			t.Errorf("%s: %v", test.params, err)
			continue
		}
		if test.meta != "" {
			p.SetMeta(map[string]any{progressToken: test.meta})
		}
		if got, err := p.MarshalJSON(); string(got) != test.want || err != nil {
			t.Errorf("%s: %s (%v), want %s", test.params, got, err, test.want)
		}
	}
	for _, params := range []string{`7`, `[]`, `{"a":1,"a":2}`, `{"_meta":7}`, `{"_meta":[]}`, `{"a":"` + "\xff" + `"}`, `{} {}`, strings.Repeat(`{"a":`, 65) + "1" + strings.Repeat("}", 65)} {
		if _, err := newRawParams(json.RawMessage(params)); err == nil {
			t.Errorf("%s is taken", params)
		}
	}
}

func TestOwnless(t *testing.T) {
	t.Parallel()
	for result, want := range map[string]string{
		`{"z":1.0}`: `{"z":1.0}`,
		`{"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"x"}},"z":1.0,"a":1}`:        `{"z":1.0,"a":1}`,
		`{"_meta":{"io.modelcontextprotocol\/serverInfo":1,"z":1.0},"z":1.0}`:                `{"_meta":{"z":1.0},"z":1.0}`,
		`{"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"x"}}}`:                  `{"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"x"}}}`,
		`{"structuredContent":{"_meta":{"io.modelcontextprotocol/serverInfo":1},"n":1e400}}`: `{"structuredContent":{"_meta":{"io.modelcontextprotocol/serverInfo":1},"n":1e400}}`,
		`{"serverInfo":1,"serverInfo":2}`:                                                    `{"serverInfo":1,"serverInfo":2}`,
		`"serverInfo"`:                                                                       `"serverInfo"`,
		``:                                                                                   ``,
	} {
		if got := string(ownless(json.RawMessage(result))); got != want {
			t.Errorf("%s became %s, want %s", result, got, want)
		}
	}
}

func TestCarriedErrors(t *testing.T) {
	t.Parallel()
	for result, want := range map[string]string{
		`{"countersign/error":{"code":7,"message":"m","data":{"z":1e400}}}`: `m`,
		`{"countersign/error":7}`:              ``,
		`{"countersign/error":null}`:           ``,
		`{"a":{"countersign/error":{}}}`:       ``,
		`{}`:                                   ``,
		``:                                     ``,
		`{"countersign/err`:                    ``,
		`{"content":[],"countersign/error":1}`: ``,
	} {
		wire := carriedIn(json.RawMessage(result))
		if wire == nil && want != "" || wire != nil && wire.Message != want {
			t.Errorf("%s carries %v, want %q", result, wire, want)
		}
	}
}

func TestPageOf(t *testing.T) {
	t.Parallel()
	for result, want := range map[string]string{
		`{"tools":[{"a": 1.0},2],"nextCursor":"x"}`:    `[{"a": 1.0} 2] "x" <nil>`,
		`{"nextCursor":7,"other":[1],"tools":[1,2,3]}`: `[1 2] 7 <nil>`,
		`{"tools":[1],"tools":[2]}`:                    `[2]  <nil>`,
		`{"tools":null,"nextCursor":""}`:               `[]  <nil>`,
		`{"nextCursor":null}`:                          `[]  <nil>`,
		`{"Tools":[1]}`:                                `[]  <nil>`,
		`{"tools":[]}`:                                 `[]  <nil>`,
		`{"tools":{}}`:                                 `[]  is not an array`,
		`{"tools":7}`:                                  `[]  is not an array`,
		`[1]`:                                          `[]  is not in an object`,
		`7`:                                            `[]  is not in an object`,
		`{"tools":[1`:                                  `[]  is not JSON`,
		``:                                             `[]  is not in an object`,
	} {
		p, err := pageOf(json.RawMessage(result), "tools", 2)
		if got := fmt.Sprintf("%s %s %v", p.elements, p.cursor, err); got != want {
			t.Errorf("%s is %s, want %s", result, got, want)
		}
	}
}

// A page of many small things takes little more memory than it has itself. Not in
// parallel: what the whole process allocates is counted.
func TestManySmallElements(t *testing.T) {
	const size = 16 << 20
	result := json.RawMessage(`{"tools":[0` + strings.Repeat(",0", size/2) + `]}`)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := pageOf(result, "tools", maxListed+1); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > 10*size {
		t.Errorf("it took %d MiB", took>>20)
	}
}

// Whatever is strict JSON goes out with the same members in the same order.
func FuzzRawParams(f *testing.F) {
	for _, seed := range []string{exoticObject, exoticResult, `{"_meta":{"progressToken":1,"a":1.0},"a":[]}`, `{"a\u0000":1,"é":2,"":3}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, params []byte) {
		p, err := newRawParams(params)
		if err != nil {
			return
		}
		written, err := p.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		before := p.members
		after, err := strictjson.Members(written)
		if err != nil {
			t.Fatalf("%q became %q: %v", params, written, err)
		}
		at := 0
		for _, member := range before {
			if member.Name == metaName {
				continue
			}
			if at == len(after) || after[at].Name != member.Name || string(after[at].Value) != string(member.Value) {
				t.Fatalf("%q became %q", params, written)
			}
			at++
		}
		if rest := after[at:]; len(rest) > 1 || len(rest) == 1 && rest[0].Name != metaName {
			t.Fatalf("%q became %q", params, written)
		}
		again, err := newRawParams(written)
		if err != nil {
			t.Fatal(err)
		}
		if twice, err := again.MarshalJSON(); err != nil || string(twice) != string(written) {
			t.Fatalf("%q became %q, and that %q", params, written, twice)
		}
	})
}

// Renaming changes the name and nothing else.
func TestRenamed(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		definition := drawDefinition(t)
		name := rapid.String().Draw(t, "name")
		before, err := strictjson.Members([]byte(definition.write(t, false)))
		if err != nil {
			t.Fatal(err)
		}
		changed := renamed(object(before), name)
		after, err := strictjson.Members(changed)
		if err != nil {
			t.Fatal(err)
		}
		if got := text(after, "name"); got != name {
			t.Fatalf("named %q, want %q", got, name)
		}
		for i, member := range before {
			if member.Name != "name" && (after[i].Name != member.Name || string(after[i].Value) != string(member.Value)) {
				t.Fatalf("%s became %s", object(before), changed)
			}
		}
	})
}
