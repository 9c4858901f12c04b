package slacksim

import (
	"encoding/json"
	"net/url"
	"regexp"
)

var triggerPattern = regexp.MustCompile(`^[0-9]+\.[0-9]+\.[0-9a-z]+$`)

// exchange uses up a trigger_id.
func (w *Workspace) exchange(id string) (*trigger, answer, bool) {
	t := w.triggers[id]
	switch {
	case !triggerPattern.MatchString(id), t == nil:
		return nil, refusal(codeInvalidArguments, Problem{Pointer: "/trigger_id", Message: "invalid `trigger_id`"}), false
	case t.used:
		return nil, failure("exchanged_trigger_id"), false
	case w.now().Sub(t.madeAt) > triggerLife:
		return nil, failure("expired_trigger_id"), false
	}
	t.used = true
	return t, answer{}, true
}

// readView reads and checks the view argument of a views method. The view keeps
// the id of the one it replaces, if any.
func (w *Workspace) readView(arguments url.Values, replacing *view) (viewContent, answer, bool) {
	var content viewContent
	raw := json.RawMessage(arguments.Get("view"))
	if problems := LintView(raw); problems != nil {
		return content, refuseFor(problems), false
	}
	if err := json.Unmarshal(raw, &content); err != nil || content.Type != "modal" {
		return content, refusal(codeInvalidArguments, Problem{Pointer: "/view/type", Message: "must be one of: modal"}), false
	}
	if content.ExternalID != "" {
		if other := w.byExternalID(content.ExternalID); other != nil && other != replacing {
			return content, failure("duplicate_external_id"), false
		}
	}
	return content, answer{}, true
}

func (w *Workspace) byExternalID(id string) *view {
	for _, v := range w.views {
		if v.content.ExternalID == id {
			return v
		}
	}
	return nil
}

func (w *Workspace) viewsOpen(arguments url.Values) answer {
	content, a, ok := w.readView(arguments, nil)
	if !ok {
		return a
	}
	t, a, ok := w.exchange(arguments.Get("trigger_id"))
	if !ok {
		return a
	}
	w.clear(t.userID)
	return success(map[string]any{"view": w.viewJSON(w.show(t.userID, content), nil)})
}

func (w *Workspace) viewsPush(arguments url.Values) answer {
	content, a, ok := w.readView(arguments, nil)
	if !ok {
		return a
	}
	t, a, ok := w.exchange(arguments.Get("trigger_id"))
	if !ok {
		return a
	}
	switch stack := w.stacks[t.userID]; {
	case !t.inModal || len(stack) == 0:
		return refusal(codeInvalidArguments, Problem{Pointer: "/trigger_id", Message: "invalid `trigger_id`: it isn't from an open modal"})
	case len(stack) >= maxStack:
		return failure("push_limit_reached")
	}
	return success(map[string]any{"view": w.viewJSON(w.show(t.userID, content), nil)})
}

func (w *Workspace) viewsUpdate(arguments url.Values) answer {
	v := w.views[arguments.Get("view_id")]
	if id := arguments.Get("external_id"); v == nil && id != "" {
		v = w.byExternalID(id)
	}
	content, a, ok := w.readView(arguments, v)
	if !ok {
		return a
	}
	if v == nil {
		return failure("not_found")
	}
	if hash := arguments.Get("hash"); hash != "" && hash != v.hash {
		return failure("hash_conflict")
	}
	w.setContent(v, content)
	return success(map[string]any{"view": w.viewJSON(v, nil)})
}

// viewJSON is a view as the Web API and interactions show it, with what the
// person put into its inputs.
func (w *Workspace) viewJSON(v *view, given map[string]string) map[string]any {
	optional := func(s string) any {
		if s == "" {
			return nil
		}
		return s
	}
	return map[string]any{
		"id":                    v.id,
		"team_id":               w.options.TeamID,
		"type":                  v.content.Type,
		"title":                 v.content.Title,
		"submit":                v.content.Submit,
		"close":                 v.content.Close,
		"blocks":                v.content.Blocks,
		"private_metadata":      v.content.PrivateMetadata,
		"callback_id":           v.content.CallbackID,
		"external_id":           v.content.ExternalID,
		"state":                 map[string]any{"values": v.values(given)},
		"hash":                  v.hash,
		"clear_on_close":        v.content.ClearOnClose,
		"notify_on_close":       v.content.NotifyOnClose,
		"previous_view_id":      optional(v.previousID),
		"root_view_id":          v.rootID,
		"app_id":                w.options.AppID,
		"app_installed_team_id": w.options.TeamID,
		"bot_id":                w.options.BotID,
	}
}
