package web_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/approval/approvaltest"
)

// device holds one passkey and does what a real one does, unless a test changes
// that: it makes sure who uses it, and doesn't count.
type device struct {
	t      *testing.T
	key    *ecdsa.PrivateKey
	id     []byte
	origin string // of the page that asks it
	party  string // whom its passkey is for
	flags  byte
	count  uint32
	kind   string // of what it says that it does; empty for what it does
}

// What a device says in its flags.
const (
	isThere     = 0x01
	isVerified  = 0x04
	isEligible  = 0x08
	hasAttested = 0x40
)

func (s *site) device(t *testing.T) *device {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	id := make([]byte, 16)
	_, _ = rand.Read(id)
	return &device{t: t, key: key, id: id, origin: s.url, party: "localhost", flags: isThere | isVerified}
}

// deviceQuestion is what a page's script is told to ask a device.
type deviceQuestion struct {
	Nonce   string
	Problem string
	Create  *struct {
		Challenge string
		RP        struct{ ID string }
		User      struct{ ID string }

		AuthenticatorSelection struct{ UserVerification string }
		ExcludeCredentials     []struct{ ID string }
	}
	Get *struct {
		Challenge, RPID, UserVerification string
		AllowCredentials                  []struct{ ID string }
	}
}

// ask does what the script does before it asks a device.
func (b *browser) ask(address string, form url.Values) (deviceQuestion, page) {
	b.t.Helper()
	got := b.send(address, form)
	var what deviceQuestion
	if err := json.Unmarshal([]byte(got.text), &what); err != nil {
		b.t.Fatalf("%d: %v in %s", got.status, err, got.text)
	}
	return what, got
}

func encoded(data []byte) string { return base64.RawURLEncoding.EncodeToString(data) }

func (d *device) clientData(kind, challenge string) []byte {
	if d.kind != "" {
		kind = d.kind
	}
	return fmt.Appendf(nil, `{"type":%q,"challenge":%q,"origin":%q,"crossOrigin":false}`, kind, challenge, d.origin)
}

func (d *device) data(flags byte) []byte {
	party := sha256.Sum256([]byte(d.party))
	return binary.BigEndian.AppendUint32(append(party[:], flags), d.count)
}

// answer is what the script sends of what a device answers.
func (d *device) answer(what deviceQuestion, values map[string]any) string {
	d.t.Helper()
	values["nonce"], values["id"] = what.Nonce, encoded(d.id)
	text, err := json.Marshal(values)
	if err != nil {
		d.t.Fatal(err)
	}
	return string(text)
}

// make has the device make its passkey.
func (d *device) make(what deviceQuestion) string {
	d.t.Helper()
	point, err := d.key.PublicKey.Bytes()
	if err != nil {
		d.t.Fatal(err)
	}
	public := append([]byte{0xa5, 1, 2, 3, 0x26, 0x20, 1, 0x21, 0x58, 32}, point[1:33]...) // CBOR
	public = append(append(public, 0x22, 0x58, 32), point[33:]...)
	data := append(d.data(d.flags|hasAttested), make([]byte, 16)...)
	data = append(binary.BigEndian.AppendUint16(data, uint16(len(d.id))), d.id...)
	data = append(data, public...)
	attestation := slices.Concat([]byte("\xa3\x63fmt\x64none\x67attStmt\xa0\x68authData\x58"), []byte{byte(len(data))}, data)
	return d.answer(what, map[string]any{
		"clientData":  encoded(d.clientData("webauthn.create", what.Create.Challenge)),
		"attestation": encoded(attestation),
		"transports":  []string{"internal"},
	})
}

// sign has the device sign a challenge.
func (d *device) sign(what deviceQuestion, challenge string) string {
	d.t.Helper()
	client, data := d.clientData("webauthn.get", challenge), d.data(d.flags)
	hash := sha256.Sum256(client)
	digest := sha256.Sum256(append(slices.Clone(data), hash[:]...))
	signature, err := ecdsa.SignASN1(rand.Reader, d.key, digest[:])
	if err != nil {
		d.t.Fatal(err)
	}
	return d.answer(what, map[string]any{
		"clientData":        encoded(client),
		"authenticatorData": encoded(data),
		"signature":         encoded(signature),
	})
}

// token is that of a page's form to an address.
func (p page) token(t *testing.T, action string) string {
	t.Helper()
	found := regexp.MustCompile(`action="` + regexp.QuoteMeta(action) + `">\s*<input type="hidden" name="token" value="([0-9a-f]+)">`).FindStringSubmatch(p.text)
	if found == nil {
		t.Fatalf("no form to %s in\n%s", action, p.text)
	}
	return found[1]
}

