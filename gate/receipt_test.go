package gate_test

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/countersign/countersign/gate"
	"github.com/countersign/countersign/internal/receipt"
)

var keyMadeAt = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// keyOf is a server's key, the same each time for the same letter.
func keyOf(letter string) receipt.Key {
	return receipt.NewKey([]byte(strings.Repeat(letter, ed25519.SeedSize)), keyMadeAt)
}

// knows are the public keys as a program reads them.
func knows(t testing.TB, keys ...receipt.Key) gate.ReceiptKeys {
	t.Helper()
	var set receipt.KeySet
	for _, key := range keys {
		set.Keys = append(set.Keys, key.Public())
	}
	data, err := set.Encode()
	if err != nil {
		t.Fatal(err)
	}
	known, err := gate.ParseReceiptKeys(data)
	if err != nil {
		t.Fatal(err)
	}
	return known
}

// sign signs anything, as anything.
func sign(t testing.TB, key receipt.Key, kind string, statement []byte) string {
	t.Helper()
	private, err := key.Signing()
	if err != nil {
		t.Fatal(err)
	}
	options := &jose.SignerOptions{}
	if kind != "" {
		options = options.WithType(jose.ContentType(kind))
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.EdDSA, Key: jose.JSONWebKey{Key: private, KeyID: key.ID}}, options)
	if err != nil {
		t.Fatal(err)
	}
	signed, err := signer.Sign(statement)
	if err != nil {
		t.Fatal(err)
	}
	text, err := signed.CompactSerialize()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func statement(change func(*receipt.Statement)) receipt.Statement {
	s := receipt.Statement{
		Receipt:   "rcpt_0" + strings.Repeat("1", 31),
		Request:   "req_0" + strings.Repeat("2", 31),
		Version:   2,
		Digest:    strings.Repeat("ab", 32),
		Verdict:   "approve",
		Scope:     "once",
		DecidedBy: "slack:T0TEST/U0ALICE",
		Person:    true,
		Surface:   "slack",
		Roles:     []receipt.Role{{Role: "finance", Via: "S0FINANCE"}},
		Policy:    "0123456789ab",
		DecidedAt: "2026-01-02T03:05:00.678Z",
	}
	if change != nil {
		change(&s)
	}
	return s
}

func encoded(t testing.TB, s receipt.Statement) []byte {
	t.Helper()
	data, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestVerifyReceipt(t *testing.T) {
	t.Parallel()
	key, other := keyOf("a"), keyOf("b")
	text := sign(t, key, receipt.Type, encoded(t, statement(nil)))
	want := gate.Receipt{
		ID:        "rcpt_0" + strings.Repeat("1", 31),
		RequestID: "req_0" + strings.Repeat("2", 31),
		Version:   2,
		Digest:    strings.Repeat("ab", 32),
		Approved:  true,
		Scope:     "once",
		DecidedBy: "slack:T0TEST/U0ALICE",
		Person:    true,
		Surface:   "slack",
		Roles:     []gate.ReceiptRole{{Role: "finance", Via: "S0FINANCE"}},
		Policy:    "0123456789ab",
		DecidedAt: time.Date(2026, 1, 2, 3, 5, 0, 678_000_000, time.UTC),
		KeyID:     key.ID,
	}
	for name, pasted := range map[string]string{"as it is": text, "pasted": "\n  " + text + "\r\n"} {
		got, err := gate.VerifyReceipt(knows(t, other, key), pasted)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", name, err, diff)
		}
	}
	if _, err := gate.VerifyReceipt(knows(t, other), text); !errors.Is(err, gate.ErrReceiptKey) || errors.Is(err, gate.ErrReceipt) {
		t.Errorf("without its key: %v", err)
	}
	if _, err := gate.VerifyReceipt(gate.ReceiptKeys{}, text); !errors.Is(err, gate.ErrReceiptKey) {
		t.Errorf("without any key: %v", err)
	}
}

