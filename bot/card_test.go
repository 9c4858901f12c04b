package bot_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/bot"
	"github.com/countersign/countersign/bot/slacksim"
	"github.com/countersign/countersign/internal/visible"
	"github.com/countersign/countersign/policy"
)

var update = flag.Bool("update", false, "write the golden files")

// indented is JSON for people to review, with characters as they are.
func indented(t *testing.T, value any) []byte {
	t.Helper()
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", " ")
	if err := encoder.Encode(value); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func golden(t *testing.T, name string, value any) {
	t.Helper()
	got := indented(t, value)
	path := filepath.Join("testdata", name+".json")
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v; write it with: go test ./bot -update", err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s: -want +got:\n%s", path, diff)
	}
}

func TestCards(t *testing.T) {
	t.Parallel()
	for name, r := range allStates() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			card := bot.Card(r)
			golden(t, "card/"+name, card)
			checkMessage(t, r, card)
			checkMessage(t, r, bot.Minimal(r))
		})
	}
}

// The modals and messages that lead to a decision or explain it.
func TestModalsAndReminders(t *testing.T) {
	t.Parallel()
	reminded := func(r *approval.Request) {
		r.Reminders, r.Ruling.RemindAfter = 1, []time.Duration{30 * time.Minute}
		r.Ruling.Escalation = policy.Escalation{After: 45 * time.Minute, To: "sre", Users: []string{"U0ADA"}, Groups: []string{"S0FINANCE"}}
	}
	r := deletion(reasonRequired)
	golden(t, "modal/why", bot.WhyView(r))
	golden(t, "modal/reason", bot.ReasonView(r))
	for name, r := range map[string]*approval.Request{
		"grant":        gatewayStates()["scopes"],
		"grant-agent":  gatewayStates()["scopes-agent"],
		"grant-reason": gatewayStates()["scopes-reason"],
		"grant-of-two": deletion(byGateway, scopes("15m"), twoOf),
	} {
		view := bot.GrantView(r, asked)
		for _, problem := range slacksim.LintView(view) {
			t.Errorf("Slack would refuse it: %s: %s", problem.Code, problem)
		}
		golden(t, "modal/"+name, view)
	}
	golden(t, "modal/why-confirmed", bot.WhyView(gatewayStates()["gateway-confirmed"]))
	golden(t, "modal/reason-of-two", bot.ReasonView(deletion(twoOf, reasonRequired)))
	golden(t, "modal/reason-redacted", bot.ReasonView(deletion(reasonRequired, redacted)))
	details, whole := bot.Details(r)
	checkDetails(t, r, details, whole)
	golden(t, "modal/details-with-reason", details)
	golden(t, "reminder/reminder", bot.Reminder(deletion(reminded), false, asked.Add(31*time.Minute)))
	golden(t, "reminder/call", bot.Reminder(deletion(twoOf, reminded), true, asked))
}

func TestDetailsOfCards(t *testing.T) {
	t.Parallel()
	for name, r := range allStates() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			view, whole := bot.Details(r)
			checkDetails(t, r, view, whole)
			if len(r.Payload) < 5000 {
				golden(t, "details/"+name, view)
			}
		})
	}
}

// fataler is a test or a property's check.
type fataler interface {
	Helper()
	Errorf(format string, values ...any)
	Fatalf(format string, values ...any)
}

