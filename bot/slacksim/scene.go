package slacksim

import (
	"cmp"
	"encoding/json"
	"hash/fnv"
	"slices"
	"strings"
)

// scene is all that one person sees, as the page draws it.
type scene struct {
	Workspace string        `json:"workspace"`
	People    []choice      `json:"people"`
	Channels  []choice      `json:"channels"`
	User      string        `json:"user"`
	Channel   string        `json:"channel"`
	Name      string        `json:"name"`
	Topic     string        `json:"topic"`
	Messages  []drawn       `json:"messages"`
	Modal     *drawn        `json:"modal"`
	Consoles  []consoleDraw `json:"consoles"`
}

type choice struct {
	ID    string `json:"id"`
	Label string `json:"label"`
}

// drawn is a piece of the page and the key under which it is replaced.
type drawn struct {
	Key  string `json:"key"`
	HTML string `json:"html"`
}

type consoleDraw struct {
	Title string     `json:"title"`
	Lines []lineDraw `json:"lines"`
}

type lineDraw struct {
	Unix int64  `json:"unix"`
	Text string `json:"text"`
}

// scene draws what a person sees in a channel. Unknown ids fall back to the
// first person and channel.
func (w *Workspace) scene(userID, channelID string) scene {
	w.mu.Lock()
	s := scene{Workspace: w.options.TeamName, People: []choice{}, Channels: []choice{}, Messages: []drawn{}, Consoles: []consoleDraw{}}
	d := &directory{users: map[string]User{}, groups: map[string]Group{}, channels: map[string]Channel{}}
	for _, u := range w.users {
		d.users[u.ID] = u
		if !u.Bot && !u.Deleted {
			s.People = append(s.People, choice{u.ID, u.name() + w.note(u)})
		}
	}
	s.User = pick(s.People, userID)
	d.self = s.User
	for _, g := range w.groups {
		d.groups[g.ID] = g
	}
	for _, c := range w.channels {
		d.channels[c.ID] = c
		switch {
		case !c.has(s.User):
		case c.direct != "":
			s.Channels = append(s.Channels, choice{c.ID, w.options.BotName})
		default:
			s.Channels = append(s.Channels, choice{c.ID, "# " + c.Name})
		}
	}
	s.Channel = pick(s.Channels, channelID)
	channel := d.channels[s.Channel]
	s.Name, s.Topic = channel.Name, channel.Topic
	if channel.direct != "" {
		s.Name = w.options.BotName
	}
	var messages []Message
	for _, m := range w.messages {
		if m.Channel == s.Channel && (m.VisibleTo == "" || m.VisibleTo == s.User) {
			messages = append(messages, m.copy())
		}
	}
	var modal *View
	if stack := w.stacks[s.User]; len(stack) > 0 {
		modal = new(w.views[stack[len(stack)-1]].public())
	}
	for _, c := range w.consoles {
		draw := consoleDraw{Title: c.title, Lines: []lineDraw{}}
		for _, line := range c.lines {
			draw.Lines = append(draw.Lines, lineDraw{line.at.Unix(), line.text})
		}
		s.Consoles = append(s.Consoles, draw)
	}
	w.mu.Unlock()

	for _, m := range threaded(messages) {
		s.Messages = append(s.Messages, d.message(m))
	}
	if modal != nil {
		s.Modal = new(d.view(*modal))
	}
	return s
}

// note says what is special about a person, for the list of people to be.
func (w *Workspace) note(u User) string {
	switch {
	case w.team(u) != w.options.TeamID:
		return " (another workspace)"
	case u.Restricted || u.UltraRestricted:
		return " (guest)"
	}
	return ""
}

func pick(choices []choice, id string) string {
	if slices.ContainsFunc(choices, func(c choice) bool { return c.ID == id }) {
		return id
	}
	if len(choices) == 0 {
		return ""
	}
	return choices[0].ID
}

// threaded puts the replies of a thread below its first message.
func threaded(messages []Message) []Message {
	root := func(m Message) string { return cmp.Or(m.ThreadTS, m.TS) }
	slices.SortStableFunc(messages, func(a, b Message) int {
		if root(a) != root(b) {
			return compareTimestamps(root(a), root(b))
		}
		return compareTimestamps(a.TS, b.TS)
	})
	return messages
}

// messageDraw is what the message template takes.
type messageDraw struct {
	Message
	D      *directory
	Author User
	Reply  bool
	Blocks []blockDraw
}

// Unix is when it was posted.
func (m messageDraw) Unix() int64 { return m.PostedAt.Unix() }

// By is who said it.
func (m messageDraw) By() string { return cmp.Or(m.Author.name(), m.UserID) }

// Initials are for the picture of someone who has none.
func (m messageDraw) Initials() string {
	initials := ""
	for word := range strings.FieldsSeq(m.By()) {
		if r := []rune(word); len(initials) < 2 && r[0] != '(' {
			initials += strings.ToUpper(string(r[0]))
		}
	}
	return initials
}

// Shade is one of the picture's six colours, for one person always the same.
func (m messageDraw) Shade() uint32 {
	sum := fnv.New32a()
	_, _ = sum.Write([]byte(m.UserID))
	return sum.Sum32() % 6
}

// viewDraw is what the view template takes.
type viewDraw struct {
	View
	D      *directory
	Blocks []blockDraw
}

// blockDraw is a block with what its template needs.
type blockDraw struct {
	block
	D     *directory
	Error string
	Scope string // makes element ids unique on the page
}

// Texts are the text objects of a context block.
func (b blockDraw) Texts() []textObject {
	var list []textObject
	for _, raw := range b.Elements {
		var t textObject
		if json.Unmarshal(raw, &t) == nil {
			list = append(list, t)
		}
	}
	return list
}

// Buttons are the block's buttons.
func (b blockDraw) Buttons() []element { return b.buttons() }

func (d *directory) message(m Message) drawn {
	draw := messageDraw{Message: m, D: d, Author: d.users[m.UserID], Reply: m.ThreadTS != "" && m.ThreadTS != m.TS}
	for _, b := range blocksOf(m.Blocks) {
		draw.Blocks = append(draw.Blocks, blockDraw{block: b, D: d, Scope: m.TS})
	}
	return drawn{m.TS, render("message", draw)}
}

func (d *directory) view(v View) drawn {
	draw := viewDraw{View: v, D: d}
	for _, b := range blocksOf(v.Blocks) {
		draw.Blocks = append(draw.Blocks, blockDraw{block: b, D: d, Error: v.Errors[b.BlockID], Scope: v.ID})
	}
	return drawn{v.ID, render("view", draw)}
}

// render runs a template. A failure shows itself in the place of the piece.
func render(name string, data any) string {
	var out strings.Builder
	if err := templates.ExecuteTemplate(&out, name, data); err != nil {
		return escape(err.Error())
	}
	return out.String()
}
