package presentation

import (
	"cmp"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/internal/visible"
)

// Limits are how much of an agent's words a place shows. Zero values are no limit.
type Limits struct {
	// Cut shortens a text that is longer than limit, as the place counts, and
	// reports whether it did. It must be set if any limit is.
	Cut                         func(text string, limit int) (string, bool)
	Action, Target, Environment int
	ListName                    int
	Lists                       int // how many lists of the payload are named
	Why                         int // of each rule's reason
	Rules                       int // how many rules are named
	Purpose, PurposeLines       int
	Tool                        bool // whether the tool's definition is named
}

// Facts are what a request asks for, in the order in which they decide.
type Facts struct {
	r      *approval.Request
	limits Limits
	// Whole is false once anything of the agent's was left out.
	Whole bool
}

// NewFacts returns the facts of a request within limits.
func NewFacts(r *approval.Request, limits Limits) *Facts {
	return &Facts{r: r, limits: limits, Whole: true}
}

// shorten is a text within a limit, and whether anything was left out.
func (f *Facts) shorten(text string, limit int) (string, bool) {
	if limit == 0 {
		return text, false
	}
	return f.limits.Cut(text, limit)
}

// cut shortens an agent's one-line words and notes that.
func (f *Facts) cut(text string, limit int) string {
	short, less := f.shorten(visible.Line(text), limit)
	if less {
		f.Whole = false
	}
	return short
}

// stated is an agent's word, or what is said if there is none.
func (f *Facts) stated(text string, limit int, otherwise string) Line {
	var l Line
	if text == "" {
		l.Text(otherwise)
	} else {
		l.Code(f.cut(text, limit))
	}
	return l
}

// Fact is one of the facts.
type Fact struct {
	Name  string
	Value Line
}

// List is the facts, the tier with its reasons, and who asked.
func (f *Facts) List() []Fact {
	r := f.r
	facts := []Fact{
		{"Action", f.stated(r.Action, f.limits.Action, "not stated")},
		{"Target", f.stated(r.Target, f.limits.Target, f.noTarget())},
		{"Environment", f.stated(r.Environment, f.limits.Environment, "not stated, treated as production")},
		{"Count", f.count()},
		{"Reversible", reversible(r)},
		{"Why asked", f.why()},
		{"Agent", agent(r)},
	}
	if f.limits.Tool && r.Executor == approval.ByGateway {
		facts = append(facts, f.tool()...)
	}
	return facts
}

// agent says who asked, and for whom.
func agent(r *approval.Request) Line {
	var l Line
	l.Text(visible.Line(r.Agent))
	if !r.ActsFor.IsZero() {
		l.Text(", acting for ")
		l.Person(r.ActsFor)
	}
	return l
}

func reversible(r *approval.Request) Line {
	var l Line
	switch {
	case r.Reversible == nil:
		l.Text("not stated")
	case *r.Reversible:
		l.Text("yes, says " + stater(r))
	default:
		l.Text("no, says " + stater(r))
	}
	return l
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
func (f *Facts) noTarget() string {
	if f.r.Executor == approval.ByGateway {
		return "the policy doesn't say"
	}
	return "not stated"
}

// tool says what the gateway would call, and which definition of it was read.
func (f *Facts) tool() []Fact {
	r := f.r
	var facts []Fact
	if server, tool, ok := strings.Cut(r.Action, "."); ok {
		facts = append(facts,
			Fact{"Server", f.stated(server, f.limits.Action, "not stated")},
			Fact{"Tool", f.stated(tool, f.limits.Action, "not stated")})
	}
	var pin Line
	pin.Code(f.pin())
	if r.Unpinned {
		pin.Text(", which isn't the one that was pinned")
	}
	facts = append(facts, Fact{"Tool pin", pin})
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
		facts = append(facts, Fact{"The tool says", Line{{Text: strings.Join(hints, ", ") + ". Nobody checks that."}}})
	}
	return facts
}

// pin is the beginning of what names the tool's definition.
func (f *Facts) pin() string {
	if f.r.ToolPin == "" {
		return "not recorded"
	}
	text, _ := visible.Cut(visible.Line(f.r.ToolPin), 12)
	return text
}

