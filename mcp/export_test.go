package mcp

import (
	"net/http"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

var (
	ParseRequest = parseRequest
	ParseID      = parseID
	Readable     = readable
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
