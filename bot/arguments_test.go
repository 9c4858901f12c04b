package bot_test

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/bot"
	"github.com/countersign/countersign/internal/strictjson"
	"github.com/countersign/countersign/internal/visible"
)

func TestArgumentsAreLaidOut(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, payload, want string }{
		{"an empty object", `{}`, `{}`},
		{"an empty list", `[ ]`, `[]`},
		{"a number keeps its digits", `9007199254740993`, `9007199254740993`},
		{"what is short stays on a line", `{"amount":0.10,"big":1e400}`, `{"amount": 0.10, "big": 1e400}`},
		{
			"what is long gets lines", `{"reason":"duplicate of the charge of Tuesday","amount_cents":4821050,"notify":false}`,
			"{\n  \"reason\": \"duplicate of the charge of Tuesday\",\n  \"amount_cents\": 4821050,\n  \"notify\": false\n}",
		},
		{
			"lists of plain values fill lines", `{"ids":[100001,100002,100003,100004,100005,100006,100007]}`,
			"{\n  \"ids\": [\n    100001, 100002, 100003, 100004, 100005,\n    100006, 100007\n  ]\n}",
		},
		{
			"objects in lists get lines", `[{"id":1,"name":"Ada Lovelace"},{"id":2,"name":"Grace Hopper"}]`,
			"[\n  {\"id\": 1, \"name\": \"Ada Lovelace\"},\n  {\"id\": 2, \"name\": \"Grace Hopper\"}\n]",
		},
		{"white space can't hide anything", "{\"a\":1," + strings.Repeat("\n", 500) + "\"b\":2}", `{"a": 1, "b": 2}`},
		{"escapes stay as they are written", `{"a":"\u202e\n\"x"}`, `{"a": "\u202e\n\"x"}`},
		{"hidden characters show", "{\"a\":\"x\u202ey\u200b\"}", `{"a": "x\u{202e}y\u{200b}"}`},
		{"an escape can't be forged", `{"a":"\\u{202e}"}`, `{"a": "\\u{5c}u{202e}"}`},
		{"what isn't JSON is shown as it is", `{"a": `, `{"a": `},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			got, _, _ := bot.LaidOut(approval.Payload(test.payload))
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// unspaced drops the white space outside of JSON strings.
func unspaced(text string) string {
	var b strings.Builder
	inString := false
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case inString && c == '\\' && i+1 < len(text):
			b.WriteByte(c)
			i++
			c = text[i]
		case c == '"':
			inString = !inString
		case !inString && strings.IndexByte(" \n\t\r", c) >= 0:
			continue
		}
		b.WriteByte(c)
	}
	return b.String()
}

// However a payload is spaced, nothing but the white space outside of its
// strings changes, and the chunks are all of it.
func TestLayoutHidesNothing(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		payload := approval.Payload(jsonText().Draw(t, "payload"))
		text, chunks, _ := bot.LaidOut(payload)
		want := visible.Text(unspaced(string(payload)))
		if got := unspaced(text); got != want {
			t.Errorf("shown differs from what runs:\n%q\n%q", got, want)
		}
		if got := unspaced(strings.Join(chunks, "")); got != want {
			t.Errorf("the chunks differ from what runs:\n%q\n%q", got, want)
		}
		for _, chunk := range chunks {
			if bot.Length(chunk) > 3000 || chunk == "" {
				t.Errorf("a chunk has %d characters", bot.Length(chunk))
			}
		}
	})
}

func TestExcerptSaysWhatIsCut(t *testing.T) {
	t.Parallel()
	var ids []string
	for i := range 10_000 {
		ids = append(ids, fmt.Sprintf("\"customer-%05d-with-a-name-that-fills-a-line\"", i))
	}
	payload := approval.Payload("[" + strings.Join(ids, ",") + "]")
	text, note := bot.Excerpt(payload)
	whole, _, inline := bot.LaidOut(payload)
	if inline {
		t.Fatal("10,000 lines are shown on the card")
	}
	if lines := strings.Count(text, "\n") + 1; lines > 8 || utf8.RuneCountInString(text) > 400 {
		t.Errorf("the excerpt has %d lines and %d characters", lines, utf8.RuneCountInString(text))
	}
	if !strings.HasPrefix(whole, text) {
		t.Error("the excerpt is not the beginning of the whole")
	}
	if want := "Showing 8 of 10,002 lines, 351 of 500,002 characters."; note != want {
		t.Errorf("got the note %q, want %q", note, want)
	}
}

// A number that is cut must not read as a smaller one.
func TestExcerptMarksACutLine(t *testing.T) {
	t.Parallel()
	text, note := bot.Excerpt(approval.Payload(`{"amount": 1` + strings.Repeat("0", 3000) + `, "z": 1}`))
	if !strings.HasSuffix(text, "000…") {
		t.Errorf("the excerpt ends in %q", text[len(text)-20:])
	}
	if want := "Showing 2 of 4 lines, 400 of 3,027 characters."; note != want {
		t.Errorf("got the note %q, want %q", note, want)
	}
}

