package bot_test

import (
	"strings"
	"testing"

	"github.com/countersign/countersign/approval"
)

// Until it is used, whoever may approve can take an approval back on the card.
func TestRevokeApproval(t *testing.T) {
	bothWays(t, func(t *testing.T, how ...func(*world)) {
		w := newWorld(t, how...)
		w.run()
		r := w.ask()
		w.card(r, "Approval needed")
		w.click("U0ADA", r, "approve")
		card := w.card(r, "Approved, waiting to be applied")
		old := w.payload("U0ADA", card, "revoke_approval")
		w.click("U0EVE", r, "revoke_approval")
		w.told("U0EVE", "Only somebody of oncall can revoke this. You are not in it")
		w.is(r, approval.Approved)
		if reply := w.click("U0GRACE", r, "revoke_approval"); !reply.OK() {
			t.Errorf("Slack shows %q", reply.Shown)
		}
		w.is(r, approval.Rejected)
		card = w.card(r, "Approval revoked, will not run")
		if text := said(t, card.Blocks); !strings.Contains(text, "Revoked by <@U0GRACE>") {
			t.Errorf("the card says %s", text)
		}
		if p := parts(t, card.Blocks); p.has("revoke_approval") {
			t.Errorf("the card has the buttons %v", p.actions)
		}
		if _, err := w.slack.Deliver(w.context(), old); err != nil {
			t.Fatal(err)
		}
		w.told("U0ADA", "Nothing changed. The approval was revoked by <@U0GRACE>")
	})
}

// What is too large for Slack leads to the page where all of it can be read and
// decided, if there is one.
func TestLargeRequestsLeadToThePage(t *testing.T) {
	bothWays(t, func(t *testing.T, how ...func(*world)) {
		large := func(p *approval.Proposal) {
			p.Payload = []byte(`{"ids":["` + strings.Repeat(`x","`, 60_000) + `x"]}`)
		}
		w := newWorld(t, append(how, func(w *world) {
			w.options.ReviewURL = func(id approval.ID) string { return "https://approvals.example.com/review?elicitationId=" + string(id) }
		})...)
		w.run()
		r := w.ask(large)
		card := w.card(r, "Approval needed")
		if text := said(t, card.Blocks); !strings.Contains(text, "The review page has all of it, and Approve is there.") {
			t.Errorf("the card says %s", text)
		}
		p := parts(t, card.Blocks)
		if !p.has("open_page") || p.has("approve") || !strings.Contains(string(card.Blocks), `"url":"https://approvals.example.com/review?elicitationId=`+string(r.ID)+`"`) {
			t.Errorf("the card has the buttons %v", p.actions)
		}
		if reply := w.click("U0ADA", r, "open_page"); !reply.OK() {
			t.Errorf("Slack shows %q", reply.Shown)
		}
		w.click("U0ADA", r, "details")
		if view := w.modal("U0ADA", "The review page has all of it."); !parts(t, view.Blocks).has("open_page") {
			t.Error("the details don't lead to the page")
		}
		w.is(r, approval.Pending)
		small := w.ask()
		if p := parts(t, w.card(small, "Approval needed").Blocks); p.has("open_page") || !p.has("approve") {
			t.Errorf("a small one has the buttons %v", p.actions)
		}
	})
}
