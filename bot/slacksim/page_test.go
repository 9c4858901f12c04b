package slacksim_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/countersign/countersign/bot/slacksim"
)

// scene is what the page is told to draw.
type scene struct {
	People, Channels []struct{ ID, Label string }
	User, Channel    string
	Name             string
	Messages         []struct{ Key, HTML string }
	Modal            *struct{ Key, HTML string }
	Consoles         []struct {
		Title string
		Lines []struct{ Text string }
	}
}

// watch streams what a person sees until the test ends.
func watch(t *testing.T, server *slacksim.Server, user, channel string) <-chan scene {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+"/page/events?"+url.Values{"user": {user}, "channel": {channel}}.Encode(), nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	if got := response.Header.Get("Content-Type"); got != "text/event-stream" {
		t.Errorf("the stream is %s", got)
	}
	scenes := make(chan scene, 100)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		reader := bufio.NewReader(response.Body)
		for {
			line, err := reader.ReadString('\n')
			if err != nil {
				return
			}
			if data, ok := strings.CutPrefix(line, "data: "); ok {
				var s scene
				if err := json.Unmarshal([]byte(data), &s); err != nil {
					t.Error(err)
				}
				scenes <- s
			}
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
		_ = response.Body.Close()
	})
	return scenes
}

// sees is what a person sees first.
func sees(t *testing.T, server *slacksim.Server, user, channel string) scene {
	t.Helper()
	return <-watch(t, server, user, channel)
}

// act does something on the page and returns the error that the person sees.
func act(t *testing.T, server *slacksim.Server, what string, fields map[string]any) string {
	t.Helper()
	body, err := json.Marshal(fields)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.Post(server.URL+"/page/"+what, "application/json", strings.NewReader(string(body)))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	var answer struct{ Shown string }
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		t.Fatalf("%d: %v", response.StatusCode, err)
	}
	return answer.Shown
}

