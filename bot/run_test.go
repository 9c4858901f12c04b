package bot_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/approval/approvaltest"
	"github.com/countersign/countersign/bot"
	"github.com/countersign/countersign/bot/slacksim"
	"github.com/countersign/countersign/policy"
)

// Approval and success are separate facts on the card, from the call to its
// result.
func TestCardOfARun(t *testing.T) {
	t.Parallel()
	w := newWorld(t, gatewayPolicy)
	w.run()
	r := w.call()
	card := w.card(r, "Approval needed")
	if text := said(t, card.Blocks); !strings.Contains(text, "filled in by the gateway") || strings.Contains(text, "in the agent's words") {
		t.Errorf("the card takes the gateway's words for the agent's: %s", text)
	}
	w.click("U0ADA", r, "approve")
	w.card(r, "Approved, waiting to run (production)")
	if _, err := w.service.ClaimToRun(w.context(), r.ID, somePin); err != nil {
		t.Fatal(err)
	}
	w.card(r, "Approved · running (production)")
	if _, err := w.service.FinishRun(w.context(), r.ID, approval.Report{Outcome: approval.Failed, Detail: "403 from <the> `CRM`"}); err != nil {
		t.Fatal(err)
	}
	card = w.card(r, "Approved · failed (production)")
	if p := parts(t, card.Blocks); len(p.actions) != 1 || !strings.Contains(strings.Join(p.code, "\n"), "403 from <the> `CRM`") {
		t.Errorf("the card has the buttons %v and the words %q", p.actions, p.code)
	}
	// Whoever decides late is told what became of it.
	late := w.altered(w.payload("U0GRACE", card, "why"), func(payload map[string]any) {
		payload["actions"].([]any)[0].(map[string]any)["action_id"] = "approve"
	})
	if _, err := w.slack.Deliver(w.context(), late); err != nil {
		t.Fatal(err)
	}
	w.told("U0GRACE", "It was approved by <@U0ADA>, and began to run <!date^")
}

// A run that nobody knows the outcome of asks a person with a role, once.
func TestSettle(t *testing.T) {
	bothWays(t, func(t *testing.T, how ...func(*world)) {
		for _, test := range []struct {
			action, says, later string
			want                approval.Outcome
		}{
			{"it_ran", "Approved · ran, a person says", "<@U0ADA> said before that it ran.", approval.Succeeded},
			{"it_did_not_run", "Approved · did not run, a person says", "<@U0ADA> said before that it did not run.", approval.Failed},
		} {
			w := newWorld(t, append(how, gatewayPolicy)...)
			w.run()
			r := w.call()
			w.card(r, "Approval needed")
			w.click("U0ADA", r, "approve")
			w.ran(r, approval.Report{Outcome: approval.Unknown, Detail: lostTrack})
			card := w.card(r, "Approved · outcome unknown")
			if text := said(t, card.Blocks); !strings.Contains(text, "The server lost track while it ran. It won't run again by itself.") {
				t.Errorf("the card doesn't say what that means: %s", text)
			}
			old := w.payload("U0GRACE", card, "it_ran")
			for user, says := range map[string]string{
				"U0EVE":   "Only somebody of oncall can say what came of this. You are not in it",
				"U0FRANK": "Only somebody of oncall can say what came of this.",
				"U0GUEST": "guests can't decide",
			} {
				w.click(user, r, test.action)
				w.told(user, says)
			}
			if e := w.now(r.ID).Execution; e.Outcome != approval.Unknown || !e.SettledBy.IsZero() {
				t.Fatalf("somebody without a role settled it: %+v", e)
			}
			if reply := w.click("U0ADA", r, test.action); !reply.OK() {
				t.Errorf("Slack shows %q", reply.Shown)
			}
			if e := w.now(r.ID).Execution; e.Outcome != test.want || e.SettledBy != ada {
				t.Errorf("the execution is %+v", e)
			}
			card = w.card(r, test.says)
			users := richUsers(t, card.Blocks)
			if p := parts(t, card.Blocks); p.has("it_ran") || p.has("it_did_not_run") || !slices.Equal(users[:2], []string{"U0ADA", "U0ADA"}) {
				t.Errorf("the card has the buttons %v and names %v", p.actions, users)
			}
			if _, err := w.slack.Deliver(w.context(), old); err != nil {
				t.Fatal(err)
			}
			w.told("U0GRACE", "Nothing changed. "+test.later)
			if e := w.now(r.ID).Execution; e.SettledBy != ada || e.Outcome != test.want {
				t.Errorf("the execution is %+v", e)
			}
		}
	})
}

// richUsers are the people whom rich text names.
func richUsers(t *testing.T, blocks json.RawMessage) []string {
	t.Helper()
	var all []struct {
		Elements []struct {
			Elements []struct {
				User string `json:"user_id"`
			}
		}
	}
	if err := json.Unmarshal(blocks, &all); err != nil {
		t.Fatal(err)
	}
	var users []string
	for _, block := range all {
		for _, section := range block.Elements {
			for _, element := range section.Elements {
				if element.User != "" {
					users = append(users, element.User)
				}
			}
		}
	}
	return users
}

