package mcp

import (
	"bytes"
	"context"
	"crypto/rand"
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

// markedPayload is a payload with what stands for it in the call that the SDK
// encodes. The SDK would strip white space and escape characters that people
// must read, such as < and &, so the payload's own bytes are put in after it.
type markedPayload struct {
	mark    string // random: nothing else in a call can be mistaken for it
	payload []byte
}

type payloadKey struct{}

func withPayload(ctx context.Context, payload []byte) (_ context.Context, mark string) {
	mark = rand.Text()
	return context.WithValue(ctx, payloadKey{}, markedPayload{mark, payload}), mark
}

// bridgeTransport adds the token to requests, puts payloads in, and tells
// answers apart that say nothing of the call itself.
type bridgeTransport struct {
	token string
	next  http.RoundTripper
}

func newBridgeClient(token string) *http.Client {
	next := http.DefaultTransport.(*http.Transport).Clone()
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
	if marked, ok := request.Context().Value(payloadKey{}).(markedPayload); ok && request.Body != nil {
		body, err := io.ReadAll(request.Body)
		_ = request.Body.Close()
		if err != nil {
			return nil, fmt.Errorf("reading the call: %w", err)
		}
		body = bytes.Replace(body, []byte(`"`+marked.mark+`"`), marked.payload, 1)
		request.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
		request.Body, _ = request.GetBody()
		request.ContentLength = int64(len(body))
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
	case http.StatusUnauthorized:
		problem = ErrTokenRefused
	case http.StatusServiceUnavailable:
		problem = fmt.Errorf("%w: it answered %s", errUnreached, response.Status)
	case http.StatusBadGateway, http.StatusGatewayTimeout:
		problem = fmt.Errorf("%w: it answered %s", errCutOff, response.Status)
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

// answerOf reads a result of the server's tools from its first text, which is
// the JSON as the server wrote it. The SDK's structured content has gone
// through float64.
func answerOf(result *sdk.CallToolResult) (Answer, error) {
	var texts []string
	for _, content := range result.Content {
		if text, ok := content.(*sdk.TextContent); ok {
			texts = append(texts, text.Text)
		}
	}
	if len(texts) == 0 {
		return Answer{}, errors.New("the server's answer has no text")
	}
	if result.IsError {
		return Answer{}, &Refusal{texts[0]}
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
