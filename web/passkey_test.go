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
	"github.com/countersign/countersign/web"
)

// device holds one passkey and does what a real one does, unless a test changes
// that: it makes sure who uses it, and doesn't count.
type device struct {
	t      testing.TB
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

func (s *site) device(t testing.TB) *device {
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
	return d.answer(what, map[string]any{
		"clientData":  encoded(d.clientData("webauthn.create", what.Create.Challenge)),
		"attestation": encoded(d.attestation()),
		"transports":  []string{"internal"},
	})
}

// attestation is what the device says of the passkey that it has made.
func (d *device) attestation() []byte {
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
	return slices.Concat([]byte("\xa3\x63fmt\x64none\x67attStmt\xa0\x68authData\x58"), []byte{byte(len(data))}, data)
}

// sign has the device sign a challenge.
func (d *device) sign(what deviceQuestion, challenge string) string {
	d.t.Helper()
	client, data, signature := d.signature(challenge)
	return d.answer(what, map[string]any{
		"clientData":        encoded(client),
		"authenticatorData": encoded(data),
		"signature":         encoded(signature),
	})
}

// signature is what the device says, and signs, for a challenge.
func (d *device) signature(challenge string) (client, data, signature []byte) {
	d.t.Helper()
	client, data = d.clientData("webauthn.get", challenge), d.data(d.flags)
	hash := sha256.Sum256(client)
	digest := sha256.Sum256(append(slices.Clone(data), hash[:]...))
	signature, err := ecdsa.SignASN1(rand.Reader, d.key, digest[:])
	if err != nil {
		d.t.Fatal(err)
	}
	return client, data, signature
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

// refusedDevice is what a page says of a device that didn't do what it was asked.
const refusedDevice = "That passkey wasn&#39;t accepted."

func TestDevicesThatArentEnrolled(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	b := s.browser(t)
	b.signIn("U0ALICE")
	for name, test := range map[string]struct {
		device func(*device)
		answer func(s *site, b *browser, d *device, what deviceQuestion) string // nil is the right one
		says   string
	}{
		"nobody was verified": {device: func(d *device) { d.flags = isThere }, says: refusedDevice},
		"nobody was there":    {device: func(d *device) { d.flags = isVerified }, says: refusedDevice},
		"another site's page": {device: func(d *device) { d.origin = "https://evil.example" }, says: refusedDevice},
		"another port's page": {device: func(d *device) { d.origin = "http://localhost:1" }, says: refusedDevice},
		"a key for another":   {device: func(d *device) { d.party = "evil.example" }, says: refusedDevice},
		"a signature":         {device: func(d *device) { d.kind = "webauthn.get" }, says: refusedDevice},
		"no answer":           {answer: func(*site, *browser, *device, deviceQuestion) string { return "" }, says: "passkey"},
		"rubbish":             {answer: func(*site, *browser, *device, deviceQuestion) string { return `{"nonce":7}` }, says: refusedDevice},
		"another challenge": {answer: func(_ *site, _ *browser, d *device, what deviceQuestion) string {
			what.Create.Challenge = encoded(make([]byte, 32))
			return d.make(what)
		}, says: refusedDevice},
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
		}, says: refusedDevice},
		"a big answer": {answer: func(*site, *browser, *device, deviceQuestion) string { return strings.Repeat("x", 100_000) }, says: "open for too long"},
	} {
		t.Run(name, func(t *testing.T) {
			b := &browser{t, s, b.Client}
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

// irreversible has the site's agent ask for what takes passkeys of so many people.
func (s *site) irreversible(t *testing.T, count int) *approval.Request {
	t.Helper()
	rules := approvaltest.ParsePolicy(t, fmt.Sprintf(`
version: 1
mode: cautious
roles: {finance: {users: [U0ALICE, U0BOB]}}
approval: {requires: [{role: finance, count: %d}]}
integrations: {ledger: {tools: {close: {tier: 5}}}}
limits: {pending: 1000, per_minute: 1000, cooldown: 0s}
`, count))
	if err := s.Service.SetPolicy(t.Context(), rules); err != nil {
		t.Fatal(err)
	}
	return s.Propose(t, func(p *approval.Proposal) { p.Action = "ledger.close" })
}

// approving is what the page's form to approve a request sends.
func (b *browser) approving(r *approval.Request) url.Values {
	b.t.Helper()
	got := b.open(http.MethodGet, "/review?elicitationId="+string(r.ID))
	_, form, _ := strings.Cut(got.text, `class="approve"`)
	form, _, _ = strings.Cut(form, "</form>")
	values := url.Values{}
	for _, found := range regexp.MustCompile(`<input type="hidden" name="(\w+)" value="([^"]*)">`).FindAllStringSubmatch(form, -1) {
		values.Set(found[1], found[2])
	}
	if values.Get("token") == "" || !strings.Contains(form, `data-passkey="/passkeys/sign"`) {
		b.t.Fatalf("no form to approve in\n%s", got.text)
	}
	return values
}

// signing has the device sign what the form would send.
func (b *browser) signing(d *device, form url.Values) url.Values {
	b.t.Helper()
	what, got := b.ask("/passkeys/sign", form)
	if got.status != http.StatusOK {
		b.t.Fatalf("asking: %d %s", got.status, got.text)
	}
	form.Set("passkey", d.sign(what, what.Get.Challenge))
	return form
}

// approver is Alice with a passkey and a request that takes it.
func approver(t *testing.T, count int) (*site, *browser, *device, *approval.Request) {
	t.Helper()
	s := newSite(t)
	r := s.irreversible(t, count)
	b := s.browser(t)
	b.signIn("U0ALICE")
	b.prove("U0ALICE")
	d := s.device(t)
	d.count = 5
	if got := b.enrol(d); got.status != http.StatusSeeOther {
		t.Fatalf("enrolling: %d\n%s", got.status, got.text)
	}
	d.count = 6
	return s, b, d, r
}

// What can't be undone is approved on the page by a passkey of the approver's, and
// the audit log alone shows that it was.
func TestApproveWithAPasskey(t *testing.T) {
	t.Parallel()
	s, b, d, r := approver(t, 1)
	form := b.approving(r)
	what, _ := b.ask("/passkeys/sign", form)
	if what.Get.RPID != "localhost" || what.Get.UserVerification != "required" || len(what.Get.AllowCredentials) != 1 || what.Get.AllowCredentials[0].ID != encoded(d.id) {
		t.Errorf("the device is asked for %+v", what.Get)
	}
	if got := b.send("/review/decide", b.signing(d, form)); got.status != http.StatusSeeOther {
		t.Fatalf("%d\n%s", got.status, got.text)
	}
	r, err := s.Service.Status(t.Context(), s.Agent, r.ID)
	if err != nil || r.Status != approval.Approved || r.Decisions[0].Approver != approvaltest.Alice {
		t.Fatalf("got %+v (%v)", r, err)
	}
	if owned := s.passkeysOf(t, approvaltest.Alice); owned[0].SignCount != 6 || owned[0].UsedAt.IsZero() {
		t.Errorf("its use isn't noted: %+v", owned[0])
	}

	one := approval.Passkey{ID: d.id, Owner: approvaltest.Alice}
	var proof *approval.PasskeyProof
	for event, err := range s.Store.Events(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		var detail struct {
			Credential []byte
			Passkey    json.RawMessage
		}
		if err := json.Unmarshal(event.Detail, &detail); err != nil {
			t.Fatal(err)
		}
		switch event.Type {
		case "passkey.enrolled":
			one.Credential = detail.Credential
		case "decision.recorded":
			if err := json.Unmarshal(detail.Passkey, &proof); err != nil {
				t.Fatal(err)
			}
		}
	}
	right := approval.Ballot{Request: r.ID, Version: r.Version, Digest: r.Digest, Verdict: approval.Approve}
	if err := web.VerifyProof(s.url, one, right, proof); err != nil {
		t.Errorf("what the audit log has isn't right: %v", err)
	}
	wrong := right
	wrong.Version++
	if err := web.VerifyProof(s.url, one, wrong, proof); err == nil {
		t.Error("what the audit log has is right for another version, too")
	}
	if err := web.VerifyProof("https://example.com", one, right, proof); err == nil {
		t.Error("what the audit log has is right for another server, too")
	}
	proof.Signature[len(proof.Signature)-1]++
	if err := web.VerifyProof(s.url, one, right, proof); err == nil {
		t.Error("a signature that was altered is right")
	}
}

func TestPasskeysThatDontApprove(t *testing.T) {
	t.Parallel()
	s, b, d, _ := approver(t, 1)
	// by has what the device says altered.
	by := func(change func(*device)) func(*site, *browser, *device, *approval.Request, url.Values) url.Values {
		return func(_ *site, b *browser, d *device, _ *approval.Request, form url.Values) url.Values {
			change(d)
			return b.signing(d, form)
		}
	}
	// over has the device sign a challenge that somebody made themselves.
	over := func(change func(*approval.Ballot)) func(*site, *browser, *device, *approval.Request, url.Values) url.Values {
		return func(_ *site, b *browser, d *device, r *approval.Request, form url.Values) url.Values {
			what, _ := b.ask("/passkeys/sign", form)
			ballot := approvaltest.Ballot(r, approval.Approve)
			change(&ballot)
			challenge := approval.PasskeyChallenge([]byte(what.Nonce), ballot)
			form.Set("passkey", d.sign(what, encoded(challenge[:])))
			return form
		}
	}
	var uses uint32
	for name, test := range map[string]struct {
		form func(s *site, b *browser, d *device, r *approval.Request, form url.Values) url.Values
		says string
	}{
		"none": {func(_ *site, _ *browser, _ *device, _ *approval.Request, form url.Values) url.Values {
			return form
		}, "none has signed it"},
		"nobody was verified": {by(func(d *device) { d.flags = isThere }), refusedDevice},
		"nobody was there":    {by(func(d *device) { d.flags = isVerified }), refusedDevice},
		"another kind of key": {by(func(d *device) { d.flags |= isEligible }), refusedDevice},
		"another site's page": {by(func(d *device) { d.origin = "https://evil.example" }), refusedDevice},
		"a key for another":   {by(func(d *device) { d.party = "evil.example" }), refusedDevice},
		"an enrolment":        {by(func(d *device) { d.kind = "webauthn.create" }), refusedDevice},
		"an unknown one":      {by(func(d *device) { d.id = []byte("unknown") }), "no such passkey"},
		"another key":         {by(func(d *device) { d.key, _ = ecdsa.GenerateKey(elliptic.P256(), rand.Reader) }), refusedDevice},
		"a copy":              {by(func(d *device) { d.count = 5 }), "a copy of this passkey"},
		"over a rejection":    {over(func(b *approval.Ballot) { b.Verdict = approval.Reject }), refusedDevice},
		"over another request": {over(func(b *approval.Ballot) {
			b.Request = "req_0123456789abcdef0123456789abcdef"
		}), refusedDevice},
		"over another version": {over(func(b *approval.Ballot) { b.Version++ }), refusedDevice},
		"over another payload": {over(func(b *approval.Ballot) { b.Digest[0]++ }), refusedDevice},
		"over a wider scope":   {over(func(b *approval.Ballot) { b.Scope = "15m" }), refusedDevice},
		"of another request": {func(s *site, b *browser, d *device, r *approval.Request, form url.Values) url.Values {
			other := s.Propose(b.t, func(p *approval.Proposal) { p.Action = "ledger.close" })
			form.Set("passkey", b.signing(d, b.approving(other)).Get("passkey"))
			return form
		}, refusedDevice},
		"asked of another request": {func(s *site, b *browser, d *device, r *approval.Request, form url.Values) url.Values {
			other := s.Propose(b.t, func(p *approval.Proposal) { p.Action = "ledger.close" })
			what, _ := b.ask("/passkeys/sign", b.approving(other))
			challenge := approval.PasskeyChallenge([]byte(what.Nonce), approvaltest.Ballot(r, approval.Approve))
			form.Set("passkey", d.sign(what, encoded(challenge[:])))
			return form
		}, refusedDevice},
		"of a narrower scope": {func(_ *site, b *browser, d *device, _ *approval.Request, form url.Values) url.Values {
			form = b.signing(d, form)
			form.Set("scope", "15m")
			return form
		}, refusedDevice},
		"of another session": {func(s *site, b *browser, d *device, r *approval.Request, form url.Values) url.Values {
			other := s.browser(b.t)
			other.signIn("U0ALICE")
			other.prove("U0ALICE")
			form.Set("passkey", other.signing(d, other.approving(r)).Get("passkey"))
			return form
		}, "took too long"},
		"of somebody else": {func(s *site, b *browser, d *device, r *approval.Request, form url.Values) url.Values {
			bob := s.browser(b.t)
			bob.signIn("U0BOB")
			bob.prove("U0BOB")
			his := s.device(b.t)
			bob.enrol(his)
			what, _ := b.ask("/passkeys/sign", form)
			form.Set("passkey", his.sign(what, what.Get.Challenge))
			return form
		}, "no such passkey"},
		"too late": {func(s *site, b *browser, d *device, _ *approval.Request, form url.Values) url.Values {
			form = b.signing(d, form)
			s.Clock.Advance(2 * time.Minute)
			return form
		}, "took too long"},
		"removed meanwhile": {func(s *site, b *browser, d *device, _ *approval.Request, form url.Values) url.Values {
			form = b.signing(d, form)
			if err := s.Service.RemovePasskey(b.t.Context(), approvaltest.Alice, s.Clock.Now(), d.id); err != nil {
				b.t.Fatal(err)
			}
			return form
		}, "no such passkey"},
		"after an old sign-in": {func(s *site, b *browser, d *device, _ *approval.Request, form url.Values) url.Values {
			s.Clock.Advance(approval.FreshSignIn)
			return b.signing(d, form)
		}, "sign-in of the last 5 minutes"},
		"edited meanwhile": {func(s *site, b *browser, d *device, r *approval.Request, form url.Values) url.Values {
			form = b.signing(d, form)
			if _, err := s.Service.Edit(b.t.Context(), approvaltest.Bob, r.ID, r.Version, []byte(`{"amount": 1}`), approval.Web); err != nil {
				b.t.Fatal(err)
			}
			return form
		}, "changed"},
		"sent before": {func(_ *site, b *browser, d *device, _ *approval.Request, form url.Values) url.Values {
			form = b.signing(d, form)
			b.send("/review/decide", url.Values{"passkey": form["passkey"], "verdict": {"approve"}, "token": form["token"],
				"elicitationId": form["elicitationId"], "version": form["version"], "digest": form["digest"], "scope": {"15m"}})
			return form
		}, "sent before"},
	} {
		t.Run(name, func(t *testing.T) {
			r := s.Propose(t, func(p *approval.Proposal) { p.Action = "ledger.close" })
			b := &browser{t, s, b.Client}
			b.prove("U0ALICE")
			d := *d
			d.t, d.count = t, 5
			if len(s.passkeysOf(t, approvaltest.Alice)) == 0 {
				b.enrol(&d)
			}
			uses++ // each signature is another one of the device's
			d.count += uses
			got := b.send("/review/decide", test.form(s, b, &d, r, b.approving(r)))
			if got.status < 400 || !strings.Contains(got.text, test.says) {
				t.Errorf("%d, want %q:\n%s", got.status, test.says, got.text)
			}
			if r, err := s.Service.Status(t.Context(), s.Agent, r.ID); err != nil || r.Status != approval.Pending {
				t.Errorf("the request is %+v (%v)", r, err)
			}
		})
	}
}

// A signature counts once, even where the same person's vote is wanted no more.
func TestPasskeyIsntUsedTwice(t *testing.T) {
	t.Parallel()
	_, b, d, r := approver(t, 2)
	form := b.signing(d, b.approving(r))
	if got := b.send("/review/decide", form); got.status != http.StatusOK || !strings.Contains(got.text, "1 more of finance is needed") {
		t.Fatalf("%d\n%s", got.status, got.text)
	}
	if got := b.send("/review/decide", form); got.status != http.StatusForbidden || !strings.Contains(got.text, "sent before") {
		t.Errorf("%d\n%s", got.status, got.text)
	}
}

// Whoever has only the cookie can't have anything signed, nor get at what is asked
// of devices from another site.
func TestSigningIsAskedForByTheSession(t *testing.T) {
	t.Parallel()
	s, b, _, r := approver(t, 1)
	form := b.approving(r)
	if got := s.browser(t).send("/passkeys/sign", form); got.status != http.StatusForbidden {
		t.Errorf("without a session: %d %s", got.status, got.text)
	}
	if got := b.send("/passkeys/sign", form, "Sec-Fetch-Site", "cross-site"); got.status != http.StatusForbidden || strings.Contains(got.text, "challenge") {
		t.Errorf("from another site: %d %s", got.status, got.text)
	}
	for field, value := range map[string]string{"version": "2", "digest": strings.Repeat("0", 64), "elicitationId": "req_0123456789abcdef0123456789abcdef"} {
		changed := url.Values{}
		for name, values := range form {
			changed[name] = values
		}
		changed.Set(field, value)
		if got := b.send("/passkeys/sign", changed); got.status < 400 || strings.Contains(got.text, "challenge") {
			t.Errorf("another %s: %d %s", field, got.status, got.text)
		}
	}
	bob := s.browser(t)
	bob.signIn("U0BOB")
	bob.prove("U0BOB")
	if got := bob.open(http.MethodGet, "/review?elicitationId="+string(r.ID)); !strings.Contains(got.text, "you have none yet") || strings.Contains(got.text, `class="approve"`) {
		t.Errorf("without a passkey:\n%s", got.text)
	}
	if got := bob.send("/passkeys/sign", form); got.status != http.StatusForbidden || !strings.Contains(got.text, "no such passkey") {
		t.Errorf("without a passkey: %d %s", got.status, got.text)
	}
}

// Whatever a device says, or whoever speaks for it: it is read or refused, and
// what was altered never counts as signed.
func FuzzDeviceAnswers(f *testing.F) {
	s := &site{url: "https://approvals.example.com"}
	d := s.device(f)
	d.party = "approvals.example.com"
	for _, flags := range []byte{isThere | isVerified, isThere | isVerified | 0x80, isThere | isVerified | hasAttested, 0} {
		for at := range 6 {
			f.Add(flags, at, []byte{0xff}, at*40)
		}
	}
	f.Add(byte(isThere|isVerified), 0, []byte{}, 0)
	f.Fuzz(func(t *testing.T, flags byte, part int, change []byte, where int) {
		altered := false
		alter := func(number int, data []byte) string {
			if number != part || len(change) == 0 {
				return encoded(data)
			}
			at := int(uint(where) % uint(len(data)+1))
			other := slices.Concat(data[:at], change, data[min(len(data), at+len(change)):])
			altered = altered || !slices.Equal(other, data)
			return encoded(other)
		}
		d := *d
		d.t, d.flags = t, flags
		made, signed := web.AnswerDevice(s.url, func(challenge string) map[string]any {
			return map[string]any{
				"id":          encoded(d.id),
				"clientData":  alter(0, d.clientData("webauthn.create", challenge)),
				"attestation": alter(1, d.attestation()),
			}
		}, func(challenge string) map[string]any {
			client, data, signature := d.signature(challenge)
			return map[string]any{
				"id":                alter(2, d.id),
				"clientData":        alter(3, client),
				"authenticatorData": alter(4, data),
				"signature":         alter(5, signature),
			}
		})
		if right := isThere | isVerified; made == nil && int(flags)&right != right {
			t.Errorf("a device that says %08b has made a passkey", flags)
		}
		if !altered && flags == isThere|isVerified && (made != nil || signed != nil) {
			t.Errorf("what is right is refused: %v, %v", made, signed)
		}
		if altered && part >= 2 && signed == nil {
			t.Errorf("part %d was altered, and counts", part)
		}
	})
}
