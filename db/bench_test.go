package db_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/db"
	"github.com/countersign/countersign/db/dbtest"
)

// measured is a service on a new file, and a function that reports how many
// changes shared one transaction, which is one sync of the disk.
func measured(b *testing.B) (*approval.Service, *db.DB, func()) {
	b.Helper()
	var commits atomic.Int64
	d := dbtest.OpenIn(b, newFolder(b), db.Options{Trace: func(statement string) {
		if statement == "COMMIT" {
			commits.Add(1)
		}
	}})
	service, err := newService(d)
	if err != nil {
		b.Fatal(err)
	}
	return service, d, func() {
		b.ReportMetric(float64(b.N)/float64(max(commits.Load(), 1)), "changes/commit")
		b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "changes/s")
	}
}

// each runs operation b.N times, one after the other or from 64 goroutines.
func each(b *testing.B, parallel bool, operation func(i int) error) {
	b.Helper()
	b.ResetTimer()
	if !parallel {
		for i := range b.N {
			if err := operation(i); err != nil {
				b.Fatal(err)
			}
		}
		return
	}
	var next atomic.Int64
	done := make(chan error)
	const workers = 64
	for range workers {
		go func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= b.N {
					done <- nil
					return
				}
				if err := operation(i); err != nil {
					done <- err
					return
				}
			}
		}()
	}
	for range workers {
		if err := <-done; err != nil {
			b.Error(err)
		}
	}
}

func BenchmarkRequest(b *testing.B) {
	for _, parallel := range []bool{false, true} {
		b.Run(name(parallel), func(b *testing.B) {
			service, _, report := measured(b)
			each(b, parallel, func(int) error {
				_, err := service.Request(context.Background(), agent, proposal())
				return err
			})
			report()
		})
	}
}

func BenchmarkDecide(b *testing.B) {
	for _, parallel := range []bool{false, true} {
		b.Run(name(parallel), func(b *testing.B) {
			prepared, d, _ := measured(b)
			requests := make([]*approval.Request, b.N)
			each(b, true, func(i int) error {
				var err error
				requests[i], err = prepared.Request(context.Background(), agent, proposal())
				return err
			})
			service, err := newService(d)
			if err != nil {
				b.Fatal(err)
			}
			each(b, parallel, func(i int) error {
				r := requests[i]
				_, err := service.Decide(context.Background(), person, approval.Ballot{
					Request: r.ID, Version: r.Version, Digest: r.Digest, Verdict: approval.Approve, Surface: approval.Slack,
				})
				return err
			})
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "changes/s")
		})
	}
}

func BenchmarkStatus(b *testing.B) {
	service, _, _ := measured(b)
	r, err := service.Request(context.Background(), agent, proposal())
	if err != nil {
		b.Fatal(err)
	}
	each(b, false, func(int) error {
		_, err := service.Status(context.Background(), agent, r.ID)
		return err
	})
}

func name(parallel bool) string {
	if parallel {
		return "64 at once"
	}
	return "one by one"
}
