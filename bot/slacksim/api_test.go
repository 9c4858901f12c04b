package slacksim_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/slack-go/slack"

	"github.com/countersign/countersign/bot/slacksim"
)

// A real client reads and writes, and sees what the workspace holds.
func TestClient(t *testing.T) {
	t.Parallel()
	server := start(t, slacksim.Options{EnterpriseID: "E0ACME"})
	api := client(server)
	ctx := deadline(t)

	self, err := api.AuthTestContext(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if self.TeamID != "T0DEMO" || self.UserID != "U0BOT" || self.BotID != "B0BOT" || self.EnterpriseID != "E0ACME" {
		t.Errorf("auth.test says %+v", self)
	}
	if scopes := self.Header.Get("X-OAuth-Scopes"); !strings.Contains(scopes, "chat:write") {
		t.Errorf("the scopes are %q", scopes)
	}

	text := slack.NewTextBlockObject("plain_text", "Approve?", false, false)
	button := slack.NewButtonBlockElement("approve", "v1", slack.NewTextBlockObject("plain_text", "Approve", false, false))
	channel, ts, err := api.PostMessageContext(ctx, approvals,
		slack.MsgOptionText("Approval needed", false),
		slack.MsgOptionBlocks(slack.NewSectionBlock(text, nil, nil), slack.NewActionBlock("act", button)),
		slack.MsgOptionMetadata(slack.SlackMetadata{EventType: "card", EventPayload: map[string]any{"id": "apr_1"}}),
		slack.MsgOptionDisableLinkUnfurl(), slack.MsgOptionDisableMediaUnfurl())
	if err != nil {
		t.Fatal(err)
	}
	if channel != approvals {
		t.Errorf("posted to %s", channel)
	}
	m := server.Messages(approvals)[0]
	if m.TS != ts || m.Text != "Approval needed" || string(m.Metadata.EventPayload) != `{"id":"apr_1"}` || m.UnfurlLinks == nil || *m.UnfurlLinks {
		t.Errorf("the message is %+v", m)
	}

	if _, _, _, err := api.UpdateMessageContext(ctx, approvals, ts, slack.MsgOptionText("Approved", false),
		slack.MsgOptionBlocks(slack.NewSectionBlock(text, nil, nil))); err != nil {
		t.Fatal(err)
	}
	history, err := api.GetConversationHistoryContext(ctx, &slack.GetConversationHistoryParameters{ChannelID: approvals, IncludeAllMetadata: true})
	if err != nil {
		t.Fatal(err)
	}
	if len(history.Messages) != 1 || history.Messages[0].Text != "Approved" || history.Messages[0].Metadata.EventPayload["id"] != "apr_1" || history.Messages[0].BotID != "B0BOT" {
		t.Errorf("the history is %+v", history.Messages)
	}
	link, err := api.GetPermalinkContext(ctx, &slack.PermalinkParameters{Channel: approvals, Ts: ts})
	if err != nil || !strings.HasSuffix(link, "/archives/C0APPROVALS/p"+strings.ReplaceAll(ts, ".", "")) {
		t.Errorf("the link is %q, %v", link, err)
	}
	if _, err := api.PostEphemeralContext(ctx, approvals, "U0ADA", slack.MsgOptionText("No", false)); err != nil {
		t.Error(err)
	}
	if got := server.Ephemerals("U0ADA"); len(got) != 1 || got[0].Text != "No" || got[0].VisibleTo != "U0ADA" {
		t.Errorf("Ada was shown %+v", got)
	}
	if got := server.Ephemerals("U0BOB"); len(got) != 0 {
		t.Errorf("Bob was shown %+v", got)
	}

	user, err := api.GetUserInfoContext(ctx, "U0ADA")
	if err != nil || user.Name != "ada" || user.TeamID != "T0DEMO" || user.Enterprise.EnterpriseID != "E0ACME" {
		t.Errorf("Ada is %+v, %v", user, err)
	}
	members, err := api.GetUserGroupMembersContext(ctx, "S0ONCALL")
	if err != nil || cmp.Diff([]string{"U0ADA"}, members) != "" {
		t.Errorf("on call are %v, %v", members, err)
	}
	groups, err := api.GetUserGroupsContext(ctx, slack.GetUserGroupsOptionIncludeUsers(true))
	if err != nil || len(groups) != 1 || groups[0].Handle != "ops-oncall" || len(groups[0].Users) != 1 {
		t.Errorf("the groups are %+v, %v", groups, err)
	}
	info, err := api.GetConversationInfoContext(ctx, &slack.GetConversationInfoInput{ChannelID: approvals})
	if err != nil || info.Name != "approvals" || !info.IsMember || info.IsExtShared {
		t.Errorf("the channel is %+v, %v", info, err)
	}
	if _, err := api.GetUserInfoContext(ctx, "U0NOBODY"); codeOf(err) != "user_not_found" {
		t.Errorf("an unknown person: %v", err)
	}
}

// A refusal reaches the client with Slack's pointers.
func TestClientSeesWhy(t *testing.T) {
	t.Parallel()
	server := start(t, slacksim.Options{})
	_, _, err := client(server).PostMessageContext(deadline(t), approvals, slack.MsgOptionText("x", false),
		slack.MsgOptionBlocks(slack.NewSectionBlock(slack.NewTextBlockObject("mrkdwn", longText(3001), false, false), nil, nil)))
	if codeOf(err) != "invalid_blocks" {
		t.Fatalf("the error is %v", err)
	}
	r := call(t, server, "chat.postMessage", "channel", approvals, "text", "x", "blocks", `[{"type":"section","text":{"type":"mrkdwn","text":""}}]`)
	want := result{Error: "invalid_blocks", Errors: []string{"must be more than 0 characters [json-pointer:/blocks/0/text/text]"}}
	want.Metadata.Messages = []string{"[ERROR] must be more than 0 characters [json-pointer:/blocks/0/text/text]"}
	if diff := cmp.Diff(want, r); diff != "" {
		t.Errorf("the answer (-want +got):\n%s", diff)
	}
}

// Each way to be refused, by name.
func TestErrors(t *testing.T) {
	t.Parallel()
	server := start(t, slacksim.Options{})
	server.SetChannel(slacksim.Channel{ID: "C0OUT", Name: "out", WithoutBot: true})
	server.SetChannel(slacksim.Channel{ID: "C0SECRET", Name: "secret", WithoutBot: true, Private: true})
	server.SetChannel(slacksim.Channel{ID: "C0OLD", Name: "old", Archived: true})
	server.SetChannel(slacksim.Channel{ID: "C0FEW", Name: "few", Members: []string{"U0ADA"}})
	server.SetUser(slacksim.User{ID: "U0GONE", Name: "gone", Deleted: true})
	ours := post(t, server)
	reply := call(t, server, "chat.postMessage", "channel", approvals, "text", "x", "thread_ts", ours)
	theirs, err := server.Say("U0ADA", approvals, "Hello")
	if err != nil {
		t.Fatal(err)
	}
	server.SetGroup(slacksim.Group{ID: "S0OFF", Handle: "off", Disabled: true})
	const bad = `[{"type":"table"}]`
	tests := []struct {
		name, method string
		arguments    []string
		want         string
	}{
		{"no token", "auth.test", []string{"token", ""}, "not_authed"},
		{"another token", "auth.test", []string{"token", "xoxb-other"}, "invalid_auth"},
		{"the app's token", "auth.test", []string{"token", "xapp-demo"}, "not_allowed_token_type"},
		{"the bot's token for a socket", "apps.connections.open", nil, "not_allowed_token_type"},
		{"unknown method", "chat.delete", nil, "unknown_method"},

		{"post nowhere", "chat.postMessage", []string{"text", "x"}, "channel_not_found"},
		{"post to a name", "chat.postMessage", []string{"channel", "#approvals", "text", "x"}, "channel_not_found"},
		{"post outside", "chat.postMessage", []string{"channel", "C0OUT", "text", "x"}, "not_in_channel"},
		{"post to a private channel", "chat.postMessage", []string{"channel", "C0SECRET", "text", "x"}, "channel_not_found"},
		{"post to an archive", "chat.postMessage", []string{"channel", "C0OLD", "text", "x"}, "is_archived"},
		{"post nothing", "chat.postMessage", []string{"channel", approvals}, "no_text"},
		{"post no blocks", "chat.postMessage", []string{"channel", approvals, "blocks", "[]"}, "no_text"},
		{"post bad blocks", "chat.postMessage", []string{"channel", approvals, "text", "x", "blocks", bad}, "invalid_blocks"},
		{"post broken blocks", "chat.postMessage", []string{"channel", approvals, "text", "x", "blocks", "{"}, "invalid_blocks_format"},
		{"post in no thread", "chat.postMessage", []string{"channel", approvals, "text", "x", "thread_ts", "1.000000"}, "thread_not_found"},
		{"post in a thread that is none", "chat.postMessage", []string{"channel", approvals, "text", "x", "thread_ts", "C1/1.000000"}, "invalid_thread_ts"},
		{"post below a reply", "chat.postMessage", []string{"channel", approvals, "text", "x", "thread_ts", reply.TS}, "cannot_reply_to_message"},
		{"post bad metadata", "chat.postMessage", []string{"channel", approvals, "text", "x", "metadata", `{"event_type":"a","event_payload":"b"}`}, "invalid_metadata_format"},
		{"post attachments", "chat.postMessage", []string{"channel", approvals, "text", "x", "attachments", "[]"}, "invalid_arguments"},

		{"update nowhere", "chat.update", []string{"channel", "C0NONE", "ts", ours, "text", "x"}, "channel_not_found"},
		{"update by a person's id", "chat.update", []string{"channel", "U0ADA", "ts", ours, "text", "x"}, "channel_not_found"},
		{"update nothing", "chat.update", []string{"channel", approvals, "ts", "1.000000", "text", "x"}, "message_not_found"},
		{"update somebody's", "chat.update", []string{"channel", approvals, "ts", theirs.TS, "text", "x"}, "cant_update_message"},
		{"update to nothing", "chat.update", []string{"channel", approvals, "ts", ours}, "no_text"},
		{"update to 4,001", "chat.update", []string{"channel", approvals, "ts", ours, "text", longText(4001)}, "msg_too_long"},
		{"update to bad blocks", "chat.update", []string{"channel", approvals, "ts", ours, "text", "x", "blocks", bad}, "invalid_blocks"},

		{"whisper to nobody", "chat.postEphemeral", []string{"channel", approvals, "user", "U0NONE", "text", "x"}, "user_not_in_channel"},
		{"whisper to somebody outside", "chat.postEphemeral", []string{"channel", "C0FEW", "user", "U0BOB", "text", "x"}, "user_not_in_channel"},
		{"whisper to somebody gone", "chat.postEphemeral", []string{"channel", approvals, "user", "U0GONE", "text", "x"}, "user_not_in_channel"},
		{"whisper nothing", "chat.postEphemeral", []string{"channel", approvals, "user", "U0ADA"}, "no_text"},
		{"whisper outside", "chat.postEphemeral", []string{"channel", "C0OUT", "user", "U0ADA", "text", "x"}, "not_in_channel"},

		{"unknown channel", "conversations.info", []string{"channel", "C0NONE"}, "channel_not_found"},
		{"private channel", "conversations.info", []string{"channel", "C0SECRET"}, "channel_not_found"},
		{"history outside", "conversations.history", []string{"channel", "C0OUT"}, "not_in_channel"},
		{"history of 1,000", "conversations.history", []string{"channel", approvals, "limit", "1000"}, "invalid_limit"},
		{"history since when", "conversations.history", []string{"channel", approvals, "oldest", "NaN"}, "invalid_ts_oldest"},
		{"history until when", "conversations.history", []string{"channel", approvals, "latest", "1e9"}, "invalid_ts_latest"},
		{"history cursor", "conversations.history", []string{"channel", approvals, "cursor", "x"}, "invalid_cursor"},
		{"unknown person", "users.info", []string{"user", "U0NONE"}, "user_not_found"},
		{"unknown group", "usergroups.users.list", []string{"usergroup", "S0NONE"}, "no_such_subteam"},
		{"disabled group", "usergroups.users.list", []string{"usergroup", "S0OFF"}, "no_such_subteam"},
		{"link to nothing", "chat.getPermalink", []string{"channel", approvals, "message_ts", "1.000000"}, "message_not_found"},

		{"open with no trigger", "views.open", []string{"view", modal(`[{"type":"divider"}]`)}, "invalid_arguments"},
		{"open with an unknown trigger", "views.open", []string{"trigger_id", "1.2.a", "view", modal(`[{"type":"divider"}]`)}, "invalid_arguments"},
		{"open a bad view", "views.open", []string{"trigger_id", "1.2.a", "view", modal(`[{"type":"table"}]`)}, "invalid_arguments"},
		{"open a large view", "views.open", []string{"trigger_id", "1.2.a", "view", longText(250_001)}, "view_too_large"},
		{"open a Home tab", "views.open", []string{"trigger_id", "1.2.a", "view", `{"type":"home","blocks":[{"type":"divider"}]}`}, "invalid_arguments"},
		{"update no view", "views.update", []string{"view_id", "V1", "view", modal(`[{"type":"divider"}]`)}, "not_found"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if got := call(t, server, test.method, test.arguments...); got.OK || got.Error != test.want {
				t.Errorf("got %q %v, want %q", got.Error, got.Errors, test.want)
			}
		})
	}
}

