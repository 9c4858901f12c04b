package mcp

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/internal/jsoninput"
)

// The inputs of the tools, as they are named on the wire.
const (
	inputID          = "elicitationId"
	inputPurpose     = "purpose"
	inputPayload     = "payload"
	inputTTL         = "ttlSeconds"
	inputAction      = "action"
	inputTarget      = "target"
	inputEnvironment = "environment"
	inputCount       = "count"
	inputReversible  = "reversible"
)

var requestInputs = []string{inputPurpose, inputPayload, inputTTL, inputAction, inputTarget, inputEnvironment, inputCount, inputReversible}

const (
	minTTLSeconds = int64(approval.MinTTL / time.Second)
	maxTTLSeconds = int64(approval.MaxTTL / time.Second)
)

// parseRequest reads the arguments of request_approval. The payload is the part
// of raw that was written there, byte for byte. Errors are *approval.InputError.
func parseRequest(raw []byte) (approval.Proposal, error) {
	inputs := jsoninput.Read(raw, "request_approval", requestInputs...)
	p := approval.Proposal{
		Purpose:     inputs.Text(inputPurpose, approval.MaxPurpose),
		Action:      inputs.Text(inputAction, approval.MaxAction),
		Target:      inputs.Text(inputTarget, approval.MaxTarget),
		Environment: inputs.Text(inputEnvironment, approval.MaxEnvironment),
		Payload:     inputs.Object(inputPayload, "give the JSON object that will run, exactly as it will run"),
		TTL:         inputs.Seconds(inputTTL, approval.MinTTL, approval.MaxTTL),
		Count:       inputs.Count(inputCount),
		Reversible:  inputs.Boolean(inputReversible),
	}
	if err := inputs.Err(); err != nil {
		return approval.Proposal{}, inputError(err)
	}
	return p, nil
}

// parseID reads the arguments of the tools that take an elicitationId only.
func parseID(tool string, raw []byte) (approval.ID, error) {
	inputs := jsoninput.Read(raw, tool, inputID)
	id := inputs.RequiredText(inputID, 100, "give the one that request_approval returned")
	return approval.ID(id), inputError(inputs.Err())
}

func stringOf(name string, value []byte, limit int) (string, error) {
	text, err := jsoninput.Text(name, value, limit)
	return text, inputError(err)
}

// inputError is what is wrong with arguments, as approval says it.
func inputError(err error) error {
	if wrong, ok := errors.AsType[*jsoninput.Error](err); ok {
		return &approval.InputError{Field: cmp.Or(wrong.Field, "arguments"), Problem: wrong.Problem}
	}
	return err
}

func wrong(field, format string, args ...any) *approval.InputError {
	return &approval.InputError{Field: field, Problem: fmt.Sprintf(format, args...)}
}
