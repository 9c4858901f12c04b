package slacksim_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/countersign/countersign/bot/slacksim"
)

// form is a modal with an input of each kind.
const form = `{"type":"modal","callback_id":"form","private_metadata":"v1","notify_on_close":true,
	"title":{"type":"plain_text","text":"Form"},"submit":{"type":"plain_text","text":"Go"},"blocks":[
	{"type":"input","block_id":"reason","label":{"type":"plain_text","text":"Reason"},"element":{"type":"plain_text_input","action_id":"v","min_length":3,"max_length":10}},
	{"type":"input","block_id":"count","label":{"type":"plain_text","text":"Count"},"element":{"type":"number_input","action_id":"v","is_decimal_allowed":false,"initial_value":"5","min_value":"1","max_value":"9007199254740993"}},
	{"type":"input","block_id":"pick","label":{"type":"plain_text","text":"Pick"},"element":{"type":"static_select","action_id":"v",
		"initial_option":{"text":{"type":"plain_text","text":"One"},"value":"1"},
		"options":[{"text":{"type":"plain_text","text":"One"},"value":"1"},{"text":{"type":"plain_text","text":"Two"},"value":"2"}]}},
	{"type":"input","block_id":"ticks","optional":true,"label":{"type":"plain_text","text":"Ticks"},"element":{"type":"checkboxes","action_id":"v",
		"options":[{"text":{"type":"plain_text","text":"One"},"value":"1"},{"text":{"type":"plain_text","text":"Two"},"value":"2"}]}},
	{"type":"input","block_id":"day","optional":true,"label":{"type":"plain_text","text":"Day"},"element":{"type":"datepicker","action_id":"v"}},
	{"type":"actions","block_id":"more","elements":[{"type":"button","action_id":"push","value":"p","text":{"type":"plain_text","text":"More"}}]}]}`

// opened posts a message, clicks in it, and opens the form with the click's
// trigger.
func opened(t *testing.T, a *app) slacksim.View {
	t.Helper()
	_, seen := a.click(t, "U0ADA", post(t, a.server), "approve")
	if r := call(t, a.server, "views.open", "trigger_id", seen.TriggerID, "view", form); !r.OK {
		t.Fatal(r.Error, r.Errors)
	}
	view, ok := a.server.OpenView("U0ADA")
	if !ok {
		t.Fatal("no view is open")
	}
	return view
}

func TestSubmit(t *testing.T) {
	t.Parallel()
	server := start(t, slacksim.Options{})
	a := answering(t, server, nil)
	view := opened(t, a)
	if view.Title != "Form" || view.SubmitLabel != "Go" || view.CallbackID != "form" || view.UserID != "U0ADA" || view.RootID != view.ID {
		t.Errorf("the view is %+v", view)
	}
	if _, open := server.OpenView("U0BOB"); open {
		t.Error("Bob sees a view")
	}
	reply, err := server.Submit(deadline(t), "U0ADA", view.ID, map[string]string{"reason": "légal", "count": "9007199254740993", "pick": "2", "ticks": "1\n2"})
	if err != nil || !reply.OK() || !reply.Sent {
		t.Fatalf("the reply is %+v, %v", reply, err)
	}
	seen := <-a.seen
	if seen.Type != "view_submission" || seen.View.Private_Metadata != "v1" || seen.View.Hash != view.Hash || seen.Channel != nil || seen.ResponseURL != "" {
		t.Errorf("the app saw %+v", seen)
	}
	got := map[string]string{}
	for block, values := range seen.View.State.Values {
		got[block] = string(values["v"])
	}
	want := map[string]string{
		"reason": `{"type":"plain_text_input","value":"légal"}`,
		"count":  `{"type":"number_input","value":"9007199254740993"}`,
		"pick":   `{"selected_option":{"text":{"type":"plain_text","text":"Two","emoji":null},"value":"2"},"type":"static_select"}`,
		"ticks": `{"selected_options":[{"text":{"type":"plain_text","text":"One","emoji":null},"value":"1"},` +
			`{"text":{"type":"plain_text","text":"Two","emoji":null},"value":"2"}],"type":"checkboxes"}`,
		"day": `{"selected_date":null,"type":"datepicker"}`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the state (-want +got):\n%s", diff)
	}
	if _, open := server.OpenView("U0ADA"); open {
		t.Error("an empty answer left the view open")
	}
}

