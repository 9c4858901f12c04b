// Package audit holds the events: what happened, in order, each bound to the
// one before it by a hash, so that an edited, removed or reordered event shows.
//
// The package encodes and checks; it stores nothing. Cutting off the newest
// events is not visible from the chain alone: that takes a copy of a later hash
// kept elsewhere.
package audit

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"iter"
	"time"
)

// Hash is a SHA-256 value; the zero Hash comes before the first event.
type Hash [sha256.Size]byte

// String is the hash in lower-case hexadecimal.
func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// Event is one appended fact. The fields from Type to Detail say what
// happened; Sequence, Previous and Hash are set by Seal when it is stored.
type Event struct {
	Type      string    // such as "request.created"
	At        time.Time // UTC, to the millisecond
	RequestID string    // empty for facts that concern no request
	Actor     string    // "agent:NAME", "slack:TEAM/USER", "operator:NAME" or "countersign"
	Surface   string    // where it came from; empty if from the server itself
	Version   int       // the request's version; 0 where there is none
	Digest    string    // what was decided or run, in hexadecimal; may be empty
	Detail    []byte    // a JSON object with what else the type records; never a payload

	Sequence int64 // 1 for the first event, then without gaps
	Previous Hash
	Hash     Hash
}

// Seal returns the event as the successor of the event with the given sequence
// and hash (0 and the zero Hash for the first).
func (e Event) Seal(sequence int64, previous Hash) Event {
	e.Sequence = sequence + 1
	e.Previous = previous
	e.Hash = e.hash()
	return e
}

// hash covers every field but Hash itself, each with its length, so that no
// two different events have the same input.
func (e Event) hash() Hash {
	h := sha256.New()
	field := func(data []byte) {
		var length [8]byte
		binary.BigEndian.PutUint64(length[:], uint64(len(data)))
		h.Write(length[:])
		h.Write(data)
	}
	number := func(n int64) {
		var data [8]byte
		binary.BigEndian.PutUint64(data[:], uint64(n))
		field(data[:])
	}
	field([]byte("countersign/event/v1"))
	number(e.Sequence)
	field(e.Previous[:])
	field([]byte(e.Type))
	number(e.At.UnixMilli())
	field([]byte(e.RequestID))
	field([]byte(e.Actor))
	field([]byte(e.Surface))
	number(int64(e.Version))
	field([]byte(e.Digest))
	field(e.Detail)
	return Hash(h.Sum(nil))
}

// ErrBroken is returned by Verify where the chain doesn't hold.
var ErrBroken = errors.New("the audit log was altered")

// Verify reads events from the first on and returns how many it read and the
// last hash. The error wraps ErrBroken and names the first event that doesn't
// follow from the one before it, or is what the sequence itself failed with.
func Verify(events iter.Seq2[Event, error]) (int64, Hash, error) {
	var sequence int64
	var previous Hash
	for event, err := range events {
		if err != nil {
			return sequence, previous, fmt.Errorf("reading event %d: %w", sequence+1, err)
		}
		switch {
		case event.Sequence != sequence+1:
			return sequence, previous, fmt.Errorf("event %d is where event %d should be: %w", event.Sequence, sequence+1, ErrBroken)
		case event.Previous != previous:
			return sequence, previous, fmt.Errorf("event %d doesn't follow event %d: %w", event.Sequence, sequence, ErrBroken)
		case event.Hash != event.hash():
			return sequence, previous, fmt.Errorf("event %d doesn't match its hash: %w", event.Sequence, ErrBroken)
		}
		sequence, previous = event.Sequence, event.Hash
	}
	return sequence, previous, nil
}
