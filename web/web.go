// Package web serves what people open in a browser, and the HTTP API for scripts
// and jobs.
//
// Until people can sign in here, that is one page: it is the same for every
// address and every request, reveals nothing about any, and leads on to Slack,
// where the decision is made. The address of a request is a locator, not a
// capability, and GET changes nothing.
package web

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"log/slog"
	"net"
	"net/http"
	"strings"
)

//go:embed review.html review.css
var files embed.FS

// Options set up the pages.
type Options struct {
	// SlackURL is where the page leads to: the channel in which requests are
	// decided.
	SlackURL string
}

// Handler serves /review and /.
func Handler(options Options) (http.Handler, error) {
	style, err := files.ReadFile("review.css")
	if err != nil {
		return nil, fmt.Errorf("reading the style sheet: %w", err)
	}
	page, err := template.ParseFS(files, "review.html")
	if err != nil {
		return nil, fmt.Errorf("reading the review page: %w", err)
	}
	var body bytes.Buffer
	if err := page.Execute(&body, map[string]any{"SlackURL": options.SlackURL, "Style": template.CSS(style)}); err != nil {
		return nil, fmt.Errorf("rendering the review page: %w", err)
	}
	hash := sha256.Sum256(style)
	policy := "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(hash[:]) + "'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
	review := func(w http.ResponseWriter, _ *http.Request) {
		header := w.Header()
		header.Set("Content-Type", "text/html; charset=utf-8")
		header.Set("Content-Security-Policy", policy)
		header.Set("Cache-Control", "no-store")
		_, _ = w.Write(body.Bytes()) // the reader went away
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /review", review)
	mux.HandleFunc("GET /{$}", review)
	return mux, nil
}

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
