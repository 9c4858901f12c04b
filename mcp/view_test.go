package mcp_test

import (
	"context"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/approval/approvaltest"
	"github.com/countersign/countersign/mcp"
)

// scopes lets an approval count for longer.
func scopes(r object) {
	r["scopes"] = []any{object{"scope": "once", "words": "once"}, object{"scope": "session", "words": "this session"}, object{"scope": "15m", "words": "15 minutes"}}
}

// edited is what a request looks like that somebody has edited in Slack.
func edited(r object) {
	r["requestVersion"], r["digest"] = 2, digestTwo
	r["editable"] = `{"table":"customers","expected_count":3}`
	r["arguments"] = object{"label": text("Arguments, as edited by Bob"), "text": "table: customers\nexpected_count: 3", "exact": `{"table":"customers","expected_count":3}`, "hidden": 0}
}

var bob = object{"text": "Bob", "style": "strong"}

var (
	approvedInSlack = decided("approved", "granted", "Approved, waiting to be applied", "granted", "slack", true, bob)
	rejectedInSlack = decided("rejected", "denied", "Rejected", "denied", "slack", true, bob)
	applied         = decided("applied", "granted", "Applied", "granted", "slack", true, bob)
)

func expired(r object) {
	decided("expired", "expired", "Expired before a decision", "", "", false)(r)
	delete(r, "receipt")
	r["history"] = []any{}
}

// wantSent checks what a view sent, but for the request's id.
func (v *tab) wantSent(tool string, want object) {
	v.t.Helper()
	got := v.sent(tool)
	want["requestId"] = scriptID
	for key, value := range want {
		if got[key] != value {
			v.t.Errorf("%s of %s is %#v, want %#v", key, tool, got[key], value)
		}
	}
	for key := range got {
		if _, ok := want[key]; !ok {
			v.t.Errorf("%s was given %s: %v", tool, key, got[key])
		}
	}
}

