package policy_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/countersign/countersign/policy"
)

// A proposed tier follows the guide's list of tiers by the words of the name,
// and is higher rather than lower where they leave a doubt.
func TestTierOfNames(t *testing.T) {
	t.Parallel()
	for tier, names := range map[policy.Tier]string{
		policy.TierRead: "get_contact list_payments search-docs readFile findAllUsers other_get_contact batch_read_objects issue_read " +
			"get_invoice get_transfer getDeployStatus list_post show_run get_contacts_2 GET_CONTACT",
		policy.TierInternalWrite: "create_draft tag_ticket update_contact add_note setField mark_as_read get_or_create update_list insert_row createNote",
		policy.TierExternal:      "send_email post_message publish_page create_invoice sendDraft list_and_send email_read reply_to_thread",
		policy.TierDestructive: "delete_contact remove_member overwrite_file revoke_access deleteAllUsers search_replace get_and_delete " +
			"set_role update_billing create_webhook get_secret list_passwords get_access_token " +
			"frobnicate query 42 execute_sql forget budget crm",
		policy.TierIrreversible: "pay_invoice create_refund refund transfer_funds deploy_site purge_queue drop_table truncate_table list_then_pay get_and_transfer",
	} {
		for _, name := range strings.Fields(names) {
			got := mustParse(t, example).Propose([]policy.Tool{{Integration: "crm", Name: name}, {Integration: "other", Name: name}})
			proposal := got[len(got)-1]
			if proposal.Tier != tier {
				t.Errorf("%s: tier %d because %s, want %d", name, proposal.Tier, proposal.Why, tier)
			}
		}
	}
}

// What a server says of its tool never makes a proposal less careful.
func TestHintsOnlyRaiseProposals(t *testing.T) {
	t.Parallel()
	p := mustParse(t, example)
	yes, no := true, false
	hints := rapid.SampledFrom([]*bool{nil, &yes, &no})
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.StringMatching(`(get|list|create|send|delete|pay|frob)(_(and|all|post|secret|role|x))?`).Draw(t, "name")
		description := rapid.SampledFrom([]string{"", "Only reads.", "This is permanent."}).Draw(t, "description")
		tool := policy.Tool{Integration: "x", Name: name}
		plain := p.Propose([]policy.Tool{tool})[0].Tier
		tool.Description = description
		tool.Hints = policy.Hints{ReadOnly: hints.Draw(t, "read only"), Destructive: hints.Draw(t, "destructive"), Idempotent: hints.Draw(t, "idempotent"), OpenWorld: hints.Draw(t, "open world")}
		got := p.Propose([]policy.Tool{tool})[0]
		if got.Tier < plain {
			t.Fatalf("tier %d without, %d with what the server says", plain, got.Tier)
		}
		if ruled := p.Rule(policy.Call{Action: "x." + name, Hints: tool.Hints, Payload: []byte("{}")}); slices.ContainsFunc(ruled.Rules[1:], func(rule policy.FiredRule) bool { return rule.RaiseTo > got.Tier }) {
			t.Fatalf("the tier is %d, but a ruling raises to more: %+v", got.Tier, ruled.Rules)
		}
	})
}

