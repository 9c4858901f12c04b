package main

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/countersign/countersign/audit"
)

// mailPolicy lets agents read and send mail, which is looked at, and drop
// nothing.
const mailPolicy = `version: 1
mode: cautious
roles: {finance: {users: [U0ADA, U0GRACE, U0OLIVIA]}}
approval: {requires: [{role: finance}]}
block:
  - {id: no-drop, actions: ["*.drop_*"], why: "Agents drop nothing."}
integrations:
  crm:
    tools:
      get_*: {tier: 1}
      send_email: {tier: 3}
`

// stricterMail asks two people where mailPolicy asks one.
var stricterMail = strings.Replace(mailPolicy, "{role: finance}", "{role: finance, count: 2}", 1)

func readContact(id int) map[string]any {
	return map[string]any{"purpose": "Look at a contact", "action": "crm.get_contact", "environment": "production", "payload": map[string]any{"id": id}}
}

func sendEmail(to string) map[string]any {
	return map[string]any{"purpose": "Greet somebody", "action": "crm.send_email", "environment": "production", "payload": map[string]any{"to": to}}
}

func dropTable(table string) map[string]any {
	return map[string]any{"purpose": "Drop a table", "action": "crm.drop_table", "environment": "production", "payload": map[string]any{"table": table}}
}

// asked is what request_approval answers.
func asked(t *testing.T, session *sdk.ClientSession, request map[string]any) (id, status string, err error) {
	t.Helper()
	var answer struct{ ElicitationID, Status string }
	err = call(t.Context(), session, "request_approval", request, &answer)
	return answer.ElicitationID, answer.Status, err
}

// What policy allows is approved at once, without a card, and applied like
// everything else; what it denies is refused with the reason; the rest waits.
func TestPolicyDecides(t *testing.T) {
	t.Parallel()
	p := newProgram(t)
	p.write(t, "policy.yaml", mailPolicy)
	p.serve(t)
	w := p.world()
	session := w.agent(t, p.output(t, "token", "create", "crm-agent", "--owner", demoOwner))

	id, got, err := asked(t, session, readContact(7))
	if err != nil || got != "approved" {
		t.Fatalf("asking for a read: %s, %v", got, err)
	}
	if got := status(t, session, "await_approval", id); got != "approved" {
		t.Errorf("await_approval says %s", got)
	}
	payload, err := apply(t, session, id)
	if err != nil || string(payload) != `{"id":7}` {
		t.Errorf("applied %s (%v)", payload, err)
	}
	if _, err := apply(t, session, id); err == nil {
		t.Error("applied twice")
	}

	if id, got, err := asked(t, session, dropTable("customers")); err == nil || !strings.Contains(err.Error(), "Agents drop nothing.") {
		t.Errorf("asking for what is blocked: %s, %s, %v", id, got, err)
	}

	// What was refused is recorded too, and can be read beside the server.
	if out := p.output(t, "policy", "tools"); !strings.Contains(out, "drop_table: {tier: 5}") {
		t.Errorf("proposed\n%s", out)
	}

	id = ask(t, session, sendEmail("noor@example.com"))
	posted := w.card(t, mentions("Approval needed"))
	if messages := w.slack.Messages(demoChannel); len(messages) != 1 {
		t.Errorf("%d cards; what policy decides needs none", len(messages))
	}
	w.click(t, "U0ADA", posted.TS, "approve")
	if got := status(t, session, "await_approval", id); got != "approved" {
		t.Errorf("await_approval says %s", got)
	}
}

// A policy that gets stricter between the click and the use: the approval
// doesn't count any more, and the agent is told why. One that gets looser
// doesn't decide what waits.
func TestPolicyGetsStricter(t *testing.T) {
	t.Parallel()
	p := newProgram(t)
	p.write(t, "policy.yaml", mailPolicy)
	running := p.serve(t)
	w := p.world()
	session := w.agent(t, p.output(t, "token", "create", "crm-agent"))
	id := ask(t, session, sendEmail("noor@example.com"))
	posted := w.card(t, mentions("Approval needed"))
	w.click(t, "U0ADA", posted.TS, "approve")
	if got := status(t, session, "await_approval", id); got != "approved" {
		t.Fatalf("await_approval says %s", got)
	}

	p.write(t, "policy.yaml", stricterMail)
	if err := running.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	p.log.says(t, `"msg":"policy loaded"`)
	if _, err := apply(t, session, id); err == nil || !strings.Contains(err.Error(), "The policy now asks for 2 of finance") {
		t.Errorf("applying what the policy asks more for: %v", err)
	}
	if got := status(t, session, "check_status", id); got != "rejected" {
		t.Errorf("the request is %s", got)
	}
	w.card(t, mentions("Superseded"))

	waiting := ask(t, session, sendEmail("jules@example.com"))
	p.write(t, "policy.yaml", strings.Replace(mailPolicy, "mode: cautious", "mode: open", 1))
	p.log.says(t, `"msg":"policy loaded"`)
	if got := status(t, session, "check_status", waiting); got != "pending" {
		t.Errorf("a looser policy decided: %s", got)
	}
}

