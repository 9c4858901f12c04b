package bot

import (
	"strconv"

	"github.com/slack-go/slack"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/approval/presentation"
	"github.com/countersign/countersign/internal/visible"
	"github.com/countersign/countersign/policy"
)

// metadataEvent marks our messages, so that one whose arrival is in doubt can
// be found.
const metadataEvent = "countersign_card"

func metadata(r *approval.Request) slack.SlackMetadata {
	return slack.SlackMetadata{
		EventType:    metadataEvent,
		EventPayload: map[string]any{"request_id": string(r.ID), "revision": r.Revision},
	}
}

// message is what is posted for a request, or what its message becomes.
type message struct {
	text   string
	blocks []slack.Block
}

// blockIDs makes ids that differ in each revision of each request: Slack wants
// new ones when a message is updated.
func blockIDs(r *approval.Request) func(name string) string {
	return func(name string) string { return string(r.ID) + "." + strconv.FormatInt(r.Revision, 10) + "." + name }
}

// renderCard is the card of a request in any state. Posting and updating use
// it alike, so a card that could be posted can be updated. page is where it can
// be decided outside of Slack; empty if it can't.
func renderCard(r *approval.Request, page string) message {
	id := blockIDs(r)
	f := presentation.NewFacts(r, cardLimits)
	a := presentation.LayOut(r.Payload, r.Ruling.Redactions)

	asked := []slack.RichTextElement{section(factLines(f.List()))}
	if warned := warnings(r, a.Source); warned != nil {
		asked = append(asked, section(warned))
	}
	asked = append(asked, purpose(f)...)
	blocks := []slack.Block{
		slack.NewHeaderBlock(plainText(heading(r)), slack.HeaderBlockOptionBlockID(id("state"))),
	}
	if said := presentation.Ran(r); said != nil {
		blocks = append(blocks, slack.NewRichTextBlock(id("run"), section(said)))
	}
	blocks = append(blocks, granted(r, id("grant"))...)
	blocks = append(blocks, slack.NewRichTextBlock(id("facts"), asked...))
	text, note := a.Text, ""
	if !inline(a) {
		f.Whole = false
		text, note = excerpt(a)
	}
	blocks = append(blocks, slack.NewRichTextBlock(id("arguments"), section(a.Label(false)), preformatted(text)))
	offer := onCard
	if !f.Whole {
		offer = offerOf(r, page)
	}
	if hint := offer.hint(note, r.Status == approval.Pending); hint != "" {
		blocks = append(blocks, slack.NewContextBlock(id("cut"), plainText(hint)))
	}
	if said := words(r, 600); said != nil {
		blocks = append(blocks, slack.NewRichTextBlock(id("words"), said...))
	}
	if r.Status == approval.Pending {
		blocks = append(blocks, slack.NewContextBlock(id("needs"),
			plainText(needs(r)),
			markup("Expires "+moment(r.ExpiresAt))))
	}
	if said := outcome(r); said != nil {
		blocks = append(blocks, slack.NewContextBlock(id("outcome"), said...))
	}
	blocks = append(blocks, buttons(r, offer, page))
	blocks = append(blocks, slack.NewContextBlock(id("print"), plainText(smallPrint(r))))
	return message{text: notification(r), blocks: blocks}
}

// offer is where a person can approve: only where all of it can be read.
type offer int

const (
	nowhere offer = iota
	onCard
	inDetails
	onPage
)

// offerOf is where a request can be approved that doesn't fit its card.
func offerOf(r *approval.Request, page string) offer {
	_, whole := renderDetails(r, page, r.CreatedAt)
	switch {
	case whole:
		return inDetails
	case page != "":
		return onPage
	default:
		return nowhere
	}
}

// hint says what the card leaves out and where the rest is.
func (o offer) hint(note string, pending bool) string {
	if note != "" {
		note += " "
	}
	switch {
	case o == onCard:
		return ""
	case !pending:
		return note + "Not all of the request is shown here."
	case o == inDetails:
		return note + "Details has all of it, and Approve is there."
	case o == onPage:
		return note + "This is too large for Slack. The review page has all of it, and Approve is there."
	default:
		return "✂️ " + note + "This is too large to review in Slack, so it can't be approved here."
	}
}

