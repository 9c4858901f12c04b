package policy

import "strings"

// Summary counts what a policy says, so that people can tell that it is the one
// they mean.
type Summary struct {
	Mode         string
	Integrations int
	Tools        int // names and patterns that are classified
	Blocks       int
	Rules        int
	Roles        int
}

// Summary counts what the policy says.
func (p *Policy) Summary() Summary {
	return Summary{
		Mode:         p.mode.name,
		Integrations: len(p.integrations),
		Tools:        len(p.stanzas()),
		Blocks:       len(p.source.Block),
		Rules:        len(p.source.Rules),
		Roles:        len(p.roles),
	}
}

// String is the summary on one line: "mode cautious, 14 tools, 1 block, 3
// rules, 2 roles".
func (s Summary) String() string {
	return strings.Join([]string{
		"mode " + s.Mode,
		plural(s.Tools, "tool"),
		plural(s.Blocks, "block"),
		plural(s.Rules, "rule"),
		plural(s.Roles, "role"),
	}, ", ")
}
