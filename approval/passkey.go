package approval

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/countersign/countersign/audit"
	"github.com/countersign/countersign/policy"
)

// Passkey is a key on a device of one person. The device uses it only after it
// has made sure that the person is there.
type Passkey struct {
	ID    []byte // what the device calls it; different from every other one's
	Owner Approver
	Name  string // what the owner calls it
	// Credential is what its signatures are verified with, as the page wrote it.
	Credential []byte
	// SignCount is how often the device said that it had signed with it. Many
	// devices always say 0.
	SignCount  uint32
	EnrolledAt time.Time
	UsedAt     time.Time // zero if it never was
}

// Limits of passkeys.
const (
	// MaxPasskeys is how many one person has at most.
	MaxPasskeys = 10
	// MaxPasskeyName is how many characters a name has at most.
	MaxPasskeyName = 60

	maxPasskeyID  = 1023 // as the standard limits it
	minNonce      = 16
	maxCredential = 16 * 1024
)

// What a caller can test for with errors.Is.
var (
	// ErrNoPasskey means that a person has no such passkey.
	ErrNoPasskey = errors.New("there is no such passkey; it may have been removed")
	// ErrPasskeyKnown means that a passkey is enrolled already.
	ErrPasskeyKnown = errors.New("this passkey is enrolled already")
	// ErrPasskeyNeeded means that approving on the review page takes a passkey's
	// signature over the ballot.
	ErrPasskeyNeeded = errors.New("approving this takes a passkey, which has to sign exactly what is shown")
	// ErrTooManyPasskeys means that a person has MaxPasskeys.
	ErrTooManyPasskeys = fmt.Errorf("nobody has more than %d passkeys; remove one first", MaxPasskeys)
	// ErrPasskeyCopied means that a device has signed as often before, so that
	// there may be a copy of the passkey. Its owner should remove it.
	ErrPasskeyCopied = errors.New("there may be a copy of this passkey; remove it and enrol another one")
)

func (k Passkey) check() error {
	if strings.TrimSpace(k.Name) == "" {
		return invalid("name", "is empty; say which device this is")
	}
	if err := checkText("name", k.Name, MaxPasskeyName); err != nil {
		return err
	}
	if len(k.ID) == 0 || len(k.ID) > maxPasskeyID || len(k.Credential) == 0 || len(k.Credential) > maxCredential {
		return invalid("passkey", "is none that can be stored")
	}
	return nil
}

// Keyring is all passkeys of one person, which are loaded and saved together.
type Keyring struct {
	Owner    Approver
	Passkeys []Passkey // oldest first

	events  []audit.Event
	notices []PersonalNotice
}

// Events returns what happened since the keyring was loaded, for the store to
// append in the transaction that saves it.
func (k *Keyring) Events() []audit.Event { return k.events }

// Notices returns what its owner has to be told of that, for the store to save
// in the same transaction.
func (k *Keyring) Notices() []PersonalNotice { return k.notices }

// find returns where the passkey is, -1 if it isn't the person's.
func (k *Keyring) find(id []byte) int {
	return slices.IndexFunc(k.Passkeys, func(one Passkey) bool { return bytes.Equal(one.ID, id) })
}

// record notes what happened to a passkey.
func (k *Keyring) record(now time.Time, kind string, about Passkey, detail map[string]any) {
	detail["passkey"], detail["name"] = base64.RawURLEncoding.EncodeToString(about.ID), about.Name
	k.events = append(k.events, newEvent(now, kind, k.Owner.String(), Web, detail))
}

// tell has the owner told of what happened.
func (k *Keyring) tell(now time.Time, kind PersonalNoticeKind, about Passkey, random io.Reader) error {
	id, err := newID("note_", now, random)
	if err != nil {
		return err
	}
	k.notices = append(k.notices, PersonalNotice{ID: id, Person: k.Owner, Kind: kind, Passkey: about.Name, At: now})
	return nil
}

