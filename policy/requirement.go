package policy

import (
	"fmt"
	"slices"
	"strings"
)

// MaxPeople bounds how many people one requirement may ask for.
const MaxPeople = 20

// RoleCount asks for a number of people of one role.
type RoleCount struct {
	Role  string `json:"role"`
	Count int    `json:"count"`
	// AllowSelf lets people fill the role's places for what is their own: the
	// person behind an agent for its requests, and somebody who edited a request
	// for their own edit.
	AllowSelf bool `json:"allow_self,omitempty"`
}

// Requirement is what approving takes: every role count met, by distinct
// people. The zero Requirement can never be met.
type Requirement struct {
	Roles []RoleCount `json:"roles"`
	// ReasonRequired asks approvers for their reason in words.
	ReasonRequired bool `json:"reason_required,omitempty"`
	// Owner is the Slack user id of the person whom the policy names behind the
	// agent, besides the one it acts for; empty if nobody.
	Owner string `json:"owner,omitempty"`
}

// AllowsSelf reports whether anybody may approve what is their own.
func (r Requirement) AllowsSelf() bool {
	return slices.ContainsFunc(r.Roles, func(want RoleCount) bool { return want.AllowSelf })
}

// Vote is one person's approval with the roles they hold.
type Vote struct {
	Person string
	Roles  []string
	// Own means that the person approves what is their own, which fills only
	// places that allow it.
	Own bool
}

// Missing returns the places that the votes leave open, by role, in the
// requirement's order; it is empty when, and only when, the requirement is
// met. One person fills one place even with several roles, and votes are
// placed so that as few places as possible stay open.
func (r Requirement) Missing(votes []Vote) []RoleCount {
	var places []RoleCount
	for _, want := range r.Roles {
		for range min(want.Count, MaxPeople) {
			places = append(places, want)
		}
	}
	if len(places) == 0 {
		return []RoleCount{{Role: "", Count: 1}}
	}
	voters := merge(votes)
	placed := make([]int, len(places)) // the voter in each place
	for i := range placed {
		placed[i] = -1
	}
	// Each voter in turn takes a free place or makes somebody move over: a
	// maximum matching by augmenting paths.
	var seat func(voter int, tried []bool) bool
	seat = func(voter int, tried []bool) bool {
		for place, want := range places {
			if tried[place] || !voters[voter].fits(want) {
				continue
			}
			tried[place] = true
			if placed[place] < 0 || seat(placed[place], tried) {
				placed[place] = voter
				return true
			}
		}
		return false
	}
	for voter := range voters {
		seat(voter, make([]bool, len(places)))
	}
	open := make(map[string]int)
	for place, voter := range placed {
		if voter < 0 {
			open[places[place].Role]++
		}
	}
	var missing []RoleCount
	for _, want := range r.Roles {
		if n := open[want.Role]; n > 0 {
			missing = append(missing, RoleCount{Role: want.Role, Count: n, AllowSelf: want.AllowSelf})
			delete(open, want.Role)
		}
	}
	return missing
}

// String says the requirement in words: "1 of finance and 2 of sre".
func (r Requirement) String() string { return Words(r.Roles) }

// Words lists role counts for people: "1 of finance and 2 of sre".
func Words(counts []RoleCount) string {
	parts := make([]string, len(counts))
	for i, want := range counts {
		parts[i] = fmt.Sprintf("%d of %s", want.Count, want.Role)
	}
	return strings.Join(parts, " and ")
}

// fits reports whether the vote can fill a place.
func (v Vote) fits(place RoleCount) bool {
	return slices.Contains(v.Roles, place.Role) && (!v.Own || place.AllowSelf)
}

// people is how many places the requirement has.
func (r Requirement) people() int {
	total := 0
	for _, want := range r.Roles {
		total += want.Count
	}
	return total
}

// of returns how many people of a role the requirement asks for, and whether
// they may approve what is their own.
func (r Requirement) of(role string) (count int, allowSelf bool) {
	for _, want := range r.Roles {
		if want.Role == role {
			return want.Count, want.AllowSelf
		}
	}
	return 0, false
}

// stricterThan says in words in what the requirement asks for more than one of
// before; empty if in nothing.
func (r Requirement) stricterThan(before Requirement) string {
	for _, want := range r.Roles {
		count, allowSelf := before.of(want.Role)
		if want.Count > count {
			return fmt.Sprintf("The policy now asks for %s; it was %s.", r, before)
		}
		if allowSelf && !want.AllowSelf {
			return "The policy doesn't let people of " + want.Role + " approve what is their own any more."
		}
	}
	if r.ReasonRequired && !before.ReasonRequired {
		return "The policy now asks approvers for a reason."
	}
	if r.Owner != "" && r.Owner != before.Owner {
		return "The policy now names another person behind the agent."
	}
	return ""
}

// merge joins the votes of one person: voting twice is one vote.
func merge(votes []Vote) []Vote {
	index := make(map[string]int, len(votes))
	var merged []Vote
	for _, vote := range votes {
		at, known := index[vote.Person]
		if !known {
			index[vote.Person] = len(merged)
			merged = append(merged, vote)
			continue
		}
		merged[at].Own = merged[at].Own || vote.Own
		merged[at].Roles = append(append([]string(nil), merged[at].Roles...), vote.Roles...)
	}
	return merged
}
