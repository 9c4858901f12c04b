package slacksim_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/slack-go/slack"

	"github.com/countersign/countersign/bot/slacksim"
)

// interaction is what an app reads of a payload.
type interaction struct {
	Type      string
	User      struct{ ID, Username, Team_ID string }
	Team      struct{ ID string }
	AppID     string `json:"api_app_id"`
	Container struct {
		Type, Message_TS, Channel_ID, Thread_TS, View_ID string
		Is_Ephemeral                                     bool
	}
	Channel     *struct{ ID string }
	Message     *struct{ TS, Text string }
	TriggerID   string `json:"trigger_id"`
	ResponseURL string `json:"response_url"`
	Actions     []struct{ Action_ID, Block_ID, Value, Type, Action_TS string }
	View        *struct {
		ID, Callback_ID, Private_Metadata, Hash, Root_View_ID string
		State                                                 struct {
			Values map[string]map[string]json.RawMessage
		}
	}
	IsCleared bool `json:"is_cleared"`
}

// app is an app at a Request URL that answers interactions with what a test says.
type app struct {
	server *slacksim.Server
	seen   chan interaction
}

// answering starts an app. A nil answer acknowledges.
func answering(t *testing.T, server *slacksim.Server, answer func(interaction) (int, string)) *app {
	t.Helper()
	a := &app{server, make(chan interaction, 20)}
	web := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		// Slack's own client library has to agree with the signature.
		verifier, err := slack.NewSecretsVerifier(r.Header, server.Options().SigningSecret)
		if err == nil {
			_, _ = verifier.Write(body)
			err = verifier.Ensure()
		}
		if err != nil {
			t.Errorf("the signature: %v", err)
		}
		r.Body = io.NopCloser(strings.NewReader(string(body)))
		if _, err := slack.InteractionCallbackParse(r); err != nil {
			t.Errorf("the library can't read the payload: %v", err)
		}
		var i interaction
		if err := json.Unmarshal([]byte(r.PostForm.Get("payload")), &i); err != nil {
			t.Error(err)
		}
		a.seen <- i
		if answer == nil {
			return
		}
		status, text := answer(i)
		rw.WriteHeader(status)
		_, _ = io.WriteString(rw, text)
	}))
	t.Cleanup(web.Close)
	server.SetInteractivityURL(web.URL)
	return a
}

// click has somebody press a button and returns what the app saw.
func (a *app) click(t *testing.T, user, ts, action string) (slacksim.Reply, interaction) {
	t.Helper()
	reply, err := a.server.Click(deadline(t), user, approvals, ts, action)
	if err != nil {
		t.Fatal(err)
	}
	return reply, <-a.seen
}

func TestClick(t *testing.T) {
	t.Parallel()
	server := start(t, slacksim.Options{})
	a := answering(t, server, nil)
	ts := post(t, server)
	reply, seen := a.click(t, "U0ADA", ts, "approve")
	if !reply.OK() || reply.Status != 200 || !reply.Sent || reply.Attempts != 1 {
		t.Errorf("the reply is %+v", reply)
	}
	if seen.Type != "block_actions" || seen.User.ID != "U0ADA" || seen.User.Username != "ada" || seen.User.Team_ID != "T0DEMO" ||
		seen.Team.ID != "T0DEMO" || seen.AppID != "A0DEMO" || seen.Channel.ID != approvals || seen.Message.TS != ts || seen.View != nil {
		t.Errorf("the app saw %+v", seen)
	}
	if c := seen.Container; c.Type != "message" || c.Message_TS != ts || c.Channel_ID != approvals || c.Is_Ephemeral {
		t.Errorf("the container is %+v", c)
	}
	if len(seen.Actions) != 1 || seen.Actions[0].Action_ID != "approve" || seen.Actions[0].Block_ID != "act" || seen.Actions[0].Value != "v1" || seen.Actions[0].Action_TS == "" {
		t.Errorf("the actions are %+v", seen.Actions)
	}
	for name, press := range map[string][4]string{
		"nobody":            {"U0NONE", approvals, ts, "approve"},
		"no channel":        {"U0ADA", "C0NONE", ts, "approve"},
		"no message":        {"U0ADA", approvals, "1.000000", "approve"},
		"no button":         {"U0ADA", approvals, ts, "merge"},
		"another's whisper": {"U0ADA", approvals, whisper(t, server, "U0BOB"), "again"},
	} {
		if reply, err := server.Click(deadline(t), press[0], press[1], press[2], press[3]); err == nil {
			t.Errorf("%s could press: %+v", name, reply)
		}
	}
}

