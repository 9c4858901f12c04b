package approval_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/approval/approvaltest"
)

// twoRoles has Alice in finance, Bob in finance and sre, and asks one of each,
// not for what is somebody's own.
const twoRoles = `
version: 1
mode: cautious
roles: {finance: {users: [U0ALICE, U0BOB]}, sre: {users: [U0BOB]}, owners: {users: [U0DAVE]}}
approval: {requires: [{role: finance}, {role: sre}]}
limits: {pending: 1000000, per_minute: 1000000, cooldown: 0s}
`

var dave = approval.Approver{Workspace: "T0TEST", User: "U0DAVE"}

func looking(t *testing.T) *approvaltest.Fixture {
	f := approvaltest.New(t, func(o *approval.Options) { o.Policy = approvaltest.ParsePolicy(t, twoRoles) })
	f.People.Give("sre", approvaltest.Bob)
	f.People.Give("owners", dave)
	return f
}

func ids(requests []*approval.Request) []approval.ID {
	var ids []approval.ID
	for _, r := range requests {
		ids = append(ids, r.ID)
	}
	return ids
}

func TestWaiting(t *testing.T) {
	t.Parallel()
	f := looking(t)
	waits := func(when string, who approval.Approver, want ...*approval.Request) {
		t.Helper()
		queue, err := f.Service.Waiting(t.Context(), who, approval.QueueKey{})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(ids(want), ids(queue.Requests)); diff != "" || !queue.Next.IsZero() {
			t.Errorf("%s, %s has (-want +got):\n%s", when, who.User, diff)
		}
	}
	long := f.Propose(t, func(p *approval.Proposal) { p.TTL = 5 * time.Hour })
	short := f.Propose(t, func(p *approval.Proposal) { p.TTL = time.Minute })
	waits("at first", approvaltest.Alice, short, long)
	waits("at first", approvaltest.Bob, short, long)
	waits("at first", dave)
	// Bob may be either of the two, so that one of them is left to Alice.
	f.Decide(t, approvaltest.Bob, long, approval.Approve)
	waits("after Bob's yes", approvaltest.Alice, short, long)
	waits("after Bob's yes", approvaltest.Bob, short)
	f.Decide(t, approvaltest.Alice, short, approval.Approve)
	waits("after both", approvaltest.Alice, long)
	waits("after both", approvaltest.Bob, short)
	edited, err := f.Service.Edit(t.Context(), approvaltest.Alice, short.ID, 1, []byte(`{"amount": 5}`), approval.Slack)
	if err != nil {
		t.Fatal(err)
	}
	waits("after an edit, which isn't the editor's to approve", approvaltest.Alice, long)
	waits("after an edit", approvaltest.Bob, edited)
	f.Clock.Set(short.ExpiresAt)
	waits("when one has expired", approvaltest.Bob)
	f.Decide(t, approvaltest.Alice, long, approval.Approve)
	waits("when all is decided", approvaltest.Alice)
	f.People.Give("finance", dave)
	own := f.Propose(t)
	waits("with a role since", dave, own)
	f.Agent.Owner = dave
	f.Clock.Advance(time.Millisecond)
	theirs := f.Propose(t)
	waits("of what their agent asks", dave, own)
	waits("of what another's agent asks", approvaltest.Alice, own, theirs)
}

// Nobody decides twice, even if they could fill another place by now.
func TestWaitingOnce(t *testing.T) {
	t.Parallel()
	f := looking(t)
	f.People.Give("finance", dave)
	r := f.Propose(t)
	for _, who := range []approval.Approver{approvaltest.Alice, dave} {
		r = f.Decide(t, who, r, approval.Approve)
	}
	f.People.Give("sre", approvaltest.Alice)
	if queue, err := f.Service.Waiting(t.Context(), approvaltest.Alice, approval.QueueKey{}); err != nil || len(queue.Requests) != 0 {
		t.Errorf("%d wait (%v)", len(queue.Requests), err)
	}
}

