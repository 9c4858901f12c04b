package strictjson_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/countersign/countersign/internal/strictjson"
)

// payloadOf returns a payload of about the given size: an action on many rows
// whose keys aren't in canonical order.
func payloadOf(size int) []byte {
	var b bytes.Buffer
	b.WriteString(`{"table": "customers", "dry_run": false, "rows": [`)
	for row := 0; b.Len() < size-120; row++ {
		if row > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, `{"id": %d, "balance": -%d.50, "name": "Zo\u00eb Müller %d", "active": true, "tags": ["a", "b"]}`,
			9007199254740993+row, row, row)
	}
	b.WriteString(`]}`)
	return b.Bytes()
}

func BenchmarkCheckAndCanonical(b *testing.B) {
	for _, size := range []int{1 << 10, 100 << 10} {
		payload := payloadOf(size)
		b.Run(fmt.Sprintf("%dKB", size>>10), func(b *testing.B) {
			b.SetBytes(int64(len(payload)))
			b.ReportAllocs()
			for b.Loop() {
				if err := strictjson.Check(payload); err != nil {
					b.Fatal(err)
				}
				if _, err := strictjson.Canonical(payload); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
