package slacksim

import "encoding/json"

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
	Errors          map[string]string // block id to message, from the last response_action errors
}

// OpenView returns the view that the person sees, the top of their stack.
func (w *Workspace) OpenView(userID string) (View, bool) { return View{}, false }

// Views returns the person's stack of views, bottom first.
func (w *Workspace) Views(userID string) []View { return nil }
