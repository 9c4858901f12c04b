package approval_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/approval/approvaltest"
	"github.com/countersign/countersign/audit"
	"github.com/countersign/countersign/db"
	"github.com/countersign/countersign/gate"
)

// signed has a fixture's receipts signed by keys of its own.
func signed(t *testing.T) (func(*approval.Options), *db.ReceiptKeys) {
	t.Helper()
	keys, err := db.OpenReceiptKeys(t.TempDir()+"/data", approvaltest.Start)
	if err != nil {
		t.Fatal(err)
	}
	return func(o *approval.Options) { o.Signer = keys }, keys
}

// verify reads a receipt as another program would, which has the public keys.
func verify(t *testing.T, keys *db.ReceiptKeys, text string) gate.Receipt {
	t.Helper()
	public, err := keys.Public()
	if err != nil {
		t.Fatal(err)
	}
	known, err := gate.ParseReceiptKeys(public)
	if err != nil {
		t.Fatal(err)
	}
	got, err := gate.VerifyReceipt(known, text)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// Every decision has a receipt that says what it was, however it came about, and
// the audit log has it too.
func TestEveryDecisionHasAReceipt(t *testing.T) {
	t.Parallel()
	option, keys := signed(t)
	f := approvaltest.NewRuns(t, option)
	held := []gate.ReceiptRole{{Role: "finance", Via: "user"}}
	call := func(options ...func(*approval.Proposal)) approval.Proposal {
		return approvaltest.Call("acct_7", options...)
	}
	for _, test := range []struct {
		name   string
		decide func() *approval.Request
		want   gate.Receipt // apart from what each has
	}{
		{"a person approves", func() *approval.Request {
			return f.Decide(t, approvaltest.Alice, f.ProposeRun(t), approval.Approve)
		}, gate.Receipt{Approved: true, Scope: "once", DecidedBy: "slack:T0TEST/U0ALICE", Person: true, Surface: "slack", Roles: held}},
		{"for longer than once", func() *approval.Request {
			return f.Grant(t, approvaltest.Bob, again(t, f, call()), "15m")
		}, gate.Receipt{Approved: true, Scope: "15m", DecidedBy: "slack:T0TEST/U0BOB", Person: true, Surface: "slack", Roles: held}},
		{"what was granted", func() *approval.Request {
			return again(t, f, call(func(p *approval.Proposal) { p.Payload = []byte(`{"account": "acct_7", "amount": 1}`) }))
		}, gate.Receipt{Approved: true, Scope: "once", DecidedBy: "grant:", Surface: "grant"}},
		{"a person rejects", func() *approval.Request {
			return f.Decide(t, approvaltest.Bob, f.ProposeRun(t), approval.Reject)
		}, gate.Receipt{DecidedBy: "slack:T0TEST/U0BOB", Person: true, Surface: "slack", Roles: held}},
		{"a person revokes", func() *approval.Request {
			r := f.Decide(t, approvaltest.Alice, f.ProposeRun(t), approval.Approve)
			r, err := f.Service.Revoke(t.Context(), approvaltest.Bob, revokes(r))
			if err != nil {
				t.Fatal(err)
			}
			return r
		}, gate.Receipt{DecidedBy: "slack:T0TEST/U0BOB", Person: true, Surface: "web", Roles: held}},
		{"what was edited", func() *approval.Request {
			r := f.ProposeRun(t)
			r, err := f.Service.Edit(t.Context(), approvaltest.Bob, r.ID, 1, []byte(`{"account": "acct_8", "amount": 2}`), approval.Slack)
			if err != nil {
				t.Fatal(err)
			}
			return f.Decide(t, approvaltest.Alice, r, approval.Approve)
		}, gate.Receipt{Approved: true, Scope: "once", DecidedBy: "slack:T0TEST/U0ALICE", Person: true, Surface: "slack", Roles: held}},
		{"the policy allows", func() *approval.Request {
			return again(t, f, call(action("payouts.get")))
		}, gate.Receipt{Approved: true, Scope: "once", DecidedBy: "policy:", Surface: "policy"}},
		{"the policy denies", func() *approval.Request {
			r, err := f.Service.Request(t.Context(), f.Agent, call(action("payouts.wipe")))
			if !errors.Is(err, approval.ErrDenied) {
				t.Fatal(err)
			}
			return r
		}, gate.Receipt{DecidedBy: "policy:no-wipe", Surface: "policy"}},
		{"the client confirms", func() *approval.Request {
			r, err := confirm(t, f, f.ProposeRun(t, inStaging), true)
			if err != nil {
				t.Fatal(err)
			}
			return r
		}, gate.Receipt{Approved: true, Scope: "once", ClientConfirmed: true, DecidedBy: "agent:deployer", Surface: "in-band"}},
		{"the client declines", func() *approval.Request {
			r, err := confirm(t, f, f.ProposeRun(t, inStaging), false)
			if err != nil {
				t.Fatal(err)
			}
			return r
		}, gate.Receipt{DecidedBy: "agent:deployer", Surface: "in-band"}},
	} {
		f.Clock.Advance(time.Millisecond)
		r := test.decide()
		d := r.Decisions[len(r.Decisions)-1]
		got, want := verify(t, keys, d.SignedReceipt), test.want
		want.ID, want.RequestID, want.Version, want.Digest = d.Receipt, string(r.ID), r.Version, r.Digest.String()
		want.Policy, want.DecidedAt, want.KeyID = f.Service.Policy().Revision(), f.Clock.Now(), got.KeyID
		if want.Roles == nil {
			want.Roles = []gate.ReceiptRole{}
		}
		switch want.DecidedBy {
		case "grant:":
			want.DecidedBy += string(r.GrantedBy)
		case "policy:":
			want.DecidedBy += r.Ruling.Decider()
		}
		if diff := cmp.Diff(want, got); diff != "" || got.KeyID == "" {
			t.Errorf("%s (-want +got):\n%s", test.name, diff)
		}
		stored, err := f.Store.Request(t.Context(), r.ID)
		if err != nil || stored.Decisions[len(r.Decisions)-1].SignedReceipt != d.SignedReceipt {
			t.Errorf("%s: the stored receipt is another one (%v)", test.name, err)
		}
		logged := false
		for event, err := range f.Store.Events(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			var detail struct {
				Receipt       string `json:"receipt"`
				SignedReceipt string `json:"signed_receipt"`
			}
			if err := json.Unmarshal(event.Detail, &detail); err != nil {
				t.Fatal(err)
			}
			logged = logged || event.RequestID == string(r.ID) && detail.Receipt == d.Receipt && detail.SignedReceipt == d.SignedReceipt
		}
		if !logged {
			t.Errorf("%s: no event has the receipt", test.name)
		}
	}
}

// broken signs nothing.
type broken struct{ err error }

func (b *broken) SignReceipt([]byte) (string, error) { return "", b.err }

// What can't be signed isn't decided: nothing of it is stored.
func TestNoDecisionWithoutAReceipt(t *testing.T) {
	t.Parallel()
	lost := &broken{fmt.Errorf("no key")}
	f := approvaltest.NewRuns(t, func(o *approval.Options) { o.Signer = lost })
	r := f.ProposeRun(t)
	for _, verdict := range []approval.Verdict{approval.Approve, approval.Reject} {
		if _, err := f.Service.Decide(t.Context(), approvaltest.Alice, approvaltest.Ballot(r, verdict)); !errors.Is(err, approval.ErrUnavailable) || !errors.Is(err, lost.err) {
			t.Errorf("%s: got %v", verdict, err)
		}
	}
	if _, err := f.Service.Request(t.Context(), f.Agent, approvaltest.Call("acct_7", action("payouts.get"))); !errors.Is(err, approval.ErrUnavailable) {
		t.Errorf("what the policy allows: got %v", err)
	}
	if _, err := confirm(t, f, f.ProposeRun(t, inStaging), true); !errors.Is(err, approval.ErrUnavailable) {
		t.Errorf("what the client confirms: got %v", err)
	}
	got, err := f.Store.Request(t.Context(), r.ID)
	if err != nil || got.Status != approval.Pending || len(got.Decisions) != 0 || got.Revision != r.Revision {
		t.Errorf("got %+v (%v), want it as it was", got, err)
	}
}

// Who has another key sign is on record.
func TestNoteReceiptKey(t *testing.T) {
	t.Parallel()
	f := approvaltest.New(t)
	if err := f.Service.NoteReceiptKey(t.Context(), approval.Operator{Name: "root"}, "the-key"); err != nil {
		t.Fatal(err)
	}
	var last audit.Event
	for event, err := range f.Store.Events(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		last = event
	}
	if last.Type != "receipt_key.rotated" || last.Actor != "operator:root" || string(last.Detail) != `{"key":"the-key"}` || !last.At.Equal(approvaltest.Start) {
		t.Errorf("the event is %+v", last)
	}
}
