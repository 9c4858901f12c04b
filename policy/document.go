package policy

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// MaxSource is how long a policy file may be, in bytes.
const MaxSource = 1 << 20

// document is a policy file as it is written. What a key means is in the
// README's section on policy.
type document struct {
	Version      int                            `yaml:"version"`
	Mode         string                         `yaml:"mode"`
	Environments map[string]environmentDocument `yaml:"environments"`
	Roles        map[string]roleDocument        `yaml:"roles"`
	Agents       map[string]agentDocument       `yaml:"agents"`
	Approval     approvalDocument               `yaml:"approval"`
	Tiers        map[Tier]approvalDocument      `yaml:"tiers"`
	Modes        map[string]map[Tier]Effect     `yaml:"modes"`
	Unclassified Effect                         `yaml:"unclassified"`
	InBand       *unverifiedDocument            `yaml:"in_band"`
	InView       *unverifiedDocument            `yaml:"in_view"`
	Bulk         []thresholdDocument            `yaml:"bulk"`
	FirstUse     *firstUseDocument              `yaml:"first_use"`
	Block        []ruleDocument                 `yaml:"block"`
	Integrations map[string]integrationDocument `yaml:"integrations"`
	Rules        []ruleDocument                 `yaml:"rules"`
	Hours        *hoursDocument                 `yaml:"hours"`
	Redact       redactDocument                 `yaml:"redact"`
	Limits       limitsDocument                 `yaml:"limits"`
}

type environmentDocument struct {
	Names []string `yaml:"names"`
	Mode  string   `yaml:"mode"`
}

type roleDocument struct {
	Users        []string `yaml:"users"`
	Groups       []string `yaml:"groups"`
	SelfApproval bool     `yaml:"self_approval"`
}

type agentDocument struct {
	Owner string `yaml:"owner"`
}

// approvalDocument is what approving takes. In tiers, a key that isn't given is
// as under approval.
type approvalDocument struct {
	Requires       []requiredDocument  `yaml:"requires"`
	DecideWithin   *time.Duration      `yaml:"decide_within"`
	ApplyWithin    *time.Duration      `yaml:"apply_within"`
	ReasonRequired *bool               `yaml:"reason_required"`
	SelfApproval   *bool               `yaml:"self_approval"`
	RemindAfter    *[]time.Duration    `yaml:"remind_after"`
	Escalate       *escalationDocument `yaml:"escalate"`
	Scopes         *[]string           `yaml:"scopes"`
}

type requiredDocument struct {
	Role  string `yaml:"role"`
	Count *int   `yaml:"count"`
}

type escalationDocument struct {
	After time.Duration `yaml:"after"`
	To    string        `yaml:"to"`
}

type thresholdDocument struct {
	Over    *float64 `yaml:"over"`
	RaiseTo Tier     `yaml:"raise_to"`
}

type firstUseDocument struct {
	Of           []string      `yaml:"of"`
	Environments []string      `yaml:"environments"`
	RaiseTo      Tier          `yaml:"raise_to"`
	Within       time.Duration `yaml:"within"`
}

// unverifiedDocument is where an answer is enough that no verified person gives.
// Tiers that are an empty list are none, and tiers that aren't written are the
// default, if there is one.
type unverifiedDocument struct {
	Tiers        *[]Tier  `yaml:"tiers"`
	Environments []string `yaml:"environments"`
	Modes        []string `yaml:"modes"`
}

type integrationDocument struct {
	Mode         string                  `yaml:"mode"`
	Environments map[string]string       `yaml:"environments"`
	Tools        map[string]toolDocument `yaml:"tools"`
}

type toolDocument struct {
	Tier      Tier                `yaml:"tier"`
	Count     string              `yaml:"count"`
	Bulk      []thresholdDocument `yaml:"bulk"`
	Amount    string              `yaml:"amount"`
	HighValue []thresholdDocument `yaml:"high_value"`
	Redact    []string            `yaml:"redact"`
	Target    string              `yaml:"target"`
	// Idempotency is an argument's name.
	Idempotency string `yaml:"idempotency"`
}

