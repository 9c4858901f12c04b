package policy

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"strings"

	"github.com/countersign/countersign/internal/visible"
)

// The elements of a JUnit report that the readers in use share. There is no
// time: a ruling takes some microseconds, and two runs give one report.

type junitSuites struct {
	XMLName  xml.Name     `xml:"testsuites"`
	Name     string       `xml:"name,attr"`
	Tests    int          `xml:"tests,attr"`
	Failures int          `xml:"failures,attr"`
	Errors   int          `xml:"errors,attr"`
	Suites   []junitSuite `xml:"testsuite"`
}

type junitSuite struct {
	Name     string      `xml:"name,attr"`
	File     string      `xml:"file,attr,omitempty"`
	Tests    int         `xml:"tests,attr"`
	Failures int         `xml:"failures,attr"`
	Errors   int         `xml:"errors,attr"`
	Skipped  int         `xml:"skipped,attr"`
	Cases    []junitCase `xml:"testcase"`
}

type junitCase struct {
	Name    string        `xml:"name,attr"`
	Class   string        `xml:"classname,attr"`
	File    string        `xml:"file,attr,omitempty"`
	Line    int           `xml:"line,attr"`
	Failure *junitFailure `xml:"failure"`
}

type junitFailure struct {
	Message string `xml:"message,attr"`
	Type    string `xml:"type,attr"`
	Text    string `xml:",chardata"`
}

// JUnit is the report in the XML format of JUnit, which CI systems read: a suite
// for each file of cases.
func (r Report) JUnit() ([]byte, error) {
	all := junitSuites{Name: "countersign policy test", Tests: len(r.Results), Failures: r.Failed()}
	at := make(map[string]int)
	for _, result := range r.Results {
		file := visible.Line(result.Case.File)
		i, known := at[file]
		if !known {
			i = len(all.Suites)
			at[file] = i
			all.Suites = append(all.Suites, junitSuite{Name: suiteName(file), File: file})
		}
		suite := &all.Suites[i]
		suite.Tests++
		made := junitCase{Name: visible.Line(result.Case.Name), Class: suite.Name, File: file, Line: result.Case.Line}
		if !result.Passed() {
			suite.Failures++
			made.Failure = result.junitFailure()
		}
		suite.Cases = append(suite.Cases, made)
	}
	text := bytes.NewBufferString(xml.Header)
	encoder := xml.NewEncoder(text)
	encoder.Indent("", "  ")
	if err := encoder.Encode(all); err != nil {
		return nil, fmt.Errorf("writing the JUnit report: %w", err)
	}
	text.WriteByte('\n')
	return text.Bytes(), nil
}

// suiteName is what a suite is called: its file, since readers drop suites
// without a name.
func suiteName(file string) string {
	if file == "" {
		return "policy"
	}
	return file
}

func (r Result) junitFailure() *junitFailure {
	var short, long []string
	for _, mismatch := range r.Mismatches {
		line := visible.Line(fmt.Sprintf("%s: expected %s, got %s", mismatch.What, mismatch.Want, mismatch.Got))
		short = append(short, line)
		long = append(long, line)
	}
	long = append(long, visible.Line(r.where()))
	return &junitFailure{Message: strings.Join(short, "; "), Type: "mismatch", Text: strings.Join(long, "\n")}
}
