package db_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/db"
	"github.com/countersign/countersign/db/dbtest"
)

// work makes and decides requests from several goroutines, and prints what was
// acknowledged, until it is killed.
func work(folder string) error {
	d, err := db.Open(context.Background(), folder, db.Options{})
	if err != nil {
		return err
	}
	service, err := newService(d)
	if err != nil {
		return err
	}
	failed := make(chan error)
	for range 8 {
		go func() { failed <- workOn(service) }()
	}
	return <-failed
}

func workOn(service *approval.Service) error {
	ctx := context.Background()
	for i := 0; ; i++ {
		r, err := service.Request(ctx, agent, proposal())
		if err != nil {
			return err
		}
		acknowledge("pending", r)
		verdict := []approval.Verdict{approval.Approve, approval.Reject}[i%2]
		r, err = service.Decide(ctx, person, approval.Ballot{
			Request: r.ID, Version: r.Version, Digest: r.Digest, Verdict: verdict, Surface: approval.Slack,
		})
		if err != nil {
			return err
		}
		acknowledge(string(r.Status), r)
		if r.Status != approval.Approved {
			continue
		}
		if r, err = service.Claim(ctx, agent, r.ID); err != nil {
			return err
		}
		acknowledge("applied", r)
	}
}

// acknowledge prints one line in one write, so that a kill leaves whole lines.
func acknowledge(what string, r *approval.Request) {
	fmt.Fprintf(os.Stdout, "%s %s\n", what, r.ID)
}

// TestKilled shows that what was acknowledged is there after a kill, and whole.
// It doesn't show that it would be after a loss of power: what was written
// outlives a process even if it was never synced. That the disk is asked to is
// TestSettings.
func TestKilled(t *testing.T) {
	t.Parallel()
	folder := newFolder(t)
	status := make(map[approval.ID]approval.Status)
	for range 10 {
		c := startChild(t, "work", folder)
		kill := rand.IntN(600)
		for lines := 0; c.out.Scan(); lines++ {
			what, id, ok := strings.Cut(c.out.Text(), " ")
			if !ok {
				t.Fatalf("the child said %q", c.out.Text())
			}
			status[approval.ID(id)] = approval.Status(what)
			if lines == kill {
				if err := c.Process.Kill(); err != nil {
					t.Fatal(err)
				}
			}
		}
		_ = c.Wait() // reports the kill
		if c.err.Len() > 0 {
			t.Fatalf("the child failed: %s", c.err)
		}
	}
	d := dbtest.OpenIn(t, folder, db.Options{})
	checkFile(t, d, folder)
	checkAcknowledged(t, d, status)
	if _, due, err := d.NextNotice(t.Context(), "slack:C1", time.Now()); err != nil || !due {
		t.Errorf("nothing is due (%v)", err)
	}
}

// checkAcknowledged checks that each request is where it was acknowledged to
// be, or further: what the kill cut off may have been stored.
func checkAcknowledged(t *testing.T, d *db.DB, status map[approval.ID]approval.Status) {
	t.Helper()
	further := map[approval.Status][]approval.Status{
		approval.Pending:  {approval.Pending, approval.Approved, approval.Rejected, approval.Applied},
		approval.Approved: {approval.Approved, approval.Applied},
		approval.Rejected: {approval.Rejected},
		approval.Applied:  {approval.Applied},
	}
	counts := make(map[approval.Status]int)
	for id, acknowledged := range status {
		counts[acknowledged]++
		r, err := d.Request(t.Context(), id)
		if err != nil {
			t.Errorf("%s was acknowledged as %s: %v", id, acknowledged, err)
			continue
		}
		if !slices.Contains(further[acknowledged], r.Status) {
			t.Errorf("%s was acknowledged as %s and is %s", id, acknowledged, r.Status)
		}
		if (r.Status == approval.Pending) != (len(r.Decisions) == 0) || (r.Status == approval.Applied) != (r.Execution != nil) {
			t.Errorf("%s is %s with %d decisions and the execution %v", id, r.Status, len(r.Decisions), r.Execution)
		}
	}
	t.Logf("acknowledged: %v", counts)
	for _, want := range []approval.Status{approval.Applied, approval.Rejected} {
		if counts[want] == 0 {
			t.Errorf("nothing was acknowledged as %s, so nothing was tested", want)
		}
	}
}