func (k *Keyring) enrol(one Passkey, now time.Time, random io.Reader) error {
	if len(k.Passkeys) >= MaxPasskeys {
		return ErrTooManyPasskeys
	}
	if k.find(one.ID) >= 0 {
		return ErrPasskeyKnown
	}
	if err := k.tell(now, PasskeyEnrolled, one, random); err != nil {
		return err
	}
	k.Passkeys = append(k.Passkeys, one)
	k.record(now, "passkey.enrolled", one, map[string]any{"credential": one.Credential})
	return nil
}

func (k *Keyring) remove(id []byte, now time.Time, random io.Reader) error {
	at := k.find(id)
	if at < 0 {
		return ErrNoPasskey
	}
	one := k.Passkeys[at]
	if err := k.tell(now, PasskeyRemoved, one, random); err != nil {
		return err
	}
	k.Passkeys = slices.Delete(k.Passkeys, at, at+1)
	k.record(now, "passkey.removed", one, map[string]any{})
	return nil
}

// use notes that a passkey signed a decision. A count that doesn't go up means
// that a copy of the key may exist: that use is recorded as refused, and the
// owner is told.
func (k *Keyring) use(id []byte, signCount uint32, about ID, now time.Time, random io.Reader) (refusal, err error) {
	at := k.find(id)
	if at < 0 {
		return nil, ErrNoPasskey
	}
	one := &k.Passkeys[at]
	detail := map[string]any{"request": string(about), "sign_count": signCount, "previous": one.SignCount}
	if signCount <= one.SignCount && (signCount != 0 || one.SignCount != 0) {
		if err := k.tell(now, PasskeyCopied, *one, random); err != nil {
			return nil, err
		}
		k.record(now, "passkey.refused", *one, detail)
		return ErrPasskeyCopied, nil
	}
	one.SignCount, one.UsedAt = signCount, now
	k.record(now, "passkey.used", *one, detail)
	return nil, nil
}

// EnrolPasskey gives a person a passkey, of which they are told. The page has
// verified that it is on their device, which made sure who they are. They must
// have proved to the page who they are within FreshSignIn, and hold a role at this
// moment. Of what is given only the ID, the Name, the Credential and the SignCount
// count. An InputError says what isn't accepted; otherwise the error wraps
// ErrSignInAgain, ErrTooManyPasskeys, ErrPasskeyKnown, ErrNotApprover,
// ErrIneligible or ErrUnverified.
func (s *Service) EnrolPasskey(ctx context.Context, who Approver, signedInAt time.Time, one Passkey) (Passkey, error) {
	if err := one.check(); err != nil {
		return Passkey{}, err
	}
	if err := s.signedIn(signedInAt); err != nil {
		return Passkey{}, err
	}
	ctx, cancel := uninterrupted(ctx, changeLimit)
	defer cancel()
	standing, err := s.Standing(ctx, who)
	if err != nil {
		return Passkey{}, err
	}
	if who.IsZero() || len(standing.Roles) == 0 {
		return Passkey{}, ErrNotApprover
	}
	now := milliseconds(s.options.Now())
	one.Owner, one.EnrolledAt, one.UsedAt = who, now, time.Time{}
	return one, s.changePasskeys(ctx, who, func(k *Keyring) error {
		return k.enrol(one, now, s.options.Rand)
	})
}

// signedIn returns ErrSignInAgain if somebody proved who they are too long ago.
func (s *Service) signedIn(at time.Time) error {
	if s.options.Now().Sub(at) >= FreshSignIn {
		return ErrSignInAgain
	}
	return nil
}

// Passkeys lists a person's passkeys, oldest first.
func (s *Service) Passkeys(ctx context.Context, who Approver) ([]Passkey, error) {
	return s.store.Passkeys(ctx, who)
}

// RemovePasskey takes one of their passkeys from a person, of which they are
// told. They must have proved to the page who they are within FreshSignIn. The
// error wraps ErrSignInAgain, or ErrNoPasskey if it isn't theirs.
func (s *Service) RemovePasskey(ctx context.Context, who Approver, signedInAt time.Time, id []byte) error {
	if err := s.signedIn(signedInAt); err != nil {
		return err
	}
	ctx, cancel := uninterrupted(ctx, changeLimit)
	defer cancel()
	return s.changePasskeys(ctx, who, func(k *Keyring) error {
		return k.remove(id, milliseconds(s.options.Now()), s.options.Rand)
	})
}

