package mcp

import (
	"net/http"
	"strings"
	"sync"
	"time"
)

const (
	// keepAliveFirst is how long an event stream may stay without headers: long
	// enough that an early error still gets its own HTTP status.
	keepAliveFirst = 250 * time.Millisecond
	// keepAliveEvery is how long it may stay silent afterwards.
	keepAliveEvery = 10 * time.Second
)

// keepAlive is a ResponseWriter that writes a comment to an event stream that
// would otherwise be silent: the SDK sends no header before the first event, and
// proxies and clients give up on an answer that doesn't begin.
//
// Until something is written, the header belongs to whoever serves the request.
// So the first comment is written only between waits and continues, during
// which a tool runs and the SDK has set the headers of its stream and leaves
// them alone.
type keepAlive struct {
	response http.ResponseWriter

	mu      sync.Mutex
	timer   *time.Timer // nil until the stream may be silent
	started bool        // the header is written
	stream  bool        // it is an event stream
	waiting int         // tools that run for this request
	closed  bool        // the request is served; nothing may be written
}

func (k *keepAlive) Header() http.Header { return k.response.Header() }

func (k *keepAlive) WriteHeader(status int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.start()
	k.response.WriteHeader(status)
}

func (k *keepAlive) Write(data []byte) (int, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.start()
	if k.stream && !k.closed {
		k.schedule(keepAliveEvery)
	}
	return k.response.Write(data)
}

// FlushError lets http.ResponseController flush.
func (k *keepAlive) FlushError() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.start()
	return http.NewResponseController(k.response).Flush()
}

// start notes that the header is written now.
func (k *keepAlive) start() {
	if !k.started {
		k.started = true
		k.stream = isEventStream(k.response.Header())
	}
}

// waits says that a tool begins to run for the request.
func (k *keepAlive) waits() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.waiting++
	if !k.started && !k.closed && isEventStream(k.response.Header()) {
		k.schedule(keepAliveFirst)
	}
}

// continues says that a tool has run, and what follows is the SDK's.
func (k *keepAlive) continues() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.waiting--
}

// close ends the writing of comments. It must be called before the request's
// handler returns.
func (k *keepAlive) close() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.closed = true
	if k.timer != nil {
		k.timer.Stop()
	}
}

func (k *keepAlive) schedule(after time.Duration) {
	if k.timer == nil {
		k.timer = time.AfterFunc(after, k.comment)
		return
	}
	k.timer.Reset(after)
}

// comment writes one comment, which clients of event streams ignore.
func (k *keepAlive) comment() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed || (!k.started && k.waiting == 0) {
		return
	}
	k.start()
	if _, err := k.response.Write([]byte(": waiting\n\n")); err != nil {
		return
	}
	if err := http.NewResponseController(k.response).Flush(); err != nil {
		return
	}
	k.schedule(keepAliveEvery)
}

func isEventStream(header http.Header) bool {
	mediaType, _, _ := strings.Cut(header.Get("Content-Type"), ";")
	return strings.TrimSpace(mediaType) == "text/event-stream"
}
