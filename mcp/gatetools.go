package mcp

import (
	"github.com/google/jsonschema-go/jsonschema"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/countersign/countersign/approval"
)

// gateInstructions are what a host may put before a model once per session.
const gateInstructions = `Before an action that needs a person's approval, call request_approval with the action and its exact arguments. The call is held until somebody decides. Run the action only if the outcome is granted: call apply with the requestId right before, and run exactly the arguments that it returns, once. denied and expired are final for that request: don't retry, rephrase or work around them.`

// The inputs of the gate's tools that the flow doesn't have.
const (
	inputArguments = "arguments"
	inputAsked     = "asked"
	inputRevision  = "knownRevision"
	inputVersion   = "requestVersion"
	inputDigest    = "digest"
	inputOutcome   = "outcome"
	inputScope     = "scope"
	inputEdited    = "editedArgs"
	inputReason    = "reason"
)

// The gate's tools. Those of the view are for it alone, which a server can only ask
// of a host: what they decide is bounded by the policy.
var (
	holdTool = &sdk.Tool{
		Name:        "request_approval",
		Title:       "Ask the person to approve an action",
		Description: `Ask a person to approve one action before it runs, and wait for the decision. Give in arguments the exact JSON object that will run: it is frozen and shown to the person. The call is held until somebody decides, at most some minutes. Run the action only if outcome is "granted": call apply with the requestId right before, and run exactly what it returns, once; if editedArgs is there, somebody edited the arguments, and only those may run. "denied": don't retry, rephrase or work around it. "expired": nobody decided; silence is not consent.`,
		InputSchema: object(
			field(inputAction, text("The name of the action, such as crm.update_deals.", 1, approval.MaxAction)),
			field(inputArguments, &jsonschema.Schema{Type: "object", Description: "The exact JSON object that will run on approval. It is stored byte for byte. Give the object itself, not text that holds it."}),
			field(inputTarget, text("What the action touches, such as an account, a table or a repository.", 1, approval.MaxTarget)),
			field(inputReversible, &jsonschema.Schema{Type: "boolean", Description: "Whether the action can be undone."}),
			optional(inputPurpose, text("What the action is for, in plain words for the person who decides.", 0, approval.MaxPurpose)),
			optional(inputEnvironment, text("Where the action runs, such as production. Not stated counts as production.", 0, approval.MaxEnvironment)),
			optional(inputCount, &jsonschema.Schema{Type: "integer", Minimum: new(0.0), Description: "How many things the action touches."}),
		),
		OutputSchema: decisionOutput(outcomeGranted, outcomeDenied, outcomeExpired),
		Annotations:  &sdk.ToolAnnotations{Title: "Ask the person to approve an action", DestructiveHint: new(false), OpenWorldHint: new(true)},
		Meta:         uiMeta("model"),
	}

	viewRequestTool = &sdk.Tool{
		Name:        "approval_request",
		Title:       "Show the request that is held",
		Description: "For the approval view: the request that is held, as the server has it.",
		InputSchema: object(
			optional(inputRequest, &jsonschema.Schema{Type: "string", Description: "The request; without it, the one whose call is held."}),
			optional(inputAsked, &jsonschema.Schema{Type: "object", Description: "The arguments of the held call as the host has them, to tell several apart."}),
			optional(inputRevision, &jsonschema.Schema{Type: "integer", Minimum: new(0.0), Description: "Wait some seconds for a change, as long as the request has this revision."}),
		),
		Annotations: &sdk.ToolAnnotations{Title: "Show the request that is held", ReadOnlyHint: true, DestructiveHint: new(false), IdempotentHint: true, OpenWorldHint: new(false)},
		Meta:        uiMeta("app"),
	}

	viewDecideTool = &sdk.Tool{
		Name:        "approval_decide",
		Title:       "Decide on the request",
		Description: "For the approval view: record what the person decided. It counts only where the policy lets a decision in the host be enough.",
		InputSchema: object(append(shownInputs(),
			field(inputOutcome, &jsonschema.Schema{Type: "string", Enum: []any{outcomeGranted, outcomeDenied}}),
			optional(inputScope, &jsonschema.Schema{Type: "string", Description: "How far an approval goes, one of the request's scopes; without it, once."}),
			optional(inputEdited, &jsonschema.Schema{Type: "string", Description: "The JSON text of the arguments to approve in place of those shown. requestVersion is then the next one."}),
			optional(inputReason, text("Why, in the person's words.", 0, approval.MaxReason)),
		)...),
		Annotations: &sdk.ToolAnnotations{Title: "Decide on the request", DestructiveHint: new(true), OpenWorldHint: new(false)},
		Meta:        uiMeta("app"),
	}

	viewRevokeTool = &sdk.Tool{
		Name:        "approval_revoke",
		Title:       "Take the approval back",
		Description: "For the approval view: take back what was granted and isn't applied yet.",
		InputSchema: object(append(shownInputs(), optional(inputReason, text("Why, in the person's words.", 0, approval.MaxReason)))...),
		Annotations: &sdk.ToolAnnotations{Title: "Take the approval back", DestructiveHint: new(true), OpenWorldHint: new(false)},
		Meta:        uiMeta("app"),
	}
)

// shownInputs say what the view showed when somebody decided.
func shownInputs() []property {
	return []property{
		field(inputRequest, &jsonschema.Schema{Type: "string"}),
		field(inputVersion, &jsonschema.Schema{Type: "integer", Minimum: new(1.0), Description: "The version that is decided on."}),
		field(inputDigest, &jsonschema.Schema{Type: "string", Description: "The digest of the version that was shown."}),
	}
}

func decisionOutput(outcomes ...any) *jsonschema.Schema {
	return object(
		field("requestId", &jsonschema.Schema{Type: "string", Description: "The request's id, for apply."}),
		field("requestVersion", &jsonschema.Schema{Type: "integer", Description: "The version that was decided on; an edit makes the next one."}),
		field("outcome", &jsonschema.Schema{Type: "string", Enum: outcomes}),
		optional("scope", &jsonschema.Schema{Type: "string", Description: "How far an approval goes: once, session, or a duration such as 15m."}),
		optional("editedArgs", &jsonschema.Schema{Type: "object", Description: "The arguments as somebody edited them. Only these may run."}),
		field("decidedAt", &jsonschema.Schema{Type: "string", Format: "date-time", Description: "RFC 3339, UTC."}),
		optional("serverReceiptId", &jsonschema.Schema{Type: "string", Description: "The receipt of the decision; not there if nobody decided."}),
	)
}
