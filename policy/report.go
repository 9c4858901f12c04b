package policy

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/countersign/countersign/internal/visible"
)

// Report is what came of running cases.
type Report struct {
	Results  []Result // in the order of the cases
	Coverage Coverage
}

// Result is what came of one case.
type Result struct {
	Case   Case
	Ruling Ruling
	// Mismatches are in what the ruling isn't as expected; none if the case
	// passed.
	Mismatches []Mismatch
}

// Passed reports whether the ruling is as expected.
func (r Result) Passed() bool { return len(r.Mismatches) == 0 }

// Mismatch is one thing that isn't as expected, in words.
type Mismatch struct {
	What string // "effect", "tier", …
	Want string
	Got  string
}

// Failed is how many cases didn't pass.
func (r Report) Failed() int {
	failed := 0
	for _, result := range r.Results {
		if !result.Passed() {
			failed++
		}
	}
	return failed
}

// Test rules the call of each case and compares the ruling with what the case
// expects.
func (p *Policy) Test(cases []Case) Report {
	report := Report{Results: make([]Result, 0, len(cases))}
	coverage := p.coverage()
	for _, c := range cases {
		x := p.Explain(c.Call)
		report.Results = append(report.Results, Result{
			Case:       c,
			Ruling:     x.Ruling,
			Mismatches: c.Want.mismatches(x.Ruling, c.Call.Payload),
		})
		coverage.add(c.Call, x)
	}
	report.Coverage = Coverage{Items: coverage.items}
	return report
}

// mismatches compares a ruling with what is expected of it.
func (want Expectation) mismatches(got Ruling, payload []byte) []Mismatch {
	var found []Mismatch
	differ := func(what, wanted, is string) {
		if wanted != is {
			found = append(found, Mismatch{What: what, Want: wanted, Got: is})
		}
	}
	differ("effect", string(want.Effect), string(got.Effect))
	if want.Tier != 0 {
		differ("tier", want.Tier.String(), got.Tier.String())
	}
	if want.Class != "" {
		differ("class", want.Class, got.Rules[0].ID)
	}
	if want.Rules != nil {
		var ids []string
		for _, rule := range got.Rules[1:] {
			ids = append(ids, rule.ID)
		}
		differ("rules", list(want.Rules), list(ids))
	}
	if want.Requires != nil {
		differ("requires", requirementText(want.Requires), requirementText(got.Requirement.Roles))
	}
	if want.Count != nil {
		differ("count", want.Count.String(), got.Count.String())
	}
	if want.Amount != nil {
		differ("amount", want.Amount.String(), got.Amount.String())
	}
	if want.Target != nil {
		differ("target", told(*want.Target), told(got.Target))
	}
	if want.InBand != nil {
		differ("in_band", strconv.FormatBool(*want.InBand), strconv.FormatBool(got.InBand))
	}
	if want.InView != nil {
		differ("in_view", strconv.FormatBool(*want.InView), strconv.FormatBool(got.InView))
	}
	if want.Redacted != nil {
		differ("redacted", list(want.Redacted), list(got.Redactions.hiddenLeaves(payload)))
	}
	return found
}

// told is a target as reports show it.
func told(target string) string {
	if target == "" {
		return "none"
	}
	return strconv.Quote(target)
}

// list writes names for people, in an order that doesn't depend on theirs.
func list(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(slices.Sorted(slices.Values(names)), ", ")
}

// requirementText writes role counts for people, in an order that doesn't
// depend on theirs.
func requirementText(counts []RoleCount) string {
	if len(counts) == 0 {
		return "nobody"
	}
	sorted := slices.SortedFunc(slices.Values(counts), func(a, b RoleCount) int { return cmp.Compare(a.Role, b.Role) })
	return Words(sorted)
}

// The widest that columns of a table get, in characters of a terminal.
const (
	maxName  = 72
	maxFile  = 100
	maxValue = 200
)

// String is the report as a table for a terminal.
func (r Report) String() string {
	var text strings.Builder
	if len(r.Results) == 0 {
		text.WriteString("No cases: nothing was tested.\n")
	} else {
		r.writeTable(&text)
		if failed := r.Failed(); failed > 0 {
			fmt.Fprintf(&text, "\n%d of %s failed.\n", failed, plural(len(r.Results), "case"))
		} else {
			fmt.Fprintf(&text, "\n%s passed.\n", plural(len(r.Results), "case"))
		}
	}
	text.WriteString(r.Coverage.String())
	return text.String()
}

