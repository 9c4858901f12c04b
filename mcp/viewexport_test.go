package mcp

// What the tests of the view show in a host of their own.
var ViewHTML = viewHTML

const (
	ViewURI  = viewURI
	ViewMIME = viewMIME
)
