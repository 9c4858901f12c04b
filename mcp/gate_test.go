package mcp_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/approval/approvaltest"
	"github.com/countersign/countersign/mcp"
	"github.com/countersign/countersign/policy"
)

// gatePolicy lets views decide on what updates, has people decide on what drops, and
// hides secrets.
func gatePolicy(t testing.TB, approving string) *policy.Policy {
	t.Helper()
	return approvaltest.ParsePolicy(t, fmt.Sprintf(`
version: 1
mode: cautious
roles: {finance: {users: [%s, %s]}}
approval: {requires: [{role: finance}], scopes: [once, 15m]%s}
limits: {pending: 1000000, per_minute: 1000000, cooldown: 0s}
integrations: {crm: {tools: {get_*: {tier: 1}, update: {tier: 3, target: args.account}, drop: {tier: 5}, purge: {tier: 5}}}}
block:
  - {id: no-purge, actions: [crm.purge], why: Customers are never purged by agents.}
  - {id: none-lost, actions: [crm.update], when: "has(args.status) && args.status == 'lost'", why: Deals are never lost.}
redact: {keys: [secret]}
`, approvaltest.Alice.User, approvaltest.Bob.User, approving))
}

// gateHost is an agent's host at a gate.
type gateHost struct {
	t       testing.TB
	f       *approvaltest.Fixture
	session *sdk.ClientSession
	held    chan string // the messages of held calls, as they begin and go on
	stop    func()      // stops the server
}

// gateKinds are the ways to a gate.
var gateKinds = []string{"stdio", "http"}

// newGateFixture is a fixture with the gate's policy.
func newGateFixture(t testing.TB) *approvaltest.Fixture {
	t.Helper()
	return approvaltest.New(t, func(o *approval.Options) { o.Policy = gatePolicy(t, "") })
}

func newGate(t testing.TB, f *approvaltest.Fixture, options mcp.GateOptions) *mcp.Gate {
	t.Helper()
	options.Now = f.Clock.Now
	gate, err := mcp.NewGate(f.Service, options)
	if err != nil {
		t.Fatal(err)
	}
	return gate
}

// atGate connects a host to a gate, with views or without.
func atGate(t testing.TB, f *approvaltest.Fixture, kind, version string, views bool, options mcp.GateOptions) *gateHost {
	t.Helper()
	gate := newGate(t, f, options)
	h := &gateHost{t: t, f: f, held: make(chan string, 100)}
	var transport sdk.Transport
	if kind == "stdio" {
		s := serveStdio(t, nil, f.Agent, mcp.Options{Now: f.Clock.Now, Gate: gate})
		transport, h.stop = s.transport(), s.stop
	} else {
		s := serveHTTP(t, f, newLocal(t, f, 0), mcp.HandlerOptions{Options: mcp.Options{Gate: gate}})
		client := s.transport(t, s.token(t, f.Agent.Name))
		client.DisableStandaloneSSE = true // its end would be the session's before calls are answered
		transport, h.stop = client, s.handler.Close
	}
	h.session = connect(t, transport, version, h.client(views))
	return h
}

func (h *gateHost) client(views bool) *sdk.ClientOptions {
	can := &sdk.ClientCapabilities{}
	if views {
		can.AddExtension("io.modelcontextprotocol/ui", map[string]any{"mimeTypes": []string{mcp.ViewMIME}})
	}
	return &sdk.ClientOptions{
		Capabilities: can,
		ProgressNotificationHandler: func(_ context.Context, n *sdk.ProgressNotificationClientRequest) {
			h.held <- n.Params.Message
		},
	}
}

// heldResult is what became of a held call.
type heldResult struct {
	result *sdk.CallToolResult
	err    error
}

// ask calls request_approval and returns once the call is held.
func (h *gateHost) ask(ctx context.Context, arguments string) <-chan heldResult {
	h.t.Helper()
	done := h.send(ctx, arguments)
	receive(h.t, h.held, "a held call")
	return done
}

// send calls request_approval.
func (h *gateHost) send(ctx context.Context, arguments string) <-chan heldResult {
	done := make(chan heldResult, 1)
	go func() {
		params := &sdk.CallToolParams{Name: "request_approval", Arguments: json.RawMessage(arguments)}
		params.SetProgressToken(arguments)
		result, err := h.session.CallTool(ctx, params)
		done <- heldResult{result, err}
	}()
	return done
}

// told is what a held call was told; it must be no error.
func (h *gateHost) told(done <-chan heldResult) (decision gateDecision, rule string) {
	h.t.Helper()
	got := receive(h.t, done, "the end of the call")
	if got.err != nil || got.result.IsError {
		h.t.Fatalf("the call ended with %+v, %v", got.result, got.err)
	}
	text := textOf(h.t, got.result, 0)
	if err := json.Unmarshal([]byte(text), &decision); err != nil {
		h.t.Fatal(err)
	}
	decision.text = text
	return decision, textOf(h.t, got.result, 1)
}

