package policy

import (
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestPattern(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		pattern pattern
		name    string
		want    bool
	}{
		{"get", "get", true},
		{"get", "get_", false},
		{"get", "GET", false},
		{"", "", true},
		{"*", "", true},
		{"*", "anything.at/all", true},
		{"get_*", "get_", true},
		{"get_*", "get_contact", true},
		{"get_*", "get", false},
		{"*_all", "delete_all", true},
		{"*_all", "delete_all_", false},
		{"*.drop_*", "crm.drop_table", true},
		{"*.drop_*", "crm.v2.drop_table", true},
		{"*.drop_*", "drop_table", false},
		{"a*a", "a", false},
		{"a*a", "aa", true},
		{"a*b*c", "a_b_b_c", true},
		{"a*b*c", "acb", false},
		{"a**b", "ab", true},
		{"***", "x", true},
		// The characters of regular expressions are characters.
		{"a.b", "axb", false},
		{"a.b*", "a.b+", true},
		{"[a]*", "a", false},
	} {
		if got := test.pattern.matches(test.name); got != test.want {
			t.Errorf("%q matches %q: %t", test.pattern, test.name, got)
		}
	}
}

// drawName draws few different characters, so that patterns meet names.
func drawName(t *rapid.T, characters string) string {
	return rapid.StringOfN(rapid.SampledFrom([]rune(characters)), 0, 6, -1).Draw(t, characters)
}

func TestPatternIsARegularExpression(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p, name := drawName(t, "ab.*"), drawName(t, "ab.")
		same := regexp.MustCompile("^" + strings.ReplaceAll(regexp.QuoteMeta(p), `\*`, ".*") + "$")
		if got, want := pattern(p).matches(name), same.MatchString(name); got != want {
			t.Fatalf("%q matches %q: %t, want %t", p, name, got, want)
		}
	})
}

func TestPatternCovers(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p, other, name := pattern(drawName(t, "ab.*")), pattern(drawName(t, "ba.*")), drawName(t, "ab.")
		if !p.covers(p) {
			t.Fatalf("%q doesn't cover itself", p)
		}
		if p.covers(other) && other.matches(name) && !p.matches(name) {
			t.Fatalf("%q covers %q, which matches %q, which it doesn't", p, other, name)
		}
	})
}

// A pattern that would take a backtracking matcher forever.
func TestPatternDoesNotBacktrack(t *testing.T) {
	t.Parallel()
	if pattern(strings.Repeat("a*", 100) + "b").matches(strings.Repeat("a", 199) + "c") {
		t.Error("it matches")
	}
}

func TestIntegrationOf(t *testing.T) {
	t.Parallel()
	for action, want := range map[string][2]string{
		"crm.get":          {"crm", "get"},
		"crm.contacts.get": {"crm", "contacts.get"},
		"crm.":             {"crm", ""},
		".get":             {"", "get"},
		"get":              {"", "get"},
		"":                 {"", ""},
		"acme/crm.get":     {"acme/crm", "get"},
	} {
		if integration, tool := integrationOf(action); integration != want[0] || tool != want[1] {
			t.Errorf("%q is %q of %q", action, tool, integration)
		}
	}
}

func TestActionNames(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{
		"crm.get_Contact-2/v1":   true,
		"":                       false,
		"crm.get contact":        false,
		"crm.get\n":              false,
		"crm.get\x00":            false,
		"crm.gеt":                false, // with a Cyrillic е
		"crm.ｇｅｔ":                false, // full width
		"crm.get\u200b":          false, // zero-width space
		"\u212Arm.get":           false, // the sign for Kelvin
		"crm.*":                  false,
		strings.Repeat("a", 200): true,
		strings.Repeat("a", 201): false,
		"crm.get\xff":            false,
		"crm.get?x=1":            false,
		"crm.get\u202eteg":       false, // turned around
	} {
		if got := isActionName(name); got != want {
			t.Errorf("%q: %t", name, got)
		}
	}
}

// The index finds the same rules as asking each of them.
func TestIndexFindsAllRules(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var found index
		var all []*rule
		for range rapid.IntRange(0, 8).Draw(t, "rules") {
			r := &rule{kind: lowers}
			for range rapid.IntRange(0, 3).Draw(t, "patterns") {
				r.patterns = append(r.patterns, pattern(drawName(t, "ab.*")))
			}
			all = append(all, r)
			found.add(r)
		}
		for range 20 {
			name := drawName(t, "ab.")
			times := make(map[*rule]int)
			found.each(name, func(r *rule) { times[r]++ })
			for _, r := range all {
				want := 0
				if r.about(name) {
					want = 1
				}
				if times[r] != want {
					t.Fatalf("the rule about %q was found %d times for %q, want %d", r.patterns, times[r], name, want)
				}
			}
		}
	})
}
