package db_test

import (
	"errors"
	"testing"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/audit"
	"github.com/countersign/countersign/db"
	"github.com/countersign/countersign/db/dbtest"
	"github.com/countersign/countersign/policy"
)

func TestManyEvents(t *testing.T) {
	t.Parallel()
	folder := newFolder(t)
	d := dbtest.OpenIn(t, folder, db.Options{})
	const total = 2*db.EventPage + 1
	for i := range total {
		tok, hash := token(i)
		if err := d.InsertToken(t.Context(), tok, hash); err != nil {
			t.Fatal(err)
		}
		if n := int64(i + 1); n == db.EventPage || n == total {
			if got := checkFile(t, d, folder); got != n {
				t.Errorf("read %d events, want %d", got, n)
			}
		}
	}
	read := 0
	for range d.Events(t.Context()) {
		if read++; read == 3 {
			break
		}
	}
	if read != 3 {
		t.Errorf("read %d events after a break, want 3", read)
	}
}

// TestAlteredEvents alters the file behind the database's back.
func TestAlteredEvents(t *testing.T) {
	t.Parallel()
	for _, statement := range []string{
		"UPDATE events SET detail = x'7b7d' WHERE sequence = 3",
		"UPDATE events SET at = at + 1 WHERE sequence = 1",
		"UPDATE events SET hash = x'00' WHERE sequence = 2",
		"UPDATE events SET previous = zeroblob(31) WHERE sequence = 2",
		"DELETE FROM events WHERE sequence = 2",
		"DELETE FROM events WHERE sequence = 1",
		"UPDATE events SET sequence = sequence + 10 WHERE sequence > 2",
	} {
		folder := newFolder(t)
		d := dbtest.OpenIn(t, folder, db.Options{})
		for i := range 5 {
			tok, hash := token(i)
			if err := d.InsertToken(t.Context(), tok, hash); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := rawOpen(t, folder).Exec(statement); err != nil {
			t.Fatal(err)
		}
		if _, _, err := audit.Verify(d.Events(t.Context())); !errors.Is(err, audit.ErrBroken) {
			t.Errorf("%s: got %v, want ErrBroken", statement, err)
		}
	}
}

func TestEventsAfterClose(t *testing.T) {
	t.Parallel()
	d := dbtest.Open(t)
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if _, _, err := audit.Verify(d.Events(t.Context())); !errors.Is(err, approval.ErrUnavailable) {
		t.Errorf("got %v, want ErrUnavailable", err)
	}
}

// TestAnyText stores the text that PostgreSQL wouldn't.
func TestAnyText(t *testing.T) {
	t.Parallel()
	d := dbtest.Open(t)
	want := request(1, 10)
	want.Purpose = "a\x00b"
	want.Ruling.Rules = []policy.FiredRule{{ID: "r", Why: "\x00"}}
	if err := d.Insert(t.Context(), want, nil, admitted); err != nil {
		t.Fatal(err)
	}
	got, err := d.Request(t.Context(), want.ID)
	if err != nil {
		t.Fatal(err)
	}
	if got.Purpose != want.Purpose || got.Ruling.Rules[0].Why != "\x00" {
		t.Errorf("got %q and %q", got.Purpose, got.Ruling.Rules[0].Why)
	}
}
