package mcp_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/approval/approvaltest"
	"github.com/countersign/countersign/mcp"
)

// reportTimes reports the middle and the worst hundredth of what was measured.
func reportTimes(b *testing.B, times []time.Duration) {
	b.Helper()
	slices.Sort(times)
	b.ReportMetric(float64(times[len(times)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(times[len(times)*99/100].Microseconds()), "p99-µs")
}

// BenchmarkDecision is how long a decision takes by itself: most of what the wakes
// below take.
func BenchmarkDecision(b *testing.B) {
	f := approvaltest.New(b)
	var times []time.Duration
	for b.Loop() {
		b.StopTimer()
		r := f.Propose(b)
		b.StartTimer()
		began := time.Now()
		f.Decide(b, approvaltest.Alice, r, approval.Approve)
		times = append(times, time.Since(began))
	}
	reportTimes(b, times)
}

// BenchmarkClickToWake is from the moment a decision comes in until the waiting
// agent has it: checked, stored durably, and told.
func BenchmarkClickToWake(b *testing.B) {
	b.Run("in process", func(b *testing.B) {
		f := approvaltest.New(b)
		local := newLocal(b, f, mcp.MaxAwaitBound)
		clickToWake(b, f, func(id approval.ID) error {
			answer, err := local.Await(b.Context(), f.Agent, id, nil)
			if err == nil && answer.Status != approval.Approved {
				err = fmt.Errorf("the answer is %s", answer.Status)
			}
			return err
		})
	})
	for _, version := range []string{legacy, modern} {
		b.Run("HTTP "+version, func(b *testing.B) {
			f := approvaltest.New(b)
			s := serveHTTP(b, f, newLocal(b, f, mcp.MaxAwaitBound), mcp.HandlerOptions{})
			session := connect(b, s.transport(b, s.token(b, f.Agent.Name)), version, nil)
			clickToWake(b, f, func(id approval.ID) error {
				got := <-await(b.Context(), session, id, nil)
				if got.err == nil && got.status != `{"status":"approved"}` {
					return fmt.Errorf("the answer is %s", got.status)
				}
				return got.err
			})
		})
	}
}

func clickToWake(b *testing.B, f *approvaltest.Fixture, wait func(approval.ID) error) {
	b.Helper()
	var times []time.Duration
	for b.Loop() {
		b.StopTimer()
		r := f.Propose(b)
		woken := make(chan error, 1)
		var at time.Time
		go func() {
			err := wait(r.ID)
			at = time.Now()
			woken <- err
		}()
		time.Sleep(3 * time.Millisecond) // until it waits
		b.StartTimer()
		began := time.Now()
		f.Decide(b, approvaltest.Alice, r, approval.Approve)
		if err := <-woken; err != nil {
			b.Fatal(err)
		}
		times = append(times, at.Sub(began))
	}
	reportTimes(b, times)
}

// BenchmarkCreateAndDecide is a request over HTTP and its decision, by many
// agents at once.
func BenchmarkCreateAndDecide(b *testing.B) {
	for _, version := range []string{legacy, modern} {
		b.Run(version, func(b *testing.B) {
			f := approvaltest.New(b)
			s := serveHTTP(b, f, newLocal(b, f, 0), mcp.HandlerOptions{})
			token := s.token(b, f.Agent.Name)
			b.SetParallelism(16)
			b.RunParallel(func(pb *testing.PB) {
				session := connect(b, s.transport(b, token), version, nil)
				for pb.Next() {
					result, err := session.CallTool(b.Context(), &sdk.CallToolParams{Name: "request_approval", Arguments: map[string]any{
						"purpose": "Delete 214 inactive customer records", "payload": map[string]any{"table": "customers"},
					}})
					if err != nil {
						b.Error(err)
						return
					}
					r, err := f.Service.Status(b.Context(), f.Agent, idIn(b, textOf(b, result, 0)))
					if err != nil {
						b.Error(err)
						return
					}
					f.Decide(b, approvaltest.Alice, r, approval.Approve)
				}
			})
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "requests/s")
		})
	}
}

// BenchmarkWaitingCalls is what a waiting call holds in the server. The clients
// are bare connections, so that little of what is measured is theirs.
func BenchmarkWaitingCalls(b *testing.B) {
	const held = 500
	for _, version := range []string{legacy, modern} {
		b.Run(version, func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				f := approvaltest.New(b)
				s := serveHTTP(b, f, newLocal(b, f, mcp.MaxAwaitBound), mcp.HandlerOptions{})
				token := s.token(b, f.Agent.Name)
				r := f.Propose(b)
				requests := make([]string, held)
				for i := range requests {
					requests[i] = rawWait(b, s, version, token, r.ID)
				}
				before, goroutines := inUse(), runtime.NumGoroutine()
				b.StartTimer()
				connections := make([]net.Conn, held)
				for i := range connections {
					connections[i] = holdCall(b, s, requests[i])
				}
				b.StopTimer()
				b.ReportMetric(float64(inUse()-before)/held/1024, "KiB/call")
				b.ReportMetric(float64(runtime.NumGoroutine()-goroutines)/held, "goroutines/call")
				for _, connection := range connections {
					_ = connection.Close()
				}
				b.StartTimer()
			}
		})
	}
}

// rawWait is the text of an HTTP request that waits, in a session of its own if
// the version has them.
func rawWait(b *testing.B, s *httpServer, version, token string, id approval.ID) string {
	b.Helper()
	var head strings.Builder
	for key, value := range eraHeaders(b, s, version, token) {
		fmt.Fprintf(&head, "%s: %s\r\n", key, value)
	}
	body := waitBody(version, id)
	return fmt.Sprintf("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\nContent-Length: %d\r\n%s\r\n%s", len(body), head.String(), body)
}

// holdCall sends a request and returns once its answer has begun, which is when
// it waits.
func holdCall(b *testing.B, s *httpServer, request string) net.Conn {
	b.Helper()
	connection, err := new(net.Dialer).DialContext(context.Background(), "tcp", s.Listener.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	if _, err := connection.Write([]byte(request)); err != nil {
		b.Fatal(err)
	}
	go func() {
		// Only the first line is read; the reader is garbage afterwards.
		if line, err := bufio.NewReaderSize(connection, 16).ReadString('\n'); err != nil || !strings.Contains(line, "200") {
			b.Errorf("the answer begins with %q (%v)", line, err)
		}
	}()
	return connection
}

// inUse is the memory of live objects and stacks, once what begins has begun.
func inUse() int64 {
	time.Sleep(time.Second)
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}
