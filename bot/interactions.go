package bot

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/slack-go/slack"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/approval/presentation"
)

// maxBody bounds an interaction's body. Slack repeats the modal that was
// submitted, of up to 250 kB, as JSON in a form: that takes up to four times as
// much.
const maxBody = 1 << 20

// bodyTimeout is how long an interaction's body may take to arrive. Slack sends
// it at once and waits for three seconds in all.
const bodyTimeout = 5 * time.Second

// errUnstored means that what a person decided could not be stored, so Slack
// must not be told that all is well.
var errUnstored = errors.New("the decision could not be stored")

// Interactions serves the app's Request URL: clicks and submitted modals as
// Slack signs them. Only POST requests with a valid signature of the last five
// minutes get further; the URL's query is ignored. It answers 200 only when
// what the person decided is stored, or was refused for a reason that the
// person is told.
func (b *Bot) Interactions() http.Handler {
	if len(b.options.SigningSecrets) == 0 {
		return http.NotFoundHandler()
	}
	return http.HandlerFunc(b.serveInteraction)
}

func (b *Bot) serveInteraction(w http.ResponseWriter, request *http.Request) {
	if request.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		http.Error(w, "Slack posts interactions here.", http.StatusMethodNotAllowed)
		return
	}
	// Anybody may open this and send nothing; the signature comes only at the
	// end. A server that knows no deadlines has its own way to end that.
	connection := http.NewResponseController(w)
	_ = connection.SetReadDeadline(time.Now().Add(bodyTimeout))
	// What was signed are the bytes of the body, so they are read before
	// anything parses them, and parsed from the same bytes.
	body, err := io.ReadAll(http.MaxBytesReader(w, request.Body, maxBody))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		http.Error(w, "The body is too large.", http.StatusRequestEntityTooLarge)
		return
	case err != nil:
		http.Error(w, "The body can't be read.", http.StatusBadRequest)
		return
	}
	// The rest is bounded by itself, and a deadline would end its context.
	_ = connection.SetReadDeadline(time.Time{})
	if err := b.verifier.verify(request.Header, body); err != nil {
		b.options.Logger.Warn("refusing an interaction", "err", err)
		http.Error(w, "The request isn't signed by Slack.", http.StatusUnauthorized)
		return
	}
	payload, err := formPayload(body)
	var response any
	if err == nil {
		response, err = b.handle(request.Context(), payload)
	}
	switch {
	case errors.Is(err, errMalformed):
		b.options.Logger.Warn("refusing an interaction", "err", err)
		http.Error(w, "This is no interaction of this app.", http.StatusBadRequest)
	case err != nil:
		b.options.Logger.Error("an interaction was not acknowledged", "err", err)
		http.Error(w, "The decision could not be stored. Please try again.", http.StatusInternalServerError)
	case response != nil:
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(response); err != nil {
			b.options.Logger.Debug("answering an interaction", "err", err)
		}
	}
}

// handle is what a click or a submission comes to, however it arrived. With a
// nil error it may be acknowledged, with the response if there is one; with an
// error it must not be.
func (b *Bot) handle(ctx context.Context, payload []byte) (response any, err error) {
	i, err := parseInteraction(payload)
	if err != nil {
		return nil, err
	}
	if app := b.appID.get(); app != "" && i.APIAppID != app {
		return nil, errMalformed
	}
	switch i.Type {
	case blockActions:
		return nil, b.clicked(ctx, i)
	case viewSubmission:
		return b.submitted(ctx, i)
	}
	return nil, nil
}

// theCard is where people look at a request in Slack.
const theCard = "the card"

// clicked is what the press of a button comes to.
func (b *Bot) clicked(ctx context.Context, i *interaction) error {
	switch action := i.Actions[0].ActionID; action {
	case approveAction:
		return b.approveClicked(ctx, i)
	case revokeAction:
		return b.revokeClicked(ctx, i)
	case takeBackAction:
		return b.takeBackClicked(ctx, i)
	case pageAction: // Slack has opened it
	case ranAction, notRanAction:
		return b.settleClicked(ctx, i, action == ranAction)
	case reasonAction:
		b.openReason(ctx, i)
	case grantAction:
		b.openGrant(ctx, i)
	case rejectAction:
		b.openReject(ctx, i)
	case detailsAction:
		b.openDetails(ctx, i)
	default:
		b.openWhy(ctx, i)
	}
	return nil
}