// checkMessage checks a card against what Slack documents and what no card may
// do.
func checkMessage(t fataler, r *approval.Request, m bot.Rendered) {
	t.Helper()
	for _, problem := range slacksim.LintMessage(m.Blocks, m.Text) {
		t.Errorf("Slack would refuse it: %s: %s", problem.Code, problem)
	}
	p := parts(t, m.Blocks)
	if total := bot.Length(strings.Join(p.texts, "")); total > 13_000 {
		t.Errorf("the card has %d characters in all", total)
	}
	if n := utf8.RuneCountInString(m.Text); n == 0 || n > 1000 {
		t.Errorf("the notification has %d characters: %s", n, m.Text)
	}
	checkInert(t, p)
	final := r.Status != approval.Pending
	if !p.has("why") {
		t.Errorf("the card doesn't offer to explain, only %v", p.actions)
	}
	allowed := []string{"why"}
	if r.Status == approval.Approved {
		allowed = append(allowed, "revoke_approval")
	}
	if g := r.Grant; g != nil && g.Active(r.UpdatedAt) {
		allowed = append(allowed, "revoke")
	}
	if e := r.Execution; e != nil && r.Executor == approval.ByGateway && e.Outcome == approval.Unknown && !e.FinishedAt.IsZero() {
		allowed = append(allowed, "it_ran", "it_did_not_run")
	}
	if final && !sameButtons(p.actions, allowed) {
		t.Errorf("a decided card has the buttons %v, want %v", p.actions, allowed)
	}
	if p.has("approve_for") && (len(r.Scopes()) == 1 || !p.has("approve") && !p.has("approve_with_reason")) {
		t.Errorf("a card with the buttons %v offers to approve for more than %v", p.actions, r.Scopes())
	}
	if !final && (!p.has("reject") || !p.has("details")) {
		t.Errorf("a pending card has only the buttons %v", p.actions)
	}
	if takesReason := r.Ruling.Requirement.ReasonRequired; p.has("approve") && takesReason || p.has("approve_with_reason") && !takesReason {
		t.Errorf("the card has the buttons %v; a reason is required: %v", p.actions, takesReason)
	}
	if p.has("approve") || p.has("approve_with_reason") {
		// What can be approved on the card is on the card, to the last
		// character.
		if got, want := unspaced(p.preformatted), visible.Text(unspaced(string(r.Payload))); got != want && r.Ruling.Redactions.IsZero() {
			t.Errorf("Approve is on the card, which shows\n%q\nof\n%q", got, want)
		}
		for _, words := range []string{r.Action, r.Target, r.Environment, r.Purpose} {
			if shown := strings.Join(p.texts, "\n"); !strings.Contains(shown, visible.Line(words)) && !strings.Contains(shown, visible.Text(words)) {
				t.Errorf("Approve is on the card, which doesn't show %q", words)
			}
		}
	}
}

// sameButtons reports whether two lists of buttons hold the same.
func sameButtons(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}

func checkDetails(t fataler, r *approval.Request, view json.RawMessage, whole bool) {
	t.Helper()
	for _, problem := range slacksim.LintView(view) {
		t.Errorf("Slack would refuse it: %s: %s", problem.Code, problem)
	}
	var v struct {
		Blocks          json.RawMessage `json:"blocks"`
		Submit          *struct{}       `json:"submit"`
		CallbackID      string          `json:"callback_id"`
		PrivateMetadata string          `json:"private_metadata"`
	}
	if err := json.Unmarshal(view, &v); err != nil {
		t.Fatalf("reading the view: %v", err)
	}
	p := parts(t, v.Blocks)
	checkInert(t, p)
	if got, want := unspaced(p.preformatted), visible.Text(unspaced(string(r.Payload))); whole && got != want && r.Ruling.Redactions.IsZero() {
		t.Errorf("the modal says it is whole and shows\n%q\nof\n%q", got, want)
	}
	if offered := v.Submit != nil; offered != (whole && r.Status == approval.Pending) {
		t.Errorf("Approve is offered in the modal: %v; whole: %v; status %s", offered, whole, r.Status)
	} else if offered && (v.CallbackID != "approve" || v.PrivateMetadata != bot.Value(r)) {
		t.Errorf("the modal approves %q by %q", v.PrivateMetadata, v.CallbackID)
	}
}

// ours is all that may stand where Slack parses markup: our own words, mentions
// of people by id, and dates.
var ours = regexp.MustCompile(`^(?:[✅⛔⌛]|[A-Za-z ,.;:*_'-]|[0-9,]+ (?:more|seconds?|minutes?|hours?|times?)|<@[UW][A-Z0-9]+>|<!subteam\^S[A-Z0-9]+>|<!date\^[0-9]+\^\{date_short_pretty\} \{time\}\|[0-9]{1,2} [A-Z][a-z]{2} [0-9:]{5} UTC>)*$`)

