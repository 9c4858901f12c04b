package web_test

import (
	"context"
	"strings"
	"testing"
	"time"

	browserpage "github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/approval/approvaltest"
)

// until waits for what a page comes to say, also if another one comes meanwhile.
func until(ctx context.Context, t *testing.T, what, expression string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		_, err := chromedp.Run(ctx, chromedp.Poll[bool](expression, chromedp.WithPollingTimeout(0)))
		if err == nil {
			return
		}
		if ctx.Err() != nil || !strings.Contains(err.Error(), "(-32000)") {
			t.Fatalf("%s: %v", what, err)
		}
	}
}

// A page that says why a form wasn't taken goes on following the request, and
// doesn't send the form again when somebody has to sign in.
func TestLiveAfterARefusedForm(t *testing.T) {
	t.Parallel()
	ctx := chromium(t)
	s := newSite(t)
	r := s.Propose(t)
	alice := s.signedIn(t, approvaltest.Alice)
	if err := alice.takeOver(ctx); err != nil {
		t.Fatal(err)
	}
	if err := chromedp.Do(ctx,
		chromedp.Navigate(s.url+pageOf(r)),
		chromedp.Evaluate[chromedp.Void](`document.querySelector(".reject [name=token]").value = "another"; document.querySelector(".reject").submit()`),
	); err != nil {
		t.Fatal(err)
	}
	until(ctx, t, "refused", `!!document.querySelector(".problem")`)
	s.Decide(t, approvaltest.Bob, r, approval.Approve)
	until(ctx, t, "approved by somebody else", `document.querySelector("#state")?.textContent.includes("Approved")`)
	s.People.Take("finance", approvaltest.Alice)
	s.Clock.Advance(approval.StandingFor)
	if _, err := s.Service.Claim(t.Context(), s.Agent, r.ID); err != nil {
		t.Fatal(err)
	}
	until(ctx, t, "without a role", `location.search !== "" && document.querySelector("h1").textContent === "Sign in to review"`)
}

// Browsers have six connections for all tabs of a server without HTTP/2. Tabs that
// nobody looks at hold none of them, and show what happened once somebody does.
func TestHiddenTabsHoldNoConnection(t *testing.T) {
	t.Parallel()
	first := chromium(t)
	s := newSite(t)
	r := s.Propose(t)
	if err := s.signedIn(t, approvaltest.Alice).takeOver(first); err != nil {
		t.Fatal(err)
	}
	open := func(tab context.Context, hidden string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(tab, 20*time.Second)
		defer cancel()
		_, err := chromedp.Call(ctx, browserpage.AddScriptToEvaluateOnNewDocument, browserpage.AddScriptToEvaluateOnNewDocumentParams{
			Source: `Object.defineProperty(document, "hidden", {value: ` + hidden + `, writable: true})`,
		})
		if err == nil {
			err = chromedp.Do(ctx, chromedp.Navigate(s.url+pageOf(r)))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	open(first, "true")
	for i := range 6 {
		tab, closeTab := chromedp.NewContext(first)
		t.Cleanup(closeTab)
		open(tab, map[bool]string{true: "false", false: "true"}[i == 5])
	}
	s.Decide(t, approvaltest.Bob, r, approval.Approve)
	look := func(hidden string) {
		t.Helper()
		if err := chromedp.Do(first, chromedp.Evaluate[chromedp.Void](`document.hidden = `+hidden+`; document.dispatchEvent(new Event("visibilitychange"))`)); err != nil {
			t.Fatal(err)
		}
	}
	look("false")
	until(first, t, "looked at again", `document.querySelector("#state").textContent.includes("Approved")`)
	look("true")
	s.Clock.Advance(15 * time.Minute)
	look("false")
	until(first, t, "looked at after the session", `document.querySelector("h1").textContent === "Sign in to review"`)
}
