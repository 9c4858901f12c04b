package policy

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/countersign/countersign/internal/visible"
)

// MaxExplanation is how many characters the text of an explanation has at most,
// with "&", "<" and ">" counted as what Slack makes of them. A block in Slack
// takes 3,000.
const MaxExplanation = 2900

// String is the explanation for people, in at most [MaxExplanation] characters:
// what happens and who decides, then why, step by step, and what doesn't apply.
// What the agent says in it can't hide or disguise anything.
func (x Explanation) String() string { return x.Text(MaxExplanation) }

// Text is String with another bound, with none if the bound is zero. What is
// too long for it loses detail, the least important first.
func (x Explanation) Text(most int) string {
	var text string
	for less := everything; less <= answerOnly; less++ {
		text = x.text(less)
		if most <= 0 || cardLength(text) <= most {
			return text
		}
	}
	return cutLines(text, most)
}

// detail is how much an explanation's text leaves out.
type detail int

// Each leaves out what those before it do, too.
const (
	everything   detail = iota
	idsOfTheRest        // of rules that don't apply only their names
	noConditions        // no conditions
	shortReasons        // the beginning of each reason, and few rules
	answerOnly          // no rules that don't apply
)

const (
	textWidth      = 60  // characters on a line, where words allow
	mostExpression = 100 // of an expression, in a text
	mostReason     = 160 // of a rule's reason, if space is short
	mostRules      = 8   // of each list, if space is short
	mostIDs        = 400 // of the names of rules that don't apply
)

// page collects lines of text.
type page struct {
	text strings.Builder
	less detail
	said map[string]bool // values that it shows already
}

// line writes text at an indentation, broken between words. Further lines stand
// two characters further in.
func (p *page) line(indent int, format string, args ...any) {
	margin := strings.Repeat(" ", indent)
	width := indent
	p.text.WriteString(margin)
	for i, word := range strings.Split(fmt.Sprintf(format, args...), " ") {
		length := utf8.RuneCountInString(word)
		switch {
		case i == 0:
		case width+1+length > textWidth && indent+2+length <= textWidth:
			p.text.WriteString("\n" + margin + "  ")
			width = indent + 2
		default:
			p.text.WriteByte(' ')
			width++
		}
		p.text.WriteString(word)
		width += length
	}
	p.text.WriteByte('\n')
}

// item writes the first line of a list's item.
func (p *page) item(format string, args ...any) { p.line(0, "- "+format, args...) }

// title begins another section.
func (p *page) title(text string) { p.text.WriteString("\n" + text + "\n") }

func (x Explanation) text(less detail) string {
	p := page{less: less, said: make(map[string]bool)}
	p.answer(x)
	p.call(x)
	p.title("Why")
	p.class(x)
	p.target(x)
	p.idempotency(x.Ruling.Idempotency)
	p.quantity("count", x.Ruling.Count, x.Count)
	p.quantity("amount", x.Ruling.Amount, x.Amount)
	p.tier(x)
	p.afterMode(x)
	p.rest(x)
	return p.text.String()
}

// answer says in short what happens.
func (p *page) answer(x Explanation) {
	r := x.Ruling
	switch r.Effect {
	case Allow:
		p.line(0, "This runs without asking anybody.")
	case RequireApproval:
		p.approvers(r)
	default:
		p.line(0, "This doesn't run, and nobody can approve it.")
		for _, rule := range r.Rules {
			if rule.Effect == Deny {
				p.reason(0, rule.Why)
			}
		}
	}
}

// approvers says who decides.
func (p *page) approvers(r Ruling) {
	switch roles := r.Requirement.Roles; {
	case len(roles) == 1 && roles[0].Count == 1:
		p.line(0, "Somebody of %s has to approve this.", roles[0].Role)
	case len(roles) == 1:
		p.line(0, "%d people of %s have to approve this.", roles[0].Count, roles[0].Role)
	default:
		p.line(0, "%d people have to approve this: %s.", r.Requirement.people(), r.Requirement)
	}
	reason := ""
	if r.Requirement.ReasonRequired {
		reason = " and must give a reason"
	}
	p.line(0, "They have at most %s%s.", spell(r.DecideWithin), reason)
	if r.InBand {
		p.line(0, "Where the agent's own client can ask its user, that user's answer is enough.")
	}
	if r.InView {
		p.line(0, "Where the agent's own host shows the request, what is decided there is enough.")
	}
	p.self(r.Requirement)
}

