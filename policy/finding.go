package policy

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/goccy/go-yaml/ast"
)

// Finding is something about a policy that its author should know, with where
// in the file it is.
type Finding struct {
	Line   int
	Column int
	Text   string
}

// String is the finding on one line, with its place first.
func (f Finding) String() string { return fmt.Sprintf("[%d:%d] %s", f.Line, f.Column, f.Text) }

func (f Finding) compare(other Finding) int {
	return cmp.Or(cmp.Compare(f.Line, other.Line), cmp.Compare(f.Column, other.Column), cmp.Compare(f.Text, other.Text))
}

// Findings are several of them. As an error they say why a policy isn't
// accepted.
type Findings []Finding

// Error lists the findings, one on a line.
func (f Findings) Error() string {
	lines := make([]string, len(f))
	for i, finding := range f {
		lines[i] = finding.String()
	}
	return strings.Join(lines, "\n")
}

// finding is what is to be said about a place of the file.
func finding(file *ast.File, at place, format string, args ...any) Finding {
	line, column := lineColumn(locate(file, at))
	text := fmt.Sprintf(format, args...)
	if where := at.String(); where != "" {
		text = where + ": " + text
	}
	return Finding{Line: line, Column: column, Text: text}
}