// who is the person that Slack says acted. Of two workspaces that the payload
// names, the one that isn't ours counts, so that the look-up refuses it.
func (b *Bot) who(i *interaction) approval.Approver {
	workspace := b.options.Workspace
	switch {
	case i.User.TeamID != "" && i.User.TeamID != workspace:
		workspace = i.User.TeamID
	case i.Team == nil:
		workspace = ""
	case i.Team.ID != workspace:
		workspace = i.Team.ID
	}
	return approval.Approver{Workspace: workspace, User: i.User.ID}
}

func (b *Bot) decide(ctx context.Context, i *interaction, verdict approval.Verdict, reason, scope string) (*approval.Request, error) {
	return b.service.Decide(ctx, b.who(i), ballot(i, verdict, reason, scope))
}

func ballot(i *interaction, verdict approval.Verdict, reason, scope string) approval.Ballot {
	return approval.Ballot{
		Request: i.about.request,
		Version: i.about.version,
		Digest:  i.about.digest,
		Verdict: verdict,
		Reason:  reason,
		Scope:   scope,
		Surface: approval.Slack,
	}
}

func (b *Bot) approveClicked(ctx context.Context, i *interaction) error {
	r, err := b.decide(ctx, i, approval.Approve, "", "")
	said, known := presentation.Answer(approval.Approve, r, err, theCard)
	if !known {
		return errors.Join(errUnstored, err)
	}
	b.tell(i, markdown(said))
	return nil
}

// revokeClicked ends a grant.
func (b *Bot) revokeClicked(ctx context.Context, i *interaction) error {
	r, err := b.service.RevokeGrant(ctx, b.who(i), i.about.request, approval.Slack)
	said, known := presentation.RevokeAnswer(r, err, theCard)
	if !known {
		return errors.Join(errUnstored, err)
	}
	b.tell(i, markdown(said))
	return nil
}

// takeBackClicked revokes an approval.
func (b *Bot) takeBackClicked(ctx context.Context, i *interaction) error {
	r, err := b.service.Revoke(ctx, b.who(i), ballot(i, approval.Reject, "", ""))
	said, known := presentation.RevokeAnswer(r, err, theCard)
	if !known {
		return errors.Join(errUnstored, err)
	}
	b.tell(i, markdown(said))
	return nil
}

// settleClicked records what a person says came of a run.
func (b *Bot) settleClicked(ctx context.Context, i *interaction, ran bool) error {
	r, err := b.service.Settle(ctx, b.who(i), i.about.request, ran, approval.Slack)
	said, known := presentation.SettleAnswer(r, err, theCard)
	if !known {
		return errors.Join(errUnstored, err)
	}
	b.tell(i, markdown(said))
	return nil
}

// submitted decides by a modal, with what it may ask for.
func (b *Bot) submitted(ctx context.Context, i *interaction) (any, error) {
	verdict := approval.Approve
	if i.View.CallbackID == rejectView {
		verdict = approval.Reject
	}
	if i.View.CallbackID == grantView && i.scope() == "" {
		return fieldError(scopeInput, "Please choose for how long."), nil
	}
	r, err := b.decide(ctx, i, verdict, i.reason(), i.scope())
	said, known := presentation.Answer(verdict, r, err, theCard)
	switch field := i.field(err); {
	case !known:
		return nil, errors.Join(errUnstored, err)
	case said == nil:
		return nil, nil // closes the modal
	case field != "":
		// What was typed and chosen stays, for another try.
		return fieldError(field, said.String()), nil
	default:
		view := renderAnswer(markdown(said))
		return slack.NewUpdateViewSubmissionResponse(&view), nil
	}
}

func fieldError(field, text string) any {
	return slack.NewErrorsViewSubmissionResponse(map[string]string{field: text})
}

// field names the input of a submitted modal beside which an error is shown
// after which another try may help; "" if there is none.
func (i *interaction) field(err error) string {
	fields := []string{reasonInput, scopeInput}
	var input *approval.InputError
	switch {
	case errors.As(err, &input) && input.Field == scopeInput:
		fields = []string{scopeInput}
	case errors.Is(err, approval.ErrUnverified), errors.Is(err, approval.ErrReasonRequired), errors.As(err, &input):
	default:
		return ""
	}
	for _, field := range fields {
		if i.asks(field) {
			return field
		}
	}
	return ""
}

