package db_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/db"
	"github.com/countersign/countersign/db/dbtest"
)

// hold keeps the writer busy until the returned function is called, and returns
// when it is.
func hold(t *testing.T, d *db.DB) (release func()) {
	t.Helper()
	held, released := make(chan struct{}), make(chan struct{})
	done := make(chan error, 1)
	go func() {
		done <- d.Do(context.Background(), func(*sql.Conn) error {
			close(held)
			<-released
			return nil
		})
	}()
	<-held
	return func() {
		close(released)
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// untilWaiting returns when so many changes wait for the writer.
func untilWaiting(t *testing.T, d *db.DB, n int) {
	t.Helper()
	for d.Waiting() < n {
		if t.Context().Err() != nil {
			t.FailNow()
		}
		// Nothing tells of a change that is put into the queue, so this looks
		// again and again, and lets the one run that puts it there.
		runtime.Gosched()
	}
}

func TestChangesShareATransactionAndFailAlone(t *testing.T) {
	t.Parallel()
	var commits atomic.Int32
	folder := newFolder(t)
	d := dbtest.OpenIn(t, folder, db.Options{Trace: func(statement string) {
		if statement == "COMMIT" {
			commits.Add(1)
		}
	}})
	release := hold(t, d)
	const callers = 40
	refusal := errors.New("no")
	errs := make([]error, callers)
	var calling sync.WaitGroup
	for i := range callers {
		calling.Go(func() {
			defer func() {
				if value := recover(); value != nil {
					errs[i] = fmt.Errorf("panic: %v", value)
				}
			}()
			if err := d.Insert(t.Context(), request(i, 10), nil, admitted); err != nil {
				errs[i] = err
				return
			}
		})
		if i%4 == 3 {
			calling.Go(func() {
				err := d.Do(t.Context(), func(conn *sql.Conn) error {
					if _, err := conn.ExecContext(context.Background(), "DELETE FROM payloads"); err != nil {
						return err
					}
					return refusal
				})
				if !errors.Is(err, refusal) {
					t.Errorf("got %v from a change that fails", err)
				}
			})
			calling.Go(func() {
				defer func() {
					if value := fmt.Sprint(recover()); !strings.Contains(value, "a bug") || !strings.Contains(value, "writer_test.go") {
						t.Errorf("got the panic %q, want the change's own and where it was", value)
					}
				}()
				_ = d.Do(t.Context(), func(conn *sql.Conn) error {
					if _, err := conn.ExecContext(context.Background(), "DELETE FROM payloads"); err != nil {
						return err
					}
					panic("a bug")
				})
			})
		}
	}
	untilWaiting(t, d, callers+callers/4*2)
	before := commits.Load()
	release()
	calling.Wait()
	if got := commits.Load() - before; got != 2 {
		t.Errorf("it took %d transactions, want 2: the one that was held, and one for all that waited", got)
	}
	for i, err := range errs {
		if err != nil {
			t.Errorf("inserting %d: %v", i, err)
		}
		if _, err := d.Request(t.Context(), request(i, 0).ID); err != nil {
			t.Errorf("loading %d: %v", i, err)
		}
	}
}

func TestContextThatEndsWhileWaiting(t *testing.T) {
	t.Parallel()
	d := dbtest.Open(t)
	release := hold(t, d)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- d.Insert(ctx, request(1, 10), nil, admitted) }()
	untilWaiting(t, d, 1)
	cancel()
	// The writer is still held: the caller doesn't wait for it.
	if err := <-done; !errors.Is(err, context.Canceled) || !errors.Is(err, approval.ErrUnavailable) {
		t.Errorf("got %v, want the context's error and ErrUnavailable", err)
	}
	release()
	if err := d.Insert(t.Context(), request(2, 10), nil, admitted); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Request(t.Context(), request(1, 0).ID); !errors.Is(err, approval.ErrNotFound) {
		t.Errorf("what the caller gave up was stored: %v", err)
	}
}

// unnoticed is a context that ends without anybody being told.
type unnoticed struct {
	context.Context
	ended atomic.Bool
}

func (u *unnoticed) Done() <-chan struct{} { return nil }

func (u *unnoticed) Err() error {
	if u.ended.Load() {
		return context.DeadlineExceeded
	}
	return nil
}

func TestContextThatEndedBeforeTheChange(t *testing.T) {
	t.Parallel()
	d := dbtest.Open(t)
	release := hold(t, d)
	ctx := &unnoticed{Context: t.Context()}
	done := make(chan error)
	go func() { done <- d.Insert(ctx, request(1, 10), nil, admitted) }()
	untilWaiting(t, d, 1)
	ctx.ended.Store(true)
	release()
	if err := <-done; !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, approval.ErrUnavailable) {
		t.Errorf("got %v, want the context's error and ErrUnavailable", err)
	}
}