type gateDecision struct {
	text            string
	RequestID       approval.ID     `json:"requestId"`
	RequestVersion  int             `json:"requestVersion"`
	Outcome         string          `json:"outcome"`
	Scope           string          `json:"scope"`
	EditedArgs      json.RawMessage `json:"editedArgs"`
	DecidedAt       string          `json:"decidedAt"`
	ServerReceiptID string          `json:"serverReceiptId"`
}

// viewed is what a view is shown, as far as tests look at it.
type viewed struct {
	text           string
	RequestID      approval.ID `json:"requestId"`
	RequestVersion int         `json:"requestVersion"`
	Digest         string      `json:"digest"`
	Revision       int64       `json:"revision"`
	Status         string      `json:"status"`
	Outcome        string      `json:"outcome"`
	DecidesHere    bool        `json:"decidesHere"`
	Editable       *string     `json:"editable"`
	WaitsFor       string      `json:"waitsFor"`
	Scopes         []struct{ Scope, Words string }
	CanRevoke      bool `json:"canRevoke"`
	Receipt        *struct {
		ServerReceiptID string `json:"serverReceiptId"`
		Surface         string
		Person          bool
	}
}

// see is approval_request; nil if there is no request.
func (h *gateHost) see(arguments string) *viewed {
	h.t.Helper()
	text := succeed(h.t, h.session, "approval_request", arguments)
	var said struct{ Request *json.RawMessage }
	if err := json.Unmarshal([]byte(text), &said); err != nil {
		h.t.Fatal(err)
	}
	if said.Request == nil {
		return nil
	}
	v := &viewed{text: string(*said.Request)}
	if err := json.Unmarshal(*said.Request, v); err != nil {
		h.t.Fatal(err)
	}
	return v
}

// find waits for a call to be held, as a view does that comes before it.
func (h *gateHost) find() *viewed {
	h.t.Helper()
	for {
		if v := h.see(`{}`); v != nil {
			return v
		}
	}
}

// about are the arguments of a tool about what is seen, and more.
func (v *viewed) about(more string) string {
	return v.at(v.RequestVersion, more)
}

func (v *viewed) at(version int, more string) string {
	if more != "" {
		more = "," + more
	}
	return fmt.Sprintf(`{"requestId":%q,"requestVersion":%d,"digest":%q%s}`, v.RequestID, version, v.Digest, more)
}

// refuses calls a tool of the view, which must be refused with the code.
func (h *gateHost) refuses(tool, arguments, code string) {
	h.t.Helper()
	result := call(h.t, h.session, tool, arguments)
	said, _ := result.StructuredContent.(map[string]any)
	if !result.IsError || said["error"] != code || said["message"] != textOf(h.t, result, 0) || said["message"] == "" {
		h.t.Errorf("%s %s: got %+v, %s; want %s", tool, arguments, said, textOf(h.t, result, 0), code)
	}
}

// everyGate runs a test at each kind of gate in each era, for a host with views.
func everyGate(t *testing.T, run func(t *testing.T, h *gateHost)) {
	for _, kind := range gateKinds {
		for _, version := range []string{legacy, modern} {
			t.Run(kind+"/"+version, func(t *testing.T) {
				t.Parallel()
				run(t, atGate(t, newGateFixture(t), kind, version, true, mcp.GateOptions{ReviewURL: reviewURL, ReviewDecides: true}))
			})
		}
	}
}

const updateCall = `{"action":"crm.update","target":"deals","reversible":true,"arguments":{"account":"a1","ids":[101,102],"status":"won"}}`

func dropCall(n int) string {
	return fmt.Sprintf(`{"action":"crm.drop","target":"deals","reversible":false,"purpose":"Clean up","arguments":{"n":%d}}`, n)
}

func TestGateApprove(t *testing.T) {
	t.Parallel()
	everyGate(t, func(t *testing.T, h *gateHost) {
		done := h.ask(t.Context(), updateCall)
		v := h.see(`{}`)
		if v == nil || !v.DecidesHere || v.Status != "pending" || v.Outcome != "" || v.Editable == nil || *v.Editable != `{"account":"a1","ids":[101,102],"status":"won"}` {
			t.Fatalf("the view sees %+v", v)
		}
		text := succeed(t, h.session, "approval_decide", v.about(`"outcome":"granted"`))
		decision, rule := h.told(done)
		if !strings.HasPrefix(text, `{"decision":`+decision.text+`,"request":{`) {
			t.Errorf("the view is told %s, and the agent %s", text, decision.text)
		}
		want := fmt.Sprintf(`{"requestId":%q,"requestVersion":1,"outcome":"granted","scope":"once","decidedAt":"2026-01-02T03:04:05.678Z","serverReceiptId":%q}`, v.RequestID, decision.ServerReceiptID)
		if diff := cmp.Diff(want, decision.text); diff != "" {
			t.Errorf("the decision (-want +got):\n%s", diff)
		}
		if !strings.Contains(rule, "apply") || !strings.Contains(rule, "once") {
			t.Errorf("the rule is %s", rule)
		}
		r, err := h.f.Service.Status(t.Context(), h.f.Agent, v.RequestID)
		if err != nil {
			t.Fatal(err)
		}
		last := r.Decisions[len(r.Decisions)-1]
		if last.Surface != approval.App || !last.Approver.IsZero() || last.Receipt != decision.ServerReceiptID || !r.HostView || r.Purpose != "crm.update" {
			t.Errorf("recorded is %+v of %+v", last, r)
		}
		now := h.see(fmt.Sprintf(`{"requestId":%q}`, v.RequestID))
		if now.Outcome != "granted" || !now.CanRevoke || now.DecidesHere || now.Editable != nil || now.Receipt.ServerReceiptID != decision.ServerReceiptID || now.Receipt.Person {
			t.Errorf("the view sees %s", now.text)
		}
		if h.see(`{}`) != nil {
			t.Error("the call is still held")
		}
		byRequest := fmt.Sprintf(`{"requestId":%q}`, v.RequestID)
		if got := succeed(t, h.session, "apply", byRequest); got != `{"status":"applied","payload":{"account":"a1","ids":[101,102],"status":"won"}}` {
			t.Errorf("apply: %s", got)
		}
		if got := refused(t, h.session, "apply", byRequest); !strings.Contains(got, "works once") {
			t.Errorf("apply again: %s", got)
		}
		h.refuses("approval_decide", v.about(`"outcome":"denied"`), "decided")
		h.refuses("approval_revoke", v.about(""), "decided")
	})
}