func TestReceiptsThatAreNone(t *testing.T) {
	t.Parallel()
	key := keyOf("a")
	replaced := key
	replaced.Expires = keyMadeAt.Add(time.Hour).Unix()
	says := func(change func(*receipt.Statement)) string {
		return sign(t, key, receipt.Type, encoded(t, statement(change)))
	}
	text := says(nil)
	header, rest, _ := strings.Cut(text, ".")
	payload, signature, _ := strings.Cut(rest, ".")
	another, err := keyOf("b").Signing()
	if err != nil {
		t.Fatal(err)
	}
	byAnother := base64.RawURLEncoding.EncodeToString(ed25519.Sign(another, []byte(header+"."+payload)))
	none := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none","kid":"` + key.ID + `","typ":"` + receipt.Type + `"}`))
	hmac, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.HS256, Key: jose.JSONWebKey{Key: []byte(key.X), KeyID: key.ID}}, (&jose.SignerOptions{}).WithType(receipt.Type))
	if err != nil {
		t.Fatal(err)
	}
	byHMAC, err := hmac.Sign(encoded(t, statement(nil)))
	if err != nil {
		t.Fatal(err)
	}
	symmetric, err := byHMAC.CompactSerialize()
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct{ text, want string }{
		"nothing":               {"", "isn't a compact"},
		"an id":                 {"rcpt_0" + strings.Repeat("1", 31), "isn't a compact"},
		"too much":              {strings.Repeat("a", 65<<10), "bytes"},
		"JSON":                  {`{"payload":"` + payload + `","protected":"` + header + `","signature":"` + signature + `"}`, "isn't a compact"},
		"no signature":          {header + "." + payload + ".", "signature"},
		"no algorithm":          {none + "." + payload + ".", "isn't a compact"},
		"a symmetric signature": {symmetric, "isn't a compact"},
		"a line break inside":   {header + "." + payload[:20] + "\n" + payload[20:] + "." + signature, "written"},
		"another's signature":   {header + "." + payload + "." + byAnother, "changed or made up"},
		"no type":               {sign(t, key, "", encoded(t, statement(nil))), "signed as"},
		"another type":          {sign(t, key, "JWT", encoded(t, statement(nil))), "signed as"},
		"another version":       {sign(t, key, "countersign-receipt.v2+jws", encoded(t, statement(nil))), "signed as"},
		"no statement":          {sign(t, key, receipt.Type, []byte("yes")), "statement"},
		"one that says more":    {sign(t, key, receipt.Type, []byte(strings.Replace(string(encoded(t, statement(nil))), "{", `{"only_if":"it rains",`, 1))), "unknown field"},
		"one that says it twice": {sign(t, key, receipt.Type, []byte(strings.Replace(string(encoded(t, statement(nil))), "{", `{"verdict":"reject",`, 1))),
			"statement"},
		"one that leaves it out": {sign(t, key, receipt.Type, []byte(strings.Replace(string(encoded(t, statement(nil))), `"person":true,`, "", 1))), "as countersign writes it"},
		"one in capitals":        {sign(t, key, receipt.Type, []byte(strings.Replace(string(encoded(t, statement(nil))), `"verdict"`, `"VERDICT"`, 1))), "as countersign writes it"},
		"another verdict":        {says(func(s *receipt.Statement) { s.Verdict = "abstain" }), "verdict"},
		"no scope":               {says(func(s *receipt.Statement) { s.Scope = "" }), "scope"},
		"a reject with one":      {says(func(s *receipt.Statement) { s.Verdict = "reject" }), "scope"},
		"no version":             {says(func(s *receipt.Statement) { s.Version = 0 }), "what was decided"},
		"nobody":                 {says(func(s *receipt.Statement) { s.DecidedBy = "" }), "by whom"},
		"another form of time":   {says(func(s *receipt.Statement) { s.DecidedAt = "2026-01-02T04:05:00.678+01:00" }), "decided at"},
		"before its key":         {says(func(s *receipt.Statement) { s.DecidedAt = "2026-01-02T03:03:04.999Z" }), "before its key"},
		"after its key":          {says(func(s *receipt.Statement) { s.DecidedAt = "2026-01-02T04:05:05.001Z" }), "after its key"},
	} {
		got, err := gate.VerifyReceipt(knows(t, replaced), test.text)
		if !errors.Is(err, gate.ErrReceipt) || !strings.Contains(err.Error(), test.want) || !cmp.Equal(got, gate.Receipt{}) {
			t.Errorf("%s: got %+v, %v, want an error with %q", name, got, err, test.want)
		}
	}
	for name, at := range map[string]string{"as early as a clock may say": "2026-01-02T03:03:05.000Z", "as late": "2026-01-02T04:05:05.000Z"} {
		if _, err := gate.VerifyReceipt(knows(t, replaced), says(func(s *receipt.Statement) { s.DecidedAt = at })); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Whatever is changed in a receipt, it is none any more.
func TestChangedReceipts(t *testing.T) {
	t.Parallel()
	key := keyOf("a")
	known := knows(t, key)
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_."
	anyText := rapid.StringMatching(`[a-zA-Z0-9_/:."<>é-]{1,20}`)
	rapid.Check(t, func(rt *rapid.T) {
		said := statement(func(s *receipt.Statement) {
			s.Version = rapid.IntRange(1, 1000).Draw(rt, "version")
			s.DecidedBy, s.Surface, s.Policy = anyText.Draw(rt, "by"), anyText.Draw(rt, "surface"), anyText.Draw(rt, "policy")
			s.Scope = anyText.Draw(rt, "scope")
		})
		text := sign(t, key, receipt.Type, encoded(t, said))
		got, err := gate.VerifyReceipt(known, text)
		if err != nil || got.DecidedBy != said.DecidedBy || got.Version != said.Version || got.Scope != said.Scope {
			rt.Fatalf("got %+v, %v, want what was said: %+v", got, err, said)
		}

		// One character of the text.
		at := rapid.IntRange(0, len(text)-1).Draw(rt, "at")
		changed := text[:at] + string(rapid.SampledFrom([]byte(alphabet)).Draw(rt, "character")) + text[at+1:]
		if changed != text {
			if got, err := gate.VerifyReceipt(known, changed); err == nil {
				rt.Fatalf("with another character at %d it says %+v", at, got)
			}
		}

		// One field, under the signature of what it was.
		other := said
		switch change := rapid.SampledFrom([]string{"receipt", "request", "version", "digest", "verdict", "scope", "by", "person", "surface", "role", "via", "roles", "policy", "at"}).Draw(rt, "field"); change {
		case "receipt":
			other.Receipt += "0"
		case "request":
			other.Request += "0"
		case "version":
			other.Version++
		case "digest":
			other.Digest = strings.Repeat("cd", 32)
		case "verdict":
			other.Verdict, other.Scope = "reject", ""
		case "scope":
			other.Scope += "0"
		case "by":
			other.DecidedBy += "0"
		case "person":
			other.Person = false
		case "surface":
			other.Surface += "0"
		case "role":
			other.Roles = []receipt.Role{{Role: "admin", Via: "S0FINANCE"}}
		case "via":
			other.Roles = []receipt.Role{{Role: "finance", Via: "user"}}
		case "roles":
			other.Roles = []receipt.Role{}
		case "policy":
			other.Policy += "0"
		case "at":
			other.DecidedAt = "2026-01-02T03:05:00.679Z"
		}
		parts := strings.Split(text, ".")
		parts[1] = base64.RawURLEncoding.EncodeToString(encoded(t, other))
		if got, err := gate.VerifyReceipt(known, strings.Join(parts, ".")); !errors.Is(err, gate.ErrReceipt) {
			rt.Fatalf("changed to %+v it says %+v (%v)", other, got, err)
		}
	})
}

// Nothing that somebody makes up is a receipt, and nothing makes the verifier panic.
func FuzzVerifyReceipt(f *testing.F) {
	key := keyOf("a")
	known := knows(f, key)
	text := sign(f, key, receipt.Type, encoded(f, statement(nil)))
	f.Add(text)
	f.Add(sign(f, key, "JWT", encoded(f, statement(nil))))
	f.Add(sign(f, keyOf("b"), receipt.Type, encoded(f, statement(nil))))
	f.Add(text[:len(text)-1] + "B")
	f.Add(strings.Replace(text, ".", "..", 1))
	f.Add(`{"payload":"","signatures":[]}`)
	f.Fuzz(func(t *testing.T, given string) {
		got, err := gate.VerifyReceipt(known, given)
		if (err == nil) != (strings.TrimSpace(given) == text) {
			t.Fatalf("%q: got %+v, %v", given, got, err)
		}
		if err != nil && !errors.Is(err, gate.ErrReceipt) && !errors.Is(err, gate.ErrReceiptKey) {
			t.Fatalf("%q: got %v", given, err)
		}
	})
}

func TestReceiptKeysThatAreNone(t *testing.T) {
	t.Parallel()
	key := keyOf("a").Public()
	whole, err := receipt.KeySet{Keys: []receipt.Key{key}}.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := gate.ParseReceiptKeys(whole); err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string]string{
		"nothing":            "",
		"no keys":            `{"keys":[]}`,
		"a page":             "<!doctype html>",
		"more after it":      string(whole) + "{}",
		"a member too many":  strings.Replace(string(whole), `"kty"`, `"revoked": true, "kty"`, 1),
		"a member twice":     strings.Replace(string(whole), `"kty"`, `"kty": "OKP", "kty"`, 1),
		"and in capitals":    strings.Replace(string(whole), `"kty"`, `"KTY": "OKP", "kty"`, 1),
		"another curve":      strings.Replace(string(whole), "Ed25519", "X25519", 1),
		"another algorithm":  strings.Replace(string(whole), "EdDSA", "HS256", 1),
		"another use":        strings.Replace(string(whole), `"sig"`, `"enc"`, 1),
		"another's name":     strings.Replace(string(whole), key.ID, keyOf("b").ID, 1),
		"another's key":      strings.Replace(string(whole), key.X, keyOf("b").X, 1),
		"half a key":         strings.Replace(string(whole), key.X, key.X[:20], 1),
		"no time":            strings.Replace(string(whole), `"nbf"`, `"iat"`, 1),
		"an end before that": strings.Replace(string(whole), `"nbf"`, `"exp": 5, "nbf"`, 1),
	} {
		if data == string(whole) {
			t.Fatalf("%s: nothing is changed", name)
		}
		if got, err := gate.ParseReceiptKeys([]byte(data)); err == nil {
			t.Errorf("%s: got %+v", name, got)
		}
	}
	twice, err := receipt.KeySet{Keys: []receipt.Key{key, key}}.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := gate.ParseReceiptKeys(twice); err == nil {
		t.Error("took the same key twice")
	}
}

