package approval_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/approval/approvaltest"
	"github.com/countersign/countersign/audit"
)

// approved is a call that Alice approved.
func approved(t *testing.T, f *approvaltest.Fixture, options ...func(*approval.Proposal)) *approval.Request {
	t.Helper()
	return f.Decide(t, approvaltest.Alice, f.ProposeRun(t, options...), approval.Approve)
}

// Who runs a request is the only one who can claim it and say how it ended.
func TestWhoRuns(t *testing.T) {
	t.Parallel()
	f := approvaltest.NewRuns(t)
	gateways := approved(t, f)
	own := f.Decide(t, approvaltest.Alice, f.Propose(t), approval.Approve)
	if got, err := f.Service.Claim(t.Context(), f.Agent, gateways.ID); !errors.Is(err, approval.ErrServerRuns) || got.Status != approval.Approved {
		t.Errorf("an agent claims what the gateway runs: %v", err)
	}
	if got, err := f.Service.ClaimToRun(t.Context(), own.ID, ""); !errors.Is(err, approval.ErrAgentRuns) || got.Status != approval.Approved {
		t.Errorf("the gateway claims what the agent runs: %v", err)
	}
	if _, err := f.Service.ClaimToRun(t.Context(), "req_x", ""); !errors.Is(err, approval.ErrNotFound) {
		t.Errorf("claiming no request: %v", err)
	}
	if _, err := f.Service.ClaimToRun(t.Context(), gateways.ID, approvaltest.Pin); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Service.Claim(t.Context(), f.Agent, own.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Service.Finish(t.Context(), f.Agent, gateways.ID, approval.Succeeded, ""); !errors.Is(err, approval.ErrServerRuns) {
		t.Errorf("an agent says how the gateway's run ended: %v", err)
	}
	if _, err := f.Service.FinishRun(t.Context(), own.ID, approval.Report{Outcome: approval.Succeeded}); !errors.Is(err, approval.ErrAgentRuns) {
		t.Errorf("the gateway says how the agent's run ended: %v", err)
	}
	// Before and after, what isn't approved can be run by neither.
	for name, r := range map[string]*approval.Request{"pending": f.ProposeRun(t), "rejected": f.Decide(t, approvaltest.Bob, f.ProposeRun(t), approval.Reject)} {
		if _, err := f.Service.ClaimToRun(t.Context(), r.ID, approvaltest.Pin); !errors.Is(err, map[string]error{"pending": approval.ErrPending, "rejected": approval.ErrRejected}[name]) {
			t.Errorf("claiming what is %s: %v", name, err)
		}
	}
}

// What was approved and not begun by its deadline doesn't run.
func TestDeadlineOfARun(t *testing.T) {
	t.Parallel()
	f := approvaltest.NewRuns(t)
	r := approved(t, f)
	f.Clock.Set(r.ApplyBy.Add(-time.Millisecond))
	if ids, err := f.Service.Runnable(t.Context(), 10); err != nil || len(ids) != 1 {
		t.Errorf("runnable before the deadline: %v (%v)", ids, err)
	}
	f.Clock.Set(r.ApplyBy)
	if got, err := f.Service.ClaimToRun(t.Context(), r.ID, approvaltest.Pin); !errors.Is(err, approval.ErrExpired) || got.Status != approval.Expired {
		t.Errorf("at the deadline: %s (%v)", got.Status, err)
	}
	if ids, err := f.Service.Runnable(t.Context(), 10); err != nil || len(ids) != 0 {
		t.Errorf("runnable after it: %v (%v)", ids, err)
	}
}

// An approval is checked again when the gateway uses it, and its tool must be
// what it was.
func TestClaimToRunChecksAgain(t *testing.T) {
	t.Parallel()
	two := "tiers: {3: {requires: [{role: finance, count: 2}]}, 4: {requires: [{role: finance, count: 2}]}, 5: {requires: [{role: finance, count: 2}]}}"
	for _, test := range []struct {
		name   string
		pin    string
		change func(*testing.T, *approvaltest.Fixture)
		want   error
		why    string
	}{
		{name: "the same"},
		{name: "another definition", pin: "pin-2", want: approval.ErrSuperseded, why: "definition has changed"},
		{name: "no definition", pin: "-", want: approval.ErrSuperseded, why: "definition has changed"},
		{name: "the role is gone", want: approval.ErrSuperseded, why: "1 of finance", change: func(t *testing.T, f *approvaltest.Fixture) {
			f.People.Take("finance", approvaltest.Alice)
		}},
		{name: "nobody can say", want: approval.ErrUnverified, change: func(t *testing.T, f *approvaltest.Fixture) {
			f.People.Fail(errors.New("outage"))
		}},
		{name: "more people", want: approval.ErrSuperseded, why: "2 of finance", change: func(t *testing.T, f *approvaltest.Fixture) {
			if err := f.Service.SetPolicy(t.Context(), approvaltest.RunPolicy(t, two)); err != nil {
				t.Fatal(err)
			}
		}},
		{name: "denied", want: approval.ErrSuperseded, why: "Nothing is created.", change: func(t *testing.T, f *approvaltest.Fixture) {
			if err := f.Service.SetPolicy(t.Context(), approvaltest.ParsePolicy(t, `
version: 1
mode: cautious
roles: {finance: {users: [`+approvaltest.Alice.User+`]}}
approval: {requires: [{role: finance}]}
block: [{id: no-create, actions: [payouts.create], why: "Nothing is created."}]
`)); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			f := approvaltest.NewRuns(t)
			r := approved(t, f)
			if test.change != nil {
				test.change(t, f)
			}
			pin := approvaltest.Pin
			switch test.pin {
			case "-":
				pin = ""
			case "":
			default:
				pin = test.pin
			}
			got, err := f.Service.ClaimToRun(t.Context(), r.ID, pin)
			if !errors.Is(err, test.want) || !strings.Contains(got.Reason, test.why) {
				t.Errorf("got %s, %q (%v), want %v that says %q", got.Status, got.Reason, err, test.want, test.why)
			}
			if (got.Execution != nil) != (test.want == nil) {
				t.Errorf("the execution is %+v", got.Execution)
			}
		})
	}
}

// A pin and a policy that change while the approvers are looked up count.
func TestChangesDuringAClaimToRun(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*testing.T, *approvaltest.Fixture, *approval.Service){
		"policy": func(t *testing.T, f *approvaltest.Fixture, service *approval.Service) {
			if err := service.SetPolicy(t.Context(), approvaltest.RunPolicy(t, `rules: [{id: up, actions: [payouts.create], raise_to: 4, why: "Up."}]`)); err != nil {
				t.Error(err)
			}
		},
		"tool": func(t *testing.T, f *approvaltest.Fixture, service *approval.Service) {
			for _, pin := range []string{approvaltest.Pin, "pin-2"} {
				if _, err := service.SeeTool(t.Context(), "payouts", "create", approval.ToolDefinition{Pin: pin, JSON: []byte(`{}`)}); err != nil {
					t.Error(err)
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := approvaltest.NewRuns(t)
			directory := &slowDirectory{Directory: f.People}
			service, err := approval.New(f.Store, directory, approval.Options{Policy: approvaltest.RunPolicy(t), Now: f.Clock.Now})
			if err != nil {
				t.Fatal(err)
			}
			r := approved(t, f)
			directory.meanwhile = func() { change(t, f, service) }
			if got, err := service.ClaimToRun(t.Context(), r.ID, approvaltest.Pin); !errors.Is(err, approval.ErrRejected) || got.Execution != nil {
				t.Errorf("got %s (%v)", got.Status, err)
			}
		})
	}
}

// What came of a run is recorded once, and nothing is run twice for it.
func TestFinishRun(t *testing.T) {
	t.Parallel()
	f := approvaltest.NewRuns(t)
	r := approved(t, f)
	if _, err := f.Service.FinishRun(t.Context(), r.ID, approval.Report{Outcome: approval.Succeeded}); !errors.Is(err, approval.ErrNotApplied) {
		t.Errorf("before it began: %v", err)
	}
	for name, report := range map[string]approval.Report{
		"outcome": {Outcome: "maybe"},
		"detail":  {Outcome: approval.Failed, Detail: strings.Repeat("x", approval.MaxReason+1)},
		"result":  {Outcome: approval.Failed, Result: make([]byte, approval.MaxResult+1)},
	} {
		var input *approval.InputError
		if _, err := f.Service.FinishRun(t.Context(), r.ID, report); !errors.As(err, &input) || input.Field != name {
			t.Errorf("a wrong %s: %v", name, err)
		}
	}
	for _, report := range []approval.Report{
		{Outcome: approval.Succeeded, Detail: "214 deleted", Result: []byte(`{"n":1}`)},
		{Outcome: approval.Failed, Detail: "no such account"},
		{Outcome: approval.Unknown, Detail: "the connection broke"},
		{Outcome: approval.Succeeded, Returned: true},
	} {
		r := approved(t, f)
		if _, err := f.Service.ClaimToRun(t.Context(), r.ID, approvaltest.Pin); err != nil {
			t.Fatal(err)
		}
		f.Clock.Advance(time.Second)
		ran, err := f.Service.FinishRun(t.Context(), r.ID, report)
		if err != nil {
			t.Fatal(err)
		}
		e := ran.Execution
		if e.Outcome != report.Outcome || e.Detail != report.Detail || e.ResultSize != len(report.Result) || !e.FinishedAt.Equal(f.Clock.Now()) || e.ReturnedAt.IsZero() == report.Returned {
			t.Errorf("%+v was recorded as %+v", report, e)
		}
		if types, last := eventsOf(t, f, r.ID); !strings.HasSuffix(types, " request.applied execution.finished") || last.Actor != "countersign" {
			t.Errorf("the events are %s, the last by %s", types, last.Actor)
		}
		if _, err := f.Service.FinishRun(t.Context(), r.ID, approval.Report{Outcome: approval.Succeeded}); !errors.Is(err, approval.ErrFinished) {
			t.Errorf("reporting %s again: %v", report.Outcome, err)
		}
		if _, err := f.Service.ClaimToRun(t.Context(), r.ID, approvaltest.Pin); !errors.Is(err, approval.ErrApplied) {
			t.Errorf("running again what ended as %s: %v", report.Outcome, err)
		}
	}
}

// The audit log tells how a run ended, but holds nothing of what it returned.
func TestEventsHoldNoResult(t *testing.T) {
	t.Parallel()
	f := approvaltest.NewRuns(t)
	f.Run(t, approved(t, f), `{"secret":"hunter2"}`)
	last := lastEvent(t, f)
	if last.Type != "execution.finished" || strings.Contains(string(last.Detail), "hunter2") || !strings.Contains(string(last.Detail), `"result_size":20`) {
		t.Errorf("the last event is %s: %s", last.Type, last.Detail)
	}
}

// Of a run of which nobody knows how it ended, a person of a required role says
// so, once.
func TestSettle(t *testing.T) {
	t.Parallel()
	f := approvaltest.NewRuns(t)
	unknown := func(t *testing.T, r *approval.Request) *approval.Request {
		t.Helper()
		if r.Status == approval.Approved {
			if _, err := f.Service.ClaimToRun(t.Context(), r.ID, r.ToolPin); err != nil {
				t.Fatal(err)
			}
		}
		ran, err := f.Service.FinishRun(t.Context(), r.ID, approval.Report{Outcome: approval.Unknown, Detail: "cut off"})
		if err != nil {
			t.Fatal(err)
		}
		return ran
	}
	settle := func(who approval.Approver, r *approval.Request, ran bool) (*approval.Request, error) {
		return f.Service.Settle(t.Context(), who, r.ID, ran, approval.Slack)
	}
	running := approved(t, f)
	for name, r := range map[string]*approval.Request{
		"pending":            f.ProposeRun(t),
		"approved":           approved(t, f),
		"running":            running,
		"ended":              f.Run(t, approved(t, f), `1`),
		"run by the agent":   f.Propose(t),
		"approved by policy": f.ProposeRun(t, action("payouts.get")),
	} {
		if name == "running" {
			if _, err := f.Service.ClaimToRun(t.Context(), r.ID, r.ToolPin); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := settle(approvaltest.Alice, r, true); !errors.Is(err, approval.ErrKnown) {
			t.Errorf("what is %s: %v", name, err)
		}
	}
	// What the agent runs and nobody reported is its own affair.
	own := f.Decide(t, approvaltest.Alice, f.Propose(t), approval.Approve)
	if _, err := f.Service.Claim(t.Context(), f.Agent, own.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := settle(approvaltest.Alice, own, true); !errors.Is(err, approval.ErrKnown) {
		t.Errorf("the agent's own: %v", err)
	}
	for name, r := range map[string]*approval.Request{
		"by a person": approved(t, f),
		"by policy":   f.ProposeRun(t, action("payouts.get")),
		"by a grant":  again(t, f, payout(granted(t, f, "1h").Target, 77)),
		"by the client": func() *approval.Request {
			r := f.ProposeRun(t, inStaging)
			confirmed, err := confirm(t, f, r, true)
			if err != nil {
				t.Fatal(err)
			}
			return confirmed
		}(),
	} {
		r = unknown(t, r)
		if _, err := settle(approvaltest.Carol, r, true); !errors.Is(err, approval.ErrNotApprover) {
			t.Errorf("approved %s, settled by somebody of no role: %v", name, err)
		}
		if _, err := settle(approval.Approver{}, r, true); !errors.Is(err, approval.ErrIneligible) {
			t.Errorf("approved %s, settled by nobody: %v", name, err)
		}
		did := name != "by policy"
		want := map[bool]approval.Outcome{true: approval.Succeeded, false: approval.Failed}[did]
		settled, err := settle(approvaltest.Bob, r, did)
		if err != nil || settled.Execution.Outcome != want || settled.Execution.SettledBy != approvaltest.Bob || settled.Revision != r.Revision+1 {
			t.Errorf("approved %s: got %+v (%v)", name, settled.Execution, err)
			continue
		}
		if last := lastEvent(t, f); last.Type != "execution.settled" || last.Actor != approvaltest.Bob.String() || !strings.Contains(string(last.Detail), string(want)) {
			t.Errorf("the last event is %s by %s: %s", last.Type, last.Actor, last.Detail)
		}
		if _, err := settle(approvaltest.Alice, r, !did); !errors.Is(err, approval.ErrKnown) {
			t.Errorf("approved %s, settled again: %v", name, err)
		}
		// It is never run again, not even if it didn't run.
		if _, err := f.Service.ClaimToRun(t.Context(), r.ID, r.ToolPin); !errors.Is(err, approval.ErrApplied) {
			t.Errorf("approved %s, run again: %v", name, err)
		}
	}
	r := unknown(t, approved(t, f))
	results := contend(func(i int) error {
		_, err := settle(approvaltest.Alice, r, i%2 == 0)
		return err
	})
	if won := count(t, results, approval.ErrKnown); won != 1 {
		t.Errorf("%d of %d settled it", won, contenders)
	}
}

// The agent gets the stored result to the byte, as often as it asks; the first
// time is on record.
func TestReturnResult(t *testing.T) {
	t.Parallel()
	f := approvaltest.NewRuns(t)
	r := approved(t, f)
	for _, step := range []func(){
		func() {},
		func() {
			if _, err := f.Service.ClaimToRun(t.Context(), r.ID, r.ToolPin); err != nil {
				t.Fatal(err)
			}
		},
	} {
		step()
		if got, now, err := f.Service.ReturnResult(t.Context(), f.Agent, r.ID); !errors.Is(err, approval.ErrNoResult) || got != nil || now.ID != r.ID {
			t.Errorf("before there is one: %s, %v (%v)", got, now, err)
		}
	}
	want := "{ \"n\" : 9007199254740993, \"m\": 1e400 }\n"
	ran, err := f.Service.FinishRun(t.Context(), r.ID, approval.Report{Outcome: approval.Succeeded, Result: []byte(want)})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := f.Service.ReturnResult(t.Context(), approval.Agent{Name: "another"}, r.ID); !errors.Is(err, approval.ErrNotFound) {
		t.Errorf("another agent's: %v", err)
	}
	f.Clock.Advance(time.Minute)
	first := f.Clock.Now()
	for range 3 {
		got, now, err := f.Service.ReturnResult(t.Context(), f.Agent, r.ID)
		if err != nil || string(got) != want || !now.Execution.ReturnedAt.Equal(first) || now.Revision != ran.Revision+1 {
			t.Errorf("got %q, %+v (%v)", got, now.Execution, err)
		}
		f.Clock.Advance(time.Minute)
	}
	if types, last := eventsOf(t, f, r.ID); strings.Count(types, "result.returned") != 1 || last.Actor != "agent:deployer" {
		t.Errorf("the events are %s, the last by %s", types, last.Actor)
	}
	empty := approved(t, f)
	f.Run(t, empty, "")
	if _, now, err := f.Service.ReturnResult(t.Context(), f.Agent, empty.ID); !errors.Is(err, approval.ErrNoResult) || now.Execution.Outcome != approval.Succeeded {
		t.Errorf("a run that returned nothing: %v (%v)", now, err)
	}
}

// Whatever a report and a return do at once, the first return is recorded once.
func TestEightReturns(t *testing.T) {
	t.Parallel()
	f := approvaltest.NewRuns(t)
	for range 20 {
		r := f.Run(t, approved(t, f), `1`)
		results := contend(func(int) error {
			_, _, err := f.Service.ReturnResult(t.Context(), f.Agent, r.ID)
			return err
		})
		count(t, results)
		if types, _ := eventsOf(t, f, r.ID); strings.Count(types, "result.returned") != 1 {
			t.Fatalf("the events are %s", types)
		}
	}
}

func awaitRun(ctx context.Context, f *approvaltest.Fixture, id approval.ID, bound time.Duration) <-chan answer {
	answers := make(chan answer, 1)
	go func() {
		r, err := f.Service.AwaitRun(ctx, f.Agent, id, bound)
		answers <- answer{r, err}
	}()
	return answers
}

// runBubble is bubble under the policy for runs.
func runBubble(t *testing.T, test func(*testing.T, *approvaltest.Fixture)) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		test(t, approvaltest.NewRuns(t, func(o *approval.Options) { o.Now = nil }))
	})
}

