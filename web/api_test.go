package web_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/approval/approvaltest"
	"github.com/countersign/countersign/internal/strictjson"
	"github.com/countersign/countersign/web"
)

// service is the API over a real service, with the fixture's agent at it.
type service struct {
	*approvaltest.Fixture
	api   *web.API
	token string
}

func newService(t testing.TB, options ...func(*approval.Options)) *service {
	t.Helper()
	f := approvaltest.New(t, options...)
	api, err := web.NewAPI(f.Service, web.APIOptions{
		ReviewURL: func(id approval.ID) string { return "https://approvals.example.com/review?elicitationId=" + string(id) },
	})
	if err != nil {
		t.Fatal(err)
	}
	s := &service{Fixture: f, api: api}
	s.token = s.tokenOf(t, f.Agent)
	return s
}

func (s *service) tokenOf(t testing.TB, agent approval.Agent) string {
	t.Helper()
	_, token, err := s.Service.CreateToken(t.Context(), approval.Operator{Name: "test"}, agent.Name, agent.Owner)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// answer is what a call was answered.
type answer struct {
	status int
	header http.Header
	body   string
}

// field is a string in the answer; empty if it isn't there.
func (a answer) field(name string) string {
	var members map[string]any
	if err := json.Unmarshal([]byte(a.body), &members); err != nil {
		return ""
	}
	text, _ := members[name].(string)
	return text
}

// code is the code of the error in the answer.
func (a answer) code() string {
	var refused struct{ Error struct{ Code string } }
	_ = json.Unmarshal([]byte(a.body), &refused)
	return refused.Error.Code
}

// call makes a call as the fixture's agent; each option may change it.
func (s *service) call(t testing.TB, method, path, body string, options ...func(*http.Request)) answer {
	t.Helper()
	return s.callWith(t.Context(), method, path, body, options...)
}

func (s *service) callWith(ctx context.Context, method, path, body string, options ...func(*http.Request)) answer {
	request := httptest.NewRequestWithContext(ctx, method, "/api/v1"+path, strings.NewReader(body))
	if body != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	request.Header.Set("Authorization", "Bearer "+s.token)
	for _, option := range options {
		option(request)
	}
	recorder := httptest.NewRecorder()
	s.api.ServeHTTP(recorder, request)
	return answer{recorder.Code, recorder.Header(), recorder.Body.String()}
}

func header(name string, values ...string) func(*http.Request) {
	return func(r *http.Request) { r.Header[http.CanonicalHeaderKey(name)] = values }
}

func bearer(token string) func(*http.Request) { return header("Authorization", "Bearer "+token) }

// exact is a payload that any decoding and encoding would change.
const exact = "{ \"id\" : 9007199254740993, \"rate\":0.10,\n\"far\":1e400, \"html\":\"<&>\\u0041\", \"id2\":-0 }"

const asked = `{"purpose":"Pay the invoices of March","payload":` + exact + `,"action":"payouts.create","target":"acct_1032","environment":"production","count":3,"reversible":false,"ttlSeconds":600}`

// request is the request that an answer names.
func (s *service) request(t testing.TB, a answer) *approval.Request {
	t.Helper()
	r, err := s.Service.Status(t.Context(), s.Agent, approval.ID(a.field("id")))
	if err != nil {
		t.Fatalf("%v: %s", err, a.body)
	}
	return r
}

// One request from asking to its outcome, and what each answer says.
func TestAPI(t *testing.T) {
	t.Parallel()
	s := newService(t)
	got := s.call(t, http.MethodPost, "/requests", asked)
	r := s.request(t, got)
	url := "https://approvals.example.com/review?elicitationId=" + string(r.ID)
	same(t, got, http.StatusCreated, `{"id":"%s","status":"pending","reviewUrl":"%s","expiresAt":"2026-01-02T03:14:05.678Z","waitingFor":"1 of finance"}`, r.ID, url)
	if r.Action != "payouts.create" || r.Target != "acct_1032" || r.Environment != "production" || *r.StatedCount != 3 || *r.Reversible || string(r.Payload) != exact || r.Executor != approval.ByAgent {
		t.Errorf("the request isn't what was asked: %+v", r)
	}
	same(t, s.call(t, http.MethodGet, "/requests/"+string(r.ID), ""), http.StatusOK,
		`{"id":"%s","status":"pending","reviewUrl":"%s","expiresAt":"2026-01-02T03:14:05.678Z","waitingFor":"1 of finance"}`, r.ID, url)
	if got := s.call(t, http.MethodPost, "/requests/"+string(r.ID)+"/apply", ""); got.status != http.StatusConflict || got.code() != "pending" {
		t.Errorf("apply before the decision: %d %s", got.status, got.body)
	}

	s.Decide(t, approvaltest.Alice, r, approval.Approve)
	same(t, s.call(t, http.MethodGet, "/requests/"+string(r.ID)+"?wait=55", ""), http.StatusOK,
		`{"id":"%s","status":"approved","reviewUrl":"%s","expiresAt":"2026-01-02T03:19:05.678Z"}`, r.ID, url)
	same(t, s.call(t, http.MethodPost, "/requests/"+string(r.ID)+"/apply", "{}"), http.StatusOK, `{"status":"applied","payload":%s}`, exact)
	if got := s.call(t, http.MethodPost, "/requests/"+string(r.ID)+"/apply", ""); got.status != http.StatusConflict || got.code() != "applied" || strings.Contains(got.body, "9007199254740993") {
		t.Errorf("the second apply: %d %s", got.status, got.body)
	}
	same(t, s.call(t, http.MethodPost, "/requests/"+string(r.ID)+"/outcome", `{"outcome":"failed","detail":"exit code 3"}`), http.StatusOK,
		`{"id":"%s","status":"applied","reviewUrl":"%s","outcome":"failed","detail":"exit code 3"}`, r.ID, url)
	if got := s.call(t, http.MethodPost, "/requests/"+string(r.ID)+"/outcome", `{"outcome":"succeeded"}`); got.status != http.StatusConflict || got.code() != "finished" {
		t.Errorf("the second outcome: %d %s", got.status, got.body)
	}
}

// same compares an answer as it is written.
func same(t *testing.T, got answer, status int, format string, values ...any) {
	t.Helper()
	if got.status != status {
		t.Errorf("status %d, want %d", got.status, status)
	}
	if diff := cmp.Diff(fmt.Sprintf(format, values...)+"\n", got.body); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// What each error of the service is to a caller, as a service that is really in
// that state gives it.
func TestAPIErrors(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		policy  string // added to the one of the fixture
		make    func(*testing.T, *service) answer
		status  int
		code    string
		says    string
		retries bool // says when
	}{
		"input":   {"", asks(`{"purpose":" ","payload":{}}`), 400, "input", "purpose: is missing", false},
		"payload": {"", asks(`{"purpose":"p","payload":{"a":"` + strings.Repeat("x", 300<<10) + `"}}`), 400, "input", "at most 262144", false},
		"limit": {"limits: {pending: 1, per_minute: 10, cooldown: 0s}", func(t *testing.T, s *service) answer {
			s.call(t, http.MethodPost, "/requests", `{"purpose":"p","payload":{"n":1}}`)
			return s.call(t, http.MethodPost, "/requests", `{"purpose":"p","payload":{"n":2}}`)
		}, 429, "limit", "waiting", false},
		"too fast": {"limits: {pending: 10, per_minute: 1, cooldown: 0s}", func(t *testing.T, s *service) answer {
			s.call(t, http.MethodPost, "/requests", `{"purpose":"p","payload":{"n":1}}`)
			return s.call(t, http.MethodPost, "/requests", `{"purpose":"p","payload":{"n":2}}`)
		}, 429, "limit", "", true},
		"denied": {"block: [{id: never, actions: ['payouts.*'], why: Agents pay nobody.}]", asks(`{"purpose":"p","action":"payouts.create","payload":{}}`),
			403, "denied", `"reason":"Agents pay nobody."`, false},
		"unknown":      {"", applies("req_0123456789abcdef0123456789abcdef"), 404, "not_found", "no such request of yours", false},
		"malformed id": {"", applies("req_0%20"), 404, "not_found", "no such request of yours", false},
		"no token":     {"", sends(header("Authorization")), 401, "token", "bearer token is needed", false},
		"other scheme": {"", sends(header("Authorization", "Basic YTpi")), 401, "token", "bearer token is needed", false},
		"wrong token":  {"", sends(header("Authorization", "Bearer countersign_wrong")), 401, "token", "unknown or revoked", false},
		"pending":      {"", applying(func(*testing.T, *service, *approval.Request) {}), 409, "pending", "Nobody has decided", false},
		"rejected": {"", applying(func(t *testing.T, s *service, r *approval.Request) {
			b := approvaltest.Ballot(r, approval.Reject)
			b.Reason = "Not before the audit"
			if _, err := s.Service.Decide(t.Context(), approvaltest.Alice, b); err != nil {
				t.Fatal(err)
			}
		}), 409, "rejected", `"reason":"Not before the audit"`, false},
		"expired": {"", applying(func(_ *testing.T, s *service, _ *approval.Request) { s.Clock.Advance(time.Hour) }), 409, "expired", "Nobody refused", false},
		"superseded": {"", applying(func(t *testing.T, s *service, r *approval.Request) {
			s.Decide(t, approvaltest.Alice, r, approval.Approve)
			s.People.Take("finance", approvaltest.Alice)
		}), 409, "superseded", `Ask again.","reason":"`, false},
		"unverified": {"", applying(func(t *testing.T, s *service, r *approval.Request) {
			s.Decide(t, approvaltest.Alice, r, approval.Approve)
			s.People.Fail(errors.New("no network"))
		}), 503, "unverified", "Nothing was used up", true},
		"unavailable": {"", applying(func(t *testing.T, s *service, r *approval.Request) {
			s.Decide(t, approvaltest.Alice, r, approval.Approve)
			if err := s.Store.Close(); err != nil {
				t.Fatal(err)
			}
		}), 503, "unavailable", "Nothing was changed", true},
		"not applied": {"", func(t *testing.T, s *service) answer {
			r := s.Decide(t, approvaltest.Alice, s.Propose(t), approval.Approve)
			return s.call(t, http.MethodPost, "/requests/"+string(r.ID)+"/outcome", `{"outcome":"succeeded"}`)
		}, 409, "not_applied", "wasn't used", false},
		"the server runs it": {"", func(t *testing.T, s *service) answer {
			r := s.Propose(t, func(p *approval.Proposal) { p.Executor, p.ToolPin = approval.ByGateway, strings.Repeat("a", 64) })
			s.Decide(t, approvaltest.Alice, r, approval.Approve)
			return s.call(t, http.MethodPost, "/requests/"+string(r.ID)+"/apply", "")
		}, 409, "server_runs", "hands nobody its payload", false},
		"outcome": {"", func(t *testing.T, s *service) answer {
			return s.call(t, http.MethodPost, "/requests/"+string(s.Propose(t).ID)+"/outcome", `{"outcome":"unknown"}`)
		}, 400, "input", "succeeded and failed are accepted", false},
		"detail": {"", func(t *testing.T, s *service) answer {
			return s.call(t, http.MethodPost, "/requests/"+string(s.Propose(t).ID)+"/outcome", `{"outcome":"failed","detail":"`+strings.Repeat("é", 1001)+`"}`)
		}, 400, "input", "detail: has 1001 characters", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newService(t, func(o *approval.Options) {
				if test.policy != "" {
					o.Policy = approvaltest.ParsePolicy(t, "version: 1\nmode: cautious\nroles: {finance: {users: [U0ALICE, U0BOB]}}\napproval: {requires: [{role: finance}]}\n"+test.policy)
				}
			})
			got := test.make(t, s)
			if got.status != test.status || got.code() != test.code || !strings.Contains(got.body, test.says) {
				t.Errorf("got %d %s; want %d %s with %q", got.status, got.body, test.status, test.code, test.says)
			}
			checkRefusal(t, got)
			if retries := got.header.Get("Retry-After") != ""; retries != test.retries {
				t.Errorf("Retry-After: %q", got.header.Get("Retry-After"))
			}
			if test.status == http.StatusTooManyRequests && test.retries && !strings.Contains(got.body, `"retryAt":"2026-01-02T03:`) {
				t.Errorf("it doesn't say when: %s", got.body)
			}
		})
	}
}

