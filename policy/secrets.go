package policy

import (
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"
)

// secrets are what doesn't belong in a policy, by what it is called.
var secrets = []struct {
	name    string
	pattern *regexp.Regexp
}{
	{"a Slack token", regexp.MustCompile(`\b(xox[abceoprs]|xapp)-[A-Za-z0-9-]{10,}`)},
	{"a Slack webhook", regexp.MustCompile(`(https://)?hooks\.slack\.com/(services|workflows|triggers)/[A-Z0-9]{6,}/[A-Za-z0-9/]{8,}`)},
	{"a Stripe key", regexp.MustCompile(`\b([sr]k_(live|test)|whsec)_[A-Za-z0-9]{10,}`)},
	{"a GitHub token", regexp.MustCompile(`\b(gh[pousr]_[A-Za-z0-9]{16,}|github_pat_[A-Za-z0-9_]{16,})`)},
	{"a GitLab token", regexp.MustCompile(`\bglpat-[A-Za-z0-9_-]{16,}`)},
	{"an AWS key", regexp.MustCompile(`\b(AKIA|ASIA)[A-Z0-9]{16}\b`)},
	{"a Google key", regexp.MustCompile(`\bAIza[A-Za-z0-9_-]{35}`)},
	{"an API key", regexp.MustCompile(`\bsk-[A-Za-z0-9_-]{8,}[0-9][A-Za-z0-9_-]{8,}`)},
	{"a private key", regexp.MustCompile(`-----BEGIN [A-Z ]*PRIVATE KEY-----[\s#]*[A-Za-z0-9+/=]{20,}`)},
	{"a JSON Web Token", regexp.MustCompile(`\beyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*`)},
	{"a bearer token", regexp.MustCompile(`(?i)\bbearer\s+[A-Za-z0-9._~+/-]{6,}[0-9][A-Za-z0-9._~+/-]{6,}`)},
	{"a password in an address", regexp.MustCompile(`[A-Za-z][A-Za-z0-9+.-]*://[^\s/:@"']*:[^\s/@"'$<{*]+@`)},
}

// withoutSecrets is a text in which what looks like a secret is only named, for
// places that repeat what a policy says.
func withoutSecrets(text string) string {
	for _, secret := range secrets {
		text = secret.pattern.ReplaceAllLiteralString(text, "‹"+secret.name+"›")
	}
	return text
}

// checkSecrets finds what looks like a secret, also in comments. No finding
// repeats it.
func (c *checker) checkSecrets() {
	text := c.text()
	for _, secret := range secrets {
		for _, at := range secret.pattern.FindAllStringIndex(text, -1) {
			for i, other := range c.found {
				c.found[i].Text = strings.ReplaceAll(other.Text, text[at[0]:at[1]], "…")
			}
			before := text[:at[0]]
			line := before[strings.LastIndexByte(before, '\n')+1:]
			c.found = append(c.found, Finding{
				Line:   strings.Count(before, "\n") + 1,
				Column: utf8.RuneCountInString(line) + 1,
				Text:   fmt.Sprintf("looks like %s; whoever can read the policy could use it: take it out, and replace it where it is valid", secret.name),
			})
		}
	}
}

// text is the policy's source, put together from the file's tokens.
func (c *checker) text() string {
	var text strings.Builder
	token := c.file.Docs[0].Body.GetToken()
	for token != nil && token.Prev != nil {
		token = token.Prev
	}
	for ; token != nil; token = token.Next {
		text.WriteString(token.Origin)
	}
	return text.String()
}
