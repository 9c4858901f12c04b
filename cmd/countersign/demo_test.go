package main

import (
	"bufio"
	"context"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

var pictures = flag.String("pictures", "", "a folder that the demo's test leaves screenshots in")

// browser returns a tab of a headless Chromium.
func browser(t *testing.T, width, height int) context.Context {
	t.Helper()
	path, err := exec.LookPath("chromium")
	if err != nil {
		if os.Getenv("COUNTERSIGN_TEST_REQUIRE") == "all" {
			t.Fatal("chromium is not installed")
		}
		t.Skip("needs Chromium: apt-get install chromium")
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path),
		chromedp.NoSandbox,
		chromedp.WindowSize(width, height),
		chromedp.Flag("disable-quic", true),
		chromedp.Flag("disable-component-update", true),
	)
	ctx, stop := chromedp.NewExecAllocator(t.Context(), options...)
	t.Cleanup(stop)
	ctx, closeTab := chromedp.NewContext(ctx)
	t.Cleanup(closeTab)
	ctx, cancel := context.WithTimeout(ctx, 3*patience)
	t.Cleanup(cancel)
	return ctx
}

// show waits until an element has a text.
func show(selector, text string) step {
	return waitFor(`[...document.querySelectorAll(` + quoteJS(selector) + `)].some(e => e.textContent.includes(` + quoteJS(text) + `))`)
}

// step is something that a person does or sees.
type step = chromedp.Action[chromedp.Void]

func steps(all ...step) step { return chromedp.Steps(all...) }

// pageGone is in what the browser answers when a page has just given way to another.
const pageGone = "(-32000)"

// waitFor waits until the page says that an expression is true, also if another
// page comes meanwhile.
func waitFor(expression string) step {
	return again(func(ctx context.Context, t *chromedp.Target) (chromedp.Void, error) {
		_, err := chromedp.Poll[bool](expression, chromedp.WithPollingTimeout(0))(ctx, t)
		return chromedp.Void{}, err
	})
}

// read keeps what a query returns.
func read[T any](query chromedp.Action[T], into *T) step {
	return again(func(ctx context.Context, t *chromedp.Target) (_ chromedp.Void, err error) {
		*into, err = query(ctx, t)
		return chromedp.Void{}, err
	})
}

// write types into what is there.
func write(selector, text string) step {
	return again(chromedp.SendKeys(chromedp.CSS(selector), text))
}

func quoteJS(text string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(text) + `"`
}

// become switches to another person, as the page's own choice does.
func become(user string) step {
	return steps(
		chromedp.Evaluate[chromedp.Void](`(() => { const s = document.getElementById("user"); s.value = "`+user+`"; s.dispatchEvent(new Event("change", {bubbles: true})); })()`),
		waitFor(`document.body.dataset.userId === "`+user+`"`),
	)
}

// press presses what is there once a page has settled: one that has just given way
// to another, or a part that was just replaced, is looked for again.
func press(selector string) step {
	return again(steps(
		chromedp.WaitVisible(chromedp.CSS(selector)),
		chromedp.Click(chromedp.CSS(selector)),
	))
}

// again does something until the page doesn't change under it.
func again(do step) step {
	return func(ctx context.Context, t *chromedp.Target) (chromedp.Void, error) {
		for {
			_, err := do(ctx, t)
			if err == nil || ctx.Err() != nil || !strings.Contains(err.Error(), pageGone) {
				return chromedp.Void{}, err
			}
		}
	}
}

// picture keeps a screenshot for a person to look at, if they asked for it.
func picture(name string) step {
	return func(ctx context.Context, t *chromedp.Target) (chromedp.Void, error) {
		if *pictures == "" {
			return chromedp.Void{}, nil
		}
		png, err := chromedp.CaptureScreenshot()(ctx, t)
		if err != nil {
			return chromedp.Void{}, err
		}
		return chromedp.Void{}, os.WriteFile(filepath.Join(*pictures, name+".png"), png, 0o600)
	}
}

// whole is picture of all of a page, however long.
func whole(name string) step {
	return again(func(ctx context.Context, t *chromedp.Target) (chromedp.Void, error) {
		if *pictures == "" {
			return chromedp.Void{}, nil
		}
		png, err := chromedp.FullScreenshot(100)(ctx, t)
		if err != nil {
			return chromedp.Void{}, err
		}
		return chromedp.Void{}, os.WriteFile(filepath.Join(*pictures, name+".png"), png, 0o600)
	})
}