func TestAwaitRun(t *testing.T) {
	t.Run("goes on until it has run", func(t *testing.T) {
		runBubble(t, func(t *testing.T, f *approvaltest.Fixture) {
			r := f.ProposeRun(t)
			answers := awaitRun(t.Context(), f, r.ID, time.Hour)
			waits := func(when string) {
				t.Helper()
				time.Sleep(time.Second)
				synctest.Wait()
				select {
				case got := <-answers:
					t.Fatalf("%s: returned %v (%v)", when, got.r, got.err)
				default:
				}
			}
			waits("while it is pending")
			f.Decide(t, approvaltest.Alice, r, approval.Approve)
			waits("while it is approved")
			if _, err := f.Service.ClaimToRun(t.Context(), r.ID, r.ToolPin); err != nil {
				t.Fatal(err)
			}
			waits("while it runs")
			time.Sleep(30 * time.Minute) // past the deadline for applying: it was begun in time
			waits("while it runs for long")
			began := time.Now()
			if _, err := f.Service.FinishRun(t.Context(), r.ID, approval.Report{Outcome: approval.Succeeded}); err != nil {
				t.Fatal(err)
			}
			if got := <-answers; got.err != nil || got.r.Execution.Outcome != approval.Succeeded || time.Since(began) != 0 {
				t.Errorf("got %v (%v) after %s", got.r, got.err, time.Since(began))
			}
		})
	})
	for name, end := range map[string]struct {
		do   func(*testing.T, *approvaltest.Fixture, *approval.Request)
		want approval.Status
	}{
		"rejected": {func(t *testing.T, f *approvaltest.Fixture, r *approval.Request) {
			f.Decide(t, approvaltest.Alice, r, approval.Reject)
		}, approval.Rejected},
		"superseded": {func(t *testing.T, f *approvaltest.Fixture, r *approval.Request) {
			f.Decide(t, approvaltest.Alice, r, approval.Approve)
			synctest.Wait()
			if _, err := f.Service.ClaimToRun(t.Context(), r.ID, "another"); !errors.Is(err, approval.ErrSuperseded) {
				t.Errorf("got %v", err)
			}
		}, approval.Rejected},
		"expired while people decide": {func(*testing.T, *approvaltest.Fixture, *approval.Request) {
			time.Sleep(2 * time.Hour)
		}, approval.Expired},
		"expired once it was approved": {func(t *testing.T, f *approvaltest.Fixture, r *approval.Request) {
			f.Decide(t, approvaltest.Alice, r, approval.Approve)
			time.Sleep(15 * time.Minute)
		}, approval.Expired},
		"unknown": {func(t *testing.T, f *approvaltest.Fixture, r *approval.Request) {
			f.Decide(t, approvaltest.Alice, r, approval.Approve)
			if _, err := f.Service.ClaimToRun(t.Context(), r.ID, r.ToolPin); err != nil {
				t.Fatal(err)
			}
			if _, err := f.Service.FinishRun(t.Context(), r.ID, approval.Report{Outcome: approval.Unknown}); err != nil {
				t.Fatal(err)
			}
		}, approval.Applied},
	} {
		t.Run("ends with what is "+name, func(t *testing.T) {
			runBubble(t, func(t *testing.T, f *approvaltest.Fixture) {
				r := f.ProposeRun(t)
				answers := awaitRun(t.Context(), f, r.ID, 24*time.Hour)
				synctest.Wait()
				end.do(t, f, r)
				began := time.Now()
				if got := <-answers; got.err != nil || got.r.Status != end.want || time.Since(began) != 0 {
					t.Errorf("got %v (%v) after %s", got.r, got.err, time.Since(began))
				}
			})
		})
	}
	t.Run("ends at its bound", func(t *testing.T) {
		runBubble(t, func(t *testing.T, f *approvaltest.Fixture) {
			r := approved(t, f)
			began := time.Now()
			if got := <-awaitRun(t.Context(), f, r.ID, 25*time.Second); got.err != nil || got.r.Status != approval.Approved || time.Since(began) != 25*time.Second {
				t.Errorf("got %v (%v) after %s", got.r, got.err, time.Since(began))
			}
		})
	})
	t.Run("of what the agent runs ends with its claim", func(t *testing.T) {
		runBubble(t, func(t *testing.T, f *approvaltest.Fixture) {
			r := f.Decide(t, approvaltest.Alice, f.Propose(t), approval.Approve)
			answers := awaitRun(t.Context(), f, r.ID, time.Hour)
			synctest.Wait()
			if _, err := f.Service.Claim(t.Context(), f.Agent, r.ID); err != nil {
				t.Fatal(err)
			}
			if got := <-answers; got.err != nil || got.r.Status != approval.Applied {
				t.Errorf("got %v (%v)", got.r, got.err)
			}
		})
	})
	t.Run("of another agent's is refused", func(t *testing.T) {
		runBubble(t, func(t *testing.T, f *approvaltest.Fixture) {
			r := approved(t, f)
			f.Agent.Name = "another"
			if got := <-awaitRun(t.Context(), f, r.ID, time.Hour); !errors.Is(got.err, approval.ErrNotFound) {
				t.Errorf("got %v (%v)", got.r, got.err)
			}
		})
	})
}