// enrol has the signed-in person add the device's passkey.
func (b *browser) enrol(d *device) page {
	b.t.Helper()
	form := url.Values{"token": {b.open(http.MethodGet, "/passkeys").token(b.t, "/passkeys")}}
	what, got := b.ask("/passkeys/make", form)
	if got.status != http.StatusOK {
		return got
	}
	form.Set("name", "Phone <1>")
	form.Set("passkey", d.make(what))
	return b.send("/passkeys", form)
}

// prove has somebody prove again who they are.
func (b *browser) prove(user string) {
	b.t.Helper()
	back, err := b.site.slack.Authorize(user, b.next(b.send("/sign-in", url.Values{"back": {"/passkeys"}})))
	if err != nil {
		b.t.Fatal(err)
	}
	if got := b.open(http.MethodGet, back); got.status != http.StatusSeeOther || got.location != "/passkeys" {
		b.t.Fatalf("signed in again: %d to %q: %s", got.status, got.location, got.text)
	}
}

func (s *site) passkeysOf(t *testing.T, who approval.Approver) []approval.Passkey {
	t.Helper()
	owned, err := s.Service.Passkeys(t.Context(), who)
	if err != nil {
		t.Fatal(err)
	}
	return owned
}

func TestPasskeysPage(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	b := s.browser(t)
	if got := b.open(http.MethodGet, "/passkeys"); got.text != b.open(http.MethodGet, locator).text {
		t.Errorf("a stranger sees another page than anywhere else:\n%s", got.text)
	}
	b.signIn("U0ALICE")
	b.prove("U0ALICE")
	if got := b.open(http.MethodGet, "/passkeys"); !strings.Contains(got.text, "You have none.") {
		t.Errorf("at first:\n%s", got.text)
	}
	d := s.device(t)
	if got := b.enrol(d); got.status != http.StatusSeeOther || got.location != "/passkeys" {
		t.Fatalf("enrolling: %d\n%s", got.status, got.text)
	}
	got := b.open(http.MethodGet, "/passkeys")
	for _, want := range []string{"Phone &lt;1&gt;", `<time datetime="2026-01-02T03:04:05Z">2 January 2026, 03:04 UTC</time>`, "never used"} {
		if !strings.Contains(got.text, want) {
			t.Errorf("no %q in\n%s", want, got.text)
		}
	}
	what, _ := b.ask("/passkeys/make", url.Values{"token": {got.token(t, "/passkeys")}})
	if what.Create.RP.ID != "localhost" || what.Create.AuthenticatorSelection.UserVerification != "required" || len(what.Create.ExcludeCredentials) != 1 || what.Create.ExcludeCredentials[0].ID != encoded(d.id) || strings.Contains(what.Create.User.ID, "ALICE") {
		t.Errorf("a device is asked for %+v", what.Create)
	}
	if again := b.enrol(d); again.status != http.StatusConflict || !strings.Contains(again.text, "has a passkey here already") {
		t.Errorf("enrolling it again: %d\n%s", again.status, again.text)
	}

	// What changes something needs the form of this page, session and passkey, and
	// somebody who has just proved who they are.
	remove := url.Values{"id": {encoded(d.id)}, "token": {got.token(t, "/passkeys/remove")}}
	other := s.browser(t)
	other.signIn("U0BOB")
	other.prove("U0BOB")
	refused := func(name string, got page, status int, says string) {
		t.Helper()
		if got.status != status || !strings.Contains(got.text, says) {
			t.Errorf("%s: %d, want %d and %q:\n%s", name, got.status, status, says, got.text)
		}
	}
	refused("somebody else's form", other.send("/passkeys/remove", remove), http.StatusForbidden, "open for too long")
	refused("another passkey's form", b.send("/passkeys/remove", url.Values{"id": {"AAAA"}, "token": remove["token"]}), http.StatusForbidden, "open for too long")
	refused("no form", b.send("/passkeys/remove", url.Values{"id": {encoded(d.id)}}), http.StatusForbidden, "open for too long")
	refused("enrolling without a form", b.send("/passkeys", url.Values{"name": {"x"}}), http.StatusForbidden, "open for too long")
	_, asking := b.ask("/passkeys/make", url.Values{})
	refused("asking without a form", asking, http.StatusForbidden, "open for too long")
	_, asking = s.browser(t).ask("/passkeys/make", url.Values{"token": {got.token(t, "/passkeys")}})
	refused("asking without a session", asking, http.StatusForbidden, "aren't signed in")
	for name, headers := range map[string][]string{
		"another site":    {"Sec-Fetch-Site", "cross-site"},
		"a sibling":       {"Sec-Fetch-Site", "same-site"},
		"a framed page":   {"Origin", "null"},
		"an older client": {"Origin", "https://evil.example"},
	} {
		for _, address := range []string{"/passkeys", "/passkeys/remove", "/passkeys/make", "/passkeys/sign"} {
			if got := b.send(address, remove, headers...); got.status != http.StatusForbidden || strings.Contains(got.text, "<html") {
				t.Errorf("%s to %s: %d\n%s", name, address, got.status, got.text)
			}
		}
	}
	s.Clock.Advance(approval.FreshSignIn)
	refused("removing after a while", b.send("/passkeys/remove", remove), http.StatusForbidden, "sign in again")
	_, asking = b.ask("/passkeys/make", url.Values{"token": {got.token(t, "/passkeys")}})
	refused("enrolling after a while", asking, http.StatusForbidden, "sign in again")
	stale := b.open(http.MethodGet, "/passkeys")
	if !strings.Contains(stale.text, `action="/sign-in"`) || strings.Contains(stale.text, "/passkeys/remove") {
		t.Errorf("after a while:\n%s", stale.text)
	}
	if n := len(s.passkeysOf(t, approvaltest.Alice)); n != 1 {
		t.Fatalf("there are %d passkeys", n)
	}

	b.prove("U0ALICE")
	remove.Set("token", b.open(http.MethodGet, "/passkeys").token(t, "/passkeys/remove"))
	if got := b.send("/passkeys/remove", remove); got.status != http.StatusSeeOther {
		t.Errorf("removing: %d\n%s", got.status, got.text)
	}
	refused("removing again", b.send("/passkeys/remove", remove), http.StatusForbidden, "no such passkey")
	if n := len(s.passkeysOf(t, approvaltest.Alice)); n != 0 {
		t.Errorf("there are %d passkeys in the end", n)
	}
}

