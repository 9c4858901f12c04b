package db

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/gofrs/flock"
)

// lockName is the file in the data folder that a Lock is on, and holderName the
// one that says who has it: Windows lets nobody read or write a locked file.
const (
	lockName   = "countersign.lock"
	holderName = "countersign.holder"
)

// Lock says that one server runs on a data folder. The system drops it when the
// process ends, however that happens.
type Lock struct {
	file   *flock.Flock
	holder string // the path of the description
}

// Holder is who has locked a data folder.
type Holder struct {
	PID     int       `json:"pid"`
	Command string    `json:"command"` // such as "serve"
	Since   time.Time `json:"since"`
}

// HeldError says that another process has locked the data folder.
type HeldError struct {
	Folder string
	// Holder is the process that has the lock; zero if it hasn't written yet who
	// it is. Right after it took the lock, it can be the process that had it
	// before, if that was killed and so couldn't erase its description.
	Holder Holder
}

// Error says who holds the folder and what to do.
func (e *HeldError) Error() string {
	if e.Holder == (Holder{}) {
		return fmt.Sprintf("the data folder %s is in use by another process; end it, or give another folder", e.Folder)
	}
	return fmt.Sprintf("the data folder %s is in use by process %d (%s), since %s; end it, or give another folder",
		e.Folder, e.Holder.PID, e.Holder.Command, e.Holder.Since.UTC().Format(time.RFC3339))
}

// LockFolder locks a data folder for this process, and makes it with mode 0700
// if it is missing. what names the command, for those who find it locked. The
// error is a *HeldError if another process has it; a folder that others may
// access is refused with ErrExposed. Opening the database takes no such lock.
func LockFolder(folder, what string) (*Lock, error) {
	if err := makeFolder(folder); err != nil {
		return nil, fmt.Errorf("locking the data folder: %w", err)
	}
	l := &Lock{
		file:   flock.New(filepath.Join(folder, lockName), flock.SetPermissions(0o600)),
		holder: filepath.Join(folder, holderName),
	}
	locked, err := l.file.TryLock()
	if err != nil {
		return nil, fmt.Errorf("locking the data folder: %w", err)
	}
	if !locked {
		return nil, &HeldError{Folder: folder, Holder: readHolder(l.holder)}
	}
	description, err := json.Marshal(Holder{PID: os.Getpid(), Command: what, Since: time.Now().UTC().Truncate(time.Second)})
	if err == nil {
		// It empties the file first, so that what a killed process left is gone
		// even if there is no room for more.
		err = os.WriteFile(l.holder, append(description, '\n'), 0o600)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("writing who locks the data folder: %w", err), l.file.Unlock())
	}
	return l, nil
}

// readHolder is who described themselves there; zero while they are about to.
func readHolder(path string) Holder {
	var holder Holder
	data, err := os.ReadFile(path)
	if err != nil || json.Unmarshal(data, &holder) != nil {
		return Holder{}
	}
	return holder
}

// Unlock gives the folder free. The files stay: removing the one that is locked
// could remove the lock of a process that just took it.
func (l *Lock) Unlock() error {
	if err := errors.Join(os.Truncate(l.holder, 0), l.file.Unlock()); err != nil {
		return fmt.Errorf("unlocking the data folder: %w", err)
	}
	return nil
}
