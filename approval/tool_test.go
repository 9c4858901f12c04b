package approval_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/approval/approvaltest"
	"github.com/countersign/countersign/audit"
)

// definition is a tool's definition that a pin names.
func definition(pin string) approval.ToolDefinition {
	return approval.ToolDefinition{Pin: pin, JSON: fmt.Appendf(nil, `{"name":"create","title":%q}`, pin)}
}

func see(t *testing.T, f *approvaltest.Fixture, name, pin string) approval.Tool {
	t.Helper()
	tool, err := f.Service.SeeTool(t.Context(), "payouts", name, definition(pin))
	if err != nil {
		t.Fatal(err)
	}
	return tool
}

// The first definition of a tool is accepted; another one isn't until an operator
// accepts exactly that.
func TestPinning(t *testing.T) {
	t.Parallel()
	f := approvaltest.NewRuns(t)
	by := approval.Operator{Name: "root"}
	if _, err := f.Service.PinTool(t.Context(), by, "payouts", "create", "a"); !errors.Is(err, approval.ErrNoTool) {
		t.Errorf("pinning what nobody has seen: %v", err)
	}
	if _, err := f.Service.Tool(t.Context(), "payouts", "create"); !errors.Is(err, approval.ErrNoTool) {
		t.Errorf("looking at what nobody has seen: %v", err)
	}
	want := approval.Tool{
		Server: "payouts", Name: "create", Seen: definition("a"), SeenAt: f.Clock.Now(),
		Pinned: definition("a"), PinnedAt: f.Clock.Now(), PinnedBy: "countersign",
	}
	events := []string{"tool.pinned"}
	check := func(when string, tool approval.Tool) {
		t.Helper()
		stored, err := f.Service.Tool(t.Context(), "payouts", "create")
		if err != nil {
			t.Fatal(err)
		}
		for name, got := range map[string]approval.Tool{"returned": tool, "stored": stored} {
			if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(approval.Tool{})); diff != "" {
				t.Errorf("%s, %s (-want +got):\n%s", when, name, diff)
			}
		}
		var got []string
		for event, err := range f.Store.Events(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, event.Type)
			if !strings.Contains(string(event.Detail), `"server":"payouts"`) || !strings.Contains(string(event.Detail), `"tool":"create"`) || event.RequestID != "" {
				t.Errorf("%s is about %s", event.Type, event.Detail)
			}
		}
		if diff := cmp.Diff(events, got); diff != "" {
			t.Errorf("%s, the events (-want +got):\n%s", when, diff)
		}
	}
	check("first seen", see(t, f, "create", "a"))
	if want.Action() != "payouts.create" || want.Changed() {
		t.Errorf("it is %s, changed: %t", want.Action(), want.Changed())
	}
	f.Clock.Advance(time.Minute)
	check("seen again", see(t, f, "create", "a"))

	f.Clock.Advance(time.Minute)
	want.Seen, want.SeenAt = definition("b"), f.Clock.Now()
	events = append(events, "tool.changed")
	tool := see(t, f, "create", "b")
	check("changed", tool)
	if !tool.Changed() {
		t.Error("a changed tool isn't changed")
	}
	check("changed and seen again", see(t, f, "create", "b"))

	for _, stale := range []string{"a", "c", ""} {
		if got, err := f.Service.PinTool(t.Context(), by, "payouts", "create", stale); !errors.Is(err, approval.ErrStale) || got.Pinned.Pin != "a" {
			t.Errorf("pinning %q: %+v (%v)", stale, got, err)
		}
	}
	check("after stale pins", tool)
	f.Clock.Advance(time.Minute)
	want.Pinned, want.PinnedAt, want.PinnedBy = definition("b"), f.Clock.Now(), "operator:root"
	events = append(events, "tool.pinned")
	pin := func() approval.Tool {
		t.Helper()
		tool, err := f.Service.PinTool(t.Context(), by, "payouts", "create", "b")
		if err != nil {
			t.Fatal(err)
		}
		return tool
	}
	check("pinned", pin())
	f.Clock.Advance(time.Minute)
	check("pinned again", pin())

	// What was accepted before is no longer.
	f.Clock.Advance(time.Minute)
	want.Seen, want.SeenAt = definition("a"), f.Clock.Now()
	events = append(events, "tool.changed")
	if tool := see(t, f, "create", "a"); !tool.Changed() {
		t.Error("it counts as what is pinned")
	} else {
		check("changed back", tool)
	}
	// What is the same in another spelling is kept as it is spelled.
	f.Clock.Advance(time.Minute)
	respelled := definition("a")
	respelled.JSON = append([]byte(" "), respelled.JSON...)
	want.Seen, want.SeenAt = respelled, f.Clock.Now()
	tool, err := f.Service.SeeTool(t.Context(), "payouts", "create", respelled)
	if err != nil {
		t.Fatal(err)
	}
	check("respelled", tool)
	if _, _, err := audit.Verify(f.Store.Events(t.Context())); err != nil {
		t.Error(err)
	}
}

