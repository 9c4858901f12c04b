package slacksim

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// Server is a workspace that listens on a loopback address.
type Server struct {
	*Workspace
	// URL is where it listens, such as http://127.0.0.1:4000; the page is at
	// its root.
	URL string

	http *http.Server
}

// Start makes a workspace and serves it on Options.Addr. It refuses an address
// that isn't loopback: anyone who can reach the workspace can be anyone in it.
func Start(options Options) (*Server, error) {
	w := New(options)
	address, err := loopback(w.options.Addr)
	if err != nil {
		return nil, fmt.Errorf("starting the simulated workspace: %w", err)
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("starting the simulated workspace: %w", err)
	}
	s := &Server{
		Workspace: w,
		URL:       "http://" + listener.Addr().String(),
		http:      &http.Server{Handler: w.Handler(), ReadHeaderTimeout: 10 * time.Second},
	}
	w.SetURL(s.URL)
	go func() {
		if err := s.http.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			w.log.Error("serving the simulated workspace", "err", err)
		}
	}()
	return s, nil
}

// Close stops the server and ends all connections.
func (s *Server) Close() error {
	s.mu.Lock()
	sockets := s.sockets
	s.sockets = nil
	s.ring()
	s.mu.Unlock()
	for _, socket := range sockets {
		_ = socket.conn.Close() // The HTTP server knows nothing of connections that became WebSockets.
	}
	return s.http.Close()
}

// loopback checks that an address to listen on is a loopback one. A name is
// refused unless it is localhost, which is then taken to be 127.0.0.1: what
// other names resolve to can change.
func loopback(address string) (string, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return "", err
	}
	if host == "localhost" {
		host = "127.0.0.1"
	}
	if !loopbackHost(host) {
		return "", fmt.Errorf("%s isn't a loopback address; use 127.0.0.1", address)
	}
	return net.JoinHostPort(host, port), nil
}

func loopbackHost(host string) bool {
	if host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil && ip.IsLoopback()
}

// Handler serves the Web API, Sign in with Slack, Socket Mode, response URLs and
// the page. It
// refuses requests whose Host isn't a loopback name, so that a page of another
// site can't reach it through a name of its own that resolves to loopback, and
// changes that a browser asks for on behalf of another site.
func (w *Workspace) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/api/{method}", w.serveAPI)
	mux.HandleFunc("GET /socket", w.serveSocket)
	mux.HandleFunc("POST /response/{id}", w.serveResponse)
	w.serveOpenID(mux)
	w.servePage(mux)
	sameOrigin := http.NewCrossOriginProtection().Handler(mux)
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		host := r.Host
		if name, port, err := net.SplitHostPort(host); err == nil {
			if _, err := strconv.ParseUint(port, 10, 16); err == nil {
				host = name
			}
		}
		if !loopbackHost(host) {
			http.Error(rw, "This simulator is for this machine only.", http.StatusMisdirectedRequest)
			return
		}
		sameOrigin.ServeHTTP(rw, r)
	})
}
