package db

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

const (
	keyName = "state.key"
	keySize = 32
)

// Key returns the secret of a data folder, from which the keys for what clients
// hold are derived, and makes it if it is missing: 32 random bytes. Whoever has it
// can forge what clients hold, so one that others may access is refused with
// ErrExposed, and one of another length isn't replaced. Removing the file ends
// everything that was made with it.
func Key(folder string) ([]byte, error) {
	if err := makeFolder(folder); err != nil {
		return nil, err
	}
	path := filepath.Join(folder, keyName)
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		if err := makeKey(folder, path); err != nil {
			return nil, fmt.Errorf("making %s: %w", path, err)
		}
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("checking the key: %w", err)
	}
	if err := private(path, info, 0o600); err != nil {
		return nil, err
	}
	key, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading the key: %w", err)
	}
	if len(key) != keySize {
		return nil, fmt.Errorf("%s has %d bytes, and a key has %d: remove the file, and a new one is made", path, len(key), keySize)
	}
	return key, nil
}

// makeKey writes a key whole, or not at all: it is stored under another name and
// then linked, which fails if another process was first. That one's key is used
// then.
func makeKey(folder, path string) error {
	key := make([]byte, keySize)
	if _, err := rand.Read(key); err != nil {
		return fmt.Errorf("reading randomness: %w", err)
	}
	file, err := os.CreateTemp(folder, keyName+".*") // with mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(file.Name())
	_, err = file.Write(key)
	if err := errors.Join(err, file.Sync(), file.Close()); err != nil {
		return err
	}
	if err := os.Link(file.Name(), path); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}