// A person decides in the view, which sends what they saw and what they chose.
func TestViewDecides(t *testing.T) {
	t.Parallel()
	browser := chromium(t)
	open := func(t *testing.T, s *script) *tab {
		t.Helper()
		v := openView(t, browser, s, plan{Input: handed, OpenLinks: true})
		v.shows("Approval needed")
		return v
	}
	t.Run("approve", func(t *testing.T) {
		v := open(t, newScript())
		v.shows("crm.delete_records on 214 records", "production", "Can't be undone.", "left to decide")
		v.showsNot("the model's own words", "Needs 1 of oncall")
		v.press("approve")
		v.shows("Approved, waiting to be applied", "Verified · rcpt_93b0", "Approved by the view of this host, not a verified person")
		v.wantSent("approval_decide", object{"requestVersion": 1.0, "digest": digestOne, "outcome": "granted", "scope": "once"})
		if got := v.focused(); got != "heading" {
			t.Errorf("the focus is on %s, want it on what has happened", got)
		}
		v.quiet()
	})
	t.Run("once", func(t *testing.T) {
		s := newScript()
		answer := s.holds("approval_decide")
		v := open(t, s)
		v.settled()
		of[any](v, at("approve")+`.click(), `+at("approve")+`.click(), `+at("reject")+`.click()`)
		v.until(at("approve") + `.ariaDisabled === "true"`)
		v.click(at("approve"))
		close(answer)
		v.shows("Verified")
		v.sent("approval_decide")
	})
	t.Run("scope", func(t *testing.T) {
		v := open(t, newScript(scopes))
		v.shows("Approve for how long?", "this session")
		v.press("scope-15m")
		v.press("approve")
		v.shows("Verified")
		v.wantSent("approval_decide", object{"requestVersion": 1.0, "digest": digestOne, "outcome": "granted", "scope": "15m"})
	})
	t.Run("reject", func(t *testing.T) {
		v := open(t, newScript())
		v.press("reject")
		v.until(at("reason") + ` === document.activeElement`)
		v.keys("Not on a Friday." + kb.Enter + "Ask Lena.")
		v.keys(kb.Escape)
		if got := v.focused(); got != "reject" {
			t.Errorf("Escape leads to %s, want reject", got)
		}
		v.press("reject")
		v.press("confirm-reject")
		v.shows("Rejected", "The agent may not run this.", "Verified")
		v.wantSent("approval_decide", object{"requestVersion": 1.0, "digest": digestOne, "outcome": "denied", "reason": "Not on a Friday.\nAsk Lena."})
		v.quiet()
	})
	t.Run("a double click", func(t *testing.T) {
		v := open(t, newScript())
		v.settled()
		of[any](v, at("reject")+`.click(), `+at("confirm-reject")+`.click()`)
		v.press("back")
		v.press("approve")
		v.shows("Verified")
		v.sent("approval_decide")
	})
	t.Run("reason", func(t *testing.T) {
		v := open(t, newScript(func(r object) { r["reasonRequired"] = true }))
		v.press("approve")
		v.until(at("reason") + ` === document.activeElement`)
		v.shows("Approving this takes a reason.")
		v.keys("Agreed with sales.")
		v.press("approve")
		v.shows("Verified")
		v.wantSent("approval_decide", object{"requestVersion": 1.0, "digest": digestOne, "outcome": "granted", "scope": "once", "reason": "Agreed with sales."})
	})
	t.Run("edit", func(t *testing.T) {
		const next = `{"table":"customers","limit":9007199254740993}`
		v := open(t, newScript())
		v.press("edit")
		v.shows("becomes version 2")
		v.press("approve-edit")
		v.shows("Nothing is changed yet.")
		of[any](v, at("edited")+`.select()`)
		v.write("edited", next[:20])
		v.shows("This isn't JSON yet")
		v.press("approve-edit")
		v.write("edited", next[20:])
		v.until(at("edited") + `.getAttribute("aria-invalid") === "false"`)
		v.keys(kb.Escape)
		if got := v.focused(); got != "edit" {
			t.Errorf("Escape leads to %s, want edit", got)
		}
		v.press("edit")
		v.press("approve-edit")
		v.shows("Verified", "Version 2")
		v.wantSent("approval_decide", object{"requestVersion": 2.0, "digest": digestOne, "outcome": "granted", "scope": "once", "editedArgs": next})
		v.quiet()
	})
	t.Run("stale", func(t *testing.T) {
		s := newScript()
		answer := s.holds("approval_decide")
		v := open(t, s)
		v.press("reject")
		v.write("reason", "Too many.")
		v.press("confirm-reject")
		v.until(`document.querySelector("[data-busy]")`)
		s.change(edited)
		close(answer)
		v.shows("nothing was decided", "this is version 2 now", "expected_count: 3")
		if got := of[string](v, at("reason")+`.value`); got != "Too many." {
			t.Errorf("what was typed is now %q", got)
		}
	})
	t.Run("refused", func(t *testing.T) {
		s := newScript()
		s.refuses("approval_decide", "denied_by_policy", "The policy denies these arguments: no table of people.")
		v := open(t, s)
		v.press("approve")
		v.shows("The policy denies these arguments: no table of people.")
		v.showsNot("Verified")
		s.refuses("approval_decide", "", "the server is gone")
		v.press("approve")
		v.shows("it isn't known whether this arrived")
		s.change(approvedInSlack)
		v.shows("No answer came to what was sent from here. This is what the server has recorded.", "Recorded")
		v.showsNot("Verified")
	})
	t.Run("revoke", func(t *testing.T) {
		v := open(t, newScript())
		v.press("approve")
		v.press("revoke")
		v.until(at("revoke-reason") + ` === document.activeElement`)
		v.keys(kb.Escape)
		if got := v.focused(); got != "revoke" {
			t.Errorf("Escape leads to %s, want revoke", got)
		}
		v.press("revoke")
		v.write("revoke-reason", "Wrong table.")
		v.press("confirm-revoke")
		v.shows("Approval revoked, will not run", "Verified · rcpt_revoked", "Revoked by the view of this host")
		v.wantSent("approval_revoke", object{"requestVersion": 1.0, "digest": digestOne, "reason": "Wrong table."})
		v.until(`!` + at("revoke"))
		v.quiet()
	})
}

