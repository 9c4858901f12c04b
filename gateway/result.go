package gateway

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/internal/strictjson"
	"github.com/countersign/countersign/internal/visible"
)

// The kinds of results that the protocol without sessions tells apart.
const (
	resultTypeName = "resultType"
	inputRequired  = "input_required"
)

// served is a result for an agent: a downstream server's as it was written, with
// what the agent's protocol needs.
type served struct {
	sdk.ResultBase // the SDK puts into Meta who serves, if the protocol has that
	raw            json.RawMessage
	modern         bool // the protocol without sessions
	cacheable      bool // the protocol without sessions has it say for how long it is good
}

// MarshalJSON writes the result. One that isn't strict JSON stays as it is.
func (s *served) MarshalJSON() ([]byte, error) {
	if !s.modern && len(s.Meta) == 0 && !bytes.Contains(s.raw, []byte(resultTypeName)) {
		return s.raw, nil
	}
	members, err := strictjson.Members(s.raw)
	if err != nil {
		return s.raw, nil
	}
	has := func(name string) bool { return value(members, name) != nil }
	if !s.modern {
		members = without(members, resultTypeName)
	} else {
		if !has(resultTypeName) {
			members = append(members, strictjson.Member{Name: resultTypeName, Value: []byte(`"complete"`)})
		}
		if s.cacheable && !has("ttlMs") {
			members = append(members, strictjson.Member{Name: "ttlMs", Value: []byte("0")})
		}
		if s.cacheable && !has("cacheScope") {
			members = append(members, strictjson.Member{Name: "cacheScope", Value: []byte(`"private"`)})
		}
	}
	if len(s.Meta) == 0 {
		return object(members), nil
	}
	meta, err := strictjson.Members(value(members, metaName))
	if err != nil {
		meta = nil
	}
	for name, added := range s.Meta {
		text, err := json.Marshal(added)
		if err != nil {
			return nil, err
		}
		meta = append(without(meta, name), strictjson.Member{Name: name, Value: text})
	}
	return with(members, metaName, object(meta)), nil
}

// without are the members but for one name.
func without(members []strictjson.Member, name string) []strictjson.Member {
	kept := make([]strictjson.Member, 0, len(members)+1)
	for _, member := range members {
		if member.Name != name {
			kept = append(kept, member)
		}
	}
	return kept
}

// needsInput reports whether a result asks for input instead of being one.
func needsInput(result json.RawMessage) bool {
	if !bytes.Contains(result, []byte(inputRequired)) {
		return false
	}
	members, err := strictjson.Members(result)
	return err == nil && text(members, resultTypeName) == inputRequired
}

// maxDetail bounds what is kept of a result for the card, in characters.
const maxDetail = 200

// maxContents is in how many parts of a result a text is looked for.
const maxContents = 100

// read is what the gateway reads of a tool's result.
type read struct {
	failed bool
	detail string // the first text, cut
}

func readResult(result json.RawMessage) read {
	var found read
	// A name counts as it is written: isError, and nothing like it.
	members, err := strictjson.Members(result)
	if err != nil {
		var loose struct {
			IsError bool `json:"isError"`
		}
		_ = json.Unmarshal(result, &loose)
		found.failed = loose.IsError
		return found
	}
	found.failed = string(value(members, "isError")) == "true"
	contents, err := elements(value(members, "content"), maxContents)
	if err != nil {
		return found
	}
	for _, content := range contents {
		parts, err := strictjson.Members(content)
		if err != nil || text(parts, "type") != "text" {
			continue
		}
		found.detail = cut(text(parts, "text"))
		break
	}
	return found
}

// cut is a text as the store takes it: short, and without NUL.
func cut(text string) string {
	text = strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
	short, _ := visible.Cut(text, maxDetail)
	return short
}

// reportOf says what came of a run. What the agent gets later is in its result.
func reportOf(result json.RawMessage, err error) approval.Report {
	if err != nil {
		return reportOfError(err)
	}
	if needsInput(result) {
		return approval.Report{Outcome: approval.Failed, Detail: detailNeedsInput, Result: toolError(whenNeedsInput)}
	}
	found := readResult(result)
	report := approval.Report{Outcome: approval.Succeeded, Detail: found.detail, Result: result}
	if found.failed {
		report.Outcome = approval.Failed
	}
	if len(result) > approval.MaxResult {
		report.Result, report.Detail = nil, detailTooLarge(len(result))
	}
	return report
}

// carried is an error as it is kept in place of a result.
func carried(wire *jsonrpc.Error) json.RawMessage {
	return asResult(&jsonrpc.Response{Error: wire}).Result
}

// toolError is the result of a call that did nothing, with the reason for the
// model.
func toolError(text string) json.RawMessage {
	return mustEncode(map[string]any{"content": textContent(text), "isError": true})
}

func textContent(texts ...string) []map[string]string {
	var content []map[string]string
	for _, text := range texts {
		content = append(content, map[string]string{"type": "text", "text": text})
	}
	return content
}

// mustEncode writes our own strings, numbers and maps of them, which always
// encode, and leaves <, > and & as they are: addresses are for people to read.
func mustEncode(value any) json.RawMessage {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return json.RawMessage(`{"content":[],"isError":true}`)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}