func asks(body string) func(*testing.T, *service) answer {
	return func(t *testing.T, s *service) answer { return s.call(t, http.MethodPost, "/requests", body) }
}

func sends(option func(*http.Request)) func(*testing.T, *service) answer {
	return func(t *testing.T, s *service) answer {
		return s.call(t, http.MethodGet, "/requests/req_0123456789abcdef0123456789abcdef", "", option)
	}
}

func applies(id string) func(*testing.T, *service) answer {
	return func(t *testing.T, s *service) answer {
		return s.call(t, http.MethodPost, "/requests/"+id+"/apply", "")
	}
}

// applying applies a request after something happened to it.
func applying(happens func(*testing.T, *service, *approval.Request)) func(*testing.T, *service) answer {
	return func(t *testing.T, s *service) answer {
		r := s.Propose(t)
		happens(t, s, r)
		return s.call(t, http.MethodPost, "/requests/"+string(r.ID)+"/apply", "")
	}
}

// checkRefusal checks what every refusal has: the one shape, and no secret.
func checkRefusal(t testing.TB, got answer) {
	t.Helper()
	var refused struct {
		Error *struct{ Code, Message, Reason, Field, RetryAt string }
	}
	decoder := json.NewDecoder(strings.NewReader(got.body))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&refused); err != nil || refused.Error == nil || refused.Error.Code == "" || refused.Error.Message == "" {
		t.Errorf("not the shape of a refusal: %s (%v)", got.body, err)
	}
	if (refused.Error != nil && refused.Error.Code == "input") != (refused.Error != nil && refused.Error.Field != "") {
		t.Errorf("an input's refusal names the field, and no other does: %s", got.body)
	}
	if strings.Contains(got.body, "countersign_") {
		t.Errorf("it shows a token: %s", got.body)
	}
	if got.header.Get("Content-Type") != "application/json" || got.header.Get("Cache-Control") != "no-store" {
		t.Errorf("the headers: %v", got.header)
	}
	if (got.status == http.StatusUnauthorized) != (got.header.Get("WWW-Authenticate") != "") {
		t.Errorf("WWW-Authenticate on a %d: %q", got.status, got.header.Get("WWW-Authenticate"))
	}
}

