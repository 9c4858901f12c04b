package approval_test

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/approval/approvaltest"
)

func passkey(id string) approval.Passkey {
	return approval.Passkey{ID: []byte(id), Name: "Laptop", Credential: []byte("public key")}
}

// passkeyEvents are the types of the events about passkeys, with what they say.
func passkeyEvents(t *testing.T, f *approvaltest.Fixture) []string {
	t.Helper()
	var all []string
	for event, err := range f.Store.Events(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(event.Type, "passkey.") {
			continue
		}
		var detail map[string]any
		if err := json.Unmarshal(event.Detail, &detail); err != nil {
			t.Fatal(err)
		}
		all = append(all, fmt.Sprint(event.Type, " ", event.Actor, " ", event.Surface, " ", detail))
	}
	return all
}

func TestPasskeysOfAPerson(t *testing.T) {
	t.Parallel()
	f := approvaltest.New(t)
	rung, stop := f.Service.Bell().ListenAll()
	defer stop()
	for name, test := range map[string]struct {
		who    approval.Approver
		change func(*approval.Passkey)
		want   string
	}{
		"no role":          {approvaltest.Carol, nil, "holds none of the required roles"},
		"nobody":           {approval.Approver{}, nil, "holds none of the required roles"},
		"no name":          {approvaltest.Alice, func(k *approval.Passkey) { k.Name = " " }, "name: is empty"},
		"a long name":      {approvaltest.Alice, func(k *approval.Passkey) { k.Name = strings.Repeat("ü", 61) }, "at most 60"},
		"broken text":      {approvaltest.Alice, func(k *approval.Passkey) { k.Name = "\xff" }, "UTF-8"},
		"no id":            {approvaltest.Alice, func(k *approval.Passkey) { k.ID = nil }, "none that can be stored"},
		"a long id":        {approvaltest.Alice, func(k *approval.Passkey) { k.ID = make([]byte, 1024) }, "none that can be stored"},
		"no credential":    {approvaltest.Alice, func(k *approval.Passkey) { k.Credential = nil }, "none that can be stored"},
		"a big credential": {approvaltest.Alice, func(k *approval.Passkey) { k.Credential = make([]byte, 1<<20) }, "none that can be stored"},
	} {
		one := passkey("a")
		if test.change != nil {
			test.change(&one)
		}
		if _, err := f.Service.EnrolPasskey(t.Context(), test.who, f.Clock.Now(), one); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v, want %q", name, err, test.want)
		}
	}
	stale := f.Clock.Now().Add(-approval.FreshSignIn)
	_, err := f.Service.EnrolPasskey(t.Context(), approvaltest.Alice, stale, passkey("a"))
	for name, got := range map[string]error{
		"enrolling": err,
		"removing":  f.Service.RemovePasskey(t.Context(), approvaltest.Alice, stale, []byte("a")),
	} {
		if !errors.Is(got, approval.ErrSignInAgain) {
			t.Errorf("%s after an old sign-in: got %v", name, got)
		}
	}
	f.People.Bar(approvaltest.Bob, "a guest")
	if _, err := f.Service.EnrolPasskey(t.Context(), approvaltest.Bob, f.Clock.Now(), passkey("a")); !errors.Is(err, approval.ErrIneligible) {
		t.Errorf("a guest: got %v", err)
	}
	f.People.Fail(errors.New("outage"))
	if _, err := f.Service.EnrolPasskey(t.Context(), approvaltest.Alice, f.Clock.Now(), passkey("a")); !errors.Is(err, approval.ErrUnverified) {
		t.Errorf("while look-ups fail: got %v", err)
	}
	f.People.Fail(nil)
	select {
	case <-rung:
		t.Error("something was told although nothing happened")
	default:
	}

	if _, err := f.Service.EnrolPasskey(t.Context(), approvaltest.Alice, f.Clock.Now(), passkey("a")); err != nil {
		t.Fatal(err)
	}
	select {
	case <-rung:
	default:
		t.Error("who tells people wasn't woken")
	}
	about := f.Propose(t).ID
	use := func(who approval.Approver, id string, count uint32) error {
		return f.Service.UsePasskey(t.Context(), who, []byte(id), count, about)
	}
	for name, got := range map[string]error{
		"somebody else's":      use(approvaltest.Bob, "a", 1),
		"an unknown one":       use(approvaltest.Alice, "b", 1),
		"removing of another":  f.Service.RemovePasskey(t.Context(), approvaltest.Bob, f.Clock.Now(), []byte("a")),
		"removing unknown one": f.Service.RemovePasskey(t.Context(), approvaltest.Alice, f.Clock.Now(), []byte("b")),
	} {
		if !errors.Is(got, approval.ErrNoPasskey) {
			t.Errorf("%s: got %v, want ErrNoPasskey", name, got)
		}
	}
	for _, step := range []struct {
		count uint32
		want  error
	}{
		{0, nil}, {0, nil}, // a device that doesn't count
		{5, nil}, {6, nil},
		{6, approval.ErrPasskeyCopied}, {2, approval.ErrPasskeyCopied}, {0, approval.ErrPasskeyCopied},
		{7, nil},
	} {
		if err := use(approvaltest.Alice, "a", step.count); !errors.Is(err, step.want) {
			t.Errorf("signed %d times: got %v, want %v", step.count, err, step.want)
		}
	}
	if err := f.Service.RemovePasskey(t.Context(), approvaltest.Alice, f.Clock.Now(), []byte("a")); err != nil {
		t.Fatal(err)
	}
	alice := approvaltest.Alice.String() + " web map["
	used := func(kind string, previous, count int) string {
		return fmt.Sprintf("%s %sname:Laptop passkey:YQ previous:%d request:%s sign_count:%d]", kind, alice, previous, about, count)
	}
	want := []string{
		"passkey.enrolled " + alice + "credential:cHVibGljIGtleQ== name:Laptop passkey:YQ]",
		used("passkey.used", 0, 0), used("passkey.used", 0, 0), used("passkey.used", 0, 5), used("passkey.used", 5, 6),
		used("passkey.refused", 6, 6), used("passkey.refused", 6, 2), used("passkey.refused", 6, 0),
		used("passkey.used", 6, 7),
		"passkey.removed " + alice + "name:Laptop passkey:YQ]",
	}
	if diff := cmp.Diff(want, passkeyEvents(t, f)); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	var told []approval.PersonalNoticeKind
	now := f.Clock.Now()
	for {
		notice, ok, err := f.Store.LeasePersonalNotice(t.Context(), approvaltest.Alice.Workspace, now, now.Add(1))
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			break
		}
		told = append(told, notice.Kind)
		if err := f.Store.SettlePersonalNotice(t.Context(), notice, approval.Settlement{Reference: "D1/1"}); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(map[approval.PersonalNoticeKind]int{approval.PasskeyEnrolled: 1, approval.PasskeyCopied: 3, approval.PasskeyRemoved: 1}, tally(told)); diff != "" {
		t.Errorf("what Alice is told (-want +got):\n%s", diff)
	}
}