// Slack's client checks a form before the app sees it.
func TestFormCheck(t *testing.T) {
	t.Parallel()
	server := start(t, slacksim.Options{})
	a := answering(t, server, nil)
	view := opened(t, a)
	for _, test := range []struct {
		name   string
		values map[string]string
		field  string
	}{
		{"required", nil, "reason"},
		{"too short", map[string]string{"reason": "né"}, "reason"},
		{"too long", map[string]string{"reason": "éééééééééé!"}, "reason"},
		{"not a number", map[string]string{"reason": "fine", "count": "five"}, "count"},
		{"decimals", map[string]string{"reason": "fine", "count": "1.5"}, "count"},
		{"too small", map[string]string{"reason": "fine", "count": "0"}, "count"},
		{"one too large", map[string]string{"reason": "fine", "count": "9007199254740994"}, "count"},
		{"nothing picked", map[string]string{"reason": "fine", "pick": ""}, "pick"},
		{"no date", map[string]string{"reason": "fine", "day": "tomorrow"}, "day"},
	} {
		reply, err := server.Submit(deadline(t), "U0ADA", view.ID, test.values)
		if err != nil || reply.OK() || reply.Sent || len(reply.FieldErrors) != 1 || reply.FieldErrors[test.field] == "" {
			t.Errorf("%s: %+v, %v", test.name, reply, err)
		}
		if now, _ := server.OpenView("U0ADA"); now.Errors[test.field] == "" {
			t.Errorf("%s: the view shows %v", test.name, now.Errors)
		}
	}
	for name, values := range map[string]map[string]string{"no such block": {"x": "y"}, "no such option": {"pick": "3"}} {
		if _, err := server.Submit(deadline(t), "U0ADA", view.ID, values); err == nil {
			t.Errorf("%s was taken", name)
		}
	}
	if _, err := server.Submit(deadline(t), "U0BOB", view.ID, nil); err == nil {
		t.Error("Bob submitted Ada's view")
	}
	// The whole of what a limit allows passes.
	if reply, err := server.Submit(deadline(t), "U0ADA", view.ID, map[string]string{"reason": "éééééééééé"}); err != nil || !reply.OK() {
		t.Errorf("ten letters: %+v, %v", reply, err)
	}
}

func TestResponseActions(t *testing.T) {
	t.Parallel()
	small := func(title string) string {
		return `{"type":"modal","title":{"type":"plain_text","text":"` + title + `"},"blocks":[{"type":"divider"}]}`
	}
	tests := []struct {
		name   string
		status int
		answer string
		ok     bool
		titles []string // of the views that are open afterwards
	}{
		{"empty", 200, ``, true, nil},
		{"empty object", 200, `{}`, true, nil},
		{"clear", 200, `{"response_action":"clear"}`, true, nil},
		{"update", 200, `{"response_action":"update","view":` + small("New") + `}`, true, []string{"New"}},
		{"push", 200, `{"response_action":"push","view":` + small("Next") + `}`, true, []string{"Form", "Next"}},
		{"errors", 200, `{"response_action":"errors","errors":{"reason":"Too late"}}`, false, []string{"Form"}},
		{"errors on what isn't an input", 200, `{"response_action":"errors","errors":{"more":"Too late"}}`, false, []string{"Form"}},
		{"no errors", 200, `{"response_action":"errors","errors":{}}`, false, []string{"Form"}},
		{"a bad view", 200, `{"response_action":"update","view":{"type":"modal"}}`, false, []string{"Form"}},
		{"a Home tab", 200, `{"response_action":"update","view":{"type":"home","blocks":[{"type":"divider"}]}}`, false, []string{"Form"}},
		{"another action", 200, `{"response_action":"explode"}`, false, []string{"Form"}},
		{"not JSON", 200, `ok`, false, []string{"Form"}},
		{"an error", 500, ``, false, []string{"Form"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			server := start(t, slacksim.Options{})
			a := answering(t, server, func(i interaction) (int, string) {
				if i.Type != "view_submission" {
					return 200, ""
				}
				return test.status, test.answer
			})
			view := opened(t, a)
			reply, err := server.Submit(deadline(t), "U0ADA", view.ID, map[string]string{"reason": "fine"})
			if err != nil || reply.OK() != test.ok || !reply.Sent {
				t.Errorf("the reply is %+v, %v", reply, err)
			}
			var titles []string
			for _, v := range server.Views("U0ADA") {
				titles = append(titles, v.Title)
			}
			if diff := cmp.Diff(test.titles, titles); diff != "" {
				t.Errorf("open views (-want +got):\n%s", diff)
			}
			if now, _ := server.OpenView("U0ADA"); test.name == "errors" && (now.Errors["reason"] != "Too late" || reply.FieldErrors["reason"] != "Too late") {
				t.Errorf("the view shows %v, the reply %v", now.Errors, reply.FieldErrors)
			}
		})
	}
}

func TestCloseView(t *testing.T) {
	t.Parallel()
	server := start(t, slacksim.Options{})
	a := answering(t, server, nil)
	view := opened(t, a)
	if _, err := server.CloseView(deadline(t), "U0BOB", view.ID); err == nil {
		t.Error("Bob closed Ada's view")
	}
	reply, err := server.CloseView(deadline(t), "U0ADA", view.ID)
	if err != nil || !reply.Sent {
		t.Fatalf("the reply is %+v, %v", reply, err)
	}
	if seen := <-a.seen; seen.Type != "view_closed" || seen.View.ID != view.ID || seen.IsCleared {
		t.Errorf("the app saw %+v", seen)
	}
	if views := server.Views("U0ADA"); len(views) != 0 {
		t.Errorf("open are %+v", views)
	}

	// Without notify_on_close the app hears nothing; with clear_on_close all
	// views go.
	view = opened(t, a)
	quiet := strings.Replace(form, `"notify_on_close":true`, `"clear_on_close":true`, 1)
	if r := call(t, server, "views.update", "view_id", view.ID, "view", quiet); !r.OK {
		t.Fatal(r.Error)
	}
	if reply, err := server.CloseView(deadline(t), "U0ADA", view.ID); err != nil || reply.Sent {
		t.Errorf("the reply is %+v, %v", reply, err)
	}
	if _, err := server.CloseView(deadline(t), "U0ADA", view.ID); err == nil {
		t.Error("the view was closed twice")
	}
}

