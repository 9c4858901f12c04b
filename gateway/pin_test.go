package gateway

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/countersign/countersign/internal/strictjson"
)

// node is a JSON value whose members are in some order.
type node struct {
	literal string // unless it is an object or an array
	names   []string
	values  []*node
	array   bool
}

func drawNode(t *rapid.T, depth int) *node {
	kind := rapid.IntRange(0, 4).Draw(t, "kind")
	if depth == 0 || kind < 3 {
		return &node{literal: rapid.SampledFrom([]string{"0", "1", "1.0", "1e400", "9007199254740993", "true", "null", `"a"`, `"b"`, `""`}).Draw(t, "literal")}
	}
	n := &node{array: kind == 3}
	for range rapid.IntRange(0, 3).Draw(t, "size") {
		n.values = append(n.values, drawNode(t, depth-1))
	}
	if !n.array {
		n.names = rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"type", "title", "_meta", "name", "é", "Z", "properties"}), len(n.values), len(n.values), rapid.ID).Draw(t, "names")
	}
	return n
}

// write writes the value, with the members in another order if shuffled.
func (n *node) write(t *rapid.T, shuffled bool) string {
	if n.literal != "" {
		return n.literal
	}
	space := ""
	order := make([]int, len(n.values))
	for i := range order {
		order[i] = i
	}
	if shuffled {
		space = rapid.SampledFrom([]string{"", " ", "\n\t"}).Draw(t, "space")
		if !n.array {
			order = rapid.Permutation(order).Draw(t, "order")
		}
	}
	var parts []string
	for _, i := range order {
		part := n.values[i].write(t, shuffled)
		if !n.array {
			part = fmt.Sprintf("%q%s:%s%s", n.names[i], space, space, part)
		}
		parts = append(parts, space+part+space)
	}
	if n.array {
		return "[" + strings.Join(parts, ",") + "]"
	}
	return "{" + strings.Join(parts, ",") + "}"
}

// all are the value and all within it.
func (n *node) all() []*node {
	found := []*node{n}
	for _, value := range n.values {
		found = append(found, value.all()...)
	}
	return found
}

// members are the members that definitions of tools have, and one that they
// don't have yet.
var members = []string{"name", "title", "description", "inputSchema", "outputSchema", "annotations", "icons", "execution", "later"}

func drawDefinition(t *rapid.T) *node {
	definition := new(node)
	definition.names = rapid.SliceOfNDistinct(rapid.SampledFrom(members), 1, len(members), rapid.ID).Draw(t, "members")
	for range definition.names {
		definition.values = append(definition.values, drawNode(t, 3))
	}
	return definition
}

func pinOfText(t *rapid.T, definition string) string {
	read, err := strictjson.Members([]byte(definition))
	if err != nil {
		t.Fatal(err)
	}
	pin, err := pinOf(read)
	if err != nil {
		t.Fatal(err)
	}
	return pin
}

func TestPinIgnoresOrderAndSpace(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		definition := drawDefinition(t)
		pin := pinOfText(t, definition.write(t, false))
		if other := pinOfText(t, definition.write(t, true)); other != pin {
			t.Fatalf("%s and %s", pin, other)
		}
		// Servers put there what differs from one listing to the next.
		definition.names, definition.values = append(definition.names, metaName), append(definition.values, drawNode(t, 2))
		if other := pinOfText(t, definition.write(t, true)); other != pin {
			t.Fatalf("_meta counts: %s and %s", pin, other)
		}
	})
}

func TestPinCountsEachMember(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		definition := drawDefinition(t)
		before := definition.write(t, false)
		all := definition.all()
		at := all[rapid.IntRange(0, len(all)-1).Draw(t, "at")]
		switch change := rapid.IntRange(0, 2).Draw(t, "change"); {
		case at.literal != "":
			at.literal = `"changed"`
		case at.array, change == 0:
			at.values = append(at.values, &node{literal: "0"})
			at.names = append(at.names, "added")
		case len(at.values) == 0:
			t.Skip("nothing to change")
		case change == 1:
			i := rapid.IntRange(0, len(at.values)-1).Draw(t, "i")
			at.values, at.names = slices.Delete(at.values, i, i+1), slices.Delete(at.names, i, i+1)
		default:
			at.names[rapid.IntRange(0, len(at.names)-1).Draw(t, "i")] = "renamed"
		}
		after := definition.write(t, false)
		if pinOfText(t, before) == pinOfText(t, after) {
			t.Fatalf("the same for\n%s\n%s", before, after)
		}
	})
}

// Pins are stored, so what they are must not change unnoticed.
func TestPinOfATool(t *testing.T) {
	t.Parallel()
	tools := toolsOf(Server{Name: "a"}, []json.RawMessage{json.RawMessage(`{"name":"delete","inputSchema":{"type":"object","properties":{"id":{"type":"integer"}}}}`)}, newLogs().logger())
	const want = "a763e8bb6f3cc3d05b5eff945c2deefa81c83130f0e0b1089e7ba5628ed3bb44"
	if tools[0].pin != want {
		t.Errorf("got %s, want %s", tools[0].pin, want)
	}
}
