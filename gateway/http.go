package gateway

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"mime"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/countersign/countersign/internal/strictjson"
)

// maxMessage bounds one message of a downstream server, in bytes.
const maxMessage = 16 << 20

// idleTimeout is how long a connection is kept for the next request.
const idleTimeout = 20 * time.Second

// maxPatience is how long a server may take at most to open a stream.
const maxPatience = 5 * time.Second

// errTooLong means that a server sent more than maxMessage at once.
var errTooLong = fmt.Errorf("it sent a message of more than %d bytes", maxMessage)

// newHTTPTransport reaches a server over streamable HTTP. All that goes on over
// it ends with ctx. Call its CloseIdleConnections then.
func newHTTPTransport(ctx context.Context, server Server, received receiver) (*sdk.StreamableClientTransport, *httpTransport) {
	below := &httpTransport{
		ctx:      ctx,
		headers:  server.Headers,
		received: received,
		patience: min(maxPatience, server.startTimeout()/3),
		next:     http.DefaultTransport.(*http.Transport).Clone(),
	}
	// A server that closes a connection while a call is sent on it may have run
	// the call. Most close one that is idle for a minute or more.
	below.next.IdleConnTimeout = idleTimeout
	return &sdk.StreamableClientTransport{
		Endpoint: server.URL,
		HTTPClient: &http.Client{
			Transport: below,
			// The server's credentials are for the configured address only.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		MaxEventSize: maxMessage,
	}, below
}

// httpTransport adds the server's own headers, renames the gateway's methods to
// what they are, shows messages to received, and tells what never arrived from
// what may have.
type httpTransport struct {
	ctx      context.Context
	headers  map[string]string
	received receiver
	patience time.Duration // with a server that opens a stream
	next     *http.Transport
}

// CloseIdleConnections lets http.Client close them.
func (t *httpTransport) CloseIdleConnections() { t.next.CloseIdleConnections() }

// RoundTrip implements http.RoundTripper.
func (t *httpTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	// The SDK waits for some answers without a limit.
	ctx, cancel := context.WithCancel(request.Context())
	stop := context.AfterFunc(t.ctx, cancel)
	end := func() {
		stop()
		cancel()
	}
	response, err := t.send(ctx, request)
	if err != nil {
		end()
		return nil, err
	}
	response.Body = &endingBody{ReadCloser: response.Body, end: end}
	return response, nil
}

// endingBody ends what a request holds when its response was read.
type endingBody struct {
	io.ReadCloser
	end func()
}

// Close implements io.Closer.
func (b *endingBody) Close() error {
	defer b.end()
	return b.ReadCloser.Close()
}

func (t *httpTransport) send(ctx context.Context, request *http.Request) (*http.Response, error) {
	f := flightOf(ctx)
	carries := false // f itself, not a message about it
	if request.Method == http.MethodPost && request.Body != nil {
		body, err := io.ReadAll(request.Body)
		_ = request.Body.Close()
		if err != nil {
			return nil, fmt.Errorf("reading the request: %w", err)
		}
		request = request.Clone(ctx)
		if f != nil {
			body, carries = f.rewrite(request, body)
		}
		request.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
		request.Body = io.NopCloser(bytes.NewReader(body))
		request.ContentLength = int64(len(body))
	} else {
		request = request.Clone(ctx)
	}
	for name, value := range t.headers {
		request.Header.Set(name, value)
	}
	if f != nil && request.Method == http.MethodPost && !carries {
		defer f.renounce()
	}
	if carries {
		request = request.WithContext(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
			// Without a connection nothing can have arrived.
			GotConn: func(httptrace.GotConnInfo) { f.departed.Store(true) },
		}))
	}
	if request.Method == http.MethodGet && request.Header.Get("Last-Event-Id") == "" {
		return t.listen(ctx, request)
	}
	response, err := t.next.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	if request.Method == http.MethodPost {
		if err := refusal(response); err != nil {
			_ = response.Body.Close()
			if carries {
				f.refused.Store(true)
			}
			return nil, err
		}
	}
	if carries {
		response, err = t.answer(f, request, response)
		if err != nil {
			return nil, err
		}
	}
	t.watch(response, f)
	return response, nil
}

