package slacksim

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"unicode/utf8"
)

// unsupportedArguments are real arguments of chat methods that nothing here
// would honour.
var unsupportedArguments = []string{"as_user", "attachments", "file_ids", "icon_emoji", "icon_url", "link_names", "markdown_text",
	"parse", "username"}

// content is what a message says.
type content struct {
	text     string
	blocks   json.RawMessage
	metadata *Metadata // nil when the caller sent none
}

// contentOf reads and checks what a chat method was given to say.
func contentOf(arguments url.Values) (content, answer, bool) {
	for _, name := range unsupportedArguments {
		if arguments.Get(name) != "" {
			return content{}, refusal(codeInvalidArguments, Problem{Pointer: "/" + name, Message: "slacksim doesn't simulate this argument"}), false
		}
	}
	c := content{text: arguments.Get("text")}
	if blocks := bytes.TrimSpace([]byte(arguments.Get("blocks"))); len(blocks) > 0 && string(blocks) != "null" {
		c.blocks = blocks
	}
	if problems := lintBlocks(c.blocks); problems != nil {
		return content{}, refuseFor(problems), false
	}
	if text := arguments.Get("metadata"); text != "" {
		var metadata Metadata
		if err := json.Unmarshal([]byte(text), &metadata); err != nil || !isObject(metadata.EventPayload) && metadata.EventType != "" {
			return content{}, failure("invalid_metadata_format"), false
		}
		if metadata.EventType != "" {
			c.metadata = &metadata
		}
	}
	return c, answer{}, true
}

func isObject(value json.RawMessage) bool {
	return bytes.HasPrefix(bytes.TrimSpace(value), []byte("{"))
}

func (c content) empty() bool { return c.text == "" && noBlocks(c.blocks) }

func noBlocks(blocks json.RawMessage) bool {
	var list []json.RawMessage
	return len(blocks) == 0 || json.Unmarshal(blocks, &list) == nil && len(list) == 0
}

// postable returns the channel that the bot may post to.
func (w *Workspace) postable(id string) (Channel, answer, bool) {
	c, ok := w.open(id)
	switch {
	case !ok || c.Private && c.WithoutBot:
		return Channel{}, failure("channel_not_found"), false
	case c.WithoutBot:
		return Channel{}, failure("not_in_channel"), false
	case c.Archived:
		return Channel{}, failure("is_archived"), false
	}
	return c, answer{}, true
}

// thread checks a thread_ts. Slack's answers to one that isn't a message, or is
// itself a reply, aren't documented; refusing is the stricter reading.
func (w *Workspace) thread(c Channel, ts string) (answer, bool) {
	if ts == "" {
		return answer{}, true
	}
	if !isTimestamp(ts) {
		return failure("invalid_thread_ts"), false
	}
	switch m := w.message(c.ID, ts, ""); {
	case m == nil:
		return failure("thread_not_found"), false
	case m.ThreadTS != "" && m.ThreadTS != m.TS:
		return failure("cannot_reply_to_message"), false
	}
	return answer{}, true
}

func (w *Workspace) chatPostMessage(arguments url.Values) answer {
	c, a, ok := w.postable(arguments.Get("channel"))
	if !ok {
		return a
	}
	said, a, ok := contentOf(arguments)
	if !ok {
		return a
	}
	if said.empty() {
		return failure("no_text")
	}
	if a, ok := w.thread(c, arguments.Get("thread_ts")); !ok {
		return a
	}
	m := &Message{
		Channel:     c.ID,
		ThreadTS:    arguments.Get("thread_ts"),
		Text:        said.text,
		Blocks:      said.blocks,
		Broadcast:   truth(arguments.Get("reply_broadcast")) && arguments.Get("thread_ts") != "",
		UnfurlLinks: optionalTruth(arguments, "unfurl_links"),
		UnfurlMedia: optionalTruth(arguments, "unfurl_media"),
	}
	if said.metadata != nil {
		m.Metadata = *said.metadata
	}
	truncated := utf8.RuneCountInString(m.Text) > maxPostText
	if truncated {
		m.Text = string([]rune(m.Text)[:maxPostText])
	}
	w.post(m)
	a = success(map[string]any{"channel": c.ID, "ts": m.TS, "message": w.messageJSON(m, true)})
	if truncated {
		a.body["warning"] = "message_truncated"
		a.body["response_metadata"] = map[string]any{"warnings": []string{"message_truncated"}}
	}
	a.ts = m.TS
	return a
}