// What happens elsewhere is in the view at once, and nothing is pressed by mistake.
func TestViewFollows(t *testing.T) {
	t.Parallel()
	browser := chromium(t)
	open := func(t *testing.T, s *script) *tab {
		t.Helper()
		return openView(t, browser, s, plan{Input: handed, OpenLinks: true})
	}
	t.Run("decided elsewhere", func(t *testing.T) {
		s := newScript()
		v := open(t, s)
		v.press("reject")
		v.write("reason", "I'd say no.")
		s.change(rejectedInSlack)
		v.shows("This was settled meanwhile, and not from here.", "Recorded · rcpt_93b0", "Rejected by Bob,")
		v.showsNot("Verified", "not a verified person")
		if got := v.focused(); got != "heading" {
			t.Errorf("the focus is on %s, want it on what has happened", got)
		}
		if calls := v.host.called("approval_decide"); len(calls) > 0 {
			t.Errorf("the view decided: %v", calls)
		}
		v.quiet()
	})
	t.Run("edited elsewhere", func(t *testing.T) {
		s := newScript(scopes)
		v := open(t, s)
		v.press("edit")
		v.write("edited", " ")
		s.change(edited)
		v.shows("this is version 2 now", "what you typed over version 1")
		v.press("restart")
		v.until(at("edited") + `.value === '{"table":"customers","expected_count":3}'`)
		v.press("back")
		v.press("approve")
		v.shows("Verified")
		v.wantSent("approval_decide", object{"requestVersion": 2.0, "digest": digestTwo, "outcome": "granted", "scope": "once"})
	})
	t.Run("under the finger", func(t *testing.T) {
		s := newScript()
		v := open(t, s)
		v.until(at("approve"))
		v.settled()
		s.change(edited)
		v.until(`document.body.innerText.includes("this is version 2 now") && (` + at("approve") + `.click(), ` + at("edit") + `.click(), true)`)
		if calls := v.host.called("approval_decide"); len(calls) > 0 {
			t.Errorf("a click on what had just moved decided: %v", calls)
		}
		v.until(`!` + at("edited"))
		v.press("approve")
		v.shows("Verified")
	})
	t.Run("time", func(t *testing.T) {
		s := newScript(func(r object) { r["expiresAt"] = "2026-10-04T15:12:52.743Z" })
		v := open(t, s)
		v.shows("The time is up")
		s.pass(expired)
		v.shows("Expired before a decision", "Nobody decided in time. The agent may not run this.")
		calls := v.host.called("approval_request")
		if _, waits := calls[len(calls)-1].Arguments["knownRevision"]; waits {
			t.Error("the view waits for a change after the time is up")
		}
		v.showsNot("Receipt")
		v.quiet()
	})
	t.Run("applied", func(t *testing.T) {
		s := newScript(forPeople)
		v := open(t, s)
		v.shows("Waiting for one of oncall in Slack or on the review page.", "Needs 1 of oncall.")
		v.until(`!` + at("approve"))
		s.change(approvedInSlack)
		v.shows("The agent may run this, with exactly the arguments above.", "Revoke approval…")
		s.change(applied)
		v.shows("Applied")
		v.until(`!` + at("revoke"))
		v.quiet()
	})
	t.Run("open the review page", func(t *testing.T) {
		v := open(t, newScript(forPeople))
		v.press("open")
		opened, err := chromedp.Run(v.ctx, chromedp.Poll[[]string](`window.seen.opened.length && window.seen.opened`))
		if err != nil || opened[0] != reviewBase+scriptID {
			t.Errorf("the host opened %q (%v)", opened, err)
		}
	})
	t.Run("a host that opens nothing", func(t *testing.T) {
		v := openView(t, browser, newScript(forPeople), plan{Input: handed})
		v.press("open")
		v.shows("This host doesn't open pages.", reviewBase+scriptID)
	})
}

