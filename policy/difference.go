package policy

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// RecordedCall is a call that was ruled before, with its facts of then.
type RecordedCall struct {
	ID   string // of its request
	Call Call   // Call.At is when it was ruled
	Then Ruling // what it was ruled
}

// Difference is what changes from one policy to another.
type Difference struct {
	// Policy says in which parts the files differ, in the order of a file.
	Policy []PolicyChange `json:"policy"`
	// Calls are how many recorded calls were ruled by both policies, and Same
	// how many get the same answer.
	Calls int `json:"calls"`
	Same  int `json:"same"`
	// RuledOtherwise are how many of the calls were ruled otherwise when they
	// were made than the old policy rules them. It was another policy then.
	RuledOtherwise int `json:"ruled_otherwise"`
	// Changed are the calls whose answer changes, in the order they were given.
	Changed []ChangedCall `json:"changed"`
}

// ChangedCall is a recorded call with the answers of two policies. What it holds
// of the payload is pointers to what is hidden, and the target that each policy
// shows.
type ChangedCall struct {
	ID     string    `json:"id"`
	At     time.Time `json:"at"`
	Agent  string    `json:"agent"`
	Action string    `json:"action"`
	// Loosened means that the new policy asks for less in something, and
	// Stricter that it asks for more. Both may be so, and neither: then the
	// answer is only different.
	Loosened bool     `json:"loosened"`
	Stricter bool     `json:"stricter"`
	Changes  []Change `json:"changes"`
	Before   Ruling   `json:"before"`
	After    Ruling   `json:"after"`
}

// Direction says whether a change asks for more or for less.
type Direction string

// The directions of changes. Neutral ones are such as another reminder.
const (
	Loosened Direction = "loosened"
	Stricter Direction = "stricter"
	Neutral  Direction = "different"
)

// Change is one thing in which two answers differ, in words.
type Change struct {
	What      string    `json:"what"`
	Before    string    `json:"before"`
	After     string    `json:"after"`
	Direction Direction `json:"direction"`
}

// Compare rules recorded calls by two policies and says what changes from the
// old one to the new one.
func Compare(old, changed *Policy, calls []RecordedCall) Difference {
	d := Difference{Policy: changesOf(old.source, changed.source), Calls: len(calls), Changed: []ChangedCall{}}
	for _, recorded := range calls {
		before, after := old.Rule(recorded.Call), changed.Rule(recorded.Call)
		if recorded.Then.Effect != "" && len(compareRulings(recorded.Then, before, nil)) > 0 {
			d.RuledOtherwise++
		}
		changes := compareRulings(before, after, recorded.Call.Payload)
		if len(changes) == 0 {
			d.Same++
			continue
		}
		toward := func(direction Direction) bool {
			return slices.ContainsFunc(changes, func(c Change) bool { return c.Direction == direction })
		}
		d.Changed = append(d.Changed, ChangedCall{
			ID:       recorded.ID,
			At:       recorded.Call.At,
			Agent:    recorded.Call.Agent,
			Action:   recorded.Call.Action,
			Loosened: toward(Loosened),
			Stricter: toward(Stricter),
			Changes:  changes,
			Before:   before,
			After:    after,
		})
	}
	return d
}

// Loosened is for how many calls the new policy asks for less in something.
func (d Difference) Loosened() int {
	count := 0
	for _, call := range d.Changed {
		if call.Loosened {
			count++
		}
	}
	return count
}

// rulingComparison collects in what two rulings differ.
type rulingComparison struct{ changes []Change }

func (c *rulingComparison) add(what, before, after string, direction Direction) {
	if before != after {
		c.changes = append(c.changes, Change{What: what, Before: before, After: after, Direction: direction})
	}
}

// rise is the direction of a change of something that asks for more if there is
// more of it.
func rise[T cmp.Ordered](before, after T) Direction {
	switch {
	case after > before:
		return Stricter
	case after < before:
		return Loosened
	default:
		return Neutral
	}
}

