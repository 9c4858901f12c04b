package presentation_test

import (
	"testing"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/approval/presentation"
	"github.com/countersign/countersign/policy"
)

// What the policy counted stands beside what the agent states, if it is more.
func TestCount(t *testing.T) {
	t.Parallel()
	const none = -1
	for _, test := range []struct {
		name                string
		stated, ruled       float64
		payload             string
		fact, phrase, short string
	}{
		{"nothing", none, none, `{}`, "not stated", "", "not stated"},
		{"stated", 3, 3, `{}`, "3 stated", " on 3 records", "3"},
		{"stated more than counted", 3, 3, `{"n":2}`, "3 stated", " on 3 records", "3"},
		{"counted more than stated", 214, 5000, `{"n":5000}`, "⚠️ 214 stated · 5,000 counted by the policy", " on 214 stated, 5,000 records counted", "⚠️ 214 stated · 5,000 counted"},
		{"counted alone", none, 5000, `{"n":5000}`, "5,000 counted by the policy", " on 5,000 records", "5,000"},
		{"counted as listed", none, 2, `{"ids":[1,2]}`, `2 (ids in the arguments)`, " on 2 records", "2"},
		{"counted more than listed", 2, 9, `{"ids":[1,2]}`, `⚠️ 2 stated · 2 listed (ids) · 9 counted by the policy`, " on 2 stated, 9 records counted", "⚠️ 2 stated · 9 counted"},
		{"listed more than stated", 1, 2, `{"ids":[1,2]}`, `⚠️ 1 stated · 2 listed (ids)`, " on 1 stated, 2 records listed", "⚠️ 1 stated · 2 listed"},
		{"counted is no whole number", none, 2.5, `{}`, "not stated", "", "not stated"},
		{"counted is too large to be exact", none, 1e300, `{}`, "not stated", "", "not stated"},
	} {
		r := &approval.Request{Payload: approval.Payload(test.payload)}
		if test.stated != none {
			n := int64(test.stated)
			r.StatedCount = &n
		}
		if test.ruled != none {
			r.Ruling.Count = policy.Quantity{Value: test.ruled, Known: true}
		}
		fact := ""
		for _, one := range presentation.NewFacts(r, presentation.Limits{}).List() {
			if one.Name == "Count" {
				fact = one.Value.String()
			}
		}
		_, phrase := presentation.Phrase(r)
		if short := presentation.ShortCount(r); fact != test.fact || phrase != test.phrase || short != test.short {
			t.Errorf("%s: %q, %q, %q; want %q, %q, %q", test.name, fact, phrase, short, test.fact, test.phrase, test.short)
		}
	}
}