// The view finds the request that the conversation is about.
func TestViewFinds(t *testing.T) {
	t.Parallel()
	browser := chromium(t)
	hasten := `const wait = window.setTimeout; if (window !== top) window.setTimeout = (what, after, ...rest) => wait(what, after / 50, ...rest);`
	t.Run("as soon as it is held", func(t *testing.T) {
		s := newScript()
		s.held = false
		v := openView(t, browser, s, plan{Input: handed})
		v.shows("Loading…")
		s.mu.Lock()
		s.held = true
		s.mu.Unlock()
		v.shows("Approval needed")
		if given, want := v.host.called("approval_request")[0].Arguments["asked"].(map[string]any)["purpose"], handed["purpose"]; given != want {
			t.Errorf("the view asked for %v, want %v", given, want)
		}
	})
	t.Run("none", func(t *testing.T) {
		s := newScript()
		s.held = false
		v := openView(t, browser, s, plan{Input: handed, early: hasten})
		v.shows("The server holds no such request.")
		v.showsNot("the model's own words")
		if n := len(v.host.called("approval_request")); n != 60 {
			t.Errorf("the view asked %d times", n)
		}
		s.mu.Lock()
		s.held = true
		s.mu.Unlock()
		v.click(at("again"))
		v.shows("Approval needed")
		v.quiet()
	})
	t.Run("a conversation of last week", func(t *testing.T) {
		s := newScript(approvedInSlack, applied)
		s.held = false
		v := openView(t, browser, s, plan{Input: handed, Result: object{"content": []any{object{"type": "text", "text": "…"}}, "structuredContent": object{"requestId": scriptID, "outcome": "granted"}}})
		v.shows("Applied", "Recorded · rcpt_93b0")
		v.showsNot("Verified", "Approve for", "Loading…")
		v.quiet()
	})
	t.Run("a result that is text only", func(t *testing.T) {
		v := openView(t, browser, newScript(rejectedInSlack), plan{Result: object{"content": []any{object{"type": "text", "text": `{"requestId": "` + scriptID + `", "outcome": "denied"}`}}}})
		v.shows("Rejected", "Recorded")
	})
	t.Run("a call that ended without a request", func(t *testing.T) {
		s := newScript()
		s.held = false
		v := openView(t, browser, s, plan{Input: handed, Result: object{"isError": true, "content": []any{object{"type": "text", "text": "the model's own words"}}}})
		v.shows("The agent's call has ended without a request. Nothing was approved.")
		v.showsNot("the model's own words")
	})
	t.Run("somebody else's request", func(t *testing.T) {
		v := openView(t, browser, newScript(), plan{Result: object{"content": []any{}, "structuredContent": object{"requestId": "req_other"}}})
		v.shows("There is no such request.")
	})
}