// withoutScripts is how the browser goes on once somebody has turned scripts off.
func withoutScripts() step {
	return func(ctx context.Context, t *chromedp.Target) (chromedp.Void, error) {
		_, err := cdp.Call(ctx, t, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
		return chromedp.Void{}, err
	}
}

// startDemo runs the demo as its users do and returns the addresses it prints:
// the simulated Slack's and the review page's.
func startDemo(t *testing.T) (slack, review string) {
	t.Helper()
	demo := exec.CommandContext(t.Context(), "countersign", "demo", "--listen", "127.0.0.1:0")
	demo.Cancel = func() error { return demo.Process.Signal(os.Interrupt) }
	out, err := demo.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := demo.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for _, into := range []*string{&slack, &review} {
		if !lines.Scan() {
			t.Fatal("the demo said nothing more")
		}
		if *into = regexp.MustCompile(`http://(127\.0\.0\.1|localhost):\d+`).FindString(lines.Text()); *into == "" {
			t.Fatalf("no address in %q", lines.Text())
		}
	}
	go func() {
		for lines.Scan() {
		}
	}()
	t.Cleanup(func() { _ = demo.Wait() })
	return slack, review
}

// Somebody without a role sees no more than a stranger does; somebody on call is
// known, on a phone too.
func TestSignInInABrowser(t *testing.T) {
	t.Parallel()
	ctx := browser(t, 390, 760)
	_, address := startDemo(t)
	signIn := func(user, name string) step {
		return steps(
			press("form button"),
			show(".signin", name),
			press(`.signin a[href*="user=`+user+`"]`),
		)
	}
	var was string
	err := chromedp.Do(ctx,
		chromedp.Navigate(address+"/review?elicitationId=req_0123456789abcdef0123456789abcdef"),
		show("h1", "Sign in to review"),
		picture("sign-in"),
		signIn("U0SAM", "Sam"),
		show("[role=alert]", "holds no role here"),
		picture("no-role"),
		signIn("U0ADA", "Ada Moreau"),
		show("header", "Ada Moreau (on call) (oncall)"),
		picture("signed-in"),
		read(chromedp.Location(), &was),
		press("form button"),
		show("h1", "Sign in to review"),
	)
	if err != nil {
		t.Fatal(err)
	}
	if want := address + "/review?elicitationId=req_0123456789abcdef0123456789abcdef"; was != want {
		t.Errorf("signing in led to %s, want %s", was, want)
	}
}

// What somebody sees who tries the demo: reading needs nobody, one who isn't on
// call is refused, Ada approves and the agent wakes and applies exactly what the
// card showed, Grace sees no accounts, reads why she is asked and rejects with a
// reason, what policy denies nobody is asked about, and what she approves of the
// help desk's tools runs behind the gateway.
func TestDemoInABrowser(t *testing.T) {
	t.Parallel()
	ctx := browser(t, 1280, 960)
	address, _ := startDemo(t)
	approve := steps(
		press(`[data-action-id="approve"]`),
		show("#confirm", "crm.delete_records on 214 records"),
		press("#confirm [data-confirm-yes]"),
	)
	var waiting, done, details string
	err := chromedp.Do(ctx,
		chromedp.Navigate(address+"/?user=U0SAM"),
		show("#messages h3", "Approval needed"),
		show("#consoles li", "approved by policy, without a person"),
		show("#consoles li", "waiting for a person"),
		approve,
		show(".ephemeral", "This needs 1 of oncall"),
		picture("refused"),
		become(demoOwner),
		approve,
		show(".ephemeral", "the agent acts for you"),
		become("U0ADA"),
		picture("pending"),
		read(chromedp.Text(chromedp.CSS("#consoles")), &waiting),
		approve,
		show("#messages h3", "Applied"),
		show("#consoles li", "expected_count"),
		picture("applied"),
		read(chromedp.Text(chromedp.CSS("#consoles")), &done),

		become("U0GRACE"),
		show("#messages h3", "Approval needed"),
		press(`[data-action-id="details"]`),
		show("#modal", "INV-2291"),
		read(chromedp.Text(chromedp.CSS("#modal")), &details),
		picture("details"),
		press("#modal [data-close]"),
		chromedp.WaitNotPresent(chromedp.CSS("#modal[open]")),
		press(`[data-action-id="why"]`),
		show("#modal", "Mode cautious"),
		picture("why"),
		press("#modal [data-close]"),
		chromedp.WaitNotPresent(chromedp.CSS("#modal[open]")),
		press(`[data-action-id="reject"]`),
		show("#modal", "billing.refund"),
		write("#modal textarea", "Only two of them were charged twice."),
		picture("reject"),
		press("#modal [data-submit]"),
		show("#messages h3", "Rejected"),
		show("#messages", "Only two of them were charged twice."),
		show("#consoles li", "I don't run it"),
		picture("rejected"),

		show("#consoles li", "Agents drop nothing in production."),
		picture("denied"),

		show("#consoles li", "find_tickets -> 4 tickets"),
		show("#consoles li", "waiting for a person in await_result"),
		show("#messages", "billing questions"),
		picture("gateway-pending"),
		press(`[data-action-id="approve"]`),
		show("#messages h3", "Approved · ran"),
		show("#consoles li", "await_result -> Closed 4 tickets of billing questions."),
		picture("gateway-ran"),
	)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(details, "DE02120300000000202051") {
		t.Errorf("the details show an account that the policy hides: %s", details)
	}
	if strings.Contains(waiting, "expected_count") {
		t.Errorf("the agent applied before anybody approved: %s", waiting)
	}
	if want := `{"table":"customers","where":{"status":"inactive","last_seen_before":"2024-12-01"},"expected_count":214}`; !strings.Contains(done, want) {
		t.Errorf("the agent's side shows %s, want %s in it", done, want)
	}
}

// On a phone everything is within the width, and the buttons work.
func TestDemoOnAPhone(t *testing.T) {
	t.Parallel()
	ctx := browser(t, 390, 844)
	address, _ := startDemo(t)
	var overflow bool
	err := chromedp.Do(ctx,
		chromedp.EmulateViewport(390, 844, chromedp.EmulateMobile),
		chromedp.Navigate(address+"/?user=U0ADA"),
		show("#messages h3", "Approval needed"),
		picture("phone"),
		read(chromedp.Evaluate[bool](`document.documentElement.scrollWidth > window.innerWidth`), &overflow),
		press(`[data-action-id="approve"]`),
		picture("phone-confirm"),
		press("#confirm [data-confirm-yes]"),
		show("#messages h3", "Applied"),
		picture("phone-applied"),
	)
	if err != nil {
		t.Fatal(err)
	}
	if overflow {
		t.Error("the page is wider than the phone")
	}
}
