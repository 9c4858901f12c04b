package policy

import (
	"regexp"
	"strings"
)

// maxAction is how long an action or a pattern may be.
const maxAction = 200

// isActionName reports whether an action looks like one that can be classified.
// Anything else, such as a letter of another alphabet that looks like one of
// these, is unclassified.
func isActionName(action string) bool {
	for _, c := range []byte(action) {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		case c == '_', c == '.', c == '-', c == '/':
		default:
			return false
		}
	}
	return action != "" && len(action) <= maxAction
}

// patternName is what a pattern for actions may look like.
var patternName = regexp.MustCompile(`^[A-Za-z0-9_.\-/*]{1,200}$`)

// pattern matches names; "*" in it stands for any characters, also none.
type pattern string

func (p pattern) isExact() bool { return !strings.Contains(string(p), "*") }

// matches reports whether the whole name fits the pattern. It takes time in
// proportion to the product of their lengths at most.
func (p pattern) matches(name string) bool {
	first, rest, found := strings.Cut(string(p), "*")
	if !found {
		return name == first
	}
	if !strings.HasPrefix(name, first) {
		return false
	}
	name = name[len(first):]
	// What stands between two stars is best taken where it comes first.
	for part := ""; ; {
		if part, rest, found = strings.Cut(rest, "*"); !found {
			return strings.HasSuffix(name, part)
		}
		if _, name, found = strings.Cut(name, part); !found {
			return false
		}
	}
}

// covers reports whether everything that other matches is matched by p: whether
// p matches other with its stars taken as characters that p must have stars for.
func (p pattern) covers(other pattern) bool {
	return p.matches(string(other))
}

// integrationOf splits an action at its first dot; the integration is empty if
// there is none.
func integrationOf(action string) (integration, tool string) {
	before, after, found := strings.Cut(action, ".")
	if !found {
		return "", action
	}
	return before, after
}
