package db_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/audit"
	"github.com/countersign/countersign/db"
	"github.com/countersign/countersign/db/dbtest"
)

// TestFull fills the disk at every point of an insertion: with room for no page
// more, one page more, and so on until there is enough.
func TestFull(t *testing.T) {
	t.Parallel()
	folder := newFolder(t)
	d := dbtest.OpenIn(t, folder, db.Options{})
	service, err := newService(d)
	if err != nil {
		t.Fatal(err)
	}
	proposal := approval.Proposal{Purpose: "Pay", Payload: fmt.Appendf(nil, "%q", request(0, 40_000).Payload)}
	first, err := service.Request(t.Context(), agent, proposal)
	if err != nil {
		t.Fatal(err)
	}
	before := checkFile(t, d, folder)
	pages, err := d.Pages()
	if err != nil {
		t.Fatal(err)
	}
	proposal.Target = "another"
	failures := 0
	for room := int64(0); ; room++ {
		if err := d.SetMaxPages(pages + room); err != nil {
			t.Fatal(err)
		}
		_, err := service.Request(t.Context(), agent, proposal)
		if err == nil {
			break
		}
		failures++
		if !errors.Is(err, db.ErrFull) || !errors.Is(err, approval.ErrUnavailable) {
			t.Fatalf("with room for %d pages: got %v, want ErrFull and ErrUnavailable", room, err)
		}
		if after := checkFile(t, d, folder); after != before {
			t.Fatalf("with room for %d pages: got %d events, want %d", room, after, before)
		}
	}
	if failures < 10 {
		t.Errorf("it failed at %d sizes only, so a full disk was hardly tested", failures)
	}
	if after := checkFile(t, d, folder); after != before+1 {
		t.Errorf("got %d events once there was room, want %d", after, before+1)
	}
	// What was there before can be decided.
	r, err := service.Decide(t.Context(), person, approval.Ballot{
		Request: first.ID, Version: first.Version, Digest: first.Digest, Verdict: approval.Approve, Surface: approval.Slack,
	})
	if err != nil || r.Status != approval.Approved {
		t.Errorf("got %v (%v)", r, err)
	}
}

// TestFullForOneOfMany shows that callers that share a transaction with one
// that finds the disk full are told what became of theirs.
func TestFullForOneOfMany(t *testing.T) {
	t.Parallel()
	folder := newFolder(t)
	d := dbtest.OpenIn(t, folder, db.Options{})
	pages, err := d.Pages()
	if err != nil {
		t.Fatal(err)
	}
	if err := d.SetMaxPages(pages + 60); err != nil {
		t.Fatal(err)
	}
	const callers = 64
	errs := make([]error, callers)
	var calling sync.WaitGroup
	for i := range callers {
		calling.Go(func() { errs[i] = d.Insert(t.Context(), request(i, 10_000), nil, admitted) })
	}
	calling.Wait()
	stored, refused := 0, 0
	for i, err := range errs {
		_, missing := d.Request(t.Context(), request(i, 0).ID)
		switch {
		case err == nil && missing == nil:
			stored++
		case errors.Is(err, db.ErrFull) && errors.Is(missing, approval.ErrNotFound):
			refused++
		default:
			t.Errorf("inserting said %v, loading %v", err, missing)
		}
	}
	if refused == 0 {
		t.Error("everything fitted, so nothing was tested")
	}
	t.Logf("%d stored, %d refused", stored, refused)
	if err := d.SetMaxPages(1 << 20); err != nil {
		t.Fatal(err)
	}
	if err := d.Insert(t.Context(), request(callers, 10_000), nil, admitted); err != nil {
		t.Errorf("once there is room: %v", err)
	}
	checkFile(t, d, folder)
}

// clickOnFullDisk is the child of TestClicksOnFullDisk: folder is on a small
// disk of its own. A person clicks twice, and an agent claims twice, each in one
// transaction that finds the disk full when it commits.
func clickOnFullDisk(folder string) error {
	if err := mountSmall(folder); err != nil {
		return fmt.Errorf("%w: %w", errNoMount, err)
	}
	ctx := context.Background()
	d, err := db.Open(ctx, filepath.Join(folder, "data"), db.Options{})
	if err != nil {
		return err
	}
	service, err := newService(d)
	if err != nil {
		return err
	}
	r, err := service.Request(ctx, agent, proposal())
	if err != nil {
		return err
	}
	decide := func() (*approval.Request, error) {
		return service.Decide(ctx, person, approval.Ballot{
			Request: r.ID, Version: r.Version, Digest: r.Digest, Verdict: approval.Approve, Surface: approval.Slack,
		})
	}
	claim := func() (*approval.Request, error) { return service.Claim(ctx, agent, r.ID) }
	if err := lostOnFullDisk(d, filepath.Join(folder, "filler"), decide); err != nil {
		return fmt.Errorf("deciding: %w", err)
	}
	if got, err := d.Request(ctx, r.ID); err != nil || got.Status != approval.Pending || len(got.Decisions) != 0 {
		return fmt.Errorf("clicks that were lost left %+v (%v)", got, err)
	}
	if _, err := decide(); err != nil {
		return fmt.Errorf("clicking again once there is room: %w", err)
	}
	if err := lostOnFullDisk(d, filepath.Join(folder, "filler"), claim); err != nil {
		return fmt.Errorf("claiming: %w", err)
	}
	if got, err := d.Request(ctx, r.ID); err != nil || got.Status != approval.Approved {
		return fmt.Errorf("claims that were lost left %+v (%v)", got, err)
	}
	if _, err := claim(); err != nil {
		return fmt.Errorf("claiming again once there is room: %w", err)
	}
	return d.Close()
}

