package db_test

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/countersign/countersign/db"
	"github.com/countersign/countersign/db/dbtest"
)

func TestFilesAreMadeForTheOwnerOnly(t *testing.T) {
	t.Parallel()
	skipModes(t)
	folder := filepath.Join(t.TempDir(), "a", "b")
	d := dbtest.OpenIn(t, folder, db.Options{})
	if err := d.Insert(t.Context(), request(1, 10), nil, admitted); err != nil {
		t.Fatal(err)
	}
	lock, err := db.LockFolder(folder, "serve")
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Unlock()
	for name, want := range map[string]os.FileMode{
		"":                   0o700,
		"countersign.db":     0o600,
		"countersign.db-wal": 0o600,
		"countersign.db-shm": 0o600,
		"countersign.lock":   0o600,
		"countersign.holder": 0o600,
	} {
		info, err := os.Stat(filepath.Join(folder, name))
		if err != nil {
			t.Error(err)
		} else if got := info.Mode().Perm(); got != want {
			t.Errorf("%q has mode %04o, want %04o", name, got, want)
		}
	}
}

func TestExposedFilesAreRefused(t *testing.T) {
	t.Parallel()
	skipModes(t)
	for _, test := range []struct {
		name, chmod string
		mode        os.FileMode
	}{
		{"", "chmod 0700", 0o750},
		{"", "chmod 0700", 0o705},
		{"countersign.db", "chmod 0600", 0o640},
		{"countersign.db", "chmod 0600", 0o602},
		{"countersign.db-wal", "chmod 0600", 0o644},
		{"countersign.db-shm", "chmod 0600", 0o604},
	} {
		folder := newFolder(t)
		open := dbtest.OpenIn(t, folder, db.Options{}) // keeps the -wal and -shm files
		if err := open.Insert(t.Context(), request(1, 10), nil, admitted); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(folder, test.name)
		before, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, test.mode); err != nil {
			t.Fatal(err)
		}
		d, err := db.Open(t.Context(), folder, db.Options{})
		if !errors.Is(err, db.ErrExposed) || !strings.Contains(err.Error(), test.chmod) || !strings.Contains(err.Error(), path) {
			t.Errorf("%q with mode %04o: got %v, want ErrExposed that says %s", test.name, test.mode, err, test.chmod)
		}
		if err == nil {
			d.Close()
		}
		if test.name == "" {
			if _, err := db.LockFolder(folder, "serve"); !errors.Is(err, db.ErrExposed) {
				t.Errorf("locking a folder with mode %04o: got %v", test.mode, err)
			}
		}
		if err := os.Chmod(path, before.Mode()); err != nil {
			t.Fatal(err)
		}
		if d, err = db.Open(t.Context(), folder, db.Options{}); err != nil {
			t.Errorf("%q with its mode restored: %v", test.name, err)
		} else if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestAnyFolderName(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(t.TempDir(), "a b?c#d%41&_pragma=x;é")
	if runtime.GOOS == "windows" {
		folder = filepath.Join(t.TempDir(), "a b#d%41&_pragma=x;é")
	}
	d := dbtest.OpenIn(t, folder, db.Options{})
	if err := d.Insert(t.Context(), request(1, 10), nil, admitted); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(filepath.Join(folder, "countersign.db")); err != nil || info.Size() == 0 {
		t.Errorf("the file isn't where it should be: %v", err)
	}
}

func TestFolderThatCannotBeMade(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Open(t.Context(), filepath.Join(file, "data"), db.Options{}); err == nil {
		t.Error("opened a folder inside a file")
	}
	if _, err := db.LockFolder(filepath.Join(file, "data"), "serve"); err == nil {
		t.Error("locked a folder inside a file")
	}
}

func skipModes(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows has no such modes")
	}
}
