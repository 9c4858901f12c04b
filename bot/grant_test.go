package bot_test

import (
	"bytes"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/approval/approvaltest"
	"github.com/countersign/countersign/approval/presentation"
	"github.com/countersign/countersign/bot"
	"github.com/countersign/countersign/bot/slacksim"
)

// gatewayPolicy classifies a tool of the gateway's, of which more than once may
// be approved.
func gatewayPolicy(w *world) {
	w.policy.approval = "\n  scopes: [once, 15m, session]"
	w.policy.more = "integrations: {crm: {tools: {update: {tier: 3, target: args.table}, drop: {tier: 4, target: args.table}}}}\n"
}

// call makes a call of a tool through the gateway, which a session's client
// made.
func (w *world) call(change ...func(*approval.Proposal)) *approval.Request {
	w.t.Helper()
	return w.ask(append([]func(*approval.Proposal){func(p *approval.Proposal) {
		p.Purpose, p.Action, p.Target = "crm.update, called through the gateway", "crm.update", ""
		p.Executor, p.ToolPin, p.Session = approval.ByGateway, somePin, "session-1"
		p.Payload = []byte(`{"table": "customers", "row": ` + strconv.Itoa(w.asked) + `}`)
	}}, change...)...)
}

// said are the texts of a message or a modal.
func said(t fataler, blocks []byte) string {
	t.Helper()
	return strings.Join(parts(t, blocks).texts, "\n")
}

// run has the gateway run a request, with what comes of it.
func (w *world) ran(r *approval.Request, report approval.Report) {
	w.t.Helper()
	if _, err := w.service.ClaimToRun(w.context(), r.ID, somePin); err != nil {
		w.t.Fatal(err)
	}
	if _, err := w.service.FinishRun(w.context(), r.ID, report); err != nil {
		w.t.Fatal(err)
	}
}

// choose has somebody submit the modal that they see, with a scope.
func (w *world) choose(user string, view slacksim.View, scope string) slacksim.Reply {
	w.t.Helper()
	reply, err := w.slack.Submit(w.context(), user, view.ID, map[string]string{"scope": scope})
	if err != nil {
		w.t.Fatal(err)
	}
	return reply
}

// granted has Ada approve a call for 15 minutes.
func (w *world) granted() *approval.Request {
	w.t.Helper()
	r := w.call()
	w.card(r, "Approval needed")
	w.click("U0ADA", r, "approve_for")
	if reply := w.choose("U0ADA", w.modal("U0ADA", "Longer than once is a grant"), "15m"); !reply.OK() {
		w.t.Fatalf("Slack shows %q %v", reply.Shown, reply.FieldErrors)
	}
	w.card(r, "Approved")
	return w.now(r.ID)
}