func TestProposals(t *testing.T) {
	t.Parallel()
	tools, err := policy.ParseTools("crm", []byte(`{"tools": [
		{"name": "get_contact", "description": "Is classified already.", "inputSchema": {"type": "object"}},
		{"name": "merge_contacts", "inputSchema": {"type": "object", "properties": {"contact_ids": {"type": "array"}, "into": {"type": "string"}}}, "annotations": {"title": "Merge", "readOnlyHint": false, "destructiveHint": true}},
		{"name": "fetch_notes", "title": "Notes", "inputSchema": {"type": "object", "properties": {"ids": {"type": "array"}}}, "annotations": {"readOnlyHint": false}, "_meta": {"x": 1}},
		{"name": "archive", "description": "Archives contacts. This can't be undone.", "inputSchema": {"type": "object", "properties": {"ids": {"type": ["array", "null"]}, "list-ids": {"type": "array"}, "names": {"type": "array"}, "otherIds": {"type": "string"}}}, "outputSchema": {}},
		{"name": "spam everybody", "inputSchema": {}}
	]}`))
	if err != nil {
		t.Fatal(err)
	}
	for _, action := range []string{"crm.send_email", "crm.fetch_notes", "mail.send", "mail.list", "mail.on", "deploy", "Wiki.page.read", "wiki\x1b.x"} {
		tools = append(tools, policy.ToolOf(action))
	}
	got := mustParse(t, example).Propose(tools)
	golden(t, "proposals.yaml", got.String())

	var lines []string
	for _, one := range got {
		lines = append(lines, fmt.Sprintf("%s.%s %d %s", one.Integration, one.Tool, one.Tier, one.Count))
	}
	want := []string{
		".deploy 0 ",
		"Wiki.page.read 1 ",
		"crm.archive 5 size(args.ids) + size(args[\"list-ids\"])",
		"crm.fetch_notes 2 size(args.ids)",
		"crm.merge_contacts 4 size(args.contact_ids)",
		"crm.spam everybody 0 ",
		"mail.list 1 ",
		"mail.on 4 ",
		"mail.send 3 ",
		"wiki\x1b.x 0 ",
	}
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestProposalsForNothing(t *testing.T) {
	t.Parallel()
	got := mustParse(t, example).Propose([]policy.Tool{policy.ToolOf("crm.get_contact")})
	if want := "# The policy classifies every tool.\n"; got.String() != want {
		t.Errorf("got %q, want %q", got.String(), want)
	}
}

// Whatever tools are called, the text that is proposed can be put into a policy,
// which then classifies each as proposed.
func TestProposalsCanBePasted(t *testing.T) {
	t.Parallel()
	const policyWithout = "version: 1\nmode: open\nroles: {r: {users: [U0R]}}\napproval: {requires: [{role: r}]}\n"
	p := mustParse(t, policyWithout)
	name := rapid.OneOf(rapid.StringMatching(`[A-Za-z0-9_.\-/]{1,12}`), rapid.SampledFrom([]string{"true", "No", "~", "null", "1", "-", "--- ", "'", "*", "a: b", "#", "\n", "é", ".", "1.5", "<<"}), rapid.String())
	rapid.Check(t, func(t *rapid.T) {
		var tools []policy.Tool
		for range rapid.IntRange(1, 5).Draw(t, "tools") {
			argument := rapid.OneOf(rapid.StringMatching(`[a-z'"-]{0,3}(Ids|_ids|-ids)`), rapid.String()).Draw(t, "argument")
			tools = append(tools, policy.Tool{
				Integration: name.Draw(t, "integration"),
				Name:        name.Draw(t, "tool"),
				Description: rapid.String().Draw(t, "description"),
				InputSchema: []byte(fmt.Sprintf(`{"properties": {%q: {"type": "array"}}}`, argument)),
			})
		}
		proposals := p.Propose(tools)
		text := proposals.String()
		if strings.ContainsFunc(text, func(r rune) bool { return r < ' ' && r != '\n' || r == '\u202e' }) {
			t.Fatalf("%q has characters that a terminal would obey", text)
		}
		pasted, err := policy.Parse([]byte(policyWithout + text))
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		for _, one := range proposals {
			if one.Stanza == "" {
				continue
			}
			ruled := pasted.Rule(policy.Call{Action: one.Integration + "." + one.Tool, Payload: []byte("{}")})
			if !ruled.Classified || ruled.Tier != one.Tier {
				t.Fatalf("%s.%s is ruled as tier %d (classified: %t), proposed was %d:\n%s", one.Integration, one.Tool, ruled.Tier, ruled.Classified, one.Tier, text)
			}
		}
		if again := pasted.Propose(tools); slices.ContainsFunc(again, func(one policy.Proposal) bool { return one.Stanza != "" }) {
			t.Fatalf("proposed again:\n%s", again)
		}
	})
}

func TestRefusedToolLists(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, source, want string }{
		{"nothing", ``, "reading the list of tools"},
		{"not JSON", `{"tools": [}`, "reading the list of tools"},
		{"repeated key", `{"tools": [{"name": "a", "annotations": {"readOnlyHint": true, "readOnlyHint": false}}]}`, "reading the list of tools"},
		{"another case of a key", `{"Tools": []}`, `the list has no "tools"`},
		{"a list alone", `[{"name": "a"}]`, "reading the list of tools"},
		{"text for a hint", `{"tools": [{"name": "a", "annotations": {"destructiveHint": "false"}}]}`, "reading the list of tools"},
		{"number for a name", `{"tools": [{"name": 1}]}`, "reading the list of tools"},
		{"no name", `{"tools": [{"name": "a"}, {}]}`, "tool 2 of the list has no name"},
		{"name twice", `{"tools": [{"name": "a"}, {"name": "a"}]}`, `tool "a" is listed twice`},
		{"another page", `{"tools": [], "nextCursor": "x"}`, "the list has another page"},
		{"more data", `{"tools": []} {}`, "reading the list of tools"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			tools, err := policy.ParseTools("crm", []byte(test.source))
			if err == nil {
				t.Fatalf("accepted: %v", tools)
			}
			if !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %q, want %q", err, test.want)
			}
		})
	}
}

