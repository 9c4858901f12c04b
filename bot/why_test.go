package bot_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/bot"
	"github.com/countersign/countersign/internal/visible"
)

// Everybody who sees the card can read why it was asked, at any time, and
// nothing changes by it.
func TestWhyAmIAsked(t *testing.T) {
	bothWays(t, func(t *testing.T, how ...func(*world)) {
		w := newWorld(t, how...)
		w.run()
		r := w.ask()
		w.card(r, "Approval needed")
		ask := func(user string) {
			t.Helper()
			before := w.now(r.ID).Revision
			if reply := w.click(user, r, "why"); !reply.OK() {
				t.Errorf("Slack shows %q", reply.Shown)
			}
			view := w.modal(user, "Somebody of oncall has to approve this.")
			if view.SubmitLabel != "" {
				t.Errorf("the window offers %q", view.SubmitLabel)
			}
			got := unwrapped(parts(t, view.Blocks).preformatted)
			if diff := cmp.Diff(unwrapped(w.now(r.ID).Explanation), got); diff != "" {
				t.Errorf("the explanation (-want +got):\n%s", diff)
			}
			if _, err := w.slack.CloseView(w.context(), user, view.ID); err != nil {
				t.Fatal(err)
			}
			if after := w.now(r.ID).Revision; after != before {
				t.Errorf("the request changed from revision %d to %d", before, after)
			}
		}
		ask("U0EVE")
		w.click("U0ADA", r, "approve")
		w.card(r, "Approved")
		ask("U0ALAN")
		w.clock.Advance(time.Hour)
		w.sweep(func() { w.card(r, "Expired") })
		ask("U0ADA")
	})
}

// unwrapped is a text without the places where lines were broken.
func unwrapped(text string) string { return strings.Join(strings.Fields(text), " ") }

func TestWhyIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.run()
	r := w.ask()
	w.card(r, "Approval needed")
	w.click("U0GUEST", r, "why")
	if view := w.modal("U0GUEST", "guests can't decide"); strings.Contains(string(view.Blocks), "crm.delete_records") {
		t.Error("a guest is told of the request")
	}
}

// An explanation fits a phone without losing what belongs to what.
func TestWhyIsBrokenForAPhone(t *testing.T) {
	t.Parallel()
	got := parts(t, viewBlocks(t, bot.WhyView(deletion(func(r *approval.Request) {
		r.Explanation = "- a rule that raises it to tier 4, because the mail leaves\n" +
			"    no: args.to.endsWith(\"@corp.example\") && tier == 4\n" +
			"                                               deep\n" +
			"  " + strings.Repeat("x", 60) + " y\n\nend\n"
	})))).preformatted
	want := "- a rule that raises it to tier 4, because\n" +
		"  the mail leaves\n" +
		"    no: args.to.endsWith(\"@corp.example\") &&\n" +
		"      tier == 4\n" +
		"                                               deep\n" +
		"  " + strings.Repeat("x", 60) + "\n" +
		"    y\n\nend"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// Nothing is cut without saying so, and nothing in it can be taken for markup.
func TestLongAndHostileExplanations(t *testing.T) {
	t.Parallel()
	why := func(text string) blockParts {
		p := parts(t, viewBlocks(t, bot.WhyView(deletion(func(r *approval.Request) { r.Explanation = text }))))
		checkInert(t, p)
		return p
	}
	long := strings.Repeat("- <&> a reason\n", 2000)
	if got := why(long).preformatted; unspaced(got) != unspaced(long) {
		t.Errorf("of %d characters, %d are shown", len(long), len(got))
	}
	if got := why(strings.Repeat(long, 10)).texts; !strings.Contains(strings.Join(got, "\n"), "This is the beginning") {
		t.Error("a cut explanation doesn't say so")
	}
	if got := why(hostile).preformatted; unwrapped(got) != unwrapped(visible.Text(hostile)) {
		t.Errorf("it shows %q", got)
	}
	if got := why(" ").preformatted; got != "Nothing is recorded about this." {
		t.Errorf("without an explanation it shows %q", got)
	}
}
