package bot

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

const (
	timestampHeader = "X-Slack-Request-Timestamp"
	signatureHeader = "X-Slack-Signature"
	signaturePrefix = "v0="

	// maxSkew is how far a request's time may be off in either direction.
	// Slack's own limit is on the past only; a time in the future is no better.
	maxSkew = 5 * time.Minute
)

// errSignature means that a request isn't proved to come from Slack.
var errSignature = errors.New("the request isn't signed by Slack")

// verifier checks that Slack signed a request. Whoever holds a signing secret
// can forge any person's click, so this is where trust in decisions begins.
type verifier struct {
	secrets []string // the current one and, while it is replaced, the previous one
	now     func() time.Time
}

func newVerifier(secrets []string, now func() time.Time) (verifier, error) {
	for _, secret := range secrets {
		if strings.TrimSpace(secret) == "" {
			// Anybody can sign with an empty secret.
			return verifier{}, errors.New("a signing secret is empty; copy it from the Slack app's Basic Information page")
		}
	}
	return verifier{secrets: secrets, now: now}, nil
}

// verify returns an error that wraps errSignature unless one of the secrets
// signed exactly this body, and did so within maxSkew of now. The signature
// covers neither the URL nor other headers, so nothing else may be trusted.
func (v verifier) verify(header http.Header, body []byte) error {
	timestamp, err := single(header, timestampHeader)
	if err != nil {
		return err
	}
	signature, err := single(header, signatureHeader)
	if err != nil {
		return err
	}
	seconds, err := strconv.ParseUint(timestamp, 10, 40)
	if err != nil {
		return fmt.Errorf("%w: the timestamp is no number of seconds", errSignature)
	}
	if skew := v.now().Sub(time.Unix(int64(seconds), 0)); skew > maxSkew || skew < -maxSkew {
		return fmt.Errorf("%w: its time is %s from this server's clock; at most %s is accepted", errSignature, skew.Round(time.Second), maxSkew)
	}
	given, err := hex.DecodeString(strings.TrimPrefix(signature, signaturePrefix))
	if err != nil || !strings.HasPrefix(signature, signaturePrefix) || len(given) != sha256.Size {
		return fmt.Errorf("%w: the signature has not the form v0=<64 hexadecimal digits>", errSignature)
	}
	match := false
	for _, secret := range v.secrets {
		mac := hmac.New(sha256.New, []byte(secret))
		mac.Write([]byte("v0:" + timestamp + ":"))
		mac.Write(body)
		if hmac.Equal(mac.Sum(nil), given) {
			match = true
		}
	}
	if !match {
		return fmt.Errorf("%w: no configured signing secret made this signature", errSignature)
	}
	return nil
}

// single returns a header's value if there is exactly one. Of two, another
// program in between might have checked the other.
func single(header http.Header, name string) (string, error) {
	values := header.Values(name)
	if len(values) != 1 {
		return "", fmt.Errorf("%w: it has %d %s headers", errSignature, len(values), name)
	}
	return values[0], nil
}
