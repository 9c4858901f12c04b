package seal_test

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"slices"
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
	often, err := seal.New(master, seal.Options{Rotate: time.Hour - time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
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
		{"the last moment of its key", s, start.Add(61*time.Minute - time.Millisecond), token, binding, seal.ErrExpired},
		{"when its key is gone", s, start.Add(61 * time.Minute), token, binding, seal.ErrInvalid},
		{"a day later", s, start.Add(24 * time.Hour), token, binding, seal.ErrInvalid},
		{"a moment before it was made", s, start.Add(-time.Millisecond), token, binding, seal.ErrInvalid},
		{"before its key was there", s, start.Add(-time.Hour), token, binding, seal.ErrInvalid},
		{"expired, for another use", s, start.Add(5 * time.Minute), token, parts("agent:crm"), seal.ErrInvalid},
		{"another agent's", s, start, token, parts("agent:spy", "tools/call", "crm.delete"), seal.ErrInvalid},
		{"another tool's", s, start, token, parts("agent:crm", "tools/call", "crm.drop"), seal.ErrInvalid},
		{"parts shifted", s, start, token, parts("agent:crmtools", "/call", "crm.delete"), seal.ErrInvalid},
		{"a part more", s, start, token, append(binding[:3:3], nil), seal.ErrInvalid},
		{"for no use", s, start, token, nil, seal.ErrInvalid},
		{"another server's key", other, start, token, binding, seal.ErrInvalid},
		{"the same key, rotated at other times", often, start, token, binding, seal.ErrInvalid},
		{"said to be sealed with the key of before", s, start, otherEpoch(t, token, -1), binding, seal.ErrInvalid},
		{"said to be sealed with the next key", s, start.Add(2 * time.Minute), otherEpoch(t, token, 1), binding, seal.ErrInvalid},
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

// otherEpoch is a token that says of itself that another key sealed it.
func otherEpoch(t *testing.T, token string, by int64) string {
	t.Helper()
	prefix, text, _ := strings.Cut(token, ".")
	sealed, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	binary.BigEndian.PutUint64(sealed, binary.BigEndian.Uint64(sealed)+uint64(by))
	return prefix + "." + base64.RawURLEncoding.EncodeToString(sealed)
}

func TestWhatCannotBeSealed(t *testing.T) {
	t.Parallel()
	if _, err := seal.New(master[1:], seal.Options{}); err == nil {
		t.Error("a short key is accepted")
	}
	if _, err := seal.New(master, seal.Options{Rotate: time.Millisecond}); err == nil {
		t.Error("a key that is gone before anybody can answer is accepted")
	}
	s := newSealer(t, master)
	if _, err := s.Seal(start, start.Add(time.Hour+1), nil, nil); err == nil {
		t.Error("a state outlives its keys")
	}
	if _, err := s.Seal(start, start, nil, nil); err == nil {
		t.Error("a state is sealed that has expired")
	}
	if _, err := s.Seal(start, start.Add(time.Minute), nil, make([]byte, seal.MaxToken)); err == nil {
		t.Error("a state is longer than Open accepts")
	}
	broken, err := seal.New(master, seal.Options{Rand: strings.NewReader("too little")})
	if err != nil {
		t.Fatal(err)
	}
	if token, err := broken.Seal(start, start.Add(time.Minute), nil, nil); err == nil {
		t.Errorf("sealed without randomness: %q", token)
	}
}

// A flow that spans a change of keys: what was sealed before opens after it, in
// another process too, and what is sealed then is sealed with the new key.
func TestRotationWithinAFlow(t *testing.T) {
	t.Parallel()
	binding := parts("agent:crm", "tools/call")
	const lasts = 10 * time.Minute
	before, err := newSealer(t, master).Seal(start, start.Add(lasts), binding, []byte("round 1"))
	if err != nil {
		t.Fatal(err)
	}
	restarted, at := newSealer(t, master), start.Add(2*time.Minute)
	if content, err := restarted.Open(at, before, binding); err != nil || string(content) != "round 1" {
		t.Errorf("the state of before the change: %q, %v", content, err)
	}
	after, err := restarted.Seal(at, at.Add(lasts), binding, []byte("round 2"))
	if err != nil {
		t.Fatal(err)
	}
	if content, err := restarted.Open(at.Add(lasts-time.Millisecond), after, binding); err != nil || string(content) != "round 2" {
		t.Errorf("the state of after the change: %q, %v", content, err)
	}
	// Who has only the keys of before can't open it: their clock says so.
	if _, err := restarted.Open(start, after, binding); !errors.Is(err, seal.ErrInvalid) {
		t.Errorf("opened with a key of the future: %v", err)
	}
}

// Two tokens of the same thing tell nobody that they are the same.
func TestTokensDiffer(t *testing.T) {
	t.Parallel()
	s, seen := newSealer(t, master), make(map[string]bool)
	for range 1000 {
		token, err := s.Seal(start, start.Add(time.Minute), nil, []byte("req_1"))
		if err != nil {
			t.Fatal(err)
		}
		if seen[token] || strings.Contains(token, "req_1") {
			t.Fatalf("got %q", token)
		}
		seen[token] = true
	}
}

// A token opens for what it was sealed for, from then until it expires. Whatever
// is changed of it, of its use, of the key or of the clock, it doesn't.
func TestAnyChangeIsRefused(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		master := rapid.SliceOfN(rapid.Byte(), seal.KeySize, seal.KeySize+8).Draw(t, "master")
		rotate := time.Duration(rapid.Int64Range(1000, 100_000_000).Draw(t, "rotate")) * time.Millisecond
		s, err := seal.New(master, seal.Options{Rotate: rotate})
		if err != nil {
			t.Fatal(err)
		}
		made := start.Add(time.Duration(rapid.Int64Range(0, int64(rotate)).Draw(t, "made")))
		binding := rapid.SliceOfN(rapid.SliceOfN(rapid.Byte(), 0, 8), 1, 4).Draw(t, "binding")
		content := rapid.SliceOfN(rapid.Byte(), 0, 64).Draw(t, "content")
		lasts := time.Duration(rapid.Int64Range(1, rotate.Milliseconds()).Draw(t, "lasts")) * time.Millisecond
		token, err := s.Seal(made, made.Add(lasts), binding, content)
		if err != nil {
			t.Fatal(err)
		}

		after := time.Duration(rapid.Int64Range(0, 3*rotate.Milliseconds()).Draw(t, "after")) * time.Millisecond
		got, err := s.Open(made.Add(after), token, binding)
		switch {
		case after < lasts:
			if err != nil || !bytes.Equal(got, content) {
				t.Fatalf("got %q, %v, want %q", got, err, content)
			}
		case after >= 2*rotate:
			if !errors.Is(err, seal.ErrInvalid) {
				t.Fatalf("with a key that is gone: %v", err)
			}
		case !errors.Is(err, seal.ErrExpired) && !errors.Is(err, seal.ErrInvalid):
			t.Fatalf("opened after its time: %v", err)
		}

		refused := func(what string, s *seal.Sealer, at time.Time, token string, binding [][]byte) {
			if content, err := s.Open(at, token, binding); !errors.Is(err, seal.ErrInvalid) || content != nil {
				t.Fatalf("%s: got %q, %v", what, content, err)
			}
		}
		back := time.Duration(rapid.Int64Range(1, 3*rotate.Milliseconds()).Draw(t, "back")) * time.Millisecond
		refused("a clock that was set back", s, made.Add(-back), token, binding)

		at, by := rapid.IntRange(0, len(token)-1).Draw(t, "at"), byte(rapid.IntRange(1, 255).Draw(t, "by"))
		changed := []byte(token)
		changed[at] ^= by
		refused("a changed token", s, made, string(changed), binding)
		refused("a cut token", s, made, token[:at], binding)
		refused("a cut start", s, made, token[at+1:], binding)
		refused("a longer token", s, made, token[:at]+string(by)+token[at:], binding)

		other := bytes.Clone(master)
		other[at%len(other)] ^= by
		stranger, err := seal.New(other, seal.Options{Rotate: rotate})
		if err != nil {
			t.Fatal(err)
		}
		refused("another key", stranger, made, token, binding)

		part := rapid.IntRange(0, len(binding)-1).Draw(t, "part")
		refused("a part less", s, made, token, slices.Delete(slices.Clone(binding), part, part+1))
		refused("an empty part more", s, made, token, slices.Insert(slices.Clone(binding), part, []byte{}))
		longer := slices.Clone(binding)
		longer[part] = append(bytes.Clone(longer[part]), by)
		refused("a longer part", s, made, token, longer)
		if part > 0 && !bytes.Equal(binding[part-1], binding[part]) {
			swapped := slices.Clone(binding)
			swapped[part-1], swapped[part] = swapped[part], swapped[part-1]
			refused("parts in another order", s, made, token, swapped)
		}
	})
}

