package slacksim_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/countersign/countersign/bot/slacksim"
)

// lintBlocks checks blocks under a text that is fine.
func lintBlocks(blocks string) []slacksim.Problem {
	return slacksim.LintMessage(json.RawMessage(blocks), "Approval needed")
}

func modal(blocks string) string {
	return `{"type":"modal","title":{"type":"plain_text","text":"Title"},"submit":{"type":"plain_text","text":"Go"},"blocks":` + blocks + `}`
}

func input(element string) string {
	return modal(`[{"type":"input","block_id":"i","label":{"type":"plain_text","text":"Label"},"element":` + element + `}]`)
}

// button wraps properties of a button in blocks.
func button(properties string) string {
	return `[{"type":"actions","elements":[{"type":"button","action_id":"a","text":{"type":"plain_text","text":"Go"},` + properties + `}]}]`
}

func confirmDialog(title, text, yes, no string) string {
	return button(fmt.Sprintf(`"confirm":{"title":{"type":"plain_text","text":"%s"},"text":{"type":"plain_text","text":"%s"},`+
		`"confirm":{"type":"plain_text","text":"%s"},"deny":{"type":"plain_text","text":"%s"}}`, title, text, yes, no))
}

// Every length limit holds at its last character and breaks at the next, and
// what must not be empty is refused when it is.
func TestLengths(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		json    string // %s is the text; a view starts with {
		most    int
		pointer string
		empty   bool // may be empty
	}{
		{"section text", `[{"type":"section","text":{"type":"mrkdwn","text":"%s"}}]`, 3000, "/blocks/0/text/text", false},
		{"section plain text", `[{"type":"section","text":{"type":"plain_text","text":"%s"}}]`, 3000, "/blocks/0/text/text", false},
		{"section field", `[{"type":"section","fields":[{"type":"mrkdwn","text":"%s"}]}]`, 2000, "/blocks/0/fields/0/text", false},
		{"header", `[{"type":"header","text":{"type":"plain_text","text":"%s"}}]`, 150, "/blocks/0/text/text", false},
		{"context", `[{"type":"context","elements":[{"type":"plain_text","text":"%s"}]}]`, 3000, "/blocks/0/elements/0/text", false},
		{"block id", `[{"type":"divider","block_id":"%s"}]`, 255, "/blocks/0/block_id", true},
		{"button text", `[{"type":"actions","elements":[{"type":"button","text":{"type":"plain_text","text":"%s"}}]}]`, 75, "/blocks/0/elements/0/text/text", false},
		{"action id", `[{"type":"actions","elements":[{"type":"button","action_id":"%s","text":{"type":"plain_text","text":"Go"}}]}]`, 255, "/blocks/0/elements/0/action_id", false},
		{"button value", button(`"value":"%s"`), 2000, "/blocks/0/elements/0/value", true},
		{"accessibility label", button(`"accessibility_label":"%s"`), 75, "/blocks/0/elements/0/accessibility_label", true},
		{"confirm title", confirmDialog("%s", "t", "y", "n"), 100, "/blocks/0/elements/0/confirm/title/text", false},
		{"confirm text", confirmDialog("t", "%s", "y", "n"), 300, "/blocks/0/elements/0/confirm/text/text", false},
		{"confirm yes", confirmDialog("t", "t", "%s", "n"), 30, "/blocks/0/elements/0/confirm/confirm/text", false},
		{"confirm no", confirmDialog("t", "t", "y", "%s"), 30, "/blocks/0/elements/0/confirm/deny/text", false},

		{"modal title", `{"type":"modal","title":{"type":"plain_text","text":"%s"},"blocks":[{"type":"divider"}]}`, 24, "/view/title/text", false},
		{"modal submit", `{"type":"modal","title":{"type":"plain_text","text":"T"},"submit":{"type":"plain_text","text":"%s"},"blocks":[{"type":"divider"}]}`, 24, "/view/submit/text", false},
		{"modal close", `{"type":"modal","title":{"type":"plain_text","text":"T"},"close":{"type":"plain_text","text":"%s"},"blocks":[{"type":"divider"}]}`, 24, "/view/close/text", false},
		{"private metadata", `{"type":"modal","title":{"type":"plain_text","text":"T"},"private_metadata":"%s","blocks":[{"type":"divider"}]}`, 3000, "/view/private_metadata", true},
		{"callback id", `{"type":"modal","title":{"type":"plain_text","text":"T"},"callback_id":"%s","blocks":[{"type":"divider"}]}`, 255, "/view/callback_id", true},
		{"external id", `{"type":"modal","title":{"type":"plain_text","text":"T"},"external_id":"%s","blocks":[{"type":"divider"}]}`, 255, "/view/external_id", true},
		{"home metadata", `{"type":"home","private_metadata":"%s","blocks":[{"type":"divider"}]}`, 3000, "/view/private_metadata", true},
		{"alert", modal(`[{"type":"alert","text":{"type":"plain_text","text":"%s"}}]`), 200, "/view/blocks/0/text/text", false},
		{"input label", modal(`[{"type":"input","label":{"type":"plain_text","text":"%s"},"element":{"type":"plain_text_input"}}]`), 2000, "/view/blocks/0/label/text", false},
		{"input hint", modal(`[{"type":"input","label":{"type":"plain_text","text":"L"},"hint":{"type":"plain_text","text":"%s"},"element":{"type":"plain_text_input"}}]`), 2000, "/view/blocks/0/hint/text", false},
		{"input action id", input(`{"type":"plain_text_input","action_id":"%s"}`), 255, "/view/blocks/0/element/action_id", false},
		{"placeholder", input(`{"type":"plain_text_input","placeholder":{"type":"plain_text","text":"%s"}}`), 150, "/view/blocks/0/element/placeholder/text", false},
		{"initial value", input(`{"type":"plain_text_input","initial_value":"%s"}`), 3000, "/view/blocks/0/element/initial_value", true},
		{"initial value under max_length", input(`{"type":"plain_text_input","max_length":10,"initial_value":"%s"}`), 10, "/view/blocks/0/element/initial_value", true},
		{"option text", input(`{"type":"static_select","options":[{"text":{"type":"plain_text","text":"%s"},"value":"v"}]}`), 75, "/view/blocks/0/element/options/0/text/text", false},
		{"option value", input(`{"type":"static_select","options":[{"text":{"type":"plain_text","text":"T"},"value":"%s"}]}`), 150, "/view/blocks/0/element/options/0/value", false},
		{"option description", input(`{"type":"radio_buttons","options":[{"text":{"type":"plain_text","text":"T"},"value":"v","description":{"type":"plain_text","text":"%s"}}]}`), 75, "/view/blocks/0/element/options/0/description/text", false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			lint := func(length int) []slacksim.Problem {
				text := fmt.Sprintf(test.json, strings.Repeat("é", length))
				if strings.HasPrefix(text, "{") {
					return slacksim.LintView(json.RawMessage(text))
				}
				return lintBlocks(text)
			}
			if got := lint(test.most); got != nil {
				t.Errorf("%d characters are refused: %v", test.most, got)
			}
			want := fmt.Sprintf("must be less than %d characters [json-pointer:%s]", test.most+1, test.pointer)
			if got := lint(test.most + 1); len(got) != 1 || got[0].String() != want {
				t.Errorf("%d characters: %v, want %q", test.most+1, got, want)
			}
			switch got := lint(0); {
			case test.empty && got != nil:
				t.Errorf("an empty one is refused: %v", got)
			case !test.empty && (len(got) != 1 || got[0].String() != "must be more than 0 characters [json-pointer:"+test.pointer+"]"):
				t.Errorf("an empty one: %v", got)
			}
		})
	}
}

