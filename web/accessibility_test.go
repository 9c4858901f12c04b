package web_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/approval/approvaltest"
	"github.com/countersign/countersign/web"
)

var pictures = flag.String("pictures", "", "a folder that screenshots of the pages are left in")

// chromium returns a tab of a headless Chromium.
func chromium(t *testing.T) context.Context {
	t.Helper()
	path, err := exec.LookPath("chromium")
	if err != nil {
		missing(t, "chromium is not installed: apt-get install chromium")
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path),
		chromedp.NoSandbox,
		chromedp.Flag("disable-quic", true),
		chromedp.Flag("disable-component-update", true),
	)
	ctx, stop := chromedp.NewExecAllocator(t.Context(), options...)
	t.Cleanup(stop)
	ctx, closeTab := chromedp.NewContext(ctx)
	t.Cleanup(closeTab)
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// missing skips a test that lacks something, or fails it where nothing may lack.
func missing(t *testing.T, what string) {
	t.Helper()
	if os.Getenv("COUNTERSIGN_TEST_REQUIRE") == "all" {
		t.Fatal(what)
	}
	t.Skip(what)
}

// axe is the source of the accessibility checker.
func axe(t *testing.T) string {
	t.Helper()
	source, err := os.ReadFile(filepath.Join("..", ".ci", "web", "node_modules", "axe-core", "axe.min.js"))
	if err != nil {
		missing(t, "axe isn't installed: npm ci --prefix .ci/web")
	}
	return string(source)
}

// finding is something that axe says keeps people from using a page.
type finding struct {
	ID, Impact, Help string
	Nodes            []struct {
		HTML           string
		FailureSummary string
	}
}

// looks are the ways in which each page is looked at. What is dark differs in its
// colours only.
var looks = []struct {
	name   string
	width  int64
	scheme string
	rules  string // that axe goes by
}{
	{"phone", 390, "light", ""},
	{"phone-dark", 390, "dark", `, runOnly: ["color-contrast", "link-in-text-block"]`},
	{"desktop", 1280, "light", ""},
	{"desktop-dark", 1280, "dark", `, runOnly: ["color-contrast", "link-in-text-block"]`},
}

// checkPage opens a page and lets axe look at it in each way, with all that can be
// unfolded unfolded.
func checkPage(ctx context.Context, t *testing.T, axe, name, address string) {
	t.Helper()
	if err := chromedp.Do(ctx, chromedp.Navigate(address), chromedp.Evaluate[chromedp.Void](axe+`; document.querySelectorAll("details").forEach(one => one.open = true)`)); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	for _, look := range looks {
		if err := chromedp.Do(ctx, chromedp.EmulateViewport(look.width, 900), inScheme(look.scheme)); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		found, err := chromedp.Run(ctx, chromedp.Evaluate[[]finding](`axe.run({resultTypes: ["violations"]`+look.rules+`}).then(all => all.violations)`, chromedp.EvalAwaitPromise))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, one := range found {
			say := t.Logf
			if one.Impact == "serious" || one.Impact == "critical" {
				say = t.Errorf
			}
			for _, node := range one.Nodes {
				say("%s, %s: %s (%s, %s):\n%s\n%s", name, look.name, one.Help, one.ID, one.Impact, node.HTML, node.FailureSummary)
			}
		}
		wider, err := chromedp.Run(ctx, chromedp.Evaluate[bool](`document.documentElement.scrollWidth > window.innerWidth`))
		if err != nil || wider {
			t.Errorf("%s, %s: the page is wider than the window (%v)", name, look.name, err)
		}
		if *pictures == "" {
			continue
		}
		png, err := chromedp.Run(ctx, chromedp.FullScreenshot(100))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(*pictures, name+"-"+look.name+".png"), png, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// inScheme has the browser prefer light or dark pages.
func inScheme(scheme string) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
		})
		return err
	})
}

// takeOver has the browser be signed in as another is.
func (b *browser) takeOver(ctx context.Context) error {
	_, err := chromedp.Call(ctx, network.SetCookie, network.SetCookieParams{Name: "countersign-session", Value: b.cookie("countersign-session"), URL: b.site.url})
	return err
}

// Each page can be used by people who see badly or not at all, by keyboard and on a
// phone, as far as a machine can tell.
func TestAccessibility(t *testing.T) {
	t.Parallel()
	axe, ctx := axe(t), chromium(t)
	s := siteWith(t, func(string) []web.Provider {
		return []web.Provider{{Name: "Example-ID", Issuer: "https://id.example.com", ClientID: "c", People: map[string]string{"a": "U0A"}}}
	})
	check := func(name, address string) {
		t.Helper()
		checkPage(ctx, t, axe, name, s.url+address)
	}
	check("sign-in", "/")
	check("sign-in-problem", web.CallbackPath)

	// Before the first request, the pages have nothing on them.
	b := s.signedIn(t, approvaltest.Alice)
	if err := b.takeOver(ctx); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"", "history", "insights", "passkeys"} {
		check("empty-"+name, "/"+name)
	}

	if err := s.Service.SetPolicy(t.Context(), approvaltest.ParsePolicy(t, accessiblePolicy)); err != nil {
		t.Fatal(err)
	}
	states := s.states(t)
	b = s.signedIn(t, approvaltest.Alice)
	if err := b.takeOver(ctx); err != nil {
		t.Fatal(err)
	}
	for name, address := range states {
		check(name, address)
	}
	_, err := s.Service.EnrolPasskey(t.Context(), approvaltest.Alice, s.Clock.Now(), approval.Passkey{ID: []byte("a"), Owner: approvaltest.Alice, Name: "Phone", Credential: []byte("{}")})
	if err != nil {
		t.Fatal(err)
	}
	check("queue", "/")
	check("history", "/history")
	check("history-filtered", "/history?status=rejected&tier=4&text=invoices&since=2026-01-01")
	check("history-wrong", "/history?since=never")
	check("insights", "/insights?days=7")
	check("passkeys", "/passkeys")
	s.Clock.Advance(6 * time.Minute)
	check("passkeys-not-fresh", "/passkeys")
	check("tier-4-not-fresh", states["pending"])
}

