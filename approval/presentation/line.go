// Package presentation says what people are shown of a request: the facts in the
// order in which they decide, the arguments laid out, where it is and what became
// of it. Slack's cards and the review page show the same words; each only draws
// them in its own way.
//
// What an agent or a tool wrote is in pieces of its own kind, with hidden
// characters made visible, so that it can't be taken for words of ours. What the
// policy hides is nowhere in what this package returns.
package presentation

import (
	"strings"
	"time"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/policy"
)

// Kind is how a piece of a line is drawn.
type Kind int

// The kinds.
const (
	Plain  Kind = iota
	Strong      // what the eye should find
	Code        // somebody else's word
	Person      // Piece.Who, by name
	Moment      // Piece.At, in the reader's time zone
)

// Piece is a part of a line.
type Piece struct {
	Kind Kind
	Text string // of the first three kinds
	Who  approval.Approver
	At   time.Time
}

// Line is what is said in one go. It may hold line breaks.
type Line []Piece

func (l *Line) add(kind Kind, text string) {
	if text != "" {
		*l = append(*l, Piece{Kind: kind, Text: text})
	}
}

// Text adds plain words.
func (l *Line) Text(text string) { l.add(Plain, text) }

// Strong adds words that the eye should find.
func (l *Line) Strong(text string) { l.add(Strong, text) }

// Code adds somebody else's word. Hidden characters in it must have been made
// visible.
func (l *Line) Code(text string) { l.add(Code, text) }

// Person adds somebody; only an id that has the form of one is taken for one.
func (l *Line) Person(who approval.Approver) {
	if !policy.IsUserID(who.User) {
		l.Text("somebody")
		return
	}
	*l = append(*l, Piece{Kind: Person, Who: who})
}

// Moment adds a time.
func (l *Line) Moment(at time.Time) { *l = append(*l, Piece{Kind: Moment, At: at}) }

// Add adds all of another line.
func (l *Line) Add(other Line) { *l = append(*l, other...) }

// Label starts a new line of text with what the rest of it is.
func (l *Line) Label(text string) {
	if len(*l) > 0 {
		l.Text("\n")
	}
	l.Strong(text)
	l.Text("  ")
}

// String is the line in plain text, with ids for people and times in UTC.
func (l Line) String() string {
	var b strings.Builder
	for _, piece := range l {
		switch piece.Kind {
		case Person:
			b.WriteString(piece.Who.User)
		case Moment:
			b.WriteString(piece.At.UTC().Format("2 Jan 15:04") + " UTC")
		default:
			b.WriteString(piece.Text)
		}
	}
	return b.String()
}

// listed is a list in words, of the first ones of many.
func listed(all []Line) Line {
	const most = 8
	if more := len(all) - most; more > 0 {
		all = append(all[:most:most], Line{{Text: Digits(int64(more)) + " more"}})
	}
	var l Line
	for i, one := range all {
		switch {
		case i == 0:
		case i < len(all)-1:
			l.Text(", ")
		case strings.Contains(all[i-1].String(), ","):
			l.Text(", and ")
		default:
			l.Text(" and ")
		}
		l.Add(one)
	}
	if len(all) == 0 {
		l.Text("nobody")
	}
	return l
}

// Editor names who edited a request: a person, or nobody known where an edit was made
// in the agent's host.
func Editor(who approval.Approver) Line {
	var l Line
	if who.IsZero() {
		l.Text("somebody in the agent's host")
	} else {
		l.Person(who)
	}
	return l
}

func editors(all []approval.Approver) Line {
	lines := make([]Line, len(all))
	for i, who := range all {
		lines[i] = Editor(who)
	}
	return listed(lines)
}

// said is a line of words, other lines, people and times.
func said(parts ...any) Line {
	var l Line
	for _, part := range parts {
		switch part := part.(type) {
		case string:
			l.Text(part)
		case Line:
			l.Add(part)
		case approval.Approver:
			l.Person(part)
		case time.Time:
			l.Moment(part)
		}
	}
	return l
}