// From a choice in the modal to the revocation on the card.
func TestApproveForLongerAndRevoke(t *testing.T) {
	bothWays(t, func(t *testing.T, how ...func(*world)) {
		w := newWorld(t, append(how, gatewayPolicy)...)
		w.run()
		r := w.call()
		w.card(r, "Approval needed")
		if reply := w.click("U0ADA", r, "approve_for"); !reply.OK() {
			t.Errorf("Slack shows %q", reply.Shown)
		}
		view := w.modal("U0ADA", "Longer than once is a grant")
		text := said(t, view.Blocks)
		for _, want := range []string{"crm-agent", "crm.update", "customers", "production", "15 minutes until <!date^", "at the latest", "Anybody of oncall can revoke it at any moment"} {
			if !strings.Contains(text, want) {
				t.Errorf("the window doesn't say %q: %s", want, text)
			}
		}
		if reply := w.choose("U0ADA", view, ""); reply.Sent {
			t.Errorf("something wider than once was chosen beforehand: %+v", reply)
		}
		w.is(r, approval.Pending)
		if reply := w.choose("U0ADA", view, "15m"); !reply.OK() {
			t.Errorf("Slack shows %q %v", reply.Shown, reply.FieldErrors)
		}
		decided := w.now(r.ID)
		if decided.Status != approval.Approved || decided.Decisions[0].Scope != "15m" || decided.Grant == nil {
			t.Fatalf("the request is %s by %+v with %+v", decided.Status, decided.Decisions, decided.Grant)
		}
		card := w.card(r, "Approved, waiting to run")
		if text := said(t, card.Blocks); !strings.Contains(text, "*Granted for 15 minutes*: same action and target, until <!date^") {
			t.Errorf("the card doesn't show the grant: %s", text)
		}
		if p := parts(t, card.Blocks); !p.has("revoke") || p.decides() || p.has("approve_for") {
			t.Errorf("the card has the buttons %v", p.actions)
		}
		w.ran(r, approval.Report{Outcome: approval.Succeeded, Detail: "1 updated"})
		next := w.call()
		if next.Status != approval.Approved || next.GrantedBy != r.ID {
			t.Fatalf("the next call is %s by %q", next.Status, next.GrantedBy)
		}
		w.ran(next, approval.Report{Outcome: approval.Succeeded})
		w.wait("the card to count the use", func() bool { return strings.Contains(said(t, w.cards(r)[0].Blocks), ". Used 1 time.") })

		card = w.card(r, "Approved · ran")
		old := w.payload("U0ADA", card, "revoke")
		w.click("U0EVE", r, "revoke")
		w.told("U0EVE", "Only somebody of oncall can revoke this. You are not in it")
		w.click("U0FRANK", r, "revoke")
		w.told("U0FRANK", "Only somebody of oncall can revoke this.")
		w.click("U0GUEST", r, "revoke")
		w.told("U0GUEST", "guests can't decide")
		if g := w.now(r.ID).Grant; !g.RevokedAt.IsZero() {
			t.Fatalf("somebody without a role revoked it: %+v", g)
		}
		if reply := w.click("U0GRACE", r, "revoke"); !reply.OK() {
			t.Errorf("Slack shows %q", reply.Shown)
		}
		if g := w.now(r.ID).Grant; g.RevokedBy != grace.String() {
			t.Errorf("the grant is %+v", g)
		}
		w.wait("the card to say so", func() bool {
			text := said(t, w.cards(r)[0].Blocks)
			return strings.Contains(text, "revoked <!date^") && strings.Contains(text, " by <@U0GRACE>. Used 1 time.")
		})
		if p := parts(t, w.cards(r)[0].Blocks); p.has("revoke") {
			t.Errorf("the card has the buttons %v", p.actions)
		}
		if _, err := w.slack.Deliver(w.context(), old); err != nil {
			t.Fatal(err)
		}
		w.told("U0ADA", "Nothing changed. The grant was revoked before, <!date^")
		w.told("U0ADA", " by <@U0GRACE>.")
		if r := w.call(); r.Status != approval.Pending {
			t.Errorf("after the revocation, a call is %s", r.Status)
		}
	})
}

// Plain Approve is for once, whatever is offered.
func TestApproveIsOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, gatewayPolicy)
	w.run()
	r := w.call()
	card := w.card(r, "Approval needed")
	forged := w.altered(w.payload("U0ADA", card, "approve"), func(payload map[string]any) {
		payload["state"] = chosenScope("15m")
	})
	if _, err := w.slack.Deliver(w.context(), forged); err != nil {
		t.Fatal(err)
	}
	if r := w.now(r.ID); r.Status != approval.Approved || r.Grant != nil || r.Decisions[0].Scope != "" {
		t.Errorf("the request is %s by %+v with %+v", r.Status, r.Decisions, r.Grant)
	}
	if p := parts(t, w.card(r, "Approved").Blocks); p.has("revoke") {
		t.Errorf("without a grant, the card has the buttons %v", p.actions)
	}
}

