package bot_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/bot"
	"github.com/countersign/countersign/bot/slacksim"
)

// bothWays runs a test with clicks over HTTP and over Socket Mode: one handler
// is behind both.
func bothWays(t *testing.T, test func(*testing.T, ...func(*world))) {
	t.Parallel()
	t.Run("http", func(t *testing.T) {
		t.Parallel()
		test(t)
	})
	t.Run("socket", func(t *testing.T) {
		t.Parallel()
		test(t, overSocket)
	})
}

func TestApprove(t *testing.T) {
	bothWays(t, func(t *testing.T, how ...func(*world)) {
		w := newWorld(t, how...)
		w.run()
		r := w.ask()
		w.card(r, "Approval needed (production): crm.delete_records on 3 records.")
		if reply := w.click("U0ADA", r, "approve"); !reply.OK() {
			t.Errorf("Slack shows %q", reply.Shown)
		}
		// Acknowledged means stored.
		decided := w.now(r.ID)
		if decided.Status != approval.Approved {
			t.Fatalf("the request is %s", decided.Status)
		}
		want := approval.Approver{Workspace: "T0DEMO", User: "U0ADA"}
		if d := decided.Decisions[0]; d.Approver != want || d.Surface != approval.Slack || d.Roles[0].Via != "user" {
			t.Errorf("the decision is %+v", d)
		}
		card := w.card(r, "Approved, waiting to be applied")
		if strings.Contains(string(card.Blocks), `"button"`) {
			t.Error("the decided card has buttons")
		}
		if len(w.slack.Ephemerals("U0ADA")) > 0 {
			t.Error("an approval that the card shows was answered too")
		}
		claimed, err := w.service.Claim(w.context(), w.agent, r.ID)
		if err != nil {
			t.Fatal(err)
		}
		if string(claimed.Payload) != `{"ids": [9007199254740993, 2, 3]}` {
			t.Errorf("the payload to run is %s", claimed.Payload)
		}
		w.card(r, "Applied (production)")
	})
}

func TestRejectWithReason(t *testing.T) {
	bothWays(t, func(t *testing.T, how ...func(*world)) {
		w := newWorld(t, how...)
		w.run()
		r := w.ask()
		w.card(r, "Approval needed")
		if reply := w.click("U0GRACE", r, "reject"); !reply.OK() {
			t.Errorf("Slack shows %q", reply.Shown)
		}
		view := w.modal("U0GRACE", "crm.delete_records")
		if w.now(r.ID).Status != approval.Pending {
			t.Error("opening the window rejected the request")
		}
		reply, err := w.slack.Submit(w.context(), "U0GRACE", view.ID, map[string]string{"reason": "Legal hold <!here>"})
		if err != nil || !reply.OK() {
			t.Fatalf("submitting: %+v, %v", reply, err)
		}
		if _, open := w.slack.OpenView("U0GRACE"); open {
			t.Error("the window is still open")
		}
		if decided := w.now(r.ID); decided.Status != approval.Rejected || decided.Reason != "Legal hold <!here>" {
			t.Errorf("the request is %s: %q", decided.Status, decided.Reason)
		}
		card := w.card(r, "Rejected (production)")
		if p := parts(t, card.Blocks); !strings.Contains(strings.Join(p.texts, "\n"), "Legal hold <!here>") {
			t.Errorf("the card doesn't show the reason: %s", card.Blocks)
		}
	})
}

func TestDetailsApprove(t *testing.T) {
	bothWays(t, func(t *testing.T, how ...func(*world)) {
		w := newWorld(t, how...)
		w.run()
		r := w.ask(big)
		card := w.card(r, "Approval needed")
		if p := parts(t, card.Blocks); p.has("approve") {
			t.Error("Approve is on a card that doesn't show everything")
		}
		if reply := w.click("U0ADA", r, "details"); !reply.OK() {
			t.Errorf("Slack shows %q", reply.Shown)
		}
		view := w.modal("U0ADA", r.Digest.String())
		if view.SubmitLabel != "Approve" {
			t.Fatalf("the window's button is %q", view.SubmitLabel)
		}
		reply, err := w.slack.Submit(w.context(), "U0ADA", view.ID, nil)
		if err != nil || !reply.OK() {
			t.Fatalf("submitting: %+v, %v", reply, err)
		}
		if status := w.now(r.ID).Status; status != approval.Approved {
			t.Errorf("the request is %s", status)
		}
		w.card(r, "Approved")
	})
}

