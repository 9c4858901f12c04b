// Package receipt holds what a server writes in a receipt, and the form of the keys
// that it signs receipts with, so that whoever verifies one reads what was written.
//
// A receipt is a JSON Web Signature (RFC 7515) in its compact form, which is one
// line of text: a protected header with the Type and the key's id, a Statement, and
// an Ed25519 signature over both. The package signs and verifies nothing.
package receipt

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/countersign/countersign/internal/strictjson"
)

// Type is the "typ" in the protected header of each receipt. It is signed with the
// statement, so nothing else that is signed with the same key, or was written for
// another version of the statement, passes for a receipt.
const Type = "countersign-receipt.v1+jws"

// timeForm is how times are written: UTC, to the millisecond.
const timeForm = "2006-01-02T15:04:05.000Z"

// Statement is what a receipt says of one decision.
type Statement struct {
	Receipt string `json:"receipt"`
	Request string `json:"request"`
	Version int    `json:"version"`
	Digest  string `json:"digest"` // of what was decided on, in lower-case hexadecimal
	Verdict string `json:"verdict"`
	Scope   string `json:"scope"` // how far an approval goes; empty if it is none
	// DecidedBy is a person, such as "slack:T024BE7LD/U024BE7LH", or what decided
	// without one. Person says which.
	DecidedBy string `json:"decided_by"`
	Person    bool   `json:"person"`
	// ClientConfirmed means that the agent's own client approved. ActsFor is then the
	// person whom the client acts for, who isn't known to have seen it; empty if that
	// is nobody.
	ClientConfirmed bool   `json:"client_confirmed,omitempty"`
	ActsFor         string `json:"acts_for,omitempty"`
	Surface         string `json:"surface"`
	Roles           []Role `json:"roles"`  // that the person held and that were asked for
	Policy          string `json:"policy"` // the revision that ruled
	DecidedAt       string `json:"decided_at"`
}

// Role is a role that somebody held when they decided, and through what.
type Role struct {
	Role string `json:"role"`
	Via  string `json:"via"`
}

// Time is a time as a Statement has it.
func Time(t time.Time) string { return t.UTC().Format(timeForm) }

// ParseTime reads what Time writes, and nothing else.
func ParseTime(text string) (time.Time, error) {
	t, err := time.Parse(timeForm, text)
	if err != nil || Time(t) != text {
		return time.Time{}, fmt.Errorf("%q is not a time like %s", text, timeForm)
	}
	return t, nil
}

// Parse reads a statement that was signed. It takes exactly the members of a
// Statement: one that says more, which this version wouldn't heed, is refused.
func Parse(data []byte) (Statement, error) {
	var s Statement
	if err := decode(data, &s); err != nil {
		return Statement{}, fmt.Errorf("reading the statement: %w", err)
	}
	again, err := json.Marshal(s)
	if err != nil {
		return Statement{}, fmt.Errorf("reading the statement: %w", err)
	}
	// Members that are missing, null or in another case would be read too.
	if !bytes.Equal(again, data) {
		return Statement{}, errors.New("the statement isn't written as countersign writes it")
	}
	return s, nil
}

// decode reads one JSON value without anything that it doesn't know, or that could
// be read in two ways.
func decode(data []byte, into any) error {
	if err := strictjson.Check(data); err != nil {
		return err
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		return err
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return errors.New("there is more after it")
	}
	return nil
}
