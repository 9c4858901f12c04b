package db_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/countersign/countersign/db"
)

func TestKey(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(t.TempDir(), "data")
	// Processes that start at the same time get the same one.
	keys := make([][]byte, 8)
	var work sync.WaitGroup
	for i := range keys {
		work.Go(func() {
			var err error
			if keys[i], err = db.Key(folder); err != nil {
				t.Error(err)
			}
		})
	}
	work.Wait()
	for _, key := range keys {
		if len(key) != 32 || !bytes.Equal(key, keys[0]) || bytes.Equal(key, make([]byte, 32)) {
			t.Fatalf("got the keys %x", keys)
		}
	}
	path := filepath.Join(folder, "state.key")
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("got %v, %v", info.Mode(), err)
	}
	if left, err := filepath.Glob(filepath.Join(folder, "*.*.*")); err != nil || len(left) > 0 {
		t.Errorf("left over: %v, %v", left, err)
	}
	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Key(folder); !errors.Is(err, db.ErrExposed) {
		t.Errorf("a key that others may read: %v", err)
	}
	if err := os.WriteFile(path, []byte("short"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Key(folder); err == nil {
		t.Error("a short key is accepted")
	}
}
