package web

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/internal/visible"
)

// maxPasskeyForm is how much a form with a device's answer has at most.
const maxPasskeyForm = 64 << 10

// What the forms of the page are about.
const (
	enrolForm  = "enrol a passkey"
	removeForm = "remove a passkey"
)

// passkeysPage is what the page of somebody's passkeys says.
type passkeysPage struct {
	Problem string
	Address string // why there are none: where the server is; empty if there can be some
	Fresh   bool   // signed in just now, as changing something takes
	Enrol   string // of the form to enrol one; empty if there are as many as can be
	Most    int
	Owned   []ownedPasskey
}

type ownedPasskey struct {
	ID, Name string
	Enrolled instant
	Used     *instant // nil if it never was
	Token    string   // of the form to remove it
}

// instant is a time for a page, whose script shows it as the reader's clock does.
type instant struct{ Machine, Text string }

func instantOf(at time.Time) instant {
	return instant{at.UTC().Format(time.RFC3339), at.UTC().Format("2 January 2006, 15:04 UTC")}
}

func (p *pages) routePasskeys(mux *http.ServeMux) {
	mux.HandleFunc("GET /passkeys", func(w http.ResponseWriter, r *http.Request) {
		if v, ok := p.person(w, r); ok {
			p.showPasskeys(r.Context(), w, http.StatusOK, v, "")
		}
	})
	mux.HandleFunc("POST /passkeys", p.enrolPasskey)
	mux.HandleFunc("POST /passkeys/remove", p.removePasskey)
	mux.HandleFunc("POST /passkeys/make", p.askToMake)
	mux.HandleFunc("POST "+signPath, p.askToSign)
}

// signPath is where the script of a request's page asks what the device has to
// sign. It takes the form's elicitationId, version, digest and scope.
const signPath = "/passkeys/sign"

func (p *pages) showPasskeys(ctx context.Context, w http.ResponseWriter, status int, v visitor, problem string) {
	owned, err := p.service.Passkeys(ctx, v.who)
	if err != nil {
		p.logger.Error("listing passkeys", "err", err)
		status, problem = http.StatusServiceUnavailable, "Your passkeys can't be read now. Please try again in a moment."
	}
	content := passkeysPage{
		Problem: problem,
		Fresh:   v.session.fresh(p.options.Now()),
		Most:    approval.MaxPasskeys,
	}
	if p.passkeys == nil {
		content.Address = p.options.URL
	} else if err == nil && len(owned) < approval.MaxPasskeys {
		content.Enrol = formToken(v.session, enrolForm)
	}
	for _, one := range owned {
		id := base64.RawURLEncoding.EncodeToString(one.ID)
		line := ownedPasskey{ID: id, Name: visible.Line(one.Name), Enrolled: instantOf(one.EnrolledAt), Token: formToken(v.session, removeForm, id)}
		if !one.UsedAt.IsZero() {
			used := instantOf(one.UsedAt)
			line.Used = &used
		}
		content.Owned = append(content.Owned, line)
	}
	p.show(w, status, "passkeys.html", v, content)
}

// refusePasskey shows the page again with why something didn't work.
func (p *pages) refusePasskey(w http.ResponseWriter, r *http.Request, v visitor, err error) {
	p.logger.Warn("a passkey isn't taken", "approver", v.who.String(), "err", err)
	p.showPasskeys(r.Context(), w, passkeyStatus(err), v, passkeyProblem(err))
}

// errFormTooOld means that a form isn't of this session, or of something else.
var errFormTooOld = errors.New("the form isn't this session's")

func passkeyStatus(err error) int {
	var input *approval.InputError
	switch {
	case errors.Is(err, approval.ErrUnavailable), errors.Is(err, approval.ErrUnverified):
		return http.StatusServiceUnavailable
	case errors.As(err, &input):
		return http.StatusBadRequest
	case errors.Is(err, approval.ErrNotFound):
		return http.StatusNotFound
	case errors.Is(err, approval.ErrStale), errors.Is(err, approval.ErrTooManyPasskeys), errors.Is(err, approval.ErrPasskeyKnown):
		return http.StatusConflict
	default:
		return http.StatusForbidden
	}
}

