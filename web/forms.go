package web

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/approval/presentation"
	"github.com/countersign/countersign/policy"
)

// forms are what a visitor can do about a request. Each token is empty if they
// can't do that.
type forms struct {
	Approve, Reject, Edit, Revoke, EndGrant, Settle string

	Hindered       string // why the visitor's approval wouldn't count
	SignInAnew     bool   // approving takes a fresh sign-in first
	Passkey        passkeyNote
	Consequence    string // of approving
	Scopes         []scopeChoice
	Granting       string // what a wider scope allows
	GrantFacts     []presentation.Fact
	GrantEnds      []presentation.Line
	ReasonRequired bool
	// What was typed before in the form that didn't work.
	TypedApproving, TypedRejecting, TypedRevoking string
	NoEdit                                        string // why the arguments can't be edited here
	Revoking                                      string // what ending the grant does
}

// scopeChoice is how far an approval can go.
type scopeChoice struct{ Value, Words string }

// What the forms do, which is part of what their tokens are for.
const (
	decideForm   = "decide"
	editForm     = "edit"
	revokeForm   = "revoke"
	endGrantForm = "end a grant"
	settleForm   = "settle"
)

// formsFor offers a visitor what they can do about a request. What is offered is
// checked again when it is done.
func (p *pages) formsFor(ctx context.Context, v visitor, request *approval.Request, arguments presentation.Arguments) (forms, error) {
	var f forms
	give := func(doing string) string { return formToken(v.session, shownIn(request).about(doing)...) }
	hindered := request.Hindered(v.who, v.roles)
	holds := !errors.Is(hindered, approval.ErrNotApprover)
	if holds && presentation.Revocable(request) {
		f.EndGrant, f.Revoking = give(endGrantForm), presentation.Revoking
	}
	// Of what nobody was asked, whoever holds a role can say what came of it.
	if (holds || request.Ruling.Effect != policy.RequireApproval) && presentation.Settleable(request) {
		f.Settle = give(settleForm)
	}
	if holds && request.Status == approval.Approved {
		f.Revoke = give(revokeForm)
	}
	if request.Status != approval.Pending {
		return f, nil
	}
	if holds {
		f.Reject = give(decideForm)
		if arguments.Hidden > 0 {
			f.NoEdit = "The arguments can't be edited here: the policy hides some of them."
		} else {
			f.Edit = give(editForm)
		}
	}
	if hindered != nil {
		f.Hindered = hindrance(v, request, hindered)
		return f, nil
	}
	f.Consequence = presentation.Consequence(request, "exactly this")
	f.ReasonRequired = request.Ruling.Requirement.ReasonRequired
	if f.SignInAnew = request.Ruling.Tier >= policy.TierDestructive && !v.session.fresh(p.options.Now()); f.SignInAnew {
		return f, nil
	}
	var err error
	if f.Passkey, err = p.passkeyNote(ctx, v, request); err != nil {
		return f, err
	}
	if f.Passkey.Needed && f.Passkey.SignPath == "" {
		return f, nil
	}
	f.Approve = give(decideForm)
	if wider := presentation.Wider(request); len(wider) > 0 {
		f.Scopes = []scopeChoice{{approval.ScopeOnce, "Only this once"}}
		for _, scope := range wider {
			f.Scopes = append(f.Scopes, scopeChoice{scope, "For " + presentation.ScopeWords(scope) + ": the same action and target, any arguments, any number of times"})
		}
		f.Granting, f.GrantFacts = presentation.Granting(request, presentation.Limits{})
		f.GrantEnds = presentation.GrantEnds(request, p.options.Now())
	}
	return f, nil
}

// keep puts what was typed back into the form that it was typed in.
func (f *forms) keep(what typed) {
	switch what.doing {
	case string(approval.Approve):
		f.TypedApproving = what.reason
	case string(approval.Reject):
		f.TypedRejecting = what.reason
	case revokePath:
		f.TypedRevoking = what.reason
	}
}

// hindrance says why a visitor's approval wouldn't count.
func hindrance(v visitor, request *approval.Request, why error) string {
	missing := policy.Words(request.Missing())
	switch {
	case errors.Is(why, approval.ErrNotApprover):
		return "This needs " + request.Ruling.Requirement.String() + ". You are not in it, so you can read it and not decide."
	case errors.Is(why, approval.ErrSelf) && slices.Contains(request.Editors, v.who):
		return "You can't approve what you edited. It still needs " + missing + "."
	case errors.Is(why, approval.ErrSelf):
		return "You can't approve what your own agent asks. It still needs " + missing + "."
	case errors.Is(why, approval.ErrRecorded):
		return "You approved this. It still needs " + missing + "."
	default:
		return "Your approval wouldn't count now."
	}
}

// maxForm bounds a form without arguments, in bytes.
const maxForm = 64 << 10

