package mcp_test

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/mcp"
)

// require makes a call with a token and checks how it is answered.
func (a *authorized) require(t testing.TB, what, token string, want int) {
	t.Helper()
	response, text := a.try(t, token)
	if response.StatusCode != want {
		t.Errorf("%s: %s, want %d: %s", what, response.Status, want, text)
	}
	if want == http.StatusServiceUnavailable {
		if response.Header.Get("Retry-After") == "" || response.Header.Get("WWW-Authenticate") != "" || !strings.Contains(text, "access tokens can't be checked now; try again") {
			t.Errorf("%s: %v %s", what, response.Header, text)
		}
	}
}

// requireAsked checks how often the issuer was asked for its keys.
func (a *authorized) requireAsked(t testing.TB, what string, want int) {
	t.Helper()
	if got := a.issuer.times(keysPath); got != want {
		t.Errorf("%s, the issuer was asked %d times, want %d", what, got, want)
	}
}

// Who makes up tokens doesn't have the issuer asked for each, and keeps nobody out
// meanwhile.
func TestFloodOfMadeUpKeys(t *testing.T) {
	t.Parallel()
	a := newAuthorized(t)
	good := a.issuer.signed(t)
	a.require(t, "a good token", good, http.StatusOK)
	a.requireAsked(t, "at first", 1)
	forged := func(id any) string { return a.issuer.signed(t, head("kid", id), by("RS256", signingKeys().other)) }
	for n := range 50 {
		a.require(t, "a key that there is", forged("1"), http.StatusUnauthorized)
		a.require(t, "a made-up key", forged(fmt.Sprint("made up ", n)), http.StatusUnauthorized)
		a.require(t, "no key", forged(nil), http.StatusUnauthorized)
	}
	a.requireAsked(t, "within a moment", 1)
	for range 3 {
		a.fixture.Clock.Advance(10 * time.Second)
		for n := range 20 {
			a.require(t, "a key that there is", forged("1"), http.StatusUnauthorized)
			a.require(t, "a made-up key", forged(fmt.Sprint("made up ", n)), http.StatusUnauthorized)
			a.require(t, "no key", forged(nil), http.StatusUnauthorized)
		}
		a.require(t, "a good token", good, http.StatusOK)
	}
	a.requireAsked(t, "after half a minute", 4)
	a.issuer.change(func(i *issuer) {
		i.answer = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }
	})
	a.fixture.Clock.Advance(10 * time.Second)
	for range 20 {
		a.require(t, "a made-up key, and no issuer", forged("made up"), http.StatusServiceUnavailable)
		a.require(t, "a key that there is, and no issuer", forged("1"), http.StatusUnauthorized)
	}
	if got := a.issuer.times(openIDPath); got != 5 {
		t.Errorf("the issuer that doesn't answer was asked %d times", got-4)
	}
}

// A new key counts when the first token by it comes, and one that is taken back
// doesn't after a while.
func TestKeysChange(t *testing.T) {
	t.Parallel()
	for name, id := range map[string]any{"with ids": "2", "without ids": nil} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newAuthorized(t)
			text := func(id any) string { s, _ := id.(string); return s }
			first := "1"
			if id == nil {
				first = ""
			}
			a.issuer.change(func(i *issuer) { i.keys = []any{public(first, "RS256", signingKeys().right.Public())} })
			for range 2 {
				a.require(t, "the first key", a.issuer.signed(t, head("kid", nil)), http.StatusOK)
			}
			a.requireAsked(t, "at first", 1)
			a.issuer.change(func(i *issuer) { i.keys = []any{public(text(id), "RS256", signingKeys().other.Public())} })
			a.fixture.Clock.Advance(10 * time.Second)
			a.require(t, "the next key", a.issuer.signed(t, head("kid", id), by("RS256", signingKeys().other)), http.StatusOK)
			a.require(t, "the first key", a.issuer.signed(t, head("kid", nil)), http.StatusUnauthorized)
			a.requireAsked(t, "with another key", 2)

			a.issuer.change(func(i *issuer) { i.keys = []any{public("3", "RS256", signingKeys().right.Public())} })
			taken := a.issuer.signed(t, head("kid", id), by("RS256", signingKeys().other), say("exp", a.fixture.Clock.Now().Add(time.Hour).Unix()))
			a.fixture.Clock.Advance(10*time.Minute - time.Second)
			a.require(t, "a key that was taken back a while ago", taken, http.StatusOK)
			a.fixture.Clock.Advance(time.Second)
			a.require(t, "a key that was taken back long ago", taken, http.StatusUnauthorized)
		})
	}
}

