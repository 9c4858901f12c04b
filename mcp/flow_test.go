package mcp_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/approval/approvaltest"
	"github.com/countersign/countersign/mcp"
)

// kinds are the ways to reach the tools; each returns a client's transport to
// the fixture's service, as the fixture's agent.
var kinds = map[string]func(testing.TB, *approvaltest.Fixture, *mcp.Local) sdk.Transport{
	"stdio": func(t testing.TB, f *approvaltest.Fixture, local *mcp.Local) sdk.Transport {
		return serveStdio(t, local, f.Agent, mcp.Options{Now: f.Clock.Now}).transport()
	},
	"http": func(t testing.TB, f *approvaltest.Fixture, local *mcp.Local) sdk.Transport {
		s := serveHTTP(t, f, local, mcp.HandlerOptions{})
		return s.transport(t, s.token(t, f.Agent.Name))
	},
	"bridge": func(t testing.TB, f *approvaltest.Fixture, local *mcp.Local) sdk.Transport {
		s := serveHTTP(t, f, local, mcp.HandlerOptions{})
		return serveStdio(t, dial(t, s, s.token(t, f.Agent.Name)), approval.Agent{}, mcp.Options{Now: f.Clock.Now}).transport()
	},
}

func dial(t testing.TB, s *httpServer, token string) *mcp.Remote {
	t.Helper()
	remote, err := mcp.Dial(t.Context(), s.URL, token, mcp.RemoteOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(remote.Close)
	return remote
}

// everywhere runs a test over each transport and each protocol version that
// the SDK speaks.
func everywhere(t *testing.T, run func(t *testing.T, f *approvaltest.Fixture, session *sdk.ClientSession)) {
	versions := sdk.SupportedProtocolVersions()
	if len(versions) < 5 || versions[0] != modern {
		t.Fatalf("the SDK speaks %v; is the newest still %s?", versions, modern)
	}
	for kind, reach := range kinds {
		for _, version := range versions {
			t.Run(kind+"/"+version, func(t *testing.T) {
				t.Parallel()
				f := approvaltest.New(t)
				run(t, f, connect(t, reach(t, f, newLocal(t, f, mcp.DefaultAwaitBound)), version, nil))
			})
		}
	}
}

// payload is written as no encoder would write it: white space, escapes, and
// numbers that don't survive a float64. The raw tests add 1e400, which the SDK's
// client neither sends nor reads.
const payload = "{ \"id\": 9007199254740993,\n\t\"rate\": 0.10, \"neg\":-0.0, \"where\": \"a < b && c > d\", \"\\u0061\": \"\\u00e9 é \U0001f600 \\ud83d\\ude00\", \"list\": [ ] }"

func TestApprovedAndAppliedExactly(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, f *approvaltest.Fixture, session *sdk.ClientSession) {
		// The SDK's client compacts and escapes what it is given, so the bytes
		// that arrive are checked by the raw tests; here, what is stored.
		id := idIn(t, succeed(t, session, "request_approval", fmt.Sprintf(
			`{"purpose":"Raise the limit","payload":%s,"ttlSeconds":600,"action":"limits.raise","target":"acct_1","environment":"production","count":3,"reversible":false}`, payload)))
		stored, err := f.Service.Status(t.Context(), f.Agent, id)
		if err != nil {
			t.Fatal(err)
		}
		if stored.Purpose != "Raise the limit" || stored.Action != "limits.raise" || stored.Target != "acct_1" || stored.Environment != "production" ||
			*stored.StatedCount != 3 || *stored.Reversible || stored.ExpiresAt.Sub(stored.CreatedAt) != 600*time.Second {
			t.Errorf("stored %+v", stored)
		}
		if got := succeed(t, session, "check_status", byID(id)); got != `{"status":"pending"}` {
			t.Errorf("check_status: %s", got)
		}
		if got := refused(t, session, "apply", byID(id)); !strings.Contains(got, "Nobody has decided yet") {
			t.Errorf("apply while pending: %s", got)
		}
		decide(t, f, id, approval.Approve, "")
		approved := call(t, session, "await_approval", byID(id))
		if got := textOf(t, approved, 0); got != `{"status":"approved"}` {
			t.Errorf("await_approval: %s", got)
		}
		deadline := approvaltest.Start.Add(15 * time.Minute).Format("2006-01-02T15:04:05.000Z")
		if got := textOf(t, approved, 1); !strings.Contains(got, "Call apply") || !strings.Contains(got, deadline) {
			t.Errorf("guidance lacks the next step or its deadline %s: %s", deadline, got)
		}
		if got, want := succeed(t, session, "apply", byID(id)), `{"status":"applied","payload":`+string(stored.Payload)+`}`; got != want {
			t.Errorf("apply:\n got %s\nwant %s", got, want)
		}
		for _, digits := range []string{"9007199254740993", "0.10", "-0.0"} {
			if !strings.Contains(string(stored.Payload), digits) {
				t.Errorf("the payload lost %s: %s", digits, stored.Payload)
			}
		}
		if got := refused(t, session, "apply", byID(id)); !strings.Contains(got, "works once") {
			t.Errorf("apply again: %s", got)
		}
		for _, tool := range []string{"check_status", "await_approval"} {
			if got := succeed(t, session, tool, byID(id)); got != `{"status":"applied"}` {
				t.Errorf("%s: %s", tool, got)
			}
		}
	})
}