// passkeyProblem says to a person why their passkey wasn't taken.
func passkeyProblem(err error) string {
	var input *approval.InputError
	switch {
	case errors.Is(err, errFormTooOld):
		return "This page was open for too long. Please try again."
	case errors.Is(err, approval.ErrSignInAgain):
		return "Please sign in again first; this takes a sign-in of the last 5 minutes."
	case errors.Is(err, approval.ErrPasskeyNeeded):
		return "Approving this takes a passkey, and none has signed it. Without JavaScript it can't be approved here."
	case errors.Is(err, errPasskeyLate):
		return "The passkey's answer took too long, or was sent before. Please try again."
	case errors.Is(err, errPasskeyRefused):
		return "That passkey wasn't accepted. It has to make sure who you are, by a fingerprint, your face or a PIN, and to sign exactly what is shown here."
	case errors.Is(err, approval.ErrNoPasskey):
		return "There is no such passkey of yours; it may have been removed. You can add one on the page Passkeys."
	case errors.Is(err, approval.ErrPasskeyKnown):
		return "This device has a passkey here already."
	case errors.Is(err, approval.ErrTooManyPasskeys):
		return "You have " + strconv.Itoa(approval.MaxPasskeys) + " passkeys, which is the most that anybody may have. Remove one first."
	case errors.Is(err, approval.ErrPasskeyCopied):
		return "There may be a copy of this passkey, so it wasn't accepted. Remove it and add a new one, and tell those who run this server."
	case errors.Is(err, approval.ErrStale):
		return "The request has changed since it was shown. Reload the page and read it again."
	case errors.Is(err, approval.ErrNotFound):
		return "There is no such request."
	case errors.As(err, &input) && input.Field == "name":
		return "The name " + input.Problem + "."
	case errors.Is(err, approval.ErrUnverified):
		return "Slack couldn't be asked about your account. Please try again in a moment."
	case errors.Is(err, approval.ErrIneligible), errors.Is(err, approval.ErrNotApprover):
		return "Your account holds no role here any more."
	default:
		return "That didn't work. Please try again in a moment."
	}
}

func (p *pages) enrolPasskey(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, maxPasskeyForm)
	v, ok := p.person(w, r)
	if !ok {
		return
	}
	err := errFormTooOld
	if p.passkeys != nil && formIsOurs(r, v.session, enrolForm) {
		var made approval.Passkey
		if made, err = p.passkeys.made(v, r.PostFormValue("passkey")); err == nil {
			made.Name = r.PostFormValue("name")
			_, err = p.service.EnrolPasskey(r.Context(), v.who, v.session.signedInAt, made)
		}
	}
	if err != nil {
		p.refusePasskey(w, r, v, err)
		return
	}
	p.logger.Info("somebody has enrolled a passkey", "approver", v.who.String())
	http.Redirect(w, r, "/passkeys", http.StatusSeeOther)
}

func (p *pages) removePasskey(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, maxPasskeyForm)
	v, ok := p.person(w, r)
	if !ok {
		return
	}
	err := errFormTooOld
	if text := r.PostFormValue("id"); formIsOurs(r, v.session, removeForm, text) {
		var id []byte
		if id, err = base64.RawURLEncoding.DecodeString(text); err == nil {
			err = p.service.RemovePasskey(r.Context(), v.who, v.session.signedInAt, id)
		}
	}
	if err != nil {
		p.refusePasskey(w, r, v, err)
		return
	}
	p.logger.Info("somebody has removed a passkey", "approver", v.who.String())
	http.Redirect(w, r, "/passkeys", http.StatusSeeOther)
}

// askToMake answers the script with what to ask the device for a new passkey.
func (p *pages) askToMake(w http.ResponseWriter, r *http.Request) {
	p.askDevice(w, r, func(v visitor, owned []approval.Passkey) (passkeyQuestion, error) {
		switch {
		case !formIsOurs(r, v.session, enrolForm):
			return passkeyQuestion{}, errFormTooOld
		case !v.session.fresh(p.options.Now()):
			return passkeyQuestion{}, approval.ErrSignInAgain
		case len(owned) >= approval.MaxPasskeys:
			return passkeyQuestion{}, approval.ErrTooManyPasskeys
		}
		return p.passkeys.askToMake(v, owned)
	})
}