// That the issuer doesn't answer says nothing of a token. It is asked again, and
// not for each; what it said before counts for a while.
func TestIssuerIsDown(t *testing.T) {
	t.Parallel()
	a := newAuthorized(t)
	down := func(w http.ResponseWriter, _ *http.Request) { panic(http.ErrAbortHandler) }
	a.issuer.change(func(i *issuer) { i.answer = down })
	long := say("exp", a.fixture.Clock.Now().Add(24*time.Hour).Unix())
	for range 5 {
		a.require(t, "down from the start", a.issuer.signed(t, long), http.StatusServiceUnavailable)
	}
	if got := a.issuer.times(openIDPath); got > 2 { // a client may try again at once
		t.Errorf("the issuer was asked %d times", got)
	}
	a.issuer.change(func(i *issuer) { i.answer = nil })
	a.require(t, "up for less than a moment", a.issuer.signed(t, long), http.StatusServiceUnavailable)
	a.fixture.Clock.Advance(10 * time.Second)
	a.require(t, "up again", a.issuer.signed(t, long), http.StatusOK)
	a.issuer.change(func(i *issuer) { i.answer = down })
	for range 5 {
		a.fixture.Clock.Advance(11 * time.Minute)
		a.require(t, "down for less than an hour", a.issuer.signed(t, long), http.StatusOK)
		a.require(t, "with a key that nobody heard of", a.issuer.signed(t, long, head("kid", "2")), http.StatusServiceUnavailable)
	}
	a.fixture.Clock.Advance(5 * time.Minute)
	a.require(t, "down for an hour", a.issuer.signed(t, long), http.StatusServiceUnavailable)
	a.issuer.change(func(i *issuer) { i.answer = nil })
	a.fixture.Clock.Advance(-2 * time.Hour)
	a.require(t, "up again, and the clock was set back", a.issuer.signed(t), http.StatusOK)
}

// However many tokens come at once, the issuer is asked once; who goes away takes
// nothing from the others.
func TestIssuerIsAskedOnce(t *testing.T) {
	t.Parallel()
	a := newAuthorized(t)
	arrived, answer := make(chan struct{}, 100), make(chan struct{})
	a.issuer.change(func(i *issuer) {
		i.answer = func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == openIDPath {
				arrived <- struct{}{}
				<-answer
			}
			i.change(func(i *issuer) { i.answer = nil; i.asked[r.URL.Path]-- })
			i.ServeHTTP(w, r)
		}
	})
	leaving, leave := context.WithCancel(t.Context())
	left := make(chan int, 1)
	go func() {
		_, status := mcp.Identify(leaving, a.resource, a.issuer.signed(t))
		left <- status
	}()
	receive(t, arrived, "the issuer to be asked")
	statuses := make(chan int, 10)
	var began sync.WaitGroup
	for range cap(statuses) {
		began.Add(1)
		go func() {
			token := a.issuer.signed(t)
			began.Done()
			_, status := mcp.Identify(t.Context(), a.resource, token)
			statuses <- status
		}()
	}
	began.Wait()
	leave()
	if got := receive(t, left, "the one who goes away"); got != http.StatusServiceUnavailable {
		t.Errorf("who goes away gets %d", got)
	}
	close(answer)
	for range cap(statuses) {
		if got := receive(t, statuses, "an answer"); got != http.StatusOK {
			t.Errorf("who waits gets %d", got)
		}
	}
	a.requireAsked(t, "by all", 1)
}

