package slacksim

// Rich text is parsed by nobody: its elements say what they are, so its text is
// counted as plain text.

func lintRichText(n node) {
	n.object("type*", "block_id", "elements*")
	for _, element := range n.child("elements").items(1, maxRichTextItems) {
		lintRichTextElement(element)
	}
}

// maxRichTextItems is far above what fits in a message; Slack documents no
// limit.
const maxRichTextItems = 1000

func lintRichTextElement(n node) {
	switch kind := n.child("type").value; kind {
	case "rich_text_section":
		n.object("type*", "elements*")
		lintInline(n.child("elements"), false)
	case "rich_text_preformatted":
		n.object("type*", "elements*", "border", "language")
		n.child("border").integer(0, 1, 0)
		n.child("language").id(1, 255)
		lintInline(n.child("elements"), true)
	case "rich_text_quote":
		n.object("type*", "elements*", "border")
		n.child("border").integer(0, 1, 0)
		lintInline(n.child("elements"), false)
	case "rich_text_list":
		n.object("type*", "elements*", "style*", "indent", "offset", "border")
		n.child("style").oneOf("bullet", "ordered")
		n.child("indent").integer(0, 8, 0)
		n.child("offset").integer(0, 1<<20, 0)
		n.child("border").integer(0, 1, 0)
		for _, item := range n.child("elements").items(1, maxRichTextItems) {
			if item.child("type").value != "rich_text_section" {
				item.child("type").fail("unsupported type: %v in a list", item.child("type").value)
				continue
			}
			lintRichTextElement(item)
		}
	default:
		if n.object("type*", "*") {
			n.child("type").fail("unsupported type: %v", kind)
		}
	}
}

// lintInline checks the elements of a line of rich text. A preformatted one
// takes only text and links.
func lintInline(n node, preformatted bool) {
	for _, element := range n.items(1, maxRichTextItems) {
		kind := stringOf(element.child("type").value)
		if preformatted && kind != "text" && kind != "link" {
			element.child("type").fail("unsupported type: %s in preformatted text", kind)
			continue
		}
		switch kind {
		case "text":
			element.object("type*", "text*", "style")
			element.child("text").shown(plainText, 1, maxMessageCharacters)
		case "link":
			element.object("type*", "url*", "text", "unsafe", "style")
			element.child("url").id(1, 3000)
			element.child("text").shown(plainText, 1, maxMessageCharacters)
			element.child("unsafe").boolean()
		case "emoji":
			element.object("type*", "name*", "unicode", "skin_tone", "style")
			element.child("name").id(1, 255)
		case "user":
			element.object("type*", "user_id*", "style")
			element.child("user_id").id(1, 255)
		case "usergroup":
			element.object("type*", "usergroup_id*", "style")
			element.child("usergroup_id").id(1, 255)
		case "channel":
			element.object("type*", "channel_id*", "style")
			element.child("channel_id").id(1, 255)
		case "broadcast":
			element.object("type*", "range*", "style")
			element.child("range").oneOf("here", "channel", "everyone")
		case "date":
			element.object("type*", "timestamp*", "format*", "url", "fallback", "style")
			element.child("timestamp").integer(0, 1<<40, 0)
			element.child("format").id(1, 255)
			element.child("fallback").id(1, 255)
		default:
			element.child("type").fail("unsupported type: %s", kind)
			continue
		}
		lintStyle(element.child("style"))
	}
}

func lintStyle(n node) {
	if !n.present() {
		return
	}
	names := []string{"bold", "italic", "strike", "code", "underline"}
	n.object(names...)
	for _, name := range names {
		n.child(name).boolean()
	}
}
