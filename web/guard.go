package web

import (
	"log/slog"
	"net"
	"net/http"
	"strings"
)

// Guard adds the headers that belong on every answer, and refuses requests for
// any host but the given ones and this machine's loopback names. That keeps a
// page elsewhere from reaching the server by pointing its own name at it.
func Guard(next http.Handler, hosts []string, logger *slog.Logger) http.Handler {
	allowed := map[string]bool{"localhost": true, "127.0.0.1": true, "::1": true}
	for _, host := range hosts {
		allowed[strings.ToLower(host)] = true
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		header.Set("X-Content-Type-Options", "nosniff")
		header.Set("X-Frame-Options", "DENY")
		header.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'") // pages have their own
		header.Set("Referrer-Policy", "no-referrer")
		header.Set("Cross-Origin-Opener-Policy", "same-origin")
		header.Set("Cross-Origin-Resource-Policy", "same-origin")
		if !allowed[hostname(r.Host)] {
			logger.Warn("refusing a request for another host", "host", r.Host)
			http.Error(w, "This server doesn't answer for that host name. The configuration's url says which it answers for.", http.StatusMisdirectedRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// hostname is a Host header without its port and brackets, in lower case.
func hostname(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return strings.ToLower(strings.Trim(host, "[]"))
}
