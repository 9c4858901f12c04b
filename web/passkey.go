package web

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/go-webauthn/webauthn/protocol"
	"github.com/go-webauthn/webauthn/webauthn"

	"github.com/countersign/countersign/approval"
)

// passkeyLimit is how long a device may take to answer.
const passkeyLimit = 2 * time.Minute

// passkeys asks the devices of people to make passkeys and to sign with them. A
// device that doesn't make sure who uses it can do neither.
type passkeys struct {
	party  *webauthn.WebAuthn
	now    func() time.Time
	random func() string

	mu    sync.Mutex
	asked map[tokenHash]question // by the nonce
}

// question is what a device was asked and hasn't answered yet.
type question struct {
	session tokenHash // in which it was asked
	data    webauthn.SessionData
	askedAt time.Time
}

// TakesPasskeys reports whether browsers give passkeys to the pages of a server: its
// address has to be a name, and reached over https unless it is this machine's.
func TakesPasskeys(address *url.URL) bool {
	host := strings.ToLower(address.Hostname())
	local := host == "localhost" || strings.HasSuffix(host, ".localhost")
	return net.ParseIP(host) == nil && (address.Scheme == "https" || local)
}

// newPasskeys returns nil if the server's address takes none.
func newPasskeys(address *url.URL, now func() time.Time, random func() string) (*passkeys, error) {
	if !TakesPasskeys(address) {
		return nil, nil
	}
	host := strings.ToLower(address.Hostname())
	origin := address.Scheme + "://" + host
	if port := address.Port(); port != "" && !(address.Scheme == "https" && port == "443" || address.Scheme == "http" && port == "80") {
		origin += ":" + port
	}
	party, err := webauthn.New(&webauthn.Config{
		RPID:          host,
		RPDisplayName: "countersign",
		RPOrigins:     []string{origin},
		AuthenticatorSelection: protocol.AuthenticatorSelection{
			ResidentKey:      protocol.ResidentKeyRequirementPreferred,
			UserVerification: protocol.VerificationRequired,
		},
		AttestationPreference: protocol.PreferNoAttestation,
		Timeouts: webauthn.TimeoutsConfig{
			Login:        webauthn.TimeoutConfig{Timeout: passkeyLimit},
			Registration: webauthn.TimeoutConfig{Timeout: passkeyLimit},
		},
	})
	if err != nil {
		return nil, fmt.Errorf("setting up passkeys for %s: %w", origin, err)
	}
	return &passkeys{party: party, now: now, random: random, asked: make(map[tokenHash]question)}, nil
}

// passkeyOwner is a person as a device knows them: by a number that says nothing.
type passkeyOwner struct {
	who         approval.Approver
	credentials []webauthn.Credential
}

func (o passkeyOwner) WebAuthnID() []byte {
	id := sha256.Sum256([]byte("countersign/passkey-owner/v1\x00" + o.who.Workspace + "\x00" + o.who.User))
	return id[:]
}
func (o passkeyOwner) WebAuthnName() string                       { return o.who.User }
func (o passkeyOwner) WebAuthnDisplayName() string                { return o.who.User }
func (o passkeyOwner) WebAuthnCredentials() []webauthn.Credential { return o.credentials }

// passkeyQuestion is what a page's script asks a device.
type passkeyQuestion struct {
	Nonce  string                                       `json:"nonce"`
	Create *protocol.PublicKeyCredentialCreationOptions `json:"create,omitempty"`
	Get    *protocol.PublicKeyCredentialRequestOptions  `json:"get,omitempty"`
}

// passkeyAnswer is what the script sends of what the device answers.
type passkeyAnswer struct {
	Nonce             string                    `json:"nonce"`
	ID                protocol.URLEncodedBase64 `json:"id"`
	ClientData        protocol.URLEncodedBase64 `json:"clientData"`
	Attestation       protocol.URLEncodedBase64 `json:"attestation"` // of one that was made
	Transports        []string                  `json:"transports"`
	AuthenticatorData protocol.URLEncodedBase64 `json:"authenticatorData"` // of one that signed
	Signature         protocol.URLEncodedBase64 `json:"signature"`
}

// Why a device's answer doesn't count.
var (
	errPasskeyLate    = errors.New("the passkey's answer came too late, came before, or was asked for elsewhere")
	errPasskeyRefused = errors.New("the passkey's answer isn't right")
)

