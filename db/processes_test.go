package db_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/db"
	"github.com/countersign/countersign/db/dbtest"
)

func TestProcessesAppendToOneChain(t *testing.T) {
	t.Parallel()
	folder := newFolder(t)
	d := dbtest.OpenIn(t, folder, db.Options{})
	const others = 3
	var running []*child
	for range others {
		running = append(running, startChild(t, "append", folder))
	}
	service, err := newService(d)
	if err != nil {
		t.Fatal(err)
	}
	for range appended {
		if err := patiently(func() error {
			_, _, err := service.CreateToken(t.Context(), approval.Operator{Name: "root"}, "here", approval.Approver{})
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range running {
		if err := c.Wait(); err != nil {
			t.Errorf("%v: %s", err, c.err)
		}
	}
	if got := checkFile(t, d, folder); got != appended*(others+1) {
		t.Errorf("got %d events, want %d", got, appended*(others+1))
	}
}

func TestFolderIsLockedForOneProcess(t *testing.T) {
	t.Parallel()
	folder := newFolder(t)
	c := startChild(t, "lock", folder)
	if !c.out.Scan() || c.out.Text() != "locked" {
		t.Fatalf("the child said %q: %s", c.out.Text(), c.err)
	}
	_, err := db.LockFolder(folder, "stdio")
	var held *db.HeldError
	if !errors.As(err, &held) {
		t.Fatalf("got %v, want a *HeldError", err)
	}
	if held.Folder != folder || held.Holder.PID != c.Process.Pid || held.Holder.Command != "serve" || held.Holder.Since.IsZero() {
		t.Errorf("got %+v, want the child %d", held, c.Process.Pid)
	}
	for _, want := range []string{folder, fmt.Sprint(c.Process.Pid), "serve", held.Holder.Since.Format("2006-01-02T15:04:05Z")} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error doesn't say %s: %v", want, err)
		}
	}
	// Opening the database takes no lock: tokens are made while a server runs.
	dbtest.OpenIn(t, folder, db.Options{})

	// However the other process ends, the lock ends with it.
	if err := c.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = c.Wait() // reports the kill
	lock, err := db.LockFolder(folder, "stdio")
	if err != nil {
		t.Fatal(err)
	}
	_, err = db.LockFolder(folder, "serve")
	if !errors.As(err, &held) || held.Holder.PID != os.Getpid() || held.Holder.Command != "stdio" {
		t.Errorf("got %v, want this process", err)
	}
	// Nobody can read or write the file that is locked, on Windows.
	if info, err := os.Stat(filepath.Join(folder, "countersign.lock")); err != nil || info.Size() != 0 {
		t.Errorf("the lock's file was written to (%v)", err)
	}
	if err := lock.Unlock(); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadFile(filepath.Join(folder, "countersign.holder")); err != nil || len(left) != 0 {
		t.Errorf("%q is left of one that has ended (%v)", left, err)
	}
	again, err := db.LockFolder(folder, "serve")
	if err != nil {
		t.Fatal(err)
	}
	// Who holds it isn't known until they have written it.
	if err := os.Truncate(filepath.Join(folder, "countersign.holder"), 0); err != nil {
		t.Fatal(err)
	}
	_, err = db.LockFolder(folder, "stdio")
	if !errors.As(err, &held) || held.Holder != (db.Holder{}) || !strings.Contains(err.Error(), "another process") {
		t.Errorf("got %v, want an unknown holder", err)
	}
	if err := again.Unlock(); err != nil {
		t.Error(err)
	}
}

func TestFileLockedByAnotherProcess(t *testing.T) {
	t.Parallel()
	folder := newFolder(t)
	d := dbtest.OpenIn(t, folder, db.Options{})
	if err := d.Insert(t.Context(), request(1, 10), nil, admitted); err != nil {
		t.Fatal(err)
	}
	other, err := rawOpen(t, folder).Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if _, err := other.ExecContext(t.Context(), "BEGIN IMMEDIATE"); err != nil {
		t.Fatal(err)
	}
	_, err = d.Update(t.Context(), request(1, 0).ID, func(*approval.Request) error {
		t.Error("a change began that may have to be undone")
		return nil
	})
	if !errors.Is(err, db.ErrLocked) || !errors.Is(err, approval.ErrUnavailable) {
		t.Errorf("got %v, want ErrLocked and ErrUnavailable", err)
	}
	if _, err := d.Request(t.Context(), request(1, 0).ID); err != nil {
		t.Errorf("reading while another process writes: %v", err)
	}
	if _, err := other.ExecContext(t.Context(), "ROLLBACK"); err != nil {
		t.Fatal(err)
	}
	if err := d.Insert(t.Context(), request(2, 10), nil, admitted); err != nil {
		t.Errorf("once it isn't locked any more: %v", err)
	}
}
