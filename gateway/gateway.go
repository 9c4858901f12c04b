// Package gateway stands between agents and the MCP servers that act: the
// downstream servers. It holds their credentials and is the only way to them.
//
// What a downstream server lists is offered as the server wrote it, and
// parameters and results pass as they were written: every digit, every member
// and the order of members stay. The SDK doesn't give that for methods that it
// knows, see rawPrefix.
//
// Each downstream server has one connection, which is made again whenever it
// breaks. One that is down hurts no other: what it offered stays known, and
// calls of it say that it isn't available now.
package gateway