// Every count limit holds at its last item and breaks at the next.
func TestCounts(t *testing.T) {
	t.Parallel()
	plain := `{"type":"plain_text","text":"x"}`
	option := `{"text":` + plain + `,"value":"v%d"}`
	tests := []struct {
		name    string
		open    string
		item    string // %d is its number
		closing string
		most    int
		fewest  int
		pointer string
	}{
		{"blocks of a message", `[`, `{"type":"divider","block_id":"%d"}`, `]`, 50, 0, "/blocks"},
		{"blocks of a modal", `{"type":"modal","title":` + plain + `,"blocks":[`, `{"type":"divider","block_id":"%d"}`, `]}`, 100, 1, "/view/blocks"},
		{"blocks of Home", `{"type":"home","blocks":[`, `{"type":"divider","block_id":"%d"}`, `]}`, 100, 1, "/view/blocks"},
		{"fields", `[{"type":"section","fields":[`, `{"type":"mrkdwn","text":"%d"}`, `]}]`, 10, 1, "/blocks/0/fields"},
		{"context elements", `[{"type":"context","elements":[`, `{"type":"mrkdwn","text":"%d"}`, `]}]`, 10, 1, "/blocks/0/elements"},
		{"actions elements", `[{"type":"actions","elements":[`, `{"type":"button","action_id":"a%d","text":` + plain + `}`, `]}]`, 25, 1, "/blocks/0/elements"},
		{"select options", input(`{"type":"static_select","options":[`)[:len(input(`{"type":"static_select","options":[`))-3], option, `]}}]}`, 100, 1, "/view/blocks/0/element/options"},
		{"radio options", input(`{"type":"radio_buttons","options":[`)[:len(input(`{"type":"radio_buttons","options":[`))-3], option, `]}}]}`, 10, 1, "/view/blocks/0/element/options"},
		{"checkbox options", input(`{"type":"checkboxes","options":[`)[:len(input(`{"type":"checkboxes","options":[`))-3], option, `]}}]}`, 10, 1, "/view/blocks/0/element/options"},
		{"rich text elements", `[{"type":"rich_text","elements":[`, `{"type":"rich_text_section","elements":[{"type":"text","text":"%d"}]}`, `]}]`, 1000, 1, "/blocks/0/elements"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			lint := func(count int) []slacksim.Problem {
				items := make([]string, count)
				for i := range items {
					items[i] = fmt.Sprintf(test.item, i)
				}
				text := test.open + strings.Join(items, ",") + test.closing
				if strings.HasPrefix(text, "{") {
					return slacksim.LintView(json.RawMessage(text))
				}
				return lintBlocks(text)
			}
			if got := lint(test.most); got != nil {
				t.Errorf("%d are refused: %v", test.most, got)
			}
			want := fmt.Sprintf("no more than %d items allowed [json-pointer:%s]", test.most, test.pointer)
			if got := lint(test.most + 1); len(got) != 1 || got[0].String() != want {
				t.Errorf("%d: %v, want %q", test.most+1, got, want)
			}
			if got := lint(0); (len(got) == 0) != (test.fewest == 0) {
				t.Errorf("none: %v", got)
			}
		})
	}
}