// Whatever somebody without the key comes up with, it doesn't open; and a token
// opens with its own binding only.
func FuzzOpen(f *testing.F) {
	// The processes that fuzz have to agree on what is genuine.
	s, err := seal.New(master, seal.Options{Rand: rand.NewChaCha8([32]byte{1})})
	if err != nil {
		f.Fatal(err)
	}
	const agent, tool = "agent:crm", "crm.delete"
	genuine := make(map[string]bool)
	for _, content := range []string{"", "req_1", strings.Repeat("x", 1000)} {
		token, err := s.Seal(start, start.Add(time.Minute), parts(agent, tool), []byte(content))
		if err != nil {
			f.Fatal(err)
		}
		genuine[token] = true
		changed := []byte(token)
		changed[len(changed)/2] ^= 1
		for _, seed := range []string{token, string(changed), token[:40], token[:len(token)-1], token + "=", token + "\n", strings.ToLower(token)} {
			f.Add(seed, agent, tool)
		}
		f.Add(token, agent+tool, "")
		f.Add(token, agent, "crm.drop")
	}
	f.Add("", "", "")
	f.Add("countersign1.", agent, tool)
	f.Add("countersign1.AAAA", agent, tool)
	f.Add("countersign1."+strings.Repeat("A", 64), agent, tool)
	f.Fuzz(func(t *testing.T, token, forAgent, forTool string) {
		content, err := s.Open(start, token, parts(forAgent, forTool))
		accepted := genuine[token] && forAgent == agent && forTool == tool
		if accepted != (err == nil) {
			t.Errorf("%q for %q and %q: got %q, %v", token, forAgent, forTool, content, err)
		}
		if err != nil && !errors.Is(err, seal.ErrInvalid) {
			t.Errorf("got %v", err)
		}
	})
}

func BenchmarkOpen(b *testing.B) {
	s := newSealer(b, master)
	binding := parts("agent:crm", "tools/call", "crm.delete", strings.Repeat("d", 32))
	token, err := s.Seal(start, start.Add(time.Minute), binding, make([]byte, 64))
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.Open(start, token, binding); err != nil {
			b.Fatal(err)
		}
	}
}
