package gateway

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/countersign/countersign/internal/strictjson"
)

// The SDK's client decodes results of the methods that it knows, which rounds
// numbers, forgets the order of members and fails on content that it doesn't
// know. So the gateway calls each method under a name of its own, for which the
// SDK leaves parameters and results to their types, and takes the prefix off
// where messages leave.
const rawPrefix = "countersign/"

// The methods that are called downstream.
const (
	methodCallTool      = "tools/call"
	methodListTools     = "tools/list"
	methodListResources = "resources/list"
	methodListTemplates = "resources/templates/list"
	methodReadResource  = "resources/read"
	methodListPrompts   = "prompts/list"
	methodGetPrompt     = "prompts/get"
	methodComplete      = "completion/complete"
)

var rawMethods = []string{
	methodCallTool, methodListTools, methodListResources, methodListTemplates,
	methodReadResource, methodListPrompts, methodGetPrompt, methodComplete,
}

// isReserved reports whether a member of _meta is the protocol's, so that each
// side of the gateway has its own.
func isReserved(name string) bool { return strings.HasPrefix(name, "io.modelcontextprotocol/") }

// rawParams are the parameters of a request, as the agent or the gateway wrote
// them. The SDK puts what it has to add in Meta.
type rawParams struct {
	sdk.ParamsBase
	members []strictjson.Member
}

const (
	metaName      = "_meta"
	progressToken = "progressToken"
)

// newRawParams reads the parameters of a request; none is an empty object. Of
// the agent's _meta, what belongs to its own connection is left out.
func newRawParams(params json.RawMessage) (*rawParams, error) {
	p := new(rawParams)
	if len(bytes.TrimSpace(params)) == 0 || string(bytes.TrimSpace(params)) == "null" {
		return p, nil
	}
	var err error
	if p.members, err = strictjson.Members(params); err != nil {
		return nil, err
	}
	if _, err := p.meta(); err != nil {
		return nil, fmt.Errorf("%s: %w", metaName, err)
	}
	return p, nil
}

// meta are the members of _meta that go on.
func (p *rawParams) meta() ([]strictjson.Member, error) {
	var kept []strictjson.Member
	for _, member := range p.members {
		if member.Name != metaName || string(member.Value) == "null" {
			continue
		}
		meta, err := strictjson.Members(member.Value)
		if err != nil {
			return nil, err
		}
		for _, m := range meta {
			if m.Name != progressToken && !isReserved(m.Name) {
				kept = append(kept, m)
			}
		}
	}
	return kept, nil
}

// MarshalJSON writes the members as they were written, with what the SDK added
// to _meta.
func (p *rawParams) MarshalJSON() ([]byte, error) {
	meta, err := p.meta()
	if err != nil {
		return nil, err
	}
	added := make([]string, 0, len(p.Meta))
	for name := range p.Meta {
		added = append(added, name)
	}
	slices.Sort(added)
	for _, name := range added {
		value, err := json.Marshal(p.Meta[name])
		if err != nil {
			return nil, err
		}
		meta = append(meta, strictjson.Member{Name: name, Value: value})
	}
	members := slices.DeleteFunc(slices.Clone(p.members), func(m strictjson.Member) bool { return m.Name == metaName })
	if len(meta) > 0 {
		members = append(members, strictjson.Member{Name: metaName, Value: object(meta)})
	}
	return object(members), nil
}

// value returns a member as it is written; nil if there is none.
func value(members []strictjson.Member, name string) json.RawMessage {
	for _, member := range members {
		if member.Name == name {
			return member.Value
		}
	}
	return nil
}

// object is the JSON object of the members.
func object(members []strictjson.Member) json.RawMessage {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, member := range members {
		if i > 0 {
			b.WriteByte(',')
		}
		name, err := json.Marshal(member.Name)
		if err != nil {
			continue // a checked name is UTF-8, which always encodes
		}
		b.Write(name)
		b.WriteByte(':')
		b.Write(member.Value)
	}
	b.WriteByte('}')
	return b.Bytes()
}

