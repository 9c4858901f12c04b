package approval

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/countersign/countersign/policy"
)

var (
	start    = time.Date(2026, 12, 1, 3, 30, 0, 0, time.UTC)
	ada      = Approver{Workspace: "T0DEMO", User: "U0ADA"}
	grace    = Approver{Workspace: "T0DEMO", User: "U0GRACE"}
	olivia   = Approver{Workspace: "T0DEMO", User: "U0OLIVIA"}
	crmAgent = Agent{Name: "crm-agent", Owner: olivia}
	oncall   = Standing{Roles: []Membership{{Role: "oncall", Via: "user"}}}
)

// byAda is who approved, as looked up when the approval is used.
var byAda = []holder{{ada, oncall.Roles}}

const applyWithin = 15 * time.Minute

func oneOf(role string) policy.Ruling {
	return policy.Ruling{
		Effect:       policy.RequireApproval,
		Tier:         policy.TierDestructive,
		Requirement:  policy.Requirement{Roles: []policy.RoleCount{{Role: role, Count: 1}}},
		Rules:        []policy.FiredRule{{ID: "unclassified", Why: "No rule classifies this action."}},
		DecideWithin: MaxTTL,
		ApplyWithin:  applyWithin,
	}
}

func source() *rand.ChaCha8 { return rand.NewChaCha8([32]byte{1}) }

func pending(t *testing.T) *Request {
	t.Helper()
	r, err := propose(crmAgent, Proposal{Purpose: "Clean up", Action: "crm.delete", Payload: []byte(`{"ids":[1,2]}`)}, policy.Explanation{Ruling: oneOf("oncall")}, start, source(), nil)
	if err != nil {
		t.Fatal(err)
	}
	r.events = nil
	return r
}

func ballot(r *Request, v Verdict) Ballot {
	return Ballot{Request: r.ID, Version: r.Version, Digest: r.Digest, Verdict: v, Surface: Slack}
}

// must brings a request into a state for a test.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// in returns a request in each state, one minute after it was made.
func in(t *testing.T, state string) *Request {
	t.Helper()
	r := pending(t)
	now := start.Add(time.Minute)
	approve := func() { must(t, r.decide(ada, oncall, oneOf("oncall"), ballot(r, Approve), now, source(), nil)) }
	switch state {
	case "pending":
	case "approved":
		approve()
	case "applied":
		approve()
		must(t, r.claim("agent:crm", backing{present: byAda}, oneOf("oncall"), now, source()))
	case "finished":
		approve()
		must(t, r.claim("agent:crm", backing{present: byAda}, oneOf("oncall"), now, source()))
		must(t, r.finish("agent:crm", Report{Outcome: Succeeded, Detail: "2 deleted"}, now))
	case "rejected":
		must(t, r.decide(ada, oncall, oneOf("oncall"), ballot(r, Reject), now, source(), nil))
	case "expired":
		r.expire(r.ExpiresAt)
	case "expired approved":
		approve()
		r.expire(r.ApplyBy)
	case "superseded":
		approve()
		must(t, r.claim("agent:crm", backing{}, oneOf("oncall"), now, source()))
	}
	r.events = nil
	return r
}