// An edit of a call decides what will run: the target is what policy says of the
// edited arguments, and those are what a tool can take.
func TestEditOfACall(t *testing.T) {
	t.Parallel()
	f := approvaltest.NewRuns(t)
	r := f.ProposeRun(t)
	edit := func(r *approval.Request, payload string) (*approval.Request, error) {
		return f.Service.Edit(t.Context(), approvaltest.Bob, r.ID, r.Version, []byte(payload), approval.Slack)
	}
	for _, wrong := range []string{`[]`, `null`, `"x"`, `7`} {
		var input *approval.InputError
		if got, err := edit(r, wrong); !errors.As(err, &input) || input.Field != "payload" {
			t.Errorf("%s as arguments: version %d (%v)", wrong, got.Version, err)
		}
	}
	edited, err := edit(r, ` {"account": "acct_new"} `)
	if err != nil || edited.Target != "acct_new" || edited.Version != 2 || edited.Digest == r.Digest || edited.Asked != r.Asked {
		t.Fatalf("got %+v (%v)", edited, err)
	}
	if got := strings.Join(edited.Scopes(), " "); got != "once 15m 1h" {
		t.Errorf("offered %s", got)
	}
	gone, err := edit(edited, `{}`)
	if err != nil || gone.Target != "" || len(gone.Scopes()) != 1 {
		t.Errorf("without a target: %q, offered %v (%v)", gone.Target, gone.Scopes(), err)
	}
	edited, err = edit(gone, `{"account": "acct_last"}`)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Service.Decide(t.Context(), approvaltest.Bob, approvaltest.Ballot(edited, approval.Approve)); !errors.Is(err, approval.ErrSelf) {
		t.Errorf("the editor approves it: %v", err)
	}
	f.Decide(t, approvaltest.Alice, edited, approval.Approve)
	ran, err := f.Service.ClaimToRun(t.Context(), r.ID, approvaltest.Pin)
	if err != nil || string(ran.Payload) != `{"account": "acct_last"}` || ran.Execution.Version != 4 {
		t.Errorf("%s is run as version %d (%v)", ran.Payload, ran.Execution.Version, err)
	}
}