// Whatever is in a request is shown as text, and whole.
func TestViewShowsHostileText(t *testing.T) {
	t.Parallel()
	browser := chromium(t)
	hostile := `<img src=x onerror="window.hacked=1"><script>window.hacked=1</script></script><b>bold</b>&amp;` + "\u202egnp.exe\u2066"
	long := strings.Repeat("verylongword", 300)
	s := newScript(scopes, func(r object) {
		all := []any{object{"text": hostile}, object{"text": hostile, "style": "code"}, object{"text": hostile, "style": "onclick"}, object{"time": hostile}, object{"text": long}}
		r["stage"], r["action"], r["count"], r["environment"], r["notice"] = hostile, hostile+long, hostile, hostile+long, hostile
		r["purpose"] = object{"label": all, "text": hostile + long}
		r["facts"] = []any{object{"label": hostile + long, "value": all}}
		r["warnings"], r["history"] = []any{all}, []any{all}
		r["arguments"] = object{"label": all, "text": hostile + long + strings.Repeat("\nline", 5000), "exact": hostile + long, "hidden": 2}
		r["scopes"] = []any{object{"scope": "once", "words": hostile}, object{"scope": `"]` + hostile, "words": long}}
		r["editable"] = `{"a": "` + long + `"}`
	})
	v := openView(t, browser, s, plan{Input: handed, width: 320})
	v.until(at("approve"))
	if n := of[int](v, `document.querySelectorAll("img, main script, main b b, [onerror], [onclick]").length`); n != 0 {
		t.Errorf("%d elements were made of text", n)
	}
	if of[bool](v, `"hacked" in window`) {
		t.Error("a script of a request ran")
	}
	for _, selector := range []string{".stage b", "h1", ".notice", ".undo + .facts dd", ".warnings", ".arguments pre", "blockquote", ".history", "#decide label"} {
		if !of[bool](v, `document.querySelector(`+quote(selector)+`).textContent.includes(`+quote(hostile)+`)`) {
			t.Errorf("%s doesn't show the text as it is", selector)
		}
	}
	v.shows("scroll to read all of it", "The policy hides 2 values here.")
	if !of[bool](v, `document.querySelector(".arguments pre").textContent.endsWith("line")`) {
		t.Error("the arguments aren't whole")
	}
	v.narrow("hostile")
	v.picture("hostile-320")
	s.change(decided("approved", "granted", hostile, "granted", "app", false, object{"text": hostile + long}))
	v.shows("not a verified person")
	v.narrow("hostile, decided")
	v.quiet()
}

// narrow fails the test if the view is wider than its frame.
func (v *tab) narrow(name string) {
	v.t.Helper()
	if of[bool](v, `document.documentElement.scrollWidth > window.innerWidth`) {
		v.t.Errorf("%s: the view is wider than its frame", name)
	}
}

// The view looks like its host, says how high it is, and does without anything that
// the host doesn't say.
func TestViewLooksLikeItsHost(t *testing.T) {
	t.Parallel()
	v := openView(t, chromium(t), newScript(), plan{Input: handed, Context: object{
		"theme": "dark", "timeZone": "Asia/Tokyo", "locale": "en-GB",
		"styles":         object{"variables": object{"--color-text-primary": "rgb(1, 200, 3)", "--font-sans": "monospace"}},
		"safeAreaInsets": object{"top": 40, "right": 0, "bottom": 0, "left": 0},
	}})
	v.shows("Approval needed", "5 Oct 2026, 00:12")
	for expression, want := range map[string]string{
		`getComputedStyle(document.body).color`:                       "rgb(1, 200, 3)",
		`getComputedStyle(document.body).fontFamily`:                  "monospace",
		`getComputedStyle(document.body).backgroundColor`:             "rgb(29, 33, 40)",
		`getComputedStyle(document.documentElement).colorScheme`:      "dark",
		`getComputedStyle(document.querySelector("main")).paddingTop`: "56px",
	} {
		if got := of[string](v, expression); got != want {
			t.Errorf("%s is %s, want %s", expression, got, want)
		}
	}
	v.do(
		chromedp.Evaluate[chromedp.Void](`window.bridge.setHostContext({theme: "light"})`),
		chromedp.Poll[chromedp.Void](`window.seen.height > 500`),
	)
	v.until(`getComputedStyle(document.documentElement).colorScheme === "light"`)
	height, err := chromedp.Run(v.ctx, chromedp.Evaluate[float64](`window.seen.height`))
	if content := of[float64](v, `document.querySelector("main").getBoundingClientRect().height`); err != nil || height < content || height > content+40 {
		t.Errorf("the view says that it is %v high (%v), want about %v", height, err, content)
	}
	v.quiet()
}

