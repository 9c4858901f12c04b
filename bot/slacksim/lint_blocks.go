package slacksim

import "strings"

// blockRule is how a block type is checked and where Slack shows it.
type blockRule struct {
	surfaces surface
	check    func(node)
}

func blockRules() map[string]blockRule {
	return map[string]blockRule{
		"section":   {anywhere, lintSection},
		"header":    {anywhere, lintHeader},
		"context":   {anywhere, lintContext},
		"divider":   {anywhere, lintDivider},
		"actions":   {anywhere, lintActions},
		"rich_text": {anywhere, lintRichText},
		"input":     {anywhere, lintInput},
		"alert":     {onModal, lintAlert},

		// Real block types that this simulator doesn't show. Each is refused:
		// in the wrong place as Slack does, in the right one because nothing
		// here would check it.
		"call":               {onMessage, nil},
		"card":               {anywhere, nil},
		"carousel":           {onMessage | onHome, nil},
		"container":          {onMessage, nil},
		"context_actions":    {onMessage, nil},
		"data_table":         {onMessage, nil},
		"data_visualization": {onMessage, nil},
		"file":               {onMessage, nil},
		"image":              {anywhere, nil},
		"markdown":           {onMessage, nil},
		"plan":               {onMessage, nil},
		"table":              {onMessage, nil},
		"task_card":          {onMessage, nil},
		"video":              {anywhere, nil},
	}
}

// blocks checks a list of blocks and that their ids are unique.
func (l *linter) blocks(n node, fewest, most int) {
	rules := blockRules()
	seen := map[string]bool{}
	for _, block := range n.items(fewest, most) {
		if _, ok := block.value.(map[string]any); !ok {
			block.fail("must be an object")
			continue
		}
		kind, _ := block.child("type").value.(string)
		rule, known := rules[kind]
		switch {
		case !block.child("type").present():
			block.fail("missing required field: type")
		case !known:
			block.child("type").fail("unsupported type: %s", kind)
		case rule.surfaces&l.surface == 0:
			block.child("type").fail("unsupported type: %s isn't available in %v", kind, l.surface)
		case rule.check == nil:
			block.child("type").fail("unsupported type: slacksim doesn't simulate %s", kind)
		default:
			rule.check(block)
		}
		if id := block.child("block_id").id(0, 255); id != "" {
			if seen[id] {
				block.child("block_id").fail("block_id %q already exists", id)
			}
			seen[id] = true
		}
	}
}

func lintSection(n node) {
	n.object("type*", "block_id", "text", "fields", "accessory", "expand")
	if !n.child("text").present() && !n.child("fields").present() {
		n.fail("must define either `text` or `fields`")
	}
	n.child("text").text(plainOrMarkup, 3000)
	for _, field := range n.child("fields").items(1, 10) {
		field.text(plainOrMarkup, 2000)
	}
	n.child("expand").boolean()
	lintButton(n.child("accessory"))
}

func lintHeader(n node) {
	n.object("type*", "block_id", "text*", "level")
	n.child("text").text(plainOnly, 150)
	n.child("level").integer(1, 4, 1)
}

func lintContext(n node) {
	n.object("type*", "block_id", "elements*")
	for _, element := range n.child("elements").items(1, 10) {
		if element.child("type").value == "image" {
			element.child("type").fail("unsupported type: slacksim doesn't simulate image")
			continue
		}
		element.text(plainOrMarkup, 3000)
	}
}

func lintDivider(n node) { n.object("type*", "block_id") }

func lintAlert(n node) {
	n.object("type*", "block_id", "text*", "level")
	n.child("text").text(plainOrMarkup, 200)
	n.child("level").oneOf("default", "info", "warning", "error", "success")
}

func lintActions(n node) {
	n.object("type*", "block_id", "elements*")
	seen := map[string]bool{}
	for _, element := range n.child("elements").items(1, 25) {
		lintButton(element)
		if id, _ := element.child("action_id").value.(string); id != "" {
			if seen[id] {
				element.child("action_id").fail("action_id %q already exists in this block", id)
			}
			seen[id] = true
		}
	}
}

func lintButton(n node) {
	if !n.present() {
		return
	}
	if kind := n.child("type").value; kind != "button" {
		n.child("type").fail("unsupported type: %v (slacksim simulates only button here)", kind)
		return
	}
	n.object("type*", "text*", "action_id", "url", "value", "style", "confirm", "accessibility_label")
	n.child("text").text(plainOnly, 75)
	n.child("action_id").id(1, 255)
	n.child("value").id(0, 2000)
	n.child("style").oneOf("primary", "danger")
	n.child("accessibility_label").id(0, 75)
	if url := n.child("url"); url.present() {
		if s := url.id(1, 3000); !strings.HasPrefix(s, "https://") && !strings.HasPrefix(s, "http://") {
			url.fail("invalid url")
		}
	}
	lintConfirm(n.child("confirm"))
}

func lintConfirm(n node) {
	if !n.present() {
		return
	}
	n.object("title*", "text*", "confirm*", "deny*", "style")
	n.child("title").text(plainOnly, 100)
	n.child("text").text(plainOrMarkup, 300)
	n.child("confirm").text(plainOnly, 30)
	n.child("deny").text(plainOnly, 30)
	n.child("style").oneOf("primary", "danger")
}
