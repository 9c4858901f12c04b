package bot_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/bot"
	"github.com/countersign/countersign/bot/slacksim"
	"github.com/countersign/countersign/policy"
)

func TestStanding(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	roles := []policy.Role{
		{Name: "oncall", Users: []string{"U0ADA"}, Groups: []string{"S0FINANCE"}},
		{Name: "finance", Groups: []string{"S0FINANCE"}},
		{Name: "nobody"},
	}
	tests := []struct {
		name string
		who  approval.Approver
		want []approval.Membership
		err  error
		says string
	}{
		{"listed", approval.Approver{Workspace: "T0DEMO", User: "U0ADA"}, []approval.Membership{{Role: "oncall", Via: "user"}}, nil, ""},
		{
			"in the group", approval.Approver{Workspace: "T0DEMO", User: "U0FRANK"},
			[]approval.Membership{{Role: "oncall", Via: "S0FINANCE"}, {Role: "finance", Via: "S0FINANCE"}}, nil, "",
		},
		{"in neither", approval.Approver{Workspace: "T0DEMO", User: "U0EVE"}, nil, nil, ""},
		{"a guest in the group", approval.Approver{Workspace: "T0DEMO", User: "U0GUEST"}, nil, approval.ErrIneligible, "guests"},
		{"the same id elsewhere", approval.Approver{Workspace: "T0OTHER", User: "U0ADA"}, nil, approval.ErrIneligible, "other workspaces"},
		{"no workspace", approval.Approver{User: "U0ADA"}, nil, approval.ErrIneligible, "other workspaces"},
		{"Slackbot", approval.Approver{Workspace: "T0DEMO", User: "USLACKBOT"}, nil, approval.ErrIneligible, "bots"},
		{"no id", approval.Approver{Workspace: "T0DEMO", User: "ada"}, nil, approval.ErrIneligible, "bots"},
		{"nobody's id", approval.Approver{Workspace: "T0DEMO", User: "U0NOBODY"}, nil, approval.ErrIneligible, "doesn't know"},
		{"our own app", approval.Approver{Workspace: "T0DEMO", User: "U0BOT"}, nil, approval.ErrIneligible, "bots"},
	}
	directory, err := bot.NewDirectory(w.options)
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			got, err := directory.Standing(w.context(), test.who, roles)
			if !errors.Is(err, test.err) || err != nil && !strings.Contains(err.Error(), test.says) {
				t.Errorf("got the error %v, want %v that says %q", err, test.err, test.says)
			}
			if diff := cmp.Diff(test.want, got.Roles); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// Groups are asked only where a role names them and the person isn't listed.
func TestGroupsAreAskedOnlyWhereNamed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	directory, err := bot.NewDirectory(w.options)
	if err != nil {
		t.Fatal(err)
	}
	ada := approval.Approver{Workspace: "T0DEMO", User: "U0ADA"}
	roles := []policy.Role{{Name: "oncall", Users: []string{"U0ADA"}, Groups: []string{"S0FINANCE"}}}
	if _, err := directory.Standing(w.context(), ada, roles); err != nil {
		t.Fatal(err)
	}
	if n := len(w.slack.Calls("usergroups.users.list")); n != 0 {
		t.Errorf("groups were asked %d times", n)
	}
	if n := len(w.slack.Calls("users.info")); n != 1 {
		t.Errorf("the account was asked %d times", n)
	}
	if _, err := directory.Standing(w.context(), ada, roles); err != nil {
		t.Fatal(err)
	}
	if n := len(w.slack.Calls("users.info")); n != 2 {
		t.Errorf("the second decision asked %d times in all: nothing may be kept", n)
	}
}

func TestUnverified(t *testing.T) {
	t.Parallel()
	tests := map[string]slacksim.Fault{
		"an error":     {Error: "internal_error"},
		"a limit":      {Status: 429},
		"an outage":    {Status: 503},
		"a page":       {HTML: true},
		"no answer":    {Drop: slacksim.DropUnhandled},
		"a hang":       {Hold: make(chan struct{})},
		"a lost scope": {Error: "missing_scope"},
	}
	for name, fault := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			directory, err := bot.NewDirectory(w.options)
			if err != nil {
				t.Fatal(err)
			}
			w.slack.Fail("users.info", fault, 0)
			got, err := directory.Standing(w.context(), approval.Approver{Workspace: "T0DEMO", User: "U0ADA"}, w.policy.parse(t).Roles())
			if !errors.Is(err, approval.ErrUnverified) || len(got.Roles) > 0 {
				t.Errorf("got %+v, %v", got, err)
			}
		})
	}
}

