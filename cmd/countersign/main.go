// Command countersign is where a person says yes before an AI agent does
// something that matters. "countersign demo" shows it without any account.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"

	"github.com/countersign/countersign/policy"
)

// process is what a command may use of the process it runs in.
type process struct {
	stdin       io.ReadCloser
	stdout      io.WriteCloser // data only: on "mcp" it carries the protocol
	stderr      io.Writer      // logs and messages for people
	environment func(string) string
}

func (p *process) logger() *slog.Logger {
	return slog.New(slog.NewJSONHandler(p.stderr, nil))
}

type commands struct {
	Demo     demoCommand     `cmd:"" help:"Try it now: a simulated Slack channel in the browser, and an agent that asks."`
	Serve    serveCommand    `cmd:"" help:"Run the server: agents ask over HTTP, people decide in Slack and on its pages."`
	MCP      mcpCommand      `cmd:"" name:"mcp" help:"Serve one agent on standard input and output, alone or through a running server."`
	Run      runCommand      `cmd:"" help:"Ask before a command runs: countersign run -- git push origin main."`
	Token    tokenCommand    `cmd:"" help:"Create, list and revoke the tokens of agents."`
	Tools    toolsCommand    `cmd:"" help:"List the tools of downstream servers, see what changed, and pin it."`
	Grants   grantsCommand   `cmd:"" help:"List and revoke approvals that hold for more than once."`
	Receipt  receiptCommand  `cmd:"" help:"Verify receipts of decisions, and look after the keys that sign them."`
	Policy   policyCommand   `cmd:"" help:"Check, test, explain and compare policies, and print some to start from."`
	Manifest manifestCommand `cmd:"" help:"Print the Slack app's manifest, with the fewest scopes that work."`
	Doctor   doctorCommand   `cmd:"" help:"Check the configuration, the policy, Slack, the clock and the database, and say what to do."`
	Config   configCommand   `cmd:"" help:"Print an example configuration that explains every key."`
	Version  versionCommand  `cmd:"" help:"Print the version."`
}

const defaultConfigFile = "countersign.yaml"

// configFlag is the flag that most commands share.
type configFlag struct {
	Config string `short:"c" default:"${config}" placeholder:"FILE" help:"The configuration file (default: ${default})."`
}

// given is what a server needs from outside.
type given struct {
	config  config
	policy  *policy.Policy
	secrets secrets
}

// read reads the configuration, the policy that it names, and the secrets that
// it needs.
func (f configFlag) read(p *process) (given, error) {
	conf, err := readConfig(f.Config)
	if err != nil {
		return given{}, err
	}
	rules, err := readPolicy(conf.Policy)
	if err != nil {
		return given{}, err
	}
	if err := conf.Gate.readTimeout(p.environment); err != nil {
		return given{}, err
	}
	keys, err := readSecrets(conf, p.environment)
	return given{conf, rules, keys}, err
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	code := run(ctx, os.Args[1:], &process{
		stdin:       os.Stdin,
		stdout:      os.Stdout,
		stderr:      os.Stderr,
		environment: os.Getenv,
	})
	stop()
	os.Exit(code)
}

// exit ends parsing after kong has printed help.
type exit int

// codedError has the program exit with a code of its own. err may be nil, if there
// is nothing more to say.
type codedError struct {
	code int
	err  error
}

func (e *codedError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

// run carries out one command line and returns the exit code: 0, 1 if the
// command failed, 2 if it wasn't understood, or the one of a codedError.
func run(ctx context.Context, arguments []string, p *process) (code int) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case exit:
			code = int(r)
		default:
			panic(r)
		}
	}()
	var c commands
	parser, err := kong.New(&c,
		kong.Name("countersign"),
		kong.Description("The place where a person says yes before an AI agent does something that matters."),
		kong.Vars{"config": defaultConfigFile},
		kong.Writers(p.stdout, p.stderr),
		kong.Exit(func(code int) { panic(exit(code)) }),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, NoExpandSubcommands: false}),
		kong.BindTo(ctx, (*context.Context)(nil)),
		kong.Bind(p),
	)
	if err != nil {
		return p.fail(err)
	}
	if len(arguments) == 0 {
		arguments = []string{"--help"}
	}
	command, err := parser.Parse(arguments)
	if err != nil {
		var wrong *kong.ParseError
		if errors.As(err, &wrong) {
			fmt.Fprintf(p.stderr, "countersign: %v\nSee \"countersign --help\".\n", err)
			return 2
		}
		return p.fail(err)
	}
	err = command.Run()
	if err == nil {
		return 0
	}
	coded, ok := errors.AsType[*codedError](err)
	if !ok {
		return p.fail(err)
	}
	if coded.err != nil {
		p.fail(coded.err)
	}
	return coded.code
}

func (p *process) fail(err error) int {
	fmt.Fprintf(p.stderr, "countersign: %s\n", strings.TrimRight(err.Error(), "\n"))
	return 1
}