// There is nothing to settle while something runs, of what has an outcome, and
// of what an agent runs.
func TestNothingToSettle(t *testing.T) {
	t.Parallel()
	w := newWorld(t, gatewayPolicy)
	w.run()
	running, known, agents := w.call(), w.call(), w.ask()
	for _, r := range []*approval.Request{running, known, agents} {
		w.card(r, "Approval needed")
		w.click("U0ADA", r, "approve")
	}
	if _, err := w.service.ClaimToRun(w.context(), running.ID, somePin); err != nil {
		t.Fatal(err)
	}
	w.ran(known, approval.Report{Outcome: approval.Succeeded})
	if _, err := w.service.Claim(w.context(), w.agent, agents.ID); err != nil {
		t.Fatal(err)
	}
	for user, test := range map[string]struct {
		r          *approval.Request
		card, says string
	}{
		"U0ADA":   {running, "running", "It is still running."},
		"U0GRACE": {known, "ran", "What came of it is known; the card says so."},
		"U0ALAN":  {agents, "Applied", "The server didn't run this."},
	} {
		click := w.altered(w.payload(user, w.card(test.r, test.card), "why"), func(payload map[string]any) {
			payload["actions"].([]any)[0].(map[string]any)["action_id"] = "it_did_not_run"
		})
		if _, err := w.slack.Deliver(w.context(), click); err != nil {
			t.Fatal(err)
		}
		w.told(user, "Nothing changed. "+test.says)
	}
}

// What a person says isn't acknowledged before it is stored.
func TestSettleIsNotLost(t *testing.T) {
	t.Parallel()
	w := newWorld(t, gatewayPolicy)
	w.run()
	r := w.call()
	w.card(r, "Approval needed")
	w.click("U0ADA", r, "approve")
	w.ran(r, approval.Report{Outcome: approval.Unknown})
	w.card(r, "outcome unknown")
	w.store.full.Store(true)
	if reply := w.click("U0ADA", r, "it_ran"); reply.Status == http.StatusOK || reply.Shown == "" {
		t.Errorf("Slack got %d and shows %q", reply.Status, reply.Shown)
	}
	w.store.full.Store(false)
	w.slack.Fail("users.info", slacksim.Fault{Status: 503}, 1)
	w.click("U0ADA", r, "it_ran")
	w.told("U0ADA", "so nothing was recorded. Please try again.")
	if e := w.now(r.ID).Execution; !e.SettledBy.IsZero() {
		t.Fatalf("the execution is %+v", e)
	}
	w.click("U0ADA", r, "it_ran")
	w.card(r, "ran, a person says")
}

// A tool that changed supersedes what waits for it, and the card says why.
func TestCardOfAChangedTool(t *testing.T) {
	t.Parallel()
	w := newWorld(t, gatewayPolicy)
	w.run()
	see := func(pin string) {
		t.Helper()
		if _, err := w.service.SeeTool(w.context(), "crm", "update", approval.ToolDefinition{Pin: pin, JSON: []byte(`{"pin":"` + pin + `"}`)}); err != nil {
			t.Fatal(err)
		}
	}
	see(somePin)
	r := w.call()
	old := w.payload("U0ADA", w.card(r, "Approval needed"), "approve")
	see(strings.Repeat("ab", 32))
	text := said(t, w.card(r, "Superseded, will not run").Blocks)
	for _, want := range []string{"The tool's definition has changed since this was asked.", "the agent must call the tool again"} {
		if !strings.Contains(text, want) {
			t.Errorf("the card doesn't say %q: %s", want, text)
		}
	}
	if _, err := w.slack.Deliver(w.context(), old); err != nil {
		t.Fatal(err)
	}
	w.told("U0ADA", "It was superseded, <!date^")
	w.told("U0ADA", "The tool's definition has changed since this was asked. If it is still wanted, the agent must call the tool again.")

	changed := w.call(func(p *approval.Proposal) { p.Unpinned = true })
	card := w.card(changed, "Approval needed")
	if text := said(t, card.Blocks); !strings.Contains(text, "⚠️ \nThe tool's definition has changed since it was pinned") {
		t.Errorf("the card doesn't warn of the changed tool: %s", text)
	}
	w.click("U0EVE", changed, "details")
	text = said(t, w.modal("U0EVE", "Tool pin").Blocks)
	for _, want := range []string{"Server", "crm", "update", somePin[:12], "which isn't the one that was pinned"} {
		if !strings.Contains(text, want) {
			t.Errorf("Details doesn't say %q: %s", want, text)
		}
	}
	if text := said(t, bot.Minimal(changed).Blocks); !strings.Contains(text, "The tool's definition has changed since it was pinned") {
		t.Errorf("the minimal card says %s", text)
	}
}

