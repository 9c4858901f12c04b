package mcp

import (
	"bytes"
	"encoding/json"
	"fmt"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/countersign/countersign/approval"
)

// requested is the result of request_approval, in the order of the seed.
type requested struct {
	ElicitationID        approval.ID     `json:"elicitationId"`
	Status               approval.Status `json:"status"`
	ReviewURL            string          `json:"reviewUrl"`
	ExpiresAt            string          `json:"expiresAt"`
	ElicitationDelivered bool            `json:"elicitationDelivered"`
}

// requestedText is a's result of request_approval.
func requestedText(a Answer, delivered bool) ([]byte, error) {
	return encode(requested{
		ElicitationID:        a.ID,
		Status:               a.Status,
		ReviewURL:            a.ReviewURL,
		ExpiresAt:            timeText(a.ExpiresAt),
		ElicitationDelivered: delivered,
	})
}

// statusText is a's result of await_approval and check_status.
func statusText(a Answer) ([]byte, error) {
	return encode(struct {
		Status approval.Status `json:"status"`
	}{a.Status})
}

// appliedText is a's result of apply, with the payload's bytes as they are.
func appliedText(a Answer) ([]byte, error) {
	status, err := statusText(a)
	if err != nil {
		return nil, err
	}
	text := append(bytes.TrimSuffix(status, []byte("}")), `,"payload":`...)
	return append(append(text, a.Payload...), '}'), nil
}

// encode is json.Marshal that leaves <, > and & as they are: an address with &
// in it is for people to read.
func encode(value any) ([]byte, error) {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return nil, fmt.Errorf("encoding a result: %w", err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// result is a tool's result: the JSON text as it is, the same value as
// structured content, and what the model is told beside it.
func result(text []byte, guidance string) *sdk.CallToolResult {
	plain := plainResult(text)
	plain.Content = append(plain.Content, &sdk.TextContent{Text: guidance})
	return plain
}

// plainResult is a result that no model reads.
func plainResult(text []byte) *sdk.CallToolResult {
	return &sdk.CallToolResult{
		Content:           []sdk.Content{&sdk.TextContent{Text: string(text)}},
		StructuredContent: json.RawMessage(text),
	}
}

// failed is the result of a call that did nothing, with the reason for the
// model.
func failed(text string) *sdk.CallToolResult {
	return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: text}}, IsError: true}
}