// ruleDocument is one of rules, which raises or lowers, or of block, which
// denies.
type ruleDocument struct {
	ID           string   `yaml:"id"`
	Why          string   `yaml:"why"`
	Actions      []string `yaml:"actions"`
	Environments []string `yaml:"environments"`
	Agents       []string `yaml:"agents"`
	When         string   `yaml:"when"`
	CountOver    *float64 `yaml:"count_over"`
	CountAtMost  *float64 `yaml:"count_at_most"`
	AmountOver   *float64 `yaml:"amount_over"`
	AmountAtMost *float64 `yaml:"amount_at_most"`
	RaiseTo      Tier     `yaml:"raise_to"`
	LowerTo      Tier     `yaml:"lower_to"`
}

type hoursDocument struct {
	Zone string   `yaml:"zone"`
	Days []string `yaml:"days"`
	From string   `yaml:"from"`
	To   string   `yaml:"to"`
}

type redactDocument struct {
	Keys  []string `yaml:"keys"`
	Paths []string `yaml:"paths"`
}

type limitsDocument struct {
	Pending   *int           `yaml:"pending"`
	PerMinute *int           `yaml:"per_minute"`
	Cooldown  *time.Duration `yaml:"cooldown"`
}

// read reads a policy file.
func read(source []byte) (d document, file *ast.File, err error) {
	file, err = readStrictly(source, &d)
	return d, file, err
}

// readStrictly reads a YAML file into what it is to hold: an unknown or repeated
// key is an error with its line and column. A YAML feature that makes one place
// of a file mean what another says is refused, so that it can be reviewed line
// by line.
func readStrictly(source []byte, into any) (file *ast.File, err error) {
	if len(source) > MaxSource {
		return nil, fmt.Errorf("the file has %d bytes; at most %d are accepted", len(source), MaxSource)
	}
	if !utf8.Valid(source) {
		return nil, errors.New("the file isn't in UTF-8")
	}
	source = bytes.TrimPrefix(source, []byte("\ufeff")) // as some editors begin each file
	if err := checkCharacters(source); err != nil {
		return nil, err
	}
	// The library is known to panic on some broken files.
	defer func() {
		if recovered := recover(); recovered != nil {
			err = errors.New("the file is not YAML that can be read")
		}
	}()
	tokens := lexer.Tokenize(string(source))
	if err := checkTokens(tokens); err != nil {
		return nil, err
	}
	file, err = parser.Parse(tokens, 0)
	if err != nil {
		return nil, errors.New(yaml.FormatError(err, false, false))
	}
	if len(file.Docs) > 1 {
		return nil, errors.New("there is a second document after \"---\"; put everything in one")
	}
	if len(file.Docs) == 0 || file.Docs[0].Body == nil {
		return nil, errors.New("the file is empty")
	}
	if err := checkKinds(file, into); err != nil {
		return nil, err
	}
	if err := yaml.NodeToValue(file.Docs[0].Body, into, yaml.Strict()); err != nil {
		return nil, errors.New(yaml.FormatError(err, false, false))
	}
	return file, nil
}

// checkCharacters refuses characters by which a file would show its reviewers
// something else than it says: they move what is around them or break lines
// where not every editor does.
func checkCharacters(source []byte) error {
	line, column := 1, 1
	for i, r := range string(source) {
		breaks := r == '\r' && !bytes.HasPrefix(source[i+1:], []byte("\n")) || r == '\u2028' || r == '\u2029'
		controls := unicode.IsControl(r) && r != '\t' && r != '\n' && r != '\r'
		if breaks || controls || unicode.Is(unicode.Bidi_Control, r) {
			return fmt.Errorf("[%d:%d] the character %U can't be seen; leave it out, or write it as an escape in double quotes", line, column, r)
		}
		column++
		if r == '\n' {
			line, column = line+1, 1
		}
	}
	return nil
}

// maxNested is how deep a file may be nested; the library takes very long for
// more.
const maxNested = 100