// listen opens the stream on which a server says things of its own accord. The
// SDK waits for it before anything else, so where nothing comes of it the server
// counts as one that has none.
func (t *httpTransport) listen(ctx context.Context, request *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(ctx)
	late := time.AfterFunc(t.patience, cancel)
	response, err := t.next.RoundTrip(request.WithContext(ctx))
	if late.Stop() && err == nil {
		response.Body = &endingBody{ReadCloser: response.Body, end: cancel}
		t.watch(response, nil)
		return response, nil
	}
	cancel()
	if err == nil {
		_ = response.Body.Close()
	}
	return &http.Response{
		StatusCode: http.StatusMethodNotAllowed,
		Status:     "405 " + http.StatusText(http.StatusMethodNotAllowed),
		Proto:      "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header:  make(http.Header),
		Body:    http.NoBody,
		Request: request,
	}, nil
}

// refusal says what a response means of which the status alone tells that the
// server didn't look at the message; nil if it may have.
func refusal(response *http.Response) error {
	switch code := response.StatusCode; {
	case code == http.StatusUnauthorized || code == http.StatusForbidden:
		return fmt.Errorf("it refuses the configured credentials (%s)", response.Status)
	case code == http.StatusTooManyRequests:
		return fmt.Errorf("it is asked too often (%s)", response.Status)
	case code >= 300 && code < 400:
		return fmt.Errorf("it sends on to another address (%s), which isn't followed", response.Status)
	default:
		return nil
	}
}

// answer reads the response to f where its status isn't that of a result: for
// such the SDK forgets the answer, or ends a connection that other requests are
// on.
func (t *httpTransport) answer(f *flight, request *http.Request, response *http.Response) (*http.Response, error) {
	code := response.StatusCode
	if code >= 200 && code < 300 {
		return response, nil
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, maxMessage))
	_ = response.Body.Close()
	if err != nil {
		return nil, fmt.Errorf("reading its answer (%s): %w", response.Status, err)
	}
	gone := code == http.StatusNotFound && request.Header.Get("Mcp-Session-Id") != ""
	if message, err := jsonrpc.DecodeMessage(body); err == nil && !gone {
		if wire, ok := message.(*jsonrpc.Response); ok && wire.Error != nil {
			response.StatusCode, response.Status = http.StatusOK, "200 OK"
			response.Header.Set("Content-Type", "application/json")
			response.Body = io.NopCloser(bytes.NewReader(body))
			return response, nil
		}
	}
	switch code {
	case http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusNotAcceptable,
		http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType:
		f.refused.Store(true)
	}
	if gone {
		// The SDK must see that the session is gone, which some say in JSON.
		response.Body = http.NoBody
		return response, nil
	}
	return nil, fmt.Errorf("it answered %s", response.Status)
}

// watch shows the messages in a response to received. f is the request whose
// answer they come with; nil if that isn't known.
func (t *httpTransport) watch(response *http.Response, f *flight) {
	kind, _, err := mime.ParseMediaType(response.Header.Get("Content-Type"))
	reader := &messageReader{
		ReadCloser: response.Body,
		source:     bufio.NewReader(response.Body),
		events:     err == nil && kind == "text/event-stream",
		translate: func(text []byte) []byte {
			message, err := jsonrpc.DecodeMessage(text)
			if err != nil {
				return text // the SDK says so
			}
			changed := message
			if wire, ok := message.(*jsonrpc.Response); ok && wire.Error != nil && f != nil {
				changed = asResult(wire)
			}
			if changed = t.received(changed, f); changed == message {
				return text
			}
			encoded, err := jsonrpc.EncodeMessage(changed)
			if err != nil {
				return text
			}
			return encoded
		},
	}
	if response.StatusCode < 200 || response.StatusCode >= 300 {
		reader.translate = func(text []byte) []byte { return text }
	}
	response.Body = reader
	response.ContentLength = -1
	response.Header.Del("Content-Length")
}

// messageReader translates the messages of a body, which is either one message
// or a stream of events.
type messageReader struct {
	io.ReadCloser
	source    *bufio.Reader
	events    bool
	translate func([]byte) []byte
	ready     []byte // to be read
	err       error  // after that
}

// Read implements io.Reader.
func (r *messageReader) Read(p []byte) (int, error) {
	for len(r.ready) == 0 {
		if r.err != nil {
			return 0, r.err
		}
		if r.events {
			r.ready, r.err = r.event()
		} else {
			r.ready, r.err = r.whole()
		}
	}
	n := copy(p, r.ready)
	r.ready = r.ready[n:]
	return n, nil
}

func (r *messageReader) whole() ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(r.source, maxMessage+1))
	if err != nil {
		return nil, err
	}
	if len(text) > maxMessage {
		return nil, errTooLong
	}
	return r.translate(text), io.EOF
}