func tally[T comparable](all []T) map[T]int {
	counts := make(map[T]int)
	for _, one := range all {
		counts[one]++
	}
	return counts
}

// What differs in anything that says what happens has another challenge.
func TestPasskeyChallengeBindsTheBallot(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		draw := func(label string) ([]byte, approval.Ballot) {
			b := approval.Ballot{
				Request: approval.ID(rapid.SampledFrom([]string{"req_1", "req_2"}).Draw(t, label+" request")),
				Version: rapid.IntRange(1, 2).Draw(t, label+" version"),
				Digest:  approval.Digest{rapid.Byte().Draw(t, label+" digest") & 1},
				Verdict: rapid.SampledFrom([]approval.Verdict{approval.Approve, approval.Reject}).Draw(t, label+" verdict"),
				Scope:   rapid.SampledFrom([]string{"", approval.ScopeOnce, "15m", "1h"}).Draw(t, label+" scope"),
			}
			return []byte(rapid.SampledFrom([]string{"", "n", "nr"}).Draw(t, label+" nonce")), b
		}
		nonce, one := draw("one")
		other, two := draw("two")
		plain := func(b approval.Ballot) approval.Ballot {
			if b.Verdict == approval.Reject || b.Scope == approval.ScopeOnce {
				b.Scope = ""
			}
			return b
		}
		same := string(nonce) == string(other) && plain(one) == plain(two)
		if got := approval.PasskeyChallenge(nonce, one) == approval.PasskeyChallenge(other, two); got != same {
			t.Errorf("%q %+v and %q %+v: the same challenge is %v", nonce, one, other, two, got)
		}
	})
}

// proof is what a device would have signed for a ballot, but for the signature,
// which is the surface's to verify.
func proof(b approval.Ballot, kind string, flags byte) *approval.PasskeyProof {
	nonce := []byte("a nonce of 16 bytes or more")
	challenge := approval.PasskeyChallenge(nonce, b)
	return &approval.PasskeyProof{
		Passkey:           []byte("key"),
		Nonce:             nonce,
		AuthenticatorData: append(make([]byte, 32), flags, 0, 0, 0, 1),
		ClientData:        fmt.Appendf(nil, `{"type":%q,"challenge":%q,"origin":"https://example.com"}`, kind, base64.RawURLEncoding.EncodeToString(challenge[:])),
		Signature:         []byte("signature"),
	}
}

