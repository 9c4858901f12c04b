package policy

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/countersign/countersign/internal/strictjson"
	"github.com/countersign/countersign/internal/visible"
)

// Tool is a tool that agents may call, with what its server says of it.
type Tool struct {
	Integration string
	Name        string
	Description string // empty if not known
	Hints       Hints
	InputSchema []byte // JSON Schema; nil if not known
}

// Action is the tool's action, INTEGRATION.TOOL.
func (t Tool) Action() string {
	if t.Integration == "" {
		return t.Name
	}
	return t.Integration + "." + t.Name
}

// ToolOf is the tool of an action, of which nothing else is known.
func ToolOf(action string) Tool {
	integration, name := integrationOf(action)
	return Tool{Integration: integration, Name: name}
}

// toolList is what an MCP server answers to tools/list, as far as it matters
// here.
type toolList struct {
	Tools      *[]listedTool `json:"tools"`
	NextCursor string        `json:"nextCursor"`
}

type listedTool struct {
	Name        string            `json:"name"`
	Description string            `json:"description"`
	InputSchema jsontext.Value    `json:"inputSchema"`
	Annotations listedAnnotations `json:"annotations"`
}

type listedAnnotations struct {
	ReadOnly    *bool `json:"readOnlyHint"`
	Destructive *bool `json:"destructiveHint"`
	Idempotent  *bool `json:"idempotentHint"`
	OpenWorld   *bool `json:"openWorldHint"`
}

// ParseTools reads the result of an MCP server's tools/list: an object with
// tools. Keys count only as MCP spells them, each at most once, and a list that
// isn't whole is refused. Keys that don't matter here may be there.
func ParseTools(integration string, source []byte) ([]Tool, error) {
	if len(source) > MaxSource {
		return nil, fmt.Errorf("the list has %d bytes; at most %d are accepted", len(source), MaxSource)
	}
	if err := strictjson.Check(source); err != nil {
		return nil, fmt.Errorf("reading the list of tools: %w", err)
	}
	var list toolList
	if err := jsonv2.Unmarshal(source, &list); err != nil {
		return nil, fmt.Errorf("reading the list of tools: %w", err)
	}
	switch {
	case list.Tools == nil:
		return nil, errors.New(`the list has no "tools"; give the result of tools/list`)
	case list.NextCursor != "":
		return nil, errors.New("the list has another page (nextCursor); put all tools into one list")
	}
	tools := make([]Tool, 0, len(*list.Tools))
	for i, listed := range *list.Tools {
		switch {
		case listed.Name == "":
			return nil, fmt.Errorf("tool %d of the list has no name", i+1)
		case slices.ContainsFunc(tools, func(t Tool) bool { return t.Name == listed.Name }):
			return nil, fmt.Errorf("tool %q is listed twice", listed.Name)
		}
		tools = append(tools, Tool{
			Integration: integration,
			Name:        listed.Name,
			Description: listed.Description,
			Hints:       Hints(listed.Annotations),
			InputSchema: listed.InputSchema,
		})
	}
	return tools, nil
}

// Proposal is how a tool that the policy doesn't classify could be classified.
type Proposal struct {
	Integration string `json:"integration"`
	Tool        string `json:"tool"`
	// Tier is a careful guess, for a person to confirm; zero if a policy can't
	// name the tool.
	Tier Tier   `json:"tier,omitempty"`
	Why  string `json:"why"`
	// Count is an expression for on how many things a call acts, empty if there
	// is none.
	Count string `json:"count,omitempty"`
	// Stanza is the line to put below the integration's tools; empty if a policy
	// can't name the tool.
	Stanza string `json:"stanza,omitempty"`

	known bool // the policy has the integration
}

// Proposals are several, by integration and tool.
type Proposals []Proposal

// Propose says how the tools that the policy doesn't classify could be
// classified. A name's words say how careful to be. What the tool's server says
// of it can only make that more careful.
func (p *Policy) Propose(tools []Tool) Proposals {
	described := make(map[string]Tool)
	for _, tool := range tools {
		action := tool.Action()
		if before, known := described[action]; known {
			tool = tool.with(before)
		}
		described[action] = tool
	}
	var proposals Proposals
	for _, action := range slices.Sorted(maps.Keys(described)) {
		if !p.classify(action, strings.ToLower(action)).known {
			proposals = append(proposals, p.propose(described[action]))
		}
	}
	slices.SortStableFunc(proposals, func(a, b Proposal) int {
		return cmp.Or(cmp.Compare(a.Integration, b.Integration), cmp.Compare(a.Tool, b.Tool))
	})
	return proposals
}

// with is a tool that is known from two places. Of what they say, what is more
// careful counts.
func (t Tool) with(other Tool) Tool {
	t.Description = strings.TrimSpace(t.Description + "\n" + other.Description)
	if isTrue(other.Hints.Destructive) || t.Hints.Destructive == nil {
		t.Hints.Destructive = other.Hints.Destructive
	}
	if isFalse(other.Hints.ReadOnly) || t.Hints.ReadOnly == nil {
		t.Hints.ReadOnly = other.Hints.ReadOnly
	}
	if t.InputSchema == nil {
		t.InputSchema = other.InputSchema
	}
	return t
}

