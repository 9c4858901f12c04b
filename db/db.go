// Package db keeps requests, decisions, executions, events, notices and tokens
// in a SQLite file. It implements approval.Store, and the outbox from which
// notices are delivered.
//
// One goroutine writes, on one connection, and commits whatever is waiting as
// one transaction; a method that changes something returns when its change is
// on the disk (WAL, synchronous=FULL). Reads run beside it on their own
// connections. Another process may write the same file meanwhile, so nothing
// that is read from it is kept in memory.
package db

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"

	"modernc.org/sqlite"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/db/internal/sqlc"
)

// fileName is the database's file in the data folder. SQLite keeps two more
// beside it while it is open, named with -wal and -shm after it.
const fileName = "countersign.db"

// readers is how many reads run at once. They are short; more connections
// would only take memory.
const readers = 4

// Options adjust how a database is opened. The zero value is usable.
type Options struct {
	// Trace is called with the text of each statement before it runs, from
	// several goroutines; nil means nothing is called.
	Trace func(statement string)
}

// DB is an open database. All methods are safe for concurrent use.
//
// An error of a method that couldn't reach the file wraps
// approval.ErrUnavailable, and ErrFull, ErrLocked or ErrDisk where that is why.
type DB struct {
	writer *writer
	pool   *sql.DB
	reads  *sqlc.Queries
	cache  *statements
	closed atomic.Bool
}

var _ approval.Store = (*DB)(nil)

// processWide makes the driver's settings that hold for the whole process:
// settings in a connection string can't smuggle in other SQL, and commits sync
// without the time stamps of the file, which is as durable and takes less time
// on journaling file systems.
var processWide = sync.OnceFunc(func() {
	sqlite.StrictPragmas(true)
	// Where there is no fdatasync, fsync stays.
	_, _ = sqlite.Fdatasync(true)
})

// Open opens the database in a data folder, and makes or upgrades what is
// missing. A new folder has mode 0700, new files 0600; a folder or file that
// others may read is refused with ErrExposed, and a file that a newer
// countersign wrote with ErrNewer. Several processes may have the same folder
// open.
func Open(ctx context.Context, folder string, options Options) (*DB, error) {
	processWide()
	d, err := open(ctx, folder, options)
	if err != nil {
		return nil, fmt.Errorf("opening the database in %s: %w", folder, explain(ctx, err))
	}
	return d, nil
}

func open(ctx context.Context, folder string, options Options) (*DB, error) {
	if err := makeFolder(folder); err != nil {
		return nil, err
	}
	path, err := filepath.Abs(filepath.Join(folder, fileName))
	if err != nil {
		return nil, err
	}
	if err := makeFile(path); err != nil {
		return nil, err
	}
	written, err := sql.Open("sqlite", source(path, false))
	if err != nil {
		return nil, err
	}
	written.SetMaxOpenConns(1)
	if err := connect(ctx, written); err != nil {
		return nil, errors.Join(err, written.Close())
	}
	if err := migrate(ctx, written); err != nil {
		return nil, errors.Join(err, written.Close())
	}
	w, err := newWriter(ctx, written, path, options)
	if err != nil {
		return nil, errors.Join(err, written.Close())
	}
	pool, err := sql.Open("sqlite", source(path, true))
	if err != nil {
		return nil, errors.Join(err, w.close())
	}
	pool.SetMaxOpenConns(readers)
	pool.SetMaxIdleConns(readers)
	cache := newStatements(pool, options.Trace)
	d := &DB{writer: w, pool: pool, reads: sqlc.New(cache), cache: cache}
	if err := checkFiles(path); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// Close finishes the changes that are waiting, moves everything into the main
// file and closes it. Changes asked for afterwards fail with
// approval.ErrUnavailable.
func (d *DB) Close() error {
	d.closed.Store(true)
	err := errors.Join(d.cache.close(), d.pool.Close(), d.writer.close())
	if err != nil {
		return fmt.Errorf("closing the database: %w", explain(context.Background(), err))
	}
	return nil
}

// explain is explain for reads, which database/sql refuses in words only after
// Close.
func (d *DB) explain(ctx context.Context, err error) error {
	if d.closed.Load() && err != nil {
		return fmt.Errorf("%w: %w", approval.ErrUnavailable, errClosed)
	}
	return explain(ctx, err)
}