// The largest modal that is offered for approval comes back whole with its
// submission.
func TestLargestDetailsApprove(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.run()
	r := w.ask(func(p *approval.Proposal) { p.Payload = []byte(`["` + strings.Repeat(`\"`, 45_000) + `"]`) })
	w.card(r, "Approval needed")
	w.click("U0ADA", r, "details")
	view := w.modal("U0ADA", r.Digest.String())
	if view.SubmitLabel != "Approve" {
		t.Fatalf("the window's button is %q", view.SubmitLabel)
	}
	if reply, err := w.slack.Submit(w.context(), "U0ADA", view.ID, nil); err != nil || !reply.OK() {
		t.Fatalf("submitting: %d %s, %v", reply.Status, reply.Shown, err)
	}
	if status := w.now(r.ID).Status; status != approval.Approved {
		t.Errorf("the request is %s", status)
	}
}

func TestTooLargeIsNotApprovable(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.run()
	r := w.ask(huge)
	card := w.card(r, "Approval needed")
	if p := parts(t, card.Blocks); p.has("approve") || !strings.Contains(strings.Join(p.texts, "\n"), "too large to review in Slack") {
		t.Errorf("the card has the buttons %v and doesn't say why", p.actions)
	}
	w.click("U0ADA", r, "details")
	view := w.modal("U0ADA", "too large to review in Slack")
	if view.SubmitLabel != "" {
		t.Errorf("the window's button is %q", view.SubmitLabel)
	}
}

// Who may not decide is told why, and nothing changes.
func TestWhoMayNotDecide(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, user, says string }{
		{"no role", "U0EVE", "This needs 1 of oncall. You are not in it"},
		{"a member of another role's group", "U0FRANK", "You are not in it"},
		{"whom the agent acts for", "U0ALAN", "the agent acts for you"},
		{"a guest", "U0GUEST", "guests can't decide"},
		{"a guest of one channel", "U0SINGLE", "guests can't decide"},
		{"a deactivated account", "U0GONE", "deactivated"},
		{"a bot", "U0ROBOT", "bots can't decide"},
		{"a workflow", "U0FLOW", "bots can't decide"},
		{"somebody of another workspace", "U0OTHER", "other workspaces"},
		{"a stranger", "U0STRANGER", "other workspaces"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.run()
			r := w.ask()
			w.card(r, "Approval needed")
			if reply := w.click(test.user, r, "approve"); !reply.OK() {
				t.Errorf("Slack shows %q", reply.Shown)
			}
			w.told(test.user, test.says)
			if now := w.now(r.ID); now.Status != approval.Pending || len(now.Decisions) > 0 {
				t.Errorf("the request is %s with the decisions %+v", now.Status, now.Decisions)
			}
		})
	}
}

// A name proves nothing: the id counts.
func TestRenamedToAnApprover(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.run()
	w.slack.SetUser(slacksim.User{ID: "U0EVE", Name: "ada", RealName: "Ada Lovelace"})
	r := w.ask()
	w.card(r, "Approval needed")
	w.click("U0EVE", r, "approve")
	w.told("U0EVE", "You are not in it")
	if status := w.now(r.ID).Status; status != approval.Pending {
		t.Errorf("the request is %s", status)
	}
}