// An archived channel's messages can't be changed.
func TestUpdateInArchive(t *testing.T) {
	t.Parallel()
	server := start(t, slacksim.Options{})
	ts := post(t, server)
	server.SetChannel(slacksim.Channel{ID: approvals, Name: "approvals", Archived: true})
	if got := call(t, server, "chat.update", "channel", approvals, "ts", ts, "text", "x"); got.Error != "is_inactive" {
		t.Errorf("got %q", got.Error)
	}
}

func TestScopes(t *testing.T) {
	t.Parallel()
	server := start(t, slacksim.Options{Scopes: []string{"users:read", "groups:read"}})
	server.SetChannel(slacksim.Channel{ID: "C0PRIVATE", Name: "private", Private: true})
	for _, test := range []struct{ method, argument, value, needed string }{
		{"chat.postMessage", "channel", approvals, "chat:write"},
		{"chat.update", "channel", approvals, "chat:write"},
		{"chat.postEphemeral", "channel", approvals, "chat:write"},
		{"conversations.info", "channel", approvals, "channels:read"},
		{"conversations.info", "channel", "C0PRIVATE", ""},
		{"conversations.history", "channel", approvals, "channels:history"},
		{"conversations.history", "channel", "C0PRIVATE", "groups:history"},
		{"users.info", "user", "U0ADA", ""},
		{"usergroups.list", "", "", "usergroups:read"},
		{"usergroups.users.list", "usergroup", "S0ONCALL", "usergroups:read"},
		{"auth.test", "", "", ""},
	} {
		got := call(t, server, test.method, test.argument, test.value)
		want := result{OK: test.needed == "", Needed: test.needed}
		if !want.OK {
			want.Error, want.Provided = "missing_scope", "users:read,groups:read"
		}
		got.Metadata.Messages, got.TS = nil, ""
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s in %s (-want +got):\n%s", test.method, test.value, diff)
		}
	}
}

