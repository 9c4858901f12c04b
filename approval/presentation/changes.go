package presentation

import (
	"fmt"
	"strings"

	"github.com/aymanbagabas/go-udiff"

	"github.com/countersign/countersign/internal/visible"
)

// Change is a line of what differs between two versions of the arguments.
type Change struct {
	// Mark is "+" for what the later one has, "-" for what the earlier one had, " "
	// for what both have, and "…" where lines that both have are left out.
	Mark string
	Text string
}

// surrounding is how many lines that both have are shown around a change.
const surrounding = 3

// Changes says what differs between two versions of the arguments; nil if only
// white space does.
func Changes(before, after Arguments) ([]Change, error) {
	was, is := before.spread(), after.spread()
	differences, err := udiff.ToUnifiedDiff("", "", was, udiff.Lines(was, is), surrounding)
	if err != nil {
		return nil, fmt.Errorf("comparing the arguments: %w", err)
	}
	var changes []Change
	shown := 0 // lines of the earlier one
	for _, hunk := range differences.Hunks {
		if shown > 0 && hunk.FromLine > shown+1 {
			changes = append(changes, Change{Mark: "…"})
		}
		shown = hunk.FromLine - 1
		for _, line := range hunk.Lines {
			change := Change{Mark: " ", Text: strings.TrimSuffix(line.Content, "\n")}
			switch line.Kind {
			case udiff.Insert:
				change.Mark = "+"
			case udiff.Delete:
				change.Mark = "-"
			}
			if line.Kind != udiff.Insert {
				shown++
			}
			changes = append(changes, change)
		}
	}
	return changes, nil
}

// spread is the arguments with a line for each value.
func (a Arguments) spread() string {
	text := a.Source
	if a.parsed {
		var b strings.Builder
		a.tree.spread(&b, 0)
		text = b.String()
	}
	return visible.Text(text) + "\n"
}
