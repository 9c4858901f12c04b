package db_test

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"modernc.org/sqlite"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/db"
	"github.com/countersign/countersign/db/dbtest"
)

func TestSettings(t *testing.T) {
	t.Parallel()
	d := dbtest.Open(t)
	for name, want := range map[string]string{
		"synchronous":  "2", // FULL
		"journal_mode": "wal",
		"foreign_keys": "1",
		"busy_timeout": "1500",
		"temp_store":   "2", // MEMORY
	} {
		if got, err := d.Setting(name); err != nil || got != want {
			t.Errorf("%s is %q (%v), want %q", name, got, err, want)
		}
	}
	if !sqlite.StrictPragmasEnabled() {
		t.Error("settings in a connection string could run other SQL")
	}
}

func TestWeakSettingsAreRefused(t *testing.T) {
	t.Parallel()
	folder := newFolder(t)
	dbtest.OpenIn(t, folder, db.Options{})
	source := db.Source(filepath.Join(folder, "countersign.db"), false)
	for _, weaker := range []string{"synchronous(NORMAL)", "synchronous(OFF)", "foreign_keys(0)"} {
		name, _, _ := strings.Cut(weaker, "(")
		raw, err := sql.Open("sqlite", source)
		if err != nil {
			t.Fatal(err)
		}
		conn, err := raw.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.ExecContext(t.Context(), "PRAGMA "+strings.NewReplacer("(", "=", ")", "").Replace(weaker)); err != nil {
			t.Fatal(err)
		}
		if err := db.CheckDurable(t.Context(), conn); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: got %v, want it refused", weaker, err)
		}
		if err := errors.Join(conn.Close(), raw.Close()); err != nil {
			t.Error(err)
		}
	}
}

// released are the migrations by their SHA-256. Never edit one that a released
// version has applied: its databases would differ from new ones. Add the next
// instead, for both engines.
var released = map[string]string{
	"postgres/00001_requests.sql": "be497faff9b88b43355ffc2e70830cecce1e58863bd24810abbcab2c6e64d06b",
	"sqlite/00001_requests.sql":   "7d723567970d22ebf5db164218a9322cb3a8fd8210d5c56edaedf39104f3ea0f",
}

func TestMigrationsStayAsReleased(t *testing.T) {
	t.Parallel()
	got := make(map[string]string)
	for _, engine := range []string{"postgres", "sqlite"} {
		files, err := filepath.Glob(filepath.Join("migrations", engine, "*.sql"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got[engine+"/"+filepath.Base(file)] = fmt.Sprintf("%x", sha256.Sum256(data))
		}
	}
	if diff := cmp.Diff(released, got); diff != "" {
		t.Errorf("migrations (-released +got):\n%s", diff)
	}
	embedded, err := fs.Glob(db.Migrations, "migrations/sqlite/*.sql")
	if err != nil {
		t.Fatal(err)
	}
	for name := range got {
		other := strings.NewReplacer("postgres/", "sqlite/", "sqlite/", "postgres/").Replace(name)
		if got[other] == "" {
			t.Errorf("%s has no %s", name, other)
		}
	}
	if len(embedded)*2 != len(got) {
		t.Errorf("%d migrations are in the program, %d on the disk", len(embedded), len(got)/2)
	}
}

func TestReopen(t *testing.T) {
	t.Parallel()
	folder := newFolder(t)
	d := dbtest.OpenIn(t, folder, db.Options{})
	want := request(1, 1000)
	if err := d.Insert(t.Context(), want, nil, admitted); err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"countersign.db-wal", "countersign.db-shm"} {
		if _, err := os.Stat(filepath.Join(folder, name)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s is still there after closing (%v)", name, err)
		}
	}
	d = dbtest.OpenIn(t, folder, db.Options{})
	got, err := d.Request(t.Context(), want.ID)
	if err != nil {
		t.Fatal(err)
	}
	if string(got.Payload) != string(want.Payload) {
		t.Error("the payload isn't the same after opening again")
	}
}

func TestEmptyFileIsSetUp(t *testing.T) {
	t.Parallel()
	// What is left if the process ends right after it made the file.
	folder := newFolder(t)
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, "countersign.db"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	d := dbtest.OpenIn(t, folder, db.Options{})
	if err := d.Insert(t.Context(), request(1, 10), nil, admitted); err != nil {
		t.Error(err)
	}
}