// In Details, once is chosen unless somebody chooses otherwise.
func TestDetailsApproveForLonger(t *testing.T) {
	t.Parallel()
	for chosen, wants := range map[string]bool{"": false, "once": false, "15m": true, "session": true} {
		t.Run(chosen, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, gatewayPolicy)
			w.run()
			r := w.call()
			w.card(r, "Approval needed")
			w.click("U0ADA", r, "details")
			view := w.modal("U0ADA", "Longer than once is a grant")
			values := map[string]string{}
			if chosen != "" {
				values["scope"] = chosen
			}
			if reply, err := w.slack.Submit(w.context(), "U0ADA", view.ID, values); err != nil || !reply.OK() {
				t.Fatalf("submitting: %+v, %v", reply, err)
			}
			if r := w.now(r.ID); r.Status != approval.Approved || (r.Grant != nil) != wants || wants && r.Grant.Scope != chosen {
				t.Errorf("the request is %s with %+v", r.Status, r.Grant)
			}
		})
	}
}

func chosenScope(scope string) map[string]any {
	return map[string]any{"values": map[string]any{"scope": map[string]any{"scope": map[string]any{
		"type": "radio_buttons", "selected_option": map[string]any{"value": scope},
	}}}}
}

// A scope that isn't offered is refused, however it gets into the payload, and
// nothing is decided.
func TestForgedScope(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, action, scope string
		call                func(*approval.Proposal)
		says                string
	}{
		{"longer", "approve_for", "8h", nil, "approving for that long isn't offered"},
		{"another spelling", "approve_for", "900s", nil, "approving for that long isn't offered"},
		{"no duration", "approve_for", "<!channel>", nil, "approving for that long isn't offered"},
		{"nothing", "approve_for", "", nil, "Please choose for how long."},
		{"from Details", "details", "8h", nil, "approving for that long isn't offered"},
		{"what destroys", "details", "15m", func(p *approval.Proposal) { p.Action = "crm.drop" }, "approving for that long isn't offered"},
		{"a changed tool", "details", "15m", func(p *approval.Proposal) { p.Unpinned = true }, "approving for that long isn't offered"},
		{"no target", "details", "15m", func(p *approval.Proposal) { p.Payload = []byte(`{}`) }, "approving for that long isn't offered"},
		{"no session", "details", "session", func(p *approval.Proposal) { p.Session = "" }, "approving for that long isn't offered"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, gatewayPolicy)
			w.run()
			var change []func(*approval.Proposal)
			if test.call != nil {
				change = append(change, test.call)
			}
			r := w.call(change...)
			w.card(r, "Approval needed")
			w.click("U0ADA", r, test.action)
			view := w.modal("U0ADA", "Digest")
			payload, err := w.slack.SubmitPayload("U0ADA", view.ID, nil)
			if err != nil {
				t.Fatal(err)
			}
			forged := w.altered(payload, func(payload map[string]any) {
				payload["view"].(map[string]any)["state"] = chosenScope(test.scope)
			})
			reply, err := w.slack.Deliver(w.context(), forged)
			if err != nil || reply.Status != http.StatusOK || !strings.Contains(string(reply.Body), test.says) {
				t.Errorf("the answer is %d %s (%v)", reply.Status, reply.Body, err)
			}
			if strings.Contains(string(reply.Body), "channel") {
				t.Errorf("the answer repeats what was forged: %s", reply.Body)
			}
			if r := w.now(r.ID); r.Status != approval.Pending || len(r.Decisions) > 0 || r.Grant != nil {
				t.Errorf("the request is %s by %+v", r.Status, r.Decisions)
			}
		})
	}
}