func TestContextThatEndsDuringTheChange(t *testing.T) {
	t.Parallel()
	d := dbtest.Open(t)
	if err := d.Insert(t.Context(), request(1, 10), nil, admitted); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	r, err := d.Update(ctx, request(1, 0).ID, func(r *approval.Request) error {
		cancel()
		r.Reason = "changed"
		r.Revision++
		return nil
	})
	if err != nil || r.Reason != "changed" {
		t.Errorf("got %v (%v), want what has begun to end", r, err)
	}
	if r, err = d.Request(t.Context(), r.ID); err != nil || r.Reason != "changed" {
		t.Errorf("got %v (%v) stored", r, err)
	}
}

func TestTooManyWaiting(t *testing.T) {
	t.Parallel()
	d := dbtest.Open(t)
	release := hold(t, d)
	var calling sync.WaitGroup
	for i := range db.WaitingLimit {
		calling.Go(func() {
			if err := d.Insert(t.Context(), request(i, 10), nil, admitted); err != nil {
				t.Error(err)
			}
		})
	}
	untilWaiting(t, d, db.WaitingLimit)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- d.Insert(ctx, request(db.WaitingLimit, 10), nil, admitted) }()
	select {
	case err := <-done:
		t.Fatalf("got %v before its context ended", err)
	default:
	}
	cancel()
	if err := <-done; !errors.Is(err, approval.ErrUnavailable) || !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want ErrUnavailable and the context's error", err)
	}
	release()
	calling.Wait()
}

func TestCloseFinishesWhatIsWaiting(t *testing.T) {
	t.Parallel()
	folder := newFolder(t)
	d := dbtest.OpenIn(t, folder, db.Options{})
	release := hold(t, d)
	const callers = 10
	var calling sync.WaitGroup
	for i := range callers {
		calling.Go(func() {
			if err := d.Insert(t.Context(), request(i, 10), nil, admitted); err != nil {
				t.Error(err)
			}
		})
	}
	untilWaiting(t, d, callers)
	closed := make(chan error)
	go func() { closed <- d.Close() }()
	release()
	if err := <-closed; err != nil {
		t.Error(err)
	}
	calling.Wait()
	d = dbtest.OpenIn(t, folder, db.Options{})
	for i := range callers {
		if _, err := d.Request(t.Context(), request(i, 0).ID); err != nil {
			t.Error(err)
		}
	}
}

// TestWriterRecovers breaks the writer's transaction in a change, and checks
// that the next change is none the worse.
func TestWriterRecovers(t *testing.T) {
	t.Parallel()
	d := dbtest.Open(t)
	number := 0
	for name, breakIt := range map[string]func(*sql.Conn) error{
		"the transaction is gone": func(conn *sql.Conn) error {
			_, err := conn.ExecContext(context.Background(), "ROLLBACK")
			return err
		},
		"the transaction is another one": func(conn *sql.Conn) error {
			_, err := conn.ExecContext(context.Background(), "ROLLBACK; BEGIN")
			return err
		},
	} {
		if err := d.Do(t.Context(), breakIt); err == nil {
			t.Errorf("%s: the change reported no error", name)
		}
		number++
		if err := d.Insert(t.Context(), request(number, 10), nil, admitted); err != nil {
			t.Errorf("after %s: %v", name, err)
		}
		if _, err := d.Request(t.Context(), request(number, 0).ID); err != nil {
			t.Errorf("after %s: %v", name, err)
		}
		if got, err := d.Setting("synchronous"); err != nil || got != "2" {
			t.Errorf("after %s: synchronous is %q (%v)", name, got, err)
		}
	}
}
