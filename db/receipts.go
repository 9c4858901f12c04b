package db

import (
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/gofrs/flock"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/internal/receipt"
)

const (
	receiptKeysName = "receipts.keys"
	// receiptLockName is the file that whoever writes the keys has locked.
	receiptLockName = "receipts.lock"
)

// ReceiptKeys are the keys of a data folder that receipts are signed with: one that
// signs, and the public parts of those that did before. They are in a file of their
// own and not in the database, so that whoever can write the database can neither
// sign receipts nor have others' keys taken for the server's. It is safe for
// concurrent use, and sees at once when another process rotates the keys.
type ReceiptKeys struct {
	path string

	mu     sync.Mutex
	read   fs.FileInfo // the file that the rest is from
	keys   receipt.KeySet
	signer jose.Signer
}

var _ approval.Signer = (*ReceiptKeys)(nil)

// OpenReceiptKeys returns the keys of a data folder, and makes the first one if there
// is none. A file that others may access is refused with ErrExposed, and one that
// can't be read is never replaced: receipts couldn't be verified any more.
func OpenReceiptKeys(folder string, now time.Time) (*ReceiptKeys, error) {
	k := &ReceiptKeys{path: filepath.Join(folder, receiptKeysName)}
	err := k.load()
	if errors.Is(err, fs.ErrNotExist) {
		err = k.change(func(set receipt.KeySet) (receipt.KeySet, error) {
			if len(set.Keys) > 0 {
				return set, nil // another process was first
			}
			return withNewKey(set, now)
		})
	}
	if err != nil {
		return nil, err
	}
	return k, nil
}

// SignReceipt signs a statement with the newest key, as approval.Signer says.
func (k *ReceiptKeys) SignReceipt(statement []byte) (string, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.load(); err != nil {
		return "", err
	}
	signed, err := k.signer.Sign(statement)
	if err != nil {
		return "", fmt.Errorf("signing: %w", err)
	}
	return signed.CompactSerialize()
}

// Public is a JSON Web Key Set of what receipts are verified with, oldest first. Each
// key says since when it signs, and until when it did.
func (k *ReceiptKeys) Public() ([]byte, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.load(); err != nil {
		return nil, err
	}
	var public receipt.KeySet
	for _, key := range k.keys.Keys {
		public.Keys = append(public.Keys, key.Public())
	}
	return public.Encode()
}

// Rotate has a new key sign from now on, and returns its id. The secret part of the
// one before is gone then; its public part stays, to verify what it signed.
func (k *ReceiptKeys) Rotate(now time.Time) (string, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	err := k.change(func(set receipt.KeySet) (receipt.KeySet, error) { return withNewKey(set, now) })
	if err != nil {
		return "", err
	}
	return k.keys.Keys[len(k.keys.Keys)-1].ID, nil
}

// withNewKey is a key set in which the key that signed does so no longer.
func withNewKey(set receipt.KeySet, now time.Time) (receipt.KeySet, error) {
	seed := make([]byte, ed25519.SeedSize)
	if _, err := rand.Read(seed); err != nil {
		return receipt.KeySet{}, fmt.Errorf("reading randomness: %w", err)
	}
	var next receipt.KeySet
	for i, key := range set.Keys {
		if i == len(set.Keys)-1 {
			// The clock may have been set back since it was made.
			key.Expires = max(now.Unix(), key.NotBefore)
		}
		next.Keys = append(next.Keys, key.Public())
	}
	next.Keys = append(next.Keys, receipt.NewKey(seed, now))
	return next, nil
}

// load reads the keys, unless the file is the one that was read before. The error
// wraps fs.ErrNotExist if there is none.
func (k *ReceiptKeys) load() error {
	info, err := os.Stat(k.path)
	if err != nil {
		return fmt.Errorf("checking the keys of receipts: %w", err)
	}
	if err := private(k.path, info, 0o600); err != nil {
		return err
	}
	if k.read != nil && os.SameFile(k.read, info) && k.read.ModTime().Equal(info.ModTime()) && k.read.Size() == info.Size() {
		return nil
	}
	data, err := os.ReadFile(k.path)
	if err != nil {
		return fmt.Errorf("reading the keys of receipts: %w", err)
	}
	keys, err := receipt.ParseKeys(data)
	if err != nil {
		return fmt.Errorf("%s: %w; put back the file as it was, since without it no receipt can be verified", k.path, err)
	}
	newest := keys.Keys[len(keys.Keys)-1]
	private, err := newest.Signing()
	if err != nil {
		return fmt.Errorf("%s: the last key, which signs: %w; put back the file as it was", k.path, err)
	}
	signer, err := jose.NewSigner(
		jose.SigningKey{Algorithm: jose.EdDSA, Key: jose.JSONWebKey{Key: private, KeyID: newest.ID}},
		(&jose.SignerOptions{}).WithType(receipt.Type),
	)
	if err != nil {
		return fmt.Errorf("preparing to sign: %w", err)
	}
	k.read, k.keys, k.signer = info, keys, signer
	return nil
}

// change replaces the keys, while no other process does, and loads them.
func (k *ReceiptKeys) change(do func(receipt.KeySet) (receipt.KeySet, error)) (err error) {
	folder := filepath.Dir(k.path)
	if err := makeFolder(folder); err != nil {
		return err
	}
	lock := flock.New(filepath.Join(folder, receiptLockName), flock.SetPermissions(0o600))
	if err := lock.Lock(); err != nil {
		return fmt.Errorf("locking the keys of receipts: %w", err)
	}
	defer func() { err = errors.Join(err, lock.Unlock()) }()
	if err := k.load(); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	next, err := do(k.keys)
	if err != nil {
		return err
	}
	data, err := next.Encode()
	if err != nil {
		return err
	}
	if err := replaceFile(k.path, data); err != nil {
		return fmt.Errorf("writing the keys of receipts: %w", err)
	}
	return k.load()
}

// replaceFile writes a file of mode 0600 whole, or not at all, and durably.
func replaceFile(path string, data []byte) error {
	folder := filepath.Dir(path)
	file, err := os.CreateTemp(folder, filepath.Base(path)+".*") // with mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(file.Name())
	_, err = file.Write(data)
	if err := errors.Join(err, file.Sync(), file.Close()); err != nil {
		return err
	}
	if err := os.Rename(file.Name(), path); err != nil {
		return err
	}
	if runtime.GOOS == "windows" {
		return nil // it has no way to sync a folder
	}
	// What is signed with a key may be durable before the folder is.
	parent, err := os.Open(folder)
	if err != nil {
		return err
	}
	return errors.Join(parent.Sync(), parent.Close())
}