// onDevices names the devices that a person's passkeys are on.
func onDevices(owned []approval.Passkey) []protocol.CredentialDescriptor {
	all := make([]protocol.CredentialDescriptor, len(owned))
	for i, one := range owned {
		all[i] = protocol.CredentialDescriptor{Type: protocol.PublicKeyCredentialType, CredentialID: one.ID}
		if credential, err := decodeCredential(one); err == nil {
			all[i].Transport = credential.Transport
		}
	}
	return all
}

func decodeCredential(one approval.Passkey) (webauthn.Credential, error) {
	var credential webauthn.Credential
	if err := json.Unmarshal(one.Credential, &credential); err != nil {
		return credential, fmt.Errorf("reading a passkey: %w", err)
	}
	if !bytes.Equal(credential.ID, one.ID) {
		return credential, errors.New("reading a passkey: its key is another's")
	}
	return credential, nil
}

// askToMake asks for a new passkey, on a device that has none of the person's.
func (k *passkeys) askToMake(v visitor, owned []approval.Passkey) (passkeyQuestion, error) {
	made, data, err := k.party.BeginRegistration(passkeyOwner{who: v.who}, webauthn.WithExclusions(onDevices(owned)))
	if err != nil {
		return passkeyQuestion{}, fmt.Errorf("asking for a passkey: %w", err)
	}
	nonce := k.random()
	k.ask(nonce, v, *data)
	return passkeyQuestion{Nonce: nonce, Create: &made.Response}, nil
}

// made verifies that a device has made a passkey as it was asked to.
func (k *passkeys) made(v visitor, sent string) (approval.Passkey, error) {
	answer, asked, err := k.answered(v, sent)
	if err != nil {
		return approval.Passkey{}, err
	}
	var response protocol.CredentialCreationResponse
	response.ID, response.RawID = answer.ID.String(), answer.ID
	response.Type = string(protocol.PublicKeyCredentialType)
	response.AttestationResponse.ClientDataJSON = answer.ClientData
	response.AttestationResponse.AttestationObject = answer.Attestation
	response.AttestationResponse.Transports = answer.Transports
	parsed, err := response.Parse()
	if err != nil {
		return approval.Passkey{}, refusedPasskey(err)
	}
	credential, err := k.party.CreateCredential(passkeyOwner{who: v.who}, asked, parsed)
	if err != nil {
		return approval.Passkey{}, refusedPasskey(err)
	}
	if !bytes.Equal(credential.ID, answer.ID) {
		return approval.Passkey{}, fmt.Errorf("%w: it is another one than the device says", errPasskeyRefused)
	}
	// Nobody asks who built the device, so what it says of that is of no use.
	credential.Attestation = webauthn.CredentialAttestation{}
	kept, err := json.Marshal(credential)
	if err != nil {
		return approval.Passkey{}, fmt.Errorf("writing a passkey: %w", err)
	}
	return approval.Passkey{ID: credential.ID, Credential: kept, SignCount: credential.Authenticator.SignCount}, nil
}

// askToSign asks for a signature over a ballot by one of the passkeys. The library
// wants a challenge that nobody can guess; ours is made of a nonce like that.
func (k *passkeys) askToSign(v visitor, owned []approval.Passkey, b approval.Ballot) (passkeyQuestion, error) {
	if len(owned) == 0 {
		return passkeyQuestion{}, approval.ErrNoPasskey
	}
	nonce := k.random()
	challenge := approval.PasskeyChallenge([]byte(nonce), b)
	credentials := make([]webauthn.Credential, len(owned))
	for i, one := range owned {
		credentials[i].ID = one.ID
	}
	get, data, err := k.party.BeginLogin(passkeyOwner{v.who, credentials}, webauthn.WithChallenge(challenge[:]), webauthn.WithAllowedCredentials(onDevices(owned)))
	if err != nil {
		return passkeyQuestion{}, fmt.Errorf("asking for a signature: %w", err)
	}
	k.ask(nonce, v, *data)
	return passkeyQuestion{Nonce: nonce, Get: &get.Response}, nil
}