func TestShapes(t *testing.T) {
	t.Parallel()
	text := `{"type":"plain_text","text":"x"}`
	tests := []struct {
		name string
		json string
		want string // "" when Slack takes it
	}{
		{"no blocks", ``, ``},
		{"an empty array", `[]`, ``},
		{"not JSON", `[`, "must be JSON: unexpected EOF [json-pointer:/blocks]"},
		{"two values", `[] []`, "must be JSON: something follows the value at byte 4 [json-pointer:/blocks]"},
		{"an object", `{}`, "must be an array [json-pointer:/blocks]"},
		{"a block that isn't an object", `[1]`, "must be an object [json-pointer:/blocks/0]"},
		{"no type", `[{}]`, "missing required field: type [json-pointer:/blocks/0]"},
		{"unknown type", `[{"type":"sectoin"}]`, "unsupported type: sectoin [json-pointer:/blocks/0/type]"},
		{"alert in a message", `[{"type":"alert","text":` + text + `}]`, "unsupported type: alert isn't available in messages [json-pointer:/blocks/0/type]"},
		{"table, not simulated", `[{"type":"table","rows":[]}]`, "unsupported type: slacksim doesn't simulate table [json-pointer:/blocks/0/type]"},
		{"card, not simulated", `[{"type":"card"}]`, "unsupported type: slacksim doesn't simulate card [json-pointer:/blocks/0/type]"},
		{"image in a context", `[{"type":"context","elements":[{"type":"image","image_url":"https://a.example/b","alt_text":"b"}]}]`, "unsupported type: slacksim doesn't simulate image [json-pointer:/blocks/0/elements/0/type]"},
		{"a second property", `[{"type":"divider","text":` + text + `}]`, "invalid additional property: text [json-pointer:/blocks/0]"},
		{"two blocks with one id", `[{"type":"divider","block_id":"a"},{"type":"divider","block_id":"a"}]`, `block_id "a" already exists [json-pointer:/blocks/1/block_id]`},
		{"two blocks without an id", `[{"type":"divider"},{"type":"divider"}]`, ``},
		{"an id that isn't a string", `[{"type":"divider","block_id":1}]`, "must be a string [json-pointer:/blocks/0/block_id]"},

		{"section without anything", `[{"type":"section"}]`, "must define either `text` or `fields` [json-pointer:/blocks/0]"},
		{"section with a string", `[{"type":"section","text":"x"}]`, "must be an object [json-pointer:/blocks/0/text]"},
		{"section with an accessory", `[{"type":"section","text":` + text + `,"accessory":{"type":"button","action_id":"a","text":` + text + `}}]`, ``},
		{"expand", `[{"type":"section","text":` + text + `,"expand":"yes"}]`, "must be a boolean [json-pointer:/blocks/0/expand]"},
		{"text without text", `[{"type":"section","text":{"type":"mrkdwn"}}]`, "missing required field: text [json-pointer:/blocks/0/text]"},
		{"text of another type", `[{"type":"section","text":{"type":"markdown","text":"x"}}]`, "must be one of: plain_text, mrkdwn [json-pointer:/blocks/0/text/type]"},
		{"mrkdwn with emoji", `[{"type":"section","text":{"type":"mrkdwn","text":"x","emoji":true}}]`, "invalid additional property: emoji [json-pointer:/blocks/0/text]"},
		{"plain text with verbatim", `[{"type":"section","text":{"type":"plain_text","text":"x","verbatim":true}}]`, "invalid additional property: verbatim [json-pointer:/blocks/0/text]"},
		{"mrkdwn header", `[{"type":"header","text":{"type":"mrkdwn","text":"x"}}]`, "must be one of: plain_text [json-pointer:/blocks/0/text/type]"},
		{"header level", `[{"type":"header","text":` + text + `,"level":2}]`, ``},
		{"header level 5", `[{"type":"header","text":` + text + `,"level":5}]`, "must be between 1 and 4 [json-pointer:/blocks/0/level]"},

		{"two buttons with one id", `[{"type":"actions","elements":[{"type":"button","action_id":"a","text":` + text + `},{"type":"button","action_id":"a","text":` + text + `}]}]`, `action_id "a" already exists in this block [json-pointer:/blocks/0/elements/1/action_id]`},
		{"one id in two blocks", `[{"type":"actions","elements":[{"type":"button","action_id":"a","text":` + text + `}]},{"type":"actions","elements":[{"type":"button","action_id":"a","text":` + text + `}]}]`, ``},
		{"disabled button", button(`"disabled":true`), "invalid additional property: disabled [json-pointer:/blocks/0/elements/0]"},
		{"style", button(`"style":"danger"`), ``},
		{"another style", button(`"style":"green"`), "must be one of: primary, danger [json-pointer:/blocks/0/elements/0/style]"},
		{"a link", button(`"url":"https://a.example/b"`), ``},
		{"a script", button(`"url":"javascript:alert(1)"`), "invalid url [json-pointer:/blocks/0/elements/0/url]"},
		{"a long link", button(`"url":"https://` + strings.Repeat("a", 2993) + `"`), "must be less than 3001 characters [json-pointer:/blocks/0/elements/0/url]"},
		{"a link of full length", button(`"url":"https://` + strings.Repeat("a", 2992) + `"`), ``},
		{"a menu among buttons", `[{"type":"actions","elements":[{"type":"overflow","action_id":"a"}]}]`, "unsupported type: overflow (slacksim simulates only button here) [json-pointer:/blocks/0/elements/0/type]"},
		{"confirm without deny", button(`"confirm":{"title":` + text + `,"text":` + text + `,"confirm":` + text + `}`), "missing required field: deny [json-pointer:/blocks/0/elements/0/confirm]"},
		{"confirm style", button(`"confirm":{"title":` + text + `,"text":` + text + `,"confirm":` + text + `,"deny":` + text + `,"style":"red"}`), "must be one of: primary, danger [json-pointer:/blocks/0/elements/0/confirm/style]"},

		{"rich text", `[{"type":"rich_text","elements":[{"type":"rich_text_section","elements":[{"type":"text","text":"x","style":{"bold":true,"code":true}},{"type":"user","user_id":"U0A"},{"type":"usergroup","usergroup_id":"S0A"},{"type":"channel","channel_id":"C0A"},{"type":"emoji","name":"x"},{"type":"broadcast","range":"here"},{"type":"date","timestamp":1796093700,"format":"{time}"},{"type":"link","url":"https://a.example"}]},{"type":"rich_text_preformatted","border":0,"language":"json","elements":[{"type":"text","text":"{}"}]},{"type":"rich_text_quote","elements":[{"type":"text","text":"q"}]},{"type":"rich_text_list","style":"bullet","indent":1,"elements":[{"type":"rich_text_section","elements":[{"type":"text","text":"i"}]}]}]}]`, ``},
		{"empty rich text", `[{"type":"rich_text","elements":[{"type":"rich_text_section","elements":[{"type":"text","text":""}]}]}]`, "must be more than 0 characters [json-pointer:/blocks/0/elements/0/elements/0/text]"},
		{"rich text of nothing", `[{"type":"rich_text","elements":[{"type":"rich_text_section","elements":[]}]}]`, "no fewer than 1 items allowed [json-pointer:/blocks/0/elements/0/elements]"},
		{"rich text style", `[{"type":"rich_text","elements":[{"type":"rich_text_section","elements":[{"type":"text","text":"x","style":{"blink":true}}]}]}]`, "invalid additional property: blink [json-pointer:/blocks/0/elements/0/elements/0/style]"},
		{"mention in preformatted", `[{"type":"rich_text","elements":[{"type":"rich_text_preformatted","elements":[{"type":"user","user_id":"U0A"}]}]}]`, "unsupported type: user in preformatted text [json-pointer:/blocks/0/elements/0/elements/0/type]"},
		{"text beside sections", `[{"type":"rich_text","elements":[{"type":"text","text":"x"}]}]`, "unsupported type: text [json-pointer:/blocks/0/elements/0/type]"},
		{"text in a list", `[{"type":"rich_text","elements":[{"type":"rich_text_list","style":"bullet","elements":[{"type":"text","text":"x"}]}]}]`, "unsupported type: text in a list [json-pointer:/blocks/0/elements/0/elements/0/type]"},
		{"unknown rich text", `[{"type":"rich_text","elements":[{"type":"rich_text_section","elements":[{"type":"blink"}]}]}]`, "unsupported type: blink [json-pointer:/blocks/0/elements/0/elements/0/type]"},

		{"table in a modal", modal(`[{"type":"table"}]`), "unsupported type: table isn't available in modals [json-pointer:/view/blocks/0/type]"},
		{"alert in a modal", modal(`[{"type":"alert","level":"warning","text":` + text + `}]`), ``},
		{"alert level", modal(`[{"type":"alert","level":"fatal","text":` + text + `}]`), "must be one of: default, info, warning, error, success [json-pointer:/view/blocks/0/level]"},
		{"alert on Home", `{"type":"home","blocks":[{"type":"alert","text":` + text + `}]}`, "unsupported type: alert isn't available in Home tabs [json-pointer:/view/blocks/0/type]"},
		{"view of no type", `{"title":` + text + `,"blocks":[]}`, "missing required field: type [json-pointer:/view]"},
		{"view of another type", `{"type":"dialog"}`, "must be one of: modal, home [json-pointer:/view/type]"},
		{"view without a title", `{"type":"modal","blocks":[{"type":"divider"}]}`, "missing required field: title [json-pointer:/view]"},
		{"view without blocks", `{"type":"modal","title":` + text + `}`, "missing required field: blocks [json-pointer:/view]"},
		{"Home with a title", `{"type":"home","title":` + text + `,"blocks":[{"type":"divider"}]}`, "invalid additional property: title [json-pointer:/view]"},
		{"inputs without submit", `{"type":"modal","title":` + text + `,"blocks":[{"type":"input","label":` + text + `,"element":{"type":"plain_text_input"}}]}`, "missing required field: submit [json-pointer:/view]"},
		{"notify_on_close", `{"type":"modal","title":` + text + `,"notify_on_close":1,"blocks":[{"type":"divider"}]}`, "must be a boolean [json-pointer:/view/notify_on_close]"},
		{"two with focus", modal(`[{"type":"input","label":` + text + `,"element":{"type":"plain_text_input","focus_on_load":true}},{"type":"input","label":` + text + `,"element":{"type":"plain_text_input","focus_on_load":true}}]`), "focus_on_load may be set on one element only [json-pointer:/view]"},

		{"input without element", modal(`[{"type":"input","label":` + text + `}]`), "missing required field: element [json-pointer:/view/blocks/0]"},
		{"button as input", input(`{"type":"button"}`), "unsupported type: button (not one that slacksim simulates) [json-pointer:/view/blocks/0/element/type]"},
		{"max_length", input(`{"type":"plain_text_input","max_length":3001}`), "must be between 1 and 3000 [json-pointer:/view/blocks/0/element/max_length]"},
		{"full max_length", input(`{"type":"plain_text_input","max_length":3000}`), ``},
		{"min over max", input(`{"type":"plain_text_input","min_length":5,"max_length":4}`), "must not be more than max_length [json-pointer:/view/blocks/0/element/min_length]"},
		{"number", input(`{"type":"number_input","is_decimal_allowed":false,"initial_value":"5","min_value":"1","max_value":"10"}`), ``},
		{"number without decimals", input(`{"type":"number_input"}`), "missing required field: is_decimal_allowed [json-pointer:/view/blocks/0/element]"},
		{"number as a number", input(`{"type":"number_input","is_decimal_allowed":false,"initial_value":5}`), "must be a number in a string [json-pointer:/view/blocks/0/element/initial_value]"},
		{"number with an exponent", input(`{"type":"number_input","is_decimal_allowed":true,"initial_value":"1e400"}`), "must be a number in a string [json-pointer:/view/blocks/0/element/initial_value]"},
		{"number out of range", input(`{"type":"number_input","is_decimal_allowed":true,"initial_value":"10.5","max_value":"10"}`), "must be between min_value and max_value [json-pointer:/view/blocks/0/element/initial_value]"},
		{"number range", input(`{"type":"number_input","is_decimal_allowed":true,"min_value":"2","max_value":"1"}`), "must not be more than max_value [json-pointer:/view/blocks/0/element/min_value]"},
		{"initial option", input(`{"type":"static_select","options":[{"text":` + text + `,"value":"v"}],"initial_option":{"text":` + text + `,"value":"v"}}`), ``},
		{"initial option that isn't one", input(`{"type":"static_select","options":[{"text":` + text + `,"value":"v"}],"initial_option":{"text":` + text + `,"value":"w"}}`), "must match one of the options [json-pointer:/view/blocks/0/element/initial_option]"},
		{"date", input(`{"type":"datepicker","initial_date":"2026-12-01"}`), ``},
		{"date that isn't", input(`{"type":"datepicker","initial_date":"1.12.2026"}`), "must be a date as YYYY-MM-DD [json-pointer:/view/blocks/0/element/initial_date]"},
		{"dispatch", input(`{"type":"plain_text_input","dispatch_action_config":{"trigger_actions_on":["on_blur"]}}`), "must be one of: on_enter_pressed, on_character_entered [json-pointer:/view/blocks/0/element/dispatch_action_config/trigger_actions_on/0]"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			lint := lintBlocks
			if strings.HasPrefix(test.json, "{") && test.json != "{}" {
				lint = func(view string) []slacksim.Problem { return slacksim.LintView(json.RawMessage(view)) }
			}
			var got string
			for i, problem := range lint(test.json) {
				if i > 0 {
					got += "; "
				}
				got += problem.String()
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
		})
	}
}