// whisper shows somebody a button that only they see.
func whisper(t *testing.T, server *slacksim.Server, user string) string {
	t.Helper()
	r := call(t, server, "chat.postEphemeral", "channel", approvals, "user", user, "text", "again?",
		"blocks", `[{"type":"actions","elements":[{"type":"button","action_id":"again","text":{"type":"plain_text","text":"Again"}}]}]`)
	if !r.OK {
		t.Fatal(r.Error)
	}
	all := server.Ephemerals(user)
	return all[len(all)-1].TS
}

func TestClickInEphemeral(t *testing.T) {
	t.Parallel()
	server := start(t, slacksim.Options{})
	a := answering(t, server, nil)
	_, seen := a.click(t, "U0BOB", whisper(t, server, "U0BOB"), "again")
	if !seen.Container.Is_Ephemeral || seen.Message != nil || seen.ResponseURL == "" {
		t.Errorf("the app saw %+v", seen)
	}
}

// What the person sees when the app doesn't acknowledge.
func TestBadAnswers(t *testing.T) {
	t.Parallel()
	server := start(t, slacksim.Options{})
	ts := post(t, server)
	if reply, err := server.Click(deadline(t), "U0ADA", approvals, ts, "approve"); err != nil || reply.Sent || reply.Shown == "" {
		t.Errorf("without an app: %+v, %v", reply, err)
	}
	for _, status := range []int{http.StatusInternalServerError, http.StatusFound, http.StatusNoContent, http.StatusUnauthorized} {
		a := answering(t, server, func(interaction) (int, string) { return status, "" })
		if reply, _ := a.click(t, "U0ADA", ts, "approve"); reply.OK() || reply.Status != status {
			t.Errorf("after %d: %+v", status, reply)
		}
	}
	gone := httptest.NewServer(nil)
	gone.Close()
	server.SetInteractivityURL(gone.URL)
	if reply, err := server.Click(deadline(t), "U0ADA", approvals, ts, "approve"); err != nil || reply.OK() || reply.Status != 0 {
		t.Errorf("nobody there: %+v, %v", reply, err)
	}
}

func TestRedirectsAreNotFollowed(t *testing.T) {
	t.Parallel()
	server := start(t, slacksim.Options{})
	ts := post(t, server)
	reached := make(chan struct{}, 1)
	web := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/elsewhere" {
			reached <- struct{}{}
			return
		}
		http.Redirect(rw, r, "/elsewhere", http.StatusTemporaryRedirect)
	}))
	t.Cleanup(web.Close)
	server.SetInteractivityURL(web.URL)
	if reply, err := server.Click(deadline(t), "U0ADA", approvals, ts, "approve"); err != nil || reply.OK() {
		t.Errorf("the reply is %+v, %v", reply, err)
	}
	select {
	case <-reached:
		t.Error("the redirect was followed")
	default:
	}
}

// The three seconds end without waiting for them.
func TestAckDeadline(t *testing.T) {
	t.Parallel()
	server := start(t, slacksim.Options{})
	ts := post(t, server)
	arrived, canceled := make(chan struct{}), make(chan struct{})
	web := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		close(arrived)
		<-r.Context().Done()
		close(canceled)
	}))
	t.Cleanup(web.Close)
	server.SetInteractivityURL(web.URL)
	replied := make(chan slacksim.Reply, 1)
	go func() {
		reply, err := server.Click(deadline(t), "U0ADA", approvals, ts, "approve")
		if err != nil {
			t.Error(err)
		}
		replied <- reply
	}()
	<-arrived
	server.PassAckDeadline()
	if reply := <-replied; reply.Shown == "" || reply.Status != 0 {
		t.Errorf("the reply is %+v", reply)
	}
	<-canceled
}

// Slack's documented example of a signature.
func TestSign(t *testing.T) {
	t.Parallel()
	workspace := slacksim.New(slacksim.Options{SigningSecret: "8f742231b10e8888abcd99yyyzzz85a5"})
	body := "token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V&channel_name=foobar" +
		"&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text=&response_url=https%3A%2F%2Fhooks.slack.com" +
		"%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c"
	header := workspace.Sign([]byte(body), time.Unix(1531420618, 0))
	if got, want := header.Get("X-Slack-Signature"), "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got := header.Get("X-Slack-Request-Timestamp"); got != "1531420618" {
		t.Errorf("the timestamp is %s", got)
	}
}