// The digest that people approve holds the tool's definition.
func TestDigestOfACall(t *testing.T) {
	t.Parallel()
	f := approvaltest.NewRuns(t)
	first := again(t, f, approvaltest.Call("acct_1"))
	other := again(t, f, approvaltest.Call("acct_1", func(p *approval.Proposal) { p.ToolPin = "pin-2" }))
	if first.Digest == other.Digest || first.Asked == other.Asked {
		t.Error("two definitions of a tool have one digest")
	}
}

func TestEightClaimsToRunOneRuns(t *testing.T) {
	t.Parallel()
	f := approvaltest.NewRuns(t)
	for range 50 {
		r := approved(t, f)
		results := contend(func(int) error {
			_, err := f.Service.ClaimToRun(t.Context(), r.ID, approvaltest.Pin)
			return err
		})
		if won := count(t, results, approval.ErrApplied); won != 1 {
			t.Fatalf("%d of %d claims succeeded", won, contenders)
		}
		results = contend(func(int) error {
			_, err := f.Service.FinishRun(t.Context(), r.ID, approval.Report{Outcome: approval.Succeeded, Result: []byte(`1`)})
			return err
		})
		if won := count(t, results, approval.ErrFinished); won != 1 {
			t.Fatalf("%d of %d reports counted", won, contenders)
		}
	}
	if _, _, err := audit.Verify(f.Store.Events(t.Context())); err != nil {
		t.Error(err)
	}
}

