package policy

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// buildApprovals works out what approving takes at each tier: what stands under
// approval, with what the tier says instead.
func (b *builder) buildApprovals() {
	if b.source.Approval.Requires == nil {
		b.problem(place{"approval"}, "requires is missing; name the role that approves")
	}
	b.terms(place{"approval"}, b.source.Approval, approvalDocument{}, TierRead)
	for tier := TierRead; tier <= TierIrreversible; tier++ {
		at := place{"approval"}
		if _, own := b.source.Tiers[tier]; own {
			at = place{"tiers", tier}
		}
		b.approvals[tier] = b.terms(at, b.source.Tiers[tier], b.source.Approval, tier)
	}
}

// terms reads what approving takes, with what general says for keys that aren't
// written.
func (b *builder) terms(at place, written, general approvalDocument, tier Tier) approvalRules {
	var terms approvalRules
	self := either(written.SelfApproval, general.SelfApproval)
	if written.SelfApproval != nil && *written.SelfApproval {
		b.problem(at.of("self_approval"), "only false is accepted here, which forbids it; a role allows it to its people")
	}
	// What is as for all tiers is wrong where it is written, once.
	from := func(own bool, key string) place {
		if own {
			return at.of(key)
		}
		return place{"approval", key}
	}
	requires := written.Requires
	if requires == nil {
		requires = general.Requires
	} else if len(requires) == 0 {
		b.problem(at.of("requires"), "is an empty list; name the role that approves, or leave it out")
	}
	terms.requirement = Requirement{
		Roles:          b.required(from(written.Requires != nil, "requires"), requires, self == nil),
		ReasonRequired: value(either(written.ReasonRequired, general.ReasonRequired), false),
	}
	terms.decideWithin = value(either(written.DecideWithin, general.DecideWithin), defaultDecideWithin)
	terms.applyWithin = value(either(written.ApplyWithin, general.ApplyWithin), defaultApplyWithin)
	b.within(at.of("decide_within"), written.DecideWithin)
	b.within(at.of("apply_within"), written.ApplyWithin)
	terms.remindAfter = b.reminders(from(written.RemindAfter != nil, "remind_after"), value(either(written.RemindAfter, general.RemindAfter), nil))
	if escalate := either(written.Escalate, general.Escalate); escalate != nil {
		terms.escalation = b.escalation(from(written.Escalate != nil, "escalate"), *escalate)
	}
	terms.scopes = b.scopes(from(written.Scopes != nil, "scopes"), value(either(written.Scopes, general.Scopes), nil), tier, written.Scopes != nil)
	return terms
}

// either is what is written, or else the general value; nil if neither is.
func either[T any](written, general *T) *T {
	if written != nil {
		return written
	}
	return general
}

func value[T any](written *T, otherwise T) T {
	if written != nil {
		return *written
	}
	return otherwise
}

func (b *builder) required(at place, written []requiredDocument, selfAllowed bool) []RoleCount {
	var counts []RoleCount
	people := 0
	for i, want := range written {
		here := at.of(i)
		role, ok := b.roleAt[want.Role]
		count := value(want.Count, 1)
		switch {
		case !ok:
			b.problem(here, "role %q isn't defined", want.Role)
		case slices.ContainsFunc(counts, func(c RoleCount) bool { return c.Role == want.Role }):
			b.problem(here, "role %q is asked for twice; give it one count", want.Role)
		case count < 1 || count > MaxPeople:
			b.problem(here, "asks for %d of role %q; the count is 1 to %d", count, want.Role, MaxPeople)
		case len(role.Groups) == 0 && count > len(role.Users):
			b.problem(here, "asks for %d of role %q, which has %d", count, want.Role, len(role.Users))
		}
		people += max(count, 0)
		counts = append(counts, RoleCount{Role: want.Role, Count: count, AllowSelf: role.SelfApproval && selfAllowed})
	}
	if people > MaxPeople {
		b.problem(at, "asks for %d people; at most %d", people, MaxPeople)
	}
	return counts
}

func (b *builder) within(at place, written *time.Duration) {
	if written != nil && (*written < minWithin || *written > maxWithin) {
		b.problem(at, "is %s; 1m to 24h are accepted", *written)
	}
}

func (b *builder) reminders(at place, written []time.Duration) []time.Duration {
	var before time.Duration
	for i, after := range written {
		if after < minWithin || after > maxWithin || after <= before {
			b.problem(at.of(i), "is %s; rising times from 1m to 24h are accepted", after)
		}
		before = after
	}
	if len(written) > 10 {
		b.problem(at, "has %d times; at most 10 are accepted", len(written))
	}
	return written
}

func (b *builder) escalation(at place, written escalationDocument) Escalation {
	if written.After < minWithin || written.After > maxWithin {
		b.problem(at.of("after"), "is %s; 1m to 24h are accepted", written.After)
	}
	role, ok := b.roleAt[written.To]
	if !ok {
		b.problem(at.of("to"), "role %q isn't defined", written.To)
	}
	return Escalation{After: written.After, To: written.To, Users: role.Users, Groups: role.Groups}
}

