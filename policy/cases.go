package policy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"

	"github.com/countersign/countersign/internal/strictjson"
)

// Case is a call with what the policy is expected to answer.
type Case struct {
	// File is for reports. ParseCases doesn't know it and leaves it empty.
	File string
	Line int // on which the case begins
	Name string
	Call Call
	Want Expectation
}

// Expectation is what a case expects of the ruling. Apart from the effect, what
// isn't stated may be anything.
type Expectation struct {
	Effect Effect
	Tier   Tier   // zero if not stated
	Class  string // the id of the ruling's first rule; empty if not stated
	// Rules are the ids of all the others, in any order. Nil means not stated
	// and empty means none; so it is for Requires and Redacted.
	Rules    []string
	Requires []RoleCount
	Count    *Quantity // nil if not stated
	Amount   *Quantity
	Target   *string // what the policy says that the call acts on; nil if not stated
	InBand   *bool   // whether a client's own answer is enough; nil if not stated
	InView   *bool   // whether a decision in the host's view is; nil if not stated
	// Redacted are JSON Pointers to all leaves of the payload that are hidden.
	Redacted []string
}

// caseTime is when a case's call is ruled unless it says: a Monday at noon.
var caseTime = time.Date(2026, 1, 5, 12, 0, 0, 0, time.UTC)

// caseAgent is who makes a case's call unless it says.
const caseAgent = "agent"

type casesDocument struct {
	Cases []caseDocument `yaml:"cases"`
}

type caseDocument struct {
	Name        string              `yaml:"name"`
	Action      string              `yaml:"action"`
	Environment string              `yaml:"environment"`
	Agent       string              `yaml:"agent"`
	Owner       string              `yaml:"owner"`
	Target      string              `yaml:"target"`
	Args        node                `yaml:"args"`
	Payload     *string             `yaml:"payload"`
	Count       *int64              `yaml:"count"`
	Reversible  *bool               `yaml:"reversible"`
	FirstUse    []string            `yaml:"first_use"`
	At          string              `yaml:"at"`
	Hints       hintsDocument       `yaml:"hints"`
	Unpinned    bool                `yaml:"unpinned"`
	Expect      expectationDocument `yaml:"expect"`
}

type hintsDocument struct {
	ReadOnly    *bool `yaml:"read_only"`
	Destructive *bool `yaml:"destructive"`
	Idempotent  *bool `yaml:"idempotent"`
	OpenWorld   *bool `yaml:"open_world"`
}

type expectationDocument struct {
	Effect   Effect             `yaml:"effect"`
	Tier     *Tier              `yaml:"tier"`
	Class    string             `yaml:"class"`
	Rules    []string           `yaml:"rules"`
	Requires []requiredDocument `yaml:"requires"`
	Count    node               `yaml:"count"`
	Amount   node               `yaml:"amount"`
	Target   *string            `yaml:"target"`
	InBand   *bool              `yaml:"in_band"`
	InView   *bool              `yaml:"in_view"`
	Redacted []string           `yaml:"redacted"`
}

// node keeps a value of a file as it is written.
type node struct{ written ast.Node }

// UnmarshalYAML keeps the node.
func (n *node) UnmarshalYAML(written ast.Node) error {
	n.written = written
	return nil
}

// ParseCases reads a file of cases. It is as strict as [Parse], and the error
// lists everything that is wrong with the file, each with its line and column.
func ParseCases(source []byte) ([]Case, error) {
	var written casesDocument
	file, err := readStrictly(source, &written)
	if err != nil {
		return nil, err
	}
	reader := caseReader{file: file, lines: make(map[string]int)}
	if written.Cases == nil {
		reader.problem(nil, "cases is missing; list the calls and what is expected of each")
	}
	cases := make([]Case, 0, len(written.Cases))
	for i, one := range written.Cases {
		cases = append(cases, reader.read(place{"cases", i}, one))
	}
	if len(reader.problems) > 0 {
		slices.SortFunc(reader.problems, Finding.compare)
		return nil, slices.Compact(reader.problems)
	}
	return cases, nil
}

// caseReader makes cases of what is written and collects what is wrong.
type caseReader struct {
	file     *ast.File
	lines    map[string]int // by the case's name
	problems Findings
}

func (c *caseReader) problem(at place, format string, args ...any) {
	c.problems = append(c.problems, finding(c.file, at, format, args...))
}