func optionalTruth(arguments url.Values, name string) *bool {
	if !arguments.Has(name) {
		return nil
	}
	return new(truth(arguments.Get(name)))
}

func (w *Workspace) chatUpdate(arguments url.Values) answer {
	// Only the id of a conversation will do here, not that of a person.
	c, ok := w.channel(arguments.Get("channel"))
	if !ok || c.Private && c.WithoutBot {
		return failure("channel_not_found")
	}
	m := w.message(c.ID, arguments.Get("ts"), "")
	switch {
	case m == nil:
		return failure("message_not_found")
	case m.UserID != w.options.BotUserID:
		return failure("cant_update_message")
	case c.Archived:
		return failure("is_inactive")
	}
	said, a, ok := contentOf(arguments)
	if !ok {
		return a
	}
	if characters(said.text, markupText) > maxUpdateText {
		return failure(codeMessageTooLong)
	}
	if said.text == "" && said.blocks == nil {
		return failure("no_text")
	}
	// Blocks replace blocks and leave no label. Text alone removes the blocks,
	// and the message counts as edited.
	if said.blocks == nil {
		m.Edited = true
	}
	w.update(m, said.text, said.blocks, said.metadata)
	a = success(map[string]any{"channel": c.ID, "ts": m.TS, "text": m.Text, "message": w.messageJSON(m, true)})
	a.ts = m.TS
	return a
}

func (w *Workspace) chatPostEphemeral(arguments url.Values) answer {
	c, a, ok := w.postable(arguments.Get("channel"))
	if !ok {
		return a
	}
	user, ok := w.user(arguments.Get("user"))
	if !ok || user.Deleted || !c.has(user.ID) {
		return failure("user_not_in_channel")
	}
	said, a, ok := contentOf(arguments)
	if !ok {
		return a
	}
	if said.empty() {
		return failure("no_text")
	}
	if a, ok := w.thread(c, arguments.Get("thread_ts")); !ok {
		return a
	}
	m := &Message{Channel: c.ID, ThreadTS: arguments.Get("thread_ts"), Text: said.text, Blocks: said.blocks, VisibleTo: user.ID}
	w.post(m)
	a = success(map[string]any{"message_ts": m.TS})
	a.ts = m.TS
	return a
}

func (w *Workspace) chatGetPermalink(arguments url.Values) answer {
	c, ok := w.channel(arguments.Get("channel"))
	if !ok || c.Private && c.WithoutBot {
		return failure("channel_not_found")
	}
	m := w.message(c.ID, arguments.Get("message_ts"), "")
	if m == nil {
		return failure("message_not_found")
	}
	link := fmt.Sprintf("https://%s.slack.com/archives/%s/p%s", strings.ToLower(w.options.TeamName), c.ID, strings.ReplaceAll(m.TS, ".", ""))
	return success(map[string]any{"channel": c.ID, "permalink": link})
}

// Say posts a plain message as a person. The app can see it, and can't change
// it.
func (w *Workspace) Say(userID, channelID, text string) (Message, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	user, ok := w.user(userID)
	if !ok {
		return Message{}, fmt.Errorf("saying something: there is no person %s", userID)
	}
	c, ok := w.open(channelID)
	if !ok || !c.has(user.ID) {
		return Message{}, fmt.Errorf("saying something: %s isn't in a channel %s", userID, channelID)
	}
	m := &Message{Channel: c.ID, Text: text}
	w.post(m)
	m.UserID = user.ID
	return m.copy(), nil
}

// messageJSON is a message as the Web API and interactions show it.
func (w *Workspace) messageJSON(m *Message, withMetadata bool) map[string]any {
	value := map[string]any{
		"type": "message",
		"user": m.UserID,
		"team": w.options.TeamID,
		"ts":   m.TS,
		"text": m.Text,
	}
	if m.UserID == w.options.BotUserID {
		value["bot_id"] = w.options.BotID
		value["app_id"] = w.options.AppID
	}
	if len(m.Blocks) > 0 {
		value["blocks"] = m.Blocks
	}
	if m.ThreadTS != "" {
		value["thread_ts"] = m.ThreadTS
	}
	if m.Broadcast {
		value["subtype"] = "thread_broadcast"
	}
	if n := len(m.Earlier); m.Edited && n > 0 {
		value["edited"] = map[string]any{"user": m.UserID, "ts": fmt.Sprintf("%d.000000", m.Earlier[n-1].ReplacedAt.Unix())}
	}
	if withMetadata && m.Metadata.EventType != "" {
		value["metadata"] = m.Metadata
	}
	return value
}