func TestPageFiles(t *testing.T) {
	t.Parallel()
	server := start(t, slacksim.Options{})
	for path, kind := range map[string]string{
		"/":               "text/html; charset=utf-8",
		"/page/app.js":    "text/javascript; charset=utf-8",
		"/page/dates.js":  "text/javascript; charset=utf-8",
		"/page/style.css": "text/css; charset=utf-8",
		"/page/icon.svg":  "image/svg+xml",
	} {
		response, err := http.Get(server.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if response.StatusCode != 200 || response.Header.Get("Content-Type") != kind {
			t.Errorf("%s is %d %s", path, response.StatusCode, response.Header.Get("Content-Type"))
		}
		policy := response.Header.Get("Content-Security-Policy")
		if !strings.Contains(policy, "default-src 'none'; script-src 'self';") || strings.Contains(policy, "unsafe") {
			t.Errorf("%s has the policy %q", path, policy)
		}
	}
	for _, path := range []string{"/page/", "/page/blocks.tmpl", "/page/index.html", "/other"} {
		if response, err := http.Get(server.URL + path); err != nil || response.StatusCode != http.StatusNotFound {
			t.Errorf("%s: %d, %v", path, response.StatusCode, err)
		}
	}
}

// The page needs nothing from elsewhere and has nothing inline that its policy
// forbids.
func TestPageIsSelfContained(t *testing.T) {
	t.Parallel()
	inline := regexp.MustCompile(`(?i)<script(?:>|[^>]*[^r]>)|<style|\son[a-z]+=|\sstyle=`)
	for _, name := range []string{"page/index.html", "page/blocks.tmpl", "page/app.js", "page/dates.js", "page/style.css"} {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		text := strings.ReplaceAll(string(data), `<script src="/page/dates.js" defer>`, "")
		text = strings.ReplaceAll(text, `<script src="/page/app.js" defer>`, "")
		if found := inline.FindString(text); found != "" && !strings.HasSuffix(name, ".js") {
			t.Errorf("%s has %q", name, found)
		}
		if strings.Contains(text, "://") {
			t.Errorf("%s refers to another place", name)
		}
	}
}

// Each person sees what is theirs, as it changes.
func TestScenes(t *testing.T) {
	t.Parallel()
	server := start(t, slacksim.Options{})
	server.SetUser(slacksim.User{ID: "U0GONE", Name: "gone", Deleted: true})
	server.SetUser(slacksim.User{ID: "U0GUEST", Name: "guest", Restricted: true})
	server.SetUser(slacksim.User{ID: "U0EXT", Name: "ext", TeamID: "T0OTHER"})
	server.SetChannel(slacksim.Channel{ID: "C0FEW", Name: "few", Members: []string{"U0BOB"}})
	ada, bob := watch(t, server, "", ""), watch(t, server, "U0BOB", approvals)
	first := <-ada
	<-bob
	var labels []string
	for _, p := range first.People {
		labels = append(labels, p.ID+" "+p.Label)
	}
	want := []string{"U0ADA Ada Moreau", "U0BOB Bob Okafor", "U0GUEST guest (guest)", "U0EXT ext (another workspace)"}
	if diff := cmp.Diff(want, labels); diff != "" {
		t.Errorf("people (-want +got):\n%s", diff)
	}
	if first.User != "U0ADA" || first.Channel != approvals || first.Name != "approvals" || len(first.Channels) != 1 {
		t.Errorf("the scene is %+v", first)
	}

	ts := post(t, server)
	after := <-ada
	if len(after.Messages) != 1 || after.Messages[0].Key != ts || !strings.Contains(after.Messages[0].HTML, `data-action-id="approve"`) {
		t.Errorf("after a post: %+v", after.Messages)
	}
	<-bob
	whisper(t, server, "U0BOB")
	if got := <-bob; len(got.Messages) != 2 || !strings.Contains(got.Messages[1].HTML, "Only visible to you") {
		t.Errorf("Bob sees %+v", got.Messages)
	}
	call(t, server, "chat.update", "channel", approvals, "ts", ts, "text", "changed")
	if got := <-ada; len(got.Messages) != 1 || !strings.Contains(got.Messages[0].HTML, "(edited)") || strings.Contains(got.Messages[0].HTML, "approve") {
		t.Errorf("Ada sees %+v", got.Messages)
	}
	if got := sees(t, server, "U0BOB", "C0FEW"); got.Channel != "C0FEW" || len(got.Channels) != 2 || len(got.Messages) != 0 {
		t.Errorf("Bob's other channel is %+v", got)
	}
	if got := sees(t, server, "U0ADA", "C0FEW"); got.Channel != approvals {
		t.Errorf("Ada sees %s", got.Channel)
	}
	call(t, server, "chat.postMessage", "channel", "U0ADA", "text", "direct")
	if got := sees(t, server, "U0ADA", "D0ADA"); len(got.Messages) != 1 || got.Name != "countersign" || len(got.Channels) != 2 {
		t.Errorf("the direct messages are %+v", got)
	}
}

// Replies stand below the message that they answer.
func TestThreads(t *testing.T) {
	t.Parallel()
	server := start(t, slacksim.Options{})
	first, second := post(t, server), post(t, server)
	reply := call(t, server, "chat.postMessage", "channel", approvals, "thread_ts", first, "text", "reply")
	var keys []string
	all := sees(t, server, "U0ADA", "").Messages
	for _, m := range all {
		keys = append(keys, m.Key)
	}
	if diff := cmp.Diff([]string{first, reply.TS, second}, keys); diff != "" {
		t.Errorf("the order (-want +got):\n%s", diff)
	}
	if !strings.Contains(all[1].HTML, `class="message reply"`) || strings.Contains(all[0].HTML, "reply") {
		t.Errorf("the reply is %s", all[1].HTML)
	}
}

// A click on the page is the same as one from a test.
func TestActing(t *testing.T) {
	t.Parallel()
	server := start(t, slacksim.Options{})
	a := answering(t, server, func(i interaction) (int, string) {
		if i.Type == "view_submission" {
			return 200, `{"response_action":"errors","errors":{"reason":"Too late"}}`
		}
		return 200, ""
	})
	ts := post(t, server)
	if shown := act(t, server, "click", map[string]any{"user": "U0ADA", "channel": approvals, "ts": ts, "block": "act", "action": "approve"}); shown != "" {
		t.Errorf("the page shows %q", shown)
	}
	seen := <-a.seen
	if seen.User.ID != "U0ADA" || seen.Actions[0].Action_ID != "approve" || seen.Message.TS != ts {
		t.Errorf("the app saw %+v", seen)
	}
	if r := call(t, server, "views.open", "trigger_id", seen.TriggerID, "view", form); !r.OK {
		t.Fatal(r.Error)
	}
	stream := watch(t, server, "U0ADA", "")
	open := (<-stream).Modal
	for _, part := range []string{`data-view-id="` + open.Key + `"`, `data-input="reason"`, `value="5"`, `<option value="1" selected>One</option>`, `type="checkbox"`, `type="date"`, `data-submit`, `data-close`} {
		if !strings.Contains(open.HTML, part) {
			t.Errorf("the modal has no %s", part)
		}
	}
	if bobs := sees(t, server, "U0BOB", ""); bobs.Modal != nil {
		t.Error("Bob sees Ada's modal")
	}
	if shown := act(t, server, "click", map[string]any{"user": "U0ADA", "view": open.Key, "block": "more", "action": "push", "values": map[string]string{"reason": "typed"}}); shown != "" {
		t.Errorf("the page shows %q", shown)
	}
	if seen := <-a.seen; string(seen.View.State.Values["reason"]["v"]) != `{"type":"plain_text_input","value":"typed"}` {
		t.Errorf("the state is %s", seen.View.State.Values)
	}
	if shown := act(t, server, "submit", map[string]any{"user": "U0ADA", "view": open.Key, "values": map[string]string{"reason": "fine"}}); shown != "" {
		t.Errorf("the page shows %q", shown)
	}
	<-a.seen
	if again := sees(t, server, "U0ADA", "").Modal; !strings.Contains(again.HTML, `role="alert">Too late<`) {
		t.Errorf("the modal shows no error: %s", again.HTML)
	}
	if shown := act(t, server, "close", map[string]any{"user": "U0ADA", "view": open.Key}); shown != "" {
		t.Errorf("the page shows %q", shown)
	}
	if seen := <-a.seen; seen.Type != "view_closed" {
		t.Errorf("the app saw %+v", seen)
	}
	for _, gone := range []string{"click", "submit", "close"} {
		if shown := act(t, server, gone, map[string]any{"user": "U0ADA", "view": open.Key, "action": "push"}); shown == "" {
			t.Errorf("%s in a closed view shows nothing", gone)
		}
	}
	if response, err := http.Post(server.URL+"/page/click", "application/json", strings.NewReader("{")); err != nil || response.StatusCode != http.StatusBadRequest {
		t.Errorf("broken JSON: %d, %v", response.StatusCode, err)
	}
}

func TestConsole(t *testing.T) {
	t.Parallel()
	server := start(t, slacksim.Options{})
	console := server.Console("agent")
	if server.Console("agent") != console {
		t.Error("one title made two panels")
	}
	server.Console("other")
	console.Printf("asked %d\nwaiting <b>", 1)
	got := sees(t, server, "U0ADA", "").Consoles
	if len(got) != 2 || got[0].Title != "agent" || len(got[0].Lines) != 2 || got[0].Lines[0].Text != "asked 1" || got[0].Lines[1].Text != "waiting <b>" {
		t.Errorf("the panels are %+v", got)
	}
	for n := range 600 {
		console.Printf("line %d", n)
	}
	lines := sees(t, server, "U0ADA", "").Consoles[0].Lines
	if len(lines) != 500 || lines[499].Text != "line 599" || lines[0].Text != "line 100" {
		t.Errorf("there are %d lines, from %s", len(lines), fmt.Sprint(lines[0]))
	}
}
