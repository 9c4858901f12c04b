package web

import (
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/approval/presentation"
	"github.com/countersign/countersign/internal/visible"
)

// reviewPage is all that is shown of a request, and what the visitor can do.
type reviewPage struct {
	ID           approval.ID
	Version      int
	Digest       string
	Action       string
	Count        string // how much the action touches; empty if that isn't known
	Stage        presentation.Stage
	Environment  string
	Deadline     time.Time // zero if nothing expires any more
	Until        int64     // the deadline in milliseconds since 1970
	Left         string    // until then
	Problem      presentation.Line
	Done         bool // that is no problem, but what was done
	Facts        []presentation.Fact
	Warnings     []presentation.Line
	PurposeLabel presentation.Line
	Purpose      string
	Arguments    argumentsView
	Changes      []changesView
	Ran          presentation.Line
	Granted      presentation.Line
	GrantedBy    approval.ID // the request whose grant approved this one
	History      []presentation.Line
	Quotes       []presentation.Quote
	Needs        string
	Decisions    []decisionView
	Explanation  string
	Policy       string // the beginning of its revision
	Timeline     []presentation.Happening
	More         bool // the timeline has only the beginning
	Forms        forms
}

// decisionView is a decision, in words.
type decisionView struct {
	approval.Decision
	Revoked    bool   // it took back what was approved
	ScopeWords string // how far an approval goes; empty is once
}

func decisionsOf(request *approval.Request) []decisionView {
	views := make([]decisionView, len(request.Decisions))
	for i, d := range request.Decisions {
		views[i] = decisionView{Decision: d, Revoked: d.Verdict == approval.Reject && presentation.Revoked(request)}
		if d.Scope != "" {
			views[i].ScopeWords = presentation.ScopeWords(d.Scope)
		}
	}
	return views
}

// argumentsView is the whole of the arguments.
type argumentsView struct {
	Label presentation.Line
	Tree  presentation.Value
	Large bool // there is no tree of so many values
	Text  string
	Exact string
}

// changesView is what edits made of another version's arguments.
type changesView struct {
	From    int
	By      presentation.Line // who asked or edited that version
	Changes []presentation.Change
	Left    string // how many lines more there are; empty if these are all
	Hidden  bool   // the policy hides some of what is compared, where nothing shows
}

// mostChanges is how many lines of a comparison are shown. An edit that replaces the
// largest arguments would make ten megabytes of them, each time that somebody looks.
const mostChanges = 2000

// revokePath is where approvals are taken back.
const revokePath = "/review/revoke"

// thePage is where people look at a request here.
const thePage = "the page"

func (p *pages) routeReview(mux *http.ServeMux) {
	mux.HandleFunc("GET /review", func(w http.ResponseWriter, r *http.Request) {
		v, ok := p.person(w, r)
		switch {
		case !ok:
		case r.URL.Query().Get("elicitationId") == "":
			http.Redirect(w, r, "/", http.StatusSeeOther)
		default:
			p.showReview(w, r, http.StatusOK, v, answered{})
		}
	})
	mux.HandleFunc("POST /review/decide", p.decide)
	mux.HandleFunc("POST "+revokePath, p.revoke)
	mux.HandleFunc("POST /review/end-grant", p.endGrant)
	mux.HandleFunc("POST /review/settle", p.settle)
	mux.HandleFunc("GET /review/edit", p.showEdit)
	mux.HandleFunc("POST /review/edit", p.edit)
}

// reviewAddress is where a request is shown.
func reviewAddress(id approval.ID) string {
	return "/review?" + url.Values{"elicitationId": {string(id)}}.Encode()
}

// answered is what came of a form that didn't work, for the page that says so.
type answered struct {
	problem presentation.Line
	done    bool // it isn't a problem: it says what was done
	typed   typed
}

// typed is a reason that was typed, and in which form.
type typed struct{ doing, reason string }

func reasonTyped(r *http.Request) typed {
	doing := r.PostFormValue("verdict")
	if doing == "" {
		doing = r.URL.Path
	}
	return typed{doing, r.PostFormValue("reason")}
}

// showReview shows the request that the address or a form names.
func (p *pages) showReview(w http.ResponseWriter, r *http.Request, status int, v visitor, came answered) {
	request, ok := p.reviewed(w, r, v)
	if !ok {
		return
	}
	content, err := p.reviewOf(r, v, request)
	if err != nil {
		p.fail(w, v, "showing a request", err)
		return
	}
	content.Problem, content.Done = came.problem, came.done
	if !came.done {
		content.Forms.keep(came.typed)
	}
	p.show(w, status, "review.html", v, content)
}

// reviewed loads the request that the address or a form names. If that can't be
// shown, it has answered.
func (p *pages) reviewed(w http.ResponseWriter, r *http.Request, v visitor) (*approval.Request, bool) {
	request, err := p.service.Look(r.Context(), v.who, named(r))
	switch {
	case errors.Is(err, approval.ErrNotFound):
		p.show(w, http.StatusNotFound, "problem.html", v, "There is no such request. Its address may be cut off, or from before this server's data was replaced.")
	case err != nil:
		p.fail(w, v, "loading a request", err)
	}
	return request, err == nil
}

