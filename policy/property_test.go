package policy_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/countersign/countersign/policy"
)

// ignoreRevision compares what two files say, not the files.
var ignoreRevision = cmpopts.IgnoreFields(policy.Ruling{}, "Revision")

// calls is how many calls are ruled by each policy that is drawn: reading it
// takes longer than ruling.
const calls = 10

// valid says what is wrong with a ruling by itself; empty if nothing is.
func valid(r policy.Ruling) string {
	switch {
	case !slices.Contains([]policy.Effect{policy.Allow, policy.RequireApproval, policy.Deny}, r.Effect):
		return "the effect isn't known"
	case r.Tier < policy.TierRead || r.Tier > policy.TierIrreversible:
		return "the tier isn't known"
	case len(r.Rules) == 0 || r.Rules[0].ID == "" || r.Rules[0].Why == "":
		return "the class is missing"
	case !inOrder(r.Rules[1:]):
		return "the rules aren't in order, each once"
	case r.Classified == (r.Rules[0].ID == "unclassified"):
		return "it is classified or not"
	case !r.Classified && r.Effect == policy.Allow:
		return "what isn't classified is allowed"
	case (r.Effect == policy.RequireApproval) != (len(r.Requirement.Roles) > 0):
		return "the requirement doesn't fit the effect"
	case r.Effect == policy.RequireApproval && len(r.Requirement.Missing(nil)) == 0:
		return "nobody has to approve"
	case r.Effect == policy.RequireApproval && (len(r.Scopes) == 0 || r.DecideWithin <= 0 || r.ApplyWithin <= 0):
		return "nothing can be offered"
	case r.Tier >= policy.TierDestructive && r.Effect == policy.RequireApproval && !slices.Equal(r.Scopes, []string{"once"}):
		return "more than once is offered for what destroys"
	case r.InBand && (r.Effect != policy.RequireApproval || r.Tier > policy.TierExternal || !r.Classified || r.Requirement.ReasonRequired):
		return "a client's answer is enough for what people decide"
	case r.InView && (r.Effect != policy.RequireApproval || fired(r, "first-use") != nil || r.Environment == "production" && (r.Mode == "strict" || r.Mode == "readonly")):
		return "a decision in the host's view is enough for what people decide"
	case utf8.RuneCountInString(r.Target) > 500 || !utf8.ValidString(r.Target) || strings.ContainsRune(r.Target, 0):
		return "the target is no text"
	case r.Reason() == "" || r.Decider() == "":
		return "there is no reason"
	case (r.Effect == policy.Deny) != slices.ContainsFunc(r.Rules, func(rule policy.FiredRule) bool { return rule.Effect == policy.Deny }):
		return "what denies isn't told"
	case r.Environment == "" || r.Mode == "" || r.Revision == "":
		return "the place or the revision is missing"
	}
	for _, rule := range r.Rules[1:] {
		if rule.RaiseTo > r.Tier {
			return rule.ID + " raised to a higher tier"
		}
		if rule.LowerTo > 0 && rule.Failed {
			return rule.ID + " lowered although it failed"
		}
	}
	return ""
}

func inOrder(rules []policy.FiredRule) bool {
	for i := 1; i < len(rules); i++ {
		if rules[i-1].ID >= rules[i].ID {
			return false
		}
	}
	return true
}

// Every call has a ruling, always the same, and the explanation is of it.
func TestEveryCallIsRuled(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		d := drawDraft(t)
		p, again := d.parse(t), d.parse(t)
		for range calls {
			c := drawCall(t, drawArguments(t).payload())
			if chance(t, "any text") {
				c.Action, c.Environment, c.Payload = rapid.String().Draw(t, "action"), rapid.String().Draw(t, "environment"), rapid.SliceOf(rapid.Byte()).Draw(t, "payload")
			}
			r := p.Rule(c)
			if wrong := valid(r); wrong != "" {
				t.Fatalf("%s: %+v\n%s", wrong, r, d.source())
			}
			if diff := cmp.Diff(r, p.Rule(c)); diff != "" {
				t.Fatalf("ruling twice differs:\n%s", diff)
			}
			if diff := cmp.Diff(r, again.Rule(c)); diff != "" {
				t.Fatalf("parsing twice differs:\n%s", diff)
			}
			if diff := cmp.Diff(r, p.Explain(c).Ruling); diff != "" {
				t.Fatalf("the explanation is of another ruling (-Rule +Explain):\n%s", diff)
			}
			text, err := json.Marshal(r)
			if err != nil {
				t.Fatal(err)
			}
			var stored policy.Ruling
			if err := json.Unmarshal(text, &stored); err != nil {
				t.Fatal(err)
			}
			if r.StricterThan(stored) != "" || stored.StricterThan(r) != "" {
				t.Fatalf("storing it changes it:\n%s", cmp.Diff(r, stored))
			}
		}
	})
}

