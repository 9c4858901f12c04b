package mcp_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countersign/countersign/mcp"
)

func TestKeepAlive(t *testing.T) {
	t.Parallel()
	const comment = ": waiting\n\n"
	for name, test := range map[string]struct {
		contentType string
		run         func(mcp.KeepAlive)
		want        string
		status      int
	}{
		"nothing before a tool runs": {"text/event-stream", func(mcp.KeepAlive) {
			time.Sleep(time.Minute)
		}, "", 0},
		"a first comment soon, then every ten seconds": {"text/event-stream", func(k mcp.KeepAlive) {
			k.Waits()
			time.Sleep(20*time.Second + 260*time.Millisecond)
		}, comment + comment + comment, http.StatusOK},
		"none for a quick tool": {"text/event-stream", func(k mcp.KeepAlive) {
			k.Waits()
			time.Sleep(200 * time.Millisecond)
			k.Continues()
			time.Sleep(time.Minute)
		}, "", 0},
		"none in JSON": {"application/json", func(k mcp.KeepAlive) {
			k.Waits()
			time.Sleep(time.Minute)
			k.WriteHeader(http.StatusBadRequest)
			time.Sleep(time.Minute)
		}, "", http.StatusBadRequest},
		"only where the stream is silent": {"text/event-stream; charset=utf-8", func(k mcp.KeepAlive) {
			k.Waits()
			for range 5 {
				time.Sleep(9 * time.Second)
				_, _ = io.WriteString(k, "data: x\n\n")
			}
		}, comment + strings.Repeat("data: x\n\n", 5), http.StatusOK},
		"in a stream that began by itself": {"text/event-stream", func(k mcp.KeepAlive) {
			_, _ = io.WriteString(k, ": ok\n\n")
			_ = http.NewResponseController(k).Flush()
			time.Sleep(11 * time.Second)
		}, ": ok\n\n" + comment, http.StatusOK},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				recorder := httptest.NewRecorder()
				recorder.Code = 0
				k := mcp.NewKeepAlive(recorder)
				k.Header().Set("Content-Type", test.contentType)
				test.run(k)
				k.Close()
				time.Sleep(time.Minute) // nothing may come after Close
				if got := recorder.Body.String(); got != test.want || recorder.Code != test.status {
					t.Errorf("wrote %q with status %d, want %q with %d", got, recorder.Code, test.want, test.status)
				}
				if test.want != "" && !recorder.Flushed {
					t.Error("what was written was not flushed")
				}
			})
		})
	}
}