// An answer of the agent's client is never shown as a person's.
func TestCardOfAClientsAnswer(t *testing.T) {
	t.Parallel()
	inBand := func(w *world) {
		gatewayPolicy(w)
		w.policy.more += "in_band: {tiers: [2, 3], environments: [production]}\n"
	}
	const notAPerson = "by the agent's client, not by a verified person"
	for name, test := range map[string]struct {
		accept       bool
		card, saying string
	}{
		"accepted": {true, "Confirmed by the client, waiting to run", "confirmed " + notAPerson},
		"declined": {false, "Declined by the client", "rejected without a person"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, inBand)
			w.run()
			r := w.call()
			old := w.payload("U0ADA", w.card(r, "Approval needed"), "approve")
			if _, err := w.service.Confirm(w.context(), w.agent, approvaltest.Answer(r, test.accept)); err != nil {
				t.Fatal(err)
			}
			card := w.card(r, test.card)
			if text := said(t, card.Blocks); !strings.Contains(text, notAPerson) || strings.Contains(text, "somebody") || strings.Contains(text, "nobody") {
				t.Errorf("the card says %s", text)
			}
			if _, err := w.slack.Deliver(w.context(), old); err != nil {
				t.Fatal(err)
			}
			w.told("U0ADA", "Nothing changed. It was "+test.saying)
			if !test.accept {
				return
			}
			w.click("U0ADA", r, "why")
			if text := said(t, w.modal("U0ADA", "As the policy ruled").Blocks); !strings.Contains(text, "Confirmed "+notAPerson) {
				t.Errorf("the window says %s", text)
			}
		})
	}
}

// What the policy hides of the arguments doesn't come back through what a run
// reports.
func TestMask(t *testing.T) {
	t.Parallel()
	hidden := policy.Redactions{Keys: []string{"secret"}, Paths: []string{"/card"}}
	tests := []struct{ name, payload, detail, want string }{
		{"the value", `{"secret": "hunter2"}`, "login hunter2 refused, hunter2!", "login ‹hidden› refused, ‹hidden›!"},
		{"as JSON writes it", `{"secret": "a\"b\u003cc\/d"}`, `{"x":"a\"b\u003cc\/d"} a"b<c/d a\"b\u003cc/d`, `{"x":"‹hidden›"} ‹hidden› ‹hidden›`},
		{"short ones stay", `{"secret": "12345"}`, "12345 rows", "12345 rows"},
		{"what is shown stays", `{"name": "hunter2"}`, "hunter2", "hunter2"},
		{"in a list", `{"secret": ["hunter2", {"a": "swordfish"}]}`, "hunter2swordfish", "‹hidden›"},
		{"names in what is hidden", `{"card": {"holder": 1}}`, "no holder", "no ‹hidden›"},
		{"a number", `{"card": 4111111111111111}`, "card 4111111111111111 refused", "card ‹hidden› refused"},
		{"of several lines", `{"secret": "-----BEGIN\nAAAABBBB\nshort\n"}`, "bad key: AAAABBBB", "bad key: ‹hidden›"},
		{"cut at the end", `{"secret": "correct horse"}`, "no such user: correct ho…", "no such user: ‹hidden›…"},
		{"cut at the end to less", `{"secret": "correct horse"}`, "no such user: corre", "no such user: corre"},
		{"overlapping", `{"secret": ["abcdefgh", "efghijkl"]}`, "x abcdefghijkl x", "x ‹hidden› x"},
		{"beyond ASCII", `{"secret": "pässwörd"}`, "ä pässwörd ö", "ä ‹hidden› ö"},
		{"nothing reported", `{"secret": "hunter2"}`, "", ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			for executor, finish := range map[approval.Executor]func(approval.Outcome, string) func(*approval.Request){
				approval.ByGateway: func(o approval.Outcome, d string) func(*approval.Request) {
					return func(r *approval.Request) { byGateway(r); approved(r); ran(o, d)(r) }
				},
				approval.ByAgent: finished,
			} {
				r := deletion(finish(approval.Failed, test.detail), func(r *approval.Request) {
					r.Payload, r.Ruling.Redactions = approval.Payload(test.payload), hidden
				})
				text := said(t, bot.Card(r).Blocks)
				if !strings.Contains(text, test.want) {
					t.Errorf("by the %s: the card doesn't say %q: %s", executor, test.want, text)
				}
				if test.want != test.detail && strings.Contains(text, test.detail) {
					t.Errorf("by the %s: the card says %q", executor, test.detail)
				}
			}
		})
	}
}

// Who reports is said: the tool, the agent, or the server itself.
func TestWhoReports(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a long report ", 20)
	for want, r := range map[string]*approval.Request{
		"The tool reports":  deletion(byGateway, approved, ran(approval.Failed, long)),
		"The agent reports": deletion(finished(approval.Failed, long)),
		"The server noted":  deletion(byGateway, approved, ran(approval.Unknown, long)),
	} {
		text := said(t, bot.Card(r).Blocks)
		for _, other := range []string{"The tool reports", "The agent reports", "The server noted"} {
			if got := strings.Contains(text, other); got != (other == want) {
				t.Errorf("where %q stands, %q does: %v", want, other, got)
			}
		}
	}
}