// why says which tier the action has and which rules led to that, in short:
// what it leaves out is behind the button of the same name.
func (f *Facts) why() Line {
	rules := f.r.Ruling.Rules
	tier := f.r.Ruling.Tier.String()
	var reasons []string
	changed := false
	for i, rule := range rules {
		if f.limits.Rules > 0 && i == f.limits.Rules {
			reasons = append(reasons, "And "+Counted(int64(len(rules)-i), "more reason")+".")
			break
		}
		if rule.Why != "" {
			reason, _ := f.shorten(visible.Line(rule.Why), f.limits.Why)
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
		reasons = append([]string{Capital(tier) + "."}, reasons...)
	}
	return Line{{Text: strings.Join(reasons, " ")}}
}

// count says how many things the action touches, in digits: what the agent
// stated, and what the payload's own lists say.
func (f *Facts) count() Line {
	var l Line
	lists := longestFirst(f.r)
	ruled, more := ruledCount(f.r, lists)
	switch stated := f.r.StatedCount; {
	case more && stated == nil && len(lists) == 0:
		l.Strong(Digits(ruled))
		l.Text(" counted by the policy")
		return l
	case more && stated != nil && len(lists) == 0:
		l.Text("⚠️ ")
		l.Strong(Digits(*stated))
		l.Text(" stated" + beforeEdit(f.r))
	case stated != nil && len(lists) == 0:
		l.Strong(Digits(*stated))
		l.Text(" stated" + beforeEdit(f.r))
	case stated != nil:
		if more || contradicted(*stated, lists) {
			l.Text("⚠️ ")
		}
		l.Strong(Digits(*stated))
		l.Text(" stated" + beforeEdit(f.r) + " · ")
		f.lists(&l, lists)
	case len(lists) == 0:
		l.Text("not stated")
	case len(lists) == 1:
		l.Strong(Digits(int64(lists[0].Length)))
		l.Text(" (")
		f.listName(&l, lists[0])
		l.Text(" in the arguments)")
	default:
		l.Text("not stated · ")
		f.lists(&l, lists)
	}
	if more {
		l.Text(" · ")
		l.Strong(Digits(ruled))
		l.Text(" counted by the policy")
	}
	return l
}

// beforeEdit follows what the agent stated of arguments that somebody has edited
// since.
func beforeEdit(r *approval.Request) string {
	if r.Version > 1 {
		return " before the edit"
	}
	return ""
}

// ruledCount is on how many things the policy found that the request acts, if that
// is more than what is stated and what its lists show.
func ruledCount(r *approval.Request, lists []approval.Listed) (int64, bool) {
	const exact = 1 << 53 // up to here a float64 holds each whole number
	count := r.Ruling.Count
	if !count.Known || count.Value >= exact || count.Value != math.Trunc(count.Value) {
		return 0, false
	}
	n := int64(count.Value)
	if r.StatedCount != nil && n <= *r.StatedCount || len(lists) > 0 && n <= int64(lists[0].Length) || n < 1 {
		return 0, false
	}
	return n, true
}

// lists counts the payload's lists. What it leaves out is not left out of the
// arguments.
func (f *Facts) lists(l *Line, lists []approval.Listed) {
	for i, list := range lists {
		if f.limits.Lists > 0 && i == f.limits.Lists {
			l.Text(" and " + Counted(int64(len(lists)-i), "more list"))
			return
		}
		if i > 0 {
			l.Text(", ")
		}
		l.Strong(Digits(int64(list.Length)))
		l.Text(" listed (")
		f.listName(l, list)
		l.Text(")")
	}
}

// listName is an agent's word too, so it must not read as one of ours.
func (f *Facts) listName(l *Line, list approval.Listed) {
	if list.Name == "" {
		l.Text("items")
		return
	}
	short, _ := f.shorten(visible.Line(list.Name), f.limits.ListName)
	l.Code(short)
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

// Purpose is the agent's own words, labelled as such, or what the gateway put in
// their place.
func (f *Facts) Purpose() (label Line, words string) {
	words = visible.Text(f.r.Purpose)
	if most := f.limits.PurposeLines; most > 0 {
		if lines := strings.SplitAfterN(words, "\n", most+1); len(lines) > most {
			words = strings.Join(lines[:most], "") + "…"
			f.Whole = false
		}
	}
	words, less := f.shorten(words, f.limits.Purpose)
	if less {
		f.Whole = false
	}
	label.Strong("Purpose")
	if f.r.Executor == approval.ByGateway {
		label.Text(", filled in by the gateway; the agent gave none")
	} else {
		label.Text(", in the agent's words")
	}
	return label, words
}

// Unpinned warns of a tool that isn't what was accepted.
const Unpinned = "The tool's definition has changed since it was pinned"

// Warnings are about a changed tool and about texts that may not be what they look
// like: a line for each kind, with the places and the first example. The arguments
// are the Source of those that may be shown.
func Warnings(r *approval.Request, arguments string) []Line {
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
	var warnings []Line
	if r.Unpinned {
		warnings = append(warnings, Line{{Kind: Strong, Text: Unpinned}})
	}
	for _, kind := range []visible.Kind{visible.HiddenCharacters, visible.MixedAlphabets, visible.UnusualDigits} {
		if in[kind] == nil {
			continue
		}
		var l Line
		l.Strong(Capital(string(kind)))
		l.Text(" in " + strings.Join(in[kind], ", ") + ": ")
		l.Code(example[kind])
		warnings = append(warnings, l)
	}
	if escape, letter := escapedLetter(arguments); escape != "" {
		var l Line
		l.Strong("Escaped letters")
		l.Text(" in arguments: ")
		l.Code(escape)
		l.Text(" is ")
		l.Code(letter)
		warnings = append(warnings, l)
	}
	return warnings
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

// Capital writes the first letter, which is ASCII, as a capital.
func Capital(text string) string { return strings.ToUpper(text[:1]) + text[1:] }

// Phrase is the action and, to follow it, its count. The count must never be cut.
func Phrase(r *approval.Request) (action, count string) {
	action = r.Action
	if action == "" {
		action = "an action without a name"
	}
	lists := longestFirst(r)
	ruled, more := ruledCount(r, lists)
	switch {
	case more && r.StatedCount != nil:
		count = " on " + Digits(*r.StatedCount) + " stated, " + Counted(ruled, "record") + " counted"
	case more:
		count = " on " + Counted(ruled, "record")
	case r.StatedCount != nil && contradicted(*r.StatedCount, lists):
		count = " on " + Digits(*r.StatedCount) + " stated, " + Counted(int64(lists[0].Length), "record") + " listed"
	case r.StatedCount != nil && r.Version > 1:
		count = " on " + Digits(*r.StatedCount) + " stated" + beforeEdit(r)
	case r.StatedCount != nil:
		count = " on " + Counted(*r.StatedCount, "record")
	case len(lists) == 1:
		count = " on " + Counted(int64(lists[0].Length), "record")
	}
	return visible.Line(action), count
}

// ShortCount is the count alone, for where nothing else fits.
func ShortCount(r *approval.Request) string {
	lists := longestFirst(r)
	ruled, more := ruledCount(r, lists)
	switch {
	case more && r.StatedCount != nil:
		return "⚠️ " + Digits(*r.StatedCount) + " stated · " + Digits(ruled) + " counted"
	case more:
		return Digits(ruled)
	case r.StatedCount != nil && contradicted(*r.StatedCount, lists):
		return "⚠️ " + Digits(*r.StatedCount) + " stated · " + Digits(int64(lists[0].Length)) + " listed"
	case r.StatedCount != nil:
		return Digits(*r.StatedCount)
	case len(lists) == 1:
		return Digits(int64(lists[0].Length))
	default:
		return "not stated"
	}
}

// plainName is a short name that stands the same everywhere, whatever a place may
// parse. Without spaces it can't read as a sentence.
var plainName = regexp.MustCompile(`^[A-Za-z0-9._-]{1,24}$`)

// Environment names where the action runs, for headings and lock screens, where
// it stands beside our own words. The exact name is among the facts.
func Environment(r *approval.Request) string {
	switch {
	case r.Environment == "":
		return "production, not stated"
	case !plainName.MatchString(r.Environment):
		return "unusual environment"
	default:
		return r.Environment
	}
}