// Lengths are those after Slack's escaping.
func TestEscapedLength(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, kind, unit string
		length           int
	}{
		{"ampersands", "mrkdwn", "&", 5},
		{"escaped ampersands", "mrkdwn", "&amp;", 5},
		{"markup", "mrkdwn", "<", 1},
		{"plain ampersands", "plain_text", "&", 5},
		{"plain markup", "plain_text", "<", 4},
		{"letters beyond ASCII", "plain_text", "é", 1},
		{"letters beyond the first plane", "mrkdwn", "𝔸", 1},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			lint := func(count int) []slacksim.Problem {
				return lintBlocks(`[{"type":"section","text":{"type":"` + test.kind + `","text":"` + strings.Repeat(test.unit, count) + `"}}]`)
			}
			most := 3000 / test.length
			if got := lint(most); got != nil {
				t.Errorf("%d are refused: %v", most, got)
			}
			if got := lint(most + 1); len(got) != 1 {
				t.Errorf("%d: %v", most+1, got)
			}
		})
	}
}

func TestWholeMessage(t *testing.T) {
	t.Parallel()
	section := func(characters int) string {
		return `{"type":"rich_text","elements":[{"type":"rich_text_preformatted","elements":[{"type":"text","text":"` + strings.Repeat("x", characters) + `"}]}]}`
	}
	divider := `{"type":"divider"}`
	tests := []struct {
		name   string
		blocks []string
		code   string
	}{
		{"one block to the last character", []string{section(13_150)}, ""},
		{"one character more", []string{section(13_151)}, "msg_blocks_too_long"},
		{"containers count", []string{section(13_150), divider}, "msg_blocks_too_long"},
		{"two blocks", []string{section(6_550), section(6_550)}, ""},
		// What bolt-js#2867 measured on Slack.
		{"9,597 characters in 50 blocks", append([]string{section(9_597)}, repeated(divider, 49)...), ""},
		{"11,341 characters in 45 blocks", append([]string{section(11_341)}, repeated(divider, 44)...), "msg_blocks_too_long"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			var codes []string
			for _, problem := range lintBlocks("[" + strings.Join(test.blocks, ",") + "]") {
				codes = append(codes, problem.Code)
			}
			if got := strings.Join(codes, " "); got != test.code {
				t.Errorf("got %q, want %q", got, test.code)
			}
		})
	}
}