// A definition that is another one ends what waits for people or to be run, of
// that tool and no other; what runs goes on.
func TestChangedToolSupersedes(t *testing.T) {
	t.Parallel()
	f := approvaltest.NewRuns(t)
	see(t, f, "create", approvaltest.Pin)
	see(t, f, "drop", approvaltest.Pin)
	pending, ready, running := f.ProposeRun(t), approved(t, f), approved(t, f)
	if _, err := f.Service.ClaimToRun(t.Context(), running.ID, approvaltest.Pin); err != nil {
		t.Fatal(err)
	}
	other, own := f.ProposeRun(t, action("payouts.drop")), f.Propose(t)
	under := again(t, f, payout(granted(t, f, "1h").Target, 5))
	rejected := f.Decide(t, approvaltest.Alice, f.ProposeRun(t), approval.Reject)
	of := func(r *approval.Request) *approval.Request {
		t.Helper()
		now, err := f.Service.Status(t.Context(), f.Agent, r.ID)
		if err != nil {
			t.Fatal(err)
		}
		return now
	}
	see(t, f, "create", approvaltest.Pin)
	if of(pending).Status != approval.Pending || of(ready).Status != approval.Approved {
		t.Fatal("seeing the same again ended a request")
	}
	see(t, f, "create", "pin-2")
	for name, r := range map[string]*approval.Request{"pending": pending, "approved": ready, "approved by a grant": under} {
		if now := of(r); now.Status != approval.Rejected || !strings.Contains(now.Reason, "definition has changed") || now.Revision != r.Revision+1 {
			t.Errorf("what is %s: %s, %q", name, now.Status, now.Reason)
		}
		if types, _ := eventsOf(t, f, r.ID); !strings.HasSuffix(types, " request.superseded") {
			t.Errorf("the events of what is %s are %s", name, types)
		}
	}
	for name, r := range map[string]*approval.Request{"another tool's": other, "the agent's own": own} {
		if now := of(r); now.Status != approval.Pending {
			t.Errorf("%s is %s, %q", name, now.Status, now.Reason)
		}
	}
	if now := of(rejected); now.Revision != rejected.Revision {
		t.Errorf("what was rejected is now %q", now.Reason)
	}
	if _, err := f.Service.FinishRun(t.Context(), running.ID, approval.Report{Outcome: approval.Succeeded}); err != nil {
		t.Errorf("what runs: %v", err)
	}
	// Asked of the new definition it is left to people as something unclassified,
	// until that is pinned.
	unpinned := func(p *approval.Proposal) { p.ToolPin, p.Unpinned = "pin-2", true }
	next := f.ProposeRun(t, unpinned)
	if next.Ruling.Classified || next.Ruling.Tier < 4 || len(next.Scopes()) != 1 {
		t.Errorf("a call of the new definition is %s, offered %v", next.Ruling.Tier, next.Scopes())
	}
	if _, err := f.Service.PinTool(t.Context(), approval.Operator{Name: "root"}, "payouts", "create", "pin-2"); err != nil {
		t.Fatal(err)
	}
	// What people were shown as that stays so.
	f.Decide(t, approvaltest.Alice, next, approval.Approve)
	if got, err := f.Service.ClaimToRun(t.Context(), next.ID, "pin-2"); err != nil {
		t.Errorf("claiming it: %s, %q (%v)", got.Status, got.Reason, err)
	}
}

// A tool that changes while a call of it is made: the call doesn't run, whether
// or not it was there to be ended.
func TestToolChangesDuringACall(t *testing.T) {
	t.Parallel()
	f := approvaltest.NewRuns(t)
	see(t, f, "create", approvaltest.Pin)
	store := &lateStore{Store: f.Store}
	service, err := approval.New(store, f.People, approval.Options{Policy: approvaltest.RunPolicy(t), Now: f.Clock.Now})
	if err != nil {
		t.Fatal(err)
	}
	store.meanwhile = func() { see(t, f, "create", "pin-2") }
	r, err := service.Request(t.Context(), f.Agent, approvaltest.Call("acct_1"))
	if err != nil || r.Status != approval.Pending {
		t.Fatalf("got %v (%v)", r, err)
	}
	r = f.Decide(t, approvaltest.Alice, r, approval.Approve)
	if got, err := f.Service.ClaimToRun(t.Context(), r.ID, "pin-2"); !errors.Is(err, approval.ErrSuperseded) || got.Execution != nil {
		t.Errorf("claiming it: %s (%v)", got.Status, err)
	}
}

// Tools that are seen at once by several are pinned once, and changes of one
// while calls of it are claimed let none of the old definition begin afterwards.
func TestClaimsWhileTheToolChanges(t *testing.T) {
	t.Parallel()
	f := approvaltest.NewRuns(t)
	for round := range 20 {
		old, changed := fmt.Sprintf("%d-a", round), fmt.Sprintf("%d-b", round)
		see(t, f, "create", old)
		var ready []*approval.Request
		for range contenders {
			ready = append(ready, approved(t, f, func(p *approval.Proposal) { p.ToolPin = old }))
		}
		results := contend(func(i int) error {
			if i == contenders/2 {
				_, err := f.Service.SeeTool(context.Background(), "payouts", "create", definition(changed))
				return err
			}
			// The gateway says what the tool is at this moment.
			tool, err := f.Service.Tool(t.Context(), "payouts", "create")
			if err != nil {
				return err
			}
			_, err = f.Service.ClaimToRun(t.Context(), ready[i].ID, tool.Seen.Pin)
			return err
		})
		count(t, results, approval.ErrRejected)
		for i, r := range ready {
			now, err := f.Service.Status(t.Context(), f.Agent, r.ID)
			if err != nil || !now.Status.Final() {
				t.Fatalf("%s is still %s (%v)", r.ID, now.Status, err)
			}
			if (now.Execution != nil) != (results[i] == nil && i != contenders/2) {
				t.Fatalf("%s is %s, and its claim got %v", r.ID, now.Status, results[i])
			}
		}
	}
}