// Whoever loses what it takes between the card and the click can't decide.
func TestLookedUpAfresh(t *testing.T) {
	t.Parallel()
	w := newWorld(t, needsFinance)
	w.run()
	first, second := w.ask(), w.ask()
	w.card(first, "Approval needed")
	w.card(second, "Approval needed")
	if reply := w.click("U0FRANK", first, "approve"); !reply.OK() {
		t.Errorf("Slack shows %q", reply.Shown)
	}
	if d := w.now(first.ID).Decisions; len(d) != 1 || d[0].Roles[0].Via != "S0FINANCE" {
		t.Fatalf("the decisions are %+v", d)
	}
	w.slack.SetGroup(slacksim.Group{ID: "S0FINANCE", Handle: "finance", Users: []string{"U0EVE"}})
	w.click("U0FRANK", second, "approve")
	w.told("U0FRANK", "You are not in it")
	if status := w.now(second.ID).Status; status != approval.Pending {
		t.Errorf("the request is %s", status)
	}
}

func TestGroupsFailClosed(t *testing.T) {
	t.Parallel()
	tests := map[string]func(*world){
		"an error": func(w *world) {
			w.slack.Fail("usergroups.users.list", slacksim.Fault{Error: "plan_upgrade_required"}, 0)
		},
		"a limit": func(w *world) {
			w.slack.Fail("usergroups.users.list", slacksim.Fault{Status: 429, RetryAfter: time.Minute}, 0)
		},
		"a page":       func(w *world) { w.slack.Fail("usergroups.users.list", slacksim.Fault{HTML: true}, 0) },
		"no answer":    func(w *world) { w.slack.Fail("usergroups.users.list", slacksim.Fault{Drop: slacksim.DropUnhandled}, 0) },
		"a hang":       func(w *world) { w.slack.Fail("usergroups.users.list", slacksim.Fault{Hold: make(chan struct{})}, 0) },
		"no such user": func(w *world) { w.slack.Fail("users.info", slacksim.Fault{Error: "fatal_error"}, 0) },
		"disabled": func(w *world) {
			w.slack.SetGroup(slacksim.Group{ID: "S0FINANCE", Handle: "finance", Users: []string{"U0FRANK"}, Disabled: true})
		},
	}
	for name, fault := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, needsFinance)
			w.run()
			r := w.ask()
			w.card(r, "Approval needed")
			fault(w)
			if reply := w.click("U0FRANK", r, "approve"); !reply.OK() {
				t.Errorf("Slack shows %q", reply.Shown)
			}
			w.told("U0FRANK", "couldn't confirm your account or your groups")
			if status := w.now(r.ID).Status; status != approval.Pending {
				t.Fatalf("the request is %s", status)
			}
		})
	}
}

func TestMoreApprovalsAreNeeded(t *testing.T) {
	t.Parallel()
	w := newWorld(t, needsTwo)
	w.run()
	r := w.ask()
	w.card(r, "Approval needed")
	w.click("U0ADA", r, "approve")
	w.told("U0ADA", "Recorded. 1 more of finance is needed.")
	w.card(r, "1 of 2 approved")
	w.click("U0ADA", r, "approve")
	w.told("U0ADA", "Your approval is recorded already. 1 more of finance is needed.")
	w.click("U0GRACE", r, "approve")
	w.click("U0FRANK", r, "approve")
	w.card(r, "Approved")
}

func TestDoubleClicksAndReplays(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.run()
	r := w.ask()
	card := w.card(r, "Approval needed")
	payload, err := w.slack.ClickPayload("U0ADA", channel, card.TS, "approve")
	if err != nil {
		t.Fatal(err)
	}
	var clicks sync.WaitGroup
	for range 8 {
		clicks.Go(func() {
			if reply, err := w.slack.Deliver(w.context(), payload); err != nil || reply.Status != http.StatusOK {
				t.Errorf("delivering: %+v, %v", reply, err)
			}
		})
	}
	clicks.Wait()
	if now := w.now(r.ID); now.Status != approval.Approved || len(now.Decisions) != 1 || now.Revision != 2 {
		t.Errorf("after 8 clicks the request is %s at revision %d with %d decisions", now.Status, now.Revision, len(now.Decisions))
	}
	w.told("U0ADA", "recorded already")
	w.slack.SetUser(slacksim.User{ID: "U0ADA", Name: "ada", Deleted: true})
	if reply, err := w.slack.Deliver(w.context(), payload); err != nil || reply.Status != http.StatusOK {
		t.Errorf("replaying: %+v, %v", reply, err)
	}
	if now := w.now(r.ID); now.Revision != 2 {
		t.Errorf("a replay made revision %d", now.Revision)
	}
}