// The table of every state and every action: what it leads to, or the error
// that refuses it. A refusal changes nothing.
func TestEveryStateAndAction(t *testing.T) {
	t.Parallel()
	now := start.Add(2 * time.Minute)
	actions := map[string]func(*Request) error{
		"approve": func(r *Request) error {
			return r.decide(grace, oncall, oneOf("oncall"), ballot(r, Approve), now, source(), nil)
		},
		"reject": func(r *Request) error {
			return r.decide(grace, oncall, oneOf("oncall"), ballot(r, Reject), now, source(), nil)
		},
		"edit": func(r *Request) error {
			return r.edit(grace, r.Version, Payload(`{"ids":[1]}`), policy.Explanation{Ruling: oneOf("oncall")}, Slack, now)
		},
		"claim": func(r *Request) error {
			return r.claim("agent:crm", backing{present: byAda}, oneOf("oncall"), now, source())
		},
		"finish": func(r *Request) error { return r.finish("agent:crm", Report{Outcome: Failed}, now) },
		"expire early": func(r *Request) error {
			if r.expire(now) {
				return nil
			}
			return errNotDue
		},
		"expire late": func(r *Request) error {
			if r.expire(start.Add(48 * time.Hour)) {
				return nil
			}
			return errNotDue
		},
	}
	type outcome struct {
		status Status
		err    error
	}
	refused := func(err error) outcome { return outcome{err: err} }
	table := map[string]map[string]outcome{
		"pending": {
			"approve": {status: Approved}, "reject": {status: Rejected}, "edit": {status: Pending},
			"claim": refused(ErrPending), "finish": refused(ErrPending),
			"expire early": refused(errNotDue), "expire late": {status: Expired},
		},
		"approved": {
			"approve": refused(ErrDecided), "reject": refused(ErrDecided), "edit": refused(ErrDecided),
			"claim": {status: Applied}, "finish": refused(ErrNotApplied),
			"expire early": refused(errNotDue), "expire late": {status: Expired},
		},
		"applied": {
			"approve": refused(ErrApplied), "reject": refused(ErrApplied), "edit": refused(ErrApplied),
			"claim": refused(ErrApplied), "finish": {status: Applied},
			"expire early": refused(errNotDue), "expire late": refused(errNotDue),
		},
		"finished": {
			"approve": refused(ErrApplied), "reject": refused(ErrApplied), "edit": refused(ErrApplied),
			"claim": refused(ErrApplied), "finish": refused(ErrFinished),
			"expire early": refused(errNotDue), "expire late": refused(errNotDue),
		},
		"rejected": {
			"approve": refused(ErrDecided), "reject": refused(ErrDecided), "edit": refused(ErrDecided),
			"claim": refused(ErrRejected), "finish": refused(ErrRejected),
			"expire early": refused(errNotDue), "expire late": refused(errNotDue),
		},
		"superseded": {
			"approve": refused(ErrDecided), "reject": refused(ErrDecided), "edit": refused(ErrDecided),
			"claim": refused(ErrRejected), "finish": refused(ErrRejected),
			"expire early": refused(errNotDue), "expire late": refused(errNotDue),
		},
		"expired": {
			"approve": refused(ErrExpired), "reject": refused(ErrExpired), "edit": refused(ErrExpired),
			"claim": refused(ErrExpired), "finish": refused(ErrExpired),
			"expire early": refused(errNotDue), "expire late": refused(errNotDue),
		},
		"expired approved": {
			"approve": refused(ErrExpired), "reject": refused(ErrExpired), "edit": refused(ErrExpired),
			"claim": refused(ErrExpired), "finish": refused(ErrExpired),
			"expire early": refused(errNotDue), "expire late": refused(errNotDue),
		},
	}
	for state, row := range table {
		for action, act := range actions {
			want, ok := row[action]
			if !ok {
				t.Errorf("the table has no cell for %s × %s", state, action)
				continue
			}
			t.Run(state+"/"+action, func(t *testing.T) {
				t.Parallel()
				r := in(t, state)
				before := dump(r)
				err := act(r)
				if !errors.Is(err, want.err) {
					t.Fatalf("got %v, want %v", err, want.err)
				}
				if want.err != nil {
					if after := dump(r); after != before {
						t.Errorf("a refusal changed the request:\n%s\n%s", before, after)
					}
					return
				}
				if r.Status != want.status {
					t.Errorf("status %s, want %s", r.Status, want.status)
				}
				if len(r.Events()) == 0 {
					t.Error("a change without an event")
				}
				if r.Status.Final() != !r.ClosedAt.IsZero() {
					t.Errorf("status %s, closed at %v", r.Status, r.ClosedAt)
				}
			})
		}
	}
}

