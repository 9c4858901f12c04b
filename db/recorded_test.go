package db_test

import (
	"crypto/sha256"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/countersign/countersign/db"
	"github.com/countersign/countersign/db/dbtest"
)

// What was asked can be read while a server has the folder, and without one.
func TestRecordedReadsBesideAServer(t *testing.T) {
	t.Parallel()
	folder := newFolder(t)
	if _, err := db.Recorded(t.Context(), folder, 10); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without a folder: %v", err)
	}
	if _, err := os.Stat(folder); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("looking made the folder (%v)", err)
	}
	lock, err := db.LockFolder(folder, "serve")
	if err != nil {
		t.Fatal(err)
	}
	d := dbtest.OpenIn(t, folder, db.Options{})
	if got, err := db.Recorded(t.Context(), folder, 10); err != nil || len(got) != 0 {
		t.Errorf("before anything was asked: %v (%v)", got, err)
	}
	for i := range 3 {
		if err := d.Insert(t.Context(), request(i, 10), nil, nil); err != nil {
			t.Fatal(err)
		}
	}
	check := func(when string) {
		t.Helper()
		got, err := db.Recorded(t.Context(), folder, 2)
		if err != nil || len(got) != 2 || got[0].ID != request(2, 0).ID || got[1].ID != request(1, 0).ID {
			t.Errorf("%s: got %v (%v), want the last two", when, got, err)
		}
	}
	check("beside a server")
	// Reading in the middle of a change waits for nothing.
	release := hold(t, d)
	check("during a change")
	release()
	if err := errors.Join(d.Close(), lock.Unlock()); err != nil {
		t.Fatal(err)
	}
	before := contents(t, folder)
	check("without a server")
	if contents(t, folder) != before {
		t.Error("looking changed the file")
	}
	// A server that starts after it finds all as it was.
	again := dbtest.OpenIn(t, folder, db.Options{})
	if err := again.Insert(t.Context(), request(3, 10), nil, nil); err != nil {
		t.Error(err)
	}
}

// contents is a hash of the database's main file.
func contents(t *testing.T, folder string) [sha256.Size]byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(folder, "countersign.db"))
	if err != nil {
		t.Fatal(err)
	}
	return sha256.Sum256(data)
}

// What only looks at the file leaves the journal of a process that was killed
// to the server that comes next.
func TestRecordedLeavesTheJournal(t *testing.T) {
	t.Parallel()
	folder := newFolder(t)
	d := dbtest.OpenIn(t, folder, db.Options{})
	if err := d.Insert(t.Context(), request(1, 10), nil, nil); err != nil {
		t.Fatal(err)
	}
	killed := newFolder(t)
	if err := os.CopyFS(killed, os.DirFS(folder)); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"countersign.db", "countersign.db-wal"} {
		if err := os.Chmod(filepath.Join(killed, name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Chmod(killed, 0o700), os.Remove(filepath.Join(killed, "countersign.db-shm"))); err != nil {
		t.Fatal(err)
	}
	before := contents(t, killed)
	got, err := db.Recorded(t.Context(), killed, 10)
	if err != nil || len(got) != 1 {
		t.Errorf("got %v (%v), want what is only in the journal", got, err)
	}
	if contents(t, killed) != before {
		t.Error("looking moved the journal into the file")
	}
	if d := dbtest.OpenIn(t, killed, db.Options{}); d == nil {
		t.Error("it can't be opened")
	} else if _, err := d.Request(t.Context(), request(1, 0).ID); err != nil {
		t.Error(err)
	}
}
