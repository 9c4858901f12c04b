package db

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"

	sqlite3 "modernc.org/sqlite/lib"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/db/internal/sqlc"
)

// waitingLimit is how many changes may wait to be written, and how many one
// transaction takes.
const waitingLimit = 256

// writer is the one goroutine that writes. Changes that come while it commits
// wait and share the next transaction, each in a savepoint of its own, so that
// many callers wait for one sync of the disk and one that fails undoes only
// itself.
type writer struct {
	db      *sql.DB
	path    string
	file    os.FileInfo // what is at path
	queue   chan *job
	stopped chan struct{}

	mu     sync.RWMutex // held for reading while a job is put into the queue
	closed bool

	// What follows belongs to the goroutine.
	conn *sql.Conn
	run  *statements
}

// job is one change on its way through the writer.
type job struct {
	ctx    context.Context
	change func(*sqlc.Queries) error
	taken  atomic.Bool // by the writer, or by a caller who gave up before
	done   chan struct{}

	err      error
	panicked any
}

// newWriter starts the writer on the only connection of a database, whose file
// is at path. Closing the writer closes the database.
func newWriter(ctx context.Context, on *sql.DB, path string, options Options) (*writer, error) {
	file, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("checking the file: %w", err)
	}
	conn, err := on.Conn(ctx)
	if err != nil {
		return nil, err
	}
	if err := checkDurable(ctx, conn); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	w := &writer{
		db:      on,
		path:    path,
		file:    file,
		queue:   make(chan *job, waitingLimit),
		stopped: make(chan struct{}),
		conn:    conn,
		run:     newStatements(conn, options.Trace),
	}
	go w.loop()
	return w, nil
}

// do has the writer run change in a transaction and returns when that is
// durable, or with what made it fail and nothing changed: the change's own
// error, or what became of the transaction, whatever change had returned. If
// ctx ends before the change began, it never runs; once begun it runs to its
// end.
func (w *writer) do(ctx context.Context, change func(*sqlc.Queries) error) error {
	j := &job{ctx: ctx, change: change, done: make(chan struct{})}
	if err := w.enqueue(j); err != nil {
		return err
	}
	select {
	case <-j.done:
	case <-ctx.Done():
		if j.take() {
			return notBegun(ctx)
		}
		<-j.done
	}
	if j.panicked != nil {
		panic(j.panicked)
	}
	return explain(context.Background(), j.err)
}

func (w *writer) enqueue(j *job) error {
	w.mu.RLock()
	defer w.mu.RUnlock()
	if w.closed {
		return fmt.Errorf("%w: %w", approval.ErrUnavailable, errClosed)
	}
	if j.ctx.Err() != nil {
		return notBegun(j.ctx)
	}
	select {
	case w.queue <- j:
		return nil
	case <-j.ctx.Done():
		return notBegun(j.ctx)
	}
}

func notBegun(ctx context.Context) error {
	return fmt.Errorf("%w: no time was left to write: %w", approval.ErrUnavailable, context.Cause(ctx))
}

// take reports whether the caller is the first to take the job.
func (j *job) take() bool { return j.taken.CompareAndSwap(false, true) }

func (j *job) finish(err error) {
	j.err = err
	close(j.done)
}

// close finishes what is waiting and ends the goroutine.
func (w *writer) close() error {
	w.mu.Lock()
	closed := w.closed
	w.closed = true
	w.mu.Unlock()
	if closed {
		return nil
	}
	close(w.queue)
	<-w.stopped
	// Moves everything into the main file, so that a copy of it is whole.
	_, err := w.conn.ExecContext(context.Background(), "PRAGMA wal_checkpoint(TRUNCATE)")
	// The driver can't close a statement after its connection.
	return errors.Join(err, w.run.close(), w.conn.Close(), w.db.Close())
}