// dump shows all of a request, what its pointers point to included.
func dump(r *Request) string {
	execution := Execution{}
	if r.Execution != nil {
		execution = *r.Execution
	}
	shown := *r
	shown.Execution = nil
	return fmt.Sprintf("%+v %+v", shown, execution)
}

var errNotDue = errors.New("not due")

// At the deadline it is too late, one millisecond before it isn't.
func TestDeadlines(t *testing.T) {
	t.Parallel()
	r := pending(t)
	if r.expire(r.ExpiresAt.Add(-time.Millisecond)) {
		t.Error("expired before the deadline")
	}
	if !r.expire(r.ExpiresAt) {
		t.Error("not expired at the deadline")
	}
	r = in(t, "approved")
	if got, want := r.ApplyBy, start.Add(time.Minute+applyWithin); !got.Equal(want) {
		t.Errorf("apply by %v, want %v", got, want)
	}
	if r.expire(r.ApplyBy.Add(-time.Millisecond)) || !r.expire(r.ApplyBy) {
		t.Error("an approval expires at its deadline")
	}
}

func TestClampTTL(t *testing.T) {
	t.Parallel()
	for ttl, want := range map[time.Duration]time.Duration{
		0:                DefaultTTL,
		-time.Second:     MinTTL,
		59 * time.Second: MinTTL,
		time.Minute:      time.Minute,
		24 * time.Hour:   24 * time.Hour,
		25 * time.Hour:   MaxTTL,
		1<<63 - 1:        MaxTTL,
	} {
		if got := clampTTL(ttl); got != want {
			t.Errorf("%v: got %v, want %v", ttl, got, want)
		}
	}
}

func TestWhoCounts(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name     string
		who      Approver
		standing Standing
		verdict  Verdict
		change   func(*Request, *Ballot)
		want     error
	}{
		{name: "a holder of the role", who: ada, standing: oncall, verdict: Approve},
		{name: "nobody of the role", who: ada, verdict: Approve, want: ErrNotApprover},
		{name: "nobody of the role rejects", who: ada, verdict: Reject, want: ErrNotApprover},
		{name: "another role", who: ada, standing: Standing{Roles: []Membership{{Role: "sales"}}}, verdict: Approve, want: ErrNotApprover},
		{name: "the person the agent acts for", who: olivia, standing: oncall, verdict: Approve, want: ErrSelf},
		{name: "the person the agent acts for rejects", who: olivia, standing: oncall, verdict: Reject},
		{name: "the same id in another workspace is another person", who: Approver{"T0OTHER", olivia.User}, standing: oncall, verdict: Approve},
		{name: "the owner, where the rule says so", who: olivia, standing: oncall, verdict: Approve,
			change: func(r *Request, _ *Ballot) { r.Ruling.Requirement.Roles[0].AllowSelf = true }},
		{name: "the editor", who: grace, standing: oncall, verdict: Approve, want: ErrSelf,
			change: func(r *Request, b *Ballot) {
				_ = r.edit(grace, r.Version, Payload(`{}`), policy.Explanation{Ruling: oneOf("oncall")}, Slack, start)
				*b = ballot(r, Approve)
			}},
		{name: "an older version", who: ada, standing: oncall, verdict: Approve, want: ErrStale,
			change: func(r *Request, _ *Ballot) {
				_ = r.edit(grace, r.Version, Payload(`{}`), policy.Explanation{Ruling: oneOf("oncall")}, Slack, start)
			}},
		{name: "a version to come", who: ada, standing: oncall, verdict: Approve, want: ErrStale,
			change: func(_ *Request, b *Ballot) { b.Version = 2 }},
		{name: "another digest", who: ada, standing: oncall, verdict: Approve, want: ErrStale,
			change: func(_ *Request, b *Ballot) { b.Digest[0] ^= 1 }},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			r := pending(t)
			b := ballot(r, test.verdict)
			if test.change != nil {
				test.change(r, &b)
			}
			err := r.decide(test.who, test.standing, oneOf("oncall"), b, start, source(), nil)
			if !errors.Is(err, test.want) {
				t.Errorf("got %v, want %v", err, test.want)
			}
			if err != nil && len(r.Decisions) != 0 {
				t.Error("a refused ballot was recorded")
			}
		})
	}
}

