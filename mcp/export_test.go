package mcp

import (
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

var (
	ParseRequest = parseRequest
	ParseID      = parseID
	WholeNumber  = wholeNumber
	ErrNotWhole  = errNotWhole
	ErrTooSmall  = errTooSmall
	ErrTooLarge  = errTooLarge
)

// NewHandlerOver is NewHandler over a server that has more than the product's
// tools, for the conformance suite.
func NewHandlerOver(local *Local, over *sdk.Server, options HandlerOptions) *Handler {
	options.defaults()
	return newHandler(local, over, options)
}
