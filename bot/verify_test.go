package bot_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/countersign/countersign/bot"
)

// Slack's documentation of request signing has this example.
const (
	documentedSecret    = "8f742231b10e8888abcd99yyyzzz85a5"
	documentedTime      = 1531420618
	documentedSignature = "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503"
	documentedBody      = "token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V" +
		"&channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text=" +
		"&response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN" +
		"&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c"
)

func signed(timestamp, signature string) http.Header {
	return http.Header{
		"X-Slack-Request-Timestamp": {timestamp},
		"X-Slack-Signature":         {signature},
	}
}

func sign(secret, timestamp, body string) string {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte("v0:" + timestamp + ":" + body))
	return "v0=" + hex.EncodeToString(mac.Sum(nil))
}

func TestVerifyAcceptsSlacksExample(t *testing.T) {
	t.Parallel()
	header := signed(strconv.Itoa(documentedTime), documentedSignature)
	for name, secrets := range map[string][]string{
		"the secret":                    {documentedSecret},
		"a new secret, then this one":   {"another", documentedSecret},
		"this one, then an earlier one": {documentedSecret, "another"},
	} {
		if err := bot.Verify(secrets, time.Unix(documentedTime, 0), header, []byte(documentedBody)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestVerifyWindow(t *testing.T) {
	t.Parallel()
	header := signed(strconv.Itoa(documentedTime), documentedSignature)
	for seconds, accepted := range map[int64]bool{
		0: true, 299: true, 300: true, -300: true, -299: true,
		301: false, -301: false, 86400: false, -86400: false,
	} {
		now := time.Unix(documentedTime+seconds, 0)
		err := bot.Verify([]string{documentedSecret}, now, header, []byte(documentedBody))
		if accepted && err != nil || !accepted && !errors.Is(err, bot.ErrSignature) {
			t.Errorf("at %+d s: %v", seconds, err)
		}
	}
}

func TestVerifyRefuses(t *testing.T) {
	t.Parallel()
	stamp := strconv.Itoa(documentedTime)
	good := func() http.Header { return signed(stamp, documentedSignature) }
	twice := func(name string) http.Header {
		h := good()
		h.Add(name, h.Get(name))
		return h
	}
	tests := []struct {
		name    string
		secrets []string
		header  http.Header
		body    string
	}{
		{"another secret", []string{"8f742231b10e8888abcd99yyyzzz85a6"}, good(), documentedBody},
		{"no secret", nil, good(), documentedBody},
		{"a body with a byte more", []string{documentedSecret}, good(), documentedBody + "&"},
		{"a body with a byte less", []string{documentedSecret}, good(), documentedBody[1:]},
		{"no body", []string{documentedSecret}, good(), ""},
		{"no headers", []string{documentedSecret}, http.Header{}, documentedBody},
		{"two timestamps", []string{documentedSecret}, twice("X-Slack-Request-Timestamp"), documentedBody},
		{"two signatures", []string{documentedSecret}, twice("X-Slack-Signature"), documentedBody},
		{"another time, same signature", []string{documentedSecret}, signed(strconv.Itoa(documentedTime+1), documentedSignature), documentedBody},
		{"no version", []string{documentedSecret}, signed(stamp, strings.TrimPrefix(documentedSignature, "v0=")), documentedBody},
		{"another version", []string{documentedSecret}, signed(stamp, "v1"+strings.TrimPrefix(documentedSignature, "v0")), documentedBody},
		{"a short signature", []string{documentedSecret}, signed(stamp, documentedSignature[:10]), documentedBody},
		{"an empty signature", []string{documentedSecret}, signed(stamp, "v0="), documentedBody},
		{"a time that isn't one", []string{documentedSecret}, signed("soon", sign(documentedSecret, "soon", documentedBody)), documentedBody},
		{"a time with a sign", []string{documentedSecret}, signed("+"+stamp, sign(documentedSecret, "+"+stamp, documentedBody)), documentedBody},
		{"a time beyond all clocks", []string{documentedSecret}, signed("9999999999999999999", sign(documentedSecret, "9999999999999999999", documentedBody)), documentedBody},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			err := bot.Verify(test.secrets, time.Unix(documentedTime, 0), test.header, []byte(test.body))
			if !errors.Is(err, bot.ErrSignature) {
				t.Errorf("got %v, want %v", err, bot.ErrSignature)
			}
		})
	}
}

func TestEmptySigningSecretIsRefused(t *testing.T) {
	t.Parallel()
	for _, secrets := range [][]string{{""}, {" "}, {documentedSecret, ""}} {
		body := "payload=%7B%7D"
		stamp := strconv.Itoa(documentedTime)
		err := bot.Verify(secrets, time.Unix(documentedTime, 0), signed(stamp, sign("", stamp, body)), []byte(body))
		if err == nil || errors.Is(err, bot.ErrSignature) {
			t.Errorf("secrets %q: got %v, want a refusal to start", secrets, err)
		}
	}
}

// Whatever is changed in a signed request, it is no longer accepted.
func FuzzVerify(f *testing.F) {
	stamp := strconv.Itoa(documentedTime)
	f.Add(stamp, documentedSignature, []byte(documentedBody))
	f.Add(stamp, "v0=", []byte{})
	f.Add("", "v0="+strings.Repeat("0", 64), []byte("payload={}"))
	f.Fuzz(func(t *testing.T, timestamp, signature string, body []byte) {
		err := bot.Verify([]string{documentedSecret}, time.Unix(documentedTime, 0), signed(timestamp, signature), body)
		same := timestamp == stamp && strings.EqualFold(signature, documentedSignature) && string(body) == documentedBody
		if err == nil && !same {
			t.Errorf("accepted timestamp %q, signature %q, body %q", timestamp, signature, body)
		}
	})
}