// A tampered or repeated payload is sent as it is.
func TestDeliver(t *testing.T) {
	t.Parallel()
	server := start(t, slacksim.Options{})
	a := answering(t, server, nil)
	payload, err := server.ClickPayload("U0ADA", approvals, post(t, server), "approve")
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if reply, err := server.Deliver(deadline(t), payload); err != nil || !reply.OK() {
			t.Errorf("the reply is %+v, %v", reply, err)
		}
	}
	if first, second := <-a.seen, <-a.seen; cmp.Diff(first, second) != "" {
		t.Errorf("the second is another: %+v", second)
	}
	tampered := json.RawMessage(strings.Replace(string(payload), "T0DEMO", "T0EVIL", 1))
	if _, err := server.Deliver(deadline(t), tampered); err != nil {
		t.Error(err)
	}
	<-a.seen
	values, err := url.ParseQuery(string(slacksim.FormBody(payload)))
	if err != nil || values.Get("payload") != string(payload) || len(values) != 1 {
		t.Errorf("the body is %v, %v", values, err)
	}
}

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

// opened posts a message, clicks in it, and opens the form with the click's trigger.
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

	// Without notify_on_close the app hears nothing; with clear_on_close all views go.
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

// A button in a modal gets a trigger that can push, twice; the stack holds three.
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

// A view is found by its id or the app's, and by hash only as long as it is the same.
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

func TestResponseURL(t *testing.T) {
	t.Parallel()
	now := newClock()
	server := start(t, slacksim.Options{Now: now.Now})
	a := answering(t, server, nil)
	ts := post(t, server)
	respond := func(address, body string) (int, result) {
		t.Helper()
		response, err := http.Post(address, "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		return response.StatusCode, read(t, response)
	}
	_, seen := a.click(t, "U0ADA", ts, "approve")
	for n := range 6 {
		status, r := respond(seen.ResponseURL, fmt.Sprintf(`{"text":"answer %d","blocks":null,"replace_original":false,"response_type":"ephemeral","metadata":{"event_type":"","event_payload":null}}`, n))
		if n == 5 {
			if status != 404 || r.Error != "used_url" {
				t.Errorf("a sixth time: %d %+v", status, r)
			}
		} else if !r.OK {
			t.Errorf("use %d: %+v", n, r)
		}
	}
	if got := server.Ephemerals("U0ADA"); len(got) != 5 || got[4].Text != "answer 4" {
		t.Errorf("Ada was shown %+v", got)
	}

	_, seen = a.click(t, "U0ADA", ts, "approve")
	if _, r := respond(seen.ResponseURL, `{"text":"to all","response_type":"in_channel"}`); !r.OK {
		t.Error(r.Error)
	}
	if _, r := respond(seen.ResponseURL, `{"text":"replaced","replace_original":true}`); !r.OK {
		t.Error(r.Error)
	}
	got := server.Messages(approvals)
	if len(got) != 2 || got[0].Text != "replaced" || got[0].TS != ts || len(got[0].Earlier) != 1 || got[1].Text != "to all" {
		t.Errorf("the channel has %+v", got)
	}
	for body, want := range map[string]string{
		`{}`:                                    "no_text",
		`{"text":"x","response_type":"public"}`: "invalid_payload",
		`{"text":"x","blocks":[{"type":"x"}]}`:  "invalid_blocks",
	} {
		if _, r := respond(seen.ResponseURL, body); r.Error != want {
			t.Errorf("%s: %+v, want %s", body, r, want)
		}
	}

	_, seen = a.click(t, "U0ADA", whisper(t, server, "U0ADA"), "again")
	if _, r := respond(seen.ResponseURL, `{"delete_original":true}`); !r.OK {
		t.Error(r.Error)
	}
	if all := server.Ephemerals("U0ADA"); len(all) != 5 {
		t.Errorf("after deleting, Ada sees %d", len(all))
	}
	now.Advance(30 * time.Minute)
	if _, r := respond(seen.ResponseURL, `{"text":"x"}`); !r.OK {
		t.Errorf("after 30 minutes: %s", r.Error)
	}
	now.Advance(time.Second)
	if status, r := respond(seen.ResponseURL, `{"text":"x"}`); status != 404 || r.Error != "expired_url" {
		t.Errorf("later: %d %+v", status, r)
	}
	if calls := server.Calls("response_url"); len(calls) != 14 {
		t.Errorf("there were %d calls", len(calls))
	}
}