// What isn't a call of the API is refused before anything is stored.
func TestAPIRefusesOtherCalls(t *testing.T) {
	t.Parallel()
	s := newService(t)
	id := string(s.Propose(t).ID)
	one := "/requests/" + id
	for name, test := range map[string]struct {
		method, path, body string
		option             func(*http.Request)
		status             int
		code               string
	}{
		"no such path":          {"GET", "/", "", nil, 404, "no_such_call"},
		"a longer path":         {"GET", one + "/", "", nil, 404, "no_such_call"},
		"an unknown verb":       {"POST", one + "/approve", "", nil, 404, "no_such_call"},
		"deeper":                {"POST", one + "/apply/now", "", nil, 404, "no_such_call"},
		"beside":                {"POST", "/requestsapply", "", nil, 404, "no_such_call"},
		"no list":               {"GET", "/requests", "", nil, 405, "method"},
		"no list either":        {"GET", "/requests/", "", nil, 404, "not_found"},
		"put":                   {"PUT", "/requests", asked, nil, 405, "method"},
		"head":                  {"HEAD", one, "", nil, 405, "method"},
		"delete":                {"DELETE", one, "", nil, 405, "method"},
		"options":               {"OPTIONS", one, "", nil, 405, "method"},
		"post on a request":     {"POST", one, "{}", nil, 405, "method"},
		"get applies nothing":   {"GET", one + "/apply", "", nil, 405, "method"},
		"get reports nothing":   {"GET", one + "/outcome", "", nil, 405, "method"},
		"a form":                {"POST", "/requests", "purpose=p", header("Content-Type", "application/x-www-form-urlencoded"), 415, "content_type"},
		"plain text":            {"POST", "/requests", asked, header("Content-Type", "text/plain"), 415, "content_type"},
		"no type":               {"POST", "/requests", asked, header("Content-Type"), 415, "content_type"},
		"two types":             {"POST", "/requests", asked, header("Content-Type", "application/json", "text/plain"), 415, "content_type"},
		"two types in one":      {"POST", "/requests", asked, header("Content-Type", "application/json, text/plain"), 415, "content_type"},
		"like JSON":             {"POST", "/requests", asked, header("Content-Type", "application/json-seq"), 415, "content_type"},
		"another charset":       {"POST", "/requests", asked, header("Content-Type", "application/json; charset=utf-16"), 415, "content_type"},
		"another parameter":     {"POST", "/requests", asked, header("Content-Type", "application/json; version=2"), 415, "content_type"},
		"apply of a type":       {"POST", one + "/apply", "", header("Content-Type", "text/plain"), 415, "content_type"},
		"apply with input":      {"POST", one + "/apply", `{"payload":{}}`, nil, 400, "input"},
		"apply with a list":     {"POST", one + "/apply", `[]`, nil, 400, "input"},
		"unknown input":         {"POST", "/requests", `{"purpose":"p","payload":{},"agent":"admin"}`, nil, 400, "input"},
		"input twice":           {"POST", "/requests", `{"purpose":"p","payload":{},"payload":{"a":1}}`, nil, 400, "input"},
		"no input":              {"POST", "/requests", "", nil, 400, "input"},
		"trailing data":         {"POST", "/requests", asked + "{}", nil, 400, "input"},
		"input in the address":  {"POST", "/requests?purpose=p", asked, nil, 400, "input"},
		"a wait when applying":  {"POST", one + "/apply?wait=1", "", nil, 400, "input"},
		"a body of a get":       {"GET", one, "{}", nil, 400, "input"},
		"a long wait":           {"GET", one + "?wait=56", "", nil, 400, "input"},
		"a negative wait":       {"GET", one + "?wait=-1", "", nil, 400, "input"},
		"an empty wait":         {"GET", one + "?wait=", "", nil, 400, "input"},
		"a wait of two kinds":   {"GET", one + "?wait=1&wait=2", "", nil, 400, "input"},
		"a broken query":        {"GET", one + "?wait=1;2", "", nil, 400, "input"},
		"an unknown parameter":  {"GET", one + "?until=done", "", nil, 400, "input"},
		"too large":             {"POST", "/requests", `{"purpose":"` + strings.Repeat("x", 2<<20) + `"}`, nil, 413, "too_large"},
		"from another origin":   {"POST", "/requests", asked, header("Sec-Fetch-Site", "cross-site"), 403, "cross_origin"},
		"from a site beside":    {"POST", one + "/apply", "", header("Sec-Fetch-Site", "same-site"), 403, "cross_origin"},
		"from an older browser": {"POST", one + "/apply", "", header("Origin", "https://evil.example"), 403, "cross_origin"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if test.option == nil {
				test.option = func(*http.Request) {}
			}
			got := s.call(t, test.method, test.path, test.body, test.option)
			if got.status != test.status || got.code() != test.code {
				t.Errorf("got %d %s; want %d %s", got.status, got.body, test.status, test.code)
			}
			checkRefusal(t, got)
			if (got.status == http.StatusMethodNotAllowed) != (got.header.Get("Allow") != "") {
				t.Errorf("Allow: %q", got.header.Get("Allow"))
			}
			r, err := s.Service.Status(t.Context(), s.Agent, approval.ID(id))
			if err != nil || r.Status != approval.Pending || r.Revision != 1 {
				t.Errorf("the request was touched: %+v (%v)", r, err)
			}
		})
	}
}