// Calls are taken as a form, as JSON with a bearer token, and, for what changes
// nothing, as a query.
func TestEncodings(t *testing.T) {
	t.Parallel()
	server := start(t, slacksim.Options{})
	do := func(method, path, contentType, body, bearer string) result {
		t.Helper()
		request, err := http.NewRequestWithContext(deadline(t), method, server.APIURL()+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Content-Type", contentType)
		if bearer != "" {
			request.Header.Set("Authorization", "Bearer "+bearer)
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		return read(t, response)
	}
	body := `{"channel":"C0APPROVALS","text":"é","blocks":[{"type":"divider"}],"unfurl_links":false,"thread_ts":null}`
	if got := do("POST", "chat.postMessage", "application/json; charset=utf-8", body, "xoxb-demo"); !got.OK {
		t.Errorf("JSON: %s %v", got.Error, got.Errors)
	}
	if got := server.Calls("chat.postMessage")[0].Arguments; got.Get("blocks") != `[{"type":"divider"}]` || got.Get("unfurl_links") != "false" || got.Has("thread_ts") {
		t.Errorf("the arguments are %v", got)
	}
	if got := do("GET", "users.info?user=U0ADA&token=xoxb-demo", "", "", ""); !got.OK {
		t.Errorf("query: %s", got.Error)
	}
	for name, got := range map[string]result{
		"broken JSON":    do("POST", "auth.test", "application/json", "{", "xoxb-demo"),
		"broken form":    do("POST", "auth.test", "application/x-www-form-urlencoded", "a=%zz", "xoxb-demo"),
		"another type":   do("POST", "auth.test", "text/plain", "x", "xoxb-demo"),
		"far too large":  do("POST", "auth.test", "application/json", `{"x":"`+longText(3<<20)+`"}`, "xoxb-demo"),
		"a post by GET":  do("GET", "chat.postMessage?channel=C0APPROVALS&text=x", "", "", "xoxb-demo"),
		"no such method": do("GET", "no.such", "", "", "xoxb-demo"),
	} {
		if got.OK {
			t.Errorf("%s was taken", name)
		}
	}
	for _, made := range server.Calls("") {
		if made.Arguments.Has("token") || strings.Contains(made.Arguments.Encode(), "xoxb") {
			t.Errorf("the token was kept: %v", made.Arguments)
		}
	}
}

// What an update does to text, blocks, metadata and the label.
func TestUpdate(t *testing.T) {
	t.Parallel()
	now := newClock()
	server := start(t, slacksim.Options{Now: now.Now})
	posted := call(t, server, "chat.postMessage", "channel", approvals, "text", "one", "blocks", twoButtons,
		"metadata", `{"event_type":"card","event_payload":{"n":1}}`)
	now.Advance(time.Minute)
	if got := call(t, server, "chat.update", "channel", approvals, "ts", posted.TS, "text", "two", "blocks", `[{"type":"divider","block_id":"d"}]`); !got.OK {
		t.Fatal(got.Error)
	}
	m := server.Messages(approvals)[0]
	if m.Text != "two" || m.Edited || m.Metadata.EventType != "card" || string(m.Blocks) != `[{"block_id":"d","type":"divider"}]` {
		t.Errorf("after an update with blocks: %+v", m)
	}
	if got := call(t, server, "chat.update", "channel", approvals, "ts", posted.TS, "text", "three", "metadata", `{"event_type":"card","event_payload":{"n":2}}`); !got.OK {
		t.Fatal(got.Error)
	}
	m = server.Messages(approvals)[0]
	if m.Text != "three" || !m.Edited || m.Blocks != nil || string(m.Metadata.EventPayload) != `{"n":2}` {
		t.Errorf("after an update with text: %+v", m)
	}
	if len(m.Earlier) != 2 || m.Earlier[0].Text != "one" || m.Earlier[1].Text != "two" || !m.Earlier[0].ReplacedAt.Equal(now.Now()) {
		t.Errorf("the history is %+v", m.Earlier)
	}
	if got := call(t, server, "chat.update", "channel", approvals, "ts", posted.TS, "text", longText(4000)); !got.OK {
		t.Errorf("4,000 characters are refused: %s", got.Error)
	}
}

func TestLongTextIsCut(t *testing.T) {
	t.Parallel()
	server := start(t, slacksim.Options{})
	if got := call(t, server, "chat.postMessage", "channel", approvals, "text", strings.Repeat("é", 40_000)); !got.OK || got.Warning != "" {
		t.Errorf("40,000: %+v", got)
	}
	if got := call(t, server, "chat.postMessage", "channel", approvals, "text", strings.Repeat("é", 40_001)); !got.OK || got.Warning != "message_truncated" {
		t.Errorf("40,001: %+v", got)
	}
	if got := server.Messages(approvals)[1].Text; got != strings.Repeat("é", 40_000) {
		t.Errorf("%d bytes were kept", len(got))
	}
}

// A person's id stands for the direct message channel with them.
func TestDirectMessage(t *testing.T) {
	t.Parallel()
	server := start(t, slacksim.Options{})
	channel, ts, err := client(server).PostMessageContext(deadline(t), "U0ADA", slack.MsgOptionText("for you", false))
	if err != nil || channel != "D0ADA" {
		t.Fatalf("posted to %q, %v", channel, err)
	}
	if got := server.Messages("U0ADA"); len(got) != 1 || got[0].Text != "for you" {
		t.Errorf("Ada's messages are %+v", got)
	}
	if got := call(t, server, "chat.update", "channel", "D0ADA", "ts", ts, "text", "changed"); !got.OK {
		t.Error(got.Error)
	}
	if got := call(t, server, "chat.postMessage", "channel", "U0BOT", "text", "x"); got.Error != "channel_not_found" {
		t.Errorf("to itself: %q", got.Error)
	}
}
