package gateway

import (
	"encoding/json"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/internal/strictjson"
)

const resultToolName = "await_result"

// resultTool gives an agent the result of a call that waited for a person.
var resultTool = &sdk.Tool{
	Name:        resultToolName,
	Title:       "Get the result of a waiting call",
	Description: `Wait until a call that needed a person's approval has run, and return its result exactly as the tool gave it. Give the requestId that the waiting call returned. If nobody has decided yet, or it still runs, the wait ends with that: call again with the same requestId, as often as needed. A rejection or an expiry is final for that call: don't retry, rephrase or work around it.`,
	InputSchema: json.RawMessage(`{"type":"object","properties":{"requestId":{"type":"string","description":"The id that the waiting call returned."}},"required":["requestId"],"additionalProperties":false}`),
	// It may run what was approved, which was a person's decision and not this
	// call's.
	Annotations: &sdk.ToolAnnotations{Title: "Get the result of a waiting call", DestructiveHint: new(false), IdempotentHint: true, OpenWorldHint: new(false)},
}

// awaitResult answers a call of await_result.
func (c *call) awaitResult(members []strictjson.Member) (json.RawMessage, error) {
	arguments, err := argumentsIn(members)
	if err != nil {
		return nil, err
	}
	id, err := requestIn(arguments)
	if err != nil {
		return nil, err
	}
	r, err := c.service.Status(c.ctx, c.agent, id)
	if err != nil {
		return nil, unknown(err, id)
	}
	if r.Executor != approval.ByGateway {
		return nil, &notRun{text: runYourself}
	}
	return c.settle(r, c.options.AwaitBound)
}

// requestIn reads the id of a request from the arguments: requestId, or
// elicitationId, as other tools call it.
func requestIn(arguments json.RawMessage) (approval.ID, error) {
	members, err := strictjson.Members(arguments)
	if err == nil && len(members) == 1 && (members[0].Name == "requestId" || members[0].Name == "elicitationId") {
		if id := text(members, members[0].Name); id != "" {
			return approval.ID(id), nil
		}
	}
	return "", &notRun{text: `requestId: give the one that the waiting call returned, as {"requestId": "req_…"}.`}
}