func (c *caseReader) read(at place, written caseDocument) Case {
	line, _ := lineColumn(locate(c.file, at))
	made := Case{Line: line, Name: strings.TrimSpace(written.Name)}
	before, taken := c.lines[made.Name]
	switch {
	case made.Name == "":
		c.problem(at, "name is missing; reports name the case by it")
	case taken:
		c.problem(at.of("name"), "%q is the name of the case on line %d too", made.Name, before)
	}
	c.lines[made.Name] = line
	if written.Action == "" {
		c.problem(at, "action is missing; an action is INTEGRATION.TOOL")
	}
	if written.Owner != "" && !IsUserID(written.Owner) {
		c.problem(at.of("owner"), "%q is not a Slack user id (like U024BE7LH)", written.Owner)
	}
	made.Call = Call{
		Agent:       written.Agent,
		Owner:       written.Owner,
		Action:      written.Action,
		Target:      written.Target,
		Environment: written.Environment,
		Count:       written.Count,
		Reversible:  written.Reversible,
		Payload:     c.payload(at, written),
		Hints:       Hints(written.Hints),
		Unpinned:    written.Unpinned,
		FirstUse:    c.firstUse(at.of("first_use"), written.FirstUse),
		At:          c.time(at.of("at"), written.At),
	}
	if made.Call.Agent == "" {
		made.Call.Agent = caseAgent
	}
	made.Want = c.expectation(at.of("expect"), written.Expect)
	return made
}

// payload is the case's payload as JSON: that of payload byte for byte, or else
// what args says.
func (c *caseReader) payload(at place, written caseDocument) []byte {
	switch {
	case written.Args.written != nil && written.Payload != nil:
		c.problem(at, "has args and payload; give one of them")
	case written.Payload != nil:
		if err := strictjson.Check([]byte(*written.Payload)); err != nil {
			c.problem(at.of("payload"), "is not JSON that can be read: %v", err)
		}
		return []byte(*written.Payload)
	case written.Args.written != nil:
		if !isMapping(written.Args.written) {
			c.problem(at.of("args"), "is not a mapping of arguments; payload takes other JSON")
			break
		}
		var text bytes.Buffer
		if err := writeJSON(&text, written.Args.written, 0); err != nil {
			c.problems = append(c.problems, err.at(at.of("args")))
			break
		}
		if err := strictjson.Check(text.Bytes()); err != nil {
			c.problem(at.of("args"), "can't be written as JSON: %v", err)
		}
		return text.Bytes()
	}
	return []byte("{}")
}

func (c *caseReader) firstUse(at place, written []string) (first FirstUse) {
	for i, of := range written {
		switch of {
		case "tool":
			first.Tool = true
		case "integration":
			first.Integration = true
		case "agent":
			first.Agent = true
		default:
			c.problem(at.of(i), "%q; tool, integration and agent are accepted", of)
		}
	}
	return first
}

func (c *caseReader) time(at place, written string) time.Time {
	if written == "" {
		return caseTime
	}
	moment, err := time.Parse(time.RFC3339, written)
	if err != nil {
		c.problem(at, "%q is not a time (like 2026-03-02T22:15:00+01:00)", written)
	}
	return moment
}

func (c *caseReader) expectation(at place, written expectationDocument) Expectation {
	want := Expectation{
		Effect:   written.Effect,
		Class:    written.Class,
		Rules:    written.Rules,
		Count:    c.quantity(at.of("count"), written.Count),
		Amount:   c.quantity(at.of("amount"), written.Amount),
		Target:   written.Target,
		InBand:   written.InBand,
		InView:   written.InView,
		Redacted: written.Redacted,
	}
	switch written.Effect {
	case Allow, RequireApproval, Deny:
	case "":
		c.problem(at, "effect is missing; allow, require_approval or deny")
	default:
		c.problem(at.of("effect"), "is %q; allow, require_approval and deny are accepted", written.Effect)
	}
	if written.Tier != nil {
		want.Tier = *written.Tier
		if !want.Tier.valid() {
			c.problem(at.of("tier"), "is %d; tiers are 1 to 5", want.Tier)
		}
	}
	if written.Requires != nil {
		want.Requires = make([]RoleCount, 0, len(written.Requires))
	}
	for i, required := range written.Requires {
		count := value(required.Count, 1)
		switch {
		case required.Role == "":
			c.problem(at.of("requires", i), "role is missing")
		case count < 1:
			c.problem(at.of("requires", i), "count is %d; it is at least 1", count)
		}
		want.Requires = append(want.Requires, RoleCount{Role: required.Role, Count: count})
	}
	for i, pointer := range written.Redacted {
		if pointer != "" && !jsonPointer.MatchString(pointer) {
			c.problem(at.of("redacted", i), "%q is not a JSON Pointer (like /customer/card)", pointer)
		}
	}
	return want
}