// openReject opens the modal before anything else, because Slack gives three
// seconds; what the request is follows.
func (b *Bot) openReject(ctx context.Context, i *interaction) {
	view, ok := b.open(ctx, i, renderReject(i.about, nil))
	if !ok {
		return
	}
	b.later(func(ctx context.Context) {
		r, err := b.decidable(ctx, i)
		if err != nil {
			b.fill(ctx, view, b.explain(approval.Reject, r, err))
			return
		}
		b.fill(ctx, view, renderReject(i.about, r))
	})
}

// decidable is the request that a button was about, or why there is nothing to
// decide by it.
func (b *Bot) decidable(ctx context.Context, i *interaction) (*approval.Request, error) {
	r, err := b.review(ctx, i)
	if err == nil {
		err = r.Settled()
	}
	if err == nil && shows(r) != i.about {
		err = approval.ErrStale
	}
	return r, err
}

// openReason offers to approve only once the modal says what is approved.
func (b *Bot) openReason(ctx context.Context, i *interaction) {
	b.show(ctx, i, "Approve with a reason", b.decidable, renderReason)
}

// openGrant offers to approve for longer than once, where the policy still does.
func (b *Bot) openGrant(ctx context.Context, i *interaction) {
	b.show(ctx, i, "Approve for longer", b.decidable, func(r *approval.Request) slack.ModalViewRequest {
		if len(presentation.Wider(r)) == 0 {
			return renderAnswer("Approving for longer than once isn't offered for this request.")
		}
		return renderGrant(r, b.options.Now())
	})
}

// openDetails also says who granted what approved the request, if that was it.
func (b *Bot) openDetails(ctx context.Context, i *interaction) {
	var granting *approval.Request
	read := func(ctx context.Context, i *interaction) (*approval.Request, error) {
		r, err := b.review(ctx, i)
		if err == nil && r.GrantedBy != "" {
			// Best effort: the rest can be read without it.
			granting, _ = b.service.Review(ctx, b.who(i), r.GrantedBy)
		}
		return r, err
	}
	b.show(ctx, i, "Details", read, func(r *approval.Request) slack.ModalViewRequest {
		view, _ := renderDetails(r, b.options.reviewURL(r.ID), b.options.Now())
		if granting != nil {
			view.Blocks.BlockSet = append(view.Blocks.BlockSet, slack.NewContextBlock("",
				markup("That was granted by "+markdown(presentation.Approvers(granting))+", "+moment(granting.DecidedAt))))
		}
		return view
	})
}

// openWhy explains to whoever may read the request. It decides nothing, so what
// the card showed doesn't matter.
func (b *Bot) openWhy(ctx context.Context, i *interaction) {
	b.show(ctx, i, "Why am I asked?", b.review, renderWhy)
}

// show opens a modal at once, then reads the request and fills the modal with
// what is rendered of it, or with why there is nothing to see.
func (b *Bot) show(ctx context.Context, i *interaction, title string,
	read func(context.Context, *interaction) (*approval.Request, error),
	rendered func(*approval.Request) slack.ModalViewRequest) {
	view, ok := b.open(ctx, i, renderLoading(title))
	if !ok {
		return
	}
	b.later(func(ctx context.Context) {
		r, err := read(ctx, i)
		if err != nil {
			b.fill(ctx, view, b.explain(approval.Approve, r, err))
			return
		}
		b.fill(ctx, view, rendered(r))
	})
}

// review is the request that a button was about, for whoever may read it.
func (b *Bot) review(ctx context.Context, i *interaction) (*approval.Request, error) {
	return b.service.Review(ctx, b.who(i), i.about.request)
}

// explain is a modal that says why there is nothing to see or to do.
func (b *Bot) explain(verdict approval.Verdict, r *approval.Request, err error) slack.ModalViewRequest {
	said, known := presentation.Answer(verdict, r, err, theCard)
	if !known {
		b.options.Logger.Error("reading a request for a modal", "err", err)
		return renderAnswer("This server can't read the request just now. Close this and try again.")
	}
	return renderAnswer(markdown(said))
}
