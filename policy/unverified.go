package policy

import "slices"

// An answer that no verified person gives comes from the agent's own side: its
// client says that somebody confirmed, or its host's view that somebody decided.
// A policy says where one is enough. These are what the two have in common.

// unverifiedKind is in what one kind of such answers differs from the other.
type unverifiedKind struct {
	key       string
	byDefault []Tier // the tiers if none are written; without them some must be
	highest   Tier
	accepted  string // which tiers are, in words

	production         bool // it counts there also where no environments are listed
	strictInProduction bool // it counts there in the modes that are listed, too
	unclassified       bool // it is enough also for what isn't classified
	reasons            bool // it can give one

	answer  string // what is enough, in the words of findings
	short   string // the same, shorter
	careful string // what it isn't, and why
	noMore  string // what mode readonly leaves nothing for
}

var (
	// What destroys is never confirmed by whoever wants it done.
	clientAnswers = unverifiedKind{
		key:                "in_band",
		highest:            TierExternal,
		accepted:           "1, 2 and 3 are accepted, since people decide on what is worse",
		strictInProduction: true,
		answer:             "what an agent's own client answers",
		short:              "what a client answers",
		careful:            "that isn't the answer of a person with a role, since some clients say yes by themselves",
		noMore:             "that a client could answer",
	}
	// The person in front of the view sees what will run, so that more may be
	// left to them.
	viewDecisions = unverifiedKind{
		key:          "in_view",
		byDefault:    []Tier{TierRead, TierInternalWrite, TierExternal},
		highest:      TierIrreversible,
		accepted:     "tiers are 1 to 5",
		production:   true,
		unclassified: true,
		reasons:      true,
		answer:       "what is decided in the view of an agent's own host",
		short:        "what is decided in a view",
		careful:      "that isn't the decision of a person with a role, since nobody signs in there",
		noMore:       "that could be decided in a view",
	}
)

// unverifiedRules are where one kind of such answers is enough.
type unverifiedRules struct {
	*unverifiedKind
	tiers        [TierIrreversible + 1]bool
	environments map[string]bool
	modes        map[string]bool // that are listed
}

// buildUnverified reads where one kind of answer is enough; nil for nowhere.
func (b *builder) buildUnverified(kind *unverifiedKind, written *unverifiedDocument) *unverifiedRules {
	if written == nil {
		if kind.byDefault == nil {
			return nil
		}
		written = &unverifiedDocument{}
	}
	at := place{kind.key}
	rules := &unverifiedRules{unverifiedKind: kind, modes: make(map[string]bool)}
	tiers := value(written.Tiers, kind.byDefault)
	if len(tiers) == 0 && kind.byDefault == nil {
		b.problem(at, "tiers is missing; name some of 1, 2 and 3")
	}
	for i, tier := range tiers {
		if !tier.valid() || tier > kind.highest {
			b.problem(at.of("tiers", i), "is %d; %s", tier, kind.accepted)
			continue
		}
		rules.tiers[tier] = true
	}
	rules.environments = b.environmentSet(at.of("environments"), written.Environments)
	if rules.environments == nil {
		rules.environments = make(map[string]bool)
		for name := range b.environments {
			rules.environments[name] = kind.production || name != production
		}
	}
	for i, name := range written.Modes {
		if m := b.modeNamed(at.of("modes", i), name); m != nil {
			rules.modes[m.name] = true
		} else if name == "" {
			b.problem(at.of("modes", i), "names no mode")
		}
	}
	return rules
}

// checkUnverified refuses a tier of which such an answer is enough above one
// that is kept for people: what is worse would take less. A first use is kept
// for them at every tier.
func (b *builder) checkUnverified(rules *unverifiedRules) {
	if rules == nil {
		return
	}
	for tier := TierInternalWrite; tier <= rules.highest; tier++ {
		below := tier - 1
		asked := rules.unclassified && b.unclassified == RequireApproval && below >= TierDestructive ||
			slices.ContainsFunc(b.modesInUse(), func(m mode) bool { return m.effects[below] == RequireApproval })
		if rules.tiers[tier] && !rules.tiers[below] && asked {
			b.problem(place{rules.key, "tiers"}, "names tier %d and not tier %d, on which people decide too, so that what is worse would take less; name both", tier, below)
		}
	}
}

// isEnough reports whether such an answer is enough for what people are asked
// about: never for what is used for the first time, and only where the policy
// says so.
func (e *evaluation) isEnough(rules *unverifiedRules, tier Tier) bool {
	switch {
	case rules == nil || !rules.tiers[tier] || !rules.environments[e.facts.environment]:
		return false
	case !rules.unclassified && !e.class.known, !rules.reasons && e.policy.approvals[tier].requirement.ReasonRequired:
		return false
	case slices.ContainsFunc(e.fired, func(rule FiredRule) bool { return rule.ID == firstUseID }):
		return false
	}
	// A mode that another one is as strict as at this tier keeps its say: else a
	// higher tier, at which the other one counts, could take less.
	for first, second := range e.policy.modesAbout(e.facts.integration, e.facts.environment) {
		if rules.forbids(first, e.facts.environment) || rules.forbids(second, e.facts.environment) {
			return false
		}
	}
	return true
}

// forbids reports whether a mode keeps everything in an environment for people.
func (r *unverifiedRules) forbids(m *mode, environment string) bool {
	if m == nil || m.name != modeStrict && m.name != modeReadonly {
		return false
	}
	return !r.modes[m.name] || environment == production && !r.strictInProduction
}

// checkUnverifiedPlaces finds places in which such an answer is enough and may
// not be meant to be, and places where it never counts.
func (c *checker) checkUnverifiedPlaces(rules *unverifiedRules, written *unverifiedDocument) {
	if rules == nil || written == nil {
		return
	}
	const unlessMeant = "leave it out unless that is meant"
	at := place{rules.key}
	if !slices.Contains(rules.tiers[:], true) {
		for _, key := range []string{"environments", "modes"} {
			if has(c.file, at.of(key)) {
				c.finding(at.of(key), "has no effect: no tier is named, so nothing is left to a view; take it out")
			}
		}
		return
	}
	for i, name := range written.Environments {
		if name == production && !rules.production {
			c.finding(at.of("environments", i), "in production, %s is enough, and %s; %s", rules.answer, rules.careful, unlessMeant)
		}
	}
	elsewhere := false
	for name, counts := range rules.environments {
		elsewhere = elsewhere || counts && name != production
	}
	if !rules.production && len(written.Environments) == 0 && !elsewhere {
		c.finding(at, "has no effect: it is about all environments but production, and there is no other; take it out")
	}
	for i, name := range written.Modes {
		switch {
		case name == modeReadonly:
			c.finding(at.of("modes", i), "has no effect: mode readonly leaves nothing to people %s; take it out", rules.noMore)
		case name != modeStrict:
			c.finding(at.of("modes", i), "has no effect: %s counts in mode %s anyway; only strict has to be listed", rules.short, name)
		case !rules.strictInProduction && !elsewhere:
			c.finding(at.of("modes", i), "has no effect: it is about production alone, where mode strict leaves nothing to a view; take it out")
		default:
			c.finding(at.of("modes", i), "in mode strict, %s is enough, and %s; %s", rules.answer, rules.careful, unlessMeant)
		}
	}
}