// A hint in another spelling is no hint, so that it can't be taken for one.
func TestHintsOfToolLists(t *testing.T) {
	t.Parallel()
	tools, err := policy.ParseTools("crm", []byte(`{"tools": [{"name": "a", "annotations": {"readonlyhint": true, "destructiveHint": true, "openWorldHint": false, "idempotentHint": null}}]}`))
	if err != nil {
		t.Fatal(err)
	}
	yes, no := true, false
	want := policy.Hints{Destructive: &yes, OpenWorld: &no}
	if diff := cmp.Diff(want, tools[0].Hints); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// Of a tool that is known from two places, what is more careful counts, in
// either order.
func TestToolsFromTwoPlaces(t *testing.T) {
	t.Parallel()
	yes, no := true, false
	p := mustParse(t, example)
	schema := []byte(`{"properties": {"ids": {"type": "array"}}}`)
	for _, test := range []struct {
		name     string
		one, two policy.Tool
		want     policy.Tier
	}{
		{"destructive", policy.Tool{Hints: policy.Hints{Destructive: &yes}, InputSchema: schema}, policy.Tool{Hints: policy.Hints{Destructive: &no}}, policy.TierDestructive},
		{"not only reading", policy.Tool{Hints: policy.Hints{ReadOnly: &no}}, policy.Tool{Hints: policy.Hints{ReadOnly: &yes}, InputSchema: schema}, policy.TierInternalWrite},
		{"only described once", policy.Tool{Description: "There is no way back: permanently.", InputSchema: schema}, policy.Tool{}, policy.TierIrreversible},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			for _, tools := range [][]policy.Tool{{test.one, test.two}, {test.two, test.one}} {
				for i := range tools {
					tools[i].Integration, tools[i].Name = "x", "get_things"
				}
				got := p.Propose(tools)
				if len(got) != 1 || got[0].Tier != test.want || got[0].Count != "size(args.ids)" {
					t.Errorf("got %+v, want one of tier %d with a count", got, test.want)
				}
			}
		})
	}
}

func FuzzParseTools(f *testing.F) {
	f.Add([]byte(`{"tools": [{"name": "a", "annotations": {"readOnlyHint": true}, "inputSchema": {"properties": {"ids": {"type": ["array"]}}}}]}`))
	f.Add([]byte(`{"tools": [{"name": "a.b", "inputSchema": {"properties": {"ids": {"type": {}}, "x": 1}}}]}`))
	p, err := policy.Parse([]byte(example))
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, source []byte) {
		tools, err := policy.ParseTools("crm", source)
		if err != nil {
			return
		}
		for _, one := range p.Propose(tools) {
			if one.Stanza != "" && one.Tier < policy.TierRead {
				t.Errorf("%+v has no tier", one)
			}
		}
	})
}
