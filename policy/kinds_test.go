package policy_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/countersign/countersign/policy"
)

// A value of another kind isn't made to fit, since what was meant may be more
// careful than what fits.
func TestValuesOfAnotherKind(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ was, written, want string }{
		{"role: sre, count: 2", "role: sre, count: 2.9", `[11:54] tiers.5.requires[1].count: "2.9"; a whole number in digits is accepted`},
		{"role: sre, count: 2", "role: sre, count: 02", `[11:54] tiers.5.requires[1].count: "02"; a whole number in digits is accepted`},
		{"role: sre, count: 2", "role: sre, count: 0x2", `[11:54] tiers.5.requires[1].count: "0x2"; a whole number in digits is accepted`},
		{"role: sre, count: 2", `role: sre, count: "2"`, `[11:54] tiers.5.requires[1].count: "2"; a whole number in digits is accepted`},
		{"role: sre, count: 2", "role: sre, count: ", `[11:53] tiers.5.requires[1].count: has no value; leave it out or give it one`},
		{"over: 25", "over: 1_000", `[12:15] bulk[0].over: "1_000"; a number in digits is accepted`},
		{"over: 25", "over: .inf", `[12:15] bulk[0].over: ".inf"; a number in digits is accepted`},
		{"get_*: {tier: 1}", "get_*: {tier: 1.5}", `[19:21] integrations.crm.tools.get_*.tier: "1.5"; a whole number in digits is accepted`},
		{"why: It comes back.", "why: ~", `why: has no value; leave it out or give it one`},
		{"why: It comes back.", "why: 12", `why: 12 is not text; quote it if it is meant as such`},
		{"why: It comes back.", "why: 1e3", `why: 1e3 is not text; quote it if it is meant as such`},
		{"first_use: {of: [tool]}", "first_use: {of: [tool], within: 720}", `[13:33] first_use.within: has no unit; a time is written like 15m`},
		{"finance: {users: [U0FIN1]}", "finance: {users: [U0FIN1], self_approval: yes}", `[6:45] roles.finance.self_approval: "yes"; true and false are accepted`},
		{"redact: {keys: [password]}", "redact:", `[26:9] redact: has no value; leave it out or give it one`},
		{"version: 1", "version: 1 # \xff", "the file isn't in UTF-8"},
	} {
		t.Run(test.written, func(t *testing.T) {
			t.Parallel()
			if !strings.Contains(example, test.was) {
				t.Fatalf("the example doesn't contain %q", test.was)
			}
			_, err := policy.Parse([]byte(strings.Replace(example, test.was, test.written, 1)))
			if err == nil || !strings.HasSuffix(err.Error(), test.want) {
				t.Errorf("got\n%v\nwant\n%s", err, test.want)
			}
		})
	}
}

func TestValuesOfAnotherKindInCases(t *testing.T) {
	t.Parallel()
	_, err := policy.ParseCases([]byte("cases:\n  - name: 5\n    action: a.b\n    count: 1.5\n    args:\n    reversible: no\n    expect: {effect: deny, tier: \"1\", rules: }\n"))
	want := `[2:11] cases[0].name: 5 is not text; quote it if it is meant as such
[4:12] cases[0].count: "1.5"; a whole number in digits is accepted
[5:10] cases[0].args: has no value; leave it out or give it one
[6:17] cases[0].reversible: "no"; true and false are accepted
[7:34] cases[0].expect.tier: "1"; a whole number in digits is accepted
[7:45] cases[0].expect.rules: has no value; leave it out or give it one`
	if err == nil {
		t.Fatal("accepted")
	}
	if diff := cmp.Diff(want, err.Error()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// What is written in one of the ways that YAML has for text is text.
func TestValuesOfTheirKind(t *testing.T) {
	t.Parallel()
	for _, written := range []string{`why: "12"`, `why: '12'`, "why: yes", "why: 12 apples", "why: 2026-03-02", "why: 10.0.0.1"} {
		if p := edited(t, "why: It comes back.", written); p == nil {
			t.Errorf("%s is refused", written)
		}
	}
	edited(t, "over: 25", "over: 25.5")
	edited(t, "Nothing is dropped.}", "Nothing is dropped.}\n  - id: folded\n    actions: [x.y]\n    why: >-\n      1\n")
}