func TestGateReject(t *testing.T) {
	t.Parallel()
	everyGate(t, func(t *testing.T, h *gateHost) {
		done := h.ask(t.Context(), updateCall)
		v := h.see(`{"asked":` + updateCall + `}`)
		succeed(t, h.session, "approval_decide", v.about(`"outcome":"denied","reason":"not \"now\""`))
		decision, rule := h.told(done)
		if decision.Outcome != "denied" || decision.Scope != "" || decision.ServerReceiptID == "" || decision.EditedArgs != nil {
			t.Errorf("the decision is %s", decision.text)
		}
		if !strings.Contains(rule, `"not \"now\""`) || !strings.Contains(rule, "Don't retry") || strings.Contains(rule, "A person said no") {
			t.Errorf("the rule is %s", rule)
		}
		if seen := h.see(fmt.Sprintf(`{"requestId":%q}`, v.RequestID)); seen.Outcome != "denied" || seen.CanRevoke || !strings.Contains(seen.text, `not \"now\"`) {
			t.Errorf("the view sees %s", seen.text)
		}
		refused(t, h.session, "apply", fmt.Sprintf(`{"requestId":%q}`, v.RequestID))
		h.refuses("approval_decide", v.about(`"outcome":"granted"`), "decided")
	})
}

func TestGateEdit(t *testing.T) {
	t.Parallel()
	everyGate(t, func(t *testing.T, h *gateHost) {
		done := h.ask(t.Context(), updateCall)
		v := h.see(`{}`)
		const edited = `{ "account":"a1", "ids":[9007199254740993], "rate":0.10 }`
		quoted, err := json.Marshal(edited)
		if err != nil {
			t.Fatal(err)
		}
		h.refuses("approval_decide", v.at(1, `"outcome":"granted","editedArgs":`+string(quoted)), "stale")
		h.refuses("approval_decide", v.at(3, `"outcome":"granted","editedArgs":`+string(quoted)), "stale")
		h.refuses("approval_decide", v.at(2, `"outcome":"granted"`), "stale")
		h.refuses("approval_decide", v.at(2, `"outcome":"granted","editedArgs":"{\"a\":1,\"a\":2}"`), "invalid")
		h.refuses("approval_decide", v.at(2, `"outcome":"granted","editedArgs":"[]"`), "invalid")
		h.refuses("approval_decide", v.at(2, `"outcome":"granted","editedArgs":""`), "invalid")
		h.refuses("approval_decide", v.at(2, `"outcome":"granted","editedArgs":{}`), "invalid")
		h.refuses("approval_decide", v.at(2, `"outcome":"denied","editedArgs":`+string(quoted)), "invalid")
		checkUntouched(t, h.f, v.RequestID)
		succeed(t, h.session, "approval_decide", v.at(2, `"outcome":"granted","editedArgs":`+string(quoted)))
		decision, rule := h.told(done)
		if decision.RequestVersion != 2 || !strings.Contains(decision.text, `"scope":"once","editedArgs":`+edited+`,"decidedAt"`) {
			t.Errorf("the decision is %s", decision.text)
		}
		if !strings.Contains(rule, "editedArgs") {
			t.Errorf("the rule is %s", rule)
		}
		if got := succeed(t, h.session, "apply", fmt.Sprintf(`{"requestId":%q}`, v.RequestID)); got != `{"status":"applied","payload":`+edited+`}` {
			t.Errorf("apply: %s", got)
		}
	})
}