func TestManyOpenANewFolderAtOnce(t *testing.T) {
	t.Parallel()
	folder := newFolder(t)
	var opening sync.WaitGroup
	for i := range 8 {
		opening.Go(func() {
			d, err := db.Open(t.Context(), folder, db.Options{})
			if err != nil {
				t.Error(err)
				return
			}
			if err := errors.Join(d.Insert(t.Context(), request(i, 10), nil, admitted), d.Close()); err != nil {
				t.Error(err)
			}
		})
	}
	opening.Wait()
}

func TestNewerFile(t *testing.T) {
	t.Parallel()
	folder := newFolder(t)
	d := dbtest.OpenIn(t, folder, db.Options{})
	raw := rawOpen(t, folder)
	if _, err := raw.Exec("INSERT INTO goose_db_version (version_id, is_applied) VALUES (99, 1)"); err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Open(t.Context(), folder, db.Options{}); !errors.Is(err, db.ErrNewer) {
		t.Errorf("got %v, want ErrNewer", err)
	}
}

func TestNoDatabase(t *testing.T) {
	t.Parallel()
	folder := newFolder(t)
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(folder, "countersign.db")
	text := []byte(strings.Repeat("This is no database. ", 1000))
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Open(t.Context(), folder, db.Options{}); !errors.Is(err, db.ErrCorrupt) || errors.Is(err, approval.ErrUnavailable) {
		t.Errorf("got %v, want ErrCorrupt and nothing that may pass", err)
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != string(text) {
		t.Errorf("the file was changed (%v)", err)
	}
}

func TestDamagedFile(t *testing.T) {
	t.Parallel()
	folder := newFolder(t)
	d := dbtest.OpenIn(t, folder, db.Options{})
	for i := range 50 {
		if err := d.Insert(t.Context(), request(i, 5000), nil, admitted); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	file, err := os.OpenFile(filepath.Join(folder, "countersign.db"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	info, err := file.Stat()
	if err != nil {
		t.Fatal(err)
	}
	rubbish := []byte(strings.Repeat("\xa5", int(info.Size())-20*4096))
	if _, err := file.WriteAt(rubbish, 20*4096); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	if d, err = db.Open(t.Context(), folder, db.Options{}); err == nil {
		for i := range 50 {
			if _, err = d.Request(t.Context(), request(i, 0).ID); err != nil {
				break
			}
		}
		d.Close()
	}
	if !errors.Is(err, db.ErrCorrupt) || errors.Is(err, approval.ErrUnavailable) {
		t.Errorf("got %v, want ErrCorrupt and nothing that may pass", err)
	}
}

func TestClosed(t *testing.T) {
	t.Parallel()
	d := dbtest.Open(t)
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Errorf("closing again: %v", err)
	}
	if err := d.Insert(t.Context(), request(1, 10), nil, admitted); !errors.Is(err, approval.ErrUnavailable) {
		t.Errorf("writing: got %v, want ErrUnavailable", err)
	}
	if _, err := d.Request(t.Context(), request(1, 0).ID); !errors.Is(err, approval.ErrUnavailable) {
		t.Errorf("reading: got %v, want ErrUnavailable", err)
	}
}

func TestEndedContext(t *testing.T) {
	t.Parallel()
	d := dbtest.Open(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := d.Request(ctx, request(1, 0).ID); !errors.Is(err, context.Canceled) {
		t.Errorf("reading: got %v, want the context's error", err)
	}
	if err := d.Insert(ctx, request(1, 10), nil, admitted); !errors.Is(err, context.Canceled) || !errors.Is(err, approval.ErrUnavailable) {
		t.Errorf("writing: got %v, want the context's error and ErrUnavailable", err)
	}
	if _, err := d.Request(t.Context(), request(1, 0).ID); !errors.Is(err, approval.ErrNotFound) {
		t.Errorf("it was written all the same: %v", err)
	}
	if _, err := db.Open(ctx, newFolder(t), db.Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("opening: got %v, want the context's error", err)
	}
}
