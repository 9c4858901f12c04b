// Package seal makes tokens that only this server can make or read: what a
// client holds between two calls and must not be able to change, such as MCP's
// requestState.
//
// A token is bound to what it is for, and opens only for that. It doesn't keep
// itself from being used twice: whoever opens it must see to that.
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
	// ErrInvalid means that a token isn't one that this server made for this
	// use, or is too old to tell. It says nothing more on purpose.
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

// Sealer seals and opens. It is safe for concurrent use if Options.Rand is.
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
// binding describes: any parts, in order.
func (s *Sealer) Seal(now, expires time.Time, binding [][]byte, content []byte) (string, error) {
	if expires.Sub(now) > s.options.Rotate {
		return "", fmt.Errorf("a state can't last for %s; at most %s is possible", expires.Sub(now), s.options.Rotate)
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
	plain := binary.BigEndian.AppendUint64(nil, uint64(expires.UnixMilli()))
	plain = append(plain, content...)
	sealed := binary.BigEndian.AppendUint64(nil, uint64(epoch))
	sealed = append(sealed, nonce...)
	sealed = box.Seal(sealed, nonce, plain, additional(epoch, binding))
	token := prefix + base64.RawURLEncoding.EncodeToString(sealed)
	if len(token) > MaxToken {
		return "", fmt.Errorf("the state has %d bytes; at most %d are possible", len(token), MaxToken)
	}
	return token, nil
}

// Open returns the content of a token, if it was sealed here for the use that
// binding describes. The error is ErrInvalid or ErrExpired.
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
	plain, err := box.Open(nil, sealed[:box.NonceSize()], sealed[box.NonceSize():], additional(epoch, binding))
	if err != nil || len(plain) < 8 {
		return nil, ErrInvalid
	}
	if expires := int64(binary.BigEndian.Uint64(plain)); now.UnixMilli() >= expires {
		return nil, ErrExpired
	}
	return plain[8:], nil
}

// epoch numbers the key of a time.
func (s *Sealer) epoch(now time.Time) int64 {
	return now.UnixMilli() / s.options.Rotate.Milliseconds()
}

func (s *Sealer) box(epoch int64) (cipher.AEAD, error) {
	key, err := hkdf.Key(sha256.New, s.master, nil, fmt.Sprintf("countersign/seal/v1/%d/%d", s.options.Rotate.Milliseconds(), epoch), KeySize)
	if err != nil {
		return nil, fmt.Errorf("deriving a key: %w", err)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, fmt.Errorf("making a cipher: %w", err)
	}
	return cipher.NewGCM(block)
}

// additional is what a token is authenticated with: which key, and each part of
// the binding with its length, so that parts can't be shifted into each other.
func additional(epoch int64, binding [][]byte) []byte {
	data := []byte("countersign/seal/v1\x00")
	data = binary.BigEndian.AppendUint64(data, uint64(epoch))
	data = binary.BigEndian.AppendUint64(data, uint64(len(binding)))
	for _, part := range binding {
		data = binary.BigEndian.AppendUint64(data, uint64(len(part)))
		data = append(data, part...)
	}
	return data
}