// Whatever is wrong with an answer changes nothing, and the call goes on waiting.
func TestGateRefusals(t *testing.T) {
	t.Parallel()
	everyGate(t, func(t *testing.T, h *gateHost) {
		done := h.ask(t.Context(), updateCall)
		v := h.see(`{}`)
		other := *v
		other.Digest = strings.Repeat("0", 64)
		h.refuses("approval_decide", other.about(`"outcome":"granted"`), "stale")
		h.refuses("approval_decide", other.about(`"outcome":"denied"`), "stale")
		h.refuses("approval_revoke", other.about(""), "stale")
		other.Digest = "x"
		h.refuses("approval_decide", other.about(`"outcome":"granted"`), "invalid")
		h.refuses("approval_revoke", v.about(""), "invalid")
		h.refuses("approval_decide", v.at(7, `"outcome":"denied"`), "stale")
		for _, more := range []string{"", `"outcome":"maybe"`, `"outcome":true`, `"outcome":"granted","scope":"forever"`, `"outcome":"granted","scope":"1h"`,
			`"outcome":"granted","more":1`, `"outcome":"granted","reason":7`, `"outcome":"granted","reason":"` + strings.Repeat("x", 1001) + `"`} {
			h.refuses("approval_decide", v.about(more), "invalid")
		}
		for _, unknown := range []approval.ID{"", "x", "req_00000000000000000000000000000000"} {
			other := *v
			other.RequestID = unknown
			h.refuses("approval_decide", other.about(`"outcome":"granted"`), "not_found")
			h.refuses("approval_revoke", other.about(""), "not_found")
			if unknown != "" {
				h.refuses("approval_request", fmt.Sprintf(`{"requestId":%q}`, unknown), "not_found")
			}
		}
		h.refuses("approval_request", `{"requestId":1}`, "invalid")
		h.refuses("approval_request", `{"asked":"x"}`, "invalid")
		h.refuses("approval_request", `{"knownRevision":-1}`, "invalid")
		checkUntouched(t, h.f, v.RequestID)
		succeed(t, h.session, "approval_decide", v.about(`"outcome":"granted","scope":"15m"`))
		if decision, rule := h.told(done); decision.Scope != "15m" || !strings.Contains(rule, "15 minutes") {
			t.Errorf("the decision is %s: %s", decision.text, rule)
		}
		// What it covers is granted at once, to what a view shows.
		again, _ := h.told(h.send(t.Context(), strings.Replace(updateCall, "won", "open", 1)))
		if again.Outcome != "granted" || again.RequestID == v.RequestID || again.Scope != "once" || again.ServerReceiptID == "" {
			t.Errorf("the next is %s", again.text)
		}
	})
}

func TestGateChecksItsInput(t *testing.T) {
	t.Parallel()
	h := atGate(t, newGateFixture(t), "stdio", legacy, true, mcp.GateOptions{})
	for arguments, want := range map[string]string{
		`{}`:                            "action: is missing",
		`{"action":"a"}`:                "arguments: is missing",
		`{"action":"a","arguments":{}}`: "target: is missing",
		`{"action":"a","arguments":{},"target":"t"}`:                                     "reversible: is missing",
		`{"action":" ","arguments":{},"target":"t","reversible":true}`:                   "action: is empty",
		`{"action":"a","arguments":{},"target":" ","reversible":true}`:                   "target: is empty",
		`{"action":"a","arguments":"{}","target":"t","reversible":true}`:                 "arguments: is a string",
		`{"action":"a","arguments":{"a":1,"a":2},"target":"t","reversible":true}`:        "arguments: ",
		`{"action":"a","arguments":{},"target":"t","reversible":"yes"}`:                  "reversible: ",
		`{"action":"a","arguments":{},"target":"t","reversible":true,"count":-1}`:        "count: ",
		`{"action":"a","arguments":{},"target":"t","reversible":true,"ttlSeconds":60}`:   "ttlSeconds: is not an input",
		`{"action":"a","arguments":{},"target":"t","reversible":true,"elicitationId":1}`: "elicitationId: is not an input",
	} {
		if got := refused(t, h.session, "request_approval", arguments); !strings.HasPrefix(got, want) {
			t.Errorf("%s: got %s, want %s", arguments, got, want)
		}
	}
	for arguments, want := range map[string]string{`{}`: "requestId: is missing", `{"requestId":"x"}`: "no such request"} {
		if got := refused(t, h.session, "apply", arguments); !strings.Contains(got, want) {
			t.Errorf("apply %s: %s", arguments, got)
		}
	}
}