func (r Report) writeTable(text *strings.Builder) {
	widest := width("CASE")
	for _, result := range r.Results {
		widest = max(widest, width(fit(result.Case.Name, maxName)))
	}
	fmt.Fprintf(text, "   %s  %s  TIER\n", pad("CASE", widest), pad("EFFECT", len(RequireApproval)))
	file := ""
	for _, result := range r.Results {
		if result.Case.File != file {
			file = result.Case.File
			text.WriteString(fit(file, maxFile) + "\n")
		}
		mark := "✓"
		if !result.Passed() {
			mark = "✗"
		}
		effect := pad(string(result.Ruling.Effect), len(RequireApproval))
		fmt.Fprintf(text, " %s %s  %s  %d\n", mark, pad(fit(result.Case.Name, maxName), widest), effect, result.Ruling.Tier)
		for _, mismatch := range result.Mismatches {
			fmt.Fprintf(text, "     %s expected %s\n", pad(mismatch.What, len("requires")), fit(mismatch.Want, maxValue))
			fmt.Fprintf(text, "     %s got      %s\n", pad("", len("requires")), fit(mismatch.Got, maxValue))
		}
		if !result.Passed() {
			fmt.Fprintf(text, "     %s\n", result.where())
		}
	}
}

// where says for a failed case where it stands and what ruled its call.
func (r Result) where() string {
	var ids []string
	for _, rule := range r.Ruling.Rules {
		ids = append(ids, rule.ID)
	}
	return fmt.Sprintf("line %d; ruled in %s, mode %s, by %s", r.Case.Line, r.Ruling.Environment, r.Ruling.Mode, strings.Join(ids, ", "))
}

// String says how much is covered and lists what isn't.
func (c Coverage) String() string {
	var text strings.Builder
	fmt.Fprintf(&text, "Covered: %d of %d tools, thresholds, blocks and rules.\n", c.Covered(), len(c.Items))
	uncovered := c.Uncovered()
	kinds, ids := 0, 0
	for _, item := range uncovered {
		kinds, ids = max(kinds, len(item.Kind)), max(ids, width(item.ID))
	}
	for _, item := range uncovered {
		fmt.Fprintf(&text, "   %s  %s  %s (line %d of the policy)\n", pad(item.Kind, kinds), pad(item.ID, ids), item.Missing(), item.Line)
	}
	return text.String()
}

// plural counts things in words: "1 case", "12 cases".
func plural(count int, what string) string {
	if count == 1 {
		return "1 " + what
	}
	return grouped(float64(count)) + " " + what + "s"
}

// fit makes a text safe for a terminal and cuts it if it takes more columns.
func fit(text string, columns int) string {
	text = visible.Line(text)
	if width(text) <= columns {
		return text
	}
	for characters := columns - 1; ; characters-- {
		if cut, _ := visible.Cut(text, characters); width(cut) < columns {
			return cut + "…"
		}
	}
}

// pad fills a text up with spaces.
func pad(text string, columns int) string {
	return text + strings.Repeat(" ", max(0, columns-width(text)))
}

// width is how many columns of a terminal a text takes.
func width(text string) int {
	columns := 0
	for _, r := range text {
		switch {
		case unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf):
		case unicode.Is(wide, r):
			columns += 2
		default:
			columns++
		}
	}
	return columns
}

// wide are the characters that terminals draw over two columns: those of East
// Asian scripts, and emoji.
var wide = &unicode.RangeTable{
	R16: []unicode.Range16{
		{0x1100, 0x115f, 1}, {0x231a, 0x231b, 1}, {0x23e9, 0x23ec, 1}, {0x2614, 0x2615, 1}, {0x26a1, 0x26a1, 1},
		{0x2705, 0x2705, 1}, {0x274c, 0x274c, 1}, {0x2753, 0x2755, 1}, {0x2795, 0x2797, 1}, {0x2b50, 0x2b50, 1},
		{0x2e80, 0x303e, 1}, {0x3041, 0xa4cf, 1}, {0xa960, 0xa97c, 1}, {0xac00, 0xd7a3, 1}, {0xf900, 0xfaff, 1},
		{0xfe30, 0xfe6f, 1}, {0xff00, 0xff60, 1}, {0xffe0, 0xffe6, 1},
	},
	R32: []unicode.Range32{
		{0x1f300, 0x1f64f, 1}, {0x1f680, 0x1f6ff, 1}, {0x1f900, 0x1f9ff, 1}, {0x1fa70, 0x1faff, 1}, {0x20000, 0x3fffd, 1},
	},
}
