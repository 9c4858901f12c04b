package slacksim

// User is a person or bot as users.info shows it.
type User struct {
	ID       string // such as U0ALICE
	Name     string // the handle, such as alice
	RealName string // such as Alice Moreau
	// TeamID is the person's own workspace; empty means this one. Another id makes them external.
	TeamID string
	// EnterpriseID is the Grid organisation they belong to; empty means that of this workspace, if any.
	EnterpriseID string

	Bot             bool
	WorkflowBot     bool
	Restricted      bool // a multi-channel guest
	UltraRestricted bool // a single-channel guest
	Deleted         bool // deactivated
	Stranger        bool // external, sharing no channel with the bot
}

// Group is a Slack user group, "subteam" in the API.
type Group struct {
	ID       string // such as S0ONCALL
	Handle   string // such as ops-oncall
	Name     string
	Users    []string // user ids, in order
	Disabled bool     // lists only with include_disabled
}

// Channel is a conversation of the workspace. With the zero value of its flags it is public, active and the bot is in it.
type Channel struct {
	ID    string // such as C0APPROVALS
	Name  string // without the #
	Topic string
	// Members are the people in it; nil means everyone. The bot is in it unless WithoutBot is set.
	Members    []string
	WithoutBot bool
	Private    bool
	Archived   bool
	ExtShared  bool // shared with another organisation (Slack Connect)
	OrgShared  bool // shared between workspaces of one Grid organisation
}

// SetUser adds a person or replaces the one with the same id.
func (w *Workspace) SetUser(u User) {}

// User returns the person with that id.
func (w *Workspace) User(id string) (User, bool) { return User{}, false }

// SetGroup adds a user group or replaces the one with the same id.
func (w *Workspace) SetGroup(g Group) {}

// SetChannel adds a channel or replaces the one with the same id. Its messages stay.
func (w *Workspace) SetChannel(c Channel) {}