// What policy keeps for people isn't the view's to decide, and whoever decides
// releases the call.
func TestGatePeopleDecide(t *testing.T) {
	t.Parallel()
	everyGate(t, func(t *testing.T, h *gateHost) {
		done := h.ask(t.Context(), dropCall(1))
		v := h.see(`{}`)
		if v.DecidesHere || v.Editable != nil || v.WaitsFor != "Waiting for 1 of finance in Slack or on the review page" || !strings.Contains(v.text, `"reviewUrl":"`+reviewBase) {
			t.Errorf("the view sees %s", v.text)
		}
		for _, more := range []string{`"outcome":"granted"`, `"outcome":"denied"`} {
			h.refuses("approval_decide", v.about(more), "needs_people")
		}
		h.refuses("approval_decide", v.at(2, `"outcome":"granted","editedArgs":"{}"`), "needs_people")
		h.refuses("approval_revoke", v.about(""), "invalid")
		checkUntouched(t, h.f, v.RequestID)

		changed := make(chan *sdk.CallToolResult, 1)
		go func() {
			result, _ := h.session.CallTool(t.Context(), &sdk.CallToolParams{Name: "approval_request",
				Arguments: json.RawMessage(fmt.Sprintf(`{"requestId":%q,"knownRevision":%d}`, v.RequestID, v.Revision))})
			changed <- result
		}()
		decide(t, h.f, v.RequestID, approval.Approve, "")
		decision, _ := h.told(done)
		if decision.Outcome != "granted" || decision.ServerReceiptID == "" {
			t.Errorf("the decision is %s", decision.text)
		}
		if got := textOf(t, receive(t, changed, "the change"), 0); !strings.Contains(got, `"status":"approved"`) || !strings.Contains(got, `"surface":"slack","person":true`) {
			t.Errorf("the view is told %s", got)
		}
		// Taking back works for whoever asked, whatever the tier.
		text := succeed(t, h.session, "approval_revoke", v.about(`"reason":"a mistake"`))
		if !strings.Contains(text, `"outcome":"revoked"`) || !strings.Contains(text, `"serverReceiptId":"rcpt_`) || strings.Contains(text, decision.ServerReceiptID) {
			t.Errorf("revoked with %s", text)
		}
		if got := refused(t, h.session, "apply", fmt.Sprintf(`{"requestId":%q}`, v.RequestID)); !strings.Contains(got, "taken back") || !strings.Contains(got, "a mistake") {
			t.Errorf("apply: %s", got)
		}
		h.refuses("approval_revoke", v.about(""), "decided")
	})
}

func TestGateRejectedByAPerson(t *testing.T) {
	t.Parallel()
	everyGate(t, func(t *testing.T, h *gateHost) {
		done := h.ask(t.Context(), updateCall)
		v := h.see(`{}`)
		decide(t, h.f, v.RequestID, approval.Reject, "too many")
		decision, rule := h.told(done)
		if decision.Outcome != "denied" || !strings.Contains(rule, `A person said no. Their reason, in their words: "too many".`) {
			t.Errorf("the decision is %s: %s", decision.text, rule)
		}
	})
}

// A person's edit is what runs, byte for byte.
func TestGateEditedByAPerson(t *testing.T) {
	t.Parallel()
	for _, kind := range gateKinds {
		for _, version := range []string{legacy, modern} {
			t.Run(kind+"/"+version, func(t *testing.T) {
				t.Parallel()
				f := newGateFixture(t)
				gate := newGate(t, f, mcp.GateOptions{WithoutView: mcp.WaitWithoutView})
				var client raw
				if kind == "stdio" {
					client = newRawStdio(t, serveStdio(t, nil, f.Agent, mcp.Options{Gate: gate}), version)
				} else {
					s := serveHTTP(t, f, newLocal(t, f, 0), mcp.HandlerOptions{Options: mcp.Options{Gate: gate}})
					client = newRawHTTP(t, s, s.token(t, f.Agent.Name), version)
				}
				viewer := &gateHost{t: t, f: f}
				viewer.session = connect(t, serveStdio(t, nil, f.Agent, mcp.Options{Gate: gate}).transport(), modern, viewer.client(true))
				ended := make(chan rawResult, 1)
				go func() {
					ended <- client.call("request_approval", `{"action":"crm.update","target":"t","reversible":true,"purpose":"p","arguments":`+exactPayload+`}`)
				}()
				seen := viewer.find()
				r, err := f.Service.Status(t.Context(), f.Agent, seen.RequestID)
				if err != nil {
					t.Fatal(err)
				}
				if string(r.Payload) != exactPayload {
					t.Errorf("stored is %q", r.Payload)
				}
				edited := strings.Replace(exactPayload, "0.10", "0.100", 1)
				if _, err := f.Service.Edit(t.Context(), approvaltest.Bob, r.ID, 1, []byte(edited), approval.Slack); err != nil {
					t.Fatal(err)
				}
				decide(t, f, r.ID, approval.Approve, "")
				result := receive(t, ended, "the call")
				if got := result.text(t, 0); !strings.Contains(got, `"requestVersion":2,"outcome":"granted","scope":"once","editedArgs":`+edited+`,"decidedAt":"`) {
					t.Errorf("got %s", got)
				}
				checkSameValue(t, result.structured(t), result.text(t, 0))
				checkKeys(t, version, result)
				applied := client.call("apply", fmt.Sprintf(`{"requestId":%q}`, r.ID))
				if got, want := applied.text(t, 0), `{"status":"applied","payload":`+edited+`}`; got != want {
					t.Errorf("apply: %s", got)
				}
			})
		}
	}
}

func TestGatePolicyDecides(t *testing.T) {
	t.Parallel()
	everyGate(t, func(t *testing.T, h *gateHost) {
		allowed, rule := h.told(h.send(t.Context(), `{"action":"crm.get_deal","target":"deals","reversible":true,"arguments":{}}`))
		if allowed.Outcome != "granted" || allowed.ServerReceiptID == "" || !strings.Contains(rule, "without a person") {
			t.Errorf("allowed is %s: %s", allowed.text, rule)
		}
		blocked, rule := h.told(h.send(t.Context(), `{"action":"crm.purge","target":"deals","reversible":false,"arguments":{}}`))
		if blocked.Outcome != "denied" || blocked.ServerReceiptID == "" || !strings.Contains(rule, "Customers are never purged by agents.") {
			t.Errorf("denied is %s: %s", blocked.text, rule)
		}
	})
}

