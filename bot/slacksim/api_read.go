package slacksim

import (
	"net/url"
	"regexp"
	"strconv"
	"strings"
)

func (w *Workspace) authTest(url.Values) answer {
	body := map[string]any{
		"url":                   "https://" + strings.ToLower(w.options.TeamName) + ".slack.com/",
		"team":                  w.options.TeamName,
		"team_id":               w.options.TeamID,
		"user":                  w.options.BotName,
		"user_id":               w.options.BotUserID,
		"bot_id":                w.options.BotID,
		"is_enterprise_install": false,
	}
	if w.options.EnterpriseID != "" {
		body["enterprise_id"] = w.options.EnterpriseID
	}
	return success(body)
}

// readable returns a conversation the bot may look at, given the scope for its
// kind, such as read or history.
func (w *Workspace) readable(id, what string) (Channel, answer, bool) {
	c, ok := w.channel(id)
	if !ok || c.Private && c.WithoutBot {
		return Channel{}, failure("channel_not_found"), false
	}
	kind := "channels:"
	switch {
	case c.direct != "":
		kind = "im:"
	case c.Private:
		kind = "groups:"
	}
	if a, ok := w.scope(kind + what); !ok {
		return Channel{}, a, false
	}
	return c, answer{}, true
}

func (w *Workspace) conversationsInfo(arguments url.Values) answer {
	c, a, ok := w.readable(arguments.Get("channel"), "read")
	if !ok {
		return a
	}
	value := map[string]any{
		"id":            c.ID,
		"is_archived":   c.Archived,
		"is_channel":    c.direct == "" && !c.Private,
		"is_group":      c.Private,
		"is_im":         c.direct != "",
		"is_private":    c.Private || c.direct != "",
		"is_ext_shared": c.ExtShared,
		"is_org_shared": c.OrgShared,
		"is_shared":     c.ExtShared || c.OrgShared,
	}
	if c.direct != "" {
		value["user"] = c.direct
	} else {
		value["name"] = c.Name
		value["is_member"] = !c.WithoutBot
		value["topic"] = map[string]any{"value": c.Topic}
	}
	if truth(arguments.Get("include_num_members")) {
		value["num_members"] = w.members(c)
	}
	return success(map[string]any{"channel": value})
}

func (w *Workspace) members(c Channel) int {
	if c.Members != nil {
		return len(c.Members)
	}
	count := 0
	for _, u := range w.users {
		if !u.Bot && !u.Deleted {
			count++
		}
	}
	return count
}

// History pages are at most this long, and a page without a limit this.
const (
	maxHistory     = 999
	defaultHistory = 100
)

func (w *Workspace) conversationsHistory(arguments url.Values) answer {
	c, a, ok := w.readable(arguments.Get("channel"), "history")
	if !ok {
		return a
	}
	if c.WithoutBot {
		return failure("not_in_channel")
	}
	limit := defaultHistory
	if text := arguments.Get("limit"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > maxHistory {
			return failure("invalid_limit")
		}
		limit = n
	}
	oldest, latest := "0", arguments.Get("latest")
	inclusive := truth(arguments.Get("inclusive"))
	if text := arguments.Get("oldest"); text != "" {
		oldest = text
	}
	if cursor := arguments.Get("cursor"); cursor != "" {
		before, ok := strings.CutPrefix(cursor, "before:")
		if !ok {
			return failure("invalid_cursor")
		}
		latest, inclusive = before, false
	}
	if !isTimestamp(oldest) {
		return failure("invalid_ts_oldest")
	}
	if latest != "" && !isTimestamp(latest) {
		return failure("invalid_ts_latest")
	}
	withMetadata := truth(arguments.Get("include_all_metadata"))
	page, more := []any{}, ""
	for i := len(w.messages) - 1; i >= 0; i-- {
		m := w.messages[i]
		reply := m.ThreadTS != "" && m.ThreadTS != m.TS && !m.Broadcast
		if m.Channel != c.ID || m.VisibleTo != "" || reply {
			continue
		}
		if o := compareTimestamps(m.TS, oldest); o < 0 || o == 0 && !inclusive {
			break
		}
		if latest != "" {
			if l := compareTimestamps(m.TS, latest); l > 0 || l == 0 && !inclusive {
				continue
			}
		}
		if len(page) == limit {
			more = "before:" + page[limit-1].(map[string]any)["ts"].(string)
			break
		}
		page = append(page, w.messageJSON(m, withMetadata))
	}
	return success(map[string]any{
		"messages":          page,
		"has_more":          more != "",
		"response_metadata": map[string]any{"next_cursor": more},
	})
}

var timestampPattern = regexp.MustCompile(`^[0-9]{1,12}(\.[0-9]{1,6})?$`)

func isTimestamp(ts string) bool { return timestampPattern.MatchString(ts) }

// compareTimestamps compares two timestamps of seconds and up to six decimals,
// without losing digits to a float.
func compareTimestamps(a, b string) int {
	normal := func(ts string) string {
		seconds, fraction, _ := strings.Cut(ts, ".")
		return strings.Repeat("0", max(0, 12-len(seconds))) + seconds + (fraction + "000000")[:6]
	}
	return strings.Compare(normal(a), normal(b))
}

func (w *Workspace) usersInfo(arguments url.Values) answer {
	u, ok := w.user(arguments.Get("user"))
	if !ok {
		return failure("user_not_found")
	}
	value := map[string]any{
		"id":                  u.ID,
		"team_id":             w.team(u),
		"name":                u.Name,
		"real_name":           u.name(),
		"deleted":             u.Deleted,
		"is_bot":              u.Bot,
		"is_workflow_bot":     u.WorkflowBot,
		"is_restricted":       u.Restricted || u.UltraRestricted,
		"is_ultra_restricted": u.UltraRestricted,
		"is_stranger":         u.Stranger,
		"is_app_user":         false,
		"profile":             map[string]any{"real_name": u.name(), "display_name": u.Name, "team": w.team(u)},
	}
	if enterprise := w.enterprise(u); enterprise != "" {
		value["enterprise_user"] = map[string]any{"id": u.ID, "enterprise_id": enterprise, "teams": []string{w.team(u)}}
	}
	return success(map[string]any{"user": value})
}

func (w *Workspace) usergroupsList(arguments url.Values) answer {
	groups := []any{}
	for _, g := range w.groups {
		if g.Disabled && !truth(arguments.Get("include_disabled")) {
			continue
		}
		value := map[string]any{
			"id":           g.ID,
			"team_id":      w.options.TeamID,
			"is_usergroup": true,
			"name":         g.Name,
			"handle":       g.Handle,
			"date_delete":  0,
		}
		if g.Disabled {
			value["date_delete"] = w.now().Unix()
		}
		if truth(arguments.Get("include_users")) {
			value["users"] = append([]string{}, g.Users...)
		}
		if truth(arguments.Get("include_count")) {
			value["user_count"] = len(g.Users)
		}
		groups = append(groups, value)
	}
	return success(map[string]any{"usergroups": groups})
}

// usergroupsUsersList answers for a disabled group only with include_disabled,
// the stricter reading of its documentation.
func (w *Workspace) usergroupsUsersList(arguments url.Values) answer {
	g, ok := w.group(arguments.Get("usergroup"))
	if !ok || g.Disabled && !truth(arguments.Get("include_disabled")) {
		return failure("no_such_subteam")
	}
	return success(map[string]any{"users": append([]string{}, g.Users...)})
}
