package slacksim_test

import (
	"encoding/json"
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

// app is an app at a Request URL that answers interactions with what a test
// says.
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