// Later clicks say what happened.
func TestTooLate(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.run()
	r := w.ask()
	card := w.card(r, "Approval needed")
	late := func(user string) json.RawMessage {
		payload, err := w.slack.ClickPayload(user, channel, card.TS, "approve")
		if err != nil {
			t.Fatal(err)
		}
		return payload
	}
	grace, eve := late("U0GRACE"), late("U0EVE")
	w.click("U0ADA", r, "approve")
	w.card(r, "Approved")
	if _, err := w.slack.Deliver(w.context(), grace); err != nil {
		t.Fatal(err)
	}
	w.told("U0GRACE", "It was approved by <@U0ADA>")
	if _, err := w.service.Claim(w.context(), w.agent, r.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := w.slack.Deliver(w.context(), eve); err != nil {
		t.Fatal(err)
	}
	w.told("U0EVE", "and then applied")
}

// A decision is about what was shown.
func TestEditedSinceShown(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.run()
	r := w.ask()
	card := w.card(r, "Approval needed")
	old, err := w.slack.ClickPayload("U0ADA", channel, card.TS, "approve")
	if err != nil {
		t.Fatal(err)
	}
	editor := approval.Approver{Workspace: "T0DEMO", User: "U0GRACE"}
	if _, err := w.service.Edit(w.context(), editor, r.ID, 1, []byte(`{"ids": [1]}`), approval.Slack); err != nil {
		t.Fatal(err)
	}
	if _, err := w.slack.Deliver(w.context(), old); err != nil {
		t.Fatal(err)
	}
	w.told("U0ADA", "The arguments changed; look at the updated card.")
	w.card(r, "on 1 record.")
	if now := w.now(r.ID); now.Status != approval.Pending {
		t.Errorf("the request is %s", now.Status)
	}
	w.click("U0ADA", r, "approve")
	w.card(r, "Approved")
}

// A request that changes while somebody types a reason isn't rejected by it.
func TestModalsAnswer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.run()
	r := w.ask()
	w.card(r, "Approval needed")
	w.click("U0GRACE", r, "reject")
	view := w.modal("U0GRACE", "crm.delete_records")
	w.click("U0ADA", r, "approve")
	w.card(r, "Approved")
	if reply, err := w.slack.Submit(w.context(), "U0GRACE", view.ID, map[string]string{"reason": "no"}); err != nil || !reply.OK() {
		t.Fatalf("submitting: %+v, %v", reply, err)
	}
	w.modal("U0GRACE", "It was approved by <@U0ADA>")
}

func TestRejectModalKeepsTheReasonWhenSlackCantSay(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.run()
	r := w.ask()
	w.card(r, "Approval needed")
	w.click("U0GRACE", r, "reject")
	view := w.modal("U0GRACE", "crm.delete_records")
	w.slack.Fail("users.info", slacksim.Fault{Status: 503}, 0)
	reply, err := w.slack.Submit(w.context(), "U0GRACE", view.ID, map[string]string{"reason": "no"})
	if err != nil || !strings.Contains(reply.FieldErrors["reason"], "couldn't confirm your account") {
		t.Fatalf("submitting: %+v, %v", reply, err)
	}
	w.slack.Recover("users.info")
	if reply, err = w.slack.Submit(w.context(), "U0GRACE", view.ID, map[string]string{"reason": "no"}); err != nil || !reply.OK() {
		t.Fatalf("submitting again: %+v, %v", reply, err)
	}
	if status := w.now(r.ID).Status; status != approval.Rejected {
		t.Errorf("the request is %s", status)
	}
}