// An issuer that isn't as it should be is believed nothing, and what it answers
// isn't told to anybody.
func TestIssuersThatAreNotBelieved(t *testing.T) {
	t.Parallel()
	const told = "what only the issuer should know"
	// at answers one path in place of the issuer.
	at := func(path string, answer http.HandlerFunc) func(*issuer) {
		return func(i *issuer) {
			i.answer = func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == path {
					answer(w, r)
					return
				}
				next := &issuer{Server: i.Server, clock: i.clock, metadata: i.metadata, keys: i.keys, asked: map[string]int{}}
				next.ServeHTTP(w, r)
			}
		}
	}
	leads := func(to string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, strings.Replace(to, "HERE", "http://"+r.Host, 1), http.StatusFound)
		}
	}
	endless := func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write([]byte(`{"keys":[],"issuer":"`))
		for r.Context().Err() == nil {
			if _, err := w.Write([]byte(strings.Repeat("x", 1<<16))); err != nil {
				return
			}
		}
	}
	says := func(status int, text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			_, _ = w.Write([]byte(text))
		}
	}
	for name, test := range map[string]struct {
		change func(*issuer)
		logs   string
	}{
		"calls itself something else":         {func(i *issuer) { i.metadata["issuer"] = i.URL + "/" }, "it calls itself"},
		"calls itself nothing":                {func(i *issuer) { i.metadata["issuer"] = nil }, "it calls itself"},
		"its keys are nowhere":                {func(i *issuer) { i.metadata["jwks_uri"] = nil }, "where its keys are"},
		"its keys are in the clear":           {func(i *issuer) { i.metadata["jwks_uri"] = "http://id.example.com/keys" }, "isn't an https address"},
		"its keys are in a file":              {func(i *issuer) { i.metadata["jwks_uri"] = "file://localhost/etc/passwd" }, "isn't an https address"},
		"its metadata leads elsewhere":        {at(openIDPath, leads("http://evil.example/")), "leads on to another address"},
		"its metadata leads on in it":         {at(openIDPath, leads("HERE/there")), "leads on to another address"},
		"its keys lead on in it":              {at(keysPath, leads("HERE/there")), "leads on to another address"},
		"its metadata never ends":             {at(openIDPath, endless), "the answer is too long"},
		"its keys never end":                  {at(keysPath, endless), "the answer is too long"},
		"its metadata is something else":      {at(openIDPath, says(http.StatusOK, told)), "isn't the JSON"},
		"its metadata is of another type":     {at(openIDPath, says(http.StatusOK, `{"issuer":["`+told+`"]}`)), "isn't the JSON"},
		"its keys are something else":         {at(keysPath, says(http.StatusOK, told)), "isn't the JSON"},
		"its metadata isn't there":            {at(openIDPath, says(http.StatusNotFound, told)), "it answers 404"},
		"its keys aren't there":               {at(keysPath, says(http.StatusInternalServerError, told)), "it answers 500"},
		"it has no keys":                      {func(i *issuer) { i.keys = []any{} }, "it has no key"},
		"it has only secrets":                 {func(i *issuer) { i.keys = []any{map[string]any{"kty": "oct", "kid": "1", "k": "AAAA"}} }, "it has no key"},
		"it shows its private key":            {func(i *issuer) { i.keys = []any{withUse("1", signingKeys().right, "sig")} }, "it has no key"},
		"its key isn't for signatures":        {func(i *issuer) { i.keys = []any{withUse("1", signingKeys().right.Public(), "enc")} }, "it has no key"},
		"its key is too small":                {func(i *issuer) { i.keys = []any{withUse("1", signingKeys().small.Public(), "sig")} }, "it has no key"},
		"its key's algorithm isn't announced": {func(i *issuer) { i.keys = []any{public("1", "", signingKeys().curve.Public())} }, "it has no key"},
		"its key is for secrets":              {func(i *issuer) { i.keys = []any{public("1", "HS256", signingKeys().right.Public())} }, "it has no key"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newAuthorized(t)
			a.issuer.change(test.change)
			a.require(t, name, a.issuer.signed(t), http.StatusServiceUnavailable)
			if got := a.log.String(); !strings.Contains(got, "asking an issuer for its keys") || !strings.Contains(got, test.logs) || strings.Contains(got, told) {
				t.Errorf("the log is\n%s", got)
			}
			if got := a.issuer.times("/there"); got != 0 {
				t.Error("it was followed")
			}
		})
	}
}