// with is the object of the members with one of them replaced, or added at the
// end.
func with(members []strictjson.Member, name string, value []byte) json.RawMessage {
	changed := slices.Clone(members)
	for i := range changed {
		if changed[i].Name == name {
			changed[i].Value = value
			return object(changed)
		}
	}
	return object(append(changed, strictjson.Member{Name: name, Value: value}))
}

// rawResult is a result as the downstream server wrote it.
type rawResult struct {
	sdk.ResultBase
	raw json.RawMessage
}

// UnmarshalJSON keeps the text.
func (r *rawResult) UnmarshalJSON(data []byte) error {
	r.raw = slices.Clone(data)
	return nil
}

// MarshalJSON writes the text.
func (r *rawResult) MarshalJSON() ([]byte, error) {
	if r.raw == nil {
		return []byte("{}"), nil
	}
	return r.raw, nil
}

// serverInfo is the member of a result's _meta that names the server behind the
// gateway, which isn't the one that the agent is connected to.
const serverInfo = "io.modelcontextprotocol/serverInfo"

// ownless takes out of a result which server wrote it. A result that isn't strict
// JSON stays as it is.
func ownless(result json.RawMessage) json.RawMessage {
	// Some write the slash with an escape.
	if !bytes.Contains(result, []byte("serverInfo")) {
		return result
	}
	members, err := strictjson.Members(result)
	if err != nil {
		return result
	}
	meta, err := strictjson.Members(value(members, metaName))
	if err != nil {
		return result
	}
	kept := slices.DeleteFunc(slices.Clone(meta), func(m strictjson.Member) bool { return m.Name == serverInfo })
	switch {
	case len(kept) == len(meta):
		return result
	case len(kept) > 0:
		return with(members, metaName, object(kept))
	default:
		return object(slices.DeleteFunc(members, func(m strictjson.Member) bool { return m.Name == metaName }))
	}
}

// page is one page of a list.
type page struct {
	elements []json.RawMessage
	cursor   json.RawMessage // of the next page; nil if this is the last
}

var errNotJSON = errors.New("is not JSON")

// pageOf reads a page whose elements are in one member of a result: at most most
// of them, as they are written. Everything else in it is passed over and not
// kept, since a server could fill memory with it. Where a member is there twice,
// the last counts.
func pageOf(result json.RawMessage, member string, most int) (page, error) {
	var p page
	var array json.RawMessage
	decoder := json.NewDecoder(bytes.NewReader(result))
	if start, err := decoder.Token(); err != nil || start != json.Delim('{') {
		return page{}, errors.New("is not in an object")
	}
	for decoder.More() {
		name, err := decoder.Token()
		if err != nil {
			return page{}, errNotJSON
		}
		var written json.RawMessage
		if err := decoder.Decode(&written); err != nil {
			return page{}, errNotJSON
		}
		switch name {
		case member:
			array = written
		case "nextCursor":
			p.cursor = written
		}
	}
	if last := string(p.cursor); last == "null" || last == `""` {
		p.cursor = nil
	}
	var err error
	p.elements, err = elements(array, most)
	return p, err
}

// elements returns the first elements of an array as they are written, at most
// most of them.
func elements(array json.RawMessage, most int) ([]json.RawMessage, error) {
	if len(array) == 0 || string(array) == "null" {
		return nil, nil
	}
	decoder := json.NewDecoder(bytes.NewReader(array))
	if start, err := decoder.Token(); err != nil || start != json.Delim('[') {
		return nil, errors.New("is not an array")
	}
	var all []json.RawMessage
	for len(all) < most && decoder.More() {
		var element json.RawMessage
		if err := decoder.Decode(&element); err != nil {
			return nil, errors.New("is not an array")
		}
		all = append(all, element)
	}
	return all, nil
}

// text reads a member that is a string; empty if it is none.
func text(members []strictjson.Member, name string) string {
	var s string
	if err := json.Unmarshal(value(members, name), &s); err != nil {
		return ""
	}
	return s
}
