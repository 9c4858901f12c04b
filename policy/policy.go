// Package policy says which calls run, which wait for whom, and which never
// run. It is pure: it reads no clock, opens no file and calls no service, so
// that one call under one document always gets one ruling.
//
// A document names the roles, the people and groups that hold them, and what
// approving takes. Until a document classifies actions, every action is
// unclassified: it waits for people, at the tier of a destructive one.
package policy

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
)

// Tier is how much a mistake would cost, from 1 (read) to 5 (irreversible or
// high value).
type Tier int

// The tiers, in rising order of harm.
const (
	TierRead          Tier = 1
	TierInternalWrite Tier = 2
	TierExternal      Tier = 3
	TierDestructive   Tier = 4
	TierIrreversible  Tier = 5
)

// String names the tier as people read it, with its number.
func (t Tier) String() string {
	names := map[Tier]string{
		TierRead:          "read",
		TierInternalWrite: "internal write",
		TierExternal:      "external-facing",
		TierDestructive:   "destructive",
		TierIrreversible:  "irreversible",
	}
	if name, ok := names[t]; ok {
		return fmt.Sprintf("tier %d, %s", int(t), name)
	}
	return fmt.Sprintf("tier %d", int(t))
}

// Effect is what a ruling does with a call.
type Effect string

// The effects. Only RequireApproval is ruled so far; an unclassified action
// never gets another.
const (
	RequireApproval Effect = "require_approval"
)

// Call is what policy may know of an action. Nothing in it is authority: it
// comes from the agent, except Agent, which was authenticated.
type Call struct {
	Agent       string
	Action      string
	Target      string
	Environment string // empty means unknown, which is treated as production
	Payload     []byte
}

// Ruling is policy's answer for one call.
type Ruling struct {
	Effect      Effect
	Tier        Tier
	Requirement Requirement
	Rules       []FiredRule
}

// FiredRule is a rule that took part in a ruling, with its reason in words for
// the approver.
type FiredRule struct {
	ID  string `json:"id"`
	Why string `json:"why"`
}

// Role is a named set of approvers. Users are Slack user ids of the configured
// workspace; Groups are Slack user groups whose members hold the role too.
// Whoever may edit such a group in Slack decides who holds the role.
type Role struct {
	Name   string
	Users  []string
	Groups []string
}

// Document is a policy: who holds which role, and what approving takes.
type Document struct {
	Roles    []Role
	Approval Requirement
}

// Rule answers for one call. An action that nothing classifies waits for
// people.
func (d Document) Rule(Call) Ruling {
	return Ruling{
		Effect:      RequireApproval,
		Tier:        TierDestructive,
		Requirement: d.Approval,
		Rules: []FiredRule{{
			ID:  "unclassified",
			Why: "No rule classifies this action, so a person decides.",
		}},
	}
}

// Named returns the roles that the requirement names, in its order. A name
// that the document doesn't know is left out: nobody holds it.
func (d Document) Named(r Requirement) []Role {
	var named []Role
	for _, want := range r.Roles {
		for _, role := range d.Roles {
			if role.Name == want.Role {
				named = append(named, role)
			}
		}
	}
	return named
}

var (
	roleName  = regexp.MustCompile(`^[a-z][a-z0-9_-]{0,63}$`)
	slackUser = regexp.MustCompile(`^[UW][A-Z0-9]{2,30}$`)
	userGroup = regexp.MustCompile(`^S[A-Z0-9]{2,30}$`)
)

// IsUserID reports whether id has the form of a Slack user id.
func IsUserID(id string) bool { return slackUser.MatchString(id) }

