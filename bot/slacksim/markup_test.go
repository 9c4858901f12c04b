package slacksim_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/countersign/countersign/bot/slacksim"
)

// Buttons carry what the page's own dialogs and a driver of browsers need.
func TestButtonMarkup(t *testing.T) {
	t.Parallel()
	server := start(t, slacksim.Options{})
	call(t, server, "chat.postMessage", "channel", approvals, "text", "x", "blocks", `[{"type":"actions","block_id":"act","elements":[{"type":"button","action_id":"approve","style":"primary",
		"accessibility_label":"Approve \"it\"","url":"https://a.example/?b&c","text":{"type":"plain_text","text":"<Approve>"},
		"confirm":{"title":{"type":"plain_text","text":"Sure?"},"text":{"type":"plain_text","text":"'<b>\""},"confirm":{"type":"plain_text","text":"Yes"},"deny":{"type":"plain_text","text":"No"},"style":"danger"}}]}]`)
	html := sees(t, server, "U0ADA", "").Messages[0].HTML
	for _, part := range []string{
		`data-block-id="act"`, `class="button primary" data-action-id="approve"`, `aria-label="Approve &#34;it&#34;"`, `data-url="https://a.example/?b&amp;c"`,
		`&#34;Sure?&#34;`, `&#39;&lt;b&gt;`, `>&lt;Approve&gt;</button>`,
	} {
		if !strings.Contains(html, part) {
			t.Errorf("there is no %s in %s", part, html)
		}
	}
}

// How text is drawn: Slack's markup where it is markup, and everything else as
// it is.
func TestMarkup(t *testing.T) {
	t.Parallel()
	server := start(t, slacksim.Options{})
	server.SetUser(slacksim.User{ID: "U0EVIL", Name: "evil", RealName: `<img src=x onerror=alert(1)>`})
	date := `<time data-unix="1796093700" data-format="{time}">03:35 UTC</time>`
	tests := []struct{ name, text, want string }{
		{"bold, italic, struck", "*a* _b_ ~c~", `<strong>a</strong> <em>b</em> <s>c</s>`},
		{"nested", "*_a_ b*", `<strong><em>a</em> b</strong>`},
		{"inside words", "2*3*4 snake_case_name", `2*3*4 snake_case_name`},
		{"alone", "* a * _ _", `* a * _ _`},
		{"code", "`*a* <@U0ADA>`", `<code>*a* &lt;@U0ADA&gt;</code>`},
		{"code block", "a```\n*b*\n<x>```c", `a<pre>*b*` + "\n" + `&lt;x&gt;</pre>c`},
		{"one backtick", "a ` b", "a ` b"},
		{"lines", "a\nb", `a<br>b`},
		{"quote", "a\n> b\n&gt; c\nd", `a<blockquote>b<br>c</blockquote>d`},
		{"entities", "&lt;b&gt; &amp; &copy; &", `&lt;b&gt; &amp; &amp;copy; &amp;`},
		{"mention of the reader", "<@U0ADA>", `<span class="mention me" data-user-id="U0ADA">@Ada Moreau</span>`},
		{"mention of another", "<@U0BOB>", `<span class="mention" data-user-id="U0BOB">@Bob Okafor</span>`},
		{"mention of nobody", "<@U0NONE>", `<span class="mention" data-user-id="U0NONE">@U0NONE</span>`},
		{"a name that attacks", "<@U0EVIL>", `<span class="mention" data-user-id="U0EVIL">@&lt;img src=x onerror=alert(1)&gt;</span>`},
		{"group", "<!subteam^S0ONCALL>", `<span class="mention me" data-group-id="S0ONCALL">@ops-oncall</span>`},
		{"channel", "<#C0APPROVALS|x>", `<span class="mention" data-channel-id="C0APPROVALS">#approvals</span>`},
		{"everyone", "<!here>", `<span class="mention me" >@here</span>`},
		{"date", "<!date^1796093700^{time}|03:35 UTC>", date},
		{"date with a link", "<!date^1796093700^{time}^https://a.example|03:35 UTC>", date},
		{"broken date", "<!date^1|x>", `x`},
		{"link", "<https://a.example/?b&amp;c|*d*>", `<a href="https://a.example/?b&amp;c" target="_blank" rel="noopener noreferrer">*d*</a>`},
		{"bare link", "<https://a.example>", `<a href="https://a.example" target="_blank" rel="noopener noreferrer">https://a.example</a>`},
		{"script link", "<javascript:alert(1)|ok>", `ok`},
		{"quotes in a link", `<https://a.example/"onclick="x|ok>`, `<a href="https://a.example/&#34;onclick=&#34;x" target="_blank" rel="noopener noreferrer">ok</a>`},
		{"tag", "<script>alert(1)</script>", `scriptalert(1)/script`},
		{"open tag", "<img src=x onerror=alert(1)", `&lt;img src=x onerror=alert(1)`},
		{"emoji", ":large_yellow_circle: :nonesuch: 10:30:00", `<span class="emoji" title=":large_yellow_circle:">🟡</span> :nonesuch: 10:30:00`},
	}
	for _, test := range tests {
		r := call(t, server, "chat.postMessage", "channel", approvals, "text", test.text)
		if !r.OK {
			t.Fatal(r.Error)
		}
	}
	drawn := sees(t, server, "U0ADA", "").Messages
	for i, test := range tests {
		_, rest, _ := strings.Cut(drawn[i].HTML, `<div class="block text">`)
		got, _, _ := strings.Cut(rest, "</div>")
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.name, diff)
		}
	}
}

