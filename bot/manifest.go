package bot

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
)

// The scopes of the bot token, with what each is for.
var scopes = []struct{ name, purpose string }{
	{"chat:write", "post cards, keep them up to date, and tell people of their passkeys"},
	{"users:read", "check the account of who decides"},
	{userGroups, "look up user groups that a role names"},
	{"channels:read", "see whether a public channel is shared with another organisation"},
	{"groups:read", "see whether a private channel is shared with another organisation"},
	{"channels:history", "find a card in a public channel whose arrival is in doubt"},
	{"groups:history", "find a card in a private channel whose arrival is in doubt"},
}

const (
	userGroups     = "usergroups:read"
	publicChannel  = "channels:"
	privateChannel = "groups:"
)

// ManifestOptions say how the app will be used, so that it gets no scope that
// it doesn't need.
type ManifestOptions struct {
	// URL is the https address of the server, where Slack posts clicks to
	// /slack/interactions. Without it the app uses Socket Mode, and needs an
	// app-level token with connections:write.
	URL string
	// SignInURL is the https address to which Slack sends people back who sign in.
	// Without it, nobody signs in.
	SignInURL string
	// PrivateChannel says that the channel for cards is a private one.
	PrivateChannel bool
	// UserGroups says that a role names Slack user groups.
	UserGroups bool
}

func (o ManifestOptions) needs(scope string) bool {
	switch {
	case scope == userGroups:
		return o.UserGroups
	case strings.HasPrefix(scope, publicChannel):
		return !o.PrivateChannel
	case strings.HasPrefix(scope, privateChannel):
		return o.PrivateChannel
	default:
		return true
	}
}

type manifest struct {
	Display struct {
		Name        string `json:"name"`
		Description string `json:"description"`
	} `json:"display_information"`
	Features struct {
		// People are told of their passkeys in a tab that Slack turns off otherwise.
		AppHome struct {
			HomeTab          bool `json:"home_tab_enabled"`
			MessagesTab      bool `json:"messages_tab_enabled"`
			MessagesReadOnly bool `json:"messages_tab_read_only_enabled"`
		} `json:"app_home"`
		BotUser struct {
			DisplayName  string `json:"display_name"`
			AlwaysOnline bool   `json:"always_online"`
		} `json:"bot_user"`
	} `json:"features"`
	OAuth struct {
		RedirectURLs []string `json:"redirect_urls,omitempty"`
		Scopes       struct {
			User []string `json:"user,omitempty"`
			Bot  []string `json:"bot"`
		} `json:"scopes"`
	} `json:"oauth_config"`
	Settings struct {
		Interactivity struct {
			IsEnabled  bool   `json:"is_enabled"`
			RequestURL string `json:"request_url,omitempty"`
		} `json:"interactivity"`
		OrgDeployEnabled     bool `json:"org_deploy_enabled"`
		SocketModeEnabled    bool `json:"socket_mode_enabled"`
		TokenRotationEnabled bool `json:"token_rotation_enabled"`
	} `json:"settings"`
}

// Manifest is the Slack app's manifest as JSON, for Slack's "Create New App,
// From a manifest".
func Manifest(options ManifestOptions) (string, error) {
	var m manifest
	m.Display.Name = "countersign"
	m.Display.Description = "People approve what agents want to do"
	m.Features.AppHome.MessagesTab = true
	m.Features.AppHome.MessagesReadOnly = true
	m.Features.BotUser.DisplayName = "countersign"
	for _, scope := range scopes {
		if options.needs(scope.name) {
			m.OAuth.Scopes.Bot = append(m.OAuth.Scopes.Bot, scope.name)
		}
	}
	m.Settings.Interactivity.IsEnabled = true
	if options.URL == "" {
		m.Settings.SocketModeEnabled = true
	} else {
		if !isHTTPS(options.URL) {
			return "", fmt.Errorf("%q is not an https address; Slack posts clicks only to one", options.URL)
		}
		m.Settings.Interactivity.RequestURL = strings.TrimRight(options.URL, "/") + "/slack/interactions"
	}
	if options.SignInURL != "" {
		if !isHTTPS(options.SignInURL) {
			return "", fmt.Errorf("%q is not an https address; Slack sends people who sign in only to one", options.SignInURL)
		}
		m.OAuth.RedirectURLs = []string{options.SignInURL}
		m.OAuth.Scopes.User = []string{"openid"} // who they are, and nothing else of them
	}
	data, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return "", fmt.Errorf("encoding the manifest: %w", err)
	}
	return string(data), nil
}

// isHTTPS reports whether an address is one that Slack takes for an app: https,
// with nothing behind its path.
func isHTTPS(address string) bool {
	u, err := url.Parse(address)
	return err == nil && u.Scheme == "https" && u.Host != "" && u.RawQuery == "" && u.Fragment == ""
}