// Validate reports everything that is wrong with the document, joined. A
// document under which nobody could ever approve is wrong.
func (d Document) Validate() error {
	var problems []error
	problem := func(format string, args ...any) {
		problems = append(problems, fmt.Errorf(format, args...))
	}
	known := make(map[string]Role)
	for _, role := range d.Roles {
		switch _, twice := known[role.Name]; {
		case !roleName.MatchString(role.Name):
			problem("role %q: a name is 1 to 64 lower-case letters, digits, - and _, starting with a letter", role.Name)
		case twice:
			problem("role %q is defined twice", role.Name)
		}
		known[role.Name] = role
		for _, user := range role.Users {
			if !slackUser.MatchString(user) {
				problem("role %q: %q is not a Slack user id (like U024BE7LH)", role.Name, user)
			}
		}
		for _, group := range role.Groups {
			if !userGroup.MatchString(group) {
				problem("role %q: %q is not a Slack user group id (like S0614TZR7)", role.Name, group)
			}
		}
		if len(role.Users) == 0 && len(role.Groups) == 0 {
			problem("role %q has no users and no groups, so nobody can approve for it", role.Name)
		}
	}
	if len(d.Approval.Roles) == 0 {
		problem("approval names no role, so nobody could ever approve")
	}
	named := make(map[string]bool)
	slots := 0
	for _, want := range d.Approval.Roles {
		role, ok := known[want.Role]
		if !ok {
			problem("approval asks for role %q, which is not defined", want.Role)
		}
		if named[want.Role] {
			problem("approval asks for role %q twice; give it one count", want.Role)
		}
		named[want.Role] = true
		if want.Count < 1 || want.Count > MaxPeople {
			problem("approval asks for %d of role %q; the count is 1 to %d", want.Count, want.Role, MaxPeople)
		}
		slots += max(want.Count, 0)
		if ok && len(role.Groups) == 0 && want.Count > len(distinct(role.Users)) {
			problem("approval asks for %d of role %q, which has %d", want.Count, want.Role, len(distinct(role.Users)))
		}
	}
	if slots > MaxPeople {
		problem("approval asks for %d people; at most %d", slots, MaxPeople)
	}
	if len(problems) == 0 && !d.reachable() {
		problem("approval asks for more distinct people than hold the roles: one person fills one place")
	}
	return errors.Join(problems...)
}

// ValidateFor is Validate for an agent that acts for a person, whose approvals of
// its requests don't count unless the document says so. user is empty for an
// agent that acts for nobody.
func (d Document) ValidateFor(user string) error {
	if err := d.Validate(); err != nil || user == "" || d.Approval.AllowSelf {
		return err
	}
	others := Document{Approval: d.Approval}
	for _, role := range d.Roles {
		role.Users = slices.DeleteFunc(slices.Clone(role.Users), func(held string) bool { return held == user })
		others.Roles = append(others.Roles, role)
	}
	if !others.reachable() {
		return fmt.Errorf("without %s, for whom the agent acts, nobody could approve its requests; give the role to somebody else too, or allow self-approval", user)
	}
	return nil
}

// reachable reports whether the configured users could meet the requirement
// together. A role with a group may have members that are not known here, so
// it stands for as many people as it is asked for.
func (d Document) reachable() bool {
	holders := make(map[string][]string)
	for _, want := range d.Approval.Roles {
		for _, role := range d.Named(Requirement{Roles: []RoleCount{want}}) {
			people := distinct(role.Users)
			if len(role.Groups) > 0 {
				for i := range want.Count {
					people = append(people, fmt.Sprintf("member %d of %s", i, role.Name))
				}
			}
			for _, person := range people {
				holders[person] = append(holders[person], role.Name)
			}
		}
	}
	votes := make([]Vote, 0, len(holders))
	for person, roles := range holders {
		votes = append(votes, Vote{Person: person, Roles: roles})
	}
	return len(d.Approval.Missing(votes)) == 0
}

func distinct(values []string) []string {
	seen := make(map[string]bool, len(values))
	var out []string
	for _, value := range values {
		if !seen[value] {
			seen[value] = true
			out = append(out, value)
		}
	}
	return out
}
