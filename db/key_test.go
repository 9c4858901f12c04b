package db_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/countersign/countersign/db"
)

func TestKeyIsMadeOnce(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(t.TempDir(), "a", "b")
	// Processes that start at the same time get the same one.
	keys := make([][]byte, 64)
	start := make(chan struct{})
	var work sync.WaitGroup
	for i := range keys {
		work.Go(func() {
			<-start
			var err error
			if keys[i], err = db.Key(folder); err != nil {
				t.Error(err)
			}
		})
	}
	close(start)
	work.Wait()
	for _, key := range keys {
		if len(key) != 32 || !bytes.Equal(key, keys[0]) || bytes.Equal(key, make([]byte, 32)) {
			t.Fatalf("got the keys %x", keys)
		}
	}
	again, err := db.Key(folder)
	if err != nil || !bytes.Equal(again, keys[0]) {
		t.Errorf("later: %x, %v, want %x", again, err, keys[0])
	}
	elsewhere, err := db.Key(newFolder(t))
	if err != nil || bytes.Equal(elsewhere, keys[0]) {
		t.Errorf("another folder has the same key: %x, %v", elsewhere, err)
	}
	entries, err := os.ReadDir(folder)
	if err != nil || len(entries) != 1 || entries[0].Name() != "state.key" {
		t.Errorf("the folder has %v (%v), want the key alone", entries, err)
	}
}

func TestKeyIsForTheOwnerOnly(t *testing.T) {
	t.Parallel()
	skipModes(t)
	for _, test := range []struct {
		name, chmod string
		mode        os.FileMode
	}{
		{"", "chmod 0700", 0o750},
		{"state.key", "chmod 0600", 0o640},
		{"state.key", "chmod 0600", 0o604},
		{"state.key", "chmod 0600", 0o602},
	} {
		folder := newFolder(t)
		key, err := db.Key(folder)
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(folder, test.name)
		before, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if before.Mode().Perm()&0o077 != 0 {
			t.Errorf("%q is made with mode %04o", test.name, before.Mode().Perm())
		}
		if err := os.Chmod(path, test.mode); err != nil {
			t.Fatal(err)
		}
		exposed, err := db.Key(folder)
		if !errors.Is(err, db.ErrExposed) || !strings.Contains(err.Error(), test.chmod) || !strings.Contains(err.Error(), path) || exposed != nil {
			t.Errorf("%q with mode %04o: got %v, want ErrExposed that says %s", test.name, test.mode, err, test.chmod)
		}
		if err := os.Chmod(path, before.Mode()); err != nil {
			t.Fatal(err)
		}
		if again, err := db.Key(folder); err != nil || !bytes.Equal(again, key) {
			t.Errorf("%q with its mode restored: %x, %v, want %x", test.name, again, err, key)
		}
	}
}

// A key that isn't one is refused, not replaced: a person has to say so.
func TestKeyOfAnotherLength(t *testing.T) {
	t.Parallel()
	for _, content := range []string{"", "short", strings.Repeat("k", 31), strings.Repeat("k", 33)} {
		folder := newFolder(t)
		if _, err := db.Key(folder); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(folder, "state.key")
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if key, err := db.Key(folder); err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "remove the file") || key != nil {
			t.Errorf("%d bytes: got %x, %v", len(content), key, err)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != content {
			t.Errorf("%d bytes were replaced by %x, %v", len(content), got, err)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if key, err := db.Key(folder); err != nil || len(key) != 32 {
			t.Errorf("after removing it: %x, %v", key, err)
		}
	}
}

func TestKeyThatCannotBeMadeOrRead(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Key(filepath.Join(file, "data")); err == nil {
		t.Error("made a key inside a file")
	}
	folder := newFolder(t)
	if err := os.MkdirAll(filepath.Join(folder, "state.key"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Key(folder); err == nil {
		t.Error("read a key from a folder")
	}
}
