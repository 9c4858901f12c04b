package slacksim

import "encoding/json"

// maxShown is how many messages the page shows; older ones aren't sent.
const maxShown = 200

// The types below are what the page gets with each event.

type pageState struct {
	Workspace string        `json:"workspace"`
	You       string        `json:"you"` // "" if there is no such person
	People    []pagePerson  `json:"people"`
	Groups    []pageGroup   `json:"groups"`
	Channels  []pageChannel `json:"channels"`
	Messages  []pageMessage `json:"messages"` // of all channels, oldest first
	View      *pageView     `json:"view"`     // the modal view that the person sees
	Consoles  []pageConsole `json:"consoles"`
}

type pagePerson struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	App  bool   `json:"app"`
	// Kind says what is special about them, such as guest.
	Kind string `json:"kind"`
	// Gone reports that they are deactivated, and so can't be chosen.
	Gone bool `json:"gone"`
}

type pageGroup struct {
	ID     string `json:"id"`
	Handle string `json:"handle"`
}

type pageChannel struct {
	ID     string `json:"id"`
	Name   string `json:"name"`
	Topic  string `json:"topic"`
	Direct bool   `json:"direct"`
}

type pageMessage struct {
	Channel   string          `json:"channel"`
	TS        string          `json:"ts"`
	ThreadTS  string          `json:"thread_ts"`
	User      string          `json:"user"`
	Text      string          `json:"text"`
	Blocks    json.RawMessage `json:"blocks"`
	Edited    bool            `json:"edited"`
	Ephemeral bool            `json:"ephemeral"`
	Broadcast bool            `json:"broadcast"`
}

type pageView struct {
	ID         string            `json:"id"`
	Hash       string            `json:"hash"`
	CallbackID string            `json:"callback_id"`
	Title      string            `json:"title"`
	Submit     string            `json:"submit"`
	Close      string            `json:"close"`
	Blocks     json.RawMessage   `json:"blocks"`
	Errors     map[string]string `json:"errors"`
	Below      int               `json:"below"` // views under this one
}

type pageConsole struct {
	Title string     `json:"title"`
	Lines []pageLine `json:"lines"`
}

type pageLine struct {
	At   int64  `json:"at"` // Unix milliseconds
	Text string `json:"text"`
}

// stateFor returns what a person sees; without an id, the first person who can be chosen.
func (w *Workspace) stateFor(userID string) pageState {
	w.mu.Lock()
	defer w.mu.Unlock()
	state := pageState{
		Workspace: w.options.TeamName,
		People:    []pagePerson{},
		Groups:    []pageGroup{},
		Channels:  []pageChannel{},
		Messages:  []pageMessage{},
		Consoles:  []pageConsole{},
	}
	for _, u := range w.users {
		p := w.pagePerson(u)
		state.People = append(state.People, p)
		if state.You == "" && !p.App && !p.Gone && (userID == "" || userID == p.ID) {
			state.You = p.ID
		}
	}
	for _, g := range w.groups {
		state.Groups = append(state.Groups, pageGroup{g.ID, g.Handle})
	}
	if state.You != "" {
		w.seenBy(&state)
	}
	for _, c := range w.consoles {
		state.Consoles = append(state.Consoles, c.page())
	}
	return state
}

// seenBy adds the channels, messages and modal of the person. The caller holds mu.
func (w *Workspace) seenBy(state *pageState) {
	member := map[string]bool{}
	for _, c := range w.channels {
		if c.has(state.You) {
			member[c.ID] = true
			state.Channels = append(state.Channels, pageChannel{ID: c.ID, Name: c.Name, Topic: c.Topic, Direct: c.direct != ""})
		}
	}
	for _, m := range w.messages {
		if member[m.Channel] && (m.VisibleTo == "" || m.VisibleTo == state.You) {
			state.Messages = append(state.Messages, m.page())
		}
	}
	if extra := len(state.Messages) - maxShown; extra > 0 {
		state.Messages = state.Messages[extra:]
	}
	if stack := w.stacks[state.You]; len(stack) > 0 {
		below := len(stack) - 1
		state.View = w.views[stack[below]].page(below)
	}
}

func (w *Workspace) pagePerson(u User) pagePerson {
	p := pagePerson{ID: u.ID, Name: u.name(), App: u.Bot || u.WorkflowBot, Gone: u.Deleted}
	switch {
	case w.team(u) != w.options.TeamID:
		p.Kind = "external"
	case u.Restricted || u.UltraRestricted:
		p.Kind = "guest"
	}
	return p
}

func (m *Message) page() pageMessage {
	return pageMessage{
		Channel:   m.Channel,
		TS:        m.TS,
		ThreadTS:  m.ThreadTS,
		User:      m.UserID,
		Text:      m.Text,
		Blocks:    m.Blocks,
		Edited:    m.Edited,
		Ephemeral: m.VisibleTo != "",
		Broadcast: m.Broadcast,
	}
}

func (v *view) page(below int) *pageView {
	public := v.public()
	return &pageView{
		ID:         public.ID,
		Hash:       public.Hash,
		CallbackID: public.CallbackID,
		Title:      public.Title,
		Submit:     public.SubmitLabel,
		Close:      public.CloseLabel,
		Blocks:     public.Blocks,
		Errors:     public.Errors,
		Below:      below,
	}
}

func (c *Console) page() pageConsole {
	console := pageConsole{Title: c.title, Lines: []pageLine{}}
	for _, line := range c.lines {
		console.Lines = append(console.Lines, pageLine{At: line.at.UnixMilli(), Text: line.text})
	}
	return console
}
