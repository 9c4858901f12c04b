package presentation

import "strings"

// jsonNode is a JSON value as it is written: a scalar's literal, or the
// literals in an object or array. Nothing is decoded.
type jsonNode struct {
	scalar   string // of a string, a number, true, false or null
	open     byte   // '{' or '[' for a container, 0 for a scalar
	items    []jsonItem
	from, to int  // where it stands in the text
	hidden   bool // scalar says what the policy hides
}

type jsonItem struct {
	name  string // the member's name with its quotes; empty in an array
	value jsonNode
}

const (
	indentWidth = 2
	maxIndent   = 20
	// maxNesting bounds recursion; stored payloads are nested less deep.
	maxNesting = 200
)

// parseJSON splits a text into its literals; false if it isn't JSON of the
// usual form, which is then shown as it is.
func parseJSON(text string) (jsonNode, bool) {
	p := jsonParser{text: text}
	node, ok := p.value(0)
	p.space()
	return node, ok && p.at == len(p.text)
}

type jsonParser struct {
	text string
	at   int
}

func (p *jsonParser) space() {
	for p.at < len(p.text) && strings.IndexByte(" \t\r\n", p.text[p.at]) >= 0 {
		p.at++
	}
}

// take consumes the byte c after white space.
func (p *jsonParser) take(c byte) bool {
	p.space()
	if p.at < len(p.text) && p.text[p.at] == c {
		p.at++
		return true
	}
	return false
}

func (p *jsonParser) value(depth int) (jsonNode, bool) {
	p.space()
	from := p.at
	node, ok := p.bare(depth)
	node.from, node.to = from, p.at
	return node, ok
}

// bare is value without where it stands.
func (p *jsonParser) bare(depth int) (jsonNode, bool) {
	switch {
	case depth > maxNesting:
		return jsonNode{}, false
	case p.take('{'):
		return p.container('{', '}', depth)
	case p.take('['):
		return p.container('[', ']', depth)
	default:
		literal := p.literal()
		return jsonNode{scalar: literal}, literal != ""
	}
}

func (p *jsonParser) container(open, end byte, depth int) (jsonNode, bool) {
	node := jsonNode{open: open}
	if p.take(end) {
		return node, true
	}
	for {
		var item jsonItem
		if open == '{' {
			item.name = p.literal()
			if !strings.HasPrefix(item.name, `"`) || !p.take(':') {
				return node, false
			}
		}
		var ok bool
		if item.value, ok = p.value(depth + 1); !ok {
			return node, false
		}
		node.items = append(node.items, item)
		if p.take(end) {
			return node, true
		}
		if !p.take(',') {
			return node, false
		}
	}
}

// literal consumes a string, number, true, false or null; "" if none is there.
func (p *jsonParser) literal() string {
	p.space()
	start := p.at
	if p.at < len(p.text) && p.text[p.at] == '"' {
		for p.at++; p.at < len(p.text); p.at++ {
			switch p.text[p.at] {
			case '\\':
				p.at++
			case '"':
				p.at++
				return p.text[start:p.at]
			}
		}
		return ""
	}
	for p.at < len(p.text) && strings.IndexByte(" \t\r\n{}[],:\"", p.text[p.at]) < 0 {
		p.at++
	}
	return p.text[start:p.at]
}

func (n jsonNode) close() string {
	if n.open == '{' {
		return "}"
	}
	return "]"
}

// printed is the value laid out.
func (n jsonNode) printed() string {
	var b strings.Builder
	n.print(&b, 0, 0)
	return b.String()
}

// print writes the value at an indent, where the line has already used up some
// columns.
func (n jsonNode) print(b *strings.Builder, indent, used int) {
	if len(n.items) == 0 || n.width(lineWidth-used) <= lineWidth-used {
		n.printLine(b)
		return
	}
	b.WriteByte(n.open)
	// Deep nesting must not push what it holds off the screen.
	inner := min(indent+indentWidth, maxIndent)
	column := -1 // of the end of the line; -1 while a new line is due
	for i, item := range n.items {
		comma := ""
		if i < len(n.items)-1 {
			comma = ","
		}
		fill := n.open == '[' && item.value.open == 0
		width := len(item.value.scalar) + len(comma)
		switch {
		case fill && column >= 0 && column+1+width <= lineWidth:
			b.WriteByte(' ')
			column++
		default:
			b.WriteByte('\n')
			b.WriteString(strings.Repeat(" ", inner))
			column = inner
		}
		if item.name != "" {
			b.WriteString(item.name)
			b.WriteString(": ")
			column += len(item.name) + 2
		}
		item.value.print(b, inner, column)
		b.WriteString(comma)
		column += width
		if !fill {
			column = -1
		}
	}
	b.WriteByte('\n')
	b.WriteString(strings.Repeat(" ", indent))
	b.WriteString(n.close())
}

// printLine writes the value on one line.
func (n jsonNode) printLine(b *strings.Builder) {
	if n.open == 0 {
		b.WriteString(n.scalar)
		return
	}
	b.WriteByte(n.open)
	for i, item := range n.items {
		if i > 0 {
			b.WriteString(", ")
		}
		if item.name != "" {
			b.WriteString(item.name)
			b.WriteString(": ")
		}
		item.value.printLine(b)
	}
	b.WriteString(n.close())
}

// width is how long the value is on one line, in bytes. It stops counting
// beyond limit.
func (n jsonNode) width(limit int) int {
	if n.open == 0 {
		return len(n.scalar)
	}
	width := 2
	for i, item := range n.items {
		if width > limit {
			break
		}
		if i > 0 {
			width += 2
		}
		if item.name != "" {
			width += len(item.name) + 2
		}
		width += item.value.width(limit - width)
	}
	return width
}

// spread writes the value with a line for each that it holds.
func (n jsonNode) spread(b *strings.Builder, indent int) {
	if len(n.items) == 0 {
		n.printLine(b)
		return
	}
	b.WriteByte(n.open)
	for i, item := range n.items {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString("\n" + strings.Repeat(" ", min(indent+indentWidth, maxIndent)))
		if item.name != "" {
			b.WriteString(item.name + ": ")
		}
		item.value.spread(b, indent+indentWidth)
	}
	b.WriteString("\n" + strings.Repeat(" ", min(indent, maxIndent)) + n.close())
}

// written is the text that the value was parsed from, with what is hidden
// replaced.
func (n jsonNode) written(text string) string {
	var b strings.Builder
	at := 0
	var walk func(jsonNode)
	walk = func(n jsonNode) {
		if n.hidden {
			b.WriteString(text[at:n.from] + n.scalar)
			at = n.to
		}
		for _, item := range n.items {
			walk(item.value)
		}
	}
	walk(n)
	b.WriteString(text[at:])
	return b.String()
}
