package bot

import (
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/slack-go/slack"

	"github.com/countersign/countersign/approval/presentation"
	"github.com/countersign/countersign/internal/visible"
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

// section draws a line where nothing is parsed, so that text in it may be
// anybody's.
func section(l presentation.Line) slack.RichTextElement {
	elements := make([]slack.RichTextSectionElement, 0, len(l))
	for _, piece := range l {
		elements = append(elements, richText(piece))
	}
	return slack.NewRichTextSection(elements...)
}

func richText(piece presentation.Piece) slack.RichTextSectionElement {
	switch piece.Kind {
	case presentation.Strong:
		return slack.NewRichTextSectionTextElement(piece.Text, &slack.RichTextSectionTextStyle{Bold: true})
	case presentation.Code:
		return slack.NewRichTextSectionTextElement(piece.Text, &slack.RichTextSectionTextStyle{Code: true})
	case presentation.Person:
		return slack.NewRichTextSectionUserElement(piece.Who.User, nil)
	case presentation.Moment:
		return slack.NewRichTextSectionTextElement(presentation.Line{piece}.String(), nil)
	default:
		return slack.NewRichTextSectionTextElement(piece.Text, nil)
	}
}

// markdown draws a line as mrkdwn. The line has our own words, and ids and times
// that were checked.
func markdown(l presentation.Line) string {
	var b strings.Builder
	for _, piece := range l {
		switch piece.Kind {
		case presentation.Strong:
			b.WriteString("*" + escape(piece.Text) + "*")
		case presentation.Person:
			b.WriteString("<@" + piece.Who.User + ">")
		case presentation.Moment:
			b.WriteString(moment(piece.At))
		default:
			b.WriteString(escape(piece.Text))
		}
	}
	return b.String()
}

// small draws lines below each other in small print. Only what needs it is
// parsed.
func small(lines ...presentation.Line) []slack.MixedElement {
	var elements []slack.MixedElement
	for _, l := range lines {
		plain := !slices.ContainsFunc(l, func(piece presentation.Piece) bool { return piece.Kind != presentation.Plain })
		if plain {
			elements = append(elements, plainText(l.String()))
		} else {
			elements = append(elements, markup(markdown(l)))
		}
	}
	return elements
}

func textSection(text string) slack.RichTextSection {
	return *slack.NewRichTextSection(slack.NewRichTextSectionTextElement(text, nil))
}

func quote(text string) slack.RichTextElement {
	return &slack.RichTextQuote{Type: slack.RTEQuote, Elements: textSection(text).Elements}
}

func preformatted(text string) slack.RichTextElement {
	return &slack.RichTextPreformatted{Type: slack.RTEPreformatted, Elements: textSection(text).Elements}
}

// moment shows a time in the reader's own time zone; clients that can't, show
// it in UTC.
func moment(at time.Time) string {
	at = at.UTC()
	return "<!date^" + strconv.FormatInt(at.Unix(), 10) + "^{date_short_pretty} {time}|" + at.Format("2 Jan 15:04") + " UTC>"
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
