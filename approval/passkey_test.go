package approval_test

import (
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
		if _, err := f.Service.EnrolPasskey(t.Context(), test.who, one, approval.Slack); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v, want %q", name, err, test.want)
		}
	}
	f.People.Bar(approvaltest.Bob, "a guest")
	if _, err := f.Service.EnrolPasskey(t.Context(), approvaltest.Bob, passkey("a"), approval.Slack); !errors.Is(err, approval.ErrIneligible) {
		t.Errorf("a guest: got %v", err)
	}
	f.People.Fail(errors.New("outage"))
	if _, err := f.Service.EnrolPasskey(t.Context(), approvaltest.Alice, passkey("a"), approval.Slack); !errors.Is(err, approval.ErrUnverified) {
		t.Errorf("while look-ups fail: got %v", err)
	}
	f.People.Fail(nil)
	select {
	case <-rung:
		t.Error("something was told although nothing happened")
	default:
	}

	if _, err := f.Service.EnrolPasskey(t.Context(), approvaltest.Alice, passkey("a"), approval.Slack); err != nil {
		t.Fatal(err)
	}
	select {
	case <-rung:
	default:
		t.Error("who tells people wasn't woken")
	}
	ballot := approvaltest.Ballot(f.Propose(t), approval.Approve)
	use := func(who approval.Approver, id string, count uint32) error {
		return f.Service.UsePasskey(t.Context(), who, []byte(id), count, ballot)
	}
	for name, got := range map[string]error{
		"somebody else's":      use(approvaltest.Bob, "a", 1),
		"an unknown one":       use(approvaltest.Alice, "b", 1),
		"removing of another":  f.Service.RemovePasskey(t.Context(), approvaltest.Bob, []byte("a"), approval.Slack),
		"removing unknown one": f.Service.RemovePasskey(t.Context(), approvaltest.Alice, []byte("b"), approval.Slack),
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
	if err := f.Service.RemovePasskey(t.Context(), approvaltest.Alice, []byte("a"), approval.Slack); err != nil {
		t.Fatal(err)
	}
	alice := approvaltest.Alice.String() + " slack map["
	used := func(kind string, previous, count int) string {
		return fmt.Sprintf("%s %sname:Laptop passkey:YQ previous:%d request:%s sign_count:%d]", kind, alice, previous, ballot.Request, count)
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