func TestGuestsReadNoDetails(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.run()
	r := w.ask()
	w.card(r, "Approval needed")
	for _, action := range []string{"details", "reject"} {
		w.click("U0GUEST", r, action)
		view := w.modal("U0GUEST", "guests can't decide")
		if strings.Contains(string(view.Blocks), "crm.delete_records") {
			t.Errorf("%s shows the request to a guest", action)
		}
		if _, err := w.slack.CloseView(w.context(), "U0GUEST", view.ID); err != nil {
			t.Fatal(err)
		}
	}
}

func TestExpiredTrigger(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.run()
	r := w.ask()
	w.card(r, "Approval needed")
	for _, action := range []string{"details", "reject"} {
		w.slack.Fail("views.open", slacksim.Fault{Error: "expired_trigger_id"}, 1)
		if reply := w.click("U0ADA", r, action); !reply.OK() {
			t.Errorf("Slack shows %q", reply.Shown)
		}
		w.wait("an answer", func() bool { return len(w.slack.Ephemerals("U0ADA")) > 0 })
		w.told("U0ADA", "press the button again")
	}
}

// A click that can't be stored isn't acknowledged: Slack shows its error, and
// pressing again works.
func TestStoreUnavailable(t *testing.T) {
	bothWays(t, func(t *testing.T, how ...func(*world)) {
		w := newWorld(t, how...)
		w.run()
		r := w.ask()
		card := w.card(r, "Approval needed")
		w.store.full.Store(true)
		if w.options.AppToken == "" {
			if reply := w.click("U0ADA", r, "approve"); reply.Status == http.StatusOK || reply.Shown == "" {
				t.Errorf("Slack got %d and shows %q", reply.Status, reply.Shown)
			}
		} else {
			// Without an acknowledgement, Slack waits for three seconds.
			replied := make(chan slacksim.Reply, 1)
			go func() {
				reply, err := w.slack.Click(w.context(), "U0ADA", channel, card.TS, "approve")
				if err != nil {
					t.Error(err)
				}
				replied <- reply
			}()
			w.waitLog("an interaction was not acknowledged")
			w.slack.PassAckDeadline()
			if reply := <-replied; reply.Shown == "" {
				t.Errorf("Slack shows nothing: %+v", reply)
			}
		}
		w.store.full.Store(false)
		if now := w.now(r.ID); now.Status != approval.Pending {
			t.Fatalf("the request is %s", now.Status)
		}
		if reply := w.click("U0ADA", r, "approve"); !reply.OK() {
			t.Errorf("Slack shows %q", reply.Shown)
		}
		w.card(r, "Approved")
	})
}

func TestRestartBetweenCardAndClick(t *testing.T) {
	bothWays(t, func(t *testing.T, how ...func(*world)) {
		w := newWorld(t, how...)
		w.run()
		r := w.ask()
		w.card(r, "Approval needed")
		w.stop()
		w.install()
		w.run()
		if reply := w.click("U0ADA", r, "approve"); !reply.OK() {
			t.Errorf("Slack shows %q", reply.Shown)
		}
		w.card(r, "Approved")
		if status := w.now(r.ID).Status; status != approval.Approved {
			t.Errorf("the request is %s", status)
		}
	})
}

// post sends a body to the interactions endpoint.
func (w *world) post(target string, header http.Header, body []byte) *httptest.ResponseRecorder {
	request := httptest.NewRequest(http.MethodPost, target, bytes.NewReader(body))
	for name, values := range header {
		request.Header[name] = values
	}
	recorder := httptest.NewRecorder()
	w.bot.Interactions().ServeHTTP(recorder, request)
	return recorder
}

