package slacksim

import (
	"encoding/json"
	"maps"
	"slices"
	"time"
)

// View is an open modal view.
type View struct {
	ID              string
	RootID          string // the first view of its stack
	PreviousID      string // the view below; empty for the first
	UserID          string // who sees it
	CallbackID      string
	ExternalID      string
	PrivateMetadata string
	Hash            string // changes with each update
	Title           string
	SubmitLabel     string // empty when there is no submit button
	CloseLabel      string
	NotifyOnClose   bool
	ClearOnClose    bool
	Blocks          json.RawMessage
	Errors          map[string]string // what is shown on inputs, by block id
}

// OpenView returns the view that the person sees, the top of their stack.
func (w *Workspace) OpenView(userID string) (View, bool) {
	views := w.Views(userID)
	if len(views) == 0 {
		return View{}, false
	}
	return views[len(views)-1], true
}

// Views returns the person's stack of views, bottom first.
func (w *Workspace) Views(userID string) []View {
	w.mu.Lock()
	defer w.mu.Unlock()
	var found []View
	for _, id := range w.stacks[userID] {
		found = append(found, w.views[id].public())
	}
	return found
}

// maxStack is how many views a modal holds at once.
const maxStack = 3

// triggerLife is how long a trigger_id can be used, once.
const triggerLife = 3 * time.Second

// trigger is a trigger_id.
type trigger struct {
	userID  string
	inModal bool
	madeAt  time.Time
	used    bool
}

// view is an open view. Its content is what the app sent, with a block_id on
// each block.
type view struct {
	id, rootID, previousID string
	userID                 string
	hash                   string
	content                viewContent
	errors                 map[string]string
}

// viewContent is a view as an app writes it. What shows text is kept as the app
// wrote it.
type viewContent struct {
	Type            string          `json:"type"`
	Title           json.RawMessage `json:"title"`
	Submit          json.RawMessage `json:"submit"`
	Close           json.RawMessage `json:"close"`
	Blocks          json.RawMessage `json:"blocks"`
	PrivateMetadata string          `json:"private_metadata"`
	CallbackID      string          `json:"callback_id"`
	ExternalID      string          `json:"external_id"`
	ClearOnClose    bool            `json:"clear_on_close"`
	NotifyOnClose   bool            `json:"notify_on_close"`
}

func (v *view) public() View {
	return View{
		ID:              v.id,
		RootID:          v.rootID,
		PreviousID:      v.previousID,
		UserID:          v.userID,
		CallbackID:      v.content.CallbackID,
		ExternalID:      v.content.ExternalID,
		PrivateMetadata: v.content.PrivateMetadata,
		Hash:            v.hash,
		Title:           textOf(v.content.Title),
		SubmitLabel:     textOf(v.content.Submit),
		CloseLabel:      textOf(v.content.Close),
		NotifyOnClose:   v.content.NotifyOnClose,
		ClearOnClose:    v.content.ClearOnClose,
		Blocks:          v.content.Blocks,
		Errors:          maps.Clone(v.errors),
	}
}

// textOf returns the text of a text object, "" without one.
func textOf(object json.RawMessage) string {
	var text struct {
		Text string `json:"text"`
	}
	if json.Unmarshal(object, &text) != nil {
		return ""
	}
	return text.Text
}

// The methods below are called with mu held.

// newTrigger makes a trigger_id for something that a person just did.
func (w *Workspace) newTrigger(userID string, inModal bool) string {
	id := w.id("1000.") + "." + w.id("2000")
	w.triggers[id] = &trigger{userID: userID, inModal: inModal, madeAt: w.now()}
	return id
}

// setContent gives the view what an app wrote for it, which has passed the
// linter.
func (w *Workspace) setContent(v *view, content viewContent) {
	content.Blocks = w.withBlockIDs(content.Blocks)
	v.content = content
	v.hash = w.id("hash.")
	v.errors = nil
	w.ring()
}

// show puts a new view on top of the person's stack.
func (w *Workspace) show(userID string, content viewContent) *view {
	v := &view{id: w.id("V"), userID: userID}
	stack := w.stacks[userID]
	v.rootID = v.id
	if len(stack) > 0 {
		v.rootID, v.previousID = stack[0], stack[len(stack)-1]
	}
	w.views[v.id] = v
	w.stacks[userID] = append(stack, v.id)
	w.setContent(v, content)
	return v
}

// top returns the view that the person sees, if it is the one with that id.
func (w *Workspace) top(userID, viewID string) (*view, bool) {
	stack := w.stacks[userID]
	if len(stack) == 0 || stack[len(stack)-1] != viewID {
		return nil, false
	}
	return w.views[viewID], true
}

// dismiss removes the view and all above it.
func (w *Workspace) dismiss(v *view) {
	stack := w.stacks[v.userID]
	i := slices.Index(stack, v.id)
	if i < 0 {
		return
	}
	for _, id := range stack[i:] {
		delete(w.views, id)
	}
	w.stacks[v.userID] = slices.Clone(stack[:i])
	if i == 0 {
		delete(w.stacks, v.userID)
	}
	w.ring()
}

// clear closes the person's modal with all its views.
func (w *Workspace) clear(userID string) {
	if stack := w.stacks[userID]; len(stack) > 0 {
		w.dismiss(w.views[stack[0]])
	}
}
