package bot_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/bot"
	"github.com/countersign/countersign/policy"
)

// The list that counts isn't hidden by shorter ones before it, and none of its
// names stands as our own words.
func TestLongestListIsNamedFirst(t *testing.T) {
	t.Parallel()
	r := deletion(decoys)
	view, _ := bot.Details(r)
	var modal struct{ Blocks json.RawMessage }
	if err := json.Unmarshal(view, &modal); err != nil {
		t.Fatal(err)
	}
	for name, blocks := range map[string]json.RawMessage{"card": bot.Card(r).Blocks, "details": modal.Blocks} {
		p := parts(t, blocks)
		text := strings.Join(p.texts, "")
		if want := "⚠️ 1 stated · 214 listed (customers) · approved), 1 listed (a), 1 listed (b)"; !strings.Contains(text, want) {
			t.Errorf("the %s doesn't say %q: %s", name, want, text)
		}
		if !slices.Contains(p.code, "customers) · approved") {
			t.Errorf("the %s has only this as code: %q", name, p.code)
		}
	}
	if text := strings.Join(parts(t, bot.Minimal(r).Blocks).texts, ""); !strings.Contains(text, "⚠️ 1 stated · 214 listed") {
		t.Errorf("the minimal card doesn't warn: %s", text)
	}
	if text := strings.Join(parts(t, bot.Card(r).Blocks).texts, "\n"); !strings.Contains(text, "crm.delete_records on 1 stated, 214 records listed · production.") {
		t.Errorf("the confirmation doesn't say the longest list's length: %s", text)
	}
}

// Words that are spelled in escapes are warned of; what encoders escape isn't.
func TestEscapedLettersAreNamed(t *testing.T) {
	t.Parallel()
	const badge = "⚠️ Escaped letters in arguments: "
	for text, want := range map[string]string{
		`{"command": "\u0072\u006d -rf"}`:            badge + `\u0072 is r`,
		`{"\u0064elete": "\n\u0039"}`:                badge + `\u0064 is d`,
		`{"a": "\\\u0039"}`:                          badge + `\u0039 is 9`,
		`"\u0041"`:                                   badge + `\u0041 is A`,
		`{"a": "\\u0072m"}`:                          "",
		`{"a": "\u003cb\u003e\u0026\t\u0000\u00e9"}`: "",
		`{"a": "\\"}`:                                "",
	} {
		said := strings.Join(parts(t, bot.Card(deletion(payload(text))).Blocks).texts, "")
		if want == "" {
			want = "⚠️ Escaped"
			if strings.Contains(said, want) {
				t.Errorf("%s is warned of: %s", text, said)
			}
		} else if !strings.Contains(said, want) {
			t.Errorf("%s: the card doesn't say %q: %s", text, want, said)
		}
	}
}

