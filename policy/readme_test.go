package policy_test

import (
	"os"
	"strings"
	"testing"

	"github.com/countersign/countersign/policy"
)

// The policy that the README shows is one that a reader can paste.
func TestReadmePolicy(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(readme), "\n## Policy\n")
	_, after, found := strings.Cut(section, "```yaml\n")
	source, _, closed := strings.Cut(after, "```")
	if !found || !closed {
		t.Fatal("the README shows no policy")
	}
	p, err := policy.Parse([]byte(source))
	if err != nil {
		t.Fatalf("the README's policy:\n%v", err)
	}
	if findings := p.Check(); len(findings) > 0 {
		t.Errorf("the README's policy:\n%v", findings)
	}
}