// checkInert checks that nothing of the agent's stands where Slack parses
// markup.
func checkInert(t fataler, p blockParts) {
	t.Helper()
	for _, text := range p.markup {
		if !ours.MatchString(text) {
			t.Errorf("this stands in markup: %q", text)
		}
	}
	for _, text := range p.texts {
		for _, r := range strings.NewReplacer("⚠️", "", "✂️", "").Replace(text) {
			if r != '\n' && r != '\t' && !unicode.IsMark(r) && visible.Line(string(r)) != string(r) || unicode.Is(unicode.Variation_Selector, r) {
				t.Errorf("the character %U isn't shown as one: %q", r, text)
				break
			}
		}
	}
}

// viewBlocks are the blocks of a modal.
func viewBlocks(t fataler, view json.RawMessage) json.RawMessage {
	t.Helper()
	var v struct{ Blocks json.RawMessage }
	if err := json.Unmarshal(view, &v); err != nil {
		t.Fatalf("reading the view: %v", err)
	}
	return v.Blocks
}

// blockParts are the texts of blocks by how Slack shows them.
type blockParts struct {
	texts        []string
	markup       []string
	preformatted string
	code         []string
	actions      []string
}

func (p blockParts) has(action string) bool {
	for _, a := range p.actions {
		if a == action {
			return true
		}
	}
	return false
}

// decides reports whether one of the buttons leads to a decision.
func (p blockParts) decides() bool {
	return p.has("approve") || p.has("approve_with_reason") || p.has("reject") || p.has("details")
}

func parts(t fataler, blocks json.RawMessage) blockParts {
	t.Helper()
	var value any
	if err := json.Unmarshal(blocks, &value); err != nil {
		t.Fatalf("reading the blocks: %v", err)
	}
	var p blockParts
	p.walk(value, false)
	return p
}

func (p *blockParts) walk(value any, preformatted bool) {
	switch v := value.(type) {
	case []any:
		for _, item := range v {
			p.walk(item, preformatted)
		}
	case map[string]any:
		kind, _ := v["type"].(string)
		if text, ok := v["text"].(string); ok {
			p.texts = append(p.texts, text)
			if kind == "mrkdwn" {
				p.markup = append(p.markup, text)
			}
			if preformatted {
				p.preformatted += text
			}
			if style, ok := v["style"].(map[string]any); ok && style["code"] == true {
				p.code = append(p.code, text)
			}
		}
		if action, ok := v["action_id"].(string); ok && kind == "button" {
			p.actions = append(p.actions, action)
		}
		for _, key := range []string{"text", "elements", "confirm", "title", "element", "label", "accessory", "fields"} {
			p.walk(v[key], preformatted || kind == "rich_text_preformatted")
		}
	}
}

// Whatever an agent asks, in whatever state: Slack takes the card and the modal,
// nothing of the agent's is parsed, and Approve stands only where all is shown.
func TestAnyRequestCanBeShown(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		r := anyRequest(t)
		checkMessage(t, r, bot.Card(r))
		checkMessage(t, r, bot.Minimal(r))
		view, whole := bot.Details(r)
		checkDetails(t, r, view, whole)
		for name, view := range map[string]json.RawMessage{
			"Reject":          bot.RejectView(r, true),
			"unfilled Reject": bot.RejectView(r, false),
			"Approve…":        bot.ReasonView(r),
			"Approve for…":    bot.GrantView(deletion(scopes("15m")), asked),
			"Why am I asked?": bot.WhyView(r),
		} {
			for _, problem := range slacksim.LintView(view) {
				t.Errorf("Slack would refuse the %s modal: %s", name, problem)
			}
			checkInert(t, parts(t, viewBlocks(t, view)))
		}
		for _, call := range []bool{false, true} {
			reminder := bot.Reminder(r, call, asked.Add(time.Hour))
			for _, problem := range slacksim.LintMessage(reminder.Blocks, reminder.Text) {
				t.Errorf("Slack would refuse the reminder: %s", problem)
			}
			checkInert(t, parts(t, reminder.Blocks))
		}
		for _, err := range []error{
			nil, approval.ErrRecorded, approval.ErrNotApprover, approval.ErrSelf, approval.ErrIneligible, approval.ErrUnverified,
			approval.ErrStale, approval.ErrDecided, approval.ErrApplied, approval.ErrExpired, approval.ErrNotFound,
			approval.ErrReasonRequired, approval.ErrSuperseded, approval.ErrNoGrant, approval.ErrKnown,
			&approval.InputError{Field: "scope", Problem: "is not offered"},
		} {
			text, known := bot.Answer(approval.Approve, r, err)
			if !known {
				t.Errorf("no answer for %v", err)
			}
			if text == "" {
				continue
			}
			for _, problem := range slacksim.LintView(bot.AnswerView(text)) {
				t.Errorf("Slack would refuse the answer %q: %s", text, problem)
			}
		}
	})
}