// A token that doesn't say which key it is by is tried with some, and not with as
// many as an issuer can name.
func TestManyKeys(t *testing.T) {
	t.Parallel()
	a := newAuthorized(t)
	a.issuer.change(func(i *issuer) {
		i.keys = nil
		for n := range 32 {
			i.keys = append(i.keys, public(fmt.Sprint(n), "RS256", signingKeys().other.Public()))
		}
		i.keys = append(i.keys, public("one too many", "RS256", signingKeys().right.Public()))
	})
	a.require(t, "the last key", a.issuer.signed(t, head("kid", nil)), http.StatusUnauthorized)
}

// Where an issuer may be asked, and where it may have its keys.
func TestWhereIssuersMayBe(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		issuer, address string
		want            bool
	}{
		{"https://id.example.com", "https://id.example.com/keys", true},
		{"https://id.example.com", "https://keys.example.net/keys", true},
		{"https://id.example.com", "http://id.example.com/keys", false},
		{"https://id.example.com", "http://127.0.0.1:9000/keys", false}, // a server of ours, for them to find out about
		{"http://127.0.0.1:9000", "http://localhost:9001/keys", true},
		{"http://127.0.0.1:9000", "https://id.example.com/keys", true},
		{"http://127.0.0.1:9000", "http://id.example.com/keys", false},
		{"http://id.example.com", "http://127.0.0.1/keys", false},
		{"https://id.example.com", "ftp://id.example.com/keys", false},
		{"https://id.example.com", "/keys", false},
	} {
		issuer, _ := url.Parse(test.issuer)
		address, _ := url.Parse(test.address)
		if got := mcp.MayAsk(address, issuer) == nil; got != test.want {
			t.Errorf("%s for %s: %v", test.address, test.issuer, got)
		}
	}
}

// Asking each issuer beforehand finds what would keep people from connecting.
func TestCheckIssuers(t *testing.T) {
	t.Parallel()
	a := newAuthorized(t)
	check := func(metadata map[string]any) mcp.IssuerFinding {
		a.issuer.change(func(i *issuer) { i.metadata = metadata })
		got := mcp.CheckIssuers(t.Context(), []mcp.Issuer{{Address: a.issuer.URL, People: map[string]approval.Approver{"a": {}, "b": {}}}})
		if len(got) != 1 || got[0].Issuer != a.issuer.URL {
			t.Fatalf("got %v", got)
		}
		return mcp.IssuerFinding{OK: got[0].OK, Text: got[0].Text}
	}
	for name, test := range map[string]struct {
		metadata map[string]any
		want     mcp.IssuerFinding
	}{
		"well":              {map[string]any{"registration_endpoint": "x"}, mcp.IssuerFinding{OK: true, Text: "2 in its table; it signs with RS256"}},
		"by documents":      {map[string]any{"client_id_metadata_document_supported": true}, mcp.IssuerFinding{OK: true, Text: "2 in its table; it signs with RS256"}},
		"no new clients":    {map[string]any{}, mcp.IssuerFinding{OK: true, Text: "2 in its table; it signs with RS256; it takes no client by itself, so each must be registered with it"}},
		"no PKCE":           {map[string]any{"code_challenge_methods_supported": nil}, mcp.IssuerFinding{Text: "it doesn't say that it supports PKCE (S256), without which MCP clients ask for no token"}},
		"nowhere to go":     {map[string]any{"token_endpoint": nil}, mcp.IssuerFinding{Text: "it doesn't say where people sign in and where clients get tokens"}},
		"calls itself else": {map[string]any{"issuer": "https://else.example"}, mcp.IssuerFinding{Text: `it calls itself "https://else.example"`}},
	} {
		if diff := cmp.Diff(test.want, check(test.metadata)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
