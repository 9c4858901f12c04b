package web

import (
	"net/http"
	"strings"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/approval/presentation"
)

// maxEditForm bounds a form with arguments, in bytes: each byte of them may be
// three in a form.
const maxEditForm = 4*approval.DefaultPayloadLimit + maxForm

// editPage is the arguments of a request, to be edited.
type editPage struct {
	ID       approval.ID
	Version  int
	Digest   string
	Action   string
	Count    string
	Problem  presentation.Line
	Warnings []presentation.Line
	Payload  string // as it is written, or as it was typed
	Token    string // empty if it can't be edited
	NoEdit   string // why
}

func (p *pages) showEdit(w http.ResponseWriter, r *http.Request) {
	v, ok := p.person(w, r)
	if !ok {
		return
	}
	if request, ok := p.reviewed(w, r, v); ok {
		p.showEditOf(w, r, http.StatusOK, v, request, nil, nil)
	}
}

// showEditOf shows the arguments of a request to be edited, or what was typed and
// what is wrong with that.
func (p *pages) showEditOf(w http.ResponseWriter, r *http.Request, status int, v visitor, request *approval.Request, problem presentation.Line, typed *string) {
	arguments := presentation.LayOut(request.Payload, request.Ruling.Redactions)
	f, err := p.formsFor(r.Context(), v, request, arguments)
	if err != nil {
		p.fail(w, v, "offering to edit", err)
		return
	}
	if f.Edit == "" {
		if status == http.StatusOK {
			status = http.StatusConflict
		}
		p.showReview(w, r, status, v, answered{problem: presentation.Line{{Text: noEdit(request, f)}}})
		return
	}
	content := editPage{
		ID:       request.ID,
		Version:  request.Version,
		Digest:   request.Digest.String(),
		Problem:  problem,
		Warnings: presentation.Warnings(request, arguments.Source),
		Payload:  string(request.Payload),
		Token:    f.Edit,
	}
	content.Action, content.Count = presentation.Phrase(request)
	if typed != nil {
		content.Payload = *typed
	}
	p.show(w, status, "edit.html", v, content)
}

// noEdit says why arguments can't be edited.
func noEdit(request *approval.Request, f forms) string {
	switch {
	case f.NoEdit != "":
		return f.NoEdit
	case request.Status != approval.Pending:
		return "The arguments can't be edited any more."
	default:
		return "Only somebody whom this asks can edit its arguments."
	}
}

// refuseEdit shows what was typed again, if it was for the arguments as they are.
func (p *pages) refuseEdit(w http.ResponseWriter, r *http.Request, v visitor, f shownForm, problem presentation.Line) {
	request, ok := p.reviewed(w, r, v)
	switch {
	case !ok:
	case shownIn(request) == f:
		typed := typedIn(r)
		p.showEditOf(w, r, http.StatusForbidden, v, request, problem, &typed)
	default:
		p.showReview(w, r, http.StatusForbidden, v, answered{problem: problem})
	}
}

// typedIn is the arguments in a form. Browsers send line breaks as two characters;
// in JSON they stand only between values, where they mean nothing.
func typedIn(r *http.Request) string {
	return strings.ReplaceAll(r.PostFormValue("payload"), "\r\n", "\n")
}

// edit makes the next version of a request.
func (p *pages) edit(w http.ResponseWriter, r *http.Request) {
	v, f, ok := p.formOf(w, r, editForm, maxEditForm)
	if !ok {
		return
	}
	typed := typedIn(r)
	before, ok := p.reviewed(w, r, v)
	if !ok {
		return
	}
	if typed == strings.ReplaceAll(string(before.Payload), "\r\n", "\n") && before.Version == f.version {
		p.showEditOf(w, r, http.StatusBadRequest, v, before, presentation.Line{{Text: "Nothing was changed: these are the arguments as they are."}}, nil)
		return
	}
	request, err := p.service.Edit(r.Context(), v.who, f.request, f.version, []byte(typed), approval.Web)
	said, known := presentation.EditAnswer(request, err, thePage)
	if request == nil {
		request = before
	}
	if err != nil && known && request.Status == approval.Pending && request.Version == f.version {
		p.showEditOf(w, r, formStatus(err), v, request, said, &typed)
		return
	}
	p.came(w, r, v, f, said, known, err)
}
