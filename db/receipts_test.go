package db_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/countersign/countersign/db"
	"github.com/countersign/countersign/internal/receipt"
)

var keysMadeAt = time.Date(2026, 1, 2, 3, 4, 5, 678_000_000, time.UTC)

func openReceipts(t *testing.T, folder string) *db.ReceiptKeys {
	t.Helper()
	keys, err := db.OpenReceiptKeys(folder, keysMadeAt)
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

// public are the keys that others get.
func public(t *testing.T, keys *db.ReceiptKeys) []receipt.Key {
	t.Helper()
	data, err := keys.Public()
	if err != nil {
		t.Fatal(err)
	}
	set, err := receipt.ParseKeys(data)
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range set.Keys {
		if key.D != "" || strings.Contains(string(data), `"d"`) {
			t.Fatal("what is public has a secret part")
		}
	}
	return set.Keys
}

func TestReceiptKeysAreMadeOnce(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(t.TempDir(), "data")
	made := make([]*db.ReceiptKeys, 16)
	start := make(chan struct{})
	var work sync.WaitGroup
	for i := range made {
		work.Go(func() {
			<-start
			var err error
			if made[i], err = db.OpenReceiptKeys(folder, keysMadeAt); err != nil {
				t.Error(err)
			}
		})
	}
	close(start)
	work.Wait()
	if t.Failed() {
		return
	}
	first := public(t, openReceipts(t, folder))
	for _, keys := range made {
		if got := public(t, keys); len(got) != 1 || got[0] != first[0] {
			t.Fatalf("got the keys %+v, want %+v", got, first)
		}
	}
	if other := public(t, openReceipts(t, filepath.Join(t.TempDir(), "data"))); other[0].ID == first[0].ID {
		t.Error("another folder has the same key")
	}
	info, err := os.Stat(filepath.Join(folder, "receipts.keys"))
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm()&0o077 != 0 {
		t.Errorf("the file has mode %04o", info.Mode().Perm())
	}
}

// Whoever has the keys open signs with the new one as soon as another process has
// made it, and the old ones stay to verify with.
func TestRotateReceiptKeys(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(t.TempDir(), "data")
	server, operator := openReceipts(t, folder), openReceipts(t, folder)
	header := func() string {
		t.Helper()
		text, err := server.SignReceipt([]byte(`{}`))
		if err != nil {
			t.Fatal(err)
		}
		first, _, _ := strings.Cut(text, ".")
		return first
	}
	before := header()
	at := keysMadeAt.Add(time.Hour)
	id, err := operator.Rotate(at)
	if err != nil {
		t.Fatal(err)
	}
	if header() == before {
		t.Error("the server signs with the key that was replaced")
	}
	keys := public(t, server)
	if len(keys) != 2 || keys[1].ID != id || keys[0].Expires != at.Unix() || keys[1].NotBefore != at.Unix() || keys[1].Expires != 0 || keys[0].NotBefore != keysMadeAt.Unix() {
		t.Errorf("got the keys %+v", keys)
	}
	// The secret of the old one is gone.
	data, err := os.ReadFile(filepath.Join(folder, "receipts.keys"))
	if err != nil || strings.Count(string(data), `"d"`) != 1 {
		t.Errorf("the file has more than one secret, or none (%v)", err)
	}
	// A clock that was set back makes no key that signed for less than no time.
	if _, err := operator.Rotate(keysMadeAt.Add(-time.Hour)); err != nil {
		t.Fatal(err)
	}
	if keys := public(t, server); len(keys) != 3 || keys[1].Expires != at.Unix() {
		t.Errorf("after the clock was set back: %+v", keys)
	}
	// Nobody's key is lost, whoever else makes one.
	var work sync.WaitGroup
	for range 8 {
		work.Go(func() {
			if _, err := openReceipts(t, folder).Rotate(at); err != nil {
				t.Error(err)
			}
		})
	}
	work.Wait()
	if keys := public(t, server); len(keys) != 11 {
		t.Errorf("got %d keys, want 11", len(keys))
	}
}

// What can't be read is refused, and not replaced, also by a server that runs.
func TestReceiptKeysThatCannotBeRead(t *testing.T) {
	t.Parallel()
	skipModes(t)
	folder := filepath.Join(t.TempDir(), "data")
	server := openReceipts(t, folder)
	path := filepath.Join(folder, "receipts.keys")
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	secret := whole[strings.Index(string(whole), `"d"`):]
	for name, content := range map[string]string{
		"nothing":           "",
		"half":              string(whole[:len(whole)/2]),
		"no secret":         strings.Replace(string(whole), ",\n      "+string(secret), "\n    }\n  ]\n}\n", 1),
		"another's secret":  strings.Replace(string(whole), string(secret[:12]), `"d": "AAAAAA`, 1),
		"a member too many": strings.Replace(string(whole), `"kty"`, `"key_ops": [], "kty"`, 1),
	} {
		if content == string(whole) {
			t.Fatalf("%s: nothing is changed", name)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := db.OpenReceiptKeys(folder, keysMadeAt); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: opened (%v)", name, err)
		}
		if text, err := server.SignReceipt([]byte(`{}`)); err == nil {
			t.Errorf("%s: signed %s", name, text)
		}
		if _, err := server.Rotate(keysMadeAt); err == nil {
			t.Errorf("%s: replaced", name)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != content {
			t.Errorf("%s: the file is another one now (%v)", name, err)
		}
	}
	if err := os.WriteFile(path, whole, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := server.SignReceipt([]byte(`{}`)); err != nil {
		t.Errorf("once it is as it was: %v", err)
	}
	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}
	if _, err := server.SignReceipt([]byte(`{}`)); !errors.Is(err, db.ErrExposed) || !strings.Contains(err.Error(), "chmod 0600") {
		t.Errorf("a file that others may read: %v", err)
	}
}