// Claims and a stricter policy at once: what is claimed after the policy's event
// is superseded.
func TestClaimsWhileThePolicyChanges(t *testing.T) {
	t.Parallel()
	f := approvaltest.NewRuns(t)
	loose := approvaltest.RunPolicy(t)
	strict := approvaltest.RunPolicy(t, `rules: [{id: up, actions: [payouts.create], raise_to: 4, why: "Up."}]`)
	began, stopped := 0, 0
	for range 30 {
		if err := f.Service.SetPolicy(t.Context(), loose); err != nil {
			t.Fatal(err)
		}
		var ready []*approval.Request
		for range contenders {
			ready = append(ready, approved(t, f))
		}
		results := contend(func(i int) error {
			if i == contenders/2 {
				return f.Service.SetPolicy(t.Context(), strict)
			}
			_, err := f.Service.ClaimToRun(t.Context(), ready[i].ID, approvaltest.Pin)
			return err
		})
		began += count(t, results, approval.ErrSuperseded) - 1
		// Once SetPolicy has returned, nothing approved under less begins.
		if got, err := f.Service.ClaimToRun(t.Context(), ready[contenders/2].ID, approvaltest.Pin); !errors.Is(err, approval.ErrSuperseded) {
			t.Fatalf("after the policy changed: %s (%v)", got.Status, err)
		}
		for i, r := range ready {
			after, err := f.Service.Status(t.Context(), f.Agent, r.ID)
			if err != nil || (after.Status == approval.Applied) != (results[i] == nil && i != contenders/2) {
				t.Fatalf("%d is %s, and its claim got %v", i, after.Status, results[i])
			}
			if after.Status == approval.Rejected {
				stopped++
			}
		}
	}
	t.Logf("%d began, %d were stopped", began, stopped)
}

// Which requests wait to be run and which were cut off is known in their order.
func TestRunnableAndUnfinished(t *testing.T) {
	t.Parallel()
	f := approvaltest.NewRuns(t)
	var want []approval.ID
	for range 3 {
		f.Clock.Advance(time.Second)
		want = append(want, approved(t, f).ID)
	}
	list := func(what string, list func(context.Context, int) ([]approval.ID, error), limit int, want ...approval.ID) {
		t.Helper()
		if got, err := list(t.Context(), limit); err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: got %v (%v), want %v", what, got, err, want)
		}
	}
	list("runnable", f.Service.Runnable, 2, want[:2]...)
	for i := range want {
		f.Clock.Advance(time.Second)
		if _, err := f.Service.ClaimToRun(t.Context(), want[len(want)-1-i], approvaltest.Pin); err != nil {
			t.Fatal(err)
		}
	}
	list("runnable", f.Service.Runnable, 2)
	list("unfinished", f.Service.Unfinished, 2, want[2], want[1])
	for _, id := range want {
		if _, err := f.Service.FinishRun(t.Context(), id, approval.Report{Outcome: approval.Unknown}); err != nil {
			t.Fatal(err)
		}
	}
	list("unfinished", f.Service.Unfinished, 2)
}
