// Package dbtest is test support for what stores: a database on a folder that
// goes away with the test, and one suite that every store must pass.
package dbtest

import (
	"path/filepath"
	"testing"

	"github.com/countersign/countersign/db"
)

// Open opens a new database that is closed and removed when the test ends.
func Open(t testing.TB) *db.DB {
	t.Helper()
	return OpenIn(t, filepath.Join(t.TempDir(), "data"), db.Options{})
}

// OpenIn opens the database in a folder and closes it when the test ends.
// Closing it before is fine.
func OpenIn(t testing.TB, folder string, options db.Options) *db.DB {
	t.Helper()
	d, err := db.Open(t.Context(), folder, options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}