func TestWaitingGoesOn(t *testing.T) {
	t.Parallel()
	f := looking(t)
	var want []approval.ID
	for i := range 3*approval.PageSize + 7 {
		r := f.Propose(t)
		if i%3 == 0 {
			f.Decide(t, approvaltest.Alice, r, approval.Approve)
			continue
		}
		want = append(want, r.ID)
		f.Clock.Advance(time.Millisecond)
	}
	var got []approval.ID
	for key := (approval.QueueKey{}); ; {
		queue, err := f.Service.Waiting(t.Context(), approvaltest.Alice, key)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, ids(queue.Requests)...)
		if key = queue.Next; key.IsZero() {
			break
		}
		if len(queue.Requests) != approval.PageSize {
			t.Errorf("a part has %d", len(queue.Requests))
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("all parts (-want +got):\n%s", diff)
	}
}

func TestHistoryGoesOn(t *testing.T) {
	t.Parallel()
	f := looking(t)
	var want []approval.ID
	for i := range 2*approval.PageSize + 3 {
		r := f.Propose(t, func(p *approval.Proposal) { p.Purpose = []string{"Pay", "Refund"}[i%2] })
		f.Clock.Advance(time.Millisecond)
		if i%2 == 1 {
			want = append([]approval.ID{r.ID}, want...)
		}
	}
	var got []approval.ID
	for before := approval.ID(""); ; {
		page, err := f.Service.History(t.Context(), dave, approval.Filter{Text: "refund"}, before)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, ids(page.Requests)...)
		if before = page.Next; before == "" {
			break
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("all parts (-want +got):\n%s", diff)
	}
	var refused *approval.InputError
	for field, filter := range map[string]approval.Filter{
		"status": {Status: "open"},
		"text":   {Text: "a\x00"},
		"rule":   {Rule: "\xff"},
	} {
		if _, err := f.Service.History(t.Context(), dave, filter, ""); !errors.As(err, &refused) || refused.Field != field {
			t.Errorf("%s: got %v", field, err)
		}
	}
	if _, err := f.Service.History(t.Context(), dave, approval.Filter{}, "req_1"); !errors.As(err, &refused) {
		t.Errorf("before: got %v", err)
	}
}

func TestDecidedBy(t *testing.T) {
	t.Parallel()
	f := looking(t)
	first := f.Decide(t, approvaltest.Alice, f.Propose(t), approval.Approve)
	f.Clock.Advance(time.Second)
	second := f.Decide(t, approvaltest.Alice, f.Propose(t), approval.Reject)
	f.Decide(t, approvaltest.Bob, f.Propose(t), approval.Reject)
	own, err := f.Service.DecidedBy(t.Context(), approvaltest.Alice, 10)
	if err != nil {
		t.Fatal(err)
	}
	want := []approval.Own{{Request: second, Decision: second.Decisions[0]}, {Request: first, Decision: first.Decisions[0]}}
	if diff := cmp.Diff(want, own, cmpopts.IgnoreUnexported(approval.Request{}), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("decided (-want +got):\n%s", diff)
	}
	if own, err = f.Service.DecidedBy(t.Context(), approvaltest.Alice, 1); err != nil || len(own) != 1 {
		t.Errorf("the last one: %v (%v)", own, err)
	}
}

func TestTimeline(t *testing.T) {
	t.Parallel()
	f := looking(t)
	r := f.Decide(t, approvaltest.Alice, f.Propose(t), approval.Reject)
	events, more, err := f.Service.Timeline(t.Context(), dave, r.ID)
	if err != nil || more {
		t.Fatal(more, err)
	}
	var got []string
	for _, event := range events {
		got = append(got, event.Type+" by "+event.Actor)
	}
	want := []string{"request.created by agent:deployer", "decision.recorded by slack:T0TEST/U0ALICE", "request.rejected by slack:T0TEST/U0ALICE"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the timeline (-want +got):\n%s", diff)
	}
	for _, id := range []approval.ID{"", "req_1", "req_00000000000000000000000000000000"} {
		if _, _, err := f.Service.Timeline(t.Context(), dave, id); !errors.Is(err, approval.ErrNotFound) {
			t.Errorf("of %q: got %v", id, err)
		}
	}
}

