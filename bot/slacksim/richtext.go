package slacksim

import (
	"encoding/json"
	"html/template"
	"strconv"
	"strings"
)

// richElement is any element of rich text.
type richElement struct {
	Type        string          `json:"type"`
	Elements    []richElement   `json:"elements"`
	Text        string          `json:"text"`
	URL         string          `json:"url"`
	Name        string          `json:"name"`
	UserID      string          `json:"user_id"`
	UsergroupID string          `json:"usergroup_id"`
	ChannelID   string          `json:"channel_id"`
	Range       string          `json:"range"`
	Timestamp   int64           `json:"timestamp"`
	Format      string          `json:"format"`
	Fallback    string          `json:"fallback"`
	Style       json.RawMessage `json:"style"` // a word on lists, an object elsewhere
	Indent      int             `json:"indent"`
}

// Rich renders the elements of a rich_text block. Its text has no markup: it is
// shown as it is.
func (d *directory) Rich(elements []json.RawMessage) template.HTML {
	var out strings.Builder
	for _, raw := range elements {
		var e richElement
		if json.Unmarshal(raw, &e) == nil {
			d.richElement(&out, e)
		}
	}
	return template.HTML(out.String()) // Each piece is escaped.
}

func (d *directory) richElement(out *strings.Builder, e richElement) {
	wrap := func(open, closing string) {
		out.WriteString(open)
		for _, inner := range e.Elements {
			if strings.HasPrefix(inner.Type, "rich_text_") {
				out.WriteString("<li>")
				d.richElement(out, inner)
				out.WriteString("</li>")
				continue
			}
			out.WriteString(d.richInline(inner, e.Type == "rich_text_preformatted"))
		}
		out.WriteString(closing)
	}
	switch e.Type {
	case "rich_text_section":
		wrap(`<div class="rich">`, `</div>`)
	case "rich_text_preformatted":
		wrap(`<pre>`, `</pre>`)
	case "rich_text_quote":
		wrap(`<blockquote>`, `</blockquote>`)
	case "rich_text_list":
		tag := "ul"
		if string(e.Style) == `"ordered"` {
			tag = "ol"
		}
		wrap(`<`+tag+` class="indent`+strconv.Itoa(e.Indent)+`">`, `</`+tag+`>`)
	}
}

func (d *directory) richInline(e richElement, preformatted bool) string {
	var s string
	switch e.Type {
	case "text":
		s = escape(e.Text)
		if !preformatted {
			s = strings.ReplaceAll(s, "\n", "<br>")
		}
	case "link":
		label := e.Text
		if label == "" {
			label = e.URL
		}
		s = linkHTML(e.URL, label)
	case "emoji":
		s = emojiHTML(e.Name)
	case "user":
		s = d.userHTML(e.UserID)
	case "usergroup":
		s = d.groupHTML(e.UsergroupID)
	case "channel":
		s = d.channelHTML(e.ChannelID)
	case "broadcast":
		s = broadcastHTML(e.Range)
	case "date":
		s = dateHTML(strconv.FormatInt(e.Timestamp, 10), e.Format, e.Fallback)
	}
	var style struct{ Bold, Italic, Strike, Code, Underline bool }
	if isObject(e.Style) && json.Unmarshal(e.Style, &style) != nil {
		return s
	}
	for _, wrapper := range []struct {
		on  bool
		tag string
	}{{style.Code, "code"}, {style.Underline, "u"}, {style.Strike, "s"}, {style.Italic, "em"}, {style.Bold, "strong"}} {
		if wrapper.on {
			s = "<" + wrapper.tag + ">" + s + "</" + wrapper.tag + ">"
		}
	}
	return s
}

// Text renders a text object of either kind.
func (d *directory) Text(t *textObject) template.HTML {
	switch {
	case t == nil:
		return ""
	case t.Type == "mrkdwn":
		return d.Markup(t.Text)
	}
	lines := strings.Split(t.Text, "\n")
	for i, line := range lines {
		lines[i] = plainHTML(line, t.Emoji == nil || *t.Emoji)
	}
	return template.HTML(strings.Join(lines, "<br>")) // Each line is escaped.
}

// plainHTML renders a line of plain text, in which only emoji names can stand
// for something.
func plainHTML(line string, withEmoji bool) string {
	if !withEmoji {
		return escape(line)
	}
	var out strings.Builder
	for line != "" {
		i := strings.IndexByte(line, ':')
		if i < 0 {
			i = len(line)
		}
		out.WriteString(escape(line[:i]))
		line = line[i:]
		if match := emojiPattern.FindStringSubmatch(line); match != nil {
			out.WriteString(emojiHTML(match[1]))
			line = line[len(match[0]):]
		} else if line != "" {
			out.WriteByte(':')
			line = line[1:]
		}
	}
	return out.String()
}