// formOf reads a form of somebody who is signed in. If it isn't theirs, it has
// answered.
func (p *pages) formOf(w http.ResponseWriter, r *http.Request, doing string, limit int64) (visitor, shownForm, bool) {
	r.Body = http.MaxBytesReader(w, r.Body, limit)
	_, large := errors.AsType[*http.MaxBytesError](r.ParseForm())
	v, ok := p.person(w, r)
	if !ok {
		return v, shownForm{}, false
	}
	if large {
		p.show(w, http.StatusRequestEntityTooLarge, "problem.html", v, "Nothing was done: that is more than can be sent here. Your browser may still have what you wrote if you go back.")
		return v, shownForm{}, false
	}
	f, ok := sent(r, v, doing)
	if !ok {
		p.logger.Warn("refusing a form", "form", doing, "approver", v.who.String())
		problem := presentation.Line{{Text: "Nothing was done: that page was from before you signed in, or wasn't complete. Please read this one and try again."}}
		if doing == editForm {
			p.refuseEdit(w, r, v, f, problem)
		} else {
			p.showReview(w, r, http.StatusForbidden, v, answered{problem: problem, typed: reasonTyped(r)})
		}
	}
	return v, f, ok
}

// came answers a form: with the request as it is now, and with what didn't work.
func (p *pages) came(w http.ResponseWriter, r *http.Request, v visitor, f shownForm, said presentation.Line, known bool, err error) {
	switch {
	case err == nil && len(said) == 0:
		http.Redirect(w, r, reviewAddress(f.request), http.StatusSeeOther)
	case known:
		p.showReview(w, r, formStatus(err), v, answered{problem: said, done: err == nil || errors.Is(err, approval.ErrRecorded), typed: reasonTyped(r)})
	default:
		p.logger.Error("a form was not carried out", "approver", v.who.String(), "request_id", f.request, "err", err)
		p.showReview(w, r, http.StatusServiceUnavailable, v, answered{
			problem: presentation.Line{{Text: "That could not be stored, so nothing was decided. Please try again."}},
			typed:   reasonTyped(r),
		})
	}
}

func formStatus(err error) int {
	var input *approval.InputError
	switch {
	case err == nil:
		return http.StatusOK
	case errors.Is(err, approval.ErrUnverified):
		return http.StatusServiceUnavailable
	case errors.As(err, &input), errors.Is(err, approval.ErrReasonRequired):
		return http.StatusBadRequest
	case errors.Is(err, approval.ErrNotApprover), errors.Is(err, approval.ErrSelf), errors.Is(err, approval.ErrIneligible),
		errors.Is(err, approval.ErrSignInAgain), errors.Is(err, approval.ErrPasskeyNeeded), errors.Is(err, approval.ErrDenied):
		return http.StatusForbidden
	case errors.Is(err, approval.ErrNotFound):
		return http.StatusNotFound
	default:
		return http.StatusConflict
	}
}

// ballot is what a form of a visitor asks to have recorded.
func ballot(v visitor, f shownForm, verdict approval.Verdict, reason string) approval.Ballot {
	return approval.Ballot{
		Request:    f.request,
		Version:    f.version,
		Digest:     f.digest,
		Verdict:    verdict,
		Reason:     strings.TrimSpace(reason),
		Surface:    approval.Web,
		SignedInAt: v.session.signedInAt,
	}
}

func (p *pages) decide(w http.ResponseWriter, r *http.Request) {
	v, f, ok := p.formOf(w, r, decideForm, maxForm)
	if !ok {
		return
	}
	b := ballot(v, f, approval.Verdict(r.PostFormValue("verdict")), r.PostFormValue("reason"))
	if b.Verdict == approval.Approve {
		b.Scope = r.PostFormValue("scope")
		request, ok := p.reviewed(w, r, v)
		if !ok {
			return
		}
		var err error
		if b.Passkey, err = p.passkeyProof(r.Context(), v, request, b, r.PostForm); err != nil {
			p.logger.Warn("a passkey isn't taken", "approver", v.who.String(), "request_id", f.request, "err", err)
			p.showReview(w, r, passkeyStatus(err), v, answered{problem: presentation.Line{{Text: passkeyProblem(err)}}, typed: reasonTyped(r)})
			return
		}
	}
	request, err := p.service.Decide(r.Context(), v.who, b)
	said, known := presentation.Answer(b.Verdict, request, err, thePage)
	p.came(w, r, v, f, said, known, err)
}

func (p *pages) revoke(w http.ResponseWriter, r *http.Request) {
	v, f, ok := p.formOf(w, r, revokeForm, maxForm)
	if !ok {
		return
	}
	request, err := p.service.Revoke(r.Context(), v.who, ballot(v, f, approval.Reject, r.PostFormValue("reason")))
	said, known := presentation.RevokeAnswer(request, err, thePage)
	p.came(w, r, v, f, said, known, err)
}

func (p *pages) endGrant(w http.ResponseWriter, r *http.Request) {
	v, f, ok := p.formOf(w, r, endGrantForm, maxForm)
	if !ok {
		return
	}
	request, err := p.service.RevokeGrant(r.Context(), v.who, f.request, approval.Web)
	said, known := presentation.RevokeAnswer(request, err, thePage)
	p.came(w, r, v, f, said, known, err)
}

func (p *pages) settle(w http.ResponseWriter, r *http.Request) {
	v, f, ok := p.formOf(w, r, settleForm, maxForm)
	if !ok {
		return
	}
	ran := r.PostFormValue("ran")
	if ran != "yes" && ran != "no" {
		p.came(w, r, v, f, presentation.Line{{Text: "Nothing was recorded: please say whether it ran."}}, true, &approval.InputError{Field: "ran", Problem: "is missing"})
		return
	}
	request, err := p.service.Settle(r.Context(), v.who, f.request, ran == "yes", approval.Web)
	said, known := presentation.SettleAnswer(request, err, thePage)
	p.came(w, r, v, f, said, known, err)
}