// Everything can be done with the keyboard, in the order in which it stands there,
// and approving is nothing that happens to somebody who types.
func TestViewByKeyboard(t *testing.T) {
	t.Parallel()
	v := openView(t, chromium(t), newScript(scopes), plan{Input: handed})
	v.until(at("approve"))
	v.settled()
	if got := v.focused(); got != "BODY" {
		t.Errorf("the focus is on %s before anybody has pressed a key", got)
	}
	v.do(chromedp.Evaluate[chromedp.Void](`document.getElementById("view").focus()`))
	v.keys(kb.Enter)
	var order []string
	for range 6 {
		v.keys(kb.Tab)
		order = append(order, v.focused())
		if !of[bool](v, `getComputedStyle(document.activeElement).outlineStyle !== "none"`) {
			t.Errorf("nobody sees that the focus is on %s", v.focused())
		}
	}
	if got, want := strings.Join(order, " "), "PRE SUMMARY scope-once approve reject edit"; !strings.HasPrefix(got, want) {
		t.Errorf("Tab leads to %s, want %s", got, want)
	}
	of[any](v, at("scope-once")+`.focus()`)
	v.keys(kb.ArrowDown + kb.Tab + kb.Tab + kb.Enter)
	v.until(at("reason") + ` === document.activeElement`)
	v.keys("no" + kb.Enter + kb.Enter + kb.Escape)
	if got := v.focused(); got != "reject" {
		t.Errorf("Escape leads to %s, want reject", got)
	}
	if calls := v.host.called("approval_decide"); len(calls) > 0 {
		t.Fatalf("typing decided: %v", calls)
	}
	v.settled()
	v.do(chromedp.KeyEvent(kb.Tab, chromedp.KeyModifiers(chromedp.ModifierShift)))
	v.keys(kb.Enter)
	v.shows("Verified")
	v.wantSent("approval_decide", object{"requestVersion": 1.0, "digest": digestOne, "outcome": "granted", "scope": "session"})
	v.quiet()
}

// finding is something that axe says keeps people from using a page.
type finding struct {
	ID, Impact, Help string
	Nodes            []struct{ HTML, FailureSummary string }
}

// Each state can be used by people who see badly or not at all, and in narrow
// frames, as far as a machine can tell.
func TestViewAccessibility(t *testing.T) {
	t.Parallel()
	axe, browser := axe(t), chromium(t)
	long := func(r object) {
		r["arguments"].(object)["text"] = strings.Repeat("line: of the arguments\n", 100)
	}
	states := []struct {
		name    string
		options []func(object)
		press   []string
	}{
		{"pending", nil, nil},
		{"personal", []func(object){scopes, long, func(r object) {
			r["notice"], r["reversible"] = "Personal mode: one person on this machine asks and decides. Nobody else is asked.", true
		}}, nil},
		{"reject", nil, []string{"reject"}},
		{"edit", []func(object){scopes}, []string{"edit"}},
		{"reason", []func(object){func(r object) { r["reasonRequired"] = true }}, []string{"approve"}},
		{"people", []func(object){forPeople}, []string{"open"}},
		{"approved", []func(object){decided("approved", "granted", "Approved, waiting to be applied", "granted", "app", false, object{"text": "the view of this host"})}, nil},
		{"revoke", []func(object){approvedInSlack}, []string{"revoke"}},
		{"rejected", []func(object){rejectedInSlack}, nil},
		{"expired", []func(object){expired}, nil},
		{"applied", []func(object){applied}, nil},
	}
	looks := []struct {
		name  string
		width int64
		theme string
	}{{"320-light", 320, "light"}, {"600-dark", 600, "dark"}}
	for _, state := range states {
		t.Run(state.name, func(t *testing.T) {
			v := openView(t, browser, newScript(state.options...), plan{Input: handed, Context: object{"theme": "light"}})
			v.until(`document.querySelector("h1")?.textContent`)
			for _, name := range state.press {
				v.press(name)
				v.settled()
			}
			v.picture(state.name)
			of[any](v, axe+`; document.querySelectorAll("details").forEach(one => one.open = true)`)
			for _, look := range looks {
				v.do(
					chromedp.EmulateViewport(look.width, 900),
					chromedp.Evaluate[chromedp.Void](`window.bridge.setHostContext({theme: "`+look.theme+`"})`),
				)
				v.until(`document.documentElement.dataset.theme === "` + look.theme + `"`)
				found := of[[]finding](v, `axe.run({resultTypes: ["violations"]}).then(all => all.violations)`)
				for _, one := range found {
					say := t.Logf
					if one.Impact == "serious" || one.Impact == "critical" {
						say = t.Errorf
					}
					for _, node := range one.Nodes {
						say("%s: %s (%s, %s):\n%s\n%s", look.name, one.Help, one.ID, one.Impact, node.HTML, node.FailureSummary)
					}
				}
				v.narrow(look.name)
				v.picture(state.name + "-" + look.name)
			}
			v.quiet()
		})
	}
}

