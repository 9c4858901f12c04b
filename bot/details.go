package bot

import (
	"encoding/json"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/slack-go/slack"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/approval/presentation"
)

// What a modal may hold: Slack takes 100 blocks and 250 kB.
const (
	maxViewBlocks = 90
	maxViewBytes  = 240_000
	// partialLength is how much of arguments that are too large is shown, as
	// Slack counts.
	partialLength = 20_000
)

// The modals' callback ids, which say what their submission means.
const (
	approveView = "approve"
	grantView   = "approve_for"
	rejectView  = "reject"
	answerView  = "answer"
)

func modal(callback, title string, blocks ...slack.Block) slack.ModalViewRequest {
	return slack.ModalViewRequest{
		Type:       slack.VTModal,
		CallbackID: callback,
		Title:      plainText(title),
		Close:      plainText("Close"),
		Blocks:     slack.Blocks{BlockSet: blocks},
	}
}

// renderLoading is opened at once, before anything is looked up.
func renderLoading(title string) slack.ModalViewRequest {
	return modal(answerView, title, slack.NewSectionBlock(plainText("Loading…"), nil, nil))
}

// renderAnswer says something in a modal that has nothing more to offer.
func renderAnswer(text string) slack.ModalViewRequest {
	return modal(answerView, "countersign", slack.NewSectionBlock(markup(text), nil, nil))
}

// renderDetails is the modal with the whole request, and reports whether the
// whole is in it. Only then, and only while the request is pending, its submit
// button approves.
func renderDetails(r *approval.Request, page string, now time.Time) (slack.ModalViewRequest, bool) {
	a := presentation.LayOut(r.Payload, r.Ruling.Redactions)
	if view, whole := details(r, a, chunks(a.Text), "", now); whole {
		return view, true
	}
	said := "This is too large to review in Slack, so it can't be approved here."
	if page != "" {
		said = "This is too large for Slack. The review page has all of it."
	}
	short, less := beginning(a.Text, partialLength)
	if less {
		said = "Showing " + presentation.Digits(int64(utf8.RuneCountInString(short))) + " of " + presentation.Counted(int64(a.Characters), "character") +
			" of the arguments. " + said
		short += "…"
	}
	view, _ := details(r, a, chunks(short), said, now)
	if page != "" && r.Status == approval.Pending {
		view.Blocks.BlockSet = append(view.Blocks.BlockSet, slack.NewActionBlock("page", pageButton(r, page)))
	}
	return view, false
}

// details lays out the modal with these parts of the arguments. A warning says
// that it isn't all, and why; without one, the result says whether all of
// everything is in the modal and Slack takes it.
func details(r *approval.Request, a presentation.Arguments, parts []string, warning string, now time.Time) (slack.ModalViewRequest, bool) {
	f := presentation.NewFacts(r, detailsLimits)
	blocks := []slack.Block{
		slack.NewHeaderBlock(plainText(heading(r))),
	}
	if said := presentation.Ran(r); said != nil {
		blocks = append(blocks, slack.NewRichTextBlock("", section(said)))
	}
	blocks = append(blocks, granted(r, "")...)
	if warning != "" {
		blocks = append(blocks, slack.NewAlertBlock(plainText(warning), slack.AlertBlockOptionLevel(slack.AlertLevelWarning)))
	}
	blocks = append(blocks, slack.NewRichTextBlock("", section(factLines(f.List()))))
	if warned := warnings(r, a.Source); warned != nil {
		blocks = append(blocks, slack.NewRichTextBlock("", section(warned)))
	}
	for _, element := range purpose(f) {
		blocks = append(blocks, slack.NewRichTextBlock("", element))
	}
	blocks = append(blocks, slack.NewRichTextBlock("", section(a.Label(true))))
	for _, part := range parts {
		blocks = append(blocks, slack.NewRichTextBlock("", preformatted(part)))
	}
	if said := words(r, 2800); said != nil {
		blocks = append(blocks, slack.NewRichTextBlock("", said...))
	}
	if said := outcome(r); said != nil {
		blocks = append(blocks, slack.NewContextBlock("", said...))
	}
	if r.Status == approval.Pending {
		blocks = append(blocks, slack.NewContextBlock("", plainText(needs(r)), markup("Expires "+moment(r.ExpiresAt))))
	}
	whole := warning == "" && f.Whole
	approvable := whole && r.Status == approval.Pending
	if approvable && len(presentation.Wider(r)) > 0 {
		blocks = append(blocks, grantBlocks(r, append([]string{approval.ScopeOnce}, presentation.Wider(r)...), now)...)
	}
	if approvable && r.Ruling.Requirement.ReasonRequired {
		blocks = append(blocks, reasonBlock("Reason for approving, shown on the card", false))
	}
	blocks = append(blocks, slack.NewContextBlock("",
		plainText("Version "+strconv.Itoa(r.Version)),
		plainText("Digest "+r.Digest.String()),
		plainText(string(r.ID))))

	view := modal(answerView, "Details", blocks...)
	if approvable {
		view.CallbackID = approveView
		view.PrivateMetadata = shows(r).value()
		view.Submit = plainText("Approve")
	}
	return view, whole && fits(view)
}

// fits reports whether Slack takes a modal of this size.
func fits(view slack.ModalViewRequest) bool {
	if len(view.Blocks.BlockSet) > maxViewBlocks {
		return false
	}
	data, err := json.Marshal(view)
	return err == nil && len(data) <= maxViewBytes
}