// compareRulings lists in what two rulings for one payload differ.
func compareRulings(before, after Ruling, payload []byte) []Change {
	var c rulingComparison
	c.add("effect", string(before.Effect), string(after.Effect), rise(before.Effect.strictness(), after.Effect.strictness()))
	tier := Neutral
	if before.Effect == after.Effect && after.Effect != Deny {
		tier = rise(before.Tier, after.Tier)
	}
	c.add("tier", before.Tier.String(), after.Tier.String(), tier)
	if before.Effect == RequireApproval && after.Effect == RequireApproval {
		c.requirements(before.Requirement, after.Requirement)
		c.add("time to decide", within(before.DecideWithin), within(after.DecideWithin), rise(after.DecideWithin, before.DecideWithin))
		c.scopes(before.Scopes, after.Scopes)
		c.add("the client's own answer", enough(before.InBand), enough(after.InBand), rise(asks(after.InBand), asks(before.InBand)))
		c.add("the host's view", enough(before.InView), enough(after.InView), rise(asks(after.InView), asks(before.InView)))
		c.add("reminders", reminders(before.RemindAfter), reminders(after.RemindAfter), Neutral)
		c.add("escalation", before.Escalation.text(), after.Escalation.text(), Neutral)
	}
	if before.Effect == after.Effect && after.Effect != Deny {
		c.add("time to apply", within(before.ApplyWithin), within(after.ApplyWithin), rise(after.ApplyWithin, before.ApplyWithin))
	}
	c.redactions(before.Redactions.hiddenLeaves(payload), after.Redactions.hiddenLeaves(payload))
	c.add("rules", ruledBy(before), ruledBy(after), Neutral)
	c.add("environment", before.Environment, after.Environment, Neutral)
	c.add("count", before.Count.String(), after.Count.String(), Neutral)
	c.add("amount", before.Amount.String(), after.Amount.String(), Neutral)
	c.add("target", told(before.Target), told(after.Target), Neutral)
	c.add("argument for a key", cmp.Or(before.Idempotency, "none"), cmp.Or(after.Idempotency, "none"), Neutral)
	c.ensure(before, after)
	return c.changes
}

// ensure makes the comparison say what the domain acts on when it rules a
// request again, should it ever come to look at more than is compared here.
func (c *rulingComparison) ensure(before, after Ruling) {
	for _, check := range []struct {
		direction Direction
		words     string
	}{
		{Stricter, after.StricterThan(before)},
		{Loosened, before.StricterThan(after)},
	} {
		missed := !slices.ContainsFunc(c.changes, func(change Change) bool { return change.Direction == check.direction })
		if check.words != "" && missed {
			c.changes = append(c.changes, Change{What: "what approving takes", Before: before.Requirement.String(), After: after.Requirement.String(), Direction: check.direction})
		}
	}
}

func (c *rulingComparison) requirements(before, after Requirement) {
	roles := make(map[string]bool)
	for _, want := range slices.Concat(before.Roles, after.Roles) {
		roles[want.Role] = true
	}
	for _, role := range slices.Sorted(maps.Keys(roles)) {
		was, wasSelf := before.of(role)
		is, isSelf := after.of(role)
		c.add("people of "+role, fmt.Sprint(was), fmt.Sprint(is), rise(was, is))
		switch {
		case isSelf && !wasSelf:
			c.add("self-approval of "+role, "forbidden", "allowed", Loosened)
		case wasSelf && !isSelf && is > 0:
			c.add("self-approval of "+role, "allowed", "forbidden", Stricter)
		}
	}
	c.add("reason of approvers", asked(before.ReasonRequired), asked(after.ReasonRequired), rise(asks(before.ReasonRequired), asks(after.ReasonRequired)))
	switch {
	case before.Owner == after.Owner:
	case after.Owner == "":
		c.add("person behind the agent", before.Owner, "nobody", Loosened)
	case before.Owner == "":
		c.add("person behind the agent", "nobody", after.Owner, Stricter)
	default:
		// Whom the old policy kept from approving now may, and the other way
		// round.
		c.add("person behind the agent", before.Owner, "not "+before.Owner, Loosened)
		c.add("person behind the agent", "not "+after.Owner, after.Owner, Stricter)
	}
}

// enough says in words whether an answer of the agent's own side is enough.
func enough(is bool) string {
	if is {
		return "is enough"
	}
	return "isn't enough"
}

func asked(required bool) string {
	if required {
		return "required"
	}
	return "not required"
}

func asks(required bool) int {
	if required {
		return 1
	}
	return 0
}

// scopes compares what approvers may be offered: each more is looser.
func (c *rulingComparison) scopes(before, after []string) {
	if more := without(after, before); len(more) > 0 {
		c.add("offered scopes", list(before), list(after), Loosened)
		return
	}
	c.add("offered scopes", list(before), list(after), Stricter)
}

// redactions compares what is hidden. That more is hidden asks nobody for more.
func (c *rulingComparison) redactions(before, after []string) {
	if len(without(before, after)) > 0 {
		c.add("hidden", list(before), list(after), Loosened)
		return
	}
	c.add("hidden", list(before), list(after), Neutral)
}

// without are the values that others don't have.
func without(values, others []string) []string {
	return slices.DeleteFunc(slices.Clone(values), func(value string) bool { return slices.Contains(others, value) })
}

