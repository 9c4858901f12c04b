package slacksim

// Console is a panel of log lines that the page shows beside the channel.
type Console struct{}

// Console adds a panel with that title to the page, or returns the one that has it.
func (w *Workspace) Console(title string) *Console { return nil }

// Printf adds a line to the panel.
func (c *Console) Printf(format string, args ...any) {}
