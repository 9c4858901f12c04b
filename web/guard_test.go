package web_test

import (
	"crypto/sha256"
	"encoding/base64"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/countersign/countersign/approval/approvaltest"
	"github.com/countersign/countersign/web"
)

const channel = "https://app.slack.com/client/T0DEMO/C0APPROVALS"

func pages(t *testing.T) http.Handler {
	t.Helper()
	handler, err := web.Handler(approvaltest.New(t).Service, web.Options{URL: "http://localhost", SlackURL: channel})
	if err != nil {
		t.Fatal(err)
	}
	return handler
}

func get(t *testing.T, handler http.Handler, method, target string) (*http.Response, string) {
	t.Helper()
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, httptest.NewRequest(method, target, nil))
	response := recorder.Result()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response, string(body)
}

// The address of a request is worth nothing: every address gives one page.
func TestReviewRevealsNothing(t *testing.T) {
	t.Parallel()
	handler := pages(t)
	_, plain := get(t, handler, http.MethodGet, "/review")
	for _, target := range []string{
		"/review?elicitationId=req_0123456789abcdef0123456789abcdef",
		"/review?elicitationId=nonsense",
		"/review?elicitationId=%3Cscript%3E",
		"/",
	} {
		response, body := get(t, handler, http.MethodGet, target)
		if response.StatusCode != http.StatusOK || body != plain {
			t.Errorf("%s: status %d, or another page than /review", target, response.StatusCode)
		}
	}
	if !strings.Contains(plain, `href="`+channel+`"`) {
		t.Error("the page doesn't lead on to Slack")
	}
	if response, _ := get(t, handler, http.MethodPost, "/review"); response.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("POST: status %d", response.StatusCode)
	}
}

// A style sheet that the policy's hash doesn't match would be ignored.
func TestReviewPolicyMatchesItsStyle(t *testing.T) {
	t.Parallel()
	response, body := get(t, pages(t), http.MethodGet, "/review")
	style := regexp.MustCompile(`(?s)<style>(.*)</style>`).FindStringSubmatch(body)
	if style == nil {
		t.Fatal("no style sheet in the page")
	}
	hash := sha256.Sum256([]byte(style[1]))
	policy := response.Header.Get("Content-Security-Policy")
	for _, want := range []string{
		"'sha256-" + base64.StdEncoding.EncodeToString(hash[:]) + "'",
		"default-src 'none'",
		"frame-ancestors 'none'",
	} {
		if !strings.Contains(policy, want) {
			t.Errorf("the policy %q lacks %q", policy, want)
		}
	}
}

func TestGuardRefusesOtherHosts(t *testing.T) {
	t.Parallel()
	reached := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	handler := web.Guard(reached, &url.URL{Scheme: "https", Host: "Approvals.Example.com:8443"}, slog.New(slog.DiscardHandler))
	for host, want := range map[string]int{
		"approvals.example.com":      http.StatusNoContent,
		"approvals.example.com:8443": http.StatusNoContent,
		"APPROVALS.example.com":      http.StatusNoContent,
		"localhost:8080":             http.StatusNoContent,
		"127.0.0.1:8080":             http.StatusNoContent,
		"[::1]:8080":                 http.StatusNoContent,
		"evil.example":               http.StatusMisdirectedRequest,
		"127.0.0.1.evil.example":     http.StatusMisdirectedRequest,
		"approvals.example.com.evil": http.StatusMisdirectedRequest,
		"169.254.169.254":            http.StatusMisdirectedRequest,
		"":                           http.StatusMisdirectedRequest,
	} {
		request := httptest.NewRequest(http.MethodGet, "/", nil)
		request.Host = host
		recorder := httptest.NewRecorder()
		handler.ServeHTTP(recorder, request)
		if recorder.Code != want {
			t.Errorf("host %q: status %d, want %d", host, recorder.Code, want)
		}
		for header, want := range map[string]string{
			"X-Frame-Options":            "DENY",
			"X-Content-Type-Options":     "nosniff",
			"Referrer-Policy":            "no-referrer",
			"Cross-Origin-Opener-Policy": "same-origin",
			"Strict-Transport-Security":  "max-age=31536000",
		} {
			if got := recorder.Header().Get(header); got != want {
				t.Errorf("host %q: %s is %q, want %q", host, header, got, want)
			}
		}
	}
}

// Browsers are told to stay with https only by a server that is reached so.
func TestGuardOverHTTP(t *testing.T) {
	t.Parallel()
	handler := web.Guard(http.NotFoundHandler(), &url.URL{Scheme: "http", Host: "localhost:8080"}, slog.New(slog.DiscardHandler))
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, "http://localhost:8080/", nil))
	if got := recorder.Header().Get("Strict-Transport-Security"); got != "" {
		t.Errorf("it says %q", got)
	}
}
