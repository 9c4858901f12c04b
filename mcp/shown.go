package mcp

import (
	"slices"
	"strings"
	"time"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/approval/presentation"
	"github.com/countersign/countersign/internal/visible"
	"github.com/countersign/countersign/policy"
)

// shownRequest is the server's copy of a request, as the view shows it. Nothing that
// the policy hides is in it.
type shownRequest struct {
	RequestID      approval.ID     `json:"requestId"`
	RequestVersion int             `json:"requestVersion"`
	Digest         string          `json:"digest"`
	Revision       int64           `json:"revision"`
	Status         approval.Status `json:"status"`
	Outcome        string          `json:"outcome,omitempty"`
	Stage          string          `json:"stage"`
	Action         string          `json:"action"`
	Count          string          `json:"count,omitempty"`
	Environment    string          `json:"environment"`
	Reversible     *bool           `json:"reversible,omitempty"`
	Purpose        shownText       `json:"purpose"`
	Facts          []shownFact     `json:"facts"`
	Warnings       [][]piece       `json:"warnings"`
	Arguments      shownArguments  `json:"arguments"`
	// Editable is the exact text of the arguments, where the view may edit them.
	Editable       string        `json:"editable,omitempty"`
	DecidesHere    bool          `json:"decidesHere"`
	Needs          string        `json:"needs,omitempty"`
	WaitsFor       string        `json:"waitsFor,omitempty"`
	Scopes         []shownScope  `json:"scopes"`
	ReasonRequired bool          `json:"reasonRequired"`
	ExpiresAt      string        `json:"expiresAt,omitempty"`
	Now            string        `json:"now"`
	History        [][]piece     `json:"history"`
	Receipt        *shownReceipt `json:"receipt,omitempty"`
	CanRevoke      bool          `json:"canRevoke"`
	ReviewURL      string        `json:"reviewUrl,omitempty"`
	Notice         string        `json:"notice,omitempty"`
}

// piece is a part of a line: words, or a time that is shown in the reader's zone.
type piece struct {
	Text  string `json:"text,omitempty"`
	Style string `json:"style,omitempty"` // strong, code for somebody else's word, or plain if empty
	Time  string `json:"time,omitempty"`
}

type shownText struct {
	Label []piece `json:"label"`
	Text  string  `json:"text"`
}

type shownFact struct {
	Label string  `json:"label"`
	Value []piece `json:"value"`
}

type shownArguments struct {
	Label  []piece `json:"label"`
	Text   string  `json:"text"`
	Exact  string  `json:"exact"`
	Hidden int     `json:"hidden"`
}

type shownScope struct {
	Scope string `json:"scope"`
	Words string `json:"words"`
}

type shownReceipt struct {
	ServerReceiptID string           `json:"serverReceiptId"`
	Outcome         string           `json:"outcome"`
	By              []piece          `json:"by"`
	DecidedAt       string           `json:"decidedAt"`
	Surface         approval.Surface `json:"surface"`
	Person          bool             `json:"person"`
	Signed          string           `json:"signed,omitempty"`
}