func TestGateExpires(t *testing.T) {
	t.Parallel()
	everyGate(t, func(t *testing.T, h *gateHost) {
		done := h.ask(t.Context(), updateCall)
		v := h.see(`{}`)
		h.f.Clock.Advance(mcp.DefaultGateTimeout)
		h.refuses("approval_decide", v.about(`"outcome":"granted"`), "expired")
		decision, rule := h.told(done)
		want := fmt.Sprintf(`{"requestId":%q,"requestVersion":1,"outcome":"expired","decidedAt":"2026-01-02T03:09:05.678Z"}`, v.RequestID)
		if decision.text != want || !strings.Contains(rule, "Silence is not consent") {
			t.Errorf("got %s: %s", decision.text, rule)
		}
		h.refuses("approval_revoke", v.about(""), "expired")
	})
}

// A view finds the request of its own call among several.
func TestGateTellsHeldCallsApart(t *testing.T) {
	t.Parallel()
	everyGate(t, func(t *testing.T, h *gateHost) {
		if h.see(`{}`) != nil {
			t.Error("there is a request before any")
		}
		first, second := h.ask(t.Context(), dropCall(1)), h.ask(t.Context(), dropCall(2))
		if h.see(`{}`) != nil || h.see(`{"asked":`+dropCall(3)+`}`) != nil {
			t.Error("one of two is guessed")
		}
		one, two := h.see(`{"asked":`+dropCall(1)+`}`), h.see(`{"asked":`+strings.Replace(dropCall(2), ":2}", ":2.0}", 1)+`}`)
		if one == nil || two == nil || !strings.Contains(one.text, `"exact":"{\"n\":1}"`) || !strings.Contains(two.text, `"exact":"{\"n\":2}"`) {
			t.Fatalf("found %+v and %+v", one, two)
		}
		decide(t, h.f, one.RequestID, approval.Reject, "")
		h.told(first)
		if left := h.see(`{}`); left == nil || left.RequestID != two.RequestID {
			t.Errorf("left is %+v", left)
		}
		decide(t, h.f, two.RequestID, approval.Reject, "")
		h.told(second)
	})
}

// A request is its agent's alone.
func TestGateKeepsAgentsApart(t *testing.T) {
	t.Parallel()
	for _, version := range []string{legacy, modern} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			f := newGateFixture(t)
			s := serveHTTP(t, f, newLocal(t, f, 0), mcp.HandlerOptions{Options: mcp.Options{Gate: newGate(t, f, mcp.GateOptions{})}})
			hosts := make([]*gateHost, 2)
			for i, agent := range []string{f.Agent.Name, "stranger"} {
				hosts[i] = &gateHost{t: t, f: f, held: make(chan string, 100)}
				hosts[i].session = connect(t, s.transport(t, s.token(t, agent)), version, hosts[i].client(true))
			}
			mine, stranger := hosts[0], hosts[1]
			done := mine.ask(t.Context(), updateCall)
			v := mine.see(`{}`)
			if got := stranger.see(`{"asked":` + updateCall + `}`); got != nil {
				t.Errorf("a stranger sees %+v", got)
			}
			stranger.refuses("approval_request", fmt.Sprintf(`{"requestId":%q}`, v.RequestID), "not_found")
			stranger.refuses("approval_decide", v.about(`"outcome":"granted"`), "not_found")
			stranger.refuses("approval_revoke", v.about(""), "not_found")
			succeed(t, mine.session, "approval_decide", v.about(`"outcome":"granted"`))
			mine.told(done)
			stranger.refuses("approval_revoke", v.about(""), "not_found")
			if got := refused(t, stranger.session, "apply", fmt.Sprintf(`{"requestId":%q}`, v.RequestID)); !strings.Contains(got, "no such request") {
				t.Errorf("apply: %s", got)
			}
		})
	}
}

// Of many that decide at once exactly one does.
func TestGateDecidesOnce(t *testing.T) {
	t.Parallel()
	everyGate(t, func(t *testing.T, h *gateHost) {
		done := h.ask(t.Context(), updateCall)
		v := h.see(`{}`)
		var deciding sync.WaitGroup
		receipts := make(chan string, 20)
		for i := range 20 {
			deciding.Go(func() {
				answer := []string{`"outcome":"granted"`, `"outcome":"denied"`}[i%2]
				result, err := h.session.CallTool(t.Context(), &sdk.CallToolParams{Name: "approval_decide", Arguments: json.RawMessage(v.about(answer))})
				if err != nil {
					t.Error(err)
				} else if !result.IsError {
					receipts <- textOf(t, result, 0)
				} else if said, _ := result.StructuredContent.(map[string]any); said["error"] != "decided" {
					t.Errorf("refused with %+v", said)
				}
			})
		}
		deciding.Wait()
		close(receipts)
		var won []string
		for text := range receipts {
			won = append(won, text)
		}
		if decision, _ := h.told(done); len(won) != 1 || !strings.HasPrefix(won[0], `{"decision":`+decision.text) {
			t.Errorf("%d decided: %v", len(won), won)
		}
	})
}

