package db_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/db"
	"github.com/countersign/countersign/db/dbtest"
)

// TestMissingRows shows that a request of which a part is lost is told from one
// that there never was.
func TestMissingRows(t *testing.T) {
	t.Parallel()
	for _, table := range []string{"payloads", "executions"} {
		folder := newFolder(t)
		d := dbtest.OpenIn(t, folder, db.Options{})
		service, err := newService(d)
		if err != nil {
			t.Fatal(err)
		}
		r, err := service.Request(t.Context(), agent, proposal())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := service.Decide(t.Context(), person, approval.Ballot{
			Request: r.ID, Version: r.Version, Digest: r.Digest, Verdict: approval.Approve, Surface: approval.Slack,
		}); err != nil {
			t.Fatal(err)
		}
		if _, err := service.Claim(t.Context(), agent, r.ID); err != nil {
			t.Fatal(err)
		}
		if _, err := rawOpen(t, folder).Exec("DELETE FROM " + table); err != nil {
			t.Fatal(err)
		}
		damaged := func(doing string, err error) {
			t.Helper()
			if !errors.Is(err, db.ErrCorrupt) || errors.Is(err, approval.ErrNotFound) || errors.Is(err, approval.ErrUnavailable) ||
				!strings.Contains(err.Error(), string(r.ID)) {
				t.Errorf("%s without its row in %s: got %v, want ErrCorrupt that names %s", doing, table, err, r.ID)
			}
		}
		got, err := d.Request(t.Context(), r.ID)
		damaged("loading", err)
		if got != nil {
			t.Errorf("loading without its row in %s: got %+v", table, got)
		}
		_, err = d.Update(t.Context(), r.ID, func(*approval.Request) error {
			t.Errorf("a change began without the row in %s", table)
			return nil
		})
		damaged("changing", err)
		_, _, _, err = d.LeaseNotice(t.Context(), "slack:C1", r.UpdatedAt, r.UpdatedAt)
		damaged("delivering", err)
	}
}

// A request that can't be read doesn't keep those behind it from their turn.
func TestDamagedRequestHoldsUpNoNotice(t *testing.T) {
	t.Parallel()
	folder := newFolder(t)
	d := dbtest.OpenIn(t, folder, db.Options{})
	service, err := newService(d)
	if err != nil {
		t.Fatal(err)
	}
	var asked []*approval.Request
	for range 2 {
		r, err := service.Request(t.Context(), agent, proposal())
		if err != nil {
			t.Fatal(err)
		}
		asked = append(asked, r)
	}
	if _, err := rawOpen(t, folder).Exec("DELETE FROM payloads WHERE request_id = ?", string(asked[0].ID)); err != nil {
		t.Fatal(err)
	}
	now := asked[1].UpdatedAt
	if _, _, _, err := d.LeaseNotice(t.Context(), "slack:C1", now, now.Add(time.Minute)); !errors.Is(err, db.ErrCorrupt) {
		t.Errorf("the damaged one: %v", err)
	}
	_, r, ok, err := d.LeaseNotice(t.Context(), "slack:C1", now, now.Add(time.Minute))
	if err != nil || !ok || r.ID != asked[1].ID {
		t.Errorf("the one behind it: %v, %v (%v)", r, ok, err)
	}
}