// quantity reads an expected count or amount; nil if none is written.
func (c *caseReader) quantity(at place, written node) *Quantity {
	if written.written == nil {
		return nil
	}
	text := ""
	if token := written.written.GetToken(); token != nil {
		text = token.Value
	}
	switch text {
	case "unknown":
		return &Quantity{}
	case "unbounded":
		return &Quantity{Unbounded: true}
	}
	var number float64
	if err := json.Unmarshal([]byte(text), &number); err != nil || !jsonNumber.MatchString(text) || math.Signbit(number) {
		c.problem(at, "%q; a number, unknown and unbounded are accepted", text)
	}
	return &Quantity{Value: number, Known: true}
}

// notJSON is what can't be written as JSON.
type notJSON struct {
	node ast.Node
	text string
}

func (n notJSON) at(where place) Finding {
	line, column := lineColumn(n.node)
	return Finding{Line: line, Column: column, Text: where.String() + ": " + n.text}
}

var (
	jsonNumber = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?$`)
	// otherNumber is what some reader of YAML takes for a number, but JSON
	// can't say.
	otherNumber = regexp.MustCompile(`^[+-]?([0-9][0-9_]*(\.[0-9_]*)?([eE][+-]?[0-9]+)?|\.[0-9][0-9_]*([eE][+-]?[0-9]+)?|0x[0-9a-fA-F_]+|0o[0-7_]+|0b[01_]+|\.(inf|Inf|INF|nan|NaN|NAN))$`)
)

// writeJSON writes a value of a YAML file as JSON. A number keeps the digits
// that were written.
func writeJSON(to *bytes.Buffer, value ast.Node, depth int) *notJSON {
	if depth > strictjson.MaxDepth {
		return &notJSON{value, "is nested too deep"}
	}
	switch value := value.(type) {
	case *ast.MappingNode, *ast.MappingValueNode:
		return writeObject(to, membersOf(value), depth)
	case *ast.SequenceNode:
		to.WriteByte('[')
		for i, element := range value.Values {
			if i > 0 {
				to.WriteByte(',')
			}
			if err := writeJSON(to, element, depth+1); err != nil {
				return err
			}
		}
		to.WriteByte(']')
	case *ast.LiteralNode:
		writeString(to, value.Value.Value)
	case *ast.StringNode:
		switch value.GetToken().Type {
		case token.SingleQuoteType, token.DoubleQuoteType:
			writeString(to, value.Value)
		default:
			return writePlain(to, value, value.Value)
		}
	case *ast.NullNode:
		to.WriteString("null")
	case *ast.BoolNode:
		fmt.Fprint(to, value.Value)
	case *ast.IntegerNode, *ast.FloatNode, *ast.InfinityNode, *ast.NanNode:
		return writePlain(to, value, value.GetToken().Value)
	default:
		return &notJSON{value, "can't be written as JSON"}
	}
	return nil
}

// writePlain writes what stands without quotes. That it is a number is decided
// by how JSON writes numbers, since the library takes 1e400 for text.
func writePlain(to *bytes.Buffer, value ast.Node, text string) *notJSON {
	switch {
	case jsonNumber.MatchString(text):
		to.WriteString(text)
	case otherNumber.MatchString(text):
		return &notJSON{value, fmt.Sprintf("%s is not a number in JSON; write its digits, or quote it if it is text", text)}
	default:
		writeString(to, text)
	}
	return nil
}

func writeObject(to *bytes.Buffer, members []*ast.MappingValueNode, depth int) *notJSON {
	to.WriteByte('{')
	for i, member := range members {
		if i > 0 {
			to.WriteByte(',')
		}
		switch member.Key.(type) {
		case *ast.StringNode, *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
			writeString(to, member.Key.GetToken().Value)
		default:
			return &notJSON{member.Key, "is no key; quote it if it is text"}
		}
		to.WriteByte(':')
		if err := writeJSON(to, member.Value, depth+1); err != nil {
			return err
		}
	}
	to.WriteByte('}')
	return nil
}

func writeString(to *bytes.Buffer, text string) {
	encoder := json.NewEncoder(to)
	encoder.SetEscapeHTML(false)
	encoder.Encode(text)      // a string can't fail
	to.Truncate(to.Len() - 1) // the encoder's line break
}