// Nothing that the policy hides reaches a view, which then can't edit.
func TestGateHidesWhatPolicyHides(t *testing.T) {
	t.Parallel()
	everyGate(t, func(t *testing.T, h *gateHost) {
		done := h.ask(t.Context(), `{"action":"crm.update","target":"deals","reversible":true,"arguments":{"account":"a1","secret":"hunter2hunter2"}}`)
		v := h.see(`{}`)
		if strings.Contains(v.text, "hunter2") || v.Editable != nil || !v.DecidesHere || !strings.Contains(v.text, `"hidden":1`) {
			t.Errorf("the view sees %s", v.text)
		}
		text := succeed(t, h.session, "approval_decide", v.about(`"outcome":"granted"`))
		if strings.Contains(text, "hunter2") {
			t.Errorf("the view is told %s", text)
		}
		h.told(done)
	})
}

func TestGateTakesAReason(t *testing.T) {
	t.Parallel()
	f := approvaltest.New(t, func(o *approval.Options) { o.Policy = gatePolicy(t, ", reason_required: true") })
	h := atGate(t, f, "stdio", modern, true, mcp.GateOptions{})
	done := h.ask(t.Context(), updateCall)
	v := h.see(`{}`)
	if !v.DecidesHere || !strings.Contains(v.text, `"reasonRequired":true`) {
		t.Fatalf("the view sees %s", v.text)
	}
	h.refuses("approval_decide", v.about(`"outcome":"granted","reason":" "`), "reason_required")
	checkUntouched(t, h.f, v.RequestID)
	succeed(t, h.session, "approval_decide", v.about(`"outcome":"granted","reason":"asked by the customer"`))
	h.told(done)
}

func TestGateDeniesEditsThatPolicyDenies(t *testing.T) {
	t.Parallel()
	h := atGate(t, newGateFixture(t), "stdio", modern, true, mcp.GateOptions{})
	done := h.ask(t.Context(), updateCall)
	v := h.see(`{}`)
	h.refuses("approval_decide", v.at(2, `"outcome":"granted","editedArgs":"{\"account\":\"a1\",\"status\":\"lost\"}"`), "denied_by_policy")
	checkUntouched(t, h.f, v.RequestID)
	succeed(t, h.session, "approval_decide", v.about(`"outcome":"denied"`))
	h.told(done)
}

// Progress says for what a call is held.
func TestGateReportsProgress(t *testing.T) {
	t.Parallel()
	everyGate(t, func(t *testing.T, h *gateHost) {
		done := h.send(t.Context(), dropCall(1))
		if got := receive(t, h.held, "progress"); got != "Waiting for a person: 1 of finance. 5 min left." {
			t.Errorf("the progress is %q", got)
		}
		decide(t, h.f, h.see(`{}`).RequestID, approval.Approve, "")
		h.told(done)
	})
}

func TestGateServesItsView(t *testing.T) {
	t.Parallel()
	for _, kind := range gateKinds {
		for _, version := range []string{legacy, modern} {
			for _, views := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s/%s/%v", kind, version, views), func(t *testing.T) {
					t.Parallel()
					checkListed(t, atGate(t, newGateFixture(t), kind, version, views, mcp.GateOptions{}), views)
				})
			}
		}
	}
}

func checkListed(t *testing.T, h *gateHost, views bool) {
	t.Helper()
	initialized := h.session.InitializeResult()
	if _, ok := initialized.Capabilities.Extensions["io.modelcontextprotocol/ui"]; !ok || initialized.Capabilities.Resources == nil {
		t.Errorf("the server says that it can %+v", initialized.Capabilities)
	}
	if !strings.Contains(initialized.Instructions, "request_approval") || strings.Contains(initialized.Instructions, "await_approval") {
		t.Errorf("it says %s", initialized.Instructions)
	}
	tools, err := h.session.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	metas := make(map[string]string)
	for _, tool := range tools.Tools {
		meta, err := json.Marshal(tool.Meta)
		if err != nil {
			t.Fatal(err)
		}
		metas[tool.Name] = string(meta)
	}
	want := map[string]string{"request_approval": "null", "apply": "null"}
	resources, uris := []string{}, []string{}
	if views {
		const app = `{"ui":{"visibility":["app"]}}`
		want = map[string]string{"approval_request": app, "approval_decide": app, "approval_revoke": app, "apply": "null",
			"request_approval": `{"ui":{"resourceUri":"ui://approval-gate/view.html","visibility":["model"]},"ui/resourceUri":"ui://approval-gate/view.html"}`}
		resources = []string{"ui://approval-gate/view.html"}
	}
	if diff := cmp.Diff(want, metas); diff != "" {
		t.Errorf("tools (-want +got):\n%s", diff)
	}
	listed, err := h.session.ListResources(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, resource := range listed.Resources {
		uris = append(uris, resource.URI)
		checkViewMeta(t, resource.Meta)
	}
	if !slices.Equal(uris, resources) {
		t.Errorf("resources %v, want %v", uris, resources)
	}
	read, err := h.session.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: "ui://approval-gate/view.html"})
	if err != nil {
		t.Fatal(err)
	}
	if content := read.Contents[0]; content.MIMEType != "text/html;profile=mcp-app" || content.Text != mcp.ViewHTML || content.Text == "" {
		t.Errorf("the view is %q of %d characters", content.MIMEType, len(content.Text))
	}
	checkViewMeta(t, read.Contents[0].Meta)
	for what, scope := range map[string]string{"tools": tools.CacheScope, "resources": listed.CacheScope} {
		if scope == "public" {
			t.Errorf("a cache may give one host's %s to another", what)
		}
	}
}

