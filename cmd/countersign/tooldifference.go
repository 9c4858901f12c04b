package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/rogpeppe/go-internal/diff"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/internal/strictjson"
	"github.com/countersign/countersign/internal/visible"
)

// showDifference prints, line by line, what a server says of a tool now against
// what is pinned.
func (p *process) showDifference(t approval.Tool) error {
	pinned, err := readable(t.Pinned.JSON)
	if err != nil {
		return fmt.Errorf("reading what is pinned of %s: %w", visible.Line(t.Action()), err)
	}
	seen, err := readable(t.Seen.JSON)
	if err != nil {
		return fmt.Errorf("reading what %s says of %s: %w", t.Server, visible.Line(t.Action()), err)
	}
	action := visible.Line(t.Action())
	shown := string(diff.Diff(
		action+" as pinned "+when(t.PinnedAt), []byte(pinned),
		action+" as "+t.Server+" says since "+when(t.SeenAt), []byte(seen),
	))
	_, lines, _ := strings.Cut(shown, "\n") // the first one says both names in one line
	p.print(lines, "+")
	return nil
}

// readable is a tool's definition as far as it is pinned, for people: one value a
// line, members in an order that doesn't depend on the server's, and nothing
// hidden in it.
func readable(definition []byte) (string, error) {
	members, err := strictjson.Members(definition)
	if err != nil {
		return "", err
	}
	var pinned bytes.Buffer
	pinned.WriteByte('{')
	for i, m := range slices.DeleteFunc(members, func(m strictjson.Member) bool { return m.Name == "_meta" }) {
		if i > 0 {
			pinned.WriteByte(',')
		}
		name, err := json.Marshal(m.Name)
		if err != nil {
			return "", err
		}
		pinned.Write(name)
		pinned.WriteByte(':')
		pinned.Write(m.Value)
	}
	pinned.WriteByte('}')
	canonical, err := strictjson.Canonical(pinned.Bytes())
	if err != nil {
		return "", err
	}
	var indented bytes.Buffer
	if err := json.Indent(&indented, canonical, "", "  "); err != nil {
		return "", err
	}
	return visible.Text(indented.String()) + "\n", nil
}

// errNotAccepted ends what somebody was asked about and didn't say yes to.
var errNotAccepted = errors.New("nothing was changed: only \"yes\" is a yes")

// confirm asks the person at the terminal, and returns nil if they say yes.
func (p *process) confirm(ctx context.Context, question string) error {
	fmt.Fprintf(p.stderr, "%s Type yes: ", question)
	answered := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(p.stdin).ReadString('\n')
		answered <- strings.TrimSpace(line)
	}()
	select {
	case <-ctx.Done():
		fmt.Fprintln(p.stderr)
		return errNotAccepted
	case answer := <-answered:
		if answer != "yes" {
			return errNotAccepted
		}
		return nil
	}
}