func repeated(s string, count int) []string {
	list := make([]string, count)
	for i := range list {
		list[i] = s
	}
	return list
}

func TestMessageText(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, text, code string }{
		{"none", "", "no_text"},
		{"full", strings.Repeat("é", 4000), ""},
		{"too long to update", strings.Repeat("é", 4001), "msg_too_long"},
		{"too long once escaped", strings.Repeat("&", 801), "msg_too_long"},
	} {
		got := slacksim.LintMessage(nil, test.text)
		if test.code == "" && got != nil || test.code != "" && (len(got) != 1 || got[0].Code != test.code) {
			t.Errorf("%s: %v, want %q", test.name, got, test.code)
		}
	}
}

func TestViewSize(t *testing.T) {
	t.Parallel()
	view := modal(`[{"type":"divider"}]`)
	full := strings.Replace(view, "{", "{"+strings.Repeat(" ", 250_000-len(view)), 1)
	if got := slacksim.LintView(json.RawMessage(full)); got != nil {
		t.Errorf("a view of %d bytes is refused: %v", len(full), got)
	}
	if got := slacksim.LintView(json.RawMessage(full + " ")); len(got) != 1 || got[0].Code != "view_too_large" {
		t.Errorf("a view of %d bytes: %v", len(full)+1, got)
	}
}

// The samples are cards and modals as an approval bot would write them; what
// Slack's own types say of them was checked elsewhere.
func TestSamples(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.json")
	if err != nil || len(files) < 5 {
		t.Fatalf("there are %d samples: %v", len(files), err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		lint := func() []slacksim.Problem { return slacksim.LintMessage(data, "Approval needed") }
		if strings.HasPrefix(string(data), "{") {
			lint = func() []slacksim.Problem { return slacksim.LintView(data) }
		}
		if got := lint(); got != nil {
			t.Errorf("%s is refused: %v", file, got)
		}
	}
}

func FuzzLint(f *testing.F) {
	f.Add([]byte(`[{"type":"section","text":{"type":"mrkdwn","text":"&lt;"}}]`))
	f.Add([]byte(modal(`[{"type":"input","label":{"type":"plain_text","text":"L"},"element":{"type":"number_input","is_decimal_allowed":true,"initial_value":"-.1"}}]`)))
	f.Fuzz(func(_ *testing.T, data []byte) {
		slacksim.LintMessage(data, string(data))
		slacksim.LintView(data)
	})
}
