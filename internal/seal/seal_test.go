package seal_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/countersign/countersign/internal/seal"
)

var (
	master = bytes.Repeat([]byte{7}, seal.KeySize)
	start  = time.Date(2026, 1, 2, 3, 59, 0, 0, time.UTC) // a minute before the next hour's key
)

func newSealer(t testing.TB, master []byte) *seal.Sealer {
	t.Helper()
	s, err := seal.New(master, seal.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func parts(texts ...string) [][]byte {
	var all [][]byte
	for _, text := range texts {
		all = append(all, []byte(text))
	}
	return all
}

func TestOpen(t *testing.T) {
	t.Parallel()
	s := newSealer(t, master)
	binding := parts("agent:crm", "tools/call", "crm.delete")
	token, err := s.Seal(start, start.Add(5*time.Minute), binding, []byte("req_1"))
	if err != nil {
		t.Fatal(err)
	}
	if !seal.Ours(token) || seal.Ours("downstream-state") {
		t.Errorf("%q can't be told from another server's", token)
	}
	other := newSealer(t, bytes.Repeat([]byte{8}, seal.KeySize))
	for _, test := range []struct {
		name    string
		sealer  *seal.Sealer
		at      time.Time
		token   string
		binding [][]byte
		want    error
	}{
		{"as it was made", s, start, token, binding, nil},
		{"with the key of before", s, start.Add(2 * time.Minute), token, binding, nil},
		{"a moment before it expires", s, start.Add(5*time.Minute - time.Millisecond), token, binding, nil},
		{"when it expires", s, start.Add(5 * time.Minute), token, binding, seal.ErrExpired},
		{"when its key is gone", s, start.Add(2 * time.Hour), token, binding, seal.ErrInvalid},
		{"before its key was there", s, start.Add(-2 * time.Hour), token, binding, seal.ErrInvalid},
		{"expired, for another use", s, start.Add(5 * time.Minute), token, parts("agent:crm"), seal.ErrInvalid},
		{"another agent's", s, start, token, parts("agent:spy", "tools/call", "crm.delete"), seal.ErrInvalid},
		{"another tool's", s, start, token, parts("agent:crm", "tools/call", "crm.drop"), seal.ErrInvalid},
		{"parts shifted", s, start, token, parts("agent:crmtools", "/call", "crm.delete"), seal.ErrInvalid},
		{"a part more", s, start, token, append(binding[:3:3], nil), seal.ErrInvalid},
		{"another server's key", other, start, token, binding, seal.ErrInvalid},
		{"without its mark", s, start, strings.TrimPrefix(token, "countersign1."), binding, seal.ErrInvalid},
		{"cut", s, start, token[:len(token)-1], binding, seal.ErrInvalid},
		{"longer", s, start, token + "A", binding, seal.ErrInvalid},
		{"with white space", s, start, token + "\n", binding, seal.ErrInvalid},
		{"only the mark", s, start, "countersign1.", binding, seal.ErrInvalid},
		{"empty", s, start, "", binding, seal.ErrInvalid},
		{"endless", s, start, "countersign1." + strings.Repeat("A", seal.MaxToken), binding, seal.ErrInvalid},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			content, err := test.sealer.Open(test.at, test.token, test.binding)
			if !errors.Is(err, test.want) {
				t.Errorf("got %v, want %v", err, test.want)
			}
			if test.want == nil && string(content) != "req_1" || test.want != nil && content != nil {
				t.Errorf("got content %q", content)
			}
		})
	}
}

func TestWhatCannotBeSealed(t *testing.T) {
	t.Parallel()
	if _, err := seal.New(master[1:], seal.Options{}); err == nil {
		t.Error("a short key is accepted")
	}
	s := newSealer(t, master)
	if _, err := s.Seal(start, start.Add(time.Hour+1), nil, nil); err == nil {
		t.Error("a state outlives its keys")
	}
	if _, err := s.Seal(start, start.Add(time.Minute), nil, make([]byte, seal.MaxToken)); err == nil {
		t.Error("a state is longer than Open accepts")
	}
}

// Whatever is changed of a token or of its use, it doesn't open.
func TestAnyChangeIsRefused(t *testing.T) {
	t.Parallel()
	s := newSealer(t, master)
	rapid.Check(t, func(t *rapid.T) {
		binding := rapid.SliceOfN(rapid.SliceOfN(rapid.Byte(), 0, 8), 1, 4).Draw(t, "binding")
		content := rapid.SliceOfN(rapid.Byte(), 0, 64).Draw(t, "content")
		lasts := time.Duration(rapid.Int64Range(1, 3_600_000).Draw(t, "lasts")) * time.Millisecond
		token, err := s.Seal(start, start.Add(lasts), binding, content)
		if err != nil {
			t.Fatal(err)
		}
		after := time.Duration(rapid.Int64Range(0, 3_700_000).Draw(t, "after")) * time.Millisecond
		got, err := s.Open(start.Add(after), token, binding)
		if after < lasts && (err != nil || !bytes.Equal(got, content)) {
			t.Fatalf("got %q, %v", got, err)
		}
		if after >= lasts && !errors.Is(err, seal.ErrExpired) && !errors.Is(err, seal.ErrInvalid) {
			t.Fatalf("opened after its time: %v", err)
		}
		at := rapid.IntRange(0, len(token)-1).Draw(t, "at")
		changed := []byte(token)
		changed[at] ^= byte(rapid.IntRange(1, 255).Draw(t, "by"))
		if _, err := s.Open(start, string(changed), binding); !errors.Is(err, seal.ErrInvalid) {
			t.Fatalf("a changed token: %v", err)
		}
		part := rapid.IntRange(0, len(binding)-1).Draw(t, "part")
		binding[part] = append(binding[part], 1)
		if _, err := s.Open(start, token, binding); !errors.Is(err, seal.ErrInvalid) {
			t.Fatalf("another binding: %v", err)
		}
	})
}

func FuzzOpen(f *testing.F) {
	s := newSealer(f, master)
	binding := parts("agent", "tool")
	token, err := s.Seal(start, start.Add(time.Minute), binding, []byte("content"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(token)
	f.Add(token[:40])
	f.Add("countersign1.AAAA")
	f.Fuzz(func(t *testing.T, forged string) {
		if content, err := s.Open(start, forged, binding); err == nil && forged != token {
			t.Errorf("accepted %q with content %q", forged, content)
		}
	})
}
