package bot

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/slack-go/slack"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/policy"
)

// lookupTimeout bounds each look-up of a person or a group. They run at the
// same time, within what a decision may take.
const lookupTimeout = 800 * time.Millisecond

// Directory is approval.Directory on Slack. It keeps nothing: each call asks
// Slack for the person and, where a role names user groups, for their members.
// It is safe for concurrent use.
type Directory struct {
	workspace string
	slack     *slack.Client

	mu         sync.Mutex
	enterprise *string // of our workspace, "" for none; nil while unknown
}

// NewDirectory returns the directory of the workspace that the options name.
func NewDirectory(options Options) (*Directory, error) {
	if err := options.check(); err != nil {
		return nil, fmt.Errorf("checking the Slack options: %w", err)
	}
	return &Directory{workspace: options.Workspace, slack: options.client(interactiveTimeout)}, nil
}

// Standing implements approval.Directory. Bots, guests, deactivated accounts
// and people of other workspaces are approval.ErrIneligible, with the reason in
// the error's text. If Slack can't say, or a group can't be looked up, the error
// wraps approval.ErrUnverified: nobody holds a role by default.
func (d *Directory) Standing(ctx context.Context, who approval.Approver, roles []policy.Role) (approval.Standing, error) {
	if who.Workspace != d.workspace {
		return approval.Standing{}, elsewhere
	}
	if !policy.IsUserID(who.User) || who.User == "USLACKBOT" {
		return approval.Standing{}, aBot
	}
	var account error
	groups := groupsToAsk(who.User, roles)
	members := make([][]string, len(groups))
	problems := make([]error, len(groups))
	var asking sync.WaitGroup
	asking.Go(func() { account = d.eligible(ctx, who.User) })
	for i, group := range groups {
		asking.Go(func() { members[i], problems[i] = d.members(ctx, group) })
	}
	asking.Wait()
	if account != nil {
		return approval.Standing{}, account
	}
	if err := errors.Join(problems...); err != nil {
		return approval.Standing{}, err
	}
	var standing approval.Standing
	for _, role := range roles {
		if slices.Contains(role.Users, who.User) {
			standing.Roles = append(standing.Roles, approval.Membership{Role: role.Name, Via: "user"})
			continue
		}
		for _, group := range role.Groups {
			if at := slices.Index(groups, group); slices.Contains(members[at], who.User) {
				standing.Roles = append(standing.Roles, approval.Membership{Role: role.Name, Via: group})
				break
			}
		}
	}
	return standing, nil
}

// groupsToAsk are the groups of those roles that the person doesn't hold by
// name, each once.
func groupsToAsk(user string, roles []policy.Role) []string {
	var groups []string
	for _, role := range roles {
		if slices.Contains(role.Users, user) {
			continue
		}
		for _, group := range role.Groups {
			if !slices.Contains(groups, group) {
				groups = append(groups, group)
			}
		}
	}
	return groups
}

// Why an account may never decide.
const (
	elsewhere   = approval.Ineligible("people of other workspaces can't decide")
	aBot        = approval.Ineligible("bots can't decide")
	aGuest      = approval.Ineligible("guests can't decide")
	deactivated = approval.Ineligible("this account is deactivated")
	unknown     = approval.Ineligible("this workspace doesn't know the account")
)

// eligible returns nil if the account may decide at all.
func (d *Directory) eligible(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	user, err := d.slack.GetUserInfoContext(ctx, id)
	switch {
	case code(err) == "user_not_found" || code(err) == "user_not_visible":
		return unknown
	case err != nil:
		return unverified("looking up the person", err)
	case user.ID != id:
		return unverified("looking up the person", errors.New("the answer is about somebody else"))
	case user.Deleted:
		return deactivated
	case user.IsBot || user.IsWorkflowBot || user.IsConnectorBot:
		return aBot
	case user.IsRestricted || user.IsUltraRestricted:
		return aGuest
	case user.IsStranger:
		return elsewhere
	case user.TeamID == d.workspace:
		return nil
	}
	// In an organisation of several workspaces a person's account names one of
	// them; the person may be a member of ours too.
	if user.Enterprise.EnterpriseID == "" || !slices.Contains(user.Enterprise.Teams, d.workspace) {
		return elsewhere
	}
	ours, err := d.ourEnterprise(ctx)
	switch {
	case err != nil:
		return unverified("looking up our organisation", err)
	case ours != user.Enterprise.EnterpriseID:
		return elsewhere
	}
	return nil
}

// ourEnterprise is the organisation of the configured workspace, which doesn't
// change; "" if it is in none.
func (d *Directory) ourEnterprise(ctx context.Context) (string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.enterprise != nil {
		return *d.enterprise, nil
	}
	self, err := d.slack.AuthTestContext(ctx)
	if err != nil {
		return "", err
	}
	if self.TeamID != d.workspace {
		return "", errors.New("the bot token belongs to another workspace")
	}
	d.enterprise = &self.EnterpriseID
	return self.EnterpriseID, nil
}

// members lists the members of a user group. A group that is disabled has none
// that Slack would tell.
func (d *Directory) members(ctx context.Context, group string) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	members, err := d.slack.GetUserGroupMembersContext(ctx, group)
	if err != nil {
		return nil, unverified("looking up the user group "+group, err)
	}
	return members, nil
}

// Name is how somebody calls themselves in Slack now, which anybody can choose: it is
// for reading beside the id, and decides nothing.
func (d *Directory) Name(ctx context.Context, who approval.Approver) (string, error) {
	if who.Workspace != d.workspace || !policy.IsUserID(who.User) {
		return "", elsewhere
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	user, err := d.slack.GetUserInfoContext(ctx, who.User)
	if err != nil {
		return "", unverified("looking up a name", err)
	}
	return cmp.Or(user.Profile.RealName, user.RealName, user.Profile.DisplayName, user.Name), nil
}

func unverified(doing string, err error) error {
	return fmt.Errorf("%s: %w: %w", doing, approval.ErrUnverified, explained(err))
}
