package policy_test

import (
	"encoding/xml"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/countersign/countersign/policy"
)

// Each thing that a case can expect is compared: a case that is right passes,
// and one that is wrong in it says what is.
func TestExpectations(t *testing.T) {
	t.Parallel()
	p := mustParse(t, example)
	const refund = "action: crm.refund, args: {amount: 1500.5, password: [a, {b: c}], customer: {card: '4242', name: n, keys: {}}}, "
	for _, test := range []struct {
		name  string
		call  string // of the case
		right string // what it expects
		wrong string
		want  []policy.Mismatch // of the wrong one
	}{
		{"effect", "action: crm.get_contact, ", "effect: allow", "effect: deny", []policy.Mismatch{{What: "effect", Want: "deny", Got: "allow"}}},
		{"tier", "action: crm.get_contact, ", "effect: allow, tier: 1", "effect: allow, tier: 2", []policy.Mismatch{{What: "tier", Want: "tier 2, internal write", Got: "tier 1, read"}}},
		{"class", "action: crm.get_contact, ", "effect: allow, class: crm.get_*", "effect: allow, class: unclassified", []policy.Mismatch{{What: "class", Want: "unclassified", Got: "crm.get_*"}}},
		{
			"rules in any order", "action: crm.send_email, count: 26, args: {to: a@b}, ", "effect: require_approval, rules: [external-mail, bulk]", "effect: require_approval, rules: [bulk]",
			[]policy.Mismatch{{What: "rules", Want: "bulk", Got: "bulk, external-mail"}},
		},
		{"no rules", "action: crm.send_email, args: {to: a@corp.example}, ", "effect: allow, rules: []", "effect: allow, rules: [bulk]", []policy.Mismatch{{What: "rules", Want: "bulk", Got: "none"}}},
		{
			"people in any order", refund, "effect: require_approval, requires: [{role: sre, count: 2}, {role: finance}]", "effect: require_approval, requires: [{role: finance}]",
			[]policy.Mismatch{{What: "requires", Want: "1 of finance", Got: "1 of finance and 2 of sre"}},
		},
		{"nobody", "action: crm.get_contact, ", "effect: allow, requires: []", "effect: allow, requires: [{role: sre}]", []policy.Mismatch{{What: "requires", Want: "1 of sre", Got: "nobody"}}},
		{"count", "action: crm.get_contact, count: 2, ", "effect: allow, count: 2", "effect: allow, count: 3", []policy.Mismatch{{What: "count", Want: "3", Got: "2"}}},
		{"unknown count", "action: crm.get_contact, ", "effect: allow, count: unknown", "effect: allow, count: 0", []policy.Mismatch{{What: "count", Want: "0", Got: "unknown"}}},
		{"unbounded count", "action: crm.delete_contact, ", "effect: require_approval, count: unbounded", "effect: require_approval, count: unknown", []policy.Mismatch{{What: "count", Want: "unknown", Got: "unbounded"}}},
		{"amount", refund, "effect: require_approval, amount: 1500.5", "effect: require_approval, amount: 1500", []policy.Mismatch{{What: "amount", Want: "1,500", Got: "1,500.5"}}},
		{
			"what is hidden", refund, "effect: require_approval, redacted: [/password/0, /password/1/b, /customer/card]", "effect: require_approval, redacted: [/customer/card]",
			[]policy.Mismatch{{What: "redacted", Want: "/customer/card", Got: "/customer/card, /password/0, /password/1/b"}},
		},
		{
			"several", "action: crm.get_contact, ", "effect: allow, tier: 1, amount: unknown", "effect: require_approval, tier: 2, amount: unbounded",
			[]policy.Mismatch{{What: "effect", Want: "require_approval", Got: "allow"}, {What: "tier", Want: "tier 2, internal write", Got: "tier 1, read"}, {What: "amount", Want: "unbounded", Got: "unknown"}},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			report := p.Test(mustParseCases(t, "cases:\n  - {name: right, "+test.call+"expect: {"+test.right+"}}\n  - {name: wrong, "+test.call+"expect: {"+test.wrong+"}}\n"))
			if !report.Results[0].Passed() {
				t.Errorf("%s: %v", test.right, report.Results[0].Mismatches)
			}
			if diff := cmp.Diff(test.want, report.Results[1].Mismatches); diff != "" {
				t.Errorf("%s: -want +got:\n%s", test.wrong, diff)
			}
			if report.Failed() != 1 {
				t.Errorf("%d failed, want 1", report.Failed())
			}
		})
	}
}