func TestDevicesThatArentEnrolled(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		device func(*device)
		answer func(s *site, b *browser, d *device, what deviceQuestion) string // nil is the right one
		says   string
	}{
		"nobody was verified": {device: func(d *device) { d.flags = isThere }, says: "make sure who you are"},
		"nobody was there":    {device: func(d *device) { d.flags = isVerified }, says: "make sure who you are"},
		"another site's page": {device: func(d *device) { d.origin = "https://evil.example" }, says: "accepted"},
		"another port's page": {device: func(d *device) { d.origin = "http://localhost:1" }, says: "accepted"},
		"a key for another":   {device: func(d *device) { d.party = "evil.example" }, says: "accepted"},
		"a signature":         {device: func(d *device) { d.kind = "webauthn.get" }, says: "accepted"},
		"no answer":           {answer: func(*site, *browser, *device, deviceQuestion) string { return "" }, says: "passkey"},
		"rubbish":             {answer: func(*site, *browser, *device, deviceQuestion) string { return `{"nonce":7}` }, says: "accepted"},
		"another challenge": {answer: func(_ *site, _ *browser, d *device, what deviceQuestion) string {
			what.Create.Challenge = encoded(make([]byte, 32))
			return d.make(what)
		}, says: "accepted"},
		"too late": {answer: func(s *site, _ *browser, d *device, what deviceQuestion) string {
			s.Clock.Advance(2 * time.Minute)
			return d.make(what)
		}, says: "took too long"},
		"asked in another session": {answer: func(s *site, b *browser, d *device, _ deviceQuestion) string {
			other := s.browser(b.t)
			other.signIn("U0ALICE")
			other.prove("U0ALICE")
			what, _ := other.ask("/passkeys/make", url.Values{"token": {other.open(http.MethodGet, "/passkeys").token(b.t, "/passkeys")}})
			return d.make(what)
		}, says: "took too long"},
		"answered before": {answer: func(s *site, b *browser, _ *device, what deviceQuestion) string {
			sent := s.device(b.t).make(what)
			b.send("/passkeys", url.Values{"name": {"x"}, "passkey": {sent}, "token": {b.open(http.MethodGet, "/passkeys").token(b.t, "/passkeys")}})
			return sent
		}, says: "sent before"},
		"another id": {answer: func(s *site, b *browser, d *device, what deviceQuestion) string {
			sent := d.make(what)
			return strings.Replace(sent, encoded(d.id), encoded([]byte("another")), 1)
		}, says: "accepted"},
		"a big answer": {answer: func(*site, *browser, *device, deviceQuestion) string { return strings.Repeat("x", 100_000) }, says: "open for too long"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			b := s.browser(t)
			b.signIn("U0ALICE")
			b.prove("U0ALICE")
			d := s.device(t)
			if test.device != nil {
				test.device(d)
			}
			form := url.Values{"name": {"Phone"}, "token": {b.open(http.MethodGet, "/passkeys").token(t, "/passkeys")}}
			what, _ := b.ask("/passkeys/make", form)
			if test.answer == nil {
				form.Set("passkey", d.make(what))
			} else {
				form.Set("passkey", test.answer(s, b, d, what))
			}
			if got := b.send("/passkeys", form); got.status != http.StatusForbidden || !strings.Contains(got.text, test.says) {
				t.Errorf("%d, want %q:\n%s", got.status, test.says, got.text)
			}
			for _, one := range s.passkeysOf(t, approvaltest.Alice) {
				if string(one.ID) == string(d.id) {
					t.Error("it was enrolled")
				}
			}
		})
	}
}
