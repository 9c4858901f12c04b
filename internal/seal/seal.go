// Package seal makes tokens that only this server can make or read: what a
// client holds between two calls and must not be able to change, such as MCP's
// requestState.
//
// A token is bound to what it is for, and opens only for that, until it expires.
// It doesn't keep itself from being used twice: whoever opens it must see to
// that.
package seal

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

// KeySize is the least length of a master key, in bytes.
const KeySize = 32

// MaxToken bounds a token, in bytes.
const MaxToken = 4096

var (
	// ErrInvalid means that a token isn't one that was made here for this use, or
	// is too old to tell. It says nothing more on purpose.
	ErrInvalid = errors.New("the state is not valid here")
	// ErrExpired means that the token was made here for this use and its time
	// has passed.
	ErrExpired = errors.New("the state has expired")
)

// prefix tells our tokens from those of others.
const prefix = "countersign1."

// Ours reports whether a token claims to be one of ours. Only Open tells whether
// it is.
func Ours(token string) bool { return strings.HasPrefix(token, prefix) }

// Options set up a Sealer. Zero values are usable.
type Options struct {
	// Rotate is how long a key seals; it opens as long again. Zero means an
	// hour. No token lives longer than it.
	Rotate time.Duration
	// Rand is the source of nonces; nil means crypto/rand.
	Rand io.Reader
}

// Sealer seals and opens. It keeps no state: every process with the same master
// key and the same Rotate opens what another has sealed. It is safe for
// concurrent use if Options.Rand is.
type Sealer struct {
	master  []byte
	options Options
}

// New returns a Sealer whose keys are derived from a master key of at least
// KeySize random bytes.
func New(master []byte, options Options) (*Sealer, error) {
	if len(master) < KeySize {
		return nil, fmt.Errorf("the key has %d bytes; at least %d are needed", len(master), KeySize)
	}
	if options.Rotate == 0 {
		options.Rotate = time.Hour
	}
	if options.Rotate < time.Second {
		return nil, fmt.Errorf("keys can't be rotated every %s; at least 1s is accepted", options.Rotate)
	}
	if options.Rand == nil {
		options.Rand = rand.Reader
	}
	return &Sealer{master: bytes.Clone(master), options: options}, nil
}

// Seal returns a token that holds content until expires, for the use that
// binding describes: who may use it and for what, in parts whose order counts.
// The parts aren't in the token; whoever opens it has to know them.
func (s *Sealer) Seal(now, expires time.Time, binding [][]byte, content []byte) (string, error) {
	if lasts := expires.Sub(now); lasts <= 0 || lasts > s.options.Rotate {
		return "", fmt.Errorf("a state can't last for %s; more than nothing and at most %s is possible", lasts, s.options.Rotate)
	}
	epoch := s.epoch(now)
	box, err := s.box(epoch)
	if err != nil {
		return "", err
	}
	nonce := make([]byte, box.NonceSize())
	if _, err := io.ReadFull(s.options.Rand, nonce); err != nil {
		return "", fmt.Errorf("reading randomness: %w", err)
	}
	plain := binary.BigEndian.AppendUint64(nil, uint64(now.UnixMilli()))
	plain = binary.BigEndian.AppendUint64(plain, uint64(expires.UnixMilli()))
	plain = append(plain, content...)
	sealed := binary.BigEndian.AppendUint64(nil, uint64(epoch))
	sealed = append(sealed, nonce...)
	sealed = box.Seal(sealed, nonce, plain, additional(binding))
	token := prefix + base64.RawURLEncoding.EncodeToString(sealed)
	if len(token) > MaxToken {
		return "", fmt.Errorf("the state has %d bytes; at most %d are possible", len(token), MaxToken)
	}
	return token, nil
}

// Open returns the content of a token, if it was sealed before now with the same
// master key, for the use that binding describes. The error is ErrInvalid or
// ErrExpired, and nothing else.
func (s *Sealer) Open(now time.Time, token string, binding [][]byte) ([]byte, error) {
	text, ours := strings.CutPrefix(token, prefix)
	// Each token has one spelling. Base64 skips line breaks even when strict.
	if !ours || len(token) > MaxToken || strings.ContainsAny(text, "\r\n") {
		return nil, ErrInvalid
	}
	sealed, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || len(sealed) < 8 {
		return nil, ErrInvalid
	}
	epoch := int64(binary.BigEndian.Uint64(sealed))
	if current := s.epoch(now); epoch != current && epoch != current-1 {
		return nil, ErrInvalid
	}
	box, err := s.box(epoch)
	if err != nil {
		return nil, ErrInvalid
	}
	sealed = sealed[8:]
	if len(sealed) < box.NonceSize() {
		return nil, ErrInvalid
	}
	plain, err := box.Open(nil, sealed[:box.NonceSize()], sealed[box.NonceSize():], additional(binding))
	if err != nil || len(plain) < 16 {
		return nil, ErrInvalid
	}
	// A clock that was set back would make a token last longer.
	if sealedAt := int64(binary.BigEndian.Uint64(plain)); now.UnixMilli() < sealedAt {
		return nil, ErrInvalid
	}
	if expires := int64(binary.BigEndian.Uint64(plain[8:])); now.UnixMilli() >= expires {
		return nil, ErrExpired
	}
	return plain[16:], nil
}

// epoch numbers the key of a time. The key before is accepted too, and no token
// lasts longer than a key, so each opens until it expires. Later it is known as
// expired as long as its key is accepted.
func (s *Sealer) epoch(now time.Time) int64 {
	return now.UnixMilli() / s.options.Rotate.Milliseconds()
}

// box is what the key of an epoch seals with. The key is derived from Rotate too:
// the same number is another time with another Rotate.
func (s *Sealer) box(epoch int64) (cipher.AEAD, error) {
	key, err := hkdf.Key(sha256.New, s.master, nil, fmt.Sprintf("countersign/seal/v1/%d/%d", s.options.Rotate.Milliseconds(), epoch), KeySize)
	if err != nil {
		return nil, fmt.Errorf("deriving a key: %w", err)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, fmt.Errorf("making a cipher: %w", err)
	}
	return cipher.NewGCM(block) // its nonces are 12 bytes, so random ones suffice for billions of tokens of a key
}

// additional is what a token is authenticated with: each part of the binding with
// its length, so that parts can't be shifted into each other.
func additional(binding [][]byte) []byte {
	data := []byte("countersign/seal/v1\x00")
	for _, part := range binding {
		data = binary.BigEndian.AppendUint64(data, uint64(len(part)))
		data = append(data, part...)
	}
	return data
}