// What the policy doesn't offer, no button offers, and a forged one opens
// nothing to decide by.
func TestOnlyWhatIsOffered(t *testing.T) {
	t.Parallel()
	w := newWorld(t, gatewayPolicy)
	w.run()
	r := w.call(func(p *approval.Proposal) { p.Action = "crm.drop" })
	card := w.card(r, "Approval needed")
	if p := parts(t, card.Blocks); p.has("approve_for") {
		t.Errorf("what destroys has the buttons %v", p.actions)
	}
	forged := w.altered(w.payload("U0ADA", card, "why"), func(payload map[string]any) {
		payload["actions"].([]any)[0].(map[string]any)["action_id"] = "approve_for"
	})
	if _, err := w.slack.Deliver(w.context(), forged); err != nil {
		t.Fatal(err)
	}
	if view := w.modal("U0ADA", "isn't offered for this request"); view.SubmitLabel != "" {
		t.Errorf("the window offers %q", view.SubmitLabel)
	}
}

// A choice stays in the modal where another try may help, beside the reason if
// one is asked for.
func TestApproveForLongerIsRefused(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		how   func(*world)
		field string
	}{
		"no reason": {gatewayPolicy, "scope"},
		"a reason":  {func(w *world) { gatewayPolicy(w); w.policy.approval += "\n  reason_required: true" }, "reason"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, test.how)
			w.run()
			r := w.call()
			w.card(r, "Approval needed")
			w.click("U0ADA", r, "approve_for")
			view := w.modal("U0ADA", "Longer than once is a grant")
			values := map[string]string{"scope": "15m"}
			if test.field == "reason" {
				values["reason"] = "Agreed."
			}
			payload, err := w.slack.SubmitPayload("U0ADA", view.ID, values)
			if err != nil {
				t.Fatal(err)
			}
			forged := bytes.ReplaceAll(payload, []byte(`"value":"15m"`), []byte(`"value":"16m"`))
			if reply, err := w.slack.Deliver(w.context(), forged); err != nil || !strings.Contains(string(reply.Body), `"errors":{"scope":`) {
				t.Errorf("a forged scope is answered %s, %v", reply.Body, err)
			}
			w.slack.Fail("users.info", slacksim.Fault{Status: 503}, 0)
			reply, err := w.slack.Submit(w.context(), "U0ADA", view.ID, values)
			if err != nil || !strings.Contains(reply.FieldErrors[test.field], "couldn't confirm your account") {
				t.Errorf("submitting: %+v, %v", reply, err)
			}
			w.slack.Recover("users.info")
			if reply, err := w.slack.Submit(w.context(), "U0ADA", view.ID, values); err != nil || !reply.OK() {
				t.Errorf("submitting again: %+v, %v", reply, err)
			}
			if r := w.now(r.ID); r.Grant == nil || r.Decisions[0].Reason != values["reason"] {
				t.Errorf("the request is %s by %+v", r.Status, r.Decisions)
			}
		})
	}
}

// A grant that ended says so to whoever revokes it late, and so does a request
// that never granted anything.
func TestRevokeTooLate(t *testing.T) {
	t.Parallel()
	w := newWorld(t, gatewayPolicy)
	w.run()
	r := w.granted()
	once := w.call(func(p *approval.Proposal) { p.Payload = []byte(`{"table": "other"}`) })
	w.card(once, "Approval needed")
	w.click("U0ADA", once, "approve")
	forged := w.altered(w.payload("U0GRACE", w.card(once, "Approved"), "why"), func(payload map[string]any) {
		payload["actions"].([]any)[0].(map[string]any)["action_id"] = "revoke"
	})
	if _, err := w.slack.Deliver(w.context(), forged); err != nil {
		t.Fatal(err)
	}
	w.told("U0GRACE", "Nothing changed. This request granted nothing beyond once.")
	w.clock.Advance(16 * time.Minute)
	w.click("U0ADA", r, "revoke")
	w.told("U0ADA", "Nothing changed. The grant ended by itself, <!date^")
}

