package gateway

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/countersign/countersign/internal/strictjson"
)

// maxMessage bounds one message of a downstream server, in bytes.
const maxMessage = 16 << 20

// outgoing is what the transport must know of a request that the SDK has
// encoded. It travels in the request's context.
type outgoing struct {
	method  string // without rawPrefix
	name    string // of what it is about: a tool, a prompt or a resource
	headers map[string]string
}

type outgoingKey struct{}

// newHTTPTransport reaches a server over streamable HTTP.
func newHTTPTransport(server Server) *sdk.StreamableClientTransport {
	next := http.DefaultTransport.(*http.Transport).Clone()
	return &sdk.StreamableClientTransport{
		Endpoint: server.URL,
		HTTPClient: &http.Client{
			Transport: &httpTransport{headers: server.Headers, next: next},
			// The server's credentials are for the configured address only.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		MaxEventSize: maxMessage,
	}
}

// httpTransport adds the server's own headers, renames the gateway's methods to
// what they are, and tells what never arrived from what may have.
type httpTransport struct {
	headers map[string]string
	next    http.RoundTripper
}

// CloseIdleConnections lets http.Client close them.
func (t *httpTransport) CloseIdleConnections() {
	if idle, ok := t.next.(interface{ CloseIdleConnections() }); ok {
		idle.CloseIdleConnections()
	}
}

func (t *httpTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	request = request.Clone(request.Context())
	for name, value := range t.headers {
		request.Header.Set(name, value)
	}
	if request.Method == http.MethodPost && request.Body != nil {
		body, err := io.ReadAll(request.Body)
		_ = request.Body.Close()
		if err != nil {
			return nil, fmt.Errorf("%w: reading the request: %w", errUnavailable, err)
		}
		if out, ok := request.Context().Value(outgoingKey{}).(outgoing); ok {
			body = out.rewrite(request, body)
		}
		request.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
		request.Body = io.NopCloser(bytes.NewReader(body))
		request.ContentLength = int64(len(body))
	}
	response, err := t.next.RoundTrip(request)
	if err != nil {
		if dial, ok := errors.AsType[*net.OpError](err); ok && dial.Op == "dial" {
			return nil, fmt.Errorf("%w: %w", errUnavailable, err)
		}
		return nil, err
	}
	var problem error
	switch code := response.StatusCode; {
	case code == http.StatusUnauthorized || code == http.StatusForbidden:
		problem = fmt.Errorf("%w: it refuses the configured credentials (%s)", errUnavailable, response.Status)
	case code == http.StatusTooManyRequests:
		problem = fmt.Errorf("%w: it is asked too often (%s)", errUnavailable, response.Status)
	case code >= 300 && code < 400:
		problem = fmt.Errorf("%w: it sends on to another address (%s), which isn't followed", errUnavailable, response.Status)
	}
	if problem != nil {
		_ = response.Body.Close()
		return nil, problem
	}
	return response, nil
}

// rewrite turns an encoded request of one of the gateway's methods into what it
// is. Other messages that belong to the call, such as that it is cancelled,
// stay.
func (o outgoing) rewrite(request *http.Request, body []byte) []byte {
	// The method comes before the parameters, so it is the first that is found.
	renamed := bytes.Replace(body, []byte(`"method":"`+rawPrefix), []byte(`"method":"`), 1)
	if len(renamed) == len(body) {
		return body
	}
	if request.Header.Get("Mcp-Method") == "" {
		return renamed // a version without these headers
	}
	request.Header.Set("Mcp-Method", o.method)
	if o.name != "" {
		request.Header.Set("Mcp-Name", headerValue(o.name))
	}
	for name, value := range o.headers {
		request.Header.Set(name, value)
	}
	return renamed
}

// paramHeader says that a tool's server wants an argument in an HTTP header too:
// the tool's schema has x-mcp-header there.
type paramHeader struct {
	path   []string
	header string
}

// maxHeaderDepth bounds how deep in a schema headers are looked for.
const maxHeaderDepth = 16

// paramHeaders finds them in the schema of a tool's arguments.
func paramHeaders(schema json.RawMessage) []paramHeader {
	return appendParamHeaders(nil, schema, nil)
}

func appendParamHeaders(found []paramHeader, schema json.RawMessage, path []string) []paramHeader {
	members, err := strictjson.Members(schema)
	if err != nil || len(path) > maxHeaderDepth {
		return found
	}
	properties, err := strictjson.Members(value(members, "properties"))
	if err != nil {
		return found
	}
	for _, property := range properties {
		below := append(path[:len(path):len(path)], property.Name)
		inner, err := strictjson.Members(property.Value)
		if err != nil {
			continue
		}
		if header := text(inner, "x-mcp-header"); header != "" {
			found = append(found, paramHeader{path: below, header: "Mcp-Param-" + header})
		}
		found = appendParamHeaders(found, property.Value, below)
	}
	return found
}

// headersOf are the headers for some arguments. What isn't a string, a boolean or a
// whole number that every JSON reader holds gets none.
func headersOf(wanted []paramHeader, arguments json.RawMessage) map[string]string {
	headers := make(map[string]string, len(wanted))
	for _, want := range wanted {
		at := arguments
		for _, name := range want.path {
			members, err := strictjson.Members(at)
			if err != nil {
				at = nil
				break
			}
			at = value(members, name)
		}
		if text, ok := headerText(at); ok {
			headers[want.header] = headerValue(text)
		}
	}
	return headers
}

// headerText is a JSON value as it stands in a header.
func headerText(value json.RawMessage) (string, bool) {
	if len(value) == 0 {
		return "", false
	}
	switch value[0] {
	case '"':
		var text string
		err := json.Unmarshal(value, &text)
		return text, err == nil
	case 't', 'f':
		return string(value), true
	default:
		const most = 1<<53 - 1
		number, err := strconv.ParseInt(string(value), 10, 64)
		if err != nil || number > most || number < -most {
			return "", false
		}
		return strconv.FormatInt(number, 10), true
	}
}

// headerValue writes what isn't plain ASCII, or would lose its spaces, in the
// form that MCP has for it.
func headerValue(text string) string {
	const open, end = "=?base64?", "?="
	plain := text != "" && strings.TrimSpace(text) == text && !strings.HasPrefix(text, open)
	for _, r := range text {
		plain = plain && r >= ' ' && r <= '~'
	}
	if plain {
		return text
	}
	return open + base64.StdEncoding.EncodeToString([]byte(text)) + end
}

// sending tells the transport of a request.
func sending(ctx context.Context, out outgoing) context.Context {
	return context.WithValue(ctx, outgoingKey{}, out)
}