// ruledBy are the ids of what led to a ruling.
func ruledBy(r Ruling) string {
	var ids []string
	for _, rule := range r.Rules {
		ids = append(ids, rule.ID)
	}
	return strings.Join(ids, ", ")
}

func (e Escalation) text() string {
	if e.To == "" {
		return "none"
	}
	return fmt.Sprintf("to %s after %s", e.To, within(e.After))
}

func reminders(after []time.Duration) string {
	var times []string
	for _, one := range after {
		times = append(times, within(one))
	}
	if len(times) == 0 {
		return "none"
	}
	return "after " + strings.Join(times, ", ")
}

// within is a time as policies write it: "1h30m", not "1h30m0s".
func within(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// maxListed is how many calls of a group are named.
const maxListed = 3

// group are calls of one action whose answer changes in the same way.
type group struct {
	first ChangedCall
	ids   []string
}

// mark names the group's direction. What needs looking at is in capitals.
func (g group) mark() string {
	switch {
	case g.first.Loosened && g.first.Stricter:
		return "LOOSENED and stricter"
	case g.first.Loosened:
		return "LOOSENED"
	case g.first.Stricter:
		return "stricter"
	default:
		return "different"
	}
}

// rank sorts groups: loosened ones first, those that are only different last.
func (g group) rank() int {
	return slices.Index([]string{"LOOSENED", "LOOSENED and stricter", "stricter", "different"}, g.mark())
}

// groups collapses the changed calls: first those that are loosened, then those
// with the most calls.
func (d Difference) groups() []group {
	at := make(map[string]int)
	var all []group
	for _, call := range d.Changed {
		key := call.kind()
		i, known := at[key]
		if !known {
			i = len(all)
			at[key] = i
			all = append(all, group{first: call})
		}
		all[i].ids = append(all[i].ids, call.ID)
	}
	slices.SortStableFunc(all, func(a, b group) int {
		return cmp.Or(cmp.Compare(a.rank(), b.rank()), cmp.Compare(len(b.ids), len(a.ids)), cmp.Compare(a.first.Action, b.first.Action))
	})
	return all
}

// kind is the same for calls that a reader need not look at one by one.
func (c ChangedCall) kind() string {
	parts := []string{c.Action, c.Before.Environment}
	for _, change := range c.Changes {
		parts = append(parts, change.What, string(change.Direction))
		if !change.ofCall() {
			parts = append(parts, change.Before, change.After)
		}
	}
	return strings.Join(parts, "\x00")
}

// ofCall reports whether what changed depends on the call more than on the
// policy.
func (c Change) ofCall() bool {
	return slices.Contains([]string{"count", "amount", "target", "hidden"}, c.What)
}

// String is the difference as text for a terminal, with what is loosened first.
func (d Difference) String() string {
	var text strings.Builder
	writePolicyChanges(&text, d.Policy)
	if d.Calls == 0 {
		text.WriteString("No recorded calls were compared.\n")
		return text.String()
	}
	fmt.Fprintf(&text, "%s compared: %d get another answer (%d LOOSENED), %d the same.\n", plural(d.Calls, "recorded call"), len(d.Changed), d.Loosened(), d.Same)
	if d.RuledOtherwise > 0 {
		fmt.Fprintf(&text, "When they were made, another policy than the old one answered %d of them otherwise.\n", d.RuledOtherwise)
	}
	for _, g := range d.groups() {
		g.write(&text)
	}
	return text.String()
}

func (g group) write(text *strings.Builder) {
	fmt.Fprintf(text, "\n%s  %s in %s, %s\n", g.mark(), fit(g.first.Action, maxName), g.first.Before.Environment, plural(len(g.ids), "call"))
	widest := 0
	for _, change := range g.first.Changes {
		widest = max(widest, width(fit(change.What, maxName)))
	}
	for _, change := range g.first.Changes {
		mark := " "
		if change.Direction == Loosened {
			mark = "!"
		}
		example := ""
		if change.ofCall() && len(g.ids) > 1 {
			example = " (in " + fit(g.ids[0], maxName) + ")"
		}
		fmt.Fprintf(text, "  %s %s  %s → %s%s\n", mark, pad(fit(change.What, maxName), widest), fit(change.Before, maxValue), fit(change.After, maxValue), example)
	}
	fmt.Fprintf(text, "    %s\n", listed(g.ids))
}

// listed names some of the calls and counts the others.
func listed(ids []string) string {
	var shown []string
	for _, id := range ids[:min(len(ids), maxListed)] {
		shown = append(shown, fit(id, maxName))
	}
	text := strings.Join(shown, ", ")
	if more := len(ids) - maxListed; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
