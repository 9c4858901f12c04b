package slacksim

import (
	"encoding/json"
	"fmt"
	"strings"
)

// ClickPayload returns the JSON that Click would send, with a live trigger_id
// and response_url, for a test to change or repeat.
func (w *Workspace) ClickPayload(userID, channelID, ts, actionID string) (json.RawMessage, error) {
	return w.clickPayload(userID, channelID, ts, "", actionID)
}

func (w *Workspace) clickPayload(userID, channelID, ts, blockID, actionID string) (json.RawMessage, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, ok := w.user(userID); !ok {
		return nil, fmt.Errorf("there is no person %s", userID)
	}
	c, ok := w.open(channelID)
	if !ok {
		return nil, fmt.Errorf("there is no channel %s", channelID)
	}
	m := w.message(c.ID, ts, userID)
	if m == nil {
		return nil, fmt.Errorf("%s sees no message %s in %s", userID, ts, channelID)
	}
	pressed, inBlock, ok := button(m.Blocks, blockID, actionID)
	if !ok {
		return nil, fmt.Errorf("message %s has no button %s", ts, actionID)
	}
	ephemeral := m.VisibleTo != ""
	container := map[string]any{"type": "message", "message_ts": m.TS, "channel_id": c.ID, "is_ephemeral": ephemeral}
	if m.ThreadTS != "" {
		container["thread_ts"] = m.ThreadTS
	}
	payload := w.origin("block_actions", userID)
	payload["container"] = container
	payload["channel"] = map[string]any{"id": c.ID, "name": c.Name}
	payload["trigger_id"] = w.newTrigger(userID, false)
	payload["response_url"] = w.newResponseURL(userID, m)
	payload["state"] = map[string]any{"values": map[string]any{}}
	payload["actions"] = []any{w.actionJSON(pressed, inBlock)}
	if !ephemeral {
		// Ephemeral messages aren't stored, so Slack can't send them.
		payload["message"] = w.messageJSON(m, true)
	}
	return asJSON(payload), nil
}

func (w *Workspace) viewClickPayload(userID, viewID, blockID, actionID string, values map[string]string) (json.RawMessage, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	v, ok := w.top(userID, viewID)
	if !ok {
		return nil, fmt.Errorf("%s doesn't see a view %s", userID, viewID)
	}
	if err := v.checkNames(values); err != nil {
		return nil, err
	}
	pressed, inBlock, ok := button(v.content.Blocks, blockID, actionID)
	if !ok {
		return nil, fmt.Errorf("view %s has no button %s", viewID, actionID)
	}
	payload := w.origin("block_actions", userID)
	payload["container"] = map[string]any{"type": "view", "view_id": v.id}
	payload["view"] = w.viewJSON(v, values)
	payload["trigger_id"] = w.newTrigger(userID, true)
	payload["actions"] = []any{w.actionJSON(pressed, inBlock)}
	return asJSON(payload), nil
}

// SubmitPayload returns the JSON that Submit would send, without the form
// check.
func (w *Workspace) SubmitPayload(userID, viewID string, values map[string]string) (json.RawMessage, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	v, ok := w.top(userID, viewID)
	if !ok {
		return nil, fmt.Errorf("%s doesn't see a view %s", userID, viewID)
	}
	if err := v.checkNames(values); err != nil {
		return nil, err
	}
	payload := w.origin("view_submission", userID)
	payload["trigger_id"] = w.newTrigger(userID, true)
	payload["view"] = w.viewJSON(v, values)
	payload["response_urls"] = []any{}
	return asJSON(payload), nil
}

// origin is what all interactions have: what it is, who acted, where, and for
// which app. The caller holds mu.
func (w *Workspace) origin(kind, userID string) map[string]any {
	u, _ := w.user(userID)
	payload := map[string]any{
		"type":                  kind,
		"user":                  map[string]any{"id": u.ID, "username": u.Name, "name": u.Name, "team_id": w.team(u)},
		"team":                  map[string]any{"id": w.options.TeamID, "domain": strings.ToLower(w.options.TeamName)},
		"api_app_id":            w.options.AppID,
		"enterprise":            nil,
		"is_enterprise_install": false,
	}
	if w.options.EnterpriseID != "" {
		payload["enterprise"] = map[string]any{"id": w.options.EnterpriseID, "name": w.options.TeamName}
	}
	return payload
}

func (w *Workspace) actionJSON(pressed element, blockID string) map[string]any {
	action := map[string]any{
		"type":      pressed.Type,
		"action_id": pressed.ActionID,
		"block_id":  blockID,
		"text":      pressed.Text,
		"action_ts": w.timestamp(),
	}
	if pressed.Value != "" {
		action["value"] = pressed.Value
	}
	if pressed.Style != "" {
		action["style"] = pressed.Style
	}
	return action
}
