// Package slacksim is a Slack workspace in one process, for tests and for the
// demo.
//
// It answers the Web API methods that an approval bot calls, with Slack's own
// limits, validation and error names; it signs and sends interactions to the
// app's Request URL or over Socket Mode; it takes the app's answers, opens
// modals, and shows the channel on a web page where a person chooses who they
// are and clicks. Faults are injected per method.
//
// What it is not: it keeps nothing on disk, knows one workspace, one app and
// one bot, and serves only loopback. A block type, element or method that it
// doesn't simulate is refused, never quietly accepted, so a passing test says
// something about Slack. Where Slack's behaviour isn't documented the stricter
// reading is used, and the comment at that place says so.
//
// [Start] gives a server on 127.0.0.1; [New] and [Workspace.Handler] give the
// same without a listener. Everything a test does goes through [Workspace]:
// people ([Workspace.SetUser]), acts ([Workspace.Click], [Workspace.Submit]),
// readers ([Workspace.Messages], [Workspace.OpenView], [Workspace.Calls]) and
// waiting ([Workspace.Wait]).
package slacksim
