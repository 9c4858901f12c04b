package approval

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/countersign/countersign/audit"
)

// Token lets one agent call the server over HTTP. Its secret is shown once,
// when it is created, and kept only as a hash.
type Token struct {
	ID        string // "tok_" and 32 hexadecimal digits; not secret
	Agent     string
	Owner     Approver // the person the agent acts for; zero if nobody
	CreatedAt time.Time
	CreatedBy Operator
	RevokedAt time.Time // zero while it works
}

// TokenHash is the SHA-256 of a token's secret. The secret has 256 random bits,
// so it needs no salt and no slow hash.
type TokenHash [sha256.Size]byte

const tokenPrefix = "countersign_"

func hashToken(secret string) TokenHash { return sha256.Sum256([]byte(secret)) }

// Created is the event of the token's creation, for the store to append with
// it.
func (t Token) Created() audit.Event {
	return newEvent(t.CreatedAt, "token.created", "operator:"+t.CreatedBy.Name, "", map[string]any{
		"token": t.ID,
		"agent": t.Agent,
		"owner": t.Owner.String(),
	})
}

// Revoked is the event of the token's revocation, for the store to append with
// it.
func (t Token) Revoked(by Operator, at time.Time) audit.Event {
	return newEvent(milliseconds(at), "token.revoked", "operator:"+by.Name, "", map[string]any{
		"token": t.ID,
		"agent": t.Agent,
	})
}

// CreateToken makes a token for an agent and returns its secret, which can't be
// had again. owner is the person the agent acts for, zero for nobody. An
// InputError names what isn't accepted.
func (s *Service) CreateToken(ctx context.Context, by Operator, agent string, owner Approver) (Token, string, error) {
	if !ValidAgentName(agent) {
		return Token{}, "", invalid("agent", "%q is not a name: 1 to 64 letters, digits, dots, dashes and underscores are accepted, starting with a letter or digit", agent)
	}
	if err := s.Policy().ValidateFor(owner.User); err != nil {
		return Token{}, "", invalid("owner", "%v", err)
	}
	now := milliseconds(s.options.Now())
	id, err := newID("tok_", now, s.options.Rand)
	if err != nil {
		return Token{}, "", err
	}
	var random [32]byte
	if _, err := io.ReadFull(s.options.Rand, random[:]); err != nil {
		return Token{}, "", fmt.Errorf("reading randomness: %w", err)
	}
	secret := tokenPrefix + base64.RawURLEncoding.EncodeToString(random[:])
	token := Token{ID: id, Agent: agent, Owner: owner, CreatedAt: now, CreatedBy: by}
	if err := s.store.InsertToken(ctx, token, hashToken(secret)); err != nil {
		return Token{}, "", fmt.Errorf("storing the token: %w", err)
	}
	return token, secret, nil
}

// Tokens lists all tokens, oldest first.
func (s *Service) Tokens(ctx context.Context) ([]Token, error) { return s.store.Tokens(ctx) }

// RevokeToken ends a token: from then on calls with it are refused. ErrToken if
// it is unknown or already revoked.
func (s *Service) RevokeToken(ctx context.Context, by Operator, id string) error {
	return s.store.RevokeToken(ctx, id, by, milliseconds(s.options.Now()))
}

// Authenticate returns the token that a secret belongs to. ErrToken if there is
// none or it was revoked. The comparison is of hashes, so its time says nothing
// about a secret.
func (s *Service) Authenticate(ctx context.Context, secret string) (Token, error) {
	if !strings.HasPrefix(secret, tokenPrefix) {
		return Token{}, ErrToken
	}
	return s.store.TokenByHash(ctx, hashToken(secret))
}
