package mcp

import (
	"context"
	"net/http"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/countersign/countersign/approval"
)

var (
	ParseRequest = parseRequest
	ParseID      = parseID
	Readable     = readable
	MayAsk       = mayAsk
)

// NewHandlerOver is NewHandler over a server that has more than the product's
// tools, for the conformance suite.
func NewHandlerOver(local *Local, over *sdk.Server, options HandlerOptions) *Handler {
	options.defaults()
	return newHandler(local, over, options)
}

// KeepAlive is a keepAlive over a response, for tests of when it writes.
type KeepAlive struct{ *keepAlive }

// NewKeepAlive keeps an event stream alive.
func NewKeepAlive(w http.ResponseWriter) KeepAlive { return KeepAlive{&keepAlive{response: w}} }

func (k KeepAlive) Waits()     { k.waits() }
func (k KeepAlive) Continues() { k.continues() }
func (k KeepAlive) Close()     { k.close() }

// Identify is what a resource makes of an access token: an agent, or the status of
// the refusal.
func Identify(ctx context.Context, r *Resource, token string) (approval.Agent, int) {
	agent, denied := r.identify(ctx, token)
	if denied != nil {
		return agent, denied.status
	}
	return agent, http.StatusOK
}
