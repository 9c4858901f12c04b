package slacksim_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/slack-go/slack"

	"github.com/countersign/countersign/bot/slacksim"
)

func TestHistory(t *testing.T) {
	t.Parallel()
	server := start(t, slacksim.Options{Now: newClock().Now})
	var all []string
	for range 5 {
		all = append(all, post(t, server))
	}
	reply := call(t, server, "chat.postMessage", "channel", approvals, "text", "reply", "thread_ts", all[0])
	shown := call(t, server, "chat.postMessage", "channel", approvals, "text", "shown", "thread_ts", all[0], "reply_broadcast", "true")
	if !reply.OK || !shown.OK {
		t.Fatal(reply.Error, shown.Error)
	}
	call(t, server, "chat.postEphemeral", "channel", approvals, "user", "U0ADA", "text", "psst")
	history := func(arguments ...string) (found []string, cursor string) {
		t.Helper()
		form := url.Values{"token": {"xoxb-demo"}, "channel": {approvals}}
		for i := 0; i < len(arguments); i += 2 {
			form.Set(arguments[i], arguments[i+1])
		}
		response, err := http.PostForm(server.APIURL()+"conversations.history", form)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		var page struct {
			Messages []struct {
				TS       string
				Metadata *json.RawMessage
			}
			Metadata struct {
				Next string `json:"next_cursor"`
			} `json:"response_metadata"`
		}
		if err := json.NewDecoder(response.Body).Decode(&page); err != nil {
			t.Fatal(err)
		}
		for _, m := range page.Messages {
			found = append(found, m.TS)
			if m.Metadata != nil {
				t.Error("metadata was given without being asked for")
			}
		}
		return found, page.Metadata.Next
	}
	want := []string{shown.TS, all[4], all[3], all[2], all[1], all[0]}
	if got, _ := history(); cmp.Diff(want, got) != "" {
		t.Errorf("all: %v, want %v", got, want)
	}
	if got, _ := history("oldest", all[3]); cmp.Diff(want[:2], got) != "" {
		t.Errorf("after the fourth: %v", got)
	}
	if got, _ := history("oldest", all[3], "inclusive", "true"); cmp.Diff(want[:3], got) != "" {
		t.Errorf("from the fourth: %v", got)
	}
	if got, _ := history("latest", all[1]); cmp.Diff(want[5:], got) != "" {
		t.Errorf("before the second: %v", got)
	}
	first, cursor := history("limit", "4")
	rest, end := history("limit", "4", "cursor", cursor)
	if cmp.Diff(want, append(first, rest...)) != "" || len(first) != 4 || end != "" {
		t.Errorf("pages: %v and %v, then %q", first, rest, end)
	}
}

// Everything that tells people apart is in users.info.
func TestPeople(t *testing.T) {
	t.Parallel()
	server := start(t, slacksim.Options{EnterpriseID: "E0ACME"})
	api := client(server)
	type facts struct {
		Team, Enterprise                                                 string
		Bot, WorkflowBot, Restricted, UltraRestricted, Deleted, Stranger bool
	}
	for _, test := range []struct {
		user slacksim.User
		want facts
	}{
		{slacksim.User{ID: "U1A"}, facts{Team: "T0DEMO", Enterprise: "E0ACME"}},
		{slacksim.User{ID: "U1B", Bot: true}, facts{Team: "T0DEMO", Enterprise: "E0ACME", Bot: true}},
		{slacksim.User{ID: "U1C", WorkflowBot: true}, facts{Team: "T0DEMO", Enterprise: "E0ACME", WorkflowBot: true}},
		{slacksim.User{ID: "U1D", Restricted: true}, facts{Team: "T0DEMO", Enterprise: "E0ACME", Restricted: true}},
		{slacksim.User{ID: "U1E", UltraRestricted: true}, facts{Team: "T0DEMO", Enterprise: "E0ACME", Restricted: true, UltraRestricted: true}},
		{slacksim.User{ID: "U1F", Deleted: true}, facts{Team: "T0DEMO", Enterprise: "E0ACME", Deleted: true}},
		{slacksim.User{ID: "U1G", TeamID: "T0OTHER", Stranger: true}, facts{Team: "T0OTHER", Stranger: true}},
		{slacksim.User{ID: "U1H", TeamID: "T0OTHER", EnterpriseID: "E0OTHER"}, facts{Team: "T0OTHER", Enterprise: "E0OTHER"}},
	} {
		server.SetUser(test.user)
		u, err := api.GetUserInfoContext(deadline(t), test.user.ID)
		if err != nil {
			t.Fatal(err)
		}
		got := facts{u.TeamID, u.Enterprise.EnterpriseID, u.IsBot, u.IsWorkflowBot, u.IsRestricted, u.IsUltraRestricted, u.Deleted, u.IsStranger}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.user.ID, diff)
		}
	}
	server.SetUser(slacksim.User{ID: "U1A", Deleted: true})
	if u, ok := server.User("U1A"); !ok || !u.Deleted {
		t.Errorf("replaced: %+v", u)
	}
}

func TestGroups(t *testing.T) {
	t.Parallel()
	server := start(t, slacksim.Options{})
	api := client(server)
	ctx := deadline(t)
	server.SetGroup(slacksim.Group{ID: "S0OFF", Handle: "off", Users: []string{"U0BOB"}, Disabled: true})
	shown, err := api.GetUserGroupsContext(ctx)
	if err != nil || len(shown) != 1 || shown[0].Users != nil {
		t.Errorf("listed: %+v, %v", shown, err)
	}
	all, err := api.GetUserGroupsContext(ctx, slack.GetUserGroupsOptionIncludeDisabled(true), slack.GetUserGroupsOptionIncludeCount(true))
	if err != nil || len(all) != 2 || all[1].DateDelete == 0 || all[1].UserCount != 1 {
		t.Errorf("with disabled ones: %+v, %v", all, err)
	}
	members, err := api.GetUserGroupMembersContext(ctx, "S0OFF", slack.GetUserGroupMembersOptionIncludeDisabled(true))
	if err != nil || cmp.Diff([]string{"U0BOB"}, members) != "" {
		t.Errorf("members: %v, %v", members, err)
	}
	server.SetGroup(slacksim.Group{ID: "S0ONCALL", Handle: "ops-oncall"})
	members, err = api.GetUserGroupMembersContext(ctx, "S0ONCALL")
	if err != nil || len(members) != 0 {
		t.Errorf("emptied: %v, %v", members, err)
	}
}