func clipped(t *rapid.T, name string, limit int) string {
	text := []rune(nastyText().Draw(t, name))
	return string(text[:min(len(text), limit)])
}

func anyRequest(t *rapid.T) *approval.Request {
	r := deletion()
	r.Purpose = clipped(t, "purpose", approval.MaxPurpose) + "."
	r.Action = clipped(t, "action", approval.MaxAction)
	r.Target = clipped(t, "target", approval.MaxTarget)
	r.Environment = rapid.SampledFrom([]string{"", "production", clipped(t, "environment", approval.MaxEnvironment)}).Draw(t, "which environment")
	r.Payload = approval.Payload(jsonText().Draw(t, "payload"))
	r.StatedCount = rapid.SampledFrom([]*int64{nil, pointer[int64](0), pointer[int64](1), pointer[int64](214), pointer[int64](math.MaxInt64)}).Draw(t, "count")
	for range rapid.IntRange(0, 5).Draw(t, "rules") {
		r.Ruling.Rules = append(r.Ruling.Rules, policy.FiredRule{ID: "x", Why: clipped(t, "why", 300)})
	}
	r.Ruling.Tier = policy.Tier(rapid.IntRange(1, 5).Draw(t, "tier"))
	r.Ruling.Requirement.ReasonRequired = rapid.Bool().Draw(t, "a reason is required")
	r.Ruling.ApplyWithin = time.Duration(rapid.Int64Range(0, int64(25*time.Hour)).Draw(t, "apply within"))
	r.Explanation = rapid.SampledFrom([]string{"", explanation, clipped(t, "explanation", 20_000)}).Draw(t, "which explanation")
	r.Ruling.Escalation = policy.Escalation{After: time.Minute, To: "sre", Users: slices.Repeat([]string{"U0ADA"}, rapid.IntRange(0, 100).Draw(t, "called")), Groups: []string{"S0FINANCE"}}
	needed := rapid.IntRange(1, policy.MaxPeople).Draw(t, "needed")
	r.Ruling.Requirement.Roles = []policy.RoleCount{{Role: "finance", Count: needed, AllowSelf: rapid.Bool().Draw(t, "self-approval")}}
	for range rapid.IntRange(0, 3).Draw(t, "editors") {
		r.Editors = append(r.Editors, grace)
	}
	for i := range rapid.IntRange(0, needed).Draw(t, "votes") {
		vote(approval.Approver{Workspace: "T0DEMO", User: "U0" + strings.Repeat("A", i+1)}, approval.Approve, "finance", clipped(t, "reason to approve", approval.MaxReason))(r)
		r.Decisions[i].Own = rapid.Bool().Draw(t, "own")
	}
	reason := clipped(t, "reason", approval.MaxReason)
	switch rapid.IntRange(0, 4).Draw(t, "what then") {
	case 0:
		if r.Status == approval.Pending {
			vote(ada, approval.Reject, "finance", reason)(r)
		}
	case 1:
		expired(r)
	case 2:
		if r.Status == approval.Approved {
			r.Status = approval.Applied
			r.Execution = &approval.Execution{StartedAt: asked, FinishedAt: asked, Outcome: approval.Failed, Detail: reason}
		}
	case 3:
		if r.Status == approval.Approved {
			r.Status, r.Reason, r.ClosedAt = approval.Rejected, "Superseded.", asked
		}
	}
	anyRun(t, r)
	return r
}