func TestCutCountsAsSlackDoes(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, text string
		limit      int
		want       string
		cut        bool
	}{
		{"what fits stays", "abc", 3, "abc", false},
		{"what doesn't is marked", "abcd", 3, "ab…", true},
		{"an ampersand is five", "&&", 9, "&…", true},
		{"all of them fit", "&&", 10, "&&", false},
		{"an emoji may be two", "🟡🟡", 3, "🟡…", true},
		{"an escape isn't cut", `ab\u{202e}`, 6, "ab…", true},
		{"a letter keeps its marks", "ae\u0301x", 3, "a…", true},
		{"nothing fits", "abc", 0, "…", true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			got, less := bot.Cut(test.text, test.limit)
			if got != test.want || less != test.cut {
				t.Errorf("got %q, %v; want %q, %v", got, less, test.want, test.cut)
			}
		})
	}
}

func TestBeginningFits(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := visible.Text(nastyText().Draw(t, "text"))
		limit := rapid.IntRange(1, 200).Draw(t, "limit")
		got, less := bot.Beginning(text, limit)
		if !strings.HasPrefix(text, got) || bot.Length(got) > limit || less != (len(got) < len(text)) {
			t.Errorf("the beginning of %q is %q, %v", text, got, less)
		}
	})
}

// nastyText draws what agents write who don't mean well.
func nastyText() *rapid.Generator[string] {
	pieces := []string{
		"<!channel>", "<@U0ALICE>", "<https://evil.example|Approve here>", "@here", "```", "`x`", "*bold*", "_i_", "~s~",
		":tada:", "&amp;", "&lt;", "&", "<", ">", "\u202e", "\u200b", "\u2066", "\ufe0f", "\U000e0041", "\u0000", "\u00a0",
		"а", "١", "1", "é", "e\u0301", "👩‍👩‍👧", "🇩🇪", "\\u{202e}", `"`, `\`, "\n", "\t", "\r", "\u2028", "한글", "漢字", "x", " ",
	}
	return rapid.Custom(func(t *rapid.T) string {
		if rapid.IntRange(0, 9).Draw(t, "any") == 0 {
			return rapid.String().Draw(t, "text")
		}
		piece := rapid.SampledFrom(pieces)
		text := strings.Join(rapid.SliceOfN(piece, 1, 30).Draw(t, "pieces"), "")
		return strings.Repeat(text, rapid.SampledFrom([]int{1, 1, 1, 3, 50}).Draw(t, "times"))
	})
}

// jsonText draws strict JSON, spaced in any way.
func jsonText() *rapid.Generator[string] {
	space := rapid.SampledFrom([]string{"", "", " ", "\n", "\t", "\r\n", "    \n"})
	scalar := rapid.Custom(func(t *rapid.T) string {
		switch rapid.IntRange(0, 3).Draw(t, "kind") {
		case 0:
			return rapid.SampledFrom([]string{"0", "-0", "9007199254740993", "1e400", "0.10", "1E-7", "true", "false", "null"}).Draw(t, "literal")
		default:
			return quoted(nastyText().Draw(t, "string"))
		}
	})
	var value func(depth int) *rapid.Generator[string]
	value = func(depth int) *rapid.Generator[string] {
		return rapid.Custom(func(t *rapid.T) string {
			kind := rapid.IntRange(0, 3).Draw(t, "kind")
			if depth == 0 || kind == 0 {
				return space.Draw(t, "s") + scalar.Draw(t, "scalar") + space.Draw(t, "s")
			}
			n := rapid.SampledFrom([]int{0, 1, 2, 5, 40}).Draw(t, "n")
			items := make([]string, n)
			for i := range items {
				items[i] = value(depth-1).Draw(t, "item")
				if kind == 1 {
					items[i] = space.Draw(t, "s") + quoted(fmt.Sprint(i, rapid.SampledFrom([]string{"", "ids", "\u202e", "<!here>"}).Draw(t, "name"))) + ":" + items[i]
				}
			}
			open, end := "[", "]"
			if kind == 1 {
				open, end = "{", "}"
			}
			return open + space.Draw(t, "s") + strings.Join(items, ",") + end + space.Draw(t, "s")
		})
	}
	return value(2).Filter(func(text string) bool {
		return len(text) < approval.DefaultPayloadLimit && strictjson.Check([]byte(text)) == nil
	})
}

// quoted writes a JSON string with as few escapes as JSON allows.
func quoted(text string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range text {
		switch {
		case r == '"' || r == '\\':
			b.WriteRune('\\')
			b.WriteRune(r)
		case r < ' ':
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}