func TestOrderOfTheFileDoesNotMatter(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		d := drawDraft(t)
		shuffled := d.shuffled(t)
		first, second := d.parse(t), shuffled.parse(t)
		for range calls {
			c := drawCall(t, drawArguments(t).payload())
			one, other := first.Explain(c), second.Explain(c)
			if diff := cmp.Diff(one, other, ignoreRevision); diff != "" {
				t.Fatalf("-one +other:\n%s\n%s\n%s", diff, d.source(), shuffled.source())
			}
		}
	})
}

// never requires that what is ruled after isn't weaker than before.
func never(t *rapid.T, what string, before, after policy.Ruling, sources ...any) {
	if why := weaker(before, after); why != "" {
		t.Fatalf("%s is weaker: %s\nbefore %+v\nafter  %+v\n%s", what, why, before, after, fmt.Sprint(sources...))
	}
}

func TestBiggerCountIsNeverWeaker(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		d := drawDraft(t)
		p := d.parse(t)
		for range calls {
			c := drawCall(t, drawArguments(t).payload())
			before := p.Rule(c)
			least := int64(-3)
			if c.Count != nil {
				least = *c.Count
			}
			c.Count = number(rapid.Int64Min(least).Draw(t, "bigger"))
			never(t, "a bigger count that is stated", before, p.Rule(c), d.source())
		}
	})
}

func TestLongerListIsNeverWeaker(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		d := drawDraft(t)
		p := d.parse(t)
		for range calls {
			some := drawArguments(t)
			some.broken, some.ids = "", max(some.ids, 0)
			c := drawCall(t, some.payload())
			before := p.Rule(c)
			some.ids += rapid.IntRange(1, 20).Draw(t, "longer by")
			c.Payload = some.payload()
			never(t, "a longer list", before, p.Rule(c), d.source())
		}
	})
}

func TestBiggerAmountIsNeverWeaker(t *testing.T) {
	t.Parallel()
	amounts := []string{"0", "0.001", "1", "2", "5.5", "5.50001", "1000", "1000.01", "1e15", "9007199254740993", "1e300", "1e400"} // the last can't be worked out
	rapid.Check(t, func(t *rapid.T) {
		d := drawDraft(t)
		p := d.parse(t)
		for range calls {
			some := drawArguments(t)
			some.broken = ""
			first := rapid.IntRange(0, len(amounts)-1).Draw(t, "amount")
			some.amount = amounts[first]
			c := drawCall(t, some.payload())
			before := p.Rule(c)
			some.amount = amounts[rapid.IntRange(first, len(amounts)-1).Draw(t, "bigger")]
			c.Payload = some.payload()
			never(t, "a bigger amount", before, p.Rule(c), d.source())
		}
	})
}

// A condition that fails is never weaker than one that isn't met: it raises and
// blocks, and doesn't lower. Nor is it weaker than one that is met, unless that
// one raises or blocks too.
func TestErrorIsNeverWeaker(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		d := drawDraft(t)
		kind := sample(t, "kind", "raise", "lower", "block")
		r := drawRule(t, "x", kind)
		if chance(t, "about everything") {
			r.rest = ", actions: ['*']"
		}
		with := func(when string) *policy.Policy {
			r.when = when
			return d.with(t, r).parse(t)
		}
		failing, unmet, met := with(sample(t, "failing", failing...)), with("false"), with("true")
		for range calls {
			c := drawCall(t, drawArguments(t).payload())
			failed := failing.Rule(c)
			never(t, "a condition that fails in a rule to "+kind, unmet.Rule(c), failed, d.source(), r)
			never(t, "a condition that fails in a rule to "+kind, met.Rule(c), failed, d.source(), r)
			if fired(failed, "x") != nil && !fired(failed, "x").Failed {
				t.Fatalf("it isn't told that the condition failed: %+v", failed)
			}
		}
	})
}

// What a tool's server says never lowers: an annotation towards danger is never
// weaker, and one towards harmlessness changes nothing but what a contrary one
// raised.
func TestAnnotationsAreNeverWeaker(t *testing.T) {
	t.Parallel()
	boolean := rapid.SampledFrom([]*bool{nil, isTrue(), isFalse()})
	rapid.Check(t, func(t *rapid.T) {
		d := drawDraft(t)
		p := d.parse(t)
		for range calls {
			c := drawCall(t, drawArguments(t).payload())
			before := p.Rule(c)

			dangerous := c
			if chance(t, "changes something") {
				dangerous.Hints.ReadOnly = isFalse()
			}
			if chance(t, "destroys") {
				dangerous.Hints.Destructive = isTrue()
			}
			dangerous.Hints.Idempotent = boolean.Draw(t, "idempotent")
			dangerous.Hints.OpenWorld = boolean.Draw(t, "open world")
			never(t, "an annotation towards danger", before, p.Rule(dangerous), d.source())

			without := c
			without.Hints = policy.Hints{}
			never(t, "any annotation", p.Rule(without), before, d.source())

			harmless := without
			harmless.Hints = policy.Hints{ReadOnly: isTrue(), Destructive: isFalse(), Idempotent: isTrue(), OpenWorld: isFalse()}
			if diff := cmp.Diff(p.Rule(without), p.Rule(harmless)); diff != "" {
				t.Fatalf("a harmless tool is ruled otherwise (-without +with):\n%s", diff)
			}
			if c.Hints.ReadOnly == nil {
				c.Hints.ReadOnly = isTrue()
				if diff := cmp.Diff(before, p.Rule(c)); diff != "" {
					t.Fatalf("a tool that only reads is ruled otherwise (-without +with):\n%s", diff)
				}
			}
		}
	})
}

