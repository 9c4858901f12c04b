package mcp

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/internal/strictjson"
)

// The bridge calls tools under a method of its own, which its transport renames.
// For tools/call the SDK decodes every number of a result to a float64, rounding
// what doesn't fit and failing on what is out of range; for a custom method it
// leaves the result to its type.
const (
	bridgeMethod = "countersign/call"
	toolMethod   = "tools/call"
)

// bridgeParams are the parameters of tools/call.
type bridgeParams struct {
	sdk.ParamsBase
	Name      string         `json:"name"`
	Arguments map[string]any `json:"arguments"`
}

// bridgeResult is what the bridge reads of a result of tools/call.
type bridgeResult struct {
	sdk.ResultBase
	Content []struct {
		Type string `json:"type"`
		Text string `json:"text"`
	} `json:"content"`
	IsError bool `json:"isError"`
}

// outgoing is what the transport must know of a call that the SDK has encoded.
type outgoing struct {
	tool string
	// payload's own bytes are put in where the SDK has encoded mark, which is
	// random: the SDK would strip white space and escape characters that people
	// must read, such as < and &. No payload if nil.
	payload []byte
	mark    string
}

type outgoingKey struct{}

// bridgeTransport adds the token to requests, puts payloads in, and tells
// answers apart that say nothing of the call itself.
type bridgeTransport struct {
	token string
	next  http.RoundTripper
}

func newBridgeClient(token string) *http.Client {
	next := http.DefaultTransport.(*http.Transport).Clone()
	// On a connection that was idle while the server restarted, a call fails as
	// if it might have arrived; on a new one it surely didn't.
	next.DisableKeepAlives = true
	return &http.Client{
		Transport: &bridgeTransport{token: token, next: next},
		// Following one would send the token to another place.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// CloseIdleConnections lets http.Client close them.
func (t *bridgeTransport) CloseIdleConnections() {
	if idle, ok := t.next.(interface{ CloseIdleConnections() }); ok {
		idle.CloseIdleConnections()
	}
}

func (t *bridgeTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	request = request.Clone(request.Context())
	request.Header.Set("Authorization", "Bearer "+t.token)
	if call, ok := request.Context().Value(outgoingKey{}).(outgoing); ok && request.Method == http.MethodPost {
		body, err := io.ReadAll(request.Body)
		_ = request.Body.Close()
		if err != nil {
			return nil, fmt.Errorf("reading the call: %w", err)
		}
		call.rewrite(request, body)
	}
	response, err := t.next.RoundTrip(request)
	if err != nil {
		if dial, ok := errors.AsType[*net.OpError](err); ok && dial.Op == "dial" {
			return nil, fmt.Errorf("%w: %w", errUnreached, err)
		}
		return nil, err
	}
	problem := error(nil)
	switch response.StatusCode {
	case http.StatusServiceUnavailable, http.StatusBadGateway, http.StatusGatewayTimeout:
		// A proxy may say so of a call that the server has served.
		kind := errCutOff
		if response.Header.Get(untouchedHeader) != "" {
			kind = errUnreached
		}
		problem = fmt.Errorf("%w: it answered %s", kind, response.Status)
	case http.StatusUnauthorized:
		problem = ErrTokenRefused
	default:
		// What MCP itself refuses is JSON, which the SDK reads.
		if response.StatusCode >= 300 && !strings.HasPrefix(response.Header.Get("Content-Type"), "application/json") {
			text, _ := io.ReadAll(io.LimitReader(response.Body, 300))
			problem = fmt.Errorf("%w: %s: %q", errNotMCP, response.Status, strings.TrimSpace(string(text)))
		}
	}
	if problem != nil {
		_ = response.Body.Close()
		return nil, problem
	}
	return response, nil
}

// rewrite turns an encoded call of bridgeMethod into one of tools/call. Other
// messages that belong to the call, such as that it is cancelled, stay.
func (o outgoing) rewrite(request *http.Request, body []byte) {
	// The method comes before the parameters, so it is the first that is found.
	renamed := bytes.Replace(body, []byte(`"method":"`+bridgeMethod+`"`), []byte(`"method":"`+toolMethod+`"`), 1)
	if len(renamed) != len(body) {
		body = renamed
		if o.payload != nil {
			body = bytes.Replace(body, []byte(`"`+o.mark+`"`), o.payload, 1)
		}
		if request.Header.Get("Mcp-Method") == bridgeMethod {
			request.Header.Set("Mcp-Method", toolMethod)
			request.Header.Set("Mcp-Name", o.tool)
		}
	}
	request.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	request.Body = io.NopCloser(bytes.NewReader(body))
	request.ContentLength = int64(len(body))
}

// answerOf reads a result of the server's tools from its first text, which is
// the JSON as the server wrote it.
func answerOf(result *bridgeResult) (Answer, error) {
	var texts []string
	for _, content := range result.Content {
		if content.Type == "text" {
			texts = append(texts, content.Text)
		}
	}
	if len(texts) == 0 {
		return Answer{}, errors.New("the server's answer has no text")
	}
	if result.IsError {
		return Answer{}, &Refusal{Text: texts[0]}
	}
	members, err := strictjson.Members([]byte(texts[0]))
	if err != nil {
		return Answer{}, fmt.Errorf("reading the server's answer: %w", err)
	}
	var a Answer
	if len(texts) > 1 {
		a.Guidance = texts[1]
	}
	for _, member := range members {
		var text string
		switch member.Name {
		case "payload":
			a.Payload = member.Value
			continue
		case "elicitationDelivered":
			continue // whether this side's host was sent one is this side's to say
		}
		if text, err = stringOf(member.Name, member.Value, len(member.Value)); err != nil {
			return Answer{}, fmt.Errorf("reading the server's answer: %w", err)
		}
		switch member.Name {
		case "status":
			a.Status = approval.Status(text)
		case "elicitationId":
			a.ID = approval.ID(text)
		case "reviewUrl":
			a.ReviewURL = text
		case "expiresAt":
			if a.ExpiresAt, err = time.Parse(time.RFC3339, text); err != nil {
				return Answer{}, fmt.Errorf("reading the server's answer: %w", err)
			}
		}
	}
	switch a.Status {
	case approval.Pending, approval.Approved, approval.Rejected, approval.Expired, approval.Applied:
		return a, nil
	default:
		return Answer{}, fmt.Errorf("the server answered with the status %q, which this version doesn't know", a.Status)
	}
}