// A revocation that can't be stored, or whose person Slack can't vouch for,
// isn't taken for one.
func TestRevokeIsNotLost(t *testing.T) {
	t.Parallel()
	w := newWorld(t, gatewayPolicy)
	w.run()
	r := w.granted()
	w.store.full.Store(true)
	if reply := w.click("U0ADA", r, "revoke"); reply.Status == http.StatusOK || reply.Shown == "" {
		t.Errorf("Slack got %d and shows %q", reply.Status, reply.Shown)
	}
	w.store.full.Store(false)
	w.slack.Fail("users.info", slacksim.Fault{Status: 503}, 1)
	w.click("U0ADA", r, "revoke")
	w.told("U0ADA", "so nothing was revoked. Please try again.")
	if g := w.now(r.ID).Grant; !g.RevokedAt.IsZero() {
		t.Fatalf("the grant is %+v", g)
	}
	w.click("U0ADA", r, "revoke")
	if g := w.now(r.ID).Grant; g.RevokedBy != ada.String() {
		t.Errorf("the grant is %+v", g)
	}
}

// The longest that the modal promises of a session is what the service grants.
func TestSessionEndsAsPromised(t *testing.T) {
	t.Parallel()
	w := newWorld(t, gatewayPolicy)
	w.run()
	r := w.call()
	w.card(r, "Approval needed")
	ballot := approvaltest.Ballot(r, approval.Approve)
	ballot.Scope, ballot.Surface = "session", approval.Slack
	decided, err := w.service.Decide(w.context(), ada, ballot)
	if err != nil {
		t.Fatal(err)
	}
	if got := decided.Grant.ExpiresAt.Sub(decided.Grant.GrantedAt); got != approval.MaxGrant {
		t.Errorf("a session's grant ends after %s, and the modal says %s", got, approval.MaxGrant)
	}
}

// What a grant approved says so, and who granted it, to whoever reads it.
func TestDetailsOfWhatAGrantApproved(t *testing.T) {
	t.Parallel()
	w := newWorld(t, gatewayPolicy)
	w.run()
	r := w.granted()
	next := w.call()
	if next.GrantedBy != r.ID {
		t.Fatalf("the next call was approved by %q", next.GrantedBy)
	}
	details := w.altered(w.payload("U0EVE", w.card(r, "Approved"), "why"), func(payload map[string]any) {
		action := payload["actions"].([]any)[0].(map[string]any)
		action["action_id"], action["value"] = "details", bot.Value(next)
	})
	if _, err := w.slack.Deliver(w.context(), details); err != nil {
		t.Fatal(err)
	}
	view := w.modal("U0EVE", string(r.ID))
	if text := said(t, view.Blocks); !strings.Contains(text, "Granted with another request") || !strings.Contains(text, "That was granted by <@U0ADA>, ") {
		t.Errorf("the window says %s", text)
	}
}

func TestScopeWords(t *testing.T) {
	t.Parallel()
	for scope, want := range map[string]string{
		"": "once", "once": "once", "session": "the agent's session", "1m": "1 minute", "15m": "15 minutes",
		"90m": "1 hour 30 minutes", "8h": "8 hours", "90s": "1 minute 30 seconds", "1h0m1s": "1 hour 1 second", "<!here>": "longer than once",
	} {
		if got := presentation.ScopeWords(scope); got != want {
			t.Errorf("%q is %q, want %q", scope, got, want)
		}
	}
}

// A policy may list more than Slack takes, and the same twice.
func TestManyScopes(t *testing.T) {
	t.Parallel()
	many := []string{"15m", "15m"}
	for i := range 20 {
		many = append(many, strconv.Itoa(20+i)+"m")
	}
	view := bot.GrantView(deletion(byGateway, scopes(many...)), asked)
	for _, problem := range slacksim.LintView(view) {
		t.Errorf("Slack would refuse it: %s: %s", problem.Code, problem)
	}
	if n := strings.Count(string(view), `"value":"15m"`); n != 1 {
		t.Errorf("15 minutes are offered %d times", n)
	}
}
