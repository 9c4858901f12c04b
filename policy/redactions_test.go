package policy_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/countersign/countersign/policy"
)

func TestHide(t *testing.T) {
	t.Parallel()
	r := policy.Redactions{
		Keys:  []string{"password", "x-api-key"},
		Paths: []string{"/customer/card", "/rows/*/iban", "/a~1b/m~0n", "/list/0", "/empty/", "/*/deep"},
	}
	for path, want := range map[string]bool{ // segments with | between them
		"":                    false,
		"password":            true,
		"PassWord":            true,
		"password2":           false,
		"a password":          false,
		"deep|down|password":  true,
		"password|inside":     true, // what stands under it
		"0|password":          true,
		"X-API-Key":           true,
		"customer":            false, // only a part of it is hidden
		"customer|card":       true,
		"customer|card|digit": true,
		"customer|Card":       false, // paths are with case
		"the|customer|card":   false,
		"rows|0|iban":         true,
		"rows|17|iban":        true,
		"rows|name|iban":      true, // any member too
		"rows|iban":           false,
		"rows|0|1|iban":       false,
		"a/b|m~n":             true,
		"a~1b|m~0n":           false,
		"list|0":              true,
		"list|1":              false,
		"anything|deep":       true,
		"empty":               false,
		"empty|":              true, // the key without a character
	} {
		var segments []string
		if path != "" {
			segments = strings.Split(path, "|")
		}
		if got := r.Hide(segments); got != want {
			t.Errorf("%q: %t, want %t", segments, got, want)
		}
	}
}

func TestNothingIsHiddenByNoRedactions(t *testing.T) {
	t.Parallel()
	var none policy.Redactions
	if !none.IsZero() || none.Hide([]string{"password"}) || none.Hide(nil) {
		t.Error("no redactions hide something")
	}
	if (policy.Redactions{Keys: []string{"a"}}).IsZero() || (policy.Redactions{Paths: []string{"/a"}}).IsZero() {
		t.Error("redactions are said to be none")
	}
}

// What is hidden stays hidden further inside.
func TestHiddenInside(t *testing.T) {
	t.Parallel()
	segment := rapid.SampledFrom([]string{"a", "b", "0", "", "a/b", "~", "A"})
	rapid.Check(t, func(t *rapid.T) {
		var r policy.Redactions
		for range rapid.IntRange(0, 2).Draw(t, "paths") {
			var pointer strings.Builder
			for _, one := range rapid.SliceOfN(segment, 1, 3).Draw(t, "path") {
				pointer.WriteString("/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(one))
			}
			r.Paths = append(r.Paths, pointer.String())
		}
		r.Keys = rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b"}), 0, 1).Draw(t, "keys")
		path := rapid.SliceOfN(segment, 0, 4).Draw(t, "of")
		if r.Hide(path) && !r.Hide(append(path, segment.Draw(t, "inside"))) {
			t.Fatalf("%+v hides %q and not what is inside", r, path)
		}
	})
}

// A tool's redactions join the policy's, each pointer once, in order.
func TestRedactionsOfARuling(t *testing.T) {
	t.Parallel()
	p := mustParse(t, smallest+`
integrations:
  crm:
    tools:
      "*": {tier: 1, redact: [/z, /customer/card]}
      get_*: {tier: 1, redact: [/a, /customer/card]}
      get_exactly: {tier: 1, redact: [/only]}
redact: {keys: [Token, PASSWORD, token], paths: [/customer/iban]}
`)
	for action, want := range map[string]policy.Redactions{
		"crm.get_contact": {Keys: []string{"password", "token"}, Paths: []string{"/a", "/customer/card", "/customer/iban", "/z"}},
		"crm.list":        {Keys: []string{"password", "token"}, Paths: []string{"/customer/card", "/customer/iban", "/z"}},
		"crm.get_exactly": {Keys: []string{"password", "token"}, Paths: []string{"/customer/iban", "/only"}},
		"other.tool":      {Keys: []string{"password", "token"}, Paths: []string{"/customer/iban"}},
	} {
		if diff := cmp.Diff(want, p.Rule(policy.Call{Action: action}).Redactions); diff != "" {
			t.Errorf("%s (-want +got):\n%s", action, diff)
		}
	}
}