// buttons are what a card offers: to decide while it is pending, to end what was
// granted, to say what came of a run that nobody knows of, and always why it was
// asked. Each carries the version and digest that were shown, so that a
// click on an old card can be told.
func buttons(r *approval.Request, approvable offer, page string) slack.Block {
	value := shows(r).value()
	var row []slack.BlockElement
	if r.Status == approval.Pending {
		if approvable == onPage {
			row = append(row, pageButton(r, page))
		}
		if approvable == onCard {
			row = append(row, approveButton(r))
			if len(presentation.Wider(r)) > 0 {
				row = append(row, grantButton(r))
			}
		}
		row = append(row,
			button(rejectAction, "Reject…", value, slack.StyleDanger),
			button(detailsAction, "Details", value, slack.StyleDefault))
	}
	if r.Status == approval.Approved {
		row = append(row, takeBackButton(r))
	}
	if presentation.Settleable(r) {
		row = append(row, settleButtons(r)...)
	}
	if presentation.Revocable(r) {
		row = append(row, revokeButton(r))
	}
	row = append(row, button(whyAction, "Why am I asked?", value, slack.StyleDefault))
	return slack.NewActionBlock(blockIDs(r)("actions"), row...)
}

// pageButton leads to where all of a request can be read and decided.
func pageButton(r *approval.Request, page string) slack.BlockElement {
	b := button(pageAction, "Open the review page", shows(r).value(), slack.StylePrimary)
	b.URL = page
	return b
}

// takeBackButton revokes an approval that nothing has used yet.
func takeBackButton(r *approval.Request) slack.BlockElement {
	b := button(takeBackAction, "Revoke approval", shows(r).value(), slack.StyleDanger)
	b.AccessibilityLabel, _ = cut("Revoke the approval of "+summary(r, 40), 75)
	b.Confirm = slack.NewConfirmationBlockObject(plainText("Revoke this approval?"),
		plainText("It won't run, unless it has begun to before you press this. The agent is told no."),
		plainText("Revoke"), plainText("Cancel"))
	b.Confirm.Style = slack.StyleDanger
	return b
}

// approveButton approves at once where a mistake costs little. From tier 4 on,
// the client asks once more, and where the policy wants a reason, a modal asks
// for it.
func approveButton(r *approval.Request) *slack.ButtonBlockElement {
	approve := button(approveAction, "Approve", shows(r).value(), slack.StylePrimary)
	approve.AccessibilityLabel, _ = cut("Approve "+summary(r, 40), 75)
	switch {
	case r.Ruling.Requirement.ReasonRequired:
		approve.ActionID = reasonAction
		approve.Text = plainText("Approve…")
	case r.Ruling.Tier >= policy.TierDestructive:
		text, _ := cut(summary(r, 90)+" · "+presentation.Environment(r)+". "+presentation.Consequence(r, "it"), 300)
		approve.Confirm = slack.NewConfirmationBlockObject(plainText("Approve this?"), plainText(text), plainText("Approve"), plainText("Cancel"))
		approve.Confirm.Style = slack.StylePrimary
	}
	return approve
}

// needs says what approving still takes.
func needs(r *approval.Request) string {
	text, _ := cut(presentation.Needs(r), 500)
	return text
}

// smallPrint is what only somebody who compares needs.
func smallPrint(r *approval.Request) string {
	version := ""
	if r.Version > 1 {
		version = " · version " + strconv.Itoa(r.Version)
	}
	return "Digest " + r.Digest.Short() + version + " · " + string(r.ID)
}

// renderMinimal is the card for when Slack refuses the full one: it still says
// what runs on how much, and leads on to Details.
func renderMinimal(r *approval.Request, page string) message {
	id := blockIDs(r)
	action := "not stated"
	if r.Action != "" {
		action, _ = cut(visible.Line(r.Action), 200)
	}
	text := heading(r)
	if r.Unpinned {
		text += "\n⚠️ " + presentation.Unpinned
	}
	text +=
		"\nAction: " + action + "\nCount: " + presentation.ShortCount(r) + "\nDigest: " + r.Digest.Short()
	if r.Status == approval.Pending {
		text += "\n" + needs(r) + ". Slack didn't take the full card. " + offerOf(r, page).hint("", true)
	}
	section := slack.NewSectionBlock(plainText(text), nil, nil)
	section.BlockID = id("minimal")
	blocks := []slack.Block{section}
	return message{text: notification(r), blocks: append(blocks, buttons(r, offerOf(r, page), page))}
}