// anyRun makes of some requests ones of the gateway, with what only those have.
func anyRun(t *rapid.T, r *approval.Request) {
	r.Ruling.Scopes = rapid.SampledFrom([][]string{nil, {"once"}, {"15m"}, {"session", "90s", "8h"}}).Draw(t, "scopes")
	r.Ruling.Target = r.Target
	if len(r.Decisions) > 0 && len(r.Scopes()) > 1 {
		r.Decisions[0].Scope = r.Scopes()[1]
		if r.Status == approval.Approved || r.Status == approval.Applied {
			grants(r.Scopes()[1], 15*time.Minute)(r)
			r.Grant.Uses = rapid.IntRange(0, 2000).Draw(t, "uses")
			if rapid.Bool().Draw(t, "revoked") {
				revoked(rapid.SampledFrom([]string{"operator:<!here>", "slack:T0DEMO/U0ADA", "slack:T0DEMO/<!here>", "x"}).Draw(t, "by"))(r)
			}
		}
	}
	if rapid.Bool().Draw(t, "by an agent") {
		return
	}
	r.Executor, r.Session = approval.ByGateway, "s"
	r.ToolPin = clipped(t, "pin", 64)
	r.Unpinned = rapid.Bool().Draw(t, "unpinned")
	if r.Status == approval.Pending && rapid.IntRange(0, 5).Draw(t, "without a person") == 0 && len(r.Decisions) == 0 {
		nobody(rapid.SampledFrom([]approval.Surface{approval.Policy, approval.InBand, approval.Granted}).Draw(t, "surface"),
			rapid.SampledFrom([]approval.Verdict{approval.Approve, approval.Reject}).Draw(t, "verdict"), clipped(t, "why so", 300))(r)
	}
	if r.Status == approval.Approved && rapid.Bool().Draw(t, "begun") {
		begun(r)
	}
	if r.Status == approval.Applied && rapid.Bool().Draw(t, "ended") {
		ran(rapid.SampledFrom([]approval.Outcome{approval.Unknown, approval.Succeeded, approval.Failed}).Draw(t, "outcome"), clipped(t, "detail", approval.MaxReason))(r)
		if r.Execution.Outcome == approval.Unknown && rapid.Bool().Draw(t, "settled") {
			settled(grace, approval.Failed)(r)
		}
	}
}

// The minimal card leads to Details, but promises no Approve that isn't there.
func TestMinimalCardOfWhatFitsNowhere(t *testing.T) {
	t.Parallel()
	small := strings.Join(parts(t, bot.Minimal(deletion()).Blocks).texts, "")
	if !strings.Contains(small, "Details has all of it") {
		t.Errorf("the minimal card of what Details holds says %q", small)
	}
	large := strings.Join(parts(t, bot.Minimal(deletion(payload(`["`+strings.Repeat("<&>", 80_000)+`"]`))).Blocks).texts, "")
	if strings.Contains(large, "Details has all of it") || !strings.Contains(large, "can't be approved here") {
		t.Errorf("the minimal card of what fits nowhere says %q", large)
	}
}

// Block ids change with each revision, as Slack asks for updates.
func TestBlockIDsChange(t *testing.T) {
	t.Parallel()
	ids := func(r *approval.Request) map[string]bool {
		var blocks []struct {
			ID string `json:"block_id"`
		}
		if err := json.Unmarshal(bot.Card(r).Blocks, &blocks); err != nil {
			t.Fatal(err)
		}
		all := make(map[string]bool)
		for _, block := range blocks {
			if block.ID == "" || all[block.ID] {
				t.Errorf("the block id %q is empty or used twice", block.ID)
			}
			all[block.ID] = true
		}
		return all
	}
	first, second := ids(deletion()), ids(deletion(twoOf, vote(ada, approval.Approve, "oncall", "")))
	for id := range first {
		if second[id] {
			t.Errorf("the block id %s is the same in the next revision", id)
		}
	}
}
