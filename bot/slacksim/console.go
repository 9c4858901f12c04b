package slacksim

import (
	"fmt"
	"strings"
	"time"
)

// maxConsoleLines bounds what a panel keeps; older lines go first.
const maxConsoleLines = 500

// Console is a panel of log lines that the page shows beside the channel.
type Console struct {
	workspace *Workspace
	title     string
	lines     []consoleLine // guarded by workspace.mu
}

type consoleLine struct {
	at   time.Time
	text string
}

// Console adds a panel with that title to the page, or returns the one that has
// it.
func (w *Workspace) Console(title string) *Console {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.consoles {
		if c.title == title {
			return c
		}
	}
	c := &Console{workspace: w, title: title}
	w.consoles = append(w.consoles, c)
	w.ring()
	return c
}

// Printf adds what it formats to the panel, a line for each of its lines.
func (c *Console) Printf(format string, args ...any) {
	w := c.workspace
	w.mu.Lock()
	defer w.mu.Unlock()
	for text := range strings.Lines(fmt.Sprintf(format, args...)) {
		c.lines = append(c.lines, consoleLine{w.now(), strings.TrimRight(text, "\n")})
	}
	if extra := len(c.lines) - maxConsoleLines; extra > 0 {
		c.lines = append([]consoleLine(nil), c.lines[extra:]...)
	}
	w.ring()
}