// scopes are what an approver may be offered. The upper tiers offer an approval
// for one execution only, whatever is written for all tiers.
func (b *builder) scopes(at place, written []string, tier Tier, own bool) []string {
	for i, scope := range written {
		within, err := time.ParseDuration(scope)
		switch {
		case scope == "once", scope == "session":
		case err != nil:
			b.problem(at.of(i), "%q; once, session and durations such as 15m are accepted", scope)
		case within < minWithin || within > maxScope:
			b.problem(at.of(i), "is %s; 1m to 8h are accepted", scope)
		}
		if own && tier >= TierDestructive && scope != "once" {
			b.problem(at.of(i), "%q isn't accepted from tier 4; what destroys is approved each time", scope)
		}
	}
	if len(written) == 0 || tier >= TierDestructive {
		return []string{"once"}
	}
	return written
}

// modesInUse are the modes that some call may be ruled by.
func (p *Policy) modesInUse() []mode {
	all := []mode{p.mode}
	add := func(m *mode) {
		if m != nil {
			all = append(all, *m)
		}
	}
	for _, environment := range p.environments {
		add(environment.mode)
	}
	for _, integration := range p.integrations {
		add(integration.mode)
		for _, m := range integration.environments {
			add(m)
		}
	}
	return all
}

// asks reports whether people are asked about calls of a tier.
func (p *Policy) asks(tier Tier) bool {
	if p.unclassified == RequireApproval && tier >= TierDestructive {
		return true
	}
	if p.firstUse != nil && tier >= p.firstUse.raiseTo {
		return true
	}
	return slices.ContainsFunc(p.modesInUse(), func(m mode) bool { return m.effects[tier] == RequireApproval })
}

// checkApprovals refuses a policy by which a higher tier takes less, and one
// under which nobody could approve what it leaves to people.
func (b *builder) checkApprovals() {
	for tier := TierInternalWrite; tier <= TierIrreversible; tier++ {
		below, here := b.approvals[tier-1].requirement, b.approvals[tier].requirement
		switch {
		case here.people() < below.people():
			b.problem(b.placeOf(tier), "tier %d takes %s, which is fewer people than tier %d takes (%s)", tier, here, tier-1, below)
		case below.ReasonRequired && !here.ReasonRequired:
			b.problem(b.placeOf(tier), "tier %d takes no reason, but tier %d does", tier, tier-1)
		case here.AllowsSelf() && !below.AllowsSelf() && b.forbidsSelf(tier-1):
			b.problem(b.placeOf(tier), "tier %d lets people approve what is their own, but tier %d forbids it", tier, tier-1)
		}
	}
	for tier := TierRead; tier <= TierIrreversible; tier++ {
		if !b.asks(tier) {
			continue
		}
		if !b.reachable(b.approvals[tier].requirement, "") {
			b.problem(b.placeOf(tier), "tier %d takes more distinct people than hold the roles: one person fills one place", tier)
			return
		}
	}
	for agent, owner := range b.owners {
		if err := b.ValidateFor(owner); err != nil {
			b.problem(place{"agents", agent, "owner"}, "%v", err)
		}
	}
}

// placeOf is where it says what approving takes at a tier.
func (b *builder) placeOf(tier Tier) place {
	if _, own := b.source.Tiers[tier]; own {
		return place{"tiers", tier}
	}
	return place{"approval"}
}

func (b *builder) forbidsSelf(tier Tier) bool {
	written := either(b.source.Tiers[tier].SelfApproval, b.source.Approval.SelfApproval)
	return written != nil && !*written
}

// ValidateFor says why nobody could approve what an agent asks that acts for a
// person, nil if somebody could. The person's own approvals fill only places
// that allow it. user is empty for an agent that acts for nobody.
func (p *Policy) ValidateFor(user string) error {
	if user == "" {
		return nil
	}
	var stuck []string
	for tier := TierRead; tier <= TierIrreversible; tier++ {
		if p.asks(tier) && !p.reachable(p.approvals[tier].requirement, user) {
			stuck = append(stuck, strconv.Itoa(int(tier)))
		}
	}
	if len(stuck) == 0 {
		return nil
	}
	return fmt.Errorf("without %s, for whom the agent acts, nobody could approve its requests of tier %s; give the role to somebody else too, or set self_approval on it", user, strings.Join(stuck, ", "))
}

// reachable reports whether the people that the policy names could meet the
// requirement together, for an agent that acts for a person. A role with a group
// may have members that are not known here, so it stands for as many people as
// it is asked for.
func (p *Policy) reachable(r Requirement, own string) bool {
	holders := make(map[string][]string)
	for _, want := range r.Roles {
		role, _ := p.role(want.Role)
		people := slices.Clone(role.Users)
		if len(role.Groups) > 0 {
			for i := range want.Count {
				people = append(people, fmt.Sprintf("member %d of %s", i, role.Name))
			}
		}
		for _, person := range people {
			holders[person] = append(holders[person], role.Name)
		}
	}
	votes := make([]Vote, 0, len(holders))
	for person, roles := range holders {
		votes = append(votes, Vote{Person: person, Roles: roles, Own: own != "" && person == own})
	}
	return len(r.Missing(votes)) == 0
}
