package db

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"time"
)

// busyTimeout is how long a change waits for another process that writes. It
// is shorter than what a decision may take, so that a click during a longer
// lock fails with the reason.
const busyTimeout = 1500 * time.Millisecond

// source is the driver's name for the file. Settings are made here and nowhere
// else: a statement like PRAGMA would reach one connection of the pool only.
func source(path string, readOnly bool) string {
	settings := url.Values{
		"_pragma": {
			fmt.Sprintf("busy_timeout(%d)", busyTimeout.Milliseconds()),
			"journal_mode(WAL)",
			"synchronous(FULL)",
			"foreign_keys(1)",
			// What SQLite keeps to undo a savepoint stays out of the temporary
			// folder, which may be another disk, full, or missing.
			"temp_store(MEMORY)",
		},
		"_txlock":    {"immediate"},
		"_dqs":       {"0"},
		"_defensive": {"1"},
		"_error_rc":  {"1"},
	}
	if readOnly {
		settings.Set("_query_only", "1")
	}
	return fileURI(path, settings)
}

// lookSource is the driver's name for a file that is only looked at: SQLite
// itself opens it for reading, so that nothing in it changes, and ends no
// journal that another process writes.
func lookSource(path string) string {
	return fileURI(path, url.Values{
		"mode":        {"ro"},
		"_pragma":     {fmt.Sprintf("busy_timeout(%d)", busyTimeout.Milliseconds())},
		"_query_only": {"1"},
		"_dqs":        {"0"},
		"_defensive":  {"1"},
		"_error_rc":   {"1"},
	})
}

func fileURI(path string, settings url.Values) string {
	path = filepath.ToSlash(path)
	if !strings.HasPrefix(path, "/") {
		path = "/" + path // C:/data becomes /C:/data, as file URIs have it
	}
	location := url.URL{Scheme: "file", Path: path, RawQuery: settings.Encode()}
	return location.String()
}

// connect makes the first connection, which makes a new file one with a WAL.
// SQLite waits for no lock there, so it is tried for as long as a change waits.
func connect(ctx context.Context, on *sql.DB) error {
	end := time.Now().Add(busyTimeout)
	for {
		err := on.PingContext(ctx)
		if err == nil || !errors.Is(explain(ctx, err), ErrLocked) || time.Now().After(end) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// checkDurable reads back the settings that an acknowledged change depends on.
// SQLite ignores a setting that it doesn't know or can't make.
func checkDurable(ctx context.Context, conn *sql.Conn) error {
	for _, setting := range []struct{ name, want string }{
		{"journal_mode", "wal"},
		{"synchronous", "2"},
		{"foreign_keys", "1"},
	} {
		var got string
		if err := conn.QueryRowContext(ctx, "PRAGMA "+setting.name).Scan(&got); err != nil {
			return fmt.Errorf("reading back %s: %w", setting.name, err)
		}
		if got != setting.want {
			return fmt.Errorf("%s is %s and can't be set to %s; is the data folder on a network file system?", setting.name, got, setting.want)
		}
	}
	return nil
}