// A file that isn't accepted changes nothing: the log says it, and so does the
// health endpoint, until it is put right.
func TestPolicyBroken(t *testing.T) {
	t.Parallel()
	p := newProgram(t)
	p.write(t, "policy.yaml", mailPolicy)
	running := p.serve(t)
	w := p.world()
	session := w.agent(t, p.output(t, "token", "create", "crm-agent"))

	p.write(t, "policy.yaml", "version: 1\nmode: open\n")
	line := p.log.says(t, `"level":"ERROR"`)
	for _, want := range []string{"NOT ACCEPTED", "stays in force", "policy.yaml:1:1: roles is missing"} {
		if !strings.Contains(line, want) {
			t.Errorf("the log doesn't say %q: %s", want, line)
		}
	}
	if body := p.ready(t); !strings.Contains(body, "the policy file is not accepted") {
		t.Errorf("/readyz says %q", body)
	}
	if _, _, err := asked(t, session, dropTable("customers")); err == nil || !strings.Contains(err.Error(), "Agents drop nothing.") {
		t.Errorf("the policy of before doesn't rule: %v", err)
	}

	p.write(t, "policy.yaml", strings.ReplaceAll(mailPolicy, "Agents drop nothing.", "Ask the owners."))
	if err := running.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	p.log.says(t, `"msg":"policy loaded"`)
	p.output(t, "token", "create", "ada-agent", "--owner", "U0ADA")
	p.write(t, "policy.yaml", strings.ReplaceAll(strings.ReplaceAll(mailPolicy, "Agents drop nothing.", "Ask the owners."), ", U0GRACE, U0OLIVIA", ""))
	if line := p.log.says(t, `"level":"WARN"`); !strings.Contains(line, "ada-agent") || !strings.Contains(line, "without U0ADA") {
		t.Errorf("of an agent that asks in vain the log says %s", line)
	}
	if body := p.ready(t); body != "ok\n" {
		t.Errorf("/readyz says %q", body)
	}
	if _, _, err := asked(t, session, dropTable("orders")); err == nil || !strings.Contains(err.Error(), "Ask the owners.") {
		t.Errorf("the new policy doesn't rule: %v", err)
	}
}

// ready is what the health endpoint says.
func (p *program) ready(t *testing.T) string {
	t.Helper()
	response, err := http.Get("http://127.0.0.1:" + p.port + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

// An agent on stdio without a server has its policy follow the file too, and
// keeps it if without its owner nobody could approve.
func TestPolicyFollowsStandalone(t *testing.T) {
	t.Parallel()
	p := newProgram(t)
	p.write(t, "policy.yaml", mailPolicy)
	command := p.command(t, nil, "mcp", "--agent", "my-agent", "--owner", demoOwner)
	log := p.logOf(t, command)
	session := stdio(t, command)
	p.connected(t)
	if line := log.says(t, `"msg":"ruling by policy"`); !strings.Contains(line, `"mode":"cautious"`) || !strings.Contains(line, "policy.yaml") {
		t.Errorf("at the start the log says %s", line)
	}

	p.write(t, "policy.yaml", strings.Replace(mailPolicy, "U0ADA, U0GRACE, ", "", 1))
	if line := log.says(t, `"level":"ERROR"`); !strings.Contains(line, "without "+demoOwner) {
		t.Errorf("the log says %s", line)
	}
	if _, got, err := asked(t, session, readContact(1)); err != nil || got != "approved" {
		t.Errorf("asking for a read: %s, %v", got, err)
	}
	p.write(t, "policy.yaml", strings.Replace(mailPolicy, "get_*: {tier: 1}", "get_*: {tier: 3}", 1))
	log.says(t, `"msg":"policy loaded"`)
	if _, got, err := asked(t, session, readContact(2)); err != nil || got != "pending" {
		t.Errorf("asking for a read: %s, %v", got, err)
	}
}

// The audit log names each policy that ruled, and verifies.
func TestPolicyIsRecorded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var loaded []string
	events := w.server.store.Events(t.Context())
	if _, _, err := audit.Verify(events); err != nil {
		t.Fatal(err)
	}
	for event, err := range events {
		if err != nil {
			t.Fatal(err)
		}
		var detail struct{ Policy string }
		if event.Type != "policy.loaded" {
			continue
		}
		if err := json.Unmarshal(event.Detail, &detail); err != nil {
			t.Fatal(err)
		}
		loaded = append(loaded, detail.Policy)
	}
	if diff := cmp.Diff([]string{w.options.policy.Revision()}, loaded); diff != "" {
		t.Errorf("policies that were loaded (-want +got):\n%s", diff)
	}
}
