package db

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/countersign/countersign/db/internal/sqlc"
)

// WaitingLimit and EventPage are limits that tests go beyond.
const (
	WaitingLimit = waitingLimit
	EventPage    = eventPage
)

// CheckDurable and Source are what every connection is opened by.
var (
	CheckDurable = checkDurable
	Source       = source
)

// Migrations are the embedded files.
var Migrations = migrations

// SetMaxPages bounds the size of the file, as seen by the writer.
func (d *DB) SetMaxPages(pages int64) error {
	return d.writer.do(context.Background(), func(*sqlc.Queries) error {
		_, err := d.writer.conn.ExecContext(context.Background(), fmt.Sprintf("PRAGMA max_page_count = %d", pages))
		return err
	})
}

// Pages is the size of the file.
func (d *DB) Pages() (int64, error) {
	var pages int64
	err := d.pool.QueryRow("PRAGMA page_count").Scan(&pages)
	return pages, err
}

// Setting is a PRAGMA's value on the writing connection.
func (d *DB) Setting(name string) (string, error) {
	var value string
	err := d.writer.do(context.Background(), func(*sqlc.Queries) error {
		return d.writer.conn.QueryRowContext(context.Background(), "PRAGMA "+name).Scan(&value)
	})
	return value, err
}

// Do runs a change as the methods do, with the connection to run any SQL on.
func (d *DB) Do(ctx context.Context, change func(*sql.Conn) error) error {
	return d.writer.do(ctx, func(*sqlc.Queries) error { return change(d.writer.conn) })
}

// Waiting is how many changes wait to be written.
func (d *DB) Waiting() int { return len(d.writer.queue) }