func (w *writer) loop() {
	defer close(w.stopped)
	batch := make([]*job, 0, waitingLimit)
	for first := range w.queue {
		batch = append(batch[:0], first)
		for more := true; more && len(batch) < waitingLimit; {
			select {
			case j, ok := <-w.queue:
				if ok {
					batch = append(batch, j)
				} else {
					more = false
				}
			default:
				more = false
			}
		}
		w.commit(batch)
	}
}

// commit runs the jobs in one transaction and tells their callers.
func (w *writer) commit(batch []*job) {
	if err := w.begin(); err != nil {
		for _, j := range batch {
			if j.take() {
				j.finish(err)
			}
		}
		return
	}
	var taken []*job
	var failure error
	for _, j := range batch {
		if !j.take() {
			continue
		}
		if j.ctx.Err() != nil {
			j.finish(notBegun(j.ctx))
			continue
		}
		taken = append(taken, j)
		if failure == nil {
			failure = w.attempt(j)
		}
	}
	if failure == nil {
		failure = w.exec("COMMIT")
	}
	if failure != nil {
		failure = lost(failure)
		// If SQLite has rolled it back already, this is an error of no interest.
		_ = w.exec("ROLLBACK")
	}
	for _, j := range taken {
		// What a job refused it may have refused because of what another one had
		// done, which is undone now.
		if failure != nil && j.panicked == nil {
			j.err = failure
		}
		j.finish(j.err)
	}
}

// lost is what a caller is told whose change was undone with its transaction:
// nothing is wrong with the change, unless the database is damaged.
func lost(failure error) error {
	failure = explain(context.Background(), failure)
	if errors.Is(failure, approval.ErrUnavailable) || errors.Is(failure, ErrCorrupt) {
		return failure
	}
	return fmt.Errorf("%w: its transaction was lost: %w", approval.ErrUnavailable, failure)
}

// attempt runs one job in a savepoint. What fails in the job is undone and kept
// in it; an error is returned if the whole transaction is lost.
func (w *writer) attempt(j *job) error {
	if err := w.exec("SAVEPOINT job"); err != nil {
		return err
	}
	j.call(sqlc.New(w.run))
	if j.err == nil && j.panicked == nil {
		return w.exec("RELEASE job")
	}
	// SQLite ends the transaction by itself when the disk is full or fails.
	// Then there is no savepoint to go back to, and what ran before is lost. Why
	// is in the job's error if that is SQLite's; a refusal concerns no other job.
	if err := w.exec("ROLLBACK TO job"); err != nil {
		if code(j.err) != 0 {
			return j.err
		}
		return err
	}
	return w.exec("RELEASE job")
}

// call runs the change. A panic belongs to the caller, not to the writer.
func (j *job) call(queries *sqlc.Queries) {
	defer func() {
		if value := recover(); value != nil {
			j.panicked = fmt.Sprintf("%v\n\nin a change of the database:\n%s", value, debug.Stack())
		}
	}()
	j.err = j.change(queries)
}

// begin starts a transaction that may write, and undoes what the last one left
// if that failed before. It refuses to if the file is no longer the one at its
// path: SQLite would go on writing to it, and what was acknowledged would be
// lost with it.
func (w *writer) begin() error {
	now, err := os.Stat(w.path)
	if err != nil || !os.SameFile(w.file, now) {
		return unavailable(ErrDisk, fmt.Errorf("%s was moved, replaced or removed while it was open; restart once it is right", w.path))
	}
	err = w.exec("BEGIN IMMEDIATE")
	if code(err) != sqlite3.SQLITE_ERROR {
		return err
	}
	// The last transaction was lost and its ROLLBACK failed, so it is still open.
	if err := w.exec("ROLLBACK"); err != nil {
		return unavailable(ErrDisk, fmt.Errorf("the last transaction can't be undone; restart if that lasts: %w", err))
	}
	return w.exec("BEGIN IMMEDIATE")
}

// exec runs a statement that ends or divides a transaction. It has no context:
// whatever has begun is ended.
func (w *writer) exec(statement string) error {
	_, err := w.run.ExecContext(context.Background(), statement)
	return err
}