// askToSign answers the script with what to have the device sign, which is what
// the person was shown.
func (p *pages) askToSign(w http.ResponseWriter, r *http.Request) {
	p.askDevice(w, r, func(v visitor, owned []approval.Passkey) (passkeyQuestion, error) {
		request, err := p.service.Review(r.Context(), v.who, approval.ID(r.PostFormValue("elicitationId")))
		if err != nil {
			return passkeyQuestion{}, err
		}
		if r.PostFormValue("version") != strconv.Itoa(request.Version) || r.PostFormValue("digest") != request.Digest.String() {
			return passkeyQuestion{}, approval.ErrStale
		}
		return p.passkeys.askToSign(v, owned, approval.Ballot{
			Request: request.ID,
			Version: request.Version,
			Digest:  request.Digest,
			Verdict: approval.Approve,
			Scope:   r.PostFormValue("scope"),
		})
	})
}

// askDevice answers a page's script with a question for the device, or with why
// there is none.
func (p *pages) askDevice(w http.ResponseWriter, r *http.Request, ask func(visitor, []approval.Passkey) (passkeyQuestion, error)) {
	r.Body = http.MaxBytesReader(w, r.Body, maxPasskeyForm)
	answer := func(status int, what any) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-store")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(what) // the reader went away
	}
	type problem struct {
		Problem string `json:"problem"`
	}
	v, err := p.visitor(r)
	if err != nil {
		answer(http.StatusForbidden, problem{"You aren't signed in any more. Reload the page."})
		return
	}
	if p.passkeys == nil {
		answer(http.StatusForbidden, problem{"Passkeys don't work at this server's address."})
		return
	}
	owned, err := p.service.Passkeys(r.Context(), v.who)
	var question passkeyQuestion
	if err == nil {
		question, err = ask(v, owned)
	}
	if err != nil {
		p.logger.Warn("a device isn't asked", "approver", v.who.String(), "err", err)
		answer(passkeyStatus(err), problem{passkeyProblem(err)})
		return
	}
	answer(http.StatusOK, question)
}

// passkeyProof returns what the visitor's device has signed of a ballot, which the
// form has in its field "passkey"; nil if the request takes none. It uses up the
// question, and notes the use of the passkey. passkeyProblem says an error in
// words for the person.
func (p *pages) passkeyProof(ctx context.Context, v visitor, r *approval.Request, b approval.Ballot, form url.Values) (*approval.PasskeyProof, error) {
	if !r.TakesPasskey() || b.Verdict != approval.Approve {
		return nil, nil
	}
	if p.passkeys == nil {
		return nil, approval.ErrPasskeyNeeded
	}
	owned, err := p.service.Passkeys(ctx, v.who)
	if err != nil {
		return nil, err
	}
	proof, count, err := p.passkeys.signed(v, owned, b, form.Get("passkey"))
	if err != nil {
		return nil, err
	}
	return proof, p.service.UsePasskey(ctx, v.who, proof.Passkey, count, b.Request)
}

// passkeyNote is what the page of a request says of passkeys, in the template
// "passkey".
type passkeyNote struct {
	Needed   bool
	Owned    bool   // the visitor has one
	Address  string // where the server is, if there are no passkeys there
	SignPath string // what the button to approve has as its data-passkey; empty if it can't be used
}

// passkeyNote returns what to say of passkeys to who may approve a request.
func (p *pages) passkeyNote(ctx context.Context, v visitor, r *approval.Request) (passkeyNote, error) {
	note := passkeyNote{Needed: r.TakesPasskey()}
	if !note.Needed {
		return note, nil
	}
	if p.passkeys == nil {
		note.Address = p.options.URL
		return note, nil
	}
	owned, err := p.service.Passkeys(ctx, v.who)
	if err != nil {
		return note, err
	}
	if note.Owned = len(owned) > 0; note.Owned {
		note.SignPath = signPath
	}
	return note, nil
}