// lostOnFullDisk makes two calls share a transaction that there is no room for,
// and checks that both are told so.
func lostOnFullDisk(d *db.DB, filler string, call func() (*approval.Request, error)) error {
	file, err := os.Create(filler)
	if err != nil {
		return err
	}
	for err == nil {
		_, err = file.Write(make([]byte, 512))
	}
	if err := file.Close(); err != nil {
		return err
	}
	held, released := make(chan struct{}), make(chan struct{})
	answers := make(chan error)
	go func() {
		answers <- d.Do(context.Background(), func(*sql.Conn) error {
			close(held)
			<-released
			return nil
		})
	}()
	<-held
	const calls = 2
	for i := range calls {
		go func() {
			r, err := call()
			if r != nil || !errors.Is(err, db.ErrFull) || !errors.Is(err, approval.ErrUnavailable) {
				answers <- fmt.Errorf("got %+v, and ErrFull and ErrUnavailable are wanted: %w", r, err)
				return
			}
			answers <- nil
		}()
		for d.Waiting() <= i {
			runtime.Gosched() // nothing tells of a change that is put into the queue
		}
	}
	close(released)
	return errors.Join(<-answers, <-answers, <-answers, os.Remove(filler))
}

// fillDisk is the child of TestFullDisk: folder is on a small disk of its own.
func fillDisk(folder string) error {
	if err := mountSmall(folder); err != nil {
		return fmt.Errorf("%w: %w", errNoMount, err)
	}
	ctx := context.Background()
	filler := filepath.Join(folder, "filler")
	if err := os.WriteFile(filler, make([]byte, 2<<20), 0o600); err != nil {
		return err
	}
	data := filepath.Join(folder, "data")
	d, err := db.Open(ctx, data, db.Options{})
	if err != nil {
		return err
	}
	service, err := newService(d)
	if err != nil {
		return err
	}
	var stored []approval.ID
	insert := func() error {
		large := proposal()
		large.Payload = fmt.Appendf(nil, "[%s, %q]", large.Payload, request(0, 3000).Payload)
		r, err := service.Request(ctx, agent, large)
		if err == nil {
			stored = append(stored, r.ID)
		}
		return err
	}
	check := func() error {
		for _, id := range stored {
			if _, err := d.Request(ctx, id); err != nil {
				return fmt.Errorf("%s was acknowledged: %w", id, err)
			}
		}
		events, _, err := audit.Verify(d.Events(ctx))
		if err == nil && events != int64(len(stored)) {
			err = fmt.Errorf("%d requests were acknowledged, %d events stored", len(stored), events)
		}
		return err
	}
	for len(stored) < 1000 && err == nil {
		err = insert()
	}
	if !errors.Is(err, db.ErrFull) || !errors.Is(err, approval.ErrUnavailable) {
		return fmt.Errorf("the disk must be full and the error is: %w", err)
	}
	for range 20 {
		if err := insert(); !errors.Is(err, db.ErrFull) {
			return fmt.Errorf("the disk was full before and the error is: %w", err)
		}
	}
	if err := check(); err != nil {
		return err
	}
	full := len(stored)
	if err := os.Remove(filler); err != nil {
		return err
	}
	for range 20 {
		if err := insert(); err != nil {
			return fmt.Errorf("after there was room again: %w", err)
		}
	}
	if err := errors.Join(check(), d.Close()); err != nil {
		return err
	}
	if d, err = db.Open(ctx, data, db.Options{}); err != nil {
		return fmt.Errorf("opening again: %w", err)
	}
	if err := errors.Join(check(), d.Close()); err != nil {
		return fmt.Errorf("opened again: %w", err)
	}
	fmt.Printf("the disk was full after %d requests; %d in the end\n", full, len(stored))
	return nil
}

var errNoMount = errors.New("no disk of its own can be had")