// event reads up to the empty line that ends an event.
func (r *messageReader) event() ([]byte, error) {
	var written, data, other []byte
	for {
		line, err := r.source.ReadSlice('\n')
		written = append(written, line...)
		if len(written) > maxMessage {
			return nil, errTooLong
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		start := bytes.LastIndexByte(bytes.TrimSuffix(written, []byte("\n")), '\n') + 1
		line = bytes.TrimRight(written[start:], "\r\n")
		switch content, found := bytes.CutPrefix(line, []byte("data:")); {
		case found && data == nil:
			data = append([]byte{}, bytes.TrimPrefix(content, []byte(" "))...)
		case found:
			data = append(append(data, '\n'), bytes.TrimPrefix(content, []byte(" "))...)
		case len(line) > 0:
			other = append(append(other, line...), '\n')
		}
		if len(line) > 0 && err == nil {
			continue
		}
		if err != nil && !json.Valid(data) {
			return nil, err // an event that was cut off is none
		}
		if len(data) > 0 {
			if changed := r.translate(data); !bytes.Equal(changed, data) {
				written = fmt.Appendf(other, "data: %s\n\n", changed)
			}
		}
		return written, err
	}
}

// rewrite turns an encoded request of one of the gateway's methods into what it
// is, and reports whether the body was that. Other messages that belong to the
// request, such as that it is cancelled, stay.
func (f *flight) rewrite(request *http.Request, body []byte) ([]byte, bool) {
	// The method comes before the parameters, so it is the first that is found.
	renamed := bytes.Replace(body, []byte(`"method":"`+rawPrefix), []byte(`"method":"`), 1)
	if len(renamed) == len(body) {
		return body, false
	}
	if request.Header.Get("Mcp-Method") == "" {
		return renamed, true // a version without these headers
	}
	request.Header.Set("Mcp-Method", f.method)
	if f.name != "" {
		request.Header.Set("Mcp-Name", headerValue(f.name))
	}
	for name, value := range f.headers {
		request.Header.Set(name, value)
	}
	return renamed, true
}

// paramHeader says that a tool's server wants an argument in an HTTP header too:
// the tool's schema has x-mcp-header there.
type paramHeader struct {
	path   []string
	header string
}

// maxHeaderDepth bounds how deep in a schema headers are looked for.
const maxHeaderDepth = 16

// paramHeaders finds them in the schema of a tool's arguments. An error means
// that the protocol forbids to use the tool.
func paramHeaders(schema json.RawMessage) ([]paramHeader, error) {
	found, err := appendParamHeaders(nil, schema, nil)
	if err != nil {
		return nil, err
	}
	seen := make(map[string]bool, len(found))
	for _, one := range found {
		lower := strings.ToLower(one.header)
		if seen[lower] {
			return nil, fmt.Errorf("its schema has the x-mcp-header %q twice", one.header)
		}
		seen[lower] = true
	}
	return found, nil
}

func appendParamHeaders(found []paramHeader, schema json.RawMessage, path []string) ([]paramHeader, error) {
	members, err := strictjson.Members(schema)
	if err != nil || len(path) > maxHeaderDepth {
		return found, nil
	}
	properties, err := strictjson.Members(value(members, "properties"))
	if err != nil {
		return found, nil
	}
	for _, property := range properties {
		below := append(path[:len(path):len(path)], property.Name)
		inner, err := strictjson.Members(property.Value)
		if err != nil {
			continue
		}
		if written := value(inner, "x-mcp-header"); written != nil {
			header := text(inner, "x-mcp-header")
			if !isToken(header) {
				return nil, fmt.Errorf("the x-mcp-header of %q in its schema is not the name of a header", property.Name)
			}
			switch text(inner, "type") {
			case "string", "integer", "boolean":
			default:
				return nil, fmt.Errorf("the x-mcp-header of %q in its schema is not for a string, an integer or a boolean", property.Name)
			}
			found = append(found, paramHeader{path: below, header: "Mcp-Param-" + header})
		}
		if found, err = appendParamHeaders(found, property.Value, below); err != nil {
			return nil, err
		}
	}
	return found, nil
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
		// 10.0 and 1e1 are whole numbers too.
		const most = 1<<53 - 1
		number, err := strconv.ParseFloat(string(value), 64)
		if err != nil || number != math.Trunc(number) || math.Abs(number) > most {
			return "", false
		}
		return strconv.FormatInt(int64(number), 10), true
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
