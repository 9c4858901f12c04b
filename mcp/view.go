package mcp

import _ "embed"

// viewHTML is what a host shows beside the conversation while somebody is asked
// for a decision. It is built from mcp/view and loads nothing from anywhere.
//
//go:embed view/view.html
var viewHTML string

// Where hosts find the view, and what it is to them.
const (
	viewURI  = "ui://approval-gate/view.html"
	viewMIME = "text/html;profile=mcp-app"
)
