package policy

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
)

// PolicyChange is one part of a policy that differs.
type PolicyChange struct {
	What string `json:"what"` // "rule external-mail", "tool crm.get_*"
	How  string `json:"how"`  // "added", "removed" or "changed"
	// Keys are what of a changed part differs.
	Keys []KeyChange `json:"keys,omitempty"`
}

// KeyChange is a key of a policy with its two values, as YAML on one line; empty
// where the key isn't written.
type KeyChange struct {
	Key    string `json:"key"`
	Before string `json:"before"`
	After  string `json:"after"`
}

// changesOf lists the parts in which two files differ.
func changesOf(old, changed document) []PolicyChange {
	before, after := partsOf(old), partsOf(changed)
	was, is := byName(before), byName(after)
	changes := []PolicyChange{} // a list also where nothing differs
	for _, part := range before {
		now, kept := is[part.name]
		switch {
		case !kept:
			changes = append(changes, PolicyChange{What: part.name, How: "removed"})
		case !reflect.DeepEqual(part.value, now):
			if keys := changedKeys(part.value, now); len(keys) > 0 {
				changes = append(changes, PolicyChange{What: part.name, How: "changed", Keys: keys})
			}
		}
	}
	for _, part := range after {
		if _, kept := was[part.name]; !kept {
			changes = append(changes, PolicyChange{What: part.name, How: "added"})
		}
	}
	order := make(map[string]int)
	for i, part := range slices.Concat(before, after) {
		if _, known := order[part.name]; !known {
			order[part.name] = i
		}
	}
	slices.SortStableFunc(changes, func(a, b PolicyChange) int {
		return cmp.Or(cmp.Compare(section(a.What), section(b.What)), cmp.Compare(order[a.What], order[b.What]))
	})
	return changes
}

// part is a part of a policy with a name of its own.
type part struct {
	name  string
	value any
}

func byName(parts []part) map[string]any {
	values := make(map[string]any, len(parts))
	for _, part := range parts {
		values[part.name] = part.value
	}
	return values
}

// sections are the kinds of parts, in the order of a file.
var sections = []string{"policy", "environment", "role", "agent", "tier", "mode", "block", "integration", "tool", "rule"}

func section(name string) int {
	kind, _, _ := strings.Cut(name, " ")
	return slices.Index(sections, kind)
}

// partsOf takes a file apart. What it says in general is one part.
func partsOf(d document) []part {
	general := d
	general.Environments, general.Roles, general.Agents = nil, nil, nil
	general.Tiers, general.Modes, general.Integrations = nil, nil, nil
	general.Block, general.Rules = nil, nil
	parts := []part{{"policy", general}}
	parts = append(parts, members("environment", d.Environments)...)
	parts = append(parts, members("role", d.Roles)...)
	parts = append(parts, members("agent", d.Agents)...)
	parts = append(parts, members("tier", d.Tiers)...)
	for _, name := range slices.Sorted(maps.Keys(d.Modes)) {
		parts = append(parts, part{"mode " + name, modeDocument{d.Modes[name]}})
	}
	for _, rule := range d.Block {
		parts = append(parts, part{"block " + rule.ID, rule})
	}
	for _, name := range slices.Sorted(maps.Keys(d.Integrations)) {
		integration := d.Integrations[name]
		tools := integration.Tools
		integration.Tools = nil
		parts = append(parts, part{"integration " + name, integration})
		parts = append(parts, members("tool", prefixed(name+".", tools))...)
	}
	for _, rule := range d.Rules {
		parts = append(parts, part{"rule " + rule.ID, rule})
	}
	return parts
}

// modeDocument makes a mode a part with a key.
type modeDocument struct {
	Tiers map[Tier]Effect `yaml:"tiers"`
}

func members[K cmp.Ordered, V any](kind string, all map[K]V) []part {
	var parts []part
	for _, key := range slices.Sorted(maps.Keys(all)) {
		parts = append(parts, part{kind + " " + keyText(key), all[key]})
	}
	return parts
}

func prefixed[V any](prefix string, all map[string]V) map[string]V {
	named := make(map[string]V, len(all))
	for key, value := range all {
		named[prefix+key] = value
	}
	return named
}

// changedKeys lists the keys in which two parts of one kind differ.
func changedKeys(before, after any) []KeyChange {
	was, is := reflect.ValueOf(before), reflect.ValueOf(after)
	var keys []KeyChange
	for i := range was.NumField() {
		key := was.Type().Field(i).Tag.Get("yaml")
		change := KeyChange{Key: key, Before: yamlText(was.Field(i)), After: yamlText(is.Field(i))}
		if change.Before != change.After {
			change.Before, change.After = withoutSecrets(change.Before), withoutSecrets(change.After)
			keys = append(keys, change)
		}
	}
	return keys
}

// yamlText is a value of a policy as YAML on one line; empty if it isn't
// written.
func yamlText(value reflect.Value) string {
	if value.IsZero() {
		return ""
	}
	text, err := yaml.MarshalWithOptions(value.Interface(), yaml.Flow(true), yaml.OmitEmpty(),
		yaml.CustomMarshaler(func(number float64) ([]byte, error) { return strconv.AppendFloat(nil, number, 'f', -1, 64), nil }),
		yaml.CustomMarshaler(func(d time.Duration) ([]byte, error) { return []byte(within(d)), nil }),
	)
	if err != nil {
		return fmt.Sprint(value.Interface())
	}
	return strings.TrimSpace(string(text))
}

func writePolicyChanges(text *strings.Builder, changes []PolicyChange) {
	if len(changes) == 0 {
		text.WriteString("The policies say the same.\n\n")
		return
	}
	text.WriteString("Changed in the policy:\n")
	for _, change := range changes {
		fmt.Fprintf(text, "  %s %s\n", pad(change.How, len("removed")), fit(change.What, maxName))
		for _, key := range change.Keys {
			fmt.Fprintf(text, "            %s: %s → %s\n", key.Key, fit(cmp.Or(key.Before, "not written"), maxValue), fit(cmp.Or(key.After, "not written"), maxValue))
		}
	}
	text.WriteString("\n")
}