// gateInView is a call that is held at a real gate, with the view that shows it.
type gateInView struct {
	*tab
	f        *approvaltest.Fixture
	returned chan *sdk.CallToolResult
}

// openGate has an agent ask at a gate over stdio, and opens the view of its call.
// Views decide up to tier 4.
func openGate(t *testing.T, browser context.Context, options mcp.GateOptions, input object) *gateInView {
	t.Helper()
	f := approvaltest.New(t, func(o *approval.Options) { o.Now = nil })
	err := f.Service.SetPolicy(t.Context(), approvaltest.ParsePolicy(t, `
version: 1
mode: cautious
roles: {finance: {users: [U0ALICE, U0BOB]}}
approval: {requires: [{role: finance}]}
in_view: {tiers: [1, 2, 3, 4]}
integrations: {crm: {tools: {drop: {tier: 5}}}}
`))
	if err != nil {
		t.Fatal(err)
	}
	gate, err := mcp.NewGate(f.Service, options)
	if err != nil {
		t.Fatal(err)
	}
	can := &sdk.ClientCapabilities{}
	can.AddExtension("io.modelcontextprotocol/ui", object{"mimeTypes": []string{mcp.ViewMIME}})
	session, err := sdk.NewClient(&sdk.Implementation{Name: "host", Version: "1"}, &sdk.ClientOptions{Capabilities: can}).
		Connect(t.Context(), serveStdio(t, newLocal(t, f, 0), f.Agent, mcp.Options{Gate: gate}).transport(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = session.Close() })
	g := &gateInView{f: f, returned: make(chan *sdk.CallToolResult, 1)}
	go func() {
		result, err := session.CallTool(t.Context(), &sdk.CallToolParams{Name: "request_approval", Arguments: input})
		if err != nil {
			result = &sdk.CallToolResult{IsError: true, StructuredContent: err.Error()}
		}
		g.returned <- result
	}()
	g.tab = openViewOf(t, browser, session, plan{Input: input, OpenLinks: options.ReviewURL != nil})
	return g
}

// agent checks what the held call came to.
func (g *gateInView) agent(t *testing.T, outcome, text string) {
	t.Helper()
	result := receive(t, g.returned, "the agent's answer")
	said, _ := result.StructuredContent.(map[string]any)
	var words string
	for _, content := range result.Content {
		words += content.(*sdk.TextContent).Text + "\n"
	}
	if said["outcome"] != outcome || !strings.Contains(words, text) {
		t.Errorf("the agent was told %s", words)
	}
}

// decide has Alice decide elsewhere on what waits.
func (g *gateInView) decide(t *testing.T, verdict approval.Verdict, reason string) {
	t.Helper()
	ids, err := g.f.Store.Pending(t.Context(), approval.QueueKey{}, 10)
	if err != nil || len(ids) != 1 {
		t.Fatalf("%v wait (%v)", ids, err)
	}
	r, err := g.f.Store.Request(t.Context(), ids[0])
	if err != nil {
		t.Fatal(err)
	}
	ballot := approvaltest.Ballot(r, verdict)
	ballot.Reason = reason
	if _, err := g.f.Service.Decide(t.Context(), approvaltest.Alice, ballot); err != nil {
		t.Fatal(err)
	}
}