// A button in a modal gets a trigger that can push, twice; the stack holds
// three.
func TestPush(t *testing.T) {
	t.Parallel()
	server := start(t, slacksim.Options{})
	a := answering(t, server, nil)
	view := opened(t, a)
	if reply, err := server.ClickInView(deadline(t), "U0ADA", view.ID, "push"); err != nil || !reply.OK() {
		t.Fatalf("the reply is %+v, %v", reply, err)
	}
	seen := <-a.seen
	if seen.Container.Type != "view" || seen.Container.View_ID != view.ID || seen.View.ID != view.ID || seen.Channel != nil || seen.ResponseURL != "" {
		t.Errorf("the app saw %+v", seen)
	}
	for n := range 3 {
		r := call(t, server, "views.push", "trigger_id", seen.TriggerID, "view", form)
		if n == 2 {
			if r.Error != "push_limit_reached" {
				t.Errorf("a fourth view: %+v", r)
			}
			break
		}
		if !r.OK {
			t.Fatal(r.Error, r.Errors)
		}
		if _, err := server.ClickInView(deadline(t), "U0ADA", r.View.ID, "push"); err != nil {
			t.Fatal(err)
		}
		seen = <-a.seen
	}
	views := server.Views("U0ADA")
	if len(views) != 3 || views[2].RootID != view.ID || views[2].PreviousID != views[1].ID {
		t.Errorf("the stack is %+v", views)
	}
	if _, err := server.ClickInView(deadline(t), "U0ADA", view.ID, "push"); err == nil {
		t.Error("a covered view was clicked in")
	}
	// A click in a message opens a modal of its own.
	_, seen = a.click(t, "U0ADA", post(t, server), "approve")
	if r := call(t, server, "views.push", "trigger_id", seen.TriggerID, "view", form); r.Error != "invalid_arguments" {
		t.Errorf("pushing from a message: %+v", r)
	}
}

func TestTriggers(t *testing.T) {
	t.Parallel()
	now := newClock()
	server := start(t, slacksim.Options{Now: now.Now})
	a := answering(t, server, nil)
	ts := post(t, server)
	view := modal(`[{"type":"divider"}]`)
	_, seen := a.click(t, "U0ADA", ts, "approve")
	now.Advance(3 * time.Second)
	if r := call(t, server, "views.open", "trigger_id", seen.TriggerID, "view", view); !r.OK {
		t.Errorf("after three seconds: %s", r.Error)
	}
	if r := call(t, server, "views.open", "trigger_id", seen.TriggerID, "view", view); r.Error != "exchanged_trigger_id" {
		t.Errorf("a second time: %+v", r)
	}
	_, seen = a.click(t, "U0ADA", ts, "approve")
	now.Advance(3*time.Second + time.Millisecond)
	if r := call(t, server, "views.open", "trigger_id", seen.TriggerID, "view", view); r.Error != "expired_trigger_id" {
		t.Errorf("after more than three seconds: %+v", r)
	}
}

// A view is found by its id or the app's, and by hash only as long as it is the
// same.
func TestUpdateView(t *testing.T) {
	t.Parallel()
	server := start(t, slacksim.Options{})
	a := answering(t, server, nil)
	named := strings.Replace(form, `"callback_id"`, `"external_id":"mine","callback_id"`, 1)
	_, seen := a.click(t, "U0ADA", post(t, server), "approve")
	first := call(t, server, "views.open", "trigger_id", seen.TriggerID, "view", named)
	if !first.OK {
		t.Fatal(first.Error)
	}
	second := call(t, server, "views.update", "external_id", "mine", "hash", first.View.Hash, "view", named)
	if !second.OK || second.View.ID != first.View.ID || second.View.Hash == first.View.Hash {
		t.Errorf("by the app's id: %+v", second)
	}
	if r := call(t, server, "views.update", "view_id", first.View.ID, "hash", first.View.Hash, "view", named); r.Error != "hash_conflict" {
		t.Errorf("by an old hash: %+v", r)
	}
	_, seen = a.click(t, "U0BOB", post(t, server), "approve")
	if r := call(t, server, "views.open", "trigger_id", seen.TriggerID, "view", named); r.Error != "duplicate_external_id" {
		t.Errorf("the same id for Bob: %+v", r)
	}
}