// self says whether the person behind the agent is one of those who decide.
func (p *page) self(r Requirement) {
	var own []string
	for _, want := range r.Roles {
		if want.AllowSelf {
			own = append(own, want.Role)
		}
	}
	switch {
	case len(own) == 0:
		p.line(0, "The person behind the agent doesn't count.")
	case len(own) == len(r.Roles):
		p.line(0, "The person behind the agent counts, too.")
	default:
		p.line(0, "The person behind the agent counts only for %s.", strings.Join(own, " and "))
	}
}

// call says what the explanation is about.
func (p *page) call(x Explanation) {
	p.text.WriteByte('\n')
	action := "An action without a name"
	if x.Action != "" {
		action = named(x.Action)
	}
	environment := x.Ruling.Environment
	agent := "an agent without a name"
	if x.Agent != "" {
		agent = named(x.Agent)
	}
	p.line(0, "%s in %s, asked by %s.", action, environment, agent)
	switch {
	case x.Stated == "":
		p.line(0, "No environment is stated, so it counts as %s.", environment)
	case !x.EnvironmentKnown:
		p.line(0, "The policy doesn't know the environment %s, so it counts as %s.", quoted(x.Stated), environment)
	case !strings.EqualFold(x.Stated, environment):
		p.line(0, "The agent calls the environment %s.", quoted(x.Stated))
	}
}

func (p *page) class(x Explanation) {
	switch tier := x.Class.Tier; {
	case x.Unpinned:
		p.item("The tool's definition has changed since it was pinned. Until somebody pins it again, it counts as %s.", tier)
	case !x.Ruling.Classified:
		p.item("The policy doesn't list this action. Until it does, it counts as %s.", tier)
	case x.Class.ID == x.Action:
		p.item("The policy lists it as %s.", tier)
	default:
		p.item("The policy lists it as %s (%s).", tier, visible.Line(x.Class.ID))
	}
}

// target says what the call acts on, and how that was worked out.
func (p *page) target(x Explanation) {
	switch {
	case len(x.Target) == 0:
		return
	case x.Ruling.Target == "":
		p.item("What it acts on can't be told.")
	default:
		p.item("It acts on %s.", quoted(x.Ruling.Target))
	}
	if p.less >= noConditions {
		return
	}
	for _, step := range x.Target {
		p.line(4, "%s", shortened(step, mostExpression))
	}
}

// idempotency says where the tool takes a key, which its calls get if the agent
// gives none.
func (p *page) idempotency(argument string) {
	if argument != "" && p.less < noConditions {
		p.item("The argument %s is for a key by which it knows a call that it has had.", visible.Line(argument))
	}
}

// quantity says what the count or the amount is, and how it was worked out.
func (p *page) quantity(what string, q Quantity, steps []string) {
	switch {
	case q.Unbounded:
		p.item("The %s can't be worked out, so it counts as more than any limit.", what)
	case q.Known:
		p.item("The %s is %s.", what, q)
	default:
		return
	}
	if p.less >= noConditions {
		return
	}
	for _, step := range steps {
		p.line(4, "%s", shortened(step, mostExpression))
	}
}

// tier says what changed the tier and what the mode does with it.
func (p *page) tier(x Explanation) {
	var changing []FiredRule
	for _, fired := range x.Ruling.fired() {
		if fired.ID != firstUseID && (fired.LowerTo != 0 || fired.RaiseTo != 0) {
			changing = append(changing, fired)
		}
	}
	slices.SortStableFunc(changing, func(a, b FiredRule) int { return int(a.RaiseTo) - int(b.RaiseTo) })
	p.fired(x, changing)
	if len(changing) > 0 && x.Mode.Tier != x.Class.Tier {
		p.item("So it is %s.", x.Mode.Tier)
	} else if len(changing) > 0 {
		p.item("So it stays at %s.", x.Mode.Tier)
	}
	does := "denies"
	switch x.Mode.Effect {
	case Allow:
		does = "allows"
	case RequireApproval:
		does = "has people decide on"
	}
	p.item("Mode %s, of %s, %s tier %d.", x.Mode.Name, x.Mode.Of, does, x.Mode.Tier)
}

