package gateway

import (
	"encoding/json"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// BenchmarkAllowedCall makes the same call directly and through the gateway, in
// turn, so that both see the same machine. Besides the time through the gateway,
// it reports the time of a direct one, and how many times as long the gateway
// takes: it rules, records and reports each call, with two durable writes.
func BenchmarkAllowedCall(b *testing.B) {
	for _, version := range []string{legacy, modern} {
		b.Run(version, func(b *testing.B) {
			w := newWorld(b, worldOptions{servers: []string{"free"}, version: version})
			through := connect(b, w.listen(b).transport(b, w.Agent.Name), version, nil)
			direct := connect(b, &sdk.StreamableClientTransport{Endpoint: w.wire.URL, MaxRetries: -1}, version, nil)
			call := func(session *sdk.ClientSession) time.Duration {
				began := time.Now()
				result, err := session.CallTool(b.Context(), &sdk.CallToolParams{Name: "echo", Arguments: json.RawMessage(`{"id":9007199254740993,"where":"production"}`)})
				if err != nil || result.IsError {
					b.Fatalf("%+v (%v)", result, err)
				}
				return time.Since(began)
			}
			call(through)
			call(direct)
			var gated, plain time.Duration
			b.ResetTimer()
			for range b.N {
				gated += call(through)
				b.StopTimer()
				plain += call(direct)
				b.StartTimer()
			}
			b.ReportMetric(float64(plain.Nanoseconds())/float64(b.N), "direct-ns/op")
			b.ReportMetric(float64(gated)/float64(plain), "times-direct")
		})
	}
}