func TestEndpointRefuses(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.run()
	r := w.ask()
	card := w.card(r, "Approval needed")
	payload, err := w.slack.ClickPayload("U0ADA", channel, card.TS, "approve")
	if err != nil {
		t.Fatal(err)
	}
	other, err := w.slack.ClickPayload("U0EVE", channel, card.TS, "approve")
	if err != nil {
		t.Fatal(err)
	}
	body := slacksim.FormBody(payload)
	now := time.Now()
	signed := w.slack.Sign(body, now)
	without := func(name string) http.Header {
		h := signed.Clone()
		h.Del(name)
		return h
	}
	twice := func(name string) http.Header {
		h := signed.Clone()
		h.Add(name, h.Get(name))
		return h
	}
	forms := func(payloads ...json.RawMessage) []byte {
		form := url.Values{}
		for _, p := range payloads {
			form.Add("payload", string(p))
		}
		return []byte(form.Encode())
	}
	changed := func(change func(map[string]any)) []byte {
		var value map[string]any
		if err := json.Unmarshal(payload, &value); err != nil {
			t.Fatal(err)
		}
		change(value)
		data, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		return forms(data)
	}
	twoActions := changed(func(v map[string]any) {
		actions := v["actions"].([]any)
		v["actions"] = append(actions, actions[0])
	})
	const target = "/slack/interactions"
	tests := []struct {
		name   string
		target string
		header http.Header
		body   []byte
		want   int
	}{
		{"not signed", target, nil, body, http.StatusUnauthorized},
		{"no timestamp", target, without("X-Slack-Request-Timestamp"), body, http.StatusUnauthorized},
		{"two signatures", target, twice("X-Slack-Signature"), body, http.StatusUnauthorized},
		{"two timestamps", target, twice("X-Slack-Request-Timestamp"), body, http.StatusUnauthorized},
		{"another body", target, signed, slacksim.FormBody(other), http.StatusUnauthorized},
		{"six minutes old", target, w.slack.Sign(body, now.Add(-6*time.Minute)), body, http.StatusUnauthorized},
		{"six minutes ahead", target, w.slack.Sign(body, now.Add(6*time.Minute)), body, http.StatusUnauthorized},
		{"two payloads", target, w.slack.Sign(forms(other, payload), now), forms(other, payload), http.StatusBadRequest},
		{"two actions", target, w.slack.Sign(twoActions, now), twoActions, http.StatusBadRequest},
		{"a payload in the query only", target + "?payload=" + url.QueryEscape(string(payload)), w.slack.Sign([]byte("a=b"), now), []byte("a=b"), http.StatusBadRequest},
		{"too long", target, nil, bytes.Repeat([]byte("a"), 1<<20+1), http.StatusRequestEntityTooLarge},
	}
	for _, test := range tests {
		if got := w.post(test.target, test.header, test.body); got.Code != test.want {
			t.Errorf("%s: got %d, want %d", test.name, got.Code, test.want)
		}
	}
	get := httptest.NewRecorder()
	w.bot.Interactions().ServeHTTP(get, httptest.NewRequest(http.MethodGet, target+"?payload="+url.QueryEscape(string(payload)), nil))
	if get.Code != http.StatusMethodNotAllowed || get.Header().Get("Allow") != http.MethodPost {
		t.Errorf("GET: got %d", get.Code)
	}
	if now := w.now(r.ID); now.Status != approval.Pending || len(now.Decisions) > 0 {
		t.Fatalf("the request is %s with the decisions %+v", now.Status, now.Decisions)
	}

	// The signed body counts, whatever the URL says.
	if got := w.post(target+"?payload="+url.QueryEscape(string(payload)), w.slack.Sign(slacksim.FormBody(other), now), slacksim.FormBody(other)); got.Code != http.StatusOK {
		t.Errorf("a tampered URL: got %d", got.Code)
	}
	w.told("U0EVE", "You are not in it")
	if now := w.now(r.ID); len(now.Decisions) > 0 {
		t.Errorf("the payload in the URL decided: %+v", now.Decisions)
	}
	if got := w.post(target, signed, body); got.Code != http.StatusOK || got.Body.Len() > 0 {
		t.Errorf("the real one: got %d %s", got.Code, got.Body)
	}
	if status := w.now(r.ID).Status; status != approval.Approved {
		t.Errorf("the request is %s", status)
	}
}

