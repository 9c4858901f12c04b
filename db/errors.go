package db

import (
	"context"
	"errors"
	"fmt"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/countersign/countersign/approval"
)

// What a caller can test for with errors.Is. ErrFull, ErrLocked and ErrDisk
// come with approval.ErrUnavailable.
var (
	// ErrFull means that the disk is full. On Unix a quota that is used up is
	// ErrDisk: SQLite doesn't tell it from other failures to write.
	ErrFull = errors.New("the disk is full; free some space on it")
	// ErrLocked means that another process holds the database.
	ErrLocked = errors.New("another process holds the database; try again, or end that process")
	// ErrDisk means that the database's files can't be opened, read or written.
	ErrDisk = errors.New("the database's files can't be read or written; check the disk and any quota on it, and that the data folder belongs to the account the server runs as")
	// ErrCorrupt means that the file is no database or is damaged. Nothing
	// repairs it: the data folder must be restored from a copy.
	ErrCorrupt = errors.New("the database is damaged; stop the server and restore the data folder from a copy")
	// ErrNewer means that a newer countersign has upgraded the file.
	ErrNewer = errors.New("the database was written by a newer countersign; run that version, or restore a copy from before the upgrade")
	// ErrExposed means that others may access the data.
	ErrExposed = errors.New("other accounts on this machine can access it")
)

var errClosed = errors.New("the database is closed")

// explain adds to an error of SQLite what it means for the caller, and returns
// other errors, and those that say it already, as they are.
func explain(ctx context.Context, err error) error {
	if err == nil || errors.Is(err, approval.ErrUnavailable) || errors.Is(err, ErrCorrupt) {
		return err
	}
	if ctx.Err() != nil && !errors.Is(err, ctx.Err()) && code(err) == sqlite3.SQLITE_INTERRUPT {
		return ctx.Err()
	}
	switch code(err) {
	case sqlite3.SQLITE_FULL:
		return unavailable(ErrFull, err)
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL:
		return unavailable(ErrLocked, err)
	case sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM:
		return unavailable(ErrDisk, err)
	case sqlite3.SQLITE_NOMEM:
		return fmt.Errorf("%w: %w", approval.ErrUnavailable, err)
	case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB:
		return fmt.Errorf("%w (%w)", ErrCorrupt, err)
	}
	return err
}

func unavailable(reason, err error) error {
	return fmt.Errorf("%w: %w (%w)", approval.ErrUnavailable, reason, err)
}

// code is SQLite's primary result code, 0 for errors of other origin.
func code(err error) int {
	var failure *sqlite.Error
	if !errors.As(err, &failure) {
		return 0
	}
	return failure.Code() & 0xff
}
