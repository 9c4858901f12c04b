package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"

	"github.com/countersign/countersign/policy"
)

type policyCommand struct {
	Check   policyCheckCommand   `cmd:"" help:"Check a policy file: what is wrong with it, and what its author should know."`
	Test    policyTestCommand    `cmd:"" help:"Run the cases of *.test.yaml against a policy, and say what they cover."`
	Explain policyExplainCommand `cmd:"" help:"Say how the policy rules one call, and why."`
	Diff    policyDiffCommand    `cmd:"" help:"Say what changes from one policy to another, also for the calls that were recorded."`
	Tools   policyToolsCommand   `cmd:"" help:"Propose a tier for each tool that the policy doesn't classify."`
	Example policyExampleCommand `cmd:"" help:"Print an example policy that explains every key."`
	Starter policyStarterCommand `cmd:"" help:"Print a policy to start from, or list those that there are."`
}

// policyFlag is for commands that are about one policy.
type policyFlag struct {
	configFlag
	Policy string `short:"p" placeholder:"FILE" help:"The policy file; - is standard input (default: the configuration's)."`
}

func (f policyFlag) read(p *process) (*policy.Policy, error) {
	path, err := f.path()
	if err != nil {
		return nil, err
	}
	return p.readPolicy(path)
}

// path is the policy file that is meant. Nothing else of the configuration
// needs to be right for that, and if there is none, the policy lies where an
// empty one would look for it.
func (f policyFlag) path() (string, error) {
	if f.Policy != "" {
		return f.Policy, nil
	}
	conf, err := readUncheckedConfig(f.Config)
	switch {
	case errors.Is(err, errNoConfig) && f.Config == defaultConfigFile:
		return filepath.Join(filepath.Dir(f.Config), defaultConfig().Policy), nil
	case err != nil:
		return "", err
	default:
		return conf.Policy, nil
	}
}

// readPolicy is readPolicy that takes standard input too.
func (p *process) readPolicy(path string) (*policy.Policy, error) {
	if path != standardInput {
		return readPolicy(path)
	}
	source, err := readAll(inWords(path), p.stdin)
	if err != nil {
		return nil, err
	}
	return parsePolicy(inWords(path), source)
}

// inWords is what messages call a file.
func inWords(path string) string {
	if path == standardInput {
		return "standard input"
	}
	return path
}

type policyCheckCommand struct {
	configFlag
	File string `arg:"" optional:"" help:"The policy file; - is standard input (default: the configuration's)."`
}

func (c *policyCheckCommand) Run(p *process) error {
	path, err := policyFlag{c.configFlag, c.File}.path()
	if err != nil {
		return err
	}
	rules, err := p.readPolicy(path)
	path = inWords(path)
	var wrong *fileError
	switch {
	case errors.As(err, &wrong):
		fmt.Fprintln(p.stdout, wrong)
		return fmt.Errorf("%s is not accepted", path)
	case err != nil:
		return err
	}
	if findings := rules.Check(); len(findings) > 0 {
		fmt.Fprintln(p.stdout, strings.Join(placed(path, findings), "\n"))
		return fmt.Errorf("%s: %s", path, counted(len(findings), "finding"))
	}
	fmt.Fprintf(p.stdout, "%s: no findings (%s)\n", path, rules.Summary())
	return nil
}

func counted(count int, what string) string {
	if count == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", count, what)
}

type policyStarterCommand struct {
	Name string `arg:"" optional:"" help:"Which one. Without it, they are listed."`
}

// starterSubjects say what each starter is for.
var starterSubjects = map[string]string{
	"crm":        "customers in HubSpot and Salesforce",
	"github":     "repositories, issues and pull requests",
	"postgresql": "a database that agents query and change",
	"payments":   "charges, refunds and payouts, as with Stripe",
	"kubernetes": "what runs in clusters",
	"personal":   "one person on their own machine, who decides in the host's view",
}

func (c *policyStarterCommand) Run(p *process) error {
	if c.Name == "" {
		table := tabwriter.NewWriter(p.stdout, 0, 0, 2, ' ', 0)
		for _, name := range policy.Starters() {
			fmt.Fprintf(table, "%s\t%s\n", name, starterSubjects[name])
		}
		return table.Flush()
	}
	source, ok := policy.Starter(c.Name)
	if !ok {
		return fmt.Errorf("there is no starter %q; there are %s", c.Name, strings.Join(policy.Starters(), ", "))
	}
	_, err := p.stdout.Write(source)
	return err
}

type policyExampleCommand struct{}

func (policyExampleCommand) Run(p *process) error {
	_, err := fmt.Fprint(p.stdout, examplePolicy)
	return err
}

// colours reports whether standard output is a terminal whose user didn't ask
// for plain text.
func (p *process) colours() bool {
	if p.environment("NO_COLOR") != "" || p.environment("TERM") == "dumb" {
		return false
	}
	file, ok := p.stdout.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// print writes a text in which the lines that begin with one of the marks need
// looking at.
func (p *process) print(text string, marks ...string) {
	if !p.colours() {
		fmt.Fprint(p.stdout, text)
		return
	}
	for line := range strings.Lines(text) {
		for _, mark := range marks {
			if strings.HasPrefix(line, mark) {
				line = "\x1b[31m" + strings.TrimSuffix(line, "\n") + "\x1b[0m\n"
				break
			}
		}
		fmt.Fprint(p.stdout, line)
	}
}