// What Slack signed may name another workspace: an app that is installed in two,
// or a channel that is shared.
func TestOtherTeamsInThePayload(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.run()
	r := w.ask()
	card := w.card(r, "Approval needed")
	payload, err := w.slack.ClickPayload("U0ADA", channel, card.TS, "approve")
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(map[string]any){
		"the installation": func(v map[string]any) { v["team"] = map[string]any{"id": "T0OTHER"} },
		"no installation":  func(v map[string]any) { v["team"] = nil },
		"the person":       func(v map[string]any) { v["user"].(map[string]any)["team_id"] = "T0OTHER" },
	} {
		var value map[string]any
		if err := json.Unmarshal(payload, &value); err != nil {
			t.Fatal(err)
		}
		change(value)
		data, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		before := len(w.slack.Ephemerals("U0ADA"))
		if reply, err := w.slack.Deliver(w.context(), data); err != nil || reply.Status != http.StatusOK {
			t.Errorf("%s: %+v, %v", name, reply, err)
		}
		w.wait("an answer", func() bool { return len(w.slack.Ephemerals("U0ADA")) > before })
		w.told("U0ADA", "other workspaces")
		if now := w.now(r.ID); now.Status != approval.Pending {
			t.Fatalf("%s: the request is %s", name, now.Status)
		}
	}
}

// Answers go to Slack and nowhere else.
func TestResponseURLIsSlacks(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.run()
	r := w.ask()
	card := w.card(r, "Approval needed")
	reached := make(chan string, 10)
	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { reached <- r.URL.String() }))
	t.Cleanup(elsewhere.Close)
	payload, err := w.slack.ClickPayload("U0EVE", channel, card.TS, "approve")
	if err != nil {
		t.Fatal(err)
	}
	for _, address := range []string{elsewhere.URL + "/hook", "https://hooks.slack.com.evil.example/x", "http://hooks.slack.com/x", "", "::"} {
		var value map[string]any
		if err := json.Unmarshal(payload, &value); err != nil {
			t.Fatal(err)
		}
		value["response_url"] = address
		data, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		before := len(w.slack.Ephemerals("U0EVE"))
		if _, err := w.slack.Deliver(w.context(), data); err != nil {
			t.Fatal(err)
		}
		// The answer comes as an ephemeral message then.
		w.wait("an answer", func() bool { return len(w.slack.Ephemerals("U0EVE")) > before })
	}
	select {
	case got := <-reached:
		t.Errorf("an answer went to %s", got)
	default:
	}
}

func TestResponseURL(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	options := w.options
	options.APIURL = ""
	real, err := bot.New(options, w.service, w.store)
	if err != nil {
		t.Fatal(err)
	}
	for address, want := range map[string]bool{
		"https://hooks.slack.com/actions/T1/2/3":     true,
		"https://hooks.slack-gov.com/actions/T1/2/3": true,
		"http://hooks.slack.com/actions/T1/2/3":      false,
		"https://hooks.slack.com.evil.example/a":     false,
		"https://evil.example/hooks.slack.com":       false,
		"https://hooks.slack.com@evil.example/a":     false,
		"https://user@hooks.slack.com/a":             false,
		"https://hooks.slack.com:8443/a":             false,
		"https://169.254.169.254/latest/meta-data":   false,
		w.options.APIURL + "../response/1":           false,
		"//hooks.slack.com/a":                        false,
		"file:///etc/passwd":                         false,
		"https://hooks.slack.com\\@evil.example/":    false,
		"": false,
	} {
		if got := real.Answers(address); got != want {
			t.Errorf("answers go to %q: %v, want %v", address, got, want)
		}
	}
	if !w.bot.Answers(w.options.APIURL + "response/1") {
		t.Error("no answers go to the configured API's host")
	}
}