// The view and the gate understand each other: what the person approves in the view
// is what the agent's call returns with, down to the numbers.
func TestViewOfGate(t *testing.T) {
	t.Parallel()
	v := openGate(t, chromium(t), mcp.GateOptions{Notice: "Nobody else is asked."},
		object{"action": "crm.update", "target": "deal 101", "reversible": true, "purpose": "Close it.", "arguments": object{"id": 101, "status": "won"}})
	v.shows("Approval needed", "crm.update", "Nobody else is asked.", "Close it.", "The agent says that this can be undone.")
	v.picture("gate")
	v.press("edit")
	of[any](v.tab, at("edited")+`.select()`)
	v.write("edited", `{"id": 9007199254740993}`)
	v.press("approve-edit")
	v.shows("Verified", "somebody in the agent's host, not a verified person", "9007199254740993")
	v.picture("gate-approved")
	v.agent(t, "granted", "9007199254740993")
	v.press("revoke")
	v.press("confirm-revoke")
	v.shows("The approval was taken back.", "Revoked by")
	v.quiet()
}

// While people decide elsewhere, the view says who, leads there, and shows by itself
// what they decided and why.
func TestViewWhilePeopleDecide(t *testing.T) {
	t.Parallel()
	browser := chromium(t)
	options := mcp.GateOptions{
		ReviewURL:     func(id approval.ID) string { return "https://approvals.example.com/review?elicitationId=" + string(id) },
		ReviewDecides: true,
	}
	t.Run("approved", func(t *testing.T) {
		t.Parallel()
		v := openGate(t, browser, options, object{"action": "crm.drop", "target": "crm", "reversible": false, "arguments": object{"table": "deals"}})
		v.shows("Waiting for 1 of finance in Slack or on the review page", "Can't be undone")
		if of[bool](v.tab, at("approve")+" !== null") {
			t.Error("the view offers to approve")
		}
		v.picture("gate-people")
		v.press("open")
		opened, err := chromedp.Run(v.ctx, chromedp.Poll[[]string](`window.seen.opened.length && window.seen.opened`))
		if err != nil || !strings.HasPrefix(opened[0], "https://approvals.example.com/review?elicitationId=req_") {
			t.Errorf("the host opened %q (%v)", opened, err)
		}
		v.decide(t, approval.Approve, "")
		v.shows("Approved, waiting to be applied", "U0ALICE", "Recorded")
		v.showsNot("not a verified person")
		v.picture("gate-people-approved")
		v.agent(t, "granted", "call apply")
		v.quiet()
	})
	t.Run("rejected", func(t *testing.T) {
		t.Parallel()
		v := openGate(t, browser, options, object{"action": "crm.update", "target": "deal 101", "reversible": true, "arguments": object{"id": 101}})
		v.press("reject") // somebody is about to decide here as well
		v.decide(t, approval.Reject, "The deal is still open.")
		v.shows("Rejected", "This was settled meanwhile, and not from here.", "The deal is still open.", "U0ALICE")
		for _, name := range []string{"approve", "reject", "confirm-reject", "edit"} {
			if of[bool](v.tab, at(name)+" !== null") {
				t.Errorf("the view still offers %s", name)
			}
		}
		v.picture("gate-people-rejected")
		v.agent(t, "denied", "The deal is still open.")
		v.quiet()
	})
}

// The view is one file that names nothing to be loaded.
func TestViewLoadsNothing(t *testing.T) {
	t.Parallel()
	for _, loads := range []string{"<link", "<img", "@import", "src=\"http", "url(http", "innerHTML="} {
		if strings.Contains(mcp.ViewHTML, loads) {
			t.Errorf("the view has %s in it", loads)
		}
	}
}
