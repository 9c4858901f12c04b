package bot

import (
	"cmp"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/slack-go/slack"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/internal/visible"
)

// budget is how much of an agent's words a place shows, in characters as Slack
// counts them.
type budget struct {
	action, target, environment int
	listName                    int
	lists                       int // how many lists of the payload are named
	why                         int // of each rule's reason
	rules                       int // how many rules are named
	purpose, purposeLines       int
	tool                        bool // whether the tool's definition is named
}

// cardBudget keeps everything that decides above the buttons on a phone.
// detailsBudget holds everything that a request can hold, so that nothing is
// cut there: an escape such as \u{10ffff} is ten characters of one.
var (
	cardBudget = budget{
		action: 200, target: 300, environment: 60,
		listName: 40, lists: 3,
		why: 200, rules: 3,
		purpose: 500, purposeLines: 8,
	}
	detailsBudget = budget{
		action: 10 * approval.MaxAction, target: 10 * approval.MaxTarget, environment: 10 * approval.MaxEnvironment,
		listName: 200, lists: 20,
		why: 2000, rules: 1000,
		purpose: 10 * approval.MaxPurpose, purposeLines: approval.MaxPurpose + 1,
		tool: true,
	}
)

// facts are what a request asks for, in the order in which they decide.
type facts struct {
	r      *approval.Request
	budget budget
	// whole is false once anything of the agent's was left out.
	whole bool
}

func newFacts(r *approval.Request, b budget) *facts { return &facts{r: r, budget: b, whole: true} }

// cut shortens an agent's one-line words and notes that.
func (f *facts) cut(text string, limit int) string {
	short, less := cut(visible.Line(text), limit)
	if less {
		f.whole = false
	}
	return short
}

// stated is an agent's word in code style, or what is said if there is none.
func (f *facts) stated(l *line, text string, limit int, otherwise string) {
	if text == "" {
		l.text(otherwise)
		return
	}
	l.code(f.cut(text, limit))
}

// lines are the facts, the tier with its reasons, and who asked.
func (f *facts) lines() slack.RichTextElement {
	r := f.r
	var l line
	l.label("Action")
	f.stated(&l, r.Action, f.budget.action, "not stated")
	l.label("Target")
	f.stated(&l, r.Target, f.budget.target, f.noTarget())
	l.label("Environment")
	f.stated(&l, r.Environment, f.budget.environment, "not stated, treated as production")
	l.label("Count")
	f.count(&l)
	l.label("Reversible")
	switch {
	case r.Reversible == nil:
		l.text("not stated")
	case *r.Reversible:
		l.text("yes, says " + stater(r))
	default:
		l.text("no, says " + stater(r))
	}
	l.label("Why asked")
	f.why(&l)
	l.label("Agent")
	l.text(visible.Line(r.Agent))
	if !r.ActsFor.IsZero() {
		l.text(", acting for ")
		l.person(r.ActsFor)
	}
	if f.budget.tool && r.Executor == approval.ByGateway {
		f.tool(&l)
	}
	return l.section()
}

// stater is who states what is stated of a request.
func stater(r *approval.Request) string {
	if r.Executor == approval.ByGateway {
		return "the tool"
	}
	return "the agent"
}

// noTarget is what stands in place of a target. What the gateway runs has the
// one that the policy works out, and no other.
func (f *facts) noTarget() string {
	if f.r.Executor == approval.ByGateway {
		return "the policy doesn't say"
	}
	return "not stated"
}

// tool says what the gateway would call, and which definition of it was read.
func (f *facts) tool(l *line) {
	r := f.r
	if server, tool, ok := strings.Cut(r.Action, "."); ok {
		l.label("Server")
		f.stated(l, server, f.budget.action, "not stated")
		l.label("Tool")
		f.stated(l, tool, f.budget.action, "not stated")
	}
	l.label("Tool pin")
	l.code(f.pin())
	if r.Unpinned {
		l.text(", which isn't the one that was pinned")
	}
	var hints []string
	for _, hint := range []struct {
		stated  *bool
		yes, no string
	}{
		{r.Hints.ReadOnly, "only reads", "doesn't only read"},
		{r.Hints.Destructive, "may destroy", "destroys nothing"},
		{r.Hints.Idempotent, "a second time changes nothing", "a second time changes something"},
		{r.Hints.OpenWorld, "reaches outside", "stays inside"},
	} {
		switch {
		case hint.stated == nil:
		case *hint.stated:
			hints = append(hints, hint.yes)
		default:
			hints = append(hints, hint.no)
		}
	}
	if len(hints) > 0 {
		l.label("The tool says")
		l.text(strings.Join(hints, ", ") + ". Nobody checks that.")
	}
}

