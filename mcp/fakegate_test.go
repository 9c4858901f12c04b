package mcp_test

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/countersign/countersign/mcp"
)

// script is an MCP server that answers a view as the Approval Gate does, and that a
// test changes as it likes.
type script struct {
	mu      sync.Mutex
	request map[string]any
	held    bool                 // the agent's call is held: it is found without an id
	refuse  map[string]refusal   // by tool
	hold    map[string]chan bool // by tool: answers once the channel is closed; false: with an error
	changed chan struct{}        // closed at each change
}

type refusal struct{ code, message string }

const (
	scriptID   = "req_6f1c0a5e9d3b4c7f8a2e1d0c9b8a7f6e"
	digestOne  = "1111111111111111111111111111111111111111111111111111111111111111"
	digestTwo  = "2222222222222222222222222222222222222222222222222222222222222222"
	scriptedAt = "2026-10-04T15:12:51.743Z"
)

type object = map[string]any

func text(parts ...string) []any {
	var line []any
	for _, part := range parts {
		line = append(line, object{"text": part})
	}
	return line
}

// newScript is a gate that somebody is asked in to delete records of production.
func newScript(options ...func(object)) *script {
	s := &script{held: true, refuse: map[string]refusal{}, hold: map[string]chan bool{}, changed: make(chan struct{})}
	s.request = object{
		"requestId": scriptID, "requestVersion": 1, "digest": digestOne, "revision": 1,
		"status": "pending", "stage": "Approval needed",
		"action": "crm.delete_records", "count": "214 records", "environment": "production", "reversible": false,
		"purpose": object{"label": text("What ", "crm-agent", " says it is for"), "text": "Clean up customers who haven't signed in for two years."},
		"facts": []any{
			object{"label": "Target", "value": []any{object{"text": "customers", "style": "code"}}},
			object{"label": "Asked by", "value": []any{object{"text": "crm-agent", "style": "strong"}, object{"text": " for Lena, "}, object{"time": scriptedAt}}},
			object{"label": "Tier", "value": text("4, destructive")},
		},
		"warnings": []any{text("The agent states 214 records; the arguments don't say how many.")},
		"arguments": object{
			"label":  text("Arguments"),
			"text":   "table: customers\nwhere:\n  status: inactive\n  last_seen_before: 2024-12-01\nexpected_count: 214",
			"exact":  `{"table":"customers","where":{"status":"inactive","last_seen_before":"2024-12-01"},"expected_count":214}`,
			"hidden": 0,
		},
		"editable":    `{"table":"customers","where":{"status":"inactive","last_seen_before":"2024-12-01"},"expected_count":214}`,
		"decidesHere": true,
		"needs":       "Needs 1 of oncall",
		"scopes":      []any{object{"scope": "once", "words": "once"}},
		"expiresAt":   "2026-10-04T15:17:51.743Z", "now": scriptedAt,
		"history":   []any{},
		"reviewUrl": reviewBase + scriptID,
	}
	for _, option := range options {
		option(s.request)
	}
	return s
}

// handed is what the agent's host handed the view, none of which it shows.
var handed = object{"action": "crm.delete_records", "purpose": "the model's own words", "target": "customers", "reversible": true,
	"arguments": object{"table": "customers", "where": object{"status": "inactive", "last_seen_before": "2024-12-01"}, "expected_count": 214}}

// forPeople has people decide in Slack and on the review page, and nobody in the view.
func forPeople(r object) {
	r["decidesHere"] = false
	r["waitsFor"] = "Waiting for one of oncall in Slack or on the review page"
	delete(r, "editable")
}

// decided has the request be decided.
func decided(status, outcome, stage, verdict, surface string, person bool, by ...any) func(object) {
	return func(r object) {
		r["status"], r["outcome"], r["stage"] = status, outcome, stage
		r["canRevoke"] = status == "approved"
		for _, gone := range []string{"needs", "waitsFor", "editable", "expiresAt", "scopes"} {
			delete(r, gone)
		}
		r["decidesHere"] = false
		r["receipt"] = object{"serverReceiptId": "rcpt_93b0c4d5e6f708192a3b4c5d6e7f8091", "outcome": verdict, "by": by, "decidedAt": "2026-10-04T15:13:20.000Z",
			"surface": surface, "person": person, "signed": "eyJhbGciOiJFZERTQSJ9." + strings.Repeat("abcdefghij", 40) + ".c2lnbmF0dXJl"}
		r["history"] = []any{append([]any{object{"text": stage + " by "}}, by...)}
	}
}

// change changes the request and tells who waits for that.
func (s *script) change(changes ...func(object)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.apply(changes...)
}

func (s *script) apply(changes ...func(object)) {
	s.replace(append(changes, func(r object) { r["revision"] = s.request["revision"].(int) + 1 })...)
	close(s.changed)
	s.changed = make(chan struct{})
}

// pass changes the request as time does, which nobody is told.
func (s *script) pass(changes ...func(object)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.replace(changes...)
}

// replace changes a copy: what was given out stays as it is.
func (s *script) replace(changes ...func(object)) {
	next := maps.Clone(s.request)
	for _, change := range changes {
		change(next)
	}
	s.request = next
}

// refuses has a tool say no.
func (s *script) refuses(tool, code, message string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuse[tool] = refusal{code, message}
}

// holds has a tool answer only once the channel is closed.
func (s *script) holds(tool string) chan bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	gate := make(chan bool)
	s.hold[tool] = gate
	return gate
}

