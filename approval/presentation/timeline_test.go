package presentation_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/approval/approvaltest"
	"github.com/countersign/countersign/approval/presentation"
	"github.com/countersign/countersign/audit"
)

// told is a timeline in text.
func told(t *testing.T, f *approvaltest.Fixture, id approval.ID) []string {
	t.Helper()
	events, _, err := f.Service.Timeline(t.Context(), approvaltest.Alice, id)
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, one := range presentation.Timeline(events) {
		line := one.What.String()
		if one.Quote != "" {
			line += " | " + one.Quote
		}
		if one.Refused {
			line = "refused: " + line
		}
		lines = append(lines, line)
	}
	return lines
}

func TestTimeline(t *testing.T) {
	t.Parallel()
	f := approvaltest.New(t, func(o *approval.Options) { o.Policy = approvaltest.Policy(t, 2) })
	f.Agent.Owner = approvaltest.Carol
	r := f.Propose(t)
	vote := func(who approval.Approver, b approval.Ballot) *approval.Request {
		t.Helper()
		r, err := f.Service.Decide(t.Context(), who, b)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	stale := approvaltest.Ballot(r, approval.Approve)
	vote(approvaltest.Alice, stale)
	r, err := f.Service.Edit(t.Context(), approvaltest.Carol, r.ID, 1, []byte(`{"amount": 5}`), approval.Slack)
	if err == nil {
		t.Fatal("somebody without a role edited")
	}
	f.People.Give("finance", approvaltest.Carol)
	if r, err = f.Service.Edit(t.Context(), approvaltest.Carol, r.ID, 1, []byte(`{"amount": 5}`), approval.Slack); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Service.Decide(t.Context(), approvaltest.Bob, stale); err == nil {
		t.Fatal("a stale ballot counts")
	}
	for _, who := range []approval.Approver{approvaltest.Alice, approvaltest.Bob} {
		b := approvaltest.Ballot(r, approval.Approve)
		b.Surface, b.Reason, b.SignedInAt = approval.Web, "Fine\u202e by me", f.Clock.Now()
		r = vote(who, b)
	}
	if _, err := f.Service.Claim(t.Context(), f.Agent, r.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Service.Finish(t.Context(), f.Agent, r.ID, approval.Failed, "no such account: 5"); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"deployer asked for U0CAROL (tier 4). The policy asks for 2 of finance",
		"U0ALICE approved as finance, in Slack",
		"U0CAROL edited the arguments, in Slack, which made version 2. Approvals from before don't count",
		"refused: U0BOB tried to approve, in Slack, which didn't count | the request has changed since it was shown",
		`U0ALICE approved as finance, on the review page | Fine\u{202e} by me`,
		`U0BOB approved as finance, on the review page | Fine\u{202e} by me`,
		"Approved by enough people, to be applied by 2 Jan 03:19 UTC",
		"deployer took it to apply it",
		"It ran, and failed",
	}
	if diff := cmp.Diff(want, told(t, f, r.ID)); diff != "" {
		t.Errorf("the timeline (-want +got):\n%s", diff)
	}
}

// What events there are that a request needs more than people for.
func TestTimelineOf(t *testing.T) {
	t.Parallel()
	const detail = `{"reason":"why","scope":"15m","uses":2,"to":"sre","expires_at":"2026-01-02T03:19:05.678Z"}`
	for _, test := range []struct{ kind, actor, surface, detail, want string }{
		{"request.approved", "policy:default", "policy", detail, "Allowed by the policy, without a person | why"},
		{"request.approved", "grant:req_1", "grant", detail, "Approved by what was granted with another request | why"},
		{"request.approved", "agent:deployer", "in-band", `{}`, "Approved by the agent's client, not by a verified person"},
		{"request.rejected", "policy:deny", "policy", detail, "Denied by the policy, without a person | why"},
		{"request.rejected", "agent:deployer", "in-band", `{}`, "Declined by the agent's client, not by a verified person"},
		{"request.approved", "agent:deployer", "app", detail, "Confirmed in the agent's host, not by a verified person | why"},
		{"request.rejected", "agent:deployer", "app", detail, "Denied in the agent's host, not by a verified person | why"},
		{"request.edited", "agent:deployer", "app", `{}`, "Somebody in the agent's host edited the arguments, which made version 2. Approvals from before don't count"},
		{"request.rejected", "slack:T0TEST/U0ALICE", "slack", `{}`, "Rejected by U0ALICE, which is final"},
		{"decision.recorded", "slack:T0TEST/U0ALICE", "slack", `{"verdict":"approve","scope":"15m","roles":[{"role":"finance"},{"role":"sre"}],"own":true}`, "U0ALICE approved for 15 minutes as finance and sre, their own, in Slack"},
		{"request.superseded", "countersign", "", `{"why":"The policy asks for more."}`, "Superseded: it won't run | The policy asks for more."},
		{"request.expired", "countersign", "", `{"phase":"deciding"}`, "Expired before enough people had decided"},
		{"request.expired", "countersign", "", `{"phase":"applying"}`, "Expired: approved, but not applied in time"},
		{"request.applied", "countersign", "", `{}`, "The server began to run it"},
		{"execution.finished", "countersign", "", `{"outcome":"unknown","detail":"secret"}`, "Nobody knows whether it ran"},
		{"execution.settled", "slack:T0TEST/U0ALICE", "slack", `{"outcome":"succeeded"}`, "U0ALICE says that it ran"},
		{"execution.settled", "slack:T0TEST/U0ALICE", "slack", `{"outcome":"failed"}`, "U0ALICE says that it didn't run"},
		{"result.returned", "agent:deployer", "", `{}`, "deployer got the result"},
		{"people.told", "countersign", "", `{}`, "People were asked, since the client's answer wasn't enough"},
		{"client.confirmed", "agent:deployer", "in-band", `{}`, "The client of deployer confirmed"},
		{"client.declined", "agent:deployer", "in-band", `{}`, "The client of deployer declined"},
		{"request.reminded", "countersign", "", `{"reminders":1}`, "People were reminded"},
		{"request.escalated", "countersign", "", `{"to":"sre"}`, "Nobody had decided, so the people of sre were called"},
		{"grant.created", "slack:T0TEST/U0ALICE", "slack", `{"scope":"15m","expires_at":"2026-01-02T03:19:05.678Z"}`, "From then on, the same was approved without asking, for 15 minutes, until 2 Jan 03:19 UTC"},
		{"grant.expired", "countersign", "", `{"uses":1}`, "The grant ended. It was used once"},
		{"grant.revoked", "operator:root", "", `{"uses":2}`, "The operator root revoked the grant. It was used 2 times"},
		{"some.thing", "agent:de\u202eployer", "", `{}`, `de\u{202e}ployer some.thing`},
		{"request.created", "agent:deployer", "", `[`, `deployer request.created`},
	} {
		got := presentation.Timeline([]audit.Event{{Type: test.kind, At: time.Unix(1, 0), Actor: test.actor, Surface: test.surface, Version: 2, Detail: []byte(test.detail)}})[0]
		text := got.What.String()
		if got.Quote != "" {
			text += " | " + got.Quote
		}
		if text != test.want {
			t.Errorf("%s by %s:\n got %s\nwant %s", test.kind, test.actor, text, test.want)
		}
	}
}

// What was approved is taken back in the agent's host, and not declined there.
func TestTimelineOfWhatIsTakenBack(t *testing.T) {
	t.Parallel()
	event := func(kind string) audit.Event {
		return audit.Event{Type: kind, At: time.Unix(1, 0), Actor: "agent:deployer", Surface: string(approval.App), Detail: []byte("{}")}
	}
	timeline := presentation.Timeline([]audit.Event{event("request.approved"), event("request.rejected")})
	if got, want := timeline[1].What.String(), "Taken back in the agent's host, not by a verified person"; got != want {
		t.Errorf("the timeline says %q, want %q", got, want)
	}
}