// reported are cases of which some fail, in two files.
func reported(t *testing.T) policy.Report {
	t.Helper()
	cases := mustParseCases(t, `cases:
  - {name: Reading runs, action: crm.get_contact, expect: {effect: allow, tier: 1}}
  - name: A bulk delete in production needs finance and sre, and its name is longer than a table is wide
    action: crm.delete_contacts
    args: {ids: [1, 2]}
    expect: {effect: require_approval, tier: 5, rules: [bulk], requires: [{role: finance}, {role: sre}]}
  - {name: 連絡先を削除する, action: crm.delete_contacts, environment: stage, args: {ids: [1]}, expect: {effect: allow, rules: [staging-ease]}}
`)
	more := mustParseCases(t, `cases:
  - {name: Nothing is dropped, action: crm.drop_table, expect: {effect: deny}}
  - {name: "A name with \e[31mcolours\u202e", action: crm.send_email, args: {to: x@y}, first_use: [tool], expect: {effect: require_approval, rules: [external-mail, first-use]}}
`)
	for i := range cases {
		cases[i].File = "crm.test.yaml"
	}
	for i := range more {
		more[i].File = "more/other.test.yaml"
	}
	return mustParse(t, example).Test(append(cases, more...))
}

func TestReport(t *testing.T) {
	t.Parallel()
	golden(t, "report/table.txt", reported(t).String())
}

func TestReportOfNoCases(t *testing.T) {
	t.Parallel()
	golden(t, "report/empty.txt", mustParse(t, example).Test(nil).String())
}

func TestJUnit(t *testing.T) {
	t.Parallel()
	got, err := reported(t).JUnit()
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "report/junit.xml", string(got))
	var suites struct {
		Tests    int `xml:"tests,attr"`
		Failures int `xml:"failures,attr"`
		Suites   []struct {
			Cases []struct {
				Failure *struct{} `xml:"failure"`
			} `xml:"testcase"`
		} `xml:"testsuite"`
	}
	if err := xml.Unmarshal(got, &suites); err != nil {
		t.Fatal(err)
	}
	cases, failures := 0, 0
	for _, suite := range suites.Suites {
		for _, one := range suite.Cases {
			cases++
			if one.Failure != nil {
				failures++
			}
		}
	}
	if suites.Tests != cases || suites.Failures != failures || cases != 5 || failures != 1 {
		t.Errorf("%d tests and %d failures are stated, %d and %d are there", suites.Tests, suites.Failures, cases, failures)
	}
}

// Whatever cases are called, a report stays one that a terminal and a reader of
// XML can take.
func TestReportOfUnsafeNames(t *testing.T) {
	t.Parallel()
	p := mustParse(t, example)
	for _, name := range []string{"\x1b[2J", "\x00", "\xff", strings.Repeat("e\u0301", 200), strings.Repeat("漢", 200), "</testcase>", "\u202e"} {
		report := p.Test([]policy.Case{{File: name, Name: name, Call: policy.Call{Action: name, Payload: []byte(name)}, Want: policy.Expectation{Effect: policy.Effect(name)}}})
		if text := report.String(); strings.ContainsAny(text, "\x1b\x00\u202e") {
			t.Errorf("%q is shown as it is:\n%s", name, text)
		}
		text, err := report.JUnit()
		if err != nil {
			t.Fatal(err)
		}
		if err := xml.Unmarshal(text, new(struct{})); err != nil {
			t.Errorf("%q: %v\n%s", name, err, text)
		}
	}
}