// afterMode says what made the answer stricter than the mode does.
func (p *page) afterMode(x Explanation) {
	var stricter []FiredRule
	for _, fired := range x.Ruling.fired() {
		if fired.ID == firstUseID || fired.Effect == Deny && !strings.HasPrefix(fired.ID, modePrefix) {
			stricter = append(stricter, fired)
		}
	}
	what := "what the policy doesn't list"
	if x.Unpinned {
		what = "a tool that has changed"
	}
	switch {
	case x.Ruling.Classified:
	case len(x.Ruling.Rules) > 0 && x.Ruling.Rules[0].Effect == Deny:
		p.item("The policy denies %s.", strings.Replace(what, "the policy", "it", 1))
	case x.Mode.Effect == Allow:
		p.item("A person decides on %s.", what)
	}
	p.fired(x, stricter)
}

// fired writes an item for each rule that took part, with its reason and what
// its condition saw.
func (p *page) fired(x Explanation, rules []FiredRule) {
	for i, rule := range rules {
		if p.less >= shortReasons && i == mostRules {
			p.item("%s", andMore(len(rules)-i, "does so", "do so"))
			return
		}
		switch {
		case rule.ID == firstUseID:
			p.item("%s asks for a person, at tier %d or higher.", rule.ID, rule.RaiseTo)
		case rule.Effect == Deny:
			p.item("%s denies it.", rule.ID)
		case rule.LowerTo != 0:
			p.item("%s lowers it to tier %d.", rule.ID, rule.LowerTo)
		case rule.RaiseTo <= x.Class.Tier:
			p.item("%s asks for tier %d or higher.", rule.ID, rule.RaiseTo)
		default:
			p.item("%s raises it to tier %d.", rule.ID, rule.RaiseTo)
		}
		p.reason(2, rule.Why)
		if step, ok := x.rule(rule.ID); ok {
			p.condition(step)
		}
	}
}

// andMore says how many things a list leaves out.
func andMore(left int, one, many string) string {
	if left == 1 {
		return "One more rule " + one + "."
	}
	return fmt.Sprintf("%d more rules %s.", left, many)
}

// reason writes why a rule exists, in its author's words.
func (p *page) reason(indent int, why string) {
	why = visible.Line(strings.Join(strings.Fields(why), " "))
	if p.less >= shortReasons {
		why = shortened(why, mostReason)
	}
	if why != "" {
		p.line(indent, "%s", why)
	}
}

// fired are the rules that took part, without the action's class.
func (r Ruling) fired() []FiredRule {
	if len(r.Rules) == 0 {
		return nil
	}
	return r.Rules[1:]
}

// rule finds what the explanation says of a rule of the policy's own.
func (x Explanation) rule(id string) (ExplainedRule, bool) {
	for _, rule := range x.Rules {
		if rule.ID == id {
			return rule, true
		}
	}
	return ExplainedRule{}, false
}

// rest lists the rules that are about the action and didn't fire.
func (p *page) rest(x Explanation) {
	var rest []ExplainedRule
	var ids []string
	for _, rule := range x.Rules {
		if !rule.Fired {
			rest = append(rest, rule)
			ids = append(ids, rule.ID)
		}
	}
	if len(rest) == 0 || p.less >= answerOnly {
		return
	}
	p.title("Rules that don't apply")
	if p.less >= idsOfTheRest {
		p.line(0, "%s", shortened(strings.Join(ids, ", "), mostIDs))
		return
	}
	for _, rule := range rest {
		p.item("%s: %s.", rule.ID, rule.Because)
		p.condition(rule)
	}
}

// condition writes what decided a rule's condition.
func (p *page) condition(rule ExplainedRule) {
	if rule.When == nil || p.less >= noConditions {
		return
	}
	if rule.When.Value == valueFailed {
		why := ""
		if rule.When.Error != "" {
			why = ": " + rule.When.Error
		}
		if rule.Fired {
			p.line(2, "Its condition can't be worked out, which counts as met%s.", why)
		} else if why != "" {
			p.line(2, "The reason%s.", why)
		}
	}
	p.decided(4, *rule.When)
}

