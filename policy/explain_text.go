package policy

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/countersign/countersign/internal/visible"
)

// String is the explanation for people: the answer first, then what led to it,
// then what was looked at without effect. It is what a terminal and the card's
// "Why am I asked?" show.
func (x Explanation) String() string {
	var text explanationText
	text.answer(x)
	text.tier(x)
	text.quantity("Count", x.Ruling.Count, x.Count)
	text.quantity("Amount", x.Ruling.Amount, x.Amount)
	text.rules(x)
	return strings.TrimSuffix(text.String(), "\n")
}

// explanationText is an explanation on its way to people.
type explanationText struct{ strings.Builder }

// line writes one line, indented by so many steps.
func (t *explanationText) line(depth int, format string, args ...any) {
	t.WriteString(strings.Repeat("  ", depth))
	fmt.Fprintf(t, format, args...)
	t.WriteByte('\n')
}

func (t *explanationText) answer(x Explanation) {
	switch r := x.Ruling; r.Effect {
	case Allow:
		t.line(0, "It may run without a person.")
	case RequireApproval:
		t.line(0, "A person decides: %s, within %s.", r.Requirement, spoken(r.DecideWithin))
		if r.Requirement.ReasonRequired {
			t.line(0, "Approving takes a reason.")
		}
	default:
		t.line(0, "It may not run.")
	}
	action := visible.Line(x.Action)
	if action == "" {
		action = "an action without a name"
	}
	t.line(0, "Asked: %s", action)
	t.line(0, "By:    %s", visible.Line(x.Agent))
	t.line(0, "In:    %s", x.environment())
}

// environment is where the call would run, with how that is known if it isn't
// what the agent states.
func (x Explanation) environment() string {
	switch {
	case x.Stated == "":
		return x.Ruling.Environment + ", as none is stated"
	case strings.EqualFold(x.Stated, x.Ruling.Environment):
		return x.Ruling.Environment
	default:
		return fmt.Sprintf("%s, as stated: %s", x.Ruling.Environment, short(x.Stated))
	}
}

func (t *explanationText) tier(x Explanation) {
	t.line(0, "")
	t.line(0, "%s", capital(x.Ruling.Tier.String()))
	switch {
	case !x.Ruling.Classified:
		t.line(1, "No rule classifies this action.")
	default:
		t.line(1, "%s is tier %d.", x.Class.ID, x.Class.Tier)
	}
	does := map[Effect]string{Allow: "allows", RequireApproval: "leaves to a person", Deny: "denies"}
	t.line(1, "Mode %s %s tier %d.", x.Mode.Name, does[x.Mode.Effect], x.Mode.Tier)
}

func (t *explanationText) quantity(name string, q Quantity, how []string) {
	if !q.Known && !q.Unbounded {
		return
	}
	t.line(0, "")
	t.line(0, "%s: %s", name, q)
	for _, step := range how {
		t.line(1, "%s", step)
	}
}

func (t *explanationText) rules(x Explanation) {
	if fired := x.Ruling.Rules[min(1, len(x.Ruling.Rules)):]; len(fired) > 0 {
		t.line(0, "")
		t.line(0, "What led to this")
		for _, rule := range fired {
			t.line(1, "%s%s", rule.ID, rule.does())
			t.line(2, "%s", visible.Line(rule.Why))
			if at := slices.IndexFunc(x.Rules, func(e ExplainedRule) bool { return e.ID == rule.ID }); at >= 0 {
				t.considered(x.Rules[at])
			}
		}
	}
	heading := false
	for _, rule := range x.Rules {
		if rule.Fired {
			continue
		}
		if !heading {
			t.line(0, "")
			t.line(0, "Looked at, without effect")
			heading = true
		}
		t.line(1, "%s: %s", rule.ID, rule.Because)
		if rule.When != nil {
			t.result(2, *rule.When)
		}
	}
}

// considered writes what a rule that took part made of the call.
func (t *explanationText) considered(rule ExplainedRule) {
	if rule.Because != "" {
		t.line(2, "%s", capital(rule.Because)+".")
	}
	if rule.When != nil {
		t.result(2, *rule.When)
	}
}

func (t *explanationText) result(depth int, result ExplainedResult) {
	t.line(depth, "%s = %s", visible.Line(result.Expression), result.Value)
	for _, part := range result.Parts {
		t.result(depth+1, part)
	}
}

// does says what a rule that took part does to the tier.
func (r FiredRule) does() string {
	switch {
	case r.Effect == Deny:
		return ": denies"
	case r.RaiseTo != 0:
		return fmt.Sprintf(": raises to tier %d", r.RaiseTo)
	case r.LowerTo != 0:
		return fmt.Sprintf(": lowers to tier %d", r.LowerTo)
	default:
		return ""
	}
}

func capital(text string) string {
	if text == "" {
		return ""
	}
	return strings.ToUpper(text[:1]) + text[1:]
}

// spoken is a duration in the largest units that it has: "1 h 30 min".
func spoken(d time.Duration) string {
	var parts []string
	for _, unit := range []struct {
		of   time.Duration
		name string
	}{{time.Hour, "h"}, {time.Minute, "min"}, {time.Second, "s"}} {
		if n := d / unit.of; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, unit.name))
			d -= n * unit.of
		}
	}
	return strings.Join(parts, " ")
}