type asksFor struct {
	RequestID      string          `json:"requestId"`
	RequestVersion int             `json:"requestVersion"`
	KnownRevision  *int            `json:"knownRevision"`
	Digest         string          `json:"digest"`
	Outcome        string          `json:"outcome"`
	Scope          string          `json:"scope"`
	EditedArgs     *string         `json:"editedArgs"`
	Reason         string          `json:"reason"`
	Asked          json.RawMessage `json:"asked"`
}

func (s *script) answer(ctx context.Context, tool string, raw json.RawMessage) (any, *refusal) {
	var in asksFor
	if err := json.Unmarshal(raw, &in); err != nil {
		return nil, &refusal{"invalid", err.Error()}
	}
	s.mu.Lock()
	gate := s.hold[tool]
	s.mu.Unlock()
	if gate != nil {
		select {
		case <-gate:
		case <-ctx.Done():
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if no, ok := s.refuse[tool]; ok {
		return nil, &no
	}
	switch {
	case in.RequestID == "" && !s.held:
		return object{"request": nil}, nil
	case in.RequestID != "" && in.RequestID != scriptID:
		return nil, &refusal{"not_found", "There is no such request."}
	}
	if tool == "approval_request" {
		if in.KnownRevision != nil {
			s.await(ctx, *in.KnownRevision)
		}
		return object{"request": s.request}, nil
	}
	if in.Digest != s.request["digest"] {
		return nil, &refusal{"stale", "The request was edited."}
	}
	return s.decide(tool, in)
}

// await waits up to 20 s for another revision.
func (s *script) await(ctx context.Context, known int) {
	bound := time.NewTimer(20 * time.Second)
	defer bound.Stop()
	for s.request["revision"].(int) == known {
		changed := s.changed
		s.mu.Unlock()
		select {
		case <-changed:
			s.mu.Lock()
		case <-bound.C:
			s.mu.Lock()
			return
		case <-ctx.Done():
			s.mu.Lock()
			return
		}
	}
}

func (s *script) decide(tool string, in asksFor) (any, *refusal) {
	by := object{"text": "the view of this host"}
	outcome := in.Outcome
	switch {
	case tool == "approval_revoke":
		outcome = "revoked"
		s.apply(decided("rejected", "revoked", "Approval revoked, will not run", "denied", "app", false, by))
	case s.request["status"] != "pending":
		return nil, &refusal{"decided", "This was decided already."}
	case outcome == "granted":
		s.apply(decided("approved", "granted", "Approved, waiting to be applied", "granted", "app", false, by))
	default:
		s.apply(decided("rejected", "denied", "Rejected", "denied", "app", false, by))
	}
	if in.EditedArgs != nil {
		s.request["requestVersion"], s.request["digest"] = in.RequestVersion, digestTwo
		s.request["arguments"] = object{"label": text("Arguments, as edited"), "text": *in.EditedArgs, "exact": *in.EditedArgs, "hidden": 0}
	}
	receipt := s.request["receipt"].(object)
	if tool == "approval_revoke" {
		receipt["serverReceiptId"] = "rcpt_revoked"
	}
	decision := object{"requestId": scriptID, "requestVersion": s.request["requestVersion"], "outcome": outcome, "decidedAt": receipt["decidedAt"], "serverReceiptId": receipt["serverReceiptId"]}
	return object{"decision": decision, "request": s.request}, nil
}

// connect returns a client's session with the scripted server.
func (s *script) connect(t *testing.T) *sdk.ClientSession {
	t.Helper()
	server := sdk.NewServer(&sdk.Implementation{Name: "script", Version: "1"}, nil)
	for _, tool := range []string{"approval_request", "approval_decide", "approval_revoke"} {
		server.AddTool(&sdk.Tool{Name: tool, InputSchema: object{"type": "object"}}, func(ctx context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
			said, no := s.answer(ctx, tool, r.Params.Arguments)
			if no != nil && no.code == "" {
				return nil, errors.New(no.message)
			}
			if no != nil {
				return &sdk.CallToolResult{IsError: true, StructuredContent: object{"error": no.code, "message": no.message}, Content: []sdk.Content{&sdk.TextContent{Text: no.message}}}, nil
			}
			encoded, err := json.Marshal(said)
			if err != nil {
				return nil, err
			}
			return &sdk.CallToolResult{StructuredContent: json.RawMessage(encoded), Content: []sdk.Content{&sdk.TextContent{Text: string(encoded)}}}, nil
		})
	}
	meta := sdk.Meta{"ui": object{"csp": object{}, "prefersBorder": true}}
	server.AddResource(&sdk.Resource{URI: mcp.ViewURI, Name: "view", MIMEType: mcp.ViewMIME, Meta: meta}, func(context.Context, *sdk.ReadResourceRequest) (*sdk.ReadResourceResult, error) {
		return &sdk.ReadResourceResult{Contents: []*sdk.ResourceContents{{URI: mcp.ViewURI, MIMEType: mcp.ViewMIME, Text: mcp.ViewHTML, Meta: meta}}}, nil
	})
	here, there := sdk.NewInMemoryTransports()
	serving, err := server.Connect(t.Context(), there, nil)
	if err != nil {
		t.Fatal(err)
	}
	session, err := sdk.NewClient(&sdk.Implementation{Name: "host", Version: "1"}, nil).Connect(t.Context(), here, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = session.Close()
		_ = serving.Wait()
	})
	return session
}