// What was approved before an edit doesn't count for what comes after it.
func TestEditDropsVotes(t *testing.T) {
	t.Parallel()
	r := pending(t)
	r.Ruling.Requirement.Roles[0].Count = 2
	must(t, r.decide(ada, oncall, oneOf("oncall"), ballot(r, Approve), start, source(), nil))
	first := r.Digest
	must(t, r.edit(grace, r.Version, Payload(`{"ids":[1]}`), policy.Explanation{Ruling: oneOf("oncall")}, Slack, start))
	if r.Version != 2 || r.Digest == first || len(r.Votes()) != 0 {
		t.Errorf("version %d, votes %v", r.Version, r.Votes())
	}
	must(t, r.decide(ada, oncall, oneOf("oncall"), ballot(r, Approve), start, source(), nil))
	if r.Status != Pending || r.Missing()[0].Count != 1 {
		t.Errorf("after one of two: %s, missing %v", r.Status, r.Missing())
	}
}

// The digest tells apart whatever could run differently, and nothing else.
func TestDigest(t *testing.T) {
	t.Parallel()
	of := func(action, environment, pin string, version int, payload string) Digest {
		d, err := digest(action, environment, pin, version, Payload(payload))
		must(t, err)
		return d
	}
	base := of("a", "prod", "", 1, `{"id":9007199254740993,"x":[1]}`)
	if same := of("a", "prod", "", 1, ` { "x" : [ 1 ], "id" : 9007199254740993 } `); same != base {
		t.Error("white space and key order changed the digest")
	}
	for name, other := range map[string]Digest{
		"action":              of("b", "prod", "", 1, `{"id":9007199254740993,"x":[1]}`),
		"environment":         of("a", "staging", "", 1, `{"id":9007199254740993,"x":[1]}`),
		"tool pin":            of("a", "prod", "p", 1, `{"id":9007199254740993,"x":[1]}`),
		"version":             of("a", "prod", "", 2, `{"id":9007199254740993,"x":[1]}`),
		"a number above 2^53": of("a", "prod", "", 1, `{"id":9007199254740992,"x":[1]}`),
		"a number's writing":  of("a", "prod", "", 1, `{"id":9007199254740993,"x":[1.0]}`),
		"a value moved aside": of("ap", "rod", "", 1, `{"id":9007199254740993,"x":[1]}`),
	} {
		if other == base {
			t.Errorf("%s doesn't change the digest", name)
		}
	}
	if of("a", "prod", "", 1, "[\"e\u0301\"]") == of("a", "prod", "", 1, "[\"\u00e9\"]") {
		t.Error("texts that only look the same have one digest")
	}
	parsed, err := ParseDigest(base.String())
	if err != nil || parsed != base {
		t.Errorf("parsing %s: %v", base, err)
	}
	for _, wrong := range []string{"", "ab", base.String() + "0", "G" + base.String()[1:], "ABCDEF" + base.String()[6:]} {
		if _, err := ParseDigest(wrong); err == nil {
			t.Errorf("%q was taken for a digest", wrong)
		}
	}
}

func TestIDsSortByTimeAndDiffer(t *testing.T) {
	t.Parallel()
	random := source()
	a, err := newID("req_", start, random)
	must(t, err)
	b, err := newID("req_", start.Add(time.Millisecond), random)
	must(t, err)
	if !ID(a).Valid() || a >= b {
		t.Errorf("%s and %s", a, b)
	}
	if _, err := newID("req_", start, bytes.NewReader(nil)); err == nil {
		t.Error("made an id without randomness")
	}
	for _, wrong := range []ID{"", "req_", ID(a + "0"), ID("REQ" + a[3:]), ID(a[:10] + "\n" + a[11:])} {
		if wrong.Valid() {
			t.Errorf("%q was taken for an id", wrong)
		}
	}
}
