package slacksim

// Sockets returns how many Socket Mode clients are connected.
func (w *Workspace) Sockets() int { return 0 }

// Disconnect sends a disconnect message with that reason (warning, refresh_requested, link_disabled) to all
// Socket Mode clients and, except for a warning, closes the connections.
func (w *Workspace) Disconnect(reason string) {}