// What is said of JSON's type in other words is the same.
func TestAPIContentType(t *testing.T) {
	t.Parallel()
	s := newService(t)
	for _, kind := range []string{"application/json", "Application/JSON", "application/json; charset=utf-8", `application/json;charset="UTF-8"`} {
		if got := s.call(t, http.MethodPost, "/requests", asked, header("Content-Type", kind)); got.status != http.StatusCreated {
			t.Errorf("%s: %d %s", kind, got.status, got.body)
		}
	}
}

// Another agent's request looks like one that doesn't exist, also to one of the
// same name that acts for somebody else.
func TestAPIShowsAgentsTheirOwnOnly(t *testing.T) {
	t.Parallel()
	s := newService(t)
	r := s.Decide(t, approvaltest.Alice, s.Propose(t), approval.Approve)
	unknown := "req_" + strings.Repeat("0", 32)
	for name, agent := range map[string]approval.Agent{
		"another name":  {Name: "deployer2"},
		"another owner": {Name: s.Agent.Name, Owner: approvaltest.Bob},
	} {
		token := s.tokenOf(t, agent)
		for _, path := range []string{"", "?wait=55", "/apply", "/outcome"} {
			method, body := http.MethodPost, ""
			switch path {
			case "/outcome":
				body = `{"outcome":"succeeded"}`
			case "", "?wait=55":
				method = http.MethodGet
			}
			foreign := s.call(t, method, "/requests/"+string(r.ID)+path, body, bearer(token))
			missing := s.call(t, method, "/requests/"+unknown+path, body, bearer(token))
			if diff := cmp.Diff(missing, foreign, cmp.AllowUnexported(answer{})); diff != "" || foreign.status != http.StatusNotFound {
				t.Errorf("%s, %s: status %d, or not as if it were unknown:\n%s", name, path, foreign.status, diff)
			}
		}
	}
	if got := s.call(t, http.MethodPost, "/requests/"+string(r.ID)+"/apply", ""); got.status != http.StatusOK {
		t.Errorf("its own agent: %d %s", got.status, got.body)
	}
}

