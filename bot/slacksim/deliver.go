package slacksim

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"
)

// ackDeadline is how long Slack waits for an app to take an interaction.
const ackDeadline = 3 * time.Second

// maxAnswer is how much of an app's answer is read.
const maxAnswer = 1 << 20

// interactions carries interactions to the app. Slack follows no redirects. A
// connection each leaves nothing behind when a test ends.
var interactions = &http.Client{
	Transport:     &http.Transport{DisableKeepAlives: true},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

// FormBody encodes a payload as the body of an interaction request.
func FormBody(payload json.RawMessage) []byte {
	return []byte(url.Values{"payload": {string(payload)}}.Encode())
}

// Sign returns the headers of an interaction request whose body was signed at
// that time.
func (w *Workspace) Sign(body []byte, at time.Time) http.Header {
	seconds := strconv.FormatInt(at.Unix(), 10)
	mac := hmac.New(sha256.New, []byte(w.options.SigningSecret))
	fmt.Fprintf(mac, "v0:%s:%s", seconds, body)
	header := http.Header{}
	header.Set("Content-Type", "application/x-www-form-urlencoded")
	header.Set("X-Slack-Request-Timestamp", seconds)
	header.Set("X-Slack-Signature", "v0="+hex.EncodeToString(mac.Sum(nil)))
	return header
}

// Deliver sends a payload as Slack would, whatever it says: over Socket Mode
// while a client is connected, otherwise signed to the Request URL. The answer
// isn't acted upon. An error means only that ctx ended.
func (w *Workspace) Deliver(ctx context.Context, payload json.RawMessage) (Reply, error) {
	w.mu.Lock()
	overSocket, target := len(w.sockets) > 0, w.target
	w.mu.Unlock()
	var reply Reply
	switch {
	case overSocket:
		reply = w.deliverSocket(ctx, payload)
	case target != "":
		reply = w.deliverHTTP(ctx, target, payload)
	default:
		reply = Reply{Shown: shownNoTarget}
	}
	if err := ctx.Err(); err != nil {
		return reply, fmt.Errorf("delivering an interaction: %w", err)
	}
	w.log.Debug("slack interaction", "socket", overSocket, "status", reply.Status, "attempts", reply.Attempts, "shown", reply.Shown)
	return reply, nil
}

func (w *Workspace) deliverHTTP(ctx context.Context, target string, payload json.RawMessage) Reply {
	reply := Reply{Sent: true, Attempts: 1}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	over, stop := w.startDeadline()
	defer stop()
	go func() {
		select {
		case <-over:
			cancel()
		case <-ctx.Done():
		}
	}()

	body := FormBody(payload)
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, target, bytes.NewReader(body))
	if err != nil {
		return Reply{Shown: shownNoTarget}
	}
	request.Header = w.Sign(body, w.now())
	request.Header.Set("User-Agent", "Slackbot 1.0 (+https://api.slack.com/robots)")
	response, err := interactions.Do(request)
	if err != nil {
		reply.Shown = shownNoAnswer
		return reply
	}
	defer response.Body.Close()
	reply.Body, err = io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		reply.Shown = shownNoAnswer
		return reply
	}
	reply.Status = response.StatusCode
	if response.StatusCode != http.StatusOK {
		reply.Shown = shownBadAnswer
	}
	return reply
}

// startDeadline starts Slack's three seconds. The channel is closed when they
// are over; stop must be called.
func (w *Workspace) startDeadline() (over chan struct{}, stop func()) {
	over = make(chan struct{})
	w.mu.Lock()
	w.waiting[over] = true
	w.mu.Unlock()
	timer := time.AfterFunc(ackDeadline, func() { w.endDeadline(over) })
	return over, sync.OnceFunc(func() {
		timer.Stop()
		w.endDeadline(over)
	})
}

func (w *Workspace) endDeadline(over chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.waiting[over] {
		delete(w.waiting, over)
		close(over)
	}
}

// PassAckDeadline ends Slack's three seconds now for every interaction that is
// waiting for the app, so that a test needn't wait. A Socket Mode envelope is
// then sent once more, with three seconds of its own.
func (w *Workspace) PassAckDeadline() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for over := range w.waiting {
		close(over)
	}
	clear(w.waiting)
}
