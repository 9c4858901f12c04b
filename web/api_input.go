package web

import (
	"cmp"
	"errors"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/internal/jsoninput"
)

// The inputs of the API are those of the flow tools, under the same names.

// parseRequest reads the body of a call that asks. The payload is the part of the
// body that was written there, byte for byte. Errors are *approval.InputError.
func parseRequest(body []byte) (approval.Proposal, error) {
	inputs := jsoninput.Read(body, "this call",
		"purpose", "payload", "ttlSeconds", "action", "target", "environment", "count", "reversible")
	p := approval.Proposal{
		Purpose:     inputs.Text("purpose", approval.MaxPurpose),
		Action:      inputs.Text("action", approval.MaxAction),
		Target:      inputs.Text("target", approval.MaxTarget),
		Environment: inputs.Text("environment", approval.MaxEnvironment),
		Payload:     inputs.Object("payload", "give the JSON object that will run, exactly as it will run"),
		TTL:         inputs.Seconds("ttlSeconds", approval.MinTTL, approval.MaxTTL),
		Count:       inputs.Count("count"),
		Reversible:  inputs.Boolean("reversible"),
	}
	if err := inputs.Err(); err != nil {
		return approval.Proposal{}, inputError(err)
	}
	return p, nil
}

// parseOutcome reads the body of a call that says what a run came to.
func parseOutcome(body []byte) (approval.Outcome, string, error) {
	inputs := jsoninput.Read(body, "this call", "outcome", "detail")
	outcome := inputs.RequiredText("outcome", len(approval.Succeeded), "succeeded and failed are accepted")
	detail := inputs.Text("detail", approval.MaxReason)
	return approval.Outcome(outcome), detail, inputError(inputs.Err())
}

// parseNothing reads the body of a call that takes no input.
func parseNothing(body []byte) error {
	return inputError(jsoninput.Read(body, "this call").Err())
}

// inputError is what is wrong with a body, as approval says it.
func inputError(err error) error {
	if wrong, ok := errors.AsType[*jsoninput.Error](err); ok {
		return &approval.InputError{Field: cmp.Or(wrong.Field, "body"), Problem: wrong.Problem}
	}
	return err
}

// parseWait reads how long a call wants to wait: wait=SECONDS, once, and nothing
// else.
func parseWait(query url.Values) (time.Duration, error) {
	const accepted = "a whole number of seconds from 0 to 55 is accepted"
	for name, values := range query {
		if name != "wait" {
			return 0, unknownParameter(name, "wait is accepted")
		}
		if len(values) != 1 {
			return 0, &approval.InputError{Field: name, Problem: "is there more than once; " + accepted}
		}
		digits := values[0]
		seconds, err := strconv.ParseUint(digits, 10, 8)
		if err != nil || time.Duration(seconds)*time.Second > MaxWait {
			return 0, &approval.InputError{Field: name, Problem: "is " + cut(digits) + "; " + accepted}
		}
		return time.Duration(seconds) * time.Second, nil
	}
	return 0, nil
}

func noQuery(c call) error {
	if len(c.query) == 0 {
		return nil
	}
	return unknownParameter(slices.Min(slices.Collect(maps.Keys(c.query))), "this call takes none in its address")
}

func unknownParameter(name, accepted string) error {
	return &approval.InputError{Field: cut(name), Problem: "is not an input of this call; " + accepted}
}

// cut is what a caller wrote in an address, as an error may show it.
func cut(text string) string {
	const limit = 40
	if len(text) > limit {
		text = text[:limit]
	}
	return strconv.QuoteToASCII(text)
}