func TestRejected(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, f *approvaltest.Fixture, session *sdk.ClientSession) {
		id := asked(t, session)
		decide(t, f, id, approval.Reject, `Not before the audit. "Ask Bob"`)
		for _, tool := range []string{"await_approval", "check_status"} {
			result := call(t, session, tool, byID(id))
			if got := textOf(t, result, 0); got != `{"status":"rejected"}` {
				t.Errorf("%s: %s", tool, got)
			}
			checkRejected(t, textOf(t, result, 1))
		}
		checkRejected(t, refused(t, session, "apply", byID(id)))
	})
}

func checkRejected(t *testing.T, text string) {
	t.Helper()
	for _, want := range []string{"A person said no", "Not before the audit", "Don't retry, rephrase", "another way"} {
		if !strings.Contains(text, want) {
			t.Errorf("the text lacks %q: %s", want, text)
		}
	}
}

func TestExpired(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, f *approvaltest.Fixture, session *sdk.ClientSession) {
		id := asked(t, session)
		f.Clock.Advance(approval.DefaultTTL)
		for _, tool := range []string{"await_approval", "check_status"} {
			result := call(t, session, tool, byID(id))
			if got := textOf(t, result, 0); got != `{"status":"expired"}` {
				t.Errorf("%s: %s", tool, got)
			}
			checkExpired(t, textOf(t, result, 1))
		}
		checkExpired(t, refused(t, session, "apply", byID(id)))
	})
}

func checkExpired(t *testing.T, text string) {
	t.Helper()
	for _, want := range []string{"Nobody decided in time", "Silence is not consent", "nobody refused", "Ask the user"} {
		if !strings.Contains(text, want) {
			t.Errorf("the text lacks %q: %s", want, text)
		}
	}
	for _, lie := range []string{"said no", "denied", "rejected"} {
		if strings.Contains(text, lie) {
			t.Errorf("an expiry is told as a refusal: %s", text)
		}
	}
}

// An approval that lapses unused, or that stops counting, is neither a person's
// no nor silence.
func TestApprovalThatNoLongerCounts(t *testing.T) {
	t.Parallel()
	t.Run("lapsed", func(t *testing.T) {
		t.Parallel()
		f := approvaltest.New(t)
		session := connect(t, kinds["stdio"](t, f, newLocal(t, f, 0)), modern, nil)
		id := asked(t, session)
		decide(t, f, id, approval.Approve, "")
		f.Clock.Advance(15 * time.Minute)
		for _, text := range []string{refused(t, session, "apply", byID(id)), textOf(t, call(t, session, "check_status", byID(id)), 1)} {
			if !strings.Contains(text, "was approved, but apply was not called") {
				t.Errorf("got %s", text)
			}
		}
	})
	t.Run("superseded", func(t *testing.T) {
		t.Parallel()
		f := approvaltest.New(t)
		session := connect(t, kinds["stdio"](t, f, newLocal(t, f, 0)), modern, nil)
		id := asked(t, session)
		decide(t, f, id, approval.Approve, "")
		f.People.Take("finance", approvaltest.Alice)
		for _, text := range []string{refused(t, session, "apply", byID(id)), textOf(t, call(t, session, "check_status", byID(id)), 1)} {
			if !strings.Contains(text, "no longer counts") || !strings.Contains(text, "1 of finance is missing") || strings.Contains(text, "said no") {
				t.Errorf("got %s", text)
			}
		}
	})
	t.Run("unverified", func(t *testing.T) {
		t.Parallel()
		f := approvaltest.New(t)
		session := connect(t, kinds["stdio"](t, f, newLocal(t, f, 0)), modern, nil)
		id := asked(t, session)
		decide(t, f, id, approval.Approve, "")
		f.People.Fail(fmt.Errorf("slack is down"))
		if text := refused(t, session, "apply", byID(id)); !strings.Contains(text, "Nothing was used up") || strings.Contains(text, "slack") {
			t.Errorf("got %s", text)
		}
		f.People.Fail(nil)
		succeed(t, session, "apply", byID(id))
	})
}

