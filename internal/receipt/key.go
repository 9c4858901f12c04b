package receipt

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/countersign/countersign/internal/strictjson"
)

// KeysPath is where a server shows its public keys.
const KeysPath = "/.well-known/countersign/receipts"

// Key is a key that receipts are signed with: a JSON Web Key of an Ed25519 key
// (RFC 7517, RFC 8037). NotBefore and Expires are since and until when it signed, in
// seconds since 1970, as OpenID Federation names them.
type Key struct {
	Type      string `json:"kty"`
	Curve     string `json:"crv"`
	ID        string `json:"kid"` // its thumbprint (RFC 7638)
	Algorithm string `json:"alg"`
	Use       string `json:"use"`
	NotBefore int64  `json:"nbf"`
	Expires   int64  `json:"exp,omitempty"` // 0 while it signs
	X         string `json:"x"`
	D         string `json:"d,omitempty"` // the secret part, which only the newest key of a server's own has
}

// KeySet is a JSON Web Key Set of such keys, oldest first.
type KeySet struct {
	Keys []Key `json:"keys"`
}

// NewKey is a key that signs from a time on.
func NewKey(seed []byte, from time.Time) Key {
	private := ed25519.NewKeyFromSeed(seed)
	x := base64.RawURLEncoding.EncodeToString(private.Public().(ed25519.PublicKey))
	return Key{
		Type:      "OKP",
		Curve:     "Ed25519",
		ID:        thumbprint(x),
		Algorithm: "EdDSA",
		Use:       "sig",
		NotBefore: from.Unix(),
		X:         x,
		D:         base64.RawURLEncoding.EncodeToString(seed),
	}
}

// thumbprint names a key by what it is, so that no name stands for two keys.
func thumbprint(x string) string {
	sum := sha256.Sum256([]byte(`{"crv":"Ed25519","kty":"OKP","x":"` + x + `"}`))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// Public is the key without its secret part.
func (k Key) Public() Key {
	k.D = ""
	return k
}

// Verifying is what signatures of the key are verified with.
func (k Key) Verifying() (ed25519.PublicKey, error) {
	x, err := base64.RawURLEncoding.Strict().DecodeString(k.X)
	switch {
	case k.Type != "OKP" || k.Curve != "Ed25519" || k.Algorithm != "EdDSA" || k.Use != "sig":
		return nil, errors.New("it isn't an Ed25519 key for signatures")
	case err != nil || len(x) != ed25519.PublicKeySize || base64.RawURLEncoding.EncodeToString(x) != k.X:
		return nil, errors.New("its x is no Ed25519 public key")
	case k.ID != thumbprint(k.X):
		return nil, errors.New("its kid isn't its thumbprint")
	case k.NotBefore <= 0 || k.Expires < 0 || k.Expires != 0 && k.Expires < k.NotBefore:
		return nil, errors.New("its nbf and exp aren't a time in which it signed")
	}
	return ed25519.PublicKey(x), nil
}

// Signing is the secret part of the key.
func (k Key) Signing() (ed25519.PrivateKey, error) {
	public, err := k.Verifying()
	if err != nil {
		return nil, err
	}
	seed, err := base64.RawURLEncoding.Strict().DecodeString(k.D)
	if err != nil || len(seed) != ed25519.SeedSize {
		return nil, errors.New("it has no secret part")
	}
	private := ed25519.NewKeyFromSeed(seed)
	if !public.Equal(private.Public()) {
		return nil, errors.New("its secret part is another key's")
	}
	return private, nil
}

// ParseKeys reads a key set in which every key is one that receipts can be verified
// with, and no two are the same. Members that aren't a Key's are refused: they could
// be limits that this version wouldn't keep.
func ParseKeys(data []byte) (KeySet, error) {
	var set KeySet
	if name, clash, err := strictjson.Clash(data); err != nil {
		return KeySet{}, fmt.Errorf("reading the keys: %w", err)
	} else if clash {
		return KeySet{}, fmt.Errorf("reading the keys: %q is there twice", name)
	}
	if err := decode(data, &set); err != nil {
		return KeySet{}, fmt.Errorf("reading the keys: %w", err)
	}
	if len(set.Keys) == 0 {
		return KeySet{}, errors.New("reading the keys: there are none")
	}
	known := make(map[string]bool)
	for i, key := range set.Keys {
		if _, err := key.Verifying(); err != nil {
			return KeySet{}, fmt.Errorf("reading the keys: number %d: %w", i+1, err)
		}
		if known[key.ID] {
			return KeySet{}, fmt.Errorf("reading the keys: number %d is there twice", i+1)
		}
		known[key.ID] = true
	}
	return set, nil
}

// Encode writes a key set that ParseKeys reads.
func (s KeySet) Encode() ([]byte, error) {
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("writing the keys: %w", err)
	}
	return append(data, '\n'), nil
}
