package main

import (
	"strings"
	"testing"
	"time"

	"github.com/countersign/countersign/bot/slacksim"
)

func mentions(text string) func(slacksim.Message) bool {
	return func(m slacksim.Message) bool { return strings.Contains(m.Text, text) }
}

// The main path over the real wire on both sides: an MCP client over HTTP asks,
// Slack posts the card, a person clicks, the waiting agent wakes and applies.
func TestAskClickWakeApply(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	token := w.token(t, "crm-agent")
	session := w.agent(t, token)
	id := ask(t, session, demoDelete)
	posted := w.card(t, mentions("Approval needed"))
	for _, want := range []string{"crm.delete_records", "214", "production"} {
		if !strings.Contains(posted.Text, want) {
			t.Errorf("the notification %q lacks %q", posted.Text, want)
		}
	}
	woken := w.waiting(t, token, id)
	if reply := w.click(t, "U0ADA", posted.TS, "approve"); !reply.OK() {
		t.Fatalf("the click: %+v", reply)
	}
	select {
	case got := <-woken:
		if got != "approved" {
			t.Fatalf("woke with %s", got)
		}
	case <-time.After(patience):
		t.Fatal("the agent didn't wake")
	}
	payload, err := apply(t, session, id)
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"table":"customers","where":{"status":"inactive","last_seen_before":"2024-12-01"},"expected_count":214}`; string(payload) != want {
		t.Errorf("applied %s, want %s", payload, want)
	}
	if _, err := apply(t, session, id); err == nil {
		t.Error("applied twice")
	}
	after := w.card(t, mentions("Applied"))
	if after.TS != posted.TS || len(w.slack.Messages(demoChannel)) != 1 {
		t.Errorf("another message was posted: %v", w.slack.Messages(demoChannel))
	}
	for _, button := range []string{"approve", "reject"} {
		marked := `"action_id":"` + button + `"`
		if !strings.Contains(string(posted.Blocks), marked) || strings.Contains(string(after.Blocks), marked) {
			t.Errorf("the button %s isn't there before, or still is: %s", button, after.Blocks)
		}
	}
}

// Who may not decide is told why, and nothing changes.
func TestWhoMayNotDecide(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	session := w.agent(t, w.token(t, "crm-agent"))
	id := ask(t, session, demoDelete)
	posted := w.card(t, mentions("Approval needed"))
	for person, want := range map[string]string{
		"U0SAM":   "needs 1 of oncall",
		demoOwner: "the agent acts for you",
	} {
		w.click(t, person, posted.TS, "approve")
		w.card(t, func(slacksim.Message) bool {
			told := w.slack.Ephemerals(person)
			return len(told) == 1 && strings.Contains(told[0].Text, want)
		})
	}
	if got := status(t, session, "check_status", id); got != "pending" {
		t.Errorf("the request is %s", got)
	}
	if _, err := apply(t, session, id); err == nil {
		t.Error("applied what nobody approved")
	}
}

// A server that restarts while an agent waits and a card is open: the wait ends
// as pending, and the next await and the next click both work.
func TestRestart(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	token := w.token(t, "crm-agent")
	session := w.agent(t, token)
	id := ask(t, session, demoDelete)
	posted := w.card(t, mentions("Approval needed"))
	waited := w.waiting(t, token, id)
	w.stop()
	select {
	case got := <-waited:
		if got != "pending" {
			t.Errorf("the wait that the restart ended says %s", got)
		}
	case <-time.After(patience):
		t.Fatal("the restart left the agent waiting")
	}
	w.start(t)
	waited = w.waiting(t, token, id)
	if reply := w.click(t, "U0GRACE", posted.TS, "approve"); !reply.OK() {
		t.Fatalf("the click after the restart: %+v", reply)
	}
	if got := <-waited; got != "approved" {
		t.Errorf("the agent woke with %s", got)
	}
	w.card(t, mentions("Approved"))
	if messages := w.slack.Messages(demoChannel); len(messages) != 1 {
		t.Errorf("%d cards for one request", len(messages))
	}
}

// Slack unreachable: the request is stored and stays pending, and its card comes
// when Slack does.
func TestSlackDown(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.slack.Fail("chat.postMessage", slacksim.Fault{Status: 503}, 2)
	session := w.agent(t, w.token(t, "crm-agent"))
	id := ask(t, session, demoDelete)
	if got := status(t, session, "check_status", id); got != "pending" {
		t.Errorf("the request is %s", got)
	}
	posted := w.card(t, mentions("Approval needed"))
	w.click(t, "U0ADA", posted.TS, "approve")
	if got := status(t, session, "await_approval", id); got != "approved" {
		t.Errorf("the request is %s", got)
	}
	if messages := w.slack.Messages(demoChannel); len(messages) != 1 {
		t.Errorf("%d cards for one request", len(messages))
	}
}

// Another agent's request looks like one that doesn't exist.
func TestAgentsSeeOnlyTheirOwn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	mine := w.agent(t, w.token(t, "crm-agent"))
	other := w.agent(t, w.token(t, "billing-agent"))
	id := ask(t, mine, demoDelete)
	unknown := "req_" + strings.Repeat("0", 32)
	for _, tool := range []string{"await_approval", "check_status", "apply"} {
		var got struct{}
		foreign := call(t.Context(), other, tool, map[string]any{"elicitationId": id}, &got)
		missing := call(t.Context(), other, tool, map[string]any{"elicitationId": unknown}, &got)
		if foreign == nil || missing == nil || strings.ReplaceAll(foreign.Error(), id, unknown) != missing.Error() {
			t.Errorf("%s: %v for another's, %v for none", tool, foreign, missing)
		}
	}
}
