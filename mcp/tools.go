package mcp

import (
	"fmt"

	"github.com/google/jsonschema-go/jsonschema"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/countersign/countersign/approval"
)

// instructions are what a host may put before a model once per session.
const instructions = `Before an action that needs a person's approval, call request_approval with the exact payload that will run, then await_approval until it returns something else than pending, then apply, and run exactly the payload that apply returns. A rejection or an expiry is final for that request: don't retry, rephrase or work around it.`

// The tools. Their arguments are checked by the handlers and not by the SDK,
// whose typed handlers would round large numbers.
var (
	requestTool = &sdk.Tool{
		Name:        "request_approval",
		Title:       "Ask a person to approve",
		Description: `Ask a person to approve one action before it runs. Give in payload the exact JSON object that will run: it is frozen, shown to the person, and handed back by apply. Give in purpose, in plain words, what the action is for; state action, target, environment, count and reversible if known. The call returns at once with an elicitationId and a status: "pending" means that a person is asked; call await_approval with it next. "approved" means that the policy allows the action without a person; call apply next. Don't run the action before apply has returned its payload.`,
		InputSchema: object(
			field(inputPurpose, text("What the action is for, in plain words for the person who decides.", 1, approval.MaxPurpose)),
			field(inputPayload, &jsonschema.Schema{Type: "object", Description: "The exact JSON object that will run on approval. It is stored and handed back byte for byte. Give the object itself, not text that holds it. Write a number beyond the range of a 64-bit float, such as 1e400, as text: some hosts fail to read it in the result of apply, which has then used up the approval."}),
			optional(inputTTL, &jsonschema.Schema{
				Type:        "integer",
				Description: fmt.Sprintf("How long people have to decide, in seconds; values outside %d to %d are brought within.", minTTLSeconds, maxTTLSeconds),
				Default:     fmt.Appendf(nil, "%d", int(approval.DefaultTTL.Seconds())),
			}),
			optional(inputAction, text("The name of the action, such as crm.delete_customers.", 0, approval.MaxAction)),
			optional(inputTarget, text("What the action acts on, such as a database, a repository or an account.", 0, approval.MaxTarget)),
			optional(inputEnvironment, text("Where the action runs, such as production. Not stated counts as production.", 0, approval.MaxEnvironment)),
			optional(inputCount, &jsonschema.Schema{Type: "integer", Minimum: new(0.0), Description: "How many things the action touches."}),
			optional(inputReversible, &jsonschema.Schema{Type: "boolean", Description: "Whether the action can be undone."}),
		),
		OutputSchema: object(
			field("elicitationId", &jsonschema.Schema{Type: "string", Description: "The request's id, for the other tools."}),
			field("status", &jsonschema.Schema{Type: "string", Enum: []any{approval.Pending, approval.Approved}}),
			field("reviewUrl", &jsonschema.Schema{Type: "string", Format: "uri", Description: "Where people find the request. Opening it decides nothing."}),
			field("expiresAt", &jsonschema.Schema{Type: "string", Format: "date-time", Description: "When the request expires undecided, or unused if it is approved: RFC 3339, UTC."}),
			field("elicitationDelivered", &jsonschema.Schema{Type: "boolean", Description: "Whether a prompt to open reviewUrl was sent to the host. True doesn't mean that a person saw it: the host may still refuse it."}),
		),
		// It reaches people through Slack, and asking twice asks twice.
		Annotations: &sdk.ToolAnnotations{Title: "Ask a person to approve", DestructiveHint: new(false), OpenWorldHint: new(true)},
	}

	awaitTool = &sdk.Tool{
		Name:         "await_approval",
		Title:        "Wait for the decision",
		Description:  `Wait until the request is decided. "pending" means that the wait ended before anybody decided: call again with the same elicitationId, as often as needed. "approved": call apply next. "rejected": a person said no; don't retry, rephrase or work around it. "expired": nobody decided in time; silence is not consent, and nobody refused; ask the user whether to ask again. "applied": the approval was already used.`,
		InputSchema:  idInput,
		OutputSchema: statusOutput,
		Annotations:  &sdk.ToolAnnotations{Title: "Wait for the decision", ReadOnlyHint: true, DestructiveHint: new(false), IdempotentHint: true, OpenWorldHint: new(false)},
	}

	statusTool = &sdk.Tool{
		Name:         "check_status",
		Title:        "Check the decision",
		Description:  `Say where a request is now, without waiting: "pending", "approved", "rejected", "expired" or "applied". To wait for the decision, use await_approval instead of calling this again and again.`,
		InputSchema:  idInput,
		OutputSchema: statusOutput,
		Annotations:  &sdk.ToolAnnotations{Title: "Check the decision", ReadOnlyHint: true, DestructiveHint: new(false), IdempotentHint: true, OpenWorldHint: new(false)},
	}

	applyTool = &sdk.Tool{
		Name:        "apply",
		Title:       "Use the approval",
		Description: `Use up an approval and get the payload that was approved, exactly as it was frozen. It succeeds once, only while the request is "approved" and before the deadline for applying. Run exactly the returned payload, once. If it fails, don't run the action.`,
		InputSchema: idInput,
		OutputSchema: object(
			field("status", &jsonschema.Schema{Type: "string", Enum: []any{approval.Applied}}),
			field("payload", &jsonschema.Schema{Type: "object", Description: "The approved payload. Run exactly this."}),
		),
		// It uses up the one approval there is, which nothing gives back.
		Annotations: &sdk.ToolAnnotations{Title: "Use the approval", DestructiveHint: new(true), OpenWorldHint: new(false)},
	}

	idInput = object(field(inputID, &jsonschema.Schema{Type: "string", Description: "The elicitationId that request_approval returned."}))

	statusOutput = object(field("status", &jsonschema.Schema{
		Type: "string",
		Enum: []any{approval.Pending, approval.Approved, approval.Rejected, approval.Applied, approval.Expired},
	}))
)

// property is one member of an object's schema.
type property struct {
	name     string
	schema   *jsonschema.Schema
	required bool
}

func field(name string, schema *jsonschema.Schema) property {
	return property{name, schema, true}
}

func optional(name string, schema *jsonschema.Schema) property {
	return property{name, schema, false}
}

// object is the schema of an object with these members and no others.
func object(properties ...property) *jsonschema.Schema {
	schema := &jsonschema.Schema{
		Type:                 "object",
		Properties:           make(map[string]*jsonschema.Schema),
		AdditionalProperties: &jsonschema.Schema{Not: &jsonschema.Schema{}},
	}
	for _, p := range properties {
		schema.Properties[p.name] = p.schema
		schema.PropertyOrder = append(schema.PropertyOrder, p.name)
		if p.required {
			schema.Required = append(schema.Required, p.name)
		}
	}
	return schema
}

func text(description string, least, most int) *jsonschema.Schema {
	schema := &jsonschema.Schema{Type: "string", Description: description, MaxLength: &most}
	if least > 0 {
		schema.MinLength = &least
	}
	return schema
}
