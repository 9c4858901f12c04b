package slacksim

import (
	"html"
	"html/template"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// directory is whom and what a rendering can name.
type directory struct {
	self     string // the person who looks
	users    map[string]User
	groups   map[string]Group
	channels map[string]Channel
}

// Markup renders Slack's mrkdwn. Everything that isn't markup is escaped, so
// the result is as inert as plain text but for links to web addresses that the
// app itself wrote as links.
func (d *directory) Markup(text string) template.HTML {
	var out strings.Builder
	for i, part := range strings.Split(text, "```") {
		if i%2 == 1 {
			out.WriteString("<pre>" + escape(unescape(strings.Trim(part, "\n"))) + "</pre>")
			continue
		}
		d.paragraphs(&out, part)
	}
	return template.HTML(out.String()) // Each piece above is escaped.
}

// paragraphs renders text outside of code blocks; lines that start with > form
// a quote.
func (d *directory) paragraphs(out *strings.Builder, text string) {
	quoted := func(line string) (string, bool) {
		for _, mark := range []string{"&gt; ", "> ", "&gt;", ">"} {
			if rest, ok := strings.CutPrefix(line, mark); ok {
				return rest, true
			}
		}
		return line, false
	}
	inQuote := false
	for i, line := range strings.Split(text, "\n") {
		rest, quote := quoted(line)
		switch {
		case quote && !inQuote:
			out.WriteString("<blockquote>")
		case !quote && inQuote:
			out.WriteString("</blockquote>")
		case i > 0:
			out.WriteString("<br>")
		}
		inQuote = quote
		out.WriteString(d.inline(rest))
	}
	if inQuote {
		out.WriteString("</blockquote>")
	}
}

var (
	emojiPattern = regexp.MustCompile(`^:([a-z0-9_+'-]+):`)
	emphasis     = map[byte]string{'*': "strong", '_': "em", '~': "s"}
)

// inline renders one line.
func (d *directory) inline(s string) string {
	var out strings.Builder
	for i := 0; i < len(s); {
		rest := s[i:]
		switch c := s[i]; c {
		case '`':
			if end := strings.IndexByte(rest[1:], '`'); end > 0 {
				out.WriteString("<code>" + escape(unescape(rest[1:1+end])) + "</code>")
				i += end + 2
				continue
			}
		case '<':
			if end := strings.IndexByte(rest, '>'); end > 1 {
				out.WriteString(d.token(rest[1:end]))
				i += end + 1
				continue
			}
		case ':':
			if match := emojiPattern.FindStringSubmatch(rest); match != nil {
				out.WriteString(emojiHTML(match[1]))
				i += len(match[0])
				continue
			}
		case '*', '_', '~':
			if inner, ok := emphasised(s, i); ok {
				tag := emphasis[c]
				out.WriteString("<" + tag + ">" + d.inline(inner) + "</" + tag + ">")
				i += len(inner) + 2
				continue
			}
		case '&':
			if startsEntity(rest) {
				end := strings.IndexByte(rest, ';') + 1
				out.WriteString(rest[:end])
				i += end
				continue
			}
		}
		_, size := utf8.DecodeRuneInString(rest)
		out.WriteString(escape(rest[:size]))
		i += size
	}
	return out.String()
}

// emphasised returns what stands between the marker at i and its partner.
// Markers count only at the edges of words.
func emphasised(s string, i int) (string, bool) {
	before, _ := utf8.DecodeLastRuneInString(s[:i])
	if i > 0 && (unicode.IsLetter(before) || unicode.IsDigit(before)) {
		return "", false
	}
	for end := i + 1; end < len(s); end++ {
		if s[end] != s[i] {
			continue
		}
		inner := s[i+1 : end]
		after, _ := utf8.DecodeRuneInString(s[end+1:])
		if inner == "" || strings.HasPrefix(inner, " ") || strings.HasSuffix(inner, " ") || unicode.IsLetter(after) || unicode.IsDigit(after) {
			continue
		}
		return inner, true
	}
	return "", false
}

// token renders what stands between < and >: mentions, dates and links.
func (d *directory) token(token string) string {
	target, label, labelled := strings.Cut(token, "|")
	switch {
	case strings.HasPrefix(target, "@"):
		return d.userHTML(target[1:])
	case strings.HasPrefix(target, "#"):
		return d.channelHTML(target[1:])
	case strings.HasPrefix(target, "!subteam^"):
		return d.groupHTML(strings.TrimPrefix(target, "!subteam^"))
	case strings.HasPrefix(target, "!date^"):
		parts := strings.SplitN(strings.TrimPrefix(target, "!date^"), "^", 3)
		if len(parts) < 2 {
			return escape(unescape(label))
		}
		return dateHTML(parts[0], parts[1], unescape(label))
	case strings.HasPrefix(target, "!"):
		return broadcastHTML(target[1:])
	}
	target = unescape(target)
	if !labelled {
		label = target
	}
	return linkHTML(target, unescape(label))
}

func (d *directory) userHTML(id string) string {
	name := id
	if u, ok := d.users[id]; ok {
		name = u.name()
	}
	return mentionHTML(id == d.self, `data-user-id="`+escape(id)+`"`, "@"+name)
}

func (d *directory) groupHTML(id string) string {
	g, ok := d.groups[id]
	name, in := id, false
	if ok {
		name = g.Handle
		for _, member := range g.Users {
			in = in || member == d.self
		}
	}
	return mentionHTML(in, `data-group-id="`+escape(id)+`"`, "@"+name)
}

func (d *directory) channelHTML(id string) string {
	name := id
	if c, ok := d.channels[id]; ok {
		name = c.Name
	}
	return mentionHTML(false, `data-channel-id="`+escape(id)+`"`, "#"+name)
}

func broadcastHTML(who string) string { return mentionHTML(true, "", "@"+who) }

func mentionHTML(me bool, attribute, name string) string {
	class := "mention"
	if me {
		class += " me"
	}
	return `<span class="` + class + `" ` + attribute + `>` + escape(name) + `</span>`
}

// dateHTML leaves the formatting to the page, which knows the person's time
// zone.
func dateHTML(unix, format, fallback string) string {
	return `<time data-unix="` + escape(unix) + `" data-format="` + escape(format) + `">` + escape(fallback) + `</time>`
}

func linkHTML(target, label string) string {
	if !strings.HasPrefix(target, "https://") && !strings.HasPrefix(target, "http://") && !strings.HasPrefix(target, "mailto:") {
		return escape(label)
	}
	return `<a href="` + escape(target) + `" target="_blank" rel="noopener noreferrer">` + escape(label) + `</a>`
}

func emojiHTML(name string) string {
	if character, ok := emoji[name]; ok {
		return `<span class="emoji" title=":` + escape(name) + `:">` + character + `</span>`
	}
	return escape(":" + name + ":")
}

func escape(s string) string { return html.EscapeString(s) }

var entities = strings.NewReplacer("&lt;", "<", "&gt;", ">", "&amp;", "&")

// unescape undoes Slack's escaping, which knows three entities only.
func unescape(s string) string { return entities.Replace(s) }
