package db_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/db"
	"github.com/countersign/countersign/db/dbtest"
)

// TestMovedFile shows that nothing is acknowledged that goes to a file which
// isn't where it will be looked for.
func TestMovedFile(t *testing.T) {
	t.Parallel()
	folder := newFolder(t)
	d := dbtest.OpenIn(t, folder, db.Options{})
	path, aside := filepath.Join(folder, "countersign.db"), filepath.Join(folder, "aside")
	refused := func(why string) {
		t.Helper()
		if err := d.Insert(t.Context(), request(1, 10), nil, admitted); !errors.Is(err, db.ErrDisk) || !errors.Is(err, approval.ErrUnavailable) {
			t.Errorf("%s: got %v, want ErrDisk and ErrUnavailable", why, err)
		}
	}
	if err := os.Rename(path, aside); err != nil {
		t.Skipf("an open file can't be moved here: %v", err)
	}
	refused("moved")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	refused("replaced")
	if err := os.Rename(aside, path); err != nil {
		t.Fatal(err)
	}
	if err := d.Insert(t.Context(), request(2, 10), nil, admitted); err != nil {
		t.Errorf("put back: %v", err)
	}
	if err := os.RemoveAll(folder); err != nil {
		t.Fatal(err)
	}
	refused("removed")
}