// toolName is what a tool may be called so that a policy can name it.
var toolName = regexp.MustCompile(`^[A-Za-z0-9_.\-/]+$`)

func (p *Policy) propose(tool Tool) Proposal {
	made := Proposal{Integration: tool.Integration, Tool: tool.Name}
	_, made.known = p.integrations[tool.Integration]
	if !integrationName.MatchString(tool.Integration) || !toolName.MatchString(tool.Name) || !isActionName(tool.Action()) {
		made.Why = "a policy can't name it, so it stays unclassified: an action is INTEGRATION.TOOL, of at most 200 letters, digits, _, -, . and /"
		return made
	}
	made.Tier, made.Why = tool.tier()
	if made.Tier >= TierInternalWrite {
		made.Count = countOf(tool.InputSchema)
	}
	made.Stanza = fmt.Sprintf("%s: {tier: %d}", yamlKey(tool.Name), made.Tier)
	if made.Count != "" {
		made.Stanza = fmt.Sprintf("%s: {tier: %d, count: %s}", yamlKey(tool.Name), made.Tier, singleQuoted(made.Count))
	}
	return made
}

// verbs say what a tool does, as far as one word can.
var verbs = map[Tier][]string{
	TierRead: {"get", "list", "search", "read", "find", "fetch", "describe", "show", "view", "count", "lookup"},
	TierInternalWrite: {
		"create", "draft", "tag", "update", "add", "set", "put", "insert", "upsert", "edit", "change", "modify", "patch", "write",
		"save", "label", "rename", "mark", "toggle", "assign", "note", "comment", "upload", "import", "move", "copy",
	},
	TierExternal: {
		"send", "post", "publish", "invoice", "email", "mail", "message", "sms", "notify", "reply", "forward", "share", "invite", "tweet",
		"announce", "submit", "approve", "accept", "merge", "push", "release", "trigger", "start", "stop", "restart", "order", "book",
	},
	TierDestructive: {
		"delete", "remove", "overwrite", "revoke", "replace", "reset", "clear", "cancel", "disable", "terminate", "kill", "ban", "block",
		"uninstall", "unpublish", "force", "execute", "exec", "run", "eval", "apply", "grant", "impersonate", "rollback", "restore", "rotate",
	},
	TierIrreversible: {
		"pay", "payout", "refund", "transfer", "deploy", "purge", "drop", "truncate", "charge", "withdraw", "purchase", "buy", "sell",
		"destroy", "wipe", "erase", "shutdown",
	},
}

// nouns are those verbs that are also what tools are about: get_invoice sends
// none.
var nouns = []string{
	"tag", "draft", "label", "note", "comment", "update", "change", "patch", "import", "post", "invoice", "email", "mail", "message", "sms",
	"reply", "share", "release", "order", "block", "run", "refund", "transfer", "deploy", "charge", "payout", "purchase", "merge",
}

// secretWords are about what nobody should get by the way, and accessWords about
// who may do what.
var (
	secretWords = []string{"secret", "secrets", "password", "passwords", "credential", "credentials", "token", "tokens"}
	accessWords = []string{"permission", "permissions", "role", "roles", "access", "billing", "admin", "admins", "owner", "owners", "webhook", "webhooks"}
)

var verbTiers = func() map[string]Tier {
	tiers := make(map[string]Tier)
	for tier := TierRead; tier <= TierIrreversible; tier++ {
		for _, word := range verbs[tier] {
			tiers[word] = tier
		}
	}
	return tiers
}()

// finality is how descriptions say that there is no way back.
var finality = regexp.MustCompile(`(?i)\b(permanent(ly)?|irreversibl[ey]|irrecoverabl[ey]|(can ?not|can['’]t) be (undone|reversed|recovered|restored))\b`)

// tier guesses a tool's tier, and says from what.
func (t Tool) tier() (Tier, string) {
	tier, why := t.tierOfName()
	raise := func(to Tier, because string) {
		if to > tier {
			tier, why = to, why+"; "+because
		}
	}
	if isFalse(t.Hints.ReadOnly) {
		raise(TierInternalWrite, "its server says that it changes something")
	}
	if isTrue(t.Hints.Destructive) {
		raise(TierDestructive, "its server says that it is destructive")
	}
	if found := finality.FindString(t.Description); found != "" {
		raise(TierIrreversible, fmt.Sprintf("its description says %q", strings.ToLower(found)))
	}
	return tier, why
}