func checkViewMeta(t *testing.T, meta sdk.Meta) {
	t.Helper()
	if got, err := json.Marshal(meta); err != nil || string(got) != `{"ui":{"csp":{},"prefersBorder":true}}` {
		t.Errorf("the view's meta is %s (%v)", got, err)
	}
}

// What a host can't show to a person is denied at once, or waits for people.
func TestGateWithoutViews(t *testing.T) {
	t.Parallel()
	for _, kind := range gateKinds {
		for _, version := range []string{legacy, modern} {
			t.Run(kind+"/"+version, func(t *testing.T) {
				t.Parallel()
				h := atGate(t, newGateFixture(t), kind, version, false, mcp.GateOptions{})
				decision, rule := h.told(h.send(t.Context(), updateCall))
				if decision.Outcome != "denied" || decision.ServerReceiptID == "" || !strings.Contains(rule, "MCP Apps") {
					t.Errorf("got %s: %s", decision.text, rule)
				}
				r, err := h.f.Service.Status(t.Context(), h.f.Agent, decision.RequestID)
				if err != nil || r.Status != approval.Rejected || r.Decisions[0].Receipt != decision.ServerReceiptID {
					t.Errorf("recorded is %+v (%v)", r, err)
				}
				if allowed, _ := h.told(h.send(t.Context(), `{"action":"crm.get_deal","target":"deals","reversible":true,"arguments":{}}`)); allowed.Outcome != "granted" {
					t.Errorf("allowed is %s", allowed.text)
				}
				waiting := atGate(t, newGateFixture(t), kind, version, false, mcp.GateOptions{WithoutView: mcp.WaitWithoutView})
				done := waiting.ask(t.Context(), updateCall)
				// The same again is the same request.
				stored, err := waiting.f.Service.Request(t.Context(), waiting.f.Agent, approval.Proposal{
					Purpose: "p", Action: "crm.update", Target: "deals", Reversible: new(true), Payload: []byte(`{"account":"a1","ids":[101,102],"status":"won"}`)})
				if err != nil {
					t.Fatal(err)
				}
				v := &viewed{RequestID: stored.ID, RequestVersion: 1, Digest: stored.Digest.String()}
				waiting.refuses("approval_request", `{}`, "needs_people")
				waiting.refuses("approval_decide", v.about(`"outcome":"granted"`), "needs_people")
				waiting.refuses("approval_revoke", v.about(""), "needs_people")
				checkUntouched(t, waiting.f, stored.ID)
				decide(t, waiting.f, stored.ID, approval.Approve, "")
				if decision, _ := waiting.told(done); decision.Outcome != "granted" {
					t.Errorf("got %s", decision.text)
				}
			})
		}
	}
}

// A host that comes to say that it shows views decides nothing that was asked before.
func TestGateViewOfAnotherHost(t *testing.T) {
	t.Parallel()
	f := newGateFixture(t)
	s := serveHTTP(t, f, newLocal(t, f, 0), mcp.HandlerOptions{Options: mcp.Options{Gate: newGate(t, f, mcp.GateOptions{WithoutView: mcp.WaitWithoutView})}})
	plain, showing := &gateHost{t: t, f: f, held: make(chan string, 100)}, &gateHost{t: t, f: f, held: make(chan string, 100)}
	plain.session = connect(t, s.transport(t, s.token(t, f.Agent.Name)), legacy, plain.client(false))
	showing.session = connect(t, s.transport(t, s.token(t, f.Agent.Name)), modern, showing.client(true))
	done := plain.ask(t.Context(), updateCall)
	v := showing.see(`{}`)
	if v.DecidesHere {
		t.Errorf("the view sees %s", v.text)
	}
	showing.refuses("approval_decide", v.about(`"outcome":"granted"`), "needs_people")
	decide(t, f, v.RequestID, approval.Reject, "")
	plain.told(done)
}

func TestNewGateChecksItsOptions(t *testing.T) {
	t.Parallel()
	f := approvaltest.New(t)
	for _, options := range []mcp.GateOptions{{Timeout: approval.MinTTL - 1}, {Timeout: approval.MaxTTL + 1}, {WithoutView: "ask"}} {
		if _, err := mcp.NewGate(f.Service, options); err == nil {
			t.Errorf("%+v is accepted", options)
		}
	}
	if _, err := mcp.NewGate(nil, mcp.GateOptions{}); err == nil {
		t.Error("no service is accepted")
	}
}