// decided writes those parts of a condition that made its value. What stands
// under a not is written without it.
func (p *page) decided(indent int, result ExplainedResult) {
	switch {
	case result.Joins == joinsNot && len(result.Parts) == 1:
		p.decided(indent, result.Parts[0])
	case result.Joins != "" && len(result.Parts) > 0:
		for _, part := range deciding(result) {
			p.decided(indent, part)
		}
	default:
		p.outcome(indent, result)
	}
}

// outcome writes a part of a condition that holds or doesn't, with the values
// that it looks at.
func (p *page) outcome(indent int, result ExplainedResult) {
	outcome := result.Value
	switch outcome {
	case "true":
		outcome = "yes"
	case "false":
		outcome = "no"
	case valueFailed:
		outcome = "fails"
	case valueSkipped:
		return
	}
	if line := outcome + ": " + shortened(result.Expression, mostExpression); !p.said[line] {
		p.said[line] = true
		p.line(indent, "%s", line)
	}
	p.looked(indent+2, result)
}

// deciding are the parts on which the value of a joined condition rests.
func deciding(result ExplainedResult) []ExplainedResult {
	with := func(value string) []ExplainedResult {
		var found []ExplainedResult
		for _, part := range result.Parts {
			if part.Value == value {
				found = append(found, part)
			}
		}
		return found
	}
	var found []ExplainedResult
	switch {
	case result.Value == valueFailed && result.Joins != joinsIf:
		found = with(valueFailed)
	case result.Joins == joinsAnd && result.Value == "false", result.Joins == joinsOr && result.Value == "true":
		found = with(result.Value)
	case result.Joins != joinsIf || len(result.Parts) != 3:
	case result.Parts[0].Value == "true":
		found = result.Parts[:2]
	case result.Parts[0].Value == "false":
		found = []ExplainedResult{result.Parts[0], result.Parts[2]}
	}
	if len(found) == 0 {
		return result.Parts
	}
	return found
}

// looked writes the values that a part of a condition looks at, each once in
// the text.
func (p *page) looked(indent int, result ExplainedResult) {
	for _, part := range result.Parts {
		known := result.Value == "true" && result.Expression == part.Expression+" == "+part.Value
		line := shortened(part.Expression, mostExpression) + " is " + part.Value
		if !known && !p.said[line] && part.Value != valueFailed && part.Value != valueSkipped {
			p.said[line] = true
			p.line(indent, "%s", line)
			p.looked(indent+2, part)
			continue
		}
		p.looked(indent, part)
	}
}

// plainText is what needs no quotation marks in a text.
var plainText = regexp.MustCompile(`^[A-Za-z0-9_.\-/@:]{1,100}$`)

// named is a name that an agent chose. It can't be taken for more than a name.
func named(name string) string {
	if plainText.MatchString(name) {
		return name
	}
	return quoted(name)
}

// spell writes a time span in words: "1 hour 30 minutes".
func spell(span time.Duration) string {
	var words []string
	for _, unit := range []struct {
		name string
		is   time.Duration
	}{{"hour", time.Hour}, {"minute", time.Minute}, {"second", time.Second}} {
		number := span / unit.is
		span %= unit.is
		switch {
		case number == 1:
			words = append(words, "1 "+unit.name)
		case number > 1:
			words = append(words, fmt.Sprintf("%d %ss", number, unit.name))
		}
	}
	if len(words) == 0 {
		return "no time"
	}
	return strings.Join(words, " ")
}

// cardLength is how long Slack takes a text for.
func cardLength(text string) int {
	return utf8.RuneCountInString(text) + 4*strings.Count(text, "&") + 3*strings.Count(text, "<") + 3*strings.Count(text, ">")
}

// cutLines is as many lines of a text as fit, with one that says so.
func cutLines(text string, most int) string {
	const more = "… countersign policy explain says more.\n"
	if most < cardLength(more) {
		text, _ = visible.Cut(text, most/5) // as if all were escaped
		return text
	}
	var kept strings.Builder
	length := cardLength(more)
	for line := range strings.Lines(text) {
		length += cardLength(line)
		if length > most {
			break
		}
		kept.WriteString(line)
	}
	return kept.String() + more
}
