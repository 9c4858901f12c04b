package gate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/countersign/countersign/internal/receipt"
)

var (
	// ErrReceipt means that a text is no receipt that the server of the keys made:
	// take it for nothing.
	ErrReceipt = errors.New("this is no valid receipt")
	// ErrReceiptKey means that it can't be told whether a receipt is valid, since the
	// key that signed it isn't among those given: it is of another server, or newer
	// than the keys.
	ErrReceiptKey = errors.New("the key that signed this receipt isn't among the keys given")
)

const (
	// maxReceipt bounds a receipt, in bytes.
	maxReceipt = 64 << 10
	// clockLeeway is by how much the time of a decision may lie outside of the time in
	// which its key signed: a server's clock may be corrected meanwhile.
	clockLeeway = time.Minute
)

// Receipt is what a valid receipt says of one decision. Like every decision, it may
// have been followed by others: that it is valid doesn't say that what it approves
// may still run, which only the server can tell, when the approval is used.
type Receipt struct {
	ID        string `json:"id"` // "rcpt_…"
	RequestID string `json:"requestId"`
	// Version and Digest say what exactly was decided on. A later version of the same
	// request is another thing.
	Version int    `json:"version"`
	Digest  string `json:"digest"` // in lower-case hexadecimal
	// Approved is true of an approval, which is enough only with as many others as the
	// policy asks for, and false of a reject or of one that was revoked.
	Approved bool `json:"approved"`
	// Scope is how far the approval goes, "once" if no further; empty of a reject.
	Scope string `json:"scope,omitempty"`
	// DecidedBy is who decided, such as "slack:T024BE7LD/U024BE7LH" for a workspace and
	// a user in it, if Person is true. Otherwise it is what decided without a verified
	// person, such as "policy:small-refunds".
	DecidedBy string `json:"decidedBy"`
	Person    bool   `json:"person"`
	// ClientConfirmed means that the agent's own client approved. ActsFor is then the
	// person whom the client acts for, who isn't known to have seen it; empty if that
	// is nobody.
	ClientConfirmed bool          `json:"clientConfirmed,omitempty"`
	ActsFor         string        `json:"actsFor,omitempty"`
	Surface         string        `json:"surface"` // where, such as "slack" or "web"
	Roles           []ReceiptRole `json:"roles"`
	Policy          string        `json:"policy"` // the revision of the policy that ruled
	DecidedAt       time.Time     `json:"decidedAt"`
	KeyID           string        `json:"keyId"` // of the key that signed it
}

// ReceiptRole is a role that was asked for and that an approver held.
type ReceiptRole struct {
	Role string `json:"role"`
	Via  string `json:"via"` // "user" if the policy lists them, or the id of a Slack user group
}

// ReceiptKeys are the public keys of a server that verify its receipts.
type ReceiptKeys struct{ keys []receipt.Key }

// ParseReceiptKeys reads the JSON Web Key Set that a server shows at
// /.well-known/countersign/receipts. Get it from where you trust: whoever can change
// it can make receipts.
func ParseReceiptKeys(data []byte) (ReceiptKeys, error) {
	set, err := receipt.ParseKeys(data)
	if err != nil {
		return ReceiptKeys{}, err
	}
	return ReceiptKeys{set.Keys}, nil
}

// VerifyReceipt returns what a receipt says, if it is as a server with these keys
// made it. White space around it doesn't matter. Otherwise the error wraps ErrReceipt
// or ErrReceiptKey.
func VerifyReceipt(keys ReceiptKeys, text string) (Receipt, error) {
	text = strings.TrimSpace(text)
	if len(text) > maxReceipt {
		return Receipt{}, notValid("it has %d bytes, and a receipt at most %d", len(text), maxReceipt)
	}
	signed, err := jose.ParseSignedCompact(text, []jose.SignatureAlgorithm{jose.EdDSA})
	if err != nil || len(signed.Signatures) != 1 {
		return Receipt{}, notValid("it isn't a compact JSON Web Signature by an Ed25519 key")
	}
	// There is one way to write each receipt: base64 has several for the last bits.
	if again, err := signed.CompactSerialize(); err != nil || again != text {
		return Receipt{}, notValid("it isn't written as countersign writes it")
	}
	header := signed.Signatures[0].Protected
	if kind := header.ExtraHeaders[jose.HeaderType]; kind != receipt.Type {
		return Receipt{}, notValid("it is signed as %q and not as %q", fmt.Sprint(kind), receipt.Type)
	}
	key, ok := keys.find(header.KeyID)
	if !ok {
		return Receipt{}, fmt.Errorf("%w: it names %q", ErrReceiptKey, header.KeyID)
	}
	public, err := key.Verifying()
	if err != nil {
		return Receipt{}, notValid("its key: %w", err)
	}
	statement, err := signed.Verify(public)
	if err != nil {
		return Receipt{}, notValid("the signature isn't one of this text, so it was changed or made up")
	}
	said, err := receipt.Parse(statement)
	if err != nil {
		return Receipt{}, notValid("%w", err)
	}
	return key.check(said)
}