// What can't be undone takes a passkey's signature over exactly what is approved
// on the page.
func TestApprovalsThatTakeAPasskey(t *testing.T) {
	t.Parallel()
	const present, verified = 1, 4
	rules := approvaltest.ParsePolicy(t, `
version: 1
mode: cautious
roles: {finance: {users: [U0ALICE, U0BOB]}}
approval: {requires: [{role: finance}], scopes: [once, 15m]}
integrations: {ledger: {tools: {close: {tier: 5}, wipe: {tier: 4}}}}
limits: {pending: 1000, per_minute: 1000, cooldown: 0s}
`)
	other := func(b approval.Ballot, change func(*approval.Ballot)) *approval.PasskeyProof {
		change(&b)
		return proof(b, "webauthn.get", present|verified)
	}
	for name, test := range map[string]struct {
		action string
		change func(*approval.Ballot)
		want   error
	}{
		"signed": {"ledger.close", func(b *approval.Ballot) { b.Passkey = proof(*b, "webauthn.get", present|verified) }, nil},
		"none":   {"ledger.close", func(*approval.Ballot) {}, approval.ErrPasskeyNeeded},
		"a sign-in that is old": {"ledger.close", func(b *approval.Ballot) {
			b.Passkey = proof(*b, "webauthn.get", present|verified)
			b.SignedInAt = b.SignedInAt.Add(-approval.FreshSignIn)
		}, approval.ErrSignInAgain},
		"nobody was verified": {"ledger.close", func(b *approval.Ballot) { b.Passkey = proof(*b, "webauthn.get", present) }, approval.ErrPasskeyNeeded},
		"nobody was there":    {"ledger.close", func(b *approval.Ballot) { b.Passkey = proof(*b, "webauthn.get", verified) }, approval.ErrPasskeyNeeded},
		"an enrolment":        {"ledger.close", func(b *approval.Ballot) { b.Passkey = proof(*b, "webauthn.create", present|verified) }, approval.ErrPasskeyNeeded},
		"another request": {"ledger.close", func(b *approval.Ballot) {
			b.Passkey = other(*b, func(b *approval.Ballot) { b.Request = "req_0" })
		}, approval.ErrPasskeyNeeded},
		"another version": {"ledger.close", func(b *approval.Ballot) { b.Passkey = other(*b, func(b *approval.Ballot) { b.Version++ }) }, approval.ErrPasskeyNeeded},
		"another payload": {"ledger.close", func(b *approval.Ballot) { b.Passkey = other(*b, func(b *approval.Ballot) { b.Digest[0]++ }) }, approval.ErrPasskeyNeeded},
		"another scope": {"ledger.close", func(b *approval.Ballot) {
			b.Passkey = other(*b, func(b *approval.Ballot) { b.Scope = "15m" })
		}, approval.ErrPasskeyNeeded},
		"a rejection": {"ledger.close", func(b *approval.Ballot) {
			b.Passkey = other(*b, func(b *approval.Ballot) { b.Verdict = approval.Reject })
		}, approval.ErrPasskeyNeeded},
		"another nonce": {"ledger.close", func(b *approval.Ballot) {
			b.Passkey = proof(*b, "webauthn.get", present|verified)
			b.Passkey.Nonce = []byte("another nonce of 16 bytes or more")
		}, approval.ErrPasskeyNeeded},
		"a guessable nonce": {"ledger.close", func(b *approval.Ballot) {
			b.Passkey = proof(*b, "webauthn.get", present|verified)
			b.Passkey.Nonce = nil
		}, approval.ErrPasskeyNeeded},
		"no authenticator data": {"ledger.close", func(b *approval.Ballot) {
			b.Passkey = proof(*b, "webauthn.get", present|verified)
			b.Passkey.AuthenticatorData = b.Passkey.AuthenticatorData[:32]
		}, approval.ErrPasskeyNeeded},
		"no client data": {"ledger.close", func(b *approval.Ballot) {
			b.Passkey = proof(*b, "webauthn.get", present|verified)
			b.Passkey.ClientData = nil
		}, approval.ErrPasskeyNeeded},
		"rejecting":           {"ledger.close", func(b *approval.Ballot) { b.Verdict = approval.Reject }, nil},
		"in Slack":            {"ledger.close", func(b *approval.Ballot) { b.Surface = approval.Slack }, nil},
		"what can be undone":  {"ledger.wipe", func(*approval.Ballot) {}, nil},
		"one that isn't used": {"ledger.wipe", func(b *approval.Ballot) { b.Passkey = new(approval.PasskeyProof) }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := approvaltest.New(t, func(o *approval.Options) { o.Policy = rules })
			r := f.Propose(t, func(p *approval.Proposal) { p.Action = test.action })
			ballot := approvaltest.Ballot(r, approval.Approve)
			ballot.Surface, ballot.SignedInAt = approval.Web, f.Clock.Now()
			test.change(&ballot)
			r, err := f.Service.Decide(t.Context(), approvaltest.Alice, ballot)
			if !errors.Is(err, test.want) || (err == nil) != (len(r.Decisions) == 1) {
				t.Fatalf("got %v with %d decisions, want %v", err, len(r.Decisions), test.want)
			}
			var detail struct{ Passkey *approval.PasskeyProof }
			for event, err := range f.Store.Events(t.Context()) {
				if err != nil {
					t.Fatal(err)
				}
				if event.Type == "decision.recorded" {
					if err := json.Unmarshal(event.Detail, &detail); err != nil {
						t.Fatal(err)
					}
				}
			}
			want := ballot.Passkey
			if err != nil || test.action != "ledger.close" {
				want = nil
			}
			if diff := cmp.Diff(want, detail.Passkey); diff != "" {
				t.Errorf("the proof in the event (-want +got):\n%s", diff)
			}
		})
	}
}