// A revoked token ends an agent's calls at once.
func TestAPIRevokedToken(t *testing.T) {
	t.Parallel()
	s := newService(t)
	token, secret, err := s.Service.CreateToken(t.Context(), approval.Operator{Name: "test"}, "deployer", approval.Approver{})
	if err != nil {
		t.Fatal(err)
	}
	id := string(s.Propose(t).ID)
	if got := s.call(t, http.MethodGet, "/requests/"+id, "", bearer(secret)); got.status != http.StatusOK {
		t.Fatalf("before: %d %s", got.status, got.body)
	}
	if err := s.Service.RevokeToken(t.Context(), approval.Operator{Name: "test"}, token.ID); err != nil {
		t.Fatal(err)
	}
	if got := s.call(t, http.MethodGet, "/requests/"+id, "", bearer(secret)); got.status != http.StatusUnauthorized {
		t.Errorf("after: %d %s", got.status, got.body)
	}
}

// Eight calls at once for one approval: one gets the payload.
func TestAPIAppliesOnce(t *testing.T) {
	t.Parallel()
	s := newService(t)
	for range 20 {
		r := s.Decide(t, approvaltest.Alice, s.Propose(t), approval.Approve)
		var got [8]answer
		var contenders sync.WaitGroup
		start := make(chan struct{})
		for i := range got {
			contenders.Go(func() {
				<-start
				got[i] = s.callWith(t.Context(), http.MethodPost, "/requests/"+string(r.ID)+"/apply", "")
			})
		}
		close(start)
		contenders.Wait()
		payloads := 0
		for _, a := range got {
			switch {
			case a.status == http.StatusOK && strings.Contains(a.body, string(r.Payload)):
				payloads++
			case a.status != http.StatusConflict || a.code() != "applied" || strings.Contains(a.body, string(r.Payload)):
				t.Errorf("a loser got %d %s", a.status, a.body)
			}
		}
		if payloads != 1 {
			t.Fatalf("%d got the payload", payloads)
		}
	}
}

