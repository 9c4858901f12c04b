package web

import (
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
)

// Guard adds the headers that belong on every answer, and refuses requests for
// any host but the server's own and this machine's loopback names. That keeps a
// page elsewhere from reaching the server by pointing its own name at it. address
// is the server's; if it is an https one, browsers are told to use no other.
func Guard(next http.Handler, address *url.URL, logger *slog.Logger) http.Handler {
	allowed := map[string]bool{"localhost": true, "127.0.0.1": true, "::1": true, strings.ToLower(address.Hostname()): true}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		header.Set("X-Content-Type-Options", "nosniff")
		header.Set("X-Frame-Options", "DENY")
		header.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'") // pages have their own
		header.Set("Referrer-Policy", "no-referrer")
		header.Set("Cross-Origin-Opener-Policy", "same-origin")
		header.Set("Cross-Origin-Resource-Policy", "same-origin")
		header.Set("Permissions-Policy", permissions)
		if address.Scheme == "https" {
			header.Set("Strict-Transport-Security", "max-age=31536000")
		}
		if !allowed[hostname(r.Host)] {
			logger.Warn("refusing a request for another host", "host", r.Host)
			http.Error(w, "This server doesn't answer for that host name. The configuration's url says which it answers for.", http.StatusMisdirectedRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// permissions are what pages need of a device: passkeys, and nothing else.
const permissions = "camera=(), display-capture=(), geolocation=(), microphone=(), payment=(), usb=(), " +
	"publickey-credentials-create=(self), publickey-credentials-get=(self)"

// hostname is a Host header without its port and brackets, in lower case.
func hostname(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return strings.ToLower(strings.Trim(host, "[]"))
}
