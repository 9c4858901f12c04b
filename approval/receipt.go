package approval

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/countersign/countersign/internal/receipt"
)

// Signer signs receipts.
type Signer interface {
	// SignReceipt returns the receipt that holds a statement, as one line of text.
	// It is called while a decision is being stored, so it must not call the store
	// and must be quick. If it fails, there is no decision.
	SignReceipt(statement []byte) (string, error)
}

// issue adds a decision to the request, about what the request is now, with its
// receipt. by is the approver, or what decided without a person; revision is that of
// the policy that ruled.
func (r *Request) issue(d Decision, by, revision string, now time.Time, random io.Reader, signer Signer) (Decision, error) {
	var err error
	if d.Receipt, err = newID("rcpt_", now, random); err != nil {
		return Decision{}, err
	}
	d.Version, d.Digest, d.At = r.Version, r.Digest, now
	if signer != nil {
		statement, err := json.Marshal(r.statement(d, by, revision))
		if err != nil {
			return Decision{}, fmt.Errorf("writing the receipt: %w", err)
		}
		if d.SignedReceipt, err = signer.SignReceipt(statement); err != nil {
			return Decision{}, fmt.Errorf("%w: signing the receipt: %w", ErrUnavailable, err)
		}
	}
	r.Decisions = append(r.Decisions, d)
	return d, nil
}

// statement is what the receipt of a decision says.
func (r *Request) statement(d Decision, by, revision string) receipt.Statement {
	said := receipt.Statement{
		Receipt:   d.Receipt,
		Request:   string(r.ID),
		Version:   d.Version,
		Digest:    d.Digest.String(),
		Verdict:   string(d.Verdict),
		DecidedBy: by,
		Person:    d.Person(),
		Surface:   string(d.Surface),
		Roles:     make([]receipt.Role, len(d.Roles)),
		Policy:    revision,
		DecidedAt: receipt.Time(d.At),
	}
	if d.Verdict == Approve {
		said.Scope = cmp.Or(d.Scope, ScopeOnce)
	}
	if d.Surface.client() {
		said.ClientConfirmed = d.Verdict == Approve
		said.ActsFor = r.ActsFor.String()
	}
	for i, held := range d.Roles {
		said.Roles[i] = receipt.Role(held)
	}
	return said
}

// NoteReceiptKey records that another key signs receipts from now on, and who had it
// made.
func (s *Service) NoteReceiptKey(ctx context.Context, by Operator, key string) error {
	ctx, cancel := uninterrupted(ctx, changeLimit)
	defer cancel()
	event := newEvent(milliseconds(s.options.Now()), "receipt_key.rotated", "operator:"+by.Name, "", map[string]any{"key": key})
	if err := s.store.Append(ctx, event); err != nil {
		return fmt.Errorf("recording the key: %w", err)
	}
	return nil
}
