//go:build !linux

package db_test

import "errors"

// mountSmall is for TestFullDisk, which is only on Linux.
func mountSmall(string) error { return errors.ErrUnsupported }
