package policy

import (
	"regexp"
	"strings"
)

// actionName is what an action may look like to be classified. Anything else,
// such as a letter of another alphabet that looks like one of these, is
// unclassified.
var actionName = regexp.MustCompile(`^[A-Za-z0-9_.\-/]{1,200}$`)

// patternName is what a pattern for actions may look like.
var patternName = regexp.MustCompile(`^[A-Za-z0-9_.\-/*]{1,200}$`)

// pattern matches names; "*" in it stands for any characters, also none.
type pattern string

func (p pattern) isExact() bool { return !strings.Contains(string(p), "*") }

// matches reports whether the whole name fits the pattern. It takes time in
// proportion to the product of their lengths at most.
func (p pattern) matches(name string) bool {
	parts := strings.Split(string(p), "*")
	if len(parts) == 1 {
		return name == parts[0]
	}
	first, last := parts[0], parts[len(parts)-1]
	if len(name) < len(first)+len(last) || !strings.HasPrefix(name, first) || !strings.HasSuffix(name, last) {
		return false
	}
	rest := name[len(first) : len(name)-len(last)]
	for _, part := range parts[1 : len(parts)-1] {
		_, after, found := strings.Cut(rest, part)
		if !found {
			return false
		}
		rest = after
	}
	return true
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
