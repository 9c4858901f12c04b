package slacksim

import (
	"slices"
	"strings"
)

// User is a person or bot as users.info shows it.
type User struct {
	ID       string // such as U0ALICE
	Name     string // the handle, such as alice
	RealName string // such as Alice Moreau
	// TeamID is the person's own workspace; empty means this one. Another id
	// makes them external.
	TeamID string
	// EnterpriseID is the Grid organisation they belong to; empty means that of
	// this workspace, if any, for its own people.
	EnterpriseID string

	Bot             bool
	WorkflowBot     bool
	Restricted      bool // a guest
	UltraRestricted bool // a guest of a single channel
	Deleted         bool // deactivated
	Stranger        bool // external, sharing no channel with the bot
}

// Group is a Slack user group, "subteam" in the API.
type Group struct {
	ID       string // such as S0ONCALL
	Handle   string // such as ops-oncall
	Name     string
	Users    []string // user ids, in order
	Disabled bool     // listed only with include_disabled
}

// Channel is a conversation of the workspace. With the zero value of its flags
// it is public, active and the bot is in it.
type Channel struct {
	ID    string // such as C0APPROVALS
	Name  string // without the #
	Topic string
	// Members are the people in it; nil means everyone. The bot is in it unless
	// WithoutBot is set.
	Members    []string
	WithoutBot bool
	Private    bool
	Archived   bool
	ExtShared  bool // shared with another organisation (Slack Connect)
	OrgShared  bool // shared between workspaces of one Grid organisation

	direct string // of a direct message channel, the person in it
}

// SetUser adds a person or replaces the one with the same id.
func (w *Workspace) SetUser(u User) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.users = upsert(w.users, u, func(other User) bool { return other.ID == u.ID })
	w.ring()
}

// User returns the person with that id.
func (w *Workspace) User(id string) (User, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.user(id)
}

// SetGroup adds a user group or replaces the one with the same id.
func (w *Workspace) SetGroup(g Group) {
	w.mu.Lock()
	defer w.mu.Unlock()
	g.Users = slices.Clone(g.Users)
	w.groups = upsert(w.groups, g, func(other Group) bool { return other.ID == g.ID })
	w.ring()
}

// SetChannel adds a channel or replaces the one with the same id. Its messages
// stay.
func (w *Workspace) SetChannel(c Channel) {
	w.mu.Lock()
	defer w.mu.Unlock()
	c.Members = slices.Clone(c.Members)
	w.channels = upsert(w.channels, c, func(other Channel) bool { return other.ID == c.ID })
	w.ring()
}

func upsert[T any](list []T, item T, same func(T) bool) []T {
	if i := slices.IndexFunc(list, same); i >= 0 {
		list[i] = item
		return list
	}
	return append(list, item)
}

// The lookups below are called with mu held.

func (w *Workspace) user(id string) (User, bool) {
	return find(w.users, func(u User) bool { return u.ID == id })
}

func (w *Workspace) group(id string) (Group, bool) {
	return find(w.groups, func(g Group) bool { return g.ID == id })
}

func (w *Workspace) channel(id string) (Channel, bool) {
	return find(w.channels, func(c Channel) bool { return c.ID == id })
}

// open returns the channel with that id, or the direct message channel with
// that person, making it at the first use.
func (w *Workspace) open(id string) (Channel, bool) {
	if c, ok := w.channel(id); ok {
		return c, true
	}
	u, ok := w.user(id)
	if !ok || u.ID == w.options.BotUserID {
		return Channel{}, false
	}
	direct := Channel{ID: directID(u.ID), Name: u.Name, Members: []string{u.ID}, direct: u.ID}
	if c, ok := w.channel(direct.ID); ok {
		return c, true
	}
	w.channels = append(w.channels, direct)
	return direct, true
}

func directID(userID string) string { return "D" + strings.TrimLeft(userID, "UW") }

func (c Channel) has(userID string) bool {
	return c.Members == nil || slices.Contains(c.Members, userID)
}

func find[T any](list []T, is func(T) bool) (T, bool) {
	if i := slices.IndexFunc(list, is); i >= 0 {
		return list[i], true
	}
	var none T
	return none, false
}

// team returns the person's workspace.
func (w *Workspace) team(u User) string {
	if u.TeamID != "" {
		return u.TeamID
	}
	return w.options.TeamID
}

// enterprise returns the person's Grid organisation, or "".
func (w *Workspace) enterprise(u User) string {
	if u.EnterpriseID == "" && w.team(u) == w.options.TeamID {
		return w.options.EnterpriseID
	}
	return u.EnterpriseID
}

// name is what clients show for a person.
func (u User) name() string {
	if u.RealName != "" {
		return u.RealName
	}
	return u.Name
}