func TestUnknownToolIsNeverAllowed(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		d := drawDraft(t)
		d.mode = sample(t, "mode", "open", d.mode)
		p := d.parse(t)
		for range calls {
			c := drawCall(t, drawArguments(t).payload())
			c.Action = sample(t, "action", unknownActions...)
			r := p.Rule(c)
			if r.Classified || r.Effect == policy.Allow || r.Tier < policy.TierDestructive {
				t.Fatalf("%q: %+v\n%s", c.Action, r, d.source())
			}
		}
	})
}

func TestUnknownEnvironmentIsProduction(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		d := drawDraft(t)
		p := d.parse(t)
		for range calls {
			c := drawCall(t, drawArguments(t).payload())
			c.Environment = "production"
			want := p.Rule(c)
			c.Environment = sample(t, "environment", unknownEnvironments...)
			if diff := cmp.Diff(want, p.Rule(c)); diff != "" {
				t.Fatalf("%q (-production +unknown):\n%s\n%s", c.Environment, diff, d.source())
			}
		}
	})
}

func TestFirstUseIsNeverWeaker(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		d := drawDraft(t)
		p := d.parse(t)
		for range calls {
			c := drawCall(t, drawArguments(t).payload())
			before := p.Rule(c)
			c.FirstUse.Tool = c.FirstUse.Tool || chance(t, "tool")
			c.FirstUse.Integration = c.FirstUse.Integration || chance(t, "integration")
			c.FirstUse.Agent = c.FirstUse.Agent || chance(t, "agent")
			never(t, "a first use", before, p.Rule(c), d.source())
		}
	})
}

// One more rule that raises or blocks is never weaker, and one more that lowers
// never stricter.
func TestOneMoreRule(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		d := drawDraft(t)
		kind := sample(t, "kind", "raise", "block", "lower")
		r := drawRule(t, "x", kind)
		before, after := d.parse(t), d.with(t, r).parse(t)
		if kind == "lower" {
			before, after = after, before
		}
		for range calls {
			c := drawCall(t, drawArguments(t).payload())
			never(t, "a rule to "+kind, before.Rule(c), after.Rule(c), d.source(), r)
		}
	})
}

// A stricter mode for everything is never weaker.
func TestStricterModeIsNeverWeaker(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		d := drawDraft(t)
		if chance(t, "everywhere") {
			d.environments = []string{"staging: {}", "test: {}"}
			for i := range d.integrations {
				d.integrations[i].mode, d.integrations[i].environments = "", nil
			}
		}
		var policies []*policy.Policy
		for _, mode := range []string{"open", "cautious", "strict", "readonly"} {
			d.mode = mode
			policies = append(policies, d.parse(t))
		}
		for range calls {
			c := drawCall(t, drawArguments(t).payload())
			for i := 1; i < len(policies); i++ {
				never(t, "a stricter mode", policies[i-1].Rule(c), policies[i].Rule(c), d.source())
			}
		}
	})
}

// Another spelling of an action never gets less than the action itself, unless
// a condition of the author's own compares the name as it is written.
func TestRespellingIsNeverWeaker(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		d := drawDraft(t)
		for _, rule := range slices.Concat(d.blocks, d.rules) {
			if strings.Contains(rule.when, "tool.") {
				return
			}
		}
		p := d.parse(t)
		for range calls {
			c := drawCall(t, drawArguments(t).payload())
			before := p.Rule(c)
			respelled := c
			respelled.Action = strings.ToUpper(c.Action)
			if rapid.Bool().Draw(t, "only a letter") && c.Action != "" {
				at := rapid.IntRange(0, len(c.Action)-1).Draw(t, "letter")
				respelled.Action = c.Action[:at] + strings.ToUpper(c.Action[at:at+1]) + c.Action[at+1:]
			}
			after := p.Rule(respelled)
			respelled.Unpinned = false
			if p.Rule(respelled).Classified {
				continue // it is a tool of its own
			}
			if less := weaker(before, after); less != "" {
				t.Fatalf("%q instead of %q: %s\n%v\n%v", respelled.Action, c.Action, less, after.Rules, before.Rules)
			}
		}
	})
}