// Whether an id is unknown, malformed or another agent's can't be told apart.
func TestOthersRequestsLookUnknown(t *testing.T) {
	t.Parallel()
	for _, version := range []string{legacy, modern} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			f := approvaltest.New(t)
			s := serveHTTP(t, f, newLocal(t, f, 0), mcp.HandlerOptions{})
			mine := connect(t, s.transport(t, s.token(t, f.Agent.Name)), version, nil)
			other := connect(t, s.transport(t, s.token(t, "stranger")), version, nil)
			id := asked(t, mine)
			decide(t, f, id, approval.Approve, "")
			texts := make(map[string]bool)
			for _, tool := range []string{"await_approval", "check_status", "apply"} {
				for _, unknown := range []approval.ID{id, "req_00000000000000000000000000000000", "x", ""} {
					texts[refused(t, other, tool, byID(unknown))] = true
				}
			}
			if len(texts) != 1 {
				t.Errorf("the answers differ: %v", texts)
			}
			succeed(t, mine, "apply", byID(id))
		})
	}
}

// What the store says is for the log; the model hears what to do.
func TestStoreFailures(t *testing.T) {
	t.Parallel()
	f := approvaltest.New(t)
	logger, messages := logged()
	session := connect(t, serveStdio(t, newLocal(t, f, 0), f.Agent, mcp.Options{Now: f.Clock.Now, Logger: logger}).transport(), modern, nil)
	id := asked(t, session)
	if err := f.Store.Close(); err != nil {
		t.Fatal(err)
	}
	for tool, arguments := range map[string]string{
		"request_approval": `{"purpose":"p","payload":{}}`,
		"await_approval":   byID(id),
		"check_status":     byID(id),
		"apply":            byID(id),
	} {
		if got := refused(t, session, tool, arguments); !strings.Contains(got, "Nothing was changed. Try again") || strings.Contains(got, "sql") || strings.Contains(got, "closed") {
			t.Errorf("%s: %s", tool, got)
		}
		receiveMessage(t, messages, "refusing a tool call")
	}
}

// Agents are told where people decide, and that the address alone decides nothing.
func TestWhereToDecide(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		decides bool
		want    string
	}{
		"in Slack only": {false, "Whoever may decide is asked in Slack; to look at the request, people can open URL (opening it decides nothing). Don't run"},
		"on the page":   {true, "Whoever may decide is asked in Slack; people can also decide at URL, where they sign in (opening it decides nothing). Don't run"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := approvaltest.New(t)
			local, err := mcp.NewLocal(f.Service, mcp.LocalOptions{ReviewURL: reviewURL, ReviewDecides: test.decides, Now: f.Clock.Now})
			if err != nil {
				t.Fatal(err)
			}
			session := connect(t, serveStdio(t, local, f.Agent, mcp.Options{Now: f.Clock.Now}).transport(), legacy, nil)
			result := call(t, session, "request_approval", `{"purpose":"p","payload":{}}`)
			want := strings.ReplaceAll(test.want, "URL", reviewURL(idIn(t, textOf(t, result, 0))))
			if got := textOf(t, result, 1); !strings.Contains(got, want) {
				t.Errorf("got %s, want %s", got, want)
			}
		})
	}
}
