package web_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countersign/countersign/web"
)

// Whoever begins to send something, and doesn't go on, doesn't hold a connection for
// long. Nor does that stop one on which something was sent in time.
func TestSlowBodies(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		pages, err := web.Handler(nil, web.Options{URL: "http://localhost", SignIn: &web.SignIn{}})
		if err != nil {
			t.Fatal(err)
		}
		ours, theirs := net.Pipe()
		server := &http.Server{Handler: pages}
		go func() { _ = server.Serve(&once{conn: theirs, end: make(chan struct{})}) }()
		defer server.Close()
		send := func(text string) {
			t.Helper()
			if _, err := io.WriteString(ours, text); err != nil {
				t.Fatal(err)
			}
		}
		in := bufio.NewReader(ours)
		answer := func() (int, time.Duration) {
			t.Helper()
			begun := time.Now()
			response, err := http.ReadResponse(in, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer response.Body.Close()
			if _, err := io.Copy(io.Discard, response.Body); err != nil {
				t.Fatal(err)
			}
			return response.StatusCode, time.Since(begun)
		}
		const head = "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: 6\r\n\r\n"
		send(head + "with=")
		time.Sleep(50 * time.Second)
		send("x")
		if status, took := answer(); status != http.StatusBadRequest || took != 0 {
			t.Errorf("sent in time: %d after %v", status, took)
		}
		time.Sleep(2 * time.Minute)
		send(head + "with=")
		if status, took := answer(); status != http.StatusBadRequest || took > time.Minute {
			t.Errorf("not sent: %d after %v", status, took)
		}
		if _, err := in.ReadByte(); err != io.EOF {
			t.Errorf("the connection goes on: %v", err)
		}
	})
}

// once is a listener with one connection.
type once struct {
	conn net.Conn
	end  chan struct{}
}

func (o *once) Accept() (net.Conn, error) {
	if conn := o.conn; conn != nil {
		o.conn = nil
		return conn, nil
	}
	<-o.end
	return nil, net.ErrClosed
}

func (o *once) Close() error {
	close(o.end)
	return nil
}

func (o *once) Addr() net.Addr { return &net.UnixAddr{} }
