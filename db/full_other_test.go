//go:build !linux

package db_test

import "errors"

// mountSmall is for tests that are only on Linux.
func mountSmall(string) error { return errors.ErrUnsupported }
