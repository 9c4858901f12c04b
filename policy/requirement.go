package policy

import (
	"fmt"
	"strings"
)

// MaxPeople bounds how many people one requirement may ask for.
const MaxPeople = 20

// RoleCount asks for a number of people of one role.
type RoleCount struct {
	Role  string `json:"role"`
	Count int    `json:"count"`
}

// Requirement is what approving takes: every role count met, by distinct
// people. The zero Requirement can never be met.
type Requirement struct {
	Roles []RoleCount `json:"roles"`
	// AllowSelf lets people approve what is their own: the person an agent acts
	// for its requests, and somebody who edited a request their own edit.
	AllowSelf bool `json:"allowSelf,omitempty"`
}

// Vote is one person's approval with the roles they hold.
type Vote struct {
	Person string
	Roles  []string
}

// Missing returns the places that the votes leave open, by role, in the
// requirement's order; it is empty when, and only when, the requirement is
// met. One person fills one place even with several roles, and votes are
// placed so that as few places as possible stay open.
func (r Requirement) Missing(votes []Vote) []RoleCount {
	var places []string
	for _, want := range r.Roles {
		for range min(want.Count, MaxPeople) {
			places = append(places, want.Role)
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
		for place, role := range places {
			if tried[place] || !voters[voter].holds(role) {
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
			open[places[place]]++
		}
	}
	var missing []RoleCount
	for _, want := range r.Roles {
		if n := open[want.Role]; n > 0 {
			missing = append(missing, RoleCount{Role: want.Role, Count: n})
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

func (v Vote) holds(role string) bool {
	for _, held := range v.Roles {
		if held == role {
			return true
		}
	}
	return false
}

// merge joins the votes of one person: voting twice is one vote.
func merge(votes []Vote) []Vote {
	index := make(map[string]int, len(votes))
	var merged []Vote
	for _, vote := range votes {
		at, known := index[vote.Person]
		if !known {
			index[vote.Person] = len(merged)
			merged = append(merged, Vote{Person: vote.Person, Roles: vote.Roles})
			continue
		}
		merged[at].Roles = append(append([]string(nil), merged[at].Roles...), vote.Roles...)
	}
	return merged
}
