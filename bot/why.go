package bot

import (
	"strings"
	"unicode/utf8"

	"github.com/slack-go/slack"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/approval/presentation"
	"github.com/countersign/countersign/internal/visible"
)

// maxWhyBlocks is how many blocks of explanation a modal has at most. One takes
// all that the policy writes.
const maxWhyBlocks = 60

// renderWhy is the modal that says how the policy came to ask. It is laid out as
// the policy wrote it, in lines that a phone doesn't break anew.
func renderWhy(r *approval.Request) slack.ModalViewRequest {
	text := visible.Text(hang(strings.TrimSpace(r.Explanation), lineWidth))
	if text == "" {
		text = "Nothing is recorded about this."
	}
	parts := chunks(text)
	var blocks []slack.Block
	if len(parts) > maxWhyBlocks {
		parts = parts[:maxWhyBlocks]
		blocks = append(blocks, slack.NewAlertBlock(plainText("This is the beginning; all of it is too long for Slack."),
			slack.AlertBlockOptionLevel(slack.AlertLevelWarning)))
	}
	for _, part := range parts {
		blocks = append(blocks, slack.NewRichTextBlock("", preformatted(part)))
	}
	if l := presentation.WithoutPerson(r); l != nil {
		blocks = append(blocks, slack.NewContextBlock("", small(l)...))
	}
	blocks = append(blocks, slack.NewContextBlock("",
		plainText("As the policy ruled when the agent asked"),
		plainText("Policy "+short(r.Ruling.Revision)),
		plainText(string(r.ID))))
	return modal(answerView, "Why am I asked?", blocks...)
}

// short is the beginning of a policy's revision, enough to compare.
func short(revision string) string {
	if revision == "" {
		return "not recorded"
	}
	text, _ := visible.Cut(visible.Line(revision), 12)
	return text
}

// hang breaks lines that are longer than width between words, with what follows
// two characters further in, so that the indentation still says what belongs to
// what. A word that is longer stays whole.
func hang(text string, width int) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if utf8.RuneCountInString(line) > width {
			lines[i] = hangLine(line, width)
		}
	}
	return strings.Join(lines, "\n")
}

func hangLine(line string, width int) string {
	rest := strings.TrimLeft(line, " ")
	indent := len(line) - len(rest)
	margin := strings.Repeat(" ", min(indent+2, width/2))
	var b strings.Builder
	b.WriteString(line[:indent])
	used, first := indent, true
	for word := range strings.SplitSeq(rest, " ") {
		length := utf8.RuneCountInString(word)
		switch {
		case first:
		case used+1+length > width:
			b.WriteString("\n" + margin)
			used = len(margin)
		default:
			b.WriteByte(' ')
			used++
		}
		b.WriteString(word)
		used += length
		first = false
	}
	return b.String()
}
