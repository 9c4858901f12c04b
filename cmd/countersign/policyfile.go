package main

import (
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"

	"github.com/countersign/countersign/policy"
)

// standardInput stands for standard input where a command takes a file.
const standardInput = "-"

// readPolicy reads and checks a policy file.
func readPolicy(path string) (*policy.Policy, error) {
	source, err := readPolicySource(path)
	if err != nil {
		return nil, err
	}
	return parsePolicy(path, source)
}

// readPolicySource reads no more of a file than a policy may have, and the one
// byte by which it is too long.
func readPolicySource(path string) ([]byte, error) {
	file, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("%w %s; \"countersign policy example\" and \"countersign policy starter\" print some to start from", errNoPolicy, path)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the policy: %w", err)
	}
	defer file.Close()
	return readAll(path, file)
}

var errNoPolicy = errors.New("there is no policy file")

func readAll(path string, from io.Reader) ([]byte, error) {
	source, err := io.ReadAll(io.LimitReader(from, policy.MaxSource+1))
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	return source, nil
}

func parsePolicy(path string, source []byte) (*policy.Policy, error) {
	rules, err := policy.Parse(source)
	if err != nil {
		return nil, &fileError{path, err}
	}
	return rules, nil
}

// fileError is what is wrong with a file that the policy package read.
type fileError struct {
	path string
	err  error
}

// Error has a line for each thing that is wrong, with its place in a form that
// editors jump to.
func (e *fileError) Error() string { return strings.Join(placed(e.path, e.err), "\n") }

func (e *fileError) Unwrap() error { return e.err }

var placeInFile = regexp.MustCompile(`^\[(\d+):(\d+)\] `)

// placed writes what is wrong with a file as FILE:LINE:COLUMN: TEXT, one thing a
// line.
func placed(path string, err error) []string {
	var lines []string
	for line := range strings.Lines(err.Error()) {
		line = strings.TrimRight(line, "\n")
		if at := placeInFile.FindStringSubmatch(line); at != nil {
			lines = append(lines, fmt.Sprintf("%s:%s:%s: %s", path, at[1], at[2], line[len(at[0]):]))
		} else {
			lines = append(lines, fmt.Sprintf("%s: %s", path, line))
		}
	}
	return lines
}

// shortRevision is enough of a policy's revision to tell it from others.
func shortRevision(p *policy.Policy) string { return p.Revision()[:12] }

// policyAttributes are what a log says of the policy that rules. What "policy
// check" finds doesn't keep it from ruling, and is counted.
func policyAttributes(path string, p *policy.Policy) []any {
	summary := p.Summary()
	return []any{
		"file", path, "revision", shortRevision(p), "mode", summary.Mode,
		"tools", summary.Tools, "blocks", summary.Blocks, "rules", summary.Rules, "check_findings", len(p.Check()),
	}
}

// examplePolicy has every key of a policy and what it means; "countersign
// policy example" prints it.
//
//go:embed example-policy.yaml
var examplePolicy string