// pin is the beginning of what names the tool's definition.
func (f *facts) pin() string {
	if f.r.ToolPin == "" {
		return "not recorded"
	}
	text, _ := visible.Cut(visible.Line(f.r.ToolPin), 12)
	return text
}

// why says which tier the action has and which rules led to that, in short:
// what it leaves out is behind the button of the same name.
func (f *facts) why(l *line) {
	rules := f.r.Ruling.Rules
	tier := f.r.Ruling.Tier.String()
	var reasons []string
	changed := false
	for i, rule := range rules {
		if i == f.budget.rules {
			reasons = append(reasons, "And "+counted(int64(len(rules)-i), "more reason")+".")
			break
		}
		if rule.Why != "" {
			reason, _ := cut(visible.Line(rule.Why), f.budget.why)
			reasons = append(reasons, reason)
		}
		changed = changed || rule.RaiseTo != 0 || rule.LowerTo != 0
	}
	switch {
	case len(rules) > 0 && strings.Contains(rules[0].Why, tier):
		// The first reason says it.
	case changed:
		reasons = append(reasons, "So it is "+tier+".")
	default:
		reasons = append([]string{capital(tier) + "."}, reasons...)
	}
	l.text(strings.Join(reasons, " "))
}

// count says how many things the action touches, in digits: what the agent
// stated, and what the payload's own lists say.
func (f *facts) count(l *line) {
	lists := longestFirst(f.r)
	switch stated := f.r.StatedCount; {
	case stated != nil && len(lists) == 0:
		l.bold(digits(*stated))
		l.text(" stated")
	case stated != nil:
		if contradicted(*stated, lists) {
			l.text("⚠️ ")
		}
		l.bold(digits(*stated))
		l.text(" stated · ")
		f.lists(l, lists)
	case len(lists) == 0:
		l.text("not stated")
	case len(lists) == 1:
		l.bold(digits(int64(lists[0].Length)))
		l.text(" (")
		f.listName(l, lists[0])
		l.text(" in the arguments)")
	default:
		l.text("not stated · ")
		f.lists(l, lists)
	}
}

// lists counts the payload's lists. What it leaves out is not left out of the
// arguments.
func (f *facts) lists(l *line, lists []approval.Listed) {
	for i, list := range lists {
		if i == f.budget.lists {
			l.text(" and " + counted(int64(len(lists)-i), "more list"))
			return
		}
		if i > 0 {
			l.text(", ")
		}
		l.bold(digits(int64(list.Length)))
		l.text(" listed (")
		f.listName(l, list)
		l.text(")")
	}
}

// listName is an agent's word too, so it must not read as one of ours.
func (f *facts) listName(l *line, list approval.Listed) {
	if list.Name == "" {
		l.text("items")
		return
	}
	short, _ := cut(visible.Line(list.Name), f.budget.listName)
	l.code(short)
}

// longestFirst are the payload's lists, so that short ones can't hide the one
// that counts.
func longestFirst(r *approval.Request) []approval.Listed {
	lists := r.Payload.Lists()
	if r.Ruling.Redactions.Hide(nil) {
		// The names are part of what is hidden.
		for i := range lists {
			lists[i].Name = ""
		}
	}
	slices.SortStableFunc(lists, func(a, b approval.Listed) int { return cmp.Compare(b.Length, a.Length) })
	return lists
}

// contradicted reports whether the longest of the payload's lists, the first,
// has another length than stated. A shorter list of that length excuses
// nothing.
func contradicted(stated int64, lists []approval.Listed) bool {
	return len(lists) > 0 && int64(lists[0].Length) != stated
}

// purpose is the agent's own words, labelled as such, or what the gateway put in
// their place.
func (f *facts) purpose() []slack.RichTextElement {
	text := visible.Text(f.r.Purpose)
	if lines := strings.SplitAfterN(text, "\n", f.budget.purposeLines+1); len(lines) > f.budget.purposeLines {
		text = strings.Join(lines[:f.budget.purposeLines], "") + "…"
		f.whole = false
	}
	text, less := cut(text, f.budget.purpose)
	if less {
		f.whole = false
	}
	var l line
	l.bold("Purpose")
	if f.r.Executor == approval.ByGateway {
		l.text(", filled in by the gateway; the agent gave none")
	} else {
		l.text(", in the agent's words")
	}
	elements := []slack.RichTextElement{l.section()}
	for _, part := range (arguments{text: text}).chunks() {
		elements = append(elements, quote(part))
	}
	return elements
}