// checkTokens refuses the features of YAML by which something else is meant at
// a place than is written there.
func checkTokens(tokens token.Tokens) error {
	var found []error
	nested, entries, line := 0, 0, 0
	for _, t := range tokens {
		if t.Position.Line != line {
			entries, line = 0, t.Position.Line
		}
		what := ""
		switch t.Type {
		case token.AnchorType:
			what = "an anchor (&)"
		case token.AliasType:
			what = "an alias (*)"
		case token.MergeKeyType:
			what = "a merge key (<<)"
		case token.TagType:
			what = "a tag (!)"
		case token.MappingKeyType:
			what = "a key marked with ?"
		case token.DirectiveType:
			what = "a directive (%)"
		case token.SequenceEntryType:
			entries++
		case token.SequenceStartType, token.MappingStartType:
			nested++
		case token.SequenceEndType, token.MappingEndType:
			nested--
		}
		if what != "" {
			found = append(found, fmt.Errorf("[%d:%d] %s is not accepted here; write out what is meant, or quote it", t.Position.Line, t.Position.Column, what))
		}
		if nested+entries > maxNested {
			return fmt.Errorf("[%d:%d] is nested too deep; at most %d levels are accepted", t.Position.Line, t.Position.Column, maxNested)
		}
	}
	return errors.Join(found...)
}

// place is where something stands in a file: keys of mappings, as strings or
// tiers, and indexes of lists.
type place []any

func (p place) of(more ...any) place { return append(p[:len(p):len(p)], more...) }

// String writes the place for people: integrations.crm.tools.get_*.tier,
// rules[2].when.
func (p place) String() string {
	var text strings.Builder
	for _, step := range p {
		if index, ok := step.(int); ok {
			fmt.Fprintf(&text, "[%d]", index)
			continue
		}
		if text.Len() > 0 {
			text.WriteByte('.')
		}
		text.WriteString(keyText(step))
	}
	return text.String()
}

// keyText is a key of a mapping as it is written.
func keyText(step any) string {
	if tier, ok := step.(Tier); ok {
		return strconv.Itoa(int(tier))
	}
	return fmt.Sprint(step)
}

// locate finds the place in a file, or as much of the way to it as there is,
// and returns the node at which people look for it: a key if a mapping follows.
func locate(file *ast.File, at place) ast.Node {
	if file == nil || len(file.Docs) == 0 {
		return nil
	}
	value := file.Docs[0].Body
	shown := value
	for _, step := range at {
		key, next := child(value, step)
		if next == nil {
			break
		}
		value, shown = next, next
		if isMapping(next) && key != nil {
			shown = key
		}
	}
	return shown
}

// has reports whether there is such a place in a file.
func has(file *ast.File, at place) bool {
	value := file.Docs[0].Body
	for _, step := range at {
		if _, value = child(value, step); value == nil {
			return false
		}
	}
	return true
}

// child is the key and the value of one member of a mapping, or an element of a
// list; nothing if there is no such thing.
func child(node ast.Node, step any) (key, value ast.Node) {
	if index, ok := step.(int); ok {
		list, ok := node.(*ast.SequenceNode)
		if !ok || index >= len(list.Values) {
			return nil, nil
		}
		return nil, list.Values[index]
	}
	for _, member := range membersOf(node) {
		if token := member.Key.GetToken(); token != nil && token.Value == keyText(step) {
			return member.Key, member.Value
		}
	}
	return nil, nil
}

// membersOf are the members of a mapping; none of anything else.
func membersOf(node ast.Node) []*ast.MappingValueNode {
	switch node := node.(type) {
	case *ast.MappingNode:
		return node.Values
	case *ast.MappingValueNode:
		return []*ast.MappingValueNode{node}
	default:
		return nil
	}
}

func isMapping(node ast.Node) bool {
	return node.Type() == ast.MappingType || node.Type() == ast.MappingValueType
}

// lineColumn is where a node begins.
func lineColumn(node ast.Node) (line, column int) {
	// The library's place of a mapping without braces is its first colon.
	switch mapping := node.(type) {
	case *ast.MappingNode:
		if !mapping.IsFlowStyle && len(mapping.Values) > 0 {
			node = mapping.Values[0].Key
		}
	case *ast.MappingValueNode:
		node = mapping.Key
	}
	if node == nil || node.GetToken() == nil || node.GetToken().Position == nil {
		return 1, 1
	}
	at := node.GetToken().Position
	return at.Line, at.Column
}