// named is the request that the address names, or the form that was sent: never one
// of each.
func named(r *http.Request) approval.ID {
	if r.Method == http.MethodPost {
		return approval.ID(r.PostFormValue("elicitationId"))
	}
	return approval.ID(r.URL.Query().Get("elicitationId"))
}

func (p *pages) reviewOf(r *http.Request, v visitor, request *approval.Request) (reviewPage, error) {
	now := p.options.Now()
	facts := presentation.NewFacts(request, presentation.Limits{Tool: true})
	arguments := presentation.LayOut(request.Payload, request.Ruling.Redactions)
	action, count := presentation.Phrase(request)
	content := reviewPage{
		ID:          request.ID,
		Version:     request.Version,
		Digest:      request.Digest.String(),
		Action:      action,
		Count:       count,
		Stage:       presentation.StageOf(request),
		Environment: presentation.Environment(request),
		Deadline:    request.Deadline(),
		Facts:       facts.List(),
		Warnings:    presentation.Warnings(request, arguments.Source),
		Arguments:   argumentsOf(arguments),
		Ran:         presentation.Ran(request),
		Granted:     presentation.Granted(request),
		GrantedBy:   request.GrantedBy,
		History:     presentation.History(request),
		Quotes:      presentation.Reasons(request),
		Decisions:   decisionsOf(request),
		Explanation: visible.Text(request.Explanation),
		Policy:      shortened(visible.Line(request.Ruling.Revision), 12),
	}
	content.PurposeLabel, content.Purpose = facts.Purpose()
	if words := presentation.Words(request); words != nil {
		content.Quotes = append(content.Quotes, *words)
	}
	if !content.Deadline.IsZero() {
		content.Until = content.Deadline.UnixMilli()
		content.Left = presentation.Span(max(content.Deadline.Sub(now), 0))
	}
	if request.Status == approval.Pending {
		content.Needs = presentation.Needs(request)
	}
	var err error
	if content.Changes, err = p.changes(r, v, request, arguments); err != nil {
		return reviewPage{}, err
	}
	events, more, err := p.service.Timeline(r.Context(), v.who, request.ID)
	if err != nil {
		return reviewPage{}, err
	}
	content.Timeline, content.More = presentation.Timeline(events), more
	content.Forms, err = p.formsFor(r.Context(), v, request, arguments)
	return content, err
}

func argumentsOf(a presentation.Arguments) argumentsView {
	view := argumentsView{Label: a.Label(true), Text: a.Text, Exact: visible.Text(a.Source)}
	var ok bool
	view.Tree, ok = a.Tree()
	view.Large = !ok
	return view
}

// changes are what the edits of a request changed: since the version before, and
// since what the agent asked.
func (p *pages) changes(r *http.Request, v visitor, request *approval.Request, now presentation.Arguments) ([]changesView, error) {
	var all []changesView
	for version := request.Version - 1; version >= 1; version = min(version-1, 1) {
		payload, err := p.service.PayloadOf(r.Context(), v.who, request.ID, version)
		if err != nil {
			return nil, err
		}
		then := presentation.LayOut(payload, request.Ruling.Redactions)
		changes, err := presentation.Changes(then, now)
		if err != nil {
			return nil, err
		}
		view := changesView{From: version, Changes: changes[:min(len(changes), mostChanges)], Hidden: then.Hidden > 0 && now.Hidden > 0}
		if left := len(changes) - mostChanges; left > 0 {
			view.Left = presentation.Counted(int64(left), "more line")
		}
		if version > 1 {
			view.By = presentation.Editor(request.Editors[version-2])
		} else {
			view.By.Text(visible.Line(request.Agent))
		}
		all = append(all, view)
	}
	return all, nil
}

// shownForm is a form that was sent: which request in which version it showed, and
// that it is this session's.
type shownForm struct {
	request approval.ID
	version int
	digest  approval.Digest
}

func (f shownForm) about(doing string) []string {
	return []string{doing, string(f.request), strconv.Itoa(f.version), f.digest.String()}
}

func shownIn(request *approval.Request) shownForm {
	return shownForm{request.ID, request.Version, request.Digest}
}

// sent reads what a form showed; false if it isn't this session's, or of something
// else.
func sent(r *http.Request, v visitor, doing string) (shownForm, bool) {
	version, err := strconv.Atoi(r.PostFormValue("version"))
	if err != nil {
		return shownForm{}, false
	}
	digest, err := approval.ParseDigest(r.PostFormValue("digest"))
	if err != nil {
		return shownForm{}, false
	}
	f := shownForm{approval.ID(r.PostFormValue("elicitationId")), version, digest}
	return f, formIsOurs(r, v.session, f.about(doing)...)
}