const accessiblePolicy = `
version: 1
mode: cautious
roles: {finance: {users: [U0ALICE, U0BOB], self_approval: true}}
approval: {requires: [{role: finance}], scopes: [once, session, 15m]}
tiers: {4: {requires: [{role: finance, count: 2}], reason_required: true}, 5: {requires: [{role: finance, count: 2}], reason_required: true}}
integrations:
  payouts:
    tools:
      create: {tier: 4, count: 'size(args.invoices)', amount: 'double(args.amount)', redact: [/account/iban]}
      wipe: {tier: 5}
      note: {tier: 3, target: 'args.account.name'}
rules: [{id: large, actions: [payouts.create], amount_over: 1000, raise_to: 4, why: "Large payouts are looked at by two."}]
limits: {pending: 1000000, per_minute: 1000000, cooldown: 0s}
`

// states makes requests in each state, and returns where each is.
func (s *site) states(t *testing.T) map[string]string {
	t.Helper()
	fail := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	payload := func(amount int) []byte {
		return fmt.Appendf(nil, `{"amount": %d, "currency": "EUR", "account": {"name": "Ω Ltd", "iban": "DE02120300000000202051"}, "invoices": ["2026-0117", "2026-0118"], "note": "pay\u202etoday", "exact": 1e400}`, amount)
	}
	ask := func(action string, options ...func(*approval.Proposal)) *approval.Request {
		t.Helper()
		return s.Propose(t, append([]func(*approval.Proposal){func(p *approval.Proposal) { p.Action, p.Payload = action, payload(1200) }}, options...)...)
	}
	decided := func(verdict approval.Verdict) *approval.Request {
		t.Helper()
		r := ask("payouts.note")
		s.Clock.Advance(90 * time.Second)
		ballot := approvaltest.Ballot(r, verdict)
		ballot.Reason = "The invoice is ours, and due."
		r, err := s.Service.Decide(t.Context(), approvaltest.Bob, ballot)
		fail(err)
		return r
	}
	applied := func(outcome approval.Outcome, detail string) *approval.Request {
		t.Helper()
		r := decided(approval.Approve)
		_, err := s.Service.Claim(t.Context(), s.Agent, r.ID)
		fail(err)
		if outcome != "" {
			_, err = s.Service.Finish(t.Context(), s.Agent, r.ID, outcome, detail)
			fail(err)
		}
		return r
	}
	all := map[string]*approval.Request{
		"expired":   ask("payouts.create", func(p *approval.Proposal) { p.TTL = time.Minute }),
		"rejected":  decided(approval.Reject),
		"approved":  decided(approval.Approve),
		"granted":   s.Grant(t, approvaltest.Bob, ask("payouts.note"), "15m"),
		"applied":   applied("", ""),
		"succeeded": applied(approval.Succeeded, "Paid 2 invoices."),
		"failed":    applied(approval.Failed, "The bank didn't answer."),
	}
	s.Clock.Advance(2 * time.Minute)
	edited := ask("payouts.create")
	_, err := s.Service.Edit(t.Context(), approvaltest.Bob, edited.ID, edited.Version, payload(900), approval.Slack)
	fail(err)
	half := ask("payouts.create")
	ballot := approvaltest.Ballot(half, approval.Approve)
	ballot.Reason = "The first of two."
	_, err = s.Service.Decide(t.Context(), approvaltest.Bob, ballot)
	fail(err)
	all["edited"], all["half-approved"] = edited, half
	all["pending"], all["pending-passkey"], all["pending-scopes"] = ask("payouts.create"), ask("payouts.wipe"), ask("payouts.note")
	ran := ask("payouts.note", func(p *approval.Proposal) { p.Executor, p.ToolPin = approval.ByGateway, approvaltest.Pin })
	_, err = s.Service.ClaimToRun(t.Context(), s.Decide(t, approvaltest.Bob, ran, approval.Approve).ID, approvaltest.Pin)
	fail(err)
	_, err = s.Service.FinishRun(t.Context(), ran.ID, approval.Report{Outcome: approval.Unknown, Result: []byte("The server went away.")})
	fail(err)
	all["unknown"] = ran
	addresses := map[string]string{"nowhere": "/review?elicitationId=req_0123456789abcdef0123456789abcdef"}
	for name, r := range all {
		addresses[name] = "/review?elicitationId=" + string(r.ID)
	}
	addresses["edit"] = "/review/edit?elicitationId=" + string(all["pending-scopes"].ID)
	return addresses
}
