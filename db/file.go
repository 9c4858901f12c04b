package db

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
)

// makeFolder makes the data folder if it is missing and refuses one that
// others may read.
func makeFolder(folder string) error {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return fmt.Errorf("making the data folder: %w", err)
	}
	info, err := os.Stat(folder)
	if err != nil {
		return fmt.Errorf("checking the data folder: %w", err)
	}
	return private(folder, info, 0o700)
}

// makeFile makes the database's file with mode 0600 if it is missing: SQLite
// would make it readable for others, and gives the -wal and -shm files the mode
// of this one. A file that exists is not opened here, because closing it again
// would drop the locks that this process may hold on it.
func makeFile(path string) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err == nil {
		err = file.Close()
	} else if errors.Is(err, fs.ErrExist) {
		err = nil
	}
	if err != nil {
		return fmt.Errorf("making the file: %w", err)
	}
	return checkFiles(path)
}

// checkFiles refuses the database's files if others may read them.
func checkFiles(path string) error {
	for _, name := range []string{path, path + "-wal", path + "-shm"} {
		info, err := os.Stat(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("checking the mode of %s: %w", name, err)
		}
		if err := private(name, info, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// private returns ErrExposed with what to do if anybody but the owner may
// access the file. Windows has no such modes.
func private(name string, info fs.FileInfo, want fs.FileMode) error {
	mode := info.Mode().Perm()
	if runtime.GOOS == "windows" || mode&0o077 == 0 {
		return nil
	}
	return fmt.Errorf("%s has mode %04o: %w; run: chmod %04o %q", name, mode, ErrExposed, want, name)
}