// notValid wraps ErrReceipt with why.
func notValid(format string, values ...any) error {
	return fmt.Errorf("%w: %w", ErrReceipt, fmt.Errorf(format, values...))
}

// receiptKey is a key that verified a signature.
type receiptKey struct{ receipt.Key }

func (k ReceiptKeys) find(id string) (receiptKey, bool) {
	for _, key := range k.keys {
		if key.ID == id {
			return receiptKey{key}, true
		}
	}
	return receiptKey{}, false
}

// check returns what a signed statement says, if this version understands it and if
// the key signed at that time.
func (k receiptKey) check(said receipt.Statement) (Receipt, error) {
	at, err := receipt.ParseTime(said.DecidedAt)
	if err != nil {
		return Receipt{}, notValid("decided at: %w", err)
	}
	approved := said.Verdict == "approve"
	switch {
	case !approved && said.Verdict != "reject":
		return Receipt{}, notValid("the verdict is %q, which this version doesn't know", said.Verdict)
	case approved == (said.Scope == ""):
		return Receipt{}, notValid("an approval has a scope, and a reject has none")
	case said.Receipt == "" || said.Request == "" || said.DecidedBy == "" || said.Version < 1 || len(said.Digest) != 64:
		return Receipt{}, notValid("it doesn't say what was decided, or by whom")
	}
	from := time.Unix(k.NotBefore, 0).UTC()
	if at.Before(from.Add(-clockLeeway)) {
		return Receipt{}, notValid("it is of %s, before its key signed anything (from %s on)", said.DecidedAt, from.Format(time.RFC3339))
	}
	if until := time.Unix(k.Expires, 0).UTC(); k.Expires != 0 && at.After(until.Add(clockLeeway)) {
		return Receipt{}, notValid("it is of %s, after its key was replaced (at %s)", said.DecidedAt, until.Format(time.RFC3339))
	}
	roles := make([]ReceiptRole, len(said.Roles))
	for i, held := range said.Roles {
		roles[i] = ReceiptRole(held)
	}
	return Receipt{
		ID:              said.Receipt,
		RequestID:       said.Request,
		Version:         said.Version,
		Digest:          said.Digest,
		Approved:        approved,
		Scope:           said.Scope,
		DecidedBy:       said.DecidedBy,
		Person:          said.Person,
		ClientConfirmed: said.ClientConfirmed,
		ActsFor:         said.ActsFor,
		Surface:         said.Surface,
		Roles:           roles,
		Policy:          said.Policy,
		DecidedAt:       at,
		KeyID:           k.ID,
	}, nil
}

// maxReceiptKeys bounds a server's key set, in bytes.
const maxReceiptKeys = 1 << 20

// FetchReceiptKeys gets the keys of a server at an address such as
// https://approvals.example.com. Plain http is accepted for this machine's loopback
// only, since anybody on the way could put in their own. transport makes the call;
// nil means http.DefaultTransport.
func FetchReceiptKeys(ctx context.Context, server string, transport http.RoundTripper) (ReceiptKeys, error) {
	address, err := serverAddress(server)
	if err != nil {
		return ReceiptKeys{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, attemptLimit)
	defer cancel()
	call, err := http.NewRequestWithContext(ctx, http.MethodGet, address+receipt.KeysPath, nil)
	if err != nil {
		return ReceiptKeys{}, err
	}
	client := http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	answer, err := client.Do(call)
	if err != nil {
		return ReceiptKeys{}, fmt.Errorf("getting the keys: %w", err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return ReceiptKeys{}, fmt.Errorf("getting the keys: the server answered %d", answer.StatusCode)
	}
	data, err := io.ReadAll(io.LimitReader(answer.Body, maxReceiptKeys+1))
	if err != nil {
		return ReceiptKeys{}, fmt.Errorf("getting the keys: %w", err)
	}
	if len(data) > maxReceiptKeys {
		return ReceiptKeys{}, fmt.Errorf("getting the keys: the answer has more than %d bytes", maxReceiptKeys)
	}
	return ParseReceiptKeys(data)
}
