package bot

import (
	"strings"
	"time"
	"unicode/utf8"

	"github.com/slack-go/slack"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/internal/visible"
	"github.com/countersign/countersign/policy"
)

var escaper = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;")

// escape makes text inert where Slack parses mrkdwn, as far as escaping can:
// backticks and asterisks still work there, so an agent's text never goes to
// such a place except the notification text, which shows no markup.
func escape(text string) string { return escaper.Replace(text) }

// length is how many characters Slack may count in a text: after escaping, and
// with a character outside of the basic plane as two, because it isn't
// documented whether Slack counts characters or UTF-16 units.
func length(text string) int {
	n := 0
	for _, r := range text {
		switch {
		case r == '&':
			n += len("&amp;")
		case r == '<' || r == '>':
			n += len("&lt;")
		case r > 0xffff:
			n += 2
		default:
			n++
		}
	}
	return n
}

// beginning is the longest beginning of a text that was made visible, of at
// most limit characters as Slack counts them, and whether that leaves anything
// out.
func beginning(text string, limit int) (string, bool) {
	if len(text) <= limit && length(text) <= limit {
		return text, false
	}
	characters := limit
	for characters > 0 {
		short, _ := visible.Cut(text, characters)
		excess := length(short) - limit
		if excess <= 0 {
			return short, len(short) < len(text)
		}
		// Escaping makes at most five characters of one.
		characters = utf8.RuneCountInString(short) - max(1, excess/5)
	}
	return "", text != ""
}

// cut is beginning with a mark at the end if anything is left out.
func cut(text string, limit int) (string, bool) {
	if length(text) <= limit {
		return text, false
	}
	short, _ := beginning(text, limit-1)
	return short + "…", true
}

func plainText(text string) *slack.TextBlockObject {
	emoji := false
	return &slack.TextBlockObject{Type: slack.PlainTextType, Text: text, Emoji: &emoji}
}

// markup is for our own words, and for ids and dates that were checked.
func markup(text string) *slack.TextBlockObject {
	return &slack.TextBlockObject{Type: slack.MarkdownType, Text: text, Verbatim: true}
}

// line collects what stands in one rich text element. Text in it is never
// parsed, so it may be anybody's.
type line []slack.RichTextSectionElement

func (l *line) add(text string, style *slack.RichTextSectionTextStyle) {
	if text == "" {
		// Slack refuses empty text elements.
		return
	}
	*l = append(*l, slack.NewRichTextSectionTextElement(text, style))
}

func (l *line) text(text string) { l.add(text, nil) }
func (l *line) bold(text string) { l.add(text, &slack.RichTextSectionTextStyle{Bold: true}) }
func (l *line) code(text string) { l.add(text, &slack.RichTextSectionTextStyle{Code: true}) }

// person mentions somebody, without telling them where the text is an update.
func (l *line) person(who approval.Approver) {
	if !policy.IsUserID(who.User) {
		l.text("somebody")
		return
	}
	*l = append(*l, slack.NewRichTextSectionUserElement(who.User, nil))
}

// label starts a new line with what the rest of it is.
func (l *line) label(text string) {
	if len(*l) > 0 {
		l.text("\n")
	}
	l.bold(text)
	l.text("  ")
}

func (l line) section() slack.RichTextElement { return slack.NewRichTextSection(l...) }

func quote(text string) slack.RichTextElement {
	var l line
	l.text(text)
	return &slack.RichTextQuote{Type: slack.RTEQuote, Elements: l}
}

func preformatted(text string) slack.RichTextElement {
	var l line
	l.text(text)
	return &slack.RichTextPreformatted{Type: slack.RTEPreformatted, Elements: l}
}

// person mentions an approver. Only an id that has the form of one is put in
// markup.
func person(who approval.Approver) string {
	if !policy.IsUserID(who.User) {
		return "somebody"
	}
	return "<@" + who.User + ">"
}

// people mentions several approvers, the first ones of many.
func people(all []approval.Approver) string {
	var mentions []string
	for _, who := range all {
		mentions = append(mentions, person(who))
	}
	return listed(mentions)
}

// listed is a list in words, of the first ones of many.
func listed(all []string) string {
	const most = 8
	if more := len(all) - most; more > 0 {
		all = append(all[:most:most], digits(int64(more))+" more")
	}
	switch n := len(all); {
	case n == 0:
		return "nobody"
	case n == 1:
		return all[0]
	case strings.Contains(all[n-2], ","):
		return strings.Join(all[:n-1], ", ") + ", and " + all[n-1]
	default:
		return strings.Join(all[:n-1], ", ") + " and " + all[n-1]
	}
}

// moment shows a time in the reader's own time zone; clients that can't, show
// it in UTC.
func moment(at time.Time) string {
	at = at.UTC()
	return "<!date^" + integer(at.Unix()) + "^{date_short_pretty} {time}|" + at.Format("2 Jan 15:04") + " UTC>"
}

// clock is a time of day in plain text, with the day if that isn't obvious to
// somebody who reads it when asked was now.
func clock(at, asked time.Time) string {
	at, asked = at.UTC(), asked.UTC()
	if at.YearDay() == asked.YearDay() && at.Year() == asked.Year() {
		return at.Format("15:04") + " UTC"
	}
	return at.Format("2 Jan 15:04") + " UTC"
}
