package db_test

import (
	"database/sql"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/audit"
	"github.com/countersign/countersign/db"
	"github.com/countersign/countersign/db/dbtest"
	"github.com/countersign/countersign/policy"
)

// TestMain runs this program as a child where a test needs another process.
func TestMain(m *testing.M) {
	if run, ok := children[os.Getenv(childVariable)]; ok {
		go func() {
			// The input ends with the test, even if that is killed.
			_, _ = io.Copy(io.Discard, os.Stdin)
			os.Exit(1)
		}()
		if err := run(os.Getenv(folderVariable)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestStore(t *testing.T) {
	t.Parallel()
	run := &queries{texts: make(map[string]string)}
	dbtest.Exercise(t, func(t testing.TB, options db.Options) dbtest.Store {
		trace := options.Trace
		options.Trace = func(statement string) {
			run.note(statement)
			trace(statement)
		}
		return dbtest.OpenIn(t, newFolder(t), options)
	})
	t.Run("plans", func(t *testing.T) { checkPlans(t, run) })
}

var now = time.Date(2026, 1, 2, 3, 4, 5, 678_000_000, time.UTC)

// proposal is one that nobody made before: a second pending request for the same
// would be the first one.
func proposal() approval.Proposal {
	return approval.Proposal{
		Purpose: "Pay the invoices of March",
		Action:  "payouts.create",
		Payload: fmt.Appendf(nil, `{"amount":%d,"currency":"EUR"}`, rand.Int64()),
	}
}

// admitted lets every request in.
func admitted(approval.Backlog) error { return nil }

// request is a pending request with a payload of so many bytes. Its id is made
// of number.
func request(number, size int) *approval.Request {
	payload := make(approval.Payload, size)
	for i := range payload {
		payload[i] = 'x'
	}
	return &approval.Request{
		Executor:  approval.ByAgent,
		ID:        approval.ID(fmt.Sprintf("req_%032x", number)),
		Agent:     "deployer",
		Purpose:   "Pay",
		Payload:   payload,
		Version:   1,
		Ruling:    policy.Ruling{Effect: policy.RequireApproval},
		Status:    approval.Pending,
		CreatedAt: now,
		ExpiresAt: now.Add(time.Hour),
		UpdatedAt: now,
		Revision:  1,
	}
}

// token is a token with an event, which a request made by hand has not.
func token(number int) (approval.Token, approval.TokenHash) {
	hash := approval.TokenHash{byte(number >> 8), byte(number)}
	return approval.Token{ID: fmt.Sprintf("tok_%032x", number), Agent: "deployer", CreatedAt: now}, hash
}

// checkFile checks the file itself and the chain of events in it, and returns
// the number of events.
func checkFile(t testing.TB, d *db.DB, folder string) int64 {
	t.Helper()
	raw := rawOpen(t, folder)
	var result string
	if err := raw.QueryRow("PRAGMA integrity_check").Scan(&result); err != nil || result != "ok" {
		t.Errorf("integrity_check says %q (%v)", result, err)
	}
	if rows, err := raw.Query("PRAGMA foreign_key_check"); err != nil {
		t.Error(err)
	} else {
		if rows.Next() {
			t.Error("foreign_key_check found a row without what it refers to")
		}
		if err := rows.Close(); err != nil {
			t.Error(err)
		}
	}
	n, _, err := audit.Verify(d.Events(t.Context()))
	if err != nil {
		t.Error(err)
	}
	return n
}

// rawOpen opens the file beside the database, as another program would.
func rawOpen(t testing.TB, folder string) *sql.DB {
	t.Helper()
	raw, err := sql.Open("sqlite", db.Source(filepath.Join(folder, "countersign.db"), false))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := raw.Close(); err != nil {
			t.Error(err)
		}
	})
	return raw
}

func newFolder(t testing.TB) string { return filepath.Join(t.TempDir(), "data") }
