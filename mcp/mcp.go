// Package mcp is the door for agents, over stdio and streamable HTTP, for every
// protocol version that the SDK speaks. It serves one of three sets of tools.
//
// The flow's four let a model ask a person, wait, and get exactly what was
// approved. They translate to and from a Flow: Local is that of this process's own
// approval.Service, and Remote that of a running server, for a stdio bridge.
//
// The Gate's hold one call until it is decided, and let a view that the agent's host
// shows (MCP Apps) decide where the policy says that this is enough.
//
// A Gateway's are those of other servers.
//
// Nothing here decides anything. Who calls is never taken from the arguments, from
// what a client says of itself, or from a session: over HTTP each call carries a
// token, the server's own or one of a configured issuer, and a stdio server is
// started for one agent.
package mcp

import (
	"context"
	"time"

	"github.com/countersign/countersign/approval"
)

// Flow is what the tools need: to ask, to wait, to look, and to use up an
// approval. All methods are safe for concurrent use.
//
// An error that is a *Refusal is for the model to read. Any other error is
// logged, and the model is told of an internal error only.
type Flow interface {
	// Request records what the agent asks. The answer has the ID, ReviewURL
	// and ExpiresAt. Its status is pending, or approved for what policy allows
	// without a person; what policy denies is a Refusal.
	Request(ctx context.Context, agent approval.Agent, p approval.Proposal) (Answer, error)
	// Await is Status that waits, within the flow's own bound, until the
	// request is no longer pending. A caller that goes away gets ctx's error,
	// and the request stays as it is. If report isn't nil, it is called with a
	// line for people at once and every ten seconds while the request is
	// pending, never after Await has returned, and by one goroutine at a time.
	Await(ctx context.Context, agent approval.Agent, id approval.ID, report func(message string)) (Answer, error)
	// Status says where the request is now.
	Status(ctx context.Context, agent approval.Agent, id approval.ID) (Answer, error)
	// Apply uses up the approval. The answer has the Payload.
	Apply(ctx context.Context, agent approval.Agent, id approval.ID) (Answer, error)
}

// Answer is what a Flow tells about a request.
type Answer struct {
	Status approval.Status
	// Guidance says to the model what the status means and what to do next.
	Guidance string

	ID        approval.ID // set by Request
	ReviewURL string      // set by Request: where people find the request
	ExpiresAt time.Time   // set by Request: deciding ends here, or applying if it is approved
	// Payload is set by Apply: the exact bytes that were approved.
	Payload approval.Payload
}

// Refusal is an error whose text the model may read and act on.
type Refusal struct {
	Text  string
	cause error // for the log: what whoever runs the server must see to; or nil
}

// Error is the text.
func (r *Refusal) Error() string { return r.Text }
