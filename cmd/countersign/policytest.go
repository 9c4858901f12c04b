package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/countersign/countersign/policy"
)

type policyTestCommand struct {
	Folders         []string `arg:"" optional:"" name:"dir" default:"." help:"Folders with *.test.yaml, each with its policy.yaml (default: this one)."`
	Policy          string   `short:"p" placeholder:"FILE" help:"The policy that all cases are about; - is standard input."`
	JUnit           string   `name:"junit" placeholder:"FILE" help:"Write the results as JUnit XML too."`
	FailOnUncovered bool     `help:"Fail if a tool, threshold, block or rule isn't covered."`
}

// suite is a policy with the cases that are about it.
type suite struct {
	path  string
	rules *policy.Policy
	cases []policy.Case
}

func (c *policyTestCommand) Run(p *process) error {
	suites, err := c.suites(p)
	if err != nil {
		return err
	}
	var all policy.Report
	uncovered := 0
	for i, suite := range suites {
		report := suite.rules.Test(suite.cases)
		all.Results = append(all.Results, report.Results...)
		uncovered += len(report.Coverage.Uncovered())
		if i > 0 {
			fmt.Fprintln(p.stdout)
		}
		if len(suites) > 1 {
			fmt.Fprintf(p.stdout, "== %s\n", suite.path)
		}
		p.print(report.String(), " ✗")
	}
	if c.JUnit != "" {
		text, err := all.JUnit()
		if err != nil {
			return err
		}
		if err := os.WriteFile(c.JUnit, text, 0o644); err != nil {
			return fmt.Errorf("writing the JUnit report: %w", err)
		}
	}
	switch failed := all.Failed(); {
	case failed > 0:
		return fmt.Errorf("%d of %s failed", failed, counted(len(all.Results), "case"))
	case c.FailOnUncovered && uncovered > 0:
		return fmt.Errorf("%d of what the policy says isn't covered", uncovered)
	}
	return nil
}

// suites reads the policies and the cases. What is wrong with any of them is
// said together.
func (c *policyTestCommand) suites(p *process) ([]suite, error) {
	var suites []suite
	var problems []error
	if c.Policy != "" {
		rules, err := p.readPolicy(c.Policy)
		problems = append(problems, err)
		suites = append(suites, suite{path: c.Policy, rules: rules})
	}
	for _, folder := range c.Folders {
		cases, err := readCases(folder)
		problems = append(problems, err)
		if c.Policy != "" {
			suites[0].cases = append(suites[0].cases, cases...)
			continue
		}
		path := filepath.Join(folder, "policy.yaml")
		rules, err := readPolicy(path)
		if errors.Is(err, errNoPolicy) {
			err = fmt.Errorf("there is no %s; --policy names the policy that the cases are about", path)
		}
		problems = append(problems, err)
		suites = append(suites, suite{path, rules, cases})
	}
	return suites, errors.Join(problems...)
}

// readCases reads all files of cases in a folder. That there is none is an
// error, so that a test which tests nothing doesn't pass.
func readCases(folder string) ([]policy.Case, error) {
	paths, err := filepath.Glob(filepath.Join(folder, "*.test.yaml"))
	if err != nil {
		return nil, fmt.Errorf("looking for cases: %w", err)
	}
	if len(paths) == 0 {
		return nil, fmt.Errorf("there is no file *.test.yaml in %s", folder)
	}
	var all []policy.Case
	var problems []error
	for _, path := range paths {
		source, err := os.ReadFile(path)
		if err != nil {
			problems = append(problems, fmt.Errorf("reading cases: %w", err))
			continue
		}
		cases, err := policy.ParseCases(source)
		if err != nil {
			problems = append(problems, &fileError{path, err})
		}
		for _, one := range cases {
			one.File = path
			all = append(all, one)
		}
	}
	return all, errors.Join(problems...)
}