// UsePasskey notes that a person signed a ballot about a request with one of
// their passkeys, as the page has verified, and how often the device says that it
// has signed. It comes before the decision, which may yet be refused. The error
// wraps ErrNoPasskey if the passkey isn't theirs, and ErrPasskeyCopied, which they
// are told of, if the device has signed as often before.
func (s *Service) UsePasskey(ctx context.Context, who Approver, id []byte, signCount uint32, about ID) error {
	ctx, cancel := uninterrupted(ctx, decideLimit)
	defer cancel()
	var refusal error
	err := s.changePasskeys(ctx, who, func(k *Keyring) (err error) {
		refusal, err = k.use(id, signCount, about, milliseconds(s.options.Now()), s.options.Rand)
		return err
	})
	if err != nil {
		return err
	}
	return refusal
}

// changePasskeys saves what change does, and wakes those who tell people of it.
func (s *Service) changePasskeys(ctx context.Context, who Approver, change func(*Keyring) error) error {
	if err := s.store.UpdatePasskeys(ctx, who, change); err != nil {
		return fmt.Errorf("changing the passkeys: %w", err)
	}
	s.bell.Ring(everyRequest)
	return nil
}

// PasskeyProof is what a person's device signed for a decision, whole, so that
// it can be verified later by what the event of the passkey's enrolment holds.
type PasskeyProof struct {
	Passkey           []byte `json:"passkey"` // its ID
	Nonce             []byte `json:"nonce"`   // what the challenge is made of beside the ballot
	AuthenticatorData []byte `json:"authenticator_data"`
	ClientData        []byte `json:"client_data"`
	Signature         []byte `json:"signature"`
}

// PasskeyChallenge is what a device is given to sign for a ballot: SHA-256, with
// a domain prefix, over the nonce, of at least 16 random bytes, and all of the
// ballot that says what happens. So a signature is worth nothing for another request, version, payload, verdict
// or scope.
func PasskeyChallenge(nonce []byte, b Ballot) [sha256.Size]byte {
	h := sha256.New()
	field := func(data []byte) {
		var length [8]byte
		binary.BigEndian.PutUint64(length[:], uint64(len(data)))
		h.Write(length[:])
		h.Write(data)
	}
	field([]byte("countersign/passkey/v1"))
	field(nonce)
	field([]byte(b.Request))
	field(binary.BigEndian.AppendUint64(nil, uint64(b.Version)))
	field(b.Digest[:])
	field([]byte(b.Verdict))
	field([]byte(scopeOf(b)))
	return [sha256.Size]byte(h.Sum(nil))
}

// TakesPasskey reports whether approving the request on the review page takes a
// passkey: what can't be undone, or is of high value, isn't approved by whoever
// drives the approver's browser.
func (r *Request) TakesPasskey() bool { return r.Ruling.Tier >= policy.TierIrreversible }

// What the second part of the authenticator data says: that the person was there,
// and that the device made sure who it is.
const (
	signedFlags    = 32 // behind the hash of whom it is for
	personPresent  = 1 << 0
	personVerified = 1 << 2
)

// signs returns ErrPasskeyNeeded unless the proof is of a device that made sure
// who uses it, over exactly this ballot. Whose passkey it is, and the signature,
// the page has verified.
func (p *PasskeyProof) signs(b Ballot) error {
	if p == nil || len(p.Nonce) < minNonce || len(p.AuthenticatorData) <= signedFlags {
		return ErrPasskeyNeeded
	}
	var said struct {
		Type      string `json:"type"`
		Challenge string `json:"challenge"`
	}
	if err := json.Unmarshal(p.ClientData, &said); err != nil || said.Type != "webauthn.get" {
		return ErrPasskeyNeeded
	}
	challenge := PasskeyChallenge(p.Nonce, b)
	want := base64.RawURLEncoding.EncodeToString(challenge[:])
	if subtle.ConstantTimeCompare([]byte(said.Challenge), []byte(want)) != 1 {
		return ErrPasskeyNeeded
	}
	if flags := p.AuthenticatorData[signedFlags]; flags&personPresent == 0 || flags&personVerified == 0 {
		return ErrPasskeyNeeded
	}
	return nil
}
