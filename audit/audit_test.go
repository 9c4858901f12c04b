package audit_test

import (
	"errors"
	"iter"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/countersign/countersign/audit"
)

func chain(events ...audit.Event) []audit.Event {
	var sequence int64
	var previous audit.Hash
	for i, e := range events {
		events[i] = e.Seal(sequence, previous)
		sequence, previous = events[i].Sequence, events[i].Hash
	}
	return events
}

func read(events []audit.Event) iter.Seq2[audit.Event, error] {
	return func(yield func(audit.Event, error) bool) {
		for _, e := range events {
			if !yield(e, nil) {
				return
			}
		}
	}
}

func sample() []audit.Event {
	at := time.Date(2026, 12, 1, 3, 30, 0, 0, time.UTC)
	return chain(
		audit.Event{Type: "request.created", At: at, RequestID: "req_1", Actor: "agent:a", Version: 1, Digest: "ab", Detail: []byte(`{}`)},
		audit.Event{Type: "decision.recorded", At: at.Add(time.Second), RequestID: "req_1", Actor: "slack:T0/U0", Surface: "slack", Version: 1, Digest: "ab", Detail: []byte(`{"verdict":"approve"}`)},
		audit.Event{Type: "request.applied", At: at.Add(2 * time.Second), RequestID: "req_1", Actor: "agent:a", Version: 1, Digest: "ab"},
	)
}

func TestVerify(t *testing.T) {
	t.Parallel()
	events := sample()
	count, last, err := audit.Verify(read(events))
	if err != nil || count != 3 || last != events[2].Hash {
		t.Errorf("got %d, %s, %v", count, last, err)
	}
}

// Whatever one does to the stored events, it shows, but for cutting off the
// newest.
func TestVerifyFindsTampering(t *testing.T) {
	t.Parallel()
	changes := map[string]func(*audit.Event){
		"type":     func(e *audit.Event) { e.Type += "x" },
		"time":     func(e *audit.Event) { e.At = e.At.Add(time.Millisecond) },
		"request":  func(e *audit.Event) { e.RequestID += "x" },
		"actor":    func(e *audit.Event) { e.Actor += "x" },
		"surface":  func(e *audit.Event) { e.Surface += "x" },
		"version":  func(e *audit.Event) { e.Version++ },
		"digest":   func(e *audit.Event) { e.Digest += "x" },
		"detail":   func(e *audit.Event) { e.Detail = append(slices.Clone(e.Detail), ' ') },
		"hash":     func(e *audit.Event) { e.Hash[0] ^= 1 },
		"previous": func(e *audit.Event) { e.Previous[0] ^= 1 },
		"sequence": func(e *audit.Event) { e.Sequence++ },
		"moved between fields": func(e *audit.Event) {
			e.Type, e.RequestID = e.Type[:1], e.Type[1:]+e.RequestID
		},
	}
	for name, change := range changes {
		for i := range sample() {
			events := sample()
			change(&events[i])
			if _, _, err := audit.Verify(read(events)); !errors.Is(err, audit.ErrBroken) {
				t.Errorf("changed %s of event %d: got %v", name, i+1, err)
			}
		}
	}
	for name, events := range map[string][]audit.Event{
		"removed the first": sample()[1:],
		"removed one":       slices.Delete(sample(), 1, 2),
		"swapped two":       {sample()[0], sample()[2], sample()[1]},
		"repeated one":      {sample()[0], sample()[0], sample()[1]},
	} {
		if _, _, err := audit.Verify(read(events)); !errors.Is(err, audit.ErrBroken) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestVerifyPassesReadErrorsOn(t *testing.T) {
	t.Parallel()
	broken := errors.New("the disk is gone")
	_, _, err := audit.Verify(func(yield func(audit.Event, error) bool) { yield(audit.Event{}, broken) })
	if !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
}

// Two different events never have the same hash input.
func TestHashSeparatesFields(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		draw := func(label string) audit.Event {
			text := rapid.StringMatching(`[ab]{0,2}`)
			return audit.Event{
				Type:      text.Draw(t, label+" type"),
				RequestID: text.Draw(t, label+" request"),
				Actor:     text.Draw(t, label+" actor"),
				Surface:   text.Draw(t, label+" surface"),
				Digest:    text.Draw(t, label+" digest"),
				Detail:    []byte(text.Draw(t, label+" detail")),
			}.Seal(0, audit.Hash{})
		}
		a, b := draw("first"), draw("second")
		same := a.Type == b.Type && a.RequestID == b.RequestID && a.Actor == b.Actor &&
			a.Surface == b.Surface && a.Digest == b.Digest && string(a.Detail) == string(b.Detail)
		if (a.Hash == b.Hash) != same {
			t.Fatalf("%+v and %+v", a, b)
		}
	})
}
