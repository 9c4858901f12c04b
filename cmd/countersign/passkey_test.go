package main

import (
	"context"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/webauthn"
	"github.com/chromedp/chromedp"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/policy"
)

// device is one that can hold passkeys, in a tab.
type device struct{ id webauthn.AuthenticatorID }

// plug gives the tab the device, which says whether it makes sure who uses it.
func (d *device) plug(verifies bool) step {
	return func(ctx context.Context, t *chromedp.Target) (chromedp.Void, error) {
		if _, err := cdp.Call(ctx, t, webauthn.Enable, webauthn.EnableParams{}); err != nil {
			return chromedp.Void{}, err
		}
		added, err := cdp.Call(ctx, t, webauthn.AddVirtualAuthenticator, webauthn.AddVirtualAuthenticatorParams{Options: &webauthn.VirtualAuthenticatorOptions{
			Protocol:                    webauthn.AuthenticatorProtocolCtap2,
			Transport:                   webauthn.AuthenticatorTransportInternal,
			HasResidentKey:              true,
			HasUserVerification:         verifies,
			IsUserVerified:              verifies,
			AutomaticPresenceSimulation: true,
		}})
		if err == nil {
			d.id = added.AuthenticatorID
		}
		return chromedp.Void{}, err
	}
}

// recognizes has the device find that it is used by its owner, or by somebody else.
func (d *device) recognizes(owner bool) step {
	return func(ctx context.Context, t *chromedp.Target) (chromedp.Void, error) {
		_, err := cdp.Call(ctx, t, webauthn.SetUserVerified, webauthn.SetUserVerifiedParams{AuthenticatorID: d.id, IsUserVerified: owner})
		return chromedp.Void{}, err
	}
}

// lies has the device say, in what it signs, that it doesn't know who used it,
// which no browser looks at.
func (d *device) lies(does bool) step {
	return func(ctx context.Context, t *chromedp.Target) (chromedp.Void, error) {
		_, err := cdp.Call(ctx, t, webauthn.SetResponseOverrideBits, webauthn.SetResponseOverrideBitsParams{AuthenticatorID: d.id, IsBadUV: &does})
		return chromedp.Void{}, err
	}
}

// dark has the tab show pages as somebody sees them who prefers them dark.
func dark(ctx context.Context, t *chromedp.Target) (chromedp.Void, error) {
	_, err := cdp.Call(ctx, t, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: "dark"}},
	})
	return chromedp.Void{}, err
}

// loaded waits for a page that is there to have its scripts.
var loaded = waitFor(`document.readyState === "complete"`)

// called gives a new passkey its name.
func called(name string) step {
	return steps(loaded, waitFor(`(() => { const e = document.getElementById("name"); if (e) e.value = `+quoteJS(name)+`; return e !== null; })()`))
}

// A passkey is added, shown, told of in Slack and removed, on a phone.
func TestPasskeysInABrowser(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx := browser(t, 390, 844)
	var overflow bool
	err := chromedp.Do(ctx,
		new(device).plug(true),
		chromedp.EmulateViewport(390, 844, chromedp.EmulateMobile),
		chromedp.Navigate(w.options.config.URL+"/passkeys"),
		signInAs("U0ADA"),
		show("main", "You have none."),
		picture("passkeys-none"),
		called("Ada’s phone"),
		press(`button[data-passkey]`),
		show(".passkeys li", "Ada’s phone"),
		called("The same"),
		press(`button[data-passkey]`),
		show("[role=alert]", "This device has a passkey here already."),
		picture("passkeys"),
		read(chromedp.Evaluate[bool](`document.documentElement.scrollWidth > window.innerWidth`), &overflow),
		press(`.passkeys button`),
		show("main", "You have none."),
	)
	if err != nil {
		t.Fatal(err)
	}
	if overflow {
		t.Error("the page is wider than the phone")
	}
	if err := w.slack.Wait(ctx, func() bool { return len(w.slack.Messages("U0ADA")) == 2 }); err != nil {
		t.Errorf("Ada was told %+v", w.slack.Messages("U0ADA"))
	}
}

// A device that doesn't make sure who uses it holds no passkeys.
func TestDeviceThatVerifiesNobody(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx := browser(t, 1280, 960)
	err := chromedp.Do(ctx,
		new(device).plug(false),
		dark,
		chromedp.Navigate(w.options.config.URL+"/passkeys"),
		signInAs("U0ADA"),
		show("h1", "Passkeys"),
		called("Key"),
		press(`button[data-passkey]`),
		show("[role=alert]", "No passkey was added"),
		picture("passkeys-refused"),
	)
	if err != nil {
		t.Fatal(err)
	}
	who := approval.Approver{Workspace: demoWorkspace, User: "U0ADA"}
	if owned, err := w.server.service.Passkeys(t.Context(), who); err != nil || len(owned) != 0 {
		t.Errorf("there are %d passkeys (%v)", len(owned), err)
	}
}

// What can't be undone is approved on the page by a passkey, and not without one,
// nor if its device doesn't know who uses it.
func TestApproveWithAPasskeyInABrowser(t *testing.T) {
	t.Parallel()
	w := unstartedWorld(t)
	rules, err := policy.Parse([]byte(`
version: 1
mode: cautious
roles: {oncall: {users: [U0ADA]}}
approval: {requires: [{role: oncall}]}
integrations: {ledger: {tools: {close: {tier: 5}}}}
`))
	if err != nil {
		t.Fatal(err)
	}
	w.options.policy = rules
	w.start(t)
	session := w.agent(t, w.token(t, "closer"))
	id := ask(t, session, map[string]any{
		"purpose": "Close the books of 2025", "payload": map[string]any{"year": 2025}, "action": "ledger.close", "environment": "production",
	})
	ctx := browser(t, 390, 844)
	page := w.options.config.URL + "/review?elicitationId=" + id
	var phone device
	var without string
	err = chromedp.Do(ctx,
		phone.plug(true),
		chromedp.EmulateViewport(390, 844, chromedp.EmulateMobile),
		chromedp.Navigate(page),
		signInAs("U0ADA"),
		show(".problem", "you have none yet"),
		picture("tier-5-without"),
		again(read(chromedp.Text(chromedp.CSS("#decide")), &without)),
		press(`.problem a[href="/passkeys"]`),
		show("h1", "Passkeys"),
		called("Phone"),
		press(`button[data-passkey]`),
		show(".passkeys li", "Phone"),
		chromedp.Navigate(page),
		show("#decide", "your passkey"),
		loaded,
		phone.recognizes(false),
		press(`.approve button`),
		show("#decide [role=alert]", "Nothing was signed"),
		picture("tier-5-refused"),
		phone.recognizes(true),
		phone.lies(true),
		press(`.approve button`),
		show("[role=alert]", "That passkey wasn't accepted."),
		phone.lies(false),
		loaded,
		press(`.approve button`),
		show(".stage", "Approved"),
		show(".decisions", "on this page"),
		picture("tier-5-approved"),
		chromedp.Navigate(w.options.config.URL+"/passkeys"),
		show(".passkeys li", "last used"),
	)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(without, "Approve\n") {
		t.Errorf("without a passkey the page offers to approve: %s", without)
	}
	if got := status(t, session, "check_status", id); got != "approved" {
		t.Errorf("the request is %s", got)
	}
}