// A wait ends when the decision lands, when the time is over, when the request
// expires, and when the server stops.
func TestAPIWaits(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		happens func(*testing.T, *service, *approval.Request) // ten seconds after the call
		want    string
		after   time.Duration
	}{
		"nothing": {func(*testing.T, *service, *approval.Request) {}, "pending", 55 * time.Second},
		"approved": {func(t *testing.T, s *service, r *approval.Request) {
			s.Decide(t, approvaltest.Bob, r, approval.Approve)
		}, "approved", 10 * time.Second},
		"rejected": {func(t *testing.T, s *service, r *approval.Request) { s.Decide(t, approvaltest.Bob, r, approval.Reject) }, "rejected", 10 * time.Second},
		"expired":  {func(_ *testing.T, _ *service, _ *approval.Request) { time.Sleep(20 * time.Second) }, "expired", 30 * time.Second},
		"stopping": {func(_ *testing.T, s *service, _ *approval.Request) { s.api.Close(); s.Service.Drain() }, "pending", 10 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newService(t, func(o *approval.Options) { o.Now = nil })
				r := s.Propose(t)
				if name == "expired" {
					time.Sleep(time.Until(r.ExpiresAt) - 30*time.Second)
				}
				began := time.Now()
				answered := make(chan answer, 1)
				go func() {
					answered <- s.callWith(t.Context(), http.MethodGet, "/requests/"+string(r.ID)+"?wait=55", "")
				}()
				time.Sleep(10 * time.Second)
				test.happens(t, s, r)
				got := <-answered
				if got.status != http.StatusOK || got.field("status") != test.want || time.Since(began) != test.after {
					t.Errorf("after %v: %d %s; want %s after %v", time.Since(began), got.status, got.body, test.want, test.after)
				}
			})
		})
	}
}

// A caller that goes away decides nothing.
func TestAPIWaitCancelled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, func(o *approval.Options) { o.Now = nil })
		r := s.Propose(t)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		s.callWith(ctx, http.MethodGet, "/requests/"+string(r.ID)+"?wait=55", "")
		if after, err := s.Service.Status(t.Context(), s.Agent, r.ID); err != nil || after.Status != approval.Pending || after.Revision != r.Revision {
			t.Errorf("after the caller went: %+v (%v)", after, err)
		}
	})
}

// Whose words a rejection's reason is, is said.
func TestAPIRejectedBy(t *testing.T) {
	t.Parallel()
	s := newService(t)
	r := s.Propose(t)
	ballot := approvaltest.Ballot(r, approval.Reject)
	ballot.Reason = "Not before the <audit>"
	if _, err := s.Service.Decide(t.Context(), approvaltest.Alice, ballot); err != nil {
		t.Fatal(err)
	}
	got := s.call(t, http.MethodGet, "/requests/"+string(r.ID), "")
	if !strings.Contains(got.body, `"reason":"Not before the <audit>"`) || got.field("rejectedBy") != "person" || got.field("expiresAt") != "" {
		t.Errorf("a person's no: %s", got.body)
	}
	r = s.Decide(t, approvaltest.Alice, s.Propose(t), approval.Approve)
	s.People.Take("finance", approvaltest.Alice)
	s.call(t, http.MethodPost, "/requests/"+string(r.ID)+"/apply", "")
	got = s.call(t, http.MethodGet, "/requests/"+string(r.ID), "")
	if got.field("status") != "rejected" || got.field("rejectedBy") != "policy" || got.field("reason") == "" {
		t.Errorf("what doesn't hold any more: %s", got.body)
	}
}