// Nothing is shown to whoever holds no role, may not decide or isn't known for
// sure.
func TestWhoLooks(t *testing.T) {
	t.Parallel()
	f := looking(t)
	r := f.Propose(t)
	guest := approval.Approver{Workspace: "T0TEST", User: "U0GUEST"}
	f.People.Give("finance", guest)
	f.People.Bar(guest, "a guest")
	looks := map[string]func(approval.Approver) error{
		"the queue": func(who approval.Approver) error {
			_, err := f.Service.Waiting(t.Context(), who, approval.QueueKey{})
			return err
		},
		"decisions": func(who approval.Approver) error { _, err := f.Service.DecidedBy(t.Context(), who, 5); return err },
		"the history": func(who approval.Approver) error {
			_, err := f.Service.History(t.Context(), who, approval.Filter{}, "")
			return err
		},
		"the timeline": func(who approval.Approver) error { _, _, err := f.Service.Timeline(t.Context(), who, r.ID); return err },
		"insights":     func(who approval.Approver) error { _, err := f.Service.Insights(t.Context(), who, 7); return err },
	}
	check := func(who approval.Approver, want error) {
		t.Helper()
		for name, look := range looks {
			if err := look(who); !errors.Is(err, want) {
				t.Errorf("%s for %q: got %v, want %v", name, who.User, err, want)
			}
		}
	}
	check(dave, nil)
	check(approvaltest.Carol, approval.ErrNotApprover)
	check(approval.Approver{}, approval.ErrIneligible)
	check(guest, approval.ErrIneligible)
	f.People.Fail(fmt.Errorf("Slack is down"))
	f.Clock.Advance(approval.StandingFor)
	check(dave, approval.ErrUnverified)
}

// Looking asks the directory once in a while, and again when somebody may have
// gained or lost a role.
func TestLooksAreRemembered(t *testing.T) {
	t.Parallel()
	f := looking(t)
	look := func(when string, asks int, want error) {
		t.Helper()
		before := f.People.Asked()
		for range 3 {
			if _, err := f.Service.Waiting(t.Context(), dave, approval.QueueKey{}); !errors.Is(err, want) {
				t.Errorf("%s: got %v, want %v", when, err, want)
			}
		}
		if got := f.People.Asked() - before; got != asks {
			t.Errorf("%s: %d look-ups, want %d", when, got, asks)
		}
	}
	look("at first", 1, nil)
	f.Clock.Advance(approval.StandingFor - time.Millisecond)
	look("a little later", 0, nil)
	f.Clock.Advance(time.Millisecond)
	look("when it is over", 1, nil)
	f.Clock.Advance(-time.Second)
	look("with the clock set back", 1, nil)
	if err := f.Service.SetPolicy(t.Context(), approvaltest.ParsePolicy(t, twoRoles)); err != nil {
		t.Fatal(err)
	}
	look("under another policy", 1, nil)
	f.People.Take("owners", dave)
	look("with the role gone", 0, nil)
	if standing, err := f.Service.Standing(t.Context(), dave); err != nil || len(standing.Roles) != 0 {
		t.Fatalf("%v (%v)", standing, err)
	}
	look("once that was found out", 0, approval.ErrNotApprover)
	f.People.Give("owners", dave)
	f.Clock.Advance(approval.StandingFor)
	look("with the role back", 1, nil)
	f.People.Fail(errors.New("Slack is down"))
	if _, err := f.Service.Standing(t.Context(), dave); !errors.Is(err, approval.ErrUnverified) {
		t.Fatal(err)
	}
	look("while nobody answers", 3, approval.ErrUnverified)
}
