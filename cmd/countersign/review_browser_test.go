package main

import (
	"context"
	"regexp"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/countersign/countersign/gate"
)

// atReview signs somebody of the demo in at the review page.
func atReview(address, user, name string) step {
	return steps(
		chromedp.Navigate(address),
		press("main form button"),
		show(".signin", name),
		press(`.signin a[href*="user=`+user+`"]`),
		show("header", "(oncall)"),
	)
}

// readOnAPhone reads the page as somebody on a phone does.
func readOnAPhone(text *string, overflow *bool) step {
	return steps(
		read(chromedp.Text(chromedp.CSS("main")), text),
		read(chromedp.Evaluate[bool](`document.documentElement.scrollWidth > window.innerWidth`), overflow),
	)
}

// On a phone, Ada reads all of what waits and approves it. Without a reload her page
// says what came of it.
func TestReviewInABrowser(t *testing.T) {
	t.Parallel()
	ctx := browser(t, 390, 844)
	_, address := startDemo(t)
	var text, url, signed string
	var overflow, stillOverflow bool
	err := chromedp.Do(ctx,
		chromedp.EmulateViewport(390, 844, chromedp.EmulateMobile),
		atReview(address, "U0ADA", "Ada Moreau"),
		show("#waiting", "crm.delete_records on 214 records"),
		picture("review-queue"),
		press("#waiting h3 a"),
		show("h1", "crm.delete_records on 214 records"),
		readOnAPhone(&text, &overflow),
		read(chromedp.Location(), &url),
		whole("review-pending"),
		press(".approve button"),
		show("#state", "Applied"),
		show("#decided", "on this page"),
		whole("review-applied"),
		press("#decided summary"),
		read(chromedp.Text(chromedp.CSS("#decided .receipt")), &signed),
		read(chromedp.Evaluate[bool](`document.documentElement.scrollWidth > window.innerWidth`), &stillOverflow),
		whole("review-receipt"),
	)
	if err != nil {
		t.Fatal(err)
	}
	keys, err := gate.FetchReceiptKeys(t.Context(), address, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := gate.VerifyReceipt(keys, signed); err != nil || !got.Approved || got.Surface != "web" || stillOverflow {
		t.Errorf("the receipt on the page says %+v (%v), and makes it too wide: %t", got, err, stillOverflow)
	}
	for _, want := range []string{"last_seen_before", "2024-12-01", "customers not seen since", "Delete 214 inactive customer records", "no, says the agent", "Needs 1 of oncall"} {
		if !strings.Contains(text, want) {
			t.Errorf("the page doesn't say %q: %s", want, text)
		}
	}
	if overflow {
		t.Error("the page is wider than the phone")
	}
	if !regexp.MustCompile(`/review\?elicitationId=req_[0-9a-f]{32}$`).MatchString(url) {
		t.Errorf("the address is %s", url)
	}
}

// While Ada reads, Grace edits the arguments. Ada is stopped, and what she had
// before her is refused even so; Grace can't approve her own edit; Ada approves the
// second version, which is what the agent is given. The next request hides
// something, so it can't be edited; Ada rejects it with scripts turned off.
func TestEditInABrowser(t *testing.T) {
	t.Parallel()
	slack, address := startDemo(t)
	ada, grace := browser(t, 1100, 900), browser(t, 1100, 900)
	do := func(who context.Context, all ...step) {
		t.Helper()
		for i, one := range all {
			if err := chromedp.Do(who, one); err != nil {
				t.Fatalf("step %d: %v", i, err)
			}
		}
	}
	var hidden, console string
	do(ada,
		atReview(address, "U0ADA", "Ada Moreau"),
		press("#waiting h3 a"),
		show("h1", "crm.delete_records"),
		show(".approve button", "Approve"),
	)
	do(grace,
		atReview(address, "U0GRACE", "Grace"),
		press("#waiting h3 a"),
		press(`#decide a[href^="/review/edit"]`),
		show("h1", "Edit the arguments"),
		again(chromedp.SetValue(chromedp.CSS("#payload"), `{"table":"customers"`)),
		press("main form button"),
		show("[role=alert]", "what you wrote is not strict JSON"),
		whole("edit-refused"),
		again(chromedp.SetValue(chromedp.CSS("#payload"), `{"table":"customers","where":{"status":"inactive","last_seen_before":"2024-12-01"},"expected_count":200}`)),
		press("main form button"),
		show(".changes", "200"),
		show("#decide", "You can't approve what you edited"),
		whole("edited"),
	)
	do(ada,
		show("[role=alert]", "The arguments have changed"),
		waitFor(`[...document.querySelectorAll("main button")].every(button => button.disabled)`),
		picture("edited-meanwhile"),
		chromedp.Evaluate[chromedp.Void](`document.querySelector(".approve").submit()`),
		show(".problem", "The arguments changed"),
		show(".changes", "214"),
		whole("stale"),
		press(".approve button"),
		show("#state", "Applied"),
		show("#decided", "edited by Grace"),
		chromedp.Navigate(address),
		show("#waiting", "billing.refund"),
		withoutScripts(),
		press("#waiting h3 a"),
		show("h1", "billing.refund"),
		show("#decide", "the policy hides some of them"),
		read(chromedp.Text(chromedp.CSS("main")), &hidden),
		whole("hidden"),
		write("#why-reject", "Only two were charged twice."),
		press(".reject button"),
		show("#state", "Rejected"),
		show("#decided blockquote", "Only two were charged twice."),
		whole("rejected-page"),
	)
	do(grace,
		chromedp.Navigate(slack+"/?user=U0GRACE"),
		show("#messages", "Only two were charged twice."),
		read(chromedp.Text(chromedp.CSS("#consoles")), &console),
	)
	if strings.Contains(hidden, "DE02120300000000202051") || !strings.Contains(hidden, "‹hidden text, 22 characters›") {
		t.Errorf("the page shows what the policy hides: %s", hidden)
	}
	if !strings.Contains(console, `"expected_count":200`) || strings.Contains(console, `"expected_count":214`) {
		t.Errorf("the agent's side shows %s", console)
	}
}