func TestBlockMarkup(t *testing.T) {
	t.Parallel()
	server := start(t, slacksim.Options{})
	tests := []struct{ name, blocks, want string }{
		{"plain text", `[{"type":"section","text":{"type":"plain_text","text":"*a* <b> :x:\nc"}}]`, `*a* &lt;b&gt; <span class="emoji" title=":x:">❌</span><br>c`},
		{"plain text without emoji", `[{"type":"section","text":{"type":"plain_text","text":":x:","emoji":false}}]`, `<div class="text">:x:</div>`},
		{"fields", `[{"type":"section","fields":[{"type":"mrkdwn","text":"*a*"}]}]`, `<div class="fields"><div class="text"><strong>a</strong></div></div>`},
		{"header", `[{"type":"header","text":{"type":"plain_text","text":"<H>"}}]`, `<h3>&lt;H&gt;</h3>`},
		{"context", `[{"type":"context","elements":[{"type":"mrkdwn","text":"*a*"},{"type":"plain_text","text":"*b*"}]}]`, `<span class="text"><strong>a</strong></span><span class="text">*b*</span>`},
		{"divider", `[{"type":"divider"}]`, `<hr>`},
		{"accessory", `[{"type":"section","text":{"type":"plain_text","text":"x"},"accessory":{"type":"button","action_id":"go","text":{"type":"plain_text","text":"Go"}}}]`, `data-action-id="go">Go</button>`},
		{"rich text", `[{"type":"rich_text","elements":[{"type":"rich_text_section","elements":[{"type":"text","text":"<b> *c* <!here>\n","style":{"bold":true,"code":true}},{"type":"user","user_id":"U0ADA"},{"type":"emoji","name":"lock"}]}]}]`,
			`<div class="rich"><strong><code>&lt;b&gt; *c* &lt;!here&gt;<br></code></strong><span class="mention me" data-user-id="U0ADA">@Ada Moreau</span><span class="emoji" title=":lock:">🔒</span></div>`},
		{"preformatted", `[{"type":"rich_text","elements":[{"type":"rich_text_preformatted","elements":[{"type":"text","text":"{\n \"a\": \"<https://evil.example|x>\"}"}]}]}]`,
			"<pre>{\n &#34;a&#34;: &#34;&lt;https://evil.example|x&gt;&#34;}</pre>"},
		{"quote and list", `[{"type":"rich_text","elements":[{"type":"rich_text_quote","elements":[{"type":"text","text":"q"}]},{"type":"rich_text_list","style":"ordered","indent":1,"elements":[{"type":"rich_text_section","elements":[{"type":"text","text":"i"}]}]}]}]`,
			`<blockquote>q</blockquote><ol class="indent1"><li><div class="rich">i</div></li></ol>`},
		{"date", `[{"type":"rich_text","elements":[{"type":"rich_text_section","elements":[{"type":"date","timestamp":1796093700,"format":"{time}","fallback":"03:35"}]}]}]`,
			`<time data-unix="1796093700" data-format="{time}">03:35</time>`},
	}
	for _, test := range tests {
		if r := call(t, server, "chat.postMessage", "channel", approvals, "text", "x", "blocks", test.blocks); !r.OK {
			t.Fatal(test.name, r.Error, r.Errors)
		}
	}
	drawn := sees(t, server, "U0ADA", "").Messages
	for i, test := range tests {
		if !strings.Contains(drawn[i].HTML, test.want) {
			t.Errorf("%s: no\n%s\nin\n%s", test.name, test.want, drawn[i].HTML)
		}
	}
}

// A stray alert renders in a modal with its level.
func TestAlertMarkup(t *testing.T) {
	t.Parallel()
	server := start(t, slacksim.Options{})
	a := answering(t, server, nil)
	_, seen := a.click(t, "U0ADA", post(t, server), "approve")
	view := modal(`[{"type":"alert","level":"warning","text":{"type":"plain_text","text":"<careful>"}}]`)
	if r := call(t, server, "views.open", "trigger_id", seen.TriggerID, "view", view); !r.OK {
		t.Fatal(r.Error)
	}
	if html := sees(t, server, "U0ADA", "").Modal.HTML; !strings.Contains(html, `<p class="level-warning" role="note">&lt;careful&gt;</p>`) {
		t.Errorf("the modal is %s", html)
	}
}