// A reason that is typed for an earlier version is not asked for.
func TestRejectOfAnEarlierVersion(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.run()
	r := w.ask()
	card := w.card(r, "Approval needed")
	old, err := w.slack.ClickPayload("U0ADA", channel, card.TS, "reject")
	if err != nil {
		t.Fatal(err)
	}
	editor := approval.Approver{Workspace: "T0DEMO", User: "U0GRACE"}
	if _, err := w.service.Edit(w.context(), editor, r.ID, 1, []byte(`{"ids": [1]}`), approval.Slack); err != nil {
		t.Fatal(err)
	}
	if _, err := w.slack.Deliver(w.context(), old); err != nil {
		t.Fatal(err)
	}
	if view := w.modal("U0ADA", "The arguments changed"); view.SubmitLabel != "" {
		t.Errorf("the window still offers %q", view.SubmitLabel)
	}
}

// A submission that can't be stored isn't acknowledged, and the window stays.
func TestStoreUnavailableForModals(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		action, says string
		want         approval.Status
	}{
		{"details", "Digest", approval.Approved},
		{"reject", "crm.delete_records", approval.Rejected},
	} {
		t.Run(test.action, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.run()
			r := w.ask()
			w.card(r, "Approval needed")
			w.click("U0ADA", r, test.action)
			view := w.modal("U0ADA", test.says)
			w.store.full.Store(true)
			reply, err := w.slack.Submit(w.context(), "U0ADA", view.ID, nil)
			if err != nil || reply.Status == http.StatusOK || reply.Shown == "" {
				t.Errorf("submitting: %+v, %v", reply, err)
			}
			w.store.full.Store(false)
			if status := w.now(r.ID).Status; status != approval.Pending {
				t.Fatalf("the request is %s", status)
			}
			if reply, err = w.slack.Submit(w.context(), "U0ADA", view.ID, nil); err != nil || !reply.OK() {
				t.Errorf("submitting again: %+v, %v", reply, err)
			}
			if status := w.now(r.ID).Status; status != test.want {
				t.Errorf("the request is %s", status)
			}
		})
	}
}

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for name, change := range map[string]func(*bot.Options){
		"no token":               func(o *bot.Options) { o.Token = "" },
		"no way for clicks":      func(o *bot.Options) { o.SigningSecrets = nil },
		"an empty secret":        func(o *bot.Options) { o.SigningSecrets = []string{""} },
		"one of two is empty":    func(o *bot.Options) { o.SigningSecrets = append(o.SigningSecrets, " ") },
		"a name for a workspace": func(o *bot.Options) { o.Workspace = "acme" },
		"a name for a channel":   func(o *bot.Options) { o.Channel = "#approvals" },
		"no API":                 func(o *bot.Options) { o.APIURL = "slack" },
		"an API without a slash": func(o *bot.Options) { o.APIURL = strings.TrimSuffix(o.APIURL, "/") },
	} {
		options := w.options
		change(&options)
		if _, err := bot.New(options, w.service, w.store); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
}

// Without a signing secret the endpoint takes nothing, not even what is signed
// with an empty one.
func TestNoSecretNoEndpoint(t *testing.T) {
	t.Parallel()
	w := newWorld(t, overSocket)
	body := form(clickJSON(action("approve", someValue)))
	stamp := time.Now().UTC()
	header := signed(timestampText(stamp), sign("", timestampText(stamp), string(body)))
	if got := w.post("/slack/interactions", header, body); got.Code != http.StatusNotFound {
		t.Errorf("got %d", got.Code)
	}
}

func timestampText(at time.Time) string { return strconv.FormatInt(at.Unix(), 10) }

// Each refusal has its answer, and only failures that may pass have none.
func TestAnswersAreComplete(t *testing.T) {
	t.Parallel()
	r := deletion()
	for _, err := range []error{errors.New("a surprise"), approval.ErrUnavailable} {
		if text, known := bot.Answer(approval.Approve, r, err); known {
			t.Errorf("%v is answered with %q", err, text)
		}
	}
}