// tierOfName is the highest tier of the words in the tool's name. A read is one
// only if the name begins or ends with that word.
func (t Tool) tierOfName() (Tier, string) {
	name := words(t.Name)
	integration := words(t.Integration)
	for len(name) > 1 && (slices.Contains(integration, name[0]) || name[0] == "batch" || name[0] == "bulk") {
		name = name[1:]
	}
	reads := verbTiers[name[0]] == TierRead && !slices.ContainsFunc(name, joinsWords)
	var tier Tier
	var word string
	for i, candidate := range name {
		found, known := verbTiers[candidate]
		switch {
		case !known:
			continue
		case found == TierRead && i > 0 && i < len(name)-1:
			continue
		case reads && slices.Contains(nouns, candidate):
			continue
		case found > tier:
			tier, word = found, candidate
		}
	}
	why := fmt.Sprintf("%q is in its name", word)
	if tier == 0 {
		tier, why = TierDestructive, "no word of its name says what it does"
	}
	for _, candidate := range name {
		secret := slices.Contains(secretWords, candidate)
		if tier < TierDestructive && (secret || tier > TierRead && slices.Contains(accessWords, candidate)) {
			return TierDestructive, fmt.Sprintf("%s, and so is %q", why, candidate)
		}
	}
	return tier, why
}

// joinsWords reports whether a word joins two verbs, so that one of them doesn't
// say all.
func joinsWords(word string) bool { return slices.Contains([]string{"and", "or", "then"}, word) }

// words splits a name at its signs and at capitals: deleteAll_users is three
// words, in lower case. There is always one.
func words(name string) []string {
	var split strings.Builder
	runes := []rune(name)
	for i, r := range runes {
		begins := unicode.IsUpper(r) && i > 0 && (unicode.IsLower(runes[i-1]) || i+1 < len(runes) && unicode.IsLower(runes[i+1]))
		if begins || !unicode.IsLetter(r) {
			split.WriteByte(' ')
		}
		if unicode.IsLetter(r) {
			split.WriteRune(unicode.ToLower(r))
		}
	}
	found := strings.Fields(split.String())
	if len(found) == 0 {
		return []string{""}
	}
	return found
}

var (
	idsName = regexp.MustCompile(`^(ids|uuids|guids|[A-Za-z0-9_.-]*([_-](ids|uuids|guids)|[a-z](Ids|IDs|UUIDs|Uuids)))$`)
	celName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
)

// inputSchema is what is read of the schema of a tool's arguments.
type inputSchema struct {
	Properties map[string]struct {
		Type jsontext.Value `json:"type"`
	} `json:"properties"`
}

// countOf is an expression for the length of the lists of ids that a tool takes;
// empty if it takes none. If an argument isn't there, the expression fails and
// the count is unbounded.
func countOf(schema []byte) string {
	var form inputSchema
	if schema == nil || jsonv2.Unmarshal(schema, &form) != nil {
		return ""
	}
	var sizes []string
	for _, name := range slices.Sorted(maps.Keys(form.Properties)) {
		switch {
		case !idsName.MatchString(name) || !isArray(form.Properties[name].Type):
		case celName.MatchString(name):
			sizes = append(sizes, "size(args."+name+")")
		default:
			sizes = append(sizes, fmt.Sprintf("size(args[%q])", name))
		}
	}
	return strings.Join(sizes, " + ")
}

// isArray reports whether a schema's type is a list, also one that may be null.
func isArray(kind jsontext.Value) bool {
	var one string
	var several []string
	if json.Unmarshal(kind, &one) == nil {
		return one == "array"
	}
	return json.Unmarshal(kind, &several) == nil && slices.Contains(several, "array")
}

var (
	// plainKey is a key that needs no quotes, unless it is a word of YAML.
	plainKey  = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_./-]*$`)
	yamlWords = []string{"true", "false", "null", "yes", "no", "on", "off", "y", "n"}
)

func yamlKey(name string) string {
	if plainKey.MatchString(name) && !slices.Contains(yamlWords, strings.ToLower(name)) {
		return name
	}
	return singleQuoted(name)
}

func singleQuoted(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }

// String is the proposals as YAML to put into the policy, with the reason of
// each as a comment.
func (p Proposals) String() string {
	var text strings.Builder
	named := slices.DeleteFunc(slices.Clone(p), func(one Proposal) bool { return one.Stanza == "" })
	if len(p) == 0 {
		return "# The policy classifies every tool.\n"
	}
	if len(named) > 0 {
		text.WriteString("# Guesses, mostly from names. Read each before you put it into the policy.\nintegrations:\n")
	}
	integration := ""
	for _, one := range named {
		if one.Integration != integration {
			integration = one.Integration
			fmt.Fprintf(&text, "  %s:\n", yamlKey(integration))
			if one.known {
				text.WriteString("    # The policy has this integration: add these to its tools.\n")
			}
			text.WriteString("    tools:\n")
		}
		fmt.Fprintf(&text, "      # %s\n      %s\n", visible.Line(one.Why), one.Stanza)
	}
	for _, one := range p {
		if one.Stanza == "" {
			fmt.Fprintf(&text, "# %s: %s\n", fit(Tool{Integration: one.Integration, Name: one.Tool}.Action(), maxName), one.Why)
		}
	}
	return text.String()
}
