package mcp_test

import (
	"fmt"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/countersign/countersign/approval/approvaltest"
)

// ruled has a policy that decides by itself on some actions.
func ruled(t *testing.T, f *approvaltest.Fixture, more string) {
	t.Helper()
	rules := approvaltest.ParsePolicy(t, fmt.Sprintf(`
version: 1
mode: cautious
roles: {finance: {users: [%s, %s]}}
approval: {requires: [{role: finance}]}
integrations: {crm: {tools: {get_*: {tier: 1}, purge: {tier: 5}}}}
block: [{id: no-purge, actions: [crm.purge], why: Customers are never purged by agents.}]
%s`, approvaltest.Alice.User, approvaltest.Bob.User, more))
	if err := f.Service.SetPolicy(t.Context(), rules); err != nil {
		t.Fatal(err)
	}
}

// The same skill runs unchanged for what policy allows: ask, wait, apply.
func TestAllowedByPolicy(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, f *approvaltest.Fixture, session *sdk.ClientSession) {
		ruled(t, f, "")
		result := call(t, session, "request_approval", `{"purpose":"Look a customer up","action":"crm.get_customer","payload":{"id":7}}`)
		text := textOf(t, result, 0)
		if result.IsError || !strings.Contains(text, `"status":"approved"`) || !strings.Contains(text, `"elicitationDelivered":false`) {
			t.Fatalf("request_approval: %s", text)
		}
		if told := textOf(t, result, 1); !strings.Contains(told, "without a person") || !strings.Contains(told, "crm.get_*") || !strings.Contains(told, "apply") {
			t.Errorf("the agent is told: %s", told)
		}
		id := idIn(t, text)
		for _, tool := range []string{"await_approval", "check_status"} {
			if got := succeed(t, session, tool, byID(id)); got != `{"status":"approved"}` {
				t.Errorf("%s: %s", tool, got)
			}
		}
		if got := succeed(t, session, "apply", byID(id)); got != `{"status":"applied","payload":{"id":7}}` {
			t.Errorf("apply: %s", got)
		}
		if got := refused(t, session, "apply", byID(id)); !strings.Contains(got, "works once") {
			t.Errorf("apply again: %s", got)
		}
	})
}

func TestDeniedByPolicy(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, f *approvaltest.Fixture, session *sdk.ClientSession) {
		ruled(t, f, "")
		got := refused(t, session, "request_approval", `{"purpose":"Clean up","action":"crm.purge","payload":{}}`)
		for _, want := range []string{"no person was asked", "Customers are never purged by agents.", "another way"} {
			if !strings.Contains(got, want) {
				t.Errorf("the agent isn't told %q: %s", want, got)
			}
		}
	})
}

func TestLimitsAreTold(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, f *approvaltest.Fixture, session *sdk.ClientSession) {
		ruled(t, f, "limits: {pending: 1}\n")
		first := asked(t, session)
		if again := asked(t, session); again != first {
			t.Errorf("the same request is %s, want the first, %s", again, first)
		}
		got := refused(t, session, "request_approval", `{"purpose":"Another","payload":{"another":1}}`)
		if !strings.Contains(got, "waiting for people") {
			t.Errorf("the agent is told: %s", got)
		}
	})
}
