package bot_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/bot"
	"github.com/countersign/countersign/bot/slacksim"
)

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
	payload := w.payload("U0ADA", card, "approve")
	other := w.payload("U0EVE", card, "approve")
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
		data := w.altered(payload, change)
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
	w.is(r, approval.Approved)
}

// What Slack signed may name another workspace: an app that is installed in two,
// or a channel that is shared.
func TestOtherTeamsInThePayload(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.run()
	r := w.ask()
	card := w.card(r, "Approval needed")
	payload := w.payload("U0ADA", card, "approve")
	for name, change := range map[string]func(map[string]any){
		"the installation": func(v map[string]any) { v["team"] = map[string]any{"id": "T0OTHER"} },
		"no installation":  func(v map[string]any) { v["team"] = nil },
		"the person":       func(v map[string]any) { v["user"].(map[string]any)["team_id"] = "T0OTHER" },
	} {
		data := w.altered(payload, change)
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
	payload := w.payload("U0EVE", card, "approve")
	for _, address := range []string{elsewhere.URL + "/hook", "https://hooks.slack.com.evil.example/x", "http://hooks.slack.com/x", "", "::"} {
		data := w.altered(payload, func(value map[string]any) {
			value["response_url"] = address
		})
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

// timedConnection is a response writer that notes the deadline for reading.
type timedConnection struct {
	*httptest.ResponseRecorder
	deadline time.Time
	cleared  bool
}

func (c *timedConnection) SetReadDeadline(at time.Time) error {
	c.deadline, c.cleared = at, at.IsZero()
	return nil
}

// endlessBody is read from until the connection's deadline.
type endlessBody struct{ connection *timedConnection }

func (b endlessBody) Read([]byte) (int, error) {
	if b.connection.deadline.IsZero() {
		return 0, errors.New("this would never end")
	}
	return 0, os.ErrDeadlineExceeded
}

// A body that never ends is not waited for, and the deadline is only the
// body's.
func TestBodyHasADeadline(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	handler := w.bot.Interactions()
	before := time.Now()
	slow := &timedConnection{ResponseRecorder: httptest.NewRecorder()}
	handler.ServeHTTP(slow, httptest.NewRequest(http.MethodPost, "/slack/interactions", endlessBody{slow}))
	if slow.Code != http.StatusBadRequest {
		t.Errorf("an unfinished body got %d", slow.Code)
	}
	if wait := slow.deadline.Sub(before); wait <= 0 || wait > time.Minute {
		t.Errorf("the deadline for the body is %s away", wait)
	}
	whole := &timedConnection{ResponseRecorder: httptest.NewRecorder()}
	handler.ServeHTTP(whole, httptest.NewRequest(http.MethodPost, "/slack/interactions", strings.NewReader("payload=1")))
	if whole.Code != http.StatusUnauthorized || !whole.cleared {
		t.Errorf("got %d; the deadline is %v", whole.Code, whole.deadline)
	}
}
