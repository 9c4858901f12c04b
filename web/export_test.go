package web

import (
	"net/url"
	"time"

	"github.com/countersign/countersign/approval"
)

var (
	ParseRequest = parseRequest
	ParseOutcome = parseOutcome
	ParseWait    = parseWait
)

// VerifyProof verifies what a passkey has signed, as an auditor can: with nothing
// but the server's address and what the audit log holds.
func VerifyProof(server string, one approval.Passkey, b approval.Ballot, proof *approval.PasskeyProof) error {
	address, err := url.Parse(server)
	if err != nil {
		return err
	}
	k, err := newPasskeys(address, time.Now, nil)
	if err != nil {
		return err
	}
	_, err = k.verify(one, b, proof)
	return err
}
