package bot_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/bot"
)

// What Details says that it shows is what it shows: Slack counts some
// characters as five.
func TestPartialDetailsCount(t *testing.T) {
	t.Parallel()
	shown := func(r *approval.Request) (says, arguments string) {
		view, whole := bot.Details(r)
		if whole {
			t.Fatal("all of it is shown")
		}
		var modal struct{ Blocks json.RawMessage }
		if err := json.Unmarshal(view, &modal); err != nil {
			t.Fatal(err)
		}
		p := parts(t, modal.Blocks)
		for _, text := range p.texts {
			if strings.Contains(text, "too large to review") {
				says = text
			}
		}
		return says, p.preformatted
	}
	says, arguments := shown(deletion(payload(`["` + strings.Repeat("&", 60_000) + `"]`)))
	if !strings.HasPrefix(says, "Showing 4,004 of 60,008 characters of the arguments. ") {
		t.Errorf("the modal says %q", says)
	}
	if n := strings.Count(arguments, "&"); n != 3999 || !strings.HasSuffix(arguments, "&…") {
		t.Errorf("the modal shows %d characters and ends in %q", n, arguments[len(arguments)-10:])
	}
	says, arguments = shown(deletion(payload(`{"a": 1}`), func(r *approval.Request) { r.Target = strings.Repeat("t", 10*approval.MaxTarget+1) }))
	if !strings.HasPrefix(says, "This is too large") || arguments != `{"a": 1}` {
		t.Errorf("of a long target, the modal says %q and shows %q", says, arguments)
	}
}