// signed verifies that a device has signed the ballot as it was asked to, and
// returns what it signed and how often it says that it has signed.
func (k *passkeys) signed(v visitor, owned []approval.Passkey, b approval.Ballot, sent string) (*approval.PasskeyProof, uint32, error) {
	answer, asked, err := k.answered(v, sent)
	if err != nil {
		return nil, 0, err
	}
	proof := &approval.PasskeyProof{
		Passkey:           answer.ID,
		Nonce:             []byte(answer.Nonce),
		AuthenticatorData: answer.AuthenticatorData,
		ClientData:        answer.ClientData,
		Signature:         answer.Signature,
	}
	if subtle.ConstantTimeCompare([]byte(asked.Challenge), []byte(challengeText(proof, b))) != 1 {
		return nil, 0, fmt.Errorf("%w: something else was to be signed", errPasskeyRefused)
	}
	for _, one := range owned {
		if bytes.Equal(one.ID, proof.Passkey) {
			count, err := k.verify(one, b, proof)
			return proof, count, err
		}
	}
	return nil, 0, approval.ErrNoPasskey
}

// verify verifies a proof by the passkey alone, so it can be done again at any
// time: with what the event of its enrolment holds, and what the event of the
// decision holds. It returns how often the device says that it has signed.
func (k *passkeys) verify(one approval.Passkey, b approval.Ballot, proof *approval.PasskeyProof) (uint32, error) {
	credential, err := decodeCredential(one)
	if err != nil {
		return 0, err
	}
	var response protocol.CredentialAssertionResponse
	response.ID, response.RawID = base64.RawURLEncoding.EncodeToString(proof.Passkey), proof.Passkey
	response.Type = string(protocol.PublicKeyCredentialType)
	response.AssertionResponse.ClientDataJSON = proof.ClientData
	response.AssertionResponse.AuthenticatorData = proof.AuthenticatorData
	response.AssertionResponse.Signature = proof.Signature
	parsed, err := response.Parse()
	if err != nil {
		return 0, refusedPasskey(err)
	}
	owner := passkeyOwner{one.Owner, []webauthn.Credential{credential}}
	_, err = k.party.ValidateLogin(owner, webauthn.SessionData{
		Challenge:            challengeText(proof, b),
		UserID:               owner.WebAuthnID(),
		AllowedCredentialIDs: [][]byte{one.ID},
		UserVerification:     protocol.VerificationRequired,
	}, parsed)
	if err != nil {
		return 0, refusedPasskey(err)
	}
	return parsed.Response.AuthenticatorData.Counter, nil
}

func challengeText(proof *approval.PasskeyProof, b approval.Ballot) string {
	challenge := approval.PasskeyChallenge(proof.Nonce, b)
	return base64.RawURLEncoding.EncodeToString(challenge[:])
}

// refusedPasskey says what the library found. What it says for developers holds
// what was sent, so that stays out.
func refusedPasskey(err error) error {
	return fmt.Errorf("%w: %s", errPasskeyRefused, strings.ToValidUTF8(err.Error(), "?"))
}

// sessionHash names a session without being worth anything.
func sessionHash(s session) tokenHash { return sha256.Sum256(s.formKey) }

// ask notes what a session was asked.
func (k *passkeys) ask(nonce string, v visitor, data webauthn.SessionData) {
	k.mu.Lock()
	defer k.mu.Unlock()
	makeRoom(k.asked, func(one question) time.Time { return one.askedAt })
	k.asked[token(nonce).hash()] = question{session: sessionHash(v.session), data: data, askedAt: k.now()}
}

// answered reads an answer and uses up its question: it is the session's that was
// asked, once, and in time.
func (k *passkeys) answered(v visitor, sent string) (passkeyAnswer, webauthn.SessionData, error) {
	if sent == "" {
		return passkeyAnswer{}, webauthn.SessionData{}, approval.ErrPasskeyNeeded
	}
	var answer passkeyAnswer
	if err := json.Unmarshal([]byte(sent), &answer); err != nil {
		return passkeyAnswer{}, webauthn.SessionData{}, fmt.Errorf("%w: it can't be read", errPasskeyRefused)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	hash := token(answer.Nonce).hash()
	one, ok := k.asked[hash]
	if !ok || one.session != sessionHash(v.session) {
		return passkeyAnswer{}, webauthn.SessionData{}, errPasskeyLate // somebody else's isn't used up
	}
	delete(k.asked, hash)
	if k.now().Sub(one.askedAt) >= passkeyLimit {
		return passkeyAnswer{}, webauthn.SessionData{}, errPasskeyLate
	}
	return answer, one.data, nil
}