// unpinned warns of a tool that isn't what was accepted.
const unpinned = "The tool's definition has changed since it was pinned"

// badges warn of a changed tool and of texts that may not be what they look like: a line for each
// kind, with the places and the first example. The arguments are those that may
// be shown.
func badges(r *approval.Request, arguments string) (line, bool) {
	places := []struct{ name, text string }{
		{"action", r.Action},
		{"target", r.Target},
		{"environment", r.Environment},
		{"arguments", arguments},
		{"purpose", r.Purpose},
	}
	in := make(map[visible.Kind][]string)
	example := make(map[visible.Kind]string)
	for _, place := range places {
		for _, finding := range visible.Suspicious(place.text) {
			if in[finding.Kind] == nil {
				example[finding.Kind] = finding.Example
			}
			in[finding.Kind] = append(in[finding.Kind], place.name)
		}
	}
	var l line
	if r.Unpinned {
		l.text("⚠️ ")
		l.bold(unpinned)
	}
	for _, kind := range []visible.Kind{visible.HiddenCharacters, visible.MixedAlphabets, visible.UnusualDigits} {
		if in[kind] == nil {
			continue
		}
		if len(l) > 0 {
			l.text("\n")
		}
		l.text("⚠️ ")
		l.bold(capital(string(kind)))
		l.text(" in " + strings.Join(in[kind], ", ") + ": ")
		l.code(example[kind])
	}
	if escape, letter := escapedLetter(arguments); escape != "" {
		if len(l) > 0 {
			l.text("\n")
		}
		l.text("⚠️ ")
		l.bold("Escaped letters")
		l.text(" in arguments: ")
		l.code(escape)
		l.text(" is ")
		l.code(letter)
	}
	return l, len(l) > 0
}

// escapedLetter returns the first escape in a JSON text that stands for a
// letter or digit of ASCII, and that letter. Nothing needs those, and they hide
// words from a reader. Encoders do escape signs such as < and &.
func escapedLetter(text string) (escape, letter string) {
	for i := strings.IndexByte(text, '\\'); i >= 0 && i+6 <= len(text); {
		if text[i+1] == 'u' {
			value, err := strconv.ParseUint(text[i+2:i+6], 16, 16)
			if c := rune(value); err == nil && c < utf8.RuneSelf && (unicode.IsLetter(c) || unicode.IsDigit(c)) {
				return text[i : i+6], string(c)
			}
		}
		// What follows a backslash starts no escape of its own.
		next := strings.IndexByte(text[i+2:], '\\')
		if next < 0 {
			break
		}
		i += 2 + next
	}
	return "", ""
}

// capital writes the first letter, which is ASCII, as a capital.
func capital(text string) string { return strings.ToUpper(text[:1]) + text[1:] }

// summary is the action with its count in one phrase, for the notification and
// for the confirmation. The count is never cut.
func summary(r *approval.Request, limit int) string {
	action, count := phrase(r, limit)
	return action + count
}

// phrase is a summary in two parts.
func phrase(r *approval.Request, limit int) (action, count string) {
	action = r.Action
	if action == "" {
		action = "an action without a name"
	}
	lists := longestFirst(r)
	switch {
	case r.StatedCount != nil && contradicted(*r.StatedCount, lists):
		count = " on " + digits(*r.StatedCount) + " stated, " + counted(int64(lists[0].Length), "record") + " listed"
	case r.StatedCount != nil:
		count = " on " + counted(*r.StatedCount, "record")
	case len(lists) == 1:
		count = " on " + counted(int64(lists[0].Length), "record")
	}
	action, _ = cut(visible.Line(action), max(limit-len(count), 20))
	return action, count
}

// plainName is a short name that stands the same everywhere, whatever Slack may
// parse. Without spaces it can't read as a sentence.
var plainName = regexp.MustCompile(`^[A-Za-z0-9._-]{1,24}$`)

// environment names where the action runs, for headings and lock screens, where
// it stands beside our own words. The exact name is among the facts.
func environment(r *approval.Request) string {
	switch {
	case r.Environment == "":
		return "production, not stated"
	case !plainName.MatchString(r.Environment):
		return "unusual environment"
	default:
		return r.Environment
	}
}
