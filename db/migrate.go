package db

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"

	"github.com/pressly/goose/v3"
)

//go:embed migrations/sqlite/*.sql
var migrations embed.FS

// migrate brings the file to the schema of this program.
func migrate(ctx context.Context, on *sql.DB) error {
	files, err := fs.Sub(migrations, "migrations/sqlite")
	if err != nil {
		return err
	}
	provider, err := goose.NewProvider(goose.DialectSQLite3, on, files, goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return fmt.Errorf("reading the migrations: %w", err)
	}
	current, target, err := provider.GetVersions(ctx)
	if err != nil {
		return fmt.Errorf("reading the schema's version: %w", err)
	}
	if current > target {
		return fmt.Errorf("the schema is at version %d, this program knows %d: %w", current, target, ErrNewer)
	}
	if current == target {
		return nil
	}
	if _, err := provider.Up(ctx); err != nil {
		// Another process that opened the same folder may have been first.
		if now, _, again := provider.GetVersions(ctx); again == nil && now == target {
			return nil
		}
		var partial *goose.PartialError
		if errors.As(err, &partial) {
			err = partial.Err
		}
		return fmt.Errorf("upgrading the schema from version %d: %w", current, err)
	}
	return nil
}
