package db_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"modernc.org/sqlite"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/db"
	"github.com/countersign/countersign/db/dbtest"
)

// failCommit makes the COMMIT of the transaction that it is in fail.
func failCommit(conn *sql.Conn) error {
	_, err := conn.ExecContext(context.Background(), `
		PRAGMA defer_foreign_keys = ON;
		INSERT INTO payloads (request_id, version, payload) VALUES ('nobody', 1, x'00')`)
	return err
}

// TestLostTransactionIsWhatEachCallerHears shows that a refusal which rests on
// another change isn't reported once that change is undone.
func TestLostTransactionIsWhatEachCallerHears(t *testing.T) {
	t.Parallel()
	d := dbtest.Open(t)
	if err := d.Insert(t.Context(), request(1, 10), nil, admitted); err != nil {
		t.Fatal(err)
	}
	refusal := errors.New("somebody was faster")
	type answer struct {
		request *approval.Request
		err     error
	}
	first := func(r *approval.Request) error {
		if r.Reason != "" {
			return refusal
		}
		r.Reason = "changed"
		r.Revision++
		return nil
	}
	release := hold(t, d)
	const callers = 3
	answers := make(chan answer, callers)
	for i := range callers {
		go func() {
			r, err := d.Update(context.Background(), request(1, 0).ID, first)
			answers <- answer{r, err}
		}()
		untilWaiting(t, d, i+1)
	}
	panicked := make(chan any, 1)
	go func() {
		defer func() { panicked <- recover() }()
		_ = d.Do(context.Background(), func(*sql.Conn) error { panic("a bug") })
	}()
	untilWaiting(t, d, callers+1)
	broken := make(chan error, 1)
	go func() { broken <- d.Do(context.Background(), failCommit) }()
	untilWaiting(t, d, callers+2)
	release()

	for range callers {
		got := <-answers
		if got.request != nil || !errors.Is(got.err, approval.ErrUnavailable) || errors.Is(got.err, refusal) {
			t.Errorf("got %+v (%v), want no request and ErrUnavailable", got.request, got.err)
		}
	}
	if value := fmt.Sprint(<-panicked); !strings.Contains(value, "a bug") {
		t.Errorf("got the panic %q, want the change's own", value)
	}
	if err := <-broken; !errors.Is(err, approval.ErrUnavailable) {
		t.Errorf("got %v, want ErrUnavailable", err)
	}
	if r, err := d.Request(t.Context(), request(1, 0).ID); err != nil || r.Reason != "" {
		t.Errorf("got %+v (%v) stored, want it as it was", r, err)
	}
	if _, err := d.Update(t.Context(), request(1, 0).ID, first); err != nil {
		t.Errorf("trying again: %v", err)
	}
	if r, err := d.Update(t.Context(), request(1, 0).ID, first); r == nil || !errors.Is(err, refusal) {
		t.Errorf("got %v (%v), want the request and the refusal", r, err)
	}
}

// TestRefusalInALostTransaction shows that what one caller was refused isn't
// what the others hear when the transaction is lost with it.
func TestRefusalInALostTransaction(t *testing.T) {
	t.Parallel()
	d := dbtest.Open(t)
	refusal := errors.New("no")
	release := hold(t, d)
	refused, inserted := make(chan error, 1), make(chan error, 1)
	go func() {
		refused <- d.Do(context.Background(), func(conn *sql.Conn) error {
			if _, err := conn.ExecContext(context.Background(), "ROLLBACK"); err != nil {
				return err
			}
			return refusal
		})
	}()
	untilWaiting(t, d, 1)
	go func() { inserted <- d.Insert(context.Background(), request(1, 10), nil, admitted) }()
	untilWaiting(t, d, 2)
	release()
	for who, answer := range map[string]chan error{"the one that was refused": refused, "the other": inserted} {
		if err := <-answer; !errors.Is(err, approval.ErrUnavailable) || errors.Is(err, refusal) {
			t.Errorf("%s: got %v, want ErrUnavailable without the refusal", who, err)
		}
	}
	if err := d.Insert(t.Context(), request(1, 10), nil, admitted); err != nil {
		t.Errorf("trying again: %v", err)
	}
}

// TestRollbackThatFails shows that a transaction which couldn't be undone is
// undone before the next one, and that nothing of it is ever stored.
func TestRollbackThatFails(t *testing.T) {
	t.Parallel()
	d := dbtest.Open(t)
	var forbidden atomic.Bool
	if err := d.Do(t.Context(), func(conn *sql.Conn) error {
		return conn.Raw(func(driver any) error {
			return driver.(sqlite.AuthorizerRegisterer).RegisterAuthorizer(
				func(action sqlite.AuthorizerActionCode, operation, _, _, _ string) sqlite.AuthorizerReturnCode {
					if action == sqlite.AuthTransaction && operation == "ROLLBACK" && forbidden.Load() {
						return sqlite.AuthorizerDeny
					}
					return sqlite.AuthorizerOK
				})
		})
	}); err != nil {
		t.Fatal(err)
	}
	forbidden.Store(true)
	if err := d.Do(t.Context(), func(conn *sql.Conn) error {
		if _, err := conn.ExecContext(context.Background(), "CREATE TABLE remains (number INTEGER)"); err != nil {
			return err
		}
		return failCommit(conn)
	}); !errors.Is(err, approval.ErrUnavailable) {
		t.Errorf("got %v, want ErrUnavailable", err)
	}
	for range 2 {
		if err := d.Insert(t.Context(), request(1, 10), nil, admitted); !errors.Is(err, db.ErrDisk) || !errors.Is(err, approval.ErrUnavailable) {
			t.Errorf("while it can't be undone: got %v, want ErrDisk and ErrUnavailable", err)
		}
	}
	forbidden.Store(false)
	if err := d.Insert(t.Context(), request(1, 10), nil, admitted); err != nil {
		t.Errorf("once it can be undone: %v", err)
	}
	if err := d.Do(t.Context(), func(conn *sql.Conn) error {
		var tables int
		err := conn.QueryRowContext(context.Background(), "SELECT count(*) FROM sqlite_schema WHERE name = 'remains'").Scan(&tables)
		if err == nil && tables != 0 {
			err = errors.New("a part of the lost transaction was stored")
		}
		return err
	}); err != nil {
		t.Error(err)
	}
}
