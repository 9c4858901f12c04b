package policy_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/countersign/countersign/policy"
)

// The policies to start from, and the one that says what the guide to approval
// gates says, do what their cases show, and the cases show all of them.
func TestStarters(t *testing.T) {
	t.Parallel()
	folders := []string{filepath.Join("testdata", "guide")}
	for _, name := range policy.Starters() {
		folders = append(folders, filepath.Join("starters", name))
	}
	for _, folder := range folders {
		t.Run(filepath.Base(folder), func(t *testing.T) {
			t.Parallel()
			source, err := os.ReadFile(filepath.Join(folder, "policy.yaml"))
			if err != nil {
				t.Fatal(err)
			}
			p, err := policy.Parse(source)
			if err != nil {
				t.Fatal(err)
			}
			if findings := p.Check(); len(findings) > 0 {
				t.Errorf("policy check finds\n%v", findings)
			}
			report := p.Test(casesIn(t, folder))
			if report.Failed() > 0 {
				t.Error(report)
			}
			if len(report.Coverage.Uncovered()) > 0 {
				t.Error(report.Coverage)
			}
		})
	}
}

// casesIn reads all files of cases in a folder.
func casesIn(t *testing.T, folder string) []policy.Case {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*.test.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("cases in %s: %v, %v", folder, files, err)
	}
	var all []policy.Case
	for _, file := range files {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		cases, err := policy.ParseCases(source)
		if err != nil {
			t.Fatalf("%s:\n%v", file, err)
		}
		for _, c := range cases {
			c.File = file
			all = append(all, c)
		}
	}
	return all
}