// What policy allows needs nobody, and is approved at once.
func TestAPIAllowed(t *testing.T) {
	t.Parallel()
	s := newService(t, func(o *approval.Options) {
		o.Policy = approvaltest.ParsePolicy(t, "version: 1\nmode: cautious\nroles: {finance: {users: [U0ALICE]}}\napproval: {requires: [{role: finance}]}\nintegrations: {crm: {tools: {get_*: {tier: 1}}}}\n")
	})
	got := s.call(t, http.MethodPost, "/requests", `{"purpose":"p","action":"crm.get_contact","payload":{}}`)
	if got.status != http.StatusCreated || got.field("status") != "approved" {
		t.Fatalf("got %d %s", got.status, got.body)
	}
	if got := s.call(t, http.MethodPost, "/requests/"+got.field("id")+"/apply", ""); got.status != http.StatusOK {
		t.Errorf("got %d %s", got.status, got.body)
	}
}

// A server that stops turns calls away, also those that are still arriving, and
// says that nothing was done.
func TestAPIStopping(t *testing.T) {
	t.Parallel()
	s := newService(t)
	server := httptest.NewServer(s.api)
	t.Cleanup(server.Close)
	body, writer := io.Pipe()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+"/api/v1/requests", body)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+s.token)
	request.Header.Set("Content-Type", "application/json")
	arriving := make(chan answer, 1)
	go func() {
		response, err := server.Client().Do(request)
		if err != nil {
			arriving <- answer{body: err.Error()}
			return
		}
		defer response.Body.Close()
		text, _ := io.ReadAll(response.Body)
		arriving <- answer{response.StatusCode, response.Header, string(text)}
	}()
	if _, err := writer.Write([]byte(asked[:20])); err != nil {
		t.Fatal(err)
	}
	closed := time.Now()
	s.api.Close()
	if got := <-arriving; got.status != http.StatusServiceUnavailable || got.code() != "stopping" || got.header.Get("Retry-After") == "" {
		t.Errorf("what was arriving: %d %s", got.status, got.body)
	}
	if waited := time.Since(closed); waited > 8*time.Second {
		t.Errorf("it waited %v for the rest", waited) // as for a body that is slow
	}
	_ = writer.Close()
	if got := s.call(t, http.MethodPost, "/requests", asked); got.status != http.StatusServiceUnavailable || got.code() != "stopping" {
		t.Errorf("what came later: %d %s", got.status, got.body)
	}
}

