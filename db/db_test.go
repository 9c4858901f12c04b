package db_test

import (
	"path/filepath"
	"testing"

	"github.com/countersign/countersign/db"
	"github.com/countersign/countersign/db/dbtest"
)

func TestStore(t *testing.T) {
	t.Parallel()
	dbtest.Exercise(t, func(t testing.TB, options db.Options) dbtest.Store {
		return dbtest.OpenIn(t, filepath.Join(t.TempDir(), "data"), options)
	})
}