func TestNotificationStandsAlone(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		r    *approval.Request
		want string
	}{
		{"pending", deletion(), "Approval needed (production): crm.delete_records on 214 records. Expires 03:35 UTC."},
		{"the next day", deletion(func(r *approval.Request) { r.ExpiresAt = asked.Add(22 * time.Hour) }), "Approval needed (production): crm.delete_records on 214 records. Expires 2 Dec 00:35 UTC."},
		{"one", deletion(payload(`{"ids": [1]}`)), "Approval needed (production): crm.delete_records on 1 record. Expires 03:35 UTC."},
		{"a thousand", deletion(payload(`{"a": 1}`), func(r *approval.Request) { r.StatedCount = pointer[int64](1000) }), "Approval needed (production): crm.delete_records on 1,000 records. Expires 03:35 UTC."},
		{"contradicted", deletion(ids(214), func(r *approval.Request) { r.StatedCount = pointer[int64](1) }), "Approval needed (production): crm.delete_records on 1 stated, 214 records listed. Expires 03:35 UTC."},
		{"hidden behind shorter lists", deletion(decoys), "Approval needed (production): crm.delete_records on 1 stated, 214 records listed. Expires 03:35 UTC."},
		{"a list as long as stated", deletion(payload(`{"a": [1], "b": [1, 2]}`), func(r *approval.Request) { r.StatedCount = pointer[int64](2) }), "Approval needed (production): crm.delete_records on 2 records. Expires 03:35 UTC."},
		{"an environment that is a sentence", deletion(func(r *approval.Request) { r.Environment = "prod, reviewed already" }), "Approval needed (unusual environment): crm.delete_records on 214 records. Expires 03:35 UTC."},
		{"the longest environment", deletion(func(r *approval.Request) { r.Environment = "eu-central-1_prod.blue-42"[:24] }), "Approval needed (eu-central-1_prod.blue-4): crm.delete_records on 214 records. Expires 03:35 UTC."},
		{"a longer environment", deletion(func(r *approval.Request) { r.Environment = "eu-central-1_prod.blue-42" }), "Approval needed (unusual environment): crm.delete_records on 214 records. Expires 03:35 UTC."},
		{"no environment", deletion(func(r *approval.Request) { r.Environment = "" }), "Approval needed (production, not stated): crm.delete_records on 214 records. Expires 03:35 UTC."},
		{"half", deletion(twoOf, vote(ada, approval.Approve, "oncall", "")), "1 of 2 approved (production): crm.delete_records on 214 records. Expires 03:35 UTC."},
		{"rejected", deletion(vote(grace, approval.Reject, "oncall", "no")), "Rejected (production): crm.delete_records on 214 records."},
		{"expired", deletion(expired), "Expired before a decision (production): crm.delete_records on 214 records."},
		{"inert", deletion(func(r *approval.Request) { r.Action = "<!channel> & all" }), "Approval needed (production): &lt;!channel&gt; &amp; all on 214 records. Expires 03:35 UTC."},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			got := bot.Card(test.r).Text
			if got != test.want {
				t.Errorf("got  %q\nwant %q", got, test.want)
			}
			if n := utf8.RuneCountInString(got); n > 150 {
				t.Errorf("it has %d characters, too many for a lock screen", n)
			}
		})
	}
}

// Why somebody is asked stands on the card in short: the reasons in the order in
// which they lead to the tier.
func TestWhyAskedIsShort(t *testing.T) {
	t.Parallel()
	for want, r := range map[string]*approval.Request{
		"Why asked  Tier 4, destructive. No rule classifies this action, so a person decides.\n":                                                                  deletion(),
		"Why asked  crm.delete_records is tier 2, internal write, which mode strict leaves to a person.\n":                                                        deletion(tier(policy.TierInternalWrite, "strict")),
		"Why asked  crm.delete_records is tier 3, external-facing. The count, 214, is more than 25. The mail leaves the company. So it is tier 4, destructive.\n": deletion(raised),
		"Why asked  crm.delete_records is tier 3, external-facing. The count, 214, is more than 25. Third. And 2 more reasons. So it is tier 4, destructive.\n": deletion(raised, func(r *approval.Request) {
			r.Ruling.Rules = append(r.Ruling.Rules[:2], policy.FiredRule{Why: "Third."}, policy.FiredRule{Why: "Fourth."}, policy.FiredRule{Why: "Fifth."})
		}),
		"Why asked  Tier 4, destructive.\n": deletion(func(r *approval.Request) { r.Ruling.Rules = nil }),
	} {
		card := bot.Card(r)
		if said := strings.Join(parts(t, card.Blocks).texts, ""); !strings.Contains(said, want) {
			t.Errorf("the card doesn't say %q: %s", want, said)
		}
		// What the policy says at length doesn't take Approve away: all of it is
		// behind the button beside.
		if p := parts(t, card.Blocks); !p.has("approve") || !p.has("why") {
			t.Errorf("the card has the buttons %v", p.actions)
		}
	}
}
