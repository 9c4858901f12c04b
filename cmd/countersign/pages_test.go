package main

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/web"
)

// signInAs goes from the page to sign in through the simulated Slack.
func signInAs(user string) step {
	return steps(
		show("h1", "Sign in to review"),
		press("form button"),
		press(`.signin a[href*="user=`+user+`"]`),
	)
}

// propose asks for approval of something that only people can say yes to.
func (w *world) propose(t *testing.T, purpose, table string) *approval.Request {
	t.Helper()
	r, err := w.server.service.Request(t.Context(), approval.Agent{Name: "crm-agent"}, approval.Proposal{
		Purpose: purpose, Action: "crm.delete_records", Target: table, Environment: "production",
		Payload: fmt.Appendf(nil, `{"table": %q, "expected_count": 214}`, table),
	})
	if err != nil {
		t.Fatal(err)
	}
	if r.Status != approval.Pending {
		t.Fatalf("%s is %s", table, r.Status)
	}
	return r
}

func (w *world) decide(t *testing.T, user string, r *approval.Request, verdict approval.Verdict) {
	t.Helper()
	_, err := w.server.service.Decide(t.Context(), approval.Approver{Workspace: demoWorkspace, User: user}, approval.Ballot{
		Request: r.ID, Version: r.Version, Digest: r.Digest, Verdict: verdict, Reason: "As agreed.", Surface: approval.Slack,
	})
	if err != nil {
		t.Fatal(err)
	}
}

// The queue of somebody on a phone follows what happens without a reload; the
// history is searched, and insights have their figures, all within the width of
// the phone.
func TestPeoplesPagesOnAPhone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	address := w.options.config.URL
	w.slack.SetRedirectURLs(address + web.CallbackPath)
	for i := range 6 {
		w.decide(t, "U0GRACE", w.propose(t, "Clean up "+strings.Repeat("very ", 60)+"old records", fmt.Sprintf("archive_%d_%s", i, strings.Repeat("x", 80))), approval.Reject)
	}
	first := w.propose(t, "Delete customers who left", "customers")
	ctx := browser(t, 390, 844)
	var overflows []string
	fits := func(page string) step {
		var wide bool
		return steps(
			picture(page),
			read(chromedp.Evaluate[bool](`document.documentElement.scrollWidth > window.innerWidth`), &wide),
			chromedp.Evaluate[chromedp.Void](`void 0`),
			func(context.Context, *chromedp.Target) (chromedp.Void, error) {
				if wide {
					overflows = append(overflows, page)
				}
				return chromedp.Void{}, nil
			},
		)
	}
	open := func(r *approval.Request) string { return `#waiting a[href$="` + string(r.ID) + `"]` }
	err := chromedp.Do(ctx,
		chromedp.EmulateViewport(390, 844, chromedp.EmulateMobile),
		chromedp.Navigate(address+"/"),
		signInAs("U0ADA"),
		again(chromedp.WaitVisible(chromedp.CSS(open(first)))),
		chromedp.Evaluate[chromedp.Void](`void (window.sameDocument = true)`),
		fits("queue"),
	)
	if err != nil {
		t.Fatal(err)
	}
	second := w.propose(t, "Delete test orders", "orders")
	if err := chromedp.Do(ctx, again(chromedp.WaitVisible(chromedp.CSS(open(second)))), fits("queue-grown")); err != nil {
		t.Fatal(err)
	}
	w.decide(t, "U0GRACE", first, approval.Approve)
	w.decide(t, "U0ADA", second, approval.Approve)
	err = chromedp.Do(ctx,
		show("#waiting", "Nothing waits for you."),
		show("#decided li", "You approved"),
		waitFor(`window.sameDocument === true`),
		fits("queue-empty"),
		press(`nav a[href="/history"]`),
		show("h1", "History"),
		fits("history"),
		press("summary"),
		fits("history-filters"),
		write("#text", "TEST ord"),
		write("#decided_by", "U0ADA\r"),
		show(".set", "Decided by: U0ADA"),
		waitFor(`document.querySelectorAll(".requests li").length === 1`),
		show(".requests h3", "crm.delete_records"),
		show(".requests li", "orders"),
		fits("history-found"),
		press(`nav a[href="/insights"]`),
		show("h1", "Insights"),
		show(".figures div", "Asked8"),
		fits("insights"),
		press("details summary"),
		show("details table", time.Now().UTC().Format("2 Jan 2006")),
		fits("insights-figures"),
	)
	if err != nil {
		t.Fatal(err)
	}
	if len(overflows) > 0 {
		t.Errorf("wider than the phone: %s", strings.Join(overflows, ", "))
	}
}
