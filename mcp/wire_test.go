package mcp_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/approval/approvaltest"
	"github.com/countersign/countersign/internal/strictjson"
)

var update = flag.Bool("update", false, "write the golden files anew")

// exactPayload has what no encoder writes and no float64 holds.
const exactPayload = `{ "id": 9007199254740993, "limit":1e400, "rate": 0.10,	"neg":-0.0, "where": "a < b && c > d", "\u0061": "\u00e9 é ` + "\u2028" + `", "list": [ ] }`

// The results on the wire have exactly the seed's members, in its order, in
// structured content and in the first text alike; the payload comes back byte
// for byte in the text and with each number as written in both.
func TestWireShapes(t *testing.T) {
	t.Parallel()
	for kind, reach := range rawKinds {
		for _, version := range []string{"2024-11-05", legacy, modern} {
			t.Run(kind+"/"+version, func(t *testing.T) {
				t.Parallel()
				f := approvaltest.New(t)
				client := reach(t, f, newLocal(t, f, 0), version)

				result := client.call("request_approval", `{"payload":`+exactPayload+`,"purpose":"Raise a limit"}`)
				id := idIn(t, result.text(t, 0))
				checkResult(t, version, result,
					`{"elicitationId":"`+string(id)+`","status":"pending","reviewUrl":"`+reviewBase+string(id)+`","expiresAt":"2026-01-02T04:04:05.678Z","elicitationDelivered":false}`)
				stored, err := f.Service.Status(t.Context(), f.Agent, id)
				if err != nil {
					t.Fatal(err)
				}
				if got, want := string(stored.Payload), exactPayload; got != want {
					t.Errorf("stored payload:\n got %q\nwant %q", got, want)
				}

				checkResult(t, version, client.call("check_status", byID(id)), `{"status":"pending"}`)
				decide(t, f, id, approval.Approve, "")
				checkResult(t, version, client.call("await_approval", byID(id)), `{"status":"approved"}`)

				applied := client.call("apply", byID(id))
				if got, want := applied.text(t, 0), `{"status":"applied","payload":`+exactPayload+`}`; got != want {
					t.Errorf("apply's text:\n got %q\nwant %q", got, want)
				}
				checkSameValue(t, applied.structured(t), applied.text(t, 0))
				for _, digits := range []string{"9007199254740993", "1e400", "0.10", "-0.0"} {
					if !strings.Contains(applied.structured(t), ":"+digits) {
						t.Errorf("structured content lost %s: %s", digits, applied.structured(t))
					}
				}
				checkKeys(t, version, applied)
				checkResult(t, version, client.call("check_status", byID(id)), `{"status":"applied"}`)

				for verdict, want := range map[approval.Verdict]string{approval.Reject: `{"status":"rejected"}`, "": `{"status":"expired"}`} {
					id := idIn(t, client.call("request_approval", `{"purpose":"p","payload":{}}`).text(t, 0))
					if verdict != "" {
						decide(t, f, id, verdict, "no")
					} else {
						f.Clock.Advance(approval.MaxTTL)
					}
					checkResult(t, version, client.call("await_approval", byID(id)), want)
					checkResult(t, version, client.call("check_status", byID(id)), want)
				}
			})
		}
	}
}

// checkResult checks a result of which text and structured content are want.
func checkResult(t *testing.T, version string, result rawResult, want string) {
	t.Helper()
	if diff := cmp.Diff(want, result.text(t, 0)); diff != "" {
		t.Errorf("text (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want, result.structured(t)); diff != "" {
		t.Errorf("structured content (-want +got):\n%s", diff)
	}
	checkKeys(t, version, result)
}

// checkKeys checks that a result has what MCP names and nothing else.
func checkKeys(t *testing.T, version string, result rawResult) {
	t.Helper()
	want := []string{"content", "structuredContent"}
	if version >= modern {
		want = []string{"_meta", "content", "resultType", "structuredContent"}
	}
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(result.fields(t)))); diff != "" {
		t.Errorf("members of the result (-want +got):\n%s", diff)
	}
}

func checkSameValue(t *testing.T, a, b string) {
	t.Helper()
	canonicalA, errA := strictjson.Canonical([]byte(a))
	canonicalB, errB := strictjson.Canonical([]byte(b))
	if errA != nil || errB != nil || !bytes.Equal(canonicalA, canonicalB) {
		t.Errorf("not the same value (%v, %v):\n%s\n%s", errA, errB, a, b)
	}
}

// The declared tools are what clients and models see; a change of them is a
// change of the product.
func TestDeclaredTools(t *testing.T) {
	t.Parallel()
	f := approvaltest.New(t)
	client := rawKinds["stdio"](t, f, newLocal(t, f, 0), legacy)
	var response struct{ Result json.RawMessage }
	if err := json.Unmarshal(client.rpc("tools/list", "{}"), &response); err != nil {
		t.Fatal(err)
	}
	var got bytes.Buffer
	if err := json.Indent(&got, response.Result, "", "  "); err != nil {
		t.Fatal(err)
	}
	got.WriteByte('\n')
	golden := filepath.Join("testdata", "tools.json")
	if *update {
		if err := os.WriteFile(golden, got.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got.String()); diff != "" {
		t.Errorf("tools/list (-want +got; -update writes it):\n%s", diff)
	}
}
