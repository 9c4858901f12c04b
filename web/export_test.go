package web

import (
	"crypto/rand"
	"encoding/json"
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

// AnswerDevice has passkeys read what a script says that a device answered: when
// asked to make a passkey, and when asked to sign with what it made, if it did.
// answer gets the challenge and returns the answer without its nonce.
func AnswerDevice(server string, create, get func(challenge string) map[string]any) (made, signed error) {
	address, err := url.Parse(server)
	if err != nil {
		return err, err
	}
	k, err := newPasskeys(address, time.Now, rand.Text)
	if err != nil {
		return err, err
	}
	text := func(what passkeyQuestion, answer map[string]any) string {
		answer["nonce"] = what.Nonce
		data, err := json.Marshal(answer)
		if err != nil {
			panic(err)
		}
		return string(data)
	}
	v := visitor{who: approval.Approver{Workspace: "T0TEST", User: "U0ALICE"}, session: session{formKey: []byte("key")}}
	what, err := k.askToMake(v, nil)
	if err != nil {
		return err, err
	}
	one, err := k.made(v, text(what, create(what.Create.Challenge.String())))
	if err != nil {
		return err, err
	}
	one.Owner = v.who
	owned, b := []approval.Passkey{one}, approval.Ballot{Request: "req_1", Version: 1, Verdict: approval.Approve}
	if what, err = k.askToSign(v, owned, b); err != nil {
		return nil, err
	}
	_, _, err = k.signed(v, owned, b, text(what, get(what.Get.Challenge.String())))
	return nil, err
}