// In an organisation of several workspaces, an account may name another one of
// them; it counts if the person is a member of ours in the same organisation.
func TestOrganisation(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, enterprise, user string
		err                    error
	}{
		{"a member of ours too", "E0US", `{"enterprise_id":"E0US","teams":["T0OTHER","T0DEMO"]}`, nil},
		{"not a member of ours", "E0US", `{"enterprise_id":"E0US","teams":["T0OTHER"]}`, approval.ErrIneligible},
		{"another organisation", "E0US", `{"enterprise_id":"E0THEM","teams":["T0OTHER","T0DEMO"]}`, approval.ErrIneligible},
		{"we are in none", "", `{"enterprise_id":"E0THEM","teams":["T0OTHER","T0DEMO"]}`, approval.ErrIneligible},
		{"an empty one", "", `{"enterprise_id":"","teams":["T0DEMO"]}`, approval.ErrIneligible},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			// The simulator's people are in one workspace each.
			slack := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				switch r.URL.Path {
				case "/api/auth.test":
					fmt.Fprintf(w, `{"ok":true,"team_id":"T0DEMO","user_id":"U0BOT","enterprise_id":%q}`, test.enterprise)
				case "/api/users.info":
					fmt.Fprintf(w, `{"ok":true,"user":{"id":"U0ADA","team_id":"T0OTHER","enterprise_user":%s}}`, test.user)
				}
			}))
			t.Cleanup(slack.Close)
			directory, err := bot.NewDirectory(bot.Options{Token: "xoxb-1", Workspace: "T0DEMO", Channel: channel, APIURL: slack.URL + "/api/"})
			if err != nil {
				t.Fatal(err)
			}
			who := approval.Approver{Workspace: "T0DEMO", User: "U0ADA"}
			if _, err := directory.Standing(t.Context(), who, nil); !errors.Is(err, test.err) {
				t.Errorf("got %v, want %v", err, test.err)
			}
		})
	}
}

// What says that an account isn't one of ours counts, whatever else it says.
func TestEachMarkCounts(t *testing.T) {
	t.Parallel()
	for _, mark := range []string{"deleted", "is_bot", "is_workflow_bot", "is_connector_bot", "is_restricted", "is_ultra_restricted", "is_stranger"} {
		t.Run(mark, func(t *testing.T) {
			t.Parallel()
			slack := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				fmt.Fprintf(w, `{"ok":true,"user":{"id":"U0ADA","team_id":"T0DEMO",%q:true}}`, mark)
			}))
			t.Cleanup(slack.Close)
			directory, err := bot.NewDirectory(bot.Options{Token: "xoxb-1", Workspace: "T0DEMO", Channel: channel, APIURL: slack.URL + "/api/"})
			if err != nil {
				t.Fatal(err)
			}
			who := approval.Approver{Workspace: "T0DEMO", User: "U0ADA"}
			if _, err := directory.Standing(t.Context(), who, nil); !errors.Is(err, approval.ErrIneligible) {
				t.Errorf("got %v, want %v", err, approval.ErrIneligible)
			}
		})
	}
}

// An answer that says nothing, or is about somebody else, proves nothing.
func TestOddAnswers(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{
		"nothing":       `{}`,
		"no user":       `{"ok":true}`,
		"somebody else": `{"ok":true,"user":{"id":"U0EVE","team_id":"T0DEMO"}}`,
		"no JSON":       `ok`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			slack := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				fmt.Fprint(w, body)
			}))
			t.Cleanup(slack.Close)
			directory, err := bot.NewDirectory(bot.Options{Token: "xoxb-1", Workspace: "T0DEMO", Channel: channel, APIURL: slack.URL + "/api/"})
			if err != nil {
				t.Fatal(err)
			}
			who := approval.Approver{Workspace: "T0DEMO", User: "U0ADA"}
			if _, err := directory.Standing(t.Context(), who, nil); !errors.Is(err, approval.ErrUnverified) {
				t.Errorf("got %v, want %v", err, approval.ErrUnverified)
			}
		})
	}
}