// An error that nobody foresaw is in the log, and the caller learns nothing of it.
func TestAPIInternalError(t *testing.T) {
	t.Parallel()
	var randomness breaking
	f := approvaltest.New(t, func(o *approval.Options) { o.Rand = &randomness })
	var log strings.Builder
	api, err := web.NewAPI(f.Service, web.APIOptions{
		ReviewURL: func(approval.ID) string { return "" },
		Logger:    slog.New(slog.NewTextHandler(&log, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	s := &service{Fixture: f, api: api}
	s.token = s.tokenOf(t, f.Agent)
	randomness.broken = true
	got := s.call(t, http.MethodPost, "/requests", asked)
	if got.status != http.StatusInternalServerError || got.code() != "internal" || strings.Contains(got.body, "seventh valve") {
		t.Errorf("the caller is told %d %s", got.status, got.body)
	}
	checkRefusal(t, got)
	if !strings.Contains(log.String(), "seventh valve") || strings.Contains(log.String(), s.token) || strings.Contains(log.String(), "9007199254740993") {
		t.Errorf("the log says\n%s", &log)
	}
}

// breaking is randomness that can break.
type breaking struct{ broken bool }

func (b *breaking) Read(p []byte) (int, error) {
	if b.broken {
		return 0, errors.New("the seventh valve")
	}
	return rand.Read(p)
}

// Behind the guard, the API answers for the server's own names only.
func TestAPIBehindGuard(t *testing.T) {
	t.Parallel()
	s := newService(t)
	guarded := web.Guard(s.api, &url.URL{Scheme: "https", Host: "approvals.example.com"}, slog.New(slog.DiscardHandler))
	for host, want := range map[string]int{"approvals.example.com": http.StatusCreated, "evil.example": http.StatusMisdirectedRequest} {
		request := httptest.NewRequest(http.MethodPost, "/api/v1/requests", strings.NewReader(asked))
		request.Host = host
		request.Header.Set("Authorization", "Bearer "+s.token)
		request.Header.Set("Content-Type", "application/json")
		recorder := httptest.NewRecorder()
		guarded.ServeHTTP(recorder, request)
		if recorder.Code != want {
			t.Errorf("%s: %d", host, recorder.Code)
		}
	}
}

// Any payload that is accepted comes back as it was sent, byte for byte.
func TestAPIKeepsPayloads(t *testing.T) {
	t.Parallel()
	s := newService(t)
	rapid.Check(t, func(rt *rapid.T) {
		payload := "{" + strings.Join(rapid.SliceOfNDistinct(rapid.Custom(member), 0, 5, func(m string) string {
			return m[:strings.Index(m, ":")]
		}).Draw(rt, "members"), ",") + "}"
		got := s.call(t, http.MethodPost, "/requests", `{"payload": `+payload+` ,"purpose":"p","target":"`+rapid.StringMatching(`[a-z0-9]{12}`).Draw(rt, "target")+`"}`)
		if got.status != http.StatusCreated {
			rt.Fatalf("%s: %d %s", payload, got.status, got.body)
		}
		r := s.request(t, got)
		s.Decide(t, approvaltest.Alice, r, approval.Approve)
		got = s.call(t, http.MethodPost, "/requests/"+string(r.ID)+"/apply", "")
		if want := `{"status":"applied","payload":` + payload + "}\n"; got.body != want {
			rt.Fatalf("got %q, want %q", got.body, want)
		}
	})
}

// member is a member of an object, in a spelling that encoding/json wouldn't use.
func member(t *rapid.T) string {
	space := rapid.StringMatching(`[ \t\n\r]{0,2}`)
	name := rapid.StringMatching(`"[a-zé<>&]{1,8}"`).Draw(t, "name")
	value := rapid.OneOf(
		rapid.StringMatching(`-?(0|[1-9][0-9]{0,30})(\.[0-9]{1,20})?([eE][+-]?[0-9]{1,4})?`),
		rapid.StringMatching(`"([a-z<>&é\x{2028}\x{1F600}/]|\\u00[0-7][0-9a-f]|\\/|\\n){0,10}"`),
		rapid.SampledFrom([]string{"true", "false", "null", "[ ]", "{ }", `[1,{"a" : [0.10]}]`}),
	).Draw(t, "value")
	return name + ":" + space.Draw(t, "before") + value + space.Draw(t, "after")
}

// Whatever a body or a query is, reading it ends in a proposal whose payload is a
// part of it, or in an error that names a field.
func FuzzRequest(f *testing.F) {
	f.Add([]byte(asked), "wait=5")
	f.Add([]byte(`{"outcome":"failed","detail":"exit code 3"}`), "wait=55&wait=1")
	f.Add([]byte("{\"payload\":{\"a\":1,\"\\u0061\":2}}"), "until=%ff")
	f.Add([]byte("[]"), "wait=0x5")
	f.Add([]byte(" "), "%")
	f.Fuzz(func(t *testing.T, body []byte, query string) {
		p, err := web.ParseRequest(body)
		checkInputError(t, err)
		if err == nil {
			if strictjson.Check(body) != nil || !bytes.Contains(body, p.Payload) || p.Payload[0] != '{' || strictjson.Check(p.Payload) != nil {
				t.Errorf("the payload %q isn't an object of %q", p.Payload, body)
			}
			if p.TTL != 0 && (p.TTL < approval.MinTTL || p.TTL > approval.MaxTTL) || p.Count != nil && *p.Count < 0 {
				t.Errorf("read %q as %+v", body, p)
			}
			if p.Executor != "" || p.ToolPin != "" || p.Session != "" || p.AskClient {
				t.Errorf("an agent said who runs it: %+v", p)
			}
		}
		_, _, err = web.ParseOutcome(body)
		checkInputError(t, err)
		if values, err := url.ParseQuery(query); err == nil {
			wait, err := web.ParseWait(values)
			checkInputError(t, err)
			if wait < 0 || wait > web.MaxWait {
				t.Errorf("a wait of %v by %q", wait, query)
			}
		}
	})
}

func checkInputError(t *testing.T, err error) {
	t.Helper()
	if err == nil {
		return
	}
	input, ok := errors.AsType[*approval.InputError](err)
	if !ok || input.Field == "" {
		t.Fatalf("the error names no field: %#v", err)
	}
	if at := strings.IndexFunc(err.Error(), func(c rune) bool { return c < ' ' || c > '~' }); at >= 0 || len(err.Error()) > 1000 {
		t.Fatalf("the error can't be shown: %q", err)
	}
}