// shown is a request as the view shows it now.
func (g *Gate) shown(r *approval.Request) shownRequest {
	facts := presentation.NewFacts(r, presentation.Limits{Tool: true})
	arguments := presentation.LayOut(r.Payload, r.Ruling.Redactions)
	label, purpose := facts.Purpose()
	pending := r.Status == approval.Pending
	s := shownRequest{
		RequestID:      r.ID,
		RequestVersion: r.Version,
		Digest:         r.Digest.String(),
		Revision:       r.Revision,
		Status:         r.Status,
		Outcome:        outcomeOf(r),
		Stage:          presentation.StageOf(r).Words,
		Environment:    presentation.Environment(r),
		Reversible:     r.Reversible,
		Purpose:        shownText{g.pieces(label), purpose},
		Facts:          []shownFact{},
		Warnings:       g.lines(presentation.Warnings(r, arguments.Source)),
		Arguments: shownArguments{
			Label:  g.pieces(arguments.Label(true)),
			Text:   arguments.Text,
			Exact:  visible.Text(arguments.Source),
			Hidden: arguments.Hidden,
		},
		DecidesHere:    pending && r.ViewDecides(),
		Scopes:         []shownScope{},
		ReasonRequired: r.Ruling.Requirement.ReasonRequired,
		Now:            timeText(g.options.Now()),
		History:        g.lines(history(r)),
		Receipt:        g.receipt(r),
		CanRevoke:      r.Status == approval.Approved && r.Executor == approval.ByAgent,
		Notice:         g.options.Notice,
	}
	action, count := presentation.Phrase(r)
	s.Action, s.Count = action, strings.TrimPrefix(count, " on ")
	for _, fact := range facts.List() {
		s.Facts = append(s.Facts, shownFact{fact.Name, g.pieces(fact.Value)})
	}
	for _, scope := range r.Scopes() {
		s.Scopes = append(s.Scopes, shownScope{scope, presentation.ScopeWords(scope)})
	}
	if s.DecidesHere && arguments.Hidden == 0 {
		s.Editable = string(r.Payload)
	}
	if pending {
		s.Needs = presentation.Needs(r)
	}
	if pending && !s.DecidesHere {
		s.WaitsFor = g.waitsFor(r)
	}
	if deadline := r.Deadline(); !deadline.IsZero() {
		s.ExpiresAt = timeText(deadline)
	}
	if g.options.ReviewURL != nil {
		s.ReviewURL = g.options.ReviewURL(r.ID)
	}
	return s
}

// history says what became of a request, and what people said about it.
func history(r *approval.Request) []presentation.Line {
	lines := presentation.History(r)
	if granted := presentation.Granted(r); granted != nil {
		lines = append(lines, granted)
	}
	quotes := presentation.Reasons(r)
	if words := presentation.Words(r); words != nil {
		quotes = append(quotes, *words)
	}
	for _, quote := range quotes {
		l := slices.Clone(quote.Label)
		l.Text(": ")
		l.Code(quote.Text)
		lines = append(lines, l)
	}
	return lines
}

// waitsFor says who has to decide, and where.
func (g *Gate) waitsFor(r *approval.Request) string {
	text := "Waiting for " + policy.Words(r.Missing()) + " in Slack"
	if g.options.ReviewDecides {
		text += " or on the review page"
	}
	return text
}

// receipt is the last decision that was made; nil if none was.
func (g *Gate) receipt(r *approval.Request) *shownReceipt {
	if len(r.Decisions) == 0 {
		return nil
	}
	d := r.Decisions[len(r.Decisions)-1]
	outcome := outcomeGranted
	if d.Verdict == approval.Reject {
		outcome = outcomeDenied
	}
	return &shownReceipt{
		ServerReceiptID: d.Receipt,
		Outcome:         outcome,
		By:              g.pieces(by(d)),
		DecidedAt:       timeText(d.At),
		Surface:         d.Surface,
		Person:          d.Person(),
		Signed:          d.SignedReceipt,
	}
}

// by says who made a decision, or what did.
func by(d approval.Decision) presentation.Line {
	var l presentation.Line
	switch {
	case d.Person():
		l.Person(d.Approver)
	case d.Surface == approval.App:
		l.Text("somebody in the agent's host")
	case d.Surface == approval.InBand:
		l.Text("the agent's client")
	case d.Surface == approval.Granted:
		l.Text("what was granted before")
	default:
		l.Text("the policy")
	}
	return l
}

func (g *Gate) lines(lines []presentation.Line) [][]piece {
	all := make([][]piece, len(lines))
	for i, l := range lines {
		all[i] = g.pieces(l)
	}
	return all
}

func (g *Gate) pieces(l presentation.Line) []piece {
	pieces := make([]piece, len(l))
	for i, p := range l {
		switch p.Kind {
		case presentation.Strong:
			pieces[i] = piece{Text: p.Text, Style: "strong"}
		case presentation.Code:
			pieces[i] = piece{Text: p.Text, Style: "code"}
		case presentation.Person:
			pieces[i] = piece{Text: g.name(p.Who), Style: "strong"}
		case presentation.Moment:
			pieces[i] = piece{Time: p.At.UTC().Format(time.RFC3339)}
		default:
			pieces[i] = piece{Text: p.Text}
		}
	}
	return pieces
}

// name is what somebody calls themselves, with their id, which is what counts.
func (g *Gate) name(who approval.Approver) string {
	if name := g.names.Of(who); name != "" {
		return name + " (" + who.User + ")"
	}
	return who.User
}