func TestFetchReceiptKeys(t *testing.T) {
	t.Parallel()
	key := keyOf("a")
	whole, err := receipt.KeySet{Keys: []receipt.Key{key.Public()}}.Encode()
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path != "/.well-known/countersign/receipts" || r.Header.Get("Authorization") != "":
			http.Error(w, "no", http.StatusNotFound)
		default:
			_, _ = w.Write(whole)
		}
	}))
	defer server.Close()
	keys, err := gate.FetchReceiptKeys(t.Context(), server.URL+"/", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := gate.VerifyReceipt(keys, sign(t, key, receipt.Type, encoded(t, statement(nil)))); err != nil {
		t.Error(err)
	}
	away := httptest.NewServer(http.RedirectHandler(server.URL+"/.well-known/countersign/receipts", http.StatusFound))
	defer away.Close()
	much := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(strings.Repeat(" ", 1<<20+1)))
	}))
	defer much.Close()
	for address, want := range map[string]string{
		away.URL:                        "302",
		much.URL:                        "bytes",
		"http://approvals.example.com":  "in the clear",
		"https://a:b@approvals.example": "more than scheme and host",
		"approvals.example.com":         "not an address",
	} {
		if _, err := gate.FetchReceiptKeys(t.Context(), address, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", address, err, want)
		}
	}
}
